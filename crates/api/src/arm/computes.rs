//! Computes: clusters and their nodes.

use axum::http::StatusCode;
use control::{Condition, Request};
use model::{Answer as Did, ComputeId, DocKey, Kind, Millis, kubernetes::TypeSeen};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use wire::arm::kubernetes;

use super::{operations::Operation, put, workspaces::page};
use crate::{
    Api,
    call::Call,
    condition, paging,
    problem::{Answer, Problem},
    reply, show,
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
    let stored = put::put(&api, &key, condition, |before| {
        Ok(put::as_sent(&key, call.text()?, &body, before)?)
    })
    .await?;
    let view = show::compute(&api, &call.base, &stored.document);
    Ok(stored.respond(&view))
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
