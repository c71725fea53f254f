//! A server of a test's own, and the commands that are given to it.
//!
//! G1 what a test starts is gone when it ends, even when it fails: the guard kills the server and every node below its folder,
//! and says so when there was anything left after an orderly stop.

#![expect(dead_code, reason = "each test binary uses its part of it")]

pub mod kubectl;
pub mod network;
pub mod peer;
pub mod plain;
pub mod python;
pub mod site;
pub mod transcript;
pub mod venv;

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// The program under test.
pub const ZAFFRE: &str = env!("CARGO_BIN_EXE_zaffre");

/// Files of a data folder that hold a key or a token of the server, and nothing else.
pub const KEYS: [&str; 10] = [
    "token",
    "ca.key",
    "server.key",
    "sas.key",
    "agents.key",
    "jobs.key",
    "runs.key",
    "seal.key",
    "signing.json",
    "server.json",
];

/// What the seeds' instance types ask of a node.
pub const SEEDS_NODE: [&str; 4] = [
    "--node-label",
    "mylabel=mylabelvalue",
    "--node-device",
    "nvidia.com/gpu=1",
];

/// The root of the repository.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A file that the developers share; says plainly when it is missing.
pub fn shared(name: &str) -> PathBuf {
    let root = std::env::var_os("ZAFFRE_SHARED")
        .map_or_else(|| repository().join("../shared"), PathBuf::from);
    let path = root.join(name);
    assert!(
        path.exists(),
        "{} is missing: this test reads ../shared beside the repository, or where ZAFFRE_SHARED points",
        path.display()
    );
    path
}

/// The folder that environments are cached in over all runs of the tests. Workers run as users of their own under root, so
/// the folder must be one that everybody may pass to.
fn home() -> PathBuf {
    let near = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("home");
    let open = |folder: &Path| {
        fs::metadata(folder).is_ok_and(|data| data.permissions().mode() & 0o001 != 0)
    };
    let reachable = near.ancestors().skip(1).all(open);
    let home = if reachable {
        near
    } else {
        PathBuf::from("/tmp/zaffre-tests-home")
    };
    fs::create_dir_all(&home).unwrap();
    home
}

/// A server in a folder of its own.
pub struct Server {
    child: Option<Child>,
    /// Everything of this test.
    pub folder: PathBuf,
    /// Its address.
    pub url: String,
    data: PathBuf,
    flags: Vec<String>,
    _temporary: tempfile::TempDir,
}

impl Server {
    /// Starts one.
    pub fn start() -> Server {
        Server::start_at(|folder| folder.join("data"))
    }

    /// Starts one with further flags of `serve`.
    pub fn start_with(flags: &[&str]) -> Server {
        let flags = flags.iter().map(ToString::to_string).collect();
        Server::begin(|folder| folder.join("data"), flags)
    }

    /// Starts one whose data folder lies elsewhere: `place` gets the folder of the test.
    pub fn start_at(place: impl FnOnce(&Path) -> PathBuf) -> Server {
        Server::begin(place, Vec::new())
    }

    fn begin(place: impl FnOnce(&Path) -> PathBuf, flags: Vec<String>) -> Server {
        let temporary = tempfile::Builder::new()
            .prefix("zaffre-test-")
            .tempdir()
            .unwrap();
        fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let folder = temporary.path().canonicalize().unwrap();
        let data = place(&folder);
        let mut server = Server {
            child: None,
            folder,
            data,
            flags,
            url: String::new(),
            _temporary: temporary,
        };
        server.restart();
        server
    }

    /// Starts it again on the same folder.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("server.log"))
            .unwrap();
        let mut child = Command::new(ZAFFRE)
            .args(["serve", "--no-register", "--stop-tasks", "--data"])
            .arg(self.data())
            .args(&self.flags)
            .args(self.listen())
            .env("ZAFFRE_HOME", home())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        self.child = Some(child);
        let url = line.trim().strip_prefix("ready ");
        let url = url
            .unwrap_or_else(|| panic!("no ready line but {line:?}; the log says {}", self.log()));
        self.url = url.to_owned();
    }

    /// A free port of the loopback, unless the test says otherwise.
    fn listen(&self) -> &'static [&'static str] {
        if self.flags.iter().any(|flag| flag == "--listen") {
            &[]
        } else {
            &["--listen", "127.0.0.1:0"]
        }
    }

    /// Its data folder.
    pub fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// Its own token.
    pub fn token(&self) -> String {
        let text = fs::read_to_string(self.data().join("token")).unwrap();
        text.trim().to_owned()
    }

    /// What it said on stderr.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    /// Kills it as a power cut does, nodes apart.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops it in order; nothing may be left.
    pub fn stop(mut self) {
        let status = self.terminate().expect("it was not running");
        assert!(
            status.success(),
            "the server ended with {status}: {}",
            self.log()
        );
        let left = processes(&self.folder);
        assert!(left.is_empty(), "processes are left: {left:?}");
    }

    /// Stops it in order, to be started again.
    pub fn terminate_for_restart(&mut self) {
        let status = self.terminate().expect("it was not running");
        assert!(
            status.success(),
            "the server ended with {status}: {}",
            self.log()
        );
    }

    fn terminate(&mut self) -> Option<std::process::ExitStatus> {
        let mut child = self.child.take()?;
        signal("TERM", child.id());
        child.wait().ok()
    }

    /// A command, in the folder of this test.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(ZAFFRE);
        command
            .args(args)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .env("ZAFFRE_HOME", self.folder.join("home"))
            .env("ZAFFRE_SERVER", &self.url)
            .env("ZAFFRE_TOKEN", self.token())
            .env("ZAFFRE_CA", self.data().join("ca.pem"));
        command
    }

    /// Runs a command.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed; answers its stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "zaffre {}: {}\n{}{}\nserver: {}",
            args.join(" "),
            output.status,
            text(&output.stdout),
            text(&output.stderr),
            self.log()
        );
        text(&output.stdout)
    }

    /// One value of a result.
    pub fn value(&self, args: &[&str], query: &str) -> String {
        let mut all = args.to_vec();
        all.extend(["-o", "tsv", "--query", query]);
        self.ok(&all).trim().to_owned()
    }

    /// A count in the properties of a job.
    pub fn count(&self, job: &str, name: &str) -> u64 {
        let text = self.value(
            &["job", "show", "-n", job],
            &format!("properties.\"zaffre.{name}\""),
        );
        text.parse().unwrap_or(0)
    }

    /// Waits for something, at most `limit`.
    pub fn wait(&self, what: &str, limit: Duration, mut there: impl FnMut(&Server) -> bool) {
        let begun = Instant::now();
        while !there(self) {
            assert!(
                begun.elapsed() < limit,
                "{what}: not within {limit:?}; server: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.terminate();
        for pid in processes(&self.folder) {
            signal("KILL", pid);
        }
    }
}

/// Past the capture of the test harness: what was left out is part of the result.
pub fn say(text: &str) {
    use std::io::Write as _;
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Writes a file of a test, and the folders that it lies in.
pub fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Sends a signal; one that is gone already needs none.
pub fn signal(name: &str, pid: u32) {
    let status = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .stderr(Stdio::null())
        .status();
    assert!(status.is_ok(), "there is no kill program");
}

/// Processes that name `folder` in their command line.
pub fn processes(folder: &Path) -> Vec<u32> {
    let mark = folder.to_string_lossy().into_owned();
    let mut found = vec![];
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // A zombie has an empty command line; a process that just ended has no file.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&mark) {
            found.push(pid);
        }
    }
    found
}
