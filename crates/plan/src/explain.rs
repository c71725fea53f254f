//! Why a run waits. Only the first waiting run of a cluster is told by an event; for those behind it the reason is their
//! place in line, found when somebody asks, so that a hundred thousand queued runs cost a turn nothing.

use model::{ComputeId, JobId, Outcome, RunEvent, RunState, Time, Why};

use crate::{
    pool::{Seek, count},
    scale::cluster_full,
    turn::Turning,
    world::World,
};

/// What a run waits for, or why it ended as it did; `None` when it waits for nothing or is not known.
pub fn explain(world: &World, job: &JobId, _now: Time) -> Option<Why> {
    reason(world, job)
}

fn reason(world: &World, job: &JobId) -> Option<Why> {
    let record = world.view.runs.get(job)?;
    match &record.state {
        RunState::Done(outcome) | RunState::Canceling(outcome) => {
            return match outcome {
                Outcome::Completed => None,
                Outcome::Failed(why) | Outcome::Canceled(why) => Some(why.clone()),
            };
        }
        RunState::Queued | RunState::Preparing | RunState::Running => {}
    }
    if let Some(family) = &record.family {
        let mut open = family.children.values().filter(|c| c.outcome.is_none());
        return open.find_map(|child| {
            let why = Box::new(reason(world, &child.job)?);
            let key = child.key.clone();
            Some(Why::Child { key, why })
        });
    }
    let compute = &record.spec.compute;
    if world.pods.contains_key(compute) {
        return world.pod_why(compute, job);
    }
    if record.why.is_some() {
        return record.why.clone();
    }
    let live = world.lives.get(job)?;
    let pool = world.pools.get(compute)?;
    if live.seat.stuck {
        return Some(Why::TooManyInstances {
            need: record.spec.instances,
            max: world.view.clusters.get(compute)?.spec.max,
        });
    }
    let seek = pool.seeking.get(&live.seq)?;
    if !seek.first {
        return world.view.clusters.get(compute)?.why.clone(); // it runs, on fewer nodes than it could use
    }
    let mut before = pool.seeking.range(..live.seq).filter(|(_, s)| s.first);
    match before.next() {
        None => head_why(world, compute, seek),
        Some((_, first)) => Some(Why::Behind {
            ahead: 1 + count(before.count()),
            first: first.job.name().into(),
        }),
    }
}

/// What the first waiting run of a cluster waits for.
fn head_why(world: &World, compute: &ComputeId, seek: &Seek) -> Option<Why> {
    let pool = world.pools.get(compute)?;
    let cluster = world.view.clusters.get(compute)?;
    let (ready, coming) = (count(pool.idle.len()), count(pool.preparing.len()));
    let enough = if seek.gang { seek.need } else { 1 };
    if ready.saturating_add(coming) >= enough {
        return Some(Why::NodesComing {
            need: seek.need,
            ready,
            coming,
            what: pool.preparing.iter().find_map(|mark| {
                let id = model::NodeId {
                    compute: compute.clone(),
                    ordinal: mark.ordinal,
                    incarnation: mark.incarnation,
                };
                world.shown_nodes.get(&id)?.clone()
            }),
        });
    }
    cluster
        .why
        .clone()
        .or_else(|| cluster_full(world, compute, 0))
}

impl Turning<'_> {
    /// Tells the first waiting run what it waits for, when that changed.
    pub fn explain_head(&mut self, compute: &ComputeId) {
        let Some(pool) = self.world.pools.get(compute) else {
            return;
        };
        let head = pool.head().map(|(_, seek)| seek.clone());
        let others = pool.kept.told.iter();
        let others = others.filter(|&job| head.as_ref().is_none_or(|h| h.job != *job));
        for job in others.cloned().collect::<Vec<_>>() {
            self.emit_run(&job, RunEvent::Explained { why: None }); // its reason is its place in line now
        }
        let Some(head) = head else {
            return;
        };
        let why = head_why(self.world, compute, &head);
        if self.world.run(&head.job).is_some_and(|r| r.why != why) {
            self.emit_run(&head.job, RunEvent::Explained { why });
        }
    }
}
