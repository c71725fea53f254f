//! The one error of this crate's way in: what a client sent and why it is refused.

/// A refusal that a client understands: HTTP status, stable code, the place in its document, and the rule with the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// HTTP status: 400, 404 or 409.
    pub status: u16,
    /// Azure's code where there is one: `UserError`, `ValidationError`, `ComputeNotFound`, …
    pub code: &'static str,
    /// Where in the document, as a JSON pointer: `/properties/miniBatchSize`.
    pub target: String,
    /// Names the thing, the rule and the value.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

impl Invalid {
    /// A value breaks a rule.
    pub fn validation(target: impl Into<String>, message: impl Into<String>) -> Invalid {
        Invalid::new(400, "ValidationError", target, message)
    }
    /// What is asked for makes no sense together, though each value alone is legal.
    pub fn user(target: impl Into<String>, message: impl Into<String>) -> Invalid {
        Invalid::new(400, "UserError", target, message)
    }
    /// Azure has it, Zaffre has not.
    pub fn unsupported(target: impl Into<String>, message: impl Into<String>) -> Invalid {
        Invalid::new(400, "NotSupported", target, message)
    }
    /// Something that the document names is not there.
    pub fn not_found(
        code: &'static str,
        target: impl Into<String>,
        message: impl Into<String>,
    ) -> Invalid {
        Invalid::new(404, code, target, message)
    }
    /// It cannot be done as things stand.
    pub fn conflict(target: impl Into<String>, message: impl Into<String>) -> Invalid {
        Invalid::new(409, "Conflict", target, message)
    }
    /// The same with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Invalid {
        self.hint = Some(hint.into());
        self
    }
    fn new(
        status: u16,
        code: &'static str,
        target: impl Into<String>,
        message: impl Into<String>,
    ) -> Invalid {
        Invalid {
            status,
            code,
            target: target.into(),
            message: message.into(),
            hint: None,
        }
    }
}
