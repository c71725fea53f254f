//! Reading: one object, lists in pages, and the form that the client asks for.
//!
//! P1 the pages of a list are of one moment: the snapshot is kept, and a page of one that is not is 410;
//! P2 a revision that was not made yet is no older one: 504, as Kubernetes says "too large".

use axum::response::Response;
use model::view::{TypeRecord, Types};
use serde_json::{Map, Value, json};
use std::sync::{Arc, PoisonError};
use wire::crd::{API_VERSION, LIST_KIND};

use super::{
    object,
    refused::{Refused, Result},
    select::Selector,
    table::{self, Beside},
    watch,
};
use crate::{Api, call::Call, problem::Answer, reply, time};

/// Snapshots that are kept for lists in pages; each is a few words, its objects are shared.
const SNAPSHOTS: usize = 16;

/// How an object is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    Table(Beside),
}

impl Form {
    /// The first form of `Accept` that there is.
    pub fn of(call: &Call) -> Result<Form> {
        let accept = call.header("accept").unwrap_or("*/*");
        let beside = match call.query.get("includeObject") {
            None | Some("" | "Metadata") => Beside::Metadata,
            Some("None") => Beside::Nothing,
            Some("Object") => Beside::Whole,
            Some(other) => {
                return Err(Refused::bad(format!(
                    "invalid includeObject: {}",
                    wire::names::shown(other)
                )));
            }
        };
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            if !["application/json", "application/*", "*/*", ""].contains(&kind) {
                continue;
            }
            match parts.find_map(|part| part.strip_prefix("as=")) {
                None => return Ok(Form::Object),
                Some("Table") => return Ok(Form::Table(beside)),
                Some(_) => {}
            }
        }
        Err(Refused::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io",
        ))
    }
}

/// An object in a form.
pub(super) fn presented(object: Value, form: Form) -> Value {
    match form {
        Form::Object => object,
        Form::Table(beside) => {
            let mut list = Map::new();
            list.insert(
                "resourceVersion".into(),
                object["metadata"]["resourceVersion"].clone(),
            );
            table::types(&[object], list, beside, time::now())
        }
    }
}

/// Whether a list request is a watch.
pub(super) fn watches(call: &Call) -> bool {
    matches!(call.query.get("watch"), Some("true" | "1"))
}

/// The record of exactly this name: keys compare without case, names of Kubernetes do not.
pub(super) fn find<'t>(types: &'t Types, name: &str) -> Option<&'t Arc<TypeRecord>> {
    let record = types.records.get(&model::Name::from(name))?;
    (record.declared.name() == name).then_some(record)
}

/// GET one.
pub(crate) async fn get(api: Arc<Api>, call: Call) -> Answer {
    Ok(one(&api, &call).unwrap_or_else(Refused::into_response))
}

fn one(api: &Arc<Api>, call: &Call) -> Result<Response> {
    let form = Form::of(call)?;
    let name = call.param("n");
    let view = api.control.view();
    if let Some(revision) = revision(call)? {
        not_from_tomorrow(revision, &view.types)?;
    }
    let record = find(&view.types, name).ok_or_else(|| Refused::not_found(name))?;
    Ok(reply::ok(&presented(object::of(record)?, form)))
}

/// GET the list, or a watch.
pub(crate) async fn list(api: Arc<Api>, call: Call) -> Answer {
    Ok(all(&api, &call).unwrap_or_else(Refused::into_response))
}

fn all(api: &Arc<Api>, call: &Call) -> Result<Response> {
    let form = Form::of(call)?;
    if watches(call) {
        return watch::types(api, call, form);
    }
    if call.query.get("sendInitialEvents").is_some() {
        return Err(Refused::option(
            "sendInitialEvents",
            "Forbidden: sendInitialEvents is forbidden for list",
        ));
    }
    let selector = Selector::of(&call.query)?;
    let limit = limit(call)?;
    let place = call.query.get("continue").filter(|text| !text.is_empty());
    let (types, after) = match place {
        Some(token) => resumed(api, call, token)?,
        None => (started(api, call)?, None),
    };
    let (mut items, mut left) = (Vec::new(), 0usize);
    for (name, record) in types.records.iter() {
        if after.as_deref().is_some_and(|after| name.as_str() <= after) {
            continue;
        }
        if limit.is_some_and(|limit| items.len() >= limit) && selector.is_empty() {
            left += 1;
            continue;
        }
        let object = object::of(record)?;
        if !selector.takes(&object) {
            continue;
        }
        if limit.is_some_and(|limit| items.len() >= limit) {
            left += 1;
            break;
        }
        items.push(object);
    }
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), types.revision.to_string().into());
    if left > 0 {
        let last = items.last().map(|item| item["metadata"]["name"].clone());
        let token = json!({"rv": types.revision, "after": last});
        metadata.insert(
            "continue".into(),
            crate::base64(token.to_string().as_bytes()).into(),
        );
        if selector.is_empty() {
            metadata.insert("remainingItemCount".into(), left.into());
        }
        keep(api, types);
    }
    Ok(reply::ok(&match form {
        Form::Object => json!({
            "apiVersion": API_VERSION, "kind": LIST_KIND, "metadata": metadata, "items": items,
        }),
        Form::Table(beside) => table::types(&items, metadata, beside, time::now()),
    }))
}

fn limit(call: &Call) -> Result<Option<usize>> {
    match call.query.get("limit") {
        None | Some("" | "0") => Ok(None),
        Some(text) => match text.parse() {
            Ok(limit) => Ok(Some(limit)),
            Err(_) => Err(Refused::bad(format!(
                "limit is {}, it must be a number",
                wire::names::shown(text)
            ))),
        },
    }
}

/// `resourceVersion`; none and 0 mean whatever there is.
pub(super) fn revision(call: &Call) -> Result<Option<u64>> {
    match call.query.get("resourceVersion") {
        None | Some("" | "0") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            Refused::bad(format!(
                "Invalid value: {:?}: a resourceVersion is a number",
                wire::names::shown(text)
            ))
        }),
    }
}

/// P2.
pub(super) fn not_from_tomorrow(revision: u64, types: &Types) -> Result<()> {
    if revision <= types.revision {
        return Ok(());
    }
    let mut refused = Refused::new(
        504,
        "Timeout",
        format!(
            "Too large resource version: {revision}, current: {}",
            types.revision
        ),
    );
    *refused.details = json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    });
    Err(refused)
}

pub(super) fn expired(message: impl Into<String>) -> Refused {
    Refused::new(410, "Expired", message)
}

/// A list from its beginning.
fn started(api: &Api, call: &Call) -> Result<Types> {
    let types = api.control.view().types.clone();
    let revision = revision(call)?;
    match (call.query.get("resourceVersionMatch"), revision) {
        (None | Some(""), None) => Ok(types),
        (None | Some("" | "NotOlderThan"), Some(revision)) => {
            not_from_tomorrow(revision, &types)?;
            Ok(types)
        }
        (Some("NotOlderThan"), None) if call.query.get("resourceVersion") == Some("0") => Ok(types),
        (Some("Exact"), Some(revision)) if revision == types.revision => Ok(types),
        (Some("Exact"), Some(revision)) => {
            not_from_tomorrow(revision, &types)?;
            kept(api, revision)
                .ok_or_else(|| expired(format!("The resourceVersion {revision} is too old")))
        }
        (Some("Exact" | "NotOlderThan"), None) => Err(Refused::option(
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        (Some(other), _) => Err(Refused::option(
            "resourceVersionMatch",
            &format!(
                "Unsupported value: {:?}: supported values: \"Exact\", \"NotOlderThan\"",
                wire::names::shown(other)
            ),
        )),
    }
}

/// A list from where a page ended (P1).
fn resumed(api: &Api, call: &Call, token: &str) -> Result<(Types, Option<String>)> {
    let wrong = || Refused::bad("continue key is not valid");
    if revision(call)?.is_some() {
        return Err(Refused::bad(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let bytes = crate::from_base64(token).ok_or_else(wrong)?;
    let place: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
    let after = place["after"].as_str().ok_or_else(wrong)?.to_owned();
    let now = || api.control.view().types.clone();
    // the token that a 410 gave: the rest as it is now
    let Some(revision) = place["rv"].as_u64() else {
        return Ok((now(), Some(after)));
    };
    let types = Some(now()).filter(|types| types.revision == revision);
    match types.or_else(|| kept(api, revision)) {
        Some(types) => Ok((types, Some(after))),
        None => {
            let mut refused = expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            );
            let token = json!({"after": after}).to_string();
            refused.continue_with(&crate::base64(token.as_bytes()));
            Err(refused)
        }
    }
}

fn keep(api: &Api, types: Types) {
    let mut paged = api
        .kube
        .paged
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if paged.iter().any(|kept| kept.revision == types.revision) {
        return;
    }
    if paged.len() >= SNAPSHOTS {
        paged.pop_front();
    }
    paged.push_back(types);
}

fn kept(api: &Api, revision: u64) -> Option<Types> {
    let paged = api
        .kube
        .paged
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    paged
        .iter()
        .find(|types| types.revision == revision)
        .cloned()
}
