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
/// The version of the contract between kubectl and a program that it asks for a token.
pub const EXEC_API: &str = "client.authentication.k8s.io/v1";

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
    let quoted = |text: &str| Value::from(text).to_string();
    let at = quoted(&format!("{url}{}", api::KUBE_PREFIX));
    let user = match &server.account {
        Some(account) => asks(&account.name)?,
        None => format!("    token: {}\n", quoted(&server.token)),
    };
    let ca = server.ca.as_ref().map_or_else(String::new, |pem| {
        format!("    certificate-authority-data: {}\n", STANDARD.encode(pem))
    });
    Ok(format!(
        "apiVersion: v1\nkind: Config\n\
         clusters:\n- name: {NAME}\n  cluster:\n    server: {at}\n{ca}\
         users:\n- name: {NAME}\n  user:\n{user}\
         contexts:\n- name: {NAME}\n  context:\n    cluster: {NAME}\n    user: {NAME}\n\
         current-context: {NAME}\n"
    ))
}

/// Tokens of a sign-in end within the hour: kubectl asks this program for one. No secret is in the file.
fn asks(account: &str) -> Result<String, Failure> {
    let quoted = |text: &str| Value::from(text).to_string();
    let program = std::env::current_exe().map_err(|error| {
        Failure::failed(format!("this program does not know where it is: {error}"))
    })?;
    let home = std::env::var("ZAFFRE_HOME")
        .ok()
        .filter(|home| !home.is_empty());
    let home = home.map(|home| std::path::absolute(&home).unwrap_or_else(|_| home.into()));
    let home = home.map_or_else(String::new, |home| {
        format!(
            "      env:\n      - name: ZAFFRE_HOME\n        value: {}\n",
            quoted(&home.to_string_lossy())
        )
    });
    Ok(format!(
        "    exec:\n      apiVersion: {EXEC_API}\n      command: {}\n\
         \x20     args: [account, get-access-token, --exec-credential, --name, {}]\n{home}\
         \x20     interactiveMode: Never\n      installHint: {NAME} is not where it was when this file was written\n",
        quoted(&program.to_string_lossy()),
        quoted(account),
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
        let user = &made["users"][0]["user"];
        assert_eq!(user["exec"], Value::Null);
        server.account = Some(Box::new(crate::client::account::Account {
            name: "ann@127.0.0.1:8443".into(),
            url: server.url.clone(),
            ca: None,
            identity: "ann".into(),
            credential: crate::client::account::Credential::Secret("secret".into()),
            access: None,
        }));
        let text = config(&server).unwrap();
        assert!(!text.contains("secret"), "{text}");
        let made: Value = serde_saphyr::from_str(&text).unwrap();
        let user = &made["users"][0]["user"];
        assert_eq!(user["token"], Value::Null);
        assert_eq!(user["exec"]["apiVersion"], EXEC_API);
        assert_eq!(user["exec"]["args"][4], "ann@127.0.0.1:8443");
        server.url = "http://127.0.0.1:8443".into();
        assert!(config(&server).is_err());
    }
}
