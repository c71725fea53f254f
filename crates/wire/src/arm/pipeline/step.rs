//! A step's words, which are those of a file, in ARM's spelling: the body that a client would have sent for it.

use super::{Node, Parent};
use crate::arm::{Invalid, component, field::Field, parallel};
use crate::names::shown;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeType {
    Command,
    Parallel,
    Sweep,
    Pipeline,
}

pub(super) fn node_type(place: &Field<'_>) -> Result<NodeType, Invalid> {
    let kind = place.get("type");
    let found = kind.choice(&[
        ("command", Some(NodeType::Command)),
        ("sweep", Some(NodeType::Sweep)),
        ("pipeline", Some(NodeType::Pipeline)),
        ("parallel", Some(NodeType::Parallel)),
        ("spark", None),
        ("automl", None),
        ("import", None),
        ("data_transfer", None),
    ])?;
    match found {
        None => Ok(NodeType::Command),
        Some(Some(kind)) => Ok(kind),
        Some(None) => Err(kind.unsupported(format!(
            "is {}, which is not built yet; command, parallel, sweep and pipeline are",
            kind.text()?.unwrap_or_default()
        ))),
    }
}

/// The compute that a body names, else its default.
pub(super) fn compute(p: &Field<'_>, settings: &Field<'_>) -> Option<Value> {
    let places = [
        p.get("computeId"),
        p.get("compute"),
        settings.get("default_compute"),
        settings.get("defaultCompute"),
    ];
    let found = places.iter().find_map(Field::value);
    found.filter(|v| v.as_str() != Some("")).cloned()
}

/// The body that a client would have sent for this step.
pub(super) fn document(
    parent: &Parent<'_>,
    node: &Node<'_>,
    kind: NodeType,
    spec: &Field<'_>,
    inputs: &Map<String, Value>,
    outputs: &Map<String, Value>,
    there: &BTreeSet<&str>,
) -> Result<Value, Invalid> {
    let place = &node.place;
    let mut p = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            p.insert(key.to_owned(), value);
        }
    };
    let value = |field: Field<'_>| field.value().cloned();
    set(
        "jobType",
        Some(json!(match kind {
            NodeType::Command => "Command",
            NodeType::Parallel => parallel::JOB_TYPE,
            NodeType::Sweep => "Sweep",
            NodeType::Pipeline => "Pipeline",
        })),
    );
    set("displayName", Some(json!(node.key)));
    set("parentJobName", Some(json!(parent.id.name())));
    for key in ["description", "tags", "properties"] {
        set(key, value(place.get(key)));
    }
    set("experimentName", value(parent.p.get("experimentName")));
    let own = compute(place, &place.get("settings"));
    set("computeId", own.or_else(|| parent.compute.clone()));
    set("inputs", Some(Value::Object(inputs.clone())));
    set("outputs", Some(Value::Object(outputs.clone())));
    set("isArchived", Some(json!(false)));
    let text = |key: &str| -> Result<String, Invalid> {
        let line = spec.get(key).text()?.unwrap_or_default();
        Ok(component::without_absent(line, |name| there.contains(name)))
    };
    let task = |key: &str| first([spec.get("task").get(key), place.get("task").get(key)]);
    let environment = match kind {
        NodeType::Parallel => task("environment"),
        NodeType::Command | NodeType::Sweep | NodeType::Pipeline => {
            first([place.get("environment"), spec.get("environment")])
        }
    };
    let environment = id(environment);
    let resources = merged(&spec.get("resources"), &place.get("resources"))?;
    let distribution = distribution(&if place.get("distribution").value().is_some() {
        place.get("distribution")
    } else {
        spec.get("distribution")
    })?;
    let variables = merged_plain(
        &spec.get("environment_variables"),
        &place.get("environment_variables"),
    )?;
    match kind {
        NodeType::Command => {
            set("command", Some(json!(text("command")?)));
            set("codeId", id(spec.get("code")));
            set("environmentId", environment);
            set("resources", resources);
            set("distribution", distribution);
            set("environmentVariables", variables);
            set("limits", limits(&place.get("limits"), "Command")?);
            set("services", value(place.get("services")));
            set("identity", value(place.get("identity")));
            set("queueSettings", value(place.get("queue_settings")));
        }
        NodeType::Parallel => {
            set("codeId", id(task("code")));
            set("environmentId", environment);
            set("resources", resources);
            set("environmentVariables", variables);
            set("identity", value(place.get("identity")));
            let said = parallel::merged(spec, place, &parent.inputs, there)?;
            set(parallel::SETTINGS, Some(said));
        }
        NodeType::Pipeline => {
            set("jobs", value(spec.get("jobs")));
            set("settings", value(place.get("settings")));
        }
        NodeType::Sweep => {
            let space = place.get("search_space");
            let mut line = text("command")?;
            // in a pipeline a parameter is an input of the trial's component
            for (name, _) in space.entries()? {
                line = line.replace(
                    &format!("${{{{inputs.{name}}}}}"),
                    &format!("${{{{search_space.{name}}}}}"),
                );
            }
            let mut trial = Map::from_iter([("command".to_owned(), json!(line))]);
            for (key, found) in [
                ("codeId", id(spec.get("code"))),
                ("environmentId", environment),
                ("resources", resources),
                ("distribution", distribution),
                ("environmentVariables", variables),
            ] {
                if let Some(found) = found {
                    trial.insert(key.into(), found);
                }
            }
            set("trial", Some(Value::Object(trial)));
            let mut domains = Map::new();
            for (name, domain) in space.entries()? {
                domains.insert(name.to_owned(), arguments(&domain)?);
            }
            set("searchSpace", Some(Value::Object(domains)));
            set(
                "samplingAlgorithm",
                Some(algorithm(&place.get("sampling_algorithm"))?),
            );
            set("objective", camel(&place.get("objective"))?);
            set("earlyTermination", policy(&place.get("early_termination"))?);
            set("limits", limits(&place.get("limits"), "Sweep")?);
        }
    }
    if p.get("tags").is_none() {
        p.insert("tags".into(), json!({}));
    }
    if p.get("properties").is_none() {
        p.insert("properties".into(), json!({}));
    }
    // An input that the sweep varies is none of its own.
    if kind == NodeType::Sweep
        && let Some(Value::Object(inputs)) = p.get_mut("inputs")
    {
        for (name, _) in place.get("search_space").entries()? {
            inputs.remove(name);
        }
    }
    Ok(json!({ "properties": p }))
}

/// The first that is there.
fn first<'a>(all: [Field<'a>; 2]) -> Field<'a> {
    let [first, second] = all;
    match first.value() {
        Some(_) => first,
        None => second,
    }
}

/// An id as ARM has it, without the `azureml:` that stands before it in a component.
fn id(field: Field<'_>) -> Option<Value> {
    Some(match field.value()? {
        Value::String(text) => match text.strip_prefix("azureml:") {
            Some(id) if id.starts_with('/') => json!(id),
            _ => json!(text),
        },
        other => other.clone(),
    })
}

/// `max_total_trials` → `maxTotalTrials`.
fn camel_word(word: &str) -> String {
    let mut parts = word.split('_');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut chars = part.chars();
        out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        out.push_str(chars.as_str());
    }
    out
}

/// A map with its keys in ARM's spelling.
fn camel(field: &Field<'_>) -> Result<Option<Value>, Invalid> {
    let Some(map) = field.object()? else {
        return Ok(None);
    };
    let all = map.iter().map(|(k, v)| (camel_word(k), v.clone()));
    Ok(Some(Value::Object(all.collect())))
}

/// What the component says, under what the step says.
fn merged(under: &Field<'_>, over: &Field<'_>) -> Result<Option<Value>, Invalid> {
    Ok(match (camel(under)?, camel(over)?) {
        (Some(Value::Object(mut a)), Some(Value::Object(b))) => {
            a.extend(b.into_iter().filter(|(_, v)| !v.is_null()));
            Some(Value::Object(a))
        }
        (a, None) => a,
        (_, b) => b,
    })
}

fn merged_plain(under: &Field<'_>, over: &Field<'_>) -> Result<Option<Value>, Invalid> {
    let mut out = under.object()?.cloned().unwrap_or_default();
    out.extend(over.object()?.cloned().unwrap_or_default());
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

fn distribution(field: &Field<'_>) -> Result<Option<Value>, Invalid> {
    let Some(Value::Object(mut map)) = camel(field)? else {
        return Ok(None);
    };
    if let Some(kind) = map.remove("type") {
        map.insert("distributionType".into(), kind);
    }
    Ok(Some(Value::Object(map)))
}

/// Limits: times are ISO 8601 or seconds.
fn limits(field: &Field<'_>, kind: &str) -> Result<Option<Value>, Invalid> {
    let Some(Value::Object(mut map)) = camel(field)? else {
        return Ok(None);
    };
    for key in ["timeout", "trialTimeout"] {
        if let Some(seconds) = map.get(key).and_then(Value::as_u64) {
            map.insert(key.into(), json!(format!("PT{seconds}S")));
        }
    }
    map.insert("jobLimitsType".into(), json!(kind));
    Ok(Some(Value::Object(map)))
}

const ALGORITHMS: [&str; 3] = ["Grid", "Random", "Bayesian"];
const POLICIES: [&str; 3] = ["Bandit", "MedianStopping", "TruncationSelection"];

/// ARM's spelling of a word of a file; a word that is not known stays, for the refusal.
fn canonical(word: &str, known: &[&str]) -> String {
    let plain = word.replace(['_', '-'], "");
    let found = known.iter().find(|k| k.eq_ignore_ascii_case(&plain));
    found.map_or_else(|| word.to_owned(), |k| (*k).to_owned())
}

/// `random`, or an object with its `type`.
pub(crate) fn algorithm(field: &Field<'_>) -> Result<Value, Invalid> {
    if let Some(Value::String(word)) = field.value() {
        return Ok(json!({ "samplingAlgorithmType": canonical(word, &ALGORITHMS) }));
    }
    let Some(Value::Object(mut map)) = camel(field)? else {
        return Err(field.missing());
    };
    if let Some(Value::String(kind)) = map.remove("type") {
        map.insert(
            "samplingAlgorithmType".into(),
            canonical(&kind, &ALGORITHMS).into(),
        );
    }
    Ok(Value::Object(map))
}

pub(crate) fn policy(field: &Field<'_>) -> Result<Option<Value>, Invalid> {
    let Some(Value::Object(mut map)) = camel(field)? else {
        return Ok(None);
    };
    if let Some(Value::String(kind)) = map.remove("type") {
        map.insert("policyType".into(), canonical(&kind, &POLICIES).into());
    }
    Ok(Some(Value::Object(map)))
}

/// `{type: uniform, min_value: 0, max_value: 1}` → `["uniform", [0, 1]]`.
pub fn arguments(field: &Field<'_>) -> Result<Value, Invalid> {
    if field.value().is_some_and(Value::is_array) {
        return Ok(field.value().cloned().unwrap_or_default());
    }
    let kind = field.get("type");
    let word = kind.need_text()?.to_ascii_lowercase();
    let keys: &[&str] = match word.as_str() {
        "choice" => &["values"],
        "randint" => &["upper"],
        "uniform" | "loguniform" => &["min_value", "max_value"],
        "quniform" | "qloguniform" => &["min_value", "max_value", "q"],
        "normal" | "lognormal" => &["mu", "sigma"],
        "qnormal" | "qlognormal" => &["mu", "sigma", "q"],
        _ => {
            return Err(kind.refuse(format!("is `{}`, which is no distribution", shown(&word))));
        }
    };
    let mut out = Vec::new();
    for key in keys {
        let place = field.get(key);
        out.push(place.value().cloned().ok_or_else(|| place.missing())?);
    }
    Ok(json!([word, out]))
}
