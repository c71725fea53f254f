//! Components that stand inside a pipeline, or in a file beside it: registered as anonymous versions before the document that
//! uses them is sent, as the SDK does (wire §6).

use crate::{
    client::{Client, operation::Wait},
    failure::Failure,
    upload,
};
use serde_json::{Value, json};

/// Name under which the SDK keeps components without one of their own.
const ANONYMOUS: &str = "azureml_anonymous";

/// Registers the components of a pipeline job or of a pipeline component, and puts their ids where they stood.
pub async fn register(client: &Client, body: &mut Value) -> Result<(), Failure> {
    for pointer in ["/properties/jobs", "/properties/componentSpec/jobs"] {
        if let Some(jobs) = body.pointer_mut(pointer) {
            steps(client, jobs).await?;
        }
    }
    Ok(())
}

async fn steps(client: &Client, jobs: &mut Value) -> Result<(), Failure> {
    let all = jobs
        .as_object_mut()
        .into_iter()
        .flat_map(|map| map.values_mut());
    for step in all {
        for (key, at) in [
            ("component", "/componentId"),
            ("trial", "/trial/componentId"),
        ] {
            let inline = step
                .get(key)
                .filter(|c| c.is_object() && c.get("componentId").is_none());
            let Some(mut spec) = inline.cloned() else {
                continue;
            };
            if let Some(inner) = spec.get_mut("jobs") {
                Box::pin(steps(client, inner)).await?;
            }
            let id = anonymous(client, spec).await?;
            if let Some(map) = step.as_object_mut() {
                map.shift_remove(key);
            }
            wire::yaml::put(step, at, id.into());
        }
    }
    Ok(())
}

/// Writes one under the digest of what it is: the same component is the same version.
async fn anonymous(client: &Client, spec: Value) -> Result<String, Failure> {
    let body = json!({"properties": {
        "componentSpec": spec,
        "isAnonymous": true,
        "isArchived": false,
        "properties": {},
        "tags": {},
    }});
    let version = upload::hash::document(&body);
    let at = client.at(&format!("components/{ANONYMOUS}/versions/{version}"));
    client.put(&at, &body, Wait::ForEnd).await?;
    Ok(at)
}
