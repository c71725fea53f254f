//! How a command ends when it is not done: a status for scripts, a message for people, a hint where there is one.
//!
//! X1 0 done, 1 the work failed, 2 the command was wrong, 3 what it names does not exist.

use std::{fmt, io, process::ExitCode};

/// The exit status of a command that is not done (X1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The command was right and the work failed.
    Failed,
    /// The command was wrong, or cannot be carried out as given.
    Wrong,
    /// It names something that does not exist.
    NotFound,
}

/// Why a command is not done.
#[derive(Debug)]
pub struct Failure {
    /// For scripts.
    pub status: Status,
    /// Names the thing, the rule and the value; lower case, no full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// The work failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Failure {
            status: Status::Failed,
            message: message.into(),
            hint: None,
        }
    }
    /// The command was wrong.
    pub fn wrong(message: impl Into<String>) -> Self {
        Failure {
            status: Status::Wrong,
            message: message.into(),
            hint: None,
        }
    }
    /// The thing does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Failure {
            status: Status::NotFound,
            message: message.into(),
            hint: None,
        }
    }
    /// Adds what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
    /// For the shell.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.status {
            Status::Failed => 1,
            Status::Wrong => 2,
            Status::NotFound => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::failed(error.to_string())
    }
}

/// Says which file or folder an I/O error is about.
pub fn about(path: &std::path::Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| {
        let status = if error.kind() == io::ErrorKind::NotFound {
            Status::NotFound
        } else {
            Status::Failed
        };
        Failure {
            status,
            message: format!("{}: {}", path.display(), plain(&error)),
            hint: None,
        }
    }
}

/// The system's words without the error number.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
