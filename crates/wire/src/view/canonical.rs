//! Enums of a document in Azure's own spelling, however the client spelled them (`arm` A2): clients choose classes by them.

use crate::arm::job::ASSET_TYPES;
use serde_json::{Map, Value, json};

/// How inputs and outputs reach a task.
const MODES: [&str; 7] = [
    "ReadOnlyMount",
    "ReadWriteMount",
    "Download",
    "Upload",
    "Direct",
    "EvalMount",
    "EvalDownload",
];
const DISTRIBUTIONS: [&str; 4] = ["PyTorch", "Mpi", "TensorFlow", "Ray"];
const IDENTITIES: [&str; 3] = ["AMLToken", "Managed", "UserIdentity"];
const TIERS: [&str; 5] = ["Null", "Spot", "Basic", "Standard", "Premium"];

/// Respells the text at `key` when it is one of `words` in another case.
pub fn word(map: &mut Map<String, Value>, key: &str, words: &[&str]) {
    let Some(text) = map.get(key).and_then(Value::as_str) else {
        return;
    };
    if let Some(word) = words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
        map.insert(key.to_owned(), json!(word));
    }
}

/// Respells the type of the identity that a resource has; the SDK sends `Systemassigned`.
pub fn identity(resource: &mut Map<String, Value>) {
    let map = resource.get_mut("identity").and_then(Value::as_object_mut);
    if let Some(map) = map {
        word(
            map,
            "type",
            &[
                "SystemAssigned",
                "UserAssigned",
                "SystemAssigned,UserAssigned",
                "None",
            ],
        );
    }
}

/// Respells the enums of a command job.
pub fn job(properties: &mut Map<String, Value>) {
    for (ports, kind) in [("inputs", "jobInputType"), ("outputs", "jobOutputType")] {
        let map = properties.get_mut(ports).and_then(Value::as_object_mut);
        for (_, port) in map.into_iter().flatten() {
            if let Some(port) = port.as_object_mut() {
                word(port, kind, &["literal"]);
                word(port, kind, &ASSET_TYPES);
                word(port, "mode", &MODES);
            }
        }
    }
    for (member, key, words) in [
        ("distribution", "distributionType", &DISTRIBUTIONS[..]),
        ("identity", "identityType", &IDENTITIES),
        ("queueSettings", "jobTier", &TIERS),
    ] {
        if let Some(map) = properties.get_mut(member).and_then(Value::as_object_mut) {
            word(map, key, words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_respelled_and_what_is_not_stays() {
        let mut body = json!({
            "inputs": {"a": {"jobInputType": "Uri_Folder", "mode": "readonlymount"}, "b": {"jobInputType": "odd"}},
            "outputs": {"o": {"jobOutputType": "URI_FILE", "mode": "UPLOAD"}},
            "distribution": {"distributionType": "pytorch"},
            "identity": {"identityType": "amltoken"},
            "queueSettings": {"jobTier": "spot"},
        });
        job(body.as_object_mut().unwrap());
        assert_eq!(
            body,
            json!({
                "inputs": {"a": {"jobInputType": "uri_folder", "mode": "ReadOnlyMount"}, "b": {"jobInputType": "odd"}},
                "outputs": {"o": {"jobOutputType": "uri_file", "mode": "Upload"}},
                "distribution": {"distributionType": "PyTorch"},
                "identity": {"identityType": "AMLToken"},
                "queueSettings": {"jobTier": "Spot"},
            })
        );
    }
}
