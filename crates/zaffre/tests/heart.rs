//! The article's walk, with its own two files unchanged: `low-pri-cluster.yml` and `endpoint.yml` of ../shared, a model that
//! `examples/heart/train.py` trains and saves, rows that `examples/heart/split.py` splits, and nodes taken away on the way.

mod support;

use std::{fs, path::PathBuf, process::Command, time::Duration};
use support::{Server, repository, shared};

/// Building the environment of the model, the first time on a machine, is most of it.
const LONG: Duration = Duration::from_secs(600);
/// How often the unlabelled rows are repeated: enough work that two nodes are taken while it runs.
const TIMES: usize = 6;

/// Python with what `requirements.txt` names, made once per target folder.
fn python() -> PathBuf {
    let venv = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("heart-venv");
    let python = venv.join("bin/python");
    let done = venv.join("installed");
    if !done.exists() {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&venv));
        let requirements = repository().join("examples/heart/requirements.txt");
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "-r"])
            .arg(requirements));
        fs::write(done, "").unwrap();
    }
    python
}

fn run(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(
        out.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

fn predictions(server: &Server, job: &str) -> Vec<u8> {
    server.ok(&["job", "download", "-n", job, "-p", job]);
    fs::read(server.folder.join(job).join("predictions.csv")).unwrap()
}

fn wait_for_two(server: &Server) {
    let query = "length([?node_state=='running'] || [?nodeState=='running'])";
    server.wait("two nodes run", LONG, |s| {
        s.value(&["compute", "list-nodes", "-n", "low-pri-cluster"], query) == "2"
    });
}

fn invoke(server: &Server, job: &str, more: &[&str]) {
    let mut args = vec![
        "batch-endpoint",
        "invoke",
        "-n",
        "heart-classifier-batch",
        "--input",
        "rows",
        "--job-name",
        job,
    ];
    args.extend(more);
    server.ok(&args);
}

/// `logs/job_result.txt` has the numbers of `job show`, the overview ends with the outcome.
fn reports_tell(server: &Server, job: &str, result: &str) {
    let to = format!("{job}-all");
    server.ok(&["job", "download", "-n", job, "-p", &to, "--all"]);
    let logs = server.folder.join(to).join("artifacts/logs");
    let read = |name: &str| fs::read_to_string(logs.join(name)).unwrap();
    let text = read("job_result.txt");
    let mut lines = vec![format!("result: {result}")];
    for (name, count) in [
        ("mini batches", "mini_batches_total"),
        ("mini batches done", "mini_batches_done"),
        ("mini batches run again after a preemption", "rerun"),
        ("preemptions", "preemptions"),
        ("retries", "retries"),
        ("rows", "rows"),
    ] {
        lines.push(format!("{name}: {}", server.count(job, count)));
    }
    for line in lines {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
    let overview = read("job_progress_overview.txt");
    assert!(overview.contains("Scheduling finished."), "{overview}");
    let last = overview.lines().last().unwrap();
    assert!(
        last.contains(&format!("The job is {}", result.to_lowercase())),
        "{last}"
    );
    assert!(read("azureml/executionlogs.txt").contains("Completing processing"));
}

#[test]
fn the_articles_files_score_every_row_once_whatever_is_taken() {
    let server = Server::start();
    let at = |name: &str| server.folder.join(name);
    let example = |name: &str| repository().join("examples/heart").join(name);
    let data = |i: usize| shared(&format!("data/heart/heart-unlabeled-{i}.csv"));
    let python = python();
    run(Command::new(&python)
        .arg(example("train.py"))
        .arg(shared("data/heart/heart-train.csv"))
        .arg(at("heart-classifier")));
    let mut split = Command::new(&python);
    split.arg(example("split.py")).arg(at("rows"));
    for _ in 0..TIMES {
        split.args((0..4).map(data));
    }
    run(&mut split);
    let files = fs::read_dir(at("rows")).unwrap().count();
    fs::copy(example("model.yml"), at("model.yml")).unwrap();

    let seed = |name: &str| {
        shared(&format!("fixtures/seed/{name}"))
            .to_string_lossy()
            .into_owned()
    };
    server.ok(&["model", "create", "-f", "model.yml"]);
    server.ok(&["compute", "create", "-f", &seed("low-pri-cluster.yml")]);
    server.ok(&["batch-endpoint", "create", "-f", &seed("endpoint.yml")]);

    invoke(&server, "undisturbed", &["--stream"]);
    let expected = predictions(&server, "undisturbed");
    assert_eq!(expected.iter().filter(|b| **b == b'\n').count(), files);

    invoke(&server, "disturbed", &[]);
    for taken in 1..=2 {
        wait_for_two(&server);
        server.wait("work is under way", LONG, |s| {
            s.count("disturbed", "mini_batches_done") > 0
        });
        server.ok(&["compute", "preempt", "low-pri-cluster", "--nodes", "1"]);
        server.wait("it is counted", LONG, |s| {
            s.count("disturbed", "preemptions") >= taken
        });
    }
    let streamed = server.ok(&["job", "stream", "-n", "disturbed"]);
    for line in [
        "Submitting 1 runs, first five are: batchscoring:disturbed-batchscoring",
        "Completing processing run id disturbed-batchscoring: completed",
    ] {
        assert_eq!(streamed.matches(line).count(), 1, "{line} in {streamed}");
    }
    reports_tell(&server, "disturbed", "Completed");
    assert!(server.count("disturbed", "preemptions") >= 2);
    assert!(
        server.count("disturbed", "rerun") >= 1,
        "a taken node held started mini-batches"
    );
    assert!(
        predictions(&server, "disturbed") == expected,
        "the outputs differ"
    );
    let metrics = server.value(
        &[
            "metrics",
            "list",
            "--metric",
            "Preempted Nodes",
            "--interval",
            "PT1M",
            "--aggregation",
            "Maximum",
        ],
        "max(value[0].timeseries[0].data[].maximum)",
    );
    assert!(metrics.parse::<f64>().unwrap() >= 1.0, "{metrics}");

    invoke(&server, "emptied", &[]);
    wait_for_two(&server);
    server.wait("work is under way", LONG, |s| {
        s.count("emptied", "mini_batches_done") > 0
    });
    server.ok(&["compute", "preempt", "low-pri-cluster", "--nodes", "all"]);
    let stream = server.run(&["job", "stream", "-n", "emptied"]);
    assert_eq!(stream.status.code(), Some(1));
    let said = String::from_utf8_lossy(&stream.stderr).into_owned();
    assert!(
        said.contains("Canceled") && said.contains("--resume-from"),
        "{said}"
    );
    reports_tell(&server, "emptied", "Canceled");
    let kept = server.count("emptied", "mini_batches_done");
    invoke(
        &server,
        "resumed",
        &["--resume-from", "emptied", "--stream"],
    );
    assert_eq!(server.count("resumed", "mini_batches_resumed"), kept);
    assert!(
        predictions(&server, "resumed") == expected,
        "the outputs differ"
    );
    server.stop();
}
