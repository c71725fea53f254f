//! Segments: files that only grow, one synced append after the other.
//!
//! An append begins where the file really ends. What a crash left torn at the end is never named by a span, so it does
//! no harm; it is passed over.

use model::BlobPath;
use port::BlobError;
use rustix::fs::{Mode, OFlags};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, IoSlice, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{TRIES, beneath::Root, names, trouble, version};
use crate::failpoint::at;

/// Descriptors kept open. Each running batch run appends to one segment.
const OPEN: usize = 64;
/// What one call of the system takes (`IOV_MAX`).
const PIECES: usize = 1_024;
/// Only the server reads them.
const MODE: Mode = Mode::from_raw_mode(0o600);

#[derive(Default)]
pub(super) struct Segments(Mutex<HashMap<BlobPath, Arc<Segment>>>);

struct Segment {
    file: File,
    /// Appends take turns.
    turn: Mutex<()>,
}

impl Segments {
    pub(super) fn new() -> Self {
        Self::default()
    }
    fn open_ones(&self) -> MutexGuard<'_, HashMap<BlobPath, Arc<Segment>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A segment that is open already, for reading.
    pub(super) fn known(&self, path: &BlobPath) -> Option<Reading> {
        self.open_ones().get(path).cloned().map(Reading)
    }

    /// Closes one that was removed or replaced.
    pub(super) fn forget(&self, path: &BlobPath) {
        self.open_ones().remove(path);
    }
    pub(super) fn forget_below(&self, folder: &BlobPath) {
        let inside = |path: &BlobPath| {
            path.as_str()
                .strip_prefix(folder.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        };
        self.open_ones().retain(|path, _| !inside(path));
    }

    fn open(&self, root: &Root, path: &BlobPath) -> Result<Arc<Segment>, BlobError> {
        if let Some(segment) = self.open_ones().get(path) {
            return Ok(segment.clone());
        }
        names::check(path)?;
        let file = open_file(root, path).map_err(|error| trouble(path, error))?;
        let segment = Arc::new(Segment {
            file,
            turn: Mutex::new(()),
        });
        let mut open = self.open_ones();
        if open.len() >= OPEN {
            // Whoever still uses one has it; the others open theirs again.
            open.clear();
        }
        Ok(open.entry(path.clone()).or_insert(segment).clone())
    }

    pub(super) fn append(
        &self,
        root: &Root,
        path: &BlobPath,
        pieces: &[Arc<[u8]>],
    ) -> Result<u64, BlobError> {
        let segment = self.open(root, path)?;
        let appended = segment.append(pieces);
        appended.map_err(|error| {
            // After a failed sync nothing is known of this descriptor's bytes; the next append looks anew.
            self.forget(path);
            trouble(path, error)
        })
    }
}

fn open_file(root: &Root, path: &BlobPath) -> io::Result<File> {
    let (parent, _) = names::split(path);
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
    let mut tries = 0;
    let (folder, file) = loop {
        let folder = root.make_blob_folders(parent)?;
        match at("segment.create", || root.open(path.as_str(), flags, MODE)) {
            // The folder was removed as empty in this very moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => tries += 1,
            other => break (folder, other?),
        }
    };
    let file = File::from(file);
    if version(&file)?.is_none() {
        return Err(io::Error::other(format!("{path} is no plain file")));
    }
    at("segment.sync_folder", || Ok(rustix::fs::fsync(&folder)?))?;
    Ok(file)
}

impl Segment {
    fn append(&self, pieces: &[Arc<[u8]>]) -> io::Result<u64> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.file.metadata()?.len();
        let mut slices: Vec<IoSlice<'_>> = pieces
            .iter()
            .filter(|piece| !piece.is_empty())
            .map(|piece| IoSlice::new(piece))
            .collect();
        let mut left = &mut slices[..];
        if left.is_empty() {
            return Ok(end);
        }
        while !left.is_empty() {
            let now = left.len().min(PIECES);
            let n = at("segment.write", || {
                (&self.file).write_vectored(&left[..now])
            })?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut left, n);
        }
        at("segment.sync", || self.file.sync_data())?;
        Ok(end)
    }
}

/// A segment that can be read at any place.
pub(super) struct Reading(Arc<Segment>);
impl Reading {
    pub(super) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if i64::try_from(offset).is_err() {
            return Ok(0); // beyond what any file can hold
        }
        std::os::unix::fs::FileExt::read_at(&self.0.file, buf, offset)
    }
}
