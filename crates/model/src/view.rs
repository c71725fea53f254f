//! What the rest of the program reads: a value that the loop publishes whole after each turn. Cheap to clone.

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::{
    cluster::{ClusterSpec, Quotas},
    id::{ComputeId, JobId, NodeId, Workspace},
    node::{NodeRecord, NodeState},
    run::RunRecord,
    unit::Time,
    why::Why,
};

/// A cluster as known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// Which.
    pub id: ComputeId,
    /// As declared.
    pub spec: Arc<ClusterSpec>,
    /// Whether it was withdrawn and its nodes are on their way out.
    pub deleting: bool,
    /// No new node is offered until then.
    pub held_until: Option<Time>,
    /// Nodes that it wants at the moment.
    pub target: u32,
    /// Why it has fewer than that, when it cannot have more.
    pub why: Option<Why>,
    /// When its number of nodes last began or ceased to change.
    pub changed: Time,
}

/// Everything alive, as of one turn. Finished runs of long ago and immutable assets are in the store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct View {
    /// Clusters.
    pub clusters: RedBlackTreeMapSync<ComputeId, Arc<ClusterRecord>>,
    /// Nodes, preempted ones for a while too.
    pub nodes: RedBlackTreeMapSync<NodeId, Arc<NodeRecord>>,
    /// Runs that are not retired.
    pub runs: RedBlackTreeMapSync<JobId, Arc<RunRecord>>,
    /// Quotas by workspace; the default where there is none.
    pub quotas: RedBlackTreeMapSync<WorkspaceKey, Arc<Quotas>>,
}

/// How many nodes of a cluster are in each state: one sample of its metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Asked for.
    pub preparing: u32,
    /// Without work.
    pub idle: u32,
    /// With a task.
    pub running: u32,
    /// On their way out.
    pub leaving: u32,
    /// Taken away and still shown.
    pub preempted: u32,
    /// Out of order.
    pub unusable: u32,
    /// vCPUs of each node.
    pub cores: u32,
}

/// A workspace as a key that can be stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkspaceKey(pub Arc<Workspace>);

impl Serialize for WorkspaceKey {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!(
            "{}/{}/{}",
            self.0.subscription, self.0.group, self.0.name
        ))
    }
}
impl<'de> Deserialize<'de> for WorkspaceKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let mut parts = text.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(s), Some(g), Some(w)) => Ok(WorkspaceKey(Workspace::new(s, g, w))),
            _ => Err(serde::de::Error::custom(format!(
                "{text:?} is not subscription/group/workspace"
            ))),
        }
    }
}

impl View {
    /// The nodes of one cluster, by ordinal.
    pub fn nodes_of<'a>(
        &'a self,
        compute: &'a ComputeId,
    ) -> impl Iterator<Item = &'a Arc<NodeRecord>> + 'a {
        let from = NodeId {
            compute: compute.clone(),
            ordinal: 0,
            incarnation: 0,
        };
        self.nodes
            .range(from..)
            .take_while(move |(id, _)| id.compute == *compute)
            .map(|(_, n)| n)
    }
    /// The nodes of one cluster by state.
    pub fn counts(&self, compute: &ComputeId) -> NodeCounts {
        let cores = self.clusters.get(compute).map_or(0, |c| c.spec.size.cores);
        let mut n = NodeCounts {
            cores,
            ..NodeCounts::default()
        };
        for node in self.nodes_of(compute) {
            *match node.state {
                NodeState::Preparing => &mut n.preparing,
                NodeState::Idle => &mut n.idle,
                NodeState::Running { .. } => &mut n.running,
                NodeState::Leaving { .. } => &mut n.leaving,
                NodeState::Preempted => &mut n.preempted,
                NodeState::Unusable { .. } => &mut n.unusable,
            } += 1;
        }
        n
    }
    /// The quotas in force in a workspace.
    pub fn quotas_of(&self, workspace: &Arc<Workspace>) -> Arc<Quotas> {
        self.quotas
            .get(&WorkspaceKey(workspace.clone()))
            .cloned()
            .unwrap_or_default()
    }
}
