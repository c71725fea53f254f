//! The programs of the control plane, the kubelet and kwok, built once from Go modules; the container runtime is the
//! distribution's. `ZAFFRE_KUBE_BIN` names a folder of programs that are there already.
//!
//! etcd is built too, although distributions have one: with Debian's 3.4 the API server refuses the watches of today's
//! clients, and those that ask again and again saw changes up to 18 s late; with this one they see them at once.

use super::tools;
use crate::cargo::root;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A program and where it lies in its module.
type Package = (&'static str, &'static str);

/// The API server first: the others share most of its packages.
const PACKAGES: [Package; 6] = [
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    (
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    ("etcd", "go.etcd.io/etcd/server/v3"),
];

/// Between two lines about a build's progress.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Lines of the compiler's output that a failed build shows.
const LAST_LINES: usize = 20;

/// A folder that has all the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
    version: String,
}

impl Programs {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the server must call itself; for programs that were given, it is asked for.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The programs, built now if they are not there or if what they are built from has changed.
pub fn built() -> Result<Programs> {
    if let Some(folder) = std::env::var_os("ZAFFRE_KUBE_BIN").filter(|folder| !folder.is_empty()) {
        return given(root().join(folder));
    }
    let module = root().join("xtask/kube");
    let text = fs::read_to_string(module.join("go.mod")).context("cannot read go.mod")?;
    let version = kubernetes_version(&text).context("go.mod requires no k8s.io/kubernetes")?;
    let version = version.to_owned();
    let folder = super::folder().join(&version).join("bin");
    fs::create_dir_all(&folder)?;
    let flags = linker_flags(&version);
    let sums = fs::read_to_string(module.join("go.sum")).context("cannot read go.sum")?;
    let wanted = format!("{flags}\n{text}{sums}");
    let stamp = folder.join("built-from");
    let programs = Programs { folder, version };
    let lock = fs::File::create(programs.path("lock"))?;
    lock.lock().context("cannot lock the folder of programs")?;
    let is_there = fs::read_to_string(&stamp).is_ok_and(|built| built == wanted);
    if is_there && missing(&programs).is_none() {
        return Ok(programs);
    }
    let _ = fs::remove_file(&stamp);
    build(&module, &programs, &flags)?;
    fs::write(&stamp, wanted)?;
    Ok(programs)
}

fn given(folder: PathBuf) -> Result<Programs> {
    let mut programs = Programs {
        folder,
        version: String::new(),
    };
    if let Some(name) = missing(&programs) {
        let folder = programs.folder.display();
        bail!("ZAFFRE_KUBE_BIN: {folder} has no {name}");
    }
    // `Kubernetes v1.36.3`
    let said = tools::output(Command::new(programs.path("kube-apiserver")).arg("--version"))?;
    said.trim()
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .clone_into(&mut programs.version);
    Ok(programs)
}

/// The first program that is not there.
fn missing(programs: &Programs) -> Option<&'static str> {
    let mut names = PACKAGES.iter().map(|(name, _)| *name);
    names.find(|name| !programs.path(name).is_file())
}

/// `v1.36.3` of `require k8s.io/kubernetes v1.36.3`.
fn kubernetes_version(go_mod: &str) -> Option<&str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        let rest = line.strip_prefix("k8s.io/kubernetes ")?;
        rest.split_whitespace().next()
    })
}

/// Without them the programs call themselves v0.0.0-master, and clients refuse them. No symbols: half the size.
fn linker_flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    let of = "k8s.io/component-base/version";
    format!(
        "-s -w -X {of}.gitVersion={version} -X {of}.gitMajor={major} -X {of}.gitMinor={minor} -X {of}.gitTreeState=clean"
    )
}

fn build(module: &Path, programs: &Programs, flags: &str) -> Result<()> {
    let go = tools::find("go").context(
        "go is not found; Kubernetes is built with it\n\
         hint: ZAFFRE_KUBE_BIN names a folder of programs that are there already",
    )?;
    eprintln!(
        "building Kubernetes {} once (about 10 minutes of two cores)",
        programs.version
    );
    let began = Instant::now();
    for (name, package) in PACKAGES {
        let mut command = Command::new(&go);
        command
            .args([
                "build",
                "-v",
                "-trimpath",
                "-buildvcs=false",
                "-mod=readonly",
            ])
            .args(["-ldflags", flags, "-o"])
            .arg(programs.path(name))
            .arg(package)
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        watched(&mut command, name, began)?;
    }
    let seconds = began.elapsed().as_secs();
    eprintln!("built in {seconds} s: {}", programs.folder.display());
    Ok(())
}

/// Runs a build and says now and then how far it is. The total is not known before: what is cached is not compiled.
fn watched(command: &mut Command, name: &str, began: Instant) -> Result<()> {
    let mut child = command.spawn().context("cannot start go")?;
    let stderr = child.stderr.take().context("go has no standard error")?;
    let mut said = Instant::now();
    let (mut compiled, mut downloaded) = (0, 0);
    let mut last: Vec<String> = Vec::new();
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        if line.starts_with("go: downloading ") {
            downloaded += 1;
        } else {
            compiled += 1;
            last.push(line);
            last.drain(..last.len().saturating_sub(LAST_LINES));
        }
        if said.elapsed() > SAY_EVERY {
            said = Instant::now();
            let seconds = began.elapsed().as_secs();
            eprintln!(
                "  {seconds:>4} s  {name}: {downloaded} modules loaded, {compiled} packages compiled"
            );
        }
    }
    let status = child.wait()?;
    ensure!(
        status.success(),
        "go build of {name} ended with {status}:\n  {}",
        last.join("\n  ")
    );
    let seconds = began.elapsed().as_secs();
    eprintln!("  {seconds:>4} s  {name} is built ({compiled} packages compiled)");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_comes_from_the_module() {
        let text = fs::read_to_string(root().join("xtask/kube/go.mod")).unwrap();
        let version = kubernetes_version(&text).unwrap();
        assert!(version.starts_with("v1."), "{version}");
        // Every part of Kubernetes that is replaced has the version that belongs to it.
        let part = version.replacen("v1.", "v0.", 1);
        for line in text.lines().filter(|line| line.contains("=>")) {
            assert!(line.ends_with(&part), "{line} is not {part}");
        }
        assert!(linker_flags(version).contains("gitMajor=1 "));
    }

    #[test]
    fn what_is_built_is_a_tool_of_the_module() {
        let text = fs::read_to_string(root().join("xtask/kube/go.mod")).unwrap();
        for (_, package) in PACKAGES {
            assert!(text.lines().any(|line| line.trim() == package), "{package}");
        }
    }
}
