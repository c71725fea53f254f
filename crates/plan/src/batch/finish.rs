//! A batch run from its listing to its end.

use model::{
    BatchEvent, Errand, ErrandSeen, Exit, JobId, Outcome, RunEvent, TaskId, Why, Work,
    batch::{BatchOutput, BatchSpec},
    run::FirstError,
};

use crate::{
    limits::{HOST_CRASHES, MINI_BATCHES_MAX},
    tasks::Rerun,
    turn::Turning,
};

impl Turning<'_> {
    pub fn batch_step(&mut self, job: &JobId) {
        let Some(record) = self.world.run(job) else {
            return;
        };
        let listed = record.progress.as_ref().is_some_and(|p| p.listed);
        let run = record.spec.clone();
        let Work::Batch(spec) = &run.work else {
            return;
        };
        if !listed && !self.list(job, spec) {
            return;
        }
        if let Some(why) = self.broken_rule(job, spec) {
            return self.give_up(job, Outcome::Failed(why));
        }
        let Some(batch) = self.world.batch(job) else {
            return;
        };
        if batch.complete() {
            self.publish(job, spec);
        } else {
            self.lend(job, spec.workers_per_node.max(1));
        }
    }

    /// Takes the listing in, once; whether there is one now.
    fn list(&mut self, job: &JobId, spec: &BatchSpec) -> bool {
        let why = match self.seen.errands.get(&Errand::List(job.clone())) {
            None | Some(ErrandSeen::Busy | ErrandSeen::Published { .. } | ErrandSeen::Sent) => {
                return false;
            }
            Some(ErrandSeen::Failed { message }) => Why::Engine {
                message: message.clone(),
            },
            Some(ErrandSeen::Listed { files: 0, .. }) => Why::Engine {
                message: format!("the input {} holds no file", spec.input).into(),
            },
            Some(ErrandSeen::Listed { files, digest }) => {
                let total = files.div_ceil(u64::from(spec.mini_batch_size.max(1)));
                match u32::try_from(total).ok().filter(|&t| t <= MINI_BATCHES_MAX) {
                    Some(total) => {
                        let event = BatchEvent::Listed {
                            files: *files,
                            total,
                            digest: digest.clone(),
                        };
                        self.emit_batch(job, event);
                        return self.take_over(job, spec);
                    }
                    None => Why::Engine {
                        message: format!(
                            "the input {} makes {total} mini-batches, the limit is {MINI_BATCHES_MAX}: raise mini_batch_size",
                            spec.input
                        )
                        .into(),
                    },
                }
            }
        };
        self.give_up(job, Outcome::Failed(why));
        false
    }

    /// A rule that ends the run, if it breaks one.
    fn broken_rule(&self, job: &JobId, spec: &BatchSpec) -> Option<Why> {
        let batch = self.world.batch(job)?;
        let progress = self.world.run(job)?.progress.as_ref()?;
        let failed = progress.failed_items;
        let threshold = spec.error_threshold;
        if u64::try_from(threshold).is_ok_and(|most| failed > most) {
            return Some(Why::ErrorThreshold { failed, threshold });
        }
        let (failed, threshold) = (
            progress.failed + progress.short,
            spec.mini_batch_error_threshold,
        );
        if u64::try_from(threshold).is_ok_and(|most| u64::from(failed) > most) {
            return Some(Why::MiniBatchErrorThreshold { failed, threshold });
        }
        let (total, percent) = (batch.total(), spec.allowed_failed_percent);
        if u64::from(failed) * 100 > u64::from(total) * u64::from(percent) {
            return Some(Why::AllowedFailedPercent {
                failed,
                total,
                percent,
            });
        }
        let cap = spec.max_preemptions?;
        let worn = batch.losses.iter().find(|&(_, &n)| n > cap);
        worn.map(|(&mini_batch, _)| Why::TooManyPreemptions { mini_batch, cap })
    }

    /// Everything is done or failed: hosts go, the output is put in place, the run ends.
    fn publish(&mut self, job: &JobId, spec: &BatchSpec) {
        let Some(batch) = self.world.batch(job) else {
            return;
        };
        if batch.done_inputs() <= batch.short_items {
            let total = batch.total();
            return self.give_up(job, Outcome::Failed(Why::NothingSucceeded { total }));
        }
        self.stop_tasks(job);
        if matches!(spec.output, BatchOutput::AppendRow { .. }) && !self.published(job) {
            return;
        }
        if self.world.run(job).is_some_and(|r| r.tasks.is_empty()) {
            self.finish(job, Outcome::Completed);
        }
    }

    /// Whether the output is in place; takes the errand's end in.
    fn published(&mut self, job: &JobId) -> bool {
        let Some(record) = self.world.run(job) else {
            return false;
        };
        if record
            .progress
            .as_ref()
            .is_some_and(|p| p.published.is_some())
        {
            return true;
        }
        match self.seen.errands.get(&Errand::Publish(job.clone())) {
            Some(ErrandSeen::Published { bytes }) => {
                self.emit_batch(job, BatchEvent::Published { bytes: bytes.0 });
                return true;
            }
            Some(ErrandSeen::Failed { message }) => {
                let message = message.clone();
                self.give_up(job, Outcome::Failed(Why::Engine { message }));
            }
            None | Some(ErrandSeen::Busy | ErrandSeen::Listed { .. } | ErrandSeen::Sent) => {
                let why = Some(Why::Publishing);
                if record.why != why {
                    self.emit_run(job, RunEvent::Explained { why });
                }
            }
        }
        false
    }

    /// A host ended by itself. Its last parcels are taken already.
    pub fn host_exited(&mut self, id: &TaskId, exit: Option<&Exit>, how: &str) {
        let why = match exit {
            Some(Exit::Init { message }) => {
                let error = FirstError {
                    mini_batch: None,
                    message: message.clone(),
                    task: id.index,
                };
                self.emit_run(&id.job, RunEvent::Erred { error });
                Some(Why::UserError {
                    message: message.clone(),
                    mini_batch: None,
                })
            }
            Some(Exit::NotStarted { message }) => Some(Why::Engine {
                message: message.clone(),
            }),
            Some(
                Exit::Code(_)
                | Exit::Signal(_)
                | Exit::OutOfMemory { .. }
                | Exit::Stopped
                | Exit::Lost { .. },
            )
            | None => None,
        };
        self.return_held(id, Rerun::Started);
        self.end(id);
        let crashes = self.world.batch(&id.job).map_or(0, |b| b.crashes);
        let why = why.or_else(|| {
            (crashes >= HOST_CRASHES).then(|| Why::Engine {
                message: format!(
                    "{crashes} hosts in a row ended by themselves without a result, the last with: {how}"
                )
                .into(),
            })
        });
        if let Some(why) = why {
            self.give_up(&id.job, Outcome::Failed(why));
        }
    }
}
