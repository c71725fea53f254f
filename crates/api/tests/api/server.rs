//! A server in this process: the real loop over memory adapters, a fake engine, and a client that speaks to the router.

use api::{Api, Identities, JOB_KEY_BYTES, JobKey, Routes, RunKey, SasKey, Scheme, TokenDigest};
use axum::{
    body::Body,
    http::{HeaderMap, Request},
};
use control::{Control, Parts};
use http_body_util::BodyExt;
use model::{
    Action, ClusterKey, ClusterSeen, Exit, JobId, NodeId, NodeSeen, Observed, Phase, TaskId,
    TaskSeen, Time, Workspace,
};
use port::{
    Bell, Clock, Engine,
    memory::{MemoryBlobs, MemoryStore},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tower::ServiceExt;

/// The key of the credentials of runs.
pub const RUNS: [u8; 32] = [9; 32];
pub const TOKEN: &str = "token-of-the-tests";
pub const SUB: &str = "00000000-0000-0000-0000-000000000000";
/// The workspace that always exists.
pub const WS: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default";
pub const LOC: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.MachineLearningServices/locations/local";
/// Long enough for a loaded machine, short enough for a person.
const PATIENCE: Duration = Duration::from_secs(30);

struct WallClock;
impl Clock for WallClock {
    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Time(u64::try_from(since.as_millis()).unwrap())
    }
}

/// Nodes are up at once; tasks run until the test ends them.
#[derive(Default)]
struct State {
    nodes: BTreeMap<NodeId, NodeSeen>,
    tasks: BTreeMap<TaskId, Phase>,
    clusters: BTreeMap<ClusterKey, Arc<ClusterSeen>>,
}

pub struct Fake {
    state: Mutex<State>,
    bell: Bell,
}

impl Engine for Fake {
    fn observe(&self) -> Observed {
        let state = self.state.lock().unwrap();
        let mut seen = Observed::default();
        for (id, node) in &state.nodes {
            seen.nodes.insert_mut(id.clone(), node.clone());
        }
        for (id, phase) in &state.tasks {
            let task = TaskSeen {
                phase: phase.clone(),
                mailbox: model::Mailbox::default(),
            };
            seen.tasks.insert_mut(id.clone(), Arc::new(task));
        }
        for (key, cluster) in &state.clusters {
            seen.clusters.insert_mut(key.clone(), cluster.clone());
        }
        seen.marks.all = true;
        seen
    }
    fn apply(&self, actions: Vec<Action>) {
        let mut state = self.state.lock().unwrap();
        for action in actions {
            match action {
                Action::AddNode(id, _) => {
                    state.nodes.insert(id, NodeSeen::Up);
                }
                Action::RemoveNode(id) | Action::Evict(id, _) => {
                    state.nodes.remove(&id);
                }
                Action::Start(id, ..) => {
                    state.tasks.entry(id).or_insert(Phase::Running);
                }
                Action::Stop(id) => {
                    if let Some(phase) = state.tasks.get_mut(&id) {
                        *phase = Phase::Exited(Exit::Stopped);
                    }
                }
                Action::Forget(id) => {
                    state.tasks.remove(&id);
                }
                Action::Lend(..) | Action::Ack(..) | Action::Do(_) => {}
            }
        }
        drop(state);
        self.bell.ring();
    }
}

impl Fake {
    /// Shows a cluster.
    pub fn show(&self, key: ClusterKey, cluster: ClusterSeen) {
        let mut state = self.state.lock().unwrap();
        state.clusters.insert(key, Arc::new(cluster));
        drop(state);
        self.bell.ring();
    }
    /// Ends every task of a job with this exit code.
    pub fn end(&self, job: &str, code: i32) {
        let mut state = self.state.lock().unwrap();
        for (id, phase) in &mut state.tasks {
            if id.job.name() == job {
                *phase = Phase::Exited(Exit::Code(code));
            }
        }
        drop(state);
        self.bell.ring();
    }
}

pub struct Server {
    /// Milliseconds that its clock for tokens is ahead.
    pub ahead: Arc<AtomicU64>,
    /// Makes the secrets of jobs.
    pub jobs: JobKey,
    /// Whether the disk is below its reserve.
    pub short: Arc<AtomicBool>,
    pub router: Routes,
    pub control: Control,
    pub engine: Arc<Fake>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.stop();
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }
    /// The code of an ARM error.
    pub fn code(&self) -> String {
        self.json()["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
    pub fn message(&self) -> String {
        self.json()["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// What signs the credentials of runs.
pub fn runs() -> RunKey {
    RunKey::new([9; api::RUN_KEY_BYTES])
}

pub fn server() -> Server {
    let bell = Bell::new();
    let engine = Arc::new(Fake {
        state: Mutex::default(),
        bell: bell.clone(),
    });
    let store = Arc::new(MemoryStore::new());
    let short = Arc::new(AtomicBool::new(false));
    let room = {
        let short = short.clone();
        move || match short.load(Ordering::SeqCst) {
            true => Err("the disk is short".to_owned()),
            false => Ok(()),
        }
    };
    let (control, _loop) = Control::start(Parts {
        store: store.clone(),
        blobs: Arc::new(MemoryBlobs::new()),
        series: store,
        engine: engine.clone(),
        clock: Arc::new(WallClock),
        bell,
        read: |document| wire::arm::declared(document).map_err(|e| e.to_string()),
        spell: wire::arm::asset::registered,
        report: wire::view::report::report,
        room: Box::new(room.clone()),
    })
    .unwrap();
    let home = Workspace::new(SUB, "default", "default");
    let (ahead, jobs) = (Arc::new(AtomicU64::new(0)), JobKey::new([9; JOB_KEY_BYTES]));
    let clock = {
        let ahead = ahead.clone();
        move || Time(WallClock.now().0 + ahead.load(Ordering::SeqCst))
    };
    let identities = Identities::open(None, Box::new(|_| Ok(())), Box::new(clock))
        .unwrap()
        .with_jobs(jobs.clone());
    let api = Api::new(
        control.clone(),
        TokenDigest::of(TOKEN),
        SasKey::new([7; api::SAS_KEY_BYTES]),
        &home,
        "local",
    )
    .unwrap()
    .with_identities(identities)
    .unwrap()
    .with_room(room)
    .with_runs(runs());
    Server {
        ahead,
        jobs,
        short,
        router: api::router(api),
        control,
        engine,
    }
}

impl Server {
    pub async fn send(&self, request: Request<Body>) -> Got {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body
            .collect()
            .await
            .map(|b| b.to_bytes().to_vec())
            .unwrap_or_default();
        Got {
            status: parts.status.as_u16(),
            headers: parts.headers,
            bytes,
        }
    }

    pub async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Got {
        let mut request = Request::builder()
            .method(method)
            .uri(
                path.strip_prefix("https://zaffre.test:8443")
                    .unwrap_or(path),
            )
            .header("host", "zaffre.test:8443")
            .extension(Scheme::Https);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    /// With the token and, unless null, a JSON body.
    pub async fn ask(&self, method: &str, path: &str, body: Value) -> Got {
        self.ask_with(method, path, &[], body).await
    }

    pub async fn ask_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Got {
        let token = format!("Bearer {TOKEN}");
        let mut all = vec![("authorization", token.as_str())];
        all.extend_from_slice(headers);
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.call(method, path, &all, body).await
    }

    pub async fn get(&self, path: &str) -> Got {
        self.ask("GET", path, Value::Null).await
    }

    /// The JSON of a document of the workspace that always exists, as it is stored.
    pub fn stored(&self, kind: model::Kind, path: &str) -> String {
        let workspace = Workspace::new(SUB, "default", "default");
        let key = model::DocKey::new(&workspace, kind, path);
        self.control.get(&key).unwrap().unwrap().json.to_string()
    }

    /// Waits until a cluster has so many idle nodes.
    pub async fn idle(&self, cluster: &str, nodes: u32) {
        self.until(&format!("{WS}/computes/{cluster}"), |c| {
            c["properties"]["properties"]["nodeStateCounts"]["idleNodeCount"] == nodes
        })
        .await;
    }

    /// Waits until a job runs.
    pub async fn running(&self, job: &str) {
        self.until(&format!("{WS}/jobs/{job}"), |j| {
            j["properties"]["status"] == "Running"
        })
        .await;
    }

    /// Looks again after each turn until `done` holds.
    pub async fn until(&self, path: &str, done: impl Fn(&Value) -> bool) -> Value {
        let mut turns = self.control.turns();
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            turns.mark_unchanged();
            let got = self.get(path).await;
            let body = if got.bytes.is_empty() {
                Value::Null
            } else {
                got.json()
            };
            if done(&body) {
                return body;
            }
            // A change between the look and the wait is seen by the receiver.
            tokio::time::timeout_at(end, turns.changed())
                .await
                .unwrap_or_else(|_| panic!("{path} never became so, last {body}"))
                .unwrap();
        }
    }

    pub async fn cluster(&self, name: &str, min: u32, max: u32) -> Got {
        self.ask(
            "PUT",
            &format!("{WS}/computes/{name}"),
            cluster_body(min, max),
        )
        .await
    }

    /// Uploads a blob into the default datastore and returns its address.
    pub async fn upload(&self, path: &str, bytes: &str) -> String {
        let store = self
            .get(&format!("{WS}/datastores/workspaceblobstore"))
            .await
            .is(200)
            .json();
        let account = store["properties"]["accountName"]
            .as_str()
            .unwrap()
            .to_owned();
        let container = store["properties"]["containerName"]
            .as_str()
            .unwrap()
            .to_owned();
        let secrets = self
            .ask(
                "POST",
                &format!("{WS}/datastores/workspaceblobstore/listSecrets"),
                Value::Null,
            )
            .await
            .is(200)
            .json();
        let sas = secrets["sasToken"].as_str().unwrap();
        let url = format!("https://{account}.blob.core.local/{container}/{path}?{sas}");
        self.call(
            "PUT",
            &url,
            &[("x-ms-blob-type", "BlockBlob")],
            bytes.to_owned(),
        )
        .await
        .is(201);
        format!("azureml://datastores/workspaceblobstore/paths/{path}")
    }

    /// An endpoint `e` with a deployment `d` on cluster `c`, and an input folder; everything that an invoke needs.
    pub async fn batch(&self) -> String {
        self.cluster("c01", 0, 2).await.is(201);
        let model = self.upload("models/m/model.txt", "7").await;
        let model = model.trim_end_matches("/model.txt").to_owned();
        self.ask(
            "PUT",
            &format!("{WS}/models/m/versions/1"),
            json!({"properties": {"modelUri": model, "modelType": "custom_model"}}),
        )
        .await
        .is(201);
        self.ask(
            "PUT",
            &format!("{WS}/environments/env/versions/1"),
            json!({"properties": {"image": "library/python:latest"}}),
        )
        .await
        .is(201);
        let code = self
            .upload("code/score.py", "def init(): pass\ndef run(b): return b\n")
            .await;
        let code = code.trim_end_matches("/score.py").to_owned();
        self.ask(
            "PUT",
            &format!("{WS}/codes/code/versions/1"),
            json!({"properties": {"codeUri": code}}),
        )
        .await
        .is(201);
        self.ask(
            "PUT",
            &format!("{WS}/batchEndpoints/end"),
            json!({"location": "local", "properties": {"authMode": "aadToken"}}),
        )
        .await
        .is(201);
        self.ask(
            "PUT",
            &format!("{WS}/batchEndpoints/end/deployments/dep"),
            deployment_body("c01"),
        )
        .await
        .is(201);
        self.upload("in/a.csv", "1").await;
        "azureml://datastores/workspaceblobstore/paths/in/".to_owned()
    }
}

pub fn cluster_body(min: u32, max: u32) -> Value {
    json!({"location": "local", "properties": {"computeType": "AmlCompute", "description": "d", "properties": {
        "vmSize": "STANDARD_DS3_v2", "vmPriority": "LowPriority",
        "scaleSettings": {"minNodeCount": min, "maxNodeCount": max, "nodeIdleTimeBeforeScaleDown": "PT2M"},
    }}})
}

pub fn deployment_body(compute: &str) -> Value {
    json!({"location": "local", "properties": {
        "model": {"referenceType": "Id", "assetId": format!("{WS}/models/m/versions/1")},
        "compute": format!("{WS}/computes/{compute}"),
        "environmentId": format!("{WS}/environments/env/versions/1"),
        "codeConfiguration": {"codeId": format!("{WS}/codes/code/versions/1"), "scoringScript": "score.py"},
        "miniBatchSize": 2, "outputAction": "AppendRow", "resources": {"instanceCount": 2},
    }})
}

pub fn invoke_body(input: &str) -> Value {
    json!({"properties": {"inputData": {"UriFolder": {"jobInputType": "UriFolder", "uri": input}}}})
}

pub fn command_body(compute: &str) -> Value {
    json!({"properties": {
        "jobType": "Command", "command": "echo hi", "experimentName": "x", "tags": {"k": "v"},
        "computeId": format!("{WS}/computes/{compute}"),
        "environmentId": format!("{WS}/environments/env/versions/1"),
    }})
}

/// A job id of the workspace that always exists.
pub fn job(name: &str) -> JobId {
    JobId::new(&Workspace::new(SUB, "default", "default"), name)
}
