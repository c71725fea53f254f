//! Whether a caller may use a route: its action, at the place that the path names (U4).
//!
//! W1 the place of a route comes from its template and the path as sent; a path that hides a slash in a name is refused by the
//!    call that is made of it, whatever was decided here;
//! W2 what brings work of one's own choosing (a job, a deployment) needs the right on the whole workspace: a job may act there;
//! W3 a refusal says who, what and where, which the caller sent, and nothing else (I8).

use axum::http::{StatusCode, Uri};
use model::Workspace;
use percent_encoding::percent_decode_str;
use wire::{
    access::{DATA_SCIENTIST, Role, covers, principal_id},
    names::workspace_id,
};

use super::Caller;
use crate::{Api, arm::operations, problem::Problem, route::Route};

/// What reading a workspace is called.
pub(crate) const READ_WORKSPACE: &str = "Microsoft.MachineLearningServices/workspaces/read";
/// What brings work that jobs do.
const BRINGS_WORK: [&str; 4] = [
    "Microsoft.MachineLearningServices/workspaces/jobs/write",
    "Microsoft.MachineLearningServices/workspaces/schedules/write",
    "Microsoft.MachineLearningServices/workspaces/batchEndpoints/deployments/write",
    "Microsoft.MachineLearningServices/workspaces/onlineEndpoints/deployments/write",
];
/// What every client of Kubernetes asks first: what is served, and what it may do itself. Who has any role may.
const KUBE_OPEN: [&str; 3] = [
    "zaffre/kube/version/",
    "zaffre/kube/discovery/",
    "authorization.k8s.io/selfsubjectaccessreviews/",
];
/// Segments of a subscription's id.
const SUBSCRIPTION_SEGMENTS: usize = 2;
/// Segments of a resource group's id.
const GROUP_SEGMENTS: usize = 4;
/// Segments of a workspace's id.
const WORKSPACE_SEGMENTS: usize = 8;

/// Where an action takes place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// At a scope, where the action must be among somebody's rights.
    At(String),
    /// Somewhere that everybody may read who has any right there or nearby: it says nothing of what others have.
    Near(String),
}

impl Api {
    /// Whether `caller` may use `route` on this path.
    pub(crate) fn authorise(
        &self,
        caller: &Caller,
        route: &Route,
        uri: &Uri,
    ) -> Result<(), Problem> {
        if *caller == Caller::Owner {
            return Ok(());
        }
        let path = percent_decode_str(uri.path()).decode_utf8_lossy();
        let (action, place) = asked(route, &path);
        let may = match &place {
            Place::At(at) => self.may(caller, &action, at),
            Place::Near(at) => self.is_at_home(caller, at),
        };
        let (Place::At(at) | Place::Near(at)) = place;
        if may {
            Ok(())
        } else {
            Err(denied(caller, &action, &at))
        }
    }

    /// Whether `caller` has the right to do `action` at `at`.
    pub(crate) fn may(&self, caller: &Caller, action: &str, at: &str) -> bool {
        match caller {
            Caller::Owner => true,
            Caller::Identity(name) | Caller::Outside(name) => {
                self.identities.directory.look().lets(name, action, at)
            }
            Caller::Job(job) => {
                covers(&workspace_id(job.workspace()), at)
                    && Role::find(DATA_SCIENTIST, &[]).is_some_and(|role| role.allows(action))
            }
        }
    }

    fn is_at_home(&self, caller: &Caller, at: &str) -> bool {
        match caller {
            Caller::Owner => true,
            Caller::Identity(name) | Caller::Outside(name) => {
                self.identities.directory.look().is_at_home(name, at)
            }
            Caller::Job(job) => {
                let home = workspace_id(job.workspace());
                covers(&home, at) || covers(at, &home)
            }
        }
    }
}

/// 403 (W3).
pub(crate) fn denied(caller: &Caller, action: &str, at: &str) -> Problem {
    let name = caller.name();
    Problem::new(
        StatusCode::FORBIDDEN,
        "AuthorizationFailed",
        format!(
            "The client '{name}' with object id '{}' does not have authorization to perform action '{action}' over scope '{}' or the scope is invalid.",
            principal_id(&name),
            wire::names::shown_all(at)
        ),
    )
    .hint(format!(
        "an owner gives a role with `zaffre role assignment create --assignee {name} --role ROLE --scope SCOPE`"
    ))
}

/// The action and the place that a route asks for (W1).
fn asked(route: &Route, path: &str) -> (String, Place) {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    let names: Vec<&str> = route
        .template
        .split('/')
        .filter(|p| !p.is_empty())
        .collect();
    let param = |name: &str| {
        let at = names.iter().position(|n| *n == name);
        at.and_then(|at| parts.get(at).copied()).unwrap_or_default()
    };
    let action = route.action.replace("{assets}", param("{assets}"));
    if KUBE_OPEN.iter().any(|open| action.starts_with(open)) {
        return (action, Place::Near("/".into()));
    }
    if names.first() == Some(&"batch") {
        let workspace = Workspace::new(param("{s}"), param("{g}"), param("{w}"));
        let at = format!(
            "{}/batchEndpoints/{}",
            workspace_id(&workspace),
            param("{e}")
        );
        return (action, Place::At(at));
    }
    let Some(begin) = names.iter().position(|n| *n == "subscriptions") else {
        return (action, Place::At("/".into()));
    };
    let below = parts.get(begin..).unwrap_or_default();
    let first = |count: usize| scope(&below[..below.len().min(count)]);
    if names.contains(&"{l}") && action.ends_with("/read") {
        // An operation is seen by who sees the workspace that it is in.
        return match operations::workspace(param("{s}"), param("{id}")) {
            Some(workspace) => (
                READ_WORKSPACE.to_owned(),
                Place::At(workspace_id(&workspace)),
            ),
            None => (action, Place::Near(first(SUBSCRIPTION_SEGMENTS))),
        };
    }
    // A provider's word about something stands behind that thing.
    let about = ["Microsoft.Authorization", "Microsoft.Insights"];
    let end = names[begin..].iter().position(|n| about.contains(n));
    let below = match end {
        Some(provider) => &below[..(provider - 1).min(below.len())],
        None => below,
    };
    let last = names.last().copied();
    if last == Some("{g}") || last == Some("workspaces") && action == READ_WORKSPACE {
        // The list has what who asks may read.
        let group = names.contains(&"{g}");
        let segments = if group {
            GROUP_SEGMENTS
        } else {
            SUBSCRIPTION_SEGMENTS
        };
        return (action, Place::Near(first(segments)));
    }
    if BRINGS_WORK.contains(&action.as_str()) {
        return (action, Place::At(first(WORKSPACE_SEGMENTS))); // W2
    }
    (action, Place::At(scope(below)))
}

fn scope(parts: &[&str]) -> String {
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ROUTES;

    const WS: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w";

    fn place(method: &str, template: &str, path: &str) -> (String, Place) {
        let route = ROUTES
            .iter()
            .find(|r| r.method == method && r.template.ends_with(template))
            .unwrap_or_else(|| panic!("no route {method} {template}"));
        asked(route, path)
    }

    #[test]
    fn w1_each_kind_of_path_has_its_place() {
        let at = |path: &str| Place::At(path.to_owned());
        let near = |path: &str| Place::Near(path.to_owned());
        for (method, template, path, expected) in [
            (
                "GET",
                "workspaces/{w}/computes/{n}",
                format!("{WS}/computes/c"),
                at(&format!("{WS}/computes/c")),
            ),
            ("GET", "workspaces/{w}", WS.to_owned(), at(WS)),
            (
                "PUT",
                "workspaces/{w}/jobs/{n}",
                format!("{WS}/jobs/j"),
                at(WS),
            ),
            (
                "PUT",
                "/batchEndpoints/{e}/deployments/{d}",
                format!("{WS}/batchEndpoints/e/deployments/d"),
                at(WS),
            ),
            (
                "POST",
                "/jobs/{n}/cancel",
                format!("{WS}/jobs/j/cancel"),
                at(&format!("{WS}/jobs/j/cancel")),
            ),
            (
                "POST",
                "/batch/{s}/{g}/{w}/{e}/jobs",
                "/batch/s/g/w/e/jobs".into(),
                at(&format!("{WS}/batchEndpoints/e")),
            ),
            (
                "GET",
                "workspaces/{w}/runs/{r}",
                format!("/history/v1.0{WS}/runs/r"),
                at(&format!("{WS}/runs/r")),
            ),
            (
                "GET",
                "Microsoft.Insights/metrics",
                format!("{WS}/providers/Microsoft.Insights/metrics"),
                at(WS),
            ),
            (
                "GET",
                "/subscriptions/{s}/resourceGroups/{g}",
                "/subscriptions/s/resourceGroups/g".into(),
                near("/subscriptions/s/resourceGroups/g"),
            ),
            (
                "GET",
                "/subscriptions/{s}/providers/Microsoft.MachineLearningServices/workspaces",
                "/subscriptions/s/providers/x/workspaces".into(),
                near("/subscriptions/s"),
            ),
            (
                "GET",
                "locations/{l}/usages",
                "/subscriptions/s/providers/x/locations/l/usages".into(),
                near("/subscriptions/s"),
            ),
            (
                "POST",
                "locations/{l}/updateQuotas",
                "/subscriptions/s/providers/x/locations/l/updateQuotas".into(),
                at("/subscriptions/s/providers/x/locations/l/updateQuotas"),
            ),
            ("GET", "/kube/version", "/kube/version".into(), near("/")),
            (
                "GET",
                "v1alpha1/instancetypes",
                "/kube/apis/amlarc.azureml.com/v1alpha1/instancetypes".into(),
                at("/"),
            ),
            (
                "PUT",
                "workspaces/{w}/providers/Microsoft.Authorization/roleAssignments/{a}",
                format!("{WS}/providers/Microsoft.Authorization/roleAssignments/a"),
                at(WS),
            ),
            (
                "PUT",
                "/subscriptions/{s}/providers/Microsoft.Authorization/roleAssignments/{a}",
                "/subscriptions/s/providers/Microsoft.Authorization/roleAssignments/a".into(),
                at("/subscriptions/s"),
            ),
        ] {
            assert_eq!(
                place(method, template, &path).1,
                expected,
                "{method} {path}"
            );
        }
        let (action, _) = place("GET", "workspaces/{w}/{assets}", &format!("{WS}/models"));
        assert_eq!(
            action,
            "Microsoft.MachineLearningServices/workspaces/models/read"
        );
    }

    #[test]
    fn w1_no_path_makes_a_place_fail() {
        for route in ROUTES {
            for path in [
                "",
                "/",
                "/a",
                "//",
                "/subscriptions",
                "/subscriptions/s",
                WS,
            ] {
                let _ = asked(route, path);
            }
        }
    }
}
