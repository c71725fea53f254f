//! Documents: keys without case, spelling as first written, pages.

use model::{DocKey, Document, Event, Kind, Time, Workspace};
use std::sync::Arc;

use super::{Place, sample};
use crate::{Append, Page, Store};

pub(super) const CASES: &[fn(Place<dyn Store>)] = &[
    a_document_is_kept_byte_for_byte,
    keys_are_compared_without_case_and_spelled_as_first_written,
    a_removed_document_is_gone_and_may_be_spelled_anew,
    the_last_write_of_one_append_counts,
    pages_by_path_go_through_everything_once,
    pages_newest_first_go_through_everything_once,
    pages_are_stable_under_writes,
    a_parent_holds_only_what_lies_below_it,
    kinds_and_workspaces_do_not_mix,
    odd_names_are_names,
    a_foreign_token_is_refused,
];

/// Writes documents, however many appends that takes.
struct Shelf {
    store: Arc<dyn Store>,
    seq: u64,
}

impl Shelf {
    fn new(open: &Place<dyn Store>) -> Self {
        Shelf {
            store: open(),
            seq: 0,
        }
    }
    fn append(&mut self, events: &[Event]) {
        let turn = Append {
            after: self.seq,
            events,
            spans: &[],
            copies: &[],
        };
        self.seq = self.store.append(&turn).expect("appended");
    }
    fn put(&mut self, kind: Kind, name: &str, created: u64) -> Document {
        let document = sample::document(&sample::place(), kind, name, created);
        self.append(&[sample::declared(&document)]);
        document
    }
    fn get(&self, key: &DocKey) -> Option<Document> {
        self.store.get(key).expect("read")
    }
    fn page(&self, page: &Page) -> (Vec<String>, Option<String>) {
        let (documents, next) = self.store.page(page).expect("read");
        let names = documents.iter().map(|d| d.key.path.to_string()).collect();
        (names, next)
    }
    /// All pages of `n`, with something done between them.
    fn all(&mut self, mut page: Page, between: &mut dyn FnMut(&mut Shelf)) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let (names, next) = self.page(&page);
            assert!(names.len() <= page.limit, "a page holds at most its limit");
            all.extend(names);
            match next {
                Some(next) => page.after = Some(next),
                None => return all,
            }
            between(self);
        }
    }
}

fn models(limit: usize) -> Page {
    Page {
        workspace: sample::place(),
        kind: Kind::Model,
        parent: None,
        newest_first: false,
        after: None,
        limit,
    }
}

fn a_document_is_kept_byte_for_byte(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    let mut document = sample::document(&sample::place(), Kind::Model, "m/1", 5);
    document.json = "{\"b\": 1,  \"a\":\t010.50e0, \"a\": \"\\u00e9é\"}\n".into();
    document.generation = u64::MAX / 2;
    shelf.append(&[sample::declared(&document)]);
    assert_eq!(shelf.get(&document.key), Some(document.clone()));
    drop(shelf);
    assert_eq!(open().get(&document.key).expect("read"), Some(document));
}

fn keys_are_compared_without_case_and_spelled_as_first_written(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    let first = shelf.put(Kind::Model, "Heart/Résumé", 5);
    let shouting = Workspace::new("00000000-0000-0000-0000-000000000000", "DEFAULT", "default");
    let mut second = sample::document(&shouting, Kind::Model, "HEART/RéSUMé", 8);
    second.generation = 2;
    shelf.append(&[sample::declared(&second)]);
    let found = shelf.get(&second.key).expect("it is there");
    assert_eq!(found.key.path.as_str(), "Heart/Résumé");
    assert_eq!(found.key.workspace.group.as_str(), "Default");
    assert_eq!((found.generation, found.created), (2, first.created));
    assert_eq!((&found.json, found.modified), (&second.json, Time(8)));
    let other = DocKey::new(&sample::place(), Kind::Model, "heart/rÉsumÉ");
    assert_eq!(shelf.get(&other), None, "only ASCII has no case");
    assert_eq!(shelf.page(&models(10)).0, ["Heart/Résumé"]);
}

fn a_removed_document_is_gone_and_may_be_spelled_anew(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    let first = shelf.put(Kind::Model, "heart/1", 5);
    shelf.append(&[sample::withdrawn(&first.key)]);
    assert_eq!(shelf.get(&first.key), None);
    assert!(shelf.page(&models(10)).0.is_empty());
    assert!(shelf.store.workspaces().expect("listed").is_empty());
    let again = shelf.put(Kind::Model, "HEART/1", 9);
    assert_eq!(shelf.get(&first.key), Some(again));
    shelf.append(&[sample::withdrawn(&DocKey::new(
        &sample::place(),
        Kind::Model,
        "nobody/1",
    ))]);
}

fn the_last_write_of_one_append_counts(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    let one = sample::document(&sample::place(), Kind::Model, "m/1", 1);
    let two = Document {
        generation: 2,
        ..one.clone()
    };
    shelf.append(&[
        sample::declared(&one),
        sample::declared(&two),
        sample::withdrawn(&one.key),
        sample::declared(&one),
    ]);
    assert_eq!(shelf.get(&one.key), Some(one));
}

fn pages_by_path_go_through_everything_once(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    let mut names: Vec<String> = (0..23).map(|i| format!("M{}/v", (i * 7) % 23)).collect();
    for (i, name) in names.iter().enumerate() {
        shelf.put(Kind::Model, name, i as u64);
    }
    names.sort_by_key(|name| name.to_ascii_lowercase());
    for limit in [1, 5, 22, 23, 24] {
        assert_eq!(shelf.all(models(limit), &mut |_| {}), names);
    }
}

fn pages_newest_first_go_through_everything_once(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    // Times repeat: equal ones are ordered by path, so that a page can end between them.
    let mut names: Vec<(u64, String)> = (0..23).map(|i| (i / 4, format!("m{i:02}/v"))).collect();
    for (created, name) in &names {
        shelf.put(Kind::Model, name, *created);
    }
    names.sort_by_key(|(created, name)| (u64::MAX - created, name.clone()));
    let names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
    for limit in [1, 3, 23, 100] {
        let page = Page {
            newest_first: true,
            ..models(limit)
        };
        assert_eq!(shelf.all(page, &mut |_| {}), names);
    }
}

fn pages_are_stable_under_writes(open: Place<dyn Store>) {
    for newest_first in [false, true] {
        let mut shelf = Shelf::new(&open);
        shelf.seq = shelf.store.load().expect("loaded").seq;
        let kind = if newest_first {
            Kind::Data
        } else {
            Kind::Model
        };
        for i in 0..20 {
            shelf.put(kind, &format!("d{i:02}"), 100 - i);
        }
        let page = Page {
            kind,
            newest_first,
            ..models(6)
        };
        // Between two pages: one that was shown goes, one that was shown is written again, one comes before, one after.
        let mut round = 0;
        let all = shelf.all(page, &mut |shelf| {
            round += 1;
            let shown = DocKey::new(&sample::place(), kind, format!("d{:02}", round - 1));
            shelf.append(&[sample::withdrawn(&shown)]);
            shelf.put(kind, &format!("d{:02}", round + 2), 1_000);
            shelf.put(kind, &format!("c{round}"), 200);
            shelf.put(kind, &format!("e{round}"), 1);
        });
        let kept: Vec<&String> = all.iter().filter(|name| name.starts_with('d')).collect();
        let expected: Vec<String> = (0..20).map(|i| format!("d{i:02}")).collect();
        assert_eq!(
            kept,
            expected.iter().collect::<Vec<_>>(),
            "newest first: {newest_first}"
        );
    }
}

fn a_parent_holds_only_what_lies_below_it(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    let names = [
        "heart/2",
        "heart/10",
        "heart",
        "heart-b/1",
        "heart.x/1",
        "HEARTS/1",
        "hear/1",
        "heart0",
    ];
    for (i, name) in names.iter().enumerate() {
        shelf.put(Kind::Model, name, i as u64);
    }
    for (newest_first, expected) in [
        (false, ["heart/10", "heart/2"]),
        (true, ["heart/10", "heart/2"]),
    ] {
        for limit in [1, 2, 9] {
            let page = Page {
                parent: Some("Heart".into()),
                newest_first,
                ..models(limit)
            };
            assert_eq!(shelf.all(page, &mut |_| {}), expected);
        }
    }
    let nobody = Page {
        parent: Some("hea".into()),
        ..models(9)
    };
    assert!(shelf.page(&nobody).0.is_empty());
}

fn kinds_and_workspaces_do_not_mix(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    shelf.put(Kind::Model, "same/1", 1);
    shelf.put(Kind::Data, "same/1", 2);
    let elsewhere = Workspace::new("s", "g", "w");
    let there = sample::document(&elsewhere, Kind::Model, "same/1", 3);
    shelf.append(&[sample::declared(&there)]);
    assert_eq!(shelf.get(&there.key), Some(there));
    let here = shelf.get(&DocKey::new(&sample::place(), Kind::Model, "same/1"));
    assert_eq!(here.expect("it is there").created, Time(1));
    assert_eq!(shelf.page(&models(9)).0.len(), 1);
    let mut all = shelf.store.workspaces().expect("listed");
    all.sort();
    assert_eq!(all, [sample::place(), elsewhere]);
}

fn odd_names_are_names(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    let long = "長".repeat(400);
    let names = [
        "it's; DROP TABLE document;--/1",
        "a\nb\"c\\/1",
        "%_[x]*?/1",
        "学習モデル/版１",
        " /1",
        "",
        long.as_str(),
    ];
    for (i, name) in names.iter().enumerate() {
        let written = shelf.put(Kind::Model, name, i as u64);
        assert_eq!(shelf.get(&written.key), Some(written));
    }
    let mut expected: Vec<String> = names.iter().map(|n| n.to_ascii_lowercase()).collect();
    expected.sort();
    let all = shelf.all(models(2), &mut |_| {});
    let folded: Vec<String> = all.iter().map(|n| n.to_ascii_lowercase()).collect();
    assert_eq!(folded, expected);
    let below = Page {
        parent: Some("%_[x]*?".into()),
        ..models(9)
    };
    assert_eq!(shelf.page(&below).0, ["%_[x]*?/1"]);
}

fn a_foreign_token_is_refused(open: Place<dyn Store>) {
    let mut shelf = Shelf::new(&open);
    shelf.put(Kind::Model, "m/1", 1);
    for token in ["", "x", "AAAA", "\u{0}", "長"] {
        let page = Page {
            after: Some(token.into()),
            ..models(9)
        };
        assert!(
            shelf.store.page(&page).is_err(),
            "token {token:?} was taken"
        );
    }
}
