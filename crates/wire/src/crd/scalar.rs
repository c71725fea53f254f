//! YAML → the JSON that `kubectl` sends: it reads YAML 1.1, where `yes` is a switch and `010` is eight.

use crate::yaml::{
    report::At,
    tree::{Entry, Node, Value},
};
use serde_json::{Map, Number, Value as Json};

/// The JSON of a node. `in_quotes` says of a key whether it stands in quotes; one that does not may become another text.
pub(super) fn json(node: &Node, in_quotes: &dyn Fn(At) -> bool) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Text { text, plain: false } => Json::from(text.as_str()),
        Value::Text { text, plain: true } => typed(text),
        Value::List(items) => items.iter().map(|item| json(item, in_quotes)).collect(),
        Value::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|Entry { key, at, node }| {
                    let key = match switch(key) {
                        Some(switch) if !in_quotes(*at) => switch.to_string(),
                        _ => key.clone(),
                    };
                    (key, json(node, in_quotes))
                })
                .collect::<Map<_, _>>(),
        ),
    }
}

/// Whether a text stands in quotes where it begins.
pub(super) fn in_quotes(text: &str, at: At) -> bool {
    let index = |n: u32| usize::try_from(n).unwrap_or(usize::MAX).saturating_sub(1);
    let line = text.split('\n').nth(index(at.line));
    let c = line.and_then(|line| line.chars().nth(index(at.column)));
    matches!(c, Some('"' | '\''))
}

/// A word that YAML 1.1 reads as a switch.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Some(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Some(false)
        }
        _ => None,
    }
}

fn typed(text: &str) -> Json {
    if let Some(switch) = switch(text) {
        return switch.into();
    }
    let plain = text.replace('_', "");
    if let Some(number) = whole(&plain) {
        return number.into();
    }
    match float(&plain) {
        // Go writes a float without a fraction as a whole number.
        Some(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            #[expect(clippy::cast_possible_truncation, reason = "whole and below 1e15")]
            let whole = number as i64;
            whole.into()
        }
        Some(number) => Number::from_f64(number).map_or_else(|| text.into(), Json::Number),
        None => text.into(),
    }
}

/// A whole number in any base that Go takes: decimal, `0x`, `0b`, `0o`, and octal behind a bare zero.
fn whole(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_str() {
        "0" => (10, "0"),
        hex if hex.starts_with("0x") => (16, &hex[2..]),
        binary if binary.starts_with("0b") => (2, &binary[2..]),
        octal if octal.starts_with("0o") => (8, &octal[2..]),
        octal if octal.starts_with('0') => (8, &octal[1..]),
        decimal => (10, decimal),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

/// A float as YAML 1.1 has them; `.inf` and `.nan` have no JSON and stay texts.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (digits, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let all = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let (int, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && all(exponent)
    });
    let some = !int.is_empty() || !fraction.is_empty();
    (some && all(int) && all(fraction) && exponent_fits)
        .then(|| text.parse().ok())
        .flatten()
        .filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::typed;
    use serde_json::json;

    /// What kubectl 1.32 sends for the same words.
    #[test]
    fn plain_words_become_what_kubectl_sends() {
        for (text, sent) in [
            ("yes", json!(true)),
            ("n", json!(false)),
            ("1", json!(1)),
            ("-1", json!(-1)),
            ("+1", json!(1)),
            ("010", json!(8)),
            ("0x10", json!(16)),
            ("0b11", json!(3)),
            ("0o17", json!(15)),
            ("1_000", json!(1000)),
            ("09", json!(9)),
            ("1.0", json!(1)),
            ("1e9", json!(1_000_000_000)),
            ("0.5", json!(0.5)),
            (".5", json!(0.5)),
            ("1.", json!(1)),
            ("2Gi", json!("2Gi")),
            ("700m", json!("700m")),
            ("1e", json!("1e")),
            ("2022-02-03", json!("2022-02-03")),
            (".", json!(".")),
            ("1e400", json!("1e400")),
        ] {
            assert_eq!(typed(text), sent, "{text}");
        }
    }
}
