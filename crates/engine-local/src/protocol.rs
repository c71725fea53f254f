//! What server and agent say to each other over the node's socket.
//!
//! A frame is its length (u32, little endian, without these four bytes), one byte that tells what follows, and that. Two
//! frames have rows behind their head, raw: copying a result byte by byte through a serialiser would cost more than the rest.
//!
//! W1 the agent opens the connection and says `Hello` first; the server answers `Welcome` before anything else;
//! W2 after a break both sides start again from `Hello`: what it tells is complete, nothing before it counts;
//! W3 a frame that cannot be read ends the connection, never the process.

use crate::gang::{Address, Gang};
use model::{
    NodeId, NodeSpec, Parcel, Ranges, TaskId, TaskSpec,
    engine::{Exit, FailedAttempt, Finished, Placement},
};
use serde::{Deserialize, Serialize};
use std::{io, path::PathBuf, sync::Arc};

/// Version of these messages. Server and agent are one binary, but an adopted agent may be older.
pub const VERSION: u32 = 4;
/// Longest frame: a parcel with the largest allowed result (64 MiB) and its head.
pub const MAX_FRAME: usize = 80 << 20;

/// From the server to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum Down {
    /// The connection stands.
    Welcome,
    /// A task to hold; it begins when `Go` comes. The agent keeps the specification, so that a new server can go on.
    Start {
        /// Which.
        task: TaskId,
        /// `Held` as JSON (the specification skips empty fields, which the compact form cannot).
        held: Vec<u8>,
    },
    /// What is being prepared for it.
    Preparing {
        /// Which.
        task: TaskId,
        /// For people.
        what: String,
    },
    /// Everything it needs is there.
    Go {
        /// Which.
        task: TaskId,
        /// What to do.
        order: Box<Order>,
    },
    /// It cannot be started.
    Refuse {
        /// Which.
        task: TaskId,
        /// Why.
        message: String,
    },
    /// End it: ask, then kill.
    Stop(TaskId),
    /// More indices.
    Lend(TaskId, u64, Ranges),
    /// Parcels up to here are durable.
    Ack(TaskId, u64),
    /// Drop an exited task with its folder.
    Forget(TaskId),
    /// The node will be taken at the latest in so many milliseconds.
    Notice {
        /// From now.
        in_ms: u64,
    },
    /// The node is let go.
    Leave,
    /// The files of a task that comes next are elsewhere.
    Mirror {
        /// Which.
        task: TaskId,
        /// Which files.
        plan: Box<crate::mirror::Plan>,
    },
}

/// From an agent to the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum Up {
    /// Who speaks and what it holds (W1). Its unacknowledged parcels follow as frames of their own, then `Told`.
    Hello {
        /// `VERSION` of the agent.
        version: u32,
        /// The node.
        node: NodeId,
        /// Its process.
        pid: u32,
        /// Start time of that process (field 22 of its `stat`).
        start: u64,
        /// Its tasks.
        tasks: Vec<Report>,
        /// Whether it is under notice, and for how many milliseconds still.
        notice_ms: Option<u64>,
    },
    /// Everything that was to tell after `Hello` has been told.
    Told,
    /// How a task stands.
    State(Box<Report>),
    /// A task is forgotten.
    Gone(TaskId),
    /// Still there.
    Beat,
}

/// How far a task is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Held; waits for `Go`.
    Waiting {
        /// What is done for it.
        what: Box<str>,
    },
    /// Files are being brought.
    Staging {
        /// What at the moment.
        what: Box<str>,
    },
    /// The user's program runs.
    Running,
    /// It ended.
    Exited(Exit),
}

/// How a task stands, without its parcels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Which.
    pub task: TaskId,
    /// How far.
    pub stage: Stage,
    /// Highest lend received.
    pub lent: u64,
    /// Begun and not in a parcel.
    pub started: Ranges,
    /// Highest parcel acknowledged to the agent.
    pub acked: u64,
    /// In `Hello`, for a task that waits for `Go`: its `Held`, so that the new server can prepare it.
    pub held: Vec<u8>,
}

/// What `Start` says, kept by the agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Held {
    /// With whom.
    pub placement: Placement,
    /// What it is.
    pub spec: Arc<TaskSpec>,
    /// Where the tasks of its gang are reached, by rank: chosen before any is told, and the same for all of them.
    pub addresses: Vec<Address>,
}

/// A task with every name resolved to a path of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What to run.
    pub work: Work,
    /// Where, for the log: `on node N`, `in a pod of T on M`.
    pub place: String,
    /// The Python of its environment.
    pub python: PathBuf,
    /// Folder that is searched last for `python` and `python3`.
    pub shims: PathBuf,
    /// Copied into the working folder.
    pub code: Option<PathBuf>,
    /// Inputs by name.
    pub inputs: Vec<(String, Input)>,
    /// Outputs by name.
    pub outputs: Vec<Output>,
    /// The model: where it lies and the name that `AZUREML_MODEL_DIR` shows it under.
    pub model: Option<(PathBuf, String)>,
    /// Variables of the server for every job.
    pub server_variables: Vec<(String, String)>,
    /// Variables of the user.
    pub variables: Vec<(String, String)>,
    /// Memory limit in bytes, 0 for none.
    pub memory: u64,
    /// Thousandths of a core, 0 for none.
    pub cpu: u64,
    /// GPUs of this task by index; `None` where the machine has none. A task that was granted none sees none.
    pub gpus: Option<Vec<u32>>,
    /// GPUs that were granted, nominal ones too.
    pub granted_gpus: u32,
    /// Folder of the run's artifacts.
    pub artifacts: PathBuf,
    /// The tasks that start together, and where they are.
    pub gang: Gang,
    /// Lines for the top of the log: what the user should know about the environment.
    pub notes: Vec<String>,
}

/// What a task runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// One shell command.
    Command {
        /// With its `${{…}}` expressions.
        line: String,
    },
    /// Python workers.
    Pool(Pool),
}

/// A pool of workers, resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// How many.
    pub workers: u32,
    /// Script inside the code folder.
    pub script: Option<String>,
    /// Its arguments, with their `${{…}}` expressions.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The output that nobody writes here.
    #[serde(default)]
    pub rows: Option<String>,
    /// Its `shutdown()` is called before a worker ends.
    #[serde(default)]
    pub shutdown: bool,
    /// `runtime/batch.py`.
    pub runtime: PathBuf,
    /// The listing.
    pub listing: PathBuf,
    /// The folder that its paths are relative to.
    pub root: PathBuf,
    /// Items per index.
    pub group: u32,
    /// Limit of one `run()`.
    pub timeout_ms: u64,
    /// Azure's space-separated form.
    pub azure: bool,
    /// Rows are wanted.
    pub collect: bool,
    /// Column names are wanted.
    pub header: bool,
    /// `AZUREML_BI_OUTPUT_PATH`.
    pub shared_output: PathBuf,
    /// `--logging_level`.
    pub logging_level: String,
}

/// How an input reaches the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// A text.
    Literal(String),
    /// The original, read-only.
    Original(PathBuf),
    /// A copy.
    Copy(PathBuf),
}

/// An output and where it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Where its content goes.
    pub target: PathBuf,
    /// One file instead of a folder.
    pub file: bool,
    /// What the task gets instead of a path; it writes to the target itself then.
    pub address: Option<String>,
}

/// What an agent is to the control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// A node of a cluster, which is shown as one.
    #[serde(rename = "spec")]
    Node(NodeSpec),
    /// A pod: the task is shown, the node is not.
    #[serde(rename = "pod")]
    Pod(Box<Pod>),
    /// A pod of a cluster, with one task or a node of ours: the agent came by itself, from another machine.
    #[serde(rename = "elsewhere")]
    Elsewhere(Box<Elsewhere>),
}

impl Role {
    /// Whether the agent runs on another machine.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Role::Elsewhere(_))
    }
    /// Whether it runs on another machine for one task, and has nothing to do after it.
    pub fn has_one_task(&self) -> bool {
        matches!(self, Role::Elsewhere(elsewhere) if !elsewhere.node)
    }
}

/// What an agent knows of its pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Elsewhere {
    /// `PATH` of the image.
    pub path: String,
    /// It is a node, which takes one task after the other.
    pub node: bool,
}

/// The task of a pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pod {
    /// Which.
    pub task: TaskId,
    /// What it is.
    pub held: Held,
}

/// What an agent reads from its folder when it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeConfig {
    /// Which node it is.
    pub node: NodeId,
    /// What it is to the control plane.
    #[serde(flatten)]
    pub role: Role,
    /// GPUs of this machine that it holds, by index.
    #[serde(default)]
    pub gpus: Vec<u32>,
    /// Folder of the server's socket.
    pub socket_dir: PathBuf,
    /// Whether user processes get a uid of their own.
    pub own_uid: bool,
    /// How limits are enforced.
    pub confinement: crate::confine::Kind,
    /// Name below which this server's groups lie.
    pub group: String,
}

const MESSAGE: u8 = 0;
const PARCEL: u8 = 1;

/// The head of a parcel; its rows follow raw.
#[derive(Serialize, Deserialize)]
struct Head {
    task: TaskId,
    seq: u64,
    done: Vec<Finished>,
    failed: Vec<FailedAttempt>,
    returned: Ranges,
    header: Option<Box<str>>,
    lent: u64,
    started: Ranges,
}

/// A frame read by the server.
#[derive(Debug)]
pub enum UpFrame {
    /// A message.
    Message(Up),
    /// A parcel, with the mailbox as it stands after it.
    Parcel {
        /// Of which task.
        task: TaskId,
        /// The parcel.
        parcel: Parcel,
        /// Highest lend received.
        lent: u64,
        /// Begun and not in a parcel.
        started: Ranges,
    },
}

fn framed(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    write(out);
    let len = u32::try_from(out.len() - at - 4).expect("a frame is below MAX_FRAME");
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

fn compact<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    let bytes = postcard::to_allocvec(value).expect("messages hold nothing that cannot be written");
    out.extend_from_slice(&bytes);
}

/// Appends a message as a frame.
pub fn write<T: Serialize>(out: &mut Vec<u8>, message: &T) {
    framed(out, MESSAGE, |out| compact(out, message));
}

/// Appends a parcel as a frame.
pub fn write_parcel(
    out: &mut Vec<u8>,
    task: &TaskId,
    parcel: &Parcel,
    lent: u64,
    started: &Ranges,
) {
    let head = Head {
        task: task.clone(),
        seq: parcel.seq,
        done: parcel.done.clone(),
        failed: parcel.failed.clone(),
        returned: parcel.returned.clone(),
        header: parcel.header.clone(),
        lent,
        started: started.clone(),
    };
    framed(out, PARCEL, |out| {
        compact(out, &head);
        out.extend_from_slice(&parcel.rows);
    });
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("frame: {what}"))
}

/// Reads what the server sent.
pub fn read_down(body: &[u8]) -> io::Result<Down> {
    match body.split_first() {
        Some((&MESSAGE, rest)) => postcard::from_bytes(rest).map_err(|e| bad(&e.to_string())),
        Some(_) => Err(bad("unknown kind")),
        None => Err(bad("empty")),
    }
}

/// Reads what an agent sent.
pub fn read_up(body: &[u8]) -> io::Result<UpFrame> {
    let (kind, rest) = body.split_first().ok_or_else(|| bad("empty"))?;
    match *kind {
        MESSAGE => postcard::from_bytes(rest)
            .map(UpFrame::Message)
            .map_err(|e| bad(&e.to_string())),
        PARCEL => {
            let (head, rows): (Head, &[u8]) =
                postcard::take_from_bytes(rest).map_err(|e| bad(&e.to_string()))?;
            let told: u64 = head.done.iter().map(|d| u64::from(d.bytes)).sum();
            if told != rows.len() as u64 {
                return Err(bad("its rows do not fit its head"));
            }
            let parcel = Parcel {
                seq: head.seq,
                done: head.done,
                rows: rows.into(),
                failed: head.failed,
                returned: head.returned,
                header: head.header,
            };
            Ok(UpFrame::Parcel {
                task: head.task,
                parcel,
                lent: head.lent,
                started: head.started,
            })
        }
        _ => Err(bad("unknown kind")),
    }
}

/// Takes whole frames out of bytes as they come.
#[derive(Default)]
pub struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Frames {
    /// More bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        } else if self.at > 1 << 20 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }
    /// The next whole frame's body. An error ends the connection (W3).
    pub fn take(&mut self) -> io::Result<Option<&[u8]>> {
        let have = &self.bytes[self.at..];
        let Some(len) = have.first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*len) as usize;
        if len > MAX_FRAME {
            return Err(bad("longer than any frame may be"));
        }
        if have.len() < 4 + len {
            return Ok(None);
        }
        let from = self.at + 4;
        self.at = from + len;
        Ok(Some(&self.bytes[from..from + len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Attempt, Id, Workspace};

    fn task() -> TaskId {
        TaskId {
            job: Id::new(&Workspace::new("s", "g", "w"), "job"),
            index: 0,
            attempt: Attempt(1),
        }
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let mut bytes = Vec::new();
        let parcel = Parcel {
            seq: 3,
            done: vec![Finished {
                index: 7,
                items: 1,
                rows: 1,
                bytes: 3,
                crc: 9,
            }],
            rows: b"ab\n".as_slice().into(),
            returned: Ranges::span(4, 6),
            ..Parcel::default()
        };
        write(&mut bytes, &Up::Beat);
        write_parcel(&mut bytes, &task(), &parcel, 5, &Ranges::span(8, 9));
        for step in 1..bytes.len() {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(step) {
                frames.push(piece);
                while let Some(body) = frames.take().unwrap() {
                    seen.push(read_up(body).unwrap());
                }
            }
            assert!(matches!(seen[0], UpFrame::Message(Up::Beat)));
            let UpFrame::Parcel {
                parcel: p, lent, ..
            } = &seen[1]
            else {
                panic!("{seen:?}")
            };
            assert_eq!((p, *lent), (&parcel, 5));
        }
    }

    #[test]
    fn damaged_frames_are_errors() {
        let mut bytes = Vec::new();
        write(&mut bytes, &Up::Gone(task()));
        assert!(read_up(&bytes[4..bytes.len() - 2]).is_err());
        assert!(read_up(&[9]).is_err());
        assert!(read_up(&[]).is_err());
        let mut frames = Frames::default();
        frames.push(&u32::MAX.to_le_bytes());
        assert!(frames.take().is_err());
    }
}
