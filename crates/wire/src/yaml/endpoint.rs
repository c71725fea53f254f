//! Batch endpoints.

use super::{
    compute::{identity, location},
    fields::{Choice, Fields},
    load::Built,
    report::Report,
    scalar::same_word,
};
use crate::names::{check_deployment, check_endpoint};
use serde_json::{Map, json};

const DEFAULT: &str = "Azure ML YAML reference, batch endpoint";
const AUTH: &[Choice] = &[("aad_token", "aadToken")];

/// Keys of deployments and of online endpoints that people put here.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "resources",
        "resources belongs into the batch deployment file (batch-deployment create -f)",
    ),
    (
        "instance_type",
        "instance_type belongs into the batch deployment file (batch-deployment create -f)",
    ),
    (
        "instance_count",
        "instance_count belongs into the batch deployment file, as resources.instance_count",
    ),
    (
        "settings",
        "settings belongs into the batch deployment file (batch-deployment create -f)",
    ),
    (
        "model",
        "model belongs into the batch deployment file (batch-deployment create -f)",
    ),
    (
        "compute",
        "compute belongs into the batch deployment file (batch-deployment create -f)",
    ),
    (
        "traffic",
        "traffic belongs to online endpoints; a batch endpoint has defaults.deployment_name",
    ),
    (
        "mirror_traffic",
        "mirror_traffic belongs to online endpoints",
    ),
    (
        "public_network_access",
        "public_network_access belongs to online endpoints",
    ),
    ("deployment_name", "did you mean defaults.deployment_name"),
];

/// A batch endpoint file.
pub(super) fn batch(report: &Report<'_>, fields: Fields<'_>) -> Built {
    fields.has("$schema");
    let name = fields.name("name", check_endpoint);
    if fields.absent("name") {
        fields.missing("name", "write name: NAME, or give --name");
    }
    let other = fields.entry("auth_mode").filter(|entry| {
        let word = entry.node.text().unwrap_or_default();
        same_word(word, "key") || same_word(word, "aml_token")
    });
    match other {
        Some(entry) => report.error_hint(
            entry.node.at,
            "auth_mode",
            "a batch endpoint takes auth_mode aad_token only",
            "key and aml_token are for online endpoints",
        ),
        None => {
            fields.choice_or("auth_mode", AUTH, "aad_token", DEFAULT);
        }
    }
    let mut properties = Map::new();
    if let Some(description) = fields.text("description") {
        properties.insert("description".into(), description.text.into());
    }
    properties.insert("authMode".into(), "aadToken".into());
    properties.insert(
        "properties".into(),
        fields.texts("properties").unwrap_or_default().into(),
    );
    if let Some(section) = fields.section("defaults") {
        if let Some(deployment) = section.name("deployment_name", check_deployment) {
            properties.insert(
                "defaults".into(),
                json!({ "deploymentName": deployment.text }),
            );
        }
        fields.show("defaults", section.done(&[]));
    }
    let tags = fields.texts("tags").unwrap_or_default();
    let mut body = json!({ "location": location(&fields), "tags": tags, "properties": properties });
    super::assets::insert_if(&mut body, "/identity", identity(&fields));
    fields.read_only(&["id", "provisioning_state", "scoring_uri", "openapi_uri"]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body,
        effective: fields.done(ELSEWHERE),
    }
}
