//! The two datastores of a workspace, and the signatures that open them.

use model::{DocKey, Document, Kind};
use std::sync::Arc;
use wire::{
    places::{ARTIFACTSTORE, BLOBSTORE},
    view,
};

use crate::{
    Api,
    access::Scope,
    call::Call,
    paging,
    problem::{Answer, Problem},
    reply, show, time,
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

/// GET a datastore.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let document = workspace(api, call)?;
    let view = view::workspace::datastore(&show::site(api, &call.base), &document, call.param("n"));
    Ok(reply::ok(&view.ok_or_else(|| missing(&document, call))?))
}

/// GET all, or only the default one.
pub(crate) fn list(api: &Arc<Api>, call: &Call) -> Answer {
    let document = workspace(api, call)?;
    let default_only = call
        .query
        .get("isDefault")
        .is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let mut items = view::workspace::datastores(&show::site(api, &call.base), &document);
    items.retain(|store| !default_only || store["properties"]["isDefault"] == true);
    Ok(reply::ok(&paging::body(call, items, None)))
}

/// POST listSecrets: a signature for the container.
pub(crate) fn secrets(api: &Arc<Api>, call: &Call) -> Answer {
    let document = workspace(api, call)?;
    let places = api.places(&document.key.workspace);
    let container = places
        .datastore(call.param("n"))
        .ok_or_else(|| missing(&document, call))?;
    let sas = api
        .sas
        .sign(Scope::Container(container.as_str()), ALL, time::now());
    Ok(reply::ok(&view::workspace::secrets(&sas)))
}

fn missing(workspace: &Document, call: &Call) -> Problem {
    Problem::missing(format!(
        "datastore {} does not exist in workspace {}, there are {BLOBSTORE} and {ARTIFACTSTORE}",
        wire::names::shown(call.param("n")),
        workspace.key.workspace.name
    ))
}
