//! The writing connection. One append is one immediate transaction (T1).

use model::{
    BlobPath, DocKey, Document, Event, JobId, Kind, RunEvent, RunRecord, Workspace, batch::Span,
};
use port::{Append, StoreError};
use rusqlite::{Connection, OptionalExtension};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

use super::{
    Trouble,
    documents::{self, Stored, fold_workspace, kind_name},
    events::{self, VERSION, fold_job},
    signed,
    spans::{SPANS_PER_BLOCK, encode},
};
use crate::failpoint::step;

/// Events removed at once after a checkpoint, so that an append waits for some milliseconds at most.
const COMPACTED_AT_ONCE: u32 = 10_000;
/// Segments whose next block number is remembered. More batch runs than this at once only cost a look-up each.
const SEGMENTS: usize = 1_024;

pub(super) struct Writer {
    db: Connection,
    folder: PathBuf,
    /// Where the next block of spans goes: by run and segment. Emptied when a transaction is given up.
    places: HashMap<(JobId, BlobPath), Place>,
    /// Set when the outcome of an append is unknown: nothing is appended after it.
    unknown: Option<u64>,
}

#[derive(Clone, Copy)]
struct Place {
    run: i64,
    segment: i64,
    next: i64,
}

impl Writer {
    pub(super) fn new(db: Connection, folder: &Path) -> Result<Self, StoreError> {
        Ok(Writer {
            db,
            folder: folder.to_owned(),
            places: HashMap::new(),
            unknown: None,
        })
    }

    pub(super) fn append(&mut self, turn: &Append<'_>) -> Result<u64, StoreError> {
        if turn.events.is_empty() && turn.spans.is_empty() && turn.copies.is_empty() {
            let have = events::last(&self.db).map_err(|t| t.into_store(turn.after))?;
            return follows(have, turn.after).map(|()| have);
        }
        let encoded = encode_all(turn.events)?;
        self.transaction(turn.after, |writer| {
            follows(events::last(&writer.db)?, turn.after)?;
            writer.write(turn, &encoded)
        })
    }

    pub(super) fn checkpoint(&mut self, at_event: u64, snapshot: &[u8]) -> Result<(), StoreError> {
        self.transaction(at_event, |writer| {
            let db = &writer.db;
            let have = events::last(db)?;
            let before: Option<i64> = db
                .prepare_cached("SELECT at FROM checkpoint")?
                .query_row([], |row| row.get(0))
                .optional()?;
            let before = before.map_or(0, super::unsigned);
            if at_event > have || at_event < before {
                return Err(Trouble::Store(StoreError::Conflict {
                    have: if at_event > have { have } else { before },
                    expected: at_event,
                }));
            }
            step("checkpoint.write", || {
                let mut write = db.prepare_cached(
                    "INSERT INTO checkpoint (id, at, crc, snapshot) VALUES (1, ?1, ?2, ?3)
                     ON CONFLICT (id) DO UPDATE SET at = excluded.at, crc = excluded.crc, snapshot = excluded.snapshot",
                )?;
                let crc = events::crc(at_event, 0, snapshot);
                write.execute((signed(at_event), crc, snapshot))?;
                if at_event == have {
                    // The whole table at once: SQLite drops its pages without looking at the rows.
                    db.prepare_cached("DELETE FROM event")?.execute([])?;
                }
                Ok::<_, Trouble>(())
            })
        })
    }

    /// Removes some events that the checkpoint has swallowed; says whether there were any.
    pub(super) fn compact(&mut self) -> Result<bool, StoreError> {
        let old = "SELECT min(seq) FROM event WHERE seq <= (SELECT at FROM checkpoint)";
        let first: Option<i64> = self
            .db
            .prepare_cached(old)
            .and_then(|mut find| find.query_row([], |row| row.get(0)))
            .map_err(|e| Trouble::from(e).into_store(0))?;
        let Some(first) = first else {
            return Ok(false);
        };
        self.transaction(super::unsigned(first), |writer| {
            step("compact.delete", || {
                let mut delete = writer.db.prepare_cached(
                    "DELETE FROM event WHERE seq < ?1 + ?2 AND seq <= (SELECT at FROM checkpoint)",
                )?;
                delete.execute((first, COMPACTED_AT_ONCE))?;
                Ok::<_, Trouble>(())
            })
        })?;
        Ok(true)
    }

    /// Does `work` in one transaction, or nothing of it.
    fn transaction<T>(
        &mut self,
        at_event: u64,
        work: impl FnOnce(&mut Writer) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        if let Some(after) = self.unknown {
            return Err(StoreError::Io(io::Error::other(format!(
                "whether the append after event {after} was written is unknown; the store must be opened again"
            ))));
        }
        step("store.begin", || self.execute("BEGIN IMMEDIATE"))
            .map_err(|trouble| self.classify(trouble, at_event))?;
        let done = work(self);
        let trouble = match done {
            Ok(done) => match step("store.commit", || self.execute("COMMIT")) {
                Ok(()) => return Ok(done),
                Err(trouble) => {
                    // A full disk is found while frames are written, the one that commits last: nothing was committed.
                    // Anything else may have come after that frame, and the next start may find it on the disk.
                    let error = trouble.into_store(at_event);
                    self.give_up();
                    if !matches!(error, StoreError::Full { .. }) {
                        self.unknown = Some(at_event);
                    }
                    return Err(error);
                }
            },
            Err(trouble) => trouble,
        };
        let error = self.classify(trouble, at_event);
        self.give_up();
        Err(error)
    }

    fn execute(&self, sql: &str) -> Result<(), Trouble> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn give_up(&mut self) {
        self.places.clear();
        if !self.db.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            // SQLite has rolled back by itself, or will when the next BEGIN fails.
            tracing::warn!(?error, "a transaction could not be rolled back");
        }
    }

    /// Before the commit. SQLite reports some full disks (of the WAL's index) as plain I/O errors: the disk itself is asked.
    fn classify(&self, trouble: Trouble, at_event: u64) -> StoreError {
        match trouble.into_store(at_event) {
            StoreError::Io(error)
                if crate::Reserve::new(&self.folder, crate::sqlite::file::LEAST_FREE)
                    .check()
                    .is_err() =>
            {
                StoreError::Full {
                    message: error.to_string(),
                }
            }
            other => other,
        }
    }

    fn write(&mut self, turn: &Append<'_>, encoded: &Encoded) -> Result<u64, Trouble> {
        let mut seq = turn.after;
        for (event, json) in turn.events.iter().zip(encoded.iter()) {
            seq += 1;
            step("event.write", || self.event(seq, json))?;
            self.index(seq, event)?;
        }
        for (from, to) in turn.copies {
            step("span.copy", || self.copy(seq, from, to))?;
        }
        for (job, segment, spans) in turn.spans {
            step("span.write", || self.spans(seq, job, segment, spans))?;
        }
        Ok(seq)
    }

    fn event(&self, seq: u64, json: &str) -> Result<(), Trouble> {
        self.db
            .prepare_cached("INSERT INTO event (seq, version, crc, json) VALUES (?1, ?2, ?3, ?4)")?
            .execute((
                signed(seq),
                VERSION,
                events::crc(seq, VERSION, json.as_bytes()),
                json,
            ))?;
        Ok(())
    }

    /// T3: what an event means for the index. A function of the event and the index alone.
    fn index(&mut self, seq: u64, event: &Event) -> Result<(), Trouble> {
        match event {
            Event::Declared { document, .. } => {
                step("document.write", || self.document(seq, document))
            }
            Event::Withdrawn { key, .. } => step("document.remove", || self.remove(key)),
            Event::Run { run, event, .. } => match event {
                RunEvent::Submitted { document, .. } => {
                    step("document.write", || self.document(seq, document))
                }
                RunEvent::Retired { record } => {
                    step("record.write", || self.record(seq, run, record))
                }
                RunEvent::Explained { .. }
                | RunEvent::Placed { .. }
                | RunEvent::Started { .. }
                | RunEvent::Stopping { .. }
                | RunEvent::TaskEnded { .. }
                | RunEvent::TaskLost { .. }
                | RunEvent::Erred { .. }
                | RunEvent::Canceling { .. }
                | RunEvent::Finished { .. } => Ok(()),
            },
            Event::ComputeGone { .. }
            | Event::CapacityHeld { .. }
            | Event::Node { .. }
            | Event::Batch { .. } => Ok(()),
        }
    }

    fn document(&self, seq: u64, document: &Document) -> Result<(), Trouble> {
        let key = &document.key;
        let (id, workspace) = match documents::workspace(&self.db, &key.workspace)? {
            Some(found) => found,
            None => (self.make_workspace(&key.workspace)?, key.workspace.clone()),
        };
        let folded = key.path.as_str().to_ascii_lowercase();
        let before: Option<(i64, String, i64)> = self
            .db
            .prepare_cached(
                "SELECT id, spelled, created FROM document WHERE workspace = ?1 AND kind = ?2 AND folded = ?3",
            )?
            .query_row((id, kind_name(key.kind), &folded), |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        // D2: spelling and time of creation are those of the first write and stay.
        let (spelled, created) = match &before {
            Some((_, spelled, created)) => (spelled.as_str(), super::unsigned(*created)),
            None => (key.path.as_str(), document.created.0),
        };
        let stored = Stored {
            workspace: &workspace,
            kind: key.kind,
            folded: &folded,
            spelled,
            generation: document.generation,
            json: &document.json,
            created,
            modified: document.modified.0,
            by: &document.by,
            seq,
        };
        let (generation, modified) = (signed(stored.generation), signed(stored.modified));
        match before {
            Some((row, ..)) => self
                .db
                .prepare_cached(
                    "UPDATE document SET generation = ?1, json = ?2, modified = ?3, by = ?4, seq = ?5, crc = ?6
                     WHERE id = ?7",
                )?
                .execute((
                    generation,
                    stored.json,
                    modified,
                    stored.by,
                    signed(seq),
                    stored.crc(),
                    row,
                ))?,
            None => self
                .db
                .prepare_cached(
                    "INSERT INTO document
                         (workspace, kind, folded, spelled, generation, json, created, modified, by, seq, crc)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                )?
                .execute((
                    id,
                    kind_name(key.kind),
                    &folded,
                    spelled,
                    generation,
                    stored.json,
                    signed(created),
                    modified,
                    stored.by,
                    signed(seq),
                    stored.crc(),
                ))?,
        };
        Ok(())
    }

    fn make_workspace(&self, w: &Workspace) -> Result<i64, Trouble> {
        let mut make = self.db.prepare_cached(
            "INSERT INTO workspace (folded, subscription, grp, name) VALUES (?1, ?2, ?3, ?4)",
        )?;
        let names = [&w.subscription, &w.group, &w.name].map(model::Name::as_str);
        Ok(make.insert((fold_workspace(w), names[0], names[1], names[2]))?)
    }

    fn remove(&mut self, key: &DocKey) -> Result<(), Trouble> {
        if let Some((workspace, _)) = documents::workspace(&self.db, &key.workspace)? {
            self.db
                .prepare_cached(
                    "DELETE FROM document WHERE workspace = ?1 AND kind = ?2 AND folded = ?3",
                )?
                .execute((
                    workspace,
                    kind_name(key.kind),
                    key.path.as_str().to_ascii_lowercase(),
                ))?;
            // A workspace is there, and spelled, as long as it holds a document.
            self.db
                .prepare_cached(
                    "DELETE FROM workspace WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM document WHERE workspace = ?1)",
                )?
                .execute([workspace])?;
        }
        if key.kind == Kind::Job {
            self.forget(&JobId::new(&key.workspace, key.path.clone()))?;
        }
        Ok(())
    }

    /// Everything that is kept of a run.
    fn forget(&mut self, job: &JobId) -> Result<(), Trouble> {
        self.places.retain(|(of, _), _| of != job);
        let Some(run) = self.find_run(job)? else {
            return Ok(());
        };
        for sql in [
            "DELETE FROM span WHERE run = ?1",
            "DELETE FROM segment WHERE run = ?1",
            "DELETE FROM run WHERE id = ?1",
        ] {
            self.db.prepare_cached(sql)?.execute([run])?;
        }
        Ok(())
    }

    fn record(&self, seq: u64, job: &JobId, record: &RunRecord) -> Result<(), Trouble> {
        let json = serde_json::to_string(record).map_err(io::Error::other)?;
        let crc = events::crc(seq, VERSION, json.as_bytes());
        self.db
            .prepare_cached(
                "INSERT INTO run (folded, seq, version, crc, record) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (folded) DO UPDATE SET seq = excluded.seq, version = excluded.version,
                     crc = excluded.crc, record = excluded.record",
            )?
            .execute((fold_job(job), signed(seq), VERSION, crc, json))?;
        Ok(())
    }

    fn find_run(&self, job: &JobId) -> Result<Option<i64>, Trouble> {
        let mut find = self
            .db
            .prepare_cached("SELECT id FROM run WHERE folded = ?1")?;
        Ok(find
            .query_row([fold_job(job)], |row| row.get(0))
            .optional()?)
    }

    fn make_run(&self, seq: u64, job: &JobId) -> Result<i64, Trouble> {
        match self.find_run(job)? {
            Some(run) => Ok(run),
            None => Ok(self
                .db
                .prepare_cached("INSERT INTO run (folded, seq) VALUES (?1, ?2)")?
                .insert((fold_job(job), signed(seq)))?),
        }
    }

    /// Where the next block of a run in a segment goes.
    fn place(&mut self, seq: u64, job: &JobId, segment: &BlobPath) -> Result<Place, Trouble> {
        let key = (job.clone(), segment.clone());
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let run = self.make_run(seq, job)?;
        let found: Option<i64> = self
            .db
            .prepare_cached("SELECT number FROM segment WHERE run = ?1 AND path = ?2")?
            .query_row((run, segment.as_str()), |row| row.get(0))
            .optional()?;
        let number = match found {
            Some(number) => number,
            None => {
                let next = "SELECT coalesce(max(number), 0) + 1 FROM segment WHERE run = ?1";
                let next: i64 = self
                    .db
                    .prepare_cached(next)?
                    .query_row([run], |row| row.get(0))?;
                self.db
                    .prepare_cached("INSERT INTO segment (run, number, path) VALUES (?1, ?2, ?3)")?
                    .execute((run, next, segment.as_str()))?;
                next
            }
        };
        let place = Place {
            run,
            segment: number,
            next: self.last_block(run)? + 1,
        };
        // Two segments of one run count the same blocks: only one of them is remembered.
        self.places.retain(|(of, _), _| of != job);
        if self.places.len() >= SEGMENTS {
            self.places.clear();
        }
        self.places.insert(key, place);
        Ok(place)
    }

    fn last_block(&self, run: i64) -> Result<i64, Trouble> {
        let mut find = self
            .db
            .prepare_cached("SELECT coalesce(max(number), 0) FROM span WHERE run = ?1")?;
        Ok(find.query_row([run], |row| row.get(0))?)
    }

    fn spans(
        &mut self,
        seq: u64,
        job: &JobId,
        segment: &BlobPath,
        spans: &[Span],
    ) -> Result<(), Trouble> {
        if spans.is_empty() {
            return Ok(());
        }
        let mut place = self.place(seq, job, segment)?;
        let mut write = self.db.prepare_cached(
            "INSERT INTO span (run, number, segment, block) VALUES (?1, ?2, ?3, ?4)",
        )?;
        for block in spans.chunks(SPANS_PER_BLOCK) {
            write.execute((place.run, place.next, place.segment, encode(block)))?;
            place.next += 1;
        }
        drop(write);
        self.places.insert((job.clone(), segment.clone()), place);
        Ok(())
    }

    fn copy(&mut self, seq: u64, from: &JobId, to: &JobId) -> Result<(), Trouble> {
        let Some(old) = self.find_run(from)? else {
            return Ok(());
        };
        let segments: Vec<(i64, String)> = self
            .db
            .prepare_cached("SELECT number, path FROM segment WHERE run = ?1")?
            .query_map([old], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut base = None;
        for (number, path) in segments {
            let path = BlobPath::new(&path).ok_or_else(|| {
                Trouble::corrupt(seq, format!("run {from}: {path:?} is no path of a segment"))
            })?;
            let place = self.place(seq, to, &path)?;
            // The blocks of a run have different numbers, so they still do when all are moved by the same amount.
            let base = *base.get_or_insert(place.next - 1);
            self.db
                .prepare_cached(
                    "INSERT INTO span (run, number, segment, block)
                     SELECT ?1, ?2 + number, ?3, block FROM span WHERE run = ?4 AND segment = ?5",
                )?
                .execute((place.run, base, place.segment, old, number))?;
        }
        self.places.retain(|(of, _), _| of != to);
        Ok(())
    }
}

fn follows(have: u64, expected: u64) -> Result<(), StoreError> {
    if have == expected {
        Ok(())
    } else {
        Err(StoreError::Conflict { have, expected })
    }
}

/// The JSON of all events of a turn in one piece of memory.
struct Encoded {
    text: String,
    ends: Vec<usize>,
}

fn encode_all(events: &[Event]) -> Result<Encoded, StoreError> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(events.len()));
    for event in events {
        serde_json::to_writer(&mut bytes, event).map_err(io::Error::other)?;
        ends.push(bytes.len());
    }
    let text = String::from_utf8(bytes).map_err(io::Error::other)?;
    Ok(Encoded { text, ends })
}

impl Encoded {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(from, to)| &self.text[from..*to])
    }
}
