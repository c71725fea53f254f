//! Which files are taken: `tests/corpus` is read by our loader and by the stock loaders of azure-ai-ml, and the two agree, save
//! where the corpus itself says why they do not. Its form is in `tests/corpus/README.md`.

mod support;

use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};
use support::{
    python::{python, text},
    repository,
};
use wire::yaml::{Kind, LoadOptions, load};

/// Fewer would say little about all kinds.
const LEAST: usize = 300;

/// One file of the corpus.
struct Case {
    kind: String,
    name: String,
    text: String,
    /// Why our verdict is another than that of the SDK: whether we take it, and the reason.
    differs: Option<(bool, String)>,
}

/// The kinds of draft that the loader of a kind gives; the first is what the command takes when a file does not say it.
fn kinds(kind: &str) -> &'static [Kind] {
    match kind {
        "compute" => &[
            Kind::AmlCompute,
            Kind::Kubernetes,
            Kind::ComputeInstance,
            Kind::VirtualMachine,
            Kind::SynapseSpark,
        ],
        "job" => &[Kind::CommandJob],
        "pipeline" => &[Kind::PipelineJob],
        "component" => &[Kind::Component],
        "model" => &[Kind::Model],
        "environment" => &[Kind::Environment],
        "data" => &[Kind::Data],
        "batch_endpoint" => &[Kind::BatchEndpoint],
        "batch_deployment" | "model_batch_deployment" => &[Kind::BatchDeployment],
        "online_endpoint" => &[Kind::OnlineEndpoint],
        "online_deployment" => &[Kind::OnlineDeployment],
        "datastore" => &[Kind::Datastore],
        "workspace" => &[Kind::Workspace],
        other => panic!("the corpus has no kind {other}"),
    }
}

fn read(corpus: &Path) -> Vec<Case> {
    let mut files: Vec<_> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let kind = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let whole = fs::read_to_string(&path).unwrap();
        for part in whole.split("\n=== ").skip(1) {
            let (name, rest) = part.split_once('\n').unwrap();
            let (differs, body) = match rest.strip_prefix("!!! ") {
                None => (None, rest),
                Some(rest) => {
                    let (mark, body) = rest.split_once('\n').unwrap();
                    let (word, reason) = mark.split_once(": ").unwrap();
                    let taken = match word {
                        "taken" => true,
                        "refused" => false,
                        other => panic!("{kind}, {name}: {other}"),
                    };
                    (Some((taken, reason.to_owned())), body)
                }
            };
            cases.push(Case {
                kind: kind.clone(),
                name: name.to_owned(),
                text: format!("{}\n", body.trim_end()),
                differs,
            });
        }
    }
    cases
}

/// Our verdict: nothing, or why the file is refused.
fn ours(case: &Case, files: &Path) -> Result<(), String> {
    let kinds = kinds(&case.kind);
    let options = LoadOptions {
        hint: Some(kinds[0]),
        overrides: vec![],
        files: &|path| fs::read(files.join(path)).map_err(|error| error.to_string()),
    };
    match load(case.text.as_bytes(), "case.yml", &options) {
        Ok(draft) if kinds.contains(&draft.kind) => Ok(()),
        Ok(draft) => Err(format!("it is a {}", draft.kind)),
        Err(refused) => Err(refused.to_string()),
    }
}

/// The verdicts of the SDK.
fn theirs(cases: &[Case], files: &Path) -> Vec<Value> {
    let asked = json!({
        "files": files,
        "cases": cases
            .iter()
            .map(|c| json!({"kind": c.kind, "name": c.name, "text": c.text}))
            .collect::<Vec<_>>(),
    });
    let mut child = Command::new(python())
        .arg(repository().join("tests/corpus/oracle.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", files)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = serde_json::to_vec(&asked).unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A copy of the files that the corpus names, since the oracle writes beside them.
fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copied(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn what_the_loaders_of_the_sdk_take_is_taken_and_what_they_refuse_is_refused() {
    let corpus = repository().join("tests/corpus");
    let cases = read(&corpus);
    assert!(cases.len() >= LEAST, "{} files", cases.len());
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    copied(&corpus.join("files"), &files);
    let verdicts = theirs(&cases, &files);
    assert_eq!(verdicts.len(), cases.len());

    let mut wrong = Vec::new();
    let (mut taken, mut differences) = (0, 0);
    for (case, verdict) in cases.iter().zip(&verdicts) {
        let sdk = verdict["accepted"].as_bool().unwrap();
        let ours = ours(case, &files);
        taken += usize::from(ours.is_ok());
        let place = format!("{}, {}", case.kind, case.name);
        match (&case.differs, ours.is_ok() == sdk) {
            (None, true) => {}
            (None, false) => wrong.push(format!(
                "{place}: {}",
                match &ours {
                    Ok(()) => format!("the SDK refuses it: {}", verdict["why"]),
                    Err(why) => format!("the SDK takes it, and we say {why}"),
                }
            )),
            (Some(_), true) => {
                wrong.push(format!(
                    "{place}: no difference any more, take the mark away"
                ));
            }
            (Some((said, _)), false) if *said != ours.is_ok() => {
                wrong.push(format!("{place}: the mark says the opposite"));
            }
            (Some(_), false) => differences += 1,
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    drop(writeln!(
        std::io::stderr(),
        "{} files, {taken} taken, {differences} differences on purpose",
        cases.len()
    ));
}
