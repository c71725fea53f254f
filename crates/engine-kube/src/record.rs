//! What this engine was told to start, on disk: a server that starts again knows its pods before it has asked the cluster.
//!
//! R1 a record is written before anything is made in the cluster, and removed after all of it is gone;
//! R2 `tried` is set before a pod is asked for and taken back only when the server has refused it: so a pod of an attempt is
//!    made once, also by a server that died between asking and hearing (it is lost then, and the next attempt begins).

use crate::name;
use model::{ComputeId, NodeId, NodeSpec, TaskId, TaskSpec, engine::Placement};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// What a pod is for; also a task that has none of its own, but runs on a node that is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// A task of a run.
    Task(TaskId),
    /// A node of a cluster.
    Node(NodeId),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Task(task) => write!(f, "task {task}"),
            Key::Node(node) => write!(f, "node {node}"),
        }
    }
}

/// What was to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum What {
    /// A task.
    Task {
        /// Which.
        task: TaskId,
        /// Where.
        placement: Placement,
        /// What it runs.
        spec: Arc<TaskSpec>,
    },
    /// A node.
    Node {
        /// Which.
        node: NodeId,
        /// What it is.
        spec: NodeSpec,
    },
}

/// Something that was to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// What.
    pub what: What,
    /// Whether its pod may be there (R2).
    pub tried: bool,
}

impl Record {
    /// Something whose pod has not been asked for.
    pub fn new(what: What) -> Record {
        Record { what, tried: false }
    }
    /// What it is about.
    pub fn key(&self) -> Key {
        match &self.what {
            What::Task { task, .. } => Key::Task(task.clone()),
            What::Node { node, .. } => Key::Node(node.clone()),
        }
    }
    /// The compute of its pod; `None` for a task that has no pod of its own.
    pub fn compute(&self) -> Option<&ComputeId> {
        match &self.what {
            What::Task { placement, .. } => placement.place.pod().map(|pod| &pod.compute),
            What::Node { spec, .. } => spec.pod.as_ref().map(|pod| &pod.compute),
        }
    }
}

/// The folder with the records.
#[derive(Clone, Debug)]
pub struct Records(PathBuf);

impl Records {
    /// Opens it.
    pub fn open(folder: &Path) -> io::Result<Records> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        Ok(Records(folder.to_owned()))
    }

    fn path(&self, key: &Key) -> PathBuf {
        let whole = serde_json::to_string(key).expect("ids can be written");
        let whole = name::digest(&whole.to_ascii_lowercase(), 16);
        self.0.join(format!("{}.{whole}.json", name::of("", key)))
    }

    /// Writes one (R1), durably.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        self.put(record, true)
    }

    /// Writes one that says no more than what the control plane says again: it need not survive the machine.
    pub fn note(&self, record: &Record) -> io::Result<()> {
        self.put(record, false)
    }

    fn put(&self, record: &Record, durably: bool) -> io::Result<()> {
        let path = self.path(&record.key());
        let beside = path.with_extension("new");
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(&serde_json::to_vec(record).map_err(io::Error::other)?)?;
        if durably {
            file.sync_all()?;
        }
        fs::rename(beside, path)
    }

    /// Removes one.
    pub fn remove(&self, key: &Key) {
        if let Err(e) = fs::remove_file(self.path(key))
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("the record of {key}: {e}");
        }
    }

    /// All of them. One that cannot be read is named and left out.
    pub fn all(&self) -> io::Result<Vec<Record>> {
        let mut out = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            match fs::read(&path).map(|bytes| serde_json::from_slice(&bytes)) {
                Ok(Ok(record)) => out.push(record),
                Ok(Err(e)) => tracing::warn!("{}: {e}", path.display()),
                Err(e) => tracing::warn!("{}: {e}", path.display()),
            }
        }
        Ok(out)
    }
}
