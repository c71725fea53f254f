//! T2: whatever happens to the WAL or the database file, the store opens with a prefix of what was appended, or refuses
//! with a named error; what it gives out is what was written (S2).

use model::{Declared, DocKey, Document, Event, Kind, Time, Workspace};
use port::{Append, Page, Store, StoreError};
use std::{fs, path::Path};
use store::{DataFolder, Sqlite};
use tempfile::TempDir;

/// Where syncs cost nothing, if there is such a place.
fn quick_dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        TempDir::new_in(memory).unwrap()
    } else {
        TempDir::new().unwrap()
    }
}

const EVENTS: u64 = 30;

fn event(i: u64) -> Event {
    let workspace = Workspace::new("s", "g", "w");
    Event::Declared {
        document: Document {
            key: DocKey::new(&workspace, Kind::Model, format!("Model/{:02}", i % 20)),
            generation: i,
            json: format!("{{\"text\":\"{}\"}}", "学".repeat(100)).into(),
            created: Time(i % 20),
            modified: Time(i),
            by: "me".into(),
        },
        declared: Declared::Other,
    }
}

/// The files of a store of `EVENTS` events, one per append: all of it in the WAL, or half of it in the database file.
fn written(checkpoint: bool) -> (Vec<u8>, Vec<u8>) {
    let dir = quick_dir();
    let store = Sqlite::open(&DataFolder::open(dir.path()).unwrap()).unwrap();
    for i in 1..=EVENTS {
        store
            .append(&Append {
                after: i - 1,
                events: &[event(i)],
                spans: &[],
                copies: &[],
            })
            .unwrap();
    }
    drop(store);
    if checkpoint {
        let db = rusqlite::Connection::open(dir.path().join("zaffre.db")).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
    }
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap_or_default();
    (read("zaffre.db"), read("zaffre.db-wal"))
}

/// Opens a store of these files; how many events it gave, or the error it named.
fn opened(dir: &Path, db: &[u8], wal: &[u8]) -> Result<u64, String> {
    for name in ["zaffre.db-wal", "zaffre.db-shm"] {
        let _ = fs::remove_file(dir.join(name));
    }
    fs::write(dir.join("zaffre.db"), db).unwrap();
    if !wal.is_empty() {
        fs::write(dir.join("zaffre.db-wal"), wal).unwrap();
    }
    let named = |error: StoreError| error.to_string();
    let store = Sqlite::open(&DataFolder::open(dir).unwrap()).map_err(named)?;
    let loaded = store.load().map_err(named)?;
    for (i, found) in (1..).zip(&loaded.tail) {
        assert_eq!(*found, event(i), "event {i} is not what was written");
    }
    let page = Page {
        workspace: Workspace::new("s", "g", "w"),
        kind: Kind::Model,
        parent: None,
        newest_first: false,
        after: None,
        limit: 100,
    };
    for found in store.page(&page).map_err(named)?.0 {
        let Event::Declared { document, .. } = event(found.generation) else {
            unreachable!()
        };
        assert_eq!(found, document, "a document is not what was written");
        assert!(found.generation <= loaded.seq, "a document of no event");
    }
    assert_eq!(loaded.seq, loaded.tail.len() as u64);
    Ok(loaded.seq)
}

/// A small generator, so that a failure is found again.
fn draws(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |n| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % n as u64).unwrap()
    }
}

#[test]
fn any_prefix_of_the_wal_is_a_prefix_of_the_log() {
    let (db, wal) = written(false);
    let dir = quick_dir();
    assert_eq!(opened(dir.path(), &db, &wal), Ok(EVENTS));
    let mut draw = draws(0x5eed);
    let mut cuts: Vec<usize> = (0..wal.len()).step_by(2_060).collect(); // half a frame and some
    cuts.extend((0..200).map(|_| draw(wal.len())));
    cuts.sort_unstable();
    let mut before = 0;
    for cut in cuts {
        let events = opened(dir.path(), &db, &wal[..cut]);
        let events =
            events.unwrap_or_else(|e| panic!("cut at {cut}: a kill leaves such a file: {e}"));
        assert!(events >= before, "cut at {cut}: more of the WAL held less");
        before = events;
    }
    assert!(before >= EVENTS - 1);
}

#[test]
fn a_damaged_wal_gives_a_prefix_or_a_named_error() {
    let (db, wal) = written(false);
    let dir = quick_dir();
    let mut draw = draws(0xf11b);
    let (mut losses, mut refused) = (0, 0);
    for round in 0..500 {
        let mut damaged = wal.clone();
        // A bit of the header, a bit anywhere, or a page that never reached the disk.
        match round % 5 {
            0 => damaged[draw(32)] ^= 1 << draw(8),
            1 => {
                let page = draw(damaged.len() / 4096) * 4096;
                damaged[page..page + 4096].fill(0);
            }
            _ => {
                let at = draw(damaged.len());
                damaged[at] ^= 1 << draw(8);
            }
        }
        match opened(dir.path(), &db, &damaged) {
            // Only the last transactions may look like a torn write.
            Ok(events) => {
                assert!(events >= EVENTS - 2, "round {round}: {events} events");
                losses += u32::from(events < EVENTS);
            }
            Err(named) => {
                assert!(
                    named.contains("acknowledged transactions follow it"),
                    "{named}"
                );
                refused += 1;
            }
        }
    }
    assert!(
        refused > 300,
        "the damage was never seen: {refused}, {losses} lost"
    );
}

#[test]
fn a_torn_end_is_dropped_and_never_counted_again() {
    let (db, wal) = written(false);
    let dir = quick_dir();
    // The end of the last append is there, its beginning is not: what a power cut may leave.
    let frame = 24 + 4096;
    let frames = (wal.len() - 32) / frame;
    let at = |n: usize| 32 + n * frame;
    let commits = |n: usize| wal[at(n) + 4..at(n) + 8] != [0; 4];
    let last: Vec<usize> = (0..frames).filter(|n| commits(*n)).collect();
    let before = last[last.len() - 2];
    let mut torn = wal.clone();
    torn[at(before + 1)..at(before + 2)].fill(0);
    assert_eq!(opened(dir.path(), &db, &torn), Ok(EVENTS - 1));
    // Opening gave the WAL a new generation: nothing of the torn end is left to be taken for something acknowledged.
    assert!(
        fs::metadata(dir.path().join("zaffre.db-wal"))
            .unwrap()
            .len()
            < wal.len() as u64
    );
    let store = Sqlite::open(&DataFolder::open(dir.path()).unwrap()).unwrap();
    assert_eq!(store.load().unwrap().seq, EVENTS - 1);
    let again = Append {
        after: EVENTS - 1,
        events: &[event(EVENTS)],
        spans: &[],
        copies: &[],
    };
    assert_eq!(store.append(&again).unwrap(), EVENTS);
    drop(store);
    let store = Sqlite::open(&DataFolder::open(dir.path()).unwrap()).unwrap();
    assert_eq!(store.load().unwrap().seq, EVENTS);
}

#[test]
fn a_damaged_database_gives_what_was_written_or_a_named_error() {
    let (db, wal) = written(true);
    assert!(wal.is_empty());
    let dir = quick_dir();
    let mut draw = draws(0xdb);
    let mut errors = Vec::new();
    for _ in 0..500 {
        let mut damaged = db.clone();
        let at = draw(damaged.len());
        damaged[at] ^= 1 << draw(8);
        if let Err(named) = opened(dir.path(), &damaged, &[]) {
            errors.push(named);
        }
    }
    assert!(errors.len() > 50, "the damage was never seen");
    let names_event = |e: &String| e.contains("damaged at event") && e.contains("checksum");
    assert!(errors.iter().any(names_event), "{errors:?}");
}

#[test]
fn a_newer_store_is_refused_and_a_foreign_file_is_not_touched() {
    let dir = quick_dir();
    let open = || Sqlite::open(&DataFolder::open(dir.path()).unwrap()).map(drop);
    open().unwrap();
    let file = dir.path().join("zaffre.db");
    let change = |sql: &str| {
        rusqlite::Connection::open(&file)
            .unwrap()
            .execute_batch(sql)
    };
    change("PRAGMA user_version = 99").unwrap();
    match open() {
        Err(StoreError::TooNew { found: 99, known }) => assert!(known < 99),
        other => panic!("{other:?}"),
    }
    change("PRAGMA user_version = 1; PRAGMA application_id = 7").unwrap();
    let refused = open().unwrap_err().to_string();
    assert!(refused.contains("another program"), "{refused}");
}
