//! The command line: `tests/cli/NAME.txt` holds commands and what they must answer; files of a transcript stand in a folder of
//! its name. See `support/transcript.rs`.

mod support;

use std::{fs, process::Command};
use support::{
    SEEDS_NODE, Server, ZAFFRE, repository,
    transcript::{self, copy},
};

fn play(name: &str) {
    let path = transcript::path("cli", name);
    let script = fs::read_to_string(&path).unwrap();
    let server = Server::start_with(&SEEDS_NODE);
    for kind in ["hello", "quickstart"] {
        let from = repository().join("examples").join(kind);
        copy(&from, &server.folder.join(kind));
    }
    let files = repository().join("tests/cli").join(name);
    if files.exists() {
        copy(&files, &server.folder.join(name));
    }
    let played = transcript::played(&script, &server, |asked| {
        assert_eq!(asked.program, "zaffre");
        asked.finish(server.command(&[]))
    });
    server.stop();
    transcript::bless(&path, &played);
    transcript::compare(&path, &played, "zaffre");
}

#[test]
fn clusters() {
    play("clusters");
}

#[test]
fn assets() {
    play("assets");
}

#[test]
fn endpoints() {
    play("endpoints");
}

#[test]
fn targets() {
    play("targets");
}

#[test]
fn instance_types() {
    play("instance_types");
}

#[test]
fn mistakes() {
    play("mistakes");
}

#[test]
fn jobs() {
    play("jobs");
}

#[test]
fn reports() {
    play("reports");
}

#[test]
fn help_is_on_stdout_and_a_wrong_flag_on_stderr() {
    let help = Command::new(ZAFFRE).arg("--help").output().unwrap();
    assert!(help.status.success() && help.stderr.is_empty());
    let text = String::from_utf8(help.stdout).unwrap();
    for word in [
        "serve",
        "quickstart",
        "batch-endpoint",
        "Exit status: 0 done",
    ] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let wrong = Command::new(ZAFFRE)
        .args(["compute", "create", "--nmae", "x"])
        .output()
        .unwrap();
    assert_eq!((wrong.status.code(), wrong.stdout.len()), (Some(2), 0));
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("--name"),
        "the nearest flag is named"
    );
}

#[test]
fn a_closed_pipe_is_silent() {
    let script =
        format!("'{ZAFFRE}' completion bash | head -n 1 >/dev/null; echo \"${{PIPESTATUS[0]}}\"");
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn without_a_server_one_line_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let run = |server: Option<&str>| {
        let mut command = Command::new(ZAFFRE);
        command
            .args(["job", "list"])
            .env("ZAFFRE_HOME", home.path())
            .env_remove("ZAFFRE_SERVER")
            .env("ZAFFRE_TOKEN", "x");
        if let Some(url) = server {
            command.args(["--server", url]);
        }
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, text) = run(None);
    assert_eq!(
        (code, text.as_str()),
        (
            Some(2),
            "error: no server is known\nhint: start one with `zaffre serve`, or name one with --server\n"
        )
    );
    let (code, text) = run(Some("http://127.0.0.1:9"));
    assert_eq!(code, Some(2));
    assert!(
        text.starts_with(
            "error: no server answers at http://127.0.0.1:9: connection refused\nhint: "
        ),
        "{text}"
    );
}
