//! `zaffre quickstart`: all of it once, in front of the user's eyes, on files that the program carries.
//!
//! Every step is a command that the user could type, and is shown as such; it runs as this same program, against a server of
//! its own in a fresh folder.
//!
//! Q1 a node is lost in the middle of scoring, and only after a quarter of the mini-batches is committed;
//! Q2 it ends with success only when every row has its prediction exactly once;
//! Q3 the server and its nodes are gone when it ends, however it ends.

mod host;
mod kubernetes;
mod report;

use crate::{
    cli::{Engine, QuickstartArgs},
    client::{Client, Scope, locate::Address},
    command::stream,
    failure::{Failure, about},
    output,
    progress::Progress,
};
use host::Host;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The files, as they lie in `examples/quickstart`.
const FILES: [(&str, &str); 6] = [
    (
        "cluster.yml",
        include_str!("../../../examples/quickstart/cluster.yml"),
    ),
    (
        "train.yml",
        include_str!("../../../examples/quickstart/train.yml"),
    ),
    (
        "conda.yml",
        include_str!("../../../examples/quickstart/conda.yml"),
    ),
    (
        "src/train.py",
        include_str!("../../../examples/quickstart/src/train.py"),
    ),
    (
        "endpoint.yml",
        include_str!("../../../examples/quickstart/endpoint.yml"),
    ),
    (
        "deployment.yml",
        include_str!("../../../examples/quickstart/deployment.yml"),
    ),
];
const CLUSTER: &str = "low-pri-cluster";
const MODEL: &str = "tumour-classifier";
const ENDPOINT: &str = "tumour-classifier-batch";
const TRAINING: &str = "quickstart-train";
const SCORING: &str = "quickstart-score";

/// Pause between two looks at the scoring job: a mini-batch takes longer.
const LOOK: Duration = Duration::from_millis(40);
/// How long scoring may take before it is called stuck; environments may have to be built first.
const SCORING_LIMIT: Duration = Duration::from_secs(900);

/// Runs it.
pub fn run(args: &QuickstartArgs) -> Result<(), Failure> {
    if args.engine == Engine::Kubernetes {
        return kubernetes::run(args);
    }
    let begun = Instant::now();
    let folder = prepare(args, &FILES)?;
    output::say(&format!("zaffre quickstart in {}\n", folder.display()));
    let host = Host::start(&folder)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no runtime: {error}")))?;
    let result = walk(&host, &folder, &runtime);
    let stopped = host.stop(result.is_ok());
    let done = result.map_err(|failure| {
        let log = folder.join("server.log");
        Failure {
            hint: failure
                .hint
                .or_else(|| Some(format!("the server's log is {}", log.display()))),
            ..failure
        }
    })?;
    stopped?;
    output::write(&done)?;
    output::say(&format!(
        "\ndone in {} s; the server is stopped, the files stay",
        begun.elapsed().as_secs()
    ));
    Ok(())
}

/// A fresh folder with the files in it.
fn prepare(args: &QuickstartArgs, files: &[(&str, &str)]) -> Result<PathBuf, Failure> {
    let folder = match &args.dir {
        Some(folder) => {
            if fs::read_dir(folder).is_ok_and(|mut list| list.next().is_some()) {
                return Err(Failure::wrong(format!(
                    "--dir {}: the folder is not empty",
                    folder.display()
                )));
            }
            folder.clone()
        }
        None => std::env::temp_dir().join(format!(
            "zaffre-quickstart-{}",
            &uuid::Uuid::new_v4().simple().to_string()[..8]
        )),
    };
    for (name, text) in files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(about(parent))?;
        }
        fs::write(&path, text).map_err(about(&path))?;
    }
    folder.canonicalize().map_err(about(&folder))
}

/// The steps; answers what is shown at the end.
fn walk(host: &Host, folder: &Path, runtime: &tokio::runtime::Runtime) -> Result<String, Failure> {
    host.step(
        "a cluster of two low-priority nodes",
        &["compute", "create", "-f", "cluster.yml"],
    )?;
    host.step(
        "training in a command job (the first time its environment is built)",
        &[
            "job",
            "create",
            "-f",
            "train.yml",
            "-n",
            TRAINING,
            "--stream",
        ],
    )?;
    let trained = format!("azureml://jobs/{TRAINING}/outputs/model");
    host.step(
        "the model is registered",
        &[
            "model",
            "create",
            "-n",
            MODEL,
            "--type",
            "mlflow_model",
            "--path",
            &trained,
        ],
    )?;
    host.step(
        "the rows that training set aside are fetched",
        &[
            "job",
            "download",
            "-n",
            TRAINING,
            "--output-name",
            "unlabelled",
            "-p",
            ".",
        ],
    )?;
    let rows = folder.join("to-score");
    let fetched = folder.join("named-outputs/unlabelled");
    fs::rename(&fetched, &rows).map_err(about(&fetched))?;
    host.step(
        "a batch endpoint",
        &["batch-endpoint", "create", "-f", "endpoint.yml"],
    )?;
    host.step(
        "the model is deployed to it",
        &[
            "batch-deployment",
            "create",
            "-f",
            "deployment.yml",
            "--set-default",
        ],
    )?;
    host.step(
        "a folder is scored",
        &[
            "batch-endpoint",
            "invoke",
            "-n",
            ENDPOINT,
            "--input",
            "to-score",
            "--job-name",
            SCORING,
        ],
    )?;
    let client = Client::new(&host.address()?, Scope::default())?;
    let seen = runtime.block_on(score(&client, host))?;
    host.step(
        "the predictions are fetched",
        &["job", "download", "-n", SCORING, "-p", "scored"],
    )?;
    report::render(folder, &rows, &seen)
}

/// What happened while scoring.
pub struct Scored {
    job: Value,
    /// Nodes as last listed, each with the states it was seen in.
    nodes: Vec<(String, Vec<String>)>,
    /// Mini-batches committed when the node was taken away.
    at: u64,
}

/// Follows the scoring job, and takes a node away in the middle (Q1).
async fn score(client: &Client, host: &Host) -> Result<Scored, Failure> {
    let progress = Progress::spinner("scoring");
    let begun = Instant::now();
    let mut nodes: Vec<(String, Vec<String>)> = vec![];
    let mut at = None;
    loop {
        let job = client.get(&client.at(&format!("jobs/{SCORING}"))).await?;
        note(client, &mut nodes).await?;
        let counts = stream::mini_batches(&job);
        if let Some((done, total)) = counts {
            progress.total(total);
            progress.at(done);
            let running = nodes
                .iter()
                .filter(|(_, states)| states.last().is_some_and(|state| state == "running"))
                .count();
            if at.is_none() && done * 4 >= total && done < total && running == 2 {
                progress.clear();
                at = Some(done);
                let title = format!("a node is taken away after {done} of {total} mini-batches");
                host.step(&title, &["compute", "preempt", CLUSTER, "--nodes", "1"])?;
            }
        }
        progress.text(&stream::describe(&job));
        let status = job
            .pointer("/properties/status")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if stream::is_over(status) {
            progress.clear();
            return match (status, at) {
                ("Completed", Some(at)) => Ok(Scored { job, nodes, at }),
                ("Completed", None) => Err(Failure::failed(
                    "scoring ended before a node could be taken away",
                )),
                _ => Err(Failure::failed(format!(
                    "scoring ended {}",
                    stream::describe(&job)
                ))),
            };
        }
        if begun.elapsed() > SCORING_LIMIT {
            return Err(Failure::failed(format!(
                "scoring is stuck: {}",
                stream::describe(&job)
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Adds the states that nodes are in now.
async fn note(client: &Client, nodes: &mut Vec<(String, Vec<String>)>) -> Result<(), Failure> {
    let listed =
        crate::command::compute::list_nodes(client, &client.at(&format!("computes/{CLUSTER}")))
            .await?;
    for node in listed {
        let (Some(id), Some(state)) = (node["node_id"].as_str(), node["node_state"].as_str())
        else {
            continue;
        };
        let at = nodes
            .iter()
            .position(|(known, _)| known == id)
            .unwrap_or_else(|| {
                nodes.push((id.to_owned(), vec![]));
                nodes.len() - 1
            });
        if nodes[at].1.last().is_none_or(|last| last != state) {
            nodes[at].1.push(state.to_owned());
        }
    }
    Ok(())
}

/// The address of the server whose data lies in `data`.
fn address(url: &str, data: &Path) -> Result<Address, Failure> {
    let read = |name: &str| {
        let path = data.join(name);
        fs::read(&path).map_err(about(&path))
    };
    let token = String::from_utf8_lossy(&read("token")?).trim().to_owned();
    Ok(Address {
        url: url.to_owned(),
        token,
        ca: Some(read("ca.pem")?),
        account: None,
    })
}
