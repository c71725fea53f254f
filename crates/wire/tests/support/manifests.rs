//! The manifests of `tests/crd`.

use std::path::PathBuf;

/// The files of a folder, `good` or `bad`, by name: the path and the text.
pub fn manifests(folder: &str) -> Vec<(String, PathBuf, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/crd")
        .join(folder);
    let mut files: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            (name, path, text)
        })
        .collect();
    files.sort();
    files
}
