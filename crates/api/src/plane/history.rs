//! Run history: what `jobs.stream`, `jobs.download` and the children of a batch job are made of (wire §6).
//!
//! H1 logs are links with a signature for one blob each: whoever has the link reads that file and no other;
//! H2 a stream of a run that has ended already prints its log: the first look at it is answered `Finalizing`, because the SDK
//!    prints only while a run is in progress. Looks are remembered for a short time and in a bounded number.

use control::Condition;
use model::{BlobPath, DocKey, Kind};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};
use wire::{arm::link::child_of, places::Places, view::history as view};

use crate::{
    Api,
    access::Scope,
    arm::jobs::{self, Found},
    call::{Base, Call},
    problem::{Answer, Problem},
    reply, show, time,
};

/// Looks that are remembered; more streams than that at once print nothing when their run has ended before.
const MAX_LOOKS: usize = 4096;
/// A look is part of the same stream for this long; clients ask at most a minute apart.
const STREAM_MS: u64 = 120_000;
/// Log files of one answer; a run has two per node and two per worker.
const MAX_LOGS: usize = 2000;
/// Artifacts of one page.
const ARTIFACTS: usize = 500;

/// Runs that were looked at a moment ago (H2).
#[derive(Default)]
pub(crate) struct FirstCalls(Mutex<HashMap<String, u64>>);

impl FirstCalls {
    /// Whether this look at a run shall be answered as if the run were still finishing.
    fn first(&self, run: &str, ended: bool, now: u64) -> bool {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let streaming = looks
            .get(run)
            .is_some_and(|at| now < at.saturating_add(STREAM_MS));
        if ended && streaming {
            // The stream takes its end; the next look begins another one.
            looks.remove(run);
            return false;
        }
        if looks.len() >= MAX_LOOKS {
            looks.retain(|_, at| now < at.saturating_add(STREAM_MS));
        }
        if looks.len() >= MAX_LOOKS {
            looks.clear();
        }
        looks.insert(run.to_owned(), now);
        ended
    }
}

fn find(api: &Api, call: &Call, name: &str) -> Result<Found, Problem> {
    jobs::find(api, &call.key(api, Kind::Job, name)?)
}

/// GET runs/{id}.
pub(crate) fn run(api: &Arc<Api>, call: &Call) -> Answer {
    let found = find(api, call, call.param("r"))?;
    Ok(reply::ok(&view::run(
        &show::site(api, &call.base),
        &show::of(&found),
        show::which(&found),
    )))
}

/// GET runs/{id}/details.
pub(crate) fn details(api: &Arc<Api>, call: &Call) -> Answer {
    let found = find(api, call, call.param("r"))?;
    let w = found.id.workspace();
    let run = format!(
        "{}/{}/{}/{}",
        w.subscription,
        w.group,
        w.name,
        call.param("r")
    )
    .to_ascii_lowercase();
    let ended = found.run.as_ref().is_some_and(|r| r.state.is_done());
    let job = show::of(&found);
    let status = if api.finalizing.first(&run, ended, time::now().0) {
        "Finalizing"
    } else {
        job.status()
    };
    let logs = logs(api, &call.base, &found)?;
    Ok(reply::ok(&view::details(
        &job,
        show::which(&found),
        status,
        &logs,
    )))
}

/// The names under which the artifacts of a run lie: its own and, of a batch run, the one of its step.
fn folders(places: &Places, found: &Found) -> Vec<BlobPath> {
    let name = found.id.name();
    let is_batch = found.run.as_ref().is_some_and(|r| r.is_batch_job());
    let names = match (is_batch, found.child) {
        (true, true) => vec![child_of(name)],
        (true, false) => vec![name.to_owned(), child_of(name)],
        (false, _) => vec![name.to_owned()],
    };
    names
        .iter()
        .filter_map(|n| places.artifacts_of(n))
        .collect()
}

/// Log files by the name that the SDK shows, each with its link (H1).
fn logs(api: &Api, base: &Base, found: &Found) -> Result<BTreeMap<String, String>, Problem> {
    let places = api.places(found.id.workspace());
    let mut out = BTreeMap::new();
    for folder in folders(&places, found) {
        for part in ["user_logs", "logs", "azureml-logs"] {
            let Some(below) = folder.join(part) else {
                continue;
            };
            let files = match api.control.blobs().list(&below, None, MAX_LOGS) {
                Ok(files) => files,
                Err(control::BlobError::NotFound(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            for (path, _) in files {
                let Some(name) = path.as_str().get(folder.as_str().len() + 1..) else {
                    continue;
                };
                out.entry(name.to_owned())
                    .or_insert_with(|| link(api, base, &path));
            }
        }
    }
    Ok(out)
}

/// A URL that reads one blob.
fn link(api: &Api, base: &Base, path: &BlobPath) -> String {
    let sas = api.sas.sign(Scope::Blob(path.as_str()), "r", time::now());
    format!(
        "{}/storage/{}/{}?{sas}",
        base.url(),
        wire::places::ACCOUNT,
        crate::query::encode_path(path.as_str())
    )
}

/// GET runs/{id}/children: the step of a batch run, the steps of a pipeline, the trials of a sweep.
pub(crate) fn children(api: &Arc<Api>, call: &Call) -> Answer {
    let found = find(api, call, call.param("r"))?;
    if found.child {
        return Ok(reply::ok(
            &json!({"value": [], "continuationToken": null, "nextLink": null}),
        ));
    }
    let children = jobs::children(api, &found)?;
    let made: Vec<_> = children.iter().map(show::of).collect();
    Ok(reply::ok(&view::children(
        &show::site(api, &call.base),
        &show::of(&found),
        &made,
    )))
}

/// POST rundata.
pub(crate) fn rundata(api: &Arc<Api>, call: &Call) -> Answer {
    let body: Value = call.json()?;
    let name = body["runId"]
        .as_str()
        .ok_or_else(|| Problem::bad("runId is required").target("/runId"))?;
    let found = find(api, call, name)?;
    Ok(reply::ok(&view::rundata(
        &show::site(api, &call.base),
        &show::of(&found),
        show::which(&found),
    )))
}

/// PATCH runs/{id}: display name, description, tags, properties, archived.
pub(crate) async fn patch(api: Arc<Api>, call: Call) -> Answer {
    let patch: Value = call.json()?;
    let found = find(&api, &call, call.param("r"))?;
    jobs::change(&api, &DocKey::job(&found.id), Condition::Any, &patch).await?;
    let found = find(&api, &call, call.param("r"))?;
    Ok(reply::ok(&view::run(
        &show::site(&api, &call.base),
        &show::of(&found),
        show::which(&found),
    )))
}

/// GET runs/{id}/artifacts: names and sizes, `path` narrows them.
pub(crate) fn artifacts(api: &Arc<Api>, call: &Call) -> Answer {
    let found = find(api, call, call.param("r"))?;
    let places = api.places(found.id.workspace());
    let prefix = call.query.get("path").unwrap_or_default();
    let after = call
        .query
        .get("continuationToken")
        .filter(|t| !t.is_empty());
    let Some(folder) = places.artifacts_of(call.param("r")) else {
        return Err(jobs::missing(&DocKey::job(&found.id)));
    };
    let after = after.and_then(|name| folder.join(name));
    let files = match api.control.blobs().list(&folder, after.as_ref(), ARTIFACTS) {
        Ok(files) => files,
        Err(control::BlobError::NotFound(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let name = |path: &BlobPath| {
        path.as_str()
            .get(folder.as_str().len() + 1..)
            .unwrap_or_default()
            .to_owned()
    };
    let token = (files.len() == ARTIFACTS)
        .then(|| files.last().map(|(path, _)| name(path)))
        .flatten();
    let container = format!("dcid.{}", call.param("r"));
    let value: Vec<Value> = files
        .iter()
        .filter(|(path, _)| name(path).starts_with(prefix))
        .map(|(path, info)| {
            json!({
                "artifactId": format!("ExperimentRun/{container}/{}", name(path)),
                "origin": "ExperimentRun",
                "container": container,
                "path": name(path),
                "etag": info.etag,
                "createdTime": show::stamp(info.modified),
                "size": info.len,
                "contentUri": link(api, &call.base, path),
            })
        })
        .collect();
    Ok(reply::ok(
        &json!({"value": value, "continuationToken": token, "nextLink": null}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_an_ended_run_looks_once_more() {
        let calls = FirstCalls::default();
        assert!(calls.first("r", true, 0), "first look: finishing");
        assert!(!calls.first("r", true, 2000), "second look: ended");
        assert!(calls.first("r", true, 9000), "another stream begins");

        assert!(
            !calls.first("live", false, 0),
            "a run in progress shows what it is"
        );
        assert!(
            !calls.first("live", true, 60_000),
            "its stream ends without another look"
        );

        assert!(!calls.first("left", false, 0));
        assert!(
            calls.first("left", true, STREAM_MS + 1),
            "that stream was given up long ago"
        );
    }

    #[test]
    fn looks_are_bounded() {
        let calls = FirstCalls::default();
        for i in 0..3 * MAX_LOOKS {
            calls.first(&i.to_string(), true, 0);
        }
        assert!(calls.0.lock().unwrap().len() <= MAX_LOOKS);
    }
}
