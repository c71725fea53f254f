//! `zaffre role definition`: files as `az role definition` takes them, and what it prints.

use super::Context;
use crate::{
    cli::identity::{Define, Definition, DefinitionDelete, DefinitionList},
    command::identity::{plain_scope, scope},
    failure::{Failure, about},
    output::Columns,
};
use serde_json::{Value, json};
use std::path::Path;

/// Definitions, behind a scope.
const AT: &str = "/providers/Microsoft.Authorization/roleDefinitions";
const COLUMNS: Columns = &[
    ("Name", "/roleName"),
    ("Type", "/roleType"),
    ("Description", "/description"),
];

/// Runs a command of `role definition`.
pub async fn run(context: &Context, asked: Definition) -> Result<(), Failure> {
    match asked {
        Definition::Create(args) => create(context, &args).await,
        Definition::Update(args) => update(context, &args).await,
        Definition::List(args) => list(context, &args).await,
        Definition::Delete(args) => delete(context, &args).await,
    }
}

/// What was given: JSON itself, a file, or `@` and a file.
fn read(given: &str) -> Result<(Option<String>, Value), Failure> {
    let inline = given.trim_start().starts_with('{');
    let (text, what) = if inline {
        (given.to_owned(), "--role-definition")
    } else {
        let path = Path::new(given.strip_prefix('@').unwrap_or(given));
        let text = std::fs::read_to_string(path).map_err(about(path))?;
        (text, given)
    };
    let json: Value = serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|error| Failure::wrong(format!("{what}: {error}")))?;
    wire::access::role::from_file(&json).map_err(|wrong| {
        let failure = Failure::wrong(format!("{what}: {}", wrong.message));
        match wrong.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })
}

/// Where a definition is looked for and sent: at the first scope that it names, where its maker needs a right of it.
fn place(body: &Value) -> Result<String, Failure> {
    let first = &body["properties"]["assignableScopes"][0];
    let scope = first.as_str().map_or(Ok(String::new()), plain_scope)?;
    Ok(format!("{scope}{AT}"))
}

async fn create(context: &Context, args: &Define) -> Result<(), Failure> {
    let (_, body) = read(&args.role_definition)?;
    let name = body["properties"]["roleName"].as_str().unwrap_or_default();
    let at = place(&body)?;
    if let Some(known) = one(context, &at, name).await? {
        return Err(Failure::wrong(format!("role {name} exists")).hint(format!(
            "`zaffre role definition update` changes {}",
            known["name"]
        )));
    }
    let id = uuid::Uuid::new_v4().to_string();
    let made = context
        .client
        .put_once(&format!("{at}/{id}"), &body)
        .await?;
    context.output.show(&shown(&made), COLUMNS)
}

async fn update(context: &Context, args: &Define) -> Result<(), Failure> {
    let (id, body) = read(&args.role_definition)?;
    let name = body["properties"]["roleName"].as_str().unwrap_or_default();
    let (at, wanted) = (place(&body)?, id.as_deref().unwrap_or(name));
    let known = one(context, &at, wanted).await?;
    let known = known.ok_or_else(|| missing(wanted))?;
    let id = known["name"].as_str().unwrap_or_default();
    let made = context
        .client
        .put_once(&format!("{at}/{id}"), &body)
        .await?;
    context.output.show(&shown(&made), COLUMNS)
}

fn missing(name: &str) -> Failure {
    Failure::not_found(format!("role {name} does not exist"))
        .hint("`zaffre role definition list` shows what there is")
}

/// The role of this name or id at, above or below a place.
async fn one(context: &Context, at: &str, wanted: &str) -> Result<Option<Value>, Failure> {
    let all = context.client.list(at, None).await?;
    Ok(all.into_iter().find(|role| is(role, wanted)))
}

fn is(role: &Value, wanted: &str) -> bool {
    let last = wanted.rsplit('/').next().unwrap_or(wanted);
    let same = |value: &Value, wanted: &str| {
        let has = value.as_str().unwrap_or_default();
        has.eq_ignore_ascii_case(wanted)
    };
    same(&role["properties"]["roleName"], wanted) || same(&role["name"], last)
}

async fn list(context: &Context, args: &DefinitionList) -> Result<(), Failure> {
    let scope = scope(context, args.scope.as_deref())?;
    let mut all = context.client.list(&format!("{scope}{AT}"), None).await?;
    all.retain(|role| {
        let custom = role["properties"]["type"] == "CustomRole";
        (custom || !args.custom_role_only) && args.name.as_deref().is_none_or(|name| is(role, name))
    });
    let views: Vec<Value> = all.iter().map(shown).collect();
    context.output.show(&views.into(), COLUMNS)
}

async fn delete(context: &Context, args: &DefinitionDelete) -> Result<(), Failure> {
    let at = format!("{}{AT}", scope(context, args.scope.as_deref())?);
    let found = one(context, &at, &args.name).await?;
    let found = found.ok_or_else(|| missing(&args.name))?;
    let id = found["name"].as_str().unwrap_or_default();
    match context.client.erase(&format!("{at}/{id}")).await? {
        true => Ok(()),
        false => Err(missing(&args.name)),
    }
}

/// As `az role definition list` prints it.
fn shown(resource: &Value) -> Value {
    let properties = &resource["properties"];
    json!({
        "assignableScopes": properties["assignableScopes"],
        "description": properties["description"],
        "id": resource["id"],
        "name": resource["name"],
        "permissions": properties["permissions"],
        "roleName": properties["roleName"],
        "roleType": properties["type"],
        "type": resource["type"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_sent_where_it_may_be_held() {
        let (id, body) = read(r#"{"Name": "Runner", "Actions": ["*/read"], "AssignableScopes": ["/subscriptions/s/"]}"#).unwrap();
        assert_eq!(id, None);
        assert_eq!(
            place(&body).unwrap(),
            "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions"
        );
        let root = json!({"properties": {"assignableScopes": ["/"]}});
        assert_eq!(place(&root).unwrap(), AT);
        assert!(
            read("{\"Nam\": 1}")
                .unwrap_err()
                .hint
                .unwrap()
                .contains("name")
        );
        assert!(read("/nowhere.json").is_err());
    }
}
