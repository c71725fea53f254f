//! MLflow's REST contract, as far as a run reports to it (wire §11): what is read of a request, and the shapes of answers.

use super::{job::Job, status::is_final};
use crate::arm::{Invalid, field::Field};
use model::Time;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Longest name of a metric, a parameter or a tag: MLflow's own limit.
const MAX_KEY: usize = 250;
/// Longest value of a parameter or a tag: MLflow's own limit of tags.
const MAX_VALUE: usize = 8_000;
/// Metrics, parameters or tags of one batch: MLflow's own limit.
const MAX_BATCH: usize = 1_000;
/// Before the name of a parameter among the properties of a job.
const PARAM: &str = "mlflow.param.";
/// Before the name of a tag.
const TAG: &str = "mlflow.tag.";

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub key: String,
    /// May be infinite or no number.
    pub value: f64,
    /// When, as the client says.
    pub timestamp: Time,
    /// Its place on the x axis.
    pub step: i64,
}

/// What a run reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Metrics.
    pub metrics: Vec<Metric>,
    /// Parameters and tags, as properties of the job.
    pub properties: Map<String, Value>,
}

/// The run that a request is about.
pub fn run_id(body: &Value) -> Result<&str, Invalid> {
    let root = Field::root(body);
    let named = ["run_id", "run_uuid"].map(|key| root.get(key));
    match named[0].value().or(named[1].value()) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        _ => Err(named[0].missing()),
    }
}

fn key<'a>(field: &Field<'a>) -> Result<&'a str, Invalid> {
    let place = field.get("key");
    let text = place.need_text()?;
    if text.len() > MAX_KEY || text.chars().any(char::is_control) {
        return Err(place.refuse(format!("is one line of at most {MAX_KEY} bytes")));
    }
    Ok(text)
}

fn metric(field: &Field<'_>, now: Time) -> Result<Metric, Invalid> {
    let value = field.get("value");
    let number = match value.value() {
        None => return Err(value.missing()),
        // numbers that JSON has no word for come as texts
        Some(Value::String(text)) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            other => other.parse().map_err(|_| value.refuse("is no number"))?,
        },
        Some(other) => other.as_f64().ok_or_else(|| value.refuse("is no number"))?,
    };
    let whole = |key: &str| -> Result<Option<i64>, Invalid> {
        let place = field.get(key);
        match place.value() {
            // 64-bit numbers may be texts in this contract
            Some(Value::String(text)) => text
                .parse()
                .map(Some)
                .map_err(|_| place.refuse("is no whole number")),
            _ => place.whole(i64::MIN..=i64::MAX),
        }
    };
    let timestamp = whole("timestamp")?.filter(|&t| t > 0);
    Ok(Metric {
        key: key(field)?.to_owned(),
        value: number,
        timestamp: timestamp.map_or(now, |t| Time(t.unsigned_abs())),
        step: whole("step")?.unwrap_or(0),
    })
}

fn property(field: &Field<'_>, prefix: &str) -> Result<(String, Value), Invalid> {
    let value = field.get("value");
    let text = value.text()?.unwrap_or_default();
    if text.len() > MAX_VALUE {
        return Err(value.refuse(format!("has {} bytes, allowed are {MAX_VALUE}", text.len())));
    }
    Ok((format!("{prefix}{}", key(field)?), json!(text)))
}

/// `runs/log-metric`
pub fn log_metric(body: &Value, now: Time) -> Result<Report, Invalid> {
    Ok(Report {
        metrics: vec![metric(&Field::root(body), now)?],
        ..Report::default()
    })
}

/// `runs/log-parameter`
pub fn log_parameter(body: &Value) -> Result<Report, Invalid> {
    one_property(body, PARAM)
}

/// `runs/set-tag`
pub fn set_tag(body: &Value) -> Result<Report, Invalid> {
    one_property(body, TAG)
}

fn one_property(body: &Value, prefix: &str) -> Result<Report, Invalid> {
    Ok(Report {
        properties: Map::from_iter([property(&Field::root(body), prefix)?]),
        ..Report::default()
    })
}

/// `runs/log-batch`
pub fn log_batch(body: &Value, now: Time) -> Result<Report, Invalid> {
    let root = Field::root(body);
    let items = |key: &str| -> Result<Vec<Field<'_>>, Invalid> {
        let list = root.get(key);
        let items = list.items()?;
        if items.len() > MAX_BATCH {
            return Err(list.refuse(format!(
                "has {} entries, allowed are {MAX_BATCH}",
                items.len()
            )));
        }
        Ok(items)
    };
    let mut out = Report::default();
    for item in items("metrics")? {
        out.metrics.push(metric(&item, now)?);
    }
    for (list, prefix) in [("params", PARAM), ("tags", TAG)] {
        for item in items(list)? {
            out.properties.extend([property(&item, prefix)?]);
        }
    }
    Ok(out)
}

fn shown(value: f64) -> Value {
    if value.is_finite() {
        return json!(value);
    }
    json!(if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    })
}

fn metric_of(metric: &Metric) -> Value {
    json!({
        "key": metric.key,
        "value": shown(metric.value),
        "timestamp": metric.timestamp.0,
        "step": metric.step,
    })
}

fn info(job: &Job<'_>) -> Value {
    let status = match job.status() {
        "Completed" => "FINISHED",
        "Failed" => "FAILED",
        "Canceled" => "KILLED",
        _ => "RUNNING",
    };
    let started = job
        .run
        .and_then(|r| r.started)
        .unwrap_or(job.document.created);
    let ended = job
        .run
        .and_then(|r| r.ended)
        .filter(|_| is_final(job.status()));
    let experiment = super::history::experiment_id(&job.document.key.workspace, &job.experiment());
    json!({
        "run_id": job.name(),
        "run_uuid": job.name(),
        "run_name": job.display(),
        "experiment_id": experiment,
        "user_id": &*job.document.by,
        "status": status,
        "start_time": started.0,
        "end_time": ended.map(|t| t.0),
        "artifact_uri": format!("azureml://jobs/{}/outputs/artifacts", job.name()),
        "lifecycle_stage": "active",
    })
}

/// `GET runs/get`: the last value of each metric.
pub fn run(job: &Job<'_>, metrics: &[Metric]) -> Value {
    let properties = job.map("properties");
    let pairs = |prefix: &str| -> Vec<Value> {
        let all = properties.iter();
        all.filter_map(|(k, v)| Some(json!({"key": k.strip_prefix(prefix)?, "value": v})))
            .collect()
    };
    let metrics: Vec<Value> = metrics.iter().map(metric_of).collect();
    json!({"run": {
        "info": info(job),
        "data": {"metrics": metrics, "params": pairs(PARAM), "tags": pairs(TAG)},
        "inputs": {},
    }})
}

/// `POST runs/update`: a job's status is the server's, so nothing changes.
pub fn updated(job: &Job<'_>) -> Value {
    json!({ "run_info": info(job) })
}

/// `GET metrics/get-history`
pub fn history(metrics: &[Metric]) -> Value {
    json!({ "metrics": metrics.iter().map(metric_of).collect::<Vec<_>>() })
}

/// A sample as it is kept, `VALUE STEP`.
pub fn sample(key: &str, at: Time, text: &str) -> Option<Metric> {
    let (value, step) = text.split_once(' ')?;
    Some(Metric {
        key: key.to_owned(),
        value: value.parse().ok()?,
        timestamp: at,
        step: step.parse().ok()?,
    })
}

/// The variables by which `mlflow` in a job finds the server.
pub fn variables(
    base: &str,
    workspace: &model::Workspace,
    run: &str,
    token: &str,
) -> BTreeMap<String, String> {
    let scope = crate::names::workspace_id(workspace);
    [
        ("MLFLOW_TRACKING_URI", format!("{base}/mlflow/v2.0{scope}")),
        ("MLFLOW_TRACKING_TOKEN", token.to_owned()),
        ("MLFLOW_RUN_ID", run.to_owned()),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_read_whole_or_refused_with_its_place() {
        let body = json!({
            "run_id": "r",
            "metrics": [{"key": "a", "value": 1.5, "timestamp": "12", "step": 3}, {"key": "b", "value": "NaN"}],
            "params": [{"key": "p", "value": "x"}],
            "tags": [{"key": "t", "value": "y"}],
        });
        let read = log_batch(&body, Time(7)).unwrap();
        assert_eq!(run_id(&body).unwrap(), "r");
        assert_eq!(
            (read.metrics[0].timestamp, read.metrics[0].step),
            (Time(12), 3)
        );
        assert!(read.metrics[1].value.is_nan() && read.metrics[1].timestamp == Time(7));
        let names: Vec<&String> = read.properties.keys().collect();
        assert_eq!(names, ["mlflow.param.p", "mlflow.tag.t"]);
        let wrong = json!({"metrics": [{"key": "a", "value": "x"}]});
        assert_eq!(
            log_batch(&wrong, Time(0)).unwrap_err().target,
            "/metrics/0/value"
        );
        assert_eq!(sample("a", Time(1), "0.5 2").unwrap().value, 0.5);
    }
}
