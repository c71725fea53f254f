//! A fake API server, and the engine attached to it.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use engine_kube::{Kube, KubeConfig};
use model::{
    Action, Attempt, BlobPath, Bytes as Memory, ClusterKey, ClusterSeen, ComputeId, JobId,
    KubernetesSpec, MilliCpu, NodeId, NodePod, NodeSeen, NodeSpec, Phase, Place, PodSpec,
    Resources, Size, TaskId, TaskSpec, Tier, Workspace,
    engine::{EnvironmentSpec, Packages, Placement, Program},
    kubernetes::PullPolicy,
};
use port::{Bell, Engine};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::broadcast;

/// Far more than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
/// The id of the engine's server.
const SERVER: &str = "0123456789";
/// As if a pod had been made and the answer were lost.
const MADE_AND_LOST: u16 = 599;

#[derive(Clone)]
struct Change {
    kind: &'static str,
    resource: String,
    object: Value,
}

#[derive(Default)]
struct Content {
    /// By resource, then `namespace/name` or `name`.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    version: u64,
    answers: BTreeMap<(String, String), VecDeque<u16>>,
    forbidden: Vec<(String, String)>,
    asked: Vec<(String, String)>,
    /// When pods were asked for.
    posts: Vec<Instant>,
    made: BTreeMap<String, u32>,
    /// Seconds that pods were given when they were deleted, by name.
    graces: BTreeMap<String, u64>,
    undefined: bool,
    quota: bool,
}

struct Shared {
    content: Mutex<Content>,
    changes: broadcast::Sender<Change>,
    broken: broadcast::Sender<u16>,
}

/// The server.
pub struct Api {
    shared: Arc<Shared>,
    url: String,
    runtime: Option<tokio::runtime::Runtime>,
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let code = StatusCode::from_u16(code).unwrap();
    (code, axum::Json(body)).into_response()
}

/// Resource, namespace and name of a path.
fn parse(path: &str) -> Option<(String, Option<String>, Option<String>)> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = match *parts.first()? {
        "api" => &parts[2..],
        "apis" => &parts[3..],
        _ => return None,
    };
    Some(match rest {
        ["namespaces", namespace, resource] => {
            (resource.to_string(), Some(namespace.to_string()), None)
        }
        ["namespaces", namespace, resource, name] => (
            resource.to_string(),
            Some(namespace.to_string()),
            Some(name.to_string()),
        ),
        [resource] => (resource.to_string(), None, None),
        [resource, name] => (resource.to_string(), None, Some(name.to_string())),
        _ => return None,
    })
}

fn line(kind: &str, object: Value) -> Bytes {
    let mut line = json!({"type": kind, "object": object}).to_string();
    line.push('\n');
    Bytes::from(line)
}

fn gone() -> Bytes {
    line(
        "ERROR",
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "too old resource version",
            "reason": "Expired", "code": 410,
        }),
    )
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let Some((resource, namespace, name)) = parse(parts.uri.path()) else {
        return status(404, "NotFound", "no such path");
    };
    let method = parts.method.as_str().to_owned();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let what = if resource == "pods" && namespace.is_none() {
        "all pods"
    } else {
        &resource
    };
    let mut lost = false;
    {
        let mut content = shared.content.lock().unwrap();
        content.asked.push((method.clone(), resource.clone()));
        let watches = query.contains("watch=true");
        let right = if watches { "WATCH" } else { &method };
        if method == "POST" && resource == "pods" {
            content.posts.push(Instant::now());
        }
        let forbidden = |right: &str| {
            let right = (right.to_owned(), what.to_owned());
            content.forbidden.contains(&right)
        };
        if forbidden(right) || (watches && forbidden(&method)) {
            let message = format!(
                "{resource} is forbidden: User \"u\" cannot {method} resource \"{resource}\""
            );
            return status(403, "Forbidden", &message);
        }
        if resource == "instancetypes" && content.undefined {
            return status(
                404,
                "NotFound",
                "the server could not find the requested resource",
            );
        }
        let planned = content.answers.get_mut(&(method.clone(), resource.clone()));
        if let Some(code) = planned.and_then(VecDeque::pop_front) {
            if code != MADE_AND_LOST {
                return status(code, "Trouble", "as planned");
            }
            lost = true;
        }
    }
    let answer = match method.as_str() {
        "GET" if query.contains("watch=true") => {
            return watch(&shared, &resource, namespace, &query);
        }
        "GET" => get(&shared, &resource, namespace, name),
        "POST" => post(&shared, &resource, namespace, &body),
        "DELETE" => delete(&shared, &resource, namespace, name, &body),
        _ => status(405, "MethodNotAllowed", "no"),
    };
    if lost {
        status(500, "InternalError", "after it was done")
    } else {
        answer
    }
}

fn key(namespace: &Option<String>, name: &str) -> String {
    namespace
        .as_ref()
        .map_or_else(|| name.to_owned(), |n| format!("{n}/{name}"))
}

fn get(
    shared: &Shared,
    resource: &str,
    namespace: Option<String>,
    name: Option<String>,
) -> Response {
    let content = shared.content.lock().unwrap();
    let all = content.objects.get(resource);
    if let Some(name) = name {
        return match all.and_then(|a| a.get(&key(&namespace, &name))) {
            Some(object) => axum::Json(object.clone()).into_response(),
            None => status(404, "NotFound", &format!("{resource} \"{name}\" not found")),
        };
    }
    let inside = |key: &&String| {
        namespace
            .as_ref()
            .is_none_or(|n| key.starts_with(&format!("{n}/")))
    };
    let items: Vec<Value> = all
        .into_iter()
        .flatten()
        .filter(|(key, _)| inside(key))
        .map(|(_, object)| object.clone())
        .collect();
    axum::Json(json!({
        "kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": content.version.to_string()}, "items": items,
    }))
    .into_response()
}

fn watch(shared: &Shared, resource: &str, namespace: Option<String>, query: &str) -> Response {
    let resource = resource.to_owned();
    let since: u64 = query
        .split('&')
        .find_map(|p| p.strip_prefix("resourceVersion="))
        .and_then(|v| v.parse().ok())
        .unwrap_or(0);
    // Under the lock: nothing comes between what was listed and the first event.
    let content = shared.content.lock().unwrap();
    let (changes, broken) = (shared.changes.subscribe(), shared.broken.subscribe());
    let missed = content.version > since;
    drop(content);
    // This server keeps no history: a watch from before the last change has to list again.
    let start = missed.then(gone);
    let stream = futures_util::stream::unfold(
        (changes, broken, start, missed),
        move |(mut changes, mut broken, start, over)| {
            let (resource, namespace) = (resource.clone(), namespace.clone());
            async move {
                if let Some(start) = start {
                    return Some((
                        Ok::<_, std::io::Error>(start),
                        (changes, broken, None, over),
                    ));
                }
                if over {
                    return None;
                }
                loop {
                    tokio::select! {
                        code = broken.recv() => return match code {
                            Ok(410) => Some((Ok(gone()), (changes, broken, None, true))),
                            _ => None,
                        },
                        change = changes.recv() => {
                            let Ok(change) = change else { return None };
                            let place = change.object["metadata"]["namespace"].as_str();
                            let here = namespace.as_deref().is_none_or(|n| place == Some(n));
                            if change.resource == resource && here {
                                let line = line(change.kind, change.object);
                                return Some((Ok(line), (changes, broken, None, false)));
                            }
                        }
                    }
                }
            }
        },
    );
    Response::new(Body::from_stream(stream))
}

fn post(shared: &Shared, resource: &str, namespace: Option<String>, body: &[u8]) -> Response {
    let mut object: Value = serde_json::from_slice(body).unwrap();
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    if resource == "pods" {
        let content = shared.content.lock().unwrap();
        if content.quota {
            let message = format!(
                "pods \"{name}\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
            );
            return status(403, "Forbidden", &message);
        }
        drop(content);
        object["status"] = json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "the scheduler says no",
        }]});
    }
    if resource == "customresourcedefinitions" {
        shared.content.lock().unwrap().undefined = false;
    }
    if let Some(namespace) = &namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let key = key(&namespace, &name);
    if shared
        .content
        .lock()
        .unwrap()
        .objects
        .get(resource)
        .is_some_and(|a| a.contains_key(&key))
    {
        return status(
            409,
            "AlreadyExists",
            &format!("{resource} \"{name}\" already exists"),
        );
    }
    *shared.content.lock().unwrap().made.entry(name).or_default() += 1;
    let object = shared.put(resource, &key, object);
    (StatusCode::CREATED, axum::Json(object)).into_response()
}

fn delete(
    shared: &Shared,
    resource: &str,
    namespace: Option<String>,
    name: Option<String>,
    body: &[u8],
) -> Response {
    let key = key(&namespace, &name.unwrap());
    let wanted: Value = serde_json::from_slice(body).unwrap_or_default();
    let there = shared
        .content
        .lock()
        .unwrap()
        .objects
        .get(resource)
        .and_then(|a| a.get(&key))
        .cloned();
    let Some(there) = there else {
        return status(404, "NotFound", "gone");
    };
    if wanted["preconditions"]["uid"] != there["metadata"]["uid"] {
        return status(409, "Conflict", "another uid");
    }
    if resource == "pods"
        && let Some(grace) = wanted["gracePeriodSeconds"].as_u64()
    {
        let name = there["metadata"]["name"].as_str().unwrap().to_owned();
        shared.content.lock().unwrap().graces.insert(name, grace);
    }
    shared.remove(resource, &key);
    axum::Json(there).into_response()
}

impl Shared {
    fn put(&self, resource: &str, key: &str, mut object: Value) -> Value {
        let mut content = self.content.lock().unwrap();
        content.version += 1;
        object["metadata"]["resourceVersion"] = json!(content.version.to_string());
        let version = content.version;
        let all = content.objects.entry(resource.to_owned()).or_default();
        let kind = if all.contains_key(key) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{version}"));
        }
        all.insert(key.to_owned(), object.clone());
        let resource = resource.to_owned();
        let _ = self.changes.send(Change {
            kind,
            resource,
            object: object.clone(),
        });
        object
    }
    fn remove(&self, resource: &str, key: &str) {
        let mut content = self.content.lock().unwrap();
        content.version += 1;
        let object = content
            .objects
            .get_mut(resource)
            .and_then(|all| all.remove(key))
            .unwrap();
        let resource = resource.to_owned();
        let _ = self.changes.send(Change {
            kind: "DELETED",
            resource,
            object,
        });
    }
}

pub fn running() -> Value {
    container(json!({"running": {}}))
}
pub fn ended(reason: &str, code: i32) -> Value {
    container(json!({"terminated": {"reason": reason, "exitCode": code}}))
}
pub fn waiting(reason: &str) -> Value {
    container(json!({"waiting": {"reason": reason}}))
}
fn container(state: Value) -> Value {
    json!([{"name": "main", "image": "python:latest", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
}

impl Api {
    pub fn start() -> Api {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let shared = Arc::new(Shared {
            content: Mutex::default(),
            changes: broadcast::channel(1024).0,
            broken: broadcast::channel(16).0,
        });
        let router = Router::new().fallback(serve).with_state(shared.clone());
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Api {
            shared,
            url,
            runtime: Some(runtime),
        }
    }
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(100));
        }
    }
    fn content(&self) -> std::sync::MutexGuard<'_, Content> {
        self.shared.content.lock().unwrap()
    }
    pub fn node(&self, name: &str, cpu: &str) {
        let node = json!({
            "kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.shared.put("nodes", name, node);
    }
    pub fn foreign_pod(&self, namespace: &str, name: &str, node: &str, cpu: &str) {
        let pod = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": namespace, "name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Running"},
        });
        self.shared.put("pods", &format!("{namespace}/{name}"), pod);
    }
    pub fn foreign_secret(&self, namespace: &str, name: &str) {
        let secret = json!({
            "kind": "Secret", "apiVersion": "v1", "metadata": {"namespace": namespace, "name": name},
        });
        self.shared
            .put("secrets", &format!("{namespace}/{name}"), secret);
    }
    /// A type that asks for so many of two cores.
    pub fn instance_type(&self, name: &str, cpu: &str) {
        let object = json!({
            "kind": "InstanceType", "apiVersion": "amlarc.azureml.com/v1alpha1", "metadata": {"name": name},
            "spec": {"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}},
        });
        self.shared.put("instancetypes", name, object);
    }
    pub fn undefine_types(&self) {
        self.content().undefined = true;
    }
    pub fn forbid(&self, method: &str, what: &str) {
        self.content().forbidden.push((method.into(), what.into()));
    }
    pub fn allow_everything(&self) {
        self.content().forbidden.clear();
    }
    pub fn answer(&self, method: &str, resource: &str, codes: &[u16]) {
        let codes = codes.iter().copied().collect();
        self.content()
            .answers
            .insert((method.into(), resource.into()), codes);
    }
    pub fn quota(&self, used: bool) {
        self.content().quota = used;
    }
    pub fn break_watches(&self, code: u16) {
        let _ = self.shared.broken.send(code);
    }
    pub fn count(&self, method: &str, resource: &str) -> usize {
        let is = |(m, r): &&(String, String)| m == method && r == resource;
        self.content().asked.iter().filter(is).count()
    }
    pub fn count_objects(&self, resource: &str) -> usize {
        self.content()
            .objects
            .get(resource)
            .map_or(0, BTreeMap::len)
    }
    pub fn made(&self, name: &str) -> u32 {
        // A secret of the name is made beside the pod.
        let both = self.content().made.get(name).copied().unwrap_or(0);
        both.saturating_sub(1)
    }
    pub fn fastest_ten(&self) -> Duration {
        let content = self.content();
        match (content.posts.first(), content.posts.last()) {
            (Some(first), Some(last)) => last.duration_since(*first),
            _ => Duration::ZERO,
        }
    }
    pub fn status(&self, pod: &str, node: &str, status: Value) {
        let key = format!("azureml/{pod}");
        let mut object = self.content().objects["pods"][&key].clone();
        object["spec"]["nodeName"] = json!(node);
        object["status"] = status;
        self.shared.put("pods", &key, object);
    }
    /// The pod as it was made.
    pub fn pod(&self, name: &str) -> Value {
        self.content().objects["pods"][&format!("azureml/{name}")].clone()
    }
    /// Marks a pod as being deleted, as the API server does while its grace runs.
    pub fn deleting(&self, name: &str, seconds: u64) {
        let mut object = self.pod(name);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
        self.shared.put("pods", &format!("azureml/{name}"), object);
    }
    pub fn grace(&self, name: &str) -> Option<u64> {
        self.content().graces.get(name).copied()
    }
    pub fn copy_pod(&self, from: &str, to: &str) {
        let mut object = self.content().objects["pods"][&format!("azureml/{from}")].clone();
        object["metadata"]["name"] = json!(to);
        object["metadata"]["uid"] = Value::Null;
        self.shared.put("pods", &format!("azureml/{to}"), object);
    }
    pub fn remove(&self, resource: &str, key: &str) {
        self.shared.remove(resource, key);
    }
    pub fn has_pod(&self, namespace: &str, name: &str) -> bool {
        self.content()
            .objects
            .get("pods")
            .is_some_and(|all| all.contains_key(&format!("{namespace}/{name}")))
    }
    pub fn pods(&self) -> Vec<String> {
        let content = self.content();
        let pods = content.objects.get("pods").into_iter().flatten();
        pods.map(|(key, _)| key.split_once('/').unwrap().1.to_owned())
            .collect()
    }
    pub fn pods_left(&self) -> usize {
        self.count_objects("pods")
    }
    pub fn wait(&self, is: impl Fn() -> bool) {
        let end = Instant::now() + LIMIT;
        while !is() {
            assert!(Instant::now() < end, "it did not happen");
            std::thread::sleep(PAUSE);
        }
    }
}

fn workspace() -> Arc<Workspace> {
    Workspace::new("s", "g", "w")
}

fn compute() -> ComputeId {
    ComputeId::new(&workspace(), "k8s")
}

pub fn task(run: &str, attempt: u32) -> TaskId {
    TaskId {
        job: JobId::new(&workspace(), run),
        index: 0,
        attempt: Attempt(attempt),
    }
}

/// The name of its pod.
pub fn pod_of(id: &TaskId) -> String {
    engine_kube::pod_name(SERVER, id)
}

/// A node of a cluster whose nodes are pods of `k8s`.
pub fn node(ordinal: u32) -> NodeId {
    NodeId {
        compute: ComputeId::new(&workspace(), "pool"),
        ordinal,
        incarnation: 1,
    }
}

/// The engine, attached.
pub struct Rig {
    folder: PathBuf,
    kube: Option<Kube>,
}

impl Rig {
    pub fn new(api: &Api) -> Rig {
        let folder = tempfile::tempdir().unwrap().keep();
        let config = format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: '{}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            api.url
        );
        std::fs::write(folder.join("kubeconfig"), config).unwrap();
        let mut rig = Rig { folder, kube: None };
        rig.open();
        rig.attach();
        rig
    }
    pub fn open(&mut self) {
        let bell = Bell::new();
        let remote = engine_local::RemoteConfig {
            folder: self.folder.join("agents"),
            blobs: Arc::new(port::memory::MemoryBlobs::new()),
            variables: Default::default(),
        };
        let config = KubeConfig {
            folder: self.folder.clone(),
            server: SERVER.into(),
            connect: "https://127.0.0.1:1".into(),
            agent_image: "zaffre:test".into(),
            remote: engine_local::Remote::open(remote, bell.clone()).unwrap(),
            credential: Box::new(|_| vec![("credential".into(), b"c".to_vec())]),
        };
        self.kube = Some(Kube::new(config, bell).unwrap());
    }
    pub fn stop(&mut self) {
        self.kube = None;
    }
    fn kube(&self) -> &Kube {
        self.kube.as_ref().unwrap()
    }
    pub fn attach(&self) {
        let spec = KubernetesSpec {
            kubeconfig: Some("d".into()),
            namespace: "azureml".into(),
            node_selector: BTreeMap::new(),
            selector_mode: Default::default(),
            default_type: None,
            types: BTreeMap::new(),
            pull_policy: PullPolicy::IfNotPresent,
            agent_image: None,
            run_as_user: None,
        };
        self.kube()
            .attach(&compute(), &Arc::new(spec), &self.folder.join("kubeconfig"));
    }
    pub fn detach(&self) {
        self.kube().detach(&compute());
    }
    /// How many records of tasks and nodes are on disk.
    pub fn records(&self) -> usize {
        std::fs::read_dir(self.folder.join("tasks"))
            .unwrap()
            .count()
    }
    pub fn start_on(&self, node: &NodeId, id: &TaskId) {
        self.begin(id, Place::On(node.clone()));
    }
    pub fn start(&self, id: &TaskId) {
        let size = || Resources {
            cpu: MilliCpu(500),
            memory: Memory(64 << 20),
            devices: BTreeMap::new(),
        };
        let pod = PodSpec {
            compute: compute(),
            instance_type: "small".into(),
            requests: size(),
            limits: size(),
            selector: BTreeMap::new(),
            machine: None,
        };
        self.begin(id, Place::Matching(Box::new(pod)));
    }
    fn begin(&self, id: &TaskId, place: Place) {
        let placement = Placement {
            place,
            gang: vec![id.clone()],
        };
        let spec = TaskSpec {
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
        };
        self.kube()
            .apply(vec![Action::Start(id.clone(), placement, Arc::new(spec))]);
    }
    pub fn add(&self, node: &NodeId) {
        let spec = NodeSpec {
            size: Size {
                name: "Standard_D1_v2".into(),
                family: "standardDv2Family".into(),
                cores: 1,
                memory: Memory(2 << 30),
                gpus: 0,
            },
            tier: Tier::LowPriority,
            pod: Some(NodePod {
                compute: compute(),
                image: "python:latest".into(),
            }),
        };
        self.kube().apply(vec![Action::AddNode(node.clone(), spec)]);
    }
    pub fn act(&self, action: Action) {
        self.kube().apply(vec![action]);
    }
    pub fn seen(&self, node: &NodeId) -> Option<NodeSeen> {
        self.kube().observe().nodes.get(node).cloned()
    }
    pub fn wait_node(&self, node: &NodeId, is: impl Fn(Option<&NodeSeen>) -> bool) {
        let end = Instant::now() + LIMIT;
        while !is(self.seen(node).as_ref()) {
            assert!(Instant::now() < end, "{node}: {:?}", self.seen(node));
            std::thread::sleep(PAUSE);
        }
    }
    pub fn forget(&self, id: &TaskId) {
        self.kube().apply(vec![Action::Forget(id.clone())]);
    }
    pub fn phase(&self, id: &TaskId) -> Option<Phase> {
        self.kube().observe().tasks.get(id).map(|t| t.phase.clone())
    }
    pub fn wait(&self, id: &TaskId, is: impl Fn(&Phase) -> bool) {
        let end = Instant::now() + LIMIT;
        loop {
            let phase = self.phase(id);
            if phase.as_ref().is_some_and(&is) {
                return;
            }
            assert!(Instant::now() < end, "{id}: {phase:?}");
            std::thread::sleep(PAUSE);
        }
    }
    pub fn wait_gone(&self, id: &TaskId) {
        let end = Instant::now() + LIMIT;
        while self.phase(id).is_some() {
            assert!(Instant::now() < end, "{id}: {:?}", self.phase(id));
            std::thread::sleep(PAUSE);
        }
    }
    pub fn wait_cluster(&self, is: impl Fn(&ClusterSeen) -> bool) -> ClusterSeen {
        let end = Instant::now() + LIMIT;
        loop {
            let seen = self
                .kube()
                .observe()
                .clusters
                .get(&ClusterKey::Attached(compute()))
                .cloned();
            if let Some(seen) = &seen
                && is(seen)
            {
                return seen.as_ref().clone();
            }
            assert!(Instant::now() < end, "{seen:?}");
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kube = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
