//! etcd, the API server, the controllers and the scheduler, as processes on the loopback.
//!
//! Test use only: etcd does not wait for the disk, and tokens lie in files.

use super::cluster::{Cluster, Ports};
use super::programs::Programs;
use super::{process, tools};
use anyhow::Result;
use std::process::Command;
use std::time::Duration;

/// What each part may take to answer. The API server takes 4 s of an idle machine; others may build beside it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a kubelet can talk to.
pub fn start_server(cluster: &Cluster, ports: &Ports, programs: &Programs) -> Result<()> {
    start_etcd(cluster, ports, programs)?;
    start_api_server(cluster, ports, programs)
}

fn start_etcd(cluster: &Cluster, ports: &Ports, programs: &Programs) -> Result<()> {
    let state = cluster.state.display();
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    let mut command = Command::new(programs.path("etcd"));
    // A client address is taken only together with the one that is advertised.
    command.args([
        format!("--data-dir={state}/etcd"),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".into(),
    ]);
    let process = process::start(&cluster.state, "etcd", &command)?;
    tools::wait_for("etcd", PATIENCE, || {
        process.must_run()?;
        Ok(answers(&format!("{client}/health")).then_some(()))
    })
}

fn start_api_server(cluster: &Cluster, ports: &Ports, programs: &Programs) -> Result<()> {
    let pki = cluster.state.join("pki");
    let pki = pki.display();
    let mut command = Command::new(programs.path("kube-apiserver"));
    command.args([
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        format!("--secure-port={}", ports.api),
        format!("--tls-cert-file={pki}/server.crt"),
        format!("--tls-private-key-file={pki}/server.key"),
        format!("--client-ca-file={pki}/ca.crt"),
        format!("--token-auth-file={pki}/tokens.csv"),
        format!("--service-account-key-file={pki}/accounts.pub"),
        format!("--service-account-signing-key-file={pki}/accounts.key"),
        format!("--kubelet-client-certificate={pki}/to-kubelet.crt"),
        format!("--kubelet-client-key={pki}/to-kubelet.key"),
        // The controllers complain without it; nobody is ever let in by it.
        format!("--requestheader-client-ca-file={pki}/ca.crt"),
    ]);
    command.args([
        "--requestheader-allowed-names=none",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        // The address of a loopback is refused as an endpoint; nothing needs one.
        "--endpoint-reconciler-type=none",
        // Else logs and exec look for the node by its name.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
    ]);
    let process = process::start(&cluster.state, "kube-apiserver", &command)?;
    let api = cluster.api()?;
    tools::wait_for("the API server", PATIENCE, || {
        process.must_run()?;
        Ok(api.is_ready().then_some(()))
    })
}

/// What makes objects into something that happens.
pub fn start_controllers(cluster: &Cluster, ports: &Ports, programs: &Programs) -> Result<()> {
    let mut controllers = client(cluster, programs, "controller-manager");
    let pki = cluster.state.join("pki");
    let pki = pki.display();
    controllers.args([
        format!("--secure-port={}", ports.controller_manager),
        format!("--service-account-private-key-file={pki}/accounts.key"),
        format!("--root-ca-file={pki}/ca.crt"),
        format!("--cluster-signing-cert-file={pki}/ca.crt"),
        format!("--cluster-signing-key-file={pki}/ca.key"),
        "--use-service-account-credentials=true".into(),
        // A new node is kept free of pods until the next look at it, and 5 s are long in a test.
        "--node-monitor-period=1s".into(),
    ]);
    let mut scheduler = client(cluster, programs, "scheduler");
    scheduler.arg(format!("--secure-port={}", ports.scheduler));
    let parts = [
        (
            "kube-controller-manager",
            controllers,
            ports.controller_manager,
        ),
        ("kube-scheduler", scheduler, ports.scheduler),
    ];
    let mut started = Vec::new();
    for (name, command, port) in parts {
        started.push((process::start(&cluster.state, name, &command)?, port));
    }
    for (process, port) in started {
        tools::wait_for(&process.name, PATIENCE, || {
            process.must_run()?;
            Ok(answers(&format!("https://127.0.0.1:{port}/healthz")).then_some(()))
        })?;
    }
    // Pods of the namespace are refused until its service account is there.
    let api = cluster.api()?;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    tools::wait_for("the default service account", PATIENCE, || {
        Ok(api.get(account))
    })?;
    let server = cluster.facts["server"].as_str().unwrap_or_default();
    eprintln!("  the control plane answers at {server}");
    Ok(())
}

/// What the two that talk to the API server have in common.
fn client(cluster: &Cluster, programs: &Programs, user: &str) -> Command {
    let kubeconfig = cluster.kubeconfig(user);
    let kubeconfig = kubeconfig.display();
    let mut command = Command::new(programs.path(&format!("kube-{user}")));
    command.args([
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=false".into(),
        "--profiling=false".into(),
    ]);
    command
}

/// Whether something says that it is well. Who it is was said by the port; the certificate is one of a moment.
pub fn answers(url: &str) -> bool {
    let mut curl = tools::program("curl");
    curl.args([
        "--silent",
        "--fail",
        "--insecure",
        "--noproxy",
        "*",
        "--max-time",
        "5",
    ]);
    tools::output(curl.arg(url)).is_ok()
}
