//! Logged models: what `log_model` of MLflow 3 makes, a folder of files with a name before anybody registers it.

use control::Condition;
use model::{Kind, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use wire::{
    arm::field::Field,
    mlflow::{
        self,
        filter::{Field as By, Filter, Item, Order},
    },
};

use super::{body, change, every, experiments, key, page_of, paged, read, stored};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply, time,
};

/// Where they are stored.
const FOLDER: &str = "models";
/// Models that one search looks at.
const MAX_MODELS: usize = 20_000;
/// Models of a page, and most of one.
const PAGE: (usize, usize) = (100, 1000);

/// What is stored of one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Logged {
    id: String,
    experiment: String,
    name: String,
    kind: Option<String>,
    run: Option<String>,
    status: String,
    created: u64,
    modified: u64,
    tags: BTreeMap<String, String>,
    params: BTreeMap<String, String>,
}

impl Logged {
    fn view(&self, workspace: &Workspace) -> Value {
        let list = |map: &BTreeMap<String, String>| -> Vec<Value> {
            map.iter()
                .map(|(k, v)| json!({"key": k, "value": v}))
                .collect()
        };
        json!({
            "info": {
                "model_id": self.id,
                "experiment_id": mlflow::experiment_id(workspace, &self.experiment),
                "name": self.name,
                "creation_timestamp_ms": self.created,
                "last_updated_timestamp_ms": self.modified,
                "artifact_uri": format!("mlflow-artifacts:/logged/{}", self.id),
                "status": self.status,
                "model_type": self.kind.as_deref().unwrap_or_default(),
                "source_run_id": self.run.as_deref().unwrap_or_default(),
                "tags": list(&self.tags),
            },
            "data": {"params": list(&self.params), "metrics": []},
        })
    }

    fn item(&self, field: &By) -> Option<Item> {
        let text = |t: &str| Some(Item::Text(t.to_owned()));
        match field {
            By::Param(key) => text(self.params.get(key)?),
            By::Tag(key) => text(self.tags.get(key)?),
            By::Metric(_) => None,
            By::Attribute(key) => match key.as_str() {
                "name" => text(&self.name),
                "model_id" => text(&self.id),
                "model_type" => text(self.kind.as_deref()?),
                "status" => text(&self.status),
                "source_run_id" => text(self.run.as_deref()?),
                "creation_timestamp" | "creation_time" => Some(Item::Number(self.created as f64)),
                "last_updated_timestamp" => Some(Item::Number(self.modified as f64)),
                _ => None,
            },
        }
    }
}

const ATTRIBUTES: &[&str] = &[
    "name",
    "model_id",
    "model_type",
    "status",
    "source_run_id",
    "creation_timestamp",
    "creation_time",
    "last_updated_timestamp",
];

fn missing(id: &str) -> Problem {
    Problem::missing(format!(
        "no logged model with id {} exists",
        wire::names::shown(id)
    ))
}

fn found(api: &Api, workspace: &Arc<Workspace>, id: &str) -> Result<Logged, Problem> {
    stored(api, &key(workspace, FOLDER, id))?.ok_or_else(|| missing(id))
}

/// Whether there is one of this id. Blocks for a point read.
pub(super) fn known(api: &Api, workspace: &Arc<Workspace>, id: &str) -> Result<(), Problem> {
    found(api, workspace, id).map(drop)
}

/// POST logged-models.
pub(crate) async fn create(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let experiment = root
        .get("experiment_id")
        .text()?
        .unwrap_or_default()
        .to_owned();
    let (state, at) = (api.clone(), workspace.clone());
    let experiment = crate::blocking(move || experiments::by_id(&state, &at, &experiment)).await?;
    let now = time::now().0;
    let id = format!("m-{}", uuid::Uuid::new_v4().simple());
    let text = |name: &str| -> Result<Option<String>, Problem> {
        Ok(root
            .get(name)
            .text()?
            .filter(|t| !t.is_empty())
            .map(str::to_owned))
    };
    let made = Logged {
        experiment: experiment.name,
        name: text("name")?.unwrap_or_else(|| id.clone()),
        kind: text("model_type")?,
        run: text("source_run_id")?,
        status: "LOGGED_MODEL_PENDING".to_owned(),
        created: now,
        modified: now,
        tags: mlflow::pairs(
            &root.get("tags"),
            mlflow::MAX_PARAMS_OF_RUN,
            mlflow::MAX_TAG_CHARS,
        )?,
        params: mlflow::pairs(
            &root.get("params"),
            mlflow::MAX_PARAMS_OF_RUN,
            mlflow::MAX_PARAM_CHARS,
        )?,
        id: id.clone(),
    };
    let made = change(
        &api,
        &key(&workspace, FOLDER, &id),
        Condition::Absent,
        |_| Ok(made.clone()),
    )
    .await?;
    Ok(reply::ok(&json!({"model": made.view(&workspace)})))
}

/// GET logged-models/ID.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let found = found(api, &workspace, call.param("m"))?;
    Ok(reply::ok(&json!({"model": found.view(&workspace)})))
}

async fn edit(
    api: &Arc<Api>,
    call: &Call,
    make: impl Fn(&mut Logged) -> Result<(), Problem>,
) -> Result<Value, Problem> {
    let workspace = call.workspace(api)?;
    let id = call.param("m");
    let changed = change(
        api,
        &key(&workspace, FOLDER, id),
        Condition::Any,
        |before: Option<Logged>| {
            let mut model = before.ok_or_else(|| missing(id))?;
            make(&mut model)?;
            let (tags, params) = (model.tags.len(), model.params.len());
            if tags.max(params) > mlflow::MAX_PARAMS_OF_RUN {
                return Err(Problem::user(format!(
                    "model {id} would have {tags} tags and {params} params, allowed are {} of each",
                    mlflow::MAX_PARAMS_OF_RUN
                )));
            }
            model.modified = time::now().0;
            Ok(model)
        },
    )
    .await?;
    Ok(json!({"model": changed.view(&workspace)}))
}

/// PATCH logged-models/ID: its files have come, or not.
pub(crate) async fn finalize(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let status = Field::root(&body).get("status").choice(&[
        ("LOGGED_MODEL_PENDING", "LOGGED_MODEL_PENDING"),
        ("LOGGED_MODEL_READY", "LOGGED_MODEL_READY"),
        ("LOGGED_MODEL_UPLOAD_FAILED", "LOGGED_MODEL_UPLOAD_FAILED"),
    ])?;
    let changed = edit(&api, &call, |model| {
        if let Some(status) = status {
            model.status = status.to_owned();
        }
        Ok(())
    })
    .await?;
    Ok(reply::ok(&changed))
}

/// DELETE logged-models/ID: its name; the files stay, because versions of models may lie in them.
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    let workspace = call.workspace(&api)?;
    let key = key(&workspace, FOLDER, call.param("m"));
    match crate::arm::put::remove(&api, key, None, Condition::Any).await? {
        crate::arm::put::Removed::Now => Ok(reply::ok(&json!({}))),
        crate::arm::put::Removed::WasNotThere => Err(missing(call.param("m"))),
    }
}

/// PATCH logged-models/ID/tags.
pub(crate) async fn set_tags(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let tags = mlflow::pairs(
        &Field::root(&body).get("tags"),
        mlflow::MAX_PARAMS_OF_RUN,
        mlflow::MAX_TAG_CHARS,
    )?;
    let changed = edit(&api, &call, |model| {
        model.tags.extend(tags.clone());
        Ok(())
    })
    .await?;
    Ok(reply::ok(&changed))
}

/// DELETE logged-models/ID/tags/KEY.
pub(crate) async fn delete_tag(api: Arc<Api>, call: Call) -> Answer {
    edit(&api, &call, |model| {
        model.tags.remove(call.param("k"));
        Ok(())
    })
    .await?;
    Ok(reply::ok(&json!({})))
}

/// POST logged-models/ID/params (M2).
pub(crate) async fn log_params(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let params = mlflow::pairs(
        &Field::root(&body).get("params"),
        mlflow::MAX_PARAMS_OF_RUN,
        mlflow::MAX_PARAM_CHARS,
    )?;
    edit(&api, &call, |model| {
        for (name, new) in &params {
            if let Some(old) = model.params.get(name).filter(|old| *old != new) {
                return Err(Problem::user(format!(
                    "param {} of model {} is '{old}' and cannot become '{new}'",
                    wire::names::shown(name),
                    model.id
                )));
            }
        }
        model.params.extend(params.clone());
        Ok(())
    })
    .await?;
    Ok(reply::ok(&json!({})))
}

/// POST logged-models/search.
pub(crate) fn search(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let body = body(call)?;
    let root = Field::root(&body);
    let filter = Filter::parse(root.get("filter").text()?.unwrap_or_default())?;
    mlflow::known(filter.attributes(), ATTRIBUTES)?;
    let mut orders = Vec::new();
    for order in mlflow::at_most(&root.get("order_by"), PAGE.0)? {
        let field = order.get("field_name").need_text()?;
        let way = if order.get("ascending").flag()?.unwrap_or(true) {
            "ASC"
        } else {
            "DESC"
        };
        orders.push(Order::parse(&format!("{field} {way}"))?);
    }
    let wanted: Vec<&str> = root
        .get("experiment_ids")
        .items()?
        .iter()
        .map(Field::need_text)
        .collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for document in every(api, &workspace, Kind::Tracked, Some(FOLDER), MAX_MODELS)? {
        let model: Logged = read(&document)?;
        let experiment = mlflow::experiment_id(&workspace, &model.experiment);
        let asked = wanted.contains(&experiment.as_str())
            || (wanted.contains(&mlflow::DEFAULT_ID) && model.experiment == mlflow::DEFAULT);
        if asked && filter.holds(&|field| model.item(field)) {
            found.push(model);
        }
    }
    found.sort_by(|a, b| {
        let by = |o: &Order| o.compare(a.item(&o.field).as_ref(), b.item(&o.field).as_ref());
        let wanted = orders.iter().map(by).find(|o| o.is_ne());
        wanted.unwrap_or_else(|| b.created.cmp(&a.created).then_with(|| a.id.cmp(&b.id)))
    });
    let (max, token) = page_of(&root)?;
    let (page, next) = paged(found, max, token.as_deref(), PAGE)?;
    let views: Vec<Value> = page.iter().map(|m| m.view(&workspace)).collect();
    Ok(reply::ok(
        &json!({"models": views, "next_page_token": next.unwrap_or_default()}),
    ))
}
