//! MLflow's tracking contract: the rules of what is logged, and how runs, experiments and versions of models look there.
//!
//! M1 a run that is a job has the job's name as its id and the job's status; what MLflow says of its status is not taken;
//! M2 a parameter never changes: the same value again is nothing, another one is refused with both;
//! M3 a batch is checked whole before any of it is kept.

pub mod filter;

use crate::arm::{Invalid, field::Field as At};
use filter::{Field, Item};
use model::{Time, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// MLflow's limit of the name of a metric, parameter or tag.
pub const MAX_KEY_CHARS: usize = 250;
/// MLflow's limit of a parameter's value.
pub const MAX_PARAM_CHARS: usize = 6000;
/// MLflow's limit of a tag's value.
pub const MAX_TAG_CHARS: usize = 8000;
/// MLflow's limit of an experiment's name.
pub const MAX_EXPERIMENT_CHARS: usize = 500;
/// MLflow's limit of metrics in one batch.
pub const MAX_METRICS: usize = 1000;
/// MLflow's limit of parameters, and of tags, in one batch.
pub const MAX_PARAMS: usize = 100;
/// Parameters, and tags, of one run: its document stays below the limit of a body.
pub const MAX_PARAMS_OF_RUN: usize = 2000;
/// Names of metrics of one run; each is a series of its own.
pub const MAX_METRICS_OF_RUN: usize = 10_000;
/// Datasets, and models, of one run.
pub const MAX_LINKS_OF_RUN: usize = 1000;
/// The experiment that stands for none.
pub const DEFAULT: &str = crate::view::job::EXPERIMENT;
/// MLflow's id of the experiment that stands for none.
pub const DEFAULT_ID: &str = "0";
/// MLflow's tag of a run within a run.
pub const PARENT: &str = "mlflow.parentRunId";
/// MLflow's tag of a run's name.
pub const RUN_NAME: &str = "mlflow.runName";

/// One number of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub key: String,
    /// Its value; may be infinite or no number.
    pub value: f64,
    /// When.
    pub time: Time,
    /// At which step.
    pub step: i64,
}

/// What is logged at once (M3).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Numbers.
    pub metrics: Vec<Metric>,
    /// Parameters.
    pub params: BTreeMap<String, String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// The name of a metric, parameter or tag.
pub fn key<'a>(field: &At<'a>) -> Result<&'a str, Invalid> {
    let text = field.need_text()?;
    let long = text.chars().count() > MAX_KEY_CHARS;
    if text.is_empty() || long || text.chars().any(char::is_control) {
        return Err(field.refuse(format!(
            "is not a name of 1 to {MAX_KEY_CHARS} characters without control characters"
        )));
    }
    Ok(text)
}

fn value(field: &At<'_>, limit: usize) -> Result<String, Invalid> {
    // An empty text is left out by clients that write only what differs from nothing.
    let text = field.text()?.unwrap_or_default();
    if text.chars().count() > limit {
        return Err(field.refuse(format!("is longer than {limit} characters")));
    }
    Ok(text.to_owned())
}

/// The value of a tag.
pub fn tag_value(field: &At<'_>) -> Result<String, Invalid> {
    value(field, MAX_TAG_CHARS)
}

/// A list of `{key, value}` of at most `most` entries with values of at most `limit` characters.
pub fn pairs(
    field: &At<'_>,
    most: usize,
    limit: usize,
) -> Result<BTreeMap<String, String>, Invalid> {
    let items = at_most(field, most)?;
    let mut out = BTreeMap::new();
    for item in items {
        let key = key(&item.get("key"))?.to_owned();
        let text = value(&item.get("value"), limit)?;
        let before = out.insert(key.clone(), text.clone());
        if before.is_some_and(|b| b != text) && limit == MAX_PARAM_CHARS {
            return Err(item.refuse(format!(
                "gives {} a second value",
                crate::names::shown(&key)
            )));
        }
    }
    Ok(out)
}

/// The entries of a list that has a limit.
pub fn at_most<'a>(field: &At<'a>, most: usize) -> Result<Vec<At<'a>>, Invalid> {
    let items = field.items()?;
    if items.len() > most {
        return Err(field.refuse(format!("has {} entries, allowed are {most}", items.len())));
    }
    Ok(items)
}

/// A whole number; clients of the contract write large ones as texts.
pub fn whole(field: &At<'_>) -> Result<Option<i64>, Invalid> {
    let read = match field.value() {
        None => return Ok(None),
        Some(Value::Number(n)) => n.as_i64(),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    read.map(Some)
        .ok_or_else(|| field.refuse("is not a whole number"))
}

fn time(field: &At<'_>, now: Time) -> Result<Time, Invalid> {
    match whole(field)? {
        None => Ok(now),
        Some(ms) => u64::try_from(ms)
            .map(Time)
            .map_err(|_| field.refuse(format!("is {ms}, a time before 1970"))),
    }
}

/// One metric.
pub fn metric(at: &At<'_>, now: Time) -> Result<Metric, Invalid> {
    let number = at.get("value");
    let value = match number.value() {
        // What differs from nothing only is written.
        None => Some(0.0),
        Some(Value::Number(n)) => n.as_f64(),
        // NaN and the infinities are no JSON numbers.
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    Ok(Metric {
        key: key(&at.get("key"))?.to_owned(),
        value: value.ok_or_else(|| number.refuse("is not a number"))?,
        time: time(&at.get("timestamp"), now)?,
        step: whole(&at.get("step"))?.unwrap_or(0),
    })
}

/// The body of `runs/log-batch` (M3).
pub fn batch(body: &Value, now: Time) -> Result<Batch, Invalid> {
    let root = At::root(body);
    let metrics = at_most(&root.get("metrics"), MAX_METRICS)?;
    Ok(Batch {
        metrics: metrics
            .iter()
            .map(|at| metric(at, now))
            .collect::<Result<_, _>>()?,
        params: pairs(&root.get("params"), MAX_PARAMS, MAX_PARAM_CHARS)?,
        tags: pairs(&root.get("tags"), MAX_PARAMS, MAX_TAG_CHARS)?,
    })
}

/// A number as the contract writes it: what JSON has no number for is a text.
pub fn number(value: f64) -> Value {
    if value.is_nan() {
        json!("NaN")
    } else if value.is_infinite() {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        json!(value)
    }
}

impl Metric {
    /// As the contract writes it.
    pub fn view(&self) -> Value {
        json!({"key": self.key, "value": number(self.value), "timestamp": self.time.0, "step": self.step})
    }
}

/// What is stored of a run: all of it when it is no job, else what the job does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tracked {
    /// The name of its experiment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// Its display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How it stands, as MLflow says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Began, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// Ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// Who began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether it is hidden from searches.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// Tags. Of a job those of MLflow itself; the user's are the job's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Datasets that it reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<Value>,
    /// Models that it reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Value>,
    /// Models that it makes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub makes: Vec<Value>,
}

impl Tracked {
    /// Takes parameters in (M2).
    pub fn add_params(
        &mut self,
        run: &str,
        params: &BTreeMap<String, String>,
    ) -> Result<(), Invalid> {
        for (key, new) in params {
            if let Some(old) = self.params.get(key).filter(|old| *old != new) {
                return Err(Invalid::user(
                    "/params",
                    format!(
                        "Changing param values is not allowed. Param with key='{key}' was already logged with value='{old}' for run ID='{run}'. Attempted logging new value '{new}'."
                    ),
                ));
            }
        }
        self.params.extend(params.clone());
        full("params", self.params.len())
    }

    /// Takes tags in.
    pub fn add_tags(&mut self, tags: &BTreeMap<String, String>) -> Result<(), Invalid> {
        self.tags.extend(tags.clone());
        full("tags", self.tags.len())
    }
}

fn full(what: &str, count: usize) -> Result<(), Invalid> {
    if count > MAX_PARAMS_OF_RUN {
        return Err(Invalid::validation(
            format!("/{what}"),
            format!("{what} of a run would be {count}, allowed are {MAX_PARAMS_OF_RUN}"),
        ));
    }
    Ok(())
}

/// A run with all that is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its id; a job's name.
    pub id: String,
    /// What is stored, with what a job says filled in.
    pub tracked: Tracked,
    /// The last value of each metric.
    pub metrics: Vec<Metric>,
    /// Where its artifacts are.
    pub artifacts: String,
}

/// MLflow's word for Azure's status of a job (M1).
pub fn status_of(job: &str) -> &'static str {
    match job {
        "Completed" => "FINISHED",
        "Failed" | "NotResponding" => "FAILED",
        "Canceled" => "KILLED",
        "Running" | "Finalizing" | "CancelRequested" => "RUNNING",
        _ => "SCHEDULED",
    }
}

/// The four words that a client may set.
pub fn status(field: &At<'_>) -> Result<Option<&'static str>, Invalid> {
    const WORDS: [(&str, &str); 5] = [
        ("RUNNING", "RUNNING"),
        ("SCHEDULED", "SCHEDULED"),
        ("FINISHED", "FINISHED"),
        ("FAILED", "FAILED"),
        ("KILLED", "KILLED"),
    ];
    field.choice(&WORDS)
}

fn list(pairs: &BTreeMap<String, String>) -> Vec<Value> {
    pairs
        .iter()
        .map(|(k, v)| json!({"key": k, "value": v}))
        .collect()
}

/// `{a: b}` as a list of pairs.
pub fn list_of(map: &Map<String, Value>) -> Vec<Value> {
    map.iter()
        .map(|(k, v)| json!({"key": k, "value": v}))
        .collect()
}

impl Run {
    fn experiment(&self) -> &str {
        self.tracked.experiment.as_deref().unwrap_or(DEFAULT)
    }
    fn lifecycle(&self) -> &'static str {
        lifecycle(self.tracked.deleted)
    }
    fn name(&self) -> &str {
        self.tracked.name.as_deref().unwrap_or(&self.id)
    }

    /// `RunInfo`.
    pub fn info(&self, workspace: &Workspace) -> Value {
        let t = &self.tracked;
        let mut info = json!({
            "run_id": self.id,
            "run_uuid": self.id,
            "run_name": self.name(),
            "experiment_id": experiment_id(workspace, self.experiment()),
            "user_id": t.user.as_deref().unwrap_or_default(),
            "status": t.status.as_deref().unwrap_or("RUNNING"),
            "start_time": t.start.unwrap_or(0),
            "artifact_uri": self.artifacts,
            "lifecycle_stage": self.lifecycle(),
        });
        if let Some(end) = t.end {
            info["end_time"] = json!(end);
        }
        info
    }

    /// `Run`.
    pub fn view(&self, workspace: &Workspace) -> Value {
        let t = &self.tracked;
        let mut tags = t.tags.clone();
        tags.entry(RUN_NAME.to_owned())
            .or_insert_with(|| self.name().to_owned());
        json!({
            "info": self.info(workspace),
            "data": {
                "metrics": self.metrics.iter().map(Metric::view).collect::<Vec<_>>(),
                "params": list(&t.params),
                "tags": list(&tags),
            },
            "inputs": {"dataset_inputs": t.datasets, "model_inputs": t.reads},
            "outputs": {"model_outputs": t.makes},
        })
    }

    /// What a search compares.
    pub fn item(&self, field: &Field) -> Option<Item> {
        let t = &self.tracked;
        let time = |ms: Option<u64>| ms.map(|ms| Item::Number(ms as f64));
        let text = |text: &str| Some(Item::Text(text.to_owned()));
        match field {
            Field::Metric(key) => {
                let metric = self.metrics.iter().find(|m| m.key == *key)?;
                Some(Item::Number(metric.value))
            }
            Field::Param(key) => text(t.params.get(key)?),
            Field::Tag(key) if key == RUN_NAME => text(self.name()),
            Field::Tag(key) => text(t.tags.get(key)?),
            Field::Attribute(key) => match key.as_str() {
                "run_id" | "id" => text(&self.id),
                "run_name" | "name" | "run name" | "Run name" | "Run Name" => text(self.name()),
                "status" => text(t.status.as_deref().unwrap_or("RUNNING")),
                "artifact_uri" => text(&self.artifacts),
                "user_id" | "User" => text(t.user.as_deref()?),
                "start_time" | "created" | "Created" => time(t.start),
                "end_time" => time(t.end),
                _ => None,
            },
        }
    }
}

/// Refuses an attribute that nothing has: a search for it would find nothing and not say why.
pub fn known<'a>(names: impl Iterator<Item = &'a str>, known: &[&str]) -> Result<(), Invalid> {
    for name in names {
        if !known.contains(&name) {
            return Err(Invalid::validation(
                "/filter",
                format!(
                    "attribute `{}` is none of {}",
                    crate::names::shown(name),
                    known.join(", ")
                ),
            ));
        }
    }
    Ok(())
}

/// Attributes of runs that a search may name.
pub const RUN_ATTRIBUTES: &[&str] = &[
    "run_id",
    "id",
    "run_name",
    "name",
    "run name",
    "Run name",
    "Run Name",
    "status",
    "artifact_uri",
    "user_id",
    "User",
    "start_time",
    "created",
    "Created",
    "end_time",
];

/// MLflow's word for what is hidden.
pub fn lifecycle(deleted: bool) -> &'static str {
    if deleted { "deleted" } else { "active" }
}

/// The id of an experiment, the same as in the run history.
pub fn experiment_id(workspace: &Workspace, name: &str) -> String {
    crate::view::history::experiment_id(workspace, name)
}

/// The name of an experiment.
pub fn experiment_name<'a>(field: &At<'a>) -> Result<&'a str, Invalid> {
    let name = field.need_text()?;
    let long = name.chars().count() > MAX_EXPERIMENT_CHARS;
    if name.trim().is_empty() || long || name.chars().any(char::is_control) {
        return Err(field.refuse(format!(
            "is not a name of 1 to {MAX_EXPERIMENT_CHARS} characters without control characters"
        )));
    }
    Ok(name)
}

/// What is stored of an experiment; one that only jobs name has nothing stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Experiment {
    /// As written.
    pub name: String,
    /// Whether it is hidden from searches.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// First written, in milliseconds since 1970; not stored.
    #[serde(skip)]
    pub created: u64,
    /// Last written; not stored.
    #[serde(skip)]
    pub modified: u64,
}

impl Experiment {
    /// As the contract writes it.
    pub fn view(&self, workspace: &Workspace) -> Value {
        let id = experiment_id(workspace, &self.name);
        json!({
            "experiment_id": id,
            "name": self.name,
            "artifact_location": format!("mlflow-artifacts:/experiments/{id}"),
            "lifecycle_stage": lifecycle(self.deleted),
            "creation_time": self.created,
            "last_update_time": self.modified,
            "tags": list(&self.tags),
        })
    }

    /// What a search compares.
    pub fn item(&self, field: &Field) -> Option<Item> {
        match field {
            Field::Tag(key) => Some(Item::Text(self.tags.get(key)?.clone())),
            Field::Attribute(key) => match key.as_str() {
                "name" => Some(Item::Text(self.name.clone())),
                "creation_time" => Some(Item::Number(self.created as f64)),
                "last_update_time" => Some(Item::Number(self.modified as f64)),
                _ => None,
            },
            Field::Metric(_) | Field::Param(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn m2_a_parameter_never_changes() {
        let mut run = Tracked::default();
        run.add_params("r", &pair("lr", "0.1")).unwrap();
        run.add_params("r", &pair("lr", "0.1")).unwrap();
        let refused = run.add_params("r", &pair("lr", "0.2")).unwrap_err();
        assert!(
            refused.message.contains("'0.1'") && refused.message.contains("'0.2'"),
            "{refused}"
        );
        assert_eq!(run.params["lr"], "0.1");
    }

    #[test]
    fn m3_a_batch_is_read_whole_or_refused() {
        let now = Time(9);
        let body = json!({
            "metrics": [{"key": "a", "value": 0.5, "timestamp": 7, "step": "3"}, {"key": "n", "value": "NaN"}, {"key": "z"}],
            "params": [{"key": "p", "value": "1"}, {"key": "empty"}],
            "tags": [{"key": "t", "value": "日本"}],
        });
        let read = batch(&body, now).unwrap();
        assert_eq!(
            read.metrics[0],
            Metric {
                key: "a".into(),
                value: 0.5,
                time: Time(7),
                step: 3
            }
        );
        assert!(read.metrics[1].value.is_nan() && read.metrics[1].time == now);
        assert_eq!(read.metrics[1].view()["value"], "NaN");
        assert_eq!(
            (read.params["empty"].as_str(), read.tags["t"].as_str()),
            ("", "日本")
        );

        let many = vec![json!({"key": "a"}); MAX_METRICS + 1];
        for (bad, says) in [
            (json!({"metrics": many}), "allowed are 1000"),
            (
                json!({"metrics": [{"key": "a", "value": {}}]}),
                "is not a number",
            ),
            (
                json!({"metrics": [{"key": "a", "timestamp": -1}]}),
                "before 1970",
            ),
            (json!({"metrics": [{"key": ""}]}), "key is empty"),
            (json!({"metrics": [{"key": "a\nb"}]}), "is not a name"),
            (
                json!({"params": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}),
                "second value",
            ),
            (
                json!({"params": [{"key": "a", "value": "x".repeat(6001)}]}),
                "longer than 6000",
            ),
        ] {
            let refused = batch(&bad, now).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn a_run_says_what_it_is() {
        let workspace = Workspace::new("s", "g", "w");
        let run = Run {
            id: "j1".into(),
            tracked: Tracked {
                experiment: Some("exp".into()),
                start: Some(5),
                ..Tracked::default()
            },
            metrics: vec![Metric {
                key: "a".into(),
                value: f64::INFINITY,
                time: Time(1),
                step: 0,
            }],
            artifacts: "mlflow-artifacts:/runs/j1".into(),
        };
        let view = run.view(&workspace);
        assert_eq!(
            view["info"]["experiment_id"],
            experiment_id(&workspace, "exp")
        );
        assert_eq!(view["info"]["end_time"], Value::Null);
        assert_eq!(view["data"]["metrics"][0]["value"], "Infinity");
        assert_eq!(
            run.item(&Field::Attribute("run_name".into())),
            Some(Item::Text("j1".into()))
        );
        assert!(known(["start_time", "colour"].into_iter(), RUN_ATTRIBUTES).is_err());
    }
}
