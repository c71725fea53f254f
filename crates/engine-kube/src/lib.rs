//! Nodes and tasks as pods of real clusters: each attached compute has a worker with its watches and its pods.
//!
//! The pod of a task runs our own agent (`engine_local`), which connects back to this server and is told what to do; what it
//! says and what the cluster says of the pod are one task here.
//!
//! K1 `observe` and `apply` wait for no cluster; a cluster that does not answer keeps what was seen of it last;
//! K2 what was started is on disk before it is in a cluster (`record`), so that a new server shows all of it at once.

mod amount;
mod ask;
mod attached;
mod cluster;
mod connect;
mod name;
mod phase;
mod pod;
mod record;
mod shared;
mod tolerate;
mod trouble;
mod watch;

pub use name::pod as pod_name;
pub use pod::{AUTHORITY, RUN_AS};
pub use shared::Shared;

use attached::{Attached, Given, Told};
use model::{
    Action, ComputeId, Exit, KubernetesSpec, NodeId, NodeSpec, Observed, Phase, Place, TaskId,
    TaskSpec, Time, View, engine::Placement,
};
use pod::Settings;
use port::{Bell, Engine};
use record::{Key, Record, Records, What};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Words to the engine that wait: a turn of the control plane is one, and a word takes microseconds.
const WORDS: usize = 1024;
/// Ids of a worker's pods that are kept without looking whether they are gone.
const MOST_KEYS: usize = 1024;
/// Words to one worker that wait; who has more for it waits, since a worker never does.
const TOLD: usize = 1024;

/// How the engine is set up.
pub struct KubeConfig {
    /// `kube/` of the server's data folder: records, and what others leave for us (kubeconfigs).
    pub folder: PathBuf,
    /// This server's id: a label of everything that it makes.
    pub server: String,
    /// Where agents find the server from inside a pod: `https://HOST:PORT`.
    pub connect: String,
    /// The image that holds our binary.
    pub agent_image: String,
    /// The remote agents' hub.
    pub remote: engine_local::Remote,
    /// What a pod's agent gets as files to be let in: its credential and the authority of our certificate.
    pub credential: shared::Credential,
}

/// The engine of all attached computes.
pub struct Kube {
    shared: Arc<Shared>,
    folder: PathBuf,
    told: Sender<Word>,
    attached: std::sync::Mutex<BTreeMap<ComputeId, Arc<KubernetesSpec>>>,
    thread: Option<JoinHandle<()>>,
}

/// What the engine's thread is told.
enum Word {
    Actions(Vec<Action>),
    Attach(ComputeId, Arc<KubernetesSpec>, PathBuf),
    Detach(ComputeId),
}

impl Kube {
    /// Starts the engine: what a server before us had started is shown at once, and found again when its compute is attached.
    pub fn new(config: KubeConfig, bell: Bell) -> io::Result<Kube> {
        let records = Records::open(&config.folder.join("tasks"))?;
        let shared = Arc::new(Shared::new(config.remote, config.credential, bell));
        let waiting = found(&shared, &records)?;
        let (told, inbox) = channel(WORDS);
        let settings = Settings {
            server: config.server,
            connect: config.connect,
            agent_image: config.agent_image,
            run_as: RUN_AS,
            ..Settings::default()
        };
        let manager = Manager {
            shared: shared.clone(),
            records,
            settings,
            waiting,
            workers: BTreeMap::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("engine-kube".into())
            .spawn(move || {
                let run = std::panic::AssertUnwindSafe(|| runtime.block_on(manager.serve(inbox)));
                if std::panic::catch_unwind(run).is_err() {
                    std::process::abort(); // as the local engine does, and for the same reason
                }
            })?;
        Ok(Kube {
            shared,
            folder: config.folder,
            told,
            attached: std::sync::Mutex::default(),
            thread: Some(thread),
        })
    }

    /// Whether the word was taken. What is not is asked for again: actions by the next turn, computes by `reconcile`.
    fn tell(&self, word: Word) -> bool {
        let told = self.told.try_send(word);
        if let Err(e) = &told {
            tracing::warn!("the engine of attached clusters does not keep up: {e}");
        }
        told.is_ok()
    }

    /// A compute has a cluster, or another one than before.
    ///
    /// Returns whether it was taken; here and in `detach` the answer `false` means to ask again later.
    pub fn attach(&self, id: &ComputeId, spec: &Arc<KubernetesSpec>, kubeconfig: &Path) -> bool {
        let (id, spec) = (id.clone(), spec.clone());
        self.tell(Word::Attach(id, spec, kubeconfig.to_owned()))
    }

    /// A compute has none any more: everything of ours in it goes.
    pub fn detach(&self, id: &ComputeId) -> bool {
        self.tell(Word::Detach(id.clone()))
    }

    /// Attaches and detaches as the view says. Cheap when nothing has changed.
    pub fn reconcile(&self, view: &View) {
        let mut attached = self
            .attached
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut gone: Vec<ComputeId> = attached.keys().cloned().collect();
        for (id, record) in view.kubernetes.iter() {
            let Some(digest) = &record.spec.kubeconfig else {
                continue;
            };
            if view.is_to_be_left(record) {
                continue;
            }
            gone.retain(|other| other != id);
            if attached.get(id) == Some(&record.spec) {
                continue;
            }
            if self.attach(id, &record.spec, &self.folder.join(&**digest)) {
                attached.insert(id.clone(), record.spec.clone());
            }
        }
        for id in gone {
            if self.detach(&id) {
                attached.remove(&id);
            }
        }
    }

    /// What the server's route hands connections of agents to.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }
}

impl Engine for Kube {
    fn observe(&self) -> Observed {
        self.shared.observe()
    }
    fn apply(&self, actions: Vec<Action>) {
        if !actions.is_empty() {
            self.tell(Word::Actions(actions));
        }
    }
}

impl Drop for Kube {
    /// Pods go on.
    fn drop(&mut self) {
        // The channel closes with the last sender, whatever is in it.
        let (closed, _) = channel(1);
        self.told = closed;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Shows what a server before us had started; returns what needs its cluster.
fn found(shared: &Shared, records: &Records) -> io::Result<BTreeMap<Key, Record>> {
    let all = records.all()?;
    let (pods, on_nodes): (Vec<Record>, Vec<Record>) =
        all.into_iter().partition(|r| r.compute().is_some());
    let mut waiting = BTreeMap::new();
    for record in pods {
        let what = "its cluster is looked at again".into();
        shared.show(&record.key(), Phase::Preparing { what });
        if let What::Node { node, .. } = &record.what {
            shared.expect(node, &record); // it may come before its cluster is reached
        }
        waiting.insert(record.key(), record);
    }
    for record in on_nodes {
        let key = record.key();
        match record.what {
            What::Task {
                task,
                placement,
                spec,
            } if placement
                .place
                .node()
                .is_some_and(|node| shared.shows(&Key::Node(node.clone()))) =>
            {
                let node = placement.place.node().cloned().expect("it was just seen");
                shared.start_on(node, task, placement, spec);
            }
            // Its node went, and we died before the record was removed.
            What::Task { .. } | What::Node { .. } => records.remove(&key),
        }
    }
    Ok(waiting)
}

/// The engine's thread: hands words to the workers, and keeps tasks of computes that are not attached.
struct Manager {
    shared: Arc<Shared>,
    records: Records,
    settings: Settings,
    waiting: BTreeMap<Key, Record>,
    workers: BTreeMap<ComputeId, Worker>,
}

struct Worker {
    told: Sender<Told>,
    /// What it was made for: with another of these it is made anew.
    made_for: (PathBuf, Box<str>, Option<Box<str>>, Option<u32>),
    thread: tokio::task::JoinHandle<()>,
    /// What is its, or was.
    keys: BTreeSet<Key>,
    /// How many of them there may be before those that are gone are looked for.
    most: usize,
}

impl Manager {
    async fn serve(mut self, mut inbox: Receiver<Word>) {
        // Workers live on this thread: one processor's worth of work is more than all clusters give.
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                while let Some(word) = inbox.recv().await {
                    match word {
                        Word::Actions(actions) => {
                            for action in actions {
                                self.act(action).await;
                            }
                        }
                        Word::Attach(id, spec, path) => self.attach(id, spec, path).await,
                        Word::Detach(id) => {
                            if let Some(worker) = self.workers.remove(&id) {
                                drop(worker.told.send(Told::Detach).await);
                            }
                        }
                    }
                }
            })
            .await;
    }

    async fn attach(&mut self, id: ComputeId, spec: Arc<KubernetesSpec>, path: PathBuf) {
        let key = (
            path.clone(),
            spec.namespace.clone(),
            spec.agent_image.clone(),
            spec.run_as_user,
        );
        if let Some(worker) = self.workers.get_mut(&id)
            && worker.made_for == key
        {
            drop(worker.told.send(Told::Spec(spec)).await);
            return;
        }
        if let Some(old) = self.workers.remove(&id) {
            // Another kubeconfig of the same cluster, most likely: the pods stay, the new worker finds them.
            old.thread.abort();
            for record in self.records.all().unwrap_or_default() {
                if old.keys.contains(&record.key()) {
                    self.waiting.insert(record.key(), record);
                }
            }
        }
        let mut settings = self.settings.clone();
        settings.namespace = spec.namespace.to_string();
        if let Some(image) = &spec.agent_image {
            settings.agent_image = image.to_string();
        }
        if let Some(user) = spec.run_as_user {
            settings.run_as = i64::from(user);
        }
        let (told, inbox) = channel(TOLD);
        let given = Given {
            id: id.clone(),
            spec,
            kubeconfig: path,
            settings,
            records: self.records.clone(),
            shared: self.shared.clone(),
        };
        let mut worker = Worker {
            told,
            made_for: key,
            thread: tokio::task::spawn_local(Attached::serve(given, inbox)),
            keys: BTreeSet::new(),
            most: MOST_KEYS,
        };
        let mine: Vec<Key> = self
            .waiting
            .iter()
            .filter(|(_, record)| record.compute() == Some(&id))
            .map(|(key, _)| key.clone())
            .collect();
        for key in mine {
            if let Some(record) = self.waiting.remove(&key) {
                worker.keys.insert(key);
                drop(worker.told.send(Told::Start(Box::new(record))).await);
            }
        }
        self.workers.insert(id, worker);
    }

    fn worker_of(&self, key: &Key) -> Option<&Worker> {
        self.workers.values().find(|w| w.keys.contains(key))
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Start(task, placement, spec) => self.start(task, placement, spec).await,
            Action::AddNode(node, spec) => self.add(node, spec).await,
            Action::Stop(task) if self.shared.is_on_a_node(&task) => {
                self.shared.tell_agent(Action::Stop(task));
            }
            Action::Forget(task) if self.shared.is_on_a_node(&task) => {
                // First: a server that starts now must not begin it again on a node that has forgotten it.
                self.records.remove(&Key::Task(task.clone()));
                self.shared.tell_agent(Action::Forget(task));
            }
            Action::Stop(task) => {
                let key = Key::Task(task);
                match self.worker_of(&key) {
                    Some(worker) => drop(worker.told.send(Told::Stop(key)).await),
                    None if self.waiting.contains_key(&key) => {
                        self.shared.show(&key, Phase::Exited(Exit::Stopped));
                    }
                    None => {}
                }
            }
            Action::Forget(task) => {
                let key = Key::Task(task.clone());
                match self.worker_of(&key) {
                    Some(worker) => drop(worker.told.send(Told::Forget(key)).await),
                    None if self.waiting.contains_key(&key) => {
                        // Its pod, if there is one, is found by its label should the compute come back.
                        self.waiting.remove(&key);
                        self.records.remove(&key);
                        self.shared.forget(&task);
                    }
                    None => {}
                }
            }
            Action::RemoveNode(node) => self.remove(node, None).await,
            Action::Evict(node, by) => self.remove(node, Some(by)).await,
            Action::Lend(..) | Action::Ack(..) => self.shared.tell_agent(action),
            Action::Do(_) => {}
        }
    }

    /// Lets a node go, or takes it away.
    async fn remove(&mut self, node: NodeId, by: Option<Time>) {
        let key = Key::Node(node.clone());
        if self.waiting.remove(&key).is_some() {
            self.shared.hide_node(&node, &self.records);
            self.records.remove(&key);
        } else if let Some(worker) = self.worker_of(&key) {
            let told = match by {
                Some(by) => Told::Evict(key, by),
                None => Told::Stop(key),
            };
            drop(worker.told.send(told).await);
        }
    }

    async fn start(&mut self, task: TaskId, placement: Placement, spec: Arc<TaskSpec>) {
        if let Place::On(node) = &placement.place {
            return self.start_on(node.clone(), task, placement, spec);
        }
        let what = What::Task {
            task,
            placement,
            spec,
        };
        self.begin(Record::new(what)).await;
    }

    /// Starts a task on a node that is a pod.
    fn start_on(&mut self, node: NodeId, task: TaskId, placement: Placement, spec: Arc<TaskSpec>) {
        if self.shared.is_on_a_node(&task) || !self.shared.shows(&Key::Node(node.clone())) {
            return;
        }
        let record = Record::new(What::Task {
            task: task.clone(),
            placement: placement.clone(),
            spec: spec.clone(),
        });
        if let Err(e) = self.records.write(&record) {
            tracing::error!("the record of {task} cannot be written: {e}"); // asked again (K2)
            return;
        }
        self.shared.start_on(node, task, placement, spec);
    }

    async fn add(&mut self, node: NodeId, spec: NodeSpec) {
        self.begin(Record::new(What::Node { node, spec })).await;
    }

    /// Makes a pod, once.
    async fn begin(&mut self, record: Record) {
        let key = record.key();
        let known = self.waiting.contains_key(&key) || self.worker_of(&key).is_some();
        if known && self.shared.shows(&key) {
            return;
        }
        let Some(compute) = record.compute().cloned() else {
            return;
        };
        let why = |text: &str| Phase::Pending { why: text.into() };
        if let Err(e) = self.records.note(&record) {
            // Not shown: the control plane asks again (K2).
            tracing::error!("the record of {key} cannot be written: {e}");
            return;
        }
        match self.workers.get_mut(&compute) {
            Some(worker) => {
                if worker.keys.len() >= worker.most {
                    // What is not shown any more is gone; looked at when as much again has come, so that it costs nothing.
                    worker.keys.retain(|key| self.shared.shows(key));
                    worker.most = (2 * worker.keys.len()).max(MOST_KEYS);
                }
                worker.keys.insert(key.clone());
                self.shared.show(&key, why("its pod is made"));
                drop(worker.told.send(Told::Start(Box::new(record))).await);
            }
            None => {
                self.shared
                    .show(&key, why("its compute has no cluster yet"));
                self.waiting.insert(key, record);
            }
        }
    }
}
