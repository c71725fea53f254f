//! Signing in on a machine that has no secret (RFC 8628): it shows a code, and somebody who is signed in elsewhere approves it.
//!
//! V1 a device becomes whoever approves it, and nobody else: a code alone gives nothing;
//! V2 a code is used once, lives for minutes, and there are never many: what waits is in memory and bounded.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use model::Time;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use wire::access::{IdentityKind, OWNER};

use super::{
    Caller, Subject, owner_secret, secret,
    sign_in::{self, Refused},
};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    query::Query,
    reply,
};

/// How a device asks for its token.
pub(super) const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Devices that wait at once; a person has one.
const MAX_WAITING: usize = 256;
/// Seconds that a code lives: time to walk to another machine.
const SECONDS: u64 = 900;
/// Seconds between two questions of a device.
const INTERVAL: u64 = 2;
/// Bytes of randomness in what a device proves itself with.
const DEVICE_BYTES: usize = 32;
/// Letters of a code: none is mistaken for another, and no words come out.
const LETTERS: &[u8] = b"BCDFGHJKLMNPQRSTVWXZ";
/// Letters of a code: with 20 of them 2.5e10 codes, of which minutes try few.
const CODE: usize = 8;
/// Longest name of a client.
const MAX_CLIENT_BYTES: usize = 128;

/// The devices that wait, by what they prove themselves with.
#[derive(Default)]
pub(crate) struct Devices(Mutex<HashMap<String, Waiting>>);

struct Waiting {
    code: String,
    client: String,
    audience: String,
    ends: Time,
    approved: Option<Subject>,
}

impl Devices {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// POST the beginning: a code for the person and one for the device.
pub(crate) fn begin(api: &Arc<Api>, call: &Call) -> Answer {
    Ok(match start(api, call) {
        Ok(body) => reply::ok(&body),
        Err(refused) => refused.into_response(),
    })
}

fn start(api: &Api, call: &Call) -> Result<Value, Refused> {
    let form = sign_in::form(call)?;
    let client = form.get("client_id").unwrap_or_default();
    if client.is_empty() || client.len() > MAX_CLIENT_BYTES {
        return Err(Refused::new(
            "invalid_request",
            "client_id is missing or too long",
        ));
    }
    let audience = sign_in::audience(call, &form)?;
    let (device, code) = codes().map_err(|e| Refused::broken("a new code", &e))?;
    let now = api.identities.keys.now();
    let mut devices = api.identities.devices.lock();
    devices.retain(|_, waiting| now < waiting.ends);
    if devices.len() >= MAX_WAITING {
        return Err(Refused::new(
            "temporarily_unavailable",
            format!("{MAX_WAITING} devices wait for approval already"),
        ));
    }
    let waiting = Waiting {
        code: code.clone(),
        client: client.to_owned(),
        audience,
        ends: Time(now.0.saturating_add(SECONDS * 1000)),
        approved: None,
    };
    devices.insert(device.clone(), waiting);
    let at = format!("{}/devicelogin", call.base.url());
    Ok(json!({
        "device_code": device,
        "user_code": code,
        "verification_uri": at,
        "expires_in": SECONDS,
        "interval": INTERVAL,
        "message": format!(
            "To sign in, open {at} and enter the code {code}, or run `zaffre identity approve {code}` where you are signed in."
        ),
    }))
}

fn codes() -> std::io::Result<(String, String)> {
    let mut bytes = [0; CODE];
    let mut code = String::new();
    while code.len() < CODE {
        getrandom::fill(&mut bytes).map_err(|e| std::io::Error::other(e.to_string()))?;
        // Bytes above the last whole multiple would make some letters likelier.
        let fair = bytes.iter().filter(|b| usize::from(**b) < 240);
        let letters = fair.map(|b| char::from(LETTERS[usize::from(*b) % LETTERS.len()]));
        code.extend(letters.take(CODE - code.len()));
    }
    code.insert(CODE / 2, '-');
    Ok((secret::word::<DEVICE_BYTES>()?, code))
}

/// The token of a device, once it is approved (V2).
pub(super) fn redeem(api: &Api, call: &Call, form: &Query) -> Result<Value, Refused> {
    let device = form.get("device_code").unwrap_or_default();
    let now = api.identities.keys.now();
    let mut devices = api.identities.devices.lock();
    let gone = || {
        Refused::new(
            "expired_token",
            "the code has expired or was used: begin again",
        )
    };
    let waiting = devices.get(device).ok_or_else(gone)?;
    if waiting.ends <= now || form.get("client_id") != Some(&waiting.client) {
        return Err(gone());
    }
    if waiting.approved.is_none() {
        return Err(Refused::new(
            "authorization_pending",
            "nobody has approved it yet",
        ));
    }
    let waiting = devices.remove(device).ok_or_else(gone)?;
    drop(devices);
    let who = waiting.approved.ok_or_else(gone)?;
    sign_in::answer_person(api, call, &who, &waiting.client, &waiting.audience)
}

/// Gives the device with `code` the identity `who` (V1); false when there is none.
fn give(api: &Api, code: &str, who: &Subject) -> bool {
    let letters = |text: &str| -> String {
        let letters = text.chars().filter(char::is_ascii_alphanumeric);
        letters.map(|c| c.to_ascii_uppercase()).collect()
    };
    let now = api.identities.keys.now();
    let wanted = letters(code);
    let mut devices = api.identities.devices.lock();
    let waiting = devices
        .values_mut()
        .find(|w| w.approved.is_none() && now < w.ends && letters(&w.code) == wanted);
    match waiting {
        Some(waiting) => {
            waiting.approved = Some(who.clone());
            true
        }
        None => false,
    }
}

/// POST the approval of a code by who is signed in.
pub(crate) fn approve(api: &Arc<Api>, call: &Call) -> Answer {
    let body: Value = call.json()?;
    let code = body["userCode"].as_str().unwrap_or_default();
    let who = match &call.caller {
        Some(Caller::Owner) => Subject {
            sub: OWNER.to_owned(),
            kind: IdentityKind::User.word(),
            secret: owner_secret(&api.token),
        },
        Some(Caller::Identity(name)) => {
            let entries = api.identities.directory.look();
            let (_, identity) = entries.identity(name).ok_or_else(Problem::unauthorized)?;
            Subject {
                sub: identity.name.clone(),
                kind: IdentityKind::User.word(),
                secret: identity.secret_id.clone(),
            }
        }
        // What they hold ends soon; a device would go on for a month.
        Some(Caller::Job(_) | Caller::Outside(_)) | None => {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "AuthorizationFailed",
                "only an identity of this server approves a device",
            ));
        }
    };
    if !give(api, code, &who) {
        return Err(unknown(code));
    }
    Ok(reply::ok(&json!({"userCode": code, "approved": true})))
}

fn unknown(code: &str) -> Problem {
    Problem::missing(format!(
        "no device waits with the code `{}`",
        wire::names::shown(code)
    ))
    .hint("codes live for 15 minutes; begin again on the device")
}

const FORM: &str = "<form method=post>\
<p><label>Code <input name=code autocomplete=off autofocus required></label></p>\
<p><label>Identity <input name=name autocomplete=username required></label></p>\
<p><label>Secret <input name=secret type=password autocomplete=current-password required></label></p>\
<p><button>Approve</button></p></form>";

/// GET the page that the code is entered on.
pub(crate) fn page(_api: &Arc<Api>, _call: &Call) -> Answer {
    Ok(html(
        StatusCode::OK,
        "Enter the code that the other machine shows, and who you are.",
        FORM,
    ))
}

/// POST what was entered there.
pub(crate) async fn submit(api: Arc<Api>, call: Call) -> Answer {
    let again = |status, text: &str| Ok(html(status, text, FORM));
    let Ok(form) = sign_in::form(&call) else {
        return again(StatusCode::BAD_REQUEST, "The form is not readable.");
    };
    let text = |name| form.get(name).unwrap_or_default();
    match sign_in::signed_in(&api, text("name"), text("secret")).await {
        Err(refused) => again(
            refused.status,
            "There is no identity with this name and secret.",
        ),
        Ok(who) if give(&api, text("code"), &who) => Ok(html(
            StatusCode::OK,
            "Approved. The other machine is signed in; this page can be closed.",
            "",
        )),
        Ok(_) => again(StatusCode::NOT_FOUND, "No device waits with this code."),
    }
}

/// A page without anything of the request in it.
fn html(status: StatusCode, text: &str, rest: &str) -> Response {
    let page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Sign in a device</title><p>{text}</p>{rest}</html>"
    );
    let mut response = reply::raw(status, page.into());
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_readable_and_differ() {
        let (device, code) = codes().unwrap();
        assert_eq!((code.len(), code.as_bytes()[4]), (CODE + 1, b'-'));
        let letters = code.bytes().filter(|b| *b != b'-');
        assert!(letters.clone().all(|b| LETTERS.contains(&b)), "{code}");
        let (other, another) = codes().unwrap();
        assert!(device != other && code != another);
    }
}
