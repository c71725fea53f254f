//! Refusals as Kubernetes gives them: a `Status` that clients build their words from.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};
use wire::crd::{GROUP, KIND, PLURAL};

use crate::{problem::Problem, reply};

/// A refusal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refused {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// `details` of the `Status`; null when there are none.
    pub details: Box<Value>,
    /// A `Status` that is made already.
    whole: Option<Box<Value>>,
    /// Where a list may go on.
    resume: Option<Box<str>>,
}

pub(super) type Result<T> = std::result::Result<T, Refused>;

impl Refused {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Refused {
            code,
            reason,
            message: message.into(),
            details: Box::default(),
            whole: None,
            resume: None,
        }
    }

    pub fn bad(message: impl Into<String>) -> Self {
        Refused::new(400, "BadRequest", message)
    }

    pub fn not_found(name: &str) -> Self {
        Refused::named(
            404,
            "NotFound",
            name,
            format!("{PLURAL}.{GROUP} {name:?} not found"),
        )
    }

    pub fn exists(name: &str) -> Self {
        Refused::named(
            409,
            "AlreadyExists",
            name,
            format!("{PLURAL}.{GROUP} {name:?} already exists"),
        )
    }

    pub fn conflict(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {PLURAL}.{GROUP} {name:?}: {why}");
        Refused::named(409, "Conflict", name, message)
    }

    /// Somebody else wrote in between.
    pub fn stale(name: &str) -> Self {
        Refused::conflict(
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// One field of a request or of its options that is wrong.
    pub fn invalid(name: &str, field: &str, reason: &'static str, message: &str) -> Self {
        let mut refused = Refused::named(
            422,
            "Invalid",
            name,
            format!("{KIND}.{GROUP} {name:?} is invalid: {field}: {message}"),
        );
        refused.details["kind"] = KIND.into();
        refused.details["causes"] = json!([{"reason": reason, "message": message, "field": field}]);
        refused
    }

    /// A wrong option of a list or a watch.
    pub fn option(field: &str, message: &str) -> Self {
        let mut refused = Refused::new(
            422,
            "Invalid",
            format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {message}"),
        );
        *refused.details = json!({"group": "meta.k8s.io", "kind": "ListOptions",
            "causes": [{"reason": "FieldValueForbidden", "message": message, "field": field}]});
        refused
    }

    /// A `Status` of `wire`.
    pub fn whole(status: Value) -> Self {
        let code = status["code"].as_u64().and_then(|c| u16::try_from(c).ok());
        Refused {
            whole: Some(Box::new(status)),
            ..Refused::new(code.unwrap_or(400), "", "")
        }
    }

    /// Says where the list may go on.
    pub fn continue_with(&mut self, token: &str) {
        self.resume = Some(token.into());
    }

    fn named(code: u16, reason: &'static str, name: &str, message: String) -> Self {
        Refused {
            details: Box::new(json!({"name": name, "group": GROUP, "kind": PLURAL})),
            ..Refused::new(code, reason, message)
        }
    }

    /// The `Status`.
    pub fn status(&self) -> Value {
        if let Some(whole) = &self.whole {
            return Value::clone(whole);
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason,
        });
        if !self.details.is_null() {
            status["details"] = Value::clone(&self.details);
        }
        if let Some(token) = &self.resume {
            status["metadata"] = json!({"continue": &**token});
        }
        status["code"] = self.code.into();
        status
    }

    pub fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = reply::json(code, &self.status());
        let headers = response.headers_mut();
        if let Some(seconds) = self.details["retryAfterSeconds"].as_u64() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if code == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<wire::crd::Refused> for Refused {
    fn from(refused: wire::crd::Refused) -> Self {
        Refused::whole(refused.status())
    }
}

/// What the rest of the crate refuses.
impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        let code = problem.status.as_u16();
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 | 412 => "Conflict",
            413 => "RequestEntityTooLarge",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            _ => "InternalError",
        };
        let message = match &problem.hint {
            Some(hint) => format!("{} ({hint})", problem.message),
            None => problem.message,
        };
        let mut refused = Refused::new(code, reason, message);
        if let Some(seconds) = problem.retry_after {
            *refused.details = json!({"retryAfterSeconds": seconds});
        }
        refused
    }
}

/// 401, the same whatever was wrong with the token (I8).
pub(crate) fn denied() -> Refused {
    Refused::new(401, "Unauthorized", "Unauthorized")
}

/// 404 of a path that is not served.
pub(crate) fn nothing_here() -> Refused {
    let mut refused = Refused::new(
        404,
        "NotFound",
        "the server could not find the requested resource",
    );
    *refused.details = json!({});
    refused
}

/// 405 of a path that is.
pub(crate) fn wrong_method() -> Refused {
    let mut refused = Refused::new(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    *refused.details = json!({});
    refused
}
