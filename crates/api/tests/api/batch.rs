//! Batch deployments and what an invoke makes of them.

use crate::server::*;
use serde_json::{Value, json};

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
