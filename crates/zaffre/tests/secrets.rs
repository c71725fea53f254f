//! I9 for what users and jobs are given: every secret that a server gave or was given is known to the test, the server is used
//! with it, rightly and wrongly, and then it is looked for wherever it must not be.

mod support;

use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};
use support::{
    KEYS, Server,
    plain::{Answer, Plain, WS},
};

const SOON: Duration = Duration::from_secs(60);
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
/// How digests of secrets begin: nobody needs them but the database.
const DIGEST: &str = "$argon2";
/// What is looked for, each with what it is.
#[derive(Default)]
struct Canaries(Vec<(&'static str, String)>);

impl Canaries {
    fn add(&mut self, what: &'static str, secret: &str) {
        assert!(secret.len() > 15, "{what} is too short to be looked for");
        self.0.push((what, secret.to_owned()));
    }
    /// What `bytes` hold of them.
    fn within(&self, bytes: &[u8]) -> Option<&'static str> {
        let holds = |secret: &str| {
            let secret = secret.as_bytes();
            bytes.windows(secret.len()).any(|part| part == secret)
        };
        let found = self.0.iter().find(|(_, secret)| holds(secret));
        found.map(|(what, _)| *what)
    }
    fn of(&self, what: &str) -> &str {
        &self.0.iter().find(|(name, _)| *name == what).unwrap().1
    }
}

struct Used {
    client: Plain,
    canaries: Canaries,
}

impl Used {
    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.client.ask(method, path, &[], &body).unwrap()
    }

    /// A request that must work, and whose answer may say a secret.
    fn told(&self, method: &str, path: &str, body: &Value) -> Value {
        let got = self.ask(method, path, body);
        assert!(got.status < 300, "{method} {path}: {}", got.text());
        got.json()
    }

    /// A request whose answer may say none.
    fn quiet(&self, method: &str, path: &str, body: &Value) {
        let got = self.ask(method, path, body);
        assert!(got.status < 300, "{method} {path}: {}", got.text());
        self.says_nothing(&got, path);
    }

    /// A request that must be refused, without a word of what was in it.
    fn refused(&self, token: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let client = Plain {
            token: token.to_owned(),
            ..self.client.clone()
        };
        let got = client.ask(method, path, headers, body).unwrap();
        assert!(
            (400..500).contains(&got.status),
            "{method} {path}: {} {}",
            got.status,
            got.text()
        );
        self.says_nothing(&got, path);
    }

    fn says_nothing(&self, got: &Answer, path: &str) {
        let found = self.canaries.within(&got.body);
        assert_eq!(found, None, "the answer to {path}: {}", got.text());
        assert!(!got.text().contains(DIGEST), "{path}: {}", got.text());
    }
}

/// A variable of the process that carries out a run.
fn variables(run: &str) -> Option<Vec<(String, String)>> {
    let mark = format!("MLFLOW_RUN_ID={run}");
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let bytes = fs::read(entry.path().join("environ")).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let all: Vec<&str> = text.split('\0').collect();
        let pair = |line: &&str| {
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        all.contains(&mark.as_str())
            .then(|| all.iter().filter_map(pair).collect())
    })
}

/// Gives the server secrets, and takes those that it gives.
fn fill(server: &Server, used: &mut Used) {
    let vm = "canary-password-of-a-machine";
    let key = "canary-account-key-of-a-datastore";
    used.canaries.add("password", vm);
    used.canaries.add("account key", key);
    used.canaries.add("token", &server.token());
    let identity = json!({"properties": {"kind": "service"}});
    let made = used.told("PUT", "/identities/ann", &identity);
    let first = made["properties"]["secret"].as_str().unwrap();
    used.canaries.add("old secret", first);
    let made = used.told("POST", "/identities/ann/rotate", &Value::Null);
    let secret = made["properties"]["secret"].as_str().unwrap();
    used.canaries.add("secret", secret);

    let form = format!(
        "grant_type=client_credentials&client_id=ann&client_secret={secret}&scope=https://ml.azure.com/.default"
    );
    let got = used
        .client
        .ask("POST", "/local/oauth2/v2.0/token", &[FORM], &form);
    let got = got.unwrap();
    assert_eq!(got.status, 200, "{}", got.text());
    let token = got.json()["access_token"].as_str().unwrap().to_owned();
    used.canaries.add("access token", &token);

    let account = json!({"username": "azureuser", "password": vm});
    let machine = json!({"location": "local", "properties": {"computeType": "VirtualMachine", "resourceId": "/subscriptions/x/vm",
        "properties": {"sshPort": 2222, "administratorAccount": account}}});
    used.quiet("PUT", &format!("{WS}/computes/vm-1"), &machine);
    let secrets = json!({"secretsType": "AccountKey", "key": key});
    let store = json!({"properties": {"datastoreType": "AzureBlob", "accountName": "acc", "containerName": "c",
        "endpoint": "core.windows.net", "protocol": "https",
        "credentials": {"credentialsType": "AccountKey", "secrets": secrets}}});
    used.quiet("PUT", &format!("{WS}/datastores/mine"), &store);
    let endpoint = json!({"location": "local", "properties": {"authMode": "Key"}});
    let path = format!("{WS}/onlineEndpoints/one");
    used.quiet("PUT", &path, &endpoint);
    let keys = used.told("POST", &format!("{path}/listKeys"), &Value::Null);
    used.canaries
        .add("primary key", keys["primaryKey"].as_str().unwrap());
    used.canaries
        .add("secondary key", keys["secondaryKey"].as_str().unwrap());
    let path = format!("{WS}/datastores/workspaceblobstore/listSecrets");
    let secrets = used.told("POST", &path, &Value::Null);
    let signature = secrets["sasToken"].as_str().unwrap().split("sig=").nth(1);
    used.canaries.add("signature", signature.unwrap());
}

/// Asks wrongly, with every secret in the place where it belongs.
fn misuse(used: &Used) {
    let own = used.client.token.clone();
    let [secret, vm, key] =
        ["secret", "password", "account key"].map(|what| used.canaries.of(what));
    for form in [
        format!(
            "grant_type=client_credentials&client_id=bob&client_secret={secret}&scope=x/.default"
        ),
        format!(
            "grant_type=password&client_id=ann&client_secret={secret}&username=ann&password={secret}"
        ),
        format!(
            "grant_type=client_credentials&client_id=ann&client_secret={secret}x&scope=x/.default"
        ),
        format!("grant_type=client_credentials&client_id=ann&client_secret={secret}"),
        format!("grant_type=refresh_token&refresh_token={secret}&resource=x"),
    ] {
        used.refused("", "POST", "/local/oauth2/v2.0/token", &[FORM], &form);
    }
    let store = |credentials: &Value| {
        json!({"properties": {"datastoreType": "AzureBlob", "accountName": "acc", "containerName": "c", "credentials": credentials}})
            .to_string()
    };
    let path = format!("{WS}/datastores/mine");
    for body in [
        store(
            &json!({"credentialsType": "AccountKey", "secrets": {"secretsType": "AccountKey", "key": [key]}}),
        ),
        store(
            &json!({"credentialsType": "AccountKey", "secrets": {"secretsType": "AccountKey", "key": {"key": key}}}),
        ),
        store(&json!({"credentialsType": key, "secrets": {"key": key}}))
            .replacen(key, "Nonsense", 1),
        format!("{{\"properties\": {{\"key\": \"{key}\", "),
        store(&json!({"credentialsType": "AccountKey", "secrets": key})),
        store(&json!(key)),
    ] {
        used.refused(&own, "PUT", &path, &[], &body);
    }
    let machine = json!({"properties": {"computeType": "VirtualMachine", "properties": {
        "sshPort": "many", "administratorAccount": {"username": 5, "password": [vm]}}}});
    let path = format!("{WS}/computes/vm-1");
    used.refused(&own, "PUT", &path, &[], &machine.to_string());
    let path = format!("{WS}/onlineEndpoints/one/regenerateKeys");
    let keys = json!({"keyType": "third", "keyValue": used.canaries.of("primary key")});
    used.refused(&own, "POST", &path, &[], &keys.to_string());

    let signed = format!(
        "/storage/zaffre/nobody-blobs/x?sv=2024-11-04&se=2999-01-01T00%3A00%3A00Z&sr=c&sp=r&sig={}",
        used.canaries.of("signature")
    );
    used.refused("", "GET", &signed, &[], "");
    // What opens one thing does not open another.
    let computes = format!("{WS}/computes");
    for what in [
        "access token",
        "run's credential",
        "job's secret",
        "secret",
        "primary key",
    ] {
        used.refused(used.canaries.of(what), "GET", &computes, &[], "");
    }
    let header = [("x-identity-header", used.canaries.of("job's secret"))];
    used.refused(
        "",
        "GET",
        "/msi/token?api-version=2019-08-01&resource=https://vault.azure.net",
        &header,
        "",
    );
    let header = [("x-identity-header", secret)];
    used.refused(
        "",
        "GET",
        "/msi/token?api-version=2019-08-01&resource=https://ml.azure.com",
        &header,
        "",
    );
}

/// Every file below `folder`.
fn each_file(folder: &Path, look: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
        } else if path.is_dir() {
            each_file(&path, look);
        } else if path.is_file() {
            look(&path);
        }
    }
}

#[test]
fn i9_no_secret_of_a_user_or_a_run_is_where_it_must_not_be() {
    let mut server = Server::start_with(&["--debug"]);
    let mut used = Used {
        client: Plain::of(&server.url, &server.token()),
        canaries: Canaries::default(),
    };
    fill(&server, &mut used);
    support::write(
        &server.folder,
        "job.yml",
        "command: sleep 600\nenvironment: {image: library/python:latest}\ncompute: azureml:pool\n",
    );
    server.ok(&[
        "compute",
        "create",
        "-n",
        "pool",
        "--type",
        "amlcompute",
        "-o",
        "none",
    ]);
    let run = format!("canary-{}", std::process::id());
    server.ok(&["job", "create", "-f", "job.yml", "-n", &run, "-o", "none"]);
    let mut found = None;
    server.wait("the job runs", SOON, |_| {
        found = variables(&run);
        found.is_some()
    });
    let value = |name: &str| {
        let all = found.iter().flatten();
        let mut of = all.filter(|(found, _)| found == name);
        of.next().map(|(_, value)| value.clone()).unwrap()
    };
    used.canaries
        .add("run's credential", &value("MLFLOW_TRACKING_TOKEN"));
    used.canaries.add("job's secret", &value("IDENTITY_HEADER"));

    misuse(&used);
    for path in [
        "/identities".to_owned(),
        "/identities/ann".to_owned(),
        format!("{WS}/computes"),
        format!("{WS}/computes/vm-1"),
        format!("{WS}/datastores"),
        format!("{WS}/datastores/mine"),
        format!("{WS}/onlineEndpoints"),
        format!("{WS}/onlineEndpoints/one"),
        format!("{WS}/jobs"),
        format!("{WS}/jobs/{run}"),
    ] {
        used.quiet("GET", &path, &Value::Null);
    }
    // Any process of the machine: arguments are for everybody to read.
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let found = used.canaries.within(&line);
        assert_eq!(found, None, "{}", String::from_utf8_lossy(&line));
        let digest = String::from_utf8_lossy(&line).contains(DIGEST);
        assert!(!digest, "{}", String::from_utf8_lossy(&line));
    }
    server.ok(&["job", "cancel", "-n", &run]);
    server.run(&["job", "stream", "-n", &run]);
    server.terminate_for_restart();

    let log = server.log();
    assert!(log.contains("listening on"), "it is the log: {log}");
    let (data, mut read) = (server.data(), 0);
    each_file(&server.folder, &mut |path| {
        if KEYS.iter().any(|name| path == data.join(name)) {
            return;
        }
        let bytes = fs::read(path).unwrap();
        assert_eq!(used.canaries.within(&bytes), None, "{}", path.display());
        let database = path.file_name().unwrap().to_string_lossy().contains(".db");
        let digest = bytes
            .windows(DIGEST.len())
            .any(|part| part == DIGEST.as_bytes());
        assert!(!digest || database, "{}", path.display());
        read += 1;
    });
    assert!(read > 5, "only {read} files were read");
    assert_eq!(
        used.canaries.within(&fs::read(data.join("token")).unwrap()),
        Some("token"),
        "what is there is found"
    );
}
