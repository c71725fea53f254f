//! Nodes on disk and as processes: making one, finding those that a server before us left, ending one with all it started.
//!
//! M1 a node's folder is written before its process is started and removed after the last process of it is dead;
//! M2 ending a node is idempotent and needs only what the folder says: a server that dies over it begins again at its next start.

use crate::{
    confine, proc,
    protocol::{NodeConfig, Role},
    record::{self, AGENT_LOG, AgentRecord},
    uid,
};
use model::NodeId;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Signal, pidfd_send_signal},
};
use std::{
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// How long a killed agent is waited for. Longer means that it is stuck in the kernel; its children are ended all the same.
const DEATH_S: i64 = 5;
/// Folders of dead nodes begin so.
const RETIRED: &str = ".dead-";
/// Bytes of an agent's log that are quoted when it could not start.
const QUOTE: usize = 600;

/// The folder name of a node: readable, and different for every node.
pub fn key(node: &NodeId) -> String {
    let readable: String = node
        .compute
        .name()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(40)
        .collect();
    // Ids are compared without case, so the folder is the same however the name is spelled.
    let whole = serde_json::to_string(node)
        .expect("ids can be written")
        .to_ascii_lowercase();
    format!(
        "{}-{}.{}-{:08x}",
        readable.to_ascii_lowercase(),
        node.ordinal,
        node.incarnation,
        crc32fast::hash(whole.as_bytes())
    )
}

/// What every node of this server shares.
pub struct Ground {
    /// `nodes/` of the data folder.
    pub nodes: PathBuf,
    /// Folder of the socket.
    pub socket_dir: PathBuf,
    /// The program that runs `agent`.
    pub exe: PathBuf,
    /// Name below which our groups lie.
    pub group: String,
    /// Whether user processes get a uid of their own.
    pub own_uid: bool,
    /// How limits are enforced.
    pub confinement: confine::Kind,
}

impl Ground {
    /// Writes the folder of a node and starts its agent.
    pub fn spawn(
        &self,
        node: &NodeId,
        role: Role,
        gpus: &[u32],
    ) -> io::Result<(PathBuf, NodeConfig, Child)> {
        let key = key(node);
        let dir = self.nodes.join(&key);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(&dir)?;
        let config = NodeConfig {
            node: node.clone(),
            role,
            gpus: gpus.to_vec(),
            socket_dir: self.socket_dir.clone(),
            own_uid: self.own_uid,
            confinement: self.confinement.clone(),
            group: format!("{}/{key}", self.group),
        };
        record::write_config(&dir, &config)?; // M1
        let log = File::options()
            .create(true)
            .append(true)
            .open(dir.join(AGENT_LOG))?;
        let child = Command::new(&self.exe)
            .arg("agent")
            .arg("--dir")
            .arg(&dir)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok((dir, config, child))
    }

    /// Nodes that a server before us left.
    pub fn scan(&self) -> io::Result<Vec<(PathBuf, io::Result<NodeConfig>)>> {
        let mut out = Vec::new();
        for entry in fs::read_dir(&self.nodes)? {
            let entry = entry?;
            let dir = entry.path();
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(RETIRED.as_bytes())
            {
                remove(&dir);
            } else if dir.is_dir() {
                let config = record::read_config(&dir);
                out.push((dir, config));
            }
        }
        Ok(out)
    }
}

/// The living agent of a folder.
pub fn living(dir: &Path) -> Option<(AgentRecord, OwnedFd)> {
    let record = record::read_agent(dir)?;
    Some((record, proc::open(record.pid, record.start)?))
}

/// Ends an agent, and waits until it is gone.
pub fn end_agent(pidfd: Option<&OwnedFd>, child: Option<Child>) {
    if let Some(fd) = pidfd {
        let _ = pidfd_send_signal(fd, Signal::KILL);
        let limit = Timespec {
            tv_sec: DEATH_S,
            tv_nsec: 0,
        };
        let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&limit));
    }
    if let Some(mut child) = child {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Ends everything that belonged to a node whose agent is gone (M2).
pub fn end_rest(config: &NodeConfig, record: Option<AgentRecord>) {
    confine::kill_group_tree(&config.confinement, &config.group);
    if let Some(uid) = record.and_then(|r| r.uid)
        && let Err(e) = uid::clear(uid)
    {
        tracing::warn!("node {}: processes of uid {uid}: {e}", config.node);
    }
    confine::remove_tree(&config.confinement, &config.group);
}

/// Gives the folder of a dead node a name that no scan takes for a node; returns it.
pub fn retire(dir: &Path) -> PathBuf {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let to = dir.with_file_name(format!("{RETIRED}{name}"));
    match fs::rename(dir, &to) {
        Ok(()) => to,
        Err(_) => dir.to_path_buf(),
    }
}

/// Removes what is left of a node.
pub fn remove(dir: &Path) {
    if let Err(e) = fs::remove_dir_all(dir)
        && e.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!("{}: {e}", dir.display());
    }
}

/// The last words of an agent that could not start.
pub fn last_words(dir: &Path) -> String {
    let text = fs::read(dir.join(AGENT_LOG)).unwrap_or_default();
    let from = text.len().saturating_sub(QUOTE);
    String::from_utf8_lossy(&text[from..]).trim().to_owned()
}
