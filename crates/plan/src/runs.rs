//! What follows for runs from the facts of a turn.

use model::{
    ComputeId, JobId, Outcome, Phase, RunEvent, RunState, TaskId, Why, Work, batch::OnCapacityLoss,
    run::Kept,
};

use crate::{
    due::Due,
    limits::{KEEP_DONE, RETIRE_AFTER},
    turn::Turning,
};

impl Turning<'_> {
    /// Each run that something happened to goes on.
    pub fn runs(&mut self) {
        // A step touches its own run, and names its parent and its children where they have to be looked at too. Each
        // such look follows from a fact, and there are finitely many: children are made once and end once.
        let mut look = self.touched.runs.clone();
        look.append(&mut self.kin);
        while let Some(job) = look.pop_first() {
            self.step(&job);
            look.append(&mut self.kin);
        }
    }

    fn step(&mut self, job: &JobId) {
        let Some(record) = self.world.run(job) else {
            return;
        };
        match &record.state {
            RunState::Done(_) => {}
            RunState::Canceling(outcome) => {
                let outcome = outcome.clone();
                self.settle(job, outcome);
            }
            RunState::Queued | RunState::Preparing | RunState::Running => {
                if self.timed_out(job) {
                    return;
                }
                let Some(record) = self.world.run(job) else {
                    return;
                };
                match record.spec.work {
                    Work::Command => self.command_step(job),
                    Work::Batch(_) => self.batch_step(job),
                    Work::Pipeline(_) | Work::Sweep(_) => return self.family_step(job),
                }
                self.preparing(job);
            }
        }
    }

    /// While nothing of a run runs yet: what is being prepared, of its first task.
    fn preparing(&mut self, job: &JobId) {
        let Some(record) = self.world.run(job) else {
            return;
        };
        if record.state == RunState::Preparing && self.pending(job) {
            return;
        }
        let Some(record) = self.world.run(job) else {
            return;
        };
        let first = record.tasks.first_key_value();
        let (RunState::Preparing, Some((&index, task))) = (&record.state, first) else {
            return;
        };
        let id = TaskId {
            job: job.clone(),
            index,
            attempt: task.attempt,
        };
        if let Some(Phase::Preparing { what }) = self.seen.tasks.get(&id).map(|t| &t.phase) {
            let why = Some(Why::Preparing { what: what.clone() });
            if record.why != why {
                self.emit_run(job, RunEvent::Explained { why });
            }
        }
    }

    /// Ends a run with this, once its tasks are gone.
    pub fn give_up(&mut self, job: &JobId, outcome: Outcome) {
        let Some(record) = self.world.run(job) else {
            return;
        };
        match record.state {
            RunState::Done(_) | RunState::Canceling(_) => return, // the first reason stays
            RunState::Queued | RunState::Preparing | RunState::Running => {}
        }
        if !record.tasks.is_empty() || !self.open_children(job).is_empty() {
            let outcome = outcome.clone();
            self.emit_run(job, RunEvent::Canceling { outcome });
        }
        self.give_up_children(job);
        self.settle(job, outcome);
    }

    /// Stops what still runs; when nothing does, the run has ended.
    fn settle(&mut self, job: &JobId, outcome: Outcome) {
        self.stop_tasks(job);
        let idle = self.world.run(job).is_some_and(|r| r.tasks.is_empty());
        if idle && self.open_children(job).is_empty() {
            self.finish(job, outcome);
        }
    }

    pub fn finish(&mut self, job: &JobId, mut outcome: Outcome) {
        if outcome == Outcome::Completed
            && let Err(why) = self.register(job)
        {
            outcome = Outcome::Failed(*why);
        }
        let parent = self.world.run(job).and_then(|r| r.spec.part.as_ref());
        if let Some(parent) = parent.map(|p| p.parent.clone()) {
            self.kin.insert(parent);
        }
        self.world.timers.set(Due::Run(job.clone()), None);
        self.emit_run(job, RunEvent::Finished { outcome });
    }

    pub fn stop_tasks(&mut self, job: &JobId) {
        for task in self.tasks_of(job) {
            self.stop(&task.job.clone(), task);
        }
    }

    pub fn stop(&mut self, job: &JobId, task: TaskId) {
        let Some(known) = self.world.task(&task).filter(|t| !t.stopping) else {
            return;
        };
        let node = known.place.node().cloned();
        let started = self.seen.tasks.contains_key(&task);
        self.emit_run(job, RunEvent::Stopping { task: task.clone() });
        if !started && node.is_none_or(|node| self.seen.nodes.contains_key(&node)) {
            self.end(&task); // it never came to be
        }
    }

    /// A run that runs longer than its limit from its first start is canceled.
    pub fn timed_out(&mut self, job: &JobId) -> bool {
        let Some(record) = self.world.run(job) else {
            return false;
        };
        let (Some(limit), Some(started)) = (record.spec.timeout, record.started) else {
            return false;
        };
        let due = Due::Run(job.clone());
        if self.now < started + limit {
            self.world.timers.set(due, Some(started + limit));
            return false;
        }
        self.give_up(job, Outcome::Canceled(Why::TimedOut { limit }));
        true
    }

    /// a preemption has left a cluster without a node that is running, idle or preparing. Looked at right after the
    /// loss, before any replacement is asked for. Command runs wait for one (they run again); so do batch runs that never
    /// held a node, that need none any more, or whose deployment says `wait`.
    pub fn capacity_lost(&mut self, compute: &ComputeId) {
        let (Some(pool), Some(cluster)) = (
            self.world.pools.get(compute),
            self.world.view.clusters.get(compute).cloned(),
        ) else {
            return;
        };
        if pool.usable() > 0 {
            return;
        }
        let jobs: Vec<JobId> = pool.runs.values().cloned().collect();
        for job in jobs {
            let (Some(record), Some(batch)) = (self.world.run(&job), self.world.batch(&job)) else {
                continue;
            };
            let Work::Batch(spec) = &record.spec.work else {
                continue;
            };
            let live = matches!(
                record.state,
                RunState::Queued | RunState::Preparing | RunState::Running
            );
            if !live || !record.held_node || batch.complete() {
                continue;
            }
            match spec.on_capacity_loss {
                OnCapacityLoss::Cancel => {
                    let why = Why::AllNodesPreempted {
                        compute: compute.name().into(),
                        tier: cluster.spec.tier,
                        done: batch.done.count(),
                        total: batch.total(),
                    };
                    self.give_up(&job, Outcome::Canceled(why));
                }
                OnCapacityLoss::Wait => {
                    let why = Why::WaitingForCapacity {
                        compute: compute.name().into(),
                    };
                    if record.why.as_ref() != Some(&why) {
                        self.emit_run(&job, RunEvent::Explained { why: Some(why) });
                    }
                }
            }
        }
    }

    /// Finished runs leave the World after a while, or when there are many.
    pub fn retire(&mut self) {
        while let Some((ended, job)) = self.world.finished.first().cloned() {
            let old = self.now.since(ended) >= RETIRE_AFTER;
            if !old && self.world.finished.len() <= KEEP_DONE {
                break;
            }
            let Some(record) = self.world.run(&job) else {
                break;
            };
            let mut record = Box::new((**record).clone());
            if let Some(batch) = self.world.batch(&job) {
                record.kept = Some(Kept {
                    done: batch.done(),
                    failed_items: batch.short_items,
                    header: batch.header.clone(),
                });
            }
            self.emit_run(&job, RunEvent::Retired { record });
        }
        let first = self.world.finished.first();
        let at = first.map(|(ended, _)| *ended + RETIRE_AFTER);
        self.world.timers.set(Due::Retire, at);
    }
}
