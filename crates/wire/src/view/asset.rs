//! Versions of assets and their containers.

use super::canonical::word;
use super::envelope::{fill, properties, resource_of, sent, system_data, take_properties};
use crate::{
    arm::{
        asset::{model_type, name_and_version},
        field::Field,
    },
    names::{PROVIDER, workspace_id},
};
use model::{BlobPath, Document, Kind, Workspace};
use serde_json::{Value, json};

/// The collection that a kind of asset lies in.
pub fn collection(kind: Kind) -> &'static str {
    match kind {
        Kind::Model => "models",
        Kind::Environment => "environments",
        Kind::Data => "data",
        Kind::Component => "components",
        Kind::Code => "codes",
        Kind::Compute => "computes",
        Kind::Datastore => "datastores",
        Kind::BatchEndpoint | Kind::BatchDeployment => "batchEndpoints",
        Kind::OnlineEndpoint => "onlineEndpoints",
        Kind::Job => "jobs",
        Kind::Workspace
        | Kind::Quota
        | Kind::InstanceType
        | Kind::Identity
        | Kind::RoleAssignment
        | Kind::RoleDefinition
        | Kind::Tracked => "",
    }
}

/// A version of an asset.
pub fn version(document: &Document) -> Value {
    let (name, version) = name_and_version(document.key.path.as_str());
    let kind = document.key.kind;
    let mut body = sent(document);
    let mut p = take_properties(&mut body);
    fill(&mut p, "description", Value::Null);
    fill(&mut p, "tags", json!({}));
    fill(&mut p, "properties", json!({}));
    fill(&mut p, "isArchived", json!(false));
    fill(&mut p, "isAnonymous", json!(false));
    p.insert("provisioningState".into(), json!("Succeeded"));
    match kind {
        Kind::Model => {
            let value = Value::Object(p.clone());
            let word = match model_type(&Field::root(&value)) {
                Ok(kind) => kind.word(),
                Err(_) => "custom_model",
            };
            p.insert("modelType".into(), json!(word));
            fill(&mut p, "flavors", json!({})); // W2
            fill(&mut p, "stage", json!("Development"));
            fill(&mut p, "jobName", Value::Null);
        }
        Kind::Environment => {
            fill(&mut p, "environmentType", json!("UserCreated"));
            word(&mut p, "environmentType", &["UserCreated", "Curated"]);
            p.insert("osType".into(), json!("Linux"));
        }
        Kind::Data => {
            fill(&mut p, "dataType", json!("uri_folder"));
            word(&mut p, "dataType", &["uri_file", "uri_folder", "mltable"]);
        }
        Kind::Workspace
        | Kind::Compute
        | Kind::Datastore
        | Kind::Code
        | Kind::Component
        | Kind::BatchEndpoint
        | Kind::BatchDeployment
        | Kind::OnlineEndpoint
        | Kind::Job
        | Kind::InstanceType
        | Kind::Identity
        | Kind::RoleAssignment
        | Kind::RoleDefinition
        | Kind::Tracked
        | Kind::Quota => {}
    }
    resource_of(
        document,
        body,
        &format!("{}/{name}/versions/{version}", collection(kind)),
        p,
    )
}

/// The version after the highest whole number among `versions`; `1` when there is none.
pub fn next_version<'v>(versions: impl Iterator<Item = &'v str>) -> String {
    let highest = versions.filter_map(|v| v.parse::<u64>().ok()).max();
    highest.map_or(1, |n| n.saturating_add(1)).to_string()
}

/// The container of an asset: `newest` is its newest version, `versions` the names of all.
pub fn container<'v>(newest: &Document, versions: impl Iterator<Item = &'v str>) -> Value {
    let (name, latest) = name_and_version(newest.key.path.as_str());
    let collection = collection(newest.key.kind);
    let p = properties(&sent(newest));
    let mut out = json!({
        "latestVersion": latest,
        "nextVersion": next_version(versions),
        "isArchived": false,
        "description": p.get("description").cloned().unwrap_or_default(),
        "tags": {},
        "properties": {},
    });
    if newest.key.kind == Kind::Data {
        out["dataType"] = p.get("dataType").cloned().unwrap_or(json!("uri_folder"));
    }
    json!({
        "id": format!("{}/{collection}/{name}", workspace_id(&newest.key.workspace)),
        "name": name,
        "type": format!("{PROVIDER}/workspaces/{collection}"),
        "properties": out,
        "systemData": system_data(newest),
    })
}

/// The answer of `startPendingUpload`: a fresh container and the address that may write to it.
pub fn pending_upload(
    site: &super::Site,
    workspace: &Workspace,
    container: &BlobPath,
    id: &str,
    sas: &str,
) -> Value {
    let uri = format!(
        "{}/storage/{}/{container}",
        site.base,
        crate::places::ACCOUNT
    );
    json!({
        "pendingUploadId": id,
        "pendingUploadType": "TemporaryBlobReference",
        "blobReferenceForConsumption": {
            "blobUri": uri,
            "storageAccountArmId": super::workspace::storage_account(workspace),
            "credential": {"credentialType": "SAS", "sasUri": format!("{uri}?{sas}")},
        },
    })
}
