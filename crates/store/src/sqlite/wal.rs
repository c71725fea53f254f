//! What SQLite does not say of a WAL: whether it lost acknowledged transactions.
//!
//! On opening, SQLite takes the WAL up to the first frame whose checksum does not fit and drops the rest in silence. That is
//! right for a transaction that a power cut tore, which is the last one: with `synchronous=FULL` a commit is answered when
//! its frames are synced, and the next one is written after that. So damage with a later transaction behind it is damage to
//! something acknowledged, and the file is refused instead.
//!
//! A1 two commits of the present generation (same salts) at or behind the first bad frame: an acknowledged one is damaged;
//! A2 one or none is a torn end, which the caller must have overwritten by a new generation before more is written: what is
//!    left of a torn end would else be counted together with the next one.
//!
//! The limit: damage to the last transaction, or to the last two when the bit is one that says whose a frame is, cannot be
//! told from a torn write without a second synced place per turn, and shortens the log in silence.

use std::{fs, io, path::Path};

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// The magic number; its last bit says that checksums are computed over big-endian words.
const MAGIC: u32 = 0x377f_0682;

/// How a WAL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing of the present generation lies behind its last good frame.
    Clean,
    /// Something does: a torn write (A2).
    Torn,
    /// Acknowledged transactions lie behind a frame that is damaged (A1).
    Damaged {
        /// That frame, counted from 1; 0 is the file's header.
        frame: usize,
    },
}

/// How the WAL at `path` ends; a missing one ends cleanly. `page` is the page size of its database.
pub(super) fn end(path: &Path, page: usize) -> io::Result<End> {
    match fs::read(path) {
        Ok(bytes) => Ok(end_of(&bytes, page)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(End::Clean),
        Err(error) => Err(error),
    }
}

fn end_of(wal: &[u8], page: usize) -> End {
    let Some((header, frames)) = wal.split_at_checked(HEADER) else {
        return End::Clean; // SQLite begins anew
    };
    let frames: Vec<Frame<'_>> = frames
        .chunks_exact(FRAME_HEADER + page)
        .map(Frame)
        .collect();
    let big = word(header, 0) & 1 == 1;
    let mut sums = sum(big, (0, 0), &header[..24]);
    if word(header, 0) & !1 != MAGIC || sums != (word(header, 24), word(header, 28)) {
        // The header is one write of 32 bytes and synced before its frames: with two commits behind it, it was whole once.
        let twice =
            |f: &&Frame<'_>| f.commits() && f.salts() != (0, 0) && commits(&frames, f.salts()) >= 2;
        return match frames.iter().find(twice) {
            Some(_) => End::Damaged { frame: 0 },
            None => End::Torn,
        };
    }
    let salts = (word(header, 16), word(header, 20));
    let good = |f: &&Frame<'_>| {
        sums = sum(big, sum(big, sums, &f.0[..8]), &f.0[FRAME_HEADER..]);
        f.salts() == salts && sums == (word(f.0, 16), word(f.0, 20))
    };
    let first = frames.iter().take_while(good).count();
    let behind = &frames[first..];
    match commits(behind, salts) {
        0 if behind.iter().all(|f| f.salts() != salts) => End::Clean,
        0 | 1 => End::Torn,
        _ => End::Damaged { frame: first + 1 },
    }
}

fn commits(frames: &[Frame<'_>], salts: (u32, u32)) -> usize {
    let ours = |f: &&Frame<'_>| f.commits() && f.salts() == salts;
    frames.iter().filter(ours).count()
}

struct Frame<'a>(&'a [u8]);

impl Frame<'_> {
    /// The last of a transaction carries the size of the database.
    fn commits(&self) -> bool {
        word(self.0, 4) != 0
    }
    fn salts(&self) -> (u32, u32) {
        (word(self.0, 8), word(self.0, 12))
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// SQLite's running checksum.
fn sum(big: bool, (mut a, mut b): (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let read = |w: &[u8]| {
        let w = [w[0], w[1], w[2], w[3]];
        if big {
            u32::from_be_bytes(w)
        } else {
            u32::from_le_bytes(w)
        }
    };
    for pair in bytes.chunks_exact(8) {
        a = a.wrapping_add(read(&pair[..4])).wrapping_add(b);
        b = b.wrapping_add(read(&pair[4..])).wrapping_add(a);
    }
    (a, b)
}
