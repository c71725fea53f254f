//! Parallel steps: a script that is called for a few files at a time, on many nodes (behaviour §2.1.8, §2.2). The settings of a
//! `parallel` component, in the words of its YAML file, and the batch run that a step becomes.
//!
//! Q1 what a step says wins over what its component says, setting by setting; code and environment are the component's, and
//!    the step's copies of them (the SDK sends some) are read only where the component has none;
//! Q2 a setting may be an input of the pipeline (`${{parent.inputs.NAME}}`): its value is known when the pipeline is submitted;
//! Q3 rows over the files of a folder, or one file, are what runs. What would need the rows of a table is refused by name.

mod settings;

use self::settings::{Ports, Scorer, Settings, count, inside, percent, read};
use super::{
    Invalid,
    asset::{ModelType, common},
    batch::{ON_CAPACITY_LOSS, ours},
    component::{self, Spec},
    compute::MAX_NODES,
    field::Field,
    job::{self, Input, PortType},
    link::{Compute, Links, Look},
    resolve::{self, node_type, run_path},
};
use crate::{names::shown, places::Places};
use model::{
    BatchSpec, BlobPath, JobId, RunSpec, TaskSpec, Work,
    batch::{BatchOutput, OnCapacityLoss},
    engine::{InputSpec, ModelSpec, OutputSpec, Packages, PoolSpec, Program},
};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The type of a step's document. No client can send one: Azure runs a parallel job as a step only.
pub const JOB_TYPE: &str = "Parallel";
/// Where the settings stand in a step's document.
pub const SETTINGS: &str = "parallel";
/// The file of all rows in an output that is a folder, as Azure's engine names it.
pub const ROWS_FILE: &str = "parallel_run_step.txt";

/// Settings that a step may say as well as its component, apart from `task`, `retry_settings`, `resources` and
/// `environment_variables`.
const KEYS: [&str; 7] = [
    "input_data",
    "mini_batch_size",
    "partition_keys",
    "mini_batch_error_threshold",
    "error_threshold",
    "logging_level",
    "max_concurrency_per_instance",
];

/// Checks a parallel component (K1 of components).
pub fn component(spec: &Field<'_>, declared: &Spec) -> Result<(), Invalid> {
    let task = spec.get("task").need_object()?;
    task.get("environment").need_text()?;
    task.get("code").text()?;
    let line = task.get("program_arguments");
    component::expressions(&line, line.text()?.unwrap_or_default(), declared)?;
    read(spec, &Ports::declared(declared)).map(drop)
}

/// The settings of a step: its own over those of its component (Q1), inputs of the pipeline replaced by their values (Q2), and
/// arguments without those parts whose inputs are not there.
pub fn merged(
    spec: &Field<'_>,
    step: &Field<'_>,
    pipeline: &BTreeMap<Box<str>, Input>,
    there: &BTreeSet<&str>,
) -> Result<Value, Invalid> {
    let mut out = Map::new();
    for key in KEYS {
        let found = step.get(key).value().or(spec.get(key).value());
        if let Some(value) = found {
            out.insert(key.into(), value.clone());
        }
    }
    for key in ["task", "retry_settings"] {
        let mut both = spec.get(key).object()?.cloned().unwrap_or_default();
        let own = step.get(key).object()?.cloned().unwrap_or_default();
        both.extend(own.into_iter().filter(|(_, v)| !v.is_null()));
        if key == "task" {
            both.retain(|k, _| k != "code" && k != "environment"); // they have places of their own
            if let Some(Value::String(line)) = both.get_mut("program_arguments") {
                *line = component::without_absent(line, |name| there.contains(name));
            }
        }
        if !both.is_empty() {
            out.insert(key.into(), both.into());
        }
    }
    let mut out = Value::Object(out);
    settle(&mut out, step, pipeline)?;
    Ok(out)
}

/// Q2.
fn settle(
    value: &mut Value,
    step: &Field<'_>,
    pipeline: &BTreeMap<Box<str>, Input>,
) -> Result<(), Invalid> {
    match value {
        Value::Object(map) => map
            .values_mut()
            .try_for_each(|inner| settle(inner, step, pipeline)),
        Value::String(text) => {
            let Some(name) = inside(text).and_then(|t| t.strip_prefix("parent.inputs.")) else {
                return Ok(());
            };
            match pipeline.get(name) {
                Some(Input::Literal(found)) => {
                    *value = json!(found);
                    Ok(())
                }
                Some(Input::At { .. }) => Err(step.refuse(format!(
                    "has a setting that is input {} of the pipeline, which is a file or a folder",
                    shown(name)
                ))),
                None => Err(step.refuse(format!(
                    "has a setting that is input {} of the pipeline, which has none of that name",
                    shown(name)
                ))),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Ok(()),
    }
}

/// Where the rows go: folder and file.
fn target(field: &Field<'_>, output: &OutputSpec) -> Result<(BlobPath, Box<str>), Invalid> {
    if !output.file {
        return Ok((output.target.clone(), ROWS_FILE.into()));
    }
    let parts = output.target.as_str().rsplit_once('/');
    match parts.and_then(|(folder, file)| Some((BlobPath::new(folder)?, file))) {
        Some((folder, file)) => Ok((folder, file.into())),
        None => Err(field.refuse(format!("is {}, which has no folder", output.target))),
    }
}

/// The run of a parallel step, from its document.
pub fn step_run(
    id: &JobId,
    body: &Value,
    look: Look<'_>,
    warnings: &mut Vec<String>,
) -> Result<RunSpec, Invalid> {
    let p = Field::root(body).get("properties").need_object()?;
    common(&p, warnings)?;
    if p.get("identity").value().is_some() {
        warnings.push("identity has no effect here".into());
    }
    let (inputs, outputs) = (
        job::inputs(&p.get("inputs"))?,
        job::outputs(&p.get("outputs"))?,
    );
    let of = p.get(SETTINGS).need_object()?;
    let settings = read(&of, &Ports::given(&inputs, &outputs))?;
    let line = of.get("task").get("program_arguments");
    job::expressions(&line, line.text()?.unwrap_or_default(), &inputs, &outputs)?;
    let percent = percent(&line, &settings.arguments, &inputs, warnings)?;
    let places = Places::of(id.workspace());
    let links = Links {
        places: &places,
        look,
    };
    let resources = p.get("resources").maybe_object()?;
    let named = resources.get("instanceType").text()?;
    let (compute, found) = links.compute(&p.get("computeId"))?;
    let size = match &found {
        Compute::Cluster(cluster) => &cluster.size,
        Compute::Instance(one) => {
            resolve::started(&p, one, compute.name())?;
            &one.size
        }
        Compute::Kubernetes { .. } => {
            return Err(p
                .get("computeId")
                .unsupported(format!(
                    "names {compute}, a Kubernetes compute: parallel steps on one are not built yet"
                ))
                .hint("name a cluster: `zaffre compute create -n NAME --type amlcompute`"));
        }
    };
    node_type(&p, named, size, compute.name())?;
    let instances = count(&resources.get("instanceCount"), 1..=MAX_NODES)?.unwrap_or(1);
    let (model, mut environment) = (
        model(&links, &of, &settings)?,
        links.environment(&p.get("environmentId"))?,
    );
    if model.is_some() && environment.packages == Packages::None {
        environment.packages = Packages::OfModel; // unless the environment has some
    }
    let bag = p.get("properties").maybe_object()?;
    let ours = ours(&bag)?;
    let sources = resolve::inputs(&links, &p.get("inputs"), &inputs)?;
    let named = p.get("inputs").get(&settings.input);
    let (sources, input) = listed(&named, sources, &settings.input)?;
    let outputs = resolve::outputs(&links, &p.get("outputs"), &outputs, id)?;
    here(&p.get("outputs"), &outputs)?;
    let artifacts = run_path(id, places.artifacts_of(id.name()))?;
    let rows = settings
        .rows
        .as_ref()
        .and_then(|name| outputs.get_key_value(name));
    let (folder, output) = match rows {
        None => (artifacts.clone(), BatchOutput::SummaryOnly),
        Some((name, output)) => {
            let (folder, file) = target(&p.get("outputs").get(name), output)?;
            (folder, BatchOutput::AppendRow { file })
        }
    };
    let spec = BatchSpec {
        input_is_folder: !matches!(
            inputs.get(&settings.input),
            Some(Input::At {
                kind: PortType::File,
                ..
            })
        ),
        input,
        input_from: Some(settings.input.clone()),
        mini_batch_size: settings.mini_batch_size,
        workers_per_node: settings.workers,
        max_retries: settings.max_retries,
        timeout: settings.timeout,
        error_threshold: settings.error_threshold,
        mini_batch_error_threshold: settings.mini_batch_error_threshold,
        allowed_failed_percent: percent,
        output_folder: folder,
        segment: run_path(id, places.segment(id))?,
        // a step waits for nodes, as every step does; that a batch job ends without them is a rule of batch endpoints
        on_capacity_loss: match bag.get(ON_CAPACITY_LOSS).value() {
            Some(_) => ours.on_capacity_loss,
            None => OnCapacityLoss::Wait,
        },
        max_preemptions: ours.max_preemptions,
        resume_from: None,
        fingerprint: Box::default(),
        output,
    };
    let Some(root) = spec.root() else {
        return Err(named.refuse(format!("is {}, a whole container", spec.input)));
    };
    let collect = matches!(spec.output, BatchOutput::AppendRow { .. });
    let pool = PoolSpec {
        workers: settings.workers,
        script: match &settings.scorer {
            Scorer::Script(path) => Some(path.as_str().into()),
            Scorer::Model(_) => None,
        },
        arguments: settings.arguments.clone(),
        rows: settings.rows.clone(),
        shutdown: true,
        listing: run_path(id, places.listing(id))?,
        root,
        group: settings.mini_batch_size,
        timeout: settings.timeout,
        format: ours.format,
        collect,
        header: ours.header && collect,
        // what a script leaves there is an artifact of the run, as a command's `outputs/` is
        shared_output: run_path(id, artifacts.join("outputs"))?,
        logging_level: settings.logging.into(),
    };
    let task = TaskSpec {
        program: Program::Pool(pool),
        environment,
        code: links.code(&p.get("codeId"))?,
        inputs: sources,
        outputs,
        model,
        variables: p.get("environmentVariables").variables(warnings)?,
        limits: resolve::limits(size),
        artifacts,
    };
    if task.code.is_none() && task.model.is_none() {
        return Err(of.get("task").get("code").missing());
    }
    Ok(RunSpec {
        compute,
        instances,
        task: Arc::new(task),
        work: Work::Batch(Box::new(spec)),
        timeout: None,
        instance_type: None,
        part: None,
    })
}

/// The input that is listed: what is listed is what is read, so it is no copy.
fn listed(
    field: &Field<'_>,
    mut inputs: BTreeMap<Box<str>, InputSpec>,
    name: &str,
) -> Result<(BTreeMap<Box<str>, InputSpec>, BlobPath), Invalid> {
    match inputs.get_mut(name) {
        Some(InputSpec::Path { source, copy }) => {
            *copy = false;
            let source = source.clone();
            Ok((inputs, source))
        }
        Some(InputSpec::Literal(_)) | None => Err(field
            .get("mode")
            .unsupported("is direct, and the files of input_data are read; ro_mount is built")),
    }
}

/// The workers of all nodes write their outputs where these stay, and rows are put there by the server: in a datastore of its own.
fn here(field: &Field<'_>, outputs: &BTreeMap<Box<str>, OutputSpec>) -> Result<(), Invalid> {
    for (name, output) in outputs {
        if let Some(remote) = &output.remote {
            return Err(field.get(name).get("uri").unsupported(format!(
                "is in datastore {}, and outputs of parallel steps in attached datastores are not built yet; a command step can \
                 take it there",
                remote.datastore
            )));
        }
    }
    Ok(())
}

/// The model of a task of type `model`.
fn model(
    links: &Links<'_>,
    of: &Field<'_>,
    settings: &Settings,
) -> Result<Option<ModelSpec>, Invalid> {
    let Scorer::Model(text) = &settings.scorer else {
        return Ok(None);
    };
    let place = of.get("task").get("model");
    let found = links.model(&place, text)?;
    if found.kind != ModelType::Mlflow {
        return Err(place.refuse(format!(
            "names {}, and only an mlflow_model is scored without a script",
            shown(&found.label)
        )));
    }
    Ok(Some(ModelSpec {
        source: found.path,
        mlflow: true,
    }))
}

/// Everything that decides what the result of a parallel step is, besides code, environment, variables, inputs and outputs.
pub fn identity(task: &TaskSpec, pool: &PoolSpec, batch: &BatchSpec) -> Value {
    json!({
        "script": pool.script,
        "arguments": pool.arguments,
        "model": task.model,
        "input": batch.input_from,
        "folder": batch.input_is_folder,
        "mini_batch_size": batch.mini_batch_size,
        "retries": batch.max_retries,
        "timeout": batch.timeout,
        "thresholds": [batch.error_threshold, batch.mini_batch_error_threshold],
        // the folder of a default place has the name of the job in it
        "rows": match &batch.output {
            BatchOutput::AppendRow { file } => Some(file),
            BatchOutput::SummaryOnly => None,
        },
        "format": pool.format,
        "header": pool.header,
    })
}
