//! The blob protocol, asked as the storage SDK asks it.

use crate::server::*;
use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use md5::{Digest, Md5};
use serde_json::Value;
use std::sync::atomic::Ordering;

/// A container that a signature opens.
pub struct Store {
    pub s: Server,
    pub url: String,
    pub sas: String,
}

impl Store {
    pub async fn new() -> Store {
        let s = server();
        let path = format!("{WS}/codes/c/versions/1/startPendingUpload");
        let pending = s.ask("POST", &path, Value::Null).await.is(200).json();
        let reference = &pending["blobReferenceForConsumption"];
        let sas = reference["credential"]["sasUri"].as_str().unwrap();
        Store {
            url: reference["blobUri"].as_str().unwrap().to_owned(),
            sas: sas.split_once('?').unwrap().1.to_owned(),
            s,
        }
    }
    pub async fn call(
        &self,
        method: &str,
        name: &str,
        query: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Got {
        let url = format!("{}/{name}?{query}&{}", self.url, self.sas);
        self.s.call(method, &url, headers, body).await
    }
    pub async fn put(&self, name: &str, body: impl Into<Body>) -> Got {
        self.call("PUT", name, "", &[("x-ms-blob-type", "BlockBlob")], body)
            .await
    }
    pub async fn get(&self, name: &str) -> Got {
        self.call("GET", name, "", &[], Body::empty()).await
    }
    pub async fn list(&self, query: &str) -> String {
        let url = format!(
            "{}?restype=container&comp=list&{query}&{}",
            self.url, self.sas
        );
        self.s
            .call("GET", &url, &[], Body::empty())
            .await
            .is(200)
            .text()
    }
}

pub fn md5(bytes: &[u8]) -> String {
    STANDARD.encode(Md5::digest(bytes))
}

pub fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    text.split(open)
        .skip(1)
        .filter_map(|part| part.split(close).next())
        .collect()
}

#[tokio::test]
async fn a_blob_goes_in_and_comes_out() {
    let b = Store::new().await;
    b.call("HEAD", "Dir/File%20one.TXT", "", &[], Body::empty())
        .await
        .is(404);
    let put = b.put("Dir/File%20one.TXT", "hello").await.is(201);
    assert_eq!(put.header("content-md5"), md5(b"hello"));
    let head = b
        .call("HEAD", "Dir/File%20one.TXT", "", &[], Body::empty())
        .await
        .is(200);
    assert_eq!(
        (head.header("content-length"), head.header("etag")),
        ("5", put.header("etag"))
    );
    assert_eq!(head.header("x-ms-blob-type"), "BlockBlob");
    assert_eq!(b.get("Dir/File%20one.TXT").await.is(200).text(), "hello");
    let missing = b.get("dir/file%20one.txt").await.is(404);
    assert_eq!(missing.header("x-ms-error-code"), "BlobNotFound");
    assert!(missing.text().contains("<Code>BlobNotFound</Code>"));

    let part = b
        .call(
            "GET",
            "Dir/File%20one.TXT",
            "",
            &[("x-ms-range", "bytes=1-3")],
            Body::empty(),
        )
        .await
        .is(206);
    assert_eq!(
        (part.text().as_str(), part.header("content-range")),
        ("ell", "bytes 1-3/5")
    );
    b.put("empty", Body::empty()).await.is(201);
    let empty = b
        .call(
            "GET",
            "empty",
            "",
            &[("x-ms-range", "bytes=0-33554431")],
            Body::empty(),
        )
        .await
        .is(416);
    assert_eq!(empty.header("x-ms-error-code"), "InvalidRange");
    assert_eq!(b.get("empty").await.is(200).bytes, b"");
    b.call("DELETE", "empty", "", &[], Body::empty())
        .await
        .is(202);
    b.get("empty").await.is(404);
    b.call("DELETE", "empty", "", &[], Body::empty())
        .await
        .is(404);
}

#[tokio::test]
async fn conditions_and_checksums_are_kept() {
    let b = Store::new().await;
    let wrong = md5(b"other");
    let put = |headers: Vec<(&'static str, String)>, body: &'static str| {
        let b = &b;
        async move {
            let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
            b.call("PUT", "x", "", &headers, body).await
        }
    };
    let got = put(vec![("content-md5", wrong)], "one").await.is(400);
    assert_eq!(got.header("x-ms-error-code"), "Md5Mismatch");
    b.get("x").await.is(404);
    put(
        vec![("content-md5", md5(b"one")), ("if-none-match", "*".into())],
        "one",
    )
    .await
    .is(201);
    assert_eq!(
        put(vec![("if-none-match", "*".into())], "two")
            .await
            .is(409)
            .header("x-ms-error-code"),
        "BlobAlreadyExists"
    );
    let etag = b.get("x").await.header("etag").to_owned();
    put(vec![("if-match", "\"nonsense\"".into())], "two")
        .await
        .is(412);
    put(vec![("if-match", etag.clone())], "two").await.is(201);
    put(vec![("if-match", etag)], "three").await.is(412);
    let got = b.get("x").await;
    assert_eq!(got.text(), "two");
    let unchanged = b
        .call(
            "GET",
            "x",
            "",
            &[("if-none-match", got.header("etag"))],
            Body::empty(),
        )
        .await;
    assert_eq!((unchanged.status, unchanged.bytes.len()), (304, 0));
    b.call("PUT", "y", "", &[("x-ms-blob-type", "PageBlob")], "")
        .await
        .is(400);
    b.call(
        "PUT",
        "y",
        "",
        &[("x-ms-copy-source", "http://127.0.0.1/")],
        "",
    )
    .await
    .is(400);
    b.call("PUT", "y", "comp=lease", &[], "").await.is(400);
}

#[tokio::test]
async fn metadata_is_kept_and_listed() {
    let b = Store::new().await;
    b.put("src/a.py", "1").await.is(201);
    b.call(
        "PUT",
        "src/a.py",
        "comp=metadata",
        &[
            ("x-ms-meta-Upload_Status", "completed"),
            ("x-ms-meta-name", "m<1>"),
        ],
        "",
    )
    .await
    .is(200);
    let head = b
        .call("HEAD", "src/a.py", "", &[], Body::empty())
        .await
        .is(200);
    assert_eq!(head.header("x-ms-meta-upload_status"), "completed");
    let xml = b.list("prefix=src/&include=metadata").await;
    assert!(
        xml.contains("<upload_status>completed</upload_status>"),
        "{xml}"
    );
    assert!(xml.contains("<name>m&lt;1&gt;</name>"), "{xml}");
    assert!(!b.list("prefix=src/").await.contains("upload_status"));
    b.call("PUT", "src/none", "comp=metadata", &[], "")
        .await
        .is(404);
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_no_blob() {
    let b = Store::new().await;
    let pieces = [
        Ok("half"),
        Err(std::io::Error::other("the client went away")),
    ];
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    b.put("x", body).await.is(400);
    b.get("x").await.is(404);
}

#[tokio::test]
async fn listings_have_prefixes_delimiters_and_pages() {
    let b = Store::new().await;
    for name in ["a/1", "a/2", "a/b/3", "a-b", "a.txt", "ab/4", "z"] {
        b.put(name, "x").await.is(201);
    }
    let names = |xml: &str| -> Vec<String> {
        between(xml, "<Name>", "</Name>")
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        names(&b.list("").await),
        ["a-b", "a.txt", "a/1", "a/2", "a/b/3", "ab/4", "z"]
    );
    assert_eq!(names(&b.list("prefix=a/").await), ["a/1", "a/2", "a/b/3"]);
    assert_eq!(
        names(&b.list("prefix=a").await),
        ["a-b", "a.txt", "a/1", "a/2", "a/b/3", "ab/4"]
    );
    assert_eq!(names(&b.list("prefix=z").await), ["z"]);
    assert_eq!(names(&b.list("prefix=a/b").await), ["a/b/3"]);
    assert_eq!(
        names(&b.list("delimiter=/").await),
        ["a-b", "a.txt", "a/", "ab/", "z"]
    );
    assert_eq!(
        names(&b.list("prefix=a/&delimiter=/").await),
        ["a/1", "a/2", "a/b/"]
    );
    assert_eq!(
        names(&b.list("prefix=nothing/here/").await),
        Vec::<String>::new()
    );
    assert_eq!(names(&b.list("prefix=a//..").await), Vec::<String>::new());
    for query in [
        "maxresults=2",
        "maxresults=1&delimiter=/",
        "maxresults=2&prefix=a",
    ] {
        let whole = names(&b.list(&query.replace("maxresults", "x")).await);
        let (mut seen, mut marker) = (Vec::new(), String::new());
        loop {
            let xml = b.list(&format!("{query}&marker={marker}")).await;
            seen.extend(names(&xml));
            marker = between(&xml, "<NextMarker>", "</NextMarker>")
                .first()
                .map_or(String::new(), |m| m.replace('=', "%3D").replace('+', "%2B"));
            if marker.is_empty() {
                break;
            }
        }
        assert_eq!(seen, whole, "{query}");
    }
    let got =
        b.s.call(
            "GET",
            &format!("{}?restype=container&comp=list&marker=!&{}", b.url, b.sas),
            &[],
            Body::empty(),
        )
        .await;
    assert_eq!(got.status, 400);
}

#[tokio::test]
async fn a_signature_opens_its_own_container_only() {
    let b = Store::new().await;
    b.put("x", "1").await.is(201);
    let other = Store {
        url: Store::new().await.url,
        sas: b.sas.clone(),
        s: server(),
    };
    other.put("x", "1").await.is(403);
    let late = b.sas.replace("se=", "se=1");
    b.s.call("GET", &format!("{}/x?{late}", b.url), &[], Body::empty())
        .await
        .is(403);
    b.s.call("GET", &format!("{}/x", b.url), &[], Body::empty())
        .await
        .is(401);

    let token = format!("Bearer {TOKEN}");
    let bearer = [("authorization", token.as_str())];
    assert_eq!(
        b.s.call("GET", &format!("{}/x", b.url), &bearer, Body::empty())
            .await
            .is(200)
            .text(),
        "1"
    );
    let with_suffix = b
        .url
        .replace("/storage/zaffre/", "/storage/zaffre/.blob.core.local/");
    assert_eq!(
        b.s.call("GET", &format!("{with_suffix}/x"), &bearer, Body::empty())
            .await
            .is(200)
            .text(),
        "1"
    );
    // segments, listings and pending blocks belong to nobody's workspace
    let runs = wire::places::Places::of(job("j").workspace())
        .runs()
        .to_string();
    for container in [runs.as_str(), "pending-blocks", "nobody-blobs"] {
        let got =
            b.s.call(
                "GET",
                &format!("/storage/zaffre/{container}/x"),
                &bearer,
                Body::empty(),
            )
            .await
            .is(404);
        assert_eq!(got.header("x-ms-error-code"), "ContainerNotFound");
    }
    b.s.call(
        "GET",
        "/storage/other/some-container/x",
        &bearer,
        Body::empty(),
    )
    .await
    .is(404);
}

#[tokio::test]
async fn names_that_could_leave_the_container_are_refused() {
    let b = Store::new().await;
    for name in [
        "../x",
        "a/../../x",
        "%2e%2e/x",
        "a/%2E%2E/x",
        "a//b",
        "a/./b",
        "x/",
        "a%00b",
        "..%2f..%2fetc%2fpasswd",
    ] {
        let got = b.put(name, "x").await;
        assert_eq!(got.status, 400, "{name}: {}", got.text());
    }
    b.put("folder/x", "x").await.is(201);
    for name in ["folder/", "folder", "a//b", "../x"] {
        let got = b.get(name).await.is(404);
        assert_eq!(got.header("x-ms-error-code"), "BlobNotFound", "{name}");
    }
    for container in ["UPPER", "..", "a", "x.y", "%2e%2e"] {
        let got =
            b.s.call(
                "GET",
                &format!("/storage/zaffre/{container}/x?{}", b.sas),
                &[],
                Body::empty(),
            )
            .await;
        assert_eq!(got.status, 400, "{container}");
    }
    b.put("学習/データ", "x").await;
    b.put("%E5%AD%A6/%E7%BF%92%0A%22", "x").await.is(201);
    assert!(b.list("").await.contains("<Name>学/習&#10;\"</Name>"));
}

#[tokio::test]
async fn b4_nothing_is_taken_while_the_disk_is_short() {
    let store = Store::new().await;
    store.put("kept", "old").await.is(201);
    store.s.short.store(true, Ordering::SeqCst);
    let block = format!("comp=block&blockid={}", STANDARD.encode("1"));
    let list = "<BlockList></BlockList>";
    for (query, body) in [
        ("", "new"),
        (&block, "new"),
        ("comp=blocklist", list),
        ("comp=metadata", ""),
    ] {
        let headers = [("x-ms-blob-type", "BlockBlob"), ("x-ms-meta-a", "b")];
        let got = store
            .call("PUT", "kept", query, &headers, body)
            .await
            .is(507);
        assert_eq!(got.headers["retry-after"], "1");
        assert!(
            got.text().contains("<Message>the disk is short</Message>"),
            "{}",
            got.text()
        );
    }
    store.put("new", "new").await.is(507);
    store.s.cluster("c01", 0, 1).await.is(507);
    assert_eq!(store.get("kept").await.is(200).text(), "old");
    assert!(!store.list("").await.contains("<Name>new"));
    store.s.short.store(false, Ordering::SeqCst);
    store.put("new", "new").await.is(201);
    store.s.cluster("c01", 0, 1).await.is(201);
}

#[tokio::test]
async fn a_copy_reads_its_source_with_a_signature_of_the_source() {
    let b = Store::new().await;
    b.put("from", "bytes").await.is(201);
    let copy = async |source: &str| {
        let headers = [("x-ms-copy-source", source)];
        b.call("PUT", "to", "", &headers, Body::empty()).await
    };
    let from = format!("{}/from", b.url);
    copy(&from).await.is(403); // the signature of the target opens no source
    copy(&format!("{from}?{}", b.sas.replace("sp=", "sp=w")))
        .await
        .is(403);
    copy(&format!("{from}?{}", b.sas).replace("zaffre.test", "other.test"))
        .await
        .is(400);
    copy(&format!("{}/none?{}", b.url, b.sas)).await.is(404);
    copy(&format!("{}/%2e%2e/x?{}", b.url, b.sas)).await.is(404);
    copy("/etc/passwd").await.is(400);
    let made = copy(&format!("{from}?{}", b.sas)).await.is(202);
    assert_eq!(made.header("x-ms-copy-status"), "success");
    assert_eq!(b.get("to").await.is(200).text(), "bytes");
}

#[tokio::test]
async fn what_is_said_of_the_content_is_kept_with_it() {
    let b = Store::new().await;
    let typed = [
        ("x-ms-blob-content-type", "text/own"),
        ("x-ms-blob-cache-control", "no-store"),
        ("x-ms-meta-a", "b"),
    ];
    b.call("PUT", "x.json", "", &typed, "{}").await.is(201);
    let got = b.get("x.json").await.is(200);
    assert_eq!(
        (got.header("content-type"), got.header("cache-control")),
        ("text/own", "no-store")
    );
    assert!(!got.headers.keys().any(|k| k.as_str().contains(':')));
    b.call(
        "PUT",
        "x.json",
        "comp=metadata",
        &[("x-ms-meta-c", "d")],
        "",
    )
    .await
    .is(200);
    let got = b.get("x.json").await;
    assert_eq!(
        (got.header("content-type"), got.header("x-ms-meta-c")),
        ("text/own", "d")
    );
    b.call(
        "PUT",
        "x.json",
        "comp=properties",
        &[("x-ms-blob-content-language", "ja")],
        "",
    )
    .await
    .is(200);
    let got = b.get("x.json").await;
    assert_eq!(
        (got.header("content-language"), got.header("x-ms-meta-c")),
        ("ja", "d")
    );
    assert_eq!(
        got.header("content-type"),
        "application/json",
        "the one that was not said went"
    );
    let listed = b.list("include=metadata").await;
    assert!(
        listed.contains("<Content-Language>ja</Content-Language>"),
        "{listed}"
    );
    assert!(listed.contains("<Metadata><c>d</c></Metadata>"), "{listed}");
}

#[tokio::test]
async fn a_page_says_how_large_the_next_one_is() {
    let b = Store::new().await;
    for name in ["a", "b", "c"] {
        b.put(name, name).await.is(201);
    }
    let page = b.list("maxresults=2").await;
    assert!(page.contains("<MaxResults>2</MaxResults>"), "{page}");
    let marker = between(&page, "<NextMarker>", "</NextMarker>")[0].to_owned();
    let next = b.list(&format!("maxresults=2&marker={marker}")).await;
    assert!(
        next.contains(&format!("<Marker>{marker}</Marker>")),
        "{next}"
    );
    assert_eq!(between(&next, "<Name>", "</Name>"), ["c"]);
}

/// What random requests beside Azurite brought to light (F5); each kept with what was asked.
#[tokio::test]
async fn f5_small_things_are_answered_as_the_protocol_has_them() {
    let b = Store::new().await;
    let code = |got: &Got| got.header("x-ms-error-code").to_owned();
    b.put("there", "bytes").await.is(201);
    b.call("PUT", "there", "comp=metadata", &[("x-ms-meta-a", "b")], "")
        .await
        .is(200);
    let metadata = b
        .call("GET", "there", "comp=metadata", &[], "")
        .await
        .is(200);
    assert_eq!(
        (metadata.text().as_str(), metadata.header("x-ms-meta-a")),
        ("", "b")
    );

    // how others keep a blob is said by its owner or by nobody
    assert_eq!(b.get("there").await.is(200).header("cache-control"), "");

    // a tag of what is not there is no tag that it has; what must not be there cannot be read
    let none = b
        .call("GET", "none", "", &[("if-match", "\"1\"")], "")
        .await
        .is(412);
    assert_eq!(code(&none), "ConditionNotMet");
    for name in ["there", "none"] {
        let read = b
            .call("GET", name, "", &[("if-none-match", "*")], "")
            .await
            .is(400);
        assert_eq!(code(&read), "UnsatisfiableCondition", "{name}");
    }
    b.call("DELETE", "none", "", &[("if-match", "*")], "")
        .await
        .is(412);

    // the digest of a block list is of the list; an unfinished blob has no tag, a finished one has
    b.call("PUT", "joined", "comp=block&blockid=YQ%3D%3D", &[], "x")
        .await
        .is(201);
    let query = "comp=blocklist&blocklisttype=uncommitted";
    assert_eq!(
        b.call("GET", "joined", query, &[], "")
            .await
            .is(200)
            .header("etag"),
        ""
    );
    let list = "<BlockList><Latest>YQ==</Latest></BlockList>";
    let joined = b
        .call("PUT", "joined", "comp=blocklist", &[], list)
        .await
        .is(201);
    assert_eq!(joined.header("content-md5"), md5(list.as_bytes()));
    let listed = b.call("GET", "joined", query, &[], "").await.is(200);
    assert_eq!(listed.header("etag"), joined.header("etag"));

    // a copy says that it is one, until it has another content or other settings
    let copy = async |from: &str, headers: &[(&str, &str)]| {
        let source = format!("{}/{from}?{}", b.url, b.sas);
        let headers = [&[("x-ms-copy-source", source.as_str())], headers].concat();
        b.call("PUT", "copy", "", &headers, Body::empty()).await
    };
    // first what is copied, then where it goes
    let made = copy("there", &[]).await.is(202);
    let missing = copy("none", &[("if-none-match", "*")]).await.is(404);
    assert_eq!(code(&missing), "CannotVerifyCopySource");
    let status = async || {
        let got = b.call("HEAD", "copy", "", &[], "").await.is(200);
        (
            got.header("x-ms-copy-id").to_owned(),
            got.header("x-ms-copy-status").to_owned(),
        )
    };
    assert_eq!(
        status().await,
        (made.header("x-ms-copy-id").to_owned(), "success".to_owned())
    );
    b.call("PUT", "copy", "comp=metadata", &[], "")
        .await
        .is(200);
    assert_eq!(status().await.1, "success");
    b.call("PUT", "copy", "comp=properties", &[], "")
        .await
        .is(200);
    assert_eq!(status().await.1, "");
}

/// Two conditions at once, as random requests beside Azurite found them (F5).
#[tokio::test]
async fn f5_conditions_go_together_as_the_protocol_has_it() {
    // The clock of this store begins here, and each write is a millisecond.
    const PAST: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
    const FUTURE: &str = "Fri, 01 Jan 2100 00:00:00 GMT";
    const TAG: &str = "the one that it has";
    let b = Store::new().await;
    for _ in 0..2_000 {
        b.put("x", "1").await.is(201);
    }
    let (since, not_since) = ("if-modified-since", "if-unmodified-since");
    let (is, is_not) = ("if-match", "if-none-match");
    for (one, two, read, write) in [
        // a write takes a tag and the time of its direction, and goes by the tag
        ((is, TAG), (not_since, PAST), 412, 201),
        ((is, "\"0\""), (not_since, FUTURE), 412, 412),
        ((is_not, "\"0\""), (since, FUTURE), 200, 201),
        ((is_not, TAG), (since, PAST), 200, 412),
        ((is_not, TAG), (since, FUTURE), 304, 412),
        // and nothing else
        ((is, TAG), (since, PAST), 200, 400),
        ((is, TAG), (is_not, "\"0\""), 200, 400),
        ((since, PAST), (not_since, FUTURE), 200, 400),
    ] {
        for (method, query, expected) in [
            ("GET", "", read),
            ("PUT", "", write),
            (
                "PUT",
                "comp=metadata",
                if write == 201 { 200 } else { write },
            ),
        ] {
            let tag = b.put("x", "1").await.is(201).header("etag").to_owned();
            let of = |(name, value)| (name, if value == TAG { tag.as_str() } else { value });
            let mut headers = vec![of(one), of(two)];
            if method == "PUT" {
                headers.push(("x-ms-blob-type", "BlockBlob"));
            }
            let got = b.call(method, "x", query, &headers, "").await;
            assert_eq!(
                got.status,
                expected,
                "{method} {query} {one:?} {two:?}: {}",
                got.text()
            );
        }
    }
}
