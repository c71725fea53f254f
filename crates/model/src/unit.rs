//! Units are integers with a type of their own; text forms (`700m`, `1500Mi`, `PT2M`) live in `wire`.
//!
//! U1 a comparison of resources is exact: there are no floats here;
//! U2 the check that refuses returns the reason: `Resources::fits` is the only source of "does not fit".

use jiff::{SignedDuration, civil};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Milliseconds since 1970-01-01T00:00:00Z. Shown to people; durations are never computed from two wall clocks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A length of time in milliseconds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Millis(n * 1000)
    }
}
impl std::ops::Add<Millis> for Time {
    type Output = Time;
    fn add(self, d: Millis) -> Time {
        Time(self.0.saturating_add(d.0))
    }
}
impl Time {
    /// How long ago `earlier` was; zero when it lies ahead.
    pub fn since(self, earlier: Time) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Time {
    /// UTC, to the second: `2026-11-30 02:31:38Z`. Reasons print it; what is written for machines is `wire`'s. A time behind
    /// the year 9999 is shown as its last second.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Civil time, since a timestamp of the library ends a day before the year 9999 does.
        let passed = SignedDuration::from_secs(i64::try_from(self.0 / 1000).unwrap_or(i64::MAX));
        let epoch = civil::date(1970, 1, 1).at(0, 0, 0, 0);
        write!(f, "{}", epoch.saturating_add(passed).strftime("%F %TZ"))
    }
}

/// Fencing token of a task or of a mini-batch: only grows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Attempt(pub u32);

/// Thousandths of a core.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MilliCpu(pub u64);

/// Bytes of memory or of disk.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for MilliCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) {
            write!(f, "{}", self.0 / 1000)
        } else {
            write!(f, "{}m", self.0)
        }
    }
}
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(&str, u64); 4] = [
            ("Ti", 1 << 40),
            ("Gi", 1 << 30),
            ("Mi", 1 << 20),
            ("Ki", 1 << 10),
        ];
        for (suffix, size) in STEPS {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{}{suffix}", self.0 / size);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// An amount of every resource that Zaffre counts.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resources {
    /// Cores.
    pub cpu: MilliCpu,
    /// Memory.
    pub memory: Bytes,
    /// Devices by name (`nvidia.com/gpu`), whole pieces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<Box<str>, u32>,
}

/// The first resource that does not fit, with both numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shortage {
    /// Cores.
    Cpu {
        /// Asked for.
        need: MilliCpu,
        /// There.
        free: MilliCpu,
    },
    /// Memory.
    Memory {
        /// Asked for.
        need: Bytes,
        /// There.
        free: Bytes,
    },
    /// A device.
    Device {
        /// Which.
        name: Box<str>,
        /// Asked for.
        need: u32,
        /// There.
        free: u32,
    },
}

impl Resources {
    /// Whether this fits into `free`; else the first shortage (U2).
    pub fn fits(&self, free: &Resources) -> Result<(), Shortage> {
        if self.cpu > free.cpu {
            return Err(Shortage::Cpu {
                need: self.cpu,
                free: free.cpu,
            });
        }
        if self.memory > free.memory {
            return Err(Shortage::Memory {
                need: self.memory,
                free: free.memory,
            });
        }
        for (name, &need) in &self.devices {
            let free = free.devices.get(name).copied().unwrap_or(0);
            if need > free {
                return Err(Shortage::Device {
                    name: name.clone(),
                    need,
                    free,
                });
            }
        }
        Ok(())
    }
    /// This much more.
    pub fn add(&mut self, more: &Resources) {
        self.cpu.0 = self.cpu.0.saturating_add(more.cpu.0);
        self.memory.0 = self.memory.0.saturating_add(more.memory.0);
        for (name, n) in &more.devices {
            let have = self.devices.entry(name.clone()).or_default();
            *have = have.saturating_add(*n);
        }
    }
    /// This much less; nothing goes below zero, and a device of which none is left is not listed.
    pub fn remove(&mut self, less: &Resources) {
        self.cpu.0 = self.cpu.0.saturating_sub(less.cpu.0);
        self.memory.0 = self.memory.0.saturating_sub(less.memory.0);
        for (name, n) in &less.devices {
            if let Some(have) = self.devices.get_mut(name) {
                *have = have.saturating_sub(*n);
                if *have == 0 {
                    self.devices.remove(name);
                }
            }
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortage::Cpu { need, free } => write!(f, "needs {need} cpu, {free} free"),
            Shortage::Memory { need, free } => write!(f, "needs {need} memory, {free} free"),
            Shortage::Device { name, need, free } => write!(f, "needs {need} {name}, {free} free"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_names_the_first_shortage() {
        let free = Resources {
            cpu: MilliCpu(2000),
            memory: Bytes(1 << 30),
            devices: BTreeMap::new(),
        };
        let mut need = free.clone();
        assert_eq!(need.fits(&free), Ok(()));
        need.devices.insert("nvidia.com/gpu".into(), 1);
        assert_eq!(
            need.fits(&free).unwrap_err().to_string(),
            "needs 1 nvidia.com/gpu, 0 free"
        );
        need.cpu = MilliCpu(2500);
        assert_eq!(
            need.fits(&free).unwrap_err().to_string(),
            "needs 2500m cpu, 2 free"
        );
    }

    #[test]
    fn a_time_is_shown_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (951_868_800, "2000-03-01 00:00:00Z"),
            (1_796_005_898, "2026-11-30 02:31:38Z"),
            (4_107_542_399, "2100-02-28 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
            (253_402_300_799, "9999-12-31 23:59:59Z"),
        ] {
            assert_eq!(Time(seconds * 1000 + 999).to_string(), text);
        }
    }
}
