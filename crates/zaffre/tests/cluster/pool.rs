//! A batch run on a cluster of low priority whose nodes are pods: its rows are the same whatever becomes of the nodes.

use super::{Rig, support, wait};
use std::fs;
use support::site;

/// Three quarters of a minute for one node: others come and go meanwhile, on a machine that builds something else, too.
const FILES: usize = 320;
/// Slow enough that the nodes are taken away in the middle.
const SLOW: &str = "\
import os, time
def init():
    pass
def run(mini_batch):
    rows = []
    for path in mini_batch:
        time.sleep(0.15)
        name, text = os.path.basename(path), open(path).read()
        with open(os.path.join(os.environ['AZUREML_BI_OUTPUT_PATH'], name), 'w') as out:
            out.write(text)
        rows.append(name + ' ' + text)
    return rows
";
const SETTINGS: &str = "mini_batch_size: 2\nmax_concurrency_per_instance: 1\n";

fn cluster(name: &str, size: &str) -> String {
    format!(
        "name: {name}\ntype: amlcompute\nsize: {size}\nmax_instances: 2\ntier: low_priority\n\
         tags: {{zaffre.kubernetes: k8s, zaffre.node_image: 'docker.io/library/python:latest'}}\n"
    )
}

/// Pods of a cluster, as `kubectl` names them.
fn pods(rig: &Rig, cluster: &str, more: &[&str]) -> Vec<String> {
    let label = format!("zaffre/cluster={cluster}");
    let mut args = vec!["get", "pods", "-l", &label, "-o", "name"];
    args.extend(more);
    let text = rig.cluster.kubectl(&args);
    text.lines().map(str::to_owned).collect()
}

fn running(rig: &Rig) -> Vec<String> {
    pods(rig, "pool", &["--field-selector=status.phase=Running"])
}

pub fn a_batch_runs_on_pods(rig: &mut Rig) {
    support::write(
        &rig.server.folder,
        "cluster.yml",
        &cluster("pool", "Standard_D1_v2"),
    );
    site::deploy_on(&rig.server, SLOW, SETTINGS);
    let names: Vec<String> = (0..FILES).map(|n| format!("f{n:03}")).collect();
    let texts: Vec<String> = (0..FILES).map(|n| n.to_string()).collect();
    let files = names.iter().zip(&texts).map(|(n, t)| (&**n, &**t));
    site::fill(&rig.server.folder.join("in"), files);
    rig.ok(&site::invoke("scored", "in", &[]));
    let done = |rig: &Rig| rig.server.count("scored", "mini_batches_done");

    // The cluster takes one.
    wait("both nodes", || running(rig).len() == 2 && done(rig) > 2);
    let first = running(rig).remove(0);
    rig.cluster.kubectl(&["delete", &first, "--wait=false"]);
    wait("its successor", || {
        let now = running(rig);
        now.len() == 2 && !now.contains(&first)
    });

    // We take one. The successor takes part by then: losing a node without work costs the run nothing, and is not counted.
    let at_work = |rig: &Rig| {
        let query = "length([?run_id] || [?runId])";
        rig.server
            .value(&["compute", "list-nodes", "-n", "pool"], query)
            == "2"
    };
    wait("work on both nodes", || at_work(rig));
    let before = done(rig);
    wait("more work", || done(rig) > before + 2);
    rig.ok(&["compute", "preempt", "-n", "pool", "--nodes", "1"]);
    wait("both losses to be counted", || {
        rig.server.count("scored", "preemptions") >= 2
    });

    // The server dies meanwhile.
    rig.server.kill();
    rig.server.restart();
    rig.until("scored", "Completed");

    let expected: String = names
        .iter()
        .zip(&texts)
        .map(|(name, text)| format!("{name} {text}\n"))
        .collect();
    let got = String::from_utf8(site::predictions(&rig.server, "scored")).unwrap();
    assert_eq!(got, expected, "every row once, in order");
    let came = rig.server.folder.join("got-scored");
    for (name, text) in names.iter().zip(&texts) {
        assert_eq!(fs::read_to_string(came.join(name)).unwrap(), *text);
    }

    // What is below a cluster is not taken away from under it.
    let refused = rig.server.run(&["compute", "detach", "-n", "k8s", "-y"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("pool"), "{said}");

    // A size that no machine has waits, and says why.
    support::write(
        &rig.server.folder,
        "huge.yml",
        &cluster("huge", "Standard_D64_v3"),
    );
    rig.ok(&["compute", "create", "-f", "huge.yml", "-o", "none"]);
    let job = "command: echo never\nenvironment: {image: 'docker.io/library/python:latest'}\ncompute: azureml:huge\n";
    support::write(&rig.server.folder, "never.yml", job);
    rig.ok(&[
        "job",
        "create",
        "-f",
        "never.yml",
        "-n",
        "never",
        "-o",
        "none",
    ]);
    wait("the scheduler's reason", || {
        rig.ok(&["job", "explain", "-n", "never"])
            .contains("Insufficient cpu")
    });
    rig.ok(&["job", "cancel", "-n", "never"]);
    rig.until("never", "Canceled");

    for name in ["huge", "pool"] {
        rig.ok(&["compute", "delete", "-n", name, "-y"]);
        wait("its pods to be gone", || pods(rig, name, &[]).is_empty());
    }
}
