//! Texts for people beside the logs of a run: how far it is, how it ended. Derived from events and records, never read back
//! by the program.

use crate::{
    batch::BatchSpec,
    engine::BlobPath,
    event::{BatchEvent, RunEvent},
    run::{RunRecord, Work},
    unit::Time,
};

/// What a report is about.
#[derive(Clone, Copy, Debug)]
pub enum Occasion<'a> {
    /// Something happened to the run.
    Run(&'a RunEvent),
    /// Something happened to its mini-batches.
    Batch(&'a BatchEvent),
    /// Some time has passed, and mini-batches were committed in it.
    Progress,
}

/// How a report goes into its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// Behind what is there.
    Added,
    /// Instead of what is there.
    Whole,
}

/// A text and the file it goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The file.
    pub path: BlobPath,
    /// Whole lines.
    pub text: String,
    /// How.
    pub writing: Writing,
}

/// What there is to report of a run on an occasion. The spelling of names and texts is `wire`'s.
pub type Reporter = fn(&RunRecord, Occasion<'_>, Time) -> Vec<Report>;

impl RunRecord {
    /// Whether it is the job of a batch endpoint, whose one step has a name of its own. The other batch runs are the parallel
    /// steps of pipelines.
    pub fn is_batch_job(&self) -> bool {
        self.batch().is_some() && self.spec.part.is_none()
    }
    /// What a batch run does; `None` for another.
    pub fn batch(&self) -> Option<&BatchSpec> {
        match &self.spec.work {
            Work::Batch(spec) => Some(spec),
            Work::Command | Work::Pipeline(_) | Work::Sweep(_) => None,
        }
    }
}
