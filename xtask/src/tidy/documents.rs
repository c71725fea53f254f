//! Documents that cannot fall behind: the change log, the examples, the invariants, links.
//!
//! D1: the change log has a place for what is not released.
//! D2: every file under examples/ is named in a test.
//! D3: every test that the table of invariants names is there.
//! D4: a link from one document to another file leads somewhere.
//! D5: the README in Japanese has the headings and the code blocks of the README.

use super::Finding;
use super::crates::cells;
use super::tree::{File, Tree};

const INVARIANTS: [&str; 3] = ["invariant", "what always holds", "proved by"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(change_log(tree));
    findings.extend(examples(tree));
    findings.extend(invariants(tree).0);
    findings.extend(links(tree));
    findings.extend(translation(tree));
    findings
}

/// What is allowed for now and should be seen: invariants that no test is named for.
pub fn notes(tree: &Tree) -> Vec<String> {
    invariants(tree).1
}

/// D1.
fn change_log(tree: &Tree) -> Option<Finding> {
    let path = "CHANGELOG.md";
    let Some(file) = tree.get(path) else {
        return Some(Finding::file(path, "is missing"));
    };
    let there = file.text.lines().any(|line| line.trim() == "## Unreleased");
    (!there).then(|| Finding::file(path, "has no section ## Unreleased"))
}

/// D2.
fn examples(tree: &Tree) -> Vec<Finding> {
    let tests: Vec<&File> = tree
        .files
        .iter()
        .filter(|file| {
            let parts: Vec<&str> = file.path.split('/').collect();
            matches!(parts[..], ["crates", _, "tests", ..] | ["tests", ..])
                && !file.has_extension(&["md"])
        })
        .collect();
    let named = |name: &str| tests.iter().any(|test| test.text.contains(name));
    tree.files
        .iter()
        .filter(|file| file.path.starts_with("examples/") && !file.has_extension(&["md"]))
        .filter(|file| !named(file.name()))
        .map(|file| Finding::file(&file.path, "is named in no test; examples are executed"))
        .collect()
}

/// D3: findings, and notes about rows without a test.
fn invariants(tree: &Tree) -> (Vec<Finding>, Vec<String>) {
    let path = "ARCHITECTURE.md";
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let text = tree.get(path).map_or("", |file| file.text.as_str());
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let cells = cells(line).unwrap_or_default();
        if cells == INVARIANTS {
            inside = true;
        } else if cells.len() != INVARIANTS.len() {
            inside = false;
        } else if inside && !cells[0].starts_with("--") {
            // Every second piece stands between backticks.
            let names: Vec<&str> = cells[2].split('`').skip(1).step_by(2).collect();
            if names.is_empty() {
                notes.push(format!("invariant {} names no test", cells[0]));
            }
            for name in names.iter().filter(|name| !proof_exists(tree, name)) {
                let message = format!("invariant {} names {name}, which is not there", cells[0]);
                findings.push(Finding::line(path, index + 1, message));
            }
        }
    }
    (findings, notes)
}

/// A file of the project, or a function in one of its Rust sources: `crate::module::name` or `name`.
fn proof_exists(tree: &Tree, name: &str) -> bool {
    let function = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
    let sources = || tree.files.iter().filter(|file| file.has_extension(&["rs"]));
    tree.has(name) || sources().any(|file| file.text.contains(&function))
}

/// D4.
fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"])) {
        for (index, line) in file.text.lines().enumerate() {
            for piece in line.split("](").skip(1) {
                let target = piece.split([')', '#', ' ']).next().unwrap_or_default();
                if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                if !tree.has(&resolved(&file.path, target)) {
                    let message = format!("links to {target}, which is not there");
                    findings.push(Finding::line(&file.path, index + 1, message));
                }
            }
        }
    }
    findings
}

const README: &str = "README.md";
const TRANSLATED: &str = "README.ja.md";

/// What a translation must keep: how deep each heading is, and each code block byte for byte.
#[derive(PartialEq)]
enum Part<'a> {
    Heading(usize),
    Code(Vec<&'a str>),
}

impl std::fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Heading(level) => write!(f, "a heading of level {level}"),
            Part::Code(lines) => write!(f, "the code block `{}`", lines.join("\\n").trim()),
        }
    }
}

/// The parts of a document, with the number of the line where each begins.
fn parts(text: &str) -> Vec<(usize, Part<'_>)> {
    let mut parts: Vec<(usize, Part<'_>)> = Vec::new();
    let (mut fenced, mut blank) = (false, 0);
    // Whether the last line that says anything was code.
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let fence = line.starts_with("```");
        if fenced || fence || line.starts_with("    ") {
            if open && let Some((_, Part::Code(lines))) = parts.last_mut() {
                lines.extend(std::iter::repeat_n("", blank));
                lines.push(line);
            } else {
                parts.push((index + 1, Part::Code(vec![line])));
            }
            // What follows a closing fence is another block.
            open = !(fenced && fence);
            fenced ^= fence;
            blank = 0;
        } else if line.trim().is_empty() {
            blank += 1;
        } else {
            let level = line.bytes().take_while(|byte| *byte == b'#').count();
            if level > 0 && line[level..].starts_with(' ') {
                parts.push((index + 1, Part::Heading(level)));
            }
            (open, blank) = (false, 0);
        }
    }
    parts
}

/// D5: the first place where the two part ways; what follows it would only repeat it.
fn translation(tree: &Tree) -> Option<Finding> {
    let (original, translated) = (tree.get(README)?, tree.get(TRANSLATED));
    let Some(translated) = translated else {
        return Some(Finding::file(TRANSLATED, "is missing"));
    };
    let (theirs, ours) = (parts(&original.text), parts(&translated.text));
    let longest = theirs.len().max(ours.len());
    (0..longest).find_map(|at| match (theirs.get(at), ours.get(at)) {
        (Some((_, there)), Some((_, here))) if there == here => None,
        (Some((line, Part::Code(there))), Some((at, Part::Code(here)))) => {
            let same = there.iter().zip(here).take_while(|(a, b)| a == b).count();
            let shown = |lines: &[&str]| match lines.get(same) {
                Some(text) => format!("`{}`", text.trim()),
                None => "the end of the code block".to_owned(),
            };
            let line = line + same;
            let message = format!(
                "has {} where {README}:{line} has {}",
                shown(here),
                shown(there)
            );
            Some(Finding::line(TRANSLATED, at + same, message))
        }
        (Some((line, there)), Some((at, here))) => {
            let message = format!("has {here} where {README}:{line} has {there}");
            Some(Finding::line(TRANSLATED, *at, message))
        }
        (Some((line, there)), None) => {
            let message = format!("ends without {there} of {README}:{line}");
            Some(Finding::file(TRANSLATED, message))
        }
        (None, Some((at, here))) => {
            let message = format!("has {here} behind the end of {README}");
            Some(Finding::line(TRANSLATED, *at, message))
        }
        (None, None) => None,
    })
}

/// A link's target, relative to the root, as it is meant in the document `from`.
fn resolved(from: &str, target: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: (&str, &str) = ("CHANGELOG.md", "# Changes\n\n## Unreleased\n");

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let findings = check(&Tree::of(files)).into_iter();
        let shown = |finding: Finding| format!("{}: {}", finding.at, finding.message);
        findings.map(shown).collect()
    }

    #[test]
    fn d1_a_change_log_without_unreleased_is_found() {
        assert_eq!(messages(&[LOG]), Vec::<String>::new());
        assert_eq!(messages(&[]), ["CHANGELOG.md: is missing"]);
        let released = ("CHANGELOG.md", "# Changes\n\n## 0.1.0\n");
        assert_eq!(messages(&[released]).len(), 1);
    }

    #[test]
    fn d2_an_example_that_no_test_runs_is_found() {
        let example = ("examples/job.yml", "type: command\n");
        let test = ("crates/zaffre/tests/examples.rs", "run(\"job.yml\")");
        let prose = ("tests/README.md", "job.yml");
        assert_eq!(messages(&[LOG, example, test]), Vec::<String>::new());
        let found = messages(&[LOG, example, prose]);
        assert!(found[0].starts_with("examples/job.yml: "), "{found:?}");
    }

    #[test]
    fn d3_a_test_that_is_not_there_is_found() {
        let with = |proof: &str| {
            format!(
                "| invariant | what always holds | proved by |\n|---|---|---|\n| I1 | x | {proof} |\n"
            )
        };
        let source = ("crates/store/src/log.rs", "fn i1_kept() {}");
        let document = with("`store::i1_kept`, `crates/store/src/log.rs`");
        let document = ("ARCHITECTURE.md", document.as_str());
        assert_eq!(messages(&[LOG, source, document]), Vec::<String>::new());
        let wrong = with("`i1_lost`");
        let found = messages(&[LOG, source, ("ARCHITECTURE.md", &wrong)]);
        let expected = "ARCHITECTURE.md:3: invariant I1 names i1_lost, which is not there";
        assert_eq!(found, [expected]);
        let open = with("later");
        let tree = Tree::of(&[("ARCHITECTURE.md", &open)]);
        assert_eq!(notes(&tree), ["invariant I1 names no test"]);
    }

    #[test]
    fn d4_a_link_to_nothing_is_found() {
        let target = (
            "docs/design/0001-a.md",
            "[up](../../CHANGELOG.md#x) [out](https://example.com)",
        );
        assert_eq!(messages(&[LOG, target]), Vec::<String>::new());
        let found = messages(&[LOG, ("docs/README.md", "[a](design/0002-b.md)")]);
        assert_eq!(
            found,
            ["docs/README.md:1: links to design/0002-b.md, which is not there"]
        );
    }

    #[test]
    fn d5_a_translation_with_other_headings_or_code_is_found() {
        let readme = "# A\n\ntext\n\n    one\n\n    two\n\n## B\n\n```\n# c\n```\n";
        let found = |translated: &str| {
            let files = [LOG, (README, readme), (TRANSLATED, translated)];
            messages(&files)
        };
        let good = readme.replace("text", "words\nof another language");
        assert_eq!(found(&good), Vec::<String>::new());
        assert_eq!(
            found(&good.replace("two", "three")),
            ["README.ja.md:8: has `three` where README.md:7 has `two`"]
        );
        assert_eq!(
            found(&good.replace("## B", "### B")),
            [
                "README.ja.md:10: has a heading of level 3 where README.md:9 has a heading of level 2"
            ]
        );
        assert_eq!(
            found(good.split("```").next().unwrap()),
            ["README.ja.md: ends without the code block ````\\n# c\\n```` of README.md:11"]
        );
        assert_eq!(
            found(&format!("{good}\n# C\n")),
            ["README.ja.md:16: has a heading of level 1 behind the end of README.md"]
        );
        assert_eq!(
            messages(&[LOG, (README, readme)]),
            ["README.ja.md: is missing"]
        );
    }
}
