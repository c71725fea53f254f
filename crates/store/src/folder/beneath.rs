//! Paths below one folder, resolved without following any link (O2).
//!
//! Linux does it in one call (`openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`). Where there is no such call the
//! path is walked part by part, each opened with `O_NOFOLLOW` below the one before.

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use crate::failpoint::at;

/// Folders and blobs are open to all: tasks with a user of their own read their inputs in place.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

pub(super) struct Root {
    folder: OwnedFd,
    path: PathBuf,
}

impl Root {
    /// Opens the folder, makes it if there is none.
    pub(super) fn new(path: &Path) -> io::Result<Root> {
        match rustix::fs::mkdir(path, FOLDER_MODE) {
            Ok(()) => {
                if let Some(parent) = path.parent() {
                    at("folder.sync", || File::open(parent)?.sync_all())?;
                }
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        rustix::fs::fchmod(&folder, FOLDER_MODE)?;
        Ok(Root {
            folder,
            path: path.to_owned(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what lies at `path`. No link is followed, the last part included.
    pub(super) fn open(&self, path: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        Ok(beneath(&self.folder, path, flags | OFlags::CLOEXEC, mode)?)
    }

    /// Opens a folder for reading and for work in it.
    pub(super) fn folder(&self, path: &str) -> io::Result<OwnedFd> {
        self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    /// Opens a folder and makes what of it is missing, durably.
    pub(super) fn make_folders(&self, path: &str, mode: Mode) -> io::Result<OwnedFd> {
        match self.folder(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let mut folder = self.folder(".")?;
        for part in path.split('/') {
            let open = |folder: &OwnedFd| {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                beneath(folder, part, flags, Mode::empty())
            };
            let next = match open(&folder) {
                Err(Errno::NOENT) => {
                    at("folder.make", || {
                        match rustix::fs::mkdirat(&folder, part, mode) {
                            Ok(()) | Err(Errno::EXIST) => Ok(()),
                            Err(errno) => Err(io::Error::from(errno)),
                        }
                    })?;
                    let next = open(&folder)?;
                    rustix::fs::fchmod(&next, mode)?; // whatever the umask is
                    at("folder.sync", || Ok(rustix::fs::fsync(&folder)?))?;
                    next
                }
                other => other?,
            };
            folder = next;
        }
        Ok(folder)
    }

    /// Opens a folder of ours right below, made if need be. Not synced: what is in it is not for long.
    pub(super) fn scratch(&self, name: &str) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(&self.folder, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.folder(name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes the folders that blobs lie in.
    pub(super) fn make_blob_folders(&self, path: &str) -> io::Result<OwnedFd> {
        self.make_folders(path, FOLDER_MODE)
    }

    /// Removes one name.
    pub(super) fn remove(&self, path: &str, flags: AtFlags) -> io::Result<()> {
        let (parent, base) = path.rsplit_once('/').unwrap_or((".", path));
        Ok(rustix::fs::unlinkat(self.folder(parent)?, base, flags)?)
    }

    /// Makes the names in a folder durable.
    pub(super) fn sync(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.folder(path)?)?)
    }
}

#[cfg(target_os = "linux")]
fn beneath(folder: &OwnedFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    use std::sync::atomic::{AtomicBool, Ordering};
    /// Kernels before 5.6 and some sandboxes have no `openat2`.
    static MISSING: AtomicBool = AtomicBool::new(false);
    /// The call gives up when the tree changes under it.
    const TRIES: usize = 64;

    if MISSING.load(Ordering::Relaxed) {
        return part_by_part(folder, path, flags, mode);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match rustix::fs::openat2(folder, path, flags, mode, resolve) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => {
                MISSING.store(true, Ordering::Relaxed);
                return part_by_part(folder, path, flags, mode);
            }
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(not(target_os = "linux"))]
fn beneath(folder: &OwnedFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    part_by_part(folder, path, flags, mode)
}

fn part_by_part(folder: &OwnedFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let through = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut parts = path.split('/').peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        if part == ".." || part.is_empty() {
            return Err(Errno::XDEV);
        }
        let last = parts.peek().is_none();
        let (flags, mode) = if last {
            (flags | OFlags::NOFOLLOW, mode)
        } else {
            (through, Mode::empty())
        };
        let here = at.as_ref().unwrap_or(folder);
        let next = rustix::fs::openat(here, part, flags, mode)?;
        // `O_PATH | O_NOFOLLOW` opens the link itself.
        if last && flags.contains(OFlags::PATH) {
            let stat = rustix::fs::fstat(&next)?;
            if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink() {
                return Err(Errno::LOOP);
            }
        }
        at = Some(next);
    }
    at.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_way_of_opening_follows_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        let root = Root::new(&dir.path().join("root")).unwrap();
        root.make_blob_folders("c/in").unwrap();
        std::fs::write(root.path().join("c/in/plain"), "x").unwrap();
        symlink(outside.join("secret"), root.path().join("c/in/file")).unwrap();
        symlink(&outside, root.path().join("c/folder")).unwrap();
        symlink("in", root.path().join("c/inside")).unwrap();
        for open in [beneath, part_by_part] {
            for flags in [OFlags::RDONLY, OFlags::PATH] {
                let open = |path| open(&root.folder, path, flags | OFlags::CLOEXEC, Mode::empty());
                open("c/in/plain").unwrap();
                for path in [
                    "c/in/file",
                    "c/folder/secret",
                    "c/folder",
                    "c/inside/plain",
                    "../outside/secret",
                    "c/../../outside/secret",
                ] {
                    assert!(open(path).is_err(), "{path} was opened");
                }
            }
        }
    }
}
