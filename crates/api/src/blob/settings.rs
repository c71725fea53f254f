//! What a client says of a blob's content: type, encoding, language, caching, disposition.
//!
//! They are kept among the metadata of the blob, under names that no header can have, so that they are written with it.

use axum::http::{HeaderName, HeaderValue};
use control::BlobInfo;
use std::collections::BTreeMap;

use crate::{call::Call, problem::Problem};

/// Header of the request, header of an answer, element of a listing, name among the metadata.
const ALL: [(&str, &str, &str, &str); 5] = [
    (
        "x-ms-blob-content-type",
        "content-type",
        "Content-Type",
        ":content-type",
    ),
    (
        "x-ms-blob-content-encoding",
        "content-encoding",
        "Content-Encoding",
        ":content-encoding",
    ),
    (
        "x-ms-blob-content-language",
        "content-language",
        "Content-Language",
        ":content-language",
    ),
    (
        "x-ms-blob-cache-control",
        "cache-control",
        "Cache-Control",
        ":cache-control",
    ),
    (
        "x-ms-blob-content-disposition",
        "content-disposition",
        "Content-Disposition",
        ":content-disposition",
    ),
];
/// Of a blob that is a copy: which copy, and when it was made. A new content, or new settings, forget it, as at Azure.
const COPY: &str = ":copy";
/// A digest that a client has said of a blob that was there; it stands for the one that was counted.
const MD5: &str = ":content-md5";
/// Bytes of a digest.
const MD5_BYTES: usize = 16;
/// Longest value of one.
const MAX_BYTES: usize = 1024;

/// Whether a name among the metadata is one of ours.
pub(super) fn is_one(name: &str) -> bool {
    name.starts_with(':')
}

/// What the request says.
pub(super) fn read(call: &Call) -> Result<BTreeMap<String, String>, Problem> {
    let mut out = BTreeMap::new();
    for (asked, _, _, name) in ALL {
        let Some(value) = call.header(asked).filter(|v| !v.is_empty()) else {
            continue;
        };
        if value.len() > MAX_BYTES {
            return Err(Problem::user(format!(
                "{asked} has {} bytes, allowed are {MAX_BYTES}",
                value.len()
            )));
        }
        out.insert(name.to_owned(), value.to_owned());
    }
    Ok(out)
}

/// What the request says of the digest of a blob that is there.
pub(super) fn digest(call: &Call) -> Result<Option<(String, String)>, Problem> {
    let Some(given) = call.header("x-ms-blob-content-md5") else {
        return Ok(None);
    };
    match crate::from_base64(given) {
        Some(bytes) if bytes.len() == MD5_BYTES => Ok(Some((MD5.to_owned(), given.to_owned()))),
        _ => Err(Problem::new(
            axum::http::StatusCode::BAD_REQUEST,
            "InvalidMd5",
            "x-ms-blob-content-md5 is no base64 of 16 bytes",
        )),
    }
}

/// The digest that is told of a blob.
pub(super) fn md5(info: &BlobInfo) -> Option<&str> {
    let given = info.metadata.get(MD5).map(String::as_str);
    given.or(info.md5.as_deref())
}

/// Those of a blob.
pub(super) fn kept(info: &BlobInfo) -> impl Iterator<Item = (&String, &String)> {
    info.metadata.iter().filter(|(name, _)| is_one(name))
}

/// Puts them into an answer.
pub(super) fn put(headers: &mut axum::http::HeaderMap, info: &BlobInfo) {
    for (_, header, _, name) in ALL {
        if let Some(value) = info.metadata.get(name)
            && let Ok(value) = HeaderValue::from_str(value)
        {
            headers.insert(HeaderName::from_static(header), value);
        }
    }
    put_copy(headers, info);
}

/// Marks what is kept of a blob as of a copy that was just made.
pub(super) fn copied(kept: &mut BTreeMap<String, String>, id: &str, made: &str) {
    kept.insert(COPY.to_owned(), format!("{id} {made}"));
}

/// What of a blob is no setting of it, and stays when those change: its metadata and its type.
pub(super) fn stays(name: &str) -> bool {
    !is_one(name) || name == super::append::MARK
}

/// What an answer says of a copy; all of them are made before they are answered.
fn put_copy(headers: &mut axum::http::HeaderMap, info: &BlobInfo) {
    let Some((id, made)) = info
        .metadata
        .get(COPY)
        .and_then(|text| text.split_once(' '))
    else {
        return;
    };
    let progress = format!("{0}/{0}", info.len);
    for (name, value) in [
        ("x-ms-copy-id", id),
        ("x-ms-copy-status", "success"),
        ("x-ms-copy-progress", &progress),
        ("x-ms-copy-completion-time", made),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
}

/// Elements of a listing.
pub(super) fn elements(info: &BlobInfo) -> impl Iterator<Item = (&'static str, &str)> {
    ALL.into_iter()
        .filter_map(|(_, _, element, name)| Some((element, info.metadata.get(name)?.as_str())))
}
