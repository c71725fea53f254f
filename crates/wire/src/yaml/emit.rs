//! JSON → YAML in block style, for the effective document and for conda files.
//!
//! E1 what is written reads back as the same value with any YAML reader, 1.1 or 1.2.

use super::scalar::{NotWhole, switch, whole};
use serde_json::Value;
use std::fmt::Write as _;

/// The YAML of a value; `comment` may add a remark behind the value of a key, given its path.
pub fn yaml(value: &Value, comment: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(&mut out, value, 0, "", comment),
        Value::Array(list) if !list.is_empty() => block(&mut out, value, 0, "", comment),
        other => {
            let _ = writeln!(out, "{}", inline(other));
        }
    }
    out
}

fn block(
    out: &mut String,
    value: &Value,
    indent: usize,
    path: &str,
    comment: &dyn Fn(&str) -> Option<String>,
) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let remark = comment(&path)
                    .map(|text| format!("  # {text}"))
                    .unwrap_or_default();
                let key = scalar(key);
                if inner(value) {
                    let _ = writeln!(out, "{pad}{key}:{remark}");
                    // items of a list stand under their key, as PyYAML writes them
                    let deeper = if value.is_array() { indent } else { indent + 2 };
                    block(out, value, deeper, &path, comment);
                } else {
                    let _ = writeln!(out, "{pad}{key}: {}{remark}", inline(value));
                }
            }
        }
        Value::Array(list) => {
            for value in list {
                if inner(value) {
                    let mut text = String::new();
                    block(&mut text, value, indent + 2, path, comment);
                    // the first line of the item takes the place of its indentation
                    let _ = write!(out, "{pad}- {}", text.get(indent + 2..).unwrap_or_default());
                } else {
                    let _ = writeln!(out, "{pad}- {}", inline(value));
                }
            }
        }
        other => {
            let _ = writeln!(out, "{pad}{}", inline(other));
        }
    }
}

fn inner(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Object(_) => "{}".into(),
        Value::Array(_) => "[]".into(),
        other => other.to_string(),
    }
}

/// A text as a scalar, in quotes where it needs them (E1).
fn scalar(text: &str) -> String {
    if text
        .chars()
        .any(|c| c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{FEFF}'))
    {
        return serde_json::to_string(text).expect("a text is always JSON");
    }
    if plain(text) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

fn plain(text: &str) -> bool {
    let first = text.chars().next();
    let indicator = first.is_none_or(|c| "-?:,[]{}#&*!|>'\"%@`=<".contains(c) || c.is_whitespace());
    let word = switch(text).is_some()
        || matches!(text, "~" | "null" | "Null" | "NULL" | "y" | "n" | "Y" | "N");
    !indicator
        && !word
        && !numeric(text)
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([':', ' ', '\u{A0}', '\u{3000}'])
        && !text.contains('\t')
}

/// Could a reader take this text for a number, a date or a time?
fn numeric(text: &str) -> bool {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '.')) {
        return false;
    }
    whole(text) != Err(NotWhole::NotANumber)
        || text
            .bytes()
            .all(|b| b.is_ascii_digit() || b"+-._:eETtZz ".contains(&b))
        || text.starts_with("0x")
        || text.starts_with("0o")
        || text.starts_with("0b")
        || matches!(
            text.to_ascii_lowercase().as_str(),
            ".inf" | "+.inf" | ".nan"
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::{scalar, tree};
    use proptest::prelude::*;
    use serde_json::json;

    fn no_comment(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn lists_and_maps_are_written_as_pyyaml_writes_them() {
        let value = json!({"dependencies": ["python=3.11", {"pip": ["numpy==1.26.4", "x"]}], "name": "x", "e": {}, "l": [[1, 2]]});
        let text = "dependencies:\n- python=3.11\n- pip:\n  - numpy==1.26.4\n  - x\nname: x\ne: {}\nl:\n- - 1\n  - 2\n";
        assert_eq!(yaml(&value, &no_comment), text);
    }

    #[test]
    fn comments_stand_behind_their_key() {
        let comment = |path: &str| (path == "a.b").then(|| "default".to_owned());
        assert_eq!(
            yaml(&json!({"a": {"b": 1, "c": 2}}), &comment),
            "a:\n  b: 1  # default\n  c: 2\n"
        );
    }

    #[test]
    fn texts_that_mislead_are_quoted() {
        for text in [
            "",
            "yes",
            "null",
            "1.10",
            "010",
            "0x10",
            "1:30",
            "2022-02-03",
            "a: b",
            "a #b",
            "- a",
            "*x",
            " a",
            "a ",
            "'",
            "a\nb",
            "=",
            "<<",
        ] {
            let written = yaml(&json!(text), &no_comment);
            assert!(written.starts_with(['\'', '"']), "{text:?} {written}");
        }
        for text in [
            "./src",
            "azureml:heart-classifier@latest",
            "STANDARD_DS3_v2",
            "3.11-slim",
            "学習",
            "a b",
            "a#b",
            "a:b",
        ] {
            assert_eq!(yaml(&json!(text), &no_comment).trim_end(), text);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof!["\\PC{0,12}", "[0-9.:eE+-]{0,8}", "[a-z \\n\\t#:'\"-]{0,8}"]
            .prop_map(Value::from);
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("[a-z0-9 :#-]{1,6}", inner), 0..4)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in any_json()) {
            let value = json!({"root": value});
            let text = yaml(&value, &no_comment);
            let node = tree::parse(&text, 0).map_err(|e| TestCaseError::fail(format!("{e:?}\n{text}")))?;
            prop_assert_eq!(scalar::json(&node), value, "{}", text);
        }
    }
}
