//! Tokens of another issuer (OpenID Connect): who has none of ours may show one of theirs.
//!
//! X1 a token is taken from the one issuer that the server was told of, for the audience that it was told, while it is alive;
//! X2 its keys are asked for when a token names one that is not known, at most once in a while, and kept: who sends nonsense
//!    makes no requests.

use futures_util::future::BoxFuture;
use serde_json::Value;
use std::{
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};
use wire::access::OUTSIDE;

use super::jwt::{Jwks, Token};

/// Pause between two questions for the keys (X2).
const PAUSE: Duration = Duration::from_secs(30);
/// Keys that are older are asked for again: one that was withdrawn ends.
const KEPT: Duration = Duration::from_secs(3_600);
/// How far the issuer's clock may be from ours, in seconds.
const SKEW: u64 = 60;
/// Longest subject.
const MAX_SUBJECT_BYTES: usize = 200;

/// Reads a JSON document over HTTPS; the error says what was wrong.
pub type Fetch = Box<dyn Fn(String) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// An issuer whose tokens are taken.
pub struct Outside {
    /// As its tokens say it; its configuration lies below.
    pub issuer: String,
    /// Which audience its tokens for this server have.
    pub audience: String,
    /// How its documents are read.
    pub fetch: Fetch,
}

#[derive(Default)]
struct Known {
    keys: Arc<Jwks>,
    /// When they came.
    came: Option<Instant>,
    /// When they were last asked for.
    asked: Option<Instant>,
}

/// The issuer and what is known of its keys.
pub(crate) struct Issuer {
    told: Outside,
    known: RwLock<Known>,
    asking: tokio::sync::Mutex<()>,
}

impl Issuer {
    pub fn new(told: Outside) -> Issuer {
        Issuer {
            told,
            known: RwLock::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Whose token it is, as role assignments name that one, if it is good (X1).
    pub async fn subject(&self, token: &Token<'_>, now: u64) -> Option<String> {
        let keys = self.keys(token).await;
        let claims = keys.read(token)?;
        let seconds = |name: &str| claims[name].as_f64();
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds of this age are exact in 53 bits"
        )]
        let now = now as f64;
        #[expect(clippy::cast_precision_loss, reason = "a minute")]
        let skew = SKEW as f64;
        let alive = seconds("exp").is_some_and(|end| now < end + skew)
            && seconds("nbf").is_none_or(|begin| begin <= now + skew);
        let meant = match &claims["aud"] {
            Value::String(one) => *one == self.told.audience,
            Value::Array(all) => all.iter().any(|one| *one == *self.told.audience),
            _ => false,
        };
        if !alive || !meant || claims["iss"] != *self.told.issuer {
            return None;
        }
        let subject = claims["sub"].as_str()?;
        let fits = !subject.is_empty()
            && subject.len() <= MAX_SUBJECT_BYTES
            && !subject.chars().any(char::is_control);
        fits.then(|| format!("{OUTSIDE}{subject}"))
    }

    /// The keys, asked for when that may help (X2).
    async fn keys(&self, token: &Token<'_>) -> Arc<Jwks> {
        if let Some(keys) = self.enough(token) {
            return keys;
        }
        let _one = self.asking.lock().await;
        if let Some(keys) = self.enough(token) {
            return keys;
        }
        self.write(|known| known.asked = Some(Instant::now()));
        match self.ask().await {
            Ok(keys) => self.write(|known| {
                known.keys = Arc::new(keys);
                known.came = Some(Instant::now());
            }),
            Err(error) => {
                tracing::warn!(issuer = %self.told.issuer, %error, "the keys of the outside issuer did not come");
            }
        }
        self.present()
    }

    fn present(&self) -> Arc<Jwks> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // Without an answer for too long nothing is believed any more.
        match known.came {
            Some(came) if came.elapsed() < 2 * KEPT => known.keys.clone(),
            _ => Arc::default(),
        }
    }

    /// What is known, when asking would not help or is not due.
    fn enough(&self, token: &Token<'_>) -> Option<Arc<Jwks>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let fresh = known.came.is_some_and(|came| came.elapsed() < KEPT);
        let has = token.key_id().is_none_or(|id| known.keys.has(id));
        let due = known.asked.is_none_or(|asked| asked.elapsed() >= PAUSE);
        drop(known);
        ((fresh && has) || !due).then(|| self.present())
    }

    fn write(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }

    async fn ask(&self) -> Result<Jwks, String> {
        let at = format!(
            "{}/.well-known/openid-configuration",
            self.told.issuer.trim_end_matches('/')
        );
        let configuration = (self.told.fetch)(at).await?;
        if configuration["issuer"] != *self.told.issuer {
            return Err(format!(
                "its configuration is of {}",
                configuration["issuer"]
            ));
        }
        let at = configuration["jwks_uri"]
            .as_str()
            .ok_or("its configuration has no jwks_uri")?;
        Ok(Jwks::parse(&(self.told.fetch)(at.to_owned()).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::jwt::{Claims, Signer, Use},
        *,
    };
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const NOW: u64 = 1_800_000_000;

    fn issuer(signer: &Signer) -> (Issuer, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, keys) = (asked.clone(), json!({"keys": [signer.jwk()]}));
        let fetch: Fetch = Box::new(move |url| {
            count.fetch_add(1, Ordering::SeqCst);
            let keys = keys.clone();
            Box::pin(async move {
                match url.as_str() {
                    "https://login.test/t/.well-known/openid-configuration" => Ok(json!({
                        "issuer": "https://login.test/t", "jwks_uri": "https://login.test/keys",
                    })),
                    "https://login.test/keys" => Ok(keys),
                    other => Err(format!("{other}: 404")),
                }
            })
        });
        let told = Outside {
            issuer: "https://login.test/t".into(),
            audience: "zaffre".into(),
            fetch,
        };
        (Issuer::new(told), asked)
    }

    fn good() -> Claims {
        Claims {
            iss: "https://login.test/t".into(),
            aud: "zaffre".into(),
            sub: "42".into(),
            nbf: NOW,
            exp: NOW + 60,
            ..Claims::default()
        }
    }

    #[tokio::test]
    async fn x1_a_token_of_the_issuer_names_its_subject() {
        let signer = Signer::new(&[7; 32]).unwrap();
        let (issuer, _) = issuer(&signer);
        let subject = async |claims: Claims, signer: &Signer| {
            let text = signer.sign(Use::Access, &claims);
            issuer.subject(&Token::split(&text).unwrap(), NOW).await
        };
        assert_eq!(subject(good(), &signer).await.as_deref(), Some("oidc:42"));
        let change = |f: fn(&mut Claims)| {
            let mut claims = good();
            f(&mut claims);
            claims
        };
        for wrong in [
            change(|c| c.iss = "https://login.test/other".into()),
            change(|c| c.aud = "other".into()),
            change(|c| c.exp = NOW - SKEW),
            change(|c| c.nbf = NOW + SKEW + 1),
            change(|c| c.sub = String::new()),
            change(|c| c.sub = "a\nb".into()),
        ] {
            assert_eq!(subject(wrong.clone(), &signer).await, None, "{wrong:?}");
        }
        let other = Signer::new(&[8; 32]).unwrap();
        assert_eq!(subject(good(), &other).await, None);
    }

    #[tokio::test]
    async fn x2_who_sends_nonsense_makes_no_requests() {
        let signer = Signer::new(&[7; 32]).unwrap();
        let (issuer, asked) = issuer(&signer);
        for seed in 0..20 {
            let text = Signer::new(&[seed; 32]).unwrap().sign(Use::Access, &good());
            let _ = issuer.subject(&Token::split(&text).unwrap(), NOW).await;
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2, "once, two documents");
    }
}
