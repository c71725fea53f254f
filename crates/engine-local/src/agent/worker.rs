//! One Python worker: what it runs, what it answers.
//!
//! K1 at most two indices are with a worker; how many of them it has begun stands on its page of progress (batch.py P1);
//! K2 an answer for anything else ends the worker: its words make no sense any more.

use super::{logs::Pump, token};
use crate::proc;
use rustix::{
    event::epoll,
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open},
};
use std::{
    fs::File,
    io,
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::{fs::FileExt, net::UnixStream, process::ExitStatusExt},
    },
    process::Child,
    time::{Duration, Instant},
};

/// Head of an answer: six numbers.
const HEAD: usize = 24;
/// Longest answer: the largest result that `batch.py` lets through (64 MiB).
const MAX_ANSWER: usize = 65 << 20;
/// A worker gets a second index in advance when the last one took less. Longer ones gain nothing from it, and an index
/// that waits behind a slow one could have been run by a neighbour.
pub const QUICK: Duration = Duration::from_millis(5);

/// Below this a worker gets its next two indices together, when both are answered: then one message and one wake-up serve
/// two. `batch.py` sends their answers together under the same limit.
pub const TINY: Duration = Duration::from_micros(50);

/// A worker process.
#[derive(Debug)]
pub struct Worker {
    /// `processNNN`.
    pub number: u32,
    /// Its process.
    pub child: Child,
    /// Watches for its end.
    pub pidfd: OwnedFd,
    /// The channel.
    pub channel: UnixStream,
    /// Its streams.
    pub pumps: [Option<Pump>; 2],
    /// Bytes of an answer that is not whole yet.
    partial: Vec<u8>,
    given: [u32; 2],
    with_it: usize,
    /// Indices answered since its start, as its page counts those begun.
    answered: u32,
    progress: File,
    /// Since when the older index runs, or, before `ready`, since when it initialises.
    pub since: Instant,
    /// `init()` is through.
    pub ready: bool,
    /// Its failure in `init()` has been counted.
    pub init_counted: bool,
    /// What the last index took.
    pub took: Duration,
    /// Its channel is closed: its end is expected until then.
    pub closed: Option<Instant>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer<'a> {
    /// Which kind, see `batch.py`.
    pub kind: u32,
    /// Which index.
    pub index: u32,
    /// Elements returned.
    pub items: u32,
    /// Rows.
    pub rows: u32,
    /// What `run()` took.
    pub took: Duration,
    /// Rows or text.
    pub payload: &'a [u8],
}

/// Kinds of answers (`batch.py`).
pub mod kind {
    /// Rows follow.
    pub const DONE: u32 = 1;
    /// `run()` raised.
    pub const RAISED: u32 = 2;
    /// What it returned cannot be written.
    pub const BAD: u32 = 3;
    /// `init()` is through.
    pub const READY: u32 = 4;
    /// `init()` raised.
    pub const INIT_FAILED: u32 = 5;
    /// Column names.
    pub const HEADER: u32 = 6;
}

impl Worker {
    /// Watches a started process.
    pub fn new(
        number: u32,
        child: Child,
        channel: UnixStream,
        progress: File,
        pumps: [Option<Pump>; 2],
        now: Instant,
    ) -> io::Result<Worker> {
        let pidfd = pidfd_of(&child)?;
        Ok(Worker {
            number,
            child,
            pidfd,
            channel,
            pumps,
            partial: Vec::new(),
            given: [0; 2],
            with_it: 0,
            answered: 0,
            progress,
            since: now,
            ready: false,
            init_counted: false,
            took: Duration::MAX, // not known yet: one at a time
            closed: None,
        })
    }

    /// Puts its descriptors into the loop.
    pub fn watch(&self, epoll: &OwnedFd, slot: u32) -> io::Result<()> {
        let data = |kind| epoll::EventData::new_u64(token(kind, slot, self.number));
        epoll::add(
            epoll,
            &self.channel,
            data(super::CHANNEL),
            epoll::EventFlags::IN,
        )?;
        epoll::add(
            epoll,
            &self.pidfd,
            data(super::WORKER),
            epoll::EventFlags::IN,
        )?;
        for (pump, kind) in self.pumps.iter().zip([super::OUT, super::ERR]) {
            if let Some(pump) = pump {
                epoll::add(epoll, &pump.pipe, data(kind), epoll::EventFlags::IN)?;
            }
        }
        Ok(())
    }

    /// The indices that it has and has not answered, oldest first.
    pub fn with_it(&self) -> &[u32] {
        &self.given[..self.with_it]
    }
    /// How many of those it has begun. The last one begun is the one that runs.
    pub fn begun(&self) -> usize {
        let mut count = [0; 4];
        match self.progress.read_exact_at(&mut count, 0) {
            Ok(()) => {
                let begun = u32::from_ne_bytes(count).wrapping_sub(self.answered);
                usize::try_from(begun).map_or(self.with_it, |n| n.min(self.with_it))
            }
            Err(_) => self.with_it.min(1),
        }
    }
    /// How many it may be given.
    pub fn room(&self) -> usize {
        if !self.ready || self.closed.is_some() {
            return 0;
        }
        match self.with_it {
            0 if self.took < QUICK => 2,
            0 => 1,
            1 if self.took < QUICK && self.took >= TINY => 1,
            _ => 0,
        }
    }
    /// Notes an index as sent.
    pub fn give(&mut self, index: u32, now: Instant) {
        if self.with_it == 0 {
            self.since = now;
        }
        self.given[self.with_it] = index;
        self.with_it += 1;
    }
    /// Notes the oldest index as answered (K2).
    pub fn answered(&mut self, answer: &Answer<'_>, now: Instant) -> Result<(), String> {
        if self.with_it().first() != Some(&answer.index) {
            return Err(format!(
                "it answered index {}, which it does not run",
                answer.index
            ));
        }
        self.took = answer.took;
        self.given[0] = self.given[1];
        self.with_it -= 1;
        self.answered = self.answered.wrapping_add(1);
        self.since = now;
        Ok(())
    }
    /// Asks it to end: an idle one by closing its channel, a busy one by SIGTERM.
    pub fn ask_to_end(&self) {
        if self.ready && self.with_it == 0 {
            let _ = self.channel.shutdown(Shutdown::Write);
        } else {
            proc::kill_group(self.child.id(), Signal::TERM);
        }
    }
    /// Forgets what it was given.
    pub fn drop_work(&mut self) {
        self.with_it = 0;
    }

    /// Reads once and hands over every whole answer. `Ok(false)`: the channel is closed.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        mut take: impl FnMut(&mut Worker, Answer<'_>) -> Result<(), String>,
    ) -> Result<bool, String> {
        let n = loop {
            match rustix::io::read(&self.channel, &mut *buffer) {
                Ok(n) => break n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(true),
                Err(_) => return Ok(false),
            }
        };
        if n == 0 {
            return Ok(false);
        }
        if self.partial.is_empty() {
            let rest = self.answers(&buffer[..n], &mut take)?;
            self.partial.extend_from_slice(&buffer[n - rest..n]);
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(&buffer[..n]);
            let rest = self.answers(&whole, &mut take)?;
            whole.drain(..whole.len() - rest);
            self.partial = whole;
        }
        Ok(true)
    }

    /// Hands over whole answers; returns how many bytes are left over.
    fn answers(
        &mut self,
        mut bytes: &[u8],
        take: &mut impl FnMut(&mut Worker, Answer<'_>) -> Result<(), String>,
    ) -> Result<usize, String> {
        loop {
            let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
                return Ok(bytes.len());
            };
            let word =
                |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
            let len = word(16) as usize;
            if len > MAX_ANSWER {
                return Err(format!("it announced an answer of {len} bytes"));
            }
            if rest.len() < len {
                return Ok(bytes.len());
            }
            let (payload, next) = rest.split_at(len);
            take(
                self,
                Answer {
                    kind: word(0),
                    index: word(4),
                    items: word(8),
                    rows: word(12),
                    took: Duration::from_micros(u64::from(word(20))),
                    payload,
                },
            )?;
            bytes = next;
        }
    }
}

/// Watches a child of ours.
pub fn pidfd_of(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process without a pid"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// `exit code 42`, `killed by signal 9`.
pub fn how(status: std::process::ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => format!("{status}"),
    }
}
