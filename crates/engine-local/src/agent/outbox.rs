//! Parcels on their way: what a pool has done, kept until the server says that it is durable.
//!
//! O1 parcels are numbered from 1 without gaps and never change;
//! O2 a parcel is dropped only when acknowledged;
//! O4 where files of a result are elsewhere, its parcel is told only after they are there: what is acknowledged is whole;
//! O3 an index is in `started` from the moment a worker begins it until a parcel tells how it ended.

use model::{
    Parcel, Ranges,
    engine::{Cause, FailedAttempt, Finished},
};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

/// A parcel leaves at the latest this long after its first result: what a result waits for while others still run.
pub const AGE: Duration = Duration::from_millis(5);
/// Rows of one parcel, after which it leaves at once.
const PARCEL_BYTES: usize = 256 << 10;
/// Unacknowledged rows above which workers pause: minutes of work while the server is away, and a bound of memory.
pub const MAX_BYTES: usize = 64 << 20;
/// Unacknowledged results above which workers pause (each costs about 40 bytes).
pub const MAX_RESULTS: usize = 200_000;

/// The parcel being filled and the ones that wait for their acknowledgement.
#[derive(Debug, Default)]
pub struct Outbox {
    done: Vec<Finished>,
    rows: Vec<u8>,
    failed: Vec<FailedAttempt>,
    returned: Ranges,
    header: Option<Box<str>>,
    since: Option<Instant>,
    seq: u64,
    acked: u64,
    waiting: VecDeque<Arc<Parcel>>,
    waiting_bytes: usize,
    waiting_results: usize,
    /// Highest parcel whose files are where they belong; `None`: they always are.
    settled: Option<u64>,
    /// Settled, and not told yet: the first one.
    tell_from: Option<u64>,
}

impl Outbox {
    /// A finished index with its rows.
    pub fn done(&mut self, index: u32, items: u32, rows: u32, payload: &[u8], now: Instant) {
        let bytes = u32::try_from(payload.len()).expect("answers are below MAX_FRAME");
        self.done.push(Finished {
            index,
            items,
            rows,
            bytes,
            crc: crc32fast::hash(payload),
        });
        self.rows.extend_from_slice(payload);
        self.since.get_or_insert(now);
    }
    /// A failed attempt.
    pub fn failed(&mut self, index: u32, cause: Cause, now: Instant) {
        self.failed.push(FailedAttempt { index, cause });
        self.since.get_or_insert(now);
    }
    /// Indices that were never begun.
    pub fn returned(&mut self, start: u32, end: u32, now: Instant) {
        self.returned.insert_span(start, end);
        self.since.get_or_insert(now);
    }
    /// Column names; the first ones count.
    pub fn header(&mut self, line: &str, now: Instant) {
        if self.header.is_none() {
            self.header = Some(line.into());
            self.since.get_or_insert(now);
        }
    }
    /// When the parcel being filled must leave.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|s| s + AGE)
    }
    /// Whether it is so full that it leaves at once.
    pub fn full(&self) -> bool {
        self.rows.len() >= PARCEL_BYTES
    }
    /// Whether more work would only pile up.
    pub fn crowded(&self) -> bool {
        self.waiting_bytes + self.rows.len() >= MAX_BYTES
            || self.waiting_results + self.done.len() >= MAX_RESULTS
    }
    /// Closes the parcel being filled.
    pub fn close(&mut self) -> Option<Arc<Parcel>> {
        self.since.take()?;
        self.seq += 1;
        let room = self.done.len();
        let parcel = Arc::new(Parcel {
            seq: self.seq,
            done: std::mem::replace(&mut self.done, Vec::with_capacity(room)),
            rows: Arc::from(&self.rows[..]),
            failed: std::mem::take(&mut self.failed),
            returned: std::mem::take(&mut self.returned),
            // Told with every parcel that follows, so that it outlives the one that brought it.
            header: self.header.clone(),
        });
        self.rows.clear();
        if self.rows.capacity() > 4 * PARCEL_BYTES {
            self.rows.shrink_to(PARCEL_BYTES);
        }
        self.waiting_bytes += parcel.rows.len();
        self.waiting_results += parcel.done.len();
        self.waiting.push_back(parcel.clone());
        Some(parcel)
    }
    /// Parcels up to `seq` are durable (O2).
    pub fn ack(&mut self, seq: u64) {
        while let Some(first) = self.waiting.front().filter(|p| p.seq <= seq) {
            self.waiting_bytes -= first.rows.len();
            self.waiting_results -= first.done.len();
            self.acked = first.seq;
            self.waiting.pop_front();
        }
    }
    /// Whether nothing is to be told, and all that was told is durable.
    pub fn is_empty(&self) -> bool {
        self.since.is_none() && self.waiting.is_empty()
    }
    /// Highest acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked
    }
    /// Files of results are not where they belong before `settle` says so (O4).
    pub fn files_are_elsewhere(&mut self) {
        self.settled = Some(0);
    }
    /// The highest parcel whose files must be brought home before it can be told.
    pub fn unsettled(&self) -> Option<u64> {
        self.settled.filter(|settled| *settled < self.seq)?;
        Some(self.seq)
    }
    /// The files of all results up to this parcel are where they belong.
    pub fn settle(&mut self, seq: u64) {
        if let Some(settled) = self.settled.as_mut().filter(|settled| **settled < seq) {
            self.tell_from.get_or_insert(*settled + 1);
            *settled = seq;
        }
    }
    fn may_be_told(&self, seq: u64) -> bool {
        self.settled.is_none_or(|settled| seq <= settled)
    }
    /// Those that became tellable since the last call, ascending.
    pub fn settled_now(&mut self) -> Vec<Arc<Parcel>> {
        let Some(from) = self.tell_from.take() else {
            return Vec::new();
        };
        let told = self.waiting.iter().filter(|p| p.seq >= from);
        told.filter(|p| self.may_be_told(p.seq)).cloned().collect()
    }
    /// What has ended and is in no parcel that was told (O3).
    pub fn untold(&self) -> Ranges {
        let held = self.waiting.iter().rev();
        let held = held.take_while(|p| !self.may_be_told(p.seq));
        let held = held.flat_map(|p| ended(&p.done, &p.failed));
        let mut all: Vec<u32> = held.chain(ended(&self.done, &self.failed)).collect();
        all.sort_unstable();
        all.into_iter().collect()
    }
    /// Those that wait and may be told, ascending.
    pub fn waiting(&self) -> impl Iterator<Item = &Arc<Parcel>> {
        self.waiting.iter().filter(|p| self.may_be_told(p.seq))
    }
}

fn ended<'a>(done: &'a [Finished], failed: &'a [FailedAttempt]) -> impl Iterator<Item = u32> + 'a {
    let failed = failed.iter().map(|f| f.index);
    done.iter().map(|d| d.index).chain(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o4_what_has_files_elsewhere_is_told_after_they_are_home_and_counts_as_started_until_then() {
        let mut out = Outbox::default();
        let now = Instant::now();
        out.files_are_elsewhere();
        for index in [4, 7] {
            out.done(index, 1, 1, b"", now);
            out.close();
        }
        out.done(9, 1, 1, b"", now);
        assert_eq!((out.waiting().count(), out.unsettled()), (0, Some(2)));
        assert_eq!(out.untold().spans(), [(4, 5), (7, 8), (9, 10)]);
        out.settle(1);
        assert_eq!(out.waiting().map(|p| p.seq).collect::<Vec<_>>(), [1]);
        assert_eq!(out.settled_now().len(), 1);
        assert!(out.settled_now().is_empty(), "told once");
        assert_eq!(out.untold().spans(), [(7, 8), (9, 10)]);
        out.settle(2);
        out.settle(1);
        assert_eq!((out.unsettled(), out.settled_now().len()), (None, 1));
        out.ack(2);
        assert!(!out.is_empty(), "9 is in no parcel yet");
    }

    #[test]
    fn parcels_are_numbered_and_stay_until_acknowledged() {
        let mut out = Outbox::default();
        let now = Instant::now();
        assert!(out.close().is_none(), "nothing happened, nothing is told");
        out.done(4, 1, 1, b"a\n", now);
        out.done(5, 2, 2, b"b\nc\n", now);
        let first = out.close().unwrap();
        assert_eq!(
            (first.seq, first.done.len(), &first.rows[..]),
            (1, 2, &b"a\nb\nc\n"[..])
        );
        out.returned(6, 9, now);
        assert_eq!(out.close().unwrap().seq, 2);
        out.ack(1);
        out.ack(1);
        assert_eq!(out.waiting().map(|p| p.seq).collect::<Vec<_>>(), [2]);
        assert_eq!(out.acked(), 1);
    }

    #[test]
    fn it_is_crowded_by_bytes_and_by_results() {
        let mut out = Outbox::default();
        let now = Instant::now();
        out.done(0, 1, 1, &vec![b'x'; MAX_BYTES], now);
        assert!(out.full() && out.crowded());
        out.close();
        assert!(out.crowded());
        out.ack(1);
        assert!(!out.crowded());
    }
}
