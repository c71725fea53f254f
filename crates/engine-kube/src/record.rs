//! What this engine was told to start, on disk: a server that starts again knows its pods before it has asked the cluster.
//!
//! R1 a record is written before anything is made in the cluster, and removed after all of it is gone;
//! R2 `tried` is set before a pod is asked for and taken back only when the server has refused it: so a pod of an attempt is
//!    made once, also by a server that died between asking and hearing (it is lost then, and the next attempt begins).

use crate::name;
use model::{ComputeId, TaskId, TaskSpec, engine::Placement};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// A task that was to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Which.
    pub task: TaskId,
    /// Where.
    pub placement: Placement,
    /// What.
    pub spec: Arc<TaskSpec>,
    /// Whether its pod may be there (R2).
    pub tried: bool,
}

impl Record {
    /// The compute of its pod.
    pub fn compute(&self) -> Option<&ComputeId> {
        self.placement.place.pod().map(|pod| &pod.compute)
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

    fn path(&self, task: &TaskId) -> PathBuf {
        let whole = serde_json::to_string(task).expect("ids can be written");
        let whole = name::digest(&whole.to_ascii_lowercase(), 16);
        self.0.join(format!("{}.{whole}.json", name::pod(task)))
    }

    /// Writes one (R1).
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let path = self.path(&record.task);
        let beside = path.with_extension("new");
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(&serde_json::to_vec(record).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(beside, path)
    }

    /// Removes one.
    pub fn remove(&self, task: &TaskId) {
        if let Err(e) = fs::remove_file(self.path(task))
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("the record of {task}: {e}");
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
