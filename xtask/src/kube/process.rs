//! The processes of a cluster: started apart from this one, recorded, and ended by their record (K2).

use super::tools;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long the kernel may take to end a process; one that waits for a slow disk ends late.
const SETTLE: Duration = Duration::from_secs(15);
/// What is shown of the log of a process that ended by itself.
const LAST_LINES: usize = 15;

/// A process as it was recorded. The number alone is not enough: numbers are used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub name: String,
    pub pid: u32,
    /// Clock ticks between the machine's start and its own.
    started: u64,
    /// The cluster's folder, which every process of it has in its command line.
    state: PathBuf,
}

/// Starts a program in a session of its own, so that it outlives this one. Its command line must name the state folder.
pub fn start(state: &Path, name: &str, command: &Command) -> Result<Process> {
    let log = log_file(state, name);
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut apart = tools::program("setsid");
    apart.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => apart.env(key, value),
            None => apart.env_remove(key),
        };
    }
    let path = std::env::join_paths(tools::search_path()).context("the search path")?;
    let child = apart
        .env("PATH", path)
        // A test may have asked for it; it belongs to the cluster all the same, and ends with it.
        .env_remove(crate::leftover::MARK)
        .env_remove("TMPDIR")
        .current_dir(state)
        .stdin(std::process::Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let pid = child.id();
    // It cannot have been waited for by anybody else, so that its entry is there even when it has ended.
    let started = start_time(pid).unwrap_or(0);
    let process = Process {
        name: name.to_owned(),
        pid,
        started,
        state: state.to_owned(),
    };
    fs::write(record_file(state, name), format!("{pid} {started}\n"))?;
    Ok(process)
}

/// Every recorded process of a cluster, whether it still runs or not.
pub fn recorded(state: &Path) -> Vec<Process> {
    let entries = fs::read_dir(state.join("pid")).into_iter().flatten();
    let mut found: Vec<Process> = entries
        .flatten()
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let (pid, started) = text.trim().split_once(' ')?;
            Some(Process {
                name: entry.file_name().into_string().ok()?,
                pid: pid.parse().ok()?,
                started: started.parse().ok()?,
                state: state.to_owned(),
            })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

impl Process {
    /// K2: the very process that was recorded, and not ended. In the moment in which it becomes another program it has
    /// no command line.
    pub fn runs(&self) -> bool {
        let command = command_line(self.pid);
        start_time(self.pid) == Some(self.started)
            && (command.is_empty() || command.contains(&*self.state.to_string_lossy()))
    }

    /// What it was started with.
    pub fn command(&self) -> Result<Command> {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid))
            .with_context(|| format!("the command line of {}", self.name))?;
        let words = bytes
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty());
        let mut words = words.map(OsStr::from_bytes);
        let mut command = Command::new(words.next().context("it has no command line")?);
        command.args(words);
        Ok(command)
    }

    /// An error with the end of its log, when it has ended.
    pub fn must_run(&self) -> Result<()> {
        if self.runs() {
            return Ok(());
        }
        let log = log_file(&self.state, &self.name);
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  ");
        bail!("{} ended; {} says:\n  {last}", self.name, log.display())
    }

    /// Ends it and forgets it. By force: nothing of a throw-away cluster is worth a farewell.
    pub fn end(&self) -> Result<()> {
        if self.runs() {
            signal("KILL", &[self.pid]);
        }
        let what = format!("an end of {} (process {})", self.name, self.pid);
        tools::wait_for(&what, SETTLE, || Ok((!self.runs()).then_some(())))?;
        let _ = fs::remove_file(record_file(&self.state, &self.name));
        Ok(())
    }
}

/// The running processes whose command line has this text, other than this one.
pub fn with_command_line(text: &str) -> Vec<u32> {
    let mine = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != mine && command_line(*pid).contains(text))
        .collect()
}

/// The running processes of a program.
pub fn of_program(name: &str) -> Vec<u32> {
    let is_it = |pid: &u32| {
        let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        executable.file_name().is_some_and(|file| file == name)
    };
    with_command_line(name).into_iter().filter(is_it).collect()
}

/// A process may have ended meanwhile; that is as good.
pub fn signal(signal: &str, pids: &[u32]) {
    if !pids.is_empty() {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let kill = format!("kill -{signal} {} 2>/dev/null", pids.join(" "));
        let _ = tools::output(Command::new("sh").args(["-c", &kill]));
    }
}

/// Empty for a process that has ended, even when nobody has asked how.
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn start_time(pid: u32) -> Option<u64> {
    start_time_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `NUMBER (NAME) STATE …`: the 22nd word. A name may have spaces and brackets. None for one that has ended.
fn start_time_in(stat: &str) -> Option<u64> {
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    if matches!(words.next()?, "Z" | "X") {
        return None;
    }
    words.nth(18)?.parse().ok()
}

fn record_file(state: &Path, name: &str) -> PathBuf {
    state.join("pid").join(name)
}

fn log_file(state: &Path, name: &str) -> PathBuf {
    state.join("log").join(format!("{name}.log"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn state(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("zk-{}-{name}", std::process::id()));
        for part in ["pid", "log"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        folder
    }

    /// Waits for ever, and has the folder in its command line.
    fn waiting(state: &Path) -> Command {
        fs::write(state.join("empty"), "").unwrap();
        let mut command = Command::new("tail");
        command.arg("-f").arg(state.join("empty"));
        command
    }

    #[test]
    fn a_start_time_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(start_time_in(&format!("7 (sh) {rest}")), Some(4711));
        assert_eq!(start_time_in(&format!("7 (a) b) {rest}")), Some(4711));
        assert_eq!(
            start_time_in(&format!("7 (sh) {}", rest.replace('S', "Z"))),
            None
        );
    }

    #[test]
    fn k2_a_recorded_process_is_ended_and_forgotten() {
        let state = state("ended");
        let process = start(&state, "p", &waiting(&state)).unwrap();
        assert!(process.runs());
        assert_eq!(recorded(&state), std::slice::from_ref(&process));
        process.end().unwrap();
        assert!(!process.runs());
        assert_eq!(recorded(&state), []);
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn k2_another_process_with_the_same_number_is_left_alone() {
        let state = state("other");
        let process = start(&state, "p", &waiting(&state)).unwrap();
        // Before it is the program that it will be, it has no command line to be told apart by.
        tools::wait_for("the program", SETTLE, || {
            let line = command_line(process.pid);
            Ok(line.contains(&*state.to_string_lossy()).then_some(()))
        })
        .unwrap();
        let mut older = process.clone();
        older.started -= 1;
        let mut foreign = process.clone();
        foreign.state = PathBuf::from("/nowhere");
        for other in [older, foreign] {
            other.end().unwrap();
        }
        assert!(process.runs());
        process.end().unwrap();
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn a_process_that_ended_is_told_with_its_last_words() {
        let state = state("told");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such flag; exit 1", "sh"]);
        let process = start(&state, "p", command.arg(&state)).unwrap();
        let error = tools::wait_for("end", SETTLE, || Ok(process.must_run().err())).unwrap();
        assert!(error.to_string().ends_with("no such flag"), "{error}");
        fs::remove_dir_all(&state).unwrap();
    }
}
