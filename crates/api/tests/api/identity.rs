//! Who may what: every route with every kind of credential and every role, and the ways to sign in.

use crate::{routes::filled, server::*};
use api::Guard;
use axum::http::Method;
use model::{JobId, Workspace};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

pub const HOST: &str = "https://zaffre.test:8443";
pub const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
pub const HOUR_MS: u64 = 3_600_000;
/// Another workspace of the same group.
pub const OTHER: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/other";

impl Server {
    /// A new identity; its secret.
    pub async fn identity(&self, name: &str) -> String {
        let body = json!({"properties": {"kind": "service"}});
        let got = self.ask("PUT", &format!("/identities/{name}"), body).await;
        let secret = got.is(201).json()["properties"]["secret"].clone();
        secret.as_str().unwrap().to_owned()
    }

    /// Gives it a role.
    pub async fn role(&self, who: &str, role: &str, scope: &str) -> Got {
        let scope = scope.trim_end_matches('/');
        let at = format!("{scope}/providers/Microsoft.Authorization/roleAssignments/{who}-role");
        let body = json!({"properties": {"principalId": who, "roleDefinitionId": role}});
        self.ask("PUT", &at, body).await
    }

    pub async fn form(&self, path: &str, headers: &[(&str, &str)], form: &[(&str, &str)]) -> Got {
        let encode = |text: &str| {
            text.replace('%', "%25")
                .replace(':', "%3A")
                .replace('/', "%2F")
        };
        let pairs: Vec<String> = form
            .iter()
            .map(|(k, v)| format!("{k}={}", encode(v)))
            .collect();
        let mut all = vec![FORM];
        all.extend_from_slice(headers);
        self.call("POST", path, &all, pairs.join("&")).await
    }

    /// The answer of the token endpoint to a client and its secret.
    pub async fn sign_in(&self, who: &str, secret: &str, audience: &str) -> Got {
        let scope = format!("{audience}/.default");
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", who),
            ("client_secret", secret),
            ("scope", &scope),
        ];
        self.form("/local/oauth2/v2.0/token", &[], &form).await
    }

    pub async fn token(&self, who: &str, secret: &str) -> String {
        let got = self.sign_in(who, secret, HOST).await.is(200);
        got.json()["access_token"].as_str().unwrap().to_owned()
    }

    /// A request with a token and a body that no route takes.
    pub async fn with(&self, token: &str, method: &str, path: &str, body: &str) -> Got {
        let token = format!("Bearer {token}");
        let headers = [("authorization", token.as_str())];
        self.call(method, path, &headers, body.to_owned()).await
    }
}

/// What the roles of Azure may, said a second time and plainly.
fn expected(role: &str, route: &api::Route) -> bool {
    let (method, template) = (&route.method, route.template);
    // Some reads are spelled as POST.
    let read = route.action.ends_with("/read");
    let rights =
        template.contains("Microsoft.Authorization/role") || template.starts_with("/identities");
    let workspace = template.contains("/workspaces/{w}") || template.starts_with("/batch/");
    let about = template.contains("Microsoft.Insights") || rights;
    let compute = template.contains("/computes");
    // Which operation it is says its id; one that there is none of is a thing of the place.
    let near = template.contains("/locations/") && read
        || template.ends_with("{g}")
        || read && template.ends_with("Services/workspaces");
    let whole = template.ends_with("workspaces/{w}");
    if role != "none" && first_of_kubernetes(route) {
        return true;
    }
    match role {
        "Owner" => true,
        "Contributor" => read || !rights,
        "Reader" => read,
        "AzureML Data Scientist" => {
            near || workspace
                && !about
                && match (compute, whole) {
                    // Azure keeps the keys of computes from it.
                    (true, _) => {
                        read || *method == Method::POST && !template.ends_with("/listKeys")
                    }
                    (_, true) => read,
                    _ => true,
                }
        }
        "AzureML Compute Operator" => near || workspace && (compute || whole && read),
        // Of its own making: see `RUNNER`.
        "Runner" => {
            let jobs = template.contains("Services/workspaces/{w}/jobs");
            near || whole && read || jobs && !template.ends_with("/cancel")
        }
        _ => false,
    }
}

/// What a client of Kubernetes asks before anything else: everybody with a role may.
fn first_of_kubernetes(route: &api::Route) -> bool {
    ["zaffre/kube/", "authorization.k8s.io/"]
        .iter()
        .any(|begin| route.action.starts_with(begin))
}

/// The id of the role `Runner`.
pub const RUNNER: &str = "00000000-0000-4000-8000-00000000000a";
/// The actions on what is in a workspace.
pub const ML: &str = "Microsoft.MachineLearningServices/workspaces";

/// A role that may see a workspace and do everything with its jobs but cancel them.
pub fn runner() -> Value {
    json!({"properties": {
        "roleName": "Runner",
        "type": "CustomRole",
        "assignableScopes": ["/"],
        "permissions": [{
            "actions": [format!("{ML}/jobs/*"), format!("{ML}/read")],
            "notActions": [format!("{ML}/jobs/CANCEL/action")],
        }],
    }})
}

/// Where a definition lies.
pub fn defined(scope: &str, id: &str) -> String {
    format!("{scope}/providers/Microsoft.Authorization/roleDefinitions/{id}")
}

/// Documents and turns: nothing of both changes on a denial.
pub fn marks(s: &Server) -> (u64, usize) {
    let turns = *s.control.turns().borrow();
    let mut documents = 0;
    for workspace in s.control.store().workspaces().unwrap() {
        for kind in [
            model::Kind::Compute,
            model::Kind::Job,
            model::Kind::Identity,
            model::Kind::RoleAssignment,
            model::Kind::RoleDefinition,
            model::Kind::Model,
            model::Kind::Workspace,
        ] {
            let page = port::Page {
                workspace: workspace.clone(),
                kind,
                parent: None,
                newest_first: false,
                after: None,
                limit: 100,
            };
            documents += s.control.page(&page).unwrap().0.len();
        }
    }
    (turns, documents)
}

#[tokio::test]
async fn every_route_is_for_who_has_the_role_and_for_nobody_else() {
    let s = server();
    s.ask("PUT", OTHER, json!({"location": "local"}))
        .await
        .is(201);
    let roles = [
        "Owner",
        "Contributor",
        "Reader",
        "AzureML Data Scientist",
        "AzureML Compute Operator",
        "Runner",
        "none",
    ];
    s.ask("PUT", &defined("", RUNNER), runner()).await.is(201);
    let mut who = vec![];
    for (n, role) in roles.iter().enumerate() {
        let name = format!("who{n}");
        let secret = s.identity(&name).await;
        if *role != "none" {
            s.role(&name, role, "/").await.is(201);
        }
        who.push((*role, name.clone(), secret));
    }
    let secret = s.identity("stranger").await;
    s.role("stranger", "Owner", OTHER).await.is(201);
    let stranger = s.token("stranger", &secret).await;
    let elsewhere = at_another_address(&s).await;
    let expired = s.token("zaffre", TOKEN).await;
    s.ahead.fetch_add(HOUR_MS, Ordering::SeqCst);
    let mut tokens = vec![];
    for (role, name, secret) in &who {
        tokens.push((*role, s.token(name, secret).await));
    }
    let stranger_now = s.token("stranger", &secret).await;
    let before = marks(&s);
    let malformed = ["", "x", "a.b.c", &stranger[..stranger.len() - 3]].map(str::to_owned);
    for route in api::ROUTES {
        let (path, method) = (filled(route.template), route.method.as_str());
        if !matches!(
            route.guard,
            Guard::Token | Guard::Run | Guard::Kube | Guard::Blob | Guard::Signed
        ) {
            continue;
        }
        for token in malformed.iter().chain([&expired, &elsewhere]) {
            let got = s.with(token, method, &path, "{not json").await;
            assert_eq!(got.status, 401, "{method} {path}: {}", got.text());
        }
        if route.guard == Guard::Signed {
            continue;
        }
        let got = s.with(&stranger_now, method, &path, "{not json").await;
        let near = expected("none", route)
            || first_of_kubernetes(route)
            || route.template.contains("/locations/") && method == "GET"
            || route.template.ends_with("{g}")
            || method == "GET" && route.template.ends_with("Services/workspaces");
        assert_eq!(
            got.status != 403,
            near,
            "other workspace: {method} {path}: {}",
            got.text()
        );
        for (role, token) in &tokens {
            let may = match route.guard {
                // Roles of AzureML do not reach the storage; its clients have signatures.
                Guard::Blob | Guard::Kube => {
                    let read = ["GET", "HEAD"].contains(&method);
                    ["Owner", "Contributor"].contains(role)
                        || *role == "Reader" && read
                        || *role != "none" && first_of_kubernetes(route)
                }
                _ => expected(role, route),
            };
            if may && (method != "GET" && method != "HEAD") {
                continue; // what it then does is told by other tests
            }
            if may && route.template.ends_with("/connect") {
                continue;
            }
            let got = s.with(token, method, &path, "{not json").await;
            assert_eq!(
                got.status == 403,
                !may,
                "{role}: {method} {path}: {} {}",
                got.status,
                got.text()
            );
            assert_ne!(got.status, 401, "{role}: {method} {path}");
        }
    }
    assert_eq!(marks(&s), before, "nothing changes on a denial");
    // What is allowed is let in, whatever becomes of the nonsense.
    for route in api::ROUTES.iter().filter(|r| r.guard == Guard::Token) {
        let (path, method) = (filled(route.template), route.method.as_str());
        for (role, token) in &tokens {
            if expected(role, route) {
                let got = s.with(token, method, &path, "{not json").await;
                assert!(
                    ![401, 403].contains(&got.status),
                    "{role}: {method} {path}: {} {}",
                    got.status,
                    got.text()
                );
            }
        }
    }
}

/// A token that was got from the same server under another name.
async fn at_another_address(s: &Server) -> String {
    let form = format!(
        "grant_type=client_credentials&client_id=zaffre&client_secret={TOKEN}&scope=https://elsewhere.test:1/.default"
    );
    let request = axum::http::Request::builder()
        .method("POST")
        .uri("/local/oauth2/v2.0/token")
        .header("host", "elsewhere.test:1")
        .header(FORM.0, FORM.1)
        .body(form.into())
        .unwrap();
    let got = s.send(request).await.is(200).json();
    got["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_a_role_allows_is_done() {
    let s = server();
    let secret = s.identity("scientist").await;
    s.role("scientist", "AzureML Data Scientist", WS)
        .await
        .is(201);
    s.cluster("c01", 0, 1).await.is(201);
    let token = s.token("scientist", &secret).await;
    s.with(&token, "GET", &format!("{WS}/computes/c01"), "")
        .await
        .is(200);
    let denied = s
        .with(&token, "DELETE", &format!("{WS}/computes/c01"), "")
        .await
        .is(403);
    assert_eq!(denied.code(), "AuthorizationFailed");
    assert!(
        denied.message().contains("scientist") && denied.message().contains("computes/delete"),
        "{}",
        denied.message()
    );
    let made = s
        .with(
            &token,
            "PUT",
            &format!("{WS}/models/m/versions/1"),
            &json!({"properties": {"modelUri": "azureml://datastores/workspaceblobstore/paths/m"}})
                .to_string(),
        )
        .await;
    assert_eq!(made.is(201).json()["systemData"]["createdBy"], "scientist");
    let list = "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.MachineLearningServices/workspaces";
    s.ask("PUT", OTHER, json!({"location": "local"}))
        .await
        .is(201);
    let names = |got: Got| got.is(200).json()["value"].as_array().unwrap().len();
    assert_eq!(
        names(s.with(&token, "GET", list, "").await),
        1,
        "its own only"
    );
    assert_eq!(names(s.get(list).await), 2);
}

#[tokio::test]
async fn a_token_is_for_an_audience() {
    let s = server();
    for audience in [HOST, "https://ml.azure.local", "https://ml.azure.com"] {
        let got = s.sign_in("zaffre", TOKEN, audience).await.is(200).json();
        assert_eq!(got["token_type"], "Bearer");
        let token = got["access_token"].as_str().unwrap();
        s.with(token, "GET", WS, "").await.is(200);
        let at_another = [("authorization", format!("Bearer {token}"))];
        let request = axum::http::Request::builder()
            .uri(WS)
            .header("host", "localhost:8443")
            .header("authorization", &at_another[0].1)
            .body(axum::body::Body::empty())
            .unwrap();
        let expected = if audience == HOST { 401 } else { 200 };
        assert_eq!(s.send(request).await.status, expected, "{audience}");
    }
    for audience in [
        "https://management.azure.com",
        "https://vault.azure.net",
        "",
    ] {
        let got = s.sign_in("zaffre", TOKEN, audience).await.is(400).json();
        assert_eq!(got["error"], "invalid_resource", "{audience}");
    }
}

#[tokio::test]
async fn a_wrong_secret_and_a_wrong_name_are_told_alike() {
    let s = server();
    let secret = s.identity("me").await;
    let wrong = s.sign_in("me", "wrong", HOST).await.is(401);
    assert_eq!(wrong.json()["error"], "invalid_client");
    assert_eq!(
        wrong.bytes,
        s.sign_in("nobody", &secret, HOST).await.is(401).bytes
    );
    assert_eq!(
        wrong.bytes,
        s.sign_in("zaffre", &secret, HOST).await.is(401).bytes
    );
    assert!(!wrong.text().contains(&secret));
    s.sign_in("ME", &secret, HOST).await.is(200);
    for (form, error) in [
        (&[][..], "invalid_request"),
        (&[("grant_type", "password")][..], "unsupported_grant_type"),
        (&[("grant_type", "client_credentials")][..], "invalid_scope"),
        (
            &[("grant_type", "refresh_token"), ("resource", HOST)][..],
            "invalid_grant",
        ),
    ] {
        let got = s.form("/t/oauth2/token", &[], form).await.is(400);
        assert_eq!(got.json()["error"], error, "{form:?}");
    }
    let long = "x".repeat(20_000);
    assert_eq!(
        s.form("/t/oauth2/token", &[], &[("client_secret", &long)])
            .await
            .status,
        413
    );
}

#[tokio::test]
async fn a_secret_is_shown_once_and_its_tokens_end_with_it() {
    let s = server();
    let secret = s.identity("me").await;
    s.role("me", "Reader", "/").await.is(201);
    let token = s.token("me", &secret).await;
    s.with(&token, "GET", WS, "").await.is(200);
    let shown = s.get("/identities/me").await.is(200);
    assert!(
        !shown.text().contains(&secret) && !shown.text().contains("argon2"),
        "{}",
        shown.text()
    );
    assert!(!s.get("/identities").await.is(200).text().contains("argon2"));
    assert_eq!(
        s.ask("PUT", "/identities/ME", Value::Null).await.code(),
        "Conflict"
    );

    let fresh = s
        .ask("POST", "/identities/me/rotate", Value::Null)
        .await
        .is(200)
        .json();
    s.with(&token, "GET", WS, "").await.is(401);
    s.sign_in("me", &secret, HOST).await.is(401);
    let fresh = fresh["properties"]["secret"].as_str().unwrap();
    let token = s.token("me", fresh).await;
    s.with(&token, "GET", WS, "").await.is(200);

    s.ask("DELETE", "/identities/me", Value::Null).await.is(200);
    s.ask("DELETE", "/identities/me", Value::Null).await.is(204);
    s.with(&token, "GET", WS, "").await.is(401);
    let again = s.identity("me").await;
    let token = s.token("me", &again).await;
    s.with(&token, "GET", WS, "").await.is(403); // the roles went with the one before
}

#[tokio::test]
async fn n3_a_job_has_an_identity_while_it_lives() {
    let s = server();
    s.batch().await;
    s.ask("PUT", &format!("{WS}/jobs/j1"), command_body("c01"))
        .await
        .is(201);
    s.running("j1").await;
    let job = JobId::new(&Workspace::new(SUB, "default", "default"), "j1");
    let secret = s.jobs.secret(&job);
    let ask = async |secret: &str, resource: &str| {
        let path = format!("/msi/token?api-version=2019-08-01&resource={resource}");
        s.call("GET", &path, &[("x-identity-header", secret)], "")
            .await
    };
    let got = ask(&secret, HOST).await.is(200).json();
    assert_eq!(got["resource"], HOST);
    assert!(got["expires_on"].as_str().unwrap().parse::<u64>().is_ok());
    let token = got["access_token"].as_str().unwrap();
    s.with(token, "GET", &format!("{WS}/jobs/j1"), "")
        .await
        .is(200);
    s.with(token, "DELETE", &format!("{WS}/computes/c01"), "")
        .await
        .is(403);
    s.with(token, "GET", OTHER, "").await.is(403);
    s.with(
        token,
        "POST",
        "/devicelogin/approve",
        "{\"userCode\":\"x\"}",
    )
    .await
    .is(403);
    ask(&secret, "https://vault.azure.net").await.is(400);
    ask(&secret[1..], HOST).await.is(401);
    s.engine.end("j1", 0);
    s.until(&format!("{WS}/jobs/j1"), |j| {
        j["properties"]["status"] == "Completed"
    })
    .await;
    ask(&secret, HOST).await.is(401);
    s.with(token, "GET", WS, "").await.is(401);
}

#[tokio::test]
async fn v1_a_device_becomes_who_approves_it() {
    let s = server();
    let secret = s.identity("person").await;
    s.role("person", "Reader", WS).await.is(201);
    let begin = async || {
        let form = [
            ("client_id", "cli"),
            ("scope", "https://zaffre.test:8443/.default openid"),
        ];
        s.form("/adfs/oauth2/v2.0/devicecode", &[], &form)
            .await
            .is(200)
            .json()
    };
    let redeem = async |device: &Value, client: &str| {
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("client_id", client),
            ("device_code", device["device_code"].as_str().unwrap()),
            ("scope", "https://zaffre.test:8443/.default openid"),
        ];
        s.form("/adfs/oauth2/v2.0/token", &[], &form).await
    };
    let device = begin().await;
    assert_eq!(device["verification_uri"], format!("{HOST}/devicelogin"));
    assert_eq!(
        redeem(&device, "cli").await.is(400).json()["error"],
        "authorization_pending"
    );
    let code = device["user_code"].as_str().unwrap().to_ascii_lowercase();
    let page = [
        ("code", code.as_str()),
        ("name", "person"),
        ("secret", "wrong"),
    ];
    s.form("/devicelogin", &[], &page).await.is(401);
    assert_eq!(
        redeem(&device, "cli").await.is(400).json()["error"],
        "authorization_pending"
    );
    let page = [
        ("code", code.as_str()),
        ("name", "person"),
        ("secret", secret.as_str()),
    ];
    s.form("/devicelogin", &[], &page).await.is(200);
    s.form("/devicelogin", &[], &page).await.is(404);
    assert_eq!(
        redeem(&device, "other").await.is(400).json()["error"],
        "expired_token"
    );
    let got = redeem(&device, "cli").await.is(200).json();
    assert_eq!(
        redeem(&device, "cli").await.is(400).json()["error"],
        "expired_token",
        "once"
    );
    let token = got["access_token"].as_str().unwrap();
    s.with(token, "GET", WS, "").await.is(200);
    let refresh = got["refresh_token"].as_str().unwrap();
    for text in [refresh, got["id_token"].as_str().unwrap()] {
        s.with(text, "GET", WS, "").await.is(401);
    }
    s.ahead.fetch_add(HOUR_MS, Ordering::SeqCst);
    s.with(token, "GET", WS, "").await.is(401);
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", "cli"),
        ("refresh_token", refresh),
        ("scope", "https://ml.azure.local/.default"),
    ];
    let got = s
        .form("/adfs/oauth2/v2.0/token", &[], &form)
        .await
        .is(200)
        .json();
    s.with(got["access_token"].as_str().unwrap(), "GET", WS, "")
        .await
        .is(200);
    s.ask("POST", "/identities/person/rotate", Value::Null)
        .await
        .is(200);
    s.form("/adfs/oauth2/v2.0/token", &[], &form).await.is(400);

    let device = begin().await;
    let body = json!({"userCode": device["user_code"]});
    s.ask("POST", "/devicelogin/approve", body).await.is(200);
    let token = redeem(&device, "cli").await.is(200).json();
    s.with(
        token["access_token"].as_str().unwrap(),
        "GET",
        "/identities",
        "",
    )
    .await
    .is(200);
    let late = begin().await;
    s.ahead.fetch_add(HOUR_MS, Ordering::SeqCst);
    s.ask(
        "POST",
        "/devicelogin/approve",
        json!({"userCode": late["user_code"]}),
    )
    .await
    .is(404);
    assert_eq!(
        redeem(&late, "cli").await.is(400).json()["error"],
        "expired_token"
    );
}

#[tokio::test]
async fn the_configuration_says_where_everything_is() {
    let s = server();
    for path in [
        "/adfs/.well-known/openid-configuration",
        "/local/v2.0/.well-known/openid-configuration",
    ] {
        let got = s.call("GET", path, &[], "").await.is(200).json();
        for key in [
            "token_endpoint",
            "device_authorization_endpoint",
            "jwks_uri",
            "issuer",
            "authorization_endpoint",
        ] {
            assert!(got[key].as_str().unwrap().starts_with(HOST), "{key}");
        }
        let keys = s
            .call("GET", got["jwks_uri"].as_str().unwrap(), &[], "")
            .await
            .is(200)
            .json();
        assert_eq!(keys["keys"][0]["kty"], "OKP");
        assert!(keys["keys"][0]["d"].is_null());
    }
}
