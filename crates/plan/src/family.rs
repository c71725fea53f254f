//! Pipelines and sweeps: which child is made next, what its inputs are, and when the parent has ended.
//!
//! C1 a step is made when every step that it takes something from has completed, and never twice;
//! C2 an identical step that has completed before is not run again: the child is made, and completed at once with the
//!    outputs of that one, unless the pipeline says otherwise;
//! C3 a parent ends after its children: giving it up gives up each of them, and it waits until they are gone;
//! C4 what a sweep chooses follows from its seed, the number of the trial and the results that are in the World, so that the
//!    same log gives the same choice;
//! C5 a trial is given up early only by what it reported itself, at the moment of the report.

use model::{
    Answer, Child, DocKey, Document, JobId, Outcome, PipelineSpec, Real, Refusal, RunEvent,
    RunSpec, RunState, StepSpec, SweepSpec, Why, Work,
    engine::{InputSpec, OutputSpec, Program, TaskSpec},
    family::{OnFailure, Rerun, SEARCH_SPACE, Source, TRIAL, Way},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{pool::count, sample, terminate, turn::Turning};

/// How a step stands that has not been made.
enum Stands {
    /// Its inputs are there.
    Ready,
    /// One is on its way.
    Waits,
    /// One will never come.
    Never,
}

impl Turning<'_> {
    /// A parent that goes on.
    pub fn family_step(&mut self, job: &JobId) {
        match self.world.run(job).map(|r| r.spec.clone()) {
            Some(run) if matches!(run.work, Work::Pipeline(_)) => self.pipeline_step(job),
            Some(run) if matches!(run.work, Work::Sweep(_)) => self.sweep_step(job),
            Some(_) | None => return,
        }
        // It has begun with its first child, just now perhaps: its limit counts from there.
        if self.world.goes_on(job) {
            self.timed_out(job);
        }
    }

    fn pipeline_step(&mut self, job: &JobId) {
        let Some(record) = self.world.run(job) else {
            return;
        };
        let run = record.spec.clone();
        let Work::Pipeline(spec) = &run.work else {
            return;
        };
        let failed = record.family.as_ref().and_then(|f| f.failed()).cloned();
        if let (Some(child), OnFailure::Stop) = (&failed, spec.on_failure) {
            return self.give_up(job, Outcome::Failed(step_failed(child)));
        }
        let children = children(record);
        let never = never(spec, &children);
        let mut ready = Vec::new();
        let mut open = children.values().any(|c| c.outcome.is_none());
        for (name, step) in &spec.steps {
            if children.contains_key(name) {
                continue;
            }
            match stands(name, step, &children, &never) {
                Stands::Ready => ready.push(step),
                Stands::Waits => open = true,
                Stands::Never => {}
            }
        }
        open |= !ready.is_empty();
        let made: Vec<(JobId, Arc<str>, RunSpec)> = ready
            .into_iter()
            .map(|step| {
                (
                    step.job.clone(),
                    step.document.clone(),
                    bound(step, &run, &children),
                )
            })
            .collect();
        for (child, document, run) in made {
            self.make_child(job, child, document, run, spec.rerun);
        }
        if !open {
            match failed {
                Some(child) => self.give_up(job, Outcome::Failed(step_failed(&child))),
                None => self.finish(job, Outcome::Completed),
            }
        }
    }

    fn sweep_step(&mut self, job: &JobId) {
        let Some(record) = self.world.run(job) else {
            return;
        };
        let run = record.spec.clone();
        let Work::Sweep(spec) = &run.work else {
            return;
        };
        let total = sample::total(spec);
        let all = loop {
            let family = self
                .world
                .run(job)
                .and_then(|r| r.family.as_deref().cloned());
            let all: Vec<Arc<Child>> = family
                .iter()
                .flat_map(|f| f.children.values().cloned())
                .collect();
            let (made, going) = (count(all.len()), all.iter().filter(|c| c.outcome.is_none()));
            if made >= total || count(going.count()) >= spec.at_once.max(1) {
                break all;
            }
            let chosen = sample::choose(spec, made, all.iter().map(Arc::as_ref));
            let child = SweepSpec::trial_of(job, made);
            let trial = trial(&run, spec, &child, made, chosen);
            self.make_child(job, child, spec.document.clone(), trial, Rerun::Always);
        };
        if all.iter().any(|c| c.outcome.is_none()) {
            return;
        }
        if all.iter().any(|c| c.outcome == Some(Outcome::Completed)) {
            return self.finish(job, Outcome::Completed);
        }
        let how = all.last().and_then(|c| c.outcome.as_ref());
        let why = Why::NoTrialSucceeded {
            trials: count(all.len()),
            how: how.map_or_else(Box::default, |o| o.to_string().into()),
        };
        self.give_up(job, Outcome::Failed(why));
    }

    /// Makes a child, or notes why it cannot be. A result that is there already is taken (C2).
    fn make_child(
        &mut self,
        parent: &JobId,
        job: JobId,
        json: Arc<str>,
        mut run: RunSpec,
        rerun: Rerun,
    ) {
        let refused = |message: String| Why::Engine {
            message: message.into(),
        };
        let reused = match rerun {
            Rerun::Always => false,
            Rerun::WhenNew => self.reuse(&mut run),
        };
        let why = if self.world.run(&job).is_some() {
            Some(refused(format!("job {job} already exists")))
        } else if reused {
            None
        } else {
            match self.may_submit(&run) {
                Ok(()) => None,
                Err(
                    Refusal::NotFound { message }
                    | Refusal::Conflict { message }
                    | Refusal::Invalid { message, .. },
                ) => Some(refused(message)),
            }
        };
        if let Some(why) = why {
            self.kin.insert(parent.clone());
            let key = run
                .part
                .as_ref()
                .map_or_else(Box::default, |p| p.key.clone());
            return self.emit_run(parent, RunEvent::ChildRefused { key, job, why });
        }
        let by = self.world.lives.get(parent).map(|l| l.by.clone());
        let document = Document {
            key: DocKey::job(&job),
            generation: 1,
            json,
            created: self.now,
            modified: self.now,
            by: by.unwrap_or_default(),
        };
        let event = RunEvent::Submitted {
            document,
            spec: Arc::new(run),
            request: None,
        };
        self.emit_run(&job, event);
        self.kin.insert(job.clone());
        if reused {
            self.finish(&job, Outcome::Completed);
        }
    }

    /// Takes the result of an identical step over, if there is one.
    fn reuse(&self, run: &mut RunSpec) -> bool {
        let Some(part) = &mut run.part else {
            return false;
        };
        let fingerprint = part.fingerprint.as_deref();
        let Some(found) = fingerprint.and_then(|f| self.world.results.get(f)) else {
            return false;
        };
        let mut task = (*run.task).clone();
        for (name, output) in &mut task.outputs {
            match found.outputs.get(name) {
                Some(path) => output.target = path.clone(),
                None => return false,
            }
        }
        part.reused_from = Some(found.job.clone());
        run.task = Arc::new(task);
        true
    }

    /// The children of a run that have not ended.
    pub fn open_children(&self, job: &JobId) -> Vec<JobId> {
        let family = self.world.run(job).and_then(|r| r.family.as_ref());
        let children = family.into_iter().flat_map(|f| f.children.values());
        children
            .filter(|c| c.outcome.is_none())
            .map(|c| c.job.clone())
            .collect()
    }

    /// Gives every child up (C3).
    pub fn give_up_children(&mut self, job: &JobId) {
        for child in self.open_children(job) {
            let parent = job.name().into();
            self.give_up(&child, Outcome::Canceled(Why::ParentEnds { parent }));
        }
    }

    /// A run reports a number. Only the primary metric of a trial that goes on is a fact for decisions.
    pub fn measured(&mut self, job: &JobId, value: Real) -> Result<Answer, Refusal> {
        let Some(record) = self.world.run(job) else {
            return Ok(Answer::Stored);
        };
        let part = record.spec.part.clone();
        let Some(part) = part.filter(|p| p.metric.is_some()) else {
            return Ok(Answer::Stored);
        };
        let going = match record.state {
            RunState::Queued | RunState::Preparing | RunState::Running => true,
            RunState::Canceling(_) | RunState::Done(_) => false,
        };
        if !going || !self.world.goes_on(&part.parent) {
            return Ok(Answer::Stored);
        }
        self.emit_run(job, RunEvent::Measured { value });
        self.touch_run(&part.parent);
        let Some(sweep) = self.world.run(&part.parent) else {
            return Ok(Answer::Stored);
        };
        if let (Work::Sweep(spec), Some(family)) = (&sweep.spec.work, &sweep.family)
            && let Some(termination) = spec.termination
            && let Some(child) = family.child(&part.key)
        {
            let all: Vec<&Child> = family.children.values().map(Arc::as_ref).collect();
            if let Some(why) = terminate::ask(termination, spec.goal, child, &all) {
                self.give_up(job, Outcome::Canceled(why)); // C5
            }
        }
        Ok(Answer::Stored)
    }
}

fn children(record: &model::RunRecord) -> BTreeMap<Box<str>, Arc<Child>> {
    let family = record.family.as_ref();
    let all = family.into_iter().flat_map(|f| f.children.values());
    all.map(|c| (c.key.clone(), c.clone())).collect()
}

fn step_failed(child: &Child) -> Why {
    let how = child.outcome.as_ref();
    Why::StepFailed {
        step: child.key.clone(),
        job: child.job.name().into(),
        how: how.map_or_else(Box::default, |o| o.to_string().into()),
    }
}

/// The steps that something comes from.
fn needs(step: &StepSpec) -> impl Iterator<Item = &str> {
    step.inputs.values().filter_map(|b| match &b.source {
        Source::Step { step, .. } => Some(&**step),
        Source::Value(_) | Source::Parent(_) => None,
    })
}

/// Steps that were not made and never will be: something they need has failed.
fn never(spec: &PipelineSpec, children: &BTreeMap<Box<str>, Arc<Child>>) -> BTreeSet<Box<str>> {
    let failed = |c: &Child| c.outcome.as_ref().is_some_and(|o| *o != Outcome::Completed);
    let broken = children.values().filter(|c| failed(c));
    let mut dead: BTreeSet<Box<str>> = broken.map(|c| c.key.clone()).collect();
    loop {
        let before = dead.len();
        for (name, step) in &spec.steps {
            if needs(step).any(|n| dead.contains(n)) {
                dead.insert(name.clone());
            }
        }
        if dead.len() == before {
            return dead;
        }
    }
}

fn stands(
    name: &str,
    step: &StepSpec,
    children: &BTreeMap<Box<str>, Arc<Child>>,
    never: &BTreeSet<Box<str>>,
) -> Stands {
    if never.contains(name) {
        return Stands::Never;
    }
    let done = |n: &str| {
        let child = children.get(n);
        child.is_some_and(|c| c.outcome == Some(Outcome::Completed))
    };
    if needs(step).all(done) {
        Stands::Ready
    } else {
        Stands::Waits
    }
}

/// The run of a step with its inputs filled in. An input whose source has none stays as it is: it is optional.
fn bound(step: &StepSpec, parent: &RunSpec, children: &BTreeMap<Box<str>, Arc<Child>>) -> RunSpec {
    let mut run = (*step.run).clone();
    let mut inputs = run.task.inputs.clone();
    for (name, binding) in &step.inputs {
        let found = match &binding.source {
            Source::Value(value) => Some(value.clone()),
            Source::Parent(name) => parent.task.inputs.get(name).cloned(),
            Source::Step { step, output } => {
                let path = children.get(step).and_then(|c| c.outputs.get(output));
                path.map(|path| InputSpec::Path {
                    source: path.clone(),
                    copy: false,
                })
            }
        };
        let Some(found) = found else { continue };
        let found = match (found, binding.way) {
            (InputSpec::Path { source, .. }, Way::Copy) => InputSpec::Path { source, copy: true },
            (InputSpec::Path { source, .. }, Way::Mount) => InputSpec::Path {
                source,
                copy: false,
            },
            (literal @ InputSpec::Literal(_), _) => literal,
        };
        inputs.insert(name.clone(), found);
    }
    let mut task = (*run.task).clone();
    task.inputs = inputs;
    listed(&mut run.work, &mut task);
    run.task = Arc::new(task);
    run
}

/// A parallel step lists the input that it names, wherever that has come to lie.
fn listed(work: &mut Work, task: &mut TaskSpec) {
    let (Work::Batch(batch), Program::Pool(pool)) = (work, &mut task.program) else {
        return;
    };
    let named = batch.input_from.as_ref();
    if let Some(InputSpec::Path { source, copy }) = named.and_then(|n| task.inputs.get_mut(n)) {
        *copy = false; // what is listed is what is read
        batch.input = source.clone();
        if let Some(root) = batch.root() {
            pool.root = root;
        }
    }
}

/// The run of a trial.
fn trial(
    sweep: &RunSpec,
    spec: &SweepSpec,
    job: &JobId,
    number: u32,
    chosen: BTreeMap<Box<str>, Box<str>>,
) -> RunSpec {
    let mut run = (*spec.trial).clone();
    let mut task = (*run.task).clone();
    let named = |path: &model::BlobPath| {
        let text = path.as_str().replace(TRIAL, job.name());
        model::BlobPath::new(&text).unwrap_or_else(|| path.clone())
    };
    task.artifacts = named(&task.artifacts);
    for OutputSpec {
        target,
        register,
        address,
        remote,
        ..
    } in task.outputs.values_mut()
    {
        *target = named(target);
        *address = address
            .as_ref()
            .map(|a| a.replace(TRIAL, job.name()).into());
        if let Some(remote) = remote {
            remote.staged = named(&remote.staged);
        }
        *register = None; // the sweep registers what its best trial has made
    }
    // What a pipeline bound to the sweep is for its trials.
    for (name, input) in &sweep.task.inputs {
        task.inputs.insert(name.clone(), input.clone());
    }
    for (name, value) in &chosen {
        let name = format!("{SEARCH_SPACE}{name}");
        task.inputs
            .insert(name.into(), InputSpec::Literal(value.clone()));
    }
    run.task = Arc::new(task);
    if let Some(part) = &mut run.part {
        part.key = number.to_string().into();
        part.parameters = chosen;
    }
    run
}
