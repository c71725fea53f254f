//! Running `cargo test`: its output is passed on line by line and its closing lines are added up.
//!
//! S1: the run ends within a limit, whatever a test does; a process that keeps the pipe open after cargo
//! ended does not keep this program waiting.
//! S2: a run in which no test ran is a failure: a wrong filter must not look like success.

use crate::cargo::shown;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// The whole of `cargo xtask test` must fit into 45 minutes on two cores, builds included.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// How long lines are read on after cargo ended, when something else still holds its output.
const DRAIN: Duration = Duration::from_secs(2);
/// Between two looks at whether cargo ended, while it prints nothing.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Lines read ahead of the terminal; then the tests wait, as they would for the terminal itself.
const LINES: usize = 1024;

/// The closing lines of all test programs, added up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Total {
    suites: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Total {
    /// Adds one line when it is a closing line:
    /// `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s`.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        self.suites += 1;
        for count in counts.split(';') {
            let mut words = count.split_whitespace();
            let number = words.next().and_then(|word| word.parse::<u64>().ok());
            let (Some(number), Some(what)) = (number, words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// Runs a test command to its end, or to the limit.
pub fn run(command: &mut Command) -> Result<()> {
    run_within(command, LIMIT)
}

fn run_within(command: &mut Command, limit: Duration) -> Result<()> {
    let name = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let stdout = child.stdout.take().expect("it was asked to be a pipe");
    let (send, lines) = sync_channel(LINES);
    // Not joined: a process that outlives the tests may hold the pipe, and reading would never end (S1).
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            if send
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
            line.clear();
        }
    });
    let total = follow(&mut child, &lines, limit)?;
    let status = child.wait().context("cannot learn how the tests ended")?;
    println!(
        "{} passed, {} failed, {} ignored in {} suites",
        total.passed, total.failed, total.ignored, total.suites
    );
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    if total.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// Prints lines until the child has ended and its output with it.
fn follow(child: &mut Child, lines: &Receiver<String>, limit: Duration) -> Result<Total> {
    let began = Instant::now();
    let mut ended: Option<Instant> = None;
    let mut total = Total::default();
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                print!("{line}");
                total.add(line.trim_end());
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(total),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if ended.is_none() && child.try_wait()?.is_some() {
            ended = Some(Instant::now());
        }
        if ended.is_some_and(|at| at.elapsed() > DRAIN) {
            return Ok(total);
        }
        if ended.is_none() && began.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("the tests did not end within {} s", limit.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn closing_lines_are_added_up() {
        let mut total = Total::default();
        total.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s");
        total.add("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        total.add("test result_is_named ... ok");
        let expected = Total {
            suites: 2,
            passed: 13,
            failed: 2,
            ignored: 1,
        };
        assert_eq!(total, expected);
    }

    #[test]
    fn s1_a_limit_ends_what_hangs() {
        let error = run_within(&mut shell("exec sleep 60"), Duration::from_millis(300));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("did not end within"), "{error}");
    }

    #[test]
    fn s1_a_leftover_that_holds_the_output_does_not_hang_the_run() {
        let note = std::env::temp_dir().join(format!("suites-{}", std::process::id()));
        let script = "sleep 60 & echo $! > \"$NOTE\"; echo 'test result: ok. 1 passed; 0 failed'";
        let began = Instant::now();
        run_within(shell(script).env("NOTE", &note), LIMIT).unwrap();
        assert!(began.elapsed() < Duration::from_secs(30));
        let pid = std::fs::read_to_string(&note).unwrap();
        std::fs::remove_file(&note).unwrap();
        let killed = shell("kill -9 \"$PID\"").env("PID", pid.trim()).status();
        assert!(killed.unwrap().success(), "it was still there");
    }

    #[test]
    fn s2_no_test_at_all_is_a_failure() {
        let script = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'";
        let error = run_within(&mut shell(script), LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "no test ran");
    }

    #[test]
    fn a_failing_suite_fails() {
        let script = "echo 'test result: FAILED. 1 passed; 1 failed'; exit 101";
        assert!(run_within(&mut shell(script), LIMIT).is_err());
    }
}
