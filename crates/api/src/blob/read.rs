//! Blobs out: HEAD, GET, GET of a range; conditions.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use control::{BlobError, BlobInfo, Blobs};
use model::BlobPath;
use std::{io, sync::Arc};
use tokio::sync::mpsc;

use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// What is read at once and answered without a stream; most blobs are smaller.
const PIECE_BYTES: usize = 256 * 1024;
/// Pieces that wait for a slow reader.
const PIECES_AHEAD: usize = 2;

/// What a condition guards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    Read,
    Write,
}

fn not_met(status: StatusCode) -> Problem {
    Problem::new(
        status,
        "ConditionNotMet",
        "The condition specified using HTTP conditional header(s) is not met.",
    )
}

/// Whether `If-None-Match` names everything.
fn anything(headers: &HeaderMap) -> bool {
    headers.get(header::IF_NONE_MATCH).is_some_and(|v| v == "*")
}

/// To read what must not be there.
fn unsatisfiable_condition() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "UnsatisfiableCondition",
        "The request includes an unsatisfiable condition for this operation.",
    )
}

/// The blob that a request is about, if its conditions are met. What is not there matches no tag.
pub(super) fn found(
    blobs: &Arc<dyn Blobs>,
    path: &BlobPath,
    headers: &HeaderMap,
    purpose: For,
) -> Result<BlobInfo, Problem> {
    if purpose == For::Write {
        combined(headers)?;
    }
    match blobs.info(path) {
        Ok(info) => conditions(headers, &info, purpose).map(|()| info),
        Err(BlobError::NotFound(_)) if headers.contains_key(header::IF_MATCH) => {
            Err(not_met(StatusCode::PRECONDITION_FAILED))
        }
        Err(BlobError::NotFound(_)) if purpose == For::Read && anything(headers) => {
            Err(unsatisfiable_condition())
        }
        Err(error) => Err(error.into()),
    }
}

/// The four conditions of a request against the blob that is there. Times are compared in seconds, as they are told.
pub(super) fn conditions(
    headers: &HeaderMap,
    info: &BlobInfo,
    purpose: For,
) -> Result<(), Problem> {
    let etag = super::quoted(&info.etag);
    let names = |header: &HeaderValue| {
        header.to_str().is_ok_and(|text| {
            text.split(',')
                .map(str::trim)
                .any(|tag| tag == "*" || super::quoted(tag) == etag)
        })
    };
    let asked = |name| {
        let text = headers.get(name)?.to_str().ok()?;
        Some(crate::time::parse_http(text)?.0 / 1000)
    };
    let written = info.modified.0 / 1000;
    // Of each condition that there is, whether it holds.
    let same = headers.get(header::IF_MATCH).map(names);
    let other = headers.get(header::IF_NONE_MATCH).map(|h| !names(h));
    let newer = asked(header::IF_MODIFIED_SINCE).map(|at| written > at);
    let older = asked(header::IF_UNMODIFIED_SINCE).map(|at| written <= at);
    let failed = || Err(not_met(StatusCode::PRECONDITION_FAILED));
    match purpose {
        // A tag decides, where there is one.
        For::Write => match other.or(same).or(newer).or(older) {
            Some(false) => failed(),
            Some(true) | None => Ok(()),
        },
        For::Read if anything(headers) => Err(unsatisfiable_condition()),
        For::Read if same == Some(false) || older == Some(false) => failed(),
        // Of the two that ask for news, one is enough.
        For::Read
            if other == Some(false) && newer != Some(true)
                || newer == Some(false) && other != Some(true) =>
        {
            Err(not_met(StatusCode::NOT_MODIFIED))
        }
        For::Read => Ok(()),
    }
}

/// Refuses what a write cannot ask together: a tag goes with the time of its own direction, and with nothing else.
pub(super) fn combined(headers: &HeaderMap) -> Result<(), Problem> {
    let has = |name| headers.contains_key(name);
    let (same, other) = (has(header::IF_MATCH), has(header::IF_NONE_MATCH));
    let (newer, older) = (
        has(header::IF_MODIFIED_SINCE),
        has(header::IF_UNMODIFIED_SINCE),
    );
    if (same || older) && (other || newer) {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "MultipleConditionHeadersNotSupported",
            "Multiple condition headers are not supported.",
        ));
    }
    Ok(())
}

/// Where the bytes of a request begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Whole,
    /// From, up to and without.
    Part(u64, u64),
    Unsatisfiable,
}

fn range(text: Option<&str>, len: u64) -> Range {
    // Anything that is not one range of bytes is ignored, as RFC 9110 says.
    let Some((from, to)) = text
        .and_then(|t| t.trim().strip_prefix("bytes="))
        .filter(|t| !t.contains(','))
        .and_then(|t| t.split_once('-'))
    else {
        return Range::Whole;
    };
    let (from, to) = (from.trim(), to.trim());
    match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) if from <= to && from < len => {
            Range::Part(from, to.saturating_add(1).min(len))
        }
        (Ok(from), Ok(to)) if from > to => Range::Whole,
        (Ok(from), Err(_)) if to.is_empty() && from < len => Range::Part(from, len),
        (Ok(_), _) if to.is_empty() || to.parse::<u64>().is_ok() => Range::Unsatisfiable,
        (Err(_), Ok(last)) if from.is_empty() && last > 0 && len > 0 => {
            Range::Part(len.saturating_sub(last), len)
        }
        (Err(_), Ok(_)) if from.is_empty() => Range::Unsatisfiable,
        _ => Range::Whole,
    }
}

fn describe(call: &Call, path: &BlobPath, info: &BlobInfo, mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(media_type(path)),
    );
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    for (name, value) in [
        ("x-ms-blob-type", super::append::word(info)),
        ("x-ms-lease-status", "unlocked"),
        ("x-ms-lease-state", "available"),
        ("x-ms-server-encrypted", "true"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    super::settings::put(response.headers_mut(), info);
    super::meta_headers(&mut response, info);
    let response = super::append::describe(response, info);
    super::standard(call, super::stamp(response, info))
}

/// The blob store keeps no type; browsers and the SDK are content with this.
fn media_type(path: &BlobPath) -> &'static str {
    match path.base().rsplit_once('.').map(|(_, end)| end) {
        Some("txt" | "log" | "csv" | "py" | "yml" | "yaml") => "text/plain; charset=utf-8",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

/// HEAD.
pub(super) async fn head(api: Arc<Api>, call: Call, path: BlobPath) -> Answer {
    crate::blocking(move || {
        let info = found(api.control.blobs(), &path, &call.headers, For::Read)?;
        let mut response = describe(&call, &path, &info, reply::empty(StatusCode::OK));
        if let Some(md5) = super::settings::md5(&info) {
            response = reply::with(response, "content-md5", md5);
        }
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, HeaderValue::from(info.len));
        Ok(response)
    })
    .await
}

/// GET or HEAD of the metadata alone.
pub(super) async fn metadata(api: Arc<Api>, call: Call, path: BlobPath) -> Answer {
    crate::blocking(move || {
        let info = found(api.control.blobs(), &path, &call.headers, For::Read)?;
        let mut response = super::stamp(reply::empty(StatusCode::OK), &info);
        super::meta_headers(&mut response, &info);
        Ok(super::standard(&call, response))
    })
    .await
}

/// GET, whole or a range. A blob that grows while it is read (a live log) is answered as long as it was at the start.
pub(crate) async fn get(api: Arc<Api>, call: Call, path: BlobPath) -> Answer {
    let blobs = api.control.blobs().clone();
    crate::blocking(move || {
        let info = found(&blobs, &path, &call.headers, For::Read)?;
        let wanted = call.header("x-ms-range").or_else(|| call.header("range"));
        let (from, to, status) = match range(wanted, info.len) {
            Range::Whole => (0, info.len, StatusCode::OK),
            Range::Part(from, to) => (from, to, StatusCode::PARTIAL_CONTENT),
            Range::Unsatisfiable => return Ok(unsatisfiable(&call, &info)),
        };
        let body = bytes(&blobs, &path, from, to)?;
        let mut response = describe(&call, &path, &info, Response::new(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(to - from));
        let md5_name = if status == StatusCode::OK {
            "content-md5"
        } else {
            "x-ms-blob-content-md5"
        };
        if let Some(md5) = super::settings::md5(&info).and_then(|m| HeaderValue::from_str(m).ok()) {
            headers.insert(md5_name, md5);
        }
        if status == StatusCode::PARTIAL_CONTENT {
            let text = format!("bytes {from}-{}/{}", to - 1, info.len);
            response = reply::with(response, "content-range", &text);
        }
        Ok(response)
    })
    .await
}

fn unsatisfiable(call: &Call, info: &BlobInfo) -> Response {
    let response = Problem::new(
        StatusCode::RANGE_NOT_SATISFIABLE,
        "InvalidRange",
        "The range specified is invalid for the current size of the resource.",
    )
    .into_blob_response(false);
    super::standard(
        call,
        reply::with(response, "content-range", &format!("bytes */{}", info.len)),
    )
}

/// The bytes `from..to` as a body: at once when they are few, else in pieces as fast as the client reads (B2).
fn bytes(blobs: &Arc<dyn Blobs>, path: &BlobPath, from: u64, to: u64) -> Result<Body, Problem> {
    let first = piece(blobs, path, from, to).map_err(BlobError::Io)?;
    let at = from + first.len() as u64;
    if at >= to {
        return Ok(Body::from(first));
    }
    let (sender, mut receiver) = mpsc::channel::<io::Result<Bytes>>(PIECES_AHEAD);
    let (blobs, path) = (blobs.clone(), path.clone());
    tokio::task::spawn_blocking(move || {
        let mut next = Ok(first);
        let mut at = from;
        loop {
            let end = match &next {
                Ok(bytes) => {
                    at += bytes.len() as u64;
                    bytes.is_empty() || at >= to
                }
                Err(_) => true,
            };
            // Nobody reads any more: the client has gone.
            if sender.blocking_send(next).is_err() || end {
                return;
            }
            next = piece(&blobs, &path, at, to);
        }
    });
    Ok(Body::from_stream(futures_util::stream::poll_fn(
        move |cx| receiver.poll_recv(cx),
    )))
}

fn piece(blobs: &Arc<dyn Blobs>, path: &BlobPath, from: u64, to: u64) -> io::Result<Bytes> {
    let len = usize::try_from(to.saturating_sub(from)).map_or(PIECE_BYTES, |n| n.min(PIECE_BYTES));
    let mut buffer = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match blobs.read_at(path, from + filled as u64, &mut buffer[filled..]) {
            Ok(0) => {
                return Err(io::Error::other(format!(
                    "blob {path} became shorter while it was read"
                )));
            }
            Ok(n) => filled += n,
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(Bytes::from(buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        for (text, want) in [
            ("bytes=0-3", Range::Part(0, 4)),
            ("bytes=2-", Range::Part(2, 10)),
            ("bytes=2-99", Range::Part(2, 10)),
            ("bytes=-3", Range::Part(7, 10)),
            ("bytes=-99", Range::Part(0, 10)),
            ("bytes=10-", Range::Unsatisfiable),
            ("bytes=10-12", Range::Unsatisfiable),
            ("bytes=-0", Range::Unsatisfiable),
            ("bytes=5-3", Range::Whole),
            ("bytes=0-1,3-4", Range::Whole),
            ("lines=1-2", Range::Whole),
            ("bytes=x-y", Range::Whole),
            ("bytes=0-18446744073709551615", Range::Part(0, 10)),
        ] {
            assert_eq!(range(Some(text), 10), want, "{text}");
        }
        assert_eq!(range(Some("bytes=0-33554431"), 0), Range::Unsatisfiable);
        assert_eq!(range(None, 10), Range::Whole);
    }
}
