//! Nodes: Azure's six states and what moves between them.
//!
//! K1 a node holds at most one task (a cluster node serves one job at a time);
//! K2 a node that holds a task is never removed by scale-down: `Removing` is legal only from `Idle`, `Preparing` and `Unusable`;
//! K3 a preempted node never returns: what comes back is a new incarnation.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::{
    event::NodeEvent,
    id::{NodeId, TaskId},
    unit::Time,
};

/// Azure's six node states, each with what it implies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// Asked for, not there yet.
    Preparing,
    /// Ready, without work.
    Idle,
    /// Holds a task (K1).
    Running {
        /// The task.
        task: TaskId,
    },
    /// On its way out: by scale-down, or under an eviction notice.
    Leaving {
        /// When it will be gone at the latest; `None` for a scale-down.
        by: Option<Time>,
        /// A task that still runs under a notice.
        task: Option<TaskId>,
    },
    /// Taken away. Kept visible for a while, counts nowhere.
    Preempted,
    /// Does not work and will be replaced.
    Unusable {
        /// What it said.
        why: Box<str>,
    },
}

/// One node as known after the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Which.
    pub id: NodeId,
    /// Its state.
    pub state: NodeState,
    /// Since when it is in this state.
    pub since: Time,
    /// When it was asked for.
    pub asked: Time,
}

/// An event that the present state does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Illegal {
    /// The state's name.
    pub state: &'static str,
    /// The event's name.
    pub event: &'static str,
}
impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a node that is {} cannot be {}", self.state, self.event)
    }
}

impl NodeState {
    /// Azure's word for the state.
    pub fn name(&self) -> &'static str {
        match self {
            NodeState::Preparing => "preparing",
            NodeState::Idle => "idle",
            NodeState::Running { .. } => "running",
            NodeState::Leaving { .. } => "leaving",
            NodeState::Preempted => "preempted",
            NodeState::Unusable { .. } => "unusable",
        }
    }
    /// The task it holds, if any.
    pub fn task(&self) -> Option<&TaskId> {
        match self {
            NodeState::Running { task } => Some(task),
            NodeState::Leaving { task, .. } => task.as_ref(),
            NodeState::Preparing
            | NodeState::Idle
            | NodeState::Preempted
            | NodeState::Unusable { .. } => None,
        }
    }
    /// Whether it can serve work now or soon (R-61 counts these).
    pub fn usable(&self) -> bool {
        matches!(
            self,
            NodeState::Preparing | NodeState::Idle | NodeState::Running { .. }
        )
    }
    /// Whether it exists and so counts against a quota: everything but a preempted node.
    pub fn exists(&self) -> bool {
        !matches!(self, NodeState::Preempted)
    }

    /// The state after `event`, or why that cannot be. Total: every pair is decided here.
    pub fn on(&self, event: &NodeEvent) -> Result<NodeState, Illegal> {
        use NodeState as S;
        let no = || {
            Err(Illegal {
                state: self.name(),
                event: event.name(),
            })
        };
        match event {
            NodeEvent::Asked => no(),
            NodeEvent::Ready => match self {
                S::Preparing => Ok(S::Idle),
                S::Idle
                | S::Running { .. }
                | S::Leaving { .. }
                | S::Preempted
                | S::Unusable { .. } => no(),
            },
            NodeEvent::Placed { task } => match self {
                S::Idle => Ok(S::Running { task: task.clone() }),
                S::Preparing
                | S::Running { .. }
                | S::Leaving { .. }
                | S::Preempted
                | S::Unusable { .. } => no(),
            },
            NodeEvent::Emptied => match self {
                S::Running { .. } => Ok(S::Idle),
                S::Leaving { by, .. } => Ok(S::Leaving {
                    by: *by,
                    task: None,
                }),
                S::Preparing | S::Idle | S::Preempted | S::Unusable { .. } => no(),
            },
            NodeEvent::Evicting { by } => match self {
                S::Preparing | S::Idle | S::Unusable { .. } => Ok(S::Leaving {
                    by: Some(*by),
                    task: None,
                }),
                S::Running { task } => Ok(S::Leaving {
                    by: Some(*by),
                    task: Some(task.clone()),
                }),
                S::Leaving { by: before, task } => Ok(S::Leaving {
                    by: Some(before.map_or(*by, |b| b.min(*by))),
                    task: task.clone(),
                }),
                S::Preempted => no(),
            },
            NodeEvent::Removing => match self {
                S::Preparing | S::Idle | S::Unusable { .. } => Ok(S::Leaving {
                    by: None,
                    task: None,
                }),
                S::Leaving { .. } | S::Running { .. } | S::Preempted => no(), // K2
            },
            NodeEvent::Preempted => match self {
                S::Preparing
                | S::Idle
                | S::Running { .. }
                | S::Leaving { .. }
                | S::Unusable { .. } => Ok(S::Preempted),
                S::Preempted => no(), // K3
            },
            NodeEvent::Broke { why } => match self {
                S::Preparing
                | S::Idle
                | S::Running { .. }
                | S::Leaving { .. }
                | S::Unusable { .. } => Ok(S::Unusable { why: why.clone() }),
                S::Preempted => no(),
            },
            NodeEvent::Gone => match self {
                S::Leaving { .. }
                | S::Preempted
                | S::Unusable { .. }
                | S::Preparing
                | S::Idle
                | S::Running { .. } => Ok(self.clone()),
            },
        }
    }
}
