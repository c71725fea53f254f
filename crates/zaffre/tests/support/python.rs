//! The Python that the stock `azure-ai-ml` runs in: a virtual environment that is made once per target folder and set of
//! requirements, or the one that `ZAFFRE_SDK_PYTHON` names.

use sha2::{Digest, Sha256};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// What the flows import. `setuptools` as far as it still has the `pkg_resources` that the SDK asks for.
pub const REQUIREMENTS: [&str; 5] = [
    "azure-ai-ml==1.35.2",
    "azure-identity==1.27.0",
    "pyjwt",
    "requests",
    "setuptools<81",
];

/// The Python of the flows, of the programs and of the corpus.
pub fn python() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| match std::env::var_os("ZAFFRE_SDK_PYTHON") {
        Some(named) => named.into(),
        None => installed(),
    })
}

/// A virtual environment with the requirements, kept in the target folder under their digest.
fn installed() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let digest = Sha256::digest(REQUIREMENTS.join("\n"));
    let digest: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let venv = target.join(format!("sdk-{digest}"));
    let python = venv.join("bin/python");
    if python.exists() {
        return python;
    }
    // Beside its place until it is whole: a run that was cut short leaves nothing that looks finished.
    let fresh = target.join(format!("sdk-fresh.{}", std::process::id()));
    made(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&fresh),
    );
    let mut install = Command::new(fresh.join("bin/python"));
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    made(install.args(REQUIREMENTS));
    // Another run may have been first; either is the same.
    if fs::rename(&fresh, &venv).is_err() {
        assert!(
            python.exists(),
            "{} cannot be moved to {}",
            fresh.display(),
            venv.display()
        );
        fs::remove_dir_all(&fresh).unwrap();
    }
    python
}

fn made(command: &mut Command) {
    let needs = "the conformance flows need python3 with venv and a package index, or ZAFFRE_SDK_PYTHON with azure-ai-ml in it";
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("{needs}; {command:?}: {}", text(&output.stderr)),
        Err(error) => panic!("{needs}; {command:?}: {error}"),
    }
}

/// Bytes of a program's output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
