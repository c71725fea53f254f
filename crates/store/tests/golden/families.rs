//! Samples of pipelines and sweeps.

use super::*;
use model::{
    Child, Family, Kind, Part, PipelineSpec, Real, StepSpec, SweepSpec,
    engine::{Register, Remote},
    family::{Binding, Domain, Goal, OnFailure, Policy, Rerun, Sampling, Source, Termination, Way},
};

fn real(value: f64) -> Real {
    Real::new(value).unwrap()
}

fn part() -> Part {
    Part {
        parent: job("pipe"),
        key: "prep".into(),
        fingerprint: Some("f".into()),
        reused_from: Some(job("pipe-0_prep")),
        metric: Some("accuracy".into()),
        parameters: BTreeMap::from([("lr".into(), "0.1".into())]),
    }
}

fn with(work: Work, part: Option<Box<Part>>) -> RunSpec {
    RunSpec {
        work,
        part,
        ..(*command()).clone()
    }
}

fn pipeline() -> Work {
    let binding = |source, way| Binding { source, way };
    let step = StepSpec {
        job: job("pipe_prep"),
        run: Arc::new(with(Work::Command, Some(Box::new(part())))),
        document: "{}".into(),
        inputs: BTreeMap::from([
            (
                "a".into(),
                binding(Source::Value(InputSpec::Literal("1".into())), Way::Mount),
            ),
            ("b".into(), binding(Source::Parent("n".into()), Way::Copy)),
            (
                "c".into(),
                binding(
                    Source::Step {
                        step: "s".into(),
                        output: "o".into(),
                    },
                    Way::Mount,
                ),
            ),
        ]),
        exports: BTreeMap::from([("o".into(), "result".into())]),
    };
    Work::Pipeline(Box::new(PipelineSpec {
        steps: BTreeMap::from([("prep".into(), step)]),
        on_failure: OnFailure::Continue,
        rerun: Rerun::WhenNew,
    }))
}

fn sweep() -> Work {
    let between = (real(0.1), real(0.5));
    let (min, max, step) = (between.0, between.1, Some(real(0.1)));
    let (mu, sigma) = between;
    Work::Sweep(Box::new(SweepSpec {
        space: BTreeMap::from([
            ("a".into(), Domain::Choice(vec!["1".into(), "x".into()])),
            ("b".into(), Domain::RandInt(7)),
            ("c".into(), Domain::Uniform { min, max, step }),
            (
                "d".into(),
                Domain::LogUniform {
                    min,
                    max,
                    step: None,
                },
            ),
            ("e".into(), Domain::Normal { mu, sigma, step }),
            (
                "f".into(),
                Domain::LogNormal {
                    mu,
                    sigma,
                    step: None,
                },
            ),
        ]),
        sampling: Sampling::Random { seed: 7 },
        metric: "accuracy".into(),
        goal: Goal::Maximize,
        termination: Some(Termination {
            policy: Policy::BanditFactor(real(0.1)),
            interval: 1,
            delay: 5,
        }),
        total: 20,
        at_once: 4,
        trial: Arc::new(with(Work::Command, Some(Box::new(part())))),
        document: "{}".into(),
    }))
}

/// Every form of what a family is stored as.
pub fn events() -> Vec<RunEvent> {
    let submitted = |spec| RunEvent::Submitted {
        document: document(Kind::Job, "pipe"),
        spec: Arc::new(spec),
        request: None,
    };
    let child = Child {
        key: "0".into(),
        job: job("sweep_0"),
        outcome: Some(Outcome::Completed),
        outputs: BTreeMap::from([("o".into(), path("blobs/o"))]),
        reused_from: Some(job("other")),
        parameters: BTreeMap::from([("lr".into(), "0.1".into())]),
        reports: vec![real(0.5), real(0.75)],
        best: Some(real(0.75)),
    };
    let mut family = Family::default();
    family.children.insert_mut(0, Arc::new(child));
    let ended = RunRecord {
        spec: Arc::new(with(sweep(), None)),
        family: Some(Box::new(family)),
        ..record()
    };
    let why = |why| RunEvent::Explained { why: Some(why) };
    vec![
        submitted(with(pipeline(), None)),
        submitted(with(sweep(), None)),
        submitted(with(Work::Command, Some(Box::new(part())))),
        RunEvent::ChildRefused {
            key: "prep".into(),
            job: job("pipe_prep"),
            why: Why::Listing,
        },
        RunEvent::Measured { value: real(0.1) },
        RunEvent::Retired {
            record: Box::new(ended),
        },
        submitted(registering()),
        RunEvent::Registered {
            output: "o".into(),
            asset: "rows/3".into(),
        },
        RunEvent::Retired {
            record: Box::new(RunRecord {
                registered: BTreeMap::from([("o".into(), "rows/3".into())]),
                ..record()
            }),
        },
        why(Why::NotRegistered {
            output: "o".into(),
            asset: "data asset rows:3".into(),
            message: "that version is there, made while the job ran".into(),
        }),
        why(Why::StepFailed {
            step: "prep".into(),
            job: "pipe_prep".into(),
            how: "exit code 1".into(),
        }),
        why(Why::NoTrialSucceeded {
            trials: 2,
            how: "exit code 1".into(),
        }),
        why(Why::TerminatedEarly {
            policy: "bandit".into(),
            reports: 5,
            best: real(0.1),
            limit: real(0.2),
        }),
        why(Why::ParentEnds {
            parent: "pipe".into(),
        }),
        why(Why::Child {
            key: "prep".into(),
            why: Box::new(Why::Listing),
        }),
    ]
}

/// A command whose output becomes an asset.
fn registering() -> RunSpec {
    let mut run = with(Work::Command, None);
    let mut task = (*run.task).clone();
    for output in task.outputs.values_mut() {
        output.remote = Some(Box::new(Remote {
            datastore: "bucket".into(),
            staged: path("data/staged"),
        }));
        output.address = Some("azureml://datastores/d/paths/out/".into());
        output.register = Some(Box::new(Register {
            kind: Kind::Data,
            holds: "uri_folder".into(),
            name: "rows".into(),
            version: Some("3".into()),
        }));
    }
    run.task = Arc::new(task);
    run
}
