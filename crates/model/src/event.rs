//! Facts. The World is what these events, folded in order, make of it; nothing else changes it.
//!
//! E1 an event is written before anybody sees or does what follows from it;
//! E2 applying an event twice is a bug, applying a prefix of the log is always legal;
//! E3 the JSON of an event is a stored format: a golden test holds it.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::{
    batch::Ranges,
    document::{Declared, DocKey, Document},
    engine::Cause,
    family::Real,
    id::{ComputeId, JobId, Name, NodeId, TaskId},
    kubernetes::Place,
    run::{FirstError, Outcome, RunRecord, RunSpec},
    unit::{Millis, Time},
    why::Why,
};

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A document was written.
    Declared {
        /// As sent.
        document: Document,
        /// What decisions need of it; not stored, read from the document again on replay.
        #[serde(skip)]
        declared: Declared,
    },
    /// A document was removed. For a compute: its nodes are let go first, then `ComputeGone`.
    Withdrawn {
        /// Which.
        key: DocKey,
        /// When.
        at: Time,
    },
    /// The last node of a withdrawn compute is gone.
    ComputeGone {
        /// Which.
        compute: ComputeId,
    },
    /// Capacity of a compute is held back (a drill, R-55).
    CapacityHeld {
        /// Which.
        compute: ComputeId,
        /// Until when.
        until: Time,
    },
    /// Something about a node.
    Node {
        /// Which.
        node: NodeId,
        /// What.
        event: NodeEvent,
        /// When.
        at: Time,
    },
    /// Something about a run.
    Run {
        /// Which.
        run: JobId,
        /// What.
        event: RunEvent,
        /// When.
        at: Time,
    },
    /// Something about the mini-batches of a run.
    Batch {
        /// Which.
        run: JobId,
        /// What.
        event: BatchEvent,
        /// When.
        at: Time,
    },
}

/// What happens to a node (see `node::NodeState::on`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeEvent {
    /// It was asked for.
    Asked,
    /// It is up.
    Ready,
    /// It holds this task now.
    Placed {
        /// The task.
        task: TaskId,
    },
    /// Its task is over.
    Emptied,
    /// It will be taken at the latest then.
    Evicting {
        /// When.
        by: Time,
    },
    /// It is being let go by us.
    Removing,
    /// It was taken.
    Preempted,
    /// It does not work.
    Broke {
        /// What it said.
        why: Box<str>,
    },
    /// Nothing is left of it; the record goes.
    Gone,
}

impl NodeEvent {
    /// Its name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            NodeEvent::Asked => "asked for",
            NodeEvent::Ready => "ready",
            NodeEvent::Placed { .. } => "given a task",
            NodeEvent::Emptied => "emptied",
            NodeEvent::Evicting { .. } => "evicting",
            NodeEvent::Removing => "removed",
            NodeEvent::Preempted => "preempted",
            NodeEvent::Broke { .. } => "broken",
            NodeEvent::Gone => "gone",
        }
    }
}

/// What happens to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunEvent {
    /// It was accepted. Its document is stored beside it.
    Submitted {
        /// The document as sent or, for an invoke, as rendered.
        document: Document,
        /// Resolved.
        spec: Arc<RunSpec>,
        /// The request id that made it, for telling repeats.
        request: Option<Box<str>>,
    },
    /// What it waits for, when that changed.
    Explained {
        /// `None`: nothing.
        why: Option<Why>,
    },
    /// A task was given a node (the node's own event is beside this one), or admitted as a pod.
    Placed {
        /// The task.
        task: TaskId,
        /// Its node, or its pod.
        #[serde(rename = "node")]
        place: Place,
    },
    /// A task's user program runs.
    Started {
        /// Which.
        task: TaskId,
    },
    /// A task was told to stop.
    Stopping {
        /// Which.
        task: TaskId,
    },
    /// A task ended with its run going on or ending otherwise.
    TaskEnded {
        /// Which.
        task: TaskId,
    },
    /// A task's node was taken or lost. Nobody's failure (B4).
    TaskLost {
        /// Which.
        task: TaskId,
    },
    /// A task's pod is taken back before it was on any machine, to be made anew: its instance type has changed.
    TaskRecalled {
        /// Which.
        task: TaskId,
    },
    /// The user's program said this first.
    Erred {
        /// What.
        error: FirstError,
    },
    /// A child of it could not be made, and counts as failed.
    ChildRefused {
        /// The name of the step, or the number of the trial.
        key: Box<str>,
        /// The run that it would have become.
        job: JobId,
        /// Why not.
        why: Why,
    },
    /// It has reported the primary metric of the sweep that it is a trial of.
    Measured {
        /// The value.
        value: Real,
    },
    /// The run is being given up and will end so once its tasks are gone.
    Canceling {
        /// How.
        outcome: Outcome,
    },
    /// An output of it has become an asset; the document of that stands before this event.
    Registered {
        /// The output.
        output: Box<str>,
        /// `name/version`.
        asset: Name,
    },
    /// The run ended.
    Finished {
        /// How.
        outcome: Outcome,
    },
    /// The run's record leaves the World and is kept in the store.
    Retired {
        /// Whole.
        record: Box<RunRecord>,
    },
}

/// What happens to the mini-batches of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchEvent {
    /// The input is listed and will never be listed again.
    Listed {
        /// Files.
        files: u64,
        /// Mini-batches.
        total: u32,
        /// SHA-256 of the listing.
        digest: Box<str>,
    },
    /// Finished mini-batches of a cancelled run are taken over; their spans are copied in the same transaction.
    Resumed {
        /// From.
        from: JobId,
        /// Which.
        done: Ranges,
        /// Their rows.
        rows: u64,
        /// Their failed items.
        failed_items: u64,
        /// The header line of their rows, if one was seen.
        #[serde(default)]
        header: Option<Box<str>>,
    },
    /// Indices were lent.
    Lent {
        /// To.
        task: TaskId,
        /// Counts up from 1 per task.
        lend: u64,
        /// Which.
        indices: Ranges,
    },
    /// Parcels up to `seq` of a task are taken.
    Taken {
        /// Whose.
        task: TaskId,
        /// Up to which parcel.
        seq: u64,
        /// Committed with this.
        done: Ranges,
        /// Their rows.
        rows: u64,
        /// Items without a result among them.
        failed_items: u64,
        /// Mini-batches among them with such items.
        #[serde(default, skip_serializing_if = "crate::batch::is_zero")]
        short: u32,
        /// Given back unstarted.
        returned: Ranges,
        /// Results for indices that the task did not hold.
        discarded: u32,
        /// Header line of the output, the first time it is seen.
        header: Option<Box<str>>,
    },
    /// One attempt failed; `last` says that no attempt is left.
    Failed {
        /// Whose.
        task: TaskId,
        /// Which.
        index: u32,
        /// Why.
        cause: Cause,
        /// Whether it failed for good.
        last: bool,
    },
    /// A task is lost with what it held.
    Lost {
        /// Which.
        task: TaskId,
        /// Started there, will be run again.
        rerun: Ranges,
        /// All it held, given back to the front.
        returned: Ranges,
    },
    /// The output file is in place.
    Published {
        /// Its size in bytes.
        bytes: u64,
    },
}

/// What a caller asks of the World. Offered to the next turn, answered after that turn's write.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Write a document. Its generation is already the next one.
    Put {
        /// The document.
        document: Document,
        /// What decisions need of it.
        declared: Declared,
    },
    /// Remove a document.
    Remove {
        /// Which.
        key: DocKey,
    },
    /// Start a run.
    Submit {
        /// Its id.
        id: JobId,
        /// Its document.
        document: Document,
        /// Resolved.
        spec: Arc<RunSpec>,
        /// Repeats of this id give the first run.
        request: Option<Box<str>>,
    },
    /// Give a run up.
    Cancel {
        /// Which.
        job: JobId,
    },
    /// Take the primary metric of a trial in. Of another run it changes nothing.
    Measured {
        /// Which run.
        job: JobId,
        /// The value.
        value: Real,
    },
    /// Take nodes away, as a provider does.
    Preempt {
        /// Of which cluster.
        compute: ComputeId,
        /// How many; `None` for all.
        nodes: Option<u32>,
        /// Notice before the kill.
        notice: Millis,
        /// Offer no new node for this long.
        hold: Option<Millis>,
    },
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The document is stored, or removed.
    Stored,
    /// The run is accepted under this id (an earlier one's, for a repeat).
    Run {
        /// The run.
        id: JobId,
        /// Whether it was there before.
        repeat: bool,
    },
    /// The run is being canceled, or has ended already.
    Canceling,
    /// These nodes are being taken.
    Preempted {
        /// Which.
        nodes: Vec<NodeId>,
    },
}

/// Why a command was refused; nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What it names is not there.
    NotFound {
        /// Names the thing.
        message: String,
    },
    /// It cannot be done as things stand.
    Conflict {
        /// Names the thing and the state.
        message: String,
    },
    /// It would break a rule.
    Invalid {
        /// A stable code, Azure's where there is one (`ClusterMinNodesExceedCoreQuota`).
        code: &'static str,
        /// Names the thing, the rule and the value.
        message: String,
    },
}
