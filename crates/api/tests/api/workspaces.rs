//! Workspaces: created, listed, changed and deleted, by their own route and by the template that the SDK sends.

use crate::server::*;
use serde_json::{Value, json};

const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg1";

fn ws(name: &str) -> String {
    format!("{GROUP}/providers/Microsoft.MachineLearningServices/workspaces/{name}")
}

#[tokio::test]
async fn a_workspace_is_deleted_when_nothing_runs_there_and_comes_back_with_what_it_held() {
    let s = server();
    let path = ws("ws1");
    let body =
        json!({"location": "local", "tags": {"a": "b"}, "properties": {"friendlyName": "One"}});
    s.ask("PUT", &path, body.clone()).await.is(201);
    s.ask("PUT", &path, body.clone()).await.is(200);
    let environment = json!({"properties": {"image": "python"}});
    let kept = format!("{path}/environments/env/versions/1");
    s.ask("PUT", &kept, environment).await.is(201);
    s.ask("PUT", &format!("{path}/computes/c01"), cluster_body(0, 1))
        .await
        .is(201);
    let full = s.ask("DELETE", &path, Value::Null).await.is(409);
    assert!(
        full.message().contains("workspace ws1 has compute c01"),
        "{}",
        full.message()
    );
    let gone = s
        .ask("DELETE", &format!("{path}/computes/c01"), Value::Null)
        .await
        .is(202);
    s.until(gone.header("azure-asyncoperation"), |o| {
        o["status"] == "Succeeded"
    })
    .await;

    s.ask("DELETE", &path, Value::Null).await.is(200);
    s.get(&path).await.is(404);
    s.get(&kept).await.is(404);
    let list = format!("{GROUP}/providers/Microsoft.MachineLearningServices/workspaces");
    assert_eq!(s.get(&list).await.is(200).json()["value"], json!([]));
    s.ask("DELETE", &path, Value::Null).await.is(204);
    s.ask("PUT", &path, body.clone()).await.is(201);
    s.get(&kept).await.is(200);

    s.ask("DELETE", &format!("{path}?forceToPurge=true"), Value::Null)
        .await
        .is(200);
    s.ask("PUT", &path, body).await.is(201);
    s.get(&kept).await.is(404);
    let own = s.ask("DELETE", WS, Value::Null).await.is(409);
    assert!(
        own.message().contains("the server's own"),
        "{}",
        own.message()
    );
}

#[tokio::test]
async fn a_template_of_the_sdk_makes_a_workspace() {
    let s = server();
    let path = format!("{GROUP}/providers/Microsoft.Resources/deployments/ws2-123");
    let resource = json!({"type": "Microsoft.MachineLearningServices/workspaces", "name": "[parameters('workspaceName')]",
        "location": "[parameters('location')]", "kind": "[parameters('kind')]", "tags": "[parameters('tagValues')]",
        "properties": {"friendlyName": "[parameters('friendlyName')]", "keyVault": "[variables('keyVault')]"}});
    let parameters = json!({"workspaceName": {"value": "ws2"}, "location": {"value": "local"}, "kind": {"value": "default"},
        "tagValues": {"value": {"a": "b"}}, "friendlyName": {"value": "Two"}});
    let body = json!({"properties": {"mode": "incremental", "parameters": parameters,
        "template": {"resources": [{"type": "Microsoft.Storage/storageAccounts", "name": "x"}, resource]}}});
    let made = s.ask("PUT", &path, body).await.is(201).json();
    assert_eq!(made["properties"]["provisioningState"], "Succeeded");
    let shown = s.get(&ws("ws2")).await.is(200).json();
    assert_eq!(
        (&shown["tags"]["a"], &shown["properties"]["friendlyName"]),
        (&json!("b"), &json!("Two"))
    );
    let operations = format!("{GROUP}/deployments/ws2-123/operations");
    assert_eq!(s.get(&operations).await.is(200).json()["value"], json!([]));
    let wrong =
        json!({"properties": {"template": {"resources": [{"type": "Microsoft.Compute/disks"}]}}});
    let refused = s.ask("PUT", &path, wrong).await.is(400);
    assert_eq!(refused.code(), "NotSupported");
}
