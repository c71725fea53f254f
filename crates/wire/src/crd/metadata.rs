//! `metadata` of an object: the fields that every Kubernetes object has, with Kubernetes' own checks and words.

use model::instance_type::{FaultKind, is_label_value, quoted};
use serde_json::{Map, Value};

use super::{
    status::{Cause, Refused},
    walk::{Found, type_of},
};

/// The fields of `metadata`, as Kubernetes 1.36 has them.
pub(super) const FIELDS: [&str; 15] = [
    "name",
    "labels",
    "annotations",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Bytes of all annotations together: Kubernetes' own limit.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The object's metadata without unknown fields and nulls; a namespace is dropped, since types have none.
pub(super) fn read(metadata: Option<&Value>, found: &mut Found) -> Result<Value, Refused> {
    let mut kept = Map::new();
    let map = match metadata {
        None | Some(Value::Null) => return Ok(kept.into()),
        Some(Value::Object(map)) => map,
        Some(other) => {
            let go = go_type(other);
            return Err(undecodable(&format!(
                "json: cannot unmarshal {go} into Go value of type v1.ObjectMeta"
            )));
        }
    };
    for (key, value) in map {
        match key.as_str() {
            key if !FIELDS.contains(&key) => {
                found.unknown.push(("metadata".into(), key.to_owned()));
            }
            _ if value.is_null() => {}
            "name" | "generateName" | "namespace" | "selfLink" | "uid" | "resourceVersion"
                if !value.is_string() =>
            {
                return Err(mistyped(key, value, "string"));
            }
            "namespace" => {}
            "labels" | "annotations" => {
                kept.insert(key.clone(), texts(key, value)?);
            }
            key => {
                kept.insert(key.to_owned(), value.clone());
            }
        }
    }
    Ok(kept.into())
}

fn texts(key: &str, value: &Value) -> Result<Value, Refused> {
    let Some(map) = value.as_object() else {
        return Err(mistyped(key, value, "map[string]string"));
    };
    let mut texts = Map::new();
    for (name, value) in map {
        let text = match value {
            // an empty text, as Go reads it
            Value::Null => "",
            Value::String(text) => text,
            other => return Err(mistyped(key, other, "string")),
        };
        texts.insert(name.clone(), text.into());
    }
    Ok(texts.into())
}

fn mistyped(key: &str, value: &Value, wanted: &str) -> Refused {
    let go = go_type(value);
    undecodable(&format!(
        "json: cannot unmarshal {go} into Go struct field ObjectMeta.{key} of type {wanted}"
    ))
}

fn undecodable(message: &str) -> Refused {
    Refused::cannot_be_handled(message, Vec::new())
}

fn go_type(value: &Value) -> &'static str {
    match type_of(value) {
        "boolean" => "bool",
        "integer" => "number",
        other => other,
    }
}

/// What is wrong with labels and annotations.
pub(super) fn check(metadata: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut say = |field: &str, value: &str, message: String| {
        let detail = format!("{}: {message}", quoted(value));
        causes.push(Cause::new(FaultKind::Invalid, field, &detail));
    };
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        for message in key_faults(key) {
            say("metadata.labels", key, message);
        }
        let value = value.as_str().unwrap_or_default();
        if !is_label_value(value) {
            for message in value_faults(value) {
                say("metadata.labels", value, message);
            }
        }
    }
    let annotations = metadata["annotations"].as_object();
    for (key, _) in annotations.into_iter().flatten() {
        for message in key_faults(&key.to_lowercase()) {
            say("metadata.annotations", key, message);
        }
    }
    let size: usize = annotations
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_ANNOTATIONS {
        let message = format!("may not be more than {MAX_ANNOTATIONS} bytes");
        causes.push(Cause::new(
            FaultKind::TooLong,
            "metadata.annotations",
            &message,
        ));
    }
    causes
}

const KEY_REGEX: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_REGEX: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// Longest name of a label, and longest value.
const MAX_LABEL: usize = 63;

fn value_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > MAX_LABEL {
        faults.push(format!("must be no more than {MAX_LABEL} characters"));
    }
    if !label_characters(value) {
        faults.push(VALUE_REGEX.into());
    }
    faults
}

fn key_faults(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let mut faults = Vec::new();
    let name = match parts.as_slice() {
        [name] => name,
        [domain, name] => {
            faults.extend(domain_faults(domain));
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {KEY_REGEX} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".into());
    } else if name.len() > MAX_LABEL {
        faults.push(format!(
            "name part must be no more than {MAX_LABEL} characters"
        ));
    }
    if name.is_empty() || !label_characters(name) {
        faults.push(format!("name part {KEY_REGEX}"));
    }
    faults
}

fn domain_faults(domain: &str) -> Vec<String> {
    if domain.is_empty() {
        return vec!["prefix part must be non-empty".into()];
    }
    model::instance_type::name_faults(domain)
        .iter()
        .map(|rule| format!("prefix part {}", rule.message()))
        .collect()
}

/// The characters of a label's text, whatever its length.
fn label_characters(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.is_empty()
        || (text.starts_with(edge)
            && text.ends_with(edge)
            && text.chars().all(|c| edge(c) || "-_.".contains(c)))
}
