//! The hub's tasks: preparing, telling the agents, keeping what they report.
//!
//! E1 a parcel is shown once and in order, however often an agent sends it;
//! E2 an acknowledgement drops parcels here at once; the agent hears of it with the next message.

use super::{Hub, Means, News, nodes::Node, pods::node_of};
use crate::{
    environment::Prepared,
    protocol::{Down, Held, Report, Stage},
    resolve,
};
use model::{
    BlobPath, Mailbox, NodeId, Parcel, Phase, Place, Ranges, TaskId, TaskSeen, TaskSpec,
    engine::{Exit, InputSpec, Placement, Program},
};
use port::Blobs;
use std::{collections::BTreeSet, sync::Arc, time::Instant};

/// A task as the hub knows it.
pub struct Entry {
    /// Its node.
    pub node: NodeId,
    /// As the control plane sees it.
    pub seen: TaskSeen,
    /// What it is, until its agent has its order.
    pub held: Option<Arc<Held>>,
    /// The agent has it.
    pub known: bool,
    /// Its order is being prepared, or was.
    pub preparing: bool,
    outcome: Option<Result<Box<crate::protocol::Order>, String>>,
    /// It was told to stop.
    pub stop: bool,
    /// It is shown until its agent is dead, and then no more.
    pub forgotten: bool,
    /// The first task of its gang, which stands for the gang.
    first: Option<TaskId>,
    /// When it was asked for here, or adopted.
    pub asked: Instant,
    /// Its user's program may run, or ran.
    begun: bool,
    /// Its whole gang is prepared: it may begin.
    pub may_begin: bool,
    sent_lend: u64,
    acked: u64,
    sent_ack: u64,
    sent_forget: bool,
}

fn phase(stage: Stage) -> Phase {
    match stage {
        Stage::Waiting { what } | Stage::Staging { what } => Phase::Preparing { what },
        Stage::Running => Phase::Running,
        Stage::Exited(exit) => Phase::Exited(exit),
    }
}

/// Whether a user's program may have run.
fn begun(stage: &Stage) -> bool {
    match stage {
        Stage::Waiting { .. } => false,
        Stage::Staging { .. } | Stage::Running => true,
        Stage::Exited(exit) => match exit {
            Exit::Code(_) | Exit::Signal(_) | Exit::OutOfMemory { .. } | Exit::Init { .. } => true,
            Exit::Stopped | Exit::Lost { .. } | Exit::NotStarted { .. } => false,
        },
    }
}

impl Entry {
    fn new(node: NodeId, held: Option<Arc<Held>>) -> Entry {
        Entry {
            node,
            seen: TaskSeen {
                phase: Phase::Preparing {
                    what: "environment and files".into(),
                },
                mailbox: Mailbox::default(),
            },
            held,
            known: false,
            preparing: false,
            outcome: None,
            stop: false,
            forgotten: false,
            first: None,
            asked: Instant::now(),
            begun: false,
            may_begin: false,
            sent_lend: 0,
            acked: 0,
            sent_ack: 0,
            sent_forget: false,
        }
    }
    /// Whether it keeps its gang from beginning no longer: it has begun, or its agent waits for its order and that is there.
    pub fn is_prepared(&self) -> bool {
        self.begun || (self.known && !self.stop && matches!(self.outcome, Some(Ok(_))))
    }
    /// Its gang, while it waits for its order.
    pub fn gang(&self) -> Option<Arc<Held>> {
        self.held.clone()
    }
    /// It has its order, or needs none any more: the copy here goes.
    pub fn settle(&mut self) {
        self.outcome = None;
        self.held = None;
    }
}

impl Hub {
    /// Notes a task; it is shown from now on.
    pub fn hold(&mut self, task: &TaskId, node: NodeId, held: Option<Arc<Held>>) {
        let mut entry = Entry::new(node, held);
        if let Some(held) = &entry.held {
            entry.first = held.placement.gang.first().cloned();
            entry.may_begin = held.placement.gang.len() <= 1;
            self.know_addresses(held);
            if !entry.may_begin {
                self.gathering.insert(task.clone());
            }
        }
        self.tasks.insert(task.clone(), entry);
        self.dirty_tasks.insert(task.clone());
    }

    /// A task is shown no more.
    pub fn drop_task(&mut self, task: &TaskId) {
        let entry = self.tasks.remove(task);
        if let Some(entry) = &entry {
            self.grants.take_task(&entry.node, task);
        }
        let first = entry.and_then(|entry| entry.first);
        self.dirty_tasks.insert(task.clone());
        self.gathering.remove(task);
        if let Some(first) = first
            && !self
                .tasks
                .values()
                .any(|e| e.first.as_ref() == Some(&first))
        {
            self.addresses.remove(&first);
        }
    }

    /// Starts a task.
    pub fn start(&mut self, task: TaskId, placement: Placement, spec: Arc<TaskSpec>, now: Instant) {
        if self.tasks.contains_key(&task) {
            return;
        }
        let node = match &placement.place {
            Place::On(node) => node.clone(),
            Place::Matching(pod) => node_of(&task, pod),
        };
        let takes = self.nodes.get(&node).map(Node::takes_tasks);
        let pod = placement.place.pod().is_some();
        if !takes.unwrap_or(pod) {
            return; // the node is gone or does not work: that is what is observed
        }
        let held = Arc::new(Held {
            addresses: self.addresses_of(&placement.gang),
            placement,
            spec,
        });
        self.hold(&task, node.clone(), Some(held.clone()));
        if self.nodes.get(&node).is_some_and(|n| n.guest) {
            self.grant_files(&node, &task, &held);
        }
        if pod {
            self.add_pod(&node, &task, &held, now);
        }
        self.announce(&task);
        self.prepare(&task);
    }

    /// Tells the agent of a task, and what became of its preparation.
    fn announce(&mut self, task: &TaskId) {
        let Some(entry) = self.tasks.get(task) else {
            return;
        };
        let Some(held) = &entry.held else {
            return;
        };
        let node = entry.node.clone();
        let held = serde_json::to_vec(held.as_ref()).expect("a specification can be written");
        let start = Down::Start {
            task: task.clone(),
            held,
        };
        if self.send(&node, &start) {
            self.hand_over(task);
        }
    }

    pub fn hand_over(&mut self, task: &TaskId) {
        let Some(entry) = self.tasks.get(task) else {
            return;
        };
        let (node, stop) = (entry.node.clone(), entry.stop);
        let message = match &entry.outcome {
            Some(Ok(_)) if !entry.may_begin => Some(Down::Preparing {
                task: task.clone(),
                what: "the other tasks of its gang".to_owned(),
            }),
            Some(Ok(order)) => Some(Down::Go {
                task: task.clone(),
                order: order.clone(),
            }),
            Some(Err(message)) => Some(Down::Refuse {
                task: task.clone(),
                message: message.clone(),
            }),
            None => None,
        };
        if stop {
            self.send(&node, &Down::Stop(task.clone()));
        }
        if let Some(message) = message {
            if let Some(plan) = self.plan_of(task) {
                let (task, plan) = (task.clone(), Box::new(plan));
                self.send(&node, &Down::Mirror { task, plan });
            }
            self.send(&node, &message);
        }
    }

    /// Begins to prepare a task: at once where nothing has to be built, else beside the loop.
    pub fn prepare(&mut self, task: &TaskId) {
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        let (Some(held), false) = (entry.held.clone(), entry.preparing) else {
            return;
        };
        if self.nodes.get(&entry.node).is_some_and(|n| n.guest) {
            return self.prepare_guest(task, &held);
        }
        entry.preparing = true;
        let gpus = self.nodes.get(&entry.node).map(|n| n.gpus.clone());
        let gpus = self.has_gpus.then(|| gpus.unwrap_or_default());
        let means = self.means.clone();
        let own_user = self.ground.own_uid;
        let id = task.clone();
        let resolve = move |prepared: Prepared, means: &Means| {
            let given = resolve::Given {
                blobs: &means.blobs,
                python: prepared.python,
                notes: prepared.notes,
                runtime: &means.runtime.join("batch.py"),
                shims: means.environments.shims(),
                variables: means.variables.of(&id.job),
                addresses: held.addresses.clone(),
                gpus,
                mirror: None,
                own_user,
            };
            resolve::order(&id, &held.placement, &held.spec, given).map(Box::new)
        };
        let spec = entry.held.as_ref().map(|h| h.spec.clone());
        let Some(spec) = spec else { return };
        let model = spec
            .model
            .as_ref()
            .and_then(|m| means.blobs.local(&m.source));
        let far = far(&means.blobs, &spec);
        if far.is_empty()
            && let Some(prepared) = means.environments.ready(&spec, model.as_deref())
        {
            let order = prepared.and_then(|p| resolve(p, &means));
            return self.prepared(task, order);
        }
        let (shared, task) = (self.shared.clone(), task.clone());
        let build = move || {
            let tell = |what: &str| {
                shared.news(News::Preparing(task.clone(), what.to_owned()));
            };
            let order = bring(&means.blobs, &far, &tell)
                .and_then(|()| means.environments.build(&spec, model.as_deref(), &tell))
                .and_then(|p| resolve(p, &means));
            shared.news(News::Prepared(task.clone(), order));
        };
        if let Err(e) = std::thread::Builder::new()
            .name("environment".into())
            .spawn(build)
        {
            tracing::error!("an environment cannot be built: {e}");
        }
    }

    /// Something is being prepared for a task.
    pub fn preparing(&mut self, task: &TaskId, what: String) {
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        if let Phase::Preparing { what: told } = &mut entry.seen.phase {
            *told = what.clone().into();
            self.dirty_tasks.insert(task.clone());
        }
        let node = entry.node.clone();
        let task = task.clone();
        self.send(&node, &Down::Preparing { task, what });
    }

    /// A task's order is there, or it cannot be.
    pub fn prepared(
        &mut self,
        task: &TaskId,
        outcome: Result<Box<crate::protocol::Order>, String>,
    ) {
        if let Some(entry) = self.tasks.get_mut(task) {
            entry.outcome = Some(outcome);
            self.hand_over(task);
        }
    }

    /// An agent has connected: what it did not list is told to it, or is gone.
    pub fn after_greeting(&mut self, node: &NodeId, known: &BTreeSet<TaskId>) {
        let ours: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, e)| e.node == *node)
            .map(|(t, _)| t.clone())
            .collect();
        for task in ours {
            let Some(entry) = self.tasks.get_mut(&task) else {
                continue;
            };
            entry.sent_lend = entry.seen.mailbox.lent;
            entry.sent_forget = false;
            if known.contains(&task) {
                self.hand_over(&task);
            } else if entry.known {
                // It had the task and has none of it now: it was forgotten, and the answer got lost.
                let why = "its agent lost it".into();
                if !self.end_pod(node, Exit::Lost { why }) {
                    self.drop_task(&task);
                }
            } else {
                self.announce(&task);
            }
        }
    }

    /// The connection to a node is over: what was sent may not have arrived.
    pub fn unsent(&mut self, node: &NodeId) {
        for entry in self.tasks.values_mut().filter(|e| e.node == *node) {
            entry.sent_lend = entry.seen.mailbox.lent;
            entry.sent_ack = 0;
            entry.sent_forget = false;
        }
    }

    /// An agent reports how a task stands.
    pub fn reported(&mut self, node: &NodeId, report: Report) {
        let task = report.task.clone();
        if !self.tasks.contains_key(&task) && self.nodes.get(node).is_some_and(|n| !n.whole) {
            return; // what it may speak of was expected before it came
        }
        if !self.tasks.contains_key(&task) {
            let held: Option<Arc<Held>> = serde_json::from_slice(&report.held).ok().map(Arc::new);
            self.hold(&task, node.clone(), held);
            if let Some(entry) = self.tasks.get_mut(&task) {
                entry.acked = report.acked;
                entry.seen.mailbox.lent = report.lent;
                entry.sent_lend = report.lent;
            }
        }
        let Some(entry) = self.tasks.get_mut(&task) else {
            return;
        };
        if entry.node != *node {
            return;
        }
        let waits = matches!(report.stage, Stage::Waiting { .. });
        entry.known = true;
        entry.begun |= begun(&report.stage);
        entry.seen.phase = phase(report.stage);
        entry.seen.mailbox.lent = report.lent;
        entry.seen.mailbox.started = report.started;
        self.dirty_tasks.insert(task.clone());
        if waits {
            self.prepare(&task);
        } else if let Some(entry) = self.tasks.get_mut(&task) {
            entry.settle();
            self.gathering.remove(&task);
        }
    }

    /// A parcel of a task (E1).
    pub fn parcel(
        &mut self,
        node: &NodeId,
        task: &TaskId,
        parcel: Parcel,
        lent: u64,
        started: Ranges,
    ) {
        let Some(entry) = self.tasks.get_mut(task).filter(|e| e.node == *node) else {
            return;
        };
        let mailbox = &mut entry.seen.mailbox;
        mailbox.lent = lent;
        mailbox.started = started;
        let last = mailbox.parcels.last().map_or(entry.acked, |p| p.seq);
        if parcel.seq > last {
            mailbox.parcels.push(Arc::new(parcel));
        }
        self.dirty_tasks.insert(task.clone());
    }

    /// A task is forgotten.
    pub fn task_gone(&mut self, node: &NodeId, task: &TaskId) {
        if self.tasks.get(task).is_some_and(|e| e.node == *node) {
            self.drop_task(task);
        }
    }

    /// Ends a task.
    pub fn stop(&mut self, task: &TaskId) {
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        if matches!(entry.seen.phase, Phase::Exited(_)) {
            return;
        }
        entry.stop = true;
        let node = entry.node.clone();
        let sent = self.send(&node, &Down::Stop(task.clone()));
        if !sent && self.nodes.get(&node).is_some_and(|n| !n.ever_up) {
            // A pod whose agent is not up yet: nothing of it runs that could be asked.
            self.end_pod(&node, Exit::Stopped);
        }
    }

    /// Gives indices to a task.
    pub fn lend(&mut self, task: &TaskId, number: u64, ranges: Ranges) {
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        if number <= entry.sent_lend.max(entry.seen.mailbox.lent) {
            return;
        }
        let node = entry.node.clone();
        if self.send(&node, &Down::Lend(task.clone(), number, ranges))
            && let Some(entry) = self.tasks.get_mut(task)
        {
            entry.sent_lend = number;
        }
    }

    /// Parcels are durable (E2).
    pub fn ack(&mut self, task: &TaskId, seq: u64) {
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        if entry
            .seen
            .mailbox
            .parcels
            .first()
            .is_some_and(|p| p.seq <= seq)
        {
            entry.seen.mailbox.parcels.retain(|p| p.seq > seq);
            self.quiet_tasks.insert(task.clone());
        }
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        entry.acked = entry.acked.max(seq);
        if seq > entry.sent_ack {
            let node = entry.node.clone();
            if self.send(&node, &Down::Ack(task.clone(), seq))
                && let Some(entry) = self.tasks.get_mut(task)
            {
                entry.sent_ack = seq;
            }
        }
    }

    /// Drops an exited task.
    pub fn forget(&mut self, task: &TaskId) {
        let Some(entry) = self.tasks.get(task) else {
            return;
        };
        if entry.sent_forget || !matches!(entry.seen.phase, Phase::Exited(_)) {
            return;
        }
        let node = entry.node.clone();
        match self.nodes.get(&node).map(|n| n.pod.is_some()) {
            None => return self.drop_task(task), // a pod whose agent is dead already
            Some(true) => {
                if let Some(entry) = self.tasks.get_mut(task) {
                    entry.forgotten = true;
                }
                return self.destroy(&node);
            }
            Some(false) => {}
        }
        if self.send(&node, &Down::Forget(task.clone()))
            && let Some(entry) = self.tasks.get_mut(task)
        {
            entry.sent_forget = true;
        }
    }
}

/// What a task reads that lies elsewhere, and has to be brought.
pub(super) fn far(blobs: &Arc<dyn Blobs>, spec: &TaskSpec) -> Vec<BlobPath> {
    let inputs = spec.inputs.values().filter_map(|input| match input {
        InputSpec::Path { source, .. } => Some(source),
        InputSpec::Literal(_) => None,
    });
    let pool = match &spec.program {
        Program::Pool(pool) => Some(&pool.root),
        Program::Command { .. } => None,
    };
    let model = spec.model.as_ref().map(|m| &m.source);
    let all = inputs.chain(&spec.code).chain(model).chain(pool);
    all.filter(|path| blobs.is_far(path)).cloned().collect()
}

/// Brings it; beside the loop, since it takes as long as it takes.
pub(super) fn bring(
    blobs: &Arc<dyn Blobs>,
    far: &[BlobPath],
    tell: &dyn Fn(&str),
) -> Result<(), String> {
    for path in far {
        tell(&format!("bringing {path} from its datastore"));
        blobs
            .bring(path)
            .map_err(|error| format!("{path} cannot be brought from its datastore: {error}"))?;
    }
    Ok(())
}
