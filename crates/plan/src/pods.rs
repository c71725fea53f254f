//! Kubernetes computes: runs are admitted as pods, not given nodes.
//!
//! Q1 the instance type is looked up when a run is admitted; what its pods carry is durable from then on, whatever becomes of
//!    the type (a changed type counts for the next attempt);
//! Q2 a gang is admitted whole or not at all; where the cluster's scheduler places, at most one gang of a compute waits for
//!    machines with its pods made, so that two cannot hold half each for ever;
//! Q3 where Zaffre places (one machine), a pod goes only where it fits, all computes counted together; a run that does not
//!    fit lets those behind it pass, as the scheduler of Kubernetes does;
//! Q4 where the cluster's scheduler places, pods are made though they do not fit yet, since an autoscaler acts on nothing
//!    else; `PODS_AHEAD` bounds how many;
//! Q5 the check that refuses returns the reason, with the numbers of each machine (`Unfit`).

use model::{
    ClusterKey, ClusterSeen, ComputeId, Event, InstanceType, JobId, KubernetesRecord, Labels,
    Machine, Phase, Place, PodSpec, Refusal, Resources, RunEvent, RunSpec, RunState, TaskId, Why,
    Work,
    instance_type::{DEFAULT_INSTANCE_TYPE, SelectorConflict, SelectorMode, merge_selectors},
    kubernetes::TypeSeen,
    unfit::{self, Unfit},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    limits::{ADMIT_LOOKAHEAD, PODS_AHEAD},
    pool::count,
    turn::Turning,
    world::World,
};

/// One Kubernetes compute. All but `told` follows from its runs (W2).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pods {
    /// Runs that are not done, by turn.
    pub runs: BTreeMap<u64, JobId>,
    /// Those of them that wait to be admitted.
    pub waiting: BTreeMap<u64, JobId>,
    /// Pods whose program has not started, by run.
    pub unstarted: BTreeMap<u64, u32>,
    /// Gangs with such pods.
    pub gangs: BTreeSet<u64>,
    /// Waiting runs that were told what they wait for.
    pub told: BTreeSet<JobId>,
}

impl Pods {
    fn ahead(&self) -> u32 {
        self.unstarted.values().sum()
    }
}

/// What our own pods hold of each machine of the embedded cluster.
pub(crate) type Held = BTreeMap<Box<str>, (Resources, u32)>;

/// Whether a run may be admitted now.
enum Verdict {
    Admit(Vec<PodSpec>),
    Wait(Why),
}

impl World {
    pub(crate) fn kubernetes_of(&self, compute: &ComputeId) -> Option<&Arc<KubernetesRecord>> {
        self.view.kubernetes.get(compute)
    }

    /// The instance type that a run gets, merged with the compute's own selector.
    fn pod_of(&self, record: &KubernetesRecord, spec: &RunSpec) -> Result<PodSpec, Box<Why>> {
        let named = spec.instance_type.as_deref();
        let name = named
            .or(record.spec.default_type.as_deref())
            .unwrap_or(DEFAULT_INSTANCE_TYPE);
        let found = self.view.type_of(record, name);
        let instance_type = match found {
            Some(TypeSeen::Usable(instance_type)) => instance_type,
            Some(TypeSeen::Broken(message)) => {
                return Err(Box::new(Why::BrokenType {
                    instance_type: name.into(),
                    message,
                }));
            }
            None => {
                return Err(Box::new(Why::NoSuchType {
                    instance_type: name.into(),
                    compute: record.id.name().into(),
                    known: self.view.types_of(record).into_keys().collect(),
                }));
            }
        };
        let seen = self.view.clusters_seen.get(&record.cluster());
        pod(record, seen.map(Arc::as_ref), &instance_type).map_err(|message| {
            Box::new(Why::BrokenType {
                instance_type: name.into(),
                message,
            })
        })
    }

    /// The machines with what our own pods hold counted in, where nobody else counts it.
    fn machines(&self, cluster: &ClusterSeen) -> BTreeMap<Box<str>, Machine> {
        let mut machines = cluster.machines.clone();
        if cluster.placed_here {
            for (name, (held, pods)) in &self.embedded {
                if let Some(machine) = machines.get_mut(name) {
                    machine.requested.add(held);
                    machine.pods_there += pods;
                }
            }
        }
        machines
    }

    fn verdict(&self, compute: &ComputeId, job: &JobId) -> Option<Verdict> {
        let record = self.kubernetes_of(compute)?;
        let run = self.run(job)?;
        let pods = self.pods.get(compute)?;
        let cluster = self.view.clusters_seen.get(&record.cluster());
        let trouble = |message: Box<str>| {
            let compute = compute.name().into();
            Some(Verdict::Wait(Why::Cluster { compute, message }))
        };
        let Some(cluster) = cluster else {
            return trouble("it was not seen yet".into());
        };
        if let Some(message) = &cluster.trouble {
            return trouble(message.clone());
        }
        let pod = match self.pod_of(record, &run.spec) {
            Ok(pod) => pod,
            Err(why) => return Some(Verdict::Wait(*why)),
        };
        let n = run.spec.instances.max(1);
        if !cluster.placed_here && n == 1 {
            return Some(if pods.ahead() < PODS_AHEAD {
                Verdict::Admit(vec![pod])
            } else {
                Verdict::Wait(Why::PodsAhead { limit: PODS_AHEAD })
            }); // Q4
        }
        let verdict = match place_all(&pod, n, self.machines(cluster)) {
            Ok(placed) if cluster.placed_here => Verdict::Admit(placed), // Q3
            Ok(_) => Verdict::Admit(vec![pod; n as usize]),
            Err((missing, unfit)) if cluster.placed_here => {
                Verdict::Wait(unschedulable(&pod, missing, n, unfit))
            }
            Err(_) => match pods.gangs.first().and_then(|seq| pods.runs.get(seq)) {
                Some(first) => Verdict::Wait(Why::GangAhead {
                    first: first.name().into(),
                }), // Q2
                None => Verdict::Admit(vec![pod; n as usize]),
            },
        };
        Some(verdict)
    }

    /// What a run of a Kubernetes compute waits for at this moment.
    pub(crate) fn pod_why(&self, compute: &ComputeId, job: &JobId) -> Option<Why> {
        let run = self.run(job)?;
        match run.state {
            RunState::Queued if run.tasks.is_empty() => match self.verdict(compute, job)? {
                Verdict::Wait(why) => Some(why),
                Verdict::Admit(_) => None,
            },
            RunState::Preparing => self.view.no_machine(run).or_else(|| run.why.clone()),
            RunState::Queued | RunState::Running | RunState::Canceling(_) | RunState::Done(_) => {
                run.why.clone()
            }
        }
    }

    /// Notes what our own pods hold of the embedded cluster's machines.
    pub(crate) fn hold(&mut self, place: &Place) {
        let Some((machine, pod)) = placed_here(place) else {
            return;
        };
        let held = self.embedded.entry(machine.into()).or_default();
        held.0.add(&pod.requests);
        held.1 += 1;
        self.embedded_changed = true;
    }

    /// The opposite of `hold`.
    pub(crate) fn release(&mut self, place: &Place) {
        let Some((machine, pod)) = placed_here(place) else {
            return;
        };
        if let Some(held) = self.embedded.get_mut(machine) {
            held.0.remove(&pod.requests);
            held.1 = held.1.saturating_sub(1);
            if held.1 == 0 {
                self.embedded.remove(machine);
            }
        }
        self.embedded_changed = true;
    }

    /// Whether a run may be submitted: its type is there and fits the compute. A cluster that was not seen yet decides later.
    pub(crate) fn may_submit_pods(
        &self,
        record: &KubernetesRecord,
        spec: &RunSpec,
    ) -> Result<(), Refusal> {
        let invalid = |message: String| Refusal::Invalid {
            code: "BadArgument",
            message,
        };
        if let Work::Batch(_) = spec.work {
            return Err(invalid(format!(
                "compute {} is a Kubernetes compute: batch deployments run on a cluster (amlcompute)",
                record.id
            )));
        }
        let seen = self.view.clusters_seen.get(&record.cluster());
        let known = !record.spec.is_attached() || seen.is_some_and(|c| c.types.is_some());
        match self.pod_of(record, spec) {
            Err(why) if known => Err(invalid(why.to_string())),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

fn placed_here(place: &Place) -> Option<(&str, &PodSpec)> {
    let pod = place.pod()?;
    Some((pod.machine.as_deref()?, pod))
}

fn unschedulable(pod: &PodSpec, pods: u32, of: u32, unfit: Unfit) -> Why {
    Why::Unschedulable {
        instance_type: pod.instance_type.clone(),
        pods,
        of,
        unfit,
    }
}

/// The pod of a type on a compute. The error names both sides of a contradiction (D-1).
fn pod(
    record: &KubernetesRecord,
    seen: Option<&ClusterSeen>,
    instance_type: &InstanceType,
) -> Result<PodSpec, Box<str>> {
    let conflict = |conflict: SelectorConflict| Box::<str>::from(conflict.to_string());
    let none = Labels::new();
    let cluster = seen.map_or(&none, |c| &c.node_selector);
    let compute = &record.spec.node_selector;
    let extension = merge_selectors(cluster, compute, SelectorMode::Merge).map_err(conflict)?;
    let own = instance_type.node_selector();
    let selector = merge_selectors(&extension, own, record.spec.selector_mode).map_err(conflict)?;
    let limits = instance_type.limits().clone();
    let mut requests = instance_type.requests().clone();
    requests.devices = limits.devices.clone();
    Ok(PodSpec {
        compute: record.id.clone(),
        instance_type: instance_type.name().into(),
        requests,
        limits,
        selector,
        machine: None,
    })
}

/// A machine for each of `n` pods, all at once; else how many have none, and why the first of those has none.
fn place_all(
    pod: &PodSpec,
    n: u32,
    mut machines: BTreeMap<Box<str>, Machine>,
) -> Result<Vec<PodSpec>, (u32, Unfit)> {
    let mut placed = Vec::new();
    for done in 0..n {
        let name: Box<str> = match unfit::choose(pod, machines.iter()) {
            Ok(name) => name.into(),
            Err(unfit) => return Err((n - done, unfit)),
        };
        if let Some(machine) = machines.get_mut(&name) {
            machine.take(&pod.requests);
        }
        placed.push(PodSpec {
            machine: Some(name),
            ..pod.clone()
        });
    }
    Ok(placed)
}

impl Turning<'_> {
    /// Takes in what is seen of clusters; the computes on those that changed are looked at.
    pub fn clusters(&mut self, all: bool) {
        let mut changed = BTreeSet::new();
        let gone: Vec<ClusterKey> = self
            .world
            .view
            .clusters_seen
            .keys()
            .filter(|key| !self.seen.clusters.contains_key(*key))
            .cloned()
            .collect();
        for key in gone {
            self.world.view.clusters_seen.remove_mut(&key);
            changed.insert(key);
        }
        for (key, cluster) in self.seen.clusters.iter() {
            if !all && !self.seen.marks.clusters.contains(key) {
                continue;
            }
            if self.world.view.clusters_seen.get(key) != Some(cluster) {
                let seen = &mut self.world.view.clusters_seen;
                seen.insert_mut(key.clone(), cluster.clone());
                changed.insert(key.clone());
            }
        }
        self.republish |= !changed.is_empty();
        for (id, record) in self.world.view.kubernetes.iter() {
            if changed.contains(&record.cluster()) {
                self.world.dirty.insert(id.clone());
            }
        }
    }

    /// Room on the embedded cluster is shared: when it changes, every compute on it is looked at.
    pub fn embedded_room(&mut self) {
        if !std::mem::take(&mut self.world.embedded_changed) {
            return;
        }
        for (id, record) in self.world.view.kubernetes.iter() {
            if !record.spec.is_attached() {
                self.world.dirty.insert(id.clone());
            }
        }
    }

    /// Admits the runs of a Kubernetes compute that may be, in the order of submission; says why the first of the others waits.
    pub fn admit(&mut self, compute: &ComputeId) {
        let Some(record) = self.world.kubernetes_of(compute) else {
            return;
        };
        let deleting = record.deleting;
        let pods = self.world.pods.get(compute);
        if deleting {
            // What it made in its cluster goes first: then the engine shows the cluster no more. One that cannot be reached
            // keeps nobody waiting.
            let cluster = self.seen.clusters.get(&record.cluster());
            let shown = cluster.is_some_and(|c| c.trouble.is_none());
            let attached = record.spec.is_attached();
            if pods.is_none_or(|p| p.runs.is_empty()) && !(attached && shown) {
                let compute = compute.clone();
                self.emit_event(Event::ComputeGone { compute });
            }
            return;
        }
        self.recall(compute);
        let pods = self.world.pods.get(compute);
        let waiting = pods.map(|p| p.waiting.values().take(ADMIT_LOOKAHEAD).cloned());
        let waiting: Vec<JobId> = waiting.into_iter().flatten().collect();
        let mut head = None;
        for job in waiting {
            match self.world.verdict(compute, &job) {
                Some(Verdict::Admit(pods)) => self.admit_run(&job, pods),
                Some(Verdict::Wait(why)) if head.is_none() => head = Some((job, why)),
                Some(Verdict::Wait(_)) | None => {}
            }
        }
        self.tell(compute, head);
    }

    /// Pods that are on no machine and would be made otherwise today are taken back: whoever corrects a type wants its jobs to
    /// run (Q1). A type that is gone leaves its pods as they are.
    fn recall(&mut self, compute: &ComputeId) {
        let Some(pods) = self.world.pods.get(compute) else {
            return;
        };
        let unstarted = pods.unstarted.keys().filter_map(|seq| pods.runs.get(seq));
        let outdated: Vec<JobId> = unstarted
            .filter(|job| self.is_outdated(compute, job).unwrap_or(false))
            .cloned()
            .collect();
        for job in outdated {
            for task in self.tasks_of(&job) {
                self.emit_run(&job, RunEvent::TaskRecalled { task });
            }
        }
    }

    fn is_outdated(&self, compute: &ComputeId, job: &JobId) -> Option<bool> {
        let record = self.world.kubernetes_of(compute)?;
        let run = self.world.run(job)?;
        if run.state != RunState::Preparing {
            return None;
        }
        let waits = self.tasks_of(job).iter().any(|task| {
            let phase = self.seen.tasks.get(task).map(|t| &t.phase);
            matches!(phase, Some(Phase::Pending { .. }))
        });
        let today = self.world.pod_of(record, &run.spec).ok()?;
        let mut made = run.tasks.values().filter_map(|t| t.place.pod());
        Some(waits && made.any(|pod| *pod != today))
    }

    fn admit_run(&mut self, job: &JobId, pods: Vec<PodSpec>) {
        for (index, pod) in (0..).zip(pods) {
            let Some(live) = self.world.lives.get(job) else {
                return;
            };
            let task = TaskId {
                job: job.clone(),
                index,
                attempt: live.next_attempt(index),
            };
            let place = Place::Matching(Box::new(pod));
            self.emit_run(job, RunEvent::Placed { task, place });
        }
    }

    /// The first waiting run is told why; one that was told before and is not the first any more is not told any longer.
    fn tell(&mut self, compute: &ComputeId, head: Option<(JobId, Why)>) {
        let told = self.world.pods.get(compute).map(|p| p.told.clone());
        let others = told.into_iter().flatten();
        for job in others.filter(|job| head.as_ref().is_none_or(|(h, _)| h != job)) {
            self.emit_run(&job, RunEvent::Explained { why: None });
        }
        if let Some((job, why)) = head {
            self.explain_pods(&job, Some(why));
        }
    }

    /// While nothing of a run of pods runs: what the cluster says of the first of them that is on no machine. What stands in
    /// the way at each machine changes with every other pod, and is found when somebody asks (`View::no_machine`).
    pub fn pending(&mut self, job: &JobId) -> bool {
        let Some(run) = self.world.run(job) else {
            return false;
        };
        let of = run.tasks.len();
        let mut pending = run.tasks.iter().filter_map(|(&index, task)| {
            let id = TaskId {
                job: job.clone(),
                index,
                attempt: task.attempt,
            };
            match &self.seen.tasks.get(&id)?.phase {
                Phase::Pending { why } => Some(why),
                Phase::Preparing { .. } | Phase::Running | Phase::Exited(_) => None,
            }
        });
        let Some(message) = pending.next().cloned() else {
            return false;
        };
        let (pods, compute) = (1 + pending.count(), run.spec.compute.clone());
        let why = Why::Pod {
            message,
            pods: count(pods),
            of: count(of),
        };
        self.explain_pods(job, Some(why));
        if self.is_outdated(&compute, job) == Some(true) {
            self.due_pools.insert(compute);
        }
        true
    }

    /// Tells a run what its pods wait for. The numbers of other pods change all the time: a reason of the same kind is not told
    /// again, `job explain` finds it anew.
    fn explain_pods(&mut self, job: &JobId, why: Option<Why>) {
        let Some(run) = self.world.run(job) else {
            return;
        };
        let same = match (&run.why, &why) {
            (
                Some(Why::Unschedulable { unfit: a, pods, .. }),
                Some(Why::Unschedulable {
                    unfit: b, pods: n, ..
                }),
            ) => a.headline == b.headline && pods == n,
            (before, now) => before == now,
        };
        if !same {
            self.emit_run(job, RunEvent::Explained { why });
        }
    }
}
