//! What no file of the project may contain: where somebody's machine keeps things, and the names of
//! package registries (which registry is used is the choice of whoever builds).

use super::Finding;
use super::tree::Tree;

/// Folders of people and of build machines. Each is written in two parts, since this file is checked too.
const MACHINE_FOLDERS: [&str; 4] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
];
/// Homes that are examples and nobody's: Azure's own name for its user, and the reader.
const EXAMPLE_HOMES: [&str; 2] = ["azureuser/", "you/"];

const REGISTRY_HOSTS: [&str; 8] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("anaconda", ".org"),
    concat!("anaconda", ".com"),
    concat!("proxy.golang", ".org"),
];

/// Files that a tool writes with the public registry's name in them.
const WRITTEN_BY_TOOLS: [&str; 1] = ["Cargo.lock"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| names(line, folder)) {
                let message = format!("names a folder of one machine, {folder}");
                findings.push(Finding::line(&file.path, index + 1, message));
            }
            if WRITTEN_BY_TOOLS.contains(&file.path.as_str()) {
                continue;
            }
            if let Some(host) = REGISTRY_HOSTS.iter().find(|host| line.contains(*host)) {
                let message = format!("names a package registry, {host}");
                findings.push(Finding::line(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Whether the line has a path that starts with this folder, not one that has it further down.
fn names(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let starts = before.is_none_or(|c| !c.is_alphanumeric() && !"_.-/}>)$*~".contains(c));
        let rest = &line[at + folder.len()..];
        starts && !EXAMPLE_HOMES.iter().any(|home| rest.starts_with(home))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(line: &str) -> usize {
        check(&Tree::of(&[("docs/a.md", line)])).len()
    }

    #[test]
    fn a_path_of_a_machine_is_found() {
        let folder = MACHINE_FOLDERS[0];
        assert_eq!(findings(&format!("see {folder}main")), 1);
        assert_eq!(findings(&format!("\"{folder}main\"")), 1);
        assert_eq!(findings(&format!("x={}ada/x", MACHINE_FOLDERS[2])), 1);
        assert_eq!(findings(&format!("{}azureuser/x", MACHINE_FOLDERS[2])), 0);
        assert_eq!(findings(&format!("target{folder}x")), 0);
        assert_eq!(findings(&format!("{{root}}{folder}x")), 0);
    }

    #[test]
    fn a_registry_is_found_but_not_in_the_lock_file() {
        let line = format!("https://{}/simple", REGISTRY_HOSTS[1]);
        assert_eq!(findings(&line), 1);
        let lock = Tree::of(&[("Cargo.lock", line.as_str())]);
        assert_eq!(check(&lock).len(), 0);
    }
}
