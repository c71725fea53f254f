//! The object of a record as clients see it, and what the server itself says of it.

use model::view::TypeRecord;
use serde_json::{Map, Value};

use super::refused::{Refused, Result};

/// The object with the resourceVersion `revision` (K1).
pub(super) fn rendered(json: &str, revision: u64) -> Result<Value> {
    let mut object: Value = serde_json::from_str(json).map_err(|error| {
        tracing::error!(%error, "a stored instance type is no JSON");
        Refused::new(
            500,
            "InternalError",
            "a stored instance type cannot be read",
        )
    })?;
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    Ok(object)
}

/// The object of a record.
pub(super) fn of(record: &TypeRecord) -> Result<Value> {
    rendered(&record.json, record.revision)
}

/// What the server says of an object, whatever the client sent.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub uid: Value,
    pub created: Value,
    pub generation: u64,
}

impl Identity {
    /// That of a stored object.
    pub fn of(object: &Value) -> Identity {
        let metadata = &object["metadata"];
        Identity {
            uid: metadata["uid"].clone(),
            created: metadata["creationTimestamp"].clone(),
            generation: metadata["generation"].as_u64().unwrap_or(1),
        }
    }
}

/// The object as it is stored: what the client may say, and what the server says; no resourceVersion (K1).
pub(super) fn stored(checked: &Value, identity: &Identity, managed: Value) -> Result<Value> {
    let said = &checked["metadata"];
    let name = said["name"].as_str().unwrap_or_default();
    for field in ["finalizers", "ownerReferences"] {
        if said[field].as_array().is_some_and(|list| !list.is_empty()) {
            return Err(Refused::invalid(
                name,
                &format!("metadata.{field}"),
                "FieldValueForbidden",
                "Forbidden: instance types here go at once and belong to nobody",
            ));
        }
    }
    let mut metadata = Map::new();
    for key in ["name", "generateName"] {
        if !said[key].is_null() {
            metadata.insert(key.into(), said[key].clone());
        }
    }
    metadata.insert("uid".into(), identity.uid.clone());
    metadata.insert("generation".into(), identity.generation.into());
    metadata.insert("creationTimestamp".into(), identity.created.clone());
    for key in ["labels", "annotations"] {
        if said[key].as_object().is_some_and(|map| !map.is_empty()) {
            metadata.insert(key.into(), said[key].clone());
        }
    }
    if managed.as_array().is_some_and(|list| !list.is_empty()) {
        metadata.insert("managedFields".into(), managed);
    }
    let mut object = Map::new();
    for key in ["apiVersion", "kind"] {
        object.insert(key.into(), checked[key].clone());
    }
    object.insert("metadata".into(), metadata.into());
    object.insert("spec".into(), checked["spec"].clone());
    Ok(object.into())
}
