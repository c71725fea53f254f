//! ARM documents in: what a client may PUT, and what a run needs of the documents it names.
//!
//! A1 a document that was accepted is kept as it was sent; what is read into fields here is a view of it;
//! A2 enums and names compare without case, however the client spelled them;
//! A3 a field that Zaffre cannot honour is refused by name or warned about, never dropped in silence;
//! A4 nothing here panics, whatever the JSON.

pub mod asset;
pub mod attached;
pub mod batch;
pub mod component;
pub mod compute;
pub mod datastore;
pub mod field;
pub mod instance;
pub mod invalid;
pub mod invoke;
pub mod job;
pub mod kubernetes;
pub mod link;
pub mod online;
pub mod parallel;
pub mod parse;
pub mod pipeline;
pub mod quota;
pub mod resolve;
pub mod scenario;
pub mod secrets;
pub mod sweep;
pub mod target;
pub mod time;

pub use invalid::Invalid;
pub use invoke::{Invoke, batch_run};
pub use parse::{Parsed, declared, parse};
pub use pipeline::job_run;
pub use resolve::command_run;
