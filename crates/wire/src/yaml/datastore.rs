//! Datastores: `type: azure_blob`, `azure_file`, `azure_data_lake_gen1`, `azure_data_lake_gen2`, `one_lake`.

use super::{
    fields::{Choice, Fields},
    load::Built,
};
use crate::names::NameError;
use serde_json::{Map, Value as Json, json};

const DEFAULT: &str = "Azure ML YAML reference, datastore";
const TYPES: &[Choice] = &[
    ("azure_blob", "AzureBlob"),
    ("azure_file", "AzureFile"),
    ("azure_data_lake_gen1", "AzureDataLakeGen1"),
    ("azure_data_lake_gen2", "AzureDataLakeGen2"),
    ("one_lake", "OneLake"),
];
const ARTIFACTS: &[Choice] = &[("lake_house", "LakeHouse")];
const PROTOCOLS: &[Choice] = &[
    ("https", "https"),
    ("http", "http"),
    ("abfss", "abfss"),
    ("wasbs", "wasbs"),
];
/// Where Azure's storage is, when a file does not say it.
const ENDPOINT: &str = "core.windows.net";

/// The file of a datastore.
pub(super) fn datastore(fields: Fields<'_>) -> Built {
    fields.has("$schema");
    let name = fields.name("name", |name| {
        let legal = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if legal {
            return Ok(());
        }
        Err(NameError::Rule {
            what: "datastore",
            name: name.to_owned(),
            rule: "holds something else than letters, digits, - and _".to_owned(),
        })
    });
    if fields.absent("name") {
        fields.missing("name", "write name: NAME");
    }
    let kind = fields.choice("type", TYPES);
    if fields.absent("type") {
        fields.missing("type", "write type: azure_blob");
    }
    let mut properties = Map::new();
    if let Some(description) = fields.text("description") {
        properties.insert("description".into(), description.text.into());
    }
    properties.insert("datastoreType".into(), kind.into());
    let needed: &[(&'static str, &str)] = match kind {
        Some("AzureBlob") => &[
            ("account_name", "accountName"),
            ("container_name", "containerName"),
        ],
        Some("AzureFile") => &[
            ("account_name", "accountName"),
            ("file_share_name", "fileShareName"),
        ],
        Some("AzureDataLakeGen2") => &[
            ("account_name", "accountName"),
            ("filesystem", "filesystem"),
        ],
        Some("AzureDataLakeGen1") => &[("store_name", "storeName")],
        Some("OneLake") => &[
            ("one_lake_workspace_name", "oneLakeWorkspaceName"),
            ("endpoint", "endpoint"),
        ],
        _ => &[],
    };
    for (key, wire) in needed {
        match fields.words(key) {
            Some(text) => {
                properties.insert((*wire).into(), text.text.into());
            }
            None if !fields.absent(key) => {}
            None => fields.missing(key, &format!("write {key}: NAME")),
        }
    }
    match kind {
        Some("AzureBlob" | "AzureFile" | "AzureDataLakeGen2") => {
            let endpoint = fields.words("endpoint").map(|t| t.text);
            if endpoint.is_none() {
                fields.default_unless_written("endpoint", ENDPOINT, DEFAULT);
            }
            properties.insert("endpoint".into(), endpoint.unwrap_or(ENDPOINT).into());
            let protocol = fields.choice_or("protocol", PROTOCOLS, "https", DEFAULT);
            properties.insert("protocol".into(), protocol.unwrap_or("https").into());
        }
        Some("OneLake") => {
            if let Some(section) = fields.section("artifact") {
                let artifact = section.words("name").map(|t| t.text.to_owned());
                if section.absent("name") {
                    section.missing("name", "write name: NAME");
                }
                let kind = section.choice_or("type", ARTIFACTS, "lake_house", DEFAULT);
                properties.insert(
                    "artifact".into(),
                    json!({ "artifactType": kind.unwrap_or("LakeHouse"), "artifactName": artifact }),
                );
                fields.show("artifact", section.done(&[]));
            }
        }
        _ => {}
    }
    properties.insert("credentials".into(), credentials(&fields, kind));
    properties.insert(
        "tags".into(),
        fields.texts("tags").unwrap_or_default().into(),
    );
    fields.read_only(&["id"]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body: json!({ "properties": properties }),
        effective: fields.done(&[]),
    }
}

/// What opens it. Secrets are in the document that is sent, never in the one that is shown.
fn credentials(fields: &Fields<'_>, kind: Option<&str>) -> Json {
    let Some(section) = fields.section("credentials") else {
        return json!({ "credentialsType": "None" });
    };
    let storage = matches!(kind, None | Some("AzureBlob" | "AzureFile"));
    let mut out = Map::new();
    let mut secret = |key: &'static str, kind: &str, wire: &str| {
        let text = section.words(key)?;
        section.show(key, "********");
        out.insert("credentialsType".into(), kind.into());
        out.insert(
            "secrets".into(),
            json!({ "secretsType": kind, wire: text.text }),
        );
        Some(())
    };
    if storage {
        let key = secret("account_key", "AccountKey", "key");
        if secret("sas_token", "Sas", "sasToken").is_some() && key.is_some() {
            section.error(
                section.at,
                "sas_token",
                "credentials are one of account_key and sas_token, not both",
            );
        }
    } else {
        let application = secret("client_secret", "ServicePrincipal", "clientSecret").is_some();
        let mut certificate = false;
        if kind != Some("OneLake") {
            certificate = secret("certificate", "Certificate", "certificate").is_some()
                || !section.absent("thumbprint");
            if let Some(print) = section.words("thumbprint") {
                out.insert("thumbprint".into(), print.text.into());
            }
        }
        if certificate {
            out.insert("credentialsType".into(), "Certificate".into());
            if section.absent("thumbprint") {
                section.missing("thumbprint", "write the thumbprint of the certificate");
            }
        }
        if application && certificate {
            section.error(
                section.at,
                "certificate",
                "credentials are one of client_secret and certificate, not both",
            );
        }
        for (key, wire, needed) in [
            ("tenant_id", "tenantId", true),
            ("client_id", "clientId", true),
            ("authority_url", "authorityUrl", false),
            ("resource_url", "resourceUrl", false),
        ] {
            match section.words(key) {
                Some(text) => {
                    out.insert(wire.into(), text.text.into());
                    if !application && !certificate && needed {
                        section.missing("client_secret", "write the secret of the application");
                    }
                }
                None if needed && (application || certificate) && section.absent(key) => {
                    section.missing(key, &format!("write {key}: ID"));
                }
                None => {}
            }
        }
        // the older spelling
        if let Some(text) = section.words("authority_uri")
            && out
                .insert("authorityUrl".into(), text.text.into())
                .is_some()
        {
            section.error(
                text.at,
                "authority_uri",
                "authority_uri is the older spelling of authority_url, and both are given",
            );
        }
    }
    fields.show("credentials", section.done(&[]));
    if out.is_empty() {
        out.insert("credentialsType".into(), "None".into());
    }
    out.into()
}
