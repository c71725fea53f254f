//! The texts beside the logs of a batch run (behaviour §2.2.5): under its step `logs/job_progress_overview.txt`, which grows
//! with the run, and `logs/job_result.txt`, written when it ends; under the `Pipeline` job `logs/azureml/executionlogs.txt`,
//! which `job stream` prints. A parallel step of a pipeline has the first two under its own name.
//!
//! P1 a line that was written never changes: the SDK prints what comes behind what it has seen;
//! P2 numbers are those of the run's record, the same that `job show` gives.

use super::status::{code, why};
use crate::{
    arm::{link::child_of, time::stamp},
    places::{End, Places},
    view::job::STEP_NAME,
};
use model::{
    BatchEvent, BatchSpec, BlobPath, JobId, Millis, Outcome, Progress, RunEvent, RunRecord, Time,
    batch::BatchOutput,
    report::{Occasion, Report, Writing},
};

/// Of the step, growing.
pub const OVERVIEW: &str = "logs/job_progress_overview.txt";
/// Of the step, when it has ended.
pub const RESULT: &str = "logs/job_result.txt";
/// Of the `Pipeline` job, growing.
pub const EXECUTION: &str = "logs/azureml/executionlogs.txt";

/// What there is to report (`model::report::Reporter`).
pub fn report(run: &RunRecord, occasion: Occasion<'_>, at: Time) -> Vec<Report> {
    let Some(spec) = run.batch() else {
        return match occasion {
            Occasion::Run(event) => family(run, event, at),
            Occasion::Batch(_) | Occasion::Progress => Vec::new(),
        };
    };
    let desk = Desk { run, at };
    let mut parts = match occasion {
        Occasion::Run(event) => family(run, event, at),
        Occasion::Batch(_) | Occasion::Progress => Vec::new(),
    };
    let reused = run
        .spec
        .part
        .as_ref()
        .is_some_and(|p| p.reused_from.is_some());
    if reused {
        return parts; // it has done nothing itself
    }
    let own = match occasion {
        Occasion::Progress => vec![desk.overview(&processed(run, at))],
        Occasion::Batch(event) => desk.batch(event),
        Occasion::Run(event) => desk.run(event, spec),
    };
    parts.extend(own.into_iter().flatten());
    parts
}

/// The execution log of a pipeline or a sweep says when its parts begin and end, and how it ended itself.
fn family(run: &RunRecord, event: &RunEvent, at: Time) -> Vec<Report> {
    let mut lines = Vec::new();
    if let Some(part) = &run.spec.part {
        let name = run.id.name();
        let line = match (event, &part.reused_from) {
            (RunEvent::Submitted { .. }, Some(from)) => {
                let from = from.name();
                Some(format!(
                    "{}: run {name} reuses the result of {from}",
                    part.key
                ))
            }
            (RunEvent::Submitted { .. }, None) => {
                Some(format!("{}: run {name} is submitted", part.key))
            }
            (RunEvent::Finished { outcome }, _) => {
                Some(format!("{}: run {name} is {outcome}", part.key))
            }
            _ => None,
        };
        lines.extend(line.map(|line| (&part.parent, line)));
    }
    if run.spec.is_parent()
        && let RunEvent::Finished { outcome } = event
    {
        lines.push((&run.id, format!("The job is {outcome}.")));
    }
    let report = |(of, line): (&JobId, String)| {
        let places = Places::of(of.workspace());
        Some(Report {
            path: places.artifacts_of(of.name())?.join(EXECUTION)?,
            text: format!("[{}] {line}\n", stamp(at)),
            writing: Writing::Added,
        })
    };
    lines.into_iter().filter_map(report).collect()
}

struct Desk<'a> {
    run: &'a RunRecord,
    at: Time,
}

impl Desk<'_> {
    fn file(&self, run: &str, name: &str) -> Option<BlobPath> {
        let places = Places::of(self.run.id.workspace());
        places.artifacts_of(run)?.join(name)
    }
    /// The run that the files are under: of the job of a batch endpoint its one step, of a parallel step itself.
    fn step(&self) -> String {
        match self.run.is_batch_job() {
            true => child_of(self.run.id.name()),
            false => self.run.id.name().to_owned(),
        }
    }
    fn overview(&self, line: &str) -> Option<Report> {
        Some(Report {
            path: self.file(&self.step(), OVERVIEW)?,
            text: format!("{} {line}\n", stamp(self.at)),
            writing: Writing::Added,
        })
    }
    /// A line of the `Pipeline` job; that of a parallel step has what `family` says.
    fn execution(&self, line: &str) -> Option<Report> {
        if !self.run.is_batch_job() {
            return None;
        }
        let at = stamp(self.at);
        let (day, time) = at.split_once('T').unwrap_or((&at, ""));
        let time = time.split('.').next().unwrap_or_default();
        Some(Report {
            path: self.file(self.run.id.name(), EXECUTION)?,
            text: format!("[{day} {time}Z] {line}\n"),
            writing: Writing::Added,
        })
    }

    fn batch(&self, event: &BatchEvent) -> Vec<Option<Report>> {
        match event {
            BatchEvent::Listed { files, total, .. } => {
                let line = format!(
                    "Scheduling finished. Scheduled {total} mini batches. \
                     There are {total} tasks with {files} items."
                );
                vec![self.overview(&line)]
            }
            BatchEvent::Resumed { from, done, .. } => {
                let n = done.len();
                let line = format!("{n} finished mini batches are taken over from job {from}.");
                vec![self.overview(&line), self.execution(&line)]
            }
            BatchEvent::Lost {
                task,
                rerun,
                returned,
            } => {
                let (again, free) = (rerun.len(), returned.len().saturating_sub(rerun.len()));
                let line = format!(
                    "The node of task {}, attempt {}, is gone: {again} started mini batches run \
                     again, {free} others go back unstarted.",
                    task.index, task.attempt.0
                );
                vec![self.overview(&line), self.execution(&line)]
            }
            // many; the lines of progress have their sums
            BatchEvent::Lent { .. }
            | BatchEvent::Taken { .. }
            | BatchEvent::Failed { .. }
            | BatchEvent::Published { .. } => Vec::new(),
        }
    }

    fn run(&self, event: &RunEvent, spec: &BatchSpec) -> Vec<Option<Report>> {
        match event {
            RunEvent::Submitted { .. } => {
                let line = format!(
                    "Submitting 1 runs, first five are: {STEP_NAME}:{}",
                    self.step()
                );
                vec![self.execution(&line)]
            }
            RunEvent::Placed { task, place } => {
                let (have, most) = (self.run.tasks.len(), self.run.spec.instances);
                let line = format!(
                    "Task {}, attempt {}, is given node {place}: {have} of at most {most} nodes.",
                    task.index, task.attempt.0
                );
                vec![self.overview(&line)]
            }
            RunEvent::Erred { error } => {
                let place = error
                    .mini_batch
                    .map_or("init()".to_owned(), |index| format!("mini batch {index}"));
                let line = format!(
                    "The first error, in {place}: {}. Stack traces are in logs/user/error.",
                    error.message.trim_end_matches('.')
                );
                vec![self.overview(&line)]
            }
            RunEvent::Canceling { outcome } => {
                vec![self.execution(&format!("Stopping run id {}: {outcome}", self.step()))]
            }
            RunEvent::Finished { outcome } => vec![
                self.overview(&processed(self.run, self.at)),
                self.overview(&format!("The job is {outcome}.")),
                self.file(&self.step(), RESULT).map(|path| Report {
                    path,
                    text: result(self.run, spec, outcome, self.at),
                    writing: Writing::Whole,
                }),
                self.execution(&processed(self.run, self.at)),
                self.execution(&format!(
                    "Completing processing run id {}: {outcome}",
                    self.step()
                )),
            ],
            RunEvent::Explained { .. }
            | RunEvent::Started { .. }
            | RunEvent::Stopping { .. }
            | RunEvent::TaskEnded { .. }
            | RunEvent::TaskLost { .. }
            | RunEvent::TaskRecalled { .. }
            | RunEvent::ChildRefused { .. }
            | RunEvent::Registered { .. }
            | RunEvent::Measured { .. }
            | RunEvent::Retired { .. } => Vec::new(),
        }
    }
}

/// `0:01:23`, with days before it when there are any.
fn clock(length: Millis) -> String {
    let seconds = length.0 / 1000;
    let (days, h, m, s) = (
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    match days {
        0 => format!("{h}:{m:02}:{s:02}"),
        1 => format!("1 day, {h}:{m:02}:{s:02}"),
        n => format!("{n} days, {h}:{m:02}:{s:02}"),
    }
}

fn processed(run: &RunRecord, at: Time) -> String {
    let Some(p) = run.progress.as_ref().filter(|p| p.listed) else {
        return "No mini batch is scheduled yet.".into();
    };
    let began = run.started.unwrap_or(run.submitted);
    let mut line = format!(
        "Processed {} of {} mini batches in {}.",
        p.done + p.failed,
        p.total,
        clock(at.since(began))
    );
    for (n, what) in [
        (u64::from(p.failed), "failed"),
        (p.retries, "retries"),
        (preemptions(run, p), "preemptions"),
        (p.rerun, "run again"),
    ] {
        if n > 0 {
            line.push_str(&format!(" {n} {what}."));
        }
    }
    line
}

fn preemptions(run: &RunRecord, p: &Progress) -> u64 {
    p.preemptions.max(run.preemptions)
}

/// `job_result.txt`: one `name: value` a line.
fn result(run: &RunRecord, spec: &BatchSpec, outcome: &Outcome, at: Time) -> String {
    let p = run.progress.clone().unwrap_or_default();
    let word = match outcome {
        Outcome::Completed => "Completed",
        Outcome::Failed(_) => "Failed",
        Outcome::Canceled(_) => "Canceled",
    };
    let mut out = String::new();
    let mut put = |name: &str, value: String| out.push_str(&format!("{name}: {value}\n"));
    put("job", run.id.name().to_owned());
    put("result", word.to_owned());
    if let Some(why) = why(run) {
        put(
            "reason",
            format!("{} ({})", one_line(&why.to_string()), code(why)),
        );
        if let Some(hint) = why.hint() {
            put("hint", one_line(&hint).replace("JOB", run.id.name()));
        }
    }
    if let Some(first) = &run.first_error {
        let place = first.mini_batch.map(|i| format!("mini batch {i}: "));
        let message = one_line(&first.message);
        put("first error", place.unwrap_or_default() + &message);
        put("stack traces", "logs/user/error/".into());
    }
    put("submitted", stamp(run.submitted));
    if let Some(started) = run.started {
        put("started", stamp(started));
        put("duration", clock(at.since(started)));
    }
    put("ended", stamp(at));
    put("compute", run.spec.compute.name().to_owned());
    put("nodes at most", run.spec.instances.to_string());
    put("nodes given", run.given.to_string());
    put("preemptions", preemptions(run, &p).to_string());
    if p.listed {
        put("files", p.files.to_string());
        put("mini batches", p.total.to_string());
        put("mini batches done", p.done.to_string());
        put("mini batches failed", p.failed.to_string());
        if p.short > 0 {
            put(
                "mini batches with fewer rows than items",
                p.short.to_string(),
            );
        }
        let left = p.total.saturating_sub(p.done).saturating_sub(p.failed);
        put("mini batches not processed", left.to_string());
        put(
            "mini batches run again after a preemption",
            p.rerun.to_string(),
        );
        put("mini batches taken over", p.resumed.to_string());
        put("retries", p.retries.to_string());
        put("items failed", p.failed_items.to_string());
        put("rows", p.rows.to_string());
    }
    if let (Some(_), BatchOutput::AppendRow { file }) = (p.published, &spec.output)
        && let Some(path) = spec.output_folder.join(file)
        && let Some(uri) = Places::of(run.id.workspace()).uri(&path, End::File)
    {
        put("output", uri);
    }
    out
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
