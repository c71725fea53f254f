//! The World as a checkpoint keeps it: facts only; what can be derived is derived again (W2).

use model::{ComputeId, JobId, View, view::WorkspaceKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::{Live, World};
use crate::{
    pool::{Kept, Pool},
    requests::Requests,
};

/// The form of a checkpoint. A change of form gets a new number and a reader of the old one.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    format: u32,
    view: Cow<'a, View>,
    lives: Cow<'a, BTreeMap<JobId, Live>>,
    pools: BTreeMap<ComputeId, Cow<'a, Kept>>,
    requests: Cow<'a, Requests>,
    next_seq: u64,
    departed: Cow<'a, BTreeMap<ComputeId, u32>>,
}

impl Serialize for World {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Stored {
            format: FORMAT,
            view: Cow::Borrowed(&self.view),
            lives: Cow::Borrowed(&self.lives),
            pools: self
                .pools
                .iter()
                .map(|(id, pool)| (id.clone(), Cow::Borrowed(&pool.kept)))
                .collect(),
            requests: Cow::Borrowed(&self.requests),
            next_seq: self.next_seq,
            departed: Cow::Borrowed(&self.departed),
        }
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for World {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let stored = Stored::deserialize(d)?;
        if stored.format != FORMAT {
            return Err(de::Error::custom(format!(
                "the checkpoint has format {}, this version reads format {FORMAT}",
                stored.format
            )));
        }
        let mut world = World {
            view: stored.view.into_owned(),
            lives: stored.lives.into_owned(),
            requests: stored.requests.into_owned(),
            next_seq: stored.next_seq,
            departed: stored.departed.into_owned(),
            ..World::default()
        };
        for (id, kept) in stored.pools {
            let pool = Pool {
                kept: kept.into_owned(),
                ..Pool::default()
            };
            world.pools.insert(id, pool);
        }
        world.derive();
        Ok(world)
    }
}

impl World {
    /// Builds again everything that follows from the facts.
    fn derive(&mut self) {
        let clusters: Vec<_> = self.view.clusters.keys().cloned().collect();
        for id in &clusters {
            self.note_shortage(id, None);
        }
        for node in self.view.nodes.values() {
            if let Some(pool) = self.pools.get_mut(&node.id.compute) {
                pool.enter(node);
            }
            if node.state.exists()
                && let Some(cluster) = self.view.clusters.get(&node.id.compute)
            {
                let key = WorkspaceKey(node.id.compute.workspace().clone());
                let usage = self.usage.entry(key).or_default();
                usage.add(&cluster.spec.size, cluster.spec.tier);
            }
        }
        let jobs: Vec<JobId> = self.lives.keys().cloned().collect();
        for job in &jobs {
            self.derive_run(job);
            self.reseat(job);
        }
        for id in &clusters {
            self.retarget(id);
        }
    }

    fn derive_run(&mut self, job: &JobId) {
        let (Some(record), Some(live)) = (self.view.runs.get_mut(job), self.lives.get_mut(job))
        else {
            return;
        };
        for (&index, task) in &record.tasks {
            let node = self.view.nodes.get(&task.node);
            if !task.stopping && node.is_some_and(|n| n.state.usable()) {
                live.able.insert(index);
            }
        }
        if let Some(ended) = record.ended {
            self.finished.insert((ended, job.clone()));
        }
        if record.progress.as_ref().is_some_and(|p| p.started != 0)
            && let Some(progress) = &mut Arc::make_mut(record).progress
        {
            progress.started = 0; // W3
        }
    }

    /// What is wrong with this World, if anything: derived values that do not follow from the facts, facts that contradict
    /// each other. For tests.
    #[doc(hidden)]
    pub fn audit(&self) -> Vec<String> {
        let mut again = World {
            view: self.view.clone(),
            lives: self.lives.clone(),
            ..World::default()
        };
        for live in again.lives.values_mut() {
            live.able.clear();
            live.seat = super::seat::Seat::default();
        }
        for (id, pool) in &self.pools {
            let kept = pool.kept.clone();
            again.pools.insert(
                id.clone(),
                Pool {
                    kept,
                    ..Pool::default()
                },
            );
        }
        again.derive();
        let mut wrong = Vec::new();
        let mut differ = |what: &str, a: String, b: String| {
            if a != b {
                wrong.push(format!("{what}: kept {a}, derived {b}"));
            }
        };
        for (id, pool) in &self.pools {
            differ(
                &format!("pool {id}"),
                format!("{pool:?}"),
                format!("{:?}", again.pools.get(id).unwrap_or(&Pool::default())),
            );
        }
        for (id, live) in &self.lives {
            let other = again.lives.get(id);
            let seat = |l: &Live| format!("{:?} {:?}", l.able, l.seat);
            differ(
                &format!("run {id}"),
                seat(live),
                other.map(seat).unwrap_or_default(),
            );
        }
        let usage = |w: &World| {
            let used = w.usage.iter();
            let used = used.filter(|(_, u)| u.low_priority + u.dedicated > 0);
            format!("{:?}", used.collect::<Vec<_>>())
        };
        differ("usage", usage(self), usage(&again));
        differ(
            "active",
            format!("{:?}", self.active),
            format!("{:?}", again.active),
        );
        differ(
            "finished",
            format!("{:?}", self.finished),
            format!("{:?}", again.finished),
        );
        for (id, cluster) in self.view.clusters.iter() {
            let other = again.view.clusters.get(id).map_or(0, |c| c.target);
            differ(
                &format!("target of {id}"),
                cluster.target.to_string(),
                other.to_string(),
            );
        }
        self.audit_batches(&mut wrong);
        wrong
    }

    /// Every mini-batch is in exactly one place, and the numbers say so.
    fn audit_batches(&self, wrong: &mut Vec<String>) {
        for (id, live) in &self.lives {
            let (Some(batch), Some(record)) = (&live.batch, self.view.runs.get(id)) else {
                continue;
            };
            let Some(progress) = &record.progress else {
                continue;
            };
            let mut held = model::Ranges::new();
            let mut lent = 0;
            for host in batch.hosts.values() {
                held.extend(&host.holding());
                lent += host.held();
            }
            let done = batch.done();
            let places = [&done, &batch.failed, &held, &batch.front];
            let sum: u32 = places.iter().map(|p| p.len()).sum();
            let mut union = model::Ranges::new();
            for p in places {
                union.extend(p);
            }
            if sum != union.len() || lent != held.len() || lent != batch.lent {
                wrong.push(format!("run {id}: a mini-batch is in two places"));
            }
            if (progress.done, progress.failed, progress.lent)
                != (done.len(), batch.failed.len(), batch.lent)
            {
                wrong.push(format!("run {id}: progress differs from its mini-batches"));
            }
            let tail = batch.pick(u32::MAX);
            if !record.state.is_done() && tail.len() != batch.waiting() {
                wrong.push(format!(
                    "run {id}: {} wait, {} can be picked",
                    batch.waiting(),
                    tail.len()
                ));
            }
        }
    }
}
