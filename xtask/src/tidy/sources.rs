//! Rules about source files: how long they are, how they open, what they must not contain.

use super::Finding;
use super::rust_source::{code_only, has_word};
use super::tree::{File, Tree};

/// A file that a person can hold in mind; a longer one is two subjects.
const MOST_LINES: usize = 800;
/// Lists of test cases may be longer.
const MOST_LINES_OF_TESTS: usize = 1500;

/// The only files that may use `unsafe`. There is none: rustix and the standard library reach.
const UNSAFE_FILES: [&str; 0] = [];

/// Written in two parts, since this file is checked too.
const REMINDERS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if file.has_extension(&["rs", "py", "ts"]) {
            findings.extend(length(file));
            findings.extend(reminders(file));
        }
        if file.has_extension(&["rs"]) {
            findings.extend(opening(file));
            findings.extend(code(file));
        }
    }
    findings
}

fn length(file: &File) -> Option<Finding> {
    let most = if file.is_test() {
        MOST_LINES_OF_TESTS
    } else {
        MOST_LINES
    };
    let lines = file.text.lines().count();
    (lines > most).then(|| {
        let message = format!("{lines} lines are above the limit of {most}; split by subject");
        Finding::file(&file.path, message)
    })
}

fn reminders(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for reminder in REMINDERS {
            if has_word(line, reminder) {
                let message = format!("{reminder}: do it, or file an issue and leave it out");
                findings.push(Finding::line(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Each module opens with what it is for.
fn opening(file: &File) -> Option<Finding> {
    let parts: Vec<&str> = file.path.split('/').collect();
    let is_module = matches!(parts[..], ["crates", _, "src", ..] | ["xtask", "src", ..]);
    let first = file.text.lines().find(|line| !line.trim().is_empty());
    let says = first.is_some_and(|line| line.starts_with("//!"));
    (is_module && !says).then(|| {
        let message = "a module opens with a //! comment that says what it is for";
        Finding::file(&file.path, message)
    })
}

/// Silenced lints and unsafe code.
fn code(file: &File) -> Vec<Finding> {
    let code = code_only(&file.text);
    let line_of = |at: usize| code[..at].matches('\n').count() + 1;
    let mut findings = Vec::new();
    for (at, attribute) in attributes(&code) {
        let compact: String = attribute.split_whitespace().collect();
        // A module that several test crates include is used in part by each: an expectation of dead code holds in some and
        // fails in others. Nowhere else is `allow` needed.
        let shared_by_tests = file.path.contains("/tests/support/");
        if !shared_by_tests && (compact.contains("[allow(") || compact.contains(",allow(")) {
            let message = "allow is not used; #[expect(lint, reason = \"...\")] fails when it is no longer needed";
            findings.push(Finding::line(&file.path, line_of(at), message));
        }
        let expects = compact.contains("[expect(") || compact.contains(",expect(");
        if expects && !compact.contains(",reason=") {
            let message = "expect without a reason";
            findings.push(Finding::line(&file.path, line_of(at), message));
        }
    }
    if !UNSAFE_FILES.contains(&file.path.as_str()) {
        for (index, line) in code.lines().enumerate() {
            if has_word(line, "unsafe") {
                let message = "unsafe is only for the files that xtask/src/tidy/sources.rs names";
                findings.push(Finding::line(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Every `#[…]` and `#![…]` with where it starts.
fn attributes(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices('#') {
        let rest = &code[at..];
        if !rest.starts_with("#[") && !rest.starts_with("#![") {
            continue;
        }
        let mut depth = 0_usize;
        for (length, c) in rest.char_indices() {
            match c {
                '[' => depth += 1,
                ']' if depth == 1 => {
                    found.push((at, &rest[..=length]));
                    break;
                }
                ']' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings for one module with this text below its opening.
    fn findings(text: &str) -> Vec<String> {
        let text = format!("//! Something.\n{text}");
        let tree = Tree::of(&[("crates/model/src/node.rs", &text)]);
        let shown = |finding: Finding| format!("{}: {}", finding.at, finding.message);
        check(&tree).into_iter().map(shown).collect()
    }

    #[test]
    fn clean_code_passes() {
        let text = "// allow( unsafe\n#[expect(dead_code, reason = \"why\")]\nfn f() { \"unsafe #[allow(x)]\"; }\n";
        assert_eq!(findings(text), Vec::<String>::new());
    }

    #[test]
    fn a_silenced_lint_is_found_in_every_form() {
        for text in [
            "#[allow(dead_code)]",
            "#![allow(dead_code)]",
            "#[cfg_attr(test, allow(dead_code))]",
            "#[\n  allow(\n dead_code)\n]",
        ] {
            let found = findings(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
        }
        let found = findings("#[expect(dead_code)]\nfn f() {}");
        assert_eq!(
            found,
            ["crates/model/src/node.rs:2: expect without a reason"]
        );
    }

    #[test]
    fn unsafe_is_found_with_its_line() {
        let found = findings("fn f() {\n    unsafe { g() }\n}");
        assert!(
            found[0].starts_with("crates/model/src/node.rs:3: unsafe"),
            "{found:?}"
        );
    }

    #[test]
    fn a_long_file_is_found_and_tests_may_be_longer() {
        let text = "//! x\n".repeat(MOST_LINES + 1);
        let long = |path: &str| check(&Tree::of(&[(path, &text)])).len();
        assert_eq!(long("crates/model/src/node.rs"), 1);
        assert_eq!(long("runtime/batch.py"), 1);
        assert_eq!(long("crates/model/tests/node.rs"), 0);
        assert_eq!(long("crates/model/src/node/tests.rs"), 0);
        let text = "//! x\n".repeat(MOST_LINES_OF_TESTS + 1);
        assert_eq!(check(&Tree::of(&[("tests/cli/a.py", &text)])).len(), 1);
    }

    #[test]
    fn a_module_without_opening_and_a_reminder_are_found() {
        let tree = Tree::of(&[("crates/model/src/node.rs", "use std::fmt;\n")]);
        assert_eq!(check(&tree).len(), 1);
        let reminder = format!("// {} later", REMINDERS[0]);
        assert_eq!(findings(&reminder).len(), 1);
    }
}
