//! MLflow's REST contract of a workspace, as plain `mlflow` speaks it (wire §11).
//!
//! T1 every job is a run under its own name; what its user tags is the job's, so that every other client sees it;
//! T2 metrics are series (`Control::measured`); parameters and tags are documents: a batch is at most two writes, whatever
//!    is in it, and is answered when they are durable (I1);
//! T3 artifacts lie where the run history and `job download` have them.

pub(crate) mod artifacts;
pub(crate) mod experiments;
pub(crate) mod logged;
pub(crate) mod models;
pub(crate) mod plugin;
pub(crate) mod runs;
pub(crate) mod search;
pub(crate) mod versions;

pub(crate) use experiments::Names;

use axum::http::{StatusCode, Uri};
use control::{Condition, Page};
use model::{Declared, DocKey, Document, Kind, Workspace};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::arm::{Invalid, field::Field};

use crate::{
    ARM_BODY_LIMIT, Api,
    arm::{put, workspaces},
    call::Call,
    problem::Problem,
};

/// MLflow's code for a route that a server does not have: clients go on without it.
pub(crate) const NO_ENDPOINT: &str = "ENDPOINT_NOT_FOUND";
/// Documents of one page of the store.
const STEP: usize = 1000;

/// Whether a path is one of MLflow's.
pub(crate) fn holds(path: &str) -> bool {
    path.get(..8)
        .is_some_and(|p| p.eq_ignore_ascii_case("/mlflow/"))
}

/// Whether the contract is offered under this version: the one that the workspace names, and the one that clients make of it.
pub(crate) fn speaks(version: &str) -> bool {
    ["v1.0", "v2.0"].contains(&version)
}

/// What is said of a route of MLflow that is not offered.
pub(crate) fn nothing_here(uri: &Uri) -> Problem {
    // Behind the workspace, which every route begins with: what is left names what was wanted.
    let path = uri.path();
    let what = path.find("/api/").map_or(path, |at| &path[at + 1..]);
    not_offered(&wire::names::shown(what))
}

/// The refusal that clients go on without what they wanted after.
fn not_offered(what: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        NO_ENDPOINT,
        format!("this part of MLflow is not offered here: {what}"),
    )
}

/// The tag that tells a prompt from a model.
const IS_PROMPT: &str = "mlflow.prompt.is_prompt";

/// Refuses what MLflow keeps among registered models and is none: a prompt would be left there half made.
fn no_prompt(tags: &serde_json::Map<String, Value>) -> Result<(), Problem> {
    match tags.contains_key(IS_PROMPT) {
        true => Err(not_offered("prompts")),
        false => Ok(()),
    }
}

/// The body as JSON; none is an empty object.
fn body(call: &Call) -> Result<Value, Problem> {
    if call.body.is_empty() {
        return Ok(json!({}));
    }
    call.json()
}

/// A value of the query that must be there.
fn asked<'a>(call: &'a Call, name: &str) -> Result<&'a str, Problem> {
    let found = call.query.get(name).filter(|text| !text.is_empty());
    found.ok_or_else(|| Problem::bad(format!("{name} is required")).target(format!("/{name}")))
}

fn key(workspace: &Arc<Workspace>, folder: &str, name: &str) -> DocKey {
    DocKey::new(workspace, Kind::Tracked, format!("{folder}/{name}"))
}

/// The key of what is tracked of a job beside its document.
pub(crate) fn beside(job: &DocKey) -> DocKey {
    key(&job.workspace, runs::FOLDER, job.path.as_str())
}

/// What is stored under a key.
fn stored<T: DeserializeOwned>(api: &Api, key: &DocKey) -> Result<Option<T>, Problem> {
    api.control.get(key)?.map(|d| read(&d)).transpose()
}

fn read<T: DeserializeOwned>(document: &Document) -> Result<T, Problem> {
    serde_json::from_str(&document.json)
        .map_err(|e| Problem::internal(&format!("reading {}", document.key.path), &e))
}

/// Changes what is stored under a key: one durable write.
async fn change<T: DeserializeOwned + Serialize>(
    api: &Api,
    key: &DocKey,
    condition: Condition,
    make: impl Fn(Option<T>) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let stored = put::put(api, key, condition, |before| {
        let made = make(before.map(read).transpose()?)?;
        let json = serde_json::to_string(&made).map_err(|e| Problem::internal("writing", &e))?;
        if json.len() > ARM_BODY_LIMIT {
            return Err(Problem::too_large(ARM_BODY_LIMIT));
        }
        Ok(put::Draft {
            json: json.into(),
            declared: Declared::Other,
            warnings: Vec::new(),
        })
    })
    .await?;
    read(&stored.document)
}

/// Every document of a kind below `parent`, the newest first, at most `most`.
fn every(
    api: &Api,
    workspace: &Arc<Workspace>,
    kind: Kind,
    parent: Option<&str>,
    most: usize,
) -> Result<Vec<Document>, Problem> {
    let mut page: Page = workspaces::page(workspace, kind, parent, true);
    page.limit = STEP;
    let mut all = Vec::new();
    loop {
        let (documents, next) = api.control.page(&page)?;
        all.extend(documents);
        match next {
            Some(next) if all.len() < most => page.after = Some(next),
            Some(_) | None => return Ok(all),
        }
    }
}

/// A page of `all`: at most `max_results` from the one that `page_token` names, and the token of the next page.
fn paged<T>(
    mut all: Vec<T>,
    max_results: Option<i64>,
    token: Option<&str>,
    (default, most): (usize, usize),
) -> Result<(Vec<T>, Option<String>), Invalid> {
    let limit = match max_results {
        None | Some(0) => default,
        Some(n) => usize::try_from(n)
            .ok()
            .filter(|n| *n <= most)
            .ok_or_else(|| {
                Invalid::validation(
                    "/max_results",
                    format!("max_results is {n}, allowed are 1 to {most}"),
                )
            })?,
    };
    let from = match token.filter(|t| !t.is_empty()) {
        None => 0,
        Some(text) => text.parse::<usize>().map_err(|_| {
            Invalid::validation("/page_token", "page_token is not one that this server gave")
        })?,
    };
    let left = all.split_off(from.min(all.len()));
    let more = left.len() > limit;
    let page: Vec<T> = left.into_iter().take(limit).collect();
    Ok((page, more.then(|| (from + limit).to_string())))
}

/// `max_results` and `page_token` of a body.
fn page_of(root: &Field<'_>) -> Result<(Option<i64>, Option<String>), Invalid> {
    Ok((
        wire::mlflow::whole(&root.get("max_results"))?,
        root.get("page_token").text()?.map(str::to_owned),
    ))
}

/// The same of a query.
fn page_asked(call: &Call) -> Result<(Option<i64>, Option<String>), Problem> {
    let max = match call.query.get("max_results").filter(|t| !t.is_empty()) {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            Problem::bad(format!(
                "max_results is {}, it must be a number",
                wire::names::shown(text)
            ))
        })?),
    };
    Ok((max, call.query.get("page_token").map(str::to_owned)))
}
