//! `resources:` of a job or a deployment.

use super::{fields::Fields, limits, tree::Value};
use crate::names::shown;
use serde_json::{Map, Value as Json};

/// Keys that people put under `resources`.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "cpu",
        "resources of a batch deployment or a job are instances; cpu and memory come from the size of the compute",
    ),
    (
        "memory",
        "resources of a batch deployment or a job are instances; cpu and memory come from the size of the compute",
    ),
    (
        "requests",
        "requests and limits belong to online deployments on kubernetes",
    ),
    (
        "limits",
        "requests and limits belong to online deployments on kubernetes",
    ),
    ("node_count", "did you mean instance_count"),
    ("nodes", "did you mean instance_count"),
];

/// Reads the section; what the owner defaults is filled by the owner.
pub(super) fn read(fields: &Fields<'_>) -> Map<String, Json> {
    let mut body = Map::new();
    let count = fields.int("instance_count", limits::INSTANCES);
    if let Some(count) = count {
        body.insert("instanceCount".into(), count.into());
    }
    if let Some(kind) = fields.words("instance_type") {
        if kind.text.contains(['<', '>']) {
            fields.error(
                kind.at,
                "instance_type",
                format!(
                    "instance_type `{}` still holds a placeholder <…> of the documentation",
                    shown(kind.text)
                ),
            );
        }
        body.insert("instanceType".into(), kind.text.into());
    }
    body.insert(
        "properties".into(),
        fields
            .bag("properties")
            .unwrap_or_else(|| Map::new().into()),
    );
    docker_args(fields, &mut body);
    if let Some(size) = fields.words("shm_size") {
        if !is_shm_size(size.text) {
            let message = format!(
                "{} is a number above 0 and one of b, k, m, g, not `{}`",
                fields.path_of("shm_size"),
                shown(size.text)
            );
            fields.error(size.at, "shm_size", message);
        }
        body.insert("shmSize".into(), size.text.into());
    }
    if let Some(locations) = fields.list("locations") {
        body.insert("locations".into(), locations.into());
    }
    if let Some(most) = fields.int("max_instance_count", limits::INSTANCES) {
        let count = count.unwrap_or(1);
        if most < count {
            let at = fields
                .entry("max_instance_count")
                .map_or(fields.at, |entry| entry.node.at);
            fields.error(
                at,
                "max_instance_count",
                format!("max_instance_count {most} is below instance_count {count}"),
            );
        }
        body.insert("maxInstanceCount".into(), most.into());
    }
    body
}

/// Ends the section.
pub(super) fn done(fields: Fields<'_>) -> Map<String, Json> {
    fields.done(ELSEWHERE)
}

fn docker_args(fields: &Fields<'_>, body: &mut Map<String, Json>) {
    let Some(entry) = fields.entry("docker_args") else {
        return;
    };
    if let Value::List(_) = &entry.node.value {
        if let Some(list) = fields.list("docker_args") {
            body.insert("dockerArgsList".into(), list.into());
        }
    } else if let Some(text) = fields.text("docker_args") {
        body.insert("dockerArgs".into(), text.text.into());
    }
}

fn is_shm_size(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let whole = !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && digits.bytes().any(|b| b != b'0');
    whole && matches!(unit, "b" | "k" | "m" | "g" | "B" | "K" | "M" | "G")
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_of_shared_memory() {
        for text in ["2g", "512m", "64K", "1b", "10G"] {
            assert!(super::is_shm_size(text), "{text}");
        }
        for text in ["0g", "2", "g", "2gb", "1.5g", "-1g", "2 g", ""] {
            assert!(!super::is_shm_size(text), "{text}");
        }
    }
}
