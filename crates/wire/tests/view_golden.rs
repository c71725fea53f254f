//! The recorded answers of wire-samples, field by field: what the stock SDK was answered, ours answers too.
//!
//! Reads `../shared` beside the repository, or the folder that `ZAFFRE_SHARED` names.

use model::{DocKey, Document, Kind, Time, View, Workspace};
use serde_json::{Value, json};
use std::{path::PathBuf, sync::Arc};
use wire::{
    arm,
    places::Places,
    view::{self, Site},
};

fn sample(name: &str) -> Value {
    let folder = std::env::var_os("ZAFFRE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let file = folder
        .join("spec/wire-samples")
        .join(format!("{name}.json"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!("{}: {error}; these tests need the shared folder beside the repository, or ZAFFRE_SHARED", file.display())
    });
    serde_json::from_str(&text).unwrap()
}

fn workspace() -> Arc<Workspace> {
    Workspace::new("00000000-0000-0000-0000-000000000000", "rg1", "ws1")
}

fn site() -> Site {
    Site {
        base: "https://127.0.0.1:18443".into(),
        location: "local".into(),
    }
}

/// The document that a body would be stored as.
fn document(kind: Kind, path: &str, body: &Value) -> Document {
    Document {
        key: DocKey::new(&workspace(), kind, path),
        generation: 1,
        json: body.to_string().into(),
        created: Time(1_795_919_498_143),
        modified: Time(1_795_919_498_143),
        by: "local".into(),
    }
}

/// Values that name a moment, an address or a random id.
const VOLATILE: [&str; 16] = [
    "createdAt",
    "lastModifiedAt",
    "createdOn",
    "modifiedOn",
    "allocationStateTransitionTime",
    "startTime",
    "endTime",
    "principalId",
    "tenantId",
    "workspaceId",
    "sasToken",
    "experimentId",
    "runNumber",
    "createdUtc",
    "startTimeUtc",
    "endTimeUtc",
];

/// Every key of `theirs` is in `ours` with the same value, unless the key is volatile or among `differ`.
fn covers(theirs: &Value, ours: &Value, differ: &[&str], path: &str, wrong: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                let here = format!("{path}/{key}");
                match b.get(key) {
                    None => wrong.push(format!("{here} is missing")),
                    Some(_)
                        if VOLATILE.contains(&key.as_str()) || differ.contains(&key.as_str()) => {}
                    Some(other) => covers(value, other, differ, &here, wrong),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if !a.is_empty() => match b.first() {
            Some(first) => covers(&a[0], first, differ, &format!("{path}/0"), wrong),
            None => wrong.push(format!("{path} is empty")),
        },
        (a, b) if a != b => wrong.push(format!("{path} is {b}, recorded is {a}")),
        _ => {}
    }
}

fn same(theirs: &Value, ours: &Value, differ: &[&str]) {
    let mut wrong = Vec::new();
    covers(theirs, ours, differ, "", &mut wrong);
    assert!(wrong.is_empty(), "{}\nours: {ours:#}", wrong.join("\n"));
}

fn name_of(sample: &Value, after: &str) -> String {
    let path = sample["url"].as_str().unwrap().split('?').next().unwrap();
    path.split_once(&format!("/{after}/")).unwrap().1.to_owned()
}

/// Both directions: the recorded request is accepted and answered as recorded; the answer, sent back, is accepted and answered alike.
fn round(name: &str, kind: Kind, path: &str, differ: &[&str], show: &dyn Fn(&Document) -> Value) {
    let sample = sample(name);
    let answer = &sample["response_body"];
    let sent = match &sample["request_body"] {
        Value::Null => answer.clone(),
        body => body.clone(),
    };
    let stored = document(kind, path, &sent);
    arm::parse(&stored.key, &sent, None).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    let ours = show(&stored);
    same(answer, &ours, differ);
    let again = document(kind, path, &ours);
    arm::parse(&again.key, &ours, Some(&stored)).unwrap_or_else(|e| panic!("{name} again: {e:?}"));
    assert_eq!(
        show(&again),
        ours,
        "{name}: what is sent back changes nothing"
    );
}

#[test]
fn computes() {
    let show = |d: &Document| view::compute::compute(&site(), d, None, [].iter());
    for name in [
        "PUT-computes-AmlCompute-lowpri-201",
        "PUT-computes-AmlCompute-lowpri-200",
        "PUT-computes-AmlCompute-201",
        "GET-computes-AmlCompute-200",
    ] {
        let path = name_of(&sample(name), "computes");
        // the recorded server gives a cluster its nodes at once; tests/view_state.rs has nodes
        let nodes = [
            "provisioningState",
            "currentNodeCount",
            "targetNodeCount",
            "idleNodeCount",
        ];
        round(name, Kind::Compute, &path, &nodes, &show);
    }
}

#[test]
fn assets() {
    let show = view::asset::version;
    for (name, kind, collection) in [
        ("PUT-models_versions-201", Kind::Model, "models"),
        ("PUT-models_versions-200", Kind::Model, "models"),
        ("GET-models_versions-200", Kind::Model, "models"),
        (
            "PUT-environments_versions-conda-201",
            Kind::Environment,
            "environments",
        ),
        (
            "PUT-environments_versions-conda-200",
            Kind::Environment,
            "environments",
        ),
        (
            "PUT-environments_versions-image-201",
            Kind::Environment,
            "environments",
        ),
        (
            "PUT-environments_versions-build-201",
            Kind::Environment,
            "environments",
        ),
        ("PUT-data_versions-uri_file-201", Kind::Data, "data"),
        ("PUT-data_versions-uri_folder-201", Kind::Data, "data"),
        ("GET-data_versions-200", Kind::Data, "data"),
    ] {
        let path = name_of(&sample(name), collection).replace("/versions/", "/");
        round(name, kind, &path, &[], &show);
    }
}

#[test]
fn code_lies_in_a_container_of_the_workspace() {
    let mut sample = sample("PUT-codes_versions-201");
    let places = Places::of(&workspace());
    let container = places
        .upload("937972d6-9ffe-64e2-b03b-5d11b347e16c")
        .unwrap();
    let path = name_of(&sample, "codes").replace("/versions/", "/");
    // the recorded address is one of another server's storage, and refused
    let key = DocKey::new(&workspace(), Kind::Code, path.as_str());
    let refused = arm::parse(&key, &sample["request_body"], None).unwrap_err();
    assert!(
        refused.message.contains("not in this server's storage"),
        "{refused}"
    );
    let uri = json!(format!(
        "https://127.0.0.1:18443/storage/zaffre/{container}/src"
    ));
    for side in ["request_body", "response_body"] {
        sample[side]["properties"]["codeUri"] = uri.clone();
    }
    let stored = document(Kind::Code, &path, &sample["request_body"]);
    arm::parse(&key, &sample["request_body"], None).unwrap();
    same(
        &sample["response_body"],
        &view::asset::version(&stored),
        &[],
    );
}

#[test]
fn containers_count_versions() {
    let sample = sample("GET-models-200");
    let body =
        json!({"properties": {"modelUri": "azureml://datastores/workspaceblobstore/paths/m"}});
    let newest = document(Kind::Model, "model-4e0026/1", &body);
    let ours = view::asset::container(&newest, ["1"].into_iter());
    same(&sample["response_body"], &ours, &[]);
    assert_eq!(
        view::asset::next_version(["1", "10", "9", "x"].into_iter()),
        "11"
    );
    assert_eq!(view::asset::next_version([].into_iter()), "1");
}

#[test]
fn batch_endpoints_and_deployments() {
    for name in [
        "PUT-batchEndpoints-201",
        "PUT-batchEndpoints-200",
        "GET-batchEndpoints-200",
    ] {
        let path = name_of(&sample(name), "batchEndpoints");
        let differ = ["provisioningState", "authMode"];
        round(name, Kind::BatchEndpoint, &path, &differ, &|d| {
            view::batch::endpoint(&site(), d)
        });
    }
    for name in [
        "PUT-batchEndpoints_deployments-201",
        "GET-batchEndpoints_deployments-200",
    ] {
        let path = name_of(&sample(name), "batchEndpoints").replace("/deployments/", "/");
        let differ = ["provisioningState", "loggingLevel"];
        round(name, Kind::BatchDeployment, &path, &differ, &|d| {
            view::batch::deployment(&site(), d)
        });
    }
}

#[test]
fn jobs_that_are_accepted() {
    let sample = sample("PUT-jobs-Command-201");
    let path = name_of(&sample, "jobs");
    let show = |d: &Document| {
        let job = view::job::Job::new(d, None);
        view::job::job(&site(), &job)
    };
    round("PUT-jobs-Command-201", Kind::Job, &path, &[], &show);
    let stored = document(Kind::Job, &path, &sample["request_body"]);
    let uri = show(&stored)["properties"]["outputs"]["model"]["uri"].clone();
    assert_eq!(
        uri,
        "azureml://subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/rg1/workspaces/ws1/datastores/workspaceblobstore/paths/azureml/amusing_diamond_d0xyn0f9nr/model/"
    );
}

#[test]
fn a_batch_run_is_a_pipeline_with_one_child() {
    let name = "batchjob-aa4914d0-8949-4ced-a69e-2512be3c537f";
    let body = json!({"properties": {
        "jobType": "Pipeline", "experimentName": "bx-af1a36",
        "tags": {"azureml.batchrun": "true", "azureml.deploymentname": "classifier-xgboost", "azureml.jobtype": "azureml.batchjob"},
        "properties": {"azureml.deploymentname": "classifier-xgboost"},
        "outputs": {"score": {"jobOutputType": "uri_folder", "uri": "azureml://datastores/workspaceblobstore/paths/x/"}},
    }});
    let stored = document(Kind::Job, name, &body);
    let job = view::job::Job::new(&stored, None);
    let address = ["endpoint", "status"];
    let item = view::job::batch_item(&site(), &job);
    same(
        &sample("scoring-batch-POST-201")["response_body"],
        &item,
        &address,
    );
    let list = json!({"value": [item], "nextLink": null});
    same(
        &sample("mferp-batchjobs-deployment")["response_body"],
        &list,
        &address,
    );
    same(
        &sample("mferp-batchjobs-endpoint")["response_body"],
        &list,
        &address,
    );
    let children = view::history::children(&site(), &job, &[]);
    same(
        &sample("history-GET-children-200")["response_body"],
        &children,
        &["status"],
    );
    let whole = view::job::job(&site(), &job);
    let differ = [
        "id",
        "name",
        "displayName",
        "endpoint",
        "status",
        "experimentName",
    ];
    same(
        &sample("GET-jobs-Pipeline-Running-200")["response_body"],
        &whole,
        &differ,
    );
    let step = view::job::child(&site(), &job);
    assert_eq!(
        step["properties"]["tags"],
        json!({}),
        "a step that calls itself a batch run would be searched for children"
    );
    assert_eq!(step["name"], format!("{name}-batchscoring"));
}

#[test]
fn run_history() {
    let path = "amusing_diamond_d0xyn0f9nr";
    let put = sample("PUT-jobs-Command-201");
    let stored = document(Kind::Job, path, &put["request_body"]);
    let job = view::job::Job::new(&stored, None);
    let which = view::history::Which::Job;
    let details = view::history::details(&job, which, "Queued", &[].into());
    same(
        &sample("history-GET-details-200")["response_body"],
        &details,
        &["target"],
    );
    let data = view::history::rundata(&site(), &job, which);
    same(
        &sample("history-POST-rundata-200")["response_body"],
        &data,
        &["status"],
    );
    let patched = arm::job::patched(&put["request_body"], &json!({"hidden": true})).unwrap();
    let hidden = document(Kind::Job, path, &patched);
    let job = view::job::Job::new(&hidden, None);
    let run = view::history::run(&site(), &job, which);
    assert_eq!(run["hidden"], true);
    same(
        &sample("history-PATCH-run-200")["response_body"],
        &run,
        &["status", "hidden"],
    );

    let asked = sample("data-POST-batchGetResolvedUris-200");
    let answer = view::history::resolved_uris(
        &asked["request_body"],
        &|run| (run == path).then(|| job.outputs()),
        &|_, _, _| None,
    );
    assert_eq!(answer.unwrap(), asked["response_body"]);
}

#[test]
fn workspaces_and_datastores() {
    let stored = document(Kind::Workspace, "", &json!({"location": "local"}));
    let own = ["storageAccount", "keyVault", "applicationInsights"];
    let shown = view::workspace::workspace(&site(), &stored);
    same(
        &sample("GET-workspace-list-200")["response_body"],
        &shown,
        &own,
    );
    arm::parse(&stored.key, &shown, Some(&stored)).unwrap();
    let own = ["accountName", "containerName"];
    let store = view::workspace::datastore(&site(), &stored, "WORKSPACEBLOBSTORE").unwrap();
    same(&sample("GET-datastores-200")["response_body"], &store, &own);
    assert_eq!(
        store["properties"]["accountName"],
        "127.0.0.1:18443/storage/zaffre/"
    );
    let list = json!({"value": view::workspace::datastores(&site(), &stored)});
    same(
        &sample("GET-datastores-list-default-200")["response_body"],
        &list,
        &own,
    );
    let sas = view::workspace::sas_query(Time(1_795_919_498_143), "a+/=");
    assert_eq!(
        sas,
        "sv=2024-11-04&se=2026%2D11%2D29T02%3A31%3A38Z&sr=c&sp=racwdl&sig=a%2B%2F%3D"
    );
    let secrets = view::workspace::secrets(&sas);
    same(
        &sample("POST-datastores_listSecrets-200")["response_body"],
        &secrets,
        &[],
    );
    same(
        &sample("GET-discovery-list-200")["response_body"],
        &view::workspace::discovery(&site()),
        &[],
    );
    let places = Places::of(&workspace());
    let container = places
        .upload("26046af3-b1bc-4f3f-adc9-113e815bb8f8")
        .unwrap();
    let upload = view::asset::pending_upload(
        &site(),
        &workspace(),
        &container,
        "26046af3-b1bc-4f3f-adc9-113e815bb8f8",
        &sas,
    );
    let own = ["blobUri", "sasUri", "storageAccountArmId"];
    same(
        &sample("POST-codes_versions_startPendingUpload-200")["response_body"],
        &upload,
        &own,
    );
}

#[test]
fn operations_and_errors() {
    use view::operation::{Progress, operation};
    for (name, progress) in [
        (
            "op-computeOperationsStatus-200-InProgress",
            Progress::Running,
        ),
        (
            "op-computeOperationsStatus-200-Succeeded",
            Progress::Succeeded { ended: Time(0) },
        ),
        ("op-mfeOperationsStatus-200-InProgress", Progress::Running),
        (
            "op-mfeOperationsResults-200-Succeeded",
            Progress::Succeeded { ended: Time(0) },
        ),
    ] {
        let sample = sample(name);
        let path = sample["url"].as_str().unwrap().split('?').next().unwrap();
        same(
            &sample["response_body"],
            &operation(path, Time(0), &progress),
            &["id"],
        );
    }
    let sample = sample("PUT-computes-AmlCompute-400");
    let key = DocKey::new(&workspace(), Kind::Compute, "bad-ebd2c8");
    let refused = arm::parse(&key, &sample["request_body"], None).unwrap_err();
    let (status, body) = view::operation::invalid(&refused);
    assert_eq!(status, 400);
    same(
        &sample["response_body"],
        &body,
        &["code", "message", "target"],
    );
    assert_eq!(
        body["error"]["message"],
        "minNodeCount 5 is above maxNodeCount 1"
    );
    assert_eq!(
        body["error"]["target"],
        "/properties/properties/scaleSettings/minNodeCount"
    );
}

#[test]
fn usages_and_sizes() {
    let usages = view::usage::usages(
        &View::default(),
        "00000000-0000-0000-0000-000000000000",
        "local",
        &workspace(),
    );
    let recorded = sample("op-usages-200-");
    for theirs in recorded["response_body"]["value"].as_array().unwrap() {
        let ours = usages["value"]
            .as_array()
            .unwrap()
            .iter()
            .find(|u| u["name"] == theirs["name"])
            .unwrap();
        same(theirs, ours, &["type"]);
    }
    let families = usages["value"].as_array().unwrap();
    let low = families
        .iter()
        .find(|u| u["name"]["value"] == "Standard DSv2 Family Cluster LowPriority vCPUs")
        .unwrap();
    assert_eq!(low["limit"], -1);
    assert!(
        low["id"]
            .as_str()
            .unwrap()
            .ends_with("/usages/Standard_DSv2_Family_Cluster_LowPriority_vCPUs")
    );
    let sizes = view::usage::sizes_list(Some("amlcompute"));
    assert_eq!(sizes["value"].as_array().unwrap().len(), 151);
    let recorded = sample("op-vmSizes-200-");
    let theirs = &recorded["response_body"]["value"][0];
    let ours = sizes["value"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["name"] == "Standard_DS3_v2")
        .unwrap();
    same(theirs, ours, &["name", "memoryGB", "retailPrice"]);
}
