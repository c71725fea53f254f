//! A release `zaffre serve` in a folder of its own, spoken to in plain HTTP/1.1, and what it and its nodes cost.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing that is measured takes so long.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks at a job.
const POLL: Duration = Duration::from_millis(2);
/// CPU times in `/proc` are counted in these.
const TICKS_PER_SECOND: f64 = 100.0;
/// Part of a worker's command line.
const WORKER: &str = "batch.py";
const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

/// The path of something in the default workspace.
pub fn arm(path: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default/{path}"
    )
}

/// The path that invokes the endpoint `scores`.
pub fn scoring() -> String {
    format!("/batch/{SUBSCRIPTION}/default/default/scores/jobs")
}

pub struct Server {
    exe: PathBuf,
    pub folder: PathBuf,
    child: Child,
    pub port: u16,
    pub token: String,
    line: Option<BufReader<TcpStream>>,
    /// Header lines sent with each request, each with its line end.
    pub header: String,
}

impl Server {
    /// Starts it on `folder` and returns when it is ready.
    pub fn start(exe: &Path, folder: &Path) -> Result<Server> {
        let (child, port) = spawn(exe, folder)?;
        let token = fs::read_to_string(folder.join("data/token"))?;
        Ok(Server {
            exe: exe.to_owned(),
            folder: folder.to_owned(),
            child,
            port,
            token: token.trim().to_owned(),
            line: None,
            header: String::new(),
        })
    }

    /// Ends it as a power cut does and starts it again; returns how long it took to be ready.
    pub fn kill_and_start(&mut self) -> Result<Duration> {
        self.child.kill()?;
        self.child.wait()?;
        let begun = Instant::now();
        (self.child, self.port) = spawn(&self.exe, &self.folder)?;
        self.line = None;
        Ok(begun.elapsed())
    }

    /// A command of the command line, in the folder of the server.
    pub fn zaffre(&self, args: &[&str]) -> Result<()> {
        let output = Command::new(&self.exe)
            .args(args)
            .current_dir(&self.folder)
            .env("ZAFFRE_HOME", self.folder.join("home"))
            .env("ZAFFRE_SERVER", format!("http://127.0.0.1:{}", self.port))
            .env("ZAFFRE_TOKEN", &self.token)
            .stdin(Stdio::null())
            .output()?;
        ensure!(
            output.status.success(),
            "zaffre {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// One request; the answer must be a success.
    pub fn ask(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let kept = self.line.take().filter(|line| !closed(line.get_ref()));
        let stream = match kept {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(("127.0.0.1", self.port))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let (status, answer, stream) = self.exchange(stream, method, path, &body)?;
        self.line = Some(stream);
        ensure!(
            (200..300).contains(&status),
            "{method} {path}: {status} {}",
            String::from_utf8_lossy(&answer)
        );
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    fn exchange(
        &self,
        mut stream: BufReader<TcpStream>,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, Vec<u8>, BufReader<TcpStream>)> {
        let request = format!(
            "{method} {path}?api-version=2024-10-01 HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{}\r\n{body}",
            self.port,
            self.token,
            body.len(),
            self.header
        );
        stream.get_mut().write_all(request.as_bytes())?;
        let (mut status, mut length) = (0, 0);
        for number in 0.. {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let line = line.trim_end();
            if number == 0 {
                let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
                status = code.with_context(|| format!("no status in {line:?}"))?;
            } else if line.is_empty() {
                break;
            } else if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.parse()?;
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer)?;
        Ok((status, answer, stream))
    }

    /// One job's document.
    pub fn job(&mut self, name: &str) -> Result<Value> {
        self.ask("GET", &arm(&format!("jobs/{name}")), &Value::Null)
    }

    /// Waits until `done` holds of a job's document, which it must before the job fails.
    pub fn wait(&mut self, name: &str, mut done: impl FnMut(&Value) -> bool) -> Result<Value> {
        let begun = Instant::now();
        loop {
            let job = self.job(name)?;
            if done(&job) {
                return Ok(job);
            }
            let status = job["properties"]["status"].as_str().unwrap_or_default();
            ensure!(
                !["Failed", "Canceled"].contains(&status) && begun.elapsed() < PATIENCE,
                "job {name} is {status} after {:?}: {job}",
                begun.elapsed()
            );
            std::thread::sleep(POLL);
        }
    }

    /// Waits for the end of a job.
    pub fn complete(&mut self, name: &str) -> Result<Value> {
        self.wait(name, |job| job["properties"]["status"] == "Completed")
    }

    /// The server, its agents and all below them.
    pub fn tree(&self) -> Result<BTreeSet<u32>> {
        tree(self.child.id(), Some(&self.folder))
    }

    /// The Python workers.
    pub fn workers(&self) -> Result<Vec<u32>> {
        let worker = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(WORKER)
        };
        Ok(self.tree()?.into_iter().filter(worker).collect())
    }

    /// CPU seconds of all of them so far, the ended ones that were waited for included. User and system time.
    pub fn cpu(&self) -> Result<f64> {
        cpu(&self.tree()?)
    }

    /// Resident memory of the server, in MB.
    pub fn rss(&self) -> f64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
        kib.unwrap_or(0.0) * 1024.0 / 1e6
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // In order, so that its nodes end too; then whatever is left.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").arg(&pid).status();
        let _ = self.child.wait();
        for pid in self.tree().unwrap_or_default() {
            let _ = Command::new("kill")
                .args(["-9", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// The process and its port, when it is ready.
fn spawn(exe: &Path, folder: &Path) -> Result<(Child, u16)> {
    fs::create_dir_all(folder)?;
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))?;
    let mut child = Command::new(exe)
        .args(["serve", "--no-register", "--stop-tasks"])
        .args(["--listen", "127.0.0.1:0", "--data"])
        .arg(folder.join("data"))
        .env("ZAFFRE_HOME", folder.join("home"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}", exe.display()))?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
    let port = line.trim().rsplit(':').next().and_then(|p| p.parse().ok());
    let Some(port) = port else {
        let _ = child.kill();
        let _ = child.wait();
        bail!(
            "the server is not ready: {line:?}, see {}",
            folder.display()
        );
    };
    Ok((child, port))
}

/// A process and all below it; with `mark`, also those whose command line names that folder.
pub fn tree(root: u32, mark: Option<&Path>) -> Result<BTreeSet<u32>> {
    let mark = mark.map(|folder| folder.to_string_lossy().into_owned());
    let mut tree = BTreeSet::from([root]);
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        if mark.as_ref().is_some_and(|mark| line.contains(mark)) {
            tree.insert(pid);
        }
        if let Some(parent) = stat(pid).get(1) {
            parents.push((pid, *parent));
        }
    }
    loop {
        let before = tree.len();
        for (pid, parent) in &parents {
            if tree.contains(parent) {
                tree.insert(*pid);
            }
        }
        if tree.len() == before {
            return Ok(tree);
        }
    }
}

/// CPU seconds of these processes so far, user and system time, with the ended ones that they waited for.
pub fn cpu(tree: &BTreeSet<u32>) -> Result<f64> {
    let ticks = |pid: &u32| -> u32 { stat(*pid).get(11..15).unwrap_or_default().iter().sum() };
    let all: u32 = tree.iter().map(ticks).sum();
    Ok(f64::from(all) / TICKS_PER_SECOND)
}

/// Whether the server closed a connection while nothing was asked.
fn closed(stream: &TcpStream) -> bool {
    let look = || {
        stream.set_nonblocking(true)?;
        let seen = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        seen
    };
    !look().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// The numbers of `/proc/PID/stat` behind the name: state (as 0), parent, …
fn stat(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default();
    let fields = fields.split_ascii_whitespace();
    fields.map(|f| f.parse().unwrap_or(0)).collect()
}
