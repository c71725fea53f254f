//! From what a document names to what runs.

use model::{
    BatchSpec, BlobPath, DocKey, Document, JobId, Kind, Millis, Outcome, RunRecord, RunSpec,
    RunState, Time, Why, Work, Workspace,
    batch::{BatchOutput, OnCapacityLoss, Progress},
    engine::{DISTRIBUTION_VARIABLE, InputSpec, PROCESSES_VARIABLE, Packages, Program, RowFormat},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use wire::{
    arm::{self, Invalid, Invoke},
    places::Places,
};

fn workspace() -> Arc<Workspace> {
    Workspace::new("s", "g", "w")
}

/// Documents of a workspace, as a test writes them.
struct Shelf {
    documents: BTreeMap<DocKey, Document>,
    runs: BTreeMap<JobId, Arc<RunRecord>>,
}

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
        self.documents.insert(key, document);
        self
    }
    fn new() -> Shelf {
        let mut shelf = Shelf {
            documents: BTreeMap::new(),
            runs: BTreeMap::new(),
        };
        let store = |path: &str| format!("azureml://datastores/workspaceblobstore/paths/{path}");
        shelf
            .put(Kind::Compute, "Low-Pri", json!({"properties": {"computeType": "AmlCompute", "properties": {
                "vmSize": "STANDARD_DS3_v2", "vmPriority": "LowPriority", "scaleSettings": {"maxNodeCount": 2}}}}))
            .put(Kind::Model, "heart/1", json!({"properties": {"modelUri": store("LocalUpload/h/model"), "modelType": "mlflow_model"}}))
            .put(Kind::Model, "plain/1", json!({"properties": {"modelUri": store("plain/model.bin")}}))
            .put(Kind::Environment, "env/1", json!({"properties": {"image": "python:3.12", "condaFile": "dependencies: [python=3.12]\n"}}))
            .put(Kind::Environment, "bld/1", json!({"properties": {"build": {"contextUri": "x"}}}))
            .put(Kind::Code, "code/1", json!({"properties": {"codeUri": format!("https://h/storage/zaffre/{}/src", upload())}}))
            .put(Kind::Data, "rows/1", json!({"properties": {"dataUri": store("rows/"), "dataType": "uri_folder"}}))
            .put(Kind::Data, "file/1", json!({"properties": {"dataUri": store("rows/a.csv"), "dataType": "uri_file"}}))
            .put(Kind::Data, "table/1", json!({"properties": {"dataUri": store("t"), "dataType": "mltable"}}))
            .put(Kind::Data, "loop/1", json!({"properties": {"dataUri": "azureml://jobs/looped/outputs/o"}}))
            .put(Kind::Job, "looped", json!({"properties": {"jobType": "Command", "outputs": {"o": {"jobOutputType": "uri_folder", "uri": "azureml:loop:1"}}}}))
            .put(Kind::Job, "train", json!({"properties": {"jobType": "Command", "outputs": {"model": {"jobOutputType": "uri_folder"}}}}))
            .put(Kind::BatchEndpoint, "heart-batch", json!({"properties": {}}))
            .put(Kind::BatchDeployment, "heart-batch/dep", json!({"properties": {
                "model": {"referenceType": "Id", "assetId": "azureml:heart:1"}, "compute": "azureml:low-pri",
                "miniBatchSize": 2, "maxConcurrencyPerInstance": 2, "resources": {"instanceCount": 2},
                "retrySettings": {"maxRetries": 3, "timeout": "PT5M"}}}));
        shelf
    }
    fn look(&self) -> impl Fn(&DocKey) -> Option<Document> {
        |key| self.documents.get(key).cloned()
    }
    fn command(&self, body: &Value) -> Result<RunSpec, Invalid> {
        arm::command_run(&JobId::new(&workspace(), "job1"), body, &self.look())
    }
    fn invoke(&self, body: &Value) -> Result<(RunSpec, Value), Invalid> {
        let get = |kind, path| self.documents[&DocKey::new(&workspace(), kind, path)].clone();
        let invoke = Invoke::parse(body)?;
        arm::batch_run(
            &JobId::new(&workspace(), "run1"),
            &get(Kind::BatchEndpoint, "heart-batch"),
            &get(Kind::BatchDeployment, "heart-batch/dep"),
            &invoke,
            &self.look(),
            &|id| self.runs.get(id).cloned(),
        )
    }
    fn deploy(&mut self, changes: Value) -> &mut Self {
        let key = DocKey::new(&workspace(), Kind::BatchDeployment, "heart-batch/dep");
        let mut body: Value = serde_json::from_str(&self.documents[&key].json).unwrap();
        for (name, value) in changes.as_object().unwrap() {
            body["properties"][name] = value.clone();
        }
        self.put(Kind::BatchDeployment, "heart-batch/dep", body)
    }
}

fn upload() -> BlobPath {
    Places::of(&workspace()).upload("1").unwrap()
}

fn blobs(path: &str) -> BlobPath {
    Places::of(&workspace()).blobs().join(path).unwrap()
}

fn command() -> Value {
    json!({"properties": {"jobType": "Command", "command": "python t.py ${{inputs.d}} ${{outputs.m}}",
        "computeId": "/subscriptions/S/resourceGroups/G/providers/Microsoft.MachineLearningServices/workspaces/W/computes/low-pri",
        "environmentId": "azureml:env:1", "codeId": "azureml:code:1",
        "inputs": {"d": {"jobInputType": "uri_folder", "uri": "azureml:rows:1"}},
        "outputs": {"m": {"jobOutputType": "uri_folder"}},
        "limits": {"jobLimitsType": "Command", "timeout": "PT1H"}}})
}

fn invoke() -> Value {
    json!({"properties": {"inputData": {"UriFolder": {"jobInputType": "UriFolder", "uri": "azureml://datastores/workspaceblobstore/paths/in/"}}}})
}

fn batch(run: &RunSpec) -> &BatchSpec {
    let Work::Batch(spec) = &run.work else {
        panic!("{run:?}")
    };
    spec
}

#[test]
fn a_command_job_is_followed_to_its_blobs() {
    let run = Shelf::new().command(&command()).unwrap();
    assert_eq!(run.compute.name(), "Low-Pri", "spelled as first written");
    assert_eq!((run.instances, run.timeout), (1, Some(Millis::secs(3600))));
    let task = &run.task;
    assert_eq!(task.code, Some(upload().join("src").unwrap()));
    assert_eq!(
        task.inputs["d"],
        InputSpec::Path {
            source: blobs("rows"),
            copy: false
        }
    );
    assert_eq!(task.outputs["m"].target, blobs("azureml/job1/m"));
    assert_eq!(
        task.environment.packages,
        Packages::Conda("dependencies: [python=3.12]\n".into())
    );
    assert_eq!(task.environment.image.as_deref(), Some("python:3.12"));
    assert_eq!((task.limits.cpu.0, task.limits.memory.0), (4000, 14 << 30));
    let artifacts = Places::of(&workspace()).artifacts_of("job1").unwrap();
    assert_eq!(task.artifacts, artifacts);
}

#[test]
fn the_engine_learns_how_a_gang_is_distributed() {
    let shelf = Shelf::new();
    let variables = |distribution: Value| {
        let mut body = command();
        body["properties"]["resources"] = json!({"instanceCount": 2});
        body["properties"]["distribution"] = distribution;
        let run = shelf.command(&body).unwrap();
        let of = |name: &str| run.task.variables.get(name).map(ToString::to_string);
        (of(DISTRIBUTION_VARIABLE), of(PROCESSES_VARIABLE))
    };
    let text = |text: &str| Some(text.to_owned());
    let pytorch = json!({"distributionType": "PyTorch", "processCountPerInstance": 4});
    assert_eq!(variables(pytorch), (text("pytorch"), text("4")));
    let mpi = json!({"distributionType": "Mpi", "processCountPerInstance": 1});
    assert_eq!(variables(mpi), (text("mpi"), None));
    let tensorflow = json!({"distributionType": "TensorFlow", "workerCount": 2});
    assert_eq!(variables(tensorflow), (text("tensorflow"), None));
}

#[test]
fn inputs_come_from_everywhere_in_the_workspace() {
    let shelf = Shelf::new();
    let source = |uri: &str, kind: &str| {
        let mut body = command();
        body["properties"]["inputs"]["d"] =
            json!({"jobInputType": kind, "uri": uri, "mode": "Download"});
        match &shelf.command(&body)?.task.inputs["d"] {
            InputSpec::Path { source, copy: true } => Ok(source.as_str().to_owned()),
            other => panic!("{other:?}"),
        }
    };
    let at = |path: &str| Ok::<_, Invalid>(blobs(path).as_str().to_owned());
    assert_eq!(source("azureml:file:1", "uri_file"), at("rows/a.csv"));
    assert_eq!(
        source("azureml://jobs/train/outputs/model/paths/sub", "uri_folder"),
        at("azureml/train/model/sub")
    );
    let made =
        "azureml://locations/local/workspaces/w/data/azureml_train_output_data_model/versions/1";
    assert_eq!(source(made, "uri_folder"), at("azureml/train/model"));
    assert_eq!(
        source("azureml:azureml_train_output_data_model:1", "uri_folder"),
        at("azureml/train/model")
    );
    assert_eq!(
        source("azureml:azureml_train_output_data_none:1", "uri_folder")
            .unwrap_err()
            .status,
        404
    );
    assert_eq!(
        source("azureml:heart:1", "mlflow_model"),
        at("LocalUpload/h/model")
    );
    let artifacts = Places::of(&workspace())
        .artifacts_of("train")
        .unwrap()
        .join("outputs")
        .unwrap();
    assert_eq!(
        source(
            "azureml://jobs/train/outputs/artifacts/paths/outputs/",
            "uri_folder"
        )
        .unwrap(),
        artifacts.as_str()
    );
    let refused = |uri: &str, kind: &str| source(uri, kind).unwrap_err();
    assert!(
        refused("azureml:rows:1", "uri_file")
            .message
            .contains("names a folder")
    );
    assert!(
        refused("azureml:file:1", "uri_folder")
            .message
            .contains("names a file")
    );
    assert!(
        refused("azureml:loop:1", "uri_folder")
            .message
            .contains("without end")
    );
    assert!(
        refused("azureml:rows@best", "uri_folder")
            .message
            .contains("label best")
    );
    assert!(
        refused("/etc", "uri_folder")
            .message
            .contains("never opens a path")
    );
    assert_eq!(refused("azureml:none:1", "uri_folder").status, 404);
    assert_eq!(
        refused("azureml://jobs/train/outputs/nope", "uri_folder").message,
        "job train has no output nope"
    );
    assert_eq!(
        refused("azureml://jobs/nope/outputs/o", "uri_folder").status,
        404
    );
}

#[test]
fn a_job_that_names_what_is_not_there_is_refused() {
    let shelf = Shelf::new();
    let refused = |key: &str, value: Value| {
        let mut body = command();
        body["properties"][key] = value;
        shelf.command(&body).unwrap_err()
    };
    let e = refused("computeId", json!("azureml:nope"));
    assert_eq!(
        (e.status, e.code, e.target.as_str()),
        (404, "ComputeNotFound", "/properties/computeId")
    );
    assert_eq!(e.message, "compute nope does not exist in workspace w");
    assert_eq!(
        refused("environmentId", json!("azureml:env:2")).message,
        "environment env:2 does not exist in workspace w"
    );
    assert!(
        refused("environmentId", json!("azureml:AzureML-x@best"))
            .message
            .contains("the label best")
    );
    assert_eq!(
        refused("environmentId", json!("azureml:bld:1")).code,
        "NotSupported"
    );
    assert_eq!(refused("codeId", json!("azureml:code:9")).status, 404);
    let e = refused("resources", json!({"instanceType": "nope"}));
    assert_eq!(
        e.message,
        "instance type nope is not defined on compute Low-Pri: its nodes are Standard_DS3_v2"
    );
    let mut body = command();
    body["properties"]["outputs"]["m"]["uri"] =
        json!(format!("https://h/storage/zaffre/{}/x", upload()));
    assert!(
        shelf
            .command(&body)
            .unwrap_err()
            .message
            .contains("output goes to")
    );
}

#[test]
fn an_invoke_of_an_mlflow_model_needs_no_script() {
    let (run, document) = Shelf::new().invoke(&invoke()).unwrap();
    let spec = batch(&run);
    assert_eq!((run.compute.name(), run.instances), ("Low-Pri", 2));
    assert_eq!(
        (
            spec.mini_batch_size,
            spec.workers_per_node,
            spec.max_retries
        ),
        (2, 2, 3)
    );
    assert_eq!(
        (spec.timeout, spec.error_threshold),
        (Millis::secs(300), -1)
    );
    assert_eq!((&spec.input, spec.input_is_folder), (&blobs("in"), true));
    assert_eq!(
        spec.output,
        BatchOutput::AppendRow {
            file: "predictions.csv".into()
        }
    );
    assert_eq!(spec.output_folder, blobs("azureml/run1/score"));
    assert_eq!(spec.on_capacity_loss, OnCapacityLoss::Cancel);
    let Program::Pool(pool) = &run.task.program else {
        panic!()
    };
    assert_eq!(
        (pool.script.as_deref(), pool.workers, pool.group),
        (None, 2, 2)
    );
    assert_eq!(
        (&pool.root, pool.format, pool.collect),
        (&blobs("in"), RowFormat::Csv, true)
    );
    assert_eq!(run.task.environment.packages, Packages::OfModel);
    assert!(run.task.model.as_ref().unwrap().mlflow);
    let p = &document["properties"];
    assert_eq!(
        (
            p["jobType"].as_str(),
            p["tags"]["azureml.batchrun"].as_str()
        ),
        (Some("Pipeline"), Some("true"))
    );
    assert_eq!(
        p["outputs"]["score"]["uri"],
        "azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/workspaceblobstore/paths/azureml/run1/score/"
    );
    assert_eq!(
        p["properties"]["zaffre.output_file"],
        "azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/workspaceblobstore/paths/azureml/run1/score/predictions.csv"
    );
    assert_eq!(p["experimentName"], "heart-batch");
    assert_eq!(p["properties"]["zaffre.model"], "heart:1");
}

#[test]
fn an_invoke_says_what_its_deployment_lacks() {
    let mut shelf = Shelf::new();
    let plain = json!({"referenceType": "Id", "assetId": "azureml:plain:1"});
    let e = shelf
        .deploy(json!({"model": plain}))
        .invoke(&invoke())
        .unwrap_err();
    assert_eq!(
        e.message,
        "the deployment of model plain/1 needs codeConfiguration and environmentId: only an mlflow_model is scored without a scoring script"
    );
    let code = json!({"codeId": "azureml:code:1", "scoringScript": "score.py"});
    let e = shelf
        .deploy(json!({"codeConfiguration": code}))
        .invoke(&invoke())
        .unwrap_err();
    assert!(e.message.contains("needs environmentId"));
    let (run, _) = shelf
        .deploy(json!({"environmentId": "azureml:env:1"}))
        .invoke(&invoke())
        .unwrap();
    let Program::Pool(pool) = &run.task.program else {
        panic!()
    };
    assert_eq!(pool.script.as_deref(), Some("score.py"));
    assert!(!run.task.model.as_ref().unwrap().mlflow);
    let e = shelf
        .deploy(json!({"compute": "azureml:gone"}))
        .invoke(&invoke())
        .unwrap_err();
    assert_eq!((e.status, e.code), (404, "ComputeNotFound"));
}

#[test]
fn an_invoke_takes_one_file_or_folder() {
    let shelf = Shelf::new();
    let with = |input: Value| {
        let mut body = invoke();
        body["properties"]["inputData"] = input;
        shelf.invoke(&body)
    };
    let e = with(json!({"x": {"jobInputType": "Literal", "value": "a"}})).unwrap_err();
    assert_eq!(
        (e.status, e.message.as_str()),
        (
            400,
            "model deployments take uri_file or uri_folder, exactly one; x is a literal"
        )
    );
    for bad in [
        json!({}),
        json!({"t": {"jobInputType": "MLTable", "uri": "azureml:table:1"}}),
        json!({"t": {"jobInputType": "uri_folder", "uri": "azureml:table:1"}}),
        json!({"a": {"jobInputType": "UriFile", "uri": "azureml:file:1"}, "b": {"jobInputType": "UriFile", "uri": "azureml:file:1"}}),
    ] {
        let e = with(bad).unwrap_err();
        assert!(
            e.message
                .starts_with("model deployments take uri_file or uri_folder"),
            "{e}"
        );
    }
    // the article about REST spells the keys with capitals
    let (run, _) =
        with(json!({"heart": {"JobInputType": "UriFile", "Uri": "azureml:file:1"}})).unwrap();
    let Program::Pool(pool) = &run.task.program else {
        panic!()
    };
    assert_eq!(
        (&batch(&run).input, batch(&run).input_is_folder),
        (&blobs("rows/a.csv"), false)
    );
    assert_eq!(pool.root, blobs("rows"));
    let (run, _) = with(
        json!({"j": {"jobInputType": "UriFolder", "uri": "azureml://jobs/train/outputs/model"}}),
    )
    .unwrap();
    assert_eq!(batch(&run).input, blobs("azureml/train/model"));
}

#[test]
fn an_invoke_chooses_how_much_and_never_where() {
    let shelf = Shelf::new();
    let with = |key: &str, value: Value| {
        let mut body = invoke();
        body["properties"][key] = value;
        shelf.invoke(&body)
    };
    assert_eq!(
        batch(&with("miniBatchSize", json!(7)).unwrap().0).mini_batch_size,
        7
    );
    assert_eq!(
        with("compute", json!({"isLocal": false, "instanceCount": 5}))
            .unwrap()
            .0
            .instances,
        5
    );
    assert_eq!(
        with("resources", json!({"instanceCount": 4}))
            .unwrap()
            .0
            .instances,
        4
    );
    assert_eq!(
        batch(&with("errorThreshold", json!(9)).unwrap().0).error_threshold,
        9
    );
    let retried = with("retrySettings", json!({"maxRetries": 0, "timeout": "PT1M"}))
        .unwrap()
        .0;
    assert_eq!(
        (batch(&retried).max_retries, batch(&retried).timeout),
        (0, Millis::secs(60))
    );
    for (key, value) in [
        ("compute", json!({"target": "azureml:other"})),
        ("compute", json!({"instanceType": "Standard_D2_v2"})),
        ("compute", json!("azureml:other")),
        ("compute", json!({"isLocal": true})),
        ("tier", json!("dedicated")),
        ("resources", json!({"instanceType": "x"})),
        ("queueSettings", json!({"jobTier": "Standard"})),
    ] {
        let e = with(key, value).unwrap_err();
        assert!(e.message.contains("R-53"), "{e}");
    }
    assert!(with("miniBatchSize", json!(0)).is_err());
}

#[test]
fn an_invoke_says_where_its_output_goes() {
    let shelf = Shelf::new();
    let with = |kind: &str, uri: &str, file: Option<&str>| {
        let mut body = invoke();
        body["properties"]["outputData"] = json!({"score": {"jobOutputType": kind, "uri": uri}});
        body["properties"]["outputFileName"] = json!(file);
        shelf.invoke(&body).map(|(run, _)| {
            (
                batch(&run).output_folder.clone(),
                batch(&run).output.clone(),
            )
        })
    };
    let file = |name: &str| BatchOutput::AppendRow { file: name.into() };
    let store = "azureml://datastores/workspaceblobstore/paths";
    assert_eq!(
        with("UriFile", &format!("{store}/out/p.csv"), None),
        Ok((blobs("out"), file("p.csv")))
    );
    assert_eq!(
        with("UriFolder", &format!("{store}/out"), None),
        Ok((blobs("out"), file("predictions.csv")))
    );
    assert_eq!(
        with("UriFile", &format!("{store}/out/"), Some("q.csv")),
        Ok((blobs("out"), file("q.csv")))
    );
    assert!(with("UriFile", &format!("{store}/out/p.csv"), Some("q.csv")).is_err());
    let e = with("UriFolder", "azureml:rows:1", None).unwrap_err();
    assert_eq!(e.target, "/properties/outputData/score/uri");
    assert!(with("UriFolder", store, None).is_err(), "a whole datastore");
    assert!(with("UriFolder", "https://elsewhere/x", None).is_err());
}

fn ended(run: &RunSpec, state: RunState) -> Arc<RunRecord> {
    Arc::new(RunRecord {
        id: JobId::new(&workspace(), "old"),
        spec: Arc::new(run.clone()),
        state,
        why: None,
        submitted: Time(0),
        started: None,
        ended: None,
        tasks: BTreeMap::new(),
        attempt: model::Attempt(0),
        preemptions: 0,
        held_node: true,
        first_error: None,
        progress: Some(Progress::default()),
        given: 0,
        kept: None,
        family: None,
        registered: Default::default(),
    })
}

#[test]
fn a_resume_takes_over_only_its_own_kind() {
    let mut shelf = Shelf::new();
    let (first, _) = shelf.invoke(&invoke()).unwrap();
    let canceled = || RunState::Done(Outcome::Canceled(Why::CancelAsked));
    let mut again = invoke();
    again["properties"]["properties"] = json!({"zaffre.resume_from": "old", "experimentName": "e"});
    let says = |shelf: &Shelf| shelf.invoke(&again).unwrap_err().message;
    assert_eq!(says(&shelf), "job old does not exist in workspace w");
    for (state, rule) in [
        (RunState::Running, "it has not ended"),
        (RunState::Done(Outcome::Completed), "it is completed"),
    ] {
        shelf
            .runs
            .insert(JobId::new(&workspace(), "old"), ended(&first, state));
        assert!(says(&shelf).contains(rule));
    }
    shelf
        .runs
        .insert(JobId::new(&workspace(), "old"), ended(&first, canceled()));
    let (run, document) = shelf.invoke(&again).unwrap();
    assert_eq!(batch(&run).resume_from.as_ref().unwrap().name(), "old");
    assert_eq!(batch(&run).fingerprint, batch(&first).fingerprint);
    assert_eq!(
        document["properties"]["properties"]["zaffre.resume_from"],
        "old"
    );
    assert_eq!(document["properties"]["experimentName"], "e");
    // what does not change rows may differ, what does may not
    shelf.deploy(json!({"retrySettings": {"maxRetries": 9}, "maxConcurrencyPerInstance": 1, "errorThreshold": 5}));
    shelf.invoke(&again).unwrap();
    shelf.deploy(json!({"miniBatchSize": 3}));
    assert_eq!(
        says(&shelf),
        "cannot resume from old: mini_batch_size differ from that run"
    );
    shelf.deploy(json!({"miniBatchSize": 2, "environmentVariables": {"A": "1"}}));
    assert_eq!(
        says(&shelf),
        "cannot resume from old: environment variables differ from that run"
    );
    shelf.deploy(
        json!({"environmentVariables": {}, "properties": {"zaffre.append_row_format": "azure"}}),
    );
    assert_eq!(
        says(&shelf),
        "cannot resume from old: row format differ from that run"
    );
    shelf.deploy(json!({"properties": {}}));
    let mut other = again.clone();
    other["properties"]["inputData"]["UriFolder"]["uri"] = json!("azureml:rows:1");
    assert!(
        shelf
            .invoke(&other)
            .unwrap_err()
            .message
            .contains("the input is another one")
    );
}

#[test]
fn the_properties_of_zaffre_reach_the_run() {
    let mut shelf = Shelf::new();
    shelf.deploy(json!({"properties": {"zaffre.on_capacity_loss": "wait", "zaffre.append_row_format": "azure",
        "zaffre.append_row_header": "true", "zaffre.max_preemptions": "5"}}));
    let (run, _) = shelf.invoke(&invoke()).unwrap();
    let Program::Pool(pool) = &run.task.program else {
        panic!()
    };
    assert_eq!((pool.format, pool.header), (RowFormat::Azure, true));
    assert_eq!(
        (batch(&run).on_capacity_loss, batch(&run).max_preemptions),
        (OnCapacityLoss::Wait, Some(5))
    );
    shelf.deploy(json!({"outputAction": "summary_only"}));
    let (run, document) = shelf.invoke(&invoke()).unwrap();
    let Program::Pool(pool) = &run.task.program else {
        panic!()
    };
    assert_eq!(
        (batch(&run).output.clone(), pool.collect, pool.header),
        (BatchOutput::SummaryOnly, false, false)
    );
    assert_eq!(
        document["properties"]["properties"].get("zaffre.output_file"),
        None
    );
}
