//! MD5 and metadata of the blobs that have any, beside the blobs (O3).
//!
//! A sidecar is a JSON list of versions of one blob, at most two: the one that is visible and the one that is about to
//! be. A version is known by its time and length, so a sidecar never speaks of other bytes than those it was written for.
//! While no blob has one, asking costs nothing.

use model::BlobPath;
use port::BlobError;
use rustix::fs::{AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    io::{self, Read, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{Inner, Version, beneath::Root, trouble};
use crate::failpoint::at;

/// Beside the containers.
pub(super) const FOLDER: &str = ".meta";
const FOLDER_MODE: Mode = Mode::RWXU;
/// Far above what headers of a request can carry twice.
const BYTES: u64 = 1 << 20;

/// What is kept of one version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Entry {
    pub time: u64,
    pub len: u64,
    /// Counts the changes of metadata.
    #[serde(default)]
    pub revision: u64,
    /// When the metadata changed, milliseconds.
    #[serde(default)]
    pub modified: Option<u64>,
    #[serde(default)]
    pub md5: Option<String>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

impl Entry {
    pub(super) fn of(version: Version) -> Self {
        Entry {
            time: version.time,
            len: version.len,
            ..Entry::default()
        }
    }
    pub(super) fn is_of(&self, version: Version) -> bool {
        (self.time, self.len) == (version.time, version.len)
    }
}

pub(super) struct Sidecars {
    /// Whether the folder is there.
    any: AtomicBool,
}

/// `.meta/ab/cdef…`: any path fits into a name of fixed length.
fn place(path: &BlobPath) -> (String, String) {
    let digest = Sha256::digest(path.as_str().as_bytes());
    let mut hex = String::with_capacity(64);
    for byte in &digest[1..] {
        let _ = write!(hex, "{byte:02x}"); // a String takes everything
    }
    (format!("{FOLDER}/{:02x}", digest[0]), hex)
}

impl Sidecars {
    pub(super) fn open(root: &Root) -> io::Result<Self> {
        let any = match root.folder(FOLDER) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        Ok(Sidecars {
            any: AtomicBool::new(any),
        })
    }

    /// What is kept of this version.
    pub(super) fn get(
        &self,
        root: &Root,
        path: &BlobPath,
        version: Version,
    ) -> Result<Option<Entry>, BlobError> {
        let entries = self.read(root, path)?;
        Ok(entries.into_iter().find(|entry| entry.is_of(version)))
    }

    fn read(&self, root: &Root, path: &BlobPath) -> Result<Vec<Entry>, BlobError> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(Vec::new());
        }
        let (folder, name) = place(path);
        let file = match root.open(&format!("{folder}/{name}"), OFlags::RDONLY, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut bytes = Vec::new();
        file.take(BYTES).read_to_end(&mut bytes)?;
        serde_json::from_slice(&bytes).map_err(|e| {
            BlobError::Io(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("what is kept of blob {path} is damaged: {e}"),
            ))
        })
    }

    /// Replaces what is kept, durably.
    pub(super) fn put(
        &self,
        inner: &Inner,
        path: &BlobPath,
        entries: Vec<Entry>,
    ) -> Result<(), BlobError> {
        let json = serde_json::to_vec(&entries).map_err(io::Error::other)?;
        if json.len() as u64 >= BYTES {
            return Err(BlobError::Io(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "metadata of blob {path} has {} bytes, at most {BYTES} are kept",
                    json.len()
                ),
            )));
        }
        self.replace(inner, path, &json)
            .map_err(|error| trouble(path, error))
    }

    fn replace(&self, inner: &Inner, path: &BlobPath, json: &[u8]) -> io::Result<()> {
        let (folder, name) = place(path);
        let folder = inner.root.make_folders(&folder, FOLDER_MODE)?;
        let temporary = inner.temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(&inner.temporary, temporary.as_str(), flags, mode)?;
        let mut file = File::from(fd);
        let written = at("meta.write", || file.write_all(json))
            .and_then(|()| at("meta.sync", || file.sync_all()))
            .and_then(|()| {
                at("meta.rename", || {
                    let (from, to) = (temporary.as_str(), name.as_str());
                    Ok(rustix::fs::renameat(&inner.temporary, from, &folder, to)?)
                })
            });
        if written.is_err() {
            // Best effort: whatever stays is removed when the folder is opened.
            let _ = rustix::fs::unlinkat(&inner.temporary, temporary.as_str(), AtFlags::empty());
            return written;
        }
        self.any.store(true, Ordering::Release);
        at("meta.sync_folder", || Ok(rustix::fs::fsync(&folder)?))
    }

    /// Forgets a blob that is gone. Not synced: what is left of it fits no later version.
    pub(super) fn remove(&self, root: &Root, path: &BlobPath) -> io::Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let (folder, name) = place(path);
        match at("meta.unlink", || {
            root.remove(&format!("{folder}/{name}"), AtFlags::empty())
        }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}
