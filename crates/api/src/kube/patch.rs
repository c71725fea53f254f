//! Patches: RFC 7396 (merge) and RFC 6902 (a list of operations), with limits.
//!
//! J1 no patch makes an object that is deeper or larger than one that could have been sent.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::refused::{Refused, Result};

/// Operations of one patch.
const MAX_OPERATIONS: usize = 1000;
/// Copies among them: each may double the object.
const MAX_COPIES: usize = 32;
/// Depth of an object, as of JSON that is read.
const MAX_DEPTH: usize = 128;
/// Keys of one path: our objects are five deep.
const MAX_PATH: usize = 32;
/// Bytes of an object while it is patched.
const MAX_BYTES: usize = 4 << 20;

/// Carries out a JSON patch.
pub(super) fn operations(object: &mut Value, body: &[u8]) -> Result<()> {
    let patch: Patch = serde_json::from_slice(body)
        .map_err(|error| Refused::bad(format!("error decoding patch: {error}")))?;
    if patch.len() > MAX_OPERATIONS {
        return Err(Refused::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                patch.len()
            ),
        ));
    }
    let mut copies = 0;
    for operation in patch.0 {
        let (path, copied) = match &operation {
            PatchOperation::Copy(copy) => (&copy.path, true),
            PatchOperation::Move(moved) => (&moved.path, true),
            PatchOperation::Add(add) => (&add.path, false),
            PatchOperation::Replace(replace) => (&replace.path, false),
            PatchOperation::Remove(remove) => (&remove.path, false),
            PatchOperation::Test(test) => (&test.path, false),
        };
        if path.as_str().matches('/').count() > MAX_PATH {
            return Err(unprocessable(format!(
                "a path of more than {MAX_PATH} keys"
            )));
        }
        copies += usize::from(copied);
        if copies > MAX_COPIES {
            return Err(unprocessable(format!(
                "more than {MAX_COPIES} copies or moves"
            )));
        }
        json_patch::patch_unsafe(object, &[operation])
            .map_err(|error| unprocessable(error.to_string()))?;
        if copied && (!within(object, MAX_DEPTH) || size(object) > MAX_BYTES) {
            return Err(unprocessable("the patched object is too large".into()));
        }
    }
    Ok(())
}

fn unprocessable(message: String) -> Refused {
    let mut refused = Refused::new(422, "Invalid", message);
    *refused.details = serde_json::json!({});
    refused
}

/// Whether a value is at most so deep.
fn within(value: &Value, left: usize) -> bool {
    match value {
        Value::Object(map) => left > 0 && map.values().all(|inner| within(inner, left - 1)),
        Value::Array(list) => left > 0 && list.iter().all(|inner| within(inner, left - 1)),
        _ => true,
    }
}

/// About how many bytes it has as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, inner)| key.len() + 4 + size(inner))
            .sum(),
        Value::Array(list) => list.iter().map(|inner| 1 + size(inner)).sum(),
        Value::String(text) => text.len() + 2,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn after(patch: Value) -> std::result::Result<Value, u16> {
        let mut object = json!({"spec": {"limits": {"nvidia.com/gpu": 1}}});
        operations(&mut object, patch.to_string().as_bytes())
            .map(|()| object)
            .map_err(|refused| refused.code)
    }

    #[test]
    fn operations_are_carried_out_in_order_or_refused() {
        let got = after(json!([
            {"op": "test", "path": "/spec/limits/nvidia.com~1gpu", "value": 1},
            {"op": "replace", "path": "/spec/limits/nvidia.com~1gpu", "value": 2},
            {"op": "add", "path": "/spec/a", "value": {}},
        ]));
        assert_eq!(
            got,
            Ok(json!({"spec": {"limits": {"nvidia.com/gpu": 2}, "a": {}}}))
        );
        assert_eq!(
            after(json!([{"op": "test", "path": "/spec/a", "value": 1}])),
            Err(422)
        );
        assert_eq!(after(json!([{"op": "remove", "path": "/nope"}])), Err(422));
        assert_eq!(after(json!({"op": "remove"})), Err(400));
    }

    #[test]
    fn j1_a_patch_cannot_make_an_object_that_nobody_could_send() {
        let double = |n| json!({"op": "copy", "from": "/spec", "path": format!("/spec/x{n}")});
        assert_eq!(after((0..30).map(double).collect()), Err(422));
        let many = json!({"op": "add", "path": "/a", "value": 1});
        assert_eq!(after(Value::Array(vec![many; 1001])), Err(413));
        let deep = "/a".repeat(100);
        assert_eq!(
            after(json!([{"op": "add", "path": deep, "value": 1}])),
            Err(422)
        );
    }
}
