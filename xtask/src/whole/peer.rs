//! Programs that run beside the server while both are measured: started on free ports, in folders of their own, and ended with
//! all that they started.

use super::server::tree;
use crate::cargo::{cargo, run, target_folder};
use crate::commands::shared;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A peer that does not listen by then does not start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether it listens.
const LOOK: Duration = Duration::from_millis(20);
/// The user that PostgreSQL runs as when we are root, which it refuses to be.
const POSTGRES: &str = "postgres";

pub struct Peer {
    child: Child,
    pub port: u16,
}

impl Peer {
    fn start(command: &mut Command, port: u16, folder: &Path) -> Result<Peer> {
        let log = fs::File::create(folder.join("log"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let mut peer = Peer { child, port };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = peer.child.try_wait()?;
            ensure!(
                ended.is_none() && Instant::now() < end,
                "{command:?} does not listen: {}",
                fs::read_to_string(folder.join("log")).unwrap_or_default()
            );
            std::thread::sleep(LOOK);
        }
        Ok(peer)
    }

    /// etcd with its JSON gateway; every write is synced, as it is by default.
    pub fn etcd(folder: &Path) -> Result<Peer> {
        let folder = made(folder, "etcd")?;
        let (port, peers) = (free_port()?, free_port()?);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut etcd = Command::new("etcd");
        etcd.args(["--name", "b", "--log-level", "error", "--data-dir"])
            .arg(folder.join("data"))
            .args(["--listen-client-urls", &url(port)])
            .args(["--advertise-client-urls", &url(port)])
            .args(["--listen-peer-urls", &url(peers)])
            .args(["--initial-advertise-peer-urls", &url(peers)])
            .args(["--initial-cluster", &format!("b={}", url(peers))]);
        Peer::start(&mut etcd, port, &folder)
    }

    /// PostgreSQL as its package sets it up: every commit is synced.
    pub fn postgres(folder: &Path) -> Result<Peer> {
        let folder = made(folder, "postgres")?;
        let programs = postgres_programs()?;
        if is_root() {
            done(Command::new("chown").arg(POSTGRES).arg(&folder))?;
        }
        let as_user = |name: &str| {
            let program = programs.join(name);
            if !is_root() {
                return Command::new(program);
            }
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", POSTGRES, "--regid", POSTGRES, "--clear-groups"])
                .arg(program);
            command
        };
        let data = folder.join("data");
        let mut init = as_user("initdb");
        done(
            init.args(["-A", "trust", "-U", POSTGRES, "-D"])
                .arg(&data)
                .current_dir(&folder),
        )?;
        let port = free_port()?;
        let mut postgres = as_user("postgres");
        postgres
            .current_dir(&folder)
            .arg("-D")
            .arg(&data)
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k"])
            .arg(&folder);
        Peer::start(&mut postgres, port, &folder)
    }

    /// nginx that answers `return 200`, with one worker.
    pub fn nginx(folder: &Path) -> Result<Peer> {
        let folder = made(folder, "nginx")?;
        let port = free_port()?;
        let at = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {at}/{kind}; "))
            .collect();
        let config = format!(
            "worker_processes 1; daemon off; pid {at}/pid; error_log {at}/error;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; keepalive_requests 100000000; {temporary}\n\
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 'ok'; }} }} }}\n"
        );
        fs::write(folder.join("nginx.conf"), config)?;
        let mut nginx = Command::new("nginx");
        nginx.arg("-p").arg(&folder).args(["-c", "nginx.conf"]);
        Peer::start(&mut nginx, port, &folder)
    }

    /// The blob server of azurite, which keeps blobs in files; `ZAFFRE_AZURITE` names the program.
    pub fn azurite(folder: &Path) -> Result<Peer> {
        let folder = made(folder, "azurite")?;
        let program =
            std::env::var_os("ZAFFRE_AZURITE").map_or_else(|| "azurite-blob".into(), PathBuf::from);
        let port = free_port()?;
        let mut azurite = Command::new(program);
        azurite
            .args(["--silent", "--skipApiVersionCheck", "--disableTelemetry"])
            .args(["--blobPort", &port.to_string(), "--location"])
            .arg(folder.join("data"));
        Peer::start(&mut azurite, port, &folder)
    }

    /// CPU seconds of it and what it started, the ended ones that were waited for included.
    pub fn cpu(&self) -> Result<f64> {
        super::server::cpu(&tree(self.child.id(), None)?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let all = tree(self.child.id(), None).unwrap_or_default();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in all {
            let _ = Command::new("kill")
                .args(["-9", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// The peers and floors of `../shared/bench`.
pub struct Peers {
    pub bench: PathBuf,
    target: PathBuf,
    /// A Python with `psutil`; `ZAFFRE_PEERS` names one.
    pub python: PathBuf,
    scratch: PathBuf,
}

impl Peers {
    pub fn new(scratch: &Path) -> Result<Peers> {
        let bench = shared().join("bench");
        ensure!(
            bench.is_dir(),
            "{} is missing: peers and floors are there",
            bench.display()
        );
        let target = target_folder().join("peers");
        for name in ["dispatchfloor", "floors"] {
            let manifest = bench.join(name).join("Cargo.toml");
            let mut build = cargo(&["build", "--release", "--quiet", "--manifest-path"]);
            run(build.arg(manifest).arg("--target-dir").arg(&target))?;
        }
        let python =
            std::env::var_os("ZAFFRE_PEERS").map_or_else(|| "python3".into(), PathBuf::from);
        let scratch = scratch.to_owned();
        Ok(Peers {
            bench,
            target,
            python,
            scratch,
        })
    }

    pub fn floor(&self, name: &str, args: &[&str]) -> Result<Value> {
        let mut command = Command::new(self.target.join("release").join(name));
        self.json(command.args(args))
    }

    pub fn python(&self, script: &str, args: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.python);
        self.json(command.arg(self.bench.join(script)).args(args))
    }

    fn json(&self, command: &mut Command) -> Result<Value> {
        let output = command.env("BDIR", &self.scratch).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = text.lines().find(|line| line.starts_with('{'));
        let said = said.with_context(|| {
            let error = String::from_utf8_lossy(&output.stderr);
            format!("{command:?} measured nothing: {text}{error}")
        })?;
        println!("      {said}");
        Ok(serde_json::from_str(said)?)
    }

    pub fn mkfiles(&self, folder: &Path, n: u32) -> Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        for i in 0..n {
            fs::write(folder.join(format!("f{i:07}.csv")), "1,2,3,4\n")?;
        }
        Ok(())
    }
}

/// Where PostgreSQL's programs are, which its package does not put on the path.
pub fn postgres_programs() -> Result<PathBuf> {
    let all = fs::read_dir("/usr/lib/postgresql").context("PostgreSQL is not installed")?;
    let mut versions: Vec<PathBuf> = all.flatten().map(|entry| entry.path()).collect();
    versions.sort();
    let newest = versions.pop().context("PostgreSQL is not installed")?;
    Ok(newest.join("bin"))
}

/// Runs a command that has to succeed; returns what it said.
pub fn done(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "{command:?}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(text)
}

fn made(folder: &Path, name: &str) -> Result<PathBuf> {
    let folder = folder.join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
