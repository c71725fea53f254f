//! The loop as `control` has it, over the fake engine and a store in memory. Every turn is checked (behind each stands the
//! invariant of ARCHITECTURE.md that it belongs to):
//!
//! P1 rows of a mini-batch are written once, are those that it returns, and lie where their span says (I2);
//! P2 a committed mini-batch is never lent again (I4);
//! P3 a node is asked for only within the quota (I5);
//! P4 a node that holds a live task is never let go (I13);
//! P5 a node gets a task only when it has no other (I13);
//!    (a pod is placed here only where it fits beside all that are: Q3 of `plan::pods`);
//! P6 a gang starts with all its ranks placed;
//! P7 a run that completes has every mini-batch committed or failed after all its attempts, and publishes all in order
//!    (I2, I3, I7);
//! P8 a replay of the log makes the same World, and what is derived follows from it (I1);
//! P10 an output becomes an asset once, in the turn in which its run completes, as a version that was not there (A1 to A3 of
//!    `plan::register`);
//! P9 deciding twice about the same observation changes nothing the second time (I10).

use model::{
    Action, BatchEvent, ClusterKey, Command, Declared, DocKey, Event, JobId, Kind, Name, NodeEvent,
    NodeId, Observed, Outcome, Place, Ranges, RunEvent, RunRecord, TaskId, Tier, Time, Work,
    Workspace,
    batch::{BatchOutput, RowWrite},
};
use plan::{Archive, Turn, Versions, World};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Fake, check_of, rows_of};

/// What is durable.
#[derive(Clone, Default)]
pub struct Store {
    pub log: Vec<Event>,
    /// How long the log was after each turn: an append is all or nothing.
    pub turns: Vec<usize>,
    pub checkpoint: Option<(String, usize)>,
    /// What clusters and quotas were declared as, by place in the log: documents are read again on replay.
    declared: BTreeMap<usize, Declared>,
    pub rows: BTreeMap<JobId, BTreeMap<u32, String>>,
    pub records: BTreeMap<JobId, RunRecord>,
    pub failures: BTreeMap<(JobId, u32), u32>,
    pub committed: BTreeMap<JobId, Ranges>,
    /// Versions of assets.
    pub assets: BTreeSet<DocKey>,
}

impl Store {
    fn versions(&self, asset: &DocKey) -> Versions {
        let versions = self.assets.iter().filter_map(|key| {
            let (name, version) = key.path.as_str().rsplit_once('/')?;
            let same = key.kind == asset.kind && Name::from(name) == asset.path;
            same.then(|| version.into())
        });
        Versions {
            names: versions.collect(),
            spent: 0,
        }
    }
}

/// The loop.
pub struct Server {
    pub world: World,
    pub fake: Fake,
    pub store: Store,
    pub wake: Option<Time>,
    pub fresh: bool,
    pub workspace: Arc<Workspace>,
    /// Nodes that were out of sight once: what they do is nobody's fault.
    pub strays: BTreeSet<NodeId>,
    /// Whether events are read from their stored form, as a real restart does; costs ten times the time.
    pub stored: bool,
    /// Whether the next turns are decided twice (P9).
    pub twice: bool,
}

/// What one turn did.
pub struct Done {
    pub turn: Turn,
    pub actions: Vec<Action>,
}

impl Server {
    pub fn new(boot: u64) -> Self {
        Server {
            world: World::default(),
            fake: Fake {
                boot,
                ..Fake::default()
            },
            store: Store::default(),
            wake: None,
            fresh: true,
            workspace: Workspace::new("s", "g", "w"),
            strays: BTreeSet::new(),
            stored: true,
            twice: false,
        }
    }

    /// One turn. The caller applies the actions, or loses some.
    pub fn turn(&mut self, commands: Vec<Command>, all: bool) -> Done {
        self.fake.follow(&self.world.view);
        let mut seen = self.fake.observe();
        seen.marks.all |= all || std::mem::take(&mut self.fresh);
        let records = &self.store.records;
        let resumable = |job: &JobId| records.get(job).and_then(plan::resumable);
        let versions = |asset: &DocKey| self.store.versions(asset);
        let archive = Archive {
            resumable: &resumable,
            versions: &versions,
            ..Archive::empty()
        };
        let turn = plan::decide(&mut self.world, commands, archive, &seen, self.fake.now);
        if self.twice {
            self.check_stable(&seen, &turn.events);
            seen.marks.all = true;
            self.check_stable(&seen, &turn.events);
        }
        self.write(&turn);
        self.fake.drop_finished(&seen);
        let actions = plan::missing(&self.world, &seen, &turn.touched);
        self.check_actions(&actions);
        self.wake = turn.wake;
        Done { turn, actions }
    }

    /// A turn that is decided and never written: the server died in between.
    pub fn lost_turn(&mut self, commands: Vec<Command>) {
        let mut seen = self.fake.observe();
        seen.marks.all |= self.fresh;
        let records = &self.store.records;
        let resumable = |job: &JobId| records.get(job).and_then(plan::resumable);
        let versions = |asset: &DocKey| self.store.versions(asset);
        let archive = Archive {
            resumable: &resumable,
            versions: &versions,
            ..Archive::empty()
        };
        plan::decide(&mut self.world, commands, archive, &seen, self.fake.now);
        self.world = self.replay(self.store.log.len());
        self.fresh = true;
    }

    /// P9, on a copy.
    pub fn check_stable(&self, seen: &Observed, before: &[Event]) {
        let mut world = self.world.clone();
        let records = &self.store.records;
        let resumable = |job: &JobId| records.get(job).and_then(plan::resumable);
        let versions = |asset: &DocKey| self.store.versions(asset);
        let archive = Archive {
            resumable: &resumable,
            versions: &versions,
            ..Archive::empty()
        };
        let again = plan::decide(&mut world, Vec::new(), archive, seen, self.fake.now);
        assert!(
            again.events.is_empty(),
            "P9: after {before:#?} it is decided again: {:#?}, told {:#?}",
            again.events,
            self.world
                .view
                .runs
                .values()
                .map(|r| (&r.id, &r.why))
                .collect::<Vec<_>>()
        );
    }

    fn write(&mut self, turn: &Turn) {
        for rows in &turn.rows {
            self.write_rows(rows);
        }
        for event in &turn.events {
            self.check_event(event);
            if let Event::Declared { declared, .. } = event {
                let at = self.store.log.len();
                self.store.declared.insert(at, declared.clone());
            }
            self.store.log.push(event.clone());
        }
        self.store.turns.push(self.store.log.len());
        for (from, to) in &turn.copies {
            let rows = self.store.rows.get(from).cloned().unwrap_or_default();
            assert!(
                self.store.rows.insert(to.clone(), rows).is_none(),
                "P1: rows copied into a run that has some"
            );
        }
    }

    fn write_rows(&mut self, write: &RowWrite) {
        let bytes: Vec<u8> = write
            .pieces
            .iter()
            .flat_map(|p| p.iter().copied())
            .collect();
        let mut covered = 0;
        let kept = self.store.rows.entry(write.run.clone()).or_default();
        for span in &write.spans {
            let (start, len) = (usize::try_from(span.offset).unwrap(), span.len as usize);
            assert_eq!(start, covered, "P1: spans are back to back");
            covered += len;
            let text = &bytes[start..start + len];
            assert_eq!(
                check_of(text),
                span.crc,
                "P1: crc of {}:{}",
                write.run,
                span.index
            );
            let text = std::str::from_utf8(text).unwrap().to_owned();
            assert_eq!(text, rows_of(&write.run, span.index), "P1: rows of another");
            assert!(
                kept.insert(span.index, text).is_none(),
                "P1: rows of {}:{} twice",
                write.run,
                span.index
            );
        }
        assert_eq!(covered, bytes.len(), "P1: rows that no span covers");
    }

    fn check_event(&mut self, event: &Event) {
        match event {
            Event::Batch { run, event, .. } => self.check_batch(run, event),
            Event::Run {
                run,
                event: RunEvent::Retired { record },
                ..
            } => {
                self.store.records.insert(run.clone(), (**record).clone());
            }
            Event::Declared { document, .. }
                if matches!(document.key.kind, Kind::Data | Kind::Model) =>
            {
                let new = self.store.assets.insert(document.key.clone());
                assert!(new, "P10: {:?} is made again", document.key);
            }
            Event::Run {
                run,
                event: RunEvent::Finished { outcome },
                ..
            } => self.check_finished(run, outcome),
            Event::Run {
                event: RunEvent::Placed { task, place },
                ..
            } => self.check_room(task, place),
            Event::Node {
                node,
                event: NodeEvent::Asked,
                ..
            } => self.check_quota(node),
            _ => {}
        }
    }

    /// P5 for a pod that was placed here: all that are on its machine fit together.
    fn check_room(&self, task: &TaskId, place: &Place) {
        let Some(name) = place.pod().and_then(|pod| pod.machine.as_ref()) else {
            return;
        };
        let cluster = &self.world.view.clusters_seen[&ClusterKey::Embedded];
        let mut left = cluster.machines[name].clone();
        let runs = self.world.view.runs.values();
        let places = runs.flat_map(|r| r.tasks.values().map(|t| &t.place));
        let pods = places.filter_map(Place::pod);
        for pod in pods.filter(|pod| pod.machine.as_ref() == Some(name)) {
            left.take(&pod.requests);
        }
        assert!(
            left.requested.cpu <= left.allocatable.cpu
                && left.requested.memory <= left.allocatable.memory
                && left.pods_there <= left.pods,
            "P5: {task} on {name}: {left:?}"
        );
    }

    fn check_batch(&mut self, run: &JobId, event: &BatchEvent) {
        let committed = self.store.committed.entry(run.clone()).or_default();
        match event {
            BatchEvent::Lent { indices, task, .. } => {
                let again = indices.intersection(committed);
                assert!(again.is_empty(), "P2: {task} is lent {again:?} again");
            }
            BatchEvent::Taken { done, .. } => {
                let twice = done.intersection(committed);
                assert!(twice.is_empty(), "P1: {twice:?} of {run} committed twice");
                committed.extend(done);
            }
            BatchEvent::Resumed { done, .. } => committed.extend(done),
            BatchEvent::Failed { index, last, .. } => {
                let n = self
                    .store
                    .failures
                    .entry((run.clone(), *index))
                    .or_default();
                *n += 1;
                let record = self.world.view.runs.get(run);
                let Some(Work::Batch(spec)) = record.map(|r| &r.spec.work) else {
                    return;
                };
                assert_eq!(
                    *last,
                    *n > spec.max_retries,
                    "P7: attempts of {run}:{index}"
                );
            }
            _ => {}
        }
    }

    /// P7.
    fn check_finished(&mut self, run: &JobId, outcome: &Outcome) {
        let record = &self.world.view.runs[run];
        let wanted = record.spec.task.outputs.iter();
        let wanted: Vec<_> = wanted.filter(|(_, o)| o.register.is_some()).collect();
        let registered = if *outcome == Outcome::Completed {
            wanted.len()
        } else {
            0
        };
        assert_eq!(
            record.registered.len(),
            registered,
            "P10: {run} is {outcome}"
        );
        let (Some(record), Some(batch)) = (self.world.view.runs.get(run), self.world.batch(run))
        else {
            return;
        };
        let Work::Batch(spec) = &record.spec.work else {
            return;
        };
        let progress = record.progress.clone().unwrap();
        let committed = self.store.committed.get(run).cloned().unwrap_or_default();
        assert_eq!(
            batch.done(),
            committed,
            "P7: what is done is what was committed"
        );
        if *outcome != Outcome::Completed {
            return;
        }
        assert_eq!(progress.done + progress.failed, progress.total, "P7: {run}");
        if matches!(spec.output, BatchOutput::AppendRow { .. }) {
            let rows = self.store.rows.get(run).cloned().unwrap_or_default();
            let written: Ranges = rows.keys().copied().collect();
            assert_eq!(written, committed, "P7: the output of {run}");
            assert_eq!(rows.len() as u64, progress.rows, "P7: rows of {run}");
        }
    }

    /// P3, counted from the view and not from what the World keeps.
    fn check_quota(&self, asked: &NodeId) {
        let view = &self.world.view;
        let quotas = view.quotas_of(asked.compute.workspace());
        let Some(of) = view.clusters.get(&asked.compute) else {
            return;
        };
        let (mut low, mut dedicated, mut family) = (0, 0, 0);
        for (id, cluster) in view.clusters.iter() {
            let nodes = view.nodes_of(id).filter(|n| n.state.exists()).count();
            let cores = u32::try_from(nodes).unwrap() * cluster.spec.size.cores;
            match cluster.spec.tier {
                Tier::LowPriority => low += cores,
                Tier::Dedicated => dedicated += cores,
            }
            if cluster.spec.tier == Tier::Dedicated
                && cluster.spec.size.family == of.spec.size.family
            {
                family += cores;
            }
        }
        match of.spec.tier {
            Tier::LowPriority => assert!(low <= quotas.low_priority, "P3: {asked}: {low} cores"),
            Tier::Dedicated => {
                let limit = quotas.family_limit(&of.spec.size);
                assert!(family <= limit, "P3: {asked}: {family} cores of the family");
                assert!(dedicated <= quotas.dedicated_total, "P3: {asked}");
            }
        }
        let nodes = view.nodes_of(&asked.compute);
        let existing = nodes.filter(|n| n.state.exists()).count();
        assert!(existing <= of.spec.max as usize, "P3: {asked} is above max");
    }

    fn check_actions(&self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::RemoveNode(node) if !self.strays.contains(node) => {
                    for task in self.fake.busy(node) {
                        let held = self.world.view.runs.get(&task.job).is_some_and(|r| {
                            let t = r.tasks.get(&task.index);
                            t.is_some_and(|t| t.attempt == task.attempt)
                        });
                        assert!(!held, "P4: {node} is let go while it holds {task}");
                    }
                }
                Action::Start(task, placement, _) => {
                    let place = &placement.place;
                    let others = self.world.view.runs.values().flat_map(|r| {
                        let id = r.id.clone();
                        r.tasks.iter().map(move |(&i, t)| (id.clone(), i, t))
                    });
                    let node = place.node();
                    let here = others.filter(|(_, _, t)| t.place.node() == node).count();
                    assert!(
                        here == 1 || node.is_none(),
                        "P5: {place} has {here} tasks, one of them {task}"
                    );
                    let record = &self.world.view.runs[&task.job];
                    if record.spec.work == Work::Command {
                        let ranks = record.spec.instances as usize;
                        assert_eq!(placement.gang.len(), ranks, "P6: {task}");
                    }
                }
                Action::Lend(task, _, indices) => {
                    let committed = self.store.committed.get(&task.job);
                    let again = committed.map(|c| indices.intersection(c));
                    assert!(again.is_none_or(|a| a.is_empty()), "P2: {task}");
                }
                _ => {}
            }
        }
    }

    /// The World as the store has it.
    pub fn replay(&self, upto: usize) -> World {
        let (mut world, from) = match &self.store.checkpoint {
            Some((text, at)) if *at <= upto => (serde_json::from_str(text).unwrap(), *at),
            _ => (World::default(), 0),
        };
        for (n, event) in self.store.log[from..upto].iter().enumerate() {
            let mut event = event.clone();
            if self.stored {
                let text = serde_json::to_string(&event).unwrap();
                event = serde_json::from_str(&text).unwrap();
            }
            if let Event::Declared { declared, .. } = &mut event {
                *declared = self.store.declared[&(from + n)].clone();
            }
            world.apply(&event);
        }
        world
    }

    /// P8, and a crash: the World is what the store has.
    pub fn restart(&mut self) {
        let world = self.replay(self.store.log.len());
        let wrong = world.facts_differ(&self.world);
        assert!(
            wrong.is_empty(),
            "P8: a replay makes another World: {wrong:#?}"
        );
        self.world = world;
        self.fresh = true;
    }

    /// P8.
    pub fn check_derived(&self) {
        let wrong = self.world.audit();
        assert!(wrong.is_empty(), "P8: {wrong:#?}");
    }

    pub fn save(&mut self) {
        let text = serde_json::to_string(&self.world).unwrap();
        self.store.checkpoint = Some((text, self.store.log.len()));
    }
}
