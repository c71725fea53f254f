//! Lists of jobs: of a workspace, of an endpoint, of a deployment; newest first.

use model::{Document, JobId, Kind};
use serde_json::Value;
use std::sync::Arc;
use wire::view;

use super::{
    assets::{Listed, archived},
    batch,
    jobs::Found,
    put,
    workspaces::page,
};
use crate::{
    Api,
    call::Call,
    paging,
    problem::{Answer, Problem},
    reply, show,
};

/// Which jobs are wanted.
struct Filter<'a> {
    kind: Option<&'a str>,
    tag: Option<&'a str>,
    listed: Listed,
    endpoint: Option<&'a str>,
    deployment: Option<&'a str>,
}

impl Filter<'_> {
    fn takes(&self, body: &Value) -> bool {
        let p = &body["properties"];
        let is = |want: Option<&str>, have: &Value| {
            want.is_none_or(|w| have.as_str().is_some_and(|h| h.eq_ignore_ascii_case(w)))
        };
        is(self.kind, &p["jobType"])
            && self.listed.shows(archived(body))
            && self.tag.is_none_or(|tag| has_tag(&p["tags"], tag))
            && is(self.endpoint, &p["properties"]["azureml.endpointname"])
            && is(self.deployment, &p["properties"]["azureml.deploymentname"])
    }
}

/// `name` or `name=value`.
fn has_tag(tags: &Value, wanted: &str) -> bool {
    match wanted.split_once('=') {
        Some((name, value)) => tags[name] == value,
        None => tags.get(wanted).is_some(),
    }
}

fn text<'a>(call: &'a Call, name: &str) -> Option<&'a str> {
    call.query.get(name).filter(|v| !v.is_empty())
}

/// GET jobs.
pub(crate) fn list(api: &Arc<Api>, call: &Call) -> Answer {
    let filter = Filter {
        kind: text(call, "jobType"),
        tag: text(call, "tag"),
        listed: Listed::of(call),
        endpoint: None,
        deployment: None,
    };
    answer(api, call, &filter, |found| {
        show::job(api, &call.base, found)
    })
}

/// GET the batch jobs of an endpoint.
pub(crate) fn of_endpoint(api: &Arc<Api>, call: &Call) -> Answer {
    batch(api, call, None)
}

/// GET the batch jobs of a deployment.
pub(crate) fn of_deployment(api: &Arc<Api>, call: &Call) -> Answer {
    batch(api, call, Some(call.param("d")))
}

fn batch(api: &Arc<Api>, call: &Call, deployment: Option<&str>) -> Answer {
    batch::endpoint(api, &batch::endpoint_key(api, call)?)?;
    let filter = Filter {
        kind: None,
        tag: None,
        listed: Listed::of(call),
        endpoint: Some(call.param("e")),
        deployment,
    };
    let site = show::site(api, &call.base);
    answer(api, call, &filter, |found| {
        view::job::batch_item(&site, &show::of(found))
    })
}

fn answer(
    api: &Arc<Api>,
    call: &Call,
    filter: &Filter<'_>,
    view: impl Fn(&Found) -> Value,
) -> Answer {
    let workspace = call.workspace(api)?;
    let wanted = paging::Wanted::of(call)?;
    let mut page = page(&workspace, Kind::Job, None, true);
    let (items, next) = paging::filtered(&api.control, &mut page, &wanted, |document| {
        if !filter.takes(&put::body(document)?) {
            return Ok(None);
        }
        let found = found(api, document)?;
        // steps and trials are listed by their parent
        let part = found.run.as_ref().is_some_and(|r| r.spec.part.is_some());
        Ok((!part).then(|| view(&found)))
    })?;
    Ok(reply::ok(&paging::body(call, items, next)))
}

fn found(api: &Api, document: &Document) -> Result<Found, Problem> {
    let id = JobId::new(&document.key.workspace, document.key.path.clone());
    Ok(Found {
        run: api.control.run(&id)?,
        document: document.clone(),
        id,
        child: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tags_are_found_by_name_or_value() {
        let tags = json!({"team": "a"});
        assert!(has_tag(&tags, "team") && has_tag(&tags, "team=a"));
        assert!(!has_tag(&tags, "team=b") && !has_tag(&tags, "x"));
    }
}
