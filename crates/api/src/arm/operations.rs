//! Long-running operations: nothing about them is stored (A4). The id says what was asked for, and the view how it stands.

use axum::{http::StatusCode, response::Response};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{ComputeId, JobId, NodeState, Time, Workspace};
use serde_json::Value;
use std::sync::Arc;
use wire::view::operation::{Family, Progress, operation as operation_view, path};

use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply, time,
};

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A compute is being deleted: over when its last node is gone.
    DeleteCompute(ComputeId),
    /// A job is being canceled: over when it has ended.
    Cancel(JobId),
    /// A compute instance is being started: over when its node is up, failed when it cannot be had.
    Start(ComputeId),
    /// A compute instance is being stopped: over when its node is gone.
    Stop(ComputeId),
}

impl Operation {
    fn encode(&self, started: Time) -> String {
        let (kind, workspace, name) = match self {
            Operation::DeleteCompute(id) => ("d", id.workspace(), id.name()),
            Operation::Cancel(id) => ("c", id.workspace(), id.name()),
            Operation::Start(id) => ("u", id.workspace(), id.name()),
            Operation::Stop(id) => ("o", id.workspace(), id.name()),
        };
        URL_SAFE_NO_PAD.encode(format!(
            "{kind}\n{}\n{}\n{}\n{name}",
            started.0, workspace.group, workspace.name
        ))
    }

    fn decode(subscription: &str, id: &str) -> Option<(Operation, Time)> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(id).ok()?).ok()?;
        let mut parts = text.splitn(5, '\n');
        let mut next = || parts.next();
        let (kind, started, group, workspace, name) = (next()?, next()?, next()?, next()?, next()?);
        let workspace = Workspace::new(subscription, group, workspace);
        let operation = match kind {
            "d" => Operation::DeleteCompute(ComputeId::new(&workspace, name)),
            "c" => Operation::Cancel(JobId::new(&workspace, name)),
            "u" => Operation::Start(ComputeId::new(&workspace, name)),
            "o" => Operation::Stop(ComputeId::new(&workspace, name)),
            _ => return None,
        };
        Some((operation, Time(started.parse().ok()?)))
    }

    fn progress(&self, api: &Api) -> Result<Progress, Problem> {
        let over = match self {
            // One that was made anew under the same name is another compute.
            Operation::DeleteCompute(id) => {
                let view = api.control.view();
                let cluster = view.clusters.get(id).is_some_and(|c| c.deleting);
                !cluster && !view.kubernetes.get(id).is_some_and(|k| k.deleting)
            }
            Operation::Cancel(id) => api.control.run(id)?.is_none_or(|run| run.state.is_done()),
            Operation::Start(id) => return Ok(starting(api, id)),
            Operation::Stop(id) => {
                let view = api.control.view();
                view.nodes_of(id).all(|node| !node.state.exists())
            }
        };
        Ok(if over {
            Progress::Succeeded { ended: time::now() }
        } else {
            Progress::Running
        })
    }

    /// 202 with where to look.
    pub fn accepted(&self, api: &Api, call: &Call) -> Response {
        self.told(api, call, reply::empty(StatusCode::ACCEPTED))
    }

    /// `response` with where to look.
    pub fn told(&self, api: &Api, call: &Call, response: Response) -> Response {
        let (subscription, family) = match self {
            Operation::DeleteCompute(id) | Operation::Start(id) | Operation::Stop(id) => {
                (&id.workspace().subscription, Family::Compute)
            }
            Operation::Cancel(id) => (&id.workspace().subscription, Family::Front),
        };
        let id = self.encode(time::now());
        let url = |segment: &str| {
            let path = path(subscription, &api.location, segment, &id);
            format!(
                "{}{}?api-version=2024-04-01",
                call.base.url(),
                crate::query::encode_path(&path)
            )
        };
        let response = reply::with(response, "azure-asyncoperation", &url(family.status()));
        let response = reply::with(response, "location", &url(family.results()));
        reply::with(response, "x-ms-retry-after-ms", reply::POLL_MS)
    }
}

/// GET …OperationsStatus/{id}: what the SDK polls.
pub(crate) fn status(api: &Arc<Api>, call: &Call) -> Answer {
    let (body, _) = look(api, call)?;
    Ok(reply::with(
        reply::ok(&body),
        "x-ms-retry-after-ms",
        reply::POLL_MS,
    ))
}

/// GET …OperationsResults/{id}: `Location`, asked once the operation is over, or polled by older clients.
pub(crate) fn result(api: &Arc<Api>, call: &Call) -> Answer {
    let (body, over) = look(api, call)?;
    let status = if over {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    let response = reply::json(status, &body);
    let response = reply::with(response, "x-ms-retry-after-ms", reply::POLL_MS);
    Ok(if over {
        response
    } else {
        reply::with(
            response,
            "location",
            &format!("{}{}", call.base.url(), call.path),
        )
    })
}

/// The workspace that an operation is in.
pub(crate) fn workspace(subscription: &str, id: &str) -> Option<Arc<Workspace>> {
    let (operation, _) = Operation::decode(subscription, id)?;
    Some(match operation {
        Operation::DeleteCompute(id) | Operation::Start(id) | Operation::Stop(id) => {
            id.workspace().clone()
        }
        Operation::Cancel(id) => id.workspace().clone(),
    })
}

fn look(api: &Api, call: &Call) -> Result<(Value, bool), Problem> {
    let id = call.param("id");
    let (operation, started) = Operation::decode(call.param("s"), id).ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "OperationNotFound",
            "there is no such operation",
        )
    })?;
    let progress = operation.progress(api)?;
    let body = operation_view(&call.path, started, &progress);
    Ok((body, progress != Progress::Running))
}

/// How the start of an instance stands.
fn starting(api: &Api, id: &ComputeId) -> Progress {
    let view = api.control.view();
    let ended = time::now();
    let failed = |code, message| Progress::Failed {
        ended,
        code,
        message,
    };
    let Some(cluster) = view.clusters.get(id).filter(|c| !c.deleting) else {
        return failed("ComputeNotFound", format!("compute {id} was deleted"));
    };
    let (mut up, mut going) = (false, false);
    for node in view.nodes_of(id) {
        up |= matches!(node.state, NodeState::Idle | NodeState::Running { .. });
        going |= matches!(node.state, NodeState::Leaving { .. });
    }
    match &cluster.why {
        _ if up && !going => Progress::Succeeded { ended },
        Some(why) if !going => failed(wire::view::status::code(why), why.to_string()),
        _ if cluster.spec.max == 0 => failed(
            "Conflict",
            format!("compute instance {id} was stopped meanwhile"),
        ),
        _ => Progress::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_what_was_asked_for() {
        let workspace = Workspace::new("s", "g", "w");
        for operation in [
            Operation::DeleteCompute(ComputeId::new(&workspace, "low-pri")),
            Operation::Cancel(JobId::new(&workspace, "学習\nx")),
            Operation::Start(ComputeId::new(&workspace, "ci")),
            Operation::Stop(ComputeId::new(&workspace, "ci")),
        ] {
            let id = operation.encode(Time(5));
            assert_eq!(Operation::decode("s", &id), Some((operation, Time(5))));
        }
        for wrong in [
            "",
            "x",
            "!!",
            &URL_SAFE_NO_PAD.encode("z\n1\ng\nw\nn"),
            &URL_SAFE_NO_PAD.encode("d\nx\ng\nw\nn"),
        ] {
            assert_eq!(Operation::decode("s", wrong), None);
        }
    }
}
