//! A refusal as Kubernetes gives it: the `Status` object, and the text that `kubectl` makes of it.

use model::instance_type::{FaultKind, TypeFault};
use serde_json::{Value, json};
use std::fmt;

use super::{GROUP, KIND, VERSION};

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What Kubernetes calls it.
    pub kind: FaultKind,
    /// The field, `spec.resources.requests.cpu`.
    pub field: String,
    /// The message behind the field, word for word an API server's.
    pub message: String,
    /// What to do instead; ours.
    pub hint: Option<String>,
}

impl Cause {
    pub(super) fn new(kind: FaultKind, field: impl Into<String>, detail: &str) -> Self {
        let gap = if detail.is_empty() { "" } else { ": " };
        Cause {
            kind,
            field: field.into(),
            message: format!("{}{gap}{detail}", kind.words()),
            hint: None,
        }
    }

    /// The last cause of an object that is too wrong for the rules of the definition.
    pub(super) fn unchecked() -> Self {
        Cause::new(
            FaultKind::Invalid,
            "<nil>",
            "null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        )
    }
}

impl From<&TypeFault> for Cause {
    fn from(fault: &TypeFault) -> Self {
        Cause {
            kind: fault.rule.kind(),
            field: fault.path.to_string(),
            message: fault.body(),
            hint: None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// A part of the document that cannot be decoded: `unknown field "spec.tolerations"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// An API server's words.
    pub message: String,
    /// What to do instead; ours.
    pub hint: Option<String>,
}

/// Why an object is not taken. `Display` is what `kubectl` prints for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// 400: it cannot be read as an instance type.
    BadRequest {
        /// The words before the problems; all of them when there is no problem that can be named.
        message: String,
        /// What cannot be decoded.
        problems: Vec<Problem>,
    },
    /// 422: it breaks rules.
    Invalid {
        /// The kind that it says to be.
        kind: String,
        /// Its name.
        name: String,
        /// Every field that is wrong.
        causes: Vec<Cause>,
    },
}

impl Refused {
    pub(super) fn unreadable(message: impl Into<String>) -> Self {
        Refused::BadRequest {
            message: message.into(),
            problems: Vec::new(),
        }
    }

    pub(super) fn cannot_be_handled(message: &str, problems: Vec<Problem>) -> Self {
        Refused::BadRequest {
            message: format!(
                "{KIND} in version \"{VERSION}\" cannot be handled as a {KIND}: {message}"
            ),
            problems,
        }
    }

    /// The code of the HTTP answer.
    pub fn code(&self) -> u16 {
        match self {
            Refused::BadRequest { .. } => 400,
            Refused::Invalid { .. } => 422,
        }
    }

    /// The `Status` to answer: an API server's, with our hints behind what they are about.
    pub fn status(&self) -> Value {
        self.build(true)
    }

    /// The `Status` that an API server answers, word for word.
    pub fn server_status(&self) -> Value {
        self.build(false)
    }

    fn build(&self, hints: bool) -> Value {
        let hinted = |text: &str, hint: &Option<String>| match hint {
            Some(hint) if hints => format!("{text} ({hint})"),
            _ => text.to_owned(),
        };
        let (reason, message, details) = match self {
            Refused::BadRequest { message, problems } => {
                let problems: Vec<String> = problems
                    .iter()
                    .map(|problem| hinted(&problem.message, &problem.hint))
                    .collect();
                (
                    "BadRequest",
                    format!("{message}{}", problems.join(", ")),
                    None,
                )
            }
            Refused::Invalid { kind, name, causes } => {
                let texts: Vec<String> = causes
                    .iter()
                    .map(|cause| hinted(&cause.to_string(), &cause.hint))
                    .collect();
                let all = match texts.as_slice() {
                    [one] => one.clone(),
                    several => format!("[{}]", several.join(", ")),
                };
                let causes: Vec<Value> = causes
                    .iter()
                    .map(|cause| {
                        json!({
                            "reason": cause.kind.reason(),
                            "message": hinted(&cause.message, &cause.hint),
                            "field": cause.field,
                        })
                    })
                    .collect();
                let mut details =
                    json!({"name": name, "group": GROUP, "kind": kind, "causes": causes});
                if name.is_empty()
                    && let Some(map) = details.as_object_mut()
                {
                    map.shift_remove("name");
                }
                let name = model::instance_type::quoted(name);
                (
                    "Invalid",
                    format!("{kind}.{GROUP} {name} is invalid: {all}"),
                    Some(details),
                )
            }
        };
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
        });
        if let Some(details) = details {
            status["details"] = details;
        }
        status["code"] = self.code().into();
        status
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&kubectl_text(&self.status()))
    }
}
impl std::error::Error for Refused {}

/// What `kubectl` prints for a `Status`: built from the causes when the object is invalid, else the message.
pub fn kubectl_text(status: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let details = &status["details"];
    let causes = details["causes"].as_array();
    let (reason, message) = (text(&status["reason"]), text(&status["message"]));
    let Some(causes) = causes.filter(|_| reason == "Invalid") else {
        return format!("Error from server ({reason}): {message}");
    };
    let mut lines: Vec<String> = Vec::new();
    for cause in causes {
        let line = format!("{}: {}", text(&cause["field"]), text(&cause["message"]));
        // kubectl leaves out a repeated line
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let name = model::instance_type::quoted(&text(&details["name"]));
    let head = format!("The {} {name} is invalid: ", text(&details["kind"]));
    match lines.as_slice() {
        [one] => format!("{head}{one}"),
        several => several
            .iter()
            .fold(head, |text, line| format!("{text}\n* {line}")),
    }
}
