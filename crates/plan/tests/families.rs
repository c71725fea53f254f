//! The simulation of pipelines and sweeps: random graphs and sweeps, random failures, lost nodes, cancels and restarts. At
//! every turn the checks of `fake::drive` hold, and:
//!
//! F1 a step is made once, and only after everything that it takes something from has completed;
//! F2 no more trials go on at once than allowed, and no more are made than allowed;
//! F3 a parent that has ended has no child that goes on;
//! F4 when everything is at rest, every pipeline and sweep has ended, and ended as its children did;
//! F5 a parallel step lists the input that it takes, wherever the step before it has left that.
//!
//! `ZAFFRE_SIM_SEEDS=N` tries more seeds, `ZAFFRE_SIM_SEED=N` one.

#[expect(
    dead_code,
    reason = "the other simulation hurts the engine in more ways"
)]
mod fake;

use fake::{
    Behaviour,
    drive::Server,
    make::{self, BatchOf},
};
use model::{
    Command, Declared, Event, Exit, JobId, Kind, Millis, Outcome, Part, PipelineSpec, Real,
    RunEvent, RunSpec, StepSpec, SweepSpec, Tier, Time, Work,
    engine::{InputSpec, OutputSpec, Program, Register, Remote},
    family::{Binding, Domain, Goal, OnFailure, Policy, Rerun, Sampling, Source, Termination, Way},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const SEEDS: u64 = 60;
/// Turns without time passing: more is a loop.
const TURNS_AT_ONCE: u32 = 200;
/// Everything of a seed ends by then.
const END: Time = Time(3_000_000);

fn small(draw: &mut Draw, n: u64) -> u32 {
    u32::try_from(draw.below(n)).unwrap()
}

/// F5.
fn lists_what_it_takes(run: &JobId, spec: &RunSpec) {
    let (Work::Batch(batch), Program::Pool(pool)) = (&spec.work, &spec.task.program) else {
        return;
    };
    let Some(name) = &batch.input_from else {
        return;
    };
    let taken = InputSpec::Path {
        source: batch.input.clone(),
        copy: false,
    };
    assert_eq!(spec.task.inputs.get(name), Some(&taken), "{run} (F5)");
    assert_eq!(pool.root, batch.input, "{run} (F5)");
}

struct Draw(u64);
impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

struct Sim {
    server: Server,
    draw: Draw,
    parents: Vec<JobId>,
    /// What each step takes something from.
    needs: BTreeMap<JobId, Vec<JobId>>,
    submitted: BTreeSet<JobId>,
    completed: BTreeSet<JobId>,
}

impl Sim {
    fn new(seed: u64) -> Sim {
        let mut sim = Sim {
            server: Server::new(500),
            draw: Draw(seed),
            parents: Vec::new(),
            needs: BTreeMap::new(),
            submitted: BTreeSet::new(),
            completed: BTreeSet::new(),
        };
        let nodes = 1 + u32::try_from(sim.draw.below(4)).unwrap();
        let spec = make::cluster(Tier::LowPriority, 2, 0, nodes, Millis::secs(30));
        let document = make::document(&sim.server.workspace, Kind::Compute, "c", Time(0));
        let declared = Declared::Cluster(Arc::new(spec));
        sim.turn(vec![Command::Put { document, declared }]);
        sim
    }

    fn command(&mut self, job: &JobId, parent: &JobId, key: &str) -> RunSpec {
        let exit = if self.draw.once_in(6) { 1 } else { 0 };
        let behaviour = Behaviour {
            prepare: self.draw.below(300),
            run: 100 + self.draw.below(4000),
            exit: Exit::Code(exit),
            ..Behaviour::default()
        };
        self.server.fake.behaviours.insert(job.clone(), behaviour);
        let compute = model::ComputeId::new(&self.server.workspace, "c");
        let mut run = make::command(&compute, 1, None);
        let print = self.draw.below(8);
        run.part = Some(Box::new(Part {
            parent: parent.clone(),
            key: key.into(),
            fingerprint: (print < 5).then(|| print.to_string().into()),
            reused_from: None,
            metric: None,
            parameters: BTreeMap::new(),
        }));
        let mut task = (*run.task).clone();
        let target = make::path(&format!("blobs/{job}/o"));
        let asset = self.draw.below(12);
        let output = OutputSpec {
            target,
            file: false,
            address: None,
            remote: self.draw.once_in(5).then(|| {
                Box::new(Remote {
                    datastore: "d".into(),
                    staged: make::path(&format!("staged/{job}/o")),
                })
            }),
            register: (asset < 4).then(|| {
                let version = 1 + self.draw.below(60);
                Box::new(Register {
                    kind: Kind::Data,
                    holds: "uri_folder".into(),
                    name: format!("a{}", asset % 2).as_str().into(),
                    version: (asset == 3).then(|| version.to_string().into()),
                })
            }),
        };
        task.outputs.insert("o".into(), output);
        run.task = Arc::new(task);
        run
    }

    /// A parallel step in the place of a command; some of its files fail, some return too little.
    fn parallel(&mut self, job: &JobId, run: &mut RunSpec, lists: Option<&str>) {
        let some = |draw: &mut Draw| -> BTreeSet<u32> {
            let n = draw.below(3);
            (0..n).map(|_| small(draw, 20)).collect()
        };
        let behaviour = Behaviour {
            prepare: self.draw.below(300),
            run: 50 + self.draw.below(1500),
            poison: some(&mut self.draw),
            flaky: some(&mut self.draw).into_iter().map(|i| (i, 1)).collect(),
            short: some(&mut self.draw),
            ..Behaviour::default()
        };
        self.server.fake.behaviours.insert(job.clone(), behaviour);
        let files = 1 + self.draw.below(25);
        self.server.fake.inputs.insert(job.clone(), files);
        let threshold = |draw: &mut Draw| match draw.once_in(4) {
            true => i64::from(small(draw, 4)),
            false => -1,
        };
        let of = BatchOf {
            group: 1 + small(&mut self.draw, 3),
            workers: 1 + small(&mut self.draw, 2),
            retries: small(&mut self.draw, 3),
            threshold: threshold(&mut self.draw),
            mini_batch_threshold: threshold(&mut self.draw),
            percent: 100 - small(&mut self.draw, 2) * 40,
            wait: true,
            summary: self.draw.once_in(3),
            input_from: lists.map(Into::into),
            ..BatchOf::default()
        };
        let made = make::batch(&run.compute, 1 + small(&mut self.draw, 3), &of);
        let mut task = (*made.task).clone();
        task.outputs.clone_from(&run.task.outputs);
        (run.work, run.instances, run.task) = (made.work, made.instances, Arc::new(task));
    }

    fn pipeline(&mut self, job: &JobId, depth: u32) -> RunSpec {
        let n = 1 + self.draw.below(6);
        let mut steps = BTreeMap::new();
        let mut before: Vec<(Box<str>, JobId)> = Vec::new();
        for i in 0..n {
            let key: Box<str> = format!("s{i}").into();
            let child = JobId::new(job.workspace(), format!("{}_{key}", job.name()).as_str());
            let mut run = self.command(&child, job, &key);
            let parallel = match self.draw.below(8) {
                0 if depth < 2 => {
                    run.work = self.pipeline(&child, depth + 1).work;
                    false
                }
                1 => {
                    run.work = self.sweep(&child).work;
                    false
                }
                kind => kind < 4,
            };
            if run.is_parent()
                && let Some(part) = &mut run.part
            {
                part.fingerprint = None;
            }
            let mut inputs = BTreeMap::new();
            for (name, _) in &before {
                if self.draw.once_in(3) {
                    let source = Source::Step {
                        step: name.clone(),
                        output: "o".into(),
                    };
                    let way = Way::Mount;
                    inputs.insert(name.clone(), Binding { source, way });
                }
            }
            if parallel {
                let lists = inputs.keys().next().map(AsRef::as_ref);
                self.parallel(&child, &mut run, lists);
            }
            let needs = before.iter().filter(|(n, _)| inputs.contains_key(n));
            let needs = needs.map(|(_, j)| j.clone()).collect();
            self.needs.insert(child.clone(), needs);
            let step = StepSpec {
                job: child.clone(),
                run: Arc::new(run),
                document: "{}".into(),
                inputs,
                exports: BTreeMap::new(),
            };
            steps.insert(key.clone(), step);
            before.push((key, child));
        }
        self.parents.push(job.clone());
        let compute = model::ComputeId::new(&self.server.workspace, "c");
        RunSpec {
            work: Work::Pipeline(Box::new(PipelineSpec {
                steps,
                on_failure: if self.draw.once_in(3) {
                    OnFailure::Stop
                } else {
                    OnFailure::Continue
                },
                rerun: if self.draw.once_in(4) {
                    Rerun::Always
                } else {
                    Rerun::WhenNew
                },
            })),
            timeout: self.draw.once_in(10).then(|| Millis::secs(8)),
            ..make::command(&compute, 1, None)
        }
    }

    fn sweep(&mut self, job: &JobId) -> RunSpec {
        let total = 1 + u32::try_from(self.draw.below(8)).unwrap();
        let mut trial = None;
        for number in 0..total {
            let child = SweepSpec::trial_of(job, number);
            trial = Some(self.command(&child, job, ""));
        }
        let mut trial = trial.unwrap();
        let part = trial.part.as_mut().unwrap();
        (part.fingerprint, part.metric) = (None, Some("m".into()));
        let real = |x: f64| Real::new(x).unwrap();
        let seed = self.draw.below(100);
        self.parents.push(job.clone());
        let compute = model::ComputeId::new(&self.server.workspace, "c");
        RunSpec {
            work: Work::Sweep(Box::new(SweepSpec {
                space: [(
                    "x".into(),
                    Domain::Uniform {
                        min: real(0.0),
                        max: real(1.0),
                        step: None,
                    },
                )]
                .into(),
                sampling: match self.draw.below(3) {
                    0 => Sampling::Random { seed },
                    1 => Sampling::Sobol { seed },
                    _ => Sampling::Bayesian { seed },
                },
                metric: "m".into(),
                goal: Goal::Minimize,
                termination: self.draw.once_in(2).then(|| Termination {
                    policy: match self.draw.below(3) {
                        0 => Policy::BanditFactor(real(0.1)),
                        1 => Policy::Median,
                        _ => Policy::Truncation(50),
                    },
                    interval: 1,
                    delay: 1,
                }),
                total,
                at_once: 1 + u32::try_from(self.draw.below(3)).unwrap(),
                trial: Arc::new(trial),
                document: "{}".into(),
            })),
            ..make::command(&compute, 1, None)
        }
    }

    fn turn(&mut self, commands: Vec<Command>) {
        let mut commands = Some(commands);
        for _ in 0..TURNS_AT_ONCE {
            let first = commands.is_some();
            let done = self.server.turn(commands.take().unwrap_or_default(), false);
            for event in &done.turn.events {
                self.event(event);
            }
            let quiet = done.turn.events.is_empty() && done.actions.is_empty();
            for action in &done.actions {
                self.server.fake.apply(action);
            }
            if done.actions.is_empty() {
                let mut all = self.server.fake.peek();
                all.marks.all = true;
                self.server.check_stable(&all, &done.turn.events);
            }
            self.check();
            if quiet && !first {
                self.server.check_derived();
                return;
            }
        }
        panic!("{TURNS_AT_ONCE} turns and no end");
    }

    fn event(&mut self, event: &Event) {
        let Event::Run { run, event, .. } = event else {
            return;
        };
        match event {
            RunEvent::Submitted { spec, .. } => {
                lists_what_it_takes(run, spec);
                assert!(
                    self.submitted.insert(run.clone()),
                    "{run} is made twice (F1)"
                );
                for need in self.needs.get(run).into_iter().flatten() {
                    assert!(self.completed.contains(need), "{run} before {need} (F1)");
                }
            }
            RunEvent::Finished {
                outcome: Outcome::Completed,
            } => {
                self.completed.insert(run.clone());
            }
            _ => {}
        }
    }

    fn check(&self) {
        for record in self.server.world.view.runs.values() {
            let Some(family) = &record.family else {
                continue;
            };
            let open = family.children.values().filter(|c| c.outcome.is_none());
            let open = u32::try_from(open.count()).unwrap();
            if record.state.is_done() {
                assert_eq!(open, 0, "{} has ended before its children (F3)", record.id);
            }
            if let Work::Sweep(spec) = &record.spec.work {
                let made = u32::try_from(family.children.size()).unwrap();
                assert!(
                    open <= spec.at_once && made <= spec.total,
                    "{} (F2)",
                    record.id
                );
            }
        }
    }

    fn hurt(&mut self) {
        let jobs: Vec<JobId> = self.server.world.view.runs.keys().cloned().collect();
        let some = |draw: &mut Draw| {
            let n = usize::try_from(draw.below(jobs.len().max(1) as u64)).unwrap();
            jobs.get(n).cloned()
        };
        match self.draw.below(12) {
            0 => {
                if let Some(job) = some(&mut self.draw) {
                    self.turn(vec![Command::Cancel { job }]);
                }
            }
            1 => {
                self.server.restart();
                self.turn(Vec::new());
            }
            2 => {
                let compute = model::ComputeId::new(&self.server.workspace, "c");
                self.turn(vec![Command::Preempt {
                    compute,
                    nodes: Some(1),
                    notice: Millis(0),
                    hold: None,
                }]);
            }
            3..=8 => {
                if let Some(job) = some(&mut self.draw) {
                    let value = Real::new(f64::from(u32::try_from(self.draw.below(100)).unwrap()));
                    let value = value.unwrap();
                    self.turn(vec![Command::Measured { job, value }]);
                }
            }
            _ => {}
        }
    }

    fn run(&mut self) {
        for i in 0..3 {
            let job = JobId::new(&self.server.workspace, format!("p{i}").as_str());
            let spec = if self.draw.once_in(3) {
                self.sweep(&job)
            } else {
                self.pipeline(&job, 0)
            };
            let document = make::document(
                &self.server.workspace,
                Kind::Job,
                job.name(),
                self.server.fake.now,
            );
            self.turn(vec![Command::Submit {
                id: job,
                document,
                spec: Arc::new(spec),
                request: None,
            }]);
        }
        let mut hurts = 40;
        while let Some(at) = [self.server.wake, self.server.fake.next()]
            .into_iter()
            .flatten()
            .min()
            .filter(|&at| at <= END)
        {
            self.server.fake.advance(at.max(self.server.fake.now));
            self.turn(Vec::new());
            if hurts > 0 {
                hurts -= 1;
                self.hurt();
            }
        }
        self.server.fake.advance(END);
        for parent in &self.parents {
            // One that was never made, as a step of a pipeline, has no end.
            if !self.submitted.contains(parent) {
                continue;
            }
            let live = self.server.world.view.runs.get(parent).map(|r| &**r);
            let record = live
                .or_else(|| self.server.store.records.get(parent))
                .unwrap();
            assert!(
                record.state.is_done(),
                "{parent} never ends (F4): {record:#?}"
            );
            if let model::RunState::Done(Outcome::Completed) = record.state
                && let Work::Pipeline(_) = record.spec.work
            {
                let failed = record.family.as_ref().and_then(|f| f.failed());
                assert_eq!(failed, None, "{parent} completed with a failed step (F4)");
            }
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "reads which seeds are wanted")]
fn all_seeds_of_families_come_to_rest() {
    let number = |name: &str| std::env::var(name).ok().and_then(|t| t.parse::<u64>().ok());
    let seeds = match number("ZAFFRE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ZAFFRE_SIM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let told = std::panic::catch_unwind(|| Sim::new(seed).run());
        assert!(
            told.is_ok(),
            "seed {seed}: ZAFFRE_SIM_SEED={seed} shows it alone"
        );
    }
}
