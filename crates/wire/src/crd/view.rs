//! Instance types as clients of Azure see them, and as the Kubernetes object that would make them.

use model::{
    Resources,
    instance_type::{DEVICES, GPU, InstanceType},
};
use serde_json::{Map, Value, json};

use super::{API_VERSION, KIND};

/// The shape of a Kubernetes compute's `instanceTypes`: every amount a text, no GPU a null, no selector a null.
pub fn arm_view(instance_type: &InstanceType) -> Value {
    arm_view_of(&object(instance_type))
}

/// The same in the user's own spelling, from an object that has been checked.
pub fn arm_view_of(object: &Value) -> Value {
    let spec = &object["spec"];
    let text = |value: &Value| match value {
        Value::Null => Value::Null,
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    };
    let side = |side: &str| {
        let amounts = &spec["resources"][side];
        let mut map = Map::new();
        for key in ["cpu", "memory"] {
            map.insert(key.into(), text(&amounts[key]));
        }
        (map, amounts)
    };
    let (requests, _) = side("requests");
    let (mut limits, amounts) = side("limits");
    for device in DEVICES {
        let amount = text(&amounts[device]);
        if device == GPU || !amount.is_null() {
            limits.insert(device.into(), amount);
        }
    }
    let selector = match &spec["nodeSelector"] {
        Value::Object(labels) if !labels.is_empty() => Value::Object(labels.clone()),
        _ => Value::Null,
    };
    json!({"nodeSelector": selector, "resources": {"requests": requests, "limits": limits}})
}

/// The object that says what the type is, in the plainest spelling.
pub fn object(instance_type: &InstanceType) -> Value {
    let amounts = |resources: &Resources| {
        let mut map = Map::new();
        map.insert("cpu".into(), resources.cpu.to_string().into());
        map.insert("memory".into(), resources.memory.to_string().into());
        for (name, count) in &resources.devices {
            map.insert(name.to_string(), (*count).into());
        }
        Value::Object(map)
    };
    let mut spec = Map::new();
    if !instance_type.node_selector().is_empty() {
        let labels = instance_type.node_selector().iter();
        let labels: Map<String, Value> = labels
            .map(|(key, value)| (key.to_string(), Value::from(&**value)))
            .collect();
        spec.insert("nodeSelector".into(), labels.into());
    }
    spec.insert(
        "resources".into(),
        json!({
            "requests": amounts(instance_type.requests()),
            "limits": amounts(instance_type.limits()),
        }),
    );
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": instance_type.name()},
        "spec": spec,
    })
}
