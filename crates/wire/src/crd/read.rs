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
        Diagnostic, Place,
        report::{At, Report, Source},
        text,
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
    let mut items = Vec::new();
    let mut lines = BTreeMap::new();
    each(text, file_name, |reader, node, object| {
        let Some(item) = reader.object(node, object) else {
            return;
        };
        let name = item.instance_type.name();
        match lines.get(name) {
            Some(first) => reader.twice(node, name, *first),
            None => {
                lines.insert(name.to_owned(), item.line);
                items.push(item);
            }
        }
    })?;
    Ok(items)
}

/// The same from the bytes of a file: UTF-8 with or without a byte order mark, of at most a mebibyte.
pub fn read_bytes(bytes: &[u8], file_name: &str) -> Result<Vec<Item>, Vec<Diagnostic>> {
    let no = match text::decode(bytes) {
        Ok(text) => return read(text, file_name),
        Err(no) => no,
    };
    let place = Place::File {
        file: file_name.to_owned(),
        line: no.line,
        column: no.column,
        text: String::new(),
    };
    Err(vec![Diagnostic {
        place,
        path: String::new(),
        message: no.message,
        hint: no.hint,
    }])
}

/// The objects of a file as `kubectl` sends them, before anybody has looked at what they say.
pub fn objects(text: &str, file_name: &str) -> Result<Vec<Json>, Vec<Diagnostic>> {
    let mut objects = Vec::new();
    each(text, file_name, |_, _, object| objects.push(object))?;
    Ok(objects)
}

/// Calls `take` with each object of a file whose kind is right.
fn each(
    text: &str,
    file_name: &str,
    mut take: impl FnMut(&Reader<'_>, &Node, Json),
) -> Result<(), Vec<Diagnostic>> {
    let files = |_: &str| Err(String::new());
    let report = Report::new(&files);
    let source = report.source(Source::File {
        name: file_name.to_owned(),
        text: text.to_owned(),
    });
    let reader = Reader {
        report: &report,
        text,
    };
    let mut found = false;
    match tree::parse_all(text, source) {
        Ok(documents) => {
            for root in &documents {
                found = true;
                reader.document(root, &mut |node, object| take(&reader, node, object));
            }
        }
        Err(Malformed { at, message, hint }) => report.error_with(at, "", message, hint),
    }
    let start = At {
        source,
        line: 1,
        column: 1,
    };
    if !found && !report.failed() {
        report.error(start, "", "the file has no instance type");
    }
    if report.failed() {
        return Err(report.take_errors());
    }
    Ok(())
}

struct Reader<'r> {
    report: &'r Report<'r>,
    text: &'r str,
}

impl Reader<'_> {
    /// One document: an object, or a list of them.
    fn document(&self, root: &Node, take: &mut dyn FnMut(&Node, Json)) {
        let Some(kind) = self.kind_of(root, &[KIND, LIST_KIND, "List"], None) else {
            return;
        };
        if kind == KIND {
            return take(root, self.json(root));
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
            let mut object = self.json(item);
            // An item of a list of types need not say what it is.
            let implied = (kind == LIST_KIND).then_some((API_VERSION, KIND));
            if let (Some((version, kind)), Some(map)) = (implied, object.as_object_mut()) {
                let rest = std::mem::take(map);
                map.insert("apiVersion".into(), version.into());
                map.insert("kind".into(), kind.into());
                map.extend(rest);
            }
            if self.kind_of(item, &[KIND], implied).is_some() {
                take(item, object);
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

    /// One object whose kind is right; what is wrong with it is said.
    fn object(&self, node: &Node, object: Json) -> Option<Item> {
        self.switches(node);
        let seen = match check::look(&object) {
            Ok(seen) => seen,
            Err(refused) => {
                let (path, message) = in_words(&refused);
                self.report.error(place(node, &path).1, &path, message);
                return None;
            }
        };
        self.tell(node, &seen);
        Some(Item {
            object: seen.object,
            instance_type: seen.instance_type.ok()?,
            line: node.at.line,
        })
    }

    /// A name is unique in its cluster; of two, `kubectl` would keep the second and say nothing.
    fn twice(&self, node: &Node, name: &str, first: u32) {
        let at = place(node, "metadata.name").1;
        let message = format!("the instance type `{name}` is given twice, first in line {first}");
        let hint = "a name is unique in its cluster";
        self.report.error_hint(at, "metadata.name", message, hint);
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
                    let written = match found.map(|entry| &entry.node.value) {
                        Some(Value::Text { text, .. }) => format!("`{}`", shown(text)),
                        Some(Value::List(_)) => "a list".to_owned(),
                        Some(Value::Map(_)) => "a map".to_owned(),
                        Some(Value::Null) | None => is.trim_matches('"').to_owned(),
                    };
                    format!(
                        "{} is {}, not {written}",
                        cause.field,
                        type_in_words(wanted)
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
            (FaultKind::TooMany, Some(size)) => format!("{path} has {size}, {}", fault.message),
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

    fn json(&self, node: &Node) -> Json {
        scalar::json(node, &|at| self.in_quotes(at))
    }

    fn in_quotes(&self, at: At) -> bool {
        scalar::in_quotes(self.text, at)
    }
}

/// The field and the message of metadata that cannot be read.
fn in_words(refused: &Refused) -> (String, String) {
    let status = refused.server_status();
    let text = status["message"].as_str().unwrap_or_default();
    match text.split_once("ObjectMeta.") {
        Some((_, field)) => {
            let (key, wanted) = field.split_once(" of type ").unwrap_or((field, "string"));
            let wanted = match wanted {
                "string" if matches!(key, "labels" | "annotations") => "a map of texts",
                "string" => "a text",
                _ => "a map of texts",
            };
            let path = format!("metadata.{key}");
            (path.clone(), format!("{path} is {wanted}"))
        }
        None => ("metadata".into(), "metadata is a map".into()),
    }
}

/// The type of a schema in the words of a file.
fn type_in_words(wanted: &str) -> &'static str {
    match wanted {
        "integer,string" => "a whole number or a text",
        "object" => "a map",
        _ => "a text",
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

/// The entry of a path, and its place; for a field that is not there, the key of the map that lacks it.
fn place<'n>(node: &'n Node, path: &str) -> (Option<&'n Entry>, At) {
    match find(node, path) {
        Found::Entry(entry) => (Some(entry), entry.node.at),
        Found::Lacking(at) => (None, at.unwrap_or(node.at)),
    }
}

enum Found<'n> {
    Entry(&'n Entry),
    /// The key of the innermost map on the way, unless that is the node itself.
    Lacking(Option<At>),
}

/// Keys may have dots, so the longest key that fits is taken.
fn find<'n>(node: &'n Node, path: &str) -> Found<'n> {
    let Value::Map(entries) = &node.value else {
        return Found::Lacking(None);
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
        return Found::Lacking(None);
    };
    match path[entry.key.len()..].strip_prefix('.') {
        None => Found::Entry(entry),
        Some(rest) => match find(&entry.node, rest) {
            Found::Lacking(None) => Found::Lacking(Some(entry.at)),
            found => found,
        },
    }
}
