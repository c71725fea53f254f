//! What outlives the process: documents, the event log, checkpoints, spans, records and series on SQLite; blobs on a folder.
//!
//! One data folder is one store. `DataFolder` holds it for one process; `Sqlite` and `Folder` live in it:
//!
//! ```text
//! DATA/lock                     who holds it
//! DATA/zaffre.db, -wal, -shm    documents, events, checkpoint, records, spans (one writer, `synchronous=FULL`)
//! DATA/series.db, -wal, -shm    samples (their own file: a burst of metrics never holds up the loop)
//! DATA/blobs/CONTAINER/…        blobs, each a plain file that tasks may read
//! DATA/blobs/.tmp, .meta        blobs being written; MD5 and metadata of those that have any
//! ```
//!
//! S1 an acknowledged write survives the loss of power; an append, a blob, a checkpoint is there whole or not at all;
//! S2 what is read back is checked (lengths, checksums, versions, numbers without gaps): a damaged row is an error that
//!    names the event, never a value;
//! S3 no path, whatever it says and whatever links lie on the disk, leads out of the blobs' folder;
//! S4 a full disk refuses writes and spoils nothing; with room again, everything goes on without a restart;
//! S5 a store written by a newer format is refused, an older one is brought up in one transaction per step.
//!
//! Of S2 there is one limit: damage to the last transactions of the WAL cannot be told from a write that a power cut tore
//! (module `sqlite::wal`); damage with acknowledged transactions behind it is refused.
//!
//! After an append failed with anything but `Conflict` or `Full` its outcome is unknown (the disk may hold it): the store
//! takes no more appends, and the process is expected to end and to load again.
//!
//! The WAL file is never cut below its steady size and not removed on close, so a commit overwrites blocks that exist
//! and its sync writes no file-system metadata. (Filling it with zeros at creation was measured and refused: it saves a
//! third of the first few hundred commits and costs tens of milliseconds before the first one.)

mod attached;
pub mod failpoint;
mod folder;
mod home;
mod reserve;
mod series;
mod sqlite;

pub use attached::{Attached, AzureCredential, Storage};
pub use failpoint::failpoint;
pub use folder::Folder;
pub use home::{DataFolder, OpenError};
pub use reserve::{RESERVE, Reserve, Short};
pub use sqlite::Sqlite;
