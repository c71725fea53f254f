//! `cargo xtask tidy`: what ARCHITECTURE.md and STYLE.md promise about the sources, checked.
//!
//! Each check is a function from the files (and for the crates, from `cargo metadata`) to findings, so
//! that it is tested with planted violations and no disk.

mod crates;
mod documents;
mod manifests;
mod rust_source;
mod sources;
mod text;
mod tree;

use crate::cargo::{metadata, root};
use anyhow::{Result, bail};
use tree::Tree;

/// One broken rule: where, and what is wrong.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// A path below the root, with a line where there is one.
    at: String,
    message: String,
}

impl Finding {
    fn file(path: &str, message: impl Into<String>) -> Finding {
        Finding {
            at: path.to_owned(),
            message: message.into(),
        }
    }

    /// `line` counts from 1.
    fn line(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            at: format!("{path}:{line}"),
            message: message.into(),
        }
    }
}

pub fn run() -> Result<()> {
    let tree = Tree::load(root())?;
    let members = crates::members(&metadata()?);
    let mut findings = crates::check(&tree, &members);
    findings.extend(manifests::check(&tree));
    findings.extend(sources::check(&tree));
    findings.extend(text::check(&tree));
    findings.extend(documents::check(&tree));
    for note in documents::notes(&tree) {
        println!("note: {note}");
    }
    if findings.is_empty() {
        println!("{} files, {} crates: tidy", tree.files.len(), members.len());
        return Ok(());
    }
    for finding in &findings {
        eprintln!("{}: {}", finding.at, finding.message);
    }
    bail!("broken rules: {}", findings.len())
}
