//! The engine of one machine: nodes are agent processes, tasks their children.
//!
//! `Local` is what the control plane holds; `hub` is the thread behind it.
//!
//! G1 and G2 of the port hold as follows: an action for something that is there already, or no longer, changes nothing; a
//! living agent of a server before us is reported only after it has told everything, and `Local::new` waits for that.

use crate::{
    cluster::{Declared, Found, embedded},
    confine::Kind,
    environment::Environments,
    hub::{Hub, Means, Shared},
    node::Ground,
    proc, uid,
};
use model::{Action, BlobPath, Observed, kubernetes::Labels};
use port::{Bell, Blobs, Engine};
use rustix::fs::FlockOperation;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};
use thiserror::Error;

/// `runtime/batch.py`, so that one binary is enough.
pub(crate) const BATCH: &str = include_str!("../../../runtime/batch.py");

/// How the engine is set up.
pub struct LocalConfig {
    /// The server's data folder; the engine uses `nodes/` and `runtime/` in it, and a socket.
    pub data: PathBuf,
    /// Blobs; `local` must know where they lie.
    pub blobs: Arc<dyn Blobs>,
    /// The program that offers `agent` and `agent-exec`; the server's own binary.
    pub exe: PathBuf,
    /// `ZAFFRE_HOME`: environments and tools are cached there.
    pub home: PathBuf,
    /// Environment variables of every job.
    pub variables: crate::Variables,
    /// How limits are enforced; `None` takes the best that works.
    pub confinement: Option<Kind>,
    /// Whether user processes get a uid of their own; `None` where it works.
    pub own_uid: Option<bool>,
    /// Labels of this machine as the node of the embedded cluster, beside its own.
    pub labels: Labels,
    /// Its devices by name, in place of those that are found.
    pub devices: BTreeMap<Box<str>, u32>,
    /// Where all work on the embedded cluster must run: the extension's node selector.
    pub node_selector: Labels,
}

/// Why the engine cannot start.
#[derive(Debug, Error)]
pub enum LocalError {
    /// Somebody else uses the folder.
    #[error("data folder {}: another server uses it", .0.display())]
    InUse(PathBuf),
    /// A folder or the socket cannot be made.
    #[error("{}: {error}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What.
        error: io::Error,
    },
}

/// The engine of one machine.
pub struct Local {
    shared: Arc<Shared>,
    hub: Option<JoinHandle<()>>,
    report: Vec<String>,
    _lock: File,
}

fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, LocalError> {
    result.map_err(|error| LocalError::Io {
        path: path.to_path_buf(),
        error,
    })
}

impl Local {
    /// Starts the engine: adopts living agents, cleans up after dead ones, and then says what there is.
    pub fn new(config: LocalConfig, bell: Bell) -> Result<Local, LocalError> {
        let nodes = config.data.join("nodes");
        let open = |path: &Path| {
            at(
                path,
                fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o711)
                    .create(path),
            )
        };
        open(&config.data)?;
        open(&nodes)?;
        let data = at(&config.data, fs::canonicalize(&config.data))?;
        let nodes = data.join("nodes");
        let lock = lock(&nodes, &data)?;
        let kind = config.confinement.clone().unwrap_or_else(Kind::probe);
        at(&config.home, fs::create_dir_all(&config.home))?;
        let home = at(&config.home, fs::canonicalize(&config.home))?;
        let (own_uid, isolation) = isolation(&config, &data, &nodes, &home);
        let runtime = at(&data, runtime(&data))?;

        let mut report = vec![kind.describe(), isolation];
        let (cores, memory) = at(Path::new("/proc/meminfo"), proc::machine())?;
        report.push(format!(
            "machine: {cores} cores and {:.1} GiB stand behind the nominal sizes of all nodes",
            memory as f64 / f64::from(1 << 30)
        ));
        let gpus = gpus();
        if !gpus.is_empty() {
            report.push(format!("machine: {} GPUs, handed out by index", gpus.len()));
        }
        let declared = Declared {
            labels: config.labels,
            devices: config.devices,
            node_selector: config.node_selector,
        };
        let found = Found {
            cores,
            memory,
            gpus: gpus.len(),
        };
        let (cluster, lines) = embedded(declared, &found);
        report.extend(lines);

        let ground = Ground {
            nodes,
            socket_dir: data.clone(),
            exe: config.exe,
            group: format!(
                "{:08x}",
                crc32fast::hash(data.as_os_str().as_encoded_bytes())
            ),
            own_uid,
            confinement: kind,
        };
        let environments = Arc::new(Environments::new(home, runtime.clone(), own_uid));
        let means = Means {
            blobs: config.blobs,
            environments,
            runtime,
            variables: config.variables,
        };
        let hub = Hub::open(ground, means, gpus, cluster, bell);
        let hub = at(&data, hub)?;
        let shared = hub.shared();
        let thread = std::thread::Builder::new()
            .name("engine-hub".into())
            .spawn(move || {
                let run = std::panic::AssertUnwindSafe(|| hub.serve());
                if std::panic::catch_unwind(run).is_err() {
                    // A server whose engine stands still looks alive and does nothing; started again, it adopts all.
                    std::process::abort();
                }
            });
        let thread = at(&data, thread)?;
        shared.wait_settled();
        Ok(Local {
            shared,
            hub: Some(thread),
            report,
            _lock: lock,
        })
    }

    /// Takes every pod away with all that it runs, as a lost machine would; their tasks show it. Returns at once, with how
    /// many there are still, also of those whose task has ended.
    pub fn evict_pods(&self) -> usize {
        self.shared.evict_pods()
    }

    /// What is in force here: limits, isolation, and what stands behind nominal sizes. One line each.
    pub fn report(&self) -> Vec<String> {
        self.report.clone()
    }
}

impl Engine for Local {
    fn observe(&self) -> Observed {
        self.shared.observe()
    }
    fn apply(&self, actions: Vec<Action>) {
        self.shared.apply(actions);
    }
}

impl Drop for Local {
    /// The hub ends; agents and their tasks go on.
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(hub) = self.hub.take() {
            let _ = hub.join();
        }
    }
}

fn lock(nodes: &Path, data: &Path) -> Result<File, LocalError> {
    let path = nodes.join("lock");
    let file = at(
        &path,
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path),
    )?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LocalError::InUse(data.to_path_buf())),
        Err(e) => at(&path, Err(e.into())),
    }
}

/// Whether user processes get a uid of their own, and the line that says so.
fn isolation(config: &LocalConfig, data: &Path, nodes: &Path, home: &Path) -> (bool, String) {
    let same = |why: String| {
        let line = format!("isolation: user processes run as the server's own user: {why}");
        (false, line)
    };
    if config.own_uid == Some(false) {
        return same("it was asked for".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return same("the server is not root".to_owned());
    }
    if !uid::mapped() {
        return same(format!(
            "uids {} to {} are not mapped here",
            uid::FIRST,
            uid::FIRST + uid::COUNT
        ));
    }
    // A user process must reach its folder, its inputs and its Python; the data folder lets it through, not look.
    let blob = BlobPath::new("x").and_then(|x| config.blobs.local(&x));
    let root = blob.as_deref().and_then(Path::parent).unwrap_or(nodes);
    let own = root
        .ancestors()
        .take_while(|p| p.starts_with(data) && *p != data);
    for (folder, others) in [(data, 0o011), (nodes, 0o011)]
        .into_iter()
        .chain(own.map(|p| (p, 0o055)))
    {
        let wanted = 0o700 | others;
        if let Ok(meta) = fs::metadata(folder)
            && meta.mode() & 0o777 != wanted
            && let Err(e) = fs::set_permissions(folder, fs::Permissions::from_mode(wanted))
        {
            return same(format!("{}: {e}", folder.display()));
        }
    }
    for path in [nodes.join("x"), home.join("x"), root.join("x")] {
        if let Some(closed) = uid::first_closed(&path) {
            return same(format!("{} is closed to other users", closed.display()));
        }
    }
    let line = format!(
        "isolation: user processes of each node run under a uid of their own ({} to {})",
        uid::FIRST,
        uid::FIRST + uid::COUNT - 1
    );
    (true, line)
}

/// Writes what runs beside user code, readable to all.
fn runtime(data: &Path) -> io::Result<PathBuf> {
    let folder = data.join(format!("runtime/{:08x}", crc32fast::hash(BATCH.as_bytes())));
    fs::create_dir_all(&folder)?;
    for folder in [&data.join("runtime"), &folder] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    let put = |name: &str, text: &str| -> io::Result<()> {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        let beside = folder.join(format!(".{name}-{}", std::process::id()));
        fs::write(&beside, text)?;
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o644))?;
        fs::rename(beside, path)
    };
    put("batch.py", BATCH)?;
    Ok(folder)
}

/// GPUs of this machine by index.
fn gpus() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/dev") else {
        return Vec::new();
    };
    let mut out: Vec<u32> = entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.strip_prefix("nvidia")?.parse().ok())
        .collect();
    out.sort_unstable();
    out
}
