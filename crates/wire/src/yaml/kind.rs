//! What kind of file is this? `type:` says it, else `$schema`, else the keys, else the command that was given the file.
//!
//! K1 a kind that Azure has and Zaffre does not run is named, not called wrong;
//! K2 when `type:` and `$schema` disagree, the file is refused: one of them is a slip that would change what is made.

use super::{
    draft::Kind,
    report::{At, Report},
    tree::Node,
};
use crate::names::shown;

/// What a file turned out to be.
#[derive(Debug)]
pub(super) enum Found {
    Known(Kind),
    /// A kind of Azure's that Zaffre does not run yet, and the place that says so (K1).
    Foreign {
        what: &'static str,
        at: At,
        hint: Option<&'static str>,
    },
    /// Reported already.
    Unclear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Known(Kind),
    Foreign(&'static str),
}

const PIPELINE_DEPLOYMENT: &str = "batch deployments of pipeline components";
/// Components of steps that do not run here.
const FOREIGN_COMPONENTS: [&str; 2] = ["spark components", "import components"];
/// Azure runs one as a step only: `az` and the SDK refuse such a file too.
const PARALLEL: &str = "a parallel job by itself";

/// Names of Azure's schemas, lower case, without `.schema.json`.
const SCHEMAS: &[(&str, Says)] = &[
    ("amlcompute", Says::Known(Kind::AmlCompute)),
    ("model", Says::Known(Kind::Model)),
    ("environment", Says::Known(Kind::Environment)),
    ("data", Says::Known(Kind::Data)),
    ("batchendpoint", Says::Known(Kind::BatchEndpoint)),
    ("batchdeployment", Says::Known(Kind::BatchDeployment)),
    ("modelbatchdeployment", Says::Known(Kind::BatchDeployment)),
    ("commandjob", Says::Known(Kind::CommandJob)),
    ("computeinstance", Says::Known(Kind::ComputeInstance)),
    ("kubernetescompute", Says::Known(Kind::Kubernetes)),
    ("vmcompute", Says::Known(Kind::VirtualMachine)),
    ("virtualmachinecompute", Says::Known(Kind::VirtualMachine)),
    ("synapsesparkcompute", Says::Known(Kind::SynapseSpark)),
    ("attachedspark", Says::Known(Kind::SynapseSpark)),
    ("pipelinejob", Says::Known(Kind::PipelineJob)),
    ("sweepjob", Says::Known(Kind::SweepJob)),
    ("paralleljob", Says::Foreign(PARALLEL)),
    ("sparkjob", Says::Foreign("spark jobs")),
    ("importjob", Says::Foreign("import jobs")),
    (
        "pipelinecomponentbatchdeployment",
        Says::Foreign(PIPELINE_DEPLOYMENT),
    ),
    ("onlineendpoint", Says::Known(Kind::OnlineEndpoint)),
    ("managedonlineendpoint", Says::Known(Kind::OnlineEndpoint)),
    (
        "kubernetesonlineendpoint",
        Says::Known(Kind::OnlineEndpoint),
    ),
    ("onlinedeployment", Says::Known(Kind::OnlineDeployment)),
    (
        "managedonlinedeployment",
        Says::Known(Kind::OnlineDeployment),
    ),
    (
        "kubernetesonlinedeployment",
        Says::Known(Kind::OnlineDeployment),
    ),
    ("commandcomponent", Says::Known(Kind::Component)),
    ("pipelinecomponent", Says::Known(Kind::Component)),
    ("parallelcomponent", Says::Known(Kind::Component)),
    ("sparkcomponent", Says::Foreign(FOREIGN_COMPONENTS[0])),
    ("importcomponent", Says::Foreign(FOREIGN_COMPONENTS[1])),
    ("schedule", Says::Foreign("schedules")),
    ("monitorschedule", Says::Foreign("schedules")),
    ("azureblob", Says::Known(Kind::Datastore)),
    ("azurefile", Says::Known(Kind::Datastore)),
    ("azuredatalakegen1", Says::Known(Kind::Datastore)),
    ("azuredatalakegen2", Says::Known(Kind::Datastore)),
    ("onelake", Says::Known(Kind::Datastore)),
    ("workspace", Says::Known(Kind::Workspace)),
    ("hub", Says::Foreign("hubs")),
    ("project", Says::Foreign("projects")),
    ("workspaceconnection", Says::Foreign("connections")),
    ("registry", Says::Foreign("registries")),
    ("featurestore", Says::Foreign("feature stores")),
    ("featureset", Says::Foreign("feature stores")),
    ("featurestoreentity", Says::Foreign("feature stores")),
    ("dataimport", Says::Foreign("data imports")),
    ("modelpackage", Says::Foreign("model packages")),
    ("mltable", Says::Foreign("mltable files")),
];

/// Values of `type:`; those that several kinds share are decided by the code below.
const TYPES: &[(&str, Says)] = &[
    ("amlcompute", Says::Known(Kind::AmlCompute)),
    ("model", Says::Known(Kind::BatchDeployment)),
    ("custom_model", Says::Known(Kind::Model)),
    ("mlflow_model", Says::Known(Kind::Model)),
    ("triton_model", Says::Known(Kind::Model)),
    ("uri_file", Says::Known(Kind::Data)),
    ("uri_folder", Says::Known(Kind::Data)),
    ("mltable", Says::Known(Kind::Data)),
    ("command", Says::Known(Kind::CommandJob)),
    ("computeinstance", Says::Known(Kind::ComputeInstance)),
    ("virtualmachine", Says::Known(Kind::VirtualMachine)),
    ("synapsespark", Says::Known(Kind::SynapseSpark)),
    ("databricks", Says::Foreign("databricks computes")),
    ("hdinsight", Says::Foreign("hdinsight computes")),
    (
        "datalakeanalytics",
        Says::Foreign("data lake analytics computes"),
    ),
    ("sweep", Says::Known(Kind::SweepJob)),
    ("parallel", Says::Foreign(PARALLEL)),
    ("spark", Says::Foreign("spark jobs")),
    ("automl", Says::Foreign("automl jobs")),
    ("import", Says::Foreign("import jobs")),
    ("data_transfer", Says::Foreign("data transfer jobs")),
    ("managed", Says::Known(Kind::OnlineDeployment)),
    ("azure_blob", Says::Known(Kind::Datastore)),
    ("azure_file", Says::Known(Kind::Datastore)),
    ("azure_data_lake_gen1", Says::Known(Kind::Datastore)),
    ("azure_data_lake_gen2", Says::Known(Kind::Datastore)),
    ("one_lake", Says::Known(Kind::Datastore)),
];

/// Root keys that only one kind has, strongest first.
const KEYS: &[(&[&str], Says)] = &[
    (&["jobs"], Says::Known(Kind::PipelineJob)),
    (
        &["search_space", "trial", "sampling_algorithm", "objective"],
        Says::Known(Kind::SweepJob),
    ),
    (
        &["create_job", "create_monitor", "trigger"],
        Says::Foreign("schedules"),
    ),
    (
        &["traffic", "mirror_traffic"],
        Says::Known(Kind::OnlineEndpoint),
    ),
    (
        &["account_name", "container_name"],
        Says::Known(Kind::Datastore),
    ),
    (&["command"], Says::Known(Kind::CommandJob)),
    (
        &[
            "min_instances",
            "max_instances",
            "tier",
            "idle_time_before_scale_down",
        ],
        Says::Known(Kind::AmlCompute),
    ),
    (
        &[
            "idle_time_before_shutdown_minutes",
            "idle_time_before_shutdown",
            "create_on_behalf_of",
            "setup_scripts",
        ],
        Says::Known(Kind::ComputeInstance),
    ),
    (&["size"], Says::Known(Kind::AmlCompute)),
    (
        &["image", "conda_file", "build", "inference_config"],
        Says::Known(Kind::Environment),
    ),
    (
        &["flavors", "stage", "default_deployment_template"],
        Says::Known(Kind::Model),
    ),
    (&["auto_delete_setting"], Says::Known(Kind::Data)),
    (&["defaults"], Says::Known(Kind::BatchEndpoint)),
    (
        &["one_lake_workspace_name", "store_name", "file_share_name"],
        Says::Known(Kind::Datastore),
    ),
    (
        &["hbi_workspace", "key_vault", "application_insights"],
        Says::Known(Kind::Workspace),
    ),
    (&["namespace"], Says::Known(Kind::Kubernetes)),
];

/// Root keys that a batch deployment has and an online deployment has not.
const BATCH: &[&str] = &[
    "compute",
    "settings",
    "mini_batch_size",
    "max_concurrency_per_instance",
    "output_action",
    "output_file_name",
    "retry_settings",
    "error_threshold",
    "logging_level",
];
/// The other way round.
const ONLINE: &[&str] = &[
    "instance_type",
    "instance_count",
    "app_insights_enabled",
    "request_settings",
    "scale_settings",
    "liveness_probe",
    "readiness_probe",
    "data_collector",
    "egress_public_network_access",
    "model_mount_path",
];

/// Finds the kind of a file.
pub(super) fn find(report: &Report<'_>, root: &Node, hint: Option<Kind>) -> Found {
    if let (Some(kind), Some(_)) = (root.get("kind"), root.get("apiVersion")) {
        return Found::Foreign {
            what: "an object of kubernetes",
            at: kind.at,
            hint: Some("an InstanceType is applied with: zaffre instance-type apply -f"),
        };
    }
    let by_type = by_type(report, root, hint);
    let by_schema = by_schema(root);
    if let (None, Some(entry)) = (by_schema, root.get("$schema")) {
        report.warn(
            entry.node.at,
            "$schema",
            "$schema names no kind of azure machine learning and is not read",
        );
    }
    match (by_type, by_schema) {
        (Err(()), _) => Found::Unclear,
        (Ok(Some((said, at))), Some((schema, schema_at))) if said != schema => {
            // a component has the type of the job that it is made of; the schema of batch deployments covers pipelines too
            let job = matches!(said, Says::Known(Kind::CommandJob | Kind::PipelineJob))
                || said == Says::Foreign(PARALLEL);
            let component = schema == Says::Known(Kind::Component)
                || matches!(schema, Says::Foreign(what) if FOREIGN_COMPONENTS.contains(&what));
            if job && component {
                return found(schema, schema_at);
            }
            if said == Says::Foreign(PIPELINE_DEPLOYMENT)
                && schema == Says::Known(Kind::BatchDeployment)
            {
                return found(said, at);
            }
            let name = |says| match says {
                Says::Known(kind) => format!("a {kind}"),
                Says::Foreign(what) => what.to_owned(),
            };
            let message = format!(
                "type says {}, but $schema in line {} says {}",
                name(said),
                schema_at.line,
                name(schema)
            );
            report.error_hint(at, "type", message, "correct the one that is wrong");
            Found::Unclear
        }
        (Ok(Some((said, at))), _) | (Ok(None), Some((said, at))) => found(said, at),
        (Ok(None), None) => by_keys(report, root, hint),
    }
}

fn found(says: Says, at: At) -> Found {
    match says {
        Says::Known(kind) => Found::Known(kind),
        Says::Foreign(what) => Found::Foreign {
            what,
            at,
            hint: (what == PARALLEL).then_some(
                "it runs as a step of a pipeline: put it under jobs of a file with type: pipeline",
            ),
        },
    }
}

fn has(root: &Node, keys: &[&str]) -> bool {
    keys.iter().any(|key| root.get(key).is_some())
}

/// `Err` when the type is there and no kind has it; that has been reported.
fn by_type(report: &Report<'_>, root: &Node, hint: Option<Kind>) -> Result<Option<(Says, At)>, ()> {
    let Some(entry) = root.get("type") else {
        return Ok(None);
    };
    let Some(text) = entry.node.text() else {
        return Ok(None);
    };
    let at = entry.node.at;
    let same = |word: &str| super::scalar::same_word(text, word);
    if same("pipeline") {
        let deployment = has(root, &["component", "job_definition", "endpoint_name"]);
        let says = match (deployment, hint) {
            (true, _) => Says::Foreign(PIPELINE_DEPLOYMENT),
            (false, Some(Kind::Component)) => Says::Known(Kind::Component),
            (false, _) => Says::Known(Kind::PipelineJob),
        };
        return Ok(Some((says, at)));
    }
    if same("kubernetes") {
        let deployment = has(root, &["endpoint_name", "model"]);
        let says = if deployment {
            Says::Known(Kind::OnlineDeployment)
        } else {
            Says::Known(Kind::Kubernetes)
        };
        return Ok(Some((says, at)));
    }
    if same("model") && hint == Some(Kind::Model) && !has(root, &["endpoint_name"]) {
        return Ok(None);
    }
    // a component has the type of the job that it is made of
    if (same("command") || same("parallel")) && hint == Some(Kind::Component) {
        return Ok(Some((Says::Known(Kind::Component), at)));
    }
    if let Some((_, says)) = TYPES.iter().find(|(word, _)| same(word)) {
        return Ok(Some((*says, at)));
    }
    // a kind that is known from elsewhere reports the value of its own `type`
    if hint.is_some() || by_schema(root).is_some() {
        return Ok(None);
    }
    let words = TYPES
        .iter()
        .map(|(word, _)| *word)
        .chain(["pipeline", "kubernetes"]);
    let near = crate::names::did_you_mean(text, words).map(|near| format!("did you mean {near}"));
    report.error_with(
        at,
        "type",
        format!(
            "type `{}` is not a kind of azure machine learning",
            shown(text)
        ),
        near,
    );
    Err(())
}

/// Where `$schema` says that an online deployment serves.
pub(super) fn serves_on(root: &Node) -> Option<&'static str> {
    let text = root.get("$schema")?.node.text()?.to_ascii_lowercase();
    if text.contains("kubernetesonlinedeployment") {
        Some("Kubernetes")
    } else if text.contains("managedonlinedeployment") {
        Some("Managed")
    } else {
        None
    }
}

fn by_schema(root: &Node) -> Option<(Says, At)> {
    let entry = root.get("$schema")?;
    let text = entry.node.text()?.trim();
    let file = text
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(text)
        .to_ascii_lowercase();
    let name = file
        .strip_suffix(".schema.json")
        .or_else(|| file.strip_suffix(".json"))
        .unwrap_or(&file);
    let known = SCHEMAS
        .iter()
        .find(|(schema, _)| *schema == name)
        .map(|(_, says)| *says);
    let automl = (name.starts_with("automl") && name.ends_with("job"))
        .then_some(Says::Foreign("automl jobs"));
    known.or(automl).map(|says| (says, entry.node.at))
}

fn by_keys(report: &Report<'_>, root: &Node, hint: Option<Kind>) -> Found {
    let at_of = |keys: &[&str]| {
        keys.iter()
            .find_map(|key| root.get(key))
            .map_or(root.at, |entry| entry.at)
    };
    if root.get("endpoint_name").is_some() || hint == Some(Kind::BatchDeployment) {
        let (batch, online) = (has(root, BATCH), has(root, ONLINE));
        return match (batch, online, hint) {
            (_, _, Some(Kind::BatchDeployment)) | (true, _, _) => {
                Found::Known(Kind::BatchDeployment)
            }
            (false, true, _) => found(Says::Known(Kind::OnlineDeployment), at_of(ONLINE)),
            (false, false, _) => {
                report.error_hint(
                    root.at,
                    "",
                    "this is a deployment, but neither a key nor $schema says of which kind",
                    "a batch deployment has compute; or write $schema: https://azuremlschemas.azureedge.net/latest/batchDeployment.schema.json",
                );
                Found::Unclear
            }
        };
    }
    if let Some((keys, says)) = KEYS.iter().find(|(keys, _)| has(root, keys)) {
        let says = match (*says, hint) {
            // the command wins where the keys fit it too
            (Says::Known(Kind::Model | Kind::Data), Some(kind @ (Kind::Model | Kind::Data))) => {
                Says::Known(kind)
            }
            (Says::Known(Kind::OnlineEndpoint), Some(Kind::BatchEndpoint)) => {
                Says::Known(Kind::BatchEndpoint)
            }
            (Says::Known(Kind::ComputeInstance), Some(Kind::AmlCompute)) => {
                Says::Known(Kind::AmlCompute)
            }
            (Says::Known(Kind::CommandJob | Kind::PipelineJob), Some(Kind::Component)) => {
                Says::Known(Kind::Component)
            }
            (says, _) => says,
        };
        return found(says, at_of(keys));
    }
    match hint {
        Some(kind) => Found::Known(kind),
        None => {
            let file = if root.get("path").is_some() {
                "a model or a data asset"
            } else {
                "any kind"
            };
            let message = if root.get("path").is_some() {
                format!("the keys fit {file}; type or $schema must say which")
            } else {
                "neither type, nor $schema, nor the keys say what kind of file this is".to_owned()
            };
            report.error_hint(
                root.at,
                "",
                message,
                "write type, for example type: amlcompute, type: mlflow_model or type: uri_folder",
            );
            Found::Unclear
        }
    }
}
