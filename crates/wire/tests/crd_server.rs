//! A real API server is the last judge of the definition and of the checks.
//!
//! Runs when `ZAFFRE_KUBECONFIG_REAL` names a kubeconfig of a server that may be given our definition; `ZAFFRE_KUBECTL` is
//! the program to use, else `kubectl` of the search path. Everything but the definition is a dry run.

#[path = "support/manifests.rs"]
mod manifests;

use manifests::manifests;
use std::{
    ffi::OsString,
    io::Write as _,
    path::Path,
    process::{Command, Output},
    sync::OnceLock,
};
use wire::crd::{Strictness, check, kubectl_text, objects};

/// What Zaffre refuses and kubectl does not: of two equal keys it sends the last.
const STRICTER: [&str; 1] = ["two-keys.yaml"];

struct Server {
    kubectl: OsString,
    config: OsString,
}

impl Server {
    fn kubectl(&self, args: &[&str]) -> Output {
        let mut command = Command::new(&self.kubectl);
        command.env("KUBECONFIG", &self.config).args(args);
        command.output().unwrap()
    }

    /// What `kubectl apply --dry-run=server` prints about a file that is refused.
    fn refuses(&self, file: &Path) -> Option<String> {
        let file = file.to_str().unwrap();
        let args = ["apply", "--dry-run=server", "-o", "json", "-f", file];
        let output = self.kubectl(&args);
        let text = String::from_utf8(output.stderr).unwrap();
        (!output.status.success())
            .then(|| text.replace(&format!("error when creating {file:?}: "), ""))
    }
}

/// Past the harness, which hides what a test prints when it passes.
fn say(text: &str) {
    let line = format!("crd_server: {text}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// The server with our definition, which is given to it once.
fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(prepared).as_ref()
}

fn prepared() -> Option<Server> {
    let Some(config) = std::env::var_os("ZAFFRE_KUBECONFIG_REAL") else {
        say("skipped: ZAFFRE_KUBECONFIG_REAL names no API server to compare with");
        return None;
    };
    let server = Server {
        kubectl: std::env::var_os("ZAFFRE_KUBECTL").unwrap_or_else(|| "kubectl".into()),
        config,
    };
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/crd/instancetypes.yaml"
    );
    for args in [
        &["apply", "-f", file][..],
        &[
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "crd/instancetypes.amlarc.azureml.com",
        ],
    ] {
        let output = server.kubectl(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {text}");
    }
    Some(server)
}

/// The lines of a message, sorted: a server gives several causes in no order.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.retain(|line| !line.is_empty());
    lines.sort();
    lines
}

#[test]
fn a_real_server_takes_every_good_manifest() {
    let Some(server) = server() else { return };
    for (name, path, _) in manifests("good") {
        assert_eq!(server.refuses(&path), None, "{name}");
    }
}

#[test]
fn a_real_server_refuses_every_bad_manifest_with_the_same_words() {
    let Some(server) = server() else { return };
    let mut compared = 0;
    let mut wrong = Vec::new();
    for (name, path, text) in manifests("bad") {
        if STRICTER.contains(&name.as_str()) {
            continue;
        }
        let Some(real) = server.refuses(&path) else {
            wrong.push(format!("{name} is taken"));
            continue;
        };
        // What kubectl itself refuses has no words of a server.
        if real.starts_with("error: ") {
            continue;
        }
        let all = objects(&text, &name).unwrap_or_default();
        let [object] = all.as_slice() else { continue };
        let refused = check(object, Strictness::Strict).unwrap_err();
        let ours = kubectl_text(&refused.server_status());
        compared += 1;
        if lines(&ours) != lines(&real) {
            wrong.push(format!("{name}\nours: {ours}\nreal: {real}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    say(&format!("{compared} messages are those of the server"));
}
