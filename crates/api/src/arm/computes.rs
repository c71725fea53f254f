//! Computes: clusters and their nodes.

use axum::http::StatusCode;
use control::{Condition, Request};
use model::{Answer as Did, ComputeId, DocKey, Kind, Millis, kubernetes::TypeSeen};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use wire::arm::{instance::Asked, kubernetes, target::Target};

use super::{operations::Operation, put, workspaces::page};
use crate::{
    Api,
    call::Call,
    condition, paging,
    problem::{Answer, Problem},
    reply, seal, show,
};

fn key(api: &Api, call: &Call) -> Result<DocKey, Problem> {
    call.key(api, Kind::Compute, call.param("n"))
}

/// 404 as Azure says it for a compute.
pub(crate) fn missing(key: &DocKey) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "ComputeNotFound",
        format!(
            "compute {} does not exist in workspace {}",
            wire::names::shown(key.path.as_str()),
            key.workspace.name
        ),
    )
    .hint("`zaffre compute list` shows what there is")
}

/// GET a compute.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let key = key(api, call)?;
    let document = api.control.get(&key)?.ok_or_else(|| missing(&key))?;
    let view = show::compute(api, &call.base, &document);
    Ok(reply::document(StatusCode::OK, &document, &view))
}

/// GET all.
pub(crate) fn list(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let wanted = paging::Wanted::of(call)?;
    let mut page = page(&workspace, Kind::Compute, None, false);
    (page.after, page.limit) = (wanted.after, wanted.limit);
    let (documents, next) = api.control.page(&page)?;
    let items = documents
        .iter()
        .map(|d| show::compute(api, &call.base, d))
        .collect();
    Ok(reply::ok(&paging::body(
        call,
        items,
        next.filter(|_| wanted.top.is_none()),
    )))
}

/// PUT a compute.
pub(crate) async fn create(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let mut body: Value = call.json()?;
    let condition = condition::read(&call.headers)?;
    if kubernetes::is_kubernetes(&body) {
        return attach(&api, &call, &key, &mut body, condition).await;
    }
    let target = Target::of(&body);
    if target == Some(Target::ComputeInstance) {
        return create_instance(&api, &call, &key, &body, condition).await;
    }
    let secrets = target.map_or::<&[&str], _>(&[], Target::secrets);
    let stored = put::put(&api, &key, condition, |before| {
        if secrets.is_empty() {
            return Ok(put::as_sent(&key, call.text()?, &body, before)?);
        }
        wire::arm::parse(&key, &body, before)?;
        let sealed = seal::sealed(&api.seal, &key, &body, before, secrets)?;
        put::rendered(&key, &sealed, before)
    })
    .await?;
    let view = show::compute(&api, &call.base, &stored.document);
    Ok(stored.respond(&view))
}

/// PUT a compute instance: a new one starts, one that is there stays on or off (`instance` P1).
async fn create_instance(
    api: &Arc<Api>,
    call: &Call,
    key: &DocKey,
    sent: &Value,
    condition: Condition,
) -> Answer {
    let stored = put::put(api, key, condition, |before| {
        let mut body = sent.clone();
        Asked::remove(&mut body);
        let asked = before.map(put::body).transpose()?.map(|b| Asked::of(&b));
        if let Some(asked) = asked.filter(|asked| *asked != Asked::Create) {
            asked.put(&mut body);
        }
        put::rendered(key, &body, before)
    })
    .await?;
    let id = ComputeId::new(
        &stored.document.key.workspace,
        stored.document.key.path.clone(),
    );
    let on = Asked::of(&put::body(&stored.document)?).is_on();
    let view = show::compute(api, &call.base, &stored.document);
    let response = stored.respond(&view);
    Ok(if on {
        Operation::Start(id).told(api, call, response)
    } else {
        response
    })
}

/// POST start.
pub(crate) async fn start(api: Arc<Api>, call: Call) -> Answer {
    let id = power(&api, &call, Asked::Start).await?;
    Ok(Operation::Start(id).accepted(&api, &call))
}

/// POST stop. Work that runs on it ends first.
pub(crate) async fn stop(api: Arc<Api>, call: Call) -> Answer {
    let id = power(&api, &call, Asked::Stop).await?;
    Ok(Operation::Stop(id).accepted(&api, &call))
}

/// POST restart: off and on again. A server that dies in between leaves it off, and says so.
pub(crate) async fn restart(api: Arc<Api>, call: Call) -> Answer {
    let id = ComputeId::new(&call.workspace(&api)?, call.param("n"));
    let view = api.control.view();
    let busy = view.nodes_of(&id).find_map(|node| node.state.task());
    if let Some(task) = busy {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "Conflict",
            format!("job {} runs on compute instance {id}", task.job),
        )
        .hint("cancel it first"));
    }
    power(&api, &call, Asked::Stop).await?;
    let id = power(&api, &call, Asked::Restart).await?;
    Ok(Operation::Start(id).accepted(&api, &call))
}

/// Writes into the document of an instance what was asked of it.
async fn power(api: &Arc<Api>, call: &Call, asked: Asked) -> Result<ComputeId, Problem> {
    let key = key(api, call)?;
    let stored = put::put(api, &key, condition::read(&call.headers)?, |before| {
        let before = before.ok_or_else(|| missing(&key))?;
        let mut body = put::body(before)?;
        match Target::of(&body) {
            Some(Target::ComputeInstance) => {}
            other => {
                return Err(Problem::new(
                    StatusCode::BAD_REQUEST,
                    "NotSupported",
                    format!(
                        "compute {} is of type {}: only a compute instance is started and stopped",
                        before.key.path,
                        other.unwrap_or(Target::AmlCompute)
                    ),
                ));
            }
        }
        asked.put(&mut body);
        put::rendered(&key, &body, Some(before))
    })
    .await?;
    let key = stored.document.key;
    Ok(ComputeId::new(&key.workspace, key.path))
}

/// POST enableSso and updateIdleShutdownSetting: settings of an instance that have routes of their own.
pub(crate) async fn set_instance(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let sent: Value = call.json()?;
    let mut changes = serde_json::Map::new();
    for name in ["enableSSO", "idleTimeBeforeShutdown"] {
        if let Some(value) = sent.get(name) {
            changes.insert(name.into(), value.clone());
        }
    }
    if changes.is_empty() {
        return Err(Problem::bad(
            "enableSSO or idleTimeBeforeShutdown is required",
        ));
    }
    let stored = put::put(&api, &key, condition::read(&call.headers)?, |before| {
        let before = before.ok_or_else(|| missing(&key))?;
        let mut body = put::body(before)?;
        if Target::of(&body) != Some(Target::ComputeInstance) {
            return Err(Problem::user(format!(
                "compute {} is no compute instance",
                before.key.path
            )));
        }
        put::merge(
            &mut body,
            &json!({"properties": {"properties": changes.clone()}}),
        );
        put::rendered(&key, &body, Some(before))
    })
    .await?;
    Ok(put::warn(reply::empty(StatusCode::OK), &stored.warnings))
}

/// POST listKeys: the secrets that an attached compute was given.
pub(crate) fn secrets(api: &Arc<Api>, call: &Call) -> Answer {
    let key = key(api, call)?;
    let document = api.control.get(&key)?.ok_or_else(|| missing(&key))?;
    let body = put::body(&document)?;
    let target = Target::of(&body).unwrap_or(Target::AmlCompute);
    if target.secrets().is_empty() {
        return Err(Problem::user(format!(
            "compute {} is of type {target}, which has no keys",
            document.key.path
        )));
    }
    let opened = seal::opened(&api.seal, &document, &body, target.secrets())?;
    let mut answer = opened["properties"]["properties"].clone();
    if let Some(map) = answer.as_object_mut() {
        map.retain(|name, _| {
            [
                "administratorAccount",
                "databricksAccessToken",
                "sslConfiguration",
            ]
            .iter()
            .any(|kept| kept.eq_ignore_ascii_case(name))
        });
        map.insert("computeType".into(), json!(target.word()));
    }
    Ok(reply::ok(&answer))
}

/// PUT a Kubernetes compute. Its document is not stored as it was sent in two things: a kubeconfig is kept apart as the secret
/// that it is, and instance types that the cluster has are not made the compute's own by sending back what was shown.
async fn attach(
    api: &Arc<Api>,
    call: &Call,
    key: &DocKey,
    body: &mut Value,
    condition: Condition,
) -> Answer {
    if let Some(text) = kubernetes::kubeconfig_of(body)? {
        let digest = wire::places::hex(&Sha256::digest(text.as_bytes()));
        (api.keep)(&digest, text.as_bytes()).map_err(|error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalServerError",
                format!(
                    "the kubeconfig of compute {} cannot be kept: {error}",
                    key.path
                ),
            )
        })?;
        kubernetes::put_digest(body, &digest);
    }
    let view = api.control.view();
    let id = ComputeId::new(&key.workspace, key.path.clone());
    if let Some(record) = view.kubernetes.get(&id) {
        let others = view.types_of(record).into_iter();
        let others = others.filter(|(name, _)| !record.spec.types.contains_key(name));
        let shown = others.filter_map(|(name, seen)| match seen {
            TypeSeen::Usable(usable) => Some((name, usable)),
            TypeSeen::Broken(_) => None,
        });
        kubernetes::without_shown_types(body, &shown.collect());
    }
    let stored = put::put(api, key, condition, |before| {
        put::rendered(key, body, before)
    })
    .await?;
    let view = show::compute(api, &call.base, &stored.document);
    Ok(stored.respond(&view))
}

/// PATCH a compute. Azure's body has `properties.scaleSettings`; the place of the document is accepted too.
pub(crate) async fn update(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let mut patch: Value = call.json()?;
    Asked::remove(&mut patch);
    if let Some(properties) = patch.get_mut("properties").and_then(Value::as_object_mut)
        && let Some(scale) = properties.remove("scaleSettings")
    {
        put::merge(
            properties.entry("properties").or_insert_with(|| json!({})),
            &json!({"scaleSettings": scale}),
        );
    }
    let stored = put::put(&api, &key, condition::read(&call.headers)?, |before| {
        let before = before.ok_or_else(|| missing(&key))?;
        let mut body = put::body(before)?;
        let mut patch = patch.clone();
        if let Some(target) = Target::of(&body) {
            seal::seal_given(&api.seal, &before.key, &mut patch, target.secrets())?;
        }
        put::merge(&mut body, &patch);
        put::rendered(&key, &body, Some(before))
    })
    .await?;
    let view = show::compute(&api, &call.base, &stored.document);
    Ok(stored.respond(&view))
}

/// DELETE a compute: over when its last node is gone.
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let id = ComputeId::new(&key.workspace, key.path.clone());
    match put::remove(&api, key, None, condition::read(&call.headers)?).await? {
        put::Removed::Now => Ok(Operation::DeleteCompute(id).accepted(&api, &call)),
        put::Removed::WasNotThere => Ok(reply::empty(StatusCode::NO_CONTENT)),
    }
}

/// POST listNodes.
pub(crate) fn nodes(api: &Arc<Api>, call: &Call) -> Answer {
    let key = key(api, call)?;
    api.control.get(&key)?.ok_or_else(|| missing(&key))?;
    let id = ComputeId::new(&key.workspace, key.path.clone());
    let view = api.control.view();
    Ok(reply::ok(&wire::view::compute::nodes(
        view.nodes_of(&id),
        None,
    )))
}

/// How many nodes a drill takes.
#[derive(Deserialize)]
#[serde(untagged)]
enum HowMany {
    Number(u32),
    Word(String),
}

/// The body of a drill.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Drill {
    nodes: HowMany,
    notice: Option<String>,
    hold_capacity: Option<String>,
}

/// Longest notice and longest time without capacity of a drill: a day.
const MAX_DRILL: Millis = Millis::secs(86_400);

/// POST preempt (ours): takes low-priority nodes away as a provider does.
pub(crate) async fn preempt(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let drill: Drill = call.json()?;
    let nodes = match &drill.nodes {
        HowMany::Number(0) => {
            return Err(Problem::user("nodes is 0, it must be at least 1, or `all`"));
        }
        HowMany::Number(n) => Some(*n),
        HowMany::Word(word) if word.eq_ignore_ascii_case("all") => None,
        HowMany::Word(word) => match word.parse() {
            Ok(n) if n > 0 => Some(n),
            _ => {
                return Err(Problem::user(format!(
                    "nodes is `{}`, it must be a number from 1, or `all`",
                    wire::names::shown(word)
                )));
            }
        },
    };
    let length = |name: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match wire::arm::time::parse_duration(text) {
            Some(length) if length <= MAX_DRILL => Ok(Some(length)),
            Some(_) => Err(Problem::user(format!(
                "{name} is {text}, at most P1D is allowed"
            ))),
            None => Err(Problem::user(format!(
                "{name} is `{}`, it must be a duration such as PT30S",
                wire::names::shown(text)
            ))),
        },
    };
    let document = api.control.get(&key)?.ok_or_else(|| missing(&key))?;
    let done = api
        .control
        .send(Request::Preempt {
            compute: ComputeId::new(&document.key.workspace, document.key.path.clone()),
            nodes,
            notice: length("notice", &drill.notice)?.unwrap_or_default(),
            hold: length("holdCapacity", &drill.hold_capacity)?,
        })
        .await?;
    let taken = match done.answer {
        Did::Preempted { nodes } => nodes,
        Did::Stored | Did::Run { .. } | Did::Canceling => Vec::new(),
    };
    let taken: Vec<String> = taken.iter().map(ToString::to_string).collect();
    Ok(reply::ok(&json!({"nodes": taken})))
}
