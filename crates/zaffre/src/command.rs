//! The commands, one module per noun. Each asks the server through `Client` and prints through `Output`.

pub mod asset;
mod attach;
pub mod batch;
pub mod compute;
pub mod download;
pub mod identity;
pub mod instance_type;
pub mod invoke;
pub mod job;
pub mod kubeconfig;
pub mod online;
pub mod place;
mod role;
pub mod sign_in;
pub mod stream;
pub mod validate;

use crate::{
    cli::{ChangeArgs, Globals},
    client::Client,
    failure::Failure,
    output::Output,
};
use serde_json::Value;
use std::io::{BufRead, IsTerminal, Write};
use wire::yaml::Override;

/// What a command works with.
pub struct Context {
    /// The server.
    pub client: Client,
    /// Where results go.
    pub output: Output,
    /// The flags of every command.
    pub globals: Globals,
}

impl Context {
    /// Connects as the flags say.
    pub async fn new(globals: Globals) -> Result<Context, Failure> {
        let client = Client::connect(&globals).await?;
        Ok(Context {
            client,
            output: Output::new(globals.output, globals.query.clone()),
            globals,
        })
    }
}

/// Asks before something is deleted; without a terminal nobody can answer, so `--yes` is needed.
pub fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(
            Failure::wrong(format!("{question}: nobody is here to answer")).hint("add --yes"),
        );
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{question}? (y/N): ").and_then(|()| err.flush())?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::wrong("nothing was deleted")),
    }
}

/// `--set` as overrides, and `--add` and `--remove` carried out on the document.
pub fn changes(document: &mut Value, change: &ChangeArgs) -> Result<Vec<Override>, Failure> {
    edit::add(document, &change.add, change.force_string)?;
    edit::remove(document, &change.remove)?;
    if change.force_string {
        let quoted: Result<Vec<String>, Failure> = change
            .set
            .iter()
            .map(|argument| match argument.split_once('=') {
                Some((path, value)) => Ok(format!("{path}={}", Value::from(value))),
                None => Err(Failure::wrong(format!(
                    "--set {argument:?}: a path and a value are joined by ="
                ))),
            })
            .collect();
        return crate::draft::sets(&quoted?);
    }
    crate::draft::sets(&change.set)
}

/// `--add` and `--remove` of `az`.
mod edit {
    use super::{Failure, Value};

    /// Steps of a path: names and indices.
    fn pointer(path: &str) -> String {
        path.replace('[', ".")
            .replace(']', "")
            .split('.')
            .fold(String::new(), |all, part| format!("{all}/{part}"))
    }

    /// `--add PATH VALUE...`: each value is text, or `KEY=VALUE` pairs that make one object.
    pub fn add(document: &mut Value, arguments: &[String], text: bool) -> Result<(), Failure> {
        let Some((path, values)) = arguments.split_first() else {
            return Ok(());
        };
        if values.is_empty() {
            return Err(Failure::wrong(format!(
                "--add {path}: a path and at least one value are needed"
            )));
        }
        if document.pointer(&pointer(path)).is_none() {
            wire::yaml::put(document, &pointer(path), Value::Null);
        }
        let at = document
            .pointer_mut(&pointer(path))
            .ok_or_else(|| Failure::wrong(format!("--add {path}: no such path")))?;
        if at.is_null() {
            *at = Value::Array(vec![]);
        }
        let Value::Array(list) = at else {
            return Err(Failure::wrong(format!("--add {path}: it is no list")));
        };
        let parse = |value: &str| match serde_json::from_str(value) {
            Ok(parsed) if !text => parsed,
            _ => Value::from(value),
        };
        let pairs: Option<serde_json::Map<String, Value>> = values
            .iter()
            .map(|value| {
                value
                    .split_once('=')
                    .map(|(key, value)| (key.to_owned(), parse(value)))
            })
            .collect();
        match pairs {
            Some(object) => list.push(Value::Object(object)),
            None => list.extend(values.iter().map(|value| parse(value))),
        }
        Ok(())
    }

    /// `--remove PATH` or `--remove PATH INDEX`, as often as wanted: a number is the index of the path before it.
    pub fn remove(document: &mut Value, arguments: &[String]) -> Result<(), Failure> {
        let mut rest = arguments;
        while let Some((path, behind)) = rest.split_first() {
            let index = behind
                .first()
                .filter(|next| next.bytes().all(|b| b.is_ascii_digit()));
            rest = &behind[usize::from(index.is_some())..];
            remove_one(document, path, index)?;
        }
        Ok(())
    }

    fn remove_one(document: &mut Value, path: &str, index: Option<&String>) -> Result<(), Failure> {
        let whole = match index {
            None => pointer(path),
            Some(index) => format!("{}/{index}", pointer(path)),
        };
        let (parent, last) = whole.rsplit_once('/').unwrap_or(("", &whole));
        let gone = match document.pointer_mut(parent) {
            Some(Value::Object(fields)) => fields.shift_remove(last).is_some(),
            Some(Value::Array(list)) => match last.parse::<usize>() {
                Ok(at) if at < list.len() => {
                    list.remove(at);
                    true
                }
                _ => false,
            },
            _ => false,
        };
        if gone {
            return Ok(());
        }
        let index = index.map(|index| format!(" {index}")).unwrap_or_default();
        Err(Failure::wrong(format!(
            "--remove {path}{index}: there is no such field"
        )))
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use serde_json::json;

        fn words(text: &str) -> Vec<String> {
            text.split(' ').map(str::to_owned).collect()
        }

        #[test]
        fn fields_and_items_are_removed_and_a_missing_one_is_named() {
            let mut document = json!({"tags": {"a": "1", "b": "2"}, "list": [1, 2]});
            remove(&mut document, &words("tags.a")).unwrap();
            remove(&mut document, &words("list 0")).unwrap();
            assert_eq!(document, json!({"tags": {"b": "2"}, "list": [2]}));
            remove(&mut document, &words("list 0 tags.b list")).unwrap();
            assert_eq!(document, json!({"tags": {}}));
            assert_eq!(
                remove(&mut document, &words("tags.a")).unwrap_err().message,
                "--remove tags.a: there is no such field"
            );
        }
    }
}

/// Marks an asset or a container as archived or not.
pub async fn archive(client: &Client, at: &str, archived: bool) -> Result<(), Failure> {
    let mut document = client.get(at).await?;
    document["properties"]["isArchived"] = archived.into();
    client
        .put(at, &document, crate::client::operation::Wait::ForEnd)
        .await
        .map(drop)
}
