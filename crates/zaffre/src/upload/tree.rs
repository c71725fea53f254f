//! The files of a folder, in the order in which they are hashed.

use crate::failure::{Failure, about};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Files of one upload: a folder with more is a mistake (a dataset inside the code, a whole disk).
const FILE_LIMIT: usize = 2_000_000;
/// Folders inside folders.
const DEPTH_LIMIT: usize = 64;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path below the root, `/` between its parts.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its size in bytes.
    pub len: u64,
}

/// A file or folder to upload.
#[derive(Debug)]
pub struct Tree {
    /// Name of the file or folder.
    pub name: String,
    /// Whether it is one file.
    pub single: bool,
    /// By lower-case name.
    pub files: Vec<Entry>,
}

/// Reads what is to be uploaded.
pub fn read(path: &Path) -> Result<Tree, Failure> {
    let whole = path.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::wrong(format!("{}: no such file or folder", path.display()))
        }
        _ => about(path)(error),
    })?;
    let name = whole
        .file_name()
        .map_or_else(|| "root".into(), |name| name.to_string_lossy().into_owned());
    let metadata = fs::metadata(&whole).map_err(about(path))?;
    if metadata.is_file() {
        return Ok(Tree {
            files: vec![Entry {
                name: name.clone(),
                path: whole,
                len: metadata.len(),
            }],
            name,
            single: true,
        });
    }
    let rules = rules(&whole)?;
    let mut walk = Walk {
        root: whole.clone(),
        rules,
        above: vec![whole.clone()],
        files: vec![],
    };
    walk.folder(&whole, "")?;
    let mut files = walk.files;
    files.sort_by_cached_key(|entry| (entry.name.to_lowercase(), entry.name.clone()));
    Ok(Tree {
        name,
        single: false,
        files,
    })
}

/// What the ignore file of the root says (U1).
fn rules(root: &Path) -> Result<Gitignore, Failure> {
    let Some(file) = [".amlignore", ".gitignore"]
        .iter()
        .map(|name| root.join(name))
        .find(|path| path.is_file())
    else {
        return Ok(Gitignore::empty());
    };
    let mut builder = GitignoreBuilder::new(root);
    if let Some(error) = builder.add(&file) {
        return Err(Failure::wrong(format!("{}: {error}", file.display())));
    }
    builder
        .build()
        .map_err(|error| Failure::wrong(format!("{}: {error}", file.display())))
}

struct Walk {
    root: PathBuf,
    rules: Gitignore,
    /// Real paths of the folders that the walk stands in.
    above: Vec<PathBuf>,
    files: Vec<Entry>,
}

impl Walk {
    fn folder(&mut self, real: &Path, prefix: &str) -> Result<(), Failure> {
        if self.above.len() > DEPTH_LIMIT {
            return Err(Failure::wrong(format!(
                "{prefix}: more than {DEPTH_LIMIT} folders inside each other"
            )));
        }
        for entry in fs::read_dir(real).map_err(about(real))? {
            let entry = entry.map_err(about(real))?;
            let file_name = entry.file_name();
            let Some(part) = file_name.to_str() else {
                return Err(Failure::wrong(format!(
                    "{}: the name is not UTF-8",
                    entry.path().display()
                ))
                .hint("rename the file, or name it in .amlignore by a pattern"));
            };
            let name = if prefix.is_empty() {
                part.to_owned()
            } else {
                format!("{prefix}/{part}")
            };
            let kind = entry.file_type().map_err(about(&entry.path()))?;
            self.take(&name, &entry.path(), kind)?;
        }
        Ok(())
    }

    fn take(&mut self, name: &str, path: &Path, kind: fs::FileType) -> Result<(), Failure> {
        let ignored = |folder: bool| self.rules.matched(self.root.join(name), folder).is_ignore();
        // A pattern that ends in a slash means folders, and a link may be one: it is not looked at either way.
        if ignored(kind.is_dir()) || (kind.is_symlink() && ignored(true)) {
            return Ok(());
        }
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if kind.is_symlink() => return Err(broken(name, path, &error)),
            Err(error) => return Err(about(path)(error)),
        };
        if metadata.is_dir() {
            let real = path.canonicalize().map_err(about(path))?;
            if kind.is_symlink() && self.above.contains(&real) {
                return Err(Failure::wrong(format!(
                    "{name}: the link leads back to {}, a folder that holds it",
                    real.display()
                ))
                .hint("remove the link, or name it in .amlignore"));
            }
            self.above.push(real.clone());
            self.folder(&real, name)?;
            self.above.pop();
            return Ok(());
        }
        if !metadata.is_file() {
            return Err(
                Failure::wrong(format!("{name}: neither a file nor a folder"))
                    .hint("name it in .amlignore"),
            );
        }
        if self.files.len() == FILE_LIMIT {
            return Err(Failure::wrong(format!(
                "{}: more than {FILE_LIMIT} files",
                self.root.display()
            )));
        }
        self.files.push(Entry {
            name: name.to_owned(),
            path: path.to_owned(),
            len: metadata.len(),
        });
        Ok(())
    }
}

fn broken(name: &str, path: &Path, error: &io::Error) -> Failure {
    let target = fs::read_link(path).unwrap_or_default();
    let why = if error.kind() == io::ErrorKind::NotFound {
        "which does not exist"
    } else {
        "which leads in a circle"
    };
    Failure::wrong(format!(
        "{name}: the link points to {}, {why}",
        target.display()
    ))
    .hint("remove the link, or name it in .amlignore")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for name in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        root
    }
    fn names(root: &Path) -> Vec<String> {
        read(root)
            .unwrap()
            .files
            .into_iter()
            .map(|entry| entry.name)
            .collect()
    }

    #[test]
    fn the_whole_tree_goes_hidden_and_empty_files_too() {
        let root = folder(&["b.py", "A.py", "pkg/.gitkeep", "日本語/データ.csv"]);
        fs::write(root.path().join("empty"), "").unwrap();
        assert_eq!(
            names(root.path()),
            ["A.py", "b.py", "empty", "pkg/.gitkeep", "日本語/データ.csv"]
        );
    }

    #[test]
    fn amlignore_of_the_root_wins_and_only_the_root_counts() {
        let root = folder(&[
            "keep.py",
            "skip.bin",
            "cache/x",
            "sub/.gitignore",
            "sub/deep.bin",
        ]);
        fs::write(root.path().join("sub/.gitignore"), "*\n").unwrap();
        fs::write(root.path().join(".gitignore"), "keep.py\n").unwrap();
        fs::write(root.path().join(".amlignore"), "*.bin\ncache/\n").unwrap();
        assert_eq!(
            names(root.path()),
            [".amlignore", ".gitignore", "keep.py", "sub/.gitignore"]
        );
        fs::remove_file(root.path().join(".amlignore")).unwrap();
        assert!(!names(root.path()).contains(&"keep.py".to_owned()));
        let inner = root.path().join("sub");
        fs::remove_file(inner.join(".gitignore")).unwrap();
        assert_eq!(
            names(&inner),
            ["deep.bin"],
            "the ignore file further up does not count"
        );
    }

    #[test]
    fn links_are_followed_loops_and_broken_ones_are_named() {
        let root = folder(&["src/a.py"]);
        let outside = folder(&["shared.py"]);
        symlink(outside.path(), root.path().join("lib")).unwrap();
        assert_eq!(names(root.path()), ["lib/shared.py", "src/a.py"]);
        symlink("../src", root.path().join("src/again")).unwrap();
        assert!(
            read(root.path())
                .unwrap_err()
                .message
                .starts_with("src/again: the link leads back to ")
        );
        fs::write(root.path().join(".amlignore"), "again\n").unwrap();
        assert_eq!(
            names(root.path()),
            [".amlignore", "lib/shared.py", "src/a.py"]
        );
        symlink("nowhere", root.path().join("gone")).unwrap();
        assert_eq!(
            read(root.path()).unwrap_err().message,
            "gone: the link points to nowhere, which does not exist"
        );
    }
}
