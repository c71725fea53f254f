//! `Store` and `Series` on SQLite: one writing connection, a few reading ones.
//!
//! T1–T3 of `port::store`. What is checked in the transaction is what counts: the number that an append follows is read
//! from the file each time, not from memory.

use model::{BlobPath, DocKey, Document, JobId, RunRecord, Time, Workspace, batch::Span};
use port::{Append, Loaded, Page, Series, Store, StoreError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{home::DataFolder, series::Samples};

mod cache;
mod documents;
mod events;
mod file;
mod readers;
mod spans;
mod trouble;
mod wal;
mod writer;

pub(crate) use file::{Steps, open as open_file};
pub(crate) use trouble::Trouble;

use cache::Cache;
use readers::Readers;
use writer::Writer;

/// What a `u64` of the model is in SQLite: the same 64 bits.
pub(crate) fn signed(value: u64) -> i64 {
    value.cast_signed()
}
/// And back.
pub(crate) fn unsigned(value: i64) -> u64 {
    value.cast_unsigned()
}

const STEPS: Steps = Steps {
    name: "zaffre.db",
    steps: &[include_str!("../migrations/0001.sql")],
    synchronous: "FULL",
};

/// The embedded store of one data folder.
pub struct Sqlite {
    // Before the folder: the files are closed before the lock is given back.
    writer: Mutex<Writer>,
    readers: Readers,
    cache: Cache,
    samples: Samples,
    _folder: Arc<DataFolder>,
}

impl Sqlite {
    /// Opens the store of a data folder, or makes it; brings an older one up (S5).
    pub fn open(folder: &Arc<DataFolder>) -> Result<Self, StoreError> {
        let db = open_file(folder.path(), &STEPS)?;
        let file = folder.path().join(STEPS.name);
        Ok(Sqlite {
            writer: Mutex::new(Writer::new(db, folder.path())),
            readers: Readers::new(file),
            cache: Cache::default(),
            samples: Samples::new(folder.path()),
            _folder: folder.clone(),
        })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn read<T>(
        &self,
        work: impl FnOnce(&mut rusqlite::Connection) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        self.readers
            .with(work)
            .map_err(|trouble| trouble.into_store(0))
    }
}

impl Store for Sqlite {
    fn load(&self) -> Result<Loaded, StoreError> {
        self.read(events::load)
    }
    fn append(&self, turn: &Append<'_>) -> Result<u64, StoreError> {
        if !turn
            .events
            .iter()
            .any(|event| cache::changed(event).is_some())
        {
            return self.writer().append(turn);
        }
        let mut writer = self.writer();
        self.cache.commit(turn.events);
        let appended = writer.append(turn);
        let made = writer.take_made();
        self.cache.committed(match appended {
            Ok(_) => made,
            Err(_) => Vec::new(),
        });
        appended
    }
    fn checkpoint(&self, at: u64, snapshot: &[u8]) -> Result<(), StoreError> {
        self.writer().checkpoint(at, snapshot)?;
        // The lock is let go between pieces: an append never waits for more than one of them.
        while self.writer().compact()? {}
        Ok(())
    }
    fn get(&self, key: &DocKey) -> Result<Option<Document>, StoreError> {
        let asked = match self.cache.get(key) {
            Ok(document) => return Ok(Some(document)),
            Err(asked) => asked,
        };
        let found = self.read(|db| documents::get(db, key))?;
        if let Some(document) = &found {
            self.cache.put(asked, document);
        }
        Ok(found)
    }
    fn page(&self, page: &Page) -> Result<(Vec<Document>, Option<String>), StoreError> {
        self.read(|db| documents::page(db, page))
    }
    fn behind(&self, page: &Page, document: &Document) -> String {
        documents::behind(page, document)
    }
    fn workspaces(&self) -> Result<Vec<Arc<Workspace>>, StoreError> {
        self.read(|db| documents::workspaces(db))
    }
    fn record(&self, job: &JobId) -> Result<Option<RunRecord>, StoreError> {
        self.read(|db| events::record(db, job))
    }
    fn spans(
        &self,
        job: &JobId,
        take: &mut dyn FnMut(&BlobPath, &[Span]),
    ) -> Result<(), StoreError> {
        // Piece by piece: `take` may be slow, and a reader that stays keeps the WAL from being reused.
        let mut after = 0;
        loop {
            let piece = self.read(|db| spans::piece(db, job, after))?;
            let Some(last) = piece.last() else {
                return Ok(());
            };
            after = last.number;
            for block in &piece {
                take(&block.segment, &block.spans);
            }
        }
    }
}

impl Series for Sqlite {
    fn append(&self, series: &str, samples: &[(Time, String)]) -> Result<(), StoreError> {
        self.samples.append(series, samples)
    }
    fn forget(&self, prefix: &str) -> Result<(), StoreError> {
        self.samples.forget(prefix)
    }
    fn range(&self, series: &str, from: Time, to: Time) -> Result<Vec<(Time, String)>, StoreError> {
        self.samples.range(series, from, to)
    }
    fn names(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.samples.names(prefix)
    }
}
