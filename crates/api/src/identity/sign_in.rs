//! Where tokens come from: the OpenID configuration, the token endpoint, and the endpoint that jobs ask (wire §1).
//!
//! A tenant is a word of the client's: there is one directory, and each name of it answers the same. `adfs` is the one that
//! lets Azure's libraries sign in without asking a service of Azure first.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::access::{IdentityKind, OWNER};

use super::{
    ACCESS_SECONDS, Asked, Caller, REFRESH_SECONDS, Subject, device, is_ours, jobs,
    jwt::{Token, Use},
    owner_secret,
    secret::Checked,
};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    query::Query,
    reply,
};

/// The tenant of clients that name none.
const TENANT: &str = "adfs";
/// What a scope ends with that means all of a resource.
const DEFAULT_SCOPE: &str = "/.default";

/// GET the OpenID configuration of a tenant.
pub(crate) fn configuration(_api: &Arc<Api>, call: &Call) -> Answer {
    let tenant = crate::query::encode_path(call.param("tenant"));
    let at = format!("{}/{tenant}", call.base.url());
    Ok(reply::ok(&json!({
        "issuer": format!("{at}/v2.0"),
        "token_endpoint": format!("{at}/oauth2/v2.0/token"),
        "authorization_endpoint": format!("{at}/oauth2/v2.0/authorize"),
        "device_authorization_endpoint": format!("{at}/oauth2/v2.0/devicecode"),
        "jwks_uri": format!("{at}/discovery/v2.0/keys"),
        "response_types_supported": ["token", "id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["EdDSA"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
        "grant_types_supported": ["client_credentials", "refresh_token", device::GRANT],
        "tenant_region_scope": null,
    })))
}

/// GET the keys that tokens are checked with.
pub(crate) fn jwks(api: &Arc<Api>, _call: &Call) -> Answer {
    Ok(reply::ok(&json!({"keys": api.identities.keys.jwks()})))
}

/// POST a token request: RFC 6749 §4.4 and §6, RFC 8628 §3.4.
pub(crate) async fn token(api: Arc<Api>, call: Call) -> Answer {
    Ok(match grant(&api, &call).await {
        Ok(body) => private(reply::ok(&body)),
        Err(refused) => refused.into_response(),
    })
}

/// A refusal as OAuth has it.
#[derive(Debug)]
pub(super) struct Refused {
    pub status: StatusCode,
    pub error: &'static str,
    pub description: String,
}

impl Refused {
    pub fn new(error: &'static str, description: impl Into<String>) -> Refused {
        let status = match error {
            "invalid_client" => StatusCode::UNAUTHORIZED,
            "temporarily_unavailable" => StatusCode::SERVICE_UNAVAILABLE,
            "server_error" => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Refused {
            status,
            error,
            description: description.into(),
        }
    }

    /// The same whatever was wrong with name or secret (U1).
    fn client() -> Refused {
        Refused::new(
            "invalid_client",
            "there is no identity with this client_id and client_secret",
        )
    }

    pub fn broken(what: &str, error: &dyn std::fmt::Display) -> Refused {
        tracing::error!(%error, what, "no token is given");
        Refused::new(
            "server_error",
            format!("{what} failed; the server's log has the reason"),
        )
    }

    pub fn into_response(self) -> Response {
        let body = json!({"error": self.error, "error_description": self.description});
        let mut response = private(reply::json(self.status, &body));
        if self.status == StatusCode::UNAUTHORIZED {
            let basic = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, basic);
        }
        response
    }
}

/// What has a token in it is kept by nobody on the way.
fn private(response: Response) -> Response {
    reply::with(response, "cache-control", "no-store")
}

/// The form that was sent.
pub(super) fn form(call: &Call) -> Result<Query, Refused> {
    let text = call
        .text()
        .map_err(|p| Refused::new("invalid_request", p.message))?;
    Ok(Query::parse(text))
}

async fn grant(api: &Api, call: &Call) -> Result<Value, Refused> {
    let form = form(call)?;
    match form.get("grant_type") {
        Some("client_credentials") => client_credentials(api, call, &form).await,
        Some("refresh_token") => refresh(api, call, &form),
        Some(device::GRANT) => device::redeem(api, call, &form),
        Some(other) => Err(Refused::new(
            "unsupported_grant_type",
            format!(
                "grant_type {} is none of client_credentials, refresh_token and {}",
                wire::names::shown(other),
                device::GRANT
            ),
        )),
        None => Err(Refused::new("invalid_request", "grant_type is missing")),
    }
}

/// The audience that a form asks a token for: a scope without `/.default`, or the older `resource`.
pub(super) fn audience(call: &Call, form: &Query) -> Result<String, Refused> {
    let scope = form.get("scope").unwrap_or_default();
    let whole = scope
        .split_ascii_whitespace()
        .find_map(|s| s.strip_suffix(DEFAULT_SCOPE));
    let Some(audience) = whole.or_else(|| form.get("resource")) else {
        return Err(Refused::new(
            "invalid_scope",
            format!(
                "scope `{}` names no resource, as in RESOURCE{DEFAULT_SCOPE}",
                wire::names::shown(scope)
            ),
        ));
    };
    known(call, audience)
}

/// Refuses an audience that nothing here would take.
fn known(call: &Call, audience: &str) -> Result<String, Refused> {
    if is_ours(audience, &call.base) {
        return Ok(audience.to_owned());
    }
    Err(Refused::new(
        "invalid_resource",
        format!(
            "resource {} is not this server, which was asked as {}",
            wire::names::shown(audience),
            call.base.url()
        ),
    ))
}

async fn client_credentials(api: &Api, call: &Call, form: &Query) -> Result<Value, Refused> {
    let audience = audience(call, form)?;
    let text = |name| form.get(name).unwrap_or_default();
    let (client, secret) = (text("client_id"), text("client_secret"));
    let who = signed_in(api, client, secret).await?;
    answer(api, call, &who, client, &audience)
}

/// Whom a name and a secret are of.
pub(super) async fn signed_in(api: &Api, client: &str, secret: &str) -> Result<Subject, Refused> {
    if client.eq_ignore_ascii_case(OWNER) {
        return match api.token.is(secret) {
            true => Ok(Subject {
                sub: OWNER.to_owned(),
                kind: IdentityKind::User.word(),
                secret: owner_secret(&api.token),
            }),
            false => Err(Refused::client()),
        };
    }
    let entries = api.identities.directory.look();
    let found = entries
        .identity(client)
        .map(|(_, identity)| identity.clone());
    let digest = found.as_deref().map(|identity| identity.digest.as_str());
    match (api.identities.secrets.check(secret, digest).await, found) {
        (Checked::Right, Some(identity)) => Ok(Subject {
            sub: identity.name.clone(),
            kind: match identity.kind {
                IdentityKind::User => IdentityKind::User.word(),
                IdentityKind::Service => "app",
            },
            secret: identity.secret_id.clone(),
        }),
        (Checked::Busy, _) => Err(Refused::new(
            "temporarily_unavailable",
            "too many sign-ins at once",
        )),
        _ => Err(Refused::client()),
    }
}

/// An access token and what goes with it.
fn answer(
    api: &Api,
    call: &Call,
    who: &Subject,
    client: &str,
    audience: &str,
) -> Result<Value, Refused> {
    let base = call.base.url();
    let asked = Asked {
        base: &base,
        tenant: call.param("tenant"),
        client,
    };
    let claims = api.identities.claims(who, audience, &asked, ACCESS_SECONDS);
    let token = api.identities.keys.sign(Use::Access, &claims);
    let token = token.map_err(|e| Refused::broken("signing", &e))?;
    Ok(json!({
        "token_type": "Bearer",
        "expires_in": ACCESS_SECONDS - 1,
        "ext_expires_in": ACCESS_SECONDS - 1,
        "access_token": token,
    }))
}

/// A token that opens one address for who asks, and no route of this server: its audience is that address (U2). Until when it
/// does comes with it, in seconds since 1970.
pub(crate) fn for_address(api: &Api, call: &Call, address: &str) -> Result<(String, u64), Problem> {
    let caller = call.caller.as_ref().ok_or_else(Problem::unauthorized)?;
    let who = match caller {
        Caller::Owner => Subject {
            sub: OWNER.to_owned(),
            kind: "app",
            secret: owner_secret(&api.token),
        },
        Caller::Identity(name) => {
            let entries = api.identities.directory.look();
            let (_, identity) = entries.identity(name).ok_or_else(Problem::unauthorized)?;
            Subject {
                sub: identity.name.clone(),
                kind: "app",
                secret: identity.secret_id.clone(),
            }
        }
        Caller::Job(job) => Subject {
            sub: serde_json::to_string(job).expect("ids can be written"),
            kind: jobs::KIND,
            secret: String::new(),
        },
        Caller::Outside(name) => {
            return Err(Problem::user(format!(
                "{name} signs in with another issuer: this server signs no tokens about its people"
            )));
        }
    };
    let base = call.base.url();
    let asked = Asked {
        base: &base,
        tenant: TENANT,
        client: OWNER,
    };
    let claims = api.identities.claims(&who, address, &asked, ACCESS_SECONDS);
    let token = api.identities.keys.sign(Use::Access, &claims);
    let token = token.map_err(|e| Problem::internal("signing", &e))?;
    Ok((token, claims.exp))
}

/// The same for a person, who also gets a refresh token and an ID token.
pub(super) fn answer_person(
    api: &Api,
    call: &Call,
    who: &Subject,
    client: &str,
    audience: &str,
) -> Result<Value, Refused> {
    let mut body = answer(api, call, who, client, audience)?;
    let base = call.base.url();
    let asked = Asked {
        base: &base,
        tenant: call.param("tenant"),
        client,
    };
    for (field, usage, audience, seconds) in [
        (
            "refresh_token",
            Use::Refresh,
            base.as_str(),
            REFRESH_SECONDS,
        ),
        ("id_token", Use::Id, client, ACCESS_SECONDS),
    ] {
        let claims = api.identities.claims(who, audience, &asked, seconds);
        let token = api.identities.keys.sign(usage, &claims);
        body[field] = token.map_err(|e| Refused::broken("signing", &e))?.into();
    }
    body["scope"] = format!("{audience}{DEFAULT_SCOPE} openid profile offline_access").into();
    Ok(body)
}

fn refresh(api: &Api, call: &Call, form: &Query) -> Result<Value, Refused> {
    let audience = audience(call, form)?;
    let text = |name| form.get(name).unwrap_or_default();
    let stale = || {
        Refused::new(
            "invalid_grant",
            "the refresh token is not of this server, has expired, or was ended by a new secret",
        )
    };
    let token = Token::split(text("refresh_token")).ok_or_else(stale)?;
    let claims = api.identities.keys.read(Use::Refresh, &token);
    let claims = claims.ok_or_else(stale)?;
    if claims.appid != text("client_id") || api.subject(&claims).is_none() {
        return Err(stale());
    }
    let who = Subject {
        kind: if claims.idtyp == "app" { "app" } else { "user" },
        sub: claims.sub,
        secret: claims.sid,
    };
    answer_person(api, call, &who, &claims.appid, &audience)
}

/// GET /msi/token: what `DefaultAzureCredential()` asks inside a job, with the secret of its `IDENTITY_HEADER`.
pub(crate) fn managed(api: &Arc<Api>, call: &Call) -> Answer {
    let key = api.identities.jobs.as_ref();
    let job = call
        .header("x-identity-header")
        .and_then(|secret| key?.job(secret))
        .filter(|job| jobs::runs(&api.control, job))
        .ok_or_else(|| {
            Problem::new(
                StatusCode::UNAUTHORIZED,
                "AuthenticationFailed",
                "the header X-IDENTITY-HEADER needs the secret of a job that has not ended",
            )
        })?;
    let resource = call.query.get("resource").unwrap_or_default();
    let resource = resource.strip_suffix(DEFAULT_SCOPE).unwrap_or(resource);
    let audience = known(call, resource).map_err(|r| Problem::bad(r.description))?;
    let who = Subject {
        sub: serde_json::to_string(&job).expect("ids can be written"),
        kind: jobs::KIND,
        secret: String::new(),
    };
    let base = call.base.url();
    let asked = Asked {
        base: &base,
        tenant: TENANT,
        client: jobs::KIND,
    };
    let claims = api
        .identities
        .claims(&who, &audience, &asked, ACCESS_SECONDS);
    let token = api.identities.keys.sign(Use::Access, &claims);
    let token = token.map_err(|e| Problem::internal("signing", &e))?;
    Ok(private(reply::ok(&json!({
        "access_token": token,
        "client_id": claims.oid,
        "expires_in": ACCESS_SECONDS.to_string(),
        "expires_on": claims.exp.to_string(),
        "not_before": claims.nbf.to_string(),
        "resource": resource,
        "token_type": "Bearer",
    }))))
}
