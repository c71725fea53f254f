//! Run history and the data plane: what `job stream`, `job download` and the lists of children read (wire §6).

use super::{
    envelope::{LOCATION, Site, uuid_of},
    job::{Job, STEP_NAME},
    status::error,
};
use crate::{
    arm::{link::child_of, time::stamp},
    names::{self, workspace_id},
};
use model::Workspace;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Most assets that one `batchGetResolvedUris` asks about: the SDK sends the outputs of one job.
pub const MAX_RESOLVED: usize = 1_000;

/// Which run of a job is meant: itself, or the step of a batch run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The job's own run.
    Job,
    /// The step.
    Step,
}

fn id_of(job: &Job<'_>, which: Which) -> String {
    match which {
        Which::Job => job.name().to_owned(),
        Which::Step => child_of(job.name()),
    }
}

/// `GET runs/ID/details`. `logs` are names and signed addresses; `status` is the job's own, or `Finalizing` for the first answer
/// about a run that has ended, so that `stream` prints its log (wire §6).
pub fn details(
    job: &Job<'_>,
    which: Which,
    status: &str,
    logs: &BTreeMap<String, String>,
) -> Value {
    let run = job.run;
    let mut warnings = Vec::new();
    if let Some(run) = run
        && run.preemptions > 0
    {
        warnings.push(json!({
            "source": "zaffre",
            "message": format!("{} nodes were preempted while the job held them", run.preemptions),
        }));
    }
    if let Some(message) = run.and_then(super::job::no_metric) {
        warnings.push(json!({"source": "zaffre", "message": message}));
    }
    json!({
        "runId": id_of(job, which),
        "target": run.map(|r| r.spec.compute.name().to_owned()),
        "status": status,
        "startTimeUtc": run.and_then(|r| r.started).map(stamp),
        "endTimeUtc": run.and_then(|r| r.ended).map(stamp),
        "error": run.map_or(Value::Null, error),
        "warnings": warnings,
        "tags": job.map("tags"),
        "properties": job.properties(),
        "inputDatasets": [],
        "outputDatasets": [],
        "runDefinition": null,
        "logFiles": logs,
        "submittedBy": &*job.document.by,
    })
}

/// One run.
pub fn run(site: &Site, job: &Job<'_>, which: Which) -> Value {
    let (w, by) = (&job.document.key.workspace, &*job.document.by);
    let id = id_of(job, which);
    let record = job.run;
    let experiment = job.experiment();
    // outputs belong to the run that makes them: the step of a batch run, and the job itself for every other
    let (parent, display, kind, tags) = match which {
        Which::Step => (
            Some(job.name().to_owned()),
            STEP_NAME.to_owned(),
            "azureml.StepRun",
            Map::new(),
        ),
        Which::Job => (
            job.parent(),
            job.display(),
            match (job.kind(), job.parent()) {
                ("Pipeline", _) => "azureml.PipelineRun",
                ("Sweep", _) => "azureml.HyperDriveRun",
                (_, Some(_)) => "azureml.StepRun",
                (_, None) => "azureml.scriptrun",
            },
            job.map("tags"),
        ),
    };
    let outputs: Map<String, Value> = job
        .outputs()
        .iter()
        .map(|(name, output)| {
            let kind = output.get("jobOutputType").cloned().unwrap_or_default();
            let id = match job.registered(name) {
                Some(asset) => registered_asset(site, w, &kind, asset),
                None => output_asset(site, w, &id, name),
            };
            let asset = json!({"assetId": id, "type": kind});
            (name.clone(), asset)
        })
        .collect();
    json!({
        "runNumber": job.document.created.0 / 1000,
        "rootRunId": job.name(),
        "experimentId": experiment_id(w, &experiment),
        "createdUtc": stamp(job.document.created),
        "createdBy": {"userObjectId": by, "userName": by},
        "runId": id,
        "parentRunId": parent,
        "status": job.status(),
        "displayName": display,
        "dataContainerId": format!("dcid.{id}"),
        "runType": kind,
        "tags": tags,
        "properties": job.properties(),
        "outputs": outputs,
        "inputs": {},
        "hidden": job.hidden(),
        "experimentName": experiment,
        "warnings": [],
        "error": record.map_or(Value::Null, error),
        "startTimeUtc": record.and_then(|r| r.started).map(stamp),
        "endTimeUtc": record.and_then(|r| r.ended).map(stamp),
    })
}

/// `POST rundata`.
pub fn rundata(site: &Site, job: &Job<'_>, which: Which) -> Value {
    json!({
        "runMetadata": run(site, job, which),
        "runDefinition": null,
        "jobSpecification": null,
        "systemSettings": null,
    })
}

/// `GET runs/ID/children`: the step of a batch run, the steps of a pipeline, the trials of a sweep; nothing for every other.
pub fn children(site: &Site, job: &Job<'_>, made: &[Job<'_>]) -> Value {
    let value: Vec<Value> = if job.is_batch() {
        vec![run(site, job, Which::Step)]
    } else {
        made.iter()
            .map(|child| run(site, child, Which::Job))
            .collect()
    };
    json!({"value": value, "continuationToken": null, "nextLink": null})
}

/// A stable id of an experiment.
pub fn experiment_id(workspace: &Workspace, experiment: &str) -> String {
    uuid_of(&format!(
        "{}/experiments/{experiment}",
        workspace_id(workspace)
    ))
}

/// The id under which the output of a run is an asset.
pub fn output_asset(site: &Site, workspace: &Workspace, run: &str, output: &str) -> String {
    let location = location(site);
    format!(
        "azureml://locations/{location}/workspaces/{}/data/azureml_{run}{INFIX}{output}/versions/1",
        workspace.name
    )
}
const INFIX: &str = "_output_data_";

/// The id of an asset that an output has become.
fn registered_asset(
    site: &Site,
    workspace: &Workspace,
    kind: &Value,
    asset: (&str, &str),
) -> String {
    let model = kind.as_str().is_some_and(|k| k.ends_with("_model"));
    let collection = if model { "models" } else { "data" };
    let (name, version) = asset;
    format!(
        "azureml://locations/{}/workspaces/{}/{collection}/{name}/versions/{version}",
        location(site),
        workspace.name
    )
}

/// Name and version in such an id.
fn asset_of_id(id: &str) -> Option<(names::Kind, &str, &str)> {
    let mut parts = id.rsplit('/');
    let (version, versions, name) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = match parts.next()? {
        "data" => names::Kind::Data,
        "models" => names::Kind::Model,
        _ => return None,
    };
    (versions == "versions" && !name.is_empty() && !version.is_empty())
        .then_some((kind, name, version))
}

fn location(site: &Site) -> &str {
    if site.location.is_empty() {
        LOCATION
    } else {
        &site.location
    }
}

/// Run and output of such an id; several readings when the infix occurs in a name, the last one first.
pub fn output_of_asset(asset: &str) -> Vec<(&str, &str)> {
    let Some(name) = asset
        .rsplit_once("/data/")
        .and_then(|(_, rest)| rest.split('/').next())
        .and_then(|name| name.strip_prefix("azureml_"))
    else {
        return Vec::new();
    };
    let mut out: Vec<(&str, &str)> = name
        .match_indices(INFIX)
        .map(|(at, infix)| (&name[..at], &name[at + infix.len()..]))
        .filter(|(run, output)| !run.is_empty() && !output.is_empty())
        .collect();
    out.reverse();
    out
}

/// Finds address and type of an asset by its kind, name and version.
pub type Registered<'a> = &'a dyn Fn(names::Kind, &str, &str) -> Option<(String, String)>;

/// `POST dataversion/batchGetResolvedUris`: `find` gives the outputs of a run by its id (`Job::outputs`), a step's id too;
/// `registered` the address and the type of a data asset or a model by its name and version.
pub fn resolved_uris(
    request: &Value,
    find: &dyn Fn(&str) -> Option<Map<String, Value>>,
    registered: Registered<'_>,
) -> Result<Value, crate::arm::Invalid> {
    let list = crate::arm::field::Field::root(request).get("values");
    let items = list.items()?;
    if items.len() > MAX_RESOLVED {
        return Err(list.refuse(format!(
            "has {} entries, allowed are {MAX_RESOLVED}",
            items.len()
        )));
    }
    let mut values = Map::new();
    for item in items {
        let asset = item.need_text()?;
        let found = output_of_asset(asset)
            .into_iter()
            .find_map(|(run, output)| {
                let output = find(run)?.remove(output)?;
                Some(json!({
                    "uri": output.get("uri")?,
                    "type": output.get("jobOutputType")?,
                }))
            })
            .or_else(|| {
                let (kind, name, version) = asset_of_id(asset)?;
                let (uri, holds) = registered(kind, name, version)?;
                Some(json!({"uri": uri, "type": holds}))
            });
        // what is not there stays out of the answer: the SDK reads only what it finds
        if let Some(found) = found {
            values.insert(asset.to_owned(), found);
        }
    }
    Ok(json!({ "values": values }))
}

impl Job<'_> {
    /// Whether it is archived.
    fn hidden(&self) -> bool {
        self.property("isArchived")
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }
}
