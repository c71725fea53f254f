//! Metrics as Azure Monitor answers them (N1-N4).

use model::{
    ClusterSpec, Millis, Quotas, Size, Tier, Time, Workspace, unit::Bytes, view::NodeCounts,
};
use proptest::prelude::*;
use serde_json::Value;
use wire::metrics::{self, Query, Request, Track};

const MINUTE: u64 = 60_000;
/// 2026-11-30T00:00:00Z
const DAY: u64 = 1_795_996_800_000;

fn at(seconds: u64) -> Time {
    Time(DAY + seconds * 1000)
}

fn track(name: &str, steps: &[(u64, u32, u32)]) -> Track {
    let size = Size {
        name: "x".into(),
        family: "f".into(),
        cores: 4,
        memory: Bytes(1),
        gpus: 0,
    };
    let spec = ClusterSpec {
        size,
        tier: Tier::LowPriority,
        min: 0,
        max: 4,
        idle: Millis(1),
        pods: None,
    };
    let counts = |running, preempted| NodeCounts {
        running,
        preempted,
        cores: 4,
        ..NodeCounts::default()
    };
    Track {
        cluster: name.into(),
        spec,
        steps: steps
            .iter()
            .map(|(s, r, p)| (at(*s), counts(*r, *p)))
            .collect(),
    }
}

fn ask(
    metrics: &str,
    aggregation: &str,
    interval: &str,
    tracks: &[Track],
    filter: Option<&str>,
) -> Value {
    let query = Query {
        metrics: metrics.into(),
        timespan: Some("2026-11-30T00:00:00Z/2026-11-30T00:10:00Z".into()),
        interval: Some(interval.into()),
        aggregation: Some(aggregation.into()),
        filter: filter.map(Into::into),
    };
    let request = Request::parse(&query, at(600)).unwrap();
    metrics::answer(
        &Workspace::new("s", "g", "w"),
        "local",
        &request,
        tracks,
        &Quotas::default(),
        at(600),
    )
}

fn column(answer: &Value, metric: usize, key: &str) -> Vec<Option<f64>> {
    let data = answer["value"][metric]["timeseries"][0]["data"]
        .as_array()
        .unwrap();
    data.iter()
        .map(|p| p.get(key).and_then(Value::as_f64))
        .collect()
}

#[test]
fn a_preemption_is_seen_for_a_whole_minute_after_it() {
    // one node of two is taken at 1:30, and its record is gone a second later
    let tracks = [track(
        "c",
        &[(0, 2, 0), (90, 1, 1), (91, 1, 0), (200, 2, 0)],
    )];
    let answer = ask(
        "Preempted Nodes,Preempted Cores",
        "Maximum",
        "PT1M",
        &tracks,
        None,
    );
    let some = |v: &[f64]| v.iter().map(|x| Some(*x)).collect::<Vec<_>>();
    assert_eq!(
        column(&answer, 0, "maximum"),
        some(&[0., 1., 1., 0., 0., 0., 0., 0., 0., 0.])
    );
    assert_eq!(
        column(&answer, 1, "maximum"),
        some(&[0., 4., 4., 0., 0., 0., 0., 0., 0., 0.])
    );
    let least = ask("Preempted Nodes", "Minimum", "PT1M", &tracks, None);
    assert_eq!(
        column(&least, 0, "minimum")[2],
        Some(1.),
        "minute 2 is whole"
    );
    assert_eq!(answer["value"][0]["name"]["value"], "Preempted Nodes");
    assert_eq!(answer["interval"], "PT1M");
    assert_eq!(answer["cost"], 10);
    assert_eq!(
        answer["namespace"],
        "Microsoft.MachineLearningServices/workspaces"
    );
    assert_eq!(
        answer["value"][0]["timeseries"][0]["data"][1]["timeStamp"],
        "2026-11-30T00:01:00.000Z"
    );
    assert_eq!(
        answer["timespan"],
        "2026-11-30T00:00:00.000Z/2026-11-30T00:10:00.000Z"
    );
}

#[test]
fn every_spelling_finds_its_metric() {
    for name in [
        "Preempted Nodes",
        "preempted nodes",
        "PREEMPTED NODE",
        "PreemptedNodes",
        "Preempted Node",
        "割り込まれたノード",
    ] {
        let answer = ask(name, "maximum", "PT1M", &[], None);
        assert_eq!(
            answer["value"][0]["name"]["value"], "Preempted Nodes",
            "{name}"
        );
    }
    assert_eq!(
        ask("割り込まれたコア", "maximum", "PT1M", &[], None)["value"][0]["name"]["value"],
        "Preempted Cores"
    );
    assert_eq!(metrics::names().len(), 13);
}

#[test]
fn aggregations_are_exact_over_the_steps() {
    let tracks = [track("c", &[(60, 2, 0), (90, 4, 0)])];
    let answer = ask(
        "Active Nodes",
        "Average,Minimum,Maximum,Total,Count",
        "PT2M",
        &tracks,
        None,
    );
    // minute 0 is unknown: the bucket 0-2 knows 60 s, half of 2 and half of 4
    assert_eq!(column(&answer, 0, "average")[0], Some(3.));
    assert_eq!(column(&answer, 0, "minimum")[0], Some(2.));
    assert_eq!(column(&answer, 0, "maximum")[0], Some(4.));
    assert_eq!(column(&answer, 0, "count")[0], Some(1.));
    assert_eq!(column(&answer, 0, "total")[1], Some(8.));
    let minutes = ask("Active Nodes", "Maximum", "PT1M", &tracks, None);
    assert_eq!(
        column(&minutes, 0, "maximum")[0],
        None,
        "nothing was known yet (N4)"
    );
    let whole = ask("Active Nodes", "Maximum", "FULL", &tracks, None);
    assert_eq!(column(&whole, 0, "maximum"), [Some(4.)]);
}

#[test]
fn clusters_are_summed_or_apart() {
    let tracks = [track("a", &[(0, 1, 0)]), track("b", &[(0, 2, 0)])];
    assert_eq!(
        column(
            &ask("Total Nodes", "Maximum", "PT1M", &tracks, None),
            0,
            "maximum"
        )[0],
        Some(3.)
    );
    let one = ask(
        "Total Nodes",
        "Maximum",
        "PT1M",
        &tracks,
        Some("ClusterName eq 'B'"),
    );
    assert_eq!(column(&one, 0, "maximum")[0], Some(2.));
    let each = ask(
        "Total Nodes",
        "Maximum",
        "PT1M",
        &tracks,
        Some("ClusterName eq '*'"),
    );
    assert_eq!(each["value"][0]["timeseries"].as_array().unwrap().len(), 2);
    assert_eq!(
        each["value"][0]["timeseries"][0]["metadatavalues"][0]["value"],
        "a"
    );
    // 3 nodes of 4 cores of 100 low-priority cores
    let quota = ask(
        "Quota Utilization Percentage",
        "Maximum",
        "PT1M",
        &tracks,
        None,
    );
    assert_eq!(column(&quota, 0, "maximum")[0], Some(12.));
}

#[test]
fn a_question_that_makes_no_sense_is_refused() {
    let good = Query {
        metrics: "Idle Nodes".into(),
        ..Query::default()
    };
    let request = Request::parse(&good, at(0)).unwrap();
    assert_eq!(request.needs(), (Time(DAY - 62 * MINUTE), at(0)));
    let says = |change: &dyn Fn(&mut Query)| {
        let mut query = good.clone();
        change(&mut query);
        Request::parse(&query, at(0)).unwrap_err()
    };
    let unknown = says(&|q| q.metrics = "Preempted Codes".into());
    assert!(unknown.message.contains("known are Active Nodes") && unknown.status == 400);
    assert_eq!(
        unknown.hint.as_deref(),
        Some("did you mean Preempted Cores")
    );
    assert!(
        says(&|q| q.metrics = " ,".into())
            .message
            .contains("no metric is named")
    );
    assert!(
        says(&|q| q.interval = Some("PT30S".into()))
            .message
            .contains("whole number of minutes")
    );
    assert!(
        says(&|q| q.aggregation = Some("p99".into()))
            .message
            .contains("known are Average")
    );
    assert!(
        says(&|q| q.timespan = Some("2026-11-30T01:00:00Z/2026-11-30T00:00:00Z".into()))
            .message
            .contains("ends before")
    );
    assert!(
        says(&|q| q.timespan = Some("P90D".into()))
            .message
            .contains("points")
    );
    assert!(
        says(&|q| q.filter = Some("NodeId eq 'x'".into()))
            .message
            .contains("known are ClusterName")
    );
}

proptest! {
    #[test]
    fn no_query_panics(metrics in "\\PC{0,20}", span in "\\PC{0,30}", interval in "(P|PT)?[0-9]{0,12}[MSDHY]?", filter in "\\PC{0,20}") {
        let query = Query { metrics, timespan: Some(span), interval: Some(interval.clone()), aggregation: None, filter: Some(filter) };
        let _ = Request::parse(&query, at(0));
        let query = Query { metrics: "Idle Nodes".into(), interval: Some(interval), ..Query::default() };
        let _ = Request::parse(&query, at(0));
    }

    /// N1 against the plain reading: at each second the highest count of those in force or younger than their whole minute.
    #[test]
    fn preempted_nodes_linger(steps in prop::collection::vec((1_u64..80, 0_u32..4), 1..12)) {
        let mut time = 0;
        let mut list = vec![(0, 0, 0)];
        for (gap, count) in steps {
            time += gap;
            if time < 590 {
                list.push((time, 0, count));
            }
        }
        let answer = ask("Preempted Nodes", "Maximum", "PT1M", &[track("c", &list)], None);
        for (minute, found) in column(&answer, 0, "maximum").into_iter().enumerate() {
            let (from, to) = (minute as u64 * 60, minute as u64 * 60 + 60);
            let held = |i: usize| {
                let (start, _, count) = list[i];
                let next = list.get(i + 1).map_or(u64::MAX, |n| n.0);
                let until = next.max((start / 60 + 2) * 60);
                if start < to && until > from { count } else { 0 }
            };
            let expected = (0..list.len()).map(held).max().unwrap();
            prop_assert_eq!(found, Some(f64::from(expected)), "minute {} of {:?}", minute, list);
        }
    }
}
