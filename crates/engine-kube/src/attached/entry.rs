//! A task or node of the compute: what is known of its pod, and what is to be done about it.
//!
//! A node is shown until its pod is gone, or until it is certain that it is lost: from then on its agent is not listened to,
//! and what is left of the pod is removed without anybody asking. A task is shown with its end until it is forgotten.

use super::{Attached, operation::Next};
use crate::{
    ask::Failed,
    name,
    phase::{Look, State},
    pod::GRACE_S,
    record::{Key, Record},
    trouble::Kind,
};
use k8s_openapi::api::core::v1::Pod;
use model::{Action, Exit, Millis, NodeId, Phase, TaskId, Time};
use port::{Clock, Machine as Wall};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// An image that does not come within this is given up: registries come back within minutes, wrong names never do.
pub const IMAGE_LIMIT: Duration = Duration::from_secs(300);
/// An agent that does not connect within this, while its container runs, cannot reach us.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(120);
/// A pod that was made and that no watch has shown is looked for after this.
const UNSEEN: Duration = Duration::from_secs(20);
/// A machine that the watch does not show is asked for after this: the pod's news may be ahead of the machine's.
const MACHINE_UNSEEN: Duration = Duration::from_secs(2);
/// A machine that is not ready for so long, with an agent that is silent too, is lost: Kubernetes itself waits for minutes.
const NOT_READY: Duration = Duration::from_secs(30);
/// What an agent has told just before its pod ended is on the way for so long.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// An agent has this long to end a task that it was told to stop: its grace, and time to bring the outputs home.
const STOP_LIMIT: Duration = Duration::from_secs(90);
/// An agent that was told to forget has this long to end by itself, with the exit code of the program.
const FAREWELL: Duration = Duration::from_secs(3);

/// Whether the pod is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// Not yet; to be tried then.
    Wanted {
        /// When.
        at: Instant,
        /// The pause after the next refusal.
        pause: Duration,
    },
    /// It was made, or may have been by a server before us.
    Made {
        /// When we learned of it.
        at: Instant,
    },
}

/// A pod that is wanted, or was.
pub struct Entry {
    /// What is on disk about it.
    pub record: Record,
    /// Name of its pod and of its secret.
    pub name: String,
    /// Who its agent says to be.
    pub node: NodeId,
    /// Whether the pod is made.
    pub make: Make,
    /// The machine that it is on.
    pub machine: Option<Box<str>>,
    ip: Option<Box<str>>,
    /// An operation is under way for it.
    pub busy: bool,
    /// Pod and secret are removed.
    pub removed: bool,
    /// Nobody wants it any longer.
    pub forgotten: bool,
    stop: Option<Instant>,
    /// To be taken away, at the latest then.
    pub evict: Option<Time>,
    /// Being taken away, and until when it has.
    notice: Option<Time>,
    seen: bool,
    absent: bool,
    machine_absent: bool,
    going: Option<Box<str>>,
    ended: Option<Exit>,
    connected: bool,
    image_since: Option<Instant>,
    running_since: Option<Instant>,
    over_since: Option<Instant>,
    machine_since: Option<Instant>,
    ill_since: Option<Instant>,
    farewell: Option<Instant>,
    trouble: Option<Box<str>>,
}

/// What an agent says.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// It is connected.
    pub up: bool,
    /// The end of the task, when it has told it.
    pub exit: Option<Exit>,
}

/// The machine of a pod.
enum Machine {
    Fine,
    Ill(Box<str>),
    Unknown,
}

fn since(mark: &mut Option<Instant>, now: Instant) -> Duration {
    now.duration_since(*mark.get_or_insert(now))
}

impl Entry {
    fn new(server: &str, record: Record, now: Instant) -> Option<Entry> {
        let compute = record.compute()?.clone();
        let key = record.key();
        Some(Entry {
            name: name::of(server, &key),
            node: match &key {
                Key::Task(task) => name::node(&compute, task),
                Key::Node(node) => node.clone(),
            },
            make: if record.tried {
                Make::Made { at: now }
            } else {
                Make::Wanted {
                    at: now,
                    pause: Duration::from_secs(1),
                }
            },
            record,
            machine: None,
            ip: None,
            busy: false,
            removed: false,
            forgotten: false,
            stop: None,
            evict: None,
            notice: None,
            seen: false,
            absent: false,
            machine_absent: false,
            going: None,
            ended: None,
            connected: false,
            image_since: None,
            running_since: None,
            over_since: None,
            machine_since: None,
            ill_since: None,
            farewell: None,
            trouble: None,
        })
    }

    /// It is over for us (L3). The first end stands.
    pub fn end(&mut self, exit: Exit) {
        self.ended.get_or_insert(exit);
    }

    /// It was looked for.
    pub fn found(&mut self, result: Result<Option<Box<Pod>>, Failed>) {
        match result {
            Ok(Some(_)) => self.make = Make::Made { at: Instant::now() }, // the watch is late
            Ok(None) => self.absent = true,
            Err(failed) => self.told_trouble(&failed.words),
        }
    }

    /// Its machine was looked for. A role that may not look leaves the watch's word.
    pub fn machine_found(&mut self, result: Result<bool, Failed>) {
        match result {
            Ok(true) => self.machine_since = None,
            Ok(false) => self.machine_absent = true,
            Err(failed) if failed.kind == Kind::Forbidden => self.machine_absent = true,
            Err(failed) => self.told_trouble(&failed.words),
        }
    }

    /// Says in the log what keeps going wrong, once.
    pub fn told_trouble(&mut self, words: &str) {
        if self.trouble.as_deref() != Some(words) {
            tracing::warn!("pod {}: {words}", self.name);
            self.trouble = Some(words.into());
        }
    }

    /// What its pod says, and what is to be done.
    fn judge(
        &mut self,
        now: Instant,
        look: Option<&Look>,
        whole: bool,
        machine: Machine,
        agent: &Agent,
        url: &str,
    ) -> (Option<Phase>, Option<Next>) {
        self.connected |= agent.up || agent.exit.is_some();
        let made = match self.make {
            Make::Wanted { at, .. } => return (None, (at <= now).then_some(Next::Create)),
            Make::Made { at } => at,
        };
        let Some(look) = look else {
            if self.seen || self.absent {
                let why = self.going.take();
                self.end(Exit::Lost {
                    why: why.unwrap_or_else(|| "its pod is not there any more".into()),
                });
                return (None, None);
            }
            let overdue = whole && now.duration_since(made) > UNSEEN;
            return (None, overdue.then_some(Next::Find));
        };
        self.look(look);
        let lost = self.lost_machine(now, &machine, agent);
        if let Some(next) = lost {
            return (None, next);
        }
        (self.stage(now, look, agent, url), None)
    }

    fn look(&mut self, look: &Look) {
        self.seen = true;
        if look.going.is_some() {
            self.going.clone_from(&look.going);
        }
        self.machine.clone_from(&look.node);
    }

    /// Whether its machine is gone or ill for too long; `Some` ends the judgement of the pod.
    fn lost_machine(
        &mut self,
        now: Instant,
        machine: &Machine,
        agent: &Agent,
    ) -> Option<Option<Next>> {
        let name = self.machine.clone()?;
        if self.machine_absent {
            self.end(Exit::Lost {
                why: format!("its machine {name} is gone").into(),
            });
            return Some(None);
        }
        match machine {
            Machine::Fine => {
                (self.machine_since, self.ill_since) = (None, None);
                None
            }
            Machine::Unknown => {
                let overdue = since(&mut self.machine_since, now) > MACHINE_UNSEEN;
                overdue.then_some(Some(Next::Machine))
            }
            Machine::Ill(why) => {
                if since(&mut self.ill_since, now) > NOT_READY && !agent.up {
                    self.end(Exit::Lost {
                        why: format!("its machine {name} is not ready: {why}").into(),
                    });
                    return Some(None);
                }
                None
            }
        }
    }

    fn stage(&mut self, now: Instant, look: &Look, agent: &Agent, url: &str) -> Option<Phase> {
        match &look.state {
            State::Unscheduled { why } => Some(Phase::Pending { why: why.clone() }),
            State::NoImage { why, hopeless } => {
                if *hopeless || since(&mut self.image_since, now) > IMAGE_LIMIT {
                    self.end(Exit::NotStarted {
                        message: why.clone(),
                    });
                    return None;
                }
                Some(Phase::Pending { why: why.clone() })
            }
            State::Creating { what } => Some(Phase::Preparing { what: what.clone() }),
            State::Running => {
                if !self.connected && since(&mut self.running_since, now) > CONNECT_LIMIT {
                    self.end(Exit::NotStarted {
                        message: format!(
                            "pod {} runs, but does not reach this server at {url}",
                            self.name
                        )
                        .into(),
                    });
                    return None;
                }
                Some(Phase::Preparing {
                    what: "its agent connects".into(),
                })
            }
            State::Ended(exit) => {
                if agent.up && since(&mut self.over_since, now) < LAST_WORDS {
                    return None;
                }
                let exit = match (exit, &self.going, self.connected) {
                    (Exit::OutOfMemory { .. } | Exit::NotStarted { .. }, _, _) => exit.clone(),
                    (_, Some(why), _) => Exit::Lost { why: why.clone() },
                    (_, None, false) => Exit::NotStarted {
                        message: format!(
                            "pod {} ended before its agent had connected: {exit}: {}",
                            self.name, look.words
                        )
                        .into(),
                    },
                    (_, None, true) => exit.clone(),
                };
                self.end(exit);
                None
            }
            State::Taken { why } => {
                if agent.up && since(&mut self.over_since, now) < LAST_WORDS {
                    return None;
                }
                self.end(Exit::Lost { why: why.clone() });
                None
            }
        }
    }
}

impl Attached {
    /// Takes in a task or node.
    pub fn start(&mut self, record: Record) {
        let key = record.key();
        if self.entries.contains_key(&key) || self.detaching {
            return;
        }
        let Some(entry) = Entry::new(&self.given.settings.server, record, Instant::now()) else {
            return;
        };
        let shared = &self.given.shared;
        shared.expect(&entry.node, &entry.record);
        self.by_name.insert(entry.name.clone(), key.clone());
        self.touched.insert(key.clone());
        self.entries.insert(key, entry);
    }

    /// Ends a task, or lets a node go.
    pub fn stop(&mut self, key: &Key) {
        self.touched.insert(key.clone());
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        match key {
            Key::Task(_) => {
                entry.stop.get_or_insert_with(Instant::now);
            }
            Key::Node(_) => {
                entry.end(Exit::Stopped);
                entry.forgotten = true;
            }
        }
    }

    /// Takes a node away. What is not made yet is let go at once.
    pub fn evict(&mut self, key: &Key, by: Time) {
        self.touched.insert(key.clone());
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        match entry.make {
            Make::Made { .. } if entry.notice.is_none_or(|known| by < known) => {
                (entry.evict, entry.notice) = (Some(by), Some(by));
                self.given.shared.notice(&entry.node, by);
            }
            Make::Made { .. } => {}
            Make::Wanted { .. } => entry.end(Exit::Stopped),
        }
    }

    /// Drops a task that is over.
    pub fn forget(&mut self, key: &Key) {
        self.touched.insert(key.clone());
        let (Some(entry), Key::Task(task)) = (self.entries.get_mut(key), key) else {
            return;
        };
        if entry.ended.is_none() {
            // Kept here: the agent will not repeat it.
            self.given.shared.hear_agents();
            entry.ended = self.given.shared.agent(&entry.node, Some(task)).exit;
        }
        if let Some(exit) = entry.ended.clone() {
            entry.forgotten = true;
            self.given.shared.show(key, Phase::Exited(exit));
        }
    }

    /// What a pod that goes away said last.
    pub fn last_look(&mut self, name: &str, look: Look) {
        let key = self.by_name.get(name);
        if let Some(entry) = key.and_then(|key| self.entries.get_mut(key)) {
            entry.look(&look);
            entry.stage(Instant::now(), &look, &Agent::default(), "");
        }
    }

    /// Looks at what has news, and at what waits while something may be asked (L5).
    pub fn review_touched(&mut self, now: Instant) {
        if !self.touched.is_empty() || !self.waiting.is_empty() {
            self.given.shared.hear_agents();
        }
        for key in std::mem::take(&mut self.touched) {
            self.consider(&key, now);
        }
        while self.may_ask(now)
            && let Some(key) = self.waiting.pop_first()
        {
            self.consider(&key, now);
        }
    }

    /// Looks at everything, and begins what is to be done.
    pub fn review(&mut self, now: Instant) {
        self.given.shared.hear_agents();
        let keys: Vec<Key> = self.entries.keys().cloned().collect();
        for key in keys {
            self.consider(&key, now);
        }
        if self.define_at.is_some_and(|at| at <= now) && !self.defining && self.may_ask(now) {
            self.define();
        }
        if self.narrowed.is_some_and(|at| at <= now) && !self.widening && self.may_ask(now) {
            self.widen();
        }
        if self.ours.whole {
            self.sweeping.retain(|name| self.ours.get(name).is_some());
            let known: BTreeSet<&str> = self.entries.values().map(|e| e.name.as_str()).collect();
            let strays: Vec<Box<str>> = self
                .ours
                .iter()
                .map(|(name, _)| name)
                .filter(|name| !known.contains(&***name) && !self.sweeping.contains(*name))
                .cloned()
                .collect();
            for name in strays {
                if self.may_ask(now) {
                    self.sweep(&name);
                }
            }
        }
    }

    fn consider(&mut self, key: &Key, now: Instant) {
        let may = self.may_ask(now);
        let shared = self.given.shared.clone();
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let task = match key {
            Key::Task(task) => Some(task),
            Key::Node(_) => None,
        };
        let agent = shared.agent(&entry.node, task);
        let look = self.ours.get(&entry.name);
        let mut next = None;
        if entry.ended.is_none() && agent.exit.is_none() && !entry.forgotten {
            let machine = entry
                .machine
                .as_deref()
                .or(look.and_then(|l| l.node.as_deref()));
            let machine = match machine.map(|name| self.known.machines.get(name)) {
                Some(Some(machine)) => match &machine.not_ready {
                    Some(why) => Machine::Ill(why.clone()),
                    None => Machine::Fine,
                },
                Some(None) if self.known.machines.whole => Machine::Unknown,
                Some(None) | None => Machine::Fine,
            };
            let url = &self.given.settings.connect;
            let (phase, wanted) = entry.judge(now, look, self.ours.whole, machine, &agent, url);
            if let Some(phase) = phase {
                shared.show(key, phase);
            }
            next = wanted;
            match task {
                Some(task) => {
                    if let Some(ip) = look.and_then(|l| l.ip.as_ref())
                        && entry.ip.as_ref() != Some(ip)
                    {
                        entry.ip = Some(ip.clone());
                        shared.address(task, ip);
                    }
                    entry.stopping(now, &agent, task, &shared);
                }
                None => next = entry.taking(look, &shared).or(next),
            }
        }
        if let Some(exit) = entry.ended.clone()
            && agent.exit.is_none()
            && !entry.forgotten
        {
            shared.release(&entry.node); // L3
            let broken = matches!(
                exit,
                Exit::NotStarted { .. } | Exit::OutOfMemory { .. } | Exit::Init { .. }
            );
            if task.is_some() || broken {
                shared.show(key, Phase::Exited(exit));
            } else {
                shared.hide_node(&entry.node, &self.given.records);
                entry.forgotten = true;
            }
        }
        if entry.forgotten {
            // Nothing was made, or there is no way to what was.
            entry.removed |=
                !entry.busy && (!entry.record.tried || (self.way.is_none() && self.detaching));
            if entry.removed {
                shared.release(&entry.node);
                match task {
                    Some(task) => shared.forget(task),
                    None => shared.hide_node(&entry.node, &self.given.records),
                }
                self.given.records.remove(key);
                self.sweeping.insert(entry.name.as_str().into()); // gone when the watch says so
                self.by_name.remove(&entry.name);
                self.entries.remove(key);
                return;
            }
            next = entry.leave(now, look, &agent, task, &shared);
        }
        let Some(next) = next.filter(|_| !entry.busy) else {
            return;
        };
        if next == Next::Create && !self.may_make(now) {
            return self.held_back(key); // looked at again with everything
        }
        if may {
            self.begin(key, next);
        } else {
            self.waiting.insert(key.clone());
        }
    }
}

impl Entry {
    /// Told to stop: the agent is asked; where there is none to ask, it is over.
    fn stopping(&mut self, now: Instant, agent: &Agent, task: &TaskId, shared: &crate::Shared) {
        let Some(asked) = self.stop else { return };
        if self.busy && matches!(self.make, Make::Wanted { .. }) {
            return; // being made: what comes of it is seen first
        }
        if agent.up && now.duration_since(asked) < STOP_LIMIT {
            shared.tell_agent(Action::Stop(task.clone()));
        } else {
            self.end(Exit::Stopped);
        }
    }

    /// A node under notice, by us or by others: it is shown, and taken when its pod was not told yet.
    fn taking(&mut self, look: Option<&Look>, shared: &crate::Shared) -> Option<Next> {
        let now = Wall.now();
        if let Some(look) = look.filter(|l| l.going.is_some()) {
            let grace = look.grace.unwrap_or(GRACE_S.unsigned_abs());
            let by = now + Millis::secs(grace);
            if self.notice.is_none_or(|known| by < known) {
                self.notice = Some(by);
                shared.notice(&self.node, by);
            }
        }
        let by = self.evict?;
        let seconds = by.since(now).0.div_ceil(1000).max(1);
        Some(Next::Evict {
            seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
        })
    }

    /// Forgotten: the agent is let go first, so that its container ends as the program did; then everything is removed.
    fn leave(
        &mut self,
        now: Instant,
        look: Option<&Look>,
        agent: &Agent,
        task: Option<&TaskId>,
        shared: &crate::Shared,
    ) -> Option<Next> {
        let over = look.is_none_or(|l| matches!(l.state, State::Ended(_) | State::Taken { .. }));
        let gone = self.machine_absent || self.ill_since.is_some();
        let told = agent.exit.is_some() || self.farewell.is_some();
        if let Some(task) = task
            && told
            && !over
            && !gone
            && since(&mut self.farewell, now) < FAREWELL
        {
            shared.tell_agent(Action::Forget(task.clone()));
            return None;
        }
        Some(Next::Remove { now: gone })
    }
}
