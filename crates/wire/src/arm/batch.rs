//! Batch endpoints and model deployments: the bodies of `PUT batchEndpoints/E` and `PUT batchEndpoints/E/deployments/D`.

use super::{Invalid, asset::common, compute::MAX_NODES, field::Field};
use crate::names::{check_deployment, check_endpoint, shown};
use model::{BlobPath, Millis, batch::OnCapacityLoss, engine::RowFormat};
use serde_json::Value;
use std::collections::BTreeMap;

/// REST numbers are signed 32-bit.
pub(super) const MAX_INT: u32 = i32::MAX as u32;
/// Workers of one node: each is a Python process with the model in its memory.
pub const MAX_WORKERS: u32 = 1_000;
/// Longest limit of one `run()` call: the longest time that Azure's engine takes (§2.2.4).
pub(super) const MAX_TIMEOUT: Millis = Millis::secs(259_200);
/// File systems stop here.
const MAX_FILE_NAME: usize = 255;

/// Defaults of §2.1.9.
pub mod default {
    use model::Millis;
    /// Files per `run()`.
    pub const MINI_BATCH_SIZE: u32 = 10;
    /// Workers per node.
    pub const WORKERS: u32 = 1;
    /// Nodes per job.
    pub const INSTANCES: u32 = 1;
    /// Attempts after the first.
    pub const MAX_RETRIES: u32 = 3;
    /// Limit of one `run()`.
    pub const TIMEOUT: Millis = Millis::secs(30);
    /// Ignore every failed item.
    pub const ERROR_THRESHOLD: i64 = -1;
    /// Name of the one output file.
    pub const FILE: &str = "predictions.csv";
}

/// Zaffre's own deployment properties.
pub const ON_CAPACITY_LOSS: &str = "zaffre.on_capacity_loss";
/// `csv` or `azure`.
pub const ROW_FORMAT: &str = "zaffre.append_row_format";
/// `true` writes the column names once.
pub const ROW_HEADER: &str = "zaffre.append_row_header";
/// Cap of preemptions per mini-batch.
pub const MAX_PREEMPTIONS: &str = "zaffre.max_preemptions";

/// What becomes of returned rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputAction {
    /// One file.
    AppendRow,
    /// Only counted.
    SummaryOnly,
}

impl OutputAction {
    /// Azure's word.
    pub fn word(self) -> &'static str {
        match self {
            OutputAction::AppendRow => "AppendRow",
            OutputAction::SummaryOnly => "SummaryOnly",
        }
    }
}

/// Which model a deployment serves, still as addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelRef {
    /// An asset id or an address.
    Id(String),
    /// A path in a datastore.
    DataPath {
        /// Datastore, absent for the default one.
        datastore: Option<String>,
        /// Path inside it.
        path: String,
    },
    /// An output of a job.
    OutputPath {
        /// The job.
        job: String,
        /// Path of its artifacts.
        path: String,
    },
}

/// A model deployment with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The model.
    pub model: ModelRef,
    /// Compute as named: an ARM id or a name.
    pub compute: String,
    /// Environment as named.
    pub environment: Option<String>,
    /// Code as named.
    pub code: Option<String>,
    /// Scoring script inside the code folder.
    pub script: Option<String>,
    /// Nodes per job.
    pub instances: u32,
    /// Workers per node.
    pub workers: u32,
    /// Files per `run()`.
    pub mini_batch_size: u32,
    /// What becomes of rows.
    pub action: OutputAction,
    /// Name of the output file.
    pub file: String,
    /// Attempts after the first.
    pub max_retries: u32,
    /// Limit of one `run()`.
    pub timeout: Millis,
    /// -1 ignores all.
    pub error_threshold: i64,
    /// `info`, `warning` or `debug`.
    pub logging: &'static str,
    /// Environment variables.
    pub variables: BTreeMap<Box<str>, Box<str>>,
    /// R-61 or wait.
    pub on_capacity_loss: OnCapacityLoss,
    /// Text form of rows.
    pub format: RowFormat,
    /// Whether column names are written once.
    pub header: bool,
    /// Cap of preemptions per mini-batch.
    pub max_preemptions: Option<u32>,
}

/// Checks an endpoint.
pub fn endpoint(name: &str, body: &Value, warnings: &mut Vec<String>) -> Result<(), Invalid> {
    check_endpoint(name).map_err(|e| Invalid::validation("/name", e.to_string()))?;
    let root = Field::root(body);
    let properties = root.get("properties").need_object()?;
    common(&properties, warnings)?;
    root.get("tags").texts(warnings)?;
    const AUTH: [(&str, bool); 4] = [
        ("AADToken", true),
        ("aad_token", true),
        ("Key", false),
        ("AMLToken", false),
    ];
    let auth = properties.get("authMode");
    if auth.choice(&AUTH)? == Some(false) {
        return Err(auth.unsupported("of a batch endpoint is AADToken, nothing else"));
    }
    let defaults = properties.get("defaults").maybe_object()?;
    let deployment = defaults.get("deploymentName");
    if let Some(name) = deployment.text()?.filter(|n| !n.is_empty()) {
        check_deployment(name).map_err(|e| deployment.refuse(e.to_string()))?;
    }
    Ok(())
}

/// Reads a deployment; its name is checked too.
pub fn deployment(
    name: &str,
    body: &Value,
    warnings: &mut Vec<String>,
) -> Result<Deployment, Invalid> {
    check_deployment(name).map_err(|e| Invalid::validation("/name", e.to_string()))?;
    let p = Field::root(body).get("properties").need_object()?;
    common(&p, warnings)?;
    Field::root(body).get("tags").texts(warnings)?;
    let configuration = p.get("deploymentConfiguration").maybe_object()?;
    if configuration.value().is_some() {
        return Err(configuration.unsupported(
            "is given: pipeline deployments are not built yet, model deployments are",
        ));
    }
    let code = p.get("codeConfiguration").maybe_object()?;
    let script = script(&code)?;
    let action = action(&p.get("outputAction"))?.unwrap_or(OutputAction::AppendRow);
    let (max_retries, timeout) = retries(&p.get("retrySettings").maybe_object()?)?;
    let resources = p.get("resources").maybe_object()?;
    resources_of_a_cluster(&resources, warnings)?;
    let ours = ours(&p.get("properties").maybe_object()?)?;
    Ok(Deployment {
        model: model(&p.get("model"))?,
        compute: p.get("compute").need_text()?.to_owned(),
        environment: p.get("environmentId").text()?.map(str::to_owned),
        code: code.get("codeId").text()?.map(str::to_owned),
        script,
        instances: resources
            .get("instanceCount")
            .count(1..=MAX_NODES, default::INSTANCES)?,
        workers: p
            .get("maxConcurrencyPerInstance")
            .count(1..=MAX_WORKERS, default::WORKERS)?,
        mini_batch_size: mini_batch_size(&p)?.unwrap_or(default::MINI_BATCH_SIZE),
        action,
        file: file_name(&p.get("outputFileName"))?.unwrap_or_else(|| default::FILE.to_owned()),
        max_retries: max_retries.unwrap_or(default::MAX_RETRIES),
        timeout: timeout.unwrap_or(default::TIMEOUT),
        error_threshold: error_threshold(&p)?.unwrap_or(default::ERROR_THRESHOLD),
        logging: logging(&p.get("loggingLevel"))?,
        variables: p.get("environmentVariables").variables(warnings)?,
        on_capacity_loss: ours.on_capacity_loss,
        format: ours.format,
        header: ours.header,
        max_preemptions: ours.max_preemptions,
    })
}

/// `miniBatchSize`, at least 1 (B1#11).
pub fn mini_batch_size(of: &Field<'_>) -> Result<Option<u32>, Invalid> {
    let field = of.get("miniBatchSize");
    Ok(match field.value() {
        None => None,
        Some(_) => Some(field.count(1..=MAX_INT, 1)?),
    })
}

/// `errorThreshold`, -1 or more.
pub fn error_threshold(of: &Field<'_>) -> Result<Option<i64>, Invalid> {
    of.get("errorThreshold").whole(-1..=i64::from(MAX_INT))
}

/// `retrySettings`: retries may be 0 (one attempt), the limit of a call must be positive (B1#11).
pub fn retries(of: &Field<'_>) -> Result<(Option<u32>, Option<Millis>), Invalid> {
    let most = of.get("maxRetries");
    let max_retries = match most.value() {
        None => None,
        Some(_) => Some(most.count(0..=MAX_INT, 0)?),
    };
    let field = of.get("timeout");
    let timeout = field.duration()?;
    match timeout {
        Some(Millis(0)) => Err(field.refuse("is PT0S, and no call of run() ends in no time")),
        Some(t) if t > MAX_TIMEOUT => Err(field.refuse(format!(
            "is {}, at most {} is allowed",
            super::time::duration(t),
            super::time::duration(MAX_TIMEOUT)
        ))),
        _ => Ok((max_retries, timeout)),
    }
}

/// The name of the output file: one segment.
pub fn file_name(field: &Field<'_>) -> Result<Option<String>, Invalid> {
    let Some(name) = field.text()?.filter(|n| !n.is_empty()) else {
        return Ok(None);
    };
    let legal = !name.contains(['/', '\\'])
        && !name.chars().any(char::is_control)
        && BlobPath::new(name).is_some();
    if !legal {
        return Err(field.refuse(format!("`{}` is not the name of a file", shown(name))));
    }
    if name.len() > MAX_FILE_NAME {
        return Err(field.refuse(format!(
            "has {} bytes, allowed are {MAX_FILE_NAME}",
            name.len()
        )));
    }
    Ok(Some(name.to_owned()))
}

fn action(field: &Field<'_>) -> Result<Option<OutputAction>, Invalid> {
    field.choice(&[
        ("AppendRow", OutputAction::AppendRow),
        ("SummaryOnly", OutputAction::SummaryOnly),
        ("append_row", OutputAction::AppendRow),
        ("summary_only", OutputAction::SummaryOnly),
    ])
}

/// The level in Azure's spelling.
pub fn logging(field: &Field<'_>) -> Result<&'static str, Invalid> {
    Ok(field
        .choice(&[("Info", "info"), ("Warning", "warning"), ("Debug", "debug")])?
        .unwrap_or("info"))
}

fn script(code: &Field<'_>) -> Result<Option<String>, Invalid> {
    let field = code.get("scoringScript");
    let Some(text) = field.text()?.filter(|s| !s.is_empty()) else {
        return match code.value() {
            None => Ok(None),
            Some(_) => Err(field.missing()),
        };
    };
    let path = script_path(&field, text)?;
    if code.get("codeId").text()?.is_none() {
        return Err(code
            .get("codeId")
            .refuse(format!("is required: {} lies in it", shown(&path))));
    }
    Ok(Some(path))
}

/// A script as a path inside the code folder.
pub(super) fn script_path(field: &Field<'_>, text: &str) -> Result<String, Invalid> {
    // files written on Windows separate with `\` (B1#22)
    let path = text.replace('\\', "/");
    let path = path.trim_start_matches("./");
    if path.starts_with('/') || BlobPath::new(path).is_none() {
        return Err(field.refuse(format!(
            "`{}` is not a path inside the code folder",
            shown(text)
        )));
    }
    Ok(path.to_owned())
}

fn model(field: &Field<'_>) -> Result<ModelRef, Invalid> {
    // old API versions send the id alone
    if let Some(Value::String(_)) = field.value() {
        return Ok(ModelRef::Id(field.need_text()?.to_owned()));
    }
    let field = field.clone().need_object()?;
    let text = |key: &str| field.get(key).need_text().map(str::to_owned);
    match field
        .get("referenceType")
        .choice(&[("Id", 0), ("DataPath", 1), ("OutputPath", 2)])?
    {
        None | Some(0) => Ok(ModelRef::Id(text("assetId")?)),
        Some(1) => Ok(ModelRef::DataPath {
            datastore: field.get("datastoreId").text()?.map(str::to_owned),
            path: text("path")?,
        }),
        Some(_) => Ok(ModelRef::OutputPath {
            job: text("jobId")?,
            path: field.get("path").text()?.unwrap_or_default().to_owned(),
        }),
    }
}

/// On a cluster the size of a node is the cluster's: a size or a place of its own is refused.
pub fn resources_of_a_cluster(
    resources: &Field<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), Invalid> {
    for key in ["instanceType", "locations"] {
        let field = resources.get(key);
        if field.value().is_some() {
            return Err(field.refuse(
                "cannot be chosen here: a deployment runs on the nodes of the cluster it names (R-53)",
            ));
        }
    }
    let bag = resources.get("properties").maybe_object()?;
    if bag.object()?.is_some_and(|map| !map.is_empty()) {
        warnings.push(format!("{} has no effect here", bag.path()));
    }
    Ok(())
}

/// What the `zaffre.*` properties say.
pub(super) struct Ours {
    /// R-61 or wait; the first when nothing is said.
    pub(super) on_capacity_loss: OnCapacityLoss,
    /// Text form of rows.
    pub(super) format: RowFormat,
    /// Whether column names are written once.
    pub(super) header: bool,
    /// Cap of preemptions per mini-batch.
    pub(super) max_preemptions: Option<u32>,
}

/// The `zaffre.*` properties: texts on the wire, since the SDK sends nothing else; numbers and truth values are read too.
pub(super) fn ours(properties: &Field<'_>) -> Result<Ours, Invalid> {
    properties.known_only(
        "zaffre.",
        &[ON_CAPACITY_LOSS, ROW_FORMAT, ROW_HEADER, MAX_PREEMPTIONS],
    )?;
    let header = properties.get(ROW_HEADER);
    let most = properties.get(MAX_PREEMPTIONS);
    Ok(Ours {
        on_capacity_loss: properties
            .get(ON_CAPACITY_LOSS)
            .choice(&[
                ("cancel", OnCapacityLoss::Cancel),
                ("wait", OnCapacityLoss::Wait),
            ])?
            .unwrap_or(OnCapacityLoss::Cancel),
        format: properties
            .get(ROW_FORMAT)
            .choice(&[("csv", RowFormat::Csv), ("azure", RowFormat::Azure)])?
            .unwrap_or(RowFormat::Csv),
        header: match header.value() {
            Some(Value::Bool(flag)) => *flag,
            _ => header
                .choice(&[("true", true), ("false", false)])?
                .unwrap_or(false),
        },
        max_preemptions: match most.value() {
            None => None,
            Some(Value::Number(_)) => Some(most.count(0..=MAX_INT, 0)?),
            Some(_) => {
                let text = most.need_text()?;
                let number = text.parse::<u32>().ok().filter(|n| *n <= MAX_INT);
                Some(number.ok_or_else(|| {
                    most.refuse(format!(
                        "is `{}`, expected a whole number from 0",
                        shown(text)
                    ))
                })?)
            }
        },
    })
}
