//! What is refused, as the client reads it: a status, a stable code, a message that names the thing, the rule and the value.
//!
//! F1 no client input gives a status of 500 or above: those are ours alone (store, stop, full disk);
//! F2 an ARM body carries code, message, target and details (wire §2); a blob body is XML with `x-ms-error-code` (wire §7).

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use control::{BlobError, Failure, StoreError};
use model::Refusal;
use serde_json::json;
use std::{borrow::Cow, io};
use wire::arm::Invalid;

/// Seconds after which a refused but sound request may be tried again.
const RETRY_AFTER_SECONDS: u32 = 1;
/// The SDK compares this message with its own copy (wire §2).
const COMPARED: &str = "Asset paths cannot be updated.";

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub status: StatusCode,
    pub code: Cow<'static, str>,
    pub message: String,
    pub target: Option<String>,
    /// What the reader can do; printed by the command line as a line of its own.
    pub hint: Option<String>,
    pub retry_after: Option<u32>,
}

pub(crate) type Answer = Result<Response, Problem>;

impl Problem {
    pub fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Problem {
            status,
            code: code.into(),
            message: message.into(),
            target: None,
            hint: None,
            retry_after: None,
        }
    }
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
    /// 400 `BadRequest`: the request itself is wrong.
    pub fn bad(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }
    /// 400 `UserError`: the request is readable and breaks a rule.
    pub fn user(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "UserError", message)
    }
    /// 404 `ResourceNotFound`.
    pub fn missing(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, "ResourceNotFound", message)
    }
    /// 401, the same whatever was wrong with the token (I8).
    pub fn unauthorized() -> Self {
        Problem::new(
            StatusCode::UNAUTHORIZED,
            "AuthenticationFailed",
            "the request needs the header `Authorization: Bearer <token>` with a token of this server",
        )
    }
    /// 412: what `If-Match` or `If-None-Match` asks for does not hold.
    pub fn precondition(message: impl Into<String>) -> Self {
        Problem::new(
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            message,
        )
    }
    /// 413: the body is above its limit.
    pub fn too_large(limit: usize) -> Self {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestBodyTooLarge",
            format!("the body is larger than {limit} bytes"),
        )
    }
    /// 500: something of ours broke; the log has it.
    pub fn internal(what: &str, error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, what, "request failed");
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalServerError",
            format!("{what} failed; the server's log has the reason"),
        )
    }

    /// The body of wire §2. The hint is the second line of the message, so that every client shows it; the one message that
    /// the SDK compares whole keeps its hint beside it.
    pub fn arm(&self) -> serde_json::Value {
        let target = self.target.as_deref();
        match &self.hint {
            Some(hint) if self.message != COMPARED => {
                let message = format!("{}\nhint: {hint}", self.message);
                wire::view::operation::error(&self.code, target, &message)
            }
            hint => {
                let mut body = wire::view::operation::error(&self.code, target, &self.message);
                if let (Some(hint), Some(info)) =
                    (hint, body["error"]["additionalInfo"].as_array_mut())
                {
                    info.push(json!({"type": "Hint", "info": {"value": hint}}));
                }
                body
            }
        }
    }

    pub fn into_arm_response(self) -> Response {
        let mut response = crate::reply::json(self.status, &self.arm());
        self.dress(&mut response);
        response
    }

    /// As MLflow's client reads it: its code decides what the client does next.
    pub fn into_mlflow_response(self) -> Response {
        let code = match self.status {
            _ if self.code == crate::plane::mlflow::NO_ENDPOINT => {
                crate::plane::mlflow::NO_ENDPOINT
            }
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => "INVALID_PARAMETER_VALUE",
            StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
            StatusCode::FORBIDDEN => "PERMISSION_DENIED",
            StatusCode::NOT_FOUND => "RESOURCE_DOES_NOT_EXIST",
            StatusCode::CONFLICT => "RESOURCE_ALREADY_EXISTS",
            StatusCode::PRECONDITION_FAILED => "RESOURCE_CONFLICT",
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE => {
                "TEMPORARILY_UNAVAILABLE"
            }
            StatusCode::TOO_MANY_REQUESTS => "REQUEST_LIMIT_EXCEEDED",
            _ => "INTERNAL_ERROR",
        };
        let message = match &self.hint {
            Some(hint) => format!("{}\nhint: {hint}", self.message),
            None => self.message.clone(),
        };
        let mut response = crate::reply::json(
            self.status,
            &json!({"error_code": code, "message": message}),
        );
        self.dress(&mut response);
        response
    }

    pub fn into_blob_response(self, head: bool) -> Response {
        let body = if head || self.status == StatusCode::NOT_MODIFIED {
            Body::empty()
        } else {
            Body::from(format!(
                "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{}</Code><Message>{}</Message></Error>",
                self.code,
                crate::blob::xml::text(&self.message)
            ))
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/xml"),
        );
        self.dress(&mut response);
        response
    }

    fn dress(&self, response: &mut Response) {
        let headers = response.headers_mut();
        if let Ok(code) = HeaderValue::from_str(&self.code) {
            headers.insert("x-ms-error-code", code);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
    }

    fn again(mut self) -> Self {
        self.retry_after = Some(RETRY_AFTER_SECONDS);
        self
    }

    pub(crate) fn full(message: String) -> Self {
        Problem::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "InsufficientStorage",
            message,
        )
        .hint("free some disk; the server goes on by itself")
        .again()
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let message = failure.to_string();
        match failure {
            Failure::Refused(Refusal::NotFound { .. }) => Problem::missing(message),
            Failure::Refused(Refusal::Conflict { .. }) => {
                Problem::new(StatusCode::CONFLICT, "Conflict", message)
            }
            Failure::Refused(Refusal::Invalid { code, .. }) => {
                Problem::new(StatusCode::BAD_REQUEST, code, message)
            }
            Failure::Precondition { .. } => Problem::precondition(message),
            Failure::Busy { .. } => {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).again()
            }
            Failure::Full { .. } => Problem::full(message),
            Failure::Store { .. } => Problem::internal("the store", &message),
            Failure::Stopped => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                message,
            )
            .again(),
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Problem {
            status: StatusCode::from_u16(invalid.status).unwrap_or(StatusCode::BAD_REQUEST),
            code: invalid.code.into(),
            message: invalid.message,
            target: Some(invalid.target),
            hint: invalid.hint,
            retry_after: None,
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full { .. } => Problem::full(error.to_string()),
            // A token of a page that no page gave.
            StoreError::Io(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Problem::bad(error.to_string())
            }
            StoreError::Conflict { .. }
            | StoreError::Corrupt { .. }
            | StoreError::TooNew { .. }
            | StoreError::Io(_) => Problem::internal("the store", &error),
        }
    }
}

impl From<BlobError> for Problem {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::NotFound(_) => Problem::new(
                StatusCode::NOT_FOUND,
                "BlobNotFound",
                "The specified blob does not exist.",
            ),
            BlobError::Exists(_) => Problem::new(
                StatusCode::CONFLICT,
                "BlobAlreadyExists",
                "The specified blob already exists.",
            ),
            BlobError::BadName { .. } => Problem::new(
                StatusCode::BAD_REQUEST,
                "InvalidResourceName",
                error.to_string(),
            ),
            BlobError::Full(message) => Problem::full(message),
            BlobError::Io(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                Problem::full(error.to_string())
            }
            BlobError::Io(error) => Problem::internal("the blob store", &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_status() {
        let message = || "m".to_owned();
        for (failure, status, code) in [
            (
                Failure::Refused(Refusal::NotFound { message: message() }),
                404,
                "ResourceNotFound",
            ),
            (
                Failure::Refused(Refusal::Conflict { message: message() }),
                409,
                "Conflict",
            ),
            (
                Failure::Refused(Refusal::Invalid {
                    code: "ClusterMinNodesExceedCoreQuota",
                    message: message(),
                }),
                400,
                "ClusterMinNodesExceedCoreQuota",
            ),
            (
                Failure::Precondition { have: Some(3) },
                412,
                "PreconditionFailed",
            ),
            (Failure::Busy { limit: 1 }, 429, "TooManyRequests"),
            (
                Failure::Full { message: message() },
                507,
                "InsufficientStorage",
            ),
            (
                Failure::Store { message: message() },
                500,
                "InternalServerError",
            ),
            (Failure::Stopped, 503, "ServiceUnavailable"),
        ] {
            let problem = Problem::from(failure);
            assert_eq!((problem.status.as_u16(), &*problem.code), (status, code));
            if [429, 503, 507].contains(&status) {
                let response = problem.into_arm_response();
                assert_eq!(response.headers()["retry-after"], "1");
            }
        }
    }
}
