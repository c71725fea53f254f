//! Command jobs: the body of `PUT jobs/NAME`.

use super::{
    Invalid,
    asset::common,
    compute::MAX_NODES,
    field::{Field, MAX_STRING},
    parallel, time,
};
use crate::names::{check_asset, check_job, check_version, nearest, shown};
use model::Millis;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What inputs and outputs hold that are no literals, in Azure's words.
pub const ASSET_TYPES: [&str; 6] = [
    "uri_file",
    "uri_folder",
    "mltable",
    "custom_model",
    "mlflow_model",
    "triton_model",
];

/// A limit above this is none: Azure ends every job after 30 days (§2.4.3).
const MAX_TIMEOUT: Millis = Millis::secs(30 * 86_400);
/// Longest name of an input or an output: it becomes a folder.
const MAX_PORT_NAME: usize = 255;

/// What an input or an output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortType {
    /// A text.
    Literal,
    /// One file.
    File,
    /// A folder.
    Folder,
    /// A folder with an `MLTable`.
    Table,
    /// A model: a folder or a file.
    Model,
}

/// How the content of an input comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The original, read only.
    Mount,
    /// A copy of its own.
    Download,
    /// The address itself.
    Direct,
}

/// An input as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Substituted as it is.
    Literal(String),
    /// At an address.
    At {
        /// The address.
        uri: String,
        /// What is there.
        kind: PortType,
        /// How it comes.
        mode: Mode,
    },
}

/// An output as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where it goes, when the user says so.
    pub uri: Option<String>,
    /// What it is.
    pub kind: PortType,
    /// How it is written.
    pub mode: OutputMode,
    /// The asset that it becomes.
    pub asset: Option<Asset>,
}

/// How an output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// The task writes to a path, and what is there is kept: `ReadWriteMount` and `Upload` are the same here.
    Kept,
    /// The task gets the address and writes there itself.
    Direct,
}

/// The asset that an output becomes when its job completes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Azure's word for the output: `uri_folder`, `mlflow_model`.
    pub holds: &'static str,
    /// Its name.
    pub name: String,
    /// Its version; `None` is the next one.
    pub version: Option<String>,
}

/// How the processes of a gang find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// `torch.distributed` by environment variables.
    PyTorch,
    /// MPI.
    Mpi,
    /// `TF_CONFIG`.
    TensorFlow,
}

impl Distribution {
    /// The word in `ZAFFRE_DISTRIBUTION`.
    pub fn word(self) -> &'static str {
        match self {
            Distribution::PyTorch => "pytorch",
            Distribution::Mpi => "mpi",
            Distribution::TensorFlow => "tensorflow",
        }
    }
}

/// A command job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command line with its expressions.
    pub line: String,
    /// Code as named.
    pub code: Option<String>,
    /// Environment as named.
    pub environment: String,
    /// Compute as named.
    pub compute: String,
    /// Nodes.
    pub instances: u32,
    /// A size or instance type, as named.
    pub instance_type: Option<String>,
    /// Limit of the run.
    pub timeout: Option<Millis>,
    /// Inputs by name.
    pub inputs: BTreeMap<Box<str>, Input>,
    /// Outputs by name.
    pub outputs: BTreeMap<Box<str>, Output>,
    /// Environment variables.
    pub variables: BTreeMap<Box<str>, Box<str>>,
    /// How a gang finds itself.
    pub distribution: Option<Distribution>,
    /// Processes on each node.
    pub processes: u32,
}

/// Reads a command job; its name is checked too.
pub fn command(name: &str, body: &Value, warnings: &mut Vec<String>) -> Result<Command, Invalid> {
    check_job(name).map_err(|e| Invalid::validation("/name", e.to_string()))?;
    command_of(body, warnings)
}

/// Reads a command job, whatever its name.
pub fn command_of(body: &Value, warnings: &mut Vec<String>) -> Result<Command, Invalid> {
    let p = Field::root(body).get("properties").need_object()?;
    common(&p, warnings)?;
    p.get("displayName").text()?;
    p.get("experimentName").text()?;
    let line = p.get("command");
    let text = line.need_text()?;
    if text.len() > MAX_STRING {
        return Err(line.refuse(format!(
            "has {} bytes, allowed are {MAX_STRING}",
            text.len()
        )));
    }
    let resources = p.get("resources").maybe_object()?;
    let instances = resources.get("instanceCount").count(1..=MAX_NODES, 1)?;
    let instance_type = resources.get("instanceType").text()?.map(str::to_owned);
    container_options(&resources, warnings)?;
    no_services(&p.get("services"))?;
    for key in ["identity", "queueSettings", "notificationSetting"] {
        if p.get(key).value().is_some() {
            warnings.push(format!("{key} has no effect here"));
        }
    }
    let inputs = inputs(&p.get("inputs"))?;
    let outputs = outputs(&p.get("outputs"))?;
    expressions(&line, text, &inputs, &outputs)?;
    let (distribution, processes) =
        distribution(&p.get("distribution").maybe_object()?, instances)?;
    Ok(Command {
        line: text.to_owned(),
        code: p.get("codeId").text()?.map(str::to_owned),
        environment: p.get("environmentId").need_text()?.to_owned(),
        compute: named_compute(&p.get("computeId"))?,
        instances,
        instance_type,
        timeout: timeout(&p.get("limits").maybe_object()?.get("timeout"))?,
        inputs,
        outputs,
        variables: p.get("environmentVariables").variables(warnings)?,
        distribution,
        processes,
    })
}

/// What a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobType {
    /// One command.
    Command,
    /// Steps.
    Pipeline,
    /// Trials.
    Sweep,
}

/// The type of a job that is submitted.
pub fn job_type(body: &Value) -> Result<JobType, Invalid> {
    const TYPES: [(&str, Option<JobType>); 8] = [
        ("Command", Some(JobType::Command)),
        ("Pipeline", Some(JobType::Pipeline)),
        ("Sweep", Some(JobType::Sweep)),
        ("AutoML", None),
        ("Spark", None),
        ("Labeling", None),
        ("FineTuning", None),
        ("Base", None),
    ];
    let field = Field::root(body)
        .get("properties")
        .need_object()?
        .get("jobType");
    let word = field.need_text()?;
    let known = TYPES.iter().find(|(t, _)| t.eq_ignore_ascii_case(word));
    // how a parallel step is stored, and how it is shown
    let shown_step = Field::root(body).get("properties").get(parallel::SETTINGS);
    if word.eq_ignore_ascii_case(parallel::JOB_TYPE) || shown_step.value().is_some() {
        return Err(field
            .unsupported("is that of a parallel step, which runs in a pipeline only")
            .hint("put it under jobs of a Pipeline job"));
    }
    match known {
        Some((_, Some(found))) => Ok(*found),
        Some((word, None)) => Err(field.unsupported(format!(
            "is {word}, which is not built yet; Command, Pipeline and Sweep are"
        ))),
        None => Err(field.refuse(format!(
            "is `{}`, known are Command, Pipeline and Sweep",
            shown(word)
        ))),
    }
}

/// The compute must be named: a job never runs anywhere that it did not say.
pub fn named_compute(field: &Field<'_>) -> Result<String, Invalid> {
    let text = field.text()?.unwrap_or_default();
    match text.to_ascii_lowercase().as_str() {
        "" | "serverless" => Err(field
            .unsupported("is absent: serverless compute is not built yet")
            .hint("name a cluster: compute: azureml:NAME")),
        "local" => Err(field
            .unsupported("is local, which is not built yet")
            .hint("name a cluster: compute: azureml:NAME")),
        _ => Ok(text.to_owned()),
    }
}

pub(super) fn timeout(field: &Field<'_>) -> Result<Option<Millis>, Invalid> {
    match field.duration()? {
        None => Ok(None),
        Some(Millis(0)) => Err(field
            .refuse("is PT0S, and no job ends in no time")
            .hint("leave it out for no limit")),
        Some(t) if t > MAX_TIMEOUT => Err(field.refuse(format!(
            "is {}, at most {} is allowed",
            time::duration(t),
            time::duration(MAX_TIMEOUT)
        ))),
        some => Ok(some),
    }
}

fn container_options(resources: &Field<'_>, warnings: &mut Vec<String>) -> Result<(), Invalid> {
    let memory = resources.get("shmSize");
    if let Some(text) = memory.text()? {
        let number = text.trim_end_matches(['b', 'k', 'm', 'g', 'B', 'K', 'M', 'G']);
        let legal = text.len() - number.len() <= 1
            && number
                .parse::<f64>()
                .is_ok_and(|n| n > 0.0 && n.is_finite());
        if !legal {
            return Err(memory.refuse(format!(
                "is `{}`, expected a number above 0 and b, k, m or g, such as 2g",
                shown(text)
            )));
        }
    }
    for key in [
        "shmSize",
        "dockerArgs",
        "dockerArgsList",
        "locations",
        "maxInstanceCount",
    ] {
        let field = resources.get(key);
        if field.value().is_some() {
            warnings.push(format!("{} has no effect here", field.path()));
        }
    }
    Ok(())
}

fn no_services(services: &Field<'_>) -> Result<(), Invalid> {
    for (name, field) in services.entries()? {
        // the server adds these two itself, and a client may send back what it got
        if !["Tracking", "Studio"]
            .iter()
            .any(|ours| ours.eq_ignore_ascii_case(name))
        {
            return Err(field.unsupported("is an interactive service, which is not built yet"));
        }
    }
    Ok(())
}

/// How a gang finds itself, and the processes of each node.
fn distribution(field: &Field<'_>, instances: u32) -> Result<(Option<Distribution>, u32), Invalid> {
    if field.value().is_none() {
        return Ok((None, 1));
    }
    let kind = field.get("distributionType");
    let Some(found) = kind.choice(&[
        ("PyTorch", Some(Distribution::PyTorch)),
        ("Mpi", Some(Distribution::Mpi)),
        ("TensorFlow", Some(Distribution::TensorFlow)),
        ("Ray", None),
    ])?
    else {
        return Err(kind.missing());
    };
    let Some(found) = found else {
        return Err(kind.unsupported("is Ray, which is not built yet"));
    };
    let processes = field.get("processCountPerInstance");
    let count = processes.count(1..=1_000, 1)?;
    if count != 1 && found == Distribution::TensorFlow {
        return Err(processes.refuse(format!(
            "is {count}, and a node of TensorFlow has one process, its worker"
        )));
    }
    let each = count;
    let servers = field.get("parameterServerCount");
    if servers.count(0..=1_000, 0)? > 0 {
        return Err(servers.unsupported("is above 0: parameter servers are not built yet"));
    }
    let workers = field.get("workerCount");
    let count = workers.count(1..=MAX_NODES, instances)?;
    if count != instances {
        return Err(workers.refuse(format!("is {count}, and instanceCount is {instances}")));
    }
    Ok((Some(found), each))
}

pub(super) fn port_name(field: &Field<'_>, name: &str) -> Result<(), Invalid> {
    let legal = name.len() <= MAX_PORT_NAME
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    if legal {
        Ok(())
    } else {
        Err(field.refuse(format!(
            "`{}` is no name: a letter or _ first, then at most {MAX_PORT_NAME} letters, digits, _ . and -",
            shown(name)
        )))
    }
}

const PORTS: [(&str, PortType); 9] = [
    ("literal", PortType::Literal),
    ("uri_file", PortType::File),
    ("UriFile", PortType::File),
    ("uri_folder", PortType::Folder),
    ("UriFolder", PortType::Folder),
    ("mltable", PortType::Table),
    ("custom_model", PortType::Model),
    ("mlflow_model", PortType::Model),
    ("triton_model", PortType::Model),
];

pub(super) fn inputs(field: &Field<'_>) -> Result<BTreeMap<Box<str>, Input>, Invalid> {
    let mut out = BTreeMap::new();
    for (name, place) in field.entries()? {
        port_name(&place, name)?;
        out.insert(name.into(), input(&place.need_object()?)?);
    }
    Ok(out)
}

fn input(field: &Field<'_>) -> Result<Input, Invalid> {
    let kind = field.get("jobInputType");
    let Some(kind) = kind.choice(&PORTS)? else {
        return Err(kind.missing());
    };
    if kind == PortType::Literal {
        let value = field.get("value");
        return Ok(Input::Literal(match value.value() {
            None => return Err(value.missing()),
            Some(Value::Number(n)) => n.to_string(),
            Some(Value::Bool(b)) => b.to_string(),
            Some(_) => value.text()?.unwrap_or_default().to_owned(),
        }));
    }
    let mode = field.get("mode");
    let mode = match mode.choice(&[
        ("ReadOnlyMount", Some(Mode::Mount)),
        ("Download", Some(Mode::Download)),
        ("Direct", Some(Mode::Direct)),
        ("ReadWriteMount", None),
        ("EvalMount", None),
        ("EvalDownload", None),
    ])? {
        None => Mode::Mount,
        Some(Some(mode)) => mode,
        Some(None) => {
            let word = mode.text()?.unwrap_or_default();
            let hint = if word.eq_ignore_ascii_case("ReadWriteMount") {
                "a job writes to a folder of a datastore through an output that has it as its path"
            } else {
                "an MLTable is not evaluated; ReadOnlyMount and Download give its folder"
            };
            return Err(mode
                .unsupported(format!(
                    "of an input is {}, which is not built yet; ReadOnlyMount, Download and Direct are",
                    shown(word)
                ))
                .hint(hint));
        }
    };
    Ok(Input::At {
        uri: field.get("uri").need_text()?.to_owned(),
        kind,
        mode,
    })
}

pub(super) fn outputs(field: &Field<'_>) -> Result<BTreeMap<Box<str>, Output>, Invalid> {
    let mut out = BTreeMap::new();
    for (name, place) in field.entries()? {
        port_name(&place, name)?;
        if name.eq_ignore_ascii_case("default") {
            return Err(place.refuse("is the name of the run's own artifacts; choose another"));
        }
        out.insert(name.into(), output(&place.need_object()?)?);
    }
    Ok(out)
}

fn output(field: &Field<'_>) -> Result<Output, Invalid> {
    let kind = field.get("jobOutputType");
    let Some(found) = kind.choice(&PORTS)? else {
        return Err(kind.missing());
    };
    if found == PortType::Literal {
        return Err(kind.refuse("of an output is not literal"));
    }
    let mode = field.get("mode");
    let mode = mode.choice(&[
        ("ReadWriteMount", OutputMode::Kept),
        ("Upload", OutputMode::Kept),
        ("Direct", OutputMode::Direct),
    ])?;
    Ok(Output {
        mode: mode.unwrap_or(OutputMode::Kept),
        asset: asset(field, &kind, found)?,
        uri: field
            .get("uri")
            .text()?
            .filter(|u| !u.is_empty())
            .map(str::to_owned),
        kind: found,
    })
}

/// `assetName` and `assetVersion`.
fn asset(field: &Field<'_>, kind: &Field<'_>, port: PortType) -> Result<Option<Asset>, Invalid> {
    let (name, version) = (field.get("assetName"), field.get("assetVersion"));
    let given = |field: &Field<'_>| -> Result<Option<String>, Invalid> {
        let text = field.text()?.filter(|t| !t.is_empty());
        Ok(text.map(str::to_owned))
    };
    let pinned = given(&version)?;
    let Some(named) = given(&name)? else {
        return match pinned {
            None => Ok(None),
            Some(_) => {
                Err(version.refuse("is given, and a version belongs to a name: give assetName"))
            }
        };
    };
    let what = if port == PortType::Model {
        "model"
    } else {
        "data"
    };
    check_asset(what, &named).map_err(|e| Invalid::validation(name.path(), e.to_string()))?;
    if let Some(pinned) = &pinned {
        check_version(pinned).map_err(|e| Invalid::validation(version.path(), e.to_string()))?;
    }
    let said = kind.text()?.unwrap_or_default().replace('_', "");
    let word = ASSET_TYPES
        .iter()
        .find(|w| w.replace('_', "").eq_ignore_ascii_case(&said));
    Ok(Some(Asset {
        holds: word.copied().unwrap_or("uri_folder"),
        name: named,
        version: pinned,
    }))
}

/// Every `${{…}}` of the command must mean something that the job has.
pub(super) fn expressions(
    field: &Field<'_>,
    line: &str,
    inputs: &BTreeMap<Box<str>, Input>,
    outputs: &BTreeMap<Box<str>, Output>,
) -> Result<(), Invalid> {
    let mut rest = line;
    while let Some((_, after)) = rest.split_once("${{") {
        let Some((inner, tail)) = after.split_once("}}") else {
            return Err(field.refuse("has a ${{ without its }}"));
        };
        rest = tail;
        let inner = inner.trim();
        let names: Vec<&str> = match inner.split_once('.') {
            Some(("inputs", _)) => inputs.keys().map(AsRef::as_ref).collect(),
            Some(("outputs", _)) => outputs.keys().map(AsRef::as_ref).collect(),
            _ => {
                return Err(field.refuse(format!(
                    "has ${{{{{}}}}}, known are ${{{{inputs.NAME}}}} and ${{{{outputs.NAME}}}}",
                    shown(inner)
                )));
            }
        };
        let (side, name) = inner.split_once('.').unwrap_or_default();
        if !names.contains(&name) {
            let refusal = field.refuse(format!(
                "has ${{{{{}}}}}, and the job has no {} `{}`",
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

/// The body after a `PATCH` of the run (wire §6): display name, description, tags, properties, archived.
pub fn patched(body: &Value, patch: &Value) -> Result<Value, Invalid> {
    let patch = Field::root(patch).need_object()?;
    let mut body = body.clone();
    let Some(properties) = body.get_mut("properties").and_then(Value::as_object_mut) else {
        return Err(Invalid::validation("/properties", "properties is required"));
    };
    for key in ["displayName", "description"] {
        if let Some(text) = patch.get(key).text()? {
            properties.insert(key.into(), text.into());
        }
    }
    if let Some(hidden) = patch.get("hidden").flag()? {
        properties.insert("isArchived".into(), hidden.into());
    }
    let mut warnings = Vec::new();
    for key in ["tags", "properties"] {
        let given = patch.get(key);
        let texts = given.texts(&mut warnings)?;
        if given.value().is_none() {
            continue;
        }
        let slot = properties
            .entry(key)
            .or_insert_with(|| Value::Object(Map::new()));
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
        let Some(map) = slot.as_object_mut() else {
            continue;
        };
        // tags are replaced as a whole, properties of a run only grow
        if key == "tags" {
            map.clear();
        }
        for (name, text) in texts {
            map.insert(name.into(), Value::String(text.into()));
        }
    }
    Ok(body)
}
