//! The stored format of events (E3). `golden/events.jsonl` is that format: an event must become this text and be read
//! from it. A difference is a change of format: give old stores a way (a serde default, or a new version of the event),
//! say so in the commit, and write the file anew with `ZAFFRE_BLESS=1 cargo test -p store --test golden`.

use model::{BatchEvent, Event, NodeEvent, RunEvent};
use std::{collections::BTreeSet, path::Path};

#[path = "golden/samples.rs"]
mod samples;

/// As many names as `variant` has.
const VARIANTS: usize = 4 + 9 + 15 + 7;

/// The variant. Without a wildcard: a new one does not compile until it is here, and then it needs a sample.
fn variant(event: &Event) -> &'static str {
    match event {
        Event::Declared { .. } => "declared",
        Event::Withdrawn { .. } => "withdrawn",
        Event::ComputeGone { .. } => "compute gone",
        Event::CapacityHeld { .. } => "capacity held",
        Event::Node { event, .. } => match event {
            NodeEvent::Asked => "node asked",
            NodeEvent::Ready => "node ready",
            NodeEvent::Placed { .. } => "node placed",
            NodeEvent::Emptied => "node emptied",
            NodeEvent::Evicting { .. } => "node evicting",
            NodeEvent::Removing => "node removing",
            NodeEvent::Preempted => "node preempted",
            NodeEvent::Broke { .. } => "node broke",
            NodeEvent::Gone => "node gone",
        },
        Event::Run { event, .. } => match event {
            RunEvent::Submitted { .. } => "run submitted",
            RunEvent::Explained { .. } => "run explained",
            RunEvent::Placed { .. } => "run placed",
            RunEvent::Started { .. } => "run started",
            RunEvent::Stopping { .. } => "run stopping",
            RunEvent::TaskEnded { .. } => "run task ended",
            RunEvent::TaskLost { .. } => "run task lost",
            RunEvent::TaskRecalled { .. } => "run task recalled",
            RunEvent::Erred { .. } => "run erred",
            RunEvent::Canceling { .. } => "run canceling",
            RunEvent::Finished { .. } => "run finished",
            RunEvent::Retired { .. } => "run retired",
            RunEvent::ChildRefused { .. } => "run child refused",
            RunEvent::Measured { .. } => "run measured",
            RunEvent::Registered { .. } => "run registered",
        },
        Event::Batch { event, .. } => match event {
            BatchEvent::Listed { .. } => "batch listed",
            BatchEvent::Resumed { .. } => "batch resumed",
            BatchEvent::Lent { .. } => "batch lent",
            BatchEvent::Taken { .. } => "batch taken",
            BatchEvent::Failed { .. } => "batch failed",
            BatchEvent::Lost { .. } => "batch lost",
            BatchEvent::Published { .. } => "batch published",
        },
    }
}

#[test]
fn events_are_stored_as_this_text() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/events.jsonl");
    let events = samples::events();
    let covered: BTreeSet<_> = events.iter().map(variant).collect();
    assert_eq!(
        covered.len(),
        VARIANTS,
        "a variant has no sample, or VARIANTS is old"
    );

    let lines: Vec<String> = events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    if std::env::var_os("ZAFFRE_BLESS").is_some() {
        std::fs::write(&golden, lines.join("\n") + "\n").unwrap();
    }
    let text = std::fs::read_to_string(&golden).unwrap();
    let stored: Vec<&str> = text.lines().collect();
    assert_eq!(stored.len(), lines.len());
    for ((event, line), stored) in events.iter().zip(&lines).zip(stored) {
        assert_eq!(
            line,
            stored,
            "the stored format of {} has changed",
            variant(event)
        );
        let read: Event = serde_json::from_str(stored).unwrap();
        assert_eq!(
            read,
            *event,
            "{} is not read as it was written",
            variant(event)
        );
    }
}

#[test]
fn a_record_from_before_nodes_were_counted_is_read_with_none() {
    let stored = include_str!("golden/retired-without-given.json");
    let read: Event = serde_json::from_str(stored).unwrap();
    let Event::Run {
        event: RunEvent::Retired { record },
        ..
    } = read
    else {
        panic!("{read:?}")
    };
    assert_eq!((record.given, record.preemptions), (0, 5));
}
