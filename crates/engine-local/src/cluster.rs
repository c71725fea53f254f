//! This machine shown as a cluster of one node: it stands behind every Kubernetes compute that has none of its own.
//!
//! L1 cores and memory are the machine's own, never declared; devices are those found, or those declared in their place;
//! L2 a declared device without hardware behind it is nominal: it is counted like any other, and said to be nominal;
//! L3 the machine carries the labels that every node of Kubernetes carries, whatever is declared beside them.

use model::{
    Bytes, ClusterSeen, MilliCpu, Resources,
    instance_type::GPU,
    kubernetes::{Labels, Machine},
};
use std::{collections::BTreeMap, fmt::Write as _, fs};

/// Pods of one node: the kubelet's own default.
const PODS: u32 = 110;
/// Labels of every node (L3).
pub const OWN_LABELS: [&str; 3] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
];

/// What is declared of it.
pub struct Declared {
    /// Labels beside its own.
    pub labels: Labels,
    /// Devices by name, in place of what is found.
    pub devices: BTreeMap<Box<str>, u32>,
    /// Where all workloads must run: the extension's node selector.
    pub node_selector: Labels,
}

/// What is found.
pub struct Found {
    /// Cores.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// NVIDIA GPUs.
    pub gpus: usize,
}

/// The cluster, and lines that say what it is.
pub fn embedded(declared: Declared, found: &Found) -> (ClusterSeen, Vec<String>) {
    let host = host_name();
    let own = [&*host, "linux", arch()];
    let mut labels = declared.labels;
    labels.extend(
        OWN_LABELS
            .into_iter()
            .zip(own)
            .map(|(k, v)| (k.into(), v.into())),
    );
    let gpus = u32::try_from(found.gpus).unwrap_or(u32::MAX);
    let mut devices = declared.devices;
    if gpus > 0 {
        devices.entry(GPU.into()).or_insert(gpus);
    }
    let real = |name: &str| if name == GPU { gpus } else { 0 };
    let mut lines = vec![line(&host, &labels, &declared.node_selector)];
    for (name, &count) in &devices {
        let nominal = count.saturating_sub(real(name));
        lines.push(match nominal {
            0 => format!("embedded cluster: {count} {name}"),
            _ => format!(
                "embedded cluster: {count} {name}, {nominal} of them nominal: no hardware stands behind them"
            ),
        });
    }
    devices.retain(|_, count| *count > 0);
    let machine = Machine {
        labels,
        allocatable: Resources {
            cpu: MilliCpu(
                u64::try_from(found.cores)
                    .unwrap_or(u64::MAX)
                    .saturating_mul(1000),
            ),
            memory: Bytes(found.memory),
            devices,
        },
        pods: PODS,
        ..Machine::default()
    };
    let seen = ClusterSeen {
        placed_here: true,
        types: None,
        node_selector: declared.node_selector,
        machines: BTreeMap::from([(host, machine)]),
        trouble: None,
    };
    (seen, lines)
}

fn line(host: &str, labels: &Labels, selector: &Labels) -> String {
    let list = |of: &Labels| {
        let pairs: Vec<String> = of.iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.join(", ")
    };
    let mut line = format!("embedded cluster: node {host} with labels {}", list(labels));
    if !selector.is_empty() {
        let _ = write!(line, "; all its work needs {}", list(selector));
    }
    line
}

/// The machine's name as Kubernetes would take it: lower case, and a legal label value.
fn host_name() -> Box<str> {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let legal = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = text.trim().chars().map(legal).take(63).collect();
    match name.trim_matches(['-', '.']) {
        "" => "localhost".into(),
        name => name.into(),
    }
}

/// The architecture in Kubernetes' words.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(devices: &[(&str, u32)], gpus: usize) -> (Machine, String) {
        let declared = Declared {
            labels: Labels::from([("zone".into(), "a".into())]),
            devices: devices.iter().map(|(n, c)| ((*n).into(), *c)).collect(),
            node_selector: Labels::from([("pool".into(), "ml".into())]),
        };
        let found = Found {
            cores: 8,
            memory: 1 << 34,
            gpus,
        };
        let (seen, lines) = embedded(declared, &found);
        assert!(seen.placed_here && seen.types.is_none() && seen.trouble.is_none());
        assert_eq!(&*seen.node_selector["pool"], "ml");
        let machine = seen.machines.into_values().next().unwrap();
        (machine, lines.join("\n"))
    }

    #[test]
    fn l1_what_is_declared_wins_over_what_is_found() {
        let (machine, _) = shown(&[], 4);
        assert_eq!(
            machine.allocatable.devices,
            BTreeMap::from([(GPU.into(), 4)])
        );
        assert_eq!(machine.allocatable.cpu, MilliCpu(8000));
        assert_eq!(machine.allocatable.memory, Bytes(1 << 34));
        assert_eq!(machine.pods, 110);
        let (machine, _) = shown(&[(GPU, 2)], 4);
        assert_eq!(
            machine.allocatable.devices,
            BTreeMap::from([(GPU.into(), 2)])
        );
        let (machine, said) = shown(&[(GPU, 0)], 4);
        assert!(machine.allocatable.devices.is_empty(), "{said}");
    }

    #[test]
    fn l2_devices_without_hardware_are_said_to_be_nominal() {
        let (_, said) = shown(&[(GPU, 3), ("amd.com/gpu", 1)], 1);
        assert!(
            said.contains("3 nvidia.com/gpu, 2 of them nominal"),
            "{said}"
        );
        assert!(said.contains("1 amd.com/gpu, 1 of them nominal"), "{said}");
        let (_, said) = shown(&[(GPU, 1)], 1);
        assert!(!said.contains("nominal"), "{said}");
    }

    #[test]
    fn l3_the_labels_of_every_node_are_there() {
        let (machine, said) = shown(&[], 0);
        assert_eq!(&*machine.labels["kubernetes.io/os"], "linux");
        assert_eq!(&*machine.labels["zone"], "a");
        assert!(machine.labels.contains_key("kubernetes.io/hostname"));
        assert!(machine.labels.contains_key("kubernetes.io/arch"));
        assert!(
            said.contains("zone=a; all its work needs pool=ml"),
            "{said}"
        );
    }
}
