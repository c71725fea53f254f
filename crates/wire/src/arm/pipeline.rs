//! Pipeline jobs: the `jobs` of a body → steps, each with the document and the run of the job that it becomes.
//!
//! Inside `jobs` the words are those of a YAML file (`job_input_type`, `evaluation_interval`), outside those of ARM (wire §6).
//!
//! P1 everything that a step names exists when the pipeline is submitted, or the submission is refused and names the step;
//! P2 a step becomes a job like any other: its document is one that a client could have sent, and is read by the same code;
//! P3 two steps have the same fingerprint only if everything that their result depends on is the same: command, code,
//!    environment, variables, the values and addresses of their inputs, and where an output must lie. An address stands for
//!    what lies there.

mod graph;
mod identity;
mod output;
mod step;

use graph::{From, Given, Node, in_step, nodes, order};
use identity::{fingerprint, own_identities};
use output::{outputs, pinned_once};
pub use step::arguments;
use step::{NodeType, compute, document, node_type};
pub(crate) use step::{algorithm, policy};

use super::{
    Invalid,
    asset::common,
    component::{self, Spec, Takes},
    field::Field,
    job::{self, Input, JobType, PortType},
    link::{Links, Look},
    parallel, resolve,
    scenario::{Use, suits},
    sweep,
};
use crate::{
    names::{check_job, nearest, shown},
    places::{Places, hex},
};
use model::{
    DocKey, Document, JobId, Part, PipelineSpec, RunSpec, StepSpec, TaskSpec, Work,
    engine::{EnvironmentSpec, InputSpec, Packages, Program},
    family::{Binding, OnFailure, Rerun, Source, Way},
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Steps of a pipeline, those of nested ones too. Azure allows 30,000; each is a document and a run here.
pub const MAX_STEPS: u32 = 1_000;
/// Pipelines inside pipelines: nobody reads deeper ones, and each level is a recursion.
const MAX_DEPTH: u32 = 8;
/// Characters of the part of a long step name that stays readable.
const NAME_KEPT: usize = 200;

/// The run of a job of any type that runs.
pub fn job_run(
    id: &JobId,
    body: &Value,
    look: Look<'_>,
    warnings: &mut Vec<String>,
) -> Result<RunSpec, Invalid> {
    check_job(id.name()).map_err(|e| Invalid::validation("/name", e.to_string()))?;
    let p = Field::root(body).get("properties");
    if p.get("jobType")
        .text()?
        .is_some_and(|t| t.eq_ignore_ascii_case("AutoML"))
    {
        suits(id.workspace(), look, &p.get("computeId"), Use::AutoMl)?; // before it is said to be not built
    }
    match job::job_type(body)? {
        JobType::Command => resolve::run_of(id, body, look, warnings),
        JobType::Sweep => sweep::sweep_run(id, body, look, warnings),
        JobType::Pipeline => {
            let builder = Builder {
                steps: Cell::new(0),
                made: RefCell::new(BTreeMap::new()),
                look,
            };
            let run = builder.pipeline(id, body, None, warnings)?.run;
            pinned_once(&run, &mut BTreeSet::new())?;
            Ok(run)
        }
    }
}

/// Checks what can be said of a job without looking at anything else.
pub fn check(name: &str, body: &Value, warnings: &mut Vec<String>) -> Result<(), Invalid> {
    match job::job_type(body)? {
        JobType::Command => job::command(name, body, warnings).map(|_| ()),
        JobType::Pipeline | JobType::Sweep => {
            check_job(name).map_err(|e| Invalid::validation("/name", e.to_string()))?;
            common(&Field::root(body).get("properties"), warnings)
        }
    }
}

/// The name of the job that a step becomes.
pub fn step_of(pipeline: &JobId, step: &str) -> JobId {
    let name = format!("{}_{step}", pipeline.name());
    if check_job(&name).is_ok() {
        return JobId::new(pipeline.workspace(), name.as_str());
    }
    let digest = hex(&Sha256::digest(name.as_bytes())[..8]);
    let kept: String = name.chars().take(NAME_KEPT).collect();
    JobId::new(pipeline.workspace(), format!("{kept}_{digest}").as_str())
}

/// What a nested pipeline is told by the one around it.
#[derive(Default)]
struct Outer {
    identities: BTreeMap<Box<str>, String>,
    fixed: BTreeSet<Box<str>>,
    depth: u32,
}

/// A pipeline that was read: its run, and what each of its outputs is, for fingerprints.
struct Made {
    run: RunSpec,
    outputs: BTreeMap<Box<str>, String>,
}

struct Builder<'a> {
    steps: Cell<u32>,
    /// The documents of steps that were made: later ones name their outputs.
    made: RefCell<BTreeMap<JobId, Document>>,
    look: Look<'a>,
}

/// What is known of a pipeline while its steps are made.
struct Parent<'a> {
    id: &'a JobId,
    p: Field<'a>,
    inputs: BTreeMap<Box<str>, Input>,
    /// Its outputs that lie where the user wants them.
    fixed: BTreeSet<Box<str>>,
    task: Arc<TaskSpec>,
    /// Of its inputs.
    identities: BTreeMap<Box<str>, String>,
    compute: Option<Value>,
    /// What it was made with.
    of: Use,
    depth: u32,
}

/// What is known of a step that was made.
struct Known {
    job: JobId,
    /// The word for what each output is.
    outputs: BTreeMap<Box<str>, String>,
    identities: BTreeMap<Box<str>, String>,
}

impl Builder<'_> {
    fn pipeline(
        &self,
        id: &JobId,
        body: &Value,
        outer: Option<Outer>,
        warnings: &mut Vec<String>,
    ) -> Result<Made, Invalid> {
        let p = Field::root(body).get("properties").need_object()?;
        common(&p, warnings)?;
        let depth = outer.as_ref().map_or(0, |o| o.depth);
        if depth > MAX_DEPTH {
            return Err(p.get("jobs").refuse(format!(
                "lies in more than {MAX_DEPTH} pipelines inside each other"
            )));
        }
        let places = Places::of(id.workspace());
        let look = |key: &DocKey| self.find(key);
        let links = Links {
            places: &places,
            look: &look,
        };
        let component = p.get("componentId");
        let by_component = match component.value() {
            Some(_) => Some(links.component(&component)?.0),
            None => None,
        };
        let jobs = match (&by_component, p.get("jobs").object()?) {
            (Some(spec), None) => Field::root(spec).get("jobs"),
            (Some(spec), Some(own)) if own.is_empty() => Field::root(spec).get("jobs"),
            _ => p.get("jobs"),
        };
        let inputs = job::inputs(&p.get("inputs"))?;
        let outputs = job::outputs(&p.get("outputs"))?;
        let task = Arc::new(TaskSpec {
            program: Program::Command {
                line: Box::default(),
            },
            environment: EnvironmentSpec {
                label: Box::default(),
                image: None,
                packages: Packages::None,
            },
            code: None,
            inputs: resolve::inputs(&links, &p.get("inputs"), &inputs)?,
            outputs: resolve::outputs(&links, &p.get("outputs"), &outputs, id)?,
            model: None,
            variables: BTreeMap::new(),
            limits: Default::default(),
            artifacts: resolve::run_path(id, places.artifacts_of(id.name()))?,
        });
        let settings = p.get("settings").maybe_object()?;
        let (on_failure, rerun) = self.settings(&settings, warnings)?;
        let outer = outer.unwrap_or_else(|| Outer {
            identities: own_identities(&task),
            fixed: outputs
                .iter()
                .filter(|(_, o)| o.uri.is_some())
                .map(|(name, _)| name.clone())
                .collect(),
            depth,
        });
        let parent = Parent {
            id,
            compute: compute(&p, &settings),
            of: maker(&settings)?,
            identities: outer.identities,
            fixed: outer.fixed,
            p: p.clone(),
            inputs,
            task,
            depth,
        };
        let nodes = order(nodes(&jobs)?)?;
        let mut known: BTreeMap<Box<str>, Known> = BTreeMap::new();
        let mut steps = BTreeMap::new();
        let mut exported = BTreeMap::new();
        for node in nodes {
            self.count(&node)?;
            let (step, made) = self
                .step(&parent, &node, &links, &known, warnings)
                .map_err(|e| in_step(e, node.key))?;
            for (inner, outer) in &step.exports {
                let identity = made.identities.get(inner).cloned().unwrap_or_default();
                exported.insert(outer.clone(), identity);
            }
            known.insert(node.key.into(), made);
            steps.insert(node.key.into(), step);
        }
        // Where the first step runs stands for where the pipeline does.
        let compute = steps
            .values()
            .map(|s: &StepSpec| s.run.compute.clone())
            .next();
        let compute = compute.ok_or_else(|| jobs.refuse("has no step"))?;
        Ok(Made {
            run: RunSpec {
                compute,
                instances: 1,
                task: parent.task,
                work: Work::Pipeline(Box::new(PipelineSpec {
                    steps,
                    on_failure,
                    rerun,
                })),
                timeout: job::timeout(&p.get("limits").maybe_object()?.get("timeout"))?,
                instance_type: None,
                part: None,
            },
            outputs: exported,
        })
    }

    fn find(&self, key: &DocKey) -> Option<Document> {
        if key.kind == model::Kind::Job {
            let id = JobId::new(&key.workspace, key.path.clone());
            if let Some(made) = self.made.borrow().get(&id) {
                return Some(made.clone());
            }
        }
        (self.look)(key)
    }

    fn count(&self, node: &Node<'_>) -> Result<(), Invalid> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > MAX_STEPS {
            return Err(node
                .place
                .refuse(format!("is one step too many: allowed are {MAX_STEPS}")));
        }
        Ok(())
    }

    fn settings(
        &self,
        settings: &Field<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(OnFailure, Rerun), Invalid> {
        let flag = |snake: &str, camel: &str| {
            let place = settings.get(snake);
            let place = if place.value().is_some() {
                place
            } else {
                settings.get(camel)
            };
            place.flag()
        };
        for key in ["default_datastore", "defaultDatastore"] {
            let named = settings.get(key).text()?.unwrap_or_default();
            if !named.is_empty()
                && !named
                    .trim_end_matches('/')
                    .ends_with(crate::places::BLOBSTORE)
            {
                warnings.push(format!(
                    "settings.default_datastore has no effect here: outputs go to {}",
                    crate::places::BLOBSTORE
                ));
            }
        }
        let goes_on = flag("continue_on_step_failure", "continueOnStepFailure")?;
        Ok((
            if goes_on.unwrap_or(true) {
                OnFailure::Continue
            } else {
                OnFailure::Stop
            },
            if flag("force_rerun", "forceRerun")?.unwrap_or(false) {
                Rerun::Always
            } else {
                Rerun::WhenNew
            },
        ))
    }

    /// One step: the document of the job that it becomes, and the run.
    fn step(
        &self,
        parent: &Parent<'_>,
        node: &Node<'_>,
        links: &Links<'_>,
        known: &BTreeMap<Box<str>, Known>,
        warnings: &mut Vec<String>,
    ) -> Result<(StepSpec, Known), Invalid> {
        let kind = node_type(&node.place)?;
        let named = match kind {
            NodeType::Sweep => node.place.get("trial").need_object()?.get("componentId"),
            NodeType::Command | NodeType::Parallel | NodeType::Pipeline => {
                node.place.get("componentId")
            }
        };
        let (spec, _) = links.component(&named)?;
        let root = Field::root(&spec);
        let decl = component::read(&root)?;
        let wanted = match kind {
            NodeType::Command | NodeType::Sweep => component::Type::Command,
            NodeType::Parallel => component::Type::Parallel,
            NodeType::Pipeline => component::Type::Pipeline,
        };
        if decl.kind != wanted {
            return Err(
                named.refuse(format!("names a component that is no {wanted:?}").to_lowercase())
            );
        }
        let job = step_of(parent.id, node.key);
        let inputs = self.inputs(parent, node, &decl, known, links)?;
        let (outputs, exports) = outputs(parent, node, &decl, links)?;
        let varied = node.place.get("search_space").entries()?;
        let varied = varied.into_iter().map(|(name, _)| name);
        let there = inputs.document.keys().map(String::as_str).chain(varied);
        let there: BTreeSet<&str> = there.collect();
        let body = document(
            parent,
            node,
            kind,
            &root,
            &inputs.document,
            &outputs,
            &there,
        )?;
        // Where the user wants an output, directly or as an output of the pipeline.
        let fixed: BTreeSet<Box<str>> = outputs
            .iter()
            .filter(|(name, entry)| match exports.get(name.as_str()) {
                Some(outer) => parent.fixed.contains(outer),
                None => entry.get("uri").is_some(),
            })
            .map(|(name, _)| name.as_str().into())
            .collect();
        let look = |key: &DocKey| self.find(key);
        if kind != NodeType::Pipeline {
            let named = Field::root(&body).get("properties").get("computeId");
            suits(job.workspace(), &look, &named, parent.of)?;
        }
        let (mut run, identities) = match kind {
            NodeType::Command => (
                resolve::run_of(&job, &body, &look, warnings)?,
                BTreeMap::new(),
            ),
            NodeType::Parallel => (
                parallel::step_run(&job, &body, &look, warnings)?,
                BTreeMap::new(),
            ),
            NodeType::Sweep => (
                sweep::sweep_run(&job, &body, &look, warnings)?,
                BTreeMap::new(),
            ),
            NodeType::Pipeline => {
                let outer = Outer {
                    identities: inputs.identities.clone(),
                    fixed: fixed.clone(),
                    depth: parent.depth + 1,
                };
                let made = self.pipeline(&job, &body, Some(outer), warnings)?;
                (made.run, made.outputs)
            }
        };
        let alone = matches!(kind, NodeType::Command | NodeType::Parallel);
        let fingerprint =
            (alone && decl.deterministic).then(|| fingerprint(&run, &inputs.identities, &fixed));
        let known = Known {
            job: job.clone(),
            identities: decl
                .outputs
                .keys()
                .map(|name| {
                    let lies = run.task.outputs.get(name);
                    let place = lies.map_or(String::new(), |o| format!("at {}", o.target));
                    let identity = match (&fingerprint, identities.get(name)) {
                        (Some(print), _) => format!("{print}#{name}"),
                        (None, Some(identity)) => identity.clone(),
                        (None, None) => place,
                    };
                    (name.clone(), identity)
                })
                .collect(),
            outputs: decl.outputs.clone(),
        };
        run.part = Some(Box::new(Part {
            parent: parent.id.clone(),
            key: node.key.into(),
            fingerprint: fingerprint.map(Into::into),
            reused_from: None,
            metric: None,
            parameters: BTreeMap::new(),
        }));
        let json: Arc<str> = body.to_string().into();
        let document = Document {
            key: DocKey::job(&job),
            generation: 1,
            json: json.clone(),
            created: Default::default(),
            modified: Default::default(),
            by: Default::default(),
        };
        self.made.borrow_mut().insert(job.clone(), document);
        let step = StepSpec {
            job,
            run: Arc::new(run),
            document: json,
            inputs: inputs.bindings,
            exports,
        };
        Ok((step, known))
    }

    /// What goes into a step: the entries of its document, the bindings, and what each stands for.
    fn inputs(
        &self,
        parent: &Parent<'_>,
        node: &Node<'_>,
        decl: &Spec,
        known: &BTreeMap<Box<str>, Known>,
        links: &Links<'_>,
    ) -> Result<Inputs, Invalid> {
        // What a sweep varies comes from its search space.
        let varied = node.place.get("search_space").entries()?;
        let varied: BTreeSet<&str> = varied.into_iter().map(|(name, _)| name).collect();
        for (name, given) in &node.inputs {
            if !decl.inputs.contains_key(name) {
                let names: Vec<&str> = decl.inputs.keys().map(AsRef::as_ref).collect();
                let refusal = given.place.refuse(format!(
                    "is no input of the component, it has {}",
                    names.join(", ")
                ));
                return Err(match nearest(name, names) {
                    Some(near) => refusal.hint(format!("did you mean {near}")),
                    None => refusal,
                });
            }
        }
        let mut out = Inputs::default();
        for (name, wants) in &decl.inputs {
            let Some(given) = node.inputs.get(name) else {
                if varied.contains(&**name) {
                    continue;
                }
                match &wants.default {
                    Some(default) => out.literal(name, default),
                    None if wants.optional => {}
                    None => {
                        return Err(node.place.get("inputs").get(name).missing());
                    }
                }
                continue;
            };
            let mode = mode(given, wants)?;
            match &given.from {
                From::Value => {
                    let entry = value(given, wants, mode)?;
                    out.identities.insert(name.clone(), entry.to_string());
                    out.document.insert(name.to_string(), entry);
                }
                From::Parent(outer) => {
                    let Some(declared) = parent.inputs.get(outer) else {
                        // An optional input of a nested pipeline that nobody gave.
                        if wants.optional && parent.depth > 0 {
                            continue;
                        }
                        let names: Vec<&str> = parent.inputs.keys().map(AsRef::as_ref).collect();
                        return Err(given.place.refuse(format!(
                            "names input {} of the pipeline, which has {}",
                            shown(outer),
                            names.join(", ")
                        )));
                    };
                    match (declared, wants.takes) {
                        (Input::Literal(text), Takes::Files(_)) => {
                            return Err(given.place.refuse(format!(
                                "is the text `{}`, the input is {}",
                                shown(text),
                                wants.word
                            )));
                        }
                        (Input::At { .. }, Takes::Files(_)) => {}
                        (Input::Literal(text), _) => component::fits(&given.place, wants, text)?,
                        (Input::At { .. }, _) => {
                            return Err(given.place.refuse(format!(
                                "is a file or a folder, the input is {}",
                                wants.word
                            )));
                        }
                    }
                    let sent = parent.p.get("inputs").get(outer);
                    let mut entry = sent.value().cloned().unwrap_or_default();
                    if let (Some(mode), Some(map)) = (mode, entry.as_object_mut()) {
                        map.insert("mode".into(), json!(mode));
                    }
                    out.document.insert(name.to_string(), entry);
                    let source = match (declared, mode) {
                        // where it lies is known now
                        (Input::At { uri, kind, .. }, Some("Direct")) => {
                            let asset = resolve::asset_of(*kind);
                            let found = links.source(&sent.get("uri"), uri, asset)?;
                            let address = found.address(links.places, resolve::end(*kind));
                            Source::Value(InputSpec::Literal(address.into()))
                        }
                        _ => Source::Parent(outer.clone()),
                    };
                    out.bind(name, source, mode, &given.place)?;
                    let identity = parent.identities.get(outer).cloned().unwrap_or_default();
                    out.identities.insert(name.clone(), identity);
                }
                From::Step(step, output) => {
                    let made = known
                        .get(step)
                        .expect("steps are made in the order of their needs");
                    let Some(kind) = made.outputs.get(output) else {
                        let names: Vec<&str> = made.outputs.keys().map(AsRef::as_ref).collect();
                        return Err(given.place.refuse(format!(
                            "names output {} of step {step}, which has {}",
                            shown(output),
                            names.join(", ")
                        )));
                    };
                    if !matches!(wants.takes, Takes::Files(_)) {
                        return Err(given.place.refuse(format!(
                            "is an output of step {step}, the input is {}",
                            wants.word
                        )));
                    }
                    let uri = format!("azureml://jobs/{}/outputs/{output}", made.job.name());
                    let mut entry = json!({"jobInputType": kind, "uri": uri});
                    if let Some(mode) = mode {
                        entry["mode"] = json!(mode);
                    }
                    out.document.insert(name.to_string(), entry);
                    let source = Source::Step {
                        step: step.clone(),
                        output: output.clone(),
                    };
                    out.bind(name, source, mode, &given.place)?;
                    let identity = made.identities.get(output).cloned().unwrap_or_default();
                    out.identities.insert(name.clone(), identity);
                }
            }
        }
        Ok(out)
    }
}

#[derive(Default)]
struct Inputs {
    document: Map<String, Value>,
    bindings: BTreeMap<Box<str>, Binding>,
    identities: BTreeMap<Box<str>, String>,
}

impl Inputs {
    fn literal(&mut self, name: &str, text: &str) {
        let entry = json!({"jobInputType": "literal", "value": text});
        self.identities.insert(name.into(), entry.to_string());
        self.document.insert(name.to_owned(), entry);
    }
    fn bind(
        &mut self,
        name: &str,
        source: Source,
        mode: Option<&str>,
        place: &Field<'_>,
    ) -> Result<(), Invalid> {
        let way = match mode {
            Some("Download") => Way::Copy,
            Some("Direct") if matches!(source, Source::Step { .. }) => {
                return Err(place.unsupported(
                    "is the output of a step, bound with mode Direct, which is not built yet; ReadOnlyMount and Download are",
                ));
            }
            _ => Way::Mount,
        };
        self.bindings.insert(name.into(), Binding { source, way });
        Ok(())
    }
}

/// The REST word of a mode, whatever the client wrote.
fn rest_mode(field: &Field<'_>) -> Result<Option<&'static str>, Invalid> {
    field.choice(&[
        ("ro_mount", "ReadOnlyMount"),
        ("ReadOnlyMount", "ReadOnlyMount"),
        ("rw_mount", "ReadWriteMount"),
        ("ReadWriteMount", "ReadWriteMount"),
        ("mount", "ReadWriteMount"),
        ("download", "Download"),
        ("upload", "Upload"),
        ("direct", "Direct"),
        ("eval_mount", "EvalMount"),
        ("EvalMount", "EvalMount"),
        ("eval_download", "EvalDownload"),
        ("EvalDownload", "EvalDownload"),
    ])
}

/// How an input of files comes: as the step says, else as the component does.
fn mode(given: &Given<'_>, wants: &component::InputDecl) -> Result<Option<&'static str>, Invalid> {
    if !matches!(wants.takes, Takes::Files(_)) {
        return Ok(None);
    }
    if let Some(mode) = rest_mode(&given.place.get("mode"))? {
        return Ok(Some(mode));
    }
    let Some(own) = &wants.mode else {
        return Ok(None);
    };
    let own = json!({ "mode": own });
    rest_mode(&Field::root(&own).get("mode"))
}

/// The entry of an input that is given itself.
fn value(
    given: &Given<'_>,
    wants: &component::InputDecl,
    mode: Option<&str>,
) -> Result<Value, Invalid> {
    let place = &given.place;
    let inner = if place.value().is_some_and(Value::is_object) {
        let keys = ["value", "uri", "path"].map(|key| place.get(key));
        keys.into_iter().find(|f| f.value().is_some())
    } else {
        Some(place.clone())
    };
    let Some(inner) = inner else {
        return Err(place.refuse("has neither value nor uri"));
    };
    let text = component::scalar(&inner)?.unwrap_or_default();
    let Takes::Files(port) = wants.takes else {
        component::fits(&inner, wants, &text)?;
        return Ok(json!({"jobInputType": "literal", "value": text}));
    };
    let said = ["job_input_type", "jobInputType", "type"].map(|key| place.get(key));
    let said = said.iter().find_map(|f| f.text().ok().flatten());
    let word = said.filter(|w| *w != "literal").unwrap_or(match port {
        PortType::File => "uri_file",
        PortType::Table => "mltable",
        PortType::Model => "custom_model",
        PortType::Folder | PortType::Literal => "uri_folder",
    });
    let mut entry = json!({"jobInputType": word, "uri": text});
    if let Some(mode) = mode {
        entry["mode"] = json!(mode);
    }
    Ok(entry)
}

/// A pipeline of the designer says so in its settings.
fn maker(settings: &Field<'_>) -> Result<Use, Invalid> {
    let source = settings.get("_source").text()?.unwrap_or_default();
    let designer = source.to_ascii_lowercase().contains("designer");
    Ok(if designer {
        Use::Designer
    } else {
        Use::Pipeline
    })
}
