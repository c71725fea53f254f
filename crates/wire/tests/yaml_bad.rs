//! Files that are wrong, and exactly what is said about each of them.
//!
//! The cases stand in `yaml_bad.txt`: `### title [hint]`, the file, `=====`, and the messages with their hints.
//! After a change of wording, `ZAFFRE_BLESS=1 cargo test -p wire --test yaml_bad` writes the file anew; read the difference.

use std::fmt::Write as _;
use wire::yaml::{Kind, LoadOptions, Override, Refused, load};

/// Files beside the one that is read.
fn beside(path: &str) -> Result<Vec<u8>, String> {
    match path {
        "./conda.yml" => Ok(b"name: x\ndependencies:\n- python=3.11\n- pip:\n  - numpy\n".to_vec()),
        "tab.yml" => Ok(b"dependencies:\n\t- python\n".to_vec()),
        "list.yml" => Ok(b"- python\n".to_vec()),
        "text.yml" => Ok(b"name: x\ndependencies: python\n".to_vec()),
        "number.yml" => Ok(b"dependencies:\n- pip:\n    numpy: 1\n".to_vec()),
        "cp932.yml" => Ok(b"name: \x8aw\x8fK\n".to_vec()),
        _ => Err("no such file".into()),
    }
}

fn said(text: &str, hint: Option<Kind>, sets: &[&str]) -> String {
    let mut overrides = Vec::new();
    for set in sets {
        match Override::set(set) {
            Ok(set) => overrides.push(set),
            Err(diagnostic) => return format!("{diagnostic}\n"),
        }
    }
    let options = LoadOptions {
        hint,
        overrides,
        files: &beside,
    };
    let diagnostics = match load(text.as_bytes(), "f.yml", &options) {
        Ok(_) => return "accepted\n".into(),
        Err(Refused::Invalid(diagnostics)) => diagnostics,
        Err(Refused::Unsupported { diagnostic, .. }) => vec![*diagnostic],
    };
    let mut out = String::new();
    for diagnostic in diagnostics {
        let _ = writeln!(out, "{diagnostic}");
        if let Some(hint) = diagnostic.hint {
            let _ = writeln!(out, "  hint: {hint}");
        }
    }
    out
}

fn kind(word: &str) -> Option<Kind> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.command().split(' ').next() == Some(word))
}

#[test]
fn every_wrong_file_gets_its_message() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/yaml_bad.txt");
    let golden = std::fs::read_to_string(path).unwrap();
    let (mut written, mut cases) = (String::new(), 0);
    for case in golden.split("### ").skip(1) {
        let (title, rest) = case.split_once('\n').unwrap();
        let (file, _) = rest
            .split_once("\n=====\n")
            .unwrap_or_else(|| panic!("{title} has no ====="));
        let words: Vec<&str> = title
            .split_once('[')
            .map_or("", |(_, words)| words.trim_end_matches(']'))
            .split_whitespace()
            .collect();
        let sets: Vec<&str> = words
            .iter()
            .filter(|word| word.contains('='))
            .copied()
            .collect();
        let said = said(
            &format!("{file}\n"),
            words.iter().find_map(|word| kind(word)),
            &sets,
        );
        let _ = write!(written, "### {title}\n{file}\n=====\n{said}\n");
        cases += 1;
    }
    assert!(cases >= 80, "{cases} cases");
    if std::env::var_os("ZAFFRE_BLESS").is_some() {
        std::fs::write(path, written).unwrap();
        return;
    }
    let head = golden.find("### ").unwrap_or_default();
    for (was, now) in golden[head..].split("### ").zip(written.split("### ")) {
        assert_eq!(was, now);
    }
}
