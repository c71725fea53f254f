//! Clusters, sizes, tiers and quotas.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::{
    id::Name,
    unit::{Bytes, Millis},
};

/// Whether Azure (or a drill) may take the nodes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// Ours until we let them go.
    Dedicated,
    /// Surplus capacity: cheap, may be preempted at any time.
    LowPriority,
}

/// A VM size: what one node offers and what it counts against a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// `Standard_DS3_v2`, as Azure spells it.
    pub name: Name,
    /// Quota family, `standardDSv2Family`.
    pub family: Name,
    /// vCPUs, at least 1.
    pub cores: u32,
    /// Memory.
    pub memory: Bytes,
    /// GPUs.
    pub gpus: u32,
}

/// A cluster as declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// The size of each node.
    pub size: Size,
    /// Dedicated or low priority.
    pub tier: Tier,
    /// Never fewer nodes than this.
    pub min: u32,
    /// Never more nodes than this; `min <= max`.
    pub max: u32,
    /// A node without work for this long is released.
    pub idle: Millis,
    /// Where its nodes come from; `None` is this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<NodePods>,
}

/// Nodes that are pods of an attached cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePods {
    /// The Kubernetes compute of the same workspace that the cluster is attached as.
    pub kubernetes: Name,
    /// The image that they run: its Python is what environments are built on.
    pub image: Box<str>,
}

/// Core quotas of one workspace. Low priority is one number over all families, apart from dedicated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    /// Dedicated cores over all families.
    pub dedicated_total: u32,
    /// Dedicated cores of each family that has no entry in `families`.
    pub family_default: u32,
    /// Dedicated cores by family.
    pub families: BTreeMap<Name, u32>,
    /// Low-priority cores over all families.
    pub low_priority: u32,
}

/// What a new subscription gets (behaviour §2.5.5): total dedicated cores.
pub const DEFAULT_DEDICATED_TOTAL: u32 = 100;
/// Dedicated cores per family, before anybody asks for more.
pub const DEFAULT_DEDICATED_FAMILY: u32 = 24;
/// Low-priority cores, over all families.
pub const DEFAULT_LOW_PRIORITY: u32 = 100;

impl Default for Quotas {
    fn default() -> Self {
        Quotas {
            dedicated_total: DEFAULT_DEDICATED_TOTAL,
            family_default: DEFAULT_DEDICATED_FAMILY,
            families: BTreeMap::new(),
            low_priority: DEFAULT_LOW_PRIORITY,
        }
    }
}

impl Quotas {
    /// The dedicated limit of the family of `size`: its own entry, else nothing for GPU families (they start at 0), else the default.
    pub fn family_limit(&self, size: &Size) -> u32 {
        match self.families.get(&size.family) {
            Some(&cores) => cores,
            None if size.gpus > 0 => 0,
            None => self.family_default,
        }
    }
}
