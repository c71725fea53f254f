//! Artifacts over MLflow's own route, so that a client needs nothing but its token: no account, no signature, no other package.
//!
//! A1 an address begins with whose the file is, `runs/ID`, `logged/ID` or `models/NAME/VERSION`, which must exist;
//! A2 a version of a model never changes (V1): its files are read here and not written;
//! A3 the log of a job is written by the job's agent alone.

use axum::body::Body;
use control::BlobError;
use futures_util::future::BoxFuture;
use model::{BlobPath, Workspace};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use wire::{
    arm::{field::Field, link::Links},
    places::Places,
};

use super::{asked, logged, runs};
use crate::{
    Api,
    blob::{
        list::{Entry, collect},
        read,
        write::{self, Digested, MAX_PUT_BYTES},
    },
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// Entries of one folder that are listed; MLflow's route has no pages.
const MAX_ENTRIES: usize = 10_000;
/// Entries asked of the store at once.
const STEP: usize = 5000;
/// The folder that a job's agent writes.
const LOGS: &str = "user_logs";

/// What is done with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    Read,
    Write,
}

/// Where the files of a logged model lie.
pub(super) fn of_logged(places: &Places, id: &str) -> Option<BlobPath> {
    places.artifacts().join(&format!("LoggedModel/{id}"))
}

fn bad(address: &str, rule: &str) -> Problem {
    Problem::user(format!(
        "artifact path `{}` {rule}",
        wire::names::shown(address)
    ))
}

/// The blob, or folder, of `runs/ID/…` and the others (A1). Blocks.
pub(super) fn locate(
    api: &Api,
    workspace: &Arc<Workspace>,
    address: &str,
    purpose: For,
) -> Result<BlobPath, Problem> {
    let places = api.places(workspace);
    let address = address.trim_matches('/');
    let mut parts = address.splitn(3, '/');
    let (kind, id) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let mut rest = parts.next().unwrap_or_default();
    let root = match kind {
        "runs" => {
            let place = runs::find(api, workspace, id)?;
            let log = rest == LOGS || rest.starts_with("user_logs/");
            if purpose == For::Write && place.job.is_some() && log {
                return Err(bad(
                    address,
                    "belongs to the log of a job, which its node writes (A3)",
                ));
            }
            places.artifacts_of(place.id.name())
        }
        "logged" => {
            logged::known(api, workspace, id)?;
            of_logged(&places, id)
        }
        "models" => {
            if purpose == For::Write {
                return Err(bad(
                    address,
                    "belongs to a version of a model, which never changes",
                ));
            }
            let (version, inner) = rest.split_once('/').unwrap_or((rest, ""));
            rest = inner;
            let text = format!("azureml:{id}:{version}");
            let found = api.looking(|look| {
                let links = Links {
                    places: &places,
                    look,
                };
                links.model(&Field::at("/path"), &text)
            })?;
            Some(found.path)
        }
        _ => {
            return Err(bad(
                address,
                "begins with none of runs/ID, logged/ID, models/NAME/VERSION",
            ));
        }
    };
    let path = match (root, rest) {
        (Some(root), "") => Some(root),
        (Some(root), rest) => root.join(rest),
        (None, _) => None,
    };
    path.ok_or_else(|| bad(address, "has an empty segment, `.`, `..` or a NUL"))
}

/// Refuses to write below another job's run.
fn own(api: &Api, call: &Call, workspace: &Arc<Workspace>, address: &str) -> Result<(), Problem> {
    let mut parts = address.trim_matches('/').splitn(3, '/');
    match (parts.next(), parts.next()) {
        (Some("runs"), Some(id)) => runs::may_write(api, call, &runs::find(api, workspace, id)?),
        _ => Ok(()),
    }
}

/// What lies in a folder: names, whether they are folders, sizes. Blocks.
fn inside(api: &Api, folder: &BlobPath) -> Result<Vec<(String, Option<u64>)>, Problem> {
    let container = folder.container();
    let prefix = format!(
        "{}/",
        folder
            .as_str()
            .get(container.len() + 1..)
            .unwrap_or_default()
    );
    let prefix = if prefix == "/" { String::new() } else { prefix };
    let (mut out, mut after) = (Vec::new(), None);
    loop {
        let (entries, next) = collect(api.control.blobs(), container, &prefix, "/", after, STEP)?;
        for entry in entries {
            let (name, size) = match entry {
                Entry::Prefix(name) => (name, None),
                Entry::Blob(name, info) => (name, Some(info.len)),
            };
            let name = name
                .get(prefix.len()..)
                .unwrap_or_default()
                .trim_end_matches('/');
            out.push((name.to_owned(), size));
        }
        match next {
            Some(next) if out.len() < MAX_ENTRIES => after = Some(next),
            Some(_) => {
                return Err(Problem::user(format!(
                    "the folder {} has more than {MAX_ENTRIES} entries, list it with `zaffre job download` or as blobs",
                    wire::names::shown(folder.base())
                )));
            }
            None => return Ok(out),
        }
    }
}

fn files(entries: Vec<(String, Option<u64>)>, below: &str) -> Vec<Value> {
    let path = |name: String| {
        if below.is_empty() {
            name
        } else {
            format!("{below}/{name}")
        }
    };
    entries
        .into_iter()
        .map(|(name, size)| match size {
            Some(size) => json!({"path": path(name), "is_dir": false, "file_size": size}),
            None => json!({"path": path(name), "is_dir": true}),
        })
        .collect()
}

/// GET mlflow-artifacts/artifacts: a folder, by its whole address; names are relative to it.
pub(crate) fn list(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let folder = locate(api, &workspace, asked(call, "path")?, For::Read)?;
    Ok(reply::ok(
        &json!({"files": files(inside(api, &folder)?, "")}),
    ))
}

/// GET artifacts/list: a folder of a run; names are relative to the run.
pub(crate) fn list_of_run(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let id = asked(call, "run_id").or_else(|_| asked(call, "run_uuid"))?;
    let path = call.query.get("path").unwrap_or_default().trim_matches('/');
    let folder = locate(api, &workspace, &format!("runs/{id}/{path}"), For::Read)?;
    Ok(reply::ok(
        &json!({"root_uri": runs::artifacts(id), "files": files(inside(api, &folder)?, path)}),
    ))
}

/// GET mlflow-artifacts/artifacts/PATH.
pub(crate) fn download(api: Arc<Api>, call: Call, _body: Body) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        let workspace = call.workspace(&api)?;
        let (state, address) = (api.clone(), call.param("path").to_owned());
        let path = crate::blocking(move || locate(&state, &workspace, &address, For::Read)).await?;
        read::get(api, call, path).await
    })
}

/// PUT mlflow-artifacts/artifacts/PATH, streamed (B2).
pub(crate) fn upload(api: Arc<Api>, call: Call, body: Body) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        let workspace = call.workspace(&api)?;
        let state = api.clone();
        let path = crate::blocking(move || {
            (state.room)().map_err(Problem::full)?;
            let address = call.param("path");
            own(&state, &call, &workspace, address)?;
            locate(&state, &workspace, address, For::Write)
        })
        .await;
        let path = match path {
            Ok(path) => path,
            Err(problem) => {
                write::drain(body).await;
                return Err(problem);
            }
        };
        let blobs = api.control.blobs().clone();
        write::receive(
            blobs,
            path,
            body,
            MAX_PUT_BYTES,
            Digested::Made,
            |writer, md5| writer.finish(false, md5, BTreeMap::new()),
        )
        .await?;
        Ok(reply::ok(&json!({})))
    })
}

/// DELETE mlflow-artifacts/artifacts/PATH: a file, or a folder with what is in it.
pub(crate) fn delete(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let address = call.param("path");
    own(api, call, &workspace, address)?;
    let path = locate(api, &workspace, address, For::Write)?;
    if address.trim_matches('/').splitn(3, '/').count() < 3 {
        return Err(bad(
            address,
            "is all of a run or model, its log too: name what in it shall go",
        ));
    }
    match api.control.blobs().delete(&path) {
        Ok(()) | Err(BlobError::NotFound(_)) => {}
        Err(BlobError::Io(error)) if error.kind() == std::io::ErrorKind::IsADirectory => {}
        Err(error) => return Err(error.into()),
    }
    api.control.blobs().delete_folder(&path)?;
    Ok(reply::ok(&json!({})))
}

/// Whether a blob, or a folder with blobs, is there; and which of the two. Blocks.
pub(super) fn is_file(api: &Api, path: &BlobPath) -> Result<Option<bool>, Problem> {
    let blobs = api.control.blobs();
    match blobs.info(path) {
        Ok(_) => return Ok(Some(true)),
        Err(BlobError::NotFound(_) | BlobError::BadName { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    match blobs.list(path, None, 1) {
        Ok(found) => Ok((!found.is_empty()).then_some(false)),
        Err(BlobError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
