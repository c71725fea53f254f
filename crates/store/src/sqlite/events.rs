//! Events, checkpoints and records as stored: JSON with a version number and a checksum (E3, S2).

use model::{Event, JobId, RunRecord};
use port::Loaded;
use rusqlite::{Connection, OptionalExtension};

use super::{Trouble, signed, unsigned};

/// Version of the JSON of events and records. A shape that the present types do not read gets the next number, and the
/// old one a reader of its own here.
pub(super) const VERSION: u32 = 1;

/// The checksum of an event: its number, its version and its text.
pub(super) fn crc(seq: u64, version: u32, json: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&seq.to_le_bytes());
    crc.update(&version.to_le_bytes());
    crc.update(json);
    crc.finalize()
}

fn read_event(seq: u64, version: u32, crc_stored: u32, json: &str) -> Result<Event, String> {
    if crc(seq, version, json.as_bytes()) != crc_stored {
        return Err("its checksum does not fit".into());
    }
    match version {
        1 => serde_json::from_str(json).map_err(|e| format!("it cannot be read: {e}")),
        _ => Err(format!(
            "it has version {version}, this Zaffre knows up to {VERSION}"
        )),
    }
}

/// Where the log stands: the last event, or the checkpoint that swallowed it.
pub(super) fn last(db: &Connection) -> Result<u64, Trouble> {
    let mut find = db.prepare_cached(
        "SELECT max(coalesce((SELECT max(seq) FROM event), 0), coalesce((SELECT at FROM checkpoint), 0))",
    )?;
    Ok(unsigned(find.query_row([], |row| row.get(0))?))
}

pub(super) fn load(db: &mut Connection) -> Result<Loaded, Trouble> {
    // One transaction: the checkpoint and the log after it belong together.
    let db = db.transaction()?;
    let checkpoint = db
        .prepare_cached("SELECT at, crc, snapshot FROM checkpoint")?
        .query_row([], |row| {
            let (at, crc): (i64, u32) = (row.get(0)?, row.get(1)?);
            Ok((unsigned(at), crc, row.get::<_, Vec<u8>>(2)?))
        })
        .optional()?;
    let (at, snapshot) = match checkpoint {
        None => (0, None),
        Some((at, stored, snapshot)) if crc(at, 0, &snapshot) == stored => (at, Some(snapshot)),
        Some((at, ..)) => {
            return Err(Trouble::corrupt(
                at,
                "the checksum of its checkpoint does not fit",
            ));
        }
    };
    let mut seq = at;
    let mut tail = Vec::new();
    let mut find =
        db.prepare_cached("SELECT seq, version, crc, json FROM event WHERE seq > ?1 ORDER BY seq")?;
    let mut rows = find.query([signed(at)])?;
    while let Some(row) = rows.next().map_err(|e| Trouble::from(e).at(seq + 1))? {
        let found = unsigned(row.get(0)?);
        if found != seq + 1 {
            return Err(Trouble::corrupt(
                seq + 1,
                format!("it is missing; the next one is {found}"),
            ));
        }
        seq = found;
        let (version, crc): (u32, u32) = (row.get(1)?, row.get(2)?);
        let json = row
            .get_ref(3)?
            .as_str()
            .map_err(|e| Trouble::corrupt(seq, format!("its text cannot be read: {e}")))?;
        let event = read_event(seq, version, crc, json).map_err(|m| Trouble::corrupt(seq, m))?;
        tail.push(event);
    }
    Ok(Loaded {
        snapshot,
        tail,
        seq,
    })
}

pub(super) fn record(db: &Connection, job: &JobId) -> Result<Option<RunRecord>, Trouble> {
    let mut find = db.prepare_cached(
        "SELECT seq, version, crc, record FROM run WHERE folded = ?1 AND record IS NOT NULL",
    )?;
    let mut rows = find.query([fold_job(job)])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let seq = unsigned(row.get(0)?);
    let damaged = |m: String| Trouble::corrupt(seq, format!("the record of run {job}: {m}"));
    let (version, stored): (u32, u32) = (row.get(1)?, row.get(2)?);
    let json = row
        .get_ref(3)?
        .as_str()
        .map_err(|e| damaged(e.to_string()))?;
    if crc(seq, version, json.as_bytes()) != stored {
        return Err(damaged("its checksum does not fit".into()));
    }
    match version {
        1 => serde_json::from_str(json)
            .map(Some)
            .map_err(|e| damaged(format!("it cannot be read: {e}"))),
        _ => Err(damaged(format!(
            "it has version {version}, this Zaffre knows up to {VERSION}"
        ))),
    }
}

/// The key of a run's row.
pub(super) fn fold_job(job: &JobId) -> String {
    let w = job.workspace();
    let mut text = format!("{}/{}/{}/{}", w.subscription, w.group, w.name, job.name());
    text.make_ascii_lowercase();
    text
}
