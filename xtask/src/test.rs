//! `cargo xtask test`: everything the project promises, in the order in which a failure is cheapest.

use crate::cargo::{self, cargo, target_folder};
use crate::kube::ForTests;
use crate::leftover::Watch;
use crate::steps::Steps;
use crate::{deny, python, suites, tidy};
use anyhow::Result;

/// Runs the steps. `quick` leaves out what takes minutes: deny, the black box suites, doc tests.
pub fn run(quick: bool, filter: Option<&str>) -> Result<()> {
    let mut steps = Steps::begin();
    steps.step("python", None, python::check);
    steps.step("format", None, || run_cargo(&["fmt", "--all", "--check"]));
    steps.step("tidy", None, tidy::run);
    steps.step("clippy", None, || {
        run_cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
    });
    if !quick {
        steps.step("deny", None, deny::check);
    }
    let mut arguments = vec!["test", "--workspace"];
    if quick {
        arguments.extend(["--lib", "--bins"]);
    }
    // Built apart, so that compilers and their helpers are never taken for what a test left behind. The
    // black box suites need the program itself; cargo builds it for them.
    let build = [&arguments[..], &["--no-run"]].concat();
    steps.step("build", None, || run_cargo(&build));
    // Every suite runs, so that one run shows all that is broken.
    arguments.push("--no-fail-fast");
    arguments.extend(filter);
    let target = target_folder();
    // Before the watch begins, so that its processes are not taken for what a test left.
    let mut kubernetes = None;
    if !quick {
        steps.step("kubernetes", Some("build"), || {
            kubernetes = Some(ForTests::begin()?);
            Ok(())
        });
    }
    let watch = Watch::begin(&target)?;
    steps.step("tests", Some("build"), || {
        let mut command = cargo(&arguments);
        watch.mark(&mut command);
        if let Some(kubernetes) = &kubernetes {
            kubernetes.mark(&mut command);
        }
        suites::run(&mut command)
    });
    steps.step("no process is left", Some("build"), || watch.end());
    drop(watch);
    if let Some(mut kubernetes) = kubernetes {
        steps.step("kubernetes ends", Some("kubernetes"), || kubernetes.end());
    }
    steps.finish()
}

fn run_cargo(arguments: &[&str]) -> Result<()> {
    cargo::run(&mut cargo(arguments))
}
