//! Online endpoints and deployments (behaviour §2.1.10 to §2.1.12).
//!
//! N1 whether one is managed or on Kubernetes is said by `type`, else by `$schema`, else by the keys that only one of them has
//!    (wire §10: the SDK reads `type` alone; the files of the documentation need the others).

use super::{
    assets::{environment_of, insert_if, model_of},
    compute::{identity, location},
    deployment::code_configuration,
    duration::iso8601,
    fields::{Choice, Fields},
    limits,
    load::Built,
    reference::refer,
    report::Report,
    tree::Value,
};
use crate::names::{Kind, check_deployment, check_endpoint, is_reference, shown};
use serde_json::{Map, Value as Json, json};

const DEFAULT: &str = "Azure ML YAML reference, online endpoint";
const DEPLOYMENT_DEFAULT: &str = "Azure ML YAML reference, online deployment";
const AUTH: &[Choice] = &[
    ("key", "Key"),
    ("aml_token", "AMLToken"),
    ("aad_token", "AADToken"),
];
const ACCESS: &[Choice] = &[("enabled", "Enabled"), ("disabled", "Disabled")];
const TYPES: &[Choice] = &[("managed", "Managed"), ("kubernetes", "Kubernetes")];
const SCALES: &[Choice] = &[
    ("default", "Default"),
    ("target_utilization", "TargetUtilization"),
];
const ROLLING: &[Choice] = &[("minute", "Minute"), ("hour", "Hour"), ("day", "Day")];
const TRUTH: &[Choice] = &[("true", "Enabled"), ("false", "Disabled")];
/// Most of the traffic that a mirror takes.
const MOST_MIRRORED: i64 = 50;

/// Keys of deployments and of batch endpoints that people put here.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "defaults",
        "defaults belongs to batch endpoints; an online endpoint has traffic",
    ),
    ("model", "model belongs into the online deployment file"),
    (
        "environment",
        "environment belongs into the online deployment file",
    ),
    (
        "instance_type",
        "instance_type belongs into the online deployment file",
    ),
    (
        "instance_count",
        "instance_count belongs into the online deployment file",
    ),
];
const DEPLOYMENT_ELSEWHERE: &[(&str, &str)] = &[
    ("traffic", "traffic belongs into the online endpoint file"),
    (
        "compute",
        "the compute of a deployment is that of its endpoint",
    ),
    ("settings", "settings belongs to batch deployments"),
    ("code", "did you mean code_configuration.code"),
    (
        "scoring_script",
        "did you mean code_configuration.scoring_script",
    ),
];

/// The file of an online endpoint.
pub(super) fn endpoint(report: &Report<'_>, fields: Fields<'_>) -> Built {
    fields.has("$schema");
    let name = fields.name("name", check_endpoint);
    if fields.absent("name") {
        fields.missing("name", "write name: NAME, or give --name");
    }
    let mut properties = Map::new();
    let auth = fields
        .choice_or("auth_mode", AUTH, "key", DEFAULT)
        .unwrap_or("Key");
    properties.insert("authMode".into(), auth.into());
    if let Some(description) = fields.text("description") {
        properties.insert("description".into(), description.text.into());
    }
    if let Some(compute) = compute(report, &fields) {
        properties.insert("compute".into(), compute);
        if auth == "AADToken" {
            report.error(
                fields.key_at("auth_mode"),
                "auth_mode",
                "auth_mode aad_token is for managed endpoints only, and compute is given",
            );
        }
    }
    if let Some(access) = fields.choice("public_network_access", ACCESS) {
        properties.insert("publicNetworkAccess".into(), access.into());
    }
    let (traffic, sum) = weights(&fields, "traffic");
    if sum > 100 {
        fields.error(
            fields.key_at("traffic"),
            "traffic",
            format!("traffic adds up to {sum}, it may be at most 100"),
        );
    }
    properties.insert("traffic".into(), traffic.into());
    let (mirror, sum) = weights(&fields, "mirror_traffic");
    if sum > MOST_MIRRORED {
        report.warn(
            fields.key_at("mirror_traffic"),
            "mirror_traffic",
            format!("mirror_traffic is above {MOST_MIRRORED}, which the server refuses"),
        );
    }
    properties.insert("mirrorTraffic".into(), mirror.into());
    let bag = fields.texts("properties").unwrap_or_default();
    properties.insert("properties".into(), bag.into());
    let tags = fields.texts("tags").unwrap_or_default();
    let mut body = json!({ "location": location(&fields), "tags": tags, "properties": properties });
    let identity = identity(&fields).unwrap_or(json!({ "type": "SystemAssigned" }));
    insert_if(&mut body, "/identity", Some(identity));
    fields.read_only(&[
        "id",
        "provisioning_state",
        "scoring_uri",
        "openapi_uri",
        "kind",
    ]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body,
        effective: fields.done(ELSEWHERE),
    }
}

/// The Kubernetes compute of an endpoint: a reference, or its name alone.
fn compute(report: &Report<'_>, fields: &Fields<'_>) -> Option<Json> {
    let text = fields.words("compute")?;
    let written = if is_reference(text.text) {
        text.text.to_owned()
    } else {
        format!("azureml:{}", text.text)
    };
    let text = super::fields::Text {
        text: &written,
        ..text
    };
    refer(
        report,
        text,
        "compute",
        Kind::Compute,
        "/properties/compute",
    )
}

/// Shares by deployment; names are lower-cased and shares of nothing left out, as the SDK does.
fn weights(fields: &Fields<'_>, key: &'static str) -> (Map<String, Json>, i64) {
    let (mut out, mut sum) = (Map::new(), 0);
    let Some(entry) = fields.entry(key) else {
        return (out, sum);
    };
    let Value::Map(entries) = &entry.node.value else {
        fields.wrong(&entry.node, key, "a map");
        return (out, sum);
    };
    for entry in entries {
        match entry.node.text().map(super::scalar::whole) {
            Some(Ok(share)) if limits::PERCENT.contains(&share) => {
                sum += share;
                if share > 0 {
                    out.insert(entry.key.to_ascii_lowercase(), share.into());
                }
            }
            _ => fields.wrong(&entry.node, key, "shares from 0 to 100"),
        }
    }
    fields.show(key, out.clone());
    (out, sum)
}

/// The file of an online deployment; `hinted` is what `$schema` says of where it serves (N1).
pub(super) fn deployment(fields: Fields<'_>, hinted: Option<&'static str>) -> Built {
    fields.has("$schema");
    let name = fields.name("name", check_deployment);
    if fields.absent("name") {
        fields.missing("name", "write name: NAME, or give --name");
    }
    let endpoint = fields.name("endpoint_name", check_endpoint);
    if fields.absent("endpoint_name") {
        fields.missing(
            "endpoint_name",
            "write endpoint_name: NAME, or give --endpoint-name",
        );
    }
    let said = fields.choice("type", TYPES);
    let found = said.or(hinted).unwrap_or_else(|| {
        // looked for without making it a known key: a managed deployment has none
        let asks = fields.entries().iter().any(|e| e.key == "resources");
        if asks { "Kubernetes" } else { "Managed" }
    });
    if said.is_none() {
        let word = if found == "Managed" {
            "managed"
        } else {
            "kubernetes"
        };
        let source = match hinted {
            Some(_) => "$schema",
            None => "the keys of the file",
        };
        fields.default_unless_written("type", word, source);
    }
    let mut properties = Map::new();
    properties.insert("endpointComputeType".into(), found.into());
    if let Some(description) = fields.text("description") {
        properties.insert("description".into(), description.text.into());
    }
    if let Some(model) = model_of(&fields, "/properties/model")
        && let Some(id) = model.id
    {
        properties.insert("model".into(), id);
    }
    if let Some(Some(id)) = environment_of(&fields, "/properties/environmentId") {
        properties.insert("environmentId".into(), id);
    }
    if let Some(code) = code_configuration(&fields, false) {
        properties.insert("codeConfiguration".into(), code);
    }
    if let Some(variables) = fields.variables("environment_variables") {
        properties.insert("environmentVariables".into(), variables.into());
    }
    if let Some(path) = fields.text("model_mount_path") {
        properties.insert("modelMountPath".into(), path.text.into());
    }
    let insights = fields.switch_or("app_insights_enabled", false, DEPLOYMENT_DEFAULT);
    properties.insert("appInsightsEnabled".into(), insights.into());
    requests(&fields, &mut properties);
    for (key, wire) in [
        ("liveness_probe", "livenessProbe"),
        ("readiness_probe", "readinessProbe"),
    ] {
        if let Some(probe) = probe(&fields, key) {
            properties.insert(wire.into(), probe);
        }
    }
    scaling(&fields, &mut properties);
    instance(&fields, found, &mut properties);
    collector(&fields);
    let count = fields.int("instance_count", limits::INSTANCES).unwrap_or(1);
    let bag = fields.texts("properties").unwrap_or_default();
    properties.insert("properties".into(), bag.into());
    let tags = fields.texts("tags").unwrap_or_default();
    let mut body = json!({ "location": location(&fields), "tags": tags,
        "sku": { "name": "Default", "capacity": count } });
    insert_if(&mut body, "/properties", Some(properties.into()));
    fields.read_only(&["id", "provisioning_state", "creation_context"]);
    let owned = |text: Option<super::fields::Text<'_>>| text.map(|text| text.text.to_owned());
    Built {
        name: owned(name),
        version: None,
        parent: owned(endpoint),
        body,
        effective: fields.done(DEPLOYMENT_ELSEWHERE),
    }
}

fn requests(fields: &Fields<'_>, properties: &mut Map<String, Json>) {
    let Some(section) = fields.section("request_settings") else {
        return;
    };
    let mut body = Map::new();
    if let Some(most) = section.int("max_concurrent_requests_per_instance", limits::TIMES) {
        body.insert("maxConcurrentRequestsPerInstance".into(), most.into());
    }
    for (key, wire) in [
        ("request_timeout_ms", "requestTimeout"),
        ("max_queue_wait_ms", "maxQueueWait"),
    ] {
        if let Some(ms) = section.int(key, limits::DELAYS) {
            body.insert(wire.into(), milliseconds(ms).into());
        }
    }
    fields.show("request_settings", section.done(&[]));
    properties.insert("requestSettings".into(), body.into());
}

/// `PT3S`, `PT0.5S`.
fn milliseconds(ms: i64) -> String {
    if ms % 1000 == 0 {
        return format!("PT{}S", ms / 1000);
    }
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    format!("PT{}S", text.trim_end_matches('0'))
}

fn probe(fields: &Fields<'_>, key: &'static str) -> Option<Json> {
    let section = fields.section(key)?;
    let mut body = Map::new();
    for (key, wire) in [
        ("initial_delay", "initialDelay"),
        ("period", "period"),
        ("timeout", "timeout"),
    ] {
        if let Some(seconds) = section.int(key, limits::TIMES) {
            body.insert(
                wire.into(),
                iso8601(u64::try_from(seconds).unwrap_or_default()).into(),
            );
        }
    }
    for (key, wire) in [
        ("success_threshold", "successThreshold"),
        ("failure_threshold", "failureThreshold"),
    ] {
        if let Some(count) = section.int(key, limits::TIMES) {
            body.insert(wire.into(), count.into());
        }
    }
    fields.show(key, section.done(&[]));
    Some(body.into())
}

fn scaling(fields: &Fields<'_>, properties: &mut Map<String, Json>) {
    let Some(section) = fields.section("scale_settings") else {
        return;
    };
    let kind = section.choice("type", SCALES);
    if section.absent("type") {
        section.missing("type", "write type: default or type: target_utilization");
    }
    let mut body = Map::new();
    body.insert("scaleType".into(), kind.into());
    if kind != Some("Default") {
        let least = section.int("min_instances", limits::MIN_INSTANCES);
        let most = section.int("max_instances", limits::INSTANCES);
        if let (Some(min), Some(max)) = (least, most)
            && min > max
        {
            section.error(
                section.key_at("min_instances"),
                "min_instances",
                format!("min_instances {min} is above max_instances {max}"),
            );
        }
        for (wire, value) in [
            ("minInstances", least),
            ("maxInstances", most),
            (
                "targetUtilizationPercentage",
                section.int("target_utilization_percentage", limits::PERCENT),
            ),
        ] {
            if let Some(value) = value {
                body.insert(wire.into(), value.into());
            }
        }
        if let Some(seconds) = section.int("polling_interval", limits::TIMES) {
            let seconds = u64::try_from(seconds).unwrap_or_default();
            body.insert("pollingInterval".into(), iso8601(seconds).into());
        }
    }
    fields.show("scale_settings", section.done(&[]));
    properties.insert("scaleSettings".into(), body.into());
}

/// What only one of the two kinds has.
fn instance(fields: &Fields<'_>, kind: &str, properties: &mut Map<String, Json>) {
    match fields.words("instance_type") {
        Some(text) => {
            if text.text.contains(['<', '>']) {
                let message = format!(
                    "instance_type `{}` still holds a placeholder <…> of the documentation",
                    shown(text.text)
                );
                fields.error(text.at, "instance_type", message);
            }
            properties.insert("instanceType".into(), text.text.into());
        }
        None if !fields.absent("instance_type") || kind == "Kubernetes" => {}
        None => fields.missing(
            "instance_type",
            "write the size of a managed deployment, for example Standard_DS3_v2",
        ),
    }
    if kind == "Managed" {
        if let Some(access) = fields.choice("egress_public_network_access", ACCESS) {
            properties.insert("egressPublicNetworkAccess".into(), access.into());
        }
        if let Some(private) = fields.switch("private_network_connection") {
            properties.insert("privateNetworkConnection".into(), private.into());
        }
        return;
    }
    let Some(section) = fields.section("resources") else {
        return;
    };
    let mut body = Map::new();
    for (key, wire) in [
        ("requests", "containerResourceRequests"),
        ("limits", "containerResourceLimits"),
    ] {
        let Some(side) = section.section(key) else {
            continue;
        };
        let mut amounts = Map::new();
        for (key, wire) in [
            ("cpu", "cpu"),
            ("memory", "memory"),
            ("nvidia.com/gpu", "gpu"),
            ("gpu", "gpu"),
        ] {
            if let Some(amount) = side.words(key) {
                amounts.insert(wire.into(), amount.text.into());
            }
        }
        section.show(key, side.done(&[]));
        body.insert(wire.into(), amounts.into());
    }
    fields.show("resources", section.done(&[]));
    properties.insert("containerResourceRequirements".into(), body.into());
}

/// `data_collector`: read by its rules and kept out of the document until something collects.
fn collector(fields: &Fields<'_>) {
    let Some(section) = fields.section("data_collector") else {
        return;
    };
    section.choice("rolling_rate", ROLLING);
    if let Some(rate) = section.words("sampling_rate") {
        let inside = rate
            .text
            .parse::<f64>()
            .is_ok_and(|r| (0.0..=1.0).contains(&r));
        if !inside {
            section.error(
                rate.at,
                "sampling_rate",
                "sampling_rate is a number from 0 to 1",
            );
        }
    }
    if let Some(logging) = section.section("request_logging") {
        logging.list("capture_headers");
        logging.done(&[]);
    }
    if let Some(collections) = section.section("collections") {
        for entry in collections.entries() {
            let Some(inner) = collections.inner(&entry.node, &entry.key) else {
                continue;
            };
            inner.choice("enabled", TRUTH);
            if inner.absent("enabled") {
                inner.missing("enabled", "write enabled: \"True\"");
            }
            inner.text("client_id");
            if let Some(data) = inner.entry("data")
                && data.node.text().is_none()
                && let Some(asset) = inner.inner(&data.node, "data")
            {
                for key in ["name", "path", "version", "data_id"] {
                    asset.text(key);
                }
                asset.done(&[]);
            }
            inner.done(&[]);
        }
        collections.all_known();
    }
    fields.report.warn(
        section.at,
        "data_collector",
        "data_collector is checked, but nothing is collected yet",
    );
    section.done(&[]);
    fields.show_written("data_collector");
}
