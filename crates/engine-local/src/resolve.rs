//! From a specification to an order: every blob becomes a path of this machine.
//!
//! Z1 what cannot be resolved refuses the task with a message that names it; nothing is started on a guess.

use crate::gang::{Address, Gang};
use crate::protocol::{Input, Order, Output, Pool, Work};
use model::{
    BlobPath, Place, Resources, TaskId, TaskSpec,
    engine::{InputSpec, OutputSpec, Placement, Program, RowFormat},
    instance_type::GPU,
};
use port::Blobs;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What an order needs beside the specification.
pub struct Given<'a> {
    /// Where blobs lie.
    pub blobs: &'a Arc<dyn Blobs>,
    /// The Python of the environment.
    pub python: PathBuf,
    /// Lines for the log.
    pub notes: Vec<String>,
    /// `runtime/batch.py`.
    pub runtime: &'a Path,
    /// Folder with `python` and `python3`.
    pub shims: &'a Path,
    /// Variables of the server for every job.
    pub variables: BTreeMap<String, String>,
    /// Where the tasks of its gang are reached.
    pub addresses: Vec<Address>,
    /// GPUs of the node or pod; `None` where the machine has none.
    pub gpus: Option<Vec<u32>>,
    /// Where blobs will lie on the agent's machine, when that is not this one.
    pub mirror: Option<&'a Path>,
    /// Whether the task has a user of its own, who cannot write to what is stored.
    pub own_user: bool,
}

/// Where blobs lie for the agent.
#[derive(Clone, Copy)]
struct Places<'a> {
    blobs: &'a Arc<dyn Blobs>,
    mirror: Option<&'a Path>,
}

fn here(places: Places<'_>, what: &str, path: &BlobPath) -> Result<PathBuf, String> {
    places
        .blobs
        .local(path)
        .ok_or_else(|| format!("{what}: blob {path} does not lie on a disk of this machine"))
}

fn local(places: Places<'_>, what: &str, path: &BlobPath) -> Result<PathBuf, String> {
    let here = here(places, what, path)?;
    Ok(places.mirror.map_or(here, |root| root.join(path.as_str())))
}

fn existing(places: Places<'_>, what: &str, path: &BlobPath) -> Result<PathBuf, String> {
    if std::fs::symlink_metadata(here(places, what, path)?).is_err() {
        return Err(format!("{what}: blob {path} does not exist"));
    }
    local(places, what, path)
}

/// The order of one task.
pub fn order(
    task: &TaskId,
    placement: &Placement,
    spec: &TaskSpec,
    given: Given<'_>,
) -> Result<Order, String> {
    let blobs = Places {
        blobs: given.blobs,
        mirror: given.mirror,
    };
    let (mut inputs, mut ways) = (Vec::new(), Vec::new());
    for (name, input) in &spec.inputs {
        let input = match input {
            InputSpec::Literal(text) => Input::Literal(text.to_string()),
            InputSpec::Path { source, copy } => {
                let at = existing(blobs, &format!("input {name}"), source)?;
                ways.push(format!("input {name}: {}", way(*copy, &given)));
                if *copy {
                    Input::Copy(at)
                } else {
                    Input::Original(at)
                }
            }
        };
        inputs.push((name.to_string(), input));
    }
    let mut outputs = Vec::new();
    for (name, output) in &spec.outputs {
        ways.push(format!("output {name}: {}", way_out(output, &given)));
        outputs.push(Output {
            name: name.to_string(),
            address: output.address.as_ref().map(ToString::to_string),
            target: local(blobs, &format!("output {name}"), output.kept())?,
            file: output.file,
        });
    }
    let code = spec.code.as_ref().map(|c| existing(blobs, "code", c));
    let model = spec.model.as_ref().map(|m| {
        let at = existing(blobs, "model", &m.source)?;
        Ok::<_, String>((at, m.source.base().to_owned()))
    });
    let work = match &spec.program {
        Program::Command { line } => Work::Command {
            line: line.to_string(),
        },
        Program::Pool(pool) => Work::Pool(Pool {
            workers: pool.workers,
            script: pool.script.as_ref().map(ToString::to_string),
            arguments: pool.arguments.iter().map(ToString::to_string).collect(),
            rows: pool.rows.as_ref().map(ToString::to_string),
            shutdown: pool.shutdown,
            runtime: given.runtime.to_path_buf(),
            listing: existing(blobs, "listing of the input", &pool.listing)?,
            root: existing(blobs, "input", &pool.root)?,
            group: pool.group,
            timeout_ms: pool.timeout.0,
            azure: pool.format == RowFormat::Azure,
            collect: pool.collect,
            header: pool.header,
            shared_output: local(blobs, "output folder", &pool.shared_output)?,
            logging_level: pool.logging_level.to_string(),
        }),
    };
    let (limits, where_) = match &placement.place {
        Place::On(node) => (&spec.limits, format!("on node {node}")),
        Place::Matching(pod) => (&pod.limits, format!("in {}", placement.place)),
    };
    let mut notes = given.notes;
    notes.extend(ways);
    let real = given.gpus.as_ref().map_or(0, Vec::len);
    notes.extend(nominal(limits, u32::try_from(real).unwrap_or(u32::MAX)));
    let gang = Gang::new(task, &placement.gang, given.addresses, &spec.variables)?;
    notes.extend(gang.note());
    Ok(Order {
        work,
        place: where_,
        python: given.python,
        shims: given.shims.to_path_buf(),
        code: code.transpose()?,
        inputs,
        outputs,
        model: model.transpose()?,
        server_variables: given.variables.into_iter().collect(),
        variables: spec
            .variables
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
        memory: limits.memory.0,
        cpu: limits.cpu.0,
        gpus: given.gpus,
        granted_gpus: limits.devices.get(GPU).copied().unwrap_or(0),
        artifacts: local(blobs, "artifacts", &spec.artifacts)?,
        gang,
        notes,
    })
}

/// How an input comes to the task: a mount is what is stored itself, or a copy, and the log says which.
fn way(copy: bool, given: &Given<'_>) -> &'static str {
    match (copy, given.mirror.is_some(), given.own_user) {
        (true, _, _) => "download, a copy of the task's own",
        (false, true, _) => "ro_mount, as a copy in the pod",
        (false, false, true) => {
            "ro_mount, read where it is stored; the task's user cannot write there"
        }
        (false, false, false) => {
            "ro_mount, read where it is stored; tasks share the server's user here, and nothing keeps them from writing there"
        }
    }
}

/// What becomes of an output: a mount is a folder of the task's own too, and the log says so.
fn way_out(output: &OutputSpec, given: &Given<'_>) -> String {
    if let Some(remote) = output.sent() {
        return format!(
            "a folder of the task's own, sent to datastore {} when the job has done its work",
            remote.datastore
        );
    }
    let way = match (&output.address, given.mirror.is_some()) {
        (Some(_), _) => "direct, its address; nothing is copied, the task writes there itself",
        (None, true) => {
            "a folder of the task's own in the pod, copied to where it belongs when the task ends"
        }
        (None, false) => {
            "a folder of the task's own, copied to where it belongs when the task ends"
        }
    };
    way.to_owned()
}

/// Lines about devices that were granted and have no hardware behind them.
fn nominal(limits: &Resources, real_gpus: u32) -> impl Iterator<Item = String> + '_ {
    limits.devices.iter().filter_map(move |(name, &granted)| {
        let real = if &**name == GPU { real_gpus } else { 0 };
        let nominal = granted.checked_sub(real).filter(|n| *n > 0)?;
        Some(format!(
            "{granted} {name} granted, {nominal} of them nominal: no hardware stands behind them"
        ))
    })
}
