//! Definitions of roles as resources: Azure's, which are read, and those that users define.
//!
//! X1 who defines a role, or changes one, has that right at every scope where it may be held, before and after;
//! X2 a role that somebody holds is not deleted, and a changed one means the new thing for all who hold it.

use axum::http::StatusCode;
use control::Condition;
use model::{DocKey, Document, Kind};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::access::{
    Role,
    role::{self, built_in},
};

use super::{
    directory::Entries,
    gate::denied,
    manage::{again, before, roomy, withdraw, write},
};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// What stands between a scope and the id of a definition.
const DEFINITIONS: &str = "/providers/Microsoft.Authorization/roleDefinitions";
const WRITE: &str = "Microsoft.Authorization/roleDefinitions/write";
const DELETE: &str = "Microsoft.Authorization/roleDefinitions/delete";

/// The name that `$filter=roleName eq 'NAME'` asks for.
fn named(filter: &str) -> Result<Option<String>, Problem> {
    let filter = filter.trim();
    if filter.is_empty() || filter.eq_ignore_ascii_case("atScopeAndBelow()") {
        return Ok(None);
    }
    let name = filter
        .strip_prefix("roleName eq '")
        .and_then(|rest| rest.strip_suffix('\''));
    match name {
        Some(name) => Ok(Some(name.replace("''", "'"))),
        None => Err(Problem::user(format!(
            "$filter `{}` is not understood: roleName eq 'NAME' is",
            wire::names::shown(filter)
        ))),
    }
}

/// GET the roles that may be held at a scope, above it or below it.
pub(crate) fn definitions(api: &Arc<Api>, call: &Call) -> Answer {
    let scope = before(call, DEFINITIONS);
    let name = named(call.query.get("$filter").unwrap_or_default())?;
    let entries = api.identities.directory.look();
    let all = built_in().iter().chain(entries.roles());
    let views: Vec<Value> = all
        .filter(|role| role.is_near(&scope))
        .filter(|role| {
            name.as_ref()
                .is_none_or(|name| role.name.eq_ignore_ascii_case(name))
        })
        .map(|role| role::view(role))
        .collect();
    Ok(reply::ok(&json!({"value": views})))
}

fn missing(id: &str, scope: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "RoleDefinitionDoesNotExist",
        format!(
            "role definition {} does not exist at {}",
            wire::names::shown(id),
            wire::names::shown_all(scope)
        ),
    )
}

/// GET a definition.
pub(crate) fn definition(api: &Arc<Api>, call: &Call) -> Answer {
    let (scope, id) = (before(call, DEFINITIONS), call.param("r"));
    let entries = api.identities.directory.look();
    let mut all = built_in().iter().chain(entries.roles());
    let found = all.find(|role| role.id.eq_ignore_ascii_case(id) && role.is_near(&scope));
    let found = found.ok_or_else(|| missing(id, &scope))?;
    Ok(reply::ok(&role::view(found)))
}

/// One that users defined.
fn custom<'a>(entries: &'a Entries, id: &str) -> Option<&'a (Document, Arc<Role>)> {
    let mut all = entries.definitions().iter();
    all.find(|(_, role)| role.id.eq_ignore_ascii_case(id))
}

fn is_azures(id: &str) -> Result<(), Problem> {
    match built_in().iter().find(|r| r.id.eq_ignore_ascii_case(id)) {
        None => Ok(()),
        Some(role) => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "RoleDefinitionIsBuiltIn",
            format!("role {} is one of Azure's and stays as it is", role.name),
        )),
    }
}

/// X1.
fn may_everywhere(api: &Api, call: &Call, action: &str, role: &Role) -> Result<(), Problem> {
    let caller = call.caller.as_ref().ok_or_else(Problem::unauthorized)?;
    match role.scopes.iter().find(|at| !api.may(caller, action, at)) {
        None => Ok(()),
        Some(at) => Err(denied(caller, action, at)),
    }
}

/// PUT a definition: a new one, or a new meaning of one that is there.
pub(crate) async fn define(api: Arc<Api>, call: Call) -> Answer {
    let id = call.param("r").to_ascii_lowercase();
    is_azures(&id)?;
    let wanted = role::definition(&id, &call.json()?)?;
    let scope = before(&call, DEFINITIONS);
    if !wanted.is_near(&scope) {
        return Err(Problem::user(format!(
            "role definition {} is sent at {}, which is not among its assignableScopes",
            wire::names::shown(&wanted.name),
            wire::names::shown_all(&scope)
        ))
        .target("/properties/assignableScopes"));
    }
    may_everywhere(&api, &call, WRITE, &wanted)?;
    let _turn = api.identities.directory.writing.lock().await;
    let entries = api.identities.directory.look();
    let known = custom(&entries, &id);
    if let Some((_, known)) = known {
        may_everywhere(&api, &call, WRITE, known)?;
        let held = entries.assignments().iter().map(|(_, held)| held);
        if let Some(held) = held
            .filter(|held| held.role.id == id)
            .find(|held| !wanted.is_assignable(&held.scope))
        {
            return Err(Problem::user(format!(
                "role {} is held by {} at {}, which its assignableScopes would no longer cover",
                wire::names::shown(&wanted.name),
                held.principal,
                held.scope
            ))
            .target("/properties/assignableScopes"));
        }
    } else {
        roomy(entries.definitions().len(), "role definitions")?;
    }
    let mut others = built_in().iter().chain(entries.roles());
    if others.any(|r| r.id != id && r.name.eq_ignore_ascii_case(&wanted.name)) {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "RoleDefinitionWithSameNameExists",
            format!(
                "there is a role {} already",
                wire::names::shown(&wanted.name)
            ),
        ));
    }
    let (condition, status) = match known {
        Some((document, _)) => (Condition::Generation(document.generation), StatusCode::OK),
        None => (Condition::Absent, StatusCode::CREATED),
    };
    let key = DocKey::of_server(Kind::RoleDefinition, id.as_str());
    let document = write(&api, key, &role::document(&wanted), condition).await?;
    Ok(reply::document(status, &document, &role::view(&wanted)))
}

/// DELETE a definition that nobody holds (X2).
pub(crate) async fn undefine(api: Arc<Api>, call: Call) -> Answer {
    let (scope, id) = (before(&call, DEFINITIONS), call.param("r"));
    is_azures(id)?;
    let _turn = api.identities.directory.writing.lock().await;
    let entries = api.identities.directory.look();
    let Some((document, known)) = custom(&entries, id).filter(|(_, known)| known.is_near(&scope))
    else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    may_everywhere(&api, &call, DELETE, known)?;
    let mut held = entries.assignments().iter();
    if let Some((_, held)) = held.find(|(_, held)| held.role.id == known.id) {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "RoleDefinitionHasAssignments",
            format!(
                "role {} is held by {} at {}",
                wire::names::shown(&known.name),
                held.principal,
                held.scope
            ),
        )
        .hint("`zaffre role assignment delete` takes it back first"));
    }
    let view = role::view(known);
    withdraw(&api, document).await?;
    again(&api).await?;
    Ok(reply::ok(&view))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_a_role_or_is_refused() {
        assert_eq!(
            named("roleName eq 'It''s mine'").ok(),
            Some(Some("It's mine".into()))
        );
        assert_eq!(named("").ok(), Some(None));
        assert!(named("type eq 'x'").is_err());
    }
}
