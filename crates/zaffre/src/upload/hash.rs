//! Hashes of what is uploaded, as the SDK makes them, so that either client finds what the other has sent.

use super::tree::{Entry, Tree};
use crate::failure::{Failure, about};
use sha2::{Digest, Sha256};
use std::{fs::File, io::Read};

/// The version of the code hash that is sent beside it.
pub const CODE_VERSION: &str = "202208";
/// What the SDK starts the hash of an upload with.
const UPLOAD_SEED: &[u8] = b"Initialize for october 2021 AML CLI version";

/// Hash of a folder of code: the number of files, their names and sizes, then their bytes.
pub fn code(tree: &Tree) -> Result<String, Failure> {
    let mut hash = Sha256::new();
    hash.update(tree.files.len().to_string());
    for entry in &tree.files {
        hash.update(format!("#{}#", entry.name));
        hash.update(entry.len.to_string());
    }
    for entry in &tree.files {
        feed(&mut hash, entry)?;
    }
    Ok(hex(&hash.finalize()))
}

/// Hash that an upload lies under: names and bytes.
pub fn content(tree: &Tree) -> Result<String, Failure> {
    let mut hash = Sha256::new();
    hash.update(UPLOAD_SEED);
    for entry in &tree.files {
        hash.update(entry.name.as_bytes());
        hash.update([0]);
        hash.update(entry.len.to_string());
        hash.update([0]);
        feed(&mut hash, entry)?;
    }
    Ok(hex(&hash.finalize()))
}

/// Hash of a JSON document: the name of an anonymous asset.
pub fn document(value: &serde_json::Value) -> String {
    hex(&Sha256::digest(value.to_string().as_bytes()))
}

/// Feeds a file; one that changes its size on the way is refused, because the hash would be of nothing that is sent.
fn feed(hash: &mut Sha256, entry: &Entry) -> Result<(), Failure> {
    let mut file = File::open(&entry.path).map_err(about(&entry.path))?;
    let mut buffer = vec![0; 64 * 1024];
    let mut seen = 0_u64;
    loop {
        let read = file.read(&mut buffer).map_err(about(&entry.path))?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        seen += read as u64;
    }
    if seen != entry.len {
        return Err(Failure::failed(format!(
            "{}: the file changes while it is read",
            entry.path.display()
        )));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upload::tree;
    use std::fs;

    #[test]
    fn the_code_hash_is_the_one_of_the_sdk() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("b.py"), "bb").unwrap();
        fs::write(root.path().join("A.py"), "a").unwrap();
        let expected = hex(&Sha256::digest(b"2#A.py#1#b.py#2abb"));
        assert_eq!(code(&tree::read(root.path()).unwrap()).unwrap(), expected);
    }

    #[test]
    fn a_renamed_or_changed_file_changes_the_hash() {
        let root = tempfile::tempdir().unwrap();
        let hash = || content(&tree::read(root.path()).unwrap()).unwrap();
        fs::write(root.path().join("a"), "1").unwrap();
        let first = hash();
        fs::rename(root.path().join("a"), root.path().join("b")).unwrap();
        let second = hash();
        fs::write(root.path().join("b"), "2").unwrap();
        assert!(first != second && second != hash());
    }
}
