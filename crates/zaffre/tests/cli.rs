//! Transcripts of the command line: `tests/cli/NAME.txt` holds commands and what they must answer.
//!
//!     $ zaffre compute show -n nope      a command
//!     > name                             its stdout
//!     ! error: ...                       its stderr
//!     ? 3                                its exit status, when it is not 0
//!
//! Files of a transcript stand in a folder of its name. Lines that begin with `#` say what the transcript is about. Parts that differ from run to run are replaced before
//! comparing. `ZAFFRE_BLESS=1` writes the answers anew; read the difference before committing it.

mod support;

use std::{fmt::Write as _, fs, process::Command};
use support::{Server, ZAFFRE, repository};

/// Replaces what differs from run to run.
fn plain(text: &str, server: &Server) -> String {
    let mut out = text
        .replace(&server.url, "URL")
        .replace(&*server.folder.to_string_lossy(), "FOLDER");
    // 2026-11-30T04:35:13.168Z
    let bytes = out.clone().into_bytes();
    let mut at = 0;
    let mut kept = String::new();
    while at < bytes.len() {
        let rest = &bytes[at..];
        let shape = b"dddd-dd-dd";
        let date = rest.len() >= 19
            && rest.iter().zip(shape).all(|(byte, form)| {
                if *form == b'd' {
                    byte.is_ascii_digit()
                } else {
                    byte == form
                }
            });
        if date && (rest[10] == b'T' || rest[10] == b' ') && rest[13] == b':' {
            let len = 19
                + rest[19..]
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit() || **byte == b'.' || **byte == b'Z')
                    .count();
            kept.push_str("TIME");
            at += len;
            continue;
        }
        let len = std::str::from_utf8(rest)
            .unwrap()
            .chars()
            .next()
            .unwrap()
            .len_utf8();
        kept.push_str(&out[at..at + len]);
        at += len;
    }
    out = kept;
    out
}

fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote, mut some) = (vec![], String::new(), None, false);
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => (quote, some) = (Some(c), true),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => {
                if some || !word.is_empty() {
                    all.push(std::mem::take(&mut word));
                }
                some = false;
            }
            (c, _) => word.push(c),
        }
    }
    if some || !word.is_empty() {
        all.push(word);
    }
    all
}

fn play(name: &str) {
    let path = repository().join("tests/cli").join(format!("{name}.txt"));
    let script = fs::read_to_string(&path).unwrap();
    let server = Server::start();
    for kind in ["hello", "quickstart"] {
        let from = repository().join("examples").join(kind);
        copy(&from, &server.folder.join(kind));
    }
    let files = repository().join("tests/cli").join(name);
    if files.exists() {
        copy(&files, &server.folder.join(name));
    }
    let mut played = String::new();
    for line in script
        .lines()
        .filter(|line| line.starts_with("$ ") || line.starts_with('#') || line.is_empty())
    {
        let _ = writeln!(played, "{line}");
        let Some(command) = line.strip_prefix("$ zaffre") else {
            continue;
        };
        let args = words(command);
        let output = server.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        for (mark, bytes) in [('>', &output.stdout), ('!', &output.stderr)] {
            for line in plain(&String::from_utf8_lossy(bytes), &server).lines() {
                let _ = writeln!(played, "{mark} {line}");
            }
        }
        match output.status.code() {
            Some(0) => {}
            code => {
                let _ = writeln!(
                    played,
                    "? {}",
                    code.map_or("signal".into(), |code| code.to_string())
                );
            }
        }
    }
    server.stop();
    if std::env::var_os("ZAFFRE_BLESS").is_some() {
        fs::write(&path, &played).unwrap();
    }
    assert!(
        played == script,
        "{} differs; what was played:\n{played}",
        path.display()
    );
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
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
