//! Pipelines and sweeps as people use them, with real processes: `examples/pipeline` (`pipeline.yml`, `prepare.yml`,
//! `src/prepare.py`, `src/add.py`) and `examples/sweep` (`sweep.yml`, `src/train.py`).

mod support;

use serde_json::Value;
use std::fs;
use support::Server;

/// A server with the cluster of `examples/hello`.
fn with_cluster() -> Server {
    let server = Server::start();
    let cluster = example("hello/cluster.yml");
    server.ok(&["compute", "create", "-f", &cluster, "-o", "none"]);
    server
}

fn example(name: &str) -> String {
    let path = support::repository().join("examples").join(name);
    path.display().to_string()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_pipeline_passes_a_file_between_its_steps_and_is_not_run_twice() {
    let server = with_cluster();
    let file = example("pipeline/pipeline.yml");
    let said = server.ok(&["job", "create", "-f", &file, "-n", "squares", "--stream"]);
    assert!(said.contains("add: run squares_add is completed"), "{said}");
    server.ok(&[
        "job",
        "download",
        "-n",
        "squares",
        "--output-name",
        "result",
        "-p",
        "got",
    ]);
    let sum = server.folder.join("got/named-outputs/result/sum.txt");
    assert_eq!(fs::read_to_string(sum).unwrap(), "30");

    let said = server.ok(&["job", "create", "-f", &file, "-n", "again", "--stream"]);
    assert!(
        said.contains("add: run again_add reuses the result of squares_add"),
        "{said}"
    );
    let steps = server.ok(&["job", "list", "--parent-job-name", "again", "-o", "json"]);
    assert_eq!(
        json(&steps)[0]["properties"]["zaffre.reused_from"],
        "squares_prepare"
    );

    // One more number, and a step that others register by its own name.
    let prepare = example("pipeline/prepare.yml");
    server.ok(&["component", "create", "-f", &prepare, "-o", "none"]);
    let shown = json(&server.ok(&["component", "show", "-n", "prepare", "-o", "json"]));
    assert_eq!(
        (&shown["version"], &shown["type"]),
        (&"1".into(), &"command".into())
    );
    let set = "inputs.count=6";
    server.ok(&[
        "job", "create", "-f", &file, "-n", "six", "--set", set, "--stream",
    ]);
    server.ok(&[
        "job",
        "download",
        "-n",
        "six",
        "--output-name",
        "result",
        "-p",
        "six",
    ]);
    let sum = server.folder.join("six/named-outputs/result/sum.txt");
    assert_eq!(fs::read_to_string(sum).unwrap(), "55");
    server.stop();
}

#[test]
fn a_sweep_of_twelve_trials_finds_the_best() {
    let server = with_cluster();
    let file = example("sweep/sweep.yml");
    server.ok(&["job", "create", "-f", &file, "-n", "hill", "--stream"]);
    let job = json(&server.ok(&["job", "show", "-n", "hill", "-o", "json"]));
    assert_eq!(job["status"], "Completed");
    let best = job["properties"]["best_child_run_id"].as_str().unwrap();
    let trials = json(&server.ok(&["job", "list", "--parent-job-name", "hill", "-o", "json"]));
    let trials = trials.as_array().unwrap();
    assert_eq!(trials.len(), 12);
    let found = trials.iter().find(|t| t["name"] == best).unwrap();
    let chosen = found["properties"]["hyperparameters"].as_str().unwrap();
    assert_eq!(
        json(chosen),
        serde_json::json!({"depth": "2", "rate": "0.3"})
    );
    server.stop();
}
