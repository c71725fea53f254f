//! Assets: models, environments, data and code, each a version `name/version`.

use super::{Invalid, component, field::Field};
use crate::{
    names::{self, check_asset, check_version, shown},
    places::{End, Place, Places},
};
use model::{DocKey, Document, Kind, run::Registration};
use serde_json::{Value, json};
use std::sync::Arc;

/// Longest conda file that is kept inside a document: 1 MiB, a hundred times the longest honest one.
const MAX_CONDA: usize = 1 << 20;

/// What a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelType {
    /// Files that the user's own script understands.
    Custom,
    /// An MLflow model: knows its packages and how it is scored.
    Mlflow,
    /// A Triton model repository.
    Triton,
}

impl ModelType {
    /// Azure's word.
    pub fn word(self) -> &'static str {
        match self {
            ModelType::Custom => "custom_model",
            ModelType::Mlflow => "mlflow_model",
            ModelType::Triton => "triton_model",
        }
    }
}

/// What a data asset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// One file.
    File,
    /// A folder.
    Folder,
    /// A folder with an `MLTable` file.
    Table,
}

const MODEL_TYPES: [(&str, ModelType); 3] = [
    ("custom_model", ModelType::Custom),
    ("mlflow_model", ModelType::Mlflow),
    ("triton_model", ModelType::Triton),
];
const DATA_TYPES: [(&str, DataType); 3] = [
    ("uri_file", DataType::File),
    ("uri_folder", DataType::Folder),
    ("mltable", DataType::Table),
];

/// The kind of document that a kind of reference points at.
pub fn document_kind(kind: names::Kind) -> Kind {
    match kind {
        names::Kind::Compute => Kind::Compute,
        names::Kind::Code => Kind::Code,
        names::Kind::Model => Kind::Model,
        names::Kind::Environment => Kind::Environment,
        names::Kind::Data => Kind::Data,
        names::Kind::Component => Kind::Component,
    }
}

/// Splits `name/version`.
pub fn name_and_version(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or((path, ""))
}

/// Checks the body of a version of an asset.
pub fn version(
    key: &DocKey,
    body: &Value,
    before: Option<&Document>,
    warnings: &mut Vec<String>,
) -> Result<(), Invalid> {
    let (name, version) = name_and_version(key.path.as_str());
    let word = word(key.kind);
    check_asset(word, name)
        .and_then(|()| check_version(version))
        .map_err(|e| Invalid::validation("/name", e.to_string()))?;
    let properties = Field::root(body).get("properties").need_object()?;
    common(&properties, warnings)?;
    let places = Places::of(&key.workspace);
    match key.kind {
        Kind::Model => {
            model_type(&properties)?;
            uri(&places, &properties.get("modelUri"))?;
        }
        Kind::Data => {
            data_type(&properties.get("dataType"))?;
            uri(&places, &properties.get("dataUri"))?;
        }
        Kind::Code => uri(&places, &properties.get("codeUri"))?,
        Kind::Environment => environment(&properties, warnings)?,
        Kind::Component => component::version(name, version, &properties, warnings)?,
        Kind::Workspace
        | Kind::Compute
        | Kind::Datastore
        | Kind::BatchEndpoint
        | Kind::BatchDeployment
        | Kind::OnlineEndpoint
        | Kind::Job
        | Kind::InstanceType
        | Kind::Identity
        | Kind::RoleAssignment
        | Kind::RoleDefinition
        | Kind::Tracked
        | Kind::Quota => {}
    }
    match before {
        Some(before) => unmoved(key.kind, before, &properties),
        None => Ok(()),
    }
}

/// The document of an asset that an output of a job has become: what a client would have sent for it.
pub fn registered(registration: &Registration<'_>) -> Arc<str> {
    let Registration {
        job,
        register,
        place,
        datastore,
        file,
    } = registration;
    let places = Places::of(job.workspace());
    let end = if *file { End::File } else { End::Folder };
    let uri = match datastore {
        Some(name) => Some(places.uri_in(name, place, end)),
        None => places.uri(place, end),
    };
    let properties = if register.kind == Kind::Model {
        json!({"modelUri": uri, "modelType": register.holds, "jobName": job.name()})
    } else {
        json!({"dataUri": uri, "dataType": register.holds})
    };
    json!({ "properties": properties }).to_string().into()
}

/// Tags and properties, which every asset has.
pub fn common(properties: &Field<'_>, warnings: &mut Vec<String>) -> Result<(), Invalid> {
    properties.get("tags").texts(warnings)?;
    properties.get("properties").maybe_object()?;
    properties.get("description").text()?;
    properties.get("isArchived").flag()?;
    Ok(())
}

/// The type of a model; files without one are `custom_model`.
pub fn model_type(properties: &Field<'_>) -> Result<ModelType, Invalid> {
    Ok(properties
        .get("modelType")
        .choice(&MODEL_TYPES)?
        .unwrap_or(ModelType::Custom))
}

/// The type of a data asset; `uri_folder` when nothing is said.
pub fn data_type(field: &Field<'_>) -> Result<DataType, Invalid> {
    Ok(field.choice(&DATA_TYPES)?.unwrap_or(DataType::Folder))
}

/// The address of an asset: it must mean something in this workspace already when it is declared.
fn uri(places: &Places, field: &Field<'_>) -> Result<(), Invalid> {
    let text = field.need_text()?;
    match places.locate(text) {
        Ok(Place::Blob(_) | Place::Attached { .. } | Place::Output { .. }) => Ok(()),
        Ok(Place::Asset { .. }) => Err(field.refuse(format!(
            "is `{}`, an asset; an asset lies at a path",
            shown(text)
        ))),
        Err(e) => Err(field.refuse(format!("cannot be used: {e}"))),
    }
}

fn environment(properties: &Field<'_>, warnings: &mut Vec<String>) -> Result<(), Invalid> {
    let image = properties.get("image");
    let build = properties.get("build").maybe_object()?;
    let conda = properties.get("condaFile");
    if let Some(text) = conda.text()?
        && text.len() > MAX_CONDA
    {
        return Err(conda.refuse(format!("has {} bytes, allowed are {MAX_CONDA}", text.len())));
    }
    if image.text()?.is_some() && build.value().is_some() {
        return Err(build.refuse("and image exclude each other"));
    }
    if image.value().is_none() && build.value().is_none() && conda.value().is_none() {
        return Err(properties.refuse("of an environment need image, condaFile or build"));
    }
    if build.value().is_some() {
        build.get("contextUri").need_text()?;
        warnings.push("an environment with a Dockerfile is kept, but not built yet: a job that uses it is refused".into());
    }
    const SYSTEMS: [(&str, bool); 2] = [("Linux", true), ("Windows", false)];
    let system = properties.get("osType");
    if system.choice(&SYSTEMS)? == Some(false) {
        return Err(system.unsupported("is Windows, and nodes here run Linux"));
    }
    Ok(())
}

/// A version never moves: other paths under the same version are refused in the words that the SDK looks for (wire §2).
fn unmoved(kind: Kind, before: &Document, after: &Field<'_>) -> Result<(), Invalid> {
    let moving: &[&str] = match kind {
        Kind::Model => &["modelUri", "modelType"],
        Kind::Data => &["dataUri", "dataType"],
        Kind::Code => &["codeUri"],
        Kind::Environment => &["image", "condaFile", "build"],
        Kind::Component => &["componentSpec"],
        Kind::Workspace
        | Kind::Compute
        | Kind::Datastore
        | Kind::BatchEndpoint
        | Kind::BatchDeployment
        | Kind::OnlineEndpoint
        | Kind::Job
        | Kind::InstanceType
        | Kind::Identity
        | Kind::RoleAssignment
        | Kind::RoleDefinition
        | Kind::Tracked
        | Kind::Quota => &[],
    };
    let old: Value = serde_json::from_str(&before.json).unwrap_or_default();
    let old = Field::root(&old).get("properties");
    for key in moving {
        let (was, is) = (old.get(key), after.get(key));
        let same = match (was.value(), is.value()) {
            (Some(Value::String(a)), Some(Value::String(b))) if key.ends_with("Uri") => {
                a.trim_end_matches('/') == b.trim_end_matches('/')
            }
            // an absent type is the default one, which the first write said or not
            (None, _) | (_, None) if key.ends_with("Type") => true,
            (Some(Value::String(a)), Some(Value::String(b))) if key.ends_with("Type") => {
                a.eq_ignore_ascii_case(b)
            }
            (Some(a), Some(b)) if kind == Kind::Component => component::same(a, b),
            (a, b) => a == b,
        };
        if !same && kind == Kind::Environment {
            // 409 makes the SDK, which tries the newest version first, go on with the next one
            return Err(Invalid::conflict(
                is.path(),
                format!(
                    "environment {} exists, and its {key} cannot be changed",
                    before.key.path.as_str().replacen('/', ":", 1)
                ),
            )
            .hint("create a new version"));
        }
        if !same {
            return Err(Invalid::user(is.path(), "Asset paths cannot be updated.")
                .hint("create a new version"));
        }
    }
    Ok(())
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Model => "model",
        Kind::Data => "data",
        Kind::Code => "code",
        Kind::Environment => "environment",
        Kind::Component => "component",
        Kind::Workspace => "workspace",
        Kind::Compute => "compute",
        Kind::Datastore => "datastore",
        Kind::BatchEndpoint => "endpoint",
        Kind::BatchDeployment => "deployment",
        Kind::OnlineEndpoint => "endpoint",
        Kind::Job => "job",
        Kind::InstanceType => "instance type",
        Kind::Identity => "identity",
        Kind::RoleAssignment => "role assignment",
        Kind::RoleDefinition => "role definition",
        Kind::Tracked => "tracked item",
        Kind::Quota => "quota",
    }
}
