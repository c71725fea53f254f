//! A network that loses answers, delivers late and delivers twice, between a server and a client that repeats what was not
//! answered, as the SDK does: one job, one asset, one cluster (N1, J1, V1).

mod support;

use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use support::{
    Server,
    plain::{Answer, Plain, WS},
    site::{LONG, deploy, fill, predictions},
};

/// What becomes of the first sending of a request; its repeat goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is carried out, and the answer is lost.
    Lost,
    /// It is delivered when its repeat has been answered.
    Overtaken,
    /// It is delivered twice at the same time, and no answer comes back.
    Doubled,
}

const FATES: [Fate; 3] = [Fate::Lost, Fate::Overtaken, Fate::Doubled];
/// Sendings of one request before the test gives up.
const TRIES: usize = 5;

const SCRIPT: &str = "\
import os
def init():
    pass
def run(mini_batch):
    return [os.path.basename(path) + ' ' + open(path).read() for path in mini_batch]
";

#[derive(Default)]
struct State {
    /// What awaits the next request.
    fate: Option<Fate>,
    /// Requests that wait to be delivered late.
    parked: usize,
    /// Whether they may go.
    released: bool,
}

/// The network.
struct Proxy {
    address: String,
    server: String,
    state: Mutex<State>,
    changed: Condvar,
    closed: AtomicBool,
}

impl Proxy {
    fn start(server: &str) -> Arc<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Arc::new(Proxy {
            address: listener.local_addr().unwrap().to_string(),
            server: server.split_once("://").unwrap().1.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
        });
        let shared = proxy.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.closed.load(Ordering::SeqCst) {
                    return;
                }
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(client.unwrap()));
            }
        });
        proxy
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // The listener waits for one more connection to see it.
        let _ = TcpStream::connect(&self.address);
    }

    fn serve(&self, mut client: TcpStream) {
        let Some(request) = whole_request(&mut client) else {
            return;
        };
        let fate = self.state.lock().unwrap().fate.take();
        match fate {
            None => {
                let answer = self.deliver(&request);
                let _ = client.write_all(&answer);
            }
            Some(Fate::Lost) => drop(self.deliver(&request)),
            Some(Fate::Doubled) => std::thread::scope(|scope| {
                scope.spawn(|| self.deliver(&request));
                self.deliver(&request);
            }),
            Some(Fate::Overtaken) => {
                drop(client);
                let mut state = self.state.lock().unwrap();
                state.parked += 1;
                while !state.released {
                    state = self.changed.wait(state).unwrap();
                }
                drop(state);
                self.deliver(&request);
                self.state.lock().unwrap().parked -= 1;
                self.changed.notify_all();
            }
        }
    }

    fn deliver(&self, request: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        let mut server = TcpStream::connect(&self.server).unwrap();
        server.write_all(request).unwrap();
        server.read_to_end(&mut answer).unwrap();
        answer
    }

    /// Delivers what was held back, and waits until it is.
    fn release(&self) {
        let mut state = self.state.lock().unwrap();
        state.released = true;
        self.changed.notify_all();
        while state.parked > 0 {
            state = self.changed.wait(state).unwrap();
        }
        state.released = false;
    }
}

/// The bytes of a request: its head, and as much body as it says.
fn whole_request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |text| text.trim().parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return Some(bytes);
            }
        }
        match client.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// A client behind the network.
struct Client {
    proxy: Arc<Proxy>,
    plain: Plain,
}

impl Client {
    /// Sends until there is an answer; the first sending has this fate.
    fn insist(
        &self,
        fate: Fate,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        self.proxy.state.lock().unwrap().fate = Some(fate);
        let body = body.to_string();
        let mut tries = 0;
        let answer = loop {
            tries += 1;
            assert!(tries <= TRIES, "{fate:?}: no answer to {method} {path}");
            if let Ok(answer) = self.plain.ask(method, path, headers, &body) {
                break answer;
            }
        };
        assert!(tries > 1, "{fate:?}: the first sending was answered");
        self.proxy.release();
        assert!(
            (200..300).contains(&answer.status),
            "{fate:?}: {method} {path}: {} {}",
            answer.status,
            answer.text()
        );
        answer
    }

    /// The names in a list, over all its pages.
    fn names(&self, path: &str) -> Vec<String> {
        let answer = self.plain.ask("GET", path, &[], "").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let list = answer.json();
        assert_eq!(list["nextLink"], Value::Null, "it is one page");
        let items = list["value"].as_array().unwrap().iter();
        let names = items.map(|item| item["name"].as_str().unwrap().to_owned());
        names.collect()
    }
}

#[test]
fn what_is_repeated_over_a_bad_network_is_there_once() {
    let server = Server::start();
    deploy(&server, SCRIPT, "");
    fill(&server.folder.join("in"), [("a", "1"), ("b", "2")]);
    let create = [
        "data",
        "create",
        "-n",
        "input",
        "--type",
        "uri_folder",
        "--path",
        "in",
    ];
    let input = server.value(&create, "path");
    let proxy = Proxy::start(&server.url);
    let client = Client {
        plain: Plain::of(&format!("http://{}", proxy.address), &server.token()),
        proxy,
    };
    let count = |path: &str, name: &str| {
        let all = client.names(&format!("{WS}/{path}"));
        all.iter().filter(|found| *found == name).count()
    };
    for fate in FATES {
        let name = format!("{fate:?}").to_lowercase();
        let data = json!({"properties": {"dataType": "uri_folder", "dataUri": input}});
        let path = format!("{WS}/data/{name}/versions/1");
        client.insist(fate, "PUT", &path, &[], &data);
        assert_eq!(client.names(&format!("{WS}/data/{name}/versions")), ["1"]);

        let cluster = json!({"location": "local", "properties": {"computeType": "AmlCompute", "properties": {
            "vmSize": "STANDARD_DS3_v2", "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 1}}}});
        client.insist(fate, "PUT", &format!("{WS}/computes/{name}"), &[], &cluster);
        assert_eq!(count("computes", &name), 1, "{fate:?}");

        let work = json!({"properties": {"jobType": "Command", "command": "echo once >> marks.txt; wc -l < marks.txt",
            "computeId": format!("{WS}/computes/{name}"), "environmentId": format!("{WS}/environments/plain/versions/1")}});
        let environment = json!({"properties": {"image": "library/python:latest"}});
        let path = format!("{WS}/environments/plain/versions/1");
        client.insist(fate, "PUT", &path, &[], &environment);
        client.insist(fate, "PUT", &format!("{WS}/jobs/job-{name}"), &[], &work);
        assert_eq!(count("jobs", &format!("job-{name}")), 1, "{fate:?}");

        let invoke = json!({"properties": {"inputData": {"in": {"jobInputType": "UriFolder", "uri": input}}}});
        let before = client.names(&format!("{WS}/jobs"));
        let id = [("repeatability-request-id", name.as_str())];
        let path = "/batch/00000000-0000-0000-0000-000000000000/default/default/scores/jobs";
        let answer = client.insist(fate, "POST", path, &id, &invoke);
        let made = answer.json()["name"].as_str().unwrap().to_owned();
        let after = client.names(&format!("{WS}/jobs"));
        let fresh: Vec<_> = after.iter().filter(|job| !before.contains(job)).collect();
        assert_eq!(fresh, [&made], "{fate:?}");
        for job in [&made, &format!("job-{name}")] {
            server.wait("the job is done", LONG, |server| {
                let status = server.value(&["job", "show", "-n", job], "status");
                assert!(
                    status != "Failed" && status != "Canceled",
                    "{job}: {status}"
                );
                status == "Completed"
            });
        }
        assert_eq!(predictions(&server, &made), b"a 1\nb 2\n", "{fate:?}");
    }
    client.proxy.close();
    server.stop();
}
