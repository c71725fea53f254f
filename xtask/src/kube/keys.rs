//! Keys, certificates and users of one cluster. They are worth nothing outside of it: everything listens on the loopback
//! and on a bridge of the machine, and goes with the cluster.

use super::tools;
use anyhow::{Context, Result};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A user with a token: the file of its kubeconfig, its name for Kubernetes, its group.
struct User {
    file: &'static str,
    name: &'static str,
    group: &'static str,
}

const fn user(file: &'static str, name: &'static str, group: &'static str) -> User {
    User { file, name, group }
}

/// The last two are for the tests: the engine gets its rights from the manifest that is tested, the viewer none at all.
const USERS: [User; 6] = [
    user("admin", "admin", "system:masters"),
    user("controller-manager", "system:kube-controller-manager", ""),
    user("scheduler", "system:kube-scheduler", ""),
    user("node", "system:node:node-1", "system:nodes"),
    user("zaffre-engine", "zaffre-engine", ""),
    user("zaffre-viewer", "zaffre-viewer", ""),
];

/// The real node's name, which its user must have in its own.
pub const NODE: &str = "node-1";

/// Sections by name, so that nothing depends on the configuration that OpenSSL was installed with.
const OPENSSL: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = zaffre-test-ca
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = CA:FALSE
keyUsage = digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, IP:10.96.0.1, DNS:localhost, DNS:kubernetes, DNS:kubernetes.default, DNS:kubernetes.default.svc
[client]
basicConstraints = CA:FALSE
keyUsage = digitalSignature
extendedKeyUsage = clientAuth
";

const DAYS: &str = "30";

/// Writes `pki/` and `kc/` of a cluster whose API server will listen on this port.
pub fn make(state: &Path, port: u16) -> Result<()> {
    let pki = state.join("pki");
    fs::write(pki.join("openssl.cnf"), OPENSSL)?;
    let openssl = |args: &str| {
        let mut command = tools::program("openssl");
        command.args(args.split(' ')).current_dir(&pki);
        // Private keys are made by it, and it makes them for the owner alone.
        tools::output(&mut command)
    };
    // Elliptic curves: an RSA key takes a good part of a second.
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf";
    openssl(&format!(
        "req -x509 {key} -extensions ca -keyout ca.key -out ca.crt -days {DAYS}"
    ))?;
    // The groups make the API server's own client an administrator of the kubelet.
    for (name, section, subject) in [
        ("server", "server", "/CN=kube-apiserver"),
        (
            "to-kubelet",
            "client",
            "/O=system:masters/CN=kube-apiserver-to-kubelet",
        ),
    ] {
        openssl(&format!(
            "req {key} -keyout {name}.key -out {name}.csr -subj {subject}"
        ))?;
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt -days {DAYS} \
             -extfile openssl.cnf -extensions {section}"
        ))?;
    }
    openssl("ecparam -name prime256v1 -genkey -noout -out accounts.key")?;
    openssl("ec -in accounts.key -pubout -out accounts.pub")?;
    users(state, port, &openssl("base64 -A -in ca.crt")?)
}

fn users(state: &Path, port: u16, ca: &str) -> Result<()> {
    let mut tokens = String::new();
    for User { file, name, group } in USERS {
        let token = tools::output(tools::program("openssl").args(["rand", "-hex", "16"]))?;
        let token = token.trim();
        tokens.push_str(&format!("{token},{name},{name}"));
        if !group.is_empty() {
            tokens.push_str(&format!(",{group}"));
        }
        tokens.push('\n');
        secret(
            &state.join("kc").join(format!("{file}.kubeconfig")),
            &kubeconfig(port, ca, token),
        )?;
        if file == "admin" {
            let header = format!("Authorization: Bearer {token}\n");
            secret(&state.join("pki/admin.header"), &header)?;
        }
    }
    secret(&state.join("pki/tokens.csv"), &tokens)
}

/// The certificate is inside, so that the file can be copied.
fn kubeconfig(port: u16, ca: &str, token: &str) -> String {
    format!(
        "\
apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority-data: {ca}
users:
- name: test
  user:
    token: {token}
contexts:
- name: test
  context:
    cluster: test
    user: test
current-context: test
"
    )
}

/// Writes a file that only its owner may read.
fn secret(path: &Path, text: &str) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    file.open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_may_speak_for_itself_only() {
        let node = USERS.iter().find(|user| user.file == "node").unwrap();
        assert_eq!(node.name, format!("system:node:{NODE}"));
    }

    #[test]
    fn users_of_the_tests_have_no_rights_of_their_own() {
        let tests = USERS.iter().filter(|user| user.name.starts_with("zaffre-"));
        assert_eq!(tests.map(|user| user.group).collect::<String>(), "");
    }
}
