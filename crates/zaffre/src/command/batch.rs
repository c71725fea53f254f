//! `zaffre batch-endpoint` and `zaffre batch-deployment`, but for `invoke`.

use super::{Context, changes, compute::expect, confirm};
use crate::{
    cli::{DeleteArgs, batch::*},
    client::{Client, locate::plain_name, operation::Wait},
    command::{compute::LOCATION, invoke},
    draft::{self, Found, flag},
    failure::Failure,
    output::{self, Columns},
    shape::{self, Shape},
};
use serde_json::{Value, json};
use wire::yaml::Kind;

const ENDPOINTS: Columns = &[
    ("Name", "/name"),
    ("Default", "/defaults/deployment_name"),
    ("State", "/provisioning_state"),
    ("Scoring URI", "/scoring_uri"),
];
const DEPLOYMENTS: Columns = &[
    ("Name", "/name"),
    ("Endpoint", "/endpoint_name"),
    ("Model", "/model_name"),
    ("Compute", "/compute_name"),
    ("Nodes", "/resources/instance_count"),
    ("Mini-batch", "/settings/mini_batch_size"),
    ("State", "/provisioning_state"),
];
const JOBS: Columns = &[
    ("Job", "/name"),
    ("Status", "/status"),
    ("Experiment", "/experiment_name"),
    ("Created", "/creation_context/created_at"),
];

/// Runs `zaffre batch-endpoint`.
pub async fn endpoint(context: &Context, command: Endpoint) -> Result<(), Failure> {
    match command {
        Endpoint::Create(args) => create_endpoint(context, args).await,
        Endpoint::Show(args) => {
            let arm = context.client.get(&at(context, &args.name)?).await?;
            context
                .output
                .show(&shape::shown(Shape::BatchEndpoint, &arm), ENDPOINTS)
        }
        Endpoint::List => {
            let items = context
                .client
                .list(&context.client.at("batchEndpoints"), None)
                .await?;
            context.output.show(
                &items
                    .iter()
                    .map(|arm| shape::shown(Shape::BatchEndpoint, arm))
                    .collect(),
                ENDPOINTS,
            )
        }
        Endpoint::Update(args) => update_endpoint(context, args).await,
        Endpoint::Delete(args) => delete_endpoint(context, args).await,
        Endpoint::Invoke(args) => invoke::run(context, *args).await,
        Endpoint::ListJobs(args) => {
            plain_name("endpoint", &args.name)?;
            jobs(context, &format!("batchEndpoints/{}/jobs", args.name)).await
        }
    }
}

/// Runs `zaffre batch-deployment`.
pub async fn deployment(context: &Context, command: Deployment) -> Result<(), Failure> {
    match command {
        Deployment::Create(args) => create_deployment(context, args).await,
        Deployment::Show(args) => {
            let arm = context
                .client
                .get(&deployment_at(context, &args.endpoint_name, &args.name)?)
                .await?;
            context.output.show(&shown_deployment(&arm), DEPLOYMENTS)
        }
        Deployment::List(args) => {
            let items = context
                .client
                .list(
                    &format!("{}/deployments", at(context, &args.endpoint_name)?),
                    None,
                )
                .await?;
            context
                .output
                .show(&items.iter().map(shown_deployment).collect(), DEPLOYMENTS)
        }
        Deployment::Update(args) => update_deployment(context, args).await,
        Deployment::Delete(args) => {
            let at = deployment_at(context, &args.which.endpoint_name, &args.which.name)?;
            confirm(
                &format!(
                    "delete deployment {} of {}",
                    args.which.name, args.which.endpoint_name
                ),
                args.yes,
            )?;
            context.client.delete(&at, Wait::unless(args.no_wait)).await
        }
        Deployment::ListJobs(args) => {
            plain_name("endpoint", &args.endpoint_name)?;
            plain_name("deployment", &args.name)?;
            jobs(
                context,
                &format!(
                    "batchEndpoints/{}/deployments/{}/jobs",
                    args.endpoint_name, args.name
                ),
            )
            .await
        }
    }
}

fn at(context: &Context, name: &str) -> Result<String, Failure> {
    plain_name("endpoint", name)?;
    Ok(context.client.at(&format!("batchEndpoints/{name}")))
}

fn deployment_at(context: &Context, endpoint: &str, name: &str) -> Result<String, Failure> {
    plain_name("deployment", name)?;
    Ok(format!("{}/deployments/{name}", at(context, endpoint)?))
}

/// With the short names of model and compute beside the ids, for the table.
fn shown_deployment(arm: &Value) -> Value {
    let mut shown = shape::shown(Shape::BatchDeployment, arm);
    let model = shown["model"].as_str().unwrap_or_default();
    let mut parts = model.rsplit('/');
    let model = match (parts.next(), parts.next(), parts.next()) {
        (Some(version), Some("versions"), Some(name)) => format!("{name}:{version}"),
        _ => model.to_owned(),
    };
    let compute = shape::short(&shown["compute"]);
    shown["model_name"] = model.into();
    shown["compute_name"] = compute.into();
    shown
}

async fn jobs(context: &Context, below: &str) -> Result<(), Failure> {
    let client = &context.client;
    let items = client
        .list(
            &format!(
                "/mferp/managementfrontend/{}/{below}",
                client.scope().data_plane()
            ),
            None,
        )
        .await?;
    let shown = items.iter().map(|arm| shape::shown(Shape::Job, arm));
    context.output.show(&shown.collect(), JOBS)
}

async fn create_endpoint(context: &Context, args: EndpointCreate) -> Result<(), Failure> {
    let overrides = draft::sets(&args.file.set)?;
    if args.file.file.is_none() && args.name.is_none() {
        return Err(Failure::wrong("neither --file nor --name is given")
            .hint("zaffre batch-endpoint create -f FILE"));
    }
    let hint = Kind::BatchEndpoint;
    let file = args.file.file.as_deref();
    let mut named = overrides.clone();
    flag(&mut named, "--name", &["name"], args.name.as_deref());
    let mut found = draft::read(file, &named, hint)?;
    let wait = Wait::unless(args.no_wait);
    if found.draft.kind == Kind::BatchDeployment {
        // There the flag is the name of the endpoint, not of the deployment.
        found = draft::read(file, &overrides, hint)?;
        return deployment_as_endpoint(context, &args, found, wait).await;
    }
    expect(&found.draft, hint)?;
    found.warn();
    found.settle(&context.client).await?;
    let name = needed(found.draft.name.as_deref(), "endpoint", "name")?;
    let document = context
        .client
        .put(&at(context, name)?, &found.draft.body, wait)
        .await?;
    context
        .output
        .show(&shape::shown(Shape::BatchEndpoint, &document), ENDPOINTS)
}

fn needed<'a>(name: Option<&'a str>, what: &str, key: &str) -> Result<&'a str, Failure> {
    name.ok_or_else(|| {
        Failure::wrong(format!("the {what} has no name"))
            .hint(format!("add `{key}:` to the file, or the flag"))
    })
}

/// The low-priority article hands a deployment file to `batch-endpoint create` (C-7): both are made, and it is said so.
async fn deployment_as_endpoint(
    context: &Context,
    args: &EndpointCreate,
    mut found: Found,
    wait: Wait,
) -> Result<(), Failure> {
    let file = args
        .file
        .file
        .as_deref()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    if let Some(name) = &args.name
        && found.draft.parent.as_ref() != Some(name)
    {
        let mut set = draft::sets(&args.file.set)?;
        flag(&mut set, "--name", &["endpoint_name"], Some(name));
        found = draft::read(args.file.file.as_deref(), &set, Kind::BatchDeployment)?;
    }
    found.warn();
    let endpoint = needed(
        found.draft.parent.as_deref(),
        "deployment's endpoint",
        "endpoint_name",
    )?
    .to_owned();
    let name = needed(found.draft.name.as_deref(), "deployment", "name")?.to_owned();
    // What the deployment names is looked at first: an endpoint without it would be left behind.
    found.settle(&context.client).await?;
    let at = at(context, &endpoint)?;
    let there = context.client.find(&at).await?;
    let about = if there.is_some() {
        "endpoint exists"
    } else {
        "endpoint is made too"
    };
    if !context.globals.only_show_errors {
        output::say(&format!(
            "{file} is a batch deployment: making {name} of {endpoint} ({about})"
        ));
    }
    if there.is_none() {
        let body = json!({"location": LOCATION, "properties": {"authMode": "AADToken"}});
        context.client.put(&at, &body, Wait::ForEnd).await?;
    }
    context
        .client
        .put(
            &deployment_at(context, &endpoint, &name)?,
            &found.draft.body,
            wait,
        )
        .await?;
    let document = default_if_none(&context.client, &at, &name).await?;
    context
        .output
        .show(&shape::shown(Shape::BatchEndpoint, &document), ENDPOINTS)
}

/// Makes a deployment the default of an endpoint that has none.
async fn default_if_none(client: &Client, at: &str, deployment: &str) -> Result<Value, Failure> {
    let document = client.get(at).await?;
    if document
        .pointer("/properties/defaults/deploymentName")
        .is_some_and(|name| !name.is_null())
    {
        return Ok(document);
    }
    set_default(client, at, document, deployment).await
}

async fn set_default(
    client: &Client,
    at: &str,
    mut document: Value,
    deployment: &str,
) -> Result<Value, Failure> {
    document["properties"]["defaults"] = json!({"deploymentName": deployment});
    client.put(at, &document, Wait::ForEnd).await
}

async fn update_endpoint(context: &Context, args: EndpointUpdate) -> Result<(), Failure> {
    let mut found = match &args.file {
        Some(file) => draft::read(
            Some(file),
            &draft::sets(&args.change.set)?,
            Kind::BatchEndpoint,
        )?,
        None => {
            let name = args.name.as_deref().unwrap_or_default();
            let arm = context.client.get(&at(context, name)?).await?;
            let mut document = shape::editable(Shape::BatchEndpoint, &arm);
            let mut list = changes(&mut document, &args.change)?;
            if let Some(defaults) = &args.defaults {
                let Some(("deployment_name", deployment)) = defaults.split_once('=') else {
                    return Err(Failure::wrong(format!(
                        "--defaults {defaults}: write deployment_name=NAME"
                    )));
                };
                flag(
                    &mut list,
                    "--defaults",
                    &["defaults", "deployment_name"],
                    Some(deployment),
                );
            }
            draft::change(&document, &list, Kind::BatchEndpoint)?
        }
    };
    expect(&found.draft, Kind::BatchEndpoint)?;
    found.settle(&context.client).await?;
    let at = at(
        context,
        needed(found.draft.name.as_deref(), "endpoint", "name")?,
    )?;
    context.client.get(&at).await?;
    let document = context
        .client
        .put(&at, &found.draft.body, Wait::unless(args.no_wait))
        .await?;
    context
        .output
        .show(&shape::shown(Shape::BatchEndpoint, &document), ENDPOINTS)
}

async fn delete_endpoint(context: &Context, args: DeleteArgs) -> Result<(), Failure> {
    let at = at(context, &args.name)?;
    confirm(
        &format!("delete endpoint {} and its deployments", args.name),
        args.yes,
    )?;
    context.client.delete(&at, Wait::unless(args.no_wait)).await
}

async fn create_deployment(context: &Context, args: DeploymentCreate) -> Result<(), Failure> {
    let mut overrides = draft::sets(&args.set)?;
    flag(&mut overrides, "--name", &["name"], args.name.as_deref());
    flag(
        &mut overrides,
        "--endpoint-name",
        &["endpoint_name"],
        args.endpoint_name.as_deref(),
    );
    let mut found = draft::read(Some(&args.file), &overrides, Kind::BatchDeployment)?;
    expect(&found.draft, Kind::BatchDeployment)?;
    found.warn();
    let endpoint = needed(
        found.draft.parent.as_deref(),
        "deployment's endpoint",
        "endpoint_name",
    )?
    .to_owned();
    let name = needed(found.draft.name.as_deref(), "deployment", "name")?.to_owned();
    if !args.skip_script_validation {
        found.script_is_there()?;
    }
    let endpoint_at = at(context, &endpoint)?;
    let endpoint_document = context.client.find(&endpoint_at).await?.ok_or_else(|| {
        Failure::not_found(format!("endpoint {endpoint} does not exist"))
            .hint(format!("zaffre batch-endpoint create -n {endpoint}"))
    })?;
    found.settle(&context.client).await?;
    let document = context
        .client
        .put(
            &deployment_at(context, &endpoint, &name)?,
            &found.draft.body,
            Wait::unless(args.no_wait),
        )
        .await?;
    if args.set_default {
        set_default(&context.client, &endpoint_at, endpoint_document, &name).await?;
    }
    context
        .output
        .show(&shown_deployment(&document), DEPLOYMENTS)
}

async fn update_deployment(context: &Context, args: DeploymentUpdate) -> Result<(), Failure> {
    let mut found = match &args.file {
        Some(file) => {
            let mut overrides = draft::sets(&args.change.set)?;
            flag(&mut overrides, "--name", &["name"], args.name.as_deref());
            flag(
                &mut overrides,
                "--endpoint-name",
                &["endpoint_name"],
                args.endpoint_name.as_deref(),
            );
            draft::read(Some(file), &overrides, Kind::BatchDeployment)?
        }
        None => {
            let at = deployment_at(
                context,
                args.endpoint_name.as_deref().unwrap_or_default(),
                args.name.as_deref().unwrap_or_default(),
            )?;
            let arm = context.client.get(&at).await?;
            let mut document = shape::editable(Shape::BatchDeployment, &arm);
            let list = changes(&mut document, &args.change)?;
            draft::change(&document, &list, Kind::BatchDeployment)?
        }
    };
    expect(&found.draft, Kind::BatchDeployment)?;
    found.warn();
    let endpoint = needed(
        found.draft.parent.as_deref(),
        "deployment's endpoint",
        "endpoint_name",
    )?
    .to_owned();
    let at = deployment_at(
        context,
        &endpoint,
        needed(found.draft.name.as_deref(), "deployment", "name")?,
    )?;
    context.client.get(&at).await?;
    found.settle(&context.client).await?;
    let document = context
        .client
        .put(&at, &found.draft.body, Wait::unless(args.no_wait))
        .await?;
    context
        .output
        .show(&shown_deployment(&document), DEPLOYMENTS)
}
