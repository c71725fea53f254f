//! `cargo deny`: licences, banned crates and sources of everything the product is built from.
//!
//! Advisories are not asked for: their database is a download from a place that a CI without the open
//! network cannot reach, and a test that fails with the network is not a test of this project.

use crate::cargo::{cargo, run, target_folder};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What is installed when there is none; its configuration format is the one of deny.toml.
const PINNED: &str = "0.20.2";

/// An installed cargo-deny of this minor version or a later one is used as it is.
const OLDEST: (u32, u32) = (0, 20);

pub fn check() -> Result<()> {
    let program = match installed() {
        Some(program) => program,
        None => install()?,
    };
    // Started directly, not through cargo: the pinned copy is not on the search path.
    let mut command = Command::new(program);
    command
        .args(["--locked", "check", "bans", "licenses", "sources"])
        .current_dir(crate::cargo::root());
    run(&mut command)
}

fn installed() -> Option<PathBuf> {
    let output = cargo(&["deny", "--version"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let found = version(&String::from_utf8_lossy(&output.stdout))?;
    // cargo looks for its subcommands in its own bin folder too, which need not be on the search path.
    let on_path = PathBuf::from("cargo-deny");
    let beside_cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?
        .join("bin/cargo-deny");
    let program = if beside_cargo.is_file() {
        beside_cargo
    } else {
        on_path
    };
    (found >= OLDEST).then_some(program)
}

/// Builds the pinned version once under the target folder.
fn install() -> Result<PathBuf> {
    // The version is part of the name, so that another pinned one is built anew.
    let tools = target_folder()
        .join("tools")
        .join(format!("cargo-deny-{PINNED}"));
    let program = tools.join("bin/cargo-deny");
    if program.is_file() {
        return Ok(program);
    }
    println!("cargo-deny is not installed; building {PINNED} once (some minutes)");
    let root = tools.to_str().context("the target folder is not UTF-8")?;
    let build = tools.join("build");
    let wanted = format!("cargo-deny@{PINNED}");
    let mut command = cargo(&["install", "--locked", "--root", root, &wanted]);
    // Not optimised: it reads a few hundred manifests once per run, and building it is what takes long.
    command
        .args(["--debug", "--target-dir"])
        .arg(&build)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0");
    run(&mut command)?;
    // A few hundred megabytes that nothing needs again; a failure only leaves them there.
    if let Err(error) = std::fs::remove_dir_all(&build) {
        println!("note: {} stays: {error}", build.display());
    }
    Ok(program)
}

/// `cargo-deny 0.20.2` → (0, 20).
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().strip_prefix("cargo-deny ")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_version_is_new_enough() {
        let pinned = version(&format!("cargo-deny {PINNED}\n")).unwrap();
        assert!(pinned >= OLDEST);
        assert!(version("cargo-deny 0.9.3").unwrap() < OLDEST);
        assert_eq!(version("error: no such command"), None);
    }
}
