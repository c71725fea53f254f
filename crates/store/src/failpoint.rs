//! Points of failure: every write, sync, rename and removal of this crate passes one, so that a test can kill the process
//! or fail the call at each of them in turn. Without the feature `failpoints` they are nothing at all.
//!
//! `ZAFFRE_FAILPOINT=[NAME#]N[:before|after|enospc|eio]`: at the N-th point (from 1), or the N-th of that name, the process
//! dies as by `kill -9`, before the call (the default) or after it, or the call fails with that error. A test raises N until
//! nothing happens any more. Threads pass their points in any order, so that only `NAME#N` means the same in every run. The
//! names passed are logged, each once; `0` does nothing else.
//!
//! SQLite's own writes lie in C, out of reach without unsafe code. Their points are the statements around them; that any
//! prefix of the WAL is a legal state is shown by the tests of torn files.

use std::io;

/// A point where nothing is done but something could go wrong, for callers with durable steps of their own.
#[inline(always)]
pub fn failpoint(name: &'static str) -> io::Result<()> {
    at(name, || Ok(()))
}

/// Does `work`, one durable step, unless a test wants it to fail.
#[inline(always)]
pub fn at<T>(name: &'static str, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    step(name, work)
}

/// The same for steps that fail with an error of their own.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn step<T, E: From<io::Error>>(
    _name: &'static str,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    work()
}

#[cfg(feature = "failpoints")]
pub(crate) use armed::step;
#[cfg(feature = "failpoints")]
pub use armed::{Mode, arm, disarm};

#[cfg(feature = "failpoints")]
mod armed {
    use std::{
        collections::BTreeMap,
        io,
        sync::{Mutex, PoisonError},
    };

    /// What happens at the point.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mode {
        /// The process dies before the call.
        Before,
        /// The process dies after it.
        After,
        /// The call fails: no space.
        NoSpace,
        /// The call fails: input/output error.
        Io,
    }

    /// Where, counted from 1, and what.
    struct Wanted {
        /// Only points of this name count.
        name: Option<String>,
        n: u64,
        mode: Mode,
    }

    struct State {
        passed: u64,
        by_name: BTreeMap<&'static str, u64>,
        wanted: Option<Wanted>,
        environment_read: bool,
    }

    static STATE: Mutex<State> = Mutex::new(State {
        passed: 0,
        by_name: BTreeMap::new(),
        wanted: None,
        environment_read: false,
    });

    fn wanted(text: &str) -> Option<Wanted> {
        let (n, mode) = text.split_once(':').unwrap_or((text, "before"));
        let (name, n) = match n.split_once('#') {
            Some((name, n)) => (Some(name.to_owned()), n),
            None => (None, n),
        };
        let mode = match mode {
            "before" => Mode::Before,
            "after" => Mode::After,
            "enospc" => Mode::NoSpace,
            "eio" => Mode::Io,
            _ => return None,
        };
        let n = n.parse().ok()?;
        Some(Wanted { name, n, mode })
    }

    /// Counts from here on; the `n`-th point does `mode`. For tests within one process.
    pub fn arm(n: u64, mode: Mode) {
        *STATE.lock().unwrap_or_else(PoisonError::into_inner) = State {
            passed: 0,
            by_name: BTreeMap::new(),
            wanted: Some(Wanted {
                name: None,
                n,
                mode,
            }),
            environment_read: true,
        };
    }

    /// Lets everything pass again; returns how many points were passed since `arm`.
    pub fn disarm() -> u64 {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.wanted = None;
        state.environment_read = true;
        state.passed
    }

    fn pass(name: &'static str) -> Option<Mode> {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.environment_read {
            state.environment_read = true;
            state.wanted = std::env::var("ZAFFRE_FAILPOINT")
                .ok()
                .and_then(|text| wanted(&text));
        }
        state.passed += 1;
        let passed = state.passed;
        state.wanted.as_ref()?;
        let of_name = state.by_name.entry(name).or_insert(0);
        *of_name += 1;
        let of_name = *of_name;
        if of_name == 1 {
            tracing::info!(point = name, "a point of failure is passed");
        }
        let wanted = state.wanted.as_ref()?;
        let count = match &wanted.name {
            Some(wanted) if wanted != name => return None,
            Some(_) => of_name,
            None => passed,
        };
        (wanted.n == count).then_some(wanted.mode)
    }

    fn die(name: &'static str) -> ! {
        // Said first, so that a test can tell which points it has seen.
        tracing::warn!(point = name, "a test wanted the process to die here");
        // As nobody can catch: no destructor, no handler, no flush.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort()
    }

    pub(crate) fn step<T, E: From<io::Error>>(
        name: &'static str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let errno = match pass(name) {
            None => return work(),
            Some(Mode::Before) => die(name),
            Some(Mode::After) => {
                let _ = work();
                die(name)
            }
            Some(Mode::NoSpace) => rustix::io::Errno::NOSPC,
            Some(Mode::Io) => rustix::io::Errno::IO,
        };
        tracing::warn!(point = name, %errno, "a test wanted this to fail");
        Err(io::Error::from(errno).into())
    }
}
