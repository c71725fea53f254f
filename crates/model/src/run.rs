//! Jobs that run: what they are, how they stand, what is known of them.
//!
//! J1 a run ends once: `Done` is never left;
//! J2 a run that is not done either progresses or carries the `Why` it waits for;
//! J3 losing a node is not an outcome: the run goes back to `Queued` (R-61 apart).

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{
    batch::{BatchSpec, Progress, Ranges},
    engine::{BlobPath, Register, TaskSpec},
    family::{Family, Part, PipelineSpec, SweepSpec},
    id::{ComputeId, JobId, Name},
    kubernetes::Place,
    unit::{Attempt, Millis, Time},
    why::Why,
};

/// What kind of work a run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Its tasks run once each, as a gang.
    Command,
    /// Its tasks are hosts of mini-batches.
    Batch(Box<BatchSpec>),
    /// It is made of steps, runs of their own.
    Pipeline(Box<PipelineSpec>),
    /// It is made of trials, runs of their own.
    Sweep(Box<SweepSpec>),
}

/// A run, resolved: nothing in it needs another document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Where it runs; never anywhere else.
    pub compute: ComputeId,
    /// Nodes: exactly these for a command (a gang), at most these for a batch.
    pub instances: u32,
    /// What each task executes.
    pub task: Arc<TaskSpec>,
    /// How tasks are used.
    pub work: Work,
    /// Limit of the whole run from its first start; then it is canceled.
    pub timeout: Option<Millis>,
    /// The instance type that it names. Only the name: it is looked up when a task is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<Box<str>>,
    /// What it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Box<Part>>,
}

/// The five states. `wire` maps them to Azure's fourteen job statuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// Waits for nodes, for its input, or to be published; `why` says which.
    Queued,
    /// Placed; environment and files are being brought.
    Preparing,
    /// The user's program runs.
    Running,
    /// Being stopped; will end with this.
    Canceling(Outcome),
    /// Ended.
    Done(Outcome),
}

impl RunState {
    /// Its name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Preparing => "preparing",
            RunState::Running => "running",
            RunState::Canceling(_) => "canceling",
            RunState::Done(_) => "done",
        }
    }
    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        matches!(self, RunState::Done(_))
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The work ran.
    Completed,
    /// It could not be done.
    Failed(Why),
    /// It was given up: asked for, timed out, or R-61.
    Canceled(Why),
}
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Completed => f.write_str("completed"),
            Outcome::Failed(why) => write!(f, "failed: {why}"),
            Outcome::Canceled(why) => write!(f, "canceled: {why}"),
        }
    }
}

/// One live task of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Its attempt.
    pub attempt: Attempt,
    /// Its node, or its pod.
    #[serde(rename = "node")]
    pub place: Place,
    /// Whether the user's program has started.
    pub running: bool,
    /// Whether it was told to stop.
    pub stopping: bool,
}

/// The first thing that went wrong in the user's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstError {
    /// Where, for a batch run.
    pub mini_batch: Option<u32>,
    /// What it said, one line.
    pub message: Box<str>,
    /// On which task.
    pub task: u32,
}

/// Everything known of a run; what views and `job explain` print. Stored whole when the run ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Which.
    pub id: JobId,
    /// What it is.
    pub spec: Arc<RunSpec>,
    /// How it stands.
    pub state: RunState,
    /// What it waits for, when it waits (J2).
    pub why: Option<Why>,
    /// Accepted.
    pub submitted: Time,
    /// First time a user's program started.
    pub started: Option<Time>,
    /// Ended.
    pub ended: Option<Time>,
    /// Live tasks by index.
    pub tasks: BTreeMap<u32, TaskRecord>,
    /// Attempts so far of the whole run (gangs restart together) or the highest of its hosts.
    pub attempt: Attempt,
    /// Nodes taken away while it held them.
    pub preemptions: u64,
    /// Whether it ever held a node (R-61 needs this).
    pub held_node: bool,
    /// The first user error.
    pub first_error: Option<FirstError>,
    /// For batch runs.
    pub progress: Option<Progress>,
    /// How often a node was given to one of its tasks.
    #[serde(default)]
    pub given: u64,
    /// What a later run can take over; only in the record of a batch run that has left the World.
    #[serde(default)]
    pub kept: Option<Kept>,
    /// Its children, if it is a pipeline or a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Box<Family>>,
    /// The assets that its outputs have become, `name/version` by output.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub registered: BTreeMap<Box<str>, Name>,
}

impl RunRecord {
    /// Whether the tasks of a command run have all ended well, and it has not: a task that had not would have given the run up
    /// or sent it back.
    pub fn worked(&self) -> bool {
        let begun = matches!(self.state, RunState::Preparing | RunState::Running);
        matches!(self.spec.work, Work::Command) && begun && self.tasks.is_empty()
    }
}

/// An output of a run that becomes an asset.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// The run that has made it.
    pub job: &'a JobId,
    /// As what.
    pub register: &'a Register,
    /// Where it is.
    pub place: &'a BlobPath,
    /// The attached datastore that it is in.
    pub datastore: Option<&'a str>,
    /// Whether it is one file.
    pub file: bool,
}

/// What a batch run that ended leaves to one that resumes it (`zaffre batch-endpoint invoke --resume-from`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its committed mini-batches.
    pub done: Ranges,
    /// Items of them that have no returned element.
    pub failed_items: u64,
    /// The header line of its output, if one was seen.
    pub header: Option<Box<str>>,
}
