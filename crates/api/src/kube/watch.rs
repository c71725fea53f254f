//! Watches: one JSON event for each change, until the time is over.
//!
//! H1 a watch holds a revision and nothing else: what happened after it is read from the published view, so a slow client
//!    costs no memory and one that falls behind the remembered changes is told to list again (410);
//! H2 nothing is looked at but when the loop has changed something, a bookmark is due, or the time is over.

use axum::{body::Body, http::StatusCode, response::Response};
use bytes::Bytes;
use futures_util::stream;
use model::view::{TypeChange, TypeRecord, Types};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, watch::Receiver},
    time::{Instant, timeout_at},
};
use wire::crd::{API_VERSION, KIND};

use super::{
    crd, object,
    read::{self, Form},
    refused::{Refused, Result},
    select::Selector,
    table,
};
use crate::{Api, call::Call, time};

/// Longest watch: Kubernetes' own default is between half an hour and an hour.
const LIMIT: Duration = Duration::from_secs(3600);
/// Between bookmarks, as in Kubernetes.
const BOOKMARK: Duration = Duration::from_secs(60);
/// Marks the end of what was there when the watch began.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// What is watched.
enum Source {
    Types,
    /// It never changes: only what is there at the beginning is told.
    Definition,
}

struct Watch {
    api: Arc<Api>,
    source: Source,
    form: Form,
    selector: Selector,
    /// Changes up to this one are told.
    revision: u64,
    /// Objects that the client knows, where a selector decides.
    known: BTreeSet<String>,
    /// Events of the beginning, not yet sent.
    first: Option<Bytes>,
    ends: Instant,
    /// When the next bookmark is due; never when none is wanted.
    bookmark: Option<Instant>,
    turns: Receiver<u64>,
    over: bool,
    _place: OwnedSemaphorePermit,
}

/// How a watch begins.
struct Beginning {
    /// All that is there is told first.
    initial: bool,
    /// And its end is marked.
    marked: bool,
}

/// A watch of instance types.
pub(super) fn types(api: &Arc<Api>, call: &Call, form: Form) -> Result<Response> {
    let revision = read::revision(call)?;
    let beginning = beginning(call, revision)?;
    let mut watch = open(api, call, form, Source::Types)?;
    let view = api.control.view();
    let now = &view.types;
    watch.revision = match revision {
        None => now.revision,
        Some(revision) => {
            read::not_from_tomorrow(revision, now)?;
            if beginning.initial {
                now.revision
            } else if now.after(revision).is_some() {
                revision
            } else {
                return Err(too_old(revision, now.revision));
            }
        }
    };
    let mut events = Vec::new();
    for record in now.records.values() {
        let object = object::of(record)?;
        if !watch.selector.takes(&object) {
            continue;
        }
        // Changed since: the change itself will tell.
        if beginning.initial || record.revision <= watch.revision {
            watch.known.insert(record.declared.name().to_owned());
        }
        if beginning.initial {
            events.extend(watch.line("ADDED", object));
        }
    }
    if beginning.marked {
        events.extend(watch.marked());
    }
    watch.first = Some(events.into()).filter(|events: &Bytes| !events.is_empty());
    Ok(respond(watch))
}

/// A watch of the one definition.
pub(super) fn definition(api: &Arc<Api>, call: &Call, form: Form) -> Result<Response> {
    let revision = read::revision(call)?;
    let beginning = beginning(call, revision)?;
    let mut watch = open(api, call, form, Source::Definition)?;
    watch.revision = 1;
    let shown = crd::shown(api);
    let mut events = Vec::new();
    if beginning.initial && watch.selector.takes(&shown) {
        events.extend(line("ADDED", &crd::presented(shown, form)));
    }
    if beginning.marked {
        events.extend(watch.marked());
    }
    watch.first = Some(events.into()).filter(|events: &Bytes| !events.is_empty());
    Ok(respond(watch))
}

fn beginning(call: &Call, revision: Option<u64>) -> Result<Beginning> {
    let bookmarks = flag(call, "allowWatchBookmarks");
    let given = call
        .query
        .get("sendInitialEvents")
        .filter(|text| !text.is_empty());
    let matched = call
        .query
        .get("resourceVersionMatch")
        .filter(|text| !text.is_empty());
    match (given, matched) {
        (None, None) => Ok(Beginning {
            initial: revision.is_none(),
            marked: false,
        }),
        (None, Some(_)) => Err(Refused::option(
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        (Some(_), Some("NotOlderThan")) => {
            let initial = flag(call, "sendInitialEvents");
            Ok(Beginning {
                initial,
                marked: initial && bookmarks,
            })
        }
        (Some(_), _) => Err(Refused::option(
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch must be NotOlderThan when sendInitialEvents is provided",
        )),
    }
}

fn flag(call: &Call, name: &str) -> bool {
    matches!(call.query.get(name), Some("true" | "1"))
}

fn open(api: &Arc<Api>, call: &Call, form: Form, source: Source) -> Result<Watch> {
    let place = api.kube.watches.clone().try_acquire_owned().map_err(|_| {
        let mut refused = Refused::new(429, "TooManyRequests", "too many watches are open");
        *refused.details = json!({"retryAfterSeconds": 1});
        refused
    })?;
    let seconds = match call.query.get("timeoutSeconds") {
        None | Some("" | "0") => LIMIT.as_secs(),
        Some(text) => text.parse().map_err(|_| {
            Refused::bad(format!(
                "timeoutSeconds is {}, it must be a number",
                wire::names::shown(text)
            ))
        })?,
    };
    let now = Instant::now();
    let mut turns = api.control.turns();
    turns.mark_changed();
    Ok(Watch {
        api: api.clone(),
        source,
        form,
        selector: Selector::of(&call.query)?,
        revision: 0,
        known: BTreeSet::new(),
        first: None,
        ends: now + Duration::from_secs(seconds).min(LIMIT),
        bookmark: flag(call, "allowWatchBookmarks").then(|| now + BOOKMARK),
        turns,
        over: false,
        _place: place,
    })
}

fn too_old(revision: u64, now: u64) -> Refused {
    read::expired(format!("too old resource version: {revision} ({now})"))
}

fn respond(watch: Watch) -> Response {
    let events = stream::unfold(watch, |mut watch| async move {
        let chunk = watch.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), watch))
    });
    let mut response = Response::new(Body::from_stream(events));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(
        axum::http::header::CONTENT_TYPE,
        axum::http::HeaderValue::from_static("application/json"),
    );
    response
}

fn line(kind: &str, object: &Value) -> Vec<u8> {
    let mut line = json!({"type": kind, "object": object})
        .to_string()
        .into_bytes();
    line.push(b'\n');
    line
}

impl Watch {
    /// The next events together; none when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            if self.over || self.api.control.stopping() || Instant::now() >= self.ends {
                return None;
            }
            if let Some(events) = self.changes() {
                return Some(events);
            }
            let due = self.bookmark.map_or(self.ends, |at| at.min(self.ends));
            match timeout_at(due, self.turns.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) if Instant::now() >= self.ends => return None,
                Err(_) => {
                    self.bookmark = Some(Instant::now() + BOOKMARK);
                    return Some(self.bookmarked(Map::new()).into());
                }
            }
        }
    }

    /// What happened since, if anything that the client wants to know.
    fn changes(&mut self) -> Option<Bytes> {
        self.turns.mark_unchanged();
        if matches!(self.source, Source::Definition) {
            return None;
        }
        let view = self.api.control.view();
        let types: &Types = &view.types;
        let Some(changes) = types.after(self.revision) else {
            self.over = true;
            let status = too_old(self.revision, types.revision).status();
            return Some(line("ERROR", &status).into());
        };
        let mut events = Vec::new();
        for (revision, change, record) in changes {
            match self.event(*revision, *change, record) {
                Ok(event) => events.extend(event),
                Err(refused) => {
                    self.over = true;
                    events.extend(line("ERROR", &refused.status()));
                    break;
                }
            }
        }
        self.revision = types.revision;
        Some(events.into()).filter(|events: &Bytes| !events.is_empty())
    }

    /// A change as this client sees it: what leaves its selection is gone for it.
    fn event(&mut self, revision: u64, change: TypeChange, record: &TypeRecord) -> Result<Vec<u8>> {
        let object = object::rendered(&record.json, revision)?;
        let name = record.declared.name();
        let takes = self.selector.takes(&object);
        let knew = self.known.contains(name);
        let kind = match (change, takes) {
            (TypeChange::Deleted, true) => "DELETED",
            (TypeChange::Deleted, false) if knew => "DELETED",
            (TypeChange::Added, true) => "ADDED",
            (TypeChange::Modified, true) if knew || !self.selector.by_labels() => "MODIFIED",
            (TypeChange::Modified, true) => "ADDED",
            (TypeChange::Modified, false) if knew => "DELETED",
            (TypeChange::Added | TypeChange::Modified | TypeChange::Deleted, false) => {
                return Ok(Vec::new());
            }
        };
        if kind == "DELETED" {
            self.known.remove(name);
        } else {
            self.known.insert(name.to_owned());
        }
        Ok(self.line(kind, object))
    }

    fn line(&self, kind: &str, object: Value) -> Vec<u8> {
        line(kind, &read::presented(object, self.form))
    }

    /// The bookmark behind what was there at the beginning.
    fn marked(&self) -> Vec<u8> {
        let mut annotations = Map::new();
        annotations.insert(INITIAL_END.into(), "true".into());
        self.bookmarked(annotations)
    }

    fn bookmarked(&self, annotations: Map<String, Value>) -> Vec<u8> {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), self.revision.to_string().into());
        if let Form::Table(beside) = self.form {
            return line(
                "BOOKMARK",
                &table::types(&[], metadata, beside, time::now()),
            );
        }
        metadata.insert("creationTimestamp".into(), Value::Null);
        if !annotations.is_empty() {
            metadata.insert("annotations".into(), annotations.into());
        }
        let (version, kind) = match self.source {
            Source::Types => (API_VERSION, KIND),
            Source::Definition => ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        };
        line(
            "BOOKMARK",
            &json!({"kind": kind, "apiVersion": version, "metadata": metadata}),
        )
    }
}
