//! A copy of a blob of this server, made before the answer.
//!
//! C1 the source is read with its own signature, or the token: a signature for the target opens no other container (S3).

use axum::http::StatusCode;
use control::{BlobError, Blobs};
use model::BlobPath;
use std::sync::Arc;

use super::{read::For, settings, write::precheck};
use crate::{
    Api,
    access::Permission,
    call::Call,
    problem::{Answer, Problem},
    query::Query,
    reply, time,
};

fn refuse(source: &str, rule: &str) -> Problem {
    let shown = source.split('?').next().unwrap_or_default();
    Problem::new(
        StatusCode::BAD_REQUEST,
        "CannotVerifyCopySource",
        format!("x-ms-copy-source `{}` {rule}", wire::names::shown(shown)),
    )
}

/// The blob that the header names, if the request may read it (C1).
fn source(api: &Api, call: &Call, text: &str) -> Result<BlobPath, Problem> {
    let (address, query) = text.split_once('?').unwrap_or((text, ""));
    let rest = address
        .strip_prefix("https://")
        .or_else(|| address.strip_prefix("http://"));
    let (host, path) = rest
        .and_then(|rest| rest.split_once('/'))
        .ok_or_else(|| refuse(text, "is not a URL of a blob"))?;
    if !host.eq_ignore_ascii_case(&call.base.host) {
        return Err(refuse(text, "is on another server: upload the bytes"));
    }
    let (container, name) = wire::places::storage_path(path)
        .filter(|(_, name)| !name.is_empty())
        .ok_or_else(|| refuse(text, "is not a URL of a blob"))?;
    let query = Query::parse(query);
    let whole = format!("{container}/{name}");
    let allowed = if query.get("sig").is_some() {
        let now = time::now();
        api.sas
            .admits(&query, Permission::Read, &container, Some(&whole), now)
    } else {
        let owner = api.owner(&container);
        call.caller
            .as_ref()
            .zip(owner)
            .is_some_and(|(caller, owner)| {
                let at = wire::names::workspace_id(&owner);
                api.may(caller, Permission::Read.action(), &at)
            })
    };
    if !allowed {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "CannotVerifyCopySource",
            "the source needs a signature of its own that allows reading it, or a token that does",
        ));
    }
    BlobPath::new(&whole).ok_or_else(|| BlobError::NotFound(super::no_path()).into())
}

/// PUT with `x-ms-copy-source`.
pub(super) async fn copy(api: Arc<Api>, call: Call, path: BlobPath, from: &str) -> Answer {
    let from = source(&api, &call, from)?;
    let blobs = api.control.blobs().clone();
    // What is to be copied comes first: where it would go says nothing about it.
    let (looked, of) = (blobs.clone(), from.clone());
    let source = crate::blocking(move || match looked.info(&of) {
        Err(BlobError::NotFound(_)) => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "CannotVerifyCopySource",
            "The specified blob does not exist.",
        )),
        other => Ok(other?),
    })
    .await?;
    let create_only = precheck(&blobs, &call, &path).await?;
    let given = super::metadata(&call)?;
    let id = uuid::Uuid::new_v4().to_string();
    let copy = id.clone();
    let info = crate::blocking(move || {
        let mut metadata = source.metadata.clone();
        if given.keys().any(|name| !settings::is_one(name)) {
            metadata.retain(|name, _| settings::is_one(name));
            metadata.extend(given);
        }
        settings::copied(&mut metadata, &copy, &time::http(time::now()));
        let mut writer = blobs.write(&path)?;
        if writer.add(&from, 0..source.len)? != source.len {
            return Err(refuse(from.as_str(), "became shorter while it was read"));
        }
        Ok(writer.finish(create_only, source.md5, metadata)?)
    })
    .await?;
    let response = super::stamp(reply::empty(StatusCode::ACCEPTED), &info);
    let response = reply::with(response, "x-ms-copy-id", &id);
    Ok(super::standard(
        &call,
        reply::with(response, "x-ms-copy-status", "success"),
    ))
}

/// PUT of the settings of a blob; those that are not given go, its metadata stays.
pub(super) async fn properties(api: Arc<Api>, call: Call, path: BlobPath) -> Answer {
    let mut given = settings::read(&call)?;
    given.extend(settings::digest(&call)?);
    crate::blocking(move || {
        let blobs: &Arc<dyn Blobs> = api.control.blobs();
        let info = super::read::found(blobs, &path, &call.headers, For::Write)?;
        let before = info.clone();
        let mut metadata = info.metadata;
        metadata.retain(|name, _| settings::stays(name));
        metadata.extend(given);
        let info = blobs.set_metadata(&path, metadata)?;
        super::blocks::carry(blobs, &path, &before, &info)?;
        Ok(super::standard(
            &call,
            super::stamp(reply::empty(StatusCode::OK), &info),
        ))
    })
    .await
}
