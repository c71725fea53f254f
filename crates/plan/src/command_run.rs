//! Command runs: a gang of tasks that start together, end together, and start again together when one loses its node.

use model::{Errand, ErrandSeen, JobId, Outcome, RunEvent, RunState, Why};

use crate::turn::Turning;

impl Turning<'_> {
    pub fn command_step(&mut self, job: &JobId) {
        let Some(record) = self.world.run(job) else {
            return;
        };
        match record.state {
            RunState::Preparing | RunState::Running if record.worked() => {
                if self.sent(job) {
                    self.finish(job, Outcome::Completed);
                }
            }
            // One rank is lost. The others stop; the gang waits until they are gone.
            RunState::Queued => self.stop_tasks(job),
            RunState::Preparing
            | RunState::Running
            | RunState::Canceling(_)
            | RunState::Done(_) => {}
        }
    }

    /// Whether the outputs of a run that has done its work are in the datastores where they belong. A run whose outputs cannot be
    /// sent fails: what they are kept as until then stays.
    fn sent(&mut self, job: &JobId) -> bool {
        let Some(record) = self.world.run(job).filter(|r| r.spec.sends()) else {
            return true;
        };
        match self.seen.errands.get(&Errand::Send(job.clone())) {
            Some(ErrandSeen::Sent) => return true,
            Some(ErrandSeen::Failed { message }) => {
                let message = message.clone();
                self.give_up(job, Outcome::Failed(Why::Engine { message }));
            }
            None
            | Some(ErrandSeen::Busy | ErrandSeen::Listed { .. } | ErrandSeen::Published { .. }) => {
                let why = Some(Why::Publishing);
                if record.why != why {
                    self.emit_run(job, RunEvent::Explained { why });
                }
            }
        }
        false
    }
}
