//! A run of named steps: a heading before each, its time after, and one table at the end.
//!
//! A failed step does not stop the next ones: whoever waits twenty minutes wants every failure at once.
//! A step that needs another names it and is skipped when that one failed.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// How one step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    Skipped(&'static str),
}

/// The steps of one run and how they ended.
pub struct Steps {
    began: Instant,
    ended: Vec<(&'static str, End, Duration)>,
}

impl Steps {
    pub fn begin() -> Steps {
        Steps {
            began: Instant::now(),
            ended: Vec::new(),
        }
    }

    /// Runs one step. `needs` names an earlier step without which this one makes no sense.
    pub fn step(
        &mut self,
        name: &'static str,
        needs: Option<&'static str>,
        work: impl FnOnce() -> Result<()>,
    ) {
        let missing = needs.filter(|needed| !self.passed(needed));
        if let Some(needed) = missing {
            println!("\n== {name}: skipped, {needed} did not pass");
            self.ended
                .push((name, End::Skipped(needed), Duration::ZERO));
            return;
        }
        println!("\n== {name}");
        let began = Instant::now();
        let end = match work() {
            Ok(()) => End::Passed,
            Err(error) => {
                eprintln!("error: {name}: {error:#}");
                End::Failed
            }
        };
        println!("-- {name}: {}", elapsed(began.elapsed()));
        self.ended.push((name, end, began.elapsed()));
    }

    fn passed(&self, name: &str) -> bool {
        let found = self.ended.iter().find(|(ended, _, _)| *ended == name);
        found.is_some_and(|(_, end, _)| *end == End::Passed)
    }

    /// Prints every step with its time and the overall line; an error names the steps that did not pass.
    pub fn finish(self) -> Result<()> {
        println!();
        for (name, end, took) in &self.ended {
            let said = match end {
                End::Passed => "ok".to_owned(),
                End::Failed => "FAILED".to_owned(),
                End::Skipped(needed) => format!("skipped, needs {needed}"),
            };
            println!("{name:<24} {:>9}  {said}", elapsed(*took));
        }
        let total = elapsed(self.began.elapsed());
        let bad: Vec<&str> = self
            .ended
            .iter()
            .filter(|(_, end, _)| *end != End::Passed)
            .map(|(name, _, _)| *name)
            .collect();
        if bad.is_empty() {
            println!("all {} steps passed in {total}", self.ended.len());
            return Ok(());
        }
        bail!(
            "{} of {} steps did not pass in {total}: {}",
            bad.len(),
            self.ended.len(),
            bad.join(", ")
        )
    }
}

/// `0.4 s`, `75 s` as `1 m 15 s`.
fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} m {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_fails_the_run_and_skips_what_needs_it() {
        let mut steps = Steps::begin();
        steps.step("format", None, || bail!("ugly"));
        steps.step("build", None, || Ok(()));
        steps.step("tests", Some("build"), || Ok(()));
        steps.step("polish", Some("format"), || panic!("must not run"));
        let error = steps.finish().unwrap_err().to_string();
        assert!(error.starts_with("2 of 4 steps did not pass"), "{error}");
        assert!(error.ends_with(": format, polish"), "{error}");
    }

    #[test]
    fn a_run_without_failure_passes() {
        let mut steps = Steps::begin();
        steps.step("one", None, || Ok(()));
        steps.step("two", Some("one"), || Ok(()));
        steps.finish().unwrap();
    }

    #[test]
    fn times_are_short() {
        assert_eq!(elapsed(Duration::from_millis(440)), "0.4 s");
        assert_eq!(elapsed(Duration::from_secs(75)), "1 m 15 s");
    }
}
