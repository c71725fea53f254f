//! The texts beside the logs of a batch run.

mod support;

use model::{
    Attempt, BatchEvent, BatchSpec, BlobPath, ComputeId, JobId, NodeId, Outcome, Part, Place,
    Ranges, RunEvent, RunRecord, RunSpec, RunState, TaskId, Tier, Time, Why, Work, Workspace,
    batch::{BatchOutput, OnCapacityLoss, Progress},
    report::{Occasion, Writing},
    run::FirstError,
};
use std::{collections::BTreeMap, sync::Arc};
use wire::{places::Places, view::report::report};

const BEGIN: Time = Time(1_800_000_000_000);

fn path(text: &str) -> BlobPath {
    BlobPath::new(text).unwrap()
}

fn job() -> JobId {
    JobId::new(&Workspace::new("s", "g", "w"), "j")
}

fn run(work: Work) -> RunRecord {
    let compute = ComputeId::new(job().workspace(), "pool");
    let task = support::command(path("a/b"));
    RunRecord {
        id: job(),
        spec: Arc::new(RunSpec {
            compute,
            instances: 2,
            task: Arc::new(task),
            work,
            timeout: None,
            instance_type: None,
            part: None,
        }),
        state: RunState::Running,
        why: None,
        submitted: BEGIN,
        started: Some(Time(BEGIN.0 + 4000)),
        ended: None,
        tasks: BTreeMap::new(),
        attempt: Attempt(2),
        preemptions: 1,
        held_node: true,
        first_error: Some(FirstError {
            mini_batch: Some(7),
            message: "ValueError: no\nfloat".into(),
            task: 0,
        }),
        progress: Some(Progress {
            listed: true,
            files: 25,
            total: 13,
            done: 10,
            failed: 1,
            rows: 20,
            failed_items: 2,
            retries: 3,
            preemptions: 1,
            rerun: 2,
            published: Some(99),
            ..Progress::default()
        }),
        given: 3,
        kept: None,
        family: None,
        registered: Default::default(),
    }
}

fn batch() -> RunRecord {
    let folder = Places::of(job().workspace()).output("j", "score").unwrap();
    run(Work::Batch(Box::new(BatchSpec {
        input: path("in/x"),
        input_is_folder: true,
        input_from: None,
        mini_batch_size: 2,
        workers_per_node: 2,
        max_retries: 3,
        timeout: model::Millis::secs(30),
        error_threshold: -1,
        mini_batch_error_threshold: -1,
        allowed_failed_percent: 100,
        output: BatchOutput::AppendRow {
            file: "predictions.csv".into(),
        },
        output_folder: folder,
        segment: path("runs/rows"),
        on_capacity_loss: OnCapacityLoss::Cancel,
        max_preemptions: None,
        resume_from: None,
        fingerprint: "f".into(),
    })))
}

/// File (below `ExperimentRun/`) and text of each report.
fn told(run: &RunRecord, occasion: Occasion<'_>) -> Vec<(String, String)> {
    let at = Time(BEGIN.0 + 87_000);
    let short = |p: &BlobPath| p.as_str().split_once("dcid.").unwrap().1.to_owned();
    report(run, occasion, at)
        .into_iter()
        .map(|r| {
            assert!(r.text.ends_with('\n'));
            assert_eq!(
                r.writing == Writing::Whole,
                r.path.as_str().ends_with("job_result.txt")
            );
            (short(&r.path), r.text)
        })
        .collect()
}

#[test]
fn the_overview_counts_in_azures_words() {
    let listed = BatchEvent::Listed {
        files: 25,
        total: 13,
        digest: "d".into(),
    };
    let stamp = "2027-01-15T08:01:27.000Z";
    let overview = "j-batchscoring/logs/job_progress_overview.txt".to_owned();
    assert_eq!(
        told(&batch(), Occasion::Batch(&listed)),
        [(
            overview.clone(),
            format!(
                "{stamp} Scheduling finished. Scheduled 13 mini batches. \
                 There are 13 tasks with 25 items.\n"
            )
        )]
    );
    assert_eq!(
        told(&batch(), Occasion::Progress),
        [(
            overview.clone(),
            format!(
                "{stamp} Processed 11 of 13 mini batches in 0:01:23. 1 failed. 3 retries. \
                 1 preemptions. 2 run again.\n"
            )
        )]
    );
    let lost = BatchEvent::Lost {
        task: TaskId {
            job: job(),
            index: 1,
            attempt: Attempt(2),
        },
        rerun: Ranges::span(3, 5),
        returned: Ranges::span(3, 9),
    };
    let lines = told(&batch(), Occasion::Batch(&lost));
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].1.ends_with(
            "The node of task 1, attempt 2, is gone: 2 started mini batches run again, 4 others \
             go back unstarted.\n"
        ),
        "{lines:?}"
    );
    let placed = RunEvent::Placed {
        task: TaskId {
            job: job(),
            index: 0,
            attempt: Attempt(1),
        },
        place: Place::On(NodeId {
            compute: ComputeId::new(job().workspace(), "pool"),
            ordinal: 4,
            incarnation: 2,
        }),
    };
    let lines = told(&batch(), Occasion::Run(&placed));
    assert!(lines[0].1.contains("node pool-4.2"), "{lines:?}");
    assert_eq!(lines[0].0, overview);
}

#[test]
fn the_result_has_every_number_of_the_run() {
    let mut run = batch();
    run.state = RunState::Done(Outcome::Completed);
    let ended = RunEvent::Finished {
        outcome: Outcome::Completed,
    };
    let told = told(&run, Occasion::Run(&ended));
    let result = told
        .iter()
        .find(|(f, _)| f == "j-batchscoring/logs/job_result.txt");
    let text = &result.unwrap().1;
    for line in [
        "job: j",
        "result: Completed",
        "first error: mini batch 7: ValueError: no float",
        "submitted: 2027-01-15T08:00:00.000Z",
        "started: 2027-01-15T08:00:04.000Z",
        "duration: 0:01:23",
        "compute: pool",
        "nodes at most: 2",
        "nodes given: 3",
        "preemptions: 1",
        "files: 25",
        "mini batches: 13",
        "mini batches done: 10",
        "mini batches failed: 1",
        "mini batches not processed: 2",
        "mini batches run again after a preemption: 2",
        "retries: 3",
        "items failed: 2",
        "rows: 20",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    assert!(
        text.contains("/paths/azureml/j/score/predictions.csv\n"),
        "{text}"
    );
    let execution: Vec<&str> = told
        .iter()
        .filter(|(f, _)| f == "j/logs/azureml/executionlogs.txt")
        .map(|(_, t)| t.as_str())
        .collect();
    assert_eq!(
        execution.last(),
        Some(&"[2027-01-15 08:01:27Z] Completing processing run id j-batchscoring: completed\n")
    );
}

#[test]
fn a_run_that_was_given_up_says_why_and_what_to_do() {
    let outcome = Outcome::Canceled(Why::AllNodesPreempted {
        compute: "pool".into(),
        tier: Tier::LowPriority,
        done: 10,
        total: 13,
    });
    let mut run = batch();
    run.state = RunState::Done(outcome.clone());
    let ended = RunEvent::Finished { outcome };
    let told = told(&run, Occasion::Run(&ended));
    let text = &told[2].1;
    assert!(text.contains("result: Canceled\nreason: "), "{text}");
    assert!(
        text.contains("(PreemptionError)") && text.contains("--resume-from j`"),
        "{text}"
    );
}

#[test]
fn a_parallel_step_has_them_under_its_own_name_and_its_pipeline_says_when_it_ends() {
    let mut run = batch();
    let part = |reused_from| {
        Some(Box::new(Part {
            parent: JobId::new(job().workspace(), "p"),
            key: "score".into(),
            fingerprint: None,
            reused_from,
            metric: None,
            parameters: BTreeMap::new(),
        }))
    };
    Arc::make_mut(&mut run.spec).part = part(None);
    if let Some(progress) = &mut run.progress {
        progress.short = 4;
    }
    let ended = RunEvent::Finished {
        outcome: Outcome::Completed,
    };
    let said = told(&run, Occasion::Run(&ended));
    let files: Vec<&str> = said.iter().map(|(file, _)| file.as_str()).collect();
    assert_eq!(
        files,
        [
            "p/logs/azureml/executionlogs.txt",
            "j/logs/job_progress_overview.txt",
            "j/logs/job_progress_overview.txt",
            "j/logs/job_result.txt",
        ]
    );
    assert!(
        said[0].1.ends_with("score: run j is completed\n"),
        "{}",
        said[0].1
    );
    let short = "mini batches with fewer rows than items: 4\n";
    assert!(said[3].1.contains(short), "{}", said[3].1);

    Arc::make_mut(&mut run.spec).part = part(Some(JobId::new(job().workspace(), "before")));
    assert_eq!(
        told(&run, Occasion::Run(&ended)).len(),
        1,
        "it has done nothing itself"
    );
}

#[test]
fn a_command_job_has_no_such_texts() {
    let ended = RunEvent::Finished {
        outcome: Outcome::Completed,
    };
    assert!(report(&run(Work::Command), Occasion::Run(&ended), BEGIN).is_empty());
}
