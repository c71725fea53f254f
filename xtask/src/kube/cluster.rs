//! One cluster: its state folder, its id, and the order in which its parts start.
//!
//! The folder has `cluster.json` (what it is, for tests to read), `kc/` (a kubeconfig per user), `log/`, `pid/`, `pki/`,
//! and the data of etcd and of the node. After `down` only the logs are there.

use super::api::Api;
use super::programs::Programs;
use super::{Nodes, control_plane, down, fake, keys, node, process, programs, tools};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

const FOLDERS: [&str; 5] = ["kc", "log", "pid", "pki", "etcd"];

pub struct Cluster {
    /// Without links, since command lines and mounts are compared with it.
    pub state: PathBuf,
    /// Eight hexadecimal digits: what is outside of the folder carries them in its name (K1).
    pub id: String,
    /// What tests are told.
    pub facts: Value,
}

/// The ports of one cluster on the loopback. Free ones, so that there can be several.
pub struct Ports {
    pub api: u16,
    pub etcd: u16,
    pub etcd_peer: u16,
    pub controller_manager: u16,
    pub scheduler: u16,
    pub kubelet_health: u16,
    pub kwok: u16,
}

impl Ports {
    /// All are held until all are found, so that no two are the same.
    fn free() -> Result<Ports> {
        let mut held = Vec::new();
        let mut next = || -> Result<u16> {
            let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
            let port = listener.local_addr()?.port();
            held.push(listener);
            Ok(port)
        };
        Ok(Ports {
            api: next()?,
            etcd: next()?,
            etcd_peer: next()?,
            controller_manager: next()?,
            scheduler: next()?,
            kubelet_health: next()?,
            kwok: next()?,
        })
    }
}

/// Starts a cluster. When a part of it does not start, what did is ended again; the logs stay.
pub fn up(state: &Path, nodes: Nodes, fake: u32) -> Result<Cluster> {
    let began = Instant::now();
    let with_node = wants_node(nodes)?;
    let programs = programs::built()?;
    let mut cluster = Cluster::prepare(state)?;
    eprintln!("a cluster in {}", cluster.state.display());
    if let Err(error) = cluster.start(&programs, with_node, fake) {
        eprintln!("it does not start; ending what did");
        if let Err(error) = down::down(&cluster.state) {
            eprintln!("note: {error:#}");
        }
        return Err(error);
    }
    eprintln!("up after {:.1} s", began.elapsed().as_secs_f64());
    Ok(cluster)
}

/// Ends a process of a cluster by force and starts it again as it was, as a crash and its supervisor would.
pub fn restart(state: &Path, name: &str) -> Result<()> {
    let cluster = Cluster::open(state)?;
    let all = process::recorded(&cluster.state);
    let process = all.iter().find(|process| process.name == name);
    let process = process.with_context(|| {
        let names: Vec<&str> = all.iter().map(|process| process.name.as_str()).collect();
        format!(
            "the cluster has no process {name}; it has {}",
            names.join(", ")
        )
    })?;
    process.must_run()?;
    let command = process.command()?;
    process.end()?;
    let mut process = process::start(&cluster.state, name, &command)?;
    let api = cluster.api()?;
    tools::wait_for("the API server", control_plane::PATIENCE, || {
        match process.must_run() {
            // A client that tries its old address again may be given that very port as its own, and holds it for a moment.
            Err(error) if error.to_string().contains("address already in use") => {
                process = process::start(&cluster.state, name, &command)?;
            }
            other => other?,
        }
        Ok(api.is_ready().then_some(()))
    })
}

/// K4: what a real node lacks here is said, whether that is an error or not.
fn wants_node(nodes: Nodes) -> Result<bool> {
    if nodes == Nodes::None {
        return Ok(false);
    }
    let missing = node::missing();
    if missing.is_empty() {
        return Ok(true);
    }
    let list = format!(
        "no real node can run here:\n  {}\n{}",
        missing.join("\n  "),
        node::HINT
    );
    ensure!(nodes == Nodes::RealIfPossible, "{list}");
    eprintln!("{list}\nwithout one: the control plane, and pretended nodes");
    Ok(false)
}

impl Cluster {
    /// Makes the folder, or takes over one that a cluster has left.
    fn prepare(state: &Path) -> Result<Cluster> {
        let is_ours = |folder: &Path| folder.join("cluster.json").is_file();
        if is_ours(state) {
            let cluster = Cluster::open(state)?;
            if let Some(process) = process::recorded(&cluster.state).iter().find(|p| p.runs()) {
                bail!(
                    "a cluster runs in {} already: {} is process {}\nhint: cargo xtask kube down --state {0}",
                    cluster.state.display(),
                    process.name,
                    process.pid
                );
            }
            // Its machine was switched off, or its processes were ended by somebody else.
            down::down(&cluster.state)?;
        }
        if let Ok(entries) = state.read_dir() {
            // Only logs are left by an earlier one; anything else is somebody's.
            let foreign = entries.flatten().find(|entry| entry.file_name() != "log");
            if let Some(entry) = foreign {
                let name = entry.file_name();
                bail!(
                    "{} is no cluster's folder: {} is in it",
                    state.display(),
                    name.to_string_lossy()
                );
            }
        }
        for folder in FOLDERS {
            fs::create_dir_all(state.join(folder))
                .with_context(|| format!("cannot make {}", state.display()))?;
        }
        let cluster = Cluster::named(fs::canonicalize(state)?);
        cluster.tell()?;
        Ok(cluster)
    }

    /// The one whose folder, without links, this is or will be.
    pub fn named(state: PathBuf) -> Cluster {
        let id = id(&state);
        let facts = json!({"id": id, "node": null, "fake_nodes": 0});
        Cluster { state, id, facts }
    }

    /// A cluster that is there, whether it runs or not.
    pub fn open(state: &Path) -> Result<Cluster> {
        let state = fs::canonicalize(state)
            .with_context(|| format!("there is no cluster in {}", state.display()))?;
        let file = state.join("cluster.json");
        let text = fs::read_to_string(&file)
            .with_context(|| format!("there is no cluster in {}", state.display()))?;
        let facts = serde_json::from_str(&text).context("cluster.json is broken")?;
        Ok(Cluster {
            facts,
            ..Cluster::named(state)
        })
    }

    fn start(&mut self, programs: &Programs, real: bool, fake: u32) -> Result<()> {
        let ports = Ports::free()?;
        self.facts["server"] = format!("https://127.0.0.1:{}", ports.api).into();
        self.facts["version"] = programs.version().into();
        self.facts["port"] = ports.api.into();
        self.tell()?;
        keys::make(&self.state, ports.api)?;
        let prepared = beside(
            || control_plane::start_server(self, &ports, programs),
            || real.then(|| node::prepare(self)).transpose(),
        )?;
        if let Some(prepared) = &prepared {
            self.facts["node"] = json!({
                "name": keys::NODE,
                "bridge": prepared.bridge,
                "host_address": prepared.address,
                "image": super::image::PYTHON,
            });
            self.tell()?;
        }
        let start_node = |prepared| node::start(self, prepared, programs, ports.kubelet_health);
        beside(
            || control_plane::start_controllers(self, &ports, programs),
            || prepared.as_ref().map(start_node).transpose(),
        )?;
        if fake > 0 {
            fake::start(self, &ports, programs, fake, real)?;
            self.facts["fake_nodes"] = fake.into();
            self.tell()?;
        }
        Ok(())
    }

    fn tell(&self) -> Result<()> {
        let text = format!("{:#}\n", self.facts);
        fs::write(self.state.join("cluster.json"), text).context("cannot write cluster.json")
    }

    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.state.join("kc").join(format!("{user}.kubeconfig"))
    }

    pub fn api(&self) -> Result<Api> {
        let port = self.facts["port"].as_u64();
        let port = port.and_then(|port| u16::try_from(port).ok());
        Ok(Api {
            state: self.state.clone(),
            port: port.context("the cluster has no port yet")?,
        })
    }

    /// The name of its bridge; the kernel takes at most 15 characters.
    pub fn bridge(&self) -> String {
        format!("zk{}", self.id)
    }

    /// The name of its folder in each hierarchy of control groups, and of its network.
    pub fn own_name(&self) -> String {
        format!("zaffre-kube-{}", self.id)
    }
}

/// Both at the same time, when neither needs the other: together they take the time of the longer one.
fn beside<T: Send>(
    one: impl FnOnce() -> Result<()>,
    other: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other.join().expect("a failure is an error, not a panic");
        one.and(other)
    })
}

/// FNV-1a of the folder's path: the same in every run and build.
fn id(state: &Path) -> String {
    let bytes = state.to_string_lossy().into_owned().into_bytes();
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", bytes.into_iter().fold(0x811c_9dc5, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k1_clusters_have_names_of_their_own() {
        let cluster = |path: &str| Cluster::named(PathBuf::from(path));
        let (one, other) = (cluster("/t/one"), cluster("/t/other"));
        assert_eq!(one.bridge(), cluster("/t/one").bridge());
        assert_ne!(one.bridge(), other.bridge());
        assert_ne!(one.own_name(), other.own_name());
        assert!(one.bridge().len() <= 15);
    }

    #[test]
    fn ports_are_different() {
        let ports = Ports::free().unwrap();
        let mut all = vec![ports.api, ports.etcd, ports.etcd_peer, ports.kwok];
        all.extend([ports.scheduler, ports.controller_manager]);
        all.push(ports.kubelet_health);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 7);
    }

    #[test]
    fn a_folder_of_somebody_else_is_refused() {
        let folder = std::env::temp_dir().join(format!("zk-{}-foreign", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("thesis.txt"), "").unwrap();
        let error = Cluster::prepare(&folder).err().unwrap().to_string();
        assert!(error.ends_with("thesis.txt is in it"), "{error}");
        assert!(down::down(&folder).is_err());
        assert!(folder.join("thesis.txt").is_file());
        fs::remove_dir_all(&folder).unwrap();
    }
}
