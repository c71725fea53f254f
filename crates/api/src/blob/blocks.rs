//! Large blobs: blocks that come in any order, and the list that joins them.
//!
//! K1 a block waits in the container of fleeting blobs, which no workspace owns, until a list names it, for a week, or until the
//!    machine is started anew: then the list is refused and the client sends its blocks again;
//! K2 joining holds nothing of the blocks in memory; the blob is unseen until all of it is there, synced;
//! K3 what a blob was joined of is kept beside it with the ETag that it got: once the blob is another, it has no blocks. So a
//!    list that was carried out and is sent again, because its answer was lost, makes the same blob of them.

use axum::{body::Body, http::StatusCode, response::Response};
use control::{BlobError, BlobInfo, Blobs, FLEETING};
use http_body_util::{BodyExt, Limited};
use md5::Md5;
use model::{BlobPath, Time};
use quick_xml::events::Event;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    read::{For, conditions},
    write::{Digested, precheck, receive},
};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply, time,
};

/// The container of what blobs were joined of (K3). No workspace owns it either.
const JOINED: &str = "joined-blocks";
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

/// Largest list of joined blocks: every block of the longest name with its size.
const MAX_JOINED_BYTES: u64 = (MAX_BLOCKS as u64) * 160;

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
    BlobPath::new(&format!("{FLEETING}/{digest}")).expect("a hex digest is a segment")
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
    // A digest that nobody asks for would cost half of the upload.
    let digest = match call.header("content-md5") {
        Some(sent) => Digested::Checked(sent.to_owned()),
        None => Digested::Never,
    };
    receive(blobs, at, body, MAX_BLOCK_BYTES, digest, |writer, _| {
        writer.finish(false, None, BTreeMap::new())
    })
    .await?;
    sweep(&api);
    Ok(super::standard(&call, reply::empty(StatusCode::CREATED)))
}

/// Which blocks are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Committed,
    Uncommitted,
    All,
}

impl Wanted {
    fn of(call: &Call) -> Result<Wanted, Problem> {
        let word = call.query.get("blocklisttype").unwrap_or("committed");
        [
            ("committed", Wanted::Committed),
            ("uncommitted", Wanted::Uncommitted),
            ("all", Wanted::All),
        ]
        .into_iter()
        .find_map(|(known, wanted)| known.eq_ignore_ascii_case(word).then_some(wanted))
        .ok_or_else(|| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "InvalidQueryParameterValue",
                format!(
                    "blocklisttype is {}, known are committed, uncommitted and all",
                    wire::names::shown(word)
                ),
            )
        })
    }
}

/// GET ?comp=blocklist: the blocks that the blob was joined of, those that no list has named yet, or both.
pub(super) async fn list(api: Arc<Api>, call: Call, path: BlobPath) -> Answer {
    let wanted = Wanted::of(&call)?;
    crate::blocking(move || {
        let blobs = api.control.blobs();
        let pending = match blobs.list(&folder(&path), None, MAX_BLOCKS) {
            Ok(blocks) => blocks,
            Err(BlobError::NotFound(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let blob = match blobs.info(&path) {
            Ok(info) => Some(info),
            // The beginning of one: it has blocks and no list.
            Err(BlobError::NotFound(_)) if !pending.is_empty() => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(info) = &blob {
            conditions(&call.headers, info, For::Read)?;
        }
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        let mut part = |name: &str, blocks: &mut dyn Iterator<Item = (String, u64)>| {
            out.push_str(&format!("<{name}>"));
            for (id, len) in blocks {
                out.push_str(&format!(
                    "<Block><Name>{id}</Name><Size>{len}</Size></Block>"
                ));
            }
            out.push_str(&format!("</{name}>"));
        };
        if wanted != Wanted::Uncommitted {
            let joined = joined(blobs, &path, blob.as_ref())?;
            let mut blocks = joined.into_iter().map(|b| (b.id, b.len));
            part("CommittedBlocks", &mut blocks);
        }
        if wanted != Wanted::Committed {
            let mut blocks = pending
                .iter()
                .map(|(block, info)| (crate::base64(&unhex(block.base())), info.len));
            part("UncommittedBlocks", &mut blocks);
        }
        out.push_str("</BlockList>");
        let mut response = reply::with(
            Response::new(Body::from(out)),
            "content-type",
            "application/xml",
        );
        if let Some(info) = &blob {
            response = super::stamp(response, info);
            response = reply::with(response, "x-ms-blob-content-length", &info.len.to_string());
        }
        Ok(super::standard(&call, response))
    })
    .await
}

/// A block that is part of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Block {
    id: String,
    len: u64,
}

/// What a blob was joined of (K3).
#[derive(Serialize, Deserialize)]
struct Joined {
    path: BlobPath,
    etag: String,
    blocks: Vec<Block>,
}

fn beside(path: &BlobPath) -> BlobPath {
    let digest = wire::places::hex(&Sha256::digest(path.as_str().as_bytes()));
    BlobPath::new(&format!("{JOINED}/{digest}")).expect("a hex digest is a segment")
}

/// The blocks of a blob as it is now: none when it was written in one piece.
fn joined(
    blobs: &Arc<dyn Blobs>,
    path: &BlobPath,
    blob: Option<&BlobInfo>,
) -> Result<Vec<Block>, Problem> {
    let Some(blob) = blob else {
        return Ok(Vec::new());
    };
    let bytes = match blobs.read(&beside(path), MAX_JOINED_BYTES) {
        Ok(bytes) => bytes,
        Err(BlobError::NotFound(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let kept: Option<Joined> = serde_json::from_slice(&bytes).ok();
    let kept = kept.filter(|k| k.etag == blob.etag && k.path == *path);
    Ok(kept.map(|k| k.blocks).unwrap_or_default())
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
    let metadata = super::metadata(&call)?;
    let md5 = call.header("x-ms-blob-content-md5").map(str::to_owned);
    let info = crate::blocking(move || {
        let folder = folder(&path);
        let before = match blobs.info(&path) {
            Ok(info) => Some(info),
            Err(BlobError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        if before
            .as_ref()
            .is_some_and(|b| super::append::appends(b).is_some())
        {
            return Err(super::append::wrong_type());
        }
        let there = joined(&blobs, &path, before.as_ref())?;
        let parts = resolve(&blobs, &folder, &ids, &there)?;
        let info = join(&blobs, &path, &parts, create_only, md5, metadata)?;
        let blocks = parts.into_iter().map(|(block, _)| block).collect();
        keep(&blobs, &path, &info, blocks)?;
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

/// Where the bytes of a block are.
enum From {
    /// Uploaded, and in no blob yet.
    Pending(BlobPath),
    /// In the blob that is there, from this place on.
    There(u64),
}

/// What the entries of a list mean: `Committed` is a block of the blob that is there, `Uncommitted` one that was uploaded,
/// `Latest` the one that was uploaded, else the one of the blob.
fn resolve(
    blobs: &Arc<dyn Blobs>,
    folder: &BlobPath,
    list: &[(Tag, String)],
    there: &[Block],
) -> Result<Vec<(Block, From)>, Problem> {
    let mut at = 0;
    let mut places: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for block in there {
        places.insert(&block.id, (at, block.len));
        at += block.len;
    }
    let mut out = Vec::with_capacity(list.len());
    for (tag, id) in list {
        let place = block(folder, id)?;
        let pending = match (tag, blobs.info(&place)) {
            (Tag::Committed, _) | (_, Err(BlobError::NotFound(_))) => None,
            (Tag::Latest | Tag::Uncommitted, Ok(info)) => Some((info.len, From::Pending(place))),
            (Tag::Latest | Tag::Uncommitted, Err(error)) => return Err(error.into()),
        };
        let committed = places
            .get(id.as_str())
            .filter(|_| *tag != Tag::Uncommitted)
            .map(|&(at, len)| (len, From::There(at)));
        let (len, from) = pending
            .or(committed)
            .ok_or_else(|| invalid_list("names a block that was not uploaded"))?;
        let id = id.clone();
        out.push((Block { id, len }, from));
    }
    Ok(out)
}

fn join(
    blobs: &Arc<dyn Blobs>,
    path: &BlobPath,
    parts: &[(Block, From)],
    create_only: bool,
    md5: Option<String>,
    metadata: BTreeMap<String, String>,
) -> Result<BlobInfo, Problem> {
    let mut writer = blobs.write(path)?;
    for (block, from) in parts {
        let (source, start) = match from {
            From::Pending(place) => (place, 0),
            From::There(at) => (path, *at),
        };
        let added = match writer.add(source, start..start + block.len) {
            Ok(added) => added,
            Err(BlobError::NotFound(_)) => 0,
            Err(error) => return Err(error.into()),
        };
        if added != block.len {
            return Err(invalid_list("names a block that was replaced meanwhile"));
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

/// Where an entry of a list looks for its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Latest,
    Uncommitted,
    Committed,
}

/// The entries of `<BlockList><Latest>id</Latest>…`.
fn read_list(bytes: &[u8]) -> Result<Vec<(Tag, String)>, Problem> {
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
    let (mut inside, mut named) = (None, false);
    loop {
        match reader.read_event().map_err(|_| wrong())? {
            Event::Start(tag) => match tag.local_name().as_ref() {
                b"BlockList" if !root => root = true,
                b"Latest" if root && inside.is_none() && !closed => inside = Some(Tag::Latest),
                b"Uncommitted" if root && inside.is_none() && !closed => {
                    inside = Some(Tag::Uncommitted);
                }
                b"Committed" if root && inside.is_none() && !closed => {
                    inside = Some(Tag::Committed);
                }
                _ => return Err(wrong()),
            },
            // Without an id it would be left out, and the blob made of the others.
            Event::End(_) if inside.is_some() && !named => return Err(wrong()),
            Event::End(_) if inside.is_some() => (inside, named) = (None, false),
            Event::End(_) => closed = true,
            Event::Text(text) if inside.is_some() => {
                if ids.len() == MAX_BLOCKS {
                    return Err(invalid_list("names more than 50000 blocks"));
                }
                named = true;
                let id = text.decode().map_err(|_| wrong())?.trim().to_owned();
                ids.extend(inside.map(|tag| (tag, id)));
            }
            // A list that was cut short would make a blob of a part.
            Event::Eof if closed => return Ok(ids),
            Event::Eof => return Err(wrong()),
            Event::Empty(tag) if tag.local_name().as_ref() == b"BlockList" && !root => {
                (root, closed) = (true, true);
            }
            Event::Empty(_) => return Err(wrong()),
            Event::CData(_) | Event::GeneralRef(_) if inside.is_some() => return Err(wrong()),
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
        let all = BlobPath::new(FLEETING).expect("the container's name is a path");
        forget_joined(&blobs);
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

/// A blob has got another ETag and the same bytes: its blocks are still its own.
pub(super) fn carry(
    blobs: &Arc<dyn Blobs>,
    path: &BlobPath,
    before: &BlobInfo,
    after: &BlobInfo,
) -> Result<(), Problem> {
    let blocks = joined(blobs, path, Some(before))?;
    if blocks.is_empty() {
        return Ok(());
    }
    keep(blobs, path, after, blocks)
}

fn keep(
    blobs: &Arc<dyn Blobs>,
    path: &BlobPath,
    blob: &BlobInfo,
    blocks: Vec<Block>,
) -> Result<(), Problem> {
    let kept = Joined {
        path: path.clone(),
        etag: blob.etag.clone(),
        blocks,
    };
    let text = serde_json::to_vec(&kept).map_err(|e| Problem::internal("a block list", &e))?;
    blobs.put(&beside(path), &text)?;
    Ok(())
}

/// Lists of blobs that are gone, or are others by now, go (K3).
fn forget_joined(blobs: &Arc<dyn Blobs>) {
    let all = BlobPath::new(JOINED).expect("the container's name is a path");
    let stale = |list: &BlobPath| {
        let bytes = blobs.read(list, MAX_JOINED_BYTES).unwrap_or_default();
        let Ok(kept) = serde_json::from_slice::<Joined>(&bytes) else {
            return true;
        };
        match blobs.info(&kept.path) {
            Ok(info) => info.etag != kept.etag,
            Err(error) => matches!(error, BlobError::NotFound(_)),
        }
    };
    let gone = blobs.list(&all, None, SWEEP_LIMIT).and_then(|lists| {
        let mut lists = lists.iter().filter(|(list, _)| stale(list));
        lists.try_for_each(|(list, _)| blobs.delete(list))
    });
    match gone {
        Ok(()) | Err(BlobError::NotFound(_)) => {}
        Err(error) => tracing::warn!(%error, "lists of blobs that are gone were not thrown away"),
    }
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
            Ok(vec![
                (Tag::Latest, "YQ==".into()),
                (Tag::Committed, "Yg==".into())
            ])
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
