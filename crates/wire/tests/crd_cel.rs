//! The definition itself, evaluated by kube-cel, is the judge of the checks: what it takes and says, they take and say.
//!
//! Types, required fields and sizes are checked by a small walk of this file, the rules by kube-cel; the rule of names is no
//! part of a definition. Known differences of kube-cel 0.8 from an API server, kept out of the cases: it reads ` 1` as 1,
//! a suffix without digits as no quantity, multiplies past its integers at `1e400`, keeps digits below a billionth, and has paths with a dot where an API server
//! has `[key]`. `crd_server` asks a real one.

#[path = "support/manifests.rs"]
mod manifests;

use kube_cel::{CompiledSchema, ErrorKind, Validator, compile_schema};
use manifests::manifests;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use wire::crd::{Refused, Strictness, check, definition, kubectl_text, objects};

const UNCHECKED: &str = "<nil>";

thread_local! {
    /// The schema of the definition, and its rules.
    static SCHEMA: (Value, CompiledSchema) = {
        let schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        let compiled = compile_schema(&schema);
        assert!(!compiled.has_errors(), "{:?}", compiled.compilation_errors());
        (schema, compiled)
    };
}

/// What the definition says about an object: `field: message`, without the values that kube-cel does not show.
fn judged(object: &Value) -> Result<(), BTreeSet<String>> {
    SCHEMA.with(|(schema, compiled)| judge(schema, compiled, object))
}

fn judge(
    schema: &Value,
    compiled: &CompiledSchema,
    object: &Value,
) -> Result<(), BTreeSet<String>> {
    let mut object = object.clone();
    let mut unknown = BTreeSet::new();
    shape(schema, &mut object, "", &mut unknown, &mut BTreeSet::new());
    if !unknown.is_empty() {
        return Err(unknown);
    }
    let mut said = BTreeSet::new();
    shape(schema, &mut object, "", &mut BTreeSet::new(), &mut said);
    if !said.is_empty() {
        said.insert(UNCHECKED.into());
        return Err(said);
    }
    let Err(errors) = Validator::new().validate_compiled(compiled, &object, None) else {
        return Ok(());
    };
    Err(errors
        .iter()
        .map(|error| {
            assert_eq!(error.kind, ErrorKind::ValidationFailure, "{error:?}");
            let path = error.field_path.replace("['", "").replace("']", "");
            format!("{path}: {}", error.message)
        })
        .collect())
}

/// Types, required fields and sizes. Nulls are dropped first, as nothing here may be null.
fn shape(
    schema: &Value,
    value: &mut Value,
    path: &str,
    unknown: &mut BTreeSet<String>,
    said: &mut BTreeSet<String>,
) {
    let either = schema.get("x-kubernetes-int-or-string").is_some();
    let right = match (schema["type"].as_str(), &*value) {
        (None, Value::String(_)) => either,
        (None, Value::Number(n)) => either && n.is_i64(),
        (Some("string"), Value::String(_)) => true,
        (Some("object"), Value::Object(_)) => true,
        _ => false,
    };
    if !right {
        let wanted = schema["type"].as_str().unwrap_or("integer,string");
        said.insert(format!("{path}: {path} in body must be of type {wanted}"));
        return strangers(value, path, unknown);
    }
    if let (Some(most), Value::String(text)) = (schema["maxLength"].as_u64(), &*value)
        && text.chars().count() as u64 > most
    {
        said.insert(format!("{path}: may not be more than {most} bytes"));
    }
    let Value::Object(map) = value else { return };
    if let Some(most) = schema["maxProperties"].as_u64()
        && map.len() as u64 > most
    {
        said.insert(format!("{path}: must have at most {most} items"));
    }
    if path == "metadata" {
        return;
    }
    let inner_of = |key: &str| match schema.get("properties") {
        Some(known) => known.get(key),
        None => schema.get("additionalProperties"),
    };
    let below = |key: &str| format!("{path}{}{key}", if path.is_empty() { "" } else { "." });
    for key in map.keys().filter(|key| inner_of(key).is_none()) {
        unknown.insert(format!("unknown field \"{}\"", below(key)));
    }
    map.retain(|_, value| !value.is_null());
    for key in schema["required"].as_array().into_iter().flatten() {
        let key = key.as_str().unwrap();
        if !map.contains_key(key) {
            said.insert(format!("{}: ", below(key)));
        }
    }
    for (key, value) in map.iter_mut() {
        if let Some(inner) = inner_of(key) {
            shape(inner, value, &below(key), unknown, said);
        }
    }
}

/// Nothing is known in a value of another type.
fn strangers(value: &Value, path: &str, unknown: &mut BTreeSet<String>) {
    for key in value.as_object().into_iter().flatten().map(|(key, _)| key) {
        unknown.insert(format!("unknown field \"{path}.{key}\""));
    }
    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
        strangers(item, &format!("{path}[{i}]"), unknown);
    }
}

/// What our door says, in the same form; names are left out.
fn said(object: &Value) -> Result<(), BTreeSet<String>> {
    match check(object, Strictness::Strict) {
        Ok(_) => Ok(()),
        Err(Refused::BadRequest { problems, .. }) => Err(problems
            .into_iter()
            .map(|problem| problem.message)
            .collect()),
        Err(Refused::Invalid { causes, .. }) => {
            let mut said: BTreeSet<String> = causes
                .iter()
                .filter(|cause| !cause.field.starts_with("metadata"))
                .map(|cause| match cause.field.as_str() {
                    UNCHECKED => UNCHECKED.into(),
                    field => {
                        let field = field.replace('[', ".").replace(']', "");
                        format!("{field}: {}", without_value(&cause.message))
                    }
                })
                .collect();
            // The name alone stops an API server too.
            if said.len() == 1 && said.contains(UNCHECKED) {
                said.clear();
            }
            if said.is_empty() { Ok(()) } else { Err(said) }
        }
    }
}

/// `Invalid value: "0": must be …` → `must be …`.
fn without_value(message: &str) -> String {
    let rest = ["Invalid value: ", "Forbidden: ", "Too long: ", "Too many: "]
        .iter()
        .find_map(|words| message.strip_prefix(words))
        .unwrap_or_default();
    if let Some((before, rule)) = rest.split_once(" in body must be of type ") {
        // Behind the name of a type; the field ends with a key, which may hold a colon.
        let (_, field) = before.split_once(": ").unwrap_or_default();
        let wanted = rule.split(':').next().unwrap_or_default();
        return format!("{field} in body must be of type {wanted}");
    }
    let starts = ["must ", "every ", "the ", "may ", "GPUs ", "devices "];
    let at = rest
        .char_indices()
        .filter(|(at, _)| *at == 0 || rest[..*at].ends_with(": "))
        .map(|(at, _)| at)
        .find(|at| starts.iter().any(|start| rest[*at..].starts_with(start)));
    rest[at.unwrap_or_default()..].to_owned()
}

/// What kube-cel is known to read differently.
fn differs(name: &str) -> bool {
    ["cpu-space.yaml", "cpu-suffix-only.yaml", "cpu-huge.yaml"].contains(&name)
}

#[test]
fn the_definition_says_the_same_about_every_manifest() {
    let mut compared = 0;
    for (name, _, text) in manifests("good").into_iter().chain(manifests("bad")) {
        if differs(&name) {
            continue;
        }
        for object in objects(&text, &name).unwrap_or_default() {
            // What metadata stops before the definition is asked is not its business.
            let refused = check(&object, Strictness::Strict).err();
            let text = refused.map(|no| kubectl_text(&no.server_status()));
            let metadata = text.is_some_and(|text| {
                text.contains("ObjectMeta") || text.contains("field \"metadata")
            });
            if !metadata {
                assert_eq!(said(&object), judged(&object), "{name}");
                compared += 1;
            }
        }
    }
    assert!(compared > 110, "{compared}");
}

fn quantity() -> impl Strategy<Value = Value> {
    let suffix = prop::sample::select(vec![
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "e-3", "E2",
        "K", "gi", "B",
    ]);
    prop_oneof![
        6 => ("[+-]?[0-9]{1,4}(\\.[0-9]{1,2})?", suffix).prop_map(|(n, suffix)| json!(format!("{n}{suffix}"))),
        8 => "[1-9][0-9]{0,2}(m|Mi|Gi|)".prop_map(Value::from),
        2 => (-3i64..3_000_000).prop_map(|n| json!(n)),
        1 => prop::sample::select(vec![
            json!(""), json!(null), json!(true), json!(0.5), json!([]), json!({}), json!("x"),
            json!("0"), json!(1i64 << 60), json!((1i64 << 60) + 1), json!("1Ei"), json!("1M"),
            json!("0".repeat(65)), json!(u64::MAX),
        ]),
    ]
}

/// Without brackets: kube-cel takes those of a key for its own.
fn label() -> impl Strategy<Value = String> {
    let any = prop_oneof![
        3 => "[a-zA-Z0-9._-]{1,6}",
        1 => "[a-z.-]{1,6}/[a-zA-Z0-9._-]{0,6}",
        1 => "\\PC{0,3}",
        1 => "[a-z]{60,66}",
    ];
    any.prop_map(|text: String| text.replace(['[', ']'], "_"))
}

fn labels() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        8 => label().prop_map(Value::from),
        1 => prop::sample::select(vec![json!(null), json!(1), json!(""), json!(true)]),
    ];
    prop::collection::btree_map(label(), value, 0..4).prop_map(|map| json!(map))
}

fn object() -> impl Strategy<Value = Value> {
    let devices = prop::sample::select(vec![
        "nvidia.com/gpu",
        "amd.com/gpu",
        "gpu.intel.com/xe",
        "nvidia.com/gpus",
        "gpu",
    ]);
    let side = || {
        (
            prop::option::weighted(0.95, quantity()),
            prop::option::weighted(0.95, quantity()),
            prop::option::weighted(0.2, (devices.clone(), quantity())),
        )
            .prop_map(|(cpu, memory, device)| {
                let mut side = serde_json::Map::new();
                side.extend(cpu.map(|cpu| ("cpu".to_owned(), cpu)));
                side.extend(memory.map(|memory| ("memory".to_owned(), memory)));
                side.extend(device.map(|(name, amount)| (name.to_owned(), amount)));
                Value::from(side)
            })
    };
    (prop::option::weighted(0.3, labels()), side(), side()).prop_map(
        |(selector, requests, limits)| {
            let mut spec = json!({"resources": {"requests": requests, "limits": limits}});
            if let Some(selector) = selector {
                spec["nodeSelector"] = selector;
            }
            json!({
                "apiVersion": "amlarc.azureml.com/v1alpha1",
                "kind": "InstanceType",
                "metadata": {"name": "x"},
                "spec": spec,
            })
        },
    )
}

/// What random objects brought to light, kept.
#[test]
fn the_definition_says_the_same_about_keys_that_look_like_messages() {
    let keys = [":", ": ", "a: b", "must be", "x in body", ".", "/", "a/"];
    let values = [
        json!(1),
        json!(null),
        json!(true),
        json!(""),
        json!("v"),
        json!(": "),
    ];
    for key in keys {
        for value in &values {
            let object = json!({
                "apiVersion": "amlarc.azureml.com/v1alpha1",
                "kind": "InstanceType",
                "metadata": {"name": "x"},
                "spec": {
                    "nodeSelector": {key: value},
                    "resources": {
                        "requests": {"cpu": "1", "memory": "1Mi"},
                        "limits": {"cpu": "1", "memory": "1Mi"},
                    },
                },
            });
            assert_eq!(said(&object), judged(&object), "{object}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_definition_says_the_same_about_any_object(object in object()) {
        prop_assert_eq!(said(&object), judged(&object), "{}", object);
    }
}
