//! `--set a.b[0].c=v` and the flags that stand for one key, applied to a file before it is read.
//!
//! The path language is `az`'s: names joined by dots, list indices in brackets. A name that holds a dot stands in quotes:
//! `properties."zaffre.on_capacity_loss"=wait`. A value that begins with `{`, `[` or a quote is read as YAML (and so as JSON),
//! any other value is one scalar, kept as written.
//!
//! A1 the last override of a key wins; a map or a list on the way is made, a scalar on the way is an error.

use super::{
    diagnostic::{Diagnostic, Place},
    report::{At, Report, Source},
    tree::{self, Entry, Node, Value},
};

/// Names and indices that a path may have; the deepest key of Azure's schemas has six.
const MAX_STEPS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// One key given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    steps: Vec<Step>,
    value: String,
    /// Read the value as YAML when it looks like a map, a list or a quoted text.
    structured: bool,
    shown: String,
}

impl Override {
    /// `--set PATH=VALUE`; the argument is what follows `--set`.
    pub fn set(argument: &str) -> Result<Override, Box<Diagnostic>> {
        let shown = format!("--set {argument}");
        let refuse = |message: String| {
            Box::new(Diagnostic {
                place: Place::Flag(shown.clone()),
                path: String::new(),
                message,
                hint: Some("write --set key.inner[0].name=value".into()),
            })
        };
        let (steps, value) = path(argument).map_err(refuse)?;
        Ok(Override {
            steps,
            value: value.to_owned(),
            structured: true,
            shown: shown.clone(),
        })
    }

    /// A flag that stands for one key: `flag("--min-instances", &["min_instances"], "1")`.
    pub fn flag(flag: &str, keys: &[&str], value: &str) -> Override {
        Override {
            steps: keys
                .iter()
                .map(|key| Step::Key((*key).to_owned()))
                .collect(),
            value: value.to_owned(),
            structured: false,
            shown: format!("{flag} {value}"),
        }
    }
}

/// Steps of a path and the text behind its `=`.
fn path(argument: &str) -> Result<(Vec<Step>, &str), String> {
    let mut steps = Vec::new();
    let mut rest = argument;
    loop {
        if steps.len() > MAX_STEPS {
            return Err(format!("the path has more than {MAX_STEPS} parts"));
        }
        let (name, after) = key(rest)?;
        steps.push(Step::Key(name));
        rest = after;
        while let Some(inside) = rest.strip_prefix('[') {
            let (index, after) = inside
                .split_once(']')
                .ok_or("`[` is opened and never closed")?;
            let quoted = index
                .strip_prefix(['"', '\''])
                .and_then(|inner| inner.strip_suffix(['"', '\'']));
            steps.push(match quoted {
                Some(name) => Step::Key(name.to_owned()),
                None => Step::Index(
                    index
                        .parse()
                        .map_err(|_| format!("`[{index}]` is not the index of a list"))?,
                ),
            });
            rest = after;
        }
        if let Some(value) = rest.strip_prefix('=') {
            return Ok((steps, value));
        }
        rest = rest
            .strip_prefix('.')
            .ok_or("a path and a value are joined by =")?;
    }
}

fn key(text: &str) -> Result<(String, &str), String> {
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let (name, rest) = text[1..]
            .split_once(quote)
            .ok_or("a quote is opened and never closed")?;
        return Ok((name.to_owned(), rest));
    }
    let end = text
        .find(['.', '[', '='])
        .ok_or("a path and a value are joined by =")?;
    if end == 0 {
        return Err("a part of the path is empty".into());
    }
    Ok((text[..end].to_owned(), &text[end..]))
}

/// Applies overrides in order; what cannot be applied is reported and left out (A1).
pub(super) fn apply(root: &mut Node, overrides: &[Override], report: &Report<'_>) {
    for change in overrides {
        let source = report.source(Source::Flag(change.shown.clone()));
        let at = At {
            source,
            line: 1,
            column: 1,
        };
        match value(change, source, at) {
            Ok(value) => {
                if let Err(message) = put(root, &change.steps, value, at) {
                    report.error(at, "", message);
                }
            }
            Err(message) => report.error(at, "", message),
        }
    }
}

fn value(change: &Override, source: u16, at: At) -> Result<Node, String> {
    let text = &change.value;
    if change.structured && text.starts_with(['{', '[', '"', '\'']) {
        let mut node = tree::parse(text, source).map_err(|malformed| malformed.message)?;
        flatten_places(&mut node, at);
        return Ok(node);
    }
    if let Some(c) = text
        .chars()
        .find(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
    {
        return Err(format!(
            "the value holds the control character U+{:04X}",
            u32::from(c)
        ));
    }
    let null = change.structured && matches!(text.as_str(), "" | "~" | "null");
    let value = if null {
        Value::Null
    } else {
        Value::Text {
            text: text.clone(),
            plain: change.structured,
        }
    };
    Ok(Node { at, value })
}

/// Errors about a value of the command line point at its flag, wherever in the value they are.
fn flatten_places(node: &mut Node, at: At) {
    node.at = at;
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| flatten_places(item, at)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| {
            entry.at = at;
            flatten_places(&mut entry.node, at);
        }),
        Value::Null | Value::Text { .. } => {}
    }
}

fn put(node: &mut Node, steps: &[Step], value: Node, at: At) -> Result<(), String> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value;
        return Ok(());
    };
    if node.value == Value::Null {
        let empty = if matches!(step, Step::Key(_)) {
            Value::Map(Vec::new())
        } else {
            Value::List(Vec::new())
        };
        *node = Node { at, value: empty };
    }
    match (step, &mut node.value) {
        (Step::Key(key), Value::Map(entries)) => {
            let found = entries.iter().position(|entry| entry.key == *key);
            let index = found.unwrap_or_else(|| {
                entries.push(Entry {
                    key: key.clone(),
                    at,
                    node: Node {
                        at,
                        value: Value::Null,
                    },
                });
                entries.len() - 1
            });
            entries[index].at = at;
            put(&mut entries[index].node, rest, value, at)
        }
        (Step::Index(index), Value::List(items)) => {
            if *index > items.len() {
                return Err(format!(
                    "index {index} is outside the list, which has {} items",
                    items.len()
                ));
            }
            if *index == items.len() {
                items.push(Node {
                    at,
                    value: Value::Null,
                });
            }
            put(&mut items[*index], rest, value, at)
        }
        (Step::Key(key), other) => Err(format!(
            "`{key}` is a key of a map, but here is {}",
            described(other)
        )),
        (Step::Index(index), other) => Err(format!(
            "[{index}] is a place in a list, but here is {}",
            described(other)
        )),
    }
}

fn described(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Text { text, .. } => format!("the text `{}`", crate::names::shown(text)),
        Value::List(_) => "a list".into(),
        Value::Map(_) => "a map".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(argument: &str) -> (Vec<String>, String) {
        let (steps, value) = path(argument).unwrap();
        let shown = steps.iter().map(|step| match step {
            Step::Key(key) => key.clone(),
            Step::Index(index) => format!("[{index}]"),
        });
        (shown.collect(), value.to_owned())
    }

    #[test]
    fn paths_are_az_paths() {
        assert_eq!(steps("a=1"), (vec!["a".into()], "1".into()));
        assert_eq!(
            steps("a.b[0].c=v=w"),
            (
                vec!["a".into(), "b".into(), "[0]".into(), "c".into()],
                "v=w".into()
            )
        );
        assert_eq!(
            steps("p.\"zaffre.x\"=y"),
            (vec!["p".into(), "zaffre.x".into()], "y".into())
        );
        assert_eq!(
            steps("p['zaffre.x']="),
            (vec!["p".into(), "zaffre.x".into()], String::new())
        );
    }

    #[test]
    fn bad_paths_say_why() {
        for (argument, message) in [
            ("", "a path and a value are joined by ="),
            ("a", "a path and a value are joined by ="),
            ("=1", "a part of the path is empty"),
            ("a..b=1", "a part of the path is empty"),
            ("a[x]=1", "`[x]` is not the index of a list"),
            ("a[0=1", "`[` is opened and never closed"),
            ("a[0]b=1", "a path and a value are joined by ="),
            ("\"a=1", "a quote is opened and never closed"),
        ] {
            assert_eq!(
                Override::set(argument).unwrap_err().message,
                message,
                "{argument}"
            );
        }
    }
}
