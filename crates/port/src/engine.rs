//! Engines: what runs nodes and tasks.

use model::{Action, Observed};

/// Runs nodes and tasks; knows nothing of jobs. Rings the bell that it was made with whenever something changed.
pub trait Engine: Send + Sync {
    /// Everything there is (complete, never a delta), with marks of what changed since the last call. Reads memory only.
    fn observe(&self) -> Observed;
    /// Begins these actions; returns at once. Idempotent; failures show in what is observed next.
    fn apply(&self, actions: Vec<Action>);
}
