//! One turn after another (see the invariants in the crate's documentation).

use model::{
    Action, Answer, BlobPath, Command, DocKey, Document, Event, JobId, Kind, NodeId, Outcome,
    Refusal, RunEvent, Time, View, Work, batch::Span,
};
use plan::{Resumable, Turn, Versions, World};
use port::{Append, Page, StoreError};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};
use tokio::sync::watch;

use crate::{
    Condition, Control, Done, Failure, Inbox, Loop, Parts, Pending, Put, Request, Shared,
    StartError, errand::Errands, load, report::Reports,
};

/// How often everything is looked at, marked or not: the net under a lost wake-up.
const SLOW: Duration = Duration::from_secs(1);
/// How long after a write that found no space the next one is tried.
const RETRY: model::Millis = model::Millis(1000);
/// Requests of one turn: enough to share a write, few enough that the first does not wait for the last.
const TURN_REQUESTS: usize = 4096;
/// Events between two checkpoints: replaying so many takes some ten milliseconds.
const CHECKPOINT_EVENTS: u64 = 5000;
/// Versions of an asset that are read at once.
const VERSIONS_PAGE: usize = 1000;
/// Documents removed below a parent in one turn.
const CHILDREN_LIMIT: usize = 1000;

/// Part of the time of the last write that the first of several requests waits for the others, and the most of it.
const GATHER_PART: u32 = 4;
const GATHER_LIMIT: Duration = Duration::from_millis(1);

/// How long a turn is put off when `pending` requests are there, `answered` were answered together by the last write, and that
/// took `wrote`. Clients that were answered together ask again together: the first of them alone would take a write of its own,
/// and all others would wait for two. One that asks alone, or finds all of them there, never waits.
fn gathering(pending: usize, answered: usize, wrote: Duration) -> Duration {
    if pending == 0 || pending >= answered {
        return Duration::ZERO;
    }
    (wrote / GATHER_PART).min(GATHER_LIMIT)
}

struct Machine {
    parts: Parts,
    shared: Arc<Shared>,
    errands: Errands,
    reports: Reports,
    world: World,
    seq: u64,
    checkpoint: u64,
    last: Time,
    /// Requests of the last write that had any, and how long it took.
    answered: usize,
    wrote: Duration,
}

pub(crate) fn start(parts: Parts) -> Result<(Control, Loop), StartError> {
    let (world, seq) = load::world(parts.store.as_ref(), parts.read)?;
    let shared = Arc::new(Shared {
        store: parts.store.clone(),
        blobs: parts.blobs.clone(),
        series: parts.series.clone(),
        bell: parts.bell.clone(),
        inbox: Mutex::new(Inbox::default()),
        view: RwLock::new(Arc::new(world.view.clone())),
        turns: watch::Sender::new(0),
    });
    let errands = Errands::new(parts.store.clone(), parts.blobs.clone(), parts.bell.clone());
    let mut reports =
        Reports::new(parts.report, parts.blobs.clone()).map_err(StartError::Thread)?;
    reports.catch_up(&world.view, parts.blobs.as_ref());
    let mut machine = Machine {
        checkpoint: seq,
        parts,
        shared: shared.clone(),
        errands,
        reports,
        world,
        seq,
        last: Time::default(),
        answered: 0,
        wrote: Duration::ZERO,
    };
    let thread = std::thread::Builder::new()
        .name("loop".into())
        .spawn(move || {
            let end = machine.run();
            machine.shut();
            end
        })
        .map_err(StartError::Thread)?;
    Ok((Control(shared), thread))
}

/// What a request became on its way into `decide`.
enum Sorted {
    /// The n-th command; what to answer besides.
    Command(usize, Box<Done>),
    /// Answered without a decision.
    Ready(Box<Result<Done, Failure>>),
}

impl Machine {
    fn run(&mut self) -> Result<(), StoreError> {
        let mut look_at_all = true;
        let mut wait = Duration::ZERO;
        let mut slow_at = std::time::Instant::now();
        loop {
            self.parts.bell.wait(wait);
            self.gather();
            let (pending, stopping) = self.take();
            if slow_at.elapsed() >= SLOW {
                look_at_all = true;
                slow_at = std::time::Instant::now();
            }
            let wake = self.turn(pending, look_at_all)?;
            look_at_all = false;
            if stopping {
                let bytes = load::snapshot(&self.world)?;
                return self.parts.store.checkpoint(self.seq, &bytes);
            }
            wait = wake
                .map_or(SLOW, |at| Duration::from_millis(at.since(self.last).0))
                .min(SLOW);
        }
    }

    /// Waits for those who are likely to ask at this moment, too (`gathering`).
    fn gather(&self) {
        let begun = std::time::Instant::now();
        loop {
            let pending = {
                let inbox = self.shared.inbox.lock();
                let inbox = inbox.unwrap_or_else(PoisonError::into_inner);
                if inbox.stopping {
                    return;
                }
                inbox.pending.len()
            };
            let limit = gathering(pending, self.answered, self.wrote);
            let Some(left) = limit.checked_sub(begun.elapsed()).filter(|l| !l.is_zero()) else {
                return;
            };
            self.parts.bell.wait(left);
        }
    }

    fn take(&self) -> (Vec<Pending>, bool) {
        let mut inbox = self
            .shared
            .inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let n = inbox.pending.len().min(TURN_REQUESTS);
        let taken = inbox.pending.drain(..n).collect();
        if !inbox.pending.is_empty() {
            self.parts.bell.ring();
        }
        (taken, inbox.stopping && inbox.pending.is_empty())
    }

    /// One turn; returns when the next one is due at the latest.
    fn turn(
        &mut self,
        pending: Vec<Pending>,
        look_at_all: bool,
    ) -> Result<Option<Time>, StoreError> {
        let room = (self.parts.room)();
        let now = self.parts.clock.now().max(self.last);
        self.last = now;
        let mut seen = self.parts.engine.observe();
        seen.marks.all |= look_at_all;
        let finished = self.errands.observe(&mut seen);

        let mut sorter = Sorter {
            machine: self,
            commands: Vec::new(),
            overlay: BTreeMap::new(),
            requests: BTreeSet::new(),
            submitted: BTreeSet::new(),
            spent: self.seq,
            now,
        };
        let sorted: Vec<Sorted> = pending
            .iter()
            .map(|p| match &room {
                Err(message) => Sorted::Ready(Box::new(Err(Failure::Full {
                    message: message.clone(),
                }))),
                Ok(()) => sorter.sort(&p.request),
            })
            .collect();
        let commands = std::mem::take(&mut sorter.commands);
        let written = Written {
            overlay: std::mem::take(&mut sorter.overlay),
            spent: sorter.spent,
        };

        let store = self.parts.store.clone();
        let resumable = |job: &JobId| resumable(store.as_ref(), job);
        let unread = std::cell::RefCell::new(None);
        let versions = |asset: &DocKey| {
            written.versions(store.as_ref(), asset).unwrap_or_else(|e| {
                unread.replace(Some(e));
                Versions::default()
            })
        };
        let archive = plan::Archive {
            resumable: &resumable,
            versions: &versions,
            spell: &self.parts.spell,
        };
        let turn = plan::decide(&mut self.world, commands, archive, &seen, now);
        if let Some(error) = unread.into_inner() {
            return Err(error); // decided without knowing what is there: nothing of it is written
        }
        let begun = std::time::Instant::now();
        match self.write(&turn) {
            Ok(()) => {
                if !turn.events.is_empty() && !pending.is_empty() {
                    (self.answered, self.wrote) = (pending.len(), begun.elapsed());
                }
            }
            Err(StoreError::Full { message }) => {
                // C3: the World went ahead of the log; go back to what is durable and let the reserve refuse the next ones.
                tracing::error!(
                    message,
                    "the turn could not be written; going back to the last durable state"
                );
                let (world, seq) = load::world(self.parts.store.as_ref(), self.parts.read)
                    .map_err(|e| StoreError::Io(std::io::Error::other(e.to_string())))?;
                (self.world, self.seq) = (world, seq);
                for p in pending {
                    let _ = p.answer.send(Err(Failure::Full {
                        message: message.clone(),
                    }));
                }
                return Ok(Some(now + RETRY));
            }
            Err(e) => return Err(e),
        }
        self.errands.drop_finished(&finished);
        self.forget_metrics(&turn.events);
        self.sample(&turn.events, now);
        self.reports.take(&turn.events, &self.world.view, now);
        self.publish(turn.republish || !turn.events.is_empty());
        answer(pending, sorted, &turn, self.parts.store.as_ref());
        self.act(&turn, &seen);
        self.tidy_up(&turn.events);
        self.maybe_checkpoint()?;
        Ok(turn.wake)
    }

    /// Rows first, then events and spans in one transaction (C1).
    fn write(&mut self, turn: &Turn) -> Result<(), StoreError> {
        let mut spans: Vec<(JobId, BlobPath, Vec<Span>)> = Vec::with_capacity(turn.rows.len());
        for rows in &turn.rows {
            let Some(segment) = segment_of(&self.world.view, &rows.run) else {
                continue;
            };
            let base = self
                .parts
                .blobs
                .append(&segment, &rows.pieces)
                .map_err(blob_to_store)?;
            let shifted = rows
                .spans
                .iter()
                .map(|s| Span {
                    offset: s.offset + base,
                    ..*s
                })
                .collect();
            spans.push((rows.run.clone(), segment, shifted));
        }
        if turn.events.is_empty() {
            return Ok(());
        }
        self.seq = self.parts.store.append(&Append {
            after: self.seq,
            events: &turn.events,
            spans: &spans,
            copies: &turn.copies,
        })?;
        Ok(())
    }

    fn publish(&self, changed: bool) {
        if changed {
            *self
                .shared
                .view
                .write()
                .unwrap_or_else(PoisonError::into_inner) = Arc::new(self.world.view.clone());
            // Counted, not named after the log: what is seen of a cluster changes the view without an event.
            self.shared.turns.send_modify(|n| *n += 1);
        }
    }

    fn act(&mut self, turn: &Turn, seen: &model::Observed) {
        let mut actions = plan::missing(&self.world, seen, &turn.touched);
        actions.retain(|action| match action {
            Action::Do(errand) => {
                self.errands.start(errand, &self.world);
                false
            }
            _ => true,
        });
        if !actions.is_empty() {
            self.parts.engine.apply(actions);
        }
    }

    /// A job of a name begins with no metric: those of one that is removed go with it. Looked at again when a job is submitted,
    /// since a server that dies between the two leaves them behind.
    fn forget_metrics(&self, events: &[Event]) {
        for event in events {
            let job = match event {
                Event::Withdrawn { key, .. } if key.kind == Kind::Job => {
                    JobId::new(&key.workspace, key.path.clone())
                }
                Event::Run {
                    run,
                    event: RunEvent::Submitted { .. },
                    ..
                } => run.clone(),
                _ => continue,
            };
            if let Err(error) = self.parts.series.forget(&crate::metrics_of(&job)) {
                tracing::warn!(%error, %job, "the metrics of a job that was removed stay behind");
            }
        }
    }

    /// One sample per cluster whose nodes changed: what the workspace metrics are made of.
    fn sample(&self, events: &[Event], now: Time) {
        let changed: BTreeSet<&NodeId> = events
            .iter()
            .filter_map(|e| match e {
                Event::Node { node, .. } => Some(node),
                _ => None,
            })
            .collect();
        let computes: BTreeSet<_> = changed.iter().map(|n| &n.compute).collect();
        for compute in computes {
            let counts = self.world.view.counts(compute);
            let Ok(text) = serde_json::to_string(&counts) else {
                continue;
            };
            if let Err(error) = self
                .parts
                .series
                .append(&crate::nodes_series(compute), &[(now, text)])
            {
                tracing::warn!(%error, %compute, "a metric sample is lost");
            }
        }
    }

    /// Files of runs that need them no more. Losing this to a crash costs space, not truth: `Errands::sweep` finds them.
    fn tidy_up(&self, events: &[Event]) {
        for event in events {
            if let Event::Run {
                run,
                event:
                    RunEvent::Finished {
                        outcome: Outcome::Completed,
                    },
                ..
            } = event
                && let Some(record) = self.world.view.runs.get(run)
            {
                self.errands.discard(record);
            }
        }
    }

    fn maybe_checkpoint(&mut self) -> Result<(), StoreError> {
        if self.seq - self.checkpoint < CHECKPOINT_EVENTS {
            return Ok(());
        }
        let bytes = load::snapshot(&self.world)?;
        match self.parts.store.checkpoint(self.seq, &bytes) {
            Ok(()) => self.checkpoint = self.seq,
            // The log is whole without it; the next turn tries again.
            Err(StoreError::Full { message }) => {
                tracing::warn!(message, "no room for a checkpoint")
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn shut(&self) {
        let mut inbox = self
            .shared
            .inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        inbox.stopping = true;
        for p in inbox.pending.drain(..) {
            let _ = p.answer.send(Err(Failure::Stopped));
        }
    }
}

fn blob_to_store(e: port::BlobError) -> StoreError {
    match e {
        port::BlobError::Full(message) => StoreError::Full { message },
        other => StoreError::Io(std::io::Error::other(other.to_string())),
    }
}

fn segment_of(view: &View, run: &JobId) -> Option<BlobPath> {
    match &view.runs.get(run)?.spec.work {
        Work::Batch(batch) => Some(batch.segment.clone()),
        Work::Command | Work::Pipeline(_) | Work::Sweep(_) => None,
    }
}

/// What a resume needs of a run that has left the World.
fn resumable(store: &dyn port::Store, job: &JobId) -> Option<Resumable> {
    let record = store.record(job).ok()??;
    plan::resumable(&record)
}

/// What the requests of a turn write.
struct Written {
    overlay: BTreeMap<DocKey, Option<Document>>,
    spent: u64,
}

impl Written {
    /// The versions of an asset as they are once the requests of the turn are carried out. One that is removed in this turn is
    /// still there: its name is free for the next.
    fn versions(&self, store: &dyn port::Store, asset: &DocKey) -> Result<Versions, StoreError> {
        let mut names = Vec::new();
        let mut page = Page {
            workspace: asset.workspace.clone(),
            kind: asset.kind,
            parent: Some(asset.path.to_string()),
            newest_first: false,
            after: None,
            limit: VERSIONS_PAGE,
        };
        loop {
            let (documents, next) = store.page(&page)?;
            names.extend(documents.iter().filter_map(|d| version_of(&d.key)));
            match next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        let here = self.overlay.iter().filter(|(key, document)| {
            let of = key.path.as_str().rsplit_once('/');
            document.is_some()
                && key.kind == asset.kind
                && key.workspace == asset.workspace
                && of.is_some_and(|(name, _)| model::Name::from(name) == asset.path)
        });
        names.extend(here.filter_map(|(key, _)| version_of(key)));
        Ok(Versions {
            names,
            spent: self.spent,
        })
    }
}

fn version_of(key: &DocKey) -> Option<Box<str>> {
    let (_, version) = key.path.as_str().rsplit_once('/')?;
    Some(version.into())
}

fn answer(pending: Vec<Pending>, sorted: Vec<Sorted>, turn: &Turn, store: &dyn port::Store) {
    for (p, s) in pending.into_iter().zip(sorted) {
        let reply = match s {
            Sorted::Ready(reply) => *reply,
            Sorted::Command(n, mut done) => match turn.answers.get(n) {
                Some(Ok(answer)) => {
                    done.answer = answer.clone();
                    match answer {
                        Answer::Run { id, repeat: true } => first(store, id, *done),
                        _ => Ok(*done),
                    }
                }
                Some(Err(refusal)) => Err(Failure::Refused(refusal.clone())),
                None => Err(Failure::Stopped),
            },
        };
        let _ = p.answer.send(reply); // the caller may have gone
    }
}

/// What the first of a repeated request was answered: its job's document, not the one that the repeat would have made.
fn first(store: &dyn port::Store, id: &JobId, repeat: Done) -> Result<Done, Failure> {
    match store.get(&DocKey::job(id)) {
        Ok(document) => Ok(Done {
            document,
            existed: true,
            ..repeat
        }),
        Err(e) => Err(Failure::Store {
            message: e.to_string(),
        }),
    }
}

/// Turns requests into commands, looking at what is stored and at what earlier requests of the same turn write.
struct Sorter<'a> {
    machine: &'a Machine,
    commands: Vec<Command>,
    overlay: BTreeMap<DocKey, Option<Document>>,
    /// Request ids of the submissions of this turn, each with its workspace.
    requests: BTreeSet<(Arc<model::Workspace>, Box<str>)>,
    /// Jobs that this turn submits.
    submitted: BTreeSet<JobId>,
    /// No generation above this one was ever given to a document that is gone: each write has an event of its own (D3).
    spent: u64,
    now: Time,
}

impl Sorter<'_> {
    fn sort(&mut self, request: &Request) -> Sorted {
        let sorted = match request {
            Request::Put(put) => self.put(put),
            Request::Remove {
                key,
                children,
                condition,
            } => self.remove(key, *children, *condition),
            Request::Submit {
                id,
                json,
                spec,
                request,
                by,
            } => self.submit(id, json, spec, request.as_deref(), by),
            Request::Cancel { job } => {
                Ok(self.command(Command::Cancel { job: job.clone() }, None, true))
            }
            Request::Preempt {
                compute,
                nodes,
                notice,
                hold,
            } => Ok(self.command(
                Command::Preempt {
                    compute: compute.clone(),
                    nodes: *nodes,
                    notice: *notice,
                    hold: *hold,
                },
                None,
                true,
            )),
            Request::Measured { job, value } => Ok(self.command(
                Command::Measured {
                    job: job.clone(),
                    value: *value,
                },
                None,
                true,
            )),
            Request::Explain { job } => {
                let mut done = done(Answer::Stored, None, true);
                done.why = plan::explain(&self.machine.world, job, self.now);
                return Sorted::Ready(Box::new(Ok(done)));
            }
        };
        sorted.unwrap_or_else(|failure| Sorted::Ready(Box::new(Err(failure))))
    }

    fn command(&mut self, command: Command, document: Option<Document>, existed: bool) -> Sorted {
        self.commands.push(command);
        Sorted::Command(
            self.commands.len() - 1,
            Box::new(done(Answer::Stored, document, existed)),
        )
    }

    fn current(&self, key: &DocKey) -> Result<Option<Document>, Failure> {
        if let Some(written) = self.overlay.get(key) {
            return Ok(written.clone());
        }
        self.machine
            .parts
            .store
            .get(key)
            .map_err(|e| Failure::Store {
                message: e.to_string(),
            })
    }

    fn next(
        &self,
        key: &DocKey,
        json: &Arc<str>,
        by: &Arc<str>,
        current: Option<&Document>,
    ) -> Document {
        Document {
            key: current.map_or_else(|| key.clone(), |c| c.key.clone()), // D2: the first spelling stays
            generation: current.map_or(self.spent, |c| c.generation) + 1,
            json: json.clone(),
            created: current.map_or(self.now, |c| c.created),
            modified: self.now,
            by: by.clone(),
        }
    }

    fn put(&mut self, put: &Put) -> Result<Sorted, Failure> {
        let current = self.current(&put.key)?;
        holds(put.condition, current.as_ref())?;
        let document = self.next(&put.key, &put.json, &put.by, current.as_ref());
        self.overlay.insert(put.key.clone(), Some(document.clone()));
        let command = Command::Put {
            document: document.clone(),
            declared: put.declared.clone(),
        };
        Ok(self.command(command, Some(document), current.is_some()))
    }

    fn remove(
        &mut self,
        key: &DocKey,
        children: Option<Kind>,
        condition: Condition,
    ) -> Result<Sorted, Failure> {
        let Some(current) = self.current(key)? else {
            return Err(Failure::Refused(Refusal::NotFound {
                message: format!("{:?} {} does not exist", key.kind, key.path),
            }));
        };
        holds(condition, Some(&current))?;
        if let Some(kind) = children {
            let page = Page {
                workspace: key.workspace.clone(),
                kind,
                parent: Some(key.path.to_string()),
                newest_first: false,
                after: None,
                limit: CHILDREN_LIMIT,
            };
            let (documents, _) =
                self.machine
                    .parts
                    .store
                    .page(&page)
                    .map_err(|e| Failure::Store {
                        message: e.to_string(),
                    })?;
            for document in documents {
                self.gone(&document.key);
                self.commands.push(Command::Remove { key: document.key });
            }
        }
        // `decide` refuses to remove the document of a job that goes on: then it is still there for the requests behind.
        if !self.goes_on(key) {
            self.gone(key);
        }
        Ok(self.command(Command::Remove { key: current.key }, None, true))
    }

    /// What follows finds no document of this key, and a new one has none of its generations.
    fn gone(&mut self, key: &DocKey) {
        if let Some(Some(written)) = self.overlay.insert(key.clone(), None) {
            self.spent = self.spent.max(written.generation);
        }
    }

    fn goes_on(&self, key: &DocKey) -> bool {
        if key.kind != Kind::Job {
            return false;
        }
        let id = JobId::new(&key.workspace, key.path.clone());
        self.machine.world.goes_on(&id) || self.submitted.contains(&id)
    }

    fn submit(
        &mut self,
        id: &JobId,
        json: &Arc<str>,
        spec: &Arc<model::RunSpec>,
        request: Option<&str>,
        by: &Arc<str>,
    ) -> Result<Sorted, Failure> {
        let key = DocKey::job(id);
        let current = self.current(&key)?;
        let document = self.next(&key, json, by, None);
        // A repeat of a request is told by `decide`, which knows the requests; a new request may not take a used name.
        let repeat = self.machine.world.knows_request(request)
            || request.is_some_and(|r| !self.requests.insert((id.workspace().clone(), r.into())));
        if current.is_some() && !repeat {
            return Err(Failure::Refused(Refusal::Conflict {
                message: format!("job {id} already exists"),
            }));
        }
        if current.is_none() {
            self.overlay.insert(key, Some(document.clone()));
            self.submitted.insert(id.clone());
        }
        let command = Command::Submit {
            id: id.clone(),
            document: document.clone(),
            spec: spec.clone(),
            request: request.map(Into::into),
        };
        Ok(self.command(command, Some(document), current.is_some()))
    }
}

fn done(answer: Answer, document: Option<Document>, existed: bool) -> Done {
    Done {
        answer,
        document,
        existed,
        why: None,
    }
}

fn holds(condition: Condition, current: Option<&Document>) -> Result<(), Failure> {
    let have = current.map(|c| c.generation);
    let holds = match condition {
        Condition::Any => true,
        Condition::Absent => have.is_none(),
        Condition::Present => have.is_some(),
        Condition::Generation(g) => have == Some(g),
    };
    if holds {
        Ok(())
    } else {
        Err(Failure::Precondition { have })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_several_waits_and_never_for_long() {
        let slow = Duration::from_millis(2);
        let limit = slow / GATHER_PART;
        assert_eq!(gathering(1, 16, slow), limit);
        assert_eq!(gathering(15, 16, slow), limit);
        assert_eq!(gathering(16, 16, slow), Duration::ZERO, "all are there");
        assert_eq!(gathering(1, 1, slow), Duration::ZERO, "it asks alone");
        assert_eq!(gathering(0, 16, slow), Duration::ZERO, "nobody waits");
        assert_eq!(gathering(1, 16, Duration::from_secs(9)), GATHER_LIMIT);
        assert_eq!(gathering(1, 16, Duration::ZERO), Duration::ZERO);
    }
}
