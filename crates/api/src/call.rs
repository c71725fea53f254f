//! One request as a handler sees it: names from the path as the client spelled them, query, headers, body.
//!
//! Q1 parameters come from the path as sent, never from the lower-cased one that was matched: ids keep their spelling and
//!    blob names their case;
//! Q2 a name holds no slash and no control character, whatever percent-encoding it came in.

use axum::http::{HeaderMap, Uri, request::Parts, uri::Authority};
use bytes::Bytes;
use model::{DocKey, Kind, Workspace};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use std::sync::Arc;

use crate::{Api, Scheme, identity::Caller, problem::Problem, query::Query, route::Route};

/// Longest name in a path; the longest that any kind of resource allows is 255.
const MAX_NAME_BYTES: usize = 260;
/// Longest blob name, as in Azure, before decoding.
const MAX_BLOB_PATH_BYTES: usize = 4 * 1024;
/// Most header lines of a host name that is put into an answer.
const MAX_HOST_BYTES: usize = 260;

/// `https://127.0.0.1:8443`: what absolute URLs of an answer start with.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub scheme: Scheme,
    /// Host and port as the client wrote them.
    pub host: String,
}

impl Base {
    /// `uri` is the one that was sent: over HTTP/2 only it says the host.
    pub fn of(parts: &Parts, uri: &Uri) -> Result<Base, Problem> {
        let host = parts
            .headers
            .get(axum::http::header::HOST)
            .and_then(|h| h.to_str().ok())
            .or_else(|| uri.authority().map(Authority::as_str))
            .unwrap_or("localhost");
        let legal = !host.is_empty()
            && host.len() <= MAX_HOST_BYTES
            && host
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b));
        if !legal {
            return Err(Problem::bad("the Host header is not a host name"));
        }
        Ok(Base {
            scheme: parts.extensions.get().copied().unwrap_or(Scheme::Https),
            host: host.to_owned(),
        })
    }
    /// The URL without a slash at its end.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme.name(), self.host)
    }
}

/// A request that was let in.
pub(crate) struct Call {
    pub base: Base,
    pub headers: HeaderMap,
    pub query: Query,
    /// As sent, without the query.
    pub path: String,
    /// Empty where the route streams.
    pub body: Bytes,
    /// Who asks, where the route or its handler wants to know.
    pub caller: Option<Caller>,
    params: Vec<(&'static str, String)>,
}

impl Call {
    pub fn new(route: &Route, parts: Parts, uri: &Uri) -> Result<Call, Problem> {
        Ok(Call {
            base: Base::of(&parts, uri)?,
            query: Query::parse(uri.query().unwrap_or_default()),
            path: uri.path().to_owned(),
            params: params(route.template, uri.path())?,
            headers: parts.headers,
            body: Bytes::new(),
            caller: None,
        })
    }

    /// A parameter of the template.
    pub fn param(&self, name: &str) -> &str {
        self.params
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v.as_str())
            .expect("handlers ask for parameters of their own template; a test walks the table")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The workspace of the path, which must exist.
    pub fn workspace(&self, api: &Api) -> Result<Arc<Workspace>, Problem> {
        let named = Workspace::new(self.param("s"), self.param("g"), self.param("w"));
        api.workspace(&named)?.ok_or_else(|| {
            Problem::missing(format!(
                "The Resource '{}/workspaces/{}' under resource group '{}' was not found.",
                wire::names::PROVIDER,
                named.name,
                named.group
            ))
        })
    }

    /// The key of the document `path` in the workspace of this request.
    pub fn key(&self, api: &Api, kind: Kind, path: impl AsRef<str>) -> Result<DocKey, Problem> {
        Ok(DocKey::new(&self.workspace(api)?, kind, path.as_ref()))
    }

    /// The body as text.
    pub fn text(&self) -> Result<&str, Problem> {
        std::str::from_utf8(&self.body).map_err(|e| {
            Problem::bad(format!(
                "the body is not UTF-8: byte {} is wrong",
                e.valid_up_to()
            ))
        })
    }

    /// The body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_str(self.text()?)
            .map_err(|e| Problem::bad(format!("the body is not the JSON expected here: {e}")))
    }
}

/// The parameters of `template` in `path` (Q1, Q2).
pub(crate) fn params(
    template: &'static str,
    path: &str,
) -> Result<Vec<(&'static str, String)>, Problem> {
    let mut out = Vec::new();
    let mut rest = path.trim_start_matches('/');
    for part in template.trim_start_matches('/').split('/') {
        if let Some(name) = part.strip_prefix("{*").and_then(|p| p.strip_suffix('}')) {
            if rest.len() > MAX_BLOB_PATH_BYTES {
                return Err(Problem::bad(format!(
                    "the path is longer than {MAX_BLOB_PATH_BYTES} bytes"
                )));
            }
            out.push((name, decode(rest)?));
            break;
        }
        let (segment, after) = rest.split_once('/').unwrap_or((rest, ""));
        rest = after;
        if let Some(name) = part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
            let value = decode(segment)?;
            if value.len() > MAX_NAME_BYTES || value.chars().any(|c| c == '/' || c.is_control()) {
                return Err(Problem::bad(format!(
                    "`{}` in the path is not a name: it is longer than {MAX_NAME_BYTES} bytes or holds a slash or a control character",
                    wire::names::shown(&value)
                )));
            }
            out.push((name, value));
        }
    }
    Ok(out)
}

fn decode(text: &str) -> Result<String, Problem> {
    percent_decode_str(text)
        .decode_utf8()
        .map(|t| t.into_owned())
        .map_err(|_| Problem::bad("the path is not UTF-8 when decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_keep_their_spelling() {
        let got = params(
            "/subscriptions/{s}/computes/{n}",
            "/SUBSCRIPTIONS/Abc/Computes/Low%2DPri",
        )
        .unwrap();
        assert_eq!(got, [("s", "Abc".into()), ("n", "Low-Pri".into())]);
        let got = params("/storage/{a}/{*rest}", "/Storage/Acc/C/Some%20Blob/x").unwrap();
        assert_eq!(got[1], ("rest", "C/Some Blob/x".into()));
    }

    #[test]
    fn a_name_cannot_smuggle_a_slash() {
        for path in [
            "/a/x%2Fy",
            "/a/x%0Ay",
            "/a/%ff",
            &format!("/a/{}", "x".repeat(300)),
        ] {
            assert!(params("/a/{n}", path).is_err(), "{path}");
        }
    }
}
