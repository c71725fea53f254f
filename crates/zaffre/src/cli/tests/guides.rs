//! The commands that README and guides show are commands: each line of a code block that begins with `zaffre` is parsed.

use super::{Cli, repository};
use clap::Parser;
use std::fs;

/// Fewer would say that the lines are not found.
const LEAST: usize = 60;

/// Words as a shell makes them: quotes keep blanks, a comment and what follows an operator are left away.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    let (mut word, mut quote, mut open) = (String::new(), None, false);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            (c, Some(_)) => word.push(c),
            ('"' | '\'', None) => (quote, open) = (Some(c), true),
            ('#', None) if word.is_empty() && !open => break,
            ('|' | '&' | ';' | '>', None) => break,
            (' ', None) => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (c, None) => word.push(c),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

#[test]
fn every_command_of_the_guides_is_one() {
    let mut files = vec![
        repository().join("README.md"),
        repository().join("README.ja.md"),
    ];
    let guides = fs::read_dir(repository().join("docs/guide")).unwrap();
    files.extend(guides.map(|entry| entry.unwrap().path()));
    files.sort();
    let (mut wrong, mut looked) = (vec![], 0);
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        for (index, line) in text.lines().enumerate() {
            let shown = line.strip_prefix("    ").unwrap_or_default();
            // `eval "$(zaffre env)"` runs what stands in the brackets.
            let inner = shown
                .split_once("$(")
                .and_then(|(_, rest)| rest.split_once(')'));
            let shown = inner.map_or(shown, |(inner, _)| inner);
            if !shown.starts_with("zaffre ") {
                continue;
            }
            looked += 1;
            if let Err(error) = Cli::try_parse_from(words(shown)) {
                let said = error.to_string();
                let said = said.lines().next().unwrap_or_default();
                wrong.push(format!("{}:{}: {shown}: {said}", file.display(), index + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(looked >= LEAST, "only {looked} commands were found");
}
