//! The end of every write: what was made of the live object is checked against it, and written only if it is still there (K2).

use axum::{http::StatusCode, response::Response};
use control::{Condition, Failure, Put, Request};
use model::{ClusterKey, ComputeId, DocKey, InstanceType, PodSpec, view::TypeRecord};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::crd::{self, GROUP, PLURAL};

use super::{
    fields::{self, Entry},
    object::{self, Identity},
    options::Options,
    read,
    refused::{Refused, Result},
};
use crate::{
    Api,
    arm::put::{by, warn},
    problem::Problem,
    reply, time,
};

/// Other writers that may come between before the client is told.
pub(super) const MAX_TRIES: usize = 16;
/// Types of a cluster: a hundred times what honest ones have; all of them are in memory and in every list.
const MAX_TYPES: usize = 2_000;
/// Bytes of one object: its annotations may have 256 KiB.
const MAX_OBJECT: usize = 512 << 10;

/// What a request makes of the live object.
pub(super) struct Draft {
    pub checked: crd::Checked,
    /// Who owns what; found by comparing when none.
    pub entries: Option<Vec<Entry>>,
}

/// Writes what `draft` makes of the live object, unless that changes nothing (K2, K3).
pub(super) async fn settle(
    api: &Api,
    name: &str,
    options: &Options,
    draft: impl Fn(Option<&Value>) -> Result<Draft>,
) -> Result<Response> {
    for _ in 0..MAX_TRIES {
        let view = api.control.view();
        let record = read::find(&view.types, name);
        let live = record.map(|record| object::of(record)).transpose()?;
        let draft = draft(live.as_ref())?;
        let fresh = fresh(name, live.as_ref(), &draft, options)?;
        let mut warnings = draft.checked.warnings.clone();
        if fresh.spec_changed {
            warnings.extend(too_large(&view, &draft.checked.instance_type));
        }
        let status = match live {
            Some(_) => StatusCode::OK,
            None => StatusCode::CREATED,
        };
        let answer = |object: Value| {
            let response = reply::json(status, &read::presented(object, options.form));
            Ok(warn(response, &warnings))
        };
        match (&live, record) {
            (Some(live), Some(record)) if same(live, &fresh.object) => {
                return answer(object::of(record)?);
            }
            (None, _) if view.types.records.size() >= MAX_TYPES => {
                let mut refused = Refused::new(
                    403,
                    "Forbidden",
                    format!(
                        "{PLURAL}.{GROUP} {name:?} is forbidden: the cluster has {MAX_TYPES} of them, which is its limit"
                    ),
                );
                *refused.details = json!({"name": name, "group": GROUP, "kind": PLURAL});
                return Err(refused);
            }
            _ => {}
        }
        if options.dry_run {
            let mut object = fresh.object;
            if let Some(record) = record {
                object["metadata"]["resourceVersion"] = record.revision.to_string().into();
            }
            return answer(object);
        }
        let put = Put {
            key: DocKey::instance_type(name),
            json: fresh.object.to_string().into(),
            declared: model::Declared::InstanceType(Arc::new(draft.checked.instance_type)),
            condition: record.map_or(Condition::Absent, |record| {
                Condition::Generation(record.generation)
            }),
            by: by(),
        };
        match api.control.send(Request::Put(put)).await {
            Ok(done) => {
                let generation = done.document.map_or(0, |document| document.generation);
                return answer(written(api, name, generation, fresh.object)?);
            }
            Err(Failure::Precondition { .. }) => {}
            Err(failure) => return Err(Problem::from(failure).into()),
        }
    }
    Err(Refused::stale(name))
}

/// The object as that write left it, with its resourceVersion: another write may have followed already.
fn written(api: &Api, name: &str, generation: u64, object: Value) -> Result<Value> {
    let view = api.control.view();
    let is =
        |record: &TypeRecord| record.declared.name() == name && record.generation == generation;
    let recent = view.types.recent.iter().find(|(.., record)| is(record));
    let record = recent
        .map(|(.., record)| record)
        .or_else(|| read::find(&view.types, name).filter(|record| is(record)));
    match record {
        Some(record) => object::of(record),
        None => Ok(object),
    }
}

/// What is to be stored.
struct Fresh {
    object: Value,
    spec_changed: bool,
}

fn fresh(name: &str, live: Option<&Value>, draft: &Draft, options: &Options) -> Result<Fresh> {
    let checked = &draft.checked.object;
    let own = draft.checked.instance_type.name();
    if own != name {
        return Err(misnamed(own, name));
    }
    let said = &checked["metadata"];
    let claim = |key: &str| said[key].as_str().filter(|text| !text.is_empty());
    if let Some(live) = live {
        let metadata = &live["metadata"];
        if claim("resourceVersion").is_some_and(|text| metadata["resourceVersion"] != text) {
            return Err(Refused::stale(name));
        }
        if let Some(uid) = claim("uid").filter(|uid| metadata["uid"] != *uid) {
            return Err(other_uid(name, uid, &metadata["uid"]));
        }
    } else if claim("resourceVersion").is_some() {
        return Err(Refused::stale(name));
    }
    let nothing = Value::Null;
    let before = live.unwrap_or(&nothing);
    let spec_changed = before["spec"] != checked["spec"];
    let identity = match live {
        Some(live) => {
            let identity = Identity::of(live);
            Identity {
                generation: identity.generation + u64::from(spec_changed),
                ..identity
            }
        }
        None => Identity {
            uid: uuid::Uuid::new_v4().to_string().into(),
            created: time::seconds(options.now).into(),
            generation: 1,
        },
    };
    let entries = match &draft.entries {
        Some(entries) => entries.clone(),
        None => {
            // What a client says of owners counts where it can be read; a new object has none yet.
            let said = live.and_then(|_| fields::read(checked));
            let entries = said.or_else(|| fields::read(before)).unwrap_or_default();
            fields::updated(entries, before, checked, &options.manager, options.now)
        }
    };
    let object = object::stored(checked, &identity, fields::write(&entries))?;
    let size = object.to_string().len();
    if size > MAX_OBJECT {
        return Err(Refused::new(
            413,
            "RequestEntityTooLarge",
            format!("the object has {size} bytes, the limit is {MAX_OBJECT}"),
        ));
    }
    Ok(Fresh {
        object,
        spec_changed,
    })
}

pub(super) fn other_uid(name: &str, wanted: &str, have: &Value) -> Refused {
    Refused::conflict(
        name,
        &format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            wire::names::shown(wanted),
            have.as_str().unwrap_or_default()
        ),
    )
}

/// Whether the live object, resourceVersion apart, is what would be stored.
fn same(live: &Value, fresh: &Value) -> bool {
    let mut live = live.clone();
    if let Some(metadata) = live["metadata"].as_object_mut() {
        metadata.shift_remove("resourceVersion");
    }
    live == *fresh
}

/// Said of a type that no machine of this cluster could ever hold, with the numbers.
fn too_large(view: &model::View, instance_type: &InstanceType) -> Option<String> {
    let cluster = view.clusters_seen.get(&ClusterKey::Embedded)?;
    let limits = instance_type.limits().clone();
    let mut requests = instance_type.requests().clone();
    requests.devices = limits.devices.clone();
    let mut selector = cluster.node_selector.clone();
    selector.extend(instance_type.node_selector().clone());
    let pod = PodSpec {
        compute: ComputeId::new(&model::Workspace::new("", "", ""), "embedded"),
        instance_type: instance_type.name().into(),
        requests,
        limits,
        selector,
        machine: None,
    };
    let unfit = cluster.ever_unfit(&pod)?;
    Some(format!(
        "instance type {} runs nowhere yet: {unfit}",
        instance_type.name()
    ))
}

pub(super) fn misnamed(own: &str, name: &str) -> Refused {
    Refused::bad(format!(
        "the name of the object ({}) does not match the name on the URL ({name})",
        wire::names::shown(own)
    ))
}
