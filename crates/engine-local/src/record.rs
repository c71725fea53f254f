//! What lies in a node's folder: who the node is, and which process is its agent.
//!
//! I6 of the reliability plan: the folder with its configuration is there before the process is, so that nothing runs that
//! no record names.

use crate::protocol::NodeConfig;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// The node's configuration, written by the server.
pub const CONFIG: &str = "node.json";
/// The agent's process, written by the agent first of all.
pub const AGENT: &str = "agent.json";
/// What the agent says.
pub const AGENT_LOG: &str = "agent.log";

/// The process of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Its pid.
    pub pid: u32,
    /// Its start time: with the pid it names one process (proc.rs Q1).
    pub start: u64,
    /// The user of its tasks.
    pub uid: Option<u32>,
}

fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = folder.join(format!(".{name}"));
    // The owner's alone: the task of a pod stands in it, with the user's variables (I9).
    let mut file = fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(bytes)?;
    fs::rename(beside, folder.join(name))
}

/// Writes the agent's record.
pub fn write_agent(folder: &Path, record: &AgentRecord) -> io::Result<()> {
    write_whole(folder, AGENT, &serde_json::to_vec(record)?)
}

/// Reads the agent's record, if there is one.
pub fn read_agent(folder: &Path) -> Option<AgentRecord> {
    serde_json::from_slice(&fs::read(folder.join(AGENT)).ok()?).ok()
}

/// Writes the node's configuration.
pub fn write_config(folder: &Path, config: &NodeConfig) -> io::Result<()> {
    write_whole(folder, CONFIG, &serde_json::to_vec_pretty(config)?)
}

/// Reads the node's configuration.
pub fn read_config(folder: &Path) -> io::Result<NodeConfig> {
    Ok(serde_json::from_slice(&fs::read(folder.join(CONFIG))?)?)
}
