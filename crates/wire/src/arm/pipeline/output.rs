//! What comes out of a pipeline and its steps.

use super::{Node, Parent, Spec, rest_mode};
use crate::{
    arm::{Invalid, link::Links},
    names::shown,
    places::End,
};
use model::{Name, RunSpec, Work};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

type Outputs = (Map<String, Value>, BTreeMap<Box<str>, Box<str>>);

/// What comes out of a step: the entries of its document, and which are outputs of the pipeline.
pub(super) fn outputs(
    parent: &Parent<'_>,
    node: &Node<'_>,
    decl: &Spec,
    links: &Links<'_>,
) -> Result<Outputs, Invalid> {
    let given = node.place.get("outputs");
    for (name, place) in given.entries()? {
        if !decl.outputs.contains_key(name) {
            let names: Vec<&str> = decl.outputs.keys().map(AsRef::as_ref).collect();
            return Err(place.refuse(format!(
                "is no output of the component, it has {}",
                names.join(", ")
            )));
        }
    }
    let (mut document, mut exports) = (Map::new(), BTreeMap::new());
    for (name, word) in &decl.outputs {
        let place = given.get(name);
        let mut entry = json!({ "jobOutputType": word });
        let text = match place.value() {
            Some(Value::String(text)) => Some(text.as_str()),
            _ => place.get("value").text()?,
        };
        match text.map(str::trim).filter(|t| !t.is_empty()) {
            Some(text) => {
                let inner = text.strip_prefix("${{").and_then(|t| t.strip_suffix("}}"));
                let outer = inner.and_then(|t| t.trim().strip_prefix("parent.outputs."));
                let Some(outer) = outer else {
                    return Err(place.refuse(format!(
                        "is `{}`, known is ${{{{parent.outputs.NAME}}}}",
                        shown(text)
                    )));
                };
                let Some(target) = parent.task.outputs.get(outer) else {
                    return Err(place.refuse(format!(
                        "names output {} of the pipeline, which does not declare it",
                        shown(outer)
                    )));
                };
                let end = if target.file { End::File } else { End::Folder };
                let uri = match &target.remote {
                    Some(remote) => {
                        let place = &target.target;
                        Some(links.places.uri_in(&remote.datastore, place, end))
                    }
                    None => links.places.uri(&target.target, end),
                };
                entry["uri"] = json!(uri);
                exports.insert(name.clone(), outer.into());
            }
            None => {
                let uri = ["uri", "path"].map(|key| place.get(key));
                if let Some(uri) = uri.iter().find_map(|f| f.text().ok().flatten()) {
                    entry["uri"] = json!(uri);
                }
            }
        }
        if let Some(mode) = rest_mode(&place.get("mode"))? {
            entry["mode"] = json!(mode);
        }
        for (key, to) in [
            ("assetName", "assetName"),
            ("asset_name", "assetName"),
            ("name", "assetName"),
            ("assetVersion", "assetVersion"),
            ("asset_version", "assetVersion"),
            ("version", "assetVersion"),
        ] {
            if let Some(text) = place.get(key).text()? {
                entry[to] = json!(text);
            }
        }
        document.insert(name.to_string(), entry);
    }
    Ok((document, exports))
}

/// No two parts of a pipeline are to make the same version of an asset: the second of them would fail for certain.
pub(super) fn pinned_once(
    run: &RunSpec,
    seen: &mut BTreeSet<(model::Kind, Name, Box<str>)>,
) -> Result<(), Invalid> {
    for (output, spec) in &run.task.outputs {
        let Some(register) = &spec.register else {
            continue;
        };
        let Some(version) = &register.version else {
            continue;
        };
        if !seen.insert((register.kind, register.name.clone(), version.clone())) {
            let part = run.part.as_ref().map(|p| format!("/jobs/{}", p.key));
            return Err(Invalid::user(
                format!("/properties{}/outputs/{output}", part.unwrap_or_default()),
                format!(
                    "output {output} is to be {}:{version}, as another output of the pipeline is",
                    register.name
                ),
            ));
        }
    }
    match &run.work {
        Work::Pipeline(pipeline) => {
            let mut steps = pipeline.steps.values();
            steps.try_for_each(|step| pinned_once(&step.run, seen))
        }
        Work::Command | Work::Batch(_) | Work::Sweep(_) => Ok(()),
    }
}
