//! What a parallel component says besides its inputs and outputs, and what a step of one may say.
//!
//! A step that has its script itself is a component and a step at once: what it says goes into the component, save settings
//! that are inputs of the pipeline, whose values only the pipeline knows.

use super::{
    assets::environment_of,
    fields::{Choice, Fields, Text},
    limits,
    reference::{code, refer},
};
use crate::names::{Kind, is_reference, shown};
use serde_json::{Map, Value as Json, json};
use std::ops::RangeInclusive;

const TASKS: &[Choice] = &[
    ("run_function", "run_function"),
    ("function", "function"),
    ("model", "model"),
];
const LEVELS: &[Choice] = &[("DEBUG", "DEBUG"), ("INFO", "INFO"), ("WARNING", "WARNING")];
const SCRIPT_HINT: &str = "write task: {type: run_function, code: ./src, entry_script: score.py, environment: azureml:NAME:VERSION}";

/// Whose settings they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// A component's: numbers, no expressions.
    Component,
    /// A step's that is its own component.
    Inline,
    /// A step's that names its component.
    Step,
}

/// Settings of a component, and those that are the step's alone.
#[derive(Default)]
pub(super) struct Settings {
    pub component: Map<String, Json>,
    pub step: Map<String, Json>,
}

/// Reads them; `inputs` and `outputs` are declarations (`{NAME: {type: …}}`), `pointer` is where the component stands.
pub(super) fn settings(
    fields: &Fields<'_>,
    pointer: &str,
    of: Of,
    inputs: &Json,
    outputs: &Json,
) -> Settings {
    let mut out = Settings::default();
    let mut put = |key: &str, value: Option<Json>| {
        let Some(value) = value else { return };
        let bound = value.as_str().is_some_and(|t| t.contains("${{parent."));
        let map = match of == Of::Step || bound {
            true => &mut out.step,
            false => &mut out.component,
        };
        map.insert(key.to_owned(), value);
    };
    put("input_data", data(fields, of, inputs));
    put("mini_batch_size", mini_batch_size(fields, of));
    for (key, range) in [
        ("mini_batch_error_threshold", limits::ERROR_THRESHOLD),
        ("error_threshold", limits::ERROR_THRESHOLD),
        ("max_concurrency_per_instance", limits::WORKERS),
    ] {
        put(key, number(fields, key, range, of));
    }
    let level = match bound(fields, "logging_level", of) {
        Some(text) => Some(text.to_owned()),
        None => fields.choice("logging_level", LEVELS).map(str::to_owned),
    };
    put("logging_level", level.map(Json::from));
    if let Some(keys) = fields.list("partition_keys") {
        let path = fields.path_of("partition_keys");
        fields
            .report
            .unsupported(format!("{path} (partitions of a table)"));
        put("partition_keys", Some(json!(keys)));
    }
    put("retry_settings", retries(fields, of));
    if of == Of::Step {
        if !fields.absent("task") {
            fields.report.error_hint(
                fields.key_at("task"),
                &fields.path_of("task"),
                "task is the component's, and this step names a component",
                "change the component, or leave it out and give the step its task",
            );
        }
    } else {
        put("task", task(fields, pointer, inputs, outputs));
    }
    out
}

/// A setting that is an input of the pipeline, where it may be one.
fn bound<'r>(fields: &Fields<'r>, key: &'static str, of: Of) -> Option<&'r str> {
    let text = fields.entry(key)?.node.text()?;
    if of == Of::Component || !text.trim().starts_with("${{") {
        return None;
    }
    fields.show(key, text);
    Some(text)
}

fn number(
    fields: &Fields<'_>,
    key: &'static str,
    range: RangeInclusive<i64>,
    of: Of,
) -> Option<Json> {
    match bound(fields, key, of) {
        Some(text) => Some(text.into()),
        None => fields.int(key, range).map(Json::from),
    }
}

/// Files of one `run()`: a text, since an amount of tabular data has its unit there.
fn mini_batch_size(fields: &Fields<'_>, of: Of) -> Option<Json> {
    const KEY: &str = "mini_batch_size";
    if let Some(text) = bound(fields, KEY, of) {
        return Some(text.into());
    }
    let written = fields.entry(KEY).and_then(|e| e.node.text());
    let digits = written.unwrap_or_default();
    let digits = digits.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = written.unwrap_or_default()[digits.len()..].to_ascii_lowercase();
    let amount = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if amount && ["kb", "mb", "gb"].contains(&unit.as_str()) {
        let text = fields.text(KEY)?.text;
        fields.report.unsupported(format!(
            "{}: {} (an amount of tabular data; of a uri_folder it is how many files each run() gets)",
            fields.path_of(KEY),
            shown(text)
        ));
        return Some(text.into());
    }
    let said = fields.int(KEY, limits::MINI_BATCH_SIZE);
    said.map(|n| n.to_string().into())
}

fn retries(fields: &Fields<'_>, of: Of) -> Option<Json> {
    let section = fields.section("retry_settings")?;
    let mut out = Map::new();
    for (key, range) in [
        ("max_retries", limits::RETRIES),
        ("timeout", limits::MINI_BATCH_SECONDS),
    ] {
        if let Some(value) = number(&section, key, range, of) {
            out.insert(key.into(), value);
        }
    }
    fields.show("retry_settings", section.done(&[]));
    (!out.is_empty()).then(|| out.into())
}

/// The name inside `${{inputs.NAME}}`.
fn named<'t>(text: &'t str, side: &str) -> Option<&'t str> {
    let inner = text.trim().strip_prefix("${{")?.strip_suffix("}}")?.trim();
    inner.strip_prefix(side)?.strip_prefix('.')
}

/// A setting that names an input or an output of the component: the name, if it is one of those.
fn port<'r>(
    fields: &Fields<'_>,
    text: &Text<'r>,
    key: &str,
    side: &str,
    known: &Json,
) -> Option<&'r str> {
    let path = fields.path_of(key);
    let Some(name) = named(text.text, side) else {
        let message = format!("{path} is ${{{{{side}.NAME}}}}, not `{}`", shown(text.text));
        fields.error(text.at, key, message);
        return None;
    };
    if known.get(name).is_some() {
        return Some(name);
    }
    let all = known.as_object().into_iter().flat_map(|map| map.keys());
    let all: Vec<&str> = all.map(String::as_str).collect();
    let near = crate::names::did_you_mean(name, all.iter().copied());
    let near = near.map(|near| format!("did you mean {near}"));
    let message = match all.is_empty() {
        true => format!("{path} names {}, and there are no {side}", shown(name)),
        false => format!(
            "{path} names {}, the {side} are {}",
            shown(name),
            all.join(", ")
        ),
    };
    fields.report.error_with(text.at, &path, message, near);
    None
}

fn data(fields: &Fields<'_>, of: Of, inputs: &Json) -> Option<Json> {
    let Some(text) = fields.words("input_data") else {
        if of != Of::Step && fields.absent("input_data") {
            fields.missing("input_data", "write input_data: ${{inputs.NAME}}");
        }
        return None;
    };
    if of == Of::Step {
        return Some(text.text.into()); // what the inputs are, its component says
    }
    let name = port(fields, &text, "input_data", "inputs", inputs)?;
    match inputs[name]["type"].as_str().unwrap_or("uri_folder") {
        "mltable" => fields.report.unsupported(format!(
            "{}: {name} is an mltable (rows of a table)",
            fields.path_of("input_data")
        )),
        "uri_folder" | "uri_file" => {}
        other => {
            let path = fields.path_of("input_data");
            let message = format!("{path} is a uri_folder or a uri_file, and {name} is {other}");
            fields.error(text.at, "input_data", message);
        }
    }
    Some(text.text.into())
}

/// What the workers run.
fn task(fields: &Fields<'_>, pointer: &str, inputs: &Json, outputs: &Json) -> Option<Json> {
    let Some(section) = fields.section("task") else {
        if fields.absent("task") {
            fields.missing("task", SCRIPT_HINT);
        }
        return None;
    };
    let mut out = Map::new();
    let kind = section.choice("type", TASKS);
    if section.absent("type") {
        section.missing("type", "write type: run_function");
    }
    let script = kind != Some("model");
    if let Some(kind) = kind {
        out.insert("type".into(), kind.into());
    }
    if let Some(code) = code(&section, &format!("{pointer}/task/code")) {
        out.insert("code".into(), code);
    } else if script && section.absent("code") {
        section.missing("code", "write the folder that holds the script");
    }
    match section.words("entry_script") {
        Some(text) => {
            let path = text.text.replace('\\', "/");
            let outside = path.split('/').any(|part| part.is_empty() || part == "..");
            if outside {
                let message = format!("entry_script is a file inside code, not `{}`", shown(&path));
                section.error(text.at, "entry_script", message);
            }
            out.insert("entry_script".into(), path.trim_start_matches("./").into());
        }
        None if script && section.absent("entry_script") => section.missing(
            "entry_script",
            "write the file inside code that has init() and run()",
        ),
        None => {}
    }
    if let Some(text) = section.words("model") {
        let at = format!("{pointer}/task/model");
        if !is_reference(text.text) {
            let message = format!("model is a reference, not `{}`", shown(text.text));
            let hint = "write model: azureml:NAME:VERSION";
            let path = section.path_of("model");
            section.report.error_hint(text.at, &path, message, hint);
        } else if let Some(id) = refer(
            section.report,
            text,
            &section.path_of("model"),
            Kind::Model,
            &at,
        ) {
            out.insert("model".into(), id);
        }
    } else if !script && section.absent("model") {
        section.missing("model", "write model: azureml:NAME:VERSION");
    }
    match environment_of(&section, &format!("{pointer}/task/environment")) {
        Some(Some(id)) => {
            out.insert("environment".into(), id);
        }
        Some(None) => {}
        None if !section.absent("environment") => {}
        None => section.missing(
            "environment",
            "write environment: azureml:NAME:VERSION, or {image: library/python:3.11}",
        ),
    }
    if let Some(text) = section.text("program_arguments") {
        expressions(&section, &text, inputs, outputs);
        out.insert("program_arguments".into(), text.text.into());
    }
    if let Some(text) = section.words("append_row_to") {
        port(&section, &text, "append_row_to", "outputs", outputs);
        out.insert("append_row_to".into(), text.text.into());
    }
    let effective = section.done(&[
        ("scoring_script", "did you mean entry_script"),
        (
            "environment_variables",
            "environment_variables stands beside task",
        ),
    ]);
    fields.show("task", effective);
    Some(out.into())
}

/// Every `${{…}}` of the arguments names something.
fn expressions(section: &Fields<'_>, text: &Text<'_>, inputs: &Json, outputs: &Json) {
    const KEY: &str = "program_arguments";
    let mut rest = text.text;
    while let Some((_, after)) = rest.split_once("${{") {
        let Some((inner, tail)) = after.split_once("}}") else {
            let message = format!("{} has a ${{{{ without its }}}}", section.path_of(KEY));
            return section.error(text.at, KEY, message);
        };
        rest = tail;
        let inner = inner.trim();
        let known = match inner.split_once('.') {
            Some(("inputs", name)) => inputs.get(name).is_some(),
            Some(("outputs", name)) => outputs.get(name).is_some(),
            _ => false,
        };
        if !known {
            let message = format!(
                "{} has ${{{{{}}}}}, which is no input or output",
                section.path_of(KEY),
                shown(inner)
            );
            section.error(text.at, KEY, message);
        }
    }
}
