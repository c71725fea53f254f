//! Datastores: the two of a workspace, those that were attached, and what opens each.

use axum::http::StatusCode;
use control::Page;
use model::{DocKey, Document, Kind};
use serde_json::Value;
use std::sync::Arc;
use wire::{
    arm::datastore::{SECRETS, is_own, secrets_view},
    places::{ARTIFACTSTORE, BLOBSTORE},
    view,
};

use super::{put, workspaces::page};
use crate::{
    Api,
    access::Scope,
    call::Call,
    condition, paging,
    problem::{Answer, Problem},
    reply, seal, show, time,
};

/// What a client may do with a datastore: read, add, create, write, delete, list.
pub(crate) const ALL: &str = "racwdl";

/// The document of the workspace of the request.
fn workspace(api: &Api, call: &Call) -> Result<Document, Problem> {
    let workspace = call.workspace(api)?;
    let stored = api
        .control
        .get(&DocKey::new(&workspace, Kind::Workspace, ""))?;
    Ok(show::workspace_document(api, &workspace, stored))
}

fn key(api: &Api, call: &Call) -> Result<DocKey, Problem> {
    call.key(api, Kind::Datastore, call.param("n"))
}

/// GET a datastore.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let document = workspace(api, call)?;
    let site = show::site(api, &call.base);
    if let Some(own) = view::workspace::datastore(&site, &document, call.param("n")) {
        return Ok(reply::ok(&own));
    }
    let key = key(api, call)?;
    let document = api.control.get(&key)?.ok_or_else(|| missing(&key))?;
    let view = view::datastore::datastore(&document);
    Ok(reply::document(StatusCode::OK, &document, &view))
}

/// GET all, or only the default one. The workspace's own come first.
pub(crate) fn list(api: &Arc<Api>, call: &Call) -> Answer {
    let document = workspace(api, call)?;
    let flag = |name: &str| {
        let value = call.query.get(name)?;
        Some(value.eq_ignore_ascii_case("true"))
    };
    let wanted = paging::Wanted::of(call)?;
    let own = view::workspace::datastores(&show::site(api, &call.base), &document);
    let own = own.into_iter().filter(|store| match flag("isDefault") {
        Some(default) => (store["properties"]["isDefault"] == true) == default,
        None => true,
    });
    let mut items: Vec<Value> = match wanted.after {
        None => own.collect(),
        Some(_) => Vec::new(),
    };
    let mut next = None;
    if flag("isDefault") != Some(true) {
        let mut page: Page = page(&document.key.workspace, Kind::Datastore, None, false);
        let (attached, more) = paging::filtered(&api.control, &mut page, &wanted, |document| {
            Ok(Some(view::datastore::datastore(document)))
        })?;
        items.extend(attached);
        next = more;
    }
    Ok(reply::ok(&paging::body(call, items, next)))
}

/// PUT a datastore: attached, its secrets sealed.
pub(crate) async fn put(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    let body: Value = call.json()?;
    let stored = put::put(&api, &key, condition::read(&call.headers)?, |before| {
        wire::arm::parse(&key, &body, before)?;
        let sealed = seal::sealed(&api.seal, &key, &body, before, &SECRETS)?;
        put::rendered(&key, &sealed, before)
    })
    .await?;
    let view = view::datastore::datastore(&stored.document);
    Ok(stored.respond(&view))
}

/// DELETE a datastore: detached. What it holds stays where it is.
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    let key = key(&api, &call)?;
    if is_own(call.param("n")) {
        return Err(Problem::user(format!(
            "datastore {} is the workspace's own and cannot be removed",
            call.param("n")
        )));
    }
    Ok(
        match put::remove(&api, key, None, condition::read(&call.headers)?).await? {
            put::Removed::Now => reply::empty(StatusCode::OK),
            put::Removed::WasNotThere => reply::empty(StatusCode::NO_CONTENT),
        },
    )
}

/// POST listSecrets: a signature for a container of our own, what was given for an attached datastore.
pub(crate) fn secrets(api: &Arc<Api>, call: &Call) -> Answer {
    let document = workspace(api, call)?;
    let places = api.places(&document.key.workspace);
    if let Some(container) = places.datastore(call.param("n")) {
        let sas = api
            .sas
            .sign(Scope::Container(container.as_str()), ALL, time::now());
        return Ok(reply::ok(&view::workspace::secrets(&sas)));
    }
    let key = key(api, call)?;
    let document = api.control.get(&key)?.ok_or_else(|| missing(&key))?;
    let open = seal::opened(&api.seal, &document, &put::body(&document)?, &SECRETS)?;
    let secrets = secrets_view(&open).ok_or_else(|| {
        Problem::user(format!(
            "datastore {} has no credentials",
            document.key.path
        ))
    })?;
    Ok(reply::ok(&secrets))
}

fn missing(key: &DocKey) -> Problem {
    Problem::missing(format!(
        "datastore {} does not exist in workspace {}",
        wire::names::shown(key.path.as_str()),
        key.workspace.name
    ))
    .hint(format!(
        "a workspace has {BLOBSTORE} and {ARTIFACTSTORE}, and those that were attached"
    ))
}
