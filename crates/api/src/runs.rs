//! The credential of a run: what a job holds to log what it measures.
//!
//! C1 a credential names one run and opens the tracking routes of that run's workspace, nothing else;
//! C2 it is worth nothing before its run is submitted and after it has ended;
//! C3 it is made of the run's id and a key: nothing about it is stored.

use axum::http::{HeaderMap, Uri, header};
use hmac::{Hmac, KeyInit, Mac};
use model::{JobId, Workspace};
use sha2::Sha256;

use crate::{Api, route::Route};

/// Bytes of the key that signs credentials of runs.
pub const RUN_KEY_BYTES: usize = 32;
/// What the signature is for: a key that should ever sign something else cannot be made to sign this.
const PURPOSE: &[u8] = b"zaffre-run\n";
/// A longer credential is none of ours.
const MAX_BYTES: usize = 4 * 1024;

/// The key that signs credentials of runs, and signs them alone.
#[derive(Clone)]
pub struct RunKey([u8; RUN_KEY_BYTES]);

impl RunKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; RUN_KEY_BYTES]) -> Self {
        RunKey(bytes)
    }

    fn mac(&self, run: &str) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(PURPOSE);
        mac.update(run.as_bytes());
        mac
    }

    /// The credential of a run (C3).
    pub fn credential(&self, run: &JobId) -> String {
        let run = serde_json::to_string(run).expect("ids can be written");
        let signature = self.mac(&run).finalize().into_bytes();
        format!(
            "{}.{}",
            crate::base64(run.as_bytes()),
            crate::base64(&signature)
        )
    }

    /// The run whose credential the headers carry.
    pub(crate) fn run(&self, headers: &HeaderMap) -> Option<JobId> {
        let header = headers.get(header::AUTHORIZATION)?.as_bytes();
        let (scheme, credential) = header.split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") || credential.len() > MAX_BYTES {
            return None;
        }
        let text = std::str::from_utf8(credential).ok()?;
        let (run, signature) = text.trim().split_once('.')?;
        let run = String::from_utf8(crate::from_base64(run)?).ok()?;
        self.mac(&run)
            .verify_slice(&crate::from_base64(signature)?)
            .ok()?;
        serde_json::from_str(&run).ok()
    }
}

/// Whether the request carries the credential of a run of its workspace that goes on (C1, C2).
pub(crate) fn admits(api: &Api, route: &Route, headers: &HeaderMap, uri: &Uri) -> bool {
    let Some(run) = api.runs.as_ref().and_then(|key| key.run(headers)) else {
        return false;
    };
    let Ok(params) = crate::call::params(route.template, uri.path()) else {
        return false;
    };
    let named = |name: &str| {
        let mut all = params.iter();
        all.find(|(n, _)| *n == name)
            .map_or("", |(_, v)| v.as_str())
    };
    let asked = Workspace::new(named("s"), named("g"), named("w"));
    let view = api.control.view();
    let goes_on = view.runs.get(&run).is_some_and(|r| !r.state.is_done());
    goes_on && *asked == **run.workspace()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn c1_a_credential_is_one_runs() {
        let run = |name: &str| JobId::new(&Workspace::new("s", "g", "学習"), name);
        let key = RunKey::new([7; RUN_KEY_BYTES]);
        let read = |key: &RunKey, text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, text.parse().unwrap());
            key.run(&headers)
        };
        let one = key.credential(&run("one"));
        assert_eq!(read(&key, &format!("Bearer {one}")), Some(run("one")));
        let two = key.credential(&run("two"));
        let (_, of_two) = two.split_once('.').unwrap();
        let (name, _) = one.split_once('.').unwrap();
        for wrong in [
            format!("Bearer {name}.{of_two}"),
            format!("Bearer {name}."),
            format!("Basic {one}"),
            "Bearer x.y".into(),
            one.clone(),
        ] {
            assert_eq!(read(&key, &wrong), None, "{wrong}");
        }
        let other = RunKey::new([8; RUN_KEY_BYTES]);
        assert_eq!(read(&other, &format!("Bearer {one}")), None);
    }

    /// F9: a credential is good as it was given, and with no bit changed.
    #[test]
    fn f9_no_bit_of_a_credential_may_change() {
        let key = RunKey::new([7; RUN_KEY_BYTES]);
        let run = JobId::new(&Workspace::new("s", "g", "w"), "one");
        let credential = key.credential(&run);
        let read = |bytes: &[u8]| {
            let mut headers = HeaderMap::new();
            let whole = [b"Bearer ", bytes].concat();
            // Not every text can stand in a header.
            headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(&whole).ok()?);
            key.run(&headers)
        };
        assert_eq!(read(credential.as_bytes()), Some(run));
        for bit in 0..credential.len() * 8 {
            let mut bytes = credential.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bytes), None, "bit {bit}");
        }
    }
}
