//! The conformance flows of ../shared, with the stock `azure-ai-ml`, each against a server of its own.
//!
//! Their Python is a virtual environment that is made once per target folder and set of requirements, or the one that
//! `ZAFFRE_SDK_PYTHON` names. `cargo test -p zaffre --test sdk flow_05` runs one of them.

mod support;

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};
use support::{
    SEEDS_NODE, Server,
    python::{python, text},
    repository, shared,
};

/// Flows that do not pass yet, and why. One that passes must leave the list, so it only becomes shorter; 07 and 08 are
/// about online endpoints as a whole, which are not served yet.
const NOT_YET: &[(&str, &str)] = &[
    ("06_assets", "components are not built"),
    ("10_pipeline", "components and pipeline jobs are not built"),
    ("11_sweep", "sweep jobs are not built"),
];

/// Signs in with the token of the server, as a file of the data folder has it.
const SIGN_IN: &str = "\
import os, pathlib, runpy, sys, time
flow = sys.argv[1]
sys.path.insert(0, os.path.dirname(flow))
import common
from azure.core.credentials import AccessToken
class Token:
    def get_token(self, *scopes, **options):
        return AccessToken(pathlib.Path(os.environ['TOKEN']).read_text().strip(), int(time.time()) + 3600)
common.credential = Token
sys.argv = [flow]
runpy.run_path(flow, run_name='__main__')
";

fn played(server: &Server, flow: &str) -> Output {
    let path = shared(&format!("conformance/{flow}.py"));
    let home = server.folder.join("python-home");
    fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(python());
    command
        .args(["-c", SIGN_IN])
        .arg(&path)
        .current_dir(&server.folder)
        .stdin(Stdio::null())
        .env("AML_URL", &server.url)
        .env("AML_CA", server.data().join("ca.pem"))
        .env("AML_RG", "default")
        .env("AML_WS", "default")
        .env("AML_REAL", "1")
        .env("AML_ONLINE", "0")
        .env("TOKEN", server.data().join("token"))
        // Its caches, and the folders of jobs that it makes, go with the test.
        .env("HOME", home)
        .env("TMPDIR", &server.folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*");
    for name in ["AML_AUTH", "AML_RECORD", "AML_SUB", "AZUREML_CURRENT_CLOUD"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

/// Plays a flow: it must pass, or stand in [`NOT_YET`] and fail.
fn flow(name: &str) {
    let server = Server::start_with(&SEEDS_NODE);
    let output = played(&server, name);
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    let oks = said
        .lines()
        .filter(|line| line.trim_start_matches('.').starts_with("ok "))
        .count();
    // Past the capture of the test harness: how far a flow came is the result.
    let tell = |verdict: &str| {
        drop(writeln!(std::io::stderr(), "{name}: {verdict}, {oks} ok"));
    };
    let reason = NOT_YET.iter().find(|(known, _)| *known == name);
    match (output.status.success() && oks > 0, reason) {
        (true, None) => {
            tell("passes");
            server.stop();
        }
        (false, Some((_, reason))) => {
            let last = complained.lines().rfind(|line| !line.is_empty());
            tell(&format!(
                "not yet ({reason}): {}",
                last.unwrap_or("no error")
            ));
        }
        (true, Some(_)) => panic!("{name} passes with {oks} ok: take it from NOT_YET"),
        (false, None) => {
            tell("FAILS");
            panic!(
                "{name}: {}\n{said}{complained}\nserver: {}",
                output.status,
                server.log()
            );
        }
    }
}

/// Plays a program of `tests/sdk`, which must end well.
fn program(name: &str, flags: &[&str], arguments: &[&std::path::Path]) {
    let server = Server::start_with(&[&SEEDS_NODE, flags].concat());
    let home = server.folder.join("python-home");
    fs::create_dir_all(&home).unwrap();
    let output = Command::new(python())
        .arg(repository().join("tests/sdk").join(name))
        .args(arguments)
        .current_dir(&server.folder)
        .stdin(Stdio::null())
        .env("ZAFFRE_URL", &server.url)
        .env("ZAFFRE_DATA", server.data())
        .env("HOME", home)
        .env("TMPDIR", &server.folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*")
        .env_remove("AZUREML_CURRENT_CLOUD")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{name}: {}\n{}{}\nserver: {}",
        output.status,
        text(&output.stdout),
        text(&output.stderr),
        server.log()
    );
    server.stop();
}

#[test]
fn seed_001_written_with_the_sdk_scores_every_row_once() {
    let hearts = tempfile::tempdir().unwrap();
    for part in 0..4 {
        let name = format!("heart-unlabeled-{part}.csv");
        fs::copy(
            shared(&format!("data/heart/{name}")),
            hearts.path().join(name),
        )
        .unwrap();
    }
    program("low_priority.py", &[], &[hearts.path()]);
}

#[test]
fn seed_002_written_with_the_sdk_runs_as_its_instance_type_and_is_judged_by_it() {
    program("instance_types.py", &[], &[]);
}

#[test]
fn workspaces_datastores_computes_and_endpoints_have_their_classes() {
    let rows = tempfile::tempdir().unwrap();
    fs::create_dir(rows.path().join("in")).unwrap();
    fs::write(rows.path().join("in/a.txt"), "in the folder").unwrap();
    let folder = format!("rows={}", rows.path().display());
    program("resources.py", &["--folder", &folder], &[]);
}

macro_rules! flows {
    ($($test:ident: $flow:literal,)*) => {
        $(#[test]
        fn $test() {
            flow($flow);
        })*
        const FLOWS: &[&str] = &[$($flow),*];
    };
}

flows! {
    flow_01: "01_connect",
    flow_02: "02_compute_aml",
    flow_03: "03_compute_instance",
    flow_04: "04_compute_k8s_vm",
    flow_05: "05_command_job",
    flow_06: "06_assets",
    flow_09: "09_batch",
    flow_10: "10_pipeline",
    flow_11: "11_sweep",
    flow_12: "12_errors",
    flow_13: "13_seed_yaml",
}

/// Online endpoints, which are not served yet.
const ONLINE: [&str; 2] = ["07_online_k8s", "08_online_managed"];

#[test]
fn every_flow_is_played_or_left_out_by_name() {
    let mut found: Vec<String> = fs::read_dir(shared("conformance"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(|name| Some(name.strip_suffix(".py")?.to_owned()))
        .collect();
    found.sort();
    let mut known: Vec<&str> = FLOWS.iter().chain(&ONLINE).copied().collect();
    known.sort_unstable();
    assert_eq!(found, known);
    for (name, _) in NOT_YET {
        assert!(FLOWS.contains(name), "{name} is no flow that is played");
    }
}
