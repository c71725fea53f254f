//! Cages: limits on the processes of one task, and a way to end all of them.
//!
//! Three kinds, the best that the machine allows: cgroup v2; cgroup v1; rlimits with a watcher of resident memory. In v1 a
//! thread of the agent enters the groups and forks there, so a job costs no further process; in the others the launcher does it.
//!
//! C1 whatever a task starts dies with it: a child that calls setsid, forks twice or ignores SIGTERM too;
//! C2 a cage holds one task; a worker of a pool has a part of its own, so that its children can be ended apart;
//! C3 the agent itself is never in a cage: what the user does to it cannot stop the agent.

use crate::{launcher::Settings, proc};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Processes and threads of one task. A fork bomb ends here; a thread pool of numpy on every core of a large machine does not.
pub const MAX_PROCESSES: u64 = 4096;
/// How long the killed are waited for; after that they are stuck in the kernel and the cage is given up with a warning.
const DEATH: Duration = Duration::from_secs(10);
/// Period of CPU quotas, microseconds: the kernel's own default.
const PERIOD_US: u64 = 100_000;
/// Cores of this machine; asking again costs a dozen system calls.
static CORES: OnceLock<u64> = OnceLock::new();
/// Environment variable by which strays are found: node, task and worker.
pub const MARK: &str = "ZAFFRE_TASK_MARK";

/// How limits are enforced here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// One tree with memory, cpu, pids and `cgroup.kill`.
    V2 {
        /// A folder that delegates these controllers.
        base: PathBuf,
    },
    /// One tree per controller.
    V1 {
        /// Folder of our groups in each.
        memory: PathBuf,
        /// May be missing: then cores are not limited.
        cpu: Option<PathBuf>,
        /// May be missing: then processes are not limited.
        pids: Option<PathBuf>,
        /// What ends everything.
        freezer: PathBuf,
    },
    /// Limits of single processes, and a look at resident memory from time to time.
    Rlimits,
}

impl Kind {
    /// What is in force, for people.
    pub fn describe(&self) -> String {
        match self {
            Kind::V2 { base } => format!(
                "limits: cgroup v2 at {} (memory, cpu, pids, cgroup.kill)",
                base.display()
            ),
            Kind::V1 { cpu, pids, .. } => format!(
                "limits: cgroup v1 (memory, freezer{}{})",
                if cpu.is_some() { ", cpu" } else { "" },
                if pids.is_some() { ", pids" } else { "" }
            ),
            Kind::Rlimits => {
                "limits: no writable cgroup; rlimits and a watcher of resident memory (cores are not limited)"
                    .to_owned()
            }
        }
    }

    /// The best kind that can be used here. Makes the base folders.
    pub fn probe() -> Kind {
        v2().or_else(v1).unwrap_or(Kind::Rlimits)
    }
}

struct Mount {
    point: PathBuf,
    root: String,
    fstype: String,
    options: Vec<String>,
}

fn mounts() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let one = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        Some(Mount {
            point: PathBuf::from(left.get(4)?),
            root: (*left.get(3)?).to_owned(),
            fstype: (*right.first()?).to_owned(),
            options: right.get(2)?.split(',').map(str::to_owned).collect(),
        })
    };
    text.lines().filter_map(one).collect()
}

/// Our own group in the hierarchy that holds `controller`; the empty name is v2.
fn own_group(controller: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        names
            .split(',')
            .any(|n| n == controller)
            .then(|| path.to_owned())
    })
}

fn below(mount: &Mount, group: &str) -> PathBuf {
    let tail = if mount.root == "/" {
        group
    } else {
        group.strip_prefix(&mount.root).unwrap_or("")
    };
    mount.point.join(tail.trim_start_matches('/'))
}

fn v1() -> Option<Kind> {
    let mounts = mounts();
    let base = |controller: &str| {
        let mount = mounts
            .iter()
            .find(|m| m.fstype == "cgroup" && m.options.iter().any(|o| o == controller))?;
        let folder = below(mount, &own_group(controller)?).join("zaffre");
        match fs::create_dir(&folder) {
            Ok(()) => Some(folder),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Some(folder),
            Err(_) => None,
        }
        .filter(|f| writable(f))
    };
    Some(Kind::V1 {
        memory: base("memory")?,
        freezer: base("freezer")?,
        cpu: base("cpu"),
        pids: base("pids"),
    })
}

fn writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

fn v2() -> Option<Kind> {
    let mounts = mounts();
    let mount = mounts.iter().find(|m| m.fstype == "cgroup2")?;
    let own = below(mount, &own_group("")?);
    let has = fs::read_to_string(own.join("cgroup.controllers")).ok()?;
    let has: BTreeSet<&str> = has.split_ascii_whitespace().collect();
    if !["memory", "pids", "cpu"].iter().all(|c| has.contains(c)) || !writable(&own) {
        return None;
    }
    // A group with processes of its own cannot hand controllers on, so we step into a leaf first.
    let enable = || fs::write(own.join("cgroup.subtree_control"), "+memory +pids +cpu");
    if enable().is_err() {
        let leaf = own.join("zaffre-server");
        fs::create_dir_all(&leaf).ok()?;
        fs::write(leaf.join("cgroup.procs"), "0").ok()?;
        enable().ok()?;
    }
    let base = own.join("zaffre");
    fs::create_dir_all(&base).ok()?;
    fs::write(base.join("cgroup.subtree_control"), "+memory +pids +cpu").ok()?;
    Some(Kind::V2 { base })
}

/// What a cage needs to know.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How.
    pub kind: Kind,
    /// `server/node/task`: the folder of its groups, and its mark.
    pub name: String,
    /// Memory limit, 0 for none.
    pub memory: u64,
    /// Thousandths of a core, 0 for none.
    pub cpu: u64,
    /// The user and the group to become.
    pub user: Option<(u32, u32)>,
    /// Our own binary, for the launcher.
    pub exe: PathBuf,
}

/// The cage of one task.
#[derive(Debug)]
pub struct Cage {
    plan: Plan,
    /// What the kernel had killed in the container around us before.
    kills_before: u64,
}

fn counted(file: &Path, key: &str) -> u64 {
    fs::read_to_string(file)
        .ok()
        .and_then(|t| t.lines().find_map(|l| l.strip_prefix(key)?.parse().ok()))
        .unwrap_or(0)
}

/// Processes that the kernel has killed for memory in the container that we are in, where we are in one.
fn around() -> u64 {
    let files = [
        "/sys/fs/cgroup/memory.events",
        "/sys/fs/cgroup/memory/memory.oom_control",
    ];
    files
        .iter()
        .map(|file| counted(Path::new(file), "oom_kill "))
        .sum()
}

impl Cage {
    /// Makes the groups with their limits.
    pub fn make(plan: Plan) -> io::Result<Cage> {
        let mut cage = Cage {
            plan,
            kills_before: around(),
        };
        let cores = CORES
            .get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64));
        // A quota above what the machine has limits nothing, and every level of cpu groups costs time at each wake-up.
        if cage.plan.cpu >= cores * 1000 {
            cage.plan.cpu = 0;
        }
        if let Kind::V1 { cpu, .. } = &mut cage.plan.kind
            && cage.plan.cpu == 0
        {
            *cpu = None;
        }
        for folder in cage.folders() {
            // The server's folder goes with its last node, perhaps this moment: then it is made again.
            fs::create_dir_all(&folder).or_else(|_| fs::create_dir_all(&folder))?;
        }
        let Plan {
            name, memory, cpu, ..
        } = &cage.plan;
        let quota = (*cpu > 0).then(|| cpu * PERIOD_US / 1000);
        match &cage.plan.kind {
            Kind::V1 {
                memory: m,
                cpu: c,
                pids: p,
                ..
            } => {
                if *memory > 0 {
                    let m = m.join(name);
                    fs::write(m.join("memory.limit_in_bytes"), memory.to_string())?;
                    // Without swap accounting this file is missing, and then there is nothing to limit.
                    let _ = fs::write(m.join("memory.memsw.limit_in_bytes"), memory.to_string());
                }
                if let (Some(c), Some(quota)) = (c, quota) {
                    fs::write(
                        c.join(name).join("cpu.cfs_period_us"),
                        PERIOD_US.to_string(),
                    )?;
                    fs::write(c.join(name).join("cpu.cfs_quota_us"), quota.to_string())?;
                }
                if let Some(p) = p {
                    fs::write(p.join(name).join("pids.max"), MAX_PROCESSES.to_string())?;
                }
            }
            Kind::V2 { base } => {
                let folder = base.join(name);
                // Controllers are handed down level by level; the task's own level keeps them for its parts.
                for above in name.match_indices('/').map(|(at, _)| &name[..at]) {
                    fs::write(
                        base.join(above).join("cgroup.subtree_control"),
                        "+memory +pids +cpu",
                    )?;
                }
                if *memory > 0 {
                    fs::write(folder.join("memory.max"), memory.to_string())?;
                    let _ = fs::write(folder.join("memory.swap.max"), "0");
                }
                if let Some(quota) = quota {
                    fs::write(folder.join("cpu.max"), format!("{quota} {PERIOD_US}"))?;
                }
                fs::write(folder.join("pids.max"), MAX_PROCESSES.to_string())?;
            }
            Kind::Rlimits => {}
        }
        Ok(cage)
    }

    fn folders(&self) -> Vec<PathBuf> {
        folders(&self.plan.kind, &self.plan.name)
    }

    /// The mark that its processes carry.
    pub fn mark(&self, part: &str) -> String {
        format!("{}/{part}", self.plan.name)
    }

    /// Its memory limit in bytes, 0 for none.
    pub fn memory(&self) -> u64 {
        self.plan.memory
    }

    /// Starts `program` inside, as the task's user. Blocks for the fork; call it from a helper thread.
    ///
    /// `prepare` gets the command with program and arguments set and adds environment, folder and descriptors.
    pub fn spawn(
        &self,
        part: &str,
        program: &Path,
        args: &[String],
        prepare: impl FnOnce(&mut Command) + Send,
    ) -> io::Result<Child> {
        let mut command = match &self.plan.kind {
            Kind::V1 { .. } => {
                let mut command = Command::new(program);
                command.args(args);
                if let Some((uid, gid)) = self.plan.user {
                    command.uid(uid).gid(gid);
                }
                command
            }
            Kind::V2 { .. } | Kind::Rlimits => {
                let cgroup = match &self.plan.kind {
                    Kind::V2 { base } => {
                        let folder = base.join(&self.plan.name).join(part);
                        fs::create_dir_all(&folder)?;
                        Some(folder)
                    }
                    Kind::V1 { .. } | Kind::Rlimits => None,
                };
                let settings = Settings {
                    cgroup,
                    user: self.plan.user,
                    // Counted per user: only where the user is the task's own.
                    processes: self.plan.user.map(|_| MAX_PROCESSES),
                };
                let mut command = Command::new(&self.plan.exe);
                command
                    .arg("agent-exec")
                    .arg(serde_json::to_string(&settings)?)
                    .arg(program)
                    .args(args);
                command
            }
        };
        command.process_group(0);
        prepare(&mut command);
        command.env(MARK, self.mark(part));
        self.fork(part, command)
    }

    /// In v1 the forking thread stands in the groups; it ends right after, so it never leaves them (C3).
    fn fork(&self, part: &str, mut command: Command) -> io::Result<Child> {
        let Kind::V1 {
            memory,
            cpu,
            pids,
            freezer,
        } = &self.plan.kind
        else {
            return command.spawn();
        };
        let name = &self.plan.name;
        let cell = freezer.join(name).join(part);
        fs::create_dir_all(&cell)?;
        let mut groups = vec![memory.join(name), cell];
        groups.extend(pids.iter().map(|p| p.join(name)));
        groups.extend(cpu.iter().map(|c| c.join(name)));
        let enter = move || -> io::Result<Child> {
            for group in &groups {
                fs::write(group.join("tasks"), "0")?;
            }
            rustix::thread::set_no_new_privs(true)?;
            command.spawn()
        };
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("fork".into())
                .spawn_scoped(scope, enter)?
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the forking thread panicked")))
        })
    }

    /// Processes of this task that the kernel has killed for memory so far.
    pub fn oom_kills(&self) -> u64 {
        let (file, key) = match &self.plan.kind {
            Kind::V1 { memory, .. } => (
                memory.join(&self.plan.name).join("memory.oom_control"),
                "oom_kill ",
            ),
            Kind::V2 { base } => (
                base.join(&self.plan.name).join("memory.events"),
                "oom_kill ",
            ),
            Kind::Rlimits => return around().saturating_sub(self.kills_before),
        };
        counted(&file, key)
    }

    /// Whether resident memory has to be watched from outside.
    pub fn needs_watcher(&self) -> bool {
        self.plan.kind == Kind::Rlimits && self.plan.memory > 0
    }

    /// Ends one part (a worker and everything it started), and waits until it is gone. `leader` is its first process.
    pub fn kill_part(&self, part: &str, leader: u32) {
        match &self.plan.kind {
            Kind::V1 { freezer, .. } => {
                let cell = freezer.join(&self.plan.name).join(part);
                end(|| freeze_and_kill(&cell));
                let _ = fs::remove_dir(&cell);
            }
            Kind::V2 { base } => {
                let cell = base.join(&self.plan.name).join(part);
                end(|| kill_v2(&cell));
                let _ = fs::remove_dir(&cell);
            }
            Kind::Rlimits => {
                let mark = self.mark(part);
                end(|| {
                    let mut all = proc::descendants(leader);
                    if proc::stat(leader).is_some_and(|s| s.alive()) {
                        all.insert(leader);
                    }
                    all.extend(proc::marked(MARK, &mark));
                    kill_all(&all)
                });
            }
        }
    }

    /// Ends everything of the task and waits until it is gone (C1), then removes its groups. Those of its node stay: the next
    /// task needs them, and a group costs more than a process.
    pub fn kill(&self) {
        kill_group_tree(&self.plan.kind, &self.plan.name);
        if self.plan.kind == Kind::Rlimits {
            // The agent is the reaper of orphans, so whatever the task left behind is a descendant of ours.
            end(|| kill_all(&proc::descendants(std::process::id())));
        }
        for folder in folders(&self.plan.kind, &self.plan.name) {
            remove_below(&folder);
        }
    }
}

fn folders(kind: &Kind, name: &str) -> Vec<PathBuf> {
    match kind {
        Kind::V1 {
            memory,
            cpu,
            pids,
            freezer,
        } => [Some(memory), cpu.as_ref(), pids.as_ref(), Some(freezer)]
            .into_iter()
            .flatten()
            .map(|b| b.join(name))
            .collect(),
        Kind::V2 { base } => vec![base.join(name)],
        Kind::Rlimits => Vec::new(),
    }
}

/// Ends everything below the group `name` (a task, a node or a whole server), whoever made it.
pub fn kill_group_tree(kind: &Kind, name: &str) {
    match kind {
        Kind::V1 { freezer, .. } => {
            let top = freezer.join(name);
            end(|| {
                let mut left = 0;
                for cell in tree(&top) {
                    left += freeze_and_kill(&cell);
                }
                left
            });
        }
        Kind::V2 { base } => end(|| kill_v2(&base.join(name))),
        Kind::Rlimits => {}
    }
    if *kind == Kind::Rlimits {
        end(|| kill_all(&proc::marked(MARK, &format!("{name}/"))));
    }
}

/// Removes the groups below `name`, and those above it that hold nothing else; what is in use stays for the next sweep.
pub fn remove_tree(kind: &Kind, name: &str) {
    for folder in folders(kind, name) {
        remove_below(&folder);
        for above in folder.ancestors().skip(1).take(name.matches('/').count()) {
            if fs::remove_dir(above).is_err() {
                break; // others are in it
            }
        }
    }
}

/// Removes a group and those below it.
fn remove_below(folder: &Path) {
    for cell in tree(folder).into_iter().rev() {
        let _ = fs::remove_dir(cell);
    }
}

/// A folder and all below it, parents first.
fn tree(top: &Path) -> Vec<PathBuf> {
    let mut out = vec![top.to_path_buf()];
    let mut at = 0;
    while at < out.len() {
        if let Ok(entries) = fs::read_dir(&out[at]) {
            out.extend(
                entries
                    .flatten()
                    .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
                    .map(|e| e.path()),
            );
        }
        at += 1;
    }
    out
}

/// Repeats `round` until it says that nothing is left. The kernel tells nobody when a group is empty, so this looks again.
fn end(mut round: impl FnMut() -> usize) {
    let limit = Instant::now() + DEATH;
    let mut pause = Duration::from_micros(200);
    while round() > 0 {
        if Instant::now() > limit {
            tracing::warn!("processes did not end {DEATH:?} after SIGKILL");
            return;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn members(cell: &Path) -> Vec<u32> {
    let own = std::process::id();
    fs::read_to_string(cell.join("cgroup.procs"))
        .map(|t| {
            t.lines()
                .filter_map(|l| l.parse().ok())
                .filter(|pid| *pid != own) // a thread of ours that is forking a neighbour (C3)
                .collect()
        })
        .unwrap_or_default()
}

/// Frozen processes cannot fork away from the list; SIGKILL takes effect when they thaw.
fn freeze_and_kill(cell: &Path) -> usize {
    if members(cell).is_empty() {
        return 0;
    }
    let state = cell.join("freezer.state");
    let _ = fs::write(&state, "FROZEN");
    let pids = members(cell);
    for pid in &pids {
        proc::kill(*pid, Signal::KILL);
    }
    let _ = fs::write(&state, "THAWED");
    pids.len()
}

fn kill_v2(cell: &Path) -> usize {
    let left: usize = tree(cell).iter().map(|c| members(c).len()).sum();
    if left > 0 {
        let _ = fs::write(cell.join("cgroup.kill"), "1");
    }
    left
}

fn kill_all(pids: &BTreeSet<u32>) -> usize {
    for pid in pids {
        proc::kill(*pid, Signal::KILL);
    }
    pids.len()
}

/// Resident bytes of a process and its descendants.
pub fn resident(leader: u32) -> u64 {
    let page = rustix::param::page_size() as u64;
    let mut all = proc::descendants(leader);
    all.insert(leader);
    all.iter()
        .filter_map(|pid| proc::stat(*pid))
        .map(|s| s.rss_pages * page)
        .sum()
}
