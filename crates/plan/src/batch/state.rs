//! What the World keeps of a batch run beside its numbers (`model::Progress`): which mini-batches are done, waiting, lent.
//!
//! An index is in exactly one place: `done`, `failed`, lent to one host, `front`, or the untouched tail from `next` on.

use model::{Attempt, Ranges, TaskId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::bits::Bits;

/// The mini-batches of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    pub(crate) done: Bits,
    pub(crate) failed: Ranges,
    /// Failed or given back: next in line, before the tail.
    pub(crate) front: Ranges,
    /// From here on nothing was lent yet. Indices that are done already (a resume) are passed over.
    pub(crate) next: u32,
    pub(crate) hosts: BTreeMap<u32, Host>,
    /// Failed attempts by index, of indices that failed at all.
    pub(crate) failures: BTreeMap<u32, u32>,
    /// Losses while started by index; kept only where `max_preemptions` asks.
    pub(crate) losses: BTreeMap<u32, u32>,
    /// How many are lent.
    pub(crate) lent: u32,
    /// Files, and files per mini-batch.
    pub(crate) files: u64,
    pub(crate) group: u32,
    /// Items of done mini-batches without a returned element.
    pub(crate) short_items: u64,
    pub(crate) header: Option<Box<str>>,
    /// Hosts that ended by themselves since the last commit.
    pub(crate) crashes: u32,
}

/// One host of a batch run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    pub(crate) attempt: Attempt,
    /// What it holds, by lend: a lend shrinks as its indices end and goes when none is left.
    pub(crate) lends: Vec<(u64, Ranges)>,
    /// The number of the last lend.
    pub(crate) lend: u64,
    /// The last parcel taken.
    pub(crate) taken: u64,
    /// How many it held just after the last lend.
    pub(crate) goal: u32,
    /// When that was.
    pub(crate) lent_at: Time,
    /// What it has begun, as last seen. Not a fact: observed again after a restart.
    #[serde(skip)]
    pub(crate) started: Ranges,
}

/// Two hosts are the same when the facts are: what they were seen to have begun is none.
impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        self.attempt == other.attempt
            && self.lends == other.lends
            && (self.lend, self.taken, self.goal, self.lent_at)
                == (other.lend, other.taken, other.goal, other.lent_at)
    }
}
impl Eq for Host {}

impl Host {
    pub(crate) fn new(attempt: Attempt) -> Self {
        Host {
            attempt,
            ..Host::default()
        }
    }
    /// Whether it holds `index` (B2).
    pub fn holds(&self, index: u32) -> bool {
        self.lends.iter().any(|(_, l)| l.contains(index))
    }
    /// How many it holds.
    pub fn held(&self) -> u32 {
        self.lends.iter().map(|(_, l)| l.len()).sum()
    }
    /// All that it holds.
    pub fn holding(&self) -> Ranges {
        let mut all = Ranges::new();
        for (_, lend) in &self.lends {
            all.extend(lend);
        }
        all
    }
    /// Takes `indices` away from it; returns how many it held of them.
    pub(crate) fn release(&mut self, indices: &Ranges) -> u32 {
        let before = self.held();
        for (_, lend) in &mut self.lends {
            lend.subtract(indices);
        }
        self.lends.retain(|(_, l)| !l.is_empty());
        before - self.held()
    }
}

impl Batch {
    /// Lets go what only a running batch needs; what is done stays for a resume.
    pub(crate) fn rest(&mut self) {
        self.front = Ranges::new();
        self.hosts.clear();
        self.failures.clear();
        self.losses.clear();
        self.lent = 0;
    }
    /// A run of `files` in groups of `group`: `total` mini-batches.
    pub(crate) fn list(&mut self, files: u64, group: u32, total: u32) {
        self.done = Bits::new(total);
        self.files = files;
        self.group = group;
    }
    /// Whether the rows of `index` are committed (B1).
    pub fn is_done(&self, index: u32) -> bool {
        self.done.contains(index)
    }
    /// The committed mini-batches.
    pub fn done(&self) -> Ranges {
        self.done.ranges()
    }
    /// Mini-batches there are; 0 before the input is listed.
    pub fn total(&self) -> u32 {
        self.done.len()
    }
    /// Mini-batches that are neither done, nor failed for good, nor lent.
    pub fn waiting(&self) -> u32 {
        self.total() - self.done.count() - self.failed.len() - self.lent
    }
    /// Whether nothing is left to do.
    pub(crate) fn complete(&self) -> bool {
        self.done.count() + self.failed.len() == self.total()
    }
    /// Items of one mini-batch: the last one may be smaller.
    pub(crate) fn inputs(&self, index: u32) -> u32 {
        let start = u64::from(index) * u64::from(self.group);
        let left = self.files.saturating_sub(start);
        u32::try_from(left).map_or(self.group, |left| left.min(self.group))
    }
    /// Items of all committed mini-batches.
    pub(crate) fn done_inputs(&self) -> u64 {
        let Some(last) = self.total().checked_sub(1) else {
            return 0;
        };
        let whole = u64::from(self.done.count()) * u64::from(self.group);
        if self.done.contains(last) {
            whole - u64::from(self.group - self.inputs(last))
        } else {
            whole
        }
    }
    /// The live host that `task` is, if it is one.
    pub fn host(&self, task: &TaskId) -> Option<&Host> {
        self.hosts
            .get(&task.index)
            .filter(|h| h.attempt == task.attempt)
    }
    pub(crate) fn host_mut(&mut self, task: &TaskId) -> Option<&mut Host> {
        self.hosts
            .get_mut(&task.index)
            .filter(|h| h.attempt == task.attempt)
    }
    /// The next `most` waiting indices: the front, then the tail.
    pub(crate) fn pick(&self, most: u32) -> Ranges {
        let mut out = Ranges::new();
        let mut left = most;
        for &(start, end) in self.front.spans() {
            if left == 0 {
                return out;
            }
            let end = end.min(start.saturating_add(left));
            out.insert_span(start, end);
            left -= end - start;
        }
        let mut at = self.next;
        while left > 0
            && let Some((start, end)) = self.done.gap(at, left)
        {
            out.insert_span(start, end);
            left -= end - start;
            at = end;
        }
        out
    }
}
