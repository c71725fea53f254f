//! How runs and nodes look from outside: statuses, counts, reasons, and the fields that must never be null.

mod support;

use model::{
    Attempt, ClusterRecord, ClusterSpec, ComputeId, DocKey, Document, JobId, Kind, Millis, Name,
    NodeId, NodeRecord, NodeState, Outcome, RunRecord, RunSpec, RunState, Size, TaskId, Tier, Time,
    Why, Work, Workspace, batch::Progress, run::FirstError, unit::Bytes,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use wire::{
    places::Places,
    view::{self, Site, job::Job, status::status},
};

fn workspace() -> Arc<Workspace> {
    Workspace::new("s", "g", "w")
}

fn site() -> Site {
    Site {
        base: "https://h:1".into(),
        location: "local".into(),
    }
}

fn document(kind: Kind, path: &str, body: &Value) -> Document {
    Document {
        key: DocKey::new(&workspace(), kind, path),
        generation: 7,
        json: body.to_string().into(),
        created: Time(1000),
        modified: Time(2000),
        by: "me".into(),
    }
}

fn record(state: RunState, why: Option<Why>) -> RunRecord {
    let compute = ComputeId::new(&workspace(), "c1");
    let task = support::command(Places::of(&workspace()).artifacts_of("j").unwrap());
    RunRecord {
        id: JobId::new(&workspace(), "j"),
        spec: Arc::new(RunSpec {
            compute,
            instances: 1,
            task: Arc::new(task),
            work: Work::Command,
            timeout: None,
            instance_type: None,
            part: None,
        }),
        state,
        why,
        submitted: Time(1000),
        started: None,
        ended: None,
        tasks: BTreeMap::new(),
        attempt: Attempt(1),
        preemptions: 0,
        held_node: false,
        first_error: None,
        progress: None,
        given: 0,
        kept: None,
        family: None,
        registered: Default::default(),
    }
}

#[test]
fn statuses_are_azures() {
    use RunState as S;
    let coming = Why::NodesComing {
        need: 2,
        ready: 0,
        coming: 2,
        what: None,
    };
    let name: Name = "c1".into();
    let lost = || Why::AllNodesPreempted {
        compute: name.clone(),
        tier: Tier::LowPriority,
        done: 3,
        total: 9,
    };
    for (state, why, azure) in [
        (S::Queued, None, "Starting"),
        (S::Queued, Some(coming), "Queued"),
        (S::Queued, Some(Why::Listing), "Preparing"),
        (
            S::Queued,
            Some(Why::Behind {
                ahead: 1,
                first: name.clone(),
            }),
            "Queued",
        ),
        (
            S::Queued,
            Some(Why::WaitingForCapacity {
                compute: name.clone(),
            }),
            "Queued",
        ),
        (S::Queued, Some(Why::Publishing), "Finalizing"),
        (S::Preparing, None, "Preparing"),
        (S::Running, None, "Running"),
        (S::Running, Some(Why::Publishing), "Finalizing"),
        (
            S::Canceling(Outcome::Canceled(Why::CancelAsked)),
            None,
            "CancelRequested",
        ),
        (
            S::Canceling(Outcome::Failed(Why::NothingSucceeded { total: 1 })),
            None,
            "Finalizing",
        ),
        (S::Done(Outcome::Completed), None, "Completed"),
        (
            S::Done(Outcome::Failed(Why::NothingSucceeded { total: 1 })),
            None,
            "Failed",
        ),
        (S::Done(Outcome::Canceled(lost())), None, "Canceled"),
    ] {
        let run = record(state.clone(), why.clone());
        assert_eq!(status(&run), azure, "{state:?} {why:?}");
        assert_eq!(view::status::is_final(azure), state.is_done());
    }
}

#[test]
fn a_job_counts_and_explains() {
    let stored = document(
        Kind::Job,
        "j",
        &json!({"properties": {"jobType": "Pipeline", "properties": {"mine": "kept"}}}),
    );
    let why = Why::AllNodesPreempted {
        compute: "c1".into(),
        tier: Tier::LowPriority,
        done: 3,
        total: 9,
    };
    let mut run = record(RunState::Done(Outcome::Canceled(why.clone())), None);
    run.preemptions = 2;
    run.progress = Some(Progress {
        listed: true,
        total: 9,
        done: 3,
        rows: 30,
        retries: 1,
        rerun: 4,
        preemptions: 2,
        ..Progress::default()
    });
    run.first_error = Some(FirstError {
        mini_batch: Some(5),
        message: "ValueError: x".into(),
        task: 0,
    });
    let job = Job::new(&stored, Some(&run));
    let shown = view::job::job(&site(), &job);
    let p = &shown["properties"]["properties"];
    for (key, value) in [
        ("mine", "kept"),
        ("zaffre.preemptions", "2"),
        ("zaffre.retries", "1"),
        ("zaffre.rerun", "4"),
        ("zaffre.rows", "30"),
        ("zaffre.mini_batches_done", "3"),
        ("zaffre.mini_batches_total", "9"),
        ("zaffre.why_code", "PreemptionError"),
        ("zaffre.first_error", "mini-batch 5: ValueError: x"),
    ] {
        assert_eq!(p[key], value, "{key}");
    }
    assert_eq!(p["zaffre.why"], why.to_string());
    assert!(p["zaffre.hint"].as_str().unwrap().contains("--resume-from"));
    assert!(
        p.as_object().unwrap().values().all(Value::is_string),
        "the SDK wants a map of texts"
    );
    let details = view::history::details(
        &job,
        view::history::Which::Job,
        "Canceled",
        &BTreeMap::new(),
    );
    let error = &details["error"]["error"];
    assert_eq!(error["code"], "PreemptionError");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("3 of 9 mini-batches")
            && message.contains("mini-batch 5: ValueError: x")
            && message.contains("hint: ")
    );
    assert_eq!(
        details["warnings"][0]["message"],
        "2 nodes were preempted while the job held them"
    );
}

#[test]
fn a_cancel_that_was_asked_for_is_no_error() {
    assert_eq!(
        view::status::error(&record(
            RunState::Done(Outcome::Canceled(Why::CancelAsked)),
            None
        )),
        Value::Null
    );
    assert_eq!(
        view::status::error(&record(RunState::Running, None)),
        Value::Null
    );
}

#[test]
fn nothing_is_null_that_the_sdk_reads() {
    let bare = json!({"properties": {"modelUri": "azureml://datastores/workspaceblobstore/paths/m", "flavors": null}});
    let model = view::asset::version(&document(Kind::Model, "m/1", &bare));
    assert_eq!(model["properties"]["flavors"], json!({}));
    let stored = document(
        Kind::Job,
        "j",
        &json!({"properties": {"jobType": "command", "tags": null, "properties": null,
        "outputs": {"default": {"jobOutputType": "uri_folder"}, "m": null}}}),
    );
    for job in [
        view::job::job(&site(), &Job::new(&stored, None)),
        view::job::child(&site(), &Job::new(&stored, None)),
    ] {
        for key in ["services", "tags", "properties", "inputs", "outputs"] {
            assert!(job["properties"][key].is_object(), "{key}");
        }
        assert!(job["properties"]["services"]["Studio"]["endpoint"].is_string());
        assert_eq!(job["properties"]["outputs"].get("default"), None, "wire §6");
    }
    // even a body that could never be stored does not break a view
    for body in [
        json!(null),
        json!([]),
        json!({"properties": 1}),
        json!({"properties": {"properties": 1, "resources": 1}}),
    ] {
        for kind in [
            Kind::Compute,
            Kind::Model,
            Kind::BatchDeployment,
            Kind::BatchEndpoint,
            Kind::Job,
            Kind::Workspace,
        ] {
            let d = document(kind, "a/b", &body);
            let shown = match kind {
                Kind::Compute => view::compute::compute(&site(), &d, None, [].iter()),
                Kind::BatchDeployment => view::batch::deployment(&site(), &d),
                Kind::BatchEndpoint => view::batch::endpoint(&site(), &d),
                Kind::Job => view::job::job(&site(), &Job::new(&d, None)),
                Kind::Workspace => view::workspace::workspace(&site(), &d),
                _ => view::asset::version(&d),
            };
            assert!(shown["properties"].is_object() && shown["id"].is_string());
        }
    }
}

fn node(ordinal: u32, state: NodeState) -> Arc<NodeRecord> {
    let id = NodeId {
        compute: ComputeId::new(&workspace(), "c1"),
        ordinal,
        incarnation: 1,
    };
    Arc::new(NodeRecord {
        id,
        state,
        since: Time(0),
        asked: Time(0),
    })
}

#[test]
fn a_cluster_shows_its_nodes_and_what_it_lacks() {
    let body = json!({"properties": {"computeType": "amlcompute", "properties": {"vmPriority": "lowpriority", "extra": 1,
        "userAccountCredentials": {"adminUserName": "a", "adminUserPassword": ""}, "scaleSettings": {"maxNodeCount": 3}}}});
    let stored = document(Kind::Compute, "c1", &body);
    let task = TaskId {
        job: JobId::new(&workspace(), "j"),
        index: 0,
        attempt: Attempt(1),
    };
    let nodes = [
        node(0, NodeState::Running { task }),
        node(1, NodeState::Preempted),
        node(1, NodeState::Preparing),
    ];
    let size = Size {
        name: "x".into(),
        family: "f".into(),
        cores: 4,
        memory: Bytes(1),
        gpus: 0,
    };
    let spec = ClusterSpec {
        size,
        tier: Tier::LowPriority,
        min: 0,
        max: 3,
        idle: Millis(1),
        pods: None,
    };
    let why = Why::Quota {
        quota: "low-priority cores".into(),
        limit: 8,
        need: 4,
        left: 0,
        holders: vec![],
    };
    let record = ClusterRecord {
        id: ComputeId::new(&workspace(), "c1"),
        spec: Arc::new(spec),
        deleting: false,
        held_until: None,
        target: 3,
        why: Some(why),
        changed: Time(3000),
    };
    let shown = view::compute::compute(&site(), &stored, Some(&record), nodes.iter());
    let inner = &shown["properties"]["properties"];
    assert_eq!(inner["vmPriority"], "LowPriority");
    assert_eq!(
        (
            &inner["extra"],
            inner["scaleSettings"]["minNodeCount"].as_u64()
        ),
        (&json!(1), Some(0))
    );
    assert_eq!(
        inner["userAccountCredentials"].get("adminUserPassword"),
        None
    );
    assert_eq!(
        (
            inner["currentNodeCount"].as_u64(),
            inner["targetNodeCount"].as_u64()
        ),
        (Some(2), Some(3))
    );
    assert_eq!(
        inner["nodeStateCounts"],
        json!({"idleNodeCount": 0, "runningNodeCount": 1, "preparingNodeCount": 1,
        "unusableNodeCount": 0, "leavingNodeCount": 0, "preemptedNodeCount": 1})
    );
    assert_eq!(inner["allocationState"], "Resizing");
    assert_eq!(
        inner["errors"][0]["error"]["code"],
        "ClusterCoreQuotaReached"
    );
    assert!(
        inner["errors"][0]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("quota of low-priority cores is 8")
    );
    assert_eq!(shown["properties"]["provisioningState"], "Succeeded");
    let list = view::compute::nodes(nodes.iter(), None);
    let states: Vec<&str> = list["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["nodeState"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["running", "preempted", "preparing"]);
    assert_eq!(
        (&list["nodes"][0]["runId"], &list["nodes"][1]["runId"]),
        (&json!("j"), &Value::Null)
    );
    assert_eq!(view::envelope::etag(&stored), "\"7\"");
}

#[test]
fn an_output_asset_leads_back_to_its_run() {
    let asset = view::history::output_asset(&site(), &workspace(), "a_output_data_b", "c");
    let found = view::history::output_of_asset(&asset);
    assert_eq!(found, [("a_output_data_b", "c"), ("a", "b_output_data_c")]);
    assert_eq!(view::history::output_of_asset("azureml:x:1"), []);
}

#[test]
fn a_process_that_fails_is_told_in_azures_words() {
    let told = |how: &str| {
        let why = Why::Exited { how: how.into() };
        let run = record(RunState::Done(Outcome::Failed(why)), None);
        view::status::error(&run)["error"].clone()
    };
    assert_eq!(
        (
            &told("exit code 3")["code"],
            &told("exit code 3")["message"]
        ),
        (
            &json!("UserError"),
            &json!(
                "Execution failed. User process exited with status code 3. \
                 Please check log file 'user_logs/std_log.txt' for error details."
            )
        )
    );
    assert_eq!(told("killed by signal 9")["message"], "killed by signal 9");
}
