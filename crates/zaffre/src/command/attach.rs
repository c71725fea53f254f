//! `zaffre compute attach` and `detach`: Kubernetes clusters, and machines and Spark pools that were made elsewhere.

use super::{
    Context,
    compute::{at, expect, identities, put},
    confirm,
};
use crate::{
    cli::compute::{Attach, Detach},
    client::operation::Wait,
    draft::{self, flag},
    failure::Failure,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{fs, path::Path};
use wire::yaml::{Kind, Override};

/// Where the kubeconfig goes in the body.
const KUBECONFIG: &str = "/properties/properties/zaffre.kubeconfig";
/// What a kubeconfig may name as a file, with what holds the content instead.
const FILES: [(&str, &str, &str, &str); 4] = [
    (
        "clusters",
        "cluster",
        "certificate-authority",
        "certificate-authority-data",
    ),
    (
        "users",
        "user",
        "client-certificate",
        "client-certificate-data",
    ),
    ("users", "user", "client-key", "client-key-data"),
    ("users", "user", "tokenFile", "token"),
];

/// Attaches a cluster, or makes this machine one.
pub async fn attach(context: &Context, args: Attach) -> Result<(), Failure> {
    if args.file.file.is_none() && args.name.is_none() {
        return Err(Failure::wrong("neither --file nor --name is given")
            .hint("zaffre compute attach --type kubernetes -n NAME --namespace NAMESPACE"));
    }
    let mut found = draft::read(
        args.file.file.as_deref(),
        &overrides(&args)?,
        Kind::Kubernetes,
    )?;
    if !matches!(found.draft.kind, Kind::VirtualMachine | Kind::SynapseSpark) {
        expect(&found.draft, Kind::Kubernetes)?;
    }
    found.warn();
    found.settle(&context.client).await?;
    if let Some(path) = &args.kubeconfig {
        let config = flattened(path, args.context.as_deref())?;
        wire::yaml::put(&mut found.draft.body, KUBECONFIG, config.to_string().into());
    }
    put(context, &found.draft, Wait::unless(args.no_wait)).await
}

fn overrides(args: &Attach) -> Result<Vec<Override>, Failure> {
    let mut list = draft::sets(&args.file.set)?;
    for (name, keys, value) in [
        ("--name", &["name"][..], &args.name),
        ("--type", &["type"], &args.r#type),
        ("--namespace", &["namespace"], &args.namespace),
        ("--resource-id", &["resource_id"], &args.resource_id),
        (
            "--admin-username",
            &["ssh_settings", "admin_username"],
            &args.admin_username,
        ),
        (
            "--admin-password",
            &["ssh_settings", "admin_password"],
            &args.admin_password,
        ),
        ("--ssh-port", &["ssh_settings", "ssh_port"], &args.ssh_port),
        (
            "--ssh-private-key-file",
            &["ssh_settings", "ssh_private_key_file"],
            &args.ssh_private_key_file,
        ),
        (
            "--identity-type",
            &["identity", "type"],
            &args.identity_type,
        ),
    ] {
        flag(&mut list, name, keys, value.as_deref());
    }
    identities(&mut list, args.user_assigned_identities.as_deref())?;
    for label in &args.node_selector {
        let (key, value) = label.split_once('=').ok_or_else(|| {
            Failure::wrong(format!("--node-selector {label}: a label is KEY=VALUE"))
        })?;
        let keys = ["properties", "zaffre.node_selector", key];
        list.push(Override::flag("--node-selector", &keys, value));
    }
    Ok(list)
}

/// Lets a compute go: its pods end, its cluster stays as it is.
pub async fn detach(context: &Context, args: Detach) -> Result<(), Failure> {
    let at = at(context, &args.name)?;
    confirm(&format!("detach compute {}", args.name), args.yes)?;
    context
        .client
        .delete(
            &format!("{at}?underlyingResourceAction=Detach"),
            Wait::unless(args.no_wait),
        )
        .await
}

/// A kubeconfig of one context with everything in it: the files that it names are read here, where they are, since the server
/// may be elsewhere.
fn flattened(path: &Path, context: Option<&str>) -> Result<Value, Failure> {
    let wrong = |message: String| Failure::wrong(format!("{}: {message}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let mut config: Value =
        serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let current = config["current-context"].as_str().unwrap_or_default();
    let name = context.unwrap_or(current).to_owned();
    if name.is_empty() {
        return Err(wrong("it has no current-context".into()).hint("choose one with --context"));
    }
    let entry = |list: &str, name: &str| {
        let entries = config[list].as_array().into_iter().flatten();
        let mut named = entries.filter(|e| e["name"] == name);
        named.next().cloned().ok_or_else(|| {
            let one = list.trim_end_matches('s');
            wrong(format!("it has no {one} {name}"))
        })
    };
    let chosen = entry("contexts", &name)?;
    let of = |key: &str| chosen["context"][key].as_str().unwrap_or_default();
    let (cluster, user) = (
        entry("clusters", of("cluster"))?,
        entry("users", of("user"))?,
    );
    config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [chosen],
        "clusters": [cluster],
        "users": [user],
    });
    let folder = path.parent().unwrap_or(Path::new("."));
    for (list, entry, key, data) in FILES {
        let Some(map) = config[list][0][entry].as_object_mut() else {
            continue;
        };
        let Some(file) = map.remove(key) else {
            continue;
        };
        let Some(file) = file.as_str().filter(|file| !file.is_empty()) else {
            continue;
        };
        let file = folder.join(file);
        let bytes =
            fs::read(&file).map_err(|error| wrong(format!("{key} {}: {error}", file.display())))?;
        let content = if data == "token" {
            String::from_utf8_lossy(&bytes).trim().to_owned()
        } else {
            STANDARD.encode(&bytes)
        };
        map.entry(data).or_insert(content.into());
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_is_sent_with_what_its_files_hold_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("ca.crt"), "CA").unwrap();
        fs::write(at("t"), "secret\n").unwrap();
        let text = "
apiVersion: v1
kind: Config
current-context: b
contexts:
- {name: a, context: {cluster: one, user: u1}}
- {name: b, context: {cluster: two, user: u2}}
clusters:
- {name: one, cluster: {server: https://one}}
- {name: two, cluster: {server: https://two, certificate-authority: ca.crt}}
users:
- {name: u1, user: {token: other}}
- {name: u2, user: {tokenFile: t}}
";
        fs::write(at("config"), text).unwrap();
        let config = flattened(&at("config"), None).unwrap();
        let cluster = &config["clusters"][0]["cluster"];
        assert_eq!(cluster["certificate-authority-data"], "Q0E=");
        assert_eq!(config["users"][0]["user"], json!({"token": "secret"}));
        assert!(!config.to_string().contains("other"), "{config}");
        let failure = flattened(&at("config"), Some("c")).unwrap_err();
        assert!(
            failure.message.ends_with("it has no context c"),
            "{failure:?}"
        );
    }
}
