//! Who may do what, as Azure spells it: roles, their actions, scopes; and the documents of identities and role assignments.
//!
//! Q1 `*` in an action stands for any text; `/*/` also for a single slash, so `workspaces/*/read` reads the workspace too;
//! Q2 a scope covers itself and what lies below it, segment by segment and without case;
//! Q3 a view of an identity never has the digests of its secrets (I9).

pub mod role;

pub use role::{DATA_SCIENTIST, Role};

use crate::{
    arm::{Invalid, link::body},
    names::{did_you_mean, shown},
};
use model::Document;
use serde_json::{Value, json};
use std::sync::Arc;

/// Longest name of an identity or an assignment.
pub const MAX_NAME: usize = 64;
/// Longest scope: as long as Azure's longest ids.
pub const MAX_SCOPE: usize = 1024;
/// The identity that is the server's own token; it may do everything and has no document.
pub const OWNER: &str = "zaffre";
/// What the name of a person or program begins with whose tokens another issuer has signed.
pub const OUTSIDE: &str = "oidc:";

/// Whether what lies at `resource` lies at or below `scope` (Q2).
pub fn covers(scope: &str, resource: &str) -> bool {
    let mut below = segments(resource);
    segments(scope).all(|s| below.next().is_some_and(|r| r.eq_ignore_ascii_case(s)))
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// What an identity stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityKind {
    /// A program: Azure's service principal.
    Service,
    /// A person.
    User,
}

impl IdentityKind {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            IdentityKind::Service => "service",
            IdentityKind::User => "user",
        }
    }
}

/// An identity as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name, which is its client id.
    pub name: String,
    /// What it stands for.
    pub kind: IdentityKind,
    /// Which secret it has: tokens that another one got are worth nothing.
    pub secret_id: String,
    /// The argon2 digest of the secret.
    pub digest: String,
}

/// Checks the name of an identity or an assignment (`what`).
pub fn check_name(what: &str, name: &str) -> Result<(), Invalid> {
    let legal = (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.@".contains(&b));
    if !legal {
        return Err(Invalid::validation(
            "/name",
            format!(
                "{what} name `{}` is not 1 to {MAX_NAME} letters, digits, - _ . and @, a letter or digit first",
                shown(name)
            ),
        ));
    }
    Ok(())
}

/// What a client may say of a new identity: its kind.
pub fn identity_kind(body: &Value) -> Result<IdentityKind, Invalid> {
    let properties = &body["properties"];
    let kind = match properties["kind"].as_str() {
        None if properties["kind"].is_null() => IdentityKind::Service,
        Some("service") => IdentityKind::Service,
        Some("user") => IdentityKind::User,
        _ => {
            return Err(Invalid::validation(
                "/properties/kind",
                format!(
                    "kind {} is neither \"service\" nor \"user\"",
                    properties["kind"]
                ),
            ));
        }
    };
    if let Some(other) = properties
        .as_object()
        .and_then(|p| p.keys().find(|key| *key != "kind"))
    {
        return Err(Invalid::validation(
            format!("/properties/{}", shown(other)),
            format!("an identity has no field `{}`, only kind", shown(other)),
        ));
    }
    Ok(kind)
}

/// The document of an identity.
pub fn identity_document(kind: IdentityKind, secret_id: &str, digest: &str) -> Value {
    json!({"properties": {
        "kind": kind.word(),
        "secrets": [{"id": secret_id, "argon2": digest}],
    }})
}

/// Reads the document of an identity.
pub fn identity(document: &Document) -> Result<Identity, Invalid> {
    let body = body(document)?;
    let properties = &body["properties"];
    let damaged = |field: &str| {
        Invalid::validation(
            format!("/properties/{field}"),
            format!("the document of identity {} is damaged", document.key.path),
        )
    };
    let secret = &properties["secrets"][0];
    let text = |field: &str| secret[field].as_str().map(str::to_owned);
    Ok(Identity {
        name: document.key.path.to_string(),
        kind: match properties["kind"].as_str() {
            Some("service") => IdentityKind::Service,
            Some("user") => IdentityKind::User,
            _ => return Err(damaged("kind")),
        },
        secret_id: text("id").ok_or_else(|| damaged("secrets"))?,
        digest: text("argon2").ok_or_else(|| damaged("secrets"))?,
    })
}

/// What is shown of an identity (Q3).
pub fn identity_view(document: &Document, identity: &Identity) -> Value {
    json!({
        "id": format!("/identities/{}", identity.name),
        "name": identity.name,
        "type": "Zaffre/identities",
        "properties": {
            "kind": identity.kind.word(),
            "clientId": identity.name,
            "principalId": principal_id(&identity.name),
            "secretId": identity.secret_id,
        },
        "systemData": crate::view::envelope::system_data(document),
    })
}

/// The object id of an identity: a stable UUID of its name.
pub fn principal_id(name: &str) -> String {
    crate::view::envelope::uuid_of(&format!("identity/{}", name.to_ascii_lowercase()))
}

/// A role that an identity has at a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Whose.
    pub principal: String,
    /// Which role.
    pub role: Arc<Role>,
    /// Where, and below.
    pub scope: String,
}

impl Assignment {
    /// Whether it lets `principal` do `action` at `resource`.
    pub fn lets(&self, principal: &str, action: &str, resource: &str) -> bool {
        self.principal.eq_ignore_ascii_case(principal)
            && covers(&self.scope, resource)
            && self.role.allows(action)
    }
}

/// Reads what a client sends for an assignment at `scope`; `custom` are the roles that users have defined.
pub fn assignment(scope: &str, body: &Value, custom: &[Arc<Role>]) -> Result<Assignment, Invalid> {
    let properties = &body["properties"];
    let text = |field: &str| {
        properties[field].as_str().ok_or_else(|| {
            Invalid::validation(
                format!("/properties/{field}"),
                format!("{field} of a role assignment is missing or no text"),
            )
        })
    };
    let wanted = text("roleDefinitionId")?;
    let role = Role::find(wanted, custom).ok_or_else(|| {
        let known: Vec<Arc<Role>> = role::built_in().iter().chain(custom).cloned().collect();
        let names = known.iter().map(|r| r.name.as_str());
        let refused = Invalid::validation(
            "/properties/roleDefinitionId",
            format!("role `{}` does not exist", shown(wanted)),
        );
        let all: Vec<&str> = names.clone().collect();
        match did_you_mean(wanted, names) {
            Some(near) => refused.hint(format!("did you mean `{near}`?")),
            None => refused.hint(format!("there are {}", all.join(", "))),
        }
    })?;
    let principal = text("principalId")?;
    match principal.strip_prefix(OUTSIDE) {
        Some(subject) if !subject.is_empty() && principal.len() <= 4 * MAX_NAME => {}
        Some(_) => {
            return Err(Invalid::validation(
                "/properties/principalId",
                format!("`{OUTSIDE}` is followed by a subject of the other issuer"),
            ));
        }
        None => check_name("identity", principal)?,
    }
    check_scope("/properties/scope", scope)?;
    if !role.is_assignable(scope) {
        return Err(Invalid::validation(
            "/properties/roleDefinitionId",
            format!(
                "role `{}` is assignable at {} and below, not at {}",
                shown(&role.name),
                role.scopes.join(", "),
                shown(scope)
            ),
        ));
    }
    Ok(Assignment {
        principal: principal.to_owned(),
        role,
        scope: plain_scope(scope),
    })
}

/// A scope with one slash before each of its parts.
fn plain_scope(scope: &str) -> String {
    format!("/{}", segments(scope).collect::<Vec<_>>().join("/"))
}

/// Refuses a scope that nothing lies at; `at` is the field that names it.
fn check_scope(at: &str, scope: &str) -> Result<(), Invalid> {
    const FIXED: [(usize, &str); 4] = [
        (0, "subscriptions"),
        (2, "resourceGroups"),
        (4, "providers"),
        (6, "workspaces"),
    ];
    let parts: Vec<&str> = segments(scope).collect();
    let fits = scope.len() <= MAX_SCOPE
        && parts.len().is_multiple_of(2)
        && FIXED
            .iter()
            .all(|(at, word)| parts.get(*at).is_none_or(|p| p.eq_ignore_ascii_case(word)));
    if fits {
        return Ok(());
    }
    Err(Invalid::validation(
        at,
        format!(
            "scope `{}` is neither / nor a subscription, a resource group, a workspace or something in one",
            shown(scope)
        ),
    ))
}

/// The document of an assignment.
pub fn assignment_document(assignment: &Assignment) -> Value {
    json!({"properties": {
        "principalId": assignment.principal,
        "roleDefinitionId": assignment.role.id,
        "scope": assignment.scope,
    }})
}

/// Reads the document of an assignment.
pub fn assignment_of(document: &Document, custom: &[Arc<Role>]) -> Result<Assignment, Invalid> {
    let body = body(document)?;
    let scope = body["properties"]["scope"].as_str().unwrap_or_default();
    assignment(scope, &body, custom)
}

/// What is shown of an assignment.
pub fn assignment_view(document: &Document, assignment: &Assignment) -> Value {
    let name = &document.key.path;
    let at = assignment.scope.trim_end_matches('/');
    json!({
        "id": format!("{at}/providers/Microsoft.Authorization/roleAssignments/{name}"),
        "name": name.to_string(),
        "type": "Microsoft.Authorization/roleAssignments",
        "properties": {
            "principalId": assignment.principal,
            "principalType": if assignment.principal.starts_with(OUTSIDE) { "User" } else { "ServicePrincipal" },
            "roleDefinitionId": format!("/providers/Microsoft.Authorization/roleDefinitions/{}", assignment.role.id),
            "roleDefinitionName": assignment.role.name,
            "scope": assignment.scope,
        },
        "systemData": crate::view::envelope::system_data(document),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str) -> Arc<Role> {
        Role::find(name, &[]).unwrap()
    }

    #[test]
    fn q1_roles_have_azures_actions() {
        const ML: &str = "Microsoft.MachineLearningServices/workspaces";
        let asked = [
            (
                format!("{ML}/read"),
                "owner contributor reader scientist operator",
            ),
            (format!("{ML}/write"), "owner contributor"),
            (
                format!("{ML}/computes/read"),
                "owner contributor reader scientist operator",
            ),
            (format!("{ML}/computes/write"), "owner contributor operator"),
            (
                format!("{ML}/computes/delete"),
                "owner contributor operator",
            ),
            (
                format!("{ML}/computes/start/action"),
                "owner contributor scientist operator",
            ),
            (format!("{ML}/jobs/write"), "owner contributor scientist"),
            (
                format!("{ML}/jobs/cancel/action"),
                "owner contributor scientist",
            ),
            (
                format!("{ML}/models/versions/read"),
                "owner contributor reader scientist",
            ),
            (
                "Microsoft.Authorization/roleAssignments/read".into(),
                "owner contributor reader",
            ),
            (
                "Microsoft.Authorization/roleAssignments/write".into(),
                "owner",
            ),
            (
                "Microsoft.Authorization/roleAssignments/delete".into(),
                "owner",
            ),
        ];
        let roles = [
            ("owner", "Owner"),
            ("contributor", "contributor"),
            ("reader", "acdd72a7-3385-48ef-bd42-f606fba81ae7"),
            ("scientist", "AzureML Data Scientist"),
            (
                "operator",
                "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/e503ece1-11d0-4e8e-8e2c-7a6c3bf38815",
            ),
        ];
        for (action, who) in &asked {
            for (short, name) in roles {
                let may = who.split(' ').any(|w| w == short);
                assert_eq!(role(name).allows(action), may, "{short} {action}");
                assert_eq!(
                    role(name).allows(&action.to_uppercase()),
                    may,
                    "{short} {action}"
                );
            }
        }
        assert_eq!(Role::find("Janitor", &[]), None);
    }

    #[test]
    fn q2_a_scope_covers_what_lies_below_it() {
        for (scope, resource, covered) in [
            ("/", "/subscriptions/s", true),
            (
                "/subscriptions/S",
                "/subscriptions/s/resourceGroups/g",
                true,
            ),
            (
                "/subscriptions/s",
                "/subscriptions/s2/resourceGroups/g",
                false,
            ),
            (
                "/subscriptions/s/resourceGroups/g",
                "/subscriptions/s",
                false,
            ),
            (
                "/subscriptions/s/resourcegroups/g/",
                "/subscriptions/s/resourceGroups/g",
                true,
            ),
            ("/a/b", "/a/bc", false),
        ] {
            assert_eq!(covers(scope, resource), covered, "{scope} {resource}");
        }
    }

    #[test]
    fn an_assignment_names_what_is_wrong() {
        let body = |role: &str, who: &str| json!({"properties": {"roleDefinitionId": role, "principalId": who}});
        let wrong = |scope: &str, body: &Value| assignment(scope, body, &[]).unwrap_err();
        let refused = wrong("/", &body("Raeder", "me"));
        assert_eq!(refused.message, "role `Raeder` does not exist");
        assert!(refused.hint.unwrap().contains("Reader"));
        assert_eq!(wrong("/", &body("Reader", "a b")).target, "/name");
        assert!(
            wrong("/subscription/s", &body("Reader", "me"))
                .message
                .contains("neither /")
        );
        assert!(
            wrong("/subscriptions", &body("Reader", "me"))
                .message
                .contains("neither /")
        );
        assert!(wrong("/", &json!({})).message.contains("roleDefinitionId"));
        let made = assignment("/subscriptions/s/", &body("reader", "oidc:42"), &[]).unwrap();
        assert_eq!(
            (made.scope.as_str(), made.role.name.as_str()),
            ("/subscriptions/s", "Reader")
        );
        assert!(made.lets("OIDC:42", "x/y/read", "/subscriptions/s/resourceGroups/g"));
        assert!(!made.lets("oidc:43", "x/y/read", "/subscriptions/s"));
    }
}
