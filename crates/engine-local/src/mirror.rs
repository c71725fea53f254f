//! Files of a task whose agent is on another machine: brought there before it starts, and what it writes brought back.
//!
//! The agent works on a mirror: a folder in which blobs lie under their paths, as they do in the server's own. A connection
//! of its own carries the files, so that a large one never delays a message.
//!
//! M1 a node reads and writes exactly what the plans of its tasks name, and from the moment its task is over nothing;
//! M2 a file is whole in the server's folder or not there; a log grows from its front, whatever is sent twice;
//! M3 no link is followed, on either side.

mod bring;
mod serve;

pub use bring::{Fetcher, Mirror, Pusher};
pub use serve::Grants;

use serde::{Deserialize, Serialize};
use std::{
    io::{self, Read, Write},
    path::PathBuf,
};

/// Name of the socket for files in the folder of an agent that is elsewhere.
pub const SOCKET: &str = "files.sock";
/// Bytes of a file that are sent at once.
const PART: usize = 256 << 10;
/// Longest frame: a part, or a message with the longest path.
const MAX_FRAME: usize = 1 << 20;

/// What is to be mirrored for a task. Paths are blobs (`container/path`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Folder of the mirror on the agent's machine.
    pub root: PathBuf,
    /// Brought before the task starts. What is not there is nothing.
    pub fetch: Vec<String>,
    /// May be brought while it runs: files below these.
    pub later: Vec<String>,
    /// Brought back when it has changed.
    pub push: Vec<String>,
    /// Packages for its Python, as lines for pip.
    pub requirements: Vec<String>,
}

/// From the agent.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    /// Send this blob, or everything below it.
    Fetch(String),
    /// The bytes that follow belong into this file, from this place on.
    Append(String, u64),
    /// The bytes that follow, up to `Commit`, are this file.
    Put(String, Mode),
    /// The file is whole.
    Commit,
}

/// From the server.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The bytes that follow, up to the next message, are this file.
    File(String, Mode),
    /// That was all.
    End,
    /// It is done.
    Done,
    /// The file ends here: what lies before the bytes that were sent is missing.
    Len(u64),
    /// It is not allowed, or cannot be.
    Refused(String),
}

/// Whether a file may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Mode {
    Plain,
    Executable,
}

impl Mode {
    fn of(meta: &std::fs::Metadata) -> Mode {
        use std::os::unix::fs::PermissionsExt;
        if meta.permissions().mode() & 0o100 == 0 {
            Mode::Plain
        } else {
            Mode::Executable
        }
    }
    fn bits(self) -> u32 {
        match self {
            Mode::Plain => 0o644,
            Mode::Executable => 0o755,
        }
    }
}

/// A frame as read.
enum Frame<T> {
    Message(T),
    Bytes(Vec<u8>),
}

const MESSAGE: u8 = 0;
const BYTES: u8 = 1;

fn send(out: &mut impl Write, kind: u8, body: &[u8]) -> io::Result<()> {
    let len = u32::try_from(body.len() + 1).map_err(io::Error::other)?;
    out.write_all(&len.to_le_bytes())?;
    out.write_all(&[kind])?;
    out.write_all(body)
}

fn say<T: Serialize>(out: &mut impl Write, message: &T) -> io::Result<()> {
    let body = postcard::to_allocvec(message).map_err(io::Error::other)?;
    send(out, MESSAGE, &body)
}

/// The next frame; `None` at the end of the connection.
fn hear<T: for<'a> Deserialize<'a>>(from: &mut impl Read) -> io::Result<Option<Frame<T>>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u32::from_le_bytes(len) as usize;
    if len == 0 || len > MAX_FRAME {
        return Err(io::Error::other(format!("a frame of {len} bytes")));
    }
    let mut body = vec![0; len];
    from.read_exact(&mut body)?;
    let kind = body.remove(0);
    Ok(Some(match kind {
        MESSAGE => Frame::Message(postcard::from_bytes(&body).map_err(io::Error::other)?),
        BYTES => Frame::Bytes(body),
        other => return Err(io::Error::other(format!("a frame of kind {other}"))),
    }))
}

#[cfg(test)]
mod tests;
