//! Answers out: `model` → the JSON that the SDK, `az` and REST clients read, in the shapes of the recorded samples.
//!
//! W1 a document comes back as it was sent, with canonical enums, filled defaults and what only the server knows;
//! W2 no field is null that the SDK dereferences (wire §3);
//! W3 a secret never comes back;
//! W4 what is shown is computed from the document and the published `View`: there is no status that could be stale.

pub mod asset;
pub mod batch;
pub mod compute;
pub mod datastore;
pub mod envelope;
pub mod history;
pub mod job;
pub mod online;
pub mod operation;
pub mod report;
pub mod status;
pub mod usage;
pub mod workspace;

pub use envelope::Site;
