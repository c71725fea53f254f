//! Where secrets stand in documents: taken out before a document is stored or shown, put back sealed.
//!
//! S1 members are found in any case, as `Field` finds them: a secret under another spelling is a secret too.

use super::Invalid;
use serde_json::{Map, Value};

/// Longest secret that is kept: a private key of the largest usual size is a sixteenth of it.
pub const MAX_SECRET: usize = 64 * 1024;

/// Takes every member out that `pointer` names in any case (S1); the last that was not null is returned.
pub fn take(body: &mut Value, pointer: &str) -> Option<Value> {
    let (parents, last) = pointer.trim_start_matches('/').rsplit_once('/')?;
    let mut found = None;
    each(body, parents, &mut |map| {
        let names: Vec<String> = map
            .keys()
            .filter(|k| k.eq_ignore_ascii_case(last))
            .cloned()
            .collect();
        for name in names {
            found = map.remove(&name).filter(|v| !v.is_null()).or(found.take());
        }
    });
    found
}

/// The secret at `pointer`, taken out; an empty one is none. Its value is in no message.
pub fn take_text(body: &mut Value, pointer: &str) -> Result<Option<String>, Invalid> {
    let refuse = |rule: String| {
        let name = pointer.rsplit('/').next().unwrap_or_default();
        Invalid::validation(pointer, format!("{name} {rule}"))
    };
    match take(body, pointer) {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text.len() <= MAX_SECRET => Ok(Some(text)),
        Some(Value::String(text)) => Err(refuse(format!(
            "has {} bytes, allowed are {MAX_SECRET}",
            text.len()
        ))),
        Some(_) => Err(refuse("is no text".into())),
    }
}

/// Puts a member where `pointer` names it, below parents that are there.
pub fn put(body: &mut Value, pointer: &str, value: &Value) {
    let Some((parents, last)) = pointer.trim_start_matches('/').rsplit_once('/') else {
        return;
    };
    each(body, parents, &mut |map| {
        map.insert(last.to_owned(), value.clone());
    });
}

/// Every object that the path names in any case.
fn each(value: &mut Value, path: &str, act: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    let (first, rest) = match path.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    for (name, child) in map.iter_mut() {
        if !name.eq_ignore_ascii_case(first) {
            continue;
        }
        match (rest, child) {
            (Some(rest), child) => each(child, rest, act),
            (None, Value::Object(map)) => act(map),
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PASSWORD: &str = "/properties/account/password";

    #[test]
    fn s1_a_secret_is_found_under_any_spelling() {
        let mut body = json!({"Properties": {"ACCOUNT": {"PassWord": "a", "user": "u"}}});
        assert_eq!(
            take_text(&mut body, PASSWORD).unwrap().as_deref(),
            Some("a")
        );
        assert_eq!(body, json!({"Properties": {"ACCOUNT": {"user": "u"}}}));
        put(&mut body, PASSWORD, &json!("sealed"));
        assert_eq!(body["Properties"]["ACCOUNT"]["password"], "sealed");
        assert_eq!(take(&mut json!({"properties": 5}), PASSWORD), None);
    }

    #[test]
    fn a_secret_is_a_text_of_bounded_length_and_never_in_a_message() {
        let mut number = json!({"properties": {"account": {"password": 12_345}}});
        let message = take_text(&mut number, PASSWORD).unwrap_err().message;
        assert_eq!(message, "password is no text");
        let mut long = json!({"properties": {"account": {"password": "x".repeat(MAX_SECRET + 1)}}});
        let message = take_text(&mut long, PASSWORD).unwrap_err().message;
        assert_eq!(message, "password has 65537 bytes, allowed are 65536");
        for nothing in [json!(null), json!("")] {
            let mut body = json!({"properties": {"account": {"password": nothing}}});
            assert_eq!(take_text(&mut body, PASSWORD), Ok(None));
        }
    }
}
