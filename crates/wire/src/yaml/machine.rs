//! Computes that are one machine or were made elsewhere: `type: computeinstance`, `virtualmachine`, `synapsespark`
//! (behaviour §2.1.3, §2.1.5).

use super::{
    compute::{identity, location, size, subnet},
    duration::iso8601,
    fields::{Choice, Fields},
    limits,
    load::Built,
    report::Report,
    tree::Value,
};
use crate::names::{check_compute, compute_name_advice};
use serde_json::{Map, Value as Json, json};

const DEFAULT: &str = "Azure ML YAML reference, compute instance";
const VM_DEFAULT: &str = "Azure ML YAML reference, attached virtual machine";
const INSTANCE: &[Choice] = &[("computeinstance", "ComputeInstance")];
const MACHINE: &[Choice] = &[("virtualmachine", "VirtualMachine")];
const SPARK: &[Choice] = &[("synapsespark", "SynapseSpark")];
const ACTIONS: &[Choice] = &[("start", "start"), ("stop", "stop")];
const STATES: &[Choice] = &[("enabled", "enabled"), ("disabled", "disabled")];
const TRIGGERS: &[Choice] = &[("cron", "Cron"), ("recurrence", "Recurrence")];
const FREQUENCIES: &[Choice] = &[
    ("minute", "Minute"),
    ("hour", "Hour"),
    ("day", "Day"),
    ("week", "Week"),
    ("month", "Month"),
];
const DAYS: &[&str] = &[
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];
const DOCKER: &[Choice] = &[("docker", "docker")];
/// Azure's limit of the schedules of an instance.
const MAX_SCHEDULES: usize = 4;

const READ_ONLY: &[&str] = &[
    "id",
    "provisioning_state",
    "provisioning_errors",
    "created_on",
];

/// Keys of clusters, with the word that instances use.
const ELSEWHERE: &[(&str, &str)] = &[
    ("min_instances", "an instance is one node"),
    ("max_instances", "an instance is one node"),
    (
        "tier",
        "an instance is dedicated; low-priority nodes are those of a cluster",
    ),
    (
        "idle_time_before_scale_down",
        "an instance has idle_time_before_shutdown_minutes",
    ),
    ("vm_size", "did you mean size"),
];

fn name<'r>(report: &Report<'_>, fields: &Fields<'r>) -> Option<super::fields::Text<'r>> {
    fields.has("$schema");
    let name = fields.name("name", check_compute);
    if let Some(advice) = name.and_then(|name| compute_name_advice(name.text)) {
        report.warn(fields.key_at("name"), "name", advice);
    }
    if fields.absent("name") {
        fields.missing("name", "write name: NAME, or give --name");
    }
    name
}

fn built(
    name: Option<super::fields::Text<'_>>,
    fields: Fields<'_>,
    outer: Map<String, Json>,
    elsewhere: &[(&str, &str)],
) -> Built {
    let mut body = json!({ "location": location(&fields), "properties": outer });
    super::assets::insert_if(&mut body, "/tags", fields.texts("tags").map(Json::from));
    super::assets::insert_if(&mut body, "/identity", identity(&fields));
    fields.read_only(READ_ONLY);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body,
        effective: fields.done(elsewhere),
    }
}

fn outer(fields: &Fields<'_>, kind: &str) -> Map<String, Json> {
    let mut outer = Map::new();
    if let Some(description) = fields.text("description") {
        outer.insert("description".into(), description.text.into());
    }
    outer.insert("computeType".into(), kind.into());
    outer
}

/// The file of a compute instance.
pub(super) fn instance(report: &Report<'_>, fields: Fields<'_>) -> Built {
    let name = name(report, &fields);
    if fields.choice("type", INSTANCE).is_none() {
        fields.default_unless_written("type", "computeinstance", "the keys of the file");
    }
    let mut outer = outer(&fields, "ComputeInstance");
    let mut inner = Map::new();
    inner.insert("vmSize".into(), size(report, &fields).into());
    if let Some(subnet) = subnet(report, &fields) {
        inner.insert("subnet".into(), json!({ "id": subnet }));
    }
    let ssh = fields.switch_or("ssh_public_access_enabled", false, DEFAULT);
    let mut settings = Map::new();
    let access = if ssh { "Enabled" } else { "Disabled" };
    settings.insert("sshPublicAccess".into(), access.into());
    if let Some(section) = fields.section("ssh_settings") {
        if let Some(key) = section.words("ssh_key_value") {
            settings.insert("adminPublicKey".into(), key.text.into());
        }
        section.read_only(&["admin_username", "ssh_port"]);
        fields.show("ssh_settings", section.done(&[]));
    }
    inner.insert("sshSettings".into(), settings.into());
    if let Some(section) = fields.section("create_on_behalf_of") {
        let mut user = Map::new();
        for (key, wire) in [
            ("user_object_id", "objectId"),
            ("user_tenant_id", "tenantId"),
        ] {
            if let Some(text) = section.words(key) {
                user.insert(wire.into(), text.text.into());
            }
        }
        inner.insert(
            "personalComputeInstanceSettings".into(),
            json!({ "assignedUser": user }),
        );
        fields.show("create_on_behalf_of", section.done(&[]));
    }
    if let Some(after) = idle(report, &fields) {
        inner.insert("idleTimeBeforeShutdown".into(), after.into());
    }
    if let Some(schedules) = schedules(report, &fields) {
        inner.insert("schedules".into(), json!({ "computeStartStop": schedules }));
    }
    if let Some(scripts) = scripts(&fields) {
        inner.insert("setupScripts".into(), json!({ "scripts": scripts }));
    }
    if let Some(applications) = applications(&fields) {
        inner.insert("customServices".into(), applications.into());
    }
    for (key, wire, default) in [
        ("enable_node_public_ip", "enableNodePublicIp", true),
        ("enable_sso", "enableSSO", true),
        ("enable_root_access", "enableRootAccess", true),
        ("release_quota_on_stop", "releaseQuotaOnStop", false),
        ("enable_os_patching", "enableOSPatching", false),
    ] {
        let value = fields.switch_or(key, default, DEFAULT);
        inner.insert(wire.into(), value.into());
    }
    fields.read_only(&[
        "state",
        "last_operation",
        "services",
        "os_image_metadata",
        "resource_id",
    ]);
    outer.insert("properties".into(), inner.into());
    outer.insert("disableLocalAuth".into(), (!ssh).into());
    built(name, fields, outer, ELSEWHERE)
}

fn idle(report: &Report<'_>, fields: &Fields<'_>) -> Option<String> {
    let minutes = fields.int("idle_time_before_shutdown_minutes", limits::IDLE_MINUTES);
    let text = fields.words("idle_time_before_shutdown");
    if let Some(text) = text {
        report.warn(
            text.at,
            "idle_time_before_shutdown",
            "idle_time_before_shutdown is the older spelling of idle_time_before_shutdown_minutes",
        );
        if crate::arm::time::parse_duration(text.text).is_none() {
            fields.error(
                text.at,
                "idle_time_before_shutdown",
                format!(
                    "idle_time_before_shutdown is a duration such as PT30M, not `{}`",
                    crate::names::shown(text.text)
                ),
            );
        }
    }
    let minutes = minutes.and_then(|m| u64::try_from(m).ok());
    minutes
        .map(|m| iso8601(m * 60))
        .or(text.map(|text| text.text.to_owned()))
}

fn schedules(report: &Report<'_>, fields: &Fields<'_>) -> Option<Vec<Json>> {
    let section = fields.section("schedules")?;
    let mut all = Vec::new();
    if let Some(entry) = section.entry("compute_start_stop") {
        match &entry.node.value {
            Value::List(items) => {
                if items.len() > MAX_SCHEDULES {
                    section.error(
                        entry.node.at,
                        "compute_start_stop",
                        format!(
                            "an instance has at most {MAX_SCHEDULES} schedules, not {}",
                            items.len()
                        ),
                    );
                }
                for item in items {
                    if let Some(item) = section.inner(item, "compute_start_stop") {
                        all.push(schedule(item));
                    }
                }
            }
            _ => section.wrong(&entry.node, "compute_start_stop", "a list"),
        }
    }
    report.warn(
        section.at,
        "schedules",
        "schedules are kept, but not carried out yet",
    );
    section.done(&[]);
    fields.show_written("schedules");
    Some(all)
}

fn schedule(item: Fields<'_>) -> Json {
    let action = item.choice("action", ACTIONS);
    if item.absent("action") {
        item.missing("action", "write action: start or action: stop");
    }
    let state = item.choice("state", STATES);
    let mut out = Map::new();
    out.insert("action".into(), action.into());
    out.insert("status".into(), state.unwrap_or("enabled").into());
    if let Some(trigger) = item.section("trigger") {
        let kind = trigger.choice("type", TRIGGERS);
        if trigger.absent("type") {
            trigger.missing("type", "write type: cron or type: recurrence");
        }
        let mut body = Map::new();
        for (key, wire) in [("start_time", "startTime"), ("time_zone", "timeZone")] {
            if let Some(text) = trigger.words(key) {
                body.insert(wire.into(), text.text.into());
            }
        }
        if let Some(kind) = kind {
            body.insert("triggerType".into(), kind.into());
            out.insert("triggerType".into(), kind.into());
        }
        if kind == Some("Recurrence") {
            recurrence(&trigger, &mut body);
            out.insert("recurrence".into(), body.into());
        } else {
            match trigger.words("expression") {
                Some(text) => {
                    body.insert("expression".into(), text.text.into());
                }
                None if !trigger.absent("expression") => {}
                None if kind == Some("Cron") => {
                    trigger.missing("expression", "write expression: \"0 18 * * *\"");
                }
                None => {}
            }
            out.insert("cron".into(), body.into());
        }
        item.show("trigger", trigger.done(&[]));
    }
    item.read_only(&["schedule_id", "provisioning_state"]);
    item.done(&[]);
    out.into()
}

fn recurrence(trigger: &Fields<'_>, body: &mut Map<String, Json>) {
    let frequency = trigger.choice("frequency", FREQUENCIES);
    if trigger.absent("frequency") {
        trigger.missing("frequency", "write frequency: day");
    }
    body.insert("frequency".into(), frequency.into());
    let every = trigger.int("interval", limits::INTERVAL);
    body.insert("interval".into(), every.unwrap_or(1).into());
    let Some(pattern) = trigger.section("schedule") else {
        return;
    };
    let mut schedule = Map::new();
    for key in ["hours", "minutes"] {
        if let Some(numbers) = pattern.list(key) {
            let numbers: Vec<Json> = numbers
                .iter()
                .map(|text| text.parse::<i64>().map_or(Json::from(*text), Json::from))
                .collect();
            if numbers.iter().any(|n| !n.is_number()) {
                pattern.error(pattern.key_at(key), key, format!("{key} are whole numbers"));
            }
            schedule.insert(key.into(), numbers.into());
        }
    }
    if let Some(days) = pattern.list("week_days") {
        let known = |day: &&str| DAYS.iter().find(|d| d.eq_ignore_ascii_case(day));
        if let Some(wrong) = days.iter().find(|day| known(day).is_none()) {
            let message = format!(
                "week_days are sunday to saturday, not `{}`",
                crate::names::shown(wrong)
            );
            pattern.error(pattern.key_at("week_days"), "week_days", message);
        }
        let days: Vec<&str> = days.iter().filter_map(|d| known(d).copied()).collect();
        schedule.insert("weekDays".into(), days.into());
    }
    body.insert("schedule".into(), schedule.into());
    trigger.show("schedule", pattern.done(&[]));
}

fn scripts(fields: &Fields<'_>) -> Option<Map<String, Json>> {
    let section = fields.section("setup_scripts")?;
    let mut out = Map::new();
    for (key, wire) in [
        ("creation_script", "creationScript"),
        ("startup_script", "startupScript"),
    ] {
        let Some(script) = section.section(key) else {
            continue;
        };
        let mut body = Map::new();
        body.insert("scriptSource".into(), "workspaceStorage".into());
        if let Some(path) = script.words("path") {
            body.insert("scriptData".into(), path.text.into());
        }
        if let Some(command) = script.text("command") {
            body.insert("scriptArguments".into(), command.text.into());
        }
        if let Some(minutes) = script.int("timeout_minutes", limits::INTERVAL) {
            body.insert("timeout".into(), format!("{minutes}m").into());
        }
        out.insert(wire.into(), body.into());
        section.show(key, script.done(&[]));
    }
    fields.report.warn(
        section.at,
        "setup_scripts",
        "setup scripts are kept, but not run yet",
    );
    section.done(&[]);
    fields.show_written("setup_scripts");
    Some(out)
}

fn applications(fields: &Fields<'_>) -> Option<Vec<Json>> {
    let items = maps(fields, "custom_applications")?;
    let mut all = Vec::new();
    for item in items {
        let mut body = Map::new();
        match item.words("name") {
            Some(name) => {
                body.insert("name".into(), name.text.into());
            }
            None if !item.absent("name") => {}
            None => item.missing("name", "write name: NAME"),
        }
        item.choice("type", DOCKER);
        body.insert("docker".into(), json!({ "privileged": true }));
        if let Some(image) = item.section("image") {
            if let Some(reference) = image.words("reference") {
                body.insert(
                    "image".into(),
                    json!({ "type": "docker", "reference": reference.text }),
                );
            }
            image.done(&[]);
        }
        let mut endpoints = Vec::new();
        for endpoint in maps(&item, "endpoints").unwrap_or_default() {
            let port = |key| endpoint.int(key, limits::PORTS);
            let (target, published) = (port("target"), port("published"));
            endpoints.push(json!({ "name": "connect", "protocol": "http", "target": target, "published": published }));
            endpoint.done(&[]);
        }
        body.insert("endpoints".into(), endpoints.into());
        let mut variables = Map::new();
        for (name, value) in item.texts("environment_variables").unwrap_or_default() {
            variables.insert(name, json!({ "type": "local", "value": value }));
        }
        body.insert("environmentVariables".into(), variables.into());
        let mut volumes = Vec::new();
        for mount in maps(&item, "bind_mounts").unwrap_or_default() {
            let text = |key| mount.words(key).map(|t| t.text.to_owned());
            let (source, target) = (text("source"), text("target"));
            volumes.push(
                json!({ "type": "bind", "source": source, "target": target, "readOnly": false }),
            );
            mount.done(&[]);
        }
        body.insert("volumes".into(), volumes.into());
        item.done(&[]);
        all.push(body.into());
    }
    fields.report.warn(
        fields.key_at("custom_applications"),
        "custom_applications",
        "custom applications are kept, but not started yet",
    );
    fields.show_written("custom_applications");
    Some(all)
}

/// A list of maps.
pub(super) fn maps<'r>(fields: &Fields<'r>, key: &'static str) -> Option<Vec<Fields<'r>>> {
    let entry = fields.entry(key)?;
    let Value::List(items) = &entry.node.value else {
        fields.wrong(&entry.node, key, "a list");
        return None;
    };
    Some(
        items
            .iter()
            .filter_map(|item| fields.inner(item, key))
            .collect(),
    )
}

/// The file of an attached virtual machine.
pub(super) fn virtual_machine(report: &Report<'_>, fields: Fields<'_>) -> Built {
    let name = name(report, &fields);
    if fields.choice("type", MACHINE).is_none() {
        fields.default_unless_written("type", "virtualmachine", "the keys of the file");
    }
    let mut outer = outer(&fields, "VirtualMachine");
    resource_id(&fields, &mut outer, "the id of the virtual machine");
    let mut inner = Map::new();
    if let Some(section) = fields.section("ssh_settings") {
        let mut account = Map::new();
        if let Some(user) = section.words("admin_username") {
            account.insert("username".into(), user.text.into());
        }
        if let Some(password) = section.words("admin_password") {
            account.insert("password".into(), password.text.into());
            // the effective document is printed; a password is not
            section.show("admin_password", "********");
        }
        if let Some(path) = section.words("ssh_private_key_file") {
            match (report.files)(path.text).map(String::from_utf8) {
                Ok(Ok(key)) => {
                    account.insert("privateKeyData".into(), key.into());
                }
                Ok(Err(_)) => section.error(
                    path.at,
                    "ssh_private_key_file",
                    format!(
                        "ssh_private_key_file {} is no text",
                        crate::names::shown(path.text)
                    ),
                ),
                Err(reason) => section.error(
                    path.at,
                    "ssh_private_key_file",
                    format!(
                        "ssh_private_key_file names {}, which cannot be read: {reason}",
                        crate::names::shown(path.text)
                    ),
                ),
            }
        }
        let port = section.int_or("ssh_port", limits::PORTS, 22, VM_DEFAULT);
        inner.insert("sshPort".into(), port.into());
        inner.insert("administratorAccount".into(), account.into());
        fields.show("ssh_settings", section.done(&[]));
    }
    fields.read_only(&["compute_location"]);
    outer.insert("properties".into(), inner.into());
    built(name, fields, outer, &[])
}

fn resource_id(fields: &Fields<'_>, outer: &mut Map<String, Json>, what: &str) {
    match fields.words("resource_id") {
        Some(id) => {
            outer.insert("resourceId".into(), id.text.into());
        }
        None if !fields.absent("resource_id") => {}
        None => fields.missing("resource_id", &format!("write {what}")),
    }
}

/// The file of an attached Spark pool.
pub(super) fn spark(report: &Report<'_>, fields: Fields<'_>) -> Built {
    let name = name(report, &fields);
    if fields.choice("type", SPARK).is_none() {
        fields.default_unless_written("type", "synapsespark", "the keys of the file");
    }
    let mut outer = outer(&fields, "SynapseSpark");
    resource_id(&fields, &mut outer, "the id of the spark pool");
    fields.read_only(&[
        "node_family",
        "node_size",
        "node_count",
        "spark_version",
        "scale_settings",
        "auto_pause_settings",
    ]);
    outer.insert("properties".into(), json!({}));
    built(name, fields, outer, &[])
}
