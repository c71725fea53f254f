//! What a job reports with plain `mlflow`: metrics, parameters and tags of its own run (wire §11). The parts of MLflow's REST
//! contract that a run needs; experiments, models and artifacts come elsewhere.
//!
//! R1 a run's credential opens these routes for that run, and nothing else, and only while the run goes on;
//! R2 a metric that decides something is durable when it is answered (`Control::measured`).

use axum::http::{HeaderMap, StatusCode, header};
use control::{Condition, Measure, metric_series, metrics_of};
use hmac::{Hmac, KeyInit, Mac};
use model::{JobId, Kind, Time};
use serde_json::{Value, json};
use sha2::Sha256;
use std::sync::Arc;
use wire::view::mlflow::{self, Metric, Report};

use crate::{
    Api,
    arm::jobs::{self, Found},
    call::Call,
    problem::{Answer, Problem},
    reply, show, time,
};

/// Before the credential of a run, so that it is told from other tokens at once.
const PREFIX: &str = "zaffre-run.";
/// What the key signs, so that it can be made to sign nothing else.
const PURPOSE: &str = "zaffre/run/1";
/// A longer credential is none of ours.
const MAX_BYTES: usize = 4 * 1024;
/// Metrics of one run that `runs/get` shows.
const MAX_METRICS: usize = 1_000;
/// Samples of one metric in an answer: the last ones.
const MAX_HISTORY: usize = 25_000;

/// The key that signs credentials of runs, and signs them alone.
#[derive(Clone)]
pub struct RunKey([u8; 32]);

impl RunKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        RunKey(bytes)
    }

    fn mac(&self, run: &str) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(PURPOSE.as_bytes());
        mac.update(b"\n");
        mac.update(run.as_bytes());
        mac
    }

    /// The credential of a run: what its processes are given.
    pub fn credential(&self, run: &JobId) -> String {
        let run = serde_json::to_string(run).expect("ids can be written");
        let signature = self.mac(&run).finalize().into_bytes();
        format!(
            "{PREFIX}{}.{}",
            crate::base64(run.as_bytes()),
            crate::base64(&signature)
        )
    }

    /// The run whose credential the headers carry.
    pub(crate) fn run(&self, headers: &HeaderMap) -> Option<JobId> {
        let value = headers.get(header::AUTHORIZATION)?.as_bytes();
        let (scheme, credential) = value.split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") || credential.len() > MAX_BYTES {
            return None;
        }
        let credential = std::str::from_utf8(credential).ok()?.trim();
        let (run, signature) = credential.strip_prefix(PREFIX)?.split_once('.')?;
        let run = String::from_utf8(crate::from_base64(run)?).ok()?;
        self.mac(&run)
            .verify_slice(&crate::from_base64(signature)?)
            .ok()?;
        serde_json::from_str(&run).ok()
    }
}

/// The run that a request is about. A run's credential names it, and no other is told of (R1).
fn found(api: &Api, call: &Call, name: &str) -> Result<Found, Problem> {
    let key = call.key(api, Kind::Job, name)?;
    let own = JobId::new(&key.workspace, key.path.clone());
    if call.caller.is_none() {
        let run = api.run_of(&call.headers);
        let going = run.filter(|run| {
            *run == own
                && api
                    .control
                    .view()
                    .runs
                    .get(run)
                    .is_some_and(|r| !r.state.is_done())
        });
        if going.is_none() {
            return Err(Problem::unauthorized());
        }
    }
    jobs::find(api, &key)
}

async fn take(
    api: Arc<Api>,
    call: Call,
    read: impl Fn(&Value, Time) -> Result<Report, wire::arm::Invalid>,
) -> Answer {
    let body: Value = call.json()?;
    let found = found(&api, &call, mlflow::run_id(&body)?)?;
    let report = read(&body, time::now())?;
    if !report.properties.is_empty() {
        let patch = json!({ "properties": report.properties });
        jobs::change(&api, &found.document.key, Condition::Any, &patch).await?;
    }
    let measure = |m: &Metric| Measure {
        name: m.key.clone(),
        value: m.value,
        step: m.step,
        time: m.timestamp,
    };
    let measures: Vec<Measure> = report.metrics.iter().map(measure).collect();
    api.control.measured(&found.id, &measures).await?;
    Ok(reply::ok(&json!({})))
}

/// POST runs/log-metric.
pub(crate) async fn log_metric(api: Arc<Api>, call: Call) -> Answer {
    take(api, call, mlflow::log_metric).await
}

/// POST runs/log-batch.
pub(crate) async fn log_batch(api: Arc<Api>, call: Call) -> Answer {
    take(api, call, mlflow::log_batch).await
}

/// POST runs/log-parameter.
pub(crate) async fn log_parameter(api: Arc<Api>, call: Call) -> Answer {
    take(api, call, |body, _| mlflow::log_parameter(body)).await
}

/// POST runs/set-tag.
pub(crate) async fn set_tag(api: Arc<Api>, call: Call) -> Answer {
    take(api, call, |body, _| mlflow::set_tag(body)).await
}

/// POST runs/update: MLflow says that a run begins or ends; here the server knows that itself.
pub(crate) async fn update(api: Arc<Api>, call: Call) -> Answer {
    let body: Value = call.json()?;
    let found = found(&api, &call, mlflow::run_id(&body)?)?;
    Ok(reply::ok(&mlflow::updated(&show::of(&found))))
}

fn asked(call: &Call) -> Result<&str, Problem> {
    let named = ["run_id", "run_uuid"]
        .iter()
        .find_map(|k| call.query.get(k));
    let named = named.filter(|n| !n.is_empty());
    named.ok_or_else(|| Problem::bad("run_id is required").target("/run_id"))
}

fn samples(api: &Api, run: &JobId, name: &str) -> Result<Vec<Metric>, Problem> {
    let series = metric_series(run, name);
    let end = Time(u64::MAX >> 1);
    let samples = api.control.series().range(&series, Time(0), end)?;
    let from = samples.len().saturating_sub(MAX_HISTORY);
    let last = samples[from..].iter();
    Ok(last
        .filter_map(|(at, text)| mlflow::sample(name, *at, text))
        .collect())
}

/// GET runs/get: the last value of each metric.
pub(crate) fn get(api: &Arc<Api>, call: &Call) -> Answer {
    let found = found(api, call, asked(call)?)?;
    let prefix = metrics_of(&found.id);
    let mut metrics = Vec::new();
    for series in api
        .control
        .series()
        .names(&prefix)?
        .iter()
        .take(MAX_METRICS)
    {
        let Some(name) = series.strip_prefix(&prefix) else {
            continue;
        };
        let all = samples(api, &found.id, name)?;
        metrics.extend(all.into_iter().max_by_key(|m| (m.step, m.timestamp)));
    }
    Ok(reply::ok(&mlflow::run(&show::of(&found), &metrics)))
}

/// GET metrics/get-history.
pub(crate) fn history(api: &Arc<Api>, call: &Call) -> Answer {
    let found = found(api, call, asked(call)?)?;
    let name = call.query.get("metric_key").unwrap_or_default();
    if name.is_empty() {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "INVALID_PARAMETER_VALUE",
            "metric_key is required",
        ));
    }
    Ok(reply::ok(&mlflow::history(&samples(api, &found.id, name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Workspace;

    #[test]
    fn a_credential_names_its_run_and_cannot_be_changed() {
        let key = RunKey::new([7; 32]);
        let run = JobId::new(&Workspace::new("s", "g", "w"), "sweep_3");
        let credential = key.credential(&run);
        let header = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(
                header::AUTHORIZATION,
                format!("Bearer {text}").parse().unwrap(),
            );
            headers
        };
        assert_eq!(key.run(&header(&credential)), Some(run));
        assert_eq!(RunKey::new([8; 32]).run(&header(&credential)), None);
        let mut other = credential.clone();
        other.replace_range(PREFIX.len()..PREFIX.len() + 1, "X");
        assert_eq!(key.run(&header(&other)), None);
        assert_eq!(key.run(&header("secret")), None);
    }
}
