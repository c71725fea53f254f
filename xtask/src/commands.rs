//! The short commands: the simulation on demand, golden stories, the definition for Kubernetes, benchmarks.

use crate::cargo::{cargo, metadata, root, run};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// The simulation of the planner, optimised, with its output shown. The crate `plan` reads the two
/// variables; without them it takes its own defaults.
pub fn sim(seeds: Option<u64>, from: Option<u64>) -> Result<()> {
    let mut command = cargo(&["test", "-p", "plan", "--release", "--test", "sim"]);
    command.args(["--", "--nocapture"]);
    if let Some(seeds) = seeds {
        command.env("ZAFFRE_SIM_SEEDS", seeds.to_string());
    }
    if let Some(from) = from {
        command.env("ZAFFRE_SIM_FROM", from.to_string());
    }
    run(&mut command)
}

/// Writes the golden transcripts of the stories anew.
pub fn stories() -> Result<()> {
    run(cargo(&["test", "-p", "plan", "--test", "stories"]).env("ZAFFRE_BLESS", "1"))?;
    println!("the transcripts are written; git diff shows what decisions changed");
    Ok(())
}

/// Writes the definition of instance types for Kubernetes anew; a test of `wire` compares the file with the rules.
pub fn crdgen() -> Result<()> {
    let file = root().join("deploy/crd/instancetypes.yaml");
    let output = cargo(&["run", "--quiet", "-p", "wire", "--example", "crdgen"])
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("the example crdgen of wire failed: {}", output.status);
    }
    std::fs::create_dir_all(root().join("deploy/crd"))?;
    std::fs::write(&file, output.stdout)?;
    println!("{} is written", file.display());
    Ok(())
}

/// `cargo bench` for each crate with a `benches` folder. The peers that the numbers are compared with
/// are scripts beside the repository; what is there is named, since they need programs of their own.
pub fn bench() -> Result<()> {
    let metadata = metadata()?;
    let mut measured = 0;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let benches = Path::new(manifest).with_file_name("benches");
        if benches.is_dir() {
            let name = package["name"].as_str().unwrap_or_default();
            println!("== {name}");
            run(&mut cargo(&["bench", "-p", name]))?;
            measured += 1;
        }
    }
    peers();
    if measured == 0 {
        bail!("no crate has a folder benches");
    }
    Ok(())
}

/// The folder of inputs shared between this project and its measurements: `../shared` unless
/// `ZAFFRE_SHARED` says otherwise.
pub fn shared() -> PathBuf {
    match std::env::var_os("ZAFFRE_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => root().join("../shared"),
    }
}

fn peers() {
    let folder = shared().join("bench");
    let Ok(entries) = folder.read_dir() else {
        println!("peers are not measured: {} is missing", folder.display());
        return;
    };
    let mut scripts: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path().join("run.sh")))
        .filter(|script| script.is_file())
        .collect();
    scripts.sort();
    for script in scripts {
        println!("peers to compare with: {}", script.display());
    }
}
