//! Time: the machine's clock, never going back within one process.

use model::Time;
use port::Clock;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// The wall clock.
#[derive(Debug, Default)]
pub struct Wall(AtomicU64);

impl Clock for Wall {
    fn now(&self) -> Time {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        // A clock that was set back stands still until the time comes again.
        Time(self.0.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let clock = Wall(AtomicU64::new(u64::MAX - 1));
        assert_eq!(clock.now(), Time(u64::MAX - 1));
    }
}
