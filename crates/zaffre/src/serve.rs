//! `zaffre serve`: the adapters are made, given to the loop, and what comes in over HTTP is given to `api`.
//!
//! V1 the `ready` line is printed when the server answers, and is the only line on stdout;
//! V2 stopping leaves tasks to run on; the next start on the same folder adopts them;
//! V3 when the loop ends with an error the process ends too, with a failure: what it had written is unknown.

mod engines;
mod folder;
mod identity;
mod listen;
mod node;
mod stores;
mod tls;

use crate::{
    cli::ServeArgs,
    failure::{Failure, about},
    home::{Home, Server},
    output,
};
use api::{AgentChannel, Api, JobKey, NodeKey, RunKey, SasKey, SealKey, TokenDigest};
use control::{Clock, Control, Engine, Loop, Parts, StartError};
use engine_kube::{Kube, KubeConfig};
use engines::Engines;
use folder::Folder;
pub use identity::write_bundle;
use listen::Port;
use model::{Action, Workspace, kubernetes::Labels};
use std::{collections::BTreeMap, net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Threads that answer requests: they parse and wait; work is done by the loop and by tasks.
const WORKERS: usize = 2;
/// Threads for reads that block.
const BLOCKING: usize = 32;
/// For nodes to end with `--stop-tasks`: a kill takes milliseconds, a busy machine some seconds.
const NODES_LIMIT: Duration = Duration::from_secs(15);
/// Computes are looked at for new clusters at most so often, and at least so often.
const RECONCILE: Duration = Duration::from_millis(200);
/// At least so often.
const RECONCILE_SLOW: Duration = Duration::from_secs(5);
/// Pause between two looks at them.
const NODES_LOOK: Duration = Duration::from_millis(20);

/// Serves until a signal comes or the loop ends.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let root = match &args.data {
        Some(root) => root.clone(),
        None => Home::find()?.data(),
    };
    let held = store::DataFolder::open(&root).map_err(|error| match error {
        store::OpenError::InUse { .. } => Failure::wrong(error.to_string())
            .hint("stop that server, or choose another folder with --data"),
        store::OpenError::Io { .. } => Failure::wrong(error.to_string()),
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no runtime: {error}")))?;
    let result = runtime.block_on(serve(args, &held));
    // Reads under way are for clients that are gone.
    runtime.shutdown_background();
    result
}

async fn serve(args: &ServeArgs, held: &Arc<store::DataFolder>) -> Result<(), Failure> {
    let folder = Folder::of(held);
    let machine = Declared::of(args)?;
    // The port first: a busy one is the commonest mistake and must leave nothing behind.
    let port = Port::open(&args.listen).await?;
    let address = port.address;
    let connect = agents_url(args, address);
    let tls = tls::config(&folder, &names(args, address))?;
    let token = folder.token()?;
    let sas = SasKey::new(folder.sas_key()?);
    let key = NodeKey::new(folder.key("agents.key")?);
    let jobs = JobKey::new(folder.key("jobs.key")?);
    let authority = folder.at("ca.pem");
    let runs = RunKey::new(folder.key("runs.key")?);
    let authority = std::fs::read(&authority).map_err(about(&authority))?;
    let agents = Agents {
        variables: identity::variables_elsewhere(&connect, engine_kube::AUTHORITY, &jobs, &runs),
        connect,
        image: args.agent_image.clone(),
        key: key.clone(),
        authority,
    };
    let url = format!("https://{}", reachable(address));
    let variables = identity::variables(&folder, &url, &jobs, &runs)?;
    let started = start(held, machine, variables, agents)?;
    let home = Workspace::new(
        crate::client::locate::SUBSCRIPTION,
        crate::client::locate::GROUP,
        crate::client::locate::WORKSPACE,
    );
    let api = Api::new(
        started.control.clone(),
        TokenDigest::of(&token),
        sas,
        &home,
        wire::yaml::DEFAULT_LOCATION,
    )
    .map_err(|error| Failure::failed(format!("the store cannot be read: {error}")))?
    .with_identities(identity::identities(args, &folder, jobs)?)
    .map_err(|error| Failure::failed(format!("the identities cannot be read: {error}")))?
    .with_room(room(held))
    .with_kubeconfigs(folder.kubeconfigs())
    .with_seal(SealKey::new(folder.key("seal.key")?))
    .with_runs(runs)
    .with_stores(stores::attach(&started.blobs, stores::folders(args)?))
    .map_err(|error| Failure::failed(format!("the store cannot be read: {error}")))?
    .with_agents(key, doors(&started.kube));
    started.blobs.ready();
    follow(started.kube.clone(), started.control.clone());
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(port.serve(api::router(api), tls, stopped));
    // Before anybody knows where the server is: whoever does may stop it, and that must be in order.
    let signals = Signals::listen()?;
    let server = folder.publish(&url)?;
    if !args.no_register {
        Home::find()?.register(&server)?;
    }
    output::write(&format!("ready {url}\n"))?;
    announce(&folder, &started.report, address, args.no_register);
    let ended = wait(started.running, &started.control, signals).await;
    if stop.send(()).is_err() {
        tracing::error!("the port was closed before the end");
    }
    if let Err(error) = serving.await {
        tracing::error!(%error, "the port ended early");
    }
    if args.stop_tasks {
        end_nodes(&started.engine).await;
    }
    withdraw(&folder, &server, args.no_register);
    ended
}

/// Takes every node and every pod away, tasks and all, and waits until they are gone; the next start sees it as a preemption.
async fn end_nodes(engine: &engine_local::Local) {
    let begun = tokio::time::Instant::now();
    let now = port::Machine.now();
    loop {
        let nodes: Vec<_> = engine.observe().nodes.keys().cloned().collect();
        let pods = engine.evict_pods();
        if nodes.is_empty() && pods == 0 {
            return;
        }
        if begun.elapsed() > NODES_LIMIT {
            tracing::warn!(nodes = nodes.len(), pods, "nodes or pods are left behind");
            return;
        }
        engine.apply(
            nodes
                .into_iter()
                .map(|node| Action::Evict(node, now))
                .collect(),
        );
        tokio::time::sleep(NODES_LOOK).await;
    }
}

/// The loop and what the engine says of this machine.
struct Started {
    control: Control,
    running: Loop,
    engine: Arc<engine_local::Local>,
    kube: Arc<Kube>,
    blobs: Arc<store::Attached>,
    report: Vec<String>,
}

/// What is declared of this machine as the node of the embedded cluster.
struct Declared {
    labels: Labels,
    devices: BTreeMap<Box<str>, u32>,
    node_selector: Labels,
}

impl Declared {
    fn of(args: &ServeArgs) -> Result<Declared, Failure> {
        Ok(Declared {
            labels: node::own_labels(&args.node_label)?,
            devices: node::devices(&args.node_device)?,
            node_selector: node::labels("--node-selector", &args.node_selector)?,
        })
    }
}

/// Makes the adapters and starts the loop.
fn start(
    held: &Arc<store::DataFolder>,
    machine: Declared,
    variables: engine_local::Variables,
    agents: Agents,
) -> Result<Started, Failure> {
    let failed =
        |what: &str, error: &dyn std::fmt::Display| Failure::failed(format!("{what}: {error}"));
    let store = Arc::new(
        store::Sqlite::open(held).map_err(|error| cannot_start(held.path(), &error.into()))?,
    );
    let own = Arc::new(
        store::Folder::open(held).map_err(|error| failed("the blobs cannot be opened", &error))?,
    );
    let blobs = store::Attached::new(own);
    let blobs = Arc::new(blobs.map_err(|error| failed("no thread for datastores", &error))?);
    let bell = port::Bell::new();
    let exe = std::env::current_exe()
        .map_err(|error| failed("this program's own file is unknown", &error))?;
    let config = engine_local::LocalConfig {
        data: held.path().to_owned(),
        blobs: blobs.clone(),
        exe,
        home: Home::find()?.root().to_owned(),
        variables,
        confinement: None,
        own_uid: None,
        labels: machine.labels,
        devices: machine.devices,
        node_selector: machine.node_selector,
    };
    let engine = Arc::new(
        engine_local::Local::new(config, bell.clone())
            .map_err(|error| failed("the local engine cannot start", &error))?,
    );
    let report = engine.report();
    let kube = Arc::new(kube(held, &blobs, agents, &bell)?);
    let parts = Parts {
        store: store.clone(),
        blobs: blobs.clone(),
        series: store,
        engine: Arc::new(Engines::new(engine.clone(), kube.clone())),
        clock: Arc::new(port::Machine),
        bell,
        read: |document| wire::arm::declared(document).map_err(|error| error.to_string()),
        spell: wire::arm::asset::registered,
        report: wire::view::report::report,
        room: Box::new(room(held)),
    };
    let (control, running) =
        Control::start(parts).map_err(|error| cannot_start(held.path(), &error))?;
    Ok(Started {
        control,
        running,
        engine,
        kube,
        blobs,
        report,
    })
}

/// What pods need to know of this server.
struct Agents {
    connect: String,
    image: String,
    variables: engine_local::Variables,
    key: NodeKey,
    authority: Vec<u8>,
}

/// The engine of attached clusters.
fn kube(
    held: &Arc<store::DataFolder>,
    blobs: &Arc<store::Attached>,
    agents: Agents,
    bell: &port::Bell,
) -> Result<Kube, Failure> {
    let folder = held.path().join("kube");
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "the engine of attached clusters cannot start: {error}"
        ))
    };
    let Agents {
        connect,
        image,
        variables,
        key,
        authority,
    } = agents;
    let remote = engine_local::RemoteConfig {
        folder: folder.join("agents"),
        blobs: blobs.clone(),
        variables,
    };
    let remote = engine_local::Remote::open(remote, bell.clone()).map_err(|e| failed(&e))?;
    let credential = Box::new(move |node: &model::NodeId| {
        let id = serde_json::to_vec(node).expect("ids can be written");
        vec![
            ("node".to_owned(), id),
            ("credential".to_owned(), key.credential(node).into_bytes()),
            ("ca.pem".to_owned(), authority.clone()),
        ]
    });
    // The server is its authority: that outlives its address and its certificate.
    let server = Folder::of(held).id()?;
    let config = KubeConfig {
        folder,
        server,
        connect,
        agent_image: image,
        remote,
        credential,
    };
    Kube::new(config, bell.clone()).map_err(|e| failed(&e))
}

/// Where connections of agents go.
fn doors(kube: &Kube) -> api::Agents {
    let shared = kube.shared();
    Box::new(move |node, channel| {
        let channel = match channel {
            AgentChannel::Messages => engine_local::Channel::Messages,
            AgentChannel::Files => engine_local::Channel::Files,
        };
        shared.connect(node, channel)
    })
}

/// Attaches and detaches clusters as computes are declared.
fn follow(kube: Arc<Kube>, control: Control) {
    tokio::spawn(async move {
        let mut turns = control.turns();
        loop {
            kube.reconcile(&control.view());
            tokio::time::sleep(RECONCILE).await;
            // A kubeconfig may be written after its compute was declared, which is no turn.
            let changed = tokio::time::timeout(RECONCILE_SLOW, turns.changed()).await;
            if matches!(changed, Ok(Err(_))) {
                return;
            }
        }
    });
}

/// Why the loop does not start on a data folder, and what to do.
fn cannot_start(folder: &Path, error: &StartError) -> Failure {
    let failure = Failure::failed(format!(
        "the data folder {} cannot be used: {error}",
        folder.display()
    ));
    match error {
        StartError::Format { found } => {
            let other = if *found < control::FORMAT { "older" } else { "newer" };
            failure.hint(format!(
                "start the {other} zaffre that wrote it, or begin with another folder: `zaffre serve --data DIR`"
            ))
        }
        StartError::Store(control::StoreError::TooNew { .. }) => failure.hint(
            "start the newer zaffre that wrote it, or begin with another folder: `zaffre serve --data DIR`",
        ),
        StartError::Store(_)
        | StartError::Checkpoint(_)
        | StartError::Document { .. }
        | StartError::Thread(_) => failure,
    }
}

/// Whether the disk of the data folder is above its reserve.
fn room(held: &store::DataFolder) -> impl Fn() -> Result<(), String> + Send + Sync + use<> {
    let reserve = store::Reserve::new(held.path(), store::RESERVE);
    move || reserve.check().map_err(|short| short.to_string())
}

/// Where pods reach this server.
fn agents_url(args: &ServeArgs, address: SocketAddr) -> String {
    args.agents_url.clone().unwrap_or_else(|| {
        let port = address.port();
        match args.host_name.first() {
            Some(name) => format!("https://{name}:{port}"),
            None => format!("https://{}", reachable(address)),
        }
    })
}

/// Names of the certificate beside the usual ones.
fn names(args: &ServeArgs, address: SocketAddr) -> Vec<String> {
    let mut names = args.host_name.clone();
    if !address.ip().is_unspecified() && !address.ip().is_loopback() {
        names.push(address.ip().to_string());
    }
    let url = args
        .agents_url
        .as_deref()
        .and_then(|url| url.strip_prefix("https://"));
    if let Some((host, _)) = url.and_then(|rest| rest.trim_end_matches('/').rsplit_once(':')) {
        names.push(host.trim_matches(['[', ']']).to_owned());
    }
    names
}

/// Where a client of this machine reaches the port.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        other => other.ip(),
    };
    SocketAddr::new(ip, address.port())
}

/// Says on stderr what is in force and how to connect.
fn announce(folder: &Folder, report: &[String], address: SocketAddr, unregistered: bool) {
    output::say(&format!("data folder {}", folder.root().display()));
    for line in report {
        output::say(line);
    }
    let plain = if address.ip().is_loopback() {
        "https and http"
    } else {
        "https only"
    };
    output::say(&format!("listening on {address}, {plain}"));
    if unregistered {
        output::say(&format!(
            "connect with ZAFFRE_SERVER=https://{} ZAFFRE_TOKEN=\"$(cat {})\" ZAFFRE_CA={}",
            reachable(address),
            folder.at("token").display(),
            folder.at("ca.pem").display()
        ));
    } else {
        output::say(
            "`zaffre` commands of this user go here; `eval \"$(zaffre env)\"` lets the Azure SDK do so",
        );
    }
}

/// What stops a server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Signals, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::failed(format!("signals: {error}")));
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }
}

/// Waits for a signal, then stops the loop; or for the loop to end by itself.
async fn wait(running: Loop, control: &Control, mut signals: Signals) -> Result<(), Failure> {
    let (over, mut ended) = oneshot::channel();
    // A thread of its own: the loop is joined, not polled.
    let joiner = std::thread::Builder::new()
        .name("join".into())
        .spawn(move || {
            let result = running.join();
            drop(over.send(result));
        });
    joiner.map_err(|error| Failure::failed(format!("no thread: {error}")))?;
    let result = tokio::select! {
        result = &mut ended => result,
        _ = signals.terminate.recv() => stop(control, ended).await,
        _ = signals.interrupt.recv() => stop(control, ended).await,
    };
    match result {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => Err(Failure::failed(format!("the loop ended: {error}"))
            .hint("start again: what was acknowledged is kept")),
        Ok(Err(_)) => {
            Err(Failure::failed("the loop panicked")
                .hint("start again: what was acknowledged is kept"))
        }
        Err(_) => Err(Failure::failed("the loop was lost")),
    }
}

type Joined = std::thread::Result<Result<(), control::StoreError>>;

async fn stop(
    control: &Control,
    ended: oneshot::Receiver<Joined>,
) -> Result<Joined, oneshot::error::RecvError> {
    output::say("stopping; tasks run on and are taken over by the next start");
    control.stop();
    ended.await
}

/// Takes back what the start published; what is left behind names a server that does not answer, which clients notice.
fn withdraw(folder: &Folder, server: &Server, unregistered: bool) {
    if let Err(failure) = folder.withdraw() {
        tracing::warn!(%failure, "server.json stays");
    }
    if !unregistered && let Err(failure) = Home::find().and_then(|home| home.unregister(server)) {
        tracing::warn!(%failure, "the server stays registered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_version_is_named_with_both_formats_and_what_to_do() {
        let failure = cannot_start(Path::new("/d"), &StartError::Format { found: 0 });
        assert_eq!(
            failure.message,
            "the data folder /d cannot be used: its checkpoint has format 0, this version reads format 1"
        );
        let hint = failure.hint.unwrap();
        assert!(
            hint.contains("the older zaffre") && hint.contains("--data DIR"),
            "{hint}"
        );
    }
}
