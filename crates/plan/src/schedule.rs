//! Placing: nodes go to runs in the order of submission, cluster by cluster.
//!
//! S1 a node without work goes to the first run that wants one; a run that cannot start keeps those after it from the nodes
//!    that it waits for, so no run waits for ever while smaller ones pass it;
//! S2 a gang takes all its nodes in one turn or none;
//! S3 a batch run starts with what there is. It takes further nodes in its turn as they become free, but reserves none: a
//!    run after it gets every node that no run before it wants;
//! S4 what became idle last is used first.

use model::{ComputeId, JobId, NodeEvent, NodeId, Place, RunEvent, TaskId};

use crate::{
    due::Due,
    pool::{Seek, Spare, count},
    turn::Turning,
};

impl Turning<'_> {
    /// Gives nodes to runs, lets nodes go, asks for nodes, says why: of each cluster that something happened to.
    pub fn pools(&mut self, all: bool) {
        let mut look = std::mem::take(&mut self.due_pools);
        look.append(&mut self.world.dirty);
        if all {
            look.extend(self.world.pools.keys().cloned());
            look.extend(self.world.pods.keys().cloned());
        }
        self.embedded_room();
        look.append(&mut self.world.dirty);
        for compute in &look {
            self.admit(compute);
        }
        // What was given away is room that others were told of: they are told anew. Nothing more fits by then.
        self.embedded_room();
        for compute in std::mem::take(&mut self.world.dirty) {
            self.admit(&compute);
            look.insert(compute);
        }
        for compute in &look {
            self.place(compute);
        }
        for compute in &look {
            self.trim(compute);
        }
        // Who waits for a quota is looked at whenever cores were freed or taken, since the reason names who holds them.
        if self.world.usage_changed {
            look.extend(self.world.short.iter().cloned());
        }
        let mut order: Vec<(u64, &ComputeId)> = look.iter().map(|c| (self.turn_of(c), c)).collect();
        order.sort();
        for (_, compute) in order {
            self.grow(compute);
        }
        if std::mem::take(&mut self.world.usage_changed) {
            for compute in self.world.short.clone() {
                self.note_shortage(&compute);
                look.insert(compute);
            }
        }
        for compute in &look {
            self.regard(compute);
        }
        self.world.dirty.clear();
    }

    /// The place in line of a cluster's first waiting run: quotas that several clusters want go by it.
    fn turn_of(&self, compute: &ComputeId) -> u64 {
        let pool = self.world.pools.get(compute);
        let first = pool.and_then(|p| p.seeking.first_key_value());
        first.map_or(u64::MAX, |(&seq, _)| seq)
    }

    /// S1 to S4 for one cluster.
    fn place(&mut self, compute: &ComputeId) {
        let Some(cluster) = self.world.view.clusters.get(compute) else {
            return;
        };
        if cluster.deleting {
            return;
        }
        let mut from = 0;
        loop {
            let Some(pool) = self.world.pools.get(compute) else {
                return;
            };
            let free = count(pool.idle.len());
            let Some((&seq, seek)) = pool.seeking.range(from..).next() else {
                return;
            };
            from = seq + 1;
            if free == 0 || (seek.gang && seek.need > free) {
                return; // S1, S2
            }
            let n = seek.need.min(free);
            let spares: Vec<Spare> = pool.idle.iter().take(n as usize).copied().collect(); // S4
            let seek = seek.clone();
            self.seat(compute, &seek, &spares);
        }
    }

    fn seat(&mut self, compute: &ComputeId, seek: &Seek, spares: &[Spare]) {
        for spare in spares {
            let node = NodeId {
                compute: compute.clone(),
                ordinal: spare.ordinal,
                incarnation: spare.incarnation,
            };
            let Some(task) = self.next_task(&seek.job) else {
                return;
            };
            self.emit_node(&node, NodeEvent::Placed { task: task.clone() });
            let place = Place::On(node);
            self.emit_run(&seek.job, RunEvent::Placed { task, place });
        }
    }

    /// The lowest index without a live task, in its next attempt.
    fn next_task(&self, job: &JobId) -> Option<TaskId> {
        let tasks = &self.world.run(job)?.tasks;
        let mut taken = tasks.keys().copied().peekable();
        let index = (0..).find(|&i| taken.next_if_eq(&i).is_none())?;
        Some(TaskId {
            job: job.clone(),
            index,
            attempt: self.world.lives.get(job)?.next_attempt(index),
        })
    }

    /// Says what the first waiting run waits for, sets the timer, ends a deletion.
    fn regard(&mut self, compute: &ComputeId) {
        self.explain_head(compute);
        let Some(cluster) = self.world.view.clusters.get(compute) else {
            self.world.timers.set(Due::Pool(compute.clone()), None);
            return;
        };
        let empty = cluster.deleting && self.world.view.nodes_of(compute).next().is_none();
        let busy = self.world.pools.get(compute);
        if empty && busy.is_some_and(|p| p.runs.is_empty()) {
            let compute = compute.clone();
            self.world.timers.set(Due::Pool(compute.clone()), None);
            self.emit_event(model::Event::ComputeGone { compute });
            return;
        }
        let at = self.next_look(compute);
        self.world.timers.set(Due::Pool(compute.clone()), at);
    }
}
