//! Identities and role assignments as resources. A secret is in the one answer that made it, and nowhere else.

use axum::{http::StatusCode, response::Response};
use control::{Condition, Failure, Put, Request};
use model::{Declared, DocKey, Document, Kind};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::access::{self, Assignment, Identity, OUTSIDE, OWNER, covers};

use super::{directory::MAX_ENTRIES, secret};
use crate::{
    Api,
    arm::put,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// What stands between a scope and the name of an assignment.
const ASSIGNMENTS: &str = "/providers/Microsoft.Authorization/roleAssignments";

fn no_identity(name: &str) -> Problem {
    Problem::missing(format!(
        "identity {} does not exist",
        wire::names::shown(name)
    ))
}

/// GET all identities.
pub(crate) fn identities(api: &Arc<Api>, _call: &Call) -> Answer {
    let entries = api.identities.directory.look();
    let all = entries.identities();
    let views: Vec<Value> = all
        .iter()
        .map(|(document, identity)| access::identity_view(document, identity))
        .collect();
    Ok(reply::ok(&json!({"value": views})))
}

/// GET an identity.
pub(crate) fn identity(api: &Arc<Api>, call: &Call) -> Answer {
    let entries = api.identities.directory.look();
    let name = call.param("n");
    let (document, identity) = entries.identity(name).ok_or_else(|| no_identity(name))?;
    let view = access::identity_view(document, identity);
    Ok(reply::document(StatusCode::OK, document, &view))
}

/// PUT a new identity: answered with its secret.
pub(crate) async fn create(api: Arc<Api>, call: Call) -> Answer {
    let name = call.param("n");
    access::check_name("identity", name)?;
    if name.eq_ignore_ascii_case(OWNER) {
        return Err(Problem::user(format!(
            "identity {OWNER} is who holds the server's own token, and cannot be made"
        )));
    }
    let body: Value = match call.body.is_empty() {
        true => Value::Null,
        false => call.json()?,
    };
    let kind = access::identity_kind(&body)?;
    let _turn = api.identities.directory.writing.lock().await;
    let entries = api.identities.directory.look();
    if entries.identity(name).is_some() {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "Conflict",
            format!("identity {name} exists"),
        )
        .hint("`zaffre identity rotate` gives it a new secret"));
    }
    roomy(entries.identities().len(), "identities")?;
    let made = fresh().await?;
    let document = access::identity_document(kind, &made.id, &made.digest);
    let key = DocKey::of_server(Kind::Identity, name);
    let document = write(&api, key, &document, Condition::Absent).await?;
    with_secret(StatusCode::CREATED, &document, &made.secret)
}

/// POST a new secret: the old one, and every token that was got with it, is worth nothing from now on (U3).
pub(crate) async fn rotate(api: Arc<Api>, call: Call) -> Answer {
    let name = call.param("n");
    let _turn = api.identities.directory.writing.lock().await;
    let entries = api.identities.directory.look();
    let (before, identity) = entries.identity(name).ok_or_else(|| no_identity(name))?;
    let made = fresh().await?;
    let document = access::identity_document(identity.kind, &made.id, &made.digest);
    let condition = Condition::Generation(before.generation);
    let document = write(&api, before.key.clone(), &document, condition).await?;
    with_secret(StatusCode::OK, &document, &made.secret)
}

/// DELETE an identity, and first its roles: one of the same name later has none of them.
pub(crate) async fn remove(api: Arc<Api>, call: Call) -> Answer {
    let _turn = api.identities.directory.writing.lock().await;
    let entries = api.identities.directory.look();
    let name = call.param("n");
    let Some((document, _)) = entries.identity(name) else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    for (assignment, of) in entries.assignments() {
        if of.principal.eq_ignore_ascii_case(name) {
            withdraw(&api, assignment).await?;
        }
    }
    withdraw(&api, document).await?;
    again(&api).await?;
    Ok(reply::empty(StatusCode::OK))
}

/// The scope that the path of an assignment, or of a list of them, names.
fn scope(call: &Call) -> String {
    before(call, ASSIGNMENTS)
}

/// The scope that stands before a provider's part of the path.
pub(super) fn before(call: &Call, part: &str) -> String {
    let path = percent_encoding::percent_decode_str(&call.path).decode_utf8_lossy();
    let lower = path.to_ascii_lowercase();
    let end = lower.rfind(&part.to_ascii_lowercase());
    format!("/{}", path[..end.unwrap_or_default()].trim_matches('/'))
}

fn same(a: &str, b: &str) -> bool {
    covers(a, b) && covers(b, a)
}

/// GET the assignments at a scope, above it and below it.
pub(crate) fn assignments(api: &Arc<Api>, call: &Call) -> Answer {
    let scope = scope(call);
    let entries = api.identities.directory.look();
    let near = |a: &Assignment| covers(&a.scope, &scope) || covers(&scope, &a.scope);
    let views: Vec<Value> = entries
        .assignments()
        .iter()
        .filter(|(_, assignment)| near(assignment))
        .map(|(document, assignment)| access::assignment_view(document, assignment))
        .collect();
    Ok(reply::ok(&json!({"value": views})))
}

/// GET an assignment.
pub(crate) fn assignment(api: &Arc<Api>, call: &Call) -> Answer {
    let scope = scope(call);
    let entries = api.identities.directory.look();
    let (document, assignment) = found(entries.assignments(), call.param("a"), &scope)
        .ok_or_else(|| no_assignment(call.param("a"), &scope))?;
    let view = access::assignment_view(document, assignment);
    Ok(reply::document(StatusCode::OK, document, &view))
}

fn found<'a>(
    all: &'a [(Document, Assignment)],
    name: &str,
    scope: &str,
) -> Option<&'a (Document, Assignment)> {
    all.iter().find(|(document, assignment)| {
        document.key.path.as_str().eq_ignore_ascii_case(name) && same(&assignment.scope, scope)
    })
}

fn no_assignment(name: &str, scope: &str) -> Problem {
    Problem::missing(format!(
        "role assignment {} does not exist at {}",
        wire::names::shown(name),
        wire::names::shown_all(scope)
    ))
}

/// PUT an assignment. One is never changed: the same again is answered with what is there.
pub(crate) async fn assign(api: Arc<Api>, call: Call) -> Answer {
    let name = call.param("a");
    access::check_name("role assignment", name)?;
    let body: Value = call.json()?;
    let _turn = api.identities.directory.writing.lock().await;
    let entries = api.identities.directory.look();
    let roles: Vec<Arc<access::Role>> = entries.roles().cloned().collect();
    let wanted = access::assignment(&scope(&call), &body, &roles)?;
    let principal = &wanted.principal;
    if !principal.starts_with(OUTSIDE) && entries.identity(principal).is_none() {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "PrincipalNotFound",
            format!("identity {principal} does not exist"),
        )
        .target("/properties/principalId")
        .hint("`zaffre identity list` shows who there is"));
    }
    let all = entries.assignments();
    if let Some((document, known)) = all.iter().find(|(_, known)| {
        known.role == wanted.role
            && known.principal.eq_ignore_ascii_case(principal)
            && same(&known.scope, &wanted.scope)
    }) {
        let view = access::assignment_view(document, known);
        return Ok(reply::document(StatusCode::OK, document, &view));
    }
    roomy(all.len(), "role assignments")?;
    let key = DocKey::of_server(Kind::RoleAssignment, name);
    let document = access::assignment_document(&wanted);
    let document = write(&api, key, &document, Condition::Absent).await?;
    let view = access::assignment_view(&document, &wanted);
    Ok(reply::document(StatusCode::CREATED, &document, &view))
}

/// DELETE an assignment.
pub(crate) async fn unassign(api: Arc<Api>, call: Call) -> Answer {
    let _turn = api.identities.directory.writing.lock().await;
    let entries = api.identities.directory.look();
    let Some((document, assignment)) = found(entries.assignments(), call.param("a"), &scope(&call))
    else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    let view = access::assignment_view(document, assignment);
    withdraw(&api, document).await?;
    again(&api).await?;
    Ok(reply::ok(&view))
}

pub(super) fn roomy(there: usize, what: &str) -> Result<(), Problem> {
    if there < MAX_ENTRIES {
        return Ok(());
    }
    Err(Problem::user(format!(
        "there are {there} {what} already, allowed are {MAX_ENTRIES}"
    )))
}

async fn fresh() -> Result<secret::Fresh, Problem> {
    crate::blocking(|| secret::fresh().map_err(|e| Problem::internal("a new secret", &e))).await
}

/// Writes a document, and answers once it is durable and in force (Y1). The caller holds the turn.
pub(super) async fn write(
    api: &Arc<Api>,
    key: DocKey,
    document: &Value,
    condition: Condition,
) -> Result<Document, Problem> {
    let write = Put {
        key: key.clone(),
        json: document.to_string().into(),
        declared: Declared::Other,
        condition,
        by: put::by(),
    };
    let done = api.control.send(Request::Put(write)).await;
    let done = done.map_err(|failure| match failure {
        Failure::Precondition { .. } => Problem::new(
            StatusCode::CONFLICT,
            "Conflict",
            format!("{} exists, and is something else", key.path),
        ),
        other => other.into(),
    })?;
    again(api).await?;
    match done.document {
        Some(document) => Ok(document),
        None => api
            .control
            .get(&key)?
            .ok_or_else(|| Problem::internal("the write", &"its document is not there")),
    }
}

pub(super) async fn withdraw(api: &Api, document: &Document) -> Result<(), Problem> {
    let sent = api
        .control
        .send(Request::Remove {
            key: document.key.clone(),
            children: None,
            condition: Condition::Any,
        })
        .await;
    match sent {
        Ok(_) | Err(Failure::Refused(model::Refusal::NotFound { .. })) => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

pub(super) async fn again(api: &Arc<Api>) -> Result<(), Problem> {
    let api = api.clone();
    crate::blocking(move || Ok(api.identities.directory.read(&api.control)?)).await
}

fn with_secret(status: StatusCode, document: &Document, secret: &str) -> Result<Response, Problem> {
    let identity: Identity = access::identity(document)?;
    let mut view = access::identity_view(document, &identity);
    view["properties"]["secret"] = secret.into();
    let response = reply::document(status, document, &view);
    Ok(reply::with(response, "cache-control", "no-store"))
}
