//! Blobs: unseen until whole, listed in byte order, whatever their names.

use model::BlobPath;
use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{Place, sample::path};
use crate::{BlobError, Blobs, FLEETING};

pub(super) const CASES: &[fn(Place<dyn Blobs>)] = &[
    a_blob_is_unseen_until_it_is_finished,
    a_blob_outlives_a_restart_with_what_is_known_of_it,
    create_only_never_overwrites,
    reads_are_ranged,
    metadata_is_replaced_and_changes_the_etag,
    a_new_blob_forgets_the_metadata_of_the_old,
    what_is_not_there_is_not_found,
    listings_are_in_byte_order_and_paged,
    odd_names_are_names,
    a_name_is_a_blob_or_a_folder,
    folders_go_with_everything_below,
    segments_grow_by_whole_appends,
    readers_see_whole_blobs_only,
    blobs_are_joined_in_order,
];

fn put(blobs: &dyn Blobs, name: &str, text: &str) {
    blobs
        .put(&path(name), text.as_bytes())
        .unwrap_or_else(|e| panic!("{name:?} is not put: {e}"));
}

fn text(blobs: &dyn Blobs, name: &str) -> Option<String> {
    match blobs.read(&path(name), 1 << 20) {
        Ok(bytes) => Some(String::from_utf8(bytes).expect("the tests write text")),
        Err(BlobError::NotFound(_)) => None,
        Err(e) => panic!("{name:?} is not read: {e}"),
    }
}

fn walk(blobs: &dyn Blobs, folder: &str) -> Vec<String> {
    let mut all = Vec::new();
    blobs
        .walk(&path(folder), &mut |path| all.push(path.to_string()))
        .expect("walked");
    all
}

fn pages(blobs: &dyn Blobs, folder: &str, limit: usize) -> Vec<String> {
    let (mut all, mut after): (Vec<String>, Option<BlobPath>) = (Vec::new(), None);
    loop {
        let page = blobs
            .list(&path(folder), after.as_ref(), limit)
            .expect("listed");
        assert!(page.len() <= limit, "a page holds at most its limit");
        let Some((last, _)) = page.last() else {
            return all;
        };
        after = Some(last.clone());
        all.extend(page.iter().map(|(path, _)| path.to_string()));
    }
}

fn marked(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("name".to_owned(), name.to_owned())])
}

fn a_blob_is_unseen_until_it_is_finished(open: Place<dyn Blobs>) {
    let blobs = open();
    let mut writer = blobs.write(&path("c/a/b.txt")).expect("begun");
    writer.write_all(b"half").expect("written");
    writer.flush().expect("flushed");
    assert_eq!(text(blobs.as_ref(), "c/a/b.txt"), None);
    assert!(walk(blobs.as_ref(), "c").is_empty());
    writer.write_all(b" and half").expect("written");
    let info = writer
        .finish(false, None, BTreeMap::new())
        .expect("finished");
    assert_eq!(info.len, 13);
    assert_eq!(
        text(blobs.as_ref(), "c/a/b.txt").as_deref(),
        Some("half and half")
    );
    // Dropped without `finish`, it never was; what was there stays.
    let mut writer = blobs.write(&path("c/a/b.txt")).expect("begun");
    writer.write_all(b"never").expect("written");
    drop(writer);
    assert_eq!(
        text(blobs.as_ref(), "c/a/b.txt").as_deref(),
        Some("half and half")
    );
}

fn blobs_are_joined_in_order(open: Place<dyn Blobs>) {
    let blobs = open();
    let long = "0123456789".repeat(30_000);
    put(blobs.as_ref(), &format!("{FLEETING}/up/1"), "first, ");
    put(blobs.as_ref(), &format!("{FLEETING}/up/2"), &long);
    put(blobs.as_ref(), &format!("{FLEETING}/up/3"), "");
    let mut writer = blobs.write(&path("c/joined")).expect("begun");
    let mut add = |name: &str, part| writer.add(&path(&format!("{FLEETING}/up/{name}")), part);
    assert_eq!(add("1", 0..7).expect("added"), 7);
    assert!(matches!(add("9", 0..1), Err(BlobError::NotFound(_))));
    assert_eq!(add("2", 0..300_000).expect("added"), 300_000);
    assert_eq!(add("3", 0..0).expect("added"), 0);
    assert_eq!(add("1", 5..9).expect("cut at its end"), 2);
    assert_eq!(add("1", 8..9).expect("behind its end"), 0);
    assert_eq!(add("1", 0..5).expect("again"), 5);
    writer.write_all(b"last").expect("written");
    let info = writer
        .finish(false, None, BTreeMap::new())
        .expect("finished");
    let whole = format!("first, {long}, firstlast");
    assert_eq!(info.len, whole.len() as u64);
    assert_eq!(text(blobs.as_ref(), "c/joined"), Some(whole));
}

fn a_blob_outlives_a_restart_with_what_is_known_of_it(open: Place<dyn Blobs>) {
    let info = {
        let blobs = open();
        let mut writer = blobs.write(&path("c/a")).expect("begun");
        writer.write_all(b"bytes").expect("written");
        let md5 = Some("S+vpiaTQe43yo0ocFxgUBA==".to_owned());
        writer
            .finish(false, md5, marked("heart"))
            .expect("finished")
    };
    let seen = open().info(&path("c/a")).expect("there");
    assert_eq!(seen, info);
    assert_eq!(
        (seen.len, seen.md5.as_deref(), &seen.metadata),
        (5, Some("S+vpiaTQe43yo0ocFxgUBA=="), &marked("heart"))
    );
}

fn create_only_never_overwrites(open: Place<dyn Blobs>) {
    let blobs = open();
    let create = |bytes: &[u8], mark: &str| {
        let mut writer = blobs.write(&path("c/out.csv"))?;
        writer.write_all(bytes)?;
        writer.finish(true, None, marked(mark))
    };
    create(b"first", "one").expect("nothing was there");
    let refused = create(b"second", "two");
    assert!(
        matches!(&refused, Err(BlobError::Exists(at)) if *at == path("c/out.csv")),
        "{refused:?}"
    );
    assert_eq!(text(blobs.as_ref(), "c/out.csv").as_deref(), Some("first"));
    let info = blobs.info(&path("c/out.csv")).expect("there");
    assert_eq!(info.metadata, marked("one"));
    assert_eq!(walk(blobs.as_ref(), "c"), ["c/out.csv"]);
}

fn reads_are_ranged(open: Place<dyn Blobs>) {
    let blobs = open();
    put(blobs.as_ref(), "c/a", "0123456789");
    let read = |offset, n: usize| {
        let mut buf = vec![0; n];
        let got = blobs.read_at(&path("c/a"), offset, &mut buf).expect("read");
        buf.truncate(got);
        String::from_utf8(buf).expect("the tests write text")
    };
    assert_eq!(read(0, 4), "0123");
    assert_eq!(read(8, 4), "89");
    assert_eq!(read(10, 4), "");
    assert_eq!(read(1 << 40, 4), "");
    assert_eq!(read(3, 0), "");
    let too_large = blobs.read(&path("c/a"), 9);
    assert!(matches!(too_large, Err(BlobError::Io(_))), "{too_large:?}");
}

fn metadata_is_replaced_and_changes_the_etag(open: Place<dyn Blobs>) {
    let blobs = open();
    put(blobs.as_ref(), "c/a", "x");
    let before = blobs.info(&path("c/a")).expect("there");
    assert!(before.metadata.is_empty());
    let mut etags = vec![before.etag.clone()];
    for name in ["one", "two", "two"] {
        let after = blobs
            .set_metadata(&path("c/a"), marked(name))
            .expect("replaced");
        assert_eq!(after.metadata, marked(name));
        assert_eq!(
            blobs.info(&path("c/a")).expect("there"),
            after,
            "what is answered is what is read"
        );
        assert!(!etags.contains(&after.etag), "every write has its own ETag");
        etags.push(after.etag);
    }
    for _ in 0..20 {
        put(blobs.as_ref(), "c/a", "y");
        let etag = blobs.info(&path("c/a")).expect("there").etag;
        assert!(!etags.contains(&etag), "every write has its own ETag");
        etags.push(etag);
    }
}

fn a_new_blob_forgets_the_metadata_of_the_old(open: Place<dyn Blobs>) {
    let blobs = open();
    put(blobs.as_ref(), "c/a", "x");
    blobs
        .set_metadata(&path("c/a"), marked("old"))
        .expect("replaced");
    put(blobs.as_ref(), "c/a", "x");
    assert!(blobs.info(&path("c/a")).expect("there").metadata.is_empty());
    blobs
        .set_metadata(&path("c/a"), marked("old"))
        .expect("replaced");
    blobs.delete(&path("c/a")).expect("deleted");
    put(blobs.as_ref(), "c/a", "x");
    assert!(blobs.info(&path("c/a")).expect("there").metadata.is_empty());
}

fn what_is_not_there_is_not_found(open: Place<dyn Blobs>) {
    let blobs = open();
    put(blobs.as_ref(), "c/folder/a", "x");
    for name in ["c/a", "d/a", "c/folder", "c/folder/a/b", "c/folder/b"] {
        let name = &path(name);
        let mut buf = [0; 4];
        let answers = [
            blobs.info(name).map(drop),
            blobs.read_at(name, 0, &mut buf).map(drop),
            blobs.delete(name),
            blobs.set_metadata(name, marked("x")).map(drop),
        ];
        for answer in answers {
            assert!(
                matches!(&answer, Err(BlobError::NotFound(at)) if at == name),
                "{name}: {answer:?}"
            );
        }
        blobs.delete_folder(&path("d")).expect("nothing to do");
    }
    assert!(walk(blobs.as_ref(), "d").is_empty());
    assert!(
        walk(blobs.as_ref(), "c/folder/a").is_empty(),
        "nothing lies below a blob"
    );
    assert!(pages(blobs.as_ref(), "nobody/x", 5).is_empty());
    assert_eq!(text(blobs.as_ref(), "c/folder/a").as_deref(), Some("x"));
}

fn listings_are_in_byte_order_and_paged(open: Place<dyn Blobs>) {
    let blobs = open();
    let mut names: Vec<String> = [
        "a",
        "a.txt",
        "a-b",
        "b/a.d/x",
        "b/a/deep/er",
        "b-",
        "b.",
        "b0",
        "B",
        "é",
        "学",
        "~",
        "a b",
        "10",
        "9",
        "1/0",
    ]
    .iter()
    .map(|n| format!("c/in/{n}"))
    .collect();
    for name in &names {
        put(blobs.as_ref(), name, name);
    }
    for outside in ["c/in.txt", "c/inn/x", "c/i", "d/in/x"] {
        put(blobs.as_ref(), outside, "x");
    }
    names.sort();
    assert_eq!(walk(blobs.as_ref(), "c/in"), names);
    for limit in [1, 2, 3, 7, 100] {
        assert_eq!(pages(blobs.as_ref(), "c/in", limit), names);
    }
    // A token need not be there (any more), nor lie below.
    let after = |token: &str| {
        let page = blobs.list(&path("c/in"), Some(&path(token)), 1);
        page.expect("listed")
            .first()
            .map(|(path, info)| (path.to_string(), info.len))
    };
    assert_eq!(
        after("c/in/b/a/zzz").map(|f| f.0).as_deref(),
        Some("c/in/b0")
    );
    assert_eq!(
        after("c/in/b/a").map(|f| f.0).as_deref(),
        Some("c/in/b/a.d/x")
    );
    assert_eq!(after("c/a").map(|f| f.0).as_deref(), Some("c/in/1/0"));
    assert_eq!(after("c/z"), None);
    assert_eq!(after("c/in/学"), None);
    assert_eq!(after("c/in/~"), Some(("c/in/é".to_owned(), 7)));
    assert_eq!(
        walk(blobs.as_ref(), "c/in/b"),
        names
            .iter()
            .filter(|n| n.starts_with("c/in/b/"))
            .cloned()
            .collect::<Vec<_>>()
    );
}

fn odd_names_are_names(open: Place<dyn Blobs>) {
    let blobs = open();
    let long = "x".repeat(255);
    let names = [
        "c/a\nb",
        "c/it's \"x\"",
        "c/ ",
        "c/...",
        "c/..a",
        "c/-rf",
        "c/*",
        "c/a\\b",
        "c/学習/データ",
        "c/.hidden",
        "c/a:b",
        "c/%2e%2e",
    ]
    .map(str::to_owned);
    for name in names.iter().chain([&format!("c/{long}/{long}")]) {
        put(blobs.as_ref(), name, name);
        assert_eq!(text(blobs.as_ref(), name).as_ref(), Some(name));
    }
    assert_eq!(walk(blobs.as_ref(), "c").len(), names.len() + 1);
    for name in &names {
        blobs.delete(&path(name)).expect("deleted");
        assert_eq!(text(blobs.as_ref(), name), None);
    }
    let lone = blobs.put(&path("lone"), b"x");
    assert!(
        matches!(lone, Err(BlobError::BadName { .. })),
        "a blob needs a container: {lone:?}"
    );
}

fn a_name_is_a_blob_or_a_folder(open: Place<dyn Blobs>) {
    let blobs = open();
    put(blobs.as_ref(), "c/a/b", "x");
    for name in ["c/a", "c/a/b/c", "c/a/b/c/d"] {
        let refused = blobs.put(&path(name), b"y");
        assert!(
            matches!(&refused, Err(BlobError::BadName { path, .. }) if path == name),
            "{name}: {refused:?}"
        );
    }
    assert_eq!(walk(blobs.as_ref(), "c"), ["c/a/b"]);
    // Once the last blob of a folder is gone, the name is free.
    blobs.delete(&path("c/a/b")).expect("deleted");
    put(blobs.as_ref(), "c/a", "now a blob");
    blobs.delete(&path("c/a")).expect("deleted");
    put(blobs.as_ref(), "c/a/b/c", "now a folder");
    assert_eq!(walk(blobs.as_ref(), "c"), ["c/a/b/c"]);
}

fn folders_go_with_everything_below(open: Place<dyn Blobs>) {
    let blobs = open();
    for name in ["c/a/1", "c/a/b/2", "c/ab", "c/a.txt", "d/a/1"] {
        put(blobs.as_ref(), name, "x");
    }
    blobs.delete_folder(&path("c/a")).expect("deleted");
    assert_eq!(walk(blobs.as_ref(), "c"), ["c/a.txt", "c/ab"]);
    blobs.delete_folder(&path("c/a")).expect("nothing to do");
    blobs
        .delete_folder(&path("c/ab"))
        .expect("nothing lies below a blob");
    assert_eq!(text(blobs.as_ref(), "c/ab").as_deref(), Some("x"));
    put(blobs.as_ref(), "c/a", "the name is free");
    blobs.delete_folder(&path("c")).expect("deleted");
    assert!(walk(blobs.as_ref(), "c").is_empty());
    assert_eq!(walk(blobs.as_ref(), "d"), ["d/a/1"]);
}

fn segments_grow_by_whole_appends(open: Place<dyn Blobs>) {
    let segment = path("segments/run-1/rows");
    let piece = |text: &str| -> Arc<[u8]> { text.as_bytes().into() };
    {
        let blobs = open();
        let mut at = 0;
        for round in 0..40_u64 {
            let pieces = [piece("ab"), piece(""), piece(&round.to_string())];
            let got = blobs.append(&segment, &pieces).expect("appended");
            assert_eq!(got, at, "appends follow each other");
            at += pieces.iter().map(|p| p.len() as u64).sum::<u64>();
        }
        assert_eq!(blobs.append(&segment, &[]).expect("nothing to do"), at);
        let many: Vec<Arc<[u8]>> = (0..5_000).map(|_| piece("z")).collect();
        assert_eq!(blobs.append(&segment, &many).expect("appended"), at);
    }
    let blobs = open();
    let all = blobs.read(&segment, 1 << 20).expect("read");
    assert!(all.starts_with(b"ab0ab1ab2"), "pieces keep their order");
    let at = blobs.append(&segment, &[piece("end")]).expect("appended");
    assert_eq!(
        at,
        all.len() as u64,
        "after a restart it goes on at its end"
    );
    blobs.delete(&segment).expect("deleted");
    let again = blobs.append(&segment, &[piece("new")]).expect("appended");
    assert_eq!(again, 0, "a deleted segment begins anew");
    assert_eq!(
        text(blobs.as_ref(), "segments/run-1/rows").as_deref(),
        Some("new")
    );
}

fn readers_see_whole_blobs_only(open: Place<dyn Blobs>) {
    let blobs = open();
    let stop = AtomicBool::new(false);
    put(blobs.as_ref(), "c/a", "0");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut buf = [0; 16_384];
                    let n = blobs.read_at(&path("c/a"), 0, &mut buf).expect("read");
                    assert!(n == 1 || n == 10_000, "a reader saw {n} bytes");
                    assert!(
                        buf[..n].iter().all(|b| *b == buf[0]),
                        "two writes were mixed"
                    );
                }
            });
        }
        for round in 0..50_u8 {
            let bytes = vec![b'a' + round % 26; if round % 2 == 0 { 10_000 } else { 1 }];
            blobs.put(&path("c/a"), &bytes).expect("put");
        }
        stop.store(true, Ordering::Relaxed);
    });
}
