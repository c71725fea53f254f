//! The tests run real Python workers, so Python must be there; better said first than found out later.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// The oldest Python whose syntax and standard library the runtime folder uses.
const OLDEST: (u32, u32) = (3, 9);

/// Says which python3 the tests will use, or why there is none that they can use.
pub fn check() -> Result<()> {
    let (major, minor) = OLDEST;
    let output = Command::new("python3")
        .arg("--version")
        .output()
        .with_context(|| {
            format!("python3 is not found; the tests need Python {major}.{minor} or newer")
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version =
        version(&text).with_context(|| format!("python3 --version says {:?}", text.trim()))?;
    if version < OLDEST {
        bail!(
            "python3 is {}.{}; the tests need Python {major}.{minor} or newer",
            version.0,
            version.1
        );
    }
    println!("{}", text.trim());
    Ok(())
}

/// `Python 3.11.7` → (3, 11).
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().strip_prefix("Python ")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("Python 3.10.1\n").unwrap() > OLDEST);
        assert!(version("Python 3.8.20").unwrap() < OLDEST);
        assert!(version("Python 2.7.18").unwrap() < OLDEST);
        assert_eq!(version("pypy"), None);
    }
}
