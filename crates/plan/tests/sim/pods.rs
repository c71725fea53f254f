//! Kubernetes computes in the simulation: `k0` has a cluster of its own, `k1` and `k2` share this machine.

use super::{Behaviour, Rng, Sim, count, make};
use model::{
    Bytes, ClusterKey, Command, ComputeId, Declared, DocKey, Exit, InstanceType, JobId, Kind,
    KubernetesSpec, Labels, Machine, MilliCpu, Resources, TaskId,
    instance_type::{Amounts, Unchecked, Written},
    kubernetes::{Taint, TaintEffect, TypeSeen},
};
use std::{collections::BTreeMap, sync::Arc};

const TYPES: [&str; 3] = ["t0", "t1", "t2"];
const MACHINES: [&str; 3] = ["n0", "n1", "n2"];
/// Jobs on Kubernetes computes in one seed.
const JOBS: u32 = 8;

fn labels(rng: &mut Rng) -> Labels {
    if !rng.one_in(4) {
        return Labels::new();
    }
    let value = if rng.one_in(2) { "a" } else { "b" };
    Labels::from([("zone".into(), value.into())])
}

fn instance_type(rng: &mut Rng, name: &str, node_selector: Labels) -> InstanceType {
    let amounts = |cpu: u64| Amounts {
        cpu: Some(Written::text("cpu", Some(i128::from(cpu) * 1_000_000))),
        memory: Some(Written::text("memory", Some(1 << 60))),
        devices: BTreeMap::new(),
    };
    let cpu = 500 * (1 + rng.below(8));
    InstanceType::new(Unchecked {
        name: name.into(),
        node_selector,
        requests: amounts(cpu),
        limits: amounts(cpu),
    })
    .unwrap()
}

fn machine(rng: &mut Rng) -> Machine {
    let taint = Taint {
        key: "full".into(),
        value: "yes".into(),
        effect: TaintEffect::NoSchedule,
    };
    Machine {
        labels: labels(rng),
        taints: rng.one_in(6).then_some(taint).into_iter().collect(),
        cordoned: rng.one_in(6),
        not_ready: rng.one_in(8).then(|| "KubeletNotReady".into()),
        allocatable: Resources {
            cpu: MilliCpu(1000 * (1 + rng.below(8))),
            memory: Bytes(64 << 30),
            devices: BTreeMap::new(),
        },
        pods: 2 + rng.small(10),
        requested: Resources::default(),
        pods_there: 0,
    }
}

/// One that everything fits on.
fn ample() -> Machine {
    Machine {
        allocatable: Resources {
            cpu: MilliCpu(1_000_000),
            memory: Bytes(1 << 50),
            devices: BTreeMap::new(),
        },
        pods: 1000,
        ..Machine::default()
    }
}

impl Sim<'_> {
    fn compute(&self, n: u64) -> ComputeId {
        ComputeId::new(&self.server.workspace, format!("k{n}"))
    }

    fn put_type(&mut self, name: &str, declared: InstanceType) -> Command {
        let mut document =
            make::document(&self.server.workspace, Kind::InstanceType, name, self.now());
        document.key = DocKey::instance_type(name);
        Command::Put {
            document,
            declared: Declared::InstanceType(Arc::new(declared)),
        }
    }

    fn put_kubernetes(&self, n: u64) -> Command {
        let id = self.compute(n);
        let spec = KubernetesSpec {
            kubeconfig: (n == 0).then(|| "digest".into()),
            namespace: "default".into(),
            node_selector: Labels::new(),
            selector_mode: Default::default(),
            default_type: None,
            types: BTreeMap::new(),
            pull_policy: Default::default(),
            agent_image: None,
            run_as_user: None,
        };
        Command::Put {
            document: make::document(&self.server.workspace, Kind::Compute, id.name(), self.now()),
            declared: Declared::Kubernetes(Arc::new(spec)),
        }
    }

    fn keys(&self) -> [ClusterKey; 2] {
        [ClusterKey::Embedded, ClusterKey::Attached(self.compute(0))]
    }

    /// The computes, a few types, a few machines.
    pub(super) fn begin_pods(&mut self) -> Vec<Command> {
        let Some(mut rng) = self.pods.take() else {
            return Vec::new();
        };
        let mut commands: Vec<Command> = (0..3).map(|n| self.put_kubernetes(n)).collect();
        for key in self.keys() {
            let placed_here = key == ClusterKey::Embedded;
            let machines = if placed_here { 1 } else { 2 };
            let cluster = self.server.fake.clusters.entry(key.clone()).or_default();
            cluster.placed_here = placed_here;
            cluster.types = (!placed_here).then(BTreeMap::new);
            for name in &MACHINES[..machines] {
                cluster.machines.insert((*name).into(), machine(&mut rng));
            }
            self.server.fake.show_cluster(&key);
        }
        for name in TYPES {
            let selector = labels(&mut rng);
            commands.extend(self.set_type(&mut rng, name, selector, true));
            commands.extend(self.set_type(&mut rng, name, Labels::new(), false));
        }
        self.pods = Some(rng);
        commands
    }

    /// Writes a type of the embedded cluster (by a command) or of the attached one.
    fn set_type(
        &mut self,
        rng: &mut Rng,
        name: &str,
        selector: Labels,
        here: bool,
    ) -> Option<Command> {
        let made = instance_type(rng, name, selector);
        if here {
            return Some(self.put_type(name, made));
        }
        let [_, key] = self.keys();
        let cluster = self.server.fake.clusters.entry(key.clone()).or_default();
        let types = cluster.types.get_or_insert_default();
        types.insert(name.into(), TypeSeen::Usable(made));
        self.server.fake.show_cluster(&key);
        None
    }

    pub(super) fn pod_command(&mut self) -> Option<Command> {
        let mut rng = self.pods.take()?;
        let command = match rng.below(12) {
            0..=4 if self.pod_jobs < JOBS => Some(self.submit_pods(&mut rng)),
            5 => {
                let name = rng.pick(&TYPES)?;
                count(&self.counts.types, 1);
                if rng.one_in(3) {
                    Some(Command::Remove {
                        key: DocKey::instance_type(name),
                    })
                } else {
                    let selector = labels(&mut rng);
                    self.set_type(&mut rng, name, selector, true)
                }
            }
            6 if rng.one_in(6) => {
                let n = rng.below(3);
                Some(if rng.one_in(2) {
                    Command::Remove {
                        key: DocKey::compute(&self.compute(n)),
                    }
                } else {
                    self.put_kubernetes(n)
                })
            }
            _ => None,
        };
        self.pods = Some(rng);
        command
    }

    fn submit_pods(&mut self, rng: &mut Rng) -> Command {
        count(&self.counts.pod_jobs, 1);
        let job = JobId::new(&self.server.workspace, format!("p{}", self.pod_jobs));
        self.pod_jobs += 1;
        let behaviour = Behaviour {
            prepare: 1 + rng.below(2000),
            run: 1 + rng.below(20_000),
            exit: if rng.one_in(8) {
                Exit::Code(3)
            } else {
                Exit::Code(0)
            },
            ..Behaviour::default()
        };
        self.server.fake.behaviours.insert(job.clone(), behaviour);
        let instances = if rng.one_in(3) { 1 + rng.small(4) } else { 1 };
        let mut spec = make::command(&self.compute(rng.below(3)), instances, None);
        spec.instance_type = rng.pick(&TYPES).filter(|_| !rng.one_in(6)).map(Into::into);
        self.jobs.push(job.clone());
        Command::Submit {
            document: make::document(&self.server.workspace, Kind::Job, job.name(), self.now()),
            id: job,
            spec: Arc::new(spec),
            request: None,
        }
    }

    pub(super) fn hurt_pods(&mut self) {
        let Some(mut rng) = self.pods.take() else {
            return;
        };
        let c = self.counts;
        let is_pod = |task: &&TaskId| task.job.name().starts_with('p');
        let tasks: Vec<TaskId> = self
            .server
            .fake
            .tasks
            .keys()
            .filter(is_pod)
            .cloned()
            .collect();
        let [here, there] = self.keys();
        let key = if rng.one_in(3) { here } else { there };
        let fake = &mut self.server.fake;
        match rng.below(10) {
            0 | 1 => {
                if let Some(task) = rng.pick(&tasks) {
                    count(&c.pods_lost, 1);
                    let why = "evicted".into();
                    fake.exit_task(&task, Exit::Lost { why });
                }
            }
            2 => {
                if let Some(task) = rng.pick(&tasks) {
                    count(&c.pods_vanished, 1);
                    fake.vanish_task(&task);
                }
            }
            3 | 4 => {
                count(&c.machines, 1);
                let name: Box<str> = rng.pick(&MACHINES).unwrap_or_default().into();
                let new = machine(&mut rng);
                let cluster = fake.clusters.entry(key.clone()).or_default();
                match cluster.machines.get_mut(&name) {
                    // what its pods hold stays held
                    Some(old) => {
                        *old = Machine {
                            requested: old.requested.clone(),
                            pods_there: old.pods_there,
                            ..new
                        };
                    }
                    None => {
                        cluster.machines.insert(name, new);
                    }
                }
                fake.show_cluster(&key);
                fake.schedule();
            }
            5 => {
                count(&c.refusals, 1);
                fake.refusing = rng.one_in(2).then(|| "exceeded quota".into());
                fake.schedule();
            }
            6 => {
                count(&c.refusals, 1);
                let cluster = fake.clusters.entry(key.clone()).or_default();
                cluster.trouble = rng.one_in(2).then(|| "connection refused".into());
                fake.show_cluster(&key);
            }
            7 => {
                count(&c.types, 1);
                let [_, there] = self.keys();
                if let Some(name) = rng.pick(&TYPES) {
                    if rng.one_in(3) {
                        let cluster = self.server.fake.clusters.entry(there.clone()).or_default();
                        cluster.types.get_or_insert_default().remove(name);
                        self.server.fake.show_cluster(&there);
                    } else {
                        let selector = labels(&mut rng);
                        let none = self.set_type(&mut rng, name, selector, false);
                        assert!(none.is_none());
                    }
                }
            }
            _ => {}
        }
        self.pods = Some(rng);
    }

    /// The trouble is over: every type is there, and something that every pod fits on.
    pub(super) fn heal_pods(&mut self) -> Vec<Command> {
        let Some(mut rng) = self.pods.take() else {
            return Vec::new();
        };
        self.server.fake.refusing = None;
        let mut commands = Vec::new();
        for name in TYPES {
            commands.extend(self.set_type(&mut rng, name, Labels::new(), true));
            commands.extend(self.set_type(&mut rng, name, Labels::new(), false));
        }
        for key in self.keys() {
            let cluster = self.server.fake.clusters.entry(key.clone()).or_default();
            cluster.trouble = None;
            cluster.machines.insert("ample".into(), ample());
            self.server.fake.show_cluster(&key);
        }
        self.server.fake.schedule();
        self.pods = Some(rng);
        commands
    }
}
