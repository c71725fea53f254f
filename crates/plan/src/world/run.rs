//! What an event does to a run.

use model::{
    Attempt, JobId, Outcome, Place, Progress, RunEvent, RunRecord, RunSpec, RunState, TaskId, Time,
    Why, Work, run::TaskRecord,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Illegal, World, illegal, seat::Seat};
use crate::batch::{Batch, Host};

/// A run's side that its record does not show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Live {
    /// Its place in the order of submission.
    pub seq: u64,
    /// The last attempt of each task index.
    pub attempts: BTreeMap<u32, Attempt>,
    /// Its mini-batches, if it is a batch run.
    pub batch: Option<Batch>,
    /// Who submitted it: the documents of its children and of the assets that its outputs become say so too. Kept of such
    /// runs alone.
    #[serde(default, skip_serializing_if = "str_is_empty")]
    pub by: Arc<str>,
    /// Tasks that may be given work: not stopping, on a node that stays. Derived (W2).
    #[serde(skip)]
    pub able: BTreeSet<u32>,
    /// Those of them that are hosts and hold nothing. Derived (W2).
    #[serde(skip)]
    pub hungry: BTreeSet<u32>,
    /// Derived (W2).
    #[serde(skip)]
    pub seat: Seat,
}

impl Live {
    /// A task may be given work from now on.
    pub fn enable(&mut self, index: u32) {
        self.able.insert(index);
        self.weigh(index);
    }
    /// A task is given no more work; whether it was before.
    pub fn disable(&mut self, index: u32) -> bool {
        self.hungry.remove(&index);
        self.able.remove(&index)
    }
    /// Finds anew whether a host holds nothing, after what it holds has changed.
    pub fn weigh(&mut self, index: u32) {
        let host = self.batch.as_ref().and_then(|b| b.hosts.get(&index));
        if self.able.contains(&index) && host.is_some_and(|h| h.lends.is_empty()) {
            self.hungry.insert(index);
        } else {
            self.hungry.remove(&index);
        }
    }
    /// The ranks of a command run as they were placed last, those that have ended already too: every rank is told of all.
    pub fn gang(&self, job: &JobId) -> Vec<TaskId> {
        let rank = |(&index, &attempt): (&u32, &Attempt)| TaskId {
            job: job.clone(),
            index,
            attempt,
        };
        self.attempts.iter().map(rank).collect()
    }
    /// The attempt that the next start of a task gets.
    pub fn next_attempt(&self, index: u32) -> Attempt {
        Attempt(self.attempts.get(&index).map_or(0, |a| a.0) + 1)
    }
}

impl World {
    pub(super) fn apply_run(
        &mut self,
        job: &JobId,
        event: &RunEvent,
        at: Time,
    ) -> Result<(), Illegal> {
        match event {
            RunEvent::Submitted {
                document,
                spec,
                request,
            } => {
                self.submitted(job, spec, request.as_deref(), at)?;
                if let Some(live) = self
                    .lives
                    .get_mut(job)
                    .filter(|_| spec.is_parent() || spec.registers())
                {
                    live.by = document.by.clone();
                }
                self.child_submitted(job, spec, at);
            }
            RunEvent::Retired { .. } => return self.retired(job),
            RunEvent::Explained { why } => self.explained(job, why.as_ref())?,
            RunEvent::Placed { task, place } => self.placed(job, task, place)?,
            RunEvent::Started { task } => self.started(job, task, at)?,
            RunEvent::Stopping { task } => self.stopping(job, task)?,
            RunEvent::TaskEnded { task } => self.task_over(job, task, Over::Ended)?,
            RunEvent::TaskLost { task } => self.task_over(job, task, Over::Lost)?,
            RunEvent::TaskRecalled { task } => self.task_over(job, task, Over::Recalled)?,
            RunEvent::ChildRefused {
                key,
                job: child,
                why,
            } => {
                self.child_refused(job, key, child, why)?;
            }
            RunEvent::Registered { output, asset } => {
                let (record, _) = self.parts(job)?;
                record.registered.insert(output.clone(), asset.clone());
            }
            RunEvent::Measured { value } => self.measured(job, *value)?,
            RunEvent::Erred { error } => {
                let (record, _) = self.parts(job)?;
                record.first_error.get_or_insert_with(|| error.clone());
            }
            RunEvent::Canceling { outcome } => {
                let (record, _) = self.parts(job)?;
                record.state = RunState::Canceling(outcome.clone());
                record.why = None;
                self.untold(job);
            }
            RunEvent::Finished { outcome } => {
                self.ended(job, outcome, at)?;
                self.child_ended(job, outcome);
            }
        }
        self.reseat(job);
        Ok(())
    }

    /// Both sides of a run that is not done (J1).
    pub(super) fn parts(&mut self, job: &JobId) -> Result<(&mut RunRecord, &mut Live), Illegal> {
        let record = self.view.runs.get_mut(job);
        let record = record.ok_or_else(|| illegal(format!("no run {job}")))?;
        if record.state.is_done() {
            return Err(illegal(format!("run {job} is done")));
        }
        let live = self.lives.get_mut(job);
        let live = live.ok_or_else(|| illegal(format!("no run {job}")))?;
        Ok((Arc::make_mut(record), live))
    }

    fn submitted(
        &mut self,
        job: &JobId,
        spec: &Arc<RunSpec>,
        request: Option<&str>,
        at: Time,
    ) -> Result<(), Illegal> {
        if self.view.runs.contains_key(job) {
            return Err(illegal(format!("run {job} is there already")));
        }
        let is_batch = matches!(spec.work, Work::Batch(_));
        let record = RunRecord {
            id: job.clone(),
            spec: spec.clone(),
            state: RunState::Queued,
            why: is_batch.then_some(Why::Listing),
            submitted: at,
            started: None,
            ended: None,
            tasks: BTreeMap::new(),
            attempt: Attempt(0),
            preemptions: 0,
            held_node: false,
            first_error: None,
            progress: is_batch.then(Progress::default),
            given: 0,
            kept: None,
            family: spec.is_parent().then(Box::default),
            registered: BTreeMap::new(),
        };
        let live = Live {
            seq: self.next_seq,
            batch: is_batch.then(Batch::default),
            ..Live::default()
        };
        self.next_seq += 1;
        self.view.runs.insert_mut(job.clone(), Arc::new(record));
        self.lives.insert(job.clone(), live);
        if let Some(request) = request {
            self.requests.remember(request, job);
        }
        Ok(())
    }

    fn explained(&mut self, job: &JobId, why: Option<&Why>) -> Result<(), Illegal> {
        let (record, live) = self.parts(job)?;
        record.why = why.cloned();
        let first = live.seat.first;
        let compute = record.spec.compute.clone();
        if let Some(pool) = self.pools.get_mut(&compute) {
            if first && why.is_some() {
                pool.kept.told.insert(job.clone());
            } else {
                pool.kept.told.remove(job);
            }
        }
        if let Some(pods) = self.pods.get_mut(&compute) {
            let waits = pods.waiting.values().any(|j| j == job);
            if waits && why.is_some() {
                pods.told.insert(job.clone());
            } else {
                pods.told.remove(job);
            }
        }
        Ok(())
    }

    /// A run waits no more for what it was told.
    fn untold(&mut self, job: &JobId) {
        if let Some(record) = self.view.runs.get(job)
            && let Some(pool) = self.pools.get_mut(&record.spec.compute)
        {
            pool.kept.told.remove(job);
        }
        if let Some(record) = self.view.runs.get(job)
            && let Some(pods) = self.pods.get_mut(&record.spec.compute)
        {
            pods.told.remove(job);
        }
    }

    fn placed(&mut self, job: &JobId, task: &TaskId, place: &Place) -> Result<(), Illegal> {
        let (record, live) = self.parts(job)?;
        let free = !record.tasks.contains_key(&task.index);
        if !free || task.attempt != live.next_attempt(task.index) {
            return Err(illegal(format!("task {task} cannot be placed")));
        }
        let placed = TaskRecord {
            attempt: task.attempt,
            place: place.clone(),
            running: false,
            stopping: false,
        };
        record.tasks.insert(task.index, placed);
        record.attempt = record.attempt.max(task.attempt);
        record.held_node = true;
        record.given += 1;
        if record.state == RunState::Queued {
            record.state = RunState::Preparing;
            record.why = None;
        }
        live.attempts.insert(task.index, task.attempt);
        if let Some(batch) = &mut live.batch {
            batch.hosts.insert(task.index, Host::new(task.attempt));
        }
        live.enable(task.index);
        self.hold(place);
        self.untold(job);
        Ok(())
    }

    fn started(&mut self, job: &JobId, task: &TaskId, at: Time) -> Result<(), Illegal> {
        let (record, _) = self.parts(job)?;
        live_task(record, task)?.running = true;
        record.started.get_or_insert(at);
        if record.state == RunState::Preparing {
            record.state = RunState::Running;
            record.why = None;
        }
        self.shown_tasks.remove(task);
        self.works_again(job);
        Ok(())
    }

    fn stopping(&mut self, job: &JobId, task: &TaskId) -> Result<(), Illegal> {
        let (record, live) = self.parts(job)?;
        live_task(record, task)?.stopping = true;
        live.disable(task.index);
        Ok(())
    }

    /// A task is over. What a host still held goes back to the front (B3).
    fn task_over(&mut self, job: &JobId, task: &TaskId, over: Over) -> Result<(), Illegal> {
        let (record, live) = self.parts(job)?;
        let ended = live_task(record, task)?.clone();
        record.tasks.remove(&task.index);
        let was_able = live.disable(task.index);
        match over {
            Over::Lost => record.preemptions += 1,
            Over::Ended | Over::Recalled => {}
        }
        if let (Some(batch), Some(progress)) = (&mut live.batch, &mut record.progress) {
            progress.preemptions = record.preemptions;
            give_back(batch, progress, task);
            if matches!(over, Over::Ended) && was_able && !ended.stopping {
                batch.crashes += 1;
            }
            if record.tasks.is_empty() {
                requeue(record);
            }
        } else if matches!(over, Over::Lost | Over::Recalled) {
            requeue(record); // a gang starts again together
        }
        self.shown_tasks.remove(task);
        self.release(&ended.place);
        Ok(())
    }

    fn ended(&mut self, job: &JobId, outcome: &Outcome, at: Time) -> Result<(), Illegal> {
        let (record, live) = self.parts(job)?;
        if !record.tasks.is_empty() {
            return Err(illegal(format!("run {job} still has tasks")));
        }
        record.state = RunState::Done(outcome.clone());
        record.ended = Some(at);
        record.why = None;
        if let Some(batch) = &mut live.batch {
            batch.rest();
        }
        self.untold(job);
        self.finished.insert((at, job.clone()));
        Ok(())
    }

    /// The record of a run that has ended leaves the World.
    pub(super) fn retired(&mut self, job: &JobId) -> Result<(), Illegal> {
        let Some(record) = self.view.runs.get(job) else {
            return Err(illegal(format!("no run {job}")));
        };
        let Some(ended) = record.ended else {
            return Err(illegal(format!("run {job} is not done")));
        };
        self.finished.remove(&(ended, job.clone()));
        self.view.runs.remove_mut(job);
        self.lives.remove(job);
        Ok(())
    }
}

fn str_is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

enum Over {
    Ended,
    Lost,
    Recalled,
}

/// J3: a run whose nodes are lost waits again; what for is found anew.
fn requeue(record: &mut RunRecord) {
    match record.state {
        RunState::Preparing => {
            record.state = RunState::Queued;
            record.why = None;
        }
        RunState::Running => record.state = RunState::Queued,
        RunState::Queued | RunState::Canceling(_) | RunState::Done(_) => {}
    }
}

fn live_task<'a>(record: &'a mut RunRecord, task: &TaskId) -> Result<&'a mut TaskRecord, Illegal> {
    record
        .tasks
        .get_mut(&task.index)
        .filter(|t| t.attempt == task.attempt)
        .ok_or_else(|| illegal(format!("no live task {task}")))
}

fn give_back(batch: &mut Batch, progress: &mut Progress, task: &TaskId) {
    let Some(host) = batch.hosts.remove(&task.index) else {
        return;
    };
    let held = host.holding();
    batch.front.extend(&held);
    batch.lent -= held.len();
    progress.lent = batch.lent;
    progress.started = progress.started.saturating_sub(host.started.len());
}
