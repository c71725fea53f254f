//! Reports: the texts beside a batch run's logs, written by a thread of their own from what the loop has made durable.
//!
//! P1 a report follows the write of what it tells (C1), and the last one is there before the run is shown as ended;
//! P2 the loop hands reports over and goes on; only where a batch run ends it waits for the last one, at most `PATIENCE`;
//! P3 a run whose last report was lost with the server gets it at the next start.

use model::{
    BlobPath, Event, JobId, Millis, Outcome, RunEvent, RunRecord, RunState, Time, View,
    report::{Occasion, Report, Reporter, Writing},
};
use port::{BlobError, Blobs};
use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The shortest time between two lines of progress: who watches a log looks every few seconds.
const EVERY: Millis = Millis::secs(5);
/// Lines of progress come at most this often in the life of a run so far, so that a run of days has hundreds of them.
const PARTS: u64 = 50;
/// Bytes of one report: some thousand lines.
const LIMIT: usize = 256 << 10;
/// How long the end of a run waits for its last report: many times what three small files take.
const PATIENCE: Duration = Duration::from_millis(500);

/// Collects reports and has them written.
pub(crate) struct Reports {
    of: Reporter,
    /// When a run's progress was last told.
    told: BTreeMap<JobId, Time>,
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Desk {
    papers: Mutex<Papers>,
    changed: Condvar,
}

#[derive(Default)]
struct Papers {
    waiting: BTreeMap<BlobPath, (Writing, String)>,
    writing: bool,
    over: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reports {
    pub(crate) fn new(of: Reporter, blobs: Arc<dyn Blobs>) -> std::io::Result<Reports> {
        let desk = Arc::new(Desk::default());
        let mine = desk.clone();
        let thread = std::thread::Builder::new()
            .name("reports".into())
            .spawn(move || write_all(&mine, blobs.as_ref()))?;
        Ok(Reports {
            of,
            told: BTreeMap::new(),
            desk,
            thread: Some(thread),
        })
    }

    /// P3: the last reports of ended runs that have none.
    pub(crate) fn catch_up(&mut self, view: &View, blobs: &dyn Blobs) {
        for (_, run) in view.runs.iter() {
            let RunState::Done(outcome) = &run.state else {
                continue;
            };
            let last = self.last(run, outcome);
            let whole = |r: &Report| r.writing == Writing::Whole;
            let lost = |r: &Report| matches!(blobs.info(&r.path), Err(BlobError::NotFound(_)));
            if last.iter().any(|r| whole(r) && lost(r)) {
                self.put(last);
            }
        }
    }

    fn last(&self, run: &RunRecord, outcome: &Outcome) -> Vec<Report> {
        let ended = RunEvent::Finished {
            outcome: outcome.clone(),
        };
        let at = run.ended.unwrap_or(run.submitted);
        (self.of)(run, Occasion::Run(&ended), at)
    }

    /// Reports what a turn made durable.
    pub(crate) fn take(&mut self, events: &[Event], view: &View, now: Time) {
        let mut ended = false;
        for event in events {
            let (job, occasion) = match event {
                Event::Run { run, event, .. } => (run, Occasion::Run(event)),
                Event::Batch { run, event, .. } => (run, Occasion::Batch(event)),
                Event::Declared { .. }
                | Event::Withdrawn { .. }
                | Event::ComputeGone { .. }
                | Event::CapacityHeld { .. }
                | Event::Node { .. } => continue,
            };
            let reported =
                |r: &RunRecord| r.batch().is_some() || r.spec.part.is_some() || r.spec.is_parent();
            let Some(run) = view.runs.get(job).filter(|r| reported(r)) else {
                continue;
            };
            let mut reports = (self.of)(run, occasion, now);
            if let Occasion::Run(RunEvent::Finished { .. }) = occasion {
                self.told.remove(job);
                ended |= !reports.is_empty();
            } else if matches!(occasion, Occasion::Batch(_)) && self.due(run, now) {
                reports.extend((self.of)(run, Occasion::Progress, now));
            }
            self.put(reports);
        }
        if ended {
            self.settle();
        }
    }

    /// Whether the progress of a run is told now.
    fn due(&mut self, run: &RunRecord, now: Time) -> bool {
        if run.state.is_done() {
            return false;
        }
        let pause = EVERY.0.max(now.since(run.submitted).0 / PARTS);
        let told = self.told.get(&run.id).copied().unwrap_or(run.submitted);
        let due = now.since(told).0 >= pause;
        if due {
            self.told.insert(run.id.clone(), now);
        }
        due
    }

    fn put(&self, reports: Vec<Report>) {
        if reports.is_empty() {
            return;
        }
        let mut papers = self.desk.lock();
        for report in reports {
            let paper = papers
                .waiting
                .entry(report.path)
                .or_insert((Writing::Added, String::new()));
            match report.writing {
                Writing::Added if paper.1.len() > LIMIT => {}
                Writing::Added => paper.1.push_str(&report.text),
                Writing::Whole => *paper = (Writing::Whole, report.text),
            }
        }
        drop(papers);
        self.desk.changed.notify_all();
    }

    /// Waits until nothing is waiting (P1), within the limit of P2.
    fn settle(&self) {
        let end = Instant::now() + PATIENCE;
        let mut papers = self.desk.lock();
        while papers.writing || !papers.waiting.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("the last report of a run is late");
                return;
            }
            let waited = self.desk.changed.wait_timeout(papers, left);
            papers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.desk.lock().over = true;
        self.desk.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the reports panicked");
        }
    }
}

fn write_all(desk: &Desk, blobs: &dyn Blobs) {
    let mut papers = desk.lock();
    loop {
        if papers.waiting.is_empty() {
            if papers.over {
                return;
            }
            let woken = desk.changed.wait(papers);
            papers = woken.unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let all = mem::take(&mut papers.waiting);
        papers.writing = true;
        drop(papers);
        for (path, (writing, text)) in all {
            if let Err(error) = write(blobs, &path, writing, text) {
                tracing::warn!(%error, %path, "a report is lost");
            }
        }
        papers = desk.lock();
        papers.writing = false;
        desk.changed.notify_all();
    }
}

fn write(
    blobs: &dyn Blobs,
    path: &BlobPath,
    writing: Writing,
    text: String,
) -> Result<(), BlobError> {
    let mut bytes = match writing {
        Writing::Whole => Vec::new(),
        Writing::Added => match blobs.read(path, 2 * LIMIT as u64) {
            Ok(bytes) => bytes,
            Err(BlobError::NotFound(_)) => Vec::new(),
            Err(error) => return Err(error),
        },
    };
    if bytes.len() > LIMIT {
        return Ok(()); // it says so
    }
    bytes.extend_from_slice(text.as_bytes());
    if bytes.len() > LIMIT {
        let end = bytes[..LIMIT].iter().rposition(|b| *b == b'\n');
        bytes.truncate(end.map_or(0, |at| at + 1));
        let cut = format!("[zaffre] this log has reached its limit of {LIMIT} bytes\n");
        bytes.extend_from_slice(cut.as_bytes());
        bytes.resize(bytes.len().max(LIMIT + 1), b'\n');
    }
    blobs.put(path, &bytes).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::memory::MemoryBlobs;

    #[test]
    fn a_report_that_is_full_says_so_once_and_stays() {
        let (blobs, path) = (MemoryBlobs::new(), BlobPath::new("a/b").unwrap());
        for _ in 0..3 {
            let text = "0123456789abcdef\n".repeat(LIMIT / 34);
            write(&blobs, &path, Writing::Added, text).unwrap();
        }
        write(&blobs, &path, Writing::Added, "more\n".into()).unwrap();
        let text = String::from_utf8(blobs.read(&path, 1 << 20).unwrap()).unwrap();
        assert!(text.len() < LIMIT + 100, "{}", text.len());
        assert_eq!(text.matches("has reached its limit").count(), 1);
        assert!(text.trim_end().ends_with("bytes") && !text.contains("more"));
        write(&blobs, &path, Writing::Whole, "new\n".into()).unwrap();
        assert_eq!(blobs.read(&path, 9).unwrap(), b"new\n");
    }
}
