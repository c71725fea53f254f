//! The server is killed as by `kill -9` at every write point of one scenario, before the write and after it, is started
//! again, and the scenario goes on as a user would go on. Every time the output must be, byte for byte, the one of an
//! undisturbed run, and no node may be left behind (I1, I2, I3, I6; fault T1).
//!
//! Test builds carry the store's failpoints (see the dev-dependencies); `ZAFFRE_FAILPOINT` arms one in the server.

mod support;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Kills that the test must have seen; fewer means that it no longer reaches the write points.
const KILLS: u64 = 200;
/// Scenarios at a time: each waits for its disk and its processes more than it computes.
const LANES: u64 = 4;
/// How long anything may take before the test says where it hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// Arms no point, but has the names of those that are passed logged.
const NEVER: &str = "0";

/// How often a process is looked at.
const POLL: Duration = Duration::from_millis(3);

/// Points that the run must pass, and so be killed at: a listing and an output appear, results and facts become durable.
const POINTS: [&str; 9] = [
    "blob.rename",
    "blob.sync_folder",
    "segment.create",
    "segment.write",
    "segment.sync",
    "event.write",
    "span.write",
    "store.begin",
    "store.commit",
];

const CLUSTER: &str =
    "name: pool\ntype: amlcompute\nsize: STANDARD_DS3_v2\nmax_instances: 1\ntier: low_priority\n";
const DEPLOYMENT: &str = "\
name: blue
endpoint_name: scores
model: {path: ./model}
code_configuration: {code: ./code, scoring_script: score.py}
environment: {image: library/python:latest}
compute: azureml:pool
mini_batch_size: 2
";
const SCRIPT: &str = "\
import os
def init():
    pass
def run(mini_batch):
    return [os.path.basename(p) + ',' + open(p).read() for p in mini_batch]
";
const FILES: usize = 9;

struct Site {
    root: tempfile::TempDir,
}

struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Site {
    fn new() -> Site {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| support::write(root.path(), name, text);
        write("cluster.yml", CLUSTER);
        write("deployment.yml", DEPLOYMENT);
        write("model/m.txt", "m");
        write("code/score.py", SCRIPT);
        for i in 0..FILES {
            write(&format!("in/{i}.csv"), &i.to_string());
        }
        Site { root }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
    fn log(&self) -> String {
        fs::read_to_string(self.path("serve.log")).unwrap_or_default()
    }
    fn zaffre(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zaffre"));
        command
            .current_dir(self.root.path())
            .env("ZAFFRE_HOME", self.path("home"))
            .env_remove("ZAFFRE_SERVER")
            .stdin(Stdio::null());
        command
    }
    /// `None` when it died before it was ready.
    fn serve(&self, failpoint: Option<&str>) -> Option<Server> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("serve.log"))
            .unwrap();
        let mut command = self.zaffre();
        command
            .args([
                "serve",
                "--data",
                "data",
                "--listen",
                "127.0.0.1:0",
                "--no-register",
            ])
            .stdout(Stdio::piped())
            .stderr(log);
        if let Some(point) = failpoint {
            command.env("ZAFFRE_FAILPOINT", point);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        if let Some(url) = line.trim().strip_prefix("ready ") {
            let url = url.replace("https:", "http:");
            return Some(Server { child, url });
        }
        child.wait().unwrap();
        None
    }
    /// Runs a command; `None` when the server died under it. The client would go on trying for seconds, which is not what
    /// this test is about, so it is ended then.
    fn cli(&self, server: &mut Server, args: &[&str]) -> Option<(bool, String)> {
        let token = fs::read_to_string(self.path("data/token")).unwrap();
        let said = fs::File::create(self.path("said")).unwrap();
        let mut cli = self
            .zaffre()
            .args(args)
            .args(["--server", &server.url])
            .env("ZAFFRE_TOKEN", token.trim())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap();
        let start = Instant::now();
        loop {
            if let Some(status) = cli.try_wait().unwrap() {
                let said = fs::read_to_string(self.path("said")).unwrap();
                return Some((status.success(), said));
            }
            let dead = server.child.try_wait().unwrap().is_some();
            let hangs = start.elapsed() > PATIENCE;
            if dead || hangs {
                let _ = cli.kill();
                let _ = cli.wait();
                assert!(!hangs, "{args:?} hangs\n{}", self.log());
                return None;
            }
            std::thread::sleep(POLL);
        }
    }
    /// Repeats a step as a user would until it is done; starts the server again when it died. Returns whether it did.
    fn step(&self, server: &mut Server, args: &[&str], mut killed: bool) -> bool {
        loop {
            match self.cli(server, args) {
                Some((true, _)) => return killed,
                Some((false, said)) => {
                    // Nobody was told, but it was done: a user who repeats the command reads that.
                    let was_done = match args {
                        [_, "invoke", ..] => said.contains("job j already exists"),
                        [_, "delete", ..] => said.contains("compute pool does not exist"),
                        _ => false,
                    };
                    if killed && was_done {
                        return killed;
                    }
                    // The command may see the end of the server before this test does.
                    let end = Instant::now() + Duration::from_secs(1);
                    while server.child.try_wait().unwrap().is_none() {
                        assert!(Instant::now() < end, "{args:?}: {said}\n{}", self.log());
                        std::thread::sleep(POLL);
                    }
                }
                None => {}
            }
            assert!(!killed, "{args:?}: it died a second time\n{}", self.log());
            killed = true;
            *server = self.serve(None).expect("it starts after a kill");
        }
    }
}

/// The steps that prepare the ground, and those whose bytes this is about.
const SETUP: [&[&str]; 2] = [
    &["compute", "create", "-f", "cluster.yml", "-o", "none"],
    &[
        "batch-endpoint",
        "create",
        "-f",
        "deployment.yml",
        "-o",
        "none",
    ],
];
const RUN: [&[&str]; 3] = [
    &[
        "batch-endpoint",
        "invoke",
        "-n",
        "scores",
        "--input",
        "in",
        "--job-name",
        "j",
        "-o",
        "none",
    ],
    &["job", "stream", "-n", "j"],
    &["compute", "delete", "-n", "pool", "-y"],
];

/// How far a walk goes.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// From an empty folder; the kills that count are those of the setup.
    Setup,
    /// From a data folder with the setup done.
    Run(&'a Path),
}

/// What became of one walk.
struct Walk {
    rows: String,
    /// Whether the server was killed in the part that the walk is about.
    killed: bool,
    log: String,
}

/// One walk through the scenario.
fn walk(part: Part, failpoint: &str) -> Walk {
    let site = Site::new();
    let setup: &[&[&str]] = match part {
        Part::Setup => &SETUP,
        Part::Run(template) => {
            copy(template, &site.path("data"));
            &[]
        }
    };
    let mut killed = false;
    let mut server = site.serve(Some(failpoint)).unwrap_or_else(|| {
        killed = true;
        site.serve(None).expect("it starts after a kill")
    });
    for args in setup {
        killed = site.step(&mut server, args, killed);
    }
    let in_setup = killed;
    for args in RUN {
        killed = site.step(&mut server, args, killed);
    }
    let data = site.path("data");
    let output = find(&data.join("blobs"), "predictions.csv").expect("an output");
    let rows = fs::read_to_string(output).unwrap();
    let start = Instant::now();
    while nodes(&data) > 0 {
        assert!(
            start.elapsed() < PATIENCE,
            "a node is left behind\n{}",
            site.log()
        );
        std::thread::sleep(POLL);
    }
    let killed = match part {
        Part::Setup => in_setup,
        Part::Run(_) => killed,
    };
    let log = site.log();
    Walk { rows, killed, log }
}

/// The names of the points that a server passed, out of its log.
fn passed(log: &str) -> BTreeSet<&str> {
    log.lines()
        .filter(|line| line.contains("a point of failure is passed"))
        .filter_map(|line| line.split("point=").nth(1)?.split_whitespace().next())
        .map(|name| name.trim_matches('"'))
        .collect()
}

/// A data folder in which the setup is done and no server runs.
fn template() -> (Site, PathBuf) {
    let site = Site::new();
    let mut server = site.serve(None).unwrap();
    for args in SETUP {
        site.step(&mut server, args, false);
    }
    drop(server);
    let data = site.path("data");
    (site, data)
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .args(["-a", "--sparse=always"])
        .args([from, to])
        .status()
        .unwrap();
    assert!(status.success());
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            find(&path, name)
        } else {
            path.file_name().is_some_and(|n| n == name).then_some(path)
        }
    })
}

fn nodes(data: &Path) -> usize {
    fs::read_dir(data.join("nodes"))
        .map_or(0, |d| d.flatten().filter(|e| e.path().is_dir()).count())
}

/// For each name, walks with a kill at its first point, its second, and so on until there are no more. Returns the kills.
fn sweep(part: Part, names: &BTreeSet<&str>, mode: &str, expected: &str) -> u64 {
    let kills = AtomicU64::new(0);
    let names = Mutex::new(names.iter());
    let lane = || {
        loop {
            let Some(name) = names.lock().unwrap().next() else {
                return;
            };
            for n in 1.. {
                let point = format!("{name}#{n}:{mode}");
                let walk = walk(part, &point);
                assert_eq!(walk.rows, expected, "{point}\n{}", walk.log);
                if !walk.killed {
                    assert!(n > 1 || matches!(part, Part::Setup), "no kill at {point}");
                    break;
                }
                kills.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    std::thread::scope(|lanes| {
        for _ in 0..LANES {
            lanes.spawn(lane);
        }
    });
    kills.into_inner()
}

#[test]
fn a_kill_at_any_write_point_changes_no_byte_of_the_output() {
    let (_site, template) = template();
    let run = Part::Run(&template);
    let undisturbed = walk(run, NEVER);
    let expected = undisturbed.rows;
    assert_eq!(expected.lines().count(), FILES);
    let names = passed(&undisturbed.log);
    for point in POINTS {
        assert!(names.contains(point), "{point} is not among {names:?}");
    }
    let whole = walk(Part::Setup, NEVER);
    assert_eq!(whole.rows, expected);
    let kills = sweep(Part::Setup, &passed(&whole.log), "before", &expected)
        + sweep(run, &names, "before", &expected)
        + sweep(run, &names, "after", &expected);
    assert!(
        kills >= KILLS,
        "only {kills} kills: the scenario no longer reaches the write points"
    );
}
