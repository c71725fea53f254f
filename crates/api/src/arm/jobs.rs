//! Jobs: submit, show, change what people may change, cancel, explain, delete.
//!
//! J1 a job document is written once, by its submission; later writes change display name, description, tags, properties and
//!    the archive flag, nothing that runs;
//! J2 a batch run answers under two names, its own and the one of its step `batchscoring`; both mean the same run.

use axum::http::StatusCode;
use control::{Condition, Failure, Request};
use model::{
    Answer as Did, Declared, DocKey, Document, JobId, Kind, Refusal, RunRecord, RunSpec, SweepSpec,
    Why, Work,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wire::{
    arm::link::{child_of, parent_of},
    view,
};

use super::{operations::Operation, put};
use crate::{
    Api,
    call::Call,
    condition,
    problem::{Answer, Problem},
    reply, show,
};

/// How often a submission that met another of the same name looks again.
const MAX_TRIES: usize = 4;

pub(crate) fn missing(key: &DocKey) -> Problem {
    Problem::missing(format!(
        "job {} does not exist in workspace {}",
        wire::names::shown(key.path.as_str()),
        key.workspace.name
    ))
}

/// A job, looked up under either of its names (J2).
pub(crate) struct Found {
    pub document: Document,
    pub id: JobId,
    pub run: Option<Arc<RunRecord>>,
    /// Whether the name was the one of the step.
    pub child: bool,
}

/// The job of this name, or 404.
pub(crate) fn find(api: &Api, key: &DocKey) -> Result<Found, Problem> {
    let found = match api.control.get(key)? {
        Some(document) => Some((document, false)),
        None => match parent_of(key.path.as_str()) {
            Some(parent) => api
                .control
                .get(&DocKey::new(&key.workspace, Kind::Job, parent))?
                .map(|document| (document, true)),
            None => None,
        },
    };
    let (document, child) = found.ok_or_else(|| missing(key))?;
    let id = JobId::new(&document.key.workspace, document.key.path.clone());
    let run = api.control.run(&id)?.map(|run| live(api, run));
    let batch = run.as_ref().is_some_and(|r| r.is_batch_job());
    if child && !batch {
        return Err(missing(key));
    }
    Ok(Found {
        document,
        id,
        run,
        child,
    })
}

/// The steps of a pipeline or the trials of a sweep that have a document: those that could not be made have none.
pub(crate) fn children(api: &Api, parent: &Found) -> Result<Vec<Found>, Problem> {
    let family = parent.run.as_ref().and_then(|r| r.family.as_ref());
    let mut out = Vec::new();
    for child in family.into_iter().flat_map(|f| f.children.values()) {
        match find(api, &DocKey::job(&child.job)) {
            Ok(found) => out.push(found),
            Err(problem) if problem.status == StatusCode::NOT_FOUND => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(out)
}

/// The children of a job, theirs, and so on.
fn descendants(api: &Api, parent: &Found) -> Result<Vec<JobId>, Problem> {
    let mut out = Vec::new();
    for child in children(api, parent)? {
        out.extend(descendants(api, &child)?);
        out.push(child.id);
    }
    Ok(out)
}

/// The names that the children of a new job will have must be free.
fn names_are_free(api: &Api, id: &JobId, spec: &RunSpec) -> Result<(), Problem> {
    let free = |child: &JobId| match api.control.get(&DocKey::job(child))? {
        None => Ok(()),
        Some(_) => Err(Problem::new(
            StatusCode::CONFLICT,
            "Conflict",
            format!("job {id} would have a part named {child}, and a job of that name exists"),
        )),
    };
    match &spec.work {
        Work::Pipeline(pipeline) => pipeline.steps.values().try_for_each(|step| {
            free(&step.job)?;
            names_are_free(api, &step.job, &step.run)
        }),
        Work::Sweep(sweep) => (0..sweep.total).try_for_each(|n| free(&SweepSpec::trial_of(id, n))),
        Work::Command | Work::Batch(_) => Ok(()),
    }
}

/// The run with what it waits for at this moment, where that is not told by events: pods that are on no machine.
fn live(api: &Api, run: Arc<RunRecord>) -> Arc<RunRecord> {
    match api.control.view().no_machine(&run) {
        Some(why) => Arc::new(RunRecord {
            why: Some(why),
            ..(*run).clone()
        }),
        None => run,
    }
}

fn key(api: &Api, call: &Call) -> Result<DocKey, Problem> {
    call.key(api, Kind::Job, call.param("n"))
}

/// GET a job.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let found = find(api, &key(api, call)?)?;
    let view = show::job(api, &call.base, &found);
    Ok(reply::document(StatusCode::OK, &found.document, &view))
}

/// PUT a job: a new one is submitted, a known one changed (J1).
pub(crate) async fn create(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let body: Value = call.json()?;
    let condition = condition::read(&call.headers)?;
    for _ in 0..MAX_TRIES {
        if api.control.get(&key)?.is_some() {
            let stored = change(&api, &key, condition, &changes(&body)).await?;
            let found = find(&api, &stored.document.key)?;
            let view = show::job(&api, &call.base, &found);
            return Ok(stored.respond(&view));
        }
        if matches!(condition, Condition::Present | Condition::Generation(_)) {
            return Err(Failure::Precondition { have: None }.into());
        }
        if find(&api, &key).is_ok_and(|found| found.child) {
            return Err(Problem::new(
                StatusCode::CONFLICT,
                "Conflict",
                format!("{} is the name of the step of a batch job", key.path),
            ));
        }
        let id = JobId::new(&key.workspace, key.path.clone());
        let mut warnings = Vec::new();
        let spec = api.looking(|look| wire::arm::job_run(&id, &body, look, &mut warnings))?;
        wire::arm::parse(&key, &body, None)?;
        names_are_free(&api, &id, &spec)?;
        let sent = api
            .control
            .send(Request::Submit {
                id: id.clone(),
                json: call.text()?.into(),
                spec: Arc::new(spec),
                request: None,
                by: put::by(),
            })
            .await;
        match sent {
            Ok(done) => {
                let id = match done.answer {
                    Did::Run { id, .. } => id,
                    Did::Stored | Did::Canceling | Did::Preempted { .. } => id,
                };
                let found = find(&api, &DocKey::job(&id))?;
                let view = show::job(&api, &call.base, &found);
                return Ok(put::warn(
                    reply::document(StatusCode::CREATED, &found.document, &view),
                    &warnings,
                ));
            }
            // Another submission of the same name came first: this one is a change of it.
            Err(Failure::Refused(Refusal::Conflict { .. })) if api.control.get(&key)?.is_some() => {
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    Err(Problem::new(
        StatusCode::CONFLICT,
        "Conflict",
        format!(
            "job {} is being created and deleted by others at the same time",
            key.path
        ),
    ))
}

/// What a PUT of a known job changes.
fn changes(body: &Value) -> Value {
    let mut out = Map::new();
    let properties = &body["properties"];
    for (from, to) in [
        ("displayName", "displayName"),
        ("description", "description"),
        ("tags", "tags"),
        ("properties", "properties"),
        ("isArchived", "hidden"),
    ] {
        if let Some(value) = properties.get(from).filter(|v| !v.is_null()) {
            out.insert(to.to_owned(), value.clone());
        }
    }
    Value::Object(out)
}

/// Changes what people may change of a job.
pub(crate) async fn change(
    api: &Api,
    key: &DocKey,
    condition: Condition,
    patch: &Value,
) -> Result<put::Stored, Problem> {
    put::put(api, key, condition, |before| {
        let before = before.ok_or_else(|| missing(key))?;
        let body = wire::arm::job::patched(&put::body(before)?, patch)?;
        Ok(put::Draft {
            json: body.to_string().into(),
            declared: Declared::Other,
            warnings: Vec::new(),
        })
    })
    .await
}

/// POST cancel.
pub(crate) async fn cancel(api: Arc<Api>, call: Call) -> Answer {
    let found = find(&api, &key(&api, &call)?)?;
    if found.run.as_ref().is_some_and(|run| run.state.is_done()) {
        return Ok(reply::empty(StatusCode::OK));
    }
    api.control
        .send(Request::Cancel {
            job: found.id.clone(),
        })
        .await?;
    Ok(Operation::Cancel(found.id).accepted(&api, &call))
}

/// Folders of a run's artifacts that are its logs.
const LOGS: [&str; 3] = ["user_logs", "logs", "azureml-logs"];

/// The logs of jobs that are gone go too: a new one of the name writes its own.
fn drop_logs(api: &Api, jobs: &[JobId]) -> Result<(), Problem> {
    for job in jobs {
        let places = api.places(job.workspace());
        let names = [job.name().to_owned(), child_of(job.name())];
        let folders = names.iter().filter_map(|name| places.artifacts_of(name));
        for folder in folders
            .flat_map(|f| LOGS.map(|logs| f.join(logs)))
            .flatten()
        {
            api.control.blobs().delete_folder(&folder)?;
        }
    }
    Ok(())
}

/// DELETE a job that has ended, with its logs and metrics: a new one of its name begins with nothing. Its outputs stay: other
/// things may name them.
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let tracked = crate::plane::mlflow::beside(&key);
    let (parts, itself) = match find(&api, &key) {
        Ok(found) if !found.child => (descendants(&api, &found)?, Some(found.id)),
        Ok(_) | Err(_) => (Vec::new(), None),
    };
    let removed = put::remove(&api, key, None, condition::read(&call.headers)?).await;
    if removed.is_ok() {
        // A job of this name begins with nothing.
        put::remove(&api, tracked, None, Condition::Any).await?;
    }
    // The loop refuses one thing: a job that has not ended.
    let removed = removed.map_err(|problem| match problem.status {
        StatusCode::CONFLICT => problem.hint("cancel it first"),
        _ => problem,
    })?;
    // Its parts have ended before it.
    for part in &parts {
        put::remove(&api, DocKey::job(part), None, Condition::Any).await?;
    }
    if let put::Removed::Now = removed {
        let gone: Vec<JobId> = parts.into_iter().chain(itself).collect();
        let state = api.clone();
        crate::blocking(move || drop_logs(&state, &gone)).await?;
    }
    Ok(match removed {
        put::Removed::Now => reply::empty(StatusCode::OK),
        put::Removed::WasNotThere => reply::empty(StatusCode::NO_CONTENT),
    })
}

/// GET explain (ours): why a job waits, or how it ended.
pub(crate) async fn explain(api: Arc<Api>, call: Call) -> Answer {
    let found = find(&api, &key(&api, &call)?)?;
    let why = match &found.run {
        Some(run) if run.state.is_done() => view::status::why(run).cloned(),
        Some(_) | None => api.control.explain(&found.id).await?,
    };
    let text = match (&why, &found.run) {
        (Some(why), Some(run)) => Some(view::status::reason(why, run)),
        (why, _) => why.as_ref().map(Why::to_string),
    };
    Ok(reply::ok(&json!({
        "name": call.param("n"),
        "state": found.run.as_ref().map(|run| run.state.name()),
        "status": show::of(&found).status(),
        "why": why,
        "code": why.as_ref().map(view::status::code),
        "text": text,
        "hint": why.as_ref().and_then(Why::hint),
    })))
}
