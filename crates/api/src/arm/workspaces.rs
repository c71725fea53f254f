//! Workspaces. One exists once it was created; the server's own always does.
//!
//! W1 a workspace is deleted once it has no computes, and so nothing that runs;
//! W2 what it held stays, and is there again when it is created again; with `forceToPurge` it is gone for good.

use axum::http::StatusCode;
use control::{Condition, Page};
use model::{DocKey, Kind, Workspace};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wire::view::workspace;

use super::put;
use crate::{
    Api,
    call::Call,
    condition,
    identity::READ_WORKSPACE,
    paging,
    problem::{Answer, Problem},
    reply, show,
};

/// GET a workspace.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let stored = api.control.get(&key(&workspace))?;
    let document = show::workspace_document(api, &workspace, stored);
    let view = workspace::workspace(&show::site(api, &call.base), &document);
    Ok(if document.generation == 0 {
        reply::ok(&view)
    } else {
        reply::document(StatusCode::OK, &document, &view)
    })
}

fn key(workspace: &Arc<Workspace>) -> DocKey {
    DocKey::new(workspace, Kind::Workspace, "")
}

/// PUT a workspace.
pub(crate) async fn create(api: Arc<Api>, call: Call) -> Answer {
    let workspace = Workspace::new(call.param("s"), call.param("g"), call.param("w"));
    let body: Value = call.json()?;
    let stored = write(&api, &call, &workspace, call.text()?, &body).await?;
    let view = workspace::workspace(&show::site(&api, &call.base), &stored.document);
    Ok(stored.respond(&view))
}

/// Writes the document of a workspace.
pub(crate) async fn write(
    api: &Api,
    call: &Call,
    workspace: &Arc<Workspace>,
    text: &str,
    body: &Value,
) -> Result<put::Stored, Problem> {
    let workspace = api
        .workspace(workspace)?
        .unwrap_or_else(|| workspace.clone());
    let key = key(&workspace);
    let condition = condition::read(&call.headers)?;
    let stored = put::put(api, &key, condition, |before| {
        Ok(put::as_sent(&key, text, body, before)?)
    })
    .await?;
    api.learn(stored.document.key.workspace.clone());
    Ok(stored)
}

/// Documents that are removed together when a workspace is purged.
const STEP: usize = 100;

/// DELETE a workspace (W1, W2).
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    let named = Workspace::new(call.param("s"), call.param("g"), call.param("w"));
    let Some(workspace) = api.workspace(&named)? else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    let refuse = |message: String| Problem::new(StatusCode::CONFLICT, "Conflict", message);
    if workspace == api.home {
        return Err(refuse(format!(
            "workspace {} is the server's own and cannot be deleted",
            workspace.name
        )));
    }
    let key = key(&workspace);
    put::holds(
        condition::read(&call.headers)?,
        api.control.get(&key)?.as_ref(),
    )?;
    if let Some(compute) = compute_in(&api, &workspace)? {
        return Err(refuse(format!(
            "workspace {} has compute {compute}",
            workspace.name
        ))
        .hint("delete its computes first"));
    }
    let purge = call
        .query
        .get("forceToPurge")
        .is_some_and(|v| v.eq_ignore_ascii_case("true"));
    if purge {
        self::purge(&api, &workspace).await?;
    }
    put::remove(&api, key, None, Condition::Any).await?;
    api.forget(&workspace);
    Ok(reply::empty(StatusCode::OK))
}

/// A compute of the workspace that is there or on its way out.
fn compute_in(api: &Api, workspace: &Arc<Workspace>) -> Result<Option<String>, Problem> {
    let mut first = page(workspace, Kind::Compute, None, false);
    first.limit = 1;
    if let Some(document) = api.control.page(&first)?.0.first() {
        return Ok(Some(document.key.path.to_string()));
    }
    let view = api.control.view();
    let clusters = view.clusters.keys().chain(view.kubernetes.keys());
    let mut here = clusters.filter(|id| id.workspace() == workspace);
    Ok(here.next().map(ToString::to_string))
}

/// Removes every document of a workspace but its own, and its blobs. Repeatable: what a crash left is removed by the next.
async fn purge(api: &Arc<Api>, workspace: &Arc<Workspace>) -> Result<(), Problem> {
    const KINDS: [Kind; 9] = [
        Kind::BatchDeployment,
        Kind::BatchEndpoint,
        Kind::OnlineEndpoint,
        Kind::Job,
        Kind::Model,
        Kind::Data,
        Kind::Environment,
        Kind::Code,
        Kind::Datastore,
    ];
    let places = api.places(workspace);
    let mut containers = vec![
        places.blobs().clone(),
        places.artifacts().clone(),
        places.runs().clone(),
    ];
    for kind in KINDS {
        loop {
            let mut page = page(workspace, kind, None, false);
            page.limit = STEP;
            let (documents, _) = api.control.page(&page)?;
            if documents.is_empty() {
                break;
            }
            for document in &documents {
                let uri = put::body(document)?["properties"]["codeUri"].clone();
                if let Some(Ok(wire::places::Place::Blob(path))) =
                    uri.as_str().map(|uri| places.locate(uri))
                {
                    containers.extend(model::BlobPath::new(path.container()));
                }
            }
            let removals = documents
                .into_iter()
                .map(|document| put::remove(api, document.key, None, Condition::Any));
            for removed in futures_util::future::join_all(removals).await {
                removed?;
            }
        }
    }
    let blobs = api.control.blobs().clone();
    crate::blocking(move || {
        for container in &containers {
            blobs.delete_folder(container)?;
        }
        Ok(())
    })
    .await
}

/// PATCH a workspace: tags, description, friendly name.
pub(crate) async fn update(api: Arc<Api>, call: Call) -> Answer {
    let workspace = call.workspace(&api)?;
    let patch: Map<String, Value> = call.json()?;
    let patch = Value::Object(patch);
    let key = key(&workspace);
    let condition = condition::read(&call.headers)?;
    let stored = put::put(&api, &key, condition, |before| {
        let mut body = before
            .map(put::body)
            .transpose()?
            .unwrap_or_else(|| json!({}));
        put::merge(&mut body, &patch);
        put::rendered(&key, &body, before)
    })
    .await?;
    let view = workspace::workspace(&show::site(&api, &call.base), &stored.document);
    Ok(put::warn(
        reply::document(StatusCode::OK, &stored.document, &view),
        &stored.warnings,
    ))
}

/// GET the workspaces of a subscription or of one group.
pub(crate) fn list_in_subscription(api: &Arc<Api>, call: &Call) -> Answer {
    list(api, call, None)
}

/// GET the workspaces of a group.
pub(crate) fn list_in_group(api: &Arc<Api>, call: &Call) -> Answer {
    list(api, call, Some(call.param("g")))
}

fn list(api: &Api, call: &Call, group: Option<&str>) -> Answer {
    let wanted = paging::Wanted::of(call)?;
    let subscription = call.param("s");
    let mut names = api.workspaces_known();
    names.retain(|w| {
        w.subscription.as_str().eq_ignore_ascii_case(subscription)
            && group.is_none_or(|g| w.group.as_str().eq_ignore_ascii_case(g))
            && call
                .caller
                .as_ref()
                .is_some_and(|c| api.may(c, READ_WORKSPACE, &wire::names::workspace_id(w)))
    });
    names.sort();
    let place = |w: &Workspace| format!("{}/{}", w.group, w.name).to_ascii_lowercase();
    let after = wanted.after.unwrap_or_default();
    let mut rest = names.into_iter().filter(|w| place(w) > after);
    let page: Vec<_> = rest.by_ref().take(wanted.limit).collect();
    let next = (rest.next().is_some() && wanted.top.is_none())
        .then(|| page.last().map(|w| place(w)))
        .flatten();
    let site = show::site(api, &call.base);
    let items = page
        .iter()
        .map(|w| {
            let stored = api.control.get(&key(w))?;
            Ok(workspace::workspace(
                &site,
                &show::workspace_document(api, w, stored),
            ))
        })
        .collect::<Result<Vec<_>, Problem>>()?;
    Ok(reply::ok(&paging::body(call, items, next)))
}

/// GET a resource group: the SDK looks it up now and then. Every group exists.
pub(crate) fn group(api: &Arc<Api>, call: &Call) -> Answer {
    let (s, g) = (call.param("s"), call.param("g"));
    Ok(reply::ok(&json!({
        "id": format!("/subscriptions/{s}/resourceGroups/{g}"),
        "name": g,
        "type": "Microsoft.Resources/resourceGroups",
        "location": api.location,
        "properties": {"provisioningState": "Succeeded"},
    })))
}

/// A page of the documents of `kind` in the workspace of the request.
pub(crate) fn page(
    workspace: &Arc<Workspace>,
    kind: Kind,
    parent: Option<&str>,
    newest_first: bool,
) -> Page {
    Page {
        workspace: workspace.clone(),
        kind,
        parent: parent.map(str::to_owned),
        newest_first,
        after: None,
        limit: paging::PAGE,
    }
}
