//! Searches of runs: jobs and what MLflow began, of some experiments, filtered and sorted.

use model::Kind;
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use wire::{
    arm::field::Field,
    mlflow::{
        self, Run, Tracked,
        filter::{Field as By, Filter, Order},
    },
    view::job::Job,
};

use super::{body, every, experiments, page_of, paged, read, runs};
use crate::{
    Api,
    arm::jobs,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// Runs that one search looks at; with more, those begun last are looked at.
const MAX_RUNS: usize = 50_000;
/// Experiments of one search.
const MAX_EXPERIMENTS: usize = 1000;
/// Runs of a page, and most of one: MLflow's own.
const PAGE: (usize, usize) = (1000, 50_000);

/// POST runs/search.
pub(crate) fn runs(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let body = body(call)?;
    let root = Field::root(&body);
    let filter = Filter::parse(root.get("filter").text()?.unwrap_or_default())?;
    mlflow::known(filter.attributes(), mlflow::RUN_ATTRIBUTES)?;
    let orders = root.get("order_by").items()?;
    let orders: Vec<&str> = orders
        .iter()
        .map(Field::need_text)
        .collect::<Result<_, _>>()?;
    let orders = Order::all(orders.into_iter())?;
    let named = orders.iter().filter_map(|o| match &o.field {
        By::Attribute(name) => Some(name.as_str()),
        By::Metric(_) | By::Param(_) | By::Tag(_) => None,
    });
    mlflow::known(named, mlflow::RUN_ATTRIBUTES)?;
    let mut wanted = HashSet::new();
    for id in mlflow::at_most(&root.get("experiment_ids"), MAX_EXPERIMENTS)? {
        match experiments::by_id(api, &workspace, id.need_text()?) {
            Ok(found) => drop(wanted.insert(found.name.to_lowercase())),
            // A search for what is not there finds nothing, as MLflow has it.
            Err(problem) if problem.status.as_u16() == 404 => {}
            Err(problem) => return Err(problem),
        }
    }
    let view = root.get("run_view_type").text()?;
    let asks_metrics =
        filter.asks_metrics() || orders.iter().any(|o| matches!(o.field, By::Metric(_)));
    let mut found = Vec::new();
    for mut run in candidates(api, &workspace, &wanted)? {
        if !experiments::shows(view, run.1.tracked.deleted) {
            continue;
        }
        if asks_metrics {
            run.1.metrics = runs::last(api, &run.0)?;
        }
        if filter.holds(&|field| run.1.item(field)) {
            found.push(run);
        }
    }
    found.sort_by(|(_, a), (_, b)| {
        let by = |o: &Order| o.compare(a.item(&o.field).as_ref(), b.item(&o.field).as_ref());
        let wanted = orders.iter().map(by).find(|o| o.is_ne());
        wanted.unwrap_or_else(|| {
            b.tracked
                .start
                .cmp(&a.tracked.start)
                .then_with(|| a.id.cmp(&b.id))
        })
    });
    let (max, token) = page_of(&root)?;
    let (mut page, next) = paged(found, max, token.as_deref(), PAGE)?;
    if !asks_metrics {
        for (id, run) in &mut page {
            run.metrics = runs::last(api, id)?;
        }
    }
    let views: Vec<Value> = page.iter().map(|(_, run)| run.view(&workspace)).collect();
    Ok(reply::ok(
        &json!({"runs": views, "next_page_token": next.unwrap_or_default()}),
    ))
}

/// Every run of the experiments, without its metrics.
fn candidates(
    api: &Api,
    workspace: &Arc<model::Workspace>,
    wanted: &HashSet<String>,
) -> Result<Vec<(model::JobId, Run)>, Problem> {
    let mut tracked: HashMap<String, Tracked> = HashMap::new();
    for document in every(api, workspace, Kind::Tracked, Some(runs::FOLDER), MAX_RUNS)? {
        let id = document
            .key
            .path
            .as_str()
            .rsplit('/')
            .next()
            .unwrap_or_default();
        tracked.insert(id.to_lowercase(), read(&document)?);
    }
    let mut out = Vec::new();
    let mut add = |place: runs::Place| -> Result<(), Problem> {
        let filled = runs::filled(&place)?;
        let id = place.id.name().to_owned();
        out.push((
            place.id,
            Run {
                artifacts: runs::artifacts(&id),
                id,
                tracked: filled,
                metrics: Vec::new(),
            },
        ));
        Ok(())
    };
    for document in every(api, workspace, Kind::Job, None, MAX_RUNS)? {
        let beside = tracked.remove(&document.key.path.as_str().to_lowercase());
        let experiment = Job::new(&document, None).experiment();
        if !wanted.contains(&experiment.to_lowercase()) {
            continue;
        }
        match jobs::find(api, &document.key) {
            Ok(found) => add(runs::Place {
                id: found.id.clone(),
                job: Some(found),
                tracked: beside.unwrap_or_default(),
            })?,
            // Deleted between the two looks.
            Err(problem) if problem.status.as_u16() == 404 => {}
            Err(problem) => return Err(problem),
        }
    }
    for (id, tracked) in tracked {
        let experiment = tracked.experiment.clone();
        // What a job that was deleted has left belongs to no experiment, and is no run.
        if experiment.is_some_and(|e| wanted.contains(&e.to_lowercase())) {
            let id = model::JobId::new(workspace, id);
            add(runs::Place {
                id,
                job: None,
                tracked,
            })?;
        }
    }
    Ok(out)
}
