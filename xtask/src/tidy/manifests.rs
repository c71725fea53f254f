//! Every crate takes version, edition, licence, lints and the versions of what it uses from the workspace.

use super::Finding;
use super::tree::Tree;

/// What a crate's `[package]` inherits.
const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let parts: Vec<&str> = file.path.split('/').collect();
        if matches!(
            parts[..],
            ["crates", _, "Cargo.toml"] | ["xtask", "Cargo.toml"]
        ) {
            findings.extend(manifest(&file.path, &file.text));
        }
    }
    findings
}

fn manifest(path: &str, text: &str) -> Vec<Finding> {
    let keys = keys(text);
    let mut findings = Vec::new();
    for name in INHERITED {
        if !keys.iter().any(|key| key.inherits("package", name)) {
            let message = format!("[package] does not inherit {name}: {name}.workspace = true");
            findings.push(Finding::file(path, message));
        }
    }
    let lints =
        |key: &Key| key.section == "lints" && key.name == "workspace" && key.value == "true";
    if !keys.iter().any(lints) {
        findings.push(Finding::file(path, "[lints] workspace = true is missing"));
    }
    for key in &keys {
        if key.section.ends_with("dependencies") && !key.is_inherited() {
            let message = format!(
                "{} is not taken from the workspace's table: {0}.workspace = true",
                key.name
            );
            findings.push(Finding::line(path, key.line, message));
        }
    }
    findings
}

/// One `name = value` of a manifest. Only as much TOML as manifests use: a value is one line, or an
/// array or table that starts on it.
struct Key<'t> {
    section: &'t str,
    name: &'t str,
    value: &'t str,
    line: usize,
}

impl Key<'_> {
    /// `name.workspace = true` or `name = { workspace = true, … }`.
    fn is_inherited(&self) -> bool {
        let whole = self.name.ends_with(".workspace") && self.value == "true";
        whole || self.value.replace(' ', "").contains("workspace=true")
    }

    fn inherits(&self, section: &str, name: &str) -> bool {
        let own = self.name.strip_suffix(".workspace").unwrap_or(self.name);
        self.section == section && own == name && self.is_inherited()
    }
}

fn keys(text: &str) -> Vec<Key<'_>> {
    let mut section = "";
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = name.trim_matches(|c| c == '[' || c == ']');
        } else if let Some((name, value)) = line.split_once('=') {
            let value = value.split(" #").next().unwrap_or_default();
            keys.push(Key {
                section,
                name: name.trim(),
                value: value.trim(),
                line: index + 1,
            });
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"plan\"\nversion.workspace = true\n\
        edition = { workspace = true }\nrust-version.workspace = true\nlicense.workspace = true\n\
        publish.workspace = true\n\n[lints]\nworkspace = true\n\n[dependencies]\n\
        # a comment = 1\nmodel.workspace = true\nserde = { workspace = true, features = [\"rc\"] }\n";

    fn messages(text: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/plan/Cargo.toml", text)]);
        let findings = check(&tree).into_iter();
        findings.map(|finding| finding.message).collect()
    }

    #[test]
    fn a_manifest_that_inherits_passes() {
        assert_eq!(messages(GOOD), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_inherited_is_found() {
        let own_edition = GOOD.replace("edition = { workspace = true }", "edition = \"2021\"");
        assert!(messages(&own_edition)[0].contains("does not inherit edition"));
        let no_lints = GOOD.replace("[lints]\nworkspace = true\n", "");
        assert_eq!(messages(&no_lints), ["[lints] workspace = true is missing"]);
        let own_version = GOOD.replace("model.workspace = true", "model = { path = \"../model\" }");
        assert!(messages(&own_version)[0].starts_with("model is not taken"));
        let test_only = format!("{GOOD}[target.'cfg(unix)'.dev-dependencies]\ninsta = \"1\"\n");
        assert!(messages(&test_only)[0].starts_with("insta is not taken"));
    }
}
