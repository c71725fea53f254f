//! What holds on every route: credentials, etags, spelling of paths, shape of errors.

use crate::server::*;
use axum::body::Body;
use serde_json::{Value, json};

#[tokio::test]
async fn nothing_is_said_without_the_token() {
    let s = server();
    s.cluster("c01", 0, 1).await.is(201);
    for route in api::ROUTES {
        let path = filled(route.template);
        for headers in [
            &[][..],
            &[("authorization", "Bearer wrong")],
            &[("authorization", "Basic eDp5")],
        ] {
            let got = s
                .call(route.method.as_str(), &path, headers, "{not json")
                .await;
            if route.guard == api::Guard::Open {
                assert_eq!(got.status, 200, "{path}");
                continue;
            }
            if route.guard == api::Guard::Own {
                assert!([400, 401].contains(&got.status), "{path}: {}", got.text());
                continue;
            }
            assert_eq!(got.status, 401, "{} {path}: {}", route.method, got.text());
            // a run also asks the run history, which answers in its own words
            let history = route.guard == api::Guard::Run && !path.starts_with("/mlflow/");
            if history
                || matches!(
                    route.guard,
                    api::Guard::Token | api::Guard::Signed | api::Guard::Agent
                )
            {
                assert_eq!(got.code(), "AuthenticationFailed");
            } else if route.guard == api::Guard::Kube {
                assert_eq!(got.json()["reason"], "Unauthorized");
            } else if route.guard == api::Guard::Run {
                assert_eq!(got.json()["error_code"], "UNAUTHENTICATED");
            } else if route.method != "HEAD" {
                assert!(
                    got.text().contains("<Code>AuthenticationFailed</Code>"),
                    "{}",
                    got.text()
                );
            }
        }
    }
    s.get(&format!("{WS}/computes/c01")).await.is(200);
}

/// A path of a template.
pub fn filled(template: &str) -> String {
    let values = [
        ("{tenant}", "adfs"),
        ("{s}", SUB),
        ("{g}", "default"),
        ("{w}", "default"),
        ("{l}", "local"),
        ("{assets}", "models"),
        ("{account}", "zaffre"),
        ("{*rest}", "some-container/x"),
        ("{v}", "v2.0"),
        ("{*path}", "runs/c01/x"),
    ];
    let mut out = template.to_owned();
    for (name, value) in values {
        out = out.replace(name, value);
    }
    out.split('/')
        .map(|p| if p.starts_with('{') { "c01" } else { p })
        .collect::<Vec<_>>()
        .join("/")
}

#[tokio::test]
async fn the_table_of_etags() {
    let s = server();
    let path = format!("{WS}/computes/c01");
    let put = |headers: &'static [(&'static str, &'static str)]| {
        s.ask_with("PUT", &path, headers, cluster_body(0, 1))
    };
    put(&[("if-match", "*")]).await.is(412);
    put(&[("if-match", "\"1\"")]).await.is(412);
    let made = put(&[("if-none-match", "*")]).await.is(201);
    assert_eq!(made.header("etag"), "\"1\"");
    put(&[("if-none-match", "*")]).await.is(412);
    put(&[("if-match", "\"9\"")]).await.is(412);
    put(&[("if-match", "\"1\"")]).await.is(200);
    put(&[("if-match", "\"1\"")]).await.is(412);
    assert_eq!(
        put(&[("if-match", "*")]).await.is(200).header("etag"),
        "\"3\""
    );
    assert_eq!(put(&[]).await.is(200).header("etag"), "\"4\"");
    assert_eq!(s.get(&path).await.header("etag"), "\"4\"");
    s.ask_with("DELETE", &path, &[("if-match", "\"1\"")], Value::Null)
        .await
        .is(412);
    s.ask_with("DELETE", &path, &[("if-match", "\"4\"")], Value::Null)
        .await
        .is(202);
}

#[tokio::test]
async fn paths_are_matched_without_case_and_names_keep_theirs() {
    let s = server();
    let loud = WS.replace("resourceGroups", "RESOURCEGROUPS").replace(
        "Microsoft.MachineLearningServices",
        "MICROSOFT.machinelearningSERVICES",
    );
    let made = s
        .ask(
            "PUT",
            &format!("{loud}/Computes/Low-Pri?API-version=1999"),
            cluster_body(0, 1),
        )
        .await
        .is(201)
        .json();
    assert_eq!(made["id"], format!("{WS}/computes/Low-Pri"));
    let got = s
        .get(&format!("{WS}/COMPUTES/LOW-PRI/"))
        .await
        .is(200)
        .json();
    assert_eq!(got["name"], "Low-Pri", "the first spelling stays");
    let other = s
        .get(&WS.replace("/workspaces/default", "/workspaces/DEFAULT"))
        .await
        .is(200)
        .json();
    assert_eq!(other["name"], "default");
}

#[tokio::test]
async fn errors_have_azures_shape() {
    let s = server();
    let got = s.get("/nowhere").await.is(404).json();
    assert_eq!(got["error"]["details"], json!([]));
    let wrong = s.ask("POST", WS, Value::Null).await.is(405);
    assert_eq!(wrong.code(), "MethodNotAllowed");
    assert_eq!(wrong.headers["allow"], "DELETE,GET,HEAD,PATCH,PUT");
    let token = format!("Bearer {TOKEN}");
    let whole = s.get(WS).await.is(200);
    let head = s.ask("HEAD", WS, Value::Null).await.is(200);
    assert!(head.bytes.is_empty());
    let length = whole.bytes.len().to_string();
    assert_eq!(head.headers["content-length"], length.as_str());
    let got = s
        .call(
            "PUT",
            &format!("{WS}/computes/c01"),
            &[("authorization", &token)],
            "{\"a\":",
        )
        .await
        .is(400);
    assert_eq!(got.code(), "BadRequest");
    let big = vec![b' '; api::ARM_BODY_LIMIT + 1];
    s.call(
        "PUT",
        &format!("{WS}/computes/c01"),
        &[("authorization", &token)],
        big,
    )
    .await
    .is(413);
    let got = s
        .call(
            "GET",
            WS,
            &[("authorization", &token), ("host", "evil\"host/x")],
            Body::empty(),
        )
        .await;
    assert_eq!(got.status, 200, "the first Host header counts");
    assert!(!s.get(WS).await.header("x-ms-request-id").is_empty());
}

#[tokio::test]
async fn over_http_2_the_host_is_the_one_of_the_uri() {
    let s = server();
    let request = axum::http::Request::builder()
        .uri(format!("https://other.test:9{WS}"))
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(Body::empty())
        .unwrap();
    let workspace = s.send(request).await.is(200).json();
    assert_eq!(
        workspace["properties"]["discoveryUrl"],
        "https://other.test:9/discovery"
    );
}
