//! Text → a tree of nodes that keep their place and their text as it was written.
//!
//! Y1 a scalar is never converted here: `1.10`, `010` and `yes` stay the characters that were written;
//! Y2 a key is given once per map, and an error about it names both places;
//! Y3 what a file costs is bounded before it is spent: bytes, nodes and text after aliases, depth.

use super::{report::At, text::MAX_FILE_BYTES};
use serde_saphyr::granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, Tag};
use std::collections::HashMap;

/// Nodes that a file may have once its aliases are followed: a hundred times a large honest file, nothing for a bomb.
const MAX_NODES: usize = 10_000;
/// Bytes of text that a file may have once its aliases are followed.
const MAX_TEXT: usize = 4 * MAX_FILE_BYTES;
/// Documents of a file that may have several.
const MAX_DOCUMENTS: usize = 1_000;
/// Levels of maps and lists inside each other; the deepest field of Azure's schemas has six.
const MAX_DEPTH: usize = 32;

/// One node of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub at: At,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Nothing after the colon, `~` or `null`.
    Null,
    /// A scalar as written (Y1); `plain` when it stood without quotes.
    Text {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub at: At,
    pub node: Node,
}

/// Why a text is no tree.
#[derive(Debug, PartialEq)]
pub(crate) struct Malformed {
    pub at: At,
    pub message: String,
    pub hint: Option<String>,
}

impl Malformed {
    fn new(at: At, message: impl Into<String>) -> Self {
        Malformed {
            at,
            message: message.into(),
            hint: None,
        }
    }
    fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }
}

impl Node {
    /// The entry of a key, when this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The text, when this is a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    fn size(&self) -> Size {
        let mut size = Size {
            nodes: 1,
            text: 0,
            depth: 1,
        };
        let mut add = |child: &Node, key: usize| {
            let inner = child.size();
            size.nodes += inner.nodes;
            size.text += inner.text + key;
            size.depth = size.depth.max(inner.depth + 1);
        };
        match &self.value {
            Value::Null => {}
            Value::Text { text, .. } => size.text = text.len(),
            Value::List(items) => items.iter().for_each(|item| add(item, 0)),
            Value::Map(entries) => entries
                .iter()
                .for_each(|entry| add(&entry.node, entry.key.len())),
        }
        size
    }
}

struct Size {
    nodes: usize,
    text: usize,
    depth: usize,
}

/// A map or a list that is not closed yet.
struct Open {
    at: At,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        key: Option<(String, At)>,
        merges: Vec<Node>,
    },
}

struct Builder {
    source: u16,
    /// Documents that the text may have.
    documents: usize,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    text: usize,
    roots: Vec<Node>,
}

/// The tree of a text with exactly one document. `source` becomes part of every place.
pub(crate) fn parse(text: &str, source: u16) -> Result<Node, Malformed> {
    let mut builder = Builder::new(source, 1);
    let mut documents = builder.read(text)?;
    match documents.pop() {
        None
        | Some(Node {
            value: Value::Null, ..
        }) => Err(Malformed::new(place(source, 1, 0), "the file is empty")),
        Some(root) => Ok(root),
    }
}

/// The trees of a text with several documents; those without content are left out.
pub(crate) fn parse_all(text: &str, source: u16) -> Result<Vec<Node>, Malformed> {
    let mut documents = Builder::new(source, MAX_DOCUMENTS).read(text)?;
    documents.retain(|root| root.value != Value::Null);
    Ok(documents)
}

impl Builder {
    fn new(source: u16, documents: usize) -> Self {
        Builder {
            source,
            documents,
            open: Vec::new(),
            anchors: HashMap::new(),
            nodes: 0,
            text: 0,
            roots: Vec::new(),
        }
    }

    /// Reads all documents; one more than allowed is an error where it begins.
    fn read(&mut self, text: &str) -> Result<Vec<Node>, Malformed> {
        let mut documents = 0;
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| syntax(&error, self.source))?;
            match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    self.anchors.clear();
                    if documents > self.documents {
                        return Err(too_many(self.at(&span), self.documents));
                    }
                }
                Event::Scalar(text, style, anchor, tag) => {
                    let at = self.at(&span);
                    self.scalar(at, text.into_owned(), style, anchor, tag.as_deref())?;
                }
                Event::SequenceStart(_, anchor, tag) => {
                    self.begin(&span, anchor, tag.as_deref(), Items::List(Vec::new()))?;
                }
                Event::MappingStart(_, anchor, tag) => {
                    let items = Items::Map {
                        entries: Vec::new(),
                        key: None,
                        merges: Vec::new(),
                    };
                    self.begin(&span, anchor, tag.as_deref(), items)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.end()?,
                Event::Alias(anchor) => self.alias(&span, anchor)?,
                _ => {}
            }
        }
        Ok(std::mem::take(&mut self.roots))
    }

    fn at(&self, span: &Span) -> At {
        place(self.source, span.start.line(), span.start.col())
    }

    fn scalar(
        &mut self,
        at: At,
        text: String,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
    ) -> Result<(), Malformed> {
        let mut plain = style == ScalarStyle::Plain;
        match tag.map(|tag| (tag, tag.core_suffix())) {
            None => {}
            Some((_, Some("str"))) => plain = false,
            Some((_, Some("int" | "float" | "bool" | "null"))) => plain = true,
            Some((tag, _)) => return Err(foreign_tag(at, tag)),
        }
        let null = plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL");
        let value = if null && !self.key_is_next() {
            Value::Null
        } else {
            Value::Text { text, plain }
        };
        self.put(Node { at, value }, anchor)
    }

    fn begin(
        &mut self,
        span: &Span,
        anchor: usize,
        tag: Option<&Tag>,
        items: Items,
    ) -> Result<(), Malformed> {
        let at = self.at(span);
        if let Some(tag) = tag
            && !matches!(
                (tag.core_suffix(), &items),
                (Some("map"), Items::Map { .. }) | (Some("seq"), Items::List(_))
            )
        {
            return Err(foreign_tag(at, tag));
        }
        if self.key_is_next() {
            return Err(Malformed::new(at, "a key is a text, not a map or a list"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.open.push(Open { at, anchor, items });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Malformed> {
        let Some(Open { at, anchor, items }) = self.open.pop() else {
            return Ok(());
        };
        let value = match items {
            Items::List(items) => Value::List(items),
            Items::Map {
                entries, merges, ..
            } => Value::Map(merged(entries, merges)?),
        };
        self.put(Node { at, value }, anchor)
    }

    fn alias(&mut self, span: &Span, anchor: usize) -> Result<(), Malformed> {
        let at = self.at(span);
        let Some(found) = self.anchors.get(&anchor) else {
            return Err(Malformed::new(
                at,
                "an alias points at the node that holds it",
            ));
        };
        let size = found.size();
        if self.open.len() + size.depth > MAX_DEPTH {
            return Err(too_deep(at));
        }
        // the budget is asked before the copy is made (Y3)
        self.spend(at, size.nodes, size.text)?;
        let value = self.anchors[&anchor].value.clone();
        let node = Node { at, value };
        self.attach(node)
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), Malformed> {
        self.spend(node.at, 1, node.text().map_or(0, str::len))?;
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.attach(node)
    }

    fn spend(&mut self, at: At, nodes: usize, text: usize) -> Result<(), Malformed> {
        self.nodes += nodes;
        self.text += text;
        if self.nodes > MAX_NODES {
            return Err(Malformed::new(
                at,
                format!("the file has more than {MAX_NODES} nodes once its aliases are followed"),
            ));
        }
        if self.text > MAX_TEXT {
            return Err(Malformed::new(
                at,
                format!("the file has more than {MAX_TEXT} bytes once its aliases are followed"),
            ));
        }
        Ok(())
    }

    fn key_is_next(&self) -> bool {
        matches!(
            self.open.last(),
            Some(Open {
                items: Items::Map { key: None, .. },
                ..
            })
        )
    }

    fn attach(&mut self, node: Node) -> Result<(), Malformed> {
        let Some(open) = self.open.last_mut() else {
            self.roots.push(node);
            return Ok(());
        };
        match &mut open.items {
            Items::List(items) => items.push(node),
            Items::Map {
                entries,
                key,
                merges,
            } => match key.take() {
                None => match node.value {
                    Value::Text { text, .. } => *key = Some((text, node.at)),
                    _ => {
                        return Err(Malformed::new(
                            node.at,
                            "a key is a text, not a map or a list",
                        ));
                    }
                },
                Some((key, _)) if key == "<<" => merges.push(node),
                Some((key, at)) => {
                    if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                        let message = format!(
                            "the key `{}` is given twice, first in line {}",
                            crate::names::shown(&key),
                            first.at.line
                        );
                        return Err(Malformed::new(at, message).hint("keep one of the two"));
                    }
                    entries.push(Entry { key, at, node });
                }
            },
        }
        Ok(())
    }
}

/// The entries of `<<: *other` behind those of the map itself, which win.
fn merged(mut entries: Vec<Entry>, merges: Vec<Node>) -> Result<Vec<Entry>, Malformed> {
    let sources = merges.into_iter().flat_map(|node| match node.value {
        Value::List(items) => items,
        value => vec![Node { at: node.at, value }],
    });
    for source in sources {
        let Value::Map(more) = source.value else {
            return Err(Malformed::new(
                source.at,
                "<< merges a map or a list of maps",
            ));
        };
        for entry in more {
            if entries.iter().all(|present| present.key != entry.key) {
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}

fn place(source: u16, line: usize, column: usize) -> At {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    At {
        source,
        line: small(line.max(1)),
        column: small(column.saturating_add(1)),
    }
}

fn too_many(at: At, allowed: usize) -> Malformed {
    match allowed {
        1 => Malformed::new(at, "a second document begins here; a file holds one"),
        n => Malformed::new(at, format!("a file holds at most {n} documents")),
    }
}

fn too_deep(at: At) -> Malformed {
    Malformed::new(
        at,
        format!("maps and lists are nested more than {MAX_DEPTH} deep"),
    )
}

fn foreign_tag(at: At, tag: &Tag) -> Malformed {
    Malformed::new(
        at,
        format!(
            "the tag `{}` is not supported",
            crate::names::shown(&tag.original())
        ),
    )
}

/// A scanner error in plain words, with a hint where the usual slip is known.
fn syntax(error: &ScanError, source: u16) -> Malformed {
    let at = place(source, error.marker().line(), error.marker().col());
    let say = |message: &str| Malformed::new(at, message);
    match error.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation => say("a tab cannot indent YAML").hint("indent with spaces"),
        ErrorKind::MappingValueNotAllowed => say("a colon is not allowed here").hint(
            "a text that holds `: ` stands in quotes; keys of one map begin in the same column",
        ),
        ErrorKind::InvalidIndentation | ErrorKind::ExpectedBlockMappingKey => {
            say("the indentation fits neither this map nor the one around it")
                .hint("keys of one map begin in the same column")
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => {
            say("a key is followed by a colon and a space")
        }
        ErrorKind::UnclosedQuotedScalar => say("a quote is opened and never closed"),
        ErrorKind::UnclosedFlowCollection { open } => {
            say(&format!("`{open}` is opened and never closed"))
        }
        ErrorKind::UnexpectedEofFlowMapping => say("`{` is opened and never closed"),
        ErrorKind::UnexpectedEofFlowSequence => say("`[` is opened and never closed"),
        ErrorKind::UnknownAnchor => say("an alias points at an anchor that is not in this file")
            .hint("a text that begins with * stands in quotes"),
        ErrorKind::RecursionLimitExceeded => too_deep(at),
        kind => say(&format!("this is not YAML: {kind}")),
    }
}
