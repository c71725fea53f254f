//! Pipeline jobs and components.
//!
//! A component that a step names by a file, or has inside, stands inline in the document (`component`, and for a sweep
//! `trial`): whoever sends the document registers it first, as Azure's client does, and puts its id there instead.

use super::{
    assets::environment_of,
    draft::{AssetKind, LocalAsset, pointer_part},
    fields::{Choice, Fields},
    job::{self, ports},
    load::Built,
    parallel,
    reference::{AssetPath, Spot, asset_path, code, compute, inline_asset, locate, refer},
    report::{Report, Source},
    scalar, text, tree,
    tree::{Entry, Node, Value},
};
use crate::names::{Kind, check_asset, check_job, check_version, is_reference, shown};
use serde_json::{Map, Value as Json, json};

/// Files that name files that name files: no honest pipeline goes deeper.
const MAX_DEPTH: u32 = 8;

const PIPELINE: &[Choice] = &[("pipeline", "Pipeline")];
const COMPONENTS: &[Choice] = &[
    ("command", "command"),
    ("parallel", "parallel"),
    ("pipeline", "pipeline"),
];
const NODES: &[Choice] = &[
    ("command", "command"),
    ("sweep", "sweep"),
    ("pipeline", "pipeline"),
    ("parallel", "parallel"),
    ("spark", "spark"),
    ("automl", "automl"),
    ("import", "import"),
    ("data_transfer", "data_transfer"),
];
const PORTS: &[Choice] = &[
    ("uri_folder", "uri_folder"),
    ("uri_file", "uri_file"),
    ("mltable", "mltable"),
    ("custom_model", "custom_model"),
    ("mlflow_model", "mlflow_model"),
    ("triton_model", "triton_model"),
    ("string", "string"),
    ("integer", "integer"),
    ("number", "number"),
    ("boolean", "boolean"),
];
/// What a step says in the words of the document.
const BAGS: &[&str] = &[
    "resources",
    "distribution",
    "limits",
    "queue_settings",
    "identity",
    "services",
    "settings",
    "search_space",
    "objective",
    "early_termination",
];
const MODES: &[Choice] = &[
    ("ro_mount", "ReadOnlyMount"),
    ("rw_mount", "ReadWriteMount"),
    ("mount", "ReadWriteMount"),
    ("upload", "Upload"),
    ("download", "Download"),
    ("direct", "Direct"),
];

/// Puts the content of component files where a pipeline names them, before the file is read.
pub(super) fn inline_components(root: &mut Node, report: &Report<'_>) {
    inline(root, report, 0);
}

fn inline(root: &mut Node, report: &Report<'_>, depth: u32) {
    let Value::Map(entries) = &mut root.value else {
        return;
    };
    let Some(jobs) = entries.iter_mut().find(|e| e.key == "jobs") else {
        return;
    };
    let Value::Map(jobs) = &mut jobs.node.value else {
        return;
    };
    for job in jobs {
        let Value::Map(keys) = &mut job.node.value else {
            continue;
        };
        for entry in keys.iter_mut() {
            if entry.key != "component" && entry.key != "trial" {
                continue;
            }
            if let Some(path) = entry.node.text().map(str::to_owned)
                && let Ok(Spot::Local(path)) = locate(&path)
            {
                match file(&path, &entry.node, report, depth) {
                    Some(node) => entry.node = node,
                    None => return,
                }
            }
            inline(&mut entry.node, report, depth + 1);
        }
    }
}

/// The content of a component file, its paths made relative to the file that was given.
fn file(path: &str, named: &Node, report: &Report<'_>, depth: u32) -> Option<Node> {
    let refuse = |message: String| {
        report.error(named.at, "component", message);
        None
    };
    if depth >= MAX_DEPTH {
        return refuse(format!(
            "{}: components lie more than {MAX_DEPTH} files deep",
            shown(path)
        ));
    }
    let bytes = match (report.files)(path) {
        Ok(bytes) => bytes,
        Err(error) => return refuse(format!("component {}: {error}", shown(path))),
    };
    let source = |text: &str| {
        report.source(Source::File {
            name: path.to_owned(),
            text: text.to_owned(),
        })
    };
    let text = match text::decode(&bytes) {
        Ok(text) => text,
        Err(no) => return refuse(format!("component {}: {}", shown(path), no.message)),
    };
    let mut node = match tree::parse(text, source(text)) {
        Ok(node) => node,
        Err(malformed) => {
            report.error_with(malformed.at, "", malformed.message, malformed.hint);
            return None;
        }
    };
    if let Some((folder, _)) = path.rsplit_once('/') {
        move_paths(&mut node, folder);
    }
    Some(node)
}

/// Puts `folder` before every path that a component names.
fn move_paths(node: &mut Node, folder: &str) {
    let Value::Map(entries) = &mut node.value else {
        return;
    };
    for Entry { key, node, .. } in entries {
        match key.as_str() {
            "code" | "conda_file" | "component" | "trial" | "path" => {
                if let Value::Text { text, .. } = &mut node.value {
                    if let Ok(Spot::Local(path)) = locate(text)
                        && !path.starts_with('/')
                        && !text.contains("${{")
                    {
                        *text = format!("{folder}/{path}");
                    }
                } else {
                    move_paths(node, folder);
                }
            }
            "environment" | "build" | "task" => move_paths(node, folder),
            "jobs" | "inputs" => {
                if let Value::Map(entries) = &mut node.value {
                    for entry in entries {
                        move_paths(&mut entry.node, folder);
                    }
                }
            }
            _ => {}
        }
    }
}

/// A pipeline job file.
pub(super) fn job(report: &Report<'_>, fields: Fields<'_>) -> Built {
    fields.has("$schema");
    let name = fields.name("name", check_job);
    if fields.choice("type", PIPELINE).is_none() {
        fields.default_unless_written("type", "pipeline", "the keys of the file");
    }
    let mut body = Map::new();
    job::head(&fields, &mut body);
    if !fields.absent("compute")
        && let Some(id) = compute(&fields, "/properties/computeId", "job").id
    {
        body.insert("computeId".into(), id);
    }
    let inputs = ports::inputs(report, &fields);
    let outputs = ports::outputs(&fields);
    let around = Around {
        inputs: types(&inputs, "jobInputType"),
        outputs: types(&outputs, "jobOutputType"),
    };
    body.insert(
        "jobs".into(),
        jobs(report, &fields, "/properties/jobs", &around),
    );
    body.insert("inputs".into(), inputs.into());
    body.insert("outputs".into(), outputs.into());
    if let Some(settings) = settings(&fields, "/properties/settings") {
        body.insert("settings".into(), settings);
    }
    body.insert("jobType".into(), "Pipeline".into());
    fields.read_only(&["id", "status", "log_files", "creation_context"]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: None,
        parent: None,
        body: json!({ "properties": body }),
        effective: fields.done(&[]),
    }
}

/// A component file.
pub(super) fn component(report: &Report<'_>, fields: Fields<'_>) -> Built {
    let name = fields.name("name", |name| check_asset("component", name));
    let version = fields.name("version", check_version);
    let spec = spec(report, &fields, "/properties/componentSpec");
    let mut body = Map::from_iter([("componentSpec".to_owned(), Json::Object(spec))]);
    if let Some(text) = fields.text("description") {
        body.insert("description".into(), text.text.into());
    }
    for key in ["tags", "properties"] {
        body.insert(key.into(), fields.texts(key).unwrap_or_default().into());
    }
    for key in ["isAnonymous", "isArchived"] {
        body.insert(key.into(), false.into());
    }
    fields.read_only(&["id", "creation_context", "latest_version"]);
    Built {
        name: name.map(|text| text.text.to_owned()),
        version: version.map(|text| text.text.to_owned()),
        parent: None,
        body: json!({ "properties": body }),
        effective: fields.done(&[("compute", "a component has no compute; a step has")]),
    }
}

/// `componentSpec` of the keys of a component.
fn spec(report: &Report<'_>, fields: &Fields<'_>, pointer: &str) -> Map<String, Json> {
    fields.has("$schema");
    let mut spec = Map::new();
    for key in ["name", "version", "display_name", "description"] {
        if let Some(text) = fields.text(key) {
            spec.insert(key.into(), text.text.into());
        }
    }
    fields.texts("tags");
    let kind = fields.choice("type", COMPONENTS);
    let kind = kind.unwrap_or(if fields.absent("jobs") {
        "command"
    } else {
        "pipeline"
    });
    fields.show("type", kind);
    spec.insert("type".into(), kind.into());
    if let Some(flag) = fields.switch("is_deterministic") {
        spec.insert("is_deterministic".into(), flag.into());
    }
    for key in ["inputs", "outputs"] {
        spec.insert(key.into(), declared(fields, key));
    }
    if kind == "pipeline" {
        let types = |key: &str| types(spec[key].as_object().unwrap_or(&Map::new()), "type");
        let around = Around {
            inputs: types("inputs"),
            outputs: types("outputs"),
        };
        let jobs = jobs(report, fields, &format!("{pointer}/jobs"), &around);
        spec.insert("jobs".into(), jobs);
        return spec;
    }
    if kind == "parallel" {
        let (inputs, outputs) = (&spec["inputs"], &spec["outputs"]);
        let read = parallel::settings(fields, pointer, parallel::Of::Component, inputs, outputs);
        spec.extend(read.component);
        if let Some(bag) = fields.bag("resources") {
            spec.insert("resources".into(), bag);
        }
        if let Some(variables) = fields.variables("environment_variables") {
            spec.insert("environment_variables".into(), variables.into());
        }
        return spec;
    }
    command(fields, pointer, &mut spec);
    spec
}

/// What a command component runs.
fn command(fields: &Fields<'_>, pointer: &str, spec: &mut Map<String, Json>) {
    match fields.words("command") {
        Some(text) => {
            spec.insert("command".into(), text.text.into());
        }
        None => fields.missing("command", "write command: python train.py"),
    }
    if let Some(code) = code(fields, &format!("{pointer}/code")) {
        spec.insert("code".into(), code);
    }
    match environment_of(fields, &format!("{pointer}/environment")) {
        Some(Some(id)) => {
            spec.insert("environment".into(), id);
        }
        Some(None) => {}
        None if !fields.absent("environment") => {}
        None => fields.missing(
            "environment",
            "write environment: azureml:NAME:VERSION, or {image: library/python:3.11}",
        ),
    }
    for key in ["resources", "distribution"] {
        if let Some(bag) = fields.bag(key) {
            spec.insert(key.into(), bag);
        }
    }
}

/// Declared inputs or outputs; the server checks their types.
fn declared(fields: &Fields<'_>, key: &'static str) -> Json {
    let mut out = Map::new();
    let Some(section) = fields.section(key) else {
        return out.into();
    };
    for entry in section.entries() {
        let declared = match &entry.node.value {
            Value::Null => json!({ "type": "uri_folder" }),
            Value::Map(_) => scalar::json(&entry.node),
            Value::Text { .. } | Value::List(_) => {
                section.wrong(&entry.node, &entry.key, "a map with type");
                continue;
            }
        };
        section.show(&entry.key, declared.clone());
        out.insert(entry.key.clone(), declared);
    }
    fields.show(key, section.all_known());
    out.into()
}

fn types(ports: &Map<String, Json>, key: &str) -> Map<String, Json> {
    let kind = |port: &Json| port.get(key).cloned().unwrap_or(json!("uri_folder"));
    ports
        .iter()
        .map(|(name, port)| (name.clone(), kind(port)))
        .collect()
}

/// What the pipeline around a step declares: the type of each input and output.
struct Around {
    inputs: Map<String, Json>,
    outputs: Map<String, Json>,
}

fn settings(fields: &Fields<'_>, pointer: &str) -> Option<Json> {
    let section = fields.section("settings")?;
    let mut out = Map::new();
    if let Some(text) = section.words("default_compute") {
        let at = format!("{pointer}/default_compute");
        if is_reference(text.text) {
            let path = section.path_of("default_compute");
            if let Some(id) = refer(section.report, text, &path, Kind::Compute, &at) {
                out.insert("default_compute".into(), id);
            }
        } else if text.text.eq_ignore_ascii_case("serverless") {
            section
                .report
                .unsupported("settings.default_compute: serverless");
        } else {
            let refs = &section.report.refs;
            refs.borrow_mut().push(super::draft::ShortRef {
                pointer: at,
                kind: Kind::Compute,
                tail: format!("computes/{}", text.text),
            });
            out.insert("default_compute".into(), text.text.into());
        }
    }
    if let Some(text) = section.words("default_datastore") {
        out.insert("default_datastore".into(), text.text.into());
    }
    for key in ["continue_on_step_failure", "force_rerun"] {
        if let Some(flag) = section.switch(key) {
            out.insert(key.into(), flag.into());
        }
    }
    fields.show("settings", section.done(&[]));
    Some(out.into())
}

fn jobs(report: &Report<'_>, fields: &Fields<'_>, pointer: &str, around: &Around) -> Json {
    let mut out = Map::new();
    let Some(section) = fields.section("jobs") else {
        if fields.absent("jobs") {
            fields.missing(
                "jobs",
                "write jobs: {train: {type: command, component: ./train.yml}}",
            );
        }
        return out.into();
    };
    let siblings = section.entries();
    if siblings.is_empty() {
        fields.error(fields.key_at("jobs"), "jobs", "jobs has no step");
    }
    for entry in siblings {
        let Some(inner) = section.inner(&entry.node, &entry.key) else {
            continue;
        };
        let at = format!("{pointer}/{}", pointer_part(&entry.key));
        let node = node(report, &entry.key, &inner, &at, around, siblings);
        section.show(&entry.key, scalar::json(&entry.node));
        inner.done(&[("jobs", "steps inside a step belong to its component")]);
        out.insert(entry.key.clone(), node);
    }
    fields.show("jobs", section.all_known());
    out.into()
}

/// One step in the words that the SDK sends.
fn node(
    report: &Report<'_>,
    name: &str,
    fields: &Fields<'_>,
    pointer: &str,
    around: &Around,
    siblings: &[Entry],
) -> Json {
    let kind = fields.choice("type", NODES).unwrap_or("command");
    let mut out = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("type".to_owned(), json!(kind)),
    ]);
    fields.has("name");
    fields.has("$schema");
    if !["command", "parallel", "sweep", "pipeline"].contains(&kind) {
        report.unsupported(format!("steps of type {kind}"));
    }
    for key in ["display_name", "description", "comment"] {
        if let Some(text) = fields.text(key) {
            out.insert(key.into(), text.text.into());
        }
    }
    for key in ["tags", "properties"] {
        if let Some(texts) = fields.texts(key) {
            out.insert(key.into(), texts.into());
        }
    }
    if !fields.absent("compute")
        && let Some(id) = compute(fields, &format!("{pointer}/computeId"), "step").id
    {
        out.insert("computeId".into(), id);
    }
    let inputs = inputs(fields, pointer);
    let outputs = outputs(fields);
    let key = if kind == "sweep" {
        "trial"
    } else {
        "component"
    };
    match fields.entry(key) {
        Some(entry) if entry.node.text().is_some() => {
            if kind == "parallel" {
                let none = Json::Null;
                let read = parallel::settings(fields, pointer, parallel::Of::Step, &none, &none);
                out.extend(read.step);
            }
            let at = match kind {
                "sweep" => format!("{pointer}/trial/componentId"),
                _ => format!("{pointer}/componentId"),
            };
            if let Some(text) = fields.words(key)
                && let Some(id) = refer(report, text, &fields.path_of(key), Kind::Component, &at)
            {
                match kind {
                    "sweep" => out.insert("trial".into(), json!({ "componentId": id })),
                    _ => out.insert("componentId".into(), id),
                };
            }
        }
        Some(entry) => {
            if let Some(inner) = fields.inner(&entry.node, key) {
                let read = spec(report, &inner, &format!("{pointer}/{key}"));
                inner.done(&[]);
                out.insert(key.into(), read.into());
            }
            if kind == "parallel" {
                let none = Json::Null;
                let read = parallel::settings(fields, pointer, parallel::Of::Step, &none, &none);
                out.extend(read.step);
            }
        }
        None if kind == "parallel" && !fields.absent("task") => {
            let mut read = Map::from_iter([("type".to_owned(), json!(kind))]);
            let (ins, outs) = (ins(&inputs, around, siblings), outs(&outputs, around));
            let at = format!("{pointer}/component");
            let said = parallel::settings(fields, &at, parallel::Of::Inline, &ins, &outs);
            read.insert("inputs".into(), ins);
            read.insert("outputs".into(), outs);
            read.extend(said.component);
            out.extend(said.step);
            if let Some(flag) = fields.switch("is_deterministic") {
                read.insert("is_deterministic".into(), flag.into());
            }
            out.insert("component".into(), read.into());
        }
        None if !fields.absent("command") && kind == "command" => {
            let mut read = Map::from_iter([("type".to_owned(), json!("command"))]);
            read.insert("inputs".into(), ins(&inputs, around, siblings));
            read.insert("outputs".into(), outs(&outputs, around));
            command(fields, &format!("{pointer}/component"), &mut read);
            // how many nodes and processes is the step's, said once
            for key in ["resources", "distribution"] {
                if let Some(said) = read.remove(key) {
                    out.insert(key.into(), said);
                }
            }
            if let Some(flag) = fields.switch("is_deterministic") {
                read.insert("is_deterministic".into(), flag.into());
            }
            out.insert("component".into(), read.into());
        }
        None => {
            let hint = match kind {
                "parallel" => "write component: ./FILE.yml, or task: {type: run_function, …}",
                _ => "write component: azureml:NAME:VERSION or component: ./FILE.yml",
            };
            fields.missing(
                if kind == "sweep" {
                    "trial"
                } else {
                    "component"
                },
                hint,
            );
        }
    }
    let keys: &[&str] = match kind {
        "parallel" => &["resources", "identity"],
        _ => BAGS,
    };
    for key in keys {
        if let Some(bag) = fields.bag(key) {
            out.insert((*key).into(), bag);
        }
    }
    if let Some(entry) = fields.entry("sampling_algorithm") {
        out.insert("sampling_algorithm".into(), scalar::json(&entry.node));
    }
    if let Some(variables) = fields.variables("environment_variables") {
        out.insert("environment_variables".into(), variables.into());
    }
    out.insert("inputs".into(), inputs.into());
    out.insert("outputs".into(), outputs.into());
    out.into()
}

fn is_expression(text: &str) -> bool {
    text.trim().starts_with("${{")
}

fn inputs(fields: &Fields<'_>, pointer: &str) -> Map<String, Json> {
    let mut out = Map::new();
    let Some(section) = fields.section("inputs") else {
        return out;
    };
    for entry in section.entries() {
        let at = format!("{pointer}/inputs/{}/uri", pointer_part(&entry.key));
        let value = match &entry.node.value {
            Value::Text { text, plain } => {
                let text = match text.as_str() {
                    "true" | "TRUE" if *plain => "True",
                    "false" | "FALSE" if *plain => "False",
                    other => other,
                };
                json!({ "value": text, "job_input_type": "literal" })
            }
            Value::Map(_) => match section.inner(&entry.node, &entry.key) {
                Some(inner) => input(&inner, &at),
                None => continue,
            },
            Value::Null | Value::List(_) => {
                section.wrong(&entry.node, &entry.key, "a value, an expression or a map");
                continue;
            }
        };
        out.insert(entry.key.clone(), value);
    }
    section.all_known();
    out
}

fn input(fields: &Fields<'_>, pointer: &str) -> Json {
    let kind = fields.choice("type", PORTS);
    let mode = fields.choice("mode", MODES);
    let mut out = Map::new();
    if let Some(mode) = mode {
        out.insert("mode".into(), mode.into());
    }
    let written = fields.entry("path").and_then(|e| e.node.text());
    if let Some(text) = fields.text("value") {
        out.insert("value".into(), text.text.into());
        out.insert("job_input_type".into(), "literal".into());
        return out.into();
    }
    if let Some(text) = written.filter(|t| is_expression(t)) {
        out.insert("value".into(), text.into());
        out.insert("job_input_type".into(), "literal".into());
        return out.into();
    }
    let kind = kind.unwrap_or("uri_folder");
    out.insert("job_input_type".into(), kind.into());
    match asset_path(fields, "path") {
        None if fields.absent("path") => fields.missing(
            "path",
            "write path: ./folder, azureml:NAME:VERSION, or an address",
        ),
        None => {}
        Some((AssetPath::Uri(uri), _)) => {
            out.insert("uri".into(), uri.into());
        }
        Some((AssetPath::Registered(_), text)) => {
            let want = if kind.ends_with("_model") {
                Kind::Model
            } else {
                Kind::Data
            };
            if let Some(id) = refer(fields.report, text, &fields.path_of("path"), want, pointer) {
                out.insert("uri".into(), id);
            }
        }
        Some((AssetPath::Upload(path), _)) => {
            let local = LocalAsset::new(pointer, AssetKind::Input, Some(path));
            inline_asset(fields.report, local);
        }
    }
    out.into()
}

fn outputs(fields: &Fields<'_>) -> Map<String, Json> {
    let mut out = Map::new();
    let Some(section) = fields.section("outputs") else {
        return out;
    };
    for entry in section.entries() {
        let value = match &entry.node.value {
            Value::Null => json!({}),
            Value::Text { text, .. } => json!({ "value": text, "type": "literal" }),
            Value::Map(_) => {
                let Some(inner) = section.inner(&entry.node, &entry.key) else {
                    continue;
                };
                let mut one = Map::new();
                if let Some(kind) = inner.choice("type", PORTS) {
                    one.insert("job_output_type".into(), kind.into());
                }
                if let Some(mode) = inner.choice("mode", MODES) {
                    one.insert("mode".into(), mode.into());
                }
                if let Some(text) = inner.words("path") {
                    let key = if is_expression(text.text) {
                        "value"
                    } else {
                        "uri"
                    };
                    one.insert(key.into(), text.text.into());
                }
                if let Some(name) = inner.name("name", |name| check_asset("asset", name)) {
                    one.insert("asset_name".into(), name.text.into());
                }
                if let Some(version) = inner.name("version", check_version) {
                    one.insert("asset_version".into(), version.text.into());
                    if inner.absent("name") {
                        inner.missing("name", "a version is given to a named asset");
                    }
                }
                inner.done(&[("uri", "did you mean path")]);
                one.into()
            }
            Value::List(_) => {
                section.wrong(&entry.node, &entry.key, "an expression or a map");
                continue;
            }
        };
        out.insert(entry.key.clone(), value);
    }
    section.all_known();
    out
}

/// The declarations of a step that has its command itself: what its values say.
fn ins(inputs: &Map<String, Json>, around: &Around, siblings: &[Entry]) -> Json {
    let kind = |input: &Json| -> Json {
        let value = input
            .get("value")
            .and_then(Json::as_str)
            .unwrap_or_default();
        let inner = value
            .trim()
            .strip_prefix("${{")
            .and_then(|t| t.strip_suffix("}}"));
        let parts: Vec<&str> = inner.unwrap_or_default().trim().split('.').collect();
        match parts[..] {
            ["parent", "inputs", name] => match around.inputs.get(name) {
                Some(kind) if kind != "literal" => kind.clone(),
                _ => json!("string"),
            },
            ["parent", "jobs", step, "outputs", output] => json!(of_step(siblings, step, output)),
            _ => match input.get("job_input_type").and_then(Json::as_str) {
                Some("literal") | None => json!("string"),
                Some(kind) => json!(kind),
            },
        }
    };
    let all = inputs.iter();
    all.map(|(name, input)| (name.clone(), json!({ "type": kind(input) })))
        .collect::<Map<_, _>>()
        .into()
}

/// The type of another step's output, as far as the file says it.
fn of_step(siblings: &[Entry], step: &str, output: &str) -> String {
    let step = siblings.iter().find(|e| e.key == step).map(|e| &e.node);
    let own = step.and_then(|s| s.get("outputs"));
    let component = step.and_then(|s| s.get("component").or_else(|| s.get("trial")));
    let theirs = component.and_then(|c| c.node.get("outputs"));
    let kind = |outputs: Option<&Entry>| {
        let one = outputs?.node.get(output)?;
        Some(one.node.get("type")?.node.text()?.to_owned())
    };
    kind(theirs)
        .or_else(|| kind(own))
        .unwrap_or_else(|| "uri_folder".to_owned())
}

fn outs(outputs: &Map<String, Json>, around: &Around) -> Json {
    let kind = |output: &Json| -> Json {
        if let Some(kind) = output.get("job_output_type") {
            return kind.clone();
        }
        let value = output
            .get("value")
            .and_then(Json::as_str)
            .unwrap_or_default();
        let inner = value
            .trim()
            .strip_prefix("${{")
            .and_then(|t| t.strip_suffix("}}"));
        let outer = inner.and_then(|t| t.trim().strip_prefix("parent.outputs."));
        let found = outer.and_then(|name| around.outputs.get(name));
        found.cloned().unwrap_or(json!("uri_folder"))
    };
    let all = outputs.iter();
    all.map(|(name, output)| (name.clone(), json!({ "type": kind(output) })))
        .collect::<Map<_, _>>()
        .into()
}
