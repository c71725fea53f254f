//! What an event does to a node, its pool, the cores in use and the task that it held.

use model::{ComputeId, JobId, NodeEvent, NodeId, NodeRecord, NodeState, Time, view::WorkspaceKey};
use std::{mem::discriminant, sync::Arc};

use super::{Illegal, World, illegal};
use crate::limits::{BACKOFF_FIRST, BACKOFF_LAST};

impl World {
    pub(super) fn apply_node(
        &mut self,
        id: &NodeId,
        event: &NodeEvent,
        at: Time,
    ) -> Result<(), Illegal> {
        let resizing = self
            .pools
            .get(&id.compute)
            .ok_or_else(|| illegal(format!("node {id} of no cluster")))?
            .resizing();
        match event {
            NodeEvent::Asked => self.node_asked(id, at)?,
            NodeEvent::Gone => self.node_gone(id)?,
            NodeEvent::Ready
            | NodeEvent::Placed { .. }
            | NodeEvent::Emptied
            | NodeEvent::Evicting { .. }
            | NodeEvent::Removing
            | NodeEvent::Preempted
            | NodeEvent::Broke { .. } => self.node_moves(id, event, at)?,
        }
        if let Some(pool) = self.pools.get(&id.compute)
            && pool.resizing() != resizing
            && let Some(cluster) = self.view.clusters.get_mut(&id.compute)
        {
            Arc::make_mut(cluster).changed = at;
        }
        if !self.dirty.contains(&id.compute) {
            self.dirty.insert(id.compute.clone());
        }
        Ok(())
    }

    fn node_asked(&mut self, id: &NodeId, at: Time) -> Result<(), Illegal> {
        if self.view.nodes.contains_key(id) {
            return Err(illegal(format!("node {id} is there already")));
        }
        let record = NodeRecord {
            id: id.clone(),
            state: NodeState::Preparing,
            since: at,
            asked: at,
        };
        if let Some(pool) = self.pools.get_mut(&id.compute) {
            pool.enter(&record);
            let next = id.incarnation + 1;
            pool.kept.incarnations.insert(id.ordinal, next);
        }
        self.view.nodes.insert_mut(id.clone(), Arc::new(record));
        self.count_cores(&id.compute, Change::More);
        Ok(())
    }

    fn node_gone(&mut self, id: &NodeId) -> Result<(), Illegal> {
        let Some(record) = self.view.nodes.get(id).cloned() else {
            return Err(illegal(format!("node {id} is not there")));
        };
        if let Some(pool) = self.pools.get_mut(&id.compute) {
            pool.leave(&record);
        }
        self.view.nodes.remove_mut(id);
        self.shown_nodes.remove(id);
        if record.state.exists() {
            self.count_cores(&id.compute, Change::Less);
        }
        self.task_unseated(&record.state);
        Ok(())
    }

    fn node_moves(&mut self, id: &NodeId, event: &NodeEvent, at: Time) -> Result<(), Illegal> {
        let Some(shared) = self.view.nodes.get_mut(id) else {
            return Err(illegal(format!("node {id} is not there")));
        };
        let next = shared
            .state
            .on(event)
            .map_err(|e| illegal(format!("{id}: {e}")))?;
        let record = Arc::make_mut(shared);
        let Some(pool) = self.pools.get_mut(&id.compute) else {
            return Ok(());
        };
        pool.leave(record);
        if discriminant(&record.state) != discriminant(&next) {
            record.since = at;
        }
        let before = std::mem::replace(&mut record.state, next);
        let (existed, exists) = (before.exists(), record.state.exists());
        let serves = record.state.usable();
        pool.enter(record);
        if let NodeEvent::Broke { why } = event {
            let kept = &mut pool.kept;
            let pause = BACKOFF_FIRST.0.saturating_mul(1 << kept.breaks.min(16));
            kept.breaks += 1;
            kept.broke = Some((id.clone(), why.clone()));
            kept.retry_at = Some(at + model::Millis(pause.min(BACKOFF_LAST.0)));
        }
        if before == NodeState::Preparing {
            self.shown_nodes.remove(id);
        }
        if existed && !exists {
            self.count_cores(&id.compute, Change::Less);
        }
        if !serves {
            self.task_unseated(&before);
        }
        Ok(())
    }

    /// The task of a node that goes is given no more work.
    fn task_unseated(&mut self, before: &NodeState) {
        let Some(task) = before.task().cloned() else {
            return;
        };
        if let Some(live) = self.lives.get_mut(&task.job)
            && live.disable(task.index)
        {
            self.reseat(&task.job);
        }
    }

    fn count_cores(&mut self, compute: &ComputeId, change: Change) {
        let Some(cluster) = self.view.clusters.get(compute) else {
            return;
        };
        let usage = self
            .usage
            .entry(WorkspaceKey(compute.workspace().clone()))
            .or_default();
        match change {
            Change::More => usage.add(&cluster.spec.size, cluster.spec.tier),
            Change::Less => usage.remove(&cluster.spec.size, cluster.spec.tier),
        }
        self.usage_changed = true;
    }

    /// A task ran here: whatever broke before is over.
    pub(super) fn works_again(&mut self, job: &JobId) {
        let Some(record) = self.view.runs.get(job) else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(&record.spec.compute) {
            pool.kept.breaks = 0;
            pool.kept.retry_at = None;
            if pool.kept.broke.take().is_some() {
                self.dirty.insert(record.spec.compute.clone()); // it may have been what somebody waits for
            }
        }
    }
}

enum Change {
    More,
    Less,
}
