//! F10: a snapshot of code is a folder of blobs, and there is no archive that anybody unpacks. Whatever names are sent, what was
//! taken lies below its container under exactly its name, reaches the job and comes back so, and nothing appears elsewhere.

mod support;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};
use support::{
    Server,
    plain::{Plain, WS},
    site::LONG,
};

/// Names that are sent, beside those that a test wants to see refused or taken.
const NAMES: u64 = 1_500;
/// Parts of names, as they stand in a URL.
const PARTS: [&str; 34] = [
    "a",
    "A",
    "b.py",
    "b.PY",
    "c",
    "d",
    "e",
    "..",
    ".",
    "",
    "...",
    "%2e%2e",
    "%2E.",
    "..%2f..",
    "%2f",
    "%5c..%5c",
    "C:",
    "C%3A%5Cx",
    "%00",
    "x%00.py",
    "%ff",
    "%c3%28",
    "%ed%a0%80",
    "%0a",
    "%09",
    "con",
    "~",
    "$HOME",
    "-rf",
    "*",
    "%25",
    "%252e%252e",
    "%C3%A9",
    "e%CC%81",
];

struct Draw(u64);

impl Draw {
    /// Splitmix64.
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }
    fn name(&mut self) -> String {
        let parts: Vec<&str> = (0..=self.below(4))
            .map(|_| PARTS[self.below(PARTS.len())])
            .collect();
        parts.join("/")
    }
}

/// The files below a folder, links and all, by their path in it.
fn files(root: &Path, at: &Path, all: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        assert!(!kind.is_symlink(), "{} is a link", path.display());
        if kind.is_dir() {
            files(root, &path, all);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            all.insert(name.to_owned(), fs::read(&path).unwrap_or_default());
        }
    }
}

/// Everything of the server and beside it, but for the container and what the server writes by itself.
fn others(server: &Server, container: &str) -> BTreeSet<String> {
    let mut all = BTreeMap::new();
    files(&server.folder, &server.folder, &mut all);
    let own = [
        format!("data/blobs/{container}/"),
        "data/blobs/.meta/".to_owned(),
    ];
    let kept = |name: &String| !own.iter().any(|own| name.starts_with(own));
    all.into_keys().filter(kept).collect()
}

#[test]
fn f10_whatever_names_are_sent_nothing_leaves_its_folder() {
    let server = Server::start();
    fs::write(server.folder.join("canary"), "untouched").unwrap();
    server.ok(&["compute", "create", "-n", "c01", "--type", "amlcompute"]);
    let plain = Plain::of(&server.url, &server.token());
    let ask = |method: &str, path: &str, body: &Value| -> Value {
        let answer = plain.ask(method, path, &[], &body.to_string()).unwrap();
        assert!(
            answer.status < 300,
            "{path}: {} {}",
            answer.status,
            answer.text()
        );
        answer.json()
    };
    let begin = format!("{WS}/codes/snapshot/versions/1/startPendingUpload");
    let pending = ask("POST", &begin, &json!({}));
    let place = &pending["blobReferenceForConsumption"];
    let uri = place["blobUri"].as_str().unwrap();
    let sas = place["credential"]["sasUri"].as_str().unwrap();
    let sas = sas.split_once('?').unwrap().1;
    let container = uri.rsplit('/').next().unwrap();
    let signed = Plain {
        token: String::new(),
        ..plain.clone()
    };

    let before = others(&server, container);
    let mut taken = BTreeMap::<String, Vec<u8>>::new();
    let mut refused = 0;
    let mut put = |sent: &str| -> u16 {
        let path = format!("/storage/zaffre/{container}/{sent}?{sas}");
        let headers = [("x-ms-blob-type", "BlockBlob")];
        let answer = signed.ask("PUT", &path, &headers, sent).unwrap();
        if answer.status != 201 {
            assert!(
                (400..500).contains(&answer.status),
                "{sent}: {} {}",
                answer.status,
                answer.text()
            );
            refused += 1;
            return answer.status;
        }
        let name = percent_decode_str(sent).decode_utf8();
        let name = name.unwrap_or_else(|_| panic!("{sent} is no text and was taken"));
        let known = name.split('/').all(|part| !["", ".", ".."].contains(&part));
        assert!(known && !name.contains('\0'), "{sent} was taken");
        taken.insert(name.into_owned(), sent.as_bytes().to_vec());
        201
    };
    for sent in [
        "../x",
        "%2e%2e/x",
        "..%2fx",
        "/etc/x",
        "a%00b",
        "%ff",
        "..",
        "a/../../x",
        "a//x",
    ] {
        assert_ne!(put(sent), 201, "{sent}");
    }
    // The longest names that a file system takes, and those above.
    let long = |text: &str, count: usize| text.repeat(count);
    let escaped = |count| utf8_percent_encode(&"長".repeat(count), NON_ALPHANUMERIC).to_string();
    for (sent, expected) in [
        (long("x", 255), 201),
        (long("x", 256), 400),
        (escaped(85), 201),
        (escaped(86), 400),
        (long("deep/", 100) + "x", 201),
        (long("deep/", 300) + "x", 400),
        (long("longest/", 140), 400),
        ("Case/x".to_owned(), 201),
        ("case/x".to_owned(), 201),
        ("back%5cslash".to_owned(), 201),
    ] {
        assert_eq!(put(&sent), expected, "{sent}");
    }
    let mut draw = Draw(0xf10);
    for _ in 0..NAMES {
        let name = draw.name();
        put(&name);
    }
    assert!(
        taken.len() > 100 && refused > 500,
        "{} taken, {refused} refused",
        taken.len()
    );

    let on_disk = |at: &Path| {
        let mut all = BTreeMap::new();
        files(at, at, &mut all);
        all
    };
    let names = |all: &BTreeMap<String, Vec<u8>>| all.keys().cloned().collect::<BTreeSet<_>>();
    let stored = on_disk(&server.data().join("blobs").join(container));
    assert_eq!(names(&stored), names(&taken));
    assert_eq!(stored, taken);
    assert_eq!(
        others(&server, container),
        before,
        "something lies elsewhere"
    );

    // The job has what was sent, and what it keeps comes back.
    ask(
        "PUT",
        &format!("{WS}/codes/snapshot/versions/1"),
        &json!({"properties": {"codeUri": uri}}),
    );
    let image = json!({"properties": {"image": "library/python:latest"}});
    ask(
        "PUT",
        &format!("{WS}/environments/plain/versions/1"),
        &image,
    );
    let command = "mkdir -p outputs/all && find . -mindepth 1 -maxdepth 1 ! -name outputs -exec cp -r -t outputs/all -- {} +";
    ask(
        "PUT",
        &format!("{WS}/jobs/copier"),
        &json!({"properties": {
            "jobType": "Command",
            "command": command,
            "codeId": format!("{WS}/codes/snapshot/versions/1"),
            "computeId": format!("{WS}/computes/c01"),
            "environmentId": format!("{WS}/environments/plain/versions/1"),
        }}),
    );
    server.wait("the job is over", LONG, |server| {
        let status = server.value(&["job", "show", "-n", "copier"], "status");
        let log = || server.run(&["job", "stream", "-n", "copier"]);
        assert!(
            status != "Failed" && status != "Canceled",
            "{status}: {:?}",
            log()
        );
        status == "Completed"
    });
    server.ok(&["job", "download", "-n", "copier", "-p", "back"]);
    let back = on_disk(&server.folder.join("back/artifacts/outputs/all"));
    assert_eq!(names(&back), names(&taken));
    assert_eq!(back, taken);
    assert_eq!(
        fs::read(server.folder.join("canary")).unwrap(),
        b"untouched"
    );
    server.stop();
}
