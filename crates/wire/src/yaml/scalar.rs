//! What a scalar means where a number, a switch or a word is wanted. The text itself is never changed.
//!
//! Whole numbers are decimal. `010` is refused: it is 8 for YAML 1.1 (which `az ml` reads) and 10 for YAML 1.2.
//! Switches are `true false yes no on off`, as YAML 1.1 has them.

use super::tree::{Entry, Node, Value};
use serde_json::{Map, Number, Value as Json};

/// Why a text is not a whole number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotWhole {
    /// No number at all, or one with a fraction.
    NotANumber,
    /// A leading zero.
    Octal,
    /// More digits than anything here counts.
    TooLarge,
}

/// A whole number, written plainly or in quotes.
pub(super) fn whole(text: &str) -> Result<i64, NotWhole> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.is_empty() || !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(NotWhole::NotANumber);
    }
    if !unsigned.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return Err(NotWhole::NotANumber);
    }
    if unsigned.len() > 1 && unsigned.starts_with('0') {
        return Err(NotWhole::Octal);
    }
    text.replace('_', "")
        .parse()
        .map_err(|_| NotWhole::TooLarge)
}

/// A switch.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// `LowPriority`, `low_priority` and `low-priority` are one word.
pub(super) fn same_word(a: &str, b: &str) -> bool {
    let letters = |text: &str| -> String {
        text.chars()
            .filter(|c| *c != '_' && *c != '-')
            .flat_map(char::to_lowercase)
            .collect()
    };
    letters(a) == letters(b)
}

/// JSON of a bag that Zaffre only passes on: plain scalars get the types that YAML 1.2 gives them.
pub(super) fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Text { text, plain: false } => Json::from(text.as_str()),
        Value::Text { text, plain: true } => typed(text),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|Entry { key, node, .. }| (key.clone(), json(node)))
                .collect::<Map<_, _>>(),
        ),
    }
}

fn typed(text: &str) -> Json {
    match text {
        "true" | "True" | "TRUE" => return Json::Bool(true),
        "false" | "False" | "FALSE" => return Json::Bool(false),
        _ => {}
    }
    if let Ok(number) = whole(text) {
        return Json::from(number);
    }
    let numeric = text
        .bytes()
        .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
        && text.contains(|c: char| c.is_ascii_digit())
        && whole(text) != Err(NotWhole::Octal);
    if numeric && let Some(number) = text.parse().ok().and_then(Number::from_f64) {
        return Json::Number(number);
    }
    Json::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers() {
        for (text, number) in [("0", 0), ("2", 2), ("-1", -1), ("+3", 3), ("1_000", 1000)] {
            assert_eq!(whole(text), Ok(number), "{text}");
        }
        for text in [
            "", "-", "two", "2.5", "2.0", "1e3", "0x10", "１", " 1", "--1", "+_1",
        ] {
            assert_eq!(whole(text), Err(NotWhole::NotANumber), "{text}");
        }
        assert_eq!(whole("010"), Err(NotWhole::Octal));
        assert_eq!(whole("99999999999999999999"), Err(NotWhole::TooLarge));
    }

    #[test]
    fn words_are_compared_without_case_and_joints() {
        assert!(same_word("LowPriority", "low_priority"));
        assert!(same_word("LOW-PRIORITY", "low_priority"));
        assert!(!same_word("low", "low_priority"));
    }

    #[test]
    fn bags_keep_yaml_types() {
        assert_eq!(typed("1"), Json::from(1));
        assert_eq!(typed("1.5"), Json::from(1.5));
        assert_eq!(typed("010"), Json::from("010"));
        assert_eq!(typed("1.2.3"), Json::from("1.2.3"));
        assert_eq!(typed("true"), Json::Bool(true));
        assert_eq!(typed("yes"), Json::from("yes"));
        assert_eq!(typed("."), Json::from("."));
    }
}
