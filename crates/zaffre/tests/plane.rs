//! The data plane with clients that are not ours: plain `mlflow` in a job and outside, and the blob client of Azure's SDK.
//!
//! Their Python is made once per target folder, or is the one that `ZAFFRE_PLANE_PYTHON` names.

mod support;

use std::{fs, path::PathBuf, process::Command, time::Duration};
use support::{Server, peer, venv};

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

/// What `autolog` needs beside MLflow.
const LEARNING: &str = "\
name: learning
dependencies:
  - python=3.11
  - pip: [mlflow-skinny==3.17.2, scikit-learn, skops, pandas]
";

#[test]
fn what_mlflow_logs_by_itself_is_there_and_what_is_not_offered_breaks_no_job() {
    let server = with_cluster();
    let write = |name: &str, text: &str| support::write(&server.folder, name, text);
    write("src/autolog.py", include_str!("plane/autolog.py"));
    write("conda.yml", LEARNING);
    let job = TRAIN
        .replace("train.py ${{outputs.got}}", "autolog.py")
        .replace("outputs:\n  got: {type: uri_folder}\n", "");
    write("job.yml", &job);
    server.ok(&["job", "create", "-f", "job.yml", "-n", "auto", "-o", "none"]);
    let output = server.run(&["job", "stream", "-n", "auto"]);
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    let status = server.value(&["job", "show", "-n", "auto"], "status");
    assert_eq!(status, "Completed", "{log}\n{}", server.log());
    for line in [
        "refused api/2.0/mlflow/traces",
        "refused prompts",
        "refused api/2.0/mlflow/webhooks",
        "all is well",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    // What nobody asked for by name.
    let shown = server.ok(&["job", "show", "-n", "auto", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["parameters"]["max_iter"], "200", "{shown}");
    assert_eq!(shown["tags"]["estimator_name"], "LogisticRegression");
    assert!(
        shown["metrics"]["training_accuracy_score"]
            .as_f64()
            .unwrap()
            > 0.9,
        "{shown}"
    );
    let model = server.value(&["model", "show", "-n", "iris", "-v", "1"], "type");
    assert_eq!(model, "mlflow_model");
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
    // Here the source is signed, there the request is: the peer has another code for each (tests/blobs.rs compares the first).
    "copy of nothing",
];
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
    let Some(program) = peer::program() else {
        server.stop();
        return;
    };
    let other = peer::Peer::start(&program, &server.folder);
    let account = format!("{}/{}", other.url, peer::ACCOUNT);
    let theirs = blob_calls(&["key", &account, peer::ACCOUNT, peer::KEY, MIB]);
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let what = theirs["what"].as_str().unwrap();
        if !DIFFERENT.contains(&what) {
            assert_eq!(ours, theirs, "ours on the left, the peer's on the right");
        }
    }
    drop(other);
    server.stop();
}

/// A job file with one input; `{0}` is its address.
const READ: &str = "\
command: find -L ${{inputs.in}} -type f | sort | sed s=.*/== && cat ${{inputs.in}}/日本/語.txt
environment: {image: library/python:latest}
compute: azureml:c01
inputs:
  in: {type: uri_folder, mode: MODE, path: PATH}
";

#[test]
fn jobs_find_their_files_under_every_address_and_leave_nothing_that_leads_out() {
    let server = with_cluster();
    let data = server.folder.join("data in");
    fs::create_dir_all(data.join("日本")).unwrap();
    fs::write(data.join("日本/語.txt"), "読めた\n").unwrap();
    fs::write(data.join(".hidden"), "").unwrap();
    fs::write(data.join("a b.csv"), "1").unwrap();
    let made = server.ok(&[
        "data",
        "create",
        "-n",
        "d",
        "-v",
        "1",
        "--type",
        "uri_folder",
        "--path",
        data.to_str().unwrap(),
        "-o",
        "json",
    ]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let long = made["path"].as_str().unwrap().to_owned();
    let inner = long.split_once("/datastores/").unwrap().1;
    let id = made["id"].as_str().unwrap();
    let copy = "\
name: copier
command: cp -r ${{inputs.in}}/. ${{outputs.out}}/ && ln -s /etc/passwd ${{outputs.out}}/leak && ln -s /etc ${{outputs.out}}/leaks
environment: {image: library/python:latest}
compute: azureml:c01
inputs:
  in: {type: uri_folder, path: azureml:d:1}
outputs:
  out: {type: uri_folder, mode: upload}
";
    let run = |name: &str, text: &str| {
        let file = server.folder.join(format!("{name}.yml"));
        fs::write(&file, text).unwrap();
        server.ok(&[
            "job",
            "create",
            "-f",
            file.to_str().unwrap(),
            "--set",
            &format!("name={name}"),
        ]);
        let log = server
            .command(&["job", "stream", "-n", name])
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&log.stdout).into_owned();
        let status = server.value(&["job", "show", "-n", name], "status");
        (status, log)
    };
    let (status, log) = run("copier", copy);
    assert_eq!(status, "Completed", "{log}");
    assert!(
        log.contains("output out: 2 entries are neither files nor folders"),
        "{log}"
    );
    let into = server.folder.join("got");
    server.ok(&[
        "job",
        "download",
        "-n",
        "copier",
        "--output-name",
        "out",
        "-p",
        into.to_str().unwrap(),
    ]);
    let got = walk(&into);
    assert_eq!(got.len(), 3, "{got:?}");
    assert!(got.iter().any(|f| f.ends_with("日本/語.txt")), "{got:?}");
    assert!(got.iter().any(|f| f.ends_with(".hidden")), "{got:?}");

    let folders = [
        ("short", format!("azureml://datastores/{inner}")),
        ("long", long.clone()),
        (
            "louder",
            long.replace("/resourcegroups/", "/resourceGroups/"),
        ),
        ("asset", "azureml:d:1".to_owned()),
        ("typed", "azureml://data/d/versions/1".to_owned()),
        (
            "located",
            "azureml://locations/local/workspaces/default/data/d/versions/1".to_owned(),
        ),
        ("arm", format!("azureml:{id}")),
        ("output", "azureml://jobs/copier/outputs/out".to_owned()),
        (
            "made",
            "azureml:azureml_copier_output_data_out:1".to_owned(),
        ),
    ];
    for (n, (name, path)) in folders.iter().enumerate() {
        let mode = ["ro_mount", "download"][n % 2];
        let text = READ.replace("PATH", path).replace("MODE", mode);
        let (status, log) = run(&format!("read-{name}"), &text);
        assert_eq!(status, "Completed", "{path}: {log}");
        assert!(
            log.contains(&format!("input in: {mode}, ")),
            "{path}: {log}"
        );
        assert!(
            log.ends_with(".hidden\na b.csv\n語.txt\n読めた\n"),
            "{path}: {log}"
        );
    }
    let code = server.folder.join("src");
    fs::create_dir_all(&code).unwrap();
    fs::write(code.join("語.sh"), "echo 動く\n").unwrap();
    fs::write(code.join(".hidden"), "").unwrap();
    let coded = "command: ls -A && sh 語.sh\ncode: ./src\nenvironment: {image: library/python:latest}\ncompute: azureml:c01\n";
    let codes = ["one", "two"].map(|name| {
        let (status, log) = run(name, coded);
        assert_eq!(status, "Completed", "{log}");
        assert!(
            log.contains("\n.hidden\n") && log.ends_with("動く\n"),
            "{log}"
        );
        server.value(&["job", "show", "-n", name], "code")
    });
    assert_eq!(codes[0], codes[1], "code is stored once per content");
    let direct = READ
        .replace("PATH", "azureml:d:1")
        .replace("MODE", "direct");
    let direct = direct.replace(
        "find -L ${{inputs.in}} -type f | sort | sed s=.*/== && cat ${{inputs.in}}/日本/語.txt",
        "echo ${{inputs.in}}",
    );
    let (status, log) = run("direct", &direct);
    assert_eq!(status, "Completed", "{log}");
    assert!(
        log.contains("azureml://subscriptions/") && log.trim_end().ends_with('/'),
        "{log}"
    );
    for (name, path, says) in [
        (
            "outside",
            "azureml://datastores/workspaceblobstore/paths/a/../../b",
            "`..`",
        ),
        (
            "registry",
            "azureml://registries/azureml/data/d/versions/1",
            "registry",
        ),
    ] {
        let file = server.folder.join("bad.yml");
        fs::write(
            &file,
            READ.replace("PATH", path).replace("MODE", "ro_mount"),
        )
        .unwrap();
        let set = format!("name={name}");
        let refused = server
            .command(&["job", "create", "-f", file.to_str().unwrap(), "--set", &set])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && error.contains(says),
            "{path}: {error}"
        );
    }
    server.stop();
}

#[test]
fn a_large_upload_leaves_the_server_small() {
    // Far more than the server may hold, in the blocks and with the connections of the client's own choice.
    const MIB: u32 = 256;
    const MOST_KIB: u64 = 100 * 1024;
    let server = Server::start();
    let url = signed_container(&server);
    let script = "\
import io, sys
from azure.storage.blob import ContainerClient
url, ca, mib = sys.argv[1:]
size = int(mib) << 20
class Bytes(io.RawIOBase):
    at = 0
    piece = bytes(range(256)) * 4096
    def readable(self):
        return True
    def read(self, n=-1):
        n = min(n if n >= 0 else size, size - self.at)
        self.at += n
        return (self.piece * (n // len(self.piece) + 1))[:n]
box = ContainerClient.from_container_url(url, connection_verify=ca)
box.upload_blob('large', Bytes(), length=size, max_concurrency=4)
print(sum(len(piece) for piece in box.download_blob('large', max_concurrency=4).chunks()) == size)
";
    let output = Command::new(python())
        .args(["-c", script, &url])
        .arg(server.data().join("ca.pem"))
        .arg(MIB.to_string())
        .env("NO_PROXY", "*")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "True",
        "{error}"
    );
    let about = fs::read_to_string(server.data().join("server.json")).unwrap();
    let about: serde_json::Value = serde_json::from_str(&about).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", about["pid"])).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").trim().parse().unwrap();
    assert!(peak < MOST_KIB, "the server held {peak} KiB at once");
    server.stop();
}
