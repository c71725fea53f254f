//! The mission's own files, all the way: YAML → the document a client PUTs → what is declared and what runs.
//!
//! Reads `../shared` beside the repository, or the folder that `ZAFFRE_SHARED` names.

use model::{Declared, DocKey, Document, JobId, Kind, Millis, Tier, Time, Work, Workspace};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};
use wire::{
    arm,
    yaml::{self, Draft, LoadOptions},
};

fn workspace() -> Arc<Workspace> {
    Workspace::new("00000000-0000-0000-0000-000000000000", "default", "default")
}

fn seed(name: &str) -> Draft {
    let folder = std::env::var_os("ZAFFRE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let file = folder.join("fixtures/seed").join(name);
    let bytes = std::fs::read(&file).unwrap_or_else(|error| {
        panic!("{}: {error}; these tests need the shared folder beside the repository, or ZAFFRE_SHARED", file.display())
    });
    drafted(&bytes, name)
}

fn drafted(bytes: &[u8], name: &str) -> Draft {
    let options = LoadOptions {
        hint: None,
        overrides: Vec::new(),
        files: &|path| Err(format!("{path} is not there")),
    };
    let mut draft = yaml::load(bytes, name, &options).unwrap();
    draft.expand(&workspace());
    for label in draft.labels.clone() {
        draft.resolve(&label, "3", &workspace());
    }
    draft
}

fn document(kind: Kind, path: &str, body: &Value) -> Document {
    let key = DocKey::new(&workspace(), kind, path);
    arm::parse(&key, body, None).unwrap_or_else(|e| panic!("{kind:?} {path}: {e:?}"));
    Document {
        key,
        generation: 1,
        json: body.to_string().into(),
        created: Time(0),
        modified: Time(0),
        by: "me".into(),
    }
}

#[test]
fn the_article_runs_as_it_is_written() {
    let cluster = document(
        Kind::Compute,
        "low-pri-cluster",
        &seed("low-pri-cluster.yml").body,
    );
    let Declared::Cluster(spec) = arm::declared(&cluster).unwrap() else {
        panic!()
    };
    assert_eq!(
        (spec.tier, spec.min, spec.max, spec.idle),
        (Tier::LowPriority, 0, 2, Millis::secs(120))
    );
    let draft = seed("endpoint.yml");
    let path = format!("heart-classifier-batch/{}", draft.name.as_deref().unwrap());
    let deployment = document(Kind::BatchDeployment, &path, &draft.body);
    let endpoint = document(
        Kind::BatchEndpoint,
        "heart-classifier-batch",
        &json!({"properties": {"defaults": {"deploymentName": "classifier-xgboost"}}}),
    );
    let model = document(
        Kind::Model,
        "heart-classifier/3",
        &json!({"properties": {"modelType": "mlflow_model", "modelUri": "azureml://datastores/workspaceblobstore/paths/m"}}),
    );
    let shelf: BTreeMap<DocKey, Document> = [cluster, model]
        .into_iter()
        .map(|d| (d.key.clone(), d))
        .collect();
    let invoke = arm::Invoke::parse(&json!({"properties": {"inputData": {
        "UriFolder": {"jobInputType": "UriFolder", "uri": "azureml://datastores/workspaceblobstore/paths/in/"}}}}))
    .unwrap();
    let id = JobId::new(&workspace(), "batchjob-1");
    let (run, _) = arm::batch_run(
        &id,
        &endpoint,
        &deployment,
        &invoke,
        &|key| shelf.get(key).cloned(),
        &|_| None,
    )
    .unwrap();
    let Work::Batch(batch) = &run.work else {
        panic!()
    };
    assert_eq!((run.compute.name(), run.instances), ("low-pri-cluster", 2));
    assert_eq!(
        (
            batch.mini_batch_size,
            batch.workers_per_node,
            batch.max_retries
        ),
        (2, 2, 3)
    );
    assert_eq!(batch.timeout, Millis::secs(300));
}

#[test]
fn what_yaml_makes_is_accepted() {
    for (kind, path, text) in [
        (
            Kind::BatchEndpoint,
            "heart-batch",
            "$schema: https://azuremlschemas.azureedge.net/latest/batchEndpoint.schema.json\nname: heart-batch\nauth_mode: aad_token\n",
        ),
        (
            Kind::BatchDeployment,
            "heart-batch/dep",
            "name: dep\nendpoint_name: heart-batch\nmodel: azureml:m:1\ncompute: azureml:cpu-cluster\nmini_batch_size: 4\nlogging_level: debug\nerror_threshold: 0\noutput_action: summary_only\nenvironment_variables:\n  A: '1.10'\n",
        ),
        (
            Kind::Job,
            "job1",
            "type: command\nname: job1\ncommand: python t.py ${{inputs.x}} ${{outputs.y}}\ncompute: azureml:cpu-cluster\nenvironment: azureml:e:1\nresources:\n  instance_count: 2\ndistribution:\n  type: pytorch\nlimits:\n  timeout: 60\ninputs:\n  x:\n    type: uri_folder\n    path: azureml:d:1\n    mode: download\noutputs:\n  y:\n    type: uri_folder\n",
        ),
        (
            Kind::Environment,
            "e/1",
            "$schema: https://azuremlschemas.azureedge.net/latest/environment.schema.json\nname: e\nversion: '1'\nimage: python:3.12\n",
        ),
        (
            Kind::Model,
            "m/1",
            "$schema: https://azuremlschemas.azureedge.net/latest/model.schema.json\nname: m\nversion: '1'\ntype: mlflow_model\npath: azureml://datastores/workspaceblobstore/paths/m\n",
        ),
        (
            Kind::Data,
            "d/1",
            "$schema: https://azuremlschemas.azureedge.net/latest/data.schema.json\nname: d\nversion: '1'\ntype: uri_folder\npath: azureml://datastores/workspaceblobstore/paths/d\n",
        ),
    ] {
        document(kind, path, &drafted(text.as_bytes(), "file.yml").body);
    }
}
