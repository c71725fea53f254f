//! What reality still lacks. Derived from the World and what is seen, never stored.
//!
//! M1 every action is idempotent by its ids (G1), so asking again is harmless and forgetting to ask is repaired by the slow
//!    timer, which looks everywhere;
//! M2 what is seen and not known is ended: tasks are stopped and forgotten, nodes are let go (no leaks);
//! M3 a task starts only on a node that is seen.

use model::{
    Action, ComputeId, Errand, JobId, NodeId, NodePod, NodeSeen, NodeSpec, NodeState, Observed,
    Phase, RunState, TaskId, TaskSeen, Work,
    batch::BatchOutput,
    engine::Placement,
    run::{RunRecord, TaskRecord},
};
use std::collections::BTreeSet;

use crate::{turn::Touched, world::World};

/// The actions that are missing, where `touched` says to look.
pub fn missing(world: &World, seen: &Observed, touched: &Touched) -> Vec<Action> {
    let mut actions = Vec::new();
    if touched.all {
        let mut nodes: BTreeSet<&NodeId> = world.view.nodes.keys().collect();
        nodes.extend(seen.nodes.keys());
        for id in nodes {
            node(world, seen, id, &mut actions);
        }
        let mut tasks: BTreeSet<TaskId> = seen.tasks.keys().cloned().collect();
        for job in &world.active {
            if let Some(record) = world.view.runs.get(job) {
                tasks.extend(record.tasks.iter().map(|(&index, t)| TaskId {
                    job: job.clone(),
                    index,
                    attempt: t.attempt,
                }));
            }
        }
        for id in &tasks {
            task(world, seen, id, &mut actions);
        }
        for job in &world.active {
            errand(world, seen, job, &mut actions);
        }
    } else {
        for id in &touched.nodes {
            node(world, seen, id, &mut actions);
        }
        for id in &touched.tasks {
            task(world, seen, id, &mut actions);
        }
        for job in &touched.runs {
            errand(world, seen, job, &mut actions);
        }
    }
    actions
}

fn node(world: &World, seen: &Observed, id: &NodeId, out: &mut Vec<Action>) {
    let seen = seen.nodes.get(id);
    let state = world.view.nodes.get(id).map(|n| &n.state);
    match (state, seen) {
        (Some(NodeState::Preparing), None) => {
            if let Some(cluster) = world.view.clusters.get(&id.compute) {
                let spec = NodeSpec {
                    size: cluster.spec.size.clone(),
                    tier: cluster.spec.tier,
                    pod: cluster.spec.pods.as_ref().map(|pods| NodePod {
                        compute: ComputeId::new(id.compute.workspace(), pods.kubernetes.clone()),
                        image: pods.image.clone(),
                    }),
                };
                out.push(Action::AddNode(id.clone(), spec));
            }
        }
        // M2, and what we let go ourselves.
        (None | Some(NodeState::Preempted | NodeState::Leaving { by: None, .. }), Some(_)) => {
            out.push(Action::RemoveNode(id.clone()));
        }
        (
            Some(NodeState::Leaving { by: Some(by), .. }),
            Some(NodeSeen::Booting { .. } | NodeSeen::Up | NodeSeen::Broken { .. }),
        ) => out.push(Action::Evict(id.clone(), *by)),
        (Some(NodeState::Leaving { by: Some(by), .. }), Some(NodeSeen::Evicting { by: known })) => {
            if by < known {
                out.push(Action::Evict(id.clone(), *by));
            }
        }
        (
            Some(
                NodeState::Preparing
                | NodeState::Idle
                | NodeState::Running { .. }
                | NodeState::Unusable { .. },
            ),
            Some(_),
        )
        | (_, None) => {}
    }
}

fn task(world: &World, seen: &Observed, id: &TaskId, out: &mut Vec<Action>) {
    match (world.task(id), seen.tasks.get(id)) {
        (None, None) => {}
        // M2. An exited task is forgotten once its end is in the log, which it is: the World does not hold it.
        (None, Some(t)) => out.push(match t.phase {
            Phase::Exited(_) => Action::Forget(id.clone()),
            Phase::Pending { .. } | Phase::Preparing { .. } | Phase::Running => {
                Action::Stop(id.clone())
            }
        }),
        (Some(t), None) => start(world, seen, id, t, out),
        (Some(t), Some(s)) => mailbox(world, id, t, s, out),
    }
}

fn start(world: &World, seen: &Observed, id: &TaskId, task: &TaskRecord, out: &mut Vec<Action>) {
    let ready = task
        .place
        .node()
        .is_none_or(|node| seen.nodes.contains_key(node));
    if task.running || task.stopping || !ready {
        return; // M3
    }
    let Some(record) = world.view.runs.get(&id.job) else {
        return;
    };
    let gang = match world.lives.get(&id.job) {
        Some(live) if live.batch.is_none() => live.gang(&id.job),
        _ => vec![id.clone()],
    };
    let placement = Placement {
        place: task.place.clone(),
        gang,
    };
    out.push(Action::Start(
        id.clone(),
        placement,
        record.spec.task.clone(),
    ));
}

fn mailbox(world: &World, id: &TaskId, task: &TaskRecord, seen: &TaskSeen, out: &mut Vec<Action>) {
    let exited = matches!(seen.phase, Phase::Exited(_));
    if task.stopping && !exited {
        out.push(Action::Stop(id.clone()));
    }
    let Some(host) = world.batch(&id.job).and_then(|b| b.host(id)) else {
        return;
    };
    if !task.stopping && !exited {
        for (lend, indices) in &host.lends {
            if *lend > seen.mailbox.lent {
                out.push(Action::Lend(id.clone(), *lend, indices.clone()));
            }
        }
    }
    let first = seen.mailbox.parcels.first();
    if first.is_some_and(|p| p.seq <= host.taken) {
        out.push(Action::Ack(id.clone(), host.taken));
    }
}

fn errand(world: &World, seen: &Observed, job: &JobId, out: &mut Vec<Action>) {
    let Some(errand) = world.view.runs.get(job).and_then(|r| errand_of(world, r)) else {
        return;
    };
    if !seen.errands.contains_key(&errand) {
        out.push(Action::Do(errand));
    }
}

/// The errand that a run needs now.
fn errand_of(world: &World, record: &RunRecord) -> Option<Errand> {
    match record.state {
        RunState::Done(_) | RunState::Canceling(_) => return None,
        RunState::Queued | RunState::Preparing | RunState::Running => {}
    }
    if record.spec.sends() && record.worked() {
        return Some(Errand::Send(record.id.clone()));
    }
    let (Work::Batch(spec), Some(progress)) = (&record.spec.work, &record.progress) else {
        return None;
    };
    if !progress.listed {
        return Some(Errand::List(record.id.clone()));
    }
    let kept = matches!(spec.output, BatchOutput::AppendRow { .. });
    let complete = world.batch(&record.id)?.complete();
    (kept && complete && progress.published.is_none()).then(|| Errand::Publish(record.id.clone()))
}
