//! Taking parcels: a result counts if its host holds the mini-batch (B2), and then exactly once (B1).

use model::{
    BatchEvent, JobId, Parcel, Ranges, RunEvent, TaskId, Work,
    batch::{BatchOutput, RowWrite, Span},
    engine::{Cause, Finished},
    run::FirstError,
};
use std::sync::Arc;

use super::Host;
use crate::turn::{Rows, Turning};

/// What the new parcels of one task come to.
#[derive(Default)]
struct Got {
    done: Ranges,
    failed: Ranges,
    returned: Ranges,
    causes: Vec<(u32, Cause)>,
    rows: u64,
    failed_items: u64,
    short: u32,
    discarded: u32,
    header: Option<Box<str>>,
}

impl Got {
    /// Whether the host still holds `index`, this far into its parcels.
    fn holds(&self, host: &Host, index: u32) -> bool {
        host.holds(index)
            && !self.done.contains(index)
            && !self.failed.contains(index)
            && !self.returned.contains(index)
    }
}

impl Turning<'_> {
    /// Takes the parcels of a task that are not taken yet, and remembers what it has begun.
    pub fn take(&mut self, id: &TaskId) {
        let Some(seen) = self.seen.tasks.get(id) else {
            return;
        };
        let (Some(batch), Some(record)) = (self.world.batch(&id.job), self.world.run(&id.job))
        else {
            return;
        };
        let (Work::Batch(spec), Some(host)) = (&record.spec.work, batch.host(id)) else {
            return;
        };
        let collect = matches!(spec.output, BatchOutput::AppendRow { .. });
        let max_retries = spec.max_retries;
        let new = seen.mailbox.parcels.iter().filter(|p| p.seq > host.taken);
        let mut got = Got::default();
        let mut last = None;
        for parcel in new {
            last = Some(parcel.seq);
            let from = self.rows.get(&id.job).map_or(0, |r| r.bytes);
            let accepted = parcel_in(&mut got, batch, host, parcel, collect.then_some(from));
            if let Some(accepted) = accepted {
                add_rows(&mut self.rows, &id.job, accepted);
            }
        }
        let had_waiting = batch.waiting() > 0;
        let had_header = batch.header.is_some();
        if let Some(seq) = last {
            let tried = |index: &u32| batch.failures.get(index).copied().unwrap_or(0);
            let causes: Vec<_> = got
                .causes
                .into_iter()
                .map(|(index, cause)| (index, cause, tried(&index) >= max_retries))
                .collect();
            let gives_back = !got.returned.is_empty() || causes.iter().any(|(_, _, last)| !last);
            let event = BatchEvent::Taken {
                task: id.clone(),
                seq,
                done: got.done,
                rows: got.rows,
                failed_items: got.failed_items,
                short: got.short,
                returned: got.returned,
                discarded: got.discarded,
                header: got.header.filter(|_| !had_header),
            };
            self.emit_batch(&id.job, event);
            for (index, cause, last) in causes {
                self.failed(id, index, cause, last);
            }
            if gives_back && !had_waiting {
                self.refilled.insert(id.job.clone());
            }
        }
        self.note_started(id, &seen.mailbox.started);
    }

    fn failed(&mut self, id: &TaskId, index: u32, cause: Cause, last: bool) {
        let unheard = self
            .world
            .run(&id.job)
            .is_some_and(|r| r.first_error.is_none());
        if unheard {
            let error = FirstError {
                mini_batch: Some(index),
                message: cause.to_string().into(),
                task: id.index,
            };
            self.emit_run(&id.job, RunEvent::Erred { error });
        }
        let event = BatchEvent::Failed {
            task: id.clone(),
            index,
            cause,
            last,
        };
        self.emit_batch(&id.job, event);
    }

    fn note_started(&mut self, id: &TaskId, started: &Ranges) {
        let Some(host) = self.world.batch(&id.job).and_then(|b| b.host(id)) else {
            return;
        };
        if host.started == *started {
            return;
        }
        let started = started.intersection(&host.holding());
        self.world.observe_started(id, started);
    }
}

/// Rows of one parcel that count.
struct Accepted {
    pieces: Vec<Arc<[u8]>>,
    spans: Vec<Span>,
    bytes: u64,
}

/// One parcel; `from` is where its rows will lie, if rows are kept.
fn parcel_in(
    got: &mut Got,
    batch: &super::Batch,
    host: &Host,
    parcel: &Arc<Parcel>,
    from: Option<u64>,
) -> Option<Accepted> {
    let sum: u64 = parcel.done.iter().map(|f| u64::from(f.bytes)).sum();
    let sound = sum == parcel.rows.len() as u64;
    let mut spans = Vec::with_capacity(if from.is_some() { parcel.done.len() } else { 0 });
    let (mut at, mut offset) = (0usize, from.unwrap_or(0));
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for f in &parcel.done {
        let bytes = f.bytes as usize;
        let start = at;
        at += bytes;
        if !got.holds(host, f.index) {
            got.discarded += 1;
            continue;
        }
        if !sound {
            let message = format!(
                "the parcel holds {} bytes of rows, its entries say {sum}",
                parcel.rows.len()
            );
            let cause = Cause::BadResult {
                message: message.into(),
            };
            got.failed.insert(f.index);
            got.causes.push((f.index, cause));
            continue;
        }
        got.done.insert(f.index);
        got.rows += u64::from(f.rows);
        let lacking = batch.inputs(f.index).saturating_sub(f.items);
        got.failed_items += u64::from(lacking);
        got.short += u32::from(lacking > 0);
        if from.is_some() {
            spans.push(span(f, offset));
            offset += u64::from(f.bytes);
            match parts.last_mut() {
                Some(last) if last.1 == start => last.1 = at,
                _ if bytes > 0 => parts.push((start, at)),
                _ => {}
            }
        }
    }
    for f in &parcel.failed {
        if got.holds(host, f.index) {
            got.failed.insert(f.index);
            got.causes.push((f.index, f.cause.clone()));
        } else {
            got.discarded += 1;
        }
    }
    for index in parcel.returned.iter() {
        if got.holds(host, index) {
            got.returned.insert(index);
        }
    }
    if got.header.is_none() {
        got.header.clone_from(&parcel.header);
    }
    let from = from.filter(|_| !spans.is_empty())?;
    // Whole when all of it counts: no byte is copied.
    let pieces = if offset - from == parcel.rows.len() as u64 {
        vec![parcel.rows.clone()]
    } else {
        parts
            .iter()
            .map(|&(a, b)| parcel.rows[a..b].into())
            .collect()
    };
    Some(Accepted {
        pieces,
        spans,
        bytes: offset - from,
    })
}

fn span(f: &Finished, offset: u64) -> Span {
    Span {
        index: f.index,
        offset,
        len: f.bytes,
        rows: f.rows,
        crc: f.crc,
    }
}

fn add_rows(
    rows: &mut std::collections::BTreeMap<JobId, Rows>,
    run: &JobId,
    mut accepted: Accepted,
) {
    let kept = rows.entry(run.clone()).or_insert_with(|| Rows {
        write: RowWrite {
            run: run.clone(),
            pieces: Vec::new(),
            spans: Vec::new(),
        },
        bytes: 0,
    });
    accepted.pieces.retain(|p| !p.is_empty());
    kept.write.pieces.append(&mut accepted.pieces);
    kept.write.spans.append(&mut accepted.spans);
    kept.bytes += accepted.bytes;
}
