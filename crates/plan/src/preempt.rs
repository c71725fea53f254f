//! Taking nodes away as a provider does: a drill, or an order from outside.

use model::{
    Answer, ComputeId, Event, Millis, NodeEvent, NodeId, NodeRecord, NodeState, Refusal, Tier,
};
use std::collections::BTreeSet;

use crate::{commands::no_compute, turn::Turning};

/// Which node is taken first: one whose loss costs work, so that a drill shows something. The order of the variants and
/// fields is the order of choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holds {
    Started,
    Task,
    Nothing,
    NotUp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Victim {
    holds: Holds,
    node: NodeId,
}

impl Turning<'_> {
    pub fn preempt(
        &mut self,
        compute: &ComputeId,
        nodes: Option<u32>,
        notice: Millis,
        hold: Option<Millis>,
    ) -> Result<Answer, Refusal> {
        let Some(cluster) = self.world.view.clusters.get(compute) else {
            return Err(no_compute(compute));
        };
        if cluster.spec.tier == Tier::Dedicated {
            return Err(Refusal::Conflict {
                message: format!(
                    "cluster {compute} is dedicated: only low-priority nodes are preempted"
                ),
            });
        }
        if let Some(hold) = hold {
            self.emit_event(Event::CapacityHeld {
                compute: compute.clone(),
                until: self.now + hold,
            });
        }
        let records = self.world.view.nodes_of(compute);
        let victims: BTreeSet<Victim> = records.filter_map(|n| self.victim(n)).collect();
        let most = nodes.map_or(usize::MAX, |n| n as usize);
        let taken: Vec<NodeId> = victims.into_iter().take(most).map(|v| v.node).collect();
        let by = self.now + notice;
        for node in &taken {
            self.emit_node(node, NodeEvent::Evicting { by });
        }
        // One that was never brought up is gone with this.
        let mut hit = BTreeSet::new();
        for node in &taken {
            self.node_fact(node, &mut hit);
        }
        for compute in hit {
            self.capacity_lost(&compute);
        }
        Ok(Answer::Preempted { nodes: taken })
    }

    fn victim(&self, node: &NodeRecord) -> Option<Victim> {
        let holds = match &node.state {
            NodeState::Running { task } => {
                let host = self.world.batch(&task.job).and_then(|b| b.host(task));
                let seen = self.seen.tasks.get(task);
                let begun = host.is_some_and(|host| {
                    let begun = seen.map_or(&host.started, |s| &s.mailbox.started);
                    begun.iter().any(|i| host.holds(i))
                });
                if begun { Holds::Started } else { Holds::Task }
            }
            NodeState::Idle => Holds::Nothing,
            NodeState::Preparing => Holds::NotUp,
            NodeState::Leaving { .. } | NodeState::Preempted | NodeState::Unusable { .. } => {
                return None;
            }
        };
        Some(Victim {
            holds,
            node: node.id.clone(),
        })
    }
}
