//! Who a request comes from, and what that one may do.
//!
//! U1 a credential is the server's own token, an access token that this server has signed, or one of the outside issuer that
//!    it was told of; which of its parts is wrong is never said (I8);
//! U2 a token is for an audience: this server by the name that the request came under, or one of the names that Azure's
//!    clients know the service by (wire §1);
//! U3 a token dies with what it was got with: a rotated secret, a removed identity, an ended job;
//! U4 a right is an action at a scope; it is decided from the path, before anything is looked up (R2).

mod device;
mod directory;
mod gate;
mod jobs;
mod jwt;
mod keys;
mod manage;
mod outside;
mod roles;
mod secret;
mod sign_in;

pub use jobs::{JOB_KEY_BYTES, JobKey};
pub use keys::{IdentityClock, KeepKeys};
pub use outside::{Fetch, Outside};

pub(crate) use device::{
    approve, begin as device_begin, page as device_page, submit as device_submit,
};
pub(crate) use gate::{READ_WORKSPACE, denied};
pub(crate) use manage::{
    assign, assignment, assignments, create, identities, identity, remove, rotate, unassign,
};
pub(crate) use roles::{define, definition, definitions, undefine};
pub(crate) use sign_in::{configuration, for_address, jwks, managed, token};

use axum::http::{HeaderMap, header};
use control::{Control, StoreError};
use model::JobId;
use std::sync::Arc;
use wire::access::{self, OWNER};

use crate::{access::TokenDigest, call::Base};
use jwt::{Claims, Token, Use};

/// Audiences beside the server's own address: what the SDK asks tokens of the service for (wire §1).
const AUDIENCES: [&str; 3] = [
    "https://ml.azure.local",
    "https://ml.azure.com",
    "https://storage.azure.com",
];
/// Longest audience.
const MAX_AUDIENCE_BYTES: usize = 300;
/// Seconds that an access token lives.
const ACCESS_SECONDS: u64 = 3_600;
/// Seconds that a refresh token lives: a month without signing in again.
const REFRESH_SECONDS: u64 = 30 * 24 * 3_600;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Who holds the server's own token: may do everything.
    Owner,
    /// An identity of this server, by name.
    Identity(Arc<str>),
    /// A job that runs, on its own behalf.
    Job(JobId),
    /// Whom the outside issuer has named: `oidc:` and the subject.
    Outside(Arc<str>),
}

impl Caller {
    /// As a message names it.
    pub fn name(&self) -> String {
        match self {
            Caller::Owner => OWNER.to_owned(),
            Caller::Identity(name) | Caller::Outside(name) => name.to_string(),
            Caller::Job(job) => format!("job:{}", job.name()),
        }
    }
}

/// Everything about who may sign in and do what.
pub struct Identities {
    keys: keys::Keys,
    directory: directory::Directory,
    devices: device::Devices,
    secrets: secret::Checks,
    jobs: Option<JobKey>,
    outside: Option<outside::Issuer>,
}

impl Identities {
    /// With the keys as they were kept; `keep` keeps them from now on. The error says what is wrong with what was kept, or that
    /// nothing can be kept.
    pub fn open(
        kept: Option<&[u8]>,
        keep: KeepKeys,
        clock: IdentityClock,
    ) -> Result<Identities, String> {
        Ok(Identities {
            keys: keys::Keys::open(kept, keep, clock)?,
            directory: directory::Directory::default(),
            devices: device::Devices::default(),
            secrets: secret::Checks::default(),
            jobs: None,
            outside: None,
        })
    }

    /// Keys that live as long as this value.
    pub(crate) fn fleeting() -> Identities {
        Identities::open(None, Box::new(|_| Ok(())), Box::new(crate::time::now))
            .expect("nothing was kept that could be wrong")
    }

    /// Gives tokens to jobs whose secrets `key` has made.
    #[must_use]
    pub fn with_jobs(mut self, key: JobKey) -> Self {
        self.jobs = Some(key);
        self
    }

    /// Takes the tokens of another issuer too.
    #[must_use]
    pub fn with_outside(mut self, outside: Outside) -> Self {
        self.outside = Some(outside::Issuer::new(outside));
        self
    }

    /// Reads who there is. Blocks.
    pub(crate) fn read(&self, control: &Control) -> Result<(), StoreError> {
        self.directory.read(control)
    }

    fn seconds(&self) -> u64 {
        self.keys.now().0 / 1000
    }

    /// Claims about `sub` for `seconds` from now.
    fn claims(&self, who: &Subject, audience: &str, asked: &Asked<'_>, seconds: u64) -> Claims {
        let now = self.seconds();
        Claims {
            aud: audience.to_owned(),
            iss: format!("{}/{}/v2.0", asked.base, asked.tenant),
            iat: now,
            nbf: now,
            exp: now.saturating_add(seconds),
            tid: asked.tenant.to_owned(),
            sub: who.sub.clone(),
            oid: access::principal_id(&who.sub),
            appid: asked.client.to_owned(),
            idtyp: who.kind.to_owned(),
            sid: who.secret.clone(),
            preferred_username: who.sub.clone(),
        }
    }
}

/// Whom a token is about.
#[derive(Clone, Debug)]
struct Subject {
    sub: String,
    kind: &'static str,
    /// The secret that was shown.
    secret: String,
}

/// How a token was asked for.
struct Asked<'a> {
    base: &'a str,
    tenant: &'a str,
    client: &'a str,
}

/// The token of an `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case("bearer ")
        .then(|| token.trim_ascii())
}

/// Whether a token for `audience` is meant for the server that is called `base` (U2).
fn is_ours(audience: &str, base: &Base) -> bool {
    let audience = audience.trim_end_matches('/');
    if AUDIENCES.contains(&audience) {
        return true;
    }
    let host = audience
        .strip_prefix("https://")
        .or_else(|| audience.strip_prefix("http://"));
    audience.len() <= MAX_AUDIENCE_BYTES && host.is_some_and(|h| h.eq_ignore_ascii_case(&base.host))
}

/// What the owner's tokens name as their secret: a new token of the server ends them (U3).
fn owner_secret(token: &TokenDigest) -> String {
    token.name()
}

impl crate::Api {
    /// Who asks, if the credential is good (U1).
    pub(crate) async fn caller(&self, headers: &HeaderMap, base: &Base) -> Option<Caller> {
        let text = bearer(headers)?;
        if self.token.is(text) {
            return Some(Caller::Owner);
        }
        let token = Token::split(text)?;
        if let Some(claims) = self.identities.keys.read(Use::Access, &token) {
            return is_ours(&claims.aud, base)
                .then(|| self.subject(&claims))
                .flatten();
        }
        let outside = self.identities.outside.as_ref()?;
        let subject = outside.subject(&token, self.identities.seconds()).await?;
        Some(Caller::Outside(subject.into()))
    }

    /// Whom the claims are about, if that one is still there (U3).
    fn subject(&self, claims: &Claims) -> Option<Caller> {
        if claims.idtyp == jobs::KIND {
            let job: JobId = serde_json::from_str(&claims.sub).ok()?;
            return jobs::runs(&self.control, &job).then_some(Caller::Job(job));
        }
        if claims.sub == OWNER {
            return (claims.sid == owner_secret(&self.token)).then_some(Caller::Owner);
        }
        let entries = self.identities.directory.look();
        let (_, identity) = entries.identity(&claims.sub)?;
        (identity.secret_id == claims.sid).then(|| Caller::Identity(identity.name.as_str().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scheme;

    #[test]
    fn u2_an_audience_is_this_server_or_the_service() {
        let base = Base {
            scheme: Scheme::Https,
            host: "127.0.0.1:8443".into(),
        };
        for (audience, ours) in [
            ("https://127.0.0.1:8443", true),
            ("https://127.0.0.1:8443/", true),
            ("https://ml.azure.local", true),
            ("https://127.0.0.1:8444", false),
            ("https://localhost:8443", false),
            ("https://management.azure.com", false),
            ("127.0.0.1:8443", false),
            ("", false),
        ] {
            assert_eq!(is_ours(audience, &base), ours, "{audience}");
        }
    }
}
