//! `zaffre identity` and `zaffre role`.

use super::{Context, confirm};
use crate::{
    cli::identity::{
        Assignment, AssignmentCreate, AssignmentDelete, AssignmentList, Create, Identity, Kind,
        Role,
    },
    client::locate::plain_name,
    failure::Failure,
    output::{self, Columns},
};
use serde_json::{Value, json};

const IDENTITIES: Columns = &[
    ("Name", "/name"),
    ("Kind", "/kind"),
    ("Secret", "/secret"),
    ("Principal", "/principal_id"),
];
const ASSIGNMENTS: Columns = &[
    ("Assignee", "/assignee"),
    ("Role", "/role"),
    ("Scope", "/scope"),
];

/// Runs a command of `identity`.
pub async fn run(context: &Context, asked: Identity) -> Result<(), Failure> {
    match asked {
        Identity::Create(args) => create(context, &args).await,
        Identity::List => {
            let all = context.client.list("/identities", None).await?;
            let views: Vec<Value> = all.iter().map(shown).collect();
            context.output.show(&views.into(), IDENTITIES)
        }
        Identity::Show(args) => {
            let found = context.client.get(&at(&args.name)?).await?;
            context.output.show(&shown(&found), IDENTITIES)
        }
        Identity::Rotate(args) => {
            let to = format!("{}/rotate", at(&args.name)?);
            let made = context.client.post_once(&to, &Value::Null).await?;
            with_secret(context, &made)
        }
        Identity::Delete(args) => {
            let at = at(&args.name)?;
            confirm(
                &format!("delete identity {} and its roles", args.name),
                args.yes,
            )?;
            match context.client.erase(&at).await? {
                true => Ok(()),
                false => Err(Failure::not_found(format!(
                    "identity {} does not exist",
                    args.name
                ))),
            }
        }
        Identity::Approve(args) => {
            let body = json!({"userCode": args.code});
            context
                .client
                .post_once("/devicelogin/approve", &body)
                .await?;
            if !context.globals.only_show_errors {
                output::say(&format!(
                    "the device with the code {} is signed in",
                    args.code
                ));
            }
            Ok(())
        }
    }
}

fn at(name: &str) -> Result<String, Failure> {
    plain_name("identity", name)?;
    Ok(format!("/identities/{name}"))
}

async fn create(context: &Context, args: &Create) -> Result<(), Failure> {
    let kind = match args.kind {
        Kind::Service => "service",
        Kind::User => "user",
    };
    let body = json!({"properties": {"kind": kind}});
    let made = context.client.put_once(&at(&args.name)?, &body).await?;
    with_secret(context, &made)
}

/// Shows an identity with a new secret.
fn with_secret(context: &Context, made: &Value) -> Result<(), Failure> {
    output::warn("the secret is shown this once: keep it where only its user can read it");
    context.output.show(&shown(made), IDENTITIES)
}

fn shown(resource: &Value) -> Value {
    let properties = &resource["properties"];
    let mut view = json!({
        "name": resource["name"],
        "kind": properties["kind"],
        "principal_id": properties["principalId"],
        "created_by": resource["systemData"]["createdBy"],
    });
    if !properties["secret"].is_null() {
        view["secret"] = properties["secret"].clone();
    }
    view
}

/// Runs a command of `role`.
pub async fn role(context: &Context, asked: Role) -> Result<(), Failure> {
    let asked = match asked {
        Role::Assignment(asked) => asked,
        Role::Definition(asked) => return super::role::run(context, asked).await,
    };
    match asked {
        Assignment::Create(args) => assign(context, &args).await,
        Assignment::List(args) => list(context, &args).await,
        Assignment::Delete(args) => unassign(context, &args).await,
    }
}

/// The scope of the flags, without a slash at its end; the workspace without one.
pub(super) fn scope(context: &Context, asked: Option<&str>) -> Result<String, Failure> {
    match asked {
        Some(scope) => plain_scope(scope),
        None => Ok(context.client.scope().workspace_id()),
    }
}

/// A scope as it stands in a path, without a slash at its end.
pub(super) fn plain_scope(scope: &str) -> Result<String, Failure> {
    if !scope.starts_with('/') {
        return Err(Failure::wrong(format!(
            "--scope {scope}: a scope starts with /, as /subscriptions/S/resourceGroups/G does"
        )));
    }
    let parts = scope.split('/').filter(|part| !part.is_empty());
    let mut whole = String::new();
    for part in parts {
        plain_name("--scope", part)?;
        whole.push('/');
        whole.push_str(part);
    }
    Ok(whole)
}

fn assignments(scope: &str) -> String {
    format!("{scope}/providers/Microsoft.Authorization/roleAssignments")
}

async fn assign(context: &Context, args: &AssignmentCreate) -> Result<(), Failure> {
    let scope = scope(context, args.scope.as_deref())?;
    let name = uuid::Uuid::new_v4();
    let body = json!({"properties": {"principalId": args.assignee, "roleDefinitionId": args.role}});
    let to = format!("{}/{name}", assignments(&scope));
    let made = context.client.put_once(&to, &body).await?;
    context.output.show(&role_shown(&made), ASSIGNMENTS)
}

fn role_shown(resource: &Value) -> Value {
    let properties = &resource["properties"];
    json!({
        "name": resource["name"],
        "id": resource["id"],
        "assignee": properties["principalId"],
        "role": properties["roleDefinitionName"],
        "scope": properties["scope"],
    })
}

/// Whether an assignment is one of those that are asked for.
fn is(view: &Value, assignee: Option<&str>, role: Option<&str>) -> bool {
    let same = |field: &str, wanted: Option<&str>| {
        let has = view[field].as_str().unwrap_or_default();
        wanted.is_none_or(|wanted| has.eq_ignore_ascii_case(wanted))
    };
    same("assignee", assignee) && same("role", role)
}

async fn list(context: &Context, args: &AssignmentList) -> Result<(), Failure> {
    let scope = match args.all {
        true => String::new(),
        false => scope(context, args.scope.as_deref())?,
    };
    let all = context.client.list(&assignments(&scope), None).await?;
    let mut views: Vec<Value> = all.iter().map(role_shown).collect();
    views.retain(|view| is(view, args.assignee.as_deref(), args.role.as_deref()));
    context.output.show(&views.into(), ASSIGNMENTS)
}

async fn unassign(context: &Context, args: &AssignmentDelete) -> Result<(), Failure> {
    let scope = scope(context, args.scope.as_deref())?;
    let all = context.client.list(&assignments(&scope), None).await?;
    let mut gone = 0;
    for view in all.iter().map(role_shown) {
        let at = view["scope"]
            .as_str()
            .unwrap_or_default()
            .trim_end_matches('/');
        if !at.eq_ignore_ascii_case(&scope)
            || !is(&view, Some(&args.assignee), args.role.as_deref())
        {
            continue;
        }
        let name = view["name"].as_str().unwrap_or_default();
        if context
            .client
            .erase(&format!("{}/{name}", assignments(&scope)))
            .await?
        {
            gone += 1;
        }
    }
    if gone == 0 {
        let role = args.role.as_deref().unwrap_or("any role");
        let place = if scope.is_empty() { "/" } else { &scope };
        return Err(Failure::not_found(format!(
            "{} does not have {role} at exactly {place}",
            args.assignee
        ))
        .hint("`zaffre role assignment list --all` shows where roles are held"));
    }
    Ok(())
}
