//! What is asked: a sequence of requests that a seed chooses, and the map from names to bytes that follows from the answers.

use super::talk::{Reply, encoded};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use md5::{Digest, Md5};
use std::collections::BTreeMap;

/// Names below the folder of a sequence: the same in two cases, below each other's folder, with what URLs and XML escape.
const NAMES: [&str; 9] = [
    "a",
    "A",
    "b/c.bin",
    "b/d/e",
    "b.c",
    "学 習",
    "x&y<z>",
    "p%q+r",
    "it's (#1)?",
];
const TEXTS: [&str; 4] = ["v", "two words", "a=b;c", "0"];

#[derive(Clone, Copy, Debug)]
pub enum Tag {
    Any,
    /// The one that the name has.
    Last,
    /// One that it had before.
    Older,
    Never,
}

#[derive(Clone, Copy, Debug)]
pub enum Cond {
    Match(Tag),
    NoneMatch(Tag),
    /// If-Modified-Since: long ago, or in a time to come.
    Since(bool),
    NotSince(bool),
}

impl Cond {
    pub fn header(self) -> &'static str {
        match self {
            Cond::Match(_) => "if-match",
            Cond::NoneMatch(_) => "if-none-match",
            Cond::Since(_) => "if-modified-since",
            Cond::NotSince(_) => "if-unmodified-since",
        }
    }
}

type Pairs = Vec<(String, String)>;

/// How a signature is spoilt.
#[derive(Clone, Copy, Debug)]
pub enum Spoilt {
    /// One of its letters is another.
    Letter(usize),
    /// It claims one more right.
    Rights,
    /// It ends later than what was signed.
    Later,
    /// It is not there.
    Gone,
}

/// What one request is.
#[derive(Clone, Debug)]
pub enum Op {
    Put {
        name: String,
        bytes: Vec<u8>,
        headers: Pairs,
        conditions: Vec<Cond>,
    },
    Block {
        name: String,
        id: String,
        bytes: Vec<u8>,
        headers: Pairs,
    },
    Commit {
        name: String,
        ids: Vec<(&'static str, String)>,
        headers: Pairs,
        conditions: Vec<Cond>,
    },
    Blocks {
        name: String,
    },
    Read {
        name: String,
        head: bool,
        comp: &'static str,
        headers: Pairs,
        conditions: Vec<Cond>,
    },
    Set {
        name: String,
        comp: &'static str,
        headers: Pairs,
        conditions: Vec<Cond>,
    },
    Delete {
        name: String,
        conditions: Vec<Cond>,
    },
    Copy {
        name: String,
        from: String,
        headers: Pairs,
        conditions: Vec<Cond>,
    },
    List {
        query: String,
        follow: bool,
    },
    /// A request that is right but for its signature.
    Unsigned {
        name: String,
        method: &'static str,
        spoilt: Spoilt,
    },
}

impl Op {
    /// What kind of request it is, to count by.
    pub fn word(&self) -> String {
        let text = format!("{self:?}");
        let word = text.split(' ').next().unwrap().to_owned();
        match self {
            Op::Read { head, comp, .. } => format!("{word} head={head} comp={comp}"),
            Op::Set { comp, .. } => format!("{word} {comp}"),
            _ => word,
        }
    }

    pub fn lists(&self) -> bool {
        matches!(self, Op::List { .. } | Op::Blocks { .. })
    }

    pub fn name(&self) -> Option<&str> {
        match self {
            Op::Put { name, .. }
            | Op::Block { name, .. }
            | Op::Commit { name, .. }
            | Op::Blocks { name }
            | Op::Read { name, .. }
            | Op::Set { name, .. }
            | Op::Delete { name, .. }
            | Op::Copy { name, .. }
            | Op::Unsigned { name, .. } => Some(name),
            Op::List { .. } => None,
        }
    }

    pub fn method(&self) -> &'static str {
        match self {
            Op::Put { .. } | Op::Block { .. } | Op::Commit { .. } => "PUT",
            Op::Set { .. } | Op::Copy { .. } => "PUT",
            Op::Read { head: true, .. } => "HEAD",
            Op::Read { .. } | Op::Blocks { .. } | Op::List { .. } => "GET",
            Op::Delete { .. } => "DELETE",
            Op::Unsigned { method, .. } => method,
        }
    }

    pub fn headers(&self) -> Pairs {
        match self {
            Op::Put { headers, .. } => {
                let mut all = headers.clone();
                all.push(("x-ms-blob-type".into(), "BlockBlob".into()));
                all
            }
            Op::Block { headers, .. }
            | Op::Commit { headers, .. }
            | Op::Read { headers, .. }
            | Op::Set { headers, .. }
            | Op::Copy { headers, .. } => headers.clone(),
            Op::Unsigned { method: "PUT", .. } => {
                vec![("x-ms-blob-type".into(), "BlockBlob".into())]
            }
            Op::Blocks { .. } | Op::Delete { .. } | Op::List { .. } | Op::Unsigned { .. } => {
                vec![]
            }
        }
    }

    pub fn conditions(&self) -> &[Cond] {
        match self {
            Op::Put { conditions, .. }
            | Op::Commit { conditions, .. }
            | Op::Read { conditions, .. }
            | Op::Set { conditions, .. }
            | Op::Delete { conditions, .. }
            | Op::Copy { conditions, .. } => conditions,
            Op::Block { .. } | Op::Blocks { .. } | Op::List { .. } | Op::Unsigned { .. } => &[],
        }
    }

    pub fn query(&self) -> String {
        match self {
            Op::Block { id, .. } => format!("comp=block&blockid={}", encoded(id)),
            Op::Commit { .. } => "comp=blocklist".into(),
            Op::Blocks { .. } => "comp=blocklist&blocklisttype=uncommitted".into(),
            Op::Read { comp: "", .. } => String::new(),
            Op::Read { comp, .. } | Op::Set { comp, .. } => format!("comp={comp}"),
            Op::List { query, .. } => format!("restype=container&comp=list{query}"),
            Op::Put { .. } | Op::Delete { .. } | Op::Copy { .. } | Op::Unsigned { .. } => {
                String::new()
            }
        }
    }

    pub fn body(&self) -> Vec<u8> {
        match self {
            Op::Put { bytes, .. } | Op::Block { bytes, .. } => bytes.clone(),
            Op::Commit { ids, .. } => {
                let list: String = ids
                    .iter()
                    .map(|(kind, id)| format!("<{kind}>{id}</{kind}>"))
                    .collect();
                format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{list}</BlockList>")
                    .into_bytes()
            }
            _ => vec![],
        }
    }

    /// The signature that goes with it.
    pub fn signature(&self, whole: &str) -> String {
        let Op::Unsigned { spoilt, .. } = self else {
            return whole.to_owned();
        };
        let part = |name: &str, change: &dyn Fn(&str) -> String| -> String {
            let parts = whole.split('&').map(|part| match part.split_once('=') {
                Some((found, value)) if found == name => format!("{name}={}", change(value)),
                _ => part.to_owned(),
            });
            parts.collect::<Vec<_>>().join("&")
        };
        match spoilt {
            Spoilt::Letter(n) => part("sig", &|value| {
                // Not in an escape, nor the last letter, some of whose bits say nothing.
                let plain: Vec<usize> = value
                    .char_indices()
                    .filter(|(at, c)| {
                        let escaped = value[at.saturating_sub(2)..*at].contains('%');
                        c.is_ascii_alphanumeric() && !escaped && at + 8 < value.len()
                    })
                    .map(|(at, _)| at)
                    .collect();
                let at = plain[n % plain.len()];
                let other = if &value[at..=at] == "A" { "B" } else { "A" };
                format!("{}{other}{}", &value[..at], &value[at + 1..])
            }),
            Spoilt::Rights => part("sp", &|value| format!("{value}t")),
            Spoilt::Later => part("se", &|_| encoded("2199-01-01T00:00:00Z")),
            Spoilt::Gone => part("sig", &|_| String::new()),
        }
    }
}

/// A sequence.
pub struct Play {
    seed: u64,
    state: u64,
    map: BTreeMap<String, Vec<u8>>,
    /// Blocks that wait to be named.
    blocks: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// The list that each name was made of.
    lists: BTreeMap<String, Vec<String>>,
    listing: Option<String>,
    history: Vec<(Op, u16)>,
}

impl Play {
    pub fn new(seed: u64) -> Play {
        Play {
            seed,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            map: BTreeMap::new(),
            blocks: BTreeMap::new(),
            lists: BTreeMap::new(),
            listing: None,
            history: Vec::new(),
        }
    }

    /// Splitmix64.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.draw() % n as u64).unwrap()
    }
    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        let at = self.below(all.len());
        all[at].clone()
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn folder(&self) -> String {
        format!("s{}/", self.seed)
    }
    fn name(&mut self) -> String {
        // Few of them, so that most requests find something.
        let at = usize::try_from(self.seed).unwrap() * 2 + self.below(4);
        format!("{}{}", self.folder(), NAMES[at % NAMES.len()])
    }
    fn bytes(&mut self) -> Vec<u8> {
        let len = self.below(40);
        (0..len)
            .map(|_| u8::try_from(self.draw() % 256).unwrap())
            .collect()
    }

    fn conditions(&mut self) -> Vec<Cond> {
        if !self.one_in(3) {
            return vec![];
        }
        let tag = self.of(&[Tag::Any, Tag::Last, Tag::Last, Tag::Older, Tag::Never]);
        let past = self.one_in(2);
        let all = [
            Cond::Match(tag),
            Cond::NoneMatch(tag),
            Cond::NoneMatch(Tag::Any),
            Cond::Since(past),
            Cond::NotSince(past),
        ];
        let first = self.of(&all);
        // Now and then one of a tag and one of a time.
        let second = self.of(&all[3..]);
        let two = self.one_in(4) && matches!(first, Cond::Match(_) | Cond::NoneMatch(_));
        if two {
            vec![first, second]
        } else {
            vec![first]
        }
    }

    fn meta(&mut self) -> Pairs {
        let mut all = Vec::new();
        // In lower case: how a client writes the name of a header is not told here, and over HTTP/2 nowhere.
        for name in ["m1", "m2", "m_3"] {
            if self.one_in(3) {
                let text = self.of(&TEXTS);
                all.push((format!("x-ms-meta-{name}"), text.to_owned()));
            }
        }
        all
    }

    fn settings(&mut self) -> Pairs {
        let mut all = Vec::new();
        for (name, value) in [
            ("content-type", "text/x-own"),
            ("content-encoding", "own"),
            ("content-language", "ja"),
            ("cache-control", "no-store"),
            ("content-disposition", "attachment"),
        ] {
            if self.one_in(3) {
                all.push((format!("x-ms-blob-{name}"), value.to_owned()));
            }
        }
        all
    }

    /// What goes with the bytes of a body: their digest, or a wrong one.
    fn digest(&mut self, bytes: &[u8]) -> Pairs {
        match self.below(8) {
            0 => vec![("content-md5".into(), STANDARD.encode(Md5::digest(bytes)))],
            1 => vec![("content-md5".into(), STANDARD.encode(Md5::digest(b"other")))],
            _ => vec![],
        }
    }

    fn id(&mut self) -> String {
        let n = self.below(4);
        STANDARD.encode(format!("block-{n}"))
    }

    fn range(&mut self) -> Pairs {
        if !self.one_in(2) {
            return vec![];
        }
        let (from, to) = (self.below(45), self.below(60));
        let text = match self.below(4) {
            0 => format!("bytes={from}-"),
            _ => format!("bytes={from}-{}", from + to),
        };
        let name = self.of(&["range", "x-ms-range"]);
        vec![(name.to_owned(), text)]
    }

    pub fn next(&mut self) -> Op {
        let name = self.name();
        match self.below(20) {
            0..4 => {
                let bytes = self.bytes();
                let mut headers = self.meta();
                headers.extend(self.settings());
                headers.extend(self.digest(&bytes));
                let conditions = self.conditions();
                Op::Put {
                    name,
                    bytes,
                    headers,
                    conditions,
                }
            }
            4..7 => {
                let (id, bytes) = (self.id(), self.bytes());
                // An empty block is refused by one and all, below.
                let headers = self.digest(&bytes);
                Op::Block {
                    name,
                    id,
                    bytes,
                    headers,
                }
            }
            7..9 => {
                let waiting: Vec<String> = self
                    .blocks
                    .get(&name)
                    .map(|all| all.keys().cloned().collect())
                    .unwrap_or_default();
                let mut ids = Vec::new();
                let mut count = self.below(4);
                // As a client does that had no answer.
                let before = self.lists.get(&name).cloned().unwrap_or_default();
                if self.one_in(4) && !before.is_empty() {
                    count = 0;
                    ids.extend(before.into_iter().map(|id| ("Latest", id)));
                }
                for _ in 0..count {
                    let kind = self.of(&["Latest", "Latest", "Uncommitted"]);
                    let id = if waiting.is_empty() || self.one_in(8) {
                        self.id()
                    } else {
                        self.of(&waiting)
                    };
                    ids.push((kind, id));
                }
                let mut headers = self.meta();
                headers.extend(self.settings());
                let conditions = self.conditions();
                Op::Commit {
                    name,
                    ids,
                    headers,
                    conditions,
                }
            }
            9 => Op::Blocks { name },
            10..13 => {
                let head = self.one_in(3);
                let comp = if self.one_in(5) { "metadata" } else { "" };
                let headers = if head || !comp.is_empty() {
                    vec![]
                } else {
                    self.range()
                };
                let conditions = self.conditions();
                Op::Read {
                    name,
                    head,
                    comp,
                    headers,
                    conditions,
                }
            }
            13 | 14 => {
                let comp = self.of(&["metadata", "properties"]);
                let headers = if comp == "metadata" {
                    self.meta()
                } else {
                    // What is not said goes. Type and digest are: the peer forgets that a blob has either.
                    let mut all = self.settings();
                    all.retain(|(name, _)| name != "x-ms-blob-content-type");
                    all.push(("x-ms-blob-content-type".into(), "text/x-set".into()));
                    if let Some(bytes) = self.map.get(&name) {
                        let digest = STANDARD.encode(Md5::digest(bytes));
                        all.push(("x-ms-blob-content-md5".into(), digest));
                    }
                    all
                };
                let conditions = self.conditions();
                Op::Set {
                    name,
                    comp,
                    headers,
                    conditions,
                }
            }
            15 => {
                let conditions = self.conditions();
                Op::Delete { name, conditions }
            }
            16 => {
                let from = self.name();
                let headers = self.meta();
                let conditions = self.conditions();
                Op::Copy {
                    name,
                    from,
                    headers,
                    conditions,
                }
            }
            17 => {
                let method = self.of(&["GET", "PUT", "DELETE"]);
                let letter = self.below(40);
                let spoilt = self.of(&[
                    Spoilt::Letter(letter),
                    Spoilt::Rights,
                    Spoilt::Later,
                    Spoilt::Gone,
                ]);
                Op::Unsigned {
                    name,
                    method,
                    spoilt,
                }
            }
            _ => self.list(),
        }
    }

    fn list(&mut self) -> Op {
        // A listing of many pages is read on now and then.
        if let Some(query) = self.listing.clone().filter(|_| !self.one_in(3)) {
            return Op::List {
                query,
                follow: true,
            };
        }
        let end = self.of(&["", "", "b", "b/", "a", "x&", "zz", "b/d/e"]);
        let mut query = format!("&prefix={}", encoded(&format!("{}{end}", self.folder())));
        if self.one_in(2) {
            query.push_str("&delimiter=%2F");
        }
        if self.one_in(2) {
            let count = self.below(4);
            query.push_str(&format!("&maxresults={count}"));
        }
        if self.one_in(3) {
            query.push_str("&include=metadata");
        }
        Op::List {
            query,
            follow: false,
        }
    }

    /// What was asked about the same name before.
    pub fn told(&self, op: &Op) -> Vec<String> {
        let same = |other: &Op| op.lists() && op.name().is_none() || other.name() == op.name();
        self.history
            .iter()
            .filter(|(other, _)| same(other))
            .map(|(other, status)| format!("{status} {other:?}"))
            .collect()
    }

    /// Learns from an answer; it must follow from the map, and the map must follow from it.
    pub fn took(&mut self, op: &Op, reply: &Reply) -> Result<(), String> {
        self.history.push((op.clone(), reply.status));
        let good = reply.status < 300;
        let fresh = op
            .conditions()
            .iter()
            .any(|c| matches!(c, Cond::NoneMatch(Tag::Any)));
        if good && fresh && op.name().is_some_and(|name| self.map.contains_key(name)) {
            return Err("it must not have been there".into());
        }
        match op {
            // Whether blocks outlive a blob that comes in one piece is not promised; their bytes are.
            Op::Put { name, bytes, .. } if good => {
                self.lists.remove(name);
                self.map.insert(name.clone(), bytes.clone());
            }
            Op::Block {
                name, id, bytes, ..
            } if good => {
                let waiting = self.blocks.entry(name.clone()).or_default();
                waiting.insert(id.clone(), bytes.clone());
            }
            Op::Commit { name, ids, .. } if good => {
                let waiting = self.blocks.get(name).cloned().unwrap_or_default();
                let list: Vec<String> = ids.iter().map(|(_, id)| id.clone()).collect();
                let again = self.lists.get(name) == Some(&list) && !list.is_empty();
                if again && !list.iter().any(|id| waiting.contains_key(id)) {
                    return Ok(());
                }
                let mut whole = Vec::new();
                for id in &list {
                    let block = waiting.get(id);
                    whole.extend(block.ok_or("it took a block that was not sent")?);
                }
                self.blocks.remove(name);
                self.lists.insert(name.clone(), list);
                self.map.insert(name.clone(), whole);
            }
            Op::Read {
                name,
                head,
                comp: "",
                ..
            } if good => {
                let whole = self.map.get(name).ok_or("it read what is not there")?;
                if *head {
                    let length = reply.header("content-length");
                    if length != Some(&whole.len().to_string()) {
                        return Err(format!("{} bytes are there", whole.len()));
                    }
                    return Ok(());
                }
                let part = match reply.header("content-range") {
                    None => &whole[..],
                    Some(range) => {
                        let (range, all) = range
                            .trim_start_matches("bytes ")
                            .split_once('/')
                            .ok_or("a range of nothing")?;
                        let (from, to) = range.split_once('-').ok_or("no range")?;
                        let (from, to): (usize, usize) =
                            (from.parse().unwrap(), to.parse().unwrap());
                        if all != whole.len().to_string() {
                            return Err(format!("{} bytes are there", whole.len()));
                        }
                        &whole[from..=to]
                    }
                };
                if reply.body != part {
                    return Err(format!("{part:?} is there"));
                }
            }
            Op::Delete { name, .. } if good => {
                self.lists.remove(name);
                self.map
                    .remove(name)
                    .ok_or("it deleted what is not there")?;
            }
            Op::Copy { name, from, .. } if good => {
                let bytes = self.map.get(from).ok_or("it copied what is not there")?;
                let bytes = bytes.clone();
                self.lists.remove(name);
                self.map.insert(name.clone(), bytes);
            }
            Op::Unsigned { .. } if good => return Err("it took a spoilt signature".into()),
            Op::List { query, .. } if good => {
                self.listing = reply.next().map(|_| query.clone());
                let plain = format!("&prefix={}", encoded(&self.folder()));
                if *query == plain {
                    let names: usize = self.map.keys().filter(|name| !reply.lists(name)).count();
                    if names > 0 {
                        return Err(format!("{names} names are missing"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Reply {
    fn lists(&self, name: &str) -> bool {
        let escaped = name
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let text = String::from_utf8_lossy(&self.body).into_owned();
        text.contains(&format!("<Name>{escaped}</Name>"))
    }
}
