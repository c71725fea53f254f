//! Blobs in: whole blobs and their metadata.

use axum::{
    body::{Body, BodyDataStream},
    http::{StatusCode, header},
};
use bytes::Bytes;
use control::{BlobError, BlobInfo, BlobWriter, Blobs};
use futures_util::StreamExt;
use md5::{Digest, Md5};
use model::BlobPath;
use std::{collections::BTreeMap, io, sync::Arc};
use tokio::sync::mpsc;

use super::read::{For, combined, conditions, found};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    reply,
};

/// Largest blob of one PUT, as in Azure; larger ones come as blocks.
pub(crate) const MAX_PUT_BYTES: u64 = 5000 * 1024 * 1024;
/// Pieces of a body that wait for the disk; a piece is what one read of the connection gave, at most a few hundred KiB.
const PIECES_AHEAD: usize = 4;

/// Unwanted bytes that are read for politeness: the largest body that the SDK puts at once.
const MAX_DRAIN_BYTES: usize = 64 * 1024 * 1024;

/// PUT of a whole blob.
pub(super) async fn blob(api: Arc<Api>, call: Call, path: BlobPath, body: Body) -> Answer {
    let kind = call.header("x-ms-blob-type").unwrap_or("BlockBlob");
    if kind.eq_ignore_ascii_case("AppendBlob") {
        return super::append::create(api, call, path, body).await;
    }
    if !kind.eq_ignore_ascii_case("BlockBlob") {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "InvalidHeaderValue",
            format!(
                "x-ms-blob-type is {}, BlockBlob and AppendBlob are offered",
                wire::names::shown(kind)
            ),
        ));
    }
    if let Some(from) = call.header("x-ms-copy-source").map(str::to_owned) {
        drain(body).await;
        return super::copy::copy(api, call, path, &from).await;
    }
    let blobs = api.control.blobs().clone();
    let create_only = match precheck(&blobs, &call, &path).await {
        Ok(create_only) => create_only,
        Err(problem) => {
            drain(body).await;
            return Err(problem);
        }
    };
    let digest = match call.header("content-md5") {
        Some(sent) => Digested::Checked(sent.to_owned()),
        None => Digested::Made,
    };
    let metadata = super::metadata(&call)?;
    let (info, md5) = receive(
        blobs,
        path,
        body,
        MAX_PUT_BYTES,
        digest,
        move |writer, md5| writer.finish(create_only, md5, metadata),
    )
    .await?;
    let mut response = super::stamp(reply::empty(StatusCode::CREATED), &info);
    if let Some(md5) = md5 {
        response = reply::with(response, "content-md5", &md5);
    }
    Ok(super::standard(&call, response))
}

/// Reads a body that is not wanted, so that a client that sends before it listens gets the answer and not a closed connection.
pub(crate) async fn drain(body: Body) {
    drain_rest(&mut body.into_data_stream()).await;
}

async fn drain_rest(stream: &mut BodyDataStream) {
    let mut left = MAX_DRAIN_BYTES;
    while let Some(Ok(piece)) = stream.next().await {
        left = left.saturating_sub(piece.len());
        if left == 0 {
            return;
        }
    }
}

/// Conditions that hold before the body is read; whether the blob must not be there at the end either.
pub(super) async fn precheck(
    blobs: &Arc<dyn Blobs>,
    call: &Call,
    path: &BlobPath,
) -> Result<bool, Problem> {
    let create_only = call
        .headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|v| v == "*");
    let conditional = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
    ];
    if !conditional
        .iter()
        .any(|name| call.headers.contains_key(name))
    {
        return Ok(false);
    }
    combined(&call.headers)?;
    let (blobs, path, headers) = (blobs.clone(), path.clone(), call.headers.clone());
    crate::blocking(move || match blobs.info(&path) {
        Ok(_) if create_only => Err(BlobError::Exists(path).into()),
        Ok(info) => conditions(&headers, &info, For::Write).map(|()| false),
        Err(BlobError::NotFound(_)) if headers.contains_key(header::IF_MATCH) => Err(Problem::new(
            StatusCode::PRECONDITION_FAILED,
            "ConditionNotMet",
            "The condition specified using HTTP conditional header(s) is not met.",
        )),
        Err(BlobError::NotFound(_)) => Ok(create_only),
        Err(error) => Err(error.into()),
    })
    .await
}

/// What is done about the MD5 of a body.
pub(crate) enum Digested {
    /// It is not made.
    Never,
    /// It is made, and given to whoever finishes the blob.
    Made,
    /// It is made and must be this one, in base64.
    Checked(String),
}

/// Takes a body into a blob piece by piece (B2) and finishes it when all of it has come and its MD5 is right (B3).
pub(crate) async fn receive(
    blobs: Arc<dyn Blobs>,
    path: BlobPath,
    body: Body,
    limit: u64,
    digested: Digested,
    finish: impl FnOnce(Box<dyn BlobWriter>, Option<String>) -> Result<BlobInfo, BlobError>
    + Send
    + 'static,
) -> Result<(BlobInfo, Option<String>), Problem> {
    let (sender, mut receiver) = mpsc::channel::<Option<Bytes>>(PIECES_AHEAD);
    let writing = tokio::task::spawn_blocking(
        move || -> Result<(BlobInfo, Option<String>), Problem> {
            let mut writer = blobs.write(&path)?;
            let mut md5 = match digested {
                Digested::Never => None,
                Digested::Made | Digested::Checked(_) => Some(Md5::new()),
            };
            loop {
                match receiver.blocking_recv() {
                    Some(Some(piece)) => {
                        if let Some(md5) = &mut md5 {
                            md5.update(&piece);
                        }
                        io::Write::write_all(&mut writer, &piece).map_err(BlobError::Io)?;
                    }
                    Some(None) => break,
                    None => return Err(Problem::bad("the body ended early")),
                }
            }
            let md5 = md5.map(|md5| crate::base64(&md5.finalize()));
            if let Digested::Checked(want) = digested
                && md5.as_ref() != Some(&want)
            {
                return Err(Problem::new(
                    StatusCode::BAD_REQUEST,
                    "Md5Mismatch",
                    "The MD5 value specified in the request did not match with the MD5 value calculated by the server.",
                ));
            }
            Ok((finish(writer, md5.clone())?, md5))
        },
    );
    let mut stream = body.into_data_stream();
    let (mut len, mut too_large) = (0, false);
    loop {
        let piece = match stream.next().await {
            Some(Ok(piece)) => piece,
            Some(Err(_)) => break,
            None => {
                // When the writer has given up already, its error is the answer.
                let _gone = sender.send(None).await;
                break;
            }
        };
        len += piece.len() as u64;
        if len > limit {
            too_large = true;
            break;
        }
        if sender.send(Some(piece)).await.is_err() {
            // The writer has given up, a disk that filled for one: the client gets the reason when it has sent the rest.
            drain_rest(&mut stream).await;
            break;
        }
    }
    drop(sender);
    let written = writing
        .await
        .map_err(|e| Problem::internal("the upload", &e))?;
    if too_large {
        return Err(Problem::too_large(
            usize::try_from(limit).unwrap_or(usize::MAX),
        ));
    }
    written
}

/// PUT of metadata.
pub(super) async fn metadata(api: Arc<Api>, call: Call, path: BlobPath) -> Answer {
    let mut metadata: BTreeMap<_, _> = super::metadata(&call)?;
    crate::blocking(move || {
        let blobs = api.control.blobs();
        let before = found(blobs, &path, &call.headers, For::Write)?;
        metadata.retain(|name, _| !super::settings::is_one(name));
        metadata.extend(super::settings::kept(&before).map(|(k, v)| (k.clone(), v.clone())));
        let info = blobs.set_metadata(&path, metadata)?;
        super::blocks::carry(blobs, &path, &before, &info)?;
        Ok(super::standard(
            &call,
            super::stamp(reply::empty(StatusCode::OK), &info),
        ))
    })
    .await
}
