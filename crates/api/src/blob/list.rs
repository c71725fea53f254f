//! The listing of a container.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use control::{BlobError, BlobInfo, Blobs};
use model::BlobPath;
use std::{fmt::Write as _, sync::Arc};

use super::{Address, xml};
use crate::{
    Api,
    call::Call,
    problem::{Answer, Problem},
    time,
};

/// Entries of a page, as in Azure.
const MAX_RESULTS: usize = 5000;
/// Blobs asked of the store at once.
const STEP: usize = 1000;

/// One line of a listing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Blob(String, BlobInfo),
    Prefix(String),
}

/// GET ?restype=container&comp=list.
pub(super) async fn list(api: Arc<Api>, call: Call, address: Address) -> Answer {
    crate::blocking(move || {
        let field = |name| call.query.get(name).unwrap_or_default();
        let limit = match field("maxresults") {
            "" => MAX_RESULTS,
            text => text
                .parse()
                .ok()
                .filter(|n| *n > 0)
                .map(|n: usize| n.min(MAX_RESULTS))
                .ok_or_else(|| {
                    Problem::new(
                        StatusCode::BAD_REQUEST,
                        "OutOfRangeQueryParameterValue",
                        "maxresults must be a number above 0",
                    )
                })?,
        };
        let (prefix, delimiter) = (field("prefix"), field("delimiter"));
        let after = (!field("marker").is_empty())
            .then(|| {
                crate::from_base64(field("marker"))
                    .and_then(|m| String::from_utf8(m).ok())
                    .ok_or_else(|| {
                        Problem::new(
                            StatusCode::BAD_REQUEST,
                            "InvalidQueryParameterValue",
                            "marker is not one that this server gave",
                        )
                    })
            })
            .transpose()?;
        let (entries, next) = collect(
            api.control.blobs(),
            &address.container,
            prefix,
            delimiter,
            after,
            limit,
        )?;
        let metadata = field("include").split(',').any(|i| i == "metadata");
        Ok(render(
            &call,
            &address.container,
            &entries,
            next.as_deref(),
            metadata,
        ))
    })
    .await
}

/// At most `limit` entries after the name `after`, and the name to go on after.
pub(crate) fn collect(
    blobs: &Arc<dyn Blobs>,
    container: &str,
    prefix: &str,
    delimiter: &str,
    after: Option<String>,
    limit: usize,
) -> Result<(Vec<Entry>, Option<String>), Problem> {
    let path = |name: &str| BlobPath::new(&format!("{container}/{name}"));
    let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
    let folder = if folder.is_empty() {
        BlobPath::new(container)
    } else {
        path(folder)
    };
    let Some(folder) = folder else {
        return Ok((Vec::new(), None)); // no blob can have such a name
    };
    let mut entries = Vec::new();
    let mut last = after;
    if last.is_none() && !prefix.is_empty() && !prefix.ends_with('/') {
        // The walk begins after the prefix itself, so that `a/model-1` does not read all of `a/`.
        if let Some(exact) = path(prefix) {
            match blobs.info(&exact) {
                Ok(info) => entries.push(Entry::Blob(prefix.to_owned(), info)),
                Err(BlobError::NotFound(_) | BlobError::BadName { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            last = Some(prefix.to_owned());
        }
    }
    loop {
        let from = last.as_deref().and_then(path);
        let page = match blobs.list(&folder, from.as_ref(), STEP) {
            Ok(page) => page,
            Err(BlobError::NotFound(_)) => return Ok((entries, None)),
            Err(error) => return Err(error.into()),
        };
        let full = page.len() == STEP;
        let mut skipped = None;
        for (path, info) in page {
            let Some(name) = path.as_str().get(container.len() + 1..) else {
                continue;
            };
            if skipped
                .as_deref()
                .is_some_and(|p: &str| name.starts_with(p))
            {
                continue;
            }
            if !name.starts_with(prefix) {
                if name > prefix {
                    return Ok((entries, None));
                }
                last = Some(name.to_owned());
                continue;
            }
            if entries.len() == limit {
                return Ok((entries, last));
            }
            let below = (!delimiter.is_empty())
                .then(|| name[prefix.len()..].find(delimiter))
                .flatten();
            match below {
                Some(at) => {
                    let common = &name[..prefix.len() + at + delimiter.len()];
                    entries.push(Entry::Prefix(common.to_owned()));
                    // Nothing that starts with the prefix sorts after this.
                    last = Some(format!("{common}{}", char::MAX));
                    skipped = Some(common.to_owned());
                }
                None => {
                    entries.push(Entry::Blob(name.to_owned(), info));
                    last = Some(name.to_owned());
                }
            }
        }
        if !full {
            return Ok((entries, None));
        }
    }
}

fn render(
    call: &Call,
    container: &str,
    entries: &[Entry],
    next: Option<&str>,
    metadata: bool,
) -> Response {
    let mut out = String::with_capacity(256 + entries.len() * 512);
    let field = |name| call.query.get(name).unwrap_or_default();
    out.push_str("<?xml version=\"1.0\" encoding=\"utf-8\"?>");
    let _infallible = write!(
        out,
        "<EnumerationResults ServiceEndpoint=\"{}/storage/{}/\" ContainerName=\"{container}\"><Prefix>{}</Prefix>",
        call.base.url(),
        wire::places::ACCOUNT,
        xml::text(field("prefix"))
    );
    if !field("delimiter").is_empty() {
        out.push_str(&format!(
            "<Delimiter>{}</Delimiter>",
            xml::text(field("delimiter"))
        ));
    }
    // Clients take the size of the next page from here.
    for (asked, element) in [("marker", "Marker"), ("maxresults", "MaxResults")] {
        if !field(asked).is_empty() {
            out.push_str(&format!(
                "<{element}>{}</{element}>",
                xml::text(field(asked))
            ));
        }
    }
    out.push_str("<Blobs>");
    for entry in entries {
        match entry {
            Entry::Prefix(prefix) => {
                out.push_str("<BlobPrefix>");
                out.push_str(&xml::name(prefix));
                out.push_str("</BlobPrefix>");
            }
            Entry::Blob(name, info) => blob(&mut out, name, info, metadata),
        }
    }
    match next {
        Some(next) => {
            out.push_str("</Blobs><NextMarker>");
            out.push_str(&crate::base64(next.as_bytes()));
            out.push_str("</NextMarker></EnumerationResults>");
        }
        None => out.push_str("</Blobs><NextMarker /></EnumerationResults>"),
    }
    let mut response = Response::new(Body::from(out));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/xml"),
    );
    super::standard(call, response)
}

fn blob(out: &mut String, name: &str, info: &BlobInfo, metadata: bool) {
    let date = time::http(info.modified);
    out.push_str("<Blob>");
    out.push_str(&xml::name(name));
    out.push_str(&format!(
        "<Properties><Creation-Time>{date}</Creation-Time><Last-Modified>{date}</Last-Modified><Etag>{}</Etag>\
         <Content-Length>{}</Content-Length>",
        xml::text(info.etag.trim_matches('"')),
        info.len
    ));
    let mut typed = false;
    for (element, value) in super::settings::elements(info) {
        typed |= element == "Content-Type";
        out.push_str(&format!("<{element}>{}</{element}>", xml::text(value)));
    }
    if !typed {
        out.push_str("<Content-Type>application/octet-stream</Content-Type>");
    }
    if let Some(md5) = super::settings::md5(info) {
        out.push_str(&format!("<Content-MD5>{}</Content-MD5>", xml::text(md5)));
    }
    out.push_str(&format!(
        "<BlobType>{}</BlobType><LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState></Properties>",
        super::append::word(info)
    ));
    if metadata
        && info
            .metadata
            .keys()
            .any(|name| !super::settings::is_one(name))
    {
        out.push_str("<Metadata>");
        for (name, value) in &info.metadata {
            // Header names are tokens; those that are no XML names are left out.
            let legal = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || b == b'.');
            if legal {
                out.push_str(&format!("<{name}>{}</{name}>", xml::text(value)));
            }
        }
        out.push_str("</Metadata>");
    }
    out.push_str("<OrMetadata /></Blob>");
}
