//! `POST {scoringUri}`: an invoke of a batch endpoint → the run and the document of its `Pipeline` job.
//!
//! The body is what the SDK's `BatchJobSchema` and `az ml batch-endpoint invoke` send (azure-ai-ml 1.35.2):
//! `properties.{inputData, outputData, name|jobName, miniBatchSize (-m), compute.instanceCount (-c), errorThreshold,
//! retrySettings, outputFileName, outputDataset, properties.experimentName}`. `resources.instanceCount` is read too.
//!
//! V1 an invoke changes how much is done at once, never where: a compute, size, tier or place of its own is refused;
//! V2 the output's full address stands in the job's document before the job starts;
//! V3 a resume takes over only what the same model, code and settings made.

use super::{
    Invalid,
    asset::{DataType, ModelType},
    batch::{self, Deployment, ModelRef, OutputAction},
    compute::MAX_NODES,
    field::Field,
    job::PortType,
    link::{FoundModel, Links, Look, body as stored, child_of, parent_of},
    resolve::{limits, run_path},
};
use crate::{
    names::{self, check_job, shown},
    places::{End, Places, hex},
};
use model::{
    BatchSpec, BlobPath, ClusterSpec, ComputeId, Document, JobId, Millis, Outcome, RunRecord,
    RunSpec, RunState, TaskSpec, Work,
    batch::{ALL_OF_THEM, ANY_NUMBER, BatchOutput},
    engine::{EnvironmentSpec, ModelSpec, Packages, PoolSpec, Program, RowFormat},
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, sync::Arc};

/// The property of an invoke that names the cancelled run to go on from.
pub const RESUME_FROM: &str = "zaffre.resume_from";
/// The one output of a model deployment.
pub const SCORE: &str = "score";

/// Where an invoke wants its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The address.
    pub uri: String,
    /// Whether it is the file itself; else its folder.
    pub file: bool,
    place: String,
}

/// An invoke, read but not yet resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoke {
    /// Name that the job shall have.
    pub job_name: Option<String>,
    /// Experiment that it shall be listed under.
    pub experiment: Option<String>,
    /// How the client calls its one input.
    pub input_name: String,
    /// The input's address.
    pub input: String,
    /// Whether the input is a folder.
    pub folder: bool,
    /// Where the output goes, if said.
    pub output: Option<Output>,
    /// Name of the output file, if said.
    pub file: Option<String>,
    /// `-m`
    pub mini_batch_size: Option<u32>,
    /// `-c`
    pub instances: Option<u32>,
    /// Overrides of the deployment.
    pub error_threshold: Option<i64>,
    /// Overrides of the deployment.
    pub max_retries: Option<u32>,
    /// Overrides of the deployment.
    pub timeout: Option<Millis>,
    /// The run to go on from.
    pub resume_from: Option<String>,
    /// Further properties, kept for the job.
    pub properties: BTreeMap<Box<str>, Box<str>>,
}

impl Invoke {
    /// Reads the body of an invoke.
    pub fn parse(body: &Value) -> Result<Invoke, Invalid> {
        let p = Field::root(body).get("properties").need_object()?;
        nowhere_else(&p)?;
        let bag = p.get("properties").maybe_object()?;
        let mut warnings = Vec::new();
        let mut properties = bag.texts(&mut warnings)?;
        let mut take = |key: &str| {
            let found = properties
                .keys()
                .find(|k| k.eq_ignore_ascii_case(key))
                .cloned()?;
            properties
                .remove(&found)
                .map(String::from)
                .filter(|v| !v.is_empty())
        };
        let (experiment, resume_from) = (take("experimentName"), take(RESUME_FROM));
        bag.known_only("zaffre.", &[RESUME_FROM])?;
        let name = match p.get("name") {
            f if f.value().is_some() => f,
            _ => p.get("jobName"),
        };
        let job_name = name.text()?.filter(|n| !n.is_empty());
        if let Some(text) = job_name {
            check_job(text).map_err(|e| name.refuse(e.to_string()))?;
        }
        let (input_name, input, folder) = input(&p)?;
        let compute = p.get("compute").maybe_object()?.get("instanceCount");
        let count = match compute.value() {
            Some(_) => compute,
            None => p.get("resources").maybe_object()?.get("instanceCount"),
        };
        let retry = p.get("retrySettings").maybe_object()?;
        let (max_retries, timeout) = batch::retries(&retry)?;
        Ok(Invoke {
            job_name: job_name.map(str::to_owned),
            experiment,
            input_name,
            input,
            folder,
            output: output(&p)?,
            file: batch::file_name(&p.get("outputFileName"))?,
            mini_batch_size: batch::mini_batch_size(&p)?,
            instances: match count.value() {
                None => None,
                Some(_) => Some(count.count(1..=MAX_NODES, 1)?),
            },
            error_threshold: batch::error_threshold(&p)?,
            max_retries,
            timeout,
            resume_from,
            properties,
        })
    }

    /// The deployment's settings with the overrides of this invoke.
    fn over(&self, mut deployment: Deployment) -> Deployment {
        let d = &mut deployment;
        d.mini_batch_size = self.mini_batch_size.unwrap_or(d.mini_batch_size);
        d.instances = self.instances.unwrap_or(d.instances);
        d.error_threshold = self.error_threshold.unwrap_or(d.error_threshold);
        d.max_retries = self.max_retries.unwrap_or(d.max_retries);
        d.timeout = self.timeout.unwrap_or(d.timeout);
        if let Some(file) = &self.file {
            d.file.clone_from(file);
        }
        deployment
    }
}

/// V1.
fn nowhere_else(p: &Field<'_>) -> Result<(), Invalid> {
    const RULE: &str = "cannot be chosen by an invoke: jobs of a deployment run on its cluster, in its tier (R-53)";
    let compute = p.get("compute");
    if compute.value().is_some_and(|v| !v.is_object()) {
        return Err(compute.refuse(RULE));
    }
    let resources = p.get("resources").maybe_object()?;
    let own = [
        compute.get("target"),
        compute.get("instanceType"),
        compute.get("location"),
        compute.get("properties"),
        resources.get("instanceType"),
        resources.get("locations"),
        p.get("computeId"),
        p.get("queueSettings"),
        p.get("vmPriority"),
        p.get("tier"),
    ];
    let named = own.iter().find(|f| {
        f.value()
            .is_some_and(|v| *v != json!("") && *v != json!({}) && *v != json!([]))
    });
    if let Some(field) = named {
        return Err(field
            .refuse(RULE)
            .hint("create or update a deployment that names the other cluster"));
    }
    let local = compute.get("isLocal");
    if local.flag()? == Some(true) {
        return Err(local.refuse(RULE));
    }
    Ok(())
}

const INPUTS: [(&str, PortType); 9] = [
    ("UriFolder", PortType::Folder),
    ("UriFile", PortType::File),
    ("uri_folder", PortType::Folder),
    ("uri_file", PortType::File),
    ("Literal", PortType::Literal),
    ("MLTable", PortType::Table),
    ("CustomModel", PortType::Model),
    ("MLFlowModel", PortType::Model),
    ("TritonModel", PortType::Model),
];
const ONE_INPUT: &str = "model deployments take uri_file or uri_folder, exactly one";

fn input(p: &Field<'_>) -> Result<(String, String, bool), Invalid> {
    let list = p.get("inputData");
    let entries = list.entries()?;
    let refuse = |at: &str, message: String| Invalid::user(at.to_owned(), message);
    let [(name, field)] = entries.as_slice() else {
        let dataset = p.get("dataset");
        return match (entries.is_empty(), dataset.text()?) {
            (true, Some(text)) => Ok(("dataset".into(), text.to_owned(), true)),
            (true, None) => Err(refuse(list.path(), format!("{ONE_INPUT}; none is given"))),
            (false, _) => Err(refuse(
                list.path(),
                format!("{ONE_INPUT}; {} are given", entries.len()),
            )),
        };
    };
    let field = field.clone().need_object()?;
    let kind = field.get("jobInputType");
    let folder = match kind.choice(&INPUTS)? {
        None => return Err(kind.missing()),
        Some(PortType::Folder) => true,
        Some(PortType::File) => false,
        Some(PortType::Literal) => {
            return Err(refuse(
                kind.path(),
                format!("{ONE_INPUT}; {} is a literal", shown(name)),
            ));
        }
        Some(PortType::Table) => {
            return Err(refuse(
                kind.path(),
                format!("{ONE_INPUT}; {} is an MLTable", shown(name)),
            ));
        }
        Some(PortType::Model) => {
            return Err(refuse(
                kind.path(),
                format!("{ONE_INPUT}; {} is a model", shown(name)),
            ));
        }
    };
    let uri = field.get("uri").need_text()?;
    Ok(((*name).to_owned(), uri.to_owned(), folder))
}

fn output(p: &Field<'_>) -> Result<Option<Output>, Invalid> {
    let list = p.get("outputData");
    let entries = list.entries()?;
    if entries.len() > 1 {
        return Err(Invalid::user(
            list.path(),
            format!(
                "model deployments have one output, {SCORE}; {} are given",
                entries.len()
            ),
        ));
    }
    if let [(_, field)] = entries.as_slice() {
        // the name is not compared: the SDK itself calls it `output_name` in one place
        let field = field.clone().need_object()?;
        let uri = field.get("uri");
        let Some(text) = uri.text()?.filter(|u| !u.is_empty()) else {
            return Ok(None);
        };
        let file = field
            .get("jobOutputType")
            .choice(&[
                ("UriFile", true),
                ("UriFolder", false),
                ("uri_file", true),
                ("uri_folder", false),
            ])?
            .unwrap_or(false);
        return Ok(Some(Output {
            uri: text.to_owned(),
            file: file && !text.ends_with('/'),
            place: uri.path().to_owned(),
        }));
    }
    let old = p.get("outputDataset").maybe_object()?;
    if old.value().is_none() {
        return Ok(None);
    }
    let path = old.get("path").need_text()?;
    let datastore = old.get("datastoreId").need_text()?;
    let datastore = datastore.trim_end_matches('/');
    let datastore = datastore.rsplit('/').next().unwrap_or(datastore);
    Ok(Some(Output {
        uri: format!(
            "azureml://datastores/{}/paths/{}",
            datastore.trim_start_matches("azureml:"),
            path.trim_start_matches('/')
        ),
        file: false,
        place: old.path().to_owned(),
    }))
}

/// The run of an invoke and the document of its job.
pub fn batch_run(
    id: &JobId,
    endpoint: &Document,
    deployment: &Document,
    invoke: &Invoke,
    look: Look<'_>,
    look_run: &dyn Fn(&JobId) -> Option<Arc<RunRecord>>,
) -> Result<(RunSpec, Value), Invalid> {
    check_job(id.name()).map_err(|e| Invalid::validation("/properties/name", e.to_string()))?;
    let places = Places::of(id.workspace());
    let links = Links {
        places: &places,
        look,
    };
    let value = stored(deployment)?;
    let (_, name) = super::asset::name_and_version(deployment.key.path.as_str());
    let settings = invoke.over(batch::deployment(name, &value, &mut Vec::new())?);
    let p = Field::root(&value).get("properties");
    let (compute, cluster) = links.cluster(&p.get("compute"))?;
    let parts = Parts::find(&links, &p, &settings)?;
    let input = source(&links, invoke)?;
    let (folder, file) = target(&links, id, invoke, &settings)?;
    let fingerprint = parts.fingerprint(&settings);
    let spec = BatchSpec {
        input,
        input_is_folder: invoke.folder,
        input_from: None,
        mini_batch_size: settings.mini_batch_size,
        workers_per_node: settings.workers,
        max_retries: settings.max_retries,
        timeout: settings.timeout,
        error_threshold: settings.error_threshold,
        mini_batch_error_threshold: ANY_NUMBER,
        allowed_failed_percent: ALL_OF_THEM,
        output: match settings.action {
            OutputAction::AppendRow => BatchOutput::AppendRow {
                file: file.as_str().into(),
            },
            OutputAction::SummaryOnly => BatchOutput::SummaryOnly,
        },
        output_folder: folder,
        segment: run_path(id, places.segment(id))?,
        on_capacity_loss: settings.on_capacity_loss,
        max_preemptions: settings.max_preemptions,
        resume_from: None,
        fingerprint: fingerprint.into(),
    };
    let task = task(id, &places, &settings, &parts, &cluster, &spec)?;
    let mut run = RunSpec {
        compute,
        instances: settings.instances,
        task: Arc::new(task),
        work: Work::Batch(Box::new(spec)),
        timeout: None,
        instance_type: None,
        part: None,
    };
    if let Some(from) = &invoke.resume_from {
        let from = resumable(id, from, &run, look_run)?;
        if let Work::Batch(spec) = &mut run.work {
            spec.resume_from = Some(from);
        }
    }
    let document = document(endpoint, name, invoke, &places, &run, &parts.model)?;
    Ok((run, document))
}

/// What a deployment is made of, found.
struct Parts {
    model: FoundModel,
    code: Option<BlobPath>,
    script: Option<String>,
    environment: EnvironmentSpec,
}

impl Parts {
    fn find(links: &Links<'_>, p: &Field<'_>, settings: &Deployment) -> Result<Parts, Invalid> {
        let place = p.get("model");
        let model = match &settings.model {
            ModelRef::Id(text) => links.model(&place.get("assetId"), text)?,
            ModelRef::DataPath { datastore, path } => FoundModel {
                label: path.clone(),
                path: links.data_path(&place.get("path"), datastore.as_deref(), path)?,
                kind: ModelType::Custom,
            },
            ModelRef::OutputPath { job, path } => {
                let job = job.rsplit('/').next().unwrap_or(job);
                let uri = format!("azureml://jobs/{job}/outputs/artifacts/paths/{path}");
                links.model(&place.get("path"), &uri)?
            }
        };
        let scripted = settings.script.is_some();
        let named = settings.environment.is_some();
        let lacking = |what: &str, why: &str| {
            Invalid::user(
                "/properties",
                format!(
                    "the deployment of model {} needs {what}: {why}",
                    shown(&model.label)
                ),
            )
        };
        match (model.kind, scripted, named) {
            (ModelType::Triton, ..) => {
                return Err(Invalid::unsupported(
                    place.path(),
                    format!(
                        "model {} is a triton_model, which batch deployments do not score",
                        shown(&model.label)
                    ),
                ));
            }
            (ModelType::Custom, false, _) => {
                return Err(lacking(
                    "codeConfiguration and environmentId",
                    "only an mlflow_model is scored without a scoring script",
                ));
            }
            (ModelType::Custom | ModelType::Mlflow, true, false) => {
                return Err(lacking(
                    "environmentId",
                    "its scoring script runs in an environment",
                ));
            }
            (ModelType::Custom, true, true) | (ModelType::Mlflow, ..) => {}
        }
        let environment = if named {
            let mut found = links.environment(&p.get("environmentId"))?;
            // a model without a script brings its own packages, unless the environment has some
            if !scripted && found.packages == Packages::None {
                found.packages = Packages::OfModel;
            }
            found
        } else {
            EnvironmentSpec {
                label: format!("packages of {}", model.label.replacen('/', ":", 1)).into(),
                image: None,
                packages: Packages::OfModel,
            }
        };
        Ok(Parts {
            code: links.code(&p.get("codeConfiguration").get("codeId"))?,
            script: settings.script.clone(),
            environment,
            model,
        })
    }

    /// A digest of everything that decides what the rows are: equal for two runs that may share finished mini-batches.
    fn fingerprint(&self, d: &Deployment) -> String {
        let packages = match &self.environment.packages {
            Packages::None => json!(null),
            Packages::Conda(text) => json!(text),
            Packages::OfModel => json!({"of": "model"}),
        };
        let facts = json!([
            self.model.label.to_ascii_lowercase(),
            self.model.path.as_str(),
            self.model.kind == ModelType::Mlflow,
            self.code.as_ref().map(BlobPath::as_str),
            self.script,
            self.environment.image,
            packages,
            d.variables,
            d.mini_batch_size,
            d.action.word(),
            match d.format {
                RowFormat::Csv => "csv",
                RowFormat::Azure => "azure",
            },
            d.header,
        ]);
        hex(&Sha256::digest(facts.to_string().as_bytes()))
    }
}

fn source(links: &Links<'_>, invoke: &Invoke) -> Result<BlobPath, Invalid> {
    let place = Field::at("/properties/inputData")
        .get(&invoke.input_name)
        .get("uri");
    let found = links.source(&place, &invoke.input, names::Kind::Data)?;
    match (found.kind, invoke.folder) {
        (Some(DataType::Table), _) => Err(Invalid::user(
            place.path(),
            format!("{ONE_INPUT}; {} is an MLTable", shown(&invoke.input)),
        )),
        (Some(DataType::File), true) => {
            Err(place.refuse("names a file, and the input is UriFolder"))
        }
        (Some(DataType::Folder), false) => {
            Err(place.refuse("names a folder, and the input is UriFile"))
        }
        _ => Ok(found.path),
    }
}

/// Output folder and file name.
fn target(
    links: &Links<'_>,
    id: &JobId,
    invoke: &Invoke,
    settings: &Deployment,
) -> Result<(BlobPath, String), Invalid> {
    let Some(output) = &invoke.output else {
        return Ok((
            run_path(id, links.places.output(id.name(), SCORE))?,
            settings.file.clone(),
        ));
    };
    let field = Field::at(output.place.as_str());
    let path = links.target(&field, &output.uri)?;
    if !output.file {
        return Ok((path, settings.file.clone()));
    }
    let (folder, file) = path.as_str().rsplit_once('/').unwrap_or_default();
    if settings.action == OutputAction::SummaryOnly {
        return Err(field.refuse("is a file, and output_action summary_only writes into a folder"));
    }
    if let Some(named) = invoke.file.as_deref().filter(|named| *named != file) {
        return Err(field.refuse(format!(
            "ends in {}, and outputFileName is {}",
            shown(file),
            shown(named)
        )));
    }
    match BlobPath::new(folder) {
        Some(folder) => Ok((folder, file.to_owned())),
        None => Err(field.refuse("has no folder")),
    }
}

fn task(
    id: &JobId,
    places: &Places,
    d: &Deployment,
    parts: &Parts,
    cluster: &ClusterSpec,
    spec: &BatchSpec,
) -> Result<TaskSpec, Invalid> {
    let root = spec.root().ok_or_else(|| {
        Invalid::validation(
            "/properties/inputData",
            format!(
                "the input {} is a whole container, and uri_file is one file",
                spec.input
            ),
        )
    })?;
    Ok(TaskSpec {
        program: Program::Pool(PoolSpec {
            workers: d.workers,
            script: parts.script.as_deref().map(Into::into),
            arguments: Vec::new(),
            rows: None,
            shutdown: false,
            listing: run_path(id, places.listing(id))?,
            root,
            group: d.mini_batch_size,
            timeout: d.timeout,
            format: d.format,
            collect: d.action == OutputAction::AppendRow,
            header: d.header && d.action == OutputAction::AppendRow,
            shared_output: spec.output_folder.clone(),
            logging_level: d.logging.into(),
        }),
        environment: parts.environment.clone(),
        code: parts.code.clone(),
        inputs: BTreeMap::new(),
        outputs: BTreeMap::new(),
        model: Some(ModelSpec {
            source: parts.model.path.clone(),
            mlflow: parts.model.kind == ModelType::Mlflow,
        }),
        variables: d.variables.clone(),
        limits: limits(&cluster.size),
        artifacts: run_path(id, places.artifacts_of(&child_of(id.name())))?,
    })
}

/// V3: the run to go on from, or what stands against it.
fn resumable(
    id: &JobId,
    from: &str,
    run: &RunSpec,
    look_run: &dyn Fn(&JobId) -> Option<Arc<RunRecord>>,
) -> Result<JobId, Invalid> {
    let place = "/properties/properties/zaffre.resume_from";
    let find = |name: &str| look_run(&JobId::new(id.workspace(), name));
    let record = find(from)
        .or_else(|| parent_of(from).and_then(find))
        .ok_or_else(|| {
            Invalid::not_found(
                "ResourceNotFound",
                place,
                format!(
                    "job {} does not exist in workspace {}",
                    shown(from),
                    id.workspace().name
                ),
            )
        })?;
    let refuse = |rule: String| {
        Invalid::conflict(place, format!("cannot resume from {}: {rule}", record.id))
    };
    let (Work::Batch(old), Work::Batch(new)) = (&record.spec.work, &run.work) else {
        return Err(refuse("it is not a batch job".into()));
    };
    match &record.state {
        RunState::Done(Outcome::Canceled(_) | Outcome::Failed(_)) => {}
        RunState::Done(Outcome::Completed) => {
            return Err(refuse("it is completed, nothing is left to do".into()));
        }
        state => {
            return Err(refuse(format!("it has not ended, it is {}", state.name())));
        }
    }
    if old.fingerprint != new.fingerprint {
        let differ = differences(&record.spec, run, old, new);
        return Err(refuse(format!(
            "{} differ from that run",
            differ.join(", ")
        )));
    }
    if (&old.input, old.input_is_folder) != (&new.input, new.input_is_folder) {
        return Err(refuse("the input is another one".into()));
    }
    Ok(record.id.clone())
}

/// Names what differs between two runs whose fingerprints do.
fn differences(a: &RunSpec, b: &RunSpec, old: &BatchSpec, new: &BatchSpec) -> Vec<&'static str> {
    let (x, y) = (&a.task, &b.task);
    let pool = |t: &TaskSpec| match &t.program {
        Program::Pool(p) => Some((p.script.clone(), p.format, p.header)),
        Program::Command { .. } => None,
    };
    let kind = |s: &BatchSpec| matches!(s.output, BatchOutput::AppendRow { .. });
    let (p, q) = (pool(x), pool(y));
    let facts = [
        ("model", x.model != y.model),
        ("code", x.code != y.code),
        (
            "scoring script",
            p.as_ref().map(|p| &p.0) != q.as_ref().map(|q| &q.0),
        ),
        ("environment", x.environment != y.environment),
        ("environment variables", x.variables != y.variables),
        (
            "mini_batch_size",
            old.mini_batch_size != new.mini_batch_size,
        ),
        ("output_action", kind(old) != kind(new)),
        ("row format", p.map(|p| (p.1, p.2)) != q.map(|q| (q.1, q.2))),
    ];
    let named: Vec<&str> = facts.iter().filter(|(_, d)| *d).map(|(n, _)| *n).collect();
    if named.is_empty() {
        vec!["the settings"]
    } else {
        named
    }
}

/// The document of the job: what a client would have PUT, if pipelines could be PUT.
fn document(
    endpoint: &Document,
    deployment: &str,
    invoke: &Invoke,
    places: &Places,
    run: &RunSpec,
    model: &FoundModel,
) -> Result<Value, Invalid> {
    let Work::Batch(spec) = &run.work else {
        return Err(Invalid::conflict("/", "an invoke makes a batch run"));
    };
    let endpoint_name = endpoint.key.path.as_str();
    let folder = places.uri(&spec.output_folder, End::Folder);
    let mut properties = Map::new();
    for (key, value) in &invoke.properties {
        properties.insert(key.to_string(), json!(value));
    }
    let mut put = |key: &str, value: Value| {
        properties.insert(key.to_owned(), value);
    };
    put("azureml.deploymentname", json!(deployment));
    put("azureml.endpointname", json!(endpoint_name));
    put("zaffre.model", json!(model.label.replacen('/', ":", 1)));
    if let BatchOutput::AppendRow { file } = &spec.output
        && let Some(path) = spec.output_folder.join(file)
    {
        put("zaffre.output_file", json!(places.uri(&path, End::File)));
    }
    if let Some(from) = &spec.resume_from {
        put(RESUME_FROM, json!(from.name()));
    }
    let input = if invoke.folder {
        "uri_folder"
    } else {
        "uri_file"
    };
    Ok(json!({"properties": {
        "jobType": "Pipeline",
        "experimentName": invoke.experiment.as_deref().unwrap_or(endpoint_name),
        "tags": {
            "azureml.batchrun": "true",
            "azureml.deploymentname": deployment,
            "azureml.jobtype": "azureml.batchjob",
        },
        "properties": properties,
        "computeId": names::compute_id(places.workspace(), run.compute.name()),
        "inputs": {invoke.input_name.as_str(): {"jobInputType": input, "uri": invoke.input}},
        "outputs": {SCORE: {"jobOutputType": "uri_folder", "mode": "ReadWriteMount", "uri": folder}},
        "jobs": {},
        "settings": {},
        "isArchived": false,
    }}))
}

/// The compute of a deployment, when the id that it names is wanted alone.
pub fn compute_of(
    deployment: &Document,
    look: Look<'_>,
) -> Result<(ComputeId, ClusterSpec), Invalid> {
    let places = Places::of(&deployment.key.workspace);
    let links = Links {
        places: &places,
        look,
    };
    let value = stored(deployment)?;
    links.cluster(&Field::root(&value).get("properties").get("compute"))
}
