//! Golden pods, field by field.

use super::*;
use model::{
    Attempt, Bytes, ComputeId, JobId, MilliCpu, Workspace,
    engine::{EnvironmentSpec, Packages, Program},
};
use serde_json::{Value, json};

fn task(run: &str) -> TaskId {
    TaskId {
        job: JobId::new(&Workspace::new("s", "rg1", "ws1"), run),
        index: 0,
        attempt: Attempt(1),
    }
}

/// `myinstancetypename` of the article: 700m and 1500Mi, at most 1 core, 2Gi and one GPU, where `mylabel=mylabelvalue`.
fn shape() -> PodSpec {
    PodSpec {
        compute: ComputeId::new(&Workspace::new("s", "rg1", "ws1"), "k8s-compute"),
        instance_type: "myinstancetypename".into(),
        requests: Resources {
            cpu: MilliCpu(700),
            memory: Bytes(1500 << 20),
            devices: BTreeMap::from([("nvidia.com/gpu".into(), 1)]),
        },
        limits: Resources {
            cpu: MilliCpu(1000),
            memory: Bytes(2 << 30),
            devices: BTreeMap::from([("nvidia.com/gpu".into(), 1)]),
        },
        selector: BTreeMap::from([("mylabel".into(), "mylabelvalue".into())]),
        machine: None,
    }
}

fn spec(image: Option<&str>) -> TaskSpec {
    TaskSpec {
        program: Program::Command {
            line: "echo hello world".into(),
        },
        environment: EnvironmentSpec {
            label: "docker-image-example:1".into(),
            image: image.map(Into::into),
            packages: Packages::None,
        },
        code: None,
        inputs: BTreeMap::new(),
        outputs: BTreeMap::new(),
        model: None,
        variables: BTreeMap::new(),
        limits: Resources::default(),
        artifacts: model::BlobPath::new("ws/run").unwrap(),
    }
}

fn settings() -> Settings {
    Settings {
        selector: Labels::new(),
        server: "0123456789".into(),
        namespace: "azureml".into(),
        connect: "https://10.0.0.1:8443".into(),
        agent_image: "zaffre:0.1.0".into(),
        run_as: RUN_AS,
        pull: PullPolicy::IfNotPresent,
        owner: Some(OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "zaffre-0123456789-k8s-compute".into(),
            uid: "u-1".into(),
            ..OwnerReference::default()
        }),
        claims: Vec::new(),
    }
}

fn made(run: &str, settings: &Settings) -> Value {
    let pod = pod(
        &task(run),
        &shape(),
        &spec(Some("docker.io/library/python:latest")),
        settings,
    );
    serde_json::to_value(pod.unwrap()).unwrap()
}

#[test]
fn p1_the_articles_type_gives_this_pod_and_no_other() {
    let pod = made("train", &settings());
    let expected: Value = serde_json::from_str(include_str!("golden.json")).unwrap();
    assert_eq!(
        pod,
        expected,
        "{}",
        serde_json::to_string_pretty(&pod).unwrap()
    );
    let main = &pod["spec"]["containers"][0];
    assert_eq!(
        main["resources"]["requests"],
        json!({"cpu": "700m", "memory": "1500Mi"})
    );
    assert_eq!(
        main["resources"]["limits"],
        json!({"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "1"})
    );
    assert_eq!(
        pod["spec"]["nodeSelector"],
        json!({"mylabel": "mylabelvalue"})
    );
}

#[test]
fn p1_what_the_first_step_may_use_is_not_on_top() {
    let pod = made("train", &settings());
    let spec = serde_json::from_value(pod["spec"].clone()).unwrap();
    let requests = crate::amount::requested(&spec);
    assert_eq!(
        (requests.cpu, requests.memory),
        (MilliCpu(700), Bytes(1500 << 20))
    );
    assert_eq!(requests.devices.len(), 1, "one GPU, by its limit");
}

#[test]
fn p2_nothing_in_a_pod_may_become_root_unless_its_compute_says_so() {
    let pod = made("train", &settings());
    for container in ["initContainers", "containers"] {
        let security = &pod["spec"][container][0]["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], json!(false));
        assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
    }
    assert_eq!(pod["spec"]["automountServiceAccountToken"], json!(false));
    assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], json!(true));
    let root = Settings {
        run_as: 0,
        ..settings()
    };
    let pod = made("train", &root);
    assert_eq!(pod["spec"]["securityContext"]["runAsUser"], json!(0));
    assert_eq!(pod["spec"]["securityContext"].get("runAsNonRoot"), None);
}

fn node_made(tier: Tier, gpus: u32) -> Value {
    let compute = |name| ComputeId::new(&Workspace::new("s", "rg1", "ws1"), name);
    let id = NodeId {
        compute: compute("pool"),
        ordinal: 3,
        incarnation: 2,
    };
    let spec = NodeSpec {
        size: model::Size {
            name: "Standard_DS3_v2".into(),
            family: "standardDSv2Family".into(),
            cores: 4,
            memory: Bytes(14 << 30),
            gpus,
        },
        tier,
        pod: Some(model::NodePod {
            compute: compute("k8s"),
            image: "python:3.12-slim".into(),
        }),
    };
    let settings = Settings {
        selector: Labels::from([("disk".into(), "fast".into())]),
        ..settings()
    };
    serde_json::to_value(node(&id, &spec, &settings).unwrap()).unwrap()
}

#[test]
fn p1_a_node_is_as_large_as_its_size_and_fits_on_a_machine_of_it() {
    let pod = node_made(Tier::Dedicated, 2);
    let main = &pod["spec"]["containers"][0];
    let mebibytes = (14 << 10) * 3 / 4;
    assert_eq!(
        main["resources"],
        json!({
            "requests": {"cpu": "3", "memory": format!("{mebibytes}Mi")},
            "limits": {"cpu": "4", "memory": "14Gi", "nvidia.com/gpu": "2"},
        })
    );
    assert_eq!(pod["spec"]["nodeSelector"], json!({"disk": "fast"}));
    assert_eq!(main["image"], json!("python:3.12-slim"));
    let words = main["command"].as_array().unwrap();
    assert_eq!(words.last().unwrap(), "--node");
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["zaffre/cluster"], json!("pool"));
    assert_eq!(labels["zaffre/size"], json!("Standard_DS3_v2"));
    assert_eq!(labels["zaffre/tier"], json!("dedicated"));
    assert!(
        pod["metadata"]["annotations"][NODE]
            .as_str()
            .unwrap()
            .contains("pool")
    );
}

#[test]
fn only_nodes_of_low_priority_go_where_machines_may_be_taken_away() {
    let spot = |pod: &Value| {
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
        let spot = |t: &&Value| t["key"] == "kubernetes.azure.com/scalesetpriority";
        tolerations.iter().find(spot).cloned()
    };
    let dedicated = node_made(Tier::Dedicated, 0);
    assert_eq!(
        (spot(&dedicated), dedicated["spec"].get("affinity")),
        (None, None)
    );
    let low = node_made(Tier::LowPriority, 0);
    assert_eq!(
        spot(&low).unwrap(),
        json!({"key": "kubernetes.azure.com/scalesetpriority", "operator": "Equal", "value": "spot", "effect": "NoSchedule"})
    );
    let affinity = &low["spec"]["affinity"]["nodeAffinity"];
    assert_eq!(
        affinity["preferredDuringSchedulingIgnoredDuringExecution"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(
        affinity.get("requiredDuringSchedulingIgnoredDuringExecution"),
        None
    );
}

#[test]
fn a_job_without_an_image_is_refused_by_the_name_of_its_environment() {
    let message = pod(&task("train"), &shape(), &spec(None), &settings()).unwrap_err();
    assert_eq!(
        message,
        "environment docker-image-example:1 names no image: on Kubernetes a job runs in one"
    );
}

#[test]
fn marked_claims_are_mounted_where_they_say() {
    let pvc = |label: &str, path: &str| {
        serde_json::from_value(json!({
            "metadata": {"name": "data", "labels": {"ml.azure.com/pvc": label}, "annotations": {"ml.azure.com/mountpath": path}},
        }))
        .unwrap()
    };
    let found = claim(&pvc("true", "/mnt/data")).unwrap();
    assert_eq!(claim(&pvc("false", "/mnt/data")), None);
    for covered in ["/", "mnt", "/zaffre/bin"] {
        assert_eq!(claim(&pvc("true", covered)), None, "{covered}");
    }
    let pod = made(
        "train",
        &Settings {
            claims: vec![found],
            ..settings()
        },
    );
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    assert_eq!(
        volumes.last().unwrap(),
        &json!({"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}})
    );
    let mounts = pod["spec"]["containers"][0]["volumeMounts"]
        .as_array()
        .unwrap();
    assert_eq!(
        mounts.last().unwrap(),
        &json!({"name": "claim-0", "mountPath": "/mnt/data"})
    );
}

#[test]
fn memory_is_written_in_the_largest_unit_that_keeps_it() {
    for (bytes, text) in [
        (0, "0"),
        (1, "1"),
        (1500 << 20, "1500Mi"),
        (2 << 30, "2Gi"),
        (1 << 60, "1024Pi"),
    ] {
        assert_eq!(memory(bytes), text);
    }
}
