//! The loop: owns the World, takes requests, decides, appends, answers, publishes, acts.
//!
//! C1 nothing is answered, shown or done before the turn that decided it is durable;
//! C2 actions are applied only after a successful append (or, with nothing to append, when none was needed);
//! C3 a turn whose write failed for want of space leaves no trace: the World is read again from the store, the requests are
//!    refused, and the loop goes on; any other failed write ends the process, because its outcome is unknown;
//! C4 a wake-up carries no data: every turn looks at what is there.

mod errand;
mod load;
mod measure;
mod report;
mod request;
mod turn;

pub use load::StartError;
pub use measure::{Measure, metric_series, metrics_of};
pub use plan::FORMAT;
pub use port::{
    Bell, BlobError, BlobInfo, BlobWriter, Blobs, Clock, Engine, FLEETING, Page, Series, Store,
    StoreError,
};
pub use request::{Condition, Done, Failure, Put, Request};

use model::{DocKey, Document, JobId, RunRecord, View, Why};
use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread::JoinHandle,
};
use tokio::sync::{oneshot, watch};

/// Requests waiting for a turn; more are refused with `Failure::Busy` instead of growing without bound.
pub const INBOX_LIMIT: usize = 65_536;

/// What the loop is made of.
pub struct Parts {
    /// Documents and events.
    pub store: Arc<dyn Store>,
    /// Rows, listings, outputs.
    pub blobs: Arc<dyn Blobs>,
    /// Samples of metrics.
    pub series: Arc<dyn Series>,
    /// What runs nodes and tasks.
    pub engine: Arc<dyn Engine>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The bell that `engine` rings.
    pub bell: Bell,
    /// Reads what a decision needs of a document (`wire::arm::declared`).
    pub read: fn(&Document) -> Result<model::Declared, String>,
    /// Spells the document of an asset that an output has become (`wire::arm::asset::registered`).
    pub spell: fn(&model::run::Registration<'_>) -> Arc<str>,
    /// Says what there is to report of a run (`wire::view::report::report`).
    pub report: model::report::Reporter,
    /// Whether the disk is above its reserve; the message says what is short.
    pub room: Box<dyn Fn() -> Result<(), String> + Send>,
}

struct Pending {
    request: Request,
    answer: oneshot::Sender<Result<Done, Failure>>,
}

struct Shared {
    store: Arc<dyn Store>,
    blobs: Arc<dyn Blobs>,
    series: Arc<dyn Series>,
    bell: Bell,
    inbox: Mutex<Inbox>,
    view: RwLock<Arc<View>>,
    turns: watch::Sender<u64>,
}

#[derive(Default)]
struct Inbox {
    pending: Vec<Pending>,
    stopping: bool,
}

/// A handle on the loop. Cheap to clone.
#[derive(Clone)]
pub struct Control(Arc<Shared>);

/// The loop's thread. Ends with an error when a write's outcome is unknown (C3): the process must then end too.
pub type Loop = JoinHandle<Result<(), StoreError>>;

impl Control {
    /// Reads the store and starts the loop.
    pub fn start(parts: Parts) -> Result<(Control, Loop), StartError> {
        turn::start(parts)
    }

    /// Offers a request to the next turn; answered when it is durable (C1).
    pub async fn send(&self, request: Request) -> Result<Done, Failure> {
        let (answer, answered) = oneshot::channel();
        self.offer(Pending { request, answer })?;
        answered.await.unwrap_or(Err(Failure::Stopped))
    }

    /// The same for callers without an async runtime.
    pub fn send_blocking(&self, request: Request) -> Result<Done, Failure> {
        let (answer, answered) = oneshot::channel();
        self.offer(Pending { request, answer })?;
        answered.blocking_recv().unwrap_or(Err(Failure::Stopped))
    }

    fn offer(&self, pending: Pending) -> Result<(), Failure> {
        let mut inbox = self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.stopping {
            return Err(Failure::Stopped);
        }
        if inbox.pending.len() >= INBOX_LIMIT {
            return Err(Failure::Busy { limit: INBOX_LIMIT });
        }
        inbox.pending.push(pending);
        drop(inbox);
        self.0.bell.ring();
        Ok(())
    }

    /// Everything alive as of the last turn.
    pub fn view(&self) -> Arc<View> {
        self.0
            .view
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How often a view was published: another number whenever there is something else to see.
    pub fn turns(&self) -> watch::Receiver<u64> {
        self.0.turns.subscribe()
    }

    /// Why a run waits, looked at now (a job far back in a queue has no stored reason).
    pub async fn explain(&self, job: &JobId) -> Result<Option<Why>, Failure> {
        Ok(self.send(Request::Explain { job: job.clone() }).await?.why)
    }

    /// A document. Blocks for one point read.
    pub fn get(&self, key: &DocKey) -> Result<Option<Document>, StoreError> {
        self.0.store.get(key)
    }

    /// A page of documents. Blocks.
    pub fn page(&self, page: &Page) -> Result<(Vec<Document>, Option<String>), StoreError> {
        self.0.store.page(page)
    }

    /// The token of the page that goes on behind a document of such a page.
    pub fn behind(&self, page: &Page, document: &Document) -> String {
        self.0.store.behind(page, document)
    }

    /// The record of a run, alive or retired. Blocks for a point read when it is retired.
    pub fn run(&self, job: &JobId) -> Result<Option<Arc<RunRecord>>, StoreError> {
        if let Some(run) = self.view().runs.get(job) {
            return Ok(Some(run.clone()));
        }
        Ok(self.0.store.record(job)?.map(Arc::new))
    }

    /// The blob store.
    pub fn blobs(&self) -> &Arc<dyn Blobs> {
        &self.0.blobs
    }

    /// The samples.
    pub fn series(&self) -> &Arc<dyn Series> {
        &self.0.series
    }

    /// The store, for reading.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Takes no more requests, finishes the turn under way, writes a checkpoint and ends the loop. Tasks run on.
    pub fn stop(&self) {
        self.0
            .inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stopping = true;
        self.0.bell.ring();
        // Whoever waits for the next turn looks up, and sees that there may be none.
        self.0.turns.send_modify(|_| ());
    }

    /// Whether it takes no more requests: answers that go on for long end then.
    pub fn stopping(&self) -> bool {
        let inbox = self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.stopping
    }
}

/// The series that holds the node counts of a cluster: JSON of `model::view::NodeCounts` at each change.
pub fn nodes_series(compute: &model::ComputeId) -> String {
    let w = compute.workspace();
    format!("nodes/{}/{}/{}/{compute}", w.subscription, w.group, w.name).to_ascii_lowercase()
}
