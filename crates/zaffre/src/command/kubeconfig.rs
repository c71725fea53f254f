//! `zaffre kubeconfig`: what `kubectl` needs to reach the instance types of this server.

use crate::{
    cli::{Globals, instance_type::Kubeconfig},
    client::locate,
    failure::Failure,
    home, output,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

/// The name of cluster, user and context.
const NAME: &str = "zaffre";

/// Prints it, or writes it to a file.
pub fn run(globals: &Globals, args: &Kubeconfig) -> Result<(), Failure> {
    let server = locate::server(globals)?;
    let text = config(&server)?;
    match &args.file {
        None => output::write(&text),
        Some(path) => {
            home::write_private(path, text.as_bytes())?;
            if !globals.only_show_errors {
                output::say(&format!(
                    "{} is written: export KUBECONFIG={0}",
                    path.display()
                ));
            }
            Ok(())
        }
    }
}

/// Written out: a writer of YAML would fold the certificate over lines.
fn config(server: &locate::Address) -> Result<String, Failure> {
    let url = server.url.trim_end_matches('/');
    if !url.starts_with("https://") {
        return Err(Failure::wrong(format!(
            "kubectl sends a token over https only, not to {url}"
        ))
        .hint("name the server with https://"));
    }
    if server.account.is_some() {
        return Err(Failure::wrong(
            "kubectl keeps a token, and that of a sign-in ends within the hour",
        )
        .hint("use the server's own token: `zaffre account set -n local`, or ZAFFRE_TOKEN"));
    }
    let quoted = |text: &str| Value::from(text).to_string();
    let at = quoted(&format!("{url}{}", api::KUBE_PREFIX));
    let token = quoted(&server.token);
    let ca = server.ca.as_ref().map_or_else(String::new, |pem| {
        format!("    certificate-authority-data: {}\n", STANDARD.encode(pem))
    });
    Ok(format!(
        "apiVersion: v1\nkind: Config\n\
         clusters:\n- name: {NAME}\n  cluster:\n    server: {at}\n{ca}\
         users:\n- name: {NAME}\n  user:\n    token: {token}\n\
         contexts:\n- name: {NAME}\n  context:\n    cluster: {NAME}\n    user: {NAME}\n\
         current-context: {NAME}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_prefix_authority_and_token_and_refuses_plain_http() {
        let mut server = locate::Address {
            url: "https://127.0.0.1:8443/".into(),
            token: "t".into(),
            ca: Some(b"pem".to_vec()),
            account: None,
        };
        let made: Value = serde_saphyr::from_str(&config(&server).unwrap()).unwrap();
        let cluster = &made["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://127.0.0.1:8443/kube");
        assert_eq!(cluster["certificate-authority-data"], "cGVt");
        assert_eq!(made["users"][0]["user"]["token"], "t");
        server.url = "http://127.0.0.1:8443".into();
        assert!(config(&server).is_err());
    }
}
