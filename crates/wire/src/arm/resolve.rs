//! A command job's document → the run that it is: every name followed to what it means now.
//!
//! R1 a `RunSpec` needs no other document: what the names mean is fixed when the job is submitted;
//! R2 a run goes to the compute that its document names and to no other.

use super::{
    Invalid,
    asset::DataType,
    field::Field,
    job::{self, Input, Mode, Output, OutputMode, PortType},
    link::{Compute, Links, Look},
};
use crate::{
    names::{self, check_job, shown},
    places::{End, Places},
};
use model::{
    BlobPath, ClusterSpec, DocKey, JobId, Kind, MilliCpu, Resources, RunSpec, Size, TaskSpec, Work,
    engine::{
        DISTRIBUTION_VARIABLE, InputSpec, OutputSpec, PROCESSES_VARIABLE, Program, Register, Remote,
    },
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The device name of graphics processors.
pub const GPU: &str = "nvidia.com/gpu";

/// The run of a command job.
pub fn command_run(id: &JobId, body: &Value, look: Look<'_>) -> Result<RunSpec, Invalid> {
    check_job(id.name()).map_err(|e| Invalid::validation("/name", e.to_string()))?;
    run_of(id, body, look, &mut Vec::new())
}

/// The run of a command job, whatever its name.
pub fn run_of(
    id: &JobId,
    body: &Value,
    look: Look<'_>,
    warnings: &mut Vec<String>,
) -> Result<RunSpec, Invalid> {
    let command = job::command_of(body, warnings)?;
    let places = Places::of(id.workspace());
    let links = Links {
        places: &places,
        look,
    };
    let p = Field::root(body).get("properties");
    let (compute, target) = links.compute(&p.get("computeId"))?;
    let named = command.instance_type.as_deref();
    let (limits, instance_type) = match &target {
        Compute::Cluster(cluster) => {
            node_type(&p, named, &cluster.size, compute.name())?;
            (limits(&cluster.size), None)
        }
        Compute::Instance(one) => {
            started(&p, one, compute.name())?;
            node_type(&p, named, &one.size, compute.name())?;
            (limits(&one.size), None)
        }
        // the type says what a pod may use, when it is admitted
        Compute::Kubernetes { default_type } => {
            (Resources::default(), Some(named.unwrap_or(default_type)))
        }
    };
    let mut variables = command.variables.clone();
    if let Some(distribution) = command.distribution {
        variables.insert(DISTRIBUTION_VARIABLE.into(), distribution.word().into());
        if command.processes > 1 {
            let processes = command.processes.to_string();
            variables.insert(PROCESSES_VARIABLE.into(), processes.into());
        }
    }
    let task = TaskSpec {
        program: Program::Command {
            line: command.line.as_str().into(),
        },
        environment: links.environment(&p.get("environmentId"))?,
        code: links.code(&p.get("codeId"))?,
        inputs: inputs(&links, &p.get("inputs"), &command.inputs)?,
        outputs: outputs(&links, &p.get("outputs"), &command.outputs, id)?,
        model: None,
        variables,
        limits,
        artifacts: run_path(id, places.artifacts_of(id.name()))?,
    };
    Ok(RunSpec {
        compute,
        instances: command.instances,
        task: Arc::new(task),
        work: Work::Command,
        timeout: command.timeout,
        instance_type: instance_type.map(Into::into),
        part: None,
    })
}

/// What a task may use: the whole node, nominally.
pub fn limits(size: &Size) -> Resources {
    let mut limits = Resources {
        cpu: MilliCpu(u64::from(size.cores) * 1000),
        memory: size.memory,
        devices: BTreeMap::new(),
    };
    if size.gpus > 0 {
        limits.devices.insert(GPU.into(), size.gpus);
    }
    limits
}

/// A path that is derived from the run's own name; job names are checked, so a failure names the name.
pub fn run_path(id: &JobId, path: Option<BlobPath>) -> Result<BlobPath, Invalid> {
    path.ok_or_else(|| {
        Invalid::validation(
            "/name",
            format!("job name `{}` cannot be a folder", shown(id.name())),
        )
    })
}

/// A compute instance runs jobs while it is started.
pub(super) fn started(p: &Field<'_>, one: &ClusterSpec, compute: &str) -> Result<(), Invalid> {
    if one.max > 0 {
        return Ok(());
    }
    Err(Invalid::conflict(
        p.get("computeId").path(),
        format!("compute instance {compute} is stopped"),
    )
    .hint(format!("start it: `zaffre compute start -n {compute}`")))
}

/// On a cluster an instance type says nothing but the cluster's own size.
pub(super) fn node_type(
    p: &Field<'_>,
    named: Option<&str>,
    size: &Size,
    compute: &str,
) -> Result<(), Invalid> {
    match named {
        Some(named) if !named.eq_ignore_ascii_case(size.name.as_str()) => Err(Invalid::user(
            p.get("resources").get("instanceType").path(),
            format!(
                "instance type {} is not defined on compute {compute}: its nodes are {}",
                shown(named),
                size.name
            ),
        )),
        _ => Ok(()),
    }
}

pub(super) fn inputs(
    links: &Links<'_>,
    field: &Field<'_>,
    declared: &BTreeMap<Box<str>, Input>,
) -> Result<BTreeMap<Box<str>, InputSpec>, Invalid> {
    let mut out = BTreeMap::new();
    for (name, input) in declared {
        let place = field.get(name).get("uri");
        let spec = match input {
            Input::Literal(text) => InputSpec::Literal(text.as_str().into()),
            Input::At { uri, kind, mode } => {
                let found = links.source(&place, uri, asset_of(*kind))?;
                agrees(&place, *kind, found.kind)?;
                match mode {
                    Mode::Direct => {
                        // as it was written when that is an address of the storage itself
                        let own = uri.starts_with("https://") || uri.starts_with("http://");
                        let address = match own {
                            true => uri.clone(),
                            false => found.address(links.places, end(*kind)),
                        };
                        InputSpec::Literal(address.into())
                    }
                    Mode::Mount => InputSpec::Path {
                        source: found.path,
                        copy: false,
                    },
                    Mode::Download => InputSpec::Path {
                        source: found.path,
                        copy: true,
                    },
                }
            }
        };
        out.insert(name.clone(), spec);
    }
    Ok(out)
}

/// The kind of asset that an input of this type names.
pub(super) fn asset_of(port: PortType) -> names::Kind {
    match port {
        PortType::Model => names::Kind::Model,
        PortType::Literal | PortType::File | PortType::Folder | PortType::Table => {
            names::Kind::Data
        }
    }
}

/// How the address of something of this type ends.
pub(super) fn end(port: PortType) -> End {
    match port {
        PortType::File => End::File,
        PortType::Folder | PortType::Table | PortType::Model | PortType::Literal => End::Folder,
    }
}

/// A file is no folder: an asset of the other kind under an input is a mistake better told now.
fn agrees(field: &Field<'_>, port: PortType, asset: Option<DataType>) -> Result<(), Invalid> {
    match (port, asset) {
        (PortType::File, Some(DataType::Folder | DataType::Table)) => {
            Err(field.refuse("names a folder, and the input is uri_file"))
        }
        (PortType::Folder | PortType::Table, Some(DataType::File)) => {
            Err(field.refuse("names a file, and the input is a folder"))
        }
        _ => Ok(()),
    }
}

/// What an output becomes. A version that is there is refused now; one that is made while the job runs makes the job fail
/// (`plan::register`).
fn register(links: &Links<'_>, field: &Field<'_>, asset: &job::Asset) -> Result<Register, Invalid> {
    let (kind, what) = if asset.holds.ends_with("_model") {
        (Kind::Model, "model")
    } else {
        (Kind::Data, "data asset")
    };
    if let Some(version) = &asset.version {
        let path = format!("{}/{version}", asset.name);
        let key = DocKey::new(links.places.workspace(), kind, path.as_str());
        if (links.look)(&key).is_some() {
            let place = field.get("assetVersion");
            return Err(Invalid::conflict(
                place.path(),
                format!("{what} {}:{version} exists already", asset.name),
            )
            .hint("give another version, or none for the next one"));
        }
    }
    Ok(Register {
        kind,
        holds: asset.holds.into(),
        name: asset.name.as_str().into(),
        version: asset.version.as_deref().map(Into::into),
    })
}

pub(super) fn outputs(
    links: &Links<'_>,
    field: &Field<'_>,
    declared: &BTreeMap<Box<str>, Output>,
    id: &JobId,
) -> Result<BTreeMap<Box<str>, OutputSpec>, Invalid> {
    let mut out = BTreeMap::new();
    let mut pinned = BTreeSet::new();
    for (name, output) in declared {
        let Output {
            uri,
            kind,
            mode,
            asset,
        } = output;
        let register = match asset {
            Some(asset) => Some(Box::new(register(links, &field.get(name), asset)?)),
            None => None,
        };
        if let Some(register) = &register
            && let Some(version) = &register.version
            && !pinned.insert((register.kind, register.name.clone(), version.clone()))
        {
            return Err(field.get(name).get("assetVersion").refuse(format!(
                "is {version}, and another output of the job is to be {}:{version}",
                register.name
            )));
        }
        let place = field.get(name).get("uri");
        let default = || run_path(id, links.places.output(id.name(), name));
        let (target, datastore) = match uri {
            Some(uri) => links.target_of_job(&place, uri)?,
            None => (default()?, None),
        };
        let address = match mode {
            OutputMode::Kept => None,
            OutputMode::Direct => match &datastore {
                Some(name) => Some(links.places.uri_in(name, &target, end(*kind)).into()),
                None => links.places.uri(&target, end(*kind)).map(Into::into),
            },
        };
        let remote = match datastore {
            Some(datastore) => Some(Box::new(Remote {
                datastore: datastore.into(),
                staged: default()?,
            })),
            None => None,
        };
        out.insert(
            name.clone(),
            OutputSpec {
                target,
                file: *kind == PortType::File,
                register,
                address,
                remote,
            },
        );
    }
    Ok(out)
}
