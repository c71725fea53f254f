//! `zaffre validate`: files are checked without a server, and what they come to is shown.

use super::compute::expect;
use crate::{
    cli::ValidateArgs,
    draft::{self, Found},
    failure::Failure,
    output::{self, Output},
};
use serde_json::{Value, json};
use std::path::Path;
use wire::yaml::Kind;

/// Checks every file; the first wrong one does not hide the others.
pub fn run(
    output: &Output,
    asked: Option<output::Format>,
    args: &ValidateArgs,
) -> Result<(), Failure> {
    let overrides = draft::sets(&args.set)?;
    let (mut results, mut text, mut wrong) = (vec![], String::new(), 0);
    for file in &args.files {
        match draft::read_any(file, &overrides) {
            Ok(found) => {
                if args.files.len() > 1 {
                    text.push_str(&format!("# {}\n", file.display()));
                }
                text.push_str(&told(&found));
                results.push(result(file, &found));
            }
            Err(failure) => {
                wrong += 1;
                output::complain(&failure);
                results.push(json!({"file": file.display().to_string(), "result": "Failed", "errors": failure.message}));
            }
        }
    }
    output.show_or(&results.into(), asked, &text)?;
    match wrong {
        0 => Ok(()),
        n => Err(Failure::wrong(format!(
            "{n} of {} files are wrong",
            args.files.len()
        ))),
    }
}

/// `zaffre job validate`.
pub fn job(file: &Path, set: &[String]) -> Result<(), Failure> {
    let found = draft::read(Some(file), &draft::sets(set)?, Kind::CommandJob)?;
    if !super::job::is_job(found.draft.kind) {
        expect(&found.draft, Kind::CommandJob)?;
    }
    output::write(&told(&found))
}

/// Warnings on stderr; the effective document, with where its defaults come from, as the result.
fn told(found: &Found) -> String {
    found.warn();
    for feature in &found.draft.unsupported {
        output::warn(&format!(
            "{}: not built yet: {feature}; `create` refuses it",
            found.draft.kind
        ));
    }
    format!(
        "# {}: valid\n{}",
        found.draft.kind,
        wire::yaml::render(&found.draft)
    )
}

fn result(file: &Path, found: &Found) -> Value {
    let draft = &found.draft;
    let defaults: Vec<Value> = draft
        .defaults
        .iter()
        .map(|note| json!({"path": note.path, "value": note.value, "source": note.source}))
        .collect();
    json!({
        "file": file.display().to_string(),
        "result": "Succeeded",
        "kind": draft.kind.word(),
        "document": draft.effective,
        "defaults": defaults,
        "warnings": draft.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "not_built_yet": draft.unsupported,
    })
}
