//! What a view needs beside the document: the published state, and where the client sees the server. The shapes are `wire`'s.

use model::{
    ComputeId, Document, KubernetesRecord, Name, Time, View, Workspace, kubernetes::TypeSeen,
};
use serde_json::{Map, Value};
use std::sync::Arc;
use wire::{
    arm::{asset::name_and_version, target::Target},
    view::{self, Site, history::Which, job::Job},
};

use crate::{
    Api,
    arm::{assets::Container, jobs::Found},
    call::Base,
    problem::Problem,
};

/// Where the client sees the server.
pub(crate) fn site(api: &Api, base: &Base) -> Site {
    Site {
        base: base.url(),
        location: api.location.clone(),
    }
}

/// The document of a workspace; the server's own may have none, and then this stands for it.
pub(crate) fn workspace_document(
    api: &Api,
    workspace: &Arc<Workspace>,
    stored: Option<Document>,
) -> Document {
    stored.unwrap_or_else(|| Document {
        key: model::DocKey::new(workspace, model::Kind::Workspace, ""),
        generation: 0,
        json: "{}".into(),
        created: api.started,
        modified: api.started,
        by: crate::arm::put::BY.into(),
    })
}

pub(crate) fn compute(api: &Api, base: &Base, document: &Document) -> Value {
    let view = api.control.view();
    let body: Value = serde_json::from_str(&document.json).unwrap_or_default();
    let target = Target::of(&body).unwrap_or(Target::AmlCompute);
    let id = ComputeId::new(&document.key.workspace, document.key.path.clone());
    if let Some(record) = view.kubernetes.get(&id) {
        let trouble = view.clusters_seen.get(&record.cluster());
        return view::compute::kubernetes(
            &site(api, base),
            document,
            Some(record),
            types(&view, record, document),
            trouble.and_then(|c| c.trouble.as_deref()),
        );
    }
    let record = view.clusters.get(&id).map(|r| &**r);
    if target == Target::ComputeInstance {
        let nodes = view.nodes_of(&id);
        return view::compute::instance(&site(api, base), document, record, nodes);
    }
    if !matches!(target, Target::AmlCompute | Target::Kubernetes) {
        return view::compute::attached(&site(api, base), document, target);
    }
    view::compute::compute(&site(api, base), document, record, view.nodes_of(&id))
}

/// The instance types that a Kubernetes compute offers, as clients see them. Its own keep the spelling they were sent in;
/// those of the embedded cluster the one they were applied in.
fn types(view: &View, record: &KubernetesRecord, document: &Document) -> Map<String, Value> {
    let own: Value = serde_json::from_str(&document.json).unwrap_or_default();
    let own = own.pointer("/properties/properties/instanceTypes");
    let shown = |name: &str, seen: &TypeSeen| {
        if record.spec.types.contains_key(name)
            && let Some(sent) = own.and_then(|types| types.get(name))
        {
            return Some(sent.clone());
        }
        let applied = view.types.records.get(&Name::from(name));
        match (seen, applied.filter(|_| !record.spec.is_attached())) {
            (TypeSeen::Usable(_), Some(applied)) => {
                let object: Value = serde_json::from_str(&applied.json).ok()?;
                Some(wire::crd::arm_view_of(&object))
            }
            (TypeSeen::Usable(usable), None) => Some(wire::crd::arm_view(usable)),
            // no client could use it; `instance-type list` and the API server show it
            (TypeSeen::Broken(_), _) => None,
        }
    };
    let all = view.types_of(record);
    let all = all
        .iter()
        .filter_map(|(name, seen)| Some((name.to_string(), shown(name, seen)?)));
    all.collect()
}

/// A container as its versions make it, with what its own document says of it.
pub(crate) fn container(container: &Container) -> Result<Value, Problem> {
    let versions = || container.versions.iter();
    let newest = versions().max_by_key(|d| (d.created, version_number(d)));
    let mut out = match newest {
        Some(newest) => {
            let names = versions().map(|d| name_and_version(d.key.path.as_str()).1);
            view::asset::container(newest, names)
        }
        None => return empty(container),
    };
    if let Some(own) = &container.own {
        overlay(&mut out, own)?;
    }
    Ok(out)
}

/// Ties in time go to the higher number.
fn version_number(document: &Document) -> Option<u64> {
    name_and_version(document.key.path.as_str()).1.parse().ok()
}

/// A container without versions: only its own document says that it is there.
fn empty(container: &Container) -> Result<Value, Problem> {
    let own = container
        .own
        .as_ref()
        .ok_or_else(|| Problem::missing("the container has neither versions nor a document"))?;
    // Shown as if a version were there, then without it.
    let mut as_version = own.clone();
    as_version.key.path = format!("{}/0", own.key.path).into();
    let mut out = view::asset::container(&as_version, std::iter::empty());
    out["properties"]["latestVersion"] = Value::Null;
    overlay(&mut out, own)?;
    Ok(out)
}

fn overlay(out: &mut Value, own: &Document) -> Result<(), Problem> {
    let body = crate::arm::put::body(own)?;
    for key in ["description", "tags", "properties", "isArchived"] {
        let value = &body["properties"][key];
        if !value.is_null() {
            out["properties"][key] = value.clone();
        }
    }
    Ok(())
}

/// The job of a lookup, as views take it.
pub(crate) fn of(found: &Found) -> Job<'_> {
    Job::new(&found.document, found.run.as_deref())
}

/// Which of the two runs of a batch job a lookup named.
pub(crate) fn which(found: &Found) -> Which {
    if found.child { Which::Step } else { Which::Job }
}

/// A job under the name it was asked for.
pub(crate) fn job(api: &Api, base: &Base, found: &Found) -> Value {
    let site = site(api, base);
    if found.child {
        view::job::child(&site, &of(found))
    } else {
        view::job::job(&site, &of(found))
    }
}

/// Time as ARM writes it.
pub(crate) fn stamp(time: Time) -> String {
    wire::arm::time::stamp(time)
}
