//! Workspaces.

use super::{
    compute::{identity, location},
    fields::{Choice, Fields},
    load::Built,
    report::Report,
};
use crate::names::shown;
use serde_json::{Map, Value as Json, json};

const ACCESS: &[Choice] = &[("enabled", "Enabled"), ("disabled", "Disabled")];
const ISOLATION: &[Choice] = &[
    ("disabled", "Disabled"),
    ("allow_internet_outbound", "AllowInternetOutbound"),
    ("allow_only_approved_outbound", "AllowOnlyApprovedOutbound"),
];
const ACTIONS: &[Choice] = &[("Deny", "Deny"), ("Allow", "Allow")];
/// Keys that name another resource of Azure by its id.
const IDS: [(&str, &str); 5] = [
    ("storage_account", "storageAccount"),
    ("container_registry", "containerRegistry"),
    ("key_vault", "keyVault"),
    ("application_insights", "applicationInsights"),
    ("workspace_hub", "hubResourceId"),
];

/// The file of a workspace.
pub(super) fn workspace(report: &Report<'_>, fields: Fields<'_>) -> Built {
    fields.has("$schema");
    let name = fields.words("name");
    if fields.absent("name") {
        fields.missing("name", "write name: NAME, or give --name");
    }
    let mut properties = Map::new();
    for (key, wire) in [
        ("description", "description"),
        ("display_name", "friendlyName"),
        ("image_build_compute", "imageBuildCompute"),
        ("system_datastores_auth_mode", "systemDatastoresAuthMode"),
        (
            "primary_user_assigned_identity",
            "primaryUserAssignedIdentity",
        ),
    ] {
        if let Some(text) = fields.text(key) {
            properties.insert(wire.into(), text.text.into());
        }
    }
    for (key, wire) in IDS {
        let Some(id) = fields.words(key) else {
            continue;
        };
        let plain = id.text.strip_prefix("azureml:").unwrap_or(id.text);
        if !plain.starts_with("/subscriptions/") {
            fields.error(
                id.at,
                key,
                format!(
                    "{key} is the id of a resource, /subscriptions/…, not `{}`",
                    shown(id.text)
                ),
            );
        }
        report.warn(
            id.at,
            key,
            format!("{key} is kept, and not used: the server has its own"),
        );
        properties.insert(wire.into(), plain.into());
    }
    if let Some(access) = fields.choice("public_network_access", ACCESS) {
        properties.insert("publicNetworkAccess".into(), access.into());
    }
    for (key, wire) in [
        ("hbi_workspace", "hbiWorkspace"),
        ("provision_network_now", "provisionNetworkNow"),
        ("enable_data_isolation", "enableDataIsolation"),
        ("allow_roleassignment_on_rg", "allowRoleAssignmentOnRG"),
    ] {
        if let Some(flag) = fields.switch(key) {
            properties.insert(wire.into(), flag.into());
        }
    }
    for (key, wire) in [
        ("managed_network", "managedNetwork"),
        ("network_acls", "networkAcls"),
        ("customer_managed_key", "encryption"),
        ("serverless_compute", "serverlessComputeSettings"),
    ] {
        if let Some(bag) = fields.bag(key) {
            report.warn(
                fields.key_at(key),
                key,
                format!("{key} is kept, but has no effect here"),
            );
            properties.insert(wire.into(), bag);
        }
    }
    for (key, member, words) in [
        ("managed_network", "isolation_mode", ISOLATION),
        ("network_acls", "default_action", ACTIONS),
    ] {
        if let Some(section) = fields.section(key) {
            section.choice(member, words);
            section.all_known();
        }
    }
    fields.text("resource_group");
    let tags = fields.texts("tags").unwrap_or_default();
    let mut body = json!({ "location": location(&fields), "tags": tags, "properties": properties });
    super::assets::insert_if(&mut body, "/identity", identity(&fields));
    fields.read_only(&["id", "discovery_url", "mlflow_tracking_uri"]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body: Json::clone(&body),
        effective: fields.done(&[]),
    }
}
