//! F5: random sequences of blob requests, played here and at Azurite: the same answers, but for what [`DIFFERENT`] names, and in
//! both the map from names to bytes that the answers promised.
//!
//! `ZAFFRE_BLOBS=N` plays N sequences instead of the few of every run, `ZAFFRE_BLOBS_SEED=N` the one with this seed.

mod support;

#[path = "blobs/play.rs"]
mod play;
#[path = "blobs/talk.rs"]
mod talk;

use play::{Op, Play};
use serde_json::Value;
use std::collections::BTreeMap;
use support::{
    Server, peer,
    plain::{Plain, WS},
    say,
};
use talk::{Reply, Side};

/// Sequences of an ordinary run.
const FEW: u64 = 40;
/// Requests of a sequence.
const STEPS: usize = 60;

/// A difference that is meant.
struct Different {
    /// What it is, and who is right.
    why: &'static str,
    /// What was asked, what differs, and the two answers.
    is: fn(&Op, &str, &Reply, &Reply) -> bool,
}

/// Everything that the two answer differently on purpose, or where the peer is not Azure.
const DIFFERENT: &[Different] = &[
    Different {
        why: "a spoilt signature of an account has a code of its own at the peer; ours is for a container",
        is: |op, what, ours, _| {
            matches!(op, Op::Unsigned { .. }) && what == "code" && ours.status == 403
        },
    },
    Different {
        why: "a wrong digest is Md5Mismatch at Azure and here",
        is: |_, what, ours, _| what == "code" && ours.code() == Some("Md5Mismatch"),
    },
    Different {
        why: "of a wrong digest and a condition that is not met either may be told",
        is: |op, _, ours, theirs| {
            let both = matches!(op, Op::Put { headers, conditions, .. }
                if !conditions.is_empty() && headers.iter().any(|(name, _)| name == "content-md5"));
            both && matches!(ours.status, 409 | 412) && theirs.status == 400
        },
    },
    Different {
        why: "the digest of all of a blob comes with a range of it, at Azure and here; at the peer always",
        is: |_, what, ours, _| what == "x-ms-blob-content-md5" && ours.status == 200,
    },
    Different {
        why: "a range that begins where the blob ends is none; the peer gives nothing as `bytes n-(n-1)/n`",
        is: |op, _, ours, theirs| {
            matches!(op, Op::Read { .. }) && (ours.status, theirs.status) == (416, 206)
        },
    },
    Different {
        why: "a blob of blocks has no digest unless it was given one; the peer counts it when it is read",
        is: |op, what, ours, _| {
            let read = matches!(op, Op::Read { head: false, .. });
            read && what == "content-md5" && ours.header(what).is_none()
        },
    },
    Different {
        why: "what a list of blocks has made in place of a copy is no copy, as Azure writes; the peer goes on saying so",
        is: |op, what, ours, _| {
            let read = matches!(op, Op::Read { .. });
            read && what == "x-ms-copy-status" && ours.header(what).is_none()
        },
    },
    Different {
        why: "GET of the metadata is of the metadata alone; the peer reads the blob",
        is: |op, what, ours, _| {
            let alone = matches!(
                op,
                Op::Read {
                    comp: "metadata",
                    ..
                }
            );
            alone && ours.status == 200 && !matches!(what, "status" | "metadata" | "etag")
        },
    },
    Different {
        why: "If-None-Match: * refuses a change of what is there, as Azure writes; the peer, and the Azure that it was made from, do not",
        is: |op, _, ours, theirs| {
            let changes = matches!(op, Op::Set { .. } | Op::Delete { .. });
            changes && ours.status == 412 && theirs.status < 300
        },
    },
    Different {
        why: "a page of 0 entries is refused by its rule, as at Azure; the peer does not say why",
        is: |op, _, ours, theirs| {
            let none = matches!(op, Op::List { query, .. } if query.contains("maxresults=0"));
            none && ours.status == 400 && matches!(theirs.status, 200 | 400)
        },
    },
    Different {
        why: "what only has blocks has neither ETag nor time yet; the peer tells one",
        is: |op, what, ours, _| {
            matches!(op, Op::Blocks { .. })
                && matches!(what, "etag" | "last-modified")
                && ours.header(what).is_none()
        },
    },
    Different {
        why: "what only has blocks is no blob yet and does not stand in the way of one that must be new; at the peer it does",
        is: |op, _, ours, theirs| {
            matches!(op, Op::Put { .. } | Op::Copy { .. })
                && (ours.status / 100, theirs.status) == (2, 409)
        },
    },
    Different {
        why: "a blob that was joined is one piece: but for a list that is sent again, none of its blocks is taken from it",
        is: |op, _, ours, theirs| {
            let list = matches!(op, Op::Commit { .. }) && theirs.status == 201;
            list && ours.code() == Some("InvalidBlockList")
        },
    },
    Different {
        why: "a list that is sent again writes nothing again; at the peer it makes a new ETag",
        is: |op, what, ours, theirs| {
            let list =
                matches!(op, Op::Commit { .. }) && (ours.status, theirs.status) == (201, 201);
            list && what == "a new etag" && ours.fresh == Some(false)
        },
    },
    Different {
        why: "what only has blocks is no blob yet and cannot be deleted; the peer deletes it",
        is: |op, what, ours, theirs| {
            matches!(op, Op::Delete { .. })
                && matches!(what, "status" | "code")
                && (ours.status, theirs.status) == (404, 202)
        },
    },
];

/// Each thing that differs in a pair of answers: what it is, and ours and theirs.
fn differences(op: &Op, ours: &Reply, theirs: &Reply) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let mut note = |what: &'static str, a: String, b: String| {
        if a != b {
            all.push((what, format!("{a} and {b}")));
        }
    };
    note("status", ours.status.to_string(), theirs.status.to_string());
    note(
        "code",
        format!("{:?}", ours.code()),
        format!("{:?}", theirs.code()),
    );
    for name in talk::HEADERS {
        let [a, b] = [ours, theirs].map(|reply| format!("{:?}", reply.header(name)));
        note(name, a, b);
    }
    for name in ["etag", "last-modified"] {
        let [a, b] = [ours, theirs].map(|reply| reply.header(name).is_some().to_string());
        note(name, a, b);
    }
    let [a, b] = [ours, theirs].map(|reply| format!("{:?}", reply.meta()));
    note("metadata", a, b);
    let [a, b] = [ours, theirs].map(|reply| format!("{:?}", reply.fresh));
    note("a new etag", a, b);
    if ours.status < 300 && theirs.status < 300 {
        let [a, b] = [ours, theirs].map(|reply| {
            if op.lists() {
                reply.listing()
            } else {
                String::from_utf8_lossy(&reply.body).into_owned()
            }
        });
        note("body", a, b);
    }
    all
}

/// The container of a datastore with a signature for it, as the SDK gets them.
fn ours(server: &Server) -> Side {
    let plain = Plain::of(&server.url, &server.token());
    let store = format!("{WS}/datastores/workspaceblobstore");
    let ask = |method: &str, path: &str| -> Value {
        let answer = plain.ask(method, path, &[], "").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let container = ask("GET", &store);
    let container = container["properties"]["containerName"].as_str().unwrap();
    let secrets = ask("POST", &format!("{store}/listSecrets"));
    Side::new(
        &server.url,
        &format!("/storage/zaffre/{container}"),
        secrets["sasToken"].as_str().unwrap(),
    )
}

#[test]
fn f5_random_requests_are_answered_as_the_peer_answers_them() {
    let Some(program) = peer::program() else {
        return;
    };
    let server = Server::start();
    let other = peer::Peer::start(&program, &server.folder);
    let mut sides = [ours(&server), Side::at_the_peer(&other.url)];
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    let seeds = match number("ZAFFRE_BLOBS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("ZAFFRE_BLOBS").unwrap_or(FEW),
    };
    let (mut asked, mut meant) = (0, BTreeMap::<&str, usize>::new());
    let mut found = BTreeMap::<String, (usize, String)>::new();
    'sequences: for seed in seeds {
        let mut play = Play::new(seed);
        for step in 0..STEPS {
            let op = play.next();
            let [a, b] = sides.each_mut().map(|side| side.ask(&op));
            asked += 1;
            for (what, values) in differences(&op, &a, &b) {
                let known = DIFFERENT.iter().find(|known| (known.is)(&op, what, &a, &b));
                if let Some(known) = known {
                    *meant.entry(known.why).or_default() += 1;
                    continue;
                }
                let told = format!(
                    "{what}: {values}\n  seed {seed} step {step}: {op:?}\n  ours {a:?}\n  theirs {b:?}\n  before: {:#?}",
                    play.told(&op)
                );
                let kind = format!("{} {what}", op.word());
                found.entry(kind).or_insert((0, told)).0 += 1;
            }
            if let Err(wrong) = play.took(&op, &a) {
                panic!("seed {seed} step {step}: {op:?}: {wrong}: {a:?}");
            }
            // Whatever differs in this leaves the two in different states.
            if a.status / 100 != b.status / 100 {
                continue 'sequences;
            }
        }
    }
    for (why, count) in &meant {
        say(&format!("{count} times, as meant: {why}"));
    }
    for (kind, (count, told)) in &found {
        say(&format!("=== {count} times {kind}: {told}"));
    }
    assert!(found.is_empty(), "{} kinds of differences", found.len());
    say(&format!("{asked} requests were answered alike"));
    drop(other);
    server.stop();
}
