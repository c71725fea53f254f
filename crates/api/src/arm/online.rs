//! Online endpoints as documents with keys. A deployment is checked by every rule and then refused: serving is not there yet.
//!
//! N1 an endpoint keeps its keys, its kind and its way of authentication for as long as it lives: a PUT never changes them;
//! N2 traffic goes to deployments that exist.

use axum::http::StatusCode;
use control::Condition;
use model::{ComputeId, DocKey, Document, Kind, kubernetes::TypeSeen};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::{
    arm::{
        asset::ModelType,
        field::Field,
        link::{Compute, Links},
        online::{self, AuthMode, KEYS, Place},
    },
    view,
};

use super::{put, workspaces::page};
use crate::{
    Api,
    call::Call,
    condition, identity, paging,
    problem::{Answer, Problem},
    reply, seal, show,
};

/// Bytes of a key, shown as hex digits.
const KEY_BYTES: usize = 16;
/// So long before its end a token of an endpoint is to be replaced: half of its life, as in Azure.
const REFRESH_SECONDS: u64 = 1_800;

fn key(api: &Api, call: &Call) -> Result<DocKey, Problem> {
    call.key(api, Kind::OnlineEndpoint, call.param("e"))
}

fn no_endpoint(key: &DocKey) -> Problem {
    Problem::missing(format!(
        "online endpoint {} does not exist in workspace {}",
        wire::names::shown(key.path.as_str()),
        key.workspace.name
    ))
}

fn no_deployment(call: &Call) -> Problem {
    Problem::missing(format!(
        "online endpoint {} has no deployment {}",
        wire::names::shown(call.param("e")),
        wire::names::shown(call.param("d"))
    ))
}

fn find(api: &Api, call: &Call) -> Result<Document, Problem> {
    let key = key(api, call)?;
    api.control.get(&key)?.ok_or_else(|| no_endpoint(&key))
}

/// GET an endpoint.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let document = find(api, call)?;
    let view = view::online::endpoint(&show::site(api, &call.base), &document);
    Ok(reply::document(StatusCode::OK, &document, &view))
}

/// GET all endpoints.
pub(crate) fn list(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let wanted = paging::Wanted::of(call)?;
    let site = show::site(api, &call.base);
    let mut page = page(&workspace, Kind::OnlineEndpoint, None, false);
    let (items, next) = paging::filtered(&api.control, &mut page, &wanted, |d| {
        Ok(Some(view::online::endpoint(&site, d)))
    })?;
    Ok(reply::ok(&paging::body(call, items, next)))
}

/// PUT an endpoint. A new one gets its keys.
pub(crate) async fn put(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let body: Value = call.json()?;
    write(&api, &call, &key, condition::read(&call.headers)?, |_| {
        Ok(body.clone())
    })
    .await
}

/// PATCH an endpoint.
pub(crate) async fn patch(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let mut patch: Value = call.json()?;
    drop_keys(&mut patch);
    write(
        &api,
        &call,
        &key,
        condition::read(&call.headers)?,
        |before| {
            let before = before.ok_or_else(|| no_endpoint(&key))?;
            let mut body = put::body(before)?;
            drop_keys(&mut body);
            put::merge(&mut body, &patch);
            Ok(body)
        },
    )
    .await
}

fn drop_keys(body: &mut Value) {
    if let Some(p) = body.get_mut("properties").and_then(Value::as_object_mut) {
        p.retain(|name, _| !name.eq_ignore_ascii_case(online::KEYS_MEMBER));
    }
}

async fn write(
    api: &Arc<Api>,
    call: &Call,
    key: &DocKey,
    condition: Condition,
    make: impl Fn(Option<&Document>) -> Result<Value, Problem>,
) -> Answer {
    let stored = put::put(api, key, condition, |before| {
        let mut body = make(before)?;
        drop_keys(&mut body);
        wire::arm::parse(key, &body, before)?;
        served_by(api, key, &body)?;
        if let Some(name) = online::deployments_with_traffic(&body).first() {
            return Err(Problem::user(format!(
                "traffic goes to {}, and endpoint {} has no such deployment",
                wire::names::shown(name),
                key.path
            ))
            .target("/properties/traffic")); // N2
        }
        let old = before.map(put::body).transpose()?;
        if let Some(old) = &old {
            same(key, old, &body)?;
        }
        body["properties"][online::KEYS_MEMBER] = json!({});
        if before.is_none() {
            for pointer in KEYS {
                wire::arm::secrets::put(&mut body, pointer, &json!(random()?));
            }
        }
        let sealed = seal::sealed(&api.seal, key, &body, before, &KEYS)?;
        put::rendered(key, &sealed, before)
    })
    .await?;
    let view = view::online::endpoint(&show::site(api, &call.base), &stored.document);
    Ok(stored.respond(&view))
}

fn random() -> Result<String, Problem> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| Problem::internal("making a key", &e))?;
    Ok(wire::places::hex(&bytes))
}

/// An endpoint on Kubernetes names a compute that is one.
fn served_by(api: &Api, key: &DocKey, body: &Value) -> Result<Option<ComputeId>, Problem> {
    let field = Field::root(body).get("properties").get("compute");
    if field.text()?.is_none_or(str::is_empty) {
        return Ok(None);
    }
    let places = api.places(&key.workspace);
    let found = api.looking(|look| {
        Links {
            places: &places,
            look,
        }
        .compute(&field)
    })?;
    match found {
        (id, Compute::Kubernetes { .. }) => Ok(Some(id)),
        (id, Compute::Cluster(_) | Compute::Instance(_)) => Err(Problem::user(format!(
            "compute {id} of an online endpoint must be a Kubernetes compute"
        ))
        .target(field.path())),
    }
}

/// N1.
fn same(key: &DocKey, old: &Value, new: &Value) -> Result<(), Problem> {
    let compute = |body: &Value| {
        let text = body["properties"]["compute"].as_str().unwrap_or_default();
        text.rsplit('/').next().unwrap_or_default().to_lowercase()
    };
    let changed = if AuthMode::of(old) != AuthMode::of(new) {
        Some(("authMode", "/properties/authMode"))
    } else if compute(old) != compute(new) {
        Some(("compute", "/properties/compute"))
    } else {
        None
    };
    match changed {
        None => Ok(()),
        Some((what, target)) => Err(Problem::user(format!(
            "{what} of endpoint {} cannot be changed",
            key.path
        ))
        .target(target)
        .hint("delete the endpoint and create it again")),
    }
}

/// DELETE an endpoint.
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    Ok(
        match put::remove(&api, key, None, condition::read(&call.headers)?).await? {
            put::Removed::Now => reply::empty(StatusCode::OK),
            put::Removed::WasNotThere => reply::empty(StatusCode::NO_CONTENT),
        },
    )
}

/// POST listKeys.
pub(crate) fn keys(api: &Arc<Api>, call: &Call) -> Answer {
    let document = find(api, call)?;
    let body = put::body(&document)?;
    let mode = AuthMode::of(&body);
    if mode != AuthMode::Key {
        return Err(Problem::user(format!(
            "endpoint {} is of authMode {}, which has no keys",
            document.key.path,
            mode.word()
        )));
    }
    let open = seal::opened(&api.seal, &document, &body, &KEYS)?;
    Ok(reply::ok(&open["properties"][online::KEYS_MEMBER]))
}

/// POST regenerateKeys. The client sends the old value along; a new one is drawn (wire §8).
pub(crate) async fn regenerate(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let sent: Value = call.json()?;
    const KINDS: [(&str, &str); 2] = [("Primary", KEYS[0]), ("Secondary", KEYS[1])];
    let kind = Field::root(&sent).get("keyType");
    let Some(pointer) = kind.choice(&KINDS)? else {
        return Err(kind.missing().into());
    };
    put::put(&api, &key, Condition::Any, |before| {
        let before = before.ok_or_else(|| no_endpoint(&key))?;
        let mut body = put::body(before)?;
        if AuthMode::of(&body) != AuthMode::Key {
            return Err(Problem::user(format!(
                "endpoint {} is of authMode {}, which has no keys",
                before.key.path,
                AuthMode::of(&body).word()
            )));
        }
        // the other key is still sealed, and is taken over as it is
        for pointer in KEYS {
            wire::arm::secrets::take(&mut body, pointer);
        }
        wire::arm::secrets::put(&mut body, pointer, &json!(random()?));
        let sealed = seal::sealed(&api.seal, &before.key, &body, Some(before), &KEYS)?;
        put::rendered(&key, &sealed, Some(before))
    })
    .await?;
    Ok(reply::empty(StatusCode::OK))
}

/// POST token: for the scoring address alone, about who asks.
pub(crate) fn token(api: &Arc<Api>, call: &Call) -> Answer {
    let document = find(api, call)?;
    let mode = AuthMode::of(&put::body(&document)?);
    if mode != AuthMode::AmlToken {
        return Err(Problem::user(format!(
            "endpoint {} is of authMode {}, which has no tokens of its own",
            document.key.path,
            mode.word()
        )));
    }
    let view = view::online::endpoint(&show::site(api, &call.base), &document);
    let address = view["properties"]["scoringUri"]
        .as_str()
        .unwrap_or_default();
    let (token, until) = identity::for_address(api, call, address)?;
    let response = reply::ok(&json!({
        "accessToken": token,
        "expiryTimeUtc": until,
        "refreshAfterTimeUtc": until.saturating_sub(REFRESH_SECONDS),
        "tokenType": "Bearer",
    }));
    Ok(reply::with(response, "cache-control", "no-store"))
}

fn not_yet(message: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "NotSupported", message)
}

/// GET the deployments of an endpoint: none can be made yet.
pub(crate) fn list_deployments(api: &Arc<Api>, call: &Call) -> Answer {
    find(api, call)?;
    Ok(reply::ok(&paging::body(call, Vec::new(), None)))
}

/// GET a deployment, and POST getLogs of one.
pub(crate) fn get_deployment(api: &Arc<Api>, call: &Call) -> Answer {
    find(api, call)?;
    Err(no_deployment(call))
}

/// DELETE a deployment.
pub(crate) fn delete_deployment(api: &Arc<Api>, call: &Call) -> Answer {
    find(api, call)?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// PUT a deployment: every rule is checked, so that a file can be tried, and then it is refused.
pub(crate) fn put_deployment(api: &Arc<Api>, call: &Call) -> Answer {
    let endpoint = find(api, call)?;
    let body: Value = call.json()?;
    judge(api, &endpoint, call.param("d"), &body)?;
    Err(not_yet(format!(
        "online deployment {} is valid, but serving is not there yet: it was not created",
        wire::names::shown(call.param("d"))
    ))
    .hint("batch endpoints score today: `zaffre batch-deployment create`"))
}

fn judge(api: &Api, endpoint: &Document, name: &str, body: &Value) -> Result<(), Problem> {
    let deployment = online::deployment(endpoint.key.path.as_str(), name, body, &mut Vec::new())?;
    let compute = served_by(api, &endpoint.key, &put::body(endpoint)?)?;
    match (deployment.place, &compute) {
        (Place::Managed, None) | (Place::Kubernetes, Some(_)) => {}
        (place, _) => {
            return Err(Problem::user(format!(
                "endpointComputeType of the deployment is {place:?}, and endpoint {} is {}",
                endpoint.key.path,
                if compute.is_some() {
                    "on a Kubernetes compute"
                } else {
                    "managed"
                }
            ))
            .target("/properties/endpointComputeType"));
        }
    }
    let places = api.places(&endpoint.key.workspace);
    let p = Field::root(body).get("properties");
    let model = api.looking(|look| {
        let links = Links {
            places: &places,
            look,
        };
        let model = match &deployment.model {
            Some(text) => links.model(&p.get("model"), text)?.kind,
            None => ModelType::Custom,
        };
        if p.get("environmentId").value().is_some() {
            links.environment(&p.get("environmentId"))?;
        }
        links.code(&p.get("codeConfiguration").get("codeId"))?;
        Ok(model)
    })?;
    match compute {
        Some(compute) => fits(api, &compute, &deployment, &p, model),
        None => Ok(()),
    }
}

/// The instance type that it names, or the compute's default, and what it asks of it.
fn fits(
    api: &Api,
    compute: &ComputeId,
    deployment: &online::Deployment,
    p: &Field<'_>,
    model: ModelType,
) -> Result<(), Problem> {
    let view = api.control.view();
    let record = view
        .kubernetes
        .get(compute)
        .ok_or_else(|| Problem::missing(format!("compute {compute} does not exist")))?;
    let default = record.spec.default_type.as_deref();
    let name = deployment
        .instance_type
        .as_deref()
        .or(default)
        .unwrap_or(model::DEFAULT_INSTANCE_TYPE);
    match view.type_of(record, name) {
        Some(TypeSeen::Usable(instance_type)) => {
            online::effective(
                &p.get("containerResourceRequirements"),
                &instance_type,
                model,
            )?;
            Ok(())
        }
        Some(TypeSeen::Broken(why)) => Err(Problem::user(format!(
            "instance type {name} of compute {compute} cannot be used: {why}"
        ))),
        None => {
            let known: Vec<_> = view.types_of(record).into_keys().collect();
            Err(Problem::user(format!(
                "instance type {} is not defined on compute {compute}, there are {}",
                wire::names::shown(name),
                known.join(", ")
            ))
            .target("/properties/instanceType"))
        }
    }
}
