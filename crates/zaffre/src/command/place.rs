//! `zaffre datastore`, `zaffre workspace`, `zaffre metrics`, `zaffre quota`, `zaffre configure`.

use super::{Context, compute::expect, confirm};
use crate::{
    cli::{ConfigureArgs, place::*},
    client::{locate::plain_name, operation::Wait},
    command::compute::LOCATION,
    draft,
    failure::Failure,
    home::Home,
    output::{self, Columns, Output},
    shape::{self, Shape},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use wire::yaml::Kind;

const DATASTORES: Columns = &[
    ("Name", "/name"),
    ("Type", "/type"),
    ("Container", "/container_name"),
    ("Default", "/is_default"),
];
const WORKSPACES: Columns = &[
    ("Name", "/name"),
    ("Resource group", "/resourceGroup"),
    ("Location", "/location"),
    ("Description", "/description"),
];
const SAMPLES: Columns = &[
    ("Metric", "/metric"),
    ("Time", "/timestamp"),
    ("Average", "/average"),
    ("Minimum", "/minimum"),
    ("Maximum", "/maximum"),
    ("Total", "/total"),
    ("Dimensions", "/dimensions"),
];
const QUOTAS: Columns = &[
    ("Quota", "/name"),
    ("Used", "/used"),
    ("Limit", "/limit"),
    ("Left", "/left"),
];

/// Runs `zaffre datastore`.
pub async fn datastore(context: &Context, command: Datastore) -> Result<(), Failure> {
    match command {
        Datastore::Create(args) => create_datastore(context, args).await,
        Datastore::Delete(args) => {
            plain_name("datastore", &args.name)?;
            confirm(&format!("detach datastore {}", args.name), args.yes)?;
            let at = context.client.at(&format!("datastores/{}", args.name));
            context.client.delete(&at, Wait::ForEnd).await
        }
        Datastore::Show(args) => {
            plain_name("datastore", &args.name)?;
            let arm = context
                .client
                .get(&context.client.at(&format!("datastores/{}", args.name)))
                .await?;
            context
                .output
                .show(&shape::shown(Shape::Datastore, &arm), DATASTORES)
        }
        Datastore::List(args) => {
            let items = context
                .client
                .list(&context.client.at("datastores"), args.max_results)
                .await?;
            context.output.show(
                &items
                    .iter()
                    .map(|arm| shape::shown(Shape::Datastore, arm))
                    .collect(),
                DATASTORES,
            )
        }
    }
}

/// Runs `zaffre workspace`.
pub async fn workspace(context: &Context, command: Workspace) -> Result<(), Failure> {
    let client = &context.client;
    let scope = client.scope();
    match command {
        Workspace::Create(args) => create_workspace(context, args).await,
        Workspace::Delete(args) => {
            plain_name("workspace", &args.name)?;
            confirm(&format!("delete workspace {}", args.name), args.yes)?;
            let at = scope.workspace_id_of(&args.name);
            let purge = args.permanently_delete;
            client
                .delete(
                    &format!("{at}?forceToPurge={purge}"),
                    Wait::unless(args.no_wait),
                )
                .await
        }
        Workspace::Show(args) => {
            let name = args.name.as_deref().unwrap_or(&scope.workspace);
            plain_name("workspace", name)?;
            let arm = client.get(&scope.workspace_id_of(name)).await?;
            context
                .output
                .show(&shape::shown(Shape::Workspace, &arm), WORKSPACES)
        }
        Workspace::List(args) => {
            let provider = "providers/Microsoft.MachineLearningServices/workspaces";
            let at = match &context.globals.resource_group {
                Some(_) => format!("{}/{provider}", scope.group_id()),
                None => format!("/subscriptions/{}/{provider}", scope.subscription),
            };
            let items = client.list(&at, args.max_results).await?;
            context.output.show(
                &items
                    .iter()
                    .map(|arm| shape::shown(Shape::Workspace, arm))
                    .collect(),
                WORKSPACES,
            )
        }
    }
}

async fn create_workspace(context: &Context, args: WorkspaceCreate) -> Result<(), Failure> {
    let mut list = draft::sets(&args.file.set)?;
    for (name, key, value) in [
        ("--name", "name", &args.name),
        ("--description", "description", &args.description),
        ("--display-name", "display_name", &args.display_name),
        ("--location", "location", &args.location),
    ] {
        draft::flag(&mut list, name, &[key], value.as_deref());
    }
    draft::tags(&mut list, &args.tags)?;
    let found = draft::read(args.file.file.as_deref(), &list, Kind::Workspace)?;
    expect(&found.draft, Kind::Workspace)?;
    found.warn();
    let name = found.draft.name.as_deref().unwrap_or_default();
    plain_name("workspace", name)?;
    let at = context.client.scope().workspace_id_of(name);
    let client = &context.client;
    let document = client.put(&at, &found.draft.body, Wait::ForEnd).await?;
    context
        .output
        .show(&shape::shown(Shape::Workspace, &document), WORKSPACES)
}

async fn create_datastore(context: &Context, args: DatastoreCreate) -> Result<(), Failure> {
    let Some(file) = &args.file.file else {
        return Err(Failure::wrong("--file is not given").hint("zaffre datastore create -f FILE"));
    };
    let mut list = draft::sets(&args.file.set)?;
    draft::flag(&mut list, "--name", &["name"], args.name.as_deref());
    let found = draft::read(Some(file), &list, Kind::Datastore)?;
    expect(&found.draft, Kind::Datastore)?;
    found.warn();
    let name = found.draft.name.as_deref().unwrap_or_default();
    plain_name("datastore", name)?;
    let client = &context.client;
    let at = client.at(&format!("datastores/{name}"));
    let document = client.put(&at, &found.draft.body, Wait::ForEnd).await?;
    context
        .output
        .show(&shape::shown(Shape::Datastore, &document), DATASTORES)
}

/// Runs `zaffre metrics`.
pub async fn metrics(context: &Context, command: Metrics) -> Result<(), Failure> {
    let Metrics::List(args) = command;
    let resource = args
        .resource
        .clone()
        .unwrap_or_else(|| context.client.scope().workspace_id());
    let end = match &args.end_time {
        Some(text) => time(text, "--end-time")?,
        None => Timestamp::now(),
    };
    let start = match &args.start_time {
        Some(text) => time(text, "--start-time")?,
        None => {
            let back: SignedDuration = args.offset.parse().map_err(|_| {
                Failure::wrong(format!(
                    "--offset {}: a time is written 1h or 30m",
                    args.offset
                ))
            })?;
            end.checked_sub(back)
                .map_err(|error| Failure::wrong(format!("--offset {}: {error}", args.offset)))?
        }
    };
    let mut query = vec![
        ("metricnames", args.metric.join(",")),
        ("timespan", format!("{start}/{end}")),
        ("interval", args.interval.clone()),
    ];
    if !args.aggregation.is_empty() {
        query.push(("aggregation", args.aggregation.join(",")));
    }
    let mut filters: Vec<String> = args.filter.iter().cloned().collect();
    filters.extend(args.dimension.iter().map(|name| format!("{name} eq '*'")));
    if !filters.is_empty() {
        query.push(("$filter", filters.join(" and ")));
    }
    let query: Vec<String> = query
        .iter()
        .map(|(key, value)| format!("{key}={}", encode(value)))
        .collect();
    let at = format!(
        "{resource}/providers/Microsoft.Insights/metrics?{}&api-version=2023-10-01",
        query.join("&")
    );
    let answer = context.client.get(&at).await?;
    let table = context.output.query.is_none() && context.output.format == output::Format::Table;
    let shown = if table { samples(&answer) } else { answer };
    context.output.show(&shown, SAMPLES)
}

fn time(text: &str, flag: &str) -> Result<Timestamp, Failure> {
    let whole = if text.ends_with('Z') || text.contains('+') {
        text.to_owned()
    } else {
        format!("{}Z", text.replace(' ', "T"))
    };
    whole.parse().map_err(|_| {
        Failure::wrong(format!(
            "{flag} {text}: a time is written 2026-11-30T10:00:00Z"
        ))
    })
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// One row per minute that has a value above nothing; a table of zeros tells nobody anything, but one row always stands.
fn samples(answer: &Value) -> Value {
    let mut rows = vec![];
    for metric in answer["value"].as_array().into_iter().flatten() {
        let name = metric
            .pointer("/name/localizedValue")
            .or_else(|| metric.pointer("/name/value"));
        let first = rows.len();
        let mut last = None;
        for series in metric["timeseries"].as_array().into_iter().flatten() {
            let dimensions: Map<String, Value> = series["metadatavalues"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|pair| {
                    Some((
                        pair.pointer("/name/value")?.as_str()?.to_owned(),
                        pair["value"].clone(),
                    ))
                })
                .collect();
            for sample in series["data"].as_array().into_iter().flatten() {
                let mut row = json!({"metric": name, "timestamp": sample["timeStamp"], "dimensions": dimensions});
                let mut some = false;
                for key in ["average", "minimum", "maximum", "total", "count"] {
                    if let Some(number) = sample.get(key).filter(|v| !v.is_null()) {
                        some |= number.as_f64().is_some_and(|n| n != 0.0);
                        row[key] = number.clone();
                    }
                }
                if some {
                    rows.push(row);
                } else {
                    last = Some(row);
                }
            }
        }
        if rows.len() == first {
            rows.extend(last);
        }
    }
    rows.into()
}

/// Runs `zaffre quota`.
pub async fn quota(context: &Context, command: Quota) -> Result<(), Failure> {
    match command {
        Quota::Show => show_quotas(context).await,
        Quota::Update(args) => update_quotas(context, args).await,
    }
}

async fn show_quotas(context: &Context) -> Result<(), Failure> {
    let scope = context.client.scope();
    let at = format!(
        "{}/usages?resourceGroup={}&workspace={}",
        scope.location_id(LOCATION),
        scope.group,
        scope.workspace
    );
    let items = context.client.list(&at, None).await?;
    let shown = items
        .iter()
        .filter(|usage| usage["limit"].as_i64().is_some_and(|limit| limit >= 0))
        .filter(|usage| {
            let kind = usage["type"].as_str().unwrap_or_default();
            // The same numbers are told again per workspace and per cluster.
            !kind.contains("workspaces/")
        });
    let shown = shown.map(|usage| {
        let (used, limit) = (usage["currentValue"].as_i64().unwrap_or(0), usage["limit"].as_i64().unwrap_or(0));
        json!({"name": usage.pointer("/name/localizedValue").or_else(|| usage.pointer("/name/value")), "used": used, "limit": limit, "left": limit - used, "unit": usage["unit"]})
    });
    context.output.show(&shown.collect(), QUOTAS)
}

async fn update_quotas(context: &Context, args: QuotaUpdate) -> Result<(), Failure> {
    let scope = context.client.scope();
    let id = |name: &str| format!("{}/quotas/{name}", scope.workspace_id());
    let mut value = vec![];
    if let Some(cores) = args.low_priority {
        value.push(
            json!({"id": id(wire::arm::quota::LOW_PRIORITY), "limit": cores, "unit": "Count"}),
        );
    }
    if let Some(cores) = args.dedicated {
        value.push(json!({"id": id(wire::arm::quota::DEDICATED), "limit": cores, "unit": "Count"}));
    }
    for pair in &args.family {
        let parts = pair
            .split_once('=')
            .and_then(|(family, cores)| Some((family, cores.parse::<u32>().ok()?)));
        let Some((family, cores)) = parts else {
            return Err(Failure::wrong(format!(
                "--family {pair}: write FAMILY=CORES, as in standardDSv2Family=48"
            )));
        };
        plain_name("--family", family)?;
        value.push(json!({"id": id(family), "limit": cores, "unit": "Count"}));
    }
    let at = format!("{}/updateQuotas", scope.location_id(LOCATION));
    let answer = context
        .client
        .post(&at, &json!({"value": value, "location": LOCATION}), &[])
        .await?;
    // Each entry stands alone, as in Azure: what is refused keeps nothing else back.
    let results = answer["value"].as_array().map_or(&[][..], Vec::as_slice);
    let refused: Vec<String> = results
        .iter()
        .filter_map(|result| {
            let status = result["status"].as_str().filter(|s| *s != "Success")?;
            let name = shape::short(&result["id"]);
            Some(format!(
                "quota {name} {}: {}",
                result["limit"],
                explain(status)
            ))
        })
        .collect();
    if !refused.is_empty() {
        let failure = Failure::wrong(refused.join("; "));
        return Err(if refused.len() < results.len() {
            failure.hint("the other limits are set: zaffre quota show")
        } else {
            failure
        });
    }
    show_quotas(context).await
}

/// Azure's result codes in words.
fn explain(status: &str) -> String {
    match status {
        "InvalidQuotaBelowClusterMinimum" => "the clusters' min_instances need more cores".into(),
        "InvalidQuotaExceedsSubscriptionLimit" => {
            "it is above the dedicated total; raise that with --dedicated first".into()
        }
        "InvalidVMFamilyName" => {
            "there is no such family; `zaffre compute list-sizes` shows them".into()
        }
        other => other.to_owned(),
    }
}

/// Runs `zaffre configure`.
pub fn configure(output: &Output, args: &ConfigureArgs) -> Result<(), Failure> {
    let home = Home::find()?;
    let mut defaults = home.defaults()?;
    for pair in &args.defaults {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure::wrong(format!(
                "--defaults {pair:?}: write KEY=VALUE"
            )));
        };
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        if let Some(value) = &value {
            plain_name(key, value)?;
        }
        match key {
            "group" => defaults.group = value,
            "workspace" => defaults.workspace = value,
            "subscription" => defaults.subscription = value,
            other => {
                return Err(Failure::wrong(format!(
                    "--defaults {other}: the defaults are group, workspace and subscription"
                )));
            }
        }
    }
    if !args.defaults.is_empty() {
        home.set_defaults(&defaults)?;
    }
    if args.list_defaults {
        return output.show(
            &serde_json::to_value(&defaults).expect("plain data is JSON"),
            &[],
        );
    }
    Ok(())
}
