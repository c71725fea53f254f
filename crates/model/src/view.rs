//! What the rest of the program reads: a value that the loop publishes whole after each turn. Cheap to clone.

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    cluster::{ClusterSpec, Quotas},
    id::{ComputeId, JobId, Name, NodeId, Workspace},
    instance_type::InstanceType,
    kubernetes::{ClusterKey, ClusterSeen, KubernetesSpec, TypeSeen},
    node::{NodeRecord, NodeState},
    run::{RunRecord, RunState},
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

/// A Kubernetes compute as known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesRecord {
    /// Which.
    pub id: ComputeId,
    /// As declared.
    pub spec: Arc<KubernetesSpec>,
    /// Whether it was withdrawn and its pods are on their way out.
    pub deleting: bool,
    /// When it was last declared.
    pub changed: Time,
}

impl KubernetesRecord {
    /// The cluster behind it.
    pub fn cluster(&self) -> ClusterKey {
        if self.spec.is_attached() {
            ClusterKey::Attached(self.id.clone())
        } else {
            ClusterKey::Embedded
        }
    }
}

/// An instance type of the embedded cluster as known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeRecord {
    /// The Kubernetes object as stored.
    pub json: Arc<str>,
    /// What it says.
    pub declared: Arc<InstanceType>,
    /// Its document's generation: what a conditional write names.
    pub generation: u64,
    /// The revision of the table that wrote it: its `resourceVersion`.
    pub revision: u64,
}

/// What happened to an instance type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeChange {
    /// It is new.
    Added,
    /// It was written again.
    Modified,
    /// It is gone; the object beside this is its last form.
    Deleted,
}

/// The instance types of the embedded cluster, and what happened to them lately.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Types {
    /// By name.
    pub records: RedBlackTreeMapSync<Name, Arc<TypeRecord>>,
    /// Counts every change, never goes back: the `resourceVersion` of the list.
    pub revision: u64,
    /// The last changes, oldest first, each with the revision that it made. A watch from before them has to list again
    /// (410). Not stored: a restart forgets it.
    #[serde(skip)]
    pub recent: rpds::QueueSync<(u64, TypeChange, Arc<TypeRecord>)>,
    /// The revision before the oldest in `recent`: a watch from here on misses nothing.
    #[serde(skip)]
    pub since: u64,
}

impl Types {
    /// What happened after `revision`, oldest first; `None` when that is not known any more, or not yet (a watch answers 410).
    pub fn after(
        &self,
        revision: u64,
    ) -> Option<impl Iterator<Item = &(u64, TypeChange, Arc<TypeRecord>)>> {
        let since = if self.recent.is_empty() {
            self.revision
        } else {
            self.since
        };
        let known = (since..=self.revision).contains(&revision);
        known.then(|| self.recent.iter().filter(move |(at, ..)| *at > revision))
    }
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
    /// Kubernetes computes.
    #[serde(default)]
    pub kubernetes: RedBlackTreeMapSync<ComputeId, Arc<KubernetesRecord>>,
    /// Instance types of the embedded cluster.
    #[serde(default)]
    pub types: Types,
    /// Clusters as last seen. Observed, not a fact: not stored.
    #[serde(skip)]
    pub clusters_seen: RedBlackTreeMapSync<ClusterKey, Arc<ClusterSeen>>,
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
    /// One instance type of a Kubernetes compute, as in `types_of`.
    pub fn type_of(&self, compute: &KubernetesRecord, name: &str) -> Option<TypeSeen> {
        if let Some(own) = compute.spec.types.get(name) {
            return Some(TypeSeen::Usable(own.clone()));
        }
        let found = match compute.cluster() {
            ClusterKey::Embedded => {
                let record = self.types.records.get(&Name::from(name));
                record.map(|r| TypeSeen::Usable((*r.declared).clone()))
            }
            key @ ClusterKey::Attached(_) => {
                let types = self.clusters_seen.get(&key).and_then(|c| c.types.as_ref());
                types.and_then(|types| types.get(name)).cloned()
            }
        };
        let built_in = InstanceType::default_type();
        found.or_else(|| (name == built_in.name()).then_some(TypeSeen::Usable(built_in)))
    }
    /// The instance types that a Kubernetes compute offers, by name: its own before its cluster's, and the built-in
    /// `defaultinstancetype` where neither has one (R-14 to R-17, D-9). Types that break a rule are named with it.
    pub fn types_of(&self, compute: &KubernetesRecord) -> BTreeMap<Box<str>, TypeSeen> {
        let mut all = BTreeMap::new();
        let built_in = InstanceType::default_type();
        all.insert(built_in.name().into(), TypeSeen::Usable(built_in));
        match compute.cluster() {
            ClusterKey::Embedded => {
                let records = self.types.records.values();
                all.extend(records.map(|r| {
                    (
                        r.declared.name().into(),
                        TypeSeen::Usable((*r.declared).clone()),
                    )
                }));
            }
            key @ ClusterKey::Attached(_) => {
                let seen = self.clusters_seen.get(&key);
                let types = seen.and_then(|c| c.types.as_ref()).into_iter().flatten();
                all.extend(types.map(|(name, seen)| (name.clone(), seen.clone())));
            }
        }
        let own = compute.spec.types.iter();
        all.extend(own.map(|(name, t)| (name.clone(), TypeSeen::Usable(t.clone()))));
        all
    }
    /// Why the pods of a run are on no machine, by our own look at what its cluster has: the type of the first of them and
    /// every machine. `None` when they are not waiting for one, or one has room for it.
    pub fn no_machine(&self, run: &RunRecord) -> Option<Why> {
        let (RunState::Preparing, Some(Why::Pod { pods, of, .. })) = (&run.state, &run.why) else {
            return None;
        };
        let waiting = run.tasks.values().find(|t| !t.running);
        let pod = waiting.and_then(|t| t.place.pod())?;
        let record = self.kubernetes.get(&run.spec.compute)?;
        let unfit = self.clusters_seen.get(&record.cluster())?.unfit(pod)?;
        Some(Why::Unschedulable {
            instance_type: pod.instance_type.clone(),
            pods: *pods,
            of: *of,
            unfit,
        })
    }
    /// Whether a Kubernetes compute is being let go and has no work any more: what it made in its cluster is to be removed.
    pub fn is_to_be_left(&self, compute: &KubernetesRecord) -> bool {
        let mut runs = self.runs.values();
        compute.deleting && runs.all(|r| r.spec.compute != compute.id || r.state.is_done())
    }
    /// The quotas in force in a workspace.
    pub fn quotas_of(&self, workspace: &Arc<Workspace>) -> Arc<Quotas> {
        self.quotas
            .get(&WorkspaceKey(workspace.clone()))
            .cloned()
            .unwrap_or_default()
    }
}
