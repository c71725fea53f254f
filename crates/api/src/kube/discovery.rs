//! What there is: versions, groups and resources, in the plain and in the aggregated form.

use axum::{
    http::{HeaderValue, header},
    response::Response,
};
use serde_json::{Value, json};
use std::sync::Arc;
use wire::crd::{API_VERSION, GROUP, KIND, PLURAL, SINGULAR, VERSION};

use crate::{Api, call::Call, problem::Answer, reply};

/// The Kubernetes whose API this is a part of: what clients compare their own version with.
const MINOR: &str = "36";
/// The aggregated form that clients ask for.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// One resource of a group.
struct Resource {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
    verbs: &'static [&'static str],
}

const TYPES: Resource = Resource {
    group: GROUP,
    version: VERSION,
    kind: KIND,
    plural: PLURAL,
    singular: SINGULAR,
    short: &[],
    verbs: &[
        "create", "delete", "get", "list", "patch", "update", "watch",
    ],
};
const DEFINITIONS: Resource = Resource {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    singular: "customresourcedefinition",
    short: &["crd", "crds"],
    verbs: &["get", "list", "watch"],
};
const REVIEWS: Resource = Resource {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SelfSubjectAccessReview",
    plural: "selfsubjectaccessreviews",
    singular: "selfsubjectaccessreview",
    short: &[],
    verbs: &["create"],
};

/// Whether a verb on a resource is served; for `auth can-i`.
pub(super) fn allows(group: &str, resource: &str, verb: &str) -> bool {
    [TYPES, DEFINITIONS, REVIEWS].iter().any(|r| {
        let served = matches!(verb, "*") && r.group == GROUP || r.verbs.contains(&verb);
        r.group == group && r.plural == resource && served
    })
}

impl Resource {
    fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    fn aggregated(&self) -> Value {
        let mut resource = json!({
            "resource": self.plural,
            "responseKind": {"group": self.group, "version": self.version, "kind": self.kind},
            "scope": "Cluster",
            "singularResource": self.singular,
            "verbs": self.verbs,
        });
        if !self.short.is_empty() {
            resource["shortNames"] = self.short.into();
        }
        json!({
            "metadata": {"name": self.group, "creationTimestamp": null},
            "versions": [{"version": self.version, "freshness": "Current", "resources": [resource]}],
        })
    }

    fn group(&self) -> Value {
        let version = json!({"groupVersion": self.group_version(), "version": self.version});
        json!({"name": self.group, "versions": [version], "preferredVersion": version})
    }

    fn list(&self) -> Value {
        let mut resource = json!({
            "name": self.plural, "singularName": self.singular, "namespaced": false,
            "kind": self.kind, "verbs": self.verbs,
        });
        if !self.short.is_empty() {
            resource["shortNames"] = self.short.into();
        }
        json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": self.group_version(), "resources": [resource],
        })
    }
}

/// GET /version.
pub(crate) fn version(_api: &Arc<Api>, _call: &Call) -> Answer {
    Ok(reply::ok(&json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": format!("v1.{MINOR}.0+zaffre-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": format!("{}/{}", std::env::consts::OS, arch()),
    })))
}

/// As Go names it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// GET /api: nothing of the core group.
pub(crate) fn core(_api: &Arc<Api>, call: &Call) -> Answer {
    Ok(either(
        call,
        &[],
        &json!({"kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": []}),
    ))
}

/// GET /apis.
pub(crate) fn groups(_api: &Arc<Api>, call: &Call) -> Answer {
    let all = [TYPES, DEFINITIONS, REVIEWS];
    let groups: Vec<Value> = all.iter().map(Resource::group).collect();
    Ok(either(
        call,
        &all,
        &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
    ))
}

fn either(call: &Call, resources: &[Resource], plain: &Value) -> Response {
    let asked = call.header("accept").unwrap_or_default();
    if !asked.contains(AGGREGATED) {
        return reply::ok(plain);
    }
    let items: Vec<Value> = resources.iter().map(Resource::aggregated).collect();
    let mut response = reply::ok(&json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items,
    }));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    response
}

/// GET /apis/GROUP.
pub(crate) fn group(_api: &Arc<Api>, _call: &Call) -> Answer {
    let mut group = TYPES.group();
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Ok(reply::ok(&group))
}

/// GET /apis/GROUP/VERSION.
pub(crate) fn resources(_api: &Arc<Api>, _call: &Call) -> Answer {
    debug_assert_eq!(TYPES.group_version(), API_VERSION);
    Ok(reply::ok(&TYPES.list()))
}

/// GET /apis/apiextensions.k8s.io/v1.
pub(crate) fn resources_of_definitions(_api: &Arc<Api>, _call: &Call) -> Answer {
    Ok(reply::ok(&DEFINITIONS.list()))
}

/// GET /apis/authorization.k8s.io/v1.
pub(crate) fn resources_of_reviews(_api: &Arc<Api>, _call: &Call) -> Answer {
    Ok(reply::ok(&REVIEWS.list()))
}
