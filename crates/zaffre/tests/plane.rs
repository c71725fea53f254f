//! The data plane with clients that are not ours: plain `mlflow` in a job and outside, and the blob client of Azure's SDK.
//!
//! Their Python is made once per target folder, or is the one that `ZAFFRE_PLANE_PYTHON` names.

mod support;

use std::{fs, path::PathBuf, process::Command, time::Duration};
use support::{Server, venv};

/// What the clients are. `mlflow-skinny` is MLflow without what it needs to serve.
const REQUIREMENTS: [&str; 2] = ["mlflow-skinny==3.17.2", "azure-storage-blob==12.31.1"];
/// The same MLflow as an environment of a job.
const CONDA: &str = "\
name: mlflow
dependencies:
  - python=3.11
  - pip:
      - mlflow-skinny==3.17.2
";
const TRAIN: &str = "\
name: train
command: python train.py ${{outputs.got}}
code: ./src
experiment_name: 心臓
compute: azureml:c01
environment:
  image: library/python:latest
  conda_file: ./conda.yml
outputs:
  got: {type: uri_folder}
";
/// For a job to be done on a busy machine.
const LONG: Duration = Duration::from_secs(240);

fn python() -> PathBuf {
    venv::python("ZAFFRE_PLANE_PYTHON", &REQUIREMENTS)
}

fn with_cluster() -> Server {
    let server = Server::start();
    server.ok(&[
        "compute",
        "create",
        "-n",
        "c01",
        "--type",
        "amlcompute",
        "--max-instances",
        "1",
    ]);
    server
}

#[test]
fn plain_mlflow_in_a_job_needs_nothing_but_what_is_injected() {
    let server = with_cluster();
    let code = server.folder.join("src");
    fs::create_dir_all(&code).unwrap();
    fs::write(code.join("train.py"), include_str!("plane/train.py")).unwrap();
    fs::write(server.folder.join("conda.yml"), CONDA).unwrap();
    fs::write(server.folder.join("train.yml"), TRAIN).unwrap();
    let file = server.folder.join("train.yml");
    server.ok(&["job", "create", "-f", file.to_str().unwrap()]);
    let ended = |s: &Server| {
        let status = s.value(&["job", "show", "-n", "train"], "status");
        ["Completed", "Failed", "Canceled"].contains(&status.as_str())
    };
    server.wait("the job ends", LONG, ended);
    let log = server
        .command(&["job", "stream", "-n", "train"])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let status = server.value(&["job", "show", "-n", "train"], "status");
    assert_eq!(status, "Completed", "{log}\n{}", server.log());
    assert!(log.contains("logged train"), "{log}");

    let shown = server.ok(&["job", "show", "-n", "train", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["metrics"]["accuracy"], 0.9);
    assert_eq!(shown["metrics"]["loss/学習"], "Infinity");
    assert_eq!(shown["parameters"]["lr"], "0.1");
    assert_eq!(shown["tags"]["team"], "赤");
    let table = server.ok(&["job", "show", "-n", "train", "-o", "table"]);
    assert!(
        table.contains("metrics: accuracy=0.9 f1=0.25 loss/学習=Infinity"),
        "{table}"
    );
    let model = server.ok(&["model", "show", "-n", "trained", "-v", "1", "-o", "json"]);
    let model: serde_json::Value = serde_json::from_str(&model).unwrap();
    assert_eq!(model["type"], "mlflow_model", "{model}");
    let into = server.folder.join("down");
    server.ok(&[
        "job",
        "download",
        "-n",
        "train",
        "-p",
        into.to_str().unwrap(),
    ]);
    let all = walk(&into);
    assert!(all.iter().any(|f| f.ends_with("notes/読む.txt")), "{all:?}");
    assert!(all.iter().any(|f| f.ends_with("model/.hidden")), "{all:?}");
    server.stop();
}

/// Every file below a folder, relative to it.
fn walk(folder: &std::path::Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                out.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    out
}

/// What a metric was told before a kill is there after it, and a program outside a job logs with the server's own token.
#[test]
fn what_a_metric_said_survives_a_kill() {
    let mut server = Server::start();
    let python_with = |server: &Server, text: &str| {
        let id = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default";
        let token = fs::read_to_string(server.data().join("token")).unwrap();
        let output = Command::new(python())
            .args(["-c", text])
            .current_dir(&server.folder)
            .env("HOME", &server.folder)
            .env(
                "MLFLOW_TRACKING_URI",
                format!("{}/mlflow/v2.0{id}", server.url),
            )
            .env("MLFLOW_TRACKING_TOKEN", token.trim())
            .env(
                "MLFLOW_TRACKING_SERVER_CERT_PATH",
                server.data().join("ca.pem"),
            )
            .env("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
            .env_remove("MLFLOW_RUN_ID")
            .output()
            .unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(output.status.success(), "{out}{err}{}", server.log());
        out.trim().to_owned()
    };
    let id = python_with(
        &server,
        "import mlflow\nmlflow.set_experiment('outside')\nrun = mlflow.start_run(run_name='r')\n\
         mlflow.log_metric('m', 1.5, step=3)\nmlflow.log_params({'a': 1})\nprint(run.info.run_id)\nimport os\nos._exit(0)",
    );
    server.kill();
    server.restart();
    let said = python_with(
        &server,
        &format!(
            "import mlflow\nr = mlflow.get_run('{id}')\nprint(r.data.metrics, r.data.params, r.info.status, r.info.run_name)"
        ),
    );
    assert_eq!(said, "{'m': 1.5} {'a': '1'} RUNNING r");
    server.stop();
}
