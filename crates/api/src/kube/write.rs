//! Writing: what a request makes of the live object, checked, and written only if that object is still there (K2).

use axum::{http::StatusCode, response::Response};
use control::{Condition, Failure, Put, Request};
use model::{ClusterKey, ComputeId, DocKey, InstanceType, PodSpec, Time, view::TypeRecord};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::crd::{self, API_VERSION, GROUP, KIND, PLURAL, Strictness};

use super::{
    apply::{self, Force},
    fields::{self, Entry},
    object::{self, Identity},
    patch as patches,
    read::{self, Form},
    refused::{Refused, Result},
};
use crate::{
    Api,
    arm::put::{BY, merge, warn},
    call::Call,
    problem::{Answer, Problem},
    reply, time,
};

/// Other writers that may come between before the client is told.
const MAX_TRIES: usize = 16;
/// Types of a cluster: a hundred times what honest ones have; all of them are in memory and in every list.
const MAX_TYPES: usize = 2_000;
/// Bytes of one object: its annotations may have 256 KiB.
const MAX_OBJECT: usize = 512 << 10;
/// Bytes of a manager's name, as in Kubernetes.
const MAX_MANAGER: usize = 128;
/// Letters that a name of `generateName` ends with, and those that there are: no vowels, so no words.
const RANDOM: usize = 5;
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// What the query of a write says.
struct Options {
    dry_run: bool,
    strictness: Strictness,
    manager: String,
    now: Time,
    form: Form,
}

impl Options {
    fn of(call: &Call) -> Result<Options> {
        let strictness = match call.query.get("fieldValidation") {
            None | Some("" | "Warn") => Strictness::Warn,
            Some("Strict") => Strictness::Strict,
            Some("Ignore") => Strictness::Ignore,
            Some(other) => {
                return Err(Refused::invalid(
                    "",
                    "fieldValidation",
                    "FieldValueNotSupported",
                    &format!(
                        "Unsupported value: {:?}: supported values: \"Ignore\", \"Strict\", \"Warn\"",
                        wire::names::shown(other)
                    ),
                ));
            }
        };
        let agent = call.header("user-agent").unwrap_or("unknown");
        let manager = match call.query.get("fieldManager") {
            None | Some("") => agent.split('/').next().unwrap_or_default(),
            Some(name) => name,
        };
        if manager.len() > MAX_MANAGER || manager.chars().any(char::is_control) {
            return Err(Refused::invalid(
                "",
                "fieldManager",
                "FieldValueInvalid",
                &format!("Invalid value: at most {MAX_MANAGER} printable bytes"),
            ));
        }
        Ok(Options {
            dry_run: dry_run(call.query.get("dryRun"))?,
            strictness,
            manager: manager.to_owned(),
            now: time::now(),
            form: Form::of(call)?,
        })
    }
}

fn dry_run(text: Option<&str>) -> Result<bool> {
    match text {
        None | Some("") => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(Refused::invalid(
            "",
            "dryRun",
            "FieldValueNotSupported",
            &format!(
                "Unsupported value: {:?}: supported values: \"All\"",
                wire::names::shown(other)
            ),
        )),
    }
}

/// What a request makes of the live object.
struct Draft {
    checked: crd::Checked,
    /// Who owns what; found by comparing when none.
    entries: Option<Vec<Entry>>,
}

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

fn misnamed(own: &str, name: &str) -> Refused {
    Refused::bad(format!(
        "the name of the object ({}) does not match the name on the URL ({name})",
        wire::names::shown(own)
    ))
}

/// Writes what `draft` makes of the live object, unless that changes nothing (K2, K3).
async fn settle(
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
                refused.details = json!({"name": name, "group": GROUP, "kind": PLURAL});
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
            by: BY.into(),
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

fn other_uid(name: &str, wanted: &str, have: &Value) -> Refused {
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
