//! Experiments: those that somebody made, and those that jobs name.
//!
//! X1 an experiment's id is made of its name, the same for jobs, run history and MLflow; a name therefore never changes;
//! X2 one that only jobs name is there as long as a job of it is.

use control::Condition;
use model::{Kind, Workspace};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};
use wire::{
    arm::field::Field,
    mlflow::{self, DEFAULT, DEFAULT_ID, Experiment, filter},
    view::job::Job,
};

use super::{asked, body, change, every, key, page_of, paged, read};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// Where they are stored.
const FOLDER: &str = "experiments";
/// Jobs that are looked at for names of experiments; a workspace with more has made the older ones' names known before.
const MAX_JOBS: usize = 50_000;
/// Experiments of one workspace that somebody made.
const MAX_EXPERIMENTS: usize = 20_000;
/// Names that are remembered by their ids.
const MAX_NAMES: usize = 20_000;
/// Experiments of a page, and most of one.
const PAGE: (usize, usize) = (1000, 50_000);

/// Names of experiments by their ids, as far as they were looked up. A name never changes (X1), so none goes stale.
#[derive(Default)]
pub(crate) struct Names(Mutex<HashMap<String, String>>);

impl Names {
    fn get(&self, id: &str) -> Option<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(id).cloned()
    }
    fn learn(&self, id: String, name: &str) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(id, name.to_owned());
    }
}

fn named(api: &Api, workspace: &Arc<Workspace>, name: &str) -> Result<Option<Experiment>, Problem> {
    let key = key(workspace, FOLDER, name);
    let Some(document) = api.control.get(&key)? else {
        return Ok(None);
    };
    let mut found: Experiment = read(&document)?;
    found.created = document.created.0;
    found.modified = document.modified.0;
    Ok(Some(found))
}

/// Every experiment, by name (X2).
fn all(api: &Api, workspace: &Arc<Workspace>) -> Result<BTreeMap<String, Experiment>, Problem> {
    let mut out = BTreeMap::new();
    for document in every(api, workspace, Kind::Tracked, Some(FOLDER), MAX_EXPERIMENTS)? {
        let mut found: Experiment = read(&document)?;
        found.created = document.created.0;
        found.modified = document.modified.0;
        out.insert(found.name.to_lowercase(), found);
    }
    for document in every(api, workspace, Kind::Job, None, MAX_JOBS)? {
        let name = Job::new(&document, None).experiment();
        let implied = out
            .entry(name.to_lowercase())
            .or_insert_with(|| Experiment {
                name,
                created: document.created.0,
                modified: document.created.0,
                ..Experiment::default()
            });
        implied.created = implied.created.min(document.created.0);
    }
    out.entry(DEFAULT.to_lowercase())
        .or_insert_with(|| Experiment {
            name: DEFAULT.to_owned(),
            ..Experiment::default()
        });
    for experiment in out.values() {
        let id = mlflow::experiment_id(workspace, &experiment.name);
        api.experiments.learn(id, &experiment.name);
    }
    Ok(out)
}

fn missing(what: &str, value: &str) -> Problem {
    Problem::missing(format!(
        "no experiment with {what} {} exists",
        wire::names::shown(value)
    ))
}

/// The experiment of an id. Blocks.
pub(super) fn by_id(
    api: &Api,
    workspace: &Arc<Workspace>,
    id: &str,
) -> Result<Experiment, Problem> {
    let name = if id == DEFAULT_ID || id.is_empty() {
        DEFAULT.to_owned()
    } else {
        match api.experiments.get(id) {
            Some(name) if mlflow::experiment_id(workspace, &name) == id => name,
            Some(_) | None => {
                let found = all(api, workspace)?.into_values();
                let mut found = found.filter(|e| mlflow::experiment_id(workspace, &e.name) == id);
                return found.next().ok_or_else(|| missing("id", id));
            }
        }
    };
    by_name(api, workspace, &name)
}

/// The experiment of a name. Blocks.
fn by_name(api: &Api, workspace: &Arc<Workspace>, name: &str) -> Result<Experiment, Problem> {
    if let Some(found) = named(api, workspace, name)? {
        return Ok(found);
    }
    let found = all(api, workspace)?.remove(&name.to_lowercase());
    found.ok_or_else(|| missing("name", name))
}

/// POST experiments/create.
pub(crate) async fn create(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let name = mlflow::experiment_name(&root.get("name"))?.to_owned();
    let tags = mlflow::pairs(&root.get("tags"), mlflow::MAX_PARAMS, mlflow::MAX_TAG_CHARS)?;
    if root
        .get("artifact_location")
        .text()?
        .is_some_and(|t| !t.is_empty())
    {
        return Err(Problem::user(
            "artifact_location cannot be chosen: artifacts lie in the workspace's artifact store",
        ));
    }
    let workspace = call.workspace(&api)?;
    let (state, at, wanted) = (api.clone(), workspace.clone(), name.clone());
    let before = crate::blocking(move || match by_name(&state, &at, &wanted) {
        Ok(found) => Ok(Some(found)),
        Err(problem) if problem.status.as_u16() == 404 => Ok(None),
        Err(problem) => Err(problem),
    })
    .await?;
    let taken = |deleted: bool| {
        let more = if deleted {
            " and is deleted: restore it"
        } else {
            ""
        };
        Problem::new(
            axum::http::StatusCode::CONFLICT,
            "Conflict",
            format!(
                "experiment {} already exists{more}",
                wire::names::shown(&name)
            ),
        )
    };
    if let Some(before) = before {
        return Err(taken(before.deleted));
    }
    let key = key(&workspace, FOLDER, &name);
    change(
        &api,
        &key,
        Condition::Any,
        |before: Option<Experiment>| match before {
            Some(before) => Err(taken(before.deleted)),
            None => Ok(Experiment {
                name: name.clone(),
                tags: tags.clone(),
                ..Experiment::default()
            }),
        },
    )
    .await?;
    let id = mlflow::experiment_id(&workspace, &name);
    api.experiments.learn(id.clone(), &name);
    Ok(reply::ok(&json!({"experiment_id": id})))
}

/// GET experiments/get.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let found = by_id(api, &workspace, asked(call, "experiment_id")?)?;
    Ok(reply::ok(&json!({"experiment": found.view(&workspace)})))
}

/// GET experiments/get-by-name.
pub(crate) fn get_by_name(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let found = by_name(api, &workspace, asked(call, "experiment_name")?)?;
    Ok(reply::ok(&json!({"experiment": found.view(&workspace)})))
}

/// Which of what is hidden and what is not a search wants.
pub(super) fn shows(view: Option<&str>, deleted: bool) -> bool {
    match view {
        Some(v) if v.eq_ignore_ascii_case("ALL") => true,
        Some(v) if v.eq_ignore_ascii_case("DELETED_ONLY") => deleted,
        _ => !deleted,
    }
}

/// POST experiments/search.
pub(crate) fn search(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let body = body(call)?;
    let root = Field::root(&body);
    let filter = filter::Filter::parse(root.get("filter").text()?.unwrap_or_default())?;
    mlflow::known(
        filter.attributes(),
        &["name", "creation_time", "last_update_time"],
    )?;
    let orders = root.get("order_by").items()?;
    let orders: Vec<&str> = orders
        .iter()
        .map(Field::need_text)
        .collect::<Result<_, _>>()?;
    let orders = filter::Order::all(orders.into_iter())?;
    let view = root.get("view_type").text()?;
    let mut found: Vec<Experiment> = all(api, &workspace)?
        .into_values()
        .filter(|e| shows(view, e.deleted) && filter.holds(&|field| e.item(field)))
        .collect();
    found.sort_by(|a, b| {
        let by =
            |o: &filter::Order| o.compare(a.item(&o.field).as_ref(), b.item(&o.field).as_ref());
        let wanted = orders.iter().map(by).find(|o| o.is_ne());
        wanted.unwrap_or_else(|| b.created.cmp(&a.created).then_with(|| a.name.cmp(&b.name)))
    });
    let (max, token) = page_of(&root)?;
    let (page, next) = paged(found, max, token.as_deref(), PAGE)?;
    let views: Vec<Value> = page.iter().map(|e| e.view(&workspace)).collect();
    Ok(reply::ok(
        &json!({"experiments": views, "next_page_token": next.unwrap_or_default()}),
    ))
}

/// Changes an experiment; one that only jobs named is stored from now on.
async fn edit(
    api: &Arc<Api>,
    call: &Call,
    body: &Value,
    change_it: impl Fn(&mut Experiment) -> Result<(), Problem>,
) -> Answer {
    let workspace = call.workspace(api)?;
    let id = Field::root(body)
        .get("experiment_id")
        .need_text()?
        .to_owned();
    let (state, at) = (api.clone(), workspace.clone());
    let found = crate::blocking(move || by_id(&state, &at, &id)).await?;
    let key = key(&workspace, FOLDER, &found.name);
    change(api, &key, Condition::Any, |before: Option<Experiment>| {
        let mut experiment = before.unwrap_or_else(|| found.clone());
        change_it(&mut experiment)?;
        Ok(experiment)
    })
    .await?;
    Ok(reply::ok(&json!({})))
}

/// POST experiments/delete.
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    edit(&api, &call, &body, |e| {
        if e.name.eq_ignore_ascii_case(DEFAULT) {
            return Err(Problem::user(format!(
                "experiment {DEFAULT} cannot be deleted: it stands for none"
            )));
        }
        e.deleted = true;
        Ok(())
    })
    .await
}

/// POST experiments/restore.
pub(crate) async fn restore(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    edit(&api, &call, &body, |e| {
        e.deleted = false;
        Ok(())
    })
    .await
}

/// POST experiments/update: MLflow's only change is a new name (X1).
pub(crate) async fn update(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let new = Field::root(&body)
        .get("new_name")
        .text()?
        .map(str::to_owned);
    edit(&api, &call, &body, |e| match &new {
        Some(new) if *new != e.name => Err(Problem::user(format!(
            "experiment {} cannot be renamed: jobs name it",
            wire::names::shown(&e.name)
        ))),
        Some(_) | None => Ok(()),
    })
    .await
}

/// POST experiments/set-experiment-tag.
pub(crate) async fn set_tag(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let name = mlflow::key(&root.get("key"))?.to_owned();
    let value = mlflow::tag_value(&root.get("value"))?;
    edit(&api, &call, &body, |e| {
        e.tags.insert(name.clone(), value.clone());
        if e.tags.len() > mlflow::MAX_PARAMS_OF_RUN {
            return Err(Problem::user(format!(
                "the experiment has {} tags already",
                mlflow::MAX_PARAMS_OF_RUN
            )));
        }
        Ok(())
    })
    .await
}

/// POST experiments/delete-experiment-tag.
pub(crate) async fn delete_tag(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let name = Field::root(&body).get("key").need_text()?.to_owned();
    edit(&api, &call, &body, |e| {
        e.tags.remove(&name);
        Ok(())
    })
    .await
}
