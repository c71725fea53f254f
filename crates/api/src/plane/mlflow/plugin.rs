//! Artifacts for `azureml-mlflow`, the plugin that `mlflow.set_tracking_uri(workspace.mlflow_tracking_uri)` needs (wire §11). It
//! speaks MLflow's contract for everything else, and for artifacts the run history's: signatures for single blobs.
//!
//! U1 only who says to be the plugin gets `azureml://` addresses of artifacts: plain MLflow cannot read them, and the plugin
//!    cannot read plain MLflow's;
//! U2 an address means the same in both spellings: what the plugin has sent is read by everybody, and the other way round;
//! U3 a signature opens one blob, to read it or to write it.

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use http_body_util::BodyExt;
use model::{BlobPath, Workspace};
use serde_json::{Map, Value, json};
use std::sync::Arc;

use super::{
    artifacts::{self, For},
    logged, runs,
};
use crate::{
    Api,
    access::Scope,
    call::Call,
    problem::{Answer, Problem},
    reply, show, time,
};

/// How the plugin calls itself, after MLflow's own name.
const AGENT: &str = "azureml-mlflow";
/// Our scheme of artifact addresses.
const OURS: &str = "mlflow-artifacts:/";
/// Before the files of a version of a model: MLflow takes the last segment of an address for a file of what stands before it.
const FILES: &str = "files";
/// The experiment in an address: the run says which it is.
const ANY: &str = "-";
/// Files of one `batch/metadata`: the plugin sends 50.
const MAX_FILES: usize = 1_000;
/// Files of one page of a listing.
const PAGE: usize = 500;

/// How addresses are spelled for the plugin (U1).
pub(crate) struct Spelling(String);

impl Spelling {
    /// Of a request, if the plugin sent it.
    pub fn asked(headers: &HeaderMap, call: &Call) -> Option<Spelling> {
        let agent = headers.get(header::USER_AGENT)?.to_str().ok()?;
        agent.contains(AGENT).then(|| {
            let scope = Workspace::new(call.param("s"), call.param("g"), call.param("w"));
            let workspace = wire::names::workspace_id(&scope);
            Spelling(format!(
                "azureml://{}/mlflow/v2.0{workspace}",
                call.base.host
            ))
        })
    }

    /// An answer with its artifact addresses in the plugin's spelling.
    pub async fn apply(&self, response: Response) -> Answer {
        let (mut parts, body) = response.into_parts();
        let bytes = body.collect().await;
        let bytes = bytes
            .map_err(|e| Problem::internal("an answer", &e))?
            .to_bytes();
        let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
            return Ok(Response::from_parts(parts, Body::from(bytes)));
        };
        self.spell(&mut value);
        parts.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(parts, Body::from(value.to_string())))
    }

    fn spell(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|v| self.spell(v)),
            Value::Object(map) => {
                for (name, inner) in map {
                    match inner {
                        // the user's own texts stay as they are
                        Value::String(text)
                            if ["artifact_uri", "root_uri", "source"].contains(&name.as_str()) =>
                        {
                            if let Some(theirs) = self.theirs(text) {
                                *text = theirs;
                            }
                        }
                        other => self.spell(other),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// `mlflow-artifacts:/runs/ID/PATH` → `azureml://…/experiments/-/runs/ID/artifacts/PATH`.
    fn theirs(&self, ours: &str) -> Option<String> {
        let mut parts = ours.strip_prefix(OURS)?.splitn(3, '/');
        let (kind, id, rest) = (parts.next()?, parts.next()?, parts.next());
        let (run, path) = match kind {
            "models" => {
                let (version, path) = rest?.split_once('/').unwrap_or((rest?, ""));
                (format!("{id}:{version}"), format!("{FILES}/{path}"))
            }
            _ => (id.to_owned(), rest.unwrap_or_default().to_owned()),
        };
        let whole = format!("{}/experiments/{ANY}/runs/{run}/artifacts/{path}", self.0);
        Some(whole.trim_end_matches('/').to_owned())
    }
}

/// What such an address means in ours (U2): `runs/ID/PATH`, `logged/ID/PATH` or `models/NAME/VERSION/PATH`. Blocks.
pub(super) fn ours(api: &Api, workspace: &Arc<Workspace>, theirs: &str) -> Option<String> {
    let (_host, path) = theirs.strip_prefix("azureml://")?.split_once('/')?;
    let (before, rest) = path.split_once("/runs/")?;
    if !(before.starts_with("mlflow/") && before.contains("/experiments/")) {
        return None; // a path of a datastore may have such a folder
    }
    let (run, rest) = rest.split_once("/artifacts").unwrap_or((rest, ""));
    Some(address(&root(api, workspace, run), rest.trim_matches('/')))
}

/// Whose artifacts the `{r}` of a route means.
fn root(api: &Api, workspace: &Arc<Workspace>, run: &str) -> String {
    if let Some((name, version)) = run.split_once(':') {
        return format!("models/{name}/{version}");
    }
    if logged::known(api, workspace, run).is_ok() {
        return format!("logged/{run}");
    }
    format!("runs/{run}")
}

/// Our address of a path in it.
fn address(root: &str, path: &str) -> String {
    let path = match root.starts_with("models/") {
        true => path.strip_prefix(FILES).unwrap_or(path),
        false => path,
    };
    format!("{root}/{}", path.trim_matches('/'))
}

fn locate(api: &Api, call: &Call, path: &str, purpose: For) -> Result<BlobPath, Problem> {
    let workspace = call.workspace(api)?;
    let root = root(api, &workspace, call.param("r"));
    if purpose == For::Write && root.starts_with("runs/") {
        let place = runs::find(api, &workspace, call.param("r"))?;
        runs::may_write(api, call, &place)?;
    }
    artifacts::locate(api, &workspace, &address(&root, path), purpose)
}

/// What is told of a file: how it is called, and an address that opens it (U3). The plugin looks for `.blob.SUFFIX/` in it.
fn content(api: &Api, call: &Call, name: &str, path: &BlobPath, rights: &str) -> Value {
    let sas = api
        .sas
        .sign(Scope::Blob(path.as_str()), rights, time::now());
    let uri = format!(
        "{}/storage/{}/.blob.{}/{}?{sas}",
        call.base.url(),
        wire::places::ACCOUNT,
        crate::plane::open::STORAGE_SUFFIX,
        crate::query::encode_path(path.as_str())
    );
    json!({
        "contentUri": uri,
        "origin": "ExperimentRun",
        "container": format!("dcid.{}", call.param("r")),
        "path": name,
        "tags": {},
    })
}

/// POST artifacts/batch/metadata: addresses to write files to.
pub(crate) fn batch(api: &Arc<Api>, call: &Call) -> Answer {
    (api.room)().map_err(Problem::full)?;
    let body: Value = call.json()?;
    let paths = body["paths"].as_array().map_or(&[][..], Vec::as_slice);
    if paths.is_empty() || paths.len() > MAX_FILES {
        return Err(Problem::bad(format!(
            "paths has {} entries, allowed are 1 to {MAX_FILES}",
            paths.len()
        ))
        .target("/paths"));
    }
    let (mut made, mut contents) = (Map::new(), Map::new());
    for entry in paths {
        let name = entry["path"].as_str().unwrap_or_default();
        if name.trim_matches('/').is_empty() {
            return Err(Problem::bad("a path is empty").target("/paths"));
        }
        let path = locate(api, call, name, For::Write)?;
        let container = format!("dcid.{}", call.param("r"));
        made.insert(
            name.to_owned(),
            json!({
                "artifactId": format!("ExperimentRun/{container}/{name}"),
                "origin": "ExperimentRun",
                "container": container,
                "path": name,
                "etag": null,
                "createdTime": show::stamp(time::now()),
            }),
        );
        contents.insert(name.to_owned(), content(api, call, name, &path, "rcw"));
    }
    Ok(reply::ok(&json!({
        "artifacts": made,
        "artifactContentInformation": contents,
        "errors": {},
    })))
}

/// GET artifacts/contentinfo?path=: the address of a file.
pub(crate) fn info(api: &Arc<Api>, call: &Call) -> Answer {
    let name = super::asked(call, "path")?;
    let path = locate(api, call, name, For::Read)?;
    if artifacts::is_file(api, &path)? != Some(true) {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "ResourceNotFound",
            format!(
                "run {} has no artifact {}",
                wire::names::shown(call.param("r")),
                wire::names::shown(name)
            ),
        ));
    }
    Ok(reply::ok(&content(api, call, name, &path, "r")))
}

/// GET artifacts: every file of the run, in pages.
pub(crate) fn list(api: &Arc<Api>, call: &Call) -> Answer {
    let folder = locate(api, call, "", For::Read)?;
    let after = call.query.get("continuationToken");
    let after = after.filter(|t| !t.is_empty());
    let before = match call.param("r").contains(':') {
        true => format!("{FILES}/"),
        false => String::new(),
    };
    let after = after.and_then(|name| folder.join(name.strip_prefix(&*before).unwrap_or(name)));
    let files = match api.control.blobs().list(&folder, after.as_ref(), PAGE) {
        Ok(files) => files,
        Err(control::BlobError::NotFound(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let name = |path: &BlobPath| {
        let inner = path.as_str().get(folder.as_str().len() + 1..);
        format!("{before}{}", inner.unwrap_or_default())
    };
    let last = files.last().filter(|_| files.len() == PAGE);
    let token = last.map(|(path, _)| name(path));
    let prefix = call.query.get("path").unwrap_or_default();
    let container = format!("dcid.{}", call.param("r"));
    let value: Vec<Value> = files
        .iter()
        .filter(|(path, _)| name(path).starts_with(prefix))
        .map(|(path, file)| {
            let mut entry = content(api, call, &name(path), path, "r");
            entry["artifactId"] = json!(format!("ExperimentRun/{container}/{}", name(path)));
            entry["etag"] = json!(file.etag);
            entry["createdTime"] = json!(show::stamp(file.modified));
            entry["size"] = json!(file.len);
            entry
        })
        .collect();
    let next = token.as_ref().map(|token| {
        format!(
            "{}{}?continuationToken={}",
            call.base.url(),
            call.path,
            crate::query::encode(token)
        )
    });
    Ok(reply::ok(
        &json!({"value": value, "continuationToken": token, "nextLink": next}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_spelled_for_the_plugin() {
        let spelling = Spelling("azureml://h/x".into());
        let mut answer = json!({"run": {"info": {"artifact_uri": "mlflow-artifacts:/runs/r1"}},
            "model": {"artifact_uri": "mlflow-artifacts:/models/m/2/a/b"},
            "tags": [{"key": "artifact_uri", "value": "mlflow-artifacts:/runs/r1"}]});
        spelling.spell(&mut answer);
        let at = "azureml://h/x/experiments/-/runs/";
        assert_eq!(
            answer["run"]["info"]["artifact_uri"],
            format!("{at}r1/artifacts")
        );
        assert_eq!(
            answer["model"]["artifact_uri"],
            format!("{at}m:2/artifacts/files/a/b")
        );
        assert_eq!(answer["tags"][0]["value"], "mlflow-artifacts:/runs/r1");
    }
}
