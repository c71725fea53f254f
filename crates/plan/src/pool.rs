//! What the World keeps of one cluster beside its record: its nodes by state, its runs by turn, its pauses.
//!
//! All but `Pool::kept` follows from the view and is built again when a checkpoint is read.

use model::{JobId, Name, NodeId, NodeRecord, NodeState, Size, Tier, Time};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Facts of a cluster that its record does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The next incarnation of each ordinal; `base` where there is none.
    pub incarnations: BTreeMap<u32, u32>,
    /// Incarnations below this belong to a deleted cluster of the same name (K3).
    pub base: u32,
    /// Nodes that broke since a task last ran here.
    pub breaks: u32,
    /// The node that broke last, and what it said.
    pub broke: Option<(NodeId, Box<str>)>,
    /// No node is asked for before then.
    pub retry_at: Option<Time>,
    /// Runs without a node that were told what they wait for: the first one, and those that lost all at once.
    pub told: BTreeSet<JobId>,
}

/// A node without work. The order is the order of use: what became idle last is used first, so that the others reach their
/// idle limit; then by ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spare {
    pub since: Reverse<Time>,
    pub ordinal: u32,
    pub incarnation: u32,
}

/// A node by the time that matters in its state: asked for, or since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub time: Time,
    pub ordinal: u32,
    pub incarnation: u32,
}

/// A run that wants nodes which it does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seek {
    pub job: JobId,
    /// How many more.
    pub need: u32,
    /// All of them at once or none.
    pub gang: bool,
    /// Whether it has none yet: then it waits, and says why.
    pub first: bool,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pool {
    pub kept: Kept,
    pub preparing: BTreeSet<Mark>,
    pub idle: BTreeSet<Spare>,
    pub running: BTreeSet<Mark>,
    pub leaving: BTreeSet<Mark>,
    pub preempted: BTreeSet<Mark>,
    pub unusable: BTreeSet<Mark>,
    /// Places taken by nodes that exist.
    pub ordinals: BTreeSet<u32>,
    /// Runs that are not done, by turn.
    pub runs: BTreeMap<u64, JobId>,
    /// Runs that hold nodes.
    pub holding: BTreeMap<u64, JobId>,
    /// Runs that want more nodes.
    pub seeking: BTreeMap<u64, Seek>,
    /// Runs that want more nodes at once than there may ever be.
    pub stuck: BTreeMap<u64, JobId>,
    /// Nodes that all runs want together.
    pub wants: u64,
}

impl Pool {
    /// Nodes that serve work now or soon.
    pub fn usable(&self) -> u32 {
        count(self.preparing.len() + self.idle.len() + self.running.len())
    }
    /// Nodes that exist, and so count against `max` and quotas.
    pub fn existing(&self) -> u32 {
        count(self.ordinals.len())
    }
    /// Whether nodes are coming or going.
    pub fn resizing(&self) -> bool {
        !self.preparing.is_empty() || !self.leaving.is_empty()
    }
    /// The first run whose turn it is: it has no node yet.
    pub fn head(&self) -> Option<(u64, &Seek)> {
        self.seeking
            .iter()
            .find(|(_, s)| s.first)
            .map(|(&seq, s)| (seq, s))
    }
    /// The lowest `n` places below `max` that no node stands at.
    pub fn free_ordinals(&self, n: u32, max: u32) -> Vec<u32> {
        let mut taken = self.ordinals.iter().copied().peekable();
        let free = (0..max).filter(|&o| taken.next_if_eq(&o).is_none());
        free.take(n as usize).collect()
    }
    /// The incarnation that comes next at a place.
    pub fn next_incarnation(&self, ordinal: u32) -> u32 {
        let next = self.kept.incarnations.get(&ordinal).copied();
        next.unwrap_or(0).max(self.kept.base)
    }
    /// Counts a node in.
    pub fn enter(&mut self, node: &NodeRecord) {
        let mark = mark(node, node.since);
        match node.state {
            NodeState::Preparing => self.preparing.insert(self::mark(node, node.asked)),
            NodeState::Idle => self.idle.insert(spare(node)),
            NodeState::Running { .. } => self.running.insert(mark),
            NodeState::Leaving { .. } => self.leaving.insert(mark),
            NodeState::Preempted => self.preempted.insert(mark),
            NodeState::Unusable { .. } => self.unusable.insert(mark),
        };
        if node.state.exists() {
            self.ordinals.insert(node.id.ordinal);
        }
    }
    /// Counts a node out, in the state it was counted in.
    pub fn leave(&mut self, node: &NodeRecord) {
        let mark = mark(node, node.since);
        match node.state {
            NodeState::Preparing => self.preparing.remove(&self::mark(node, node.asked)),
            NodeState::Idle => self.idle.remove(&spare(node)),
            NodeState::Running { .. } => self.running.remove(&mark),
            NodeState::Leaving { .. } => self.leaving.remove(&mark),
            NodeState::Preempted => self.preempted.remove(&mark),
            NodeState::Unusable { .. } => self.unusable.remove(&mark),
        };
        if node.state.exists() {
            self.ordinals.remove(&node.id.ordinal);
        }
    }
}

fn spare(node: &NodeRecord) -> Spare {
    Spare {
        since: Reverse(node.since),
        ordinal: node.id.ordinal,
        incarnation: node.id.incarnation,
    }
}
fn mark(node: &NodeRecord, time: Time) -> Mark {
    Mark {
        time,
        ordinal: node.id.ordinal,
        incarnation: node.id.incarnation,
    }
}

/// A number of things in memory as a number of nodes.
pub(crate) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Cores that the nodes of one workspace hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub low_priority: u32,
    pub dedicated: u32,
    pub families: BTreeMap<Name, u32>,
}

impl Usage {
    /// One node more.
    pub fn add(&mut self, size: &Size, tier: Tier) {
        match tier {
            Tier::LowPriority => self.low_priority += size.cores,
            Tier::Dedicated => {
                self.dedicated += size.cores;
                *self.families.entry(size.family.clone()).or_default() += size.cores;
            }
        }
    }
    /// One node less.
    pub fn remove(&mut self, size: &Size, tier: Tier) {
        match tier {
            Tier::LowPriority => self.low_priority -= size.cores,
            Tier::Dedicated => {
                self.dedicated -= size.cores;
                if let Some(cores) = self.families.get_mut(&size.family) {
                    *cores -= size.cores;
                    if *cores == 0 {
                        self.families.remove(&size.family);
                    }
                }
            }
        }
    }
    /// Cores of one family.
    pub fn family(&self, family: &Name) -> u32 {
        self.families.get(family).copied().unwrap_or(0)
    }
}
