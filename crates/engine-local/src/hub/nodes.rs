//! The hub's nodes: bringing up, adopting, taking away.

use super::{Hub, News, PROCESS, SILENCE, TICK, token};
use crate::{
    hub::OWN_GAP,
    node,
    protocol::{Down, NodeConfig, Pod, Report, Role},
    record::{self, AgentRecord},
};
use model::{
    NodeId, NodeSpec, Time,
    engine::{Exit, NodeSeen},
};
use port::{Clock, Machine};
use rustix::event::epoll;
use std::{
    collections::BTreeSet,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::PathBuf,
    process::Child,
    sync::Arc,
    time::{Duration, Instant},
};

/// An agent that was asked to leave and does not is killed after this.
const LEAVE: Duration = Duration::from_secs(3);
/// An agent has this long from its start to its first word: it waits for nothing, but a loaded machine may be slow.
const BOOT: Duration = Duration::from_secs(15);

/// Reads of a dead agent's connection: more than all that a full socket can hold.
const LAST_READS: usize = 64;

/// A node and its agent.
pub struct Node {
    dir: PathBuf,
    config: Option<NodeConfig>,
    record: Option<AgentRecord>,
    child: Option<Child>,
    pidfd: Option<Arc<OwnedFd>>,
    process: Option<u32>,
    /// Its connection.
    pub peer: Option<u32>,
    /// When it was last heard, or started.
    pub heard: Instant,
    up: bool,
    /// Whether its agent ever spoke.
    pub ever_up: bool,
    broken: Option<Box<str>>,
    evict: Option<(Time, Instant)>,
    leave_by: Option<Instant>,
    dying: bool,
    /// GPUs that it holds.
    pub gpus: Vec<u32>,
    /// The task, when it is a pod.
    pub pod: Option<Pod>,
    /// How that ends when its agent is dead.
    pub end: Option<Exit>,
    /// Its agent is on another machine: others say when it is gone.
    pub guest: bool,
    /// It takes any task, not one that it was made for.
    pub whole: bool,
}

impl Node {
    fn new(dir: PathBuf, now: Instant) -> Node {
        Node {
            dir,
            config: None,
            record: None,
            child: None,
            pidfd: None,
            process: None,
            peer: None,
            heard: now,
            up: false,
            ever_up: false,
            broken: None,
            evict: None,
            leave_by: None,
            dying: false,
            gpus: Vec::new(),
            pod: None,
            end: None,
            guest: false,
            whole: true,
        }
    }
    /// A node whose agent will come from another machine; `whole` for one that takes any task.
    pub fn guest(now: Instant, whole: bool) -> Node {
        Node {
            guest: true,
            whole,
            ..Node::new(PathBuf::new(), now)
        }
    }
    fn configure(&mut self, config: NodeConfig) {
        if let Role::Pod(pod) = &config.role {
            self.pod = Some(pod.as_ref().clone());
        }
        self.config = Some(config);
    }
    /// How its dead agent ended, and whether somebody killed it.
    pub fn how_it_ended(&mut self) -> (String, bool) {
        let status = self
            .child
            .as_mut()
            .and_then(|c| c.try_wait().ok().flatten());
        let signal = status.and_then(|s| s.signal());
        match (status.and_then(|s| s.code()), signal) {
            (_, Some(signal)) => (format!("was killed by signal {signal}"), true),
            (Some(code), None) => (format!("ended with exit code {code}"), false),
            (None, None) => ("ended".to_owned(), false), // another server's child: nobody tells us
        }
    }
    /// What its agent has said on its log, behind a colon.
    pub fn last_words(&self) -> String {
        match node::last_words(&self.dir) {
            words if words.is_empty() => words,
            words => format!(": {words}"),
        }
    }
    /// As the control plane sees it.
    pub fn seen(&self) -> NodeSeen {
        match (&self.broken, self.evict, self.up) {
            (Some(why), _, _) => NodeSeen::Broken { why: why.clone() },
            (None, Some((by, _)), _) => NodeSeen::Evicting { by },
            (None, None, true) => NodeSeen::Up,
            (None, None, false) => NodeSeen::Booting { why: None },
        }
    }
    /// The connection of a guest is over.
    pub fn leave(&mut self) {
        self.up = false;
    }
    /// Whether tasks may be given to it.
    pub fn takes_tasks(&self) -> bool {
        !self.dying && self.broken.is_none()
    }
}

impl Hub {
    /// Finds the nodes of a server before us: the living are waited for, the dead are buried.
    pub fn find(&mut self, now: Instant) -> std::io::Result<()> {
        for (dir, config) in self.ground.scan()? {
            let config = match config {
                Ok(config) => config,
                Err(e) => {
                    // Begun and never written whole: no process was started from it (node.rs M1).
                    tracing::warn!("{}: {e}; removed", dir.display());
                    node::remove(&dir);
                    continue;
                }
            };
            let id = config.node.clone();
            let mut found = Node::new(dir, now);
            for gpu in &config.gpus {
                self.free_gpus.remove(gpu);
            }
            found.gpus.clone_from(&config.gpus);
            found.configure(config);
            found.record = record::read_agent(&found.dir);
            if found.pod.is_none() {
                self.dirty_nodes.insert(id.clone());
            }
            match node::living(&found.dir) {
                Some((_, pidfd)) => {
                    found.ever_up = true;
                    self.unsettled.insert(id.clone());
                    self.nodes.insert(id.clone(), found);
                    self.watch(&id, pidfd)?;
                }
                None => {
                    self.unsettled.insert(id.clone());
                    self.nodes.insert(id.clone(), found);
                    self.destroy(&id);
                }
            }
        }
        Ok(())
    }

    fn watch(&mut self, id: &NodeId, pidfd: OwnedFd) -> std::io::Result<()> {
        let number = self.number();
        let data = epoll::EventData::new_u64(token(PROCESS, number));
        epoll::add(&self.epoll, &pidfd, data, epoll::EventFlags::IN)?;
        self.processes.insert(number, id.clone());
        if let Some(node) = self.nodes.get_mut(id) {
            node.pidfd = Some(Arc::new(pidfd));
            node.process = Some(number);
        }
        Ok(())
    }

    /// Brings up a node of a cluster.
    pub fn add(&mut self, id: NodeId, spec: &NodeSpec, now: Instant) {
        if self.nodes.contains_key(&id) {
            return;
        }
        self.dirty_nodes.insert(id.clone());
        self.bring_up(id, Role::Node(spec.clone()), spec.size.gpus, now);
    }

    /// Starts an agent. It gets as many of `gpus` as are free; the others are nominal.
    pub fn bring_up(&mut self, id: NodeId, role: Role, gpus: u32, now: Instant) {
        let mut new = Node::new(self.ground.nodes.join(node::key(&id)), now);
        if let Role::Pod(pod) = &role {
            new.pod = Some(pod.as_ref().clone());
        }
        let wanted = usize::try_from(gpus).unwrap_or(0);
        new.gpus = self.free_gpus.iter().copied().take(wanted).collect();
        for gpu in &new.gpus {
            self.free_gpus.remove(gpu);
        }
        match self.ground.spawn(&id, role, &new.gpus) {
            Ok((_, config, child)) => {
                let pidfd = crate::proc::start_of(child.id())
                    .and_then(|start| crate::proc::open(child.id(), start));
                new.configure(config);
                new.child = Some(child);
                self.nodes.insert(id.clone(), new);
                match pidfd {
                    Some(fd) => {
                        if let Err(e) = self.watch(&id, fd) {
                            self.breaks(&id, &format!("its agent cannot be watched: {e}"));
                        }
                    }
                    // Dead already.
                    None if self.pod_process_ended(&id) => {}
                    None => self.breaks(&id, "its agent ended at once"),
                }
            }
            Err(e) => {
                self.nodes.insert(id.clone(), new);
                self.breaks(&id, &format!("its agent cannot be started: {e}"));
            }
        }
    }

    fn breaks(&mut self, id: &NodeId, why: &str) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let why: Box<str> = format!("{why}{}", node.last_words()).into();
        let message = why.clone();
        if self.end_pod(id, Exit::NotStarted { message }) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.broken = Some(why);
            self.dirty_nodes.insert(id.clone());
        }
    }

    /// Lets a node go.
    pub fn let_go(&mut self, id: &NodeId, now: Instant) {
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        if node.leave_by.is_some() || node.dying {
            return;
        }
        node.leave_by = Some(now + LEAVE);
        if !self.send(id, &Down::Leave) {
            self.destroy(id);
        }
    }

    /// Takes a node away, at `by` or at once.
    pub fn evict(&mut self, id: &NodeId, by: Time, now: Instant) {
        let left = by.since(Machine.now());
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        if left.0 == 0 {
            return self.destroy(id);
        }
        if node.evict.is_some_and(|(before, _)| before <= by) {
            return;
        }
        node.evict = Some((by, now + Duration::from_millis(left.0)));
        self.dirty_nodes.insert(id.clone());
        self.send(id, &Down::Notice { in_ms: left.0 });
    }

    /// Kills a node with all that it runs; it is absent when that is done.
    pub fn destroy(&mut self, id: &NodeId) {
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        if node.dying {
            return;
        }
        node.dying = true;
        if let Some(peer) = node.peer.take() {
            self.peers.remove(&peer);
        }
        if let Some(number) = node.process.take() {
            self.processes.remove(&number);
        }
        let pidfd = node.pidfd.take();
        if let Some(fd) = &pidfd {
            let _ = epoll::delete(&self.epoll, fd.as_ref());
        }
        let (child, config, dir) = (node.child.take(), node.config.clone(), node.dir.clone());
        let (shared, id) = (self.shared.clone(), id.clone());
        let end = move || {
            node::end_agent(pidfd.as_deref(), child);
            if let Some(config) = config {
                // Read again: the agent may have taken its uid since we looked.
                node::end_rest(&config, record::read_agent(&dir));
            }
            // Out of the way before the node is absent, so that a new server does not find it; emptied after.
            let rest = node::retire(&dir);
            shared.news(News::Dead(id));
            node::remove(&rest);
        };
        if let Err(e) = std::thread::Builder::new()
            .name("node-end".into())
            .spawn(end)
        {
            // What is not done now is done by the next server's scan; the node stays visible until then.
            tracing::error!("a node cannot be ended: {e}");
        }
    }

    /// A node and everything it ran are dead (H2).
    pub fn dead(&mut self, id: &NodeId) {
        self.unsettled.remove(id);
        if let Some(node) = self.nodes.remove(id) {
            self.free_gpus.extend(&node.gpus);
            if node.pod.is_some() {
                return self.pod_dead(id, node);
            }
        }
        let gone: Vec<_> = self
            .tasks
            .iter()
            .filter(|(_, entry)| entry.node == *id)
            .map(|(task, _)| task.clone())
            .collect();
        for task in gone {
            self.drop_task(&task);
        }
        self.dirty_nodes.insert(id.clone());
    }

    /// A watched process has ended.
    pub fn process_ended(&mut self, number: u32, now: Instant, buffer: &mut [u8]) {
        let Some(id) = self.processes.get(&number).cloned() else {
            return;
        };
        // What it had said before it died still counts.
        for _ in 0..LAST_READS {
            let Some(peer) = self.nodes.get(&id).and_then(|n| n.peer) else {
                break;
            };
            self.read(peer, now, buffer);
        }
        if self.pod_process_ended(&id) {
            return;
        }
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        if node.ever_up || node.leave_by.is_some() {
            self.destroy(&id);
        } else {
            // It never came up: the node is there and does not work.
            if let Some(fd) = self.nodes.get_mut(&id).and_then(|n| n.pidfd.take()) {
                let _ = epoll::delete(&self.epoll, fd.as_ref());
            }
            self.processes.remove(&number);
            self.breaks(&id, "its agent ended before it was ready");
        }
    }

    /// An agent said who it is. `false` refuses it.
    pub fn greeted(
        &mut self,
        number: u32,
        id: NodeId,
        process: (u32, u64),
        tasks: Vec<Report>,
        notice_ms: Option<u64>,
        now: Instant,
    ) -> bool {
        let Some(node) = self.nodes.get_mut(&id).filter(|n| !n.dying) else {
            return false;
        };
        let claimed = self.peers.get(&number).and_then(|p| p.guest.as_ref());
        if node.guest != claimed.is_some() || claimed.is_some_and(|claimed| *claimed != id) {
            tracing::warn!("node {id}: a connection that is not its agent's");
            return false;
        }
        let record = record::read_agent(&node.dir);
        if !node.guest && record.is_none_or(|r| (r.pid, r.start) != process) {
            tracing::warn!("node {id}: process {} is not its agent", process.0);
            return false;
        }
        node.record = record;
        node.heard = now;
        node.up = true;
        node.ever_up = true;
        node.broken = None;
        if let (Some(ms), None) = (notice_ms, node.evict) {
            let by = Machine.now() + model::Millis(ms);
            node.evict = Some((by, now + Duration::from_millis(ms)));
        }
        let notice = match (node.evict, notice_ms) {
            (Some((_, at)), None) => Some(at.saturating_duration_since(now)),
            _ => None,
        };
        if let Some(old) = node.peer.replace(number) {
            self.peers.remove(&old);
        }
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.node = Some(id.clone());
        }
        if self.nodes.get(&id).is_some_and(|n| n.pod.is_none()) {
            self.dirty_nodes.insert(id.clone());
        }
        self.send(&id, &Down::Welcome);
        if let Some(left) = notice {
            let in_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            self.send(&id, &Down::Notice { in_ms });
        }
        let known: BTreeSet<_> = tasks.iter().map(|r| r.task.clone()).collect();
        for report in tasks {
            self.reported(&id, report);
        }
        self.adopt_pod(&id);
        self.after_greeting(&id, &known);
        self.prepare_guests();
        true
    }

    /// It has told everything.
    pub fn told(&mut self, id: &NodeId) {
        self.unsettled.remove(id);
    }

    /// A connection is over; the agent may come back, or its process is found dead.
    pub fn hang_up(&mut self, number: u32, now: Instant) {
        let Some(peer) = self.peers.remove(&number) else {
            return;
        };
        if let Some(id) = peer.node
            && let Some(node) = self.nodes.get_mut(&id)
            && node.peer == Some(number)
        {
            node.peer = None;
            node.heard = node.heard.max(now);
            if node.guest {
                node.leave();
                self.dirty_nodes.insert(id.clone());
            }
            self.unsent(&id);
        }
    }

    /// When the loop must look again.
    pub fn due(&self) -> Instant {
        let evict = self
            .nodes
            .values()
            .filter(|n| !n.dying && !n.guest)
            .filter_map(|n| n.evict);
        let evict = evict.map(|(_, at)| at);
        evict.chain([self.judged + TICK]).min().unwrap_or(self.turn)
    }

    /// Deadlines and silence (H3).
    pub fn on_time(&mut self, now: Instant) {
        let gap = now.duration_since(self.turn) > OWN_GAP;
        self.turn = now;
        if gap {
            for node in self.nodes.values_mut() {
                node.heard = now;
            }
        }
        let evicted: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, n)| !n.dying && !n.guest && n.evict.is_some_and(|(_, at)| at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in evicted {
            self.destroy(&id);
        }
        if now < self.judged + TICK {
            return;
        }
        self.judged = now;
        let silent: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, n)| !n.dying && !n.guest && n.broken.is_none())
            .filter(|(_, n)| {
                let limit = if n.ever_up { SILENCE } else { BOOT };
                now.duration_since(n.heard) > limit || n.leave_by.is_some_and(|l| l <= now)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in silent {
            tracing::warn!("node {id}: its agent is silent; it is killed");
            self.pod_silent(&id);
            self.destroy(&id);
        }
    }
}
