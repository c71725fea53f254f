//! What has to be looked at when time passes: at most one entry for each subject.

use model::{ComputeId, JobId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// Idle nodes, pauses, holds of a cluster.
    Pool(ComputeId),
    /// The limit of a run.
    Run(JobId),
    /// Finished runs.
    Retire,
}

/// When. Not stored: the first turn after a restart looks at everything and sets all of them anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    times: BTreeMap<Due, Time>,
    queue: BTreeSet<(Time, Due)>,
}

impl Timers {
    /// Looks at `due` at `at`, or not at all; replaces what was set before.
    pub fn set(&mut self, due: Due, at: Option<Time>) {
        if self.times.get(&due).copied() == at {
            return;
        }
        if let Some(before) = self.times.remove(&due) {
            self.queue.remove(&(before, due.clone()));
        }
        if let Some(at) = at {
            self.queue.insert((at, due.clone()));
            self.times.insert(due, at);
        }
    }
    /// The next subject that is due.
    pub fn pop(&mut self, now: Time) -> Option<Due> {
        let (at, _) = self.queue.first()?;
        if *at > now {
            return None;
        }
        let (_, due) = self.queue.pop_first()?;
        self.times.remove(&due);
        Some(due)
    }
    /// When the next one is due.
    pub fn first(&self) -> Option<Time> {
        self.queue.first().map(|(at, _)| *at)
    }
}
