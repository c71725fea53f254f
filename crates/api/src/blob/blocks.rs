//! Large blobs: blocks that come in any order, and the list that joins them.
//!
//! K1 a block waits as a blob in a container of ours until a list names it, or for a week;
//! K2 joining reads and writes in pieces; the blob is unseen until all of it is there;
//! K3 a list that was carried out and is sent again, because its answer was lost, is answered as the first time.

use axum::{body::Body, http::StatusCode, response::Response};
use control::{BlobError, BlobInfo, Blobs};
use http_body_util::{BodyExt, Limited};
use md5::Md5;
use model::{BlobPath, Time};
use quick_xml::events::Event;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    settings,
    write::{precheck, receive},
};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply, time,
};

/// The container of blocks that no list has named yet. No workspace owns it, so no client reaches it.
const PENDING: &str = "pending-blocks";
/// Largest block, as in Azure.
const MAX_BLOCK_BYTES: u64 = 4000 * 1024 * 1024;
/// Blocks of one blob, as in Azure.
const MAX_BLOCKS: usize = 50_000;
/// Bytes of a block's id, decoded, as in Azure.
const MAX_ID_BYTES: usize = 64;
/// Largest block list: every id of the longest kind with its tags.
const MAX_LIST_BYTES: usize = MAX_BLOCKS * 128;
/// A block is thrown away when no list has named it for so long, as in Azure.
const KEEP_MS: u64 = 7 * 24 * 3600 * 1000;
/// How often somebody looks for such blocks.
const SWEEP_MS: u64 = 3600 * 1000;
/// Blocks looked at in one sweep.
const SWEEP_LIMIT: usize = 10_000;
/// What is copied at once.
const PIECE_BYTES: usize = 1024 * 1024;

/// When old blocks were last looked for; the first look is an hour after the start.
pub(crate) struct Sweep(AtomicU64);

impl Sweep {
    pub fn since(start: Time) -> Self {
        Sweep(AtomicU64::new(start.0))
    }
}

/// The blocks of one blob.
fn folder(path: &BlobPath) -> BlobPath {
    let digest = wire::places::hex(&Sha256::digest(path.as_str().as_bytes()));
    BlobPath::new(&format!("{PENDING}/{digest}")).expect("a hex digest is a segment")
}

fn block(folder: &BlobPath, id: &str) -> Result<BlobPath, Problem> {
    let bytes = crate::from_base64(id).unwrap_or_default();
    if bytes.is_empty() || bytes.len() > MAX_ID_BYTES {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "InvalidQueryParameterValue",
            "a block id is base64 of 1 to 64 bytes",
        ));
    }
    Ok(folder
        .join(&wire::places::hex(&bytes))
        .expect("hex digits are a segment"))
}

/// PUT of a block.
pub(super) async fn put(api: Arc<Api>, call: Call, path: BlobPath, body: Body) -> Answer {
    let at = block(
        &folder(&path),
        call.query.get("blockid").unwrap_or_default(),
    )?;
    let blobs = api.control.blobs().clone();
    let want = call.header("content-md5").map(str::to_owned);
    receive(blobs, at, body, MAX_BLOCK_BYTES, want, |writer, _| {
        writer.finish(false, None, BTreeMap::new())
    })
    .await?;
    sweep(&api);
    Ok(super::standard(&call, reply::empty(StatusCode::CREATED)))
}

/// GET ?comp=blocklist: the blocks that no list has named yet.
pub(super) async fn list(api: Arc<Api>, call: Call, path: BlobPath) -> Answer {
    let kind = call.query.get("blocklisttype").unwrap_or("committed");
    if !kind.eq_ignore_ascii_case("uncommitted") {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "InvalidQueryParameterValue",
            format!(
                "blocklisttype {} is not offered: a blob that was committed is one piece; ask for uncommitted",
                wire::names::shown(kind)
            ),
        ));
    }
    crate::blocking(move || {
        let blobs = api.control.blobs();
        let blocks = match blobs.list(&folder(&path), None, MAX_BLOCKS) {
            Ok(blocks) => blocks,
            Err(BlobError::NotFound(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let blob = match blobs.info(&path) {
            Ok(info) => Some(info),
            Err(BlobError::NotFound(_)) if !blocks.is_empty() => None,
            // Neither a blob nor the beginning of one.
            Err(error) => return Err(error.into()),
        };
        let mut out = String::from(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><UncommittedBlocks>",
        );
        for (block, info) in blocks {
            let id = crate::base64(&unhex(block.base()));
            out.push_str(&format!(
                "<Block><Name>{id}</Name><Size>{}</Size></Block>",
                info.len
            ));
        }
        out.push_str("</UncommittedBlocks></BlockList>");
        let mut response = reply::with(
            Response::new(Body::from(out)),
            "content-type",
            "application/xml",
        );
        if let Some(info) = blob {
            response = super::stamp(response, &info);
        }
        Ok(super::standard(&call, response))
    })
    .await
}

/// The bytes of hex digits, which only `block` has written.
fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// PUT of the list that makes the blob.
pub(super) async fn commit(api: Arc<Api>, call: Call, path: BlobPath, body: Body) -> Answer {
    let list = match Limited::new(body, MAX_LIST_BYTES).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(Problem::too_large(MAX_LIST_BYTES));
        }
        Err(_) => return Err(Problem::bad("the body ended early")),
    };
    let ids = read_list(&list)?;
    let digest = crate::base64(&Md5::digest(&list));
    let blobs = api.control.blobs().clone();
    let create_only = precheck(&blobs, &call, &path).await?;
    let mut metadata = super::metadata(&call)?;
    let md5 = call.header("x-ms-blob-content-md5").map(str::to_owned);
    let info = crate::blocking(move || {
        let folder = folder(&path);
        let made_of = wire::places::hex(&Sha256::digest(ids.join("\n")));
        settings::joined(&mut metadata, &made_of);
        let said = metadata.clone();
        let info = match join(&blobs, &path, &folder, &ids, create_only, md5, metadata) {
            Err(problem) => match repeated(&blobs, &path, &folder, &ids, &made_of)? {
                Some(info) if info.metadata == said => return Ok(info),
                Some(_) => return Ok(blobs.set_metadata(&path, said)?),
                None => return Err(problem),
            },
            Ok(info) => info,
        };
        blobs.delete_folder(&folder)?;
        Ok(info)
    })
    .await?;
    let response = super::stamp(reply::empty(StatusCode::CREATED), &info);
    // Of the list, as it came: a client that counts is told that it arrived whole.
    Ok(super::standard(
        &call,
        reply::with(response, "content-md5", &digest),
    ))
}

/// The blob, if it is what a list with these ids has made of blocks of which none waits any more (K3).
fn repeated(
    blobs: &Arc<dyn Blobs>,
    path: &BlobPath,
    folder: &BlobPath,
    ids: &[String],
    made_of: &str,
) -> Result<Option<BlobInfo>, Problem> {
    let info = match blobs.info(path) {
        Ok(info) if !ids.is_empty() && settings::is_joined(&info, made_of) => info,
        Ok(_) | Err(BlobError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    for id in ids {
        match blobs.info(&block(folder, id)?) {
            Err(BlobError::NotFound(_)) => {}
            Ok(_) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(info))
}

fn join(
    blobs: &Arc<dyn Blobs>,
    path: &BlobPath,
    folder: &BlobPath,
    ids: &[String],
    create_only: bool,
    md5: Option<String>,
    metadata: BTreeMap<String, String>,
) -> Result<BlobInfo, Problem> {
    let mut writer = blobs.write(path)?;
    let mut buffer = vec![0; PIECE_BYTES];
    for id in ids {
        let block = block(folder, id)?;
        let mut at = 0;
        let end = match blobs.info(&block) {
            Ok(info) => info.len,
            Err(BlobError::NotFound(_)) => {
                return Err(invalid_list("names a block that was not uploaded"));
            }
            Err(error) => return Err(error.into()),
        };
        while at < end {
            let n = blobs.read_at(&block, at, &mut buffer)?;
            if n == 0 {
                return Err(invalid_list("names a block that was replaced meanwhile"));
            }
            io::Write::write_all(&mut writer, &buffer[..n]).map_err(BlobError::Io)?;
            at += n as u64;
        }
    }
    Ok(writer.finish(create_only, md5, metadata)?)
}

fn invalid_list(rule: &str) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "InvalidBlockList",
        format!("the block list {rule}"),
    )
}

/// The ids of `<BlockList><Latest>id</Latest>…`.
fn read_list(bytes: &[u8]) -> Result<Vec<String>, Problem> {
    let wrong = || {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "InvalidXmlDocument",
            "the body is not a BlockList of Latest, Uncommitted or Committed",
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
    let mut reader = quick_xml::Reader::from_str(text.trim_start_matches('\u{feff}'));
    let (mut ids, mut root, mut closed) = (Vec::new(), false, false);
    let (mut inside, mut named) = (false, false);
    loop {
        match reader.read_event().map_err(|_| wrong())? {
            Event::Start(tag) => match tag.local_name().as_ref() {
                b"BlockList" if !root => root = true,
                b"Latest" | b"Uncommitted" | b"Committed" if root && !inside && !closed => {
                    (inside, named) = (true, false);
                }
                _ => return Err(wrong()),
            },
            // Without an id it would be left out, and the blob made of the others.
            Event::End(_) if inside && !named => return Err(wrong()),
            Event::End(_) if inside => inside = false,
            Event::End(_) => closed = true,
            Event::Text(text) if inside => {
                if ids.len() == MAX_BLOCKS {
                    return Err(invalid_list("names more than 50000 blocks"));
                }
                named = true;
                ids.push(text.decode().map_err(|_| wrong())?.trim().to_owned());
            }
            // A list that was cut short would make a blob of a part.
            Event::Eof if closed => return Ok(ids),
            Event::Eof => return Err(wrong()),
            Event::Empty(tag) if tag.local_name().as_ref() == b"BlockList" && !root => {
                (root, closed) = (true, true);
            }
            Event::Empty(_) => return Err(wrong()),
            Event::CData(_) | Event::GeneralRef(_) if inside => return Err(wrong()),
            Event::Text(_)
            | Event::Comment(_)
            | Event::CData(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => {}
        }
    }
}

/// Throws old blocks away, at most once an hour, beside the request that noticed (K1).
fn sweep(api: &Arc<Api>) {
    let now = time::now();
    let last = api.sweep.0.load(Ordering::Relaxed);
    if now.0 < last.saturating_add(SWEEP_MS)
        || api
            .sweep
            .0
            .compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
    {
        return;
    }
    let blobs = api.control.blobs().clone();
    tokio::task::spawn_blocking(move || {
        let all = BlobPath::new(PENDING).expect("the container's name is a path");
        let old = blobs.list(&all, None, SWEEP_LIMIT).and_then(|blocks| {
            blocks
                .iter()
                .filter(|(_, info)| now.since(info.modified).0 > KEEP_MS)
                .try_for_each(|(path, _)| blobs.delete(path))
        });
        if let Err(error) = old {
            tracing::warn!(%error, "old blocks of unfinished uploads were not thrown away");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_others_refused() {
        let ids = |text: &str| read_list(text.as_bytes()).map_err(|p| p.code.into_owned());
        assert_eq!(
            ids(
                "<?xml version='1.0'?><BlockList><Latest>YQ==</Latest>\n<Committed>Yg==</Committed></BlockList>"
            ),
            Ok(vec!["YQ==".into(), "Yg==".into()])
        );
        assert_eq!(ids("<BlockList/>"), Ok(vec![]));
        for wrong in [
            "",
            "<Other/>",
            "<BlockList><Latest><Latest>a</Latest></Latest></BlockList>",
            "{",
            "<BlockList><X>a</X></BlockList>",
            // this made a blob of a part
            "<BlockList><Latest>YQ==</Latest>",
            "<BlockList><Latest>YQ==</Latest><La",
            "<BlockList/><Latest>YQ==</Latest>",
            // these emptied the blob
            "<BlockList><Latest></Latest></BlockList>",
            "<BlockList><Latest>&a;</Latest></BlockList>",
            "<BlockList><Latest><![CDATA[YQ==]]></Latest></BlockList>",
            "<BlockList><Latest>YQ==</Latest><Latest>&amp;</Latest></BlockList>",
        ] {
            assert_eq!(ids(wrong), Err("InvalidXmlDocument".into()), "{wrong}");
        }
    }

    /// A list that costs more to read than it has bytes would be a way to stop the server.
    #[test]
    fn lists_that_are_bombs_are_refused_quickly() {
        let laughs = (1..12).fold("<!DOCTYPE x [<!ENTITY a0 \"x\">".to_owned(), |text, i| {
            format!(
                "{text}<!ENTITY a{i} \"{}\">",
                format!("&a{};", i - 1).repeat(10)
            )
        });
        let of = |inner: &str| format!("<BlockList>{inner}</BlockList>");
        let mib = 1 << 20;
        for (what, text) in [
            (
                "entities",
                format!("{laughs}]>{}", of("<Latest>&a11;</Latest>")),
            ),
            (
                "a file",
                format!(
                    "<!DOCTYPE x [<!ENTITY a SYSTEM \"file:///etc/passwd\">]>{}",
                    of("<Latest>&a;</Latest>")
                ),
            ),
            ("depth", "<BlockList>".repeat(mib / 11)),
            ("open tags", of(&"<Latest>".repeat(mib / 8))),
            (
                "an attribute",
                format!("<BlockList a=\"{}\"/><x", "x".repeat(mib)),
            ),
            ("a name", format!("<{}/>", "x".repeat(mib))),
            (
                "attributes",
                format!("<BlockList {}><x/>", "a=\"\" ".repeat(mib / 5)),
            ),
            ("a comment", format!("<!--{}", "-".repeat(mib))),
        ] {
            let begun = std::time::Instant::now();
            let refused = read_list(text.as_bytes()).is_err();
            assert!(refused, "{what} was taken");
            assert!(
                begun.elapsed().as_millis() < 2_000,
                "{what}: {:?}",
                begun.elapsed()
            );
        }
    }
}
