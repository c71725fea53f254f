//! The schema of the definition against a document: what is not known, what has another type, what is missing, and the
//! document without its nulls. The rules that look at values are `model`'s.

use model::instance_type::FaultKind;
use serde_json::{Map, Value};

use super::status::Cause;

/// What a walk has found.
#[derive(Default)]
pub(super) struct Found {
    /// Fields that the schema does not have: the path of the map, and the key.
    pub unknown: Vec<(String, String)>,
    /// Values of another type, and fields that must be there.
    pub causes: Vec<Cause>,
}

/// The path of a key, as Kubernetes writes it: keys with dots are not marked.
pub(super) fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// The value without unknown fields and without nulls, which Kubernetes drops since nothing of ours may be null.
pub(super) fn walk(schema: &Value, value: &Value, path: &str, found: &mut Found) -> Value {
    let wanted = if schema["x-kubernetes-int-or-string"] == true {
        "integer,string"
    } else {
        schema["type"].as_str().unwrap_or_default()
    };
    let is = type_of(value);
    if !wanted.split(',').any(|wanted| wanted == is) {
        let detail = format!("\"{is}\": {path} in body must be of type {wanted}: \"{is}\"");
        let mut cause = Cause::new(FaultKind::Type, path, &detail);
        cause.hint = quotes(wanted, value);
        found.causes.push(cause);
        strangers(value, path, found);
        return value.clone();
    }
    match value {
        Value::Object(map) => Value::Object(walk_map(schema, map, path, found)),
        other => other.clone(),
    }
}

/// The fields of a value of another type: none of them is known.
fn strangers(value: &Value, path: &str, found: &mut Found) {
    match value {
        Value::Object(map) => {
            let keys = map.keys().map(|key| (path.to_owned(), key.clone()));
            found.unknown.extend(keys);
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                strangers(item, &format!("{path}[{i}]"), found);
            }
        }
        _ => {}
    }
}

fn walk_map(
    schema: &Value,
    map: &Map<String, Value>,
    path: &str,
    found: &mut Found,
) -> Map<String, Value> {
    let mut kept = Map::new();
    for (key, value) in map {
        let inner = match (&schema["properties"], &schema["additionalProperties"]) {
            (Value::Object(properties), _) => properties.get(key),
            (_, any @ Value::Object(_)) => Some(any),
            _ => None,
        };
        match inner {
            None => found.unknown.push((path.to_owned(), key.clone())),
            Some(_) if value.is_null() => {}
            Some(inner) => {
                kept.insert(key.clone(), walk(inner, value, &join(path, key), found));
            }
        }
    }
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    for key in required.iter().filter_map(Value::as_str) {
        if !kept.contains_key(key) {
            let path = join(path, key);
            found.causes.push(Cause::new(FaultKind::Required, path, ""));
        }
    }
    kept
}

/// The type as Kubernetes names it. A whole number that needs more than 64 bits, or that is written as a fraction, is a
/// `number`.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value that would be right in quotes.
fn quotes(wanted: &str, value: &Value) -> Option<String> {
    let scalar = matches!(value, Value::Bool(_) | Value::Number(_));
    (wanted.contains("string") && scalar && (wanted == "string" || value.is_number()))
        .then(|| format!("write it in quotes: \"{value}\""))
}
