//! Runs that are made of other runs: pipelines of steps, sweeps of trials.
//!
//! F1 a child is an ordinary run; `RunSpec::part` says of what, and never changes;
//! F2 a parent holds no node: how it stands follows from its children;
//! F3 what a child is, and where its output goes, is known when the parent is submitted. Decided later are only the
//!    parameters of a trial and the place of a reused step's output, both facts of the child's own submission.

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, collections::BTreeMap, fmt, sync::Arc};

use crate::{
    engine::{BlobPath, InputSpec},
    id::JobId,
    run::{Outcome, RunRecord, RunSpec, Work},
};

/// In the paths of a sweep's trial this stands for the name of the trial.
pub const TRIAL: &str = "{trial}";
/// Before the name of a parameter among the inputs of a trial, as in `${{search_space.lr}}`.
pub const SEARCH_SPACE: &str = "search_space.";
/// Reports of its primary metric that are kept of a trial; early termination does not look behind them.
pub const REPORTS_KEPT: usize = 1000;

/// A number that can be compared and stored: finite. Stored as text, the shortest that reads as the same number: readers of
/// JSON may round the last digit of a number, and a replay must not differ.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Real(f64);

impl From<Real> for String {
    fn from(real: Real) -> String {
        real.to_string()
    }
}
impl TryFrom<String> for Real {
    type Error = String;
    fn try_from(text: String) -> Result<Real, String> {
        let number = text.parse().ok().and_then(Real::new);
        number.ok_or_else(|| format!("{text:?} is no finite number"))
    }
}

impl Real {
    /// The number, if it is one: no NaN, no infinity.
    pub fn new(value: f64) -> Option<Real> {
        value.is_finite().then_some(Real(value + 0.0)) // -0 is 0
    }
    /// Its value.
    pub fn get(self) -> f64 {
        self.0
    }
}
impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Real {}
impl Ord for Real {
    fn cmp(&self, other: &Real) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}
impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Real) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a run is a part of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The pipeline or the sweep.
    pub parent: JobId,
    /// The name of the step, or the number of the trial.
    pub key: Box<str>,
    /// Digest of everything that its result depends on; absent for what is not deterministic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Box<str>>,
    /// The run whose result it is, when an identical step had run before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<JobId>,
    /// The primary metric of the sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Box<str>>,
    /// What the sweep chose for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<Box<str>, Box<str>>,
}

/// Where an input of a step comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Given.
    Value(InputSpec),
    /// An input of the pipeline.
    Parent(Box<str>),
    /// The output of another step.
    Step {
        /// Which.
        step: Box<str>,
        /// Its output.
        output: Box<str>,
    },
}

/// How an input reaches a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// The read-only original.
    Mount,
    /// A copy of its own.
    Copy,
}

/// One input of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Where it comes from.
    pub source: Source,
    /// How, when it is a path.
    pub way: Way,
}

/// One step of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSpec {
    /// The run that it becomes.
    pub job: JobId,
    /// Resolved, but for the inputs below.
    pub run: Arc<RunSpec>,
    /// The document of that run.
    pub document: Arc<str>,
    /// Its inputs.
    pub inputs: BTreeMap<Box<str>, Binding>,
    /// Outputs of the pipeline that are outputs of this step: the pipeline's name by the step's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exports: BTreeMap<Box<str>, Box<str>>,
}

/// What becomes of the other steps when one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    /// Those that do not depend on it still run (`continue_on_step_failure`).
    Continue,
    /// They are canceled.
    Stop,
}

/// Whether a step runs though an identical one has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rerun {
    /// Always (`force_rerun`).
    Always,
    /// Only what is new.
    WhenNew,
}

/// A pipeline: a graph of steps without a circle (`wire` sees to that).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineSpec {
    /// By name.
    pub steps: BTreeMap<Box<str>, StepSpec>,
    /// When a step fails.
    pub on_failure: OnFailure,
    /// When an identical step has run.
    pub rerun: Rerun,
}

/// What a parameter may be (behaviour §2.1.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Domain {
    /// One of these.
    Choice(Vec<Box<str>>),
    /// A whole number from 0 below this.
    RandInt(u64),
    /// Between the two; `step` rounds to its multiples.
    Uniform {
        /// Lower end.
        min: Real,
        /// Upper end.
        max: Real,
        /// `q`
        step: Option<Real>,
    },
    /// `exp` of a number between the two.
    LogUniform {
        /// Lower end of the exponent.
        min: Real,
        /// Upper end of the exponent.
        max: Real,
        /// `q`
        step: Option<Real>,
    },
    /// Normally distributed.
    Normal {
        /// Mean.
        mu: Real,
        /// Standard deviation.
        sigma: Real,
        /// `q`
        step: Option<Real>,
    },
    /// `exp` of something normally distributed.
    LogNormal {
        /// Mean of the exponent.
        mu: Real,
        /// Standard deviation of the exponent.
        sigma: Real,
        /// `q`
        step: Option<Real>,
    },
}

/// How parameters are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sampling {
    /// Every combination, once.
    Grid,
    /// Independently of what came out.
    Random {
        /// The same seed gives the same trials.
        seed: u64,
    },
    /// Spread evenly (a Sobol sequence, shifted by the seed).
    Sobol {
        /// The same seed gives the same trials.
        seed: u64,
    },
    /// Near what came out best.
    Bayesian {
        /// The same seed and the same results give the same trials.
        seed: u64,
    },
}

/// Which end of the metric is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Goal {
    /// High.
    Maximize,
    /// Low.
    Minimize,
}

impl Goal {
    /// `Greater` when `a` is better.
    pub fn compare(self, a: Real, b: Real) -> Ordering {
        match self {
            Goal::Maximize => a.cmp(&b),
            Goal::Minimize => b.cmp(&a),
        }
    }
}

/// When a trial is given up early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Termination {
    /// By which rule.
    pub policy: Policy,
    /// It is asked at each such number of reports, at least 1.
    pub interval: u32,
    /// But not before so many.
    pub delay: u32,
}

/// A rule of early termination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// Worse than the best divided by 1 + this.
    BanditFactor(Real),
    /// Worse than the best by more than this.
    BanditAmount(Real),
    /// Worse than the median of the averages of all.
    Median,
    /// Among so many percent that are worst.
    Truncation(u32),
}

impl Policy {
    /// Azure's word.
    pub fn word(self) -> &'static str {
        match self {
            Policy::BanditFactor(_) | Policy::BanditAmount(_) => "bandit",
            Policy::Median => "median_stopping",
            Policy::Truncation(_) => "truncation_selection",
        }
    }
}

/// A sweep: one command, many parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepSpec {
    /// What is varied.
    pub space: BTreeMap<Box<str>, Domain>,
    /// How.
    pub sampling: Sampling,
    /// The metric that decides.
    pub metric: Box<str>,
    /// Its good end.
    pub goal: Goal,
    /// When trials are given up early.
    pub termination: Option<Termination>,
    /// Trials in all, at least 1.
    pub total: u32,
    /// Trials at once, at least 1.
    pub at_once: u32,
    /// What each trial runs; `TRIAL` in its paths is its name.
    pub trial: Arc<RunSpec>,
    /// The document of a trial.
    pub document: Arc<str>,
}

impl SweepSpec {
    /// The name of a trial.
    pub fn trial_of(sweep: &JobId, number: u32) -> JobId {
        JobId::new(
            sweep.workspace(),
            format!("{}_{number}", sweep.name()).as_str(),
        )
    }
}

/// A child as its parent knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// The name of the step, or the number of the trial.
    pub key: Box<str>,
    /// Its run.
    pub job: JobId,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Where its outputs are.
    pub outputs: BTreeMap<Box<str>, BlobPath>,
    /// The run whose result it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<JobId>,
    /// What the sweep chose for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<Box<str>, Box<str>>,
    /// Its primary metric, in the order of the reports; the first `REPORTS_KEPT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<Real>,
    /// The best of all reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Real>,
}

/// The children of a run, by the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// Each with its number.
    pub children: RedBlackTreeMapSync<u32, Arc<Child>>,
}

impl Family {
    /// A child by its key.
    pub fn child(&self, key: &str) -> Option<&Arc<Child>> {
        self.children.values().find(|c| &*c.key == key)
    }
    /// The trial with the best metric; the first of equals. `None` when none has reported one.
    pub fn best(&self, goal: Goal) -> Option<&Arc<Child>> {
        let mut best: Option<(&Arc<Child>, Real)> = None;
        for child in self.children.values() {
            let Some(value) = child.best else { continue };
            if best.is_none_or(|(_, b)| goal.compare(value, b) == Ordering::Greater) {
                best = Some((child, value));
            }
        }
        best.map(|(child, _)| child)
    }
    /// The first that has ended without its work being done.
    pub fn failed(&self) -> Option<&Arc<Child>> {
        let failed =
            |c: &&Arc<Child>| matches!(c.outcome, Some(Outcome::Failed(_) | Outcome::Canceled(_)));
        self.children.values().find(failed)
    }
}

impl RunSpec {
    /// Whether it is made of other runs (F2).
    pub fn is_parent(&self) -> bool {
        match self.work {
            Work::Pipeline(_) | Work::Sweep(_) => true,
            Work::Command | Work::Batch(_) => false,
        }
    }
    /// Whether an output of it is sent to an attached datastore when its work is done. A parent's is sent by its children.
    pub fn sends(&self) -> bool {
        matches!(self.work, Work::Command) && self.task.outputs.values().any(|o| o.sent().is_some())
    }
    /// Whether an output of it becomes an asset.
    pub fn registers(&self) -> bool {
        self.task.outputs.values().any(|o| o.register.is_some())
    }
}

impl RunRecord {
    /// Where an output of it is: where the step that makes it, or the best trial, has left it; else where its spec says.
    pub fn output(&self, name: &str) -> Option<&BlobPath> {
        let own = self.spec.task.outputs.get(name).map(|o| &o.target);
        let Some(family) = &self.family else {
            return own;
        };
        let left = match &self.spec.work {
            Work::Pipeline(spec) => family.children.values().find_map(|child| {
                let exports = spec.steps.get(&child.key).map(|s| &s.exports);
                let mut all = exports.into_iter().flatten();
                let (inner, _) = all.find(|(_, outer)| &***outer == name)?;
                child.outputs.get(inner)
            }),
            Work::Sweep(_) => self.best_trial().and_then(|best| best.outputs.get(name)),
            Work::Command | Work::Batch(_) => None,
        };
        left.or(own)
    }
    /// The trial that came out best, of a sweep.
    pub fn best_trial(&self) -> Option<&Arc<Child>> {
        match &self.spec.work {
            Work::Sweep(spec) => self.family.as_ref()?.best(spec.goal),
            Work::Command | Work::Batch(_) | Work::Pipeline(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_finite_and_orders_by_the_goal() {
        assert!(Real::new(f64::NAN).is_none() && Real::new(f64::INFINITY).is_none());
        let (a, b) = (Real::new(-0.0).unwrap(), Real::new(2.5).unwrap());
        assert_eq!(a, Real::new(0.0).unwrap());
        assert_eq!(Goal::Maximize.compare(b, a), Ordering::Greater);
        assert_eq!(Goal::Minimize.compare(b, a), Ordering::Less);
        let awkward = Real::new(0.1 + 0.2).unwrap();
        let text = serde_json::to_string(&awkward).unwrap();
        assert_eq!(text, r#""0.30000000000000004""#);
        assert_eq!(serde_json::from_str::<Real>(&text).unwrap(), awkward);
        assert!(serde_json::from_str::<Real>(r#""inf""#).is_err());
    }
}
