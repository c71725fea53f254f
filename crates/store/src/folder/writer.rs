//! A blob being written (O1, O3).

use model::BlobPath;
use port::{BlobError, BlobInfo, BlobWriter, FLEETING};
use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    ops::Range,
    sync::Arc,
};

use super::{Inner, TRIES, describe, names, sidecar::Entry, trouble, version};
use crate::failpoint::at;

/// Small writes are gathered; one of a file's usual read-ahead.
const BUFFER: usize = 64 << 10;
/// Tasks with a user of their own read their inputs in place.
const BLOB_MODE: Mode = Mode::from_raw_mode(0o644);

pub(super) struct Writer {
    inner: Arc<Inner>,
    path: BlobPath,
    /// In `.tmp`.
    name: String,
    /// Not synced (O3 of the port).
    fleeting: bool,
    file: BufWriter<Gate>,
}

/// The file, behind its point of failure.
struct Gate(File);
impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        at("blob.write", || self.0.write(bytes))
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Writer {
    pub(super) fn new(inner: Arc<Inner>, path: &BlobPath) -> Result<Self, BlobError> {
        names::check(path)?;
        let name = inner.temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = at("blob.create", || {
            Ok(rustix::fs::openat(
                &inner.temporary,
                name.as_str(),
                flags,
                mode,
            )?)
        })
        .map_err(|error| trouble(path, error))?;
        let fleeting = inner.remembers_boot && path.container() == FLEETING;
        Ok(Writer {
            inner,
            fleeting,
            path: path.clone(),
            name,
            file: BufWriter::with_capacity(BUFFER, Gate(File::from(file))),
        })
    }

    /// Everything on the disk under its hidden name, with a time of its own.
    fn settle(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let file = &self.file.get_ref().0;
        rustix::fs::fchmod(file, BLOB_MODE)?;
        let stamp = self.inner.stamp();
        let time = Timespec {
            tv_sec: i64::try_from(stamp / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(stamp % 1_000_000_000).unwrap_or(0),
        };
        rustix::fs::futimens(
            file,
            &Timestamps {
                last_access: time,
                last_modification: time,
            },
        )?;
        if self.fleeting {
            return Ok(());
        }
        at("blob.sync", || file.sync_all())
    }

    /// Gives it its name.
    fn publish(&self, create_only: bool) -> Result<(), BlobError> {
        let (parent, base) = names::split(&self.path);
        let flags = if create_only {
            RenameFlags::NOREPLACE
        } else {
            RenameFlags::empty()
        };
        for _ in 0..TRIES {
            let folder =
                self.inner.root.make_blob_folders(parent).map_err(|error| {
                    match error.raw_os_error().map(Errno::from_raw_os_error) {
                        Some(Errno::NOTDIR) => {
                            names::bad(&self.path, "a part of its path is a blob")
                        }
                        Some(Errno::LOOP | Errno::XDEV) => {
                            names::bad(&self.path, "a part of its path is a link")
                        }
                        _ => trouble(&self.path, error),
                    }
                })?;
            let renamed = at("blob.rename", || {
                let from = &self.inner.temporary;
                if create_only {
                    rename_new(from, self.name.as_str(), &folder, base, flags)?;
                } else {
                    rustix::fs::renameat(from, self.name.as_str(), &folder, base)?;
                }
                Ok(())
            });
            let Err(error) = renamed else {
                if self.fleeting {
                    return Ok(());
                }
                return at("blob.sync_folder", || Ok(rustix::fs::fsync(&folder)?))
                    .map_err(|error| trouble(&self.path, error));
            };
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                // The folder was removed as empty in this very moment.
                Some(Errno::NOENT) => {}
                Some(Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY) => {
                    match rustix::fs::unlinkat(&folder, base, AtFlags::REMOVEDIR) {
                        Ok(()) | Err(Errno::NOENT) => {} // an empty folder is nothing
                        Err(Errno::NOTDIR) => return Err(BlobError::Exists(self.path.clone())),
                        Err(_) => {
                            return Err(names::bad(
                                &self.path,
                                "a folder of this name holds other blobs",
                            ));
                        }
                    }
                }
                _ => return Err(trouble(&self.path, error)),
            }
        }
        Err(BlobError::Io(io::Error::other(format!(
            "blob {}: its folder is removed again and again",
            self.path
        ))))
    }
}

/// A rename that replaces nothing, also where the file system has none.
fn rename_new(
    from: &rustix::fd::OwnedFd,
    name: &str,
    to: &rustix::fd::OwnedFd,
    base: &str,
    flags: RenameFlags,
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, base, flags) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::linkat(from, name, to, base, AtFlags::empty())?;
            rustix::fs::unlinkat(from, name, AtFlags::empty())
        }
        other => other,
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl BlobWriter for Writer {
    fn add(&mut self, blob: &BlobPath, part: Range<u64>) -> Result<u64, BlobError> {
        let (mut from, version) = self.inner.open(blob, OFlags::RDONLY)?;
        let len = part.end.min(version.len).saturating_sub(part.start);
        if len == 0 {
            return Ok(0);
        }
        let copied = self.file.flush().and_then(|()| {
            from.seek(SeekFrom::Start(part.start))?;
            let mut to = &self.file.get_ref().0;
            // Inside the kernel, by `copy_file_range` where the file system has it.
            at("blob.write", || io::copy(&mut from.take(len), &mut to))
        });
        copied.map_err(|error| trouble(&self.path, error))
    }

    fn finish(
        mut self: Box<Self>,
        create_only: bool,
        md5: Option<String>,
        metadata: BTreeMap<String, String>,
    ) -> Result<BlobInfo, BlobError> {
        self.settle().map_err(|error| trouble(&self.path, error))?;
        let file = &self.file.get_ref().0;
        let Some(new) = version(file)? else {
            return Err(BlobError::NotFound(self.path.clone()));
        };
        let inner = &self.inner;
        let _turn = inner.turn(&self.path);
        let kept = (md5.is_some() || !metadata.is_empty()).then(|| Entry {
            md5,
            metadata,
            ..Entry::of(new)
        });
        if let Some(entry) = &kept {
            // Beside what is kept of the blob that is visible until the rename, and stays so if that fails.
            let mut entries = vec![entry.clone()];
            match inner.open(&self.path, OFlags::PATH) {
                Ok((_, old)) => {
                    entries.extend(inner.sidecars.get(&inner.root, &self.path, old)?);
                }
                Err(BlobError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            inner.sidecars.put(inner, &self.path, entries)?;
        }
        self.publish(create_only)?;
        inner.segments.forget(&self.path);
        if kept.is_none() {
            inner.sidecars.remove(&inner.root, &self.path)?;
        }
        Ok(describe(new, kept))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Gone already when it was given its name; a leftover is removed when the folder is opened.
        let _ = rustix::fs::unlinkat(&self.inner.temporary, self.name.as_str(), AtFlags::empty());
    }
}
