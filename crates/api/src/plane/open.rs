//! What is answered to everybody: health, and where things are. Nothing here says what the server holds.

use serde_json::json;
use std::sync::Arc;

use crate::{Api, call::Call, problem::Answer, reply};

/// The storage suffix that clients put between account and container (wire §7).
pub(crate) const STORAGE_SUFFIX: &str = "core.local";

/// What this cloud is called in the metadata that the SDK asks for, and in `AZUREML_CURRENT_CLOUD`.
pub const CLOUD: &str = "Zaffre";

/// GET /health.
pub(crate) fn health(_api: &Arc<Api>, _call: &Call) -> Answer {
    Ok(reply::ok(&json!({"status": "ok"})))
}

/// GET /metadata/endpoints: the cloud that `ARM_CLOUD_METADATA_URL` points at. Asked for on nearly every call of the SDK.
pub(crate) fn metadata(_api: &Arc<Api>, call: &Call) -> Answer {
    let b = call.base.url();
    Ok(reply::ok(&json!([{
        "name": CLOUD,
        "portal": "https://portal.azure.local/",
        "resourceManager": b,
        "authentication": {"loginEndpoint": b, "audiences": [b], "tenant": "common", "identityProvider": "AAD"},
        "suffixes": {"storage": STORAGE_SUFFIX, "keyVaultDns": "vault.local", "acrLoginServer": "azurecr.local"},
        "graph": b, "graphAudience": b, "media": b, "batch": b, "vmImageAliasDoc": b, "sqlManagement": b,
        "activeDirectoryDataLake": b,
    }])))
}

/// GET the discovery URL of a workspace.
pub(crate) fn discovery(api: &Arc<Api>, call: &Call) -> Answer {
    Ok(reply::ok(&wire::view::workspace::discovery(
        &crate::show::site(api, &call.base),
    )))
}
