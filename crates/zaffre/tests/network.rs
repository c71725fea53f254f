//! The stock `azure-ai-ml` behind a bad network: every exchange of a program loses its answer once, and some have the other fates of
//! `support/network.rs` in turn. Afterwards there is one of everything, and the program was told of nothing but the network.
//!
//! `ZAFFRE_NETWORK=all` gives every fate to every exchange.

mod support;

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
};
use support::{
    Server,
    network::{Ends, FATES, Fate, Network},
    plain::{Plain, WS},
    python::python,
    repository,
    site::LONG,
};

/// Plays of the program at a time: most of each is a client that waits before it asks again.
const AT_ONCE: usize = 12;

/// Every so many exchanges one has another fate, too. No divisor of the number of fates, so that each has its turn.
const OTHERS: usize = 3;

/// The process that plays the program.
struct Player {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Player {
    fn start(server: &Server) -> Player {
        let home = server.folder.join("python-home");
        fs::create_dir_all(&home).unwrap();
        // As in a shell that has read `zaffre env`; only the address is another.
        let env: Value = serde_json::from_str(&server.ok(&["env", "--json"])).unwrap();
        let cloud = env["AZUREML_CURRENT_CLOUD"].as_str().unwrap();
        let log = fs::File::create(server.folder.join("python.log")).unwrap();
        let mut child = Command::new(python())
            .arg(repository().join("tests/sdk/repeated.py"))
            .current_dir(&server.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .env("ZAFFRE_URL", &server.url)
            .env("ZAFFRE_DATA", server.data())
            .env("AT_ONCE", AT_ONCE.to_string())
            .env("HOME", home)
            .env("TMPDIR", &server.folder)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("NO_PROXY", "*")
            .env("AZUREML_CURRENT_CLOUD", cloud)
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Player { child, answers }
    }

    fn begin(&mut self, name: &str, url: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{name} {url}").unwrap();
    }

    fn ended(&mut self, server: &Server) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| {
            let log = fs::read_to_string(server.folder.join("python.log"));
            panic!("{error}: {line:?}: {}", log.unwrap_or_default())
        })
    }
}

/// Names of what there is at a path, over all pages.
fn names(plain: &Plain, path: &str) -> Vec<String> {
    let (mut all, mut next) = (vec![], Some(format!("{WS}/{path}")));
    while let Some(path) = next {
        let answer = plain.ask("GET", &path, &[], "").unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let list = answer.json();
        let items = list["value"].as_array().unwrap().iter();
        all.extend(items.map(|item| item["name"].as_str().unwrap().to_owned()));
        next = list["nextLink"].as_str().map(|link| {
            let path = link.split_once("://").unwrap().1;
            path[path.find('/').unwrap()..].to_owned()
        });
    }
    all
}

/// One of everything that a play with this name makes; the job ran, and ran once.
fn is_there_once(server: &Server, plain: &Plain, name: &str, told: &str) {
    for (path, mine) in [
        ("computes", format!("c-{name}")),
        ("jobs", format!("j-{name}")),
        ("data", format!("d-{name}")),
        ("models", format!("m-{name}")),
        ("environments", format!("e-{name}")),
    ] {
        let all = names(plain, path);
        let count = all.iter().filter(|found| **found == mine).count();
        assert_eq!(count, 1, "{told}: {mine} in {path}");
        if !matches!(path, "computes" | "jobs") {
            let versions = names(plain, &format!("{path}/{mine}/versions"));
            assert_eq!(versions, ["1"], "{told}: {mine}");
        }
    }
    let job = format!("j-{name}");
    server.wait(&format!("{told}: {job}"), LONG, |server| {
        let path = format!("{WS}/jobs/{job}");
        let answer = plain.ask("GET", &path, &[], "").unwrap().json();
        let status = answer["properties"]["status"].as_str().unwrap();
        assert!(
            !matches!(status, "Failed" | "Canceled"),
            "{told}: {job} is {status}: {}",
            server.log()
        );
        status == "Completed"
    });
    let gone = plain
        .ask(
            "DELETE",
            &format!("{WS}/computes/c-{name}?underlyingResourceAction=Delete"),
            &[],
            "",
        )
        .unwrap();
    assert_eq!(gone.status, 202, "{}", gone.text());
}

#[test]
fn a_program_of_the_sdk_over_a_bad_network_makes_everything_once() {
    let server = Server::start();
    let ends = Ends::of(&server.url, &server.data());
    let plain = Plain::of(&server.url, &server.token());
    let mut player = Player::start(&server);

    let clean = Network::start(&ends, None);
    player.begin("clean", &clean.url);
    let answer = player.ended(&server);
    assert_eq!(answer["error"], Value::Null, "{answer}");
    let exchanges = clean.close();
    is_there_once(&server, &plain, "clean", "no fault");
    assert!(exchanges.len() > 20, "{exchanges:#?}");

    let all = std::env::var("ZAFFRE_NETWORK").is_ok_and(|value| value == "all");
    let mut wanted = Vec::new();
    for at in 0..exchanges.len() {
        for (n, fate) in FATES.into_iter().enumerate() {
            // Every answer is lost once; the other fates take turns at some of them.
            let turn = at % OTHERS == 0 && n == 1 + at % (FATES.len() - 1);
            if all || fate == Fate::Lost || turn {
                wanted.push((at, fate));
            }
        }
    }
    let mut waiting: BTreeMap<String, (usize, Fate, Arc<Network>)> = BTreeMap::new();
    let mut told_of_it = 0;
    let mut rest = wanted.iter();
    loop {
        while waiting.len() < AT_ONCE {
            let Some((at, fate)) = rest.next() else { break };
            let name = format!("{fate:?}-{at}").to_lowercase();
            let network = Network::start(&ends, Some((*at, *fate)));
            player.begin(&name, &network.url);
            waiting.insert(name, (*at, *fate, network));
        }
        if waiting.is_empty() {
            break;
        }
        let answer = player.ended(&server);
        let name = answer["name"].as_str().unwrap().to_owned();
        let (at, fate, network) = waiting.remove(&name).unwrap();
        let seen = network.close();
        let what = seen.get(at).map_or("nothing", String::as_str);
        let told = format!("{fate:?} at {at}: {what}");
        assert_eq!(answer["error"], Value::Null, "{told}: {answer}\n{seen:#?}");
        let network = answer["network"].as_array().unwrap();
        // The SDK repeats by itself what may be repeated. It does not for a POST, for a blob that must be new, for the question
        // where its cloud is, and for an answer whose head has come.
        if !network.is_empty() {
            told_of_it += 1;
            let never_repeated = what.starts_with("POST ")
                || what.contains("/storage/")
                || what.ends_with("/metadata/endpoints");
            assert!(never_repeated || fate == Fate::Cut, "{told}: {network:?}");
        }
        is_there_once(&server, &plain, &name, &told);
    }
    drop(player.child.stdin.take());
    assert!(player.child.wait().unwrap().success());
    // One content, one code, however often it was sent.
    assert_eq!(names(&plain, "codes").len(), 1 + wanted.len());
    drop(writeln!(
        std::io::stderr(),
        "{} exchanges, {} plays, {told_of_it} begun again",
        exchanges.len(),
        wanted.len()
    ));
    server.stop();
}
