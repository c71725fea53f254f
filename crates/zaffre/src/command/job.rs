//! `zaffre job`.

use super::{Context, changes, compute::expect, stream};
use crate::{
    cli::{ChangeArgs, job::*},
    client::{locate::plain_name, operation::Wait},
    command::{download, validate},
    draft::{self, flag},
    failure::{Failure, Status},
    output::{self, Columns, Format, Output},
    shape,
};
use serde_json::{Map, Value, json};
use wire::yaml::Kind;

const JOBS: Columns = &[
    ("Job", "/name"),
    ("Type", "/type"),
    ("Status", "/status"),
    ("Compute", "/compute_name"),
    ("Experiment", "/experiment_name"),
    ("Created", "/created"),
];
/// Columns of the children of a job.
const CHILDREN: Columns = &[
    ("Job", "/name"),
    ("Step", "/display_name"),
    ("Status", "/status"),
    ("Parameters", "/properties/hyperparameters"),
    ("Reused from", "/properties/zaffre.reused_from"),
    ("Created", "/created"),
];
/// Columns of one job.
pub const JOB: Columns = &[
    ("Job", "/name"),
    ("Status", "/status"),
    ("Compute", "/compute_name"),
    ("Preempted", "/properties/zaffre.preemptions"),
    ("Retries", "/properties/zaffre.retries"),
    ("Run again", "/properties/zaffre.rerun"),
    ("Rows", "/properties/zaffre.rows"),
];

/// Runs a command.
pub async fn run(context: &Context, command: Job) -> Result<(), Failure> {
    match command {
        Job::Create(args) => create(context, args).await,
        Job::Show(args) => {
            let job = context.client.get(&at(context, &args.name)?).await?;
            let mut shown = shown(&job);
            add_measured(context, &args.name, &mut shown).await?;
            show(&context.output, &shown, JOB)
        }
        Job::List(args) => list(context, args).await,
        Job::Stream(args) => stream::run(context, &args.name).await,
        Job::Cancel(args) => {
            context
                .client
                .act(
                    &format!("{}/cancel", at(context, &args.name)?),
                    &json!({}),
                    Wait::ForEnd,
                )
                .await
        }
        Job::Download(args) => download::run(context, args).await,
        Job::Explain(args) => explain(context, &args.name).await,
        Job::Validate(args) => validate::job(&args.file, &args.set),
        Job::Update(args) => update(context, args).await,
        Job::Archive(args) => hide(context, &args.name, true).await,
        Job::Restore(args) => hide(context, &args.name, false).await,
    }
}

fn at(context: &Context, name: &str) -> Result<String, Failure> {
    plain_name("job", name)?;
    Ok(context.client.at(&format!("jobs/{name}")))
}

/// Adds what the job has logged: the last value of each metric, and its parameters.
async fn add_measured(context: &Context, name: &str, shown: &mut Value) -> Result<(), Failure> {
    let client = &context.client;
    let at = format!(
        "/mlflow/v2.0/{}/api/2.0/mlflow/runs/get?run_id={name}",
        client.scope().data_plane()
    );
    let run = client.get(&at).await?;
    for (from, to) in [("metrics", "metrics"), ("params", "parameters")] {
        let all = run["run"]["data"][from].as_array();
        let all: Map<String, Value> = all
            .into_iter()
            .flatten()
            .filter_map(|one| Some((one["key"].as_str()?.to_owned(), one["value"].clone())))
            .collect();
        shown[to] = Value::Object(all);
    }
    Ok(())
}

/// A job as shown, with short forms for tables.
pub fn shown(job: &Value) -> Value {
    let mut shown = stream::with_output(job);
    shown["compute_name"] = shape::short(&shown["compute"]).into();
    if let Some(created) = shown
        .pointer("/creation_context/created_at")
        .and_then(Value::as_str)
    {
        let short = created
            .split('.')
            .next()
            .unwrap_or(created)
            .trim_end_matches('Z')
            .replace('T', " ");
        shown["created"] = short.into();
    }
    shown
}

/// A job, and for a person below the table what no column has room for.
pub fn show(output: &Output, shown: &Value, columns: Columns) -> Result<(), Failure> {
    output.show(shown, columns)?;
    if output.query.is_some() || output.format != Format::Table {
        return Ok(());
    }
    for (word, at) in [
        ("output", "/output"),
        ("waits for", "/properties/zaffre.why"),
        ("best trial", "/properties/zaffre.best_trial"),
        ("warning", "/properties/zaffre.warning"),
        ("first error", "/properties/zaffre.first_error"),
        ("hint", "/properties/zaffre.hint"),
    ] {
        if let Some(text) = shown.pointer(at).and_then(Value::as_str) {
            output::write(&format!("{word}: {text}\n"))?;
        }
    }
    for word in ["metrics", "parameters"] {
        let all = shown[word].as_object().into_iter().flatten();
        let all: Vec<String> = all
            .map(|(name, value)| match value.as_str() {
                Some(text) => format!("{name}={text}"),
                None => format!("{name}={value}"),
            })
            .collect();
        if !all.is_empty() {
            output::write(&format!("{word}: {}\n", all.join(" ")))?;
        }
    }
    Ok(())
}

async fn create(context: &Context, args: Create) -> Result<(), Failure> {
    let mut overrides = draft::sets(&args.set)?;
    flag(&mut overrides, "--name", &["name"], args.name.as_deref());
    let mut found = draft::read(Some(&args.file), &overrides, Kind::CommandJob)?;
    if !is_job(found.draft.kind) {
        expect(&found.draft, Kind::CommandJob)?;
    }
    found.warn();
    found.settle(&context.client).await?;
    let name = found.draft.name.clone().map_or_else(generated, Ok)?;
    let at = at(context, &name)?;
    if found.draft.name.is_some() && context.client.find(&at).await?.is_some() {
        return Err(Failure::wrong(format!("job {name} exists already"))
            .hint("leave the name out, and one is generated"));
    }
    let job = context
        .client
        .put(&at, &found.draft.body, Wait::ForEnd)
        .await?;
    if let Some(path) = &args.save_as {
        let text =
            serde_saphyr::to_string(&shown(&job)).expect("a JSON value can be written as YAML");
        std::fs::write(path, text).map_err(crate::failure::about(path))?;
    }
    if !args.stream {
        return show(&context.output, &shown(&job), JOB);
    }
    if !context.globals.only_show_errors {
        output::say(&format!("job {name}"));
    }
    stream::run(context, &name).await
}

/// Whether `job create` takes a file of this kind.
pub fn is_job(kind: Kind) -> bool {
    [Kind::CommandJob, Kind::SweepJob, Kind::PipelineJob].contains(&kind)
}

/// A name as the SDK makes them: two words and a tail that does not repeat.
fn generated() -> Result<String, Failure> {
    const FIRST: [&str; 16] = [
        "amber", "brave", "calm", "clever", "crisp", "eager", "gentle", "happy", "keen", "lively",
        "mellow", "nimble", "proud", "quiet", "sunny", "witty",
    ];
    const SECOND: [&str; 16] = [
        "apple", "bridge", "cloud", "crane", "drum", "engine", "garden", "harbor", "island",
        "lamp", "maple", "ocean", "pear", "river", "stone", "tower",
    ];
    const TAIL: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0_u8; 12];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed(format!("the system gives no randomness: {error}")))?;
    let pick = |byte: u8, len: usize| usize::from(byte) % len;
    let tail: String = bytes[2..]
        .iter()
        .map(|byte| char::from(TAIL[pick(*byte, TAIL.len())]))
        .collect();
    Ok(format!(
        "{}_{}_{tail}",
        FIRST[pick(bytes[0], FIRST.len())],
        SECOND[pick(bytes[1], SECOND.len())]
    ))
}

async fn list(context: &Context, args: List) -> Result<(), Failure> {
    let client = &context.client;
    let limit = (!args.all_results).then_some(args.max_results);
    if let Some(parent) = &args.parent_job_name {
        plain_name("job", parent)?;
        let at = format!(
            "/history/v1.0/{}/runs/{parent}/children",
            client.scope().data_plane()
        );
        let children = client.list(&at, limit).await?;
        let shown = children.iter().map(|run| {
            json!({"name": run["runId"], "display_name": run["displayName"], "type": run["runType"], "status": run["status"],
                "experiment_name": run["experimentName"], "created": run["createdUtc"], "properties": run["properties"]})
        });
        return context.output.show(&shown.collect(), CHILDREN);
    }
    let view = match (args.archived_only, args.include_archived) {
        (true, _) => "ArchivedOnly",
        (_, true) => "All",
        _ => "ActiveOnly",
    };
    let items = client
        .list(&client.at(&format!("jobs?listViewType={view}")), limit)
        .await?;
    context
        .output
        .show(&items.iter().map(shown).collect(), JOBS)
}

async fn explain(context: &Context, name: &str) -> Result<(), Failure> {
    let answer = context
        .client
        .get(&format!("{}/explain", at(context, name)?))
        .await?;
    let status = answer["status"].as_str().unwrap_or("Unknown");
    let mut text = match answer["text"].as_str() {
        Some(why) if !why.is_empty() => format!("{name} is {status}: {why}\n"),
        _ => format!("{name} is {status}\n"),
    };
    if let Some(hint) = answer["hint"].as_str() {
        text.push_str(&format!("hint: {}\n", hint.replace("JOB", name)));
    }
    context
        .output
        .show_or(&answer, context.globals.output, &text)
}

async fn update(context: &Context, args: Update) -> Result<(), Failure> {
    let job_at = at(context, &args.name)?;
    let job = context.client.get(&job_at).await?;
    let body = changed(&job, &args.change)?;
    patch(context, &args.name, &body).await?;
    let job = context.client.get(&job_at).await?;
    show(&context.output, &shown(&job), JOB)
}

/// What can be changed of a job that was submitted, and how the run calls it (wire §6).
const CHANGEABLE: [(&str, &str); 4] = [
    ("display_name", "displayName"),
    ("description", "description"),
    ("tags", "tags"),
    ("properties", "properties"),
];

/// The `PATCH` of the run that makes the changes: the texts and the tags whole, of the properties those that change, since
/// a run keeps every property that it has.
fn changed(job: &Value, change: &ChangeArgs) -> Result<Value, Failure> {
    let mut values = json!({});
    for (name, wire) in CHANGEABLE {
        values[name] = job["properties"][wire].clone();
    }
    let before = values.clone();
    for (flag, list) in [("--add", &change.add), ("--remove", &change.remove)] {
        if let Some(path) = list.first() {
            may_change(flag, path)?;
        }
    }
    if let Some(path) = change.remove.first().filter(|p| top(p).0 == "properties") {
        return Err(Failure::wrong(format!(
            "--remove {path}: a run keeps every property that it has"
        ))
        .hint("--set gives it another value"));
    }
    changes(&mut values, change)?; // --set is checked there and read here: a text stays one
    for argument in &change.set {
        let Some((path, value)) = argument.split_once('=') else {
            return Err(Failure::wrong(format!(
                "--set {argument:?}: a path and a value are joined by ="
            )));
        };
        may_change("--set", path)?;
        match top(path) {
            (first @ ("display_name" | "description"), "") => values[first] = value.into(),
            ("properties", key) if key.starts_with("zaffre.") || key.starts_with("azureml.") => {
                return Err(Failure::wrong(format!(
                    "--set {path}: this property is the server's own"
                )));
            }
            (first @ ("tags" | "properties"), key) if !key.is_empty() => {
                if !values[first].is_object() {
                    values[first] = json!({});
                }
                values[first][key] = value.into();
            }
            (first @ ("tags" | "properties"), _) => {
                return Err(Failure::wrong(format!("--set {path}: it is a map"))
                    .hint(format!("--set {first}.KEY=VALUE sets one of its texts")));
            }
            (first, _) => {
                return Err(Failure::wrong(format!("--set {path}: {first} is one text")));
            }
        }
    }
    let mut body = json!({});
    for (name, wire) in CHANGEABLE {
        if values.get(name) == before.get(name) {
            continue;
        }
        body[wire] = match (&values[name], name) {
            (Value::Null, "display_name" | "description") => "".into(), // removed
            (Value::Null, _) => json!({}),
            (Value::Object(now), "properties") => now
                .iter()
                .filter(|(key, value)| before[name].get(key.as_str()) != Some(*value))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect::<Map<_, _>>()
                .into(),
            (value, _) => value.clone(),
        };
    }
    Ok(body)
}

fn top(path: &str) -> (&str, &str) {
    path.split_once('.').unwrap_or((path, ""))
}

fn may_change(flag: &str, path: &str) -> Result<(), Failure> {
    if CHANGEABLE.iter().any(|(name, _)| *name == top(path).0) {
        return Ok(());
    }
    let names: Vec<&str> = CHANGEABLE.iter().map(|(name, _)| *name).collect();
    Err(
        Failure::wrong(format!("{flag} {path}: a job that was submitted keeps it"))
            .hint(format!("what can be changed is {}", names.join(", "))),
    )
}

async fn hide(context: &Context, name: &str, hidden: bool) -> Result<(), Failure> {
    patch(context, name, &json!({"hidden": hidden})).await
}

async fn patch(context: &Context, name: &str, body: &Value) -> Result<(), Failure> {
    let job = context.client.get(&at(context, name)?).await?;
    let experiment = job
        .pointer("/properties/experimentName")
        .and_then(Value::as_str)
        .unwrap_or("Default");
    let run = format!(
        "/history/v1.0/{}/experiments/{experiment}/runs/{name}",
        context.client.scope().data_plane()
    );
    match context.client.patch(&run, body).await {
        Err(failure) if failure.status == Status::NotFound => Err(Failure::not_found(format!(
            "job {name}: {}",
            failure.message
        ))),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_are_names_of_jobs_and_differ() {
        let (one, two) = (generated().unwrap(), generated().unwrap());
        assert_ne!(one, two);
        wire::names::check_job(&one).unwrap();
    }

    fn change(set: &[&str], remove: &[&str]) -> Result<Value, Failure> {
        let job = json!({"properties": {
            "displayName": "d", "description": "old", "tags": {"a": "1", "b": "2"},
            "properties": {"p": "1", "zaffre.rows": "9"},
        }});
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
        changed(
            &job,
            &ChangeArgs {
                set: words(set),
                remove: words(remove),
                ..ChangeArgs::default()
            },
        )
    }

    #[test]
    fn an_update_sends_what_changes_and_nothing_else() {
        assert_eq!(
            change(&["properties.x=1", "properties.a.b=2"], &[]).unwrap(),
            json!({"properties": {"x": "1", "a.b": "2"}})
        );
        assert_eq!(
            change(&["description=", "tags.c=3"], &["tags.a"]).unwrap(),
            json!({"description": "", "tags": {"b": "2", "c": "3"}})
        );
        assert_eq!(
            change(&[], &["description"]).unwrap(),
            json!({"description": ""})
        );
        assert_eq!(change(&["display_name=d"], &[]).unwrap(), json!({}));
    }

    #[test]
    fn what_an_update_cannot_do_is_refused_by_name() {
        for (set, remove, words) in [
            (
                &["command=x"][..],
                &[][..],
                "--set command: a job that was submitted keeps it",
            ),
            (&["properties.zaffre.rows=1"], &[], "is the server's own"),
            (&["tags=x"], &[], "--set tags: it is a map"),
            (
                &[],
                &["properties.p"],
                "--remove properties.p: a run keeps every property",
            ),
            (
                &[],
                &["inputs.x"],
                "inputs.x: a job that was submitted keeps it",
            ),
        ] {
            let refused = change(set, remove).unwrap_err().message;
            assert!(refused.contains(words), "{refused}");
        }
    }
}
