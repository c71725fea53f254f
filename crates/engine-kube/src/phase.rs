//! What a pod's status means for its task. Pure.
//!
//! F1 what the cluster did to a pod is nobody's failure (`Lost`); what the program did is its own, with its exit code;
//! F2 what waits says why, in the words of the cluster.

use crate::pod;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use model::{Bytes, Exit};

/// How far a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// On no machine yet.
    Unscheduled {
        /// The scheduler's words.
        why: Box<str>,
    },
    /// An image does not come.
    NoImage {
        /// The kubelet's words, with the image.
        why: Box<str>,
        /// Whether trying again cannot help.
        hopeless: bool,
    },
    /// On its machine, on its way.
    Creating {
        /// What at the moment.
        what: Box<str>,
    },
    /// The agent runs.
    Running,
    /// It ended by itself, or could not start.
    Ended(Exit),
    /// It was taken.
    Taken {
        /// By what.
        why: Box<str>,
    },
}

/// What counts of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Which pod.
    pub uid: String,
    /// Its machine.
    pub node: Option<Box<str>>,
    /// Its address.
    pub ip: Option<Box<str>>,
    /// How far.
    pub state: State,
    /// What is about to take it, while it still runs: a disruption, or its deletion.
    pub going: Option<Box<str>>,
    /// How many seconds it has, when it is being deleted.
    pub grace: Option<u64>,
    /// The last words of its container, when it has ended.
    pub words: Box<str>,
}

/// Looks at a pod.
pub fn look(pod: &Pod) -> Look {
    let meta = &pod.metadata;
    Look {
        uid: meta.uid.clone().unwrap_or_default(),
        node: pod
            .spec
            .as_ref()
            .and_then(|s| s.node_name.as_deref())
            .map(Into::into),
        ip: pod
            .status
            .as_ref()
            .and_then(|s| s.pod_ip.as_deref())
            .map(Into::into),
        state: state(pod),
        going: going(pod),
        grace: meta
            .deletion_grace_period_seconds
            .and_then(|s| u64::try_from(s).ok()),
        words: main_of(pod)
            .and_then(|c| c.state.as_ref()?.terminated.as_ref()?.message.as_deref())
            .unwrap_or_default()
            .trim()
            .into(),
    }
}

fn said(reason: Option<&str>, message: Option<&str>) -> Option<Box<str>> {
    let (reason, message) = (
        reason.unwrap_or_default(),
        message.unwrap_or_default().trim(),
    );
    match (reason.is_empty(), message.is_empty()) {
        (true, true) => None,
        (false, true) => Some(reason.into()),
        (true, false) => Some(message.into()),
        (false, false) => Some(format!("{reason}: {message}").into()),
    }
}

fn disruption(pod: &Pod) -> Option<Box<str>> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions
        .iter()
        .find(|c| c.type_ == "DisruptionTarget" && c.status == "True")?;
    said(found.reason.as_deref(), found.message.as_deref()).or(Some("DisruptionTarget".into()))
}

fn going(pod: &Pod) -> Option<Box<str>> {
    disruption(pod).or_else(|| {
        pod.metadata
            .deletion_timestamp
            .as_ref()
            .map(|_| "its pod was deleted".into())
    })
}

fn main_of(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|s| s.name == pod::MAIN)
}

fn state(pod: &Pod) -> State {
    let status = pod.status.as_ref();
    match status.and_then(|s| s.phase.as_deref()) {
        Some("Failed" | "Succeeded") => return over(pod),
        Some("Unknown") => {
            return State::Taken {
                why: "its machine is not reached any more".into(),
            };
        }
        _ => {}
    }
    let conditions = status.and_then(|s| s.conditions.as_ref());
    let placed = conditions
        .into_iter()
        .flatten()
        .find(|c| c.type_ == "PodScheduled");
    if pod.spec.as_ref().is_none_or(|s| s.node_name.is_none()) {
        let why = placed.and_then(|c| said(c.reason.as_deref(), c.message.as_deref()));
        return State::Unscheduled {
            why: why.unwrap_or_else(|| "the scheduler has not looked at it yet".into()),
        };
    }
    let steps = status.and_then(|s| s.init_container_statuses.as_ref());
    for container in steps.into_iter().flatten().chain(main_of(pod)) {
        if let Some(state) = waiting(container) {
            return state;
        }
    }
    let running = main_of(pod).and_then(|c| c.state.as_ref());
    if running.is_some_and(|s| s.running.is_some() || s.terminated.is_some()) {
        return State::Running; // an end counts when the pod has ended: then it is all known
    }
    State::Creating {
        what: "its pod is made ready".into(),
    }
}

/// What a container waits for, when that is worth telling.
fn waiting(container: &ContainerStatus) -> Option<State> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    let words = said(Some(reason), waiting.message.as_deref()).unwrap_or_default();
    let image = format!("image {}: {words}", container.image);
    Some(match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "RegistryUnavailable"
        | "ImageInspectError"
        | "SignatureValidationFailed" => State::NoImage {
            why: image.into(),
            hopeless: false,
        },
        "InvalidImageName" | "ErrImageNeverPull" => State::NoImage {
            why: image.into(),
            hopeless: true,
        },
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "CrashLoopBackOff" => State::Creating { what: words },
        _ => return None, // PodInitializing, ContainerCreating
    })
}

/// The end of a pod (F1).
fn over(pod: &Pod) -> State {
    let status = pod.status.as_ref();
    if let Some(why) = disruption(pod) {
        return State::Taken { why };
    }
    // The kubelet's own reasons: Evicted, OutOfcpu, NodeAffinity, Terminated (shutdown), UnexpectedAdmissionError, …
    if let Some(reason) = status
        .and_then(|s| s.reason.as_deref())
        .filter(|r| !r.is_empty())
    {
        let why = said(Some(reason), status.and_then(|s| s.message.as_deref()));
        return State::Taken {
            why: why.unwrap_or_default(),
        };
    }
    let steps = status.and_then(|s| s.init_container_statuses.as_ref());
    for step in steps.into_iter().flatten() {
        let ended = step.state.as_ref().and_then(|s| s.terminated.as_ref());
        if let Some(ended) = ended.filter(|e| e.exit_code != 0) {
            let words = said(ended.reason.as_deref(), ended.message.as_deref()).unwrap_or_default();
            return State::Ended(Exit::NotStarted {
                message: format!(
                    "our agent could not be brought from image {}: exit code {}: {words}",
                    step.image, ended.exit_code
                )
                .into(),
            });
        }
    }
    match main_of(pod) {
        Some(container) => ended(pod, container),
        None => State::Taken {
            why: "it ended without a word about its container".into(),
        },
    }
}

fn ended(pod: &Pod, container: &ContainerStatus) -> State {
    let Some(ContainerState {
        terminated: Some(ended),
        ..
    }) = &container.state
    else {
        return State::Taken {
            why: "it ended without a word about its container".into(),
        };
    };
    let words = said(ended.reason.as_deref(), ended.message.as_deref()).unwrap_or_default();
    match ended.reason.as_deref() {
        Some("OOMKilled") => State::Ended(Exit::OutOfMemory {
            limit: Bytes(limit(pod)),
        }),
        Some("StartError" | "ContainerCannotRun" | "CreateContainerError") => {
            State::Ended(Exit::NotStarted {
                message: format!("image {}: {words}", container.image).into(),
            })
        }
        _ if pod.metadata.deletion_timestamp.is_some() => State::Taken {
            why: "its pod was deleted".into(),
        },
        _ => State::Ended(Exit::Code(ended.exit_code)),
    }
}

/// What the user's container may use.
fn limit(pod: &Pod) -> u64 {
    let containers = pod.spec.as_ref().map(|s| s.containers.as_slice());
    let main = containers
        .into_iter()
        .flatten()
        .find(|c| c.name == pod::MAIN);
    let limits = main.and_then(|c| c.resources.as_ref()?.limits.as_ref());
    crate::amount::resources(limits).memory.0
}

#[cfg(test)]
mod tests;
