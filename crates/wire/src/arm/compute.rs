//! Clusters: the body of `PUT computes/NAME` with `computeType: AmlCompute` ⇄ `ClusterSpec`.

use super::{Invalid, field::Field, time};
use crate::{
    names::{NameError, check_compute, compute_name_advice, shown},
    sizes,
};
use model::{ClusterSpec, Millis, NodePods, Size, Tier};
use serde_json::{Map, Value, json};

/// Nodes that a cluster may have at most: Azure's ceiling for clusters without MPI (§2.5.5).
pub const MAX_NODES: u32 = 65_000;
/// Nodes that Azure gives without asking; more is legal here, and warned about.
pub const AZURE_NODES: u32 = 100;
/// Idle time before a node is released, when nothing is said.
pub const DEFAULT_IDLE: Millis = Millis::secs(120);
/// Size of a node when nothing is said.
pub const DEFAULT_SIZE: &str = "Standard_DS3_v2";
/// A longer idle time than this keeps a node for ever in all but name.
const MAX_IDLE: Millis = Millis::secs(365 * 86_400);

/// The tag of a cluster with the Kubernetes compute whose pods its nodes are.
pub const KUBERNETES: &str = "zaffre.kubernetes";
/// The tag with the image of these pods.
pub const NODE_IMAGE: &str = "zaffre.node_image";
/// Their image when nothing is said: a Python, which environments are built on.
pub const DEFAULT_NODE_IMAGE: &str = "docker.io/library/python:3.12-slim";

const TIERS: [(&str, Tier); 3] = [
    ("Dedicated", Tier::Dedicated),
    ("LowPriority", Tier::LowPriority),
    // files write it so; the SDK turns it into the form above
    ("low_priority", Tier::LowPriority),
];
const SYSTEMS: [(&str, &str); 2] = [("Linux", "Linux"), ("Windows", "Windows")];
const ACCESS: [(&str, &str); 3] = [
    ("NotSpecified", "NotSpecified"),
    ("Enabled", "Enabled"),
    ("Disabled", "Disabled"),
];

/// A cluster as declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// What decisions need.
    pub spec: ClusterSpec,
    /// `properties.properties` with canonical enums and every default filled in; fields we do not know are kept.
    pub properties: Map<String, Value>,
    /// What will have no effect here.
    pub warnings: Vec<String>,
}

/// Reads the body of a cluster.
pub fn cluster(body: &Value) -> Result<Cluster, Invalid> {
    let outer = Field::root(body).get("properties").need_object()?;
    let inner = outer.get("properties").need_object()?;
    let mut warnings = Vec::new();
    let size = size(&inner.get("vmSize"), &mut warnings)?;
    let tier = inner
        .get("vmPriority")
        .choice(&TIERS)?
        .unwrap_or(Tier::Dedicated);
    let scale = inner.get("scaleSettings").need_object()?;
    let (min, max, idle) = scaling(&scale, &mut warnings)?;
    let system = inner.get("osType");
    if system.choice(&SYSTEMS)? == Some("Windows") {
        return Err(system.unsupported("is Windows, and nodes here run Linux"));
    }
    let access = inner
        .get("remoteLoginPortPublicAccess")
        .choice(&ACCESS)?
        .unwrap_or("NotSpecified");
    let public_ip = inner.get("enableNodePublicIp").flag()?.unwrap_or(true);
    without_effect(&inner, access, &mut warnings)?;

    let mut properties = inner.object()?.cloned().unwrap_or_default();
    properties.insert("vmSize".into(), json!(size.name.as_str()));
    if let Some(sent) = inner.get("vmSize").text()? {
        // shown as the user spelled it: scripts compare it with their own file
        properties.insert("vmSize".into(), json!(sent));
    }
    properties.insert("vmPriority".into(), json!(tier_word(tier)));
    let mut settings = scale.object()?.cloned().unwrap_or_default();
    settings.insert("maxNodeCount".into(), json!(max));
    settings.insert("minNodeCount".into(), json!(min));
    settings.insert(
        "nodeIdleTimeBeforeScaleDown".into(),
        json!(time::duration(idle)),
    );
    properties.insert("scaleSettings".into(), Value::Object(settings));
    properties.insert("remoteLoginPortPublicAccess".into(), json!(access));
    properties.insert("enableNodePublicIp".into(), json!(public_ip));
    properties.insert("osType".into(), json!("Linux"));
    Ok(Cluster {
        spec: ClusterSpec {
            size,
            tier,
            min,
            max,
            idle,
            pods: pods(body)?,
        },
        properties,
        warnings,
    })
}

/// Where the nodes come from: the tags that the stock SDK and `az ml` can write on a cluster.
fn pods(body: &Value) -> Result<Option<NodePods>, Invalid> {
    let tags = Field::root(body).get("tags").maybe_object()?;
    tags.known_only("zaffre.", &[KUBERNETES, NODE_IMAGE])?;
    let (at, image) = (tags.get(KUBERNETES), tags.get(NODE_IMAGE));
    let Some(kubernetes) = at.text()? else {
        return match image.text()? {
            Some(_) => Err(image.refuse(format!(
                "is given, but nodes run in an image only as pods: {KUBERNETES} is missing"
            ))),
            None => Ok(None),
        };
    };
    check_compute(kubernetes).map_err(|e| at.refuse(format!("names no compute: {e}")))?;
    let image = match image.text()? {
        Some("") => return Err(image.refuse("is empty")),
        Some(image) => image,
        None => DEFAULT_NODE_IMAGE,
    };
    Ok(Some(NodePods {
        kubernetes: kubernetes.into(),
        image: image.into(),
    }))
}

/// The rules of a cluster's name; the second value is advice.
pub fn name(name: &str) -> Result<Option<String>, NameError> {
    check_compute(name)?;
    Ok(compute_name_advice(name))
}

/// Azure's word for a tier.
pub fn tier_word(tier: Tier) -> &'static str {
    match tier {
        Tier::Dedicated => "Dedicated",
        Tier::LowPriority => "LowPriority",
    }
}

fn size(field: &Field<'_>, warnings: &mut Vec<String>) -> Result<Size, Invalid> {
    let name = field.text()?.unwrap_or(DEFAULT_SIZE);
    let Some(size) = sizes::find(name) else {
        return Err(field
            .refuse(format!("`{}` is not a known size", shown(name)))
            .hint(format!("the nearest is {}", sizes::nearest_to(name).name)));
    };
    if !size.cluster {
        return Err(field.refuse(format!("{} cannot be the size of a cluster", size.name)));
    }
    warnings.extend(size.retired_on());
    Ok(node_size(size))
}

/// A size of the catalogue as decisions see it.
pub fn node_size(size: &sizes::Size) -> Size {
    Size {
        name: size.name.into(),
        family: size.family.into(),
        cores: size.vcpus,
        memory: size.memory,
        gpus: size.gpus,
    }
}

fn scaling(scale: &Field<'_>, warnings: &mut Vec<String>) -> Result<(u32, u32, Millis), Invalid> {
    let most = scale.get("maxNodeCount");
    if most.value().is_none() {
        return Err(most.missing());
    }
    let max = most.count(0..=MAX_NODES, 0)?;
    let least = scale.get("minNodeCount");
    let min = least.count(0..=MAX_NODES, 0)?;
    if min > max {
        return Err(least.refuse(format!("{min} is above maxNodeCount {max}")));
    }
    if max > AZURE_NODES {
        warnings.push(format!(
            "maxNodeCount is {max}; Azure gives at most {AZURE_NODES} nodes to a cluster unless asked for more"
        ));
    }
    let field = scale.get("nodeIdleTimeBeforeScaleDown");
    let idle = field.duration()?.unwrap_or(DEFAULT_IDLE);
    if idle > MAX_IDLE {
        return Err(field.refuse(format!(
            "is {}, at most {} is allowed",
            time::duration(idle),
            time::duration(MAX_IDLE)
        )));
    }
    Ok((min, max, idle))
}

/// What Azure does with these, nodes here cannot do (A3).
fn without_effect(
    inner: &Field<'_>,
    access: &str,
    warnings: &mut Vec<String>,
) -> Result<(), Invalid> {
    let account = inner.get("userAccountCredentials").maybe_object()?;
    let password = account.get("adminUserPassword");
    if password.text()?.is_some_and(|p| !p.is_empty()) {
        return Err(password
            .unsupported(
                "is given, but nodes here have no ssh, and a password without use is not kept",
            )
            .hint("leave ssh_settings out"));
    }
    if account.value().is_some() || access == "Enabled" {
        warnings.push("nodes here have no ssh: userAccountCredentials and remoteLoginPortPublicAccess have no effect".into());
    }
    for key in ["subnet", "virtualMachineImage", "isolatedNetwork"] {
        let field = inner.get(key);
        if field.value().is_some_and(|v| *v != json!(false)) {
            warnings.push(format!("{key} has no effect here"));
        }
    }
    Ok(())
}
