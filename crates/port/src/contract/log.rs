//! The log: appends, checkpoints, records and spans.

use model::{DocKey, Document, Event, JobId, Kind, Ranges, batch::Span};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{Place, sample};
use crate::{Append, Store, StoreError};

pub(super) const CASES: &[fn(Place<dyn Store>)] = &[
    an_empty_store_is_empty,
    events_come_back_in_order_after_a_restart,
    an_append_after_another_number_is_refused_and_changes_nothing,
    an_append_of_nothing_checks_the_number,
    a_checkpoint_and_the_tail_are_the_whole_log,
    an_older_checkpoint_is_refused,
    records_and_spans_of_a_run_are_kept_until_it_is_removed,
    spans_are_copied_to_the_run_that_resumes,
    many_spans_come_back_each_once,
    readers_see_whole_appends_only,
];

fn append(store: &dyn Store, after: u64, events: &[Event]) -> Result<u64, StoreError> {
    store.append(&Append {
        after,
        events,
        spans: &[],
        copies: &[],
    })
}

fn clusters(from: u64, n: u64) -> Vec<Event> {
    let one = |i: u64| sample::document(&sample::place(), Kind::Compute, &format!("c{i}"), i);
    (from..from + n)
        .map(|i| sample::declared(&one(i)))
        .collect()
}

fn spans_of(store: &dyn Store, job: &JobId) -> BTreeMap<u32, (String, Span)> {
    let mut all = BTreeMap::new();
    let mut take = |segment: &model::BlobPath, spans: &[Span]| {
        for span in spans {
            let old = all.insert(span.index, (segment.to_string(), *span));
            assert_eq!(old, None, "span {} came twice", span.index);
        }
    };
    store.spans(job, &mut take).expect("spans are read");
    all
}

fn an_empty_store_is_empty(open: Place<dyn Store>) {
    let store = open();
    let loaded = store.load().expect("an empty store loads");
    assert_eq!(loaded.seq, 0);
    assert_eq!(loaded.snapshot, None);
    assert!(loaded.tail.is_empty());
    assert!(store.workspaces().expect("listed").is_empty());
    let nobody = sample::job("nobody");
    assert_eq!(store.get(&DocKey::job(&nobody)).expect("read"), None);
    assert_eq!(store.record(&nobody).expect("read"), None);
    assert!(spans_of(store.as_ref(), &nobody).is_empty());
}

fn events_come_back_in_order_after_a_restart(open: Place<dyn Store>) {
    let (first, second) = (clusters(0, 3), clusters(3, 2));
    {
        let store = open();
        assert_eq!(append(store.as_ref(), 0, &first).expect("appended"), 3);
        assert_eq!(append(store.as_ref(), 3, &second).expect("appended"), 5);
    }
    let loaded = open().load().expect("loaded");
    assert_eq!(loaded.seq, 5);
    assert_eq!(loaded.tail, [first, second].concat());
}

fn an_append_after_another_number_is_refused_and_changes_nothing(open: Place<dyn Store>) {
    let store = open();
    append(store.as_ref(), 0, &clusters(0, 2)).expect("appended");
    let job = sample::job("late");
    for after in [0, 1, 3, u64::MAX] {
        let refused = store.append(&Append {
            after,
            events: &[sample::submitted(&job, 1)],
            spans: &[(job.clone(), sample::path("s/x"), vec![sample::span(1)])],
            copies: &[],
        });
        match refused {
            Err(StoreError::Conflict { have: 2, expected }) => assert_eq!(expected, after),
            other => panic!("an append after {after} of 2 gave {other:?}"),
        }
    }
    assert_eq!(store.load().expect("loaded").tail, clusters(0, 2));
    assert_eq!(store.get(&DocKey::job(&job)).expect("read"), None);
    assert!(spans_of(store.as_ref(), &job).is_empty());
    append(store.as_ref(), 2, &clusters(2, 1)).expect("the store goes on");
}

fn an_append_of_nothing_checks_the_number(open: Place<dyn Store>) {
    let store = open();
    append(store.as_ref(), 0, &clusters(0, 2)).expect("appended");
    assert_eq!(append(store.as_ref(), 2, &[]).expect("nothing to do"), 2);
    assert!(matches!(
        append(store.as_ref(), 1, &[]),
        Err(StoreError::Conflict {
            have: 2,
            expected: 1
        })
    ));
}

fn a_checkpoint_and_the_tail_are_the_whole_log(open: Place<dyn Store>) {
    let all = clusters(0, 10);
    {
        let store = open();
        append(store.as_ref(), 0, &all[..7]).expect("appended");
        store.checkpoint(4, b"after four").expect("kept");
        append(store.as_ref(), 7, &all[7..]).expect("appended");
    }
    {
        let store = open();
        let loaded = store.load().expect("loaded");
        assert_eq!(loaded.snapshot.as_deref(), Some(&b"after four"[..]));
        assert_eq!(loaded.tail, all[4..]);
        assert_eq!(loaded.seq, 10);
        store.checkpoint(10, b"after ten").expect("kept");
    }
    let store = open();
    let loaded = store.load().expect("loaded");
    assert_eq!(loaded.snapshot.as_deref(), Some(&b"after ten"[..]));
    assert!(loaded.tail.is_empty());
    assert_eq!(loaded.seq, 10, "the number outlives the events");
    let last = sample::document(&sample::place(), Kind::Compute, "c9", 9);
    assert_eq!(
        store.get(&last.key).expect("read"),
        Some(last),
        "documents outlive the events that wrote them"
    );
    assert_eq!(
        append(store.as_ref(), 10, &clusters(0, 1)).expect("goes on"),
        11
    );
}

fn an_older_checkpoint_is_refused(open: Place<dyn Store>) {
    let store = open();
    append(store.as_ref(), 0, &clusters(0, 5)).expect("appended");
    store.checkpoint(3, b"three").expect("kept");
    for at in [2, 6] {
        let refused = store.checkpoint(at, b"wrong");
        assert!(
            matches!(refused, Err(StoreError::Conflict { expected, .. }) if expected == at),
            "a checkpoint at {at} was taken: {refused:?}"
        );
    }
    let loaded = store.load().expect("loaded");
    assert_eq!(loaded.snapshot.as_deref(), Some(&b"three"[..]));
    assert_eq!(loaded.tail.len(), 2);
}

fn records_and_spans_of_a_run_are_kept_until_it_is_removed(open: Place<dyn Store>) {
    let (job, other) = (sample::job("Train-1"), sample::job("train-2"));
    let store = open();
    store
        .append(&Append {
            after: 0,
            events: &[sample::submitted(&job, 1), sample::submitted(&other, 2)],
            spans: &[(job.clone(), sample::path("s/a"), vec![sample::span(7)])],
            copies: &[],
        })
        .expect("appended");
    append(store.as_ref(), 2, &[sample::retired(&job)]).expect("appended");
    // N1: the case of a name does not tell runs apart.
    let shouted = sample::job("TRAIN-1");
    assert_eq!(
        store.record(&shouted).expect("read"),
        Some(sample::record(&job))
    );
    assert_eq!(store.record(&other).expect("read"), None);
    assert_eq!(spans_of(store.as_ref(), &shouted).len(), 1);
    assert!(store.get(&DocKey::job(&shouted)).expect("read").is_some());

    let gone = sample::withdrawn(&DocKey::job(&shouted));
    append(store.as_ref(), 3, &[gone]).expect("appended");
    assert_eq!(store.record(&job).expect("read"), None);
    assert!(spans_of(store.as_ref(), &job).is_empty());
    assert_eq!(store.get(&DocKey::job(&job)).expect("read"), None);
    assert!(store.get(&DocKey::job(&other)).expect("read").is_some());
}

fn spans_are_copied_to_the_run_that_resumes(open: Place<dyn Store>) {
    let (old, new) = (sample::job("old"), sample::job("new"));
    let (a, b) = (sample::path("seg/a"), sample::path("seg/b"));
    let store = open();
    let first: Vec<Span> = (0..5).map(sample::span).collect();
    store
        .append(&Append {
            after: 0,
            events: &[sample::taken(&old, Ranges::span(0, 5))],
            spans: &[(old.clone(), a.clone(), first)],
            copies: &[],
        })
        .expect("appended");
    store
        .append(&Append {
            after: 1,
            events: &[
                sample::submitted(&new, 1),
                sample::taken(&new, Ranges::span(5, 6)),
            ],
            spans: &[(new.clone(), b.clone(), vec![sample::span(5)])],
            copies: &[(old.clone(), new.clone())],
        })
        .expect("appended");
    let all = spans_of(store.as_ref(), &new);
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(all[&4], (a.to_string(), sample::span(4)));
    assert_eq!(all[&5], (b.to_string(), sample::span(5)));
    // The copy is a copy: the old run may go.
    let gone = sample::withdrawn(&DocKey::job(&old));
    append(store.as_ref(), 3, &[gone]).expect("appended");
    assert!(spans_of(store.as_ref(), &old).is_empty());
    assert_eq!(spans_of(store.as_ref(), &new).len(), 6);
}

fn many_spans_come_back_each_once(open: Place<dyn Store>) {
    let (job, n) = (sample::job("many"), 3_000);
    {
        let store = open();
        for first in (0..n).step_by(30) {
            let spans: Vec<Span> = (first..first + 30).map(sample::span).collect();
            store
                .append(&Append {
                    after: u64::from(first / 30),
                    events: &[sample::taken(&job, Ranges::span(first, first + 30))],
                    spans: &[(
                        job.clone(),
                        sample::path(&format!("s/{}", first % 2)),
                        spans,
                    )],
                    copies: &[],
                })
                .expect("appended");
        }
    }
    let all = spans_of(open().as_ref(), &job);
    assert_eq!(all.len(), n as usize);
    assert!(all.iter().all(|(i, (_, span))| *span == sample::span(*i)));
}

fn readers_see_whole_appends_only(open: Place<dyn Store>) {
    let store = open();
    let stop = AtomicBool::new(false);
    let both = |generation: u64| -> Vec<Document> {
        ["left", "right"]
            .map(|name| Document {
                generation,
                ..sample::document(&sample::place(), Kind::Compute, name, 1)
            })
            .to_vec()
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let seen = pair(&store);
                    if let [left, right] = &seen[..] {
                        assert_eq!(left.generation, right.generation, "half an append was seen");
                        assert!(left.generation >= last, "a reader went back in time");
                        last = left.generation;
                    }
                }
            });
        }
        for generation in 1..=100 {
            let events: Vec<Event> = both(generation).iter().map(sample::declared).collect();
            let after = 2 * (generation - 1);
            append(store.as_ref(), after, &events).expect("appended");
            assert_eq!(
                pair(&store)[0].generation,
                generation,
                "what was acknowledged is read"
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn pair(store: &Arc<dyn Store>) -> Vec<Document> {
    let page = crate::Page {
        workspace: sample::place(),
        kind: Kind::Compute,
        parent: None,
        newest_first: false,
        after: None,
        limit: 10,
    };
    store.page(&page).expect("read").0
}
