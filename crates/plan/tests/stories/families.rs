//! The verbs of pipelines and sweeps.
//!
//! * `step NAME of PIPELINE on=COMPUTE [in=INPUT:STEP,…] [out=OUTPUT,…] [export=OUTPUT:NAME,…] [asset=NAME[:VERSION]] [sent=yes]
//!   [print=FINGERPRINT]` and how it behaves: collected until `pipeline NAME [stop] [rerun]` submits them; with `lists=INPUT
//!   files=N` and what a batch run has it is a parallel step;
//! * `sweep NAME on COMPUTE total=N at=N by=grid|random|sobol|bayesian [bandit=|median|truncation=] [interval=] [delay=]`;
//! * `report TRIAL VALUE`, `family NAME`.

use super::*;
use model::{
    Part, PipelineSpec, Real, RunSpec, StepSpec, SweepSpec, Work,
    engine::{OutputSpec, Program, Register, Remote},
    family::{Binding, Domain, Goal, OnFailure, Policy, Rerun, Sampling, Source, Termination, Way},
};

fn part(parent: &JobId, key: &str, options: &Options<'_>) -> Part {
    Part {
        parent: parent.clone(),
        key: key.into(),
        fingerprint: options.0.get("print").map(|&p| p.into()),
        reused_from: None,
        metric: None,
        parameters: BTreeMap::new(),
    }
}

impl Story {
    pub fn step(&mut self, name: &str, pipeline: &str, options: &Options<'_>) {
        let parent = self.job(pipeline);
        let job = self.job(&format!("{pipeline}_{name}"));
        self.behave(&job, options);
        let compute = self.compute(options.0.get("on").copied().unwrap_or("c"));
        let mut run = match options.has("lists") {
            true => self.batch_spec(&job, compute.name(), options),
            false => make::command(&compute, options.number("instances", 1), None),
        };
        if options.has("pipeline") {
            run.work = Work::Pipeline(Box::new(self.collected(job.name(), options)));
        }
        run.part = Some(Box::new(part(&parent, name, options)));
        let mut task = (*run.task).clone();
        for output in options.0.get("out").into_iter().flat_map(|o| o.split(',')) {
            let target = make::path(&format!("blobs/{job}/{output}"));
            let asset = options.0.get("asset").map(|asset| {
                let (name, version) = match asset.split_once(':') {
                    Some((name, version)) => (name, Some(version.into())),
                    None => (*asset, None),
                };
                Box::new(Register {
                    kind: Kind::Data,
                    holds: "uri_folder".into(),
                    name: name.into(),
                    version,
                })
            });
            let output = OutputSpec {
                target,
                file: false,
                register: asset,
                address: None,
                remote: options.has("sent").then(|| {
                    Box::new(Remote {
                        datastore: "d".into(),
                        staged: make::path(&format!("staged/{job}/o")),
                    })
                }),
            };
            let name = options.0.get("out").and_then(|o| o.split(',').next());
            task.outputs.insert(name.unwrap_or("o").into(), output);
        }
        run.task = Arc::new(task);
        let bindings = options.labels("in").into_iter().map(|(input, from)| {
            let source = match from.split_once('.') {
                Some((step, output)) => Source::Step {
                    step: step.into(),
                    output: output.into(),
                },
                None => Source::Parent(from.clone()),
            };
            let way = Way::Mount;
            (input, Binding { source, way })
        });
        let step = StepSpec {
            job,
            run: Arc::new(run),
            document: "{}".into(),
            inputs: bindings.collect(),
            exports: options.labels("export"),
        };
        let steps = self.steps.entry(pipeline.to_owned()).or_default();
        steps.insert(name.into(), step);
    }

    fn collected(&mut self, pipeline: &str, options: &Options<'_>) -> PipelineSpec {
        PipelineSpec {
            steps: self.steps.remove(pipeline).unwrap_or_default(),
            on_failure: if options.has("stop") {
                OnFailure::Stop
            } else {
                OnFailure::Continue
            },
            rerun: if options.has("rerun") {
                Rerun::Always
            } else {
                Rerun::WhenNew
            },
        }
    }

    pub fn pipeline(&mut self, name: &str, options: &Options<'_>) {
        let spec = RunSpec {
            work: Work::Pipeline(Box::new(self.collected(name, options))),
            timeout: options
                .has("timeout")
                .then(|| Millis::secs(options.number("timeout", 0))),
            ..make::command(&self.compute("c"), 1, None)
        };
        self.submit(&self.job(name), spec, options);
    }

    pub fn sweep(&mut self, name: &str, compute: &str, options: &Options<'_>) {
        let job = self.job(name);
        let real = |key: &str| Real::new(options.number(key, 0.0)).unwrap();
        let policy = if options.has("bandit") {
            Some(Policy::BanditAmount(real("bandit")))
        } else if options.has("median") {
            Some(Policy::Median)
        } else if options.has("truncation") {
            Some(Policy::Truncation(options.number("truncation", 0)))
        } else {
            None
        };
        let seed = options.number("seed", 1);
        let choice = |values: &[&str]| Domain::Choice(values.iter().map(|&v| v.into()).collect());
        let mut trial = make::command(&self.compute(compute), 1, None);
        trial.part = Some(Box::new(Part {
            metric: Some("accuracy".into()),
            ..part(&job, "", options)
        }));
        let spec = SweepSpec {
            space: [
                ("batch".into(), choice(&["16", "32", "64"])),
                ("depth".into(), choice(&["2", "3"])),
            ]
            .into(),
            sampling: match options.0.get("by").copied().unwrap_or("grid") {
                "grid" => Sampling::Grid,
                "random" => Sampling::Random { seed },
                "sobol" => Sampling::Sobol { seed },
                "bayesian" => Sampling::Bayesian { seed },
                other => panic!("by={other}"),
            },
            metric: "accuracy".into(),
            goal: Goal::Maximize,
            termination: policy.map(|policy| Termination {
                policy,
                interval: options.number("interval", 1),
                delay: options.number("delay", 0),
            }),
            total: options.number("total", 6),
            at_once: options.number("at", 6),
            trial: Arc::new(trial),
            document: "{}".into(),
        };
        for number in 0..spec.total {
            self.behave(&SweepSpec::trial_of(&job, number), options);
        }
        let spec = RunSpec {
            work: Work::Sweep(Box::new(spec)),
            ..make::command(&self.compute(compute), 1, None)
        };
        self.submit(&job, spec, &Options(BTreeMap::new()));
    }

    pub fn report(&mut self, trial: &str, value: &str) {
        let job = self.job(trial);
        let value = Real::new(value.parse().unwrap()).unwrap();
        self.turn(vec![Command::Measured { job, value }]);
    }

    pub fn family(&mut self, name: &str) {
        let Some(record) = self.server.world.view.runs.get(&self.job(name)).cloned() else {
            return self.say(&format!("{name} is not in memory"));
        };
        let family = record.family.as_deref().cloned().unwrap_or_default();
        for child in family.children.values() {
            let mut text = format!("{} is {}", child.key, child.job);
            match &child.outcome {
                Some(outcome) => write!(text, ", {outcome}").unwrap(),
                None => text.push_str(", goes on"),
            }
            if let Some(from) = &child.reused_from {
                write!(text, ", as {from}").unwrap();
            }
            for (name, value) in &child.parameters {
                write!(text, ", {name} {value}").unwrap();
            }
            if let Some(best) = child.best {
                write!(text, ", best {best} of {}", child.reports.len()).unwrap();
            }
            for (name, path) in &child.outputs {
                write!(text, ", {name} at {path}").unwrap();
            }
            self.say(&text);
        }
        match record.best_trial() {
            Some(best) => self.say(&format!("best {}", best.job)),
            None if record.output("result").is_some() => {
                let path = record.output("result").unwrap().clone();
                self.say(&format!("result at {path}"));
            }
            None => {}
        }
    }

    /// Where the inputs of a task come from.
    pub fn inputs(&mut self, job: &str) {
        let Some(record) = self.server.world.view.runs.get(&self.job(job)).cloned() else {
            return self.say(&format!("{job} is not in memory"));
        };
        for (name, input) in &record.spec.task.inputs {
            self.say(&format!("{job} takes {name} from {input:?}"));
        }
        if let (Work::Batch(batch), Program::Pool(pool)) =
            (&record.spec.work, &record.spec.task.program)
        {
            self.say(&format!("{job} lists {} below {}", batch.input, pool.root));
        }
    }
}
