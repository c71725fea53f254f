//! Core quotas: dedicated cores by family and in total, low-priority cores as one number over all families.
//! Nodes count while they exist. The check that refuses returns the reason.

use model::{ClusterSpec, ComputeId, Refusal, Tier, Why, view::WorkspaceKey, why::Holder};

use crate::{limits::SHOWN_HOLDERS, pool::Usage, world::World};

/// One limit that applies to a cluster.
struct Limit {
    quota: Box<str>,
    limit: u32,
    used: u32,
    whose: Whose,
}

/// Whose nodes count against a limit.
#[derive(Clone, Copy)]
enum Whose {
    LowPriority,
    Dedicated,
    Family,
}

fn limits(world: &World, compute: &ComputeId, spec: &ClusterSpec) -> Vec<Limit> {
    let quotas = world.view.quotas_of(compute.workspace());
    let none = Usage::default();
    let key = WorkspaceKey(compute.workspace().clone());
    let usage = world.usage.get(&key).unwrap_or(&none);
    match spec.tier {
        Tier::LowPriority => vec![Limit {
            quota: "low-priority cores".into(),
            limit: quotas.low_priority,
            used: usage.low_priority,
            whose: Whose::LowPriority,
        }],
        Tier::Dedicated => vec![
            Limit {
                quota: format!("{} dedicated cores", spec.size.family).into(),
                limit: quotas.family_limit(&spec.size),
                used: usage.family(&spec.size.family),
                whose: Whose::Family,
            },
            Limit {
                quota: "dedicated cores".into(),
                limit: quotas.dedicated_total,
                used: usage.dedicated,
                whose: Whose::Dedicated,
            },
        ],
    }
}

/// How many of `asked` further nodes the quotas allow, and what forbids the rest.
pub(crate) fn allowed(
    world: &World,
    compute: &ComputeId,
    spec: &ClusterSpec,
    asked: u32,
) -> (u32, Option<Why>) {
    let (mut most, mut why) = (asked, None);
    let need = spec.size.cores.max(1);
    for l in limits(world, compute, spec) {
        let nodes = l.limit.saturating_sub(l.used) / need;
        if nodes < most {
            most = nodes;
            why = Some(l);
        }
    }
    let why = why.map(|l| Why::Quota {
        quota: l.quota,
        limit: l.limit,
        need,
        left: l
            .limit
            .saturating_sub(l.used)
            .saturating_sub(most.saturating_mul(need)),
        holders: holders(world, compute, spec, l.whose, most),
    });
    (most, why)
}

/// Who holds the cores of a quota, the largest first, `more` nodes of this cluster counted in.
fn holders(
    world: &World,
    compute: &ComputeId,
    spec: &ClusterSpec,
    whose: Whose,
    more: u32,
) -> Vec<Holder> {
    let mut found: Vec<Holder> = Vec::new();
    for (id, cluster) in world.view.clusters.iter() {
        let other = &cluster.spec;
        let counts = match whose {
            Whose::LowPriority => other.tier == Tier::LowPriority,
            Whose::Dedicated => other.tier == Tier::Dedicated,
            Whose::Family => other.tier == Tier::Dedicated && other.size.family == spec.size.family,
        };
        if !counts || id.workspace() != compute.workspace() {
            continue;
        }
        let nodes = world.pools.get(id).map_or(0, |p| p.existing());
        let nodes = if id == compute { nodes + more } else { nodes };
        if nodes > 0 {
            found.push(Holder {
                compute: id.name().into(),
                nodes,
                cores: nodes.saturating_mul(other.size.cores),
            });
        }
    }
    found.sort_by(|a, b| {
        b.cores
            .cmp(&a.cores)
            .then_with(|| a.compute.cmp(&b.compute))
    });
    found.truncate(SHOWN_HOLDERS);
    found
}

/// Whether `min` nodes fit into the quotas when nothing else runs; else Azure's refusal.
pub(crate) fn may_always_have(
    world: &World,
    compute: &ComputeId,
    spec: &ClusterSpec,
) -> Result<(), Refusal> {
    let need = spec.min.saturating_mul(spec.size.cores);
    for l in limits(world, compute, spec) {
        if need > l.limit {
            return Err(Refusal::Invalid {
                code: "ClusterMinNodesExceedCoreQuota",
                message: format!(
                    "min_instances {} of compute {compute} needs {need} cores ({} of {} each), quota of {} is {}",
                    spec.min, spec.size.cores, spec.size.name, l.quota, l.limit
                ),
            });
        }
    }
    Ok(())
}
