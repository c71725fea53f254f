//! The holes in the wall: everything impure that the core needs, and nothing else.
//!
//! All of it is blocking and free of any async runtime: the loop is one thread, errands are threads, and whoever is async
//! (`api`) calls from a blocking pool. `contract` holds the tests that every adapter must pass.
//!
//! P1 what a call has acknowledged is durable;
//! P2 nothing half-written is ever visible: a blob is unseen until it is whole, an append is all or nothing;
//! P3 a wake-up carries no data: who is woken looks at everything again.

pub mod bell;
pub mod blobs;
pub mod clock;
pub mod contract;
pub mod engine;
pub mod listing;
pub mod memory;
pub mod store;

pub use bell::Bell;
pub use blobs::{BlobError, BlobInfo, BlobWriter, Blobs, FLEETING};
pub use clock::Machine;
pub use engine::Engine;
pub use store::{Append, Loaded, Page, SERIES_KEPT, Series, Store, StoreError};

use model::Time;

/// Time as the loop sees it.
pub trait Clock: Send + Sync {
    /// Now, never earlier than an answer given before, across restarts as far as the store knows.
    fn now(&self) -> Time;
}
