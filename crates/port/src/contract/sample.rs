//! Values that the cases share.

use model::{
    Attempt, BatchEvent, BlobPath, Declared, DocKey, Document, Event, Id, JobId, Kind, Outcome,
    Ranges, Resources, RunEvent, RunRecord, RunSpec, RunState, TaskId, TaskSpec, Time, Work,
    Workspace,
    batch::Span,
    engine::{EnvironmentSpec, Packages, Program},
};
use std::{collections::BTreeMap, sync::Arc};

pub fn place() -> Arc<Workspace> {
    Workspace::new("00000000-0000-0000-0000-000000000000", "Default", "Default")
}

pub fn path(text: &str) -> BlobPath {
    BlobPath::new(text).expect("the tests name legal paths")
}

pub fn document(workspace: &Arc<Workspace>, kind: Kind, name: &str, created: u64) -> Document {
    Document {
        key: DocKey::new(workspace, kind, name),
        generation: 1,
        json: format!(r#"{{ "name" : {name:?}, "n":1.10 }}"#).into(),
        created: Time(created),
        modified: Time(created),
        by: "ヤマダ".into(),
    }
}

pub fn declared(document: &Document) -> Event {
    Event::Declared {
        document: document.clone(),
        declared: Declared::Other,
    }
}

pub fn withdrawn(key: &DocKey) -> Event {
    Event::Withdrawn {
        key: key.clone(),
        at: Time(9),
    }
}

pub fn job(name: &str) -> JobId {
    Id::new(&place(), name)
}

pub fn spec() -> Arc<RunSpec> {
    let task = TaskSpec {
        program: Program::Command {
            line: "echo 'a \"b\"'\n".into(),
        },
        environment: EnvironmentSpec {
            label: "env:1".into(),
            image: None,
            packages: Packages::None,
        },
        code: None,
        inputs: BTreeMap::new(),
        outputs: BTreeMap::new(),
        model: None,
        variables: BTreeMap::new(),
        limits: Resources::default(),
        artifacts: path("artifacts/run"),
    };
    Arc::new(RunSpec {
        compute: Id::new(&place(), "cluster"),
        instances: 1,
        task: Arc::new(task),
        work: Work::Command,
        timeout: None,
        instance_type: None,
        part: None,
    })
}

pub fn submitted(job: &JobId, created: u64) -> Event {
    Event::Run {
        run: job.clone(),
        event: RunEvent::Submitted {
            document: document(job.workspace(), Kind::Job, job.name(), created),
            spec: spec(),
            request: Some("req".into()),
        },
        at: Time(created),
    }
}

pub fn record(job: &JobId) -> RunRecord {
    RunRecord {
        id: job.clone(),
        spec: spec(),
        state: RunState::Done(Outcome::Completed),
        why: None,
        submitted: Time(1),
        started: Some(Time(2)),
        ended: Some(Time(3)),
        tasks: BTreeMap::new(),
        attempt: Attempt(1),
        preemptions: 2,
        held_node: true,
        first_error: None,
        progress: None,
        given: 0,
        kept: None,
        family: None,
        registered: Default::default(),
    }
}

pub fn retired(job: &JobId) -> Event {
    Event::Run {
        run: job.clone(),
        event: RunEvent::Retired {
            record: Box::new(record(job)),
        },
        at: Time(4),
    }
}

pub fn taken(job: &JobId, done: Ranges) -> Event {
    Event::Batch {
        run: job.clone(),
        event: BatchEvent::Taken {
            task: TaskId {
                job: job.clone(),
                index: 0,
                attempt: Attempt(1),
            },
            seq: 1,
            done,
            rows: 1,
            failed_items: 0,
            short: 0,
            returned: Ranges::new(),
            discarded: 0,
            header: None,
        },
        at: Time(5),
    }
}

pub fn span(index: u32) -> Span {
    Span {
        index,
        offset: (1 << 40) + u64::from(index) * 10,
        len: 10,
        rows: 1,
        crc: index.wrapping_mul(0x9E37_79B9),
    }
}
