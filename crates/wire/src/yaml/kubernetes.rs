//! Kubernetes computes: `type: kubernetes` (behaviour §2.1.4).

use super::{
    compute::{identity, location},
    fields::{Choice, Fields},
    load::Built,
    report::Report,
};
use crate::{
    arm::kubernetes::DEFAULT_NAMESPACE,
    names::{check_compute, compute_name_advice},
};
use serde_json::{Map, Value as Json, json};

const TYPES: &[Choice] = &[("kubernetes", "Kubernetes")];
const DEFAULT: &str = "Azure ML YAML reference, attached Kubernetes cluster";

/// Keys that people look for here, with where they are.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "instance_types",
        "instance types are resources of the cluster: zaffre instance-type apply -f FILE",
    ),
    (
        "instance_type",
        "a job names its instance type: resources.instance_type",
    ),
    ("kubeconfig", "zaffre compute attach --kubeconfig FILE"),
    (
        "size",
        "the sizes of pods are instance types: zaffre instance-type apply -f FILE",
    ),
    (
        "min_instances",
        "a Kubernetes compute has no nodes of its own",
    ),
    (
        "max_instances",
        "a Kubernetes compute has no nodes of its own",
    ),
];

/// The file of a Kubernetes compute.
pub(super) fn compute(report: &Report<'_>, fields: Fields<'_>) -> Built {
    fields.has("$schema");
    let name = fields.name("name", check_compute);
    if let Some(advice) = name.and_then(|name| compute_name_advice(name.text)) {
        report.warn(fields.key_at("name"), "name", advice);
    }
    if fields.absent("name") {
        fields.missing("name", "write name: NAME, or give --name");
    }
    if fields.choice("type", TYPES).is_none() {
        fields.default_unless_written("type", "kubernetes", "the keys of the file");
    }
    let mut inner = match fields.bag("properties") {
        Some(Json::Object(bag)) => bag,
        _ => Map::new(),
    };
    let namespace = match fields.words("namespace") {
        Some(text) => text.text.to_owned(),
        None => {
            fields.default_unless_written("namespace", DEFAULT_NAMESPACE, DEFAULT);
            DEFAULT_NAMESPACE.to_owned()
        }
    };
    inner.insert("namespace".into(), namespace.into());
    let mut outer = Map::new();
    if let Some(description) = fields.text("description") {
        outer.insert("description".into(), description.text.into());
    }
    outer.insert("computeType".into(), "Kubernetes".into());
    if let Some(id) = fields.words("resource_id") {
        outer.insert("resourceId".into(), id.text.into());
    }
    outer.insert("properties".into(), inner.into());
    let mut body = json!({ "location": location(&fields), "properties": outer });
    super::assets::insert_if(&mut body, "/tags", fields.texts("tags").map(Json::from));
    super::assets::insert_if(&mut body, "/identity", identity(&fields));
    fields.read_only(&[
        "id",
        "provisioning_state",
        "provisioning_errors",
        "created_on",
    ]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body,
        effective: fields.done(ELSEWHERE),
    }
}
