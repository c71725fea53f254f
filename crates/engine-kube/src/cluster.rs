//! What is known of one cluster, and the value that the control plane sees of it. Pure: fed by the watches.
//!
//! C1 what is seen is complete or older, never partial: a list that is being read again replaces the old one when it is whole.

use crate::{amount, tolerate};
use k8s_openapi::api::core::v1::{Node, Pod};
use model::{ClusterSeen, ComputeId, Labels, Machine, Resources, kubernetes::TypeSeen};
use serde_json::Value;
use std::collections::BTreeMap;
use wire::crd::Strictness;

/// Objects of one watch by key. While a new list comes in, the old one stays (C1).
#[derive(Debug)]
pub struct Board<T> {
    known: BTreeMap<Box<str>, T>,
    coming: Option<BTreeMap<Box<str>, T>>,
    /// Whether a whole list has ever come.
    pub whole: bool,
}

impl<T> Default for Board<T> {
    fn default() -> Self {
        Board {
            known: BTreeMap::new(),
            coming: None,
            whole: false,
        }
    }
}

impl<T> Board<T> {
    /// A new list begins.
    pub fn begin(&mut self) {
        self.coming = Some(BTreeMap::new());
    }
    /// An object of the list that comes; nothing for one that does not count.
    pub fn listed(&mut self, key: Box<str>, value: Option<T>) {
        if let (Some(coming), Some(value)) = (&mut self.coming, value) {
            coming.insert(key, value);
        }
    }
    /// The list is whole.
    pub fn end(&mut self) {
        if let Some(coming) = self.coming.take() {
            self.known = coming;
            self.whole = true;
        }
    }
    /// An object has changed; whether that changes anything here.
    pub fn set(&mut self, key: Box<str>, value: Option<T>) -> bool
    where
        T: PartialEq,
    {
        match value {
            Some(value) if self.known.get(&key) == Some(&value) => false,
            Some(value) => {
                self.known.insert(key, value);
                true
            }
            None => self.known.remove(&key).is_some(),
        }
    }
    /// Its objects.
    pub fn iter(&self) -> impl Iterator<Item = (&Box<str>, &T)> {
        self.known.iter()
    }
    /// One of them.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.known.get(key)
    }
}

/// The boards of a cluster.
#[derive(Debug, Default)]
pub struct Known {
    /// Machines by name, without what their pods request.
    pub machines: Board<Machine>,
    /// What each pod holds, by `namespace/name`.
    pub held: Board<(Box<str>, Resources)>,
    /// Instance types by name.
    pub types: Board<TypeSeen>,
}

impl Known {
    /// Whether every list has come once.
    pub fn whole(&self) -> bool {
        self.machines.whole && self.held.whole && self.types.whole
    }

    /// The value for the control plane.
    pub fn seen(&self, trouble: Option<Box<str>>) -> ClusterSeen {
        let mut machines: BTreeMap<Box<str>, Machine> = self
            .machines
            .iter()
            .map(|(name, machine)| (name.clone(), machine.clone()))
            .collect();
        for (_, (node, requests)) in self.held.iter() {
            if let Some(machine) = machines.get_mut(node) {
                machine.take(requests);
            }
        }
        ClusterSeen {
            placed_here: false,
            types: self.types.whole.then(|| {
                let types = self.types.iter();
                types.map(|(k, v)| (k.clone(), v.clone())).collect()
            }),
            node_selector: Labels::new(),
            machines,
            trouble,
        }
    }
}

/// A machine, without what its pods request.
pub fn machine(compute: &ComputeId, node: &Node) -> Machine {
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let allocatable = status.and_then(|s| s.allocatable.as_ref());
    let pods = allocatable.and_then(|a| a.get("pods"));
    let pods = pods.and_then(|q| q.0.parse::<wire::quantity::Quantity>().ok());
    let labels = node.metadata.labels.iter().flatten();
    Machine {
        labels: labels
            .map(|(k, v)| (k.as_str().into(), v.as_str().into()))
            .collect(),
        taints: spec
            .and_then(|s| s.taints.as_deref())
            .map(|taints| tolerate::obstacles(compute, taints))
            .unwrap_or_default(),
        cordoned: spec.and_then(|s| s.unschedulable).unwrap_or(false),
        not_ready: not_ready(node),
        allocatable: amount::resources(allocatable),
        pods: pods
            .and_then(|q| q.count().ok())
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(0),
        requested: Resources::default(),
        pods_there: 0,
    }
}

/// Why a machine is not ready, when it is not.
pub fn not_ready(node: &Node) -> Option<Box<str>> {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|c| c.type_ == "Ready");
    match ready {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => {
            let reason = ready.reason.as_deref().unwrap_or("not ready");
            Some(match ready.message.as_deref() {
                Some(message) if !message.is_empty() => format!("{reason}: {message}").into(),
                _ => reason.into(),
            })
        }
        None => Some("it has not said that it is ready".into()),
    }
}

/// An instance type of the cluster, as it can be used or as it cannot.
pub fn instance_type(object: &Value) -> TypeSeen {
    match wire::crd::check(object, Strictness::Ignore) {
        Ok(checked) => TypeSeen::Usable(checked.instance_type),
        Err(refused) => {
            let message = wire::crd::kubectl_text(&refused.server_status());
            TypeSeen::Broken(message.into())
        }
    }
}

/// What a pod holds, by the key of its board.
pub fn held(pod: &Pod) -> (Box<str>, Option<(Box<str>, Resources)>) {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    let key = format!(
        "{}/{}",
        namespace.as_deref().unwrap_or_default(),
        name.as_deref().unwrap_or_default()
    );
    (key.into(), amount::held(pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Workspace;

    fn compute() -> ComputeId {
        ComputeId::new(&Workspace::new("s", "rg1", "ws1"), "k8s")
    }

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_machine_is_what_it_can_allocate_less_what_its_pods_request() {
        let mut known = Known::default();
        known.machines.set(
            "n1".into(),
            Some(machine(
                &compute(),
                &node(serde_json::json!({
                    "metadata": {"name": "n1", "labels": {"mylabel": "mylabelvalue"}},
                    "spec": {"taints": [
                        {"key": "ml.azure.com/amlarc", "value": "true", "effect": "NoSchedule"},
                        {"key": "ml.azure.com/compute", "value": "other", "effect": "NoSchedule"},
                        {"key": "soft", "effect": "PreferNoSchedule"},
                    ]},
                    "status": {
                        "allocatable": {"cpu": "1900m", "memory": "7Gi", "pods": "110", "nvidia.com/gpu": "1", "ephemeral-storage": "9Gi"},
                        "capacity": {"cpu": "2", "memory": "8Gi"},
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                })),
            )),
        );
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "kube-system", "name": "dns"},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}]},
            "status": {"phase": "Running"},
        }))
        .unwrap();
        let (key, what) = held(&pod);
        known.held.set(key, what);
        let seen = known.seen(None);
        let n1 = &seen.machines["n1"];
        assert_eq!((n1.allocatable.cpu.0, n1.requested.cpu.0), (1900, 250));
        assert_eq!((n1.pods, n1.pods_there), (110, 1));
        assert_eq!(n1.not_ready, None);
        let taints: Vec<String> = n1.taints.iter().map(ToString::to_string).collect();
        assert_eq!(taints, ["ml.azure.com/compute=other:NoSchedule"]);
        assert_eq!(seen.types, None, "no list has come yet");
    }

    #[test]
    fn c1_a_list_that_comes_again_replaces_the_old_one_when_it_is_whole() {
        let mut board = Board::default();
        board.begin();
        board.listed("a".into(), Some(1));
        assert!(!board.whole && board.get("a").is_none());
        board.end();
        board.begin();
        assert_eq!(board.get("a"), Some(&1), "the old one stays meanwhile");
        board.listed("b".into(), Some(2));
        board.end();
        assert_eq!((board.get("a"), board.get("b")), (None, Some(&2)));
    }

    #[test]
    fn a_type_that_breaks_a_rule_is_shown_with_the_rule() {
        let object = |cpu: &str| {
            serde_json::json!({
                "apiVersion": "amlarc.azureml.com/v1alpha1", "kind": "InstanceType",
                "metadata": {"name": "t", "uid": "u", "resourceVersion": "1", "managedFields": []},
                "spec": {"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}},
            })
        };
        assert!(matches!(instance_type(&object("700m")), TypeSeen::Usable(t) if t.name() == "t"));
        match instance_type(&object("2")) {
            TypeSeen::Broken(message) => assert!(message.contains("limit (1)"), "{message}"),
            TypeSeen::Usable(t) => panic!("{t:?}"),
        }
    }
}
