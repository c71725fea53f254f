//! Online endpoints.

use super::envelope::{Site, fill, properties, resource, sent};
use crate::arm::online::{AuthMode, KEYS_MEMBER};
use model::Document;
use serde_json::{Value, json};

/// An endpoint, without its keys (W3). Whether it has `compute` tells clients which of the two kinds it is.
pub fn endpoint(site: &Site, document: &Document) -> Value {
    let name = document.key.path.as_str();
    let body = sent(document);
    let whole = Value::Object(body.clone());
    let mut p = properties(&body);
    p.remove(KEYS_MEMBER);
    p.remove("keys");
    p.insert("authMode".into(), json!(AuthMode::of(&whole).word()));
    let w = &document.key.workspace;
    let base = format!(
        "{}/online/{}/{}/{}/{name}",
        site.base, w.subscription, w.group, w.name
    );
    p.insert("scoringUri".into(), json!(format!("{base}/score")));
    p.insert("swaggerUri".into(), json!(format!("{base}/swagger.json")));
    p.insert("provisioningState".into(), json!("Succeeded"));
    fill(&mut p, "description", Value::Null);
    fill(&mut p, "properties", json!({}));
    fill(&mut p, "traffic", json!({}));
    fill(&mut p, "mirrorTraffic", json!({}));
    let mut out = resource(document, &format!("onlineEndpoints/{name}"), p);
    if let Some(map) = out.as_object_mut() {
        fill(map, "location", json!(site.location));
        fill(map, "tags", json!({}));
        fill(map, "identity", json!({"type": "SystemAssigned"}));
        fill(map, "kind", Value::Null);
    }
    out
}
