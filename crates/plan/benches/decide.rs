//! What a decision costs (performance.md A1, A4, E1): `cargo bench -p plan`.
//!
//! * `batch/N`: a batch run of N no-op mini-batches on two hosts, parcels of 200 with their rows, a turn for each pair of
//!   parcels; `decide`, `missing` and the publishing of the view, per mini-batch;
//! * `place/10k of 100k`: 10,000 idle nodes, 100,000 queued jobs; the turn that places 10,000, per placement;
//! * `queued/turn`: one job ends, the first of 100,000 queued ones starts, and another is submitted; one turn, or two.

#[path = "../tests/fake/make.rs"]
mod make;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use make::BatchOf;
use model::{
    Action, Command, ComputeId, Declared, Errand, ErrandSeen, Exit, JobId, Kind, Mailbox, Millis,
    NodeSeen, Observed, Parcel, Phase, Ranges, TaskId, TaskSeen, Tier, Time, Workspace,
    engine::{Finished, Marks},
};
use plan::{Turn, World};
use std::{collections::BTreeMap, hint::black_box, sync::Arc};

const PARCEL: usize = 200;
const ROW: &[u8] = b"some/input/file.csv,0\n";

struct Loop {
    world: World,
    seen: Observed,
    now: Time,
    workspace: Arc<Workspace>,
}

impl Loop {
    fn new() -> Self {
        Loop {
            world: World::default(),
            seen: Observed::default(),
            now: Time(1000),
            workspace: Workspace::new("s", "g", "w"),
        }
    }
    fn turn(&mut self, commands: Vec<Command>) -> (Turn, Vec<Action>) {
        let turn = plan::decide(
            &mut self.world,
            commands,
            plan::Archive::empty(),
            &self.seen,
            self.now,
        );
        let actions = plan::missing(&self.world, &self.seen, &turn.touched);
        black_box(self.world.view.clone()); // published after each turn
        self.seen.marks = Marks::default();
        self.now = self.now + Millis(1);
        (turn, actions)
    }
    fn cluster(&mut self, nodes: u32) -> ComputeId {
        let id = ComputeId::new(&self.workspace, "cluster");
        let spec = make::cluster(Tier::Dedicated, 1, nodes, nodes, Millis::secs(120));
        let put = |kind, name, declared| Command::Put {
            document: make::document(&self.workspace, kind, name, Time(0)),
            declared,
        };
        let commands = vec![
            put(Kind::Quota, "here", make::quotas(100_000, 100_000, 0)),
            put(Kind::Compute, "cluster", Declared::Cluster(Arc::new(spec))),
        ];
        let (_, actions) = self.turn(commands);
        for action in actions {
            if let Action::AddNode(id, _) = action {
                self.seen.nodes.insert_mut(id.clone(), NodeSeen::Up);
                self.seen.marks.nodes.insert(id);
            }
        }
        self.turn(Vec::new());
        id
    }
    fn submit(&self, name: &str, spec: model::RunSpec) -> Command {
        Command::Submit {
            id: JobId::new(&self.workspace, name),
            document: make::document(&self.workspace, Kind::Job, name, Time(0)),
            spec: Arc::new(spec),
            request: None,
        }
    }
}

/// A host without processes: what it was lent, and the parcel to come.
#[derive(Default)]
struct Host {
    lent: u64,
    queue: std::collections::VecDeque<u32>,
    seq: u64,
}

/// A whole batch run of `total` mini-batches.
fn batch(total: u32) -> World {
    let mut l = Loop::new();
    let compute = l.cluster(2);
    let job = JobId::new(&l.workspace, "job");
    let command = l.submit("job", make::batch(&compute, 2, &BatchOf::default()));
    l.turn(vec![command]);
    let listed = ErrandSeen::Listed {
        files: u64::from(total),
        digest: "d".into(),
    };
    l.seen.errands.insert_mut(Errand::List(job.clone()), listed);
    l.seen.marks.errands.insert(Errand::List(job.clone()));
    let rows: Arc<[u8]> = ROW.repeat(PARCEL).into();
    let mut hosts: BTreeMap<TaskId, Host> = BTreeMap::new();
    loop {
        let (_, actions) = l.turn(Vec::new());
        for action in actions {
            match action {
                Action::Start(id, ..) => {
                    hosts.insert(id, Host::default());
                }
                Action::Lend(id, lend, indices) => {
                    if let Some(host) = hosts.get_mut(&id)
                        && lend > host.lent
                    {
                        host.lent = lend;
                        host.queue.extend(indices.iter());
                    }
                }
                _ => {}
            }
        }
        if l.world.batch(&job).is_some_and(|b| b.done().len() == total) {
            return l.world;
        }
        for (id, host) in &mut hosts {
            let n = host.queue.len().min(PARCEL);
            let done: Vec<Finished> = host.queue.drain(..n).map(finished).collect();
            let mut parcels = Vec::new();
            if n > 0 {
                host.seq += 1;
                parcels.push(Arc::new(Parcel {
                    seq: host.seq,
                    done,
                    rows: if n == PARCEL {
                        rows.clone()
                    } else {
                        rows[..n * ROW.len()].into()
                    },
                    ..Parcel::default()
                }));
            }
            let seen = TaskSeen {
                phase: Phase::Running,
                mailbox: Mailbox {
                    lent: host.lent,
                    started: host.queue.iter().take(2).copied().collect::<Ranges>(),
                    parcels,
                },
            };
            l.seen.tasks.insert_mut(id.clone(), Arc::new(seen));
            l.seen.marks.tasks.insert(id.clone());
        }
        l.now = l.now + Millis(3);
    }
}

fn finished(index: u32) -> Finished {
    Finished {
        index,
        items: 1,
        rows: 1,
        bytes: 22,
        crc: 0,
    }
}

/// `nodes` idle nodes and `jobs` queued jobs, not yet placed.
fn crowd(nodes: u32, jobs: u32) -> (Loop, Vec<Command>) {
    let mut l = Loop::new();
    let compute = l.cluster(nodes);
    let spec = make::command(&compute, 1, None);
    let commands = (0..jobs)
        .map(|n| l.submit(&format!("job_{n:06}"), spec.clone()))
        .collect();
    l.turn(Vec::new());
    (l, commands)
}

fn place(l: &Loop) -> (World, Turn) {
    let mut world = l.world.clone();
    let turn = plan::decide(
        &mut world,
        Vec::new(),
        plan::Archive::empty(),
        &l.seen,
        l.now,
    );
    (world, turn)
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("batch");
    group.sample_size(10);
    for total in [1_000, 100_000, 1_000_000] {
        group.throughput(Throughput::Elements(u64::from(total)));
        group.bench_function(total.to_string(), |b| b.iter(|| batch(total)));
    }
    group.finish();

    let mut group = c.benchmark_group("place");
    group.sample_size(10);
    group.throughput(Throughput::Elements(10_000));
    group.bench_function("10k of 100k", |b| {
        b.iter_batched(
            || {
                // All jobs are queued while no node is up; then all nodes are there at once.
                let mut l = Loop::new();
                let compute = ComputeId::new(&l.workspace, "cluster");
                let (with_nodes, _) = crowd(10_000, 0);
                l.world = with_nodes.world;
                l.seen = with_nodes.seen;
                l.now = with_nodes.now;
                let spec = make::command(&compute, 1, None);
                (0..100_000)
                    .map(|n| l.submit(&format!("job_{n:06}"), spec.clone()))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|command| {
                        let Command::Submit {
                            id,
                            document,
                            spec,
                            request,
                        } = command
                        else {
                            return;
                        };
                        l.world.apply(&model::Event::Run {
                            run: id,
                            event: model::RunEvent::Submitted {
                                document,
                                spec,
                                request,
                            },
                            at: l.now,
                        });
                    });
                l
            },
            |l| place(&l),
            BatchSize::PerIteration,
        );
    });
    group.finish();

    let mut group = c.benchmark_group("queued");
    let (mut l, commands) = crowd(1, 100_000);
    let spec = make::command(&ComputeId::new(&l.workspace, "cluster"), 1, None);
    let (_, actions) = l.turn(commands);
    let mut running = started(&actions).expect("the first job runs");
    let mut n = 0;
    group.bench_function("turn", |b| {
        b.iter(|| {
            let seen = TaskSeen {
                phase: Phase::Exited(Exit::Code(0)),
                mailbox: Mailbox::default(),
            };
            l.seen.tasks.insert_mut(running.clone(), Arc::new(seen));
            l.seen.marks.tasks.insert(running.clone());
            n += 1;
            let next = l.submit(&format!("later_{n:09}"), spec.clone());
            let (_, mut actions) = l.turn(vec![next]);
            l.seen.tasks.remove_mut(&running);
            if started(&actions).is_none() {
                // The engine has forgotten the task now, which makes the node free.
                l.seen.marks.tasks.insert(running.clone());
                actions = l.turn(Vec::new()).1;
            }
            running = started(&actions).expect("the next job runs");
        });
    });
    group.finish();
}

fn started(actions: &[Action]) -> Option<TaskId> {
    actions.iter().find_map(|a| match a {
        Action::Start(id, ..) => Some(id.clone()),
        _ => None,
    })
}

criterion_group!(all, benches);
criterion_main!(all);
