//! Secrets of identities: made here, shown once, kept as argon2 digests.
//!
//! E1 a wrong name takes as long as a wrong secret;
//! E2 checks take memory and time on purpose, so only a few run at once, and few wait: who guesses cannot use up the machine.

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use std::{io, time::Duration};
use tokio::sync::Semaphore;

/// Bytes of randomness in a secret: nobody guesses 256 bits.
const SECRET_BYTES: usize = 32;
/// Bytes of salt of a digest, as argon2 recommends.
const SALT_BYTES: usize = 16;
/// Bytes of randomness in the name of a secret.
const NAME_BYTES: usize = 8;
/// A longer secret is none of ours.
const MAX_SECRET_BYTES: usize = 256;
/// Checks at once: each takes 19 MiB and some tens of milliseconds.
const AT_ONCE: usize = 2;
/// How long a check waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);
/// Stands for the digest of an identity that is not there: of the same cost, and of nothing that anybody knows (E1).
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A new secret.
pub(super) struct Fresh {
    /// Its name.
    pub id: String,
    /// What is shown once.
    pub secret: String,
    /// What is kept.
    pub digest: String,
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(bytes)
}

/// A text that nobody guesses.
pub(super) fn word<const N: usize>() -> io::Result<String> {
    Ok(URL_SAFE_NO_PAD.encode(random::<N>()?))
}

/// A new secret. Blocks for some tens of milliseconds.
pub(super) fn fresh() -> io::Result<Fresh> {
    let secret = word::<SECRET_BYTES>()?;
    let salt = random::<SALT_BYTES>()?;
    let digest = Argon2::default()
        .hash_password_with_salt(secret.as_bytes(), &salt)
        .map_err(|e| io::Error::other(e.to_string()))?;
    Ok(Fresh {
        id: wire::places::hex(&random::<NAME_BYTES>()?),
        digest: digest.to_string(),
        secret,
    })
}

fn fits(secret: &str, digest: &str) -> bool {
    PasswordHash::new(digest).is_ok_and(|hash| {
        Argon2::default()
            .verify_password(secret.as_bytes(), &hash)
            .is_ok()
    })
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    Right,
    Wrong,
    /// Too many wait (E2).
    Busy,
}

/// The checks that run.
pub(super) struct Checks(Semaphore);

impl Default for Checks {
    fn default() -> Self {
        Checks(Semaphore::new(AT_ONCE))
    }
}

impl Checks {
    /// Compares a secret with a digest; none is nobody's, and as slow (E1).
    pub async fn check(&self, secret: &str, digest: Option<&str>) -> Checked {
        if secret.len() > MAX_SECRET_BYTES {
            return Checked::Wrong;
        }
        let Ok(Ok(_turn)) = tokio::time::timeout(PATIENCE, self.0.acquire()).await else {
            return Checked::Busy;
        };
        let known = digest.is_some();
        let digest = digest.unwrap_or(NOBODY).to_owned();
        let secret = secret.to_owned();
        let right = tokio::task::spawn_blocking(move || fits(&secret, &digest)).await;
        match right {
            Ok(true) if known => Checked::Right,
            _ => Checked::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_is_known_by_its_digest() {
        let fresh = fresh().unwrap();
        assert!(fresh.digest.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert!(!fresh.digest.contains(&fresh.secret));
        let checks = Checks::default();
        let digest = Some(fresh.digest.as_str());
        assert_eq!(checks.check(&fresh.secret, digest).await, Checked::Right);
        assert_eq!(
            checks.check(&fresh.secret[1..], digest).await,
            Checked::Wrong
        );
        assert_eq!(checks.check(&fresh.secret, None).await, Checked::Wrong);
        assert_eq!(
            checks.check(&fresh.secret, Some("no digest")).await,
            Checked::Wrong
        );
        let long = "x".repeat(MAX_SECRET_BYTES + 1);
        assert_eq!(checks.check(&long, digest).await, Checked::Wrong);
    }

    #[test]
    fn e1_nobody_costs_what_somebody_costs() {
        let cost = |digest: &str| digest.rsplitn(3, '$').nth(2).map(str::to_owned);
        assert_eq!(cost(NOBODY), cost(&fresh().unwrap().digest));
        assert!(PasswordHash::new(NOBODY).is_ok());
    }
}
