//! `cargo xtask kube`: a real, throw-away Kubernetes on this machine, for tests and by hand.
//!
//! The control plane consists of ordinary processes on the loopback. When the machine can, one real node runs
//! containers; other nodes are pretended by kwok. Nothing comes from an image registry: the programs are built from Go
//! modules (`xtask/kube/go.mod`) or installed by the distribution, and the one image is packed from this machine's files.
//!
//! K1: everything a cluster makes is below its state folder or carries its id, so that clusters do not meet;
//! K2: every process is recorded before it is waited for, and only a recorded one is ended: its number, the time of its
//! start and its command line must all be the recorded ones;
//! K3: after `down` the machine is as it was: no process, mount, network namespace, link or cgroup is left, and the
//! kernel settings have the values from before;
//! K4: what cannot run here is named, and the rest runs.

mod api;
mod check;
mod cluster;
mod control_plane;
mod down;
mod fake;
mod image;
mod keys;
mod kubectl;
mod node;
mod process;
mod programs;
mod tools;
mod traces;

use crate::cargo::{self, target_folder};
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Pretended nodes are kept up by one process; more of them than this test nothing new.
const MOST_FAKE_NODES: u32 = 1000;

/// What was asked for after `kube`.
#[derive(Debug, PartialEq, Eq)]
pub enum Kube {
    Up(Up),
    Down {
        state: Option<PathBuf>,
    },
    Check {
        nodes: Nodes,
    },
    Restart {
        state: Option<PathBuf>,
        name: String,
    },
    Build,
    Kubectl {
        version: String,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub struct Up {
    nodes: Nodes,
    fake: u32,
    state: Option<PathBuf>,
}

/// Which nodes that run containers are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Asked for by name: a machine that cannot is an error.
    Real,
    /// Nothing was said: a machine that cannot is told, and the rest goes on.
    RealIfPossible,
    None,
}

pub fn parse(args: &[&str]) -> Result<Kube, String> {
    let Some((&name, rest)) = args.split_first() else {
        return Err("kube needs up, down, restart, check, build or kubectl".into());
    };
    match name {
        "up" => parse_up(rest),
        "down" => parse_down(rest),
        "restart" => parse_restart(rest),
        "check" => parse_check(rest),
        "build" => alone(name, rest, Kube::Build),
        "kubectl" => parse_kubectl(rest),
        other => Err(format!("unknown command {other:?} of kube")),
    }
}

fn parse_up(args: &[&str]) -> Result<Kube, String> {
    let mut up = Up {
        nodes: Nodes::RealIfPossible,
        fake: 0,
        state: None,
    };
    let mut rest = args.iter();
    while let Some(&flag) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{flag} needs a value"));
        match flag {
            "--nodes" => up.nodes = parse_nodes(value()?)?,
            "--fake" => {
                let text = value()?;
                let fake = text.parse().ok().filter(|fake| *fake <= MOST_FAKE_NODES);
                up.fake = fake.ok_or(format!(
                    "--fake needs a number up to {MOST_FAKE_NODES}, got {text:?}"
                ))?;
            }
            "--state" => up.state = Some(PathBuf::from(value()?)),
            other => return Err(format!("unknown option {other:?} of kube up")),
        }
    }
    Ok(Kube::Up(up))
}

fn parse_nodes(text: &str) -> Result<Nodes, String> {
    match text {
        "real" => Ok(Nodes::Real),
        "none" => Ok(Nodes::None),
        other => Err(format!("--nodes is real or none, got {other:?}")),
    }
}

fn parse_check(args: &[&str]) -> Result<Kube, String> {
    let nodes = match args {
        [] => Nodes::RealIfPossible,
        ["--nodes", nodes] => parse_nodes(nodes)?,
        ["--nodes"] => return Err("--nodes needs a value".into()),
        [other, ..] => return Err(format!("unknown option {other:?} of kube check")),
    };
    Ok(Kube::Check { nodes })
}

fn parse_down(args: &[&str]) -> Result<Kube, String> {
    match args {
        [] => Ok(Kube::Down { state: None }),
        ["--state", folder] => Ok(Kube::Down {
            state: Some(PathBuf::from(folder)),
        }),
        ["--state"] => Err("--state needs a value".into()),
        [other, ..] => Err(format!("unknown option {other:?} of kube down")),
    }
}

fn parse_restart(args: &[&str]) -> Result<Kube, String> {
    let (state, name) = match args {
        [name] => (None, *name),
        ["--state", folder, name] => (Some(PathBuf::from(folder)), *name),
        _ => return Err("kube restart takes [--state FOLDER] and the name of a process".into()),
    };
    let name = name.to_owned();
    Ok(Kube::Restart { state, name })
}

fn parse_kubectl(args: &[&str]) -> Result<Kube, String> {
    let version = match args {
        [] => kubectl::DEFAULT,
        [version] => version,
        [_, extra, ..] => return Err(format!("kube kubectl takes one version, got {extra:?} too")),
    };
    let version = version.to_owned();
    Ok(Kube::Kubectl { version })
}

fn alone(name: &str, rest: &[&str], command: Kube) -> Result<Kube, String> {
    match rest.first() {
        None => Ok(command),
        Some(extra) => Err(format!("kube {name} takes no argument, got {extra:?}")),
    }
}

pub fn run(command: Kube) -> Result<()> {
    match command {
        Kube::Up(up) => {
            let state = up.state.unwrap_or_else(default_state);
            let cluster = cluster::up(&state, up.nodes, up.fake)?;
            println!(
                "export KUBECONFIG={}",
                cluster.kubeconfig("admin").display()
            );
        }
        Kube::Down { state } => down::down(&state.unwrap_or_else(default_state))?,
        Kube::Restart { state, name } => {
            cluster::restart(&state.unwrap_or_else(default_state), &name)?;
        }
        Kube::Check { nodes } => check::check(nodes)?,
        Kube::Build => println!("{}", programs::built()?.folder().display()),
        Kube::Kubectl { version } => println!("{}", kubectl::path(&version)?.display()),
    }
    Ok(())
}

/// A cluster for the tests of one run; it ends with this value, or earlier by `end`.
pub struct ForTests(Option<PathBuf>);

/// Pretended nodes beside the real one: two, so that there is a choice.
const TEST_NODES: u32 = 2;

impl ForTests {
    /// Starts one where this machine can. Where it cannot, what is missing is said and no test on a real cluster runs.
    pub fn begin() -> Result<ForTests> {
        let programs = ["go", "openssl", "curl", "setsid"];
        let missing: Vec<&str> = programs
            .into_iter()
            .filter(|program| tools::find(program).is_none())
            .collect();
        if !missing.is_empty() {
            println!(
                "note: no real Kubernetes: {} missing here; the tests on one say that they are skipped",
                missing.join(", ")
            );
            return Ok(ForTests(None));
        }
        let state = folder().join(format!("tests-{}", std::process::id()));
        if node::missing().is_empty() {
            build_agent()?;
        }
        cluster::up(&state, Nodes::RealIfPossible, TEST_NODES)?;
        Ok(ForTests(Some(state)))
    }

    /// Tells a command where the cluster is.
    pub fn mark(&self, command: &mut std::process::Command) {
        let Some(state) = &self.0 else {
            return;
        };
        command.env("ZAFFRE_KUBE_STATE", state);
        if let Ok(program) = std::env::current_exe() {
            command.env("ZAFFRE_XTASK", program); // tests end parts of the cluster and have them back
        }
        command.env("ZAFFRE_KUBECONFIG_REAL", state.join("kc/admin.kubeconfig"));
    }

    /// Ends it; what a test left in it goes too.
    pub fn end(&mut self) -> Result<()> {
        match self.0.take() {
            Some(state) => {
                down::down(&state)?;
                std::fs::remove_dir_all(&state)
                    .with_context(|| format!("cannot remove {}", state.display()))
            }
            None => Ok(()),
        }
    }
}

impl Drop for ForTests {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            println!("note: the cluster of the tests: {error:#}");
        }
    }
}

/// The program without libraries, as pods need it: they bring it into whatever image a job names.
fn build_agent() -> Result<()> {
    let arguments = ["build", "--bin", "zaffre", "--target", AGENT_TARGET];
    let mut command = cargo::cargo(&arguments);
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    cargo::run(&mut command)
}

/// A target of its own name keeps what is built so apart from everything else.
const AGENT_TARGET: &str = "x86_64-unknown-linux-gnu";

/// What all clusters of this checkout share: programs, images, kubectl.
fn folder() -> PathBuf {
    target_folder().join("kube")
}

fn default_state() -> PathBuf {
    folder().join("state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        let up = Up {
            nodes: Nodes::RealIfPossible,
            fake: 0,
            state: None,
        };
        assert_eq!(parse(&["up"]), Ok(Kube::Up(up)));
        let up = Up {
            nodes: Nodes::None,
            fake: 20,
            state: Some(PathBuf::from("s")),
        };
        let args = ["up", "--fake", "20", "--nodes", "none", "--state", "s"];
        assert_eq!(parse(&args), Ok(Kube::Up(up)));
        let nodes = Nodes::Real;
        assert_eq!(
            parse(&["check", "--nodes", "real"]),
            Ok(Kube::Check { nodes })
        );
        let version = "1.37.1".to_owned();
        assert_eq!(parse(&["kubectl", "1.37.1"]), Ok(Kube::Kubectl { version }));
    }

    #[test]
    fn wrong_commands_name_what_is_wrong() {
        let refused = |args: &[&str]| parse(args).unwrap_err();
        assert_eq!(refused(&["u"]), r#"unknown command "u" of kube"#);
        assert_eq!(
            refused(&["up", "--nodes", "two"]),
            r#"--nodes is real or none, got "two""#
        );
        assert_eq!(
            refused(&["up", "--fake", "1001"]),
            r#"--fake needs a number up to 1000, got "1001""#
        );
        assert_eq!(refused(&["down", "--state"]), "--state needs a value");
        assert_eq!(
            refused(&["check", "x"]),
            r#"unknown option "x" of kube check"#
        );
        assert_eq!(
            refused(&["build", "x"]),
            r#"kube build takes no argument, got "x""#
        );
    }
}
