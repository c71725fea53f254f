//! Workspace metrics in Azure Monitor's REST shape (§2.6).
//!
//! What is known of a cluster is a step function: a sample holds until the next one. From it every answer is computed.
//!
//! N1 a preemption is seen: preempted nodes count for at least one whole minute after the event, however soon the record of
//!    the node goes;
//! N2 `Preempted Cores` = nodes × vCPUs, and so for the other five;
//! N3 `Maximum`, `Minimum` and `Average` are exact over the step function, not over what a sampler happened to see;
//!    `Total` and `Count` are over one-minute samples, as Azure's are;
//! N4 time in which nothing was known yet has no value, time that has not come has no entry.

use crate::{
    arm::{
        Invalid,
        time::{duration, parse_duration, parse_stamp, stamp},
    },
    names::{PROVIDER, nearest, shown, workspace_id},
};
use model::{ClusterSpec, Millis, Name, Quotas, Tier, Time, Workspace, view::NodeCounts};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Points of one answer: a week of minutes.
const MAX_POINTS: u64 = 10_080;
/// Metrics of one request: Azure's limit is 20.
const MAX_METRICS: usize = 20;
/// Span when none is asked for: Azure's is one hour.
const DEFAULT_SPAN: Millis = Millis::secs(3_600);
const MINUTE: u64 = 60_000;

/// One cluster's life.
#[derive(Clone, Debug)]
pub struct Track {
    /// Its name.
    pub cluster: Name,
    /// As declared (the last declaration, when it is gone).
    pub spec: ClusterSpec,
    /// Samples, ascending in time.
    pub steps: Vec<(Time, NodeCounts)>,
}

/// A node state that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    Idle,
    Leaving,
    Preempted,
    Total,
    Unusable,
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Nodes(State),
    Cores(State),
    Quota,
}

const STATES: [(&str, State); 6] = [
    ("Active", State::Active),
    ("Idle", State::Idle),
    ("Leaving", State::Leaving),
    ("Preempted", State::Preempted),
    ("Total", State::Total),
    ("Unusable", State::Unusable),
];
const QUOTA: &str = "Quota Utilization Percentage";
/// How the seed's article calls the two.
const SEED_NODES: &str = "割り込まれたノード";
const SEED_CORES: &str = "割り込まれたコア";

impl Metric {
    fn name(self) -> String {
        let word = |state| {
            let found = STATES.iter().find(|(_, s)| *s == state);
            found.map_or("Total", |(word, _)| *word)
        };
        match self {
            Metric::Nodes(state) => format!("{} Nodes", word(state)),
            Metric::Cores(state) => format!("{} Cores", word(state)),
            Metric::Quota => QUOTA.to_owned(),
        }
    }
    fn all() -> Vec<Metric> {
        let nodes = STATES.iter().map(|(_, s)| Metric::Nodes(*s));
        let cores = STATES.iter().map(|(_, s)| Metric::Cores(*s));
        nodes.chain(cores).chain([Metric::Quota]).collect()
    }
    /// Finds a metric: case-blind, with or without the space, singular or plural, and in the seed's words.
    fn find(name: &str) -> Option<Metric> {
        let plain = |text: &str| {
            let bare: String = text
                .chars()
                .filter(|c| !c.is_whitespace() && *c != '_')
                .flat_map(char::to_lowercase)
                .collect();
            bare.trim_end_matches('s').to_owned()
        };
        match name.trim() {
            SEED_NODES => return Some(Metric::Nodes(State::Preempted)),
            SEED_CORES => return Some(Metric::Cores(State::Preempted)),
            _ => {}
        }
        let wanted = plain(name);
        Metric::all()
            .into_iter()
            .find(|m| plain(&m.name()) == wanted)
    }
    fn describes(self) -> &'static str {
        match self {
            Metric::Nodes(State::Active) => "nodes that run a job",
            Metric::Nodes(State::Idle) => "nodes without a job that can take one",
            Metric::Nodes(State::Leaving) => "nodes on their way out",
            Metric::Nodes(State::Preempted) => "low-priority nodes taken away",
            Metric::Nodes(State::Total) => "nodes in any state",
            Metric::Nodes(State::Unusable) => "nodes that do not work",
            Metric::Cores(_) => "vCPUs of such nodes",
            Metric::Quota => "cores in use of the quota that is used most, in percent",
        }
    }
}

/// The names of all metrics.
pub fn names() -> Vec<String> {
    Metric::all().into_iter().map(Metric::name).collect()
}

/// `GET providers/Microsoft.Insights/metricDefinitions`.
pub fn definitions(workspace: &Workspace) -> Value {
    let id = workspace_id(workspace);
    let value: Vec<Value> = Metric::all()
        .into_iter()
        .map(|metric| {
            let name = metric.name();
            json!({
                "id": format!("{id}/providers/microsoft.insights/metricdefinitions/{name}"),
                "resourceId": id,
                "namespace": format!("{PROVIDER}/workspaces"),
                "name": {"value": name, "localizedValue": name},
                "displayDescription": metric.describes(),
                "isDimensionRequired": false,
                "unit": "Count",
                "primaryAggregationType": "Average",
                "supportedAggregationTypes": ["Average", "Maximum", "Minimum", "Total", "Count"],
                "metricAvailabilities": [{"timeGrain": "PT1M", "retention": "P93D"}],
                "dimensions": [{"value": "ClusterName", "localizedValue": "ClusterName"}],
            })
        })
        .collect();
    json!({ "value": value })
}

/// How the values of a bucket become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Aggregation {
    Average,
    Maximum,
    Minimum,
    Total,
    Count,
}
const AGGREGATIONS: [(&str, Aggregation); 5] = [
    ("average", Aggregation::Average),
    ("maximum", Aggregation::Maximum),
    ("minimum", Aggregation::Minimum),
    ("total", Aggregation::Total),
    ("count", Aggregation::Count),
];

/// The query of a request, as its parameters stand in the address, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// `metricnames`, separated by commas.
    pub metrics: String,
    /// `timespan`, `START/END` or a duration that ends now; one hour when absent.
    pub timespan: Option<String>,
    /// `interval`, `PT1M` when absent; `FULL` for one value over all.
    pub interval: Option<String>,
    /// `aggregation`, separated by commas; `Average` when absent.
    pub aggregation: Option<String>,
    /// `$filter`: `ClusterName eq 'x'`, or `'*'` for one series per cluster.
    pub filter: Option<String>,
}

/// A request that makes sense.
#[derive(Clone, Debug)]
pub struct Request {
    metrics: Vec<Metric>,
    from: Time,
    to: Time,
    interval: Millis,
    aggregations: Vec<Aggregation>,
    filter: Filter,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Filter {
    None,
    Each,
    One(Name),
}

impl Request {
    /// Reads a query; `now` ends a span that has no end.
    pub fn parse(query: &Query, now: Time) -> Result<Request, Invalid> {
        let (from, to) = span(query.timespan.as_deref(), now)?;
        let interval = match query.interval.as_deref() {
            None | Some("") => Millis(MINUTE),
            Some(text) if text.eq_ignore_ascii_case("FULL") => to.since(from),
            Some(text) => interval(text)?,
        };
        let points = to.since(from).0.div_ceil(interval.0.max(1));
        if points > MAX_POINTS {
            return Err(Invalid::validation(
                "interval",
                format!(
                    "timespan and interval make {points} points, allowed are {MAX_POINTS}: choose a longer interval"
                ),
            ));
        }
        Ok(Request {
            metrics: metrics(&query.metrics)?,
            from: Time(from.0 - from.0 % interval.0.clamp(1, 86_400_000)),
            to,
            interval,
            aggregations: aggregations(query.aggregation.as_deref())?,
            filter: filter(query.filter.as_deref())?,
        })
    }
    /// The span whose samples are needed: from one minute before its start (N1).
    pub fn needs(&self) -> (Time, Time) {
        (Time(self.from.0.saturating_sub(2 * MINUTE)), self.to)
    }
}

fn metrics(names: &str) -> Result<Vec<Metric>, Invalid> {
    let known = self::names;
    let mut out = Vec::new();
    for name in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        let Some(metric) = Metric::find(name) else {
            let all = known();
            let refusal = Invalid::validation(
                "metricnames",
                format!(
                    "metric `{}` is not known, known are {}",
                    shown(name),
                    all.join(", ")
                ),
            );
            return Err(match nearest(name, all.iter().map(String::as_str)) {
                Some(near) => refusal.hint(format!("did you mean {near}")),
                None => refusal,
            });
        };
        if !out.contains(&metric) {
            out.push(metric);
        }
    }
    match out.len() {
        0 => Err(Invalid::validation(
            "metricnames",
            format!("no metric is named, known are {}", known().join(", ")),
        )),
        n if n > MAX_METRICS => Err(Invalid::validation(
            "metricnames",
            format!("{n} metrics are named, allowed are {MAX_METRICS}"),
        )),
        _ => Ok(out),
    }
}

fn span(text: Option<&str>, now: Time) -> Result<(Time, Time), Invalid> {
    let refuse = |rule: &str| {
        Invalid::validation(
            "timespan",
            format!(
                "timespan `{}` {rule}, expected START/END, such as 2026-11-30T00:00:00Z/2026-11-30T01:00:00Z",
                shown(text.unwrap_or_default())
            ),
        )
    };
    let back = |length: Millis| Time(now.0.saturating_sub(length.0));
    let Some(text) = text.filter(|t| !t.is_empty()) else {
        return Ok((back(DEFAULT_SPAN), now));
    };
    let Some((start, end)) = text.split_once('/') else {
        let length =
            parse_duration(text).ok_or_else(|| refuse("is neither a span nor a duration"))?;
        return if length.0 == 0 {
            Err(refuse("is empty"))
        } else {
            Ok((back(length), now))
        };
    };
    let (from, to) = match (parse_stamp(start), parse_stamp(end)) {
        (Some(from), Some(to)) => (from, to),
        (Some(from), None) => {
            let length = parse_duration(end).ok_or_else(|| refuse("has no END"))?;
            (from, from + length)
        }
        (None, Some(to)) => {
            let length = parse_duration(start).ok_or_else(|| refuse("has no START"))?;
            (Time(to.0.saturating_sub(length.0)), to)
        }
        (None, None) => return Err(refuse("has no timestamps")),
    };
    if from >= to {
        return Err(refuse("ends before it starts"));
    }
    Ok((from, to))
}

fn interval(text: &str) -> Result<Millis, Invalid> {
    let length = parse_duration(text).filter(|l| l.0 >= MINUTE && l.0 % MINUTE == 0);
    length.ok_or_else(|| {
        Invalid::validation(
            "interval",
            format!(
                "interval `{}` is not a whole number of minutes, such as PT1M, PT5M, PT1H or P1D",
                shown(text)
            ),
        )
    })
}

fn aggregations(text: Option<&str>) -> Result<Vec<Aggregation>, Invalid> {
    let mut out = Vec::new();
    for word in text.unwrap_or_default().split(',').map(str::trim) {
        if word.is_empty() {
            continue;
        }
        let found = AGGREGATIONS
            .iter()
            .find(|(w, _)| w.eq_ignore_ascii_case(word));
        let Some((_, aggregation)) = found else {
            return Err(Invalid::validation(
                "aggregation",
                format!(
                    "aggregation `{}` is not known, known are Average, Maximum, Minimum, Total, Count",
                    shown(word)
                ),
            ));
        };
        if !out.contains(aggregation) {
            out.push(*aggregation);
        }
    }
    if out.is_empty() {
        out.push(Aggregation::Average);
    }
    Ok(out)
}

fn filter(text: Option<&str>) -> Result<Filter, Invalid> {
    let Some(text) = text.map(str::trim).filter(|t| !t.is_empty()) else {
        return Ok(Filter::None);
    };
    let parts: Vec<&str> = text.splitn(3, ' ').map(str::trim).collect();
    let value = match parts.as_slice() {
        [name, eq, value]
            if name.eq_ignore_ascii_case("ClusterName") && eq.eq_ignore_ascii_case("eq") =>
        {
            value.strip_prefix('\'').and_then(|v| v.strip_suffix('\''))
        }
        _ => None,
    };
    match value {
        Some("*") => Ok(Filter::Each),
        Some(name) => Ok(Filter::One(name.into())),
        None => Err(Invalid::validation(
            "$filter",
            format!(
                "filter `{}` is not understood, known are ClusterName eq 'NAME' and ClusterName eq '*'",
                shown(text)
            ),
        )),
    }
}

/// The answer of `GET {workspace}/providers/Microsoft.Insights/metrics`.
pub fn answer(
    workspace: &Workspace,
    location: &str,
    request: &Request,
    tracks: &[Track],
    quotas: &Quotas,
    now: Time,
) -> Value {
    let id = workspace_id(workspace);
    let value: Vec<Value> = request
        .metrics
        .iter()
        .map(|metric| {
            let name = metric.name();
            json!({
                "id": format!("{id}/providers/Microsoft.Insights/metrics/{name}"),
                "type": "Microsoft.Insights/metrics",
                "name": {"value": name, "localizedValue": name},
                "displayDescription": metric.describes(),
                "unit": "Count",
                "timeseries": timeseries(*metric, request, tracks, quotas, now),
                "errorCode": "Success",
            })
        })
        .collect();
    json!({
        "cost": request.to.since(request.from).0 / MINUTE,
        "timespan": format!("{}/{}", stamp(request.from), stamp(request.to)),
        "interval": duration(request.interval),
        "value": value,
        "namespace": format!("{PROVIDER}/workspaces"),
        "resourceregion": location,
    })
}

fn timeseries(
    metric: Metric,
    request: &Request,
    tracks: &[Track],
    quotas: &Quotas,
    now: Time,
) -> Vec<Value> {
    let series = |tracks: &[&Track]| data(&line(metric, tracks, quotas), request, now);
    match &request.filter {
        Filter::None => {
            let all: Vec<&Track> = tracks.iter().collect();
            vec![json!({"metadatavalues": [], "data": series(&all)})]
        }
        Filter::Each => {
            let mut by_name: BTreeMap<&Name, Vec<&Track>> = BTreeMap::new();
            for track in tracks {
                by_name.entry(&track.cluster).or_default().push(track);
            }
            by_name
                .iter()
                .map(|(name, own)| labelled(name, series(own)))
                .collect()
        }
        Filter::One(name) => {
            let own: Vec<&Track> = tracks.iter().filter(|t| t.cluster == *name).collect();
            vec![labelled(name, series(&own))]
        }
    }
}

fn labelled(name: &Name, data: Vec<Value>) -> Value {
    json!({
        "metadatavalues": [{
            "name": {"value": "clustername", "localizedValue": "clustername"},
            "value": name.as_str(),
        }],
        "data": data,
    })
}

/// A step function: from each time on, the value; ascending. Values are thousandths, so that percentages stay whole.
type Line = Vec<(Time, u64)>;
const SCALE: u64 = 1_000;

/// One metric over some clusters: the sum of their step functions.
fn line(metric: Metric, tracks: &[&Track], quotas: &Quotas) -> Line {
    match metric {
        Metric::Nodes(state) => sum(tracks.iter().map(|t| count(t, state, |_| SCALE))),
        Metric::Cores(state) => {
            let cores = |n: &NodeCounts| u64::from(n.cores) * SCALE;
            sum(tracks.iter().map(|t| count(t, state, cores)))
        }
        Metric::Quota => utilization(tracks, quotas),
    }
}

fn count(track: &Track, state: State, unit: impl Fn(&NodeCounts) -> u64) -> Line {
    let of = |pick: &dyn Fn(&NodeCounts) -> u32| -> Line {
        let steps = track.steps.iter();
        steps
            .map(|(at, n)| (*at, u64::from(pick(n)) * unit(n)))
            .collect()
    };
    match state {
        State::Active => of(&|n| n.running),
        State::Idle => of(&|n| n.idle),
        State::Leaving => of(&|n| n.leaving),
        State::Unusable => of(&|n| n.unusable),
        State::Preempted => linger(&of(&|n| n.preempted)),
        // §2.6: the sum including preempted; a node on its way is one too
        State::Total => sum([
            of(&|n| n.preparing + n.idle + n.running + n.leaving + n.unusable),
            linger(&of(&|n| n.preempted)),
        ]
        .into_iter()),
    }
}

/// N1: a value is not left before the end of the whole minute that begins after it was reached.
fn linger(line: &Line) -> Line {
    let whole = |at: Time| Time((at.0 / MINUTE + 2) * MINUTE);
    // every value holds at least until then: the result is the highest of those in force
    let mut edges: Vec<Time> = line.iter().map(|(at, _)| *at).collect();
    edges.extend(line.iter().map(|(at, _)| whole(*at)));
    edges.sort_unstable();
    edges.dedup();
    let mut out = Line::new();
    let mut first = 0;
    for edge in edges {
        // samples whose minute is over and that another has followed do not matter any more
        while line.get(first + 1).is_some_and(|(next, _)| *next <= edge)
            && whole(line[first].0) <= edge
        {
            first += 1;
        }
        let held = line[first..]
            .iter()
            .take_while(|(at, _)| *at <= edge)
            .enumerate()
            .filter(|(i, (at, _))| {
                let last = line.get(first + i + 1).is_none_or(|(next, _)| *next > edge);
                last || whole(*at) > edge
            })
            .map(|(_, (_, value))| *value)
            .max();
        push(&mut out, edge, held.unwrap_or(0));
    }
    out
}

fn push(line: &mut Line, at: Time, value: u64) {
    if line.last().is_none_or(|(_, before)| *before != value) {
        line.push((at, value));
    }
}

/// The sum of step functions; before its first sample a function is 0.
fn sum(lines: impl Iterator<Item = Line>) -> Line {
    let mut changes: BTreeMap<Time, (u64, u64)> = BTreeMap::new();
    for line in lines {
        let mut before = 0;
        for (at, value) in line {
            let change = changes.entry(at).or_default();
            change.0 += value;
            change.1 += before;
            before = value;
        }
    }
    let (mut out, mut now) = (Line::new(), 0_u64);
    for (at, (plus, minus)) in changes {
        now = (now + plus).saturating_sub(minus);
        push(&mut out, at, now);
    }
    out
}

/// Cores in use in percent of the quota that is used most. Low priority is one quota, each dedicated family another.
fn utilization(tracks: &[&Track], quotas: &Quotas) -> Line {
    #[derive(Default)]
    struct Group<'t> {
        tracks: Vec<&'t Track>,
        limit: u32,
    }
    let mut groups: BTreeMap<(Tier, Option<Name>), Group<'_>> = BTreeMap::new();
    for track in tracks {
        let size = &track.spec.size;
        let (family, limit) = match track.spec.tier {
            Tier::LowPriority => (None, quotas.low_priority),
            Tier::Dedicated => (Some(size.family.clone()), quotas.family_limit(size)),
        };
        let group = groups.entry((track.spec.tier, family)).or_default();
        group.tracks.push(track);
        group.limit = limit;
    }
    let lines: Vec<Line> = groups
        .values()
        .map(|group| {
            let exists = |n: &NodeCounts| n.preparing + n.idle + n.running + n.leaving + n.unusable;
            let cores = sum(group.tracks.iter().map(|t| {
                let steps = t.steps.iter();
                steps
                    .map(|(at, n)| (*at, u64::from(exists(n)) * u64::from(n.cores) * SCALE))
                    .collect()
            }));
            let limit = u64::from(group.limit).max(1);
            cores
                .into_iter()
                .map(|(at, c)| (at, c * 100 / limit))
                .collect()
        })
        .collect();
    highest(&lines)
}

fn highest(lines: &[Line]) -> Line {
    let mut edges: Vec<Time> = lines.iter().flatten().map(|(at, _)| *at).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut out = Line::new();
    for edge in edges {
        let value = lines.iter().filter_map(|l| at(l, edge)).max();
        push(&mut out, edge, value.unwrap_or(0));
    }
    out
}

fn at(line: &Line, time: Time) -> Option<u64> {
    let after = line.partition_point(|(at, _)| *at <= time);
    after.checked_sub(1).map(|i| line[i].1)
}

/// The buckets of a request (N3, N4).
fn data(line: &Line, request: &Request, now: Time) -> Vec<Value> {
    let mut out = Vec::new();
    let end = Time(request.to.0.min(now.0));
    let mut from = request.from;
    while from < end {
        let to = from + request.interval;
        let mut point = Map::new();
        point.insert("timeStamp".into(), json!(stamp(from)));
        if let Some(bucket) = Bucket::over(line, from, Time(to.0.min(now.0))) {
            for aggregation in &request.aggregations {
                let (key, value) = bucket.value(*aggregation);
                point.insert(key.into(), json!(value));
            }
        }
        out.push(Value::Object(point));
        from = to;
    }
    out
}

struct Bucket {
    most: u64,
    least: u64,
    /// Value × milliseconds.
    area: u128,
    length: u64,
}

impl Bucket {
    /// What is known of `from..to`; `None` when nothing is.
    fn over(line: &Line, from: Time, to: Time) -> Option<Bucket> {
        let first = line.partition_point(|(at, _)| *at <= from);
        let mut bucket: Option<Bucket> = None;
        for i in first.saturating_sub(1)..line.len() {
            let (start, value) = line[i];
            let start = start.max(from);
            let stop = line.get(i + 1).map_or(to, |(next, _)| *next).min(to);
            if start >= to {
                break;
            }
            if stop <= start {
                continue;
            }
            let length = stop.since(start).0;
            let b = bucket.get_or_insert(Bucket {
                most: value,
                least: value,
                area: 0,
                length: 0,
            });
            b.most = b.most.max(value);
            b.least = b.least.min(value);
            b.area += u128::from(value) * u128::from(length);
            b.length += length;
        }
        bucket
    }
    fn value(&self, aggregation: Aggregation) -> (&'static str, f64) {
        let scale = SCALE as f64;
        let average = self.area as f64 / self.length as f64 / scale;
        let minutes = self.length.div_ceil(MINUTE) as f64;
        match aggregation {
            Aggregation::Average => ("average", average),
            Aggregation::Maximum => ("maximum", self.most as f64 / scale),
            Aggregation::Minimum => ("minimum", self.least as f64 / scale),
            Aggregation::Total => ("total", average * minutes),
            Aggregation::Count => ("count", minutes),
        }
    }
}
