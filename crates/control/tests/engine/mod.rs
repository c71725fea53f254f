//! An engine in memory: nodes are up at once, a pool finishes what it is lent at once.

use model::{
    Action, ClusterKey, ClusterSeen, Exit, Mailbox, Millis, NodeId, NodeSeen, Observed, Parcel,
    Phase, TaskId, TaskSeen, Time, engine::Finished,
};
use port::{Bell, Clock, Engine};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

#[derive(Default)]
struct Seen {
    nodes: BTreeMap<NodeId, NodeSeen>,
    tasks: BTreeMap<TaskId, TaskSeen>,
    parcels: BTreeMap<TaskId, u64>,
    embedded: ClusterSeen,
}

pub struct Fake {
    seen: Mutex<Seen>,
    bell: Bell,
}

impl Fake {
    pub fn new(bell: Bell) -> Self {
        Fake {
            seen: Mutex::default(),
            bell,
        }
    }

    /// From now on this is seen of the embedded cluster.
    pub fn show(&self, cluster: ClusterSeen) {
        self.seen.lock().unwrap().embedded = cluster;
        self.bell.ring();
    }
}

impl Engine for Fake {
    fn observe(&self) -> Observed {
        let seen = self.seen.lock().unwrap();
        let mut out = Observed::default();
        for (id, node) in &seen.nodes {
            out.nodes.insert_mut(id.clone(), node.clone());
        }
        for (id, task) in &seen.tasks {
            out.tasks.insert_mut(id.clone(), Arc::new(task.clone()));
        }
        out.clusters
            .insert_mut(ClusterKey::Embedded, Arc::new(seen.embedded.clone()));
        out.marks.all = true;
        out
    }

    fn apply(&self, actions: Vec<Action>) {
        let mut seen = self.seen.lock().unwrap();
        for action in actions {
            seen.act(action);
        }
        self.bell.ring();
    }
}

impl Seen {
    fn act(&mut self, action: Action) {
        match action {
            Action::AddNode(id, _) => {
                self.nodes.insert(id, NodeSeen::Up);
            }
            Action::RemoveNode(id) | Action::Evict(id, _) => {
                self.nodes.remove(&id);
            }
            Action::Start(id, ..) => {
                self.tasks.entry(id).or_insert(TaskSeen {
                    phase: Phase::Running,
                    mailbox: Mailbox::default(),
                });
            }
            Action::Stop(id) => {
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.phase = Phase::Exited(Exit::Stopped);
                }
            }
            Action::Lend(id, lend, indices) => {
                let Some(task) = self.tasks.get_mut(&id).filter(|t| t.mailbox.lent < lend) else {
                    return;
                };
                task.mailbox.lent = lend;
                let seq = self.parcels.entry(id).or_default();
                *seq += 1;
                let mut parcel = Parcel {
                    seq: *seq,
                    ..Parcel::default()
                };
                let mut rows = Vec::new();
                for index in indices.iter() {
                    let row = format!("row of {index}\n");
                    parcel.done.push(Finished {
                        index,
                        items: 2,
                        rows: 1,
                        bytes: u32::try_from(row.len()).unwrap(),
                        crc: crc32fast::hash(row.as_bytes()),
                    });
                    rows.extend(row.into_bytes());
                }
                parcel.rows = rows.into();
                task.mailbox.parcels.push(Arc::new(parcel));
            }
            Action::Ack(id, upto) => {
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.mailbox.parcels.retain(|p| p.seq > upto);
                }
            }
            Action::Forget(id) => {
                self.tasks.remove(&id);
            }
            Action::Do(errand) => panic!("{errand:?} is the control plane's own"),
        }
    }
}

/// A clock that never stands still, so that a test needs no time of its own.
#[derive(Default)]
pub struct Wall(Mutex<u64>);

impl Clock for Wall {
    fn now(&self) -> Time {
        let mut at = self.0.lock().unwrap();
        *at += 1;
        Time(1_800_000_000_000) + Millis(*at)
    }
}
