//! What is seen of tasks becomes facts about runs.

use model::{
    BatchEvent, Exit, JobId, NodeEvent, NodeId, NodeState, Outcome, Phase, Place, Ranges, RunEvent,
    RunState, TaskId, Why, Work, run::TaskRecord,
};

use crate::turn::Turning;

impl Turning<'_> {
    /// Looks at one task. Returns its node when the node has to be looked at first.
    pub fn task_fact(&mut self, id: &TaskId) -> Option<NodeId> {
        let Some(task) = self.world.task(id) else {
            return None; // `missing` ends what nobody knows
        };
        let (node, running) = (task.place.node().cloned(), task.running);
        let Some(seen) = self.seen.tasks.get(id) else {
            return match node {
                Some(node) => self.absent(id, node, running),
                None => self.pod_absent(id, running),
            };
        };
        self.touch_run(&id.job);
        match &seen.phase {
            Phase::Pending { .. } | Phase::Preparing { .. } => self.shown(id),
            Phase::Running => {
                if !running {
                    self.emit_run(&id.job, RunEvent::Started { task: id.clone() });
                }
                self.take(id);
            }
            Phase::Exited(exit) => {
                let ran = matches!(
                    exit,
                    Exit::Code(_) | Exit::Signal(_) | Exit::OutOfMemory { .. }
                );
                if ran && !running {
                    self.emit_run(&id.job, RunEvent::Started { task: id.clone() }); // too short to be seen running
                }
                self.take(id);
                self.exited(id, node.as_ref(), exit);
            }
        }
        None
    }

    /// A task that is not there: with its node, or by itself, or not started yet.
    fn absent(&mut self, id: &TaskId, node: NodeId, running: bool) -> Option<NodeId> {
        if !self.seen.nodes.contains_key(&node) {
            return Some(node);
        }
        let stopping = self.world.task(id).is_some_and(|t| t.stopping);
        if stopping {
            self.end(id);
        } else if !running && !self.world.shown_tasks.contains(id) {
            // Not started yet: `missing` asks again.
        } else if self.world.batch(&id.job).is_some() {
            self.host_exited(id, None, "it was not there any more");
        } else {
            self.lose(id);
            self.emptied(&node);
        }
        None
    }

    /// A pod that is not there: not made yet, or taken away.
    fn pod_absent(&mut self, id: &TaskId, running: bool) -> Option<NodeId> {
        if self.world.task(id).is_some_and(|t| t.stopping) {
            self.end(id);
        } else if running || self.world.shown_tasks.contains(id) {
            self.lose(id);
        }
        None
    }

    fn shown(&mut self, id: &TaskId) {
        if !self.world.shown_tasks.contains(id) {
            self.world.shown_tasks.insert(id.clone());
        }
    }

    fn exited(&mut self, id: &TaskId, node: Option<&NodeId>, exit: &Exit) {
        let Some(record) = self.world.run(&id.job) else {
            return;
        };
        let stopping = record.tasks.get(&id.index).is_some_and(|t| t.stopping);
        let canceling = matches!(record.state, RunState::Canceling(_));
        let done = *exit == Exit::Code(0);
        let lost = matches!(exit, Exit::Lost { .. });
        let taken = lost || node.is_some_and(|node| self.node_is_taken(node));
        match &record.spec.work {
            _ if stopping || canceling => self.end(id),
            Work::Pipeline(_) | Work::Sweep(_) => {} // it has no tasks
            Work::Command if done => self.end(id),
            // A rank that fails while the node of another one goes has most likely lost its peer.
            Work::Command if taken || self.gang_is_hit(&id.job) => {
                self.lose(id);
                self.freed(node);
            }
            Work::Batch(_) if taken => {
                self.lose(id);
                self.freed(node);
            }
            Work::Command => {
                self.end(id);
                let why = match exit {
                    Exit::NotStarted { message } => Why::Engine {
                        message: message.clone(),
                    },
                    Exit::Init { message } => Why::UserError {
                        message: message.clone(),
                        mini_batch: None,
                    },
                    Exit::Code(_)
                    | Exit::Signal(_)
                    | Exit::OutOfMemory { .. }
                    | Exit::Stopped
                    | Exit::Lost { .. } => Why::Exited {
                        how: exit.to_string().into(),
                    },
                };
                self.give_up(&id.job, Outcome::Failed(why));
            }
            Work::Batch(_) => {
                let how = exit.to_string();
                self.host_exited(id, Some(exit), &how);
            }
        }
    }

    fn gang_is_hit(&self, job: &JobId) -> bool {
        let record = self.world.run(job);
        let taken = |(&index, task): (&u32, &TaskRecord)| match &task.place {
            Place::On(node) => self.node_is_taken(node),
            Place::Matching(_) => {
                let id = TaskId {
                    job: job.clone(),
                    index,
                    attempt: task.attempt,
                };
                let phase = self.seen.tasks.get(&id).map(|t| &t.phase);
                matches!(phase, Some(Phase::Exited(Exit::Lost { .. })))
            }
        };
        record.is_some_and(|r| r.tasks.iter().any(taken))
    }

    /// Whether a node is being taken away, so that the end of its task says nothing about the task.
    fn node_is_taken(&self, node: &NodeId) -> bool {
        let record = self.world.view.nodes.get(node);
        !self.seen.nodes.contains_key(node)
            || record.is_some_and(|n| matches!(n.state, NodeState::Leaving { by: Some(_), .. }))
    }

    /// A task is over, its node is free. What a host still held goes back, unblamed.
    pub fn end(&mut self, id: &TaskId) {
        self.return_held(id, Rerun::No);
        let node = self.world.task(id).and_then(|t| t.place.node().cloned());
        self.emit_run(&id.job, RunEvent::TaskEnded { task: id.clone() });
        self.freed(node.as_ref());
    }

    fn freed(&mut self, node: Option<&NodeId>) {
        if let Some(node) = node {
            self.emptied(node);
        }
    }

    /// A task is lost: nobody's failure (B4). Its node is the caller's to settle.
    pub fn lose(&mut self, id: &TaskId) {
        let canceling = self
            .world
            .run(&id.job)
            .is_some_and(|r| matches!(r.state, RunState::Canceling(_)));
        self.return_held(id, if canceling { Rerun::No } else { Rerun::Started });
        self.emit_run(&id.job, RunEvent::TaskLost { task: id.clone() });
    }

    /// What a host held goes back to the front; what it had begun will be run again (B3).
    pub fn return_held(&mut self, id: &TaskId, rerun: Rerun) {
        let Some(batch) = self.world.batch(&id.job) else {
            return;
        };
        let Some(host) = batch.host(id) else {
            return;
        };
        let returned = host.holding();
        if returned.is_empty() {
            return;
        }
        let rerun = match rerun {
            Rerun::Started => host.started.intersection(&returned),
            Rerun::No => Ranges::new(),
        };
        if batch.waiting() == 0 {
            self.refilled.insert(id.job.clone());
        }
        let event = BatchEvent::Lost {
            task: id.clone(),
            rerun,
            returned,
        };
        self.emit_batch(&id.job, event);
    }

    pub fn emptied(&mut self, node: &NodeId) {
        let record = self.world.view.nodes.get(node);
        if record.is_some_and(|n| n.state.task().is_some()) {
            self.emit_node(node, NodeEvent::Emptied);
        }
    }
}

/// Whether what a host had begun counts as run again.
pub(crate) enum Rerun {
    Started,
    No,
}
