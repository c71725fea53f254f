//! A latch that wakes the loop. Ringing it any number of times before a wait is one wake-up (P3).

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Rung by whoever has news, waited for by one thread.
#[derive(Clone, Default)]
pub struct Bell(Arc<(Mutex<bool>, Condvar)>);

impl Bell {
    /// A silent bell.
    pub fn new() -> Self {
        Self::default()
    }
    /// Wakes the waiter, now or at its next wait.
    pub fn ring(&self) {
        let (rung, wake) = &*self.0;
        *rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        wake.notify_one();
    }
    /// Waits until rung or until `limit` has passed; takes the ring.
    pub fn wait(&self, limit: Duration) {
        let (rung, wake) = &*self.0;
        let end = Instant::now() + limit;
        let mut on = rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*on {
            let Some(left) = end
                .checked_duration_since(Instant::now())
                .filter(|d| !d.is_zero())
            else {
                break;
            };
            on = wake
                .wait_timeout(on, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *on = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_lost_and_counts_once() {
        let bell = Bell::new();
        bell.ring();
        bell.ring();
        let start = Instant::now();
        bell.wait(Duration::from_secs(60));
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "the ring was there before the wait"
        );
        bell.wait(Duration::from_millis(1));
        assert!(
            !*bell.0.0.lock().unwrap(),
            "the second wait ran into its limit"
        );
    }
}
