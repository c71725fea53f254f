//! The time of this process: the wall clock as it was at the first look, and what has passed since.
//!
//! K1 a jump of the wall clock moves nothing that is measured here (I12), and every part of the process says the same time;
//! K2 a machine that sleeps and wakes has slept: the time of that counts.

use crate::Clock;
use model::Time;
use rustix::time::{ClockId, clock_gettime};
use std::{
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

static START: OnceLock<Start> = OnceLock::new();

/// The clock of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl Clock for Machine {
    fn now(&self) -> Time {
        let passed = since_boot();
        START.get_or_init(|| Start::at(wall(), passed)).now(passed)
    }
}

/// Both clocks in one moment, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Start {
    wall: u64,
    boot: u64,
}

impl Start {
    fn at(wall: u64, boot: u64) -> Start {
        Start { wall, boot }
    }
    fn now(self, boot: u64) -> Time {
        Time(self.wall.saturating_add(boot.saturating_sub(self.boot)))
    }
}

fn wall() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Never goes back and is set by nobody.
fn since_boot() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or_default();
    part(time.tv_sec) * 1000 + part(time.tv_nsec) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_only_what_has_passed_moves_the_time() {
        let start = Start::at(1_000_000, 50);
        assert_eq!(start.now(50), Time(1_000_000));
        assert_eq!(start.now(7_050), Time(1_007_000));
        assert_eq!(start.now(49), Time(1_000_000), "and it never goes back");
        // The wall clock is read once: whatever it says later is not asked for.
        let first = Machine.now();
        let read = START.get().map(|start| start.wall);
        assert!(Machine.now() >= first);
        assert_eq!(START.get().map(|start| start.wall), read);
    }
}
