//! A command: its processes and what they started, their logs, its `outputs/`.
//!
//! D1 the task ends with the last of its processes, or with the first that fails: whatever else they started is ended then;
//! D2 under an eviction notice only success is an end of its own: anything else is the eviction's doing, and the job runs again.

use super::{
    Context, LOG, News, PROGRAM, Run as _,
    logs::{LogFile, Pump},
    site::{Launched, Site},
    token, worker,
};
use crate::{confine, proc};
use model::{Bytes, engine::Exit};
use rustix::{event::epoll, process::Signal};
use std::{
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::PathBuf,
    process::{Child, ExitStatus},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::tree::Seen;

/// How often `outputs/` and `logs/` are copied to the artifacts while the command runs (architecture §4 C).
const SYNC: Duration = Duration::from_secs(30);
/// How often resident memory is looked at where no cgroup limits it.
const WATCH: Duration = Duration::from_millis(250);

struct Process {
    child: Child,
    pidfd: OwnedFd,
    pump: Option<Pump>,
    status: Option<ExitStatus>,
}

/// A running command.
pub struct CommandRun {
    slot: u32,
    site: Arc<Site>,
    processes: Vec<Process>,
    seen: Arc<Mutex<Seen>>,
    scratch: PathBuf,
    syncing: bool,
    next_sync: Instant,
    next_watch: Instant,
    grown: bool,
    /// How it ended (D1).
    pub status: Option<ExitStatus>,
}

impl CommandRun {
    /// Watches the started processes of a command. The first log already holds what we say at its top.
    pub fn new(
        slot: u32,
        site: Arc<Site>,
        launched: Vec<(Launched, LogFile)>,
        scratch: PathBuf,
        cx: &Context<'_>,
    ) -> io::Result<CommandRun> {
        let mut processes = Vec::new();
        for (number, (launched, log)) in (0..).zip(launched) {
            let pidfd = worker::pidfd_of(&launched.child)?;
            let pump = Pump::new(launched.out, log)?;
            let data = |kind| epoll::EventData::new_u64(token(kind, slot, number));
            epoll::add(cx.epoll, &pump.pipe, data(LOG), epoll::EventFlags::IN)?;
            epoll::add(cx.epoll, &pidfd, data(PROGRAM), epoll::EventFlags::IN)?;
            processes.push(Process {
                child: launched.child,
                pidfd,
                pump: Some(pump),
                status: None,
            });
        }
        Ok(CommandRun {
            slot,
            site,
            processes,
            seen: Arc::default(),
            scratch,
            syncing: false,
            next_sync: cx.now + SYNC,
            next_watch: cx.now + WATCH,
            grown: false,
            status: None,
        })
    }

    fn process(&mut self, number: u32) -> Option<&mut Process> {
        self.processes.get_mut(usize::try_from(number).ok()?)
    }

    /// The log of a process has something.
    pub fn on_log(&mut self, number: u32, cx: &mut Context<'_>) {
        if let Some(pump) = self.process(number).and_then(|p| p.pump.as_mut())
            && !pump.take(cx.buffer)
        {
            // Everybody has closed it, perhaps long before the end: nothing more will come.
            let _ = epoll::delete(cx.epoll, &pump.pipe);
        }
    }

    /// A process may have ended.
    pub fn on_end(&mut self, number: u32, cx: &Context<'_>) {
        let Some(process) = self.process(number) else {
            return;
        };
        if let Ok(Some(status)) = process.child.try_wait() {
            let _ = epoll::delete(cx.epoll, &process.pidfd);
            process.status = Some(status);
            let over = !status.success() || self.processes.iter().all(|p| p.status.is_some());
            if over {
                self.status.get_or_insert(status); // D1
            }
        }
    }

    /// Whether this is one of its processes.
    pub fn holds(&self, pid: u32) -> bool {
        self.processes.iter().any(|p| p.child.id() == pid)
    }

    /// Asks it to end.
    pub fn ask_to_end(&self) {
        for process in self.processes.iter().filter(|p| p.status.is_none()) {
            proc::kill_group(process.child.id(), Signal::TERM);
        }
    }

    /// What its end means, when nobody asked for it.
    pub fn exit(&self, status: ExitStatus) -> Exit {
        if !status.success() && (self.grown || self.site.cage.oom_kills() > 0) {
            return Exit::OutOfMemory {
                limit: Bytes(self.site.cage.memory()),
            };
        }
        match status.code() {
            Some(code) => Exit::Code(code),
            None => Exit::Signal(status.signal().unwrap_or(0)),
        }
    }

    /// When something is due.
    pub fn due(&self) -> Option<Instant> {
        let watch = self.site.cage.needs_watcher().then_some(self.next_watch);
        watch.into_iter().chain([self.next_sync]).min()
    }

    /// Copies what changed, and looks at memory where that is ours to do.
    pub fn on_time(&mut self, cx: &Context<'_>) {
        if cx.now >= self.next_sync {
            self.sync(cx);
        }
        if self.site.cage.needs_watcher() && cx.now >= self.next_watch {
            self.next_watch = cx.now + WATCH;
            let alive = self.processes.iter().filter(|p| p.status.is_none());
            let pids: Vec<u32> = alive.map(|p| p.child.id()).collect();
            let resident: u64 = pids.iter().map(|pid| confine::resident(*pid)).sum();
            if resident > self.site.cage.memory() {
                self.grown = true;
                let site = self.site.clone();
                cx.news.run(move || {
                    for pid in pids {
                        site.cage.kill_part("main", pid);
                    }
                    News::Nothing
                });
            }
        }
    }

    /// Begins a copy of `outputs/` and `logs/`, unless one is under way.
    pub fn sync(&mut self, cx: &Context<'_>) {
        self.next_sync = cx.now + SYNC;
        if self.syncing {
            return;
        }
        self.syncing = true;
        let (site, seen, scratch, slot) = (
            self.site.clone(),
            self.seen.clone(),
            self.scratch.clone(),
            self.slot,
        );
        cx.news.run(move || {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(e) = site.sync(&scratch, &mut seen) {
                tracing::warn!("outputs cannot be kept: {e}");
            }
            News::Synced { slot }
        });
    }

    /// The copy is done.
    pub fn synced(&mut self) {
        self.syncing = false;
    }

    /// What the last copy needs.
    pub fn seen(&self) -> Arc<Mutex<Seen>> {
        self.seen.clone()
    }

    /// After its cage was emptied: reaps it, reads its last words and adds our own.
    pub fn bury(&mut self, notes: &[String], cx: &mut Context<'_>) {
        for (number, process) in self.processes.iter_mut().enumerate() {
            if let Ok(status) = process.child.wait() {
                self.status.get_or_insert(status);
            }
            let Some(mut pump) = process.pump.take() else {
                continue;
            };
            pump.drain(cx.buffer);
            for note in notes.iter().filter(|_| number == 0) {
                pump.log().write(format!("[zaffre] {note}\n").as_bytes());
            }
        }
    }
}
