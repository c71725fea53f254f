//! The embedded cluster: what is shown of this machine, and tasks that are pods of it.

mod support;

use model::{ClusterKey, kubernetes::Labels};
use port::Engine;
use support::Rig;

fn declared(name: &str) -> Rig {
    let mut rig = Rig::new(name);
    rig.close();
    rig.labels.insert("zone".into(), "a".into());
    rig.devices.insert("nvidia.com/gpu".into(), 2);
    rig.node_selector.insert("pool".into(), "ml".into());
    rig.open();
    rig
}

#[test]
fn this_machine_is_a_cluster_of_one_node() {
    let rig = declared("seen");
    let seen = rig.local().observe();
    let cluster = seen.clusters.get(&ClusterKey::Embedded).unwrap();
    assert!(cluster.placed_here && cluster.types.is_none() && cluster.trouble.is_none());
    assert_eq!(
        cluster.node_selector,
        Labels::from([("pool".into(), "ml".into())])
    );
    let (name, machine) = cluster.machines.first_key_value().unwrap();
    assert_eq!(machine.labels["kubernetes.io/hostname"], *name);
    assert_eq!(&*machine.labels["zone"], "a");
    assert_eq!(machine.allocatable.devices["nvidia.com/gpu"], 2);
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    assert_eq!(machine.allocatable.cpu.0, cores * 1000);
    assert!(machine.allocatable.memory.0 > 1 << 28, "{machine:?}");
    let said = rig.local().report().join("\n");
    assert!(said.contains("2 nvidia.com/gpu, "), "{said}");
}
