//! Compute instances and computes that were made elsewhere; datastores; secrets that stay.

use crate::server::*;
use serde_json::{Value, json};

fn instance_body() -> Value {
    json!({"location": "local", "properties": {"computeType": "computeinstance", "properties": {
        "vmSize": "STANDARD_DS3_v2", "idleTimeBeforeShutdown": "PT30M",
        "schedules": {"computeStartStop": [{"action": "stop", "status": "enabled", "triggerType": "Cron",
            "cron": {"expression": "0 18 * * *", "timeZone": "UTC"}}]},
    }}})
}

async fn over(s: &Server, got: &Got) -> Value {
    let at = got.header("azure-asyncoperation").to_owned();
    assert_eq!(got.header("x-ms-retry-after-ms"), "200");
    assert!(got.headers.get("retry-after").is_none());
    s.until(&at, |o| o["status"] != "InProgress").await
}

async fn state(s: &Server, path: &str) -> String {
    let shown = s.get(path).await.is(200).json();
    let state = &shown["properties"]["properties"]["state"];
    state.as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_instance_starts_stops_and_starts_again() {
    let s = server();
    let path = format!("{WS}/computes/ci-1");
    let made = s.ask("PUT", &path, instance_body()).await.is(201);
    assert_eq!(over(&s, &made).await["status"], "Succeeded");
    let shown = s.get(&path).await.is(200).json();
    let p = &shown["properties"];
    assert_eq!(p["computeType"], "ComputeInstance");
    assert_eq!(p["properties"]["state"], "Running");
    assert_eq!(p["properties"]["vmSize"], "STANDARD_DS3_v2");
    assert_eq!(p["provisioningState"], "Succeeded");
    assert!(p["properties"].get("zaffre.power").is_none());
    let warnings: Vec<_> = made.headers.get_all("warning").iter().collect();
    assert!(
        warnings
            .iter()
            .any(|w| w.to_str().unwrap().contains("not carried out yet")),
        "{warnings:?}"
    );

    let ask = async |what: &str| {
        s.ask("POST", &format!("{WS}/computes/ci-1/{what}"), Value::Null)
            .await
    };
    let stopped = ask("stop").await.is(202);
    assert!(stopped.bytes.is_empty());
    assert_eq!(over(&s, &stopped).await["status"], "Succeeded");
    assert_eq!(state(&s, &path).await, "Stopped");
    // twice is once
    let again = ask("stop").await.is(202);
    assert_eq!(over(&s, &again).await["status"], "Succeeded");

    // a document that is sent again neither starts nor stops it, and a job that names it says why it cannot be
    let mut sent = instance_body();
    sent["properties"]["properties"]["zaffre.power"] = json!("Start");
    s.ask("PUT", &path, sent).await.is(200);
    assert_eq!(state(&s, &path).await, "Stopped");
    s.batch().await;
    let job = format!("{WS}/jobs/j1");
    let refused = s.ask("PUT", &job, command_body("ci-1")).await.is(409);
    assert!(
        refused
            .message()
            .contains("compute instance ci-1 is stopped"),
        "{}",
        refused.message()
    );

    let started = ask("start").await.is(202);
    assert_eq!(over(&s, &started).await["status"], "Succeeded");
    assert_eq!(state(&s, &path).await, "Running");
    s.get(started.header("location")).await.is(200);
    let restarted = ask("restart").await.is(202);
    assert_eq!(over(&s, &restarted).await["status"], "Succeeded");
    assert_eq!(state(&s, &path).await, "Running");

    s.ask("PUT", &job, command_body("ci-1")).await.is(201);
    s.running("j1").await;
    assert_eq!(state(&s, &path).await, "JobRunning");
    let busy = ask("restart").await.is(409);
    assert!(
        busy.message().contains("job j1 runs on"),
        "{}",
        busy.message()
    );
    s.engine.end("j1", 0);
    s.until(&job, |j| j["properties"]["status"] == "Completed")
        .await;

    let gone = s.ask("DELETE", &path, Value::Null).await.is(202);
    assert_eq!(over(&s, &gone).await["status"], "Succeeded");
    s.get(&path).await.is(404);
}

#[tokio::test]
async fn settings_of_an_instance_have_routes_of_their_own() {
    let s = server();
    let path = format!("{WS}/computes/ci-1");
    s.ask("PUT", &path, instance_body()).await.is(201);
    let sso = format!("{path}/enableSso");
    s.ask("POST", &sso, json!({"enableSSO": false}))
        .await
        .is(200);
    let idle = format!("{path}/updateIdleShutdownSetting");
    let body = json!({"idleTimeBeforeShutdown": "PT1H"});
    s.ask("POST", &idle, body).await.is(200);
    let shown = s.get(&path).await.is(200).json();
    let p = &shown["properties"]["properties"];
    assert_eq!(
        (&p["enableSSO"], &p["idleTimeBeforeShutdown"]),
        (&json!(false), &json!("PT1H"))
    );
    s.ask("POST", &idle, json!({"idleTimeBeforeShutdown": "PT1M"}))
        .await
        .is(400);
    s.cluster("c01", 0, 1).await.is(201);
    let wrong = s
        .ask("POST", &format!("{WS}/computes/c01/start"), Value::Null)
        .await
        .is(400);
    assert!(
        wrong
            .message()
            .contains("compute c01 is of type AmlCompute"),
        "{}",
        wrong.message()
    );
    let missing = s
        .ask("POST", &format!("{WS}/computes/no/start"), Value::Null)
        .await
        .is(404);
    assert_eq!(missing.code(), "ComputeNotFound");
}

#[tokio::test]
async fn a_machine_that_is_attached_keeps_its_secret() {
    let s = server();
    let path = format!("{WS}/computes/vm-1");
    let body = |account: Value| {
        json!({"location": "local", "properties": {"computeType": "VirtualMachine", "resourceId": "/subscriptions/x/vm",
            "properties": {"sshPort": 2222, "administratorAccount": account}}})
    };
    let account = json!({"username": "azureuser", "passWord": "hunter2hunter2"});
    let made = s.ask("PUT", &path, body(account)).await.is(201);
    let shown = made.json();
    assert_eq!(shown["properties"]["isAttachedCompute"], true);
    assert_eq!(shown["properties"]["provisioningState"], "Succeeded");
    assert_eq!(
        shown["properties"]["properties"]["administratorAccount"],
        json!({"username": "azureuser"})
    );
    for got in [s.get(&path).await, s.get(&format!("{WS}/computes")).await] {
        assert!(!got.is(200).text().contains("hunter2"));
    }
    let stored = s.stored(model::Kind::Compute, "vm-1");
    assert!(
        !stored.contains("hunter2") && stored.contains("sealed:"),
        "{stored}"
    );

    // sent back as it was shown, it keeps the password (X3)
    s.ask("PUT", &path, body(json!({"username": "other"})))
        .await
        .is(200);
    let keys = s
        .ask("POST", &format!("{path}/listKeys"), Value::Null)
        .await
        .is(200)
        .json();
    assert_eq!(
        keys,
        json!({"computeType": "VirtualMachine", "administratorAccount": {"username": "other", "password": "hunter2hunter2"}})
    );

    s.batch().await;
    let refused = s
        .ask("PUT", &format!("{WS}/jobs/j1"), command_body("vm-1"))
        .await
        .is(400);
    assert_eq!(refused.code(), "NotSupported");
    assert!(
        refused
            .message()
            .contains("vm-1, a compute of type VirtualMachine"),
        "{}",
        refused.message()
    );
    let other = json!({"properties": {"computeType": "Databricks", "properties": {}}});
    let changed = s.ask("PUT", &path, other).await.is(409);
    assert!(
        changed
            .message()
            .contains("is of type VirtualMachine and cannot become Databricks")
    );

    let gone = format!("{path}?underlyingResourceAction=Detach");
    let gone = s.ask("DELETE", &gone, Value::Null).await.is(202);
    assert_eq!(over(&s, &gone).await["status"], "Succeeded");
    s.get(&path).await.is(404);
    s.ask("DELETE", &path, Value::Null).await.is(204);
}

#[tokio::test]
async fn every_unmanaged_kind_is_a_document() {
    let s = server();
    for (kind, properties) in [
        (
            "HDInsight",
            json!({"sshPort": 22, "address": "h", "administratorAccount": {"username": "u", "password": "p4ss"}}),
        ),
        (
            "Databricks",
            json!({"databricksAccessToken": "dapi-secret", "workspaceUrl": "adb.net"}),
        ),
        (
            "DataLakeAnalytics",
            json!({"dataLakeStoreAccountName": "lake"}),
        ),
        ("DataFactory", json!({})),
        ("AKS", json!({"agentCount": 3})),
        (
            "SynapseSpark",
            json!({"nodeCount": 3, "sparkVersion": "3.4"}),
        ),
    ] {
        let path = format!("{WS}/computes/c-{}", kind.to_lowercase());
        let body = json!({"properties": {"computeType": kind.to_uppercase(), "resourceId": "/r", "properties": properties}});
        let made = s.ask("PUT", &path, body).await.is(201);
        assert_eq!(made.json()["properties"]["computeType"], kind);
        assert!(
            !made.text().contains("p4ss") && !made.text().contains("dapi"),
            "{}",
            made.text()
        );
    }
    let token = s
        .ask(
            "POST",
            &format!("{WS}/computes/c-databricks/listKeys"),
            Value::Null,
        )
        .await;
    assert_eq!(token.is(200).json()["databricksAccessToken"], "dapi-secret");
    let all = s.get(&format!("{WS}/computes")).await.is(200).json();
    assert_eq!(all["value"].as_array().unwrap().len(), 6);
    let unknown = json!({"properties": {"computeType": "Abacus"}});
    let refused = s
        .ask("PUT", &format!("{WS}/computes/abacus"), unknown)
        .await
        .is(400);
    assert!(
        refused
            .message()
            .contains("computeType of abacus is `Abacus`"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn a_datastore_is_attached_and_its_secret_is_asked_for_by_itself() {
    let s = server();
    let path = format!("{WS}/datastores/mine");
    let body = |credentials: Value| {
        json!({"properties": {"datastoreType": "azureblob", "accountName": "acc", "containerName": "c",
            "endpoint": "core.windows.net", "protocol": "https", "credentials": credentials, "zaffre-unknown": 5}})
    };
    let key = json!({"credentialsType": "AccountKey", "secrets": {"secretsType": "AccountKey", "key": "s3cr3t"}});
    let made = s.ask("PUT", &path, body(key)).await.is(201);
    assert!(!made.text().contains("s3cr3t"));
    let p = &made.json()["properties"];
    assert_eq!(
        (&p["datastoreType"], &p["isDefault"], &p["zaffre-unknown"]),
        (&json!("AzureBlob"), &json!(false), &json!(5))
    );
    assert_eq!(p["credentials"], json!({"credentialsType": "AccountKey"}));
    assert!(!s.stored(model::Kind::Datastore, "mine").contains("s3cr3t"));
    let secrets = async |name: &str| {
        let at = format!("{WS}/datastores/{name}/listSecrets");
        s.ask("POST", &at, Value::Null).await
    };
    let open = json!({"secretsType": "AccountKey", "key": "s3cr3t"});
    assert_eq!(secrets("mine").await.is(200).json(), open);
    // the SDK sends it back without its secret
    s.ask("PUT", &path, body(json!({"credentialsType": "AccountKey"})))
        .await
        .is(200);

    let names = |list: &Value| -> Vec<String> {
        let items = list["value"].as_array().unwrap().iter();
        items
            .map(|i| i["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = s.get(&format!("{WS}/datastores")).await.is(200).json();
    assert_eq!(
        names(&all),
        ["workspaceblobstore", "workspaceartifactstore", "mine"]
    );
    let default = s
        .get(&format!("{WS}/datastores?isDefault=true&count=30"))
        .await
        .is(200)
        .json();
    assert_eq!(names(&default), ["workspaceblobstore"]);
    let own = s
        .ask(
            "PUT",
            &format!("{WS}/datastores/WorkspaceBlobStore"),
            body(Value::Null),
        )
        .await
        .is(400);
    assert!(own.message().contains("the workspace's own"));
    s.ask(
        "DELETE",
        &format!("{WS}/datastores/workspaceblobstore"),
        Value::Null,
    )
    .await
    .is(400);

    s.ask("PUT", &format!("{WS}/datastores/open"), body(Value::Null))
        .await
        .is(201);
    secrets("open").await.is(400);
    s.ask("DELETE", &path, Value::Null).await.is(200);
    s.get(&path).await.is(404);
    s.ask("DELETE", &path, Value::Null).await.is(204);
}

#[tokio::test]
async fn datastores_come_in_pages() {
    let s = server();
    for name in ["a1", "a2", "a3"] {
        let body = json!({"properties": {"datastoreType": "AzureFile", "accountName": "acc", "fileShareName": "f"}});
        s.ask("PUT", &format!("{WS}/datastores/{name}"), body)
            .await
            .is(201);
    }
    let mut next = format!("{WS}/datastores?count=2");
    let mut seen = Vec::new();
    while !next.is_empty() {
        let page = s.get(&next).await.is(200).json();
        for item in page["value"].as_array().unwrap() {
            seen.push(item["name"].as_str().unwrap().to_owned());
        }
        next = page["nextLink"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(
        seen,
        [
            "workspaceblobstore",
            "workspaceartifactstore",
            "a1",
            "a2",
            "a3"
        ]
    );
}

#[tokio::test]
async fn a_job_names_datastores_that_are_reached_and_is_refused_others_by_their_type() {
    let s = server();
    s.batch().await;
    let store = |properties: Value| json!({ "properties": properties });
    let blob =
        store(json!({"datastoreType": "AzureBlob", "accountName": "acc", "containerName": "c"}));
    s.ask("PUT", &format!("{WS}/datastores/mine"), blob)
        .await
        .is(201);
    let share =
        store(json!({"datastoreType": "AzureFile", "accountName": "acc", "fileShareName": "f"}));
    s.ask("PUT", &format!("{WS}/datastores/share"), share)
        .await
        .is(201);
    let lake = store(
        json!({"datastoreType": "AzureDataLakeGen2", "accountName": "acc", "filesystem": "f"}),
    );
    s.ask("PUT", &format!("{WS}/datastores/lake"), lake)
        .await
        .is(201);
    let wrong = store(
        json!({"datastoreType": "AzureBlob", "accountName": "acc", "containerName": "c",
        "tags": {"zaffre.s3": "aws"}}),
    );
    let refused = s
        .ask("PUT", &format!("{WS}/datastores/wrong"), wrong)
        .await
        .is(400);
    assert!(
        refused
            .message()
            .contains("zaffre.s3 is not known, known are zaffre.s3_endpoint"),
        "{}",
        refused.message()
    );

    let job = |input: &str, output: &str| {
        let mut body = command_body("c01");
        body["properties"]["command"] = json!("cat ${{inputs.a}} ${{outputs.o}}");
        body["properties"]["inputs"] = json!({"a": {"jobInputType": "uri_folder", "uri": input}});
        body["properties"]["outputs"] =
            json!({"o": {"jobOutputType": "uri_folder", "uri": output}});
        body
    };
    let own = "azureml://datastores/workspaceblobstore/paths/out/";
    let mine = "azureml://datastores/mine/paths/in/";
    for (name, input, output, status, message) in [
        (
            "j1",
            "azureml://datastores/none/paths/x",
            own,
            404,
            "datastore none does not exist",
        ),
        (
            "j2",
            "azureml://datastores/share/paths/x",
            own,
            400,
            "is of type AzureFile: its files are not reached yet",
        ),
        (
            "j3",
            mine,
            "azureml://datastores/share/paths/x",
            400,
            "is of type AzureFile: its files are not reached yet",
        ),
        (
            "j3",
            "azureml://datastores/lake/paths/x",
            own,
            400,
            "is of type AzureDataLakeGen2: its files are not reached yet",
        ),
        (
            "j3",
            mine,
            "azureml://datastores/mine/paths/",
            400,
            "is a whole datastore; name a folder in it",
        ),
    ] {
        let refused = s
            .ask("PUT", &format!("{WS}/jobs/{name}"), job(input, output))
            .await
            .is(status);
        assert!(refused.message().contains(message), "{}", refused.message());
    }
    s.ask("PUT", &format!("{WS}/jobs/j4"), job(mine, own))
        .await
        .is(201);
    s.running("j4").await;
    s.engine.end("j4", 0);

    let data = |uri: &str| json!({"properties": {"dataUri": uri, "dataType": "uri_folder"}});
    s.ask("PUT", &format!("{WS}/data/d/versions/1"), data(mine))
        .await
        .is(201);
    let missing = data("azureml://datastores/none/paths/x");
    s.ask("PUT", &format!("{WS}/data/d/versions/2"), missing)
        .await
        .is(404);
}
