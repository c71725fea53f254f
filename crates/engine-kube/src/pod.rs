//! The pod of a task or of a node. Pure: a function of what it is for, its shape, and the settings of its compute.
//!
//! P1 the user's container has exactly what the instance type says: requests, limits with devices, and the merged selector;
//!    a node has its size as limits, and requests what a machine of that size can give;
//! P2 nothing in it may become root, reach the API server, or gain a capability;
//! P3 the command is our agent, from a folder that a first step fills: the user's image needs nothing of ours.

use crate::{name, record::Key, tolerate};
use k8s_openapi::{
    ByteString,
    api::core::v1::{
        Affinity, Capabilities, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource,
        ObjectFieldSelector, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext,
        PodSpec as KubePodSpec, ResourceRequirements, SeccompProfile, Secret, SecretVolumeSource,
        SecurityContext, Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference},
    },
};
use model::{
    Bytes, Labels, MilliCpu, NodeId, NodeSpec, PodSpec, Resources, TaskId, TaskSpec, Tier,
    instance_type::GPU, kubernetes::PullPolicy,
};
use std::collections::BTreeMap;

/// Where our files are in a pod.
pub const FOLDER: &str = "/zaffre";
/// The label that says who manages a thing.
pub const MANAGED: &str = "app.kubernetes.io/managed-by";
/// The label of a thing of one server is this and the server's id.
pub const SERVER: &str = "zaffre.server";
/// The label with the compute.
pub const COMPUTE: &str = "zaffre/compute";
/// The annotation with the task's id, whole.
pub const TASK: &str = "zaffre/task";
/// The annotation with the node's id, whole.
pub const NODE: &str = "zaffre/node";
/// How much of a size a node requests, in percent: the rest is what Kubernetes keeps of a machine of that size for itself, so
/// that a node fits on one.
const REQUESTED: u64 = 75;
/// The user that a pod runs as, when its compute says nothing: nobody in particular, and not root.
pub const RUN_AS: i64 = 10_001;
/// Seconds for a pod that is told to end: our agent asks the command, and has ten for it.
pub const GRACE_S: i64 = 30;
/// The user's container.
pub const MAIN: &str = "main";
/// The step that brings our agent.
const BRING: &str = "zaffre";

/// A claim that every job of the compute finds mounted (behaviour §2.7.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Name of the PersistentVolumeClaim.
    pub name: String,
    /// Where it is mounted.
    pub path: String,
}

/// What pods of one compute share.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The server's id.
    pub server: String,
    /// Their namespace.
    pub namespace: String,
    /// Where agents find the server: `https://HOST:PORT`.
    pub connect: String,
    /// The image that holds our binary.
    pub agent_image: String,
    /// The user that they run as.
    pub run_as: i64,
    /// When images are pulled.
    pub pull: PullPolicy,
    /// What owns them all.
    pub owner: Option<OwnerReference>,
    /// Claims to mount.
    pub claims: Vec<Claim>,
    /// Where pods of nodes must run. Those of tasks bring theirs.
    pub selector: Labels,
}

/// An amount of memory as people write it: the largest binary unit that keeps it whole.
pub fn memory(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut amount, mut unit) = (bytes, 0);
    while amount > 0 && amount.is_multiple_of(1024) && unit + 1 < units.len() {
        amount /= 1024;
        unit += 1;
    }
    format!("{amount}{}", units[unit])
}

fn amounts(of: &Resources, devices: bool) -> BTreeMap<String, Quantity> {
    let mut out = BTreeMap::from([
        ("cpu".to_owned(), Quantity(of.cpu.to_string())),
        ("memory".to_owned(), Quantity(memory(of.memory.0))),
    ]);
    if devices {
        let devices = of.devices.iter();
        out.extend(devices.map(|(name, count)| (name.to_string(), Quantity(count.to_string()))));
    }
    out
}

/// Requests and limits; devices are limits alone, as in the type: the API server requests as many.
fn shape(pod: &PodSpec, devices: bool) -> ResourceRequirements {
    ResourceRequirements {
        requests: Some(amounts(&pod.requests, false)),
        limits: Some(amounts(&pod.limits, devices)),
        ..ResourceRequirements::default()
    }
}

fn confined() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            ..Capabilities::default()
        }),
        ..SecurityContext::default()
    }
}

fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.into(),
        mount_path: path.into(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn policy(pull: PullPolicy) -> String {
    match pull {
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Always => "Always",
        PullPolicy::Never => "Never",
    }
    .into()
}

/// Labels that everything of a compute carries.
pub fn labels(server: &str, compute: &model::ComputeId) -> BTreeMap<String, String> {
    let whole = serde_json::to_string(compute).expect("ids can be written");
    BTreeMap::from([
        (MANAGED.to_owned(), "zaffre".to_owned()),
        (format!("{SERVER}/{server}"), "true".to_owned()),
        (
            COMPUTE.to_owned(),
            format!(
                "{}-{}",
                name::label(compute.name()),
                name::digest(&whole.to_ascii_lowercase(), 8)
            ),
        ),
    ])
}

/// What a pod and its secret are called, and whose they are.
fn metadata(
    key: &Key,
    compute: &model::ComputeId,
    own: &[(&str, &str)],
    settings: &Settings,
) -> ObjectMeta {
    let mut labels = labels(&settings.server, compute);
    for (key, value) in own {
        labels.insert(format!("zaffre/{key}"), name::label(value));
    }
    let id = match key {
        Key::Task(task) => (TASK, serde_json::to_string(task)),
        Key::Node(node) => (NODE, serde_json::to_string(node)),
    };
    let whole = id.1.expect("ids can be written");
    ObjectMeta {
        name: Some(name::of(&settings.server, key)),
        namespace: Some(settings.namespace.clone()),
        labels: Some(labels),
        annotations: Some(BTreeMap::from([(id.0.to_owned(), whole)])),
        owner_references: settings.owner.clone().map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// What the agent of a pod needs to be let in; only that pod can read it.
pub fn secret(pod: &Pod, files: &[(&str, &[u8])]) -> Secret {
    Secret {
        metadata: pod.metadata.clone(),
        type_: Some("Opaque".into()),
        data: Some(
            files
                .iter()
                .map(|(name, bytes)| ((*name).to_owned(), ByteString(bytes.to_vec())))
                .collect(),
        ),
        immutable: Some(true),
        ..Secret::default()
    }
}

/// The pod of a task; the error is for the user.
pub fn pod(
    task: &TaskId,
    pod: &PodSpec,
    spec: &TaskSpec,
    settings: &Settings,
) -> Result<Pod, String> {
    let image = spec.environment.image.as_deref().ok_or_else(|| {
        format!(
            "environment {} names no image: on Kubernetes a job runs in one",
            spec.environment.label
        )
    })?;
    let own = [
        ("run", task.job.name()),
        ("attempt", &task.attempt.0.to_string()),
        ("rank", &task.index.to_string()),
        ("instance-type", &pod.instance_type),
    ];
    let key = Key::Task(task.clone());
    let metadata = metadata(&key, &pod.compute, &own, settings);
    let frame = Frame {
        image,
        bring: shape(pod, false),
        main: shape(pod, true),
        whole: false,
        selector: &pod.selector,
        tolerations: tolerate::tolerations(&pod.compute),
        affinity: None,
    };
    Ok(frame.pod(metadata, settings))
}

/// The pod of a node; the error is for the user.
pub fn node(node: &NodeId, spec: &NodeSpec, settings: &Settings) -> Result<Pod, String> {
    let place = spec.pod.as_ref();
    let place = place.ok_or_else(|| format!("node {node} is no pod"))?;
    let own = [
        ("cluster", node.compute.name()),
        ("node", &format!("{}-{}", node.ordinal, node.incarnation)),
        ("tier", &spec.tier.to_string()),
        ("size", &spec.size.name.to_string()),
    ];
    let key = Key::Node(node.clone());
    let metadata = metadata(&key, &place.compute, &own, settings);
    let whole = |percent: u64| Resources {
        cpu: MilliCpu(u64::from(spec.size.cores) * 10 * percent),
        // Whole mebibytes, which people read.
        memory: Bytes(((spec.size.memory.0 >> 20) * percent / 100) << 20),
        devices: [(GPU.into(), spec.size.gpus)]
            .into_iter()
            .filter(|(_, gpus)| *gpus > 0)
            .collect(),
    };
    let shape = |devices| ResourceRequirements {
        requests: Some(amounts(&whole(REQUESTED), false)),
        limits: Some(amounts(&whole(100), devices)),
        ..ResourceRequirements::default()
    };
    let spot = spec.tier == Tier::LowPriority;
    let mut tolerations = tolerate::tolerations(&place.compute);
    if spot {
        tolerations.extend(tolerate::spot());
    }
    let frame = Frame {
        image: &place.image,
        bring: shape(false),
        main: shape(true),
        whole: true,
        selector: &settings.selector,
        tolerations,
        affinity: spot.then(tolerate::rather_spot),
    };
    Ok(frame.pod(metadata, settings))
}

/// What pods differ in.
struct Frame<'a> {
    image: &'a str,
    /// Of the step that brings our agent.
    bring: ResourceRequirements,
    /// Of the user's container.
    main: ResourceRequirements,
    /// It is a node, and its agent takes any task.
    whole: bool,
    selector: &'a Labels,
    tolerations: Vec<Toleration>,
    affinity: Option<Affinity>,
}

fn volume(name: &str) -> Volume {
    Volume {
        name: name.into(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

impl Frame<'_> {
    fn pod(self, metadata: ObjectMeta, settings: &Settings) -> Pod {
        let (bin, work, key) = (
            format!("{FOLDER}/bin"),
            format!("{FOLDER}/work"),
            format!("{FOLDER}/secret"),
        );
        let agent = format!("{bin}/zaffre");
        let mut volumes = vec![
            volume("bin"),
            volume("work"),
            Volume {
                name: "secret".into(),
                secret: Some(SecretVolumeSource {
                    secret_name: metadata.name.clone(),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            },
        ];
        let mut mounts = vec![
            mount("bin", &bin, true),
            mount("work", &work, false),
            mount("secret", &key, true),
        ];
        for (number, claim) in settings.claims.iter().enumerate() {
            let volume = format!("claim-{number}");
            mounts.push(mount(&volume, &claim.path, false));
            volumes.push(Volume {
                name: volume,
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim.name.clone(),
                    read_only: None,
                }),
                ..Volume::default()
            });
        }
        let bring = Container {
            name: BRING.into(),
            image: Some(settings.agent_image.clone()),
            image_pull_policy: Some(policy(settings.pull)),
            command: Some(vec![
                "zaffre".into(),
                "agent".into(),
                "--install".into(),
                agent.clone(),
            ]),
            resources: Some(self.bring),
            security_context: Some(confined()),
            volume_mounts: Some(vec![mount("bin", &bin, false)]),
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            ..Container::default()
        };
        let mut words = vec![
            agent.as_str(),
            "agent",
            "--connect",
            &settings.connect,
            "--secret",
            &key,
            "--dir",
            &work,
        ];
        if self.whole {
            words.push("--node");
        }
        let main = Container {
            name: MAIN.into(),
            image: Some(self.image.into()),
            image_pull_policy: Some(policy(settings.pull)),
            command: Some(words.into_iter().map(str::to_owned).collect()),
            env: Some(vec![EnvVar {
                name: "ZAFFRE_POD_IP".into(),
                value_from: Some(EnvVarSource {
                    field_ref: Some(ObjectFieldSelector {
                        api_version: None,
                        field_path: "status.podIP".into(),
                    }),
                    ..EnvVarSource::default()
                }),
                ..EnvVar::default()
            }]),
            resources: Some(self.main),
            security_context: Some(confined()),
            volume_mounts: Some(mounts),
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            ..Container::default()
        };
        let selector = self.selector.iter();
        Pod {
            metadata,
            spec: Some(KubePodSpec {
                automount_service_account_token: Some(false),
                enable_service_links: Some(false),
                restart_policy: Some("Never".into()),
                termination_grace_period_seconds: Some(GRACE_S),
                node_selector: (!self.selector.is_empty()).then(|| {
                    selector
                        .map(|(k, v)| (k.to_string(), v.to_string()))
                        .collect()
                }),
                affinity: self.affinity,
                tolerations: Some(self.tolerations),
                security_context: Some(PodSecurityContext {
                    run_as_non_root: (settings.run_as != 0).then_some(true),
                    run_as_user: Some(settings.run_as),
                    run_as_group: Some(settings.run_as),
                    fs_group: Some(settings.run_as),
                    fs_group_change_policy: Some("OnRootMismatch".into()),
                    seccomp_profile: Some(SeccompProfile {
                        type_: "RuntimeDefault".into(),
                        localhost_profile: None,
                    }),
                    ..PodSecurityContext::default()
                }),
                init_containers: Some(vec![bring]),
                containers: vec![main],
                volumes: Some(volumes),
                ..KubePodSpec::default()
            }),
            status: None,
        }
    }
}

/// The claims of a namespace that jobs find mounted, by what they say of themselves.
pub fn claim(pvc: &k8s_openapi::api::core::v1::PersistentVolumeClaim) -> Option<Claim> {
    let meta = &pvc.metadata;
    let marked = meta.labels.as_ref()?.get("ml.azure.com/pvc")? == "true";
    let path = meta.annotations.as_ref()?.get("ml.azure.com/mountpath")?;
    // Ours and the system's folders cannot be covered: the agent would not start.
    let legal = path.starts_with('/') && path != "/" && !path.starts_with(FOLDER);
    (marked && legal).then(|| Claim {
        name: meta.name.clone().unwrap_or_default(),
        path: path.clone(),
    })
}

#[cfg(test)]
mod tests;
