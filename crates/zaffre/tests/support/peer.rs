//! The peer of our blobs: Azurite, which Azure's own people make for tests.
//!
//! `ZAFFRE_AZURITE` names its program `azurite-blob`; else npm installs it once per target folder. Without either the tests say so
//! and compare nothing.

use super::say;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// The peer, by name and version: the newest that runs on every Node that we build with.
const PEER: &str = "azurite@3.35.0";
/// The account that every copy of the peer has, and its published key.
pub const ACCOUNT: &str = "devstoreaccount1";
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The peer's program, installed once per target folder; nothing where there is no npm or no index.
pub fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("ZAFFRE_AZURITE") {
        return Some(program.into());
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("azurite-3.35.0");
    let program = folder.join("node_modules/.bin/azurite-blob");
    if program.exists() {
        return Some(program);
    }
    let fresh = folder.with_extension(format!("fresh.{}", std::process::id()));
    fs::create_dir_all(&fresh).unwrap();
    let installed = Command::new("npm")
        .args(["install", "--no-fund", "--no-audit", "--silent", PEER])
        .current_dir(&fresh)
        .output();
    let why = match installed {
        Ok(output) if output.status.success() => {
            if fs::rename(&fresh, &folder).is_err() {
                fs::remove_dir_all(&fresh).unwrap();
            }
            return Some(program);
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    fs::remove_dir_all(&fresh).unwrap();
    // Past the capture of the test harness: what was left out is part of the result.
    say(&format!(
        "SKIPPED the comparison with {PEER}: npm cannot install it: {why}"
    ));
    None
}

/// A running peer; gone with the value.
pub struct Peer {
    child: Child,
    /// Its address, without an account.
    pub url: String,
}

impl Peer {
    /// Starts one with nothing in it.
    pub fn start(program: &Path, folder: &Path) -> Peer {
        let mut child = Command::new(program)
            .args(["--blobHost", "127.0.0.1", "--blobPort", "0"])
            .args([
                "--inMemoryPersistence",
                "--skipApiVersionCheck",
                "--disableTelemetry",
                "--silent",
            ])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let listening = "successfully listens on ";
        let line = out
            .lines()
            .map(Result::unwrap)
            .find(|line| line.contains(listening))
            .expect("the peer says where it listens");
        let at = line.find(listening).unwrap() + listening.len();
        let url = line[at..].trim().to_owned();
        Peer { child, url }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
