//! Answers: JSON bodies and the headers that every answer carries.

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use model::Document;
use serde::Serialize;
use serde_json::Value;

/// How long a client should wait before it asks for the state of an operation again. Never `Retry-After: 0`: clients take
/// that for "no header" and sleep 30 s (wire §2).
pub(crate) const POLL_MS: &str = "200";

/// A JSON answer.
pub(crate) fn json<T: Serialize + ?Sized>(status: StatusCode, body: &T) -> Response {
    let bytes = serde_json::to_vec(body).expect("our answers have text keys and write to memory");
    raw(status, bytes.into())
}

/// An answer whose JSON is written already.
pub(crate) fn raw(status: StatusCode, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json; charset=utf-8"),
    );
    response
}

/// 200 with a JSON body.
pub(crate) fn ok<T: Serialize + ?Sized>(body: &T) -> Response {
    json(StatusCode::OK, body)
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// The view of a document with its generation as the ETag (D3).
pub(crate) fn document(status: StatusCode, document: &Document, view: &Value) -> Response {
    let mut response = json(status, view);
    response.headers_mut().insert(header::ETAG, etag(document));
    response
}

/// The ETag of a document.
pub(crate) fn etag(document: &Document) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{}\"", document.generation))
        .expect("digits between quotes are a header value")
}

/// `response` with one header more; a value that is no header value is left out.
pub(crate) fn with(mut response: Response, name: &'static str, value: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(value) {
        response
            .headers_mut()
            .insert(HeaderName::from_static(name), value);
    }
    response
}
