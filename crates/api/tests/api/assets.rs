//! Workspaces, models, data, environments and code, asked as a client asks for them.

use crate::server::*;
use axum::body::Body;
use serde_json::{Value, json};

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
    // A container may be there before its first version; it stands among those that have some.
    for name in ["a", "a-a", "zz"] {
        let body = json!({"properties": {"description": name}});
        s.ask("PUT", &format!("{WS}/models/{name}"), body)
            .await
            .is(201);
    }
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
            let name = c["name"].as_str().unwrap();
            let empty = ["a-a", "zz"].contains(&name);
            let next = if empty { "1" } else { "4" };
            assert_eq!(c["properties"]["nextVersion"], next, "{c}");
            let own = empty || name == "a";
            assert_eq!(c["properties"]["description"] == name, own, "{c}");
            name.to_owned()
        }));
        next = page["nextLink"].as_str().unwrap_or_default().to_owned();
    }
    seen.sort();
    let shown = ["B", "a", "a-a", "a-b", "zz"];
    assert_eq!(seen, shown, "the archived one is not shown");
    let all = s.get(&format!("{WS}/models")).await.is(200).json();
    assert_eq!(all["value"].as_array().unwrap().len(), shown.len(), "{all}");
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

#[tokio::test]
async fn an_environment_with_another_image_is_a_conflict_and_the_sdk_takes_the_next_version() {
    let s = server();
    let at = format!("{WS}/environments/env/versions/1");
    let body =
        |image: &str| json!({"properties": {"image": image, "environmentType": "usercreated"}});
    let made = s.ask("PUT", &at, body("a")).await.is(201).json();
    assert_eq!(made["properties"]["environmentType"], "UserCreated");
    s.ask("PUT", &at, body("a")).await.is(200);
    let refused = s.ask("PUT", &at, body("b")).await.is(409);
    assert!(
        refused
            .message()
            .contains("environment env:1 exists, and its image cannot be changed"),
        "{}",
        refused.message()
    );
}
