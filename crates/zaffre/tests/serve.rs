//! The server as its users see it start, stop, and be killed.

mod support;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::Duration,
};
use support::{Server, ZAFFRE, processes, signal};

const SOON: Duration = Duration::from_secs(60);

/// A job that says each step once, with what it found before.
const STEPS: &str = "\
command: >-
  echo started >> marks.txt && for i in $(seq 1 40); do echo step $i; sleep 0.1; done && wc -l < marks.txt
environment:
  image: library/python:latest
compute: azureml:steps
";

fn with_cluster() -> Server {
    let server = Server::start();
    server.ok(&[
        "compute",
        "create",
        "-n",
        "steps",
        "--type",
        "amlcompute",
        "--max-instances",
        "1",
    ]);
    fs::write(server.folder.join("steps.yml"), STEPS).unwrap();
    server
}

#[test]
fn secrets_are_the_owners_and_stdout_has_one_line() {
    let server = Server::start();
    for name in ["token", "ca.key", "server.key", "sas.key", "server.json"] {
        let mode = fs::metadata(server.data().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    server.wait("the limits are said", SOON, |s| {
        s.log().contains("limits: ")
    });
    server.stop();
}

#[test]
fn http_and_https_answer_on_one_port() {
    let server = Server::start();
    let authority = server.url.strip_prefix("https://").unwrap();
    let mut plain = TcpStream::connect(authority).unwrap();
    write!(
        plain,
        "GET /health HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let http = format!("http://{authority}");
    assert_eq!(
        server
            .ok(&["compute", "list", "--server", &http, "-o", "json"])
            .trim(),
        "[]"
    );
    let output = server
        .command(&["compute", "list"])
        .env("ZAFFRE_TOKEN", "wrong")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    server.stop();
}

#[test]
fn a_second_server_on_the_folder_is_refused() {
    let server = Server::start();
    let output = Command::new(ZAFFRE)
        .args([
            "serve",
            "--no-register",
            "--listen",
            "127.0.0.1:0",
            "--data",
        ])
        .arg(server.data())
        .env("ZAFFRE_HOME", server.folder.join("home"))
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("is in use by process"),
        "{output:?}"
    );
    server.stop();
}

#[test]
fn it_registers_as_the_users_server_and_takes_that_back() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut child = Command::new(ZAFFRE)
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path().join("data"))
        .env("ZAFFRE_HOME", &home)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut byte = [0];
    child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
    let list = || {
        let mut command = Command::new(ZAFFRE);
        command
            .args(["ml", "compute", "list", "-o", "json"])
            .env("ZAFFRE_HOME", &home)
            .env_remove("ZAFFRE_SERVER");
        command.output().unwrap().status.code()
    };
    assert_eq!(list(), Some(0));
    signal("TERM", child.id());
    assert!(child.wait().unwrap().success());
    assert_eq!(
        list(),
        Some(2),
        "a stopped server is no longer the current one"
    );
    assert!(processes(folder.path()).is_empty());
}

#[test]
fn a_running_job_survives_the_servers_death_and_runs_once() {
    let mut server = with_cluster();
    server.ok(&["job", "create", "-f", "steps.yml", "-n", "j1"]);
    let log = |server: &Server| {
        let output = server.run(&["job", "show", "-n", "j1", "-o", "tsv", "--query", "status"]);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    server.wait("the job runs", SOON, |server| log(server) == "Running");
    server.kill();
    server.restart();
    let streamed = server.ok(&["job", "stream", "-n", "j1"]);
    for step in 1..=40 {
        let line = format!("step {step}");
        assert_eq!(
            streamed.lines().filter(|found| **found == line).count(),
            1,
            "{line} in {streamed}"
        );
    }
    assert_eq!(
        streamed
            .lines()
            .rfind(|line| !line.starts_with("[zaffre]"))
            .map(str::trim),
        Some("1"),
        "it was started once: {streamed}"
    );
    server.stop();
}

#[test]
fn a_stop_that_takes_tasks_along_lets_the_job_run_again() {
    let mut server = with_cluster();
    server.ok(&["job", "create", "-f", "steps.yml", "-n", "j1"]);
    server.wait("the job runs", SOON, |server| {
        server.value(&["job", "show", "-n", "j1"], "status") == "Running"
    });
    server.terminate_for_restart();
    assert!(
        processes(&server.folder).is_empty(),
        "the tasks went with it"
    );
    server.restart();
    let streamed = server.ok(&["job", "stream", "-n", "j1"]);
    assert!(streamed.contains("step 40"), "{streamed}");
    server.stop();
}
