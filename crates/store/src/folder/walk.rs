//! Every blob below a folder, in byte order of whole paths.
//!
//! A folder sorts as its name and a slash, so `a.txt` comes before `a/b`, and `a-b` before both. One folder of a million
//! names takes some 30 MB while it is walked: names lie in one piece of memory, not each in its own.

use model::BlobPath;
use port::BlobError;
use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags},
};
use std::{ffi::CStr, io};

use super::{beneath::Root, trouble};

/// The names of one folder that are still to be visited.
struct Frame {
    /// Length of the path of this folder, slash included.
    prefix: usize,
    names: String,
    /// Where each name lies, in order; a folder's name ends with a slash.
    order: Vec<(u32, u32)>,
    next: usize,
}

/// Calls `take` with every blob after `after` until it says `false`.
pub(super) fn walk(
    root: &Root,
    folder: &BlobPath,
    after: Option<&BlobPath>,
    take: &mut dyn FnMut(BlobPath) -> Result<bool, BlobError>,
) -> Result<(), BlobError> {
    let after = after.map_or("", BlobPath::as_str);
    let mut path = format!("{folder}/");
    let mut frames = vec![Frame::read(root, &path, after)?];
    while let Some(frame) = frames.last_mut() {
        let Some(&(from, to)) = frame.order.get(frame.next) else {
            frames.pop();
            continue;
        };
        frame.next += 1;
        path.truncate(frame.prefix);
        path.push_str(&frame.names[from as usize..to as usize]);
        if path.ends_with('/') {
            let below = Frame::read(root, &path, after)?;
            frames.push(below);
        } else if let Some(blob) = BlobPath::new(&path)
            && !take(blob)?
        {
            return Ok(());
        }
    }
    Ok(())
}

impl Frame {
    fn read(root: &Root, prefix: &str, after: &str) -> Result<Frame, BlobError> {
        let mut frame = Frame {
            prefix: prefix.len(),
            names: String::new(),
            order: Vec::new(),
            next: 0,
        };
        let folder = prefix.trim_end_matches('/');
        let named = || BlobPath::new(folder).ok_or_else(|| io::Error::other(folder.to_owned()));
        let opened = match root.folder(folder) {
            Ok(opened) => opened,
            Err(error) => {
                return match trouble(&named()?, error) {
                    BlobError::NotFound(_) => Ok(frame), // no such folder, or gone meanwhile
                    other => Err(other),
                };
            }
        };
        entries(opened, &mut |name, kind| {
            frame.add(root, prefix, after, name, kind)
        })?;
        let names = &frame.names;
        let text = |&(from, to): &(u32, u32)| &names[from as usize..to as usize];
        frame.order.sort_unstable_by(|a, b| text(a).cmp(text(b)));
        Ok(frame)
    }

    fn add(
        &mut self,
        root: &Root,
        prefix: &str,
        after: &str,
        name: &CStr,
        kind: FileType,
    ) -> Result<(), BlobError> {
        if matches!(name.to_bytes(), b"." | b"..") {
            return Ok(());
        }
        let Ok(name) = name.to_str() else {
            return Err(BlobError::BadName {
                path: format!("{prefix}{}", name.to_string_lossy()),
                rule: "a name on the disk is not UTF-8",
            });
        };
        let kind = match kind {
            FileType::Unknown => kind_of(root, &format!("{prefix}{name}"))?,
            kind => kind,
        };
        let end = match kind {
            FileType::RegularFile => "",
            FileType::Directory => "/",
            _ => return Ok(()),
        };
        if !after.is_empty() {
            let whole = format!("{prefix}{name}{end}");
            // A folder is passed over when all that may lie in it comes before `after`.
            if whole.as_str() <= after && (end.is_empty() || !after.starts_with(&whole)) {
                return Ok(());
            }
        }
        let from = u32::try_from(self.names.len());
        self.names.push_str(name);
        self.names.push_str(end);
        let to = u32::try_from(self.names.len());
        match (from, to) {
            (Ok(from), Ok(to)) => self.order.push((from, to)),
            _ => return Err(io::Error::other("a folder has more than 4 GiB of names").into()),
        }
        Ok(())
    }
}

/// For file systems that do not say it with the name. Gone meanwhile, or a link: nothing that counts.
fn kind_of(root: &Root, path: &str) -> io::Result<FileType> {
    match root.open(path, OFlags::PATH, Mode::empty()) {
        Ok(fd) => Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode)),
        Err(_) => Ok(FileType::Unknown),
    }
}

/// Hands over every entry of a folder, without a piece of memory for each.
#[cfg(target_os = "linux")]
fn entries(
    folder: OwnedFd,
    take: &mut dyn FnMut(&CStr, FileType) -> Result<(), BlobError>,
) -> Result<(), BlobError> {
    /// Some hundred names per call of the system.
    const BUFFER: usize = 32 << 10;
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut entries = rustix::fs::RawDir::new(folder, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(io::Error::from)?;
        take(entry.file_name(), entry.file_type())?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn entries(
    folder: OwnedFd,
    take: &mut dyn FnMut(&CStr, FileType) -> Result<(), BlobError>,
) -> Result<(), BlobError> {
    for entry in rustix::fs::Dir::new(folder).map_err(io::Error::from)? {
        let entry = entry.map_err(io::Error::from)?;
        take(entry.file_name(), entry.file_type())?;
    }
    Ok(())
}
