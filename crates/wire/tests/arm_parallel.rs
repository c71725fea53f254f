//! Parallel components and steps: from what the SDK sends to the batch run that a step becomes.

use model::{
    BatchSpec, BlobPath, DocKey, Document, JobId, Kind, Millis, RunSpec, StepSpec, Time, Work,
    Workspace,
    batch::{BatchOutput, OnCapacityLoss},
    engine::{InputSpec, Packages, PoolSpec, Program, RowFormat},
    family::{Source, Way},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use wire::arm::{self, Invalid};

fn workspace() -> Arc<Workspace> {
    Workspace::new("s", "g", "w")
}

struct Shelf(BTreeMap<DocKey, Document>);

impl Shelf {
    fn put(&mut self, kind: Kind, path: &str, body: &Value) {
        let key = DocKey::new(&workspace(), kind, path);
        let document = Document {
            key: key.clone(),
            generation: 1,
            json: body.to_string().into(),
            created: Time(0),
            modified: Time(0),
            by: "me".into(),
        };
        self.0.insert(key, document);
    }
    fn component(&mut self, name: &str, spec: &Value) {
        let body = json!({"properties": {"componentSpec": spec}});
        self.put(Kind::Component, &format!("{name}/1"), &body);
    }
    fn new() -> Shelf {
        let mut shelf = Shelf(BTreeMap::new());
        let cluster = json!({"properties": {"computeType": "AmlCompute", "properties": {
            "vmSize": "STANDARD_DS3_v2", "scaleSettings": {"maxNodeCount": 2}}}});
        shelf.put(Kind::Compute, "cpu", &cluster);
        let kubernetes =
            json!({"properties": {"computeType": "Kubernetes", "properties": {"namespace": "n"}}});
        shelf.put(Kind::Compute, "k8s", &kubernetes);
        shelf.put(
            Kind::Environment,
            "env/1",
            &json!({"properties": {"image": "python:3.12"}}),
        );
        let at = |what: &str| format!("azureml://datastores/workspaceblobstore/paths/{what}");
        shelf.put(
            Kind::Code,
            "code/1",
            &json!({"properties": {"codeUri": at("c")}}),
        );
        for (name, kind) in [("heart", "mlflow_model"), ("plain", "custom_model")] {
            let body = json!({"properties": {"modelUri": at(name), "modelType": kind}});
            shelf.put(Kind::Model, &format!("{name}/1"), &body);
        }
        let away = json!({"properties": {"datastoreType": "AzureBlob", "accountName": "acc", "containerName": "box",
            "credentials": {"credentialsType": "None"}}});
        shelf.put(Kind::Datastore, "away", &away);
        shelf.component("score", &component(json!({})));
        shelf.component("split", &json!({"type": "command", "command": "split ${{outputs.d}}", "environment": "azureml:env:1",
            "outputs": {"d": {"type": "uri_folder"}, "f": {"type": "uri_file"}, "t": {"type": "mltable"}}}));
        shelf
    }
    fn run(&self, name: &str, body: &Value) -> Result<RunSpec, Invalid> {
        let id = JobId::new(&workspace(), name);
        let look = |key: &DocKey| self.0.get(key).cloned();
        arm::job_run(&id, body, &look, &mut Vec::new())
    }
    fn step(&self, name: &str, body: &Value) -> StepSpec {
        let run = self.run(name, body).unwrap_or_else(|e| panic!("{e}"));
        let Work::Pipeline(pipeline) = run.work else {
            panic!("a pipeline");
        };
        pipeline.steps["score"].clone()
    }
}

fn with(mut of: Value, change: &Value) -> Value {
    for (key, value) in change.as_object().unwrap() {
        match of.pointer_mut(key) {
            Some(there) => *there = value.clone(),
            None => {
                let (outer, inner) = key.rsplit_once('/').unwrap();
                of.pointer_mut(outer).unwrap()[inner] = value.clone();
            }
        }
    }
    of
}

/// The spec of a component as azure-ai-ml 1.35.2 writes it.
fn component(change: Value) -> Value {
    let spec = json!({
        "name": "score", "version": "1", "display_name": "Score", "is_deterministic": true,
        "$schema": "https://azuremlschemas.azureedge.net/latest/parallelComponent.schema.json",
        "inputs": {"rows": {"type": "uri_folder"}, "model": {"type": "uri_folder", "optional": true},
            "label": {"type": "string", "default": "a b"}},
        "outputs": {"scores": {"type": "uri_file"}, "files": {"type": "uri_folder"}},
        "type": "parallel", "resources": {"instance_count": 2}, "logging_level": "DEBUG",
        "task": {"type": "run_function", "code": "azureml:code:1", "entry_script": "./score.py",
            "program_arguments": "--label ${{inputs.label}} $[[--model ${{inputs.model}}]] --to '${{outputs.files}}'",
            "append_row_to": "${{outputs.scores}}", "environment": "azureml:env:1"},
        "mini_batch_size": "0", "input_data": "${{inputs.rows}}",
        "retry_settings": {"timeout": 60, "max_retries": 2},
        "max_concurrency_per_instance": 2, "error_threshold": 5, "mini_batch_error_threshold": 3,
        "_source": "YAML.COMPONENT",
    });
    with(spec, &change)
}

/// A pipeline with a step of it, as the SDK sends one: what the component says comes again, and code and environment too.
fn pipeline(change: Value) -> Value {
    let body = json!({"properties": {
        "jobType": "Pipeline", "displayName": "p", "tags": {}, "properties": {},
        "inputs": {"in": {"uri": "azureml://datastores/workspaceblobstore/paths/in/", "jobInputType": "uri_folder"},
            "size": {"value": "7", "jobInputType": "literal"}},
        "outputs": {"o": {"jobOutputType": "uri_file"}},
        "settings": {"default_compute": "cpu", "_source": "DSL"},
        "jobs": {"score": {
            "type": "parallel", "name": "score", "componentId": "azureml:score:1", "_source": "YAML.COMPONENT",
            "resources": {"instance_count": 2}, "mini_batch_error_threshold": 3, "max_concurrency_per_instance": 2,
            "task": {"type": "run_function", "code": "/elsewhere", "entry_script": "./score.py", "environment": "/elsewhere",
                "program_arguments": "--label ${{inputs.label}} $[[--model ${{inputs.model}}]] --to '${{outputs.files}}'",
                "append_row_to": "${{outputs.scores}}"},
            "input_data": "${{inputs.rows}}",
            "inputs": {"rows": {"value": "${{parent.inputs.in}}", "job_input_type": "literal"}},
            "outputs": {"scores": {"value": "${{parent.outputs.o}}", "type": "literal"}},
            "retry_settings": {"timeout": 60, "max_retries": 7}, "mini_batch_size": 0,
        }},
    }});
    with(body, &change)
}

fn parts(run: &RunSpec) -> (&BatchSpec, &PoolSpec) {
    match (&run.work, &run.task.program) {
        (Work::Batch(batch), Program::Pool(pool)) => (batch, pool),
        other => panic!("{other:?}"),
    }
}

fn path(text: &str) -> BlobPath {
    BlobPath::new(text).unwrap()
}

#[test]
fn a_step_becomes_a_batch_run_over_the_input_that_it_names() {
    let step = Shelf::new().step("p", &pipeline(json!({})));
    let run = &step.run;
    let (batch, pool) = parts(run);
    assert_eq!(step.job.name(), "p_score");
    assert_eq!((run.compute.name(), run.instances), ("cpu", 2));
    assert_eq!(step.inputs["rows"].source, Source::Parent("in".into()));

    let lies = path("w/azureml-blobstore/in");
    let same_end = |p: &BlobPath| p.as_str().ends_with("/in");
    assert!(same_end(&batch.input), "{} is no {lies}", batch.input);
    assert_eq!(
        (batch.input_is_folder, batch.input_from.as_deref()),
        (true, Some("rows"))
    );
    assert_eq!(pool.root, batch.input);
    assert_eq!(
        (batch.mini_batch_size, pool.group),
        (10, 10),
        "0 is nothing said"
    );
    assert_eq!((batch.workers_per_node, pool.workers), (2, 2));
    assert_eq!(
        (batch.max_retries, batch.timeout),
        (7, Millis::secs(60)),
        "the step's own"
    );
    assert_eq!(
        (batch.error_threshold, batch.mini_batch_error_threshold),
        (5, 3)
    );
    assert_eq!(batch.on_capacity_loss, OnCapacityLoss::Wait);

    assert_eq!(pool.script.as_deref(), Some("score.py"));
    let arguments: Vec<&str> = pool.arguments.iter().map(AsRef::as_ref).collect();
    assert_eq!(
        arguments,
        ["--label", "${{inputs.label}}", "--to", "${{outputs.files}}"]
    );
    assert_eq!(run.task.inputs["label"], InputSpec::Literal("a b".into()));
    assert!(pool.shutdown && pool.collect && pool.format == RowFormat::Csv);
    assert_eq!(&*pool.logging_level, "debug");
    assert!(
        run.task.code.as_ref().unwrap().as_str().ends_with("/c"),
        "the component's"
    );
    assert_eq!(&*run.task.environment.label, "env:1");

    let target = &run.task.outputs["scores"].target;
    let (folder, file) = target.as_str().rsplit_once('/').unwrap();
    assert_eq!(batch.output_folder, path(folder));
    assert_eq!(batch.output, BatchOutput::AppendRow { file: file.into() });
    assert!(
        run.task.artifacts.as_str().contains("p_score"),
        "{}",
        run.task.artifacts
    );
    let document: Value = serde_json::from_str(&step.document).unwrap();
    assert_eq!(
        document["properties"]["parallel"]["retry_settings"]["max_retries"],
        7
    );
    assert_eq!(document["properties"]["jobType"], "Parallel");
}

#[test]
fn outputs_inputs_and_settings_come_in_every_form() {
    let shelf = Shelf::new();
    let of = |change: Value| shelf.step("p", &pipeline(change));
    let score = |key: &str| format!("/properties/jobs/score/{key}");

    // all rows into a folder, or nowhere
    let step = of(json!({score("task/append_row_to"): "${{outputs.files}}"}));
    let file = BatchOutput::AppendRow {
        file: "parallel_run_step.txt".into(),
    };
    assert_eq!(parts(&step.run).0.output, file);
    assert_eq!(
        parts(&step.run).0.output_folder,
        step.run.task.outputs["files"].target
    );

    // a setting that is an input of the pipeline, numbers as texts, another way to bring files
    let step = of(json!({
        score("mini_batch_size"): "${{parent.inputs.size}}", score("error_threshold"): "2",
        score("retry_settings"): {"timeout": "PT5S"}, score("resources"): {"instance_count": "3"},
        score("inputs/rows"): {"value": "${{parent.inputs.in}}", "mode": "download"},
        score("environment_variables"): {"A": "b"},
        score("properties"): {"zaffre.append_row_format": "azure"},
    }));
    let (batch, pool) = parts(&step.run);
    assert_eq!((batch.mini_batch_size, batch.error_threshold), (7, 2));
    assert_eq!((batch.timeout, batch.max_retries), (Millis::secs(5), 2));
    assert_eq!(
        (step.run.instances, step.inputs["rows"].way),
        (3, Way::Copy)
    );
    let no_copy = |input: &InputSpec| matches!(input, InputSpec::Path { copy: false, .. });
    assert!(
        no_copy(&step.run.task.inputs["rows"]),
        "what is listed is what is read"
    );
    assert_eq!(
        (pool.format, &*step.run.task.variables["A"]),
        (RowFormat::Azure, "b")
    );

    // a step waits for nodes, unless it says otherwise
    let step = of(json!({score("properties"): {"zaffre.on_capacity_loss": "cancel"}}));
    assert_eq!(parts(&step.run).0.on_capacity_loss, OnCapacityLoss::Cancel);

    // one file is listed in its folder
    let body = pipeline(json!({
        "/properties/jobs/split": {"type": "command", "componentId": "azureml:split:1"},
        score("inputs/rows"): {"value": "${{parent.jobs.split.outputs.f}}"},
    }));
    let step = shelf.step("p", &body);
    let (batch, pool) = parts(&step.run);
    assert!(!batch.input_is_folder);
    assert_eq!(batch.input, pool.root.join(batch.input.base()).unwrap());
    let from = Source::Step {
        step: "split".into(),
        output: "f".into(),
    };
    assert_eq!(step.inputs["rows"].source, from);
}

#[test]
fn a_model_without_a_script_is_scored_as_a_deployment_scores_it() {
    let mut shelf = Shelf::new();
    let task = |model: &str| json!({"type": "model", "model": model, "environment": "azureml:env:1", "append_row_to": "${{outputs.scores}}"});
    shelf.component(
        "score",
        &component(json!({"/task": task("azureml:heart:1")})),
    );
    let body = pipeline(json!({"/properties/jobs/score/task": null}));
    let step = shelf.step("p", &body);
    let model = step.run.task.model.as_ref().unwrap();
    assert!(model.mlflow && model.source.as_str().ends_with("/heart"));
    assert_eq!(step.run.task.environment.packages, Packages::OfModel);
    assert_eq!(parts(&step.run).1.script, None);
    shelf.component(
        "score",
        &component(json!({"/task": task("azureml:plain:1")})),
    );
    let said = shelf.run("p", &body).unwrap_err().to_string();
    assert!(
        said.contains("only an mlflow_model is scored without a script"),
        "{said}"
    );
}

#[test]
fn what_decides_the_result_decides_the_fingerprint() {
    let shelf = Shelf::new();
    let print = |name: &str, change: Value| {
        let step = shelf.step(name, &pipeline(change));
        step.run.part.as_ref().unwrap().fingerprint.clone().unwrap()
    };
    let same = print("p", json!({}));
    assert_eq!(same, print("q", json!({})), "the name is no part of it");
    let score = |key: &str| format!("/properties/jobs/score/{key}");
    for change in [
        json!({score("mini_batch_size"): 3}),
        json!({score("task/program_arguments"): "--other"}),
        json!({score("task/entry_script"): "other.py"}),
        json!({score("task/append_row_to"): "${{outputs.files}}"}),
        json!({score("error_threshold"): 1}),
        json!({score("inputs/label"): "other"}),
        json!({score("environment_variables"): {"A": "b"}}),
    ] {
        assert_ne!(same, print("p", change.clone()), "{change}");
    }
    let more = json!({score("max_concurrency_per_instance"): 9});
    assert_eq!(
        same,
        print("p", more),
        "how much is done at once is no part of it"
    );
}

#[test]
fn what_is_wrong_in_a_parallel_component_is_refused_when_it_is_written() {
    let key = DocKey::new(&workspace(), Kind::Component, "score/1");
    let said = |change: Value| {
        let body = json!({"properties": {"componentSpec": component(change)}});
        arm::parse(&key, &body, None)
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    said(json!({})).unwrap();
    said(json!({"/task/type": "function", "/partition_keys": [], "/logging_level": "warning"}))
        .unwrap();
    for (change, wants) in [
        (json!({"/task": null}), "task is required"),
        (json!({"/task/type": null}), "type is required"),
        (json!({"/task/type": "script"}), "known are run_function"),
        (
            json!({"/task/environment": null}),
            "environment is required",
        ),
        (
            json!({"/task/entry_script": null}),
            "entry_script is required",
        ),
        (
            json!({"/task/entry_script": "/a.py"}),
            "is not a path inside the code folder",
        ),
        (
            json!({"/task/model": "azureml:heart:1"}),
            "a task of type run_function has no model",
        ),
        (
            json!({"/task/type": "model"}),
            "a task of type model has no script",
        ),
        (
            json!({"/task/type": "model", "/task/entry_script": null, "/task/model": "${{inputs.model}}"}),
            "an input as the model is not built yet",
        ),
        (
            json!({"/task/program_arguments": "--x ${{inputs.labels}}"}),
            "has no input `labels`",
        ),
        (
            json!({"/task/program_arguments": "--x 'y"}),
            "has a ' that is not closed",
        ),
        (
            json!({"/task/append_row_to": "scores"}),
            "expected ${{outputs.NAME}}",
        ),
        (
            json!({"/task/append_row_to": "${{outputs.score}}"}),
            "names output score, and there is files, scores",
        ),
        (json!({"/input_data": null}), "input_data is required"),
        (
            json!({"/input_data": "${{inputs.row}}"}),
            "names input row, and there is label, model, rows",
        ),
        (
            json!({"/input_data": "${{inputs.label}}"}),
            "which is no uri_folder and no uri_file",
        ),
        (
            json!({"/inputs/rows/type": "mltable"}),
            "rows of a table are not built yet",
        ),
        (
            json!({"/mini_batch_size": "10kb"}),
            "an amount of tabular data, which is not built yet",
        ),
        (
            json!({"/mini_batch_size": "-1"}),
            "expected a whole number from 0",
        ),
        (
            json!({"/partition_keys": "[\"a\"]"}),
            "partitions of a table are not built yet",
        ),
        (json!({"/error_threshold": -2}), "error_threshold"),
        (
            json!({"/mini_batch_error_threshold": "few"}),
            "expected a whole number from -1",
        ),
        (
            json!({"/max_concurrency_per_instance": 0}),
            "max_concurrency_per_instance",
        ),
        (
            json!({"/retry_settings/timeout": 0}),
            "no call of run() ends in no time",
        ),
        (
            json!({"/retry_settings/timeout": 300_000}),
            "at most 259200 s are allowed",
        ),
        (json!({"/retry_settings/max_retries": -1}), "max_retries"),
        (json!({"/logging_level": "loud"}), "logging_level"),
    ] {
        let refusal = said(change.clone()).expect_err(&change.to_string());
        assert!(
            refusal.contains(wants),
            "{change}: {refusal}\nwants {wants}"
        );
    }
}

#[test]
fn what_is_wrong_in_a_parallel_step_is_refused_with_its_name() {
    let shelf = Shelf::new();
    let score = |key: &str| format!("/properties/jobs/score/{key}");
    for (change, wants) in [
        (
            json!({score("computeId"): "azureml:k8s"}),
            "parallel steps on one are not built yet",
        ),
        (
            json!({score("componentId"): "azureml:split:1"}),
            "names a component that is no parallel",
        ),
        (
            json!({score("mini_batch_size"): "${{parent.inputs.none}}"}),
            "is input none of the pipeline",
        ),
        (
            json!({score("mini_batch_size"): "${{parent.inputs.in}}"}),
            "which is a file or a folder",
        ),
        (json!({score("inputs"): {}}), "rows is required"),
        (
            json!({score("inputs/rows"): {"value": "${{parent.inputs.in}}", "mode": "direct"}}),
            "irect",
        ),
        (
            json!({"/properties/outputs/o/uri": "azureml://datastores/away/paths/rows.txt"}),
            "is in datastore away, and outputs of parallel steps in attached datastores are not built yet",
        ),
        (
            json!({score("resources"): {"instance_count": 2, "instance_type": "big"}}),
            "instance type big is not defined",
        ),
        (
            json!({score("properties"): {"zaffre.nothing": "1"}}),
            "zaffre.nothing",
        ),
        (
            json!({"/properties/jobs/split": {"type": "command", "componentId": "azureml:split:1"},
                score("inputs/rows"): {"value": "${{parent.jobs.split.outputs.t}}"}}),
            "rows of a table are not built yet",
        ),
    ] {
        let refusal = shelf
            .run("p", &pipeline(change.clone()))
            .expect_err(&change.to_string());
        let said = refusal.to_string();
        assert!(
            said.contains("step score: ") && said.contains(wants),
            "{said}\nwants {wants}"
        );
    }
}

#[test]
fn a_parallel_job_is_none_by_itself() {
    let shelf = Shelf::new();
    for change in [
        json!({"jobType": "Parallel"}),
        // as a step is shown
        json!({"jobType": "Command", "command": "parallel score.py", "parallel": {"task": {}}}),
    ] {
        let said = shelf
            .run("p", &json!({"properties": change}))
            .unwrap_err()
            .to_string();
        assert!(said.contains("which runs in a pipeline only"), "{said}");
    }
}

#[test]
fn a_step_inside_a_pipeline_component_is_told_by_the_one_around_it() {
    let mut shelf = Shelf::new();
    let with_variables = json!({"/environment_variables": {"A": "component", "B": "component"}});
    shelf.component("score", &component(with_variables));
    let mut inner = pipeline(json!({
        "/properties/jobs/score/mini_batch_size": "${{parent.inputs.size}}",
        "/properties/jobs/score/environment_variables": {"A": "step"},
    }))["properties"]
        .clone();
    inner["type"] = json!("pipeline");
    inner["inputs"] = json!({"in": {"type": "uri_folder"}, "size": {"type": "integer"}});
    inner["outputs"] = json!({"o": {"type": "uri_file"}});
    shelf.component("both", &inner);
    let body = pipeline(json!({"/properties/jobs": {"outer": {
        "type": "pipeline", "componentId": "azureml:both:1",
        "inputs": {"in": {"value": "${{parent.inputs.in}}"}, "size": {"value": "${{parent.inputs.size}}"}},
        "outputs": {"o": {"value": "${{parent.outputs.o}}"}},
    }}}));
    let run = shelf.run("p", &body).unwrap_or_else(|e| panic!("{e}"));
    let Work::Pipeline(outer) = &run.work else {
        panic!("a pipeline");
    };
    let Work::Pipeline(inner) = &outer.steps["outer"].run.work else {
        panic!("a pipeline");
    };
    let step = &inner.steps["score"];
    assert_eq!(step.job.name(), "p_outer_score");
    assert_eq!(parts(&step.run).0.mini_batch_size, 7);
    let variables = &step.run.task.variables;
    assert_eq!((&*variables["A"], &*variables["B"]), ("step", "component"));
    let target = &run.task.outputs["o"].target;
    assert_eq!(
        step.run.task.outputs["scores"].target, *target,
        "the outermost says where"
    );
}

#[test]
fn the_part_that_may_fail_is_an_argument_and_what_else_azures_engine_reads_is_warned_about() {
    let shelf = Shelf::new();
    let with = |line: &str| {
        let body = pipeline(json!({
            "/properties/jobs/score/task/program_arguments": line,
            "/properties/jobs/score/inputs/label": "30",
        }));
        let id = JobId::new(&workspace(), "p");
        let look = |key: &DocKey| shelf.0.get(key).cloned();
        let mut warnings = Vec::new();
        let run = arm::job_run(&id, &body, &look, &mut warnings).map_err(|e| e.to_string())?;
        let Work::Pipeline(pipeline) = run.work else {
            panic!("a pipeline");
        };
        let percent = parts(&pipeline.steps["score"].run).0.allowed_failed_percent;
        Ok::<_, String>((percent, warnings))
    };
    assert_eq!(with("--x 1"), Ok((100, Vec::new())));
    assert_eq!(with("--allowed_failed_percent 10").unwrap().0, 10);
    assert_eq!(with("--a --allowed_failed_percent=0").unwrap().0, 0);
    assert_eq!(
        with("--allowed_failed_percent ${{inputs.label}}")
            .unwrap()
            .0,
        30
    );
    let said = with("--allowed_failed_percent 101").unwrap_err();
    assert!(
        said.contains("expected a whole number from 0 to 100"),
        "{said}"
    );
    assert!(with("--allowed_failed_percent").is_err());
    let warnings = with("--task_overhead_timeout 5 --copy_logs_to_parent=true")
        .unwrap()
        .1;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].ends_with("program_arguments: --task_overhead_timeout has no effect here"),
        "{warnings:?}"
    );
}
