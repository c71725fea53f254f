//! Which server a command goes to, and where in it: flags, then the environment, then what is registered.

use super::account::{Account, Accounts};
use crate::{
    cli::Globals,
    failure::{Failure, about},
    home::Home,
};
use std::{fs, path::Path};

/// Subscription when none is set.
pub const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";
/// Resource group when none is set.
pub const GROUP: &str = "default";
/// Workspace when none is set.
pub const WORKSPACE: &str = "default";

/// A server to talk to.
#[derive(Clone, Debug)]
pub struct Address {
    /// `https://host:port`, or `http://` on the loopback.
    pub url: String,
    /// Bearer token; empty when it is got with `account`.
    pub token: String,
    /// Certificates to trust, PEM; the system's when absent.
    pub ca: Option<Vec<u8>>,
    /// What the user is signed in with.
    pub account: Option<Box<Account>>,
}

/// Where commands act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Subscription.
    pub subscription: String,
    /// Resource group.
    pub group: String,
    /// Workspace.
    pub workspace: String,
}

impl Default for Scope {
    fn default() -> Self {
        Scope {
            subscription: SUBSCRIPTION.into(),
            group: GROUP.into(),
            workspace: WORKSPACE.into(),
        }
    }
}

impl Scope {
    /// `/subscriptions/S/resourceGroups/G`.
    pub fn group_id(&self) -> String {
        format!(
            "/subscriptions/{}/resourceGroups/{}",
            self.subscription, self.group
        )
    }
    /// The full ARM id of the workspace.
    pub fn workspace_id(&self) -> String {
        self.workspace_id_of(&self.workspace)
    }
    /// The full ARM id of a workspace of this group.
    pub fn workspace_id_of(&self, name: &str) -> String {
        format!(
            "{}/providers/Microsoft.MachineLearningServices/workspaces/{name}",
            self.group_id()
        )
    }
    /// The part after a data-plane service's name: `subscriptions/.../workspaces/W`.
    pub fn data_plane(&self) -> String {
        self.workspace_id().trim_start_matches('/').to_owned()
    }
    /// Where locations are read.
    pub fn location_id(&self, location: &str) -> String {
        format!(
            "/subscriptions/{}/providers/Microsoft.MachineLearningServices/locations/{location}",
            self.subscription
        )
    }
}

/// The scope that flags, environment and defaults say.
pub fn scope(globals: &Globals) -> Result<Scope, Failure> {
    let defaults = Home::find()?.defaults()?;
    let pick = |flag: &Option<String>, kept: Option<String>, last: &str| {
        flag.clone()
            .filter(|text| !text.is_empty())
            .or(kept)
            .unwrap_or_else(|| last.to_owned())
    };
    let scope = Scope {
        subscription: pick(&globals.subscription, defaults.subscription, SUBSCRIPTION),
        group: pick(&globals.resource_group, defaults.group, GROUP),
        workspace: pick(&globals.workspace_name, defaults.workspace, WORKSPACE),
    };
    for (flag, value) in [
        ("--subscription", &scope.subscription),
        ("--resource-group", &scope.group),
        ("--workspace-name", &scope.workspace),
    ] {
        plain_name(flag, value)?;
    }
    Ok(scope)
}

/// A name that becomes one segment of a path.
pub fn plain_name(what: &str, value: &str) -> Result<(), Failure> {
    let fits = !value.is_empty()
        && value.len() <= 260
        && value != "."
        && value != ".."
        && !value
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || "/\\?#%&".contains(c));
    if fits {
        return Ok(());
    }
    Err(Failure::wrong(format!(
        "{what} {value:?}: a name has no spaces and none of / \\ ? # % &"
    )))
}

/// The server to talk to.
pub fn server(globals: &Globals) -> Result<Address, Failure> {
    if let Some(url) = globals.server.as_deref().filter(|url| !url.is_empty()) {
        return named(url);
    }
    let home = Home::find()?;
    if let Some(account) = Accounts::load(&home)?.current() {
        return Ok(signed_in(account));
    }
    let Some(server) = home.server()? else {
        return Err(Failure::wrong("no server is known")
            .hint("start one with `zaffre serve`, or name one with --server"));
    };
    let token = read_token(&server.token).map_err(|failure| stale(&server.url, failure))?;
    let ca = fs::read(&server.ca)
        .map_err(about(&server.ca))
        .map_err(|failure| stale(&server.url, failure))?;
    Ok(Address {
        url: server.url,
        token,
        ca: Some(ca),
        account: None,
    })
}

/// The server of an account.
fn signed_in(account: &Account) -> Address {
    Address {
        url: account.url.clone(),
        token: String::new(),
        ca: account.ca.as_ref().map(|pem| pem.clone().into_bytes()),
        account: Some(Box::new(account.clone())),
    }
}

/// A registered server whose files are gone was not stopped properly and is no longer there.
fn stale(url: &str, failure: Failure) -> Failure {
    Failure::wrong(format!(
        "the registered server {url} has left no credential: {}",
        failure.message
    ))
    .hint("start one with `zaffre serve`, or name one with --server")
}

fn read_token(path: &Path) -> Result<String, Failure> {
    Ok(fs::read_to_string(path)
        .map_err(about(path))?
        .trim()
        .to_owned())
}

/// A server named by URL: the credential comes from `ZAFFRE_TOKEN` and `ZAFFRE_CA`, else from the registered server when it is
/// that one.
fn named(url: &str) -> Result<Address, Failure> {
    let url = url.trim_end_matches('/');
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return Err(Failure::wrong(format!(
            "--server {url:?}: an address starts with https:// or http://"
        )));
    }
    let home = Home::find()?;
    if variable("ZAFFRE_TOKEN").is_none() && url.starts_with("https://") {
        let accounts = Accounts::load(&home)?;
        let there = |a: &&Account| same_place(&a.url, url);
        let mut all = accounts.current().into_iter().chain(&accounts.accounts);
        if let Some(account) = all.find(there) {
            return Ok(signed_in(account));
        }
    }
    let registered = home.server()?.filter(|server| same_place(&server.url, url));
    let token = match variable("ZAFFRE_TOKEN") {
        Some(token) => token,
        None => match &registered {
            Some(server) => read_token(&server.token)?,
            None => {
                return Err(Failure::wrong(format!("no token for {url}")).hint(
                    "set ZAFFRE_TOKEN to the token that the server wrote into its data folder, or sign in with `zaffre login`",
                ));
            }
        },
    };
    let ca = match variable("ZAFFRE_CA") {
        Some(path) => Some(fs::read(&path).map_err(about(Path::new(&path)))?),
        None => match &registered {
            Some(server) => Some(fs::read(&server.ca).map_err(about(&server.ca))?),
            None => None,
        },
    };
    if url.starts_with("http://") && !is_loopback(url) {
        return Err(Failure::wrong(format!(
            "--server {url}: http is for the loopback only, the token would be readable"
        ))
        .hint("use https://"));
    }
    Ok(Address {
        url: url.to_owned(),
        token,
        ca,
        account: None,
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

/// Host and port of an address.
pub fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// Whether two addresses are of one server.
pub fn same_place(a: &str, b: &str) -> bool {
    authority(a) == authority(b)
}

fn is_loopback(url: &str) -> bool {
    let authority = authority(url);
    let host = authority
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(authority, |(h, _)| h);
    host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_for_the_loopback() {
        for (url, loopback) in [
            ("http://127.0.0.1:80", true),
            ("http://[::1]:80", true),
            ("http://localhost", true),
            ("http://localhost.evil.org:80", false),
            ("http://10.0.0.1:80", false),
        ] {
            assert_eq!(is_loopback(url), loopback, "{url}");
        }
    }

    #[test]
    fn ids_are_spelled_as_azure_spells_them() {
        assert_eq!(
            Scope::default().workspace_id(),
            "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default"
        );
    }

    #[test]
    fn a_name_cannot_leave_its_segment() {
        for bad in ["", "a/b", "..", "a?b", "a b", "a%2fb", "a\nb"] {
            assert!(plain_name("--name", bad).is_err(), "{bad:?}");
        }
        assert!(plain_name("--name", "クラスター-1_x.y").is_ok());
    }
}
