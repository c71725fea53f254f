//! The World: what the log says, folded. `apply` is the only writer of facts.
//!
//! W1 the same events in the same order make the same World, whatever was observed between them;
//! W2 everything that can be derived (nodes by state, who wants what, cores in use) is derived in `apply`, never decided;
//! W3 what is only observed (begun mini-batches, whether a node was ever shown, timers) is marked so and is not stored:
//!    the first turn after a restart looks at everything and finds it again.

mod batch;
mod family;
mod node;
mod run;
mod seat;
mod stored;
mod types;

pub use stored::FORMAT;

use model::{
    ComputeId, Declared, DocKey, Event, JobId, Kind, NodeId, Ranges, RunRecord, TaskId, Time, View,
    Why, run::TaskRecord, view::WorkspaceKey,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    batch::Batch,
    due::Timers,
    pods::{Held, Pods},
    pool::{Pool, Usage},
    requests::Requests,
};
pub(crate) use family::Results;
pub(crate) use run::Live;

/// Everything alive.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// What others read.
    pub view: View,
    pub(crate) lives: BTreeMap<JobId, Live>,
    pub(crate) pools: BTreeMap<ComputeId, Pool>,
    pub(crate) pods: BTreeMap<ComputeId, Pods>,
    pub(crate) requests: Requests,
    /// Results of steps, for identical ones.
    pub(crate) results: Results,
    /// The place in the queue that the next run gets.
    pub(crate) next_seq: u64,
    /// Where the incarnations of a cluster go on when it is made again: one number per name ever deleted.
    pub(crate) departed: BTreeMap<ComputeId, u32>,

    // Derived (W2).
    pub(crate) usage: BTreeMap<WorkspaceKey, Usage>,
    /// What our own pods hold of the embedded cluster.
    pub(crate) embedded: Held,
    /// Runs with tasks or an errand.
    pub(crate) active: BTreeSet<JobId>,
    pub(crate) finished: BTreeSet<(Time, JobId)>,

    // Observed, or between two steps of a turn (W3).
    pub(crate) dirty: BTreeSet<ComputeId>,
    pub(crate) short: BTreeSet<ComputeId>,
    pub(crate) usage_changed: bool,
    pub(crate) embedded_changed: bool,
    /// Nodes on their way that an engine shows, with what they wait for.
    pub(crate) shown_nodes: BTreeMap<NodeId, Option<Box<str>>>,
    pub(crate) shown_tasks: BTreeSet<TaskId>,
    pub(crate) timers: Timers,
    pub(crate) looked: bool,
}

/// An event that the World does not allow where it stands. Never in a log that `decide` wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Illegal(pub String);

pub(crate) fn illegal(message: impl Into<String>) -> Illegal {
    Illegal(message.into())
}

impl World {
    /// Folds one event in (E2: once). An event that is not legal here changes nothing.
    pub fn apply(&mut self, event: &Event) {
        let _legal = self.try_apply(event);
    }

    pub(crate) fn try_apply(&mut self, event: &Event) -> Result<(), Illegal> {
        match event {
            Event::Declared { document, declared } => {
                if let Declared::InstanceType(declared) = declared {
                    self.type_written(document, declared);
                }
                self.declared(&document.key, declared, document.modified);
                Ok(())
            }
            Event::Withdrawn { key, .. } => {
                self.withdrawn(key);
                Ok(())
            }
            Event::ComputeGone { compute } => self.compute_gone(compute),
            Event::CapacityHeld { compute, until } => {
                let record = self.view.clusters.get_mut(compute);
                let record = record.ok_or_else(|| illegal(format!("no cluster {compute}")))?;
                Arc::make_mut(record).held_until = Some(*until);
                self.dirty.insert(compute.clone());
                Ok(())
            }
            Event::Node { node, event, at } => self.apply_node(node, event, *at),
            Event::Run { run, event, at } => self.apply_run(run, event, *at),
            Event::Batch { run, event, at } => self.apply_batch(run, event, *at),
        }
    }

    fn declared(&mut self, key: &DocKey, declared: &Declared, at: Time) {
        match declared {
            Declared::Cluster(spec) => {
                let id = ComputeId::new(&key.workspace, key.path.clone());
                if let Some(record) = self.view.clusters.get_mut(&id) {
                    Arc::make_mut(record).spec = spec.clone();
                } else {
                    let record = model::ClusterRecord {
                        id: id.clone(),
                        spec: spec.clone(),
                        deleting: false,
                        held_until: None,
                        target: 0,
                        why: None,
                        changed: at,
                    };
                    self.view.clusters.insert_mut(id.clone(), Arc::new(record));
                    let mut pool = Pool::default();
                    pool.kept.base = self.departed.get(&id).copied().unwrap_or(0);
                    self.pools.insert(id.clone(), pool);
                }
                self.reseat_all(&id); // `max` decides which gangs can ever start
                self.retarget(&id);
                self.dirty.insert(id);
            }
            Declared::Kubernetes(spec) => self.kubernetes_declared(key, spec, at),
            Declared::InstanceType(_) => {} // `types`, which needs the document too
            Declared::Quotas(quotas) => {
                let key = WorkspaceKey(key.workspace.clone());
                self.view.quotas.insert_mut(key, quotas.clone());
                self.usage_changed = true;
            }
            Declared::Other => {}
        }
    }

    fn withdrawn(&mut self, key: &DocKey) {
        match key.kind {
            Kind::Compute => {
                let id = ComputeId::new(&key.workspace, key.path.clone());
                if let Some(record) = self.view.clusters.get_mut(&id) {
                    Arc::make_mut(record).deleting = true;
                    self.retarget(&id);
                    self.dirty.insert(id);
                } else if let Some(record) = self.view.kubernetes.get_mut(&id) {
                    Arc::make_mut(record).deleting = true;
                    self.dirty.insert(id);
                }
            }
            Kind::InstanceType => self.type_removed(&key.path),
            Kind::Job => {
                // A run that has ended goes with its document: its name is free. One that goes on keeps both (`may_forget`).
                let _not_here = self.retired(&JobId::new(&key.workspace, key.path.clone()));
            }
            Kind::Quota => {
                self.view
                    .quotas
                    .remove_mut(&WorkspaceKey(key.workspace.clone()));
                self.usage_changed = true;
            }
            Kind::Workspace
            | Kind::Datastore
            | Kind::Code
            | Kind::Model
            | Kind::Environment
            | Kind::Data
            | Kind::Component
            | Kind::BatchEndpoint
            | Kind::BatchDeployment
            | Kind::Identity
            | Kind::RoleAssignment
            | Kind::RoleDefinition
            | Kind::OnlineEndpoint
            | Kind::Tracked => {}
        }
    }

    fn compute_gone(&mut self, compute: &ComputeId) -> Result<(), Illegal> {
        if self.pods.remove(compute).is_some() {
            self.view.kubernetes.remove_mut(compute);
            return Ok(());
        }
        let Some(pool) = self.pools.remove(compute) else {
            return Err(illegal(format!("no cluster {compute}")));
        };
        let last = pool.kept.incarnations.values().copied().max();
        let next = last.unwrap_or(0).max(pool.kept.base);
        self.departed.insert(compute.clone(), next);
        self.view.clusters.remove_mut(compute);
        self.short.remove(compute);
        Ok(())
    }

    /// The batch side of a run that is not retired.
    pub fn batch(&self, job: &JobId) -> Option<&Batch> {
        self.lives.get(job)?.batch.as_ref()
    }
    /// The header line of a batch run's rows, once a host has reported one.
    pub fn header(&self, job: &JobId) -> Option<Box<str>> {
        self.batch(job)?.header.clone()
    }
    /// Whether a run was submitted under this request id lately.
    pub fn knows_request(&self, request: Option<&str>) -> bool {
        request.is_some_and(|r| self.requests.knows(r))
    }

    pub(crate) fn run(&self, job: &JobId) -> Option<&Arc<RunRecord>> {
        self.view.runs.get(job)
    }
    /// Whether a job is there and has not ended.
    pub fn goes_on(&self, job: &JobId) -> bool {
        self.run(job).is_some_and(|run| !run.state.is_done())
    }
    /// The live task of exactly this attempt.
    pub(crate) fn task(&self, task: &TaskId) -> Option<&TaskRecord> {
        let record = self.view.runs.get(&task.job)?;
        let found = record.tasks.get(&task.index)?;
        (found.attempt == task.attempt).then_some(found)
    }
    /// Whether a task may be given work: its node stays and it was not told to stop.
    pub(crate) fn is_able(&self, task: &TaskId) -> bool {
        let live = self.lives.get(&task.job);
        live.is_some_and(|l| l.able.contains(&task.index))
    }

    /// Remembers what a host has begun. Observed, not a fact (W3); a loss is counted by it.
    pub(crate) fn observe_started(&mut self, task: &TaskId, started: Ranges) {
        let Some(batch) = self.lives.get_mut(&task.job).and_then(|l| l.batch.as_mut()) else {
            return;
        };
        let Some(host) = batch.host_mut(task) else {
            return;
        };
        if host.started == started {
            return;
        }
        let (before, after) = (host.started.len(), started.len());
        host.started = started;
        if before != after
            && let Some(record) = self.view.runs.get_mut(&task.job)
            && let Some(progress) = &mut Arc::make_mut(record).progress
        {
            progress.started = (progress.started + after).saturating_sub(before);
        }
    }

    /// Notes why a cluster has fewer nodes than it wants. Follows from the World and the time; found again by the first turn (W3).
    pub(crate) fn note_shortage(&mut self, compute: &ComputeId, why: Option<Why>) {
        if matches!(why, Some(Why::Quota { .. })) {
            self.short.insert(compute.clone());
        } else {
            self.short.remove(compute);
        }
        let Some(record) = self.view.clusters.get_mut(compute) else {
            return;
        };
        if record.why != why {
            Arc::make_mut(record).why = why;
        }
    }
}
