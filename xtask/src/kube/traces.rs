//! What a cluster leaves on the machine outside of its folder, and taking it away (K3).

use super::{process, tools};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Processes that were ended leave their control group a moment later.
const SETTLE: Duration = Duration::from_secs(10);

/// What a kubelet sets for the whole machine when it starts.
const SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Folders whose names are fixed in containerd, its network plugins and the kubelet, the inner ones first. They are
/// removed when nothing is in them.
pub const FIXED_FOLDERS: [&str; 9] = [
    "/run/containerd/s",
    "/run/containerd",
    "/var/lib/cni/results",
    "/var/lib/cni/cache",
    "/var/lib/cni",
    "/var/log/containers",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/pod-resources",
    "/var/lib/kubelet",
];

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Settings of the kernel and their values.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    pub fn read() -> Settings {
        let value = |name: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
            Some((name.to_owned(), text.trim().to_owned()))
        };
        Settings(SETTINGS.iter().filter_map(|name| value(name)).collect())
    }

    pub fn shown(&self) -> Value {
        json!(self.0)
    }

    fn file(state: &Path) -> PathBuf {
        state.join("settings.json")
    }

    /// Until they are put back, so that `down` can do it too.
    pub fn keep(&self, state: &Path) -> Result<()> {
        fs::write(Settings::file(state), json!(self.0).to_string()).context("cannot keep settings")
    }

    pub fn kept(state: &Path) -> Option<Settings> {
        let text = fs::read_to_string(Settings::file(state)).ok()?;
        Some(Settings(serde_json::from_str(&text).ok()?))
    }

    pub fn put_back(&self, state: &Path) -> Result<()> {
        let now = Settings::read();
        for (name, value) in &self.0 {
            if now.0.get(name) != Some(value) {
                fs::write(Path::new("/proc/sys").join(name), value)
                    .with_context(|| format!("cannot put {name} back to {value}"))?;
            }
        }
        fs::remove_file(Settings::file(state)).context("cannot forget settings")
    }
}

pub fn has_cgroup_v2() -> bool {
    Path::new(CONTROL_GROUPS)
        .join("cgroup.controllers")
        .is_file()
}

/// The roots of the hierarchies: one in version 2, one per controller in version 1.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from(CONTROL_GROUPS);
    if has_cgroup_v2() {
        return vec![root];
    }
    let entries = root.read_dir().into_iter().flatten().flatten();
    entries
        // Links are second names of the same.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|path| path.join("cgroup.procs").is_file())
        .collect()
}

/// A control group of this name in every hierarchy; the kubelet wants its root to be there.
pub fn make_control_groups(name: &str) -> Result<()> {
    for root in hierarchies() {
        let group = root.join(name);
        fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        // Version 1: a new group has no processor and no memory until it is told, and then nothing runs in it.
        for file in ["cpuset.mems", "cpuset.cpus"] {
            if !has_cgroup_v2() && group.join(file).is_file() {
                let all = fs::read_to_string(root.join(file))?;
                fs::write(group.join(file), all.trim())?;
            }
        }
    }
    Ok(())
}

/// The groups of this name and those inside, the inner ones first.
pub fn control_groups(name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = hierarchies().iter().map(|root| root.join(name)).collect();
    while let Some(group) = open.pop() {
        if let Ok(entries) = group.read_dir() {
            let folders = entries.flatten().map(|entry| entry.path());
            open.extend(folders.filter(|path| path.is_dir()));
            found.push(group);
        }
    }
    found.reverse();
    found
}

/// Ends every process in the groups and removes them.
pub fn remove_control_groups(name: &str) -> Result<()> {
    tools::wait_for(
        &format!("an end of the control groups {name}"),
        SETTLE,
        || {
            let groups = control_groups(name);
            process::signal("KILL", &members(&groups));
            let left = groups.iter().filter(|group| fs::remove_dir(group).is_err());
            Ok((left.count() == 0).then_some(()))
        },
    )
}

fn members(groups: &[PathBuf]) -> Vec<u32> {
    let list = |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let lists: String = groups.iter().map(list).collect();
    let mut pids: Vec<u32> = lists.lines().filter_map(|pid| pid.parse().ok()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Where something is mounted below a folder, the last mounted first.
pub fn mounts(folder: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut found = mounts_in(&text, folder);
    found.reverse();
    found
}

fn mounts_in(text: &str, folder: &Path) -> Vec<PathBuf> {
    let points = text.lines().filter_map(|line| line.split(' ').nth(1));
    points
        // The kernel writes a space as its octal number.
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| point.starts_with(folder))
        .collect()
}

pub fn remove_mounts(folder: &Path) -> Result<()> {
    for point in mounts(folder) {
        tools::output(tools::program("umount").arg("-l").arg(point))?;
    }
    if let Some(point) = mounts(folder).first() {
        bail!("{} stays mounted", point.display());
    }
    Ok(())
}

/// Entries that containerd, its plugins and the kubelet made in folders that are not ours to choose.
pub fn remove_fixed(state: &Path, sockets: &[PathBuf]) {
    for socket in sockets {
        let _ = fs::remove_file(socket);
    }
    // Answers of the network plugins; each names the pod's network namespace, which is below the state.
    for answer in entries("/var/lib/cni/results") {
        let text = fs::read_to_string(&answer).unwrap_or_default();
        if text.contains(&format!("{}/", state.display())) {
            let _ = fs::remove_file(&answer);
        }
    }
    // Links to the logs of containers.
    for link in entries("/var/log/containers") {
        if link
            .read_link()
            .is_ok_and(|target| target.starts_with(state))
        {
            let _ = fs::remove_file(&link);
        }
    }
    // The kubelet's socket for device plugins; another kubelet would answer at it.
    let socket = "/var/lib/kubelet/device-plugins/kubelet.sock";
    let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    if UnixStream::connect(socket).is_err_and(refused) {
        let _ = fs::remove_file(socket);
    }
    for folder in FIXED_FOLDERS {
        let _ = fs::remove_dir(folder);
    }
}

fn entries(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Everything on this machine that a cluster could leave, to be compared with a later look. What other clusters do at
/// the same time is in it too.
pub fn everything(state: &Path, name: &str, bridge: &str) -> Value {
    let lines = |program: &str, args: &[&str]| {
        let said = tools::output(tools::program(program).args(args)).unwrap_or_default();
        // Counters and times differ from look to look.
        let lines = said.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let links = lines("ip", &["-o", "link"]);
    let link = |line: &String| Some(line.split(": ").nth(1)?.to_owned());
    let links: Vec<String> = links.iter().filter_map(link).collect();
    let rules: Vec<String> = ["iptables-save", "ip6tables-save"]
        .iter()
        .filter(|program| tools::find(program).is_some())
        .flat_map(|program| lines(program, &[]))
        .collect();
    let folders = FIXED_FOLDERS
        .iter()
        .filter(|folder| Path::new(folder).exists());
    json!({
        "processes": process::with_command_line(&state.to_string_lossy()).len(),
        "mounts": mounts(state),
        "control groups": control_groups(name),
        "bridge": links.iter().any(|link| link == bridge),
        "links": links,
        "routes": lines("ip", &["-4", "route"]),
        "network namespaces": lines("ip", &["netns", "list"]),
        "firewall": rules,
        "settings": Settings::read().shown(),
        "forwarding": fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap_or_default(),
        "folders": folders.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k1_only_mounts_below_the_folder_are_ours() {
        let text = "overlay /s/node/run/a overlay rw 0 0\ntmpfs /s/node/a\\040b tmpfs rw 0 0\n\
            tmpfs /sother tmpfs rw 0 0\nproc /proc proc rw 0 0\n";
        let found = mounts_in(text, Path::new("/s"));
        assert_eq!(
            found,
            [PathBuf::from("/s/node/run/a"), PathBuf::from("/s/node/a b")]
        );
    }

    #[test]
    fn k3_settings_are_kept_until_they_are_put_back() {
        let folder = std::env::temp_dir().join(format!("zk-{}-settings", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let settings = Settings::read();
        settings.keep(&folder).unwrap();
        assert_eq!(Settings::kept(&folder), Some(Settings::read()));
        settings.put_back(&folder).unwrap();
        assert_eq!(Settings::kept(&folder), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
