//! Every form in which a client points at something (names and URIs of `azure-ai-ml`), followed by the server itself.

use crate::server::*;
use model::engine::InputSpec;
use serde_json::{Value, json};

/// What a reference comes to.
enum Comes {
    /// To the folder of version 1, of version 2, or to one below `in/` of the default datastore.
    To(&'static str),
    /// To an error that says this.
    Says(u16, &'static str),
}
use Comes::{Says, To};

#[tokio::test]
async fn every_form_of_a_reference_is_followed_or_refused_by_name() {
    let s = server();
    s.batch().await;
    for (version, uri) in [("1", "one"), ("2", "two"), ("3", "three")] {
        let uri = format!("azureml://datastores/workspaceblobstore/paths/in/{uri}/");
        let archived = version == "3";
        let body = json!({"properties": {"dataUri": uri, "dataType": "uri_folder", "isArchived": archived}});
        s.ask("PUT", &format!("{WS}/data/d/versions/{version}"), body)
            .await
            .is(201);
    }
    let guid = s.get(WS).await.is(200).json()["properties"]["workspaceId"].clone();
    let guid = guid.as_str().unwrap().to_owned();
    let long = |group: &str, workspace: &str| {
        format!(
            "azureml://subscriptions/{SUB}/{group}/default/workspaces/{workspace}/datastores/workspaceblobstore/paths/in/two/"
        )
    };
    let arm = WS.to_owned();
    let other = WS.replace("/workspaces/default", "/workspaces/other");
    let another = "belongs to another workspace";
    let forms: Vec<(String, Comes)> = vec![
        ("azureml:d:1".into(), To("one")),
        ("AzureML:D:2".into(), To("two")),
        // the newest that is not archived
        ("azureml:d@latest".into(), To("two")),
        ("azureml:d@Latest".into(), To("two")),
        (
            "azureml:d@best".into(),
            Says(400, "names the label best, known is latest"),
        ),
        ("azureml:d".into(), Says(400, "names no version")),
        (
            "azureml:none@latest".into(),
            Says(404, "data none@latest does not exist"),
        ),
        ("azureml:d:9".into(), Says(404, "data d:9 does not exist")),
        (format!("{arm}/data/d/versions/1"), To("one")),
        (format!("azureml:{arm}/data/d/versions/1"), To("one")),
        (
            format!("azureml:{}", arm.to_lowercase() + "/DATA/d/VERSIONS/1/"),
            To("one"),
        ),
        (format!("{arm}/data/d/labels/latest"), To("two")),
        // what azure-ai-ml makes of `azureml:d@latest` in an input of Python
        (format!("{arm}/data/azureml:d/versions/1"), To("one")),
        (format!("{other}/data/d/versions/1"), Says(400, another)),
        (format!("{arm}/models/m/versions/1"), To("m")),
        (
            format!("{arm}/environments/env/versions/1"),
            Says(400, "names an environment, which has no files"),
        ),
        (
            "azureml://datastores/workspaceblobstore/paths/in/two".into(),
            To("two"),
        ),
        (
            "azureml://DataStores/WorkspaceBlobStore/Paths/in/two/".into(),
            To("two"),
        ),
        (
            "azureml:azureml://datastores/workspaceblobstore/paths/in/two".into(),
            To("two"),
        ),
        (long("resourcegroups", "default"), To("two")),
        (long("resourceGroups", "Default"), To("two")),
        (long("resourceGroups", "other"), Says(400, another)),
        ("azureml://data/d/versions/1".into(), To("one")),
        ("azureml://data/d/labels/latest".into(), To("two")),
        (
            "azureml://locations/anywhere/workspaces/default/data/d/versions/1".into(),
            To("one"),
        ),
        (
            format!("azureml://locations/local/workspaces/{guid}/data/d/versions/1"),
            To("one"),
        ),
        (
            "azureml://locations/local/workspaces/other/data/d/versions/1".into(),
            Says(400, another),
        ),
        (
            "azureml://resourceGroups/default/workspaces/default/data/d/versions/1".into(),
            To("one"),
        ),
        (
            "azureml://resourceGroups/other/workspaces/default/data/d/versions/1".into(),
            Says(400, another),
        ),
        (
            "azureml://locations/local/workspaces/default/models/m/versions/1".into(),
            To("m"),
        ),
        (
            "azureml://registries/azureml/data/d/versions/1".into(),
            Says(
                400,
                "points into the registry `azureml`: zaffre does not reach registries yet",
            ),
        ),
        (
            "azureml://feeds/f/data/d/versions/1".into(),
            Says(400, "known are azureml://datastores/D/paths/P"),
        ),
        (
            "azureml://jobs/none/outputs/o".into(),
            Says(404, "job none does not exist"),
        ),
        ("azureml://jobs/first/outputs/o".into(), To("first")),
        ("azureml://jobs/first/outputs/o/paths/".into(), To("first")),
        (
            "azureml://jobs/first/outputs/x".into(),
            Says(404, "job first has no output x"),
        ),
        ("file:./in".into(), Says(400, "a path of your machine")),
        ("./in".into(), Says(400, "the server never opens a path")),
        (
            "wasbs://c@a.blob.core.windows.net/p".into(),
            Says(400, "another storage"),
        ),
        (
            "https://example.org/x".into(),
            Says(400, "not in this server's storage"),
        ),
    ];
    let submit = |input: &str| {
        let mut body = command_body("c01");
        body["properties"]["inputs"] = json!({"a": {"jobInputType": "uri_folder", "uri": input}});
        body["properties"]["outputs"] = json!({"o": {"jobOutputType": "uri_folder"}});
        body
    };
    let first = "azureml://datastores/workspaceblobstore/paths/in/one";
    s.ask("PUT", &format!("{WS}/jobs/first"), submit(first))
        .await
        .is(201);
    for (n, (form, comes)) in forms.iter().enumerate() {
        let name = format!("form-{n}");
        let got = s
            .ask("PUT", &format!("{WS}/jobs/{name}"), submit(form))
            .await;
        match comes {
            To(folder) => {
                assert_eq!(got.status, 201, "{form}: {}", got.text());
                let run = s.control.run(&job(&name)).unwrap().unwrap();
                let Some(InputSpec::Path { source, .. }) = run.spec.task.inputs.get("a") else {
                    panic!("{form}: no path");
                };
                let wanted = match *folder {
                    "first" => "/azureml/first/o".to_owned(),
                    "m" => "/models/m".to_owned(),
                    below => format!("/in/{below}"),
                };
                assert!(source.as_str().ends_with(&wanted), "{form}: {source}");
            }
            Says(status, text) => {
                assert_eq!(got.status, *status, "{form}: {}", got.text());
                assert!(got.message().contains(text), "{form}: {}", got.message());
            }
        }
    }
}

#[tokio::test]
async fn labels_name_environments_models_and_code_too() {
    let s = server();
    s.batch().await;
    let image = json!({"properties": {"image": "library/python:newer"}});
    s.ask("PUT", &format!("{WS}/environments/env/versions/2"), image)
        .await
        .is(201);
    let mut body = command_body("c01");
    body["properties"]["environmentId"] = json!("azureml:env@latest");
    body["properties"]["codeId"] = json!("azureml:code@latest");
    let got = s.ask("PUT", &format!("{WS}/jobs/labelled"), body).await;
    let shown: Value = got.is(201).json();
    assert_eq!(
        shown["properties"]["environmentId"], "azureml:env@latest",
        "as it was sent"
    );
    let run = s.control.run(&job("labelled")).unwrap().unwrap();
    assert_eq!(&*run.spec.task.environment.label, "env:2");
    assert!(run.spec.task.code.is_some());
}

#[tokio::test]
async fn an_asset_is_found_under_the_name_that_the_sdk_asks_for() {
    let s = server();
    s.batch().await;
    let at = |path: &str| format!("{WS}/models/azureml:m{path}");
    let shown = s.get(&at("")).await.is(200).json();
    assert_eq!(
        (&shown["name"], &shown["properties"]["latestVersion"]),
        (&json!("m"), &json!("1"))
    );
    s.get(&at("/versions/1")).await.is(200);
    let all = s
        .get(&at("/versions?$orderBy=createdtime%20desc&$top=1"))
        .await
        .is(200)
        .json();
    assert_eq!(all["value"].as_array().unwrap().len(), 1);
}
