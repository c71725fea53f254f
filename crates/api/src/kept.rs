//! Answers that are kept until something changes: what a client asks again and again while it waits costs a look-up (C2).
//!
//! M1 an answer is made of documents and of the published view alone; both change only in a turn that the loop counts (with
//!    or without an event), and a write is answered after its turn is counted: so a client reads what it wrote;
//! M2 the turn is read before the answer is made: an answer may be newer than its mark, never older.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::Response,
};
use bytes::Bytes;
use http_body_util::BodyExt;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};
use tokio::sync::watch;

use crate::Scheme;

/// Answers that are kept at once.
const MAX_ANSWERS: usize = 1024;
/// Larger ones are made anew; together they hold at most 8 MiB.
const MAX_BYTES: usize = 8 * 1024;

/// The answers of the last turn.
pub(crate) struct Kept {
    turns: watch::Receiver<u64>,
    answers: Mutex<Answers>,
}

#[derive(Default)]
struct Answers {
    turn: u64,
    by_request: HashMap<Box<str>, (Bytes, Option<HeaderValue>)>,
}

/// A request whose answer may be kept, and the turn it was looked up in.
pub(crate) struct Asked {
    request: Box<str>,
    turn: u64,
}

impl Kept {
    pub fn new(turns: watch::Receiver<u64>) -> Self {
        Kept {
            turns,
            answers: Mutex::default(),
        }
    }

    /// The answer, or what to keep it under. Absolute URLs in it depend on scheme and host, so these are part of the request.
    pub fn look(&self, scheme: Scheme, headers: &HeaderMap, uri: &Uri) -> Result<Response, Asked> {
        let turn = *self.turns.borrow(); // M2
        let host = headers.get(header::HOST).and_then(|h| h.to_str().ok());
        let host = host
            .or_else(|| uri.authority().map(|a| a.as_str()))
            .unwrap_or_default();
        let target = uri.path_and_query().map_or("", |p| p.as_str());
        let request = format!("{} {host} {target}", scheme.name()).into_boxed_str();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.turn != turn {
            answers.turn = turn;
            answers.by_request.clear();
        }
        match answers.by_request.get(&request) {
            Some((body, etag)) => Ok(response(body.clone(), etag.clone())),
            None => Err(Asked { request, turn }),
        }
    }

    /// Keeps a good answer; gives it back.
    pub async fn keep(&self, asked: Asked, response: Response) -> Response {
        if response.status() != StatusCode::OK {
            return response;
        }
        let (parts, body) = response.into_parts();
        // Our own bodies are in memory: this neither waits nor fails.
        let Ok(body) = body.collect().await.map(|b| b.to_bytes()) else {
            return Response::from_parts(parts, Body::empty());
        };
        if body.len() <= MAX_BYTES {
            let etag = parts.headers.get(header::ETAG).cloned();
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            if answers.turn == asked.turn && answers.by_request.len() < MAX_ANSWERS {
                answers
                    .by_request
                    .insert(asked.request, (body.clone(), etag));
            }
        }
        Response::from_parts(parts, Body::from(body))
    }
}

fn response(body: Bytes, etag: Option<HeaderValue>) -> Response {
    let mut response = crate::reply::raw(StatusCode::OK, body);
    if let Some(etag) = etag {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: Result<Response, Asked>) -> Option<u16> {
        result.ok().map(|r| r.status().as_u16())
    }

    #[tokio::test]
    async fn an_answer_is_kept_until_the_next_turn() {
        let (turn, turns) = watch::channel(1);
        let kept = Kept::new(turns);
        let (headers, uri) = (HeaderMap::new(), Uri::from_static("/a?b"));
        let look = || kept.look(Scheme::Https, &headers, &uri);
        let asked = look().unwrap_err();
        kept.keep(asked, crate::reply::ok("x")).await;
        assert_eq!(text(look()), Some(200));
        assert_eq!(
            text(kept.look(Scheme::Http, &headers, &uri)),
            None,
            "its URLs say https"
        );

        let Err(late) = kept.look(Scheme::Http, &headers, &uri) else {
            panic!("nothing was kept for http")
        };
        turn.send_replace(2);
        assert_eq!(text(look()), None);
        kept.keep(late, crate::reply::ok("old")).await;
        assert_eq!(
            text(kept.look(Scheme::Http, &headers, &uri)),
            None,
            "made before the turn (M2)"
        );
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let (_turn, turns) = watch::channel(1);
        let kept = Kept::new(turns);
        for i in 0..2 * MAX_ANSWERS {
            let uri: Uri = format!("/{i}").parse().unwrap();
            if let Err(asked) = kept.look(Scheme::Https, &HeaderMap::new(), &uri) {
                kept.keep(asked, crate::reply::ok("x")).await;
            }
        }
        assert_eq!(kept.answers.lock().unwrap().by_request.len(), MAX_ANSWERS);
        let uri = Uri::from_static("/refused");
        let Err(asked) = kept.look(Scheme::Https, &HeaderMap::new(), &uri) else {
            panic!("nothing was kept")
        };
        kept.keep(asked, crate::reply::empty(StatusCode::NOT_FOUND))
            .await;
        assert!(kept.look(Scheme::Https, &HeaderMap::new(), &uri).is_err());
    }
}
