//! Writes and the long-running operations behind them (wire §2).

use super::{Client, accepted, body, hint_of};
use crate::failure::Failure;
use reqwest::{Method, RequestBuilder, Response, header::HeaderMap};
use serde_json::Value;
use std::time::Duration;

/// Whether a command waits for the end of the operation that it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until it is over.
    ForEnd,
    /// Only until it is accepted (`--no-wait`).
    ForAcceptance,
}

impl Wait {
    /// What `--no-wait` says.
    pub fn unless(no_wait: bool) -> Self {
        if no_wait {
            Wait::ForAcceptance
        } else {
            Wait::ForEnd
        }
    }
}

/// Shortest pause between two looks at an operation.
const SHORTEST: Duration = Duration::from_millis(20);
/// Longest, whatever the server asks for.
const LONGEST: Duration = Duration::from_secs(10);

impl Client {
    /// PUT; answers the document as it stands at the end.
    pub async fn put(&self, at: &str, json: &Value, wait: Wait) -> Result<Value, Failure> {
        let response =
            accepted(self.send(self.request(Method::PUT, at)?.json(json)).await?).await?;
        let operation = operation_of(response.headers());
        let document = body(response).await?;
        match operation {
            Some((url, pause)) if wait == Wait::ForEnd => {
                self.poll(&url, pause).await?;
                self.get(at).await
            }
            _ => Ok(document),
        }
    }

    /// DELETE.
    pub async fn delete(&self, at: &str, wait: Wait) -> Result<(), Failure> {
        self.begin(self.request(Method::DELETE, at)?, wait).await
    }

    /// POST of an action without an answer of its own (cancel).
    pub async fn act(&self, at: &str, json: &Value, wait: Wait) -> Result<(), Failure> {
        self.begin(self.request(Method::POST, at)?.json(json), wait)
            .await
    }

    async fn begin(&self, request: RequestBuilder, wait: Wait) -> Result<(), Failure> {
        let response: Response = accepted(self.send(request).await?).await?;
        match operation_of(response.headers()) {
            Some((url, pause)) if wait == Wait::ForEnd => self.poll(&url, pause).await,
            _ => Ok(()),
        }
    }

    /// Looks at an operation until it is over.
    async fn poll(&self, url: &str, first: Duration) -> Result<(), Failure> {
        let mut pause = first;
        loop {
            let response = accepted(self.send(self.request(Method::GET, url)?).await?).await?;
            let asked = pause_of(response.headers());
            let status = body(response).await?;
            match status["status"].as_str() {
                Some("Succeeded") => return Ok(()),
                Some("Failed" | "Canceled") => return Err(ended(&status)),
                _ => {}
            }
            tokio::time::sleep(pause).await;
            pause = asked.unwrap_or(pause * 2).clamp(SHORTEST, LONGEST);
        }
    }
}

fn ended(status: &Value) -> Failure {
    let message = status.pointer("/error/message").and_then(Value::as_str);
    let mut failure = Failure::failed(message.unwrap_or("the operation ended without success"));
    failure.hint = hint_of(status);
    failure
}

/// The URL that tells how the operation stands, and when to look first.
fn operation_of(headers: &HeaderMap) -> Option<(String, Duration)> {
    let url = headers
        .get("azure-asyncoperation")
        .or_else(|| headers.get("location"))?
        .to_str()
        .ok()?
        .to_owned();
    Some((url, pause_of(headers).unwrap_or(SHORTEST).min(LONGEST)))
}

fn pause_of(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    number("x-ms-retry-after-ms")
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs))
}
