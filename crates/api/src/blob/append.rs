//! Append blobs: what programs write that log to a blob.
//!
//! N1 an append is there whole or not at all, and appends to one blob come one after the other;
//! N2 an append writes the blob anew, so that nobody sees half of it: it costs as much as the blob is long, and append blobs stay
//!    short.

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use control::{BlobError, BlobInfo};
use http_body_util::{BodyExt, Limited};
use md5::{Digest, Md5};
use model::BlobPath;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    read::{For, conditions},
    write::precheck,
};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// Among the metadata of an append blob, under a name that no header can have: how many appends it has.
pub(super) const MARK: &str = ":append-blocks";
/// Longest append blob (N2): above it an append costs more than a log line is worth.
const MAX_BYTES: u64 = 64 << 20;
/// Most appends of one blob, as in Azure.
const MAX_APPENDS: u64 = 50_000;
/// Blobs whose appends wait for each other though they are different ones: by their digest.
const TURNS: usize = 64;

static TURN: [Mutex<()>; TURNS] = [const { Mutex::new(()) }; TURNS];

/// How many appends a blob has, if it is an append blob.
pub(super) fn appends(info: &BlobInfo) -> Option<u64> {
    info.metadata.get(MARK)?.parse().ok()
}

/// The word for what a blob is.
pub(super) fn word(info: &BlobInfo) -> &'static str {
    match appends(info) {
        Some(_) => "AppendBlob",
        None => "BlockBlob",
    }
}

/// The headers that only an append blob has.
pub(super) fn describe(response: Response, info: &BlobInfo) -> Response {
    match appends(info) {
        Some(count) => reply::with(
            response,
            "x-ms-blob-committed-block-count",
            &count.to_string(),
        ),
        None => response,
    }
}

/// An operation of block blobs on an append blob, or the other way round.
pub(super) fn wrong_type() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "InvalidBlobType",
        "The blob type is invalid for this operation.",
    )
}

/// PUT of an append blob: it begins with nothing.
pub(super) async fn create(api: Arc<Api>, call: Call, path: BlobPath, body: Body) -> Answer {
    if !taken(body, 0).await?.is_empty() {
        return Err(Problem::bad("an append blob is created without content"));
    }
    let blobs = api.control.blobs().clone();
    let create_only = precheck(&blobs, &call, &path).await?;
    let mut metadata = super::metadata(&call)?;
    metadata.insert(MARK.to_owned(), "0".to_owned());
    let info = crate::blocking(move || {
        let writer = blobs.write(&path)?;
        Ok(writer.finish(create_only, None, metadata)?)
    })
    .await?;
    Ok(super::standard(
        &call,
        super::stamp(reply::empty(StatusCode::CREATED), &info),
    ))
}

async fn taken(body: Body, limit: u64) -> Result<bytes::Bytes, Problem> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Problem::too_large(limit))
        }
        Err(_) => Err(Problem::bad("the body ended early")),
    }
}

/// A number that a header gives.
fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number
        .map(Some)
        .ok_or_else(|| Problem::bad(format!("{name} is no number")))
}

/// PUT ?comp=appendblock.
pub(super) async fn append(api: Arc<Api>, call: Call, path: BlobPath, body: Body) -> Answer {
    let bytes = taken(body, MAX_BYTES).await?;
    if bytes.is_empty() {
        return Err(Problem::bad("nothing is appended"));
    }
    let md5 = crate::base64(&Md5::digest(&bytes));
    if call.header("content-md5").is_some_and(|want| want != md5) {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "Md5Mismatch",
            "The MD5 value specified in the request did not match with the MD5 value calculated by the server.",
        ));
    }
    let position = number(&call.headers, "x-ms-blob-condition-appendpos")?;
    let largest = number(&call.headers, "x-ms-blob-condition-maxsize")?;
    crate::blocking(move || {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let turn = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or_default();
        let _turn = TURN[turn].lock().unwrap_or_else(PoisonError::into_inner); // N1
        let blobs = api.control.blobs();
        let before = blobs.info(&path)?;
        let count = appends(&before).ok_or_else(wrong_type)?;
        conditions(&call.headers, &before, For::Write)?;
        let unmet = |code: &'static str, what: String| {
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, code, what))
        };
        if position.is_some_and(|at| at != before.len) {
            let what = format!("the blob has {} bytes", before.len);
            return unmet("AppendPositionConditionNotMet", what);
        }
        let after = before.len + bytes.len() as u64;
        if largest.is_some_and(|most| after > most) {
            let what = format!("the blob would have {after} bytes");
            return unmet("MaxBlobSizeConditionNotMet", what);
        }
        if count >= MAX_APPENDS || after > MAX_BYTES {
            return Err(Problem::new(
                StatusCode::CONFLICT,
                "BlockCountExceedsLimit",
                format!(
                    "an append blob has at most {MAX_APPENDS} appends and {MAX_BYTES} bytes, this one would have {} and {after}",
                    count + 1
                ),
            ));
        }
        let mut writer = blobs.write(&path)?;
        if writer.add(&path, 0..before.len)? != before.len {
            return Err(Problem::bad("the blob was replaced meanwhile"));
        }
        io::Write::write_all(&mut writer, &bytes).map_err(BlobError::Io)?;
        let mut metadata: BTreeMap<String, String> = before.metadata;
        metadata.insert(MARK.to_owned(), (count + 1).to_string());
        let info = writer.finish(false, None, metadata)?;
        let mut response = super::stamp(reply::empty(StatusCode::CREATED), &info);
        response = describe(response, &info);
        response = reply::with(response, "content-md5", &md5);
        response = reply::with(response, "x-ms-blob-append-offset", &before.len.to_string());
        Ok(super::standard(&call, response))
    })
    .await
}
