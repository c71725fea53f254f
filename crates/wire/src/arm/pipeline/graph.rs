//! The graph of a pipeline: which step takes what from where.

use crate::{
    arm::{Invalid, field::Field},
    names::{nearest, shown},
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One step before it is made.
pub(super) struct Node<'a> {
    pub key: &'a str,
    pub place: Field<'a>,
    pub inputs: BTreeMap<Box<str>, Given<'a>>,
}

/// What a step says of one of its inputs.
pub(super) struct Given<'a> {
    pub place: Field<'a>,
    pub from: From,
}

pub(super) enum From {
    Value,
    Parent(Box<str>),
    Step(Box<str>, Box<str>),
}

/// `${{parent.inputs.X}}`, `${{parent.jobs.S.outputs.O}}`, or a value.
fn from(place: &Field<'_>) -> Result<From, Invalid> {
    let text = match place.value() {
        Some(Value::Object(_)) => {
            let value = ["value", "uri", "path"].map(|key| place.get(key));
            let first = value.iter().find(|f| f.value().is_some());
            match first.and_then(Field::value) {
                Some(Value::String(text)) => text.as_str(),
                _ => return Ok(From::Value),
            }
        }
        Some(Value::String(text)) => text.as_str(),
        _ => return Ok(From::Value),
    };
    let Some(inner) = text
        .trim()
        .strip_prefix("${{")
        .and_then(|t| t.strip_suffix("}}"))
    else {
        if text.contains("${{") {
            return Err(place.unsupported(
                "mixes an expression with other text, which is not built yet; an input is one expression or one value",
            ));
        }
        return Ok(From::Value);
    };
    let parts: Vec<&str> = inner.trim().split('.').collect();
    match parts[..] {
        ["parent", "inputs", name] => Ok(From::Parent(name.into())),
        ["parent", "jobs", step, "outputs", output] => Ok(From::Step(step.into(), output.into())),
        _ => Err(place.refuse(format!(
            "is ${{{{{}}}}}, known are ${{{{parent.inputs.NAME}}}} and ${{{{parent.jobs.STEP.outputs.NAME}}}}",
            shown(inner.trim())
        ))),
    }
}

pub(super) fn nodes<'a>(jobs: &Field<'a>) -> Result<Vec<Node<'a>>, Invalid> {
    let mut out = Vec::new();
    for (key, place) in jobs.entries()? {
        let legal = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !legal {
            return Err(place
                .refuse("is no name of a step: a letter or _ first, then letters, digits and _"));
        }
        let place = place.need_object()?;
        let mut inputs = BTreeMap::new();
        for (name, place) in place.get("inputs").entries()? {
            let from = from(&place)?;
            inputs.insert(name.into(), Given { place, from });
        }
        out.push(Node { key, place, inputs });
    }
    if out.is_empty() {
        return Err(jobs.refuse("has no step"));
    }
    Ok(out)
}

/// The steps in an order in which each comes after what it needs.
pub(super) fn order(nodes: Vec<Node<'_>>) -> Result<Vec<Node<'_>>, Invalid> {
    let keys: BTreeSet<&str> = nodes.iter().map(|n| n.key).collect();
    for given in nodes.iter().flat_map(|n| n.inputs.values()) {
        if let From::Step(step, _) = &given.from
            && !keys.contains(&**step)
        {
            let names: Vec<&str> = keys.iter().copied().collect();
            let refusal = given.place.refuse(format!(
                "names step {}, the pipeline has {}",
                shown(step),
                names.join(", ")
            ));
            return Err(match nearest(step, names) {
                Some(near) => refusal.hint(format!("did you mean {near}")),
                None => refusal,
            });
        }
    }
    let (mut left, mut out): (Vec<Node<'_>>, Vec<Node<'_>>) = (nodes, Vec::new());
    while !left.is_empty() {
        let done: BTreeSet<String> = out.iter().map(|n| n.key.to_owned()).collect();
        let ready = |n: &Node<'_>| {
            n.inputs.values().all(|g| match &g.from {
                From::Step(step, _) => done.contains(&**step),
                From::Value | From::Parent(_) => true,
            })
        };
        let (now, later): (Vec<_>, Vec<_>) = left.into_iter().partition(ready);
        if now.is_empty() {
            let names: Vec<&str> = later.iter().map(|n| n.key).collect();
            return Err(later[0].place.refuse(format!(
                "waits for itself: {} need each other",
                names.join(", ")
            )));
        }
        out.extend(now);
        left = later;
    }
    Ok(out)
}

/// A refusal inside a step says which.
pub(super) fn in_step(mut invalid: Invalid, step: &str) -> Invalid {
    let inside = format!("/properties/jobs/{step}");
    if !invalid.target.contains(&format!("/jobs/{step}")) {
        let rest = invalid
            .target
            .strip_prefix("/properties")
            .unwrap_or_default();
        invalid.target = format!("{inside}{rest}");
    }
    invalid.message = format!("step {step}: {}", invalid.message);
    invalid
}
