//! The definition itself, to be read: install scripts wait for it before they apply types.

use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wire::crd::{KIND, LIST_KIND, NAME, PLURAL, SINGULAR, VERSION};

use super::{
    read::{self, Form},
    refused::{Refused, Result},
    select::Selector,
    table, watch,
};
use crate::{Api, call::Call, problem::Answer, reply, time};

/// It never changes while the server runs.
const REVISION: u64 = 1;

/// The definition as an API server shows it.
pub(super) fn shown(api: &Api) -> Value {
    let mut definition = wire::crd::definition();
    let since = time::seconds(api.started);
    definition["metadata"] = json!({
        "name": NAME, "uid": "00000000-0000-4000-8000-000000000001", "generation": 1,
        "resourceVersion": REVISION.to_string(), "creationTimestamp": since,
    });
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": since, "reason": reason, "message": message});
    definition["status"] = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": {"kind": KIND, "listKind": LIST_KIND, "plural": PLURAL, "singular": SINGULAR},
        "storedVersions": [VERSION],
    });
    definition
}

/// GET the definitions, or watch them.
pub(crate) async fn list(api: Arc<Api>, call: Call) -> Answer {
    Ok(all(&api, &call).unwrap_or_else(Refused::into_response))
}

fn all(api: &Arc<Api>, call: &Call) -> Result<Response> {
    let form = Form::of(call)?;
    if read::watches(call) {
        return watch::definition(api, call, form);
    }
    let selector = Selector::of(&call.query)?;
    let mut items = vec![shown(api)];
    items.retain(|item| selector.takes(item));
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), REVISION.to_string().into());
    Ok(reply::ok(&match form {
        Form::Object => json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinitionList",
            "metadata": metadata, "items": items,
        }),
        Form::Table(beside) => table::definitions(&items, metadata, beside),
    }))
}

/// GET one definition.
pub(crate) async fn one(api: Arc<Api>, call: Call) -> Answer {
    Ok(single(&api, &call).unwrap_or_else(Refused::into_response))
}

fn single(api: &Arc<Api>, call: &Call) -> Result<Response> {
    let form = Form::of(call)?;
    let name = call.param("n");
    if name != NAME {
        let message = format!("customresourcedefinitions.apiextensions.k8s.io {name:?} not found");
        let mut refused = Refused::new(404, "NotFound", message);
        *refused.details = json!({"name": name, "group": "apiextensions.k8s.io", "kind": "customresourcedefinitions"});
        return Err(refused);
    }
    Ok(reply::ok(&presented(shown(api), form)))
}

/// One definition in the form that was asked for.
pub(super) fn presented(definition: Value, form: Form) -> Value {
    match form {
        Form::Object => definition,
        Form::Table(beside) => {
            let mut metadata = Map::new();
            metadata.insert("resourceVersion".into(), REVISION.to_string().into());
            table::definitions(&[definition], metadata, beside)
        }
    }
}
