//! Files that are right: the documents they become, what has to be uploaded, what is defaulted, what is warned about.

#[path = "yaml_good/around.rs"]
mod around;

use serde_json::{Value, json};
use wire::yaml::{
    AssetKind, Draft, Kind, LoadOptions, Override, Place, Refused, load, load_flags, render,
};

const CONDA: &str = "# packages\nname: x\ndependencies:\n  - python=3.11\n  - pip:\n    - scikit-learn==1.5.2\nchannels: [conda-forge]\n";

fn options(hint: Option<Kind>) -> LoadOptions<'static> {
    LoadOptions {
        hint,
        overrides: Vec::new(),
        files: &|path| {
            if path == "./model/conda.yml" {
                Ok(CONDA.into())
            } else {
                Err("no such file".into())
            }
        },
    }
}

fn good(text: &str) -> Draft {
    load(text.as_bytes(), "f.yml", &options(None))
        .unwrap_or_else(|refused| panic!("{refused}\n{text}"))
}

fn body(text: &str) -> Value {
    let mut draft = good(text);
    let workspace = model::Workspace::new("S", "G", "W");
    draft.expand(&workspace);
    for label in draft.labels.clone() {
        draft.resolve(&label, "7", &workspace);
    }
    draft.body
}

fn id(tail: &str) -> String {
    format!(
        "/subscriptions/S/resourceGroups/G/providers/Microsoft.MachineLearningServices/workspaces/W/{tail}"
    )
}

const DEPLOYMENT: &str = "name: classifier\nendpoint_name: heart-batch\ntype: model\nmodel: azureml:heart:1\ncompute: azureml:low-pri\n";
const JOB: &str =
    "command: python train.py\nenvironment: azureml:e:1\ncompute: azureml:cpu-cluster\n";

/// What `az ml` documents and the SDK accepts, one file per kind with every section in use.
const EVERY_KIND: [&str; 18] = [
    "name: low-pri\ntype: amlcompute\nsize: standard_ds3_v2\ntier: LowPriority\nmin_instances: 1\nmax_instances: 4\nidle_time_before_scale_down: 90\ndescription: 学習用\ntags: {team: a, n: 010}\nlocation: japaneast\nssh_public_access_enabled: true\nssh_settings: {admin_username: me, ssh_key_value: ssh-rsa AAA}\nidentity: {type: user_assigned, user_assigned_identities: [{resource_id: /subscriptions/a}]}\nenable_node_public_ip: no\n",
    "$schema: https://azuremlschemas.azureedge.net/latest/model.schema.json\nname: heart\nversion: 1.10\ntype: mlflow_model\npath: .\\model\ndescription: d\ntags: {a: true}\nproperties: {b: 1:30}\nstage: Production\nflavors: {python_function: {loader_module: mlflow.sklearn}}\ndatastore: workspaceblobstore\n",
    "name: env\nversion: 2022-02-03\nimage: library/python:3.11\nconda_file: file:./model/conda.yml\nos_type: Linux\ntags: {q: 1}\ninference_config:\n  liveness_route: {path: /, port: 5001}\n  readiness_route: {path: /, port: 5001}\n  scoring_route: {path: /score, port: 5001}\n",
    "name: rows\nversion: 7\ntype: uri_folder\npath: file:./rows\ndescription: d\n",
    "name: heart-batch\ndescription: d\nauth_mode: aad_token\ntags: {a: b}\nproperties: {p: 1}\ndefaults: {deployment_name: classifier}\n",
    "name: classifier\nendpoint_name: heart-batch\ntype: model\ndescription: d\nmodel: {path: azureml://datastores/workspaceblobstore/paths/m, type: custom_model, name: heart, version: 3}\nenvironment: {build: {path: ./ctx, dockerfile_path: Dockerfile.gpu}}\ncode_configuration: {code: .\\src, scoring_script: .\\score.py}\ncompute: {target: azureml:low-pri, instance_count: 2}\nsettings:\n  max_concurrency_per_instance: 2\n  mini_batch_size: 2\n  error_threshold: 5\n  logging_level: DEBUG\n  output_action: summary_only\n  retry_settings: {max_retries: 0, timeout: 300}\n  environment_variables: {Z: 1}\nproperties: {zaffre: {on_capacity_loss: wait}, zaffre.max_preemptions: 10}\n",
    "name: train-1\ndisplay_name: train it\nexperiment_name: exp\ndescription: d\ntags: {k: v}\nproperties: {p: q}\ncommand: >-\n  python train.py ${{inputs.data}}\n  ${{ inputs.lr }} ${{outputs.model}}\ncode: ./src\nenvironment: {image: library/python:3.11, conda_file: {name: x, dependencies: [python=3.11]}}\nenvironment_variables: {FOO: bar}\ncompute: cpu-cluster\ninputs:\n  data: {type: uri_file, path: ./data.csv, mode: download}\n  lr: 0.50\n  flag: true\n  model: {type: mlflow_model, path: azureml:heart@latest}\noutputs:\n  model: {type: mlflow_model, mode: upload, name: heart, version: 2}\n  rest:\nlimits: {timeout: 3600}\nresources: {instance_count: 2, shm_size: 1g, docker_args: [--ipc, host], properties: {a: {b: 1}}}\ndistribution: {type: pytorch, process_count_per_instance: 2}\nqueue_settings: {job_tier: Spot, priority: high}\nservices: {j: {type: jupyter_lab, nodes: all}}\nidentity: {type: user_identity}\n",
    "name: k8s\ntype: kubernetes\nresource_id: /subscriptions/s/x\nnamespace: azureml-ns\ndescription: d\ntags: {a: b}\nproperties: {clusterId: null, zaffre.image_pull_policy: Never}\nidentity: {type: system_assigned}\nlocation: japaneast\n",
    "name: ci-1\ntype: computeinstance\nsize: Standard_DS3_v2\nidle_time_before_shutdown_minutes: 30\ncreate_on_behalf_of: {user_tenant_id: t, user_object_id: o}\nssh_settings: {ssh_key_value: ssh-rsa AAA}\nschedules:\n  compute_start_stop:\n    - {action: stop, state: enabled, trigger: {type: cron, expression: 0 18 * * *, time_zone: UTC}}\n    - {action: start, trigger: {type: recurrence, frequency: week, interval: 1, schedule: {hours: [8], minutes: [0], week_days: [monday]}}}\nsetup_scripts: {creation_script: {path: ./setup.sh, command: bash, timeout_minutes: 20}}\ncustom_applications: [{name: r, image: {reference: x}, endpoints: [{target: 8787, published: 8787}], environment_variables: {A: b}, bind_mounts: [{source: /a, target: /b}]}]\nenable_sso: false\n",
    "name: vm-1\ntype: virtualmachine\nresource_id: /subscriptions/x\nssh_settings: {admin_username: me, admin_password: secret, ssh_port: 2222}\n",
    "name: spark-1\ntype: synapsespark\nresource_id: /subscriptions/x\nidentity: {type: system_assigned}\n",
    "$schema: https://azuremlschemas.azureedge.net/latest/kubernetesOnlineEndpoint.schema.json\nname: my-ep\nauth_mode: key\ncompute: azureml:k8s\ntraffic: {Blue: 70, green: 30}\nmirror_traffic: {green: 10}\ntags: {a: b}\n",
    "$schema: https://azuremlschemas.azureedge.net/latest/kubernetesOnlineDeployment.schema.json\nname: blue\nendpoint_name: my-ep\nmodel: azureml:m:1\nenvironment: azureml:e:1\ncode_configuration: {code: ./src, scoring_script: score.py}\ninstance_type: cpusmall\nresources: {requests: {cpu: 0.1, memory: 0.2Gi}, limits: {cpu: \"0.2\", memory: 0.5Gi, nvidia.com/gpu: 1}}\nrequest_settings: {request_timeout_ms: 3500, max_concurrent_requests_per_instance: 2}\nliveness_probe: {initial_delay: 5, period: 7}\nscale_settings: {type: target_utilization, min_instances: 1, max_instances: 3, target_utilization_percentage: 70, polling_interval: 10}\ndata_collector: {sampling_rate: 0.5, collections: {model_inputs: {enabled: True}}}\n",
    "name: mine\ntype: azure_blob\naccount_name: acc\ncontainer_name: c\ncredentials: {account_key: secret}\n",
    "$schema: https://azuremlschemas.azureedge.net/latest/workspace.schema.json\nname: ws1\ndisplay_name: One\ndescription: d\npublic_network_access: Enabled\nmanaged_network: {isolation_mode: disabled}\n",
    "name: sweep-1\ntype: sweep\nexperiment_name: exp\ntags: {k: v}\nsampling_algorithm: {type: random, seed: 5, rule: sobol}\nsearch_space:\n  lr: {type: loguniform, min_value: -6.5, max_value: -1}\n  batch: {type: choice, values: [16, 32, big]}\n  n: {type: randint, upper: 4}\n  q: {type: qnormal, mu: 1, sigma: 2, q: 3}\nobjective: {primary_metric: accuracy, goal: maximize}\nearly_termination: {type: median_stopping, delay_evaluation: 5, evaluation_interval: 2}\nlimits: {max_total_trials: 12, max_concurrent_trials: 3, timeout: 7200, trial_timeout: 61}\ntrial:\n  command: python train.py ${{search_space.lr}} ${{inputs.data}}\n  code: ./src\n  environment: azureml:e:1\n  environment_variables: {A: b}\n  resources: {instance_count: 2}\n  distribution: {type: pytorch, process_count_per_instance: 2}\ncompute: azureml:cpu-cluster\ninputs: {data: {type: uri_file, path: ./data.csv, mode: download}}\noutputs: {model: }\nqueue_settings: {job_tier: Spot}\n",
    "name: pipe-1\ntype: pipeline\ndisplay_name: two\nexperiment_name: exp\ncompute: azureml:cpu-cluster\ninputs:\n  n: 5\n  rows: {type: uri_folder, path: ./rows, mode: ro_mount}\noutputs: {result: {type: uri_file, mode: rw_mount}}\nsettings: {default_compute: azureml:cpu-cluster, continue_on_step_failure: false, force_rerun: true}\njobs:\n  prep:\n    component: azureml:prep:1\n    compute: azureml:other-one\n    inputs: {n: \"${{parent.inputs.n}}\", rows: {path: \"${{parent.inputs.rows}}\", mode: download}, file: {type: uri_file, path: ./a.csv}}\n    resources: {instance_count: 2, instance_type: big}\n    limits: {timeout: 60}\n    environment_variables: {A: b}\n  fit:\n    type: command\n    command: python fit.py ${{inputs.d}} ${{outputs.r}}\n    code: ./src\n    environment: azureml:e:1\n    inputs: {d: \"${{parent.jobs.prep.outputs.d}}\"}\n    outputs: {r: \"${{parent.outputs.result}}\", rest: }\n  tune:\n    type: sweep\n    trial: azureml:train@latest\n    sampling_algorithm: grid\n    search_space: {lr: {type: choice, values: [1, 2]}}\n    objective: {primary_metric: m, goal: minimize}\n    limits: {max_total_trials: 2}\n",
    "$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json\nname: prep\nversion: '3'\ntype: command\ndisplay_name: Prep\ndescription: d\ntags: {a: b}\nis_deterministic: false\ninputs:\n  n: {type: integer, default: 3, min: 1}\n  rows: {type: uri_folder, optional: true, mode: download}\noutputs: {d: {type: uri_folder}}\ncode: ./src\ncommand: python prep.py ${{inputs.n}} $[[--rows ${{inputs.rows}}]] ${{outputs.d}}\nenvironment: {image: library/python:3.11}\nresources: {instance_count: 1}\n",
];

#[test]
fn every_kind_is_known_by_its_keys_or_its_type() {
    let kinds: Vec<Kind> = EVERY_KIND.iter().map(|text| good(text).kind).collect();
    assert_eq!(kinds, Kind::ALL);
}

#[test]
fn a_secret_is_in_the_document_and_not_in_what_is_shown() {
    for kind in [Kind::VirtualMachine, Kind::Datastore] {
        let draft = EVERY_KIND.iter().map(|text| good(text));
        let draft = draft.into_iter().find(|draft| draft.kind == kind).unwrap();
        assert!(draft.body.to_string().contains("secret"), "{kind}");
        assert!(!render(&draft).contains("secret"), "{kind}");
    }
}

#[test]
fn an_online_deployment_becomes_the_document_of_the_sdk() {
    let text = EVERY_KIND
        .iter()
        .find(|text| text.contains("name: blue"))
        .unwrap();
    let p = &body(text)["properties"];
    assert_eq!(p["endpointComputeType"], "Kubernetes");
    assert_eq!(p["model"], id("models/m/versions/1"));
    assert_eq!(
        p["containerResourceRequirements"],
        json!({"containerResourceRequests": {"cpu": "0.1", "memory": "0.2Gi"},
            "containerResourceLimits": {"cpu": "0.2", "memory": "0.5Gi", "gpu": "1"}})
    );
    assert_eq!(p["requestSettings"]["requestTimeout"], "PT3.5S");
    assert_eq!(
        p["livenessProbe"],
        json!({"initialDelay": "PT5S", "period": "PT7S"})
    );
    assert_eq!(p["scaleSettings"]["pollingInterval"], "PT10S");
    let endpoint = EVERY_KIND
        .iter()
        .find(|text| text.contains("mirror_traffic"))
        .unwrap();
    let endpoint = body(endpoint);
    assert_eq!(endpoint["properties"]["compute"], id("computes/k8s"));
    assert_eq!(
        endpoint["properties"]["traffic"],
        json!({"blue": 70, "green": 30})
    );
}

#[test]
fn the_effective_document_is_a_file_that_means_the_same() {
    for text in EVERY_KIND {
        let first = good(text);
        let mut options = options(Some(first.kind));
        options.overrides.push(Override::flag(
            "--name",
            &["name"],
            first.name.as_deref().unwrap_or_default(),
        ));
        let again = load(render(&first).as_bytes(), "effective", &options)
            .unwrap_or_else(|refused| panic!("{refused}\n{}", render(&first)));
        assert_eq!(again.effective, first.effective);
        assert_eq!(again.defaults, [], "{}", render(&first));
    }
}

#[test]
fn a_cluster_with_everything() {
    assert_eq!(
        body(EVERY_KIND[0]),
        json!({
            "location": "japaneast",
            "properties": {
                "description": "学習用", "computeType": "AmlCompute", "disableLocalAuth": false,
                "properties": {
                    "vmSize": "standard_ds3_v2", "vmPriority": "LowPriority",
                    "userAccountCredentials": {"adminUserName": "me", "adminUserSshPublicKey": "ssh-rsa AAA"},
                    "scaleSettings": {"maxNodeCount": 4, "minNodeCount": 1, "nodeIdleTimeBeforeScaleDown": "PT1M30S"},
                    "remoteLoginPortPublicAccess": "Enabled", "enableNodePublicIp": false, "osType": "Linux"
                }
            },
            "tags": {"team": "a", "n": "010"},
            "identity": {"type": "UserAssigned", "userAssignedIdentities": {"/subscriptions/a": {}}}
        })
    );
}

#[test]
fn a_cluster_of_defaults() {
    let draft = good("name: abc\ntype: amlcompute\n");
    assert_eq!(
        draft.body["properties"]["properties"],
        json!({
            "vmSize": "Standard_DS3_v2",
            "scaleSettings": {"maxNodeCount": 1, "minNodeCount": 0, "nodeIdleTimeBeforeScaleDown": "PT2M"},
            "remoteLoginPortPublicAccess": "NotSpecified", "enableNodePublicIp": true, "osType": "Linux"
        })
    );
    let defaults: Vec<String> = draft
        .defaults
        .iter()
        .map(|note| format!("{} {}", note.path, note.value))
        .collect();
    assert_eq!(
        defaults,
        [
            "size \"Standard_DS3_v2\"",
            "tier \"dedicated\"",
            "min_instances 0",
            "max_instances 1",
            "idle_time_before_scale_down 120",
            "ssh_public_access_enabled false",
            "enable_node_public_ip true",
            "location \"local\""
        ]
    );
}

#[test]
fn a_cluster_may_keep_all_its_nodes() {
    let body = body("name: abc\ntype: amlcompute\nmin_instances: 2\nmax_instances: 2\n");
    assert_eq!(
        body["properties"]["properties"]["scaleSettings"]["minNodeCount"],
        2
    );
}

#[test]
fn an_idle_time_of_zero_is_zero() {
    let body = body("name: abc\ntype: amlcompute\nidle_time_before_scale_down: 0\n");
    assert_eq!(
        body["properties"]["properties"]["scaleSettings"]["nodeIdleTimeBeforeScaleDown"],
        "PT0S"
    );
}

#[test]
fn a_model_is_uploaded_and_its_version_stays_as_written() {
    let draft = good(EVERY_KIND[1]);
    assert_eq!(
        (draft.name.as_deref(), draft.version.as_deref()),
        (Some("heart"), Some("1.10"))
    );
    assert_eq!(
        draft.body,
        json!({"properties": {
            "description": "d", "tags": {"a": "true"}, "properties": {"b": "1:30"}, "isAnonymous": false, "isArchived": false,
            "modelType": "mlflow_model", "stage": "Production",
            "flavors": {"python_function": {"data": {"loader_module": "mlflow.sklearn"}}}
        }})
    );
    let [model] = draft.locals.as_slice() else {
        panic!("{:?}", draft.locals)
    };
    assert_eq!(
        (model.kind, model.pointer.as_str()),
        (AssetKind::Model, "/properties/modelUri")
    );
    assert_eq!(
        (model.path.as_deref(), model.datastore.as_deref()),
        (Some("./model"), Some("workspaceblobstore"))
    );
}

#[test]
fn the_conda_file_travels_inside_the_environment() {
    let draft = good(EVERY_KIND[2]);
    assert_eq!(draft.version.as_deref(), Some("2022-02-03"));
    assert_eq!(
        draft.body,
        json!({"properties": {
            "tags": {"q": "1"}, "isAnonymous": false, "isArchived": false, "image": "library/python:3.11",
            "condaFile": "channels:\n- conda-forge\ndependencies:\n- python=3.11\n- pip:\n  - scikit-learn==1.5.2\nname: x\n",
            "osType": "Linux",
            "inferenceConfig": {
                "livenessRoute": {"path": "/", "port": 5001}, "readinessRoute": {"path": "/", "port": 5001},
                "scoringRoute": {"path": "/score", "port": 5001}
            }
        }})
    );
}

#[test]
fn data_is_uploaded_or_stays_where_it_is() {
    let draft = good(EVERY_KIND[3]);
    assert_eq!(
        draft.body,
        json!({"properties": {"description": "d", "tags": {}, "properties": {}, "isAnonymous": false, "isArchived": false, "dataType": "uri_folder"}})
    );
    assert_eq!(
        (draft.locals[0].kind, draft.locals[0].path.as_deref()),
        (AssetKind::Data, Some("./rows"))
    );
    assert_eq!(draft.locals[0].pointer, "/properties/dataUri");
    for uri in [
        "azureml://datastores/d/paths/x/",
        "https://example.org/x",
        "wasbs://c@a.blob.core.windows.net/x",
    ] {
        let draft = good(&format!("name: d\ntype: uri_file\npath: {uri}\n"));
        assert_eq!(
            (
                draft.body["properties"]["dataUri"].as_str(),
                draft.locals.len()
            ),
            (Some(uri), 0)
        );
    }
}

#[test]
fn an_endpoint_with_everything() {
    assert_eq!(
        body(EVERY_KIND[4]),
        json!({
            "location": "local", "tags": {"a": "b"},
            "properties": {"description": "d", "authMode": "aadToken", "properties": {"p": "1"}, "defaults": {"deploymentName": "classifier"}}
        })
    );
}

#[test]
fn a_deployment_with_everything() {
    let draft = good(EVERY_KIND[5]);
    assert_eq!(draft.parent.as_deref(), Some("heart-batch"));
    let locals: Vec<_> = draft
        .locals
        .iter()
        .map(|local| (local.kind, local.pointer.as_str(), local.path.as_deref()))
        .collect();
    assert_eq!(
        locals,
        [
            (AssetKind::Model, "/properties/model/assetId", None),
            (
                AssetKind::Environment,
                "/properties/environmentId",
                Some("./ctx")
            ),
            (
                AssetKind::Code,
                "/properties/codeConfiguration/codeId",
                Some("./src")
            ),
        ]
    );
    let model = &draft.locals[0];
    assert_eq!(
        (model.name.as_deref(), model.version.as_deref()),
        (Some("heart"), Some("3"))
    );
    assert_eq!(
        model.body.as_ref().unwrap()["properties"]["modelUri"],
        "azureml://datastores/workspaceblobstore/paths/m"
    );
    let environment = &draft.locals[1];
    assert_eq!(
        environment.upload_pointer.as_deref(),
        Some("/properties/build/contextUri")
    );
    assert_eq!(
        environment.body.as_ref().unwrap()["properties"]["build"],
        json!({"dockerfilePath": "Dockerfile.gpu"})
    );
    assert_eq!(
        body(EVERY_KIND[5]),
        json!({
            "location": "local", "tags": {},
            "properties": {
                "description": "d", "model": {"referenceType": "Id"}, "codeConfiguration": {"scoringScript": "score.py"},
                "compute": id("computes/low-pri"), "resources": {"properties": {}, "instanceCount": 2},
                "maxConcurrencyPerInstance": 2, "miniBatchSize": 2, "errorThreshold": 5, "loggingLevel": "debug",
                "outputAction": "SummaryOnly", "retrySettings": {"maxRetries": 0, "timeout": "PT5M"},
                "environmentVariables": {"Z": "1"},
                "properties": {"zaffre.on_capacity_loss": "wait", "zaffre.max_preemptions": "10"}
            }
        })
    );
}

#[test]
fn ids_go_where_the_pointers_say() {
    let mut draft = good(EVERY_KIND[5]);
    for local in draft.locals.clone() {
        draft.put(&local.pointer, format!("{:?}", local.kind));
    }
    let properties = &draft.body["properties"];
    assert_eq!(
        properties["model"],
        json!({"referenceType": "Id", "assetId": "Model"})
    );
    assert_eq!(
        properties["codeConfiguration"],
        json!({"scoringScript": "score.py", "codeId": "Code"})
    );
    assert_eq!(properties["environmentId"], "Environment");
}

#[test]
fn a_model_path_may_be_a_registered_model() {
    for model in [
        "{path: azureml:heart:1}",
        "{path: 'azureml:heart:1', type: mlflow_model}",
        "azureml:heart:1",
    ] {
        let body = body(&DEPLOYMENT.replace("azureml:heart:1", model));
        assert_eq!(
            body["properties"]["model"]["assetId"],
            id("models/heart/versions/1"),
            "{model}"
        );
    }
}

#[test]
fn references_without_a_version_mean_the_latest() {
    let draft = good(&DEPLOYMENT.replace("azureml:heart:1", "azureml:heart"));
    assert_eq!(
        (
            draft.labels[0].name.as_str(),
            draft.labels[0].label.as_str()
        ),
        ("heart", "latest")
    );
    assert_eq!(draft.labels[0].pointer, "/properties/model/assetId");
}

#[test]
fn a_full_id_stays_as_it_is() {
    let other = "/subscriptions/X/resourcegroups/Y/providers/Microsoft.MachineLearningServices/workspaces/Z/models/m/versions/2";
    let body = body(&DEPLOYMENT.replace("azureml:heart:1", &format!("azureml:{other}")));
    assert_eq!(body["properties"]["model"]["assetId"], other);
}

#[test]
fn instance_count_may_stand_in_settings() {
    let body = body(&format!("{DEPLOYMENT}settings:\n  instance_count: 3\n"));
    assert_eq!(
        body["properties"]["resources"],
        json!({"instanceCount": 3, "properties": {}})
    );
}

#[test]
fn a_deployment_of_defaults_says_where_they_come_from() {
    let draft = good(DEPLOYMENT);
    assert_eq!(
        draft.body["properties"],
        json!({"model": {"assetId": "azureml:heart:1", "referenceType": "Id"}, "compute": "azureml:low-pri", "properties": {}})
    );
    assert_eq!(
        render(&draft),
        "name: classifier
endpoint_name: heart-batch
type: model
model: azureml:heart:1
compute: azureml:low-pri
resources:
  instance_count: 1  # default: Azure ML YAML reference, batch deployment
max_concurrency_per_instance: 1  # default: Azure ML YAML reference, batch deployment
mini_batch_size: 10  # default: Azure ML YAML reference, batch deployment
error_threshold: -1  # default: Azure ML YAML reference, batch deployment
logging_level: info  # default: Azure ML YAML reference, batch deployment
output_action: append_row  # default: Azure ML YAML reference, batch deployment
output_file_name: predictions.csv  # default: Azure ML YAML reference, batch deployment
retry_settings:
  max_retries: 3  # default: Azure ML YAML reference, batch deployment
  timeout: 30  # default: Azure ML YAML reference, batch deployment
location: local  # default: the location of the workspace
"
    );
}

#[test]
fn a_job_with_everything() {
    let draft = good(EVERY_KIND[6]);
    assert_eq!(draft.name.as_deref(), Some("train-1"));
    let locals: Vec<_> = draft
        .locals
        .iter()
        .map(|local| (local.kind, local.pointer.as_str(), local.path.as_deref()))
        .collect();
    assert_eq!(
        locals,
        [
            (AssetKind::Code, "/properties/codeId", Some("./src")),
            (
                AssetKind::Input,
                "/properties/inputs/data/uri",
                Some("./data.csv")
            ),
            (AssetKind::Environment, "/properties/environmentId", None),
        ]
    );
    assert_eq!(
        draft.locals[2].body.as_ref().unwrap()["properties"]["condaFile"],
        "dependencies:\n- python=3.11\nname: x\n"
    );
    assert_eq!(
        body(EVERY_KIND[6]),
        json!({"properties": {
            "displayName": "train it", "description": "d", "command": "python train.py ${{inputs.data}} ${{ inputs.lr }} ${{outputs.model}}",
            "computeId": id("computes/cpu-cluster"), "properties": {"p": "q"}, "experimentName": "exp", "isArchived": false,
            "inputs": {
                "data": {"jobInputType": "uri_file", "mode": "Download"},
                "lr": {"jobInputType": "literal", "value": "0.50"},
                "flag": {"jobInputType": "literal", "value": "True"},
                "model": {"jobInputType": "mlflow_model", "uri": id("models/heart/versions/7")}
            },
            "outputs": {
                "model": {"jobOutputType": "mlflow_model", "mode": "Upload", "assetName": "heart", "assetVersion": "2"},
                "rest": {"jobOutputType": "uri_folder"}
            },
            "tags": {"k": "v"}, "environmentVariables": {"FOO": "bar"},
            "resources": {"instanceCount": 2, "properties": {"a": {"b": 1}}, "dockerArgsList": ["--ipc", "host"], "shmSize": "1g"},
            "limits": {"jobLimitsType": "Command", "timeout": "PT1H"},
            "distribution": {"processCountPerInstance": 2, "distributionType": "PyTorch"},
            "queueSettings": {"jobTier": "Spot", "priority": 3},
            "services": {"j": {"jobServiceType": "JupyterLab", "nodes": {"nodesValueType": "All"}}},
            "identity": {"identityType": "UserIdentity"}, "jobType": "Command"
        }})
    );
}

#[test]
fn text_fields_keep_the_characters_that_were_written() {
    for text in [
        "true",
        "yes",
        "1",
        "1.10",
        "010",
        "0x10",
        "1:30",
        "1e3",
        "2022-02-03",
        "0.50",
        "~x",
        "12:30:45",
        "1_000",
    ] {
        let body = body(&format!(
            "{JOB}environment_variables: {{V: {text}}}\ntags: {{V: {text}}}\n"
        ));
        assert_eq!(body["properties"]["environmentVariables"]["V"], text);
        assert_eq!(body["properties"]["tags"]["V"], text);
    }
    for version in [
        "1.10",
        "010",
        "01",
        "1e3",
        "2022-02-03",
        "'1.10'",
        "\"010\"",
    ] {
        let draft = good(&format!(
            "name: m\nversion: {version}\ntype: mlflow_model\npath: ./m\n"
        ));
        assert_eq!(
            draft.version.as_deref(),
            Some(version.trim_matches(['\'', '"']))
        );
    }
    assert_eq!(
        body(&format!("{JOB}environment_variables: {{V: ''}}\n"))["properties"]["environmentVariables"]
            ["V"],
        ""
    );
}

#[test]
fn a_mark_windows_line_ends_and_japanese_are_fine() {
    let text = format!(
        "\u{FEFF}{}",
        DEPLOYMENT.replace('\n', "\r\n") + "description: 心臓病の分類 🫀\r\n"
    );
    assert_eq!(
        good(&text).body["properties"]["description"],
        "心臓病の分類 🫀"
    );
}

#[test]
fn anchors_and_merges_are_followed() {
    let text = format!(
        "{DEPLOYMENT}settings:\n  retry_settings: &r {{max_retries: 1, timeout: 60}}\n  environment_variables: &v {{A: b}}\ntags:\n  <<: *v\n  C: d\n"
    );
    let body = body(&text);
    assert_eq!(body["tags"], json!({"C": "d", "A": "b"}));
}

#[test]
fn what_is_not_built_yet_is_named_and_loads() {
    let unsupported = |text: &str| good(text).unsupported;
    assert_eq!(
        unsupported(&JOB.replace("azureml:cpu-cluster", "local")),
        ["compute: local"]
    );
    assert_eq!(
        unsupported(&JOB.replace("azureml:cpu-cluster", "serverless")),
        ["compute: serverless"]
    );
    assert_eq!(
        unsupported("command: echo\nenvironment: azureml:e:1\n"),
        ["a job without compute (serverless compute)"]
    );
    assert_eq!(
        unsupported(&DEPLOYMENT.replace("compute: azureml:low-pri\n", "")),
        ["a batch deployment without compute (serverless compute)"]
    );
    assert_eq!(
        unsupported(&format!("{JOB}code: git+https://example.org/x.git\n")),
        ["code from git"]
    );
    assert_eq!(
        unsupported(&JOB.replace(
            "azureml:e:1",
            "azureml://registries/azureml/environments/e/versions/1"
        )),
        [
            "`azureml://registries/azureml/environments/e/versions/1` points into the registry `azureml`: zaffre does not reach registries yet"
        ]
    );
    assert_eq!(
        unsupported("name: d\ntype: mltable\npath: ./x\n"),
        ["mltable data"]
    );
    for (section, feature) in [
        (
            "services: {s: {type: ssh}}",
            "services.s (interactive services)",
        ),
        ("distribution: {type: ray}", "distribution.type ray"),
        (
            "inputs: {m: {path: ./x, mode: rw_mount}}",
            "inputs.m.mode other than ro_mount, download and direct",
        ),
    ] {
        assert_eq!(unsupported(&format!("{JOB}{section}\n")), [feature]);
    }
    assert!(
        !good(&JOB.replace("azureml:cpu-cluster", "local")).body["properties"]
            .as_object()
            .unwrap()
            .contains_key("computeId")
    );
}

#[test]
fn warnings_point_at_their_line() {
    let said = |text: &str| {
        good(text)
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        said("name: abc\ntype: amlcompute\nsize: STANDARD_NV6\n"),
        [
            "f.yml:3:7: size Standard_NV6 belongs to series NV, which Azure retired on 2023-08-31; choose another size"
        ]
    );
    assert_eq!(
        said("name: cpu-1\ntype: amlcompute\n"),
        ["f.yml:1:1: compute name `cpu-1` has no letter after its last -, which azure refuses"]
    );
    assert_eq!(
        said("name: abc\ntype: amlcompute\nprovisioning_state: Succeeded\ntags:\n"),
        [
            "f.yml:4:1: tags is empty and counts as absent",
            "f.yml:3:1: provisioning_state is written by the server and is not read from a file"
        ]
    );
    assert_eq!(
        said(&format!("$schema: https://example.org/mine.json\n{JOB}")),
        ["f.yml:1:10: $schema names no kind of azure machine learning and is not read"]
    );
    assert_eq!(
        said(&format!(
            "{DEPLOYMENT}output_action: summary_only\noutput_file_name: x.csv\n"
        )),
        ["f.yml:7:19: output_file_name has no effect with output_action summary_only"]
    );
}

const PARALLEL: &str = "\
inputs: {rows: {type: uri_folder}, label: {type: string, default: a}}
outputs: {scores: {type: uri_file}}
input_data: ${{inputs.rows}}
mini_batch_size: '10'
error_threshold: 5
max_concurrency_per_instance: 2
logging_level: debug
retry_settings: {max_retries: 1, timeout: 30}
resources: {instance_count: 2}
task:
  type: run_function
  code: ./src
  entry_script: ./score.py
  environment: azureml:e:1
  program_arguments: --label ${{inputs.label}}
  append_row_to: ${{outputs.scores}}
";

#[test]
fn a_parallel_component_becomes_the_spec_of_the_sdk() {
    let text =
        format!("name: score\nversion: 2\ntype: parallel\nis_deterministic: true\n{PARALLEL}");
    let mut options = options(Some(Kind::Component));
    let mut draft = load(text.as_bytes(), "f.yml", &options).unwrap();
    assert_eq!(draft.kind, Kind::Component);
    let code = draft.locals.iter().map(|l| l.pointer.as_str());
    assert_eq!(
        code.collect::<Vec<_>>(),
        ["/properties/componentSpec/task/code"]
    );
    draft.expand(&model::Workspace::new("S", "G", "W"));
    let spec = &draft.body["properties"]["componentSpec"];
    assert_eq!(
        *spec,
        json!({
            "name": "score", "version": "2", "type": "parallel", "is_deterministic": true,
            "inputs": {"rows": {"type": "uri_folder"}, "label": {"type": "string", "default": "a"}},
            "outputs": {"scores": {"type": "uri_file"}},
            "input_data": "${{inputs.rows}}", "mini_batch_size": "10", "error_threshold": 5,
            "max_concurrency_per_instance": 2, "logging_level": "DEBUG",
            "retry_settings": {"max_retries": 1, "timeout": 30},
            "task": {"type": "run_function", "entry_script": "score.py", "environment": id("environments/e/versions/1"),
                "program_arguments": "--label ${{inputs.label}}", "append_row_to": "${{outputs.scores}}"},
            "resources": {"instance_count": 2},
        })
    );
    let shown = render(&draft);
    options.hint = Some(draft.kind);
    let again = load(shown.as_bytes(), "effective", &options).unwrap();
    assert_eq!(again.effective, draft.effective, "{shown}");
}

#[test]
fn a_step_with_its_own_task_is_a_component_and_a_step() {
    let text = "type: pipeline\ncompute: azureml:cpu\ninputs: {data: {type: uri_file, path: ./src}, size: 3}\njobs:\n  score:\n    type: parallel\n    inputs: {rows: \"${{parent.inputs.data}}\", label: 7}\n    outputs: {scores: {type: uri_file}}\n    input_data: ${{inputs.rows}}\n    mini_batch_size: ${{parent.inputs.size}}\n    max_concurrency_per_instance: 2\n    resources: {instance_count: 2}\n    environment_variables: {A: b}\n    task: {type: run_function, code: ./src, entry_script: score.py, environment: azureml:e:1}\n";
    let draft = good(text);
    let step = &draft.body["properties"]["jobs"]["score"];
    assert_eq!(step["type"], "parallel");
    assert_eq!(
        step["mini_batch_size"], "${{parent.inputs.size}}",
        "only the pipeline knows it"
    );
    assert_eq!(step["resources"], json!({"instance_count": 2}));
    assert_eq!(step["environment_variables"], json!({"A": "b"}));
    let component = &step["component"];
    assert_eq!(
        component["inputs"],
        json!({"rows": {"type": "uri_file"}, "label": {"type": "string"}})
    );
    assert_eq!(
        (
            &component["max_concurrency_per_instance"],
            &component["mini_batch_size"]
        ),
        (&json!(2), &Value::Null)
    );
    let code = draft.locals.iter().map(|l| l.pointer.as_str());
    assert!(
        code.into_iter()
            .any(|at| at == "/properties/jobs/score/component/task/code")
    );
}

#[test]
fn tables_are_named_as_what_does_not_run() {
    for (from, to, what) in [
        (
            "'10'",
            "10kb",
            "mini_batch_size: 10kb (an amount of tabular data",
        ),
        (
            "rows: {type: uri_folder}",
            "rows: {type: mltable}",
            "input_data: rows is an mltable",
        ),
        (
            "error_threshold: 5",
            "partition_keys: [a]",
            "partition_keys (partitions of a table)",
        ),
    ] {
        let text = format!(
            "name: score\ntype: parallel\n{}",
            PARALLEL.replace(from, to)
        );
        let options = options(Some(Kind::Component));
        let draft = load(text.as_bytes(), "f.yml", &options).unwrap();
        assert!(
            draft.unsupported.iter().any(|f| f.starts_with(what)),
            "{:?}",
            draft.unsupported
        );
    }
}
