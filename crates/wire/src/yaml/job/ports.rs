//! Inputs and outputs of a job.
//!
//! P1 the value of a literal input is a text. Its characters are kept, except that `true` and `false` become `True` and
//! `False`, as Azure's own client sends them: training scripts compare with Python's spelling.

use super::super::{
    draft::{AssetKind, LocalAsset, pointer_part},
    fields::{Choice, Fields, Text},
    limits,
    reference::{AssetPath, asset_path, inline_asset, refer},
    report::Report,
    tree::Value,
};
use crate::names::{Kind, check_asset, check_version, shown};
use serde_json::{Map, Value as Json, json};

const DEFAULT: &str = super::DEFAULT;
const TYPES: &[Choice] = &[
    ("uri_folder", "uri_folder"),
    ("uri_file", "uri_file"),
    ("mltable", "mltable"),
    ("custom_model", "custom_model"),
    ("mlflow_model", "mlflow_model"),
    ("triton_model", "triton_model"),
];
const INPUT_MODES: &[Choice] = &[
    ("ro_mount", "ReadOnlyMount"),
    ("mount", "ReadOnlyMount"),
    ("rw_mount", "ReadWriteMount"),
    ("download", "Download"),
    ("direct", "Direct"),
    ("eval_mount", "EvalMount"),
    ("eval_download", "EvalDownload"),
];
const OUTPUT_MODES: &[Choice] = &[
    ("rw_mount", "ReadWriteMount"),
    ("mount", "ReadWriteMount"),
    ("upload", "Upload"),
    ("direct", "Direct"),
];
const OF_COMPONENTS: &[(&str, &str)] = &[
    (
        "default",
        "default belongs to the inputs of a component; write value",
    ),
    ("optional", "optional belongs to the inputs of a component"),
    ("min", "min belongs to the inputs of a component"),
    ("max", "max belongs to the inputs of a component"),
    ("enum", "enum belongs to the inputs of a component"),
    ("uri", "did you mean path"),
];

/// `inputs:` as the document has them.
pub(in super::super) fn inputs(report: &Report<'_>, fields: &Fields<'_>) -> Map<String, Json> {
    let mut inputs = Map::new();
    let Some(section) = fields.section("inputs") else {
        return inputs;
    };
    for entry in section.entries() {
        checked_name(&section, &entry.key, entry.at, "input");
        let input = match &entry.node.value {
            Value::Text { text, plain } => {
                let text = Text {
                    text,
                    plain: *plain,
                    at: entry.node.at,
                };
                section.show(&entry.key, as_shown(text));
                Some(literal(text))
            }
            Value::Map(_) => section
                .inner(&entry.node, &entry.key)
                .and_then(|inner| input(report, &section, &entry.key, inner)),
            Value::Null => {
                let path = section.path_of(&entry.key);
                report.error_hint(
                    entry.at,
                    &path,
                    format!("{path} has no value"),
                    "write a value, or {type: uri_folder, path: …}",
                );
                None
            }
            Value::List(_) => {
                section.wrong(&entry.node, &entry.key, "a value or a map");
                None
            }
        };
        inputs.insert(entry.key.clone(), input.unwrap_or_default());
    }
    fields.show("inputs", section.all_known());
    inputs
}

/// P1
fn literal(text: Text<'_>) -> Json {
    let value = match text.text {
        "true" | "TRUE" if text.plain => "True",
        "false" | "FALSE" if text.plain => "False",
        other => other,
    };
    json!({ "value": value, "jobInputType": "literal" })
}

/// A literal as the effective document has it: read again, it is the same literal.
fn as_shown(text: Text<'_>) -> Json {
    match text.text {
        "true" | "True" | "TRUE" if text.plain => true.into(),
        "false" | "False" | "FALSE" if text.plain => false.into(),
        other => other.into(),
    }
}

fn input(report: &Report<'_>, section: &Fields<'_>, name: &str, inner: Fields<'_>) -> Option<Json> {
    if inner.has("value") {
        if inner.absent("value") {
            let path = inner.path_of("value");
            let message = format!("{path} has no value");
            report.error_hint(
                inner.key_at("value"),
                &path,
                message,
                "write \"\" for an empty text",
            );
        }
        let text = inner.text("value");
        if let Some(text) = text {
            inner.show("value", as_shown(text));
        }
        let value = text.map(literal);
        section.show(name, inner.done(OF_COMPONENTS));
        return value;
    }
    let kind = inner
        .choice_or("type", TYPES, "uri_folder", DEFAULT)
        .unwrap_or("uri_folder");
    let mode = inner.choice_or("mode", INPUT_MODES, "ro_mount", DEFAULT);
    if let Some(mode @ ("EvalMount" | "EvalDownload")) = mode
        && kind != "mltable"
    {
        let at = inner.entry("mode").map_or(inner.at, |entry| entry.node.at);
        let word = if mode == "EvalMount" {
            "eval_mount"
        } else {
            "eval_download"
        };
        inner.error(
            at,
            "mode",
            format!(
                "{} {word} is for type mltable, not {kind}",
                inner.path_of("mode")
            ),
        );
    }
    if let Some("ReadWriteMount" | "EvalMount" | "EvalDownload") = mode {
        report.unsupported(format!(
            "{} other than ro_mount, download and direct",
            inner.path_of("mode")
        ));
    }
    let datastore = inner.words("datastore").map(|text| text.text.to_owned());
    let on_compute = inner
        .words("path_on_compute")
        .map(|text| text.text.to_owned());
    let pointer = format!("/properties/inputs/{}/uri", pointer_part(name));
    let mut body = Map::new();
    match asset_path(&inner, "path") {
        None if inner.absent("path") => inner.missing("path", "write path: ./folder, azureml:NAME:VERSION, or an address; for a plain value write value"),
        None => {}
        Some((AssetPath::Uri(uri), _)) => {
            body.insert("uri".into(), uri.into());
        }
        Some((AssetPath::Registered(_), text)) => {
            let want = if kind.ends_with("_model") { Kind::Model } else { Kind::Data };
            if let Some(id) = refer(report, text, &inner.path_of("path"), want, &pointer) {
                body.insert("uri".into(), id);
            }
        }
        Some((AssetPath::Upload(path), _)) => {
            let mut local = LocalAsset::new(&pointer, AssetKind::Input, Some(path));
            local.datastore = datastore;
            inline_asset(report, local);
        }
    }
    if let Some(mode) = mode {
        body.insert("mode".into(), mode.into());
    }
    if let Some(path) = on_compute {
        body.insert("pathOnCompute".into(), path.into());
    }
    body.insert("jobInputType".into(), kind.into());
    section.show(name, inner.done(OF_COMPONENTS));
    Some(body.into())
}

/// `outputs:` as the document has them.
pub(in super::super) fn outputs(fields: &Fields<'_>) -> Map<String, Json> {
    let mut outputs = Map::new();
    let Some(section) = fields.section("outputs") else {
        return outputs;
    };
    for entry in section.entries() {
        checked_name(&section, &entry.key, entry.at, "output");
        if entry.key.eq_ignore_ascii_case("default") {
            let message = "output name `default` is taken by the run's own artifacts";
            section.error(entry.at, &entry.key, message);
        }
        let mut body = Map::new();
        let mut kind = "uri_folder";
        if entry.node.value == Value::Null {
            section.show_default(
                &entry.key,
                json!({ "type": "uri_folder", "mode": "rw_mount" }),
                DEFAULT,
            );
        } else if let Some(inner) = section.inner(&entry.node, &entry.key) {
            kind = inner
                .choice_or("type", TYPES, "uri_folder", DEFAULT)
                .unwrap_or("uri_folder");
            let mode = inner.choice_or("mode", OUTPUT_MODES, "rw_mount", DEFAULT);
            if let Some(name) = inner.name("name", |name| check_asset("asset", name)) {
                body.insert("assetName".into(), name.text.into());
            }
            if let Some(path) = output_path(&inner) {
                body.insert("uri".into(), path);
            }
            if let Some(mode) = mode {
                body.insert("mode".into(), mode.into());
            }
            if let Some(version) = inner.name("version", check_version) {
                body.insert("assetVersion".into(), version.text.into());
                if inner.absent("name") {
                    inner.missing("name", "a version is given to a named asset");
                }
            }
            section.show(
                &entry.key,
                inner.done(&[
                    ("uri", "did you mean path"),
                    ("value", "an output has path, not value"),
                ]),
            );
        }
        body.insert("jobOutputType".into(), kind.into());
        outputs.insert(entry.key.clone(), body.into());
    }
    fields.show("outputs", section.all_known());
    outputs
}

/// An output goes to an address; a path on the client's machine would be lost.
fn output_path(inner: &Fields<'_>) -> Option<Json> {
    let (found, text) = asset_path(inner, "path")?;
    match found {
        AssetPath::Uri(uri) => Some(uri.into()),
        AssetPath::Upload(_) | AssetPath::Registered(_) => {
            let path = inner.path_of("path");
            let message = format!(
                "{path} is an address, for example azureml://datastores/NAME/paths/PATH, not `{}`",
                shown(text.text)
            );
            inner.error(text.at, "path", message);
            None
        }
    }
}

/// Names that `${{inputs.NAME}}` can spell: letters, digits and `_`, not a digit first.
fn checked_name(section: &Fields<'_>, name: &str, at: super::super::report::At, what: &str) {
    let fine = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty();
    if name.len() > limits::PORT_NAME {
        let message = format!(
            "{what} name `{}` has {} bytes, allowed are {}",
            shown(name),
            name.len(),
            limits::PORT_NAME
        );
        section.error(at, name, message);
    } else if !fine {
        let message = format!(
            "{what} name `{}` is letters, digits and _, not a digit first",
            shown(name)
        );
        section.error(at, name, message);
    }
}
