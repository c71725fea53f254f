//! Files of instance types: one object, several documents, an `InstanceTypeList` or a `List`.

use model::instance_type::{FaultKind, InstanceType, Rule, TypeFault, is_label_key, key_message};
use serde_json::Value as Json;
use std::collections::BTreeMap;

use super::{
    API_VERSION, KIND, LIST_KIND,
    check::{self, Seen},
    scalar,
    status::Refused,
};
use crate::{
    names::{did_you_mean, shown},
    yaml::{
        Diagnostic,
        report::{At, Report, Source},
        tree::{self, Entry, Malformed, Node, Value},
    },
};

/// One instance type of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The object as `kubectl` would send it.
    pub object: Json,
    /// What it says.
    pub instance_type: InstanceType,
    /// Where it begins, from 1.
    pub line: u32,
}

/// Reads a file: the types in their order, or everything that is wrong with it.
pub fn read(text: &str, file_name: &str) -> Result<Vec<Item>, Vec<Diagnostic>> {
    let files = |_: &str| Err(String::new());
    let report = Report::new(&files);
    let source = report.source(Source::File {
        name: file_name.to_owned(),
        text: text.to_owned(),
    });
    let mut reader = Reader {
        report: &report,
        text,
        items: Vec::new(),
        lines: BTreeMap::new(),
        objects: 0,
    };
    match tree::parse_all(text, source) {
        Ok(documents) => documents.iter().for_each(|root| reader.document(root)),
        Err(Malformed { at, message, hint }) => report.error_with(at, "", message, hint),
    }
    let start = At {
        source,
        line: 1,
        column: 1,
    };
    if reader.objects == 0 && !report.failed() {
        report.error(start, "", "the file has no instance type");
    }
    let items = reader.items;
    match report.failed() {
        false => Ok(items),
        true => Err(report.take_errors()),
    }
}

struct Reader<'r> {
    report: &'r Report<'r>,
    text: &'r str,
    items: Vec<Item>,
    /// The line of each name.
    lines: BTreeMap<String, u32>,
    objects: usize,
}

impl Reader<'_> {
    /// One document: an object, or a list of them.
    fn document(&mut self, root: &Node) {
        self.objects += 1;
        let Some(kind) = self.kind_of(root, &[KIND, LIST_KIND, "List"], None) else {
            return;
        };
        if kind == KIND {
            return self.object(root, scalar::json(root));
        }
        let items = match root.get("items").map(|entry| &entry.node) {
            Some(Node {
                value: Value::List(items),
                ..
            }) if !items.is_empty() => items,
            Some(node) => {
                return self
                    .report
                    .error(node.at, "items", "items is a list of instance types");
            }
            None => {
                return self
                    .report
                    .error(root.at, "items", format!("{kind} needs items"));
            }
        };
        self.only(root, &["apiVersion", "kind", "items", "metadata"]);
        for item in items {
            let mut object = scalar::json(item);
            // An item of a list of types need not say what it is.
            let implied = (kind == LIST_KIND).then_some((API_VERSION, KIND));
            if let (Some((version, kind)), Some(map)) = (implied, object.as_object_mut()) {
                let rest = std::mem::take(map);
                map.insert("apiVersion".into(), version.into());
                map.insert("kind".into(), kind.into());
                map.extend(rest);
            }
            if self.kind_of(item, &[KIND], implied).is_some() {
                self.object(item, object);
            }
        }
    }

    /// The kind of a node that says one of these, with the version that goes with it.
    fn kind_of<'k>(
        &self,
        node: &Node,
        known: &[&'k str],
        implied: Option<(&str, &'k str)>,
    ) -> Option<&'k str> {
        if !matches!(node.value, Value::Map(_)) {
            self.report.error(node.at, "", "an instance type is a map");
            return None;
        }
        let word = |key: &str| {
            node.get(key)
                .map(|entry| (entry.node.at, entry.node.text().unwrap_or_default()))
        };
        let kind = match word("kind") {
            None => match implied {
                Some((_, kind)) => kind,
                None => {
                    let hint = format!("write kind: {KIND}");
                    self.report
                        .error_hint(node.at, "kind", "kind is missing", hint);
                    return None;
                }
            },
            Some((at, written)) => match known.iter().find(|known| **known == written) {
                Some(kind) => kind,
                None => {
                    let near = did_you_mean(written, known.iter().copied());
                    self.report.error_with(
                        at,
                        "kind",
                        format!("kind `{}` is not {}", shown(written), known.join(", ")),
                        near.map(|near| format!("did you mean {near}")),
                    );
                    return None;
                }
            },
        };
        let wanted = if kind == "List" { "v1" } else { API_VERSION };
        match word("apiVersion") {
            Some((_, version)) if version == wanted => Some(kind),
            None if implied.is_some() => Some(kind),
            found => {
                let (at, message) = match found {
                    Some((at, version)) => (
                        at,
                        format!("apiVersion `{}` is not {wanted}", shown(version)),
                    ),
                    None => (node.at, "apiVersion is missing".to_owned()),
                };
                let hint = format!("write apiVersion: {wanted}");
                self.report.error_hint(at, "apiVersion", message, hint);
                None
            }
        }
    }

    fn only(&self, root: &Node, known: &[&str]) {
        let Value::Map(entries) = &root.value else {
            return;
        };
        for entry in entries {
            if !known.contains(&entry.key.as_str()) {
                let near = did_you_mean(&entry.key, known.iter().copied());
                self.report.error_with(
                    entry.at,
                    &entry.key,
                    format!("`{}` is not a key of a list", shown(&entry.key)),
                    near.map(|near| format!("did you mean {near}")),
                );
            }
        }
    }

    /// One object whose kind is right.
    fn object(&mut self, node: &Node, object: Json) {
        self.switches(node);
        let seen = match check::look(&object) {
            Ok(seen) => seen,
            Err(refused) => {
                let at = node.get("metadata").map_or(node.at, |entry| entry.at);
                return self.report.error(at, "metadata", in_words(&refused));
            }
        };
        self.tell(node, &seen);
        let Ok(instance_type) = seen.instance_type else {
            return;
        };
        let line = node.at.line;
        match self.lines.get(instance_type.name()) {
            Some(first) => {
                let at = place(node, "metadata.name").1;
                let message = format!(
                    "the instance type `{}` is given twice, first in line {first}",
                    instance_type.name()
                );
                self.report.error_hint(
                    at,
                    "metadata.name",
                    message,
                    "a name is unique in its cluster",
                );
            }
            None => {
                self.lines.insert(instance_type.name().into(), line);
                self.items.push(Item {
                    object: seen.object,
                    instance_type,
                    line,
                });
            }
        }
    }

    /// Says all that was seen, each at its place.
    fn tell(&self, node: &Node, seen: &Seen) {
        for (problem, path) in seen.unknown.iter().zip(&seen.unknown_paths) {
            let (found, at) = place(node, path);
            let at = found.map_or(at, |entry| entry.at);
            let message = format!("{} is not known", shown(path));
            self.report
                .error_with(at, path, message, problem.hint.clone());
        }
        for cause in seen.metadata.iter().chain(&seen.shape) {
            let (found, at) = place(node, &cause.field);
            let message = match cause.kind {
                FaultKind::Required => format!("{} is missing", cause.field),
                FaultKind::Type => {
                    let rule = cause.message.rsplit("must be of type ").next();
                    let (wanted, is) = rule
                        .and_then(|rule| rule.split_once(": "))
                        .unwrap_or_default();
                    let written = found.and_then(|entry| entry.node.text()).map_or_else(
                        || is.trim_matches('"').to_owned(),
                        |text| format!("`{}`", shown(text)),
                    );
                    format!(
                        "{} is {}, not {written}",
                        cause.field,
                        wanted.replace(',', " or ")
                    )
                }
                FaultKind::TooLong
                | FaultKind::TooMany
                | FaultKind::Invalid
                | FaultKind::Forbidden => {
                    format!("{}: {}", cause.field, cause.message)
                }
            };
            let hint = cause.hint.clone().map(|hint| as_written(hint, found));
            self.report.error_with(at, &cause.field, message, hint);
        }
        for fault in seen.instance_type.as_ref().err().into_iter().flatten() {
            self.fault(node, fault);
        }
    }

    fn fault(&self, node: &Node, fault: &TypeFault) {
        let path = fault.path.replace('[', ".").replace(']', "");
        let (found, at) = place(node, &path);
        if fault.rule == Rule::SelectorKey
            && let Some(Value::Map(labels)) = found.map(|entry| &entry.node.value)
        {
            for label in labels.iter().filter(|label| !is_label_key(&label.key)) {
                self.report.error(
                    label.at,
                    &path,
                    format!("{path} {}", key_message(&shown(&label.key))),
                );
            }
            return;
        }
        let message = match (fault.rule.kind(), &fault.value) {
            (FaultKind::Required, _) => format!("{path} is missing"),
            (FaultKind::Forbidden, _) => format!("{path} is not allowed: {}", fault.message),
            (FaultKind::TooLong, _) => format!("{path} {}", fault.message),
            (_, Some(value)) => format!("{path} is {value}: {}", fault.message),
            (_, None) => fault.message.to_string(),
        };
        self.report.error(at, &path, message);
    }

    /// Keys that `kubectl` would turn into `true` or `false` are refused, since the label would be another one.
    fn switches(&self, node: &Node) {
        let Value::Map(entries) = &node.value else {
            return;
        };
        for entry in entries {
            if let Some(switch) = scalar::switch(&entry.key)
                && !self.in_quotes(entry.at)
            {
                let message = format!("the key `{}` is read as `{switch}`", shown(&entry.key));
                let hint = format!("write it in quotes: \"{}\"", entry.key);
                self.report.error_hint(entry.at, &entry.key, message, hint);
            }
            self.switches(&entry.node);
        }
    }

    fn in_quotes(&self, at: At) -> bool {
        let index = |n: u32| usize::try_from(n).unwrap_or(usize::MAX).saturating_sub(1);
        let line = self.text.split('\n').nth(index(at.line));
        let c = line.and_then(|line| line.chars().nth(index(at.column)));
        matches!(c, Some('"' | '\''))
    }
}

/// The message of a refusal that has no field of its own.
fn in_words(refused: &Refused) -> String {
    let text = refused.server_status()["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    match text.split_once("ObjectMeta.") {
        Some((_, field)) => {
            let (key, wanted) = field.split_once(" of type ").unwrap_or((field, "string"));
            format!("metadata.{key} is of type {wanted}")
        }
        None => "metadata is a map".into(),
    }
}

/// A hint with the characters of the file: `kubectl` turns `1.10` into `1.1`.
fn as_written(hint: String, found: Option<&Entry>) -> String {
    match (
        hint.split_once(": "),
        found.and_then(|entry| entry.node.text()),
    ) {
        (Some((words, _)), Some(text)) => format!("{words}: \"{text}\""),
        _ => hint,
    }
}

/// The entry of a path, and its place; for a field that is not there, the place of the map that lacks it. Keys may have
/// dots, so the longest key that fits is taken.
fn place<'n>(node: &'n Node, path: &str) -> (Option<&'n Entry>, At) {
    let Value::Map(entries) = &node.value else {
        return (None, node.at);
    };
    let fits = |entry: &&Entry| {
        path.strip_prefix(entry.key.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let Some(entry) = entries
        .iter()
        .filter(fits)
        .max_by_key(|entry| entry.key.len())
    else {
        return (None, node.at);
    };
    match path[entry.key.len()..].strip_prefix('.') {
        None => (Some(entry), entry.node.at),
        Some(rest) => match place(&entry.node, rest) {
            (None, at) if at == entry.node.at => (None, entry.at),
            found => found,
        },
    }
}
