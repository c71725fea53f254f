//! S3 and what user code may leave in a folder of blobs: links, pipes, names that are no text, trees without an end.

use model::BlobPath;
use port::{BlobError, BlobInfo, Blobs, FLEETING};
use rustix::fs::{Mode, OFlags};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, symlink},
    },
    path::PathBuf,
    sync::Arc,
};
use store::{DataFolder, Folder};

struct Place {
    dir: tempfile::TempDir,
    blobs: Folder,
}

impl Place {
    fn new() -> Self {
        // In memory, where there is such a place: thousands of names, none of which must survive this test.
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::TempDir::new_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let folder = DataFolder::open(&dir.path().join("data")).unwrap();
        let blobs = Folder::open(&folder).unwrap();
        Place { dir, blobs }
    }
    fn disk(&self, path: &str) -> PathBuf {
        self.dir.path().join("data/blobs").join(path)
    }
    fn put(&self, name: &str) -> BlobInfo {
        self.blobs.put(&path(name), name.as_bytes()).unwrap()
    }
    fn walk(&self, folder: &str) -> Result<Vec<String>, BlobError> {
        let mut all = Vec::new();
        self.blobs
            .walk(&path(folder), &mut |path| all.push(path.to_string()))?;
        Ok(all)
    }
}

fn path(text: &str) -> BlobPath {
    BlobPath::new(text).unwrap()
}

#[test]
fn links_lead_nowhere() {
    let place = Place::new();
    let secret = place.dir.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("canary"), "canary").unwrap();
    place.put("c/in/plain");
    symlink(secret.join("canary"), place.disk("c/in/link")).unwrap();
    symlink(&secret, place.disk("c/in/folder")).unwrap();
    symlink("plain", place.disk("c/in/near")).unwrap();
    symlink(&secret, place.disk("linked")).unwrap();

    assert_eq!(place.walk("c").unwrap(), ["c/in/plain"]);
    assert!(place.walk("linked").unwrap().is_empty());
    for name in [
        "c/in/link",
        "c/in/folder/canary",
        "c/in/near",
        "linked/canary",
    ] {
        let blob = path(name);
        let mut buf = [0; 9];
        let answers = [
            place.blobs.info(&blob).map(drop),
            place.blobs.read_at(&blob, 0, &mut buf).map(drop),
            place.blobs.set_metadata(&blob, BTreeMap::new()).map(drop),
            place.blobs.delete(&blob),
        ];
        for answer in answers {
            assert!(
                matches!(answer, Err(BlobError::NotFound(_))),
                "{name}: {answer:?}"
            );
        }
        assert_eq!(place.blobs.local(&blob), None);
    }
    for name in ["c/in/folder/new", "linked/new", "linked/deep/new"] {
        let refused = place.blobs.put(&path(name), b"x");
        assert!(
            matches!(refused, Err(BlobError::BadName { .. })),
            "{name}: {refused:?}"
        );
        let refused = place.blobs.append(&path(name), &[Arc::from(&b"x"[..])]);
        assert!(refused.is_err(), "{name} was appended to");
    }
    // A blob may take the place of a link; what the link led to stays as it is.
    place.put("c/in/link");
    place.blobs.delete_folder(&path("c/in/folder")).unwrap();
    place.blobs.delete_folder(&path("c")).unwrap();
    assert_eq!(fs::read_to_string(secret.join("canary")).unwrap(), "canary");
    assert_eq!(fs::read_dir(&secret).unwrap().count(), 1);
}

#[test]
fn pipes_and_sockets_are_no_blobs_and_hold_nobody_up() {
    let place = Place::new();
    place.put("c/plain");
    let made = std::process::Command::new("mkfifo")
        .arg(place.disk("c/pipe"))
        .status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place.disk("c/socket")).unwrap();
    assert_eq!(place.walk("c").unwrap(), ["c/plain"]);
    for name in ["c/pipe", "c/socket"] {
        let read = place.blobs.read(&path(name), 9);
        assert!(
            matches!(read, Err(BlobError::NotFound(_))),
            "{name}: {read:?}"
        );
        let append = place.blobs.append(&path(name), &[Arc::from(&b"x"[..])]);
        assert!(append.is_err(), "{name} was appended to");
    }
}

#[test]
fn a_name_that_is_no_text_is_an_error_and_not_a_gap() {
    let place = Place::new();
    place.put("c/in/a");
    fs::write(place.disk("c/in").join(OsStr::from_bytes(b"b\xff")), "x").unwrap();
    let refused = place.walk("c").unwrap_err().to_string();
    assert!(
        refused.contains("c/in/b") && refused.contains("not UTF-8"),
        "{refused}"
    );
    place.blobs.delete_folder(&path("c")).unwrap();
    assert!(place.walk("c").unwrap().is_empty());
}

#[test]
fn trees_without_an_end_are_removed() {
    let place = Place::new();
    place.put("c/deep/a");
    // Deeper than any path can name, each with a file, and locked at the end.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = rustix::fs::open(place.disk("c/deep"), flags, Mode::empty()).unwrap();
    for _ in 0..3_000 {
        rustix::fs::mkdirat(&at, "dddddddd", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "dddddddd", flags, Mode::empty()).unwrap();
        let file = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&at, "f", file, Mode::RUSR).unwrap();
    }
    rustix::fs::fchmod(&at, Mode::empty()).unwrap();
    assert!(place.walk("c").is_err(), "such names cannot be blobs");
    place.blobs.delete_folder(&path("c")).unwrap();
    assert!(!place.disk("c").exists());
    assert_eq!(fs::read_dir(place.disk(".tmp")).unwrap().count(), 0);
}

#[test]
fn what_was_being_written_or_removed_is_gone_after_a_restart() {
    let Place { dir, blobs } = Place::new();
    drop(blobs);
    let left = dir.path().join("data/blobs/.tmp");
    fs::write(left.join("7"), "half").unwrap();
    fs::create_dir_all(left.join("8/a/b/c")).unwrap();
    fs::write(left.join("8/a/b/c/d"), "x").unwrap();
    let folder = DataFolder::open(&dir.path().join("data")).unwrap();
    let _blobs = Folder::open(&folder).unwrap();
    assert_eq!(fs::read_dir(left).unwrap().count(), 0);
}

#[test]
fn fleeting_blobs_outlive_the_process_and_not_the_machine() {
    let Place { dir, blobs } = Place::new();
    let names = [format!("{FLEETING}/up/1"), "c/stays".to_owned()];
    for name in &names {
        blobs.put(&path(name), b"bytes").unwrap();
    }
    drop(blobs);
    let open = || {
        let folder = DataFolder::open(&dir.path().join("data")).unwrap();
        Folder::open(&folder).unwrap()
    };
    let there = |blobs: &Folder| names.each_ref().map(|name| blobs.info(&path(name)).is_ok());
    assert_eq!(there(&open()), [true, true], "the process alone was new");
    let boot = dir.path().join("data/blobs/.boot");
    let now = fs::read_to_string(&boot).unwrap();
    for other in ["another", ""] {
        fs::write(&boot, other).unwrap();
        let blobs = open();
        assert_eq!(there(&blobs), [false, true]);
        assert_eq!(fs::read_to_string(&boot).unwrap(), now);
        blobs.put(&path(&names[0]), b"again").unwrap();
    }
    fs::remove_file(&boot).unwrap(); // a folder of an older version
    assert_eq!(there(&open()), [false, true]);
}

#[test]
fn tasks_may_read_blobs_and_nobody_else_anything_else() {
    let place = Place::new();
    place.put("c/in/a");
    let kept = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    place.blobs.set_metadata(&path("c/in/a"), kept).unwrap();
    place
        .blobs
        .append(&path("c/rows"), &[Arc::from(&b"x"[..])])
        .unwrap();
    let folder = DataFolder::open(&place.dir.path().join("other")).unwrap();
    let store = store::Sqlite::open(&folder).unwrap();
    port::Store::load(&store).unwrap();
    port::Series::append(&store, "s", &[(model::Time(1), "x".into())]).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
    for (name, expected) in [
        ("c", 0o755),
        ("c/in", 0o755),
        ("c/in/a", 0o644),
        ("c/rows", 0o600),
        (".tmp", 0o700),
        (".meta", 0o700),
    ] {
        assert_eq!(mode(place.disk(name)), expected, "{name}");
    }
    let other = |name: &str| mode(place.dir.path().join("other").join(name));
    assert_eq!(
        other(""),
        0o711,
        "others pass through to what they know the path of"
    );
    for name in [
        "lock",
        "zaffre.db",
        "zaffre.db-wal",
        "zaffre.db-shm",
        "series.db",
        "series.db-wal",
    ] {
        assert_eq!(other(name), 0o600, "{name}");
    }
}
