//! Versions of registered models: assets of the workspace, made of what a run has left.

use axum::http::StatusCode;
use control::Condition;
use model::{Document, Workspace};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wire::{
    arm::{asset::name_and_version, field::Field},
    places::End,
    view,
};

use super::{
    artifacts::{self, For},
    asked, body, change, key,
    models::{
        Beside, FOLDER, STAGES, all, change_tag, edit, found, missing_version, name_of, properties,
        searched, stage, tags_sent, version_key, version_view,
    },
    plugin, stored,
};
use crate::{
    Api,
    arm::put,
    call::{Base, Call},
    problem::{Answer, Problem},
    reply,
};

/// How often a version whose number was just taken tries the next.
const MAX_TRIES: usize = 16;

/// GET model-versions/search.
pub(crate) fn search_versions(api: &Arc<Api>, call: &Call) -> Answer {
    let mut views = Vec::new();
    for model in all(api, &call.workspace(api)?)? {
        for version in &model.versions {
            views.push(version_view(version, &model.beside)?);
        }
    }
    let known = [
        "name",
        "run_id",
        "source_path",
        "source",
        "version_number",
        "version",
        "creation_timestamp",
        "last_updated_timestamp",
        "timestamp",
    ];
    let (page, next) = searched(call, views, &known, "last_updated_timestamp DESC")?;
    Ok(reply::ok(
        &json!({"model_versions": page, "next_page_token": next.unwrap_or_default()}),
    ))
}

/// Where a version's files lie, and the document's `modelUri`.
fn locate(
    api: &Api,
    workspace: &Arc<Workspace>,
    base: &Base,
    source: &str,
) -> Result<(String, &'static str), Problem> {
    let wrong = |rule: &str| {
        Problem::user(format!("source `{}` {rule}", wire::names::shown(source))).target("/source")
    };
    let address = if let Some(rest) = source.strip_prefix("mlflow-artifacts:") {
        rest.trim_start_matches('/').to_owned()
    } else if let Some(rest) = source.strip_prefix("runs:/") {
        format!("runs/{}", rest.trim_start_matches('/'))
    } else if let Some(rest) = source.strip_prefix("models:/") {
        let rest = rest.trim_start_matches('/');
        let folder = if rest.contains('/') {
            "models"
        } else {
            "logged"
        };
        format!("{folder}/{rest}")
    } else if let Some(address) = plugin::ours(api, workspace, source) {
        address
    } else if source.starts_with("azureml:") || source.starts_with("https://") {
        // The door for documents knows these (P2); what they are is for their writer to say.
        return Ok((source.to_owned(), "mlflow_model"));
    } else {
        return Err(wrong(
            "is none of runs:/ID/PATH, models:/…, mlflow-artifacts:/… and azureml://…",
        ));
    };
    let path = artifacts::locate(api, workspace, &address, For::Read)?;
    let (end, kind) = match artifacts::is_file(api, &path)? {
        None => return Err(wrong("has no files")),
        Some(true) => (End::File, "custom_model"),
        Some(false) => {
            let file = path.join("MLmodel").ok_or_else(|| wrong("is too long"))?;
            let is_mlflow = artifacts::is_file(api, &file)? == Some(true);
            (
                End::Folder,
                if is_mlflow {
                    "mlflow_model"
                } else {
                    "custom_model"
                },
            )
        }
    };
    // The container of an upload is in no datastore; its files have the address that they were uploaded to.
    let uri = api.places(workspace).uri(&path, end);
    let uri =
        uri.unwrap_or_else(|| format!("{}/storage/{}/{path}", base.url(), wire::places::ACCOUNT));
    Ok((uri, kind))
}

/// POST model-versions/create (G1).
pub(crate) async fn create_version(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let source = root.get("source").need_text()?.to_owned();
    let run = root.get("run_id").text()?.unwrap_or_default().to_owned();
    let (state, at, from) = (api.clone(), workspace.clone(), source.clone());
    let base = call.base.clone();
    let (uri, kind) = crate::blocking(move || locate(&state, &at, &base, &from)).await?;
    let mut ours = Map::new();
    for (name, value) in [
        ("mlflow.source", source.as_str()),
        ("mlflow.runId", run.as_str()),
        (
            "mlflow.runLink",
            root.get("run_link").text()?.unwrap_or_default(),
        ),
        (
            "mlflow.modelId",
            root.get("model_id").text()?.unwrap_or_default(),
        ),
    ] {
        if !value.is_empty() {
            ours.insert(name.to_owned(), json!(value));
        }
    }
    let mut document = json!({"properties": {
        "modelUri": uri,
        "modelType": kind,
        "description": root.get("description").text()?,
        "tags": tags_sent(&root)?,
        "properties": ours,
    }});
    if !run.is_empty() {
        document["properties"]["jobName"] = json!(run);
    }
    for _ in 0..MAX_TRIES {
        let model = found(&api, &workspace, name_of(&root)?).await?;
        let numbers = model
            .versions
            .iter()
            .map(|d| name_and_version(d.key.path.as_str()).1);
        let number = view::asset::next_version(numbers);
        let key = version_key(&workspace, &model.name, &number);
        match put::put(&api, &key, Condition::Absent, |before| {
            put::rendered(&key, &document, before)
        })
        .await
        {
            Ok(stored) => {
                let view = version_view(&stored.document, &model.beside)?;
                return Ok(reply::ok(&json!({"model_version": view})));
            }
            Err(problem) if problem.status == StatusCode::PRECONDITION_FAILED => {}
            Err(problem) => return Err(problem),
        }
    }
    Err(Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Contended",
        format!("{MAX_TRIES} numbers of versions were taken by others"),
    ))
}

fn version_asked(api: &Api, call: &Call) -> Result<(Document, Beside), Problem> {
    let workspace = call.workspace(api)?;
    let (name, version) = (asked(call, "name")?, asked(call, "version")?);
    let document = api.control.get(&version_key(&workspace, name, version))?;
    let document = document.ok_or_else(|| missing_version(name, version))?;
    let beside = stored(api, &key(&workspace, FOLDER, name))?.unwrap_or_default();
    Ok((document, beside))
}

/// GET model-versions/get.
pub(crate) fn get_version(api: &Arc<Api>, call: &Call) -> Answer {
    let (document, beside) = version_asked(api, call)?;
    Ok(reply::ok(
        &json!({"model_version": version_view(&document, &beside)?}),
    ))
}

/// GET model-versions/get-download-uri.
pub(crate) fn download_uri(api: &Arc<Api>, call: &Call) -> Answer {
    let (document, _) = version_asked(api, call)?;
    let address = format!("mlflow-artifacts:/models/{}", document.key.path);
    Ok(reply::ok(&json!({"artifact_uri": address})))
}

async fn edit_version(
    api: &Arc<Api>,
    call: &Call,
    body: &Value,
    make: impl Fn(&mut Value) -> Result<(), Problem>,
) -> Answer {
    let root = Field::root(body);
    let workspace = call.workspace(api)?;
    let (name, version) = (name_of(&root)?, root.get("version").need_text()?);
    let document = edit(api, &version_key(&workspace, name, version), make).await?;
    let beside = stored(api, &key(&workspace, FOLDER, name))?.unwrap_or_default();
    Ok(reply::ok(
        &json!({"model_version": version_view(&document, &beside)?}),
    ))
}

/// PATCH model-versions/update: the description.
pub(crate) async fn update_version(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let description = Field::root(&body)
        .get("description")
        .text()?
        .map(str::to_owned);
    edit_version(&api, &call, &body, |p| {
        p["description"] = json!(description);
        Ok(())
    })
    .await
}

/// DELETE model-versions/delete.
pub(crate) async fn delete_version(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let (name, version) = (name_of(&root)?, root.get("version").need_text()?);
    match put::remove(
        &api,
        version_key(&workspace, name, version),
        None,
        Condition::Any,
    )
    .await?
    {
        put::Removed::WasNotThere => return Err(missing_version(name, version)),
        put::Removed::Now => {}
    }
    let beside: Option<Beside> = stored(&api, &key(&workspace, FOLDER, name))?;
    if beside.is_some_and(|b| b.aliases.values().any(|v| v == version)) {
        change(
            &api,
            &key(&workspace, FOLDER, name),
            Condition::Any,
            |before: Option<Beside>| {
                let mut beside = before.unwrap_or_default();
                beside.aliases.retain(|_, v| v != version);
                Ok(beside)
            },
        )
        .await?;
    }
    Ok(reply::ok(&json!({})))
}

/// POST model-versions/transition-stage.
pub(crate) async fn transition(api: Arc<Api>, call: Call) -> Answer {
    let body = body(&call)?;
    let root = Field::root(&body);
    let workspace = call.workspace(&api)?;
    let to = root
        .get("stage")
        .choice(&STAGES)?
        .ok_or_else(|| root.get("stage").missing())?;
    if root
        .get("archive_existing_versions")
        .flag()?
        .unwrap_or(false)
    {
        let model = found(&api, &workspace, name_of(&root)?).await?;
        for document in &model.versions {
            if stage(&properties(document)?) == to {
                edit(&api, &document.key, |p| {
                    p["stage"] = json!("Archived");
                    Ok(())
                })
                .await?;
            }
        }
    }
    edit_version(&api, &call, &body, |p| {
        p["stage"] = json!(to);
        Ok(())
    })
    .await
}

/// POST model-versions/set-tag.
pub(crate) async fn set_version_tag(api: Arc<Api>, call: Call) -> Answer {
    change_tag(api, call, true, true).await
}

/// DELETE model-versions/delete-tag.
pub(crate) async fn delete_version_tag(api: Arc<Api>, call: Call) -> Answer {
    change_tag(api, call, true, false).await
}
