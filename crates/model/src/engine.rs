//! The only words an engine knows: nodes, tasks, and what to do with them. Never jobs, endpoints or mini-batches
//! (an index in a mailbox is opaque to it).
//!
//! G1 an action is idempotent by its ids: applying it twice is applying it once;
//! G2 what is observed is complete: a node or task that is absent is gone;
//! G3 an exited task and its unacknowledged parcels stay until `Forget`.

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use crate::{
    batch::Ranges,
    cluster::{Size, Tier},
    document::Kind,
    id::{ComputeId, JobId, Name, NodeId, TaskId},
    kubernetes::{ClusterKey, ClusterSeen, Place},
    unit::{Bytes, Millis, Resources, Time},
};

/// The variable of a task by which the engine learns how the processes of a gang find each other: `pytorch`, `mpi` or
/// `tensorflow`.
pub const DISTRIBUTION_VARIABLE: &str = "ZAFFRE_DISTRIBUTION";
/// The variable by which it learns how many processes each task of a gang has, when it is more than one.
pub const PROCESSES_VARIABLE: &str = "ZAFFRE_PROCESS_COUNT_PER_INSTANCE";

/// A blob or a folder of blobs: `container/path`, case-sensitive, segments separated by `/`, none of them empty, `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlobPath(Arc<str>);

impl BlobPath {
    /// The path, if it is a legal one.
    pub fn new(text: &str) -> Option<BlobPath> {
        let text = text.trim_end_matches('/');
        let legal = !text.is_empty()
            && text
                .split('/')
                .all(|s| !s.is_empty() && s != "." && s != ".." && !s.contains('\0'));
        legal.then(|| BlobPath(text.into()))
    }
    /// `self/tail`; `None` when `tail` is not a legal path.
    pub fn join(&self, tail: &str) -> Option<BlobPath> {
        BlobPath::new(&format!("{}/{tail}", self.0))
    }
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The first segment.
    pub fn container(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
    /// The last segment.
    pub fn base(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}
impl fmt::Debug for BlobPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Display for BlobPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a node must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its nominal size.
    pub size: Size,
    /// Its tier.
    pub tier: Tier,
    /// What it is a pod of; `None`: a process of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<NodePod>,
}

/// What the pod of a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePod {
    /// The Kubernetes compute whose cluster it is in.
    pub compute: ComputeId,
    /// Its image.
    pub image: Box<str>,
}

/// Where packages come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packages {
    /// Nothing beside the Python that is there.
    None,
    /// A conda file, its text. Its pip part is installed; a conda package maps to the pip package of its name where one exists.
    Conda(Box<str>),
    /// The model's own `requirements.txt` or `conda.yaml` (MLflow models without a scoring script).
    OfModel,
}

/// The environment of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentSpec {
    /// `name:version`, for messages.
    pub label: Box<str>,
    /// Container image. Runs where a container engine is there; else the log says that it does not.
    pub image: Option<Box<str>>,
    /// Packages.
    pub packages: Packages,
}

/// How an input reaches the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputSpec {
    /// A text, substituted for `${{inputs.NAME}}`.
    Literal(Box<str>),
    /// A blob or folder; the task sees its path.
    Path {
        /// What.
        source: BlobPath,
        /// A copy of its own (`download`) instead of the read-only original (`ro_mount`).
        copy: bool,
    },
}

/// An output folder or file; the task sees its path as `${{outputs.NAME}}`. What a command leaves there is put to `target` when
/// it ends; the workers of a pool, on all its nodes, write to `target` itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// Where its content goes.
    pub target: BlobPath,
    /// Whether it is one file instead of a folder.
    pub file: bool,
    /// The asset that it becomes when the run completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<Box<Register>>,
    /// The address that the task gets instead of a path (`direct`): it writes to `target` itself, and nothing is put there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Box<str>>,
    /// The attached datastore that `target` belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Box<Remote>>,
}

/// An attached datastore, as the place of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// Its name.
    pub datastore: Box<str>,
    /// Where the output is kept until it is sent there, which is when the run has done its work.
    pub staged: BlobPath,
}

impl OutputSpec {
    /// Where its content is put when the task ends.
    pub fn kept(&self) -> &BlobPath {
        self.remote.as_ref().map_or(&self.target, |r| &r.staged)
    }
    /// The attached datastore that its content is to be sent to.
    pub fn sent(&self) -> Option<&Remote> {
        self.remote.as_deref().filter(|_| self.address.is_none())
    }
}

/// The asset that an output becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// A model or a data asset.
    pub kind: Kind,
    /// Azure's word for what it holds: `uri_folder`, `mlflow_model`; nothing is decided by it.
    pub holds: Box<str>,
    /// Its name.
    pub name: Name,
    /// Its version; `None` is the next one there is then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Box<str>>,
}

/// A model beside the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// The registered blob or folder. `AZUREML_MODEL_DIR` is a folder that contains its base name (behaviour §2.2.1).
    pub source: BlobPath,
    /// Whether it is an MLflow model.
    pub mlflow: bool,
}

/// What a task executes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// One shell command (`bash -c`), run once.
    Command {
        /// With its `${{…}}` expressions; the engine knows the paths.
        line: Box<str>,
    },
    /// Long-lived Python workers fed from the task's mailbox.
    Pool(PoolSpec),
}

/// How a returned DataFrame, list or tuple becomes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowFormat {
    /// RFC 4180 fields (ours).
    Csv,
    /// Space-separated, as Azure writes it.
    Azure,
}

/// A pool of Python workers (`runtime/batch.py`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// Workers on this node.
    pub workers: u32,
    /// Scoring script inside the code folder; `None` scores an MLflow model without one.
    pub script: Option<Box<str>>,
    /// Arguments of the script, word by word, with their `${{…}}` expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Box<str>>,
    /// The output that is the file of all rows: written when the run is published, and by nobody before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Box<str>>,
    /// Whether the script's `shutdown()` is called before a worker ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shutdown: bool,
    /// The listing of the input: one path per item, with an index of offsets (format in `port::listing`).
    pub listing: BlobPath,
    /// The folder that the listing's paths are relative to.
    pub root: BlobPath,
    /// Items per index of the mailbox.
    pub group: u32,
    /// Limit of one `run()` call.
    pub timeout: Millis,
    /// Text form of the rows.
    pub format: RowFormat,
    /// Whether rows are collected (`append_row`) or only counted (`summary_only`).
    pub collect: bool,
    /// Whether a DataFrame's column names are reported once as a header.
    pub header: bool,
    /// `AZUREML_BI_OUTPUT_PATH`: a folder that all workers may write.
    pub shared_output: BlobPath,
    /// `warning`, `info` or `debug`, passed as `--logging_level`.
    pub logging_level: Box<str>,
}

/// What a task is, whole: resolved, immutable, the same for every attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// What to execute.
    pub program: Program,
    /// With which packages.
    pub environment: EnvironmentSpec,
    /// Folder copied to the working directory.
    pub code: Option<BlobPath>,
    /// Inputs by name.
    pub inputs: BTreeMap<Box<str>, InputSpec>,
    /// Outputs by name.
    pub outputs: BTreeMap<Box<str>, OutputSpec>,
    /// The model, if any.
    pub model: Option<ModelSpec>,
    /// Environment variables of the user.
    pub variables: BTreeMap<Box<str>, Box<str>>,
    /// Limits that are enforced on the processes.
    pub limits: Resources,
    /// Folder of the run's artifacts: `user_logs/…`, `logs/…` and `outputs/…` live under it.
    pub artifacts: BlobPath,
}

/// Where a task starts and with whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Its node, or the pod that it becomes.
    pub place: Place,
    /// Tasks that start together, by rank; one entry, its own, for a single task.
    pub gang: Vec<TaskId>,
}

/// What the control plane asks of an engine. Idempotent (G1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bring up a node.
    AddNode(NodeId, NodeSpec),
    /// Let an empty node go.
    RemoveNode(NodeId),
    /// Take a node away as a provider does: notice until `by`, then the whole node is killed.
    Evict(NodeId, Time),
    /// Start a task.
    Start(TaskId, Placement, Arc<TaskSpec>),
    /// End a task: ask, then kill.
    Stop(TaskId),
    /// Give indices to a task's mailbox; `lend` counts up from 1 per task.
    Lend(TaskId, u64, Ranges),
    /// Parcels up to this number are durable and may be dropped.
    Ack(TaskId, u64),
    /// An exited task may be forgotten, with its folder.
    Forget(TaskId),
    /// Work of the control plane's own, beside the loop.
    Do(Errand),
}

/// Work of the control plane that takes time and so runs beside the loop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Errand {
    /// List the input of a batch run and write the listing.
    List(JobId),
    /// Copy the committed rows of a batch run into its output file.
    Publish(JobId),
    /// Send the outputs of a command run to the attached datastores that they belong to.
    Send(JobId),
}

/// How an errand stands. A finished one stays until the World has taken it (`Forget` of its run).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrandSeen {
    /// Being done.
    Busy,
    /// The listing is written.
    Listed {
        /// Files found.
        files: u64,
        /// SHA-256 of the listing, hex.
        digest: Box<str>,
    },
    /// The output file is in place.
    Published {
        /// Its size.
        bytes: Bytes,
    },
    /// Everything is where it belongs.
    Sent,
    /// It cannot be done; the message says why. Not tried again.
    Failed {
        /// For the user.
        message: Box<str>,
    },
}

/// A node as seen. Absent means gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeSeen {
    /// On its way.
    Booting {
        /// What it waits for, in the words of whoever brings it, when that is worth telling.
        why: Option<Box<str>>,
    },
    /// Ready for tasks.
    Up,
    /// Will be taken at the latest then.
    Evicting {
        /// When.
        by: Time,
    },
    /// There, but it does not work.
    Broken {
        /// What it said.
        why: Box<str>,
    },
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal that we did not send.
    Signal(i32),
    /// Killed because it used more memory than this.
    OutOfMemory {
        /// The limit.
        limit: Bytes,
    },
    /// Because it was told to.
    Stopped,
    /// It went with its pod: evicted, preempted, deleted by hand, or its machine is gone. Nobody's failure.
    Lost {
        /// What took it, as the cluster says it.
        why: Box<str>,
    },
    /// It never started: environment, code or inputs could not be brought.
    NotStarted {
        /// What failed, for the user.
        message: Box<str>,
    },
    /// The workers of a pool could not initialise (`init()` failed too often).
    Init {
        /// The first exception.
        message: Box<str>,
    },
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "killed by signal {signal}"),
            Exit::OutOfMemory { limit } => {
                write!(f, "killed: it used more than its memory limit of {limit}")
            }
            Exit::Stopped => f.write_str("stopped"),
            Exit::Lost { why } => write!(f, "lost: {why}"),
            Exit::NotStarted { message } | Exit::Init { message } => f.write_str(message),
        }
    }
}

/// How far a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its pod is on no machine yet, or cannot start there.
    Pending {
        /// What the cluster says: the scheduler's words, a refused creation, an image that does not come.
        why: Box<str>,
    },
    /// Environment, code or inputs are being brought.
    Preparing {
        /// What at the moment, for people.
        what: Box<str>,
    },
    /// The user's program runs.
    Running,
    /// It ended.
    Exited(Exit),
}

/// Why one attempt of one index failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// `run()` raised.
    Raised {
        /// Type and message, one line.
        message: Box<str>,
    },
    /// `run()` took longer than the limit; the worker was killed.
    TimedOut {
        /// The limit.
        limit: Millis,
    },
    /// The worker died by itself.
    Died {
        /// `exit code 42`, `killed by signal 9`.
        how: Box<str>,
    },
    /// The worker was killed for memory.
    OutOfMemory {
        /// The limit.
        limit: Bytes,
    },
    /// What it returned cannot be written.
    BadResult {
        /// The rule and the value.
        message: Box<str>,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Raised { message } | Cause::BadResult { message } => f.write_str(message),
            Cause::TimedOut { limit } => write!(f, "run() took longer than {} ms", limit.0),
            Cause::Died { how } => write!(f, "the worker died: {how}"),
            Cause::OutOfMemory { limit } => {
                write!(f, "the worker used more than its memory limit of {limit}")
            }
        }
    }
}

/// One finished index in a parcel. Its rows are the next `bytes` of `Parcel::rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The index.
    pub index: u32,
    /// Elements that `run()` returned: successful items.
    pub items: u32,
    /// Rows.
    pub rows: u32,
    /// Bytes of rows.
    pub bytes: u32,
    /// CRC-32 of those bytes.
    pub crc: u32,
}

/// One failed attempt in a parcel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// The index.
    pub index: u32,
    /// Why.
    pub cause: Cause,
}

/// What a task has done since its last parcel. Numbered from 1; kept by the engine until acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// Its number.
    pub seq: u64,
    /// Finished, in the order of their rows.
    pub done: Vec<Finished>,
    /// The rows of all of `done`, concatenated.
    pub rows: Arc<[u8]>,
    /// Failed attempts.
    pub failed: Vec<FailedAttempt>,
    /// Given back without having been started (a drain under notice).
    pub returned: Ranges,
    /// Header line of the first DataFrame, when asked for.
    pub header: Option<Box<str>>,
}

/// The mailbox of a pool task as the engine sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mailbox {
    /// The highest lend it has received.
    pub lent: u64,
    /// Begun and not yet in a parcel.
    pub started: Ranges,
    /// Not acknowledged yet, ascending.
    pub parcels: Vec<Arc<Parcel>>,
}

/// A task as seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSeen {
    /// How far it is.
    pub phase: Phase,
    /// For pools.
    pub mailbox: Mailbox,
}

/// What changed since the last `observe`; a hint for speed, never the only source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Look at everything (first turn, slow timer).
    pub all: bool,
    /// Nodes that changed, came or went.
    pub nodes: BTreeSet<NodeId>,
    /// Tasks that changed, came or went.
    pub tasks: BTreeSet<TaskId>,
    /// Errands that changed.
    pub errands: BTreeSet<Errand>,
    /// Clusters that changed.
    pub clusters: BTreeSet<ClusterKey>,
}

/// What an engine sees: a value, complete (G2), cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Nodes that are there.
    pub nodes: RedBlackTreeMapSync<NodeId, NodeSeen>,
    /// Tasks that are there.
    pub tasks: RedBlackTreeMapSync<TaskId, Arc<TaskSeen>>,
    /// Errands under way or finished.
    pub errands: RedBlackTreeMapSync<Errand, ErrandSeen>,
    /// Clusters behind Kubernetes computes.
    pub clusters: RedBlackTreeMapSync<ClusterKey, Arc<ClusterSeen>>,
    /// What changed.
    pub marks: Marks,
}
