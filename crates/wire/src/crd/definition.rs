//! The definition that makes `kind: InstanceType` known to a Kubernetes cluster (R-2), built from the rules of `model`.
//!
//! C1 every message comes from `model::instance_type::RULES`, so a cluster and Zaffre's own door say the same words;
//! C2 the schema is closed: what is not named is refused, never dropped unseen;
//! C3 every rule reads a value as a text, also a number: that needs no function for types, which kube-cel lacks;
//! C4 the cost that Kubernetes estimates for each rule is bounded by a length or a number of entries.
//!
//! Needs Kubernetes 1.31 or newer, for the rule of label keys. Devices are a list of names: a structural schema has either
//! named keys or any keys under `limits`, never both, and with any keys cpu and memory would lose their messages and a slip
//! such as `nvidia.com/gpus` would be taken. A device under `requests` is named as well, or it would be dropped silently
//! where field validation is off.

use model::instance_type::{
    DEVICES, GPU, MAX_AMOUNT, MAX_CORES, MAX_LABEL_VALUE, MAX_MEMORY, MAX_SELECTOR, Rule,
    order_message,
};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

use super::{GROUP, KIND, LIST_KIND, NAME, PLURAL, SINGULAR, VERSION};
use crate::yaml::block_yaml;

/// Built once; every check walks it.
static DEFINITION: LazyLock<Value> = LazyLock::new(build);

/// The CustomResourceDefinition (R-2): cluster scope, since a type's name is unique in its cluster (R-21).
pub fn definition() -> Value {
    DEFINITION.clone()
}

/// The same as the file that `cargo xtask crdgen` writes.
pub fn definition_yaml() -> String {
    format!(
        "# Written by `cargo xtask crdgen` from the rules of crates/model/src/instance_type; do not edit.\n\
         # Needs Kubernetes 1.31 or newer.\n{}",
        block_yaml(&DEFINITION)
    )
}

/// The schema of one object.
pub(super) fn schema() -> &'static Value {
    &DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

fn build() -> Value {
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    let mut selector = column("Node-Selector", ".spec.nodeSelector");
    selector["priority"] = 1.into();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"kind": KIND, "listKind": LIST_KIND, "plural": PLURAL, "singular": SINGULAR},
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": [
                    column("CPU-Request", ".spec.resources.requests.cpu"),
                    column("Memory-Request", ".spec.resources.requests.memory"),
                    column("CPU-Limit", ".spec.resources.limits.cpu"),
                    column("Memory-Limit", ".spec.resources.limits.memory"),
                    column("GPU", r".spec.resources.limits.nvidia\.com/gpu"),
                    selector,
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": {
                    "description": "A named size for machine learning work: which nodes its pods may run on and what they get.",
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        // Given by Kubernetes; named so that the checks of our own door know them too.
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec(),
                    },
                }},
            }],
        },
    })
}

fn spec() -> Value {
    json!({
        "description": "Which nodes the pods of a workload may run on and what they get.",
        "type": "object",
        "required": ["resources"],
        "properties": {
            "nodeSelector": selector(),
            "resources": {
                "description": "What the main container of a workload requests and may use at most.",
                "type": "object",
                "required": ["requests", "limits"],
                "properties": {
                    "requests": {
                        "description": "What the scheduler reserves: cpu and memory. GPUs are given under limits.",
                        "type": "object",
                        "required": ["cpu", "memory"],
                        "properties": amounts(device_request),
                        "x-kubernetes-validations": DEVICES.map(no_request),
                    },
                    "limits": {
                        "description": "What the container may not pass, and its GPUs or other devices.",
                        "type": "object",
                        "required": ["cpu", "memory"],
                        "properties": amounts(device_limit),
                    },
                },
                "x-kubernetes-validations": [order(Rule::CpuOrder, "cpu"), order(Rule::MemoryOrder, "memory")],
            },
        },
    })
}

/// R-27.
fn selector() -> Value {
    json!({
        "description": "Labels that a node must carry, in addition to the node selector that the extension was installed with.",
        "type": "object",
        "maxProperties": MAX_SELECTOR,
        "additionalProperties": {
            "type": "string",
            "maxLength": MAX_LABEL_VALUE,
            "x-kubernetes-validations": [
                rule(Rule::SelectorValue, "self.matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')"),
            ],
        },
        // A message with the key in it would be estimated at a hundred times what a rule may cost.
        "x-kubernetes-validations": [
            rule(Rule::SelectorKey, "self.all(k, !format.qualifiedName().validate(k).hasValue())"),
        ],
    })
}

fn amounts(device: fn(&str) -> Value) -> Map<String, Value> {
    let mut properties = Map::new();
    properties.insert(
        "cpu".into(),
        quantity(
            "Cores, whole (\"1\") or in thousandths (\"700m\"); above zero.",
            above_zero(Rule::Cpu),
            at_most(Rule::CpuMost, MAX_CORES),
        ),
    );
    properties.insert(
        "memory".into(),
        quantity(
            "Bytes, with a suffix: \"1500Mi\", \"2Gi\"; above zero.",
            above_zero(Rule::Memory),
            at_most(Rule::MemoryMost, MAX_MEMORY),
        ),
    );
    for name in DEVICES {
        properties.insert(name.into(), device(name));
    }
    properties
}

fn int_or_string(description: &str, rules: Vec<Value>) -> Value {
    let mut schema = json!({
        "description": description,
        "x-kubernetes-int-or-string": true,
        "maxLength": MAX_AMOUNT,
    });
    if !rules.is_empty() {
        schema["x-kubernetes-validations"] = rules.into();
    }
    schema
}

/// R-22 to R-25.
fn quantity(description: &str, above_zero: Value, at_most: Value) -> Value {
    let not_empty = rule(Rule::Empty, "size(string(self)) > 0");
    int_or_string(description, vec![not_empty, above_zero, at_most])
}

fn above_zero(which: Rule) -> Value {
    rule(
        which,
        "size(string(self)) == 0 || (isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0')))",
    )
}

fn at_most(which: Rule, most: u64) -> Value {
    let expression = format!(
        "!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('{most}')) <= 0"
    );
    rule(which, &expression)
}

/// R-26: absent, null and 0 all mean none (C-11).
fn device_limit(name: &str) -> Value {
    let (description, whole) = match name {
        GPU => (
            "Whole number of NVIDIA GPUs. Absent, null and 0 all mean none.".into(),
            Rule::Gpu,
        ),
        name => (
            format!("Whole number of {name}. Absent, null and 0 all mean none."),
            Rule::Device,
        ),
    };
    // Six digits are allowed: `MAX_DEVICES` is the largest number of them.
    let most = "!string(self).matches('^0*[1-9][0-9]{6,}$')";
    int_or_string(
        &description,
        vec![
            rule(whole, "string(self).matches('^[0-9]+$')"),
            rule(Rule::DeviceMost, most),
        ],
    )
}

fn device_request(_: &str) -> Value {
    int_or_string("Not allowed here; it is given under limits.", Vec::new())
}

/// D-7.
fn no_request(name: &str) -> Value {
    let which = match name {
        GPU => Rule::GpuRequest,
        _ => Rule::DeviceRequest,
    };
    let escaped = name.replace('.', "__dot__").replace('/', "__slash__");
    json!({
        "rule": format!("!has(self.{escaped})"),
        "message": which.message(),
        "fieldPath": format!("['{name}']"),
        "reason": which.kind().reason(),
    })
}

fn order(which: Rule, what: &str) -> Value {
    let value = |side: &str| format!("string(self.{side}.{what})");
    let (request, limit) = (value("requests"), value("limits"));
    let shown = |value: &str| format!("' + {value} + '");
    json!({
        "rule": format!(
            "!isQuantity({request}) || !isQuantity({limit}) || quantity({request}).compareTo(quantity({limit})) <= 0"
        ),
        "message": which.message(),
        "messageExpression": format!("'{}'", order_message(what, &shown(&request), &shown(&limit))),
        "fieldPath": format!(".requests.{what}"),
    })
}

fn rule(which: Rule, expression: &str) -> Value {
    json!({"rule": expression, "message": which.message()})
}
