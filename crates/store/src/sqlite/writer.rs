//! The writing connection. One append is one immediate transaction (T1).

use model::{BlobPath, DocKey, Document, Event, JobId, Kind, Name, RunEvent, Time, Workspace};
use port::{Append, StoreError};
use rusqlite::{Connection, OptionalExtension};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Trouble,
    cache::Change,
    documents::{self, Stored, fold_workspace, kind_name},
    events::{self, VERSION},
    signed,
};
use crate::failpoint::step;

mod runs;

/// Events removed at once after a checkpoint, so that an append waits for some milliseconds at most.
const COMPACTED_AT_ONCE: u32 = 10_000;
/// Segments whose next block number is remembered. More batch runs than this at once only cost a look-up each.
const SEGMENTS: usize = 1_024;
/// Workspaces that are remembered.
const WORKSPACES: usize = 64;

pub(super) struct Writer {
    db: Connection,
    folder: PathBuf,
    /// Where the next block of spans goes: by run and segment. Emptied when a transaction is given up.
    places: HashMap<(JobId, BlobPath), Place>,
    /// Rows of workspaces and how they are spelled. Emptied when a transaction is given up.
    workspaces: HashMap<Arc<Workspace>, (i64, Arc<Workspace>)>,
    /// What the append under way makes of documents.
    made: Vec<Change>,
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
    pub(super) fn new(db: Connection, folder: &Path) -> Self {
        Writer {
            db,
            folder: folder.to_owned(),
            places: HashMap::new(),
            workspaces: HashMap::new(),
            made: Vec::new(),
            unknown: None,
        }
    }

    /// What the last append made of documents; true only if it succeeded.
    pub(super) fn take_made(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.made)
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
        self.workspaces.clear();
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
                | RunEvent::TaskRecalled { .. }
                | RunEvent::Erred { .. }
                | RunEvent::ChildRefused { .. }
                | RunEvent::Measured { .. }
                | RunEvent::Registered { .. }
                | RunEvent::Canceling { .. }
                | RunEvent::Finished { .. } => Ok(()),
            },
            Event::ComputeGone { .. }
            | Event::CapacityHeld { .. }
            | Event::Node { .. }
            | Event::Batch { .. } => Ok(()),
        }
    }

    fn document(&mut self, seq: u64, document: &Document) -> Result<(), Trouble> {
        let key = &document.key;
        let (id, workspace) = self.workspace(&key.workspace)?;
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
        let written = Document {
            key: DocKey {
                path: if spelled == key.path.as_str() {
                    key.path.clone()
                } else {
                    Name::from(spelled)
                },
                workspace,
                kind: key.kind,
            },
            created: Time(created),
            ..document.clone()
        };
        self.made.push((written.key.clone(), Some(written)));
        Ok(())
    }

    /// The row of a workspace and how it is spelled; made when it is new.
    fn workspace(&mut self, named: &Arc<Workspace>) -> Result<(i64, Arc<Workspace>), Trouble> {
        if let Some(known) = self.workspaces.get(named) {
            return Ok(known.clone());
        }
        let found = match documents::workspace(&self.db, named)? {
            Some(found) => found,
            None => (self.make_workspace(named)?, named.clone()),
        };
        if self.workspaces.len() >= WORKSPACES {
            self.workspaces.clear();
        }
        self.workspaces.insert(named.clone(), found.clone());
        Ok(found)
    }

    fn make_workspace(&self, w: &Workspace) -> Result<i64, Trouble> {
        let mut make = self.db.prepare_cached(
            "INSERT INTO workspace (folded, subscription, grp, name) VALUES (?1, ?2, ?3, ?4)",
        )?;
        let names = [&w.subscription, &w.group, &w.name].map(Name::as_str);
        Ok(make.insert((fold_workspace(w), names[0], names[1], names[2]))?)
    }

    fn remove(&mut self, key: &DocKey) -> Result<(), Trouble> {
        self.made.push((key.clone(), None));
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
            let removed = self
                .db
                .prepare_cached(
                    "DELETE FROM workspace WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM document WHERE workspace = ?1)",
                )?
                .execute([workspace])?;
            if removed > 0 {
                self.workspaces.remove(&key.workspace);
            }
        }
        if key.kind == Kind::Job {
            self.forget(&JobId::new(&key.workspace, key.path.clone()))?;
        }
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
