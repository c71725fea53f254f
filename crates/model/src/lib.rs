//! Nouns: what Zaffre talks about, with the rules that make a value legal.
//!
//! No I/O, no clock, no async, no text formats of Azure (those live in `wire`). Everything here is a value: it can be
//! compared, stored and sent. Types that a log or a checkpoint keeps derive `Serialize`; their JSON is the stored format,
//! so a renamed field is a format change (see CONTRIBUTING.md).

pub mod batch;
pub mod cluster;
pub mod document;
pub mod engine;
pub mod event;
pub mod family;
pub mod id;
pub mod instance_type;
pub mod kubernetes;
pub mod node;
pub mod report;
pub mod run;
pub mod unfit;
pub mod unit;
pub mod view;
pub mod why;

pub use batch::{BatchSpec, Progress, Ranges};
pub use cluster::{ClusterSpec, NodePods, Quotas, Size, Tier};
pub use document::{Declared, DocKey, Document, Kind};
pub use engine::{
    Action, BlobPath, Errand, ErrandSeen, Exit, Mailbox, NodePod, NodeSeen, NodeSpec, Observed,
    Parcel, Phase, TaskSeen, TaskSpec,
};
pub use event::{Answer, BatchEvent, Command, Event, NodeEvent, Refusal, RunEvent};
pub use family::{Child, Family, Part, PipelineSpec, Real, StepSpec, SweepSpec};
pub use id::{ComputeId, Id, JobId, Name, NodeId, TaskId, Workspace};
pub use instance_type::{
    DEFAULT_INSTANCE_TYPE, InstanceType, SelectorMode, TypeFault, merge_selectors,
};
pub use kubernetes::{
    ClusterKey, ClusterSeen, KubernetesSpec, Labels, Machine, Obstacle, Place, PodSpec,
};
pub use node::{NodeRecord, NodeState};
pub use run::{Outcome, RunRecord, RunSpec, RunState, Work};
pub use unfit::{Fix, Unfit};
pub use unit::{Attempt, Bytes, MilliCpu, Millis, Resources, Shortage, Time};
pub use view::{ClusterRecord, KubernetesRecord, View};
pub use why::Why;
