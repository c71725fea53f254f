//! The keys that sign tokens, and the time that tokens are measured with.
//!
//! K1 a key signs for a month; it is published as long as a token of it may be alive, then it is forgotten;
//! K2 the time never goes back, not even over a restart on a machine whose clock was set back: a token that had expired stays
//!    expired;
//! K3 what is kept is kept before it is used: a token is never signed with a key that a restart would not know.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use model::Time;
use serde::{Deserialize, Serialize};
use std::{
    io,
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::jwt::{Claims, Signer, Token, Use};

/// Milliseconds that a key signs.
const SIGNS: u64 = 30 * 24 * 3_600_000;
/// Milliseconds that it is known after that: longer than any token lives.
const KNOWN: u64 = 31 * 24 * 3_600_000;
/// The time that was reached is written down so often, in milliseconds: a clock that was set back loses at most this.
const FLOOR_STEP: u64 = 600_000;
/// Bytes of a key.
const SEED_BYTES: usize = 32;

/// Keeps the keys durably, for their owner only.
pub type KeepKeys = Box<dyn Fn(&[u8]) -> io::Result<()> + Send + Sync>;
/// A clock that does not go back while the process lives.
pub type IdentityClock = Box<dyn Fn() -> Time + Send + Sync>;

/// As kept.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// Milliseconds since 1970 that were reached.
    floor: u64,
    keys: Vec<KeptKey>,
}

#[derive(Clone, Serialize, Deserialize)]
struct KeptKey {
    /// Milliseconds since 1970.
    made: u64,
    /// Base64.
    seed: String,
}

struct Key {
    made: u64,
    signer: Signer,
}

/// The keys, newest last.
pub(crate) struct Keys {
    keys: RwLock<Vec<Key>>,
    kept: Mutex<Kept>,
    keep: KeepKeys,
    clock: IdentityClock,
    floor: AtomicU64,
}

impl Keys {
    /// The keys as kept; the first is made when there are none.
    pub fn open(kept: Option<&[u8]>, keep: KeepKeys, clock: IdentityClock) -> Result<Keys, String> {
        let kept: Kept = match kept {
            Some(bytes) => serde_json::from_slice(bytes).map_err(|e| e.to_string())?,
            None => Kept::default(),
        };
        let mut keys = vec![];
        for key in &kept.keys {
            let signer = STANDARD
                .decode(&key.seed)
                .ok()
                .and_then(|seed| Signer::new(&seed))
                .ok_or("a key is damaged")?;
            keys.push(Key {
                made: key.made,
                signer,
            });
        }
        let opened = Keys {
            floor: AtomicU64::new(kept.floor),
            keys: RwLock::new(keys),
            kept: Mutex::new(kept),
            keep,
            clock,
        };
        opened.turn().map_err(|e| e.to_string())?;
        Ok(opened)
    }

    /// The time (K2).
    pub fn now(&self) -> Time {
        let now = (self.clock)().0;
        Time(self.floor.fetch_max(now, Ordering::SeqCst).max(now))
    }

    /// Signs; makes a new key first when the last one has served (K1, K3).
    pub fn sign(&self, usage: Use, claims: &Claims) -> io::Result<String> {
        self.turn()?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let last = keys.last().expect("`turn` has made one");
        Ok(last.signer.sign(usage, claims))
    }

    /// What a token says that one of the keys has signed and that is alive.
    pub fn read(&self, usage: Use, token: &Token<'_>) -> Option<Claims> {
        let now = self.now().0;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let alive = keys
            .iter()
            .filter(|k| now < k.made.saturating_add(SIGNS + KNOWN));
        let claims = alive.rev().find_map(|key| key.signer.read(usage, token))?;
        (now / 1000 < claims.exp).then_some(claims)
    }

    /// The public parts.
    pub fn jwks(&self) -> Vec<serde_json::Value> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().map(|k| k.signer.jwk()).collect()
    }

    /// Makes a key when one is due, forgets those that nothing needs, and writes down the time that was reached.
    fn turn(&self) -> io::Result<()> {
        let now = self.now().0;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let due = kept
            .keys
            .last()
            .is_none_or(|k| now >= k.made.saturating_add(SIGNS));
        if !due && now < kept.floor.saturating_add(FLOOR_STEP) {
            return Ok(());
        }
        let mut next = Kept {
            floor: now,
            keys: kept.keys.clone(),
        };
        next.keys
            .retain(|k| now < k.made.saturating_add(SIGNS + KNOWN));
        let mut fresh = None;
        if due {
            let mut seed = [0; SEED_BYTES];
            getrandom::fill(&mut seed).map_err(|e| io::Error::other(e.to_string()))?;
            fresh = Signer::new(&seed);
            next.keys.push(KeptKey {
                made: now,
                seed: STANDARD.encode(seed),
            });
        }
        let bytes = serde_json::to_vec(&next).map_err(io::Error::other)?;
        (self.keep)(&bytes)?;
        *kept = next;
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|k| now < k.made.saturating_add(SIGNS + KNOWN));
        if let Some(signer) = fresh {
            keys.push(Key { made: now, signer });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Rig {
        time: Arc<AtomicU64>,
        file: Arc<Mutex<Option<Vec<u8>>>>,
    }

    impl Rig {
        fn new() -> Rig {
            Rig {
                time: Arc::new(AtomicU64::new(1_800_000_000_000)),
                file: Arc::default(),
            }
        }
        fn open(&self) -> Keys {
            let (time, file) = (self.time.clone(), self.file.clone());
            let kept = file.lock().unwrap().clone();
            let keep = move |bytes: &[u8]| {
                *file.lock().unwrap() = Some(bytes.to_vec());
                Ok(())
            };
            let clock = move || Time(time.load(Ordering::SeqCst));
            Keys::open(kept.as_deref(), Box::new(keep), Box::new(clock)).unwrap()
        }
        fn pass(&self, milliseconds: u64) {
            self.time.fetch_add(milliseconds, Ordering::SeqCst);
        }
    }

    fn token(keys: &Keys, seconds: u64) -> String {
        let claims = Claims {
            exp: keys.now().0 / 1000 + seconds,
            ..Claims::default()
        };
        keys.sign(Use::Access, &claims).unwrap()
    }

    fn opens(keys: &Keys, token: &str) -> bool {
        let token = Token::split(token).unwrap();
        keys.read(Use::Access, &token).is_some()
    }

    #[test]
    fn k1_a_key_serves_its_time_and_its_tokens_live_on() {
        let rig = Rig::new();
        let keys = rig.open();
        let old = token(&keys, 30 * 24 * 3600);
        rig.pass(SIGNS);
        let new = token(&keys, 60);
        assert_eq!(keys.jwks().len(), 2);
        let again = rig.open();
        for keys in [&keys, &again] {
            assert!(!opens(keys, &old), "it has expired");
            assert!(opens(keys, &new), "a restart knows the key");
        }
        rig.pass(KNOWN);
        token(&keys, 60);
        assert_eq!(keys.jwks().len(), 2, "the first is forgotten");
    }

    #[test]
    fn k2_a_clock_that_is_set_back_revives_no_token() {
        let rig = Rig::new();
        let keys = rig.open();
        let old = token(&keys, 60);
        assert!(opens(&keys, &old));
        rig.pass(FLOOR_STEP);
        assert!(!opens(&keys, &old));
        token(&keys, 60);
        rig.time.store(1_700_000_000_000, Ordering::SeqCst);
        assert!(!opens(&keys, &old));
        assert!(!opens(&rig.open(), &old), "not after a restart either");
    }

    #[test]
    fn k3_a_key_that_is_not_kept_signs_nothing() {
        let clock = || Time(1_800_000_000_000);
        let keep = |_: &[u8]| Err(io::Error::other("disk"));
        assert!(Keys::open(None, Box::new(keep), Box::new(clock)).is_err());
        let damaged = Keys::open(Some(b"{"), Box::new(|_| Ok(())), Box::new(clock));
        assert!(damaged.is_err());
    }
}
