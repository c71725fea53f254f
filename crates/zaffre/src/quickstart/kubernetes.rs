//! `zaffre quickstart --engine kubernetes`: jobs as pods of a cluster that is there.
//!
//! Q4 what it makes in the cluster is gone when it ends well: its instance types, its pods and what owns them.

use super::{Host, prepare};
use crate::{
    cli::QuickstartArgs,
    client::{Client, Scope},
    failure::{Failure, about},
    output,
};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The files, as they lie in `examples/kubernetes`.
const FILES: [(&str, &str); 5] = [
    (
        "types.yaml",
        include_str!("../../../../examples/kubernetes/types.yaml"),
    ),
    (
        "hello.yml",
        include_str!("../../../../examples/kubernetes/hello.yml"),
    ),
    (
        "ranks.yml",
        include_str!("../../../../examples/kubernetes/ranks.yml"),
    ),
    (
        "huge.yml",
        include_str!("../../../../examples/kubernetes/huge.yml"),
    ),
    (
        "steps.yml",
        include_str!("../../../../examples/kubernetes/steps.yml"),
    ),
];
const COMPUTE: &str = "k8s";
const STEPS: &str = "quickstart-steps";
const HUGE: &str = "quickstart-huge";
/// Steps that the job has done when its pod is deleted.
const STEPS_BEFORE: &str = "step 5";

/// Pause between two looks at a job.
const LOOK: Duration = Duration::from_millis(200);
/// How long one thing may take; an image may have to be brought first.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs it.
pub fn run(args: &QuickstartArgs) -> Result<(), Failure> {
    let begun = Instant::now();
    let kubeconfig = kubeconfig(args)?;
    let folder = prepare(args, &FILES)?;
    output::say(&format!("zaffre quickstart in {}\n", folder.display()));
    let mut flags = vec!["--agent-image", &args.agent_image];
    if let Some(url) = &args.agents_url {
        flags.extend(["--agents-url", url]);
    }
    let host = Host::start_with(&folder, &args.listen, &flags)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no runtime: {error}")))?;
    let result = walk(&host, args, &kubeconfig, &runtime);
    let last = ["compute", "detach", "-n", COMPUTE, "--yes"];
    let stopped = host.stop_with(result.is_ok(), ("the cluster is let go", &last));
    result?;
    stopped?;
    output::write(
        "hello, two ranks, a reason, and a job that went on after its pod was deleted\n",
    )?;
    output::say(&format!(
        "\ndone in {} s; the server is stopped, the files stay",
        begun.elapsed().as_secs()
    ));
    Ok(())
}

fn kubeconfig(args: &QuickstartArgs) -> Result<PathBuf, Failure> {
    let named = args.kubeconfig.clone();
    let path = named.or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from));
    let path = path.filter(|path| !path.as_os_str().is_empty());
    let path = path.ok_or_else(|| {
        Failure::wrong("neither --kubeconfig nor KUBECONFIG says which cluster")
            .hint("zaffre quickstart --engine kubernetes --kubeconfig FILE")
    })?;
    path.canonicalize().map_err(about(&path))
}

fn walk(
    host: &Host,
    args: &QuickstartArgs,
    kubeconfig: &Path,
    runtime: &tokio::runtime::Runtime,
) -> Result<(), Failure> {
    let config = kubeconfig.display().to_string();
    let kubectl = |title: &str, args: &[&str]| {
        host.program(
            title,
            "kubectl",
            &[&["--kubeconfig", &config], args].concat(),
        )
    };
    host.step(
        "the cluster becomes a compute",
        &[
            "compute",
            "attach",
            "--type",
            "kubernetes",
            "-n",
            COMPUTE,
            "--namespace",
            &args.namespace,
            "--kubeconfig",
            &config,
        ],
    )?;
    let client = Client::new(&host.address()?, Scope::default())?;
    runtime.block_on(usable(&client))?;
    kubectl("two instance types", &["apply", "-f", "types.yaml"])?;
    host.step(
        "a job in a pod of one of them",
        &["job", "create", "-f", "hello.yml", "--stream"],
    )?;
    host.step(
        "two pods that start together",
        &["job", "create", "-f", "ranks.yml", "--stream"],
    )?;
    host.step(
        "a job that no node can hold",
        &["job", "create", "-f", "huge.yml", "-n", HUGE],
    )?;
    runtime.block_on(until(&client, HUGE, |job| {
        job.pointer("/properties/status") == Some(&"Queued".into())
    }))?;
    host.step("why it waits", &["job", "explain", "-n", HUGE])?;
    host.step("it is given up", &["job", "cancel", "-n", HUGE])?;
    host.step(
        "a job of forty steps",
        &["job", "create", "-f", "steps.yml", "-n", STEPS],
    )?;
    runtime.block_on(said(&client, STEPS_BEFORE))?;
    let label = format!("zaffre/run={STEPS}");
    kubectl(
        "its pod is deleted by hand",
        &[
            "delete",
            "pod",
            "-n",
            &args.namespace,
            "-l",
            &label,
            "--wait=false",
        ],
    )?;
    host.step("it goes on in another one", &["job", "stream", "-n", STEPS])?;
    kubectl("the types go", &["delete", "-f", "types.yaml"])
}

/// Waits until the server has seen the cluster.
async fn usable(client: &Client) -> Result<(), Failure> {
    let at = client.at(&format!("computes/{COMPUTE}"));
    let begun = Instant::now();
    loop {
        let compute = client.get(&at).await?;
        let errors = &compute["properties"]["provisioningErrors"];
        let types = &compute["properties"]["properties"]["instanceTypes"];
        if errors.is_null() && types.as_object().is_some_and(|types| !types.is_empty()) {
            return Ok(());
        }
        if begun.elapsed() > LIMIT {
            return Err(Failure::failed(format!(
                "the cluster cannot be used: {errors}"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until a job is as `wanted`.
async fn until(client: &Client, job: &str, wanted: impl Fn(&Value) -> bool) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let seen = client.get(&client.at(&format!("jobs/{job}"))).await?;
        if wanted(&seen) {
            return Ok(());
        }
        if begun.elapsed() > LIMIT {
            let status = &seen["properties"]["status"];
            return Err(Failure::failed(format!(
                "job {job} is {status} all the time"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the log of the job of steps has a line.
async fn said(client: &Client, line: &str) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let log = crate::command::stream::log_of(client, STEPS).await?;
        if log.lines().any(|l| l == line) {
            return Ok(());
        }
        if begun.elapsed() > LIMIT {
            return Err(Failure::failed(format!(
                "job {STEPS} has not said {line:?}"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}
