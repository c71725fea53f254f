//! Which objects a list or a watch is about: `fieldSelector` and `labelSelector`.

use serde_json::Value;

use super::refused::{Refused, Result};
use crate::query::Query;

/// Requirements of one selector: far above any honest one.
const MAX_REQUIREMENTS: usize = 64;

/// What an object must be to be chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    Name { is: bool, value: String },
    Label { key: String, wants: Wants },
}

#[derive(Clone, Debug, PartialEq)]
enum Wants {
    In(Vec<String>),
    NotIn(Vec<String>),
    There,
    Absent,
}

impl Selector {
    pub fn of(query: &Query) -> Result<Selector> {
        let mut all = Vec::new();
        if let Some(text) = query.get("fieldSelector") {
            for part in text.split(',').filter(|part| !part.is_empty()) {
                all.push(field(part)?);
            }
        }
        if let Some(text) = query.get("labelSelector") {
            for part in parts(text) {
                all.push(label(part, text)?);
            }
        }
        if all.len() > MAX_REQUIREMENTS {
            return Err(Refused::bad(format!(
                "a selector has at most {MAX_REQUIREMENTS} requirements, not {}",
                all.len()
            )));
        }
        Ok(Selector(all))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object may be chosen at one time and not at another.
    pub fn by_labels(&self) -> bool {
        let label = |r: &Requirement| matches!(r, Requirement::Label { .. });
        self.0.iter().any(label)
    }

    pub fn takes(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        self.0.iter().all(|requirement| match requirement {
            Requirement::Name { is, value } => (metadata["name"] == value.as_str()) == *is,
            Requirement::Label { key, wants } => {
                let have = metadata["labels"][key].as_str();
                match wants {
                    Wants::In(values) => {
                        have.is_some_and(|have| values.iter().any(|value| value == have))
                    }
                    Wants::NotIn(values) => {
                        have.is_none_or(|have| values.iter().all(|value| value != have))
                    }
                    Wants::There => have.is_some(),
                    Wants::Absent => have.is_none(),
                }
            }
        })
    }
}

/// `metadata.name=x`, `==`, `!=`. A namespace is none, so only the empty one is taken.
fn field(part: &str) -> Result<Requirement> {
    let (key, is, value) = if let Some((key, value)) = part.split_once("!=") {
        (key, false, value)
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (key, true, value)
    } else {
        return Err(Refused::bad(format!(
            "invalid field selector: {part:?}; can't understand it"
        )));
    };
    if key != "metadata.name" {
        return Err(Refused::bad(format!(
            "field label not supported: {}",
            wire::names::shown(key)
        )));
    }
    Ok(Requirement::Name {
        is,
        value: value.to_owned(),
    })
}

/// Splits at commas outside of parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut all) = (0usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                all.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(text[from..].trim());
    all.retain(|part| !part.is_empty());
    all
}

fn label(part: &str, whole: &str) -> Result<Requirement> {
    let wrong = || {
        Refused::bad(format!(
            "unable to parse requirement: {:?} in {:?}",
            wire::names::shown(part),
            wire::names::shown(whole)
        ))
    };
    let (key, wants) = if let Some((key, list)) = set(part, "notin") {
        (key, Wants::NotIn(list))
    } else if let Some((key, list)) = set(part, "in") {
        (key, Wants::In(list))
    } else if let Some((key, value)) = part.split_once("!=") {
        (key.trim(), Wants::NotIn(vec![value.trim().to_owned()]))
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (key.trim(), Wants::In(vec![value.trim().to_owned()]))
    } else if let Some(key) = part.strip_prefix('!') {
        (key.trim(), Wants::Absent)
    } else {
        (part, Wants::There)
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let values = match &wants {
        Wants::In(values) | Wants::NotIn(values) => values.as_slice(),
        Wants::There | Wants::Absent => &[],
    };
    let fits = !key.is_empty()
        && key.chars().all(legal)
        && values.iter().all(|value| value.chars().all(legal));
    if !fits {
        return Err(wrong());
    }
    Ok(Requirement::Label {
        key: key.to_owned(),
        wants,
    })
}

/// `key in (a, b)`.
fn set<'t>(part: &'t str, word: &str) -> Option<(&'t str, Vec<String>)> {
    let (key, rest) = part.split_once(char::is_whitespace)?;
    let list = rest.trim_start().strip_prefix(word)?.trim();
    let inner = list.strip_prefix('(')?.strip_suffix(')')?;
    Some((key, inner.split(',').map(|v| v.trim().to_owned()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn takes(query: &str) -> std::result::Result<bool, u16> {
        let object = json!({"metadata": {"name": "a", "labels": {"team": "blue", "x/y": ""}}});
        match Selector::of(&Query::parse(query)) {
            Ok(selector) => Ok(selector.takes(&object)),
            Err(refused) => Err(refused.code),
        }
    }

    #[test]
    fn selectors_choose_as_those_of_kubernetes() {
        for (query, taken) in [
            ("", true),
            ("fieldSelector=metadata.name%3Da", true),
            ("fieldSelector=metadata.name!%3Da", false),
            ("labelSelector=team%3Dblue", true),
            ("labelSelector=team%3D%3Dred", false),
            ("labelSelector=team!%3Dred,x/y", true),
            ("labelSelector=team+in+(red,+blue),!gone", true),
            ("labelSelector=team+notin+(red,blue)", false),
            ("labelSelector=gone+notin+(red)", true),
            ("labelSelector=gone", false),
        ] {
            assert_eq!(takes(query), Ok(taken), "{query}");
        }
        for wrong in [
            "fieldSelector=spec.x%3D1",
            "fieldSelector=metadata.name",
            "labelSelector=a%3Db%3Dc",
            "labelSelector=a+in+(b",
            "labelSelector=%C3%A4",
        ] {
            assert_eq!(takes(wrong), Err(400), "{wrong}");
        }
    }
}
