//! Where a run stands in its cluster's queue: what it wants, what it waits for. Derived from the run (W2).

use model::{BatchSpec, ComputeId, JobId, RunRecord, RunState, Work};
use std::sync::Arc;

use super::{Live, World};
use crate::pool::{Seek, count};

/// The place of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Nodes that it wants in all.
    pub want: u32,
    /// Nodes that it wants and does not have.
    pub need: u32,
    /// Whether it takes them all at once or not at all.
    pub gang: bool,
    /// Whether it has no task.
    pub first: bool,
    /// Whether it wants more than there may ever be.
    pub stuck: bool,
    /// Whether it has tasks.
    pub holding: bool,
    /// Whether an errand is under way for it.
    pub errand: bool,
    /// Whether it is not done.
    pub alive: bool,
    /// Whether it waits to be admitted as pods.
    pub waits: bool,
    /// Its pods whose program has not started.
    pub unstarted: u32,
}

fn seat_of(record: &RunRecord, live: &Live, max: u32) -> Seat {
    let holding = !record.tasks.is_empty();
    let mut seat = Seat {
        holding,
        alive: !record.state.is_done(),
        ..Seat::default()
    };
    match record.state {
        RunState::Done(_) | RunState::Canceling(_) => return seat,
        RunState::Queued | RunState::Preparing | RunState::Running => {}
    }
    match &record.spec.work {
        Work::Command => {
            let instances = record.spec.instances.max(1);
            let queued = record.state == RunState::Queued;
            seat.want = if queued {
                instances
            } else {
                count(record.tasks.len())
            };
            if queued && !holding {
                seat.stuck = instances > max;
                seat.need = if seat.stuck { 0 } else { instances };
                seat.gang = true;
                seat.first = true;
                seat.waits = true;
            }
            seat.errand = record.spec.sends() && record.worked();
            seat.unstarted = count(
                record
                    .tasks
                    .values()
                    .filter(|t| !t.running && t.place.pod().is_some())
                    .count(),
            );
        }
        Work::Batch(spec) => batch_seat(&mut seat, record, live, spec),
        Work::Pipeline(_) | Work::Sweep(_) => {}
    }
    seat
}

/// A batch run wants its hosts, and one more for each `workers_per_node` waiting mini-batches that no host without work is
/// there for, up to `instances`. Hosts on nodes that are leaving do not count: they are given nothing more.
fn batch_seat(seat: &mut Seat, record: &RunRecord, live: &Live, spec: &BatchSpec) {
    let (Some(batch), Some(progress)) = (&live.batch, &record.progress) else {
        return;
    };
    if !progress.listed {
        seat.errand = true;
        return; // no node is paid for while the input is listed
    }
    if batch.complete() {
        seat.errand = progress.published.is_none();
        return;
    }
    let hosts = count(live.able.len());
    let room = record.spec.instances.max(1).saturating_sub(hosts);
    let workers = spec.workers_per_node.max(1);
    let useful = batch.waiting().div_ceil(workers);
    seat.need = room.min(useful.saturating_sub(count(live.hungry.len())));
    seat.want = hosts + seat.need;
    seat.first = record.tasks.is_empty();
}

impl World {
    /// Finds the place of a run anew, after something about it changed.
    pub(super) fn reseat(&mut self, job: &JobId) {
        let (Some(record), Some(live)) = (self.view.runs.get(job), self.lives.get_mut(job)) else {
            return;
        };
        if record.spec.is_parent() {
            return; // no node is for it, and the end of a compute ends its children
        }
        let compute = &record.spec.compute;
        let max = match self.view.clusters.get(compute) {
            Some(cluster) => cluster.spec.max,
            None if self.view.kubernetes.contains_key(compute) => u32::MAX,
            None => 0,
        };
        let seat = seat_of(record, live, max);
        if live.seat == seat {
            return;
        }
        let seq = live.seq;
        let before = std::mem::replace(&mut live.seat, seat.clone());
        let active = seat.alive && (seat.holding || seat.errand);
        if active != (before.alive && (before.holding || before.errand)) {
            if active {
                self.active.insert(job.clone());
            } else {
                self.active.remove(job);
            }
        }
        let compute = compute.clone();
        if let Some(pool) = self.pools.get_mut(&compute) {
            pool.wants = pool.wants + u64::from(seat.want) - u64::from(before.want);
            set(&mut pool.runs, seq, job, before.alive, seat.alive);
            set(&mut pool.holding, seq, job, before.holding, seat.holding);
            set(&mut pool.stuck, seq, job, before.stuck, seat.stuck);
            if seat.need == 0 {
                pool.seeking.remove(&seq);
            } else if let Some(seek) = pool.seeking.get_mut(&seq) {
                (seek.need, seek.gang, seek.first) = (seat.need, seat.gang, seat.first);
            } else {
                let seek = Seek {
                    job: job.clone(),
                    need: seat.need,
                    gang: seat.gang,
                    first: seat.first,
                };
                pool.seeking.insert(seq, seek);
            }
        }
        if let Some(pods) = self.pods.get_mut(&compute) {
            set(&mut pods.runs, seq, job, before.alive, seat.alive);
            set(&mut pods.waiting, seq, job, before.waits, seat.waits);
            let gang = self
                .view
                .runs
                .get(job)
                .is_some_and(|r| r.spec.instances > 1);
            if seat.unstarted == 0 {
                pods.unstarted.remove(&seq);
                pods.gangs.remove(&seq);
            } else {
                pods.unstarted.insert(seq, seat.unstarted);
                if gang {
                    pods.gangs.insert(seq);
                }
            }
        }
        if seat.want != before.want {
            self.retarget(&compute);
        }
        if !self.dirty.contains(&compute) {
            self.dirty.insert(compute);
        }
    }

    /// Looks again at the runs of a Kubernetes compute that was declared again.
    pub(super) fn reseat_waiting(&mut self, compute: &ComputeId) {
        let jobs: Vec<JobId> = match self.pods.get(compute) {
            Some(pods) => pods.waiting.values().cloned().collect(),
            None => return,
        };
        for job in jobs {
            self.reseat(&job);
        }
    }

    /// Finds the places of all runs of a cluster anew.
    pub(super) fn reseat_all(&mut self, compute: &ComputeId) {
        let Some(pool) = self.pools.get(compute) else {
            return;
        };
        let jobs: Vec<JobId> = pool.runs.values().cloned().collect();
        for job in jobs {
            self.reseat(&job);
        }
    }

    /// Nodes that the cluster should have: what its runs want, within its limits.
    pub(super) fn retarget(&mut self, compute: &ComputeId) {
        let Some(pool) = self.pools.get(compute) else {
            return;
        };
        let Some(cluster) = self.view.clusters.get_mut(compute) else {
            return;
        };
        let target = if cluster.deleting {
            0
        } else {
            let wants = u32::try_from(pool.wants).unwrap_or(u32::MAX);
            wants.clamp(cluster.spec.min.min(cluster.spec.max), cluster.spec.max)
        };
        if cluster.target != target {
            Arc::make_mut(cluster).target = target;
        }
    }
}

fn set(
    map: &mut std::collections::BTreeMap<u64, JobId>,
    seq: u64,
    job: &JobId,
    before: bool,
    now: bool,
) {
    match (before, now) {
        (false, true) => {
            map.insert(seq, job.clone());
        }
        (true, false) => {
            map.remove(&seq);
        }
        (true, true) | (false, false) => {}
    }
}
