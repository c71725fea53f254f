//! Addresses of outputs: what an asset id of a run's output means (wire §6).

use model::{DocKey, Kind};
use serde_json::{Value, json};
use std::{cell::RefCell, sync::Arc};
use wire::view::history;

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
    let body = history::resolved_uris(&request, &find)?;
    match broken.take() {
        Some(problem) => Err(problem),
        None => Ok(body),
    }
}
