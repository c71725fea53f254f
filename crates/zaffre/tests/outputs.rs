//! What becomes of the outputs of jobs: assets, places that the user names, modes.

mod support;

use serde_json::Value;
use std::{fs, process::Command, time::Duration};
use support::{
    Server,
    peer::{self, Peer},
    plain::{Plain, WS},
    python, repository, write,
};

const LONG: Duration = Duration::from_secs(120);

fn with_cluster(server: &Server) {
    let cluster = repository().join("examples/hello/cluster.yml");
    let cluster = cluster.display().to_string();
    server.ok(&["compute", "create", "-f", &cluster, "-o", "none"]);
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A command job's file.
fn command(server: &Server, name: &str, command: &str, rest: &str) -> String {
    let text = format!(
        "type: command\ncommand: >-\n  {command}\nenvironment:\n  image: library/python:latest\n\
         compute: azureml:cpu-cluster\n{rest}"
    );
    write(&server.folder, name, &text);
    server.folder.join(name).display().to_string()
}

fn show(server: &Server, kind: &str, name: &str, version: &str) -> Value {
    json(&server.ok(&[kind, "show", "-n", name, "-v", version, "-o", "json"]))
}

fn versions(server: &Server, kind: &str, name: &str) -> Vec<String> {
    let all = json(&server.ok(&[kind, "list", "-n", name, "-o", "json"]));
    let all = all.as_array().unwrap().iter();
    let mut all: Vec<String> = all
        .map(|v| v["version"].as_str().unwrap().to_owned())
        .collect();
    all.sort();
    all
}

#[test]
fn an_output_with_a_name_becomes_the_next_version_of_an_asset_once() {
    let mut server = Server::start();
    with_cluster(&server);
    let file = command(
        &server,
        "train.yml",
        "echo ${{inputs.n}} > ${{outputs.rows}}/n && mkdir -p ${{outputs.model}} && echo w > ${{outputs.model}}/MLmodel && \
         echo one > ${{outputs.one}} && exit ${{inputs.code}}",
        "inputs:\n  n: 1\n  code: 0\noutputs:\n  rows:\n    name: rows\n  model:\n    type: mlflow_model\n    name: clf\n\
         \x20   version: \"7\"\n  one:\n    type: uri_file\n    name: one\n    mode: upload\n  plain: {}\n",
    );
    server.ok(&["job", "create", "-f", &file, "-n", "first", "--stream"]);
    let rows = show(&server, "data", "rows", "1");
    assert_eq!(rows["type"], "uri_folder");
    let path = rows["path"].as_str().unwrap();
    assert!(
        path.ends_with("/datastores/workspaceblobstore/paths/azureml/first/rows/"),
        "{path}"
    );
    let model = show(&server, "model", "clf", "7");
    assert_eq!(model["type"], "mlflow_model");
    assert_eq!(model["job_name"], "first", "{model}");
    let one = show(&server, "data", "one", "1");
    assert_eq!(one["type"], "uri_file");
    let job = json(&server.ok(&["job", "show", "-n", "first", "-o", "json"]));
    let shown = &job["outputs"]["rows"];
    assert_eq!(
        (&shown["name"], &shown["version"]),
        (&"rows".into(), &"1".into()),
        "{job}"
    );
    assert_eq!(job["outputs"]["plain"]["name"], Value::Null);

    // What is registered is fetched as every other output is.
    server.ok(&["job", "download", "-n", "first", "--all", "-p", "got"]);
    let got = server.folder.join("got/named-outputs");
    assert_eq!(fs::read_to_string(got.join("rows/n")).unwrap(), "1\n");
    assert_eq!(
        fs::read_to_string(got.join("model/MLmodel")).unwrap(),
        "w\n"
    );
    assert_eq!(fs::read_to_string(got.join("one/one")).unwrap(), "one\n");

    // A version that is there is refused at once, and nothing runs.
    let said = server.run(&["job", "create", "-f", &file, "-n", "second"]);
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success(), "{text}");
    assert!(text.contains("model clf:7 exists already"), "{text}");

    // A failed job registers nothing.
    let failed = server.run(&[
        "job",
        "create",
        "-f",
        &file,
        "-n",
        "third",
        "--stream",
        "--set",
        "inputs.code=3",
        "--set",
        "outputs.model.version=8",
    ]);
    assert!(!failed.status.success());
    assert_eq!(versions(&server, "data", "rows"), ["1"]);
    assert_eq!(versions(&server, "model", "clf"), ["7"]);

    // A version that somebody makes while the job runs makes it fail; none of its outputs is registered.
    let gate = server.folder.join("go");
    let slow = command(
        &server,
        "slow.yml",
        &format!(
            "echo 2 > ${{{{outputs.rows}}}}/n && while [ ! -e {} ]; do sleep 0.1; done",
            gate.display()
        ),
        "outputs:\n  more:\n    name: more\n  rows:\n    name: rows\n    version: \"2\"\n",
    );
    server.ok(&["job", "create", "-f", &slow, "-n", "fourth"]);
    server.wait("the job runs", LONG, |s| {
        s.value(&["job", "show", "-n", "fourth"], "status") == "Running"
    });
    fs::create_dir(server.folder.join("mine")).unwrap();
    write(&server.folder.join("mine"), "n", "mine");
    write(
        &server.folder,
        "rows.yml",
        "name: rows\nversion: 2\ntype: uri_folder\npath: ./mine\n",
    );
    server.ok(&["data", "create", "-f", "rows.yml", "-o", "none"]);
    // Across a kill of the server, which is the harder way.
    server.kill();
    server.restart();
    fs::write(gate, "").unwrap();
    server.wait("the job ends", LONG, |s| {
        s.value(&["job", "show", "-n", "fourth"], "status") == "Failed"
    });
    let why = server.ok(&["job", "explain", "-n", "fourth"]);
    assert!(
        why.contains(
            "output rows is kept and has not become data asset rows:2: that version is there"
        ),
        "{why}"
    );
    assert!(
        !server
            .run(&["data", "show", "-n", "more", "-v", "1"])
            .status
            .success()
    );

    // Without a version: the next one.
    server.ok(&[
        "job",
        "create",
        "-f",
        &file,
        "-n",
        "fifth",
        "--stream",
        "--set",
        "inputs.n=5",
        "--set",
        "outputs.model.version=9",
    ]);
    assert_eq!(versions(&server, "data", "rows"), ["1", "2", "3"]);
    server.stop();
}

/// What a job does with an address: it asks who it is, gets a signature for the datastore, and reads and writes blobs there.
const DIRECT: &str = r#"
import json, os, ssl, sys, urllib.parse, urllib.request as r
env = os.environ
trust = ssl.create_default_context(cafile=env["REQUESTS_CA_BUNDLE"])
url = env["ARM_CLOUD_METADATA_URL"][:-len("/metadata/endpoints")]
def ask(at, method="GET", body=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return r.urlopen(r.Request(at, body, headers, method=method), context=trust).read()
me = json.loads(ask(env["IDENTITY_ENDPOINT"] + "?api-version=2019-08-01&resource=" + url, X_IDENTITY_HEADER=env["IDENTITY_HEADER"]))
token = {"Authorization": "Bearer " + me["access_token"]}
def blob(address):
    scope, rest = address[len("azureml://"):].split("/datastores/")
    name, path = rest.split("/paths/")
    words = scope.split("/")
    store = f"{url}/subscriptions/{words[1]}/resourceGroups/{words[3]}/providers/Microsoft.MachineLearningServices/workspaces/{words[5]}/datastores/{name}"
    p = json.loads(ask(store, **token))["properties"]
    sas = json.loads(ask(store + "/listSecrets", "POST", b"{}", **token))["sasToken"]
    return f"https://{p['accountName']}.blob.{p['endpoint']}/{p['containerName']}/{urllib.parse.quote(path)}", sas
source, target = sys.argv[1:]
assert env["AZURE_ML_INPUT_in"] == source and env["AZURE_ML_OUTPUT_out"] == target, env
at, sas = blob(source)
text = ask(f"{at}n?{sas}")
at, sas = blob(target)
ask(f"{at}copy?{sas}", "PUT", text.upper(), x_ms_blob_type="BlockBlob")
print("reads", source, "writes", target)
"#;

#[test]
fn a_direct_input_and_output_are_addresses_that_the_job_can_use() {
    let server = Server::start();
    with_cluster(&server);
    fs::create_dir(server.folder.join("rows")).unwrap();
    write(&server.folder.join("rows"), "n", "seven");
    let data = "name: rows\nversion: 1\ntype: uri_folder\npath: ./rows\n";
    write(&server.folder, "rows.yml", data);
    server.ok(&["data", "create", "-f", "rows.yml", "-o", "none"]);
    fs::create_dir(server.folder.join("src")).unwrap();
    write(&server.folder.join("src"), "direct.py", DIRECT);
    let ports = "code: ./src\ninputs:\n  in:\n    type: uri_folder\n    path: azureml:rows:1\n    mode: direct\noutputs:\n\
        \x20 out:\n    mode: direct\n    name: shouted\n";
    let file = command(
        &server,
        "direct.yml",
        "python direct.py ${{inputs.in}} ${{outputs.out}}",
        ports,
    );
    let log = server.ok(&["job", "create", "-f", &file, "-n", "direct", "--stream"]);
    assert!(log.contains("output out: direct, its address"), "{log}");
    let at = show(&server, "data", "shouted", "1");
    assert!(
        log.contains(&format!("writes {}", at["path"].as_str().unwrap())),
        "{log}"
    );
    server.ok(&[
        "job",
        "download",
        "-n",
        "direct",
        "--output-name",
        "out",
        "-p",
        "got",
    ]);
    let got = server.folder.join("got/named-outputs/out/copy");
    assert_eq!(fs::read_to_string(got).unwrap(), "SEVEN");
    server.stop();
}

#[test]
fn an_output_goes_to_an_attached_folder_and_is_read_from_there() {
    let away = tempfile::tempdir().unwrap();
    let folder = format!("out={}", away.path().display());
    let server = Server::start_with(&["--folder", &folder]);
    with_cluster(&server);
    let store = "$schema: https://azuremlschemas.azureedge.net/latest/azureBlob.schema.json\nname: mine\ntype: azure_blob\n\
        account_name: folder\ncontainer_name: out\ntags: {zaffre.folder: out}\n";
    write(&server.folder, "mine.yml", store);
    server.ok(&["datastore", "create", "-f", "mine.yml", "-o", "none"]);
    fs::create_dir_all(away.path().join("x/y")).unwrap();
    fs::write(away.path().join("x/y/old"), "stays").unwrap();
    let file = command(
        &server,
        "send.yml",
        "echo 7 > ${{outputs.rows}}/n && echo one > ${{outputs.one}}",
        "outputs:\n  rows:\n    path: azureml://datastores/mine/paths/x/y\n    name: rows\n  one:\n    type: uri_file\n\
         \x20   path: azureml://subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/workspaces/default/datastores/mine/paths/one.txt\n",
    );
    let log = server.ok(&["job", "create", "-f", &file, "-n", "sender", "--stream"]);
    assert!(
        log.contains("output rows: a folder of the task's own, sent to datastore mine"),
        "{log}"
    );
    let there = |name: &str| fs::read_to_string(away.path().join(name)).unwrap_or_default();
    assert_eq!(there("x/y/n"), "7\n");
    assert_eq!(there("x/y/old"), "stays");
    assert_eq!(there("one.txt"), "one\n");
    let kept = server.data().join("blobs");
    let here = Command::new("find")
        .arg(kept)
        .args(["-path", "*azureml/sender/rows/n"])
        .output();
    assert!(here.unwrap().stdout.is_empty(), "it is kept once");

    let rows = show(&server, "data", "rows", "1");
    assert!(
        rows["path"]
            .as_str()
            .unwrap()
            .ends_with("/datastores/mine/paths/x/y/"),
        "{rows}"
    );
    let reads = |name: &str, path: &str| {
        let ports = format!("inputs:\n  in:\n    type: uri_folder\n    path: {path}\n");
        let file = command(
            &server,
            "read.yml",
            "cat ${{inputs.in}}/n ${{inputs.in}}/old",
            &ports,
        );
        let log = server.ok(&["job", "create", "-f", &file, "-n", name, "--stream"]);
        assert!(log.contains("7\nstays"), "{log}");
    };
    reads("by-asset", "azureml:rows:1");
    reads("by-job", "azureml://jobs/sender/outputs/rows");

    // A datastore that is detached while the job runs: the job fails, and what it has made is kept here.
    let gate = server.folder.join("go");
    let file = command(
        &server,
        "late.yml",
        &format!(
            "echo 8 > ${{{{outputs.rows}}}}/n && while [ ! -e {} ]; do sleep 0.1; done",
            gate.display()
        ),
        "outputs:\n  rows:\n    path: azureml://datastores/mine/paths/late\n",
    );
    server.ok(&["job", "create", "-f", &file, "-n", "late"]);
    server.wait("the job runs", LONG, |s| {
        s.value(&["job", "show", "-n", "late"], "status") == "Running"
    });
    server.ok(&["datastore", "delete", "-n", "mine", "--yes", "-o", "none"]);
    fs::write(gate, "").unwrap();
    server.wait("the job ends", LONG, |s| {
        s.value(&["job", "show", "-n", "late"], "status") == "Failed"
    });
    let why = server.ok(&["job", "explain", "-n", "late"]);
    assert!(
        why.contains("output rows cannot be sent to datastore mine"),
        "{why}"
    );
    assert!(why.contains("it is kept as azureml/late/rows"), "{why}");
    server.stop();
}

#[test]
fn an_output_goes_to_a_storage_of_azures_kind_and_its_key_is_nowhere() {
    let server = Server::start();
    let Some(program) = peer::program() else {
        return server.stop();
    };
    let storage = Peer::start(&program, &server.folder);
    let place = storage.url.trim_start_matches("http://");
    let account = format!("{place}/{}", peer::ACCOUNT);
    with_cluster(&server);
    let store = format!(
        "$schema: https://azuremlschemas.azureedge.net/latest/azureBlob.schema.json\nname: away\ntype: azure_blob\n\
         account_name: {}\ncontainer_name: rows\nprotocol: http\ncredentials: {{account_key: {}}}\n",
        account,
        peer::KEY
    );
    write(&server.folder, "away.yml", &store);
    server.ok(&["datastore", "create", "-f", "away.yml", "-o", "none"]);
    let python = |script: &str| {
        let output = Command::new(python::python())
            .args(["-c", script, &account, peer::KEY])
            .env("NO_PROXY", "*")
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).unwrap()
    };
    let open = "import sys\nfrom azure.storage.blob import ContainerClient\n\
        box = ContainerClient('http://' + sys.argv[1], 'rows', credential={'account_name': 'devstoreaccount1', 'account_key': sys.argv[2]})\n";
    python(&format!("{open}box.create_container()"));
    let file = command(
        &server,
        "send.yml",
        "echo 7 > ${{outputs.out}}/n && head -c 20971520 /dev/zero > ${{outputs.out}}/large",
        "outputs:\n  out:\n    path: azureml://datastores/away/paths/made/here/\n",
    );
    let log = server.ok(&["job", "create", "-f", &file, "-n", "sender", "--stream"]);
    let said = python(&format!(
        "{open}print(sorted((b.name, b.size) for b in box.list_blobs()))"
    ));
    assert_eq!(
        said.trim(),
        "[('made/here/large', 20971520), ('made/here/n', 2)]"
    );
    let shown = server.ok(&["job", "show", "-n", "sender", "-o", "json"]);
    for text in [&log, &shown, &server.log()] {
        assert!(!text.contains(&peer::KEY[..20]), "{text}");
    }
    server.stop();
}

#[test]
fn a_job_of_a_removed_ones_name_begins_with_nothing() {
    let mut server = Server::start();
    with_cluster(&server);
    let first = command(
        &server,
        "first.yml",
        "echo the first && mkdir -p outputs && echo 1 > outputs/f",
        "",
    );
    let second = command(
        &server,
        "second.yml",
        "echo the second && ls outputs logs",
        "",
    );
    server.ok(&["job", "create", "-f", &first, "-n", "again", "--stream"]);
    for round in 0..2 {
        let plain = Plain::of(&server.url, &server.token());
        let gone = plain.ask("DELETE", &format!("{WS}/jobs/again"), &[], "");
        assert_eq!(gone.unwrap().status, 200);
        if round == 1 {
            server.kill();
            server.restart();
        }
        let said = server.ok(&["job", "create", "-f", &second, "-n", "again", "--stream"]);
        assert!(said.contains("the second\n"), "{said}");
        assert!(!said.contains("the first"), "its log is its own: {said}");
        assert!(!said.contains("\nf\n"), "so are its files: {said}");
        assert_eq!(said.matches("the second").count(), 1, "{said}");
    }
    server.stop();
}

#[test]
fn files_of_pipelines_and_sweeps_name_assets_too() {
    let server = Server::start();
    with_cluster(&server);
    let step = "    type: command\n    environment:\n      image: library/python:latest\n";
    let pipeline = format!(
        "type: pipeline\ncompute: azureml:cpu-cluster\noutputs:\n  result:\n    type: uri_folder\n    name: whole\n    version: \"5\"\n\
         jobs:\n  one:\n{step}    command: echo 1 > ${{{{outputs.rows}}}}/n\n    outputs:\n      rows:\n        type: uri_folder\n\
         \x20       name: rows\n  two:\n{step}    command: cp ${{{{inputs.rows}}}}/n ${{{{outputs.out}}}}/m\n    inputs:\n\
         \x20     rows: ${{{{parent.jobs.one.outputs.rows}}}}\n    outputs:\n      out: ${{{{parent.outputs.result}}}}\n"
    );
    write(&server.folder, "pipeline.yml", &pipeline);
    let run = |name: &str| {
        server.run(&[
            "job",
            "create",
            "-f",
            "pipeline.yml",
            "-n",
            name,
            "--stream",
        ])
    };
    let said = run("pipe");
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    assert_eq!(versions(&server, "data", "rows"), ["1"]);
    let whole = show(&server, "data", "whole", "5");
    assert!(
        whole["path"]
            .as_str()
            .unwrap()
            .ends_with("/azureml/pipe/result/"),
        "{whole}"
    );
    let job = json(&server.ok(&["job", "show", "-n", "pipe", "-o", "json"]));
    assert_eq!(job["outputs"]["result"]["version"], "5", "{job}");
    let refused = run("again");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("data asset whole:5 exists already"), "{text}");

    let sweep = fs::read_to_string(repository().join("examples/sweep/sweep.yml")).unwrap();
    let code = repository()
        .join("examples/sweep/src")
        .display()
        .to_string();
    let sweep = sweep.replace("./src", &code).replace(
        "command: python train.py ${{search_space.rate}} ${{search_space.depth}}",
        "command: python train.py ${{search_space.rate}} ${{search_space.depth}} && echo ${{search_space.rate}} > ${{outputs.out}}/rate",
    ) + "outputs:\n  out:\n    type: custom_model\n    name: hill\n";
    write(&server.folder, "sweep.yml", &sweep);
    server.ok(&["job", "create", "-f", "sweep.yml", "-n", "hill", "--stream"]);
    let best = server.value(
        &["job", "show", "-n", "hill"],
        "properties.best_child_run_id",
    );
    let model = show(&server, "model", "hill", "1");
    assert_eq!(
        (&model["type"], &model["job_name"]),
        (&"custom_model".into(), &"hill".into())
    );
    assert!(
        model["path"]
            .as_str()
            .unwrap()
            .contains(&format!("/{best}/")),
        "{model}"
    );
    assert_eq!(versions(&server, "model", "hill"), ["1"]);
    server.stop();
}
