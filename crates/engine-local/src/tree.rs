//! Copying folders that users have written: nothing is followed out of them, nothing half-copied is ever seen.
//!
//! R1 links are not followed, neither as the last part of a path nor on the way: every folder is opened from its parent;
//! R2 only regular files and folders are copied; a FIFO, a device or a socket is skipped and counted, never opened;
//! R3 a file appears under its name when it is whole: it is written beside and renamed.

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fchown, fstat, openat, statat},
    io::Errno,
    process::{Gid, Uid},
};
use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    path::{Path, PathBuf},
};

/// Folders inside folders. Deeper ones are refused, so that a tree cannot exhaust the stack.
pub const MAX_DEPTH: u32 = 128;
/// Files of one tree that are copied; more are refused by name.
pub const MAX_FILES: u64 = 1_000_000;

/// What a file looked like when it was last copied: (size, seconds and nanoseconds of its last change).
pub type Seen = HashMap<PathBuf, (u64, i64, i64)>;

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files written.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Links, FIFOs, devices and sockets passed over.
    pub skipped: u64,
}

/// How to copy.
pub struct Copy<'a> {
    /// Who owns the copies; `None` leaves them to us.
    pub owner: Option<u32>,
    /// A folder of the same file system where files are written before they are renamed into place; `None`: at their place,
    /// for targets that nobody looks at yet.
    pub scratch: Option<&'a Path>,
    /// Files that look as they did last time are passed over.
    pub seen: Option<&'a mut Seen>,
    /// Permission bits of files: an executable one keeps its right to be executed.
    pub private: bool,
}

impl Copy<'_> {
    /// Copies everything below `from` into `to` (made when missing). A `from` that is not there is an empty one.
    pub fn folder(&mut self, from: &Path, to: &Path) -> io::Result<Copied> {
        let mut out = Copied::default();
        match open_dir(CWD, from.as_os_str()) {
            Ok(fd) => self.level(fd, to, 0, &mut out)?,
            Err(Errno::NOENT) => {}
            // A link or a file where a folder was expected (R1).
            Err(Errno::NOTDIR | Errno::LOOP) => out.skipped = 1,
            Err(e) => return Err(named(e, from)),
        }
        Ok(out)
    }

    /// Copies one regular file.
    pub fn file(&mut self, from: &Path, to: &Path) -> io::Result<Copied> {
        let mut out = Copied::default();
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        self.one(CWD.as_fd(), from.as_os_str(), to, &mut out)?;
        Ok(out)
    }

    fn level(
        &mut self,
        folder: OwnedFd,
        to: &Path,
        depth: u32,
        out: &mut Copied,
    ) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other(format!(
                "{} lies deeper than {MAX_DEPTH} folders",
                to.display()
            )));
        }
        fs::create_dir_all(to)?;
        if self.owner.is_some() {
            fchown(File::open(to)?, self.uid(), self.gid())?;
        }
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(Errno::NOENT) => continue,
                    Err(e) => return Err(named(e, &to.join(name))),
                },
                known => known,
            };
            let target = to.join(name);
            match kind {
                FileType::Directory => match open_dir(folder.as_fd(), name) {
                    Ok(fd) => self.level(fd, &target, depth + 1, out)?,
                    // Gone or replaced by a link since it was listed (R1).
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => out.skipped += 1,
                    Err(e) => return Err(named(e, &target)),
                },
                FileType::RegularFile => self.one(folder.as_fd(), name, &target, out)?,
                _ => out.skipped += 1,
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        folder: std::os::fd::BorrowedFd<'_>,
        name: &OsStr,
        to: &Path,
        out: &mut Copied,
    ) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match openat(folder, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => {
                out.skipped += 1;
                return Ok(());
            }
            Err(e) => return Err(named(e, to)),
        };
        let stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            out.skipped += 1; // R2
            return Ok(());
        }
        let look = look(&stat);
        if let Some(seen) = &self.seen
            && seen.get(to) == Some(&look)
        {
            return Ok(());
        }
        if out.files >= MAX_FILES {
            return Err(io::Error::other(format!(
                "more than {MAX_FILES} files in one folder tree"
            )));
        }
        let executable = stat.st_mode & 0o100 != 0;
        let bytes = self.write(File::from(fd), to, executable)?;
        out.files += 1;
        out.bytes += bytes;
        if let Some(seen) = &mut self.seen {
            seen.insert(to.to_path_buf(), look);
        }
        Ok(())
    }

    fn write(&self, mut from: File, to: &Path, executable: bool) -> io::Result<u64> {
        let mode = match (self.private, executable) {
            (true, true) => 0o700,
            (true, false) => 0o600,
            (false, true) => 0o755,
            (false, false) => 0o644,
        };
        let (at, scratch) = match self.scratch {
            Some(folder) => {
                fs::create_dir_all(folder)?;
                let name = format!("{}-{}", std::process::id(), unique());
                (folder.join(name), true)
            }
            None => (to.to_path_buf(), false),
        };
        let put = || -> io::Result<u64> {
            let _ = fs::remove_file(&at); // never through a link that is there already
            let mut file = File::options().write(true).create_new(true).open(&at)?;
            let bytes = io::copy(&mut from, &mut file)?;
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            if self.owner.is_some() {
                fchown(&file, self.uid(), self.gid())?;
            }
            if scratch {
                file.sync_all()?;
                place(&at, to)?;
            }
            Ok(bytes)
        };
        let mut put = put;
        put().map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", to.display())))
    }

    fn uid(&self) -> Option<Uid> {
        self.owner.map(Uid::from_raw)
    }
    fn gid(&self) -> Option<Gid> {
        self.owner.map(Gid::from_raw)
    }
}

/// Renames into place, or copies beside the target first when it lies on another file system.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            let beside = to.with_file_name(format!(".zaffre-{}-{}", std::process::id(), unique()));
            fs::copy(from, &beside)?;
            fs::rename(&beside, to)?;
            fs::remove_file(from)
        }
        other => other,
    }
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn open_dir<Fd: AsFd>(at: Fd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

fn look(stat: &Stat) -> (u64, i64, i64) {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    (size, stat.st_mtime, nanoseconds)
}

fn named(e: Errno, path: &Path) -> io::Error {
    let e = io::Error::from(e);
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn scratch(name: &str) -> PathBuf {
        let at = std::env::temp_dir().join(format!("zaffre-tree-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&at);
        fs::create_dir_all(&at).unwrap();
        at
    }

    #[test]
    fn links_and_pipes_stay_behind_and_names_stay_what_they_are() {
        let top = scratch("odd");
        let (from, to) = (top.join("from"), top.join("to"));
        fs::create_dir_all(from.join("下/.hidden")).unwrap();
        fs::write(from.join("下/.hidden/a\n\"b"), "x").unwrap();
        fs::write(from.join(OsStr::from_bytes(b"\xff\xfe")), "y").unwrap();
        fs::create_dir(from.join("empty")).unwrap();
        symlink("/etc/passwd", from.join("link")).unwrap();
        symlink("/etc", from.join("linked folder")).unwrap();
        symlink(".", from.join("loop")).unwrap();
        rustix::fs::mkfifoat(CWD, from.join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        let mut copy = Copy {
            owner: None,
            scratch: None,
            seen: None,
            private: false,
        };
        let done = copy.folder(&from, &to).unwrap();
        assert_eq!(
            done,
            Copied {
                files: 2,
                bytes: 2,
                skipped: 4
            }
        );
        assert_eq!(fs::read(to.join("下/.hidden/a\n\"b")).unwrap(), b"x");
        assert!(to.join("empty").is_dir());
        assert!(!to.join("link").exists());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_second_sync_copies_only_what_changed() {
        let top = scratch("sync");
        let (from, to) = (top.join("from"), top.join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("a"), "1").unwrap();
        fs::write(from.join("b"), "1").unwrap();
        let mut seen = Seen::new();
        let beside = top.join("scratch");
        let sync = |seen: &mut Seen| {
            Copy {
                owner: None,
                scratch: Some(&beside),
                seen: Some(seen),
                private: false,
            }
            .folder(&from, &to)
            .unwrap()
            .files
        };
        assert_eq!(sync(&mut seen), 2);
        assert_eq!(sync(&mut seen), 0);
        fs::write(from.join("b"), "22").unwrap();
        assert_eq!(sync(&mut seen), 1);
        assert_eq!(fs::read(to.join("b")).unwrap(), b"22");
        assert_eq!(fs::read_dir(&beside).unwrap().count(), 0);
        fs::remove_dir_all(top).unwrap();
    }
}
