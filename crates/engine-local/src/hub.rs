//! The supervisor: one thread that knows every node and task, and keeps what is observed.
//!
//! H1 the control plane never waits for it: `apply` queues, `observe` clones a value;
//! H2 a node is absent only after every process of it is dead;
//! H3 an agent that is silent for `SILENCE` is killed, and then absent; silence counts only while we listen ourselves.

mod gangs;
mod guests;
mod nodes;
mod pods;
mod tasks;

use crate::{
    agent::link::with_socket_path,
    environment::Environments,
    gang::Address,
    mirror::Grants,
    node::Ground,
    protocol::{self, Down, Frames, Up, UpFrame, VERSION},
};
pub use guests::Wish;
use model::{Action, ClusterKey, ClusterSeen, NodeId, Observed, TaskId};
use nodes::Node;
use port::{Bell, Blobs};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs, io,
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tasks::Entry;

/// Two heartbeats of a second each (architecture §5).
pub const SILENCE: Duration = Duration::from_secs(2);
/// How often silence and deadlines are looked at.
const TICK: Duration = Duration::from_millis(250);
/// A turn of ours longer than this means that we were stopped ourselves: nobody is judged by it.
const OWN_GAP: Duration = Duration::from_millis(1000);
/// How long a new engine waits for the living agents of the one before; those that say nothing are killed by then.
const SETTLE: Duration = Duration::from_secs(10);
/// Bytes read at once.
const BUFFER: usize = 256 << 10;
/// Unsent bytes to one agent above which its connection is made anew.
const MAX_UNSENT: usize = 64 << 20;
/// Connections that have not said who they are.
const MAX_STRANGERS: usize = 64;

const LISTENER: u64 = 1;
const WAKE: u64 = 2;
const PEER: u64 = 3;
const PROCESS: u64 = 4;

fn token(kind: u64, number: u32) -> u64 {
    kind << 56 | u64::from(number)
}

/// What the control plane sees and asks; shared with the hub's thread.
pub struct Shared {
    state: Mutex<State>,
    settled: Condvar,
    wake: OwnedFd,
    bell: Bell,
}

#[derive(Default)]
struct State {
    observed: Observed,
    actions: VecDeque<Action>,
    news: VecDeque<News>,
    wishes: VecDeque<Wish>,
    settled: bool,
    evict_pods: bool,
    /// Pods whose agent may live.
    pods: usize,
    stop: bool,
}

/// What a helper thread of the hub has done.
enum News {
    /// A node and all that it ran are dead.
    Dead(NodeId),
    /// Something is being prepared for a task.
    Preparing(TaskId, String),
    /// A task's order, or why there is none.
    Prepared(TaskId, Result<Box<protocol::Order>, String>),
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
    /// Everything there is, and what changed since the last call.
    pub fn observe(&self) -> Observed {
        let mut state = self.state();
        let marks = std::mem::take(&mut state.observed.marks);
        let mut seen = state.observed.clone();
        seen.marks = marks;
        seen
    }
    /// Queues actions.
    pub fn apply(&self, actions: Vec<Action>) {
        if actions.is_empty() {
            return;
        }
        self.state().actions.extend(actions);
        self.wake();
    }
    /// Tells of an agent on another machine.
    pub fn wish(&self, wish: Wish) {
        self.state().wishes.push_back(wish);
        self.wake();
    }
    /// Ends every pod; returns how many there are still.
    pub fn evict_pods(&self) -> usize {
        let mut state = self.state();
        state.evict_pods = true;
        let left = state.pods;
        drop(state);
        self.wake();
        left
    }
    /// Ends the hub.
    pub fn stop(&self) {
        self.state().stop = true;
        self.wake();
    }
    /// Waits until what is observed is complete.
    pub fn wait_settled(&self) {
        let end = Instant::now() + SETTLE;
        let mut state = self.state();
        while !state.settled {
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return;
            };
            state = self
                .settled
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
    fn news(&self, news: News) {
        self.state().news.push_back(news);
        self.wake();
    }
}

/// A connection to an agent.
struct Peer {
    stream: UnixStream,
    frames: Frames,
    out: Vec<u8>,
    sent: usize,
    writes: bool,
    node: Option<NodeId>,
    /// Who its credential says that it is, when it came from another machine.
    guest: Option<NodeId>,
}

/// What tasks are prepared with.
pub struct Means {
    /// Where blobs lie.
    pub blobs: Arc<dyn Blobs>,
    /// Environments.
    pub environments: Arc<Environments>,
    /// Folder of `batch.py`.
    pub runtime: PathBuf,
    /// Variables of the server for every job.
    pub variables: crate::Variables,
}

/// The supervisor's own state.
pub struct Hub {
    ground: Ground,
    means: Arc<Means>,
    /// Whether this machine has GPUs at all.
    has_gpus: bool,
    free_gpus: BTreeSet<u32>,
    shared: Arc<Shared>,
    epoll: OwnedFd,
    listener: UnixListener,
    peers: BTreeMap<u32, Peer>,
    next_number: u32,
    nodes: BTreeMap<NodeId, Node>,
    /// Which node a watched process is.
    processes: BTreeMap<u32, NodeId>,
    tasks: BTreeMap<TaskId, Entry>,
    /// How many pods are published.
    pods: usize,
    /// Where the tasks of a gang are reached, by its first.
    addresses: BTreeMap<TaskId, Vec<Address>>,
    /// Tasks of gangs that have not begun.
    gathering: BTreeSet<TaskId>,
    dirty_nodes: BTreeSet<NodeId>,
    dirty_tasks: BTreeSet<TaskId>,
    /// Tasks that changed because we were told so: nobody has to be woken for them.
    quiet_tasks: BTreeSet<TaskId>,
    /// What agents on other machines may read and write.
    grants: Arc<Grants>,
    /// Where the pods of tasks on other machines are reached.
    ips: BTreeMap<TaskId, Box<str>>,
    /// Agents of a server before us that have not told everything yet.
    unsettled: BTreeSet<NodeId>,
    turn: Instant,
    judged: Instant,
}

impl Hub {
    /// Opens the socket and finds what a server before us left.
    pub fn open(
        ground: Ground,
        means: Means,
        gpus: Vec<u32>,
        cluster: ClusterSeen,
        bell: Bell,
    ) -> io::Result<Hub> {
        let listener = with_socket_path(&ground.socket_dir, |path| {
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let listener = UnixListener::bind(path)?;
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        for (fd, kind) in [
            (rustix::fd::AsFd::as_fd(&listener), LISTENER),
            (rustix::fd::AsFd::as_fd(&wake), WAKE),
        ] {
            let data = epoll::EventData::new_u64(token(kind, 0));
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN)?;
        }
        let mut observed = Observed::default();
        observed.marks.all = true;
        // This machine does not change while we run.
        observed
            .clusters
            .insert_mut(ClusterKey::Embedded, Arc::new(cluster));
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                observed,
                ..State::default()
            }),
            settled: Condvar::new(),
            wake,
            bell,
        });
        let now = Instant::now();
        let mut hub = Hub {
            ground,
            means: Arc::new(means),
            has_gpus: !gpus.is_empty(),
            free_gpus: gpus.into_iter().collect(),
            shared,
            epoll,
            listener,
            peers: BTreeMap::new(),
            next_number: 1,
            nodes: BTreeMap::new(),
            processes: BTreeMap::new(),
            tasks: BTreeMap::new(),
            pods: 0,
            addresses: BTreeMap::new(),
            gathering: BTreeSet::new(),
            dirty_nodes: BTreeSet::new(),
            dirty_tasks: BTreeSet::new(),
            quiet_tasks: BTreeSet::new(),
            grants: Arc::default(),
            ips: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            turn: now,
            judged: now,
        };
        hub.find(now)?;
        hub.publish();
        Ok(hub)
    }

    /// What the engine shares with this thread.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// What agents on other machines may.
    pub fn grants(&self) -> Arc<Grants> {
        self.grants.clone()
    }

    /// The thread.
    pub fn serve(mut self) {
        let mut buffer = vec![0; BUFFER];
        let mut events = Vec::with_capacity(64);
        loop {
            let wait = self.due().saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(wait).unwrap_or(Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            });
            events.clear();
            let waited = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&wait),
            );
            if let Err(e) = waited
                && e != rustix::io::Errno::INTR
            {
                tracing::error!("engine: the loop cannot wait: {e}");
                return;
            }
            let now = Instant::now();
            for event in &events {
                let data = event.data;
                self.event(data.u64(), now, &mut buffer);
            }
            let (stop, evict_pods, actions, news, wishes) = {
                let mut state = self.shared.state();
                (
                    state.stop,
                    std::mem::take(&mut state.evict_pods),
                    std::mem::take(&mut state.actions),
                    std::mem::take(&mut state.news),
                    std::mem::take(&mut state.wishes),
                )
            };
            for wish in wishes {
                self.grant(wish, now);
            }
            for news in news {
                self.take_news(news);
            }
            for action in actions {
                self.act(action, now);
            }
            if evict_pods {
                self.evict_pods();
            }
            self.on_time(now);
            self.begin_gangs(now);
            self.send_all(now);
            self.publish();
            if stop {
                return;
            }
        }
    }

    fn number(&mut self) -> u32 {
        self.next_number = self.next_number.wrapping_add(1).max(1);
        self.next_number
    }

    fn event(&mut self, data: u64, now: Instant, buffer: &mut [u8]) {
        let number = u32::try_from(data & 0xffff_ffff).expect("32 bits");
        match data >> 56 {
            LISTENER => self.accept(),
            WAKE => {
                let mut eight = [0; 8];
                let _ = rustix::io::read(&self.shared.wake, &mut eight);
            }
            PEER => self.read(number, now, buffer),
            _ => self.process_ended(number, now, buffer),
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let strangers = self.peers.values().filter(|p| p.node.is_none()).count();
            if strangers >= MAX_STRANGERS || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let number = self.number();
            let data = epoll::EventData::new_u64(token(PEER, number));
            if epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN).is_ok() {
                self.peers.insert(
                    number,
                    Peer {
                        stream,
                        frames: Frames::default(),
                        out: Vec::new(),
                        sent: 0,
                        writes: false,
                        node: None,
                        guest: None,
                    },
                );
            }
        }
    }

    /// Reads once from an agent; takes every whole frame.
    fn read(&mut self, number: u32, now: Instant, buffer: &mut [u8]) {
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let mut taken = Vec::new();
        let mut over = false;
        match peer.stream.read(buffer) {
            Ok(0) => over = true,
            Ok(n) => peer.frames.push(&buffer[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => over = true,
        }
        loop {
            match peer.frames.take().map(|f| f.map(protocol::read_up)) {
                Ok(Some(Ok(frame))) => taken.push(frame),
                Ok(None) => break,
                Ok(Some(Err(e))) | Err(e) => {
                    tracing::warn!("an agent is not understood: {e}");
                    over = true;
                    break;
                }
            }
        }
        for frame in taken {
            over |= !self.take(number, frame, now);
        }
        if over {
            self.hang_up(number, now);
        }
    }

    /// One frame of a peer; `false` ends the connection.
    fn take(&mut self, number: u32, frame: UpFrame, now: Instant) -> bool {
        let Some(peer) = self.peers.get(&number) else {
            return true;
        };
        let Some(id) = peer.node.clone() else {
            return match frame {
                UpFrame::Message(Up::Hello {
                    version,
                    node,
                    pid,
                    start,
                    tasks,
                    notice_ms,
                }) if version == VERSION => {
                    self.greeted(number, node, (pid, start), tasks, notice_ms, now)
                }
                _ => false,
            };
        };
        if let Some(node) = self.nodes.get_mut(&id) {
            node.heard = now;
        }
        match frame {
            UpFrame::Message(Up::Hello { .. }) => false,
            UpFrame::Message(Up::Told) => {
                self.told(&id);
                true
            }
            UpFrame::Message(Up::Beat) => true,
            UpFrame::Message(Up::State(report)) => {
                self.reported(&id, *report);
                true
            }
            UpFrame::Message(Up::Gone(task)) => {
                self.task_gone(&id, &task);
                true
            }
            UpFrame::Parcel {
                task,
                parcel,
                lent,
                started,
            } => {
                self.parcel(&id, &task, parcel, lent, started);
                true
            }
        }
    }

    /// Queues a message for a node's agent; without a connection it is dropped, and `Hello` brings both sides together again.
    fn send(&mut self, node: &NodeId, message: &Down) -> bool {
        let number = self.nodes.get(node).and_then(|n| n.peer);
        let Some(peer) = number.and_then(|n| self.peers.get_mut(&n)) else {
            return false;
        };
        protocol::write(&mut peer.out, message);
        true
    }

    fn send_all(&mut self, now: Instant) {
        let mut broken = Vec::new();
        for (number, peer) in &mut self.peers {
            if peer.sent < peer.out.len() && !flush(peer) {
                broken.push(*number);
                continue;
            }
            let want = peer.sent < peer.out.len();
            if want != peer.writes {
                let flags = if want {
                    epoll::EventFlags::IN | epoll::EventFlags::OUT
                } else {
                    epoll::EventFlags::IN
                };
                let data = epoll::EventData::new_u64(token(PEER, *number));
                if epoll::modify(&self.epoll, &peer.stream, data, flags).is_ok() {
                    peer.writes = want;
                }
            }
        }
        for number in broken {
            self.hang_up(number, now);
        }
    }

    fn act(&mut self, action: Action, now: Instant) {
        match action {
            Action::AddNode(id, spec) => self.add(id, &spec, now),
            Action::RemoveNode(id) => self.let_go(&id, now),
            Action::Evict(id, by) => self.evict(&id, by, now),
            Action::Start(task, placement, spec) => self.start(task, placement, spec, now),
            Action::Stop(task) => self.stop(&task),
            Action::Lend(task, number, ranges) => self.lend(&task, number, ranges),
            Action::Ack(task, seq) => self.ack(&task, seq),
            Action::Forget(task) => self.forget(&task),
            Action::Do(_) => {} // the control plane's own work, see `port::Engine`
        }
    }

    fn take_news(&mut self, news: News) {
        match news {
            News::Dead(id) => self.dead(&id),
            News::Preparing(task, what) => self.preparing(&task, what),
            News::Prepared(task, order) => self.prepared(&task, order),
        }
    }

    /// Copies what changed into what is observed, and rings.
    fn publish(&mut self) {
        let pods = self.nodes.values().filter(|n| n.pod.is_some()).count();
        if std::mem::replace(&mut self.pods, pods) != pods {
            self.shared.state().pods = pods;
        }
        let settling = self.settling();
        let ring = settling || !self.dirty_nodes.is_empty() || !self.dirty_tasks.is_empty();
        if !ring && self.quiet_tasks.is_empty() {
            return;
        }
        let mut quiet = std::mem::take(&mut self.quiet_tasks);
        quiet.append(&mut self.dirty_tasks);
        let mut state = self.shared.state();
        for id in std::mem::take(&mut self.dirty_nodes) {
            match self.nodes.get(&id) {
                Some(node) => state.observed.nodes.insert_mut(id.clone(), node.seen()),
                None => {
                    state.observed.nodes.remove_mut(&id);
                }
            }
            state.observed.marks.nodes.insert(id);
        }
        for id in quiet {
            match self.tasks.get(&id) {
                Some(entry) => state
                    .observed
                    .tasks
                    .insert_mut(id.clone(), Arc::new(entry.seen.clone())),
                None => {
                    state.observed.tasks.remove_mut(&id);
                }
            }
            state.observed.marks.tasks.insert(id);
        }
        if !state.settled && self.unsettled.is_empty() {
            state.settled = true;
            self.shared.settled.notify_all();
        }
        drop(state);
        if ring {
            self.shared.bell.ring();
        }
    }

    fn settling(&self) -> bool {
        self.unsettled.is_empty() && !self.shared.state().settled
    }
}

/// Writes what it can; `false` when the connection is over.
fn flush(peer: &mut Peer) -> bool {
    while peer.sent < peer.out.len() {
        match peer.stream.write(&peer.out[peer.sent..]) {
            Ok(0) => return false,
            Ok(n) => peer.sent += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    if peer.sent == peer.out.len() {
        peer.out.clear();
        peer.sent = 0;
    }
    peer.out.len() - peer.sent <= MAX_UNSENT
}
