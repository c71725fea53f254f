//! An agent that is elsewhere: in a pod, whose image is the environment and whose files come through a mirror.
//!
//! O1 it lives as long as its pod: there is no folder that a server could take from it, and no process that adopts it;
//! O2 one with a task of its own ends when that is forgotten, with the exit code that the program had;
//! O3 the user's program gets the variables of the image, and none of ours.

use super::{Agent, Helpers, News, task};
use crate::{
    confine::Kind,
    local::BATCH,
    mirror::{Fetcher, Mirror, Plan, Pusher},
    protocol::{Elsewhere, NodeConfig, Order, Pool, Role, Work},
    record,
};
use model::NodeId;
use port::listing;
use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

/// Variables of the container that are not the image's.
const NOT_THE_IMAGES: [&str; 4] = ["PATH", "HOME", "HOSTNAME", "PWD"];
/// Bytes of an installer's output that a message quotes.
const QUOTE: usize = 2000;

/// The agent of a pod, before it serves.
pub struct Pod(Agent);

/// Tells an agent that its pod ends.
pub struct Notice(Arc<Helpers>);

impl Notice {
    /// It ends within this.
    pub fn give(&self, within: Duration) {
        self.0.push(News::Notice { within });
    }
}

impl Pod {
    /// The agent of `node` in the folder `dir`, where its sockets will be.
    /// `whole`: it is a node, and takes any task.
    pub fn new(dir: &Path, node: NodeId, whole: bool) -> io::Result<Pod> {
        fs::create_dir_all(dir)?;
        let elsewhere = Elsewhere {
            path: std::env::var("PATH").unwrap_or_default(),
            node: whole,
        };
        let config = NodeConfig {
            node,
            role: Role::Elsewhere(Box::new(elsewhere)),
            gpus: Vec::new(),
            socket_dir: dir.to_owned(),
            own_uid: false,
            confinement: Kind::Rlimits, // the pod is the cage; what is left to do is to see who grows too large
            group: "pod".to_owned(),
        };
        record::write_config(dir, &config)?;
        Ok(Pod(Agent::boot(dir)?))
    }

    /// What tells it that the pod ends.
    pub fn notice(&self) -> Notice {
        Notice(self.0.helpers.clone())
    }

    /// Serves until the task is forgotten (O2).
    pub fn serve(self) -> io::Result<ExitCode> {
        let code = self.0.serve()?;
        Ok(ExitCode::from(code))
    }
}

/// The file in the agent's folder with the authorities that the image trusts and the server's: where there is one, tasks are told.
pub const AUTHORITIES: &str = "ca-bundle.pem";

/// Brings what a task needs, and begins to bring back what it writes.
pub fn bring(
    ground: &task::Ground,
    plan: Plan,
    order: &mut Order,
    tell: &dyn Fn(&str),
) -> Result<Arc<Pusher>, String> {
    let requirements = plan.requirements.clone();
    if let Work::Pool(pool) = &mut order.work {
        pool.runtime = runtime(&ground.dir).map_err(|e| format!("batch.py: {e}"))?;
    }
    let mut mirror = Mirror::new(plan, &ground.config.socket_dir);
    mirror.fetch(tell)?;
    if let Work::Pool(pool) = &order.work {
        // an argument of the script may name it before its first file has come
        fs::create_dir_all(&pool.root).map_err(|e| format!("input: {e}"))?;
    }
    let image = std::env::vars()
        .filter(|(k, _)| !NOT_THE_IMAGES.contains(&k.as_str()) && !k.starts_with("ZAFFRE_"));
    let given = std::mem::take(&mut order.server_variables);
    order.server_variables = image.chain(given).collect(); // O3; ours win
    let authorities = ground.dir.join(AUTHORITIES);
    if authorities.exists() {
        let trusted = authorities.to_string_lossy().into_owned();
        let variable = ("REQUESTS_CA_BUNDLE".to_owned(), trusted);
        order.server_variables.push(variable);
    }
    let python = find(["python3", "python"]);
    if requirements.is_empty() {
        // Without one the command may still be anything else.
        order.python = python.unwrap_or_else(|| "/usr/bin/python3".into());
    } else {
        let python = python.ok_or_else(|| {
            format!(
                "packages cannot be installed: the image has no Python ({})",
                requirements.join(", ")
            )
        })?;
        tell("installing packages");
        order.python = install(&python, &ground.dir.join("venv"), &requirements)?;
    }
    Pusher::start(mirror)
        .map(Arc::new)
        .map_err(|e| format!("files cannot be brought back: {e}"))
}

/// Writes what runs beside user code.
fn runtime(dir: &Path) -> io::Result<PathBuf> {
    let path = dir.join("batch.py");
    fs::write(&path, BATCH)?;
    Ok(path)
}

/// Brings the input of these mini-batches: the files that the listing names for them.
pub fn bring_input(
    fetcher: &mut Fetcher,
    pool: &Pool,
    root: &str,
    spans: &[(u32, u32)],
    given_up: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut listing = listing::Reader::new(io::BufReader::new(fs::File::open(&pool.listing)?))?;
    let group = u64::from(pool.group.max(1));
    let mut paths = Vec::new();
    for (start, end) in spans {
        let items = u64::from(*start) * group..(u64::from(*end) * group).min(listing.count());
        for item in items {
            // A name that is no text cannot be asked for; `run()` finds nothing there, and says so.
            if let Ok(path) = String::from_utf8(listing.path(item)?) {
                paths.push(format!("{root}/{path}"));
            }
        }
    }
    fetcher.bring(&paths, given_up)
}

/// The first of these programs on the image's path.
fn find<const N: usize>(names: [&str; N]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|at| at.is_file())
}

/// A virtual environment on top of the image's packages, with these. Returns its Python.
fn install(python: &Path, venv: &Path, requirements: &[String]) -> Result<PathBuf, String> {
    let own = venv.join("bin/python");
    if !own.exists() {
        let words = [
            OsStr::new("-m"),
            "venv".as_ref(),
            "--system-site-packages".as_ref(),
            venv.as_os_str(),
        ];
        run(Command::new(python).args(words), venv)?;
    }
    let list = venv.join("requirements.txt");
    fs::write(&list, requirements.join("\n")).map_err(|e| format!("{}: {e}", list.display()))?;
    let words = [
        "-m",
        "pip",
        "install",
        "--no-input",
        "--disable-pip-version-check",
        "-r",
    ];
    run(Command::new(&own).args(words).arg(&list), venv)?;
    Ok(own)
}

fn run(command: &mut Command, home: &Path) -> Result<(), String> {
    let what = format!("{command:?}");
    let done = command
        .env("HOME", home)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("packages cannot be installed: {what}: {e}"))?;
    if done.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&done.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&done.stderr));
    let text = text.trim();
    let mut from = text.len().saturating_sub(QUOTE);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    Err(format!(
        "packages cannot be installed: {what}: {}\n{}",
        done.status,
        &text[from..]
    ))
}
