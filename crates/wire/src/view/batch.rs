//! Batch endpoints and deployments.

use super::{
    envelope::{Site, fill, properties, resource, sent, uuid_of},
    workspace::TENANT,
};
use crate::arm::{
    asset::name_and_version,
    batch::{Deployment, ModelRef, deployment as read},
    time::duration,
};
use model::{Document, Workspace};
use serde_json::{Value, json};

/// Where an endpoint takes invokes.
pub fn scoring_uri(site: &Site, workspace: &Workspace, endpoint: &str) -> String {
    format!(
        "{}/batch/{}/{}/{}/{endpoint}/jobs",
        site.base, workspace.subscription, workspace.group, workspace.name
    )
}

/// A batch endpoint.
pub fn endpoint(site: &Site, document: &Document) -> Value {
    let name = document.key.path.as_str();
    let mut p = properties(&sent(document));
    fill(&mut p, "description", Value::Null);
    fill(&mut p, "properties", json!({}));
    p.insert("authMode".into(), json!("AADToken"));
    p.insert("provisioningState".into(), json!("Succeeded"));
    p.insert(
        "scoringUri".into(),
        json!(scoring_uri(site, &document.key.workspace, name)),
    );
    p.insert("swaggerUri".into(), Value::Null);
    let mut out = resource(document, &format!("batchEndpoints/{name}"), p);
    let identity = uuid_of(out["id"].as_str().unwrap_or_default());
    if let Some(map) = out.as_object_mut() {
        fill(map, "location", json!(site.location));
        fill(map, "tags", json!({}));
        map.insert(
            "identity".into(),
            json!({"type": "SystemAssigned", "principalId": identity, "tenantId": TENANT}),
        );
    }
    out
}

/// A deployment with every default filled in (§2.1.9).
pub fn deployment(site: &Site, document: &Document) -> Value {
    let (endpoint, name) = name_and_version(document.key.path.as_str());
    let body = sent(document);
    let mut p = properties(&body);
    if let Ok(d) = read(name, &Value::Object(body), &mut Vec::new()) {
        defaults(&d, &mut p);
    }
    fill(&mut p, "description", Value::Null);
    fill(&mut p, "properties", json!({}));
    fill(&mut p, "environmentVariables", json!({}));
    fill(&mut p, "environmentId", Value::Null);
    fill(&mut p, "codeConfiguration", Value::Null);
    p.insert("provisioningState".into(), json!("Succeeded"));
    let mut out = resource(
        document,
        &format!("batchEndpoints/{endpoint}/deployments/{name}"),
        p,
    );
    if let Some(map) = out.as_object_mut() {
        fill(map, "location", json!(site.location));
        fill(map, "tags", json!({}));
    }
    out
}

fn defaults(d: &Deployment, p: &mut serde_json::Map<String, Value>) {
    if let (ModelRef::Id(id), Some(Value::String(_))) = (&d.model, p.get("model")) {
        p.insert(
            "model".into(),
            json!({"referenceType": "Id", "assetId": id}),
        );
    }
    let level = match d.logging {
        "warning" => "Warning",
        "debug" => "Debug",
        _ => "Info",
    };
    let mut put = |key: &str, value: Value| p.insert(key.to_owned(), value);
    put("outputAction", json!(d.action.word()));
    put("outputFileName", json!(d.file));
    put("miniBatchSize", json!(d.mini_batch_size));
    put("maxConcurrencyPerInstance", json!(d.workers));
    put("errorThreshold", json!(d.error_threshold));
    put("loggingLevel", json!(level));
    put(
        "retrySettings",
        json!({"maxRetries": d.max_retries, "timeout": duration(d.timeout)}),
    );
    let resources = p
        .entry("resources")
        .or_insert_with(|| json!({"properties": {}}));
    if let Some(map) = resources.as_object_mut() {
        map.insert("instanceCount".into(), json!(d.instances));
        fill(map, "properties", json!({}));
    }
}
