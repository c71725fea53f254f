//! What the life of a child does to its parent, and the results that later steps can reuse. All of it follows from the
//! events of the runs themselves.

use model::{
    BlobPath, Child, Family, JobId, Outcome, Real, RunSpec, RunState, Time, Why, Work,
    family::REPORTS_KEPT,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{Illegal, World, illegal};
use crate::limits::KEEP_RESULTS;

/// The result of a step, for identical ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reusable {
    /// The run that made it.
    pub job: JobId,
    /// Its outputs.
    pub outputs: BTreeMap<Box<str>, BlobPath>,
}

/// The last results by the fingerprint of their step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Results {
    by_fingerprint: BTreeMap<Box<str>, Reusable>,
    order: VecDeque<Box<str>>,
}

impl Results {
    pub fn get(&self, fingerprint: &str) -> Option<&Reusable> {
        self.by_fingerprint.get(fingerprint)
    }
    /// Keeps a result; a newer one of an identical step replaces it, the oldest goes when there are many.
    fn keep(&mut self, fingerprint: &str, result: Reusable) {
        let known = self.by_fingerprint.insert(fingerprint.into(), result);
        if known.is_none() {
            self.order.push_back(fingerprint.into());
        }
        while self.order.len() > KEEP_RESULTS {
            if let Some(oldest) = self.order.pop_front() {
                self.by_fingerprint.remove(&oldest);
            }
        }
    }
}

impl World {
    /// A parent gets a child. One whose parent is not there (any more) is a run like any other.
    pub(super) fn child_submitted(&mut self, job: &JobId, spec: &RunSpec, at: Time) {
        let Some(part) = &spec.part else { return };
        let outputs = spec.task.outputs.iter();
        let child = Child {
            key: part.key.clone(),
            job: job.clone(),
            outcome: None,
            outputs: outputs
                .map(|(n, o)| (n.clone(), o.target.clone()))
                .collect(),
            reused_from: part.reused_from.clone(),
            parameters: part.parameters.clone(),
            reports: Vec::new(),
            best: None,
        };
        if let Ok((record, _)) = self.parts(&part.parent) {
            record.started.get_or_insert(at);
            if record.state == RunState::Queued {
                record.state = RunState::Running;
            }
            record.why = None;
            let family = record.family.get_or_insert_default();
            add(family, child);
        }
    }

    pub(super) fn child_refused(
        &mut self,
        parent: &JobId,
        key: &str,
        job: &JobId,
        why: &Why,
    ) -> Result<(), Illegal> {
        let (record, _) = self.parts(parent)?;
        let Some(family) = &mut record.family else {
            return Err(illegal(format!("run {parent} has no children")));
        };
        let child = Child {
            key: key.into(),
            job: job.clone(),
            outcome: Some(Outcome::Failed(why.clone())),
            outputs: BTreeMap::new(),
            reused_from: None,
            parameters: BTreeMap::new(),
            reports: Vec::new(),
            best: None,
        };
        add(family, child);
        Ok(())
    }

    /// A child has ended: its parent knows, and identical steps may take its result.
    pub(super) fn child_ended(&mut self, job: &JobId, outcome: &Outcome) {
        let Some(record) = self.run(job).cloned() else {
            return;
        };
        let Some(part) = &record.spec.part else {
            return;
        };
        self.change_child(&part.parent, job, |child| {
            child.outcome = Some(outcome.clone());
            for (name, path) in &mut child.outputs {
                if let Some(found) = record.output(name) {
                    *path = found.clone(); // a pipeline's may be that of a reused step
                }
            }
        });
        if let (Some(fingerprint), None, Outcome::Completed) =
            (&part.fingerprint, &part.reused_from, outcome)
        {
            let outputs = record.spec.task.outputs.iter();
            let result = Reusable {
                job: job.clone(),
                outputs: outputs
                    .map(|(n, o)| (n.clone(), o.target.clone()))
                    .collect(),
            };
            self.results.keep(fingerprint, result);
        }
    }

    pub(super) fn measured(&mut self, job: &JobId, value: Real) -> Result<(), Illegal> {
        let (record, _) = self.parts(job)?;
        let Some(part) = record.spec.part.clone() else {
            return Err(illegal(format!("run {job} is no trial")));
        };
        let Some(goal) = self.run(&part.parent).and_then(|p| match &p.spec.work {
            Work::Sweep(sweep) => Some(sweep.goal),
            Work::Command | Work::Batch(_) | Work::Pipeline(_) => None,
        }) else {
            return Err(illegal(format!("run {} is no sweep", part.parent)));
        };
        self.change_child(&part.parent, job, |child| {
            if child.reports.len() < REPORTS_KEPT {
                child.reports.push(value);
            }
            let better = |b: Real| goal.compare(value, b).is_gt();
            if child.best.is_none_or(better) {
                child.best = Some(value);
            }
        });
        Ok(())
    }

    fn change_child(&mut self, parent: &JobId, job: &JobId, change: impl FnOnce(&mut Child)) {
        let Some(record) = self.view.runs.get_mut(parent) else {
            return;
        };
        let Some(family) = &mut Arc::make_mut(record).family else {
            return;
        };
        let number = family.children.iter().find(|(_, c)| c.job == *job);
        let Some(number) = number.map(|(&n, _)| n) else {
            return;
        };
        if let Some(child) = family.children.get_mut(&number) {
            change(Arc::make_mut(child));
        }
    }
}

fn add(family: &mut Family, child: Child) {
    let last = family.children.last().map(|(&n, _)| n);
    let next = last.map_or(0, |n| n + 1);
    family.children.insert_mut(next, Arc::new(child));
}
