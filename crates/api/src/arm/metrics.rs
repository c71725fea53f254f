//! Workspace metrics in Azure Monitor's REST shape, out of the samples that the loop writes at each change of a cluster.

use model::{ClusterSpec, ComputeId, Millis, Name, Size, Tier, View, Workspace, view::NodeCounts};
use std::sync::Arc;
use wire::metrics::{self, Query, Request, Track};

use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply, time,
};

/// Clusters of one answer, living and gone.
const MAX_TRACKS: usize = 1000;

/// GET metricDefinitions.
pub(crate) fn definitions(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    Ok(reply::ok(&metrics::definitions(&workspace)))
}

/// GET metrics.
pub(crate) fn values(api: &Arc<Api>, call: &Call) -> Answer {
    let workspace = call.workspace(api)?;
    let text = |name: &str| call.query.get(name).map(str::to_owned);
    let query = Query {
        metrics: text("metricnames").unwrap_or_default(),
        timespan: text("timespan"),
        interval: text("interval"),
        aggregation: text("aggregation"),
        filter: text("$filter"),
    };
    // Spans end without their last instant: one more millisecond, so that what happened in this one is seen.
    let now = time::now() + Millis(1);
    let request = Request::parse(&query, now)?;
    let view = api.control.view();
    let tracks = tracks(api, &view, &workspace, &request)?;
    let quotas = view.quotas_of(&workspace);
    Ok(reply::ok(&metrics::answer(
        &workspace,
        &api.location,
        &request,
        &tracks,
        &quotas,
        now,
    )))
}

fn tracks(
    api: &Api,
    view: &View,
    workspace: &Arc<Workspace>,
    request: &Request,
) -> Result<Vec<Track>, Problem> {
    let prefix = control::nodes_series(&ComputeId::new(workspace, ""));
    let (from, to) = request.needs();
    let mut out = Vec::new();
    for series in api
        .control
        .series()
        .names(&prefix)?
        .into_iter()
        .take(MAX_TRACKS)
    {
        let samples = api.control.series().range(&series, from, to)?;
        let steps: Vec<_> = samples
            .iter()
            .filter_map(|(at, text)| Some((*at, serde_json::from_str::<NodeCounts>(text).ok()?)))
            .collect();
        let Some((_, last)) = steps.last() else {
            continue;
        };
        let name = &series[prefix.len()..];
        let living = view.clusters.get(&ComputeId::new(workspace, name));
        out.push(Track {
            cluster: living.map_or_else(|| Name::from(name), |c| c.id.name().into()),
            spec: living.map_or_else(|| gone(last.cores), |c| ClusterSpec::clone(&c.spec)),
            steps,
        });
    }
    Ok(out)
}

/// A cluster that is gone: its samples say how many cores a node had, and nothing else is asked of it but the quota it fell
/// under, which its samples do not say; low priority is what these metrics are for.
fn gone(cores: u32) -> ClusterSpec {
    ClusterSpec {
        size: Size {
            name: "".into(),
            family: "".into(),
            cores,
            memory: model::Bytes(0),
            gpus: 0,
        },
        tier: Tier::LowPriority,
        min: 0,
        max: 0,
        idle: Millis(0),
        pods: None,
    }
}
