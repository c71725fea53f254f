//! Batch runs: a numbered list of mini-batches, lent to hosts as index ranges, committed at most once each.
//!
//! B1 a mini-batch whose rows are committed never leaves `done`;
//! B2 only the task that holds a mini-batch can commit or fail it; anything else is stale and dropped;
//! B3 a lost host costs at most the mini-batches it had *started*; unstarted ones return free;
//! B4 losing a host spends no retry; failures and preemptions are counted apart;
//! B5 the output holds the rows of each done mini-batch exactly once, in index order.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::{engine::BlobPath, id::JobId, unit::Millis};

/// A set of mini-batch indices as sorted, disjoint, non-adjacent half-open ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// No index.
    pub const fn new() -> Self {
        Ranges(Vec::new())
    }
    /// `start..end`; empty when `start >= end`.
    pub fn span(start: u32, end: u32) -> Self {
        if start < end {
            Ranges(vec![(start, end)])
        } else {
            Ranges::new()
        }
    }
    /// The ranges, ascending.
    pub fn spans(&self) -> &[(u32, u32)] {
        &self.0
    }
    /// Whether there is no index.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// How many indices.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|(a, b)| b - a).sum()
    }
    /// Whether `index` is in.
    pub fn contains(&self, index: u32) -> bool {
        let at = self.0.partition_point(|&(_, end)| end <= index);
        self.0.get(at).is_some_and(|&(start, _)| start <= index)
    }
    /// Every index, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|&(a, b)| a..b)
    }
    /// The smallest index.
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|r| r.0)
    }
    /// Puts `start..end` in. Appending at the end is O(1).
    pub fn insert_span(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        if let Some(last) = self.0.last_mut() {
            if last.1 == start {
                last.1 = end;
                return;
            }
            if last.1 > start {
                return self.merge(start, end);
            }
        }
        self.0.push((start, end));
    }
    fn merge(&mut self, start: u32, end: u32) {
        let from = self.0.partition_point(|&(_, e)| e < start);
        let to = self.0.partition_point(|&(s, _)| s <= end);
        let (mut a, mut b) = (start, end);
        if let Some(&(s, _)) = self.0[from..to].first() {
            a = a.min(s);
        }
        if let Some(&(_, e)) = self.0[from..to].last() {
            b = b.max(e);
        }
        self.0.splice(from..to, [(a, b)]);
    }
    /// Puts one index in.
    pub fn insert(&mut self, index: u32) {
        self.insert_span(index, index + 1);
    }
    /// Puts all of `other` in.
    pub fn extend(&mut self, other: &Ranges) {
        for &(a, b) in &other.0 {
            self.insert_span(a, b);
        }
    }
    /// Takes `start..end` out.
    pub fn remove_span(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        let from = self.0.partition_point(|&(_, e)| e <= start);
        let to = self.0.partition_point(|&(s, _)| s < end);
        if from >= to {
            return;
        }
        let head = (self.0[from].0, start);
        let tail = (end, self.0[to - 1].1);
        self.0
            .splice(from..to, [head, tail].into_iter().filter(|(a, b)| a < b));
    }
    /// Takes one index out.
    pub fn remove(&mut self, index: u32) {
        self.remove_span(index, index + 1);
    }
    /// Takes all of `other` out.
    pub fn subtract(&mut self, other: &Ranges) {
        for &(a, b) in &other.0 {
            self.remove_span(a, b);
        }
    }
    /// What is in both.
    pub fn intersection(&self, other: &Ranges) -> Ranges {
        let (mut i, mut j, mut out) = (0, 0, Ranges::new());
        while let (Some(&(a, b)), Some(&(c, d))) = (self.0.get(i), other.0.get(j)) {
            out.insert_span(a.max(c), b.min(d));
            if b < d {
                i += 1;
            } else {
                j += 1;
            }
        }
        out
    }
    /// Takes the first `n` indices out and returns them.
    pub fn take_front(&mut self, n: u32) -> Ranges {
        let (mut left, mut out) = (n, Ranges::new());
        let mut used = 0;
        for span in &mut self.0 {
            if left == 0 {
                break;
            }
            let take = left.min(span.1 - span.0);
            out.insert_span(span.0, span.0 + take);
            left -= take;
            if span.0 + take == span.1 {
                used += 1;
            } else {
                span.0 += take;
            }
        }
        self.0.drain(..used);
        out
    }
}
impl FromIterator<u32> for Ranges {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> Self {
        let mut out = Ranges::new();
        for i in indices {
            out.insert(i);
        }
        out
    }
}

/// What becomes of the rows that `run()` returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchOutput {
    /// All rows into one file, in input order.
    AppendRow {
        /// `output_file_name`.
        file: Box<str>,
    },
    /// Rows are only counted; the script writes its own files.
    SummaryOnly,
}

/// What a run does when preemption leaves its cluster empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnCapacityLoss {
    /// Canceled, as Azure does.
    Cancel,
    /// Stays queued and goes on when capacity returns (`zaffre.on_capacity_loss: wait`).
    Wait,
}

/// What a batch run does, besides what its tasks execute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSpec {
    /// The input: a blob, or a folder of blobs when `input_is_folder`.
    pub input: BlobPath,
    /// Whether `input` is a folder.
    pub input_is_folder: bool,
    /// The input of the task that `input` is, in a step of a pipeline: where that lies is known when the step is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_from: Option<Box<str>>,
    /// Files per mini-batch, at least 1.
    pub mini_batch_size: u32,
    /// Python workers per node (`max_concurrency_per_instance`), at least 1.
    pub workers_per_node: u32,
    /// Further attempts after the first; attempts = `max_retries` + 1.
    pub max_retries: u32,
    /// Limit of one `run()` call.
    pub timeout: Millis,
    /// More failed items than this end the run; -1 ignores all.
    pub error_threshold: i64,
    /// More mini-batches than this that failed, or returned fewer elements than they had items, end the run; -1 ignores all.
    #[serde(default = "any_number", skip_serializing_if = "is_any_number")]
    pub mini_batch_error_threshold: i64,
    /// More of them than this percentage of all end the run.
    #[serde(default = "all_of_them", skip_serializing_if = "is_all_of_them")]
    pub allowed_failed_percent: u32,
    /// Where rows go.
    pub output: BatchOutput,
    /// Folder that holds the output file (and custom outputs).
    pub output_folder: BlobPath,
    /// The file that committed rows are appended to until the output is published.
    pub segment: BlobPath,
    /// R-61 or wait.
    pub on_capacity_loss: OnCapacityLoss,
    /// Optional cap of preemptions per mini-batch (`zaffre.max_preemptions`).
    pub max_preemptions: Option<u32>,
    /// Take over the finished mini-batches of this cancelled run.
    pub resume_from: Option<JobId>,
    /// Digest of model, code and settings: what must be equal for a resume.
    pub fingerprint: Box<str>,
}

/// The threshold that ignores every failure.
pub const ANY_NUMBER: i64 = -1;
/// The percentage that ignores every failure.
pub const ALL_OF_THEM: u32 = 100;

fn any_number() -> i64 {
    ANY_NUMBER
}
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_any_number(threshold: &i64) -> bool {
    *threshold == ANY_NUMBER
}
fn all_of_them() -> u32 {
    ALL_OF_THEM
}
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_all_of_them(percent: &u32) -> bool {
    *percent == ALL_OF_THEM
}
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub(crate) fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl BatchSpec {
    /// The folder that the paths of its listing are relative to: the input itself, or the one that the input file lies in.
    /// `None` when the input file is a whole container.
    pub fn root(&self) -> Option<BlobPath> {
        if self.input_is_folder {
            return Some(self.input.clone());
        }
        let (folder, _) = self.input.as_str().rsplit_once('/')?;
        BlobPath::new(folder)
    }
}

/// Where one mini-batch's rows lie in the run's segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The mini-batch.
    pub index: u32,
    /// First byte in the segment.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Rows.
    pub rows: u32,
    /// CRC-32 of the bytes.
    pub crc: u32,
}

/// Rows that a turn commits for one run: written to the run's segment first, then their spans in the turn's transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    /// The run.
    pub run: JobId,
    /// The bytes, in order.
    pub pieces: Vec<Arc<[u8]>>,
    /// Where each mini-batch lies, offsets counted from the first piece.
    pub spans: Vec<Span>,
}

/// A batch run as others see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Whether the input is listed; the numbers below are 0 before.
    pub listed: bool,
    /// Files of the input.
    pub files: u64,
    /// Mini-batches there are.
    pub total: u32,
    /// Committed.
    pub done: u32,
    /// Failed for good.
    pub failed: u32,
    /// Lent at the moment.
    pub lent: u32,
    /// Started and neither committed nor failed.
    pub started: u32,
    /// Rows committed.
    pub rows: u64,
    /// Committed with fewer returned elements than items.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub short: u32,
    /// Items that failed: inputs without a returned element, and all inputs of failed mini-batches.
    pub failed_items: u64,
    /// Attempts that failed and were given back.
    pub retries: u64,
    /// Nodes taken away while this run held them.
    pub preemptions: u64,
    /// Mini-batches that were started, lost with their node, and run again.
    pub rerun: u64,
    /// Results that came for a mini-batch no longer held, and were dropped.
    pub discarded: u64,
    /// Mini-batches taken over from the run it resumes.
    pub resumed: u32,
    /// Digest of the listing.
    pub digest: Box<str>,
    /// Bytes of the published file, once there.
    pub published: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A small generator, so that the test needs no dependency: xorshift.
    fn draws(mut seed: u64) -> impl FnMut(u32) -> u32 {
        move |n| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            u32::try_from(seed % u64::from(n)).unwrap()
        }
    }

    #[test]
    fn ranges_are_the_set_they_say() {
        for seed in 1..200 {
            let mut draw = draws(seed * 7919);
            let (mut ranges, mut set) = (Ranges::new(), BTreeSet::new());
            for _ in 0..60 {
                let (a, n) = (draw(50), draw(9));
                match draw(4) {
                    0 => {
                        ranges.remove_span(a, a + n);
                        set.retain(|i| !(a..a + n).contains(i));
                    }
                    1 => {
                        let front = ranges.take_front(n);
                        for i in front.iter() {
                            assert_eq!(set.pop_first(), Some(i));
                        }
                    }
                    2 => {
                        let other: Ranges = (0..n).map(|i| a + i * 2).collect();
                        let both: BTreeSet<u32> =
                            other.iter().filter(|i| set.contains(i)).collect();
                        assert_eq!(
                            ranges.intersection(&other).iter().collect::<BTreeSet<_>>(),
                            both
                        );
                        ranges.extend(&other);
                        set.extend(other.iter());
                    }
                    _ => {
                        ranges.insert_span(a, a + n);
                        set.extend(a..a + n);
                    }
                }
                assert_eq!(
                    ranges.iter().collect::<Vec<_>>(),
                    set.iter().copied().collect::<Vec<_>>()
                );
                assert_eq!(ranges.len() as usize, set.len());
                assert!((0..60).all(|i| ranges.contains(i) == set.contains(&i)));
                assert!(
                    ranges.spans().windows(2).all(|w| w[0].1 < w[1].0),
                    "merged and sorted"
                );
            }
        }
    }
}
