//! Usage of core quotas, and the catalogue of sizes (§2.5.5).
//!
//! Zaffre's quotas belong to a workspace, Azure's to a location: a location's limit is the sum over its workspaces. Nodes count
//! while they exist; Azure also counts nodes that a cluster could have.

use crate::{
    arm::quota::{DEDICATED, LOW_PRIORITY},
    names::PROVIDER,
    sizes,
};
use model::{ClusterRecord, NodeState, Quotas, Tier, View, Workspace, view::WorkspaceKey};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Computes per location, Azure's default.
const MAX_CLUSTERS: u64 = 500;

/// Cores of the nodes that exist, by cluster.
fn used(view: &View, cluster: &ClusterRecord) -> u64 {
    let nodes = view
        .nodes_of(&cluster.id)
        .filter(|n| n.state.exists() && !matches!(n.state, NodeState::Preempted))
        .count() as u64;
    nodes * u64::from(cluster.spec.size.cores)
}

/// Families of the catalogue in one spelling each.
fn families() -> Vec<&'static str> {
    let mut seen = BTreeSet::new();
    sizes::all()
        .iter()
        .map(|s| s.family)
        .filter(|f| seen.insert(f.to_ascii_lowercase()))
        .collect()
}

struct Scope {
    /// `.../locations/LOC/usages` or `.../workspaces/W/usages`
    prefix: String,
    /// Between provider and `usages`: nothing, `workspaces/`, `workspaces/computes/`.
    kind: &'static str,
}

impl Scope {
    fn record(&self, segment: &str, class: &str, name: &str, current: u64, limit: i64) -> Value {
        let kind = if self.kind.is_empty() {
            format!("{PROVIDER}/{class}/usages")
        } else {
            format!("{PROVIDER}/{}{class}/usages", self.kind)
        };
        json!({
            "id": format!("{}/{segment}", self.prefix),
            "type": kind,
            "unit": "Count",
            "currentValue": current,
            "limit": limit,
            "name": {"value": name, "localizedValue": name},
        })
    }
    fn family(&self, family: &str, tier: sizes::Tier, current: u64, limit: i64) -> Value {
        let name = sizes::quota_name(family, tier);
        self.record(&name.replace(' ', "_"), "vmFamily", &name, current, limit)
    }
}

fn tier_of(tier: Tier) -> sizes::Tier {
    match tier {
        Tier::Dedicated => sizes::Tier::Dedicated,
        Tier::LowPriority => sizes::Tier::LowPriority,
    }
}

/// `GET locations/LOC/usages` for a subscription.
pub fn usages(view: &View, subscription: &str, location: &str, default: &Arc<Workspace>) -> Value {
    let ours = |w: &Workspace| w.subscription.as_str().eq_ignore_ascii_case(subscription);
    let mut workspaces: BTreeSet<Arc<Workspace>> = view
        .clusters
        .keys()
        .map(|id| id.workspace().clone())
        .chain(view.quotas.keys().map(|WorkspaceKey(w)| w.clone()))
        .filter(|w| ours(w))
        .collect();
    if ours(default) {
        workspaces.insert(default.clone());
    }
    let clusters: Vec<&Arc<ClusterRecord>> = view
        .clusters
        .values()
        .filter(|c| ours(c.id.workspace()))
        .collect();
    let mut value = of_location(view, subscription, location, &workspaces, &clusters);
    for workspace in &workspaces {
        let own: Vec<_> = clusters
            .iter()
            .filter(|c| c.id.workspace() == workspace)
            .copied()
            .collect();
        value.extend(of_workspace(view, workspace, &own));
    }
    json!({ "value": value })
}

/// Cores in use by tier and by (family, tier), family in lower case.
#[derive(Default)]
struct Sums {
    tiers: BTreeMap<Tier, u64>,
    families: BTreeMap<(String, Tier), u64>,
}

fn sums(view: &View, clusters: &[&Arc<ClusterRecord>]) -> Sums {
    let mut out = Sums::default();
    for cluster in clusters {
        let (cores, spec) = (used(view, cluster), &cluster.spec);
        *out.tiers.entry(spec.tier).or_default() += cores;
        let family = spec.size.family.as_str().to_ascii_lowercase();
        *out.families.entry((family, spec.tier)).or_default() += cores;
    }
    out
}

fn family_limit(quotas: &Quotas, family: &str) -> u32 {
    let size = sizes::all()
        .iter()
        .find(|s| s.family.eq_ignore_ascii_case(family));
    size.map_or(quotas.family_default, |size| {
        quotas.family_limit(&crate::arm::compute::node_size(size))
    })
}

fn of_location(
    view: &View,
    subscription: &str,
    location: &str,
    workspaces: &BTreeSet<Arc<Workspace>>,
    clusters: &[&Arc<ClusterRecord>],
) -> Vec<Value> {
    let scope = Scope {
        prefix: format!(
            "/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/usages"
        ),
        kind: "",
    };
    let quotas: Vec<Arc<Quotas>> = workspaces.iter().map(|w| view.quotas_of(w)).collect();
    let limit = |of: &dyn Fn(&Quotas) -> u32| quotas.iter().map(|q| i64::from(of(q))).sum::<i64>();
    let sums = sums(view, clusters);
    let tier = |t| sums.tiers.get(&t).copied().unwrap_or(0);
    let mut out = vec![
        scope.record(
            "Clusters",
            "totalCores",
            "Clusters",
            clusters.len() as u64,
            i64::try_from(MAX_CLUSTERS).unwrap_or(i64::MAX),
        ),
        scope.record(
            LOW_PRIORITY,
            "lowPriorityCores",
            "Total Cluster LowPriority Regional vCPUs",
            tier(Tier::LowPriority),
            limit(&|q| q.low_priority),
        ),
        scope.record(
            DEDICATED,
            "dedicatedCores",
            "Total Cluster Dedicated Regional vCPUs",
            tier(Tier::Dedicated),
            limit(&|q| q.dedicated_total),
        ),
    ];
    for family in families() {
        let current = |t| {
            let key = (family.to_ascii_lowercase(), t);
            sums.families.get(&key).copied().unwrap_or(0)
        };
        out.push(scope.family(
            family,
            sizes::Tier::Dedicated,
            current(Tier::Dedicated),
            limit(&|q| family_limit(q, family)),
        ));
        // one number over all families limits these, so a family has none of its own
        out.push(scope.family(
            family,
            sizes::Tier::LowPriority,
            current(Tier::LowPriority),
            -1,
        ));
    }
    out
}

fn of_workspace(
    view: &View,
    workspace: &Arc<Workspace>,
    clusters: &[&Arc<ClusterRecord>],
) -> Vec<Value> {
    let id = crate::names::workspace_id(workspace);
    let scope = Scope {
        prefix: format!("{id}/usages"),
        kind: "workspaces/",
    };
    let quotas = view.quotas_of(workspace);
    let mut out = Vec::new();
    for ((family, tier), current) in &sums(view, clusters).families {
        let spelled = families()
            .into_iter()
            .find(|f| f.eq_ignore_ascii_case(family))
            .unwrap_or(family);
        let limit = match tier {
            Tier::Dedicated => i64::from(family_limit(&quotas, family)),
            Tier::LowPriority => -1,
        };
        out.push(scope.family(spelled, tier_of(*tier), *current, limit));
    }
    for cluster in clusters {
        let spec = &cluster.spec;
        let scope = Scope {
            prefix: format!("{id}/computes/{}/usages", cluster.id.name()),
            kind: "workspaces/computes/",
        };
        let limit = u64::from(spec.max) * u64::from(spec.size.cores);
        out.push(scope.family(
            spec.size.family.as_str(),
            tier_of(spec.tier),
            used(view, cluster),
            i64::try_from(limit).unwrap_or(i64::MAX),
        ));
    }
    out
}

/// `GET locations/LOC/vmSizes`, all of them or those that can be a kind of compute.
pub fn sizes_list(compute_type: Option<&str>) -> Value {
    let wanted = |record: &Value| {
        compute_type.is_none_or(|kind| {
            record["supportedComputeTypes"]
                .as_array()
                .is_some_and(|kinds| {
                    kinds
                        .iter()
                        .filter_map(Value::as_str)
                        .any(|k| k.eq_ignore_ascii_case(kind))
                })
        })
    };
    let value: Vec<Value> = sizes::all()
        .iter()
        .map(sizes::Size::record)
        .filter(wanted)
        .collect();
    json!({ "value": value })
}

/// `GET locations/LOC/quotas`: the quotas in force in a workspace.
pub fn quotas(workspace: &Arc<Workspace>, quotas: &Quotas) -> Value {
    let id = crate::names::workspace_id(workspace);
    let record = |segment: &str, class: &str, name: String, limit: u32| {
        json!({
            "id": format!("{id}/quotas/{segment}"),
            "amlWorkspaceLocation": super::envelope::LOCATION,
            "type": format!("{PROVIDER}/workspaces/{class}/quotas"),
            "unit": "Count",
            "limit": limit,
            "name": {"value": name, "localizedValue": name},
        })
    };
    let mut value = vec![
        record(
            LOW_PRIORITY,
            "lowPriorityCores",
            "Total Cluster LowPriority Regional vCPUs".into(),
            quotas.low_priority,
        ),
        record(
            DEDICATED,
            "dedicatedCores",
            "Total Cluster Dedicated Regional vCPUs".into(),
            quotas.dedicated_total,
        ),
    ];
    for family in families() {
        value.push(record(
            family,
            "vmFamily",
            sizes::quota_name(family, sizes::Tier::Dedicated),
            family_limit(quotas, family),
        ));
    }
    json!({ "value": value })
}

/// The answer of `updateQuotas`.
pub fn quota_results(results: Vec<Value>) -> Value {
    json!({"value": results, "nextLink": null})
}
