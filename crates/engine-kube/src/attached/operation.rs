//! What is under way at the API server, and what comes of it.

use super::{Attached, entry::Make};
use crate::{
    ask::{Failed, STRANGER, Way},
    pod::{self, Claim},
    record::{Key, Record, Records, What},
    trouble::Kind,
};
use futures_util::FutureExt;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use model::{Exit, Phase};
use std::time::{Duration, Instant};

/// Operations at once: pods of a gang are made together, and an API server with five hundred clients is not flooded.
const AT_ONCE: usize = 8;
/// Pause while the API server fails. An attempt asks up to three things (secret, pod, look): that is ten requests a second.
const FAILING: Duration = Duration::from_millis(300);
/// Longest such pause.
const FAILING_LONGEST: Duration = Duration::from_secs(5);
/// Pause after a refusal: a quota or an admission rule changes by hand.
const REFUSED: Duration = Duration::from_secs(1);
/// Longest such pause.
const REFUSED_LONGEST: Duration = Duration::from_secs(30);

/// Pause after each refusal: an attempt asks for two things, so this is below ten requests a second.
const BETWEEN_REFUSALS: Duration = Duration::from_millis(200);
/// How old the list of claims to mount may be.
const CLAIMS: Duration = Duration::from_secs(10);

/// What a right is missing for that no watch needs.
const MAKING: &str = "making pods";

/// What came of an operation.
pub enum Outcome {
    /// A pod was to be made.
    Created {
        /// For what.
        key: Key,
        /// The owner that was found or made on the way.
        owner: Option<OwnerReference>,
        /// The claims that were listed on the way.
        claims: Option<Vec<Claim>>,
        /// Whether it is there.
        result: Result<(), Failed>,
    },
    /// A pod was to be taken away.
    Evicted(Key, Result<(), Failed>),
    /// A pod was to be removed.
    Removed(Key, Result<(), Failed>),
    /// A pod that no watch has shown was looked for.
    Found(Key, Result<Option<Box<Pod>>, Failed>),
    /// The machine of a pod was looked for.
    Machine(Key, Result<bool, Failed>),
    /// A pod of nobody was to be removed.
    Swept(Box<str>, Result<(), Failed>),
    /// The definition of instance types was to be installed.
    Defined(Result<(), Failed>),
    /// Whether the pods of all namespaces may be seen was asked.
    Widened(Result<(), Failed>),
}

/// What is to be done next for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make its pod.
    Create,
    /// Remove its pod and its secret.
    Remove {
        /// Without grace: its machine is gone.
        now: bool,
    },
    /// Take it away, as somebody else would: it has so many seconds.
    Evict {
        /// At least one: a pod without any is gone from the API server before its processes are dead.
        seconds: u32,
    },
    /// See whether its pod is there.
    Find,
    /// See whether its machine is there.
    Machine,
}

/// Writes that a pod is asked for, beside the loop: the disk is waited for by this pod alone.
async fn on_disk(records: Records, record: Record) -> Result<(), Failed> {
    let written = tokio::task::spawn_blocking(move || records.write(&record)).await;
    let written = written.map_err(|e| e.to_string());
    let written = written.and_then(|done| done.map_err(|e| e.to_string()));
    written.map_err(|e| Failed {
        kind: Kind::Refused,
        words: format!("its record cannot be written: {e}").into(),
        resource: "records",
    })
}

impl Attached {
    /// Whether another request may be made now (L2).
    pub fn may_ask(&self, now: Instant) -> bool {
        let at_once = if self.failures > 0 { 1 } else { AT_ONCE };
        self.way.is_some() && self.flight.len() < at_once && self.quiet.is_none_or(|q| q <= now)
    }

    fn way(&self) -> Option<Way> {
        self.way.clone()
    }

    /// Begins an operation for a pod. The caller has asked `may_ask`.
    pub fn begin(&mut self, key: &Key, next: Next) {
        let Some(way) = self.way() else { return };
        let server = self.given.settings.server.clone();
        let id = key.clone();
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let name = entry.name.clone();
        let future = match next {
            Next::Create => return self.create(key, way),
            Next::Remove { now } => {
                let grace = now.then_some(0);
                async move { Outcome::Removed(id, way.remove(&server, &name, grace).await) }.boxed()
            }
            Next::Evict { seconds } => {
                async move { Outcome::Evicted(id, way.remove(&server, &name, Some(seconds)).await) }
                    .boxed()
            }
            Next::Find => async move {
                let found = way.find(&name).await;
                Outcome::Found(id, found.map(|pod| pod.map(Box::new)))
            }
            .boxed(),
            Next::Machine => {
                let Some(machine) = entry.machine.clone() else {
                    return;
                };
                async move {
                    let found = way.machine(&machine).await;
                    Outcome::Machine(id, found.map(|node| node.is_some()))
                }
                .boxed()
            }
        };
        entry.busy = true;
        self.flight.push(future);
    }

    fn create(&mut self, key: &Key, way: Way) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.record.tried = true;
        entry.busy = true;
        let records = self.given.records.clone();
        let (id, record) = (key.clone(), entry.record.clone());
        let mut settings = self.given.settings.clone();
        settings.namespace.clone_from(&way.namespace);
        settings.pull = self.given.spec.pull_policy;
        settings.selector.clone_from(&self.given.spec.node_selector);
        settings.owner.clone_from(&self.owner);
        let (compute, node) = (self.given.id.clone(), entry.node.clone());
        let shared = self.given.shared.clone();
        let listed = self.claims.as_ref();
        let listed = listed.filter(|(at, _)| at.elapsed() < CLAIMS);
        let known = listed.map(|(_, claims)| claims.clone());
        let future = async move {
            let (mut owner, mut claims) = (None, None);
            let result = async {
                on_disk(records, record.clone()).await?; // L1
                if settings.owner.is_none() {
                    let found = way.anchor(&settings.server, &compute).await?;
                    settings.owner = Some(found.clone());
                    owner = Some(found);
                }
                settings.claims = match known {
                    Some(known) => known,
                    None => claims.insert(way.claims().await).clone(),
                };
                let made = match &record.what {
                    What::Task {
                        task,
                        placement,
                        spec,
                    } => match placement.place.pod() {
                        Some(shape) => pod::pod(task, shape, spec, &settings),
                        None => Err("it has no pod of its own".to_owned()),
                    },
                    What::Node { node, spec } => pod::node(node, spec, &settings),
                };
                let pod = made.map_err(|message| Failed {
                    kind: Kind::NotFound,
                    words: message.into(),
                    resource: "pods",
                })?;
                let files = shared.credential(&node);
                let files: Vec<(&str, &[u8])> = files
                    .iter()
                    .map(|(n, b)| (n.as_str(), b.as_slice()))
                    .collect();
                let secret = pod::secret(&pod, &files);
                way.create(&settings, &secret, &pod).await
            }
            .await;
            Outcome::Created {
                key: id,
                owner,
                claims,
                result,
            }
        };
        self.flight.push(future.boxed());
    }

    /// Whether a pod may be made now: while a right is missing, one tries for all.
    pub fn may_make(&self, now: Instant) -> bool {
        self.gate
            .is_none_or(|(at, _)| at <= now && self.flight.is_empty())
    }

    /// A pod is not made because another was refused for want of a right.
    pub fn held_back(&self, key: &Key) {
        if let Some(why) = self.troubles.get(MAKING) {
            let why = why.clone();
            self.given.shared.show(key, Phase::Pending { why });
        }
    }

    /// Asks whether the pods of all namespaces may be seen by now.
    pub fn widen(&mut self) {
        let Some(way) = self.way() else { return };
        self.widening = true;
        self.flight
            .push(async move { Outcome::Widened(way.sees_all_pods().await) }.boxed());
    }

    /// Removes a pod that carries our id and belongs to no task.
    pub fn sweep(&mut self, name: &str) {
        let Some(way) = self.way() else { return };
        let (server, name) = (self.given.settings.server.clone(), Box::<str>::from(name));
        self.sweeping.insert(name.clone());
        tracing::info!(compute = %self.given.id, "pod {name} belongs to no task any more; it is removed");
        let future = async move {
            let gone = way.remove(&server, &name, None).await;
            Outcome::Swept(name, gone)
        };
        self.flight.push(future.boxed());
    }

    /// Installs the definition of instance types.
    pub fn define(&mut self) {
        let Some(way) = self.way() else { return };
        self.defining = true;
        self.define_at = None;
        self.flight
            .push(async move { Outcome::Defined(way.define_types().await) }.boxed());
    }

    /// Counts a result for the pauses (L2).
    fn count(&mut self, failed: Option<&Failed>) {
        match failed.map(|f| &f.kind) {
            Some(Kind::Later | Kind::Unknown) => {
                self.failures = self.failures.saturating_add(1);
                let pause = FAILING * 2u32.saturating_pow((self.failures - 1).min(5));
                self.quiet = Some(Instant::now() + pause.min(FAILING_LONGEST));
            }
            Some(Kind::Refused) => {
                // It has no trouble of its own, but who is refused for each of many pods asks no faster either.
                self.failures = 0;
                self.quiet = Some(Instant::now() + BETWEEN_REFUSALS);
            }
            Some(Kind::Forbidden | Kind::NotFound | Kind::Conflict) | None => {
                self.failures = 0;
                self.quiet = None;
            }
        }
    }

    /// An operation is over.
    pub fn done(&mut self, outcome: Outcome) {
        match &outcome {
            Outcome::Created { key, .. }
            | Outcome::Evicted(key, _)
            | Outcome::Removed(key, _)
            | Outcome::Found(key, _)
            | Outcome::Machine(key, _) => {
                self.touched.insert(key.clone());
            }
            Outcome::Swept(..) | Outcome::Defined(_) | Outcome::Widened(_) => {}
        }
        match outcome {
            Outcome::Created {
                key,
                owner,
                claims,
                result,
            } => {
                self.count(result.as_ref().err());
                if owner.is_some() {
                    self.owner = owner;
                }
                if let Some(claims) = claims {
                    self.claims = Some((Instant::now(), claims));
                }
                self.created(&key, result);
            }
            Outcome::Evicted(key, result) => {
                self.count(result.as_ref().err());
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.busy = false;
                    match result {
                        Ok(()) => entry.evict = None,
                        Err(failed) => entry.told_trouble(&failed.words),
                    }
                }
            }
            Outcome::Removed(key, result) => {
                self.count(result.as_ref().err());
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.busy = false;
                    match result {
                        Ok(()) => entry.removed = true,
                        Err(failed) => entry.told_trouble(&failed.words),
                    }
                }
            }
            Outcome::Found(key, result) => {
                self.count(result.as_ref().err());
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.busy = false;
                    entry.found(result);
                }
            }
            Outcome::Machine(key, result) => {
                self.count(result.as_ref().err());
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.busy = false;
                    entry.machine_found(result);
                }
            }
            Outcome::Swept(name, result) => {
                self.count(result.as_ref().err());
                if let Err(failed) = result {
                    tracing::warn!(compute = %self.given.id, "pod {name} stays behind: {}", failed.words);
                    self.sweeping.remove(&name); // and is tried again
                }
            }
            Outcome::Defined(result) => {
                self.count(result.as_ref().err());
                self.defined(result);
            }
            Outcome::Widened(result) => {
                self.count(result.as_ref().err());
                self.widened(&result);
            }
        }
    }

    fn created(&mut self, key: &Key, result: Result<(), Failed>) {
        let now = Instant::now();
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.busy = false;
        let failed = match result {
            Ok(()) => {
                entry.make = Make::Made { at: now };
                self.gate = None;
                return self.heard(MAKING, None);
            }
            Err(failed) => failed,
        };
        let pause = match entry.make {
            Make::Wanted { pause, .. } => pause,
            Make::Made { .. } => REFUSED,
        };
        let stranger = failed.words.contains(STRANGER);
        match failed.kind {
            Kind::Later | Kind::Unknown => {
                entry.make = Make::Wanted { at: now, pause };
            }
            Kind::NotFound if failed.resource == "pods" => {
                // It cannot be a pod at all; or its namespace is not there, which nobody makes in a minute.
                entry.end(Exit::NotStarted {
                    message: failed.words.clone(),
                });
            }
            Kind::Refused if stranger => {
                entry.end(Exit::NotStarted {
                    message: failed.words.clone(),
                });
            }
            Kind::Forbidden | Kind::NotFound | Kind::Conflict | Kind::Refused => {
                // A server that said no has made nothing: should we die now, the next one may ask again (R2).
                entry.record.tried = false;
                if let Err(e) = self.given.records.write(&entry.record) {
                    tracing::warn!("the record of {key}: {e}");
                }
                let pause = (pause * 2).min(REFUSED_LONGEST);
                entry.make = Make::Wanted {
                    at: now + pause,
                    pause,
                };
            }
        }
        let why = failed.words.clone();
        self.given.shared.show(key, Phase::Pending { why });
        let forbidden = failed.kind == Kind::Forbidden;
        if forbidden {
            let pause = self.gate.map_or(REFUSED, |(_, pause)| pause * 2);
            let pause = pause.min(REFUSED_LONGEST);
            self.gate = Some((now + pause, pause));
            self.heard(MAKING, Some(failed.words));
        }
    }
}
