//! Why no machine of a cluster holds a pod, and the smallest change after which one would.
//!
//! F1 the first obstacle of every machine is named, with numbers; of the rest only how many there are;
//! F2 the fix is all that is in the way at one machine: after it, that machine holds the pod.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

use crate::{
    kubernetes::{ClusterSeen, Machine, Obstacle, PodSpec, Taint},
    unit::{Bytes, MilliCpu},
};

/// Machines that are shown with their obstacle; a cluster may have thousands.
pub const SHOWN_MACHINES: usize = 10;

/// What all machines have in common, where they have something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Headline {
    /// There is none.
    NoMachines,
    /// The largest that carries the labels is too small, however empty.
    TooSmall {
        /// Of what: `cpu`, `memory`, `nvidia.com/gpu`.
        what: Box<str>,
        /// What the largest can allocate.
        largest: Box<str>,
        /// What the type needs.
        need: Box<str>,
    },
    /// None carries a label.
    NoLabel {
        /// `key=value`.
        label: Box<str>,
        /// How many carry the key with another value, by value.
        others: BTreeMap<Box<str>, u32>,
    },
    /// Each has its own reason.
    Mixed,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fix {
    /// Allow pods on it again.
    Uncordon {
        /// The machine.
        machine: Box<str>,
    },
    /// Give it a label.
    Label {
        /// The machine.
        machine: Box<str>,
        /// The key.
        key: Box<str>,
        /// The value.
        value: Box<str>,
    },
    /// Take a taint from it.
    Untaint {
        /// The machine.
        machine: Box<str>,
        /// The taint.
        taint: Taint,
    },
    /// Make it work.
    Repair {
        /// The machine.
        machine: Box<str>,
    },
    /// End or move pods.
    Free {
        /// The machine.
        machine: Box<str>,
        /// How much of what: `500m cpu`, `1 pod`.
        what: Box<str>,
    },
    /// Ask for less in the instance type.
    Lower {
        /// The type.
        instance_type: Box<str>,
        /// The field: `spec.resources.requests.cpu`.
        path: Box<str>,
        /// At most this.
        to: Box<str>,
    },
    /// Bring a machine.
    AddMachine {
        /// With at least this: `4 cpu, 8Gi memory, mylabel=mylabelvalue`.
        with: Box<str>,
    },
}

/// Why a pod is on no machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfit {
    /// What all have in common.
    pub headline: Headline,
    /// The first obstacle of each machine, the nearest to fitting first (F1).
    pub machines: Vec<(Box<str>, Obstacle)>,
    /// Machines that are not listed.
    pub more: u32,
    /// What to do, together (F2).
    pub fixes: Vec<Fix>,
}

/// How much is in the way at one machine. The order of the fields is the order of what is hard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Distance<'a> {
    for_ever: usize,
    broken: usize,
    taken: usize,
    marks: usize,
    machine: &'a str,
}

impl<'a> Distance<'a> {
    fn of(machine: &'a str, obstacles: &[Obstacle]) -> Self {
        let mut d = Distance {
            for_ever: 0,
            broken: 0,
            taken: 0,
            marks: 0,
            machine,
        };
        for obstacle in obstacles {
            *match obstacle {
                o if o.for_ever() => &mut d.for_ever,
                Obstacle::NotReady { .. } => &mut d.broken,
                Obstacle::Cpu { .. }
                | Obstacle::Memory { .. }
                | Obstacle::Device { .. }
                | Obstacle::Pods { .. } => &mut d.taken,
                Obstacle::Cordoned | Obstacle::Label { .. } | Obstacle::Taint(_) => &mut d.marks,
            } += 1;
        }
        d
    }
}

/// A machine that holds the pod: the fullest one, so that large pods find room on the others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fitting<'a> {
    devices_left: u64,
    cpu_left: u64,
    machine: &'a str,
}

/// The machine that `plan` chooses for a pod, or why there is none.
pub fn choose<'a>(
    pod: &PodSpec,
    machines: impl Iterator<Item = (&'a Box<str>, &'a Machine)> + Clone,
) -> Result<&'a str, Unfit> {
    let best = machines
        .clone()
        .filter(|(_, m)| m.holds(&pod.requests, &pod.selector).is_ok())
        .map(|(name, m)| Fitting {
            devices_left: m
                .allocatable
                .devices
                .iter()
                .map(|(name, &n)| {
                    let taken = m.requested.devices.get(name).copied().unwrap_or(0);
                    u64::from(n.saturating_sub(taken))
                })
                .sum(),
            cpu_left: m.allocatable.cpu.0.saturating_sub(m.requested.cpu.0),
            machine: name,
        })
        .min();
    match best {
        Some(fitting) => Ok(fitting.machine),
        None => Err(unfit(pod, machines)),
    }
}

impl ClusterSeen {
    /// Why no machine holds `pod`; `None` when one does.
    pub fn unfit(&self, pod: &PodSpec) -> Option<Unfit> {
        choose(pod, self.machines.iter()).err()
    }
    /// Whether `pod` could run here if nothing else did: what is warned of when a type is applied.
    pub fn ever_unfit(&self, pod: &PodSpec) -> Option<Unfit> {
        let empty: BTreeMap<Box<str>, Machine> = self
            .machines
            .iter()
            .map(|(name, m)| {
                let empty = Machine {
                    requested: Default::default(),
                    pods_there: 0,
                    ..m.clone()
                };
                (name.clone(), empty)
            })
            .collect();
        choose(pod, empty.iter()).err()
    }
}

fn unfit<'a>(pod: &PodSpec, machines: impl Iterator<Item = (&'a Box<str>, &'a Machine)>) -> Unfit {
    let mut found: Vec<(Distance<'a>, Vec<Obstacle>, &'a Machine)> = machines
        .filter_map(|(name, m)| {
            let obstacles = m.holds(&pod.requests, &pod.selector).err()?;
            Some((Distance::of(name, &obstacles), obstacles, m))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let headline = headline(pod, &found);
    let fixes = match found.first() {
        None => vec![Fix::AddMachine {
            with: wish(pod).into(),
        }],
        Some((distance, obstacles, machine)) => obstacles
            .iter()
            .map(|o| fix(pod, distance.machine, machine, o))
            .collect(),
    };
    let more = found.len().saturating_sub(SHOWN_MACHINES);
    Unfit {
        headline,
        machines: found
            .iter()
            .take(SHOWN_MACHINES)
            .filter_map(|(d, obstacles, _)| Some((d.machine.into(), obstacles.first()?.clone())))
            .collect(),
        more: u32::try_from(more).unwrap_or(u32::MAX),
        fixes,
    }
}

fn headline(pod: &PodSpec, found: &[(Distance<'_>, Vec<Obstacle>, &Machine)]) -> Headline {
    if found.is_empty() {
        return Headline::NoMachines;
    }
    for (key, want) in &pod.selector {
        if found
            .iter()
            .any(|(_, _, m)| m.labels.get(key) == Some(want))
        {
            continue;
        }
        let mut others: BTreeMap<Box<str>, u32> = BTreeMap::new();
        for (_, _, machine) in found {
            if let Some(have) = machine.labels.get(key) {
                *others.entry(format!("{key}={have}").into()).or_default() += 1;
            }
        }
        return Headline::NoLabel {
            label: format!("{key}={want}").into(),
            others,
        };
    }
    let matching = found
        .iter()
        .map(|(_, _, m)| *m)
        .filter(|m| pod.selector.iter().all(|(k, v)| m.labels.get(k) == Some(v)));
    let most = |of: fn(&Machine) -> u64| matching.clone().map(of).max().unwrap_or(0);
    let small = |what: &str, largest: String, need: String| Headline::TooSmall {
        what: what.into(),
        largest: largest.into(),
        need: need.into(),
    };
    let (cpu, memory) = (
        most(|m| m.allocatable.cpu.0),
        most(|m| m.allocatable.memory.0),
    );
    if pod.requests.cpu.0 > cpu {
        return small(
            "cpu",
            MilliCpu(cpu).to_string(),
            pod.requests.cpu.to_string(),
        );
    }
    if pod.requests.memory.0 > memory {
        return small(
            "memory",
            Bytes(memory).to_string(),
            pod.requests.memory.to_string(),
        );
    }
    for (name, &need) in &pod.requests.devices {
        let have = matching
            .clone()
            .filter_map(|m| m.allocatable.devices.get(name).copied())
            .max()
            .unwrap_or(0);
        if need > have {
            return small(name, have.to_string(), need.to_string());
        }
    }
    Headline::Mixed
}

fn fix(pod: &PodSpec, name: &str, machine: &Machine, obstacle: &Obstacle) -> Fix {
    let lower = |what: &str, left: u64, to: String| {
        if left == 0 {
            return Fix::AddMachine {
                with: wish(pod).into(),
            };
        }
        Fix::Lower {
            instance_type: pod.instance_type.clone(),
            path: format!("spec.resources.{what}").into(),
            to: to.into(),
        }
    };
    let free = |what: String| Fix::Free {
        machine: name.into(),
        what: what.into(),
    };
    match obstacle {
        Obstacle::NotReady { .. } => Fix::Repair {
            machine: name.into(),
        },
        Obstacle::Cordoned => Fix::Uncordon {
            machine: name.into(),
        },
        Obstacle::Label { key, want, .. } => Fix::Label {
            machine: name.into(),
            key: key.clone(),
            value: want.clone(),
        },
        Obstacle::Taint(taint) => Fix::Untaint {
            machine: name.into(),
            taint: taint.clone(),
        },
        Obstacle::Pods { .. } => {
            let over = machine.pods_there.saturating_sub(machine.pods) + 1;
            free(format!("{over} pod{}", if over == 1 { "" } else { "s" }))
        }
        Obstacle::Cpu {
            need,
            allocatable,
            taken,
        } => {
            if obstacle.for_ever() {
                let left = MilliCpu(allocatable.0.saturating_sub(taken.0));
                return lower("requests.cpu", left.0, left.to_string());
            }
            let over = (need.0 + taken.0).saturating_sub(allocatable.0);
            free(format!("{} cpu", MilliCpu(over)))
        }
        Obstacle::Memory {
            need,
            allocatable,
            taken,
        } => {
            if obstacle.for_ever() {
                let left = Bytes(allocatable.0.saturating_sub(taken.0));
                return lower("requests.memory", left.0, left.to_string());
            }
            let over = (need.0 + taken.0).saturating_sub(allocatable.0);
            free(format!("{} memory", Bytes(over)))
        }
        Obstacle::Device {
            name: device,
            need,
            allocatable,
            taken,
        } => {
            if obstacle.for_ever() {
                let left = allocatable.saturating_sub(*taken);
                return lower(&format!("limits.{device}"), left.into(), left.to_string());
            }
            let over = need.saturating_add(*taken).saturating_sub(*allocatable);
            free(format!("{over} {device}"))
        }
    }
}

/// What a machine would need to have.
fn wish(pod: &PodSpec) -> String {
    let mut parts = vec![
        format!("{} cpu", pod.requests.cpu),
        format!("{} memory", pod.requests.memory),
    ];
    let devices = pod.requests.devices.iter().filter(|(_, n)| **n > 0);
    parts.extend(devices.map(|(name, n)| format!("{n} {name}")));
    parts.extend(pod.selector.iter().map(|(k, v)| format!("label {k}={v}")));
    parts.join(", ")
}

impl fmt::Display for Headline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Headline::NoMachines => f.write_str("the cluster has no node"),
            Headline::TooSmall {
                what,
                largest,
                need,
            } => write!(
                f,
                "largest node has {largest} {what}, the type needs {need}"
            ),
            Headline::NoLabel { label, others } => {
                write!(f, "no node carries {label}")?;
                for (other, n) in others {
                    let (s, verb) = if *n == 1 {
                        ("", "carries")
                    } else {
                        ("s", "carry")
                    };
                    write!(f, "; {n} node{s} {verb} {other}")?;
                }
                Ok(())
            }
            Headline::Mixed => f.write_str("no node has room for it now"),
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.headline.fmt(f)?;
        for (n, (machine, obstacle)) in self.machines.iter().enumerate() {
            f.write_str(if n == 0 { " (" } else { "; " })?;
            write!(f, "{machine}: {obstacle}")?;
        }
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        f.write_str(if self.machines.is_empty() { "" } else { ")" })
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fix::Uncordon { machine } => write!(f, "kubectl uncordon {machine}"),
            Fix::Label {
                machine,
                key,
                value,
            } => write!(f, "kubectl label node {machine} --overwrite {key}={value}"),
            Fix::Untaint { machine, taint } => {
                write!(
                    f,
                    "kubectl taint node {machine} {}:{}-",
                    taint.key, taint.effect
                )
            }
            Fix::Repair { machine } => write!(f, "repair node {machine}"),
            Fix::Free { machine, what } => write!(f, "free {what} on node {machine}"),
            Fix::Lower {
                instance_type,
                path,
                to,
            } => write!(
                f,
                "lower {path} of instance type {instance_type} to {to} or less"
            ),
            Fix::AddMachine { with } => write!(f, "add a node with {with}"),
        }
    }
}
