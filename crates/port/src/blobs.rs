//! Blobs: named bytes in containers.
//!
//! O1 a blob is unseen until it is whole and synced;
//! O2 a path stays inside its container, whatever the client wrote (`BlobPath` is checked, links are not followed);
//! O3 the container `FLEETING` is the exception to O1: what it holds outlives the process, not the machine. Its blobs are whole
//!    and not synced, and it is empty when the machine has been started anew.

use model::{BlobPath, Time};
use std::{collections::BTreeMap, io, ops::Range, path::PathBuf, sync::Arc};
use thiserror::Error;

/// The container of what would only be sent again if it were lost: blocks that no list has joined yet (O3).
pub const FLEETING: &str = "pending-blocks";

/// Why a blob operation could not be done.
#[derive(Debug, Error)]
pub enum BlobError {
    /// No such blob or container.
    #[error("blob {0} does not exist")]
    NotFound(BlobPath),
    /// It is there already and must not be.
    #[error("blob {0} already exists")]
    Exists(BlobPath),
    /// Its name cannot be stored here.
    #[error("blob name {path:?}: {rule}")]
    BadName {
        /// As sent.
        path: String,
        /// The rule.
        rule: &'static str,
    },
    /// The disk is full, or below its reserve.
    #[error("the disk is short: {0}")]
    Full(String),
    /// Anything else of the system.
    #[error("blob store: {0}")]
    Io(#[from] io::Error),
}

/// What is known of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    /// Its size in bytes.
    pub len: u64,
    /// Last written.
    pub modified: Time,
    /// Changes with every write.
    pub etag: String,
    /// MD5 as sent or computed at upload, base64.
    pub md5: Option<String>,
    /// `x-ms-meta-*`, names in lower case.
    pub metadata: BTreeMap<String, String>,
}

/// A blob being written. Dropped without `finish`, it never was.
pub trait BlobWriter: io::Write + Send {
    /// Appends a part of another blob, without carrying its bytes through the process where the system can; returns how many
    /// there were.
    fn add(&mut self, blob: &BlobPath, part: Range<u64>) -> Result<u64, BlobError>;
    /// Makes it visible and durable (O1). With `create_only`, fails with `Exists` when one is there.
    fn finish(
        self: Box<Self>,
        create_only: bool,
        md5: Option<String>,
        metadata: BTreeMap<String, String>,
    ) -> Result<BlobInfo, BlobError>;
}

/// Blobs and folders of blobs.
pub trait Blobs: Send + Sync {
    /// Starts writing a blob.
    fn write(&self, path: &BlobPath) -> Result<Box<dyn BlobWriter>, BlobError>;
    /// Small blobs at once.
    fn put(&self, path: &BlobPath, bytes: &[u8]) -> Result<BlobInfo, BlobError> {
        let mut writer = self.write(path)?;
        io::Write::write_all(&mut writer, bytes)?;
        writer.finish(false, None, BTreeMap::new())
    }
    /// What is known of it.
    fn info(&self, path: &BlobPath) -> Result<BlobInfo, BlobError>;
    /// Reads at most `buf.len()` bytes from `offset`; 0 at the end.
    fn read_at(&self, path: &BlobPath, offset: u64, buf: &mut [u8]) -> Result<usize, BlobError>;
    /// All of a small blob (at most `limit` bytes, else an error).
    fn read(&self, path: &BlobPath, limit: u64) -> Result<Vec<u8>, BlobError> {
        let len = self.info(path)?.len;
        if len > limit {
            return Err(BlobError::Io(io::Error::other(format!(
                "blob {path} has {len} bytes, at most {limit} are read at once"
            ))));
        }
        let mut out = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        let mut at = 0;
        while at < out.len() {
            match self.read_at(path, at as u64, &mut out[at..])? {
                0 => break,
                n => at += n,
            }
        }
        out.truncate(at);
        Ok(out)
    }
    /// Replaces the metadata.
    fn set_metadata(
        &self,
        path: &BlobPath,
        metadata: BTreeMap<String, String>,
    ) -> Result<BlobInfo, BlobError>;
    /// Removes a blob.
    fn delete(&self, path: &BlobPath) -> Result<(), BlobError>;
    /// Removes everything below a folder; it is no error when nothing is there.
    fn delete_folder(&self, path: &BlobPath) -> Result<(), BlobError>;
    /// Blobs below `folder` in byte order of their paths, after `after`, at most `limit`; paths are whole.
    fn list(
        &self,
        folder: &BlobPath,
        after: Option<&BlobPath>,
        limit: usize,
    ) -> Result<Vec<(BlobPath, BlobInfo)>, BlobError>;
    /// Every path below `folder`, in byte order, without looking at each blob: what a listing of a million files needs.
    fn walk(&self, folder: &BlobPath, take: &mut dyn FnMut(BlobPath)) -> Result<(), BlobError>;
    /// Appends to a segment and syncs it; returns the offset of the first byte. Segments are ours alone, never listed to clients.
    fn append(&self, segment: &BlobPath, pieces: &[Arc<[u8]>]) -> Result<u64, BlobError>;
    /// Whether the blob or folder lies elsewhere, and has to be brought before it is read.
    fn is_far(&self, _path: &BlobPath) -> bool {
        false
    }
    /// Brings a blob or folder that lies elsewhere, as it is there now: afterwards it is read like any other. Blocks for as long as that takes.
    fn bring(&self, _path: &BlobPath) -> Result<(), BlobError> {
        Ok(())
    }
    /// Sends a blob, or everything below a folder, to a place that lies elsewhere; what is there under the same names is replaced,
    /// and nothing else is touched. Begun again it ends in the same. Blocks for as long as that takes.
    fn send(&self, _from: &BlobPath, to: &BlobPath) -> Result<(), BlobError> {
        Err(BlobError::Io(io::Error::other(format!(
            "{to} is no place of an attached datastore"
        ))))
    }
    /// Where the blob or folder lies on this machine's disk, when it does.
    fn local(&self, path: &BlobPath) -> Option<PathBuf>;
}
