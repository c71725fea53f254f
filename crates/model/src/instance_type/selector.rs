//! The extension's node selector and a type's, together (R-4 to R-7, ruling D-1).

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// How "subset" in R-5 is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelectorMode {
    /// The nodes that are selected are a subset: both selectors hold, so only a contradiction is refused (D-1).
    #[default]
    Merge,
    /// The labels are a subset: a type may only repeat what the extension's selector has.
    Strict,
}

/// Why no node can be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorConflict {
    /// One label, two values.
    Value {
        /// The label.
        key: Box<str>,
        /// What the extension wants.
        extension: Box<str>,
        /// What the type wants.
        type_: Box<str>,
    },
    /// A label that the extension's selector does not have, where it must.
    Absent {
        /// The label.
        key: Box<str>,
        /// What the type wants.
        type_: Box<str>,
    },
}

impl fmt::Display for SelectorConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelectorConflict::Value {
                key,
                extension,
                type_,
            } => write!(
                f,
                "node selector {key}={type_} of the instance type contradicts {key}={extension} of the extension: no node has both"
            ),
            SelectorConflict::Absent { key, type_ } => write!(
                f,
                "node selector {key}={type_} of the instance type is not in the extension's, of which it must be a subset"
            ),
        }
    }
}
impl std::error::Error for SelectorConflict {}

/// The labels that a node must carry for work of this type: those of both, or of the extension alone. An
/// extension without a selector allows every label, in both modes (D-1).
pub fn merge_selectors(
    extension: &BTreeMap<Box<str>, Box<str>>,
    type_: &BTreeMap<Box<str>, Box<str>>,
    mode: SelectorMode,
) -> Result<BTreeMap<Box<str>, Box<str>>, SelectorConflict> {
    let mut merged = extension.clone();
    for (key, wanted) in type_ {
        match (extension.get(key), mode) {
            (Some(given), _) if given != wanted => {
                return Err(SelectorConflict::Value {
                    key: key.clone(),
                    extension: given.clone(),
                    type_: wanted.clone(),
                });
            }
            (None, SelectorMode::Strict) if !extension.is_empty() => {
                return Err(SelectorConflict::Absent {
                    key: key.clone(),
                    type_: wanted.clone(),
                });
            }
            (Some(_), _) => {}
            (None, SelectorMode::Merge | SelectorMode::Strict) => {
                merged.insert(key.clone(), wanted.clone());
            }
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<Box<str>, Box<str>> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect()
    }

    #[test]
    fn r6_a_node_matches_both_selectors() {
        let merged = merge_selectors(
            &labels(&[("zone", "a")]),
            &labels(&[("gpu", "v100"), ("zone", "a")]),
            SelectorMode::Merge,
        );
        assert_eq!(merged, Ok(labels(&[("gpu", "v100"), ("zone", "a")])));
    }

    #[test]
    fn r7_without_a_selector_the_extensions_holds() {
        let extension = labels(&[("zone", "a")]);
        for mode in [SelectorMode::Merge, SelectorMode::Strict] {
            assert_eq!(
                merge_selectors(&extension, &labels(&[]), mode),
                Ok(extension.clone())
            );
            let type_ = labels(&[("gpu", "v100")]);
            assert_eq!(
                merge_selectors(&labels(&[]), &type_, mode),
                Ok(type_.clone())
            );
        }
    }

    #[test]
    fn d1_one_label_with_two_values_is_refused_and_names_both() {
        let no = merge_selectors(
            &labels(&[("zone", "a")]),
            &labels(&[("zone", "b")]),
            SelectorMode::Merge,
        );
        assert_eq!(
            no.unwrap_err().to_string(),
            "node selector zone=b of the instance type contradicts zone=a of the extension: no node has both"
        );
    }

    #[test]
    fn d1_strict_refuses_a_label_that_the_extension_lacks() {
        let (extension, type_) = (labels(&[("zone", "a")]), labels(&[("gpu", "v100")]));
        assert!(merge_selectors(&extension, &type_, SelectorMode::Merge).is_ok());
        assert_eq!(
            merge_selectors(&extension, &type_, SelectorMode::Strict)
                .unwrap_err()
                .to_string(),
            "node selector gpu=v100 of the instance type is not in the extension's, of which it must be a subset"
        );
    }
}
