//! Components: `componentSpec`, a command, a parallel step or a pipeline with declared inputs and outputs, in the words of its YAML file.
//!
//! K1 a version is checked when it is written: its type, its ports, and what its command names;
//! K2 a value for an input is checked against the declaration when a job uses it: type, range, choice.

use super::{Invalid, field::Field, job::PortType, parallel};
use crate::names::{nearest, shown};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a component does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// One command.
    Command,
    /// A script over the files of an input.
    Parallel,
    /// Steps.
    Pipeline,
}

/// Types that Azure has; `None`: Zaffre has not.
const TYPES: [(&str, Option<Type>); 9] = [
    ("command", Some(Type::Command)),
    ("pipeline", Some(Type::Pipeline)),
    ("parallel", Some(Type::Parallel)),
    ("spark", None),
    ("automl", None),
    ("import", None),
    ("data_transfer", None),
    ("sweep", None),
    ("flow_parallel", None),
];

/// What an input of a component takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Any text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// true or false.
    Truth,
    /// Files.
    Files(PortType),
}

const TAKES: [(&str, Takes); 12] = [
    ("string", Takes::Text),
    ("enum", Takes::Text),
    ("integer", Takes::Integer),
    ("number", Takes::Number),
    ("boolean", Takes::Truth),
    ("uri_file", Takes::Files(PortType::File)),
    ("uri_folder", Takes::Files(PortType::Folder)),
    ("path", Takes::Files(PortType::Folder)),
    ("mltable", Takes::Files(PortType::Table)),
    ("custom_model", Takes::Files(PortType::Model)),
    ("mlflow_model", Takes::Files(PortType::Model)),
    ("triton_model", Takes::Files(PortType::Model)),
];

/// An input as declared.
#[derive(Clone, Debug, PartialEq)]
pub struct InputDecl {
    /// What it takes.
    pub takes: Takes,
    /// The word for that.
    pub word: String,
    /// What it is when nobody says.
    pub default: Option<String>,
    /// Whether it may be left out.
    pub optional: bool,
    /// How files come.
    pub mode: Option<String>,
}

/// What a component declares, apart from what it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What it does.
    pub kind: Type,
    /// Inputs.
    pub inputs: BTreeMap<Box<str>, InputDecl>,
    /// Outputs: the word for what each is.
    pub outputs: BTreeMap<Box<str>, String>,
    /// Whether the same inputs give the same result.
    pub deterministic: bool,
}

/// Checks the body of a version of a component (K1).
pub fn version(
    name: &str,
    version: &str,
    properties: &Field<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), Invalid> {
    let spec = properties.get("componentSpec").need_object()?;
    let anonymous = properties.get("isAnonymous").flag()?.unwrap_or(false);
    for (key, wanted) in [("name", name), ("version", version)] {
        let said = spec.get(key);
        let text = match said.value() {
            Some(Value::Number(n)) => Some(n.to_string()),
            _ => said.text()?.map(str::to_owned),
        };
        // an anonymous one is written under a digest, whatever it calls itself
        if text.is_some_and(|t| !t.eq_ignore_ascii_case(wanted)) && !anonymous {
            return Err(said.refuse(format!("differs from {wanted}, which the address says")));
        }
    }
    let read = read(&spec)?;
    match read.kind {
        Type::Command => {
            let command = spec.get("command");
            expressions(&command, command.need_text()?, &read)?;
            spec.get("environment").need_text()?;
            spec.get("code").text()?;
        }
        Type::Parallel => parallel::component(&spec, &read)?,
        Type::Pipeline => {
            let jobs = spec.get("jobs");
            if jobs.object()?.is_none_or(|jobs| jobs.is_empty()) {
                return Err(jobs.refuse("has no step"));
            }
        }
    }
    if spec.get("services").value().is_some() {
        warnings.push("services of a component have no effect here".into());
    }
    Ok(())
}

/// Whether two specs are the same component. How an anonymous one calls itself is no part of the digest under which the SDK
/// writes it.
pub fn same(a: &Value, b: &Value) -> bool {
    let content = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(map) = spec.as_object_mut() {
            for key in ["name", "version", "display_name", "description", "_source"] {
                map.shift_remove(key);
            }
        }
        spec
    };
    content(a) == content(b)
}

/// Reads what a component declares.
pub fn read(spec: &Field<'_>) -> Result<Spec, Invalid> {
    let kind = spec.get("type");
    let found = kind
        .choice(&TYPES)?
        .unwrap_or(if spec.get("jobs").value().is_some() {
            Some(Type::Pipeline)
        } else {
            Some(Type::Command)
        });
    let Some(found) = found else {
        let text = kind.text()?.unwrap_or_default();
        return Err(kind.unsupported(format!(
            "is {text}, which is not built yet; command, parallel and pipeline are"
        )));
    };
    let mut inputs = BTreeMap::new();
    for (name, place) in spec.get("inputs").entries()? {
        super::job::port_name(&place, name)?;
        inputs.insert(name.into(), input(&place.need_object()?)?);
    }
    let mut outputs = BTreeMap::new();
    for (name, place) in spec.get("outputs").entries()? {
        super::job::port_name(&place, name)?;
        let kind = place.need_object()?.get("type");
        let word = kind.text()?.unwrap_or("uri_folder");
        match kind.choice(&TAKES)? {
            None | Some(Takes::Files(_)) => {}
            Some(_) => return Err(kind.refuse(format!("of an output is not {word}"))),
        }
        let word = if word == "path" { "uri_folder" } else { word };
        outputs.insert(name.into(), word.to_owned());
    }
    Ok(Spec {
        kind: found,
        inputs,
        outputs,
        deterministic: spec.get("is_deterministic").flag()?.unwrap_or(true),
    })
}

fn input(field: &Field<'_>) -> Result<InputDecl, Invalid> {
    let kind = field.get("type");
    let takes = kind.choice(&TAKES)?.unwrap_or(Takes::Text);
    let word = kind.text()?.unwrap_or("string").to_ascii_lowercase();
    let default = scalar(&field.get("default"))?;
    let decl = InputDecl {
        takes,
        word,
        default,
        optional: flag(&field.get("optional"))?,
        mode: field.get("mode").text()?.map(str::to_owned),
    };
    if let Some(default) = &decl.default
        && !matches!(takes, Takes::Files(_))
    {
        fits(&field.get("default"), &decl, default)?;
    }
    Ok(decl)
}

/// A truth value, which some clients send as a text.
fn flag(field: &Field<'_>) -> Result<bool, Invalid> {
    match field.value() {
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Ok(field.flag()?.unwrap_or(false)),
    }
}

/// A text, a number or a truth value, as text.
pub fn scalar(field: &Field<'_>) -> Result<Option<String>, Invalid> {
    Ok(match field.value() {
        None => None,
        Some(Value::Number(n)) => Some(n.to_string()),
        Some(Value::Bool(b)) => Some(b.to_string()),
        Some(_) => field.text()?.map(str::to_owned),
    })
}

/// Whether a text is a value for this input (K2).
pub fn fits(place: &Field<'_>, decl: &InputDecl, text: &str) -> Result<(), Invalid> {
    let legal = match decl.takes {
        Takes::Text => true,
        // the SDK writes a whole number as 5 or as 5.0
        Takes::Integer => text.parse::<f64>().is_ok_and(|n| n.fract() == 0.0),
        Takes::Number => text.parse::<f64>().is_ok(),
        Takes::Truth => ["true", "false"]
            .iter()
            .any(|t| t.eq_ignore_ascii_case(text)),
        Takes::Files(_) => false,
    };
    if legal {
        Ok(())
    } else {
        Err(place.refuse(format!("is `{}`, the input is {}", shown(text), decl.word)))
    }
}

/// Every `${{…}}` of a command must be declared.
pub(super) fn expressions(field: &Field<'_>, line: &str, spec: &Spec) -> Result<(), Invalid> {
    let mut rest = line;
    while let Some((_, after)) = rest.split_once("${{") {
        let Some((inner, tail)) = after.split_once("}}") else {
            return Err(field.refuse("has a ${{ without its }}"));
        };
        rest = tail;
        let inner = inner.trim();
        let (side, name) = inner.split_once('.').unwrap_or((inner, ""));
        let names: Vec<&str> = match side {
            "inputs" => spec.inputs.keys().map(AsRef::as_ref).collect(),
            "outputs" => spec.outputs.keys().map(AsRef::as_ref).collect(),
            _ => {
                return Err(field.refuse(format!(
                    "has ${{{{{}}}}}, known are ${{{{inputs.NAME}}}} and ${{{{outputs.NAME}}}}",
                    shown(inner)
                )));
            }
        };
        if !names.contains(&name) {
            let refusal = field.refuse(format!(
                "has ${{{{{}}}}}, and the component has no {} `{}`",
                shown(inner),
                side.trim_end_matches('s'),
                shown(name)
            ));
            return Err(match nearest(name, names) {
                Some(near) => refusal.hint(format!("did you mean {near}")),
                None => refusal,
            });
        }
    }
    Ok(())
}

/// A command without the `$[[…]]` parts whose inputs are not there: an optional input takes its words with it.
pub fn without_absent(line: &str, there: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("$[[") {
        let Some((inner, tail)) = after.split_once("]]") else {
            break;
        };
        out.push_str(before);
        rest = tail;
        let mut names = inner.split("${{").skip(1);
        let all = names.all(|part| {
            let name = part.split("}}").next().unwrap_or_default().trim();
            name.strip_prefix("inputs.").is_none_or(&there)
        });
        if all {
            out.push_str(inner);
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_parts_go_with_their_input() {
        let line = "run $[[--a ${{inputs.a}}]] $[[--b ${{inputs.b}}]] ${{outputs.o}}";
        let got = without_absent(line, |name| name == "a");
        assert_eq!(got, "run --a ${{inputs.a}}  ${{outputs.o}}");
        assert_eq!(without_absent("x $[[ y", |_| true), "x $[[ y");
    }
}
