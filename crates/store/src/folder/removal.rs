//! Folders taken apart, however deep user code has made them: a folder within is first moved up, so neither the stack
//! nor the number of open descriptors grows with the depth.

use model::BlobPath;
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::{CStr, CString},
    io,
};

use super::{Inner, beneath::Root};
use crate::failpoint::at;

/// Removes everything in a folder of ours that nobody else uses. No such folder is fine.
pub(super) fn empty(root: &Root, folder: &str) -> io::Result<()> {
    let holder = match root.folder(folder) {
        Ok(holder) => holder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // What was being removed may hold folders, and what is in those may be moved up beside them: once more each time.
    let mut round = 0_u64;
    loop {
        let mut folders = Vec::new();
        for (name, kind) in names(&holder)? {
            match kind {
                FileType::Directory => folders.push(Work { name, path: None }),
                _ => remove(&holder, &name, AtFlags::empty())?,
            }
        }
        if folders.is_empty() {
            return Ok(());
        }
        round += 1;
        let mut count = 0_u64;
        let mut fresh = || {
            count += 1;
            format!("apart-{}-{round}-{count}", std::process::id())
        };
        apart(&holder, folders, &mut fresh, &mut |_| Ok(()))?;
    }
}

/// Removes `.tmp/name`, which was `path`, with all that is kept of the blobs in it.
pub(super) fn take_apart(inner: &Inner, name: &str, path: &BlobPath) -> io::Result<()> {
    let first = Work {
        name: CString::new(name)?,
        path: Some(path.to_string()),
    };
    let mut fresh = || inner.temporary_name();
    apart(&inner.temporary, vec![first], &mut fresh, &mut |blob| {
        BlobPath::new(blob).map_or(Ok(()), |blob| inner.sidecars.remove(&inner.root, &blob))
    })
}

/// A folder to be removed.
struct Work {
    name: CString,
    /// The path it had, when it held blobs.
    path: Option<String>,
}

fn apart(
    holder: &OwnedFd,
    mut work: Vec<Work>,
    fresh: &mut dyn FnMut() -> String,
    gone: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    while let Some(Work { name, path }) = work.pop() {
        let folder = open(holder, &name)?;
        for (inside, kind) in names(&folder)? {
            let path = match (&path, inside.to_str()) {
                (Some(path), Ok(inside)) => Some(format!("{path}/{inside}")),
                _ => None, // no blob has such a name
            };
            if kind == FileType::Directory {
                let up = CString::new(fresh())?;
                at("folder.rename", || {
                    let moved = rustix::fs::renameat(&folder, &inside, holder, &up);
                    Ok(moved?)
                })?;
                work.push(Work { name: up, path });
            } else {
                remove(&folder, &inside, AtFlags::empty())?;
                if let Some(path) = path {
                    gone(&path)?;
                }
            }
        }
        remove(holder, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Opens a folder to be emptied; user code may have locked itself out of it.
fn open(holder: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(holder, name, flags, Mode::empty());
    let folder = match open() {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(holder, name, Mode::RWXU, AtFlags::empty())?;
            open()?
        }
        other => other?,
    };
    if let Err(errno) = rustix::fs::fchmod(&folder, Mode::RWXU) {
        tracing::debug!(%errno, "a folder to be removed keeps its mode");
    }
    Ok(folder)
}

fn names(folder: &OwnedFd) -> io::Result<Vec<(CString, FileType)>> {
    let mut all = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say.
            FileType::Unknown => {
                let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            kind => kind,
        };
        all.push((name.to_owned(), kind));
    }
    Ok(all)
}

fn remove(folder: &OwnedFd, name: &CStr, flags: AtFlags) -> io::Result<()> {
    at("folder.unlink", || {
        Ok(rustix::fs::unlinkat(folder, name, flags)?)
    })
}
