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
/// Longest value of one.
const MAX_BYTES: usize = 1024;

/// Whether a name among the metadata is one of ours.
pub(super) fn is_one(name: &str) -> bool {
    name.starts_with(':')
}

/// Whether it is one that clients give.
pub(super) fn is_given(name: &str) -> bool {
    ALL.iter().any(|(_, _, _, known)| *known == name)
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
}

/// Elements of a listing.
pub(super) fn elements(info: &BlobInfo) -> impl Iterator<Item = (&'static str, &str)> {
    ALL.into_iter()
        .filter_map(|(_, _, element, name)| Some((element, info.metadata.get(name)?.as_str())))
}
