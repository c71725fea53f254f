//! Workspaces. One exists once it was created; the server's own always does.

use axum::http::StatusCode;
use control::Page;
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
    let workspace = api.workspace(&workspace)?.unwrap_or(workspace);
    let body: Value = call.json()?;
    let key = key(&workspace);
    let condition = condition::read(&call.headers)?;
    let stored = put::put(&api, &key, condition, |before| {
        Ok(put::as_sent(&key, call.text()?, &body, before)?)
    })
    .await?;
    api.learn(stored.document.key.workspace.clone());
    let view = workspace::workspace(&show::site(&api, &call.base), &stored.document);
    Ok(stored.respond(&view))
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
