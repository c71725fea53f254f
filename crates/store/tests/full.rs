//! S4 on a disk that is really full: a small tmpfs, where the user may mount one, if need be in a namespace of its own.
//! Elsewhere the test says that it did nothing; the points of failure (`failpoints.rs`) show the same without a mount.

mod disk;

use disk::Disk;
use model::{BlobPath, Declared, DocKey, Document, Event, Kind, Time, Workspace};
use port::{Append, BlobError, Blobs, Series, Store, StoreError};
use std::{fs, sync::Arc};
use store::{DataFolder, Folder, Reserve, Sqlite};

fn event(generation: u64) -> Event {
    Event::Declared {
        document: Document {
            key: DocKey::new(
                &Workspace::new("s", "g", "w"),
                Kind::Model,
                format!("m/{}", generation % 50),
            ),
            generation,
            json: "x".repeat(3_000).into(),
            created: Time(1),
            modified: Time(generation),
            by: "me".into(),
        },
        declared: Declared::Other,
    }
}

fn append(store: &Sqlite, after: u64) -> Result<u64, StoreError> {
    Store::append(
        store,
        &Append {
            after,
            events: &[event(after + 1)],
            spans: &[],
            copies: &[],
        },
    )
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that does nothing must say so")]
fn a_full_disk_refuses_and_recovers_without_a_restart() {
    let Some(disk) = Disk::of(12 << 20) else {
        if !disk::plays_in_a_namespace("a_full_disk_refuses_and_recovers_without_a_restart") {
            eprintln!("skipped: this user may mount a tmpfs nowhere");
        }
        return;
    };
    let folder = DataFolder::open(&disk.path().join("data")).unwrap();
    let store = Sqlite::open(&folder).unwrap();
    let blobs = Folder::open(&folder).unwrap();
    let reserve = Reserve::new(folder.path(), 1 << 20);
    let (blob, segment) = (
        BlobPath::new("data/a").unwrap(),
        BlobPath::new("system/rows").unwrap(),
    );
    let rows: Arc<[u8]> = vec![b'r'; 50_000].into();
    let mut seq = append(&store, 0).unwrap();
    blobs.put(&blob, b"first").unwrap();
    blobs.append(&segment, std::slice::from_ref(&rows)).unwrap();

    for round in 0..3 {
        reserve.check().unwrap();
        disk.leave(512 << 10);
        reserve.check().unwrap_err();
        seq = append(&store, seq).expect("what runs is recorded in the reserve");
        disk.fill();
        let short = reserve.check().unwrap_err().to_string();
        assert!(short.contains("kept in reserve"), "{short}");

        // The WAL has room of its own until it must grow.
        let refused = loop {
            match append(&store, seq) {
                Ok(next) => seq = next,
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
        let refused = blobs.put(&blob, &vec![b'x'; 300_000]).map(drop);
        assert!(
            matches!(refused, Err(BlobError::Full(_))) || is_full(&refused),
            "{refused:?}"
        );
        let refused = blobs
            .append(&segment, std::slice::from_ref(&rows))
            .map(drop);
        assert!(matches!(refused, Err(BlobError::Full(_))), "{refused:?}");

        // Reads go on, and show what was acknowledged.
        assert_eq!(store.load().unwrap().seq, seq);
        let before = if round == 0 { "first" } else { "again" };
        assert_eq!(blobs.read(&blob, 10).unwrap(), before.as_bytes());

        disk.free();
        reserve.check().unwrap();
        for _ in 0..20 {
            seq = append(&store, seq).unwrap();
        }
        store.checkpoint(seq, b"world").unwrap();
        blobs.put(&blob, b"again").unwrap();
        let at = blobs.append(&segment, std::slice::from_ref(&rows)).unwrap();
        let mut read = vec![0; rows.len()];
        assert_eq!(blobs.read_at(&segment, at, &mut read).unwrap(), rows.len());
        assert_eq!(read, rows[..]);
        Series::append(&store, "s", &[(Time(1), "x".into())]).unwrap();
    }
    let left = fs::read_dir(folder.path().join("blobs/.tmp"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "refused blobs leave nothing behind");
    drop((store, blobs, folder));
    let folder = DataFolder::open(&disk.path().join("data")).unwrap();
    let store = Sqlite::open(&folder).unwrap();
    assert_eq!(store.load().unwrap().seq, seq);
    drop((store, folder));
}

/// `put` writes through `io::Write`, whose error keeps its kind.
fn is_full(refused: &Result<(), BlobError>) -> bool {
    matches!(refused, Err(BlobError::Io(e)) if e.kind() == std::io::ErrorKind::StorageFull)
}
