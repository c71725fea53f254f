//! Every limit of a decision, with its reason.

use model::Millis;

/// A preempted node stays visible for this long: a sample each minute sees it in at least one whole minute.
pub const PREEMPTED_SHOWN: Millis = Millis::secs(120);
/// A node that does not work stays visible for this long before it is let go: whoever lists nodes can read what it said.
pub const UNUSABLE_SHOWN: Millis = Millis::secs(10);
/// The first pause before a node that broke is replaced; doubles with each further one until a task runs again.
pub const BACKOFF_FIRST: Millis = Millis::secs(5);
/// The longest such pause: a repaired provider is noticed within it.
pub const BACKOFF_LAST: Millis = Millis::secs(300);
/// A node that is not up by then is given up and replaced: clouds take a few minutes, rarely ten.
pub const BOOT_LIMIT: Millis = Millis::secs(900);

/// A finished run stays in the World for this long: whoever waited for it still finds it in memory.
pub const RETIRE_AFTER: Millis = Millis::secs(600);
/// At most this many finished runs stay: some kilobytes each.
pub const KEEP_DONE: usize = 1000;
/// Request ids that are remembered for telling repeats: clients repeat within minutes, not after so many others.
pub const KEEP_REQUESTS: usize = 10_000;

/// Results of steps that identical ones can reuse: some hundred bytes each.
pub const KEEP_RESULTS: usize = 10_000;

/// A lend covers about this much work of a host: long beside a turn, short beside the loss of a host.
pub const LEND_TARGET: Millis = Millis(200);
/// The most mini-batches a host holds, however fast it is: what a Lend message and a lost host may cost.
pub const LEND_MAX: u32 = 65_536;
/// Mini-batches of one run: the bitmap of the done stays below 13 MB.
pub const MINI_BATCHES_MAX: u32 = 100_000_000;
/// Hosts that end by themselves, one after another and with nothing committed between, before the run is given up.
pub const HOST_CRASHES: u32 = 5;

/// Pods of one Kubernetes compute that may be made and not run yet: enough for an autoscaler to see what is wanted, few
/// enough that a scheduler is not buried.
pub const PODS_AHEAD: u32 = 500;
/// Waiting runs of a Kubernetes compute that are looked at in a turn: those behind pass only these.
pub const ADMIT_LOOKAHEAD: usize = 64;
/// Changes of instance types that a watch can still be given; kubectl lists again after more (410).
pub const TYPE_CHANGES: usize = 1024;

/// Names in a reason: a reader looks at a few, a status text is short.
pub const SHOWN_HOLDERS: usize = 8;
