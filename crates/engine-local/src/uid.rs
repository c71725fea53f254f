//! User ids for jobs: one per node, taken from a range, never two nodes with one id, whatever servers run on the machine.
//!
//! V1 whoever holds the lock file of a uid owns every process of that uid;
//! V2 a uid is handed on only after everything of its last owner is dead.

use crate::proc;
use rustix::{fs::FlockOperation, process::Signal};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// First uid of the range: above what people get, below 60000, where distributions begin to reserve.
pub const FIRST: u32 = 52_000;
/// Uids in the range: more nodes than one machine can bring up.
pub const COUNT: u32 = 7_000;
/// How long the dead are waited for. A killed process needs microseconds; one in a system call of a slow disk needs longer.
const DEATH: Duration = Duration::from_secs(5);

/// A uid that is ours while this value lives.
#[derive(Debug)]
pub struct Claim {
    /// The uid, and the gid of the same number.
    pub uid: u32,
    _lock: File,
}

fn folder() -> io::Result<PathBuf> {
    let base = Path::new("/run");
    let base = if base.is_dir() {
        base.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let folder = base.join("zaffre-uids");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    // In a folder that all may write, somebody else may have made it first.
    let meta = fs::symlink_metadata(&folder)?;
    if !meta.is_dir() || meta.uid() != rustix::process::getuid().as_raw() {
        return Err(io::Error::other(format!(
            "{} belongs to somebody else",
            folder.display()
        )));
    }
    Ok(folder)
}

fn lock(uid: u32) -> io::Result<Option<File>> {
    let path = folder()?.join(uid.to_string());
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Whether the kernel maps the whole range here (a container may not).
pub fn mapped() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|text| {
        text.lines().any(|line| {
            let n: Vec<u64> = line
                .split_ascii_whitespace()
                .filter_map(|w| w.parse().ok())
                .collect();
            n.len() == 3 && n[0] <= u64::from(FIRST) && n[0] + n[2] >= u64::from(FIRST + COUNT)
        })
    })
}

/// Takes a free uid. `seed` spreads nodes over the range.
pub fn claim(seed: u32) -> io::Result<Claim> {
    for step in 0..COUNT {
        let uid = FIRST + (seed.wrapping_add(step)) % COUNT;
        if let Some(lock) = lock(uid)? {
            sweep(uid); // V2
            return Ok(Claim { uid, _lock: lock });
        }
    }
    Err(io::Error::other(format!(
        "no uid is free between {FIRST} and {}",
        FIRST + COUNT
    )))
}

/// Kills everything of a uid whose owner is gone. Does nothing when somebody else owns it by now: they have swept it.
pub fn clear(uid: u32) -> io::Result<()> {
    if let Some(_lock) = lock(uid)? {
        sweep(uid);
    }
    Ok(())
}

fn sweep(uid: u32) {
    let end = Instant::now() + DEATH;
    loop {
        let left = proc::of_uid(uid);
        if left.is_empty() || Instant::now() > end {
            return;
        }
        for pid in left {
            proc::kill(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(1)); // until the kernel has buried them
    }
}

/// Whether a user without any rights here could read `path`: every folder above it lets others through.
pub fn open_to_others(path: &Path) -> bool {
    let Ok(path) = fs::canonicalize(path) else {
        return false;
    };
    let Ok(meta) = fs::metadata(&path) else {
        return false;
    };
    let need = if meta.is_dir() { 0o1 } else { 0o4 };
    meta.mode() & need != 0 && first_closed(&path).is_none()
}

/// The first folder above `path` that lets no others through.
pub fn first_closed(path: &Path) -> Option<PathBuf> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    above
        .into_iter()
        .find(|p| fs::metadata(p).map_or(true, |m| m.mode() & 0o1 == 0))
        .map(Path::to_path_buf)
}
