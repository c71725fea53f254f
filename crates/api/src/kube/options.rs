//! What the query of a write says.

use model::Time;
use wire::crd::Strictness;

use super::{
    read::Form,
    refused::{Refused, Result},
};
use crate::{call::Call, time};

/// Bytes of a manager's name, as in Kubernetes.
const MAX_MANAGER: usize = 128;

/// What the query of a write says.
pub(super) struct Options {
    pub dry_run: bool,
    pub strictness: Strictness,
    pub manager: String,
    pub now: Time,
    pub form: Form,
}

impl Options {
    pub fn of(call: &Call) -> Result<Options> {
        let strictness = match call.query.get("fieldValidation") {
            None | Some("" | "Warn") => Strictness::Warn,
            Some("Strict") => Strictness::Strict,
            Some("Ignore") => Strictness::Ignore,
            Some(other) => {
                return Err(Refused::invalid(
                    "",
                    "fieldValidation",
                    "FieldValueNotSupported",
                    &format!(
                        "Unsupported value: {:?}: supported values: \"Ignore\", \"Strict\", \"Warn\"",
                        wire::names::shown(other)
                    ),
                ));
            }
        };
        let agent = call.header("user-agent").unwrap_or("unknown");
        let manager = match call.query.get("fieldManager") {
            None | Some("") => agent.split('/').next().unwrap_or_default(),
            Some(name) => name,
        };
        if manager.len() > MAX_MANAGER || manager.chars().any(char::is_control) {
            return Err(Refused::invalid(
                "",
                "fieldManager",
                "FieldValueInvalid",
                &format!("Invalid value: at most {MAX_MANAGER} printable bytes"),
            ));
        }
        Ok(Options {
            dry_run: dry_run(call.query.get("dryRun"))?,
            strictness,
            manager: manager.to_owned(),
            now: time::now(),
            form: Form::of(call)?,
        })
    }
}

pub(super) fn dry_run(text: Option<&str>) -> Result<bool> {
    match text {
        None | Some("") => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(Refused::invalid(
            "",
            "dryRun",
            "FieldValueNotSupported",
            &format!(
                "Unsupported value: {:?}: supported values: \"All\"",
                wire::names::shown(other)
            ),
        )),
    }
}
