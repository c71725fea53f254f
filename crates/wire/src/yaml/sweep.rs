//! Sweep jobs.

use super::{
    assets::environment_of,
    fields::{Choice, Fields},
    job::{self, ports},
    limits,
    load::Built,
    reference::{code, compute},
    report::Report,
    resources, scalar,
    tree::Value,
};
use crate::{
    arm::{Invalid, field::Field, pipeline as arm},
    names::check_job,
};
use serde_json::{Map, Value as Json, json};

const TYPES: &[Choice] = &[("sweep", "Sweep")];
const GOALS: &[Choice] = &[("maximize", "maximize"), ("minimize", "minimize")];
/// Most trials (Azure's limit), and the longest limit of a trial.
const TRIALS: std::ops::RangeInclusive<i64> = 1..=1_000;

const ELSEWHERE: &[(&str, &str)] = &[
    ("command", "did you mean trial.command"),
    ("code", "did you mean trial.code"),
    ("environment", "did you mean trial.environment"),
    ("max_total_trials", "did you mean limits.max_total_trials"),
    (
        "max_concurrent_trials",
        "did you mean limits.max_concurrent_trials",
    ),
    ("primary_metric", "did you mean objective.primary_metric"),
    ("goal", "did you mean objective.goal"),
];

/// A sweep job file.
pub(super) fn job(report: &Report<'_>, fields: Fields<'_>) -> Built {
    fields.has("$schema");
    let name = fields.name("name", check_job);
    if fields.choice("type", TYPES).is_none() {
        fields.default_unless_written("type", "sweep", "the keys of the file");
    }
    let mut body = Map::new();
    job::head(&fields, &mut body);
    parts(&fields, &mut body);
    let target = compute(&fields, "/properties/computeId", "job");
    if let Some(id) = target.id {
        body.insert("computeId".into(), id);
    }
    let inputs = ports::inputs(report, &fields);
    let outputs = ports::outputs(&fields);
    match fields.section("trial") {
        Some(trial) => {
            let read = self::trial(&trial);
            fields.show("trial", trial.done(&[]));
            body.insert("trial".into(), read.into());
        }
        None if fields.absent("trial") => {
            fields.missing("trial", "write trial: {command: …, environment: …}");
        }
        None => {}
    }
    body.insert("inputs".into(), inputs.into());
    body.insert("outputs".into(), outputs.into());
    if let Some(section) = fields.section("resources") {
        body.insert("resources".into(), resources::read(&section).into());
        fields.show("resources", resources::done(section));
    }
    for (key, value) in [
        ("queueSettings", job::queue(&fields)),
        ("identity", job::identity(&fields)),
        ("services", job::services(&fields)),
    ] {
        if let Some(value) = value {
            body.insert(key.into(), value);
        }
    }
    body.insert("jobType".into(), "Sweep".into());
    fields.read_only(&["id", "status", "log_files", "creation_context"]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body: json!({ "properties": body }),
        effective: fields.done(ELSEWHERE),
    }
}

/// What is run: the command of every trial.
fn trial(fields: &Fields<'_>) -> Map<String, Json> {
    let mut body = Map::new();
    match fields.words("command") {
        Some(text) => {
            body.insert("command".into(), text.text.into());
        }
        None => fields.missing(
            "command",
            "write command: python train.py --lr ${{search_space.lr}}",
        ),
    }
    if let Some(code) = code(fields, "/properties/trial/codeId") {
        body.insert("codeId".into(), code);
    }
    match environment_of(fields, "/properties/trial/environmentId") {
        Some(Some(id)) => {
            body.insert("environmentId".into(), id);
        }
        Some(None) => {}
        None if !fields.absent("environment") => {}
        None => fields.missing(
            "environment",
            "write environment: azureml:NAME:VERSION, or {image: library/python:3.11}",
        ),
    }
    if let Some(variables) = fields.variables("environment_variables") {
        body.insert("environmentVariables".into(), variables.into());
    }
    let mut instances = 1;
    if let Some(section) = fields.section("resources") {
        let read = resources::read(&section);
        instances = read
            .get("instanceCount")
            .and_then(Json::as_i64)
            .unwrap_or(1);
        body.insert("resources".into(), read.into());
        fields.show("resources", resources::done(section));
    }
    if let Some(distribution) = job::distribution(fields, instances) {
        body.insert("distribution".into(), distribution);
    }
    body
}

/// What is varied, how, and until when.
fn parts(fields: &Fields<'_>, body: &mut Map<String, Json>) {
    if let Some(json) = converted(
        fields,
        "sampling_algorithm",
        "write sampling_algorithm: random",
        arm::algorithm,
    ) {
        body.insert("samplingAlgorithm".into(), json);
    }
    if let Some(json) = converted(
        fields,
        "search_space",
        "write search_space: {lr: {type: uniform, min_value: 0.01, max_value: 0.9}}",
        space,
    ) {
        body.insert("searchSpace".into(), json);
    }
    match fields.section("objective") {
        Some(section) => {
            let mut objective = Map::new();
            match section.choice("goal", GOALS) {
                Some(goal) => {
                    objective.insert("goal".into(), goal.into());
                }
                None if section.absent("goal") => {
                    section.missing("goal", "write goal: maximize or minimize")
                }
                None => {}
            }
            match section.words("primary_metric") {
                Some(text) => {
                    objective.insert("primaryMetric".into(), text.text.into());
                }
                None => section.missing(
                    "primary_metric",
                    "write the name of a metric that the trial logs",
                ),
            }
            fields.show("objective", section.done(&[]));
            body.insert("objective".into(), objective.into());
        }
        None => fields.missing(
            "objective",
            "write objective: {primary_metric: …, goal: maximize}",
        ),
    }
    if !fields.absent("early_termination")
        && let Some(json) = converted(fields, "early_termination", "", |f| {
            Ok(arm::policy(f)?.unwrap_or_default())
        })
    {
        body.insert("earlyTermination".into(), json);
    }
    if let Some(section) = fields.section("limits") {
        let mut limits = Map::from_iter([("jobLimitsType".to_owned(), json!("Sweep"))]);
        for (key, wire) in [
            ("max_total_trials", "maxTotalTrials"),
            ("max_concurrent_trials", "maxConcurrentTrials"),
        ] {
            if let Some(count) = section.int(key, TRIALS) {
                limits.insert(wire.into(), count.into());
            }
        }
        for (key, wire) in [("timeout", "timeout"), ("trial_timeout", "trialTimeout")] {
            let seconds = section.int(key, limits::JOB_SECONDS);
            if let Some(seconds) = seconds.and_then(|s| u64::try_from(s).ok()) {
                limits.insert(wire.into(), super::duration::iso8601(seconds).into());
            }
        }
        fields.show("limits", section.done(&[]));
        body.insert("limits".into(), limits.into());
    }
}

/// `{name: {type: …}}` → `{name: [KIND, [ARGUMENTS]]}`.
fn space(field: &Field<'_>) -> Result<Json, Invalid> {
    let mut out = Map::new();
    for (name, domain) in field.entries()? {
        out.insert(name.to_owned(), arm::arguments(&domain)?);
    }
    Ok(out.into())
}

/// A part of the file in the words of the document. What is wrong in it is reported where the part begins.
fn converted(
    fields: &Fields<'_>,
    key: &'static str,
    hint: &str,
    convert: impl Fn(&Field<'_>) -> Result<Json, Invalid>,
) -> Option<Json> {
    let Some(entry) = fields.entry(key) else {
        fields.missing(key, hint);
        return None;
    };
    if let Value::List(_) | Value::Null = entry.node.value {
        fields.wrong(&entry.node, key, "a map");
        return None;
    }
    let json = scalar::json(&entry.node);
    fields.show(key, json.clone());
    let root = json!({ key: json });
    match convert(&Field::root(&root).get(key)) {
        Ok(found) => Some(found),
        Err(invalid) => {
            let path = invalid.target.trim_start_matches('/').replace('/', ".");
            fields
                .report
                .error_with(entry.at, &path, invalid.message, invalid.hint);
            None
        }
    }
}
