//! The nearest known field for one that is not known.

use crate::names::did_you_mean;
use model::instance_type::DEVICES;
use serde_json::Value;
use std::sync::LazyLock;

use super::{definition, metadata, walk::join};

/// Words that people write for ours.
const ALIASES: &[(&str, &str)] = &[
    ("gpu", "nvidia.com/gpu"),
    ("gpus", "nvidia.com/gpu"),
    ("nvidia_gpu", "nvidia.com/gpu"),
    ("nvidia/gpu", "nvidia.com/gpu"),
    ("mem", "memory"),
    ("ram", "memory"),
    ("cpus", "cpu"),
    ("cores", "cpu"),
    ("vcpu", "cpu"),
    ("node_selector", "nodeSelector"),
    ("selector", "nodeSelector"),
    ("nodeLabels", "nodeSelector"),
];

/// Every field below the document: the path of its map, and its key.
static KNOWN: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let mut known = Vec::new();
    gather(definition::schema(), "", &mut known);
    known.extend(
        metadata::FIELDS
            .iter()
            .map(|key| ("metadata".to_owned(), (*key).to_owned())),
    );
    known
});

fn gather(schema: &Value, path: &str, known: &mut Vec<(String, String)>) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        // A device stands under requests only to be forbidden.
        if !(path.ends_with("requests") && DEVICES.contains(&key.as_str())) {
            known.push((path.to_owned(), key.clone()));
            gather(inner, &join(path, key), known);
        }
    }
}

/// What to write instead of `key` in the map at `path`. `empty` is a field that is there without a value.
pub(super) fn for_unknown(path: &str, key: &str, empty: Option<&str>) -> Option<String> {
    let meant = ALIASES
        .iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(key))
        .map_or(key, |(_, meant)| meant);
    let known = &*KNOWN;
    let here = || known.iter().filter(|(map, _)| map == path);
    let same = |(_, k): &&(String, String)| k.eq_ignore_ascii_case(meant);
    let near = |(_, k): &&(String, String), near: &str| k == near;
    let found = here()
        .find(same)
        .or_else(|| known.iter().find(same))
        .or_else(|| {
            let word = did_you_mean(key, here().map(|(_, k)| k.as_str()))?;
            here().find(|entry| near(entry, word))
        })
        .or_else(|| {
            let word = did_you_mean(key, known.iter().map(|(_, k)| k.as_str()))?;
            known.iter().find(|entry| near(entry, word))
        });
    let Some((map, key)) = found else {
        return match path {
            "spec.resources.limits" if key.contains('/') => {
                Some(format!("known devices are {}", DEVICES.join(", ")))
            }
            "spec" => Some("an instance type has nodeSelector and resources only".into()),
            _ => None,
        };
    };
    let right = join(map, key);
    let indent = empty
        .filter(|empty| {
            right
                .strip_prefix(empty)
                .is_some_and(|rest| rest.starts_with('.'))
        })
        .map(|empty| {
            format!(
                ": indent it below {}",
                empty.rsplit('.').next().unwrap_or(empty)
            )
        })
        .unwrap_or_default();
    Some(format!("did you mean \"{right}\"{indent}"))
}

#[cfg(test)]
mod tests {
    use super::for_unknown;

    #[test]
    fn the_nearest_known_field_is_named() {
        for (path, key, hint) in [
            ("spec", "limits", "did you mean \"spec.resources.limits\""),
            ("spec", "resource", "did you mean \"spec.resources\""),
            ("spec", "nodeselector", "did you mean \"spec.nodeSelector\""),
            (
                "spec",
                "tolerations",
                "an instance type has nodeSelector and resources only",
            ),
            (
                "spec.resources.limits",
                "gpu",
                "did you mean \"spec.resources.limits.nvidia.com/gpu\"",
            ),
            (
                "spec.resources.limits",
                "nvidia.com/gpus",
                "did you mean \"spec.resources.limits.nvidia.com/gpu\"",
            ),
            (
                "spec.resources.requests",
                "mem",
                "did you mean \"spec.resources.requests.memory\"",
            ),
            (
                "spec.resources",
                "limit",
                "did you mean \"spec.resources.limits\"",
            ),
            ("", "nodeSelector", "did you mean \"spec.nodeSelector\""),
            ("", "name", "did you mean \"metadata.name\""),
            ("metadata", "lables", "did you mean \"metadata.labels\""),
        ] {
            assert_eq!(
                for_unknown(path, key, None).as_deref(),
                Some(hint),
                "{path} {key}"
            );
        }
        assert_eq!(for_unknown("metadata", "zzz", None), None);
        let devices = for_unknown("spec.resources.limits", "example.com/thing", None).unwrap();
        assert!(
            devices.starts_with("known devices are nvidia.com/gpu, "),
            "{devices}"
        );
    }

    #[test]
    fn field_report_1_an_empty_resources_says_where_limits_belong() {
        assert_eq!(
            for_unknown("spec", "limits", Some("spec.resources")).unwrap(),
            "did you mean \"spec.resources.limits\": indent it below resources"
        );
    }
}
