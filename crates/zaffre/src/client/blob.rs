//! Blobs: the subset of the storage protocol of wire §7. The signature in the URL is the credential; the token is not sent.

use super::{Client, accepted};
use crate::failure::{Failure, about};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{StreamExt, TryStreamExt, stream};
use quick_xml::{Reader, events::Event};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;
use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

/// A larger file goes in blocks.
const WHOLE_LIMIT: u64 = 64 * 1024 * 1024;
/// Size of a block.
const BLOCK: u64 = 8 * 1024 * 1024;
/// Blocks of one file on their way at once; each is in memory.
const BLOCKS_AT_ONCE: usize = 4;

/// A container and the signature that opens it.
#[derive(Clone, Debug)]
pub struct Container {
    url: String,
    sas: String,
}

/// What to do with a blob that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It has the same content, because its name says so.
    Keep,
}

/// A blob in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its whole name.
    pub name: String,
    /// Its size in bytes.
    pub len: u64,
}

impl Container {
    fn blob(&self, name: &str, more: &str) -> String {
        let path: Vec<String> = name.split('/').map(encode).collect();
        format!("{}/{}?{more}{}", self.url, path.join("/"), self.sas)
    }
}

fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

impl Client {
    /// The container of a datastore.
    pub async fn container(&self, store: &str) -> Result<Container, Failure> {
        super::locate::plain_name("datastore", store)?;
        let at = self.at(&format!("datastores/{store}"));
        let (document, secrets) = futures_util::future::try_join(self.get(&at), async {
            self.post(&format!("{at}/listSecrets"), &json!({}), &[])
                .await
        })
        .await?;
        let properties = &document["properties"];
        let account = properties["accountName"].as_str().unwrap_or_default();
        let (Some(name), Some(sas)) = (
            properties["containerName"].as_str(),
            secrets["sasToken"].as_str(),
        ) else {
            return Err(Failure::failed(format!(
                "datastore {store} has no container that a client can open"
            )));
        };
        // The account of this server is spelled `host:port/storage/account/`; the host is the one that is talked to already.
        let path = account
            .split_once('/')
            .map_or("", |(_, path)| path)
            .trim_end_matches('/');
        Ok(Container {
            url: format!("{}/{path}/{name}", self.base),
            sas: sas.trim_start_matches('?').to_owned(),
        })
    }

    /// The container that a signed URL opens.
    pub fn container_at(&self, signed: &str) -> Result<Container, Failure> {
        let Some((url, sas)) = signed.split_once('?') else {
            return Err(Failure::failed(
                "the server gave an unsigned place to upload to",
            ));
        };
        let path = url
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once('/'))
            .map_or("", |(_, path)| path);
        Ok(Container {
            url: format!("{}/{path}", self.base),
            sas: sas.to_owned(),
        })
    }

    fn blob_request(&self, method: Method, url: String) -> RequestBuilder {
        self.http
            .request(method, url)
            .header("x-ms-version", "2024-11-04")
    }

    /// The metadata of a blob, if it is there.
    pub async fn blob_metadata(
        &self,
        container: &Container,
        name: &str,
    ) -> Result<Option<BTreeMap<String, String>>, Failure> {
        let response = self
            .send(self.blob_request(Method::HEAD, container.blob(name, "")))
            .await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let response = accepted(response).await?;
        let metadata = response.headers().iter().filter_map(|(key, value)| {
            let key = key.as_str().strip_prefix("x-ms-meta-")?;
            Some((key.to_owned(), value.to_str().ok()?.to_owned()))
        });
        Ok(Some(metadata.collect()))
    }

    /// Replaces the metadata of a blob.
    pub async fn set_blob_metadata(
        &self,
        container: &Container,
        name: &str,
        metadata: &[(&str, &str)],
    ) -> Result<(), Failure> {
        let mut request = self
            .blob_request(Method::PUT, container.blob(name, "comp=metadata&"))
            .header("content-length", 0);
        for (key, value) in metadata {
            request = request.header(format!("x-ms-meta-{key}"), *value);
        }
        accepted(self.send(request).await?).await.map(drop)
    }

    /// Uploads a file of `len` bytes.
    pub async fn put_file(
        &self,
        container: &Container,
        name: &str,
        path: &Path,
        len: u64,
        existing: Existing,
    ) -> Result<(), Failure> {
        let sent = if len > WHOLE_LIMIT {
            self.put_blocks(container, name, path, len).await
        } else {
            let bytes = tokio::fs::read(path).await.map_err(about(path))?;
            let request = self
                .blob_request(Method::PUT, container.blob(name, ""))
                .header("x-ms-blob-type", "BlockBlob")
                .header("if-none-match", "*")
                .body(bytes);
            let response = self.send(request).await?;
            match existing {
                Existing::Keep if response.status() == StatusCode::CONFLICT => return Ok(()),
                Existing::Keep => accepted(response).await.map(drop),
            }
        };
        sent.map_err(|failure| Failure {
            message: format!("{}: {}", path.display(), failure.message),
            ..failure
        })
    }

    async fn put_blocks(
        &self,
        container: &Container,
        name: &str,
        path: &Path,
        len: u64,
    ) -> Result<(), Failure> {
        let ids: Vec<(u64, String)> = (0..len.div_ceil(BLOCK))
            .map(|index| (index * BLOCK, STANDARD.encode(format!("{index:016}"))))
            .collect();
        stream::iter(&ids)
            .map(|(offset, id)| async move {
                let size = BLOCK.min(len - offset);
                let bytes = piece(path, *offset, size).await.map_err(about(path))?;
                let more = format!("comp=block&blockid={}&", encode(id));
                accepted(
                    self.send(
                        self.blob_request(Method::PUT, container.blob(name, &more))
                            .body(bytes),
                    )
                    .await?,
                )
                .await
                .map(drop)
            })
            .buffer_unordered(BLOCKS_AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        let list: String = ids
            .iter()
            .map(|(_, id)| format!("<Latest>{id}</Latest>"))
            .collect();
        let body =
            format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{list}</BlockList>");
        accepted(
            self.send(
                self.blob_request(Method::PUT, container.blob(name, "comp=blocklist&"))
                    .body(body),
            )
            .await?,
        )
        .await
        .map(drop)
    }

    /// Every blob whose name starts with `prefix`.
    pub async fn list_blobs(
        &self,
        container: &Container,
        prefix: &str,
    ) -> Result<Vec<Found>, Failure> {
        let mut found = vec![];
        let mut marker = String::new();
        loop {
            let mut url = format!(
                "{}?restype=container&comp=list&prefix={}&",
                container.url,
                encode(prefix)
            );
            if !marker.is_empty() {
                url.push_str(&format!("marker={}&", encode(&marker)));
            }
            url.push_str(&container.sas);
            let response = accepted(self.send(self.blob_request(Method::GET, url)).await?).await?;
            let text = response.text().await.map_err(|error| {
                Failure::failed(format!("the listing broke off: {}", super::chain(&error)))
            })?;
            let (mut page, next) = listing(&text)?;
            found.append(&mut page);
            match next {
                Some(next) if !next.is_empty() && next != marker => marker = next,
                _ => return Ok(found),
            }
        }
    }

    /// Fetches a blob into a file, which appears when it is whole.
    pub async fn get_blob(
        &self,
        container: &Container,
        name: &str,
        to: &Path,
    ) -> Result<u64, Failure> {
        let response = accepted(
            self.send(self.blob_request(Method::GET, container.blob(name, "")))
                .await?,
        )
        .await?;
        if let Some(folder) = to.parent() {
            tokio::fs::create_dir_all(folder)
                .await
                .map_err(about(folder))?;
        }
        let part = beside(to);
        let fetched = save(response, name, &part).await;
        let fetched = match fetched {
            Ok(len) => tokio::fs::rename(&part, to)
                .await
                .map_err(about(to))
                .map(|()| len),
            Err(failure) => Err(failure),
        };
        if fetched.is_err() {
            // It may not have been made.
            let _ = tokio::fs::remove_file(&part).await;
        }
        fetched
    }

    /// The bytes of a signed URL from `offset` on; empty when there are none yet.
    pub async fn tail(&self, signed: &str, offset: u64) -> Result<Vec<u8>, Failure> {
        let (url, query) = signed.split_once('?').unwrap_or((signed, ""));
        let path = url
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once('/'))
            .map_or("", |(_, path)| path);
        let request = self
            .blob_request(Method::GET, format!("{}/{path}?{query}", self.base))
            .header("range", format!("bytes={offset}-"));
        let response = self.send(request).await?;
        let status = response.status();
        if status == StatusCode::RANGE_NOT_SATISFIABLE || status == StatusCode::NOT_FOUND {
            return Ok(vec![]);
        }
        let response = accepted(response).await?;
        let bytes = response.bytes().await.map_err(|error| {
            Failure::failed(format!("the log broke off: {}", super::chain(&error)))
        })?;
        let skip = if status == StatusCode::PARTIAL_CONTENT {
            0
        } else {
            usize::try_from(offset).unwrap_or(usize::MAX)
        };
        Ok(bytes.get(skip..).unwrap_or_default().to_vec())
    }
}

/// A name beside `to` for what is not whole yet. It does not grow with the name of the file, which may be as long as names can
/// be, and is nobody's: `x.part` may be a blob that comes at the same time as `x`.
fn beside(to: &Path) -> PathBuf {
    to.with_file_name(format!(".{}.part", uuid::Uuid::new_v4().simple()))
}

async fn save(response: reqwest::Response, name: &str, part: &Path) -> Result<u64, Failure> {
    let mut file = tokio::fs::File::create(part).await.map_err(about(part))?;
    let mut bytes = response.bytes_stream();
    let mut len = 0;
    while let Some(chunk) = bytes.next().await {
        let chunk = chunk.map_err(|error| {
            Failure::failed(format!(
                "{name}: the download broke off: {}",
                super::chain(&error)
            ))
        })?;
        len += chunk.len() as u64;
        file.write_all(&chunk).await.map_err(about(part))?;
    }
    file.flush().await.map_err(about(part))?;
    Ok(len)
}

async fn piece(path: &Path, offset: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut file = tokio::fs::File::open(path).await?;
    file.seek(std::io::SeekFrom::Start(offset)).await?;
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    file.take(len).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Blobs and the next marker of a listing.
fn listing(xml: &str) -> Result<(Vec<Found>, Option<String>), Failure> {
    let mut reader = Reader::from_str(xml);
    let (mut found, mut next) = (vec![], None);
    let (mut inside, mut name, mut len, mut text) = (false, String::new(), 0, String::new());
    let mut encoded = false;
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("the listing cannot be read: {error}"))
    };
    loop {
        match reader.read_event().map_err(|error| wrong(&error))? {
            Event::Start(tag) => {
                text.clear();
                if tag.name().as_ref() == b"Blob" {
                    inside = true;
                    (name, len) = (String::new(), 0);
                }
                // A name that XML cannot hold comes percent-encoded, and says so.
                encoded = tag
                    .try_get_attribute("Encoded")
                    .map_err(|error| wrong(&error))?
                    .is_some_and(|mark| mark.value.as_ref() == b"true");
            }
            Event::Text(part) => text.push_str(&part.decode().map_err(|error| wrong(&error))?),
            Event::GeneralRef(part) => {
                let part = part.decode().map_err(|error| wrong(&error))?;
                let whole = format!("&{part};");
                text.push_str(&quick_xml::escape::unescape(&whole).map_err(|error| wrong(&error))?);
            }
            Event::End(tag) => match tag.name().as_ref() {
                b"Name" if inside && encoded => name = decoded(&text).map_err(|e| wrong(&e))?,
                b"Name" if inside => name = std::mem::take(&mut text),
                b"Content-Length" => len = text.trim().parse().map_err(|error| wrong(&error))?,
                b"NextMarker" => next = Some(std::mem::take(&mut text)),
                b"Blob" => {
                    inside = false;
                    found.push(Found {
                        name: std::mem::take(&mut name),
                        len,
                    });
                }
                _ => {}
            },
            Event::Eof => return Ok((found, next)),
            _ => {}
        }
    }
}

/// The message of an error of the blob service.
pub fn message_of(body: &[u8]) -> Option<String> {
    let body = std::str::from_utf8(body).ok()?;
    let (_, rest) = body.split_once("<Message>")?;
    let (text, _) = rest.split_once("</Message>")?;
    Some(quick_xml::escape::unescape(text).ok()?.into_owned())
}

/// The text that was percent-encoded.
fn decoded(text: &str) -> Result<String, String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or("a percent sign without two digits")?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|error| error.to_string())?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// A blob's name as a path below a folder; names that would leave the folder are refused.
pub fn inside(name: &str) -> Result<&Path, Failure> {
    let path = Path::new(name);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !plain {
        return Err(Failure::failed(format!(
            "{name:?} is no name of a file inside the folder"
        )));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_with_escapes_and_marker() {
        let xml = r#"<?xml version="1.0"?><EnumerationResults><Blobs><Blob><Name>a&amp;b/ 日本.csv</Name><Properties><Content-Length>7</Content-Length></Properties></Blob><Blob><Name Encoded="true">c%01%E6%97%A5/%2525</Name><Properties><Content-Length>0</Content-Length></Properties></Blob><Blob><Name>%25</Name><Properties><Content-Length>1</Content-Length></Properties></Blob></Blobs><NextMarker>m</NextMarker></EnumerationResults>"#;
        let (found, next) = listing(xml).unwrap();
        assert_eq!(
            found,
            [
                Found {
                    name: "a&b/ 日本.csv".into(),
                    len: 7
                },
                Found {
                    name: "c\u{1}日/%25".into(),
                    len: 0
                },
                Found {
                    name: "%25".into(),
                    len: 1
                }
            ]
        );
        assert_eq!(next.as_deref(), Some("m"));
        for bad in ["a%", "%1", "%zz", "%ff"] {
            assert!(decoded(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_of_the_blob_service_says_its_message() {
        let body =
            "<?xml version=\"1.0\"?><Error><Code>C</Code><Message>a &lt; b&#10;c</Message></Error>";
        assert_eq!(message_of(body.as_bytes()).as_deref(), Some("a < b\nc"));
        for other in ["", "{}", "<Error><Message>", "\u{fffd}"] {
            assert_eq!(message_of(other.as_bytes()), None);
        }
    }

    #[test]
    fn what_is_not_whole_has_a_short_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("n".repeat(255));
        let (one, other) = (beside(&to), beside(&to));
        assert!(one != other && one.parent() == to.parent());
        std::fs::write(one, "").unwrap();
    }

    #[test]
    fn names_are_encoded_and_confined() {
        let container = Container {
            url: "https://h/storage/s/c".into(),
            sas: "sig=x".into(),
        };
        assert_eq!(
            container.blob("a b/ü?.csv", ""),
            "https://h/storage/s/c/a%20b/%C3%BC%3F.csv?sig=x"
        );
        for bad in ["../x", "/etc/passwd", "a/../../b", ""] {
            assert!(inside(bad).is_err(), "{bad}");
        }
        assert_eq!(inside("a/b").unwrap(), Path::new("a/b"));
    }
}
