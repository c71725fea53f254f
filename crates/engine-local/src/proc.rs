//! What `/proc` tells: who lives, since when, whose child it is.
//!
//! Q1 a pid alone names nobody: it is used with its start time, or through a pidfd opened before the last look.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::OwnedFd,
};

/// One process as `/proc/PID/stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State letter.
    pub state: u8,
    /// Parent.
    pub parent: u32,
    /// Session.
    pub session: u32,
    /// Start, in clock ticks since boot.
    pub start: u64,
    /// Resident pages.
    pub rss_pages: u64,
}

impl Stat {
    /// Whether it can still do anything: not a zombie.
    pub fn alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// The process `pid`, if it is there.
pub fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets, and may hold anything, brackets too.
    let from = text.iter().rposition(|b| *b == b')')? + 2;
    let rest = std::str::from_utf8(text.get(from..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
        rss_pages: fields.get(21)?.parse().unwrap_or(0),
    })
}

/// Start time of a living process.
pub fn start_of(pid: u32) -> Option<u64> {
    stat(pid).filter(Stat::alive).map(|s| s.start)
}

/// A handle of the process that has this pid and this start time.
pub fn open(pid: u32, start: u64) -> Option<OwnedFd> {
    let fd = pidfd_open(
        Pid::from_raw(i32::try_from(pid).ok()?)?,
        PidfdFlags::empty(),
    )
    .ok()?;
    // Looked at after the handle is there (Q1).
    (start_of(pid)? == start).then_some(fd)
}

/// All pids.
pub fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Every living process with its stat.
pub fn all() -> BTreeMap<u32, Stat> {
    pids()
        .into_iter()
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .filter(|(_, s)| s.alive())
        .collect()
}

/// Living descendants of `root`, without it.
pub fn descendants(root: u32) -> BTreeSet<u32> {
    let all = all();
    let mut out = BTreeSet::from([root]);
    loop {
        let before = out.len();
        for (pid, stat) in &all {
            if out.contains(&stat.parent) {
                out.insert(*pid);
            }
        }
        if out.len() == before {
            out.remove(&root);
            return out;
        }
    }
}

/// Real user id of a process.
pub fn uid_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|l| l.starts_with("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Living processes of a user.
pub fn of_uid(uid: u32) -> BTreeSet<u32> {
    all()
        .into_keys()
        .filter(|pid| uid_of(*pid) == Some(uid))
        .collect()
}

/// Living processes whose environment has `NAME=value...` where the value starts with `prefix`.
pub fn marked(name: &str, prefix: &str) -> BTreeSet<u32> {
    let sought = format!("{name}={prefix}").into_bytes();
    all()
        .into_keys()
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|env| env.split(|b| *b == 0).any(|v| v.starts_with(&sought)))
        })
        .collect()
}

/// Kills one process by a handle; it is no error when it is gone.
pub fn kill(pid: u32, signal: Signal) {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    if let Ok(fd) = pidfd_open(raw, PidfdFlags::empty()) {
        let _ = pidfd_send_signal(&fd, signal);
    }
}

/// Signals a process group; it is no error when it is gone.
pub fn kill_group(leader: u32, signal: Signal) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

/// Real cores and bytes of memory of this machine.
pub fn machine() -> io::Result<(usize, u64)> {
    let cores = std::thread::available_parallelism()?.get();
    let text = fs::read_to_string("/proc/meminfo")?;
    let total = text
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    Ok((cores, total * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_pid_and_start_together() {
        let me = std::process::id();
        let start = start_of(me).unwrap();
        assert!(open(me, start).is_some());
        assert!(
            open(me, start + 1).is_none(),
            "another process that had this pid is not this one"
        );
    }

    #[test]
    fn children_and_marks_are_found() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("ZAFFRE_PROC_TEST", format!("{}/x", std::process::id()))
            .spawn()
            .unwrap();
        let own = format!("{}/", std::process::id());
        assert!(descendants(std::process::id()).contains(&child.id()));
        assert!(marked("ZAFFRE_PROC_TEST", &own).contains(&child.id()));
        kill(child.id(), Signal::KILL);
        child.wait().unwrap();
        assert!(!marked("ZAFFRE_PROC_TEST", &own).contains(&child.id()));
    }
}
