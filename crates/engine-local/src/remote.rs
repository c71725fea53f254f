//! Agents of other machines: a hub of their own, which they reach through the server's port.
//!
//! The hub is the one that local nodes have. What is different is in `hub/guests.rs`: nobody here starts such an agent, and
//! nobody here judges it by its silence.

use crate::{
    LocalError,
    confine::Kind,
    environment::Environments,
    hub::{Hub, Means, Shared, Wish},
    mirror::Grants,
    node::Ground,
    protocol::Held,
};
use model::{Action, ClusterSeen, NodeId, Observed, TaskId, TaskSpec, engine::Placement};
use port::{Bell, Blobs};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{fs::DirBuilderExt, net::UnixStream},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

/// Connections for files that a node may have at once; its agent needs two for a task.
const MAX_FILES: u32 = 8;

/// What a connection of an agent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Messages of `protocol`.
    Messages,
    /// Files of `mirror`.
    Files,
}

/// How the hub is set up.
pub struct RemoteConfig {
    /// A folder of its own.
    pub folder: PathBuf,
    /// Blobs; `local` must know where they lie.
    pub blobs: Arc<dyn Blobs>,
    /// Environment variables of every job.
    pub variables: crate::Variables,
}

/// The hub of agents on other machines.
pub struct Remote {
    shared: Arc<Shared>,
    grants: Arc<Grants>,
    blobs: Arc<dyn Blobs>,
    /// Nodes that may come, and their connections for files.
    expected: Arc<Mutex<BTreeMap<NodeId, u32>>>,
    hub: Option<JoinHandle<()>>,
}

impl Remote {
    /// Starts the hub; it expects nobody yet. It rings `bell` when an agent has said something.
    pub fn open(config: RemoteConfig, bell: Bell) -> Result<Remote, LocalError> {
        let folder = config.folder;
        let failed = |error: io::Error| LocalError::Io {
            path: folder.clone(),
            error,
        };
        let nodes = folder.join("nodes");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&nodes)
            .map_err(failed)?;
        let ground = Ground {
            nodes,
            socket_dir: folder.clone(),
            exe: PathBuf::new(), // nothing is started here
            group: "remote".to_owned(),
            own_uid: false,
            confinement: Kind::Rlimits,
        };
        let means = Means {
            blobs: config.blobs.clone(),
            environments: Arc::new(Environments::new(folder.clone(), folder.clone(), false)),
            runtime: folder.clone(),
            variables: config.variables,
        };
        let hub =
            Hub::open(ground, means, Vec::new(), ClusterSeen::default(), bell).map_err(failed)?;
        let (shared, grants) = (hub.shared(), hub.grants());
        let thread = std::thread::Builder::new()
            .name("remote-hub".into())
            .spawn(move || {
                let run = std::panic::AssertUnwindSafe(|| hub.serve());
                if std::panic::catch_unwind(run).is_err() {
                    std::process::abort(); // as `Local` does
                }
            })
            .map_err(failed)?;
        Ok(Remote {
            shared,
            grants,
            blobs: config.blobs,
            expected: Arc::default(),
            hub: Some(thread),
        })
    }

    fn expected(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeId, u32>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An agent may come for this task. Telling it twice changes nothing.
    pub fn expect(&self, node: NodeId, task: TaskId, placement: Placement, spec: Arc<TaskSpec>) {
        self.expected().entry(node.clone()).or_insert(0);
        let held = Arc::new(Held {
            addresses: Vec::new(), // known when its pods are
            placement,
            spec,
        });
        self.shared.wish(Wish::Expect(node, task, held));
    }

    /// An agent may come that is a node of a cluster. Telling it twice changes nothing.
    pub fn expect_node(&self, node: NodeId) {
        self.expected().entry(node.clone()).or_insert(0);
        self.shared.wish(Wish::ExpectNode(node));
    }

    /// Nothing that this agent says or sends counts any more.
    pub fn release(&self, node: &NodeId) {
        if self.expected().remove(node).is_some() {
            self.grants.take(node); // at once: what is on its way is not taken either
            self.shared.wish(Wish::Release(node.clone()));
        }
    }

    /// Where the others of its gang reach a task.
    pub fn address(&self, task: &TaskId, ip: &str) {
        self.shared.wish(Wish::Address(task.clone(), ip.into()));
    }

    /// What agents say: a node is up while its agent is connected.
    pub fn observe(&self) -> Observed {
        self.shared.observe()
    }

    /// Tells agents.
    pub fn apply(&self, actions: Vec<Action>) {
        self.shared.apply(actions);
    }

    /// The engine's end of a connection whose credential is that of `node`.
    pub fn connect(&self, node: &NodeId, channel: Channel) -> io::Result<UnixStream> {
        let mut expected = self.expected();
        let files = expected
            .get_mut(node)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it has no task here"))?;
        let (ours, theirs) = UnixStream::pair()?;
        match channel {
            Channel::Messages => self.shared.wish(Wish::Guest(node.clone(), theirs)),
            Channel::Files => {
                if *files >= MAX_FILES {
                    return Err(io::Error::other("it has too many connections for files"));
                }
                *files += 1;
                drop(expected);
                let (grants, blobs) = (self.grants.clone(), self.blobs.clone());
                let (expected, node) = (self.expected.clone(), node.clone());
                let serve = move || {
                    if let Err(e) = grants.serve(theirs, &node, &blobs) {
                        tracing::debug!("node {node}: files: {e}");
                    }
                    let mut expected = expected.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(files) = expected.get_mut(&node) {
                        *files = files.saturating_sub(1);
                    }
                };
                std::thread::Builder::new()
                    .name("files".into())
                    .spawn(serve)?;
            }
        }
        Ok(ours)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(hub) = self.hub.take() {
            let _ = hub.join();
        }
    }
}
