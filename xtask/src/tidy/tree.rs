//! The files of the project, read once: what git tracks or would track.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// One text file.
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub fn has_extension(&self, wanted: &[&str]) -> bool {
        let extension = self.name().rsplit_once('.').map(|(_, extension)| extension);
        extension.is_some_and(|extension| wanted.contains(&extension))
    }

    /// Test code: it may be longer, since a list of cases is read differently.
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests") || self.name().ends_with("tests.rs")
    }
}

/// Every file of the project, in the order of their paths.
pub struct Tree {
    pub files: Vec<File>,
}

impl Tree {
    pub fn load(root: &Path) -> Result<Tree> {
        let mut paths = match tracked(root) {
            Some(paths) => paths,
            // A copy without its history, as from an archive.
            None => walked(root)?,
        };
        paths.sort();
        paths.dedup();
        let mut files = Vec::new();
        for path in paths {
            let whole = root.join(&path);
            // A file deleted but not committed, or a link to a folder.
            if !whole.is_file() {
                continue;
            }
            let bytes = std::fs::read(&whole).with_context(|| format!("cannot read {path}"))?;
            // Not text: pictures, archives, files in a foreign encoding that tests feed to the parser.
            if let Ok(text) = String::from_utf8(bytes)
                && !text.contains('\0')
            {
                files.push(File { path, text });
            }
        }
        Ok(Tree { files })
    }

    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or a folder of this name is there.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self
                .files
                .iter()
                .any(|file| file.path == path || file.path.starts_with(&folder))
    }

    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        Tree {
            files: files.iter().map(file).collect(),
        }
    }
}

/// Tracked files and new ones that are not ignored. `None` when git or the repository is not there.
fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        // A CI may run as another user than the one that cloned; only names are read here.
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let names = names.split('\0').filter(|name| !name.is_empty());
    Some(names.map(str::to_owned).collect())
}

/// Folders that are made, not written.
const MADE: [&str; 5] = ["target", ".git", ".zaffre", "__pycache__", "node_modules"];

fn walked(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let whole = root.join(&folder);
        let entries = whole
            .read_dir()
            .with_context(|| format!("cannot read {}", whole.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = match folder.as_str() {
                "" => name.clone(),
                folder => format!("{folder}/{name}"),
            };
            if !entry.file_type()?.is_dir() {
                paths.push(path);
            } else if !MADE.contains(&name.as_str()) {
                folders.push(path);
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_and_git_see_the_same_sources() {
        let root = crate::cargo::root();
        let walked = walked(root).unwrap();
        for path in ["Cargo.toml", "xtask/src/tidy/tree.rs", ".cargo/config.toml"] {
            assert!(walked.iter().any(|found| found == path), "{path}");
        }
        assert!(!walked.iter().any(|found| found.starts_with("target/")));
        // In an archive without its history there is nothing to compare with.
        for path in tracked(root).unwrap_or_default() {
            if root.join(&path).is_file() {
                assert!(walked.contains(&path), "{path}");
            }
        }
    }

    #[test]
    fn folders_are_found_by_their_files() {
        let tree = Tree::of(&[("docs/design/0001.md", "")]);
        assert!(tree.has("docs/design") && tree.has("docs/") && tree.has("docs/design/0001.md"));
        assert!(!tree.has("docs/des"));
    }
}
