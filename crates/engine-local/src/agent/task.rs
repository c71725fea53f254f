//! One task, from `Start` to `Forget`.
//!
//! T1 a task ends once, and only after everything that it started is dead and its outputs are where they belong;
//! T2 told to stop, it is asked first and killed after a grace; the end is `Stopped`, whatever it answered;
//! T3 an end that an eviction notice has caused is not reported: the node goes, and the job runs again elsewhere.

use super::{
    Context, LOG, News, PROGRAM, Run as _, Staged,
    command::CommandRun,
    logs::LogFile,
    pod,
    pool::{Mail, PoolRun},
    site::{self, Site},
};
use crate::mirror::{Fetcher, Plan, Pusher};
use crate::protocol::{self, NodeConfig, Order, Report, Stage, Up, Work};
use model::{Ranges, TaskId, engine::Exit};
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::tree::Seen;

/// A command that was told to stop may tidy up for so long before it is killed.
pub const COMMAND_GRACE: Duration = Duration::from_secs(10);
/// Workers have nothing to tidy: their results are out already.
pub const POOL_GRACE: Duration = Duration::from_secs(2);
/// Unless the script has a `shutdown()`, which may write a last file. Azure names no limit; the end of a step waits for it.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// What a task needs of its node.
pub struct Ground {
    /// The node's folder.
    pub dir: PathBuf,
    /// Its configuration.
    pub config: NodeConfig,
    /// Our own binary.
    pub exe: PathBuf,
    /// The node's user.
    pub uid: Option<u32>,
}

enum Run {
    None,
    Command(Box<CommandRun>),
    Pool(Box<PoolRun>),
}

/// A task of this node.
pub struct Task {
    id: TaskId,
    slot: u32,
    node: String,
    stage: Stage,
    held: Vec<u8>,
    mail: Mail,
    site: Option<Arc<Site>>,
    run: Run,
    staging: bool,
    stopping: bool,
    noticed: bool,
    kill_at: Option<Instant>,
    /// The end that was decided; `None` inside: it is not reported (T3).
    end: Option<Option<Exit>>,
    ending: bool,
    untold: bool,
    dirty: bool,
    dir: PathBuf,
    /// What of its files has to be brought from elsewhere, and who brings back what it writes.
    plan: Option<Plan>,
    pusher: Option<Arc<Pusher>>,
    /// Brings input while it runs; on its way with the piece that comes.
    fetcher: Option<Box<Fetcher>>,
    /// Nobody waits for input any more.
    given_up: Arc<AtomicBool>,
    /// Files of results are being brought home.
    settling: bool,
}

impl Task {
    /// A task that waits for `Go`.
    pub fn new(id: TaskId, slot: u32, held: Vec<u8>, node: String) -> Task {
        Task {
            id,
            slot,
            node,
            stage: Stage::Waiting {
                what: "its environment and files".into(),
            },
            held,
            mail: Mail::default(),
            site: None,
            run: Run::None,
            staging: false,
            stopping: false,
            noticed: false,
            kill_at: None,
            end: None,
            ending: false,
            untold: false,
            dirty: true,
            dir: PathBuf::new(),
            plan: None,
            pusher: None,
            fetcher: None,
            given_up: Arc::default(),
            settling: false,
        }
    }

    fn waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. })
    }
    /// Whether it has ended.
    pub fn exited(&self) -> bool {
        matches!(self.stage, Stage::Exited(_))
    }
    fn exit(&mut self, exit: Exit) {
        self.stage = Stage::Exited(exit);
        self.dirty = true;
        self.held.clear();
    }

    /// The server is preparing something for it.
    pub fn preparing(&mut self, what: &str) {
        if self.waiting() {
            self.stage = Stage::Waiting { what: what.into() };
            self.dirty = true;
        }
    }

    /// Whether nothing is left to do for it on a node that goes: it ended in a way that is not reported (T3) with everything
    /// brought home, or its end and all its results are known, or it is a pool that has nothing to run and nothing to tell.
    pub fn is_over_under_notice(&self) -> bool {
        let told = self.mail.outbox.is_empty();
        match &self.run {
            Run::Pool(pool) => told && !pool.busy() && !self.ending,
            Run::Command(_) => false,
            Run::None => {
                self.untold || (told && self.waiting()) || (told && self.exited() && !self.dirty)
            }
        }
    }

    /// Its files are elsewhere: told before `Go`.
    pub fn mirror(&mut self, plan: Plan) {
        self.mail.elsewhere = !plan.later.is_empty();
        self.plan = Some(plan);
    }

    /// How a container ends that ran nothing else: as the program did, or as a shell says it.
    pub fn exit_code(&self) -> u8 {
        let Stage::Exited(exit) = &self.stage else {
            return 1;
        };
        match exit {
            Exit::Code(code) => u8::try_from(*code).unwrap_or(1),
            Exit::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
            Exit::OutOfMemory { .. } => 137,
            Exit::Stopped => 143,
            Exit::Lost { .. } | Exit::NotStarted { .. } | Exit::Init { .. } => 1,
        }
    }

    /// It cannot be started.
    pub fn refuse(&mut self, message: String) {
        if self.waiting() {
            self.exit(Exit::NotStarted {
                message: message.into(),
            });
        }
    }

    /// Everything is there: bring the files and start.
    pub fn go(&mut self, order: Order, ground: Ground, cx: &mut Context<'_>) {
        if !self.waiting() || self.noticed {
            return; // begun before, or on a node that goes
        }
        self.stage = Stage::Staging {
            what: "copying files".into(),
        };
        self.dirty = true;
        self.staging = true;
        self.dir = ground.dir.clone();
        let (id, slot, node, order) = (self.id.clone(), self.slot, self.node.clone(), order);
        let news = cx.news.clone();
        let plan = self.plan.clone();
        cx.news.run(move || {
            let result = stage(&ground, &id, &node, order, plan, &|what| {
                news.push(News::Telling {
                    slot,
                    what: what.to_owned(),
                });
            });
            News::Staged { slot, result }
        });
    }

    /// A helper has news of it.
    pub fn news(&mut self, news: News, cx: &mut Context<'_>) {
        match news {
            News::Telling { what, .. } => {
                if let Stage::Staging { what: told } = &mut self.stage {
                    *told = what.into();
                    self.dirty = true;
                }
            }
            News::Staged { result, .. } => self.staged(result, cx),
            News::Worker {
                number, launched, ..
            } => {
                if let Run::Pool(pool) = &mut self.run {
                    pool.launched(number, launched, cx);
                }
            }
            News::WorkerGone { number, .. } => {
                if let Run::Pool(pool) = &mut self.run {
                    pool.worker_gone(number, cx);
                }
            }
            News::Synced { .. } => {
                if let Run::Command(command) = &mut self.run {
                    command.synced();
                }
                if let Some(pusher) = &self.pusher {
                    pusher.sync();
                }
            }
            News::Ended { notes, .. } => self.ended(&notes, cx),
            News::Brought {
                spans,
                fetcher,
                failed,
                ..
            } => self.brought(&spans, fetcher, failed, cx),
            News::Settled { seq, .. } => {
                self.settling = false;
                self.mail.outbox.settle(seq);
            }
            News::Pushed { .. } => {
                self.mail.outbox.settle(u64::MAX);
                self.over();
            }
            News::Nothing | News::Notice { .. } | News::Removed { .. } => {}
        }
    }

    fn staged(&mut self, result: Result<Box<Staged>, String>, cx: &mut Context<'_>) {
        self.staging = false;
        let staged = match result {
            Ok(staged) => staged,
            Err(message) => {
                let exit = if self.stopping {
                    Exit::Stopped
                } else {
                    Exit::NotStarted {
                        message: message.into(),
                    }
                };
                return self.exit(exit);
            }
        };
        self.stage = Stage::Running;
        self.dirty = true;
        self.held.clear();
        self.site = Some(staged.site.clone());
        self.pusher = staged.pusher;
        match (&staged.site.order.work, staged.command) {
            (Work::Command { .. }, Some(launched)) => {
                let scratch = self.dir.join("scratch");
                match CommandRun::new(self.slot, staged.site, launched, scratch, cx) {
                    Ok(run) => self.run = Run::Command(Box::new(run)),
                    Err(e) => {
                        // It runs, but cannot be watched: it is ended.
                        self.end = Some(Some(Exit::NotStarted {
                            message: format!("the command cannot be watched: {e}").into(),
                        }));
                    }
                }
            }
            (Work::Pool(pool), _) => {
                if let Some(plan) = self.plan.as_ref().filter(|p| !p.later.is_empty()) {
                    self.fetcher = Some(Box::new(Fetcher::new(plan, &self.dir)));
                }
                if self.pusher.is_some() {
                    self.mail.outbox.files_are_elsewhere();
                }
                let (pool, node) = (pool.clone(), self.node.clone());
                let mut run = PoolRun::start(self.slot, staged.site, pool, node, cx);
                run.draining = self.noticed;
                self.run = Run::Pool(Box::new(run));
            }
            (Work::Command { .. }, None) => unreachable!("a staged command is started"),
        }
        if self.stopping {
            self.stop_now(cx);
        } else if self.noticed {
            self.notice_run(cx);
        }
    }

    /// Told to stop (T2).
    pub fn stop(&mut self, cx: &mut Context<'_>) {
        if self.stopping || self.exited() {
            return;
        }
        self.stopping = true;
        if self.waiting() {
            self.exit(Exit::Stopped);
        } else if !self.staging {
            self.stop_now(cx);
        }
    }

    fn stop_now(&mut self, cx: &mut Context<'_>) {
        match &mut self.run {
            Run::Command(command) => {
                command.ask_to_end();
                self.kill_at = Some(cx.now + COMMAND_GRACE);
            }
            Run::Pool(pool) => {
                self.mail.give_back(cx.now);
                self.kill_at = Some(cx.now + pool.grace());
                pool.ask_to_end();
            }
            Run::None => {}
        }
    }

    /// The node will be taken.
    pub fn notice(&mut self, cx: &mut Context<'_>) {
        if self.noticed {
            return;
        }
        self.noticed = true;
        self.mail.give_back(cx.now);
        self.notice_run(cx);
    }

    fn notice_run(&mut self, cx: &mut Context<'_>) {
        match &mut self.run {
            Run::Command(command) => {
                command.sync(cx);
                command.ask_to_end();
            }
            Run::Pool(pool) => pool.draining = true,
            Run::None => {}
        }
    }

    /// More indices.
    pub fn lend(&mut self, number: u64, ranges: &Ranges, now: Instant) {
        if self.mail.lend(number, ranges) {
            self.dirty = true;
            if self.noticed || self.stopping || self.exited() {
                self.mail.give_back(now);
            } else if let Run::Pool(pool) = &mut self.run {
                pool.feed_all(&mut self.mail, now);
            }
        }
    }

    /// Begins to bring the input of what was lent, where it is elsewhere; one piece at a time, so that the workers run the one
    /// while the next comes.
    fn bring(&mut self, cx: &mut Context<'_>) {
        let (Some(site), Run::Pool(_)) = (&self.site, &self.run) else {
            return;
        };
        let Work::Pool(pool) = &site.order.work else {
            return;
        };
        let Some(mut fetcher) = self.fetcher.take() else {
            return;
        };
        let spans = self.mail.next_to_bring();
        if spans.is_empty() {
            self.fetcher = Some(fetcher);
            return;
        }
        let (slot, pool, root) = (self.slot, pool.clone(), self.root_of_input());
        let given_up = self.given_up.clone();
        cx.news.run(move || {
            let given_up = || given_up.load(Ordering::Relaxed);
            let failed = pod::bring_input(&mut fetcher, &pool, &root, &spans, &given_up);
            News::Brought {
                slot,
                spans,
                fetcher,
                failed: failed.err().map(|e| e.to_string()),
            }
        });
    }

    /// Brings the files of results home that are not told yet.
    fn settle(&mut self, cx: &mut Context<'_>) {
        if !self.is_to_settle() {
            return;
        }
        if let (Some(pusher), Some(seq)) = (&self.pusher, self.mail.outbox.unsettled()) {
            self.settling = true;
            let (slot, news) = (self.slot, cx.news.clone());
            pusher.settle(move || news.push(News::Settled { slot, seq }));
        }
    }

    fn is_to_settle(&self) -> bool {
        !self.settling && self.pusher.is_some() && self.mail.outbox.unsettled().is_some()
    }

    fn root_of_input(&self) -> String {
        let later = self.plan.as_ref().and_then(|plan| plan.later.first());
        later.cloned().unwrap_or_default()
    }

    /// Input has come, or cannot be kept here: then the node is of no use for it, and says so.
    fn brought(
        &mut self,
        spans: &[(u32, u32)],
        fetcher: Box<Fetcher>,
        failed: Option<String>,
        cx: &mut Context<'_>,
    ) {
        self.fetcher = Some(fetcher);
        let there = self.mail.brought(spans);
        match failed {
            Some(why) => {
                self.mail.give_back(cx.now);
                self.end.get_or_insert(Some(Exit::NotStarted {
                    message: format!("input files cannot be brought: {why}").into(),
                }));
            }
            None if self.noticed || self.stopping => self.mail.give_back(cx.now),
            None => {
                if let Run::Pool(pool) = &mut self.run
                    && there
                {
                    pool.feed_all(&mut self.mail, cx.now);
                }
            }
        }
    }

    /// Parcels up to `seq` are durable.
    pub fn ack(&mut self, seq: u64, now: Instant) {
        let crowded = self.mail.outbox.crowded();
        self.mail.outbox.ack(seq);
        if crowded
            && !self.mail.outbox.crowded()
            && let Run::Pool(pool) = &mut self.run
        {
            pool.feed_all(&mut self.mail, now);
        }
    }

    /// Something happened on a descriptor.
    pub fn event(&mut self, kind: u64, number: u32, cx: &mut Context<'_>) {
        match (&mut self.run, kind) {
            (Run::Command(command), PROGRAM) => command.on_end(number, cx),
            (Run::Command(command), LOG) => command.on_log(number, cx),
            (Run::Pool(pool), _) => pool.event(kind, number, &mut self.mail, cx),
            (Run::Command(_) | Run::None, _) => {}
        }
    }

    /// What is due; decides about the end.
    pub fn on_time(&mut self, cx: &mut Context<'_>) {
        self.settle(cx);
        if self.ending || self.exited() {
            return;
        }
        let overdue = self.kill_at.is_some_and(|k| k <= cx.now);
        match &mut self.run {
            Run::Command(command) => {
                command.on_time(cx);
                if let Some(status) = command.status {
                    let exit = if self.stopping {
                        Some(Exit::Stopped)
                    } else if self.noticed && !status.success() {
                        None // T3
                    } else {
                        Some(command.exit(status))
                    };
                    self.end.get_or_insert(exit);
                } else if overdue {
                    self.end.get_or_insert(Some(Exit::Stopped));
                }
            }
            Run::Pool(pool) => {
                pool.on_time(&mut self.mail, cx);
                if let Some(over) = pool.over.clone() {
                    self.end.get_or_insert(Some(over));
                } else if self.stopping && (overdue || pool.empty()) {
                    self.end.get_or_insert(Some(Exit::Stopped));
                }
            }
            Run::None => {}
        }
        if self.end.is_some() && !self.launching() {
            self.begin_end(cx);
        } else {
            self.bring(cx);
        }
    }

    /// Whether a process is being started that nobody holds yet.
    pub fn launching(&self) -> bool {
        self.staging || matches!(&self.run, Run::Pool(pool) if pool.launching())
    }

    /// Kills what is left and brings the outputs home, beside the loop.
    fn begin_end(&mut self, cx: &mut Context<'_>) {
        let Some(site) = self.site.clone() else {
            return;
        };
        self.ending = true;
        self.given_up.store(true, Ordering::Relaxed);
        let reported = matches!(&self.end, Some(Some(_)));
        let seen: Arc<Mutex<Seen>> = match &self.run {
            Run::Command(command) => command.seen(),
            Run::Pool(_) | Run::None => Arc::default(),
        };
        let (slot, scratch) = (self.slot, self.dir.join("scratch"));
        cx.news.run(move || {
            site.cage.kill();
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let mut notes = Vec::new();
            match site.sync(&scratch, &mut seen) {
                Ok(0) => {}
                Ok(n) => notes.push(format!(
                    "outputs/ and logs/: {n} entries are neither files nor folders and were left out"
                )),
                Err(e) => notes.push(format!("outputs/ could not be kept whole: {e}")),
            }
            if reported {
                notes.extend(site.deliver(&scratch));
            }
            News::Ended { slot, notes }
        });
    }

    /// Everything of it is dead and brought home (T1).
    fn ended(&mut self, notes: &[String], cx: &mut Context<'_>) {
        match std::mem::replace(&mut self.run, Run::None) {
            Run::Command(mut command) => command.bury(notes, cx),
            Run::Pool(mut pool) => {
                pool.bury(&mut self.mail, cx);
                self.mail.give_back(cx.now);
            }
            Run::None => {}
        }
        self.site = None;
        match self.pusher.take() {
            Some(pusher) => {
                let slot = self.slot;
                cx.news.run(move || {
                    pusher.finish();
                    News::Pushed { slot }
                });
            }
            None => self.over(),
        }
    }

    /// Everything of it is where it belongs: its end is told.
    fn over(&mut self) {
        match self.end.take() {
            Some(Some(exit)) => self.exit(exit),
            Some(None) | None => self.untold = true,
        }
    }

    /// When something is due.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        if self.is_to_settle() {
            return Some(now);
        }
        if self.ending {
            return self.mail.outbox.due();
        }
        let run = match &self.run {
            Run::Command(command) => command.due(),
            Run::Pool(pool) => pool.due().into_iter().chain(pool.started_due()).min(),
            Run::None => None,
        };
        [run, self.mail.outbox.due(), self.kill_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether a process is one that it waits for itself.
    pub fn holds(&self, pid: u32) -> bool {
        match &self.run {
            Run::Command(command) => command.holds(pid),
            Run::Pool(pool) => pool.holds(pid),
            Run::None => false,
        }
    }

    fn started(&mut self, now: Instant) -> Ranges {
        let mut started = match &mut self.run {
            Run::Pool(pool) => pool.tell_started(now),
            Run::Command(_) | Run::None => Ranges::new(),
        };
        started.extend(&self.mail.outbox.untold());
        started
    }

    fn report(&mut self, now: Instant) -> Report {
        Report {
            task: self.id.clone(),
            stage: self.stage.clone(),
            lent: self.mail.lent,
            started: self.started(now),
            acked: self.mail.outbox.acked(),
            held: Vec::new(),
        }
    }

    /// Everything about it, for a new server.
    pub fn report_whole(&mut self, now: Instant) -> Report {
        let mut report = self.report(now);
        if self.waiting() {
            report.held.clone_from(&self.held);
        }
        self.dirty = false;
        report
    }

    /// Its unacknowledged parcels, for a new server.
    pub fn write_parcels(&mut self, now: Instant, out: &mut Vec<u8>) {
        let started = self.started(now);
        drop(self.mail.outbox.settled_now()); // told here with the others
        for parcel in self.mail.outbox.waiting() {
            protocol::write_parcel(out, &self.id, parcel, self.mail.lent, &started);
        }
    }

    /// Closes the parcel that is due and tells what changed. Without a server parcels are closed all the same.
    pub fn speak(&mut self, now: Instant, mut out: Option<&mut Vec<u8>>) {
        let due = self.mail.outbox.due();
        let (busy, started_due) = match &self.run {
            Run::Pool(pool) => (pool.busy(), pool.started_due()),
            Run::Command(_) | Run::None => (false, None),
        };
        let idle_or_old = due.is_some_and(|d| d <= now || !busy) || self.mail.outbox.full();
        if idle_or_old && let Some(parcel) = self.mail.outbox.close() {
            let started = self.started(now);
            if let Some(out) = out.as_deref_mut()
                && self.mail.outbox.unsettled().is_none()
            {
                protocol::write_parcel(out, &self.id, &parcel, self.mail.lent, &started);
            }
        } else if started_due.is_some_and(|d| d <= now) {
            let changed = matches!(&self.run, Run::Pool(pool) if pool.started_changed());
            self.dirty |= changed;
            let _ = self.started(now);
        }
        let settled = self.mail.outbox.settled_now();
        if !settled.is_empty()
            && let Some(out) = out.as_deref_mut()
        {
            let started = self.started(now);
            for parcel in &settled {
                protocol::write_parcel(out, &self.id, parcel, self.mail.lent, &started);
            }
        }
        if self.dirty
            && let Some(out) = out
        {
            self.dirty = false;
            let report = self.report(now);
            protocol::write(out, &Up::State(Box::new(report)));
        }
    }
}

/// Prepares the place and starts a command; on a helper thread.
fn stage(
    ground: &Ground,
    id: &TaskId,
    node: &str,
    mut order: Order,
    plan: Option<Plan>,
    tell: &dyn Fn(&str),
) -> Result<Box<Staged>, String> {
    let pusher = match plan {
        Some(plan) => Some(pod::bring(ground, plan, &mut order, tell)?),
        None => None,
    };
    let order = Arc::new(order);
    let result = place(ground, id, node, &order, pusher.clone(), tell);
    if result.is_err()
        && let Some(pusher) = pusher
    {
        pusher.finish(); // the log says why
    }
    result
}

/// The same, with every file on this machine.
fn place(
    ground: &Ground,
    id: &TaskId,
    node: &str,
    order: &Arc<Order>,
    pusher: Option<Arc<Pusher>>,
    tell: &dyn Fn(&str),
) -> Result<Box<Staged>, String> {
    let mut log = LogFile::new(order.artifacts.join(log_name(order, node, 0)));
    for line in std::iter::once(format!("attempt {} {}", id.attempt.0, order.place))
        .chain(order.notes.iter().cloned())
    {
        log.write(format!("[zaffre] {line}\n").as_bytes());
    }
    let start = || {
        let place = site::Ground {
            node_folder: &ground.dir,
            config: &ground.config,
            exe: &ground.exe,
            uid: ground.uid,
        };
        let site = Arc::new(Site::prepare(&place, id, order.clone(), tell)?);
        let launched = match &order.work {
            Work::Command { .. } => Some(
                site.launch_command()
                    .map_err(|e| format!("the command cannot be started: {e}"))?,
            ),
            Work::Pool(_) => None,
        };
        Ok((site, launched))
    };
    match start() {
        Ok((site, launched)) => {
            // The first process has what we say at the top of its log.
            let others = (1..order.gang.processes)
                .map(|local| LogFile::new(order.artifacts.join(log_name(order, node, local))));
            let logs = std::iter::once(log).chain(others);
            let command = launched.map(|l| l.into_iter().zip(logs).collect());
            Ok(Box::new(Staged {
                pusher,
                site,
                command,
            }))
        }
        Err(message) => {
            let text: String = message;
            log.write(format!("[zaffre] not started: {text}\n").as_bytes());
            Err(text)
        }
    }
}

/// Where the log of a process lies; a pool's hosts have a file each.
fn log_name(order: &Order, node: &str, local: u32) -> String {
    match &order.work {
        Work::Pool(_) => format!("logs/sys/node/{node}/agent.txt"),
        Work::Command { .. } => order.gang.log_name(local),
    }
}
