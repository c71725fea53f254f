//! T1 and T3 for the adapters alone: the process dies, or a call fails, at every durable step in turn, until none is left.
//! What is there afterwards is what was acknowledged, or that and the whole of the one step that was under way.
//!
//! `cargo test -p store --features failpoints --test failpoints`

use model::{
    BlobPath, Declared, DocKey, Document, Event, JobId, Kind, Time, Workspace, batch::Span,
};
use port::{
    Append, BlobError, Blobs, Page, Store, StoreError,
    memory::{MemoryBlobs, MemoryStore},
};
use std::{
    collections::BTreeMap,
    io::{self, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};
use store::{
    DataFolder, Folder, OpenError, Sqlite,
    failpoint::{Mode, arm, disarm},
};

/// Points are counted per process: the tests of this file take turns.
static TURN: Mutex<()> = Mutex::new(());

#[derive(Debug)]
enum Failed {
    Store(StoreError),
    Blob(BlobError),
    Open(OpenError),
}
impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Failed::Store(error)
    }
}
impl From<BlobError> for Failed {
    fn from(error: BlobError) -> Self {
        Failed::Blob(error)
    }
}
impl From<OpenError> for Failed {
    fn from(error: OpenError) -> Self {
        Failed::Open(error)
    }
}
impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Blob(error.into())
    }
}
impl Failed {
    fn is_full(&self) -> bool {
        match self {
            Failed::Store(StoreError::Full { .. }) | Failed::Blob(BlobError::Full(_)) => true,
            Failed::Blob(BlobError::Io(error))
            | Failed::Open(OpenError::Io { source: error, .. }) => {
                error.kind() == io::ErrorKind::StorageFull
            }
            Failed::Store(_) | Failed::Blob(_) | Failed::Open(_) => false,
        }
    }
}

fn path(text: &str) -> BlobPath {
    BlobPath::new(text).unwrap()
}
fn job() -> JobId {
    JobId::new(&Workspace::new("s", "g", "w"), "run-1")
}
fn declared(name: &str, generation: u64) -> Event {
    Event::Declared {
        document: Document {
            key: DocKey::new(&Workspace::new("s", "g", "w"), Kind::Model, name),
            generation,
            json: "{}".into(),
            created: Time(1),
            modified: Time(generation),
            by: "me".into(),
        },
        declared: Declared::Other,
    }
}
fn append(store: &dyn Store, after: u64, events: &[Event]) -> Result<(), Failed> {
    store.append(&Append {
        after,
        events,
        spans: &[],
        copies: &[],
    })?;
    Ok(())
}
fn put(
    blobs: &dyn Blobs,
    name: &str,
    text: &str,
    create_only: bool,
    mark: Option<&str>,
) -> Result<(), Failed> {
    let mut writer = blobs.write(&path(name))?;
    writer.write_all(text.as_bytes())?;
    let metadata = mark.map(|m| ("mark".to_owned(), m.to_owned()));
    writer.finish(
        create_only,
        mark.map(str::to_owned),
        metadata.into_iter().collect(),
    )?;
    Ok(())
}
fn commit_rows(store: &dyn Store, blobs: &dyn Blobs, after: u64, index: u32) -> Result<(), Failed> {
    let rows: Arc<[u8]> = format!("rows of {index}\n").into_bytes().into();
    let segment = path("system/run-1/rows");
    let offset = blobs.append(&segment, std::slice::from_ref(&rows))?;
    let span = Span {
        index,
        offset,
        len: u32::try_from(rows.len()).unwrap(),
        rows: 1,
        crc: 0,
    };
    store.append(&Append {
        after,
        events: &[declared("progress", after + 1)],
        spans: &[(job(), segment, vec![span])],
        copies: &[],
    })?;
    Ok(())
}

type Step = fn(&dyn Store, &dyn Blobs) -> Result<(), Failed>;

/// A little life. Each step is one acknowledged thing.
const STEPS: [Step; 16] = [
    |s, _| append(s, 0, &[declared("a", 1), declared("b", 1)]),
    |s, b| commit_rows(s, b, 2, 0),
    |_, b| put(b, "data/in/1.csv", "one", false, None),
    |_, b| put(b, "data/in/deep/2.csv", "two", false, Some("x")),
    |s, b| commit_rows(s, b, 3, 1),
    |s, _| Ok(s.checkpoint(3, b"world at three")?),
    |_, b| put(b, "data/in/deep/2.csv", "two again", false, Some("y")),
    |_, b| {
        let mark = BTreeMap::from([("mark".to_owned(), "z".to_owned())]);
        b.set_metadata(&path("data/in/1.csv"), mark)?;
        Ok(())
    },
    |_, b| put(b, "data/out/predictions.csv", "rows", true, Some("run-1")),
    |_, b| put(b, "data/in/1.csv", "one, newer", false, None),
    |s, _| append(s, 4, &[declared("A", 2), declared("c", 1)]),
    |_, b| Ok(b.delete(&path("data/in/deep/2.csv"))?),
    |_, b| put(b, "data/in/deep", "a blob where a folder was", false, None),
    |s, _| Ok(s.checkpoint(6, b"world at six")?),
    |_, b| Ok(b.delete_folder(&path("data/in"))?),
    |s, b| commit_rows(s, b, 6, 2),
];

/// Everything that can be asked, as text.
fn dump(store: &dyn Store, blobs: &dyn Blobs) -> Vec<String> {
    let loaded = store.load().unwrap();
    let page = Page {
        workspace: Workspace::new("s", "g", "w"),
        kind: Kind::Model,
        parent: None,
        newest_first: false,
        after: None,
        limit: 99,
    };
    let mut all = vec![format!("{} {:?}", loaded.seq, loaded.snapshot)];
    all.extend(loaded.tail.iter().map(|e| format!("{e:?}")));
    all.extend(
        store
            .page(&page)
            .unwrap()
            .0
            .iter()
            .map(|d| format!("{d:?}")),
    );
    let read = |path: &BlobPath| {
        let info = blobs.info(path).unwrap();
        let text = String::from_utf8(blobs.read(path, 1 << 20).unwrap()).unwrap();
        format!("{path} {text:?} {:?} {:?}", info.md5, info.metadata)
    };
    blobs
        .walk(&path("data"), &mut |path| all.push(read(&path)))
        .unwrap();
    // A segment may hold more than was committed: its spans are what counts.
    let mut spans = Vec::new();
    let mut take = |segment: &BlobPath, piece: &[Span]| {
        for span in piece {
            let mut rows = vec![0; span.len as usize];
            let n = blobs.read_at(segment, span.offset, &mut rows).unwrap();
            spans.push(format!(
                "{} {:?}",
                span.index,
                String::from_utf8(rows[..n].to_vec())
            ));
        }
    };
    store.spans(&job(), &mut take).unwrap();
    all.extend(spans);
    all
}

/// What there is after each number of steps, by the plain adapters.
fn expected() -> Vec<Vec<String>> {
    let (store, blobs) = (MemoryStore::new(), MemoryBlobs::new());
    let mut all = vec![dump(&store, &blobs)];
    for step in STEPS {
        step(&store, &blobs).unwrap();
        all.push(dump(&store, &blobs));
    }
    all
}

fn open(dir: &Path) -> Result<(Sqlite, Folder), Failed> {
    let folder = DataFolder::open(dir)?;
    Ok((Sqlite::open(&folder)?, Folder::open(&folder)?))
}

fn quick_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::TempDir::new_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// The state is that of `done` steps, or of the next one too.
fn check(expected: &[Vec<String>], done: usize, found: &[String], what: &str) -> usize {
    match expected[done..].iter().take(2).position(|e| e == found) {
        Some(more) => done + more,
        None => panic!(
            "{what}: after {done} steps\n{found:#?}\nis not\n{:#?}",
            expected[done]
        ),
    }
}

/// Goes through the rest of a life that was cut after some steps.
fn finish(dir: &Path, from: usize, expected: &[Vec<String>], what: &str) {
    let (store, blobs) = open(dir).unwrap();
    for (i, step) in STEPS.iter().enumerate().skip(from) {
        step(&store, &blobs).unwrap_or_else(|e| panic!("{what}: step {i} of the rest: {e:?}"));
    }
    assert_eq!(
        dump(&store, &blobs),
        expected[STEPS.len()],
        "{what}: at the end"
    );
}

const CHILD: &str = "ZAFFRE_FAILPOINT_CHILD";

/// Not a test by itself: the process that dies. Writes one byte per acknowledged step.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else {
        return;
    };
    let dir = Path::new(&dir);
    let mut done = std::fs::File::create(dir.join("done")).unwrap();
    let (store, blobs) = open(&dir.join("data")).unwrap();
    for step in STEPS {
        step(&store, &blobs).unwrap();
        done.write_all(b".").unwrap();
    }
}

#[test]
fn killed_at_any_point_everything_acknowledged_is_there_and_life_goes_on() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = expected();
    for mode in ["before", "after"] {
        let mut points = 0;
        loop {
            let what = format!("ZAFFRE_FAILPOINT={}:{mode}", points + 1);
            let dir = quick_dir();
            let status = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child"])
                .env(CHILD, dir.path())
                .env("ZAFFRE_FAILPOINT", format!("{}:{mode}", points + 1))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            let done = std::fs::read(dir.path().join("done")).unwrap().len();
            if status.success() {
                assert_eq!(done, STEPS.len());
                break;
            }
            assert_eq!(status.signal(), Some(9), "{what}");
            points += 1;
            let data = dir.path().join("data");
            let (store, blobs) = open(&data).unwrap_or_else(|e| panic!("{what}: {e:?}"));
            let found = dump(&store, &blobs);
            drop((store, blobs));
            let reached = check(&expected, done, &found, &what);
            finish(&data, reached, &expected, &what);
        }
        assert!(points >= 80, "only {points} points were passed");
    }
}

#[test]
fn a_full_disk_at_any_point_refuses_one_thing_and_spoils_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = expected();
    let mut point = 0;
    loop {
        point += 1;
        let what = format!("no space at point {point}");
        let dir = quick_dir();
        arm(point, Mode::NoSpace);
        let opened = match open(dir.path()) {
            Ok(opened) => Ok(opened),
            Err(error) => {
                assert!(error.is_full(), "{what}: {error:?}");
                disarm();
                open(dir.path()) // with room again
            }
        };
        let (store, blobs) = opened.unwrap_or_else(|e| panic!("{what}: {e:?}"));
        let mut fired = false;
        for (i, step) in STEPS.iter().enumerate() {
            if let Err(error) = step(&store, &blobs) {
                assert!(!fired, "{what}: step {i} fails again: {error:?}");
                assert!(error.is_full(), "{what}: step {i}: {error:?}");
                fired = true;
                disarm();
                // Reads go on; nothing of the step is there, or all of it (its last sync was what failed).
                let reached = check(&expected, i, &dump(&store, &blobs), &what);
                if reached == i {
                    // With room again, without a restart.
                    step(&store, &blobs).unwrap_or_else(|e| panic!("{what}: step {i}: {e:?}"));
                }
            }
            assert_eq!(
                dump(&store, &blobs),
                expected[i + 1],
                "{what}: after step {i}"
            );
        }
        if disarm() < point {
            break;
        }
    }
    assert!(point > 80, "only {point} points were passed");
}

#[test]
fn an_io_error_at_any_point_is_named_and_a_restart_finds_what_was_acknowledged() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = expected();
    let mut point = 0;
    loop {
        point += 1;
        let what = format!("I/O error at point {point}");
        let dir = quick_dir();
        arm(point, Mode::Io);
        let mut done = 0;
        let mut failed = None;
        match open(dir.path()) {
            Err(error) => failed = Some(error),
            Ok((store, blobs)) => {
                for step in STEPS {
                    match step(&store, &blobs) {
                        Ok(()) => done += 1,
                        Err(error) => {
                            failed = Some(error);
                            break;
                        }
                    }
                }
            }
        }
        let passed = disarm();
        if passed < point {
            assert!(failed.is_none());
            break;
        }
        if let Some(error) = &failed {
            assert!(!error.is_full(), "{what}: {error:?}");
        }
        let (store, blobs) = open(dir.path()).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        let found = dump(&store, &blobs);
        drop((store, blobs));
        let reached = check(&expected, done, &found, &what);
        finish(dir.path(), reached, &expected, &what);
    }
    assert!(point > 80, "only {point} points were passed");
}
