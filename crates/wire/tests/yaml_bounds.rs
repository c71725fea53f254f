//! F1: what a file costs to read is bounded, whatever stands in it. A program of its own, so that what is measured is the loader.

use std::{
    fs,
    sync::{Mutex, PoisonError},
    time::Instant,
};
use wire::yaml::{LoadOptions, load};

/// What one file may take, as a release build does it.
const LIMIT_MS: u128 = 50;
/// A build without optimisation is so much slower.
const SLOWER: u128 = if cfg!(debug_assertions) { 20 } else { 1 };
/// What one file may take of memory.
const LIMIT_KIB: u64 = 64 * 1024;
/// One measurement at a time.
static ALONE: Mutex<()> = Mutex::new(());
/// Random files, beside the known ones.
const FILES: u64 = 400;

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }
}

/// Aliases of aliases, of lists, maps or merged maps, in random shapes.
fn woven(seed: u64) -> String {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut text = "a0: &a0 {k: v}\n".to_owned();
    for n in 1..=1 + draw.below(40) {
        let width = 1 + draw.below(30);
        let older: Vec<String> = (0..width).map(|_| format!("*a{}", draw.below(n))).collect();
        let value = match draw.below(5) {
            0 => format!("{{<<: [{}]}}", older.join(", ")),
            1 => format!("{{<<: {}, k{n}: {}}}", older[0], older[width - 1]),
            2 => {
                let pairs = older.iter().enumerate().map(|(i, a)| format!("k{i}: {a}"));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
            3 => format!("\"{}\"", "x".repeat(1 << draw.below(17))),
            _ => format!("[{}]", older.join(", ")),
        };
        text.push_str(&format!("a{n}: &a{n} {value}\n"));
    }
    let keys = ["name", "tags", "properties", "inputs", "resources", "type"];
    for _ in 0..draw.below(4) {
        let key = keys[draw.below(keys.len())];
        text.push_str(&format!("{key}: *a{}\n", draw.below(3)));
    }
    text
}

/// Files that people have broken loaders with.
fn known() -> Vec<(&'static str, String)> {
    let repeated = |part: &str, bytes: usize| part.repeat(bytes / part.len());
    let laughs = (1..12).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
        let ten = vec![format!("*a{}", i - 1); 10].join(", ");
        format!("{text}a{i}: &a{i} [{ten}]\n")
    });
    let anchors = (0..60_000).fold(String::new(), |text, i| format!("{text}k{i}: &a{i} x\n"));
    let merges = (1..2_000).fold("m0: &m0 {a: b}\n".to_owned(), |text, i| {
        format!("{text}m{i}: &m{i} {{<<: *m{}}}\n", i - 1)
    });
    let mib = 1 << 20;
    vec![
        ("billion laughs", laughs),
        ("anchors", anchors),
        ("merges of merges", merges),
        ("depth of lists", repeated("[", mib - 1)),
        ("depth of maps", repeated("{a: ", mib - 4)),
        ("depth of blocks", repeated("- ", mib - 2)),
        ("depth of keys", repeated("? ", mib - 2)),
        (
            "a key of a megabyte",
            format!("{}: 1\n", repeated("k", mib - 8)),
        ),
        (
            "a quoted key",
            format!("\"{}\": 1\n", repeated("\\u0041", mib - 16)),
        ),
        ("a scalar", format!("name: {}\n", repeated("x", mib - 16))),
        (
            "a folded scalar",
            format!("name: >\n{}", repeated("  x\n", mib - 16)),
        ),
        (
            "a tag of a megabyte",
            format!("name: !{} x\n", repeated("t", mib - 16)),
        ),
        (
            "many tags",
            repeated("- !!python/object/apply:os.system [x]\n", mib - 64),
        ),
        ("many documents", repeated("---\na: b\n", mib - 16)),
        ("many directives", repeated("%YAML 1.2\n", mib - 16)),
        ("many comments", repeated("# x\n", mib - 16)),
        (
            "many keys",
            (0..80_000).map(|i| format!("k{i}: 1\n")).collect(),
        ),
        ("many same keys", repeated("k: 1\n", mib - 16)),
        (
            "a long anchor",
            format!("a: &{} x\n", repeated("a", mib - 16)),
        ),
        ("spaces", repeated(" ", mib - 1)),
        ("tabs", repeated("\t", mib - 1)),
        (
            "a huge number",
            format!("name: {}\n", repeated("9", mib - 16)),
        ),
        ("too large", repeated("# x\n", 4 * mib)),
    ]
}

/// The most memory that this process has had since it was last asked to forget, and what it has, in KiB.
fn memory() -> Option<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some((field("VmHWM:")?, field("VmRSS:")?))
}

fn measured(what: &str, text: &str) -> Result<(), String> {
    let options = LoadOptions {
        hint: None,
        overrides: Vec::new(),
        files: &|_| Err(String::new()),
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Where the kernel keeps no such count, or forgets nothing, time alone is judged.
    let forgot = fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = memory().filter(|_| forgot);
    let start = Instant::now();
    let read = load(text.as_bytes(), "f", &options);
    let took = start.elapsed().as_millis();
    let after = memory().filter(|_| forgot);
    assert!(took <= LIMIT_MS * SLOWER, "{what}: {took} ms");
    if let (Some((_, before)), Some((most, _))) = (before, after) {
        let grew = most.saturating_sub(before);
        assert!(grew <= LIMIT_KIB, "{what}: {grew} KiB");
    }
    read.map(drop).map_err(|refused| refused.to_string())
}

#[test]
fn f1_a_file_costs_little_whatever_stands_in_it() {
    for (what, text) in known() {
        assert!(measured(what, &text).is_err(), "{what} was taken");
    }
    for seed in 1..=FILES {
        drop(measured(&format!("seed {seed}"), &woven(seed)));
    }
}

#[test]
fn f1_a_key_stands_once_however_it_is_written() {
    let good = "name: abc\ntype: amlcompute\ntags: {a: b, c: d}\n";
    assert_eq!(measured("as it should be", good), Ok(()));
    for twice in [
        "name: abc\ntype: amlcompute\nname: abd\n",
        "name: abc\ntype: amlcompute\n\"name\": abc\n",
        "name: abc\ntype: amlcompute\n'name': a\n",
        "name: abc\ntype: amlcompute\n? name\n: a\n",
        "name: abc\ntype: amlcompute\n\"n\\u0061me\": a\n",
        "name: abc\ntype: amlcompute\n!!str name: abc\n",
        "name: abc\ntype: amlcompute\ntags: {a: b, a: c}\n",
        "name: abc\ntype: amlcompute\ntags: {a: b, \"a\": b}\n",
    ] {
        let refused = measured(twice, twice).expect_err(twice);
        assert!(refused.contains("twice"), "{twice}: {refused}");
    }
}
