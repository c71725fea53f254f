//! Taints that our pods tolerate (behaviour §2.7.2): those that Azure's extension sets aside machines with.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm,
    Taint as NodeTaint, Toleration,
};
use model::{
    ComputeId,
    kubernetes::{Taint, TaintEffect},
};

/// What Kubernetes itself puts on a machine that is cordoned or does not work: said by other fields of `Machine`.
const SAID_OTHERWISE: [&str; 3] = [
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// Keys and values that a pod of this compute tolerates, with any effect.
fn pairs(compute: &ComputeId) -> [(&'static str, &str); 5] {
    let workspace = compute.workspace();
    [
        ("ml.azure.com/amlarc", "true"),
        ("ml.azure.com/amlarc-workload", "true"),
        ("ml.azure.com/resource-group", workspace.group.as_str()),
        ("ml.azure.com/workspace", workspace.name.as_str()),
        ("ml.azure.com/compute", compute.name()),
    ]
}

/// The tolerations of a pod.
pub fn tolerations(compute: &ComputeId) -> Vec<Toleration> {
    pairs(compute)
        .into_iter()
        .map(|(key, value)| Toleration {
            key: Some(key.into()),
            operator: Some("Equal".into()),
            value: Some(value.into()),
            ..Toleration::default()
        })
        .collect()
}

/// What providers mark machines with that they may take away: label and taint alike (AKS, GKE, Karpenter).
const SPOT: [(&str, &str); 3] = [
    ("kubernetes.azure.com/scalesetpriority", "spot"),
    ("cloud.google.com/gke-spot", "true"),
    ("karpenter.sh/capacity-type", "spot"),
];

/// The tolerations of a pod that may be taken away.
pub fn spot() -> impl Iterator<Item = Toleration> {
    SPOT.into_iter().map(|(key, value)| Toleration {
        key: Some(key.into()),
        operator: Some("Equal".into()),
        value: Some(value.into()),
        effect: Some("NoSchedule".into()),
        ..Toleration::default()
    })
}

/// Such a pod runs on machines of that kind where there are any, and elsewhere where there are none.
pub fn rather_spot() -> Affinity {
    let terms = SPOT
        .into_iter()
        .map(|(key, value)| PreferredSchedulingTerm {
            weight: 100,
            preference: NodeSelectorTerm {
                match_expressions: Some(vec![NodeSelectorRequirement {
                    key: key.into(),
                    operator: "In".into(),
                    values: Some(vec![value.into()]),
                }]),
                match_fields: None,
            },
        });
    Affinity {
        node_affinity: Some(NodeAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(terms.collect()),
            required_during_scheduling_ignored_during_execution: None,
        }),
        ..Affinity::default()
    }
}

/// The taints of a machine that keep our pods away.
pub fn obstacles(compute: &ComputeId, taints: &[NodeTaint]) -> Vec<Taint> {
    let tolerated = pairs(compute);
    taints
        .iter()
        .filter_map(|taint| {
            let value = taint.value.as_deref().unwrap_or_default();
            let effect = match taint.effect.as_str() {
                "NoSchedule" => TaintEffect::NoSchedule,
                "NoExecute" => TaintEffect::NoExecute,
                _ => return None, // PreferNoSchedule keeps nobody away
            };
            let ours = tolerated.contains(&(taint.key.as_str(), value));
            let shown = !ours && !SAID_OTHERWISE.contains(&taint.key.as_str());
            shown.then(|| Taint {
                key: taint.key.as_str().into(),
                value: value.into(),
                effect,
            })
        })
        .collect()
}
