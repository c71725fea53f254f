//! The data folder, held by one process at a time.
//!
//! H1 two processes never have the same data folder open: the lock is the kernel's (`flock`), so it goes with its holder
//!    however that ends.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::FlockOperation;
use thiserror::Error;

/// Others may pass through to the blobs that they know the path of, and see nothing else.
const FOLDER_MODE: u32 = 0o711;
/// A pid has at most ten digits; whatever else the file says is not read.
const LOCK_BYTES: u64 = 32;

/// Why a data folder could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another server works in it.
    #[error("data folder {} is in use by {holder}", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// `process 4711`, or `another process` when it has not said which yet.
        holder: String,
    },
    /// The system refused.
    #[error("data folder {}: {source}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// As the system says.
        source: io::Error,
    },
}

/// A data folder that this process holds (H1), for as long as anything made from it lives.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Makes the folder if there is none, and takes it.
    pub fn open(path: &Path) -> Result<Arc<Self>, OpenError> {
        let trouble = |source| OpenError::Io {
            folder: path.to_owned(),
            source,
        };
        let new = !path.is_dir();
        if new {
            DirBuilder::new()
                .recursive(true)
                .mode(FOLDER_MODE)
                .create(path)
                .map_err(trouble)?;
        }
        let path = path.canonicalize().map_err(trouble)?;
        if new && let Some(parent) = path.parent() {
            // A folder whose name is lost with the power has lost all that is in it.
            File::open(parent)
                .and_then(|parent| parent.sync_all())
                .map_err(trouble)?;
        }
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(trouble)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(OpenError::InUse {
                    folder: path,
                    holder: holder(&mut lock),
                });
            }
            Err(errno) => return Err(trouble(errno.into())),
        }
        lock.set_len(0).map_err(trouble)?;
        lock.rewind().map_err(trouble)?;
        writeln!(lock, "{}", std::process::id()).map_err(trouble)?;
        Ok(Arc::new(DataFolder { path, _lock: lock }))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    let read = lock.take(LOCK_BYTES).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("process {pid}"),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_by_one_and_free_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let held = DataFolder::open(&path).unwrap();
        let refused = DataFolder::open(&path).unwrap_err().to_string();
        let (folder, pid) = (path.canonicalize().unwrap(), std::process::id());
        assert_eq!(
            refused,
            format!(
                "data folder {} is in use by process {pid}",
                folder.display()
            )
        );
        drop(held);
        DataFolder::open(&path).unwrap();
    }
}
