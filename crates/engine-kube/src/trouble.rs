//! Words for what goes wrong with an API server: which verb, on what, and what it said.

use kube::core::Status;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// As in a role: `list`, `watch`, `create`.
    pub verb: &'static str,
    /// As in a role: `pods`, `nodes`.
    pub resource: &'static str,
}

impl Asked {
    /// Verb and resource.
    pub const fn new(verb: &'static str, resource: &'static str) -> Self {
        Asked { verb, resource }
    }
}

/// How an error is to be treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The role is too narrow.
    Forbidden,
    /// It is not there.
    NotFound,
    /// Somebody was first, or something changed.
    Conflict,
    /// The server refuses what was asked: asking the same again is pointless soon.
    Refused,
    /// Too much at once, or the server has trouble of its own.
    Later,
    /// No answer: what was asked may have been done.
    Unknown,
}

/// The answer of the server within an error.
pub fn status(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// How to treat it.
pub fn kind(error: &kube::Error) -> Kind {
    match status(error).map(|s| s.code) {
        // 403 is both "you may not" and "the quota is used up": only the first names the user.
        Some(403) if status(error).is_some_and(|s| !s.message.contains("cannot ")) => Kind::Refused,
        Some(401 | 403) => Kind::Forbidden,
        Some(404) => Kind::NotFound,
        Some(409) => Kind::Conflict,
        Some(429 | 500..) => Kind::Later,
        Some(_) => Kind::Refused,
        None => Kind::Unknown,
    }
}

/// The innermost of an error: what a person needs; the layers above repeat it.
fn root(error: &kube::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(inner) = deepest.source() {
        deepest = inner;
    }
    deepest.to_string()
}

/// One line about it.
pub fn words(asked: Asked, url: &str, error: &kube::Error) -> Box<str> {
    let Asked { verb, resource } = asked;
    match status(error) {
        Some(status) => match kind(error) {
            Kind::Forbidden => format!(
                "{resource}: the kubeconfig's user may not {verb} them: {}",
                status.message
            ),
            _ => format!("{verb} {resource}: {}", status.message),
        },
        None => match error {
            kube::Error::SerdeError(inner) => {
                format!("{verb} {resource}: the API server {url} is not understood: {inner}")
            }
            kube::Error::Auth(inner) => {
                format!("the API server {url} cannot be asked: {inner}")
            }
            _ => format!("the API server {url} is not reached: {}", root(error)),
        },
    }
    .into()
}

/// The same for a watch.
pub fn watch_words(
    resource: &'static str,
    url: &str,
    error: &kube::runtime::watcher::Error,
) -> (Kind, Box<str>) {
    use kube::runtime::watcher::Error;
    match error {
        Error::InitialListFailed(inner) => {
            (kind(inner), words(Asked::new("list", resource), url, inner))
        }
        Error::WatchStartFailed(inner) | Error::WatchFailed(inner) => (
            kind(inner),
            words(Asked::new("watch", resource), url, inner),
        ),
        Error::WatchError(status) => {
            let inner = kube::Error::Api(status.clone());
            (
                kind(&inner),
                words(Asked::new("watch", resource), url, &inner),
            )
        }
        Error::NoResourceVersion => (Kind::Later, format!("watch {resource}: {error}").into()),
    }
}
