//! `zaffre instance-type`: a client of the same Kubernetes paths that `kubectl` uses, with the same verdicts.

use super::{Context, compute, confirm};
use crate::{
    cli::instance_type::{Apply, Delete, InstanceType, Show},
    client::locate::plain_name,
    draft,
    failure::Failure,
    output::{self, Columns},
};
use model::instance_type::DEFAULT_INSTANCE_TYPE;
use reqwest::Method;
use serde_json::{Map, Value, json};
use wire::crd;

const TYPES: Columns = &[
    ("Name", "/name"),
    ("CPU", "/resources/requests/cpu"),
    ("Memory", "/resources/requests/memory"),
    ("CPU limit", "/resources/limits/cpu"),
    ("Memory limit", "/resources/limits/memory"),
    ("GPU", "/resources/limits/nvidia.com~1gpu"),
    ("Selector", "/node_selector"),
    ("Built-in", "/built_in"),
];
const APPLIED: Columns = &[("Name", "/name"), ("Result", "/result")];
/// Other writers that may come between.
const MAX_TRIES: usize = 8;

/// Runs a command.
pub async fn run(context: &Context, command: InstanceType) -> Result<(), Failure> {
    match command {
        InstanceType::Apply(args) => apply(context, args).await,
        InstanceType::Show(args) => show(context, &args).await,
        InstanceType::List(of) => list(context, of.compute.as_deref()).await,
        InstanceType::Delete(args) => delete(context, args).await,
    }
}

/// All of them, or one.
fn at(name: Option<&str>) -> Result<String, Failure> {
    let all = format!(
        "{}/apis/{}/{}",
        api::KUBE_PREFIX,
        crd::API_VERSION,
        crd::PLURAL
    );
    match name {
        None => Ok(all),
        Some(name) => {
            plain_name("instance type", name)?;
            Ok(format!("{all}/{name}"))
        }
    }
}

async fn apply(context: &Context, args: Apply) -> Result<(), Failure> {
    // Every file is read before the first type is written: what is wrong is known while nothing has changed.
    let mut items = vec![];
    for file in &args.files {
        let read = crd::read_bytes(&draft::bytes_of(file)?, &file.display().to_string());
        items.extend(read.map_err(|diagnostics| wrong(&diagnostics))?);
    }
    let mut results = vec![];
    for item in items {
        let result = put(context, &item.object, item.instance_type.name()).await?;
        results.push(json!({"name": item.instance_type.name(), "result": result}));
    }
    context.output.show(&results.into(), APPLIED)
}

/// Every diagnostic of a file, one below the other.
fn wrong(diagnostics: &[wire::yaml::Diagnostic]) -> Failure {
    let lines: Vec<String> = diagnostics.iter().map(|d| d.render()).collect();
    Failure::wrong(lines.join("\n"))
}

/// Makes the type what the file says; labels and annotations of others stay.
async fn put(context: &Context, object: &Value, name: &str) -> Result<&'static str, Failure> {
    let query = "fieldManager=zaffre&fieldValidation=Strict";
    for _ in 0..MAX_TRIES {
        let found = context.client.find(&at(Some(name))?).await?;
        let outcome = match &found {
            None => {
                let to = format!("{}?{query}", at(None)?);
                let made = context.client.offer(Method::POST, &to, object).await?;
                made.map(|_| "created")
            }
            Some(live) => {
                let whole = over(live, object);
                if whole == *live {
                    return Ok("unchanged");
                }
                let to = format!("{}?{query}", at(Some(name))?);
                let made = context.client.offer(Method::PUT, &to, &whole).await?;
                made.map(|_| "configured")
            }
        };
        if let Some(result) = outcome {
            return Ok(result);
        }
    }
    Err(Failure::failed(format!(
        "instance type {name} is being written by others at the same time"
    )))
}

/// The live object with what the file says.
fn over(live: &Value, object: &Value) -> Value {
    let mut whole = live.clone();
    whole["spec"] = object["spec"].clone();
    for key in ["labels", "annotations"] {
        for (name, value) in object["metadata"][key].as_object().into_iter().flatten() {
            if !whole["metadata"][key].is_object() {
                whole["metadata"][key] = json!({});
            }
            whole["metadata"][key][name] = value.clone();
        }
    }
    whole
}

/// What a command shows of a type.
fn shown(object: &Value, built_in: bool) -> Value {
    let arm = crd::arm_view_of(object);
    let mut out = Map::new();
    out.insert("name".into(), object["metadata"]["name"].clone());
    out.insert("node_selector".into(), arm["nodeSelector"].clone());
    out.insert("resources".into(), arm["resources"].clone());
    out.insert("built_in".into(), built_in.into());
    out.into()
}

/// The one that is there when nobody declared another.
fn built_in() -> Value {
    shown(&crd::object(&model::InstanceType::default_type()), true)
}

/// The types that a compute offers. One that cannot be used at the moment says why.
async fn of_compute(context: &Context, compute: &str) -> Result<Vec<Value>, Failure> {
    let found = context.client.get(&compute::at(context, compute)?).await?;
    let properties = &found["properties"];
    if properties["computeType"] != "Kubernetes" {
        let kind = properties["computeType"].as_str().unwrap_or("no compute");
        return Err(Failure::wrong(format!(
            "compute {compute} is {kind}: only a Kubernetes compute has instance types"
        )));
    }
    for error in properties["provisioningErrors"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let message = error["error"]["message"].as_str().unwrap_or_default();
        output::say(&format!("warning: compute {compute}: {message}"));
    }
    let built_in = built_in();
    let types = properties["properties"]["instanceTypes"].as_object();
    let row = |(name, arm): (&String, &Value)| {
        let same = name == DEFAULT_INSTANCE_TYPE && arm["resources"] == built_in["resources"];
        json!({
            "name": name, "node_selector": arm["nodeSelector"], "resources": arm["resources"], "built_in": same,
        })
    };
    Ok(types.into_iter().flatten().map(row).collect())
}

async fn show(context: &Context, args: &Show) -> Result<(), Failure> {
    let name = args.name.as_str();
    if let Some(compute) = &args.of.compute {
        let types = of_compute(context, compute).await?;
        let found = types.iter().find(|one| one["name"] == name);
        let found = found.ok_or_else(|| {
            Failure::not_found(format!("compute {compute} has no instance type {name}")).hint(
                format!("`zaffre instance-type list --compute {compute}` shows what there is"),
            )
        })?;
        return context.output.show(found, TYPES);
    }
    let found = context.client.find(&at(Some(name))?).await?;
    let found = match found {
        Some(object) => shown(&object, false),
        None if name == DEFAULT_INSTANCE_TYPE => built_in(),
        None => return Err(missing(name)),
    };
    context.output.show(&found, TYPES)
}

fn missing(name: &str) -> Failure {
    Failure::not_found(format!("instance type {name} does not exist"))
        .hint("`zaffre instance-type list` shows what there is")
}

async fn all(context: &Context) -> Result<Vec<Value>, Failure> {
    let list = context.client.get(&at(None)?).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

async fn list(context: &Context, compute: Option<&str>) -> Result<(), Failure> {
    if let Some(compute) = compute {
        let types = of_compute(context, compute).await?;
        return context.output.show(&types.into(), TYPES);
    }
    let mut types: Vec<Value> = all(context)
        .await?
        .iter()
        .map(|o| shown(o, false))
        .collect();
    if types.iter().all(|t| t["name"] != DEFAULT_INSTANCE_TYPE) {
        types.push(built_in());
        types.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    }
    context.output.show(&types.into(), TYPES)
}

async fn delete(context: &Context, args: Delete) -> Result<(), Failure> {
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => all(context)
            .await?
            .iter()
            .filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned))
            .collect(),
    };
    match &args.name {
        Some(name) => confirm(&format!("delete instance type {name}"), args.yes)?,
        None if names.is_empty() => {}
        None => confirm(
            &format!("delete instance types {}", names.join(", ")),
            args.yes,
        )?,
    }
    for name in names {
        let gone = context.client.remove(&at(Some(&name))?).await?;
        match (gone, name == DEFAULT_INSTANCE_TYPE) {
            (true, true) if !context.globals.only_show_errors => {
                output::say(&format!("the built-in {name} is back"));
            }
            (true, _) => {}
            (false, true) => {
                return Err(
                    Failure::wrong(format!("{name} is built in and cannot be deleted"))
                        .hint(format!("apply an instance type named {name} to replace it")),
                );
            }
            (false, false) if args.all => {}
            (false, false) => return Err(missing(&name)),
        }
    }
    Ok(())
}
