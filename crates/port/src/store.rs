//! The store: documents, the event log, checkpoints, spans of committed rows, series.
//!
//! T1 `append` is one durable transaction: events, the documents they declare, records they retire and spans, or nothing;
//! T2 an append names the sequence number it follows; another writer's append makes it fail, never merge;
//! T3 the index of documents is derived: it can be rebuilt from the log and the checkpoint.

use model::{
    BlobPath, DocKey, Document, Event, JobId, Kind, Millis, RunRecord, Time, Workspace, batch::Span,
};
use std::{io, sync::Arc};
use thiserror::Error;

/// Why the store could not.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Somebody else has appended.
    #[error("the log stands at {have}, not at {expected}: another server writes to this store")]
    Conflict {
        /// Where the log stands.
        have: u64,
        /// Where we thought.
        expected: u64,
    },
    /// What is stored cannot be read.
    #[error("the store is damaged at event {at}: {message}")]
    Corrupt {
        /// Sequence number.
        at: u64,
        /// What is wrong.
        message: String,
    },
    /// The disk is full, or below its reserve.
    #[error("the disk is short: {message}")]
    Full {
        /// Which limit.
        message: String,
    },
    /// Written by a newer Zaffre.
    #[error("the store has format {found}, this version knows up to {known}")]
    TooNew {
        /// In the store.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// Anything else of the system.
    #[error("store: {0}")]
    Io(#[from] io::Error),
}

/// What is there at start.
pub struct Loaded {
    /// The last checkpoint, as given to `checkpoint`.
    pub snapshot: Option<Vec<u8>>,
    /// The log after it, in order.
    pub tail: Vec<Event>,
    /// Sequence number of the last event.
    pub seq: u64,
}

/// One turn's write.
pub struct Append<'a> {
    /// The sequence number it follows (T2).
    pub after: u64,
    /// What happened. `Declared`, `Withdrawn`, `Submitted` and `Retired` update the index of documents and records.
    pub events: &'a [Event],
    /// Spans of committed rows, offsets absolute in the segment they lie in.
    pub spans: &'a [(JobId, BlobPath, Vec<Span>)],
    /// Spans to copy from a cancelled run to the one that resumes it: (from, to).
    pub copies: &'a [(JobId, JobId)],
}

/// A page of documents.
#[derive(Clone, Debug)]
pub struct Page {
    /// Of which workspace.
    pub workspace: Arc<Workspace>,
    /// Which kind.
    pub kind: Kind,
    /// Only paths below this one (`heart-classifier` for the versions of a model, `endpoint` for its deployments).
    pub parent: Option<String>,
    /// Newest first instead of by path.
    pub newest_first: bool,
    /// Goes on after this token (from the page before).
    pub after: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// The store. One writer (the loop), any readers.
pub trait Store: Send + Sync {
    /// The last checkpoint and the log after it.
    fn load(&self) -> Result<Loaded, StoreError>;
    /// T1. Returns the new sequence number.
    fn append(&self, turn: &Append<'_>) -> Result<u64, StoreError>;
    /// Keeps `snapshot` as the state after event `at`, and compacts the log before it.
    fn checkpoint(&self, at: u64, snapshot: &[u8]) -> Result<(), StoreError>;
    /// One document.
    fn get(&self, key: &DocKey) -> Result<Option<Document>, StoreError>;
    /// A page of documents and the token of the next one.
    fn page(&self, page: &Page) -> Result<(Vec<Document>, Option<String>), StoreError>;
    /// The token of the page that goes on behind `document`, one of those that such a page holds.
    fn behind(&self, page: &Page, document: &Document) -> String;
    /// All workspaces that hold a document.
    fn workspaces(&self) -> Result<Vec<Arc<Workspace>>, StoreError>;
    /// The record of a retired run.
    fn record(&self, job: &JobId) -> Result<Option<RunRecord>, StoreError>;
    /// Every span of a run with the segment it lies in, in any order, handed over in pieces.
    fn spans(
        &self,
        job: &JobId,
        take: &mut dyn FnMut(&BlobPath, &[Span]),
    ) -> Result<(), StoreError>;
}

/// Samples of a series that are older than its newest one by more than this are dropped, but the last of them, which says
/// what held at the beginning of the time that is kept. Azure Monitor keeps metrics for 93 days.
pub const SERIES_KEPT: Millis = Millis::secs(93 * 86_400);

/// High-volume facts that never pass the loop: metrics and samples, append-only.
pub trait Series: Send + Sync {
    /// Adds samples. Durable soon, not at once: losing the last second is allowed. Old ones go (`SERIES_KEPT`).
    fn append(&self, series: &str, samples: &[(Time, String)]) -> Result<(), StoreError>;
    /// Samples with `from <= time < to`, ascending, and the last one before `from` first if there is one.
    fn range(&self, series: &str, from: Time, to: Time) -> Result<Vec<(Time, String)>, StoreError>;
    /// Names of the series that start with `prefix`.
    fn names(&self, prefix: &str) -> Result<Vec<String>, StoreError>;
    /// Removes the series whose names start with `prefix`; it is no error when there is none. As durable as an append.
    fn forget(&self, prefix: &str) -> Result<(), StoreError>;
}
