//! The conformance flows of ../shared, with the stock `azure-ai-ml`, each against a server of its own.
//!
//! Their Python is a virtual environment that is made once per target folder and set of requirements, or the one that
//! `ZAFFRE_SDK_PYTHON` names. `cargo test -p zaffre --test sdk flow_05` runs one of them.

#[path = "sdk/flows.rs"]
mod flows;
mod support;

use flows::{NOT_YET, ONLINE};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Output, Stdio},
};
use support::{
    SEEDS_NODE, Server,
    python::{REQUIREMENTS, python, text},
    repository, shared,
};

fn played(server: &Server, flow: &str) -> Output {
    let path = shared(&format!("conformance/{flow}.py"));
    let home = server.folder.join("python-home");
    fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(python());
    command
        .arg(&path)
        .current_dir(&server.folder)
        .stdin(Stdio::null())
        .env("AML_URL", &server.url)
        .env("AML_CA", server.data().join("ca.pem"))
        .env("AML_RG", "default")
        .env("AML_WS", "default")
        .env("AML_REAL", "1")
        .env("AML_ONLINE", "0")
        .env("AML_CLIENT", "zaffre")
        .env("AML_SECRET", server.token())
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
            let last = complained.lines().rfind(|line| line.contains("Error: "));
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

#[test]
fn parallel_steps_written_with_the_sdk_count_every_file_once() {
    program("parallel.py", &[], &[]);
}

#[test]
fn outputs_with_a_name_become_assets_of_the_sdk() {
    program("outputs.py", &[], &[]);
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

/// A program that knows nothing of this server.
const PLAIN: &str = "\
import os
from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential
ml = MLClient(DefaultAzureCredential(), os.environ['AZURE_SUBSCRIPTION_ID'], os.environ['AZURE_RESOURCE_GROUP'], os.environ['AZUREML_WORKSPACE_NAME'])
print('found', ml.workspaces.get().name, [c.name for c in ml.compute.list()])
";

#[test]
fn a_plain_program_works_in_a_shell_that_has_read_the_env() {
    let server = Server::start();
    server.ok(&["compute", "create", "-n", "c01", "--type", "amlcompute"]);
    let program = server.folder.join("plain.py");
    fs::write(&program, PLAIN).unwrap();
    let shell = |more: &str| {
        let line = format!(
            "eval \"$({} env --shell bash)\"; {more} exec \"$PYTHON\" \"$PROGRAM\"",
            support::ZAFFRE
        );
        let mut command = server.command(&[]);
        let known = ["ZAFFRE_HOME", "ZAFFRE_SERVER", "ZAFFRE_TOKEN", "ZAFFRE_CA"].map(|name| {
            let set = command.get_envs().find(|(n, _)| *n == name);
            (name, set.unwrap().1.unwrap().to_owned())
        });
        command = Command::new("bash");
        command
            .args(["--noprofile", "--norc", "-c", &line])
            .current_dir(&server.folder)
            .stdin(Stdio::null())
            .env_clear()
            .envs(known)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", server.folder.join("home"))
            .env("PYTHON", python())
            .env("PROGRAM", &program)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command.output().unwrap()
    };
    let output = shell("");
    let complained = text(&output.stderr);
    assert_eq!(
        text(&output.stdout).trim(),
        "found default ['c01']",
        "{complained}"
    );

    let output =
        shell("unset AZURE_CLIENT_ID AZURE_CLIENT_SECRET AZURE_TENANT_ID AZURE_AUTHORITY_HOST;");
    let complained = text(&output.stderr);
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{complained}"
    );
    assert!(
        complained.contains("ClientAuthenticationError"),
        "{complained}"
    );

    let output = shell("AZURE_CLIENT_SECRET=wrong;");
    let complained = text(&output.stderr);
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{complained}"
    );
    assert!(
        complained.contains("there is no identity with this client_id and client_secret"),
        "{complained}"
    );
    server.stop();
}

#[test]
fn the_ten_lines_of_the_guide_lead_to_a_job_that_ran() {
    let guide = fs::read_to_string(repository().join("docs/guide/sdk.md")).unwrap();
    let lines = guide
        .lines()
        .skip_while(|line| *line != "    import os")
        .map_while(|line| line.strip_prefix("    "));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 10, "{lines:#?}");
    let server = Server::start();
    let program = server.folder.join("guide.py");
    fs::write(&program, lines.join("\n")).unwrap();
    let line = format!(
        "eval \"$({} env --shell bash)\"; exec \"$PYTHON\" \"$PROGRAM\"",
        support::ZAFFRE
    );
    let known = server.command(&[]);
    let known = known
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let output = Command::new("bash")
        .args(["--noprofile", "--norc", "-c", &line])
        .current_dir(&server.folder)
        .stdin(Stdio::null())
        .envs(known)
        .env("HOME", server.folder.join("home"))
        .env("PYTHON", python())
        .env("PROGRAM", &program)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*")
        .env_remove("AZUREML_CURRENT_CLOUD")
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(
        output.status.success() && said.lines().any(|line| line == "hello"),
        "{said}{}\nserver: {}",
        text(&output.stderr),
        server.log()
    );
    server.stop();
}

/// A person on a machine without a secret.
const DEVICE: &str = "\
import os, sys
from azure.ai.ml import MLClient
from azure.identity import DeviceCodeCredential
def show(uri, code, until):
    print(code, flush=True)
credential = DeviceCodeCredential('a-program', authority=os.environ['URL'], tenant_id='adfs', prompt_callback=show)
ml = MLClient(credential, '00000000-0000-0000-0000-000000000000', 'default', 'default')
print('found', ml.workspaces.get().name, flush=True)
";

#[test]
fn a_program_without_a_secret_shows_a_code() {
    let server = Server::start();
    let mut program = Command::new(python())
        .args(["-c", DEVICE])
        .current_dir(&server.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .env("URL", &server.url)
        .env(
            "ARM_CLOUD_METADATA_URL",
            format!("{}/metadata/endpoints", server.url),
        )
        .env("REQUESTS_CA_BUNDLE", server.data().join("ca.pem"))
        .env("HOME", server.folder.join("home"))
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let code = lines.next().unwrap().unwrap();
    server.ok(&["identity", "approve", &code]);
    assert_eq!(lines.next().unwrap().unwrap(), "found default");
    assert!(program.wait().unwrap().success());
    server.stop();
}

/// The same inside a job: it looks at itself, and at what it may not touch.
const INSIDE: &str = "\
import os, requests
from azure.identity import DefaultAzureCredential
url = os.environ['ARM_CLOUD_METADATA_URL'].removesuffix('/metadata/endpoints')
token = DefaultAzureCredential().get_token(url + '/.default').token
at = '{}/subscriptions/{}/resourceGroups/{}/providers/Microsoft.MachineLearningServices/workspaces/{}'.format(
    url, *(os.environ['AZUREML_ARM_' + n] for n in ('SUBSCRIPTION', 'RESOURCEGROUP', 'WORKSPACE_NAME')))
headers = {'Authorization': 'Bearer ' + token}
print('I am', requests.get(at + '/jobs/' + os.environ['AZUREML_RUN_ID'], headers=headers).json()['name'])
print('refused', requests.delete(at + '/computes/c01', headers=headers).status_code)
print('nobody', requests.get(at).status_code)
";

#[test]
fn a_job_has_an_identity_of_its_own() {
    let server = Server::start();
    server.ok(&["compute", "create", "-n", "c01", "--type", "amlcompute"]);
    let write = |name: &str, text: &str| support::write(&server.folder, name, text);
    write("code/inside.py", INSIDE);
    let packages = REQUIREMENTS[1];
    write(
        "conda.yml",
        &format!("name: inside\ndependencies: [python, pip, pip: [{packages}, requests]]\n"),
    );
    write(
        "job.yml",
        "command: python inside.py\ncode: ./code\nenvironment:\n  image: library/python:latest\n  conda_file: ./conda.yml\ncompute: azureml:c01\n",
    );
    server.ok(&["job", "create", "-f", "job.yml", "-n", "j1", "-o", "none"]);
    let log = text(&server.run(&["job", "stream", "-n", "j1"]).stdout);
    for line in ["I am j1", "refused 403", "nobody 401"] {
        assert!(log.contains(line), "{line}: {log}{}", server.log());
    }
    server.stop();
}

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
