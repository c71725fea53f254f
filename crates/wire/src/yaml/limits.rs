//! Ranges of numbers in files, each with the reason for its bounds.

use std::ops::RangeInclusive;

/// Nodes of a cluster or of one job: the most that Azure configures for a cluster.
pub(super) const INSTANCES: RangeInclusive<i64> = 1..=65_000;
/// `min_instances`: a cluster may go down to nothing.
pub(super) const MIN_INSTANCES: RangeInclusive<i64> = 0..=65_000;
/// Seconds of idleness before a node goes: at most as long as a job may run.
pub(super) const IDLE_SECONDS: RangeInclusive<i64> = 0..=2_592_000;
/// Minutes of idleness before a compute instance stops: Azure's limits, 15 minutes to 3 days.
pub(super) const IDLE_MINUTES: RangeInclusive<i64> = 15..=4_320;
/// How many units lie between two starts of a schedule, and minutes of a setup script: positive numbers of the REST document.
pub(super) const INTERVAL: RangeInclusive<i64> = 1..=I32_MAX;
/// Percents.
pub(super) const PERCENT: RangeInclusive<i64> = 0..=100;
/// Milliseconds and seconds of a request or a probe: positive numbers of the REST document.
pub(super) const TIMES: RangeInclusive<i64> = 1..=I32_MAX;
/// Seconds that an HTTP request may wait before anything is tried.
pub(super) const DELAYS: RangeInclusive<i64> = 0..=I32_MAX;
/// Seconds that a command job may run: Azure's limit of 30 days.
pub(super) const JOB_SECONDS: RangeInclusive<i64> = 1..=2_592_000;
/// Seconds that one mini-batch may run: the limit of Azure's batch engine, three days.
pub(super) const MINI_BATCH_SECONDS: RangeInclusive<i64> = 1..=259_200;
/// Files of one mini-batch: the field is a signed 32-bit number of the REST document.
pub(super) const MINI_BATCH_SIZE: RangeInclusive<i64> = 1..=I32_MAX;
/// Further attempts of a mini-batch.
pub(super) const RETRIES: RangeInclusive<i64> = 0..=I32_MAX;
/// Failed items that a run bears; -1 bears all.
pub(super) const ERROR_THRESHOLD: RangeInclusive<i64> = -1..=I32_MAX;
/// Worker processes of one node: more than the cores of the largest size, to leave room for waiting workers.
pub(super) const WORKERS: RangeInclusive<i64> = 1..=1_000;
/// Processes of a distributed job on one node.
pub(super) const PROCESSES: RangeInclusive<i64> = 1..=1_000;
/// Parameter servers of a TensorFlow job.
pub(super) const SERVERS: RangeInclusive<i64> = 0..=1_000;
/// A TCP port.
pub(super) const PORTS: RangeInclusive<i64> = 1..=65_535;
/// `zaffre.max_preemptions`: how often a mini-batch may be taken away.
pub(super) const PREEMPTIONS: RangeInclusive<i64> = 0..=I32_MAX;
/// Longest name of the output file, as file systems have it.
pub(super) const FILE_NAME: usize = 255;
/// Longest name of an input or an output of a job: part of a path.
pub(super) const PORT_NAME: usize = 255;
/// Longest free text of one field; descriptions and commands are far below.
pub(super) const TEXT: usize = 64 << 10;

const I32_MAX: i64 = i32::MAX as i64;
