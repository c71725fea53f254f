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
use support::{KEYS, Server, ZAFFRE, network::Ends, processes, signal};

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
    for name in KEYS {
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

/// Who reads where the server is may stop it at once.
#[test]
fn a_stop_right_after_the_start_is_in_order() {
    for _ in 0..5 {
        Server::start().stop();
    }
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

#[test]
fn i9_no_secret_is_anywhere_but_in_its_own_file() {
    let mut server = with_cluster();
    let text = |name: &str| fs::read(server.data().join(name)).unwrap();
    let pem = |name: &str| {
        let text = String::from_utf8(text(name)).unwrap();
        text.lines().nth(1).unwrap().as_bytes().to_vec()
    };
    let seed = |json: &[u8]| {
        let kept: serde_json::Value = serde_json::from_slice(json).unwrap();
        kept["keys"][0]["seed"]
            .as_str()
            .unwrap()
            .as_bytes()
            .to_vec()
    };
    // What is signed carries `sig=`; the rest is looked for as it is.
    let secrets = [
        text("token").trim_ascii().to_vec(),
        text("sas.key"),
        pem("ca.key"),
        pem("server.key"),
        text("agents.key"),
        text("jobs.key"),
        text("runs.key"),
        text("seal.key"),
        seed(&text("signing.json")),
        b"sig=".to_vec(),
    ];
    let holds = |bytes: &[u8]| {
        let found = |secret: &Vec<u8>| bytes.windows(secret.len()).any(|part| part == secret);
        secrets.iter().position(found)
    };
    assert_eq!(holds(&text("token")), Some(0), "what is there is found");

    fs::create_dir(server.folder.join("code")).unwrap();
    fs::write(
        server.folder.join("code/main.sh"),
        "env; cat /proc/*/cmdline; sleep 600",
    )
    .unwrap();
    fs::write(
        server.folder.join("spy.yml"),
        "command: sh main.sh\ncode: ./code\nenvironment: {image: library/python:latest}\ncompute: azureml:steps\n",
    )
    .unwrap();
    server.ok(&[
        "data",
        "create",
        "-n",
        "d",
        "--type",
        "uri_folder",
        "--path",
        "code",
    ]);
    server.ok(&["job", "create", "-f", "spy.yml", "-n", "spy"]);
    server.wait("the job runs", SOON, |server| {
        server.value(&["job", "show", "-n", "spy"], "status") == "Running"
    });
    for pid in processes(&server.folder) {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            assert_eq!(holds(&bytes), None, "{file} of {pid}");
        }
    }
    let wrong = [("ZAFFRE_TOKEN", "wrong"), ("ZAFFRE_LOG", "debug")];
    server
        .command(&["job", "list"])
        .envs(wrong)
        .output()
        .unwrap();
    server.ok(&["job", "cancel", "-n", "spy"]);
    server.run(&["job", "stream", "-n", "spy"]);
    server.ok(&["job", "download", "-n", "spy", "--all"]);
    server.terminate_for_restart();

    let mut folders = vec![server.folder.clone()];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !KEYS.iter().any(|name| path == server.data().join(name)) && path.is_file() {
                let found = holds(&fs::read(&path).unwrap());
                assert_eq!(found, None, "{}", path.display());
                read += 1;
            }
        }
    }
    assert!(read > 10, "only {read} files were read");
}

/// A greeting of a TLS client with this version and these ciphers, without any extension.
fn greeting(version: [u8; 2], ciphers: &[[u8; 2]]) -> Vec<u8> {
    let list: Vec<u8> = ciphers.concat();
    let mut hello = version.to_vec();
    hello.extend([7; 32]); // its random bytes
    hello.push(0); // no session
    hello.extend(u16::try_from(list.len()).unwrap().to_be_bytes());
    hello.extend(list);
    hello.extend([1, 0]); // no compression
    let mut body = vec![1, 0];
    body.extend(u16::try_from(hello.len()).unwrap().to_be_bytes());
    body.extend(hello);
    let mut record = vec![0x16, 3, 1];
    record.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    record.extend(body);
    record
}

/// TLS 1.2 and 1.3 with the ciphers of today, a certificate for the names that the server has, and nothing else.
#[test]
fn only_the_tls_of_today_is_spoken() {
    const ALERT: u8 = 0x15;
    const FATAL: u8 = 2;
    let server = Server::start();
    let authority = server.url.split_once("://").unwrap().1.to_owned();
    let answered = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&authority).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    };
    // CBC with SHA-1 over RSA and ECDHE, then RC4, 3DES and no cipher at all.
    let old = [[0x00, 0x2f], [0xc0, 0x13], [0xc0, 0x09]];
    let weak = [[0x00, 0x05], [0x00, 0x0a], [0x00, 0x01], [0xc0, 0x07]];
    for (version, ciphers) in [
        ([3, 0], &old[..]),
        ([3, 1], &old),
        ([3, 2], &old),
        ([3, 3], &weak),
        ([3, 3], &old),
    ] {
        let answer = answered(&greeting(version, ciphers));
        assert_eq!(
            answer.first(),
            Some(&ALERT),
            "{version:?} {ciphers:?}: {answer:?}"
        );
        assert_eq!(
            answer.get(5),
            Some(&FATAL),
            "{version:?} {ciphers:?}: {answer:?}"
        );
    }
    let ends = Ends::of(&server.url, &server.data());
    for (version, name, good) in [
        (&rustls::version::TLS12, "127.0.0.1", true),
        (&rustls::version::TLS13, "localhost", true),
        (&rustls::version::TLS13, "another.test", false),
        (&rustls::version::TLS13, "127.0.0.2", false),
    ] {
        let spoken = ends.spoken(version, name);
        assert_eq!(spoken.is_ok(), good, "{version:?} {name}: {spoken:?}");
    }
    server.stop();
}
