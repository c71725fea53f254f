//! Parallel steps as people use them, with real processes: `examples/parallel` (`pipeline.yml`, `count.yml`, `src/write.py`,
//! `src/count.py`, `src/add.py`), and a script that waits until the test has taken its node or its worker.

mod support;

use serde_json::Value;
use std::{collections::BTreeSet, fs};
use support::{
    Server,
    python::text,
    signal,
    site::{GATED, LONG, Meeting, fill},
};

fn example(name: &str) -> String {
    let path = support::repository().join("examples").join(name);
    path.display().to_string()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// An output of a job: the folder that it is downloaded to.
fn output(server: &Server, job: &str, name: &str, to: &str) -> std::path::PathBuf {
    server.ok(&[
        "job",
        "download",
        "-n",
        job,
        "--output-name",
        name,
        "-p",
        to,
    ]);
    server.folder.join(to).join("named-outputs").join(name)
}

#[test]
fn twenty_files_go_through_a_parallel_step_and_its_rows_to_a_command() {
    let server = Server::start();
    let cluster = example("hello/cluster.yml");
    server.ok(&["compute", "create", "-f", &cluster, "-o", "none"]);
    let file = example("parallel/pipeline.yml");
    let said = server.ok(&["job", "create", "-f", &file, "-n", "words", "--stream"]);
    assert!(
        said.contains("count: run words_count is completed"),
        "{said}"
    );
    let sum = output(&server, "words", "result", "got").join("sum.txt");
    // 3 words and as many more as the number of the file says
    assert_eq!(fs::read_to_string(sum).unwrap(), "20 files, 250 words");

    // what the workers wrote beside their rows, each to the same folder
    let long = output(&server, "words_count", "long_words", "long");
    assert_eq!(fs::read_dir(&long).unwrap().count(), 20);
    let one = fs::read_to_string(long.join("text01.txt")).unwrap();
    assert_eq!(one, "parallel\nstep\nreads");

    let job = json(&server.ok(&["job", "show", "-n", "words_count", "-o", "json"]));
    assert_eq!(job["status"], "Completed");
    assert_eq!(job["type"], "parallel");
    assert_eq!(job["parallel"]["task"]["entry_script"], "count.py");
    let streamed = server.ok(&["job", "stream", "-n", "words_count"]);
    assert!(
        streamed.contains("Processed 10 of 10 mini batches"),
        "{streamed}"
    );
    let count = |name: &str| server.count("words_count", name);
    assert_eq!(
        (count("files"), count("mini_batches_total"), count("rows")),
        (20, 10, 20)
    );
    let steps = json(&server.ok(&["job", "list", "-p", "words", "-o", "json"]));
    let steps: BTreeSet<&str> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        steps,
        BTreeSet::from(["words_add", "words_count", "words_write"])
    );
    assert_eq!(
        server
            .ok(&["job", "list", "-p", "words_count", "-o", "json"])
            .trim(),
        "[]"
    );

    // its logs are its own; every worker has said good-bye
    server.ok(&["job", "download", "-n", "words_count", "--all", "-p", "all"]);
    let logs = server.folder.join("all/artifacts/logs");
    let overview = fs::read_to_string(logs.join("job_progress_overview.txt")).unwrap();
    assert!(overview.contains("Scheduled 10 mini batches"), "{overview}");
    assert!(
        fs::read_to_string(logs.join("job_result.txt"))
            .unwrap()
            .contains("rows: 20")
    );
    let mut printed = String::new();
    for node in fs::read_dir(logs.join("user/stdout")).unwrap() {
        for file in fs::read_dir(node.unwrap().path()).unwrap() {
            printed += &fs::read_to_string(file.unwrap().path()).unwrap();
        }
    }
    assert!(
        printed.contains("this worker has nothing left to do"),
        "{printed}"
    );

    // an identical one is not run again
    let said = server.ok(&["job", "create", "-f", &file, "-n", "again", "--stream"]);
    assert!(
        said.contains("count: run again_count reuses the result of words_count"),
        "{said}"
    );
    let set = "jobs.count.mini_batch_size=5";
    let said = server.ok(&[
        "job", "create", "-f", &file, "-n", "five", "--set", set, "--stream",
    ]);
    assert!(
        said.contains("count: run five_count is submitted"),
        "{said}"
    );
    assert_eq!(server.count("five_count", "mini_batches_total"), 4);
    server.stop();
}

const CLUSTER: &str =
    "name: pool\ntype: amlcompute\nsize: Standard_D1_v2\nmax_instances: 2\ntier: low_priority\n";
const GATED_STEP: &str = "\
type: pipeline
compute: azureml:pool
inputs:
  rows: {type: uri_folder, path: ./in}
outputs:
  scores: {type: uri_folder}
jobs:
  score:
    type: parallel
    inputs: {rows: \"${{parent.inputs.rows}}\"}
    outputs: {scores: \"${{parent.outputs.scores}}\"}
    input_data: ${{inputs.rows}}
    mini_batch_size: \"2\"
    resources: {instance_count: 2}
    max_concurrency_per_instance: 2
    retry_settings: {max_retries: 1, timeout: 60}
    task:
      type: run_function
      code: ./code
      entry_script: score.py
      environment: {image: library/python:latest}
      append_row_to: ${{outputs.scores}}
    ";

/// Writes a file for each of its own before it waits, so that a node may be taken between the file and the row.
const BESIDE: &str = "\
score = run
def run(mini_batch):
    for path in mini_batch:
        name = os.path.basename(path)
        with open(os.path.join(os.environ['AZURE_ML_OUTPUT_files'], name), 'w') as file:
            file.write(name)
    return score(mini_batch)
";

/// Submits pipeline `p` of one parallel step over 31 files, whose names it returns, and waits until each worker is within one.
fn meet(server: &Server, meeting: &Meeting, script: &str, step: &str) -> Vec<String> {
    let write = |name: &str, text: &str| support::write(&server.folder, name, text);
    write("cluster.yml", CLUSTER);
    write("code/score.py", script);
    write("pipeline.yml", &format!("{step}{}", meeting.variable()));
    let names: Vec<_> = (0..31).map(|i| format!("f{i:03}")).collect();
    let files = names.iter().map(|n| (n.as_str(), n.as_str()));
    fill(&server.folder.join("in"), files);
    server.ok(&["compute", "create", "-f", "cluster.yml", "-o", "none"]);
    let create = "job create -f pipeline.yml -n p -o none";
    server.ok(&create.split(' ').collect::<Vec<_>>());
    server.wait("all four workers are within a mini-batch", LONG, |_| {
        meeting.names().len() == 4
    });
    names
}

#[test]
fn a_worker_dies_and_a_node_is_taken_and_every_row_is_there_once() {
    let server = Server::start();
    let meeting = Meeting::new(&server);
    let outputs = "outputs: {files: {type: uri_folder}, scores: \"${{parent.outputs.scores}}\"}";
    let step = GATED_STEP.replace("outputs: {scores: \"${{parent.outputs.scores}}\"}", outputs);
    let names = meet(&server, &meeting, &format!("{GATED}{BESIDE}"), &step);
    signal("KILL", meeting.names()[0].parse().unwrap());
    server.wait("its mini-batch is tried again", LONG, |s| {
        s.count("p_score", "retries") == 1
    });
    server.ok(&["compute", "preempt", "-n", "pool", "--nodes", "1"]);
    meeting.open();
    server.ok(&["job", "stream", "-n", "p"]);

    let folder = output(&server, "p", "scores", "got");
    let rows = fs::read_to_string(folder.join("parallel_run_step.txt")).unwrap();
    let expected: String = names.iter().map(|n| format!("{n} {n}\n")).collect();
    assert_eq!(rows, expected, "each once, in the order of the input");
    let files = output(&server, "p_score", "files", "files");
    for name in &names {
        assert_eq!(fs::read_to_string(files.join(name)).unwrap(), *name);
    }
    let count = |name: &str| server.count("p_score", name);
    assert_eq!(
        (
            count("mini_batches_failed"),
            count("retries"),
            count("preemptions")
        ),
        (0, 1, 1)
    );
    assert_eq!((count("rows"), count("failed_items")), (31, 0));
    assert!(
        count("rerun") > 0,
        "the node held mini-batches that were begun"
    );
    server.stop();
}

/// Raises for one file, returns nothing for another.
const LACKING: &str = "\
def run(mini_batch):
    text = open(mini_batch[0]).read()
    assert text != 'poison'
    return [] if text == 'nothing' else [text]
";

#[test]
fn a_threshold_ends_the_step_and_the_pipeline_says_which() {
    let server = Server::start();
    let write = |name: &str, text: &str| support::write(&server.folder, name, text);
    write("cluster.yml", CLUSTER);
    write("code/score.py", LACKING);
    let step = GATED_STEP.replace("mini_batch_size: \"2\"", "mini_batch_size: \"1\"");
    write(
        "pipeline.yml",
        &format!("{}mini_batch_error_threshold: 1\n", step),
    );
    let says = ["a", "poison", "b", "nothing", "c", "d"];
    let names: Vec<_> = (0..6).map(|i| format!("f{i}")).collect();
    fill(
        &server.folder.join("in"),
        names.iter().map(String::as_str).zip(says),
    );
    server.ok(&["compute", "create", "-f", "cluster.yml", "-o", "none"]);
    let done = server.run(&["job", "create", "-f", "pipeline.yml", "-n", "p", "--stream"]);
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(
        said.contains(
            "step score (p_score): failed: 2 mini-batches failed, mini_batch_error_threshold is 1"
        ),
        "{said}"
    );
    assert_eq!(
        server.value(&["job", "show", "-n", "p_score"], "status"),
        "Failed"
    );

    let set = "jobs.score.mini_batch_error_threshold=2";
    server.ok(&[
        "job",
        "create",
        "-f",
        "pipeline.yml",
        "-n",
        "q",
        "--set",
        set,
        "--stream",
    ]);
    let folder = output(&server, "q", "scores", "got");
    let rows = fs::read_to_string(folder.join("parallel_run_step.txt")).unwrap();
    assert_eq!(rows, "a\nb\nc\nd\n");
    let count = |name: &str| server.count("q_score", name);
    assert_eq!(
        (count("mini_batches_failed"), count("mini_batches_short")),
        (1, 1)
    );
    server.stop();
}

#[test]
fn a_cancel_of_the_pipeline_reaches_the_workers_in_the_midst_of_it() {
    let server = Server::start();
    let meeting = Meeting::new(&server);
    meet(&server, &meeting, GATED, GATED_STEP);
    let explained = server.value(&["job", "explain", "-n", "p"], "state");
    assert_eq!(explained, "running");
    server.ok(&["job", "cancel", "-n", "p", "-o", "none"]);
    server.wait("the pipeline is canceled", LONG, |s| {
        s.value(&["job", "show", "-n", "p"], "status") == "Canceled"
    });
    assert_eq!(
        server.value(&["job", "show", "-n", "p_score"], "status"),
        "Canceled"
    );
    server.stop(); // and says when a worker is left
}
