//! Template deployments, as far as the SDK needs them: `workspaces.begin_create` sends one that makes a workspace.
//!
//! Only the workspace of a template is made. Storage, vault and insights that it asks for are this server's own; a template
//! with anything else is refused by name. Nothing of a deployment is stored: it is over when it is answered.

use axum::http::StatusCode;
use model::Workspace;
use serde_json::{Map, Value, json};
use std::sync::Arc;

use super::workspaces;
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// The resource that is made.
const WORKSPACE: &str = "Microsoft.MachineLearningServices/workspaces";
/// Providers whose part this server plays itself.
const OURS: [&str; 8] = [
    "Microsoft.Storage/",
    "Microsoft.KeyVault/",
    "Microsoft.Insights/",
    "Microsoft.OperationalInsights/",
    "Microsoft.Network/",
    "Microsoft.ManagedIdentity/",
    "Microsoft.ContainerRegistry/",
    "Microsoft.Resources/deployments",
];
/// Properties of a workspace that mean something here.
const KEPT: [&str; 3] = ["friendlyName", "description", "publicNetworkAccess"];

/// PUT a deployment.
pub(crate) async fn put(api: Arc<Api>, call: Call) -> Answer {
    let sent: Value = call.json()?;
    let (name, body) = workspace_of(&sent)?;
    let workspace = Workspace::new(call.param("s"), call.param("g"), &name);
    let stored = workspaces::write(&api, &call, &workspace, &body.to_string(), &body).await?;
    let id = wire::names::workspace_id(&stored.document.key.workspace);
    let at = crate::show::stamp(stored.document.modified);
    Ok(reply::json(
        StatusCode::CREATED,
        &json!({
            "id": call.path,
            "name": call.param("n"),
            "type": "Microsoft.Resources/deployments",
            "properties": {
                "provisioningState": "Succeeded",
                "mode": "Incremental",
                "timestamp": at,
                "duration": "PT0.1S",
                "outputResources": [{"id": id}],
            },
        }),
    ))
}

/// GET the operations of a deployment: each was over before it could be asked for.
pub(crate) fn operations(_api: &Arc<Api>, _call: &Call) -> Answer {
    Ok(reply::ok(&json!({"value": []})))
}

/// The one workspace of a template, with its parameters filled in.
fn workspace_of(sent: &Value) -> Result<(String, Value), Problem> {
    let properties = &sent["properties"];
    let template = &properties["template"];
    let resources = template["resources"]
        .as_array()
        .ok_or_else(|| Problem::bad("properties.template.resources is required"))?;
    let of = |resource: &Value| resource["type"].as_str().unwrap_or_default().to_owned();
    let mut found = None;
    for resource in resources {
        let kind = of(resource);
        let starts = |with: &str| {
            kind.get(..with.len())
                .is_some_and(|k| k.eq_ignore_ascii_case(with))
        };
        if kind.eq_ignore_ascii_case(WORKSPACE) {
            if found.replace(resource).is_some() {
                return Err(unsupported("the template makes more than one workspace"));
            }
        } else if !OURS.iter().any(|ours| starts(ours)) {
            return Err(unsupported(&format!(
                "the template makes a {}, and only workspaces are made here",
                wire::names::shown(&kind)
            )));
        }
    }
    let resource = found.ok_or_else(|| {
        unsupported("the template makes no workspace, and nothing else is made here")
    })?;
    let value = |place: &Value| value_of(place, template, properties);
    let name = value(&resource["name"]);
    let name = name
        .as_str()
        .ok_or_else(|| Problem::bad("the workspace of the template has no name"))?
        .to_owned();
    let mut kept = Map::new();
    for member in KEPT {
        let given = value(&resource["properties"][member]);
        if given.as_str().is_some_and(|text| !text.is_empty()) {
            kept.insert(member.into(), given);
        }
    }
    let mut body = Map::new();
    for member in ["location", "kind", "tags"] {
        let given = value(&resource[member]);
        if !given.is_null() {
            body.insert(member.into(), given);
        }
    }
    body.insert("properties".into(), Value::Object(kept));
    Ok((name, Value::Object(body)))
}

fn unsupported(message: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "NotSupported", message)
}

/// A literal, or the parameter that `[parameters('x')]` names; null for every other expression.
fn value_of(place: &Value, template: &Value, properties: &Value) -> Value {
    let Some(text) = place.as_str() else {
        return place.clone();
    };
    let Some(expression) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) else {
        return place.clone();
    };
    let named = expression
        .strip_prefix("parameters('")
        .and_then(|rest| rest.strip_suffix("')"));
    let Some(named) = named else {
        return Value::Null;
    };
    let given = &properties["parameters"][named]["value"];
    if given.is_null() {
        template["parameters"][named]["defaultValue"].clone()
    } else {
        given.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_makes_one_workspace_of_its_parameters() {
        let resource = json!({"type": "Microsoft.MachineLearningServices/workspaces", "name": "[parameters('workspaceName')]",
            "location": "[parameters('location')]", "tags": "[parameters('tagValues')]",
            "properties": {"description": "[parameters('d')]", "keyVault": "[variables('keyVault')]", "friendlyName": "plain"}});
        let vault = json!({"type": "microsoft.keyvault/vaults", "name": "v"});
        let of = |resources: Value| {
            workspace_of(&json!({"properties": {
                "template": {"parameters": {"location": {"defaultValue": "local"}}, "resources": resources},
                "parameters": {"workspaceName": {"value": "ws1"}, "tagValues": {"value": {"a": "b"}}, "d": {"value": ""}},
            }}))
            .map_err(|p| p.message)
        };
        let (name, body) = of(json!([vault, resource])).unwrap();
        assert_eq!(name, "ws1");
        assert_eq!(
            body,
            json!({"location": "local", "tags": {"a": "b"}, "properties": {"friendlyName": "plain"}})
        );
        assert!(of(json!([])).unwrap_err().contains("makes no workspace"));
        assert!(
            of(json!([{"type": "Microsoft.Compute/virtualMachines"}]))
                .unwrap_err()
                .contains("makes a Microsoft.Compute/virtualMachines")
        );
        assert!(
            of(json!([resource, resource]))
                .unwrap_err()
                .contains("more than one")
        );
    }
}
