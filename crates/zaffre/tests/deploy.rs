//! What lies under `deploy/`: it builds, and a real API server takes it.

mod support;

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};
use support::{kubectl, repository};

fn kubectl(args: &[&str], input: &[u8]) -> Output {
    let all = kubectl::all("the manifests under deploy/");
    let program = all
        .first()
        .map_or("kubectl".into(), |kubectl| kubectl.path().to_owned());
    let mut child = Command::new(program)
        .args(args)
        .current_dir(repository())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn built(folder: &str) -> Vec<u8> {
    let output = kubectl(&["kustomize", folder], b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{folder}: {said}");
    output.stdout
}

#[test]
fn the_server_is_deployed_with_the_definition_and_no_more_rights_than_it_needs() {
    if kubectl::all("the manifests under deploy/").is_empty() {
        return;
    }
    let text = String::from_utf8(built("deploy/kubernetes")).unwrap();
    for part in [
        "name: instancetypes.amlarc.azureml.com",
        "kind: StatefulSet",
        "--agents-url=https://zaffre.zaffre.svc:8443",
        "kind: ServiceAccount",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains("kind: User\n"),
        "the example's user is replaced"
    );
    let wildcards = text.lines().filter(|line| line.trim() == "- '*'");
    assert_eq!(wildcards.count(), 0, "{text}");
}

#[test]
fn a_real_api_server_takes_what_is_deployed() {
    let Some(config) = std::env::var("ZAFFRE_KUBECONFIG_REAL").ok() else {
        let note =
            "skipped: ZAFFRE_KUBECONFIG_REAL names no API server that could take deploy/kubernetes";
        drop(writeln!(std::io::stderr(), "{note}"));
        return;
    };
    // The namespace first: what lies in it is refused without it, also in a dry run.
    let flags = ["--kubeconfig", &config];
    let namespace = b"apiVersion: v1\nkind: Namespace\nmetadata: {name: zaffre}\n";
    let made = kubectl(&[&flags[..], &["apply", "-f", "-"]].concat(), namespace);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let dry = [&flags[..], &["apply", "--dry-run=server", "-f", "-"]].concat();
    let output = kubectl(&dry, &built("deploy/kubernetes"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
