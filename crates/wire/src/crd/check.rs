//! One object → an instance type, or why not, in the order and with the words of an API server (K1).

use model::instance_type::{Amounts, InstanceType, Rule, TypeFault, Unchecked, Written, quoted};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use super::{
    API_VERSION, KIND, definition, hint, json, metadata,
    status::{Cause, Problem, Refused},
    walk::{Found, join, type_of, walk},
};
use crate::quantity::{Quantity, QuantityError};

/// What to do about fields that the definition does not know; `fieldValidation` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Refuse them.
    Strict,
    /// Drop them and say so.
    Warn,
    /// Drop them.
    Ignore,
}

/// An object that is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The object without unknown fields and nulls, otherwise as sent (K2).
    pub object: Value,
    /// What it says.
    pub instance_type: InstanceType,
    /// What was dropped; a `Warning` header each.
    pub warnings: Vec<String>,
}

/// Checks one object of a request. The name must be there: `generateName` is the caller's to turn into one.
pub fn check(object: &Value, strictness: Strictness) -> Result<Checked, Refused> {
    decided(object, Vec::new(), strictness)
}

/// The same from the bytes of a request's body, where a key that is given twice can still be seen.
pub fn check_bytes(body: &[u8], strictness: Strictness) -> Result<Checked, Refused> {
    let (object, twice) = json::read(body).map_err(|error| {
        unrecognized(&format!(
            "couldn't get version/kind; json parse error: {error}"
        ))
    })?;
    let twice = twice
        .into_iter()
        .map(|path| Problem {
            message: format!("duplicate field \"{path}\""),
            hint: None,
        })
        .collect();
    decided(&object, twice, strictness)
}

fn decided(
    object: &Value,
    mut problems: Vec<Problem>,
    strictness: Strictness,
) -> Result<Checked, Refused> {
    kind_and_version(object)?;
    let mut seen = look(object)?;
    problems.append(&mut seen.unknown);
    if strictness == Strictness::Strict && !problems.is_empty() {
        return Err(Refused::cannot_be_handled(
            "strict decoding error: ",
            problems,
        ));
    }
    let warnings = match strictness {
        Strictness::Strict | Strictness::Ignore => Vec::new(),
        Strictness::Warn => problems
            .into_iter()
            .map(|problem| problem.message)
            .collect(),
    };
    match seen.verdict() {
        Ok((object, instance_type)) => Ok(Checked {
            object,
            instance_type,
            warnings,
        }),
        Err(causes) => Err(Refused::Invalid {
            kind: KIND.into(),
            name: name_of(object).into(),
            causes,
        }),
    }
}

fn unrecognized(why: &str) -> Refused {
    Refused::unreadable(format!(
        "the object provided is unrecognized (must be of type {KIND}): {why}"
    ))
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Is it said to be what it is?
fn kind_and_version(object: &Value) -> Result<(), Refused> {
    let word = |key: &str| match &object[key] {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text.as_str()),
        other => Err(unrecognized(&format!(
            "couldn't get version/kind; json parse error: {key} is a text, not of type {}",
            type_of(other)
        ))),
    };
    if !object.is_object() {
        return Err(unrecognized("an object is wanted"));
    }
    let (kind, version) = (word("kind")?, word("apiVersion")?);
    if kind.is_empty() {
        return Err(unrecognized("Object 'Kind' is missing"));
    }
    if version != API_VERSION {
        return Err(Refused::unreadable(format!(
            "the API version in the data ({version}) does not match the expected API version ({API_VERSION})"
        )));
    }
    if kind != KIND {
        let detail = format!("{}: must be {KIND}", quoted(kind));
        return Err(Refused::Invalid {
            kind: kind.to_owned(),
            name: name_of(object).to_owned(),
            causes: vec![Cause::new(
                model::instance_type::FaultKind::Invalid,
                "kind",
                &detail,
            )],
        });
    }
    Ok(())
}

/// Everything that can be said about one object of the right kind.
pub(super) struct Seen {
    /// The object without unknown fields and nulls.
    pub object: Value,
    /// Fields that are not known, sorted by path.
    pub unknown: Vec<Problem>,
    /// The paths of those.
    pub unknown_paths: Vec<String>,
    /// What the labels and annotations break.
    pub metadata: Vec<Cause>,
    /// Types and missing fields.
    pub shape: Vec<Cause>,
    /// The type, or the rules that it breaks where the shape is right.
    pub instance_type: Result<InstanceType, Vec<TypeFault>>,
}

/// Looks at an object whose kind and version are right.
pub(super) fn look(object: &Value) -> Result<Seen, Refused> {
    let mut found = Found::default();
    let mut kept = Map::new();
    for key in ["apiVersion", "kind"] {
        kept.insert(key.into(), object[key].clone());
    }
    let metadata = metadata::read(object.get("metadata"), &mut found)?;
    let schema = definition::schema();
    let mut rest = object.as_object().cloned().unwrap_or_default();
    rest.shift_remove("metadata");
    let walked = walk(schema, &Value::Object(rest), "", &mut found);
    let about_metadata = metadata::check(&metadata);
    let written = unchecked(
        name_of(&serde_json::json!({ "metadata": metadata })),
        &walked["spec"],
    );
    kept.insert("metadata".into(), metadata);
    if let Some(spec) = walked.get("spec") {
        kept.insert("spec".into(), spec.clone());
    }
    let empty = (object["spec"].get("resources") == Some(&Value::Null)).then_some("spec.resources");
    let mut unknown: Vec<(String, Option<String>)> = found
        .unknown
        .iter()
        .map(|(path, key)| (join(path, key), hint::for_unknown(path, key, empty)))
        .collect();
    unknown.sort();
    let instance_type = InstanceType::new(written).map_err(|mut faults| {
        // What has another type or no place is said once.
        faults.retain(|fault| {
            !found
                .causes
                .iter()
                .any(|cause| within(&fault.path, &cause.field))
        });
        faults
    });
    Ok(Seen {
        object: Value::Object(kept),
        unknown_paths: unknown.iter().map(|(path, _)| path.clone()).collect(),
        unknown: unknown
            .into_iter()
            .map(|(path, hint)| Problem {
                message: format!("unknown field \"{path}\""),
                hint,
            })
            .collect(),
        metadata: about_metadata,
        shape: found.causes,
        instance_type,
    })
}

/// Is `path` the field or below it?
fn within(path: &str, field: &str) -> bool {
    path.strip_prefix(field)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl Seen {
    /// As an API server decides: what stops it from looking at the rules hides them.
    fn verdict(self) -> Result<(Value, InstanceType), Vec<Cause>> {
        let (faults, instance_type) = match self.instance_type {
            Ok(instance_type) => (Vec::new(), Some(instance_type)),
            Err(faults) => (faults, None),
        };
        let name = |rule: Rule| matches!(rule, Rule::Name | Rule::NameLength | Rule::NameMissing);
        let mut causes: Vec<Cause> = faults
            .iter()
            .filter(|fault| name(fault.rule))
            .map(Cause::from)
            .collect();
        causes.extend(self.metadata);
        causes.extend(self.shape);
        let rules = faults.iter().filter(|fault| !name(fault.rule));
        causes.extend(
            rules
                .clone()
                .filter(|fault| fault.rule.kind().blocks())
                .map(Cause::from),
        );
        if causes.iter().any(|cause| cause.kind.blocks()) {
            causes.push(Cause::unchecked());
        } else {
            causes.extend(rules.map(Cause::from));
        }
        match instance_type {
            Some(instance_type) if causes.is_empty() => Ok((self.object, instance_type)),
            _ => Err(causes),
        }
    }
}

fn unchecked(name: &str, spec: &Value) -> Unchecked {
    let selector = spec["nodeSelector"].as_object();
    let node_selector: BTreeMap<Box<str>, Box<str>> = selector
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
        .collect();
    Unchecked {
        name: name.into(),
        node_selector,
        requests: amounts(&spec["resources"]["requests"]),
        limits: amounts(&spec["resources"]["limits"]),
    }
}

fn amounts(side: &Value) -> Amounts {
    let mut amounts = Amounts::default();
    for (key, value) in side.as_object().into_iter().flatten() {
        match key.as_str() {
            "cpu" => amounts.cpu = written(value, exact),
            "memory" => amounts.memory = written(value, exact),
            device => {
                if let Some(written) = written(value, whole) {
                    amounts.devices.insert(device.into(), written);
                }
            }
        }
    }
    amounts
}

fn written(value: &Value, read: fn(&str) -> Option<i128>) -> Option<Written> {
    match value {
        Value::String(text) => Some(Written::text(text, read(text))),
        Value::Number(number) => number.as_i64().map(Written::number),
        _ => None,
    }
}

/// The amount that Kubernetes reads, in billionths; saturated where it is larger than we count, which is above every limit.
fn exact(text: &str) -> Option<i128> {
    match text.parse::<Quantity>() {
        Ok(quantity) => Some(quantity.nano()),
        Err(QuantityError::TooLarge(_)) if text.starts_with('-') => Some(i128::MIN),
        Err(QuantityError::TooLarge(_)) => Some(i128::MAX),
        // Kubernetes reads a suffix without digits as nothing of it.
        Err(QuantityError::NoDigits(_)) => {
            let (sign, rest) = text.split_at(usize::from(text.starts_with(['-', '+'])));
            format!("{sign}0{rest}").parse::<Quantity>().ok().map(|_| 0)
        }
        Err(QuantityError::Empty | QuantityError::Suffix(_) | QuantityError::Negative(_)) => None,
    }
}

/// A whole number of devices: digits and nothing else.
fn whole(text: &str) -> Option<i128> {
    let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    digits.then(|| exact(text)).flatten()
}
