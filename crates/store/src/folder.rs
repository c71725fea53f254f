//! `Blobs` on a folder: each blob is a plain file that a task may read where it lies.
//!
//! O1 a blob is written under a name that nobody sees, synced, then renamed; the folder that holds it is synced too;
//! O2 every path is resolved by the kernel below the root's descriptor, following no link at all;
//! O3 MD5 and metadata change together with the bytes: they are kept beside the blob for the one version of it that has
//!    this time and length, written before the rename that makes that version visible.
//!
//! What is in the container of fleeting blobs is not synced: the page cache keeps it while the machine runs, and the container
//! is emptied when the machine has another boot id (O3 of the port).
//!
//! Only plain files are blobs. Links, pipes and devices that user code left in a folder are neither listed nor opened.

use model::{BlobPath, Time};
use port::{BlobError, BlobInfo, BlobWriter, Blobs, FLEETING};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{DataFolder, OpenError, failpoint::at, reserve::is_full};

mod beneath;
mod names;
mod removal;
mod segments;
mod sidecar;
mod walk;
mod writer;

use beneath::Root;
use segments::Segments;
use sidecar::Sidecars;
use writer::Writer;

/// Names of blobs, and the folder in the data folder that holds them.
const BLOBS: &str = "blobs";
/// Where blobs are while they are written, and what is being removed.
const TEMPORARY: &str = ".tmp";
/// Holds the boot id of the machine that the fleeting blobs are of.
const BOOT: &str = ".boot";
/// Where Linux says it. Without one, fleeting blobs are synced like the others.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Writers of the same blob take turns; blobs share so many turns.
const TURNS: usize = 64;
/// A folder that a writer just made may be removed as empty before its blob is in; it is made again this often.
const TRIES: usize = 16;

/// The blobs of one data folder.
pub struct Folder(Arc<Inner>);

struct Inner {
    root: Root,
    /// `.tmp`, emptied when the folder is opened.
    temporary: rustix::fd::OwnedFd,
    names: AtomicU64,
    stamp: AtomicU64,
    sidecars: Sidecars,
    segments: Segments,
    turns: [Mutex<()>; TURNS],
    /// Whether fleeting blobs are gone after a start of the machine.
    remembers_boot: bool,
    _folder: Arc<DataFolder>,
}

impl Folder {
    /// The blobs of a data folder. What was being written when the last process ended is removed.
    pub fn open(folder: &Arc<DataFolder>) -> Result<Self, OpenError> {
        let path = folder.path().join(BLOBS);
        Self::open_at(folder, &path).map_err(|source| OpenError::Io {
            folder: path,
            source,
        })
    }

    fn open_at(folder: &Arc<DataFolder>, path: &std::path::Path) -> io::Result<Self> {
        let root = Root::new(path)?;
        let remembers_boot = end_fleeting(&root)?;
        removal::empty(&root, TEMPORARY)?;
        let temporary = root.scratch(TEMPORARY)?;
        let sidecars = Sidecars::open(&root)?;
        Ok(Folder(Arc::new(Inner {
            root,
            temporary,
            names: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
            sidecars,
            segments: Segments::new(),
            turns: std::array::from_fn(|_| Mutex::new(())),
            remembers_boot,
            _folder: folder.clone(),
        })))
    }
}

/// Puts the fleeting blobs of an earlier start of the machine where all is removed; whether this start could be told.
fn end_fleeting(root: &Root) -> io::Result<bool> {
    let Ok(boot) = std::fs::read_to_string(BOOT_ID) else {
        return Ok(false);
    };
    let known = root.path().join(BOOT);
    match std::fs::read_to_string(&known) {
        Ok(before) if before == boot => return Ok(true),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    root.scratch(TEMPORARY)?;
    let from = root.path().join(FLEETING);
    match std::fs::rename(from, root.path().join(TEMPORARY).join(FLEETING)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Not synced: if it is lost, so was the power, and the next boot id is another one.
    std::fs::write(known, boot)?;
    Ok(true)
}

/// What identifies one version of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    /// Modification time in nanoseconds; every write of ours has its own.
    time: u64,
    len: u64,
    /// Told apart in the ETag only: a copied data folder has other numbers.
    inode: u64,
}

impl Inner {
    fn turn(&self, path: &BlobPath) -> MutexGuard<'_, ()> {
        let at = crc32fast::hash(path.as_str().as_bytes()) as usize % TURNS;
        self.turns[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A name in `.tmp` that nobody has.
    fn temporary_name(&self) -> String {
        self.names.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// Now in nanoseconds, later than every answer before.
    fn stamp(&self) -> u64 {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
        let next = |last: u64| Some(now.max(last + 1));
        let last = self
            .stamp
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .unwrap_or_else(|last| last);
        now.max(last + 1)
    }

    /// Opens a blob; anything but a plain file is not there.
    fn open(&self, path: &BlobPath, flags: OFlags) -> Result<(File, Version), BlobError> {
        names::check(path)?;
        // A pipe that nobody writes to would hold us here; `O_PATH` opens nothing that could.
        let flags = if flags.contains(OFlags::PATH) {
            flags
        } else {
            flags | OFlags::NONBLOCK
        };
        let file = self
            .root
            .open(path.as_str(), flags, Mode::empty())
            .map_err(|error| trouble(path, error))?;
        let file = File::from(file);
        match version(&file)? {
            Some(version) => Ok((file, version)),
            None => Err(BlobError::NotFound(path.clone())),
        }
    }

    fn info(&self, path: &BlobPath) -> Result<BlobInfo, BlobError> {
        let (_, version) = self.open(path, OFlags::PATH)?;
        let entry = self.sidecars.get(&self.root, path, version)?;
        Ok(describe(version, entry))
    }

    /// Removes the folders that are empty now, from the parent of `path` up to its container, which stays.
    fn prune(&self, path: &BlobPath) {
        let mut rest = path.as_str();
        while let Some((parent, _)) = rest.rsplit_once('/') {
            if !parent.contains('/') {
                return;
            }
            let removed = at("blob.prune", || {
                self.root.remove(parent, AtFlags::REMOVEDIR)
            });
            if removed.is_err() {
                return; // not empty: the usual end
            }
            rest = parent;
        }
    }
}

fn describe(version: Version, entry: Option<sidecar::Entry>) -> BlobInfo {
    let entry = entry.unwrap_or_default();
    let Version { time, len, inode } = version;
    BlobInfo {
        len,
        modified: Time(entry.modified.unwrap_or(time / 1_000_000)),
        etag: format!("{inode:x}-{time:x}-{len:x}-{:x}", entry.revision),
        md5: entry.md5,
        metadata: entry.metadata,
    }
}

/// The version of an open file; `None` when it is no plain file.
fn version(file: &File) -> io::Result<Option<Version>> {
    let meta = file.metadata()?;
    let seconds = u64::try_from(meta.mtime()).unwrap_or(0);
    let nanos = u64::try_from(meta.mtime_nsec()).unwrap_or(0);
    Ok(meta.is_file().then_some(Version {
        time: seconds * 1_000_000_000 + nanos,
        len: meta.len(),
        inode: meta.ino(),
    }))
}

/// What an error of the system means for a blob.
fn trouble(path: &BlobPath, error: io::Error) -> BlobError {
    use rustix::io::Errno;
    if is_full(&error) {
        return BlobError::Full(format!("blob {path}: {error}"));
    }
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    match code {
        // A link or another file system on the way: what lies beyond is no blob (O2).
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO) => {
            BlobError::NotFound(path.clone())
        }
        Some(Errno::NAMETOOLONG) => BlobError::BadName {
            path: path.to_string(),
            rule: "the file system takes no name as long as this",
        },
        _ => BlobError::Io(error),
    }
}

impl Blobs for Folder {
    fn write(&self, path: &BlobPath) -> Result<Box<dyn BlobWriter>, BlobError> {
        Ok(Box::new(Writer::new(self.0.clone(), path)?))
    }

    fn info(&self, path: &BlobPath) -> Result<BlobInfo, BlobError> {
        self.0.info(path)
    }

    fn read_at(&self, path: &BlobPath, offset: u64, buf: &mut [u8]) -> Result<usize, BlobError> {
        // A segment is read while it grows, span by span: its descriptor is at hand.
        if let Some(segment) = self.0.segments.known(path) {
            return Ok(segment.read_at(buf, offset)?);
        }
        let (file, version) = self.0.open(path, OFlags::RDONLY)?;
        if offset >= version.len {
            return Ok(0); // also offsets that the system would refuse
        }
        Ok(file.read_at(buf, offset)?)
    }

    fn read(&self, path: &BlobPath, limit: u64) -> Result<Vec<u8>, BlobError> {
        let (file, version) = self.0.open(path, OFlags::RDONLY)?;
        if version.len > limit {
            return Err(BlobError::Io(io::Error::other(format!(
                "blob {path} has {} bytes, at most {limit} are read at once",
                version.len
            ))));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(version.len).map_err(io::Error::other)?);
        file.take(version.len).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn set_metadata(
        &self,
        path: &BlobPath,
        metadata: BTreeMap<String, String>,
    ) -> Result<BlobInfo, BlobError> {
        let inner = &self.0;
        let _turn = inner.turn(path);
        let (_, version) = inner.open(path, OFlags::PATH)?;
        let old = inner
            .sidecars
            .get(&inner.root, path, version)?
            .unwrap_or_default();
        let entry = sidecar::Entry {
            revision: old.revision + 1,
            modified: Some(inner.stamp() / 1_000_000),
            md5: old.md5,
            metadata,
            ..sidecar::Entry::of(version)
        };
        inner.sidecars.put(inner, path, vec![entry.clone()])?;
        Ok(describe(version, Some(entry)))
    }

    fn delete(&self, path: &BlobPath) -> Result<(), BlobError> {
        let inner = &self.0;
        let _turn = inner.turn(path);
        inner.open(path, OFlags::PATH)?;
        inner.segments.forget(path);
        at("blob.unlink", || {
            inner.root.remove(path.as_str(), AtFlags::empty())
        })
        .map_err(|error| trouble(path, error))?;
        let (parent, _) = names::split(path);
        match at("blob.sync_folder", || inner.root.sync(parent)) {
            // Gone already, as empty, by somebody else's hand.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(|error| trouble(path, error))?,
        }
        inner.sidecars.remove(&inner.root, path)?;
        inner.prune(path);
        Ok(())
    }

    fn delete_folder(&self, path: &BlobPath) -> Result<(), BlobError> {
        let inner = &self.0;
        names::check_folder(path)?;
        inner.segments.forget_below(path);
        // It vanishes at once, and is then taken apart where nobody sees it.
        let name = inner.temporary_name();
        let (parent, base) = names::split(path);
        let moved = inner.root.folder(parent).and_then(|folder| {
            // Only a folder: a blob of this name stays.
            inner.root.folder(path.as_str())?;
            at("folder.rename", || {
                rustix::fs::renameat(&folder, base, &inner.temporary, name.as_str())?;
                Ok(())
            })?;
            at("folder.sync", || Ok(rustix::fs::fsync(&folder)?))
        });
        match moved.map_err(|error| trouble(path, error)) {
            Ok(()) => {}
            Err(BlobError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        removal::take_apart(inner, &name, path)?;
        inner.prune(path);
        Ok(())
    }

    fn list(
        &self,
        folder: &BlobPath,
        after: Option<&BlobPath>,
        limit: usize,
    ) -> Result<Vec<(BlobPath, BlobInfo)>, BlobError> {
        names::check_folder(folder)?;
        let mut page = Vec::new();
        if limit == 0 {
            return Ok(page);
        }
        walk::walk(&self.0.root, folder, after, &mut |path| {
            match self.0.info(&path) {
                Ok(info) => page.push((path, info)),
                Err(BlobError::NotFound(_)) => {} // gone meanwhile
                Err(error) => return Err(error),
            }
            Ok(page.len() < limit)
        })?;
        Ok(page)
    }

    fn walk(&self, folder: &BlobPath, take: &mut dyn FnMut(BlobPath)) -> Result<(), BlobError> {
        names::check_folder(folder)?;
        walk::walk(&self.0.root, folder, None, &mut |path| {
            take(path);
            Ok(true)
        })
    }

    fn append(&self, segment: &BlobPath, pieces: &[Arc<[u8]>]) -> Result<u64, BlobError> {
        self.0.segments.append(&self.0.root, segment, pieces)
    }

    /// Also of what is not there yet, so that a task can make it; not of what lies behind a link.
    fn local(&self, path: &BlobPath) -> Option<PathBuf> {
        names::check_folder(path).ok()?;
        match self.0.root.open(path.as_str(), OFlags::PATH, Mode::empty()) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
        Some(self.0.root.path().join(path.as_str()))
    }
}
