//! Models, environments and data assets, as files of their own and written inside a job or a deployment.

use super::{
    draft::{AssetKind, LocalAsset, put},
    emit,
    fields::{Choice, Fields},
    limits,
    load::Built,
    reference::{AssetPath, asset_path, inline_asset, refer},
    report::{At, Report, Source},
    text,
    tree::{self, Node, Value},
};
use crate::names::{Kind, check_asset, check_version, shown};
use serde_json::{Map, Value as Json, json};

const MODEL_DEFAULT: &str = "Azure ML YAML reference, model";
const ENVIRONMENT_DEFAULT: &str = "Azure ML YAML reference, environment";
const DATA_DEFAULT: &str = "Azure ML YAML reference, data";

/// Model types; the document spells them as the file does.
pub(super) const MODEL_TYPES: &[Choice] = &[
    ("custom_model", "custom_model"),
    ("mlflow_model", "mlflow_model"),
    ("triton_model", "triton_model"),
];
const DATA_TYPES: &[Choice] = &[
    ("uri_folder", "uri_folder"),
    ("uri_file", "uri_file"),
    ("mltable", "mltable"),
];
const OS_TYPES: &[Choice] = &[("linux", "Linux"), ("windows", "Windows")];
const DELETE_CONDITIONS: &[Choice] = &[
    ("created_greater_than", "CreatedGreaterThan"),
    ("last_accessed_greater_than", "LastAccessedGreaterThan"),
];
/// Keys that only the server writes.
const WRITTEN_BY_SERVER: &[&str] = &[
    "id",
    "creation_context",
    "latest_version",
    "job_name",
    "utc_time_created",
    "intellectual_property",
];

/// Is the asset a file of its own, or written inside another file?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Own,
    Inside,
}

/// A model file.
pub(super) fn model(report: &Report<'_>, fields: Fields<'_>) -> Built {
    let (asset, effective) = read_model(fields, Form::Own);
    if let Some(path) = &asset.upload {
        let mut local =
            LocalAsset::new("/properties/modelUri", AssetKind::Model, Some(path.clone()));
        local.datastore = asset.datastore.clone();
        inline_asset(report, local);
    }
    built(asset, effective)
}

/// A data file.
pub(super) fn data(report: &Report<'_>, fields: Fields<'_>) -> Built {
    common(&fields);
    let (name, version) = identity(&fields, "data");
    let mut properties = described(&fields, Form::Own);
    let kind = fields
        .choice_or("type", DATA_TYPES, "uri_folder", DATA_DEFAULT)
        .unwrap_or("uri_folder");
    if kind == "mltable" {
        report.unsupported("mltable data");
    }
    let datastore = fields.words("datastore").map(|text| text.text.to_owned());
    match asset_path(&fields, "path") {
        None if fields.absent("path") => fields.missing(
            "path",
            "write path: ./folder or an azureml://datastores/… address",
        ),
        None => {}
        Some((AssetPath::Registered(text), at)) => {
            let message = format!(
                "path is a file, a folder or an address, not the asset {}",
                shown(&text)
            );
            fields.error(at.at, "path", message);
        }
        Some((AssetPath::Uri(uri), _)) => {
            properties.insert("dataUri".into(), uri.into());
        }
        Some((AssetPath::Upload(path), _)) => {
            let mut local = LocalAsset::new("/properties/dataUri", AssetKind::Data, Some(path));
            local.datastore = datastore;
            inline_asset(report, local);
        }
    }
    properties.insert("dataType".into(), kind.into());
    auto_delete(&fields, &mut properties);
    fields.read_only(WRITTEN_BY_SERVER);
    Built {
        name,
        version,
        parent: None,
        body: json!({ "properties": properties }),
        effective: fields.done(&[]),
    }
}

/// An environment file.
pub(super) fn environment(report: &Report<'_>, fields: Fields<'_>) -> Built {
    let (asset, effective) = read_environment(report, fields, Form::Own);
    if let Some(path) = &asset.upload {
        let mut local = LocalAsset::new(
            "/properties/build/contextUri",
            AssetKind::BuildContext,
            Some(path.clone()),
        );
        local.datastore = asset.datastore.clone();
        inline_asset(report, local);
    }
    built(asset, effective)
}

/// `model:` of a deployment: a reference, or a map with `path`. Gives the value for `assetId`.
pub(super) fn model_of<'r>(fields: &Fields<'r>, pointer: &str) -> Option<ModelOf> {
    let entry = fields.entry("model")?;
    if entry.node.text().is_some() {
        let text = fields.words("model")?;
        if !crate::names::is_reference(text.text) {
            let hint = "write azureml:NAME:VERSION, azureml:NAME@latest, or for a local model a map: {path: ./model, type: mlflow_model}";
            let message = format!("model is a reference or a map, not `{}`", shown(text.text));
            fields.report.error_hint(text.at, "model", message, hint);
            return None;
        }
        let id = refer(fields.report, text, "model", Kind::Model, pointer)?;
        return Some(ModelOf {
            id: Some(id),
            kind: None,
        });
    }
    let section = fields.section("model")?;
    let (asset, effective) = read_model(section, Form::Inside);
    fields.show("model", effective);
    if let Some((text, at)) = asset.registered {
        let text = super::fields::Text {
            text: &text,
            plain: true,
            at,
        };
        let id = refer(fields.report, text, "model.path", Kind::Model, pointer)?;
        return Some(ModelOf {
            id: Some(id),
            kind: None,
        });
    }
    let mut local = LocalAsset::new(pointer, AssetKind::Model, asset.upload);
    local.upload_pointer = local
        .path
        .is_some()
        .then(|| "/properties/modelUri".to_owned());
    local.body = Some(asset.body);
    local.name = asset.name;
    local.version = asset.version;
    local.datastore = asset.datastore;
    inline_asset(fields.report, local);
    Some(ModelOf {
        id: None,
        kind: Some(asset.kind),
    })
}

/// The model of a deployment.
pub(super) struct ModelOf {
    /// Reference for the document; absent for a model that is made first.
    pub id: Option<Json>,
    /// Type, when the model is written inside the file.
    pub kind: Option<&'static str>,
}

/// `environment:` of a job or a deployment: a reference, or a map. Gives the value for the document.
pub(super) fn environment_of(fields: &Fields<'_>, pointer: &str) -> Option<Option<Json>> {
    let entry = fields.entry("environment")?;
    if entry.node.text().is_some() {
        let text = fields.words("environment")?;
        if !crate::names::is_reference(text.text) {
            let hint = format!(
                "write azureml:NAME:VERSION, azureml:NAME@latest, or for an image a map: {{image: {}}}",
                shown(text.text)
            );
            let message = format!(
                "environment is a reference or a map, not `{}`",
                shown(text.text)
            );
            fields
                .report
                .error_hint(text.at, "environment", message, hint);
            return None;
        }
        return refer(
            fields.report,
            text,
            "environment",
            Kind::Environment,
            pointer,
        )
        .map(Some);
    }
    let section = fields.section("environment")?;
    let (asset, effective) = read_environment(fields.report, section, Form::Inside);
    fields.show("environment", effective);
    let mut local = LocalAsset::new(pointer, AssetKind::Environment, asset.upload);
    local.upload_pointer = local
        .path
        .is_some()
        .then(|| "/properties/build/contextUri".to_owned());
    local.body = Some(asset.body);
    local.datastore = asset.datastore;
    inline_asset(fields.report, local);
    Some(None)
}

/// An asset that has been read.
struct Asset {
    name: Option<String>,
    version: Option<String>,
    body: Json,
    kind: &'static str,
    upload: Option<String>,
    registered: Option<(String, At)>,
    datastore: Option<String>,
}

fn built(asset: Asset, effective: Map<String, Json>) -> Built {
    Built {
        name: asset.name,
        version: asset.version,
        parent: None,
        body: asset.body,
        effective,
    }
}

fn read_model(fields: Fields<'_>, form: Form) -> (Asset, Map<String, Json>) {
    common(&fields);
    let (name, version) = if form == Form::Own {
        identity(&fields, "model")
    } else {
        names(&fields, "model")
    };
    let mut properties = described(&fields, form);
    let datastore = fields.words("datastore").map(|text| text.text.to_owned());
    let kind = fields
        .choice_or("type", MODEL_TYPES, "custom_model", MODEL_DEFAULT)
        .unwrap_or("custom_model");
    properties.insert("modelType".into(), kind.into());
    let (mut upload, mut registered) = (None, None);
    match asset_path(&fields, "path") {
        None if fields.absent("path") => {
            fields.missing("path", "write path: ./model or an azureml:// address")
        }
        None => {}
        Some((AssetPath::Uri(uri), _)) => {
            properties.insert("modelUri".into(), uri.into());
        }
        Some((AssetPath::Upload(path), _)) => upload = Some(path),
        Some((AssetPath::Registered(text), at)) if form == Form::Inside => {
            registered = Some((text, at.at))
        }
        Some((AssetPath::Registered(text), at)) => {
            let message = format!(
                "path is a file, a folder or an address, not the asset {}",
                shown(&text)
            );
            fields.error(at.at, "path", message);
        }
    }
    if let Some(stage) = fields.words("stage") {
        properties.insert("stage".into(), stage.text.into());
    }
    if let Some(Json::Object(flavors)) = fields.bag("flavors") {
        let flavors: Map<String, Json> = flavors
            .into_iter()
            .map(|(name, data)| (name, json!({ "data": data })))
            .collect();
        properties.insert("flavors".into(), flavors.into());
    }
    if let Some(bag) = fields.bag("system_metadata") {
        properties.insert("systemMetadata".into(), bag);
    }
    templates(&fields, &mut properties);
    fields.read_only(WRITTEN_BY_SERVER);
    let asset = Asset {
        name,
        version,
        body: json!({ "properties": properties }),
        kind,
        upload,
        registered,
        datastore,
    };
    (asset, fields.done(&[]))
}

fn templates(fields: &Fields<'_>, properties: &mut Map<String, Json>) {
    if let Some(template) = fields.section("default_deployment_template") {
        if let Some(id) = template.words("asset_id") {
            properties.insert(
                "defaultDeploymentTemplate".into(),
                json!({ "assetId": id.text }),
            );
        }
        fields.show("default_deployment_template", template.done(&[]));
    }
    let Some(entry) = fields.entry("allowed_deployment_templates") else {
        return;
    };
    let Value::List(items) = &entry.node.value else {
        fields.wrong(&entry.node, "allowed_deployment_templates", "a list");
        return;
    };
    let mut ids = Vec::new();
    for item in items {
        if let Some(template) = fields.inner(item, "allowed_deployment_templates") {
            if let Some(id) = template.words("asset_id") {
                ids.push(json!({ "assetId": id.text }));
            }
            template.done(&[]);
        }
    }
    properties.insert("allowedDeploymentTemplates".into(), ids.into());
}

fn read_environment(
    report: &Report<'_>,
    fields: Fields<'_>,
    form: Form,
) -> (Asset, Map<String, Json>) {
    common(&fields);
    let (name, version) = match form {
        Form::Own => identity(&fields, "environment"),
        Form::Inside => {
            if let (Some(_), _) | (_, Some(_)) = names(&fields, "environment") {
                let path = fields.path_of("name");
                report.warn(
                    fields.at,
                    &path,
                    "an environment inside a file is anonymous: its name and version are not used",
                );
            }
            (None, None)
        }
    };
    let mut properties = described(&fields, form);
    // the SDK sends neither for an environment that has none
    properties
        .retain(|key, value| !matches!(key.as_str(), "tags" | "properties") || *value != json!({}));
    let image = fields.words("image");
    if let Some(image) = image {
        if let Some(c) = image
            .text
            .chars()
            .find(|c| c.is_whitespace() || c.is_control())
        {
            fields.error(
                image.at,
                "image",
                format!(
                    "{} holds `{}`, which no image name has",
                    fields.path_of("image"),
                    c.escape_debug()
                ),
            );
        }
        properties.insert("image".into(), image.text.into());
    }
    let upload = build(&fields, &mut properties);
    if !fields.absent("build") && !fields.absent("image") {
        let path = fields.path_of("build");
        report.error_hint(
            fields.key_at("build"),
            &path,
            "an environment has image or build, not both",
            "remove one of them",
        );
    }
    if let Some(entry) = fields.entry("conda_file") {
        if let Some(conda) = conda(report, &fields, &entry.node) {
            fields.show("conda_file", conda.clone());
            let mut sorted = conda;
            sorted.sort_all_objects();
            properties.insert("condaFile".into(), emit::yaml(&sorted, &|_| None).into());
        }
        if fields.absent("image") {
            let path = fields.path_of("conda_file");
            report.error_hint(
                entry.at,
                &path,
                format!("{path} needs image beside it"),
                "write the base image, for example image: library/python:3.11",
            );
        }
    } else if fields.absent("image") && fields.absent("build") {
        fields.missing("image", "write image: NAME, or build: {path: ./context}");
    }
    let os = fields.choice_or("os_type", OS_TYPES, "linux", ENVIRONMENT_DEFAULT);
    if let Some(os) = os {
        properties.insert("osType".into(), os.into());
    }
    if os == Some("Windows") {
        report.unsupported("windows environments");
    }
    routes(&fields, &mut properties);
    let datastore = fields.words("datastore").map(|text| text.text.to_owned());
    auto_delete(&fields, &mut properties);
    fields.read_only(WRITTEN_BY_SERVER);
    let asset = Asset {
        name,
        version,
        body: json!({ "properties": properties }),
        kind: "environment",
        upload,
        registered: None,
        datastore,
    };
    let hints = [
        (
            "dependencies",
            "packages stand in the file that conda_file names, or under conda_file",
        ),
        (
            "channels",
            "channels stand in the file that conda_file names, or under conda_file",
        ),
    ];
    (asset, fields.done(&hints))
}

fn build(fields: &Fields<'_>, properties: &mut Map<String, Json>) -> Option<String> {
    let section = fields.section("build")?;
    let mut body = Map::new();
    let mut upload = None;
    match asset_path(&section, "path") {
        None if section.absent("path") => {
            section.missing("path", "write the folder that holds the Dockerfile")
        }
        None => {}
        Some((AssetPath::Upload(path), _)) => upload = Some(path),
        Some((AssetPath::Uri(uri), _)) => {
            body.insert("contextUri".into(), uri.into());
        }
        Some((AssetPath::Registered(text), at)) => {
            section.error(
                at.at,
                "path",
                format!("build.path is a folder, not the asset {}", shown(&text)),
            );
        }
    }
    match section.words("dockerfile_path") {
        Some(path) => {
            body.insert("dockerfilePath".into(), path.text.replace('\\', "/").into());
        }
        None => {
            section.default_unless_written("dockerfile_path", "Dockerfile", ENVIRONMENT_DEFAULT)
        }
    }
    fields.show("build", section.done(&[]));
    properties.insert("build".into(), body.into());
    upload
}

/// The conda file, from a path beside the file or written inside it.
fn conda(report: &Report<'_>, fields: &Fields<'_>, node: &Node) -> Option<Json> {
    let path = fields.path_of("conda_file");
    let Some(written) = node.text() else {
        return checked_conda(report, node, &path);
    };
    let name = match super::reference::locate(written) {
        Ok(super::reference::Spot::Local(name)) => name,
        Ok(_) => {
            report.error(
                node.at,
                &path,
                format!(
                    "{path} is a file beside this one or a map, not the address {}",
                    shown(written)
                ),
            );
            return None;
        }
        Err(message) => {
            report.error(node.at, &path, message);
            return None;
        }
    };
    let bytes = match (report.files)(&name) {
        Ok(bytes) => bytes,
        Err(reason) => {
            report.error(
                node.at,
                &path,
                format!(
                    "{path} names {}, which cannot be read: {reason}",
                    shown(&name)
                ),
            );
            return None;
        }
    };
    let read = text::decode(&bytes)
        .map_err(|no| (no.line, no.column, no.message, no.hint))
        .map(str::to_owned);
    let source = report.source(Source::File {
        name: name.clone(),
        text: read.clone().unwrap_or_default(),
    });
    let parsed = read.and_then(|text| {
        tree::parse(&text, source).map_err(|no| (no.at.line, no.at.column, no.message, no.hint))
    });
    match parsed {
        Ok(node) => checked_conda(report, &node, &path),
        Err((line, column, message, hint)) => {
            report.error_with(
                At {
                    source,
                    line,
                    column,
                },
                &path,
                message,
                hint,
            );
            None
        }
    }
}

/// A conda file is a map with a list of packages; every package is a text, or `pip:` with a list of texts.
fn checked_conda(report: &Report<'_>, node: &Node, path: &str) -> Option<Json> {
    let Value::Map(_) = &node.value else {
        report.error(
            node.at,
            path,
            format!(
                "a conda file is a map with dependencies, not {}",
                super::fields::described(node)
            ),
        );
        return None;
    };
    let Some(entry) = node.get("dependencies") else {
        return Some(as_written(node));
    };
    let Value::List(packages) = &entry.node.value else {
        let message = format!(
            "dependencies of a conda file is a list, not {}",
            super::fields::described(&entry.node)
        );
        report.error(entry.node.at, path, message);
        return None;
    };
    for package in packages {
        let fine = match &package.value {
            Value::Text { .. } => true,
            Value::Map(entries) => entries.iter().all(|entry| {
                matches!(&entry.node.value, Value::List(items) if entry.key == "pip" && items.iter().all(|item| item.text().is_some()))
            }),
            _ => false,
        };
        if !fine {
            let message = "a package of a conda file is a text, or pip: with a list of texts";
            report.error(package.at, path, message);
            return None;
        }
    }
    Some(as_written(node))
}

/// JSON in which every scalar is the text that was written.
fn as_written(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Text { text, .. } => Json::from(text.as_str()),
        Value::List(items) => items.iter().map(as_written).collect(),
        Value::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|entry| (entry.key.clone(), as_written(&entry.node)))
                .collect(),
        ),
    }
}

fn routes(fields: &Fields<'_>, properties: &mut Map<String, Json>) {
    let Some(section) = fields.section("inference_config") else {
        return;
    };
    let mut body = Map::new();
    for (key, wire) in [
        ("liveness_route", "livenessRoute"),
        ("readiness_route", "readinessRoute"),
        ("scoring_route", "scoringRoute"),
    ] {
        let Some(route) = section.section(key) else {
            if section.absent(key) {
                section.missing(
                    key,
                    "write the three routes, each as {path: /p, port: 5001}",
                );
            }
            continue;
        };
        let path = route.words("path").map(|text| text.text.to_owned());
        let port = route.int("port", limits::PORTS);
        if path.is_none() && route.absent("path") {
            route.missing("path", "write the path, for example /score");
        }
        if port.is_none() && route.absent("port") {
            route.missing("port", "write the port, for example 5001");
        }
        section.show(key, route.done(&[]));
        body.insert(wire.into(), json!({ "path": path, "port": port }));
    }
    fields.show("inference_config", section.done(&[]));
    properties.insert("inferenceConfig".into(), body.into());
}

fn auto_delete(fields: &Fields<'_>, properties: &mut Map<String, Json>) {
    let Some(section) = fields.section("auto_delete_setting") else {
        return;
    };
    let condition = section.choice("condition", DELETE_CONDITIONS);
    let value = section.words("value").map(|text| text.text.to_owned());
    fields.show("auto_delete_setting", section.done(&[]));
    properties.insert(
        "autoDeleteSetting".into(),
        json!({ "condition": condition, "value": value }),
    );
    fields.report.unsupported("auto_delete_setting");
}

/// Keys that every asset takes and that are not sent.
fn common(fields: &Fields<'_>) {
    fields.has("$schema");
}

/// The properties that every asset has.
fn described(fields: &Fields<'_>, form: Form) -> Map<String, Json> {
    let mut properties = Map::new();
    let description = fields.text("description").map(|text| Json::from(text.text));
    let tags = fields.texts("tags").unwrap_or_default();
    let more = fields.texts("properties").unwrap_or_default();
    if let Some(description) = description {
        properties.insert("description".into(), description);
    }
    properties.insert("tags".into(), tags.into());
    properties.insert("properties".into(), more.into());
    properties.insert("isAnonymous".into(), (form == Form::Inside).into());
    properties.insert("isArchived".into(), false.into());
    properties
}

/// Name and version of an asset file; the name must be there.
fn identity(fields: &Fields<'_>, what: &'static str) -> (Option<String>, Option<String>) {
    let (name, version) = names(fields, what);
    if fields.absent("name") {
        fields.missing("name", "write name: NAME, or give --name");
    }
    (name, version)
}

fn names(fields: &Fields<'_>, what: &'static str) -> (Option<String>, Option<String>) {
    let name = fields
        .name("name", |name| check_asset(what, name))
        .map(|text| text.text.to_owned());
    let version = fields
        .name("version", check_version)
        .map(|text| text.text.to_owned());
    (name, version)
}

/// Removes a value that must not be sent when it was not given.
pub(super) fn insert_if(body: &mut Json, pointer: &str, value: Option<Json>) {
    if let Some(value) = value {
        put(body, pointer, value);
    }
}
