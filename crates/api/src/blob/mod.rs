//! The blob protocol as far as the SDK uses it (wire §7), over `control.blobs()`.
//!
//! B1 a container is reached with a signature for it, or with the server's token when it belongs to a workspace; the
//!    containers of segments and of pending blocks belong to none;
//! B2 bodies pass through in pieces, both ways: memory does not grow with a blob;
//! B3 a blob is unseen until all of it has come and its MD5, where one was sent, is right;
//! B4 nothing is taken while the disk is below its reserve.

mod append;
pub(crate) mod blocks;
mod copy;
pub(crate) mod list;
pub(crate) mod read;
mod settings;
pub(crate) mod write;
pub(crate) mod xml;

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use control::{BlobError, BlobInfo};
use futures_util::future::BoxFuture;
use model::BlobPath;
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Api,
    access::Permission,
    call::Call,
    problem::{Answer, Problem},
    reply, time,
};

/// The version of the protocol that answers claim when the client names none.
const VERSION: &str = "2021-12-02";
/// Name and value of all `x-ms-meta-*` of a blob, as in Azure.
const MAX_METADATA_BYTES: usize = 8 * 1024;
/// Longest name of a blob, as in Azure.
const MAX_NAME_CHARS: usize = 1024;

/// What a blob URL names.
pub(crate) struct Address {
    pub container: String,
    /// Absent: the container itself.
    pub name: Option<String>,
}

impl Address {
    /// Takes `[.blob.SUFFIX/]CONTAINER[/NAME]` apart.
    fn of(call: &Call) -> Result<Address, Problem> {
        if !call
            .param("account")
            .eq_ignore_ascii_case(wire::places::ACCOUNT)
        {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                "ResourceNotFound",
                format!("there is one storage account, {}", wire::places::ACCOUNT),
            ));
        }
        let mut rest = call.param("rest").trim_start_matches('/');
        if rest.starts_with(".blob.") {
            rest = rest
                .split_once('/')
                .map_or("", |(_, r)| r)
                .trim_start_matches('/');
        }
        let (container, name) = rest.split_once('/').unwrap_or((rest, ""));
        let legal = (3..=63).contains(&container.len())
            && container
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !legal {
            return Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "InvalidResourceName",
                format!(
                    "container name `{}` is not 3 to 63 lower-case letters, digits and hyphens",
                    wire::names::shown(container)
                ),
            ));
        }
        Ok(Address {
            container: container.to_owned(),
            name: (!name.is_empty()).then(|| name.to_owned()),
        })
    }

    /// The path of a blob that may be there. What no blob can be called is not there: the SDK asks for `folder/`.
    fn found(&self) -> Result<BlobPath, Problem> {
        self.path()
            .map_err(|_| BlobError::NotFound(no_path()).into())
    }

    fn path(&self) -> Result<BlobPath, Problem> {
        let name = self.name.as_deref().unwrap_or_default();
        let refuse = |rule: &str| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "InvalidResourceName",
                format!("blob name `{}` {rule}", wire::names::shown(name)),
            )
        };
        if name.chars().count() > MAX_NAME_CHARS {
            return Err(refuse("is longer than 1024 characters"));
        }
        if name.ends_with('/') {
            return Err(refuse("ends with a slash"));
        }
        BlobPath::new(&format!("{}/{name}", self.container))
            .ok_or_else(|| refuse("is empty or has an empty segment, `.`, `..` or a NUL"))
    }
}

/// Stands for a blob whose name is no path.
fn no_path() -> BlobPath {
    BlobPath::new("none").expect("a word is a path")
}

/// Whether the request may do this (B1). Decided before anything is looked up.
fn allow(api: &Api, call: &Call, permission: Permission, address: &Address) -> Result<(), Problem> {
    if call.query.get("sig").is_some() {
        let path = address
            .name
            .as_ref()
            .map(|n| format!("{}/{n}", address.container));
        let signed = api.sas.admits(
            &call.query,
            permission,
            &address.container,
            path.as_deref(),
            time::now(),
        );
        return if signed {
            Ok(())
        } else {
            Err(Problem::new(
                StatusCode::FORBIDDEN,
                "AuthenticationFailed",
                "the signature is not valid for this operation, is expired, or was made for something else",
            ))
        };
    }
    let caller = call.caller.as_ref().ok_or_else(Problem::unauthorized)?;
    let owner = api.owner(&address.container);
    let at = owner.map_or_else(|| "/".into(), |w| wire::names::workspace_id(&w));
    if !api.may(caller, permission.action(), &at) {
        return Err(crate::identity::denied(caller, permission.action(), &at));
    }
    if at == "/" {
        return Err(no_container());
    }
    Ok(())
}

fn no_container() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "ContainerNotFound",
        "The specified container does not exist.",
    )
}

fn unsupported(call: &Call) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "InvalidQueryParameterValue",
        format!(
            "this operation is not offered here: restype={} comp={}",
            wire::names::shown(call.query.get("restype").unwrap_or_default()),
            wire::names::shown(call.query.get("comp").unwrap_or_default())
        ),
    )
}

fn is_container(call: &Call) -> bool {
    call.query
        .get("restype")
        .is_some_and(|v| v.eq_ignore_ascii_case("container"))
}

/// GET: a blob, or the listing of a container.
pub(crate) fn get(api: Arc<Api>, call: Call, _body: Body) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        let address = Address::of(&call)?;
        let comp = call.query.get("comp").unwrap_or_default();
        if is_container(&call) {
            let permission = if comp == "list" {
                Permission::List
            } else {
                Permission::Read
            };
            allow(&api, &call, permission, &address)?;
            return match comp {
                "list" => list::list(api, call, address).await,
                "" => Ok(container(StatusCode::OK, &call)),
                _ => Err(unsupported(&call)),
            };
        }
        allow(&api, &call, Permission::Read, &address)?;
        match comp {
            "" => read::get(api, call, address.found()?).await,
            "metadata" => read::metadata(api, call, address.found()?).await,
            "blocklist" => blocks::list(api, call, address.found()?).await,
            _ => Err(unsupported(&call)),
        }
    })
}

/// HEAD of a blob or container.
pub(crate) fn head(api: Arc<Api>, call: Call, _body: Body) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        let address = Address::of(&call)?;
        allow(&api, &call, Permission::Read, &address)?;
        if is_container(&call) {
            return Ok(container(StatusCode::OK, &call));
        }
        match call.query.get("comp") {
            Some("metadata") => read::metadata(api, call, address.found()?).await,
            _ => read::head(api, call, address.found()?).await,
        }
    })
}

/// PUT of a blob, a block, a block list or metadata.
pub(crate) fn put(api: Arc<Api>, call: Call, body: Body) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        let address = Address::of(&call)?;
        allow(&api, &call, Permission::Write, &address)?;
        let comp = call.query.get("comp").unwrap_or_default().to_owned();
        if is_container(&call) {
            // Containers are there as soon as something is put into them.
            return if comp.is_empty() {
                Ok(container(StatusCode::CREATED, &call))
            } else {
                Err(unsupported(&call))
            };
        }
        let path = address.path()?;
        if let Err(short) = (api.room)() {
            write::drain(body).await;
            return Err(Problem::full(short));
        }
        match comp.as_str() {
            "" => write::blob(api, call, path, body).await,
            "metadata" => write::metadata(api, call, path).await,
            "properties" => copy::properties(api, call, path).await,
            "appendblock" => append::append(api, call, path, body).await,
            "block" => blocks::put(api, call, path, body).await,
            "blocklist" => blocks::commit(api, call, path, body).await,
            _ => Err(unsupported(&call)),
        }
    })
}

/// DELETE of a blob.
pub(crate) fn delete(api: Arc<Api>, call: Call, _body: Body) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        let address = Address::of(&call)?;
        allow(&api, &call, Permission::Delete, &address)?;
        if is_container(&call) || call.query.get("comp").is_some() {
            return Err(unsupported(&call));
        }
        let path = address.found()?;
        let response = standard(&call, reply::empty(StatusCode::ACCEPTED));
        crate::blocking(move || {
            let blobs = api.control.blobs();
            read::found(blobs, &path, &call.headers, read::For::Write)?;
            blobs.delete(&path)?;
            Ok(())
        })
        .await?;
        Ok(response)
    })
}

fn container(status: StatusCode, call: &Call) -> Response {
    let response = reply::with(reply::empty(status), "etag", "\"0x1\"");
    standard(
        call,
        reply::with(response, "last-modified", &time::http(time::now())),
    )
}

/// The headers of every answer of the blob service.
fn standard(call: &Call, mut response: Response) -> Response {
    let version = call
        .headers
        .get("x-ms-version")
        .cloned()
        .unwrap_or(HeaderValue::from_static(VERSION));
    let headers = response.headers_mut();
    headers.insert("x-ms-version", version);
    headers.insert(
        "x-ms-request-server-encrypted",
        HeaderValue::from_static("true"),
    );
    if let Ok(date) = HeaderValue::from_str(&time::http(time::now())) {
        headers.insert(header::DATE, date);
    }
    response
}

/// ETag and time of a blob.
fn stamp(mut response: Response, info: &BlobInfo) -> Response {
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&quoted(&info.etag)) {
        headers.insert(header::ETAG, etag);
    }
    if let Ok(date) = HeaderValue::from_str(&time::http(info.modified)) {
        headers.insert(header::LAST_MODIFIED, date);
    }
    response
}

fn quoted(etag: &str) -> String {
    format!("\"{}\"", etag.trim_matches('"'))
}

/// `x-ms-meta-*` of a request, names in lower case, and its settings.
fn metadata(call: &Call) -> Result<BTreeMap<String, String>, Problem> {
    let refuse = |rule: &str| Problem::new(StatusCode::BAD_REQUEST, "InvalidMetadata", rule);
    let mut out = BTreeMap::new();
    let mut size = 0;
    for (name, value) in &call.headers {
        let Some(name) = name.as_str().strip_prefix("x-ms-meta-") else {
            continue;
        };
        let value = value
            .to_str()
            .map_err(|_| refuse("a value of the metadata is not printable ASCII"))?;
        size += name.len() + value.len();
        if name.is_empty() || size > MAX_METADATA_BYTES {
            return Err(refuse(
                "the metadata has an empty name or is larger than 8 KiB",
            ));
        }
        out.insert(name.to_owned(), value.to_owned());
    }
    out.extend(settings::read(call)?);
    Ok(out)
}

fn meta_headers(response: &mut Response, info: &BlobInfo) {
    for (name, value) in info.metadata.iter().filter(|(n, _)| !settings::is_one(n)) {
        let name = HeaderName::try_from(format!("x-ms-meta-{name}"));
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            response.headers_mut().insert(name, value);
        }
    }
}
