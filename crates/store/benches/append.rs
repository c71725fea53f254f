//! What the store costs, beside plain SQLite with the same durability in the same run: `cargo bench -p store`.
//!
//! CPU is the number to trust on a shared machine, and the ratio is the number to keep; wall times are medians of single
//! operations. The files lie in the temporary folder (`TMPDIR` chooses the disk).

#![expect(clippy::print_stdout, reason = "a bench prints")]

use model::{
    Attempt, BatchEvent, BlobPath, Declared, DocKey, Document, Event, JobId, Kind, Ranges, TaskId,
    Time, Workspace, batch::Span,
};
use port::{Append, Blobs, Page, Store};
use rusqlite::Connection;
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use store::{DataFolder, Folder, Sqlite};

/// Nanoseconds that this thread has run.
fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|n| n.parse().ok()).unwrap_or(0)
}

struct Cost {
    /// Per operation.
    cpu_us: f64,
    wall_us: f64,
}

/// Runs `work` `n` times; `per` operations are in each.
fn measure(n: u32, per: u32, mut work: impl FnMut(u64)) -> Cost {
    let mut walls: Vec<Duration> = Vec::with_capacity(n as usize);
    let before = cpu();
    for i in 0..n {
        let begun = Instant::now();
        work(u64::from(i));
        walls.push(begun.elapsed());
    }
    let cpu = cpu() - before;
    walls.sort();
    let median = walls[walls.len() / 2].as_secs_f64() * 1e6;
    Cost {
        cpu_us: cpu as f64 / 1e3 / f64::from(n * per),
        wall_us: median / f64::from(per),
    }
}

fn report(what: &str, ours: &Cost, raw: Option<(&str, Cost)>) {
    print!(
        "{what:46} {:9.1} µs CPU {:9.1} µs wall",
        ours.cpu_us, ours.wall_us
    );
    if let Some((name, raw)) = raw {
        let (cpu, wall) = (ours.cpu_us / raw.cpu_us, ours.wall_us / raw.wall_us);
        print!("   {cpu:5.2}x CPU {wall:5.2}x wall of {name}");
        print!(" ({:.1}, {:.1})", raw.cpu_us, raw.wall_us);
    }
    println!();
}

fn workspace() -> Arc<Workspace> {
    Workspace::new("00000000-0000-0000-0000-000000000000", "default", "default")
}

fn document(i: u64) -> Document {
    Document {
        key: DocKey::new(&workspace(), Kind::Compute, format!("compute-{i:06}")),
        generation: i + 1,
        json: "x".repeat(1024).into(),
        created: Time(i),
        modified: Time(i),
        by: "somebody".into(),
    }
}

fn declared(i: u64) -> Event {
    Event::Declared {
        document: document(i),
        declared: Declared::Other,
    }
}

fn job() -> JobId {
    JobId::new(&workspace(), "run-1")
}

fn taken(i: u64) -> Event {
    let at = u32::try_from(i).expect("few");
    Event::Batch {
        run: job(),
        event: BatchEvent::Taken {
            task: TaskId {
                job: job(),
                index: 0,
                attempt: Attempt(1),
            },
            seq: i,
            done: Ranges::span(at, at + 1),
            rows: 10,
            failed_items: 0,
            short: 0,
            returned: Ranges::new(),
            discarded: 0,
            header: None,
        },
        at: Time(i),
    }
}

fn open(dir: &Path) -> (Sqlite, Folder) {
    let folder = DataFolder::open(dir).expect("a fresh folder");
    let store = Sqlite::open(&folder).expect("a fresh store");
    (store, Folder::open(&folder).expect("fresh blobs"))
}

fn raw(dir: &Path) -> Connection {
    let db = Connection::open(dir.join("raw.db")).expect("a fresh file");
    db.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
         CREATE TABLE event (seq INTEGER PRIMARY KEY, json TEXT);
         CREATE TABLE r (k TEXT PRIMARY KEY, v TEXT, etag INTEGER);",
    )
    .expect("made");
    db
}

fn upsert(db: &Connection, i: u64, text: &str) {
    db.prepare_cached("INSERT INTO r VALUES (?1, ?2, 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v, etag = etag + 1")
        .and_then(|mut s| s.execute((format!("/workspaces/w/computes/c{i}"), text)))
        .expect("written");
}

fn append(store: &Sqlite, seq: &mut u64, events: &[Event]) {
    *seq = Store::append(
        store,
        &Append {
            after: *seq,
            events,
            spans: &[],
            copies: &[],
        },
    )
    .expect("appended");
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let begun = Instant::now();
    let (store, blobs) = open(&dir.path().join("data"));
    println!(
        "a fresh store and its blobs opened in {:.1} ms",
        begun.elapsed().as_secs_f64() * 1e3
    );
    let raw = raw(dir.path());
    let mut seq = 0;

    // `cargo bench -p store -- puts pages` runs these parts only.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|w| w == part);
    if wants("appends") {
        appends(&store, &raw, &mut seq);
    }
    if wants("rows") {
        rows(&store, &blobs, &mut seq);
    }
    if wants("puts") {
        puts(&store, &raw, &mut seq);
    }
    if wants("pages") {
        pages(&store, &mut seq);
    }
    if wants("gets") {
        gets(&store, &raw, &mut seq);
    }
    if wants("blobs") {
        blobs_small(&blobs);
    }
    let size =
        |name: &str| std::fs::metadata(dir.path().join("data").join(name)).map_or(0, |m| m.len());
    println!(
        "zaffre.db {} KiB, its WAL {} KiB",
        size("zaffre.db") >> 10,
        size("zaffre.db-wal") >> 10
    );
    drop((store, blobs));
    let cost = measure(5, 1, |_| {
        let (store, _) = open(&dir.path().join("data"));
        let loaded = store.load().expect("loaded");
        assert!(loaded.tail.is_empty());
    });
    report("open and load, 100,000 documents, checkpoint", &cost, None);
}

fn appends(store: &Sqlite, raw: &Connection, seq: &mut u64) {
    let json = serde_json::to_string(&taken(1)).expect("an event is JSON");
    let insert = |i: u64| {
        raw.prepare_cached("INSERT INTO event (json) VALUES (?1)")
            .and_then(|mut s| s.execute([&json]))
            .map(|_| i)
            .expect("written");
    };
    // The first appends make the WAL grow; later ones reuse it.
    let growing = measure(200, 1, |i| append(store, seq, &[taken(i)]));
    let plain = measure(200, 1, insert);
    report(
        "append of 1 event, WAL growing",
        &growing,
        Some(("one INSERT", plain)),
    );
    measure(1_500, 1, |i| append(store, seq, &[taken(i)]));
    measure(1_500, 1, insert);
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        ours.push(measure(200, 1, |i| append(store, seq, &[taken(i)])));
        plain.push(measure(200, 1, insert));
    }
    report(
        "append of 1 event, WAL reused",
        &median(ours),
        Some(("one INSERT", median(plain))),
    );

    let ours = measure(200, 64, |i| {
        let events: Vec<Event> = (0..64).map(|j| taken(i * 64 + j)).collect();
        append(store, seq, &events);
    });
    let plain = measure(200, 64, |i| {
        raw.execute_batch("BEGIN IMMEDIATE").expect("begun");
        (0..64).for_each(|_| insert(i));
        raw.execute_batch("COMMIT").expect("committed");
    });
    report(
        "each event of an append of 64",
        &ours,
        Some(("64 INSERTs", plain)),
    );
    let begun = Instant::now();
    let events = *seq;
    store.checkpoint(*seq, b"a snapshot").expect("kept");
    println!(
        "checkpoint over {events} events: {:.1} ms",
        begun.elapsed().as_secs_f64() * 1e3
    );
}

/// What a turn does for the rows of 64 mini-batches.
fn rows(store: &Sqlite, blobs: &Folder, seq: &mut u64) {
    let segment = BlobPath::new("system/run-1/rows").expect("legal");
    let row: Arc<[u8]> = vec![b'r'; 200].into();
    let pieces = vec![row; 64];
    let cost = measure(200, 64, |i| {
        let base = Blobs::append(blobs, &segment, &pieces).expect("appended");
        let first = u32::try_from(i * 64).expect("few");
        let span = |j: u32| Span {
            index: first + j,
            offset: base + u64::from(j) * 200,
            len: 200,
            rows: 1,
            crc: 7,
        };
        let spans = vec![(job(), segment.clone(), (0..64).map(span).collect())];
        *seq = Store::append(
            store,
            &Append {
                after: *seq,
                events: &[taken(i)],
                spans: &spans,
                copies: &[],
            },
        )
        .expect("appended");
    });
    report(
        "each mini-batch of a commit of 64 (rows, spans)",
        &cost,
        None,
    );
    let mut n = 0;
    let cost = measure(1, 12_800, |_| {
        store
            .spans(&job(), &mut |_, spans| n += spans.len())
            .expect("read");
    });
    assert_eq!(n, 12_800);
    report("each span read back", &cost, None);
}

fn puts(store: &Sqlite, raw: &Connection, seq: &mut u64) {
    let text = "x".repeat(1024);
    let ours = measure(500, 1, |i| append(store, seq, &[declared(i)]));
    let plain = measure(500, 1, |i| upsert(raw, i, &text));
    report(
        "PUT of a new 1 KiB document",
        &ours,
        Some(("one upsert", plain)),
    );
    let ours = measure(500, 1, |i| append(store, seq, &[declared(i)]));
    let plain = measure(500, 1, |i| upsert(raw, i, &text));
    report(
        "PUT of a known 1 KiB document",
        &ours,
        Some(("one upsert", plain)),
    );
    let ours = measure(200, 16, |i| {
        let events: Vec<Event> = (0..16).map(|j| declared(i * 16 + j)).collect();
        append(store, seq, &events);
    });
    let plain = measure(200, 16, |i| {
        raw.execute_batch("BEGIN IMMEDIATE").expect("begun");
        (0..16).for_each(|j| upsert(raw, i * 16 + j, &text));
        raw.execute_batch("COMMIT").expect("committed");
    });
    report(
        "each of 16 PUTs in one commit",
        &ours,
        Some(("16 upserts", plain)),
    );
}

fn pages(store: &Sqlite, seq: &mut u64) {
    fill(store, seq, 10_000);
    let page = |newest_first, after: Option<String>| {
        let page = Page {
            workspace: workspace(),
            kind: Kind::Compute,
            parent: None,
            newest_first,
            after,
            limit: 100,
        };
        let (documents, next) = store.page(&page).expect("read");
        assert_eq!(documents.len(), 100);
        next
    };
    for newest_first in [false, true] {
        let first = measure(100, 1, |_| drop(page(newest_first, None)));
        let what = if newest_first {
            "newest first"
        } else {
            "by path"
        };
        report(
            &format!("first page of 100 of 10,000, {what}"),
            &first,
            None,
        );
        let mut next = None;
        let all = measure(99, 1, |_| next = page(newest_first, next.take()));
        report(&format!("each page of 100 of 10,000, {what}"), &all, None);
    }
}

fn gets(store: &Sqlite, raw: &Connection, seq: &mut u64) {
    fill(store, seq, 100_000);
    let text = "x".repeat(1024);
    for i in 0..1_000 {
        upsert(raw, i, &text);
    }
    let get = |i: u64| {
        let key = DocKey::new(&workspace(), Kind::Compute, format!("compute-{i:06}"));
        assert!(store.get(&key).expect("read").is_some());
    };
    let plain = measure(20_000, 1, |i| {
        raw.prepare_cached("SELECT v, etag FROM r WHERE k = ?1")
            .and_then(|mut s| {
                s.query_row([format!("/workspaces/w/computes/c{}", i % 1_000)], |row| {
                    row.get::<_, String>(0)
                })
            })
            .expect("read");
    });
    let ours = measure(20_000, 1, |i| get(i % 1_000));
    report(
        "GET by key, the same 1,000",
        &ours,
        Some(("SELECT of 1,000", plain)),
    );
    let ours = measure(20_000, 1, |i| get(i * 7_919 % 100_000));
    report("GET by key, any of 100,000", &ours, None);
    store.checkpoint(*seq, &vec![b's'; 1 << 20]).expect("kept");
}

fn fill(store: &Sqlite, seq: &mut u64, upto: u64) {
    let all: Vec<u64> = (0..upto).collect();
    for some in all.chunks(1_000) {
        let events: Vec<Event> = some.iter().map(|i| declared(*i)).collect();
        append(store, seq, &events);
    }
}

fn blobs_small(blobs: &Folder) {
    let name = |i: u64| BlobPath::new(&format!("bench/in/{i:06}.csv")).expect("legal");
    let ours = measure(200, 1, |i| {
        blobs.put(&name(i), &[b'x'; 1024]).expect("put");
    });
    report("put of a 1 KiB blob", &ours, None);
    let ours = measure(5_000, 1, |i| {
        let read = blobs.read(&name(i % 200), 2_000).expect("read");
        assert_eq!(read.len(), 1024);
    });
    report("read of a 1 KiB blob", &ours, None);
    let folder = blobs
        .local(&BlobPath::new("bench/many").expect("legal"))
        .expect("local");
    std::fs::create_dir_all(&folder).expect("made");
    for i in 0..100_000 {
        std::fs::write(folder.join(format!("{i:06}.csv")), "").expect("written");
    }
    let mut n = 0_u32;
    let ours = measure(3, 100_000, |_| {
        blobs
            .walk(&BlobPath::new("bench/many").expect("legal"), &mut |_| {
                n += 1
            })
            .expect("walked");
    });
    assert_eq!(n, 300_000);
    report("each path of a walk over 100,000", &ours, None);
}

fn median(mut all: Vec<Cost>) -> Cost {
    all.sort_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us));
    all.swap_remove(all.len() / 2)
}
