//! `zaffre agent-exec SETTINGS PROGRAM [ARGUMENT…]`: sets limits on itself, then becomes the program.
//!
//! Used where a thread of the agent cannot set them for its child (cgroup v2, and limits of processes). What has to happen
//! between fork and exec happens here, in ordinary code.
//!
//! X1 it either becomes the program with every limit in force or ends with status 125 and says why.

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
};

/// Exit status when a limit could not be set: what container engines use for the same.
pub const FAILED: u8 = 125;

/// What the launcher sets.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// A cgroup v2 folder to enter.
    pub cgroup: Option<PathBuf>,
    /// User and group to become.
    pub user: Option<(u32, u32)>,
    /// Processes of the user.
    pub processes: Option<u64>,
}

/// Runs the launcher; `args` are those after `agent-exec`. Returns only when it failed.
pub fn main(args: &[OsString]) -> ExitCode {
    let error = match run(args) {
        Ok(never) => match never {},
        Err(e) => e,
    };
    let _ = writeln!(io::stderr(), "zaffre agent-exec: {error}");
    ExitCode::from(FAILED)
}

fn run(args: &[OsString]) -> io::Result<std::convert::Infallible> {
    let [settings, program, rest @ ..] = args else {
        return Err(io::Error::other(
            "usage: zaffre agent-exec SETTINGS PROGRAM [ARGUMENT…]",
        ));
    };
    let settings: Settings = serde_json::from_slice(settings.as_encoded_bytes())?;
    if let Some(group) = &settings.cgroup {
        fs::write(group.join("cgroup.procs"), "0")?;
    }
    set(Resource::Core, 0)?;
    if let Some(n) = settings.processes {
        set(Resource::Nproc, n)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    let mut command = Command::new(program);
    command.args(rest);
    if let Some((uid, gid)) = settings.user {
        command.uid(uid).gid(gid);
    }
    Err(command.exec())
}

fn set(resource: Resource, n: u64) -> io::Result<()> {
    setrlimit(
        resource,
        Rlimit {
            current: Some(n),
            maximum: Some(n),
        },
    )
    .map_err(|e| io::Error::other(format!("limit {n}: {e}")))
}
