//! A pool: long-lived Python workers, fed from the task's mailbox.
//!
//! L1 only what a worker has begun counts as started; an index that waits in its pipe returns free;
//! L2 a worker that dies, hangs or talks nonsense fails the index it ran, and another takes its place under a new number;
//! L3 `init()` that fails `INIT_TRIES` times per worker without a result between ends the pool with the first message.

use super::{
    CHANNEL, Context, ERR, News, OUT, Run as _,
    logs::{LogFile, Pump},
    outbox::Outbox,
    site::{Launched, Site},
    task::{POOL_GRACE, SHUTDOWN_GRACE},
    worker::{self, Answer, Worker, kind},
};
use crate::{confine, protocol::Pool};
use model::{
    Bytes, Millis, Ranges,
    engine::{Cause, Exit},
};
use rustix::process::Signal;
use std::{
    collections::VecDeque,
    io::Write,
    os::unix::process::ExitStatusExt,
    sync::Arc,
    time::{Duration, Instant},
};

/// Failures of `init()` per worker before the pool gives up (behaviour §2.2.1).
const INIT_TRIES: u32 = 3;
/// `init()` may take three run timeouts and this long (behaviour §2.2.1).
const INIT_EXTRA: Duration = Duration::from_secs(30);
/// A worker whose channel is closed has this long to end, on a loaded machine too; then it counts as one that closed it and
/// lives on.
const CLOSING: Duration = Duration::from_secs(2);
/// How often resident memory is looked at where no cgroup limits it.
const WATCH: Duration = Duration::from_millis(500);

/// Indices whose input is brought at once.
const BROUGHT_AT_ONCE: usize = 32;
/// No more is brought while so many indices wait to run.
const BROUGHT_AHEAD: usize = 64;

/// What a pool task receives and reports, from its start to `Forget`.
#[derive(Debug, Default)]
pub struct Mail {
    /// Highest lend received.
    pub lent: u64,
    /// Indices not begun whose input is here, in the order of their lends.
    pub queue: VecDeque<(u32, u32)>,
    /// Their input is elsewhere: what is lent comes here first.
    pub elsewhere: bool,
    coming: VecDeque<(u32, u32)>,
    on_its_way: Vec<(u32, u32)>,
    /// Results on their way.
    pub outbox: Outbox,
}

impl Mail {
    /// Takes a lend; one that came before is not taken again.
    pub fn lend(&mut self, number: u64, ranges: &Ranges) -> bool {
        if number <= self.lent {
            return false;
        }
        self.lent = number;
        match self.elsewhere {
            true => self.coming.extend(ranges.spans()),
            false => self.queue.extend(ranges.spans()),
        }
        true
    }
    /// The next indices whose input is to be brought; none while there is enough to run.
    pub fn next_to_bring(&mut self) -> Vec<(u32, u32)> {
        let here = self.queue.iter().map(|(start, end)| (end - start) as usize);
        if here.sum::<usize>() >= BROUGHT_AHEAD {
            return Vec::new();
        }
        let mut room = u32::try_from(BROUGHT_AT_ONCE).unwrap_or(u32::MAX);
        while room > 0
            && let Some(front) = self.coming.front_mut()
        {
            let (start, end) = (front.0, front.1.min(front.0.saturating_add(room)));
            self.on_its_way.push((start, end));
            room -= end - start;
            front.0 = end;
            if front.0 == front.1 {
                self.coming.pop_front();
            }
        }
        self.on_its_way.clone()
    }
    /// Input is here. `false`: what it was for was given back meanwhile.
    pub fn brought(&mut self, spans: &[(u32, u32)]) -> bool {
        let wanted = !self.on_its_way.is_empty();
        if wanted {
            self.on_its_way.clear();
            self.queue.extend(spans);
        }
        wanted
    }
    fn take(&mut self) -> Option<u32> {
        let front = self.queue.front_mut()?;
        let index = front.0;
        front.0 += 1;
        if front.0 == front.1 {
            self.queue.pop_front();
        }
        Some(index)
    }
    fn put_back(&mut self, index: u32) {
        self.queue.push_front((index, index + 1));
    }
    /// Gives back everything that was not begun.
    pub fn give_back(&mut self, now: Instant) {
        let all = self.queue.drain(..).chain(self.on_its_way.drain(..));
        for (start, end) in all.chain(self.coming.drain(..)) {
            self.outbox.returned(start, end, now);
        }
    }
}

/// A running pool.
pub struct PoolRun {
    slot: u32,
    site: Arc<Site>,
    pool: Pool,
    /// Folder of the node's files below `logs/user/…`.
    node: String,
    workers: Vec<Worker>,
    /// Dead or being killed; kept until their tree is gone.
    dying: Vec<Worker>,
    launching: u32,
    next_number: u32,
    failures: u32,
    first_failure: Option<Box<str>>,
    ooms: u64,
    next_watch: Instant,
    told: Ranges,
    begun: Option<Instant>,
    /// Set when the pool has ended by itself.
    pub over: Option<Exit>,
    /// No index is handed out any more.
    pub draining: bool,
    /// No worker is replaced any more.
    pub stopping: bool,
}

impl PoolRun {
    /// Starts its workers.
    pub fn start(
        slot: u32,
        site: Arc<Site>,
        pool: Pool,
        node: String,
        cx: &Context<'_>,
    ) -> PoolRun {
        let mut run = PoolRun {
            slot,
            site,
            node,
            workers: Vec::new(),
            dying: Vec::new(),
            launching: 0,
            next_number: 0,
            failures: 0,
            first_failure: None,
            ooms: 0,
            next_watch: cx.now + WATCH,
            told: Ranges::new(),
            begun: None,
            over: None,
            draining: false,
            stopping: false,
            pool,
        };
        for _ in 0..run.pool.workers.max(1) {
            run.launch(cx);
        }
        run
    }

    fn part(number: u32) -> String {
        format!("process{number:03}")
    }

    fn launch(&mut self, cx: &Context<'_>) {
        let (number, slot) = (self.next_number, self.slot);
        self.next_number += 1;
        self.launching += 1;
        let site = self.site.clone();
        cx.news.run(move || {
            let launched = site
                .launch_worker(number, &Self::part(number))
                .map_err(|e| e.to_string());
            News::Worker {
                slot,
                number,
                launched,
            }
        });
    }

    /// A worker was started, or could not be.
    pub fn launched(
        &mut self,
        number: u32,
        launched: Result<Launched, String>,
        cx: &mut Context<'_>,
    ) {
        self.launching -= 1;
        let watched = launched.and_then(|l| self.adopt(number, l, cx).map_err(|e| e.to_string()));
        if let Err(e) = watched {
            self.init_failed(&format!("a worker cannot be started: {e}"));
            self.replace(cx);
        }
    }

    fn adopt(&mut self, number: u32, l: Launched, cx: &Context<'_>) -> std::io::Result<()> {
        let file = |stream: &str| {
            LogFile::new(self.site.order.artifacts.join(format!(
                "logs/user/{stream}/{}/{}.{stream}.txt",
                self.node,
                Self::part(number)
            )))
        };
        let pumps = [
            Some(Pump::new(l.out, file("stdout"))?),
            l.err.map(|e| Pump::new(e, file("stderr"))).transpose()?,
        ];
        let channel = l
            .channel
            .zip(l.progress)
            .ok_or_else(|| std::io::Error::other("a worker without a channel"))?;
        let (channel, progress) = channel;
        let worker = Worker::new(number, l.child, channel, progress, pumps, cx.now)?;
        worker.watch(cx.epoll, self.slot)?;
        if self.stopping {
            worker.ask_to_end(); // the others were asked while it came
        }
        self.workers.push(worker);
        Ok(())
    }

    fn replace(&mut self, cx: &Context<'_>) {
        if self.over.is_some() || self.stopping {
            return;
        }
        let alive = self.workers.len() + self.dying.len() + self.launching as usize;
        if alive < self.pool.workers.max(1) as usize {
            self.launch(cx);
        }
    }

    fn init_failed(&mut self, message: &str) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(|| message.into());
        if self.failures >= INIT_TRIES * self.pool.workers.max(1) && self.over.is_none() {
            self.over = Some(Exit::Init {
                message: self.first_failure.clone().unwrap_or_default(),
            });
        }
    }

    /// Something happened on a descriptor of a worker.
    pub fn event(&mut self, what: u64, number: u32, mail: &mut Mail, cx: &mut Context<'_>) {
        let Some(at) = self.workers.iter().position(|w| w.number == number) else {
            return self.late_output(what, number, cx);
        };
        match what {
            CHANNEL => self.answers(at, mail, cx),
            OUT | ERR => pump(&mut self.workers[at], what, cx),
            _ => self.died(at, None, mail, cx),
        }
    }

    fn late_output(&mut self, what: u64, number: u32, cx: &mut Context<'_>) {
        if let Some(worker) = self.dying.iter_mut().find(|w| w.number == number)
            && matches!(what, OUT | ERR)
        {
            pump(worker, what, cx);
        }
    }

    fn answers(&mut self, at: usize, mail: &mut Mail, cx: &mut Context<'_>) {
        let open = self.read(at, mail, cx);
        match open {
            Ok(true) => {
                let most = self.share(mail);
                self.feed(at, most, mail, cx.now);
            }
            Ok(false) => {
                // A process that ends closes its descriptors before it can be asked how it ended.
                let worker = &mut self.workers[at];
                worker.closed = Some(cx.now + CLOSING);
                let _ = rustix::event::epoll::delete(cx.epoll, &worker.channel);
            }
            Err(nonsense) => self.died(
                at,
                Some(Cause::Died {
                    how: nonsense.into(),
                }),
                mail,
                cx,
            ),
        }
    }

    /// Reads once; every whole answer lands in the outbox.
    fn read(&mut self, at: usize, mail: &mut Mail, cx: &mut Context<'_>) -> Result<bool, String> {
        let now = cx.now;
        let failures = &mut self.failures;
        let (site, node, pool) = (&self.site, &self.node, &self.pool);
        let outbox = &mut mail.outbox;
        let mut failed_init = None;
        let take = |worker: &mut Worker, answer: Answer<'_>| -> Result<(), String> {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match answer.kind {
                kind::DONE => {
                    worker.answered(&answer, now)?;
                    *failures = 0;
                    let payload = if pool.collect { answer.payload } else { &[] };
                    outbox.done(answer.index, answer.items, answer.rows, payload, now);
                }
                kind::RAISED => {
                    worker.answered(&answer, now)?;
                    *failures = 0;
                    let (message, trace) = split(answer.payload);
                    note_error(
                        site,
                        node,
                        worker.number,
                        Some(answer.index),
                        message,
                        trace,
                    );
                    let message = text(message).into();
                    outbox.failed(answer.index, Cause::Raised { message }, now);
                }
                kind::BAD => {
                    worker.answered(&answer, now)?;
                    *failures = 0;
                    note_error(
                        site,
                        node,
                        worker.number,
                        Some(answer.index),
                        answer.payload,
                        b"",
                    );
                    let message = text(answer.payload).into();
                    outbox.failed(answer.index, Cause::BadResult { message }, now);
                }
                kind::READY => {
                    worker.ready = true;
                    worker.since = now;
                }
                kind::INIT_FAILED => {
                    let (message, trace) = split(answer.payload);
                    note_error(site, node, worker.number, None, message, trace);
                    worker.init_counted = true;
                    failed_init = Some(text(message));
                }
                kind::HEADER => outbox.header(text(answer.payload).trim_end_matches('\n'), now),
                other => return Err(format!("it sent an answer of unknown kind {other}")),
            }
            Ok(())
        };
        let open = self.workers[at].read(cx.buffer, take);
        if let Some(message) = failed_init {
            self.init_failed(&message);
        }
        open
    }

    /// Gives a worker what it has room for, at most `most`.
    fn feed(&mut self, at: usize, most: usize, mail: &mut Mail, now: Instant) {
        if self.draining || self.stopping || self.over.is_some() || mail.outbox.crowded() {
            return;
        }
        let worker = &mut self.workers[at];
        let mut bytes = [0; 8];
        let mut n = 0;
        for _ in 0..worker.room().min(most) {
            let Some(index) = mail.take() else { break };
            bytes[n * 4..n * 4 + 4].copy_from_slice(&index.to_le_bytes());
            n += 1;
            worker.give(index, now);
        }
        if n == 0 {
            return;
        }
        self.begun.get_or_insert(now);
        if (&worker.channel).write_all(&bytes[..n * 4]).is_err() {
            // It has closed its end; its death is told by the descriptor, and gives both indices back or fails them.
            tracing::debug!("worker {} takes no more work", worker.number);
        }
    }

    /// Gives everybody what there is; little is given one each, so that a second one never waits while a neighbour is idle.
    pub fn feed_all(&mut self, mail: &mut Mail, now: Instant) {
        let most = self.share(mail);
        for at in 0..self.workers.len() {
            if mail.queue.is_empty() {
                return;
            }
            self.feed(at, most, mail, now);
        }
    }

    /// How many indices one worker may be given at a time: two only while there are enough for everybody.
    fn share(&self, mail: &Mail) -> usize {
        let enough = 2 * self.workers.len();
        let there = mail
            .queue
            .iter()
            .take(enough)
            .map(|(a, b)| (b - a) as usize);
        if there.sum::<usize>() >= enough { 2 } else { 1 }
    }

    /// A worker is dead, or is to be (L2). Everything that it had said is heard first.
    fn died(&mut self, at: usize, cause: Option<Cause>, mail: &mut Mail, cx: &mut Context<'_>) {
        if cause.is_none() {
            while let Ok(true) = self.heard_more(at, mail, cx) {}
        }
        let mut worker = self.workers.swap_remove(at);
        let status = worker.child.try_wait().ok().flatten();
        let how = match &status {
            Some(status) => worker::how(*status),
            None => "it closed its channel to the agent".to_owned(),
        };
        let killed = status.is_some_and(|s| s.signal() == Some(Signal::KILL.as_raw()));
        let ooms = self.site.cage.oom_kills();
        let cause = match cause {
            Some(cause) => cause,
            None if killed && ooms > self.ooms => {
                self.ooms += 1;
                Cause::OutOfMemory {
                    limit: Bytes(self.site.cage.memory()),
                }
            }
            None => Cause::Died { how: how.into() },
        };
        let begun = worker.begun();
        let ran = begun.checked_sub(1).map(|last| worker.with_it()[last]);
        // What it had not begun (L1), and what it had finished and not told: run again, nobody's failure.
        for index in worker.with_it().iter().rev().filter(|i| Some(**i) != ran) {
            mail.put_back(*index);
        }
        if self.stopping {
            // It ended because it was told to: no failure of the index that ran, nor of init(). What it held is given back
            // with the end of the task.
        } else if let Some(index) = ran {
            let text = cause.to_string();
            note_error(
                &self.site,
                &self.node,
                worker.number,
                Some(index),
                text.as_bytes(),
                b"",
            );
            mail.outbox.failed(index, cause, cx.now);
        } else if !self.draining && !worker.init_counted {
            // In init(), or between two indices: counted alike, so that nothing dies and is replaced for ever.
            let when = if worker.ready {
                "while it was idle"
            } else {
                "in init()"
            };
            let message = match &cause {
                Cause::Died { how } => format!("the worker died {when}: {how}"),
                other => other.to_string(),
            };
            note_error(
                &self.site,
                &self.node,
                worker.number,
                None,
                message.as_bytes(),
                b"",
            );
            self.init_failed(&message);
        }
        worker.drop_work();
        if worker.closed.is_none() {
            let _ = rustix::event::epoll::delete(cx.epoll, &worker.channel);
        }
        let _ = rustix::event::epoll::delete(cx.epoll, &worker.pidfd);
        let (site, slot, number, pid) = (
            self.site.clone(),
            self.slot,
            worker.number,
            worker.child.id(),
        );
        cx.news.run(move || {
            site.cage.kill_part(&Self::part(number), pid);
            News::WorkerGone { slot, number }
        });
        self.dying.push(worker);
        // What it had waiting goes to a neighbour that is idle now.
        self.feed_all(mail, cx.now);
    }

    /// One more read of a dead worker's channel: `Ok(true)` when it brought something.
    fn heard_more(
        &mut self,
        at: usize,
        mail: &mut Mail,
        cx: &mut Context<'_>,
    ) -> Result<bool, String> {
        let before = (self.workers[at].with_it().len(), self.workers[at].ready);
        let open = self.read(at, mail, cx)?;
        let after = (self.workers[at].with_it().len(), self.workers[at].ready);
        Ok(open && before != after)
    }

    /// A worker's tree is gone: its last words are read, and another takes its place.
    pub fn worker_gone(&mut self, number: u32, cx: &mut Context<'_>) {
        if let Some(at) = self.dying.iter().position(|w| w.number == number) {
            let mut worker = self.dying.swap_remove(at);
            let _ = worker.child.wait(); // dead by now: this does not block
            for pump in worker.pumps.iter_mut().flatten() {
                pump.drain(cx.buffer);
            }
        }
        self.replace(cx);
    }

    /// The next moment at which something is due.
    pub fn due(&self) -> Option<Instant> {
        let limits = self.workers.iter().filter_map(|w| self.limit_of(w));
        let watch = self.site.cage.needs_watcher().then_some(self.next_watch);
        limits.chain(watch).min()
    }

    fn limit_of(&self, worker: &Worker) -> Option<Instant> {
        if worker.closed.is_some() {
            return worker.closed;
        }
        let timeout = Duration::from_millis(self.pool.timeout_ms);
        match (worker.ready, worker.with_it().is_empty()) {
            (false, _) => Some(worker.since + timeout * 3 + INIT_EXTRA),
            (true, false) => Some(worker.since + timeout),
            (true, true) => None,
        }
    }

    /// Ends what has run too long or grown too large.
    pub fn on_time(&mut self, mail: &mut Mail, cx: &mut Context<'_>) {
        while let Some(at) = self
            .workers
            .iter()
            .position(|w| self.limit_of(w).is_some_and(|l| l <= cx.now))
        {
            if self.workers[at].closed.is_some() {
                self.died(at, None, mail, cx);
                continue;
            }
            // An answer may lie in the channel: the worker was in time then, and we were late.
            if let Ok(true) = self.heard_more(at, mail, cx) {
                let most = self.share(mail);
                self.feed(at, most, mail, cx.now);
                continue;
            }
            if !self.workers[at].ready {
                self.workers[at].init_counted = true;
                let limit = Duration::from_millis(self.pool.timeout_ms) * 3 + INIT_EXTRA;
                self.init_failed(&format!("init() took longer than {} s", limit.as_secs()));
            }
            let limit = Millis(self.pool.timeout_ms);
            self.died(at, Some(Cause::TimedOut { limit }), mail, cx);
        }
        if self.site.cage.needs_watcher() && cx.now >= self.next_watch {
            self.next_watch = cx.now + WATCH;
            self.watch_memory(mail, cx);
        }
    }

    /// The largest worker goes when all together exceed the limit, as the kernel would choose.
    fn watch_memory(&mut self, mail: &mut Mail, cx: &mut Context<'_>) {
        let limit = self.site.cage.memory();
        let sizes = self.workers.iter().map(|w| confine::resident(w.child.id()));
        let sizes: Vec<u64> = sizes.collect();
        if sizes.iter().sum::<u64>() <= limit {
            return;
        }
        if let Some((at, _)) = sizes.iter().enumerate().max_by_key(|(_, size)| **size) {
            let limit = Bytes(limit);
            self.died(at, Some(Cause::OutOfMemory { limit }), mail, cx);
        }
    }

    /// Whether a worker has something to run.
    pub fn busy(&self) -> bool {
        self.workers.iter().any(|w| !w.with_it().is_empty())
    }

    /// What has begun and is not answered, and whether everything given has begun.
    fn started(&self) -> (Ranges, bool) {
        let mut all = Vec::new();
        let mut whole = true;
        for worker in self.workers.iter().filter(|w| !w.with_it().is_empty()) {
            let begun = worker.begun();
            all.extend_from_slice(&worker.with_it()[..begun]);
            whole &= begun > 0;
        }
        all.sort_unstable();
        (all.into_iter().collect(), whole)
    }

    /// What has begun, to be told with a message: nothing new is due until another index is given.
    pub fn tell_started(&mut self, now: Instant) -> Ranges {
        let (started, whole) = self.started();
        // A worker that has not got to its index yet is looked at again.
        self.begun = (!whole).then_some(now);
        self.told = started;
        self.told.clone()
    }

    /// When the server should hear that something began.
    pub fn started_due(&self) -> Option<Instant> {
        self.begun.map(|b| b + super::outbox::AGE)
    }

    /// Whether what runs differs from what was told.
    pub fn started_changed(&self) -> bool {
        self.started().0 != self.told
    }

    /// How long its workers may take to end. One that is in the midst of `run()` is given up with the job: nothing that it
    /// would still do counts.
    pub fn grace(&self) -> Duration {
        match self.pool.shutdown && !self.busy() {
            true => SHUTDOWN_GRACE,
            false => POOL_GRACE,
        }
    }

    /// Asks every worker to end.
    pub fn ask_to_end(&mut self) {
        self.stopping = true;
        for worker in &self.workers {
            worker.ask_to_end();
        }
    }

    /// Whether this is one of its workers.
    pub fn holds(&self, pid: u32) -> bool {
        let mut all = self.workers.iter().chain(&self.dying);
        all.any(|w| w.child.id() == pid)
    }

    /// Whether no process of the pool is left.
    pub fn empty(&self) -> bool {
        self.workers.is_empty() && self.dying.is_empty() && self.launching == 0
    }

    /// Whether a worker is being started: its process must not be missed by a kill.
    pub fn launching(&self) -> bool {
        self.launching > 0
    }

    /// After the cage was emptied: reaps everybody and reads their last words.
    pub fn bury(&mut self, mail: &mut Mail, cx: &mut Context<'_>) {
        for mut worker in self.workers.drain(..).chain(self.dying.drain(..)) {
            let begun = worker.begun();
            for index in worker.with_it()[begun..].iter().rev() {
                mail.put_back(*index);
            }
            let _ = worker.child.wait();
            for pump in worker.pumps.iter_mut().flatten() {
                pump.drain(cx.buffer);
            }
        }
    }
}

fn pump(worker: &mut Worker, what: u64, cx: &mut Context<'_>) {
    let pump = &mut worker.pumps[usize::from(what == ERR)];
    if let Some(p) = pump
        && !p.take(cx.buffer)
    {
        let _ = rustix::event::epoll::delete(cx.epoll, &p.pipe);
        *pump = None;
    }
}

/// Message and traceback of an exception.
fn split(payload: &[u8]) -> (&[u8], &[u8]) {
    match payload.iter().position(|b| *b == 0) {
        Some(at) => (&payload[..at], &payload[at + 1..]),
        None => (payload, b""),
    }
}

/// Adds to `logs/user/error/<node>/processNNN.txt`.
fn note_error(
    site: &Site,
    node: &str,
    number: u32,
    index: Option<u32>,
    message: &[u8],
    trace: &[u8],
) {
    let name = PoolRun::part(number);
    let path = format!("logs/user/error/{node}/{name}.txt");
    let mut log = LogFile::new(site.order.artifacts.join(path));
    let mut text = match index {
        Some(index) => format!("mini-batch {index}: ").into_bytes(),
        None => b"init: ".to_vec(),
    };
    text.extend_from_slice(message);
    text.push(b'\n');
    text.extend_from_slice(trace);
    log.write(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_runs_when_its_input_is_here_and_all_of_it_can_be_given_back() {
        let now = Instant::now();
        let mut mail = Mail {
            elsewhere: true,
            ..Mail::default()
        };
        assert!(mail.lend(1, &Ranges::span(0, 50)));
        assert!(!mail.lend(1, &Ranges::span(0, 50)), "it came before");
        assert!(mail.lend(2, &Ranges::span(60, 100)));
        assert_eq!(mail.lent, 2, "told at once, whatever has come");
        assert_eq!(mail.take(), None, "nothing is here");

        let first = mail.next_to_bring();
        assert_eq!(first, [(0, 32)]);
        assert!(mail.brought(&first));
        assert_eq!(mail.take(), Some(0));
        let second = mail.next_to_bring();
        assert_eq!(second, [(32, 50), (60, 74)]);

        // Given back while some of it is on its way: each index once.
        mail.give_back(now);
        assert!(!mail.brought(&second));
        assert_eq!(mail.take(), None);
        assert!(mail.next_to_bring().is_empty());
        let parcel = mail.outbox.close().unwrap();
        let spans = parcel.returned.spans().to_vec();
        assert_eq!(spans, [(1, 50), (60, 100)]);
    }

    #[test]
    fn input_is_brought_a_piece_ahead_of_what_runs() {
        let mut mail = Mail {
            elsewhere: true,
            ..Mail::default()
        };
        mail.lend(1, &Ranges::span(0, 1000));
        let mut brought = 0;
        loop {
            let spans = mail.next_to_bring();
            if spans.is_empty() {
                break;
            }
            mail.brought(&spans);
            brought += BROUGHT_AT_ONCE;
        }
        assert_eq!(brought, BROUGHT_AHEAD);
        mail.take();
        assert!(!mail.next_to_bring().is_empty());
    }
}
