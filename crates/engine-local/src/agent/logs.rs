//! What user code prints: from a pipe into a file, up to a limit.
//!
//! G1 whoever prints is never blocked for long and never killed for it: what is above the limit is read and dropped;
//! G2 a log that was cut says so in its last line.

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use std::{
    fs::{self, File},
    io::{self, PipeReader, Write},
    path::PathBuf,
};

/// Bytes of one log file over all attempts. A terminal-sized log is kilobytes; a progress bar of a day some megabytes.
pub const LOG_CAP: u64 = 64 << 20;
/// Bytes taken from one pipe before others get their turn.
const TURN: usize = 16 * 65536;

/// A log file that is made when the first byte comes.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: Option<File>,
    written: u64,
    cut: bool,
}

impl LogFile {
    /// A log at `path`; what is there already stays and counts.
    pub fn new(path: PathBuf) -> LogFile {
        LogFile {
            path,
            file: None,
            written: 0,
            cut: false,
        }
    }

    /// Adds bytes. A disk that does not take them costs the log, not the task.
    pub fn write(&mut self, bytes: &[u8]) {
        if self.cut || bytes.is_empty() {
            return;
        }
        if let Err(e) = self.try_write(bytes) {
            tracing::warn!("log {}: {e}", self.path.display());
            self.cut = true;
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            if let Some(parent) = self.path.parent() {
                fs::create_dir_all(parent)?;
            }
            let file = File::options().create(true).append(true).open(&self.path)?;
            self.written = file.metadata()?.len();
            self.file = Some(file);
            if self.written > LOG_CAP {
                self.cut = true; // by an earlier attempt, which said so
                return Ok(());
            }
        }
        let file = self.file.as_mut().expect("opened above");
        let room = usize::try_from(LOG_CAP - self.written).unwrap_or(usize::MAX);
        let part = &bytes[..bytes.len().min(room)];
        file.write_all(part)?;
        self.written += part.len() as u64;
        if part.len() < bytes.len() {
            self.cut = true;
            file.write_all(
                format!("\n[zaffre] this log has reached its limit of {LOG_CAP} bytes, the rest is dropped\n")
                    .as_bytes(),
            )?;
        }
        Ok(())
    }
}

/// One pipe and the file it goes to.
#[derive(Debug)]
pub struct Pump {
    /// The end that we read.
    pub pipe: PipeReader,
    log: LogFile,
}

impl Pump {
    /// Reads from `pipe` without ever waiting for it.
    pub fn new(pipe: PipeReader, log: LogFile) -> io::Result<Pump> {
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Pump { pipe, log })
    }

    /// Takes what is there; `false` when nobody can write any more.
    pub fn take(&mut self, buffer: &mut [u8]) -> bool {
        let mut taken = 0;
        while taken < TURN {
            match rustix::io::read(&self.pipe, &mut *buffer) {
                Ok(0) => return false,
                Ok(n) => {
                    self.log.write(&buffer[..n]);
                    taken += n;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes all that is there, when everything that could write is dead. A stray that still writes is not waited for.
    pub fn drain(&mut self, buffer: &mut [u8]) {
        for _ in 0..64 {
            let before = self.log.written;
            if !self.take(buffer) || self.log.written == before {
                return;
            }
        }
    }

    /// The log itself, for lines of ours.
    pub fn log(&mut self) -> &mut LogFile {
        &mut self.log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_ends_at_its_limit_and_says_so() {
        let at = std::env::temp_dir().join(format!("zaffre-log-{}", std::process::id()));
        let _ = fs::remove_file(&at);
        let mut log = LogFile::new(at.clone());
        let block = vec![b'x'; 1 << 20];
        for _ in 0..65 {
            log.write(&block);
        }
        let text = fs::read(&at).unwrap();
        assert!(text.len() > 64 << 20 && text.len() < (64 << 20) + 200);
        assert!(text.ends_with(b"the rest is dropped\n"));
        LogFile::new(at.clone()).write(b"again");
        assert_eq!(fs::metadata(&at).unwrap().len(), text.len() as u64);
        fs::remove_file(at).unwrap();
    }
}
