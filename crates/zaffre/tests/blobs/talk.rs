//! One of the two that are asked: how a request looks on the wire, and what is kept of an answer.

use super::{
    play::{Cond, Op, Tag},
    support::peer,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::Sha256;
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
};

/// Headers that are compared by value.
pub const HEADERS: &[&str] = &[
    "content-length",
    "content-type",
    "content-range",
    "content-md5",
    "x-ms-blob-content-md5",
    "content-encoding",
    "content-language",
    "cache-control",
    "content-disposition",
    "x-ms-blob-type",
    "accept-ranges",
    "x-ms-lease-state",
    "x-ms-lease-status",
    "x-ms-copy-status",
];
const VERSION: &str = "2021-12-02";

/// An answer.
pub struct Reply {
    pub status: u16,
    headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// Whether its ETag is another than the one that this name had before, when both are there.
    pub fresh: Option<bool>,
    head_only: bool,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {:?} {body}", self.status, self.headers)
    }
}

impl Reply {
    /// A header. How long an error is belongs to its text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let of_text = matches!(name, "content-length" | "content-type") && self.status >= 300;
        let of_nothing = matches!(name, "content-length" | "content-type")
            && self.body.is_empty()
            && !self.head_only;
        if of_text || of_nothing {
            return None;
        }
        let value = self.headers.get(name)?.as_str();
        // A listing says its type in more than one way, and is as long as its address.
        let of_listing = name == "content-type" && value.starts_with("application/xml")
            || name == "content-length" && self.body.starts_with(b"<?xml");
        (!of_listing).then_some(value)
    }

    pub fn meta(&self) -> BTreeMap<&str, &str> {
        let all = self.headers.iter();
        all.filter_map(|(name, value)| Some((name.strip_prefix("x-ms-meta-")?, value.as_str())))
            .collect()
    }

    /// The code of an error, which header and body must agree on.
    pub fn code(&self) -> Option<&str> {
        let code = self.headers.get("x-ms-error-code").map(String::as_str);
        if let Some(code) = code.filter(|_| !self.body.is_empty() && self.status >= 300) {
            let text = String::from_utf8_lossy(&self.body);
            assert!(text.contains(&format!("<Code>{code}</Code>")), "{self:?}");
        }
        code
    }

    /// What a listing says, without times, ETags and addresses.
    pub fn listing(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.body).into_owned();
        // Prefixes stand among the blobs, or before them.
        let mut prefixes = Vec::new();
        while let Some(at) = text.find("<BlobPrefix>") {
            let end = text[at..].find("</BlobPrefix>").unwrap() + at;
            prefixes.push(text[at..end].to_owned());
            text.replace_range(at..end + "</BlobPrefix>".len(), "");
        }
        let text = text.replace("><", ">\n<");
        let kept = text.lines().filter(|line| {
            let line = line.trim();
            [
                "<Name", "<Content-", "<Cache-", "</Blob>", "<BlobPrefix", "<Metadata", "</Metadata", "<m", "<Size", "<Block",
                "<Prefix", "<Delimiter", "<MaxResults",
            ]
            .iter()
            .any(|begin| line.starts_with(begin))
                && !line.ends_with("/>")
                && !line.contains("></")
                // What is asked for when nothing is.
                && line != "<MaxResults>5000</MaxResults>"
        });
        let mut kept: Vec<&str> = kept.map(str::trim).collect();
        // Elements of one blob come in no order.
        for blob in kept.split_mut(|line| line.starts_with("</Blob")) {
            blob.sort_unstable();
        }
        let prefixes = prefixes.join(" ");
        format!(
            "{} {prefixes} next {}",
            kept.join(" "),
            self.next().is_some()
        )
    }

    /// The marker of the next page.
    pub fn next(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.body);
        let next = text.split("<NextMarker>").nth(1)?.split('<').next()?;
        (!next.is_empty()).then(|| next.to_owned())
    }
}

/// One of the two.
pub struct Side {
    authority: String,
    container: String,
    sas: String,
    /// The ETags that each name had, the last one last.
    tags: BTreeMap<String, Vec<String>>,
    /// Where the listing that is being read goes on.
    marker: Option<String>,
}

impl Side {
    pub fn new(url: &str, container: &str, sas: &str) -> Side {
        Side {
            authority: url.split_once("://").unwrap().1.to_owned(),
            container: container.to_owned(),
            sas: sas.to_owned(),
            tags: BTreeMap::new(),
            marker: None,
        }
    }

    /// A container of the peer's, with a signature of its account.
    pub fn at_the_peer(url: &str) -> Side {
        let (permissions, expiry) = ("rwdlac", "2099-01-01T00:00:00Z");
        let text = format!(
            "{}\n{permissions}\nb\nsco\n\n{expiry}\n\nhttps,http\n2018-11-09\n",
            peer::ACCOUNT
        );
        let key = STANDARD.decode(peer::KEY).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(text.as_bytes());
        let signature = encoded(&STANDARD.encode(mac.finalize().into_bytes()));
        let sas = format!(
            "sv=2018-11-09&ss=b&srt=sco&sp={permissions}&se={}&spr=https,http&sig={signature}",
            encoded(expiry)
        );
        let side = Side::new(url, &format!("/{}/box", peer::ACCOUNT), &sas);
        let made = side.send("PUT", "", "restype=container", &[], b"");
        assert_eq!(made.status, 201, "{made:?}");
        side
    }

    pub fn ask(&mut self, op: &Op) -> Reply {
        let name = op.name().map(str::to_owned).unwrap_or_default();
        let mut headers = op.headers();
        for condition in op.conditions() {
            headers.push((
                condition.header().to_owned(),
                self.condition(&name, condition),
            ));
        }
        if let Op::Copy { from, .. } = op {
            let url = format!(
                "http://{}{}/{}?{}",
                self.authority,
                self.container,
                path(from),
                self.sas
            );
            headers.push(("x-ms-copy-source".to_owned(), url));
        }
        let mut query = op.query();
        if let Op::List { follow: true, .. } = op
            && let Some(marker) = &self.marker
        {
            query.push_str(&format!("&marker={}", encoded(marker)));
        }
        let whole = self.sas.clone();
        self.sas = op.signature(&whole);
        let mut reply = self.send(op.method(), &path(&name), &query, &headers, &op.body());
        self.sas = whole;
        if matches!(op, Op::List { .. }) {
            self.marker = reply.next();
        }
        let tells = !name.is_empty() && !matches!(op, Op::Blocks { .. });
        if let Some(tag) = reply.headers.get("etag").filter(|_| tells) {
            let tags = self.tags.entry(name).or_default();
            reply.fresh = tags.last().map(|last| last != tag);
            if tags.last() != Some(tag) {
                tags.push(tag.clone());
            }
        }
        reply
    }

    fn condition(&self, name: &str, condition: &Cond) -> String {
        let none = Vec::new();
        let tags = self.tags.get(name).unwrap_or(&none);
        match condition {
            Cond::Match(tag) | Cond::NoneMatch(tag) => match tag {
                Tag::Any => "*".to_owned(),
                Tag::Last => tags.last().cloned().unwrap_or_else(|| "\"0x1\"".to_owned()),
                Tag::Older => tags
                    .iter()
                    .rev()
                    .nth(1)
                    .cloned()
                    .unwrap_or_else(|| "\"0x1\"".to_owned()),
                Tag::Never => "\"0x8DA000000000000\"".to_owned(),
            },
            Cond::Since(past) | Cond::NotSince(past) => if *past {
                "Sat, 01 Jan 2000 00:00:00 GMT"
            } else {
                "Fri, 01 Jan 2100 00:00:00 GMT"
            }
            .to_owned(),
        }
    }

    fn send(
        &self,
        method: &str,
        name: &str,
        query: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Reply {
        let at = if name.is_empty() {
            self.container.clone()
        } else {
            format!("{}/{name}", self.container)
        };
        let mut request = format!(
            "{method} {at}?{query}&{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\nx-ms-version: {VERSION}\r\n",
            self.sas,
            self.authority,
            body.len()
        )
        .into_bytes();
        for (name, value) in headers {
            request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        let mut stream = TcpStream::connect(&self.authority).unwrap();
        stream.write_all(&request).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        reply(&bytes, method == "HEAD")
    }
}

fn reply(bytes: &[u8], head_only: bool) -> Reply {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(bytes)));
    let head = String::from_utf8_lossy(&bytes[..end]);
    let headers: BTreeMap<String, String> = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut body = bytes[end + 4..].to_vec();
    if headers
        .get("transfer-encoding")
        .is_some_and(|value| value == "chunked")
    {
        body = joined(&body);
    }
    Reply {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        headers,
        body,
        fresh: None,
        head_only,
    }
}

/// The bytes of chunks.
fn joined(mut rest: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = rest.windows(2).position(|part| part == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
    whole
}

/// A name as a path of a URL.
pub fn path(name: &str) -> String {
    let parts: Vec<String> = name.split('/').map(encoded).collect();
    parts.join("/")
}

pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
