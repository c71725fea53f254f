//! Clusters and their nodes.

use super::{
    envelope::{Site, fill, properties, resource, sent},
    status::code,
};
use crate::arm::{compute::cluster, time::stamp};
use model::{ClusterRecord, Document, NodeRecord, NodeState};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A cluster. `record` is absent until the first turn after its PUT.
pub fn compute<'n>(
    site: &Site,
    document: &Document,
    record: Option<&ClusterRecord>,
    nodes: impl Iterator<Item = &'n Arc<NodeRecord>>,
) -> Value {
    let name = document.key.path.as_str();
    let body = sent(document);
    let mut outer = properties(&body);
    let mut inner = match cluster(name, &Value::Object(body.clone())) {
        Ok(cluster) => cluster.properties,
        Err(_) => Map::new(),
    };
    if let Some(account) = inner
        .get_mut("userAccountCredentials")
        .and_then(Value::as_object_mut)
    {
        account.remove("adminUserPassword"); // W3
    }
    allocation(&mut inner, document, record, nodes);
    outer.insert("computeType".into(), json!("AmlCompute"));
    outer.insert("properties".into(), Value::Object(inner));
    fill(&mut outer, "description", Value::Null);
    fill(&mut outer, "disableLocalAuth", json!(true));
    outer.insert(
        "provisioningState".into(),
        json!(match record {
            None => "Creating",
            Some(r) if r.deleting => "Deleting",
            Some(_) => "Succeeded",
        }),
    );
    outer.insert("provisioningErrors".into(), Value::Null);
    outer.insert("createdOn".into(), json!(stamp(document.created)));
    outer.insert("modifiedOn".into(), json!(stamp(document.modified)));
    outer.insert("isAttachedCompute".into(), json!(false));
    outer.insert("computeLocation".into(), json!(site.location));
    let mut out = resource(document, &format!("computes/{name}"), outer);
    if let Some(map) = out.as_object_mut() {
        fill(map, "location", json!(site.location));
        fill(map, "tags", json!({}));
    }
    out
}

fn allocation<'n>(
    inner: &mut Map<String, Value>,
    document: &Document,
    record: Option<&ClusterRecord>,
    nodes: impl Iterator<Item = &'n Arc<NodeRecord>>,
) {
    let [
        mut preparing,
        mut idle,
        mut running,
        mut leaving,
        mut preempted,
        mut unusable,
    ] = [0_u32; 6];
    for node in nodes {
        *match node.state {
            NodeState::Preparing => &mut preparing,
            NodeState::Idle => &mut idle,
            NodeState::Running { .. } => &mut running,
            NodeState::Leaving { .. } => &mut leaving,
            NodeState::Preempted => &mut preempted,
            NodeState::Unusable { .. } => &mut unusable,
        } += 1;
    }
    // a preempted node is shown and counts nowhere
    let current = preparing + idle + running + leaving + unusable;
    let target = record.map_or(0, |r| r.target);
    let steady = preparing + leaving == 0 && current == target;
    let since = record.map_or(document.modified, |r| r.changed);
    let errors = record.and_then(|r| r.why.as_ref()).map(
        |why| json!([{"error": {"code": code(why), "message": why.to_string(), "details": []}}]),
    );
    let mut put = |key: &str, value: Value| inner.insert(key.to_owned(), value);
    put(
        "allocationState",
        json!(if steady { "Steady" } else { "Resizing" }),
    );
    put("allocationStateTransitionTime", json!(stamp(since)));
    put("errors", errors.unwrap_or(Value::Null));
    put("currentNodeCount", json!(current));
    put("targetNodeCount", json!(target));
    put(
        "nodeStateCounts",
        json!({
            "idleNodeCount": idle,
            "runningNodeCount": running,
            "preparingNodeCount": preparing,
            "unusableNodeCount": unusable,
            "leavingNodeCount": leaving,
            "preemptedNodeCount": preempted,
        }),
    );
}

/// The answer of `listNodes`. Nodes here have no address of their own to log in to.
pub fn nodes<'n>(nodes: impl Iterator<Item = &'n Arc<NodeRecord>>, next: Option<String>) -> Value {
    let items: Vec<Value> = nodes.map(|n| node(n)).collect();
    json!({"nodes": items, "nextLink": next})
}

fn node(node: &NodeRecord) -> Value {
    json!({
        "nodeId": node.id.to_string(),
        "privateIpAddress": null,
        "publicIpAddress": null,
        "port": null,
        "nodeState": node.state.name(),
        "runId": node.state.task().map(|task| task.job.name().to_owned()),
    })
}
