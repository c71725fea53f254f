//! Every blob below a folder, in byte order of whole paths.
//!
//! A folder sorts as its name and a slash, so `a.txt` comes before `a/b`, and `a-b` before both. One folder of a million
//! names takes some 30 MB while it is walked: names lie in one piece of memory, not each in its own.

use model::BlobPath;
use port::BlobError;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use std::io;

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
        let entries = match root.folder(folder) {
            Ok(fd) => Dir::new(fd).map_err(io::Error::from),
            Err(error) => Err(error),
        };
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                return match trouble(&named()?, error) {
                    BlobError::NotFound(_) => Ok(frame), // no such folder, or gone meanwhile
                    other => Err(other),
                };
            }
        };
        let mut whole = prefix.to_owned();
        for entry in entries {
            let entry = entry.map_err(io::Error::from)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(name) = name.to_str() else {
                return Err(BlobError::BadName {
                    path: format!("{prefix}{}", name.to_string_lossy()),
                    rule: "a name on the disk is not UTF-8",
                });
            };
            whole.truncate(prefix.len());
            whole.push_str(name);
            let kind = match entry.file_type() {
                // Some file systems do not say.
                FileType::Unknown => match root.open(&whole, OFlags::PATH, Mode::empty()) {
                    Ok(fd) => FileType::from_raw_mode(
                        rustix::fs::fstat(fd).map_err(io::Error::from)?.st_mode,
                    ),
                    Err(_) => continue,
                },
                kind => kind,
            };
            match kind {
                FileType::RegularFile => {}
                FileType::Directory => whole.push('/'),
                _ => continue,
            }
            // A folder is passed over when all that may lie in it comes before `after`.
            let ahead =
                whole.as_str() > after || (whole.ends_with('/') && after.starts_with(&whole));
            if ahead {
                frame.push(&whole[prefix.len()..])?;
            }
        }
        let names = &frame.names;
        let text = |&(from, to): &(u32, u32)| &names[from as usize..to as usize];
        frame.order.sort_unstable_by(|a, b| text(a).cmp(text(b)));
        Ok(frame)
    }

    fn push(&mut self, name: &str) -> io::Result<()> {
        let from = u32::try_from(self.names.len());
        self.names.push_str(name);
        let to = u32::try_from(self.names.len());
        match (from, to) {
            (Ok(from), Ok(to)) => self.order.push((from, to)),
            _ => return Err(io::Error::other("a folder has more than 4 GiB of names")),
        }
        Ok(())
    }
}
