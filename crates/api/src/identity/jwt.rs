//! JSON Web Tokens: ours are signed with Ed25519, those of others are checked with what their keys say.
//!
//! J1 the algorithm comes from the key, never from the token: a token that names another one is refused;
//! J2 a token says in its header what it is for, and opens nothing else: an ID token or a refresh token is no access token;
//! J3 a token that cannot be checked says nothing: there is one refusal for all that is wrong with it.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A longer token is none; it is not even decoded.
pub(crate) const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// Keys of another issuer that are looked at.
const MAX_KEYS: usize = 64;

/// What a token is for (J2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Opens routes.
    Access,
    /// Gets new access tokens.
    Refresh,
    /// Tells a client who signed in.
    Id,
}

impl Use {
    fn word(self) -> &'static str {
        match self {
            Use::Access => "at+jwt",
            Use::Refresh => "rt+jwt",
            Use::Id => "JWT",
        }
    }
}

/// What our tokens say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub aud: String,
    pub iss: String,
    /// Seconds since 1970, as all times here.
    pub iat: u64,
    pub nbf: u64,
    pub exp: u64,
    /// The tenant that was asked.
    pub tid: String,
    /// Whose token it is: the name of an identity, or a job as JSON.
    pub sub: String,
    /// Its stable object id.
    pub oid: String,
    /// The client that asked.
    pub appid: String,
    /// What kind of principal it is: `user`, `app` or `job`.
    pub idtyp: String,
    /// The secret that it was got with, so that it dies with that.
    pub sid: String,
    /// What ID tokens call a person.
    pub preferred_username: String,
}

/// A key that signs.
pub(crate) struct Signer {
    pub id: String,
    pair: Ed25519KeyPair,
}

impl Signer {
    /// The key of a seed of 32 bytes.
    pub fn new(seed: &[u8]) -> Option<Signer> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let id = wire::places::hex(&<sha2::Sha256 as sha2::Digest>::digest(
            pair.public_key().as_ref(),
        ));
        Some(Signer {
            id: id[..16].to_owned(),
            pair,
        })
    }

    /// A token.
    pub fn sign(&self, usage: Use, claims: &Claims) -> String {
        let header = json!({"alg": "EdDSA", "typ": usage.word(), "kid": self.id});
        let claims = serde_json::to_vec(claims).expect("claims are texts and numbers");
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self.pair.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut token);
        token
    }

    /// The public part, as a JWK.
    pub fn jwk(&self) -> Value {
        json!({
            "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": self.id,
            "x": URL_SAFE_NO_PAD.encode(self.pair.public_key().as_ref()),
        })
    }

    /// The claims of a token that this key has signed for this use.
    pub fn read(&self, usage: Use, token: &Token<'_>) -> Option<Claims> {
        let header = &token.header;
        if header["alg"] != "EdDSA" || header["typ"] != usage.word() || header["kid"] != self.id {
            return None;
        }
        let key = UnparsedPublicKey::new(&ED25519, self.pair.public_key().as_ref());
        key.verify(token.signed.as_bytes(), &token.signature).ok()?;
        serde_json::from_slice(&token.claims).ok()
    }
}

/// A token, taken apart and not checked.
pub(crate) struct Token<'a> {
    pub header: Value,
    signed: &'a str,
    claims: Vec<u8>,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    pub fn split(text: &'a str) -> Option<Token<'a>> {
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        Some(Token {
            header: serde_json::from_slice(&decode(header)?).ok()?,
            signed,
            claims: decode(claims)?,
            signature: decode(signature)?,
        })
    }

    /// Which key it names.
    pub fn key_id(&self) -> Option<&str> {
        self.header["kid"].as_str()
    }
}

/// The public keys of another issuer.
#[derive(Debug, Default)]
pub(crate) struct Jwks(Vec<Jwk>);

#[derive(Debug)]
struct Jwk {
    id: Option<String>,
    key: Key,
}

/// What a signature is checked with (J1).
#[derive(Debug)]
enum Key {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Jwks {
    /// The keys of a JWKS document that sign and are of a kind that is known; others are passed over.
    pub fn parse(document: &Value) -> Jwks {
        let keys = document["keys"].as_array().into_iter().flatten();
        let keys = keys.filter(|k| k["use"].is_null() || k["use"] == "sig");
        Jwks(keys.filter_map(Jwk::parse).take(MAX_KEYS).collect())
    }

    /// Whether a key of this id is there.
    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|k| k.id.as_deref() == Some(id))
    }

    /// The claims of a token that one of the keys has signed.
    pub fn read(&self, token: &Token<'_>) -> Option<Value> {
        let id = token.key_id();
        let algorithm = token.header["alg"].as_str()?;
        let fits = |k: &&Jwk| id.is_none() || k.id.as_deref() == id;
        let signed = self.0.iter().filter(fits).any(|k| {
            k.key
                .verify(algorithm, token.signed.as_bytes(), &token.signature)
        });
        signed.then(|| serde_json::from_slice(&token.claims).ok())?
    }
}

impl Jwk {
    fn parse(jwk: &Value) -> Option<Jwk> {
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str()?).ok();
        let point = |size: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == size && y.len() == size).then(|| [&[4], &x[..], &y[..]].concat())
        };
        let key = match (jwk["kty"].as_str()?, jwk["crv"].as_str()) {
            ("RSA", _) => Key::Rsa {
                n: bytes("n")?,
                e: bytes("e")?,
            },
            ("EC", Some("P-256")) => Key::P256(point(32)?),
            ("EC", Some("P-384")) => Key::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Key::Ed25519(bytes("x")?),
            _ => return None,
        };
        let id = jwk["kid"].as_str().map(str::to_owned);
        Some(Jwk { id, key })
    }
}

impl Key {
    fn verify(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> bool {
        let checked = match (self, algorithm) {
            (Key::Rsa { n, e }, "RS256" | "RS384" | "RS512") => {
                let parameters = match algorithm {
                    "RS256" => &RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &RSA_PKCS1_2048_8192_SHA384,
                    _ => &RSA_PKCS1_2048_8192_SHA512,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature)
            }
            (Key::P256(point), "ES256") => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            (Key::P384(point), "ES384") => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(signed, signature)
            }
            (Key::Ed25519(key), "EdDSA") => {
                UnparsedPublicKey::new(&ED25519, key).verify(signed, signature)
            }
            _ => return false,
        };
        checked.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            sub: "me".into(),
            aud: "https://x".into(),
            ..Claims::default()
        }
    }

    #[test]
    fn j2_a_token_is_for_one_use_and_of_one_key() {
        let signer = Signer::new(&[7; 32]).unwrap();
        let text = signer.sign(Use::Access, &claims());
        let token = Token::split(&text).unwrap();
        assert_eq!(signer.read(Use::Access, &token), Some(claims()));
        assert_eq!(signer.read(Use::Refresh, &token), None);
        assert_eq!(signer.read(Use::Id, &token), None);
        let other = Signer::new(&[8; 32]).unwrap();
        assert_eq!(other.read(Use::Access, &token), None);
    }

    #[test]
    fn whatever_is_changed_the_token_is_none() {
        let signer = Signer::new(&[7; 32]).unwrap();
        let text = signer.sign(Use::Access, &claims());
        let read = |text: &str| signer.read(Use::Access, &Token::split(text)?);
        for at in 0..text.len() {
            for bit in 0..7 {
                let mut changed = text.clone().into_bytes();
                changed[at] ^= 1 << bit;
                let changed = String::from_utf8(changed).unwrap();
                assert_eq!(read(&changed), None, "bit {bit} of byte {at} (F9)");
            }
            assert_eq!(read(&text[..at]), None, "cut at {at}");
        }
        let parts: Vec<&str> = text.split('.').collect();
        let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none", "typ": "at+jwt"}).to_string());
        assert_eq!(read(&format!("{none}.{}.", parts[1])), None);
        assert_eq!(read(&"a".repeat(MAX_TOKEN_BYTES + 1)), None);
    }

    /// F9: what a token says of how it is to be checked is not believed.
    #[test]
    fn f9_a_token_does_not_choose_its_key() {
        use aws_lc_rs::hmac;
        let signer = Signer::new(&[7; 32]).unwrap();
        let mut jwk = signer.jwk();
        // A key of others may leave its algorithm open.
        jwk.as_object_mut().unwrap().remove("alg");
        let keys = Jwks::parse(&json!({"keys": [jwk]}));
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims()).unwrap());
        let public = signer.pair.public_key().as_ref().to_vec();
        let written = signer.jwk()["x"].as_str().unwrap().as_bytes().to_vec();
        let own = Signer::new(&[8; 32]).unwrap();
        let read = |text: &str| {
            let token = Token::split(text)?;
            let ours = signer.read(Use::Access, &token).is_some();
            (ours || keys.read(&token).is_some()).then_some(())
        };
        let typ = Use::Access.word();
        for algorithm in [
            "HS256", "HS384", "hs256", "none", "None", "", "EdDSA", "RS256", "ES256",
        ] {
            let header = json!({"alg": algorithm, "typ": typ, "kid": signer.id});
            let header = URL_SAFE_NO_PAD.encode(header.to_string());
            let signed = format!("{header}.{claims}");
            assert_eq!(
                read(&format!("{signed}.")),
                None,
                "{algorithm} without a signature"
            );
            // The public key, taken for a secret.
            for secret in [&public, &written] {
                for hash in [hmac::HMAC_SHA256, hmac::HMAC_SHA384] {
                    let tag = hmac::sign(&hmac::Key::new(hash, secret), signed.as_bytes());
                    let tag = URL_SAFE_NO_PAD.encode(tag.as_ref());
                    assert_eq!(read(&format!("{signed}.{tag}")), None, "{algorithm}");
                }
            }
        }
        // A key of one's own, by every way to name it.
        let mine = own.jwk();
        for more in [
            json!({"kid": own.id}),
            json!({"kid": signer.id, "jwk": mine}),
            json!({"kid": signer.id, "jku": "https://127.0.0.1/keys"}),
            json!({"kid": "../../../../dev/null"}),
            json!({"kid": "' OR 1=1 --"}),
            json!({"kid": ["a"]}),
            json!({}),
        ] {
            let mut header = json!({"alg": "EdDSA", "typ": typ});
            header
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let signed = format!("{}.{claims}", URL_SAFE_NO_PAD.encode(header.to_string()));
            let signature = URL_SAFE_NO_PAD.encode(own.pair.sign(signed.as_bytes()).as_ref());
            assert_eq!(read(&format!("{signed}.{signature}")), None, "{more}");
        }
    }

    #[test]
    fn j1_keys_of_others_are_read_and_their_algorithm_is_theirs() {
        let signer = Signer::new(&[9; 32]).unwrap();
        let text = signer.sign(Use::Access, &claims());
        let token = Token::split(&text).unwrap();
        let keys = Jwks::parse(&json!({"keys": [
            {"kty": "oct", "k": "AAAA"},
            {"kty": "RSA", "kid": signer.id, "n": "AQAB", "e": "AQAB"},
            signer.jwk(),
        ]}));
        assert!(keys.has(&signer.id) && !keys.has("x"));
        assert_eq!(keys.read(&token).unwrap()["sub"], "me");
        let mut encryption = signer.jwk();
        encryption["use"] = "enc".into();
        assert!(
            Jwks::parse(&json!({"keys": [encryption]}))
                .read(&token)
                .is_none()
        );
        assert!(Jwks::default().read(&token).is_none());
    }
}
