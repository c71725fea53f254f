//! Writing a document: read what is there, check what was sent against it, write only if that is still there.
//!
//! W1 a write that was checked against one generation never replaces another: it is checked again instead;
//! W2 a condition that the client gave is decided on the same read;
//! W3 a document names who wrote it: the caller of the request, wherever in it the write is.

use axum::{
    http::{HeaderName, HeaderValue, StatusCode},
    response::Response,
};
use control::{Condition, Failure, Put, Request};
use model::{Declared, DocKey, Document, Kind};
use serde_json::Value;
use std::sync::Arc;
use wire::arm::Invalid;

use crate::{Api, problem::Problem};

/// Who has written what nobody asked for.
pub(crate) const BY: &str = "local";
/// Other writers that may come between before the client is told that the document is contended.
const MAX_TRIES: usize = 16;
/// Warnings of one answer, and the bytes of one: headers have limits on the way.
const MAX_WARNINGS: usize = 10;
const MAX_WARNING_BYTES: usize = 500;

tokio::task_local! {
    /// On whose behalf the request of this task is carried out: every document that it writes says so (W3).
    static ACTING: Arc<str>;
}

/// Carries out a request on behalf of `name`.
pub(crate) async fn acting_as<T>(name: Arc<str>, request: impl Future<Output = T>) -> T {
    ACTING.scope(name, request).await
}

/// Who writes.
pub(crate) fn by() -> Arc<str> {
    ACTING.try_with(Arc::clone).unwrap_or_else(|_| BY.into())
}

/// What is to be stored.
pub(crate) struct Draft {
    pub json: Arc<str>,
    pub declared: Declared,
    pub warnings: Vec<String>,
}

/// What was stored.
pub(crate) struct Stored {
    pub document: Document,
    pub existed: bool,
    pub warnings: Vec<String>,
}

impl Stored {
    /// 201 the first time, 200 later.
    pub fn status(&self) -> StatusCode {
        if self.existed {
            StatusCode::OK
        } else {
            StatusCode::CREATED
        }
    }
    /// The view of it, with its ETag and warnings.
    pub fn respond(self, view: &Value) -> Response {
        warn(
            crate::reply::document(self.status(), &self.document, view),
            &self.warnings,
        )
    }
}

/// Puts warnings into headers, as Kubernetes does; the command line prints them.
pub(crate) fn warn(mut response: Response, warnings: &[String]) -> Response {
    for warning in warnings.iter().take(MAX_WARNINGS) {
        let mut text = String::from("299 zaffre \"");
        for c in warning.chars() {
            if text.len() > MAX_WARNING_BYTES {
                text.push('…');
                break;
            }
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                c if c.is_control() => text.push(' '),
                c => text.push(c),
            }
        }
        text.push('"');
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response
                .headers_mut()
                .append(HeaderName::from_static("warning"), value);
        }
    }
    response
}

/// Writes the document that `draft` makes of what is there (W1, W2).
pub(crate) async fn put(
    api: &Api,
    key: &DocKey,
    condition: Condition,
    draft: impl Fn(Option<&Document>) -> Result<Draft, Problem>,
) -> Result<Stored, Problem> {
    for _ in 0..MAX_TRIES {
        let before = api.control.get(key)?;
        holds(condition, before.as_ref())?;
        let draft = draft(before.as_ref())?;
        let done = api
            .control
            .send(Request::Put(Put {
                key: before
                    .as_ref()
                    .map_or_else(|| key.clone(), |d| d.key.clone()),
                json: draft.json,
                declared: draft.declared,
                condition: before
                    .as_ref()
                    .map_or(Condition::Absent, |d| Condition::Generation(d.generation)),
                by: by(),
            }))
            .await;
        match done {
            Ok(done) => {
                let document = match done.document {
                    Some(document) => document,
                    None => api.control.get(key)?.ok_or_else(|| gone(key))?,
                };
                return Ok(Stored {
                    document,
                    existed: before.is_some(),
                    warnings: draft.warnings,
                });
            }
            Err(Failure::Precondition { .. }) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Err(contended(key))
}

pub(crate) fn holds(condition: Condition, before: Option<&Document>) -> Result<(), Problem> {
    let held = match (condition, before) {
        (Condition::Any, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => true,
        (Condition::Generation(n), Some(document)) => document.generation == n,
        (Condition::Absent, Some(_)) | (Condition::Present | Condition::Generation(_), None) => {
            false
        }
    };
    if held {
        return Ok(());
    }
    Err(Failure::Precondition {
        have: before.map(|d| d.generation),
    }
    .into())
}

fn contended(key: &DocKey) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "Conflict",
        format!(
            "{} is being written by {MAX_TRIES} others at the same time",
            key.path
        ),
    )
}

fn gone(key: &DocKey) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "Conflict",
        format!("{} was removed meanwhile", key.path),
    )
}

/// The draft of a body as sent, checked by `wire` (D1: stored byte for byte).
pub(crate) fn as_sent(
    key: &DocKey,
    text: &str,
    body: &Value,
    before: Option<&Document>,
) -> Result<Draft, Invalid> {
    let parsed = wire::arm::parse(key, body, before)?;
    Ok(Draft {
        json: text.into(),
        declared: parsed.declared,
        warnings: parsed.warnings,
    })
}

/// The draft of a body that we made out of what is there.
pub(crate) fn rendered(
    key: &DocKey,
    body: &Value,
    before: Option<&Document>,
) -> Result<Draft, Problem> {
    let parsed = wire::arm::parse(key, body, before)?;
    Ok(Draft {
        json: body.to_string().into(),
        declared: parsed.declared,
        warnings: parsed.warnings,
    })
}

/// The stored JSON.
pub(crate) fn body(document: &Document) -> Result<Value, Problem> {
    Ok(wire::arm::link::body(document)?)
}

/// JSON merge patch (RFC 7396).
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return;
    };
    for (key, value) in changes {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Removes a document; one that is not there is 204, with `If-Match` 412.
pub(crate) async fn remove(
    api: &Api,
    key: DocKey,
    children: Option<Kind>,
    condition: Condition,
) -> Result<Removed, Problem> {
    let before = api.control.get(&key)?;
    holds(condition, before.as_ref())?;
    let Some(before) = before else {
        return Ok(Removed::WasNotThere);
    };
    let sent = api
        .control
        .send(Request::Remove {
            key: before.key,
            children,
            condition,
        })
        .await;
    match sent {
        Ok(_) => Ok(Removed::Now),
        // Somebody else removed it since: decided as if that had been before.
        Err(Failure::Refused(model::Refusal::NotFound { .. })) => {
            holds(condition, None)?;
            Ok(Removed::WasNotThere)
        }
        Err(failure) => Err(failure.into()),
    }
}

/// What a removal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    Now,
    WasNotThere,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_patch_changes_what_it_names() {
        let mut doc = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(
            &mut doc,
            &json!({"a": {"b": null, "e": {"f": 3}}, "d": [2]}),
        );
        assert_eq!(doc, json!({"a": {"c": 2, "e": {"f": 3}}, "d": [2]}));
    }

    #[test]
    fn warnings_are_legal_headers() {
        let response = warn(
            crate::reply::ok("x"),
            &["size \"Ä\"\nis\\old".into(), "b".into()],
        );
        let all: Vec<_> = response.headers().get_all("warning").iter().collect();
        assert_eq!(all.len(), 2);
        assert_eq!(
            all[0].as_bytes(),
            "299 zaffre \"size \\\"Ä\\\" is\\\\old\"".as_bytes()
        );
    }
}
