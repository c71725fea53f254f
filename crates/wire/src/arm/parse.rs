//! The door: every document that a client PUTs passes here before anything is stored.

use super::{
    Invalid, asset, attached, batch, compute, datastore, field::Field, instance, kubernetes,
    link::body, online, pipeline, quota, target::Target,
};
use crate::{crd, names::shown};
use model::{Declared, DocKey, Document, Kind};
use serde_json::Value;
use std::sync::Arc;

/// Azure's limit of tags on a resource is 50; twice that is nobody's honest need.
const MAX_TAGS: usize = 100;
/// Azure's limit of a workspace's name.
const WORKSPACE_NAME: std::ops::RangeInclusive<usize> = 1..=64;

/// A document that may be stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// What decisions need of it.
    pub declared: Declared,
    /// What the user should know: fields without effect, texts that lost their spelling, retired sizes.
    pub warnings: Vec<String>,
}

/// Checks a document under its key. `before` is what is stored there now.
pub fn parse(key: &DocKey, body: &Value, before: Option<&Document>) -> Result<Parsed, Invalid> {
    let mut warnings = Vec::new();
    let tags = Field::root(body).maybe_object()?.get("tags");
    if let Some(map) = tags.object()?
        && map.len() > MAX_TAGS
    {
        return Err(tags.refuse(format!("has {} entries, allowed are {MAX_TAGS}", map.len())));
    }
    let path = key.path.as_str();
    let declared = match key.kind {
        Kind::Compute => {
            let advice =
                compute::name(path).map_err(|e| Invalid::validation("/name", e.to_string()))?;
            warnings.extend(advice);
            let (declared, more) = compute_of(path, body)?;
            warnings.extend(more);
            same_target(path, body, before)?;
            declared
        }
        Kind::Model | Kind::Environment | Kind::Data | Kind::Code | Kind::Component => {
            asset::version(key, body, before, &mut warnings)?;
            Declared::Other
        }
        Kind::BatchEndpoint => {
            batch::endpoint(path, body, &mut warnings)?;
            Declared::Other
        }
        Kind::BatchDeployment => {
            let (endpoint, name) = asset::name_and_version(path);
            crate::names::check_endpoint(endpoint)
                .map_err(|e| Invalid::validation("/name", e.to_string()))?;
            batch::deployment(name, body, &mut warnings)?;
            Declared::Other
        }
        Kind::Job => {
            pipeline::check(path, body, &mut warnings)?;
            Declared::Other
        }
        Kind::Workspace => {
            workspace(key, body, &mut warnings)?;
            Declared::Other
        }
        Kind::Quota => Declared::Quotas(Arc::new(quota::quotas(body)?)),
        Kind::InstanceType
        | Kind::Identity
        | Kind::RoleAssignment
        | Kind::RoleDefinition
        | Kind::Tracked => {
            return Err(Invalid::unsupported("/", "is no resource of this contract"));
        }
        Kind::Datastore => {
            datastore::datastore(path, body, before, &mut warnings)?;
            Declared::Other
        }
        Kind::OnlineEndpoint => {
            online::endpoint(path, body, &mut warnings)?;
            Declared::Other
        }
    };
    Ok(Parsed { declared, warnings })
}

/// What decisions need of a stored document: what `control` reads again on replay.
pub fn declared(document: &Document) -> Result<Declared, Invalid> {
    match document.key.kind {
        Kind::Compute => {
            let (declared, _) = compute_of(document.key.path.as_str(), &body(document)?)?;
            Ok(declared)
        }
        Kind::Quota => Ok(Declared::Quotas(Arc::new(quota::quotas(&body(document)?)?))),
        Kind::InstanceType => instance_type(&body(document)?),
        Kind::Workspace
        | Kind::Datastore
        | Kind::Code
        | Kind::Model
        | Kind::Environment
        | Kind::Data
        | Kind::Component
        | Kind::BatchEndpoint
        | Kind::BatchDeployment
        | Kind::Identity
        | Kind::RoleAssignment
        | Kind::RoleDefinition
        | Kind::OnlineEndpoint
        | Kind::Job
        | Kind::Tracked => Ok(Declared::Other),
    }
}

fn compute_of(name: &str, body: &Value) -> Result<(Declared, Vec<String>), Invalid> {
    Ok(match Target::read(name, body)? {
        Target::Kubernetes => {
            let compute = kubernetes::kubernetes(body)?;
            (
                Declared::Kubernetes(Arc::new(compute.spec)),
                compute.warnings,
            )
        }
        Target::AmlCompute => {
            let cluster = compute::cluster(body)?;
            (Declared::Cluster(Arc::new(cluster.spec)), cluster.warnings)
        }
        Target::ComputeInstance => {
            let instance = instance::instance(body)?;
            (
                Declared::Cluster(Arc::new(instance.spec)),
                instance.warnings,
            )
        }
        other => {
            attached::attached(other, body)?;
            let warning = format!("{other} computes are kept, but no work runs on them yet");
            (Declared::Other, vec![warning])
        }
    })
}

/// A compute never changes its kind: jobs and deployments know what they run on (`target` T1).
fn same_target(name: &str, after: &Value, before: Option<&Document>) -> Result<(), Invalid> {
    let Some(before) = before else { return Ok(()) };
    let (was, is) = (Target::of(&body(before)?), Target::of(after));
    match (was, is) {
        (Some(was), Some(is)) if was != is => Err(Invalid::conflict(
            "/properties/computeType",
            format!(
                "compute {} is of type {was} and cannot become {is}",
                shown(name)
            ),
        )
        .hint("delete it first")),
        _ => Ok(()),
    }
}

/// A stored type passed every rule when it was written; what a later version does not know of it is left aside.
fn instance_type(object: &Value) -> Result<Declared, Invalid> {
    let checked = crd::check(object, crd::Strictness::Ignore)
        .map_err(|refused| Invalid::validation("/", refused.to_string()))?;
    Ok(Declared::InstanceType(Arc::new(checked.instance_type)))
}

fn workspace(key: &DocKey, body: &Value, warnings: &mut Vec<String>) -> Result<(), Invalid> {
    let name = key.workspace.name.as_str();
    let legal = WORKSPACE_NAME.contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if !legal {
        return Err(Invalid::validation(
            "/name",
            format!(
                "workspace name `{}` is not {} to {} letters, digits, - and _, the first a letter or a digit",
                shown(name),
                WORKSPACE_NAME.start(),
                WORKSPACE_NAME.end()
            ),
        ));
    }
    let root = Field::root(body);
    root.get("tags").texts(warnings)?;
    root.get("location").text()?;
    let p = root.get("properties").maybe_object()?;
    p.get("friendlyName").text()?;
    p.get("description").text()?;
    const KINDS: [(&str, bool); 4] = [
        ("Default", true),
        ("Hub", false),
        ("Project", false),
        ("FeatureStore", false),
    ];
    let kind = root.get("kind");
    if kind.choice(&KINDS)? == Some(false) {
        return Err(kind.unsupported("of a workspace is Default, nothing else yet"));
    }
    Ok(())
}
