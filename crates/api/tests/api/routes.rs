//! The routes, asked as a client asks them. One story per test.

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
            assert_eq!(got.status, 401, "{} {path}: {}", route.method, got.text());
            if route.guard == api::Guard::Token {
                assert_eq!(got.code(), "AuthenticationFailed");
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
fn filled(template: &str) -> String {
    let values = [
        ("{s}", SUB),
        ("{g}", "default"),
        ("{w}", "default"),
        ("{l}", "local"),
        ("{assets}", "models"),
        ("{account}", "zaffre"),
        ("{*rest}", "some-container/x"),
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
async fn a_cluster_is_created_shown_changed_and_deleted() {
    let s = server();
    let path = format!("{WS}/computes/low-pri");
    let made = s.cluster("low-pri", 1, 2).await.is(201).json();
    assert_eq!(made["properties"]["provisioningState"], "Succeeded");
    assert_eq!(
        made["properties"]["properties"]["vmPriority"],
        "LowPriority"
    );
    let nodes = s
        .until(&path, |c| {
            c["properties"]["properties"]["nodeStateCounts"]["idleNodeCount"] == 1
        })
        .await;
    assert_eq!(
        nodes["properties"]["properties"]["allocationState"],
        "Steady"
    );
    let nodes = s
        .ask("POST", &format!("{path}/listNodes"), Value::Null)
        .await
        .is(200)
        .json();
    assert_eq!(nodes["nodes"][0]["nodeState"], "idle");

    let patched = s
        .ask(
            "PATCH",
            &path,
            json!({"properties": {"scaleSettings": {"maxNodeCount": 4}}, "tags": {"a": "b"}}),
        )
        .await
        .is(200)
        .json();
    assert_eq!(
        patched["properties"]["properties"]["scaleSettings"]["maxNodeCount"],
        4
    );
    assert_eq!(
        patched["properties"]["properties"]["scaleSettings"]["minNodeCount"],
        1
    );
    assert_eq!(patched["tags"]["a"], "b");
    let all = s.get(&format!("{WS}/computes")).await.is(200).json();
    assert_eq!(all["value"].as_array().unwrap().len(), 1);

    let gone = s.ask("DELETE", &path, Value::Null).await.is(202);
    assert!(gone.bytes.is_empty());
    assert!(
        gone.headers.get("retry-after").is_none(),
        "clients sleep 30 s on it"
    );
    assert_eq!(gone.header("x-ms-retry-after-ms"), "200");
    let operation = gone
        .header("azure-asyncoperation")
        .strip_prefix("https://zaffre.test:8443")
        .unwrap()
        .to_owned();
    s.until(&operation, |o| o["status"] == "Succeeded").await;
    let location = gone
        .header("location")
        .strip_prefix("https://zaffre.test:8443")
        .unwrap()
        .to_owned();
    s.get(&location).await.is(200);
    let missing = s.get(&path).await.is(404);
    assert_eq!(missing.code(), "ComputeNotFound");
    s.ask("DELETE", &path, Value::Null).await.is(204);
}

#[tokio::test]
async fn a_cluster_above_its_quota_is_refused_with_the_numbers() {
    let s = server();
    let got = s.cluster("c01", 30, 30).await.is(400);
    assert_eq!(got.code(), "ClusterMinNodesExceedCoreQuota");
    assert!(got.message().contains("100"), "{}", got.message());
    let got = s.cluster("c01", 5, 1).await.is(400);
    assert!(
        got.message().contains('5') && got.message().contains('1'),
        "{}",
        got.message()
    );
    s.get(&format!("{WS}/computes/c01")).await.is(404);
}

#[tokio::test]
async fn a_drill_takes_nodes_away() {
    let s = server();
    s.cluster("c01", 2, 2).await.is(201);
    let path = format!("{WS}/computes/c01");
    s.until(&path, |c| {
        c["properties"]["properties"]["nodeStateCounts"]["idleNodeCount"] == 2
    })
    .await;
    let preempt = format!("{path}/preempt");
    for wrong in [
        json!({}),
        json!({"nodes": 0}),
        json!({"nodes": "some"}),
        json!({"nodes": 1, "notice": "soon"}),
        json!({"nodes": 1, "x": 1}),
        json!({"nodes": -1}),
    ] {
        s.ask("POST", &preempt, wrong).await.is(400);
    }
    let taken = s
        .ask(
            "POST",
            &preempt,
            json!({"nodes": "all", "notice": "PT0S", "holdCapacity": "PT10M"}),
        )
        .await
        .is(200)
        .json();
    assert_eq!(taken["nodes"].as_array().unwrap().len(), 2);
    s.until(&path, |c| {
        c["properties"]["properties"]["nodeStateCounts"]["preemptedNodeCount"] == 2
    })
    .await;
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
async fn workspaces_exist_once_created() {
    let s = server();
    let path = WS.replace("/workspaces/default", "/workspaces/ws1");
    assert_eq!(s.get(&path).await.is(404).code(), "ResourceNotFound");
    assert_eq!(
        s.get(&format!("{path}/computes")).await.is(404).code(),
        "ResourceNotFound"
    );
    let made = s
        .ask(
            "PUT",
            &path,
            json!({"location": "local", "tags": {"a": "b"}}),
        )
        .await
        .is(201)
        .json();
    assert_eq!(
        made["properties"]["discoveryUrl"],
        "https://zaffre.test:8443/discovery"
    );
    s.get(&format!("{path}/computes")).await.is(200);
    let all = s
        .get(&format!(
            "/subscriptions/{SUB}/providers/Microsoft.MachineLearningServices/workspaces"
        ))
        .await
        .is(200)
        .json();
    let names: Vec<_> = all["value"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["default", "ws1"]);
    let stores = s
        .get(&format!("{path}/datastores?isDefault=true"))
        .await
        .is(200)
        .json();
    assert_eq!(stores["value"][0]["name"], "workspaceblobstore");
    assert_eq!(stores["value"].as_array().unwrap().len(), 1);
    s.get(&format!("{path}/datastores/nope")).await.is(404);
}

#[tokio::test]
async fn a_version_of_an_asset_never_moves() {
    let s = server();
    let (a, b) = (s.upload("a/x", "1").await, s.upload("b/x", "2").await);
    let path = format!("{WS}/models/heart/versions/1");
    let body = |uri: &str| json!({"properties": {"modelUri": uri, "modelType": "custom_model", "tags": {"k": "v"}}});
    s.ask("PUT", &path, body(&a)).await.is(201);
    s.ask("PUT", &path, body(&a)).await.is(200);
    let moved = s.ask("PUT", &path, body(&b)).await.is(400);
    assert_eq!(
        (moved.code(), moved.message()),
        ("UserError".into(), "Asset paths cannot be updated.".into())
    );
    let mut archived = body(&a);
    archived["properties"]["isArchived"] = json!(true);
    s.ask("PUT", &path, archived).await.is(200);

    s.ask("PUT", &format!("{WS}/models/heart/versions/2"), body(&b))
        .await
        .is(201);
    let container = s.get(&format!("{WS}/models/heart")).await.is(200).json();
    assert_eq!(
        (
            &container["properties"]["latestVersion"],
            &container["properties"]["nextVersion"]
        ),
        (&json!("2"), &json!("3"))
    );
    let latest = s
        .get(&format!(
            "{WS}/models/heart/versions?$orderBy=createdtime%20desc&$top=1"
        ))
        .await
        .is(200)
        .json();
    assert_eq!(latest["value"][0]["name"], "2");
    assert_eq!(latest["value"].as_array().unwrap().len(), 1);
    assert_eq!(latest["nextLink"], Value::Null);
    let names = |list: Value| -> Vec<String> {
        list["value"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(s.get(&format!("{WS}/models/heart/versions")).await.json()),
        ["2"]
    );
    assert_eq!(
        names(
            s.get(&format!("{WS}/models/heart/versions?listViewType=All"))
                .await
                .json()
        )
        .len(),
        2
    );
    assert_eq!(
        names(
            s.get(&format!(
                "{WS}/models/heart/versions?listViewType=ArchivedOnly"
            ))
            .await
            .json()
        ),
        ["1"]
    );
    assert_eq!(
        s.get(&format!("{WS}/models/nope")).await.is(404).code(),
        "ResourceNotFound"
    );
    s.get(&format!("{WS}/models/heart/versions/9"))
        .await
        .is(404);
    s.get(&format!("{WS}/onlineEndpoints/x")).await.is(404);
}

#[tokio::test]
async fn containers_are_listed_in_pages() {
    let s = server();
    let uri = s.upload("a/x", "1").await;
    let body = json!({"properties": {"modelUri": uri}});
    for name in ["a", "a-b", "B", "c"] {
        for version in ["1", "2", "3"] {
            s.ask(
                "PUT",
                &format!("{WS}/models/{name}/versions/{version}"),
                body.clone(),
            )
            .await
            .is(201);
        }
    }
    s.ask(
        "PUT",
        &format!("{WS}/models/c"),
        json!({"properties": {"isArchived": true}}),
    )
    .await
    .is(201);
    let mut seen = Vec::new();
    let mut next = format!("{WS}/models?$maxpagesize=1");
    while !next.is_empty() {
        let page = s
            .call(
                "GET",
                &next,
                &[("authorization", &format!("Bearer {TOKEN}"))],
                Body::empty(),
            )
            .await
            .is(200)
            .json();
        assert!(page["value"].as_array().unwrap().len() <= 1);
        seen.extend(page["value"].as_array().unwrap().iter().map(|c| {
            assert_eq!(c["properties"]["nextVersion"], "4");
            c["name"].as_str().unwrap().to_owned()
        }));
        next = page["nextLink"].as_str().unwrap_or_default().to_owned();
    }
    seen.sort();
    assert_eq!(seen, ["B", "a", "a-b"], "the archived one is not shown");
}

#[tokio::test]
async fn code_is_found_by_its_hash_under_any_name() {
    let s = server();
    let pending = s
        .ask(
            "POST",
            &format!("{WS}/codes/n1/versions/1/startPendingUpload"),
            json!({"pendingUploadType": "TemporaryBlobReference"}),
        )
        .await
        .is(200)
        .json();
    let reference = &pending["blobReferenceForConsumption"];
    let (uri, sas) = (
        reference["blobUri"].as_str().unwrap(),
        reference["credential"]["sasUri"].as_str().unwrap(),
    );
    let query = sas.split_once('?').unwrap().1;
    s.call(
        "PUT",
        &format!("{uri}/src/train.py?{query}"),
        &[("x-ms-blob-type", "BlockBlob"), ("if-none-match", "*")],
        "print(1)",
    )
    .await
    .is(201);
    s.call(
        "PUT",
        &format!("{uri}/src/train.py?{query}"),
        &[("x-ms-blob-type", "BlockBlob"), ("if-none-match", "*")],
        "print(2)",
    )
    .await
    .is(409);
    let again = s
        .ask(
            "POST",
            &format!("{WS}/codes/n1/versions/1/startPendingUpload"),
            json!({}),
        )
        .await
        .json();
    assert_ne!(
        again["blobReferenceForConsumption"]["blobUri"].as_str(),
        Some(uri),
        "a fresh container per upload"
    );
    let code = json!({"properties": {"codeUri": format!("{uri}/src"), "isAnonymous": true, "properties": {"hash_sha256": "abc123", "hash_version": 202208}}});
    s.ask("PUT", &format!("{WS}/codes/n1/versions/1"), code)
        .await
        .is(201);
    let found = s
        .get(&format!(
            "{WS}/codes/other/versions?hash=abc123&hashVersion=202208"
        ))
        .await
        .is(200)
        .json();
    assert_eq!(found["value"][0]["id"], format!("{WS}/codes/n1/versions/1"));
    let none = s
        .get(&format!(
            "{WS}/codes/other/versions?hash=abc&hashVersion=202208"
        ))
        .await
        .is(200)
        .json();
    assert_eq!(none["value"], json!([]));
}

#[tokio::test]
async fn an_invoke_makes_one_job_however_often_it_is_sent() {
    let s = server();
    let input = s.batch().await;
    let endpoint = s
        .get(&format!("{WS}/batchEndpoints/end"))
        .await
        .is(200)
        .json();
    assert_eq!(
        endpoint["properties"]["defaults"]["deploymentName"], "dep",
        "the first deployment is the default"
    );
    let scoring = endpoint["properties"]["scoringUri"].as_str().unwrap();
    assert!(
        scoring.starts_with("https://zaffre.test:8443/"),
        "{scoring}"
    );
    let token = format!("Bearer {TOKEN}");
    let invoke = |id: &'static str| {
        let headers = vec![
            ("authorization", token.as_str()),
            ("repeatability_request-id", id),
            ("content-type", "application/json"),
        ];
        let body = invoke_body(&input).to_string();
        let s = &s;
        async move { s.call("POST", scoring, &headers, body).await }
    };
    let first = invoke("r1").await.is(201).json();
    let name = first["name"].as_str().unwrap().to_owned();
    assert_eq!(invoke("r1").await.is(200).json()["name"], name.as_str());
    let other = invoke("r2").await.is(201).json();
    assert_ne!(other["name"], name.as_str());

    let job = s.get(&format!("{WS}/jobs/{name}")).await.is(200).json();
    assert_eq!(job["properties"]["jobType"], "Pipeline");
    assert_eq!(job["properties"]["tags"]["azureml.batchrun"], "true");
    let plane = format!("/mferp/managementfrontend{WS}/batchEndpoints/end");
    let listed = s.get(&format!("{plane}/jobs")).await.is(200).json();
    assert_eq!(listed["value"].as_array().unwrap().len(), 2);
    let listed = s
        .get(&format!("{plane}/deployments/dep/jobs"))
        .await
        .is(200)
        .json();
    assert_eq!(listed["value"].as_array().unwrap().len(), 2);

    // the child, and the output under both names
    let history = format!("/history/v1.0{WS}");
    let children = s
        .get(&format!("{history}/runs/{name}/children"))
        .await
        .is(200)
        .json();
    let child = children["value"][0]["runId"].as_str().unwrap().to_owned();
    assert_eq!(child, format!("{name}-batchscoring"));
    s.get(&format!("{WS}/jobs/{child}")).await.is(200);
    for run in [&name, &child] {
        let data = s
            .ask(
                "POST",
                &format!("{history}/rundata"),
                json!({"runId": run, "selectRunMetadata": true}),
            )
            .await
            .is(200)
            .json();
        let asset = data["runMetadata"]["outputs"]["score"]["assetId"]
            .as_str()
            .unwrap_or_else(|| panic!("{data}"))
            .to_owned();
        let uris = s
            .ask(
                "POST",
                &format!("/data/v1.0{WS}/dataversion/batchGetResolvedUris"),
                json!({"values": [asset, "nonsense"]}),
            )
            .await
            .is(200)
            .json();
        let uri = uris["values"][&asset]["uri"].as_str().unwrap();
        assert!(
            uri.ends_with(&format!(
                "/datastores/workspaceblobstore/paths/azureml/{name}/score/"
            )),
            "{uri}"
        );
        assert_eq!(uris["values"].as_object().unwrap().len(), 1);
    }

    let taken = s
        .ask("PUT", &format!("{WS}/jobs/{child}"), command_body("c01"))
        .await;
    assert_eq!(taken.is(409).code(), "Conflict", "the step's name is taken");

    // a repeat is answered even when the endpoint is gone
    s.ask("DELETE", &format!("{WS}/batchEndpoints/end"), Value::Null)
        .await
        .is(200);
    s.get(&format!("{WS}/batchEndpoints/end/deployments/dep"))
        .await
        .is(404);
    assert_eq!(invoke("r1").await.is(200).json()["name"], name.as_str());
    invoke("r3").await.is(404);
    s.get(&format!("{WS}/jobs/{name}")).await.is(200);
}

#[tokio::test]
async fn a_named_invoke_is_repeated_by_its_request_and_refused_otherwise() {
    let s = server();
    let input = s.batch().await;
    let mut body = invoke_body(&input);
    body["properties"]["jobName"] = json!("mine");
    let path = format!("/batch/{SUB}/default/default/end/jobs");
    let invoke = |id: &'static str| {
        let (s, path, body) = (&s, &path, body.clone());
        async move {
            s.ask_with("POST", path, &[("repeatability_request-id", id)], body)
                .await
        }
    };
    assert_eq!(invoke("r1").await.is(201).json()["name"], "mine");
    assert_eq!(invoke("r1").await.is(200).json()["name"], "mine");
    invoke("r2").await.is(409);
}

#[tokio::test]
async fn a_deployment_needs_what_it_names() {
    let s = server();
    s.batch().await;
    let put = |path: String, body: Value| {
        let s = &s;
        async move { s.ask("PUT", &path, body).await }
    };
    let got = put(
        format!("{WS}/batchEndpoints/nope/deployments/dep"),
        deployment_body("c01"),
    )
    .await
    .is(404);
    assert!(got.message().contains("nope"));
    let got = put(
        format!("{WS}/batchEndpoints/end/deployments/two"),
        deployment_body("nope"),
    )
    .await
    .is(404);
    assert_eq!(got.code(), "ComputeNotFound");
    let mut body = deployment_body("c01");
    body["properties"]["model"]["assetId"] = json!(format!("{WS}/models/m/versions/9"));
    put(format!("{WS}/batchEndpoints/end/deployments/two"), body)
        .await
        .is(404);
    let default =
        json!({"properties": {"authMode": "aadToken", "defaults": {"deploymentName": "two"}}});
    put(format!("{WS}/batchEndpoints/end"), default)
        .await
        .is(400);

    put(
        format!("{WS}/batchEndpoints/end/deployments/two"),
        deployment_body("c01"),
    )
    .await
    .is(201);
    let list = s
        .get(&format!("{WS}/batchEndpoints/end/deployments"))
        .await
        .is(200)
        .json();
    assert_eq!(list["value"].as_array().unwrap().len(), 2);
    s.ask(
        "DELETE",
        &format!("{WS}/batchEndpoints/end/deployments/dep"),
        Value::Null,
    )
    .await
    .is(200);
    let endpoint = s
        .get(&format!("{WS}/batchEndpoints/end"))
        .await
        .is(200)
        .json();
    assert_ne!(
        endpoint["properties"]["defaults"]["deploymentName"], "dep",
        "the default went with it"
    );
}

#[tokio::test]
async fn a_command_job_runs_and_is_shown() {
    let s = server();
    s.batch().await;
    let path = format!("{WS}/jobs/j1");
    let made = s
        .ask("PUT", &path, command_body("c01"))
        .await
        .is(201)
        .json();
    assert_eq!(made["properties"]["jobType"], "Command");
    assert!(made["properties"]["services"]["Studio"]["endpoint"].is_string());
    s.until(&path, |j| j["properties"]["status"] == "Running")
        .await;
    let details = format!("/history/v1.0{WS}/runs/j1/details");
    assert_eq!(s.get(&details).await.is(200).json()["status"], "Running");

    let mut again = command_body("c01");
    again["properties"]["tags"] = json!({"x": "y"});
    assert_eq!(
        s.ask("PUT", &path, again).await.is(200).json()["properties"]["tags"]["x"],
        "y"
    );
    let patched = s
        .ask(
            "PATCH",
            &format!("/history/v1.0{WS}/experiments/x/runs/j1"),
            json!({"displayName": "shown"}),
        )
        .await
        .is(200)
        .json();
    assert_eq!(patched["displayName"], "shown");
    s.ask("DELETE", &path, Value::Null).await.is(409);

    s.engine.end("j1", 0);
    let done = s
        .until(&path, |j| j["properties"]["status"] == "Completed")
        .await;
    assert_eq!(done["properties"]["displayName"], "shown");
    let explained = s.get(&format!("{path}/explain")).await.is(200).json();
    assert_eq!(explained["why"], Value::Null);
    s.ask("POST", &format!("{path}/cancel"), Value::Null)
        .await
        .is(200);
    s.ask("DELETE", &path, Value::Null).await.is(200);
    s.get(&path).await.is(404);
}

#[tokio::test]
async fn a_job_is_canceled_and_explained() {
    let s = server();
    s.batch().await;
    let path = format!("{WS}/jobs/j1");
    s.ask("PUT", &path, command_body("c01")).await.is(201);
    s.until(&path, |j| j["properties"]["status"] == "Running")
        .await;
    let canceled = s
        .ask("POST", &format!("{path}/cancel"), Value::Null)
        .await
        .is(202);
    let operation = canceled
        .header("azure-asyncoperation")
        .strip_prefix("https://zaffre.test:8443")
        .unwrap()
        .to_owned();
    s.until(&operation, |o| o["status"] == "Succeeded").await;
    s.until(&path, |j| j["properties"]["status"] == "Canceled")
        .await;
    let explained = s.get(&format!("{path}/explain")).await.is(200).json();
    assert_eq!(explained["text"], "cancel was asked for");

    assert_eq!(
        s.ask("PUT", &format!("{WS}/jobs/j2"), command_body("nope"))
            .await
            .is(404)
            .code(),
        "ComputeNotFound"
    );
    s.ask("POST", &format!("{WS}/jobs/nope/cancel"), Value::Null)
        .await
        .is(404);
    s.get(&format!("{WS}/jobs/nope")).await.is(404);
}

#[tokio::test]
async fn logs_are_read_through_links_and_a_stream_of_an_ended_run_sees_them() {
    let s = server();
    s.batch().await;
    let path = format!("{WS}/jobs/j1");
    s.ask("PUT", &path, command_body("c01")).await.is(201);
    s.until(&path, |j| j["properties"]["status"] == "Running")
        .await;
    let places = wire::places::Places::of(job("j1").workspace());
    let log = places
        .artifacts_of("j1")
        .unwrap()
        .join("user_logs/std_log.txt")
        .unwrap();
    s.control.blobs().put(&log, b"line 1\nline 2\n").unwrap();
    s.engine.end("j1", 0);
    s.until(&path, |j| j["properties"]["status"] == "Completed")
        .await;
    let details = format!("/history/v1.0{WS}/runs/j1/details");
    let first = s.get(&details).await.is(200).json();
    assert_eq!(first["status"], "Finalizing");
    let link = first["logFiles"]["user_logs/std_log.txt"].as_str().unwrap();
    assert_eq!(
        s.call("GET", link, &[], Body::empty()).await.is(200).text(),
        "line 1\nline 2\n"
    );
    let part = s
        .call("GET", link, &[("range", "bytes=7-")], Body::empty())
        .await
        .is(206);
    assert_eq!(
        (part.text().as_str(), part.header("content-range")),
        ("line 2\n", "bytes 7-13/14")
    );
    s.call(
        "GET",
        &link.replace("std_log.txt", "other.txt"),
        &[],
        Body::empty(),
    )
    .await
    .is(403);
    s.call("PUT", link, &[("x-ms-blob-type", "BlockBlob")], "x")
        .await
        .is(403);
    assert_eq!(s.get(&details).await.json()["status"], "Completed");
    assert_eq!(
        s.get(&details).await.json()["status"],
        "Finalizing",
        "another stream begins"
    );
    let artifacts = s
        .get(&format!("/history/v1.0{WS}/runs/j1/artifacts"))
        .await
        .is(200)
        .json();
    assert_eq!(artifacts["value"][0]["path"], "user_logs/std_log.txt");
}

#[tokio::test]
async fn jobs_are_listed_newest_first_in_pages_that_hold_still() {
    let s = server();
    s.batch().await;
    for i in 0..5 {
        let mut body = command_body("c01");
        body["properties"]["tags"] = json!({"n": i.to_string()});
        s.ask("PUT", &format!("{WS}/jobs/j{i}"), body).await.is(201);
    }
    let token = format!("Bearer {TOKEN}");
    let mut seen = Vec::new();
    let mut next = format!("{WS}/jobs?$maxpagesize=2&listViewType=ActiveOnly");
    while !next.is_empty() {
        let page = s
            .call(
                "GET",
                &next,
                &[("authorization", token.as_str())],
                Body::empty(),
            )
            .await
            .is(200)
            .json();
        seen.extend(
            page["value"]
                .as_array()
                .unwrap()
                .iter()
                .map(|j| j["name"].as_str().unwrap().to_owned()),
        );
        next = page["nextLink"].as_str().unwrap_or_default().to_owned();
        assert!(
            next.is_empty() || next.starts_with("https://zaffre.test:8443/subscriptions/"),
            "{next}"
        );
        s.ask(
            "PUT",
            &format!("{WS}/jobs/later-{}", seen.len()),
            command_body("c01"),
        )
        .await
        .is(201);
    }
    seen.sort();
    assert_eq!(
        seen,
        ["j0", "j1", "j2", "j3", "j4"],
        "what was made in between changes no page"
    );
    let tagged = s.get(&format!("{WS}/jobs?tag=n=3")).await.is(200).json();
    assert_eq!(tagged["value"].as_array().unwrap().len(), 1);
    let none = s
        .get(&format!("{WS}/jobs?jobType=Sweep"))
        .await
        .is(200)
        .json();
    assert_eq!(none["value"], json!([]));
    s.get(&format!("{WS}/jobs?$skipToken=%F0nonsense"))
        .await
        .is(400);
    s.get(&format!("{WS}/jobs?$top=0")).await.is(400);
}

#[tokio::test]
async fn quotas_are_shown_and_changed() {
    let s = server();
    let usages = s.get(&format!("{LOC}/usages")).await.is(200).json();
    let low = |list: &Value| {
        list["value"]
            .as_array()
            .unwrap()
            .iter()
            .find(|u| {
                u["name"]["value"]
                    .as_str()
                    .unwrap_or_default()
                    .contains("LowPriority")
            })
            .cloned()
            .unwrap()
    };
    assert_eq!(
        (
            low(&usages)["limit"].clone(),
            low(&usages)["currentValue"].clone()
        ),
        (json!(100), json!(0))
    );
    let update = json!({"value": [{"id": format!("{WS}/quotas/TotalLowPriorityCores"), "limit": 8, "unit": "Count"}]});
    let done = s
        .ask("POST", &format!("{LOC}/updateQuotas"), update)
        .await
        .is(200)
        .json();
    assert_eq!(done["value"][0]["status"], "Success");
    assert_eq!(
        low(&s.get(&format!("{LOC}/usages")).await.json())["limit"],
        8
    );
    s.cluster("c01", 3, 3).await.is(400);
    let quotas = s.get(&format!("{LOC}/quotas")).await.is(200).json();
    assert!(!quotas["value"].as_array().unwrap().is_empty());
    let sizes = s.get(&format!("{LOC}/vmSizes")).await.is(200).json();
    assert!(sizes["value"].as_array().unwrap().iter().any(|v| {
        v["name"]
            .as_str()
            .unwrap()
            .eq_ignore_ascii_case("STANDARD_DS3_v2")
            && v["vCPUs"] == 4
    }));
}

#[tokio::test]
async fn metrics_answer_in_azure_monitors_shape() {
    let s = server();
    s.cluster("c01", 2, 2).await.is(201);
    let path = format!("{WS}/computes/c01");
    s.until(&path, |c| {
        c["properties"]["properties"]["nodeStateCounts"]["idleNodeCount"] == 2
    })
    .await;
    let definitions = s
        .get(&format!(
            "{WS}/providers/Microsoft.Insights/metricDefinitions"
        ))
        .await
        .is(200)
        .json();
    assert!(
        definitions["value"]
            .as_array()
            .unwrap()
            .iter()
            .any(|d| d["name"]["value"] == "Preempted Nodes")
    );
    s.ask(
        "POST",
        &format!("{path}/preempt"),
        json!({"nodes": 1, "holdCapacity": "PT1H"}),
    )
    .await
    .is(200);
    s.until(&path, |c| {
        c["properties"]["properties"]["nodeStateCounts"]["preemptedNodeCount"] == 1
    })
    .await;
    let metrics = s
        .get(&format!("{WS}/providers/microsoft.insights/metrics?metricnames=Preempted%20Nodes,Preempted%20Cores&interval=PT1M&aggregation=Maximum"))
        .await
        .is(200)
        .json();
    let most = |i: usize| {
        metrics["value"][i]["timeseries"][0]["data"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|d| d["maximum"].as_f64())
            .fold(0.0, f64::max)
    };
    assert_eq!(most(0), 1.0);
    assert_eq!(most(1), 4.0);
    s.get(&format!(
        "{WS}/providers/Microsoft.Insights/metrics?metricnames=Nonsense"
    ))
    .await
    .is(400);
    s.get(&format!(
        "{WS}/providers/Microsoft.Insights/metrics?metricnames=Preempted%20Nodes&timespan=x"
    ))
    .await
    .is(400);
}

#[tokio::test]
async fn errors_have_azures_shape() {
    let s = server();
    let got = s.get("/nowhere").await.is(404).json();
    assert_eq!(got["error"]["details"], json!([]));
    assert_eq!(
        s.ask("POST", WS, Value::Null).await.is(405).code(),
        "MethodNotAllowed"
    );
    let token = format!("Bearer {TOKEN}");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_that_race_make_one_job() {
    let s = server();
    let input = s.batch().await;
    let path = format!("/batch/{SUB}/default/default/end/jobs");
    for round in 0..20 {
        let id = format!("race-{round}");
        let headers = [("repeatability_request-id", id.as_str())];
        let send = || s.ask_with("POST", &path, &headers, invoke_body(&input));
        let all = tokio::join!(send(), send(), send(), send());
        let names = [&all.0, &all.1, &all.2, &all.3].map(|got| {
            assert!(got.status < 300, "{}", got.text());
            got.json()["name"].as_str().unwrap().to_owned()
        });
        assert!(names.iter().all(|n| *n == names[0]), "{names:?}");
    }
    let jobs = s
        .get(&format!("{WS}/jobs?listViewType=All&$maxpagesize=1000"))
        .await
        .json();
    assert_eq!(jobs["value"].as_array().unwrap().len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_race_for_a_version_agree_on_one_path() {
    let s = server();
    let a = s.upload("a/x", "1").await;
    let b = s.upload("b/x", "2").await;
    for version in 0..20 {
        let path = format!("{WS}/data/d/versions/{version}");
        let body = |uri: &str| json!({"properties": {"dataUri": uri, "dataType": "uri_file"}});
        let (first, second) =
            tokio::join!(s.ask("PUT", &path, body(&a)), s.ask("PUT", &path, body(&b)),);
        let mut got = [first.status, second.status];
        got.sort_unstable();
        assert_eq!(
            got,
            [201, 400],
            "one writes, the other is told that paths do not move"
        );
        let stored = s.get(&path).await.json();
        let winner = if first.status == 201 { &a } else { &b };
        assert_eq!(stored["properties"]["dataUri"], winner.as_str());
    }
}
