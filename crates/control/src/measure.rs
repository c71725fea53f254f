//! Metrics of runs: all of them into series, the one that decides also to the loop.

use model::{JobId, Real, Time};
use std::collections::BTreeMap;

use crate::{Control, Failure, Request, StoreError};

/// One number that a run reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The metric's name, as written.
    pub name: String,
    /// Its value; may be infinite or no number.
    pub value: f64,
    /// The step that the run gives it.
    pub step: i64,
    /// When, as the run says.
    pub time: Time,
}

/// The series of all metrics of a run, up to their names.
pub fn metrics_of(run: &JobId) -> String {
    let w = run.workspace();
    let path = format!("metrics/{}/{}/{}/{run}/", w.subscription, w.group, w.name);
    path.to_ascii_lowercase()
}

/// The series of one metric of a run. Each sample is `VALUE STEP`.
pub fn metric_series(run: &JobId, name: &str) -> String {
    format!("{}{name}", metrics_of(run))
}

impl Control {
    /// Takes numbers of a run in. They are kept as series; what a sweep looks at is durable when this returns (C1).
    pub async fn measured(&self, run: &JobId, measures: &[Measure]) -> Result<(), Failure> {
        let mut by_name: BTreeMap<&str, Vec<(Time, String)>> = BTreeMap::new();
        for m in measures {
            let text = format!("{} {}", m.value, m.step);
            by_name.entry(&m.name).or_default().push((m.time, text));
        }
        for (name, samples) in by_name {
            let series = metric_series(run, name);
            let kept = self.series().append(&series, &samples);
            kept.map_err(|e: StoreError| Failure::Store {
                message: e.to_string(),
            })?;
        }
        let view = self.view();
        let part = view.runs.get(run).and_then(|r| r.spec.part.as_ref());
        let Some(metric) = part.and_then(|p| p.metric.as_deref()) else {
            return Ok(());
        };
        for m in measures.iter().filter(|m| m.name == metric) {
            // What is no number cannot be compared: it is kept, and decides nothing.
            if let Some(value) = Real::new(m.value) {
                let job = run.clone();
                self.send(Request::Measured { job, value }).await?;
            }
        }
        Ok(())
    }
}
