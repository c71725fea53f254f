//! A reserve of disk: commands are refused while less is free, so that what runs already can still finish and be recorded.

use std::{io, path::PathBuf};

use rustix::fs::statvfs;
use thiserror::Error;

/// Enough for the log and the rows of what is under way when the refusals begin: a WAL at its steady size (4 MiB) and its
/// checkpoint, plus some seconds of rows.
pub const RESERVE: u64 = 64 << 20;

/// Less is free than the reserve, or nobody knows how much is.
#[derive(Debug, Error)]
pub enum Short {
    /// Less is free.
    #[error("{} has {free} bytes free, {reserve} are kept in reserve", folder.display())]
    Below {
        /// A folder of the disk in question.
        folder: PathBuf,
        /// Bytes that we may still write.
        free: u64,
        /// Bytes that are kept.
        reserve: u64,
    },
    /// The system does not say.
    #[error("{}: the free space is unknown: {source}", folder.display())]
    Unknown {
        /// The folder.
        folder: PathBuf,
        /// As the system says.
        source: io::Error,
    },
}

/// Asks the disk each time; so it recovers by itself.
#[derive(Clone, Debug)]
pub struct Reserve {
    folder: PathBuf,
    bytes: u64,
}

impl Reserve {
    /// A reserve of `bytes` (usually `RESERVE`) on the disk of `folder`.
    pub fn new(folder: impl Into<PathBuf>, bytes: u64) -> Self {
        Reserve {
            folder: folder.into(),
            bytes,
        }
    }
    /// Whether more than the reserve is free. About a microsecond.
    pub fn check(&self) -> Result<(), Short> {
        let free = match statvfs(&self.folder) {
            Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
            Err(errno) => {
                return Err(Short::Unknown {
                    folder: self.folder.clone(),
                    source: errno.into(),
                });
            }
        };
        if free < self.bytes {
            return Err(Short::Below {
                folder: self.folder.clone(),
                free,
                reserve: self.bytes,
            });
        }
        Ok(())
    }
}

/// Whether an error of the system says that the disk, or a quota on it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| full.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_larger_than_the_disk_is_short_and_names_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        Reserve::new(dir.path(), 0).check().unwrap();
        let short = Reserve::new(dir.path(), u64::MAX).check().unwrap_err();
        let Short::Below { free, .. } = short else {
            panic!("the disk is there: {short}")
        };
        let text = short.to_string();
        assert!(text.contains(&free.to_string()) && text.contains(&u64::MAX.to_string()));
        let nowhere = Reserve::new(dir.path().join("no"), 0).check();
        assert!(matches!(nowhere, Err(Short::Unknown { .. })));
    }
}
