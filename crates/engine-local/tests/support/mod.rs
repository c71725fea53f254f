//! A server side for tests: `Local` on a fresh folder, with the agent of `examples/agent.rs`.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(
    clippy::allow_attributes,
    reason = "an expectation would fail where everything is used"
)]

use engine_local::{Local, LocalConfig, confine::Kind};
use model::{
    Action, Attempt, BlobPath, Bytes, Exit, Id, MilliCpu, Millis, NodeId, NodeSeen, NodeSpec,
    Observed, Parcel, Phase, PodSpec, Ranges, Resources, Size, TaskId, TaskSeen, TaskSpec, Tier,
    Time, Workspace,
    engine::{
        Cause, EnvironmentSpec, InputSpec, Packages, Placement, PoolSpec, Program, RowFormat,
    },
};
use port::{BlobError, BlobInfo, BlobWriter, Blobs, Engine, listing::Writer};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// Far more than anything here takes; a test that waits so long has failed.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Blobs as plain files: what the engine needs of them is where they lie.
pub struct Folder(pub PathBuf);

impl Blobs for Folder {
    fn write(&self, _: &BlobPath) -> Result<Box<dyn BlobWriter>, BlobError> {
        Err(BlobError::Io(io::Error::other(
            "the engine writes no blobs",
        )))
    }
    fn info(&self, path: &BlobPath) -> Result<BlobInfo, BlobError> {
        Err(BlobError::NotFound(path.clone()))
    }
    fn read_at(&self, path: &BlobPath, _: u64, _: &mut [u8]) -> Result<usize, BlobError> {
        Err(BlobError::NotFound(path.clone()))
    }
    fn set_metadata(
        &self,
        path: &BlobPath,
        _: BTreeMap<String, String>,
    ) -> Result<BlobInfo, BlobError> {
        Err(BlobError::NotFound(path.clone()))
    }
    fn delete(&self, path: &BlobPath) -> Result<(), BlobError> {
        Err(BlobError::NotFound(path.clone()))
    }
    fn delete_folder(&self, path: &BlobPath) -> Result<(), BlobError> {
        Err(BlobError::NotFound(path.clone()))
    }
    fn list(
        &self,
        path: &BlobPath,
        _: Option<&BlobPath>,
        _: usize,
    ) -> Result<Vec<(BlobPath, BlobInfo)>, BlobError> {
        Err(BlobError::NotFound(path.clone()))
    }
    fn walk(&self, path: &BlobPath, _: &mut dyn FnMut(BlobPath)) -> Result<(), BlobError> {
        Err(BlobError::NotFound(path.clone()))
    }
    fn append(&self, path: &BlobPath, _: &[Arc<[u8]>]) -> Result<u64, BlobError> {
        Err(BlobError::NotFound(path.clone()))
    }
    fn local(&self, path: &BlobPath) -> Option<PathBuf> {
        Some(self.0.join(path.as_str()))
    }
}

/// The engine under test and its folders.
pub struct Rig {
    pub dir: PathBuf,
    pub blobs: PathBuf,
    pub local: Option<Local>,
    pub bell: port::Bell,
    pub kind: Option<Kind>,
    pub own_uid: Option<bool>,
    pub exe: Option<PathBuf>,
    pub labels: BTreeMap<Box<str>, Box<str>>,
    pub devices: BTreeMap<Box<str>, u32>,
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    seen: Observed,
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(local) = &self.local {
            let nodes: Vec<_> = local.observe().nodes.keys().cloned().collect();
            local.apply(
                nodes
                    .iter()
                    .map(|n| Action::Evict(n.clone(), Time(0)))
                    .collect(),
            );
            let end = Instant::now() + LIMIT;
            while (local.observe().nodes.size() > 0 || local.evict_pods() > 0)
                && Instant::now() < end
            {
                self.bell.wait(Duration::from_millis(20));
            }
        }
        self.local = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn exe() -> PathBuf {
    // target/debug/deps/<test> → target/debug/examples/agent, which `cargo test` builds.
    let own = std::env::current_exe().unwrap();
    let exe = own
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/agent");
    assert!(exe.is_file(), "{} is built by `cargo test`", exe.display());
    exe
}

impl Rig {
    pub fn new(name: &str) -> Rig {
        Rig::with(name, None, None)
    }
    pub fn with(name: &str, kind: Option<Kind>, own_uid: Option<bool>) -> Rig {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("zaffre-engine-{}-{n}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let blobs = dir.join("data/blobs");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&blobs)
            .unwrap();
        let mut rig = Rig {
            dir,
            blobs,
            local: None,
            bell: port::Bell::new(),
            kind,
            own_uid,
            exe: None,
            labels: BTreeMap::new(),
            devices: BTreeMap::new(),
            node_selector: BTreeMap::new(),
            seen: Observed::default(),
        };
        rig.open();
        rig
    }
    /// A server starts (again) on the same folder.
    pub fn open(&mut self) {
        let config = LocalConfig {
            data: self.dir.join("data"),
            blobs: Arc::new(Folder(self.blobs.clone())),
            exe: self.exe.clone().unwrap_or_else(exe),
            home: self.dir.join("home"),
            variables: engine_local::Variables::new(|job| {
                let name = job.workspace().name.to_string();
                BTreeMap::from([("AZUREML_ARM_WORKSPACE_NAME".into(), name)])
            }),
            confinement: self.kind.clone(),
            own_uid: self.own_uid,
            labels: self.labels.clone(),
            devices: self.devices.clone(),
            node_selector: self.node_selector.clone(),
        };
        self.local = Some(Local::new(config, self.bell.clone()).unwrap());
    }
    /// The server goes, as if killed: agents and tasks stay.
    pub fn close(&mut self) {
        self.local = None;
    }
    pub fn local(&self) -> &Local {
        self.local.as_ref().unwrap()
    }
    pub fn apply(&self, action: Action) {
        self.local().apply(vec![action]);
    }
    /// Waits until `look` finds what it looks for.
    pub fn wait<T>(&self, what: &str, look: impl Fn(&Observed) -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        loop {
            let seen = self.local().observe();
            if let Some(found) = look(&seen) {
                return found;
            }
            assert!(
                Instant::now() < end,
                "{what} did not happen: {:?} {:?}",
                seen.nodes.iter().collect::<Vec<_>>(),
                seen.tasks.iter().collect::<Vec<_>>()
            );
            self.bell.wait(Duration::from_millis(20));
        }
    }
    /// Brings up node `ordinal`.
    pub fn node(&self, ordinal: u32) -> NodeId {
        let id = node(ordinal);
        self.apply(Action::AddNode(id.clone(), node_spec()));
        self.wait("the node comes up", |seen| match seen.nodes.get(&id) {
            Some(NodeSeen::Broken { why }) => panic!("{why}"),
            other => (other == Some(&NodeSeen::Up)).then_some(()),
        });
        id
    }
    /// Writes a blob.
    pub fn blob(&self, path: &str, bytes: impl AsRef<[u8]>) -> BlobPath {
        let at = self.blobs.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, bytes).unwrap();
        BlobPath::new(path).unwrap()
    }
    pub fn text(&self, path: &str) -> String {
        let at = self.blobs.join(path);
        fs::read_to_string(&at).unwrap_or_else(|e| panic!("{}: {e}", at.display()))
    }
    /// A command that runs `line`.
    pub fn command(&self, line: &str) -> TaskSpec {
        TaskSpec {
            program: Program::Command { line: line.into() },
            environment: EnvironmentSpec {
                label: "none:1".into(),
                image: None,
                packages: Packages::None,
            },
            code: None,
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            model: None,
            variables: BTreeMap::new(),
            limits: Resources {
                cpu: MilliCpu(4000),
                memory: Bytes(1 << 30),
                devices: BTreeMap::new(),
            },
            artifacts: BlobPath::new("runs/job").unwrap(),
        }
    }
    /// A pool whose script is `script`, over `paths` of an input folder `input`.
    pub fn pool(&self, script: &str, paths: &[&[u8]], workers: u32) -> TaskSpec {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for path in paths {
            writer.push(path).unwrap();
        }
        fs::create_dir_all(self.blobs.join("input")).unwrap();
        let listing = self.blob("runs/listing", writer.finish().unwrap().1);
        self.blob("code/score.py", script);
        TaskSpec {
            program: Program::Pool(PoolSpec {
                workers,
                script: Some("score.py".into()),
                arguments: Vec::new(),
                rows: None,
                shutdown: false,
                listing,
                root: BlobPath::new("input").unwrap(),
                group: 1,
                timeout: Millis(30_000),
                format: RowFormat::Csv,
                collect: true,
                header: false,
                shared_output: BlobPath::new("runs/score").unwrap(),
                logging_level: "info".into(),
            }),
            code: BlobPath::new("code"),
            inputs: BTreeMap::from([(
                "data".into(),
                InputSpec::Path {
                    source: BlobPath::new("input").unwrap(),
                    copy: false,
                },
            )]),
            ..self.command("")
        }
    }
    pub fn start(&self, task: &TaskId, node: &NodeId, spec: TaskSpec) {
        let placement = Placement {
            place: model::Place::On(node.clone()),
            gang: vec![task.clone()],
        };
        self.apply(Action::Start(task.clone(), placement, Arc::new(spec)));
    }
    /// Starts a task as a pod of compute `k`.
    pub fn start_pod(&self, task: &TaskId, pod: PodSpec, spec: TaskSpec) {
        let placement = Placement {
            place: model::Place::Matching(Box::new(pod)),
            gang: vec![task.clone()],
        };
        self.apply(Action::Start(task.clone(), placement, Arc::new(spec)));
    }
    /// The agent of a pod's task, once it has said who it is; its folder too.
    pub fn pod_agent(&self, task: &TaskId) -> Option<(u32, PathBuf)> {
        let id = serde_json::to_value(task).unwrap();
        let nodes = fs::read_dir(self.dir.join("data/nodes")).ok()?;
        nodes.flatten().map(|e| e.path()).find_map(|dir| {
            let read = |name| {
                let bytes = fs::read(dir.join(name)).ok()?;
                serde_json::from_slice::<serde_json::Value>(&bytes).ok()
            };
            if read("node.json")?["pod"]["task"] != id {
                return None;
            }
            let pid = read("agent.json").and_then(|a| u32::try_from(a["pid"].as_u64()?).ok());
            Some((pid.unwrap_or(0), dir.clone()))
        })
    }
    pub fn forget(&self, task: &TaskId) {
        self.apply(Action::Forget(task.clone()));
        self.wait("the task is forgotten", |seen| {
            (!seen.tasks.contains_key(task)).then_some(())
        });
    }
    pub fn exit(&self, task: &TaskId) -> Exit {
        self.wait("the task exits", |seen| {
            match &seen.tasks.get(task)?.phase {
                Phase::Exited(exit) => Some(exit.clone()),
                Phase::Pending { .. } | Phase::Preparing { .. } | Phase::Running => None,
            }
        })
    }
    /// Runs a command to its end.
    pub fn run(&self, spec: TaskSpec) -> Exit {
        let id = self.node(0);
        let task = task(1);
        self.start(&task, &id, spec);
        let exit = self.exit(&task);
        self.forget(&task);
        exit
    }
    pub fn running(&self, task: &TaskId) {
        self.wait("the task runs", |seen| {
            (seen.tasks.get(task)?.phase == Phase::Running).then_some(())
        });
    }
    /// Lends `ranges` and collects until `n` indices are done, failed or returned.
    pub fn collect(&self, task: &TaskId, lend: u64, ranges: Ranges, n: u32) -> Collected {
        self.apply(Action::Lend(task.clone(), lend, ranges));
        let mut out = Collected::default();
        self.collect_more(task, &mut out, n);
        out
    }
    pub fn collect_more(&self, task: &TaskId, out: &mut Collected, n: u32) {
        let end = Instant::now() + LIMIT;
        while out.total() < n {
            assert!(
                Instant::now() < end,
                "{} of {n} came: {out:?}, {:?}",
                out.total(),
                self.local().observe().tasks.get(task)
            );
            self.bell.wait(Duration::from_millis(20));
            let seen = self.local().observe();
            let Some(task_seen) = seen.tasks.get(task) else {
                panic!("the task is gone; {out:?}")
            };
            out.take(task_seen);
            if let Phase::Exited(exit) = &task_seen.phase
                && out.total() < n
            {
                panic!("the task ended: {exit:?}; {out:?}");
            }
            self.apply(Action::Ack(task.clone(), out.seq));
        }
    }
    /// Processes of this rig's nodes: agents and everything below them.
    pub fn agent_pid(&self, node: &NodeId) -> u32 {
        for entry in fs::read_dir(self.dir.join("data/nodes")).unwrap() {
            let dir = entry.unwrap().path();
            let Ok(config) = fs::read_to_string(dir.join("node.json")) else {
                continue;
            };
            if config.contains(&format!("#{}.{}", node.ordinal, node.incarnation)) {
                let agent: serde_json::Value =
                    serde_json::from_slice(&fs::read(dir.join("agent.json")).unwrap()).unwrap();
                return u32::try_from(agent["pid"].as_u64().unwrap()).unwrap();
            }
        }
        panic!("no folder of {node}");
    }
}

/// What came from a pool.
#[derive(Debug, Default)]
pub struct Collected {
    pub seq: u64,
    pub rows: BTreeMap<u32, String>,
    pub items: BTreeMap<u32, u32>,
    pub failed: Vec<(u32, Cause)>,
    pub returned: Ranges,
    pub header: Option<Box<str>>,
    pub doubled: Vec<u32>,
}

impl Collected {
    pub fn total(&self) -> u32 {
        u32::try_from(self.rows.len() + self.failed.len()).unwrap() + self.returned.len()
    }
    pub fn take(&mut self, seen: &TaskSeen) {
        for parcel in &seen.mailbox.parcels {
            if parcel.seq > self.seq {
                assert_eq!(parcel.seq, self.seq + 1, "parcels come without gaps");
                self.seq = parcel.seq;
                self.parcel(parcel);
            }
        }
    }
    fn parcel(&mut self, parcel: &Parcel) {
        let mut at = 0;
        for done in &parcel.done {
            let end = at + done.bytes as usize;
            let bytes = &parcel.rows[at..end];
            at = end;
            let text = String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(
                done.rows as usize,
                text.matches('\n')
                    .count()
                    .max(done.rows as usize)
                    .min(done.rows as usize)
            );
            if self.rows.insert(done.index, text).is_some() {
                self.doubled.push(done.index);
            }
            self.items.insert(done.index, done.items);
        }
        assert_eq!(at, parcel.rows.len());
        self.failed
            .extend(parcel.failed.iter().map(|f| (f.index, f.cause.clone())));
        self.returned.extend(&parcel.returned);
        if let Some(header) = &parcel.header {
            self.header.get_or_insert(header.clone());
        }
    }
}

pub fn node(ordinal: u32) -> NodeId {
    NodeId {
        compute: Id::new(&Workspace::new("s", "g", "w"), "low-pri"),
        ordinal,
        incarnation: 0,
    }
}
pub fn node_spec() -> NodeSpec {
    NodeSpec {
        size: Size {
            name: "Standard_DS3_v2".into(),
            family: "standardDSv2Family".into(),
            cores: 4,
            memory: Bytes(14 << 30),
            gpus: 0,
        },
        tier: Tier::LowPriority,
        pod: None,
    }
}
/// A pod of compute `compute` with these limits.
pub fn pod(compute: &str, cpu: u64, memory: u64, gpus: u32) -> PodSpec {
    let mut limits = Resources {
        cpu: MilliCpu(cpu),
        memory: Bytes(memory),
        devices: BTreeMap::new(),
    };
    if gpus > 0 {
        limits.devices.insert("nvidia.com/gpu".into(), gpus);
    }
    PodSpec {
        compute: Id::new(&Workspace::new("s", "g", "w"), compute),
        instance_type: "small".into(),
        requests: limits.clone(),
        limits,
        selector: BTreeMap::new(),
        machine: Some("here".into()),
    }
}
pub fn task(attempt: u32) -> TaskId {
    TaskId {
        job: Id::new(&Workspace::new("s", "g", "w"), "job"),
        index: 0,
        attempt: Attempt(attempt),
    }
}
pub fn now() -> Time {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    Time(u64::try_from(since.as_millis()).unwrap())
}
/// Whether a process is there and not a zombie.
pub fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| {
        let state = s.rsplit(')').next().unwrap_or("").trim().chars().next();
        !matches!(state, Some('Z' | 'X') | None)
    })
}
/// Waits until no process has `needle` in its command line.
pub fn none_left(needle: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let left: Vec<_> = with_command_line(needle);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "still there: {left:?}");
        std::thread::yield_now();
    }
}
/// Living processes with `needle` in their command line.
pub fn with_command_line(needle: &str) -> Vec<u32> {
    let own = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != own && alive(*pid))
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                String::from_utf8_lossy(&line)
                    .replace('\0', " ")
                    .contains(needle)
            })
        })
        .collect()
}
pub fn read_number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
