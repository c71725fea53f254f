//! A blob storage that is not ours: azurite, where it is installed (`ZAFFRE_AZURITE` names `azurite-blob`, or the comparison of
//! `plane.rs` has put it into the target folder).

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// The account that every copy of it has.
pub const ACCOUNT: &str = "devstoreaccount1";
/// The published key of that account.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A running one; gone with the value.
pub struct Storage {
    child: Child,
    /// `HOST:PORT/ACCOUNT`
    pub account: String,
}

/// The program.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("ZAFFRE_AZURITE").map(PathBuf::from);
    let usual = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("azurite-3.35.0/node_modules/.bin/azurite-blob");
    named.or(Some(usual)).filter(|program| program.exists())
}

impl Storage {
    /// Starts one that keeps its blobs in memory; says so when there is none.
    pub fn start(folder: &Path) -> Option<Storage> {
        let Some(program) = program() else {
            let line =
                "SKIPPED the storage of Azure's kind: ZAFFRE_AZURITE names no azurite-blob\n";
            std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
            return None;
        };
        let mut child = Command::new(program)
            .args(["--blobHost", "127.0.0.1", "--blobPort", "0"])
            .args(["--inMemoryPersistence", "--skipApiVersionCheck"])
            .args(["--disableTelemetry", "--silent"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let listening = "successfully listens on http://";
        let line = out
            .lines()
            .map(Result::unwrap)
            .find(|line| line.contains(listening))
            .expect("it says where it listens");
        let at = line.find(listening).unwrap() + listening.len();
        let account = format!("{}/{ACCOUNT}", line[at..].trim().trim_end_matches('/'));
        Some(Storage { child, account })
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
