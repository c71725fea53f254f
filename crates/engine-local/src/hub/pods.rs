//! Tasks that are pods: each has an agent of its own, which comes with its task and goes with it.
//!
//! To the hub such an agent is a node like any other, with an id made from the task; the control plane sees the task alone.
//!
//! O1 a pod's task is shown from `Start` to `Forget`, whatever becomes of its agent: one that is lost ends the task as
//!    `Lost`, one that could not be started as `NotStarted`;
//! O2 the end of a task is shown only after everything of it is dead, also when its agent is gone (H2);
//! O3 the folder of a pod holds the task itself, so that a new server can go on with one whose agent had not heard of it.

use super::{Hub, nodes::Node};
use crate::{
    SILENCE,
    protocol::{Held, Pod, Role},
};
use model::{Id, NodeId, Phase, PodSpec, TaskId, engine::Exit, instance_type::GPU};
use std::{sync::Arc, time::Instant};

/// The node that a pod is inside the hub. No compute has a slash in its name, so it is never one of a cluster's; what makes
/// it unique are the job's workspace and name, the index and the attempt: the task itself.
pub fn node_of(task: &TaskId, pod: &PodSpec) -> NodeId {
    let name = format!("{}/{}", pod.compute.name(), task.job.name());
    NodeId {
        compute: Id::new(task.job.workspace(), &*name),
        ordinal: task.index,
        incarnation: task.attempt.0,
    }
}

impl Hub {
    /// Brings up the agent of a pod, unless one is there (a server before us started it).
    pub fn add_pod(&mut self, id: &NodeId, task: &TaskId, held: &Arc<Held>, now: Instant) {
        if self.nodes.contains_key(id) {
            return;
        }
        let limits = held.placement.place.pod().map(|pod| &pod.limits);
        let gpus = limits.and_then(|l| l.devices.get(GPU)).copied();
        let pod = Pod {
            task: task.clone(),
            held: held.as_ref().clone(),
        };
        self.bring_up(id.clone(), Role::Pod(Box::new(pod)), gpus.unwrap_or(0), now);
    }

    /// The agent of a server before us has connected. It had not heard of its task if it did not tell of it (O3).
    pub fn adopt_pod(&mut self, id: &NodeId) {
        let Some(pod) = self.nodes.get(id).and_then(|n| n.pod.clone()) else {
            return;
        };
        if !self.tasks.contains_key(&pod.task) {
            let held = Arc::new(pod.held.clone());
            self.hold(&pod.task, id.clone(), Some(held));
            self.prepare(&pod.task);
        }
    }

    /// The agent of a pod and all that it ran are dead (O1).
    pub fn pod_dead(&mut self, id: &NodeId, node: Node) {
        let Some(pod) = node.pod else {
            return;
        };
        let task = &pod.task;
        if self.tasks.get(task).is_some_and(|entry| entry.forgotten) {
            self.drop_task(task);
            return;
        }
        if !self.tasks.contains_key(task) {
            self.hold(task, id.clone(), None); // it died while no server was there
        }
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        if !matches!(entry.seen.phase, Phase::Exited(_)) {
            let end = if entry.stop {
                Some(Exit::Stopped)
            } else {
                node.end
            };
            entry.seen.phase = Phase::Exited(end.unwrap_or_else(|| Exit::Lost {
                why: "its agent was not there any more when the server started".into(),
            }));
        }
        entry.settle();
        self.dirty_tasks.insert(task.clone());
    }

    /// Ends a pod, if `id` is one; what its task has not said by then is said to be `end`.
    pub fn end_pod(&mut self, id: &NodeId, end: Exit) -> bool {
        let Some(node) = self.nodes.get_mut(id).filter(|n| n.pod.is_some()) else {
            return false;
        };
        node.end.get_or_insert(end);
        self.destroy(id);
        true
    }

    /// Ends every pod at once.
    pub fn evict_pods(&mut self) {
        let pods = self.nodes.iter().filter(|(_, n)| n.pod.is_some());
        let pods: Vec<NodeId> = pods.map(|(id, _)| id.clone()).collect();
        for id in pods {
            let why = "the server was stopped with its tasks".into();
            self.end_pod(&id, Exit::Lost { why });
        }
    }

    /// The agent of a pod has died; returns whether `id` is one.
    pub fn pod_process_ended(&mut self, id: &NodeId) -> bool {
        let Some(node) = self.nodes.get_mut(id).filter(|n| n.pod.is_some()) else {
            return false;
        };
        let (how, killed) = node.how_it_ended();
        let end = if node.ever_up || killed {
            let why = format!("its agent {how}").into();
            Exit::Lost { why }
        } else {
            let words = node.last_words();
            let message = format!("its agent {how} before it was ready{words}").into();
            Exit::NotStarted { message }
        };
        self.end_pod(id, end)
    }

    /// The agent of a pod says nothing (H3).
    pub fn pod_silent(&mut self, id: &NodeId) {
        let why = format!(
            "its agent said nothing for {} s and was killed",
            SILENCE.as_secs()
        )
        .into();
        self.end_pod(id, Exit::Lost { why });
    }
}
