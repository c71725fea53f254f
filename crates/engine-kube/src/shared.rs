//! What is observed: what workers say of pods and what agents say of themselves and of tasks, put together.
//!
//! S1 an agent's word on its task counts from the moment it is connected; before, and in the end, the pod's does;
//! S2 an end that either of them told first stands;
//! S3 of a task on a node, its agent's word counts alone, as long as the node is there.

use crate::record::{Key, Record, Records, What};
use engine_local::{Channel, Remote};
use model::{
    Action, ClusterKey, ClusterSeen, Exit, NodeId, NodeSeen, Observed, Phase, TaskId, TaskSeen,
    TaskSpec, Time, engine::Placement,
};
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
    /// What the cluster says of each task that is a pod.
    pods: BTreeMap<TaskId, Phase>,
    /// Nodes of the tasks' agents.
    nodes: BTreeMap<TaskId, NodeId>,
    /// Nodes that are pods themselves.
    own_nodes: BTreeMap<NodeId, Standing>,
    /// Tasks on these nodes.
    on_nodes: BTreeMap<TaskId, NodeId>,
    /// What the agents say.
    agents: Observed,
    dirty: BTreeSet<TaskId>,
    dirty_nodes: BTreeSet<NodeId>,
}

/// What the cluster says of a node that is a pod.
struct Standing {
    phase: Phase,
    /// Until when it has, when it is being taken away.
    by: Option<Time>,
    /// Its agent was connected: it is up, also while it is not.
    was_up: bool,
}

impl Standing {
    fn seen(&self) -> NodeSeen {
        match (&self.phase, self.by) {
            (Phase::Exited(exit), _) => NodeSeen::Broken {
                why: match exit {
                    Exit::NotStarted { message } | Exit::Init { message } => message.clone(),
                    other => other.to_string().into(),
                },
            },
            (_, Some(by)) => NodeSeen::Evicting { by },
            (_, None) if self.was_up => NodeSeen::Up,
            (Phase::Pending { why }, None) => NodeSeen::Booting {
                why: Some(why.clone()),
            },
            (Phase::Preparing { .. } | Phase::Running, None) => NodeSeen::Booting { why: None },
        }
    }
}

fn is_up(seen: Option<&NodeSeen>) -> bool {
    matches!(seen, Some(NodeSeen::Up | NodeSeen::Evicting { .. }))
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

    /// The cluster says how a pod stands.
    pub(crate) fn show(&self, key: &Key, phase: Phase) {
        let mut guard = self.state();
        let state = &mut *guard;
        match key {
            Key::Task(task) => {
                if state.pods.get(task) == Some(&phase) {
                    return;
                }
                state.pods.insert(task.clone(), phase);
                state.dirty.insert(task.clone());
            }
            Key::Node(node) => {
                let standing = state.own_nodes.entry(node.clone()).or_insert(Standing {
                    phase: Phase::Running,
                    by: None,
                    was_up: false,
                });
                if standing.phase == phase {
                    return;
                }
                standing.phase = phase;
                state.dirty_nodes.insert(node.clone());
            }
        }
        drop(guard);
        self.bell.ring();
    }

    /// A node is being taken away.
    pub(crate) fn notice(&self, node: &NodeId, by: Time) {
        let mut state = self.state();
        if let Some(standing) = state.own_nodes.get_mut(node) {
            standing.by = Some(by);
            state.dirty_nodes.insert(node.clone());
        }
        drop(state);
        self.bell.ring();
    }

    pub(crate) fn shows(&self, key: &Key) -> bool {
        let state = self.state();
        match key {
            Key::Task(task) => state.pods.contains_key(task) || state.on_nodes.contains_key(task),
            Key::Node(node) => state.own_nodes.contains_key(node),
        }
    }

    /// A task is gone with everything of it.
    pub(crate) fn forget(&self, task: &TaskId) {
        let mut state = self.state();
        state.pods.remove(task);
        state.nodes.remove(task);
        state.dirty.insert(task.clone());
        drop(state);
        self.bell.ring();
    }

    /// A node is gone with all that ran on it.
    pub(crate) fn hide_node(&self, node: &NodeId, records: &Records) {
        self.remote.release(node);
        let mut guard = self.state();
        let state = &mut *guard;
        let gone: Vec<TaskId> = state
            .on_nodes
            .extract_if(.., |_, on| on == node)
            .map(|(task, _)| task)
            .collect();
        state.own_nodes.remove(node);
        state.dirty_nodes.insert(node.clone());
        state.dirty.extend(gone.iter().cloned());
        drop(guard);
        for task in gone {
            records.remove(&Key::Task(task));
        }
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

    /// The agent of this pod may come.
    pub(crate) fn expect(&self, node: &NodeId, record: &Record) {
        match &record.what {
            What::Task {
                task,
                placement,
                spec,
            } => {
                self.state().nodes.insert(task.clone(), node.clone());
                let (placement, spec) = (placement.clone(), spec.clone());
                self.remote
                    .expect(node.clone(), task.clone(), placement, spec);
            }
            What::Node { node, .. } => self.remote.expect_node(node.clone()),
        }
    }

    /// Starts a task on a node that is a pod. The node is expected already.
    pub(crate) fn start_on(
        &self,
        node: NodeId,
        task: TaskId,
        placement: Placement,
        spec: Arc<TaskSpec>,
    ) {
        self.state().on_nodes.insert(task.clone(), node);
        self.remote
            .apply(vec![Action::Start(task, placement, spec)]);
    }

    /// Whether a task runs on a node that is a pod.
    pub(crate) fn is_on_a_node(&self, task: &TaskId) -> bool {
        self.state().on_nodes.contains_key(task)
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

    /// Takes in what the agents have said; `agent` tells it.
    pub(crate) fn hear_agents(&self) {
        self.take(&mut self.state());
    }

    /// What an agent has said, also of its task.
    pub(crate) fn agent(&self, node: &NodeId, task: Option<&TaskId>) -> Agent {
        let state = self.state();
        let seen = task.and_then(|task| state.agents.tasks.get(task));
        Agent {
            up: is_up(state.agents.nodes.get(node)),
            exit: match seen.map(|t| &t.phase) {
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
            for (node, standing) in &mut state.own_nodes {
                if is_up(agents.nodes.get(node)) && !standing.was_up {
                    standing.was_up = true;
                    state.dirty_nodes.insert(node.clone());
                }
            }
        }
        state.agents = agents;
    }

    /// Everything there is, and what changed since the last call.
    pub fn observe(&self) -> Observed {
        let mut guard = self.state();
        let state = &mut *guard;
        self.take(state);
        for task in std::mem::take(&mut state.dirty) {
            let agent = state.agents.tasks.get(&task);
            let together = if state.on_nodes.contains_key(&task) {
                agent.cloned() // S3
            } else {
                let node = state.nodes.get(&task);
                let up = node.is_some_and(|node| is_up(state.agents.nodes.get(node)));
                together(state.pods.get(&task), agent, up)
            };
            match together {
                Some(seen) => state.observed.tasks.insert_mut(task.clone(), seen),
                None => {
                    state.observed.tasks.remove_mut(&task);
                }
            }
            state.observed.marks.tasks.insert(task);
        }
        for node in std::mem::take(&mut state.dirty_nodes) {
            match state.own_nodes.get(&node).map(Standing::seen) {
                Some(seen) => state.observed.nodes.insert_mut(node.clone(), seen),
                None => {
                    state.observed.nodes.remove_mut(&node);
                }
            }
            state.observed.marks.nodes.insert(node);
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
    use model::Mailbox;

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
