//! `zaffre batch-endpoint invoke`.

use super::{
    Context,
    stream::{self, Follow},
};
use crate::{
    cli::batch::Invoke,
    client::{Client, locate::plain_name},
    draft,
    failure::Failure,
    output::{self, Columns},
    shape, upload,
};
use serde_json::{Map, Value, json};
use std::path::Path;
use wire::names::{Kind, Pin, Reference, version_id};

const JOBS: Columns = &[
    ("Job", "/name"),
    ("Status", "/status"),
    ("Experiment", "/experiment_name"),
];

/// What is scored.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Input {
    kind: &'static str,
    uri: String,
}

/// Starts the job and, with `--stream`, follows it to its end.
pub async fn run(context: &Context, args: Invoke) -> Result<(), Failure> {
    let job = start(&context.client, &args).await?;
    let name = job["name"].as_str().unwrap_or_default().to_owned();
    if !args.stream {
        return context.output.show(&shown(&job), JOBS);
    }
    if !context.globals.only_show_errors {
        output::say(&format!("job {name}"));
    }
    let ended = stream::follow(
        &context.client,
        &name,
        Follow {
            quiet: context.globals.only_show_errors,
        },
    )
    .await?;
    super::job::show(&context.output, &ended.document, super::job::JOB)?;
    ended.verdict()
}

fn shown(job: &Value) -> Value {
    let mut out = shape::shown(shape::Shape::Job, job);
    out["name"] = job["name"].clone();
    out
}

/// Sends the invoke; answers the job.
pub async fn start(client: &Client, args: &Invoke) -> Result<Value, Failure> {
    plain_name("endpoint", &args.name)?;
    let endpoint = client
        .get(&client.at(&format!("batchEndpoints/{}", args.name)))
        .await?;
    let uri = endpoint
        .pointer("/properties/scoringUri")
        .and_then(Value::as_str);
    let uri =
        uri.ok_or_else(|| Failure::failed(format!("endpoint {} has no scoring URI", args.name)))?;
    let body = body(client, args).await?;
    // The same id goes with every repeat, so that a broken connection starts one job.
    let mut headers = vec![("repeatability_request-id", uuid::Uuid::new_v4().to_string())];
    if let Some(deployment) = &args.deployment_name {
        plain_name("deployment", deployment)?;
        headers.push(("azureml-model-deployment", deployment.clone()));
    }
    client.post(&client.own(uri), &body, &headers).await
}

async fn body(client: &Client, args: &Invoke) -> Result<Value, Failure> {
    let mut properties = Map::new();
    let mut inputs = Map::new();
    let file = match &args.file {
        Some(path) => read_file(path)?,
        None => Value::Null,
    };
    let base = args
        .file
        .as_deref()
        .and_then(Path::parent)
        .unwrap_or(Path::new("."));
    if let Value::Object(named) = &file["inputs"] {
        for (name, input) in named {
            inputs.insert(name.clone(), literal_or_input(client, base, input).await?);
        }
    }
    for (name, input) in pairs(&args.inputs, "--inputs")? {
        inputs.insert(
            name,
            literal_or_input(client, Path::new("."), &input).await?,
        );
    }
    if let Some(text) = &args.input {
        let found = input(client, Path::new("."), text, args.input_type.as_deref()).await?;
        inputs.insert(
            found.kind.into(),
            json!({"jobInputType": found.kind, "uri": found.uri}),
        );
    }
    if inputs.is_empty() {
        return Err(Failure::wrong("nothing to score: no input is given").hint("--input FOLDER"));
    }
    properties.insert("inputData".into(), Value::Object(inputs));
    outputs(args, &file, &mut properties)?;
    settings(args, &file, &mut properties)?;
    Ok(json!({"properties": properties}))
}

fn read_file(path: &Path) -> Result<Value, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::wrong(format!(
            "{}: {}",
            path.display(),
            crate::failure::plain(&error)
        ))
    })?;
    let value: Value = serde_saphyr::from_str(&text)
        .map_err(|error| Failure::wrong(format!("{}: {error}", path.display())))?;
    let known = [
        "$schema",
        "type",
        "inputs",
        "outputs",
        "job_name",
        "experiment_name",
        "deployment_name",
        "settings",
        "resources",
    ];
    if let Some(stranger) = value
        .as_object()
        .and_then(|fields| fields.keys().find(|key| !known.contains(&key.as_str())))
    {
        return Err(
            Failure::wrong(format!("{}: unknown key {stranger}", path.display()))
                .hint(format!("an invoke file has {}", known[2..].join(", "))),
        );
    }
    Ok(value)
}

/// `data.path=DIR data.type=uri_folder` by name.
fn pairs(arguments: &[String], flag: &str) -> Result<Map<String, Value>, Failure> {
    let mut out = Map::new();
    for argument in arguments {
        let parts = argument
            .split_once('=')
            .and_then(|(path, value)| Some((path.split_once('.')?, value)));
        let Some(((name, key), value)) = parts else {
            return Err(Failure::wrong(format!(
                "{flag} {argument}: write NAME.path=PATH or NAME.type=KIND"
            )));
        };
        if key != "path" && key != "type" {
            return Err(Failure::wrong(format!(
                "{flag} {argument}: an input has path and type"
            )));
        }
        let entry = out.entry(name.to_owned()).or_insert_with(|| json!({}));
        entry[key] = value.into();
    }
    Ok(out)
}

async fn literal_or_input(client: &Client, base: &Path, value: &Value) -> Result<Value, Failure> {
    let path = value.as_str().or_else(|| value["path"].as_str());
    let Some(path) = path else {
        return Ok(json!({"jobInputType": "Literal", "value": value}));
    };
    let found = input(client, base, path, value["type"].as_str()).await?;
    Ok(json!({"jobInputType": found.kind, "uri": found.uri}))
}

/// A local path is uploaded; a reference becomes an id; an address stays.
async fn input(
    client: &Client,
    base: &Path,
    text: &str,
    kind: Option<&str>,
) -> Result<Input, Failure> {
    let asked = match kind
        .map(|kind| kind.to_ascii_lowercase().replace('_', ""))
        .as_deref()
    {
        None => None,
        Some("urifolder") => Some("UriFolder"),
        Some("urifile") => Some("UriFile"),
        Some(other) => {
            return Err(Failure::wrong(format!(
                "--input-type {other}: an input is uri_folder or uri_file"
            )));
        }
    };
    let text = text
        .strip_prefix("file:")
        .map_or(text, |rest| rest.trim_start_matches("//"));
    if wire::names::is_reference(text) {
        return referred(client, text, asked).await;
    }
    if text.contains("://") {
        let kind = asked.unwrap_or(if text.ends_with('/') {
            "UriFolder"
        } else {
            "UriFile"
        });
        return Ok(Input {
            kind,
            uri: text.to_owned(),
        });
    }
    let path = base.join(text);
    let is_file = path.is_file();
    match asked {
        Some("UriFolder") if is_file => {
            return Err(Failure::wrong(format!(
                "{text} is a file, and --input-type says uri_folder"
            )));
        }
        Some("UriFile") if path.is_dir() => {
            return Err(Failure::wrong(format!(
                "{text} is a folder, and --input-type says uri_file"
            )));
        }
        _ => {}
    }
    let uri = upload::to_datastore(client, &path, None).await?;
    Ok(Input {
        kind: if is_file { "UriFile" } else { "UriFolder" },
        uri,
    })
}

async fn referred(
    client: &Client,
    text: &str,
    asked: Option<&'static str>,
) -> Result<Input, Failure> {
    let reference = Reference::parse(text)
        .map_err(|error| Failure::wrong(format!("--input {text}: {error}")))?;
    let Reference::Short { name, pin, .. } = reference else {
        let plain = text
            .strip_prefix("azureml:")
            .filter(|rest| rest.starts_with("/subscriptions/"))
            .unwrap_or(text);
        let kind = asked.unwrap_or(if plain.ends_with('/') || !last_has_extension(plain) {
            "UriFolder"
        } else {
            "UriFile"
        });
        return Ok(Input {
            kind,
            uri: plain.to_owned(),
        });
    };
    let document = match &pin {
        Pin::Version(version) => {
            client
                .find(&client.at(&format!("data/{name}/versions/{version}")))
                .await?
        }
        Pin::Label(label) if label != "latest" => None,
        Pin::Label(_) | Pin::Open => draft::latest(client, "data", &name).await?,
    };
    let Some(document) = document else {
        return Err(Failure::not_found(format!("data {text} does not exist"))
            .hint("`zaffre data list` shows what there is"));
    };
    let version = document["name"].as_str().unwrap_or_default();
    let uri = version_id(&draft::workspace(client), Kind::Data, &name, version);
    let file = document
        .pointer("/properties/dataType")
        .and_then(Value::as_str)
        .is_some_and(|kind| {
            kind.eq_ignore_ascii_case("uri_file") || kind.eq_ignore_ascii_case("urifile")
        });
    Ok(Input {
        kind: asked.unwrap_or(if file { "UriFile" } else { "UriFolder" }),
        uri,
    })
}

fn last_has_extension(uri: &str) -> bool {
    uri.rsplit('/')
        .next()
        .is_some_and(|last| last.contains('.'))
}

fn outputs(
    args: &Invoke,
    file: &Value,
    properties: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let mut data = Map::new();
    let mut add = |name: &str, value: &Value| {
        let path = value
            .as_str()
            .or_else(|| value["path"].as_str())
            .unwrap_or_default()
            .to_owned();
        let folder = value["type"]
            .as_str()
            .is_none_or(|kind| kind.eq_ignore_ascii_case("uri_folder"));
        let kind = if folder && !last_has_extension(&path) {
            "UriFolder"
        } else {
            "UriFile"
        };
        data.insert(name.to_owned(), json!({"jobOutputType": kind, "uri": path}));
    };
    if let Value::Object(named) = &file["outputs"] {
        named.iter().for_each(|(name, value)| add(name, value));
    }
    pairs(&args.outputs, "--outputs")?
        .iter()
        .for_each(|(name, value)| add(name, value));
    if let Some(path) = &args.output_path {
        add("score", &json!(path));
    }
    if !data.is_empty() {
        properties.insert("outputData".into(), Value::Object(data));
    }
    Ok(())
}

/// What this job has otherwise than its deployment.
fn settings(
    args: &Invoke,
    file: &Value,
    properties: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let whole = |flag: &str, text: &str| match text.parse::<u32>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(Failure::wrong(format!(
            "{flag} {text}: a whole number above 0"
        ))),
    };
    let pick = |flag: &Option<String>, key: &str| {
        flag.clone()
            .or_else(|| file[key].as_str().map(str::to_owned))
    };
    let mut extra = Map::new();
    if let Some(name) = pick(&args.job_name, "job_name") {
        plain_name("--job-name", &name)?;
        properties.insert("jobName".into(), name.into());
    }
    if let Some(name) = pick(&args.experiment_name, "experiment_name") {
        extra.insert("experimentName".into(), name.into());
    }
    if let Some(job) = &args.resume_from {
        extra.insert(wire::arm::invoke::RESUME_FROM.into(), job.clone().into());
    }
    if let Some(text) = &args.mini_batch_size {
        properties.insert(
            "miniBatchSize".into(),
            whole("--mini-batch-size", text)?.into(),
        );
    }
    if let Some(text) = &args.instance_count {
        properties.insert(
            "compute".into(),
            json!({"instanceCount": whole("--instance-count", text)?}),
        );
    }
    for argument in &args.set {
        set(argument, properties)?;
    }
    if !extra.is_empty() {
        properties.insert("properties".into(), Value::Object(extra));
    }
    Ok(())
}

/// `--set` of the settings that a job may have of its own (R-53: never its compute or tier).
fn set(argument: &str, properties: &mut Map<String, Value>) -> Result<(), Failure> {
    let Some((path, value)) = argument.split_once('=') else {
        return Err(Failure::wrong(format!(
            "--set {argument}: a path and a value are joined by ="
        )));
    };
    let number = || {
        value
            .parse::<i64>()
            .map_err(|_| Failure::wrong(format!("--set {argument}: {value} is no whole number")))
    };
    let bare = path.strip_prefix("settings.").unwrap_or(path);
    match bare {
        "mini_batch_size" => properties.insert("miniBatchSize".into(), number()?.into()),
        "error_threshold" => properties.insert("errorThreshold".into(), number()?.into()),
        "output_file_name" => properties.insert("outputFileName".into(), value.into()),
        "resources.instance_count" | "instance_count" => {
            properties.insert("compute".into(), json!({"instanceCount": number()?}))
        }
        "retry_settings.max_retries" | "retry_settings.timeout" => {
            let retry = properties
                .entry("retrySettings")
                .or_insert_with(|| json!({}));
            if bare.ends_with("timeout") {
                retry["timeout"] = format!("PT{}S", number()?).into();
            } else {
                retry["maxRetries"] = number()?.into();
            }
            None
        }
        _ => {
            return Err(Failure::wrong(format!("--set {path}: a job cannot have this of its own")).hint(
                "mini_batch_size, error_threshold, output_file_name, resources.instance_count, retry_settings.max_retries, retry_settings.timeout; everything else belongs to the deployment",
            ));
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_and_outputs_are_named_pairs() {
        let args = [
            "data.path=DIR".to_owned(),
            "data.type=uri_folder".to_owned(),
        ];
        assert_eq!(
            Value::Object(pairs(&args, "--inputs").unwrap()),
            json!({"data": {"path": "DIR", "type": "uri_folder"}})
        );
        assert!(pairs(&["data=DIR".to_owned()], "--inputs").is_err());
    }

    #[test]
    fn a_job_has_settings_of_its_own_but_no_compute() {
        let mut properties = Map::new();
        set("settings.mini_batch_size=4", &mut properties).unwrap();
        set("retry_settings.timeout=30", &mut properties).unwrap();
        assert_eq!(
            Value::Object(properties.clone()),
            json!({"miniBatchSize": 4, "retrySettings": {"timeout": "PT30S"}})
        );
        assert!(
            set("compute=azureml:other", &mut properties)
                .unwrap_err()
                .message
                .contains("cannot have this of its own")
        );
    }
}
