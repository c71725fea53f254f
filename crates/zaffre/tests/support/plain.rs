//! Requests over plain HTTP, each on a connection of its own: nothing repeats them, and one whose answer did not come whole
//! has none. That is what a test needs that kills the server, or loses its answers, and asks what became of a request.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// How long an answer is waited for, unless the caller says otherwise.
pub const LONG: Duration = Duration::from_secs(60);

/// The workspace that always exists.
pub const WS: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default";

/// An answer that came whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
    /// The body.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
    /// The body.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Who is asked, and with what token.
#[derive(Clone)]
pub struct Plain {
    pub authority: String,
    pub token: String,
    pub patience: Duration,
}

impl Plain {
    /// A client of the server at `url`.
    pub fn of(url: &str, token: &str) -> Plain {
        Plain {
            authority: url
                .split_once("://")
                .map_or(url, |(_, rest)| rest)
                .to_owned(),
            token: token.to_owned(),
            patience: LONG,
        }
    }

    /// A connection; without one nothing was sent.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.authority)?;
        stream.set_read_timeout(Some(self.patience))?;
        Ok(stream)
    }

    /// Sends a request and reads the answer to its end.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        self.ask_on(self.connect()?, method, path, headers, body)
    }

    /// The same on a connection that is there.
    pub fn ask_on(
        &self,
        mut stream: TcpStream,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.authority,
            body.len()
        );
        if !self.token.is_empty() {
            request.push_str(&format!("Authorization: Bearer {}\r\n", self.token));
        }
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request.push_str("Content-Type: application/json\r\n");
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        request.push_str(body);
        stream.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        parse(&bytes).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// An answer, if it is whole.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let answer = Answer {
        status,
        head,
        body: bytes[end + 4..].to_vec(),
    };
    let length = match answer.header("content-length") {
        Some(length) => length.parse().ok()?,
        None => 0,
    };
    (answer.body.len() == length).then_some(answer)
}
