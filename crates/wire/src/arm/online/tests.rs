//! What an online endpoint and its deployments may say, rule by rule.

use super::*;
use model::{
    Resources,
    instance_type::{Amounts, Unchecked, Written},
};
use serde_json::json;

/// A type of 1 core and 2Gi at most, with one GPU.
fn gpusmall() -> InstanceType {
    let amount = |text: &str| {
        let exact: Quantity = text.parse().unwrap();
        Some(Written::text(text, Some(exact.nano())))
    };
    InstanceType::new(Unchecked {
        name: "gpusmall".into(),
        requests: Amounts {
            cpu: amount("700m"),
            memory: amount("1500Mi"),
            ..Amounts::default()
        },
        limits: Amounts {
            cpu: amount("1"),
            memory: amount("2Gi"),
            devices: [(GPU.into(), Written::number(1))].into(),
        },
        ..Unchecked::default()
    })
    .unwrap()
}

fn judged(resources: Value, model: ModelType) -> Result<Effective, String> {
    let body = json!({ "resources": resources });
    effective(&Field::root(&body).get("resources"), &gpusmall(), model).map_err(|e| e.message)
}

fn custom(requests: Value, limits: Value) -> Result<Effective, String> {
    judged(
        json!({"containerResourceRequests": requests, "containerResourceLimits": limits}),
        ModelType::Custom,
    )
}

#[test]
fn r49_without_resources_the_type_says_all() {
    let type_: &Resources = &gpusmall().limits().clone();
    let got = judged(Value::Null, ModelType::Custom).unwrap();
    assert_eq!((got.cpu_limit, got.memory_limit), (type_.cpu, type_.memory));
    assert_eq!((got.cpu_request, got.gpus), (MilliCpu(700), 1));
}

#[test]
fn r37_the_documented_section_is_taken() {
    let got = custom(
        json!({"cpu": "0.1", "memory": "0.2Gi"}),
        json!({"cpu": "0.2", "memory": "0.5Gi", "gpu": "1"}),
    )
    .unwrap();
    assert_eq!(
        (got.cpu_request, got.cpu_limit),
        (MilliCpu(100), MilliCpu(200))
    );
    assert_eq!(got.memory_limit, Bytes(536_870_912));
    let cpu_only = custom(json!({"cpu": "100m", "memory": "1M"}), Value::Null).unwrap();
    assert_eq!(cpu_only.cpu_limit, MilliCpu(1000), "D-3");
}

#[test]
fn r39_to_r46_each_rule_refuses_by_name() {
    let small = json!({"cpu": "0.1", "memory": "0.2Gi"});
    for (requests, limits, message) in [
        (json!({"memory": "1Gi"}), json!({}), "cpu is required"),
        (json!({"cpu": "1"}), json!({}), "memory is required"),
        (
            json!({"cpu": "0", "memory": "1Gi"}),
            json!({}),
            "cpu is 0, it must be above 0",
        ),
        (
            json!({"cpu": "1", "memory": ""}),
            json!({}),
            "memory is no amount: a quantity is empty",
        ),
        (
            json!({"cpu": "1", "memory": "512Ki"}),
            json!({}),
            "memory request 512Ki is below 1 MB (R-40)",
        ),
        (
            json!({"cpu": "0.1", "memory": "1Gi", "gpu": 1}),
            json!({}),
            "gpu is given under requests, and GPUs are limits only",
        ),
        (
            small.clone(),
            json!({"gpu": 1}),
            "cpu limit is required with a GPU",
        ),
        (
            small.clone(),
            json!({"cpu": "0.2", "gpu": 1}),
            "memory limit is required with a GPU",
        ),
        (
            small.clone(),
            json!({"cpu": "1", "memory": "1Gi", "gpu": "one"}),
            "gpu is one, expected a whole number",
        ),
        (
            small.clone(),
            json!({"cpu": "1", "memory": "1Gi", "gpu": 2}),
            "gpu limit 2 is above the limit 1 of instance type gpusmall",
        ),
        (
            small.clone(),
            json!({"cpu": "1001m"}),
            "cpu limit 1001m is above the limit 1000m of instance type gpusmall",
        ),
        (
            small,
            json!({"memory": "3Gi"}),
            "memory limit 3Gi is above the limit 2147483648 bytes of instance type gpusmall",
        ),
        (
            json!({"cpu": "0.3", "memory": "0.2Gi"}),
            json!({"cpu": "0.2"}),
            "cpu request 0.3 is above the limit 200m",
        ),
        (
            json!({"cpu": "2", "memory": "0.2Gi"}),
            json!({}),
            "cpu request 2 is above the limit 1000m",
        ),
        (
            json!({"cpu": "1", "memory": "1Gi"}),
            json!({"memory": "0.5Gi"}),
            "memory request 1Gi is above the limit of 536870912 bytes",
        ),
    ] {
        assert_eq!(custom(requests, limits), Err(message.to_owned()));
    }
    let equal = custom(
        json!({"cpu": "1", "memory": "2Gi"}),
        json!({"cpu": "1", "memory": "2Gi", "gpu": 1}),
    );
    assert!(equal.is_ok(), "D-2: {equal:?}");
}

#[test]
fn r36_an_mlflow_model_needs_two_cores_and_four_gigabytes() {
    let refused = judged(Value::Null, ModelType::Mlflow).unwrap_err();
    assert!(
        refused.contains("an MLflow model needs at least 2 cores and 4 GB"),
        "{refused}"
    );
}

#[test]
fn an_endpoint_shares_out_all_or_nothing() {
    let of = |properties: Value| {
        endpoint("my-ep", &json!({"properties": properties}), &mut Vec::new())
            .map_err(|e| e.message)
    };
    assert_eq!(
        of(json!({"authMode": "key", "traffic": {"blue": 70, "green": 30}})),
        Ok(())
    );
    for (properties, message) in [
        (
            json!({"traffic": {"blue": 70}}),
            "traffic adds up to 70, it must be 0 or 100",
        ),
        (
            json!({"mirrorTraffic": {"a": 10, "b": 10}}),
            "mirrorTraffic goes to one deployment",
        ),
        (
            json!({"mirrorTraffic": {"a": 60}}),
            "a is 60, at most 50 is allowed",
        ),
        (
            json!({"authMode": "password"}),
            "authMode is `password`, known are Key, AMLToken, AADToken, aml_token, aad_token",
        ),
        (
            json!({"authMode": "AADToken", "compute": "/x"}),
            "authMode AADToken is for managed endpoints only, and compute is given",
        ),
    ] {
        assert_eq!(of(properties), Err(message.to_owned()));
    }
    let body =
        json!({"properties": {"traffic": {"blue": 100, "green": 0}, "mirrorTraffic": {"red": 5}}});
    assert_eq!(deployments_with_traffic(&body), ["blue", "red"]);
}

#[test]
fn a_deployment_is_managed_or_on_kubernetes() {
    let of = |properties: Value| {
        let body = json!({"properties": properties, "sku": {"name": "Default", "capacity": 1}});
        deployment("my-ep", "blue", &body, &mut Vec::new()).map_err(|e| e.message)
    };
    let got =
        of(json!({"endpointComputeType": "kubernetes", "model": "m", "instanceType": ""})).unwrap();
    assert_eq!((got.place, got.instance_type), (Place::Kubernetes, None));
    for (properties, message) in [
        (json!({}), "endpointComputeType is required"),
        (
            json!({"endpointComputeType": "Managed", "instanceType": "cpusmall"}),
            "instanceType `cpusmall` is not a known size",
        ),
        (
            json!({"endpointComputeType": "Managed", "containerResourceRequirements": {}}),
            "containerResourceRequirements is for deployments on Kubernetes only",
        ),
        (
            json!({"endpointComputeType": "Managed", "requestSettings": {"requestTimeout": "PT4M"}}),
            "requestTimeout is above PT3M",
        ),
        (
            json!({"endpointComputeType": "Managed", "scaleSettings": {"scaleType": "TargetUtilization"}}),
            "scaleType TargetUtilization is for deployments on Kubernetes only",
        ),
        (
            json!({"endpointComputeType": "Kubernetes", "scaleSettings": {"scaleType": "TargetUtilization", "minInstances": 3, "maxInstances": 1}}),
            "minInstances 3 is above maxInstances 1",
        ),
        (
            json!({"endpointComputeType": "Kubernetes", "codeConfiguration": {"codeId": "x"}}),
            "scoringScript is required",
        ),
    ] {
        assert_eq!(of(properties), Err(message.to_owned()));
    }
}
