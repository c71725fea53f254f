//! A Python with packages from an index, made once per target folder and set of packages.

use sha2::{Digest, Sha256};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// Tests of one program that want the same environment make it one after the other: the second finds it.
static MAKING: Mutex<()> = Mutex::new(());

/// The Python of a virtual environment with these requirements, or the one that the variable `named` names.
pub fn python(named: &str, requirements: &[&str]) -> PathBuf {
    if let Some(python) = std::env::var_os(named) {
        return python.into();
    }
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let digest = Sha256::digest(requirements.join("\n"));
    let digest: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let venv = target.join(format!("venv-{digest}"));
    let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let python = venv.join("bin/python");
    if python.exists() {
        return python;
    }
    // Beside its place until it is whole: a run that was cut short leaves nothing that looks finished.
    let fresh = target.join(format!("venv-fresh.{}", std::process::id()));
    let needs = format!("this test needs python3 with venv and a package index, or {named}");
    let made = |command: &mut Command| match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "{needs}; {command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("{needs}; {command:?}: {error}"),
    };
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
    made(install.args(requirements));
    if fs::rename(&fresh, &venv).is_err() {
        assert!(python.exists(), "{} cannot be moved", fresh.display());
        fs::remove_dir_all(&fresh).unwrap();
    }
    python
}
