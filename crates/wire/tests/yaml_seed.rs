//! The mission's own files, byte for byte, and documents recorded from the unmodified SDK.
//!
//! Reads `../shared` relative to the repository, or the folder that `ZAFFRE_SHARED` names.

use serde_json::{Value, json};
use std::path::PathBuf;
use wire::yaml::{AssetKind, Draft, Kind, LoadOptions, Override, Refused, load, render};

fn shared(path: &str) -> Vec<u8> {
    let folder = std::env::var_os("ZAFFRE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let file = folder.join(path);
    std::fs::read(&file).unwrap_or_else(|error| {
        panic!("{}: {error}; these tests need the shared folder beside the repository, or ZAFFRE_SHARED", file.display())
    })
}

fn seed(path: &str, hint: Option<Kind>) -> Result<Draft, Refused> {
    load(
        &shared(&format!("fixtures/seed/{path}")),
        path,
        &options(hint),
    )
}

fn options(hint: Option<Kind>) -> LoadOptions<'static> {
    LoadOptions {
        hint,
        overrides: Vec::new(),
        files: &|path| Err(format!("{path} is not there")),
    }
}

fn recorded(sample: &str) -> Value {
    let sample: Value =
        serde_json::from_slice(&shared(&format!("spec/wire-samples/{sample}"))).unwrap();
    sample["request_body"].clone()
}

fn expanded(mut draft: Draft) -> Value {
    let workspace = model::Workspace::new("00000000-0000-0000-0000-000000000000", "rg1", "ws1");
    draft.expand(&workspace);
    for label in draft.labels.clone() {
        draft.resolve(&label, "1", &workspace);
    }
    draft.body
}

#[test]
fn the_cluster_of_the_article() {
    let draft = seed("low-pri-cluster.yml", None).unwrap();
    assert_eq!(
        (draft.kind, draft.name.as_deref()),
        (Kind::AmlCompute, Some("low-pri-cluster"))
    );
    assert!(draft.locals.is_empty() && draft.warnings.is_empty() && draft.unsupported.is_empty());
    // the SDK sends the same for the same file; its recording has a description and a tag more
    let mut sdk = recorded("PUT-computes-AmlCompute-lowpri-201.json");
    sdk.as_object_mut().unwrap().remove("tags");
    sdk["properties"]
        .as_object_mut()
        .unwrap()
        .remove("description");
    assert_eq!(draft.body, sdk);
}

#[test]
fn the_deployment_that_the_article_calls_endpoint_yml() {
    for hint in [None, Some(Kind::BatchDeployment), Some(Kind::BatchEndpoint)] {
        let draft = seed("endpoint.yml", hint).unwrap();
        assert_eq!(draft.kind, Kind::BatchDeployment);
        assert_eq!(draft.name.as_deref(), Some("classifier-xgboost"));
        assert_eq!(draft.parent.as_deref(), Some("heart-classifier-batch"));
        assert_eq!(
            (
                draft.labels[0].name.as_str(),
                draft.labels[0].label.as_str()
            ),
            ("heart-classifier", "latest")
        );
        // recorded from the SDK for this deployment, but with an environment, a script, variables and a logging level
        let mut sdk = recorded("PUT-batchEndpoints_deployments-201.json");
        let properties = sdk["properties"].as_object_mut().unwrap();
        for key in [
            "environmentId",
            "codeConfiguration",
            "loggingLevel",
            "environmentVariables",
        ] {
            properties.remove(key).unwrap();
        }
        let ws = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg1/providers/Microsoft.MachineLearningServices/workspaces/ws1";
        properties["model"]["assetId"] = json!(format!("{ws}/models/heart-classifier/versions/1"));
        properties["compute"] = json!(format!("{ws}/computes/low-pri-cluster"));
        assert_eq!(expanded(draft), sdk);
    }
}

#[test]
fn the_flat_form_and_the_form_without_type_are_the_same_deployment() {
    let nested = expanded(seed("endpoint.yml", None).unwrap());
    let flat = shared("conformance/seed_yaml/endpoint_flat.yml");
    assert_eq!(
        expanded(load(&flat, "flat", &options(None)).unwrap()),
        nested
    );
    for (file, line) in [
        (&flat, "type: model\n"),
        (&shared("fixtures/seed/endpoint.yml"), "type: model\n"),
    ] {
        let without = String::from_utf8(file.clone()).unwrap().replace(line, "");
        assert_eq!(
            expanded(load(without.as_bytes(), "f", &options(None)).unwrap()),
            nested
        );
        let schemaless: String = without
            .lines()
            .skip(1)
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(
            expanded(load(schemaless.as_bytes(), "f", &options(None)).unwrap()),
            nested
        );
    }
}

#[test]
fn the_job_of_the_articles_with_its_placeholders_filled() {
    for path in ["command-job.yml", "000/command-job.yml"] {
        let text = String::from_utf8(shared(&format!("fixtures/seed/{path}"))).unwrap();
        let filled = text
            .replace("<Kubernetes-compute_target_name>", "k8s-compute")
            .replace("<instance type name>", "cpusmall");
        let draft = load(filled.as_bytes(), path, &options(None)).unwrap();
        assert_eq!(
            (draft.kind, draft.name.as_deref()),
            (Kind::CommandJob, None)
        );
        let [environment] = draft.locals.as_slice() else {
            panic!("{:?}", draft.locals)
        };
        assert_eq!(
            (environment.kind, environment.pointer.as_str()),
            (AssetKind::Environment, "/properties/environmentId")
        );
        assert_eq!(
            environment.body,
            Some(
                json!({"properties": {"isAnonymous": true, "isArchived": false, "image": "library/python:latest"}})
            )
        );
        assert_eq!(
            expanded(draft),
            json!({"properties": {
                "command": "python -c \"print('Hello world!')\"",
                "computeId": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg1/providers/Microsoft.MachineLearningServices/workspaces/ws1/computes/k8s-compute",
                "properties": {}, "isArchived": false, "inputs": {}, "outputs": {}, "tags": {}, "environmentVariables": {},
                "resources": {"instanceType": "cpusmall", "properties": {}}, "jobType": "Command"
            }})
        );
    }
}

#[test]
fn placeholders_that_nobody_filled_are_named() {
    let Err(Refused::Invalid(errors)) = seed("command-job.yml", None) else {
        panic!()
    };
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "command-job.yml:5:10: compute name `<Kubernetes-compute_target_name>` still holds a placeholder <…> of the documentation",
            "command-job.yml:7:18: instance_type `<instance type name>` still holds a placeholder <…> of the documentation",
        ]
    );
}

#[test]
fn online_deployments_are_read_as_their_schema_and_keys_say() {
    for (path, place) in [
        ("online-deployment.yml", "Kubernetes"),
        ("online-deployment-resources.yml", "Kubernetes"),
        ("000/online-deployment.yml", "Managed"),
        ("000/online-deployment-resources.yml", "Kubernetes"),
    ] {
        let bytes = shared(&format!("fixtures/seed/{path}"));
        let placeholders = load(&bytes, path, &options(None)).unwrap_err().to_string();
        assert!(
            placeholders.contains("still holds a placeholder"),
            "{placeholders}"
        );
        let set = |text: &str| Override::set(text).unwrap();
        let options = LoadOptions {
            hint: None,
            overrides: vec![set("endpoint_name=my-ep"), set("instance_type=cpusmall")],
            files: &|_| Ok(b"dependencies: [python=3.11]".to_vec()),
        };
        let draft = load(&bytes, path, &options).unwrap_or_else(|no| panic!("{path}: {no}"));
        assert_eq!(draft.kind, Kind::OnlineDeployment, "{path}");
        let found = &draft.body["properties"]["endpointComputeType"];
        assert_eq!(found, place, "{path}");
    }
}

#[test]
fn instance_types_are_named_and_not_read_here() {
    let Err(Refused::Unsupported { diagnostic, .. }) = seed("my_instance_type.yaml", None) else {
        panic!()
    };
    assert_eq!(
        diagnostic.hint.as_deref(),
        Some("an InstanceType is applied with: zaffre instance-type apply -f")
    );
}

#[test]
fn the_effective_document_of_the_seed() {
    let text = render(&seed("endpoint.yml", None).unwrap());
    assert_eq!(
        text,
        "name: classifier-xgboost
endpoint_name: heart-classifier-batch
type: model
description: A heart condition classifier based on XGBoost
model: azureml:heart-classifier@latest
compute: azureml:low-pri-cluster
resources:
  instance_count: 2
settings:
  max_concurrency_per_instance: 2
  mini_batch_size: 2
  error_threshold: -1  # default: Azure ML YAML reference, batch deployment
  logging_level: info  # default: Azure ML YAML reference, batch deployment
  output_action: append_row
  output_file_name: predictions.csv
  retry_settings:
    max_retries: 3
    timeout: 300
location: local  # default: the location of the workspace
"
    );
}

#[test]
fn overrides_win_over_the_file() {
    let overrides = [
        "settings.mini_batch_size=5",
        "resources.instance_count=1",
        "properties.zaffre.on_capacity_loss=wait",
    ];
    let mut with: Vec<Override> = overrides
        .iter()
        .map(|set| Override::set(set).unwrap())
        .collect();
    with.push(Override::flag("--name", &["name"], "second"));
    let options = LoadOptions {
        overrides: with,
        ..options(None)
    };
    let draft = load(
        &shared("fixtures/seed/endpoint.yml"),
        "endpoint.yml",
        &options,
    )
    .unwrap();
    assert_eq!(draft.name.as_deref(), Some("second"));
    assert_eq!(draft.body["properties"]["miniBatchSize"], 5);
    assert_eq!(draft.body["properties"]["resources"]["instanceCount"], 1);
    assert_eq!(
        draft.body["properties"]["properties"],
        json!({"zaffre.on_capacity_loss": "wait"})
    );
}

/// Files that mean what the SDK was told in Python when its requests were recorded.
#[test]
fn documents_are_those_that_the_sdk_sends() {
    let ws = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg1/providers/Microsoft.MachineLearningServices/workspaces/ws1";
    for (sample, text) in [
        (
            "PUT-models_versions-201.json",
            "name: m\ntype: custom_model\npath: ./m\ndescription: d\ntags: {a: b}\n",
        ),
        (
            "PUT-environments_versions-conda-201.json",
            "name: e\nimage: library/python:latest\nconda_file: {name: x, dependencies: [python=3.11]}\ntags: {q: 1}\n",
        ),
        (
            "PUT-environments_versions-build-201.json",
            "name: e\nbuild: {path: ./ctx}\n",
        ),
        (
            "PUT-data_versions-uri_file-201.json",
            "name: d\ntype: uri_file\npath: ./d.csv\n",
        ),
        (
            "PUT-data_versions-uri_folder-201.json",
            "name: d\ntype: uri_folder\npath: ./m\n",
        ),
        (
            "PUT-batchEndpoints-201.json",
            "$schema: batchEndpoint.schema.json\nname: bep\ndescription: b\ntags: {a: b}\n",
        ),
        (
            "PUT-batchEndpoints_deployments-201.json",
            "name: classifier-xgboost\nendpoint_name: bep\ndescription: A heart condition classifier based on XGBoost\nmodel: azureml:heart-af1a36:1\ncompute: low-pri-af1a36\nenvironment: {image: library/python:latest}\ncode_configuration: {code: ./code, scoring_script: batch_driver.py}\nsettings: {instance_count: 2, max_concurrency_per_instance: 2, mini_batch_size: 2, output_action: append_row, output_file_name: predictions.csv, retry_settings: {max_retries: 3, timeout: 300}, logging_level: info, environment_variables: {Z: 1}}\n",
        ),
        (
            "PUT-jobs-Command-201.json",
            "display_name: train it\ndescription: d\ncommand: python train.py ${{inputs.data}} ${{inputs.lr}} ${{outputs.model}}\ncode: ./src\ncompute: azureml:k8s-5b5a20\nexperiment_name: exp-5b5a20\ninputs: {data: {type: uri_file, path: ./data.csv}, lr: 0.5}\noutputs: {model: {type: uri_folder}}\nenvironment: {image: library/python:latest}\ntags: {k: v}\nenvironment_variables: {FOO: bar}\nresources: {instance_count: 1, instance_type: cpusmall}\n",
        ),
    ] {
        let sdk = recorded(sample);
        let mut draft = load(text.as_bytes(), sample, &options(None))
            .unwrap_or_else(|refused| panic!("{refused}"));
        // what a client uploads gets the address that the recording has
        for local in draft.locals.clone() {
            let address = sdk
                .pointer(&local.pointer)
                .unwrap_or_else(|| panic!("{sample} {}", local.pointer))
                .clone();
            draft.put(&local.pointer, address);
        }
        let mut body = expanded(draft);
        if body.pointer("/properties/model/assetId").is_some() {
            assert_eq!(
                body["properties"]["model"]["assetId"],
                format!("{ws}/models/heart-af1a36/versions/1")
            );
        }
        // the REST enumeration spells it so; the SDK leaves the default away
        if sample.contains("environments_versions") {
            body["properties"].as_object_mut().unwrap().remove("osType");
        }
        assert_eq!(body, sdk, "{sample}");
    }
}
