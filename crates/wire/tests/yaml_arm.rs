//! What a file becomes passes the server's door: `yaml` and `arm` agree on every document.

use model::{DocKey, Kind as DocumentKind, Workspace};
use proptest::prelude::*;
use serde_json::Value;
use wire::{
    arm,
    yaml::{AssetKind, Draft, Kind, LoadOptions, Override, load, put},
};

const DEPLOYMENT: &str = "name: classifier\nendpoint_name: heart-batch\ntype: model\nmodel: azureml:heart:1\ncompute: azureml:low-pri\n";
const JOB: &str =
    "command: python train.py\nenvironment: azureml:e:1\ncompute: azureml:cpu-cluster\n";

fn draft(text: &str, overrides: Vec<Override>) -> Option<Draft> {
    let options = LoadOptions {
        hint: None,
        overrides,
        files: &|_| Ok("name: x\ndependencies: [python=3.11, {pip: [numpy]}]\n".into()),
    };
    load(text.as_bytes(), "f.yml", &options).ok()
}

/// Does what a client does between reading a file and sending the document; gives every document that it would send.
fn documents(mut draft: Draft) -> Vec<(DocumentKind, String, Value)> {
    let workspace = Workspace::new("s", "g", "w");
    let mut sent = Vec::new();
    let upload = "azureml://datastores/workspaceblobstore/paths/LocalUpload/h/x";
    for local in draft.locals.clone() {
        let kind = match local.kind {
            AssetKind::Code => DocumentKind::Code,
            AssetKind::Model => DocumentKind::Model,
            AssetKind::Environment => DocumentKind::Environment,
            AssetKind::Data | AssetKind::BuildContext | AssetKind::Input => {
                draft.put(&local.pointer, upload);
                continue;
            }
        };
        let Some(mut body) = local.body else {
            let own = draft.kind == Kind::Model;
            draft.put(&local.pointer, if own { upload } else { "azureml:made:1" });
            continue;
        };
        if let Some(pointer) = &local.upload_pointer {
            put(&mut body, pointer, upload.into());
        }
        sent.push((kind, "made/1".into(), body));
        draft.put(&local.pointer, "azureml:made:1");
    }
    draft.expand(&workspace);
    for label in draft.labels.clone() {
        draft.resolve(&label, "3", &workspace);
    }
    let name = draft.name.clone().unwrap_or_else(|| "generated".into());
    let version = draft.version.clone().unwrap_or_else(|| "1".into());
    let (kind, path) = match draft.kind {
        Kind::AmlCompute
        | Kind::Kubernetes
        | Kind::ComputeInstance
        | Kind::VirtualMachine
        | Kind::SynapseSpark => (DocumentKind::Compute, name),
        Kind::OnlineEndpoint => (DocumentKind::OnlineEndpoint, name),
        Kind::Datastore => (DocumentKind::Datastore, name),
        Kind::Workspace => (DocumentKind::Workspace, String::new()),
        // never stored: `arm::online` judges it
        Kind::OnlineDeployment => return sent,
        Kind::Model => (DocumentKind::Model, format!("{name}/{version}")),
        Kind::Environment => (DocumentKind::Environment, format!("{name}/{version}")),
        Kind::Data => (DocumentKind::Data, format!("{name}/{version}")),
        Kind::BatchEndpoint => (DocumentKind::BatchEndpoint, name),
        Kind::BatchDeployment => (
            DocumentKind::BatchDeployment,
            format!("{}/{name}", draft.parent.clone().unwrap()),
        ),
        Kind::CommandJob | Kind::SweepJob | Kind::PipelineJob => (DocumentKind::Job, name),
        Kind::Component => (DocumentKind::Component, format!("{name}/{version}")),
    };
    sent.push((kind, path, draft.body));
    sent
}

fn refusal(draft: Draft) -> Option<String> {
    let workspace = Workspace::new("s", "g", "w");
    documents(draft).into_iter().find_map(|(kind, path, body)| {
        let key = DocKey::new(&workspace, kind, path);
        arm::parse(&key, &body, None)
            .err()
            .map(|invalid| format!("{invalid}\n{body:#}"))
    })
}

#[test]
fn files_of_every_kind_pass_the_door() {
    for text in [
        "name: low-pri\ntype: amlcompute\ntier: low_priority\nmax_instances: 2\n".to_owned(),
        "name: low-pri\ntype: amlcompute\nidle_time_before_scale_down: 0\nsize: standard_nv6\ntags: {a: 010}\n".to_owned(),
        "name: heart\ntype: mlflow_model\npath: ./m\nflavors: {sklearn: {a: 1}}\nstage: Production\n".to_owned(),
        "name: env\nimage: python:3.11\nconda_file: c.yml\n".to_owned(),
        "name: rows\nversion: 2022-02-03\ntype: uri_folder\npath: ./rows\n".to_owned(),
        "name: heart-batch\ndefaults: {deployment_name: classifier}\n".to_owned(),
        DEPLOYMENT.to_owned(),
        format!("{DEPLOYMENT}settings: {{mini_batch_size: 2, error_threshold: 3, logging_level: DEBUG, output_action: summary_only, retry_settings: {{max_retries: 0, timeout: 259200}}}}\nresources: {{instance_count: 2}}\nproperties: {{zaffre.on_capacity_loss: wait, zaffre.append_row_format: azure, zaffre.append_row_header: true, zaffre.max_preemptions: 3}}\n"),
        format!("{DEPLOYMENT}environment: {{image: x, conda_file: c.yml}}\ncode_configuration: {{code: ./src, scoring_script: .\\a\\score.py}}\nenvironment_variables: {{A: yes}}\n"),
        DEPLOYMENT.replace("azureml:heart:1", "{path: ./model, type: mlflow_model}"),
        DEPLOYMENT.replace("azureml:heart:1", "azureml:heart@latest"),
        JOB.to_owned(),
        format!("{JOB}name: a-1\ncode: ./src\nexperiment_name: x\nlimits: {{timeout: 60}}\ninputs: {{a: 1, b: {{type: uri_file, path: ./x.csv}}, c: {{path: azureml:d:1, mode: download}}, m: {{type: mlflow_model, path: azureml:m@latest}}}}\noutputs: {{o: , p: {{type: uri_file, mode: upload}}}}\nresources: {{instance_count: 2, shm_size: 1g}}\n"),
        "name: c\nversion: '1'\ntype: command\n$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json\ninputs: {n: {type: integer, default: 3}, d: {type: uri_folder}}\noutputs: {o: }\ncommand: x ${{inputs.n}} ${{inputs.d}} ${{outputs.o}}\nenvironment: azureml:e:1\ncode: ./src\n".to_owned(),
        "type: sweep\nsampling_algorithm: bayesian\nsearch_space: {lr: {type: uniform, min_value: 0, max_value: 1}}\nobjective: {primary_metric: m, goal: minimize}\nlimits: {max_total_trials: 2}\ntrial: {command: 'x ${{search_space.lr}}', environment: azureml:e:1}\ncompute: c-1\n".to_owned(),
        "type: pipeline\ncompute: c-1\njobs: {a: {component: azureml:c:1, inputs: {n: 1}}}\n".to_owned(),
    ] {
        let draft = draft(&text, Vec::new()).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(draft.unsupported, Vec::<String>::new());
        if let Some(refusal) = refusal(draft) {
            panic!("{text}\n{refusal}");
        }
    }
}

const BASES: [&str; 9] = [
    "name: low-pri\ntype: amlcompute\nmax_instances: 2\n",
    "name: heart\ntype: mlflow_model\npath: ./m\n",
    "name: rows\ntype: uri_folder\npath: ./rows\n",
    "$schema: x/batchEndpoint.schema.json\nname: heart-batch\n",
    DEPLOYMENT,
    JOB,
    "command: python train.py ${{inputs.a}}\nenvironment: azureml:e:1\ncompute: azureml:cpu-cluster\ninputs: {a: {path: ./x}}\noutputs: {a: }\nresources: {instance_count: 2}\ndistribution: {type: tensorflow}\n",
    "name: env\nimage: python:3.11\nconda_file: c.yml\n",
    "name: classifier\nendpoint_name: heart-batch\nmodel: {path: ./m}\ncompute: low-pri\nenvironment: {image: x}\ncode_configuration: {code: ./src, scoring_script: score.py}\nmini_batch_size: 3\n",
];

/// Keys of all these kinds.
const KEYS: [&str; 66] = [
    "name",
    "endpoint_name",
    "version",
    "type",
    "path",
    "description",
    "tags.a",
    "properties.a",
    "properties.zaffre.on_capacity_loss",
    "properties.zaffre.max_preemptions",
    "min_instances",
    "max_instances",
    "idle_time_before_scale_down",
    "size",
    "tier",
    "location",
    "settings.mini_batch_size",
    "settings.error_threshold",
    "settings.output_file_name",
    "settings.output_action",
    "settings.logging_level",
    "settings.max_concurrency_per_instance",
    "settings.retry_settings.timeout",
    "settings.retry_settings.max_retries",
    "resources.instance_count",
    "resources.shm_size",
    "limits.timeout",
    "experiment_name",
    "display_name",
    "environment_variables.A",
    "inputs.a",
    "inputs.a.path",
    "outputs.a",
    "outputs.a.name",
    "model",
    "environment",
    "model.path",
    "model.type",
    "model.name",
    "environment.image",
    "environment.os_type",
    "environment.build.path",
    "environment.conda_file",
    "code",
    "code_configuration.code",
    "code_configuration.scoring_script",
    "compute",
    "compute.target",
    "compute.instance_count",
    "mini_batch_size",
    "output_file_name",
    "retry_settings.timeout",
    "inputs.a.type",
    "inputs.a.mode",
    "outputs.a.type",
    "outputs.a.mode",
    "distribution.type",
    "distribution.worker_count",
    "distribution.process_count_per_instance",
    "distribution.parameter_server_count",
    "services.s.type",
    "queue_settings.job_tier",
    "queue_settings.priority",
    "identity.type",
    "ssh_settings.admin_username",
    "ssh_settings.admin_password",
];

/// Values that sit on or beside the edges of ranges and of grammars.
const VALUES: [&str; 60] = [
    "0",
    "1",
    "-1",
    "2",
    "1000",
    "1001",
    "65000",
    "65001",
    "259200",
    "259201",
    "2592000",
    "2592001",
    "2147483647",
    "2147483648",
    "true",
    "no",
    "",
    "null",
    "x",
    "a.csv",
    "a/b",
    "..",
    "append_row",
    "SummaryOnly",
    "Warning",
    "azureml:x:1",
    "azureml:x",
    "local",
    "./a",
    "wait",
    "azure",
    "[a]",
    "{a: b}",
    "学習",
    "uri_file",
    "mlflow_model",
    "${{inputs.a}}",
    "Standard_NV6",
    "2g",
    "\"\"",
    "\"a\\nb\"",
    "low-pri",
    "heart-batch",
    "azureml://jobs/j/outputs/o",
    "azureml://datastores/workspaceblobstore/paths/x",
    "uri_folder",
    "mltable",
    "custom_model",
    "ro_mount",
    "rw_mount",
    "download",
    "direct",
    "upload",
    "eval_mount",
    "pytorch",
    "mpi",
    "ray",
    "spot",
    "high",
    "user_identity",
];

/// What `validate` accepts, the server accepts: a user never hears the second half of a rule only from `create`.
fn agree(base: &str, sets: &[String]) -> Result<bool, String> {
    let overrides = sets
        .iter()
        .filter_map(|set| Override::set(set).ok())
        .collect();
    match draft(base, overrides) {
        Some(draft) if draft.unsupported.is_empty() => match refusal(draft) {
            Some(refusal) => Err(format!("{base}{sets:?}\n{refusal}")),
            None => Ok(true),
        },
        _ => Ok(false),
    }
}

fn belongs(base: &str, key: &str) -> bool {
    let overrides = vec![Override::set(&format!("{key}=1")).unwrap()];
    let options = LoadOptions {
        hint: None,
        overrides,
        files: &|_| Err(String::new()),
    };
    match load(base.as_bytes(), "f.yml", &options) {
        Err(refused) => !refused.to_string().contains("is not a key of"),
        Ok(_) => true,
    }
}

#[test]
fn an_accepted_file_is_an_accepted_document() {
    let mut accepted = 0;
    let mut refused = Vec::new();
    for base in BASES {
        // a key that this kind does not have is refused with any value
        for key in KEYS.iter().filter(|key| belongs(base, key)) {
            for value in VALUES {
                match agree(base, &[format!("{key}={value}")]) {
                    Ok(yes) => accepted += usize::from(yes),
                    Err(refusal) => refused.push(refusal),
                }
            }
        }
    }
    assert!(
        refused.is_empty(),
        "{} disagree\n{}",
        refused.len(),
        refused[..refused.len().min(5)].join("\n\n")
    );
    assert!(accepted > 1_000, "only {accepted} files were accepted");
}

proptest! {
    #[test]
    fn an_accepted_file_with_several_changes_is_an_accepted_document(
        base in proptest::sample::select(BASES.to_vec()),
        sets in proptest::collection::vec((proptest::sample::select(KEYS.to_vec()), "[a-zA-Z0-9_.-]{1,40}"), 1..4),
    ) {
        let sets: Vec<String> = sets.iter().map(|(key, value)| format!("{key}={value}")).collect();
        prop_assert!(agree(base, &sets).is_ok(), "{:?}", agree(base, &sets));
    }
}
