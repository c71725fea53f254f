//! The settings of a parallel step where they stand as its YAML file has them: numbers, names of inputs and outputs, words.

use crate::{
    arm::{
        Invalid,
        batch::{MAX_INT, MAX_TIMEOUT, MAX_WORKERS, script_path},
        component::{Spec, Takes},
        field::Field,
        job::{Input, Output, PortType},
    },
    names::{nearest, shown},
};
use model::{
    Millis,
    batch::{ALL_OF_THEM, ANY_NUMBER},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, ops::RangeInclusive};

/// Arguments of the script that Azure's engine reads, too, and this one has nothing to do with. Its limits of time are those
/// of `retry_settings`; logs are where they are read.
const NOT_HERE: [&str; 5] = [
    "--task_overhead_timeout",
    "--progress_update_timeout",
    "--first_task_creation_timeout",
    "--copy_logs_to_parent",
    "--resource_monitor_interval",
];
/// The one that it acts upon.
const PERCENT: &str = "--allowed_failed_percent";

/// Defaults of §2.1.8.
pub mod default {
    use model::Millis;
    /// Files per `run()`.
    pub const MINI_BATCH_SIZE: u32 = 10;
    /// Workers per node.
    pub const WORKERS: u32 = 1;
    /// Attempts after the first.
    pub const MAX_RETRIES: u32 = 2;
    /// Limit of one `run()`.
    pub const TIMEOUT: Millis = Millis::secs(60);
}

/// What a worker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scorer {
    /// A script inside the code folder.
    Script(String),
    /// An MLflow model without one.
    Model(String),
}

/// The settings of a parallel step, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub scorer: Scorer,
    pub arguments: Vec<Box<str>>,
    /// The output that collects the rows.
    pub rows: Option<Box<str>>,
    /// The input that is listed.
    pub input: Box<str>,
    pub mini_batch_size: u32,
    pub workers: u32,
    pub max_retries: u32,
    pub timeout: Millis,
    pub error_threshold: i64,
    pub mini_batch_error_threshold: i64,
    pub logging: &'static str,
}

/// What a component or a step declares.
pub(super) struct Ports<'a> {
    inputs: BTreeMap<&'a str, PortType>,
    /// What each output is.
    outputs: BTreeMap<&'a str, PortType>,
}

impl<'a> Ports<'a> {
    pub fn declared(spec: &'a Spec) -> Ports<'a> {
        let port = |takes: Takes| match takes {
            Takes::Files(port) => port,
            Takes::Text | Takes::Integer | Takes::Number | Takes::Truth => PortType::Literal,
        };
        let kind = |word: &str| match word {
            "uri_file" => PortType::File,
            "mltable" => PortType::Table,
            _ => PortType::Folder,
        };
        let inputs = spec.inputs.iter();
        let outputs = spec.outputs.iter();
        Ports {
            inputs: inputs.map(|(n, i)| (&**n, port(i.takes))).collect(),
            outputs: outputs.map(|(n, word)| (&**n, kind(word))).collect(),
        }
    }
    pub fn given(
        inputs: &'a BTreeMap<Box<str>, Input>,
        outputs: &'a BTreeMap<Box<str>, Output>,
    ) -> Ports<'a> {
        let port = |input: &Input| match input {
            Input::Literal(_) => PortType::Literal,
            Input::At { kind, .. } => *kind,
        };
        Ports {
            inputs: inputs.iter().map(|(n, i)| (&**n, port(i))).collect(),
            outputs: outputs.iter().map(|(n, o)| (&**n, o.kind)).collect(),
        }
    }
}

/// The inside of a text that is one expression.
pub(super) fn inside(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("${{")?.strip_suffix("}}")?.trim();
    (!inner.contains("${{")).then_some(inner)
}

/// The port that a setting such as `${{inputs.NAME}}` names.
fn port<'a>(
    field: &Field<'a>,
    side: &str,
    known: &BTreeMap<&str, PortType>,
) -> Result<(&'a str, PortType), Invalid> {
    let text = field.need_text()?;
    let named = inside(text).and_then(|t| t.strip_prefix(side)?.strip_prefix("s."));
    let Some(name) = named else {
        return Err(field.refuse(format!(
            "is `{}`, expected ${{{{{side}s.NAME}}}}",
            shown(text)
        )));
    };
    let Some(kind) = known.get(name) else {
        let refusal = field.refuse(format!(
            "names {side} {}, and there is {}",
            shown(name),
            match known.is_empty() {
                true => "none".to_owned(),
                false => known.keys().copied().collect::<Vec<_>>().join(", "),
            }
        ));
        return Err(match nearest(name, known.keys().copied()) {
            Some(near) => refusal.hint(format!("did you mean {near}")),
            None => refusal,
        });
    };
    Ok((name, *kind))
}

/// A number, which some clients send as a text.
fn number(field: &Field<'_>, allowed: RangeInclusive<i64>) -> Result<Option<i64>, Invalid> {
    let Some(Value::String(text)) = field.value() else {
        return field.whole(allowed);
    };
    match text.trim().parse::<i64>() {
        Ok(n) if allowed.contains(&n) => Ok(Some(n)),
        Ok(_) | Err(_) => Err(field.refuse(format!(
            "is `{}`, expected a whole number from {} to {}",
            shown(text),
            allowed.start(),
            allowed.end()
        ))),
    }
}

pub(super) fn count(
    field: &Field<'_>,
    allowed: RangeInclusive<u32>,
) -> Result<Option<u32>, Invalid> {
    let wide = i64::from(*allowed.start())..=i64::from(*allowed.end());
    Ok(number(field, wide)?.and_then(|n| u32::try_from(n).ok()))
}

/// Files per `run()`. The SDK sends 0 for a component that says nothing.
fn mini_batch_size(field: &Field<'_>) -> Result<u32, Invalid> {
    if let Some(Value::String(text)) = field.value() {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text[digits.len()..].to_ascii_lowercase();
        let amount = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if amount && ["kb", "mb", "gb"].contains(&unit.as_str()) {
            return Err(field
                .unsupported(format!(
                    "is `{}`, an amount of tabular data, which is not built yet",
                    shown(text)
                ))
                .hint("of a uri_folder it is how many files each run() gets, such as 10"));
        }
    }
    let said = count(field, 0..=MAX_INT)?.filter(|n| *n > 0);
    Ok(said.unwrap_or(default::MINI_BATCH_SIZE))
}

/// Seconds, or ISO 8601.
fn limit(field: &Field<'_>) -> Result<Option<Millis>, Invalid> {
    let seconds = match field.value() {
        Some(Value::String(text)) if text.starts_with(['P', 'p']) => {
            field.duration()?.map(|t| t.0.div_ceil(1000))
        }
        _ => number(field, 0..=i64::MAX)?.and_then(|n| u64::try_from(n).ok()),
    };
    let most = MAX_TIMEOUT.0 / 1000;
    match seconds {
        Some(0) => Err(field.refuse("is 0, and no call of run() ends in no time")),
        Some(n) if n > most => Err(field.refuse(format!("is {n} s, at most {most} s are allowed"))),
        other => Ok(other.map(Millis::secs)),
    }
}

/// The words of a line, as a shell reads them: blanks divide, quotes hold together, `\` takes the next character as it is. An
/// expression is never divided, and its value stays one word whatever is in it.
fn words(field: &Field<'_>, line: &str) -> Result<Vec<Box<str>>, Invalid> {
    let (mut out, mut word, mut begun) = (Vec::new(), String::new(), false);
    let mut quote: Option<char> = None;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if let Some((inner, after)) = rest.strip_prefix("${{").and_then(|t| t.split_once("}}")) {
            word.push_str(&format!("${{{{{}}}}}", inner.trim()));
            (begun, rest) = (true, after);
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => (quote, begun) = (Some(c), true),
            ('\\', None | Some('"')) => {
                let next = rest.chars().next();
                let next = next.ok_or_else(|| field.refuse("ends in a \\ before nothing"))?;
                rest = &rest[next.len_utf8()..];
                word.push(next);
                begun = true;
            }
            (c, None) if c.is_whitespace() => {
                if begun {
                    out.push(std::mem::take(&mut word).into());
                }
                begun = false;
            }
            (c, _) => {
                word.push(c);
                begun = true;
            }
        }
    }
    if let Some(open) = quote {
        return Err(field.refuse(format!("has a {open} that is not closed")));
    }
    if begun {
        out.push(word.into());
    }
    Ok(out)
}

/// What the arguments say to the engine: the part of all mini-batches that may fail.
pub(super) fn percent(
    field: &Field<'_>,
    arguments: &[Box<str>],
    inputs: &BTreeMap<Box<str>, Input>,
    warnings: &mut Vec<String>,
) -> Result<u32, Invalid> {
    let mut found = ALL_OF_THEM;
    let mut all = arguments.iter().map(|word| &**word);
    while let Some(word) = all.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        if NOT_HERE.contains(&name) {
            warnings.push(format!("{}: {name} has no effect here", field.path()));
        } else if name == PERCENT {
            let said = value.or_else(|| all.next()).unwrap_or_default();
            let given = inside(said).and_then(|t| inputs.get(t.strip_prefix("inputs.")?));
            let said = match given {
                Some(Input::Literal(text)) => text,
                Some(Input::At { .. }) | None => said,
            };
            found = match said.parse::<u32>() {
                Ok(n) if n <= ALL_OF_THEM => n,
                Ok(_) | Err(_) => {
                    return Err(field.refuse(format!(
                        "has {PERCENT} `{}`, expected a whole number from 0 to 100",
                        shown(said)
                    )));
                }
            };
        }
    }
    Ok(found)
}

/// What a worker runs.
fn scorer(task: &Field<'_>) -> Result<Scorer, Invalid> {
    let kind = task.get("type");
    let by_model = kind.choice(&[
        ("run_function", false),
        ("function", false),
        ("model", true),
    ])?;
    let (script, model) = (task.get("entry_script"), task.get("model"));
    match by_model {
        None => Err(kind
            .missing()
            .hint("write type: run_function, or type: model for an MLflow model without a script")),
        Some(false) => {
            if let Some(text) = model.text()?.filter(|t| !t.is_empty()) {
                return Err(model
                    .refuse(format!(
                        "is `{}`, and a task of type run_function has no model",
                        shown(text)
                    ))
                    .hint("give the model as an input, and its path in program_arguments"));
            }
            let text = script.need_text()?;
            Ok(Scorer::Script(script_path(&script, text)?))
        }
        Some(true) => {
            if let Some(text) = script.text()?.filter(|t| !t.is_empty()) {
                return Err(script
                    .refuse(format!(
                        "is `{}`, and a task of type model has no script",
                        shown(text)
                    ))
                    .hint("write type: run_function"));
            }
            let text = model.need_text()?;
            if inside(text).is_some() {
                return Err(model
                    .unsupported(format!(
                        "is `{}`: an input as the model is not built yet",
                        shown(text)
                    ))
                    .hint("name a registered model: azureml:NAME:VERSION"));
            }
            Ok(Scorer::Model(text.to_owned()))
        }
    }
}

/// Reads the settings where they stand as the YAML file has them.
pub(super) fn read(of: &Field<'_>, ports: &Ports<'_>) -> Result<Settings, Invalid> {
    let task = of.get("task").need_object()?;
    let keys = of.get("partition_keys");
    if keys
        .value()
        .is_some_and(|v| *v != json!([]) && *v != json!("[]"))
    {
        return Err(keys.unsupported(
            "is given: partitions of a table are not built yet; mini_batch_size files go to each run()",
        ));
    }
    let data = of.get("input_data");
    let (input, kind) = port(&data, "input", &ports.inputs)?;
    match kind {
        PortType::Folder | PortType::File => {}
        PortType::Table => {
            return Err(data.unsupported(format!(
                "names input {input}, an mltable: rows of a table are not built yet; uri_folder and uri_file are"
            )));
        }
        PortType::Literal | PortType::Model => {
            return Err(data.refuse(format!(
                "names input {input}, which is no uri_folder and no uri_file"
            )));
        }
    }
    let append = task.get("append_row_to");
    let rows = match append.text()?.filter(|t| !t.is_empty()) {
        None => None,
        Some(_) => {
            let (name, kind) = port(&append, "output", &ports.outputs)?;
            if !matches!(kind, PortType::File | PortType::Folder) {
                return Err(append.refuse(format!(
                    "names output {name}, which is no uri_file and no uri_folder"
                )));
            }
            Some(name.into())
        }
    };
    let line = task.get("program_arguments");
    let retry = of.get("retry_settings").maybe_object()?;
    let threshold = |key: &str| {
        let said = number(&of.get(key), ANY_NUMBER..=i64::from(MAX_INT))?;
        Ok::<_, Invalid>(said.unwrap_or(ANY_NUMBER))
    };
    let workers = count(&of.get("max_concurrency_per_instance"), 1..=MAX_WORKERS)?;
    let level = of.get("logging_level");
    Ok(Settings {
        scorer: scorer(&task)?,
        arguments: words(&line, line.text()?.unwrap_or_default())?,
        rows,
        input: input.into(),
        mini_batch_size: mini_batch_size(&of.get("mini_batch_size"))?,
        workers: workers.unwrap_or(default::WORKERS),
        max_retries: count(&retry.get("max_retries"), 0..=MAX_INT)?.unwrap_or(default::MAX_RETRIES),
        timeout: limit(&retry.get("timeout"))?.unwrap_or(default::TIMEOUT),
        error_threshold: threshold("error_threshold")?,
        mini_batch_error_threshold: threshold("mini_batch_error_threshold")?,
        logging: level
            .choice(&[("INFO", "info"), ("WARNING", "warning"), ("DEBUG", "debug")])?
            .unwrap_or("info"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Result<Vec<String>, String> {
        let words = words(&Field::at("/a"), line).map_err(|e| e.message)?;
        Ok(words.into_iter().map(String::from).collect())
    }

    #[test]
    fn a_line_becomes_words_and_an_expression_stays_one() {
        let line = r#"--a  "two words" b\ c ${{ inputs.x }}/y 'it"s' "" --z=${{outputs.o}}"#;
        let want = [
            "--a",
            "two words",
            "b c",
            "${{inputs.x}}/y",
            "it\"s",
            "",
            "--z=${{outputs.o}}",
        ];
        assert_eq!(split(line).unwrap(), want);
        assert_eq!(split("  \n ").unwrap(), [""; 0]);
        assert!(
            split("a 'b")
                .unwrap_err()
                .contains("has a ' that is not closed")
        );
        assert!(split("a \\").unwrap_err().contains("before nothing"));
    }

    #[test]
    fn a_size_is_a_number_of_files() {
        let size = |value: Value| {
            let said = json!({"size": value});
            mini_batch_size(&Field::root(&said).get("size")).map_err(|e| e.message)
        };
        assert_eq!(size(json!(null)), Ok(10));
        assert_eq!(size(json!(0)), Ok(10), "what the SDK sends for nothing");
        assert_eq!((size(json!("25")), size(json!(3))), (Ok(25), Ok(3)));
        assert!(
            size(json!("10kB"))
                .unwrap_err()
                .contains("an amount of tabular data")
        );
        for wrong in [json!("ten"), json!(-1), json!("1.5"), json!("10 kb")] {
            assert!(size(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
