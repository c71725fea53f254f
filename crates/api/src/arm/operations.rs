//! Long-running operations: nothing about them is stored (A4). The id says what was asked for, and the view how it stands.

use axum::{http::StatusCode, response::Response};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{ComputeId, JobId, Time, Workspace};
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
}

impl Operation {
    fn encode(&self, started: Time) -> String {
        let (kind, workspace, name) = match self {
            Operation::DeleteCompute(id) => ("d", id.workspace(), id.name()),
            Operation::Cancel(id) => ("c", id.workspace(), id.name()),
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
            _ => return None,
        };
        Some((operation, Time(started.parse().ok()?)))
    }

    fn over(&self, api: &Api) -> Result<bool, Problem> {
        Ok(match self {
            // One that was made anew under the same name is another compute.
            Operation::DeleteCompute(id) => {
                let view = api.control.view();
                let cluster = view.clusters.get(id).is_some_and(|c| c.deleting);
                !cluster && !view.kubernetes.get(id).is_some_and(|k| k.deleting)
            }
            Operation::Cancel(id) => api.control.run(id)?.is_none_or(|run| run.state.is_done()),
        })
    }

    /// 202 with where to look.
    pub fn accepted(&self, api: &Api, call: &Call) -> Response {
        let (subscription, family) = match self {
            Operation::DeleteCompute(id) => (&id.workspace().subscription, Family::Compute),
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
        let response = reply::with(
            reply::empty(StatusCode::ACCEPTED),
            "azure-asyncoperation",
            &url(family.status()),
        );
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
        Operation::DeleteCompute(id) => id.workspace().clone(),
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
    let over = operation.over(api)?;
    let progress = if over {
        Progress::Succeeded { ended: time::now() }
    } else {
        Progress::Running
    };
    let body = operation_view(&call.path, started, &progress);
    Ok((body, over))
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
