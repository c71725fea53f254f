//! Batch endpoints and their deployments.
//!
//! E1 a deployment names an endpoint, a compute and a model that exist;
//! E2 an endpoint's default, once set, always names a deployment that exists: a PUT that names another is refused, and
//!    deleting the default deployment clears it;
//! E3 deleting an endpoint removes its deployments, never its jobs.

use axum::http::StatusCode;
use control::Condition;
use model::{DocKey, Document, Kind};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::{
    arm::{batch::ModelRef, field::Field, link::Links},
    view,
};

use super::{put, workspaces::page};
use crate::{
    Api,
    call::Call,
    condition, paging,
    problem::{Answer, Problem},
    reply, show,
};

pub(crate) fn endpoint_key(api: &Api, call: &Call) -> Result<DocKey, Problem> {
    call.key(api, Kind::BatchEndpoint, call.param("e"))
}

fn deployment_key(api: &Api, call: &Call) -> Result<DocKey, Problem> {
    let path = format!("{}/{}", call.param("e"), call.param("d"));
    call.key(api, Kind::BatchDeployment, path)
}

/// The endpoint, or 404.
pub(crate) fn endpoint(api: &Api, key: &DocKey) -> Result<Document, Problem> {
    api.control.get(key)?.ok_or_else(|| no_endpoint(key))
}

fn no_endpoint(key: &DocKey) -> Problem {
    Problem::missing(format!(
        "batch endpoint {} does not exist in workspace {}",
        wire::names::shown(key.path.as_str()),
        key.workspace.name
    ))
}

/// The deployment, or 404.
pub(crate) fn deployment(api: &Api, key: &DocKey) -> Result<Document, Problem> {
    api.control.get(key)?.ok_or_else(|| no_deployment(key))
}

fn no_deployment(key: &DocKey) -> Problem {
    let path = key.path.as_str();
    let (endpoint, name) = path.split_once('/').unwrap_or((path, ""));
    Problem::missing(format!(
        "batch endpoint {} has no deployment {}",
        wire::names::shown(endpoint),
        wire::names::shown(name)
    ))
}

/// `properties.defaults.deploymentName`.
pub(crate) fn default_of(body: &Value) -> Option<&str> {
    body["properties"]["defaults"]["deploymentName"]
        .as_str()
        .filter(|name| !name.is_empty())
}

/// GET an endpoint.
pub(crate) fn get_endpoint(api: &Arc<Api>, call: &Call) -> Answer {
    let document = endpoint(api, &endpoint_key(api, call)?)?;
    let view = view::batch::endpoint(&show::site(api, &call.base), &document);
    Ok(reply::document(StatusCode::OK, &document, &view))
}

/// GET all endpoints.
pub(crate) fn list_endpoints(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let wanted = paging::Wanted::of(call)?;
    let site = show::site(api, &call.base);
    let mut page = page(&workspace, Kind::BatchEndpoint, None, false);
    let (items, next) = paging::filtered(&api.control, &mut page, &wanted, |d| {
        Ok(Some(view::batch::endpoint(&site, d)))
    })?;
    Ok(reply::ok(&paging::body(call, items, next)))
}

/// PUT an endpoint. Without defaults it keeps those it has: a file that does not speak of them does not take them away.
pub(crate) async fn put_endpoint(api: Arc<Api>, call: Call) -> Answer {
    let key = endpoint_key(&api, &call)?;
    let body: Value = call.json()?;
    let stored = put::put(&api, &key, condition::read(&call.headers)?, |before| {
        default_exists(&api, &key, &body)?;
        let kept = before.map(put::body).transpose()?;
        match kept.as_ref().and_then(default_of) {
            Some(kept) if default_of(&body).is_none() && body["properties"].is_object() => {
                let mut body = body.clone();
                body["properties"]["defaults"] = json!({"deploymentName": kept});
                put::rendered(&key, &body, before)
            }
            _ => Ok(put::as_sent(&key, call.text()?, &body, before)?),
        }
    })
    .await?;
    let view = view::batch::endpoint(&show::site(&api, &call.base), &stored.document);
    Ok(stored.respond(&view))
}

/// PATCH an endpoint.
pub(crate) async fn patch_endpoint(api: Arc<Api>, call: Call) -> Answer {
    let key = endpoint_key(&api, &call)?;
    let patch: Value = call.json()?;
    let stored = put::put(&api, &key, condition::read(&call.headers)?, |before| {
        let before = before.ok_or_else(|| no_endpoint(&key))?;
        let mut body = put::body(before)?;
        put::merge(&mut body, &patch);
        default_exists(&api, &key, &body)?;
        put::rendered(&key, &body, Some(before))
    })
    .await?;
    let view = view::batch::endpoint(&show::site(&api, &call.base), &stored.document);
    Ok(stored.respond(&view))
}

/// E2.
fn default_exists(api: &Api, endpoint: &DocKey, body: &Value) -> Result<(), Problem> {
    let Some(name) = default_of(body) else {
        return Ok(());
    };
    let path = format!("{}/{name}", endpoint.path);
    let key = DocKey::new(&endpoint.workspace, Kind::BatchDeployment, path.as_str());
    if api.control.get(&key)?.is_some() {
        return Ok(());
    }
    Err(Problem::user(format!(
        "the default deployment {} of endpoint {} does not exist",
        wire::names::shown(name),
        endpoint.path
    ))
    .target("/properties/defaults/deploymentName")
    .hint("create the deployment first"))
}

/// DELETE an endpoint (E3).
pub(crate) async fn delete_endpoint(api: Arc<Api>, call: Call) -> Answer {
    let key = endpoint_key(&api, &call)?;
    let condition = condition::read(&call.headers)?;
    Ok(
        match put::remove(&api, key, Some(Kind::BatchDeployment), condition).await? {
            put::Removed::Now => reply::empty(StatusCode::OK),
            put::Removed::WasNotThere => reply::empty(StatusCode::NO_CONTENT),
        },
    )
}

/// GET a deployment.
pub(crate) fn get_deployment(api: &Arc<Api>, call: &Call) -> Answer {
    endpoint(api, &endpoint_key(api, call)?)?;
    let document = deployment(api, &deployment_key(api, call)?)?;
    let view = view::batch::deployment(&show::site(api, &call.base), &document);
    Ok(reply::document(StatusCode::OK, &document, &view))
}

/// GET the deployments of an endpoint.
pub(crate) fn list_deployments(api: &Arc<Api>, call: &Call) -> Answer {
    let key = endpoint_key(api, call)?;
    endpoint(api, &key)?;
    let wanted = paging::Wanted::of(call)?;
    let site = show::site(api, &call.base);
    let mut page = page(
        &key.workspace,
        Kind::BatchDeployment,
        Some(key.path.as_str()),
        false,
    );
    let (items, next) = paging::filtered(&api.control, &mut page, &wanted, |d| {
        Ok(Some(view::batch::deployment(&site, d)))
    })?;
    Ok(reply::ok(&paging::body(call, items, next)))
}

/// PUT a deployment (E1). The first one of an endpoint without a default becomes its default.
pub(crate) async fn put_deployment(api: Arc<Api>, call: Call) -> Answer {
    let of = endpoint_key(&api, &call)?;
    let key = deployment_key(&api, &call)?;
    let body: Value = call.json()?;
    let mut stored = put::put(&api, &key, condition::read(&call.headers)?, |before| {
        endpoint(&api, &of)?;
        let draft = put::as_sent(&key, call.text()?, &body, before)?;
        linked(&api, &key, &body)?;
        Ok(draft)
    })
    .await?;
    if !stored.existed {
        let first = set_default(&api, &of, |now| match now {
            None => Some(call.param("d").to_owned()),
            Some(_) => None,
        });
        // The deployment is stored, so the answer says so; the endpoint can be given a default at any time.
        if let Err(problem) = first.await {
            stored.warnings.push(format!(
                "it did not become the default: {}",
                problem.message
            ));
        }
    }
    let view = view::batch::deployment(&show::site(&api, &call.base), &stored.document);
    Ok(stored.respond(&view))
}

/// PATCH a deployment.
pub(crate) async fn patch_deployment(api: Arc<Api>, call: Call) -> Answer {
    let key = deployment_key(&api, &call)?;
    let patch: Value = call.json()?;
    let stored = put::put(&api, &key, condition::read(&call.headers)?, |before| {
        let before = before.ok_or_else(|| no_deployment(&key))?;
        let mut body = put::body(before)?;
        put::merge(&mut body, &patch);
        let draft = put::rendered(&key, &body, Some(before))?;
        linked(&api, &key, &body)?;
        Ok(draft)
    })
    .await?;
    let view = view::batch::deployment(&show::site(&api, &call.base), &stored.document);
    Ok(stored.respond(&view))
}

/// E1: what the deployment names is there.
fn linked(api: &Api, key: &DocKey, body: &Value) -> Result<(), Problem> {
    let (_, name) = wire::arm::asset::name_and_version(key.path.as_str());
    let settings = wire::arm::batch::deployment(name, body, &mut Vec::new())?;
    let places = api.places(&key.workspace);
    api.looking(|look| {
        let links = Links {
            places: &places,
            look,
        };
        let p = Field::root(body).get("properties");
        links.compute(&p.get("compute"))?;
        if let ModelRef::Id(text) = &settings.model {
            links.model(&p.get("model").get("assetId"), text)?;
        }
        if settings.environment.is_some() {
            links.environment(&p.get("environmentId"))?;
        }
        links.code(&p.get("codeConfiguration").get("codeId"))?;
        Ok(())
    })
}

/// DELETE a deployment; the default of its endpoint is cleared before (E2).
pub(crate) async fn delete_deployment(api: Arc<Api>, call: Call) -> Answer {
    let of = endpoint_key(&api, &call)?;
    let key = deployment_key(&api, &call)?;
    let condition = condition::read(&call.headers)?;
    put::holds(condition, api.control.get(&key)?.as_ref())?;
    let name = call.param("d");
    set_default(&api, &of, |now| match now {
        Some(now) if now.eq_ignore_ascii_case(name) => Some(String::new()),
        Some(_) | None => None,
    })
    .await?;
    Ok(match put::remove(&api, key, None, condition).await? {
        put::Removed::Now => reply::empty(StatusCode::OK),
        put::Removed::WasNotThere => reply::empty(StatusCode::NO_CONTENT),
    })
}

/// Gives the endpoint the default that `choose` makes of the present one; `None` changes nothing, an empty name clears it.
/// An endpoint that went away meanwhile needs none.
async fn set_default(
    api: &Api,
    key: &DocKey,
    choose: impl Fn(Option<&str>) -> Option<String>,
) -> Result<(), Problem> {
    let nothing = || Problem::new(StatusCode::NOT_MODIFIED, "NotModified", "");
    let result = put::put(api, key, Condition::Any, |before| {
        let before = before.ok_or_else(nothing)?;
        let mut body = put::body(before)?;
        let name = choose(default_of(&body)).ok_or_else(nothing)?;
        if !body["properties"].is_object() {
            body["properties"] = json!({});
        }
        body["properties"]["defaults"] = if name.is_empty() {
            json!({})
        } else {
            json!({"deploymentName": name})
        };
        put::rendered(key, &body, Some(before))
    })
    .await;
    match result {
        Ok(_) => Ok(()),
        Err(problem) if problem.status == StatusCode::NOT_MODIFIED => Ok(()),
        Err(problem) => Err(problem),
    }
}
