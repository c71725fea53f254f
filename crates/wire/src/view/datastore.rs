//! Datastores that were attached. The workspace's own two are in `workspace`.

use super::envelope::{fill, properties, resource, sent};
use crate::arm::{
    datastore::{Credential, StoreType},
    field::Field,
};
use model::Document;
use serde_json::{Value, json};

/// A datastore, without its secrets (W3).
pub fn datastore(document: &Document) -> Value {
    let body = sent(document);
    let whole = Value::Object(body.clone());
    let mut p = properties(&body);
    if let Some(kind) = StoreType::of(&whole) {
        p.insert("datastoreType".into(), json!(kind.word()));
    }
    let spelled = p.keys().find(|k| k.eq_ignore_ascii_case("credentials"));
    if let Some(spelled) = spelled.cloned() {
        p.remove(&spelled);
    }
    let mut credentials = Field::root(&whole)
        .get("properties")
        .get("credentials")
        .object()
        .ok()
        .flatten()
        .cloned()
        .unwrap_or_default();
    credentials.retain(|name, _| !name.eq_ignore_ascii_case("secrets"));
    let kind = Credential::of(&whole);
    credentials.insert("credentialsType".into(), json!(kind.word()));
    p.insert("credentials".into(), Value::Object(credentials));
    p.insert("isDefault".into(), json!(false));
    fill(&mut p, "description", Value::Null);
    fill(&mut p, "tags", json!({}));
    fill(&mut p, "properties", json!({}));
    fill(&mut p, "serviceDataAccessAuthIdentity", json!("None"));
    resource(document, &format!("datastores/{}", document.key.path), p)
}
