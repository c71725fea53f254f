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

/// What the two answer differently on purpose, or where the peer is not Azure.
const DIFFERENT: &[&str] = &[
    // Azure refuses a range of an empty blob, and so does this server; the peer gives the blob.
    "range of nothing",
    // Azure's own code is Md5Mismatch, as here; the peer has another.
    "wrong md5",
];
/// The peer, by name and version: the newest that runs on every Node that we build with.
const PEER: &str = "azurite@3.35.0";
/// The account that every copy of the peer has, and its published key.
const PEER_ACCOUNT: &str = "devstoreaccount1";
const PEER_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The peer's program, installed once per target folder; nothing where there is no npm or no index.
fn peer() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("ZAFFRE_AZURITE") {
        return Some(program.into());
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("azurite-3.35.0");
    let program = folder.join("node_modules/.bin/azurite-blob");
    if program.exists() {
        return Some(program);
    }
    let fresh = folder.with_extension(format!("fresh.{}", std::process::id()));
    fs::create_dir_all(&fresh).unwrap();
    let installed = Command::new("npm")
        .args(["install", "--no-fund", "--no-audit", "--silent", PEER])
        .current_dir(&fresh)
        .output();
    let why = match installed {
        Ok(output) if output.status.success() => {
            if fs::rename(&fresh, &folder).is_err() {
                fs::remove_dir_all(&fresh).unwrap();
            }
            return Some(program);
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    fs::remove_dir_all(&fresh).unwrap();
    // Past the capture of the test harness: what was left out is part of the result.
    let line = format!("SKIPPED the comparison with {PEER}: npm cannot install it: {why}\n");
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
    None
}

/// A running peer; gone with the value.
struct Peer {
    child: std::process::Child,
    url: String,
}

impl Peer {
    fn start(program: &std::path::Path, folder: &std::path::Path) -> Peer {
        let mut child = Command::new(program)
            .args(["--blobHost", "127.0.0.1", "--blobPort", "0"])
            .args([
                "--inMemoryPersistence",
                "--skipApiVersionCheck",
                "--disableTelemetry",
                "--silent",
            ])
            .current_dir(folder)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let out = std::io::BufReader::new(child.stdout.take().unwrap());
        let listening = "successfully listens on ";
        let line = std::io::BufRead::lines(out)
            .map(Result::unwrap)
            .find(|line| line.contains(listening))
            .expect("the peer says where it listens");
        let at = line.find(listening).unwrap() + listening.len();
        let url = line[at..].trim().to_owned();
        Peer { child, url }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn blob_calls(args: &[&str]) -> Vec<serde_json::Value> {
    let output = Command::new(python())
        .args(["-c", include_str!("plane/blobs.py")])
        .args(args)
        .env("NO_PROXY", "*")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{error}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The container of a datastore with a signature for it, as the SDK gets them.
fn signed_container(server: &Server) -> String {
    let datastore = |path: &str, post: bool| -> serde_json::Value {
        let token = fs::read_to_string(server.data().join("token")).unwrap();
        let url = format!(
            "{}/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/\
             Microsoft.MachineLearningServices/workspaces/default/datastores/workspaceblobstore{path}",
            server.url
        );
        let script = "import json, ssl, sys, urllib.request\n\
                      url, token, ca, method = sys.argv[1:]\n\
                      request = urllib.request.Request(url, method=method, headers={'Authorization': 'Bearer ' + token})\n\
                      print(urllib.request.urlopen(request, context=ssl.create_default_context(cafile=ca)).read().decode())";
        let output = Command::new(python())
            .args(["-c", script, &url, token.trim()])
            .arg(server.data().join("ca.pem"))
            .arg(if post { "POST" } else { "GET" })
            .env("NO_PROXY", "*")
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
    };
    let container = datastore("", false);
    let container = container["properties"]["containerName"].as_str().unwrap();
    let secrets = datastore("/listSecrets", true);
    format!(
        "{}/storage/zaffre/{container}?{}",
        server.url,
        secrets["sasToken"].as_str().unwrap()
    )
}

#[test]
fn the_blob_client_of_azure_finds_here_what_it_finds_at_the_peer() {
    // Nine blocks and nine ranges, with the small limits of the script.
    const MIB: &str = "9";
    let server = Server::start();
    let url = signed_container(&server);
    let ca = server.data().join("ca.pem");
    let ours = blob_calls(&["sas", &url, ca.to_str().unwrap(), MIB]);
    let said = |what: &str| {
        let mut all = ours.iter().filter(|line| line["what"] == what);
        all.next().unwrap_or_else(|| panic!("{what} was not said"))
    };
    assert_eq!(said("large")["read"], true);
    assert_eq!(said("wrong md5")["status"], 400);
    assert_eq!(said("wrong md5 leaves nothing")["status"], 404);
    assert_eq!(said("pages")["names"], said("list")["names"]);
    let Some(program) = peer() else {
        server.stop();
        return;
    };
    let peer = Peer::start(&program, &server.folder);
    let account = format!("{}/{PEER_ACCOUNT}", peer.url);
    let theirs = blob_calls(&["key", &account, PEER_ACCOUNT, PEER_KEY, MIB]);
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let what = theirs["what"].as_str().unwrap();
        if !DIFFERENT.contains(&what) {
            assert_eq!(ours, theirs, "ours on the left, the peer's on the right");
        }
    }
    drop(peer);
    server.stop();
}
