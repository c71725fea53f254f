//! Pipelines, sweeps and components: from what a client sends to what runs.

use model::{
    DocKey, Document, JobId, Kind, PipelineSpec, RunSpec, SweepSpec, Time, Work, Workspace,
    engine::{InputSpec, Program},
    family::{Binding, Domain, Goal, OnFailure, Policy, Rerun, Sampling, Source, Way},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use wire::arm::{self, Invalid};

fn workspace() -> Arc<Workspace> {
    Workspace::new("s", "g", "w")
}

struct Shelf(BTreeMap<DocKey, Document>);

impl Shelf {
    fn put(&mut self, kind: Kind, path: &str, body: Value) -> &mut Self {
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
        self
    }
    fn component(&mut self, name: &str, spec: Value) -> &mut Self {
        let body = json!({"properties": {"componentSpec": spec}});
        self.put(Kind::Component, &format!("{name}/1"), body)
    }
    fn new() -> Shelf {
        let mut shelf = Shelf(BTreeMap::new());
        let cluster = json!({"properties": {"computeType": "AmlCompute", "properties": {
            "vmSize": "STANDARD_DS3_v2", "scaleSettings": {"maxNodeCount": 2}}}});
        shelf
            .put(Kind::Compute, "cpu", cluster.clone())
            .put(Kind::Compute, "big", cluster)
            .put(Kind::Environment, "env/1", json!({"properties": {"image": "python:3.12"}}))
            .put(Kind::Code, "code/1", json!({"properties": {"codeUri": "azureml://datastores/workspaceblobstore/paths/c"}}))
            .component("prep", json!({"type": "command", "command": "prep ${{inputs.n}} $[[--rows ${{inputs.rows}}]] ${{outputs.d}}",
                "environment": "azureml:env:1", "code": "azureml:code:1",
                "inputs": {"n": {"type": "integer", "default": "3"}, "rows": {"type": "uri_folder", "optional": true}},
                "outputs": {"d": {"type": "uri_folder"}}}))
            .component("fit", json!({"type": "command", "command": "fit ${{inputs.d}} ${{inputs.lr}} ${{outputs.m}}",
                "environment": "azureml:env:1",
                "inputs": {"d": {"type": "uri_folder", "mode": "download"}, "lr": {"type": "number"}},
                "outputs": {"m": {"type": "uri_folder"}}, "resources": {"instance_count": 2}}))
            .component("shuffle", json!({"type": "command", "command": "shuffle ${{outputs.d}}", "environment": "azureml:env:1",
                "is_deterministic": false, "outputs": {"d": {"type": "uri_folder"}}}))
            .component("both", json!({"type": "pipeline", "inputs": {"n": {"type": "integer"}}, "outputs": {"z": {"type": "uri_folder"}},
                "jobs": {"a": {"type": "command", "componentId": "azureml:prep:1", "inputs": {"n": {"value": "${{parent.inputs.n}}"}}},
                    "b": {"type": "command", "componentId": "azureml:fit:1", "inputs": {"d": {"value": "${{parent.jobs.a.outputs.d}}"}, "lr": {"value": "0.5"}},
                        "outputs": {"m": {"value": "${{parent.outputs.z}}", "type": "literal"}}}}}))
            .component("spark", json!({"type": "spark"}));
        shelf
    }
    fn run(&self, name: &str, body: &Value) -> Result<RunSpec, Invalid> {
        let id = JobId::new(&workspace(), name);
        let look = |key: &DocKey| self.0.get(key).cloned();
        arm::job_run(&id, body, &look, &mut Vec::new())
    }
    fn pipeline(&self, name: &str, body: &Value) -> PipelineSpec {
        match self.run(name, body).unwrap_or_else(|e| panic!("{e}")).work {
            Work::Pipeline(spec) => *spec,
            other => panic!("{other:?}"),
        }
    }
    fn sweep(&self, body: &Value) -> SweepSpec {
        match self.run("sw", body).unwrap_or_else(|e| panic!("{e}")).work {
            Work::Sweep(spec) => *spec,
            other => panic!("{other:?}"),
        }
    }
}

/// Two steps in a row, as the SDK sends them.
fn two() -> Value {
    json!({"properties": {"jobType": "Pipeline", "experimentName": "e",
        "computeId": "azureml:cpu", "settings": {"_source": "DSL"},
        "inputs": {"n": {"jobInputType": "literal", "value": "5"}},
        "outputs": {"result": {"jobOutputType": "uri_folder"}},
        "jobs": {
            "p": {"name": "p", "type": "command", "componentId": "azureml:prep:1",
                "inputs": {"n": {"value": "${{parent.inputs.n}}", "job_input_type": "literal"}}},
            "f": {"name": "f", "type": "command", "componentId": "azureml:fit:1", "computeId": "azureml:big",
                "inputs": {"d": {"value": "${{parent.jobs.p.outputs.d}}", "job_input_type": "literal"}, "lr": {"value": "0.1", "job_input_type": "literal"}},
                "outputs": {"m": {"value": "${{parent.outputs.result}}", "type": "literal"}},
                "limits": {"timeout": "PT1M", "job_limits_type": "Command"}, "environment_variables": {"A": "b"}}}}})
}

fn line(run: &RunSpec) -> String {
    match &run.task.program {
        Program::Command { line } => line.to_string(),
        Program::Pool(_) => panic!("a pool"),
    }
}

fn print(spec: &PipelineSpec, step: &str) -> Option<String> {
    let part = spec.steps[step].run.part.as_ref().unwrap();
    part.fingerprint.as_ref().map(ToString::to_string)
}

#[test]
fn a_pipeline_becomes_steps_whose_inputs_are_bound() {
    let shelf = Shelf::new();
    let run = shelf.run("pipe", &two()).unwrap();
    let spec = shelf.pipeline("pipe", &two());
    assert_eq!(
        (spec.on_failure, spec.rerun),
        (OnFailure::Continue, Rerun::WhenNew)
    );
    let (p, f) = (&spec.steps["p"], &spec.steps["f"]);
    assert_eq!((p.job.name(), f.job.name()), ("pipe_p", "pipe_f"));
    assert_eq!((p.run.compute.name(), f.run.compute.name()), ("cpu", "big"));
    assert_eq!(f.run.instances, 2, "the component's resources");
    assert_eq!(
        line(&p.run),
        "prep ${{inputs.n}}  ${{outputs.d}}",
        "the optional part goes"
    );
    assert_eq!(
        f.inputs["d"],
        Binding {
            source: Source::Step {
                step: "p".into(),
                output: "d".into()
            },
            way: Way::Copy,
        }
    );
    assert_eq!(p.inputs["n"].source, Source::Parent("n".into()));
    assert_eq!(f.run.task.inputs["lr"], InputSpec::Literal("0.1".into()));
    assert_eq!(f.exports[&Box::<str>::from("m")], "result".into());
    let target = &f.run.task.outputs["m"].target;
    assert_eq!(target.as_str(), run.task.outputs["result"].target.as_str());
    assert!(target.as_str().ends_with("azureml/pipe/result"), "{target}");

    let document: Value = serde_json::from_str(&f.document).unwrap();
    let d = &document["properties"];
    assert_eq!(
        (&d["jobType"], &d["displayName"], &d["parentJobName"]),
        (&json!("Command"), &json!("f"), &json!("pipe"))
    );
    assert_eq!(
        d["inputs"]["d"],
        json!({"jobInputType": "uri_folder", "uri": "azureml://jobs/pipe_p/outputs/d", "mode": "Download"})
    );
    assert_eq!(
        (&d["limits"]["timeout"], &d["environmentVariables"]["A"]),
        (&json!("PT1M"), &json!("b"))
    );
    // Each step is a document that a client could have sent.
    let key = DocKey::new(&workspace(), Kind::Job, "pipe_f");
    arm::parse(&key, &document, None).unwrap();
}

#[test]
fn a_fingerprint_is_of_what_a_result_depends_on() {
    let shelf = Shelf::new();
    let one = shelf.pipeline("one", &two());
    let again = shelf.pipeline("again", &two());
    for step in ["p", "f"] {
        assert!(print(&one, step).is_some());
        assert_eq!(
            print(&one, step),
            print(&again, step),
            "the name of a pipeline is no part of it"
        );
    }
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut body = two();
        change(&mut body["properties"]);
        let spec = shelf.pipeline("one", &body);
        (
            print(&spec, "p") != print(&one, "p"),
            print(&spec, "f") != print(&one, "f"),
        )
    };
    assert_eq!(
        changed(&|p| p["inputs"]["n"]["value"] = json!("6")),
        (true, true),
        "downstream too"
    );
    assert_eq!(
        changed(&|p| p["jobs"]["f"]["inputs"]["lr"]["value"] = json!("0.2")),
        (false, true)
    );
    assert_eq!(
        changed(&|p| p["jobs"]["f"]["environment_variables"]["A"] = json!("c")),
        (false, true)
    );
    assert_eq!(
        changed(&|p| p["computeId"] = json!("azureml:big")),
        (false, false),
        "where it runs is none"
    );
    let place = json!("azureml://datastores/workspaceblobstore/paths/mine");
    assert_eq!(
        changed(&|p| p["outputs"]["result"]["uri"] = place.clone()),
        (false, true),
        "a place that the user wants"
    );

    let mut body = two();
    body["properties"]["jobs"]["p"] =
        json!({"type": "command", "componentId": "azureml:shuffle:1"});
    let (a, b) = (shelf.pipeline("a", &body), shelf.pipeline("b", &body));
    assert_eq!(print(&a, "p"), None, "not deterministic");
    assert_ne!(
        print(&a, "f"),
        print(&b, "f"),
        "what comes of it is new each time"
    );
}

#[test]
fn a_nested_pipeline_is_a_step_and_its_output_a_source() {
    let shelf = Shelf::new();
    let body = json!({"properties": {"jobType": "Pipeline", "computeId": "azureml:cpu",
        "jobs": {
            "inner": {"type": "pipeline", "componentId": "azureml:both:1", "inputs": {"n": {"value": "4"}}},
            "after": {"type": "command", "componentId": "azureml:fit:1", "inputs": {"d": {"value": "${{parent.jobs.inner.outputs.z}}"}, "lr": {"value": "1"}}}},
        "settings": {"continue_on_step_failure": false, "force_rerun": true}}});
    let spec = shelf.pipeline("outer", &body);
    assert_eq!(
        (spec.on_failure, spec.rerun),
        (OnFailure::Stop, Rerun::Always)
    );
    let Work::Pipeline(inner) = &spec.steps["inner"].run.work else {
        panic!("a pipeline")
    };
    assert_eq!(inner.steps["b"].job.name(), "outer_inner_b");
    let z = &spec.steps["inner"].run.task.outputs["z"].target;
    assert_eq!(inner.steps["b"].run.task.outputs["m"].target, *z);
    assert_eq!(
        inner.steps["a"].run.compute.name(),
        "cpu",
        "the compute of the outer one"
    );
    let other = shelf.pipeline("other", &body);
    assert_eq!(
        print(&spec, "after"),
        print(&other, "after"),
        "seen through"
    );
}

#[test]
fn what_is_wrong_in_a_pipeline_is_refused_with_its_step() {
    let shelf = Shelf::new();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = two();
        change(&mut body["properties"]);
        let refused = shelf.run("pipe", &body).unwrap_err();
        format!("{} {}: {}", refused.status, refused.target, refused.message)
    };
    let step =
        |key: &'static str, value: Value| with(&move |p| p["jobs"]["f"][key] = value.clone());
    let input = |key: &'static str, value: Value| {
        with(&move |p| p["jobs"]["f"]["inputs"][key] = value.clone())
    };
    for (said, wants) in [
        (
            input("d", json!("${{parent.jobs.q.outputs.d}}")),
            "names step q, the pipeline has f, p",
        ),
        (
            input("d", json!("${{parent.jobs.p.outputs.x}}")),
            "names output x of step p, which has d",
        ),
        (
            input("lr", json!("${{parent.jobs.p.outputs.d}}")),
            "is an output of step p, the input is number",
        ),
        (input("lr", json!("fast")), "is `fast`, the input is number"),
        (
            input("d", json!("${{parent.inputs.n}}")),
            "is the text `5`, the input is uri_folder",
        ),
        (
            input("d", json!("x-${{parent.inputs.n}}")),
            "mixes an expression with other text",
        ),
        (
            input("rate", json!("1")),
            "is no input of the component, it has d, lr",
        ),
        (input("lr", Value::Null), "lr is required"),
        (
            step("componentId", json!("azureml:none:1")),
            "component none:1 does not exist",
        ),
        (
            step("componentId", json!("azureml:spark:1")),
            "is spark, which is not built yet",
        ),
        (
            step("componentId", json!("azureml:both:1")),
            "names a component that is no command",
        ),
        (
            step("type", json!("spark")),
            "is spark, which is not built yet",
        ),
        (
            step("computeId", json!("azureml:gone")),
            "compute gone does not exist",
        ),
        (
            step(
                "outputs",
                json!({"m": {"value": "${{parent.outputs.none}}"}}),
            ),
            "names output none of the pipeline",
        ),
        (
            step("outputs", json!({"x": {}})),
            "is no output of the component, it has m",
        ),
        (
            with(&|p| {
                p["jobs"]["p"]["inputs"] =
                    json!({"rows": {"value": "${{parent.jobs.f.outputs.m}}"}})
            }),
            "waits for itself",
        ),
        (with(&|p| p["jobs"] = json!({})), "has no step"),
        (
            with(&|p| p["computeId"] = Value::Null),
            "serverless compute is not built yet",
        ),
        (
            with(&|p| p["jobs"]["a-b"] = json!({})),
            "is no name of a step",
        ),
    ] {
        assert!(said.contains(wants), "{said}\nwants {wants}");
    }
    assert!(
        input("lr", json!("fast")).starts_with("400 /properties/jobs/f"),
        "{}",
        input("lr", json!("fast"))
    );
}

/// As the SDK sends it (wire §6).
fn sweep() -> Value {
    json!({"properties": {"jobType": "Sweep", "computeId": "azureml:cpu",
        "searchSpace": {"lr": ["uniform", [0.01, 0.9]], "b": ["choice", [[1, "two", 3]]]},
        "samplingAlgorithm": {"samplingAlgorithmType": "Random", "seed": 7},
        "limits": {"jobLimitsType": "Sweep", "maxTotalTrials": 6, "maxConcurrentTrials": 20, "timeout": "PT20M", "trialTimeout": "PT1M"},
        "earlyTermination": {"policyType": "Bandit", "slackFactor": 0.1, "evaluationInterval": 0, "delayEvaluation": 5},
        "objective": {"goal": "maximize", "primaryMetric": "acc"},
        "trial": {"command": "x ${{search_space.lr}} ${{ search_space.b }} ${{inputs.d}} ${{outputs.o}}", "environmentId": "azureml:env:1"},
        "inputs": {"d": {"jobInputType": "literal", "value": "9"}},
        "outputs": {"o": {"jobOutputType": "uri_folder"}}}})
}

#[test]
fn a_sweep_becomes_what_every_trial_runs() {
    let shelf = Shelf::new();
    let spec = shelf.sweep(&sweep());
    assert_eq!(
        (spec.total, spec.at_once),
        (6, 6),
        "no more at once than in all"
    );
    assert_eq!(
        (spec.sampling, spec.goal),
        (Sampling::Random { seed: 7 }, Goal::Maximize)
    );
    assert_eq!(
        spec.space["b"],
        Domain::Choice(vec!["1".into(), "two".into(), "3".into()])
    );
    let rule = spec.termination.unwrap();
    assert!(matches!(rule.policy, Policy::BanditFactor(_)));
    assert_eq!(
        (rule.interval, rule.delay),
        (1, 5),
        "0 is the default of the SDK's classes"
    );
    assert_eq!(
        line(&spec.trial),
        "x ${{inputs.search_space.lr}} ${{inputs.search_space.b}} ${{inputs.d}} ${{outputs.o}}"
    );
    let part = spec.trial.part.as_ref().unwrap();
    assert_eq!(
        (part.parent.name(), part.metric.as_deref()),
        ("sw", Some("acc"))
    );
    assert!(
        spec.trial.task.outputs["o"]
            .target
            .as_str()
            .contains("{trial}")
    );
    assert!(spec.trial.task.artifacts.as_str().contains("{trial}"));
    assert_eq!(spec.trial.timeout.map(|t| t.0), Some(60_000));
    let document: Value = serde_json::from_str(&spec.document).unwrap();
    assert_eq!(
        document["properties"]["command"],
        sweep()["properties"]["trial"]["command"]
    );
    let mut unnamed = sweep();
    unnamed["properties"]["samplingAlgorithm"] = json!({"samplingAlgorithmType": "random"});
    assert_eq!(
        shelf.sweep(&unnamed).sampling,
        shelf.sweep(&unnamed).sampling,
        "a seed of its name"
    );
}

#[test]
fn what_is_wrong_in_a_sweep_is_refused_by_name() {
    let shelf = Shelf::new();
    let with = |path: &str, value: Value| {
        let mut body = sweep();
        *body.pointer_mut(&format!("/properties/{path}")).unwrap() = value;
        let refused = shelf.run("sw", &body).unwrap_err();
        format!("{}: {}", refused.target, refused.message)
    };
    for (said, wants) in [
        (
            with("searchSpace", json!({})),
            "varies at least one parameter",
        ),
        (
            with("searchSpace/lr", json!(["uniform", [0.9, 0.1]])),
            "0.9 is above 0.1",
        ),
        (
            with("searchSpace/lr", json!(["uniform", [0.9]])),
            "wanted are min and max",
        ),
        (
            with("searchSpace/lr", json!(["zipf", [1]])),
            "is `zipf`, known are choice",
        ),
        (
            with("searchSpace/lr", json!(["quniform", [0, 1, 0]])),
            "must be above 0",
        ),
        (
            with("searchSpace/b", json!(["choice", [[]]])),
            "has 0 values",
        ),
        (
            with(
                "samplingAlgorithm",
                json!({"samplingAlgorithmType": "Grid"}),
            ),
            "takes choice alone, and lr is something else",
        ),
        (
            with(
                "samplingAlgorithm",
                json!({"samplingAlgorithmType": "Annealing"}),
            ),
            "known are Grid, Random, Bayesian",
        ),
        (
            with("objective/goal", json!("highest")),
            "known are maximize, minimize",
        ),
        (
            with("limits/maxTotalTrials", json!(0)),
            "at least 1 is needed",
        ),
        (
            with("earlyTermination", json!({"policyType": "Bandit"})),
            "or slackAmount is required",
        ),
        (
            with(
                "earlyTermination",
                json!({"policyType": "TruncationSelection", "truncationPercentage": 100}),
            ),
            "at most 99 is allowed",
        ),
        (
            with("trial/command", json!("x ${{search_space.rate}}")),
            "and the search space has",
        ),
        (
            with("trial/environmentId", json!("azureml:none:1")),
            "environment none:1 does not exist",
        ),
    ] {
        assert!(said.contains(wants), "{said}\nwants {wants}");
    }
    assert!(
        with("trial/environmentId", json!("azureml:none:1"))
            .starts_with("/properties/trial/environmentId")
    );
}

#[test]
fn a_sweep_step_varies_inputs_of_its_component() {
    let shelf = Shelf::new();
    let mut body = two();
    body["properties"]["jobs"]["f"] = json!({"type": "sweep", "trial": {"componentId": "azureml:fit:1"},
        "inputs": {"d": {"value": "${{parent.jobs.p.outputs.d}}"}},
        "search_space": {"lr": {"type": "uniform", "min_value": 0.1, "max_value": 1}},
        "sampling_algorithm": "random", "objective": {"primary_metric": "acc", "goal": "maximize"},
        "early_termination": {"policy_type": "MedianStopping", "evaluation_interval": 1, "delay_evaluation": 2},
        "limits": {"max_total_trials": 3, "max_concurrent_trials": 2, "timeout": 600}});
    let spec = shelf.pipeline("pipe", &body);
    let Work::Sweep(sweep) = &spec.steps["f"].run.work else {
        panic!("a sweep")
    };
    assert_eq!(
        line(&sweep.trial),
        "fit ${{inputs.d}} ${{inputs.search_space.lr}} ${{outputs.m}}"
    );
    assert_eq!((sweep.total, sweep.at_once), (3, 2));
    assert_eq!(spec.steps["f"].inputs.len(), 1, "d is bound, lr is varied");
    assert_eq!(print(&spec, "f"), None, "a sweep is never reused");
}

#[test]
fn a_component_is_checked_when_it_is_written() {
    let key = DocKey::new(&workspace(), Kind::Component, "c/1");
    let body = |change: Value| {
        let mut spec = json!({"name": "c", "version": "1", "type": "command", "command": "x ${{inputs.n}}", "environment": "azureml:env:1",
            "inputs": {"n": {"type": "integer", "default": 3}}});
        for (k, v) in change.as_object().unwrap() {
            spec[k] = v.clone();
        }
        json!({"properties": {"componentSpec": spec}})
    };
    arm::parse(&key, &body(json!({})), None).unwrap();
    for (change, wants) in [
        (json!({"name": "d"}), "name differs from c"),
        (json!({"type": "spark"}), "is spark, which is not built yet"),
        (
            json!({"type": "lambda"}),
            "known are command, pipeline, parallel",
        ),
        (json!({"command": "x ${{inputs.m}}"}), "has no input `m`"),
        (
            json!({"inputs": {"n": {"type": "integer", "default": "many"}}}),
            "is `many`, the input is integer",
        ),
        (
            json!({"outputs": {"o": {"type": "integer"}}}),
            "of an output is not integer",
        ),
        (json!({"environment": null}), "environment is required"),
        (json!({"type": "pipeline"}), "has no step"),
    ] {
        let said = arm::parse(&key, &body(change), None)
            .unwrap_err()
            .to_string();
        assert!(said.contains(wants), "{said}\nwants {wants}");
    }
    let before = Document {
        key: key.clone(),
        generation: 1,
        json: body(json!({})).to_string().into(),
        created: Time(0),
        modified: Time(0),
        by: "me".into(),
    };
    arm::parse(&key, &body(json!({"display_name": "C"})), Some(&before)).unwrap();
    let moved = arm::parse(&key, &body(json!({"command": "y"})), Some(&before)).unwrap_err();
    assert_eq!(moved.to_string(), "Asset paths cannot be updated.");
}

#[test]
fn r74_a_target_that_is_not_for_the_use_is_refused_by_both_names() {
    let mut shelf = Shelf::new();
    for kind in ["Kubernetes", "VirtualMachine", "HDInsight"] {
        let compute = json!({"properties": {"computeType": kind, "resourceId": "/x", "properties": {"namespace": "default"}}});
        shelf.put(Kind::Compute, kind, compute);
    }
    let said = |change: &dyn Fn(&mut Value)| {
        let mut body = two();
        body["properties"]["jobs"]["f"]
            .as_object_mut()
            .unwrap()
            .remove("computeId");
        change(&mut body["properties"]);
        shelf
            .run("pipe", &body)
            .err()
            .map(|e| e.message)
            .unwrap_or_default()
    };
    let on = |kind: &'static str, source: &'static str| {
        said(&move |p| {
            p["computeId"] = json!(kind);
            p["settings"]["_source"] = json!(source);
        })
    };
    assert_eq!(on("Kubernetes", "DSL"), "");
    assert_eq!(on("Kubernetes", "DESIGNER"), "");
    assert!(
        on("HDInsight", "DESIGNER")
            .contains("Azure HDInsight, which is no target for the designer")
    );
    assert!(
        on("VirtualMachine", "DESIGNER")
            .contains("a remote virtual machine, which is no target for the designer")
    );
    assert!(on("local", "DSL").contains("the local computer, which is no target for pipelines"));
    let automl = |compute: &str| {
        let body = json!({"properties": {"jobType": "AutoML", "computeId": compute}});
        shelf.run("auto", &body).unwrap_err().message
    };
    assert!(
        automl("azureml:Kubernetes")
            .contains("a Kubernetes compute, which is no target for Automated ML")
    );
    assert!(automl("azureml:cpu").contains("is AutoML, which is not built yet"));
}
