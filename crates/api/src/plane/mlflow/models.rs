//! The model registry: registered models are the workspace's models, their versions the versions that every client sees.
//!
//! G1 a version names the folder where the model already lies, nothing is copied; it is a model asset like any other (V1);
//! G2 what MLflow adds and Azure has no place for, aliases, lies beside the model.

use axum::http::StatusCode;
use control::Condition;
use model::{Declared, DocKey, Document, Kind, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};
use wire::{
    arm::{asset::name_and_version, field::Field},
    mlflow::{
        self,
        filter::{Field as By, Filter, Item, Order},
    },
};

use super::{
    IS_PROMPT, asked, body, change, every, key, no_prompt, page_asked, paged, read, stored,
};
use crate::{
    Api,
    arm::put,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// Where aliases are stored.
pub(super) const FOLDER: &str = "aliases";
/// Versions of all models that one search looks at.
const MAX_VERSIONS: usize = 50_000;
/// Aliases of one model.
const MAX_ALIASES: usize = 1000;
/// MLflow's limit of an alias.
const MAX_ALIAS_CHARS: usize = 255;
/// Items of a page, and most of one.
const PAGE: (usize, usize) = (100, 10_000);
/// The stages of MLflow, which versions of models have as well.
pub(super) const STAGES: [(&str, &str); 4] = [
    ("None", "None"),
    ("Staging", "Staging"),
    ("Production", "Production"),
    ("Archived", "Archived"),
];

/// What is stored beside a model (G2).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Beside {
    /// Version by alias.
    pub aliases: BTreeMap<String, String>,
}

/// A model with its versions.
pub(super) struct Model {
    pub name: String,
    own: Option<Document>,
    pub versions: Vec<Document>,
    pub beside: Beside,
}

fn missing(name: &str) -> Problem {
    Problem::missing(format!(
        "registered model {} does not exist",
        wire::names::shown(name)
    ))
}

pub(super) fn missing_version(name: &str, version: &str) -> Problem {
    Problem::missing(format!(
        "version {} of registered model {} does not exist",
        wire::names::shown(version),
        wire::names::shown(name)
    ))
}

fn model_key(workspace: &Arc<Workspace>, name: &str) -> DocKey {
    DocKey::new(workspace, Kind::Model, name)
}

pub(super) fn version_key(workspace: &Arc<Workspace>, name: &str, version: &str) -> DocKey {
    DocKey::new(workspace, Kind::Model, format!("{name}/{version}"))
}

/// A model and all of its versions. Blocks.
fn find(api: &Api, workspace: &Arc<Workspace>, name: &str) -> Result<Option<Model>, Problem> {
    if wire::names::check_asset("model", name).is_err() {
        return Ok(None);
    }
    let own = api.control.get(&model_key(workspace, name))?;
    let versions = every(api, workspace, Kind::Model, Some(name), MAX_VERSIONS)?;
    if own.is_none() && versions.is_empty() {
        return Ok(None);
    }
    let beside = stored(api, &key(workspace, FOLDER, name))?.unwrap_or_default();
    let newest = versions
        .first()
        .map(|d| name_and_version(d.key.path.as_str()).0.to_owned());
    Ok(Some(Model {
        name: newest.unwrap_or_else(|| name.to_owned()),
        own,
        versions,
        beside,
    }))
}

pub(super) async fn found(
    api: &Arc<Api>,
    workspace: &Arc<Workspace>,
    name: &str,
) -> Result<Model, Problem> {
    let (state, at, wanted) = (api.clone(), workspace.clone(), name.to_owned());
    let found = crate::blocking(move || find(&state, &at, &wanted)).await?;
    found.ok_or_else(|| missing(name))
}

pub(super) fn properties(document: &Document) -> Result<Value, Problem> {
    Ok(put::body(document)?["properties"].clone())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn tags(properties: &Value) -> Vec<Value> {
    properties["tags"]
        .as_object()
        .map(mlflow::list_of)
        .unwrap_or_default()
}

pub(super) fn version_view(document: &Document, beside: &Beside) -> Result<Value, Problem> {
    let (name, version) = name_and_version(document.key.path.as_str());
    let p = properties(document)?;
    let ours = &p["properties"];
    let aliases = beside.aliases.iter().filter(|(_, v)| *v == version);
    Ok(json!({
        "name": name,
        "version": version,
        "creation_timestamp": document.created.0,
        "last_updated_timestamp": document.modified.0,
        "user_id": &*document.by,
        "current_stage": stage(&p),
        "description": text(&p["description"]),
        "source": source_of(&p),
        "run_id": text(&ours["mlflow.runId"]),
        "run_link": text(&ours["mlflow.runLink"]),
        "model_id": text(&ours["mlflow.modelId"]),
        "status": "READY",
        "tags": tags(&p),
        "aliases": aliases.map(|(alias, _)| alias).collect::<Vec<_>>(),
    }))
}

fn source_of(properties: &Value) -> &str {
    match text(&properties["properties"]["mlflow.source"]) {
        "" => text(&properties["modelUri"]),
        source => source,
    }
}

pub(super) fn stage(properties: &Value) -> &str {
    let stage = text(&properties["stage"]);
    let known = STAGES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(stage));
    known.map_or("None", |(name, _)| name)
}

impl Model {
    fn view(&self) -> Result<Value, Problem> {
        let newest = self.versions.first();
        let own = self
            .own
            .as_ref()
            .map(properties)
            .transpose()?
            .unwrap_or_default();
        let all = || self.own.iter().chain(&self.versions);
        let mut latest = Vec::new();
        for (stage, _) in STAGES {
            latest.extend(self.latest(stage)?);
        }
        let aliases: Vec<Value> = self
            .beside
            .aliases
            .iter()
            .map(|(a, v)| json!({"alias": a, "version": v}))
            .collect();
        Ok(json!({
            "name": self.name,
            "creation_timestamp": all().map(|d| d.created.0).min(),
            "last_updated_timestamp": all().map(|d| d.modified.0).max(),
            "user_id": self.own.as_ref().or(newest).map(|d| &*d.by),
            "description": text(&own["description"]),
            "latest_versions": latest,
            "tags": tags(&own),
            "aliases": aliases,
        }))
    }

    /// The newest version of a stage.
    fn latest(&self, wanted: &str) -> Result<Option<Value>, Problem> {
        for document in &self.versions {
            if stage(&properties(document)?).eq_ignore_ascii_case(wanted) {
                return Ok(Some(version_view(document, &self.beside)?));
            }
        }
        Ok(None)
    }

    fn version(&self, version: &str) -> Result<&Document, Problem> {
        let named = |d: &&Document| {
            name_and_version(d.key.path.as_str())
                .1
                .eq_ignore_ascii_case(version)
        };
        self.versions
            .iter()
            .find(named)
            .ok_or_else(|| missing_version(&self.name, version))
    }
}

pub(super) fn name_of<'a>(root: &Field<'a>) -> Result<&'a str, Problem> {
    Ok(root.get("name").need_text()?)
}

pub(super) fn tags_sent(root: &Field<'_>) -> Result<Map<String, Value>, Problem> {
    let pairs = mlflow::pairs(&root.get("tags"), mlflow::MAX_PARAMS, mlflow::MAX_TAG_CHARS)?;
    Ok(pairs.into_iter().map(|(k, v)| (k, json!(v))).collect())
}

/// Changes the `properties` of a model or version; a model that only versions made gets a document.
pub(super) async fn edit(
    api: &Api,
    key: &DocKey,
    make: impl Fn(&mut Value) -> Result<(), Problem>,
) -> Result<Document, Problem> {
    let of_version = key.path.as_str().contains('/');
    let stored = put::put(api, key, Condition::Any, |before| {
        let mut body = match before {
            Some(before) => put::body(before)?,
            None if of_version => {
                let (name, version) = name_and_version(key.path.as_str());
                return Err(missing_version(name, version));
            }
            None => json!({"properties": {}}),
        };
        make(&mut body["properties"])?;
        if of_version {
            return put::rendered(key, &body, before);
        }
        Ok(put::Draft {
            json: body.to_string().into(),
            declared: Declared::Other,
            warnings: Vec::new(),
        })
    })
    .await?;
    Ok(stored.document)
}

/// POST registered-models/create.
pub(crate) async fn create(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let name = name_of(&root)?;
    wire::names::check_asset("model", name)
        .map_err(|e| Problem::user(e.to_string()).target("/name"))?;
    let tags = tags_sent(&root)?;
    no_prompt(&tags)?;
    let taken = || {
        let message = format!(
            "registered model {} already exists",
            wire::names::shown(name)
        );
        Problem::new(StatusCode::CONFLICT, "Conflict", message)
    };
    let (state, at, wanted) = (api.clone(), workspace.clone(), name.to_owned());
    if crate::blocking(move || find(&state, &at, &wanted))
        .await?
        .is_some()
    {
        return Err(taken());
    }
    let json = json!({"properties": {
        "description": root.get("description").text()?,
        "tags": tags,
    }});
    put::put(
        &api,
        &model_key(&workspace, name),
        Condition::Any,
        |before| match before {
            Some(_) => Err(taken()),
            None => Ok(put::Draft {
                json: json.to_string().into(),
                declared: Declared::Other,
                warnings: Vec::new(),
            }),
        },
    )
    .await?;
    let model = found(&api, &workspace, name).await?;
    Ok(reply::ok(&json!({"registered_model": model.view()?})))
}

/// GET registered-models/get.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let name = asked(call, "name")?;
    let model = find(api, &call.workspace(api)?, name)?.ok_or_else(|| missing(name))?;
    Ok(reply::ok(&json!({"registered_model": model.view()?})))
}

/// PATCH registered-models/update: the description.
pub(crate) async fn update(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let model = found(&api, &workspace, name_of(&root)?).await?;
    let description = root.get("description").text()?;
    edit(&api, &model_key(&workspace, &model.name), |p| {
        p["description"] = json!(description);
        Ok(())
    })
    .await?;
    let model = found(&api, &workspace, &model.name).await?;
    Ok(reply::ok(&json!({"registered_model": model.view()?})))
}

/// POST registered-models/rename: what names a model names it by its name.
pub(crate) async fn rename(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let workspace = call.workspace(&api)?;
    let model = found(&api, &workspace, name_of(&Field::root(&body))?).await?;
    Err(Problem::user(format!(
        "model {} cannot be renamed: deployments and jobs name it",
        wire::names::shown(&model.name)
    ))
    .hint("register its versions under the new name"))
}

/// DELETE registered-models/delete: the model with its versions; files stay, as with every deletion of an asset.
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let workspace = call.workspace(&api)?;
    let model = found(&api, &workspace, name_of(&Field::root(&body))?).await?;
    for document in &model.versions {
        put::remove(&api, document.key.clone(), None, Condition::Any).await?;
    }
    put::remove(
        &api,
        key(&workspace, FOLDER, &model.name),
        None,
        Condition::Any,
    )
    .await?;
    put::remove(
        &api,
        model_key(&workspace, &model.name),
        None,
        Condition::Any,
    )
    .await?;
    Ok(reply::ok(&json!({})))
}

/// Every model of a workspace with its versions. Blocks.
pub(super) fn all(api: &Api, workspace: &Arc<Workspace>) -> Result<Vec<Model>, Problem> {
    let mut models: BTreeMap<String, Model> = BTreeMap::new();
    for document in every(api, workspace, Kind::Model, None, MAX_VERSIONS)? {
        let path = document.key.path.as_str();
        let name = path
            .split_once('/')
            .map_or(path, |(name, _)| name)
            .to_owned();
        let model = models.entry(name.to_lowercase()).or_insert_with(|| Model {
            name,
            own: None,
            versions: Vec::new(),
            beside: Beside::default(),
        });
        if document.key.path.as_str().contains('/') {
            model.versions.push(document);
        } else {
            model.own = Some(document);
        }
    }
    for document in every(api, workspace, Kind::Tracked, Some(FOLDER), MAX_VERSIONS)? {
        let name = document
            .key
            .path
            .as_str()
            .rsplit('/')
            .next()
            .unwrap_or_default();
        if let Some(model) = models.get_mut(&name.to_lowercase()) {
            model.beside = read(&document)?;
        }
    }
    Ok(models.into_values().collect())
}

/// Keeps what the filter of the query wants, in its order.
pub(super) fn searched(
    call: &Call,
    views: Vec<Value>,
    known: &[&str],
    usual: &str,
) -> Result<(Vec<Value>, Option<String>), Problem> {
    let filter = Filter::parse(call.query.get("filter").unwrap_or_default())?;
    mlflow::known(filter.attributes(), known)?;
    let orders = Order::all(
        call.query
            .get("order_by")
            .into_iter()
            .filter(|o| !o.is_empty()),
    )?;
    let orders = if orders.is_empty() {
        vec![Order::parse(usual)?]
    } else {
        orders
    };
    let item = |view: &Value, field: &By| match field {
        By::Attribute(name) => {
            let name = match name.as_str() {
                "version_number" => "version",
                "source_path" => "source",
                "timestamp" => "last_updated_timestamp",
                other => other,
            };
            match &view[name] {
                Value::Number(n) => n.as_f64().map(Item::Number),
                Value::String(text) if name == "version" => text.parse().ok().map(Item::Number),
                Value::String(text) => Some(Item::Text(text.clone())),
                _ => None,
            }
        }
        // Clients add to every search that they want no prompts; every model is none.
        By::Tag(key) if key == IS_PROMPT => Some(Item::Text("false".to_owned())),
        By::Tag(key) => {
            let mut all = view["tags"].as_array().into_iter().flatten();
            let tag = all.find(|t| t["key"] == key.as_str())?;
            Some(Item::Text(text(&tag["value"]).to_owned()))
        }
        By::Metric(_) | By::Param(_) => None,
    };
    let mut found: Vec<Value> = views
        .into_iter()
        .filter(|v| filter.holds(&|f| item(v, f)))
        .collect();
    found.sort_by(|a, b| {
        let by = |o: &Order| o.compare(item(a, &o.field).as_ref(), item(b, &o.field).as_ref());
        let wanted = orders.iter().map(by).find(|o| o.is_ne());
        wanted.unwrap_or_else(|| text(&a["name"]).cmp(text(&b["name"])))
    });
    let (max, token) = page_asked(call)?;
    Ok(paged(found, max, token.as_deref(), PAGE)?)
}

/// GET registered-models/search.
pub(crate) fn search(api: &Arc<Api>, call: &Call) -> Answer {
    let models = all(api, &call.workspace(api)?)?;
    let views = models.iter().map(Model::view).collect::<Result<_, _>>()?;
    let known = [
        "name",
        "last_updated_timestamp",
        "creation_timestamp",
        "timestamp",
    ];
    let (page, next) = searched(call, views, &known, "name ASC")?;
    Ok(reply::ok(
        &json!({"registered_models": page, "next_page_token": next.unwrap_or_default()}),
    ))
}

/// POST and GET registered-models/get-latest-versions.
pub(crate) async fn latest(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let name = match root.get("name").text()? {
        Some(name) => name,
        None => asked(&call, "name")?,
    };
    let model = found(&api, &workspace, name).await?;
    let items = root.get("stages").items()?;
    let mut stages: Vec<&str> = items
        .iter()
        .map(Field::need_text)
        .collect::<Result<_, _>>()?;
    stages.extend(call.query.get("stages"));
    if stages.is_empty() {
        stages.extend(STAGES.iter().map(|(name, _)| name));
    }
    let mut found = Vec::new();
    for stage in stages {
        found.extend(model.latest(stage)?);
    }
    Ok(reply::ok(&json!({"model_versions": found})))
}

/// Changes one tag; without a value it goes.
fn tag(properties: &mut Value, name: &str, value: Option<&str>) {
    let mut tags = match properties["tags"].take() {
        Value::Object(tags) => tags,
        _ => Map::new(),
    };
    match value {
        Some(value) => drop(tags.insert(name.to_owned(), json!(value))),
        None => drop(tags.remove(name)),
    }
    properties["tags"] = Value::Object(tags);
}

pub(super) async fn change_tag(api: Arc<Api>, call: Call, of_version: bool, set: bool) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let name = mlflow::key(&root.get("key"))?;
    let value = if set {
        Some(mlflow::tag_value(&root.get("value"))?)
    } else {
        None
    };
    let model = name_of(&root)?;
    let key = if of_version {
        version_key(&workspace, model, root.get("version").need_text()?)
    } else {
        model_key(&workspace, &found(&api, &workspace, model).await?.name)
    };
    edit(&api, &key, |p| {
        tag(p, name, value.as_deref());
        Ok(())
    })
    .await?;
    Ok(reply::ok(&json!({})))
}

/// POST registered-models/set-tag.
pub(crate) async fn set_tag(api: Arc<Api>, call: Call) -> Answer {
    change_tag(api, call, false, true).await
}

/// DELETE registered-models/delete-tag.
pub(crate) async fn delete_tag(api: Arc<Api>, call: Call) -> Answer {
    change_tag(api, call, false, false).await
}

fn alias_of<'a>(root: &Field<'a>) -> Result<&'a str, Problem> {
    let field = root.get("alias");
    let alias = field.need_text()?;
    let legal = alias.chars().count() <= MAX_ALIAS_CHARS
        && alias
            .chars()
            .all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    if !legal || alias.eq_ignore_ascii_case("latest") {
        return Err(field.refuse(format!("is not a word of at most {MAX_ALIAS_CHARS} letters, digits, - and _, and not latest")).into());
    }
    Ok(alias)
}

/// POST registered-models/alias.
pub(crate) async fn set_alias(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let model = found(&api, &workspace, name_of(&root)?).await?;
    let (alias, version) = (alias_of(&root)?, root.get("version").need_text()?);
    model.version(version)?;
    change(
        &api,
        &key(&workspace, FOLDER, &model.name),
        Condition::Any,
        |before: Option<Beside>| {
            let mut beside = before.unwrap_or_default();
            beside.aliases.insert(alias.to_owned(), version.to_owned());
            if beside.aliases.len() > MAX_ALIASES {
                return Err(Problem::user(format!(
                    "model {} has {MAX_ALIASES} aliases already",
                    model.name
                )));
            }
            Ok(beside)
        },
    )
    .await?;
    Ok(reply::ok(&json!({})))
}

/// DELETE registered-models/alias.
pub(crate) async fn delete_alias(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let model = found(&api, &workspace, name_of(&root)?).await?;
    let alias = alias_of(&root)?;
    change(
        &api,
        &key(&workspace, FOLDER, &model.name),
        Condition::Any,
        |before: Option<Beside>| {
            let mut beside = before.unwrap_or_default();
            beside.aliases.remove(alias);
            Ok(beside)
        },
    )
    .await?;
    Ok(reply::ok(&json!({})))
}

/// GET registered-models/alias.
pub(crate) fn by_alias(api: &Arc<Api>, call: &Call) -> Answer {
    let (name, alias) = (asked(call, "name")?, asked(call, "alias")?);
    let model = find(api, &call.workspace(api)?, name)?.ok_or_else(|| missing(name))?;
    let version = model.beside.aliases.get(alias).ok_or_else(|| {
        Problem::missing(format!(
            "registered model {} has no alias {}",
            wire::names::shown(name),
            wire::names::shown(alias)
        ))
    })?;
    let document = model.version(version)?;
    Ok(reply::ok(
        &json!({"model_version": version_view(document, &model.beside)?}),
    ))
}
