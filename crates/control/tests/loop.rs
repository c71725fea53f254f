//! The loop against an engine that answers at once: C1 to C4, and a batch run from request to published file.

mod engine;

use control::{Condition, Control, Failure, Parts, Put, Request};
use engine::{Fake, Wall};
use model::{
    Answer, BatchSpec, BlobPath, Bytes, ClusterKey, ClusterSeen, ClusterSpec, Declared, DocKey,
    Document, Id, JobId, Kind, MilliCpu, Millis, Outcome, Resources, RunEvent, RunRecord, RunSpec,
    RunState, Size, TaskSpec, Tier, Time, Work, Workspace,
    batch::{BatchOutput, OnCapacityLoss},
    engine::{EnvironmentSpec, Packages, PoolSpec, Program, RowFormat},
    report::{Occasion, Report, Writing},
};
use port::{
    Bell, Blobs, Store,
    memory::{MemoryBlobs, MemoryStore},
};
use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

fn path(text: &str) -> BlobPath {
    BlobPath::new(text).unwrap()
}

fn cluster() -> Declared {
    Declared::Cluster(Arc::new(ClusterSpec {
        size: Size {
            name: "Standard_DS3_v2".into(),
            family: "standardDSv2Family".into(),
            cores: 4,
            memory: Bytes(14 << 30),
            gpus: 0,
        },
        tier: Tier::LowPriority,
        min: 0,
        max: 2,
        idle: Millis::secs(120),
        pods: None,
    }))
}

fn read(document: &Document) -> Result<Declared, String> {
    Ok(if document.key.kind == Kind::Compute {
        cluster()
    } else {
        Declared::Other
    })
}

fn workspace() -> Arc<Workspace> {
    Workspace::new("s", "g", "w")
}

fn batch(input: &str) -> Arc<RunSpec> {
    Arc::new(RunSpec {
        compute: Id::new(&workspace(), "pool"),
        instances: 2,
        task: Arc::new(TaskSpec {
            program: Program::Pool(PoolSpec {
                workers: 2,
                script: Some("score.py".into()),
                arguments: Vec::new(),
                rows: None,
                shutdown: false,
                listing: path("runs/j/listing"),
                root: path(input),
                group: 2,
                timeout: Millis::secs(30),
                format: RowFormat::Csv,
                collect: true,
                header: false,
                shared_output: path("blobs/out/j"),
                logging_level: "info".into(),
            }),
            environment: EnvironmentSpec {
                label: "e:1".into(),
                image: None,
                packages: Packages::None,
            },
            code: None,
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            model: None,
            variables: BTreeMap::new(),
            limits: Resources {
                cpu: MilliCpu(4000),
                memory: Bytes(1 << 30),
                devices: BTreeMap::new(),
            },
            artifacts: path("artifacts/j"),
        }),
        work: Work::Batch(Box::new(BatchSpec {
            input: path(input),
            input_is_folder: true,
            input_from: None,
            mini_batch_size: 2,
            workers_per_node: 2,
            max_retries: 3,
            timeout: Millis::secs(30),
            error_threshold: -1,
            mini_batch_error_threshold: -1,
            allowed_failed_percent: 100,
            output: BatchOutput::AppendRow {
                file: "predictions.csv".into(),
            },
            output_folder: path("blobs/out/j"),
            segment: path("runs/j/rows"),
            on_capacity_loss: OnCapacityLoss::Cancel,
            max_preemptions: None,
            resume_from: None,
            fingerprint: "f".into(),
        })),
        timeout: None,
        instance_type: None,
        part: None,
    })
}

/// Two files: what happened, and how it ended.
fn report(run: &RunRecord, occasion: Occasion<'_>, _: Time) -> Vec<Report> {
    let one = |name: &str, text: String, writing| Report {
        path: path(&format!("artifacts/{}/{name}", run.id.name())),
        text,
        writing,
    };
    match occasion {
        Occasion::Run(RunEvent::Submitted { .. }) => {
            vec![one("log", "submitted\n".into(), Writing::Added)]
        }
        Occasion::Run(RunEvent::Finished { outcome }) => vec![
            one("log", "finished\n".into(), Writing::Added),
            one("result", format!("{outcome}\n"), Writing::Whole),
        ],
        _ => Vec::new(),
    }
}

struct Site {
    store: Arc<MemoryStore>,
    blobs: Arc<MemoryBlobs>,
    engine: Arc<Fake>,
    short: Arc<AtomicBool>,
    bell: Bell,
}

impl Site {
    fn new() -> Self {
        let bell = Bell::new();
        Site {
            store: Arc::new(MemoryStore::new()),
            blobs: Arc::new(MemoryBlobs::new()),
            engine: Arc::new(Fake::new(bell.clone())),
            short: Arc::default(),
            bell,
        }
    }
    fn start(&self) -> (Control, control::Loop) {
        let (gate, open) = Gate::closed();
        open.send(()).unwrap();
        self.start_with(gate)
    }
    fn start_with(&self, gate: Arc<Gate>) -> (Control, control::Loop) {
        let short = self.short.clone();
        Control::start(Parts {
            store: self.store.clone(),
            blobs: self.blobs.clone(),
            series: self.store.clone(),
            engine: self.engine.clone(),
            clock: Arc::new(Wall::default()),
            bell: self.bell.clone(),
            read,
            spell: |_| "{}".into(),
            report,
            room: Box::new(move || {
                gate.pass();
                match short.load(Ordering::SeqCst) {
                    true => Err("1 MiB free, 64 MiB are kept".into()),
                    false => Ok(()),
                }
            }),
        })
        .unwrap()
    }
}

fn put(kind: Kind, name: &str, json: &str, condition: Condition) -> Request {
    Request::Put(Put {
        key: DocKey::new(&workspace(), kind, name),
        json: json.into(),
        declared: if kind == Kind::Compute {
            cluster()
        } else {
            Declared::Other
        },
        condition,
        by: "t".into(),
    })
}

fn submit(job: &JobId, input: &str, request: Option<&str>) -> Request {
    Request::Submit {
        id: job.clone(),
        json: "{}".into(),
        spec: batch(input),
        request: request.map(Into::into),
        by: "t".into(),
    }
}

fn wait_for_end(control: &Control, job: &JobId) -> Outcome {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(run) = control.run(job).unwrap()
            && let RunState::Done(outcome) = &run.state
        {
            return outcome.clone();
        }
        assert!(Instant::now() < end, "{:?}", control.run(job));
        std::thread::yield_now();
    }
}

#[test]
fn a_batch_run_ends_in_one_file_in_input_order() {
    let site = Site::new();
    let (control, thread) = site.start();
    for i in 0..25 {
        site.blobs
            .put(&path(&format!("blobs/in/{i:03}.csv")), b"x")
            .unwrap();
    }
    control
        .send_blocking(put(Kind::Compute, "pool", "{}", Condition::Absent))
        .unwrap();
    let job: JobId = Id::new(&workspace(), "j");
    let first = control
        .send_blocking(submit(&job, "blobs/in", Some("r1")))
        .unwrap();
    assert_eq!(
        first.answer,
        Answer::Run {
            id: job.clone(),
            repeat: false
        }
    );
    let again = control
        .send_blocking(submit(
            &Id::new(&workspace(), "other"),
            "blobs/in",
            Some("r1"),
        ))
        .unwrap();
    assert_eq!(
        again.answer,
        Answer::Run {
            id: job.clone(),
            repeat: true
        }
    );

    assert_eq!(wait_for_end(&control, &job), Outcome::Completed);
    let file = site
        .blobs
        .read(&path("blobs/out/j/predictions.csv"), 1 << 20)
        .unwrap();
    let expected: String = (0..13).map(|i| format!("row of {i}\n")).collect();
    assert_eq!(String::from_utf8(file).unwrap(), expected);
    let progress = control
        .run(&job)
        .unwrap()
        .unwrap()
        .progress
        .clone()
        .unwrap();
    assert_eq!(
        (progress.files, progress.total, progress.done),
        (25, 13, 13)
    );
    assert!(
        !control
            .series()
            .range(
                &control::nodes_series(&Id::new(&workspace(), "pool")),
                Time(0),
                Time(u64::MAX)
            )
            .unwrap()
            .is_empty()
    );
    control.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn an_output_that_is_there_already_is_never_overwritten() {
    let site = Site::new();
    let (control, _thread) = site.start();
    site.blobs.put(&path("blobs/in/a"), b"x").unwrap();
    site.blobs
        .put(&path("blobs/out/j/predictions.csv"), b"mine")
        .unwrap();
    control
        .send_blocking(put(Kind::Compute, "pool", "{}", Condition::Absent))
        .unwrap();
    let job: JobId = Id::new(&workspace(), "j");
    control
        .send_blocking(submit(&job, "blobs/in", None))
        .unwrap();
    let Outcome::Failed(why) = wait_for_end(&control, &job) else {
        panic!("it must fail")
    };
    assert!(why.to_string().contains("already exists"), "{why}");
    let run = control.run(&job).unwrap().unwrap();
    assert_eq!(run.given, 0, "it is told before a node works for nothing");
    assert_eq!(
        site.blobs
            .read(&path("blobs/out/j/predictions.csv"), 9)
            .unwrap(),
        b"mine"
    );
    control.stop();
}

/// D3, or who holds the ETag of a document that was removed would overwrite the one that came after it.
#[test]
fn a_document_after_a_removed_one_has_none_of_its_generations() {
    let site = Site::new();
    let (control, _) = site.start();
    let write = |control: &Control, condition| {
        let done = control.send_blocking(put(Kind::Model, "m", "{}", condition))?;
        Ok::<_, Failure>(done.document.unwrap().generation)
    };
    let remove = |control: &Control| {
        let request = Request::Remove {
            key: DocKey::new(&workspace(), Kind::Model, "m"),
            children: None,
            condition: Condition::Any,
        };
        control.send_blocking(request).unwrap();
    };
    let first = write(&control, Condition::Absent).unwrap();
    let second = write(&control, Condition::Generation(first)).unwrap();
    remove(&control);
    let third = write(&control, Condition::Absent).unwrap();
    assert!(first < second && second < third);
    for gone in [first, second] {
        let stale = write(&control, Condition::Generation(gone));
        assert_eq!(stale, Err(Failure::Precondition { have: Some(third) }));
    }
    remove(&control);
    let (again, _) = site.start();
    assert!(write(&again, Condition::Absent).unwrap() > third);
}

#[test]
fn what_is_answered_is_there_after_a_restart() {
    let site = Site::new();
    let (control, thread) = site.start();
    control
        .send_blocking(put(Kind::Compute, "Pool", "{}", Condition::Absent))
        .unwrap();
    let again = control
        .send_blocking(put(
            Kind::Compute,
            "POOL",
            r#"{"a":1}"#,
            Condition::Generation(1),
        ))
        .unwrap();
    assert!(again.existed);
    let document = again.document.unwrap();
    assert_eq!(
        (document.generation, document.key.path.as_str()),
        (2, "Pool"),
        "the first spelling stays"
    );
    let stale = control.send_blocking(put(Kind::Compute, "pool", "{}", Condition::Generation(1)));
    assert_eq!(stale, Err(Failure::Precondition { have: Some(2) }));
    // No graceful stop: a second loop over the same store sees what the first has acknowledged.
    let (second, _) = site.start();
    assert_eq!(second.view().clusters.size(), 1);
    assert_eq!(
        &*second.get(&document.key).unwrap().unwrap().json,
        r#"{"a":1}"#
    );
    control.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn a_short_disk_refuses_and_recovers_by_itself() {
    let site = Site::new();
    let (control, _thread) = site.start();
    site.short.store(true, Ordering::SeqCst);
    let refused = control.send_blocking(put(Kind::Data, "d/1", "{}", Condition::Any));
    assert!(matches!(refused, Err(Failure::Full { .. })), "{refused:?}");
    assert_eq!(
        site.store
            .get(&DocKey::new(&workspace(), Kind::Data, "d/1"))
            .unwrap(),
        None
    );
    site.short.store(false, Ordering::SeqCst);
    control
        .send_blocking(put(Kind::Data, "d/1", "{}", Condition::Any))
        .unwrap();
    control.stop();
    let stopped = control.send_blocking(put(Kind::Data, "d/2", "{}", Condition::Any));
    assert_eq!(stopped, Err(Failure::Stopped));
}

#[test]
fn the_last_report_is_there_when_the_end_is_shown_and_a_lost_one_comes_at_the_next_start() {
    let site = Site::new();
    let (control, thread) = site.start();
    site.blobs.put(&path("blobs/in/a"), b"x").unwrap();
    control
        .send_blocking(put(Kind::Compute, "pool", "{}", Condition::Absent))
        .unwrap();
    let job: JobId = Id::new(&workspace(), "j");
    control
        .send_blocking(submit(&job, "blobs/in", None))
        .unwrap();
    assert_eq!(wait_for_end(&control, &job), Outcome::Completed);
    assert!(control.run(&job).unwrap().unwrap().given >= 1);
    let read = |name: &str| site.blobs.read(&path(&format!("artifacts/j/{name}")), 99);
    assert_eq!(read("result").unwrap(), b"completed\n");
    assert_eq!(read("log").unwrap(), b"submitted\nfinished\n");
    control.stop();
    thread.join().unwrap().unwrap();

    site.blobs.delete(&path("artifacts/j/result")).unwrap();
    let (control, thread) = site.start();
    control.stop();
    thread.join().unwrap().unwrap();
    assert_eq!(read("result").unwrap(), b"completed\n");

    let (control, thread) = site.start();
    control.stop();
    thread.join().unwrap().unwrap();
    let log = String::from_utf8(read("log").unwrap()).unwrap();
    assert_eq!(
        log.matches("finished").count(),
        2,
        "only the lost one came again: {log}"
    );
}

/// Holds the loop inside one turn, so that what is sent meanwhile shares the next one.
struct Gate(std::sync::Mutex<Option<std::sync::mpsc::Receiver<()>>>);

impl Gate {
    fn closed() -> (Arc<Gate>, std::sync::mpsc::SyncSender<()>) {
        let (open, wait) = std::sync::mpsc::sync_channel(1);
        (Arc::new(Gate(std::sync::Mutex::new(Some(wait)))), open)
    }
    fn pass(&self) {
        if let Some(wait) = self.0.lock().unwrap().take() {
            wait.recv().unwrap();
        }
    }
}

#[test]
fn requests_of_one_turn_see_each_other() {
    let site = Site::new();
    let (gate, open) = Gate::closed();
    let (control, thread) = site.start_with(gate);
    let ask = |request: Request| {
        let control = control.clone();
        let (polled, at) = std::sync::mpsc::sync_channel(1);
        let handle = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut answer = Box::pin(control.send(request));
                std::future::poll_fn(|cx| {
                    let _ = answer.as_mut().poll(cx);
                    std::task::Poll::Ready(())
                })
                .await;
                polled.send(()).unwrap();
                answer.await
            })
        });
        at.recv().unwrap(); // it is in the inbox
        handle
    };
    let job: JobId = Id::new(&workspace(), "j");
    let cluster = ask(put(Kind::Compute, "pool", "{}", Condition::Absent));
    let first = ask(submit(&job, "blobs/in", Some("r1")));
    let repeat = ask(submit(&job, "blobs/in", Some("r1")));
    let other = ask(submit(&job, "blobs/in", Some("r2")));
    let remove = ask(Request::Remove {
        key: DocKey::job(&job),
        children: None,
        condition: Condition::Any,
    });
    open.send(()).unwrap();

    cluster.join().unwrap().unwrap();
    let first = first.join().unwrap().unwrap();
    let repeat = repeat.join().unwrap().unwrap();
    let run = |repeat| Answer::Run {
        id: job.clone(),
        repeat,
    };
    assert_eq!((&first.answer, &repeat.answer), (&run(false), &run(true)));
    assert!(first.document.is_some());
    assert_eq!(first.document, repeat.document);
    let refused = |answer: Result<control::Done, Failure>, words: &str| {
        let failure = answer.unwrap_err();
        assert!(
            matches!(failure, Failure::Refused(model::Refusal::Conflict { .. })),
            "{failure}"
        );
        assert!(failure.to_string().contains(words), "{failure}");
    };
    refused(other.join().unwrap(), "already exists");
    refused(remove.join().unwrap(), "has not ended");
    assert!(control.get(&DocKey::job(&job)).unwrap().is_some());
    control.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn what_is_seen_without_an_event_is_published_and_counted() {
    let site = Site::new();
    let (control, thread) = site.start();
    let turns = control.turns();
    let trouble = |control: &Control| {
        let view = control.view();
        let seen = view.clusters_seen.get(&ClusterKey::Embedded);
        seen.and_then(|c| c.trouble.clone())
    };
    for words in ["one", "another"] {
        let before = *turns.borrow();
        site.engine.show(ClusterSeen {
            trouble: Some(words.into()),
            ..ClusterSeen::default()
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        while trouble(&control).as_deref() != Some(words) {
            assert!(Instant::now() < deadline, "{words} is not published");
            std::thread::yield_now();
        }
        // Who keeps answers by the number sees that there are others; it is counted right after the view is swapped.
        while *turns.borrow() == before {
            assert!(Instant::now() < deadline, "{words} is not counted");
            std::thread::yield_now();
        }
    }
    assert!(site.store.load().unwrap().tail.is_empty());
    control.stop();
    thread.join().unwrap().unwrap();
}
