//! Create, replace, patch and apply: what each makes of the live object; `settle` does the rest.

use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::crd::{self, API_VERSION, KIND};

use super::{
    apply::{self, Force},
    fields,
    options::Options,
    patch as patches,
    refused::{Refused, Result},
    settle::{Draft, misnamed, settle},
};
use crate::{
    Api,
    arm::put::merge,
    call::Call,
    problem::{Answer, Problem},
};

/// Letters that a name of `generateName` ends with, and those that there are: no vowels, so no words.
const RANDOM: usize = 5;
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// POST: a new one.
pub(crate) async fn create(api: Arc<Api>, call: Call) -> Answer {
    Ok(created(&api, &call)
        .await
        .unwrap_or_else(Refused::into_response))
}

async fn created(api: &Api, call: &Call) -> Result<Response> {
    let options = Options::of(call)?;
    json_wanted(call)?;
    let sent: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    let given = sent["metadata"]["name"].as_str().unwrap_or_default();
    let prefix = sent["metadata"]["generateName"]
        .as_str()
        .unwrap_or_default();
    let checked = if given.is_empty() && !prefix.is_empty() {
        let mut named = sent.clone();
        named["metadata"]["name"] = generated(prefix)?.into();
        crd::check(&named, options.strictness)?
    } else {
        crd::check_bytes(&call.body, options.strictness)?
    };
    if checked.object["metadata"]["resourceVersion"]
        .as_str()
        .is_some_and(|text| !text.is_empty())
    {
        return Err(Refused::bad(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let name = checked.instance_type.name().to_owned();
    settle(api, &name, &options, |live| match live {
        Some(_) => Err(Refused::exists(&name)),
        None => Ok(Draft {
            checked: checked.clone(),
            entries: None,
        }),
    })
    .await
}

/// A name that begins so and was hardly ever given before.
fn generated(prefix: &str) -> Result<String> {
    let mut random = [0u8; RANDOM];
    getrandom::fill(&mut random)
        .map_err(|error| Refused::from(Problem::internal("randomness", &error)))?;
    let letters = random.map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
    Ok(prefix.chars().chain(letters).collect())
}

/// PUT: the whole object.
pub(crate) async fn replace(api: Arc<Api>, call: Call) -> Answer {
    Ok(replaced(&api, &call)
        .await
        .unwrap_or_else(Refused::into_response))
}

async fn replaced(api: &Api, call: &Call) -> Result<Response> {
    let options = Options::of(call)?;
    json_wanted(call)?;
    let name = call.param("n");
    let checked = crd::check_bytes(&call.body, options.strictness)?;
    settle(api, name, &options, |live| {
        if live.is_none() {
            return Err(Refused::not_found(name));
        }
        let version = &checked.object["metadata"]["resourceVersion"];
        if version.as_str().is_none_or(str::is_empty) {
            return Err(Refused::invalid(
                name,
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0x0: must be specified for an update",
            ));
        }
        Ok(Draft {
            checked: checked.clone(),
            entries: None,
        })
    })
    .await
}

/// PATCH, by the kind of patch that `Content-Type` says.
pub(crate) async fn patch(api: Arc<Api>, call: Call) -> Answer {
    Ok(patched(&api, &call)
        .await
        .unwrap_or_else(Refused::into_response))
}

async fn patched(api: &Api, call: &Call) -> Result<Response> {
    let options = Options::of(call)?;
    let name = call.param("n");
    match content_type(call) {
        "application/apply-patch+yaml" => applied(api, call, name, &options).await,
        kind @ ("application/merge-patch+json" | "application/json-patch+json") => {
            let merged: Option<Value> = match kind {
                "application/merge-patch+json" => {
                    let patch: Value = serde_json::from_slice(&call.body)
                        .map_err(|error| Refused::bad(format!("error decoding patch: {error}")))?;
                    if !patch.is_object() {
                        return Err(Refused::bad("error decoding patch: it is no object"));
                    }
                    Some(patch)
                }
                _ => None,
            };
            settle(api, name, &options, |live| {
                let mut object = live.ok_or_else(|| Refused::not_found(name))?.clone();
                match &merged {
                    Some(patch) => merge(&mut object, patch),
                    None => patches::operations(&mut object, &call.body)?,
                }
                Ok(Draft {
                    checked: crd::check(&object, options.strictness)?,
                    entries: None,
                })
            })
            .await
        }
        _ => Err(Refused::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
    }
}

async fn applied(api: &Api, call: &Call, name: &str, options: &Options) -> Result<Response> {
    if call.query.get("fieldManager").is_none_or(str::is_empty) {
        return Err(Refused::invalid(
            "",
            "fieldManager",
            "FieldValueRequired",
            "Required value: is required for apply patch",
        ));
    }
    let force = match call.query.get("force") {
        Some("true" | "1") => Force::Yes,
        _ => Force::No,
    };
    let mut sent = body(call)?;
    if !sent["metadata"]["managedFields"].is_null() {
        return Err(Refused::bad("metadata.managedFields must be nil"));
    }
    match sent["metadata"]["name"].as_str() {
        Some(own) if own != name => return Err(misnamed(own, name)),
        Some(_) => {}
        None if sent["metadata"].is_object() => sent["metadata"]["name"] = name.into(),
        None => {}
    }
    settle(api, name, options, |live| {
        let base = live.cloned().unwrap_or_else(|| json!({}));
        let entries = fields::read(&base).unwrap_or_default();
        let (object, entries) =
            apply::apply(&base, entries, &sent, &options.manager, force, options.now)
                .map_err(|conflicts| apply::refuse(name, &conflicts))?;
        Ok(Draft {
            checked: crd::check(&object, options.strictness)?,
            entries: Some(entries),
        })
    })
    .await
}

fn content_type(call: &Call) -> &str {
    let kind = call.header("content-type").unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

fn json_wanted(call: &Call) -> Result<()> {
    match content_type(call) {
        "" | "application/json" => Ok(()),
        _ => Err(Refused::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json",
        )),
    }
}

/// The body of an apply: YAML, or JSON.
fn body(call: &Call) -> Result<Value> {
    let sent = match serde_json::from_slice(&call.body) {
        Ok(sent) => sent,
        Err(_) => crd::from_yaml(call.text()?)
            .map_err(|error| Refused::bad(format!("error decoding YAML: {error}")))?,
    };
    if sent["kind"] != KIND || sent["apiVersion"] != API_VERSION || !sent["metadata"].is_object() {
        return Err(Refused::bad(format!(
            "the object to apply is no {KIND} of {API_VERSION} with metadata"
        )));
    }
    Ok(sent)
}
