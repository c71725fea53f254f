//! What is under way at the API server, and what comes of it.

use super::{Attached, entry::Make};
use crate::{
    ask::{Failed, STRANGER, Way},
    pod,
    trouble::Kind,
};
use futures_util::FutureExt;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use model::{Exit, Phase, TaskId};
use std::time::{Duration, Instant};

/// Requests at once: pods of a gang are made together, and an API server with five hundred clients is not flooded.
const AT_ONCE: usize = 4;
/// Pause while the API server fails. An attempt asks up to three things (secret, pod, look): that is ten requests a second.
const FAILING: Duration = Duration::from_millis(300);
/// Longest such pause.
const FAILING_LONGEST: Duration = Duration::from_secs(5);
/// Pause after a refusal: a quota or an admission rule changes by hand.
const REFUSED: Duration = Duration::from_secs(1);
/// Longest such pause.
const REFUSED_LONGEST: Duration = Duration::from_secs(30);

/// What a right is missing for that no watch needs.
const MAKING: &str = "making pods";

/// What came of an operation.
pub enum Outcome {
    /// A pod was to be made.
    Created {
        /// Of which task.
        task: TaskId,
        /// The owner that was found or made on the way.
        owner: Option<OwnerReference>,
        /// Whether it is there.
        result: Result<(), Failed>,
    },
    /// A pod was to be removed.
    Removed(TaskId, Result<(), Failed>),
    /// A pod that no watch has shown was looked for.
    Found(TaskId, Result<Option<Box<Pod>>, Failed>),
    /// The machine of a pod was looked for.
    Machine(TaskId, Result<bool, Failed>),
    /// A pod of nobody was to be removed.
    Swept(Box<str>, Result<(), Failed>),
    /// The definition of instance types was to be installed.
    Defined(Result<(), Failed>),
}

/// What is to be done next for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make its pod.
    Create,
    /// Remove its pod and its secret.
    Remove {
        /// Without grace: its machine is gone.
        now: bool,
    },
    /// See whether its pod is there.
    Find,
    /// See whether its machine is there.
    Machine,
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

    /// Begins an operation for a task. The caller has asked `may_ask`.
    pub fn begin(&mut self, task: &TaskId, next: Next) {
        let Some(way) = self.way() else { return };
        let server = self.given.settings.server.clone();
        let id = task.clone();
        let Some(entry) = self.entries.get_mut(task) else {
            return;
        };
        let name = entry.name.clone();
        let future = match next {
            Next::Create => return self.create(task, way),
            Next::Remove { now } => {
                async move { Outcome::Removed(id, way.remove(&server, &name, now).await) }.boxed()
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

    fn create(&mut self, task: &TaskId, way: Way) {
        let Some(entry) = self.entries.get_mut(task) else {
            return;
        };
        entry.record.tried = true;
        if let Err(e) = self.given.records.write(&entry.record) {
            // Not on disk: not asked for (L1).
            entry.record.tried = false;
            entry.make = Make::Wanted {
                at: Instant::now() + REFUSED,
                pause: REFUSED,
            };
            let why = format!("its record cannot be written: {e}").into();
            return self.given.shared.show(task, Phase::Pending { why });
        }
        entry.busy = true;
        let (id, record) = (task.clone(), entry.record.clone());
        let mut settings = self.given.settings.clone();
        settings.namespace.clone_from(&way.namespace);
        settings.pull = self.given.spec.pull_policy;
        settings.owner.clone_from(&self.owner);
        let (compute, node) = (self.given.id.clone(), entry.node.clone());
        let shared = self.given.shared.clone();
        let future = async move {
            let mut owner = None;
            let result = async {
                if settings.owner.is_none() {
                    let found = way.anchor(&settings.server, &compute).await?;
                    settings.owner = Some(found.clone());
                    owner = Some(found);
                }
                settings.claims = way.claims().await;
                let Some(shape) = record.placement.place.pod() else {
                    return Ok(());
                };
                let pod =
                    pod::pod(&id, shape, &record.spec, &settings).map_err(|message| Failed {
                        kind: Kind::NotFound,
                        words: message.into(),
                        resource: "pods",
                    })?;
                let files = shared.credential(&node);
                let files: Vec<(&str, &[u8])> = files
                    .iter()
                    .map(|(n, b)| (n.as_str(), b.as_slice()))
                    .collect();
                let secret = pod::secret(&id, shape, &settings, &files);
                way.create(&settings, &secret, &pod).await
            }
            .await;
            Outcome::Created {
                task: id,
                owner,
                result,
            }
        };
        self.flight.push(future.boxed());
    }

    /// Removes a pod that carries our id and belongs to no task.
    pub fn sweep(&mut self, name: &str) {
        let Some(way) = self.way() else { return };
        let (server, name) = (self.given.settings.server.clone(), Box::<str>::from(name));
        self.sweeping.insert(name.clone());
        tracing::info!(compute = %self.given.id, "pod {name} belongs to no task any more; it is removed");
        let future = async move {
            let gone = way.remove(&server, &name, false).await;
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
            Some(Kind::Forbidden | Kind::NotFound | Kind::Conflict | Kind::Refused) | None => {
                self.failures = 0;
                self.quiet = None;
            }
        }
    }

    /// An operation is over.
    pub fn done(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Created {
                task,
                owner,
                result,
            } => {
                self.count(result.as_ref().err());
                if owner.is_some() {
                    self.owner = owner;
                }
                self.created(&task, result);
            }
            Outcome::Removed(task, result) => {
                self.count(result.as_ref().err());
                if let Some(entry) = self.entries.get_mut(&task) {
                    entry.busy = false;
                    match result {
                        Ok(()) => entry.removed = true,
                        Err(failed) => entry.told_trouble(&failed.words),
                    }
                }
            }
            Outcome::Found(task, result) => {
                self.count(result.as_ref().err());
                if let Some(entry) = self.entries.get_mut(&task) {
                    entry.busy = false;
                    entry.found(result);
                }
            }
            Outcome::Machine(task, result) => {
                self.count(result.as_ref().err());
                if let Some(entry) = self.entries.get_mut(&task) {
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
        }
    }

    fn created(&mut self, task: &TaskId, result: Result<(), Failed>) {
        let now = Instant::now();
        let Some(entry) = self.entries.get_mut(task) else {
            return;
        };
        entry.busy = false;
        let failed = match result {
            Ok(()) => {
                entry.make = Make::Made { at: now };
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
                    tracing::warn!("the record of {task}: {e}");
                }
                let pause = (pause * 2).min(REFUSED_LONGEST);
                entry.make = Make::Wanted {
                    at: now + pause,
                    pause,
                };
            }
        }
        let why = failed.words.clone();
        self.given.shared.show(task, Phase::Pending { why });
        let forbidden = failed.kind == Kind::Forbidden;
        if forbidden {
            self.heard(MAKING, Some(failed.words));
        }
    }
}
