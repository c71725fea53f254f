//! Jobs: command jobs, the `Pipeline` job of a batch run and its only step.
//!
//! J1 an output's full address is there from the start (field report 17);
//! J2 counts are texts in `properties`, since the SDK wants a map of texts.

use super::{
    envelope::{Site, fill, properties, resource_of, sent, system_data},
    status::{code, status, why},
};
use crate::{
    arm::{link::child_of, parallel::SETTINGS},
    names::{self, PROVIDER, workspace_id},
    places::{End, Places},
};
use model::{
    Document, RunRecord, Work,
    batch::BatchOutput,
    engine::{Packages, Program},
};
use serde_json::{Map, Value, json};

/// Experiment of jobs that name none.
pub const EXPERIMENT: &str = "Default";
/// How Azure calls the step of a batch run.
pub const STEP_NAME: &str = "batchscoring";

/// What a job's document and its run say together; what every view of a job is made of.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The document.
    pub document: &'a Document,
    /// The run, absent only when its record is gone.
    pub run: Option<&'a RunRecord>,
    /// The document, read once for all views of it.
    body: Map<String, Value>,
}

impl<'a> Job<'a> {
    /// A job, and its run where there is one.
    pub fn new(document: &'a Document, run: Option<&'a RunRecord>) -> Job<'a> {
        Job {
            document,
            run,
            body: sent(document),
        }
    }
}

impl Job<'_> {
    /// The job's name.
    pub fn name(&self) -> &str {
        self.document.key.path.as_str()
    }
    /// Azure's word for how it stands.
    pub fn status(&self) -> &'static str {
        self.run.map_or("Starting", status)
    }
    /// The experiment it is listed under.
    pub fn experiment(&self) -> String {
        self.text("experimentName")
            .unwrap_or_else(|| EXPERIMENT.to_owned())
    }
    /// Its display name; its name when it has none.
    pub fn display(&self) -> String {
        self.text("displayName")
            .unwrap_or_else(|| self.name().to_owned())
    }
    /// Whether it is the `Pipeline` job of a batch run.
    pub fn is_batch(&self) -> bool {
        match self.run {
            Some(run) => run.is_batch_job(),
            // its record is gone: its document has the tag that the server gave it
            None => {
                let tag = self.map("tags");
                self.kind() == "Pipeline" && tag.get("azureml.batchrun") == Some(&json!("true"))
            }
        }
    }
    /// Azure's word for its type.
    pub fn kind(&self) -> &'static str {
        let said = self.text("jobType").unwrap_or_default();
        ["Pipeline", "Sweep"]
            .into_iter()
            .find(|kind| kind.eq_ignore_ascii_case(&said))
            .unwrap_or("Command")
    }
    /// The pipeline or sweep that it is a part of.
    pub fn parent(&self) -> Option<String> {
        match self.run {
            Some(run) => {
                let part = run.spec.part.as_ref();
                part.map(|p| p.parent.name().to_owned())
            }
            None => self.text("parentJobName"),
        }
    }
    pub(super) fn property(&self, key: &str) -> Option<&Value> {
        self.body.get("properties")?.get(key)
    }
    /// A text among the document's properties.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        let text = self.property(key)?.as_str()?;
        Some(text).filter(|t| !t.is_empty()).map(str::to_owned)
    }
    /// A map among the document's properties.
    pub(super) fn map(&self, key: &str) -> Map<String, Value> {
        let map = self.property(key).and_then(Value::as_object);
        map.cloned().unwrap_or_default()
    }
    /// The document's properties with the counts of the run (J2).
    pub fn properties(&self) -> Map<String, Value> {
        let mut out = self.map("properties");
        if let Some(run) = self.run {
            counts(run, &mut out);
            if let Some(best) = run.best_trial() {
                out.insert("best_child_run_id".into(), json!(best.job.name()));
            }
            if let Some(part) = &run.spec.part {
                if !part.parameters.is_empty() {
                    let text = serde_json::to_string(&part.parameters).unwrap_or_default();
                    out.insert("hyperparameters".into(), json!(text));
                }
                if let Some(from) = &part.reused_from {
                    out.insert("azureml.isreused".into(), json!("true"));
                    out.insert("azureml.reusedrunid".into(), json!(from.name()));
                }
            }
        }
        out
    }
    /// Every output with its full address (J1).
    pub fn outputs(&self) -> Map<String, Value> {
        let places = Places::of(&self.document.key.workspace);
        let mut out = Map::new();
        for (name, output) in self.map("outputs") {
            // the SDK would list and sign blobs for an output of this name (wire §6)
            if name == "default" {
                continue;
            }
            let mut output = match output {
                Value::Object(map) => map,
                _ => Map::new(),
            };
            fill(&mut output, "jobOutputType", json!("uri_folder"));
            let end = match output.get("jobOutputType").and_then(Value::as_str) {
                Some("uri_file") => End::File,
                _ => End::Folder,
            };
            let lies = self.run.and_then(|run| run.output(&name));
            let family = self
                .run
                .is_some_and(|r| r.spec.part.is_some() || r.spec.is_parent());
            let path = lies.cloned().or_else(|| places.output(self.name(), &name));
            let declared = self.run.and_then(|run| run.spec.task.outputs.get(&*name));
            let remote = declared.and_then(|o| o.remote.as_ref());
            let uri = path.and_then(|path| match remote {
                Some(remote) => Some(places.uri_in(&remote.datastore, &path, end)),
                None => places.uri(&path, end),
            });
            if let Some(uri) = uri {
                // what a reused step or the best trial made lies where that one left it, whatever the document says
                if family && lies.is_some() {
                    output.insert("uri".into(), json!(uri));
                } else {
                    fill(&mut output, "uri", json!(uri));
                }
            }
            if let Some((asset, version)) = self.registered(&name) {
                output.insert("assetName".into(), json!(asset));
                output.insert("assetVersion".into(), json!(version));
            }
            out.insert(name, Value::Object(output));
        }
        out
    }
    /// Name and version of the asset that an output has become.
    pub(super) fn registered(&self, output: &str) -> Option<(&str, &str)> {
        let asset = self.run?.registered.get(output)?;
        asset.as_str().rsplit_once('/')
    }
}

/// What a run counts, as texts.
fn counts(run: &RunRecord, out: &mut Map<String, Value>) {
    let mut put = |key: &str, value: String| {
        out.insert(format!("zaffre.{key}"), json!(value));
    };
    put("preemptions", run.preemptions.to_string());
    put("attempt", run.attempt.0.to_string());
    put("nodes", run.tasks.len().to_string());
    if let Some(p) = &run.progress {
        put(
            "preemptions",
            p.preemptions.max(run.preemptions).to_string(),
        );
        put("retries", p.retries.to_string());
        put("rerun", p.rerun.to_string());
        put("mini_batches_done", p.done.to_string());
        put("mini_batches_failed", p.failed.to_string());
        put("mini_batches_resumed", p.resumed.to_string());
        put("rows", p.rows.to_string());
        put("failed_items", p.failed_items.to_string());
        put("discarded", p.discarded.to_string());
        if p.short > 0 {
            put("mini_batches_short", p.short.to_string());
        }
        if p.listed {
            put("mini_batches_total", p.total.to_string());
            put("files", p.files.to_string());
        }
        if let Some(bytes) = p.published {
            put("output_bytes", bytes.to_string());
        }
    }
    family(run, &mut put);
    if let Some(first) = &run.first_error {
        let message = match first.mini_batch {
            Some(index) => format!("mini-batch {index}: {}", first.message),
            None => first.message.to_string(),
        };
        put("first_error", message);
    }
    if let Some(why) = why(run) {
        put("why", why.to_string());
        put("why_code", code(why).to_owned());
        if let Some(hint) = why.hint() {
            put("hint", hint);
        }
    }
}

/// What is known of a run that has children, or is one. `best_child_run_id`, `hyperparameters` and `azureml.isreused` are
/// Azure's; clients look for them.
fn family(run: &RunRecord, put: &mut impl FnMut(&str, String)) {
    if let Some(children) = &run.family {
        let all = children.children.values();
        let ended = all.filter(|c| c.outcome.is_some()).count();
        put("children", children.children.size().to_string());
        put("children_ended", ended.to_string());
    }
    if let Some(warning) = no_metric(run) {
        put("warning", warning);
    }
    if let Some(best) = run.best_trial() {
        if let Some(value) = best.best {
            put("best_metric", value.to_string());
        }
        put("best_trial", best.job.name().to_owned());
    }
    if let Some(part) = &run.spec.part
        && let Some(from) = &part.reused_from
    {
        put("reused_from", from.name().to_owned());
    }
}

/// A sweep has ended and no trial has reported its metric: nobody can say which was best.
pub fn no_metric(run: &RunRecord) -> Option<String> {
    let Work::Sweep(sweep) = &run.spec.work else {
        return None;
    };
    (run.state.is_done() && run.best_trial().is_none()).then(|| {
        format!(
            "no trial has reported the metric {}: there is no best trial",
            sweep.metric
        )
    })
}

/// The two services that every job has; the SDK prints the second.
fn services(site: &Site, job: &Job<'_>, name: &str) -> Value {
    let w = &job.document.key.workspace;
    let service = |kind: &str, endpoint: String| {
        json!({
            "jobServiceType": kind,
            "endpoint": endpoint,
            "port": null,
            "status": null,
            "errorMessage": null,
            "properties": null,
            "nodes": null,
        })
    };
    json!({
        "Tracking": service("Tracking", super::workspace::tracking(site, w)),
        "Studio": service("Studio", studio(site, job, name)),
    })
}

fn studio(site: &Site, job: &Job<'_>, name: &str) -> String {
    format!(
        "{}/runs/{name}?wsid={}",
        site.base,
        workspace_id(&job.document.key.workspace)
    )
}

/// The document of a job with the places where its outputs lie, for whoever follows `azureml://jobs/NAME/outputs/OUTPUT`.
pub fn located(document: &Document, run: &RunRecord) -> Document {
    let job = Job::new(document, Some(run));
    let mut body = job.body.clone();
    if let Some(Value::Object(p)) = body.get_mut("properties") {
        p.insert("outputs".into(), Value::Object(job.outputs()));
    }
    Document {
        json: Value::Object(body).to_string().into(),
        ..document.clone()
    }
}

/// A job as `GET jobs/NAME` gives it.
pub fn job(site: &Site, job: &Job<'_>) -> Value {
    let mut p = properties(&job.body);
    let kind = job.kind();
    p.insert("jobType".into(), json!(kind));
    p.insert("status".into(), json!(job.status()));
    p.insert("services".into(), services(site, job, job.name()));
    p.insert("displayName".into(), json!(job.display()));
    p.insert("experimentName".into(), json!(job.experiment()));
    p.insert("outputs".into(), Value::Object(job.outputs()));
    p.insert("properties".into(), Value::Object(job.properties()));
    fill(&mut p, "description", Value::Null);
    fill(&mut p, "tags", json!({}));
    fill(&mut p, "inputs", json!({}));
    fill(&mut p, "isArchived", json!(false));
    if kind == "Command" {
        super::canonical::job(&mut p);
        if p.contains_key(SETTINGS) {
            // clients know no type of job for a parallel step
            p.insert("command".into(), json!(command_of(job, "parallel")));
        }
        fill(&mut p, "environmentVariables", json!({}));
        fill(&mut p, "resources", json!({"properties": {}}));
        if let Some(resources) = p.get_mut("resources").and_then(Value::as_object_mut) {
            fill(resources, "instanceCount", json!(1));
            // the type that a run without one was given when it was submitted
            if let Some(named) = job.run.and_then(|run| run.spec.instance_type.as_deref()) {
                fill(resources, "instanceType", json!(named));
            }
        }
    } else if kind == "Pipeline" {
        fill(&mut p, "jobs", json!({}));
        fill(&mut p, "settings", json!({}));
    }
    let mut rest = job.body.clone();
    rest.remove("properties"); // `p` is made of it
    resource_of(job.document, rest, &format!("jobs/{}", job.name()), p)
}

/// The step of a batch run as `GET jobs/NAME-batchscoring` gives it.
pub fn child(site: &Site, job: &Job<'_>) -> Value {
    let name = child_of(job.name());
    let id = format!("{}/jobs/{name}", workspace_id(&job.document.key.workspace));
    let mut inner = json!({
        "jobType": "Command",
        "command": command_of(job, STEP_NAME),
        "status": job.status(),
        "displayName": STEP_NAME,
        "experimentName": job.experiment(),
        "description": null,
        "tags": {},
        "properties": job.properties(),
        "services": services(site, job, &name),
        "inputs": job.map("inputs"),
        "outputs": job.outputs(),
        "environmentVariables": {},
        "resources": {"instanceCount": 1, "properties": {}},
        "isArchived": false,
        "parentJobName": job.name(),
    });
    if let Some(run) = job.run {
        // a model's own packages are no environment that has an id
        if let Some((environment, version)) = run.spec.task.environment.label.split_once(':')
            && run.spec.task.environment.packages != Packages::OfModel
        {
            let w = &job.document.key.workspace;
            let kind = names::Kind::Environment;
            inner["environmentId"] = json!(names::version_id(w, kind, environment, version));
        }
        inner["resources"]["instanceCount"] = json!(run.spec.instances);
        inner["environmentVariables"] = json!(run.spec.task.variables);
    }
    if let Some(compute) = job.text("computeId") {
        inner["computeId"] = json!(compute);
    }
    json!({
        "id": id,
        "name": name,
        "type": format!("{PROVIDER}/workspaces/jobs"),
        "systemData": system_data(job.document),
        "properties": inner,
    })
}

/// What the step does, in one line: there is no shell command behind it.
fn command_of(job: &Job<'_>, what: &str) -> String {
    let mut line = what.to_owned();
    let Some(run) = job.run else {
        return line;
    };
    if let Program::Pool(pool) = &run.spec.task.program
        && let Some(script) = &pool.script
    {
        line.push_str(&format!(" {script}"));
    }
    if let Work::Batch(spec) = &run.spec.work {
        line.push_str(&format!(" --mini_batch_size {}", spec.mini_batch_size));
        if let BatchOutput::AppendRow { file } = &spec.output {
            line.push_str(&format!(" --output_file_name {file}"));
        }
    }
    line
}

/// A job as invoke and the lists of batch jobs give it.
pub fn batch_item(site: &Site, job: &Job<'_>) -> Value {
    let name = job.name();
    let studio = studio(site, job, name);
    let point = json!({"jobEndpointType": null, "endpoint": studio});
    json!({
        "id": format!("{}/jobs/{name}", workspace_id(&job.document.key.workspace)),
        "name": name,
        "type": format!("{PROVIDER}/workspaces/batchEndpoints/jobs"),
        "properties": {
            "name": name,
            "displayName": job.display(),
            "experimentName": job.experiment(),
            "status": job.status(),
            "tags": job.map("tags"),
            "properties": job.properties(),
            "interactionEndpoints": {"Tracking": point, "Studio": point},
            "provisioningState": "Succeeded",
            "isArchived": false,
            "output": null,
            "compute": null,
        },
        "systemData": system_data(job.document),
    })
}
