//! One real node: containerd, runc and a kubelet as processes of this machine, and a bridge that its pods are on.
//!
//! The bridge has the node's address. Pods reach the machine there, so that a server that listens on it serves them;
//! nothing outside of the machine reaches it.
//!
//! What the machine may lack, and what is done about it: CAP_SYS_RESOURCE (nobody's score for the out-of-memory killer
//! is lowered), cgroup v2 (the kubelet is told to take v1), systemd (control groups are plain folders), any network
//! device but bridge and veth (the node's address is the bridge's own).

use super::cluster::Cluster;
use super::programs::Programs;
use super::traces::{self, Settings};
use super::{control_plane, image, keys, process, tools};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const HINT: &str = "hint: as root on Debian or Ubuntu: apt-get install containerd runc containernetworking-plugins \
                        busybox-static iproute2; stop the service containerd that it starts";

const PATIENCE: Duration = Duration::from_secs(90);

/// Where distributions keep the network plugins.
const PLUGIN_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
const PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];

/// Subnets of pods are 10.244.N.0/24.
const SUBNETS: u32 = 254;

/// Sockets lie below the state folder; the kernel takes 107 bytes for the path of one, and 14 are ours.
const LONGEST_STATE: usize = 90;

/// What is there before the kubelet starts.
pub struct Prepared {
    pub bridge: String,
    /// Of the bridge: the node's address, and where pods reach this machine.
    pub address: String,
    version: u32,
}

/// What a real node lacks on this machine; nothing when it can run.
pub fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    let user = tools::output(tools::program("id").arg("-u")).unwrap_or_default();
    if user.trim() != "0" {
        missing.push("containers and bridges are made by root only".into());
    }
    for name in [
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "runc",
        "ip",
        "setsid",
    ] {
        if tools::find(name).is_none() {
            missing.push(format!("{name} is not found"));
        }
    }
    if plugins().is_none() {
        missing.push(format!(
            "no folder has the network plugins {}",
            PLUGINS.join(", ")
        ));
    }
    missing.extend(image::missing());
    if missing.is_empty()
        && let Err(error) = try_bridge()
    {
        missing.push(format!("the kernel makes no bridge: {error:#}"));
    }
    missing
}

fn plugins() -> Option<&'static str> {
    let has_all = |folder: &&str| {
        PLUGINS
            .iter()
            .all(|name| Path::new(folder).join(name).is_file())
    };
    PLUGIN_FOLDERS.into_iter().find(has_all)
}

/// A bridge and a pair of veths, made and removed.
fn try_bridge() -> Result<()> {
    let name = format!("zk-try{}", std::process::id());
    let made = ip(&["link", "add", &name, "type", "bridge"]);
    made.and_then(|_| ip(&["link", "del", &name]))?;
    let (one, other) = (format!("{name}a"), format!("{name}b"));
    let made = ip(&["link", "add", &one, "type", "veth", "peer", "name", &other]);
    made.and_then(|_| ip(&["link", "del", &one]))?;
    Ok(())
}

fn ip(args: &[&str]) -> Result<String> {
    tools::output(tools::program("ip").args(args))
}

/// The bridge, the control groups, containerd, and in it the image.
pub fn prepare(cluster: &Cluster) -> Result<Prepared> {
    let state = cluster.state.to_string_lossy();
    ensure!(
        state.len() <= LONGEST_STATE,
        "the path {state} is too long for the sockets below it; {LONGEST_STATE} bytes at most\nhint: --state DIR"
    );
    let image = image::archive()?;
    for part in ["cni", "containerd", "run", "kubelet", "logs", "opt"] {
        fs::create_dir_all(cluster.state.join("node").join(part))?;
    }
    let bridge = cluster.bridge();
    let subnet = make_bridge(&bridge, &cluster.id)?;
    traces::make_control_groups(&cluster.own_name())?;
    let network = network(cluster, &bridge, &subnet);
    fs::write(
        cluster.state.join("node/cni/10-bridge.conflist"),
        network.to_string(),
    )?;
    let version = start_containerd(cluster)?;
    let mut import = ctr(cluster);
    tools::output(import.args(["images", "import"]).arg(&image)).context("the image")?;
    eprintln!("  containerd has the image {}", image::PYTHON);
    let address = format!("{subnet}.1");
    Ok(Prepared {
        bridge,
        address,
        version,
    })
}

/// The first free subnet from the one that the id points to. Whoever is faster makes the bridge; the kernel does not
/// refuse an address that another bridge has.
fn make_bridge(bridge: &str, id: &str) -> Result<String> {
    let lock = machine_lock()?;
    let first = u32::from_str_radix(id, 16).unwrap_or(0);
    let taken = ip(&["-4", "addr"])? + &ip(&["-4", "route"])?;
    let subnet = (0..SUBNETS)
        .map(|n| format!("10.244.{}", (first.wrapping_add(n)) % SUBNETS + 1))
        .find(|subnet| !taken.contains(&format!("{subnet}.")))
        .context("every subnet 10.244.N.0/24 is taken")?;
    ip(&["link", "add", bridge, "type", "bridge"])?;
    ip(&["addr", "add", &format!("{subnet}.1/24"), "dev", bridge])?;
    ip(&["link", "set", bridge, "up"])?;
    drop(lock);
    Ok(subnet)
}

/// For the moments in which two clusters would see each other's changes of the machine. A folder that is always there
/// can be locked, so that no file is left.
fn machine_lock() -> Result<File> {
    let folder = File::open("/run").context("cannot open /run")?;
    folder.lock().context("cannot lock /run")?;
    Ok(folder)
}

/// `isGateway` would let the plugin switch on forwarding for the whole machine; the bridge has its address already.
fn network(cluster: &Cluster, bridge: &str, subnet: &str) -> Value {
    json!({"cniVersion": "0.4.0", "name": cluster.own_name(), "plugins": [{
        "type": "bridge", "bridge": bridge, "isGateway": false, "ipMasq": false,
        "ipam": {
            "type": "host-local",
            "dataDir": cluster.state.join("node/ipam"),
            "ranges": [[{
                "subnet": format!("{subnet}.0/24"), "gateway": format!("{subnet}.1"),
                "rangeStart": format!("{subnet}.10"),
            }]],
            "routes": [{"dst": "0.0.0.0/0", "gw": format!("{subnet}.1")}],
        },
    }]})
}

pub fn socket(state: &Path) -> PathBuf {
    state.join("node/run/c.sock")
}

fn ctr(cluster: &Cluster) -> Command {
    let mut ctr = tools::program("ctr");
    ctr.arg("-a")
        .arg(socket(&cluster.state))
        .args(["-n", "k8s.io"]);
    ctr
}

/// Returns its major version.
fn start_containerd(cluster: &Cluster) -> Result<u32> {
    let said = tools::output(tools::program("containerd").arg("--version"))?;
    let version = major_version(&said).context("containerd does not tell its version")?;
    let config = cluster.state.join("node/containerd.toml");
    let plugins = plugins().context("the network plugins are gone")?;
    fs::write(&config, containerd_config(&cluster.state, version, plugins))?;
    let mut command = tools::program("containerd");
    let process = process::start(&cluster.state, "containerd", command.arg("-c").arg(config))?;
    tools::wait_for("containerd", PATIENCE, || {
        process.must_run()?;
        Ok(tools::output(ctr(cluster).arg("version")).ok())
    })?;
    Ok(version)
}

/// `containerd github.com/containerd/containerd 1.6.20~ds1 …` → 1.
fn major_version(said: &str) -> Option<u32> {
    let version = said.split_whitespace().nth(2)?.trim_start_matches('v');
    version.split('.').next()?.parse().ok()
}

/// Everything that containerd would keep in folders of the machine is sent below the state.
fn containerd_config(state: &Path, version: u32, plugins: &str) -> String {
    let node = state.join("node");
    let node = node.display();
    let pause = image::PAUSE;
    let (form, runtime, folders, sandbox, pinned) = if version >= 2 {
        (
            3,
            "io.containerd.cri.v1.runtime",
            format!("bin_dirs = [\"{plugins}\"]"),
            String::new(),
            format!(
                "[plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = \"{pause}\"\n"
            ),
        )
    } else {
        (
            2,
            "io.containerd.grpc.v1.cri",
            format!("bin_dir = \"{plugins}\""),
            format!("sandbox_image = \"{pause}\""),
            String::new(),
        )
    };
    format!(
        "\
version = {form}
root = \"{node}/containerd\"
state = \"{node}/run\"
oom_score = 0
[grpc]
  address = \"{node}/run/c.sock\"
[plugins.\"io.containerd.internal.v1.opt\"]
  path = \"{node}/opt\"
[plugins.\"{runtime}\"]
  {sandbox}
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins.\"{runtime}\".cni]
    {folders}
    conf_dir = \"{node}/cni\"
  [plugins.\"{runtime}\".containerd]
    default_runtime_name = \"runc\"
    [plugins.\"{runtime}\".containerd.runtimes.runc]
      runtime_type = \"io.containerd.runc.v2\"
      [plugins.\"{runtime}\".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = \"{node}/runc\"
{pinned}"
    )
}

/// Starts the kubelet and waits until its node is ready. It changes settings of the kernel for the whole machine; they
/// are put back as soon as it has.
pub fn start(
    cluster: &Cluster,
    prepared: &Prepared,
    programs: &Programs,
    health: u16,
) -> Result<()> {
    warn_of_old_containerd(prepared.version, programs.version());
    let config = cluster.state.join("node/kubelet.json");
    let text = kubelet_config(cluster, &prepared.address, health).to_string();
    fs::write(&config, text)?;
    let node = cluster.state.join("node");
    let mut command = Command::new(programs.path("kubelet"));
    command.args([
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", cluster.kubeconfig("node").display()),
        format!("--hostname-override={}", keys::NODE),
        format!("--node-ip={}", prepared.address),
        format!("--root-dir={}/kubelet", node.display()),
        format!("--cert-dir={}/kubelet-keys", node.display()),
    ]);
    let lock = machine_lock()?;
    let before = Settings::read();
    before.keep(&cluster.state)?;
    let process = process::start(&cluster.state, "kubelet", &command)?;
    let api = cluster.api()?;
    let path = format!("/api/v1/nodes/{}", keys::NODE);
    tools::wait_for("a ready node", PATIENCE, || {
        process.must_run()?;
        Ok(api.get(&path).filter(is_ready))
    })?;
    let url = format!("http://127.0.0.1:{health}/healthz");
    tools::wait_for("the kubelet", PATIENCE, || {
        Ok(control_plane::answers(&url).then_some(()))
    })?;
    // The settings are made before the node becomes ready, once.
    before.put_back(&cluster.state)?;
    drop(lock);
    eprintln!(
        "  {} is ready; its pods reach this machine at {}",
        keys::NODE,
        prepared.address
    );
    Ok(())
}

/// From 1.37 on the kubelet asks containerd for what only version 2 answers.
fn warn_of_old_containerd(containerd: u32, kubernetes: &str) {
    let minor = kubernetes
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse::<u32>().ok());
    if containerd < 2 && minor.is_some_and(|minor| minor >= 37) {
        eprintln!("note: Kubernetes {kubernetes} wants containerd 2; this is {containerd}");
    }
}

/// It says so, and pods are let onto it. Before the first controller runs, nobody has taken the second away.
pub fn is_ready(node: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let conditions = list(&node["status"]["conditions"]);
    let taints = list(&node["spec"]["taints"]);
    conditions
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        && !taints
            .iter()
            .any(|taint| taint["key"] == "node.kubernetes.io/not-ready")
}

fn kubelet_config(cluster: &Cluster, address: &str, health: u16) -> Value {
    let state = &cluster.state;
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": 10250,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": health,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": state.join("pki/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", cluster.own_name()),
        "failSwapOn": false,
        // Chains of the firewall that nothing here needs.
        "makeIPTablesUtilChains": false,
        "containerRuntimeEndpoint": format!("unix://{}", socket(state).display()),
        "podLogsDir": state.join("node/logs"),
        // The image cannot be loaded again once it is thrown away.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        // Nothing answers names. There it is refused at once, and an address of nobody would be waited for.
        "clusterDNS": [address],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
    });
    if !traces::has_cgroup_v2() {
        config["failCgroupV1"] = false.into();
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions_are_read() {
        let debian = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3";
        assert_eq!(major_version(debian), Some(1));
        let own = "containerd github.com/containerd/containerd/v2 v2.4.2 0123abc";
        assert_eq!(major_version(own), Some(2));
        assert_eq!(major_version("containerd"), None);
    }

    #[test]
    fn k1_containerd_keeps_everything_below_the_state() {
        for version in [1, 2] {
            let config = containerd_config(Path::new("/s"), version, "/usr/lib/cni");
            let paths = config.split('"').skip(1).step_by(2);
            for path in paths.filter(|path| path.starts_with('/')) {
                let expected = path.starts_with("/s/node/") || path == "/usr/lib/cni";
                assert!(expected, "{path}");
            }
            assert_eq!(config.matches(image::PAUSE).count(), 1);
        }
    }

    #[test]
    fn a_node_is_ready_when_it_says_so() {
        let node = |status: &str| {
            let condition = json!({"type": "Ready", "status": status});
            json!({"status": {"conditions": [{"type": "PIDPressure", "status": "True"}, condition]}})
        };
        assert!(is_ready(&node("True")));
        assert!(!is_ready(&node("Unknown")));
        let mut kept_free = node("True");
        kept_free["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready"}]);
        assert!(!is_ready(&kept_free));
        assert!(!is_ready(&json!({})));
    }
}
