//! The command line as a client of the ARM contract, and of nothing else.
//!
//! K1 a request that may be repeated is repeated when the connection breaks; one that may not is only when it carries an id
//! that the server recognises;
//! K2 a refusal keeps the server's words, its status becomes the command's (X1);
//! K3 a warning of the server is printed on stderr, whatever the command.

pub mod account;
pub mod blob;
pub mod kube;
pub mod locate;
pub mod operation;

use crate::{cli::Globals, failure::Failure, output};
use reqwest::{
    Method, RequestBuilder, Response, StatusCode,
    header::{HeaderMap, HeaderValue},
};
use serde_json::Value;
use std::time::Duration;

pub use locate::Scope;

/// How long a connection may take: the server is near, or it is not there.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long an answer may take; long work is polled, never waited for in one request.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// Repeats of a request whose connection broke.
const REPEATS: u32 = 5;
/// First pause before a repeat; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Items of one list: a listing that never ends is an error of the server.
const LIST_LIMIT: usize = 1_000_000;
/// The version sent with requests; the server accepts any.
const API_VERSION: &str = "2024-01-01-preview";

/// A connection to a server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: String,
    scope: Scope,
}

impl Client {
    /// The server and scope that the flags, the environment and the user's folder say.
    pub async fn connect(globals: &Globals) -> Result<Client, Failure> {
        let mut found = locate::server(globals)?;
        if let Some(account) = found.account.take() {
            found.token = account.access(&crate::home::Home::find()?).await?.token;
        }
        let scope = locate::scope(globals)?;
        Client::new(&found, scope)
    }

    /// A client of a known server.
    pub fn new(server: &locate::Address, scope: Scope) -> Result<Client, Failure> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .read_timeout(ANSWER_LIMIT)
            .user_agent(concat!("zaffre/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .http1_only();
        if let Some(pem) = &server.ca {
            let roots = reqwest::Certificate::from_pem_bundle(pem).map_err(|error| {
                Failure::wrong(format!("the server's authority cannot be read: {error}"))
            })?;
            builder = builder.tls_certs_only(roots);
        }
        let http = builder
            .build()
            .map_err(|error| Failure::wrong(format!("no HTTP client: {}", chain(&error))))?;
        Ok(Client {
            http,
            base: server.url.trim_end_matches('/').to_owned(),
            token: server.token.clone(),
            scope,
        })
    }

    /// Where commands act.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// An address of this server as a path, whatever name the server has for itself.
    pub fn own(&self, url: &str) -> String {
        let path = url.split_once("://").map_or(url, |(_, rest)| {
            rest.find('/').map_or("/", |at| &rest[at..])
        });
        path.to_owned()
    }

    /// The path of something in the workspace.
    pub fn at(&self, rest: &str) -> String {
        format!("{}/{rest}", self.scope.workspace_id())
    }

    /// Starts a request. `at` is a path of this server, or a whole URL of it.
    fn request(&self, method: Method, at: &str) -> Result<RequestBuilder, Failure> {
        let url = self.url(at)?;
        Ok(self.http.request(method, url).bearer_auth(&self.token))
    }

    fn url(&self, at: &str) -> Result<String, Failure> {
        let full = if at.starts_with('/') {
            format!("{}{at}", self.base)
        } else {
            at.to_owned()
        };
        if !full.starts_with(&format!("{}/", self.base)) {
            return Err(Failure::failed(format!(
                "the server {} points to another one: {full}",
                self.base
            )));
        }
        if full.contains("api-version=") {
            return Ok(full);
        }
        let mark = if full.contains('?') { '&' } else { '?' };
        Ok(format!("{full}{mark}api-version={API_VERSION}"))
    }

    /// Sends, and repeats when the connection breaks (K1). The request must be one that may be repeated.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let mut pause = FIRST_PAUSE;
        let mut left = REPEATS;
        loop {
            let Some(copy) = request.try_clone() else {
                return request
                    .send()
                    .await
                    .map_err(|error| self.unreachable(&error));
            };
            match copy.send().await {
                Ok(response) if retry_asked(response.status()) && left > 0 => {
                    pause = pause.max(Duration::from_secs(1));
                }
                Ok(response) => return Ok(response),
                Err(error) if error.is_connect() && left == REPEATS => {
                    return Err(self.unreachable(&error));
                }
                Err(error) if left == 0 || error.is_builder() => {
                    return Err(self.unreachable(&error));
                }
                Err(_) => {}
            }
            left -= 1;
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if error.is_connect() {
            return Failure::wrong(format!(
                "no server answers at {}: {}",
                self.base,
                chain(error)
            ))
            .hint("start one with `zaffre serve`, or name one with --server");
        }
        Failure::failed(format!("{}: {}", self.base, chain(error)))
    }

    /// GET. A 404 is an error.
    pub async fn get(&self, at: &str) -> Result<Value, Failure> {
        body(accepted(self.send(self.request(Method::GET, at)?).await?).await?).await
    }

    /// GET. A 404 is `None`.
    pub async fn find(&self, at: &str) -> Result<Option<Value>, Failure> {
        let response = self.send(self.request(Method::GET, at)?).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        body(accepted(response).await?).await.map(Some)
    }

    /// POST with a body and headers, only for what may be repeated.
    pub async fn post(
        &self,
        at: &str,
        json: &Value,
        headers: &[(&'static str, String)],
    ) -> Result<Value, Failure> {
        let mut request = self.request(Method::POST, at)?.json(json);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        body(accepted(self.send(request).await?).await?).await
    }

    /// POST of something that must not happen twice: never repeated, whatever becomes of the connection (K1).
    pub async fn post_once(&self, at: &str, json: &Value) -> Result<Value, Failure> {
        let response = self.request(Method::POST, at)?.json(json).send().await;
        body(accepted(response.map_err(|error| self.unreachable(&error))?).await?).await
    }

    /// PUT of something that is answered once, as a secret is: never repeated.
    pub async fn put_once(&self, at: &str, json: &Value) -> Result<Value, Failure> {
        let response = self.request(Method::PUT, at)?.json(json).send().await;
        body(accepted(response.map_err(|error| self.unreachable(&error))?).await?).await
    }

    /// DELETE of something that goes at once; whether it was there.
    pub async fn erase(&self, at: &str) -> Result<bool, Failure> {
        let response = self.send(self.request(Method::DELETE, at)?).await?;
        match response.status() {
            StatusCode::NOT_FOUND | StatusCode::NO_CONTENT => Ok(false),
            _ => accepted(response).await.map(|_| true),
        }
    }

    /// A form without a credential, as OAuth has them. The inner error is what the server refused it with.
    pub async fn form(
        &self,
        at: &str,
        form: &[(&str, &str)],
    ) -> Result<Result<Value, Value>, Failure> {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::wrong(format!("{}: not an address: {error}", self.base))
        };
        let url = reqwest::Url::parse(&format!("{}{at}", self.base)).map_err(|e| wrong(&e))?;
        // Written as a query, which is spelled as a form is.
        let form = reqwest::Url::parse_with_params("http://form/", form).map_err(|e| wrong(&e))?;
        let request = self
            .http
            .post(url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.query().unwrap_or_default().to_owned());
        let response = request
            .send()
            .await
            .map_err(|error| self.unreachable(&error))?;
        let good = response.status().is_success();
        let answer = body(response).await?;
        Ok(if good { Ok(answer) } else { Err(answer) })
    }

    /// PATCH, only for what may be repeated.
    pub async fn patch(&self, at: &str, json: &Value) -> Result<Value, Failure> {
        body(
            accepted(
                self.send(self.request(Method::PATCH, at)?.json(json))
                    .await?,
            )
            .await?,
        )
        .await
    }

    /// Every page of a list, at most `limit` items.
    pub async fn list(&self, at: &str, limit: Option<usize>) -> Result<Vec<Value>, Failure> {
        let limit = limit.unwrap_or(LIST_LIMIT);
        let mut items = vec![];
        let mut next = Some(at.to_owned());
        while let Some(page) = next.take() {
            let mut answer = self.get(&page).await?;
            if let Some(Value::Array(more)) = answer.get_mut("value").map(Value::take) {
                items.extend(more);
            }
            if items.len() >= limit {
                items.truncate(limit);
                break;
            }
            next = answer
                .get("nextLink")
                .and_then(Value::as_str)
                .filter(|link| !link.is_empty())
                .map(str::to_owned);
        }
        Ok(items)
    }
}

/// Whether the server asks for another try.
fn retry_asked(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE
}

async fn body(response: Response) -> Result<Value, Failure> {
    let bytes = response
        .bytes()
        .await
        .map_err(|error| Failure::failed(format!("the answer broke off: {}", chain(&error))))?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| Failure::failed(format!("the answer is no JSON: {error}")))
}

/// The texts of `Warning: 299 zaffre "TEXT"` headers (K3).
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let text = |value: &HeaderValue| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let quoted = value.splitn(3, ' ').nth(2)?;
        let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
        let (mut out, mut chars) = (String::new(), inner.chars());
        while let Some(c) = chars.next() {
            out.extend(if c == '\\' { chars.next() } else { Some(c) });
        }
        Some(out)
    };
    headers.get_all("warning").iter().filter_map(text).collect()
}

/// The response when it is a success, else the server's refusal (K2).
async fn accepted(response: Response) -> Result<Response, Failure> {
    let status = response.status();
    if status.is_success() {
        for warning in warnings(response.headers()) {
            output::warn(&warning);
        }
        return Ok(response);
    }
    let bytes = response.bytes().await.unwrap_or_default();
    Err(refusal(status, &bytes))
}

fn refusal(status: StatusCode, bytes: &[u8]) -> Failure {
    let error = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    // ARM's errors, and the `Status` of the Kubernetes paths
    let message = error
        .pointer("/error/message")
        .or_else(|| error.get("message"))
        .and_then(Value::as_str);
    let message = message
        .map(str::to_owned)
        .or_else(|| blob::message_of(bytes))
        .unwrap_or_else(|| format!("the server answered {status}"));
    let mut failure = match status {
        StatusCode::NOT_FOUND => Failure::not_found(message),
        status if status.is_client_error() => Failure::wrong(message),
        _ => Failure::failed(message),
    };
    failure.hint = hint_of(&error);
    if status == StatusCode::UNAUTHORIZED && failure.hint.is_none() {
        failure.hint =
            Some("set ZAFFRE_TOKEN to the token that the server wrote into its data folder".into());
    }
    failure
}

/// The hint that an ARM error body carries.
pub fn hint_of(error: &Value) -> Option<String> {
    let infos = error.pointer("/error/additionalInfo")?.as_array()?;
    let hint = infos.iter().find(|info| info["type"] == "Hint")?;
    hint.pointer("/info/value")?.as_str().map(str::to_owned)
}

/// An error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
        .to_lowercase()
        .split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Status;

    fn client() -> Client {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let address = locate::Address {
            account: None,
            url: "http://127.0.0.1:9/".into(),
            token: "t".into(),
            ca: None,
        };
        Client::new(&address, Scope::default()).unwrap()
    }

    #[test]
    fn a_refusal_keeps_words_hint_and_status() {
        let body = br#"{"error":{"code":"UserError","message":"size X is unknown","additionalInfo":[{"type":"Hint","info":{"value":"nearest is Y"}}]}}"#;
        let failure = refusal(StatusCode::BAD_REQUEST, body);
        assert_eq!(
            (
                failure.status,
                failure.message.as_str(),
                failure.hint.as_deref()
            ),
            (Status::Wrong, "size X is unknown", Some("nearest is Y"))
        );
        assert_eq!(refusal(StatusCode::NOT_FOUND, b"").status, Status::NotFound);
        assert_eq!(
            refusal(StatusCode::INTERNAL_SERVER_ERROR, b"<html>").status,
            Status::Failed
        );
    }

    #[test]
    fn warnings_lose_their_quotes_and_keep_their_words() {
        let mut headers = HeaderMap::new();
        for value in [
            "299 zaffre \"size \\\"x\\\" retires \u{2026}\"",
            "299 zaffre \"two\"",
            "110 cache",
        ] {
            headers.append(
                "warning",
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        assert_eq!(warnings(&headers), ["size \"x\" retires \u{2026}", "two"]);
    }

    #[test]
    fn the_token_goes_to_the_own_server_only() {
        let client = client();
        assert!(
            client
                .url("/subscriptions/s")
                .unwrap()
                .starts_with("http://127.0.0.1:9/subscriptions/s?api-version=")
        );
        assert!(
            client
                .url("http://127.0.0.1:9/a?x=1")
                .unwrap()
                .ends_with("?x=1&api-version=2024-01-01-preview")
        );
        assert!(client.url("http://127.0.0.1:90/a").is_err());
        assert!(client.url("http://127.0.0.1:9.evil/a").is_err());
    }
}
