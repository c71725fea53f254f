//! What is observed: what workers say of pods and what agents say of tasks, put together.
//!
//! S1 an agent's word on its task counts from the moment it is connected; before, and in the end, the pod's does;
//! S2 an end that either of them told first stands.

use crate::record::Record;
use engine_local::{Channel, Remote};
use model::{Action, ClusterKey, ClusterSeen, NodeId, NodeSeen, Observed, Phase, TaskId, TaskSeen};
use port::Bell;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, PoisonError},
};

use crate::attached::Agent;

/// Makes the files that let an agent in.
pub type Credential = Box<dyn Fn(&NodeId) -> Vec<(String, Vec<u8>)> + Send + Sync>;

/// Shared by the engine, its workers and the server's route.
pub struct Shared {
    state: Mutex<State>,
    remote: Remote,
    credential: Credential,
    bell: Bell,
}

#[derive(Default)]
struct State {
    observed: Observed,
    /// What the cluster says of each task.
    pods: BTreeMap<TaskId, Phase>,
    /// Nodes of the tasks' agents.
    nodes: BTreeMap<TaskId, NodeId>,
    /// What the agents say.
    agents: Observed,
    dirty: BTreeSet<TaskId>,
}

impl Shared {
    pub(crate) fn new(remote: Remote, credential: Credential, bell: Bell) -> Shared {
        let mut state = State::default();
        state.observed.marks.all = true;
        Shared {
            state: Mutex::new(state),
            remote,
            credential,
            bell,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way of an agent's connection into the engine; `node` is who its credential says that it is.
    pub fn connect(&self, node: &NodeId, channel: Channel) -> io::Result<UnixStream> {
        self.remote.connect(node, channel)
    }

    pub(crate) fn credential(&self, node: &NodeId) -> Vec<(String, Vec<u8>)> {
        (self.credential)(node)
    }

    /// The cluster says how a task's pod stands.
    pub(crate) fn show(&self, task: &TaskId, phase: Phase) {
        let mut state = self.state();
        if state.pods.get(task) == Some(&phase) {
            return;
        }
        state.pods.insert(task.clone(), phase);
        state.dirty.insert(task.clone());
        drop(state);
        self.bell.ring();
    }

    pub(crate) fn shows(&self, task: &TaskId) -> bool {
        self.state().pods.contains_key(task)
    }

    /// A task is gone with everything of it.
    pub(crate) fn hide(&self, task: &TaskId, node: &NodeId) {
        self.remote.release(node);
        self.forget(task);
    }

    pub(crate) fn forget(&self, task: &TaskId) {
        let mut state = self.state();
        state.pods.remove(task);
        state.nodes.remove(task);
        state.dirty.insert(task.clone());
        drop(state);
        self.bell.ring();
    }

    pub(crate) fn show_cluster(&self, key: ClusterKey, seen: ClusterSeen) {
        let mut state = self.state();
        if state
            .observed
            .clusters
            .get(&key)
            .is_some_and(|before| **before == seen)
        {
            return;
        }
        state
            .observed
            .clusters
            .insert_mut(key.clone(), Arc::new(seen));
        state.observed.marks.clusters.insert(key);
        drop(state);
        self.bell.ring();
    }

    pub(crate) fn hide_cluster(&self, key: &ClusterKey) {
        let mut state = self.state();
        state.observed.clusters.remove_mut(key);
        state.observed.marks.clusters.insert(key.clone());
        drop(state);
        self.bell.ring();
    }

    /// An agent may come for this task.
    pub(crate) fn expect(&self, node: &NodeId, record: &Record) {
        self.state().nodes.insert(record.task.clone(), node.clone());
        self.remote.expect(
            node.clone(),
            record.task.clone(),
            record.placement.clone(),
            record.spec.clone(),
        );
    }

    /// Nothing that this agent says counts any more, and nothing that it sends is kept.
    pub(crate) fn release(&self, node: &NodeId) {
        self.remote.release(node);
    }

    /// Where the pod of a task is reached by the others of its gang.
    pub(crate) fn address(&self, task: &TaskId, ip: &str) {
        self.remote.address(task, ip);
    }

    pub(crate) fn tell_agent(&self, action: Action) {
        self.remote.apply(vec![action]);
    }

    /// What the agent of a task says at the moment.
    pub(crate) fn agent(&self, node: &NodeId, task: &TaskId) -> Agent {
        let mut state = self.state();
        self.take(&mut state);
        Agent {
            up: state.agents.nodes.get(node) == Some(&NodeSeen::Up)
                || matches!(
                    state.agents.nodes.get(node),
                    Some(NodeSeen::Evicting { .. })
                ),
            exit: match state.agents.tasks.get(task).map(|t| &t.phase) {
                Some(Phase::Exited(exit)) => Some(exit.clone()),
                _ => None,
            },
        }
    }

    /// Takes in what the agents have said.
    fn take(&self, state: &mut State) {
        let agents = self.remote.observe();
        let marks = &agents.marks;
        if marks.all {
            state.dirty.extend(agents.tasks.keys().cloned());
        }
        state.dirty.extend(marks.tasks.iter().cloned());
        if marks.all || !marks.nodes.is_empty() {
            let nodes = &marks.nodes;
            let changed: Vec<TaskId> = state
                .nodes
                .iter()
                .filter(|(_, node)| marks.all || nodes.contains(*node))
                .map(|(task, _)| task.clone())
                .collect();
            state.dirty.extend(changed);
        }
        state.agents = agents;
    }

    /// Everything there is, and what changed since the last call.
    pub fn observe(&self) -> Observed {
        let mut state = self.state();
        self.take(&mut state);
        for task in std::mem::take(&mut state.dirty) {
            let node = state.nodes.get(&task);
            let up = node.is_some_and(|node| {
                let seen = state.agents.nodes.get(node);
                matches!(seen, Some(NodeSeen::Up | NodeSeen::Evicting { .. }))
            });
            let together = together(state.pods.get(&task), state.agents.tasks.get(&task), up);
            match together {
                Some(seen) => state.observed.tasks.insert_mut(task.clone(), seen),
                None => {
                    state.observed.tasks.remove_mut(&task);
                }
            }
            state.observed.marks.tasks.insert(task);
        }
        let marks = std::mem::take(&mut state.observed.marks);
        let mut seen = state.observed.clone();
        seen.marks = marks;
        seen
    }
}

/// One task from what its pod and its agent say (S1, S2). A task without a pod is not there.
fn together(pod: Option<&Phase>, agent: Option<&Arc<TaskSeen>>, up: bool) -> Option<Arc<TaskSeen>> {
    let pod = pod?;
    let speaks = |agent: &&Arc<TaskSeen>| {
        let exited = matches!(agent.phase, Phase::Exited(_));
        exited || (up && !matches!(pod, Phase::Exited(_)))
    };
    Some(match agent.filter(speaks) {
        Some(agent) => agent.clone(),
        None => Arc::new(TaskSeen {
            phase: pod.clone(),
            mailbox: agent.map(|a| a.mailbox.clone()).unwrap_or_default(),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Exit, Mailbox};

    #[test]
    fn the_pods_word_counts_before_the_agents_and_the_first_end_stands() {
        let says = |phase: Phase| {
            Arc::new(TaskSeen {
                phase,
                mailbox: Mailbox::default(),
            })
        };
        let what = |what: &str| Phase::Preparing { what: what.into() };
        let phase = |pod: Option<&Phase>, agent: &Phase, up: bool| {
            together(pod, Some(&says(agent.clone())), up).map(|t| t.phase.clone())
        };
        let pending = Phase::Pending {
            why: "no machine".into(),
        };
        let lost = Phase::Exited(Exit::Lost {
            why: "evicted".into(),
        });
        let done = Phase::Exited(Exit::Code(0));
        assert_eq!(phase(None, &Phase::Running, true), None, "no pod, no task");
        assert_eq!(
            phase(Some(&pending), &what("x"), false),
            Some(pending.clone())
        );
        assert_eq!(
            phase(Some(&what("connects")), &Phase::Running, true),
            Some(Phase::Running)
        );
        assert_eq!(
            phase(Some(&lost), &Phase::Running, true),
            Some(lost.clone())
        );
        assert_eq!(
            phase(Some(&what("x")), &done, false),
            Some(done.clone()),
            "told, then gone"
        );
        assert_eq!(
            phase(Some(&lost), &done, false),
            Some(done),
            "told before it was lost"
        );
    }
}
