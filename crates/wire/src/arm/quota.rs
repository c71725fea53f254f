//! Core quotas: the bodies of `updateQuotas` ⇄ `Quotas` (R-56, R-57, §2.5.5).
//!
//! The stored document of a workspace's quotas is `{"value":[{"id","type","unit","limit"}]}`: only what was ever set.

use super::{Invalid, field::Field};
use crate::{names::shown, sizes};
use model::{Quotas, Tier, View, Workspace};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// More cores than any region has; keeps sums far from overflow.
const MAX_CORES: i64 = 10_000_000;
/// Entries of one update: every family twice is about a hundred.
const MAX_UPDATES: usize = 1_000;
/// The id segment of the dedicated total.
pub const DEDICATED: &str = "TotalDedicatedCores";
/// The id segment of the low-priority total.
pub const LOW_PRIORITY: &str = "TotalLowPriorityCores";

/// Which quota an entry means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// Dedicated cores over all families.
    Dedicated,
    /// Low-priority cores over all families.
    LowPriority,
    /// Dedicated cores of one family, in the catalogue's spelling.
    Family(&'static str),
}

impl Which {
    /// The last segment of its id.
    pub fn segment(&self) -> &'static str {
        match self {
            Which::Dedicated => DEDICATED,
            Which::LowPriority => LOW_PRIORITY,
            Which::Family(family) => family,
        }
    }
    /// The cores that clusters of the workspace keep for ever (`min_instances`) under this quota.
    fn kept(&self, view: &View, workspace: &Workspace) -> u64 {
        view.clusters
            .values()
            .filter(|c| **c.id.workspace() == *workspace && !c.deleting)
            .filter(|c| match self {
                Which::Dedicated => c.spec.tier == Tier::Dedicated,
                Which::LowPriority => c.spec.tier == Tier::LowPriority,
                Which::Family(family) => {
                    c.spec.tier == Tier::Dedicated
                        && c.spec.size.family.as_str().eq_ignore_ascii_case(family)
                }
            })
            .map(|c| u64::from(c.spec.min) * u64::from(c.spec.size.cores))
            .sum()
    }
}

/// Reads the name of a quota: the segment of an id, a family code or the name under which usage is shown.
pub fn which(name: &str) -> Option<Which> {
    let bare: String = name.split_whitespace().collect();
    let is = |words: &[&str]| words.iter().any(|w| w.eq_ignore_ascii_case(&bare));
    if is(&[
        DEDICATED,
        "dedicatedCores",
        "dedicated",
        "TotalClusterDedicatedRegionalvCPUs",
    ]) {
        return Some(Which::Dedicated);
    }
    if is(&[
        LOW_PRIORITY,
        "lowPriorityCores",
        "low_priority",
        "LowPriority",
        "TotalClusterLowPriorityRegionalvCPUs",
    ]) {
        return Some(Which::LowPriority);
    }
    let family = |f: &'static str| {
        let shown: String = sizes::quota_name(f, sizes::Tier::Dedicated)
            .split_whitespace()
            .collect();
        let plain: String = f.split_whitespace().collect();
        plain.eq_ignore_ascii_case(&bare) || shown.eq_ignore_ascii_case(&bare)
    };
    sizes::all()
        .iter()
        .map(|s| s.family)
        .find(|f| family(f))
        .map(Which::Family)
}

/// What an update did.
#[derive(Clone, Debug, PartialEq)]
pub struct Updated {
    /// The document to store.
    pub document: Value,
    /// The quotas in force afterwards.
    pub quotas: Quotas,
    /// Each entry with its `status`, as REST answers.
    pub results: Vec<Value>,
}

/// The quotas that a stored document sets; everything else is the default.
pub fn quotas(document: &Value) -> Result<Quotas, Invalid> {
    let mut out = Quotas::default();
    for (which, limit) in entries(document)? {
        set(&mut out, &which, limit);
    }
    Ok(out)
}

fn set(quotas: &mut Quotas, which: &Which, limit: u32) {
    match which {
        Which::Dedicated => quotas.dedicated_total = limit,
        Which::LowPriority => quotas.low_priority = limit,
        Which::Family(family) => {
            quotas.families.insert((*family).into(), limit);
        }
    }
}

fn entries(document: &Value) -> Result<BTreeMap<Which, u32>, Invalid> {
    let mut out = BTreeMap::new();
    for item in Field::root(document).get("value").items()? {
        let id = item.get("id").need_text()?;
        let name = id.rsplit('/').next().unwrap_or(id);
        let which = which(name).ok_or_else(|| {
            item.get("id")
                .refuse(format!("names `{}`, which is no quota", shown(name)))
        })?;
        let limit = item.get("limit");
        let cores = limit.whole(0..=MAX_CORES)?.ok_or_else(|| limit.missing())?;
        out.insert(which, u32::try_from(cores).expect("at most MAX_CORES"));
    }
    Ok(out)
}

/// Applies `{"value":[{"id",limit,…}]}` to what is stored. Each entry stands alone, as in Azure: the good ones are applied
/// and every one says how it went. A limit of -1 goes back to the default.
pub fn update(
    workspace: &Workspace,
    view: &View,
    before: Option<&Value>,
    body: &Value,
) -> Result<Updated, Invalid> {
    let mut set_now = before.map(entries).transpose()?.unwrap_or_default();
    let list = Field::root(body).get("value");
    let items = list.items()?;
    if items.is_empty() {
        return Err(list.refuse("is required: a list of quotas with id and limit"));
    }
    if items.len() > MAX_UPDATES {
        return Err(list.refuse(format!(
            "has {} entries, allowed are {MAX_UPDATES}",
            items.len()
        )));
    }
    let mut results = Vec::new();
    for item in items {
        let id = item.get("id").need_text()?;
        let limit = item.get("limit");
        let cores = limit
            .whole(-1..=MAX_CORES)?
            .ok_or_else(|| limit.missing())?;
        let status = one(workspace, view, &mut set_now, id, cores);
        results.push(json!({
            "id": id,
            "type": item.get("type").text()?.unwrap_or("Microsoft.MachineLearningServices/workspaces/dedicatedCores/quotas"),
            "limit": cores,
            "unit": "Count",
            "status": status,
        }));
    }
    let document = render(&set_now);
    Ok(Updated {
        quotas: quotas(&document)?,
        document,
        results,
    })
}

fn one(
    workspace: &Workspace,
    view: &View,
    set_now: &mut BTreeMap<Which, u32>,
    id: &str,
    cores: i64,
) -> &'static str {
    let name = id.trim_end_matches('/').rsplit('/').next().unwrap_or(id);
    let Some(which) = which(name) else {
        return "InvalidVMFamilyName";
    };
    let Ok(cores) = u32::try_from(cores) else {
        set_now.remove(&which);
        return "Success";
    };
    if which.kept(view, workspace) > u64::from(cores) {
        return "InvalidQuotaBelowClusterMinimum";
    }
    let total = set_now
        .get(&Which::Dedicated)
        .copied()
        .unwrap_or(Quotas::default().dedicated_total);
    if matches!(which, Which::Family(_)) && cores > total {
        return "InvalidQuotaExceedsSubscriptionLimit";
    }
    set_now.insert(which, cores);
    "Success"
}

fn render(set_now: &BTreeMap<Which, u32>) -> Value {
    let value: Vec<Value> = set_now
        .iter()
        .map(|(which, limit)| json!({"id": which.segment(), "limit": limit, "unit": "Count"}))
        .collect();
    json!({ "value": value })
}
