//! Long-running operations and errors.

use crate::{
    arm::{Invalid, time::stamp},
    names::PROVIDER,
};
use model::{Name, Refusal, Time};
use serde_json::{Value, json};

/// What an operation is about: which of Azure's two families of addresses it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Computes.
    Compute,
    /// Everything else.
    Front,
}

impl Family {
    /// The address segment of its status.
    pub fn status(self) -> &'static str {
        match self {
            Family::Compute => "computeOperationsStatus",
            Family::Front => "mfeOperationsStatus",
        }
    }
    /// The address segment of its result.
    pub fn results(self) -> &'static str {
        match self {
            Family::Compute => "computeOperationsResults",
            Family::Front => "mfeOperationsResults",
        }
    }
}

/// How an operation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Under way.
    Running,
    /// Done.
    Succeeded {
        /// When.
        ended: Time,
    },
    /// It cannot be done.
    Failed {
        /// When.
        ended: Time,
        /// A stable code.
        code: &'static str,
        /// For people.
        message: String,
    },
    /// Given up.
    Canceled {
        /// When.
        ended: Time,
    },
}

/// The path of an operation, without the host: `.../locations/LOC/computeOperationsStatus/ID`.
pub fn path(subscription: &Name, location: &str, segment: &str, id: &str) -> String {
    format!(
        "/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/{segment}/{id}"
    )
}

/// The body of a status or result address.
pub fn operation(path: &str, started: Time, progress: &Progress) -> Value {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut out = json!({
        "id": path,
        "name": name,
        "status": match progress {
            Progress::Running => "InProgress",
            Progress::Succeeded { .. } => "Succeeded",
            Progress::Failed { .. } => "Failed",
            Progress::Canceled { .. } => "Canceled",
        },
        "startTime": stamp(started),
    });
    match progress {
        Progress::Running => {}
        Progress::Succeeded { ended } | Progress::Canceled { ended } => {
            out["endTime"] = json!(stamp(*ended));
            out["percentComplete"] = json!(100);
        }
        Progress::Failed {
            ended,
            code,
            message,
        } => {
            out["endTime"] = json!(stamp(*ended));
            out["percentComplete"] = json!(100);
            out["error"] = json!({"code": code, "message": message});
        }
    }
    out["properties"] = Value::Null;
    out
}

/// The body of an error.
pub fn error(code: &str, target: Option<&str>, message: &str) -> Value {
    json!({"error": {
        "code": code,
        "message": message,
        "target": target,
        "details": [],
        "additionalInfo": [{"type": "ComponentName", "info": {"value": "managementfrontend"}}],
    }})
}

/// A refusal of `arm` as HTTP status and body. A hint is the second line of the message, so that every client shows it.
pub fn invalid(refusal: &Invalid) -> (u16, Value) {
    let message = match &refusal.hint {
        Some(hint) => format!("{}\nhint: {hint}", refusal.message),
        None => refusal.message.clone(),
    };
    (
        refusal.status,
        error(refusal.code, Some(&refusal.target), &message),
    )
}

/// A refusal of the loop as HTTP status and body.
pub fn refusal(refusal: &Refusal) -> (u16, Value) {
    match refusal {
        Refusal::NotFound { message } => (404, error("ResourceNotFound", None, message)),
        Refusal::Conflict { message } => (409, error("Conflict", None, message)),
        Refusal::Invalid { code, message } => (400, error(code, None, message)),
    }
}
