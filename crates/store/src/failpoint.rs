//! Points of failure: every write, sync, rename and removal of this crate passes one, so that a test can kill the process
//! or fail the call at each of them in turn. Without the feature `failpoints` they are nothing at all.
//!
//! `ZAFFRE_FAILPOINT=N[:before|after|enospc|eio]`: at the N-th point (from 1) the process dies as by `kill -9`, before the
//! call (the default) or after it, or the call fails with that error. A test raises N until nothing happens any more.
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

    struct State {
        passed: u64,
        wanted: Option<(u64, Mode)>,
        environment_read: bool,
    }

    static STATE: Mutex<State> = Mutex::new(State {
        passed: 0,
        wanted: None,
        environment_read: false,
    });

    fn wanted(text: &str) -> Option<(u64, Mode)> {
        let (n, mode) = text.split_once(':').unwrap_or((text, "before"));
        let mode = match mode {
            "before" => Mode::Before,
            "after" => Mode::After,
            "enospc" => Mode::NoSpace,
            "eio" => Mode::Io,
            _ => return None,
        };
        Some((n.parse().ok()?, mode))
    }

    /// Counts from here on; the `n`-th point does `mode`. For tests within one process.
    pub fn arm(n: u64, mode: Mode) {
        *STATE.lock().unwrap_or_else(PoisonError::into_inner) = State {
            passed: 0,
            wanted: Some((n, mode)),
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

    fn pass() -> Option<Mode> {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.environment_read {
            state.environment_read = true;
            state.wanted = std::env::var("ZAFFRE_FAILPOINT")
                .ok()
                .and_then(|text| wanted(&text));
        }
        state.passed += 1;
        let (n, mode) = state.wanted?;
        (n == state.passed).then_some(mode)
    }

    fn die() -> ! {
        // As nobody can catch: no destructor, no handler, no flush.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort()
    }

    pub(crate) fn step<T, E: From<io::Error>>(
        name: &'static str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let errno = match pass() {
            None => return work(),
            Some(Mode::Before) => die(),
            Some(Mode::After) => {
                let _ = work();
                die()
            }
            Some(Mode::NoSpace) => rustix::io::Errno::NOSPC,
            Some(Mode::Io) => rustix::io::Errno::IO,
        };
        tracing::warn!(point = name, %errno, "a test wanted this to fail");
        Err(io::Error::from(errno).into())
    }
}
