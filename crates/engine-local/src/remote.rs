//! Agents of other machines: the same hub, to which they connect by themselves.

use model::{Action, NodeId, Observed, TaskId, TaskSpec, engine::Placement};
use std::{io, os::unix::net::UnixStream, sync::Arc};

/// What a connection of an agent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Messages of `protocol`.
    Messages,
    /// Files of `mirror`.
    Files,
}

/// The hub of agents on other machines.
#[derive(Default)]
pub struct Remote;

impl Remote {
    /// An agent may come for this task.
    pub fn expect(&self, _: NodeId, _: TaskId, _: Placement, _: Arc<TaskSpec>) {}
    /// Nothing of it counts any more.
    pub fn release(&self, _: &NodeId) {}
    /// Where the others of its gang reach a task.
    pub fn address(&self, _: &TaskId, _: &str) {}
    /// What agents say.
    pub fn observe(&self) -> Observed {
        Observed::default()
    }
    /// Tells agents.
    pub fn apply(&self, _: Vec<Action>) {}
    /// The server's end of a connection.
    pub fn connect(&self, _: &NodeId, _: Channel) -> io::Result<UnixStream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
