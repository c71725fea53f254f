//! Ending a cluster, whatever state it is in: a second time, after a start that failed, after its processes were ended.
//!
//! `cluster.json` goes last, so that what failed can be tried again.

use super::cluster::Cluster;
use super::{process, tools, traces};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What is in the folder beside the logs.
const MADE: [&str; 6] = ["kc", "pid", "pki", "etcd", "node", "settings.json"];

pub fn down(state: &Path) -> Result<()> {
    let began = Instant::now();
    let cluster = Cluster::open(state)?;
    let mut failures = Vec::new();
    let mut done = |result: Result<()>| {
        if let Err(error) = result {
            failures.push(format!("{error:#}"));
        }
    };
    let processes = process::recorded(&cluster.state);
    let with_node = cluster.state.join("node").is_dir();
    // Whoever would start containers anew has ended before they do.
    let (containerd, others): (Vec<_>, Vec<_>) = processes
        .into_iter()
        .partition(|process| process.name == "containerd");
    for process in others {
        done(process.end());
    }
    if with_node {
        let sockets = shim_sockets(&cluster.state);
        done(traces::remove_control_groups(&cluster.own_name()));
        for process in containerd {
            done(process.end());
        }
        done(end_shims(&cluster.state));
        done(traces::remove_mounts(&cluster.state));
        done(remove_bridge(&cluster.bridge()));
        // The kubelet may have made a group between the two.
        done(traces::remove_control_groups(&cluster.own_name()));
        if let Some(settings) = traces::Settings::kept(&cluster.state) {
            done(settings.put_back(&cluster.state));
        }
        if failures.is_empty() {
            remove_made(&cluster.state)?;
        }
        traces::remove_fixed(&cluster.state, &sockets);
    } else if failures.is_empty() {
        remove_made(&cluster.state)?;
    }
    if !failures.is_empty() {
        bail!("something is left:\n  {}", failures.join("\n  "));
    }
    fs::remove_file(cluster.state.join("cluster.json"))?;
    eprintln!(
        "down after {:.1} s; the logs are in {}",
        began.elapsed().as_secs_f64(),
        cluster.state.join("log").display()
    );
    Ok(())
}

fn remove_made(state: &Path) -> Result<()> {
    // A mount that is still there would be emptied by what follows.
    if let Some(point) = traces::mounts(state).first() {
        bail!("{} is mounted", point.display());
    }
    for name in MADE {
        let path = state.join(name);
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else if path.exists() {
            fs::remove_file(&path)
        } else {
            Ok(())
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// The sockets of the processes that hold containers lie in a folder that is fixed in containerd. Each container's
/// folder names its own.
fn shim_sockets(state: &Path) -> Vec<PathBuf> {
    let tasks = state.join("node/run/io.containerd.runtime.v2.task/k8s.io");
    let entries = tasks.read_dir().into_iter().flatten().flatten();
    let address = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("address")).ok()?;
        let path = text.trim().strip_prefix("unix://")?;
        // Never anything but a socket of containerd.
        path.starts_with("/run/containerd/s/")
            .then(|| PathBuf::from(path))
    };
    entries.filter_map(|entry| address(entry.path())).collect()
}

/// The processes that hold containers outlive containerd; their command line names its socket.
fn end_shims(state: &Path) -> Result<()> {
    let socket = super::node::socket(state);
    let shims = || -> Vec<u32> {
        let with_socket = process::with_command_line(&socket.to_string_lossy());
        let is_shim = |pid: &u32| process::command_line(*pid).contains("containerd-shim");
        with_socket.into_iter().filter(is_shim).collect()
    };
    process::signal("KILL", &shims());
    let patience = std::time::Duration::from_secs(10);
    tools::wait_for("an end of containerd's shims", patience, || {
        Ok(shims().is_empty().then_some(()))
    })
}

/// The pods' ends of its veths have gone with their network namespaces.
fn remove_bridge(bridge: &str) -> Result<()> {
    let ip = |args: &[&str]| tools::output(tools::program("ip").args(args));
    if ip(&["link", "show", bridge]).is_ok() {
        ip(&["link", "del", bridge])?;
    }
    Ok(())
}
