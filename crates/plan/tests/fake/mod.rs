//! An engine without processes: nodes, tasks and mailboxes in virtual time. It keeps the promises G1 to G3 of
//! `model::engine` and nothing else, and it can be hurt in every way that they allow.

pub mod drive;
pub mod make;

use model::{
    Action, ClusterKey, ClusterSeen, Errand, ErrandSeen, Exit, JobId, Mailbox, Millis, NodeId,
    NodeSeen, Observed, Parcel, Phase, Place, PodSpec, Ranges, TaskId, TaskSeen, TaskSpec, Time,
    engine::{Cause, FailedAttempt, Finished, Placement, Program},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// How the tasks of one run behave. Times in milliseconds.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// From start to `Running`.
    pub prepare: u64,
    /// A command's run time; one mini-batch's.
    pub run: u64,
    /// Further time by index, added `index % 7` times.
    pub skew: u64,
    /// How a command ends, and how a preparation ends when it fails.
    pub exit: Exit,
    /// `run()` raises on these, always.
    pub poison: BTreeSet<u32>,
    /// `run()` raises on these for so many attempts.
    pub flaky: BTreeMap<u32, u32>,
    /// These return one element less than they have inputs.
    pub short: BTreeSet<u32>,
    /// A host reports what it finished once more with the next parcel.
    pub echo: bool,
    /// A host ends by itself after so many mini-batches.
    pub crash_after: Option<(u32, Exit)>,
}
impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            prepare: 100,
            run: 1000,
            skew: 0,
            exit: Exit::Code(0),
            poison: BTreeSet::new(),
            flaky: BTreeMap::new(),
            short: BTreeSet::new(),
            echo: false,
            crash_after: None,
        }
    }
}

/// One task that exists.
#[derive(Clone, Debug)]
pub struct Task {
    pub node: NodeId,
    /// What it holds of a cluster, and on which machine once it is on one.
    pod: Option<(PodSpec, Option<Box<str>>)>,
    /// With whom it starts.
    gang: Vec<TaskId>,
    spec: Arc<TaskSpec>,
    phase: Phase,
    /// When the phase changes by itself.
    next: Option<Time>,
    lent: u64,
    queue: VecDeque<u32>,
    begun: BTreeMap<u32, Time>,
    parcels: Vec<Arc<Parcel>>,
    seq: u64,
    finished: u32,
    last_done: Option<Finished>,
    stopping: bool,
}

impl Task {
    fn workers(&self) -> usize {
        match &self.spec.program {
            Program::Pool(pool) => pool.workers as usize,
            Program::Command { .. } => 0,
        }
    }
    pub fn exited(&self) -> bool {
        matches!(self.phase, Phase::Exited(_))
    }
}

#[derive(Clone, Debug)]
enum Node {
    Booting(Time),
    /// On its way, but something stands in it.
    Waiting(Box<str>),
    Up,
    Evicting(Time),
    Broken(Box<str>),
}

/// The engine.
#[derive(Clone, Debug, Default)]
pub struct Fake {
    pub now: Time,
    pub boot: u64,
    nodes: BTreeMap<NodeId, Node>,
    pub tasks: BTreeMap<TaskId, Task>,
    /// Nodes that are out of sight, with their tasks: a cut network.
    hidden: BTreeSet<NodeId>,
    /// Those of them whose tasks are still shown: the agent answers, its machine is written off.
    ghosts: BTreeSet<NodeId>,
    /// How often `run()` was begun, and how often it was cut off by a loss.
    pub begun: BTreeMap<(JobId, u32), u32>,
    pub cut: BTreeMap<(JobId, u32), u32>,
    errands: BTreeMap<Errand, (Time, ErrandSeen)>,
    /// The clusters behind Kubernetes computes.
    pub clusters: BTreeMap<ClusterKey, ClusterSeen>,
    /// Tasks that have ended: their peers do not wait for them.
    ended: BTreeSet<TaskId>,
    /// What an attached cluster says of every pod while it lets none start, though there is room.
    pub refusing: Option<Box<str>>,
    pub behaviours: BTreeMap<JobId, Behaviour>,
    pub inputs: BTreeMap<JobId, u64>,
    /// Tries of `run()` so far.
    pub tries: BTreeMap<(JobId, u32), u32>,
    /// Results come out at the end of a step, so one parcel holds what ended in it.
    seen: Observed,
}

/// What a mini-batch returns, whoever runs it.
pub fn rows_of(job: &JobId, index: u32) -> String {
    format!("{job}:{index}\n")
}
/// A checksum that only has to notice a mix-up.
pub fn check_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(7u32, |sum, &b| {
        sum.wrapping_mul(31).wrapping_add(u32::from(b))
    })
}

impl Fake {
    pub fn observe(&mut self) -> Observed {
        let seen = self.seen.clone();
        self.seen.marks = model::engine::Marks::default();
        for (errand, (at, end)) in &self.errands {
            if *at <= self.now && *end != ErrandSeen::Busy {
                self.seen.marks.errands.insert(errand.clone()); // shown until it is dropped
            }
        }
        seen
    }
    /// Finished errands that `seen` showed are taken by now.
    pub fn drop_finished(&mut self, seen: &Observed) {
        for (errand, state) in seen.errands.iter() {
            if *state != ErrandSeen::Busy {
                self.errands.remove(errand);
                self.seen.errands.remove_mut(errand);
                self.seen.marks.errands.remove(errand);
            }
        }
    }
    /// What is there, without taking the marks.
    pub fn peek(&self) -> Observed {
        self.seen.clone()
    }
    pub fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.nodes.keys()
    }
    pub fn has_node(&self, id: &NodeId) -> bool {
        self.nodes.contains_key(id)
    }
    /// Clusters of computes that are let go and have no work are left; others are shown.
    pub fn follow(&mut self, view: &model::View) {
        let keys: Vec<ClusterKey> = self.clusters.keys().cloned().collect();
        for key in keys {
            let ClusterKey::Attached(id) = &key else {
                continue;
            };
            let record = view.kubernetes.get(id);
            let wanted = record.is_none_or(|record| !view.is_to_be_left(record));
            if wanted && !self.seen.clusters.contains_key(&key) {
                self.show_cluster(&key);
            } else if !wanted && self.seen.clusters.contains_key(&key) {
                self.seen.clusters.remove_mut(&key);
                self.seen.marks.clusters.insert(key);
            }
        }
    }
    /// A cluster looks different.
    pub fn show_cluster(&mut self, key: &ClusterKey) {
        let cluster = self.clusters.entry(key.clone()).or_default();
        let shown = Arc::new(cluster.clone());
        self.seen.clusters.insert_mut(key.clone(), shown);
        self.seen.marks.clusters.insert(key.clone());
    }
    /// Pods of attached clusters that fit now are on a machine from now on.
    pub fn schedule(&mut self) {
        if let Some(why) = self.refusing.clone() {
            let pending = |t: &&mut Task| matches!(t.phase, Phase::Pending { .. });
            for task in self.tasks.values_mut().filter(pending) {
                task.phase = Phase::Pending { why: why.clone() };
            }
            let ids: Vec<TaskId> = self.tasks.keys().cloned().collect();
            for id in ids {
                self.show_task(&id);
            }
            return;
        }
        let waiting: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, t)| matches!(t.phase, Phase::Pending { .. }))
            .map(|(id, _)| id.clone())
            .collect();
        for id in waiting {
            let prepare = self.behaviour(&id.job).prepare;
            let Some(task) = self.tasks.get_mut(&id) else {
                continue;
            };
            let Some((pod, machine)) = &mut task.pod else {
                continue;
            };
            let key = ClusterKey::Attached(pod.compute.clone());
            let cluster = self.clusters.entry(key.clone()).or_default();
            let Ok(name) = model::unfit::choose(pod, cluster.machines.iter()) else {
                continue;
            };
            let name: Box<str> = name.into();
            cluster.machines.get_mut(&name).unwrap().take(&pod.requests);
            *machine = Some(name);
            task.phase = Phase::Preparing {
                what: "environment".into(),
            };
            task.next = Some(self.now + Millis(prepare));
            self.show_task(&id);
            self.show_cluster(&key);
        }
        self.nudge();
    }
    /// What a pod held of a cluster is free again.
    fn release(&mut self, id: &TaskId) {
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        let Some((pod, Some(machine))) = task.pod.take() else {
            return;
        };
        let key = ClusterKey::Attached(pod.compute.clone());
        let cluster = self.clusters.entry(key.clone()).or_default();
        if let Some(machine) = cluster.machines.get_mut(&machine) {
            machine.requested.remove(&pod.requests);
            machine.pods_there -= 1;
        }
        self.show_cluster(&key);
        self.schedule();
    }
    pub fn errands(&self) -> usize {
        self.errands.len()
    }
    pub fn hidden(&self) -> &BTreeSet<NodeId> {
        &self.hidden
    }
    /// Tasks on a node that have not ended.
    pub fn busy(&self, node: &NodeId) -> impl Iterator<Item = &TaskId> {
        let tasks = self.tasks.iter();
        tasks
            .filter(move |(_, t)| t.node == *node && !t.exited())
            .map(|(id, _)| id)
    }
    fn behaviour(&self, job: &JobId) -> Behaviour {
        self.behaviours.get(job).cloned().unwrap_or_default()
    }

    // What is shown.

    fn show_node(&mut self, id: &NodeId) {
        self.seen.marks.nodes.insert(id.clone());
        let shown = match self.nodes.get(id) {
            Some(_) if self.hidden.contains(id) => None,
            Some(Node::Booting(_)) => Some(NodeSeen::Booting { why: None }),
            Some(Node::Waiting(why)) => Some(NodeSeen::Booting {
                why: Some(why.clone()),
            }),
            Some(Node::Up) => Some(NodeSeen::Up),
            Some(Node::Evicting(by)) => Some(NodeSeen::Evicting { by: *by }),
            Some(Node::Broken(why)) => Some(NodeSeen::Broken { why: why.clone() }),
            None => None,
        };
        match shown {
            Some(shown) => self.seen.nodes.insert_mut(id.clone(), shown),
            None => {
                self.seen.nodes.remove_mut(id);
            }
        }
    }
    fn show_task(&mut self, id: &TaskId) {
        self.seen.marks.tasks.insert(id.clone());
        match self.tasks.get(id) {
            Some(t) if !self.hidden.contains(&t.node) || self.ghosts.contains(&t.node) => {
                let shown = TaskSeen {
                    phase: t.phase.clone(),
                    mailbox: Mailbox {
                        lent: t.lent,
                        started: t.begun.keys().copied().collect(),
                        parcels: t.parcels.clone(),
                    },
                };
                self.seen.tasks.insert_mut(id.clone(), Arc::new(shown));
            }
            _ => {
                self.seen.tasks.remove_mut(id);
            }
        }
    }

    // Time.

    /// When something happens next by itself.
    pub fn next(&self) -> Option<Time> {
        let nodes = self.nodes.values().filter_map(|n| match n {
            Node::Booting(at) | Node::Evicting(at) => Some(*at),
            Node::Up | Node::Waiting(_) | Node::Broken(_) => None,
        });
        let tasks = self.tasks.values().flat_map(|t| t.next.into_iter());
        let minis = self.tasks.values().flat_map(|t| t.begun.values().copied());
        let errands = self
            .errands
            .values()
            .filter(|(_, e)| *e == ErrandSeen::Busy)
            .map(|(at, _)| *at);
        nodes.chain(tasks).chain(minis).chain(errands).min()
    }

    pub fn advance(&mut self, now: Time) {
        self.now = now;
        let due = self.nodes.iter().filter_map(|(id, n)| match n {
            Node::Booting(at) if *at <= now => Some((id.clone(), true)),
            Node::Evicting(by) if *by <= now => Some((id.clone(), false)),
            _ => None,
        });
        let due: Vec<_> = due.collect();
        for (id, comes) in due {
            if comes {
                self.nodes.insert(id.clone(), Node::Up);
                self.show_node(&id);
            } else {
                self.lose(&id);
            }
        }
        let ids: Vec<TaskId> = self.tasks.keys().cloned().collect();
        for id in ids {
            self.advance_task(&id);
        }
        self.advance_errands();
    }

    fn advance_errands(&mut self) {
        let now = self.now;
        let mut ended = Vec::new();
        for (errand, (at, state)) in &mut self.errands {
            if *at <= now && *state == ErrandSeen::Busy {
                *state = match errand {
                    Errand::List(job) => match self.inputs.get(job) {
                        Some(&files) => ErrandSeen::Listed {
                            files,
                            digest: format!("digest-of-{files}").into(),
                        },
                        None => ErrandSeen::Failed {
                            message: "the input is not there".into(),
                        },
                    },
                    Errand::Send(_) => ErrandSeen::Sent,
                    Errand::Publish(_) => ErrandSeen::Published {
                        bytes: model::Bytes(1),
                    },
                };
                ended.push((errand.clone(), state.clone()));
            }
        }
        for (errand, state) in ended {
            self.seen.marks.errands.insert(errand.clone());
            self.seen.errands.insert_mut(errand, state);
        }
    }

    /// Whether everybody that a task starts with is there and on a machine.
    fn gang_is_there(&self, id: &TaskId) -> bool {
        let there = |member: &TaskId| {
            let known = self.tasks.get(member);
            self.ended.contains(member)
                || known.is_some_and(|t| !matches!(t.phase, Phase::Pending { .. }))
        };
        self.tasks.get(id).is_some_and(|t| t.gang.iter().all(there))
    }
    /// Those that waited for a member of their gang look again.
    fn nudge(&mut self) {
        for task in self.tasks.values_mut() {
            if matches!(task.phase, Phase::Preparing { .. }) && task.next.is_none() {
                task.next = Some(self.now);
            }
        }
    }

    fn advance_task(&mut self, id: &TaskId) {
        let now = self.now;
        let how = self.behaviour(&id.job);
        let together = self.gang_is_there(id);
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        let mut changed = false;
        if let Some(at) = task.next
            && at <= now
        {
            changed = true;
            task.next = None;
            task.phase = match (&task.phase, &task.spec.program) {
                _ if task.stopping => Phase::Exited(Exit::Stopped),
                (Phase::Preparing { .. }, _)
                    if matches!(how.exit, Exit::NotStarted { .. } | Exit::Init { .. }) =>
                {
                    Phase::Exited(how.exit.clone())
                }
                (Phase::Preparing { what }, Program::Command { .. }) if !together => {
                    Phase::Preparing { what: what.clone() }
                }
                (Phase::Preparing { .. }, Program::Command { .. }) => {
                    task.next = Some(now + Millis(how.run));
                    Phase::Running
                }
                (Phase::Preparing { .. }, Program::Pool(_)) => Phase::Running,
                (Phase::Pending { why }, _) => Phase::Pending { why: why.clone() },
                (Phase::Running, _) => Phase::Exited(how.exit.clone()),
                (Phase::Exited(exit), _) => Phase::Exited(exit.clone()),
            };
            if task.exited() {
                self.cut_off(id);
                self.release(id);
            }
        }
        changed |= self.work(id, &how);
        if changed {
            self.show_task(id);
        }
    }

    /// Ends what is due, begins what there are workers for.
    fn work(&mut self, id: &TaskId, how: &Behaviour) -> bool {
        let now = self.now;
        let Some(task) = self.tasks.get_mut(id) else {
            return false;
        };
        if task.phase != Phase::Running || task.workers() == 0 {
            return false;
        }
        let draining = matches!(self.nodes.get(&task.node), Some(Node::Evicting(_)));
        let mut parcel = Parcel::default();
        let mut rows = Vec::new();
        let due: Vec<u32> = task
            .begun
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(&i, _)| i)
            .collect();
        for index in due {
            task.begun.remove(&index);
            task.finished += 1;
            let tries = self.tries.entry((id.job.clone(), index)).or_default();
            *tries += 1;
            let flaky = how.flaky.get(&index).is_some_and(|n| *tries <= *n);
            if flaky || how.poison.contains(&index) {
                let cause = Cause::Raised {
                    message: format!("ValueError: item {index}").into(),
                };
                parcel.failed.push(FailedAttempt { index, cause });
                continue;
            }
            let text = rows_of(&id.job, index);
            let group = match &task.spec.program {
                Program::Pool(pool) => pool.group,
                Program::Command { .. } => 1,
            };
            parcel.done.push(Finished {
                index,
                items: group - u32::from(how.short.contains(&index)),
                rows: 1,
                bytes: u32::try_from(text.len()).unwrap(),
                crc: check_of(text.as_bytes()),
            });
            rows.extend_from_slice(text.as_bytes());
        }
        if how.echo
            && !parcel.done.is_empty()
            && let Some(before) = task.last_done
        {
            parcel.done.push(before);
            rows.extend_from_slice(rows_of(&id.job, before.index).as_bytes());
        }
        task.last_done = parcel.done.first().copied().or(task.last_done);
        if draining && !task.queue.is_empty() {
            parcel.returned = task
                .queue
                .drain(..)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
        }
        let mut changed = false;
        while task.begun.len() < task.workers()
            && !task.stopping
            && let Some(index) = task.queue.pop_front()
        {
            *self.begun.entry((id.job.clone(), index)).or_default() += 1;
            let ms = how.run + how.skew * u64::from(index % 7);
            task.begun.insert(index, now + Millis(ms.max(1)));
            changed = true;
        }
        if !parcel.done.is_empty() || !parcel.failed.is_empty() || !parcel.returned.is_empty() {
            task.seq += 1;
            parcel.seq = task.seq;
            parcel.rows = rows.into();
            task.parcels.push(Arc::new(parcel));
            changed = true;
        }
        if let Some((n, exit)) = &how.crash_after
            && task.finished >= *n
        {
            task.phase = Phase::Exited(exit.clone());
            self.cut_off(id);
            changed = true;
        }
        changed
    }

    // What is asked of it.

    pub fn apply(&mut self, action: &Action) {
        match action {
            Action::AddNode(id, _) => {
                if !self.nodes.contains_key(id) {
                    let at = self.now + Millis(self.boot);
                    self.nodes.insert(id.clone(), Node::Booting(at));
                }
                self.show_node(id);
            }
            Action::RemoveNode(id) => self.lose(id),
            Action::Evict(id, by) => {
                if self.nodes.contains_key(id) {
                    self.evict(id, *by);
                }
            }
            Action::Start(id, placement, spec) => self.start(id, placement, spec),
            Action::Stop(id) => {
                let now = self.now;
                if let Some(task) = self.tasks.get_mut(id)
                    && !task.exited()
                    && !task.stopping
                {
                    task.stopping = true;
                    task.next = Some(now + Millis(10));
                    self.show_task(id);
                }
            }
            Action::Lend(id, lend, indices) => self.lend(id, *lend, indices),
            Action::Ack(id, upto) => {
                if let Some(task) = self.tasks.get_mut(id) {
                    task.parcels.retain(|p| p.seq > *upto);
                    self.show_task(id);
                }
            }
            Action::Forget(id) => {
                self.ended.insert(id.clone());
                self.nudge();
                self.release(id);
                self.tasks.remove(id);
                self.show_task(id);
            }
            Action::Do(errand) => {
                let at = self.now + Millis(50);
                if !self.errands.contains_key(errand) {
                    self.errands.insert(errand.clone(), (at, ErrandSeen::Busy));
                    self.seen
                        .errands
                        .insert_mut(errand.clone(), ErrandSeen::Busy);
                }
            }
        }
    }

    fn start(&mut self, id: &TaskId, placement: &Placement, spec: &Arc<TaskSpec>) {
        let place = &placement.place;
        let node = match place {
            Place::On(node) => node.clone(),
            Place::Matching(pod) => NodeId {
                compute: pod.compute.clone(),
                ordinal: id.index,
                incarnation: id.attempt.0,
            },
        };
        let ready = matches!(self.nodes.get(&node), Some(Node::Up | Node::Evicting(_)));
        if self.tasks.contains_key(id) || (place.node().is_some() && !ready) {
            return;
        }
        let next = self.now + Millis(self.behaviour(&id.job).prepare);
        let pod = place.pod().cloned();
        let scheduled = pod.as_ref().is_none_or(|pod| pod.machine.is_some());
        let phase = if scheduled {
            Phase::Preparing {
                what: "environment".into(),
            }
        } else {
            Phase::Pending {
                why: "no node is available".into(),
            }
        };
        self.tasks.entry(id.clone()).or_insert_with(|| Task {
            node,
            pod: pod.filter(|_| !scheduled).map(|pod| (pod, None)),
            gang: placement.gang.clone(),
            spec: spec.clone(),
            phase,
            next: scheduled.then_some(next),
            lent: 0,
            queue: VecDeque::new(),
            begun: BTreeMap::new(),
            parcels: Vec::new(),
            seq: 0,
            finished: 0,
            last_done: None,
            stopping: false,
        });
        self.show_task(id);
        self.schedule();
        self.nudge();
    }

    fn lend(&mut self, id: &TaskId, lend: u64, indices: &Ranges) {
        let how = self.behaviour(&id.job);
        if let Some(task) = self.tasks.get_mut(id)
            && !task.exited()
            && lend == task.lent + 1
        {
            task.lent = lend;
            task.queue.extend(indices.iter());
            self.work(id, &how);
            self.show_task(id);
        }
    }

    // How it is hurt.

    /// What a task has ended, well or not, and not handed over is gone with it.
    fn cut_parcels(&mut self, id: &TaskId) {
        let parcels = self.tasks.get(id).map(|t| t.parcels.clone());
        for parcel in parcels.unwrap_or_default() {
            let done = parcel.done.iter().map(|d| d.index);
            for index in done.chain(parcel.failed.iter().map(|f| f.index)) {
                *self.cut.entry((id.job.clone(), index)).or_default() += 1;
            }
        }
    }
    /// What a task has begun will not end.
    fn cut_off(&mut self, id: &TaskId) {
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        task.queue.clear();
        for index in std::mem::take(&mut task.begun).into_keys() {
            *self.cut.entry((id.job.clone(), index)).or_default() += 1;
        }
    }

    /// A node and everything on it is gone.
    pub fn lose(&mut self, id: &NodeId) {
        self.nodes.remove(id);
        self.hidden.remove(id);
        self.ghosts.remove(id);
        self.show_node(id);
        for task in self.tasks_on(id) {
            self.cut_parcels(&task);
            self.cut_off(&task);
            self.tasks.remove(&task);
            self.show_task(&task);
        }
    }
    /// A node is out of sight and goes on working.
    pub fn hide(&mut self, id: &NodeId) {
        self.hidden.insert(id.clone());
        self.show_node(id);
        for task in self.tasks_on(id) {
            self.show_task(&task);
        }
    }
    /// A node is out of sight, its tasks are not.
    pub fn haunt(&mut self, id: &NodeId) {
        self.ghosts.insert(id.clone());
        self.hide(id);
    }
    /// It is back, with what it did meanwhile.
    pub fn unhide(&mut self, id: &NodeId) {
        self.hidden.remove(id);
        self.ghosts.remove(id);
        self.show_node(id);
        for task in self.tasks_on(id) {
            self.show_task(&task);
        }
    }
    pub fn tasks_on(&self, node: &NodeId) -> Vec<TaskId> {
        let on = self.tasks.iter().filter(|(_, t)| t.node == *node);
        on.map(|(id, _)| id.clone()).collect()
    }
    pub fn evict(&mut self, id: &NodeId, by: Time) {
        if by <= self.now {
            return self.lose(id);
        }
        self.nodes.insert(id.clone(), Node::Evicting(by));
        self.show_node(id);
        for task in self.tasks_on(id) {
            let how = self.behaviour(&task.job);
            self.work(&task, &how);
            self.show_task(&task);
        }
    }
    pub fn break_node(&mut self, id: &NodeId, why: &str) {
        if self.nodes.contains_key(id) {
            self.nodes.insert(id.clone(), Node::Broken(why.into()));
            self.show_node(id);
        }
    }
    /// A node that is on its way does not come before it waits for nothing any more.
    pub fn hold_node(&mut self, id: &NodeId, why: Option<&str>) {
        let node = match why {
            Some(why) => Node::Waiting(why.into()),
            None => Node::Booting(self.now),
        };
        self.nodes.insert(id.clone(), node);
        self.show_node(id);
    }
    /// A task's process ends like this, whatever it did.
    pub fn exit_task(&mut self, id: &TaskId, exit: Exit) {
        self.cut_off(id);
        // What waits for its gang has no process that could end by itself.
        let waits = !self.gang_is_there(id);
        if let Some(task) = self.tasks.get_mut(id)
            && !task.exited()
            && (!waits || matches!(exit, Exit::Lost { .. }))
        {
            task.phase = Phase::Exited(exit);
            task.next = None;
            self.show_task(id);
            self.release(id);
        }
    }
    /// A task is gone without a trace.
    pub fn vanish_task(&mut self, id: &TaskId) {
        self.cut_parcels(id);
        self.cut_off(id);
        self.release(id);
        if self.tasks.get(id).is_some_and(Task::exited) {
            self.ended.insert(id.clone());
        }
        self.tasks.remove(id);
        self.show_task(id);
    }
}
