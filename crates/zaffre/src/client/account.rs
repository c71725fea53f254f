//! What a user is signed in to: kept in the user's folder, for its owner only.
//!
//! C1 a command asks for a token when it has none that lives a while: a secret is sent to its own server and nowhere else;
//! C2 no secret is an argument of a process or part of a message (I9).

use super::{Client, locate};
use crate::{
    failure::Failure,
    home::{self, Home},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The tenant that lets Azure's libraries sign in without asking a service of Azure first (wire §1).
pub const TENANT: &str = "adfs";
/// How a device names this program.
pub const CLIENT: &str = "zaffre-cli";
/// A token that ends sooner is not used any more, in seconds.
const SPARE: u64 = 60;
/// Questions of a device, whatever the server says about time.
const MAX_POLLS: u32 = 1_000;

/// Everything a user is signed in to.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Accounts {
    /// The one that commands use; without it they use the registered server.
    pub current: Option<String>,
    /// All of them.
    pub accounts: Vec<Account>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// `identity@host:port`.
    pub name: String,
    /// The server.
    pub url: String,
    /// Certificate of its authority, PEM; the system's when absent.
    pub ca: Option<String>,
    /// Who.
    pub identity: String,
    /// How a token is got.
    pub credential: Credential,
    /// The last token.
    pub access: Option<Access>,
}

/// How a token is got.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// With the secret of the identity.
    Secret(String),
    /// With what a device was given.
    Refresh(String),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word()) // C2
    }
}

impl Credential {
    /// What kind it is.
    pub fn word(&self) -> &'static str {
        match self {
            Credential::Secret(_) => "secret",
            Credential::Refresh(_) => "device",
        }
    }
}

/// A token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The token.
    pub token: String,
    /// Until when, in seconds since 1970.
    pub expires: u64,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "until {}", self.expires) // C2
    }
}

fn path(home: &Home) -> std::path::PathBuf {
    home.root().join("accounts.json")
}

impl Accounts {
    /// What is kept.
    pub fn load(home: &Home) -> Result<Accounts, Failure> {
        Ok(home::read(&path(home))?.unwrap_or_default())
    }

    /// Keeps it.
    pub fn save(&self, home: &Home) -> Result<(), Failure> {
        home::private_folder(home.root())?;
        home::write(&path(home), self)
    }

    /// The one that commands use.
    pub fn current(&self) -> Option<&Account> {
        let name = self.current.as_deref()?;
        self.accounts.iter().find(|a| a.name == name)
    }

    /// Adds one, in place of one of the same name, and uses it.
    pub fn add(&mut self, account: Account) {
        self.accounts.retain(|a| a.name != account.name);
        self.current = Some(account.name.clone());
        self.accounts.push(account);
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// A client of the server of an account, for signing in only.
fn door(account: &Account) -> Result<Client, Failure> {
    let address = locate::Address {
        url: account.url.clone(),
        token: String::new(),
        ca: account.ca.as_ref().map(|pem| pem.clone().into_bytes()),
        account: None,
    };
    Client::new(&address, locate::Scope::default())
}

impl Account {
    /// Asks for a token for `resource`; what it is asked with may become another one.
    pub async fn ask(&mut self, resource: &str) -> Result<Access, Failure> {
        let scope = format!("{resource}/.default");
        let form = match &self.credential {
            Credential::Secret(secret) => vec![
                ("grant_type", "client_credentials"),
                ("client_id", self.identity.as_str()),
                ("client_secret", secret),
                ("scope", &scope),
            ],
            Credential::Refresh(token) => vec![
                ("grant_type", "refresh_token"),
                ("client_id", CLIENT),
                ("refresh_token", token),
                ("scope", &scope),
            ],
        };
        let answer = door(self)?
            .form(&format!("/{TENANT}/oauth2/v2.0/token"), &form)
            .await?;
        let answer = answer.map_err(|refused| self.refused(&refused))?;
        if let (Credential::Refresh(token), Some(next)) =
            (&mut self.credential, answer["refresh_token"].as_str())
        {
            next.clone_into(token);
        }
        access(&answer)
    }

    fn refused(&self, answer: &Value) -> Failure {
        let said = answer["error_description"].as_str().unwrap_or_default();
        Failure::wrong(format!("{} cannot sign in: {said}", self.name))
            .hint("sign in again with `zaffre login`, or use another one with `zaffre account set`")
    }

    /// A token for the server that lives a while, kept for the next command (C1).
    pub async fn access(mut self, home: &Home) -> Result<Access, Failure> {
        if let Some(access) = &self.access
            && access.expires > now() + SPARE
        {
            return Ok(access.clone());
        }
        let url = self.url.clone();
        let access = self.ask(&url).await?;
        self.access = Some(access.clone());
        let mut kept = Accounts::load(home)?;
        if let Some(account) = kept.accounts.iter_mut().find(|a| a.name == self.name) {
            *account = self;
            kept.save(home)?;
        }
        Ok(access)
    }
}

fn access(answer: &Value) -> Result<Access, Failure> {
    let token = answer["access_token"].as_str();
    let token = token.ok_or_else(|| Failure::failed("the server gave no token"))?;
    let lives = answer["expires_in"].as_u64().unwrap_or_default();
    Ok(Access {
        token: token.to_owned(),
        expires: now().saturating_add(lives),
    })
}

/// Signs in with a code: `tell` shows the person what to do, then this waits for the approval. The name is who approved.
pub async fn with_code(
    url: &str,
    ca: Option<String>,
    tell: impl FnOnce(&str),
) -> Result<Account, Failure> {
    let mut account = Account {
        name: String::new(),
        url: url.to_owned(),
        ca,
        identity: String::new(),
        credential: Credential::Refresh(String::new()),
        access: None,
    };
    let door = door(&account)?;
    let refused = |answer: &Value| {
        let said = answer["error_description"].as_str().unwrap_or_default();
        Failure::wrong(format!("{url} does not sign this device in: {said}"))
    };
    let scope = format!("{url}/.default openid profile offline_access");
    let form = [("client_id", CLIENT), ("scope", scope.as_str())];
    let begun = door
        .form(&format!("/{TENANT}/oauth2/v2.0/devicecode"), &form)
        .await?;
    let begun = begun.map_err(|answer| refused(&answer))?;
    tell(begun["message"].as_str().unwrap_or_default());
    let pause = Duration::from_secs(begun["interval"].as_u64().unwrap_or(2).clamp(1, 60));
    let device = begun["device_code"].as_str().unwrap_or_default();
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", CLIENT),
        ("device_code", device),
    ];
    for _ in 0..MAX_POLLS {
        tokio::time::sleep(pause).await;
        match door
            .form(&format!("/{TENANT}/oauth2/v2.0/token"), &form)
            .await?
        {
            Ok(answer) => {
                let token = answer["refresh_token"].as_str().unwrap_or_default();
                account.credential = Credential::Refresh(token.to_owned());
                account.access = Some(access(&answer)?);
                account.identity = subject(answer["id_token"].as_str().unwrap_or_default());
                return Ok(account);
            }
            Err(answer) if answer["error"] == "authorization_pending" => {}
            Err(answer) => return Err(refused(&answer)),
        }
    }
    Err(refused(&json!({"error_description": "nobody approved it"})))
}

/// Whom an ID token names. It came from the server over TLS, so it is only read.
fn subject(token: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let claims = token
        .split('.')
        .nth(1)
        .and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Value = claims
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    claims["preferred_username"]
        .as_str()
        .unwrap_or("unknown")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_no_secret_is_printed() {
        let account = Account {
            name: "me@h:1".into(),
            url: "https://h:1".into(),
            ca: None,
            identity: "me".into(),
            credential: Credential::Secret("hush".into()),
            access: Some(Access {
                token: "hush".into(),
                expires: 1,
            }),
        };
        assert!(!format!("{account:?}").contains("hush"));
        let mut accounts = Accounts::default();
        accounts.add(account.clone());
        accounts.add(account.clone());
        assert_eq!(
            (accounts.accounts.len(), accounts.current()),
            (1, Some(&account))
        );
    }
}
