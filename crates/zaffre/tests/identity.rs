//! Signing in, identities and roles, as a user types them.

mod support;

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Output, Stdio},
};
use support::{Server, ZAFFRE};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command of somebody who knows the server's address and its authority only.
fn other(server: &Server, home: &str, args: &[&str]) -> Command {
    let mut command = Command::new(ZAFFRE);
    command
        .args(args)
        .current_dir(&server.folder)
        .stdin(Stdio::null())
        .env("ZAFFRE_HOME", server.folder.join(home))
        .env("ZAFFRE_CA", server.data().join("ca.pem"))
        .env_remove("ZAFFRE_TOKEN")
        .env_remove("ZAFFRE_SERVER");
    command
}

fn run(mut command: Command) -> Output {
    command.output().unwrap()
}

fn ok(command: Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A new identity with a role at the workspace; its secret.
fn identity(server: &Server, name: &str, role: &str) -> String {
    let secret = server.value(&["identity", "create", "-n", name], "secret");
    server.ok(&[
        "role",
        "assignment",
        "create",
        "--assignee",
        name,
        "--role",
        role,
    ]);
    secret
}

#[test]
fn somebody_signs_in_and_does_what_the_role_allows() {
    let mut server = Server::start();
    let secret = identity(&server, "ann", "Reader");
    let me = |args: &[&str]| other(&server, "ann", args);
    let url = server.url.clone();
    let login = |secret: &str| {
        let mut command = me(&["login", "--server", &url, "-u", "ann", "--secret-file", "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(secret.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    };
    let refused = login("wrong");
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("there is no identity with"),
        "{refused:?}"
    );
    assert_eq!(
        run(me(&["compute", "list"])).status.code(),
        Some(2),
        "nothing was kept"
    );
    assert!(login(&secret).status.success());
    let kept = server.folder.join("ann/accounts.json");
    assert_eq!(
        fs::metadata(&kept).unwrap().permissions().mode() & 0o777,
        0o600
    );

    assert_eq!(ok(me(&["compute", "list", "-o", "json"])).trim(), "[]");
    let denied = run(me(&[
        "compute",
        "create",
        "-n",
        "c01",
        "--type",
        "amlcompute",
    ]));
    let said = text(&denied.stderr);
    assert_eq!(denied.status.code(), Some(2), "{said}");
    assert!(
        said.contains("'ann'") && said.contains("computes/write"),
        "{said}"
    );
    assert_eq!(
        server.ok(&["compute", "list", "-o", "json"]).trim(),
        "[]",
        "nothing was made"
    );
    server.ok(&[
        "role",
        "assignment",
        "create",
        "--assignee",
        "ann",
        "--role",
        "Contributor",
    ]);
    ok(me(&[
        "compute",
        "create",
        "-n",
        "c01",
        "--type",
        "amlcompute",
        "-o",
        "none",
    ]));
    server.ok(&[
        "role",
        "assignment",
        "delete",
        "--assignee",
        "ann",
        "--role",
        "contributor",
    ]);
    assert_eq!(
        run(me(&["compute", "delete", "-n", "c01", "-y"]))
            .status
            .code(),
        Some(2)
    );

    // The token, the identity and the role are there after a restart.
    server.terminate_for_restart();
    server.restart();
    let me = |args: &[&str]| other(&server, "ann", args);
    let moved = server.url.clone();
    let mut again = me(&[
        "login",
        "--server",
        &moved,
        "-u",
        "ann",
        "--secret-file",
        "secret",
    ]);
    fs::write(server.folder.join("secret"), &secret).unwrap();
    assert!(again.output().unwrap().status.success());
    assert_eq!(
        ok(me(&["compute", "list", "-o", "tsv", "--query", "[].name"])).trim(),
        "c01"
    );
    let shown = ok(me(&[
        "account",
        "show",
        "-o",
        "tsv",
        "--query",
        "[identity, signed_in_with, workspace]",
    ]));
    assert_eq!(
        shown.split_whitespace().collect::<Vec<_>>(),
        ["ann", "secret", "default"]
    );

    server.ok(&["identity", "rotate", "-n", "ann", "-o", "none"]);
    assert_eq!(
        run(me(&["compute", "list"])).status.code(),
        Some(2),
        "its token died with the secret"
    );
    ok(me(&["account", "clear"]));
    assert_eq!(ok(me(&["account", "list", "-o", "json"])).trim(), "[]");
    server.stop();
}

#[test]
fn a_device_signs_in_with_a_code_that_somebody_approves() {
    use std::io::{BufRead, BufReader};
    let server = Server::start();
    let mut waiting = other(
        &server,
        "device",
        &["login", "--server", &server.url, "-o", "json"],
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut said = String::new();
    BufReader::new(waiting.stderr.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    let code = said
        .split("enter the code ")
        .nth(1)
        .unwrap_or_else(|| panic!("{said}"));
    let code = code.split(',').next().unwrap();
    assert!(
        said.contains(&format!("{}/devicelogin", server.url)),
        "{said}"
    );
    let wrong = server.run(&["identity", "approve", "XXXX-XXXX"]);
    assert_eq!(wrong.status.code(), Some(3));
    server.ok(&["identity", "approve", code]);
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(
        text(&output.stdout).contains("\"identity\": \"zaffre\""),
        "{output:?}"
    );
    ok(other(&server, "device", &["compute", "list"]));
    let token = ok(other(
        &server,
        "device",
        &[
            "account",
            "get-access-token",
            "--resource",
            "https://ml.azure.local",
            "-o",
            "tsv",
            "--query",
            "access_token",
        ],
    ));
    assert_eq!(token.trim().split('.').count(), 3);
    let env = run(other(&server, "device", &["env"]));
    assert!(
        !text(&env.stdout).contains("AZURE_CLIENT_SECRET"),
        "{env:?}"
    );
    assert!(
        text(&env.stderr).contains("zaffre identity create"),
        "{env:?}"
    );
    server.stop();
}

#[test]
fn env_says_what_programs_need_and_takes_it_back() {
    let server = Server::start();
    let json: serde_json::Value = serde_json::from_str(&server.ok(&["env", "--json"])).unwrap();
    assert_eq!(json["AZURE_AUTHORITY_HOST"], server.url);
    assert_eq!(json["AZURE_CLIENT_SECRET"], server.token());
    let bundle = fs::read_to_string(json["REQUESTS_CA_BUNDLE"].as_str().unwrap()).unwrap();
    let ours = fs::read_to_string(server.data().join("ca.pem")).unwrap();
    assert!(bundle.starts_with(&ours));
    let set = server.ok(&["env", "--shell", "powershell", "-w", "other"]);
    assert!(
        set.contains("$Env:AZUREML_WORKSPACE_NAME = 'other'"),
        "{set}"
    );
    let back = server.ok(&["env", "--shell", "fish", "--unset"]);
    assert!(back.contains("set -e AZURE_CLIENT_SECRET\n"), "{back}");
    assert!(!back.contains(&server.token()));
    let plain = server.url.replace("https://", "http://");
    let refused = server.run(&["env", "--server", &plain]);
    assert!(
        text(&refused.stderr).contains("over https only"),
        "{refused:?}"
    );
    server.stop();
}

#[test]
fn identities_and_roles_are_listed_and_taken_back() {
    let server = Server::start();
    identity(&server, "bot", "AzureML Data Scientist");
    server.ok(&[
        "role",
        "assignment",
        "create",
        "--assignee",
        "bot",
        "--role",
        "Reader",
        "--scope",
        "/",
    ]);
    let roles = |more: &[&str]| {
        let mut args = vec!["role", "assignment", "list"];
        args.extend(more);
        server
            .value(&args, "[].role")
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut all = roles(&[]);
    all.sort();
    assert_eq!(all, ["AzureML Data Scientist", "Reader"]);
    assert_eq!(roles(&["--all", "--role", "reader"]), ["Reader"]);
    assert_eq!(roles(&["--assignee", "nobody"]), [""; 0]);
    let missing = server.run(&[
        "role",
        "assignment",
        "delete",
        "--assignee",
        "bot",
        "--role",
        "Reader",
    ]);
    assert_eq!(
        missing.status.code(),
        Some(3),
        "it is at /, not at the workspace"
    );
    server.ok(&[
        "role",
        "assignment",
        "delete",
        "--assignee",
        "bot",
        "--scope",
        "/",
    ]);
    assert_eq!(roles(&["--all"]), ["AzureML Data Scientist"]);
    let shown = server.ok(&["identity", "show", "-n", "bot", "-o", "json"]);
    assert!(
        !shown.contains("secret") && !shown.contains("argon"),
        "{shown}"
    );
    let twice = server.run(&["identity", "create", "-n", "bot"]);
    assert!(
        text(&twice.stderr).contains("identity bot exists"),
        "{twice:?}"
    );
    let wrong = server.run(&[
        "role",
        "assignment",
        "create",
        "--assignee",
        "bot",
        "--role",
        "Raeder",
    ]);
    assert!(
        text(&wrong.stderr).contains("did you mean `Reader`"),
        "{wrong:?}"
    );
    server.ok(&["identity", "delete", "-n", "bot", "-y"]);
    assert_eq!(roles(&["--all"]), [""; 0]);
    assert_eq!(
        server
            .run(&["identity", "delete", "-n", "bot", "-y"])
            .status
            .code(),
        Some(3)
    );
    server.stop();
}

#[test]
fn tokens_of_another_issuer_are_taken_when_it_is_named() {
    let issuer = Server::start();
    let ca = issuer.data().join("ca.pem");
    let flags = [
        "--oidc-issuer",
        &format!("{}/adfs/v2.0", issuer.url),
        "--oidc-audience",
        "https://ml.azure.com",
        "--oidc-ca",
        &ca.to_string_lossy(),
    ];
    let server = Server::start_with(&flags);
    issuer.ok(&["identity", "create", "-n", "visitor", "-o", "none"]);
    let secret = issuer.value(&["identity", "rotate", "-n", "visitor"], "secret");
    fs::write(issuer.folder.join("secret"), secret).unwrap();
    ok(other(
        &issuer,
        "visitor",
        &[
            "login",
            "--server",
            &issuer.url,
            "-u",
            "visitor",
            "--secret-file",
            "secret",
        ],
    ));
    let token = |resource: &str| {
        let args = [
            "account",
            "get-access-token",
            "--resource",
            resource,
            "-o",
            "tsv",
            "--query",
            "access_token",
        ];
        ok(other(&issuer, "visitor", &args)).trim().to_owned()
    };
    let ask = |token: &str| {
        let mut command = server.command(&["compute", "list", "-o", "json"]);
        command.env("ZAFFRE_TOKEN", token).output().unwrap()
    };
    let good = token("https://ml.azure.com");
    let said = text(&ask(&good).stderr);
    assert!(
        said.contains("oidc:visitor") && said.contains("does not have authorization"),
        "{said}"
    );
    server.ok(&[
        "role",
        "assignment",
        "create",
        "--assignee",
        "oidc:visitor",
        "--role",
        "Reader",
    ]);
    assert!(ask(&good).status.success());
    let other_audience = ask(&token("https://ml.azure.local"));
    assert!(
        text(&other_audience.stderr).contains("needs the header"),
        "{other_audience:?}"
    );
    let stranger = Server::start();
    assert!(
        !stranger
            .command(&["compute", "list"])
            .env("ZAFFRE_TOKEN", &good)
            .output()
            .unwrap()
            .status
            .success()
    );
    for server in [stranger, server, issuer] {
        server.stop();
    }
}

/// As `az role definition create` takes it, with the fields of Azure's guide.
const SUBMITTER: &str = r#"{
  "Name": "Submitter",
  "IsCustom": true,
  "Description": "runs jobs, and deletes nothing",
  "Actions": ["Microsoft.MachineLearningServices/workspaces/*"],
  "NotActions": ["Microsoft.MachineLearningServices/workspaces/*/delete"],
  "DataActions": [],
  "NotDataActions": [],
  "AssignableScopes": ["/subscriptions/00000000-0000-0000-0000-000000000000"]
}"#;

#[test]
fn a_role_is_defined_by_a_file_of_azures_and_held() {
    let server = Server::start();
    support::write(&server.folder, "role.json", SUBMITTER);
    fn definition<'a>(args: &[&'a str]) -> Vec<&'a str> {
        [&["role", "definition"], args].concat()
    }
    let made = server.ok(&definition(&[
        "create",
        "--role-definition",
        "@role.json",
        "-o",
        "json",
    ]));
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    assert_eq!(
        (&made["roleName"], &made["roleType"]),
        (&"Submitter".into(), &"CustomRole".into())
    );
    let again = server.run(&definition(&["create", "--role-definition", "role.json"]));
    assert_eq!(again.status.code(), Some(2));
    assert!(
        text(&again.stderr).contains("role Submitter exists"),
        "{again:?}"
    );

    let secret = identity(&server, "ann", "Submitter");
    fs::write(server.folder.join("secret"), secret).unwrap();
    let me = |args: &[&str]| other(&server, "ann", args);
    ok(me(&[
        "login",
        "--server",
        &server.url,
        "-u",
        "ann",
        "--secret-file",
        "secret",
    ]));
    let cluster = [
        "compute",
        "create",
        "-n",
        "c01",
        "--type",
        "amlcompute",
        "-o",
        "none",
    ];
    let delete = ["compute", "delete", "-n", "c01", "-y"];
    ok(me(&cluster));
    let denied = run(me(&delete));
    assert!(
        text(&denied.stderr).contains("does not have authorization"),
        "{denied:?}"
    );

    // What is listed is a file that can be changed and sent back, by its id.
    let listed = server.ok(&definition(&["list", "-n", "Submitter", "-o", "json"]));
    let mut listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let one = &mut listed[0];
    one["roleName"] = "Submitter and cleaner".into();
    one["permissions"][0]["notActions"] = serde_json::json!([]);
    support::write(&server.folder, "changed.json", &one.to_string());
    let args = definition(&["update", "--role-definition", "changed.json"]);
    assert_eq!(server.value(&args, "name"), made["name"].as_str().unwrap());
    ok(me(&delete));

    let names =
        |args: &[&str]| server.value(&definition(&[&["list"], args].concat()), "[].roleName");
    assert_eq!(names(&["--custom-role-only"]), "Submitter and cleaner");
    assert_eq!(names(&[]).lines().count(), 6);
    let held = server.run(&definition(&["delete", "-n", "Submitter and cleaner"]));
    assert!(text(&held.stderr).contains("is held by ann"), "{held:?}");
    server.ok(&["role", "assignment", "delete", "--assignee", "ann"]);
    server.ok(&definition(&["delete", "-n", "Submitter and cleaner"]));
    assert_eq!(names(&["--custom-role-only"]), "");
    let missing = server.run(&definition(&["delete", "-n", "Submitter and cleaner"]));
    assert_eq!(missing.status.code(), Some(3));
    server.stop();
}

#[test]
fn an_endpoint_says_what_its_callers_show() {
    let server = Server::start();
    for mode in ["key", "aml_token", "aad_token"] {
        let name = format!("by-{}", mode.replace('_', "-"));
        let args = [
            "online-endpoint",
            "create",
            "-n",
            &name,
            "--auth-mode",
            mode,
            "-o",
            "none",
        ];
        server.ok(&args);
    }
    let credentials = |name| ["online-endpoint", "get-credentials", "-n", name];
    assert_eq!(server.value(&credentials("by-key"), "primaryKey").len(), 32);
    let token = server.value(&credentials("by-aml-token"), "accessToken");
    assert_eq!(token.split('.').count(), 3, "{token}");
    let refused = server.run(&credentials("by-aad-token"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("get-access-token"),
        "{refused:?}"
    );
    server.stop();
}
