//! The agent: one process per node that runs its tasks. It outlives the server and is adopted by the next one.
//!
//! One thread, one poll loop; whatever waits for a disk or for a process to die runs on helper threads and sends `News`.
//!
//! A1 the agent never waits for the server: results pile up to a limit, then workers pause;
//! A2 a task is held from the moment `Start` arrives until `Forget`; both may come twice;
//! A3 what the agent reports is complete: after `Told` the server knows every task, lend and parcel.

pub mod link;

mod command;
mod logs;
mod outbox;
mod outputs;
mod pod;
mod pool;
mod site;
mod task;
mod worker;

use crate::mirror::{Fetcher, Pusher};
use crate::{
    proc,
    protocol::{self, Down, NodeConfig, Up, VERSION},
    record::{self, AgentRecord, CONFIG},
    uid,
};
use link::Link;
use model::TaskId;
pub use pod::{AUTHORITIES, Notice, Pod};
use rustix::{
    event::{EventfdFlags, Timespec, epoll, eventfd},
    process::{Resource, Rlimit, getpid, getrlimit, set_child_subreaper, setrlimit},
};
pub use site::folder_name;
use site::{Launched, Site};
use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fs,
    io::{self, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use task::Task;

/// How often the server hears from an agent at least. It gives up after two seconds of silence.
pub const BEAT: Duration = Duration::from_millis(500);
/// How a container ends whose pod is taken: as one that SIGTERM has ended.
const TAKEN: u8 = 143;
/// How often orphans of the tasks are looked for and reaped.
const REAP: Duration = Duration::from_secs(5);
/// Bytes read at once.
const BUFFER: usize = 64 << 10;
/// Events taken from the kernel at once.
const EVENTS: usize = 64;

// What a descriptor in the loop is; the upper eight bits of a token.
const LINK: u64 = 1;
const WAKE: u64 = 2;
const PROGRAM: u64 = 3;
const LOG: u64 = 4;
const CHANNEL: u64 = 5;
const WORKER: u64 = 6;
const OUT: u64 = 7;
const ERR: u64 = 8;

/// Kind, task and worker in one number.
fn token(kind: u64, slot: u32, number: u32) -> u64 {
    kind << 56 | u64::from(slot) << 32 | u64::from(number)
}

/// What a helper thread has done.
enum News {
    Nothing,
    Telling {
        slot: u32,
        what: String,
    },
    Staged {
        slot: u32,
        result: Result<Box<Staged>, String>,
    },
    Worker {
        slot: u32,
        number: u32,
        launched: Result<Launched, String>,
    },
    WorkerGone {
        slot: u32,
        number: u32,
    },
    Synced {
        slot: u32,
    },
    Ended {
        slot: u32,
        notes: Vec<String>,
    },
    /// The input of these indices is here.
    Brought {
        slot: u32,
        spans: Vec<(u32, u32)>,
        fetcher: Box<Fetcher>,
        failed: Option<String>,
    },
    /// The files of all results up to this parcel are with the server.
    Settled {
        slot: u32,
        seq: u64,
    },
    /// Everything is with the server.
    Pushed {
        slot: u32,
    },
    /// Our pod is told to end.
    Notice {
        within: Duration,
    },
    Removed {
        task: TaskId,
    },
}

/// A task whose place is ready; the processes of a command are started already.
struct Staged {
    pusher: Option<Arc<Pusher>>,
    site: Arc<Site>,
    command: Option<Vec<(Launched, logs::LogFile)>>,
}

/// Helper threads and what they have to tell.
struct Helpers {
    wake: OwnedFd,
    news: Mutex<VecDeque<News>>,
}

impl Helpers {
    fn push(&self, news: News) {
        self.news
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(news);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
    fn take(&self) -> VecDeque<News> {
        let mut eight = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut eight);
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs work beside the loop. Their number is bounded by what asks for them: a few per task and worker.
trait Run {
    fn run(&self, work: impl FnOnce() -> News + Send + 'static);
}
impl Run for Arc<Helpers> {
    fn run(&self, work: impl FnOnce() -> News + Send + 'static) {
        let own = self.clone();
        let started = std::thread::Builder::new()
            .name("helper".into())
            .spawn(move || {
                match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                    Ok(news) => own.push(news),
                    // Whoever waits for these news would wait for ever: a lost node is better than a stuck task.
                    Err(_) => std::process::abort(),
                }
            });
        if let Err(e) = started {
            // Without threads nothing can be started or ended here: the node is of no use, and says so by going.
            panic!("no helper thread can be started: {e}");
        }
    }
}

/// What handlers need of the agent.
struct Context<'a> {
    epoll: &'a OwnedFd,
    news: &'a Arc<Helpers>,
    now: Instant,
    buffer: &'a mut [u8],
}

struct Agent {
    dir: PathBuf,
    config: NodeConfig,
    exe: PathBuf,
    uid: Option<uid::Claim>,
    pid: u32,
    start: u64,
    epoll: OwnedFd,
    helpers: Arc<Helpers>,
    link: Link,
    link_writes: bool,
    tasks: BTreeMap<u32, Task>,
    slots: BTreeMap<TaskId, u32>,
    next_slot: u32,
    notice: Option<Instant>,
    leaving: bool,
    heard: Instant,
    next_reap: Instant,
    /// How the last task ended that was forgotten.
    last_exit: u8,
}

/// Runs an agent; `args` are those after `agent`: `--dir NODE_DIR`.
pub fn main(args: &[OsString]) -> ExitCode {
    // Said on the agent's own log by hand: the server quotes it when a node does not come up.
    let say = |text: String| {
        let _ = writeln!(io::stderr(), "zaffre agent: {text}");
    };
    let [flag, dir] = args else {
        say("usage: zaffre agent --dir NODE_DIR".to_owned());
        return ExitCode::from(2);
    };
    if flag != "--dir" {
        say(format!("unknown flag {}", flag.display()));
        return ExitCode::from(2);
    }
    if let Some(e) = close_inherited(args) {
        say(format!("inherited descriptors cannot be closed: {e}"));
        return ExitCode::FAILURE;
    }
    match Agent::boot(Path::new(dir)).and_then(Agent::serve) {
        Ok(_) => ExitCode::SUCCESS,
        Err(e) => {
            say(e.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Descriptors that whoever started the server left open would reach user code. There is no safe call that closes a
/// descriptor by its number, so a shell does it and becomes this program again. `None`: there are none.
fn close_inherited(args: &[OsString]) -> Option<io::Error> {
    let open = || -> io::Result<Vec<u32>> {
        let mut out = Vec::new();
        for entry in fs::read_dir("/proc/self/fd")? {
            let name = entry?.file_name();
            if let Some(fd) = name.to_str().and_then(|n| n.parse::<u32>().ok())
                && fd > 2
            {
                // Ours (the folder just read) closes with exec; bit 02000000 says so.
                let info =
                    fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
                let flags = info
                    .lines()
                    .find_map(|l| l.strip_prefix("flags:"))
                    .and_then(|f| u32::from_str_radix(f.trim(), 8).ok());
                if flags.is_some_and(|f| f & 0o2_000_000 == 0) {
                    out.push(fd);
                }
            }
        }
        Ok(out)
    };
    let fds = match open() {
        Ok(fds) if fds.is_empty() => return None,
        Ok(fds) => fds,
        Err(e) => return Some(e),
    };
    let closes: Vec<String> = fds.iter().map(|fd| format!("{fd}>&-")).collect();
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(e) => return Some(e),
    };
    let error = Command::new("bash")
        .arg("-c")
        .arg(format!("exec {}; exec \"$@\"", closes.join(" ")))
        .arg("bash")
        .arg(exe)
        .arg("agent")
        .args(args)
        .exec();
    Some(error)
}

impl Agent {
    fn boot(dir: &Path) -> io::Result<Agent> {
        // Of its own session already when a shell started it as a leader: then there is nothing to do.
        let _ = rustix::process::setsid();
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let config: NodeConfig = serde_json::from_slice(&fs::read(dir.join(CONFIG))?)?;
        let pid = std::process::id();
        let start =
            proc::start_of(pid).ok_or_else(|| io::Error::other("/proc does not show us"))?;
        let mut own = AgentRecord {
            pid,
            start,
            uid: None,
        };
        record::write_agent(dir, &own)?;
        set_child_subreaper(Some(getpid()))?;
        limits()?;
        let uid = if config.own_uid {
            let seed = crc32fast::hash(config.node.to_string().as_bytes());
            let claim = uid::claim(seed)?;
            own.uid = Some(claim.uid);
            record::write_agent(dir, &own)?;
            Some(claim)
        } else {
            None
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let data = epoll::EventData::new_u64(token(WAKE, 0, 0));
        epoll::add(&epoll, &wake, data, epoll::EventFlags::IN)?;
        let now = Instant::now();
        Ok(Agent {
            dir: dir.to_path_buf(),
            link: Link::new(config.socket_dir.clone()),
            config,
            exe: std::env::current_exe()?,
            uid,
            pid,
            start,
            epoll,
            helpers: Arc::new(Helpers {
                wake,
                news: Mutex::default(),
            }),
            link_writes: false,
            tasks: BTreeMap::new(),
            slots: BTreeMap::new(),
            next_slot: 1,
            notice: None,
            leaving: false,
            heard: now,
            next_reap: now + REAP,
            last_exit: 0,
        })
    }

    /// Returns how its last task ended, as an exit code.
    fn serve(mut self) -> io::Result<u8> {
        let mut buffer = vec![0; BUFFER];
        let mut events = Vec::with_capacity(EVENTS);
        while !self.leaving {
            // A folder that is gone means that a server has given this node up.
            if self.link.next_try().is_some() && !self.dir.join(CONFIG).exists() {
                break;
            }
            let now = Instant::now();
            if self.link.connect(now) {
                self.greet(now)?;
                self.speak(now);
            }
            let wait = self
                .due(now)
                .map(|due| Timespec::try_from(due.saturating_duration_since(now)))
                .transpose()
                .map_err(io::Error::other)?;
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                wait.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let now = Instant::now();
            for event in &events {
                let data = event.data;
                self.event(data.u64(), now, &mut buffer);
            }
            self.on_time(now, &mut buffer);
            self.speak(now);
        }
        // `Gone` may be on its way still.
        let _ = self.link.flush();
        self.end_all();
        Ok(self.last_exit)
    }

    fn due(&self, now: Instant) -> Option<Instant> {
        let tasks = self.tasks.values().filter_map(|task| task.due(now));
        let link = self.link.next_try().unwrap_or(self.heard + BEAT);
        let reap = (!self.tasks.is_empty()).then_some(self.next_reap);
        tasks
            .chain([link])
            .chain(reap)
            .min()
            .map(|due| due.max(now))
    }

    fn event(&mut self, data: u64, now: Instant, buffer: &mut [u8]) {
        let (kind, slot, number) = (data >> 56, data >> 32 & 0xff_ffff, data & 0xffff_ffff);
        match kind {
            LINK => self.hear(now, buffer),
            WAKE => {
                for news in self.helpers.take() {
                    self.news(news, now, buffer);
                }
            }
            _ => {
                let slot = u32::try_from(slot).expect("24 bits");
                let number = u32::try_from(number).expect("32 bits");
                let mut cx = Context {
                    epoll: &self.epoll,
                    news: &self.helpers,
                    now,
                    buffer,
                };
                if let Some(task) = self.tasks.get_mut(&slot) {
                    task.event(kind, number, &mut cx);
                }
            }
        }
    }

    fn greet(&mut self, now: Instant) -> io::Result<()> {
        let Some(stream) = self.link.stream() else {
            return Ok(());
        };
        let data = epoll::EventData::new_u64(token(LINK, 0, 0));
        epoll::add(&self.epoll, stream, data, epoll::EventFlags::IN)?;
        self.link_writes = false;
        let hello = Up::Hello {
            version: VERSION,
            node: self.config.node.clone(),
            pid: self.pid,
            start: self.start,
            tasks: self
                .tasks
                .values_mut()
                .map(|t| t.report_whole(now))
                .collect(),
            notice_ms: self.notice.map(|n| {
                u64::try_from(n.saturating_duration_since(now).as_millis()).unwrap_or(u64::MAX)
            }),
        };
        let Some(out) = self.link.out() else {
            return Ok(());
        };
        protocol::write(out, &hello);
        for task in self.tasks.values_mut() {
            task.write_parcels(now, out);
        }
        protocol::write(out, &Up::Told);
        self.heard = now;
        Ok(())
    }

    fn hear(&mut self, now: Instant, buffer: &mut [u8]) {
        let mut heard = Vec::new();
        let mut read = || -> io::Result<()> {
            let frames = self.link.fill(buffer)?;
            while let Some(body) = frames.take()? {
                heard.push(protocol::read_down(body)?);
            }
            Ok(())
        };
        let over = read().is_err();
        for message in heard {
            self.obey(message, now, buffer);
        }
        if over || self.link.flush().is_err() {
            self.link.close(now);
        }
    }

    fn obey(&mut self, message: Down, now: Instant, buffer: &mut [u8]) {
        let mut cx = Context {
            epoll: &self.epoll,
            news: &self.helpers,
            now,
            buffer,
        };
        let slot = |task: &TaskId| self.slots.get(task).copied();
        match message {
            Down::Welcome => {}
            Down::Start { task, held } => {
                if slot(&task).is_none() {
                    let slot = self.next_slot;
                    // 24 bits of a token; a node that has run so many tasks begins again at numbers long free.
                    self.next_slot = if slot >= 0xff_fff0 { 1 } else { slot + 1 };
                    self.slots.insert(task.clone(), slot);
                    let node = self.config.node.to_string();
                    let mut task = Task::new(task, slot, held, node);
                    if self.notice.is_some() {
                        task.notice(&mut cx);
                    }
                    self.tasks.insert(slot, task);
                }
            }
            Down::Preparing { task, what } => {
                if let Some(task) = slot(&task).and_then(|s| self.tasks.get_mut(&s)) {
                    task.preparing(&what);
                }
            }
            Down::Go { task, order } => {
                if let Some(task) = slot(&task).and_then(|s| self.tasks.get_mut(&s)) {
                    let ground = task::Ground {
                        dir: self.dir.clone(),
                        config: self.config.clone(),
                        exe: self.exe.clone(),
                        uid: self.uid.as_ref().map(|u| u.uid),
                    };
                    task.go(*order, ground, &mut cx);
                }
            }
            Down::Refuse { task, message } => {
                if let Some(task) = slot(&task).and_then(|s| self.tasks.get_mut(&s)) {
                    task.refuse(message);
                }
            }
            Down::Stop(task) => {
                if let Some(task) = slot(&task).and_then(|s| self.tasks.get_mut(&s)) {
                    task.stop(&mut cx);
                }
            }
            Down::Lend(task, number, ranges) => {
                if let Some(task) = slot(&task).and_then(|s| self.tasks.get_mut(&s)) {
                    task.lend(number, &ranges, now);
                }
            }
            Down::Ack(task, seq) => {
                if let Some(task) = slot(&task).and_then(|s| self.tasks.get_mut(&s)) {
                    task.ack(seq, now);
                }
            }
            Down::Forget(task) => self.forget(&task),
            Down::Notice { in_ms } => self.noticed(Duration::from_millis(in_ms), now, buffer),
            Down::Mirror { task, plan } => {
                if let Some(task) = slot(&task).and_then(|s| self.tasks.get_mut(&s)) {
                    task.mirror(*plan);
                }
            }
            Down::Leave => self.leaving = true,
        }
    }

    /// We are taken away within so long.
    fn noticed(&mut self, within: Duration, now: Instant, buffer: &mut [u8]) {
        let mut cx = Context {
            epoll: &self.epoll,
            news: &self.helpers,
            now,
            buffer,
        };
        self.notice = Some(now + within);
        for task in self.tasks.values_mut() {
            task.notice(&mut cx);
        }
    }

    /// Drops an exited task. One that still runs is not forgotten: its end would be lost.
    fn forget(&mut self, task: &TaskId) {
        let Some(slot) = self.slots.get(task).copied() else {
            // Forgotten before: the answer got lost.
            if let Some(out) = self.link.out() {
                protocol::write(out, &Up::Gone(task.clone()));
            }
            return;
        };
        if !self.tasks.get(&slot).is_some_and(Task::exited) {
            return;
        }
        if let Some(task) = self.tasks.remove(&slot) {
            self.last_exit = task.exit_code();
        }
        self.slots.remove(task);
        let name = folder_name(task);
        let folders = ["tasks", "mirror"].map(|own| self.dir.join(own).join(&name));
        let task = task.clone();
        self.helpers.run(move || {
            for folder in folders {
                if let Err(e) = fs::remove_dir_all(&folder)
                    && e.kind() != io::ErrorKind::NotFound
                {
                    tracing::warn!("{}: {e}", folder.display());
                }
            }
            News::Removed { task }
        });
    }

    fn news(&mut self, news: News, now: Instant, buffer: &mut [u8]) {
        if let News::Removed { task } = news {
            if let Some(out) = self.link.out() {
                protocol::write(out, &Up::Gone(task));
            }
            // The agent of one task has nothing else to do.
            self.leaving |= self.config.role.has_one_task() && self.tasks.is_empty();
            return;
        }
        let slot = match &news {
            News::Nothing | News::Removed { .. } => return,
            News::Notice { within } => {
                let within = *within;
                return self.noticed(within, now, buffer);
            }
            News::Telling { slot, .. }
            | News::Staged { slot, .. }
            | News::Worker { slot, .. }
            | News::WorkerGone { slot, .. }
            | News::Synced { slot }
            | News::Pushed { slot }
            | News::Settled { slot, .. }
            | News::Brought { slot, .. }
            | News::Ended { slot, .. } => *slot,
        };
        let mut cx = Context {
            epoll: &self.epoll,
            news: &self.helpers,
            now,
            buffer,
        };
        if let Some(task) = self.tasks.get_mut(&slot) {
            task.news(news, &mut cx);
        }
    }

    fn on_time(&mut self, now: Instant, buffer: &mut [u8]) {
        let mut cx = Context {
            epoll: &self.epoll,
            news: &self.helpers,
            now,
            buffer,
        };
        for task in self.tasks.values_mut() {
            task.on_time(&mut cx);
        }
        // A pod that is taken ends as soon as what it ran has ended: nobody waits for its grace to pass.
        let idle = !self.tasks.is_empty() || !self.config.role.has_one_task();
        let idle = idle && self.tasks.values().all(Task::is_over_under_notice);
        if idle && self.notice.is_some() && self.config.role.is_elsewhere() {
            self.last_exit = TAKEN;
            self.leaving = true;
        }
        if now >= self.next_reap {
            self.next_reap = now + REAP;
            self.reap();
        }
    }

    /// Buries orphans that the tasks left to us (we are their reaper); our own children are awaited where they are held.
    fn reap(&mut self) {
        if self.tasks.values().any(Task::launching) {
            return; // a child that nobody holds yet would look like an orphan
        }
        for pid in proc::pids() {
            let dead = proc::stat(pid).is_some_and(|s| s.parent == self.pid && !s.alive());
            if dead && !self.tasks.values().any(|t| t.holds(pid)) {
                let pid = i32::try_from(pid)
                    .ok()
                    .and_then(rustix::process::Pid::from_raw);
                let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::NOHANG);
            }
        }
    }

    /// Tells the server what there is to tell.
    fn speak(&mut self, now: Instant) {
        match self.link.out() {
            Some(out) => {
                let before = out.len();
                for task in self.tasks.values_mut() {
                    task.speak(now, Some(out));
                }
                if now >= self.heard + BEAT {
                    protocol::write(out, &Up::Beat);
                }
                if out.len() > before {
                    self.heard = now;
                }
            }
            None => {
                for task in self.tasks.values_mut() {
                    task.speak(now, None);
                }
                return;
            }
        }
        if self.link.flush().is_err() {
            self.link.close(now);
            return;
        }
        let want = self.link.unwritten();
        if want != self.link_writes
            && let Some(stream) = self.link.stream()
        {
            let flags = if want {
                epoll::EventFlags::IN | epoll::EventFlags::OUT
            } else {
                epoll::EventFlags::IN
            };
            let data = epoll::EventData::new_u64(token(LINK, 0, 0));
            if epoll::modify(&self.epoll, stream, data, flags).is_ok() {
                self.link_writes = want;
            }
        }
    }

    fn end_all(&mut self) {
        crate::confine::kill_group_tree(&self.config.confinement, &self.config.group);
        if self.config.confinement == crate::confine::Kind::Rlimits {
            for pid in proc::descendants(self.pid) {
                proc::kill(pid, rustix::process::Signal::KILL);
            }
        }
        crate::confine::remove_tree(&self.config.confinement, &self.config.group);
    }
}

/// Limits of the agent that its children inherit: no core files, and as many descriptors as we may have.
fn limits() -> io::Result<()> {
    let core = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, core)?;
    let files = getrlimit(Resource::Nofile);
    let more = Rlimit {
        current: files.maximum,
        ..files
    };
    setrlimit(Resource::Nofile, more)?;
    Ok(())
}
