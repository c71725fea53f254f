//! Datastores that were attached: a folder of this machine, and a bucket of a small server that speaks as much of S3 as is asked.

use model::BlobPath;
use port::{BlobError, Blobs};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
};
use store::{Attached, DataFolder, Folder, Storage};

fn blobs(data: &Path) -> Attached {
    let folder = DataFolder::open(data).unwrap();
    Attached::new(Arc::new(Folder::open(&folder).unwrap())).unwrap()
}

fn path(text: &str) -> BlobPath {
    BlobPath::new(text).unwrap()
}

fn text(blobs: &Attached, at: &str) -> String {
    String::from_utf8(blobs.read(&path(at), 1 << 20).unwrap()).unwrap()
}

fn names(blobs: &Attached, at: &str) -> Vec<String> {
    let mut all = Vec::new();
    blobs
        .walk(&path(at), &mut |p| all.push(p.as_str().to_owned()))
        .unwrap();
    all
}

#[test]
fn a_folder_is_brought_as_it_is_now_and_nothing_twice() {
    let data = tempfile::tempdir().unwrap();
    let there = tempfile::tempdir().unwrap();
    fs::create_dir(there.path().join("in")).unwrap();
    for (name, content) in [("in/a", "1"), ("in/b", "2"), ("other", "3")] {
        fs::write(there.path().join(name), content).unwrap();
    }
    let blobs = blobs(data.path());
    assert!(blobs.is_far(&path("own/x")), "nothing is known yet");
    blobs
        .attach("c-d1", &Storage::Folder(there.path().to_owned()))
        .unwrap();
    blobs.ready();
    assert!(blobs.is_far(&path("c-d1/in")) && !blobs.is_far(&path("own/x")));

    blobs.bring(&path("c-d1/in")).unwrap();
    assert_eq!(names(&blobs, "c-d1"), ["c-d1/in/a", "c-d1/in/b"]);
    let before = blobs.info(&path("c-d1/in/a")).unwrap();

    // R1 and R2: what changed is brought, what did not is not, what is gone goes
    fs::write(there.path().join("in/b"), "longer").unwrap();
    fs::write(there.path().join("in/c"), "new").unwrap();
    blobs.bring(&path("c-d1/in")).unwrap();
    assert_eq!(text(&blobs, "c-d1/in/b"), "longer");
    assert_eq!(blobs.info(&path("c-d1/in/a")).unwrap().etag, before.etag);
    fs::remove_file(there.path().join("in/c")).unwrap();
    blobs.bring(&path("c-d1/in")).unwrap();
    assert_eq!(names(&blobs, "c-d1/in"), ["c-d1/in/a", "c-d1/in/b"]);

    blobs.bring(&path("c-d1/other")).unwrap();
    assert_eq!(text(&blobs, "c-d1/other"), "3");
    let nothing = blobs.bring(&path("c-d1/none")).unwrap_err();
    assert!(matches!(nothing, BlobError::NotFound(_)), "{nothing}");

    // R4, also of a blob that is sent in parts
    let large = vec![b'x'; 20 << 20];
    blobs.put(&path("own/big"), &large).unwrap();
    blobs.send(&path("own/big"), &path("c-d1/out/big")).unwrap();
    assert_eq!(fs::read(there.path().join("out/big")).unwrap(), large);
    blobs.put(&path("own/big"), b"small").unwrap();
    blobs.send(&path("own/big"), &path("c-d1/out/big")).unwrap();
    assert_eq!(fs::read(there.path().join("out/big")).unwrap(), b"small");
    assert_eq!(fs::read(there.path().join("in/a")).unwrap(), b"1");

    blobs.detach("c-d1");
    assert!(!blobs.is_far(&path("c-d1/in")));
    assert!(blobs.send(&path("own/big"), &path("c-d1/out/big")).is_err());
}

/// Objects by key.
type Objects = Arc<Mutex<BTreeMap<String, String>>>;

/// Answers the requests of one connection: lists, heads and gets, for whoever signs with the key `AKID`.
fn serve(stream: TcpStream, objects: &Objects) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut signed = false;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let lower = line.to_lowercase();
            signed |= lower.starts_with("authorization: aws4-hmac-sha256 credential=akid/");
            if let Some(n) = lower.strip_prefix("content-length:") {
                length = n.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut sent = vec![0; length];
        reader.read_exact(&mut sent)?;
        let mut words = first.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (at, query) = target.split_once('?').unwrap_or((target, ""));
        let key = at.strip_prefix("/bucket").unwrap().trim_start_matches('/');
        if method == "PUT" && signed {
            let text = String::from_utf8(sent).unwrap();
            objects.lock().unwrap().insert(key.to_owned(), text);
        }
        let objects = objects.lock().unwrap().clone();
        let (status, body, etag) = if !signed {
            ("403 Forbidden", String::new(), String::new())
        } else if query.contains("list-type=2") {
            let prefix = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("prefix="))
                .unwrap_or_default()
                .replace("%2F", "/");
            let items: String = objects
                .iter()
                .filter(|(key, _)| key.starts_with(&prefix))
                .map(|(key, content)| {
                    format!(
                        "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                         <ETag>\"{content}\"</ETag><Size>{}</Size></Contents>",
                        content.len()
                    )
                })
                .collect();
            let body = format!("<ListBucketResult>{items}</ListBucketResult>");
            ("200 OK", body, String::new())
        } else {
            match objects.get(key) {
                Some(content) => ("200 OK", content.clone(), format!("\"{content}\"")),
                None => ("404 Not Found", String::new(), String::new()),
            }
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: {etag}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n",
            body.len()
        )?;
        if method != "HEAD" {
            stream.write_all(body.as_bytes())?;
        }
    }
}

#[test]
fn a_bucket_is_brought_with_its_key_and_refused_without() {
    let objects: Objects = Arc::default();
    for (key, content) in [("in/a.txt", "one"), ("in/b/c.txt", "two"), ("out.txt", "x")] {
        objects.lock().unwrap().insert(key.into(), content.into());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let shown = objects.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let objects = shown.clone();
            std::thread::spawn(move || drop(serve(stream, &objects)));
        }
    });

    let data = tempfile::tempdir().unwrap();
    let blobs = blobs(data.path());
    blobs.ready();
    let bucket = |key: Option<(&str, &str)>| Storage::S3 {
        endpoint: Some(endpoint.clone()),
        region: "us-east-1".into(),
        bucket: "bucket".into(),
        key: key.map(|(id, secret)| (id.to_owned(), secret.to_owned())),
    };
    blobs
        .attach("c-d1", &bucket(Some(("AKID", "secret"))))
        .unwrap();
    blobs.bring(&path("c-d1/in")).unwrap();
    assert_eq!(names(&blobs, "c-d1"), ["c-d1/in/a.txt", "c-d1/in/b/c.txt"]);
    assert_eq!(text(&blobs, "c-d1/in/b/c.txt"), "two");
    objects
        .lock()
        .unwrap()
        .insert("in/a.txt".into(), "ONE".into());
    blobs.bring(&path("c-d1/in/a.txt")).unwrap();
    assert_eq!(text(&blobs, "c-d1/in/a.txt"), "ONE");

    // R4: what is sent is there under its names, and nothing else is touched
    for (name, content) in [("own/staged/a.txt", "1"), ("own/staged/x/y z.txt", "2")] {
        blobs.put(&path(name), content.as_bytes()).unwrap();
    }
    blobs.send(&path("own/staged"), &path("c-d1/out")).unwrap();
    blobs.send(&path("own/staged"), &path("c-d1/out")).unwrap();
    let all = objects.lock().unwrap().clone();
    assert_eq!(all.get("out/a.txt").map(String::as_str), Some("1"));
    assert_eq!(all.get("out/x/y%20z.txt").map(String::as_str), Some("2"));
    assert_eq!(all.get("out.txt").map(String::as_str), Some("x"));
    assert_eq!(all.len(), 5, "{all:?}");

    blobs.attach("c-d1", &bucket(None)).unwrap();
    let refused = blobs
        .send(&path("own/staged"), &path("c-d1/out"))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("403"), "{refused}");
    assert!(!refused.contains("secret"), "{refused}");
    let refused = blobs.bring(&path("c-d1/in")).unwrap_err().to_string();
    assert!(refused.contains("403"), "{refused}");
    assert!(!refused.contains("secret"), "{refused}");
}

/// R4: nobody makes the server ask what its machine is told its secrets at, by an address or by a redirect to one.
#[test]
fn r4_where_machines_are_told_their_secrets_is_no_storage() {
    let data = tempfile::tempdir().unwrap();
    let blobs = blobs(data.path());
    blobs.ready();
    let bucket = |endpoint: &str| Storage::S3 {
        endpoint: Some(endpoint.to_owned()),
        region: "us-east-1".into(),
        bucket: "latest".into(),
        key: None,
    };
    let container = |endpoint: &str| Storage::Azure {
        endpoint: endpoint.to_owned(),
        account: "a".into(),
        container: "latest".into(),
        credential: store::AzureCredential::None,
    };
    for endpoint in [
        "http://169.254.169.254",
        "http://2852039166",
        "http://[::ffff:169.254.169.254]:80",
    ] {
        for storage in [bucket(endpoint), container(endpoint)] {
            let refused = blobs.attach("c-d1", &storage).unwrap_err();
            assert!(refused.contains("and no storage"), "{endpoint}: {refused}");
        }
    }

    // A storage that sends its clients there, and counts them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            while head
                .next()
                .is_some_and(|line| line.is_ok_and(|l| !l.is_empty()))
            {}
            let to = "http://169.254.169.254/latest/meta-data/";
            let answer = format!(
                "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    for storage in [bucket(&endpoint), container(&endpoint)] {
        blobs.attach("c-d1", &storage).unwrap();
        let refused = blobs.bring(&path("c-d1/in")).unwrap_err().to_string();
        assert!(refused.contains("redirect"), "{refused}");
    }
}
