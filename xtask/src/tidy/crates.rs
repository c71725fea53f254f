//! The crate table of ARCHITECTURE.md against `cargo metadata`: who may know whom.
//!
//! C1: every crate of the workspace has a row and every row has a crate.
//! C2: a crate depends only on what its row names. What only its tests may use stands in the same cell
//! after `tests:`.

use super::Finding;
use super::tree::Tree;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADER: [&str; 3] = ["crate", "one sentence", "may depend on"];
/// This program: a tool beside the product. It has no row and must not know the product's crates.
const TOOL: &str = "xtask";

/// A crate of the workspace and the crates of the workspace that it depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    built_from: BTreeSet<String>,
    tested_with: BTreeSet<String>,
}

pub type Members = BTreeMap<String, Member>;

/// Reads the members and the edges between them.
pub fn members(metadata: &Value) -> Members {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut members = Members::new();
    for package in list(&metadata["packages"]) {
        let mut member = Member::default();
        for dependency in list(&package["dependencies"]) {
            // Our own crates are the ones that lie in a folder.
            let Some(name) = dependency["path"].as_str().and(dependency["name"].as_str()) else {
                continue;
            };
            let edges = match dependency["kind"].as_str() {
                Some("dev") => &mut member.tested_with,
                _ => &mut member.built_from,
            };
            edges.insert(name.to_owned());
        }
        members.insert(
            package["name"].as_str().unwrap_or_default().to_owned(),
            member,
        );
    }
    members
}

/// One row of the table.
#[derive(Debug, Default)]
struct Row {
    line: usize,
    sentence: String,
    any: bool,
    built_from: BTreeSet<String>,
    tested_with: BTreeSet<String>,
}

pub fn check(tree: &Tree, members: &Members) -> Vec<Finding> {
    let Some(document) = tree.get(DOCUMENT) else {
        return vec![Finding::file(DOCUMENT, "is missing")];
    };
    let rows = rows(&document.text);
    if rows.is_empty() {
        let message = format!("has no table | {} |", HEADER.join(" | "));
        return vec![Finding::file(DOCUMENT, message)];
    }
    let mut findings = Vec::new();
    for (name, member) in members {
        match rows.get(name) {
            Some(row) => findings.extend(edges(name, member, row)),
            None if name == TOOL => findings.extend(edges(name, member, &Row::default())),
            None => findings.push(Finding::file(
                DOCUMENT,
                format!("crate {name} has no row in the crate table"),
            )),
        }
    }
    for (name, row) in &rows {
        if !members.contains_key(name) {
            let message =
                format!("the crate table has a row for {name}, which is not in the workspace");
            findings.push(Finding::line(DOCUMENT, row.line, message));
        }
        if row.sentence.is_empty() {
            let message = format!("the row of {name} does not say what it is for");
            findings.push(Finding::line(DOCUMENT, row.line, message));
        }
    }
    findings
}

fn edges(name: &str, member: &Member, row: &Row) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |on: &str, verb: &str| {
        if !row.any {
            let message = format!(
                "{name} {verb} {on}, which the crate table does not allow; change the table in the same commit if it must be"
            );
            let folder = if name == TOOL { "" } else { "crates/" };
            findings.push(Finding::file(
                &format!("{folder}{name}/Cargo.toml"),
                message,
            ));
        }
    };
    for on in member.built_from.difference(&row.built_from) {
        found(on, "depends on");
    }
    for on in &member.tested_with {
        if !row.built_from.contains(on) && !row.tested_with.contains(on) {
            found(on, "is tested with");
        }
    }
    findings
}

/// The rows of the first table with the header, by crate.
fn rows(text: &str) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else {
            if inside {
                break;
            }
            continue;
        };
        if cells == HEADER {
            inside = true;
        } else if inside && !cells[0].starts_with("--") {
            let name = cells[0].split('`').nth(1).unwrap_or(cells[0]);
            rows.insert(name.to_owned(), row(index + 1, &cells));
        }
    }
    rows
}

/// The cells of a table's line, without the space around them.
pub fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn row(line: usize, cells: &[&str]) -> Row {
    let allowed = cells.get(2).copied().unwrap_or_default();
    let (built_from, tested_with) = match allowed.split_once("tests:") {
        Some((built, tested)) => (built.trim_end().trim_end_matches(';'), tested),
        None => (allowed, ""),
    };
    let names = |text: &str| -> BTreeSet<String> {
        text.split(',')
            .map(|name| name.trim().trim_matches('`').to_owned())
            .filter(|name| !name.is_empty() && name != "–")
            .collect()
    };
    Row {
        line,
        sentence: cells.get(1).copied().unwrap_or_default().to_owned(),
        any: built_from.trim() == "all",
        built_from: names(built_from),
        tested_with: names(tested_with),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = "# x\n\n| crate | one sentence | may depend on |\n|---|---|---|\n\
        | `model` | Nouns. | – |\n| `plan` | Verbs. | model |\n\
        | `control` | The loop. | model, plan; tests: store |\n| `zaffre` (bin) | All of it. | all |\n\ntext\n";

    fn member(built_from: &[&str], tested_with: &[&str]) -> Member {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Member {
            built_from: set(built_from),
            tested_with: set(tested_with),
        }
    }

    fn workspace(more: &[(&str, Member)]) -> Vec<String> {
        let mut members = Members::new();
        members.insert("model".into(), member(&[], &[]));
        members.insert("plan".into(), member(&["model"], &[]));
        members.insert("control".into(), member(&["plan"], &["store", "model"]));
        members.insert("zaffre".into(), member(&["control", "plan"], &[]));
        members.insert("xtask".into(), member(&[], &[]));
        for (name, member) in more {
            members.insert((*name).to_owned(), member.clone());
        }
        let findings = check(&Tree::of(&[(DOCUMENT, TABLE)]), &members);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn the_table_as_it_is_passes() {
        assert_eq!(workspace(&[]), Vec::<String>::new());
    }

    #[test]
    fn c1_a_missing_row_and_an_extra_row_are_found() {
        assert_eq!(
            workspace(&[("wire", member(&[], &[]))]),
            ["crate wire has no row in the crate table"]
        );
        let only_model = Members::from([("model".to_owned(), member(&[], &[]))]);
        let findings = check(&Tree::of(&[(DOCUMENT, TABLE)]), &only_model);
        assert_eq!(findings.len(), 3);
        assert_eq!(findings[0].at, "ARCHITECTURE.md:7");
    }

    #[test]
    fn c2_an_extra_edge_is_found() {
        let found = workspace(&[("model", member(&["plan"], &[]))]);
        assert!(found[0].starts_with("model depends on plan"), "{found:?}");
        let found = workspace(&[("plan", member(&["model"], &["store"]))]);
        assert!(
            found[0].starts_with("plan is tested with store"),
            "{found:?}"
        );
        let found = workspace(&[("control", member(&["store"], &[]))]);
        assert!(
            found[0].starts_with("control depends on store"),
            "{found:?}"
        );
        let found = workspace(&[("xtask", member(&["model"], &[]))]);
        assert!(found[0].starts_with("xtask depends on model"), "{found:?}");
    }

    #[test]
    fn a_document_without_table_is_found() {
        let findings = check(&Tree::of(&[(DOCUMENT, "no table")]), &Members::new());
        assert_eq!(findings.len(), 1);
        assert_eq!(check(&Tree::of(&[]), &Members::new()).len(), 1);
    }

    #[test]
    fn edges_are_read_from_metadata() {
        let metadata = json!({"packages": [{"name": "plan", "dependencies": [
            {"name": "model", "kind": null, "path": "crates/model"},
            {"name": "store", "kind": "dev", "path": "crates/store"},
            {"name": "serde", "kind": null},
        ]}]});
        let expected = Members::from([("plan".to_owned(), member(&["model"], &["store"]))]);
        assert_eq!(members(&metadata), expected);
    }
}
