//! Compute clusters: `type: amlcompute`.

use super::{
    duration::iso8601,
    fields::{Choice, Fields},
    limits,
    load::{Built, DEFAULT_LOCATION},
    report::Report,
    tree::Value,
};
use crate::{
    names::{check_compute, compute_name_advice, shown},
    sizes,
};
use serde_json::{Map, Value as Json, json};

const DEFAULT: &str = "Azure ML YAML reference, compute cluster";
const WORKSPACE_LOCATION: &str = "the location of the workspace";
/// Size of a cluster that names none.
pub const DEFAULT_SIZE: &str = "Standard_DS3_v2";
/// Idle seconds before a node goes.
pub const DEFAULT_IDLE_SECONDS: i64 = 120;
/// `max_instances` of a file that does not give it. (The SDK's Python class has 4.)
pub const DEFAULT_MAX_INSTANCES: i64 = 1;

const TYPES: &[Choice] = &[("amlcompute", "AmlCompute")];
const TIERS: &[Choice] = &[("dedicated", "Dedicated"), ("low_priority", "LowPriority")];
const IDENTITIES: &[Choice] = &[
    ("system_assigned", "SystemAssigned"),
    ("user_assigned", "UserAssigned"),
    ("none", "None"),
    (
        "system_assigned,user_assigned",
        "SystemAssigned,UserAssigned",
    ),
];

/// Keys that other computes have, with the word that clusters use.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "idle_time_before_shutdown_minutes",
        "a cluster has idle_time_before_scale_down, in seconds",
    ),
    (
        "idle_time_before_shutdown",
        "a cluster has idle_time_before_scale_down, in seconds",
    ),
    (
        "schedules",
        "schedules belong to compute instances; a cluster scales down by itself",
    ),
    ("vm_size", "did you mean size"),
    ("vm_priority", "did you mean tier"),
    ("priority", "did you mean tier"),
    ("instance_count", "did you mean max_instances"),
    ("instance_type", "did you mean size"),
];

/// A cluster file.
pub(super) fn cluster(report: &Report<'_>, fields: Fields<'_>) -> Built {
    fields.has("$schema");
    let name = fields.name("name", check_compute);
    if let Some(advice) = name.and_then(|name| compute_name_advice(name.text)) {
        report.warn(fields.key_at("name"), "name", advice);
    }
    if fields.absent("name") {
        fields.missing("name", "write name: NAME, or give --name");
    }
    if fields.choice("type", TYPES).is_none() {
        fields.default_unless_written("type", "amlcompute", "the keys of the file");
    }
    let size = size(report, &fields);
    let tier = fields.choice_or("tier", TIERS, "dedicated", DEFAULT);
    let min = fields.int_or("min_instances", limits::MIN_INSTANCES, 0, DEFAULT);
    let max = fields.int_or(
        "max_instances",
        limits::INSTANCES,
        DEFAULT_MAX_INSTANCES,
        DEFAULT,
    );
    if min > max {
        let default = if fields.absent("max_instances") {
            ", its default"
        } else {
            ""
        };
        let at = fields
            .entry("min_instances")
            .map_or(fields.at, |entry| entry.node.at);
        let message = format!("min_instances {min} is above max_instances {max}{default}");
        fields.error(at, "min_instances", message);
    }
    let idle = fields.int_or(
        "idle_time_before_scale_down",
        limits::IDLE_SECONDS,
        DEFAULT_IDLE_SECONDS,
        DEFAULT,
    );
    let idle = iso8601(u64::try_from(idle).unwrap_or_default());

    let mut inner = Map::new();
    inner.insert("vmSize".into(), size.into());
    if let Some(tier) = tier {
        inner.insert("vmPriority".into(), tier.into());
    }
    if let Some(credentials) = ssh(&fields) {
        inner.insert("userAccountCredentials".into(), credentials);
    }
    inner.insert(
        "scaleSettings".into(),
        json!({ "maxNodeCount": max, "minNodeCount": min, "nodeIdleTimeBeforeScaleDown": idle }),
    );
    let remote = match fields.switch("ssh_public_access_enabled") {
        Some(true) => "Enabled",
        Some(false) => "Disabled",
        None => {
            fields.default_unless_written("ssh_public_access_enabled", false, DEFAULT);
            "NotSpecified"
        }
    };
    if let Some(subnet) = subnet(report, &fields) {
        inner.insert("subnet".into(), json!({ "id": subnet }));
    }
    inner.insert("remoteLoginPortPublicAccess".into(), remote.into());
    inner.insert(
        "enableNodePublicIp".into(),
        fields
            .switch_or("enable_node_public_ip", true, DEFAULT)
            .into(),
    );
    inner.insert("osType".into(), "Linux".into());

    let mut outer = Map::new();
    if let Some(description) = fields.text("description") {
        outer.insert("description".into(), description.text.into());
    }
    outer.insert("computeType".into(), "AmlCompute".into());
    let no_login = !inner.contains_key("userAccountCredentials");
    outer.insert("properties".into(), inner.into());
    outer.insert("disableLocalAuth".into(), no_login.into());
    let mut body = json!({ "location": location(&fields), "properties": outer });
    super::assets::insert_if(&mut body, "/tags", fields.texts("tags").map(Json::from));
    super::assets::insert_if(&mut body, "/identity", identity(&fields));
    fields.read_only(&[
        "id",
        "provisioning_state",
        "provisioning_errors",
        "created_on",
        "resource_id",
    ]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body,
        effective: fields.done(ELSEWHERE),
    }
}

/// The location of a tracked resource; it is shown and has no effect on one machine.
pub(super) fn location(fields: &Fields<'_>) -> String {
    match fields.words("location") {
        Some(text) => text.text.to_owned(),
        None => {
            fields.default_unless_written("location", DEFAULT_LOCATION, WORKSPACE_LOCATION);
            DEFAULT_LOCATION.to_owned()
        }
    }
}

pub(super) fn size(report: &Report<'_>, fields: &Fields<'_>) -> String {
    let Some(text) = fields.words("size") else {
        fields.default_unless_written("size", DEFAULT_SIZE, DEFAULT);
        return DEFAULT_SIZE.to_owned();
    };
    match sizes::find(text.text) {
        Some(size) => {
            if let Some(warning) = size.retired_on() {
                report.warn(text.at, "size", warning);
            }
        }
        None => {
            let near = sizes::nearest_to(text.text).name;
            let message = format!("size `{}` is not in the catalogue", shown(text.text));
            report.error_hint(
                text.at,
                "size",
                message,
                format!("did you mean {near}; all sizes: zaffre compute list-sizes"),
            );
        }
    }
    text.text.to_owned()
}

fn ssh(fields: &Fields<'_>) -> Option<Json> {
    let section = fields.section("ssh_settings")?;
    let user = section.words("admin_username");
    let password = section.words("admin_password");
    let key = section.words("ssh_key_value");
    if user.is_none() && section.absent("admin_username") {
        section.missing(
            "admin_username",
            "write the name of the user to make on each node",
        );
    }
    if password.is_none() && key.is_none() {
        let path = section.path_of("ssh_key_value");
        section.report.error(
            section.at,
            &path,
            "ssh_settings needs admin_password or ssh_key_value",
        );
    }
    if password.is_some() {
        section
            .report
            .unsupported("ssh_settings.admin_password (nodes have no ssh)");
        // the effective document is printed; a password is not
        section.show("admin_password", "********");
    }
    let mut credentials = Map::new();
    for (wire, text) in [
        ("adminUserName", user),
        ("adminUserPassword", password),
        ("adminUserSshPublicKey", key),
    ] {
        if let Some(text) = text {
            credentials.insert(wire.into(), text.text.into());
        }
    }
    fields.show("ssh_settings", section.done(&[]));
    Some(credentials.into())
}

pub(super) fn subnet(report: &Report<'_>, fields: &Fields<'_>) -> Option<String> {
    let section = fields.section("network_settings")?;
    let network = section.words("vnet_name");
    let subnet = section.words("subnet");
    if let (Some(network), Some(subnet)) = (network, subnet)
        && subnet.text.starts_with('/')
    {
        section.error(
            network.at,
            "vnet_name",
            "a subnet given by its full id stands without vnet_name",
        );
    }
    section.read_only(&["public_ip_address", "private_ip_address"]);
    report.unsupported("network_settings (virtual networks)");
    fields.show("network_settings", section.done(&[]));
    let network = network
        .map(|text| format!("{}/subnets/", text.text))
        .unwrap_or_default();
    subnet.map(|text| format!("{network}{}", text.text))
}

/// `identity:` of a compute or an endpoint.
pub(super) fn identity(fields: &Fields<'_>) -> Option<Json> {
    let section = fields.section("identity")?;
    let kind = section.choice("type", IDENTITIES);
    if kind.is_none() && section.absent("type") {
        section.missing("type", "write type: system_assigned or type: user_assigned");
    }
    let mut users = Map::new();
    if let Some(entry) = section.entry("user_assigned_identities") {
        let items = match &entry.node.value {
            Value::List(items) => items.as_slice(),
            _ => {
                section.wrong(&entry.node, "user_assigned_identities", "a list");
                &[]
            }
        };
        for item in items {
            let Some(user) = section.inner(item, "user_assigned_identities") else {
                continue;
            };
            match user.words("resource_id") {
                Some(id) => {
                    users.insert(id.text.to_owned(), json!({}));
                }
                None if !user.absent("resource_id") => {}
                None => user.missing("resource_id", "write the id of the identity"),
            }
            user.read_only(&["principal_id", "client_id", "tenant_id"]);
            user.done(&[]);
        }
        let shown: Vec<Json> = users
            .keys()
            .map(|id| json!({ "resource_id": id }))
            .collect();
        section.show("user_assigned_identities", shown);
        if kind == Some("SystemAssigned") {
            section.error(
                entry.at,
                "user_assigned_identities",
                "a system-assigned identity has no user_assigned_identities",
            );
        }
    }
    section.read_only(&["principal_id", "tenant_id"]);
    if kind == Some("SystemAssigned,UserAssigned") {
        section.error(
            section.at,
            "type",
            "an identity is one system-assigned or several user-assigned, not both",
        );
    }
    fields.show("identity", section.done(&[]));
    let mut identity = Map::new();
    identity.insert("type".into(), kind.into());
    if !users.is_empty() {
        identity.insert("userAssignedIdentities".into(), users.into());
    }
    Some(identity.into())
}
