//! The listing of a batch input: every path once, in order, readable at any index without reading the rest.
//!
//! Layout, little-endian: 8 bytes `ZLIST01\n`; the paths, raw bytes without separators; `count + 1` offsets (u64) into the
//! file, path `i` is `offset[i]..offset[i + 1]`; count (u64); position of the first offset (u64); 8 bytes `ZLIST01\n`.
//! The numbers stand at the end so that a listing is written in one pass. `runtime/batch.py` reads the same layout.
//!
//! L1 paths are relative to the input's folder and keep the bytes of the file's name;
//! L2 the order is byte order, so that equal inputs have equal listings.

use std::io::{self, Read, Seek, SeekFrom, Write};

/// First and last bytes of a listing.
pub const MAGIC: [u8; 8] = *b"ZLIST01\n";
const FOOTER: u64 = 24;

/// Writes a listing in one pass; holds eight bytes per path.
pub struct Writer<W> {
    to: W,
    offsets: Vec<u64>,
    at: u64,
}

impl<W: Write> Writer<W> {
    /// A listing into `to`.
    pub fn new(mut to: W) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        let at = MAGIC.len() as u64;
        Ok(Writer {
            to,
            offsets: vec![at],
            at,
        })
    }
    /// The next path (L1, L2).
    pub fn push(&mut self, path: &[u8]) -> io::Result<()> {
        self.to.write_all(path)?;
        self.at += path.len() as u64;
        self.offsets.push(self.at);
        Ok(())
    }
    /// Writes the offsets; returns the number of paths and what was written to.
    pub fn finish(mut self) -> io::Result<(u64, W)> {
        let mut block = Vec::with_capacity(8 * 1024);
        for chunk in self.offsets.chunks(1024) {
            block.clear();
            for offset in chunk {
                block.extend_from_slice(&offset.to_le_bytes());
            }
            self.to.write_all(&block)?;
        }
        let count = self.offsets.len() as u64 - 1;
        self.to.write_all(&count.to_le_bytes())?;
        self.to.write_all(&self.at.to_le_bytes())?;
        self.to.write_all(&MAGIC)?;
        Ok((count, self.to))
    }
}

/// Reads single paths of a listing.
pub struct Reader<R> {
    from: R,
    count: u64,
    table: u64,
}

impl<R: Read + Seek> Reader<R> {
    /// Checks both ends of the listing.
    pub fn new(mut from: R) -> io::Result<Self> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "this is not a listing");
        let mut magic = [0; 8];
        from.seek(SeekFrom::Start(0))?;
        from.read_exact(&mut magic)?;
        let size = from.seek(SeekFrom::End(0))?;
        if magic != MAGIC || size < FOOTER {
            return Err(damaged());
        }
        let mut footer = [0; 24];
        from.seek(SeekFrom::Start(size - FOOTER))?;
        from.read_exact(&mut footer)?;
        let (count, table) = (word(&footer, 0), word(&footer, 8));
        let whole = count
            .checked_add(1)
            .and_then(|n| n.checked_mul(8))
            .and_then(|n| n.checked_add(table))
            .and_then(|n| n.checked_add(FOOTER));
        if footer[16..] != MAGIC || whole != Some(size) {
            return Err(damaged());
        }
        Ok(Reader { from, count, table })
    }
    /// Number of paths.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// The bytes of path `index`.
    pub fn path(&mut self, index: u64) -> io::Result<Vec<u8>> {
        if index >= self.count {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("path {index} of {} asked for", self.count),
            ));
        }
        let mut pair = [0; 16];
        self.from.seek(SeekFrom::Start(self.table + 8 * index))?;
        self.from.read_exact(&mut pair)?;
        let (start, end) = (word(&pair, 0), word(&pair, 8));
        let len = end
            .checked_sub(start)
            .filter(|_| end <= self.table)
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the listing's offsets are damaged",
                )
            })?;
        let mut path = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.from.seek(SeekFrom::Start(start))?;
        self.from.read_exact(&mut path)?;
        Ok(path)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn any_path_is_read_back_at_its_index() {
        let paths: Vec<Vec<u8>> = vec![
            b"a b.csv".to_vec(),
            b"".to_vec(),
            "学習\n\".csv".into(),
            vec![0xff, b'x'],
            vec![b'n'; 255],
        ];
        let mut w = Writer::new(Vec::new()).unwrap();
        for p in &paths {
            w.push(p).unwrap();
        }
        let (count, bytes) = w.finish().unwrap();
        assert_eq!(count, 5);
        let mut r = Reader::new(Cursor::new(&bytes)).unwrap();
        for (i, p) in paths.iter().enumerate() {
            assert_eq!(&r.path(i as u64).unwrap(), p);
        }
        assert!(r.path(5).is_err());
        for cut in 0..bytes.len() {
            assert!(
                Reader::new(Cursor::new(&bytes[..cut])).is_err(),
                "a torn listing is refused"
            );
        }
    }
}
