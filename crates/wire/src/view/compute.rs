//! Clusters and their nodes.

use super::{
    envelope::{Site, fill, properties, resource, sent},
    status::code,
};
use crate::arm::{
    compute::cluster,
    instance::{self, Asked},
    kubernetes::DEFAULT_NAMESPACE,
    secrets,
    target::Target,
    time::stamp,
};
use model::{
    ClusterRecord, DEFAULT_INSTANCE_TYPE, Document, KubernetesRecord, NodeRecord, NodeState,
};
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
    let mut inner = match cluster(&Value::Object(body.clone())) {
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
    let deleting = record.map(|r| r.deleting);
    envelope(&mut outer, site, document, deleting, Attached::No);
    finish(site, document, name, outer)
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

/// A Kubernetes compute with the instance types that it offers at this moment. `trouble` is why its cluster cannot be used.
pub fn kubernetes(
    site: &Site,
    document: &Document,
    record: Option<&KubernetesRecord>,
    types: Map<String, Value>,
    trouble: Option<&str>,
) -> Value {
    let name = document.key.path.as_str();
    let body = sent(document);
    let mut outer = properties(&body);
    let mut inner = outer
        .get("properties")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    fill(&mut inner, "namespace", json!(DEFAULT_NAMESPACE));
    fill(
        &mut inner,
        "defaultInstanceType",
        json!(DEFAULT_INSTANCE_TYPE),
    );
    inner.insert("instanceTypes".into(), Value::Object(types));
    outer.insert("computeType".into(), json!("Kubernetes"));
    outer.insert("properties".into(), Value::Object(inner));
    fill(&mut outer, "description", Value::Null);
    fill(&mut outer, "resourceId", Value::Null);
    fill(&mut outer, "disableLocalAuth", json!(true));
    let errors = trouble.map(|message| {
        json!([{"error": {"code": "ClusterNotUsable", "message": message, "details": []}}])
    });
    envelope(
        &mut outer,
        site,
        document,
        record.map(|r| r.deleting),
        Attached::Yes,
    );
    outer.insert("provisioningErrors".into(), errors.unwrap_or_default());
    finish(site, document, name, outer)
}

/// How a compute instance stands: Azure's word for its state.
pub fn instance_state<'n>(
    asked: Asked,
    record: Option<&ClusterRecord>,
    nodes: impl Iterator<Item = &'n Arc<NodeRecord>>,
) -> &'static str {
    match record {
        None => return "Creating",
        Some(record) if record.deleting => return "Deleting",
        Some(_) => {}
    }
    let (mut up, mut busy, mut coming, mut going, mut broken) = (false, false, false, false, false);
    for node in nodes {
        match node.state {
            NodeState::Preparing => coming = true,
            NodeState::Idle => up = true,
            NodeState::Running { .. } => busy = true,
            NodeState::Leaving { .. } => going = true,
            NodeState::Unusable { .. } => broken = true,
            NodeState::Preempted => {}
        }
    }
    match asked {
        Asked::Stop if up || busy || coming || going => "Stopping",
        Asked::Stop => "Stopped",
        _ if going && asked == Asked::Restart => "Restarting",
        _ if busy => "JobRunning",
        _ if up => "Running",
        _ if broken && !coming => "Unusable",
        Asked::Create => "Creating",
        Asked::Restart => "Restarting",
        Asked::Start => "Starting",
    }
}

/// A compute instance: its one node says how it stands.
pub fn instance<'n>(
    site: &Site,
    document: &Document,
    record: Option<&ClusterRecord>,
    nodes: impl Iterator<Item = &'n Arc<NodeRecord>>,
) -> Value {
    let name = document.key.path.as_str();
    let body = sent(document);
    let mut outer = properties(&body);
    let body = Value::Object(body);
    let asked = Asked::of(&body);
    let mut inner = match instance::instance(&body) {
        Ok(instance) => instance.properties,
        Err(_) => Map::new(),
    };
    let state = instance_state(asked, record, nodes);
    let settled = matches!(state, "Running" | "JobRunning" | "Stopped");
    let errors = record.and_then(|r| r.why.as_ref()).map(
        |why| json!([{"error": {"code": code(why), "message": why.to_string(), "details": []}}]),
    );
    inner.insert("state".into(), json!(state));
    inner.insert("errors".into(), errors.unwrap_or(json!([])));
    inner.insert(
        "lastOperation".into(),
        json!({
            "operationName": asked.word(),
            "operationTime": stamp(document.modified),
            "operationStatus": if settled { "Succeeded" } else { "InProgress" },
            "operationTrigger": "User",
        }),
    );
    inner.insert(
        "createdBy".into(),
        json!({"userName": &*document.by, "userId": null, "userOrgId": null}),
    );
    fill(&mut inner, "applications", json!([]));
    fill(
        &mut inner,
        "connectivityEndpoints",
        json!({"publicIpAddress": null, "privateIpAddress": null}),
    );
    number_schedules(&mut inner, name);
    outer.insert("computeType".into(), json!(Target::ComputeInstance.word()));
    outer.insert("properties".into(), Value::Object(inner));
    fill(&mut outer, "description", Value::Null);
    fill(&mut outer, "disableLocalAuth", json!(true));
    let deleting = record.map(|r| r.deleting);
    envelope(&mut outer, site, document, deleting, Attached::No);
    if state == "Creating" {
        outer.insert("provisioningState".into(), json!("Creating"));
    }
    finish(site, document, name, outer)
}

/// Schedules have ids that only the server gives.
fn number_schedules(inner: &mut Map<String, Value>, name: &str) {
    let list = inner
        .get_mut("schedules")
        .and_then(|s| s.get_mut("computeStartStop"))
        .and_then(Value::as_array_mut);
    for (i, schedule) in list.into_iter().flatten().enumerate() {
        if let Some(map) = schedule.as_object_mut() {
            fill(
                map,
                "id",
                json!(super::envelope::uuid_of(&format!("{name}/{i}"))),
            );
            fill(map, "provisioningStatus", json!("Completed"));
        }
    }
}

/// A compute that was made elsewhere: its document, without its secrets (W3).
pub fn attached(site: &Site, document: &Document, target: Target) -> Value {
    let name = document.key.path.as_str();
    let mut body = Value::Object(sent(document));
    for pointer in target.secrets() {
        secrets::take(&mut body, pointer);
    }
    let mut outer = body.as_object().map(properties).unwrap_or_default();
    outer.insert("computeType".into(), json!(target.word()));
    fill(&mut outer, "properties", json!({}));
    fill(&mut outer, "description", Value::Null);
    fill(&mut outer, "resourceId", Value::Null);
    fill(&mut outer, "disableLocalAuth", json!(true));
    envelope(&mut outer, site, document, Some(false), Attached::Yes);
    finish(site, document, name, outer)
}

#[derive(Clone, Copy)]
enum Attached {
    Yes,
    No,
}

/// What every compute says of itself. `deleting` is absent until the first turn after its PUT.
fn envelope(
    outer: &mut Map<String, Value>,
    site: &Site,
    document: &Document,
    deleting: Option<bool>,
    attached: Attached,
) {
    let state = match deleting {
        None => "Creating",
        Some(true) => "Deleting",
        Some(false) => "Succeeded",
    };
    outer.insert("provisioningState".into(), json!(state));
    outer.insert("provisioningErrors".into(), Value::Null);
    outer.insert("createdOn".into(), json!(stamp(document.created)));
    outer.insert("modifiedOn".into(), json!(stamp(document.modified)));
    let attached = matches!(attached, Attached::Yes);
    outer.insert("isAttachedCompute".into(), json!(attached));
    outer.insert("computeLocation".into(), json!(site.location));
}

fn finish(site: &Site, document: &Document, name: &str, outer: Map<String, Value>) -> Value {
    let mut out = resource(document, &format!("computes/{name}"), outer);
    if let Some(map) = out.as_object_mut() {
        fill(map, "location", json!(site.location));
        fill(map, "tags", json!({}));
    }
    out
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
