//! One attached compute: its watches, its pods, and what is under way at its API server.
//!
//! L1 a pod of an attempt is made at most once (`Records`, R2), and never before its record is on disk;
//! L2 while the API server fails, it is asked at most ten times a second;
//! L3 what the cluster did to a pod is told as soon as it is certain, and from then on nothing that its agent says counts;
//! L5 what an event costs does not grow with the number of pods: it is looked at alone, and everything together only as often
//!    as that stays cheap;
//! L4 an end that the agent has told stands, whatever becomes of the pod.

mod entry;
mod operation;

use crate::{
    Shared,
    ask::{Failed, Way},
    cluster::{self, Known},
    connect,
    phase::Look,
    pod::{self, Claim, Settings},
    record::{Key, Record, Records},
    trouble::Kind,
    watch::{self, Said, Watch},
};
pub use entry::Agent;
use entry::Entry;
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{core::DynamicObject, runtime::watcher::Event};
use model::{ClusterKey, ComputeId, KubernetesSpec, Time};
use operation::Outcome;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::Receiver;

/// How often everything is looked at, and how late a change of the cluster is shown at most.
const TICK: Duration = Duration::from_millis(100);
/// Events of one watch that are taken before others get their turn.
const BURST: usize = 512;
/// Everything is looked at so often at most: what has news is looked at before, and nothing is due more exactly.
const REVIEW: Duration = Duration::from_millis(500);
/// Looking at everything is repeated after so many times as long as it took: it is at most a twentieth of a processor.
const CHEAP: u32 = 20;
/// A watch that has not failed again for so long works: it was tried meanwhile, and a try that fails takes a few seconds.
const WELL: Duration = Duration::from_secs(20);
/// A missing definition of instance types is tried to be installed so often.
const DEFINE: Duration = Duration::from_secs(30);
/// Whether all pods may be seen is asked so often where they may not.
const WIDEN: Duration = Duration::from_secs(10);

/// What a compute is told.
pub enum Told {
    /// Start a task or a node, or go on with one of a server before us.
    Start(Box<Record>),
    /// End it.
    Stop(Key),
    /// Take it away, at the latest then.
    Evict(Key, Time),
    /// Drop it.
    Forget(Key),
    /// Its declaration has changed.
    Spec(Arc<KubernetesSpec>),
    /// It is not attached any more: everything of it goes.
    Detach,
}

/// What a compute is made of.
pub struct Given {
    /// Which.
    pub id: ComputeId,
    /// As declared.
    pub spec: Arc<KubernetesSpec>,
    /// Its kubeconfig.
    pub kubeconfig: PathBuf,
    /// What all of this server share, with this compute's own settings.
    pub settings: Settings,
    /// Records on disk.
    pub records: Records,
    /// What is observed.
    pub shared: Arc<Shared>,
}

/// The worker of one compute.
pub struct Attached {
    given: Given,
    way: Option<Way>,
    nodes: Watch<Node>,
    pods: Watch<Pod>,
    types: Watch<DynamicObject>,
    known: Known,
    /// The labels of ours here.
    labels: BTreeMap<String, String>,
    /// Pods of this server and compute by name.
    ours: cluster::Board<Look>,
    troubles: BTreeMap<&'static str, Box<str>>,
    /// When each watch last failed.
    failed_at: BTreeMap<&'static str, Instant>,
    entries: BTreeMap<Key, Entry>,
    /// Entries by the names of their pods.
    by_name: BTreeMap<String, Key>,
    /// Entries with news (L5).
    touched: BTreeSet<Key>,
    /// Entries for which something is to be asked, but not yet (L2).
    waiting: BTreeSet<Key>,
    /// Everything is looked at again then.
    review_at: Instant,
    publish_at: Instant,
    flight: FuturesUnordered<BoxFuture<'static, Outcome>>,
    owner: Option<OwnerReference>,
    /// Names under removal that belong to no task.
    sweeping: BTreeSet<Box<str>>,
    /// Failures since the last success, and until when nothing is asked because of them (L2).
    failures: u32,
    quiet: Option<Instant>,
    define_at: Option<Instant>,
    defining: bool,
    detaching: bool,
    /// Only pods of our namespace are seen; then all are tried again.
    narrowed: Option<Instant>,
    widening: bool,
    /// No pod may be made; then one is tried again, after this pause.
    gate: Option<(Instant, Duration)>,
    /// Claims to mount, and when they were listed.
    claims: Option<(Instant, Vec<Claim>)>,
    dirty: bool,
}

impl Attached {
    /// Serves until it is detached, or nobody can tell it anything any more.
    pub async fn serve(given: Given, mut inbox: Receiver<Told>) {
        let way = connect::open(&given.kubeconfig, &given.spec.namespace).await;
        let labels = pod::labels(&given.settings.server, &given.id);
        let mut own = Attached {
            given,
            labels,
            way: None,
            nodes: watch::none(),
            pods: watch::none(),
            types: watch::none(),
            known: Known::default(),
            ours: cluster::Board::default(),
            troubles: BTreeMap::new(),
            failed_at: BTreeMap::new(),
            entries: BTreeMap::new(),
            by_name: BTreeMap::new(),
            touched: BTreeSet::new(),
            waiting: BTreeSet::new(),
            review_at: Instant::now(),
            publish_at: Instant::now(),
            flight: FuturesUnordered::new(),
            owner: None,
            sweeping: BTreeSet::new(),
            failures: 0,
            quiet: None,
            define_at: None,
            defining: false,
            detaching: false,
            narrowed: None,
            widening: false,
            gate: None,
            claims: None,
            dirty: true,
        };
        match way {
            Ok(way) => {
                own.nodes = watch::nodes(&way.client, &way.url);
                own.pods = watch::pods(&way.client, None, &way.url);
                own.types = watch::types(&way.client, &way.url);
                own.way = Some(way);
            }
            Err(message) => {
                own.troubles.insert("kubeconfig", message.into());
            }
        }
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                told = inbox.recv(), if !own.detaching => match told {
                    Some(told) => own.told(told),
                    None => return, // the server ends; pods go on
                },
                Some(said) = own.nodes.next() => {
                    own.node(said);
                    for _ in 0..BURST {
                        match futures_util::FutureExt::now_or_never(own.nodes.next()) {
                            Some(Some(said)) => own.node(said),
                            _ => break,
                        }
                    }
                }
                Some(said) = own.pods.next() => {
                    own.pod(said);
                    for _ in 0..BURST {
                        match futures_util::FutureExt::now_or_never(own.pods.next()) {
                            Some(Some(said)) => own.pod(said),
                            _ => break,
                        }
                    }
                }
                Some(said) = own.types.next() => own.instance_type(said),
                Some(outcome) = own.flight.next(), if !own.flight.is_empty() => own.done(outcome),
                _ = tick.tick() => own.on_tick(Instant::now()),
            }
            own.review_touched(Instant::now());
            if own.detaching && own.flight.is_empty() && own.entries.is_empty() {
                own.withdraw().await;
                return;
            }
        }
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Start(record) => self.start(*record),
            Told::Stop(key) => self.stop(&key),
            Told::Evict(key, by) => self.evict(&key, by),
            Told::Forget(key) => self.forget(&key),
            Told::Spec(spec) => self.given.spec = spec,
            Told::Detach => {
                self.detaching = true;
                for entry in self.entries.values_mut() {
                    entry.forgotten = true;
                }
                self.review_at = Instant::now();
            }
        }
    }

    /// A watch is broken, or speaks again.
    fn heard(&mut self, resource: &'static str, broken: Option<Box<str>>) {
        let changed = match broken {
            Some(words) if self.troubles.get(resource) == Some(&words) => false,
            Some(words) => {
                tracing::warn!(compute = %self.given.id, "{words}"); // once, and not at every try
                self.troubles.insert(resource, words);
                true
            }
            None => self.troubles.remove(resource).is_some(),
        };
        self.dirty |= changed;
    }

    /// A watch has failed.
    fn broken(&mut self, resource: &'static str, words: Box<str>) {
        self.failed_at.insert(resource, Instant::now());
        self.heard(resource, Some(words));
    }

    fn node(&mut self, said: Said<Node>) {
        let name =
            |node: &Node| -> Box<str> { node.metadata.name.as_deref().unwrap_or_default().into() };
        let compute = &self.given.id;
        let board = &mut self.known.machines;
        match said {
            Said::Broken { words, .. } => return self.broken("nodes", words),
            Said::Event(Event::Init) => board.begin(),
            Said::Event(Event::InitApply(node)) => {
                board.listed(name(&node), Some(cluster::machine(compute, &node)));
            }
            Said::Event(Event::InitDone) => board.end(),
            Said::Event(Event::Apply(node)) => {
                let machine = cluster::machine(compute, &node);
                // Heartbeats come every few seconds and change nothing that counts.
                if board.get(&name(&node)) == Some(&machine) {
                    return;
                }
                board.set(name(&node), Some(machine));
            }
            Said::Event(Event::Delete(node)) => {
                board.set(name(&node), None);
            }
        }
        self.dirty = true;
        self.review_at = Instant::now(); // whatever is on it may be lost
        self.heard("nodes", None);
    }

    fn own_look(&self, pod: &Pod) -> Option<(Box<str>, Look)> {
        let labels = pod.metadata.labels.as_ref()?;
        let mine = &self.labels;
        let here = pod.metadata.namespace.as_deref() == Some(&*self.given.settings.namespace);
        let all = here && mine.iter().all(|(k, v)| labels.get(k) == Some(v));
        all.then(|| {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            (name.into(), crate::phase::look(pod))
        })
    }

    fn pod(&mut self, said: Said<Pod>) {
        match said {
            Said::Broken { kind, words } => {
                if kind == Kind::Forbidden && self.narrow() {
                    tracing::warn!(
                        compute = %self.given.id,
                        "only the pods of namespace {} can be seen: what others request of the machines does not count ({words})",
                        self.given.settings.namespace
                    );
                    return;
                }
                return self.broken("pods", words);
            }
            Said::Event(Event::Init) => {
                self.known.held.begin();
                self.ours.begin();
            }
            Said::Event(Event::InitApply(pod)) => {
                let (key, held) = cluster::held(&pod);
                self.known.held.listed(key, held);
                if let Some((name, look)) = self.own_look(&pod) {
                    self.ours.listed(name, Some(look));
                }
            }
            Said::Event(Event::InitDone) => {
                self.known.held.end();
                self.ours.end();
                self.dirty = true;
                self.review_at = Instant::now();
            }
            Said::Event(Event::Apply(pod)) => {
                let (key, held) = cluster::held(&pod);
                self.dirty |= self.known.held.set(key, held);
                if let Some((name, look)) = self.own_look(&pod) {
                    self.touch(&name);
                    self.ours.set(name, Some(look));
                }
            }
            Said::Event(Event::Delete(pod)) => {
                let (key, _) = cluster::held(&pod);
                self.dirty |= self.known.held.set(key, None);
                if let Some((name, look)) = self.own_look(&pod) {
                    self.last_look(&name, look);
                    self.touch(&name);
                    self.ours.set(name, None);
                }
            }
        }
        self.heard("pods", None);
    }

    /// The pod of this name has news. One that belongs to nobody is found when everything is looked at.
    fn touch(&mut self, name: &str) {
        match self.by_name.get(name) {
            Some(key) => {
                self.touched.insert(key.clone());
            }
            None => self.review_at = self.review_at.min(Instant::now() + TICK),
        }
    }

    /// Looks at everything and shows it, each as often as that stays cheap (L5).
    fn on_tick(&mut self, now: Instant) {
        // A watch that works again says so only when something happens.
        let well: Vec<&'static str> = self
            .failed_at
            .extract_if(.., |_, at| *at + WELL <= now)
            .map(|(resource, _)| resource)
            .collect();
        for resource in well {
            self.heard(resource, None);
        }
        if self.publish_at <= now {
            self.publish();
            self.publish_at = now + now.elapsed() * CHEAP;
        }
        if self.review_at <= now {
            let begun = Instant::now();
            self.review(now);
            self.review_at = begun + REVIEW.max(begun.elapsed() * CHEAP);
        }
    }

    /// Sees the pods of our namespace only, from now on; `false` when it does already.
    fn narrow(&mut self) -> bool {
        let Some(way) = &self.way else { return false };
        let before = self.narrowed.replace(Instant::now() + WIDEN);
        if before.is_some() {
            return false;
        }
        self.pods = watch::pods(&way.client, Some(&way.namespace), &way.url);
        true
    }

    /// All pods may be seen after all, or still may not.
    fn widened(&mut self, result: &Result<(), Failed>) {
        self.widening = false;
        match (&self.way, result) {
            (Some(way), Ok(())) => {
                tracing::info!(compute = %self.given.id, "the pods of all namespaces can be seen");
                self.narrowed = None;
                self.pods = watch::pods(&way.client, None, &way.url);
            }
            _ => self.narrowed = Some(Instant::now() + WIDEN),
        }
    }

    fn instance_type(&mut self, said: Said<DynamicObject>) {
        let name = |object: &DynamicObject| -> Box<str> {
            object.metadata.name.as_deref().unwrap_or_default().into()
        };
        let read = |object: &DynamicObject| {
            let object = serde_json::to_value(object).expect("it came as JSON");
            Some(cluster::instance_type(&object))
        };
        let board = &mut self.known.types;
        match said {
            Said::Broken { kind, words } => {
                if kind == Kind::NotFound {
                    self.failed_at.remove(wire::crd::PLURAL); // this is not over before it is defined
                    self.define_at.get_or_insert_with(Instant::now);
                    self.troubles.entry(wire::crd::PLURAL).or_insert_with(|| {
                        "instancetypes: their definition is not installed yet".into()
                    });
                    self.dirty = true;
                    return;
                }
                return self.broken(wire::crd::PLURAL, words);
            }
            Said::Event(Event::Init) => board.begin(),
            Said::Event(Event::InitApply(object)) => board.listed(name(&object), read(&object)),
            Said::Event(Event::InitDone) => board.end(),
            Said::Event(Event::Apply(object)) => {
                board.set(name(&object), read(&object));
            }
            Said::Event(Event::Delete(object)) => {
                board.set(name(&object), None);
            }
        }
        self.dirty = true;
        self.define_at = None;
        self.heard(wire::crd::PLURAL, None);
    }

    /// The definition was installed, or cannot be.
    fn defined(&mut self, result: Result<(), Failed>) {
        self.defining = false;
        self.define_at = Some(Instant::now() + DEFINE);
        if let Err(failed) = result {
            self.heard(
                wire::crd::PLURAL,
                Some(
                    format!(
                        "instancetypes: their definition is not installed and cannot be: {} \
                         (kubectl apply -f deploy/crd/instancetypes.yaml)",
                        failed.words
                    )
                    .into(),
                ),
            );
        } else {
            self.types = match &self.way {
                Some(way) => watch::types(&way.client, &way.url),
                None => watch::none(),
            };
        }
    }

    /// Shows the cluster as it is now. Nothing is shown before all of it was seen once, but trouble.
    fn publish(&mut self) {
        if !std::mem::take(&mut self.dirty) {
            return;
        }
        let trouble = (!self.troubles.is_empty()).then(|| {
            let words: Vec<&str> = self.troubles.values().map(AsRef::as_ref).collect();
            let mut unique = words.clone();
            unique.dedup();
            unique.join("; ").into()
        });
        if trouble.is_none() && !self.known.whole() {
            return;
        }
        let key = ClusterKey::Attached(self.given.id.clone());
        self.given
            .shared
            .show_cluster(key, self.known.seen(trouble));
    }

    /// Takes back what is shown, and the object that owns all of ours.
    async fn withdraw(&mut self) {
        let key = ClusterKey::Attached(self.given.id.clone());
        self.given.shared.hide_cluster(&key);
        let (Some(way), Some(owner)) = (&self.way, &self.owner) else {
            return;
        };
        if let Err(failed) = way.forsake(&owner.name, &owner.uid).await {
            tracing::warn!(compute = %self.given.id, "its object stays behind: {}", failed.words);
        }
    }
}
