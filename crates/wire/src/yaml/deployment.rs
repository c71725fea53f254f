//! Batch deployments of models, in three forms: `type: model` with `settings:`, the older flat form in which the keys of
//! `settings` stand at the root, and the form without `type:`.

use super::{
    assets::{environment_of, insert_if, model_of},
    compute::location,
    duration::iso8601,
    fields::{Choice, Fields},
    limits,
    load::Built,
    reference::{code, compute},
    report::Report,
    resources,
    tree::{Entry, Value},
};
use crate::names::{check_deployment, check_endpoint, did_you_mean, shown};
use serde_json::{Map, Value as Json, json};

const DEFAULT: &str = "Azure ML YAML reference, batch deployment";
const TYPES: &[Choice] = &[("model", "model"), ("pipeline", "pipeline")];
const ACTIONS: &[Choice] = &[("append_row", "AppendRow"), ("summary_only", "SummaryOnly")];
const LEVELS: &[Choice] = &[("info", "info"), ("warning", "warning"), ("debug", "debug")];

/// Keys of the flat form.
const SETTINGS: &[&str] = &[
    "max_concurrency_per_instance",
    "error_threshold",
    "logging_level",
    "mini_batch_size",
    "retry_settings",
    "output_action",
    "output_file_name",
];

const ELSEWHERE: &[(&str, &str)] = &[
    ("instance_count", "did you mean resources.instance_count"),
    (
        "instance_type",
        "the instance type of a batch deployment stands in resources.instance_type",
    ),
    (
        "scoring_script",
        "did you mean code_configuration.scoring_script",
    ),
    ("code", "did you mean code_configuration.code"),
    (
        "max_retries",
        "did you mean settings.retry_settings.max_retries",
    ),
    ("timeout", "did you mean settings.retry_settings.timeout"),
    (
        "tier",
        "the tier is a property of the cluster: a deployment on a low-priority cluster uses low-priority nodes",
    ),
    (
        "defaults",
        "defaults.deployment_name stands in the endpoint file; or create with --set-default",
    ),
    ("traffic", "traffic belongs to online endpoints"),
    (
        "component",
        "component belongs to a deployment with type: pipeline",
    ),
    (
        "job_definition",
        "job_definition belongs to a deployment with type: pipeline",
    ),
    (
        "app_insights_enabled",
        "app_insights_enabled belongs to online deployments",
    ),
];

/// Keys of Zaffre's own in `properties` of a deployment, and their values.
const OWN: &[(&str, &[&str])] = &[
    ("zaffre.on_capacity_loss", &["cancel", "wait"]),
    ("zaffre.append_row_format", &["csv", "azure"]),
    ("zaffre.append_row_header", &["false", "true"]),
    ("zaffre.max_preemptions", &[]),
];

/// A batch deployment file.
pub(super) fn batch(report: &Report<'_>, fields: Fields<'_>) -> Built {
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
    fields.choice_or("type", TYPES, "model", DEFAULT);

    let mut properties = Map::new();
    if let Some(description) = fields.text("description") {
        properties.insert("description".into(), description.text.into());
    }
    let mut body = Json::Object(Map::new());
    let model = model_of(&fields, "/properties/model/assetId");
    match &model {
        Some(model) => {
            let mut reference = Map::new();
            if let Some(id) = &model.id {
                reference.insert("assetId".into(), id.clone());
            }
            reference.insert("referenceType".into(), "Id".into());
            properties.insert("model".into(), reference.into());
        }
        None if !fields.absent("model") => {}
        None => fields.missing(
            "model",
            "write model: azureml:NAME:VERSION, or a map with path",
        ),
    }
    let environment = environment_of(&fields, "/properties/environmentId");
    if let Some(Some(id)) = &environment {
        properties.insert("environmentId".into(), id.clone());
    }
    let scored = code_configuration(&fields, true);
    if let Some(configuration) = scored {
        properties.insert("codeConfiguration".into(), configuration);
        if fields.absent("environment") {
            fields.missing("environment", "a scoring script runs in an environment: write environment: azureml:NAME:VERSION or {image: …}");
        }
    } else if fields.absent("code_configuration")
        && let Some(kind) = model
            .as_ref()
            .and_then(|model| model.kind)
            .filter(|kind| *kind != "mlflow_model")
    {
        let hint = "write code_configuration: {code: ./src, scoring_script: score.py}; only an mlflow_model needs none";
        report.error_hint(
            fields.at,
            "code_configuration",
            format!("a {kind} needs code_configuration"),
            hint,
        );
    }
    let target = compute(&fields, "/properties/compute", "batch deployment");
    if let Some(id) = target.id {
        properties.insert("compute".into(), id);
    }
    settings(report, &fields, &mut properties, target.binding);
    properties.insert("properties".into(), own_properties(report, &fields).into());

    let tags = fields.texts("tags").unwrap_or_default();
    insert_if(&mut body, "/location", Some(location(&fields).into()));
    insert_if(&mut body, "/properties", Some(properties.into()));
    insert_if(&mut body, "/tags", Some(tags.into()));
    fields.read_only(&["id", "provisioning_state", "creation_context"]);
    let owned = |text: Option<super::fields::Text<'_>>| text.map(|text| text.text.to_owned());
    Built {
        name: owned(name),
        version: None,
        parent: owned(endpoint),
        body,
        effective: fields.done(ELSEWHERE),
    }
}

/// The folder with the code, and the file in it that has `init()` and `run()`; of batch and of online deployments.
pub(super) fn code_configuration(fields: &Fields<'_>, code_is_required: bool) -> Option<Json> {
    let section = fields.section("code_configuration")?;
    let mut body = Map::new();
    let code = code(&section, "/properties/codeConfiguration/codeId");
    if code_is_required && section.absent("code") {
        section.missing("code", "write the folder that holds the scoring script");
    }
    if let Some(code) = code {
        body.insert("codeId".into(), code);
    }
    match section.words("scoring_script") {
        Some(script) => {
            let path = script.text.replace('\\', "/");
            let outside =
                path.is_empty() || path.split('/').any(|part| part.is_empty() || part == "..");
            if outside {
                section.error(
                    script.at,
                    "scoring_script",
                    format!(
                        "scoring_script is a file inside code, not `{}`",
                        shown(&path)
                    ),
                );
            }
            body.insert("scoringScript".into(), path.trim_start_matches("./").into());
        }
        None if !section.absent("scoring_script") => {}
        None => section.missing(
            "scoring_script",
            "write the file inside code that has init() and run()",
        ),
    }
    fields.show("code_configuration", section.done(&[]));
    Some(body.into())
}

/// Reads the settings, wherever they stand, and the resources, which may come from three places.
fn settings(
    report: &Report<'_>,
    root: &Fields<'_>,
    properties: &mut Map<String, Json>,
    binding: Option<Json>,
) {
    let nested = root.has("settings");
    if nested {
        for key in SETTINGS.iter().filter(|key| root.has(key)) {
            let message = format!("{key} stands beside settings, not inside it");
            report.error_hint(
                root.key_at(key),
                key,
                message,
                format!("move it: settings.{key}"),
            );
        }
    }
    let inner = nested.then(|| root.section_or_empty("settings"));
    let settings = inner.as_ref().unwrap_or(root);

    let count = nested
        .then(|| settings.int("instance_count", limits::INSTANCES))
        .flatten();
    let in_settings = nested && !settings.absent("instance_count");
    let section = root.section("resources");
    let mut body = section.as_ref().map(resources::read);
    let in_resources = section
        .as_ref()
        .is_some_and(|section| !section.absent("instance_count"));
    if in_settings && in_resources {
        report.error_hint(
            settings.key_at("instance_count"),
            "settings.instance_count",
            "instance_count is given in settings and in resources",
            "keep resources.instance_count",
        );
    }
    let bound = binding
        .as_ref()
        .and_then(|binding| binding.get("instanceCount"));
    if let (Some(_), true) = (bound, in_settings || in_resources) {
        report.error_hint(
            root.key_at("compute"),
            "compute.instance_count",
            "instance_count is given in compute and elsewhere",
            "keep resources.instance_count",
        );
    }
    if let Some(count) = count {
        let body =
            body.get_or_insert_with(|| Map::from_iter([("properties".to_owned(), json!({}))]));
        body.insert("instanceCount".into(), count.into());
    }
    if let Some(Json::Object(binding)) = binding {
        let body =
            body.get_or_insert_with(|| Map::from_iter([("properties".to_owned(), json!({}))]));
        for (key, value) in binding {
            body.entry(key).or_insert(value);
        }
    }
    let counted = body
        .as_ref()
        .is_some_and(|body| body.contains_key("instanceCount"));
    match section {
        Some(section) => {
            if !counted {
                section.default_unless_written("instance_count", 1, DEFAULT);
            }
            root.show("resources", resources::done(section));
        }
        None if !counted => {
            let empty = root.section_or_empty("resources");
            empty.show_default("instance_count", 1, DEFAULT);
            root.show("resources", empty.all_known());
        }
        None => {}
    }
    if let Some(body) = body {
        properties.insert("resources".into(), body.into());
    }
    of_settings(report, root, settings, nested, properties);
    if let Some(inner) = inner {
        root.show(
            "settings",
            inner.done(&[
                (
                    "max_retries",
                    "did you mean settings.retry_settings.max_retries",
                ),
                ("timeout", "did you mean settings.retry_settings.timeout"),
            ]),
        );
    }
}

fn of_settings(
    report: &Report<'_>,
    root: &Fields<'_>,
    settings: &Fields<'_>,
    nested: bool,
    properties: &mut Map<String, Json>,
) {
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            properties.insert(key.to_owned(), value);
        }
    };
    let number = |key: &'static str, range, default: i64| {
        let value = settings.int(key, range);
        if value.is_none() {
            settings.default_unless_written(key, default, DEFAULT);
        }
        value.map(Json::from)
    };
    put(
        "maxConcurrencyPerInstance",
        number("max_concurrency_per_instance", limits::WORKERS, 1),
    );
    put(
        "miniBatchSize",
        number("mini_batch_size", limits::MINI_BATCH_SIZE, 10),
    );
    put(
        "errorThreshold",
        number("error_threshold", limits::ERROR_THRESHOLD, -1),
    );
    put(
        "loggingLevel",
        settings
            .choice_or("logging_level", LEVELS, "info", DEFAULT)
            .map(Json::from),
    );
    let action = settings.choice_or("output_action", ACTIONS, "append_row", DEFAULT);
    put("outputAction", action.map(Json::from));
    put("outputFileName", output_file(report, settings, action));

    let retries = settings.section_or_empty("retry_settings");
    let most = retries.int("max_retries", limits::RETRIES);
    let timeout = retries.int("timeout", limits::MINI_BATCH_SECONDS);
    retries.default_unless_written("max_retries", 3, DEFAULT);
    retries.default_unless_written("timeout", 30, DEFAULT);
    let mut body = Map::new();
    if let Some(most) = most {
        body.insert("maxRetries".into(), most.into());
    }
    if let Some(seconds) = timeout.and_then(|seconds| u64::try_from(seconds).ok()) {
        body.insert("timeout".into(), iso8601(seconds).into());
    }
    put("retrySettings", (!body.is_empty()).then(|| body.into()));
    settings.show("retry_settings", retries.done(&[]));

    // the older schema has the variables at the root in every form
    let outer = root.variables("environment_variables");
    let variables = if nested {
        let inner = settings.variables("environment_variables");
        if inner.is_some() && outer.is_some() {
            report.error_hint(
                root.key_at("environment_variables"),
                "environment_variables",
                "environment_variables is given at the root and in settings",
                "keep settings.environment_variables",
            );
        }
        inner.or(outer)
    } else {
        outer
    };
    put("environmentVariables", variables.map(Json::from));
}

fn output_file(report: &Report<'_>, settings: &Fields<'_>, action: Option<&str>) -> Option<Json> {
    let Some(text) = settings.text("output_file_name") else {
        if action != Some("SummaryOnly") {
            settings.default_unless_written("output_file_name", "predictions.csv", DEFAULT);
        }
        return None;
    };
    let path = settings.path_of("output_file_name");
    let name = text.text;
    let rule = if name.trim().is_empty() {
        Some("is empty".to_owned())
    } else if name.contains(['/', '\\']) {
        Some(format!(
            "is the name of a file, without folders, not `{}`",
            shown(name)
        ))
    } else if name == "." || name == ".." || name.chars().any(char::is_control) {
        Some(format!("is the name of a file, not `{}`", shown(name)))
    } else if name.len() > limits::FILE_NAME {
        Some(format!(
            "has {} bytes, allowed are {}",
            name.len(),
            limits::FILE_NAME
        ))
    } else {
        None
    };
    if let Some(rule) = rule {
        report.error(text.at, &path, format!("{path} {rule}"));
        return None;
    }
    if action == Some("SummaryOnly") {
        report.warn(
            text.at,
            &path,
            format!("{path} has no effect with output_action summary_only"),
        );
    }
    Some(name.into())
}

/// `properties:` with Zaffre's own keys checked. `{zaffre: {on_capacity_loss: wait}}` is the same as
/// `{zaffre.on_capacity_loss: wait}`, so that `--set properties.zaffre.on_capacity_loss=wait` works.
fn own_properties(report: &Report<'_>, root: &Fields<'_>) -> Map<String, Json> {
    let mut properties = Map::new();
    let Some(section) = root.section("properties") else {
        return properties;
    };
    for Entry { key, at, node } in section.entries() {
        let path = section.path_of(key);
        match &node.value {
            Value::Map(inner) if key == "zaffre" => {
                for entry in inner {
                    property(
                        report,
                        &mut properties,
                        &format!("zaffre.{}", entry.key),
                        entry,
                    );
                }
            }
            Value::Map(_) | Value::List(_) => section.wrong(node, key, "a text"),
            Value::Null => report.error_hint(
                *at,
                &path,
                format!("{path} has no value"),
                "write \"\" for an empty text",
            ),
            Value::Text { .. } => {
                let entry = Entry {
                    key: key.clone(),
                    at: *at,
                    node: node.clone(),
                };
                property(report, &mut properties, key, &entry);
            }
        }
    }
    section.all_known();
    root.show("properties", properties.clone());
    properties
}

fn property(report: &Report<'_>, properties: &mut Map<String, Json>, key: &str, entry: &Entry) {
    let path = format!("properties.{}", shown(key));
    let Some(text) = entry.node.text() else {
        report.error(entry.at, &path, format!("{path} has no value"));
        return;
    };
    if properties.contains_key(key) {
        report.error(entry.at, &path, format!("{path} is given twice"));
        return;
    }
    if key.to_ascii_lowercase().starts_with("zaffre.") {
        let Some((_, values)) = OWN.iter().find(|(own, _)| *own == key) else {
            let near = did_you_mean(key, OWN.iter().map(|(own, _)| *own))
                .map(|near| format!("did you mean {near}"));
            let all: Vec<&str> = OWN.iter().map(|(own, _)| *own).collect();
            let hint = near.unwrap_or_else(|| format!("known are {}", all.join(", ")));
            report.error_hint(
                entry.at,
                &path,
                format!("`{}` is not a property of zaffre", shown(key)),
                hint,
            );
            return;
        };
        let fine = if values.is_empty() {
            super::scalar::whole(text).is_ok_and(|number| limits::PREEMPTIONS.contains(&number))
        } else {
            values.contains(&text)
        };
        if !fine {
            let rule = if values.is_empty() {
                "a whole number of at least 0".to_owned()
            } else {
                values.join(" or ")
            };
            report.error(
                entry.node.at,
                &path,
                format!("{path} is {rule}, not `{}`", shown(text)),
            );
            return;
        }
    }
    properties.insert(key.to_owned(), text.into());
}
