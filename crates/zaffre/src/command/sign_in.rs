//! `zaffre login`, `zaffre account` and `zaffre env`: who this user is, and what programs need to know of it.

use crate::{
    cli::{
        Globals,
        identity::{Account as Asked, Clear, Env, GetAccessToken, Login, Shell},
    },
    client::{
        Scope,
        account::{Access, Account, Accounts, Credential, TENANT, with_code},
        locate,
    },
    failure::{Failure, about},
    home::{self, Home},
    output::{self, Columns, Output},
};
use serde_json::{Map, Value, json};
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};
use wire::access::OWNER;

const ACCOUNTS: Columns = &[
    ("Name", "/name"),
    ("Server", "/server"),
    ("Identity", "/identity"),
    ("Signed in with", "/signed_in_with"),
    ("In use", "/in_use"),
];
const SHOWN: Columns = &[
    ("Name", "/name"),
    ("Server", "/server"),
    ("Identity", "/identity"),
    ("Resource group", "/resource_group"),
    ("Workspace", "/workspace"),
];
const TOKEN: Columns = &[("Token", "/access_token"), ("Expires", "/expires_on")];
/// How the server that `zaffre serve` registered is called among the accounts.
const LOCAL: &str = "local";
/// Bytes of a secret that is read.
const SECRET_BYTES: u64 = 4 * 1024;

/// Signs in.
pub async fn login(globals: &Globals, output: &Output, args: &Login) -> Result<(), Failure> {
    let home = Home::find()?;
    let registered = home.server()?;
    let url = match globals.server.as_deref().filter(|url| !url.is_empty()) {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => registered.as_ref().map(|s| s.url.clone()).ok_or_else(|| {
            Failure::wrong("no server is known").hint("name one with --server https://HOST:PORT")
        })?,
    };
    if !url.starts_with("https://") {
        return Err(Failure::wrong(format!(
            "--server {url}: who signs in sends a secret, so the address starts with https://"
        )));
    }
    let ca = match (&args.ca, &registered) {
        (Some(path), _) => Some(path.clone()),
        (None, Some(server)) if locate::same_place(&server.url, &url) => Some(server.ca.clone()),
        (None, _) => None,
    };
    let ca = ca.map(|path| fs::read_to_string(&path).map_err(about(&path)));
    let ca = ca.transpose()?;
    let mut account = match (&args.username, &args.secret_file) {
        (Some(identity), Some(file)) => {
            let mut account = Account {
                name: String::new(),
                url: url.clone(),
                ca,
                identity: identity.clone(),
                credential: Credential::Secret(secret(file)?),
                access: None,
            };
            // A secret that is wrong is not kept.
            account.access = Some(account.ask(&url).await?);
            account
        }
        _ => with_code(&url, ca, output::say).await?,
    };
    account.name = format!("{}@{}", account.identity, locate::authority(&url));
    let mut accounts = Accounts::load(&home)?;
    let view = shown(&account, true);
    accounts.add(account);
    accounts.save(&home)?;
    output.show(&view, ACCOUNTS)
}

/// A secret from a file or from stdin.
fn secret(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(SECRET_BYTES)
            .read_to_string(&mut text)
    } else {
        let opened = fs::File::open(file).map_err(about(file))?;
        opened.take(SECRET_BYTES).read_to_string(&mut text)
    };
    read.map_err(about(file))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(Failure::wrong(format!(
            "{}: the secret is empty",
            file.display()
        )));
    }
    Ok(text.to_owned())
}

fn shown(account: &Account, in_use: bool) -> Value {
    json!({
        "name": account.name,
        "server": account.url,
        "identity": account.identity,
        "signed_in_with": account.credential.word(),
        "in_use": in_use,
    })
}

/// What is used, as a row of the accounts.
fn local(url: &str, in_use: bool) -> Value {
    json!({
        "name": LOCAL,
        "server": url,
        "identity": OWNER,
        "signed_in_with": "token",
        "in_use": in_use,
    })
}

/// Runs a command of `account`.
pub async fn account(globals: &Globals, output: &Output, asked: Asked) -> Result<(), Failure> {
    let home = Home::find()?;
    match asked {
        Asked::Show => show(globals, output),
        Asked::List => list(&home, output),
        Asked::Set(args) => set(&home, &args.name),
        Asked::Clear(args) => clear(&home, &args),
        Asked::GetAccessToken(args) => get_access_token(globals, output, &args).await,
    }
}

fn show(globals: &Globals, output: &Output) -> Result<(), Failure> {
    let server = locate::server(globals)?;
    let scope = locate::scope(globals)?;
    let mut view = match &server.account {
        Some(account) => shown(account, true),
        None => local(&server.url, true),
    };
    view["subscription"] = scope.subscription.into();
    view["resource_group"] = scope.group.into();
    view["workspace"] = scope.workspace.into();
    output.show(&view, SHOWN)
}

fn list(home: &Home, output: &Output) -> Result<(), Failure> {
    let accounts = Accounts::load(home)?;
    let current = accounts.current().map(|a| a.name.clone());
    let mut rows: Vec<Value> = accounts
        .accounts
        .iter()
        .map(|a| shown(a, current.as_ref() == Some(&a.name)))
        .collect();
    if let Some(server) = home.server()? {
        rows.insert(0, local(&server.url, current.is_none()));
    }
    output.show(&rows.into(), ACCOUNTS)
}

fn set(home: &Home, name: &str) -> Result<(), Failure> {
    let mut accounts = Accounts::load(home)?;
    accounts.current = match accounts.accounts.iter().find(|a| a.name == name) {
        Some(account) => Some(account.name.clone()),
        None if name == LOCAL => None,
        None => return Err(missing(name)),
    };
    accounts.save(home)
}

fn missing(name: &str) -> Failure {
    Failure::not_found(format!("account {name} does not exist"))
        .hint("`zaffre account list` shows what there is")
}

fn clear(home: &Home, args: &Clear) -> Result<(), Failure> {
    let mut accounts = Accounts::load(home)?;
    let before = accounts.accounts.len();
    match &args.name {
        Some(name) => accounts.accounts.retain(|a| a.name != *name),
        None => accounts.accounts.clear(),
    }
    if let Some(name) = &args.name
        && accounts.accounts.len() == before
    {
        return Err(missing(name));
    }
    if accounts.current().is_none() {
        accounts.current = None;
    }
    accounts.save(home)
}

/// The account of what is used; the registered server is one with its token as the secret.
fn used(globals: &Globals) -> Result<Account, Failure> {
    let server = locate::server(globals)?;
    if !server.url.starts_with("https://") {
        return Err(Failure::wrong(format!(
            "azure's libraries send a token over https only, not to {}",
            server.url
        ))
        .hint("name the server with https://"));
    }
    if let Some(account) = server.account {
        return Ok(*account);
    }
    let ca = server
        .ca
        .map(|pem| String::from_utf8_lossy(&pem).into_owned());
    Ok(Account {
        name: LOCAL.into(),
        url: server.url,
        ca,
        identity: OWNER.into(),
        credential: Credential::Secret(server.token),
        access: None,
    })
}

/// The account of this name, or what is used.
fn account_of(globals: &Globals, name: Option<&str>) -> Result<Account, Failure> {
    let Some(name) = name else {
        return used(globals);
    };
    let accounts = Accounts::load(&Home::find()?)?;
    let mut all = accounts.accounts.into_iter();
    all.find(|a| a.name == name).ok_or_else(|| missing(name))
}

async fn get_access_token(
    globals: &Globals,
    output: &Output,
    args: &GetAccessToken,
) -> Result<(), Failure> {
    let mut account = account_of(globals, args.name.as_deref())?;
    if args.exec_credential {
        // kubectl asks before each of its commands: the token that is kept does.
        let access = account.access(&Home::find()?).await?;
        return output::write(&format!("{}\n", exec_credential(&access)?));
    }
    let resource = args.resource.clone().unwrap_or_else(|| account.url.clone());
    let access = account.ask(&resource).await?;
    let view = json!({
        "access_token": access.token,
        "expires_on": access.expires,
        "resource": resource,
        "token_type": "Bearer",
    });
    output.show(&view, TOKEN)
}

/// What kubectl reads from the program that its configuration names.
fn exec_credential(access: &Access) -> Result<Value, Failure> {
    let expires = i64::try_from(access.expires).unwrap_or(i64::MAX);
    let expires = jiff::Timestamp::from_second(expires)
        .map_err(|error| Failure::failed(format!("the token ends at no time: {error}")))?;
    Ok(json!({
        "apiVersion": super::kubeconfig::EXEC_API,
        "kind": "ExecCredential",
        "status": {"token": access.token, "expirationTimestamp": expires.to_string()},
    }))
}

/// Prints what programs need in their environment.
pub fn env(globals: &Globals, args: &Env) -> Result<(), Failure> {
    let account = used(globals)?;
    let scope = locate::scope(globals)?;
    let bundle = bundle(&Home::find()?, account.ca.as_deref())?;
    let variables = variables(&account, &scope, bundle.as_deref());
    if args.json {
        let all: Map<String, Value> = variables
            .into_iter()
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        let text = serde_json::to_string_pretty(&all).expect("texts can be written");
        return output::write(&format!("{text}\n"));
    }
    let shell = args.shell.unwrap_or_else(usual_shell);
    let mut text = String::new();
    for (name, value) in &variables {
        text.push_str(&match args.unset {
            true => unset(shell, name),
            false => export(shell, name, value),
        });
        text.push('\n');
    }
    output::write(&text)?;
    if matches!(account.credential, Credential::Refresh(_)) {
        output::warn(
            "this sign-in came from a device and has no secret for programs: make one with `zaffre identity create`, and set AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
        );
    }
    Ok(())
}

fn usual_shell() -> Shell {
    let named = std::env::var("SHELL").unwrap_or_default();
    match named.ends_with("/fish") {
        true => Shell::Fish,
        false => Shell::Bash,
    }
}

/// The authorities of this machine and the server's, in a file of the user's folder: programs that trust it reach both.
fn bundle(home: &Home, ca: Option<&str>) -> Result<Option<PathBuf>, Failure> {
    let Some(ca) = ca else { return Ok(None) };
    use sha2::{Digest, Sha256};
    let digest = wire::places::hex(&Sha256::digest(ca.as_bytes()));
    let folder = home.root().join("ca");
    home::private_folder(&folder)?;
    let path = folder.join(format!("{}.pem", &digest[..16]));
    crate::serve::write_bundle(&path, ca.as_bytes(), None)?;
    let whole = std::path::absolute(&path).map_err(about(&path))?;
    Ok(Some(whole))
}

/// What `azure-identity` and `azure-ai-ml` read (wire §1), and where to work.
fn variables(
    account: &Account,
    scope: &Scope,
    bundle: Option<&Path>,
) -> Vec<(&'static str, String)> {
    let url = account.url.trim_end_matches('/');
    // Without its name the SDK takes public Azure for its cloud when the first answer is lost, and sends its tokens there.
    let mut all = vec![
        (
            "ARM_CLOUD_METADATA_URL",
            format!("{url}/metadata/endpoints"),
        ),
        ("AZUREML_CURRENT_CLOUD", api::CLOUD.to_owned()),
    ];
    if let Some(bundle) = bundle {
        all.push(("REQUESTS_CA_BUNDLE", bundle.display().to_string()));
    }
    all.push(("AZURE_AUTHORITY_HOST", url.to_owned()));
    all.push(("AZURE_TENANT_ID", TENANT.to_owned()));
    if let Credential::Secret(secret) = &account.credential {
        all.push(("AZURE_CLIENT_ID", account.identity.clone()));
        all.push(("AZURE_CLIENT_SECRET", secret.clone()));
    }
    all.push(("AZURE_SUBSCRIPTION_ID", scope.subscription.clone()));
    all.push(("AZURE_RESOURCE_GROUP", scope.group.clone()));
    all.push(("AZUREML_WORKSPACE_NAME", scope.workspace.clone()));
    all
}

fn export(shell: Shell, name: &str, value: &str) -> String {
    match shell {
        Shell::Bash => format!("export {name}='{}'", value.replace('\'', r"'\''")),
        Shell::Fish => {
            let quoted = value.replace('\\', r"\\").replace('\'', r"\'");
            format!("set -gx {name} '{quoted}'")
        }
        Shell::Powershell => format!("$Env:{name} = '{}'", value.replace('\'', "''")),
    }
}

fn unset(shell: Shell, name: &str) -> String {
    match shell {
        Shell::Bash => format!("unset {name}"),
        Shell::Fish => format!("set -e {name}"),
        Shell::Powershell => format!("Remove-Item Env:{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_each_shell() {
        let value = r"it's a \ $HOME";
        assert_eq!(
            export(Shell::Bash, "A", value),
            r"export A='it'\''s a \ $HOME'"
        );
        assert_eq!(
            export(Shell::Fish, "A", value),
            r"set -gx A 'it\'s a \\ $HOME'"
        );
        assert_eq!(
            export(Shell::Powershell, "A", value),
            r"$Env:A = 'it''s a \ $HOME'"
        );
        let out = std::process::Command::new("bash")
            .args([
                "-c",
                &format!("{}; printf %s \"$A\"", export(Shell::Bash, "A", value)),
            ])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), value);
    }

    #[test]
    fn a_device_has_no_secret_to_give() {
        let account = |credential| Account {
            name: "n".into(),
            url: "https://h:1/".into(),
            ca: None,
            identity: "me".into(),
            credential,
            access: None,
        };
        let names = |credential| -> Vec<&str> {
            let all = variables(&account(credential), &Scope::default(), None);
            all.into_iter().map(|(name, _)| name).collect()
        };
        let with = names(Credential::Secret("s".into()));
        assert!(with.contains(&"AZURE_CLIENT_SECRET") && with.contains(&"AZURE_CLIENT_ID"));
        let without = names(Credential::Refresh("t".into()));
        assert!(!without.contains(&"AZURE_CLIENT_ID") && !without.contains(&"AZURE_CLIENT_SECRET"));
    }
}
