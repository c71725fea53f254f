//! The tables of what a status means, in the forms that a real API server gives.

use super::*;
use serde_json::{Value, json};

fn pod(status: Value, deleted: bool, node: Option<&str>) -> Pod {
    let mut metadata = json!({"name": "p", "uid": "u"});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-11-30T00:00:00Z");
    }
    serde_json::from_value(json!({
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": {"memory": "64Mi"}}}]},
        "status": status,
    }))
    .unwrap()
}

fn container(state: Value) -> Value {
    json!([{"name": "main", "image": "python:latest", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
}

fn ended(reason: &str, code: i32, message: &str) -> Value {
    container(json!({"terminated": {"reason": reason, "exitCode": code, "message": message}}))
}

#[test]
fn f2_what_waits_says_why() {
    let unscheduled = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
    }]});
    assert_eq!(
        look(&pod(unscheduled, false, None)).state,
        State::Unscheduled {
            why: "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.".into()
        }
    );
    assert_eq!(
        look(&pod(json!({"phase": "Pending"}), false, None)).state,
        State::Unscheduled {
            why: "the scheduler has not looked at it yet".into()
        }
    );
    let waits = |reason: &str| json!({"phase": "Pending", "containerStatuses": container(json!({"waiting": {"reason": reason, "message": "m"}}))});
    for (reason, hopeless) in [
        ("ErrImagePull", false),
        ("ImagePullBackOff", false),
        ("InvalidImageName", true),
        ("ErrImageNeverPull", true),
    ] {
        assert_eq!(
            look(&pod(waits(reason), false, Some("n"))).state,
            State::NoImage {
                why: format!("image python:latest: {reason}: m").into(),
                hopeless
            }
        );
    }
    assert_eq!(
        look(&pod(waits("CreateContainerConfigError"), false, Some("n"))).state,
        State::Creating {
            what: "CreateContainerConfigError: m".into()
        }
    );
    assert_eq!(
        look(&pod(waits("PodInitializing"), false, Some("n"))).state,
        State::Creating {
            what: "its pod is made ready".into()
        }
    );
}

#[test]
fn f1_what_the_program_did_is_its_own() {
    let over = |statuses: Value| {
        look(&pod(
            json!({"phase": "Failed", "containerStatuses": statuses}),
            false,
            Some("n"),
        ))
        .state
    };
    assert_eq!(over(ended("Error", 42, "")), State::Ended(Exit::Code(42)));
    assert_eq!(
        look(&pod(
            json!({"phase": "Succeeded", "containerStatuses": ended("Completed", 0, "")}),
            false,
            Some("n")
        ))
        .state,
        State::Ended(Exit::Code(0))
    );
    assert_eq!(
        over(ended("OOMKilled", 137, "")),
        State::Ended(Exit::OutOfMemory {
            limit: Bytes(64 << 20)
        })
    );
    let start = over(ended("StartError", 128, "exec: no such file"));
    assert_eq!(
        start,
        State::Ended(Exit::NotStarted {
            message: "image python:latest: StartError: exec: no such file".into()
        })
    );
    let running =
        json!({"phase": "Running", "containerStatuses": container(json!({"running": {}}))});
    assert_eq!(look(&pod(running, false, Some("n"))).state, State::Running);
}

#[test]
fn f1_what_the_cluster_did_is_nobodys_failure() {
    let taken = |status: Value, deleted: bool| match look(&pod(status, deleted, Some("n"))).state {
        State::Taken { why } => why.to_string(),
        other => panic!("{other:?}"),
    };
    for reason in [
        "PreemptionByScheduler",
        "DeletionByTaintManager",
        "EvictionByEvictionAPI",
        "DeletionByPodGC",
        "TerminationByKubelet",
    ] {
        let status = json!({
            "phase": "Failed", "containerStatuses": ended("Error", 143, ""),
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"}],
        });
        assert_eq!(taken(status, true), format!("{reason}: m"));
    }
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
    assert_eq!(
        taken(evicted, false),
        "Evicted: The node was low on resource: memory."
    );
    let shutdown = json!({"phase": "Failed", "reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."});
    assert!(taken(shutdown, false).starts_with("Terminated: "));
    let admission = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "m"});
    assert_eq!(taken(admission, false), "OutOfcpu: m");
    let by_hand = json!({"phase": "Failed", "containerStatuses": ended("Error", 143, "")});
    assert_eq!(taken(by_hand, true), "its pod was deleted");
    assert_eq!(
        taken(json!({"phase": "Unknown"}), false),
        "its machine is not reached any more"
    );
}

#[test]
fn a_disruption_is_known_while_the_pod_still_runs() {
    let status = json!({
        "phase": "Running", "containerStatuses": container(json!({"running": {}})),
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "m"}],
    });
    let seen = look(&pod(status, false, Some("n")));
    assert_eq!(
        (seen.state, seen.going.as_deref()),
        (State::Running, Some("DeletionByTaintManager: m"))
    );
}

#[test]
fn an_agent_that_cannot_be_brought_is_named_with_its_image() {
    let status = json!({"phase": "Failed", "initContainerStatuses": [{
        "name": "zaffre", "image": "zaffre:0.1.0", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"reason": "Error", "exitCode": 1, "message": "no space"}},
    }]});
    assert_eq!(
        look(&pod(status, false, Some("n"))).state,
        State::Ended(Exit::NotStarted {
            message: "our agent could not be brought from image zaffre:0.1.0: exit code 1: Error: no space".into(),
        })
    );
}
