//! A map of the file, read key by key. Every key that is asked for becomes a known key; `done` reports the rest.
//!
//! F1 a key that is never asked for is an error with the nearest known key, so nothing in a file is silently ignored;
//! F2 every value that applies, written or defaulted, goes into the effective document in the file's own spelling.

use super::{
    report::{At, Report},
    scalar::{self, NotWhole},
    tree::{Entry, Node, Value},
};
use crate::names::{NameError, did_you_mean, shown};
use serde_json::{Map, Value as Json};
use std::{cell::RefCell, ops::RangeInclusive};

/// The map of one section of a file.
pub(super) struct Fields<'r> {
    pub report: &'r Report<'r>,
    /// What a message calls this section: `a batch deployment`, `settings`.
    what: String,
    /// Path of the section, empty for the file itself.
    path: String,
    /// Where the section begins.
    pub at: At,
    entries: &'r [Entry],
    asked: RefCell<Vec<&'static str>>,
    effective: RefCell<Map<String, Json>>,
}

/// A scalar of the file with its place.
#[derive(Clone, Copy)]
pub(super) struct Text<'r> {
    pub text: &'r str,
    pub plain: bool,
    pub at: At,
}

/// A word of the file and the word of the document that it stands for.
pub(super) type Choice = (&'static str, &'static str);

impl<'r> Fields<'r> {
    /// The file itself. The caller has made sure that it is a map.
    pub fn root(report: &'r Report<'r>, root: &'r Node, what: &str) -> Self {
        let entries: &[Entry] = match &root.value {
            Value::Map(entries) => entries,
            _ => &[],
        };
        Self::new(report, what.to_owned(), String::new(), root.at, entries)
    }

    fn new(
        report: &'r Report<'r>,
        what: String,
        path: String,
        at: At,
        entries: &'r [Entry],
    ) -> Self {
        Fields {
            report,
            what,
            path,
            at,
            entries,
            asked: RefCell::default(),
            effective: RefCell::default(),
        }
    }

    /// The full path of a key of this section.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            shown(key)
        } else {
            format!("{}.{}", self.path, shown(key))
        }
    }

    /// The entry of a key, which becomes known. A key without a value counts as absent.
    pub fn entry(&self, key: &'static str) -> Option<&'r Entry> {
        self.known(key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        if entry.node.value == Value::Null {
            self.report.warn(
                entry.at,
                &self.path_of(key),
                format!("{} is empty and counts as absent", self.path_of(key)),
            );
            return None;
        }
        Some(entry)
    }

    /// Is the key written, with or without a value? It becomes known.
    pub fn has(&self, key: &'static str) -> bool {
        self.known(key);
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Is the key not written, or written without a value? It becomes known.
    pub fn absent(&self, key: &'static str) -> bool {
        self.known(key);
        !self
            .entries
            .iter()
            .any(|entry| entry.key == key && entry.node.value != Value::Null)
    }

    /// The place of a key that is written.
    pub fn key_at(&self, key: &str) -> At {
        self.entries
            .iter()
            .find(|entry| entry.key == key)
            .map_or(self.at, |entry| entry.at)
    }

    fn known(&self, key: &'static str) {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
    }

    /// Puts a value into the effective document (F2).
    pub fn show(&self, key: &str, value: impl Into<Json>) {
        self.effective
            .borrow_mut()
            .insert(key.to_owned(), value.into());
    }

    /// Puts a value that applies by default into the effective document, and says where the default comes from (F2).
    pub fn show_default(&self, key: &str, value: impl Into<Json>, source: &'static str) {
        let value = value.into();
        self.report
            .default(&self.path_of(key), value.clone(), source);
        self.show(key, value);
    }

    pub fn error(&self, at: At, key: &str, message: impl Into<String>) {
        self.report.error(at, &self.path_of(key), message);
    }

    /// Reports that a key of this section must be there.
    pub fn missing(&self, key: &'static str, hint: &str) {
        let path = self.path_of(key);
        let at = if self.has(key) {
            self.key_at(key)
        } else {
            self.at
        };
        self.report
            .error_hint(at, &path, format!("{} needs {key}", self.what), hint);
    }

    /// A scalar, as written.
    pub fn text(&self, key: &'static str) -> Option<Text<'r>> {
        let text = self.scalar(key, "a text")?;
        self.show(key, text.text);
        Some(text)
    }

    /// A scalar, as written, that is not empty.
    pub fn words(&self, key: &'static str) -> Option<Text<'r>> {
        let text = self.text(key)?;
        if text.text.trim().is_empty() {
            self.error(text.at, key, format!("{} is empty", self.path_of(key)));
            return None;
        }
        Some(text)
    }

    /// A name that a rule accepts.
    pub fn name(
        &self,
        key: &'static str,
        rule: impl Fn(&str) -> Result<(), NameError>,
    ) -> Option<Text<'r>> {
        let text = self.text(key)?;
        match rule(text.text) {
            Ok(()) => Some(text),
            Err(error) => {
                self.error(text.at, key, error.to_string());
                None
            }
        }
    }

    fn scalar(&self, key: &'static str, wanted: &str) -> Option<Text<'r>> {
        let entry = self.entry(key)?;
        match &entry.node.value {
            Value::Text { text, plain } => Some(Text {
                text,
                plain: *plain,
                at: entry.node.at,
            }),
            _ => {
                self.wrong(&entry.node, key, wanted);
                None
            }
        }
    }

    /// Reports that a value is not what its key wants.
    pub fn wrong(&self, node: &Node, key: &str, wanted: &str) {
        self.error(
            node.at,
            key,
            format!("{} is {wanted}, not {}", self.path_of(key), described(node)),
        );
    }

    /// A whole number in a range.
    pub fn int(&self, key: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let text = self.scalar(key, "a whole number")?;
        let path = self.path_of(key);
        let value = match scalar::whole(text.text) {
            Ok(value) if range.contains(&value) => value,
            Ok(_) | Err(NotWhole::TooLarge) => {
                let rule = match (*range.start(), *range.end()) {
                    (from, i64::MAX) => format!("at least {from}"),
                    (from, to) => format!("from {from} to {to}"),
                };
                self.error(
                    text.at,
                    key,
                    format!("{path} is a whole number {rule}, not {}", shown(text.text)),
                );
                return None;
            }
            Err(NotWhole::Octal) => {
                self.report.error_hint(
                    text.at,
                    &path,
                    format!(
                        "{path} is a whole number without leading zeros, not {}",
                        shown(text.text)
                    ),
                    "a leading zero means octal for az and decimal elsewhere",
                );
                return None;
            }
            Err(NotWhole::NotANumber) => {
                self.error(
                    text.at,
                    key,
                    format!("{path} is a whole number, not `{}`", shown(text.text)),
                );
                return None;
            }
        };
        self.show(key, value);
        Some(value)
    }

    /// A whole number in a range, or its default.
    pub fn int_or(
        &self,
        key: &'static str,
        range: RangeInclusive<i64>,
        default: i64,
        source: &'static str,
    ) -> i64 {
        match self.int(key, range) {
            Some(value) => value,
            None => {
                self.default_unless_written(key, default, source);
                default
            }
        }
    }

    /// A switch.
    pub fn switch(&self, key: &'static str) -> Option<bool> {
        let text = self.scalar(key, "true or false")?;
        match scalar::switch(text.text) {
            Some(value) => {
                self.show(key, value);
                Some(value)
            }
            None => {
                self.error(
                    text.at,
                    key,
                    format!(
                        "{} is true or false, not `{}`",
                        self.path_of(key),
                        shown(text.text)
                    ),
                );
                None
            }
        }
    }

    /// A switch, or its default.
    pub fn switch_or(&self, key: &'static str, default: bool, source: &'static str) -> bool {
        match self.switch(key) {
            Some(value) => value,
            None => {
                self.default_unless_written(key, default, source);
                default
            }
        }
    }

    /// One of some words, compared without case and joints; gives the word of the document.
    pub fn choice(&self, key: &'static str, choices: &[Choice]) -> Option<&'static str> {
        let text = self.scalar(key, "a text")?;
        match choices.iter().find(|(word, wire)| {
            scalar::same_word(text.text, word) || scalar::same_word(text.text, wire)
        }) {
            Some((word, wire)) => {
                self.show(key, *word);
                Some(wire)
            }
            None => {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                let hint = did_you_mean(text.text, words.iter().copied())
                    .map(|near| format!("did you mean {near}"));
                let path = self.path_of(key);
                let message = format!(
                    "{path} is {}, not `{}`",
                    alternatives(&words),
                    shown(text.text)
                );
                self.report.error_with(text.at, &path, message, hint);
                None
            }
        }
    }

    /// One of some words, or the default, which is not sent.
    pub fn choice_or(
        &self,
        key: &'static str,
        choices: &[Choice],
        default: &'static str,
        source: &'static str,
    ) -> Option<&'static str> {
        let found = self.choice(key, choices);
        if found.is_none() {
            self.default_unless_written(key, default, source);
        }
        found
    }

    /// Shows a default unless the key is there with a wrong value, which has been reported.
    pub fn default_unless_written(
        &self,
        key: &'static str,
        default: impl Into<Json>,
        source: &'static str,
    ) {
        let written = self
            .entries
            .iter()
            .any(|entry| entry.key == key && entry.node.value != Value::Null);
        if !written {
            self.show_default(key, default, source);
        }
    }

    /// A map of texts, kept as written: numbers and switches keep their characters. An empty value is an error, since it
    /// could mean the empty text or no entry at all.
    pub fn texts(&self, key: &'static str) -> Option<Map<String, Json>> {
        let section = self.section(key)?;
        let mut texts = Map::new();
        for Entry { key, at, node } in section.entries {
            let path = section.path_of(key);
            match &node.value {
                Value::Text { text, .. } => {
                    texts.insert(key.clone(), Json::from(text.as_str()));
                }
                Value::Null => {
                    self.report.error_hint(
                        *at,
                        &path,
                        format!("{path} has no value"),
                        "write \"\" for an empty text",
                    );
                }
                _ => section.wrong(node, key, "a text"),
            }
        }
        self.show(key, texts.clone());
        Some(texts)
    }

    /// Names of environment variables, which the system cannot represent when they are empty or hold `=`.
    pub fn variables(&self, key: &'static str) -> Option<Map<String, Json>> {
        let variables = self.texts(key)?;
        for name in variables
            .keys()
            .filter(|name| name.is_empty() || name.contains('='))
        {
            let at = self.entry(key).map_or(self.at, |entry| {
                entry.node.get(name).map_or(entry.at, |inner| inner.at)
            });
            self.error(
                at,
                key,
                format!(
                    "`{}` cannot be the name of an environment variable",
                    shown(name)
                ),
            );
        }
        Some(variables)
    }

    /// A list of texts.
    pub fn list(&self, key: &'static str) -> Option<Vec<&'r str>> {
        let entry = self.entry(key)?;
        let Value::List(items) = &entry.node.value else {
            self.wrong(&entry.node, key, "a list");
            return None;
        };
        let mut texts = Vec::new();
        for (i, item) in items.iter().enumerate() {
            match item.text() {
                Some(text) => texts.push(text),
                None => self.error(
                    item.at,
                    key,
                    format!(
                        "{}[{i}] is a text, not {}",
                        self.path_of(key),
                        described(item)
                    ),
                ),
            }
        }
        self.show(
            key,
            texts
                .iter()
                .map(|text| Json::from(*text))
                .collect::<Vec<_>>(),
        );
        Some(texts)
    }

    /// A bag that is passed on unread.
    pub fn bag(&self, key: &'static str) -> Option<Json> {
        let entry = self.entry(key)?;
        if !matches!(entry.node.value, Value::Map(_)) {
            self.wrong(&entry.node, key, "a map");
            return None;
        }
        let bag = scalar::json(&entry.node);
        self.show(key, bag.clone());
        Some(bag)
    }

    /// Shows a key as it was written, whatever its readers made of it.
    pub fn show_written(&self, key: &'static str) {
        if let Some(entry) = self.entries.iter().find(|entry| entry.key == key) {
            self.show(key, scalar::json(&entry.node));
        }
    }

    /// A section inside this one.
    pub fn section(&self, key: &'static str) -> Option<Fields<'r>> {
        let entry = self.entry(key)?;
        self.inner(&entry.node, key)
    }

    /// A section that defaults fill when it is not written: then it is empty and stands where this one does.
    pub fn section_or_empty(&self, key: &'static str) -> Fields<'r> {
        self.section(key).unwrap_or_else(|| {
            Fields::new(self.report, key.to_owned(), self.path_of(key), self.at, &[])
        })
    }

    /// Another node of this section, read as a section.
    pub fn inner(&self, node: &'r Node, key: &str) -> Option<Fields<'r>> {
        let path = self.path_of(key);
        match &node.value {
            Value::Map(entries) => Some(Fields::new(
                self.report,
                path.clone(),
                path,
                node.at,
                entries,
            )),
            _ => {
                self.wrong(node, key, "a map");
                None
            }
        }
    }

    /// The entries of this section, for sections whose keys are the user's own. `all_known` must follow.
    pub fn entries(&self) -> &'r [Entry] {
        self.entries
    }

    /// Keys that the server writes: accepted in a file that was saved from `show`, and not read.
    pub fn read_only(&self, keys: &[&'static str]) {
        for key in keys {
            self.known(key);
            if let Some(entry) = self.entries.iter().find(|entry| entry.key == *key) {
                let path = self.path_of(key);
                self.report.warn(
                    entry.at,
                    &path,
                    format!("{path} is written by the server and is not read from a file"),
                );
            }
        }
    }

    /// Ends a section: reports every key that was never asked for (F1). `elsewhere` says where known keys of other places go.
    pub fn done(self, elsewhere: &[(&str, &str)]) -> Map<String, Json> {
        let asked = self.asked.borrow();
        for entry in self
            .entries
            .iter()
            .filter(|entry| !asked.contains(&entry.key.as_str()))
        {
            let hint = elsewhere
                .iter()
                .find(|(key, _)| *key == entry.key)
                .map(|(_, hint)| (*hint).to_owned())
                .or_else(|| {
                    did_you_mean(&entry.key, asked.iter().copied())
                        .map(|near| format!("did you mean {}", self.path_of(near)))
                });
            let message = format!("`{}` is not a key of {}", shown(&entry.key), self.what);
            self.report
                .error_with(entry.at, &self.path_of(&entry.key), message, hint);
        }
        self.effective.take()
    }

    /// Ends a section whose keys are the user's own.
    pub fn all_known(self) -> Map<String, Json> {
        self.effective.take()
    }
}

/// `a, b or c`
fn alternatives(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [init @ .., last] => format!("{} or {last}", init.join(", ")),
    }
}

/// A node as a message names it.
pub(super) fn described(node: &Node) -> String {
    match &node.value {
        Value::Null => "empty".into(),
        Value::Text { text, .. } => format!("the text `{}`", shown(text)),
        Value::List(_) => "a list".into(),
        Value::Map(_) => "a map".into(),
    }
}
