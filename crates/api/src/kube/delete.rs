//! Removing one: it is gone at once, since nothing here has finalizers.

use axum::response::Response;
use control::{Condition, Failure, Request};
use model::DocKey;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::crd::{GROUP, PLURAL};

use super::{
    object,
    options::dry_run,
    read,
    refused::{Refused, Result},
    settle::{MAX_TRIES, other_uid},
};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// DELETE one.
pub(crate) async fn delete(api: Arc<Api>, call: Call) -> Answer {
    Ok(deleted(&api, &call)
        .await
        .unwrap_or_else(Refused::into_response))
}

async fn deleted(api: &Api, call: &Call) -> Result<Response> {
    let name = call.param("n");
    let options: Value = match call.body.as_ref() {
        [] => Value::Null,
        body => serde_json::from_slice(body)
            .map_err(|error| Refused::bad(format!("the options are no JSON: {error}")))?,
    };
    let dry = dry_run(call.query.get("dryRun"))?
        || options["dryRun"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
    for _ in 0..MAX_TRIES {
        let view = api.control.view();
        let record = read::find(&view.types, name).ok_or_else(|| Refused::not_found(name))?;
        let uid = object::of(record)?["metadata"]["uid"].clone();
        let wants = &options["preconditions"];
        if let Some(wanted) = wants["uid"].as_str().filter(|wanted| uid != *wanted) {
            return Err(other_uid(name, wanted, &uid));
        }
        let revision = record.revision.to_string();
        if let Some(wanted) = wants["resourceVersion"].as_str().filter(|w| *w != revision) {
            return Err(Refused::conflict(
                name,
                &format!(
                    "Precondition failed: ResourceVersion in precondition: {}, ResourceVersion in object meta: {revision}",
                    wire::names::shown(wanted)
                ),
            ));
        }
        let gone = || {
            reply::ok(&json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": name, "group": GROUP, "kind": PLURAL, "uid": uid},
            }))
        };
        if dry {
            return Ok(gone());
        }
        let remove = Request::Remove {
            key: DocKey::instance_type(name),
            children: None,
            condition: Condition::Generation(record.generation),
        };
        match api.control.send(remove).await {
            Ok(_) => return Ok(gone()),
            Err(Failure::Precondition { .. }) => {}
            Err(Failure::Refused(model::Refusal::NotFound { .. })) => {
                return Err(Refused::not_found(name));
            }
            Err(failure) => return Err(Problem::from(failure).into()),
        }
    }
    Err(Refused::stale(name))
}
