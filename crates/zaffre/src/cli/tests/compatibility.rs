//! `docs/reference/compatibility.md`, made of what the program does: the loader of files is asked about every kind, the rule of
//! training targets about every cell, the command line about every command of `az ml`; flows and files are those of the suites.

#[path = "../../../tests/sdk/flows.rs"]
mod flows;

use super::{ABSENT, Cli, oracle, repository};
use clap::CommandFactory;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::PathBuf,
};
use wire::{
    arm::{
        field::Field,
        scenario::{self, Use},
        target::Target,
    },
    yaml::{Kind, LoadOptions, Refused, load},
};

const HEAD: &str = "\
# What is compatible

What works with files, programs and commands that were written for Azure Machine Learning, and what does not. This page is made by a
test from what the program does (`cargo test -p zaffre --bin zaffre compatib`); what is not there is refused by name, never ignored.

## Programs of the Azure SDK

Each row is a program that uses the unmodified `azure-ai-ml` and asserts what it gets back. The suite plays it against a server.

| program | | about |
|---|---|---|
";

/// Azure's schemas of kinds that the loader names and refuses. One that is taken leaves this list, and gets a [`Kind`].
const FOREIGN: [&str; 17] = [
    "parallelJob",
    "sparkJob",
    "autoMLJob",
    "importJob",
    "sparkComponent",
    "importComponent",
    "pipelineComponentBatchDeployment",
    "schedule",
    "monitorSchedule",
    "modelPackage",
    "dataImport",
    "workspaceConnection",
    "hub",
    "project",
    "registry",
    "featureStore",
    "featureSet",
];

/// What comes of a file that is taken.
fn fate(kind: Kind) -> &'static str {
    match kind {
        Kind::AmlCompute => {
            "runs: nodes are processes of this machine, or pods of an attached cluster"
        }
        Kind::Kubernetes => {
            "runs: jobs are processes with the limits of a pod, or pods of an attached cluster"
        }
        Kind::ComputeInstance => {
            "runs: one node; schedules, idle shutdown and setup scripts are kept, not carried out"
        }
        Kind::VirtualMachine | Kind::SynapseSpark => "a document; work that names it is refused",
        Kind::Environment => {
            "packages of its conda file are installed; its image is what jobs of an attached cluster run in"
        }
        Kind::Model => "runs in batch deployments, and is an input of jobs",
        Kind::Data => "an input of jobs and batch runs",
        Kind::BatchEndpoint | Kind::BatchDeployment => "runs",
        Kind::CommandJob | Kind::SweepJob => "runs",
        Kind::PipelineJob => "runs: command, parallel, sweep and pipeline steps",
        Kind::Component => "runs as a step: command, parallel and pipeline components",
        Kind::Datastore => "Azure Blob, S3 and folders are read; the others are documents",
        Kind::Workspace => "is made, found and deleted",
        Kind::OnlineEndpoint => "a document with keys; not served",
        Kind::OnlineDeployment => "every rule is checked, then it is refused; not served",
    }
}

/// What a compute does with work.
fn work(target: Target) -> &'static str {
    match target {
        Target::AmlCompute => "runs jobs and batch deployments",
        Target::ComputeInstance => "runs jobs",
        Target::Kubernetes => "runs jobs",
        Target::VirtualMachine
        | Target::SynapseSpark
        | Target::Databricks
        | Target::HdInsight
        | Target::DataLakeAnalytics
        | Target::DataFactory
        | Target::Aks => "a document; work that names it is refused",
    }
}

/// Why a command of `az ml` is not there, where [`ABSENT`] does not say it.
fn reason(command: &str) -> &'static str {
    match command {
        "component prepare-for-sign" => "nothing is signed",
        "job connect-ssh" | "job show-services" => "jobs have no SSH and no services",
        "model package" => "there are no model packages",
        "data import" => "there are no data imports",
        "data mount" | "datastore mount" => "files are downloaded, nothing is mounted here",
        "datastore update" => "create changes a datastore that is there",
        "model share" | "environment share" | "data share" => "there are no registries",
        "data list-materialization-status" => "there are no data imports",
        _ if command.starts_with("workspace ") => "a workspace has no Azure resources of its own",
        _ => "it is not built",
    }
}

fn flow_rows(out: &mut String) {
    let shared = std::env::var_os("ZAFFRE_SHARED")
        .map_or_else(|| repository().join("../shared"), PathBuf::from);
    let entries = fs::read_dir(shared.join("conformance"))
        .expect("the flows are read from ../shared/conformance; ZAFFRE_SHARED says where it is");
    let mut programs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    programs.sort();
    for path in programs {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if !name.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let program = fs::read_to_string(&path).unwrap_or_default();
        let about = program.split("\"\"\"").nth(1).unwrap_or_default();
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        let waits = flows::NOT_YET.iter().find(|(known, _)| *known == name);
        let state = match waits {
            _ if flows::ONLINE.contains(&name.as_str()) => {
                "no: online endpoints are not served".to_owned()
            }
            Some((_, why)) => format!("not yet: {why}"),
            None => "passes".to_owned(),
        };
        let _ = writeln!(out, "| `{name}` | {state} | {about} |");
    }
}

fn file_rows(out: &mut String) {
    out.push_str("\n## Files\n\n| file | command | |\n|---|---|---|\n");
    for kind in Kind::ALL {
        let _ = writeln!(
            out,
            "| {kind} | `zaffre {}` | {} |",
            kind.command(),
            fate(kind)
        );
    }
    out.push_str("\nThese kinds are known and refused by name:\n\n| `$schema` | is one of the |\n|---|---|\n");
    for schema in FOREIGN {
        let text = format!(
            "$schema: https://azuremlschemas.azureedge.net/latest/{schema}.schema.json\nname: a\n"
        );
        let options = LoadOptions {
            hint: None,
            overrides: vec![],
            files: &|_| Err("no file is read".to_owned()),
        };
        match load(text.as_bytes(), "a.yml", &options) {
            Err(Refused::Unsupported { what, .. }) => {
                let _ = writeln!(out, "| `{schema}` | {what} |");
            }
            other => panic!("{schema} is not refused as foreign any more: {other:?}"),
        }
    }
}

fn compute_rows(out: &mut String) {
    out.push_str("\n## Computes\n\nThe last three columns are Azure's table of training targets, which is a rule here: where it says no, a job is refused by both\nnames. Whether work runs says the second column; Automated ML and the designer themselves are not built.\n\n");
    out.push_str(
        "| compute | work | Automated ML | pipelines | designer |\n|---|---|---|---|---|\n",
    );
    let body = json!({"properties": {"computeId": "a"}});
    let place = Field::root(&body).get("properties").get("computeId");
    let mut row = |name: &str, work: &str, target: Option<scenario::Target>| {
        let _ = write!(out, "| {name} | {work} |");
        for of in Use::ALL {
            let cell = match target {
                None => "–",
                Some(target) if scenario::check(&place, target, of, "a").is_ok() => "yes",
                Some(_) => "no",
            };
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    };
    for target in Target::ALL {
        let document = json!({"properties": {"computeType": target.word()}});
        row(
            &format!("`{target}`"),
            work(target),
            scenario::Target::of(&document),
        );
    }
    for name in ["local", "serverless"] {
        let target = scenario::Target::named(name);
        row(&format!("`{name}`"), "is refused by name", target);
    }
    row(
        "Azure Batch",
        "is no compute here",
        Some(scenario::Target::AzureBatch),
    );
}

fn command_rows(out: &mut String) {
    let oracle = oracle()
        .expect("the commands of az are read from ../shared; ZAFFRE_SHARED says where it is");
    let mut cli = Cli::command();
    cli.build();
    let (mut groups, mut there) = (BTreeSet::new(), 0);
    let mut missing: BTreeMap<&str, &str> = BTreeMap::new();
    let mut flags: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, options) in &oracle {
        let (group, verb) = name.split_once(' ').unwrap();
        let Some(known) = cli.find_subcommand(group) else {
            groups.insert(group);
            continue;
        };
        let Some(command) = known.find_subcommand(verb) else {
            let why = ABSENT.iter().find(|(absent, _)| absent == name);
            missing.insert(name, why.map_or_else(|| reason(name), |(_, why)| *why));
            continue;
        };
        there += 1;
        for (long, _) in options {
            if !command
                .get_arguments()
                .any(|arg| arg.get_long() == Some(&long[2..]))
            {
                flags.entry(long).or_default().insert(name);
            }
        }
    }
    let list = |words: &BTreeSet<&str>| {
        let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        words.join(", ")
    };
    let _ = write!(
        out,
        "\n## Commands of `az ml`\n\n{there} commands are `zaffre` commands of the same name, with the flags and letters of `az ml` but for those below. Groups that are\nnot there: {}.\n\n| command that is not there | why |\n|---|---|\n",
        list(&groups)
    );
    for (name, why) in missing {
        let _ = writeln!(out, "| `{name}` | {why} |");
    }
    out.push_str("\n| flag that is not there | of | why |\n|---|---|---|\n");
    for (long, commands) in flags {
        let why = ABSENT.iter().find(|(absent, _)| *absent == long);
        let why = why.map_or_else(|| reason(commands.first().unwrap_or(&"")), |(_, why)| *why);
        let _ = writeln!(out, "| `{long}` | {} | {why} |", list(&commands));
    }
}

/// What `tests/corpus` says about the files on which our loader and that of the SDK differ.
fn corpus_rows(out: &mut String) {
    let entries = fs::read_dir(repository().join("tests/corpus")).unwrap();
    let mut loaders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    loaders.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    loaders.sort();
    let (mut files, mut rows) = (0, String::new());
    for path in loaders {
        let loader = match path.file_stem().unwrap().to_string_lossy().as_ref() {
            "pipeline" => "job".to_owned(), // the loader of jobs reads them too
            other => other.to_owned(),
        };
        let whole = fs::read_to_string(&path).unwrap();
        for case in whole.split("\n=== ").skip(1) {
            files += 1;
            let mut lines = case.lines();
            let name = lines.next().unwrap_or_default();
            let mark = lines.next().and_then(|line| line.strip_prefix("!!! "));
            if let Some((verdict, why)) = mark.and_then(|mark| mark.split_once(": ")) {
                let _ = writeln!(rows, "| `load_{loader}` | {name} | {verdict} | {why} |");
            }
        }
    }
    let _ = write!(
        out,
        "\n{files} files in `tests/corpus` are read by this loader and by those of the SDK, which agree but for these (wire, behaviour and\nR-n are the specifications):\n\n| loader of the SDK | file | here | why |\n|---|---|---|---|\n{rows}"
    );
}

#[test]
fn the_table_of_compatibility_is_what_the_program_does() {
    let mut text = String::from(HEAD);
    flow_rows(&mut text);
    file_rows(&mut text);
    corpus_rows(&mut text);
    compute_rows(&mut text);
    command_rows(&mut text);
    let path = repository().join("docs/reference/compatibility.md");
    if std::env::var_os("ZAFFRE_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = kept
        .lines()
        .zip(text.lines())
        .find(|(kept, made)| kept != made);
    assert!(
        kept == text,
        "docs/reference/compatibility.md is not current: run the test with ZAFFRE_BLESS=1 and read the difference; it begins at {differs:?}"
    );
}
