//! What every ARM document has around its properties: id, name, type, tags, who and when.

use crate::arm::time::stamp;
use model::{Document, Workspace};
use serde_json::{Map, Value, json};

/// The location of workspaces that say nothing.
pub const LOCATION: &str = "local";

/// Where the client sees the server: what absolute addresses are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// `https://127.0.0.1:8443`, taken from the request's own Host header, without a slash at the end.
    pub base: String,
    /// Where the workspace is.
    pub location: String,
}

impl Site {
    /// Host and port, as the SDK needs it inside account names.
    pub fn host(&self) -> &str {
        self.base
            .split_once("://")
            .map_or(self.base.as_str(), |(_, host)| host)
    }
}

/// Who made and last changed it.
pub fn system_data(document: &Document) -> Value {
    json!({
        "createdAt": stamp(document.created),
        "createdBy": &*document.by,
        "createdByType": "User",
        "lastModifiedAt": stamp(document.modified),
        "lastModifiedBy": &*document.by,
        "lastModifiedByType": "User",
    })
}

/// The ETag of a document: its generation (D3).
pub fn etag(document: &Document) -> String {
    format!("\"{}\"", document.generation)
}

/// The body as sent; a stored document is JSON, since nothing else is accepted.
pub fn sent(document: &Document) -> Map<String, Value> {
    match serde_json::from_str(&document.json) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// The `properties` of a body.
pub fn properties(body: &Map<String, Value>) -> Map<String, Value> {
    body.get("properties")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// The same, taken out of a body for which `resource_of` puts others in their place.
pub fn take_properties(body: &mut Map<String, Value>) -> Map<String, Value> {
    match body.get_mut("properties").map(Value::take) {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    }
}

/// Sets `key` where it is absent or null.
pub fn fill(map: &mut Map<String, Value>, key: &str, value: Value) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value);
    }
}

/// A document under the workspace: `tail` is what follows the workspace's id (`computes/c`), `kind` the type's end.
pub fn resource(document: &Document, tail: &str, properties: Map<String, Value>) -> Value {
    resource_of(document, sent(document), tail, properties)
}

/// The same for a body that is read already; its own `properties` give way.
pub fn resource_of(
    document: &Document,
    body: Map<String, Value>,
    tail: &str,
    properties: Map<String, Value>,
) -> Value {
    let id = format!(
        "{}/{tail}",
        crate::names::workspace_id(&document.key.workspace)
    );
    let name = tail.rsplit('/').next().unwrap_or(tail);
    let collections: Vec<&str> = tail.split('/').step_by(2).collect();
    let mut out = body;
    for ours in ["id", "name", "type", "systemData", "etag"] {
        out.remove(ours);
    }
    let mut whole = Map::new();
    whole.insert("id".into(), json!(id));
    whole.insert("name".into(), json!(name));
    whole.insert(
        "type".into(),
        json!(format!(
            "{}/workspaces/{}",
            crate::names::PROVIDER,
            collections.join("/")
        )),
    );
    whole.insert("systemData".into(), system_data(document));
    whole.append(&mut out);
    super::canonical::identity(&mut whole);
    whole.insert("properties".into(), Value::Object(properties));
    Value::Object(whole)
}

/// The id of the workspace, for addresses outside ARM.
pub fn scope(workspace: &Workspace) -> String {
    crate::names::workspace_id(workspace)
}

/// A stable UUID made of a text: ids that Azure draws at random and clients only compare.
pub fn uuid_of(text: &str) -> String {
    use sha2::{Digest, Sha256};
    let d = crate::places::hex(&Sha256::digest(text.as_bytes()));
    format!(
        "{}-{}-5{}-a{}-{}",
        &d[..8],
        &d[8..12],
        &d[13..16],
        &d[17..20],
        &d[20..32]
    )
}

/// A page of a list.
pub fn page(value: Vec<Value>, next: Option<String>) -> Value {
    match next {
        Some(next) => json!({"value": value, "nextLink": next}),
        None => json!({"value": value, "nextLink": null}),
    }
}
