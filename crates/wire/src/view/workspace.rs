//! Workspaces, their two datastores and the services that a client discovers.

use super::envelope::{Site, fill, properties, sent, system_data, uuid_of};
use crate::{
    arm::time::stamp,
    names::{PROVIDER, workspace_id},
    places::{ACCOUNT, ARTIFACTSTORE, BLOBSTORE, Places},
};
use model::{Document, Time, Workspace};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The tenant of every workspace: there is one.
pub const TENANT: &str = "00000000-0000-0000-0000-000000000001";

/// The ARM id of the storage account.
pub fn storage_account(workspace: &Workspace) -> String {
    neighbour(workspace, "Microsoft.Storage/storageAccounts", ACCOUNT)
}

fn neighbour(workspace: &Workspace, kind: &str, name: &str) -> String {
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/{kind}/{name}",
        workspace.subscription, workspace.group
    )
}

/// Where MLflow tracking of a workspace answers.
pub fn tracking(site: &Site, workspace: &Workspace) -> String {
    format!(
        "azureml://{}/mlflow/v1.0{}",
        site.host(),
        workspace_id(workspace)
    )
}

/// The id that the run history has for a workspace.
pub fn guid(workspace: &Workspace) -> String {
    uuid_of(&workspace_id(workspace).to_ascii_lowercase())
}

/// A workspace.
pub fn workspace(site: &Site, document: &Document) -> Value {
    let w = &document.key.workspace;
    let name = w.name.as_str();
    let body = sent(document);
    let id = workspace_id(w);
    let guid = guid(w);
    let mut p = properties(&body);
    fill(&mut p, "friendlyName", json!(name));
    fill(&mut p, "description", json!(""));
    fill(&mut p, "publicNetworkAccess", json!("Enabled"));
    fill(&mut p, "hbiWorkspace", json!(false));
    fill(&mut p, "v1LegacyMode", json!(false));
    fill(&mut p, "imageBuildCompute", Value::Null);
    fill(&mut p, "storageAccount", json!(storage_account(w)));
    fill(
        &mut p,
        "keyVault",
        json!(neighbour(w, "Microsoft.KeyVault/vaults", ACCOUNT)),
    );
    fill(
        &mut p,
        "applicationInsights",
        json!(neighbour(w, "Microsoft.insights/components", ACCOUNT)),
    );
    let mut own = |key: &str, value: Value| p.insert(key.to_owned(), value);
    own("workspaceId", json!(guid));
    own("provisioningState", json!("Succeeded"));
    own("discoveryUrl", json!(format!("{}/discovery", site.base)));
    own("mlFlowTrackingUri", json!(tracking(site, w)));
    own("tenantId", json!(TENANT));
    let mut out = Map::new();
    out.insert("id".into(), json!(id));
    out.insert("name".into(), json!(name));
    out.insert("type".into(), json!(format!("{PROVIDER}/workspaces")));
    for (key, value) in body {
        if !matches!(
            key.as_str(),
            "id" | "name" | "type" | "systemData" | "properties"
        ) {
            out.insert(key, value);
        }
    }
    fill(&mut out, "location", json!(site.location));
    fill(&mut out, "tags", json!({}));
    fill(&mut out, "kind", json!("Default"));
    out.insert(
        "identity".into(),
        json!({"type": "SystemAssigned", "principalId": guid, "tenantId": TENANT}),
    );
    fill(&mut out, "sku", json!({"name": "Basic", "tier": "Basic"}));
    out.insert("properties".into(), Value::Object(p));
    out.insert("systemData".into(), system_data(document));
    Value::Object(out)
}

/// A datastore, by its name; `None` when there is no such.
pub fn datastore(site: &Site, workspace: &Document, name: &str) -> Option<Value> {
    let w: &Arc<Workspace> = &workspace.key.workspace;
    let places = Places::of(w);
    let container = places.datastore(name)?.container().to_owned();
    let name = [BLOBSTORE, ARTIFACTSTORE]
        .into_iter()
        .find(|n| n.eq_ignore_ascii_case(name))?;
    Some(json!({
        "id": format!("{}/datastores/{name}", workspace_id(w)),
        "name": name,
        "type": format!("{PROVIDER}/workspaces/datastores"),
        "systemData": system_data(workspace),
        "properties": {
            "datastoreType": "AzureBlob",
            // path style, and the slash at its end is needed: the SDK joins URLs on it (wire §7)
            "accountName": format!("{}/storage/{ACCOUNT}/", site.host()),
            "containerName": container,
            "endpoint": "core.local",
            "protocol": "https",
            "isDefault": name == BLOBSTORE,
            "serviceDataAccessAuthIdentity": "None",
            "credentials": {"credentialsType": "Sas"},
            "description": null,
            "tags": {},
            "properties": {},
        },
    }))
}

/// Both datastores, the default one first.
pub fn datastores(site: &Site, workspace: &Document) -> Vec<Value> {
    [BLOBSTORE, ARTIFACTSTORE]
        .into_iter()
        .filter_map(|name| datastore(site, workspace, name))
        .collect()
}

/// The answer of `listSecrets`.
pub fn secrets(sas: &str) -> Value {
    json!({"secretsType": "Sas", "sasToken": sas})
}

/// The query of a shared access signature; the SDK takes it for one only when every key is a known SAS key (wire §7).
pub fn sas_query(expires: Time, signature: &str) -> String {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    let seconds = Time(expires.0 - expires.0 % 1000);
    let stamp = stamp(seconds).replace(".000Z", "Z");
    format!(
        "sv=2024-11-04&se={}&sr=c&sp=racwdl&sig={}",
        utf8_percent_encode(&stamp, NON_ALPHANUMERIC),
        utf8_percent_encode(signature, NON_ALPHANUMERIC)
    )
}

/// The services of a workspace: all of them are this server.
pub fn discovery(site: &Site) -> Value {
    const SERVICES: [&str; 13] = [
        "api",
        "catalog",
        "experimentation",
        "gallery",
        "history",
        "hyperdrive",
        "labeling",
        "modelmanagement",
        "pipelines",
        "studio",
        "notebooks",
        "inference",
        "mlflow",
    ];
    SERVICES
        .iter()
        .map(|s| ((*s).to_owned(), json!(site.base)))
        .collect::<Map<_, _>>()
        .into()
}
