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

pub use pod::RUN_AS;
pub use shared::Shared;

use attached::{Attached, Given, Told};
use model::{
    Action, ComputeId, Exit, KubernetesSpec, Observed, Phase, TaskId, View, engine::Placement,
};
use pod::Settings;
use port::{Bell, Engine};
use record::{Record, Records};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Words to the engine that wait: a turn of the control plane is one, and a word takes microseconds.
const WORDS: usize = 1024;
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
        let mut waiting: BTreeMap<TaskId, Record> = BTreeMap::new();
        for record in records.all()? {
            let what = "its cluster is looked at again".into();
            shared.show(&record.task, Phase::Preparing { what });
            waiting.insert(record.task.clone(), record);
        }
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

/// The engine's thread: hands words to the workers, and keeps tasks of computes that are not attached.
struct Manager {
    shared: Arc<Shared>,
    records: Records,
    settings: Settings,
    waiting: BTreeMap<TaskId, Record>,
    workers: BTreeMap<ComputeId, Worker>,
}

struct Worker {
    told: Sender<Told>,
    /// What it was made for: with another of these it is made anew.
    made_for: (PathBuf, Box<str>, Option<Box<str>>, Option<u32>),
    thread: tokio::task::JoinHandle<()>,
    tasks: std::collections::BTreeSet<TaskId>,
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
                if old.tasks.contains(&record.task) {
                    self.waiting.insert(record.task.clone(), record);
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
            tasks: std::collections::BTreeSet::new(),
        };
        let mine: Vec<TaskId> = self
            .waiting
            .iter()
            .filter(|(_, record)| record.compute() == Some(&id))
            .map(|(task, _)| task.clone())
            .collect();
        for task in mine {
            if let Some(record) = self.waiting.remove(&task) {
                worker.tasks.insert(task);
                drop(worker.told.send(Told::Start(Box::new(record))).await);
            }
        }
        self.workers.insert(id, worker);
    }

    fn worker_of(&self, task: &TaskId) -> Option<&Worker> {
        self.workers.values().find(|w| w.tasks.contains(task))
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Start(task, placement, spec) => self.start(task, placement, spec).await,
            Action::Stop(task) => match self.worker_of(&task) {
                Some(worker) => drop(worker.told.send(Told::Stop(task)).await),
                None if self.waiting.contains_key(&task) => {
                    self.shared.show(&task, Phase::Exited(Exit::Stopped));
                }
                None => {}
            },
            Action::Forget(task) => match self.worker_of(&task) {
                Some(worker) => drop(worker.told.send(Told::Forget(task)).await),
                None if self.waiting.contains_key(&task) => {
                    // Its pod, if there is one, is found by its label should the compute come back.
                    self.waiting.remove(&task);
                    self.records.remove(&task);
                    self.shared.forget(&task);
                }
                None => {}
            },
            Action::Lend(..) | Action::Ack(..) => self.shared.tell_agent(action),
            // Nodes of clusters are not pods here yet.
            Action::AddNode(..) | Action::RemoveNode(_) | Action::Evict(..) | Action::Do(_) => {}
        }
    }

    async fn start(&mut self, task: TaskId, placement: Placement, spec: Arc<model::TaskSpec>) {
        let known = self.waiting.contains_key(&task) || self.worker_of(&task).is_some();
        if known && self.shared.shows(&task) {
            return;
        }
        let record = Record {
            task: task.clone(),
            placement,
            spec,
            tried: false,
        };
        let Some(compute) = record.compute().cloned() else {
            return;
        };
        let why = |text: &str| Phase::Pending { why: text.into() };
        if let Err(e) = self.records.write(&record) {
            // Not shown: the control plane asks again (K2).
            tracing::error!("the record of {task} cannot be written: {e}");
            return;
        }
        match self.workers.get_mut(&compute) {
            Some(worker) => {
                worker.tasks.insert(task.clone());
                self.shared.show(&task, why("its pod is made"));
                drop(worker.told.send(Told::Start(Box::new(record))).await);
            }
            None => {
                self.shared
                    .show(&task, why("its compute has no cluster yet"));
                self.waiting.insert(task, record);
            }
        }
    }
}
