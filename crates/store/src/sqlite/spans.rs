//! Spans of committed rows: many in one small block, never a row each.
//!
//! A block is `version (1 byte) | crc (4) | spans`, a span `index (4) | offset (8) | len (4) | rows (4) | crc (4)`, all
//! little-endian. The first crc covers the version and the spans.

use model::{BlobPath, JobId, batch::Span};
use rusqlite::Connection;
use std::collections::BTreeMap;

use super::{Trouble, events::fold_job};

const VERSION: u8 = 1;
const HEAD: usize = 5;
const SPAN: usize = 24;
/// Spans per block: as many as SQLite keeps in a page of the table without an overflow page of their own.
pub(super) const SPANS_PER_BLOCK: usize = 40;
/// Blocks read at once: some 40,000 spans, a megabyte.
const PIECE: u32 = 1_000;

/// One block of at most any number of spans.
pub(super) fn encode(spans: &[Span]) -> Vec<u8> {
    let mut block = Vec::with_capacity(HEAD + spans.len() * SPAN);
    block.extend_from_slice(&[VERSION, 0, 0, 0, 0]);
    for span in spans {
        block.extend_from_slice(&span.index.to_le_bytes());
        block.extend_from_slice(&span.offset.to_le_bytes());
        block.extend_from_slice(&span.len.to_le_bytes());
        block.extend_from_slice(&span.rows.to_le_bytes());
        block.extend_from_slice(&span.crc.to_le_bytes());
    }
    let crc = checksum(&block);
    block[1..HEAD].copy_from_slice(&crc.to_le_bytes());
    block
}

fn checksum(block: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&block[..1]);
    crc.update(&block[HEAD..]);
    crc.finalize()
}

/// The spans of a block, or what is wrong with it. Takes memory for the spans that are there, whatever the bytes say.
pub(super) fn decode(block: &[u8]) -> Result<Vec<Span>, String> {
    let Some((head, body)) = block.split_at_checked(HEAD) else {
        return Err(format!("a block of {} bytes is too short", block.len()));
    };
    if head[0] != VERSION {
        return Err(format!(
            "a block has version {}, this Zaffre knows {VERSION}",
            head[0]
        ));
    }
    if head[1..] != checksum(block).to_le_bytes() {
        return Err("the checksum of a block does not fit".into());
    }
    let (spans, rest) = body.as_chunks::<SPAN>();
    if !rest.is_empty() {
        return Err(format!("a block ends {} bytes into a span", rest.len()));
    }
    Ok(spans.iter().map(read_span).collect())
}

fn read_span(bytes: &[u8; SPAN]) -> Span {
    let word = |at: usize| {
        let mut four = [0; 4];
        four.copy_from_slice(&bytes[at..at + 4]);
        u32::from_le_bytes(four)
    };
    Span {
        index: word(0),
        offset: u64::from(word(4)) | u64::from(word(8)) << 32,
        len: word(12),
        rows: word(16),
        crc: word(20),
    }
}

/// A block as read.
pub(super) struct Block {
    pub number: i64,
    pub segment: BlobPath,
    pub spans: Vec<Span>,
}

/// The next blocks of a run, after the block of that number.
pub(super) fn piece(db: &Connection, job: &JobId, after: i64) -> Result<Vec<Block>, Trouble> {
    let mut find = db.prepare_cached(
        "SELECT s.number, s.segment, s.block FROM run r JOIN span s ON s.run = r.id
         WHERE r.folded = ?1 AND s.number > ?2 ORDER BY s.number LIMIT ?3",
    )?;
    let mut rows = find.query((fold_job(job), after, PIECE))?;
    let mut raw: Vec<(i64, i64, Vec<Span>)> = Vec::new();
    while let Some(row) = rows.next()? {
        let number = row.get(0)?;
        let block = row.get_ref(2)?.as_blob().map_err(|e| e.to_string());
        let spans = block.and_then(decode).map_err(|message| {
            Trouble::corrupt(
                0,
                format!("block {number} of the spans of run {job}: {message}"),
            )
        })?;
        raw.push((number, row.get(1)?, spans));
    }
    if raw.is_empty() {
        return Ok(Vec::new());
    }
    // After the blocks: a segment is there before the first block that lies in it.
    let segments = segments(db, job)?;
    raw.into_iter()
        .map(|(number, segment, spans)| match segments.get(&segment) {
            Some(segment) => Ok(Block {
                number,
                segment: segment.clone(),
                spans,
            }),
            None => Err(Trouble::corrupt(
                0,
                format!("run {job}: segment {segment} of its spans is unknown"),
            )),
        })
        .collect()
}

/// The segments of a run by number.
fn segments(db: &Connection, job: &JobId) -> Result<BTreeMap<i64, BlobPath>, Trouble> {
    let mut find = db.prepare_cached(
        "SELECT s.number, s.path FROM run r JOIN segment s ON s.run = r.id WHERE r.folded = ?1",
    )?;
    let mut rows = find.query([fold_job(job)])?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let path: String = row.get(1)?;
        let path = BlobPath::new(&path).ok_or_else(|| {
            Trouble::corrupt(0, format!("run {job}: {path:?} is no path of a segment"))
        })?;
        found.insert(row.get(0)?, path);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_span() -> impl Strategy<Value = Span> {
        (
            any::<u32>(),
            any::<u64>(),
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
        )
            .prop_map(|(index, offset, len, rows, crc)| Span {
                index,
                offset,
                len,
                rows,
                crc,
            })
    }

    #[test]
    fn the_format_of_a_block_is_this_one() {
        let span = Span {
            index: 1,
            offset: 0x0203_0405_0607_0809,
            len: 10,
            rows: 11,
            crc: 0x0c0d_0e0f,
        };
        let block = encode(&[span]);
        assert_eq!(block[0], 1);
        assert_eq!(
            block[HEAD..],
            [
                1, 0, 0, 0, 9, 8, 7, 6, 5, 4, 3, 2, 10, 0, 0, 0, 11, 0, 0, 0, 0x0f, 0x0e, 0x0d,
                0x0c
            ]
        );
    }

    proptest! {
        #[test]
        fn spans_come_back_and_damage_is_seen(
            spans in prop::collection::vec(any_span(), 0..50),
            cut in any::<prop::sample::Index>(),
            bit in any::<prop::sample::Index>(),
        ) {
            let block = encode(&spans);
            prop_assert_eq!(decode(&block), Ok(spans));
            prop_assert!(decode(&block[..cut.index(block.len())]).is_err());
            let mut flipped = block.clone();
            let bit = bit.index(block.len() * 8);
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&flipped).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(spans) = decode(&bytes) {
                prop_assert_eq!(encode(&spans), bytes);
            }
        }
    }
}
