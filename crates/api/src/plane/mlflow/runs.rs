//! Runs: what a job or a program of somebody's own machine measures, names and tags.

use axum::http::StatusCode;
use control::{Condition, Measure, metric_series, metrics_of};
use model::{Declared, DocKey, JobId, Kind, Time, Workspace};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};
use wire::{
    arm::field::Field,
    mlflow::{self, Batch, Metric, PARENT, RUN_NAME, Run, Tracked},
};

use super::{asked, body, change, experiments, key, page_asked, paged, stored};
use crate::{
    Api,
    arm::{
        jobs::{self, Found},
        put,
    },
    call::Call,
    problem::{Answer, Problem},
    reply, show, time,
};

/// Where they are stored.
pub(super) const FOLDER: &str = "runs";
/// What begins the names of MLflow's own tags.
const OWN: &str = "mlflow.";
/// The tag that lists the models of a run, as clients before MLflow 3 write it.
const HISTORY: &str = "mlflow.log-model.history";
/// After every sample.
const END: Time = Time(u64::MAX >> 1);
/// Values of a page of a metric's history, and most of one.
const HISTORY_PAGE: (usize, usize) = (25_000, 25_000);
/// Longest id that MLflow takes for one of a run.
const MAX_ID: usize = 256;

/// A run, found.
pub(super) struct Place {
    pub id: JobId,
    /// The job that it is.
    pub job: Option<Found>,
    /// What is stored beside the job.
    pub tracked: Tracked,
}

fn missing(id: &str) -> Problem {
    Problem::missing(format!("no run with id {} exists", wire::names::shown(id)))
}

/// The run of an id. Blocks for point reads.
pub(super) fn find(api: &Api, workspace: &Arc<Workspace>, id: &str) -> Result<Place, Problem> {
    let legal = (1..=MAX_ID).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !legal {
        return Err(missing(id));
    }
    let job = match jobs::find(api, &DocKey::new(workspace, Kind::Job, id)) {
        Ok(found) => Some(found),
        Err(problem) if problem.status == StatusCode::NOT_FOUND => None,
        Err(problem) => return Err(problem),
    };
    let id = job
        .as_ref()
        .map_or_else(|| JobId::new(workspace, id), |job| job.id.clone());
    let tracked: Option<Tracked> = stored(api, &key(workspace, FOLDER, id.name()))?;
    // What a job that was deleted has left is no run.
    let tracked = tracked.filter(|t| job.is_some() || t.experiment.is_some());
    match (&job, tracked) {
        (None, None) => Err(missing(id.name())),
        (_, tracked) => Ok(Place {
            id,
            job,
            tracked: tracked.unwrap_or_default(),
        }),
    }
}

/// Where the artifacts of a run are, as clients ask for them.
pub(super) fn artifacts(id: &str) -> String {
    format!("mlflow-artifacts:/{FOLDER}/{id}")
}

fn texts(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries
        .map(|(k, v)| {
            (
                k.clone(),
                v.as_str().map_or_else(|| v.to_string(), str::to_owned),
            )
        })
        .collect()
}

/// What is stored with what the job says (T1).
pub(super) fn filled(place: &Place) -> Result<Tracked, Problem> {
    let mut out = place.tracked.clone();
    let Some(found) = &place.job else {
        return Ok(out);
    };
    let job = show::of(found);
    out.experiment = Some(job.experiment());
    out.name = Some(job.display());
    out.status = Some(mlflow::status_of(job.status()).to_owned());
    out.user = Some(found.document.by.to_string());
    let run = found.run.as_ref();
    out.start = Some(
        run.and_then(|r| r.started)
            .unwrap_or(found.document.created)
            .0,
    );
    out.end = run.and_then(|r| r.ended).map(|t| t.0);
    let body = put::body(&found.document)?;
    out.deleted = body["properties"]["isArchived"] == true;
    out.tags.extend(texts(&body["properties"]["tags"]));
    if let Some(part) = run.and_then(|r| r.spec.part.as_ref()) {
        out.tags
            .entry(PARENT.to_owned())
            .or_insert_with(|| part.parent.name().to_owned());
    }
    Ok(out)
}

fn sample(key: &str, (time, text): &(Time, String)) -> Option<Metric> {
    let (value, step) = text.split_once(' ')?;
    Some(Metric {
        key: key.to_owned(),
        value: value.parse().ok()?,
        step: step.parse().ok()?,
        time: *time,
    })
}

/// The last value of each metric. Blocks.
pub(super) fn last(api: &Api, id: &JobId) -> Result<Vec<Metric>, Problem> {
    let (series, prefix) = (api.control.series(), metrics_of(id));
    let mut out = Vec::new();
    for name in series.names(&prefix)? {
        let newest = series.range(&name, END, END)?;
        let key = name.get(prefix.len()..).unwrap_or_default();
        out.extend(newest.last().and_then(|s| sample(key, s)));
    }
    Ok(out)
}

/// A run with everything. Blocks.
pub(super) fn whole(api: &Api, place: &Place) -> Result<Run, Problem> {
    Ok(Run {
        id: place.id.name().to_owned(),
        tracked: filled(place)?,
        metrics: last(api, &place.id)?,
        artifacts: artifacts(place.id.name()),
    })
}

fn id_of(root: &Field<'_>) -> Result<String, Problem> {
    let id = root.get("run_id").text()?.filter(|t| !t.is_empty());
    let id = id.or(root.get("run_uuid").text()?);
    Ok(id.ok_or_else(|| root.get("run_id").missing())?.to_owned())
}

/// POST runs/create.
pub(crate) async fn create(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let tags = mlflow::pairs(&root.get("tags"), mlflow::MAX_PARAMS, mlflow::MAX_TAG_CHARS)?;
    let asked = root
        .get("experiment_id")
        .text()?
        .unwrap_or_default()
        .to_owned();
    let parent = tags.get(PARENT).cloned();
    let (state, at) = (api.clone(), workspace.clone());
    let experiment = crate::blocking(move || {
        // A run within a run whose client knows no experiment belongs to that of the outer one.
        if asked == mlflow::DEFAULT_ID
            && let Some(parent) = parent
            && let Some(name) = filled(&find(&state, &at, &parent)?)?.experiment
        {
            return Ok(name);
        }
        let found = experiments::by_id(&state, &at, &asked)?;
        if found.deleted {
            return Err(Problem::user(format!(
                "experiment {} is deleted",
                wire::names::shown(&found.name)
            )));
        }
        Ok(found.name)
    })
    .await?;
    let id = uuid::Uuid::new_v4().simple().to_string();
    let name = root
        .get("run_name")
        .text()?
        .filter(|n| !n.is_empty())
        .map(str::to_owned);
    let tracked = Tracked {
        experiment: Some(experiment),
        name: name
            .or_else(|| tags.get(RUN_NAME).cloned())
            .or_else(|| Some(format!("run-{}", &id[..8]))),
        status: Some("RUNNING".to_owned()),
        start: match mlflow::whole(&root.get("start_time"))? {
            Some(at) => Some(
                u64::try_from(at).map_err(|_| root.get("start_time").refuse("is before 1970"))?,
            ),
            None => Some(time::now().0),
        },
        user: root.get("user_id").text()?.map(str::to_owned),
        tags,
        ..Tracked::default()
    };
    let key = key(&workspace, FOLDER, &id);
    let stored = change(&api, &key, Condition::Absent, |_| Ok(tracked.clone())).await?;
    let run = Run {
        artifacts: artifacts(&id),
        id,
        tracked: stored,
        metrics: Vec::new(),
    };
    Ok(reply::ok(&json!({"run": run.view(&workspace)})))
}

/// GET runs/get.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let id = asked(call, "run_id").or_else(|_| asked(call, "run_uuid"))?;
    let run = whole(api, &find(api, &workspace, id)?)?;
    Ok(reply::ok(&json!({"run": run.view(&workspace)})))
}

/// Finds the run of a body, off the threads that answer.
async fn found(api: &Arc<Api>, call: &Call, root: &Field<'_>) -> Result<Place, Problem> {
    let (state, at, id) = (api.clone(), call.workspace(api)?, id_of(root)?);
    let place = crate::blocking(move || find(&state, &at, &id)).await?;
    may_write(api, call, &place)?;
    Ok(place)
}

/// A job writes to its own run and to those that MLflow has begun, never to another job's.
pub(super) fn may_write(api: &Api, call: &Call, place: &Place) -> Result<(), Problem> {
    let job = api.run_of(&call.headers).filter(|_| call.caller.is_none());
    match job {
        Some(job) if place.job.is_some() && place.id != job => Err(Problem::unauthorized()),
        Some(_) | None => Ok(()),
    }
}

/// The same for a change: what is deleted is not changed.
async fn open(api: &Arc<Api>, call: &Call, root: &Field<'_>) -> Result<Place, Problem> {
    let place = found(api, call, root).await?;
    if place.job.is_none() && place.tracked.deleted {
        return Err(Problem::user(format!(
            "run {} is deleted: restore it first",
            place.id.name()
        )));
    }
    Ok(place)
}

async fn edit(
    api: &Api,
    place: &Place,
    make: impl Fn(&mut Tracked) -> Result<(), Problem>,
) -> Result<Tracked, Problem> {
    let key = key(place.id.workspace(), FOLDER, place.id.name());
    change(api, &key, Condition::Any, |before: Option<Tracked>| {
        // What is not there any more was deleted by another: it does not come back by a change.
        let mut tracked = match before {
            Some(before) => before,
            None if place.job.is_some() => Tracked::default(),
            None => return Err(missing(place.id.name())),
        };
        make(&mut tracked)?;
        Ok(tracked)
    })
    .await
}

/// Changes the tags of a job's document.
async fn edit_job_tags(
    api: &Api,
    id: &JobId,
    make: impl Fn(&mut Map<String, Value>),
) -> Result<(), Problem> {
    let key = DocKey::job(id);
    put::put(api, &key, Condition::Present, |before| {
        let before = before.ok_or_else(|| jobs::missing(&key))?;
        let mut body = put::body(before)?;
        let mut tags = match body["properties"]["tags"].take() {
            Value::Object(tags) => tags,
            _ => Map::new(),
        };
        make(&mut tags);
        if tags.len() > mlflow::MAX_PARAMS_OF_RUN {
            return Err(Problem::user(format!(
                "tags of a run would be {}, allowed are {}",
                tags.len(),
                mlflow::MAX_PARAMS_OF_RUN
            )));
        }
        body["properties"]["tags"] = Value::Object(tags);
        Ok(put::Draft {
            json: body.to_string().into(),
            declared: Declared::Other,
            warnings: Vec::new(),
        })
    })
    .await
    .map(drop)
}

/// POST runs/update. Of a job only the name is taken (M1).
pub(crate) async fn update(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let place = open(&api, &call, &root).await?;
    let status = mlflow::status(&root.get("status"))?;
    let end = mlflow::whole(&root.get("end_time"))?.and_then(|ms| u64::try_from(ms).ok());
    let name = root
        .get("run_name")
        .text()?
        .filter(|n| !n.is_empty())
        .map(str::to_owned);
    match (&place.job, name) {
        (Some(_), Some(name)) => {
            let patch = json!({"displayName": name});
            jobs::change(&api, &DocKey::job(&place.id), Condition::Any, &patch).await?;
        }
        (Some(_), None) => {}
        (None, name) => {
            edit(&api, &place, |tracked| {
                if let Some(status) = status {
                    tracked.status = Some(status.to_owned());
                    tracked.end = match status {
                        "RUNNING" | "SCHEDULED" => None,
                        _ => end.or(tracked.end).or_else(|| Some(time::now().0)),
                    };
                }
                if let Some(name) = &name {
                    tracked.name = Some(name.clone());
                }
                Ok(())
            })
            .await?;
        }
    }
    let (state, id) = (api.clone(), place.id.name().to_owned());
    let at = workspace.clone();
    let run = crate::blocking(move || whole(&state, &find(&state, &at, &id)?)).await?;
    Ok(reply::ok(&json!({"run_info": run.info(&workspace)})))
}

async fn hide(api: Arc<Api>, call: Call, hidden: bool) -> Answer {
    let body = body(&call)?;
    let place = found(&api, &call, &Field::root(&body)).await?;
    if place.job.is_some() {
        let patch = json!({"hidden": hidden});
        jobs::change(&api, &DocKey::job(&place.id), Condition::Any, &patch).await?;
    } else {
        edit(&api, &place, |tracked| {
            tracked.deleted = hidden;
            Ok(())
        })
        .await?;
    }
    Ok(reply::ok(&json!({})))
}

/// POST runs/delete: a job is archived.
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    hide(api, call, true).await
}

/// POST runs/restore.
pub(crate) async fn restore(api: Arc<Api>, call: Call) -> Answer {
    hide(api, call, false).await
}

/// Keeps a batch (T2): checked whole, parameters and tags first, because those may be refused.
async fn keep(api: &Arc<Api>, place: &Place, batch: Batch) -> Result<(), Problem> {
    let Batch {
        metrics,
        params,
        tags,
    } = batch;
    room(api, &place.id, &metrics).await?;
    let (own, users): (BTreeMap<_, _>, BTreeMap<_, _>) = tags
        .into_iter()
        .partition(|(name, _)| place.job.is_none() || name.starts_with(OWN));
    if !params.is_empty() || !own.is_empty() {
        edit(api, place, |tracked| {
            tracked.add_params(place.id.name(), &params)?;
            tracked.add_tags(&own)?;
            if let Some(name) = own.get(RUN_NAME).filter(|_| place.job.is_none()) {
                tracked.name = Some(name.clone());
            }
            Ok(())
        })
        .await?;
    }
    if !users.is_empty() {
        edit_job_tags(api, &place.id, |map| {
            map.extend(users.iter().map(|(k, v)| (k.clone(), json!(v))));
        })
        .await?;
    }
    if metrics.is_empty() {
        return Ok(());
    }
    let measures: Vec<Measure> = metrics
        .into_iter()
        .map(|m| Measure {
            name: m.key,
            value: m.value,
            step: m.step,
            time: m.time,
        })
        .collect();
    Ok(api.control.measured(&place.id, &measures).await?)
}

/// Refuses metrics that would be too many names.
async fn room(api: &Arc<Api>, id: &JobId, metrics: &[Metric]) -> Result<(), Problem> {
    if metrics.is_empty() {
        return Ok(());
    }
    (api.room)().map_err(Problem::full)?;
    let new: std::collections::BTreeSet<String> =
        metrics.iter().map(|m| metric_series(id, &m.key)).collect();
    let (state, id) = (api.clone(), id.clone());
    crate::blocking(move || {
        let known = state.control.series().names(&metrics_of(&id))?;
        let more = new
            .iter()
            .filter(|name| known.binary_search(name).is_err())
            .count();
        let (all, most) = (known.len() + more, mlflow::MAX_METRICS_OF_RUN);
        if all > most {
            return Err(Problem::user(format!(
                "run {} would have {all} metrics, allowed are {most}",
                id.name()
            )));
        }
        Ok(())
    })
    .await
}

/// POST runs/log-batch.
pub(crate) async fn log_batch(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let place = open(&api, &call, &Field::root(&body)).await?;
    keep(&api, &place, mlflow::batch(&body, time::now())?).await?;
    Ok(reply::ok(&json!({})))
}

/// POST runs/log-metric.
pub(crate) async fn log_metric(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let place = open(&api, &call, &root).await?;
    let metrics = vec![mlflow::metric(&root, time::now())?];
    keep(
        &api,
        &place,
        Batch {
            metrics,
            ..Batch::default()
        },
    )
    .await?;
    Ok(reply::ok(&json!({})))
}

/// POST runs/log-parameter.
pub(crate) async fn log_param(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let place = open(&api, &call, &root).await?;
    let one = json!([body]);
    let params = mlflow::pairs(
        &Field::root(&json!({"params": one})).get("params"),
        1,
        mlflow::MAX_PARAM_CHARS,
    )?;
    keep(
        &api,
        &place,
        Batch {
            params,
            ..Batch::default()
        },
    )
    .await?;
    Ok(reply::ok(&json!({})))
}

/// POST runs/set-tag.
pub(crate) async fn set_tag(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let place = open(&api, &call, &root).await?;
    let name = mlflow::key(&root.get("key"))?.to_owned();
    let tags = BTreeMap::from([(name, mlflow::tag_value(&root.get("value"))?)]);
    keep(
        &api,
        &place,
        Batch {
            tags,
            ..Batch::default()
        },
    )
    .await?;
    Ok(reply::ok(&json!({})))
}

/// POST runs/delete-tag.
pub(crate) async fn delete_tag(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let place = open(&api, &call, &root).await?;
    let name = root.get("key").need_text()?.to_owned();
    let tracked = crate::blocking({
        let (state, at, id) = (
            api.clone(),
            place.id.workspace().clone(),
            place.id.name().to_owned(),
        );
        move || filled(&find(&state, &at, &id)?)
    })
    .await?;
    if !tracked.tags.contains_key(&name) {
        return Err(Problem::missing(format!(
            "run {} has no tag {}",
            place.id.name(),
            wire::names::shown(&name)
        )));
    }
    if place.tracked.tags.contains_key(&name) {
        edit(&api, &place, |tracked| {
            tracked.tags.remove(&name);
            Ok(())
        })
        .await?;
    } else {
        edit_job_tags(&api, &place.id, |map| {
            map.remove(&name);
        })
        .await?;
    }
    Ok(reply::ok(&json!({})))
}

/// POST runs/log-model: how clients before MLflow 3 say that they have logged a model.
pub(crate) async fn log_model(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let place = open(&api, &call, &root).await?;
    let text = root.get("model_json").need_text()?;
    let model: Value = serde_json::from_str(text)
        .map_err(|e| Problem::user(format!("model_json is not JSON: {e}")))?;
    edit(&api, &place, |tracked| {
        let history = tracked
            .tags
            .get(HISTORY)
            .map(String::as_str)
            .unwrap_or("[]");
        let mut history: Vec<Value> = serde_json::from_str(history).unwrap_or_default();
        history.push(model.clone());
        bounded("models", history.len())?;
        tracked
            .tags
            .insert(HISTORY.to_owned(), Value::Array(history).to_string());
        Ok(())
    })
    .await?;
    Ok(reply::ok(&json!({})))
}

fn bounded(what: &str, count: usize) -> Result<(), Problem> {
    if count > mlflow::MAX_LINKS_OF_RUN {
        return Err(Problem::user(format!(
            "{what} of a run would be {count}, allowed are {}",
            mlflow::MAX_LINKS_OF_RUN
        )));
    }
    Ok(())
}

/// Adds what is not there yet, so that a repeated request changes nothing.
fn add(list: &mut Vec<Value>, more: &[Value]) {
    for value in more {
        if !list.contains(value) {
            list.push(value.clone());
        }
    }
}

fn values(body: &Value, name: &str) -> Result<Vec<Value>, Problem> {
    let items = mlflow::at_most(&Field::root(body).get(name), mlflow::MAX_LINKS_OF_RUN)?;
    Ok(items.iter().filter_map(|i| i.value().cloned()).collect())
}

/// POST runs/log-inputs.
pub(crate) async fn log_inputs(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let place = open(&api, &call, &Field::root(&body)).await?;
    let (datasets, models) = (values(&body, "datasets")?, values(&body, "models")?);
    edit(&api, &place, |tracked| {
        add(&mut tracked.datasets, &datasets);
        add(&mut tracked.reads, &models);
        bounded("datasets", tracked.datasets.len())?;
        bounded("models", tracked.reads.len())
    })
    .await?;
    Ok(reply::ok(&json!({})))
}

/// POST runs/outputs.
pub(crate) async fn log_outputs(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let place = open(&api, &call, &Field::root(&body)).await?;
    let models = values(&body, "models")?;
    edit(&api, &place, |tracked| {
        add(&mut tracked.makes, &models);
        bounded("models", tracked.makes.len())
    })
    .await?;
    Ok(reply::ok(&json!({})))
}

/// GET metrics/get-history. A request that was sent twice is one value.
pub(crate) fn history(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let id = asked(call, "run_id").or_else(|_| asked(call, "run_uuid"))?;
    let place = find(api, &workspace, id)?;
    let name = asked(call, "metric_key")?;
    let samples = api
        .control
        .series()
        .range(&metric_series(&place.id, name), Time(0), END)?;
    let mut all: Vec<Metric> = samples.iter().filter_map(|s| sample(name, s)).collect();
    all.dedup_by(|a, b| a.view() == b.view());
    let (max, token) = page_asked(call)?;
    let (page, next) = paged(all, max, token.as_deref(), HISTORY_PAGE)?;
    let metrics: Vec<Value> = page.iter().map(Metric::view).collect();
    Ok(reply::ok(
        &json!({"metrics": metrics, "next_page_token": next.unwrap_or_default()}),
    ))
}
