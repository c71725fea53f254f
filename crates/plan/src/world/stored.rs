//! The World as a checkpoint keeps it: facts only; what can be derived is derived again (W2).

use model::{ComputeId, JobId, View, view::WorkspaceKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::{Live, Results, World};
use crate::{
    pool::{Kept, Pool},
    requests::Requests,
};

/// The form of a checkpoint. A change of form gets a new number and a reader of the old one.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    format: u32,
    view: Cow<'a, View>,
    lives: Cow<'a, BTreeMap<JobId, Live>>,
    pools: BTreeMap<ComputeId, Cow<'a, Kept>>,
    requests: Cow<'a, Requests>,
    #[serde(default)]
    results: Cow<'a, Results>,
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
            results: Cow::Borrowed(&self.results),
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
            results: stored.results.into_owned(),
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
        for id in self.view.kubernetes.keys() {
            self.pods.entry(id.clone()).or_default();
        }
        let jobs: Vec<JobId> = self.lives.keys().cloned().collect();
        for job in &jobs {
            self.derive_run(job);
            self.reseat(job);
            self.derive_pods(job);
        }
        for id in &clusters {
            self.retarget(id);
        }
    }

    fn derive_pods(&mut self, job: &JobId) {
        let Some(record) = self.view.runs.get(job).cloned() else {
            return;
        };
        for task in record.tasks.values() {
            self.hold(&task.place);
        }
        if record.why.is_some()
            && let Some(pods) = self.pods.get_mut(&record.spec.compute)
            && pods.waiting.values().any(|j| j == job)
        {
            pods.told.insert(job.clone());
        }
    }

    fn derive_run(&mut self, job: &JobId) {
        let (Some(record), Some(live)) = (self.view.runs.get_mut(job), self.lives.get_mut(job))
        else {
            return;
        };
        for (&index, task) in &record.tasks {
            let node = task.place.node().map(|node| self.view.nodes.get(node));
            let stays = node.is_none_or(|n| n.is_some_and(|n| n.state.usable()));
            if !task.stopping && stays {
                live.enable(index);
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
            results: self.results.clone(),
            ..World::default()
        };
        for live in again.lives.values_mut() {
            live.able.clear();
            live.hungry.clear();
            live.seat = super::seat::Seat::default();
        }
        for (id, pool) in &self.pools {
            let kept = pool.kept.clone();
            let pool = Pool {
                kept,
                ..Pool::default()
            };
            again.pools.insert(id.clone(), pool);
        }
        again.derive();
        let mut wrong = Vec::new();
        differ(&mut wrong, "pools", &self.pools, &again.pools);
        differ(&mut wrong, "pods", &self.pods, &again.pods);
        differ(&mut wrong, "embedded", &self.embedded, &again.embedded);
        differ(&mut wrong, "lives", &self.lives, &again.lives);
        differ(&mut wrong, "active runs", &self.active, &again.active);
        differ(&mut wrong, "finished runs", &self.finished, &again.finished);
        let used = |w: &World| {
            let used = w.usage.iter();
            let used = used.filter(|(_, u)| u.low_priority + u.dedicated > 0);
            used.map(|(k, u)| (k.clone(), u.clone()))
                .collect::<BTreeMap<_, _>>()
        };
        differ(&mut wrong, "usage", &used(self), &used(&again));
        let targets = |w: &World| {
            w.view
                .clusters
                .values()
                .map(|c| c.target)
                .collect::<Vec<_>>()
        };
        differ(&mut wrong, "targets", &targets(self), &targets(&again));
        self.audit_batches(&mut wrong);
        wrong
    }

    /// Where the facts of two Worlds differ, if they do. For tests.
    #[doc(hidden)]
    pub fn facts_differ(&self, other: &World) -> Vec<String> {
        let mut wrong = Vec::new();
        let clusters = |w: &World| {
            let all = w.view.clusters.values();
            let fact = all.map(|c| model::ClusterRecord {
                why: None, // W3
                ..(**c).clone()
            });
            fact.collect::<Vec<_>>()
        };
        let runs = |w: &World| {
            let all = w.view.runs.values().map(|r| {
                let mut r = r.clone();
                if r.progress.as_ref().is_some_and(|p| p.started != 0)
                    && let Some(progress) = &mut Arc::make_mut(&mut r).progress
                {
                    progress.started = 0; // W3
                }
                r
            });
            all.collect::<Vec<_>>()
        };
        differ(&mut wrong, "clusters", &clusters(self), &clusters(other));
        differ(&mut wrong, "runs", &runs(self), &runs(other));
        let nodes = |w: &World| w.view.nodes.values().cloned().collect::<Vec<_>>();
        differ(&mut wrong, "nodes", &nodes(self), &nodes(other));
        let quotas = |w: &World| w.view.quotas.values().cloned().collect::<Vec<_>>();
        differ(&mut wrong, "quotas", &quotas(self), &quotas(other));
        differ(&mut wrong, "lives", &self.lives, &other.lives);
        differ(&mut wrong, "results", &self.results, &other.results);
        differ(&mut wrong, "pools", &self.pools, &other.pools);
        differ(&mut wrong, "pods", &self.pods, &other.pods);
        differ(&mut wrong, "embedded", &self.embedded, &other.embedded);
        differ(&mut wrong, "requests", &self.requests, &other.requests);
        differ(&mut wrong, "departed", &self.departed, &other.departed);
        differ(&mut wrong, "next_seq", &self.next_seq, &other.next_seq);
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

fn differ<T: PartialEq + std::fmt::Debug>(wrong: &mut Vec<String>, what: &str, a: &T, b: &T) {
    if a != b {
        wrong.push(format!("{what} differ: {a:#?}\nand {b:#?}"));
    }
}
