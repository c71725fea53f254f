//! What is seen of nodes becomes facts about nodes.

use model::{ComputeId, NodeEvent, NodeId, NodeSeen, NodeState, Tier};
use std::collections::BTreeSet;

use crate::turn::Turning;

/// What a node's state and its observation say together.
enum Found {
    Same,
    Ready,
    Evicting(model::Time),
    Broke(Box<str>),
    /// It is gone, and was ours to let go.
    Gone,
    /// It is gone, and somebody took it.
    Taken,
}

impl Turning<'_> {
    /// Looks at one node; puts its cluster into `hit` when it was preempted.
    pub fn node_fact(&mut self, id: &NodeId, hit: &mut BTreeSet<ComputeId>) {
        let found = self.find(id);
        match found {
            Found::Same => {}
            Found::Ready => self.emit_node(id, NodeEvent::Ready),
            Found::Evicting(by) => self.emit_node(id, NodeEvent::Evicting { by }),
            Found::Broke(why) => self.node_lost(id, NodeEvent::Broke { why }),
            Found::Gone => self.node_lost(id, NodeEvent::Gone),
            Found::Taken if self.preemptible(id) => {
                self.node_lost(id, NodeEvent::Preempted);
                hit.insert(id.compute.clone());
            }
            // A dedicated node is never taken from us: it broke, and nothing is left of it.
            Found::Taken => {
                let why = "it is not there any more".into();
                self.node_lost(id, NodeEvent::Broke { why });
                self.emit_node(id, NodeEvent::Gone);
            }
        }
    }

    fn find(&mut self, id: &NodeId) -> Found {
        let Some(record) = self.world.view.nodes.get(id) else {
            return Found::Same; // `missing` lets go what nobody knows
        };
        let seen = self.seen.nodes.get(id);
        match (&record.state, seen) {
            (NodeState::Preempted, _) => Found::Same,
            // Asked for and never shown: the asking is repeated by `missing`.
            (NodeState::Preparing, None) if !self.world.shown_nodes.contains_key(id) => Found::Same,
            (NodeState::Preparing, Some(NodeSeen::Booting { why })) => {
                let shown = &mut self.world.shown_nodes;
                if shown.get(id) != Some(why) {
                    shown.insert(id.clone(), why.clone());
                    self.world.dirty.insert(id.compute.clone()); // who waits for it may be told
                }
                Found::Same
            }
            (NodeState::Preparing, Some(NodeSeen::Up)) => Found::Ready,
            (NodeState::Leaving { by: None, .. } | NodeState::Unusable { .. }, None) => Found::Gone,
            (_, None) => Found::Taken,
            // What we let go may say what it likes.
            (NodeState::Leaving { by: None, .. } | NodeState::Unusable { .. }, Some(_)) => {
                Found::Same
            }
            (_, Some(NodeSeen::Booting { .. } | NodeSeen::Up)) => Found::Same,
            (
                NodeState::Leaving {
                    by: Some(known), ..
                },
                Some(NodeSeen::Evicting { by }),
            ) => {
                if by < known {
                    Found::Evicting(*by)
                } else {
                    Found::Same
                }
            }
            (_, Some(NodeSeen::Evicting { by })) => Found::Evicting(*by),
            (_, Some(NodeSeen::Broken { why })) => Found::Broke(why.clone()),
        }
    }

    /// Whether losing it is preemption: it is low-priority, or was under notice.
    fn preemptible(&self, id: &NodeId) -> bool {
        let cluster = self.world.view.clusters.get(&id.compute);
        let node = self.world.view.nodes.get(id);
        cluster.is_some_and(|c| c.spec.tier == Tier::LowPriority)
            || node.is_some_and(|n| matches!(n.state, NodeState::Leaving { by: Some(_), .. }))
    }

    /// A node can serve no more; the task that it held is lost.
    pub fn node_lost(&mut self, id: &NodeId, event: NodeEvent) {
        let task = self.world.view.nodes.get(id).and_then(|n| n.state.task());
        let task = task.cloned();
        if let Some(task) = &task {
            self.take(task); // what it delivered before counts
        }
        self.emit_node(id, event);
        if let Some(task) = task {
            self.lose(&task);
        }
    }

    /// Lets a node go that holds no task. One that was never brought up is gone at once.
    pub fn let_go(&mut self, id: &NodeId) {
        self.emit_node(id, NodeEvent::Removing);
        if !self.seen.nodes.contains_key(id) {
            self.emit_node(id, NodeEvent::Gone);
        }
    }
}
