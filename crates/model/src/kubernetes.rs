//! Kubernetes computes: what is declared of one, what is seen of the cluster behind it, and the pod that a task becomes.
//!
//! P1 a pod carries exactly what its instance type says: the requests, the limits and the merged selector;
//! P2 room on a machine is what it can allocate less what its pods request, never its capacity;
//! P3 the check that refuses returns the reason: `Machine::holds` is the only source of "no machine fits".

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

use crate::{
    id::{ComputeId, NodeId},
    instance_type::{InstanceType, SelectorMode},
    unit::{Bytes, MilliCpu, Resources},
};

/// Labels by key.
pub type Labels = BTreeMap<Box<str>, Box<str>>;

/// Which cluster stands behind a Kubernetes compute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ClusterKey {
    /// This machine, shown as a cluster of one node.
    Embedded,
    /// The one that this compute was attached to.
    Attached(ComputeId),
}

/// When the kubelet asks for an image that the machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullPolicy {
    /// Only when it is not there (the default of Kubernetes for a tag other than `latest`).
    #[default]
    IfNotPresent,
    /// Before each start.
    Always,
    /// Never; it must be there.
    Never,
}

/// A Kubernetes compute as declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesSpec {
    /// SHA-256 of the kubeconfig that reaches its cluster, hex; the file itself is a secret. Absent: it runs on this machine.
    pub kubeconfig: Option<Box<str>>,
    /// Namespace of its pods; it must exist before (behaviour §2.1.4).
    pub namespace: Box<str>,
    /// Where all its workloads must run: the extension's node selector.
    pub node_selector: Labels,
    /// How a type's own selector joins that one (D-1).
    pub selector_mode: SelectorMode,
    /// The type of a job that names none, when it is not `defaultinstancetype`.
    pub default_type: Option<Box<str>>,
    /// Types of this compute alone; they shadow the cluster's.
    pub types: BTreeMap<Box<str>, InstanceType>,
    /// For every pod of it.
    pub pull_policy: PullPolicy,
    /// The image that brings our agent into a pod; absent: the server's own choice.
    pub agent_image: Option<Box<str>>,
    /// The uid of user programs in a pod; absent: one without rights.
    pub run_as_user: Option<u32>,
}

impl KubernetesSpec {
    /// Whether it has a cluster of its own.
    pub fn is_attached(&self) -> bool {
        self.kubeconfig.is_some()
    }
}

/// What a pod is, resolved when its task is admitted: the type may change or go afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSpec {
    /// The compute.
    pub compute: ComputeId,
    /// Name of the instance type.
    pub instance_type: Box<str>,
    /// What is reserved for it; devices too, though a type names them under its limits only.
    pub requests: Resources,
    /// What it may use.
    pub limits: Resources,
    /// Labels that its machine must carry.
    pub selector: Labels,
    /// The machine, where Zaffre itself places; absent where the cluster's scheduler does.
    pub machine: Option<Box<str>>,
}

/// Where a task runs. There is no third way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// On a node that was given to it.
    On(NodeId),
    /// As a pod of its own on a machine that matches.
    Matching(Box<PodSpec>),
}

impl Place {
    /// The node, if it was given one.
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Place::On(node) => Some(node),
            Place::Matching(_) => None,
        }
    }
    /// The pod, if it is one.
    pub fn pod(&self) -> Option<&PodSpec> {
        match self {
            Place::On(_) => None,
            Place::Matching(pod) => Some(pod),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::On(node) => node.fmt(f),
            Place::Matching(pod) => {
                write!(f, "a pod of {}", pod.instance_type)?;
                match &pod.machine {
                    Some(machine) => write!(f, " on {machine}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TaintEffect {
    /// None is placed there.
    NoSchedule,
    /// Those that are there go too.
    NoExecute,
}
impl fmt::Display for TaintEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        })
    }
}

/// A taint that our pods do not tolerate; those that they do (behaviour §2.7.2) are left out by who looks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: Box<str>,
    /// Its value, often empty.
    pub value: Box<str>,
    /// What it does.
    pub effect: TaintEffect,
}
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{}", self.key, self.effect)
        } else {
            write!(f, "{}={}:{}", self.key, self.value, self.effect)
        }
    }
}

/// A machine of a cluster (what Kubernetes calls a node).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its labels.
    pub labels: Labels,
    /// Taints that our pods do not tolerate.
    pub taints: Vec<Taint>,
    /// Whether it was cordoned (`spec.unschedulable`).
    pub cordoned: bool,
    /// Why it is not ready, when it is not.
    pub not_ready: Option<Box<str>>,
    /// What its pods may have together.
    pub allocatable: Resources,
    /// Pods that it may hold.
    pub pods: u32,
    /// What its pods request, ours too. Where Zaffre places, only what is not ours.
    pub requested: Resources,
    /// Its pods, counted likewise.
    pub pods_there: u32,
}

/// What is seen of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSeen {
    /// Whether pods are placed by `plan`, and not by a scheduler of the cluster's own.
    pub placed_here: bool,
    /// Its instance types; `None` where they are declared to Zaffre.
    pub types: Option<BTreeMap<Box<str>, TypeSeen>>,
    /// Where all workloads must run, beside what the compute says: the extension's node selector.
    pub node_selector: Labels,
    /// Its machines by name.
    pub machines: BTreeMap<Box<str>, Machine>,
    /// Why it cannot be used: not reached, or a right is missing (named with verb and resource).
    pub trouble: Option<Box<str>>,
}

/// An instance type of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TypeSeen {
    /// As it can be used.
    Usable(InstanceType),
    /// It breaks a rule (it was made before the rules, or past them).
    Broken(Box<str>),
}

/// The first thing that keeps a pod from a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Obstacle {
    /// The machine does not work.
    NotReady {
        /// What it says.
        why: Box<str>,
    },
    /// It was cordoned.
    Cordoned,
    /// It lacks a label, or carries another value.
    Label {
        /// The key.
        key: Box<str>,
        /// What is asked for.
        want: Box<str>,
        /// What it carries.
        have: Option<Box<str>>,
    },
    /// It carries a taint.
    Taint(Taint),
    /// Its cores are too few, or taken.
    Cpu {
        /// Requested by the pod.
        need: MilliCpu,
        /// Can be allocated in all.
        allocatable: MilliCpu,
        /// Requested by pods that are there.
        taken: MilliCpu,
    },
    /// Its memory is too small, or taken.
    Memory {
        /// Requested by the pod.
        need: Bytes,
        /// Can be allocated in all.
        allocatable: Bytes,
        /// Requested by pods that are there.
        taken: Bytes,
    },
    /// It has too few of a device, or they are taken.
    Device {
        /// Which (`nvidia.com/gpu`).
        name: Box<str>,
        /// Requested by the pod.
        need: u32,
        /// Can be allocated in all.
        allocatable: u32,
        /// Held by pods that are there.
        taken: u32,
    },
    /// It holds as many pods as it may.
    Pods {
        /// How many it may.
        most: u32,
    },
}

impl Obstacle {
    /// Whether the machine could never hold the pod, were it ever so empty.
    pub fn for_ever(&self) -> bool {
        match self {
            Obstacle::Cpu {
                need, allocatable, ..
            } => need > allocatable,
            Obstacle::Memory {
                need, allocatable, ..
            } => need > allocatable,
            Obstacle::Device {
                need, allocatable, ..
            } => need > allocatable,
            Obstacle::NotReady { .. }
            | Obstacle::Cordoned
            | Obstacle::Label { .. }
            | Obstacle::Taint(_)
            | Obstacle::Pods { .. } => false,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::NotReady { why } => write!(f, "not ready: {why}"),
            Obstacle::Cordoned => f.write_str("cordoned"),
            Obstacle::Label {
                key,
                want,
                have: None,
            } => write!(f, "no label {key}={want}"),
            Obstacle::Label {
                key,
                want,
                have: Some(have),
            } => write!(f, "label {key}={have}, not {want}"),
            Obstacle::Taint(taint) => write!(f, "taint {taint}"),
            Obstacle::Cpu {
                need,
                allocatable,
                taken,
            } => amount(f, "cpu", need, allocatable, taken),
            Obstacle::Memory {
                need,
                allocatable,
                taken,
            } => amount(f, "memory", need, allocatable, taken),
            Obstacle::Device {
                name,
                need,
                allocatable,
                taken,
            } => amount(f, name, need, allocatable, taken),
            Obstacle::Pods { most } => write!(f, "all {most} pods that it may hold are there"),
        }
    }
}

fn amount(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    need: &impl fmt::Display,
    allocatable: &impl fmt::Display,
    taken: &impl fmt::Display,
) -> fmt::Result {
    write!(
        f,
        "{what}: needs {need}, {allocatable} allocatable, {taken} requested by pods there"
    )
}

impl Machine {
    /// Whether a pod with these requests and this selector has room here (P2); else everything that is in its way, the
    /// first first (P3).
    pub fn holds(&self, requests: &Resources, selector: &Labels) -> Result<(), Vec<Obstacle>> {
        let mut obstacles = Vec::new();
        if let Some(why) = &self.not_ready {
            obstacles.push(Obstacle::NotReady { why: why.clone() });
        }
        if self.cordoned {
            obstacles.push(Obstacle::Cordoned);
        }
        for (key, want) in selector {
            let have = self.labels.get(key);
            if have != Some(want) {
                obstacles.push(Obstacle::Label {
                    key: key.clone(),
                    want: want.clone(),
                    have: have.cloned(),
                });
            }
        }
        obstacles.extend(self.taints.iter().cloned().map(Obstacle::Taint));
        let (have, taken) = (&self.allocatable, &self.requested);
        if requests.cpu.0.saturating_add(taken.cpu.0) > have.cpu.0 {
            obstacles.push(Obstacle::Cpu {
                need: requests.cpu,
                allocatable: have.cpu,
                taken: taken.cpu,
            });
        }
        if requests.memory.0.saturating_add(taken.memory.0) > have.memory.0 {
            obstacles.push(Obstacle::Memory {
                need: requests.memory,
                allocatable: have.memory,
                taken: taken.memory,
            });
        }
        for (name, &need) in &requests.devices {
            let count = |of: &Resources| of.devices.get(name).copied().unwrap_or(0);
            let (allocatable, taken) = (count(have), count(taken));
            if need > 0 && need.saturating_add(taken) > allocatable {
                obstacles.push(Obstacle::Device {
                    name: name.clone(),
                    need,
                    allocatable,
                    taken,
                });
            }
        }
        if self.pods_there >= self.pods {
            obstacles.push(Obstacle::Pods { most: self.pods });
        }
        if obstacles.is_empty() {
            Ok(())
        } else {
            Err(obstacles)
        }
    }

    /// A pod more.
    pub fn take(&mut self, requests: &Resources) {
        self.requested.add(requests);
        self.pods_there += 1;
    }
}
