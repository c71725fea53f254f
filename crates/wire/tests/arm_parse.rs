//! What a PUT may hold: every rule, with the place and the value that its refusal names.

#[path = "arm_parse/computes.rs"]
mod computes;

use model::{
    Declared, DocKey, Document, Kind, Millis, Quotas, SelectorMode, Tier, Time, View, Workspace,
    kubernetes::PullPolicy,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::arm::{self, Invalid, Parsed};

fn workspace() -> Arc<Workspace> {
    Workspace::new("s", "g", "w")
}

fn put(kind: Kind, path: &str, body: &Value) -> Result<Parsed, Invalid> {
    arm::parse(&DocKey::new(&workspace(), kind, path), body, None)
}

fn document(kind: Kind, path: &str, body: &Value) -> Document {
    Document {
        key: DocKey::new(&workspace(), kind, path),
        generation: 1,
        json: body.to_string().into(),
        created: Time(0),
        modified: Time(0),
        by: "me".into(),
    }
}

/// `body` with the value at a JSON pointer replaced; the parent is made when it is missing.
fn with(body: &Value, pointer: &str, value: Value) -> Value {
    let mut out = body.clone();
    let mut at = &mut out;
    for part in pointer.trim_start_matches('/').split('/') {
        if at.get(part).is_none() {
            at[part] = json!({});
        }
        at = at.get_mut(part).unwrap();
    }
    *at = value;
    out
}

fn cluster() -> Value {
    json!({"location": "local", "properties": {"computeType": "AmlCompute", "properties": {
        "vmSize": "STANDARD_DS3_v2", "vmPriority": "Lowpriority",
        "scaleSettings": {"maxNodeCount": 2, "minNodeCount": 0, "nodeIdleTimeBeforeScaleDown": "PT2M"},
        "osType": "linux", "enableNodePublicIp": true}}})
}

fn deployment() -> Value {
    json!({"properties": {
        "model": {"referenceType": "Id", "assetId": "azureml:heart:1"},
        "compute": "azureml:low-pri-cluster",
        "environmentId": "azureml:env:1",
        "codeConfiguration": {"codeId": "azureml:code:1", "scoringScript": ".\\src\\score.py"},
    }})
}

fn job() -> Value {
    json!({"properties": {"jobType": "Command", "command": "python t.py ${{inputs.a}} ${{outputs.b}}",
        "environmentId": "azureml:env:1", "computeId": "c1",
        "inputs": {"a": {"jobInputType": "literal", "value": "0.5"}},
        "outputs": {"b": {"jobOutputType": "uri_folder"}}}})
}

/// Each case: place to change, value, and what the refusal says.
fn refuses(kind: Kind, path: &str, good: &Value, cases: &[(&str, Value, &str)]) {
    put(kind, path, good).unwrap();
    for (pointer, value, says) in cases {
        let body = with(good, pointer, value.clone());
        let refused = put(kind, path, &body).expect_err(&format!("{pointer} = {value}"));
        assert!(
            refused.message.contains(says),
            "{pointer} = {value}: {}",
            refused.message
        );
        assert!(refused.target.starts_with('/'), "{refused:?}");
        assert_eq!(refused.status, 400);
    }
}

#[test]
fn assets_lie_in_the_workspace_and_do_not_move() {
    let model = json!({"properties": {"modelUri": "azureml://datastores/workspaceblobstore/paths/m", "modelType": "MLFLOW_MODEL"}});
    refuses(
        Kind::Model,
        "m/1",
        &model,
        &[
            (
                "/properties/modelUri",
                json!("/etc/passwd"),
                "the server never opens a path that a client sent",
            ),
            (
                "/properties/modelUri",
                json!("azureml:m:1"),
                "an asset lies at a path",
            ),
            ("/properties/modelUri", json!(null), "modelUri is required"),
            (
                "/properties/modelType",
                json!("onnx"),
                "known are custom_model, mlflow_model, triton_model",
            ),
            (
                "/properties/tags",
                json!({"a": []}),
                "a is a list, expected a text",
            ),
        ],
    );
    assert!(
        put(Kind::Model, "a b/1", &model)
            .unwrap_err()
            .message
            .contains("`a b` holds")
    );
    assert!(
        put(Kind::Model, "m/a b", &model)
            .unwrap_err()
            .message
            .contains("holds")
    );
    let before = document(Kind::Model, "m/1", &model);
    let moved = with(
        &model,
        "/properties/modelUri",
        json!("azureml://datastores/workspaceblobstore/paths/other"),
    );
    let refused = arm::parse(&before.key, &moved, Some(&before)).unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        ("UserError", "Asset paths cannot be updated.")
    );
    let tagged = with(&model, "/properties/tags", json!({"a": "b"}));
    arm::parse(&before.key, &tagged, Some(&before)).unwrap();
    let environment =
        json!({"properties": {"image": "python:3.12", "condaFile": "dependencies: []"}});
    refuses(
        Kind::Environment,
        "e/1",
        &environment,
        &[
            ("/properties", json!({}), "need image, condaFile or build"),
            (
                "/properties/build",
                json!({"contextUri": "x"}),
                "exclude each other",
            ),
            (
                "/properties/osType",
                json!("windows"),
                "nodes here run Linux",
            ),
            (
                "/properties/condaFile",
                json!("x".repeat((1 << 20) + 1)),
                "allowed are 1048576",
            ),
        ],
    );
    let before = document(Kind::Environment, "e/1", &environment);
    arm::parse(&before.key, &environment, Some(&before)).unwrap();
    let other = with(&environment, "/properties/image", json!("python:3.13"));
    let refused = arm::parse(&before.key, &other, Some(&before)).unwrap_err();
    assert_eq!(refused.target, "/properties/image");
    let data = json!({"properties": {"dataUri": "azureml://jobs/j/outputs/o/paths/x", "dataType": "uri_file"}});
    refuses(
        Kind::Data,
        "d/1",
        &data,
        &[
            (
                "/properties/dataUri",
                json!("https://example.org/x.csv"),
                "not in this server's storage",
            ),
            (
                "/properties/dataType",
                json!("table"),
                "known are uri_file, uri_folder, mltable",
            ),
        ],
    );
}

#[test]
fn a_deployment_gets_every_default() {
    let mut warnings = Vec::new();
    let d = arm::batch::deployment("dep", &deployment(), &mut warnings).unwrap();
    assert_eq!(
        (d.mini_batch_size, d.workers, d.instances, d.max_retries),
        (10, 1, 1, 3)
    );
    assert_eq!(
        (d.timeout, d.error_threshold, d.logging),
        (Millis::secs(30), -1, "info")
    );
    assert_eq!(
        (d.file.as_str(), d.action.word()),
        ("predictions.csv", "AppendRow")
    );
    assert_eq!(
        d.script.as_deref(),
        Some("src/score.py"),
        "both separators (B1#22)"
    );
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn a_deployment_keeps_its_rules() {
    let p = |key: &str| format!("/properties/{key}");
    let cases = [
        (
            p("miniBatchSize"),
            json!(0),
            "miniBatchSize is 0, at least 1 is needed",
        ),
        (
            p("miniBatchSize"),
            json!(-1),
            "miniBatchSize is -1, at least 1 is needed",
        ),
        (
            p("miniBatchSize"),
            json!(4_294_967_296_u64),
            "at most 2147483647",
        ),
        (
            p("maxConcurrencyPerInstance"),
            json!(0),
            "at least 1 is needed",
        ),
        (
            p("resources/instanceCount"),
            json!(0),
            "at least 1 is needed",
        ),
        (p("resources/instanceType"), json!("Standard_D2_v2"), "R-53"),
        (
            p("retrySettings/maxRetries"),
            json!(-1),
            "maxRetries is -1, at least 0 is needed",
        ),
        (
            p("retrySettings/timeout"),
            json!("PT0S"),
            "no call of run() ends in no time",
        ),
        (
            p("retrySettings/timeout"),
            json!(300),
            "timeout is the number 300, expected a text",
        ),
        (
            p("errorThreshold"),
            json!(-2),
            "errorThreshold is -2, at least -1 is needed",
        ),
        (p("outputAction"), json!("merge"), "known are AppendRow"),
        (
            p("outputFileName"),
            json!("../x"),
            "is not the name of a file",
        ),
        (
            p("outputFileName"),
            json!(".."),
            "is not the name of a file",
        ),
        (
            p("loggingLevel"),
            json!("trace"),
            "known are Info, Warning, Debug",
        ),
        (
            p("codeConfiguration/scoringScript"),
            json!("../x.py"),
            "is not a path inside the code folder",
        ),
        (
            p("codeConfiguration/scoringScript"),
            json!("/x.py"),
            "is not a path inside the code folder",
        ),
        (
            p("codeConfiguration/codeId"),
            json!(null),
            "codeId is required: src/score.py lies in it",
        ),
        (p("model"), json!(null), "model is required"),
        (p("compute"), json!(null), "compute is required"),
        (
            p("environmentVariables"),
            json!({"A=B": "x"}),
            "is no name of an environment variable",
        ),
        (
            p("environmentVariables"),
            json!({"A": {}}),
            "expected a text",
        ),
        (
            p("deploymentConfiguration"),
            json!({"deploymentConfigurationType": "PipelineComponent"}),
            "pipeline deployments",
        ),
        (
            p("properties"),
            json!({"zaffre.on_capacity_los": "wait"}),
            "zaffre.on_capacity_los is not known",
        ),
        (
            p("properties"),
            json!({"zaffre.on_capacity_loss": "hope"}),
            "known are cancel, wait",
        ),
        (
            p("properties"),
            json!({"zaffre.append_row_format": "tsv"}),
            "known are csv, azure",
        ),
        (
            p("properties"),
            json!({"zaffre.append_row_header": "maybe"}),
            "known are true, false",
        ),
        (
            p("properties"),
            json!({"zaffre.max_preemptions": "-1"}),
            "expected a whole number from 0",
        ),
    ];
    let cases: Vec<(&str, Value, &str)> = cases
        .iter()
        .map(|(p, v, s)| (p.as_str(), v.clone(), *s))
        .collect();
    refuses(
        Kind::BatchDeployment,
        "heart-batch/dep",
        &deployment(),
        &cases,
    );
    assert!(put(Kind::BatchDeployment, "heart-batch/a_b", &deployment()).is_err());
    let zero = with(
        &deployment(),
        "/properties/retrySettings/maxRetries",
        json!(0),
    );
    assert_eq!(
        arm::batch::deployment("dep", &zero, &mut Vec::new())
            .unwrap()
            .max_retries,
        0,
        "one attempt"
    );
}

#[test]
fn texts_that_are_none_are_converted_and_named() {
    // what the SDK sends for true, yes, 1, 1.10, 010 and null (B1#12)
    let body = with(
        &deployment(),
        "/properties/environmentVariables",
        json!({"A": true, "B": 1, "C": 1.1, "D": null, "E": "1.10"}),
    );
    let mut warnings = Vec::new();
    let d = arm::batch::deployment("dep", &body, &mut warnings).unwrap();
    let values: Vec<(&str, &str)> = d.variables.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(
        values,
        [
            ("A", "true"),
            ("B", "1"),
            ("C", "1.1"),
            ("D", ""),
            ("E", "1.10")
        ]
    );
    assert_eq!(warnings.len(), 4);
    assert_eq!(
        warnings[2],
        "/properties/environmentVariables/C is the number 1.1 and became the text `1.1`; quote it to keep what was written"
    );
}

#[test]
fn a_command_job_keeps_its_rules() {
    let p = |key: &str| format!("/properties/{key}");
    let cases = [
        (
            p("jobType"),
            json!("AutoML"),
            "is AutoML, which is not built yet",
        ),
        (
            p("computeId"),
            json!(null),
            "serverless compute is not built yet",
        ),
        (
            p("computeId"),
            json!("local"),
            "is local, which is not built yet",
        ),
        (p("environmentId"), json!(null), "environmentId is required"),
        (p("command"), json!(""), "command is empty"),
        (
            p("command"),
            json!("x ${{inputs.aa}}"),
            "has ${{inputs.aa}}, and the job has no input `aa`",
        ),
        (
            p("command"),
            json!("x ${{search_space.lr}}"),
            "known are ${{inputs.NAME}}",
        ),
        (p("command"), json!("x ${{inputs.a"), "without its }}"),
        (
            p("command"),
            json!("x".repeat(131_072)),
            "allowed are 131071",
        ),
        (
            p("resources/instanceCount"),
            json!(0),
            "at least 1 is needed",
        ),
        (
            p("resources/shmSize"),
            json!("2t"),
            "expected a number above 0 and b, k, m or g",
        ),
        (
            p("limits"),
            json!({"jobLimitsType": "Command", "timeout": "PT0S"}),
            "no job ends in no time",
        ),
        (p("limits"), json!({"timeout": "-PT1S"}), "not negative"),
        (
            p("inputs"),
            json!({"a": {"jobInputType": "literal"}}),
            "value is required",
        ),
        (
            p("inputs"),
            json!({"a": {"jobInputType": "uri_file"}}),
            "uri is required",
        ),
        (
            p("inputs"),
            json!({"a": {"jobInputType": "uri_file", "uri": "u", "mode": "EvalMount"}}),
            "of an input is EvalMount, which is not built yet; ReadOnlyMount, Download and Direct are",
        ),
        (
            p("inputs"),
            json!({"../a": {"jobInputType": "literal", "value": "x"}}),
            "is no name",
        ),
        (
            p("outputs"),
            json!({"b": {"jobOutputType": "uri_folder", "assetName": "a b"}}),
            "data name `a b` holds ` `",
        ),
        (
            p("outputs"),
            json!({"b": {"jobOutputType": "uri_folder", "assetVersion": "1"}}),
            "a version belongs to a name",
        ),
        (
            p("outputs"),
            json!({"default": {"jobOutputType": "uri_folder"}}),
            "the run's own artifacts",
        ),
        (
            p("distribution"),
            json!({"distributionType": "TensorFlow", "processCountPerInstance": 2}),
            "is 2, and a node of TensorFlow has one process",
        ),
        (
            p("distribution"),
            json!({"distributionType": "Ray"}),
            "Ray, which is not built yet",
        ),
        (
            p("services"),
            json!({"my_jupyter": {"jobServiceType": "JupyterLab"}}),
            "interactive service",
        ),
    ];
    let cases: Vec<(&str, Value, &str)> = cases
        .iter()
        .map(|(p, v, s)| (p.as_str(), v.clone(), *s))
        .collect();
    refuses(Kind::Job, "job_1", &job(), &cases);
    let near = put(
        Kind::Job,
        "job_1",
        &with(&job(), "/properties/command", json!("${{inputs.aa}}")),
    )
    .unwrap_err();
    assert_eq!(near.hint.as_deref(), Some("did you mean a"));
    assert!(put(Kind::Job, "a/b", &job()).is_err());
    let warned = with(
        &job(),
        "/properties/queueSettings",
        json!({"jobTier": "Spot"}),
    );
    assert_eq!(
        put(Kind::Job, "job_1", &warned).unwrap().warnings,
        ["queueSettings has no effect here"]
    );
}

#[test]
fn quotas_are_set_kept_and_reset() {
    let (w, view) = (workspace(), View::default());
    let id = |name: &str| {
        format!(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w/quotas/{name}"
        )
    };
    let body = json!({"value": [
        {"id": id("standardDSv2Family"), "limit": 48, "unit": "Count"},
        {"id": id("Standard_DSv2"), "limit": 1},
        {"id": id("TotalLowPriorityCores"), "limit": 8},
        {"id": id("standardDSv2Family"), "limit": 101},
    ]});
    let done = arm::quota::update(&w, &view, None, &body).unwrap();
    let status: Vec<&str> = done
        .results
        .iter()
        .map(|r| r["status"].as_str().unwrap())
        .collect();
    assert_eq!(
        status,
        [
            "Success",
            "InvalidVMFamilyName",
            "Success",
            "InvalidQuotaExceedsSubscriptionLimit"
        ]
    );
    assert_eq!(done.quotas.low_priority, 8);
    assert_eq!(
        done.quotas.families.get(&"STANDARDDSV2FAMILY".into()),
        Some(&48)
    );
    let stored = document(Kind::Quota, "local", &done.document);
    assert_eq!(
        arm::declared(&stored).unwrap(),
        Declared::Quotas(Arc::new(done.quotas))
    );
    let back = json!({"value": [{"id": id("TotalLowPriorityCores"), "limit": -1}, {"id": id("Standard DSv2 Family Cluster Dedicated vCPUs"), "limit": -1}]});
    let done = arm::quota::update(&w, &view, Some(&done.document), &back).unwrap();
    assert_eq!(done.quotas, Quotas::default());
    for bad in [
        json!({}),
        json!({"value": []}),
        json!({"value": [{"id": "x", "limit": -2}]}),
        json!({"value": [{"id": "x"}]}),
    ] {
        assert!(arm::quota::update(&w, &view, None, &bad).is_err(), "{bad}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        prop_oneof![
            Just("azureml:a:1"),
            Just("PT2M"),
            Just("${{inputs.a}}"),
            Just("..")
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            "[a-z]{1,3}",
            Just("properties".to_owned()),
            Just("value".to_owned()),
            Just("uri".to_owned())
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|m| json!(m)),
        ]
    })
}

/// Every place of a document.
fn places(value: &Value, at: String, out: &mut Vec<String>) {
    if let Value::Object(map) = value {
        for (key, value) in map {
            let here = format!("{at}/{key}");
            out.push(here.clone());
            places(value, here, out);
        }
    }
}

const KINDS: [(Kind, &str); 11] = [
    (Kind::Workspace, ""),
    (Kind::Compute, "abc"),
    (Kind::Datastore, "d"),
    (Kind::Code, "c/1"),
    (Kind::Model, "m/1"),
    (Kind::Environment, "e/1"),
    (Kind::Data, "d/1"),
    (Kind::BatchEndpoint, "abc"),
    (Kind::BatchDeployment, "abc/def"),
    (Kind::Job, "j"),
    (Kind::Quota, "local"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_body_panics(body in any_json(), path in "\\PC{0,10}") {
        for (kind, legal) in KINDS {
            for path in [legal, path.as_str()] {
                let _ = put(kind, path, &body);
                let stored = document(kind, path, &body);
                let _ = arm::declared(&stored);
                let _ = arm::parse(&stored.key, &body, Some(&stored));
            }
        }
        let _ = arm::Invoke::parse(&body);
        let _ = arm::job::patched(&body, &body);
        let _ = arm::quota::update(&workspace(), &View::default(), Some(&body), &body);
    }

    #[test]
    fn no_change_of_a_good_body_panics(change in any_json(), which in any::<prop::sample::Index>()) {
        for (kind, path, good) in [(Kind::Compute, "abc", cluster()), (Kind::BatchDeployment, "abc/def", deployment()), (Kind::Job, "j", job())] {
            let mut all = Vec::new();
            places(&good, String::new(), &mut all);
            let place = which.get(&all);
            let body = with(&good, place, change.clone());
            if let Err(refused) = put(kind, path, &body) {
                prop_assert!(!refused.message.is_empty() && refused.target.starts_with('/'));
            }
        }
    }
}

#[test]
fn a_stored_instance_type_is_read_again_as_what_it_was() {
    let object = json!({
        "apiVersion": "amlarc.azureml.com/v1alpha1", "kind": "InstanceType",
        "metadata": {"name": "a", "uid": "u", "generation": 3, "creationTimestamp": "2026-11-30T00:00:00Z",
            "managedFields": [{"manager": "m", "operation": "Update"}]},
        "spec": {"resources": {
            "requests": {"cpu": "700m", "memory": "0.5Gi"}, "limits": {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 1}}},
    });
    let stored = Document {
        key: DocKey::instance_type("a"),
        ..document(Kind::InstanceType, "a", &object)
    };
    let Ok(Declared::InstanceType(read)) = arm::declared(&stored) else {
        panic!("it is read as something else");
    };
    assert_eq!((read.name(), read.requests().cpu.0), ("a", 700));
    let broken = document(
        Kind::InstanceType,
        "a",
        &with(&object, "/spec/resources/limits/cpu", json!(0)),
    );
    assert!(
        arm::declared(&broken)
            .unwrap_err()
            .message
            .contains("spec.resources.limits.cpu")
    );
}
