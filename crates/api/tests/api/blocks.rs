//! Blobs that come in pieces: blocks with their list, and appends.

use crate::blobs::{Store, between};
use base64::{Engine as _, engine::general_purpose::STANDARD};

#[tokio::test]
async fn blocks_become_a_blob_in_the_order_of_the_list() {
    let b = Store::new().await;
    let id = |n: u8| STANDARD.encode([b'i', n]);
    let pieces: Vec<Vec<u8>> = (0..3_u8).map(|n| vec![b'a' + n; 700_000]).collect();
    for n in [2_u8, 0, 1] {
        let query = format!("comp=block&blockid={}", id(n).replace('=', "%3D"));
        b.call(
            "PUT",
            "big.bin",
            &query,
            &[],
            pieces[usize::from(n)].clone(),
        )
        .await
        .is(201);
    }
    b.get("big.bin").await.is(404);
    assert!(!b.list("").await.contains("<Blob>"), "blocks are not seen");
    let list = |ids: &[u8]| {
        let inner: String = ids
            .iter()
            .map(|n| format!("<Latest>{}</Latest>", id(*n)))
            .collect();
        format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{inner}</BlockList>")
    };
    let got = b
        .call("PUT", "big.bin", "comp=blocklist", &[], list(&[0, 9]))
        .await
        .is(400);
    assert_eq!(got.header("x-ms-error-code"), "InvalidBlockList");
    b.get("big.bin").await.is(404);
    b.call(
        "PUT",
        "big.bin",
        "comp=blocklist",
        &[("x-ms-blob-content-md5", "abc")],
        list(&[0, 1, 2]),
    )
    .await
    .is(201);
    let whole = b.get("big.bin").await.is(200);
    assert_eq!(whole.bytes, pieces.concat(), "2 MB come back in pieces");
    assert_eq!(whole.header("content-length"), "2100000");

    // What it was joined of is known, and may be joined again, with metadata between.
    let blocks = async |kind: &str| {
        let query = format!("comp=blocklist&blocklisttype={kind}");
        let got = b.call("GET", "big.bin", &query, &[], "").await.is(200);
        let text = got.text();
        let sizes = between(&text, "<Size>", "</Size>");
        (sizes.join(","), got.header("etag").to_owned(), text)
    };
    let (sizes, etag, _) = blocks("committed").await;
    let wanted: Vec<String> = pieces.iter().map(|p| p.len().to_string()).collect();
    assert_eq!(sizes, wanted.join(","));
    b.call(
        "PUT",
        "big.bin",
        "comp=metadata",
        &[("x-ms-meta-a", "b")],
        "",
    )
    .await
    .is(200);
    assert_eq!(blocks("committed").await.0, wanted.join(","));
    let stale = [("if-match", etag.as_str())];
    b.call("GET", "big.bin", "comp=blocklist", &stale, "")
        .await
        .is(412);
    b.call("PUT", "big.bin", "comp=blocklist", &stale, list(&[0]))
        .await
        .is(412);
    b.call(
        "PUT",
        "big.bin",
        &format!("comp=block&blockid={}", id(7).replace('=', "%3D")),
        &[],
        "seven",
    )
    .await
    .is(201);
    let (_, _, all) = blocks("all").await;
    assert!(
        all.contains("</CommittedBlocks><UncommittedBlocks><Block>"),
        "{all}"
    );
    let mixed = format!(
        "<BlockList><Uncommitted>{}</Uncommitted><Committed>{}</Committed></BlockList>",
        id(7),
        id(1)
    );
    b.call("PUT", "big.bin", "comp=blocklist", &[], mixed)
        .await
        .is(201);
    let whole = b.get("big.bin").await.is(200);
    assert_eq!(whole.bytes, [&b"seven"[..], &pieces[1]].concat());
    b.call("PUT", "big.bin", "comp=blocklist", &[], list(&[0]))
        .await
        .is(400);
    b.put("big.bin", "in one piece").await.is(201);
    assert_eq!(blocks("committed").await.0, "");
    b.call(
        "GET",
        "big.bin",
        "comp=blocklist&blocklisttype=some",
        &[],
        "",
    )
    .await
    .is(400);
    b.call("PUT", "big.bin", "comp=block&blockid=!", &[], "x")
        .await
        .is(400);
    b.call("PUT", "big.bin", "comp=blocklist", &[], "<x>")
        .await
        .is(400);
}

#[tokio::test]
async fn an_append_blob_grows_by_one_append_after_the_other() {
    let b = Store::new().await;
    let kind = [("x-ms-blob-type", "AppendBlob"), ("x-ms-meta-a", "b")];
    b.call("PUT", "log", "", &kind, "").await.is(201);
    b.call("PUT", "full", "", &kind, "x").await.is(413);
    let add = async |headers: &[(&str, &str)], text: &'static str| {
        b.call("PUT", "log", "comp=appendblock", headers, text)
            .await
    };
    let first = add(&[], "one ").await.is(201);
    assert_eq!(first.header("x-ms-blob-append-offset"), "0");
    assert_eq!(first.header("x-ms-blob-committed-block-count"), "1");
    let at = |n: &'static str| [("x-ms-blob-condition-appendpos", n)];
    add(&at("9"), "lost").await.is(412);
    add(&at("4"), "two ").await.is(201);
    add(&[("x-ms-blob-condition-maxsize", "9")], "lost")
        .await
        .is(412);
    add(&[("if-match", "\"0x0\"")], "lost").await.is(412);
    add(&[("content-md5", "abc")], "lost").await.is(400);
    add(&[], "").await.is(400);
    let all = futures_util::future::join_all((0..8).map(|_| add(&[], "x"))).await;
    assert!(all.iter().all(|got| got.status == 201), "none is lost");
    let whole = b.get("log").await.is(200);
    assert_eq!(whole.text(), "one two xxxxxxxx");
    assert_eq!(whole.header("x-ms-blob-type"), "AppendBlob");
    assert_eq!(whole.header("x-ms-blob-committed-block-count"), "10");
    assert_eq!(whole.header("x-ms-meta-a"), "b");
    assert!(b.list("").await.contains("<BlobType>AppendBlob</BlobType>"));

    // Its settings and its metadata change, its type does not.
    let settings = [("x-ms-blob-content-type", "text/x")];
    b.call("PUT", "log", "comp=properties", &settings, "")
        .await
        .is(200);
    b.call("PUT", "log", "comp=metadata", &[("x-ms-meta-c", "d")], "")
        .await
        .is(200);
    add(&[], "!").await.is(201);

    b.put("block", "x").await.is(201);
    b.call("PUT", "block", "comp=appendblock", &[], "x")
        .await
        .is(409);
    b.call("PUT", "log", "comp=blocklist", &[], "<BlockList/>")
        .await
        .is(409);
    b.call("PUT", "none", "comp=appendblock", &[], "x")
        .await
        .is(404);
}

/// A client that lost the answer to a list of blocks sends the list again, and Azure takes it; found with every answer lost once.
#[tokio::test]
async fn k3_a_list_that_is_sent_again_is_answered_as_the_first_time() {
    let b = Store::new().await;
    let block = async |id: &str, body: &'static str| {
        let query = format!(
            "comp=block&blockid={}",
            STANDARD.encode(id).replace('=', "%3D")
        );
        b.call("PUT", "x", &query, &[], body).await.is(201);
    };
    let commit = async |ids: &[&str], headers: &[(&str, &str)]| {
        let ids = ids
            .iter()
            .map(|id| format!("<Latest>{}</Latest>", STANDARD.encode(id)));
        let list = format!("<BlockList>{}</BlockList>", ids.collect::<String>());
        b.call("PUT", "x", "comp=blocklist", headers, list).await
    };
    let typed = [("x-ms-blob-content-type", "text/own"), ("x-ms-meta-a", "b")];
    block("1", "one ").await;
    block("2", "two").await;
    let first = commit(&["1", "2"], &typed).await.is(201);
    let again = commit(&["1", "2"], &typed).await.is(201);
    assert_eq!(again.header("content-md5"), first.header("content-md5"));
    assert_eq!(b.get("x").await.is(200).text(), "one two");
    // What is said with it is said anew.
    commit(&["1", "2"], &[("x-ms-meta-a", "c")]).await.is(201);
    assert_eq!(b.get("x").await.is(200).header("x-ms-meta-a"), "c");
    // Settings and metadata that change leave it what it was made of.
    b.call(
        "PUT",
        "x",
        "comp=properties",
        &[("x-ms-blob-content-type", "text/other")],
        "",
    )
    .await
    .is(200);
    b.call("PUT", "x", "comp=metadata", &[("x-ms-meta-c", "d")], "")
        .await
        .is(200);
    commit(&["1", "2"], &typed).await.is(201);
    assert_eq!(b.get("x").await.is(200).text(), "one two");

    // The blocks that it has may be joined anew; a new one of a name takes the place of the old.
    commit(&["2", "1", "2"], &typed).await.is(201);
    assert_eq!(b.get("x").await.is(200).text(), "twoone two");
    block("2", "TWO").await;
    commit(&["1", "2"], &typed).await.is(201);
    assert_eq!(b.get("x").await.is(200).text(), "one TWO");
    // What must be new is not there twice; what was replaced is not what a list has made.
    assert_eq!(
        commit(&["1", "2"], &[("if-none-match", "*")])
            .await
            .is(409)
            .header("x-ms-error-code"),
        "BlobAlreadyExists"
    );
    b.put("x", "replaced").await.is(201);
    commit(&["1", "2"], &typed).await.is(400);
    assert_eq!(b.get("x").await.is(200).text(), "replaced");
}
