//! The engines as one: this machine, and the clusters that computes are attached to.
//!
//! E1 each node and task belongs to one engine: nodes that are to be pods, what runs on them, and a pod that no machine was
//!    chosen for are a cluster's, everything else this machine's;
//! E2 what is observed is the union; what is told about a node or task goes to the engine that shows it.

use engine_kube::Kube;
use engine_local::Local;
use model::{Action, NodeId, Observed, Place, TaskId};
use port::Engine;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

/// Both engines.
pub struct Engines {
    local: Arc<Local>,
    kube: Arc<Kube>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    local: Observed,
    /// Tasks that a cluster shows.
    pods: BTreeSet<TaskId>,
    /// Nodes that a cluster shows.
    nodes: BTreeSet<NodeId>,
    together: Observed,
}

impl Engines {
    /// These two.
    pub fn new(local: Arc<Local>, kube: Arc<Kube>) -> Engines {
        Engines {
            local,
            kube,
            seen: Mutex::default(),
        }
    }
}

impl Seen {
    /// Whether an action is a cluster's (E1).
    fn is_a_clusters(&self, action: &Action) -> bool {
        match action {
            Action::Start(_, placement, _) => match &placement.place {
                Place::Matching(pod) => pod.machine.is_none(),
                Place::On(node) => self.nodes.contains(node),
            },
            Action::Stop(task)
            | Action::Forget(task)
            | Action::Lend(task, ..)
            | Action::Ack(task, _) => self.pods.contains(task),
            Action::AddNode(_, spec) => spec.pod.is_some(),
            Action::RemoveNode(node) | Action::Evict(node, _) => self.nodes.contains(node),
            Action::Do(_) => false,
        }
    }
}

impl Engine for Engines {
    fn observe(&self) -> Observed {
        let local = self.local.observe();
        let kube = self.kube.observe();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = model::engine::Marks {
            all: local.marks.all || kube.marks.all,
            nodes: local
                .marks
                .nodes
                .union(&kube.marks.nodes)
                .cloned()
                .collect(),
            tasks: local
                .marks
                .tasks
                .union(&kube.marks.tasks)
                .cloned()
                .collect(),
            errands: local
                .marks
                .errands
                .union(&kube.marks.errands)
                .cloned()
                .collect(),
            clusters: local
                .marks
                .clusters
                .union(&kube.marks.clusters)
                .cloned()
                .collect(),
        };
        // Maps share what has not changed: only what a cluster shows is put in again, and only where it changed.
        let before = std::mem::take(&mut seen.local);
        let unchanged = !marks.all
            && local.marks.nodes.is_empty()
            && local.marks.tasks.is_empty()
            && local.marks.clusters.is_empty();
        let mut together = if unchanged {
            let mut together = std::mem::take(&mut seen.together);
            for node in &kube.marks.nodes {
                match kube.nodes.get(node) {
                    Some(shown) => together.nodes.insert_mut(node.clone(), shown.clone()),
                    None => {
                        together.nodes.remove_mut(node);
                    }
                }
            }
            together.errands = local.errands.clone();
            for task in &kube.marks.tasks {
                match kube.tasks.get(task) {
                    Some(shown) => together.tasks.insert_mut(task.clone(), shown.clone()),
                    None => {
                        together.tasks.remove_mut(task);
                    }
                }
            }
            for key in &kube.marks.clusters {
                match kube.clusters.get(key) {
                    Some(shown) => together.clusters.insert_mut(key.clone(), shown.clone()),
                    None => {
                        together.clusters.remove_mut(key);
                    }
                }
            }
            together
        } else {
            let mut together = local.clone();
            for (node, shown) in kube.nodes.iter() {
                together.nodes.insert_mut(node.clone(), shown.clone());
            }
            for (task, shown) in kube.tasks.iter() {
                together.tasks.insert_mut(task.clone(), shown.clone());
            }
            for (key, shown) in kube.clusters.iter() {
                together.clusters.insert_mut(key.clone(), shown.clone());
            }
            together
        };
        drop(before);
        if marks.all || !kube.marks.nodes.is_empty() {
            seen.nodes = kube.nodes.keys().cloned().collect();
        }
        if marks.all || !kube.marks.tasks.is_empty() {
            seen.pods = kube.tasks.keys().cloned().collect();
        }
        seen.local = local;
        together.marks = model::engine::Marks::default();
        seen.together = together.clone();
        together.marks = marks;
        together
    }

    fn apply(&self, actions: Vec<Action>) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (pods, own): (Vec<Action>, Vec<Action>) = actions
            .into_iter()
            .partition(|action| seen.is_a_clusters(action));
        drop(seen);
        self.kube.apply(pods);
        self.local.apply(own);
    }
}
