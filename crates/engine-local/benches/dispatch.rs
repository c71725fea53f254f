//! Cost of one no-op mini-batch through `Local`, an agent and two Python workers, nothing made durable.
//!
//! `cargo bench -p engine-local --bench dispatch [-- N [GROUP]]` prints wall and CPU time (user and system of server,
//! agent and workers) per mini-batch. Compare with `bench/dispatchfloor N python group 2` of the shared folder.
//! `-- commands [N]` runs N times `/bin/true` as commands, one after the other: compare with `floors spawn N`.

use engine_local::{Local, LocalConfig};
use model::{
    Action, Attempt, BlobPath, Bytes, Id, MilliCpu, Millis, NodeId, NodeSeen, NodeSpec, Phase,
    Ranges, Resources, Size, TaskId, TaskSpec, Tier, Time, Workspace,
    engine::{EnvironmentSpec, InputSpec, Packages, Placement, PoolSpec, Program, RowFormat},
};
use port::{BlobError, BlobInfo, BlobWriter, Blobs, Engine, listing::Writer};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

/// Nothing here takes so long; a bench that waits so long has failed.
const LIMIT: Duration = Duration::from_secs(120);
/// Indices lent at a time; the next are lent when half of them are done, as the control plane does.
const LEND: u32 = 8192;

struct Folder(PathBuf);

impl Blobs for Folder {
    fn write(&self, path: &BlobPath) -> Result<Box<dyn BlobWriter>, BlobError> {
        Err(BlobError::NotFound(path.clone()))
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

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args.split_first() {
        Some((word, rest)) if word == "agent" => return engine_local::agent::main(rest),
        Some((word, rest)) if word == "agent-exec" => return engine_local::launcher::main(rest),
        _ => {}
    }
    let numbers: Vec<u32> = args
        .iter()
        .filter_map(|a| a.to_str()?.parse().ok())
        .collect();
    let n = numbers.first().copied().unwrap_or(100_000);
    let group = numbers.get(1).copied().unwrap_or(1);
    let dir = std::env::temp_dir().join(format!("zaffre-dispatch-{}", std::process::id()));
    let done = if args.iter().any(|a| a == "commands") {
        commands(&dir, numbers.first().copied().unwrap_or(200))
    } else {
        run(&dir, n, group)
    };
    let _ = fs::remove_dir_all(&dir);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(io::stderr(), "dispatch: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &std::path::Path, n: u32, group: u32) -> io::Result<()> {
    let blobs = dir.join("data/blobs");
    for folder in ["input", "code", "runs"] {
        fs::create_dir_all(blobs.join(folder))?;
    }
    let mut writer = Writer::new(io::BufWriter::new(fs::File::create(
        blobs.join("runs/listing"),
    )?))?;
    for i in 0..n * group {
        writer.push(format!("f{i:07}.csv").as_bytes())?;
    }
    writer.finish()?.1.flush()?;
    fs::write(
        blobs.join("code/score.py"),
        "def run(batch):\n    return batch\n",
    )?;
    let rig = Rig::open(dir, blobs)?;
    let Rig {
        local, node, up, ..
    } = &rig;
    let w = Workspace::new("s", "g", "w");
    let task = TaskId {
        job: Id::new(&w, "bench"),
        index: 0,
        attempt: Attempt(1),
    };
    let placement = Placement {
        place: model::Place::On(node.clone()),
        gang: vec![task.clone()],
    };
    local.apply(vec![Action::Start(
        task.clone(),
        placement,
        Arc::new(spec(group)),
    )]);
    rig.wait("the pool", &mut || {
        local
            .observe()
            .tasks
            .get(&task)
            .is_some_and(|t| t.phase == Phase::Running)
    })?;

    let (mut lend, mut lent, mut got, mut seq, mut bytes) = (0, 0, 0, 0, 0);
    let mut parcels = 0;
    let agent = agent_pid(dir)?;
    // A first index, so that the workers have started when the clock does.
    let (mut clock, mut cpu) = (Instant::now(), 0.0);
    let mut warm = false;
    let end = Instant::now() + LIMIT;
    while got < n {
        if warm && lent - got <= LEND / 2 && lent < n {
            let to = (lent + LEND).min(n);
            lend += 1;
            local.apply(vec![Action::Lend(
                task.clone(),
                lend,
                Ranges::span(lent, to),
            )]);
            lent = to;
        } else if !warm && lent == 0 {
            lend += 1;
            local.apply(vec![Action::Lend(task.clone(), lend, Ranges::span(0, 2))]);
            lent = 2;
        }
        rig.bell.wait(Duration::from_millis(50));
        let seen = local.observe();
        let Some(seen) = seen.tasks.get(&task) else {
            return Err(io::Error::other("the task is gone"));
        };
        for parcel in &seen.mailbox.parcels {
            if parcel.seq > seq {
                seq = parcel.seq;
                parcels += 1;
                got += u32::try_from(parcel.done.len()).map_err(io::Error::other)?;
                bytes += parcel.rows.len();
                if let Some(failed) = parcel.failed.first() {
                    return Err(io::Error::other(format!("{failed:?}")));
                }
            }
        }
        local.apply(vec![Action::Ack(task.clone(), seq)]);
        if !warm && got == 2 {
            warm = true;
            clock = Instant::now();
            cpu = cpu_of_all(agent);
        }
        if Instant::now() > end {
            return Err(io::Error::other(format!(
                "{got} of {n} came: {:?}",
                seen.phase
            )));
        }
    }
    let wall = clock.elapsed().as_secs_f64() * 1e6 / f64::from(n - 2);
    let cpu = (cpu_of_all(agent) - cpu) * 1e6 / f64::from(n - 2);
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "dispatch: n={n} group={group} node_up_ms={:.1} wall_us={wall:.2} cpu_us={cpu:.2} parcels={parcels} bytes={bytes}",
        up.as_secs_f64() * 1e3
    )?;
    for (who, pid) in [("server", std::process::id()), ("agent", agent)] {
        writeln!(out, "  {who}: {:.2} us", seconds(pid) * 1e6 / f64::from(n))?;
    }
    rig.end()
}

/// An engine with one node.
struct Rig {
    local: Local,
    bell: port::Bell,
    node: NodeId,
    up: Duration,
}

impl Rig {
    fn open(dir: &std::path::Path, blobs: PathBuf) -> io::Result<Rig> {
        let bell = port::Bell::new();
        let begun = Instant::now();
        let config = LocalConfig {
            data: dir.join("data"),
            blobs: Arc::new(Folder(blobs)),
            exe: std::env::current_exe()?,
            home: dir.join("home"),
            variables: Default::default(),
            confinement: None,
            own_uid: None,
            labels: Default::default(),
            devices: Default::default(),
            node_selector: Default::default(),
        };
        let local = Local::new(config, bell.clone()).map_err(io::Error::other)?;
        let node = NodeId {
            compute: Id::new(&Workspace::new("s", "g", "w"), "c"),
            ordinal: 0,
            incarnation: 0,
        };
        let size = Size {
            name: "Standard_DS3_v2".into(),
            family: "standardDSv2Family".into(),
            cores: 4,
            memory: Bytes(14 << 30),
            gpus: 0,
        };
        let tier = Tier::LowPriority;
        local.apply(vec![Action::AddNode(
            node.clone(),
            NodeSpec {
                size,
                tier,
                pod: None,
            },
        )]);
        let mut rig = Rig {
            local,
            bell,
            node,
            up: Duration::ZERO,
        };
        rig.wait("the node", &mut || {
            rig.local.observe().nodes.get(&rig.node) == Some(&NodeSeen::Up)
        })?;
        rig.up = begun.elapsed();
        Ok(rig)
    }

    fn wait(&self, what: &str, look: &mut dyn FnMut() -> bool) -> io::Result<()> {
        let end = Instant::now() + LIMIT;
        while !look() {
            if Instant::now() > end {
                return Err(io::Error::other(format!("{what} did not happen")));
            }
            self.bell.wait(Duration::from_millis(50));
        }
        Ok(())
    }

    fn end(&self) -> io::Result<()> {
        let node = &self.node;
        self.local.apply(vec![Action::Evict(node.clone(), Time(0))]);
        self.wait("the end", &mut || {
            !self.local.observe().nodes.contains_key(node)
        })
    }
}

/// N commands, one after the other.
fn commands(dir: &std::path::Path, n: u32) -> io::Result<()> {
    let blobs = dir.join("data/blobs");
    fs::create_dir_all(&blobs)?;
    let begun = Instant::now();
    let rig = Rig::open(dir, blobs)?;
    let agent = agent_pid(dir)?;
    let w = Workspace::new("s", "g", "w");
    let (mut first, mut clock, mut cpu) = (Duration::ZERO, Instant::now(), 0.0);
    for i in 0..=n {
        if i == 1 {
            first = begun.elapsed();
            clock = Instant::now();
            cpu = cpu_with_dead(agent);
        }
        let task = TaskId {
            job: Id::new(&w, format!("job{i}")),
            index: 0,
            attempt: Attempt(1),
        };
        let placement = Placement {
            place: model::Place::On(rig.node.clone()),
            gang: vec![task.clone()],
        };
        let mut command = spec(1);
        command.program = Program::Command {
            line: "/bin/true".into(),
        };
        command.code = None;
        command.inputs.clear();
        rig.local.apply(vec![Action::Start(
            task.clone(),
            placement,
            Arc::new(command),
        )]);
        rig.wait("the command", &mut || {
            matches!(
                rig.local.observe().tasks.get(&task).map(|t| &t.phase),
                Some(Phase::Exited(_))
            )
        })?;
        rig.local.apply(vec![Action::Forget(task)]);
    }
    let wall = clock.elapsed().as_secs_f64() * 1e6 / f64::from(n);
    let cpu = (cpu_with_dead(agent) - cpu) * 1e6 / f64::from(n);
    writeln!(
        io::stdout(),
        "commands: n={n} first_ms={:.1} wall_us={wall:.0} cpu_us={cpu:.0}",
        first.as_secs_f64() * 1e3
    )?;
    rig.end()
}

/// Seconds of CPU of this process, of the agent, and of all that the agent has waited for.
fn cpu_with_dead(agent: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{agent}/stat")).unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .map(|f| f.parse().unwrap_or(0.0))
        .collect();
    // utime, stime, cutime, cstime in ticks of 10 ms; our own finer.
    let ticks: f64 = fields.get(11..15).unwrap_or_default().iter().sum();
    seconds(std::process::id()) + ticks / 100.0
}

fn spec(group: u32) -> TaskSpec {
    let path = |p: &str| BlobPath::new(p).expect("a legal path");
    TaskSpec {
        program: Program::Pool(PoolSpec {
            workers: 2,
            script: Some("score.py".into()),
            arguments: Vec::new(),
            rows: None,
            shutdown: false,
            listing: path("runs/listing"),
            root: path("input"),
            group,
            timeout: Millis(30_000),
            format: RowFormat::Csv,
            collect: true,
            header: false,
            shared_output: path("runs/score"),
            logging_level: "info".into(),
        }),
        environment: EnvironmentSpec {
            label: "none:1".into(),
            image: None,
            packages: Packages::None,
        },
        code: Some(path("code")),
        inputs: BTreeMap::from([(
            "data".into(),
            InputSpec::Path {
                source: path("input"),
                copy: false,
            },
        )]),
        outputs: BTreeMap::new(),
        model: None,
        variables: BTreeMap::new(),
        limits: Resources {
            cpu: MilliCpu(4000),
            memory: Bytes(4 << 30),
            devices: BTreeMap::new(),
        },
        artifacts: path("runs/job"),
    }
}

fn agent_pid(dir: &std::path::Path) -> io::Result<u32> {
    for entry in fs::read_dir(dir.join("data/nodes"))? {
        if let Ok(text) = fs::read(entry?.path().join("agent.json")) {
            let agent: serde_json::Value = serde_json::from_slice(&text)?;
            let pid = agent["pid"].as_u64().and_then(|p| u32::try_from(p).ok());
            return pid.ok_or_else(|| io::Error::other("no pid"));
        }
    }
    Err(io::Error::other("no agent"))
}

/// Seconds of CPU of one process, threads included.
fn seconds(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let own: f64 = text
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0);
    // `schedstat` of a process is its first thread's; the others are added.
    let mut all = 0.0;
    if let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) {
        for thread in threads.flatten() {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            all += text
                .split(' ')
                .next()
                .and_then(|n| n.parse::<f64>().ok())
                .unwrap_or(0.0);
        }
    }
    f64::max(own, all) / 1e9
}

/// Seconds of CPU of this process, the agent and its workers.
fn cpu_of_all(agent: u32) -> f64 {
    let mut total = seconds(std::process::id()) + seconds(agent);
    let Ok(entries) = fs::read_dir("/proc") else {
        return total;
    };
    for pid in entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
    {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|r| r.split_ascii_whitespace().nth(1)?.parse::<u32>().ok());
        if parent == Some(agent) {
            total += seconds(pid);
        }
    }
    total
}
