//! `zaffre online-endpoint`, `zaffre online-deployment`.

use super::{Context, compute::expect, confirm};
use crate::{
    cli::online::*,
    client::{locate::plain_name, operation::Wait},
    draft::{self, flag},
    failure::Failure,
    output::Columns,
    shape::{self, Shape},
};
use serde_json::{Value, json};
use wire::yaml::Kind;

const ENDPOINTS: Columns = &[
    ("Name", "/name"),
    ("Auth", "/auth_mode"),
    ("Compute", "/compute"),
    ("State", "/provisioning_state"),
];
const TOKEN: Columns = &[("Token", "/accessToken"), ("Until", "/expiryTimeUtc")];
const KEYS: Columns = &[("Primary", "/primaryKey"), ("Secondary", "/secondaryKey")];

fn at(context: &Context, name: &str) -> Result<String, Failure> {
    plain_name("endpoint", name)?;
    Ok(context.client.at(&format!("onlineEndpoints/{name}")))
}

/// Runs `zaffre online-endpoint`.
pub async fn endpoint(context: &Context, command: Endpoint) -> Result<(), Failure> {
    let client = &context.client;
    let show = |arm: &Value| {
        let shown = shape::shown(Shape::OnlineEndpoint, arm);
        context.output.show(&shown, ENDPOINTS)
    };
    match command {
        Endpoint::Create(args) => {
            let mut list = draft::sets(&args.file.set)?;
            flag(&mut list, "--name", &["name"], args.name.as_deref());
            let mode = args.auth_mode.as_deref();
            flag(&mut list, "--auth-mode", &["auth_mode"], mode);
            let file = args.file.file.as_deref();
            let mut found = draft::read(file, &list, Kind::OnlineEndpoint)?;
            expect(&found.draft, Kind::OnlineEndpoint)?;
            found.warn();
            found.settle(client).await?;
            let name = found.draft.name.as_deref().unwrap_or_default();
            let at = at(context, name)?;
            let wait = Wait::unless(args.no_wait);
            show(&client.put(&at, &found.draft.body, wait).await?)
        }
        Endpoint::Show(args) => show(&client.get(&at(context, &args.name)?).await?),
        Endpoint::List(args) => {
            let items = client
                .list(&client.at("onlineEndpoints"), args.max_results)
                .await?;
            let shown = items
                .iter()
                .map(|arm| shape::shown(Shape::OnlineEndpoint, arm));
            context.output.show(&shown.collect(), ENDPOINTS)
        }
        Endpoint::Delete(args) => {
            let at = at(context, &args.name)?;
            confirm(&format!("delete online endpoint {}", args.name), args.yes)?;
            client.delete(&at, Wait::unless(args.no_wait)).await
        }
        Endpoint::GetCredentials(args) => {
            let at = at(context, &args.name)?;
            let endpoint = client.get(&at).await?;
            let mode = endpoint["properties"]["authMode"].as_str();
            match mode.unwrap_or_default() {
                "AMLToken" => {
                    let token = client.post(&format!("{at}/token"), &json!({}), &[]).await?;
                    context.output.show(&token, TOKEN)
                }
                "AADToken" => Err(Failure::wrong(format!(
                    "endpoint {} takes the tokens of its callers and has no credentials",
                    args.name
                ))
                .hint(
                    "`zaffre account get-access-token --resource https://ml.azure.com` gives one",
                )),
                _ => {
                    let keys = client
                        .post(&format!("{at}/listKeys"), &json!({}), &[])
                        .await?;
                    context.output.show(&keys, KEYS)
                }
            }
        }
        Endpoint::RegenerateKeys(args) => {
            let at = format!("{}/regenerateKeys", at(context, &args.name)?);
            let body = json!({"keyType": args.key_type});
            client.act(&at, &body, Wait::unless(args.no_wait)).await
        }
    }
}

/// Runs `zaffre online-deployment`.
pub async fn deployment(context: &Context, command: Deployment) -> Result<(), Failure> {
    let Deployment::Create(args) = command;
    let mut list = draft::sets(&args.file.set)?;
    flag(&mut list, "--name", &["name"], args.name.as_deref());
    let endpoint = args.endpoint_name.as_deref();
    flag(&mut list, "--endpoint-name", &["endpoint_name"], endpoint);
    let file = args.file.file.as_deref();
    let mut found = draft::read(file, &list, Kind::OnlineDeployment)?;
    expect(&found.draft, Kind::OnlineDeployment)?;
    found.warn();
    if !args.skip_script_validation {
        found.script_is_there()?;
    }
    let endpoint = found.draft.parent.clone().unwrap_or_default();
    let name = found.draft.name.clone().unwrap_or_default();
    let at = at(context, &endpoint)?;
    plain_name("deployment", &name)?;
    // A missing endpoint is told before anything is uploaded.
    context.client.get(&at).await?;
    found.settle(&context.client).await?;
    let at = format!("{at}/deployments/{name}");
    let client = &context.client;
    let wait = Wait::unless(args.no_wait);
    client.put(&at, &found.draft.body, wait).await?;
    Ok(())
}
