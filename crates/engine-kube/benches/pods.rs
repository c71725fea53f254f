//! Goal E3: pods made per second beside a bare client of the same library, and our processor time per event of a pod.
//!
//! It needs a cluster: `ZAFFRE_KUBE_STATE` as `cargo xtask kube up` makes it; without one it says so and measures nothing. The
//! pods select a label that no node carries, so that nothing but the API server works for them.

#![expect(clippy::print_stdout, reason = "a benchmark says what it measured")]

use engine_kube::{Kube, KubeConfig};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use model::{
    Action, Attempt, BlobPath, Bytes, ComputeId, JobId, KubernetesSpec, MilliCpu, Place, PodSpec,
    Resources, TaskId, TaskSpec, Workspace,
    engine::{EnvironmentSpec, Packages, Placement, Program},
};
use port::{Bell, Engine};
use serde_json::json;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

/// Pods of one round.
const PODS: usize = 300;
/// Rounds; of each figure the best counts, since others use the machine too.
const ROUNDS: usize = 3;
/// Changes of each pod while the processor time is taken.
const CHANGES: usize = 20;
/// Requests that the engine has under way at once, and so the bare client.
const AT_ONCE: usize = 8;
const SERVER: &str = "be9c4000";
const PAUSE: Duration = Duration::from_millis(100);

fn main() {
    let Some(state) = std::env::var_os("ZAFFRE_KUBE_STATE") else {
        println!("pods: not measured: ZAFFRE_KUBE_STATE is not set (cargo xtask kube up)");
        return;
    };
    let config = PathBuf::from(state).join("kc/admin.kubeconfig");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = runtime.block_on(connect(&config));
    if std::env::args().any(|word| word == "--change") {
        return runtime.block_on(change(&client));
    }
    let (mut bare, mut ours) = (0f64, 0f64);
    for round in 0..ROUNDS {
        let began = Instant::now();
        runtime.block_on(make(&client, round));
        bare = bare.max(rate(began));
        runtime.block_on(clear(&client));

        let engine = Attached::new(&config);
        let began = Instant::now();
        engine.start(round);
        runtime.block_on(there(&client, PODS));
        ours = ours.max(rate(began));
        if round + 1 == ROUNDS {
            per_event(&config);
        }
        engine.end();
        runtime.block_on(clear(&client));
    }
    println!(
        "pods/s: bare client {bare:.0}, engine {ours:.0}, ratio {:.2}",
        ours / bare
    );
}

fn rate(began: Instant) -> f64 {
    PODS as f64 / began.elapsed().as_secs_f64()
}

/// User and system time of this process.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let words: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = [11, 12]
        .iter()
        .map(|at| words[*at].parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10) // a hundred ticks are a second, on every Linux
}

/// Another process changes every pod, and this one's time is taken, less what it takes when nothing happens.
fn per_event(config: &Path) {
    let idle = {
        let (began, before) = (Instant::now(), processor());
        std::thread::sleep(Duration::from_secs(5));
        (processor() - before).as_secs_f64() / began.elapsed().as_secs_f64()
    };
    let (began, before) = (Instant::now(), processor());
    let state = config.parent().and_then(Path::parent).unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .arg("--change")
        .env("ZAFFRE_KUBE_STATE", state)
        .status();
    assert!(done.unwrap().success());
    let used = (processor() - before).as_secs_f64() - idle * began.elapsed().as_secs_f64();
    let each = used / (PODS * CHANGES) as f64 * 1e6;
    println!(
        "processor time per event of a pod: {each:.0} µs (at rest {:.1} ms each second)",
        idle * 1e3
    );
}

async fn connect(config: &Path) -> Client {
    let config = kube::config::Kubeconfig::read_from(config).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// The bare client: a secret and a pod of the shape that the engine makes.
async fn make(client: &Client, round: usize) {
    let (secrets, pods): (Api<Secret>, Api<Pod>) = (
        Api::default_namespaced(client.clone()),
        Api::default_namespaced(client.clone()),
    );
    let one = |n: usize| {
        let name = format!("bare-{round}-{n}");
        let meta = json!({"name": name, "labels": {"zaffre-bench": "bare"}});
        let secret = json!({"metadata": meta, "immutable": true, "data": {"credential": "YWFh"}});
        let mounts = json!([{"name": "bin", "mountPath": "/b"}, {"name": "secret", "mountPath": "/s", "readOnly": true}]);
        let pod = json!({"metadata": meta, "spec": {
            "restartPolicy": "Never", "nodeSelector": {"zaffre-bench": "nowhere"}, "automountServiceAccountToken": false,
            "initContainers": [{"name": "bring", "image": "zaffre:bench", "volumeMounts": mounts}],
            "containers": [{"name": "main", "image": "python:latest", "command": ["/b/zaffre", "agent"], "volumeMounts": mounts,
                "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}}],
            "volumes": [{"name": "bin", "emptyDir": {}}, {"name": "secret", "secret": {"secretName": name}}],
        }});
        let (secrets, pods) = (secrets.clone(), pods.clone());
        async move {
            let post = PostParams::default();
            secrets
                .create(&post, &serde_json::from_value(secret).unwrap())
                .await?;
            pods.create(&post, &serde_json::from_value(pod).unwrap())
                .await
        }
    };
    let all = stream::iter(0..PODS).map(one).buffer_unordered(AT_ONCE);
    all.try_for_each(|_| async { Ok(()) }).await.unwrap();
}

/// Changes an annotation of every pod so many times.
async fn change(client: &Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let names = pods
        .list_metadata(&ListParams::default())
        .await
        .unwrap()
        .items;
    let names: Vec<String> = names
        .into_iter()
        .filter_map(|pod| pod.metadata.name)
        .collect();
    for turn in 0..CHANGES {
        let one = |name: String| {
            let pods = pods.clone();
            async move {
                let patch = json!({"metadata": {"annotations": {"turn": turn.to_string()}}});
                pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await
            }
        };
        let all = stream::iter(names.clone())
            .map(one)
            .buffer_unordered(AT_ONCE);
        all.try_for_each(|_| async { Ok(()) }).await.unwrap();
    }
}

async fn there(client: &Client, wanted: usize) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    loop {
        let found = pods.list_metadata(&ListParams::default()).await.unwrap();
        if found.items.len() == wanted {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn clear(client: &Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let now = DeleteParams::default().grace_period(0);
    drop(
        pods.delete_collection(&now, &ListParams::default())
            .await
            .unwrap(),
    );
    drop(
        secrets
            .delete_collection(&now, &ListParams::default())
            .await
            .unwrap(),
    );
    there(client, 0).await;
}

/// The engine with the cluster attached, as a server has it.
struct Attached {
    kube: Kube,
    compute: ComputeId,
    folder: tempfile::TempDir,
}

impl Attached {
    fn new(config: &Path) -> Attached {
        let folder = tempfile::tempdir().unwrap();
        let bell = Bell::new();
        let remote = engine_local::RemoteConfig {
            folder: folder.path().join("agents"),
            blobs: Arc::new(port::memory::MemoryBlobs::new()),
            variables: Default::default(),
        };
        let remote = engine_local::Remote::open(remote, bell.clone()).unwrap();
        let kube = Kube::new(
            KubeConfig {
                folder: folder.path().to_owned(),
                server: SERVER.into(),
                connect: "https://127.0.0.1:1".into(),
                agent_image: "zaffre:bench".into(),
                remote,
                credential: Box::new(|_| vec![("credential".into(), b"c".to_vec())]),
            },
            bell,
        );
        let compute = ComputeId::new(&Workspace::new("s", "g", "w"), "k8s");
        let attached = Attached {
            kube: kube.unwrap(),
            compute,
            folder,
        };
        let spec = KubernetesSpec {
            kubeconfig: Some("d".into()),
            namespace: "default".into(),
            node_selector: BTreeMap::new(),
            selector_mode: Default::default(),
            default_type: None,
            types: BTreeMap::new(),
            pull_policy: Default::default(),
            agent_image: None,
            run_as_user: None,
        };
        attached
            .kube
            .attach(&attached.compute, &Arc::new(spec), config);
        while attached.kube.observe().clusters.is_empty() {
            std::thread::sleep(PAUSE);
        }
        attached
    }

    fn start(&self, round: usize) {
        let size = || Resources {
            cpu: MilliCpu(500),
            memory: Bytes(64 << 20),
            devices: BTreeMap::new(),
        };
        let spec = Arc::new(TaskSpec {
            program: Program::Command {
                line: "true".into(),
            },
            environment: EnvironmentSpec {
                label: "e:1".into(),
                image: Some("python:latest".into()),
                packages: Packages::None,
            },
            code: None,
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            model: None,
            variables: BTreeMap::new(),
            limits: Resources::default(),
            artifacts: BlobPath::new("ws/run").unwrap(),
        });
        let action = |n: usize| {
            let task = TaskId {
                job: JobId::new(&Workspace::new("s", "g", "w"), &*format!("job-{round}-{n}")),
                index: 0,
                attempt: Attempt(1),
            };
            let pod = PodSpec {
                compute: self.compute.clone(),
                instance_type: "small".into(),
                requests: size(),
                limits: size(),
                selector: BTreeMap::from([("zaffre-bench".into(), "nowhere".into())]),
                machine: None,
            };
            let placement = Placement {
                place: Place::Matching(Box::new(pod)),
                gang: vec![task.clone()],
            };
            Action::Start(task, placement, spec.clone())
        };
        self.kube.apply((0..PODS).map(action).collect());
    }

    fn end(self) {
        self.kube.detach(&self.compute);
        while !self.kube.observe().clusters.is_empty() {
            std::thread::sleep(PAUSE);
        }
        drop(self.kube);
        drop(self.folder);
    }
}
