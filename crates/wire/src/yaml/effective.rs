//! The effective document: the file in its own spelling with every default filled in, each with its source.

use super::{draft::Draft, emit};
use serde_json::Value as Json;

/// The effective document as YAML. A value that applies by default carries a comment saying where the default comes from.
pub fn render(draft: &Draft) -> String {
    let comment = |path: &str| {
        let note = draft.defaults.iter().find(|note| note.path == path)?;
        Some(format!("default: {}", note.source))
    };
    emit::yaml(&Json::Object(draft.effective.clone()), &comment)
}
