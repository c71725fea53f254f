//! Names in the cluster: of pods, label values, nodes of the agents.
//!
//! N1 a task has one pod name for ever, and shares it with no other, whatever its workspace, compute or server: making its pod
//!    is idempotent by the name, and a namespace may be shared. The digest sees to that; people read what is around it.

use crate::record::Key;
use model::{NodeId, TaskId};
use sha2::{Digest, Sha256};

/// Longest pod name that is also a host name and a label value.
const LONGEST: usize = 63;
/// Hex digits that tell apart what has the same name otherwise.
const DIGITS: usize = 8;

/// The first hex digits of a digest.
pub fn digest(text: &str, digits: usize) -> String {
    let mut out: String = Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    out.truncate(digits);
    out
}

/// The pod of whatever it is: `<run>-<digest>-<attempt>-<rank>` for a task, `<cluster>-<digest>-n<ordinal>-<incarnation>` for
/// a node (N1).
pub fn of(server: &str, key: &Key) -> String {
    let (whole, stem, tail) = match key {
        Key::Task(task) => (
            serde_json::to_string(&task.job),
            task.job.name(),
            format!("{}-{}", task.attempt.0, task.index),
        ),
        Key::Node(node) => (
            serde_json::to_string(&node.compute),
            node.compute.name(),
            format!("n{}-{}", node.ordinal, node.incarnation),
        ),
    };
    let whole = whole.expect("ids can be written").to_ascii_lowercase();
    let hash = digest(&format!("{server}{whole}"), DIGITS);
    let tail = format!("{hash}-{tail}");
    let stem = clean(stem, LONGEST - tail.len() - 1);
    format!("{stem}-{tail}")
}

/// The pod of a task that the server of this id makes.
pub fn pod(server: &str, task: &TaskId) -> String {
    of(server, &Key::Task(task.clone()))
}

/// What of a name may stand in the name of a pod; never empty.
fn clean(name: &str, room: usize) -> String {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let clean: String = name
        .to_ascii_lowercase()
        .chars()
        .map(|c| if legal(c) { c } else { '-' })
        .take(room)
        .collect();
    match clean.trim_matches('-') {
        "" => "x".to_owned(),
        clean => clean.to_owned(),
    }
}

/// A text as the value of a label; with a digest when it is none as it stands.
pub fn label(text: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let ends = |c: char| c.is_ascii_alphanumeric();
    if text.len() <= LONGEST
        && text.chars().all(legal)
        && text.chars().next().is_none_or(ends)
        && text.chars().last().is_none_or(ends)
    {
        return text.to_owned();
    }
    let clean: String = text
        .chars()
        .map(|c| if legal(c) { c } else { '-' })
        .take(LONGEST - DIGITS - 1)
        .collect();
    let clean = clean.trim_matches(|c| !ends(c));
    let hash = digest(text, DIGITS);
    if clean.is_empty() {
        hash
    } else {
        format!("{clean}-{hash}")
    }
}

/// The node that the agent of a pod says to be: one per attempt of a task.
pub fn node(compute: &model::ComputeId, task: &TaskId) -> NodeId {
    let whole = serde_json::to_string(task).expect("ids can be written");
    // The ordinal tells the tasks of a compute apart, the incarnation their attempts.
    let ordinal = u32::from_str_radix(&digest(&whole.to_ascii_lowercase(), DIGITS), 16);
    NodeId {
        compute: compute.clone(),
        ordinal: ordinal.expect("eight hex digits"),
        incarnation: task.attempt.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Attempt, JobId, Workspace};

    fn task(workspace: &str, run: &str, attempt: u32, index: u32) -> TaskId {
        TaskId {
            job: JobId::new(&Workspace::new("s", "g", workspace), run),
            index,
            attempt: Attempt(attempt),
        }
    }

    fn named(run: &str, attempt: u32, index: u32) -> String {
        pod("one", &task("w", run, attempt, index))
    }

    #[test]
    fn n1_names_are_legal_and_differ() {
        let name = named("train", 1, 0);
        assert!(
            name.starts_with("train-") && name.ends_with("-1-0"),
            "{name}"
        );
        assert_ne!(
            name,
            pod("one", &task("v", "train", 1, 0)),
            "another workspace"
        );
        assert_ne!(
            name,
            pod("two", &task("w", "train", 1, 0)),
            "another server"
        );
        assert_ne!(named("a_b", 1, 0), named("a-b", 1, 0));
        assert_ne!(named("a_b", 1, 0), named("a.b", 1, 0));
        assert_eq!(
            named("A_b", 2, 3),
            named("a_B", 2, 3),
            "ids are compared without case"
        );
        for run in [
            "",
            "-",
            "____",
            "x".repeat(255).as_str(),
            "学習",
            "-a",
            "a-",
        ] {
            let name = named(run, 12, 34);
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(
                name.len() <= 63 && name.chars().all(legal) && !name.starts_with('-'),
                "{name}"
            );
        }
    }

    #[test]
    fn a_label_is_legal() {
        assert_eq!(label("my_run.1"), "my_run.1");
        for text in ["_x", "a b", "x".repeat(64).as_str(), "学", "x-"] {
            let value = label(text);
            assert!(
                value.len() <= 63 && value.starts_with(|c: char| c.is_ascii_alphanumeric()),
                "{value}"
            );
            assert!(
                value.ends_with(|c: char| c.is_ascii_alphanumeric()),
                "{value}"
            );
        }
    }
}
