//! Which names a blob may have. `BlobPath` has refused empty parts, `.`, `..` and NUL already.

use model::BlobPath;
use port::BlobError;

/// What every Linux and macOS file system takes as one name.
const SEGMENT_BYTES: usize = 255;
/// The kernel takes paths below 4,096 bytes; the rest is for names of ours beside the blob.
const PATH_BYTES: usize = 4_000;
/// Azure's limit of a blob's name, and its container.
const SEGMENTS: usize = 255;
/// Containers that are not containers.
const RESERVED: [&str; 2] = [super::TEMPORARY, super::sidecar::FOLDER];

/// Whether a blob may have this name.
pub(super) fn check(path: &BlobPath) -> Result<(), BlobError> {
    if !path.as_str().contains('/') {
        return Err(bad(path, "a blob lies in a container: `container/name`"));
    }
    check_folder(path)
}

/// Whether a folder of blobs may have this name; a container is one.
pub(super) fn check_folder(path: &BlobPath) -> Result<(), BlobError> {
    let text = path.as_str();
    let rule = if text.len() > PATH_BYTES {
        "a path has at most 4000 bytes"
    } else if text.split('/').any(|s| s.len() > SEGMENT_BYTES) {
        "a part of a path has at most 255 bytes"
    } else if text.split('/').count() > SEGMENTS {
        "a path has at most 255 parts"
    } else if RESERVED.contains(&path.container()) {
        "the containers .tmp and .meta are reserved"
    } else {
        return Ok(());
    };
    Err(bad(path, rule))
}

/// The folder of a path (`.` for a container) and the name in it.
pub(super) fn split(path: &BlobPath) -> (&str, &str) {
    path.as_str()
        .rsplit_once('/')
        .unwrap_or((".", path.as_str()))
}

pub(super) fn bad(path: &BlobPath, rule: &'static str) -> BlobError {
    BlobError::BadName {
        path: path.to_string(),
        rule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_stored_is_refused_by_its_rule() {
        let rule = |text: &str| match check(&BlobPath::new(text).unwrap()) {
            Ok(()) => "",
            Err(BlobError::BadName { rule, .. }) => rule,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(rule("c/a"), "");
        assert_eq!(rule(&format!("c/{}", "x".repeat(255))), "");
        assert_eq!(
            rule(&format!("c/{}", "長".repeat(86))),
            "a part of a path has at most 255 bytes"
        );
        assert_eq!(rule(&vec!["x"; 255].join("/")), "");
        assert_eq!(
            rule(&vec!["x"; 256].join("/")),
            "a path has at most 255 parts"
        );
        assert_eq!(
            rule(&vec!["x".repeat(200).as_str(); 20].join("/")),
            "a path has at most 4000 bytes"
        );
        for reserved in [".tmp/x", ".meta/x"] {
            assert_eq!(rule(reserved), "the containers .tmp and .meta are reserved");
        }
        assert_eq!(rule("lone"), "a blob lies in a container: `container/name`");
        for illegal in ["c/../x", "c/./x", "c//x", "/c/x", "c/\0", ""] {
            assert_eq!(BlobPath::new(illegal), None);
        }
    }
}
