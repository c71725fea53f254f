//! Documents are linearizable while the server is killed again and again (T18; I1, D3, W1, W2).
//!
//! Eight clients write, read and remove the same few documents with and without conditions, and note for each request when it
//! was sent and when its answer was there. For each document there must be an order of the requests that agrees with those
//! times and in which every answer is right for one register. A request without an answer may have been carried out, at any
//! time after it was sent, or not at all.

mod support;

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use support::{
    Server,
    plain::{Answer, LONG, Plain, WS},
};

const CLIENTS: u64 = 8;
const REQUESTS: u64 = 250;
const DOCUMENTS: u64 = 20;
const KILLS: u64 = 5;
/// Documents that are in use at the same time, so that the clients meet.
const TOGETHER: u64 = 3;
/// Requests of a client before it goes on to the next documents.
const STAY: u64 = 25;
const SEED: u64 = 0x5eed_0f18;

/// What a document holds: each write has a text of its own.
type Text = u64;
/// The register: the text of the document, if there is one.
type State = Option<Text>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    Absent,
    Present,
    /// The ETag that came with this text.
    Is(Text),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Get,
    Put(Text, When),
    Delete(When),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Found(Text),
    Nothing,
    Made,
    Written,
    Removed,
    /// The condition does not hold.
    Refused,
}

/// A request, with ticks of one clock.
#[derive(Clone, Copy, Debug)]
struct Noted {
    client: u64,
    asked: Asked,
    sent: u64,
    /// `None` when it was never answered.
    answered: Option<(u64, Said)>,
}

/// The register.
fn apply(state: State, asked: Asked) -> (State, Said) {
    let holds = |when: When| match when {
        When::Always => true,
        When::Absent => state.is_none(),
        When::Present => state.is_some(),
        When::Is(text) => state == Some(text),
    };
    match asked {
        Asked::Get => (state, state.map_or(Said::Nothing, Said::Found)),
        Asked::Put(_, when) | Asked::Delete(when) if !holds(when) => (state, Said::Refused),
        Asked::Put(text, _) if state.is_none() => (Some(text), Said::Made),
        Asked::Put(text, _) => (Some(text), Said::Written),
        Asked::Delete(_) if state.is_none() => (None, Said::Nothing),
        Asked::Delete(_) => (None, Said::Removed),
    }
}

/// Whether the requests to one document can be put in an order (Wing and Gong; what was tried is not tried again, as Lowe does).
fn linearizable(all: &[Noted]) -> bool {
    fn go(
        all: &[Noted],
        taken: &mut Vec<bool>,
        state: State,
        tried: &mut HashSet<(Vec<bool>, State)>,
    ) -> bool {
        let open = |taken: &[bool]| {
            let left = all.iter().zip(taken).filter(|(_, taken)| !**taken);
            left.filter_map(|(noted, _)| noted.answered)
                .map(|(at, _)| at)
                .min()
        };
        // The next one was sent before any that is left was answered.
        let Some(first_answer) = open(taken) else {
            return true;
        };
        for at in 0..all.len() {
            if taken[at] || all[at].sent > first_answer {
                continue;
            }
            let (next, said) = apply(state, all[at].asked);
            if all[at].answered.is_some_and(|(_, heard)| heard != said) {
                continue;
            }
            taken[at] = true;
            if tried.insert((taken.clone(), next)) && go(all, taken, next, tried) {
                return true;
            }
            taken[at] = false;
        }
        false
    }
    go(all, &mut vec![false; all.len()], None, &mut HashSet::new())
}

fn shown(all: &[Noted]) -> String {
    all.iter().fold(String::new(), |mut out, noted| {
        let end = noted
            .answered
            .map_or("no answer".into(), |(at, said)| format!("{at}: {said:?}"));
        let _ = writeln!(
            out,
            "client {} at {}: {:?} → {end}",
            noted.client, noted.sent, noted.asked
        );
        out
    })
}

#[test]
fn the_checker_tells_right_histories_from_wrong_ones() {
    let noted = |asked, sent, answered| Noted {
        client: 0,
        asked,
        sent,
        answered,
    };
    let put = |text, when, sent, at, said| noted(Asked::Put(text, when), sent, Some((at, said)));
    let get = |sent, at, said| noted(Asked::Get, sent, Some((at, said)));
    let made = put(1, When::Always, 1, 2, Said::Made);
    let written = put(2, When::Is(1), 3, 4, Said::Written);
    assert!(linearizable(&[made, written, get(5, 6, Said::Found(2))]));
    assert!(
        !linearizable(&[made, written, get(5, 6, Said::Found(1))]),
        "a stale read"
    );
    assert!(
        !linearizable(&[made, get(3, 4, Said::Nothing)]),
        "what was answered is lost"
    );
    assert!(
        !linearizable(&[made, written, put(3, When::Is(1), 5, 6, Said::Written)]),
        "a lost update"
    );
    // Two at the same time: either order, but one order for all.
    let one = put(1, When::Always, 1, 9, Said::Made);
    let other = put(2, When::Always, 2, 8, Said::Written);
    let both = [
        one,
        other,
        get(3, 4, Said::Found(1)),
        get(5, 6, Said::Found(2)),
    ];
    assert!(linearizable(&both));
    let back = [
        one,
        other,
        get(3, 4, Said::Found(2)),
        get(5, 6, Said::Found(1)),
    ];
    assert!(!linearizable(&back), "a reader goes back in time");
    // Without an answer: it happened or not, and late is as good as early, but it does not come and go.
    let silent = noted(Asked::Put(7, When::Always), 3, None);
    for end in [
        &[][..],
        &[get(5, 6, Said::Found(1))],
        &[get(5, 6, Said::Found(7))],
    ] {
        assert!(linearizable(&[&[made, silent], end].concat()));
    }
    let late = [
        made,
        silent,
        get(5, 6, Said::Found(1)),
        get(7, 8, Said::Found(7)),
    ];
    assert!(linearizable(&late));
    let flickers = [
        made,
        silent,
        get(5, 6, Said::Found(7)),
        get(7, 8, Said::Found(1)),
    ];
    assert!(!linearizable(&flickers));
    // An ETag of a document that was removed is not the one of its successor.
    let removed = noted(Asked::Delete(When::Is(1)), 3, Some((4, Said::Removed)));
    let again = put(2, When::Absent, 5, 6, Said::Made);
    assert!(!linearizable(&[
        made,
        removed,
        again,
        put(3, When::Is(1), 7, 8, Said::Written)
    ]));
    assert!(linearizable(&[
        made,
        removed,
        again,
        put(3, When::Is(1), 7, 8, Said::Refused)
    ]));
}

/// What all clients share.
struct Site {
    /// The server, as it is reached now.
    server: Mutex<Plain>,
    /// Ticks at each note.
    clock: AtomicU64,
    texts: AtomicU64,
    /// Requests that were sent.
    sent: AtomicU64,
}

struct Client<'a> {
    site: &'a Site,
    name: u64,
    random: u64,
    /// ETags that it was given, with what they came with, newest last.
    tags: BTreeMap<u64, Vec<(String, Text)>>,
    notes: Vec<(u64, Noted)>,
}

impl Client<'_> {
    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn run(mut self) -> Vec<(u64, Noted)> {
        for n in 0..REQUESTS {
            let document = (n / STAY * TOGETHER + self.draw(TOGETHER)) % DOCUMENTS;
            let (asked, tag) = self.choose(document);
            self.carry_out(document, asked, tag.as_deref());
        }
        self.notes
    }

    /// What to ask for, and the ETag to send with it.
    fn choose(&mut self, document: u64) -> (Asked, Option<String>) {
        let kind = self.draw(100);
        if kind < 30 {
            return (Asked::Get, None);
        }
        // An old ETag now and then: a request with it must be refused.
        let back = 1 + usize::try_from(self.draw(3)).unwrap();
        let known = self.tags.get(&document);
        let known = known.and_then(|all| all.get(all.len().saturating_sub(back)).cloned());
        let text = self.site.texts.fetch_add(1, Ordering::SeqCst);
        match (kind, known) {
            (30..60, Some((tag, is))) => (Asked::Put(text, When::Is(is)), Some(tag)),
            (60..65, Some((tag, is))) => (Asked::Delete(When::Is(is)), Some(tag)),
            (65..75, _) => (Asked::Put(text, When::Absent), None),
            (75..80, _) => (Asked::Put(text, When::Present), None),
            (80..90, _) => (Asked::Delete(When::Always), None),
            _ => (Asked::Put(text, When::Always), None),
        }
    }

    fn carry_out(&mut self, document: u64, asked: Asked, tag: Option<&str>) {
        let path = format!("{WS}/environments/e{document}/versions/1");
        let (method, body, when) = match asked {
            Asked::Get => ("GET", String::new(), When::Always),
            Asked::Put(text, when) => ("PUT", document_of(text), when),
            Asked::Delete(when) => ("DELETE", String::new(), when),
        };
        let condition = match when {
            When::Always => None,
            When::Absent => Some(("if-none-match", "*")),
            When::Present => Some(("if-match", "*")),
            When::Is(_) => Some(("if-match", tag.expect("an ETag is known"))),
        };
        let since = Instant::now();
        let (server, stream) = loop {
            let server = self.site.server.lock().unwrap().clone();
            match server.connect() {
                Ok(stream) => break (server, stream),
                // It was killed, and is not there again.
                Err(error) => assert!(since.elapsed() < LONG, "no server: {error}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        self.site.sent.fetch_add(1, Ordering::SeqCst);
        let sent = self.site.clock.fetch_add(1, Ordering::SeqCst);
        let answer = server.ask_on(stream, method, &path, condition.as_slice(), &body);
        let at = self.site.clock.fetch_add(1, Ordering::SeqCst);
        let said = answer
            .ok()
            .map(|answer| self.heard(document, asked, &answer));
        let noted = Noted {
            client: self.name,
            asked,
            sent,
            answered: said.map(|said| (at, said)),
        };
        self.notes.push((document, noted));
    }

    fn heard(&mut self, document: u64, asked: Asked, answer: &Answer) -> Said {
        let text = || {
            let found = answer.json()["properties"]["tags"]["text"].clone();
            found.as_str().unwrap().parse::<Text>().unwrap()
        };
        let said = match (asked, answer.status) {
            (Asked::Get, 200) => Said::Found(text()),
            (Asked::Get, 404) | (Asked::Delete(_), 204) => Said::Nothing,
            (Asked::Put(..), 201) => Said::Made,
            (Asked::Put(..), 200) => Said::Written,
            (Asked::Delete(_), 200) => Said::Removed,
            (Asked::Put(..) | Asked::Delete(_), 412) => Said::Refused,
            (_, status) => panic!("{asked:?} → {status} {}", answer.text()),
        };
        if let (Asked::Get, Said::Found(text)) | (Asked::Put(text, _), Said::Made | Said::Written) =
            (asked, said)
        {
            let tag = answer.header("etag").expect("an ETag").to_owned();
            self.tags.entry(document).or_default().push((tag, text));
        }
        if let Asked::Put(sent, _) = asked
            && matches!(said, Said::Made | Said::Written)
        {
            assert_eq!(text(), sent, "an answer shows what was written");
        }
        said
    }
}

fn document_of(text: Text) -> String {
    serde_json::json!({"properties": {"image": "library/python:latest", "tags": {"text": text.to_string()}}})
        .to_string()
}

#[test]
fn documents_are_linearizable_while_the_server_is_killed() {
    let mut server = Server::start();
    let token = server.token();
    let site = Site {
        server: Mutex::new(Plain::of(&server.url, &token)),
        clock: AtomicU64::new(1),
        texts: AtomicU64::new(1),
        sent: AtomicU64::new(0),
    };
    let notes: Vec<(u64, Noted)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|name| {
                let client = Client {
                    site: &site,
                    name,
                    random: SEED + name,
                    tags: BTreeMap::new(),
                    notes: Vec::new(),
                };
                scope.spawn(move || client.run())
            })
            .collect();
        for kill in 1..=KILLS {
            let moment = kill * CLIENTS * REQUESTS / (KILLS + 1);
            while site.sent.load(Ordering::SeqCst) < moment
                && !clients
                    .iter()
                    .any(std::thread::ScopedJoinHandle::is_finished)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            server.restart();
            *site.server.lock().unwrap() = Plain::of(&server.url, &token);
        }
        let ended = clients.into_iter().map(|client| client.join().unwrap());
        ended.flatten().collect()
    });
    server.stop();

    let mut of_document: BTreeMap<u64, Vec<Noted>> = BTreeMap::new();
    for (document, noted) in notes {
        of_document.entry(document).or_default().push(noted);
    }
    for (document, all) in &mut of_document {
        all.sort_by_key(|noted| noted.sent);
        assert!(
            linearizable(all),
            "seed {SEED:#x}, document e{document}:\n{}",
            shown(all)
        );
    }
    // The test is worth something only if what it is about happened.
    let count = |wanted: &dyn Fn(&Noted) -> bool| {
        let all = of_document.values().flatten();
        all.filter(|noted| wanted(noted)).count()
    };
    let silent = count(&|noted| noted.answered.is_none());
    let refused = count(&|noted| matches!(noted.answered, Some((_, Said::Refused))));
    let removed = count(&|noted| matches!(noted.answered, Some((_, Said::Removed))));
    assert!(
        silent > 0 && refused > 50 && removed > 50,
        "{silent} without an answer, {refused} refused, {removed} removed"
    );
}
