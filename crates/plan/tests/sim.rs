//! Seeded simulation: clusters and runs under every trouble that an engine and a server can have, drawn by seed.
//!
//! While there is trouble: nodes are lost one by one, several or all at once, with and without notice, by the provider and
//! by command; they break, go out of sight and come back with late parcels; hosts end or vanish; capacity is held back;
//! quotas change; users' code fails; runs are canceled and clusters deleted; actions are lost, repeated and acknowledged in
//! part; the server dies before, in and after its write. Every fourth seed has Kubernetes computes too: pods are lost and
//! vanish, machines and instance types come, change and go, a cluster refuses pods or is out of reach. Then the trouble ends,
//! and all must come to rest.
//!
//! Checked beside what `fake::drive` checks at every turn (P1 to P9):
//! P10 at rest there is no node, task or errand that nobody wants (I6, I10);
//! P11 every run ends; until then one that does not progress names what it waits for (I3);
//! P12 a mini-batch is begun at most once more than it failed and was lost while begun (B3, B4; I4, I7, I11).
//!
//! `ZAFFRE_SIM_SEEDS` seeds are run from `ZAFFRE_SIM_FROM` on. A red seed prints the command that runs it alone.

#[expect(dead_code, reason = "stories look at the engine in more ways")]
mod fake;
#[path = "sim/pods.rs"]
mod pods;

use fake::{
    Behaviour,
    drive::Server,
    make::{self, BatchOf},
};
use model::{
    Action, Command, ComputeId, Declared, DocKey, Event, Exit, JobId, Kind, Millis, NodeId,
    RunEvent, RunState, TaskId, Tier, Time,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Seeds in an ordinary test run.
const SEEDS: u64 = 20_000;
/// Time with trouble, at most.
const TROUBLE: u64 = 60_000;
/// All must be at rest so long after the trouble: longer than any pause, hold or idle limit that is drawn, and all work.
const REST: u64 = 4_000_000;
/// The slow timer of the loop, in virtual time.
const SLOW: u64 = 10_000;

/// splitmix64.
struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn small(&mut self, n: u32) -> u32 {
        u32::try_from(self.below(u64::from(n))).unwrap()
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        let at = usize::try_from(self.below(from.len() as u64)).unwrap();
        Some(from[at].clone())
    }
}

/// What happened in all seeds: a simulation in which something never happens proves nothing about it.
macro_rules! counts {
    ($($name:ident),* $(,)?) => {
        #[derive(Default)]
        struct Counts { $($name: AtomicU64),* }
        impl Counts {
            fn missing(&self) -> Vec<&'static str> {
                let all = [$((stringify!($name), self.$name.load(Ordering::Relaxed))),*];
                all.iter().filter(|(_, n)| *n == 0).map(|(name, _)| *name).collect()
            }
            fn text(&self) -> String {
                let all = [$((stringify!($name), self.$name.load(Ordering::Relaxed))),*];
                let text: Vec<String> = all.iter().map(|(name, n)| format!("{n} {name}")).collect();
                text.join(", ")
            }
        }
    };
}
counts!(
    turns,
    events,
    crashes,
    lost_turns,
    lost_actions,
    repeated_actions,
    lost_nodes,
    hidden,
    ghosts,
    broken,
    notices,
    preempts,
    holds,
    exits,
    vanished,
    cancels,
    deletions,
    quotas,
    resumes,
    completed,
    failed,
    canceled,
    rerun,
    retries,
    discarded,
    gangs,
    committed,
    strays_back,
    pod_jobs,
    pods_lost,
    pods_vanished,
    machines,
    types,
    refusals,
    recalls,
);

fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

struct Sim<'a> {
    rng: Rng,
    server: Server,
    counts: &'a Counts,
    jobs: Vec<JobId>,
    clusters: Vec<ComputeId>,
    /// For what concerns pods alone, so that seeds without them stay what they were.
    pods: Option<Rng>,
    pod_jobs: u32,
    /// A turn may lose or repeat actions, and the server may die.
    trouble: bool,
    crash_after: Option<usize>,
}

impl<'a> Sim<'a> {
    fn new(seed: u64, counts: &'a Counts) -> Self {
        let mut rng = Rng(seed);
        let boot = 1 + rng.below(3000);
        let mut server = Server::new(boot);
        server.stored = seed.is_multiple_of(8);
        Sim {
            server,
            rng,
            counts,
            jobs: Vec::new(),
            clusters: Vec::new(),
            pods: (seed % 4 == 1).then_some(Rng(!seed)),
            pod_jobs: 0,
            trouble: true,
            crash_after: None,
        }
    }
    fn now(&self) -> Time {
        self.server.fake.now
    }

    // Commands.

    fn put_quotas(&mut self, generous: bool) -> Command {
        let n = if generous { 1000 } else { self.rng.small(40) };
        let low = if generous { 1000 } else { self.rng.small(40) };
        Command::Put {
            document: make::document(&self.server.workspace, Kind::Quota, "here", self.now()),
            declared: make::quotas(n, n / 2 + 4, low),
        }
    }
    fn put_cluster(&mut self, id: &ComputeId, tier: Tier, cores: u32) -> Command {
        let max = 1 + self.rng.small(4);
        let min = if self.rng.one_in(4) {
            self.rng.small(max + 1)
        } else {
            0
        };
        let idle = Millis(self.rng.below(4) * 20_000);
        let spec = make::cluster(tier, cores, min.min(2), max, idle);
        Command::Put {
            document: make::document(&self.server.workspace, Kind::Compute, id.name(), self.now()),
            declared: Declared::Cluster(Arc::new(spec)),
        }
    }
    fn new_cluster(&mut self) -> Command {
        let n = self.clusters.len();
        let id = ComputeId::new(&self.server.workspace, format!("c{n}"));
        let tier = if self.rng.one_in(3) {
            Tier::Dedicated
        } else {
            Tier::LowPriority
        };
        let cores = 1 + self.rng.small(4);
        self.clusters.push(id.clone());
        self.put_cluster(&id, tier, cores)
    }

    fn submit(&mut self) -> Option<Command> {
        let compute = self.rng.pick(&self.clusters)?;
        let n = self.jobs.len();
        let job = JobId::new(&self.server.workspace, format!("j{n}"));
        let is_batch = !self.rng.one_in(3);
        let behaviour = self.behaviour(is_batch);
        self.server.fake.behaviours.insert(job.clone(), behaviour);
        let spec = if is_batch {
            let files = match self.rng.below(12) {
                0 => 0,
                1 => 400,
                _ => 1 + self.rng.below(60),
            };
            let mut of = BatchOf {
                group: 1 + self.rng.small(3),
                workers: 1 + self.rng.small(3),
                retries: self.rng.small(3),
                threshold: if self.rng.one_in(3) {
                    i64::from(self.rng.small(10))
                } else {
                    -1
                },
                mini_batch_threshold: if self.rng.one_in(6) {
                    i64::from(self.rng.small(6))
                } else {
                    -1
                },
                percent: 100,
                wait: self.rng.one_in(2),
                summary: self.rng.one_in(4),
                max_preemptions: self.rng.one_in(6).then(|| self.rng.small(3)),
                resume_from: None,
                fingerprint: "f".into(),
                input_from: None,
            };
            let mut files = files;
            if self.rng.one_in(3)
                && let Some(from) = self.rng.pick(&self.jobs)
            {
                of.resume_from = Some(from.clone());
                // Mostly the same input as the run it resumes.
                if let Some(&before) = self.server.fake.inputs.get(&from) {
                    files = if self.rng.one_in(6) { files } else { before };
                }
                if let Some(model::Work::Batch(b)) = self.spec_of(&from) {
                    of.group = b.mini_batch_size;
                    of.workers = b.workers_per_node;
                    of.summary = matches!(b.output, model::batch::BatchOutput::SummaryOnly);
                }
            }
            if !self.rng.one_in(40) {
                self.server.fake.inputs.insert(job.clone(), files);
            }
            make::batch(&compute, 1 + self.rng.small(4), &of)
        } else {
            let timeout = self
                .rng
                .one_in(4)
                .then(|| Millis(1000 + self.rng.below(20_000)));
            make::command(&compute, 1 + self.rng.small(3), timeout)
        };
        self.jobs.push(job.clone());
        let document = make::document(&self.server.workspace, Kind::Job, job.name(), self.now());
        let request = self
            .rng
            .one_in(3)
            .then(|| format!("r{}", self.rng.below(8)).into());
        Some(Command::Submit {
            id: job,
            document,
            spec: Arc::new(spec),
            request,
        })
    }
    fn spec_of(&self, job: &JobId) -> Option<model::Work> {
        let record = self.server.world.view.runs.get(job);
        let record = record.map(|r| r.spec.work.clone());
        record.or_else(|| Some(self.server.store.records.get(job)?.spec.work.clone()))
    }
    fn behaviour(&mut self, is_batch: bool) -> Behaviour {
        let r = &mut self.rng;
        let some = |r: &mut Rng, chance: u64| -> BTreeSet<u32> {
            if r.one_in(chance) {
                (0..1 + r.small(4)).map(|_| r.small(60)).collect()
            } else {
                BTreeSet::new()
            }
        };
        let exit = match r.below(24) {
            0 => Exit::NotStarted {
                message: "no package".into(),
            },
            1 if is_batch => Exit::Init {
                message: "no module".into(),
            },
            1 | 2 => Exit::Code(3),
            3 if !is_batch => Exit::Signal(9),
            _ => Exit::Code(0),
        };
        Behaviour {
            prepare: 1 + r.below(2000),
            run: 1 + r.below(if is_batch { 1500 } else { 15_000 }),
            skew: r.below(100),
            exit,
            poison: some(r, 5),
            flaky: some(r, 3).into_iter().map(|i| (i, 1 + i % 3)).collect(),
            short: some(r, 4),
            echo: r.one_in(6),
            crash_after: r.one_in(20).then(|| (1 + r.small(20), Exit::Code(0))),
        }
    }

    fn command(&mut self) -> Option<Command> {
        match self.rng.below(20) {
            0..=5 if self.jobs.len() < 7 => self.submit(),
            6 | 7 => {
                count(&self.counts.cancels, 1);
                let job = self.rng.pick(&self.jobs)?;
                Some(Command::Cancel { job })
            }
            8 => {
                count(&self.counts.quotas, 1);
                Some(self.put_quotas(false))
            }
            9 if self.rng.one_in(3) => {
                count(&self.counts.deletions, 1);
                let id = self.rng.pick(&self.clusters)?;
                Some(Command::Remove {
                    key: DocKey::compute(&id),
                })
            }
            10 => {
                // The same cluster with other limits, or again after its deletion.
                let id = self.rng.pick(&self.clusters)?;
                let known = self.server.world.view.clusters.get(&id).cloned();
                let (tier, cores) =
                    known.map_or((Tier::LowPriority, 2), |c| (c.spec.tier, c.spec.size.cores));
                Some(self.put_cluster(&id, tier, cores))
            }
            11..=15 => {
                count(&self.counts.preempts, 1);
                let compute = self.rng.pick(&self.clusters)?;
                let hold = self.rng.one_in(3).then(|| Millis(self.rng.below(60_000)));
                count(&self.counts.holds, u64::from(hold.is_some()));
                Some(Command::Preempt {
                    compute,
                    nodes: (!self.rng.one_in(3)).then(|| 1 + self.rng.small(2)),
                    notice: Millis(if self.rng.one_in(2) {
                        0
                    } else {
                        self.rng.below(8000)
                    }),
                    hold,
                })
            }
            _ => None,
        }
    }

    // Trouble from outside.

    fn hurt(&mut self) {
        let nodes: Vec<NodeId> = self.server.fake.nodes().cloned().collect();
        let tasks: Vec<TaskId> = self.server.fake.tasks.keys().cloned().collect();
        let c = self.counts;
        let (Some(node), task) = (self.rng.pick(&nodes), self.rng.pick(&tasks)) else {
            return;
        };
        let fake = &mut self.server.fake;
        match self.rng.below(16) {
            0..=3 => {
                count(&c.lost_nodes, 1);
                fake.lose(&node);
            }
            4 => {
                // Several at once, up to all.
                for n in nodes {
                    if n.compute == node.compute && !self.rng.one_in(3) {
                        count(&c.lost_nodes, 1);
                        fake.lose(&n);
                    }
                }
            }
            5 | 6 => {
                count(&c.hidden, 1);
                self.server.strays.insert(node.clone());
                fake.hide(&node);
            }
            7 => {
                count(&c.ghosts, 1);
                self.server.strays.insert(node.clone());
                fake.haunt(&node);
            }
            8 | 9 => {
                if let Some(back) = self
                    .rng
                    .pick(&fake.hidden().iter().cloned().collect::<Vec<_>>())
                {
                    count(&c.strays_back, 1);
                    fake.unhide(&back);
                }
            }
            10 => {
                count(&c.broken, 1);
                self.server.strays.insert(node.clone());
                fake.break_node(&node, "disk");
            }
            11 | 12 => {
                count(&c.notices, 1);
                let by = fake.now + Millis(self.rng.below(5000));
                fake.evict(&node, by);
            }
            13 | 14 => {
                if let Some(task) = task {
                    count(&c.exits, 1);
                    let exit = match self.rng.below(4) {
                        0 => Exit::Code(0),
                        1 => Exit::Code(1),
                        2 => Exit::Signal(9),
                        _ => Exit::OutOfMemory {
                            limit: model::Bytes(1),
                        },
                    };
                    fake.exit_task(&task, exit);
                }
            }
            _ => {
                if let Some(task) = task {
                    count(&c.vanished, 1);
                    fake.vanish_task(&task);
                }
            }
        }
    }

    // Turns.

    fn turn(&mut self, commands: Vec<Command>, all: bool) {
        count(&self.counts.turns, 1);
        if self.trouble && self.rng.one_in(60) {
            count(&self.counts.lost_turns, 1);
            self.server.lost_turn(commands);
            return;
        }
        self.server.twice = self.rng.one_in(8);
        let before = self.server.store.log.len();
        let done = self.server.turn(commands, all);
        let after = self.server.store.log.len();
        count(&self.counts.events, (after - before) as u64);
        let recalled = |e: &&Event| {
            let Event::Run { event, .. } = e else {
                return false;
            };
            matches!(event, RunEvent::TaskRecalled { .. })
        };
        let recalls = done.turn.events.iter().filter(recalled).count();
        count(&self.counts.recalls, recalls as u64);
        if self.rng.one_in(16) {
            self.server.check_derived();
            self.check_reasons();
        }
        // The server dies after its write: no action, some, or all of them are done.
        let dies = match self.crash_after {
            Some(n) => before < n && n <= after,
            None => self.trouble && self.rng.one_in(40),
        };
        let until = if dies {
            let n = done.actions.len() as u64;
            usize::try_from(self.rng.below(n + 1)).unwrap()
        } else {
            done.actions.len()
        };
        for action in &done.actions[..until] {
            self.act(action);
        }
        if self.rng.one_in(100) {
            self.server.save();
        }
        if dies {
            count(&self.counts.crashes, 1);
            self.server.restart();
        }
    }

    fn act(&mut self, action: &Action) {
        let fake = &mut self.server.fake;
        if self.trouble && self.rng.one_in(50) {
            count(&self.counts.lost_actions, 1);
            return;
        }
        match action {
            // Acknowledged in part.
            Action::Ack(task, upto) if self.trouble && self.rng.one_in(8) => {
                fake.apply(&Action::Ack(task.clone(), upto - 1));
            }
            _ => fake.apply(action),
        }
        if self.trouble && self.rng.one_in(20) {
            count(&self.counts.repeated_actions, 1);
            fake.apply(action); // G1
        }
    }

    /// P11 while time goes on: who waits says for what.
    fn check_reasons(&self) {
        let world = &self.server.world;
        for record in world.view.runs.values() {
            if record.state == RunState::Queued && record.tasks.is_empty() {
                let why = plan::explain(world, &record.id, self.now());
                assert!(
                    why.is_some(),
                    "P11: {} waits and does not say why",
                    record.id
                );
            }
        }
    }

    /// Lets everything that is due by `end` happen; whether anything was.
    fn step(&mut self, end: Time, slow_at: &mut Time) -> bool {
        let next = [self.server.wake, self.server.fake.next(), Some(*slow_at)];
        let Some(at) = next.into_iter().flatten().min().filter(|&at| at <= end) else {
            self.server.fake.advance(end);
            return false;
        };
        self.server.fake.advance(at.max(self.now()));
        let all = self.now() >= *slow_at;
        if all {
            *slow_at = self.now() + Millis(SLOW);
        }
        self.turn(Vec::new(), all);
        true
    }

    fn run(&mut self) {
        let first = self.rng.one_in(2);
        let mut commands = vec![self.put_quotas(first)];
        for _ in 0..1 + self.rng.below(2) {
            commands.push(self.new_cluster());
        }
        for _ in 0..1 + self.rng.below(3) {
            commands.extend(self.submit());
        }
        commands.extend(self.begin_pods());
        self.turn(commands, false);
        let mut slow_at = Time(SLOW);
        let trouble = Time(self.rng.below(TROUBLE));
        let pace = 100 + self.rng.below(5000);
        while self.now() < trouble {
            let at = (self.now() + Millis(self.rng.below(pace))).min(trouble);
            while self.step(at, &mut slow_at) {}
            if self.rng.one_in(2) {
                self.hurt();
            }
            self.hurt_pods();
            let mut commands: Vec<Command> = self.command().into_iter().collect();
            commands.extend(self.pod_command());
            self.turn(commands, false);
        }
        self.rest(&mut slow_at);
    }

    /// The trouble is over.
    fn rest(&mut self, slow_at: &mut Time) {
        self.trouble = false;
        let hidden: Vec<NodeId> = self.server.fake.hidden().iter().cloned().collect();
        for node in hidden {
            self.server.fake.unhide(&node);
        }
        let mut commands = vec![self.put_quotas(true)];
        commands.extend(self.heal_pods());
        self.turn(commands, true);
        let end = self.now() + Millis(REST);
        while !self.at_rest() {
            if self.step(end, slow_at) {
                continue;
            }
            let world = &self.server.world;
            let runs: Vec<String> = world
                .view
                .runs
                .values()
                .filter(|r| !r.state.is_done())
                .map(|r| {
                    let why = plan::explain(world, &r.id, end);
                    format!(
                        "{} {} {why:?} {:?} {:?}",
                        r.id,
                        r.state.name(),
                        r.tasks,
                        r.progress
                    )
                })
                .collect();
            let nodes: Vec<String> = world
                .view
                .nodes
                .values()
                .map(|n| format!("{} {}", n.id, n.state.name()))
                .collect();
            let tasks: Vec<_> = self.server.fake.tasks.iter().collect();
            panic!("P10, P11: no rest: runs {runs:#?}, nodes {nodes:?}, tasks {tasks:#?}");
        }
        self.server.check_derived();
        self.server.restart();
        self.tally();
    }

    /// P10: all runs are done, and what there is is what clusters keep.
    fn at_rest(&self) -> bool {
        let world = &self.server.world;
        let stuck = |r: &model::RunRecord| {
            // `max` was lowered below a gang that was accepted: it says so, and waits.
            let why = plan::explain(world, &r.id, self.now());
            matches!(why, Some(model::Why::TooManyInstances { .. }))
        };
        let mut runs = world.view.runs.values();
        if !runs.all(|r| r.state.is_done() || stuck(r)) {
            return false;
        }
        let fake = &self.server.fake;
        let kept = |id: &ComputeId| {
            let cluster = &world.view.clusters[id];
            let up = fake.nodes().filter(|n| n.compute == *id).count();
            up == cluster.spec.min as usize && cluster.target == cluster.spec.min
        };
        let stuck_wants = |id: &ComputeId| {
            let runs = &mut world.view.runs.values();
            runs.any(|r| !r.state.is_done() && r.spec.compute == *id)
        };
        let clusters: Vec<_> = world.view.clusters.keys().collect();
        let strangers = fake.nodes().any(|n| !clusters.contains(&&n.compute));
        fake.tasks.is_empty()
            && fake.errands() == 0
            && !strangers
            && clusters.iter().all(|id| stuck_wants(id) || kept(id))
    }

    fn tally(&self) {
        let c = self.counts;
        for record in self.server.world.view.runs.values() {
            if let RunState::Done(outcome) = &record.state {
                let counter = match outcome {
                    model::Outcome::Completed => &c.completed,
                    model::Outcome::Failed(_) => &c.failed,
                    model::Outcome::Canceled(_) => &c.canceled,
                };
                count(counter, 1);
            }
            if record.spec.instances > 1 && record.spec.work == model::Work::Command {
                count(&c.gangs, 1);
            }
            if let Some(p) = &record.progress {
                count(&c.committed, u64::from(p.done));
                count(&c.rerun, p.rerun);
                count(&c.retries, p.retries);
                count(&c.discarded, p.discarded);
                count(&c.resumes, u64::from(p.resumed > 0));
            }
        }
        // P12, unless somebody out of sight did work that was given to others meanwhile.
        if !self.server.strays.is_empty() {
            return;
        }
        let fake = &self.server.fake;
        for (key, &begun) in &fake.begun {
            let failed = self.server.store.failures.get(key).copied().unwrap_or(0);
            let cut = fake.cut.get(key).copied().unwrap_or(0);
            assert!(
                begun <= 1 + failed + cut,
                "P12: {}:{} was begun {begun} times, failed {failed}, was lost {cut}",
                key.0,
                key.1
            );
        }
    }
}

/// Says how to run a red seed alone.
struct Named(u64);
impl Drop for Named {
    #[expect(clippy::print_stderr, reason = "how to replay a failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("seed {seed} is red: cargo xtask sim --from {seed} --seeds 1");
        }
    }
}

fn simulate(seed: u64, counts: &Counts) {
    let named = Named(seed);
    Sim::new(seed, counts).run();
    drop(named);
}

#[expect(
    clippy::disallowed_methods,
    reason = "how many seeds is the caller's choice"
)]
fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}")),
        Err(_) => default,
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "what the seeds came to")]
#[expect(
    clippy::disallowed_methods,
    reason = "seeds are independent of each other"
)]
fn all_seeds_come_to_rest() {
    let from = number("ZAFFRE_SIM_FROM", 1);
    let seeds = number("ZAFFRE_SIM_SEEDS", SEEDS);
    let counts = Counts::default();
    let next = AtomicU64::new(from);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        let work = || loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + seeds {
                return;
            }
            simulate(seed, &counts);
        };
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    println!("{seeds} seeds: {}", counts.text());
    if seeds >= 1000 {
        let missing = counts.missing();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
}

/// The server dies at each event of a life in turn, and everything comes out as it must.
#[test]
fn a_crash_at_every_event_is_survived() {
    let counts = Counts::default();
    for seed in 1..=4 {
        let mut whole = Sim::new(seed, &counts);
        whole.run();
        let events = whole.server.store.log.len();
        for n in 1..=events {
            let named = Named(seed);
            let mut sim = Sim::new(seed, &counts);
            sim.crash_after = Some(n);
            sim.run();
            drop(named);
        }
    }
}

/// E2: every prefix of a log is a legal World; on one that ends with a turn, a turn can be decided.
#[test]
fn every_prefix_of_a_log_is_a_world() {
    let counts = Counts::default();
    for seed in 100..110 {
        let mut sim = Sim::new(seed, &counts);
        sim.run();
        sim.server.store.checkpoint = None;
        for n in 0..=sim.server.store.log.len() {
            let mut world = sim.server.replay(n);
            let wrong = world.audit();
            assert!(wrong.is_empty(), "seed {seed}, {n} events: {wrong:?}");
            if sim.server.store.turns.contains(&n) {
                let nothing = model::Observed::default();
                plan::decide(
                    &mut world,
                    Vec::new(),
                    plan::Archive::empty(),
                    &nothing,
                    sim.now(),
                );
                assert!(world.audit().is_empty(), "seed {seed}, {n} events");
            }
        }
    }
}
