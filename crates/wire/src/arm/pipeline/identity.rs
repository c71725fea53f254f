//! What the result of a step depends on (P3).

use crate::{arm::parallel, places::hex};
use model::{
    RunSpec, TaskSpec, Work,
    engine::{InputSpec, Program},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Where a pipeline's own inputs lie, for fingerprints.
pub(super) fn own_identities(task: &TaskSpec) -> BTreeMap<Box<str>, String> {
    let identity = |input: &InputSpec| match input {
        InputSpec::Literal(text) => {
            json!({"jobInputType": "literal", "value": &**text}).to_string()
        }
        InputSpec::Path { source, .. } => format!("at {source}"),
    };
    let all = task.inputs.iter();
    all.map(|(name, input)| (name.clone(), identity(input)))
        .collect()
}

/// P3.
pub(super) fn fingerprint(
    run: &RunSpec,
    inputs: &BTreeMap<Box<str>, String>,
    fixed: &BTreeSet<Box<str>>,
) -> String {
    let w = run.compute.workspace();
    let task = &run.task;
    let line = match (&task.program, &run.work) {
        (Program::Command { line }, _) => json!(line),
        (Program::Pool(pool), Work::Batch(batch)) => parallel::identity(task, pool, batch),
        (Program::Pool(_), _) => Value::Null,
    };
    // A default place has the name of the job in it, which says nothing about the result.
    let places: BTreeMap<&str, (Option<&str>, bool)> = task
        .outputs
        .iter()
        .map(|(name, o)| {
            let target = fixed.contains(name).then(|| o.target.as_str());
            (&**name, (target, o.file))
        })
        .collect();
    let of = json!({
        "workspace": format!("{}/{}/{}", w.subscription, w.group, w.name).to_ascii_lowercase(),
        "line": line,
        "environment": task.environment,
        "code": task.code,
        "variables": task.variables,
        "instances": run.instances,
        "inputs": inputs,
        "outputs": places,
    });
    hex(&Sha256::digest(of.to_string().as_bytes()))
}
