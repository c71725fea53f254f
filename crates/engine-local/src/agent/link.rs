//! The connection to the server: comes and goes; nothing waits for it.
//!
//! N1 while the server is away the agent tries again for ever, soon at first, then twenty times a second;
//! N2 what could not be written yet stays in order; after a break it is dropped, because `Hello` tells everything again.

use crate::protocol::{Frames, MAX_FRAME};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Name of the server's socket in its folder.
pub const SOCKET: &str = "agents.sock";
/// Longest pause between two attempts: a restarted server waits for its agents before it says what there is.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Unwritten bytes above which the server counts as stuck and the connection is made anew.
const MAX_UNWRITTEN: usize = 4 * MAX_FRAME;

/// The agent's end.
pub struct Link {
    folder: PathBuf,
    stream: Option<UnixStream>,
    frames: Frames,
    out: Vec<u8>,
    sent: usize,
    pause: Duration,
    next_try: Instant,
}

/// The path of the socket, shortened through an open descriptor where it exceeds what an address can hold.
pub fn with_socket_path<T>(
    folder: &Path,
    act: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    /// `sun_path` of Linux, less one.
    const LONGEST: usize = 107;
    let path = folder.join(SOCKET);
    if path.as_os_str().len() <= LONGEST {
        return act(&path);
    }
    let open = File::open(folder)?;
    act(Path::new(&format!(
        "/proc/self/fd/{}/{SOCKET}",
        open.as_raw_fd()
    )))
}

impl Link {
    /// A link that has not been tried yet.
    pub fn new(folder: PathBuf) -> Link {
        Link {
            folder,
            stream: None,
            frames: Frames::default(),
            out: Vec::new(),
            sent: 0,
            pause: Duration::from_millis(1),
            next_try: Instant::now(),
        }
    }
    /// The open connection.
    pub fn stream(&self) -> Option<&UnixStream> {
        self.stream.as_ref()
    }
    /// When to try next; `None` while connected.
    pub fn next_try(&self) -> Option<Instant> {
        self.stream.is_none().then_some(self.next_try)
    }
    /// Tries to connect; `true` when the connection is new.
    pub fn connect(&mut self, now: Instant) -> bool {
        if self.stream.is_some() || now < self.next_try {
            return false;
        }
        let made = with_socket_path(&self.folder, |path| {
            let stream = UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        });
        match made {
            Ok(stream) => {
                self.stream = Some(stream);
                self.frames = Frames::default();
                self.out.clear();
                self.sent = 0;
                self.pause = Duration::from_millis(1);
                true
            }
            Err(_) => {
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                self.next_try = now + self.pause;
                false
            }
        }
    }
    /// Closes it (N2).
    pub fn close(&mut self, now: Instant) {
        self.stream = None;
        self.out.clear();
        self.sent = 0;
        self.next_try = now + self.pause;
    }
    /// Where frames are appended. Without a connection they go nowhere (N2).
    pub fn out(&mut self) -> Option<&mut Vec<u8>> {
        self.stream.is_some().then_some(&mut self.out)
    }
    /// Whether bytes wait to be written.
    pub fn unwritten(&self) -> bool {
        self.sent < self.out.len()
    }
    /// Writes what it can. An error means that the connection is over.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        while self.sent < self.out.len() {
            match stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.out.len() - self.sent > MAX_UNWRITTEN {
            return Err(io::Error::other("the server does not read"));
        }
        Ok(())
    }
    /// Reads what is there into the frames. An error means that the connection is over.
    pub fn fill(&mut self, buffer: &mut [u8]) -> io::Result<&mut Frames> {
        let Some(stream) = &mut self.stream else {
            return Ok(&mut self.frames);
        };
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => self.frames.push(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        Ok(&mut self.frames)
    }
}
