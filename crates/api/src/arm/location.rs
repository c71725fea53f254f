//! What belongs to a location: sizes, usages, quotas. There is one location; any name is accepted.

use control::Condition;
use model::{DocKey, Kind, Workspace};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use wire::view::usage;

use super::put;
use crate::{
    Api,
    call::Call,
    condition, paging,
    problem::{Answer, Problem},
    reply,
};

/// GET vmSizes.
pub(crate) fn sizes(_api: &Arc<Api>, call: &Call) -> Answer {
    Ok(reply::ok(&usage::sizes_list(
        call.query.get("compute-type"),
    )))
}

/// GET usages of a subscription.
pub(crate) fn usages(api: &Arc<Api>, call: &Call) -> Answer {
    let view = api.control.view();
    Ok(reply::ok(&usage::usages(
        &view,
        call.param("s"),
        call.param("l"),
        &api.home,
    )))
}

/// GET the quotas of the workspaces of a subscription.
pub(crate) fn quotas(api: &Arc<Api>, call: &Call) -> Answer {
    let view = api.control.view();
    let mut items = Vec::new();
    for workspace in workspaces(api, call)? {
        let mut own = usage::quotas(&workspace, &view.quotas_of(&workspace));
        if let Some(list) = own["value"].as_array_mut() {
            items.append(list);
        }
    }
    Ok(reply::ok(&paging::body(call, items, None)))
}

/// The workspaces of the subscription; `resourceGroup` and `workspace` in the query (ours) choose among them.
fn workspaces(api: &Api, call: &Call) -> Result<Vec<Arc<Workspace>>, Problem> {
    let chosen = |name: &str, value: &str| {
        call.query
            .get(name)
            .is_none_or(|want| want.eq_ignore_ascii_case(value))
    };
    let subscription = call.param("s");
    let mut all = api.workspaces_known();
    all.retain(|w| {
        w.subscription.as_str().eq_ignore_ascii_case(subscription)
            && chosen("resourceGroup", w.group.as_str())
            && chosen("workspace", w.name.as_str())
    });
    all.sort();
    if all.is_empty() {
        return Err(Problem::missing(format!(
            "subscription {} has no workspace of that name",
            wire::names::shown(subscription)
        )));
    }
    Ok(all)
}

/// POST updateQuotas: each id names the workspace it is for.
pub(crate) async fn update_quotas(api: Arc<Api>, call: Call) -> Answer {
    let body: Value = call.json()?;
    let workspace = named(&api, &call, &body)?;
    let key = DocKey::new(&workspace, Kind::Quota, api.location.as_str());
    let condition = match condition::read(&call.headers)? {
        Condition::Absent => return Err(Problem::bad("If-None-Match has no meaning for quotas")),
        other => other,
    };
    let view = api.control.view();
    let results = Mutex::new(Vec::new());
    let stored = put::put(&api, &key, condition, |before| {
        let old = before.map(put::body).transpose()?;
        let updated = wire::arm::quota::update(&workspace, &view, old.as_ref(), &body)?;
        *results.lock().unwrap_or_else(PoisonError::into_inner) = updated.results;
        put::rendered(&key, &updated.document, before)
    })
    .await?;
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(put::warn(
        reply::ok(&usage::quota_results(results)),
        &stored.warnings,
    ))
}

/// The one workspace that the ids of an update name; the only one of the subscription when they name none.
fn named(api: &Api, call: &Call, body: &Value) -> Result<Arc<Workspace>, Problem> {
    let subscription = call.param("s");
    let mut found: Option<Arc<Workspace>> = None;
    for item in body
        .get("value")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let Some(id) = item.get("id").and_then(Value::as_str) else {
            continue;
        };
        let parts: Vec<&str> = id.trim_start_matches('/').split('/').collect();
        let after = |word: &str| {
            parts
                .windows(2)
                .find(|w| w[0].eq_ignore_ascii_case(word))
                .map(|w| w[1])
        };
        let (Some(group), Some(name)) = (after("resourceGroups"), after("workspaces")) else {
            continue;
        };
        let workspace = Workspace::new(subscription, group, name);
        if found.as_ref().is_some_and(|f| *f != workspace) {
            return Err(Problem::user(
                "the entries of one update are of one workspace",
            ));
        }
        found = Some(workspace);
    }
    match found {
        Some(workspace) => api.workspace(&workspace)?.ok_or_else(|| {
            Problem::missing(format!(
                "workspace {} does not exist in resource group {}",
                wire::names::shown(workspace.name.as_str()),
                wire::names::shown(workspace.group.as_str())
            ))
        }),
        None => match workspaces(api, call)?.as_slice() {
            [only] => Ok(only.clone()),
            _ => Err(Problem::user(
                "the ids name no workspace, and there are several: write /subscriptions/S/resourceGroups/G/providers/Microsoft.MachineLearningServices/workspaces/W/quotas/NAME",
            )),
        },
    }
}
