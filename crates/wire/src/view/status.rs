//! `RunState` and `Why` → Azure's job statuses and error codes (§2.4.1, §2.4.2).
//!
//! S1 NotResponding and Paused are never said: the SDK takes them for an end;
//! S2 Provisioning is never said: it is of compute that is made for one job; who waits for nodes of a cluster is Queued.

use model::{Outcome, RunRecord, RunState, Why};
use serde_json::{Value, json};

/// Azure's word for how a run stands.
pub fn status(run: &RunRecord) -> &'static str {
    match &run.state {
        RunState::Queued => waiting(run),
        RunState::Preparing => match run.why {
            // its pods are made and on no machine: people know that as waiting in line
            Some(Why::Unschedulable { .. } | Why::Pod { .. }) => "Queued",
            _ => "Preparing",
        },
        RunState::Running => match run.why {
            Some(Why::Publishing) => "Finalizing",
            _ => "Running",
        },
        RunState::Canceling(Outcome::Canceled(_)) => "CancelRequested",
        RunState::Canceling(Outcome::Completed | Outcome::Failed(_)) => "Finalizing",
        RunState::Done(Outcome::Completed) => "Completed",
        RunState::Done(Outcome::Failed(_)) => "Failed",
        RunState::Done(Outcome::Canceled(_)) => "Canceled",
    }
}

fn waiting(run: &RunRecord) -> &'static str {
    match &run.why {
        Some(Why::Listing | Why::Preparing { .. }) => "Preparing",
        Some(Why::Publishing) => "Finalizing",
        // accepted, and no turn has looked at it yet
        None if !run.held_node => "Starting",
        _ => "Queued",
    }
}

/// Whether the SDK takes a status for an end.
pub fn is_final(status: &str) -> bool {
    matches!(status, "Completed" | "Failed" | "Canceled")
}

/// What a run waits for or ended with.
pub fn why(run: &RunRecord) -> Option<&Why> {
    match &run.state {
        RunState::Done(Outcome::Failed(why) | Outcome::Canceled(why))
        | RunState::Canceling(Outcome::Failed(why) | Outcome::Canceled(why)) => Some(why),
        RunState::Done(Outcome::Completed) => None,
        RunState::Queued
        | RunState::Preparing
        | RunState::Running
        | RunState::Canceling(Outcome::Completed) => run.why.as_ref(),
    }
}

/// A stable code of a reason, Azure's where there is one.
pub fn code(why: &Why) -> &'static str {
    match why {
        Why::NoSuchCompute { .. } | Why::ComputeDeleted { .. } => "ComputeNotFound",
        Why::Quota { .. } => "ClusterCoreQuotaReached",
        Why::ClusterFull { .. } | Why::Behind { .. } => "ClusterBusy",
        Why::TooManyInstances { .. } => "InstanceCountExceedsClusterMaximum",
        Why::NoRoom { .. } => "ResourcesDoNotFit",
        Why::NodesComing { .. } => "NodesComing",
        Why::CapacityHeld { .. } => "NoCapacity",
        Why::Preparing { .. } => "Preparing",
        Why::Listing => "ListingInput",
        Why::Publishing => "PublishingOutput",
        Why::AllNodesPreempted { .. } => "PreemptionError",
        Why::WaitingForCapacity { .. } => "NodesPreempted",
        Why::CancelAsked | Why::ParentEnds { .. } => "Canceled",
        Why::StepFailed { .. } => "PipelineStepFailed",
        Why::NoTrialSucceeded { .. } => "NoTrialSucceeded",
        Why::TerminatedEarly { .. } => "TerminatedEarly",
        Why::Child { why, .. } => code(why),
        Why::TimedOut { .. } => "JobTimedOut",
        Why::ErrorThreshold { .. }
        | Why::MiniBatchErrorThreshold { .. }
        | Why::AllowedFailedPercent { .. } => "ErrorThresholdExceeded",
        Why::NothingSucceeded { .. } => "NoSucceededMiniBatch",
        Why::TooManyPreemptions { .. } => "TooManyPreemptions",
        Why::UserError { .. } | Why::Exited { .. } => "UserError",
        Why::Engine { .. } => "SystemError",
        Why::NoSuchType { .. } | Why::BrokenType { .. } => "InvalidInstanceType",
        Why::Unschedulable { .. } => "ResourcesDoNotFit",
        Why::Pod { .. } => "PodPending",
        Why::Cluster { .. } => "ClusterNotUsable",
        Why::GangAhead { .. } | Why::PodsAhead { .. } => "ClusterBusy",
        Why::NotRegistered { .. } => "OutputNotRegistered",
        Why::CannotResume { .. } => "CannotResume",
    }
}

/// In Azure's words: people search for them, and scripts do.
fn exited(run: &RunRecord, how: &str) -> String {
    let Some(code) = how.strip_prefix("exit code ") else {
        return how.to_owned();
    };
    let mut text = format!("Execution failed. User process exited with status code {code}.");
    if run.spec.instances == 1 {
        text.push_str(" Please check log file 'user_logs/std_log.txt' for error details.");
    }
    text
}

/// A reason in words. With it stands the first exception of the user's code, which says more than that items failed (field
/// report 69), unless the reason is that exception.
pub fn reason(why: &Why, run: &RunRecord) -> String {
    let text = match why {
        Why::Exited { how } => exited(run, how),
        _ => why.to_string(),
    };
    let over = run.state.is_done() && *why != Why::CancelAsked;
    match &run.first_error {
        Some(first) if over && !matches!(why, Why::UserError { .. }) => match first.mini_batch {
            Some(index) => format!("{text}; first error, mini-batch {index}: {}", first.message),
            None => format!("{text}; first error: {}", first.message),
        },
        _ => text,
    }
}

/// The error of a run in run history's shape; null while it has none. A cancel that somebody asked for is none.
pub fn error(run: &RunRecord) -> Value {
    let why = match &run.state {
        RunState::Done(Outcome::Failed(why)) => why,
        RunState::Done(Outcome::Canceled(why)) if *why != Why::CancelAsked => why,
        _ => return Value::Null,
    };
    let mut message = reason(why, run);
    if let Some(hint) = why.hint() {
        message.push_str("\nhint: ");
        message.push_str(&hint);
    }
    json!({
        "error": {
            "code": code(why),
            "message": message,
            "messageParameters": {},
            "details": [],
        },
        "time": run.ended.map(crate::arm::time::stamp),
    })
}
