//! `zaffre compute`.

use super::{Context, attach, changes, confirm};
use crate::{
    cli::{DeleteArgs, compute::*},
    client::{locate::plain_name, operation::Wait},
    draft::{self, flag},
    failure::Failure,
    output::{self, Columns},
    shape::{self, Shape},
};
use serde_json::{Value, json};
use wire::yaml::{Kind, Override};

/// Location of everything that this server runs.
pub const LOCATION: &str = "local";

const CLUSTERS: Columns = &[
    ("Name", "/name"),
    ("Type", "/type"),
    ("Size", "/size"),
    ("Tier", "/tier"),
    ("Min", "/min_instances"),
    ("Max", "/max_instances"),
    ("Nodes", "/current_node_count"),
    ("State", "/provisioning_state"),
    ("Allocation", "/allocation_state"),
];
const NODES: Columns = &[
    ("Node", "/node_id"),
    ("State", "/node_state"),
    ("Job", "/run_id"),
    ("Address", "/private_ip_address"),
    ("Port", "/port"),
];
const SIZES: Columns = &[
    ("Name", "/name"),
    ("Family", "/family"),
    ("vCPUs", "/v_cpus"),
    ("Memory GB", "/memory_gb"),
    ("GPUs", "/gpus"),
    ("Low priority", "/low_priority_capable"),
];
const TAKEN: Columns = &[("Taken away", "/node"), ("Cluster", "/cluster")];
const USAGES: Columns = &[
    ("Name", "/name/value"),
    ("Used", "/current_value"),
    ("Limit", "/limit"),
];

/// Runs a command.
pub async fn run(context: &Context, command: Compute) -> Result<(), Failure> {
    match command {
        Compute::Create(args) => create(context, *args).await,
        Compute::Start(args) => power(context, "start", args).await,
        Compute::Stop(args) => power(context, "stop", args).await,
        Compute::Restart(args) => power(context, "restart", args).await,
        Compute::Update(args) => update(context, args).await,
        Compute::Show(args) => show(context, &args.name).await,
        Compute::List(args) => list(context, args).await,
        Compute::Attach(args) => attach::attach(context, *args).await,
        Compute::Detach(args) => attach::detach(context, args).await,
        Compute::Delete(args) => delete(context, args).await,
        Compute::ListNodes(args) => nodes(context, &args.name).await,
        Compute::ListSizes(args) => sizes(context, args).await,
        Compute::ListUsage(args) => usage(context, args.location.as_deref()).await,
        Compute::Preempt(args) => preempt(context, args).await,
    }
}

pub(super) fn at(context: &Context, name: &str) -> Result<String, Failure> {
    plain_name("compute", name)?;
    Ok(context.client.at(&format!("computes/{name}")))
}

fn overrides(args: &Create) -> Result<Vec<Override>, Failure> {
    let mut list = draft::sets(&args.file.set)?;
    for (name, keys, value) in [
        ("--name", &["name"][..], &args.name),
        ("--type", &["type"], &args.r#type),
        ("--size", &["size"], &args.size),
        ("--tier", &["tier"], &args.tier),
        ("--min-instances", &["min_instances"], &args.min_instances),
        ("--max-instances", &["max_instances"], &args.max_instances),
        (
            "--idle-time-before-scale-down",
            &["idle_time_before_scale_down"],
            &args.idle_time_before_scale_down,
        ),
        ("--description", &["description"], &args.description),
        ("--location", &["location"], &args.location),
        (
            "--identity-type",
            &["identity", "type"],
            &args.identity_type,
        ),
        (
            "--admin-username",
            &["ssh_settings", "admin_username"],
            &args.admin_username,
        ),
        (
            "--admin-password",
            &["ssh_settings", "admin_password"],
            &args.admin_password,
        ),
        (
            "--ssh-key-value",
            &["ssh_settings", "ssh_key_value"],
            &args.ssh_key_value,
        ),
        (
            "--ssh-public-access-enabled",
            &["ssh_public_access_enabled"],
            &args.ssh_public_access_enabled,
        ),
        (
            "--enable-node-public-ip",
            &["enable_node_public_ip"],
            &args.enable_node_public_ip,
        ),
        (
            "--vnet-name",
            &["network_settings", "vnet_name"],
            &args.vnet_name,
        ),
        ("--subnet", &["network_settings", "subnet"], &args.subnet),
        (
            "--user-object-id",
            &["create_on_behalf_of", "user_object_id"],
            &args.user_object_id,
        ),
        (
            "--user-tenant-id",
            &["create_on_behalf_of", "user_tenant_id"],
            &args.user_tenant_id,
        ),
    ] {
        flag(&mut list, name, keys, value.as_deref());
    }
    identities(&mut list, args.user_assigned_identities.as_deref())?;
    draft::tags(&mut list, &args.tags)?;
    Ok(list)
}

pub(super) fn identities(list: &mut Vec<Override>, ids: Option<&str>) -> Result<(), Failure> {
    for (index, id) in ids.into_iter().flat_map(|ids| ids.split(',')).enumerate() {
        let set = format!(
            "identity.user_assigned_identities[{index}].resource_id={}",
            Value::from(id.trim())
        );
        list.extend(draft::sets(&[set])?);
    }
    Ok(())
}

async fn create(context: &Context, args: Create) -> Result<(), Failure> {
    if args.file.file.is_none() && args.name.is_none() {
        return Err(Failure::wrong("neither --file nor --name is given")
            .hint("zaffre compute create -f FILE"));
    }
    let mut found = draft::read(
        args.file.file.as_deref(),
        &overrides(&args)?,
        Kind::AmlCompute,
    )?;
    if found.draft.kind != Kind::ComputeInstance {
        expect(&found.draft, Kind::AmlCompute)?;
    }
    found.warn();
    found.settle(&context.client).await?;
    put(context, &found.draft, Wait::unless(args.no_wait)).await
}

/// Starts, stops or restarts an instance.
async fn power(context: &Context, what: &str, args: Power) -> Result<(), Failure> {
    let at = format!("{}/{what}", at(context, &args.name)?);
    let client = &context.client;
    client
        .act(&at, &json!({}), Wait::unless(args.no_wait))
        .await
}

/// A file of another kind is named, with the command that takes it.
pub fn expect(draft: &wire::yaml::Draft, kind: Kind) -> Result<(), Failure> {
    if draft.kind == kind {
        return Ok(());
    }
    Err(Failure::wrong(format!(
        "the file is {}, not {}",
        draft.kind.one(),
        kind.one()
    ))
    .hint(format!("zaffre {} -f FILE", draft.kind.command())))
}

pub(super) async fn put(
    context: &Context,
    draft: &wire::yaml::Draft,
    wait: Wait,
) -> Result<(), Failure> {
    let name = draft.name.as_deref().ok_or_else(|| {
        Failure::wrong("the compute has no name").hint("add `name:` to the file, or --name")
    })?;
    let document = context
        .client
        .put(&at(context, name)?, &draft.body, wait)
        .await?;
    context
        .output
        .show(&shape::shown(Shape::Compute, &document), CLUSTERS)
}

async fn update(context: &Context, args: Update) -> Result<(), Failure> {
    let arm = context.client.get(&at(context, &args.name)?).await?;
    let mut document = shape::editable(Shape::Compute, &arm);
    let mut list = changes(&mut document, &args.change)?;
    for (name, key, value) in [
        (
            "--min-instances",
            &["min_instances"][..],
            &args.min_instances,
        ),
        ("--max-instances", &["max_instances"], &args.max_instances),
        (
            "--idle-time-before-scale-down",
            &["idle_time_before_scale_down"],
            &args.idle_time_before_scale_down,
        ),
        (
            "--identity-type",
            &["identity", "type"],
            &args.identity_type,
        ),
    ] {
        flag(&mut list, name, key, value.as_deref());
    }
    identities(&mut list, args.user_assigned_identities.as_deref())?;
    draft::tags(&mut list, &args.tags)?;
    let mut found = draft::change(&document, &list, Kind::AmlCompute)?;
    if found.draft.name.as_deref() != Some(&args.name) {
        return Err(Failure::wrong(format!(
            "compute {} keeps its name",
            args.name
        )));
    }
    found.settle(&context.client).await?;
    put(context, &found.draft, Wait::unless(args.no_wait)).await
}

async fn show(context: &Context, name: &str) -> Result<(), Failure> {
    let arm = context.client.get(&at(context, name)?).await?;
    context
        .output
        .show(&shape::shown(Shape::Compute, &arm), CLUSTERS)
}

async fn list(context: &Context, args: List) -> Result<(), Failure> {
    let items = context
        .client
        .list(&context.client.at("computes"), None)
        .await?;
    let wanted = args.r#type.as_deref().map(|kind| kind.replace('_', ""));
    let shown = items
        .iter()
        .map(|arm| shape::shown(Shape::Compute, arm))
        .filter(|item| {
            wanted.as_deref().is_none_or(|kind| {
                item["type"]
                    .as_str()
                    .is_some_and(|t| t.eq_ignore_ascii_case(kind))
            })
        })
        .take(args.max_results.unwrap_or(usize::MAX));
    context.output.show(&shown.collect(), CLUSTERS)
}

async fn delete(context: &Context, args: DeleteArgs) -> Result<(), Failure> {
    let at = at(context, &args.name)?;
    confirm(&format!("delete compute {}", args.name), args.yes)?;
    context
        .client
        .delete(
            &format!("{at}?underlyingResourceAction=Delete"),
            Wait::unless(args.no_wait),
        )
        .await
}

async fn nodes(context: &Context, name: &str) -> Result<(), Failure> {
    let shown = list_nodes(&context.client, &at(context, name)?).await?;
    context.output.show(&shown.into(), NODES)
}

/// The nodes of the cluster at `at`.
pub async fn list_nodes(client: &crate::client::Client, at: &str) -> Result<Vec<Value>, Failure> {
    let mut nodes = vec![];
    let mut next = Some(format!("{at}/listNodes"));
    while let Some(page) = next.take() {
        let answer = client.post(&page, &json!({}), &[]).await?;
        nodes.extend(answer["nodes"].as_array().cloned().unwrap_or_default());
        next = answer["nextLink"]
            .as_str()
            .filter(|link| !link.is_empty())
            .map(str::to_owned);
    }
    Ok(nodes.iter().map(respell).collect())
}

fn respell(arm: &Value) -> Value {
    let fields = arm.as_object().cloned().unwrap_or_default();
    Value::Object(
        fields
            .into_iter()
            .map(|(key, value)| (shape::snake(&key), value))
            .collect(),
    )
}

async fn sizes(context: &Context, args: Sizes) -> Result<(), Failure> {
    let at = format!(
        "{}/vmSizes",
        context
            .client
            .scope()
            .location_id(args.location.as_deref().unwrap_or(LOCATION))
    );
    let answer = context.client.get(&at).await?;
    let wanted = match args
        .r#type
        .as_deref()
        .map(|kind| kind.to_ascii_lowercase().replace('_', ""))
    {
        None => None,
        Some(kind) if kind == "amlcompute" || kind == "computeinstance" => Some(kind),
        Some(other) => {
            return Err(Failure::wrong(format!(
                "--type {other}: sizes are of amlcompute or computeinstance"
            )));
        }
    };
    let items = answer["value"]
        .as_array()
        .or_else(|| answer["amlCompute"].as_array())
        .cloned()
        .unwrap_or_default();
    let shown = items.iter().filter(|size| {
        wanted.as_deref().is_none_or(|kind| {
            size["supportedComputeTypes"]
                .as_array()
                .is_none_or(|kinds| {
                    kinds
                        .iter()
                        .any(|k| k.as_str().is_some_and(|k| k.eq_ignore_ascii_case(kind)))
                })
        })
    });
    context.output.show(&shown.map(respell).collect(), SIZES)
}

async fn usage(context: &Context, location: Option<&str>) -> Result<(), Failure> {
    let at = format!(
        "{}/usages",
        context
            .client
            .scope()
            .location_id(location.unwrap_or(LOCATION))
    );
    let items = context.client.list(&at, None).await?;
    context
        .output
        .show(&items.iter().map(respell).collect(), USAGES)
}

async fn preempt(context: &Context, args: Preempt) -> Result<(), Failure> {
    let name = args.cluster.or(args.name).unwrap_or_default();
    let nodes = match args.nodes.as_str() {
        "all" => Value::from("all"),
        text => match text.parse::<u32>() {
            Ok(count) if count > 0 => count.into(),
            _ => {
                return Err(Failure::wrong(format!(
                    "--nodes {text}: a number of nodes, or all"
                )));
            }
        },
    };
    let mut body = json!({"nodes": nodes, "notice": iso(&args.notice, "--notice")?});
    if let Some(hold) = &args.hold_capacity {
        body["holdCapacity"] = iso(hold, "--hold-capacity")?.into();
    }
    let answer = context
        .client
        .post_once(&format!("{}/preempt", at(context, &name)?), &body)
        .await?;
    let nodes = answer["nodes"].as_array().cloned().unwrap_or_default();
    let taken = nodes
        .iter()
        .map(|node| json!({"node": node, "cluster": name}));
    context.output.show(&taken.collect(), TAKEN)?;
    if nodes.is_empty() && !context.globals.only_show_errors {
        output::say(&format!("cluster {name} has no node to take away"));
    }
    Ok(())
}

/// `30s`, `10m`, `1h`, `PT30S` or a number of seconds, as ISO 8601.
pub fn iso(text: &str, flag: &str) -> Result<String, Failure> {
    let wrong = || {
        Failure::wrong(format!(
            "{flag} {text}: a time is written 30s, 10m, 1h or PT30S"
        ))
    };
    let seconds = match text.parse::<i64>() {
        Ok(seconds) => Some(seconds),
        Err(_) if text.starts_with('P') => shape::seconds(text),
        Err(_) => text
            .parse::<jiff::SignedDuration>()
            .ok()
            .map(|duration| duration.as_secs()),
    };
    match seconds {
        Some(seconds) if seconds >= 0 => Ok(format!("PT{seconds}S")),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_form_people_write() {
        for (text, expected) in [
            ("30s", "PT30S"),
            ("10m", "PT600S"),
            ("1h", "PT3600S"),
            ("PT2M", "PT120S"),
            ("5", "PT5S"),
            ("0s", "PT0S"),
        ] {
            assert_eq!(iso(text, "--notice").unwrap(), expected);
        }
        for bad in ["", "soon", "-3", "10 parsecs"] {
            assert!(iso(bad, "--notice").is_err(), "{bad}");
        }
    }
}
