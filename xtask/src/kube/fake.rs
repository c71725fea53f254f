//! Pretended nodes: objects without a machine, kept up by kwok, whose pods run nothing.
//!
//! They show what no test machine has: GPUs, hundreds of nodes. Pods on them are Running at once and end when an
//! annotation says so (`xtask/kube/fake-nodes.yaml`).

use super::cluster::{Cluster, Ports};
use super::programs::Programs;
use super::{control_plane, node, process, tools};
use crate::cargo::root;
use anyhow::Result;
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// A hundred nodes take a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// kwok touches only nodes with this annotation.
const MARK: &str = "kwok.x-k8s.io/node";

/// `beside_real`: pods that do not ask for a pretended node must not come to one.
pub fn start(
    cluster: &Cluster,
    ports: &Ports,
    programs: &Programs,
    nodes: u32,
    beside_real: bool,
) -> Result<()> {
    let api = cluster.api()?;
    for number in 1..=nodes {
        api.create("/api/v1/nodes", &node_object(number, beside_real))?;
    }
    let mut command = Command::new(programs.path("kwok"));
    let address = format!("127.0.0.1:{}", ports.kwok);
    command.args([
        format!("--kubeconfig={}", cluster.kubeconfig("admin").display()),
        format!(
            "--config={}",
            root().join("xtask/kube/fake-nodes.yaml").display()
        ),
        format!("--server-address={address}"),
        format!("--manage-nodes-with-annotation-selector={MARK}=fake"),
    ]);
    command.args([
        "--manage-all-nodes=false",
        "--node-ip=10.0.0.1",
        "--cidr=10.245.0.0/16",
        "--node-lease-duration-seconds=40",
    ]);
    let process = process::start(&cluster.state, "kwok", &command)?;
    tools::wait_for("kwok", PATIENCE, || {
        process.must_run()?;
        Ok(control_plane::answers(&format!("http://{address}/healthz")).then_some(()))
    })?;
    tools::wait_for("ready pretended nodes", PATIENCE, || {
        process.must_run()?;
        let list = api.get("/api/v1/nodes?labelSelector=zaffre.test%2Fnode%3Dfake");
        let list = list.unwrap_or_default();
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let ready = items.iter().filter(|item| node::is_ready(item)).count();
        Ok((ready == nodes as usize).then_some(()))
    })?;
    eprintln!("  {nodes} pretended nodes are ready");
    Ok(())
}

fn node_object(number: u32, beside_real: bool) -> Value {
    let name = format!("fake-{number}");
    let mut spec = json!({});
    if beside_real {
        spec["taints"] = json!([{"key": MARK, "value": "fake", "effect": "NoSchedule"}]);
    }
    let resources = json!({"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "4", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node", "spec": spec,
        "metadata": {
            "name": name,
            "annotations": {MARK: "fake"},
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name,
                "zaffre.test/node": "fake",
            },
        },
        "status": {"allocatable": resources, "capacity": resources},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_stay_away_from_pretended_nodes_beside_a_real_one() {
        assert_eq!(
            node_object(3, true)["spec"]["taints"][0]["effect"],
            "NoSchedule"
        );
        assert_eq!(node_object(3, false)["spec"], json!({}));
        assert_eq!(node_object(3, false)["metadata"]["name"], "fake-3");
    }
}
