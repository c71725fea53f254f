//! One turn: facts, then commands, then what follows from both.
//!
//! The order matters. Tasks come before nodes, so that what a host delivered before its node went is kept (B3). Commands
//! come after facts, so that they meet the state as it is. Runs come before pools, so that a node freed in this turn is
//! given away in this turn. Placing comes before letting go, so that the two cannot cross (K2).

use model::{
    Answer, BatchEvent, Command, ComputeId, Event, JobId, NodeEvent, NodeId, Observed, Refusal,
    RunEvent, TaskId, Time, batch::RowWrite,
};
use std::collections::{BTreeMap, BTreeSet};

use crate::{due::Due, register::Archive, world::World};

/// What a turn decided.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Facts, in order, applied already; to be made durable before anything else.
    pub events: Vec<Event>,
    /// One for each command, in the same order.
    pub answers: Vec<Result<Answer, Refusal>>,
    /// Rows to be written before the events.
    pub rows: Vec<RowWrite>,
    /// Runs whose committed spans are copied (from, to) with the events.
    pub copies: Vec<(JobId, JobId)>,
    /// When the next turn is due at the latest.
    pub wake: Option<Time>,
    /// Whether what others read changed though nothing happened: a cluster looks different.
    pub republish: bool,
    /// Where `missing` has to look.
    pub touched: Touched,
}

/// Where something changed. A hint for speed: looking elsewhere too does no harm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Everywhere.
    pub all: bool,
    /// At these nodes.
    pub nodes: BTreeSet<NodeId>,
    /// At these tasks.
    pub tasks: BTreeSet<TaskId>,
    /// At the errands of these runs.
    pub runs: BTreeSet<JobId>,
}

/// Decides one turn: applies its events to `world` and returns them.
///
/// `archive` answers for what is stored and not in the World.
pub fn decide(
    world: &mut World,
    commands: Vec<Command>,
    archive: Archive<'_>,
    seen: &Observed,
    now: Time,
) -> Turn {
    let fresh = !std::mem::replace(&mut world.looked, true);
    let all = seen.marks.all || fresh;
    let mut turn = Turning {
        world,
        seen,
        now,
        archive,
        events: Vec::new(),
        rows: BTreeMap::new(),
        copies: Vec::new(),
        touched: Touched {
            all,
            ..Touched::default()
        },
        due_pools: BTreeSet::new(),
        republish: false,
        refilled: BTreeSet::new(),
        kin: BTreeSet::new(),
    };
    turn.clusters(all);
    turn.look(all);
    if fresh {
        // Limits of runs that wait are not stored (W3).
        let runs = turn.world.lives.keys().cloned();
        turn.touched.runs.extend(runs);
    }
    let answers = commands.into_iter().map(|c| turn.command(c)).collect();
    turn.timers();
    turn.runs();
    turn.pools(all);
    turn.retire();
    Turn {
        wake: turn.world.timers.first(),
        republish: turn.republish,
        events: turn.events,
        answers,
        rows: turn.rows.into_values().map(|r| r.write).collect(),
        copies: turn.copies,
        touched: turn.touched,
    }
}

/// A turn under way.
pub(crate) struct Turning<'a> {
    pub world: &'a mut World,
    pub seen: &'a Observed,
    pub now: Time,
    pub archive: Archive<'a>,
    pub events: Vec<Event>,
    pub rows: BTreeMap<JobId, Rows>,
    pub copies: Vec<(JobId, JobId)>,
    pub touched: Touched,
    pub due_pools: BTreeSet<ComputeId>,
    /// Whether what others read changed without an event.
    pub republish: bool,
    /// Runs in which mini-batches wait again after none did: every host is asked whether it wants some.
    pub refilled: BTreeSet<JobId>,
    /// Parents and children of runs that something happened to.
    pub kin: BTreeSet<JobId>,
}

/// Rows of one run in this turn.
pub(crate) struct Rows {
    pub write: RowWrite,
    pub bytes: u64,
}

impl Turning<'_> {
    /// Applies an event and keeps it for the log.
    fn emit(&mut self, event: Event) {
        if let Err(illegal) = self.world.try_apply(&event) {
            debug_assert!(false, "{}: {event:?}", illegal.0);
            return; // in a release build: not written, so that the log stays legal
        }
        self.events.push(event);
    }
    pub fn emit_event(&mut self, event: Event) {
        self.emit(event);
    }
    pub fn emit_node(&mut self, node: &NodeId, event: NodeEvent) {
        if !self.touched.nodes.contains(node) {
            self.touched.nodes.insert(node.clone());
        }
        self.emit(Event::Node {
            node: node.clone(),
            event,
            at: self.now,
        });
    }
    pub fn emit_run(&mut self, run: &JobId, event: RunEvent) {
        self.touch_run(run);
        if let RunEvent::Placed { task, .. }
        | RunEvent::Started { task }
        | RunEvent::Stopping { task }
        | RunEvent::TaskEnded { task }
        | RunEvent::TaskLost { task }
        | RunEvent::TaskRecalled { task } = &event
        {
            self.touch_task(&task.clone());
        }
        self.emit(Event::Run {
            run: run.clone(),
            event,
            at: self.now,
        });
    }
    pub fn emit_batch(&mut self, run: &JobId, event: BatchEvent) {
        self.touch_run(run);
        if let BatchEvent::Lent { task, .. } | BatchEvent::Taken { task, .. } = &event {
            self.touch_task(&task.clone());
        }
        self.emit(Event::Batch {
            run: run.clone(),
            event,
            at: self.now,
        });
    }
    pub fn touch_run(&mut self, run: &JobId) {
        if !self.touched.runs.contains(run) {
            self.touched.runs.insert(run.clone());
        }
    }
    pub fn touch_task(&mut self, task: &TaskId) {
        if !self.touched.tasks.contains(task) {
            self.touched.tasks.insert(task.clone());
        }
    }

    /// Takes the facts in: of what is marked, or of everything.
    fn look(&mut self, all: bool) {
        let marks = &self.seen.marks;
        let (mut nodes, mut tasks) = (marks.nodes.clone(), marks.tasks.clone());
        for errand in &marks.errands {
            let (model::Errand::List(run) | model::Errand::Publish(run) | model::Errand::Send(run)) =
                errand;
            self.touch_run(run);
        }
        self.touched.nodes.extend(nodes.iter().cloned());
        self.touched.tasks.extend(tasks.iter().cloned());
        if all {
            nodes.extend(self.world.view.nodes.keys().cloned());
            for job in self.world.active.clone() {
                tasks.extend(self.tasks_of(&job));
                self.touched.runs.insert(job);
            }
        }
        for task in &tasks {
            if let Some(node) = self.task_fact(task) {
                nodes.insert(node);
            }
        }
        let mut hit = BTreeSet::new();
        for node in &nodes {
            self.node_fact(node, &mut hit);
        }
        for compute in hit {
            self.capacity_lost(&compute);
        }
    }

    /// The live tasks of a run.
    pub fn tasks_of(&self, job: &JobId) -> Vec<TaskId> {
        let Some(record) = self.world.run(job) else {
            return Vec::new();
        };
        let task = |(&index, t): (&u32, &model::run::TaskRecord)| TaskId {
            job: job.clone(),
            index,
            attempt: t.attempt,
        };
        record.tasks.iter().map(task).collect()
    }

    fn timers(&mut self) {
        while let Some(due) = self.world.timers.pop(self.now) {
            match due {
                Due::Pool(compute) => {
                    self.due_pools.insert(compute);
                }
                Due::Run(job) => self.touch_run(&job),
                Due::Retire => {}
            }
        }
    }
}
