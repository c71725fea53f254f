//! Secrets inside documents: sealed before they are stored, opened for who may see them.
//!
//! X1 a stored document holds a secret only sealed, and the key lies in a file of its own (I9);
//! X2 a sealed text opens only in the document and at the place that it was sealed for;
//! X3 a secret that was given stays until another is given: clients send documents back without the secrets that they were
//!    not shown.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use model::{DocKey, Document};
use serde_json::{Value, json};
use wire::arm::secrets;

use crate::problem::Problem;

/// Bytes of the key that seals.
pub const SEAL_KEY_BYTES: usize = 32;
/// How sealed texts begin; the digit counts the forms.
const MARK: &str = "sealed:1:";

/// The key that seals secrets, and does nothing else.
pub struct SealKey(LessSafeKey);

impl SealKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; SEAL_KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &bytes).expect("a key of the right length");
        SealKey(LessSafeKey::new(key))
    }

    /// A key that nobody else has, for as long as this process lives.
    pub(crate) fn fleeting() -> Self {
        let mut bytes = [0; SEAL_KEY_BYTES];
        getrandom::fill(&mut bytes).expect("the system gives randomness");
        SealKey::new(bytes)
    }

    fn seal(&self, place: &str, text: &str) -> Result<String, Problem> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|e| Problem::internal("sealing a secret", &e))?;
        let mut bytes = text.as_bytes().to_vec();
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(place.as_bytes()),
                &mut bytes,
            )
            .map_err(|e| Problem::internal("sealing a secret", &e))?;
        let mut whole = nonce.to_vec();
        whole.append(&mut bytes);
        Ok(format!("{MARK}{}", crate::base64(&whole)))
    }

    fn open(&self, place: &str, sealed: &str) -> Option<String> {
        let mut bytes = crate::from_base64(sealed.strip_prefix(MARK)?)?;
        let nonce: [u8; NONCE_LEN] = bytes.get(..NONCE_LEN)?.try_into().ok()?;
        let open = self
            .0
            .open_in_place(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(place.as_bytes()),
                &mut bytes[NONCE_LEN..],
            )
            .ok()?;
        String::from_utf8(open.to_vec()).ok()
    }
}

/// What a secret is bound to (X2). Names compare without case, so this is lower case.
fn place(key: &DocKey, pointer: &str) -> String {
    let w = &key.workspace;
    format!(
        "{}\n{}\n{}\n{:?}\n{}\n{pointer}",
        w.subscription, w.group, w.name, key.kind, key.path
    )
    .to_lowercase()
}

/// `body` with its secrets sealed; what it does not give is taken over from what is stored (X1, X3).
pub(crate) fn sealed(
    seal: &SealKey,
    key: &DocKey,
    body: &Value,
    before: Option<&Document>,
    pointers: &[&str],
) -> Result<Value, Problem> {
    let mut out = body.clone();
    let mut old = before.map(crate::arm::put::body).transpose()?;
    let key = before.map_or(key, |d| &d.key);
    for pointer in pointers {
        let given = secrets::take_text(&mut out, pointer)?;
        let kept = old.as_mut().and_then(|old| secrets::take(old, pointer));
        match (given, kept) {
            (Some(text), _) => {
                let text = seal.seal(&place(key, pointer), &text)?;
                secrets::put(&mut out, pointer, &json!(text));
            }
            (None, Some(kept)) => secrets::put(&mut out, pointer, &kept),
            (None, None) => {}
        }
    }
    Ok(out)
}

/// Seals the secrets that a patch gives.
pub(crate) fn seal_given(
    seal: &SealKey,
    key: &DocKey,
    patch: &mut Value,
    pointers: &[&str],
) -> Result<(), Problem> {
    for pointer in pointers {
        if let Some(text) = secrets::take_text(patch, pointer)? {
            let text = seal.seal(&place(key, pointer), &text)?;
            secrets::put(patch, pointer, &json!(text));
        }
    }
    Ok(())
}

/// `body` of a stored document with its secrets open.
pub(crate) fn opened(
    seal: &SealKey,
    document: &Document,
    body: &Value,
    pointers: &[&str],
) -> Result<Value, Problem> {
    let mut out = body.clone();
    for pointer in pointers {
        let Some(sealed) = secrets::take(&mut out, pointer) else {
            continue;
        };
        let text = sealed
            .as_str()
            .and_then(|text| seal.open(&place(&document.key, pointer), text))
            .ok_or_else(|| {
                let path = &document.key.path;
                Problem::internal(
                    "opening a secret",
                    &format!("{path}: it was sealed with another key"),
                )
            })?;
        secrets::put(&mut out, pointer, &json!(text));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Kind, Workspace};

    #[test]
    fn x2_a_sealed_text_opens_at_its_place_only() {
        let seal = SealKey::new([7; SEAL_KEY_BYTES]);
        let workspace = Workspace::new("s", "g", "w");
        let key = |name: &str| DocKey::new(&workspace, Kind::Compute, name);
        let at = place(&key("VM"), "/a/b");
        let sealed = seal.seal(&at, "hunter2").unwrap();
        assert!(!sealed.contains("hunter2"));
        assert_ne!(sealed, seal.seal(&at, "hunter2").unwrap());
        let open = |name: &str, pointer: &str| seal.open(&place(&key(name), pointer), &sealed);
        assert_eq!(open("vm", "/a/b").as_deref(), Some("hunter2"));
        assert_eq!(open("vm2", "/a/b"), None);
        assert_eq!(open("vm", "/a/c"), None);
        assert_eq!(SealKey::new([8; SEAL_KEY_BYTES]).open(&at, &sealed), None);
        for wrong in ["", "sealed:1:", "sealed:1:AAAA", "hunter2"] {
            assert_eq!(seal.open(&at, wrong), None);
        }
    }
}
