//! Who may: the bearer token of the server, and shared access signatures for blobs.
//!
//! S1 a token is compared by its SHA-256 digest, in constant time; the token itself is kept nowhere;
//! S2 a signature covers the resource, the permissions and the expiry: changing any of them makes it invalid;
//! S3 a signature for one container or blob opens no other.

use hmac::{Hmac, KeyInit, Mac};
use model::Time;
use sha2::{Digest, Sha256};

use crate::{query::Query, time};

/// Bytes of the key that signs.
pub const SAS_KEY_BYTES: usize = 32;
/// How long a signature for uploads and downloads is valid: a large upload over a slow line fits, a leaked log line ages.
pub(crate) const SAS_VALID_SECONDS: u64 = 8 * 3600;
/// The version of the storage service that the signature claims; clients only check that it is there.
const SAS_VERSION: &str = "2024-11-04";
/// A longer token is no token of ours; it is not even hashed.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// The digest of a bearer token (S1).
#[derive(Clone, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of `token`.
    pub fn of(token: &str) -> Self {
        TokenDigest(Sha256::digest(token.as_bytes()).into())
    }
    /// Whether it is the digest of this token.
    pub(crate) fn is(&self, token: &str) -> bool {
        if token.len() > MAX_TOKEN_BYTES {
            return false;
        }
        let seen: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        same(&seen, &self.0)
    }
    /// A name of the token that says nothing about it: the digest of its digest.
    pub(crate) fn name(&self) -> String {
        wire::places::hex(&Sha256::digest(self.0))
    }
}

/// Compares without leaving early.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |odd, (x, y)| odd | (x ^ y)) == 0
}

/// What a signature opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope<'a> {
    /// Every blob of a container, and its listing.
    Container(&'a str),
    /// One blob, `container/name`.
    Blob(&'a str),
}

/// What is done to a blob, as a letter of `sp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    Read,
    Write,
    Delete,
    List,
}

impl Permission {
    /// Azure's name of the action, for who comes with a token.
    pub fn action(self) -> &'static str {
        match self {
            Permission::Read => {
                "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read"
            }
            Permission::Write => {
                "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write"
            }
            Permission::Delete => {
                "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete"
            }
            Permission::List => "Microsoft.Storage/storageAccounts/blobServices/containers/read",
        }
    }
    /// Letters of `sp` that allow it: create (`c`) and add (`a`) are ways of writing.
    fn letters(self) -> &'static [char] {
        match self {
            Permission::Read => &['r'],
            Permission::Write => &['w', 'c', 'a'],
            Permission::Delete => &['d'],
            Permission::List => &['l'],
        }
    }
}

/// The key that signs, and signs alone.
pub struct SasKey([u8; SAS_KEY_BYTES]);

impl SasKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; SAS_KEY_BYTES]) -> Self {
        SasKey(bytes)
    }

    fn mac(&self, scope: Scope<'_>, permissions: &str, start: &str, expiry: &str) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        let (kind, resource) = match scope {
            Scope::Container(name) => ("c", name),
            Scope::Blob(path) => ("b", path),
        };
        // No field can hold a line break: sp, st and se are checked letters and digits, the resource comes last.
        for field in [
            "zaffre-sas",
            SAS_VERSION,
            permissions,
            start,
            expiry,
            kind,
            resource,
        ] {
            mac.update(field.as_bytes());
            mac.update(b"\n");
        }
        mac
    }

    /// A query string that opens `scope` with `permissions` until `SAS_VALID_SECONDS` after `now`. Only known SAS keys are in it:
    /// the SDK takes a string with any other key for an account key (wire §7).
    pub(crate) fn sign(&self, scope: Scope<'_>, permissions: &str, now: Time) -> String {
        let expiry = time::seconds(Time(now.0.saturating_add(SAS_VALID_SECONDS * 1000)));
        let signature = self
            .mac(scope, permissions, "", &expiry)
            .finalize()
            .into_bytes();
        let kind = match scope {
            Scope::Container(_) => "c",
            Scope::Blob(_) => "b",
        };
        format!(
            "sv={SAS_VERSION}&se={}&sr={kind}&sp={permissions}&sig={}",
            crate::query::encode(&expiry),
            crate::query::encode(&crate::base64(&signature))
        )
    }

    /// Whether `query` carries a valid signature that allows `permission` on `container` or, where given, its blob `path`.
    pub(crate) fn admits(
        &self,
        query: &Query,
        permission: Permission,
        container: &str,
        path: Option<&str>,
        now: Time,
    ) -> bool {
        let field = |name| query.get(name).unwrap_or_default();
        let (permissions, start, expiry) = (field("sp"), field("st"), field("se"));
        if field("sv") != SAS_VERSION
            || permissions.is_empty()
            || !permissions.bytes().all(|b| b.is_ascii_lowercase())
        {
            return false;
        }
        let scope = match (field("sr"), path) {
            ("c", _) => Scope::Container(container),
            ("b", Some(path)) => Scope::Blob(path),
            _ => return false,
        };
        let Some(ends) = time::parse(expiry) else {
            return false;
        };
        if !start.is_empty() && time::parse(start).is_none_or(|begins| begins > now) {
            return false;
        }
        let Some(signature) = crate::from_base64(field("sig")) else {
            return false;
        };
        self.mac(scope, permissions, start, expiry)
            .verify_slice(&signature)
            .is_ok()
            && now < ends
            && permission
                .letters()
                .iter()
                .any(|&l| permissions.contains(l))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_admitted() {
        let digest = TokenDigest::of("secret");
        assert!(digest.is("secret"));
        for wrong in ["secre", "secretx", "Secret", "", &"s".repeat(9_000)] {
            assert!(!digest.is(wrong), "{wrong}");
        }
        let name = digest.name();
        assert!(name != TokenDigest::of("secretx").name() && !name.contains("secret"));
    }

    #[test]
    fn a_signature_opens_what_it_names_until_it_ends() {
        let key = SasKey::new([7; SAS_KEY_BYTES]);
        let now = Time(1_800_000_000_000);
        let query = |text: &str| Query::parse(text);
        let sas = key.sign(Scope::Container("c1"), "rl", now);
        let admits = |sas: &str, permission, container, at| {
            key.admits(&query(sas), permission, container, Some("c1/x"), at)
        };
        assert!(admits(&sas, Permission::Read, "c1", now));
        assert!(admits(&sas, Permission::List, "c1", now));
        assert!(
            !admits(&sas, Permission::Write, "c1", now),
            "not signed for"
        );
        assert!(
            !admits(&sas, Permission::Read, "c2", now),
            "another container (S3)"
        );
        let late = Time(now.0 + SAS_VALID_SECONDS * 1000);
        assert!(!admits(&sas, Permission::Read, "c1", late), "expired");
        assert!(
            !admits(
                &sas.replace("sp=rl", "sp=rwl"),
                Permission::Write,
                "c1",
                now
            ),
            "S2"
        );
        assert!(
            !admits(&sas.replace("sr=c", "sr=b"), Permission::Read, "c1", now),
            "S2"
        );

        let one = key.sign(Scope::Blob("c1/x"), "r", now);
        assert!(admits(&one, Permission::Read, "c1", now));
        assert!(!key.admits(&query(&one), Permission::Read, "c1", Some("c1/y"), now));
        assert!(!key.admits(&query(&one), Permission::List, "c1", None, now));
        let other = SasKey::new([8; SAS_KEY_BYTES]);
        assert!(!other.admits(&query(&one), Permission::Read, "c1", Some("c1/x"), now));
    }

    /// F9: what is signed is every bit of what the signature says; only another spelling of the same query opens as well.
    #[test]
    fn f9_no_bit_of_a_signature_may_change() {
        let key = SasKey::new([7; SAS_KEY_BYTES]);
        let now = Time(1_800_000_000_000);
        let sas = key.sign(Scope::Container("c1"), "rl", now);
        let opens = |text: &str| {
            key.admits(
                &Query::parse(text),
                Permission::Read,
                "c1",
                Some("c1/x"),
                now,
            )
        };
        let said = |text: &str| -> Vec<Option<String>> {
            let query = Query::parse(text);
            let names = ["sv", "st", "se", "sr", "sp", "sig"];
            names.map(|name| query.get(name).map(str::to_owned)).into()
        };
        assert!(opens(&sas));
        let mut refused = 0;
        for bit in 0..sas.len() * 8 {
            let mut bytes = sas.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(changed) = String::from_utf8(bytes) else {
                continue;
            };
            assert_eq!(opens(&changed), said(&changed) == said(&sas), "{changed}");
            refused += usize::from(!opens(&changed));
        }
        assert!(refused > 700, "only {refused} were refused");
    }
}
