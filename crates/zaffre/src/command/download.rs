//! `zaffre job download` and `zaffre model download`.
//!
//! Files of the one output `score` of a batch job go straight into the folder, as the SDK puts them; the artifacts of a command
//! job go into `artifacts/`, named outputs into `named-outputs/NAME/`.

use super::{Context, stream};
use crate::{
    cli::{asset, job::Download},
    client::{
        Client,
        blob::{Container, Found, inside},
        locate::plain_name,
    },
    failure::{Failure, about},
    output,
    progress::Progress,
};
use futures_util::{StreamExt, TryStreamExt, stream as streams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Files on their way at once.
const AT_ONCE: usize = 8;
/// The datastore of logs and artifacts.
const ARTIFACTS: &str = "workspaceartifactstore";

/// Fetches what was asked for.
pub async fn run(context: &Context, args: Download) -> Result<(), Failure> {
    plain_name("job", &args.name)?;
    let client = &context.client;
    let job = client
        .get(&client.at(&format!("jobs/{}", args.name)))
        .await?;
    let status = job
        .pointer("/properties/status")
        .and_then(Value::as_str)
        .unwrap_or("Unknown");
    if !stream::is_over(status) {
        return Err(Failure::wrong(format!(
            "job {} is {status}: outputs are fetched when it has ended",
            args.name
        ))
        .hint(format!("zaffre job stream -n {}", args.name)));
    }
    let folder = args
        .download_path
        .clone()
        .unwrap_or_else(|| PathBuf::from("."));
    let fetched = fetch(client, &args, &job, &folder).await?;
    if !context.globals.only_show_errors {
        output::say(&format!("{fetched} files in {}", folder.display()));
    }
    Ok(())
}

async fn fetch(
    client: &Client,
    args: &Download,
    job: &Value,
    folder: &Path,
) -> Result<usize, Failure> {
    let batch = job
        .pointer("/properties/tags/azureml.batchrun")
        .and_then(Value::as_str)
        == Some("true");
    // The outputs of a batch job are those of its one step.
    let run = if batch {
        step(client, &args.name).await?
    } else {
        args.name.clone()
    };
    let mut fetched = 0;
    if args.output_name.is_none() && (!batch || args.all) {
        let container = client.container(ARTIFACTS).await?;
        // the log of a batch job as a whole lies beside those of its step; no two names are the same
        let runs = [Some(&run), batch.then_some(&args.name)];
        for run in runs.into_iter().flatten() {
            fetched += tree(
                client,
                &container,
                &format!("ExperimentRun/dcid.{run}/"),
                &folder.join("artifacts"),
            )
            .await?;
        }
    }
    if args.output_name.is_none() && !batch && !args.all {
        return Ok(fetched);
    }
    let outputs = outputs(client, &run).await?;
    if let Some(name) = &args.output_name
        && !outputs.iter().any(|(output, _)| output == name)
    {
        let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
        let missing = Failure::not_found(format!("job {} has no output {name}", args.name));
        return Err(match names.as_slice() {
            [] => missing.hint("its own files are fetched without --output-name"),
            some => missing.hint(format!("it has: {}", some.join(", "))),
        });
    }
    for (name, uri) in &outputs {
        if args
            .output_name
            .as_ref()
            .is_some_and(|wanted| wanted != name)
            || name == "default"
        {
            continue;
        }
        let to = if batch && name == "score" {
            folder.to_owned()
        } else {
            folder.join("named-outputs").join(inside(name)?)
        };
        fetched += address(client, uri, &to).await?;
    }
    Ok(fetched)
}

/// The child of a batch job that holds its output.
async fn step(client: &Client, name: &str) -> Result<String, Failure> {
    let at = format!(
        "/history/v1.0/{}/runs/{name}/children",
        client.scope().data_plane()
    );
    let children = client.list(&at, None).await?;
    let id = children.first().and_then(|child| child["runId"].as_str());
    id.map(str::to_owned)
        .ok_or_else(|| Failure::failed(format!("job {name} has no step")))
}

/// Names and addresses of the outputs of a run.
async fn outputs(client: &Client, run: &str) -> Result<Vec<(String, String)>, Failure> {
    let scope = client.scope().data_plane();
    let wanted = json!({"runId": run, "selectRunMetadata": true, "selectRunDefinition": true, "selectJobSpecification": true});
    let data = client
        .post(&format!("/history/v1.0/{scope}/rundata"), &wanted, &[])
        .await?;
    let mut found = vec![];
    for (name, output) in data
        .pointer("/runMetadata/outputs")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let Some(asset) = output["assetId"].as_str() else {
            continue;
        };
        let resolved = client
            .post(
                &format!("/data/v1.0/{scope}/dataversion/batchGetResolvedUris"),
                &json!({"values": [asset]}),
                &[],
            )
            .await?;
        if let Some(uri) = resolved["values"][asset]["uri"].as_str() {
            found.push((name.clone(), uri.to_owned()));
        }
    }
    Ok(found)
}

/// Fetches what an address names: `azureml://.../datastores/D/paths/P`.
pub async fn address(client: &Client, uri: &str, to: &Path) -> Result<usize, Failure> {
    let parts = uri.split_once("/datastores/").or_else(|| {
        uri.split_once("azureml://datastores/")
            .map(|(_, rest)| ("", rest))
    });
    let Some((store, path)) = parts.and_then(|(_, rest)| rest.split_once("/paths/")) else {
        return Err(Failure::failed(format!(
            "{uri} is no address in a datastore"
        )));
    };
    let container = client.container(store).await?;
    let name = path.trim_end_matches('/');
    // A file and a folder may share a prefix: `out` must not bring `output`.
    let found = client.list_blobs(&container, name).await?;
    if let Some(file) = found
        .iter()
        .find(|blob| blob.name == name && !path.ends_with('/'))
    {
        let short = name.rsplit('/').next().unwrap_or(name);
        client
            .get_blob(&container, &file.name, &to.join(inside(short)?))
            .await?;
        return Ok(1);
    }
    let prefix = if name.is_empty() {
        String::new()
    } else {
        format!("{name}/")
    };
    files(client, &container, &prefix, found, to).await
}

/// Fetches every blob below a prefix.
async fn tree(
    client: &Client,
    container: &Container,
    prefix: &str,
    to: &Path,
) -> Result<usize, Failure> {
    let found = client.list_blobs(container, prefix).await?;
    files(client, container, prefix, found, to).await
}

async fn files(
    client: &Client,
    container: &Container,
    prefix: &str,
    found: Vec<Found>,
    to: &Path,
) -> Result<usize, Failure> {
    let below: Vec<(&str, PathBuf)> = found
        .iter()
        .filter_map(|blob| Some((blob.name.as_str(), blob.name.strip_prefix(prefix)?)))
        .filter(|(_, rest)| !rest.is_empty())
        .map(|(name, rest)| Ok((name, to.join(inside(rest)?))))
        .collect::<Result<_, Failure>>()?;
    std::fs::create_dir_all(to).map_err(about(to))?;
    let progress = Progress::bar(
        "downloading",
        u64::try_from(below.len()).unwrap_or(u64::MAX),
    );
    streams::iter(&below)
        .map(|(name, path)| {
            let progress = &progress;
            async move {
                client.get_blob(container, name, path).await?;
                progress.step(1);
                Ok::<(), Failure>(())
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(below.len())
}

/// `zaffre model download`.
pub async fn model(context: &Context, args: asset::Download) -> Result<(), Failure> {
    plain_name("model", &args.name)?;
    plain_name("version", &args.version)?;
    let client = &context.client;
    let model = client
        .get(&client.at(&format!("models/{}/versions/{}", args.name, args.version)))
        .await?;
    let uri = model
        .pointer("/properties/modelUri")
        .and_then(Value::as_str);
    let uri = uri.ok_or_else(|| Failure::failed(format!("model {} has no files", args.name)))?;
    let folder = args
        .download_path
        .unwrap_or_else(|| PathBuf::from("."))
        .join(&args.name);
    let name = uri
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let single = !uri.ends_with('/') && name.contains('.');
    let to = if single {
        folder.clone()
    } else {
        folder.join(inside(name)?)
    };
    let fetched = address(client, uri, &to).await?;
    if !context.globals.only_show_errors {
        output::say(&format!("{fetched} files in {}", folder.display()));
    }
    Ok(())
}
