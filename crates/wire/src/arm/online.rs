//! Online endpoints and their deployments: the bodies of `PUT onlineEndpoints/E` and `PUT onlineEndpoints/E/deployments/D`.
//!
//! O1 a deployment gets what its `resources` ask for, checked against its instance type, else what the type
//!    gives;
//! O2 an amount is compared exactly as it was written.

use super::{Invalid, asset::ModelType, asset::common, compute::MAX_NODES, field::Field};
use crate::{
    names::{check_deployment, check_endpoint, shown},
    quantity::Quantity,
    sizes,
};
use model::{Bytes, InstanceType, MilliCpu, Millis, instance_type::GPU};
use serde_json::Value;

/// Azure's limit of one scoring request: managed, and on Kubernetes (§2.3.4).
const MANAGED_TIMEOUT: Millis = Millis::secs(180);
const KUBERNETES_TIMEOUT: Millis = Millis::secs(300);
/// Smallest memory request (R-40, D-5).
const LEAST_MEMORY: Bytes = Bytes(1_000_000);
/// What an MLflow model needs (R-36, D-4).
const MLFLOW_CPU: MilliCpu = MilliCpu(2000);
/// The same, memory: 4 GB.
const MLFLOW_MEMORY: Bytes = Bytes(4_000_000_000);
/// Weights are percents.
const WHOLE: i64 = 100;
/// Most of a mirror (§2.1.10).
const MOST_MIRRORED: i64 = 50;
/// Instances of a managed deployment: Azure's limit (§2.3.4).
const MANAGED_INSTANCES: i64 = 50;
/// REST numbers are signed 32-bit.
const MAX_INT: i64 = i32::MAX as i64;
/// Names of an endpoint and a deployment on Kubernetes together (§2.1.10).
const MOST_TOGETHER: usize = 62;

/// Where the keys of an endpoint lie in its document, sealed: `listKeys` shows them and nothing else does.
pub const KEYS: [&str; 2] = [
    "/properties/zaffre.keys/primaryKey",
    "/properties/zaffre.keys/secondaryKey",
];
/// The member that holds them.
pub const KEYS_MEMBER: &str = "zaffre.keys";

/// How a caller shows who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// By one of two keys.
    Key,
    /// By a token that the endpoint gives.
    AmlToken,
    /// By a token of the directory.
    AadToken,
}

const AUTH: [(&str, AuthMode); 5] = [
    ("Key", AuthMode::Key),
    ("AMLToken", AuthMode::AmlToken),
    ("AADToken", AuthMode::AadToken),
    // files write these; the SDK turns them into the forms above
    ("aml_token", AuthMode::AmlToken),
    ("aad_token", AuthMode::AadToken),
];

impl AuthMode {
    /// Azure's word.
    pub fn word(self) -> &'static str {
        match self {
            AuthMode::Key => "Key",
            AuthMode::AmlToken => "AMLToken",
            AuthMode::AadToken => "AADToken",
        }
    }
    /// What a body says; keys when it says nothing.
    pub fn of(body: &Value) -> AuthMode {
        let field = Field::root(body).get("properties").get("authMode");
        field.choice(&AUTH).ok().flatten().unwrap_or(AuthMode::Key)
    }
}

/// Checks an endpoint.
pub fn endpoint(name: &str, body: &Value, warnings: &mut Vec<String>) -> Result<(), Invalid> {
    check_endpoint(name).map_err(|e| Invalid::validation("/name", e.to_string()))?;
    let root = Field::root(body);
    root.get("tags").texts(warnings)?;
    let p = root.get("properties").need_object()?;
    p.get("description").text()?;
    p.get("properties").maybe_object()?;
    let auth = p.get("authMode");
    let mode = auth.choice(&AUTH)?.unwrap_or(AuthMode::Key);
    if mode == AuthMode::AadToken && p.get("compute").text()?.is_some_and(|c| !c.is_empty()) {
        return Err(auth.refuse("AADToken is for managed endpoints only, and compute is given"));
    }
    const ACCESS: [(&str, ()); 2] = [("Enabled", ()), ("Disabled", ())];
    p.get("publicNetworkAccess").choice(&ACCESS)?;
    let traffic = weights(&p.get("traffic"), WHOLE)?;
    if traffic != 0 && traffic != WHOLE {
        return Err(p
            .get("traffic")
            .refuse(format!("adds up to {traffic}, it must be 0 or {WHOLE}")));
    }
    let mirror = p.get("mirrorTraffic");
    if weights(&mirror, MOST_MIRRORED)? > MOST_MIRRORED {
        return Err(mirror.refuse(format!("is above {MOST_MIRRORED}")));
    }
    if mirror.object()?.is_some_and(|m| m.len() > 1) {
        return Err(mirror.refuse("goes to one deployment"));
    }
    Ok(())
}

fn weights(field: &Field<'_>, most: i64) -> Result<i64, Invalid> {
    let mut sum = 0;
    for (_, weight) in field.entries()? {
        sum += weight.whole(0..=most)?.unwrap_or(0);
    }
    Ok(sum)
}

/// The deployments that a body gives traffic to, by name.
pub fn deployments_with_traffic(body: &Value) -> Vec<String> {
    let p = Field::root(body).get("properties");
    let mut names = Vec::new();
    for member in ["traffic", "mirrorTraffic"] {
        for (name, weight) in p.get(member).entries().unwrap_or_default() {
            if weight.value().and_then(Value::as_i64).unwrap_or(0) > 0 {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Where a deployment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Machines that are given with the deployment.
    Managed,
    /// Pods of a Kubernetes compute.
    Kubernetes,
}

/// What a deployment says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// Where.
    pub place: Place,
    /// Model as named.
    pub model: Option<String>,
    /// Instance type or size as named.
    pub instance_type: Option<String>,
}

/// Reads a deployment; what its resources mean is checked by `effective`, against its type.
pub fn deployment(
    endpoint: &str,
    name: &str,
    body: &Value,
    warnings: &mut Vec<String>,
) -> Result<Deployment, Invalid> {
    check_deployment(name).map_err(|e| Invalid::validation("/name", e.to_string()))?;
    let root = Field::root(body);
    root.get("tags").texts(warnings)?;
    let p = root.get("properties").need_object()?;
    common(&p, warnings)?;
    const PLACES: [(&str, Place); 3] = [
        ("Managed", Place::Managed),
        ("Kubernetes", Place::Kubernetes),
        ("K8S", Place::Kubernetes),
    ];
    let place = p.get("endpointComputeType");
    let Some(place) = place.choice(&PLACES)? else {
        return Err(place.missing());
    };
    if place == Place::Kubernetes && endpoint.len() + name.len() > MOST_TOGETHER {
        return Err(Invalid::validation(
            "/name",
            format!(
                "names {} and {} have {} characters together, at most {MOST_TOGETHER} are allowed on Kubernetes",
                shown(endpoint),
                shown(name),
                endpoint.len() + name.len()
            ),
        ));
    }
    let capacity = root.get("sku").maybe_object()?.get("capacity");
    let most = match place {
        Place::Managed => MANAGED_INSTANCES,
        Place::Kubernetes => i64::from(MAX_NODES),
    };
    capacity.whole(1..=most)?;
    p.get("environmentVariables").variables(warnings)?;
    p.get("appInsightsEnabled").flag()?;
    requests(&p.get("requestSettings").maybe_object()?, place)?;
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = p.get(probe).maybe_object()?;
        for time in ["initialDelay", "period", "timeout"] {
            probe.get(time).duration()?;
        }
        for count in ["successThreshold", "failureThreshold"] {
            probe.get(count).whole(1..=MAX_INT)?;
        }
    }
    scaling(&p.get("scaleSettings").maybe_object()?, place)?;
    let code = p.get("codeConfiguration").maybe_object()?;
    if code.value().is_some() {
        code.get("scoringScript").need_text()?;
    }
    let instance_type = p.get("instanceType");
    let named = instance_type.text()?.filter(|t| !t.is_empty());
    if let (Place::Managed, Some(size)) = (place, named) {
        let found = sizes::find(size).ok_or_else(|| {
            instance_type
                .refuse(format!("`{}` is not a known size", shown(size)))
                .hint(format!("the nearest is {}", sizes::nearest_to(size).name))
        })?;
        if !found.managed_online {
            return Err(instance_type.refuse(format!(
                "{} cannot be the size of a managed online deployment",
                found.name
            )));
        }
    }
    let resources = p.get("containerResourceRequirements");
    if place == Place::Managed && resources.value().is_some() {
        return Err(resources.refuse("is for deployments on Kubernetes only"));
    }
    Ok(Deployment {
        place,
        model: p.get("model").text()?.map(str::to_owned),
        instance_type: named.map(str::to_owned),
    })
}

fn requests(field: &Field<'_>, place: Place) -> Result<(), Invalid> {
    let timeout = field.get("requestTimeout");
    let most = match place {
        Place::Managed => MANAGED_TIMEOUT,
        Place::Kubernetes => KUBERNETES_TIMEOUT,
    };
    if timeout.duration()?.is_some_and(|t| t > most) {
        return Err(timeout.refuse(format!("is above {}", super::time::duration(most))));
    }
    field.get("maxQueueWait").duration()?;
    field
        .get("maxConcurrentRequestsPerInstance")
        .whole(1..=MAX_INT)?;
    Ok(())
}

fn scaling(field: &Field<'_>, place: Place) -> Result<(), Invalid> {
    const KINDS: [(&str, bool); 2] = [("Default", true), ("TargetUtilization", false)];
    let kind = field.get("scaleType");
    if kind.choice(&KINDS)? == Some(false) && place == Place::Managed {
        return Err(kind.refuse("TargetUtilization is for deployments on Kubernetes only"));
    }
    let most = field.get("maxInstances").whole(1..=i64::from(MAX_NODES))?;
    let least = field.get("minInstances");
    if let (Some(min), Some(max)) = (least.whole(0..=i64::from(MAX_NODES))?, most)
        && min > max
    {
        return Err(least.refuse(format!("{min} is above maxInstances {max}")));
    }
    field.get("targetUtilizationPercentage").whole(1..=WHOLE)?;
    field.get("pollingInterval").duration()?;
    Ok(())
}

/// What a deployment asks for and may use at most, as it was written or as its type says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Cores that are reserved.
    pub cpu_request: MilliCpu,
    /// Memory that is reserved.
    pub memory_request: Bytes,
    /// Most cores.
    pub cpu_limit: MilliCpu,
    /// Most memory.
    pub memory_limit: Bytes,
    /// GPUs.
    pub gpus: u32,
}

/// The resources of a deployment on Kubernetes (O1). `field` is its `containerResourceRequirements`.
pub fn effective(
    field: &Field<'_>,
    instance_type: &InstanceType,
    model: ModelType,
) -> Result<Effective, Invalid> {
    let (given, most) = (instance_type.requests(), instance_type.limits());
    let mut out = Effective {
        cpu_request: given.cpu,
        memory_request: given.memory,
        cpu_limit: most.cpu,
        memory_limit: most.memory,
        gpus: most.devices.get(GPU).copied().unwrap_or(0),
    };
    let name = instance_type.name();
    if field.object()?.is_some() {
        let requests = field.get("containerResourceRequests").maybe_object()?;
        let limits = field.get("containerResourceLimits").maybe_object()?;
        out.cpu_request =
            cpu(&requests.get("cpu"))?.ok_or_else(|| requests.get("cpu").missing())?;
        let memory_request = requests.get("memory");
        out.memory_request = memory(&memory_request)?.ok_or_else(|| memory_request.missing())?;
        if out.memory_request < LEAST_MEMORY {
            return Err(memory_request.refuse(format!(
                "request {} is below 1 MB (R-40)",
                written(&memory_request)
            )));
        }
        let gpu_request = requests.get("gpu");
        if gpu_request.value().is_some() {
            return Err(gpu_request.refuse("is given under requests, and GPUs are limits only"));
        }
        let (cpu_limit, memory_limit, gpu) =
            (limits.get("cpu"), limits.get("memory"), limits.get("gpu"));
        let gpus = count(&gpu)?;
        if gpus.is_some_and(|n| n > 0) {
            for needed in [&cpu_limit, &memory_limit] {
                if needed.value().is_none() {
                    return Err(needed.refuse("limit is required with a GPU"));
                }
            }
        }
        let above = |place: &Field<'_>, most: String| {
            Err(place.refuse(format!(
                "limit {} is above the limit {most} of instance type {name}",
                written(place)
            )))
        };
        if let Some(limit) = cpu(&cpu_limit)? {
            if limit > most.cpu {
                return above(&cpu_limit, format!("{}m", most.cpu.0));
            }
            out.cpu_limit = limit;
        }
        if let Some(limit) = memory(&memory_limit)? {
            if limit > most.memory {
                return above(&memory_limit, format!("{} bytes", most.memory.0));
            }
            out.memory_limit = limit;
        }
        if let Some(gpus) = gpus {
            if gpus > out.gpus {
                return above(&gpu, out.gpus.to_string());
            }
            out.gpus = gpus;
        }
        if out.cpu_request > out.cpu_limit {
            return Err(requests.get("cpu").refuse(format!(
                "request {} is above the limit {}m",
                written(&requests.get("cpu")),
                out.cpu_limit.0
            )));
        }
        if out.memory_request > out.memory_limit {
            return Err(memory_request.refuse(format!(
                "request {} is above the limit of {} bytes",
                written(&memory_request),
                out.memory_limit.0
            )));
        }
    }
    if model == ModelType::Mlflow {
        enough_for_mlflow(field, &out, name)?;
    }
    Ok(out)
}

///
fn enough_for_mlflow(field: &Field<'_>, out: &Effective, name: &str) -> Result<(), Invalid> {
    if out.cpu_request >= MLFLOW_CPU && out.memory_request >= MLFLOW_MEMORY {
        return Ok(());
    }
    Err(field
        .refuse(format!(
            "of instance type {name} are requests of {}m and {} bytes, and an MLflow model needs at least 2 cores and 4 GB",
            out.cpu_request.0, out.memory_request.0
        ))
        .hint("give resources.requests, or name a larger instance type"))
}

fn written(field: &Field<'_>) -> String {
    match field.value() {
        Some(Value::String(text)) => shown(text),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn amount(field: &Field<'_>) -> Result<Option<Quantity>, Invalid> {
    let text = match field.value() {
        None => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(_) => return Err(field.refuse("is no amount")),
    };
    let amount: Quantity = text
        .parse()
        .map_err(|e: crate::quantity::QuantityError| field.refuse(format!("is no amount: {e}")))?;
    if amount.nano() <= 0 {
        return Err(field.refuse(format!("is {}, it must be above 0", shown(&text))));
    }
    Ok(Some(amount))
}

fn cpu(field: &Field<'_>) -> Result<Option<MilliCpu>, Invalid> {
    let Some(amount) = amount(field)? else {
        return Ok(None);
    };
    let cores = amount.milli_cpu();
    cores.map(Some).map_err(|e| field.refuse(e.to_string()))
}

fn memory(field: &Field<'_>) -> Result<Option<Bytes>, Invalid> {
    let Some(amount) = amount(field)? else {
        return Ok(None);
    };
    let bytes = amount.bytes();
    bytes.map(Some).map_err(|e| field.refuse(e.to_string()))
}

/// A whole number of GPUs, as a number or as a text (C-11).
fn count(field: &Field<'_>) -> Result<Option<u32>, Invalid> {
    let refuse = || field.refuse(format!("is {}, expected a whole number", written(field)));
    match field.value() {
        None => Ok(None),
        Some(Value::Number(n)) => {
            let n = n.as_u64().and_then(|n| u32::try_from(n).ok());
            n.map(Some).ok_or_else(refuse)
        }
        Some(Value::String(text)) => text.parse().map(Some).map_err(|_| refuse()),
        Some(_) => Err(refuse()),
    }
}

#[cfg(test)]
mod tests;
