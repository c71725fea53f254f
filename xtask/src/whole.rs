//! `cargo xtask bench whole`: what a user gets, through the API of a release server with everything durable, beside peers
//! and floors of the same run. Goals are those of the performance document (A1 to A6, B1 to B4, C1 to C7, F1 to F4).
//!
//! W1 start-up is not part of a cost per mini-batch: the cost is the difference of a large and a small job, over the
//! difference of their sizes;
//! W2 CPU is that of the server, its agents, their workers and all that they waited for;
//! W3 a figure beside a peer or a floor is a ratio of the same run.

mod blobs;
mod documents;
mod peer;
mod server;

use crate::cargo::{cargo, run, target_folder};
use anyhow::{Context, Result, ensure};
use peer::Peers;
use serde_json::{Value, json};
use server::{Server, arm, scoring};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Mini-batches of the small job, whose cost is start-up.
const SMALL: u32 = 1_000;
/// Mini-batches of the large one.
const LARGE: u32 = 100_000;
/// Mini-batches of the one that shows how cost grows.
const MILLION: u32 = 1_000_000;
/// Files of the job that reads files, and how many make a mini-batch.
const FILES: u32 = 10_000;
const GROUP: u32 = 10;
/// Times that they are read by each.
const ROUNDS: u32 = 10;
/// Command jobs, one after the other.
const COMMANDS: u32 = 200;
/// Workers killed to see how fast their mini-batch goes on.
const DEATHS: u32 = 50;
/// Times that a start is measured.
const STARTS: usize = 7;
/// Nothing that is waited for takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at what workers said.
const LOOK: Duration = Duration::from_micros(200);
/// Between two looks at a long job: each look is a request, whose cost is the server's too.
const WATCH: Duration = Duration::from_millis(20);
/// Documents beside which a restart is measured.
const DOCUMENTS: u32 = 10_000;

const CLUSTER: &str = "\
name: pool
type: amlcompute
size: STANDARD_DS3_v2
min_instances: 1
max_instances: 1
tier: low_priority
";

fn deployment(name: &str, script: &str, group: u32, workers: u32) -> String {
    format!(
        "\
name: {name}
endpoint_name: scores
model: {{path: ./model}}
code_configuration: {{code: ./code, scoring_script: {script}}}
environment: {{image: library/python:latest}}
compute: azureml:pool
mini_batch_size: {group}
max_concurrency_per_instance: {workers}
retry_settings: {{max_retries: 100, timeout: 60}}
"
    )
}

/// Never ends, so that a worker can be killed while it holds the mini-batch. Says when it is there and when it begins.
const BLOCKS: &str = "\
import os, signal, time
def say(what):
    with open(os.environ['ZAFFRE_BENCH_STARTS'], 'a') as log:
        log.write(f'{what} {os.getpid()} {time.time_ns()}\\n')
def init():
    say('ready')
def run(mini_batch):
    say('begins')
    while True:
        signal.pause()
";

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// F1, F2, F4.
    Starts,
    /// A3.
    Commands,
    /// B1, B2.
    Files,
    /// A1, A2, A4, A5, B4.
    Dispatch,
    /// F3, A6.
    Restart,
    /// C1 to C6; needs wrk, PostgreSQL, etcd and nginx.
    Documents,
    /// C7; needs azurite.
    Blobs,
}

/// The parts, by the names that the command line has for them, in the order in which they are measured.
pub const PARTS: [(&str, Part); 7] = [
    ("starts", Part::Starts),
    ("commands", Part::Commands),
    ("files", Part::Files),
    ("dispatch", Part::Dispatch),
    ("restart", Part::Restart),
    ("documents", Part::Documents),
    ("blobs", Part::Blobs),
];

/// One part, or everything on one server, in a folder that is removed at the end.
pub fn whole(part: Option<Part>) -> Result<()> {
    run(&mut cargo(&["build", "--release", "-p", "zaffre"]))?;
    let exe = target_folder().join("release/zaffre");
    let folder = std::env::temp_dir().join(format!("zaffre-whole-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let done = Bench::new(exe, &folder).and_then(|bench| bench.all(part));
    let _ = fs::remove_dir_all(&folder);
    done
}

struct Bench {
    exe: PathBuf,
    folder: PathBuf,
    peers: Peers,
}

impl Bench {
    fn new(exe: PathBuf, folder: &Path) -> Result<Bench> {
        let folder = folder.to_owned();
        fs::create_dir_all(&folder)?;
        let peers = Peers::new(&folder)?;
        Ok(Bench { exe, folder, peers })
    }

    fn all(&self, only: Option<Part>) -> Result<()> {
        // One server with a pool for all parts that want it, and none beside the others.
        let mut pool = None;
        for (_, part) in PARTS {
            if only.is_some_and(|only| only != part) {
                continue;
            }
            match part {
                Part::Starts => {
                    self.help()?;
                    self.first_command()?;
                }
                Part::Commands => self.commands(self.pool(&mut pool)?)?,
                Part::Files => self.files(self.pool(&mut pool)?)?,
                Part::Dispatch => self.dispatch(self.pool(&mut pool)?)?,
                Part::Restart => self.restart(self.pool(&mut pool)?)?,
                Part::Documents => documents::documents(self)?,
                Part::Blobs => blobs::blobs(self)?,
            }
            if part == Part::Restart {
                pool = None;
            }
        }
        Ok(())
    }

    fn pool<'a>(&self, started: &'a mut Option<Server>) -> Result<&'a mut Server> {
        let server = match started.take() {
            Some(server) => server,
            None => self.with_pool("whole")?,
        };
        Ok(started.insert(server))
    }

    /// A server with one node and the deployments.
    fn with_pool(&self, name: &str) -> Result<Server> {
        let folder = self.folder.join(name);
        let write = |name: &str, text: &str| -> Result<()> {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().context("no parent")?)?;
            Ok(fs::write(path, text)?)
        };
        write("cluster.yml", CLUSTER)?;
        write("model/m.txt", "m")?;
        write("in/0.csv", "0")?;
        write("code/noop.py", "def run(mini_batch):\n    return ['1']\n")?;
        let read = fs::read_to_string(self.peers.bench.join("batch/score.py"))?;
        write("code/files.py", &read)?;
        write("noop.yml", &deployment("noop", "noop.py", 1, 2))?;
        write("files.yml", &deployment("files", "files.py", GROUP, 2))?;
        let server = Server::start(&self.exe, &folder)?;
        server.zaffre(&["compute", "create", "-f", "cluster.yml"])?;
        for file in ["noop.yml", "files.yml"] {
            server.zaffre(&["batch-endpoint", "create", "-f", file])?;
        }
        // Uploads something, so that the container of the workspace is there.
        server.zaffre(&[
            "data",
            "create",
            "-n",
            "in",
            "--path",
            "in",
            "--type",
            "uri_folder",
        ])?;
        Ok(server)
    }

    /// F4.
    fn help(&self) -> Result<()> {
        let mut took = Vec::new();
        for _ in 0..STARTS {
            let begun = Instant::now();
            let status = Command::new(&self.exe)
                .arg("--help")
                .stdout(Stdio::null())
                .status()?;
            ensure!(status.success(), "--help ended with {status}");
            took.push(begun.elapsed());
        }
        let size = fs::metadata(&self.exe)?.len();
        say(
            "F4",
            &format!(
                "--help {:.1} ms; binary {:.1} MB",
                ms(median(&mut took)),
                mb(size)
            ),
        );
        Ok(())
    }

    /// F1: from the start of the server in an empty folder to a finished command; F2: the same with a Python mini-batch.
    fn first_command(&self) -> Result<()> {
        let (mut fresh, mut again, mut python) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..STARTS {
            let folder = self.folder.join(format!("start{round}"));
            let begun = Instant::now();
            let mut server = Server::start(&self.exe, &folder)?;
            let properties = json!({"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_v2",
                "vmPriority": "LowPriority", "scaleSettings": {"minNodeCount": 1, "maxNodeCount": 1}}});
            server.ask(
                "PUT",
                &arm("computes/pool"),
                &json!({"location": "local", "properties": properties}),
            )?;
            let environment = json!({"properties": {"image": "library/python:latest"}});
            server.ask("PUT", &arm("environments/e/versions/1"), &environment)?;
            command(&mut server, "first")?;
            server.complete("first")?;
            fresh.push(begun.elapsed());
            drop(server);

            let begun = Instant::now();
            let mut server = Server::start(&self.exe, &folder)?;
            command(&mut server, "second")?;
            server.complete("second")?;
            again.push(begun.elapsed());
        }
        drop(self.with_pool("cold")?);
        for round in 0..STARTS {
            let begun = Instant::now();
            let mut server = Server::start(&self.exe, &self.folder.join("cold"))?;
            let input = "azureml:in:1".to_owned();
            let name = format!("first{round}");
            invoke(&mut server, "noop", &name, &input)?;
            server.wait(&name, |job| {
                job["properties"]["properties"]["zaffre.mini_batches_done"] == "1"
            })?;
            python.push(begun.elapsed());
        }
        let bare = self.peers.floor("floors", &["pyspawn", "20"])?;
        say(
            "F1",
            &format!(
                "start to first finished command: {:.1} ms in an empty folder, {:.1} ms in one with a certificate (goal 60)",
                ms(median(&mut fresh)),
                ms(median(&mut again))
            ),
        );
        let us = bare["us_each"].as_f64().unwrap_or(0.0);
        say(
            "F2",
            &format!(
                "start to first finished Python mini-batch: {:.1} ms; one bare Python start is {:.1} ms",
                ms(median(&mut python)),
                us / 1e3
            ),
        );
        Ok(())
    }

    /// A1, A2, A4, A5.
    fn dispatch(&self, server: &mut Server) -> Result<()> {
        say("A5", &format!("server at rest: {:.1} MB", server.rss()));
        let small = self.batch(server, "noop", SMALL, 0)?;
        let floor = self
            .peers
            .floor("dispatchfloor", &["100000", "python", "group", "2"])?;
        let peer = self.peers.python("dispatch/peers.py", &["mp1", "100000"])?;
        let large = self.batch(server, "noop", LARGE, 0)?;
        let (cpu, wall) = large.over(&small);
        say(
            "A1",
            &format!("{cpu:.2} us of CPU per durable mini-batch, n={LARGE} (goal 15)"),
        );
        ratio(
            "A1",
            "of mp.Pool(chunksize=1)",
            cpu,
            peer["cpu_us_per_task"].as_f64(),
            0.5,
        );
        ratio(
            "A1",
            "of dispatchfloor",
            cpu,
            floor["cpu_us_per_task"].as_f64(),
            1.5,
        );
        say("A2", &format!("{wall:.2} us of wall time per mini-batch"));
        ratio(
            "A2",
            "of the time of mp.Pool(chunksize=1)",
            wall,
            peer["us_per_task"].as_f64(),
            0.5,
        );
        ratio(
            "A2",
            "of the time of dispatchfloor",
            wall,
            floor["us_per_task"].as_f64(),
            1.0 / 0.6,
        );
        let again = self.batch_with_deaths(server)?;
        say(
            "B4",
            &format!(
                "each worker killed once: {:.2} of the undisturbed time (at most 1.3 wanted)",
                again.as_secs_f64() / large.wall.as_secs_f64()
            ),
        );
        let million = self.batch(server, "noop", MILLION, 0)?;
        let (grown, _) = million.over(&small);
        say(
            "A4",
            &format!(
                "{grown:.2} us of CPU per mini-batch, n={MILLION}; submitted in {:.1} ms (goal 50)",
                ms(million.submit)
            ),
        );
        ratio(
            "A4",
            "of the cost at the smaller size",
            grown,
            Some(cpu),
            1.1,
        );
        say(
            "A5",
            &format!(
                "server at most {:.1} MB with {MILLION} mini-batches (goal 75)",
                million.rss
            ),
        );
        Ok(())
    }

    /// B4: the large job again, each worker killed once while it works. Returns its time.
    fn batch_with_deaths(&self, server: &mut Server) -> Result<Duration> {
        let begun = Instant::now();
        let input = format!("azureml://datastores/workspaceblobstore/paths/bench/noop{LARGE}/");
        invoke(server, "noop", "killed", &input)?;
        let part = |job: &Value| -> u32 {
            let done = &job["properties"]["properties"]["zaffre.mini_batches_done"];
            done.as_str().and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        server.wait("killed", |job| part(job) > LARGE / 4)?;
        let workers = server.workers()?;
        ensure!(workers.len() == 2, "workers {workers:?}");
        for pid in workers {
            ensure!(
                Command::new("kill")
                    .args(["-9", &pid.to_string()])
                    .status()?
                    .success(),
                "no worker {pid}"
            );
        }
        let job = server.complete("killed")?;
        let wall = begun.elapsed();
        ensure!(part(&job) == LARGE, "{job}");
        ensure!(
            output(server, "killed")? == output(server, &format!("noop{LARGE}-0"))?,
            "another output"
        );
        Ok(wall)
    }

    /// B1, B2.
    fn files(&self, server: &mut Server) -> Result<()> {
        let folder = self.folder.join("files");
        self.peers.mkfiles(&folder, FILES)?;
        let folder = folder.to_string_lossy().into_owned();
        let group = GROUP.to_string();
        let peer = |name: &str| {
            self.peers
                .python("batch/peers.py", &[name, &folder, &group])
        };
        // Side by side, so that all see the same machine; one of them is over too soon for clocks of 10 ms.
        let (mut floor, mut pool, mut ours) = ([0.0; 2], [0.0; 2], [0.0; 2]);
        for round in 0..ROUNDS {
            for (name, sum) in [("loop", &mut floor), ("mp", &mut pool)] {
                let said = peer(name)?;
                sum[0] += said["cpu_us_per_mb"].as_f64().unwrap_or(0.0) / f64::from(ROUNDS);
                sum[1] += said["us_per_mb"].as_f64().unwrap_or(0.0) / f64::from(ROUNDS);
            }
            let small = self.batch(server, "files", 20, round)?;
            let large = self.batch(server, "files", FILES, round)?;
            let (cpu, wall) = large.over(&small);
            ours[0] += cpu / f64::from(ROUNDS);
            ours[1] += wall / f64::from(ROUNDS);
        }
        let [cpu, wall] = ours;
        say(
            "B1",
            &format!("{cpu:.1} us of CPU per mini-batch of {GROUP} files, mean of {ROUNDS}"),
        );
        ratio("B1", "of one Python loop", cpu, Some(floor[0]), 1.25);
        ratio(
            "B2",
            "of the wall time of one loop",
            wall,
            Some(floor[1]),
            0.6,
        );
        ratio(
            "B2",
            "of that of mp.Pool.imap_unordered",
            wall,
            Some(pool[1]),
            1.05,
        );
        Ok(())
    }

    /// Runs a job over `files` files.
    fn batch(&self, server: &mut Server, deployment: &str, files: u32, round: u32) -> Result<Cost> {
        let batches = if deployment == "files" {
            files / GROUP
        } else {
            files
        };
        let input = format!("{deployment}{files}");
        let name = format!("{input}-{round}");
        let container = container(server)?;
        // Laid down beside the uploads: uploading a million files is not what is measured.
        self.peers
            .mkfiles(&container.join("bench").join(&input), files)?;
        let cpu = server.cpu()?;
        let begun = Instant::now();
        let input = format!("azureml://datastores/workspaceblobstore/paths/bench/{input}/");
        invoke(server, deployment, &name, &input)?;
        let submit = begun.elapsed();
        let mut rss = 0.0;
        loop {
            rss = f64::max(rss, server.rss());
            let job = server.job(&name)?;
            let status = job["properties"]["status"].as_str().unwrap_or_default();
            if status == "Completed" {
                let done = &job["properties"]["properties"]["zaffre.mini_batches_done"];
                ensure!(
                    *done == json!(batches.to_string()),
                    "{done} are done: {job}"
                );
                break;
            }
            ensure!(status != "Failed", "{job}");
            std::thread::sleep(WATCH);
        }
        let wall = begun.elapsed();
        let cpu = server.cpu()? - cpu;
        Ok(Cost {
            batches,
            cpu,
            wall,
            submit,
            rss,
        })
    }

    /// A3.
    fn commands(&self, server: &mut Server) -> Result<()> {
        let floor = self.peers.floor("floors", &["spawn", "1000"])?;
        let environment = json!({"properties": {"image": "library/python:latest"}});
        server.ask("PUT", &arm("environments/e/versions/1"), &environment)?;
        command(server, "warm")?;
        server.complete("warm")?;
        let (cpu, begun) = (server.cpu()?, Instant::now());
        for n in 0..COMMANDS {
            command(server, &format!("c{n}"))?;
        }
        for n in 0..COMMANDS {
            server.complete(&format!("c{n}"))?;
        }
        let each = |seconds: f64| seconds * 1e6 / f64::from(COMMANDS);
        let (cpu, wall) = (
            each(server.cpu()? - cpu),
            each(begun.elapsed().as_secs_f64()),
        );
        say(
            "A3",
            &format!(
                "{cpu:.0} us of CPU and {wall:.0} us of wall time per command job, durable, with its logs"
            ),
        );
        ratio(
            "A3",
            "of posix_spawn",
            cpu,
            floor["cpu_us_each"].as_f64(),
            1.25,
        );
        Ok(())
    }

    /// F3 and A6.
    fn restart(&self, server: &mut Server) -> Result<()> {
        for n in 0..DOCUMENTS {
            let body = json!({"properties": {"image": "library/python:latest"}});
            server.ask(
                "PUT",
                &arm(&format!("environments/many{n}/versions/1")),
                &body,
            )?;
        }
        let mut took = Vec::new();
        for _ in 0..STARTS {
            took.push(server.kill_and_start()?);
        }
        say(
            "F3",
            &format!(
                "ready {:.1} ms after kill -9, with what the parts before left and {DOCUMENTS} documents (goal 300); {:.1} MB",
                ms(median(&mut took)),
                server.rss()
            ),
        );
        self.deaths(server)
    }

    /// A6: a worker dies while another is free.
    fn deaths(&self, server: &mut Server) -> Result<()> {
        let starts = self.folder.join("starts");
        fs::write(&starts, "")?;
        open_to_all(&starts)?;
        fs::write(server.folder.join("code/blocks.py"), BLOCKS)?;
        let variables = format!(
            "environment_variables: {{ZAFFRE_BENCH_STARTS: {}}}\n",
            starts.display()
        );
        let file = deployment("blocks", "blocks.py", 1, 2) + &variables;
        fs::write(server.folder.join("blocks.yml"), file)?;
        server.zaffre(&["batch-endpoint", "create", "-f", "blocks.yml"])?;
        invoke(server, "blocks", "deaths", "azureml:in:1")?;
        // A shell that waits for its orders: the start of a process is not measured.
        let mut shell = Command::new("sh").arg("-e").stdin(Stdio::piped()).spawn()?;
        let mut killer = shell.stdin.take().context("no stdin")?;
        let mut took = Vec::new();
        let mut killed = None;
        for deaths in 0..=DEATHS as usize {
            // Both are there before the one that holds the mini-batch dies: the other is free to take it.
            let said = wait_for_starts(&starts, deaths + 2, deaths + 1)?;
            let (pid, at) = said.split_once(' ').context("a start")?;
            if let Some(killed) = killed {
                let nanos = at.parse::<u128>()?.saturating_sub(killed);
                took.push(Duration::from_nanos(u64::try_from(nanos)?));
            }
            if deaths < DEATHS as usize {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
                killed = Some(now.as_nanos());
                writeln!(killer, "kill -9 {pid}")?;
            }
        }
        drop(killer);
        ensure!(shell.wait()?.success(), "a worker was not there");
        took.sort_unstable();
        say(
            "A6",
            &format!(
                "kill -9 of a worker to its mini-batch in another: median {:.2} ms, worst of {DEATHS} {:.2} ms (goal p99 5)",
                ms(took[took.len() / 2]),
                ms(took[took.len() - 1])
            ),
        );
        server.zaffre(&["job", "cancel", "-n", "deaths"])?;
        Ok(())
    }
}

/// Waits until so many workers said that they are ready and so many that they begin; returns the last of the latter,
/// process id and time.
fn wait_for_starts(log: &Path, ready: usize, begun: usize) -> Result<String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(log)?;
        // A line that is not whole yet is left for the next look.
        let whole = text.rfind('\n').map_or("", |at| &text[..at]);
        let (mut there, mut begins) = (0, Vec::new());
        for line in whole.lines() {
            match line.split_once(' ') {
                Some(("begins", rest)) => begins.push(rest),
                _ => there += 1,
            }
        }
        if there >= ready && begins.len() >= begun {
            return Ok(begins[begun - 1].to_owned());
        }
        ensure!(
            Instant::now() < end,
            "{there} of {ready} workers are ready, {} of {begun} began",
            begins.len()
        );
        std::thread::sleep(LOOK);
    }
}

/// What a batch run cost.
struct Cost {
    batches: u32,
    /// Seconds.
    cpu: f64,
    wall: Duration,
    submit: Duration,
    /// MB.
    rss: f64,
}

impl Cost {
    /// Microseconds of CPU and of wall time per mini-batch (W1).
    fn over(&self, small: &Cost) -> (f64, f64) {
        let n = f64::from(self.batches - small.batches);
        let wall = self.wall.as_secs_f64() - small.wall.as_secs_f64();
        ((self.cpu - small.cpu) * 1e6 / n, wall * 1e6 / n)
    }
}

fn command(server: &mut Server, name: &str) -> Result<()> {
    let properties = json!({"jobType": "Command", "command": "/bin/true",
        "environmentId": arm("environments/e/versions/1"), "computeId": arm("computes/pool")});
    server.ask(
        "PUT",
        &arm(&format!("jobs/{name}")),
        &json!({"properties": properties}),
    )?;
    Ok(())
}

fn invoke(server: &mut Server, deployment: &str, name: &str, input: &str) -> Result<Value> {
    let uri = match input.strip_prefix("azureml:in:") {
        Some(version) => arm(&format!("data/in/versions/{version}")),
        None => input.to_owned(),
    };
    let input = json!({"JobInputType": "UriFolder", "Uri": uri});
    let properties = json!({"InputData": {"UriFolder": input}, "jobName": name});
    server.header = format!("azureml-model-deployment: {deployment}\r\n");
    let answer = server.ask("POST", &scoring(), &json!({"properties": properties}));
    server.header.clear();
    answer
}

/// The folder of the workspace's default datastore.
fn container(server: &Server) -> Result<PathBuf> {
    fs::read_dir(server.folder.join("data/blobs"))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with("-blobs"))
        .context("the workspace has no container")
}

/// The output of a batch run.
fn output(server: &Server, job: &str) -> Result<Vec<u8>> {
    let path = container(server)?.join(format!("azureml/{job}/score/predictions.csv"));
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn open_to_all(path: &Path) -> Result<()> {
    let status = Command::new("chmod").arg("666").arg(path).status()?;
    ensure!(status.success(), "chmod: {status}");
    Ok(())
}

fn say(goal: &str, text: &str) {
    println!("{goal:<4}  {text}");
}

/// A figure over another of the same run, at most `most` wanted.
fn ratio(goal: &str, of: &str, ours: f64, theirs: Option<f64>, most: f64) {
    match theirs.filter(|theirs| *theirs > 0.0) {
        Some(theirs) => say(
            goal,
            &format!(
                "{:.2} {of} ({theirs:.2} us; at most {most:.2} wanted)",
                ours / theirs
            ),
        ),
        None => say(
            goal,
            &format!(
                "no figure to compare with {of}: is psutil there? ZAFFRE_PEERS names a Python that has it"
            ),
        ),
    }
}

/// A rate over another of the same run, at least `least` wanted.
fn ratio_of(goal: &str, of: &str, ours: f64, theirs: f64, unit: &str, least: f64) {
    say(
        goal,
        &format!(
            "{:.2} {of} ({theirs:.0}{unit}; at least {least:.1} wanted)",
            ours / theirs
        ),
    );
}

fn median(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a size of a file is printed with one digit"
)]
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
