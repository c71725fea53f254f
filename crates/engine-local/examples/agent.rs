//! The agent and its launcher as a program of their own, for this crate's tests.

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args.split_first() {
        Some((word, rest)) if word == "agent" => engine_local::agent::main(rest),
        Some((word, rest)) if word == "agent-exec" => engine_local::launcher::main(rest),
        _ => ExitCode::from(2),
    }
}
