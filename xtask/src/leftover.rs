//! Nothing may outlive a test run: no server, no agent, no worker.
//!
//! L1: every process that a test started, however it detached itself, is named when it is still there
//! after the run, is ended, and fails the run.
//!
//! A test's processes are known by three marks, because a worker runs with a cleared environment and in a
//! session of its own, so that no single mark is enough: a variable in the environment; the run's own
//! temporary folder in the command line or as the current folder; a `zaffre` of this target folder that
//! was not there before. Where there is no `/proc` the check says that it is not made.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The variable that marks processes of one run.
pub const MARK: &str = "ZAFFRE_TEST_RUN";

/// How long processes that were told to end may take: an agent ends its workers before itself.
const SETTLE: Duration = Duration::from_secs(5);
/// Between two looks at the process table; a look costs about a millisecond.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks in a row that must find nothing: a process that is just being started shows no marks for a moment,
/// and one that forks and ends may slip through a single look.
const QUIET_LOOKS: u32 = 3;

/// A process that should not be there.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    pid: u32,
    command: String,
}

/// The marks of one test run, and its temporary folder, which goes when this value goes.
pub struct Watch {
    mark: String,
    temporary: PathBuf,
    target: PathBuf,
    before: BTreeSet<u32>,
}

impl Watch {
    /// Makes the temporary folder and remembers which processes are there already.
    pub fn begin(target: &Path) -> Result<Watch> {
        // A short name: sockets lie below it, and the path of a socket has at most 107 bytes.
        let temporary = std::env::temp_dir().join(format!("zt-{}", std::process::id()));
        std::fs::create_dir_all(&temporary)
            .with_context(|| format!("cannot make {}", temporary.display()))?;
        open_to_all(&temporary)?;
        Ok(Watch {
            mark: format!("{MARK}={}", std::process::id()),
            temporary,
            target: target.to_owned(),
            before: processes().into_iter().collect(),
        })
    }

    /// Gives a command the marks; its children inherit them.
    pub fn mark(&self, command: &mut Command) {
        let (name, value) = self.mark.split_once('=').expect("written with a sign");
        command.env(name, value).env("TMPDIR", &self.temporary);
    }

    /// L1. Waits a little for what is just ending, then names and ends the rest.
    pub fn end(&self) -> Result<()> {
        self.end_within(SETTLE)
    }

    fn end_within(&self, settle: Duration) -> Result<()> {
        if !Path::new("/proc/self/exe").exists() {
            println!("note: there is no /proc here, so leftover processes are not looked for");
            return Ok(());
        }
        let began = Instant::now();
        let mut quiet = 0;
        let found = loop {
            let found = self.find();
            if found.is_empty() {
                quiet += 1;
            } else if began.elapsed() >= settle {
                break found;
            } else {
                quiet = 0;
            }
            if quiet == QUIET_LOOKS {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let mut lines = String::new();
        for Found { pid, command } in &found {
            lines.push_str(&format!("\n  {pid}  {command}"));
            end_process(*pid);
        }
        bail!("{} processes outlived the tests:{lines}", found.len())
    }

    fn find(&self) -> Vec<Found> {
        let mine = std::process::id();
        let new = |pid: &u32| *pid != mine && !self.before.contains(pid);
        processes()
            .into_iter()
            .filter(new)
            .filter_map(|pid| self.look_at(pid))
            .collect()
    }

    /// The process, when it carries one of the marks and has not ended.
    fn look_at(&self, pid: u32) -> Option<Found> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        // A process that ended, but that its parent has not asked about, has no executable.
        let executable = folder.join("exe").read_link().ok()?;
        let read = |name| {
            let bytes = std::fs::read(folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let command = read("cmdline").replace('\0', " ").trim().to_owned();
        let temporary = self.temporary.to_string_lossy();
        let there = folder.join("cwd").read_link().unwrap_or_default();
        let marked = read("environ").split('\0').any(|pair| pair == self.mark)
            || command.contains(&*temporary)
            || there.starts_with(&self.temporary)
            || is_zaffre_of(&executable, &self.target);
        marked.then_some(Found { pid, command })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.temporary) {
            println!("note: {} stays: {error}", self.temporary.display());
        }
    }
}

/// Like the system's own temporary folder: under root, workers run as users of their own and must pass.
#[cfg(unix)]
fn open_to_all(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let everybody = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(folder, everybody)
        .with_context(|| format!("cannot open {} to all", folder.display()))
}

#[cfg(not(unix))]
fn open_to_all(_: &Path) -> Result<()> {
    Ok(())
}

/// The kernel appends a word to the name of an executable that was replaced since.
fn is_zaffre_of(executable: &Path, target: &Path) -> bool {
    let text = executable.to_string_lossy();
    let path = Path::new(text.strip_suffix(" (deleted)").unwrap_or(&text));
    path.starts_with(target) && path.file_name().is_some_and(|name| name == "zaffre")
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// One process, by its number, and nothing else. It may have ended meanwhile; that is as good.
fn end_process(pid: u32) {
    let kill = format!("kill -9 {pid}");
    if let Err(error) = Command::new("sh").args(["-c", &kill]).status() {
        println!("note: cannot end process {pid}: {error}");
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Stdio};

    fn watch(name: &str) -> Watch {
        let temporary = std::env::temp_dir().join(format!("zt-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&temporary).unwrap();
        Watch {
            mark: format!("{MARK}={}-{name}", std::process::id()),
            temporary,
            target: PathBuf::from("/nowhere/target"),
            before: processes().into_iter().collect(),
        }
    }

    /// A process that waits for ever. It has said a word, so that it is past its start and shows its marks.
    fn waiting(prepare: impl FnOnce(&mut Command)) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; read forever"]);
        prepare(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut child = command.spawn().unwrap();
        let mut word = [0; 6];
        let stdout = child.stdout.as_mut().unwrap();
        stdout.read_exact(&mut word).unwrap();
        child
    }

    #[test]
    fn l1_a_process_that_outlives_the_run_is_named_and_ended() {
        let watch = watch("marked");
        let mut child = waiting(|command| watch.mark(command));
        let error = watch.end_within(Duration::ZERO).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{}  sh -c echo ready", child.id())),
            "{error}"
        );
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        watch.end().unwrap();
    }

    #[test]
    fn l1_a_cleared_environment_does_not_hide_a_process() {
        let watch = watch("cleared");
        let mut child = waiting(|command| {
            command.env_clear().current_dir(&watch.temporary);
        });
        assert_eq!(watch.find().len(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(watch.find(), []);
    }

    #[test]
    fn what_was_there_before_is_not_ours() {
        let mut watch = watch("before");
        let mut child = waiting(|command| watch.mark(command));
        watch.before.insert(child.id());
        assert_eq!(watch.find(), []);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_server_of_this_target_folder_is_ours() {
        let ours = |path: &str| is_zaffre_of(Path::new(path), Path::new("/p/target"));
        assert!(ours("/p/target/debug/zaffre"));
        assert!(ours("/p/target/debug/zaffre (deleted)"));
        assert!(!ours("/p/target/debug/xtask"));
        assert!(!ours("/usr/bin/zaffre"));
    }
}
