//! Command jobs.

use super::{
    assets::environment_of,
    duration::iso8601,
    fields::{Choice, Fields, Text},
    limits,
    load::Built,
    reference::{code, compute},
    report::Report,
    resources,
};
use crate::names::{check_job, did_you_mean, shown};
use serde_json::{Map, Value as Json, json};

pub(super) mod ports;

const DEFAULT: &str = "Azure ML YAML reference, command job";
const TYPES: &[Choice] = &[("command", "Command")];
const DISTRIBUTIONS: &[Choice] = &[
    ("pytorch", "PyTorch"),
    ("mpi", "Mpi"),
    ("tensorflow", "TensorFlow"),
    ("ray", "Ray"),
];
const TIERS: &[Choice] = &[
    ("spot", "Spot"),
    ("basic", "Basic"),
    ("standard", "Standard"),
    ("premium", "Premium"),
    ("null", "Null"),
];
const PRIORITIES: &[Choice] = &[("low", "1"), ("medium", "2"), ("high", "3")];
const IDENTITIES: &[Choice] = &[
    ("user_identity", "UserIdentity"),
    ("managed", "Managed"),
    ("managed_identity", "Managed"),
    ("aml_token", "AMLToken"),
];
const SERVICES: &[Choice] = &[
    ("jupyter_lab", "JupyterLab"),
    ("ssh", "SSH"),
    ("tensor_board", "TensorBoard"),
    ("vs_code", "VSCode"),
];

const ELSEWHERE: &[(&str, &str)] = &[
    ("instance_count", "did you mean resources.instance_count"),
    ("instance_type", "did you mean resources.instance_type"),
    ("timeout", "did you mean limits.timeout"),
    ("shm_size", "did you mean resources.shm_size"),
    ("docker_args", "did you mean resources.docker_args"),
    ("job_tier", "did you mean queue_settings.job_tier"),
    ("image", "did you mean environment.image"),
    ("conda_file", "did you mean environment.conda_file"),
    ("version", "a job has no version; a component has"),
    ("env", "did you mean environment_variables"),
];

/// A command job file.
pub(super) fn command(report: &Report<'_>, fields: Fields<'_>) -> Built {
    fields.has("$schema");
    let name = fields.name("name", check_job);
    if fields.choice("type", TYPES).is_none() {
        fields.default_unless_written("type", "command", "the keys of the file");
    }
    let mut job = Map::new();
    head(&fields, &mut job);
    let command = fields.words("command");
    if let Some(command) = command {
        if command.text.len() > limits::TEXT {
            fields.error(
                command.at,
                "command",
                format!(
                    "command has {} bytes, allowed are {}",
                    command.text.len(),
                    limits::TEXT
                ),
            );
        }
        job.insert("command".into(), command.text.into());
    } else if fields.absent("command") {
        fields.missing("command", "write command: python train.py");
    }
    if let Some(code) = code(&fields, "/properties/codeId") {
        job.insert("codeId".into(), code);
    }
    let target = compute(&fields, "/properties/computeId", "job");
    if let Some(id) = target.id {
        job.insert("computeId".into(), id);
    }
    let inputs = ports::inputs(report, &fields);
    let outputs = ports::outputs(&fields);
    if let Some(command) = command {
        expressions(report, command, &inputs, &outputs);
    }
    job.insert("inputs".into(), inputs.into());
    job.insert("outputs".into(), outputs.into());
    match environment_of(&fields, "/properties/environmentId") {
        Some(Some(id)) => {
            job.insert("environmentId".into(), id);
        }
        Some(None) => {}
        None if !fields.absent("environment") => {}
        None => fields.missing(
            "environment",
            "write environment: azureml:NAME:VERSION, or {image: library/python:3.11}",
        ),
    }
    job.insert(
        "environmentVariables".into(),
        fields
            .variables("environment_variables")
            .unwrap_or_default()
            .into(),
    );
    sections(report, &fields, &mut job, target.binding);
    job.insert("jobType".into(), "Command".into());
    fields.read_only(&[
        "id",
        "status",
        "log_files",
        "parameters",
        "creation_context",
    ]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body: json!({ "properties": job }),
        effective: fields.done(ELSEWHERE),
    }
}

/// What every job has: names, description, tags, properties.
pub(super) fn head(fields: &Fields<'_>, job: &mut Map<String, Json>) {
    for (key, wire) in [
        ("display_name", "displayName"),
        ("description", "description"),
    ] {
        if let Some(text) = fields.text(key) {
            job.insert(wire.into(), text.text.into());
        }
    }
    job.insert(
        "properties".into(),
        fields.texts("properties").unwrap_or_default().into(),
    );
    match fields.words("experiment_name") {
        Some(text) => {
            if text.text.chars().any(char::is_control)
                || text.text.chars().count() > crate::names::MAX_ASSET_NAME
            {
                let message = format!(
                    "experiment_name is one line of at most 255 characters, not `{}`",
                    shown(text.text)
                );
                fields.error(text.at, "experiment_name", message);
            }
            job.insert("experimentName".into(), text.text.into());
        }
        None => fields.default_unless_written(
            "experiment_name",
            "Default",
            "Azure ML REST reference, jobs",
        ),
    }
    job.insert("isArchived".into(), false.into());
    job.insert(
        "tags".into(),
        fields.texts("tags").unwrap_or_default().into(),
    );
}

fn sections(
    report: &Report<'_>,
    fields: &Fields<'_>,
    job: &mut Map<String, Json>,
    binding: Option<Json>,
) {
    let section = fields.section("resources");
    let mut body = section.as_ref().map(resources::read);
    if let Some(Json::Object(binding)) = binding {
        let body =
            body.get_or_insert_with(|| Map::from_iter([("properties".to_owned(), json!({}))]));
        for (key, value) in binding {
            if body.contains_key(&key) {
                let message =
                    "instance_count and instance_type are given in compute and in resources";
                report.error_hint(
                    fields.key_at("compute"),
                    "compute",
                    message,
                    "keep those in resources",
                );
            }
            body.entry(key).or_insert(value);
        }
    }
    let section = section.unwrap_or_else(|| fields.section_or_empty("resources"));
    if !body
        .as_ref()
        .is_some_and(|body| body.contains_key("instanceCount"))
    {
        section.default_unless_written("instance_count", 1, DEFAULT);
    }
    section.default_unless_written("shm_size", "2g", DEFAULT);
    fields.show("resources", resources::done(section));
    let count = body.as_ref().and_then(|body| body.get("instanceCount"));
    let instances = count.and_then(Json::as_i64).unwrap_or(1);
    if let Some(body) = body {
        job.insert("resources".into(), body.into());
    }
    if let Some(section) = fields.section("limits") {
        let timeout = section
            .int("timeout", limits::JOB_SECONDS)
            .and_then(|seconds| u64::try_from(seconds).ok());
        fields.show("limits", section.done(&[]));
        job.insert("limits".into(), json!({ "jobLimitsType": "Command" }));
        if let Some(seconds) = timeout {
            job["limits"]["timeout"] = iso8601(seconds).into();
        }
    }
    let more = [
        ("distribution", distribution(fields, instances)),
        ("queueSettings", queue(fields)),
        ("services", services(fields)),
        ("identity", identity(fields)),
    ];
    for (key, value) in more {
        if let Some(value) = value {
            job.insert(key.into(), value);
        }
    }
    if let Some(parent) = fields.name("parent_job_name", check_job) {
        job.insert("parentJobName".into(), parent.text.into());
    }
}

/// Every `${{…}}` of the command names an input or an output that the file has.
fn expressions(
    report: &Report<'_>,
    command: Text<'_>,
    inputs: &Map<String, Json>,
    outputs: &Map<String, Json>,
) {
    let mut rest = command.text;
    while let Some((_, after)) = rest.split_once("${{") {
        let Some((inside, after)) = after.split_once("}}") else {
            report.error(
                command.at,
                "command",
                "`${{` is opened and never closed with `}}`",
            );
            return;
        };
        rest = after;
        let inside = inside.trim();
        let (declared, what, name) = match inside.split_once('.') {
            Some(("inputs", name)) => (inputs, "input", name),
            Some(("outputs", name)) => (outputs, "output", name),
            Some(("search_space", _)) => {
                report.error(
                    command.at,
                    "command",
                    format!("${{{{{}}}}} belongs to sweep jobs", shown(inside)),
                );
                continue;
            }
            Some(("parent", _)) => {
                report.error(
                    command.at,
                    "command",
                    format!(
                        "${{{{{}}}}} belongs to the steps of pipelines",
                        shown(inside)
                    ),
                );
                continue;
            }
            _ => {
                let message = format!(
                    "${{{{{}}}}} is neither ${{{{inputs.NAME}}}} nor ${{{{outputs.NAME}}}}",
                    shown(inside)
                );
                report.error(command.at, "command", message);
                continue;
            }
        };
        if !declared.contains_key(name) {
            let near = did_you_mean(name, declared.keys().map(String::as_str))
                .map(|near| format!("did you mean {near}"));
            let known: Vec<&str> = declared.keys().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => format!("the file has no {what}s"),
                known => format!("the file has the {what}s {}", known.join(", ")),
            };
            let message = format!(
                "the command uses the {what} `{}`, which is not declared",
                shown(name)
            );
            report.error_hint(command.at, "command", message, near.unwrap_or(known));
        }
    }
}

pub(super) fn distribution(fields: &Fields<'_>, instances: i64) -> Option<Json> {
    let section = fields.section("distribution")?;
    let Some(kind) = section.choice("type", DISTRIBUTIONS) else {
        if section.absent("type") {
            section.missing("type", "write type: pytorch, mpi, tensorflow or ray");
        }
        return None;
    };
    let mut body = Map::new();
    let mut number = |key: &'static str, wire: &str, range| {
        let value = section.int(key, range);
        if let Some(value) = value {
            body.insert(wire.to_owned(), value.into());
        }
        value
    };
    match kind {
        "TensorFlow" => {
            let workers = number("worker_count", "workerCount", limits::INSTANCES);
            let servers = number(
                "parameter_server_count",
                "parameterServerCount",
                limits::SERVERS,
            );
            if let Some(workers) = workers.filter(|workers| *workers != instances) {
                let message = format!(
                    "worker_count {workers} differs from resources.instance_count {instances}"
                );
                section.error(section.key_at("worker_count"), "worker_count", message);
            }
            if servers.is_some_and(|servers| servers > 0) {
                section
                    .report
                    .unsupported("distribution.parameter_server_count above 0");
            }
        }
        "Ray" => {
            section.report.unsupported("distribution.type ray");
            number("port", "port", limits::PORTS);
            number("dashboard_port", "dashboardPort", limits::PORTS);
            if let Some(value) = section.switch("include_dashboard") {
                body.insert("includeDashboard".into(), value.into());
            }
            for (key, wire) in [
                ("address", "address"),
                ("head_node_additional_args", "headNodeAdditionalArgs"),
                ("worker_node_additional_args", "workerNodeAdditionalArgs"),
            ] {
                if let Some(text) = section.words(key) {
                    body.insert(wire.into(), text.text.into());
                }
            }
        }
        _ => {
            let count = number(
                "process_count_per_instance",
                "processCountPerInstance",
                limits::PROCESSES,
            );
            if kind == "Mpi" && count.is_none() && section.absent("process_count_per_instance") {
                section.missing(
                    "process_count_per_instance",
                    "write the processes of one node",
                );
            }
        }
    }
    body.insert("distributionType".into(), kind.into());
    fields.show("distribution", section.done(&[]));
    Some(body.into())
}

pub(super) fn queue(fields: &Fields<'_>) -> Option<Json> {
    let section = fields.section("queue_settings")?;
    let mut body = Map::new();
    if let Some(tier) = section.choice("job_tier", TIERS) {
        body.insert("jobTier".into(), tier.into());
    }
    if let Some(priority) = section
        .choice("priority", PRIORITIES)
        .and_then(|level| level.parse::<i64>().ok())
    {
        body.insert("priority".into(), priority.into());
    }
    fields.show("queue_settings", section.done(&[]));
    Some(body.into())
}

pub(super) fn services(fields: &Fields<'_>) -> Option<Json> {
    let section = fields.section("services")?;
    let mut services = Map::new();
    for entry in section.entries() {
        let Some(service) = section.inner(&entry.node, &entry.key) else {
            continue;
        };
        section.report.unsupported(format!(
            "{} (interactive services)",
            section.path_of(&entry.key)
        ));
        let mut body = Map::new();
        if let Some(kind) = service.choice("type", SERVICES) {
            body.insert("jobServiceType".into(), kind.into());
        }
        if let Some(port) = service.int("port", limits::PORTS) {
            body.insert("port".into(), port.into());
        }
        if let Some(nodes) = service.words("nodes") {
            if nodes.text.eq_ignore_ascii_case("all") {
                body.insert("nodes".into(), json!({ "nodesValueType": "All" }));
            } else {
                service.error(
                    nodes.at,
                    "nodes",
                    format!(
                        "{} is all or absent, not `{}`",
                        service.path_of("nodes"),
                        shown(nodes.text)
                    ),
                );
            }
        }
        let mut properties = service.texts("properties").unwrap_or_default();
        for (key, wire) in [("ssh_public_keys", "sshPublicKeys"), ("log_dir", "logDir")] {
            if let Some(text) = service.words(key) {
                properties.insert(wire.into(), text.text.into());
            }
        }
        if !properties.is_empty() {
            body.insert("properties".into(), properties.into());
        }
        service.read_only(&["endpoint", "status", "error_message"]);
        section.show(&entry.key, service.done(&[]));
        services.insert(entry.key.clone(), body.into());
    }
    fields.show("services", section.all_known());
    Some(services.into())
}

pub(super) fn identity(fields: &Fields<'_>) -> Option<Json> {
    let section = fields.section("identity")?;
    let kind = section.choice("type", IDENTITIES);
    if kind.is_none() && section.absent("type") {
        section.missing("type", "write type: user_identity, managed or aml_token");
    }
    let mut body = Map::new();
    body.insert("identityType".into(), kind.into());
    for (key, wire) in [
        ("client_id", "clientId"),
        ("object_id", "objectId"),
        ("msi_resource_id", "resourceId"),
    ] {
        if let Some(text) = section.words(key) {
            if kind != Some("Managed") && kind.is_some() {
                section.error(
                    text.at,
                    key,
                    format!("{} belongs to a managed identity", section.path_of(key)),
                );
            }
            body.insert(wire.into(), text.text.into());
        }
    }
    fields.show("identity", section.done(&[]));
    Some(body.into())
}
