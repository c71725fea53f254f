//! Reasons, with their numbers. The check that refuses returns one of these; it is what `job explain`, the job's status,
//! the test stories and the conditions print. Nothing else explains a decision.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::{
    cluster::Tier,
    family::Real,
    id::{JobId, Name},
    unfit::Unfit,
    unit::{Millis, Shortage, Time},
};

/// Who holds how many cores of a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The cluster.
    pub compute: Name,
    /// Its nodes.
    pub nodes: u32,
    /// Their cores.
    pub cores: u32,
}

/// Why something waits, ended or was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// The compute it named does not exist (any more).
    NoSuchCompute {
        /// As named.
        compute: Name,
    },
    /// A core quota is used up.
    Quota {
        /// Which quota: `low-priority cores`, `dedicated cores`, `standardDSv2Family dedicated cores`.
        quota: Box<str>,
        /// Its limit in cores.
        limit: u32,
        /// Cores that one more node needs.
        need: u32,
        /// Cores left.
        left: u32,
        /// Who holds the rest.
        holders: Vec<Holder>,
    },
    /// Every node that the cluster may have is taken.
    ClusterFull {
        /// Nodes there are.
        nodes: u32,
        /// `max_instances`.
        max: u32,
        /// The jobs that hold them.
        holders: Vec<Name>,
    },
    /// It asks for more nodes than the cluster may ever have.
    TooManyInstances {
        /// `resources.instance_count`.
        need: u32,
        /// `max_instances`.
        max: u32,
    },
    /// No node of the size can hold it.
    NoRoom {
        /// The first thing that does not fit.
        shortage: Shortage,
    },
    /// Nodes are on their way.
    NodesComing {
        /// Needed.
        need: u32,
        /// Ready and free.
        ready: u32,
        /// Being prepared.
        coming: u32,
        /// What the first of them waits for, when that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        what: Option<Box<str>>,
    },
    /// Others are before it on the same compute (FIFO).
    Behind {
        /// How many.
        ahead: u32,
        /// The one whose turn it is.
        first: Name,
    },
    /// Capacity is held back by a drill or by the provider.
    CapacityHeld {
        /// Until when.
        until: Time,
    },
    /// The environment or the files are being prepared.
    Preparing {
        /// What is done at the moment.
        what: Box<str>,
    },
    /// The input is being listed.
    Listing,
    /// The output is being written.
    Publishing,
    /// preemption left the cluster without a running, idle or preparing node.
    AllNodesPreempted {
        /// The cluster.
        compute: Name,
        /// Its tier.
        tier: Tier,
        /// Mini-batches finished and kept.
        done: u32,
        /// Mini-batches there are.
        total: u32,
    },
    /// The same, but the deployment says `zaffre.on_capacity_loss: wait`.
    WaitingForCapacity {
        /// The cluster.
        compute: Name,
    },
    /// A step of a pipeline did not end well.
    StepFailed {
        /// Its name.
        step: Box<str>,
        /// Its run.
        job: Name,
        /// How it ended.
        how: Box<str>,
    },
    /// No trial of a sweep ended well.
    NoTrialSucceeded {
        /// Trials there were.
        trials: u32,
        /// How the last of them ended.
        how: Box<str>,
    },
    /// A trial was worse than its sweep's rule allows.
    TerminatedEarly {
        /// The rule: `bandit`, `median_stopping`, `truncation_selection`.
        policy: Box<str>,
        /// Reports of the metric when it was asked.
        reports: u32,
        /// Its best until then.
        best: Real,
        /// What would have been good enough.
        limit: Real,
    },
    /// The pipeline or sweep that it is a part of is given up.
    ParentEnds {
        /// Its name.
        parent: Name,
    },
    /// A part of it waits.
    Child {
        /// The name of the step, or the number of the trial.
        key: Box<str>,
        /// For what.
        why: Box<Why>,
    },
    /// Somebody asked.
    CancelAsked,
    /// It ran longer than its limit.
    TimedOut {
        /// The limit.
        limit: Millis,
    },
    /// Too many items failed.
    ErrorThreshold {
        /// Items that failed.
        failed: u64,
        /// `error_threshold`.
        threshold: i64,
    },
    /// Too many mini-batches failed, or returned fewer elements than they had items.
    MiniBatchErrorThreshold {
        /// Mini-batches that failed.
        failed: u32,
        /// `mini_batch_error_threshold`.
        threshold: i64,
    },
    /// Too large a part of all mini-batches failed, or returned fewer elements than they had items.
    AllowedFailedPercent {
        /// Mini-batches that failed.
        failed: u32,
        /// Of how many.
        total: u32,
        /// `--allowed_failed_percent`.
        percent: u32,
    },
    /// Nothing succeeded at all.
    NothingSucceeded {
        /// Mini-batches tried.
        total: u32,
    },
    /// The cluster was deleted under it.
    ComputeDeleted {
        /// The cluster.
        compute: Name,
    },
    /// A mini-batch was preempted more often than `zaffre.max_preemptions` allows.
    TooManyPreemptions {
        /// Which.
        mini_batch: u32,
        /// The cap.
        cap: u32,
    },
    /// What the user's program said.
    UserError {
        /// The first line of it.
        message: Box<str>,
        /// In which mini-batch, if in one.
        mini_batch: Option<u32>,
    },
    /// The process ended with this.
    Exited {
        /// In words: `exit code 3`, `killed by signal 9`.
        how: Box<str>,
    },
    /// The engine or the storage could not do it.
    Engine {
        /// In its words.
        message: Box<str>,
    },
    /// Its instance type is not, or no longer, defined on the compute.
    NoSuchType {
        /// As named, or the default one.
        instance_type: Box<str>,
        /// The compute.
        compute: Name,
        /// Those that there are.
        known: Vec<Box<str>>,
    },
    /// Its instance type breaks a rule, or contradicts the compute's own node selector (D-1).
    BrokenType {
        /// The type.
        instance_type: Box<str>,
        /// The rule and the value.
        message: Box<str>,
    },
    /// No machine of the cluster holds its pod.
    Unschedulable {
        /// The type.
        instance_type: Box<str>,
        /// Pods that want a machine.
        pods: u32,
        /// Of how many.
        of: u32,
        /// Why, machine by machine.
        unfit: Unfit,
    },
    /// Its pods are made and on no machine, or cannot start there. `View::no_machine` says more.
    Pod {
        /// What the cluster says of the first of them, in its words.
        message: Box<str>,
        /// Pods that wait so.
        pods: u32,
        /// Of how many.
        of: u32,
    },
    /// The cluster cannot be used: it is not reached, or a right is missing.
    Cluster {
        /// The compute.
        compute: Name,
        /// What is wrong, with verb and resource.
        message: Box<str>,
    },
    /// Another gang of this compute waits for machines with its pods made; two at once could block each other for ever.
    GangAhead {
        /// Its job.
        first: Name,
    },
    /// As many pods of this compute wait for a machine as may.
    PodsAhead {
        /// The limit.
        limit: u32,
    },
    /// An output was to become an asset, and cannot.
    NotRegistered {
        /// The output.
        output: Box<str>,
        /// The asset: `data asset rows:3`, `model clf`.
        asset: Box<str>,
        /// Why not.
        message: Box<str>,
    },
    /// It cannot resume from that job.
    CannotResume {
        /// The job named.
        from: JobId,
        /// What differs.
        message: Box<str>,
    },
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Dedicated => "dedicated",
            Tier::LowPriority => "low-priority",
        })
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} nodes, {} cores)",
            self.compute, self.nodes, self.cores
        )
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoSuchCompute { compute } => write!(f, "compute {compute} does not exist"),
            Why::Quota {
                quota,
                limit,
                need,
                left,
                holders,
            } => {
                write!(
                    f,
                    "quota of {quota} is {limit}: a node needs {need}, {left} left"
                )?;
                if !holders.is_empty() {
                    write!(f, "; held by {}", list(holders))?;
                }
                Ok(())
            }
            Why::ClusterFull {
                nodes,
                max,
                holders,
            } => {
                write!(f, "all {nodes} of at most {max} nodes are taken")?;
                if !holders.is_empty() {
                    write!(f, " by {}", list(holders))?;
                }
                Ok(())
            }
            Why::TooManyInstances { need, max } => {
                write!(
                    f,
                    "instance_count {need} is above max_instances {max} of the cluster"
                )
            }
            Why::NoRoom { shortage } => write!(f, "no node can hold it: {shortage}"),
            Why::NodesComing {
                need,
                ready,
                coming,
                what,
            } => {
                write!(
                    f,
                    "needs {need} nodes: {ready} ready, {coming} being prepared"
                )?;
                what.iter().try_for_each(|what| write!(f, ": {what}"))
            }
            Why::Behind { ahead, first } => {
                write!(f, "{ahead} before it on this compute, first {first}")
            }
            Why::CapacityHeld { until } => write!(f, "no capacity is offered until {until}"),
            Why::Preparing { what } => write!(f, "preparing: {what}"),
            Why::Listing => f.write_str("the input is being listed"),
            Why::Publishing => f.write_str("the output is being written"),
            Why::AllNodesPreempted {
                compute,
                tier,
                done,
                total,
            } => write!(
                f,
                "every node of {tier} cluster {compute} was preempted; {done} of {total} mini-batches are finished and kept"
            ),
            Why::WaitingForCapacity { compute } => {
                write!(
                    f,
                    "every node of cluster {compute} was preempted; waiting for capacity"
                )
            }
            Why::StepFailed { step, job, how } => write!(f, "step {step} ({job}): {how}"),
            Why::NoTrialSucceeded { trials, how } => {
                write!(f, "none of {trials} trials succeeded, the last: {how}")
            }
            Why::TerminatedEarly {
                policy,
                reports,
                best,
                limit,
            } => write!(
                f,
                "{policy}: its best of {reports} reports is {best}, and {limit} was needed"
            ),
            Why::ParentEnds { parent } => write!(f, "{parent}, which it is a part of, is given up"),
            Why::Child { key, why } => write!(f, "{key}: {why}"),
            Why::CancelAsked => f.write_str("cancel was asked for"),
            Why::TimedOut { limit } => write!(
                f,
                "ran longer than its limit of {} s",
                limit.0.div_ceil(1000)
            ),
            Why::ErrorThreshold { failed, threshold } => {
                write!(f, "{failed} items failed, error_threshold is {threshold}")
            }
            Why::MiniBatchErrorThreshold { failed, threshold } => write!(
                f,
                "{failed} mini-batches failed, mini_batch_error_threshold is {threshold}"
            ),
            Why::AllowedFailedPercent {
                failed,
                total,
                percent,
            } => write!(
                f,
                "{failed} of {total} mini-batches failed, allowed_failed_percent is {percent}"
            ),
            Why::NothingSucceeded { total } => {
                write!(
                    f,
                    "no mini-batch of {total} returned a successful item from run()"
                )
            }
            Why::ComputeDeleted { compute } => write!(f, "compute {compute} was deleted"),
            Why::TooManyPreemptions { mini_batch, cap } => {
                write!(
                    f,
                    "mini-batch {mini_batch} was preempted more than {cap} times"
                )
            }
            Why::UserError {
                message,
                mini_batch: Some(index),
            } => write!(f, "mini-batch {index}: {message}"),
            Why::UserError {
                message,
                mini_batch: None,
            } => write!(f, "the scoring script did not start: {message}"),
            Why::Exited { how } => f.write_str(how),
            Why::Engine { message } => f.write_str(message),
            Why::NoSuchType {
                instance_type,
                compute,
                known,
            } => write!(
                f,
                "instance type {instance_type} not found on compute {compute}; known: {}",
                list(known)
            ),
            Why::BrokenType {
                instance_type,
                message,
            } => write!(f, "instance type {instance_type} cannot be used: {message}"),
            Why::Unschedulable {
                instance_type,
                pods,
                of,
                unfit,
            } => {
                if *of > 1 {
                    write!(f, "{pods} of {of} pods of ")?;
                }
                write!(f, "instance type {instance_type}: {unfit}")
            }
            Why::Pod { message, pods, of } => {
                if *of > 1 {
                    write!(f, "{pods} of {of} pods: ")?;
                }
                f.write_str(message)
            }
            Why::Cluster { compute, message } => {
                write!(
                    f,
                    "the cluster of compute {compute} cannot be used: {message}"
                )
            }
            Why::GangAhead { first } => {
                write!(
                    f,
                    "the pods of {first} wait for nodes, and one gang waits at a time"
                )
            }
            Why::PodsAhead { limit } => {
                write!(
                    f,
                    "{limit} pods of this compute wait for a node, which is as many as may"
                )
            }
            Why::NotRegistered {
                output,
                asset,
                message,
            } => {
                write!(
                    f,
                    "output {output} is kept and has not become {asset}: {message}"
                )
            }
            Why::CannotResume { from, message } => {
                write!(f, "cannot resume from {from}: {message}")
            }
        }
    }
}

impl Why {
    /// What the reader can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Why::Quota { .. } => Some("raise it with `zaffre quota update`, or delete idle clusters".into()),
            Why::AllNodesPreempted { .. } => Some(
                "submit again with `--resume-from JOB` to keep what is finished, or set `zaffre.on_capacity_loss: wait` on the deployment"
                    .into(),
            ),
            Why::TooManyInstances { .. } => Some("raise max_instances of the cluster or lower instance_count".into()),
            Why::NoSuchCompute { .. } => Some("`zaffre compute list` shows what there is".into()),
            Why::ErrorThreshold { .. }
            | Why::MiniBatchErrorThreshold { .. }
            | Why::AllowedFailedPercent { .. }
            | Why::NothingSucceeded { .. }
            | Why::UserError { .. } => {
                Some("`zaffre job download -n JOB --all` brings logs/user/error of each node".into())
            }
            Why::Unschedulable { unfit, .. } => {
                let fixes: Vec<String> = unfit.fixes.iter().map(ToString::to_string).collect();
                Some(fixes.join("; and "))
            }
            Why::NoSuchType { .. } => Some("`zaffre instance-type list` shows what there is; apply the type, or submit with another".into()),
            Why::BrokenType { .. } => Some("apply a corrected type: `zaffre instance-type apply -f FILE`".into()),
            Why::Child { why, .. } => why.hint(),
            Why::NotRegistered { output, .. } => Some(format!(
                "register it under another version: its path is azureml://jobs/JOB/outputs/{output}"
            )),
            Why::StepFailed { job, .. } => Some(format!("`zaffre job stream -n {job}` shows what the step wrote")),
            Why::NoTrialSucceeded { .. }
            | Why::TerminatedEarly { .. }
            | Why::ParentEnds { .. }
            | Why::Pod { .. }
            | Why::Cluster { .. }
            | Why::GangAhead { .. }
            | Why::PodsAhead { .. }
            | Why::ClusterFull { .. }
            | Why::NoRoom { .. }
            | Why::NodesComing { .. }
            | Why::Behind { .. }
            | Why::CapacityHeld { .. }
            | Why::Preparing { .. }
            | Why::Listing
            | Why::Publishing
            | Why::WaitingForCapacity { .. }
            | Why::CancelAsked
            | Why::TimedOut { .. }
            | Why::ComputeDeleted { .. }
            | Why::TooManyPreemptions { .. }
            | Why::Exited { .. }
            | Why::Engine { .. }
            | Why::CannotResume { .. } => None,
        }
    }
}
