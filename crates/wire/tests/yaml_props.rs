//! No bytes make the loader panic, and no good file turns into nonsense by a small change.

use proptest::prelude::*;
use wire::yaml::{Draft, Files, Kind, LoadOptions, Override, Refused, load, render};

const GOOD: [&str; 4] = [
    "name: low-pri-cluster\ntype: amlcompute\nsize: STANDARD_DS3_v2\nmin_instances: 0\nmax_instances: 2\nidle_time_before_scale_down: 120\ntier: low_priority\ntags: {a: b}\n",
    "endpoint_name: heart-classifier-batch\nname: classifier-xgboost\ntype: model\nmodel: azureml:heart-classifier@latest\ncompute: azureml:low-pri-cluster\nresources:\n  instance_count: 2\nsettings:\n  mini_batch_size: 2\n  output_action: append_row\n  output_file_name: predictions.csv\n  retry_settings:\n    max_retries: 3\n    timeout: 300\nproperties: {zaffre.on_capacity_loss: wait}\n",
    "command: python train.py ${{inputs.data}}\ncode: ./src\nenvironment:\n  image: library/python:3.11\n  conda_file: conda.yml\ncompute: azureml:cpu-cluster\ninputs:\n  data: {type: uri_file, path: ./data.csv}\n  lr: 0.5\noutputs: {model: }\n",
    "name: heart\nversion: 1.10\ntype: mlflow_model\npath: ./model\nflavors: &f {x: {y: 1}}\ntags: {<<: &t {a: b}}\n",
];

fn read(bytes: &[u8], hint: Option<Kind>, overrides: Vec<Override>) -> Result<(), TestCaseError> {
    let options = LoadOptions {
        hint,
        overrides,
        files: &|_| Ok(bytes.to_vec()),
    };
    match load(bytes, "f", &options) {
        Ok(draft) => {
            let effective = render(&draft);
            prop_assert!(!effective.is_empty());
            means_the_same(&draft, &effective, options.files)?;
        }
        Err(refused) => {
            prop_assert!(!refused.to_string().is_empty());
            if let Refused::Invalid(errors) = refused {
                prop_assert!(!errors.is_empty());
                prop_assert!(
                    errors
                        .iter()
                        .all(|error| !error.message.is_empty() && !error.message.contains('\n'))
                );
            }
        }
    }
    Ok(())
}

/// F1: what a file means can be written as a file again, and that file means the same: `parse(emit(parse(x))) = parse(x)`.
fn means_the_same(draft: &Draft, effective: &str, files: Files<'_>) -> Result<(), TestCaseError> {
    let name = draft.name.as_deref();
    let name = name.map(|name| Override::flag("--name", &["name"], name));
    let options = LoadOptions {
        hint: Some(draft.kind),
        overrides: name.into_iter().collect(),
        files,
    };
    let again = load(effective.as_bytes(), "effective", &options);
    let again = again.map_err(|refused| TestCaseError::fail(format!("{refused}\n{effective}")))?;
    prop_assert_eq!(&again.effective, &draft.effective);
    prop_assert_eq!(&again.defaults, &[]);
    Ok(())
}

fn any_hint() -> impl Strategy<Value = Option<Kind>> {
    proptest::option::of(proptest::sample::select(Kind::ALL.to_vec()))
}

/// Pieces of files in random order: much of it is YAML, little of it is right.
fn pieces() -> impl Strategy<Value = String> {
    let words = vec![
        "name",
        "type",
        "model",
        "compute",
        "settings",
        "resources",
        "inputs",
        "properties",
        "environment",
        "path",
        ": ",
        ":",
        "\n",
        "\n  ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        "&a ",
        "*a",
        "<<",
        "!x ",
        "!!str ",
        "'",
        "\"",
        "|\n",
        ">-\n",
        "#",
        "azureml:",
        "azureml://",
        "@latest",
        "file:",
        "./x",
        "\\",
        "~",
        "null",
        "1",
        "010",
        "-1",
        "1.10",
        "true",
        "${{inputs.a}}",
        "${{",
        "学習",
        "\t",
        "\r\n",
        "---",
        "...",
        "%YAML 1.2\n",
        "? ",
    ];
    proptest::collection::vec(proptest::sample::select(words), 0..40)
        .prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), hint in any_hint()) {
        read(&bytes, hint, Vec::new())?;
    }

    #[test]
    fn any_text(text in "\\PC{0,120}", hint in any_hint()) {
        read(text.as_bytes(), hint, Vec::new())?;
    }

    #[test]
    fn pieces_of_files(text in pieces(), hint in any_hint()) {
        read(text.as_bytes(), hint, Vec::new())?;
    }

    #[test]
    fn changed_files(which in 0..GOOD.len(), at in any::<prop::sample::Index>(), cut in 0..12usize, insert in pieces(), hint in any_hint()) {
        let good = GOOD[which];
        let start = at.index(good.len());
        let start = (0..=start).rev().find(|i| good.is_char_boundary(*i)).unwrap_or(0);
        let end = (start + cut).min(good.len());
        let end = (end..=good.len()).find(|i| good.is_char_boundary(*i)).unwrap_or(good.len());
        let text = format!("{}{insert}{}", &good[..start], &good[end..]);
        read(text.as_bytes(), hint, Vec::new())?;
    }

    #[test]
    fn broken_bytes(which in 0..GOOD.len(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = GOOD[which].as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        read(&bytes, None, Vec::new())?;
    }

    #[test]
    fn any_override(which in 0..GOOD.len(), argument in "[a-z_.\\[\\]0-9\"'={}:, -]{0,40}", deep in "\\PC{0,20}") {
        for argument in [argument.clone(), format!("{argument}={deep}"), format!("tags={deep}")] {
            if let Ok(set) = Override::set(&argument) {
                read(GOOD[which].as_bytes(), None, vec![set])?;
            }
        }
    }
}

/// A file that costs much more to read than it has bytes would be a way to stop a server or a terminal.
#[test]
fn hostile_files_are_refused_quickly() {
    let bomb = (1..12).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
        format!(
            "{text}a{i}: &a{i} [{}]\n",
            vec![format!("*a{}", i - 1); 10].join(", ")
        )
    });
    let texts = [
        bomb,
        "[".repeat(1 << 19),
        "{a: ".repeat(1 << 17),
        "- ".repeat(1 << 19),
        (0..100_000).map(|i| format!("k{i}: 1\n")).collect(),
        format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(1 << 19),
            vec!["*a"; 1000].join(",")
        ),
        "? ".repeat(1 << 19),
        format!("name: \"{}", "\\u0041".repeat(1 << 17)),
    ];
    let start = std::time::Instant::now();
    for text in &texts {
        let options = LoadOptions {
            hint: None,
            overrides: Vec::new(),
            files: &|_| Err(String::new()),
        };
        assert!(load(text.as_bytes(), "f", &options).is_err());
    }
    // a debug build on a loaded machine takes well under a second each
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
