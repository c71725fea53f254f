//! Lending: each host holds enough to stay busy for `LEND_TARGET`, little enough to lose, and less near the end, so that
//! hosts finish together.
//!
//! L1 only a host whose program runs, on a node that stays, is lent anything;
//! L2 a host is lent more when it holds at most half of its goal, or less than one mini-batch per worker;
//! L3 the goal follows the measured rate, at most doubling from lend to lend, between two per worker and `LEND_MAX`;
//! L4 one lend is at most a fair half of what waits, or what keeps the host's workers busy;
//! L5 failed and returned mini-batches are lent before untouched ones.

use model::{BatchEvent, JobId, TaskId, Time};

use super::Host;
use crate::{
    limits::{LEND_MAX, LEND_TARGET},
    pool::count,
    turn::Turning,
};

/// What a host should hold now (L3).
fn goal(host: &Host, held: u32, workers: u32, now: Time) -> u32 {
    let least = workers.saturating_mul(2).min(LEND_MAX);
    if host.lend == 0 {
        return least;
    }
    let drained = u64::from(host.goal.saturating_sub(held));
    let elapsed = now.since(host.lent_at).0;
    let paced = match elapsed {
        0 => u64::MAX,
        ms => drained.saturating_mul(LEND_TARGET.0) / ms,
    };
    let (low, high) = (host.goal / 2, host.goal.saturating_mul(2));
    let next = u32::try_from(paced).unwrap_or(u32::MAX).clamp(low, high);
    next.clamp(least, LEND_MAX)
}

/// How many more a host is lent, of `waiting` that `hosts` share.
fn amount(host: &Host, workers: u32, waiting: u32, hosts: u32, now: Time) -> u32 {
    let held = host.held();
    if waiting == 0 || (held > host.goal / 2 && held >= workers) {
        return 0; // L2
    }
    let goal = goal(host, held, workers, now);
    let share = waiting.div_ceil(hosts.max(1).saturating_mul(2));
    let fair = share.max(workers.saturating_sub(held)); // L4
    goal.saturating_sub(held).min(fair).min(waiting)
}

impl Turning<'_> {
    /// Lends to the hosts that something happened to; to all when mini-batches wait again after none did. A host that holds
    /// nothing while nothing waits is stopped: its node is free for others.
    pub fn lend(&mut self, job: &JobId, workers: u32) {
        let everyone = self.touched.all || self.refilled.contains(job);
        let tasks: Vec<TaskId> = if everyone {
            self.tasks_of(job)
        } else {
            let from = TaskId {
                job: job.clone(),
                index: 0,
                attempt: model::Attempt(0),
            };
            let touched = self.touched.tasks.range(from..);
            touched.take_while(|t| t.job == *job).cloned().collect()
        };
        for task in tasks {
            let running = self.world.task(&task).is_some_and(|t| t.running);
            if !running || !self.world.is_able(&task) {
                continue; // L1
            }
            let Some(live) = self.world.lives.get(job) else {
                return;
            };
            let Some(batch) = &live.batch else { return };
            let Some(host) = batch.host(&task) else {
                continue;
            };
            let waiting = batch.waiting();
            if waiting == 0 && host.lends.is_empty() {
                self.stop(job, task);
                continue;
            }
            let n = amount(host, workers, waiting, count(live.able.len()), self.now);
            if n == 0 {
                continue;
            }
            let event = BatchEvent::Lent {
                lend: host.lend + 1,
                indices: batch.pick(n), // L5
                task,
            };
            self.emit_batch(job, event);
        }
    }
}
