//! Scaling: as many nodes as the runs want, within the limits of the cluster.
//!
//! C1 preempted nodes count nowhere, so what was lost is asked for again;
//! C2 a node without work goes exactly `idle` after it became idle, if there are more than the target; never below `min`;
//! C3 a node that holds a task is never let go (K2): placing has had its turn before this looks;
//! C4 a node that breaks is replaced after a pause that doubles, so that a provider who cannot is not hammered.

use model::{ComputeId, Millis, NodeEvent, NodeId, Time, Why};

use crate::{
    limits::{BOOT_LIMIT, PREEMPTED_SHOWN, SHOWN_HOLDERS, UNUSABLE_SHOWN},
    pool::{Mark, Pool, count},
    quota,
    turn::Turning,
    world::World,
};

fn node(compute: &ComputeId, mark: &Mark) -> NodeId {
    NodeId {
        compute: compute.clone(),
        ordinal: mark.ordinal,
        incarnation: mark.incarnation,
    }
}

/// The first of `marks` whose time is up.
fn expired<'a>(
    marks: impl IntoIterator<Item = &'a Mark>,
    limit: Millis,
    now: Time,
) -> Option<&'a Mark> {
    let first = marks.into_iter().next()?;
    (now >= first.time + limit).then_some(first)
}

impl Turning<'_> {
    /// Lets go what is not needed, does not work, or has been shown long enough.
    pub fn trim(&mut self, compute: &ComputeId) {
        let Some(cluster) = self.world.view.clusters.get(compute).cloned() else {
            return;
        };
        if cluster.deleting {
            return self.let_all_go(compute);
        }
        while let Some(id) = self.first_expired(compute, |p| &p.preempted, PREEMPTED_SHOWN) {
            self.emit_node(&id, NodeEvent::Gone);
        }
        while let Some(id) = self.first_expired(compute, |p| &p.preparing, BOOT_LIMIT) {
            let why = format!(
                "it was not up {} s after it was asked for",
                BOOT_LIMIT.0 / 1000
            );
            self.emit_node(&id, NodeEvent::Broke { why: why.into() });
        }
        while let Some(id) = self.first_expired(compute, |p| &p.unusable, UNUSABLE_SHOWN) {
            self.let_go(&id);
        }
        while let Some(pool) = self.world.pools.get(compute)
            && pool.usable() > cluster.target
            && let Some(oldest) = pool.idle.last()
            && self.now >= oldest.since.0 + cluster.spec.idle
        {
            let id = NodeId {
                compute: compute.clone(),
                ordinal: oldest.ordinal,
                incarnation: oldest.incarnation,
            };
            self.let_go(&id); // C2, C3
        }
    }

    fn first_expired(
        &self,
        compute: &ComputeId,
        of: fn(&Pool) -> &std::collections::BTreeSet<Mark>,
        limit: Millis,
    ) -> Option<NodeId> {
        let pool = self.world.pools.get(compute)?;
        let mark = expired(of(pool), limit, self.now)?;
        Some(node(compute, mark))
    }

    /// Asks for the nodes that are missing, as far as something allows it; notes what does not.
    pub fn grow(&mut self, compute: &ComputeId) {
        let (Some(pool), Some(cluster)) = (
            self.world.pools.get(compute),
            self.world.view.clusters.get(compute),
        ) else {
            return;
        };
        let missing = cluster.target.saturating_sub(pool.usable());
        let (granted, why) = if missing == 0 {
            (0, None)
        } else {
            grant(self.world, compute, missing, self.now)
        };
        let incarnation = |&o: &u32| (o, pool.next_incarnation(o));
        let free = pool.free_ordinals(granted, cluster.spec.max);
        let places: Vec<(u32, u32)> = free.iter().map(incarnation).collect();
        for (ordinal, incarnation) in places {
            let id = NodeId {
                compute: compute.clone(),
                ordinal,
                incarnation,
            };
            self.emit_node(&id, NodeEvent::Asked);
        }
        self.world.note_shortage(compute, why);
    }

    /// Says anew what keeps a cluster from growing, after others have taken or freed cores.
    pub fn note_shortage(&mut self, compute: &ComputeId) {
        let (Some(pool), Some(cluster)) = (
            self.world.pools.get(compute),
            self.world.view.clusters.get(compute),
        ) else {
            return;
        };
        let missing = cluster.target.saturating_sub(pool.usable());
        let (_, why) = grant(self.world, compute, missing, self.now);
        self.world.note_shortage(compute, why);
    }

    /// When a cluster has to be looked at again though nothing happens.
    pub fn next_look(&self, compute: &ComputeId) -> Option<Time> {
        let pool = self.world.pools.get(compute)?;
        let cluster = self.world.view.clusters.get(compute)?;
        let after = |marks: &std::collections::BTreeSet<Mark>, limit: Millis| {
            marks.first().map(|m| m.time + limit)
        };
        let idle = if pool.usable() > cluster.target {
            pool.idle.last().map(|s| s.since.0 + cluster.spec.idle)
        } else {
            None
        };
        let short = cluster.target > pool.usable();
        let later = |at: Option<Time>| at.filter(|&at| short && at > self.now);
        [
            idle,
            after(&pool.preempted, PREEMPTED_SHOWN),
            after(&pool.preparing, BOOT_LIMIT),
            after(&pool.unusable, UNUSABLE_SHOWN),
            later(cluster.held_until),
            later(pool.kept.retry_at),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// How many of `missing` nodes may be asked for now, and what forbids the rest.
fn grant(world: &World, compute: &ComputeId, missing: u32, now: Time) -> (u32, Option<Why>) {
    let (Some(pool), Some(cluster)) = (world.pools.get(compute), world.view.clusters.get(compute))
    else {
        return (0, None);
    };
    if let Some(until) = cluster.held_until.filter(|&until| now < until) {
        return (0, Some(Why::CapacityHeld { until }));
    }
    let broken = || {
        let (node, why) = pool.kept.broke.as_ref()?;
        let message = format!("node {node} does not work: {why}");
        Some(Why::Engine {
            message: message.into(),
        })
    };
    if pool.kept.retry_at.is_some_and(|at| now < at) {
        return (0, broken()); // C4
    }
    let places = cluster.spec.max.saturating_sub(pool.existing());
    let (granted, quota) = quota::allowed(world, compute, &cluster.spec, missing.min(places));
    let full = || {
        // A place that a broken node takes is free soon; what broke it is what the reader wants to know.
        let broken = broken().filter(|_| !pool.unusable.is_empty());
        broken.or_else(|| cluster_full(world, compute, granted))
    };
    let why = quota.or_else(|| if places < missing { full() } else { None });
    (granted, why)
}

/// Every place of a cluster is taken, and by whom; `more` nodes are about to be asked for.
pub(crate) fn cluster_full(world: &World, compute: &ComputeId, more: u32) -> Option<Why> {
    let pool = world.pools.get(compute)?;
    let cluster = world.view.clusters.get(compute)?;
    Some(Why::ClusterFull {
        nodes: count(pool.ordinals.len()) + more,
        max: cluster.spec.max,
        holders: pool
            .holding
            .values()
            .take(SHOWN_HOLDERS)
            .map(|job| job.name().into())
            .collect(),
    })
}
