//! Sweep jobs: the body of `PUT jobs/NAME` with `jobType: Sweep` → what is tried, how, and what one trial runs.

use super::{
    Invalid,
    asset::common,
    field::Field,
    job,
    link::{Links, Look},
    resolve,
};
use crate::{names::shown, places::Places};
use model::{
    JobId, Part, Real, RunSpec, SweepSpec, Work,
    family::{Domain, Goal, Policy, SEARCH_SPACE, Sampling, TRIAL, Termination},
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Trials of one sweep: Azure's own limit.
pub const MAX_TRIALS: u32 = 1_000;
/// Parameters of one sweep: a Sobol sequence has so many dimensions here, and no honest sweep varies more.
const MAX_PARAMETERS: usize = 64;
/// Dimensions of a Sobol sequence (`plan::sample`).
const SOBOL_PARAMETERS: usize = 16;
/// Values of one choice.
const MAX_CHOICES: usize = 1_000;

/// The run of a sweep job.
pub fn sweep_run(
    id: &JobId,
    body: &Value,
    look: Look<'_>,
    warnings: &mut Vec<String>,
) -> Result<RunSpec, Invalid> {
    let p = Field::root(body).get("properties").need_object()?;
    common(&p, warnings)?;
    let space = space(&p.get("searchSpace"))?;
    let sampling = sampling(&p.get("samplingAlgorithm"), id, &space, warnings)?;
    let objective = p.get("objective").need_object()?;
    let goal = objective.get("goal");
    let goal = goal
        .choice(&[("maximize", Goal::Maximize), ("minimize", Goal::Minimize)])?
        .ok_or_else(|| goal.missing())?;
    let limits = p.get("limits").maybe_object()?;
    let total = limits
        .get("maxTotalTrials")
        .count(1..=MAX_TRIALS, MAX_TRIALS)?;
    let at_once = limits
        .get("maxConcurrentTrials")
        .count(1..=MAX_TRIALS, total)?
        .min(total);
    let document = trial_document(id, &p, &limits)?;
    let trial = trial(id, &document, &space, look, warnings)?;
    let metric = objective.get("primaryMetric").need_text()?;
    let part = Part {
        parent: id.clone(),
        key: Box::default(),
        fingerprint: None,
        reused_from: None,
        metric: Some(metric.into()),
        parameters: BTreeMap::new(),
    };
    let places = Places::of(id.workspace());
    let links = Links {
        places: &places,
        look,
    };
    let outputs = p.get("outputs");
    let mut task = (*trial.task).clone();
    task.artifacts = resolve::run_path(id, places.artifacts_of(id.name()))?;
    task.outputs = resolve::outputs(&links, &outputs, &job::outputs(&outputs)?, id)?;
    // What comes in is the sweep's; what goes out is each trial's.
    task.inputs
        .retain(|name, _| !name.starts_with(SEARCH_SPACE));
    Ok(RunSpec {
        compute: trial.compute.clone(),
        instances: trial.instances,
        task: Arc::new(task),
        timeout: job::timeout(&limits.get("timeout"))?,
        instance_type: trial.instance_type.clone(),
        part: None,
        work: Work::Sweep(Box::new(SweepSpec {
            space,
            sampling,
            metric: metric.into(),
            goal,
            termination: termination(&p.get("earlyTermination"))?,
            total,
            at_once,
            trial: Arc::new(RunSpec {
                part: Some(Box::new(part)),
                ..trial
            }),
            document: document.to_string().into(),
        })),
    })
}

/// The document that every trial has.
fn trial_document(id: &JobId, p: &Field<'_>, limits: &Field<'_>) -> Result<Value, Invalid> {
    let trial = p.get("trial").need_object()?;
    let mut out = Map::from_iter([("jobType".to_owned(), json!("Command"))]);
    let mut take = |from: &Field<'_>, key: &str| {
        if let Some(value) = from.get(key).value() {
            out.insert(key.to_owned(), value.clone());
        }
    };
    for key in [
        "command",
        "codeId",
        "environmentId",
        "environmentVariables",
        "distribution",
    ] {
        take(&trial, key);
    }
    for key in [
        "computeId",
        "experimentName",
        "inputs",
        "outputs",
        "queueSettings",
        "identity",
    ] {
        take(p, key);
    }
    let own = trial.get("resources");
    take(if own.value().is_some() { &trial } else { p }, "resources");
    if let Some(timeout) = limits.get("trialTimeout").value() {
        out.insert(
            "limits".into(),
            json!({"jobLimitsType": "Command", "timeout": timeout}),
        );
    }
    for key in ["tags", "properties"] {
        out.insert(key.into(), json!({}));
    }
    out.insert("isArchived".into(), json!(false));
    out.insert("parentJobName".into(), json!(id.name()));
    Ok(json!({ "properties": out }))
}

/// The run of every trial: `TRIAL` stands for its name, and each parameter is an input of it.
fn trial(
    id: &JobId,
    document: &Value,
    space: &BTreeMap<Box<str>, Domain>,
    look: Look<'_>,
    warnings: &mut Vec<String>,
) -> Result<RunSpec, Invalid> {
    let mut body = document.clone();
    let p = &mut body["properties"];
    let place = Field::at("/properties/trial/command");
    let line = p["command"].as_str().unwrap_or_default().to_owned();
    let mut used = BTreeSet::new();
    let mut changed = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some((before, after)) = rest.split_once("${{") {
        let Some((inner, tail)) = after.split_once("}}") else {
            return Err(place.refuse("has a ${{ without its }}"));
        };
        changed.push_str(before);
        match inner.trim().strip_prefix(SEARCH_SPACE) {
            Some(name) if space.contains_key(name) => {
                used.insert(name.to_owned());
                changed.push_str(&format!("${{{{inputs.{SEARCH_SPACE}{name}}}}}"));
            }
            Some(name) => {
                let names: Vec<&str> = space.keys().map(AsRef::as_ref).collect();
                return Err(place.refuse(format!(
                    "has ${{{{{SEARCH_SPACE}{}}}}}, and the search space has {}",
                    shown(name),
                    names.join(", ")
                )));
            }
            None => changed.push_str(&format!("${{{{{inner}}}}}")),
        }
        rest = tail;
    }
    changed.push_str(rest);
    for name in space.keys().filter(|n| !used.contains(&***n)) {
        warnings.push(format!(
            "the command of the trial does not use ${{{{{SEARCH_SPACE}{name}}}}}"
        ));
    }
    p["command"] = json!(changed);
    if !p["inputs"].is_object() {
        p["inputs"] = json!({});
    }
    for name in space.keys() {
        let name = format!("{SEARCH_SPACE}{name}");
        p["inputs"][name] = json!({"jobInputType": "literal", "value": ""});
    }
    let template = JobId::new(id.workspace(), TRIAL);
    let mut run = resolve::run_of(&template, &body, look, warnings).map_err(in_trial)?;
    // Outputs at an address of the user: a folder of each trial in it, since all write there.
    let given = Field::root(document).get("properties").get("outputs");
    let mut task = (*run.task).clone();
    for (name, output) in &mut task.outputs {
        let said = given.get(name).get("uri");
        if said.text()?.is_some_and(|u| !u.is_empty())
            && let Some(own) = output.target.join(TRIAL)
        {
            output.target = own;
            if let Some(address) = &output.address {
                let end = if output.file { "" } else { "/" };
                let address = address.trim_end_matches('/');
                output.address = Some(format!("{address}/{TRIAL}{end}").into());
            }
        }
    }
    run.task = Arc::new(task);
    Ok(run)
}

/// A refusal inside the trial names the place where the client wrote it.
fn in_trial(mut invalid: Invalid) -> Invalid {
    const OF_TRIAL: [&str; 5] = [
        "command",
        "codeId",
        "environmentId",
        "environmentVariables",
        "distribution",
    ];
    if let Some(rest) = invalid.target.strip_prefix("/properties/")
        && OF_TRIAL.iter().any(|key| rest.starts_with(key))
    {
        invalid.target = format!("/properties/trial/{rest}");
    }
    invalid
}

fn space(field: &Field<'_>) -> Result<BTreeMap<Box<str>, Domain>, Invalid> {
    let mut out = BTreeMap::new();
    let entries = field.entries()?;
    if entries.is_empty() {
        return Err(field.refuse("is empty: a sweep varies at least one parameter"));
    }
    if entries.len() > MAX_PARAMETERS {
        return Err(field.refuse(format!(
            "has {} parameters, allowed are {MAX_PARAMETERS}",
            entries.len()
        )));
    }
    for (name, place) in entries {
        job::port_name(&place, name)?;
        out.insert(name.into(), domain(&place)?);
    }
    Ok(out)
}

/// `[KIND, [ARGUMENTS]]`, as the SDK sends it.
fn domain(field: &Field<'_>) -> Result<Domain, Invalid> {
    let items = field.items()?;
    let [kind, arguments] = &items[..] else {
        return Err(field.refuse("is not [KIND, [ARGUMENTS]]"));
    };
    let word = kind.need_text()?.to_ascii_lowercase();
    let arguments = arguments.items()?;
    let wanted = |n: usize, names: &str| {
        if arguments.len() == n {
            Ok(())
        } else {
            Err(field.refuse(format!(
                "of {word} has {} arguments, wanted are {names}",
                arguments.len()
            )))
        }
    };
    let bounds = |step: bool| -> Result<(Real, Real, Option<Real>), Invalid> {
        wanted(
            if step { 3 } else { 2 },
            if step {
                "min, max and q"
            } else {
                "min and max"
            },
        )?;
        let (min, max) = (real(&arguments[0])?, real(&arguments[1])?);
        if min > max {
            return Err(arguments[0].refuse(format!("of {word}: {min} is above {max}")));
        }
        Ok((min, max, step.then(|| positive(&arguments[2])).transpose()?))
    };
    let bell = |step: bool| -> Result<(Real, Real, Option<Real>), Invalid> {
        wanted(
            if step { 3 } else { 2 },
            if step {
                "mu, sigma and q"
            } else {
                "mu and sigma"
            },
        )?;
        let sigma = positive(&arguments[1])?;
        Ok((
            real(&arguments[0])?,
            sigma,
            step.then(|| positive(&arguments[2])).transpose()?,
        ))
    };
    Ok(match word.as_str() {
        "choice" => {
            wanted(1, "a list of values")?;
            Domain::Choice(choices(&arguments[0])?)
        }
        "randint" => {
            wanted(1, "the upper end")?;
            let upper = arguments[0].whole(1..=i64::from(u32::MAX))?;
            let upper = upper.ok_or_else(|| arguments[0].missing())?;
            Domain::RandInt(upper.unsigned_abs())
        }
        "uniform" | "quniform" => {
            let (min, max, step) = bounds(word.starts_with('q'))?;
            Domain::Uniform { min, max, step }
        }
        "loguniform" | "qloguniform" => {
            let (min, max, step) = bounds(word.starts_with('q'))?;
            Domain::LogUniform { min, max, step }
        }
        "normal" | "qnormal" => {
            let (mu, sigma, step) = bell(word.starts_with('q'))?;
            Domain::Normal { mu, sigma, step }
        }
        "lognormal" | "qlognormal" => {
            let (mu, sigma, step) = bell(word.starts_with('q'))?;
            Domain::LogNormal { mu, sigma, step }
        }
        _ => {
            return Err(kind.refuse(format!(
                "is `{}`, known are choice, randint, uniform, quniform, loguniform, qloguniform, normal, qnormal, lognormal and qlognormal",
                shown(&word)
            )));
        }
    })
}

fn choices(field: &Field<'_>) -> Result<Vec<Box<str>>, Invalid> {
    let items = field.items()?;
    if items.is_empty() || items.len() > MAX_CHOICES {
        return Err(field.refuse(format!(
            "has {} values, allowed are 1 to {MAX_CHOICES}",
            items.len()
        )));
    }
    items
        .iter()
        .map(|item| match item.value() {
            Some(Value::String(text)) => Ok(text.as_str().into()),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string().into()),
            // a list or an object is handed to the command as JSON
            Some(value) => Ok(value.to_string().into()),
            None => Err(item.refuse("is null")),
        })
        .collect()
}

fn real(field: &Field<'_>) -> Result<Real, Invalid> {
    let number = field.value().and_then(Value::as_f64).and_then(Real::new);
    number.ok_or_else(|| field.refuse("is no number"))
}

fn positive(field: &Field<'_>) -> Result<Real, Invalid> {
    let number = real(field)?;
    if number.get() > 0.0 {
        Ok(number)
    } else {
        Err(field.refuse(format!("is {number}, and must be above 0")))
    }
}

#[derive(Clone, Copy)]
enum Algorithm {
    Grid,
    Random,
    Bayesian,
}

fn sampling(
    field: &Field<'_>,
    id: &JobId,
    space: &BTreeMap<Box<str>, Domain>,
    warnings: &mut Vec<String>,
) -> Result<Sampling, Invalid> {
    let object = field.clone().need_object()?;
    let kind = object.get("samplingAlgorithmType");
    let algorithm = kind
        .choice(&[
            ("Grid", Algorithm::Grid),
            ("Random", Algorithm::Random),
            ("Bayesian", Algorithm::Bayesian),
        ])?
        .ok_or_else(|| kind.missing())?;
    let seed = object.get("seed").whole(0..=i64::MAX)?;
    let seed = seed.map_or_else(|| seed_of(id), i64::unsigned_abs);
    if object.get("logbase").value().is_some() {
        warnings.push("logbase has no effect here: loguniform is exp(uniform)".into());
    }
    // Azure's rules of what goes with what
    let refuse = |word: &str, takes: &str, legal: fn(&Domain) -> bool| match space
        .iter()
        .find(|(_, domain)| !legal(domain))
    {
        Some((name, _)) => Err(kind.refuse(format!(
            "is {word}, which takes {takes} alone, and {name} is something else"
        ))),
        None => Ok(()),
    };
    match algorithm {
        Algorithm::Grid => {
            refuse("Grid", "choice", |d| matches!(d, Domain::Choice(_)))?;
            Ok(Sampling::Grid)
        }
        Algorithm::Bayesian => {
            refuse("Bayesian", "choice, uniform and quniform", |d| {
                matches!(d, Domain::Choice(_) | Domain::Uniform { .. })
            })?;
            Ok(Sampling::Bayesian { seed })
        }
        Algorithm::Random => {
            let rule = object.get("rule");
            match rule.choice(&[("Random", false), ("Sobol", true)])? {
                Some(true) if space.len() > SOBOL_PARAMETERS => Err(rule.refuse(format!(
                    "is Sobol, which takes at most {SOBOL_PARAMETERS} parameters, and there are {}",
                    space.len()
                ))),
                Some(true) => Ok(Sampling::Sobol { seed }),
                Some(false) | None => Ok(Sampling::Random { seed }),
            }
        }
    }
}

/// The seed of a sweep that names none: its own name, so that a replay chooses the same.
fn seed_of(id: &JobId) -> u64 {
    let digest = Sha256::digest(id.name().to_ascii_lowercase().as_bytes());
    digest[..8].iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[derive(Clone, Copy)]
enum Rule {
    Bandit,
    Median,
    Truncation,
}

fn termination(field: &Field<'_>) -> Result<Option<Termination>, Invalid> {
    let field = field.clone().maybe_object()?;
    if field.value().is_none() {
        return Ok(None);
    }
    let kind = field.get("policyType");
    let rule = kind
        .choice(&[
            ("Bandit", Rule::Bandit),
            ("MedianStopping", Rule::Median),
            ("TruncationSelection", Rule::Truncation),
        ])?
        .ok_or_else(|| kind.missing())?;
    let slack = |key: &str| -> Result<Option<Real>, Invalid> {
        let place = field.get(key);
        match place.value() {
            // the SDK sends the one that was not given as 0
            Some(value) if value.as_f64() != Some(0.0) => Ok(Some(positive(&place)?)),
            _ => Ok(None),
        }
    };
    let policy = match rule {
        Rule::Bandit => match (slack("slackFactor")?, slack("slackAmount")?) {
            (Some(factor), None) => Policy::BanditFactor(factor),
            (None, Some(amount)) => Policy::BanditAmount(amount),
            (None, None) => {
                return Err(field
                    .get("slackFactor")
                    .refuse("or slackAmount is required"));
            }
            (Some(_), Some(_)) => {
                return Err(field
                    .get("slackFactor")
                    .refuse("and slackAmount exclude each other"));
            }
        },
        Rule::Median => Policy::Median,
        Rule::Truncation => {
            let place = field.get("truncationPercentage");
            if place.value().is_none() {
                return Err(place.missing());
            }
            Policy::Truncation(place.count(1..=99, 1)?)
        }
    };
    Ok(Some(Termination {
        policy,
        // the SDK's classes send 0 for the default
        interval: field
            .get("evaluationInterval")
            .count(0..=1_000_000, 1)?
            .max(1),
        delay: field.get("delayEvaluation").count(0..=1_000_000, 0)?,
    }))
}
