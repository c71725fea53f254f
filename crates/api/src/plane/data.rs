//! Addresses of outputs: what an asset id of a run's output means (wire §6).

use model::{DocKey, Kind, Workspace};
use serde_json::{Value, json};
use std::{cell::RefCell, sync::Arc};
use wire::{
    arm::{asset, field::Field, link::Links},
    names,
    places::End,
    view::{asset::version, history},
};

use crate::{
    Api,
    arm::jobs,
    call::Call,
    problem::{Answer, Problem},
    reply, show,
};

/// POST dataversion/batchGetResolvedUris.
pub(crate) fn resolve(api: &Arc<Api>, call: &Call) -> Answer {
    Ok(reply::ok(&resolved(api, call)?))
}

/// POST models/batchGetResolvedUris: outputs that are models.
pub(crate) fn resolve_models(api: &Arc<Api>, call: &Call) -> Answer {
    let mut body = resolved(api, call)?;
    for (_, value) in body["values"].as_object_mut().into_iter().flatten() {
        *value = json!({"path": value["uri"]});
    }
    Ok(reply::ok(&body))
}

fn resolved(api: &Api, call: &Call) -> Result<Value, Problem> {
    let request: Value = call.json()?;
    let workspace = call.workspace(api)?;
    let broken = RefCell::new(None);
    // An id that means nothing is left out of the answer, as in Azure; a store that cannot be read is an error.
    let find = |run: &str| match jobs::find(api, &DocKey::new(&workspace, Kind::Job, run)) {
        Ok(found) => Some(show::of(&found).outputs()),
        Err(problem) if problem.status.is_client_error() => None,
        Err(problem) => {
            broken.replace(Some(problem));
            None
        }
    };
    let registered = |kind, name: &str, version: &str| {
        registered(api, &workspace, kind, name, version).unwrap_or_else(|problem| {
            broken.replace(Some(problem));
            None
        })
    };
    let body = history::resolved_uris(&request, &find, &registered)?;
    match broken.take() {
        Some(problem) => Err(problem),
        None => Ok(body),
    }
}

/// Address and type of an asset that is there; an address that leads nowhere is left out, as an id that means nothing is.
fn registered(
    api: &Api,
    workspace: &Arc<Workspace>,
    kind: names::Kind,
    name: &str,
    pin: &str,
) -> Result<Option<(String, String)>, Problem> {
    let path = format!("{name}/{pin}");
    let key = DocKey::new(workspace, asset::document_kind(kind), path.as_str());
    let Some(document) = api.control.get(&key)? else {
        return Ok(None);
    };
    let view = version(&document);
    let p = Field::root(&view).get("properties");
    let (uri, holds) = match kind {
        names::Kind::Model => (p.get("modelUri"), p.get("modelType")),
        _ => (p.get("dataUri"), p.get("dataType")),
    };
    let (Ok(Some(uri_text)), Ok(Some(holds))) = (uri.text(), holds.text()) else {
        return Ok(None);
    };
    let places = api.places(workspace);
    let found = api.looking(|look| {
        let links = Links {
            places: &places,
            look,
        };
        Ok(links.source(&uri, uri_text, kind).ok())
    })?;
    let end = if holds == "uri_file" {
        End::File
    } else {
        End::Folder
    };
    let at = found.and_then(|f| places.uri(&f.path, end));
    Ok(at.map(|at| (at, holds.to_owned())))
}
