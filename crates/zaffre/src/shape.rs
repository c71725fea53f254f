//! ARM documents as `az ml` prints them: snake_case, the properties at the top, times in seconds, references with `azureml:`.
//!
//! Z1 `editable` is what a file of the kind may hold, so that an update is the shown document, changed and read again as a file;
//! Z2 names that users chose (tags, properties, variables, inputs) are never respelled.

use serde_json::{Map, Value, json};

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A compute.
    Compute,
    /// A job.
    Job,
    /// A batch endpoint.
    BatchEndpoint,
    /// A batch deployment.
    BatchDeployment,
    /// A version of a model.
    Model,
    /// A version of an environment.
    Environment,
    /// A version of data.
    Data,
    /// An online endpoint.
    OnlineEndpoint,
    /// A version of a component.
    Component,
    /// A datastore.
    Datastore,
    /// A workspace.
    Workspace,
}

/// Keys whose content is the user's own (Z2).
const FREE: [&str; 5] = [
    "tags",
    "properties",
    "environmentVariables",
    "flavors",
    "metadata",
];
/// Keys whose first level of names is the user's own.
const NAMED: [&str; 2] = ["inputs", "outputs"];

/// `camelCase` to `snake_case`.
pub fn snake(text: &str) -> String {
    if text == "vCPUs" {
        return "v_cpus".to_owned(); // a plural of capitals, which no rule of words takes apart
    }
    let mut out = String::with_capacity(text.len() + 4);
    let letters: Vec<char> = text.chars().collect();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| letters[at]);
        let starts = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase()
                    || before.is_ascii_digit()
                    || (before.is_ascii_uppercase()
                        && letters.get(at + 1).is_some_and(char::is_ascii_lowercase))
            });
        if starts {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

fn respell(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(respell).collect(),
        Value::Object(fields) => {
            let respelled = fields.iter().map(|(key, field)| {
                let field = if FREE.contains(&key.as_str()) {
                    field.clone()
                } else if NAMED.contains(&key.as_str()) {
                    named(field)
                } else {
                    respell(field)
                };
                (snake(key), field)
            });
            Value::Object(respelled.collect())
        }
        Value::String(text) if text.starts_with("/subscriptions/") => {
            json!(format!("azureml:{text}"))
        }
        other => other.clone(),
    }
}

fn named(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, field)| (name.clone(), respell(field)))
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Seconds of an ISO 8601 duration such as `PT2M`.
pub fn seconds(text: &str) -> Option<i64> {
    let span: jiff::Span = text.parse().ok()?;
    let total = span
        .total((
            jiff::Unit::Second,
            jiff::SpanRelativeTo::days_are_24_hours(),
        ))
        .ok()?;
    format!("{total:.0}").parse().ok()
}

fn in_seconds(value: &Value) -> Value {
    value
        .as_str()
        .and_then(seconds)
        .map_or(Value::Null, Value::from)
}

/// An enum's value: `LowPriority` is `low_priority`.
fn word(value: &Value) -> Value {
    value
        .as_str()
        .map_or(Value::Null, |text| Value::from(snake(text)))
}

fn reference(value: &Value) -> Value {
    respell(value)
}

/// Puts what is there; absent stays absent.
fn put(out: &mut Map<String, Value>, key: &str, value: Value) {
    let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
    if !empty {
        out.insert(key.to_owned(), value);
    }
}

/// The name part of an ARM id after `/kind/`.
fn segment<'a>(id: &'a str, kind: &str) -> Option<&'a str> {
    let mut parts = id.split('/');
    parts.find(|part| part.eq_ignore_ascii_case(kind))?;
    parts.next()
}

/// What a file of this kind would say (Z1).
pub fn editable(shape: Shape, arm: &Value) -> Value {
    let mut out = Map::new();
    let id = arm["id"].as_str().unwrap_or_default();
    let p = &arm["properties"];
    match shape {
        Shape::Compute => compute(&mut out, arm),
        Shape::BatchEndpoint => {
            put(&mut out, "name", arm["name"].clone());
            put(&mut out, "description", p["description"].clone());
            put(&mut out, "auth_mode", word(&p["authMode"]));
            put(&mut out, "defaults", respell(&p["defaults"]));
            put(&mut out, "properties", p["properties"].clone());
        }
        Shape::OnlineEndpoint => {
            put(&mut out, "name", arm["name"].clone());
            put(&mut out, "description", p["description"].clone());
            put(&mut out, "auth_mode", word(&p["authMode"]));
            put(&mut out, "compute", reference(&p["compute"]));
            put(&mut out, "traffic", p["traffic"].clone());
            put(&mut out, "mirror_traffic", p["mirrorTraffic"].clone());
            put(&mut out, "properties", p["properties"].clone());
        }
        Shape::BatchDeployment => deployment(&mut out, arm, id),
        Shape::Model | Shape::Environment | Shape::Data => asset(&mut out, shape, arm, id),
        Shape::Component => component(&mut out, arm, id),
        Shape::Job | Shape::Datastore | Shape::Workspace => {}
    }
    put(
        &mut out,
        "tags",
        arm.get("tags")
            .filter(|t| !t.is_null())
            .unwrap_or(&p["tags"])
            .clone(),
    );
    Value::Object(out)
}

fn compute(out: &mut Map<String, Value>, arm: &Value) {
    let p = &arm["properties"];
    let inner = &p["properties"];
    let scale = &inner["scaleSettings"];
    put(out, "name", arm["name"].clone());
    put(
        out,
        "type",
        json!(
            p["computeType"]
                .as_str()
                .unwrap_or_default()
                .to_ascii_lowercase()
        ),
    );
    put(out, "description", p["description"].clone());
    if p["computeType"] == "Kubernetes" {
        let mut bag = inner.as_object().cloned().unwrap_or_default();
        let namespace = bag.remove("namespace");
        put(out, "namespace", namespace.unwrap_or_default());
        put(out, "resource_id", p["resourceId"].clone());
        put(out, "properties", Value::Object(bag));
        put(out, "location", arm["location"].clone());
        return;
    }
    if p["computeType"] != "AmlCompute" {
        for (key, at) in [
            ("size", "/properties/vmSize"),
            ("state", "/properties/state"),
            (
                "idle_time_before_shutdown",
                "/properties/idleTimeBeforeShutdown",
            ),
            ("resource_id", "/resourceId"),
        ] {
            put(out, key, p.pointer(at).cloned().unwrap_or_default());
        }
        put(out, "location", arm["location"].clone());
        return;
    }
    put(out, "size", inner["vmSize"].clone());
    put(out, "tier", word(&inner["vmPriority"]));
    put(out, "min_instances", scale["minNodeCount"].clone());
    put(out, "max_instances", scale["maxNodeCount"].clone());
    put(
        out,
        "idle_time_before_scale_down",
        in_seconds(&scale["nodeIdleTimeBeforeScaleDown"]),
    );
    put(out, "location", arm["location"].clone());
}

fn deployment(out: &mut Map<String, Value>, arm: &Value, id: &str) {
    let p = &arm["properties"];
    put(out, "name", arm["name"].clone());
    put(
        out,
        "endpoint_name",
        segment(id, "batchEndpoints").map_or(Value::Null, Value::from),
    );
    put(out, "type", json!("model"));
    put(out, "description", p["description"].clone());
    put(out, "model", reference(&p["model"]["assetId"]));
    let code = &p["codeConfiguration"];
    if !code.is_null() {
        let mut configuration = Map::new();
        put(&mut configuration, "code", reference(&code["codeId"]));
        put(
            &mut configuration,
            "scoring_script",
            code["scoringScript"].clone(),
        );
        put(out, "code_configuration", Value::Object(configuration));
    }
    put(out, "environment", reference(&p["environmentId"]));
    put(out, "compute", reference(&p["compute"]));
    put(
        out,
        "resources",
        json!({"instance_count": p.pointer("/resources/instanceCount").cloned().unwrap_or(json!(1))}),
    );
    let mut settings = Map::new();
    put(
        &mut settings,
        "max_concurrency_per_instance",
        p["maxConcurrencyPerInstance"].clone(),
    );
    put(&mut settings, "mini_batch_size", p["miniBatchSize"].clone());
    put(&mut settings, "output_action", word(&p["outputAction"]));
    put(
        &mut settings,
        "output_file_name",
        p["outputFileName"].clone(),
    );
    let mut retry = Map::new();
    put(
        &mut retry,
        "max_retries",
        p.pointer("/retrySettings/maxRetries")
            .cloned()
            .unwrap_or_default(),
    );
    put(
        &mut retry,
        "timeout",
        in_seconds(p.pointer("/retrySettings/timeout").unwrap_or(&Value::Null)),
    );
    put(&mut settings, "retry_settings", Value::Object(retry));
    put(
        &mut settings,
        "error_threshold",
        p["errorThreshold"].clone(),
    );
    put(&mut settings, "logging_level", word(&p["loggingLevel"]));
    put(
        &mut settings,
        "environment_variables",
        p["environmentVariables"].clone(),
    );
    put(out, "settings", Value::Object(settings));
    put(out, "properties", p["properties"].clone());
}

/// A component's spec is its file already.
fn component(out: &mut Map<String, Value>, arm: &Value, id: &str) {
    let p = &arm["properties"];
    for (key, value) in p["componentSpec"].as_object().into_iter().flatten() {
        if !["_source", "$schema"].contains(&key.as_str()) {
            put(out, key, value.clone());
        }
    }
    for (key, part) in [("name", "components"), ("version", "versions")] {
        put(out, key, segment(id, part).map_or(Value::Null, Value::from));
    }
    put(out, "description", p["description"].clone());
    put(out, "properties", p["properties"].clone());
}

fn asset(out: &mut Map<String, Value>, shape: Shape, arm: &Value, id: &str) {
    let p = &arm["properties"];
    let kind = match shape {
        Shape::Environment => "environments",
        Shape::Data => "data",
        _ => "models",
    };
    put(
        out,
        "name",
        segment(id, kind).map_or(Value::Null, Value::from),
    );
    put(
        out,
        "version",
        segment(id, "versions").map_or(Value::Null, Value::from),
    );
    match shape {
        Shape::Environment => {
            put(out, "image", p["image"].clone());
            if let Some(text) = p["condaFile"].as_str() {
                // The file is text on the wire; in a document it is an object, as the SDK shows it.
                put(
                    out,
                    "conda_file",
                    serde_saphyr::from_str::<Value>(text).unwrap_or_else(|_| json!(text)),
                );
            }
            put(out, "build", respell(&p["build"]));
            put(out, "os_type", word(&p["osType"]));
            put(out, "inference_config", respell(&p["inferenceConfig"]));
        }
        Shape::Data => {
            put(out, "type", word(&p["dataType"]));
            put(out, "path", p["dataUri"].clone());
        }
        _ => {
            put(out, "type", model_type(&p["modelType"]));
            put(out, "path", p["modelUri"].clone());
            put(out, "flavors", p["flavors"].clone());
            put(out, "stage", p["stage"].clone());
            put(out, "job_name", p["jobName"].clone());
        }
    }
    put(out, "description", p["description"].clone());
    put(out, "properties", p["properties"].clone());
}

/// `MLFlowModel` has a spelling of its own.
fn model_type(value: &Value) -> Value {
    match value.as_str() {
        Some(text)
            if text.eq_ignore_ascii_case("mlflowmodel")
                || text.eq_ignore_ascii_case("mlflow_model") =>
        {
            json!("mlflow_model")
        }
        _ => word(value),
    }
}

/// The document as shown: what is editable, then what the server says.
pub fn shown(shape: Shape, arm: &Value) -> Value {
    let p = &arm["properties"];
    let mut out = match shape {
        Shape::Job => job(arm),
        Shape::Datastore => datastore(arm),
        Shape::Workspace => workspace(arm),
        _ => editable(shape, arm)
            .as_object()
            .cloned()
            .unwrap_or_default(),
    };
    match shape {
        Shape::Compute => {
            for (key, at) in [
                ("created_on", "/createdOn"),
                ("provisioning_state", "/provisioningState"),
                ("provisioning_errors", "/provisioningErrors"),
                ("allocation_state", "/properties/allocationState"),
                ("current_node_count", "/properties/currentNodeCount"),
                ("target_node_count", "/properties/targetNodeCount"),
                ("node_state_counts", "/properties/nodeStateCounts"),
                ("errors", "/properties/errors"),
            ] {
                put(
                    &mut out,
                    key,
                    respell(p.pointer(at).unwrap_or(&Value::Null)),
                );
            }
        }
        Shape::BatchEndpoint | Shape::BatchDeployment | Shape::OnlineEndpoint => {
            put(&mut out, "scoring_uri", p["scoringUri"].clone());
            put(
                &mut out,
                "provisioning_state",
                p["provisioningState"].clone(),
            );
        }
        Shape::Model | Shape::Environment | Shape::Data | Shape::Component => {
            put(&mut out, "archived", p["isArchived"].clone());
        }
        Shape::Job | Shape::Datastore | Shape::Workspace => {}
    }
    put(&mut out, "creation_context", respell(&arm["systemData"]));
    put(&mut out, "id", arm["id"].clone());
    if let Some(group) = arm["id"]
        .as_str()
        .and_then(|id| segment(id, "resourceGroups"))
    {
        put(&mut out, "resourceGroup", json!(group));
    }
    Value::Object(out)
}

fn job(arm: &Value) -> Map<String, Value> {
    let mut out = Map::new();
    put(&mut out, "name", arm["name"].clone());
    let Value::Object(properties) = respell(&arm["properties"]) else {
        return out;
    };
    for (key, value) in properties {
        let value = match key.as_str() {
            "job_type" => {
                put(&mut out, "type", word(&value));
                continue;
            }
            "inputs" | "outputs" => ports(&value),
            _ => value,
        };
        let key = match key.as_str() {
            "compute_id" => "compute",
            "environment_id" => "environment",
            "code_id" => "code",
            other => other,
        };
        put(&mut out, key, value);
    }
    if out.contains_key("parallel") {
        // a step; the document calls it a command, since clients know no such type of job
        put(&mut out, "type", json!("parallel"));
        out.shift_remove("command");
    }
    out
}

/// Inputs or outputs as a file has them: a literal is its value, everything else has `type`, `path`, `mode`.
fn ports(all: &Value) -> Value {
    const MODES: [(&str, &str); 7] = [
        ("ReadOnlyMount", "ro_mount"),
        ("ReadWriteMount", "rw_mount"),
        ("Download", "download"),
        ("Upload", "upload"),
        ("Direct", "direct"),
        ("EvalMount", "eval_mount"),
        ("EvalDownload", "eval_download"),
    ];
    let port = |value: &Value| -> Value {
        let Value::Object(fields) = value else {
            return value.clone();
        };
        if fields.get("job_input_type") == Some(&json!("literal")) {
            return fields.get("value").cloned().unwrap_or_default();
        }
        let mut out = Map::new();
        for (key, value) in fields {
            let key = match key.as_str() {
                "job_input_type" | "job_output_type" => "type",
                "uri" => "path",
                "asset_name" => "name",
                "asset_version" => "version",
                other => other,
            };
            let value = match (key, value.as_str()) {
                ("mode", Some(mode)) => {
                    let known = MODES
                        .iter()
                        .find(|(rest, _)| rest.eq_ignore_ascii_case(mode));
                    known.map_or_else(|| value.clone(), |(_, word)| json!(word))
                }
                _ => value.clone(),
            };
            put(&mut out, key, value);
        }
        Value::Object(out)
    };
    match all {
        Value::Object(all) => {
            let all = all.iter().map(|(name, value)| (name.clone(), port(value)));
            Value::Object(all.collect())
        }
        other => other.clone(),
    }
}

fn datastore(arm: &Value) -> Map<String, Value> {
    let p = &arm["properties"];
    let mut out = Map::new();
    put(&mut out, "name", arm["name"].clone());
    put(&mut out, "type", word(&p["datastoreType"]));
    put(&mut out, "description", p["description"].clone());
    put(&mut out, "container_name", p["containerName"].clone());
    put(&mut out, "account_name", p["accountName"].clone());
    put(&mut out, "is_default", p["isDefault"].clone());
    out
}

fn workspace(arm: &Value) -> Map<String, Value> {
    let p = &arm["properties"];
    let mut out = Map::new();
    put(&mut out, "name", arm["name"].clone());
    put(&mut out, "display_name", p["friendlyName"].clone());
    put(&mut out, "description", p["description"].clone());
    put(&mut out, "location", arm["location"].clone());
    put(&mut out, "discovery_url", p["discoveryUrl"].clone());
    put(
        &mut out,
        "mlflow_tracking_uri",
        p["mlFlowTrackingUri"].clone(),
    );
    put(&mut out, "tags", arm["tags"].clone());
    out
}

/// A name or the last part of an id.
pub fn short(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.rsplit('/')
        .next()
        .unwrap_or_default()
        .trim_start_matches("azureml:")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_respelled_as_the_sdk_does() {
        for (camel, expected) in [
            ("provisioningState", "provisioning_state"),
            ("LowPriority", "low_priority"),
            ("AppendRow", "append_row"),
            ("vCPUs", "v_cpus"),
            ("mlFlowTrackingUri", "ml_flow_tracking_uri"),
            ("aadToken", "aad_token"),
            ("UriFolder", "uri_folder"),
        ] {
            assert_eq!(snake(camel), expected);
        }
    }

    #[test]
    fn the_seeds_cluster_is_shown_as_its_file_says() {
        let arm = json!({"id": "/subscriptions/s/resourceGroups/g/providers/M/workspaces/w/computes/low-pri-cluster",
            "name": "low-pri-cluster", "location": "local",
            "properties": {"computeType": "AmlCompute", "provisioningState": "Succeeded", "properties": {
                "vmSize": "STANDARD_DS3_v2", "vmPriority": "LowPriority",
                "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 2, "nodeIdleTimeBeforeScaleDown": "PT2M"}}}});
        let shown = shown(Shape::Compute, &arm);
        assert_eq!(shown["tier"], "low_priority");
        assert_eq!(
            (
                &shown["min_instances"],
                &shown["max_instances"],
                &shown["idle_time_before_scale_down"]
            ),
            (&json!(0), &json!(2), &json!(120))
        );
        assert_eq!(
            (&shown["provisioning_state"], &shown["resourceGroup"]),
            (&json!("Succeeded"), &json!("g"))
        );
    }

    #[test]
    fn the_users_own_names_stay() {
        let arm = json!({"name": "j", "properties": {"jobType": "Command", "computeId": "/subscriptions/s/c", "inputs": {"maxDepth": {"jobInputType": "literal", "value": "1"}},
            "outputs": {"theRows": {"jobOutputType": "uri_folder", "uri": "azureml://x", "mode": "ReadWriteMount", "assetName": "rows", "assetVersion": "3"}},
            "tags": {"myTag": "x"}, "environmentVariables": {"MY_VAR": "aB"}}});
        let shown = shown(Shape::Job, &arm);
        assert_eq!(shown["inputs"]["maxDepth"], "1");
        assert_eq!(
            shown["outputs"]["theRows"],
            json!({"type": "uri_folder", "path": "azureml://x", "mode": "rw_mount", "name": "rows", "version": "3"})
        );
        assert_eq!(
            (
                &shown["tags"]["myTag"],
                &shown["environment_variables"]["MY_VAR"]
            ),
            (&json!("x"), &json!("aB"))
        );
        assert_eq!(
            (&shown["type"], &shown["compute"]),
            (&json!("command"), &json!("azureml:/subscriptions/s/c"))
        );
    }

    #[test]
    fn durations_are_seconds() {
        assert_eq!(
            (
                seconds("PT5M"),
                seconds("PT1H1S"),
                seconds("P1D"),
                seconds("x")
            ),
            (Some(300), Some(3601), Some(86400), None)
        );
    }
}
