//! T3: the index of documents, records and spans is a function of the log. However the log was cut into appends, with
//! checkpoints and restarts in between, it is the same; and it is what the plain store in memory makes of it.

use model::{
    BlobPath, Declared, DocKey, Document, Event, JobId, Kind, RunRecord, Time, Workspace,
    batch::Span,
};
use port::{Append, Page, Store, memory::MemoryStore};
use proptest::prelude::*;
use std::sync::Arc;
use store::{DataFolder, Sqlite};

#[path = "golden/samples.rs"]
mod samples;

#[derive(Clone, Debug)]
enum Step {
    Put(DocKey, u64),
    Remove(DocKey),
    Spans(JobId, u32),
    Copy(JobId, JobId),
    Retire(JobId),
}

fn workspaces() -> [Arc<Workspace>; 3] {
    [
        Workspace::new("s", "g", "w"),
        Workspace::new("S", "g", "W"),
        Workspace::new("s", "g", "other"),
    ]
}

const NAMES: [&str; 9] = ["a", "A", "a/1", "A/1", "a/2", "b/1", "学/1", "a-b/1", "a0"];

fn key() -> impl Strategy<Value = DocKey> {
    let kinds = [Kind::Model, Kind::Job];
    (0..3_usize, 0..2_usize, 0..NAMES.len())
        .prop_map(move |(w, kind, name)| DocKey::new(&workspaces()[w], kinds[kind], NAMES[name]))
}
fn job() -> impl Strategy<Value = JobId> {
    (0..3_usize, 0..3_usize).prop_map(|(w, name)| JobId::new(&workspaces()[w], NAMES[name]))
}
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (key(), 0..6_u64).prop_map(|(key, created)| Step::Put(key, created)),
        2 => key().prop_map(Step::Remove),
        2 => (job(), 1..100_u32).prop_map(|(job, n)| Step::Spans(job, n)),
        1 => (job(), job()).prop_map(|(from, to)| Step::Copy(from, to)),
        1 => job().prop_map(Step::Retire),
    ]
}

/// What is done after a step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    AppendAlone,
    GoOn,
    Checkpoint,
    Restart,
}
fn then() -> impl Strategy<Value = Then> {
    prop_oneof![
        Just(Then::AppendAlone),
        Just(Then::GoOn),
        Just(Then::GoOn),
        Just(Then::Checkpoint),
        Just(Then::Restart),
    ]
}

/// One append being gathered.
#[derive(Default)]
struct Turn {
    events: Vec<Event>,
    spans: Vec<(JobId, BlobPath, Vec<Span>)>,
    copies: Vec<(JobId, JobId)>,
}

fn record(job: &JobId) -> RunRecord {
    let find = |event| match event {
        Event::Run {
            event: model::RunEvent::Retired { record },
            ..
        } => Some(*record),
        _ => None,
    };
    let sample = samples::events().into_iter().find_map(find).unwrap();
    RunRecord {
        id: job.clone(),
        ..sample
    }
}

impl Turn {
    /// Adds a step. Rows and copies take effect after all events of an append, so they end one.
    fn add(&mut self, number: u64, step: &Step) -> bool {
        match step {
            Step::Put(key, created) => {
                let document = Document {
                    key: key.clone(),
                    generation: number,
                    json: format!("{{\"n\":{number}}}").into(),
                    created: Time(*created),
                    modified: Time(number),
                    by: "me".into(),
                };
                self.events.push(Event::Declared {
                    document,
                    declared: Declared::Other,
                });
                false
            }
            Step::Remove(key) => {
                self.events.push(Event::Withdrawn {
                    key: key.clone(),
                    at: Time(number),
                });
                false
            }
            Step::Retire(job) => {
                self.events.push(Event::Run {
                    run: job.clone(),
                    event: model::RunEvent::Retired {
                        record: Box::new(record(job)),
                    },
                    at: Time(number),
                });
                false
            }
            Step::Spans(job, n) => {
                let segment = BlobPath::new(&format!("s/{}", n % 3)).unwrap();
                let span = |i| Span {
                    index: i,
                    offset: number << 32,
                    len: i,
                    rows: 1,
                    crc: *n,
                };
                self.spans
                    .push((job.clone(), segment, (0..*n).map(span).collect()));
                true
            }
            Step::Copy(from, to) => {
                if from != to {
                    self.copies.push((from.clone(), to.clone()));
                }
                true
            }
        }
    }
    fn append(&mut self, store: &dyn Store, seq: &mut u64) {
        *seq = store
            .append(&Append {
                after: *seq,
                events: &self.events,
                spans: &self.spans,
                copies: &self.copies,
            })
            .unwrap();
        *self = Turn::default();
    }
}

/// Everything that can be asked.
fn dump(store: &dyn Store) -> Vec<String> {
    let mut all: Vec<String> = store
        .workspaces()
        .unwrap()
        .iter()
        .map(|w| format!("{w:?}"))
        .collect();
    all.sort();
    for workspace in workspaces() {
        for kind in samples::KINDS {
            for (newest_first, parent) in [
                (false, None),
                (true, None),
                (false, Some("A".to_owned())),
                (true, Some("a".to_owned())),
            ] {
                let mut page = Page {
                    workspace: workspace.clone(),
                    kind,
                    parent,
                    newest_first,
                    after: None,
                    limit: 2,
                };
                loop {
                    let (documents, next) = store.page(&page).unwrap();
                    all.extend(documents.iter().map(|d| format!("{newest_first} {d:?}")));
                    match next {
                        Some(next) => page.after = Some(next),
                        None => break,
                    }
                }
            }
        }
        for name in NAMES {
            for kind in [Kind::Model, Kind::Job] {
                let key = DocKey::new(&workspace, kind, name);
                all.push(format!("{:?}", store.get(&key).unwrap()));
            }
            let job = JobId::new(&workspace, name);
            all.push(format!("{:?}", store.record(&job).unwrap()));
            let mut spans = Vec::new();
            let mut take = |segment: &BlobPath, piece: &[Span]| {
                spans.extend(piece.iter().map(|s| format!("{segment} {s:?}")));
            };
            store.spans(&job, &mut take).unwrap();
            spans.sort();
            all.extend(spans);
        }
    }
    all
}

fn quick_dir() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::TempDir::new_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

fn open(dir: &tempfile::TempDir) -> Sqlite {
    Sqlite::open(&DataFolder::open(dir.path()).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_index_is_a_function_of_the_log(steps in prop::collection::vec((step(), then()), 1..40)) {
        let (live_dir, rebuilt_dir) = (quick_dir(), quick_dir());
        let (mut live, rebuilt) = (open(&live_dir), open(&rebuilt_dir));
        let plain = MemoryStore::new();
        let (mut turn, mut seq) = (Turn::default(), 0);
        let (mut one, mut rebuilt_seq, mut plain_seq) = (Turn::default(), 0, 0);
        for (number, (step, then)) in (1..).zip(&steps) {
            let ends = turn.add(number, step);
            if ends || *then != Then::GoOn {
                turn.append(&live, &mut seq);
            }
            if let Step::Put(key, _) | Step::Remove(key) = step {
                live.get(key).unwrap(); // and is then remembered
            }
            match then {
                Then::Checkpoint => live.checkpoint(seq, b"world").unwrap(),
                Then::Restart => {
                    drop(live);
                    live = open(&live_dir);
                    prop_assert_eq!(live.load().unwrap().seq, seq);
                }
                Then::AppendAlone | Then::GoOn => {}
            }
            one.add(number, step);
            one.append(&rebuilt, &mut rebuilt_seq);
            one.add(number, step);
            one.append(&plain, &mut plain_seq);
        }
        turn.append(&live, &mut seq);
        prop_assert_eq!(seq, rebuilt_seq);
        let live = dump(&live);
        prop_assert_eq!(&live, &dump(&rebuilt));
        prop_assert_eq!(&live, &dump(&plain));
    }
}
