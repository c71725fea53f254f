//! From a kubeconfig to a client.
//!
//! K1 a kubeconfig is a text that a user sent: nothing in it makes the server run a program or read a file of its own.

use crate::ask::Way;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{path::Path, time::Duration};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A longer kubeconfig is none.
const LONGEST: u64 = 1 << 20;

/// Opens the way to the cluster of a kubeconfig; nothing is asked of it yet.
pub async fn open(path: &Path, namespace: &str) -> Result<Way, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("the kubeconfig cannot be used: {what}");
    let size = std::fs::metadata(path).map_err(|e| wrong(&e))?.len();
    if size > LONGEST {
        return Err(wrong(&format!(
            "it has {size} bytes, at most {LONGEST} are read"
        )));
    }
    let config = Kubeconfig::read_from(path).map_err(|e| wrong(&e))?;
    harmless(&config).map_err(|e| wrong(&e))?;
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .map_err(|e| wrong(&e))?;
    config.connect_timeout = Some(CONNECT);
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|e| wrong(&e))?;
    Ok(Way {
        client,
        url: url.trim_end_matches('/').to_owned(),
        namespace: namespace.to_owned(),
    })
}

/// K1. The error names what is not taken and what to write instead.
fn harmless(config: &Kubeconfig) -> Result<(), String> {
    let refuse = |whose: &str, key: &str, instead: &str| {
        Err(format!("{whose}: {key} is not taken, write {instead}"))
    };
    for cluster in &config.clusters {
        let whose = format!("cluster {}", cluster.name);
        if cluster
            .cluster
            .as_ref()
            .is_some_and(|c| c.certificate_authority.is_some())
        {
            return refuse(
                &whose,
                "certificate-authority",
                "certificate-authority-data",
            );
        }
    }
    for user in &config.auth_infos {
        let whose = format!("user {}", user.name);
        let Some(auth) = &user.auth_info else {
            continue;
        };
        for (there, key, instead) in [
            (
                auth.exec.is_some(),
                "exec",
                "a token or client-certificate-data",
            ),
            (
                auth.auth_provider.is_some(),
                "auth-provider",
                "a token or client-certificate-data",
            ),
            (auth.token_file.is_some(), "tokenFile", "token"),
            (
                auth.client_certificate.is_some(),
                "client-certificate",
                "client-certificate-data",
            ),
            (auth.client_key.is_some(), "client-key", "client-key-data"),
        ] {
            if there {
                return refuse(&whose, key, instead);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k1_nothing_is_run_and_no_file_is_read() {
        let config = |cluster: &str, user: &str| {
            Kubeconfig::from_yaml(&format!(
                "clusters: [{{name: c, cluster: {{server: 'https://x', {cluster}}}}}]\n\
                 users: [{{name: u, user: {{{user}}}}}]\n\
                 contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
            ))
            .unwrap()
        };
        assert_eq!(
            harmless(&config("certificate-authority-data: aa", "token: t")),
            Ok(())
        );
        for (cluster, user, named) in [
            (
                "certificate-authority: /etc/passwd",
                "token: t",
                "certificate-authority is",
            ),
            (
                "",
                "exec: {command: sh, apiVersion: v1}",
                "user u: exec is not taken",
            ),
            ("", "auth-provider: {name: x}", "auth-provider"),
            ("", "tokenFile: /etc/shadow", "tokenFile"),
            ("", "client-certificate: /a", "client-certificate is"),
            ("", "client-key: /a", "client-key is"),
        ] {
            let message = harmless(&config(cluster, user)).unwrap_err();
            assert!(message.contains(named), "{message}");
        }
    }
}
