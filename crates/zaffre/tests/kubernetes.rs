//! Kubernetes computes as people use them: the seeds' instance types and job, on this machine as a cluster of one node.

mod support;

use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt, time::Duration};
use support::{SEEDS_NODE, Server, kubectl, shared};

const SOON: Duration = Duration::from_secs(60);
const SINGLE: &str = "fixtures/seed/my_instance_type.yaml";
const LIST: &str = "fixtures/seed/my_instance_type_list.yaml";

/// A server with the seeds' labels and a compute `k8s`.
fn attached() -> Server {
    let server = Server::start_with(&SEEDS_NODE);
    server.ok(&[
        "compute",
        "attach",
        "--type",
        "kubernetes",
        "-n",
        "k8s",
        "-o",
        "none",
    ]);
    server
}

fn apply(server: &Server, manifest: &str) {
    support::write(&server.folder, "type.yaml", manifest);
    server.ok(&["instance-type", "apply", "-f", "type.yaml", "-o", "none"]);
}

/// A manifest of a type.
fn manifest(name: &str, cpu: &str, gpu: &str) -> String {
    format!(
        "apiVersion: amlarc.azureml.com/v1alpha1\nkind: InstanceType\nmetadata: {{name: {name}}}\nspec:\n  resources:\n    \
         requests: {{cpu: \"{cpu}\", memory: 64Mi}}\n    limits: {{cpu: \"{cpu}\", memory: 1Gi{gpu}}}\n"
    )
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// One of the seeds' job files with its placeholders filled; without a type its `resources` go.
fn job_file(server: &Server, seed: &str, instance_type: Option<&str>) {
    let text = fs::read_to_string(shared(seed)).unwrap();
    let text = text.replace("<Kubernetes-compute_target_name>", "k8s");
    let text = match instance_type {
        Some(name) => text.replace("<instance type name>", name),
        None => text[..text.find("resources:").unwrap()].to_owned(),
    };
    support::write(&server.folder, "job.yml", &text);
}

#[test]
fn the_seeds_types_and_job_run_on_this_machine() {
    let server = Server::start_with(&SEEDS_NODE);
    let built_in = server.ok(&["instance-type", "list", "-o", "json"]);
    assert_eq!(json(&built_in)[0]["name"], "defaultinstancetype");
    let kubectls = kubectl::all("the seeds' `kubectl apply`");
    match kubectls.first() {
        Some(kubectl) => {
            let none = kubectl.ok(&server, &["get", "instancetype", "-o", "name"]);
            assert_eq!(none, "", "the built-in type is no resource (R-14)");
            for manifest in [SINGLE, LIST] {
                let path = shared(manifest).display().to_string();
                kubectl.ok(&server, &["apply", "-f", &path]);
            }
            let names = kubectl.ok(&server, &["get", "instancetype", "-o", "name"]);
            let names: Vec<&str> = names.lines().filter_map(|l| l.split('/').nth(1)).collect();
            assert_eq!(
                names,
                ["cpusmall", "defaultinstancetype", "myinstancetypename"]
            );
        }
        None => {
            for manifest in [SINGLE, LIST] {
                let path = shared(manifest).display().to_string();
                server.ok(&["instance-type", "apply", "-f", &path, "-o", "none"]);
            }
        }
    }
    server.ok(&[
        "compute",
        "attach",
        "--type",
        "kubernetes",
        "-n",
        "k8s",
        "-o",
        "none",
    ]);
    let mut n = 0;
    for seed in [
        "fixtures/seed/command-job.yml",
        "fixtures/seed/000/command-job.yml",
    ] {
        for instance_type in [Some("cpusmall"), Some("myinstancetypename"), None] {
            job_file(&server, seed, instance_type);
            n += 1;
            let name = format!("j{n}");
            let said = server.ok(&["job", "create", "-f", "job.yml", "-n", &name, "--stream"]);
            assert!(said.lines().any(|line| line == "Hello world!"), "{said}");
            let job = json(&server.ok(&["job", "show", "-n", &name, "-o", "json"]));
            assert_eq!(job["status"], "Completed");
        }
    }
    server.stop();
}

#[test]
fn a_type_without_a_gpu_with_none_and_with_a_null_run_and_one_that_is_not_there_is_named() {
    let server = attached();
    for (name, gpu) in [
        ("absent", ""),
        ("zero", ", nvidia.com/gpu: 0"),
        ("nothing", ", nvidia.com/gpu: null"),
    ] {
        apply(&server, &manifest(name, "100m", gpu));
        job_file(&server, "fixtures/seed/command-job.yml", Some(name));
        server.ok(&["job", "create", "-f", "job.yml", "-n", name, "--stream"]);
    }
    job_file(&server, "fixtures/seed/command-job.yml", Some("other"));
    let output = server.run(&["job", "create", "-f", "job.yml", "-n", "x"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(
            "instance type other not found on compute k8s; known: absent, defaultinstancetype, nothing, zero"
        ),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(2), "{said}");
    server.stop();
}

#[test]
fn a_type_larger_than_the_machine_is_taken_with_a_warning_and_its_job_runs_once_it_is_lowered() {
    let server = attached();
    support::write(&server.folder, "type.yaml", &manifest("big", "640", ""));
    let output = server.run(&["instance-type", "apply", "-f", "type.yaml", "-o", "none"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the type needs 640"), "{said}");
    job_file(&server, "fixtures/seed/command-job.yml", Some("big"));
    server.ok(&["job", "create", "-f", "job.yml", "-n", "j", "-o", "none"]);
    let why = server.ok(&["job", "explain", "-n", "j"]);
    assert!(
        why.contains("instance type big: largest node has")
            && why.contains("hint: lower spec.resources.requests.cpu"),
        "{why}"
    );
    let shown = server.ok(&["job", "show", "-n", "j", "-o", "json"]);
    assert_eq!(json(&shown)["status"], "Queued");
    apply(&server, &manifest("big", "100m", ""));
    server.wait("the job runs", SOON, |server| {
        let shown = server.ok(&["job", "show", "-n", "j", "-o", "json"]);
        json(&shown)["status"] == "Completed"
    });
    server.stop();
}

#[test]
fn a_kubeconfig_is_kept_for_the_server_alone_and_shown_as_a_digest() {
    let server = Server::start();
    let config = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
                  clusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\nusers: [{name: u, user: {token: hunter2}}]\n";
    support::write(&server.folder, "config", config);
    let attach = [
        "compute",
        "attach",
        "--type",
        "kubernetes",
        "-n",
        "far",
        "--kubeconfig",
        "config",
    ];
    let shown = server.ok(&[&attach[..], &["-o", "json"]].concat());
    let digest = json(&shown)["properties"]["zaffre.kubeconfig"].clone();
    let digest = digest
        .as_str()
        .unwrap()
        .strip_prefix("sha256:")
        .unwrap()
        .to_owned();
    assert!(!shown.contains("hunter2"), "{shown}");
    let file = server.data().join("kube").join(&digest);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let database = fs::read(server.data().join("zaffre.db")).unwrap();
    let secret = b"hunter2";
    assert!(!database.windows(secret.len()).any(|w| w == secret));
    assert!(!server.log().contains("hunter2"));
    server.ok(&["compute", "detach", "-n", "far", "--yes"]);
    let output = server.run(&["compute", "show", "-n", "far"]);
    assert_eq!(output.status.code(), Some(3));
    server.stop();
}

/// `types.yaml`, `hello.yml`, `ranks.yml`, `huge.yml` and `steps.yml` of `examples/kubernetes`; a cluster of one's own runs them in
/// `quickstart --engine kubernetes`.
#[test]
fn the_examples_run_on_this_machine_too() {
    let server = attached();
    let examples = support::repository().join("examples/kubernetes");
    let at = |name: &str| examples.join(name).display().to_string();
    server.ok(&[
        "instance-type",
        "apply",
        "-f",
        &at("types.yaml"),
        "-o",
        "none",
    ]);
    for (file, says) in [
        ("hello.yml", "Hello from a pod"),
        ("ranks.yml", "rank 0 of 2, first is 127.0.0.1"),
        ("steps.yml", "step 40"),
    ] {
        let said = server.ok(&["job", "create", "-f", &at(file), "--stream"]);
        assert!(said.lines().any(|line| line == says), "{file}: {said}");
    }
    server.ok(&[
        "job",
        "create",
        "-f",
        &at("huge.yml"),
        "-n",
        "huge",
        "-o",
        "none",
    ]);
    let why = server.ok(&["job", "explain", "-n", "huge"]);
    assert!(why.contains("the type needs 640"), "{why}");
    server.ok(&["job", "cancel", "-n", "huge"]);
    server.stop();
}
