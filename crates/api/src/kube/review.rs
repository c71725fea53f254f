//! `kubectl auth can-i`: what is served, and what the roles of who asks allow. kubectl asks in protobuf and takes JSON for an answer.

use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

use super::{
    discovery,
    refused::{Refused, Result},
};
use crate::{Api, call::Call, problem::Answer, reply};

/// What a protobuf body of Kubernetes begins with.
const MAGIC: &[u8] = b"k8s\0";

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
struct Asked {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
}

/// POST selfsubjectaccessreviews.
pub(crate) async fn review(api: Arc<Api>, call: Call) -> Answer {
    Ok(answer(&api, &call).unwrap_or_else(Refused::into_response))
}

/// The action of a verb on a resource.
fn action(asked: &Asked) -> String {
    let what = match asked.verb.as_str() {
        "get" | "list" | "watch" => "read",
        "delete" => "delete",
        _ => "write",
    };
    format!("{}/{}/{what}", asked.group, asked.resource)
}

fn answer(api: &Api, call: &Call) -> Result<axum::response::Response> {
    let asked = match call.body.strip_prefix(MAGIC) {
        Some(body) => protobuf(body).ok_or_else(|| Refused::bad("the protobuf body is damaged"))?,
        None => json_body(&call.body)?,
    };
    let allowed = asked.subresource.is_empty()
        && discovery::allows(&asked.group, &asked.resource, &asked.verb);
    let may = call
        .caller
        .as_ref()
        .is_some_and(|c| api.may(c, &action(&asked), "/"));
    let (allowed, reason) = match (allowed, may) {
        (true, true) => (true, "a role of who asks allows it"),
        (true, false) => (false, "no role of who asks allows it"),
        (false, _) => (false, "this server does not do that"),
    };
    let spec = json!({"resourceAttributes": {
        "group": asked.group, "resource": asked.resource, "verb": asked.verb, "name": asked.name,
    }});
    Ok(reply::json(
        StatusCode::CREATED,
        &json!({
            "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "metadata": {"creationTimestamp": null}, "spec": spec,
            "status": {"allowed": allowed, "reason": reason},
        }),
    ))
}

fn json_body(body: &[u8]) -> Result<Asked> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| Refused::bad(format!("the body is no JSON: {error}")))?;
    let attributes = &body["spec"]["resourceAttributes"];
    let text = |key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
    Ok(Asked {
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        name: text("name"),
    })
}

/// `Unknown{raw: 2}` → `SelfSubjectAccessReview{spec: 2}` → `Spec{resourceAttributes: 1}`.
fn protobuf(body: &[u8]) -> Option<Asked> {
    let review = field(body, 2)?;
    let spec = field(review, 2)?;
    let Some(attributes) = field(spec, 1) else {
        return Some(Asked::default());
    };
    let text = |number| {
        let bytes = field(attributes, number).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    Some(Asked {
        verb: text(2),
        group: text(3),
        resource: text(5),
        subresource: text(6),
        name: text(7),
    })
}

/// The bytes of a field, from a message of strings and messages.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        match key & 7 {
            0 => drop(varint(&mut message)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                if key >> 3 == number {
                    return Some(bytes);
                }
                message = rest;
            }
            _ => return None,
        }
    }
    None
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(number: u8, inner: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(inner.len()).unwrap()];
        out.extend(inner);
        out
    }

    #[test]
    fn a_review_is_read_from_protobuf() {
        let mut attributes = wrap(1, b"");
        for (number, text) in [
            (2, "create"),
            (3, "amlarc.azureml.com"),
            (5, "instancetypes"),
        ] {
            attributes.extend(wrap(number, text.as_bytes()));
        }
        let spec = wrap(1, &attributes);
        let mut review = wrap(1, b"");
        review.extend(wrap(2, &spec));
        let mut unknown = wrap(1, b"\x0a\x02v1");
        unknown.extend(wrap(2, &review));
        let asked = protobuf(&unknown).unwrap();
        assert_eq!(
            (asked.verb.as_str(), asked.resource.as_str()),
            ("create", "instancetypes")
        );
        assert!(discovery::allows(
            &asked.group,
            &asked.resource,
            &asked.verb
        ));
        for cut in 1..unknown.len() {
            let _whatever = protobuf(&unknown[..cut]);
        }
    }

    #[test]
    fn what_is_not_served_is_not_allowed() {
        assert!(!discovery::allows(
            "amlarc.azureml.com",
            "instancetypes",
            "deletecollection"
        ));
        assert!(!discovery::allows("", "pods", "get"));
        assert!(!discovery::allows(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "create"
        ));
    }
}
