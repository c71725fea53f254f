//! Command runs: a gang of tasks that start together, end together, and start again together when one loses its node.

use model::{JobId, Outcome, RunState};

use crate::turn::Turning;

impl Turning<'_> {
    pub fn command_step(&mut self, job: &JobId) {
        let Some(record) = self.world.run(job) else {
            return;
        };
        match record.state {
            // Every rank that was placed has ended well: one that had not would have given the run up or sent it back.
            RunState::Preparing | RunState::Running if record.tasks.is_empty() => {
                self.finish(job, Outcome::Completed);
            }
            // One rank is lost. The others stop; the gang waits until they are gone.
            RunState::Queued => self.stop_tasks(job),
            RunState::Preparing
            | RunState::Running
            | RunState::Canceling(_)
            | RunState::Done(_) => {}
        }
    }
}
