//! Nodes and tasks as processes of this machine: the agent (one per node) and its supervisor in the server.
//!
//! The server side is `Local`, which keeps what is observed and talks to agents over one Unix socket. An agent is a process
//! of its own, so that work goes on while the server is away (`agent`); `launcher` is what it becomes for a moment where
//! limits have to be set between fork and exec.

pub mod agent;
pub mod confine;
pub mod gang;
pub mod launcher;
pub mod mirror;
pub mod protocol;

mod cluster;
mod environment;
mod hub;
mod local;
mod node;
mod proc;
mod record;
mod remote;
mod resolve;
mod tree;
mod uid;
mod variables;

pub use cluster::OWN_LABELS;
use hub::SILENCE;
pub use local::{Local, LocalConfig, LocalError};
pub use remote::{Channel, Remote, RemoteConfig};
pub use variables::Variables;
