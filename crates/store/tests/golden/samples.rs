//! One event of every shape that the log can hold, with every field filled.

#[path = "families.rs"]
mod families;

use model::{
    Attempt, BatchEvent, BatchSpec, BlobPath, Bytes, Declared, DocKey, Document, Event, Id, JobId,
    Kind, MilliCpu, Millis, NodeEvent, NodeId, Outcome, Place, PodSpec, Progress, Ranges,
    Resources, RunEvent, RunRecord, RunSpec, RunState, Shortage, TaskId, TaskSpec, Tier, Time, Why,
    Work, Workspace,
    batch::{BatchOutput, OnCapacityLoss},
    engine::{
        Cause, EnvironmentSpec, InputSpec, ModelSpec, OutputSpec, Packages, PoolSpec, Program,
        RowFormat,
    },
    kubernetes::{Obstacle, Taint, TaintEffect},
    run::{FirstError, Kept, TaskRecord},
    unfit::{Fix, Headline, Unfit},
    why::Holder,
};
use std::{collections::BTreeMap, sync::Arc};

fn workspace() -> Arc<Workspace> {
    Workspace::new("0000", "Group", "学習")
}
fn job(name: &str) -> JobId {
    Id::new(&workspace(), name)
}
fn node() -> NodeId {
    NodeId {
        compute: Id::new(&workspace(), "low-pri"),
        ordinal: 1,
        incarnation: 2,
    }
}
fn task() -> TaskId {
    TaskId {
        job: job("run-1"),
        index: 3,
        attempt: Attempt(4),
    }
}
fn path(text: &str) -> BlobPath {
    BlobPath::new(text).unwrap()
}
fn document(kind: Kind, name: &str) -> Document {
    Document {
        key: DocKey::new(&workspace(), kind, name),
        generation: 7,
        json: "{\"a\": \"line\\n\", \"n\":1.10}".into(),
        created: Time(1),
        modified: Time(2),
        by: "me".into(),
    }
}
fn ranges() -> Ranges {
    [0, 1, 2, 5].into_iter().collect()
}

fn task_spec(program: Program) -> Arc<TaskSpec> {
    let input = InputSpec::Path {
        source: path("data/in"),
        copy: true,
    };
    let output = OutputSpec {
        target: path("data/out"),
        file: false,
        register: None,
        address: None,
        remote: None,
    };
    Arc::new(TaskSpec {
        program,
        environment: EnvironmentSpec {
            label: "env:1".into(),
            image: Some("image".into()),
            packages: Packages::Conda("dependencies: []\n".into()),
        },
        code: Some(path("code/1")),
        inputs: BTreeMap::from([
            ("a".into(), InputSpec::Literal("1.10".into())),
            ("b".into(), input),
        ]),
        outputs: BTreeMap::from([("o".into(), output)]),
        model: Some(ModelSpec {
            source: path("models/heart/1"),
            mlflow: true,
        }),
        variables: BTreeMap::from([("KEY".into(), "it's".into())]),
        limits: Resources {
            cpu: MilliCpu(500),
            memory: Bytes(1 << 30),
            devices: BTreeMap::from([("nvidia.com/gpu".into(), 1)]),
        },
        artifacts: path("artifacts/run-1"),
    })
}

fn command() -> Arc<RunSpec> {
    let line = Program::Command {
        line: "echo \"学\" && true".into(),
    };
    Arc::new(RunSpec {
        compute: Id::new(&workspace(), "low-pri"),
        instances: 2,
        task: task_spec(line),
        work: Work::Command,
        timeout: Some(Millis(60_000)),
        instance_type: None,
        part: None,
    })
}

fn batch() -> Arc<RunSpec> {
    let pool = PoolSpec {
        workers: 2,
        script: Some("score.py".into()),
        arguments: Vec::new(),
        rows: None,
        shutdown: false,
        listing: path("system/run-1/listing"),
        root: path("data"),
        group: 10,
        timeout: Millis(30_000),
        format: RowFormat::Csv,
        collect: true,
        header: false,
        shared_output: path("data/shared"),
        logging_level: "info".into(),
    };
    let spec = BatchSpec {
        input: path("data/in"),
        input_is_folder: true,
        input_from: None,
        mini_batch_size: 10,
        workers_per_node: 2,
        max_retries: 3,
        timeout: Millis(30_000),
        error_threshold: -1,
        mini_batch_error_threshold: -1,
        allowed_failed_percent: 100,
        output: BatchOutput::AppendRow {
            file: "predictions.csv".into(),
        },
        output_folder: path("data/out"),
        segment: path("system/run-1/rows"),
        on_capacity_loss: OnCapacityLoss::Cancel,
        max_preemptions: Some(5),
        resume_from: Some(job("run-0")),
        fingerprint: "f00d".into(),
    };
    Arc::new(RunSpec {
        compute: Id::new(&workspace(), "low-pri"),
        instances: 2,
        task: task_spec(Program::Pool(pool)),
        work: Work::Batch(Box::new(spec)),
        timeout: None,
        instance_type: None,
        part: None,
    })
}

/// A parallel step of a pipeline: the same with what only such a step has.
fn parallel() -> Arc<RunSpec> {
    let mut run = (*batch()).clone();
    if let Work::Batch(spec) = &mut run.work {
        spec.input_from = Some("rows".into());
        spec.mini_batch_error_threshold = 3;
        spec.allowed_failed_percent = 20;
        spec.resume_from = None;
    }
    let mut task = (*run.task).clone();
    if let Program::Pool(pool) = &mut task.program {
        pool.arguments = vec!["--to".into(), "${{outputs.files}}".into()];
        pool.rows = Some("rows".into());
        pool.shutdown = true;
    }
    run.task = Arc::new(task);
    Arc::new(run)
}

fn pod() -> PodSpec {
    let amounts = |cpu| Resources {
        cpu: MilliCpu(cpu),
        memory: Bytes(1 << 30),
        devices: BTreeMap::from([("nvidia.com/gpu".into(), 1)]),
    };
    PodSpec {
        compute: Id::new(&workspace(), "k8s"),
        instance_type: "myinstancetypename".into(),
        requests: amounts(700),
        limits: amounts(1000),
        selector: BTreeMap::from([("mylabel".into(), "mylabelvalue".into())]),
        machine: Some("here".into()),
    }
}

/// Every headline, obstacle and fix cannot stand in one value; these are those with fields of their own kind.
fn unfit() -> Unfit {
    let taint = Taint {
        key: "dedicated".into(),
        value: "gpu".into(),
        effect: TaintEffect::NoSchedule,
    };
    let machine = || "n1".into();
    let obstacles = [
        Obstacle::NotReady { why: "disk".into() },
        Obstacle::Cordoned,
        Obstacle::Label {
            key: "a".into(),
            want: "b".into(),
            have: Some("c".into()),
        },
        Obstacle::Taint(taint.clone()),
        Obstacle::Cpu {
            need: MilliCpu(64_000),
            allocatable: MilliCpu(4000),
            taken: MilliCpu(0),
        },
        Obstacle::Memory {
            need: Bytes(3),
            allocatable: Bytes(2),
            taken: Bytes(1),
        },
        Obstacle::Device {
            name: "nvidia.com/gpu".into(),
            need: 1,
            allocatable: 0,
            taken: 0,
        },
        Obstacle::Pods { most: 110 },
    ];
    Unfit {
        headline: Headline::TooSmall {
            what: "cpu".into(),
            largest: "4".into(),
            need: "64".into(),
        },
        machines: obstacles.map(|o| ("n1".into(), o)).into(),
        more: 1,
        fixes: vec![
            Fix::Uncordon { machine: machine() },
            Fix::Label {
                machine: machine(),
                key: "a".into(),
                value: "b".into(),
            },
            Fix::Untaint {
                machine: machine(),
                taint,
            },
            Fix::Repair { machine: machine() },
            Fix::Free {
                machine: machine(),
                what: "1 pod".into(),
            },
            Fix::Lower {
                instance_type: "big".into(),
                path: "spec.resources.requests.cpu".into(),
                to: "4".into(),
            },
            Fix::AddMachine {
                with: "64 cpu".into(),
            },
        ],
    }
}

fn record() -> RunRecord {
    let running = TaskRecord {
        attempt: Attempt(4),
        place: Place::On(node()),
        running: true,
        stopping: false,
    };
    RunRecord {
        id: job("run-1"),
        spec: batch(),
        state: RunState::Done(Outcome::Failed(Why::NothingSucceeded { total: 9 })),
        why: Some(Why::Publishing),
        submitted: Time(1),
        started: Some(Time(2)),
        ended: Some(Time(3)),
        tasks: BTreeMap::from([(3, running)]),
        attempt: Attempt(4),
        preemptions: 5,
        held_node: true,
        first_error: Some(first_error()),
        progress: Some(Progress {
            listed: true,
            files: 90,
            total: 9,
            digest: "abc".into(),
            published: Some(100),
            ..Progress::default()
        }),
        given: 6,
        kept: Some(Kept {
            done: ranges(),
            failed_items: 1,
            header: Some("a,b".into()),
        }),
        family: None,
        registered: BTreeMap::new(),
    }
}

fn first_error() -> FirstError {
    FirstError {
        mini_batch: Some(2),
        message: "ValueError: x".into(),
        task: 3,
    }
}

fn node_events() -> Vec<NodeEvent> {
    vec![
        NodeEvent::Asked,
        NodeEvent::Ready,
        NodeEvent::Placed { task: task() },
        NodeEvent::Emptied,
        NodeEvent::Evicting { by: Time(30) },
        NodeEvent::Removing,
        NodeEvent::Preempted,
        NodeEvent::Broke { why: "no".into() },
        NodeEvent::Gone,
    ]
}

fn reasons() -> Vec<Why> {
    let holders = vec![Holder {
        compute: "other".into(),
        nodes: 2,
        cores: 8,
    }];
    vec![
        Why::NoSuchCompute {
            compute: "c".into(),
        },
        Why::Quota {
            quota: "low-priority cores".into(),
            limit: 100,
            need: 4,
            left: 2,
            holders,
        },
        Why::ClusterFull {
            nodes: 2,
            max: 2,
            holders: vec!["run-0".into()],
        },
        Why::TooManyInstances { need: 3, max: 2 },
        Why::NoRoom {
            shortage: Shortage::Cpu {
                need: MilliCpu(2),
                free: MilliCpu(1),
            },
        },
        Why::NoRoom {
            shortage: Shortage::Memory {
                need: Bytes(2),
                free: Bytes(1),
            },
        },
        Why::NoRoom {
            shortage: Shortage::Device {
                name: "gpu".into(),
                need: 2,
                free: 1,
            },
        },
        Why::NodesComing {
            need: 3,
            ready: 1,
            coming: 2,
            what: None,
        },
        Why::Behind {
            ahead: 1,
            first: "run-0".into(),
        },
        Why::CapacityHeld { until: Time(9) },
        Why::Preparing { what: "uv".into() },
        Why::Listing,
        Why::Publishing,
        Why::AllNodesPreempted {
            compute: "c".into(),
            tier: Tier::LowPriority,
            done: 1,
            total: 2,
        },
        Why::WaitingForCapacity {
            compute: "c".into(),
        },
        Why::CancelAsked,
        Why::TimedOut { limit: Millis(1) },
        Why::ErrorThreshold {
            failed: 2,
            threshold: 1,
        },
        Why::MiniBatchErrorThreshold {
            failed: 2,
            threshold: 1,
        },
        Why::AllowedFailedPercent {
            failed: 2,
            total: 9,
            percent: 20,
        },
        Why::NothingSucceeded { total: 2 },
        Why::ComputeDeleted {
            compute: "c".into(),
        },
        Why::TooManyPreemptions {
            mini_batch: 1,
            cap: 2,
        },
        Why::UserError {
            message: "e".into(),
            mini_batch: Some(1),
        },
        Why::Exited {
            how: "exit code 3".into(),
        },
        Why::Engine {
            message: "e".into(),
        },
        Why::NoSuchType {
            instance_type: "big".into(),
            compute: "k8s".into(),
            known: vec!["defaultinstancetype".into()],
        },
        Why::BrokenType {
            instance_type: "big".into(),
            message: "it contradicts".into(),
        },
        Why::Unschedulable {
            instance_type: "big".into(),
            pods: 1,
            of: 2,
            unfit: unfit(),
        },
        Why::Pod {
            message: "exceeded quota".into(),
            pods: 1,
            of: 2,
        },
        Why::Cluster {
            compute: "k8s".into(),
            message: "pods is forbidden".into(),
        },
        Why::GangAhead { first: "a".into() },
        Why::PodsAhead { limit: 500 },
        Why::CannotResume {
            from: job("run-0"),
            message: "m".into(),
        },
    ]
}

fn run_events() -> Vec<RunEvent> {
    let submitted = |spec| RunEvent::Submitted {
        document: document(Kind::Job, "run-1"),
        spec,
        request: Some("req".into()),
    };
    let mut events = vec![
        submitted(command()),
        submitted(batch()),
        submitted(parallel()),
        RunEvent::Explained { why: None },
        RunEvent::Placed {
            task: task(),
            place: Place::On(node()),
        },
        RunEvent::Placed {
            task: task(),
            place: Place::Matching(Box::new(pod())),
        },
        RunEvent::Started { task: task() },
        RunEvent::Stopping { task: task() },
        RunEvent::TaskEnded { task: task() },
        RunEvent::TaskLost { task: task() },
        RunEvent::TaskRecalled { task: task() },
        RunEvent::Erred {
            error: first_error(),
        },
        RunEvent::Canceling {
            outcome: Outcome::Canceled(Why::CancelAsked),
        },
        RunEvent::Finished {
            outcome: Outcome::Completed,
        },
        RunEvent::Retired {
            record: Box::new(record()),
        },
    ];
    let explained = |why| RunEvent::Explained { why: Some(why) };
    events.extend(reasons().into_iter().map(explained));
    events.extend(families::events());
    events
}

fn causes() -> Vec<Cause> {
    vec![
        Cause::Raised {
            message: "m".into(),
        },
        Cause::TimedOut { limit: Millis(1) },
        Cause::Died { how: "h".into() },
        Cause::OutOfMemory { limit: Bytes(1) },
        Cause::BadResult {
            message: "m".into(),
        },
    ]
}

fn batch_events() -> Vec<BatchEvent> {
    let mut events = vec![
        BatchEvent::Listed {
            files: 90,
            total: 9,
            digest: "abc".into(),
        },
        BatchEvent::Resumed {
            from: job("run-0"),
            done: ranges(),
            rows: 40,
            failed_items: 1,
            header: Some("a,b".into()),
        },
        BatchEvent::Lent {
            task: task(),
            lend: 1,
            indices: ranges(),
        },
        BatchEvent::Taken {
            task: task(),
            seq: 1,
            done: ranges(),
            rows: 40,
            failed_items: 1,
            short: 0,
            returned: Ranges::span(7, 9),
            discarded: 1,
            header: Some("a,b\n".into()),
        },
        BatchEvent::Taken {
            task: task(),
            seq: 2,
            done: ranges(),
            rows: 40,
            failed_items: 3,
            short: 2,
            returned: Ranges::new(),
            discarded: 0,
            header: None,
        },
        BatchEvent::Lost {
            task: task(),
            rerun: Ranges::span(1, 2),
            returned: ranges(),
        },
        BatchEvent::Published { bytes: 100 },
    ];
    let failed = |cause| BatchEvent::Failed {
        task: task(),
        index: 6,
        cause,
        last: true,
    };
    events.extend(causes().into_iter().map(failed));
    events
}

pub const KINDS: [Kind; 17] = [
    Kind::Workspace,
    Kind::Compute,
    Kind::Datastore,
    Kind::Code,
    Kind::Model,
    Kind::Environment,
    Kind::Data,
    Kind::BatchEndpoint,
    Kind::BatchDeployment,
    Kind::Job,
    Kind::Quota,
    Kind::InstanceType,
    Kind::Identity,
    Kind::RoleAssignment,
    Kind::OnlineEndpoint,
    Kind::Component,
    Kind::RoleDefinition,
];

pub fn events() -> Vec<Event> {
    let compute = || Id::new(&workspace(), "low-pri");
    let mut all: Vec<Event> = KINDS
        .iter()
        .map(|kind| Event::Declared {
            document: document(*kind, "Heart/1"),
            declared: Declared::Other,
        })
        .collect();
    all.extend([
        Event::Withdrawn {
            key: DocKey::new(&workspace(), Kind::Model, "Heart/1"),
            at: Time(3),
        },
        Event::ComputeGone { compute: compute() },
        Event::CapacityHeld {
            compute: compute(),
            until: Time(4),
        },
    ]);
    all.extend(node_events().into_iter().map(|event| Event::Node {
        node: node(),
        event,
        at: Time(5),
    }));
    all.extend(run_events().into_iter().map(|event| Event::Run {
        run: job("run-1"),
        event,
        at: Time(6),
    }));
    all.extend(batch_events().into_iter().map(|event| Event::Batch {
        run: job("run-1"),
        event,
        at: Time(7),
    }));
    all
}
