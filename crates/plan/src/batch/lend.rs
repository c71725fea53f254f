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

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Attempt, Millis, Ranges};

    /// A host that finishes `rate` mini-batches in a second.
    struct Worker {
        host: Host,
        rate: u64,
        /// Thousandths of a mini-batch that are done beyond the whole ones.
        part: u64,
        finished: Time,
        lends: u32,
    }

    const STEP: u64 = 5;

    /// Runs `total` mini-batches on hosts of these rates; looks at each host every `STEP` ms, as parcels come in.
    fn run(total: u32, workers: u32, rates: &[u64]) -> Vec<Worker> {
        let mut hosts: Vec<Worker> = rates
            .iter()
            .map(|&rate| Worker {
                host: Host::new(Attempt(1)),
                rate,
                part: 0,
                finished: Time(0),
                lends: 0,
            })
            .collect();
        let (mut next, mut now) = (0, Time(1000));
        let n = count(rates.len());
        while next < total || hosts.iter().any(|w| w.host.held() > 0) {
            for w in &mut hosts {
                let held = w.host.held();
                let whole = (w.part + w.rate * STEP) / 1000;
                w.part = (w.part + w.rate * STEP) % 1000;
                let done = u32::try_from(whole).unwrap().min(held);
                let front = w.host.holding().take_front(done);
                w.host.release(&front);
                if done > 0 {
                    w.finished = now;
                }
                let more = amount(&w.host, workers, total - next, n, now);
                assert!(next + more <= total, "no more than there is");
                if more > 0 {
                    w.lends += 1;
                    w.host.lend += 1;
                    let lent = Ranges::span(next, next + more);
                    w.host.lends.push((w.host.lend, lent));
                    (w.host.goal, w.host.lent_at) = (w.host.held(), now);
                    next += more;
                }
                let held = w.host.held();
                assert!(held <= LEND_MAX, "L3: holds {held}");
                // Twice what the target covers: the rate is known to within one look.
                let most =
                    2 * (w.rate * (LEND_TARGET.0 + 2 * STEP) / 1000) + u64::from(4 * workers);
                assert!(u64::from(held) <= most, "L3: holds {held}, at most {most}");
                assert!(
                    held > 0 || next == total,
                    "L2: a host is idle while something waits"
                );
            }
            now = now + Millis(STEP);
        }
        hosts
    }
    #[test]
    fn hosts_finish_together_whatever_their_rates() {
        for rates in [
            vec![50_000, 50_000],
            vec![20_000, 5_000],
            vec![1_000, 1_000, 250],
            vec![20, 10],
            vec![3, 3, 3],
        ] {
            let second = u32::try_from(rates.iter().sum::<u64>()).unwrap();
            let slowest = 1000 / rates.iter().min().unwrap();
            let mut worst = Millis(0);
            for k in 0..10 {
                // However much is left over at the end.
                let hosts = run(second * 4 + second * k / 20, 2, &rates);
                let first = hosts.iter().map(|w| w.finished).min().unwrap();
                let last = hosts.iter().map(|w| w.finished).max().unwrap();
                worst = worst.max(last.since(first));
            }
            // A host keeps at least what its workers do at once; the rest is shared.
            let most = Millis(LEND_TARGET.0 / 4 + 12 * slowest);
            assert!(
                worst <= most,
                "L4: {rates:?} end {} ms apart, at most {} ms",
                worst.0,
                most.0
            );
        }
    }

    #[test]
    fn a_fast_host_needs_few_lends() {
        let hosts = run(1_000_000, 2, &[100_000]);
        // It doubles from 4 to 20,000 at first and halves in the end; between, each lend is for a tenth of a second at least.
        assert!(hosts[0].lends < 200, "L3: {} lends", hosts[0].lends);
        let held = run(40_000_000, 2, &[4_000_000]);
        assert_eq!(held[0].host.held(), 0, "and one beyond LEND_MAX ends too");
    }
}
