//! The schema as OpenAPI: `explain` reads it, and `apply` learns from it that the server checks fields itself.
//!
//! What kubectl looks for is one PATCH operation for each kind with the parameters `fieldValidation` and `dryRun`; for the
//! kind of a list too, else it asks for the list of definitions before it applies one.

use axum::{
    http::{HeaderValue, header},
    response::Response,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::{Arc, LazyLock};
use wire::crd::{API_VERSION, GROUP, KIND, LIST_KIND, PLURAL, VERSION};

use super::PREFIX;
use crate::{Api, call::Call, problem::Answer, reply};

const SCHEMA: &str = "com.azureml.amlarc.v1alpha1.InstanceType";
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

static DOCUMENT: LazyLock<bytes::Bytes> = LazyLock::new(|| build().to_string().into());

/// Changes with the document, so that clients may keep it.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let digest = Sha256::digest(&*DOCUMENT);
    digest.iter().take(16).map(|b| format!("{b:02X}")).collect()
});

/// GET /openapi/v3.
pub(crate) fn index(_api: &Arc<Api>, _call: &Call) -> Answer {
    let name = format!("apis/{API_VERSION}");
    // The address is of the server, prefix and all: clients ask for exactly this path.
    let at = format!("{PREFIX}/openapi/v3/{name}?hash={}", *HASH);
    Ok(reply::ok(
        &json!({"paths": {name: {"serverRelativeURL": at}}}),
    ))
}

/// GET the document of the group.
pub(crate) fn document(_api: &Arc<Api>, _call: &Call) -> Answer {
    Ok(reply::raw(axum::http::StatusCode::OK, DOCUMENT.clone()))
}

/// GET /openapi/v2: an empty document in protobuf, which is zero bytes. Old clients need no more.
pub(crate) fn v2(_api: &Arc<Api>, _call: &Call) -> Answer {
    let mut response: Response = reply::empty(axum::http::StatusCode::OK);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf"),
    );
    Ok(response)
}

fn build() -> Value {
    let definition = wire::crd::definition();
    let mut schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": GROUP, "version": VERSION, "kind": KIND}]);
    schema["properties"]["apiVersion"]["description"] =
        "The version of this form of the object.".into();
    schema["properties"]["kind"]["description"] = "What the object is.".into();
    schema["properties"]["metadata"] = json!({
        "description": "What every object of Kubernetes has; the name is unique in the cluster.",
        "allOf": [{"$ref": format!("#/components/schemas/{METADATA}")}],
    });
    let text = |description: &str| json!({"type": "string", "description": description});
    let texts = |description: &str| json!({"type": "object", "additionalProperties": {"type": "string"}, "description": description});
    let metadata = json!({
        "type": "object",
        "description": "What every object of Kubernetes has.",
        "properties": {
            "name": text("Unique in the cluster."),
            "generateName": text("What a name that the server makes begins with."),
            "labels": texts("Words to choose objects by."),
            "annotations": texts("What tools keep with the object."),
            "uid": text("Given by the server, never used again."),
            "resourceVersion": text("Changes with every write; a write that names it is refused when it has changed."),
            "generation": {"type": "integer", "format": "int64", "description": "Grows when the spec changes."},
            "creationTimestamp": {"type": "string", "format": "date-time", "description": "When it was made."},
            "managedFields": {"type": "array", "items": {"type": "object"}, "description": "Who set which field."},
        },
    });
    let base = format!("/apis/{API_VERSION}/{PLURAL}");
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Zaffre", "version": "v0"},
        "paths": {
            base.clone(): {"get": operation("list", KIND), "post": operation("post", KIND)},
            format!("{base}/{{name}}"): {
                "get": operation("get", KIND),
                "put": operation("put", KIND),
                "patch": operation("patch", KIND),
                "delete": operation("delete", KIND),
            },
            // no such path is served: it stands for the objects in a list, which are written one by one
            format!("{base}/{{list}}"): {"patch": operation("patch", LIST_KIND)},
        },
        "components": {"schemas": {SCHEMA: schema, METADATA: metadata}},
    })
}

fn operation(action: &str, kind: &str) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters = ["fieldValidation", "fieldManager", "dryRun", "force"].map(parameter);
    json!({
        "operationId": format!("{action}{kind}"),
        "responses": {"200": {"description": "OK"}},
        "parameters": parameters,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": kind},
    })
}
