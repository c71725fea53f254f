//! Online endpoints as documents, and deployments that are checked and refused.

use crate::server::*;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

const EP: &str = "onlineEndpoints/my-ep";

async fn kubernetes(s: &Server) {
    let body = json!({"properties": {"computeType": "Kubernetes", "properties": {"namespace": "azureml", "instanceTypes": {
        "cpusmall": {"nodeSelector": null, "resources": {"requests": {"cpu": "100m", "memory": "100Mi"},
            "limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 0}}}}, "defaultInstanceType": "cpusmall"}}});
    s.ask("PUT", &format!("{WS}/computes/k8s"), body)
        .await
        .is(201);
    s.until(&format!("{WS}/computes/k8s"), |c| {
        c["properties"]["provisioningState"] == "Succeeded"
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_has_two_keys_that_only_list_keys_shows() {
    let s = server();
    let path = format!("{WS}/{EP}");
    let body = json!({"location": "local", "tags": {"a": "b"}, "properties": {"authMode": "key", "description": "d",
        "zaffre.keys": {"primaryKey": "mine"}}});
    let made = s.ask("PUT", &path, body.clone()).await.is(201);
    let p = made.json()["properties"].clone();
    assert_eq!(p["authMode"], "Key");
    assert_eq!(
        (&p["properties"], &p["traffic"], &p["mirrorTraffic"]),
        (&json!({}), &json!({}), &json!({}))
    );
    assert!(p["scoringUri"].as_str().unwrap().ends_with("/my-ep/score"));
    assert!(p.get("compute").is_none() && p.get("zaffre.keys").is_none());
    let keys = async || {
        s.ask("POST", &format!("{path}/listKeys"), Value::Null)
            .await
            .is(200)
            .json()
    };
    let first = keys().await;
    let key = |keys: &Value, name: &str| keys[name].as_str().unwrap().to_owned();
    assert_eq!(key(&first, "primaryKey").len(), 32);
    assert_ne!(key(&first, "primaryKey"), "mine");
    assert_ne!(first["primaryKey"], first["secondaryKey"]);
    assert!(
        !s.stored(model::Kind::OnlineEndpoint, "my-ep")
            .contains(&key(&first, "primaryKey"))
    );

    s.ask("PUT", &path, body).await.is(200);
    assert_eq!(keys().await, first, "N1");
    let old = json!({"keyType": "primary", "keyValue": first["primaryKey"]});
    s.ask("POST", &format!("{path}/regenerateKeys"), old)
        .await
        .is(200);
    let second = keys().await;
    assert_ne!(second["primaryKey"], first["primaryKey"]);
    assert_eq!(second["secondaryKey"], first["secondaryKey"]);

    let traffic = json!({"properties": {"authMode": "Key", "traffic": {"blue": 100}}});
    let refused = s.ask("PUT", &path, traffic).await.is(400);
    assert!(
        refused.message().contains("has no such deployment"),
        "{}",
        refused.message()
    );
    let mode = json!({"properties": {"authMode": "AMLToken"}});
    let refused = s.ask("PUT", &path, mode).await.is(400);
    assert!(
        refused
            .message()
            .contains("authMode of endpoint my-ep cannot be changed")
    );
    let patched = s
        .ask("PATCH", &path, json!({"tags": {"c": "d"}}))
        .await
        .is(200)
        .json();
    assert_eq!(patched["tags"], json!({"a": "b", "c": "d"}));
    assert_eq!(keys().await, second);

    let all = s.get(&format!("{WS}/onlineEndpoints")).await.is(200).json();
    assert_eq!(all["value"][0]["name"], "my-ep");
    s.ask("DELETE", &path, Value::Null).await.is(200);
    s.ask("DELETE", &path, Value::Null).await.is(204);
    s.get(&path).await.is(404);
}

#[tokio::test]
async fn a_token_endpoint_has_tokens_for_its_address_and_no_keys() {
    let s = server();
    let path = format!("{WS}/{EP}");
    s.ask(
        "PUT",
        &path,
        json!({"properties": {"authMode": "aml_token"}}),
    )
    .await
    .is(201);
    s.ask("POST", &format!("{path}/listKeys"), Value::Null)
        .await
        .is(400);
    let until = || {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs()
            + 3_600
    };
    let before = until();
    let got = s
        .ask("POST", &format!("{path}/token"), Value::Null)
        .await
        .is(200);
    assert_eq!(got.header("cache-control"), "no-store");
    let told = got.json();
    let expires = told["expiryTimeUtc"].as_u64().unwrap();
    assert!((before..=until()).contains(&expires), "{told}");
    assert_eq!(told["refreshAfterTimeUtc"], expires - 1_800);
    let token = told["accessToken"].as_str().unwrap();
    let claims = URL_SAFE_NO_PAD
        .decode(token.split('.').nth(1).unwrap())
        .unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    let endpoint = s.get(&path).await.is(200).json();
    assert_eq!(claims["aud"], endpoint["properties"]["scoringUri"]);
    assert_eq!(
        (&claims["sub"], &claims["exp"]),
        (&json!("zaffre"), &json!(expires))
    );
    // It opens nothing of the server itself.
    let header = format!("Bearer {token}");
    s.call("GET", &path, &[("authorization", &header)], "")
        .await
        .is(401);

    let other = format!("{WS}/onlineEndpoints/keyed");
    s.ask("PUT", &other, json!({"properties": {"authMode": "key"}}))
        .await
        .is(201);
    let refused = s
        .ask("POST", &format!("{other}/token"), Value::Null)
        .await
        .is(400);
    assert!(
        refused.message().contains("is of authMode Key"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn r44_a_deployment_is_judged_before_it_is_refused() {
    let s = server();
    kubernetes(&s).await;
    s.batch().await;
    let wrong = json!({"properties": {"compute": format!("{WS}/computes/c01")}});
    let refused = s.ask("PUT", &format!("{WS}/{EP}"), wrong).await.is(400);
    assert!(
        refused.message().contains("must be a Kubernetes compute"),
        "{}",
        refused.message()
    );
    let endpoint =
        json!({"properties": {"authMode": "Key", "compute": format!("{WS}/computes/K8S")}});
    s.ask("PUT", &format!("{WS}/{EP}"), endpoint).await.is(201);

    let path = format!("{WS}/{EP}/deployments/blue");
    let body = |more: Value| {
        let mut p = json!({"endpointComputeType": "Kubernetes", "model": format!("{WS}/models/m/versions/1"),
            "environmentId": format!("{WS}/environments/env/versions/1"),
            "codeConfiguration": {"codeId": format!("{WS}/codes/code/versions/1"), "scoringScript": "score.py"}});
        p.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"properties": p, "sku": {"name": "Default", "capacity": 1}})
    };
    let asked = |limits: Value| {
        body(
            json!({"instanceType": "cpusmall", "containerResourceRequirements": {
            "containerResourceRequests": {"cpu": "0.1", "memory": "0.2Gi"}, "containerResourceLimits": limits}}),
        )
    };
    for (sent, status, message) in [
        (
            body(json!({})),
            400,
            "is valid, but serving is not there yet: it was not created",
        ),
        (
            asked(json!({"cpu": "0.2", "memory": "0.5Gi"})),
            400,
            "is valid, but serving is not there yet",
        ),
        (
            asked(json!({"cpu": "2"})),
            400,
            "cpu limit 2 is above the limit 1000m of instance type cpusmall",
        ),
        (
            body(json!({"instanceType": "nope"})),
            400,
            "instance type nope is not defined on compute k8s",
        ),
        (
            body(json!({"endpointComputeType": "Managed"})),
            400,
            "and endpoint my-ep is on a Kubernetes compute",
        ),
        (
            body(json!({"model": format!("{WS}/models/none/versions/1")})),
            404,
            "model none:1 does not exist",
        ),
    ] {
        let refused = s.ask("PUT", &path, sent).await.is(status);
        assert!(refused.message().contains(message), "{}", refused.message());
    }
    let mlflow = s.upload("models/f/MLmodel", "x").await;
    let mlflow = json!({"properties": {"modelUri": mlflow.trim_end_matches("/MLmodel"), "modelType": "mlflow_model"}});
    s.ask("PUT", &format!("{WS}/models/flow/versions/1"), mlflow)
        .await
        .is(201);
    let sent = body(json!({"model": format!("{WS}/models/flow/versions/1")}));
    let refused = s.ask("PUT", &path, sent).await.is(400);
    assert!(
        refused
            .message()
            .contains("an MLflow model needs at least 2 cores"),
        "R-36: {}",
        refused.message()
    );

    s.get(&path).await.is(404);
    let none = s
        .get(&format!("{WS}/{EP}/deployments"))
        .await
        .is(200)
        .json();
    assert_eq!(none["value"], json!([]));
    s.ask("DELETE", &path, Value::Null).await.is(204);
    let nowhere = format!("{WS}/onlineEndpoints/none/deployments/blue");
    s.ask("PUT", &nowhere, body(json!({}))).await.is(404);
}
