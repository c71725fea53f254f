//! `POST {scoringUri}`: a batch job from an endpoint.
//!
//! N1 one request id, one job, however often it is sent and whatever became of the endpoint meanwhile: the name of the job
//!    is made of the request id, or the job keeps the id, so a repeat finds it before anything else is looked at; one
//!    that comes at the same time gets the loop's answer to the first;
//! N2 the answer waits for no listing of the input.

use axum::http::StatusCode;
use control::Request;
use model::{Answer as Did, DocKey, Document, JobId, Kind};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use wire::{
    arm::{Invoke, link::parent_of},
    view,
};

use super::{batch, jobs, put};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply, show,
};

/// Longest request id; a UUID has 36 characters.
const MAX_REQUEST_ID: usize = 256;
/// The property of a batch job that keeps the request that made it.
const REQUEST: &str = "zaffre.request";
/// The header that picks a deployment.
const DEPLOYMENT: &str = "azureml-model-deployment";

/// POST an invoke.
pub(crate) async fn invoke(api: Arc<Api>, call: Call) -> Answer {
    let key = batch::endpoint_key(&api, &call)?;
    let request = request_id(&call)?.map(|id| {
        let w = &key.workspace;
        format!(
            "{}/{}/{}/{}/{id}",
            w.subscription, w.group, w.name, key.path
        )
        .to_ascii_lowercase()
    });
    let derived = request.as_deref().map(named);
    if let Some(name) = &derived
        && let Some(job) =
            api.control
                .get(&DocKey::new(&key.workspace, Kind::Job, name.as_str()))?
    {
        return respond(&api, &call, &job, StatusCode::OK);
    }
    let body: Value = call.json()?;
    let invoke = Invoke::parse(&body)?;
    let name = invoke
        .job_name
        .clone()
        .or(derived)
        .unwrap_or_else(|| format!("batchjob-{}", uuid::Uuid::new_v4()));
    let id = JobId::new(&key.workspace, name.as_str());
    if let Some(job) = taken(&api, &id, request.as_deref())? {
        return respond(&api, &call, &job, StatusCode::OK);
    }
    let (spec, mut document) = resolve(&api, &call, &key, &id, &invoke)?;
    if let Some(request) = &request
        && let Some(properties) = document["properties"]["properties"].as_object_mut()
    {
        properties.insert(REQUEST.to_owned(), request.as_str().into());
    }
    let sent = api
        .control
        .send(Request::Submit {
            id: id.clone(),
            json: document.to_string().into(),
            spec: Arc::new(spec),
            request: request.as_deref().map(Into::into),
            by: put::by(),
        })
        .await;
    let (id, status) = match sent?.answer {
        Did::Run { id, repeat: true } => (id, StatusCode::OK),
        Did::Run { id, repeat: false } => (id, StatusCode::CREATED),
        Did::Stored | Did::Canceling | Did::Preempted { .. } => (id, StatusCode::CREATED),
    };
    let job = api.control.get(&DocKey::job(&id))?.ok_or_else(|| {
        Problem::new(
            StatusCode::CONFLICT,
            "Conflict",
            format!("job {id} was deleted meanwhile"),
        )
    })?;
    respond(&api, &call, &job, status)
}

/// The job of this name, if this very request made it; one that anything else made is in the way.
fn taken(api: &Api, id: &JobId, request: Option<&str>) -> Result<Option<Document>, Problem> {
    let Some(job) = api.control.get(&DocKey::job(id))? else {
        return Ok(None);
    };
    let maker = &put::body(&job)?["properties"]["properties"][REQUEST];
    if request.is_some_and(|request| *maker == request) {
        return Ok(Some(job));
    }
    Err(Problem::new(
        StatusCode::CONFLICT,
        "Conflict",
        format!("job {id} already exists"),
    ))
}

fn respond(api: &Api, call: &Call, job: &Document, status: StatusCode) -> Answer {
    let found = jobs::find(api, &job.key)?;
    let view = view::job::batch_item(&show::site(api, &call.base), &show::of(&found));
    Ok(reply::document(status, job, &view))
}

fn request_id(call: &Call) -> Result<Option<&str>, Problem> {
    let id = ["repeatability_request-id", "repeatability-request-id"]
        .iter()
        .find_map(|name| call.header(name))
        .filter(|id| !id.is_empty());
    if id.is_some_and(|id| id.len() > MAX_REQUEST_ID) {
        return Err(Problem::bad(format!(
            "the repeatability request id is longer than {MAX_REQUEST_ID} characters"
        )));
    }
    Ok(id)
}

/// `batchjob-` and a UUID made of workspace, endpoint and request id (N1).
fn named(request: &str) -> String {
    let digest = Sha256::digest(request.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    format!(
        "batchjob-{}",
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    )
}

fn resolve(
    api: &Api,
    call: &Call,
    key: &DocKey,
    id: &JobId,
    invoke: &Invoke,
) -> Result<(model::RunSpec, Value), Problem> {
    let endpoint = batch::endpoint(api, key)?;
    let body = put::body(&endpoint)?;
    let chosen = call.header(DEPLOYMENT).filter(|d| !d.is_empty());
    let Some(name) = chosen.or_else(|| batch::default_of(&body)) else {
        return Err(Problem::user(format!(
            "endpoint {} has no default deployment, and the request names none",
            key.path
        ))
        .hint(format!(
            "set properties.defaults.deploymentName, or send the header {DEPLOYMENT}"
        )));
    };
    let path = format!("{}/{name}", endpoint.key.path);
    let deployment = batch::deployment(
        api,
        &DocKey::new(&key.workspace, Kind::BatchDeployment, path.as_str()),
    )?;
    // Read before: `wire` knows no store that can fail.
    let from = invoke.resume_from.as_deref().map(|from| {
        [Some(from), parent_of(from)]
            .into_iter()
            .flatten()
            .map(|name| api.control.run(&JobId::new(&key.workspace, name)))
            .collect::<Result<Vec<_>, _>>()
    });
    let runs = from.transpose()?.unwrap_or_default();
    let look_run = |job: &JobId| runs.iter().flatten().find(|run| run.id == *job).cloned();
    api.looking(|look| wire::arm::batch_run(id, &endpoint, &deployment, invoke, look, &look_run))
}
