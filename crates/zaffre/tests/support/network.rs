//! A bad network in front of a server, for clients that speak https and cannot be told to repeat anything.
//!
//! It ends TLS with the server's own certificate, so that it knows where an exchange begins and ends, and opens TLS to the
//! server. The names that the client wrote are kept, so every address in an answer leads through the network again. Each
//! exchange has a connection of its own. One of them has a [`Fate`]; the others pass.

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// What becomes of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The request is carried out; no byte of the answer comes.
    Lost,
    /// The request is carried out; the head of the answer and half of its body come, or half a line when it has none.
    Cut,
    /// Half of the request's bytes come to the server, and none of an answer.
    Broken,
    /// The connection is lost at once; the request is carried out after the exchange that follows.
    Overtaken,
    /// The request is carried out twice, at the same time.
    Doubled,
}

/// All of them.
pub const FATES: [Fate; 5] = [
    Fate::Lost,
    Fate::Cut,
    Fate::Broken,
    Fate::Overtaken,
    Fate::Doubled,
];

#[derive(Default)]
struct Seen {
    /// `METHOD PATH` of each exchange, in the order in which they came.
    exchanges: Vec<String>,
    /// A request that is still to be carried out.
    parked: Option<Vec<u8>>,
}

/// The keys of both sides.
#[derive(Clone)]
pub struct Ends {
    server: String,
    roots: RootCertStore,
    toward_client: Arc<ServerConfig>,
    toward_server: Arc<ClientConfig>,
}

impl Ends {
    /// Those of the server at `url` with this data folder.
    pub fn of(url: &str, data: &Path) -> Ends {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let chain = CertificateDer::pem_file_iter(data.join("server.pem"))
            .unwrap()
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        let key = PrivateKeyDer::from_pem_file(data.join("server.key")).unwrap();
        let toward_client = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(data.join("ca.pem")).unwrap())
            .unwrap();
        let toward_server = ClientConfig::builder()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        Ends {
            roots,
            server: url.split_once("://").unwrap().1.to_owned(),
            toward_client: Arc::new(toward_client),
            toward_server: Arc::new(toward_server),
        }
    }
}

impl Ends {
    /// A whole handshake with the server in this version of TLS, called by this name.
    pub fn spoken(&self, version: &'static SupportedProtocolVersion, name: &str) -> io::Result<()> {
        let config = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let mut session =
            ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let mut stream = TcpStream::connect(&self.server)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(())
    }
}

/// A network for one client.
pub struct Network {
    /// Where the client finds the server.
    pub url: String,
    address: String,
    ends: Ends,
    fate: Option<(usize, Fate)>,
    seen: Mutex<Seen>,
    closed: AtomicBool,
}

impl Network {
    /// A network in which the exchange with this number, from 0 on, has a fate.
    pub fn start(ends: &Ends, fate: Option<(usize, Fate)>) -> Arc<Network> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let network = Arc::new(Network {
            url: format!("https://{address}"),
            address,
            ends: ends.clone(),
            fate,
            seen: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let shared = network.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.closed.load(Ordering::SeqCst) {
                    return;
                }
                let shared = shared.clone();
                // A connection that breaks is what this is for: nobody is told.
                std::thread::spawn(move || drop(client.and_then(|client| shared.serve(client))));
            }
        });
        network
    }

    /// Ends it; what was still to be carried out is, and the exchanges that there were are answered.
    pub fn close(&self) -> Vec<String> {
        self.closed.store(true, Ordering::SeqCst);
        // The listener waits for one more connection to see it.
        drop(TcpStream::connect(&self.address));
        self.deliver_parked();
        self.seen.lock().unwrap().exchanges.clone()
    }

    fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let session =
            ServerConnection::new(self.ends.toward_client.clone()).map_err(io::Error::other)?;
        let mut client = StreamOwned::new(session, client);
        let request = whole_request(&mut client)?;
        let fate = self.next(&request);
        match fate {
            None => {
                let answer = self.deliver(&request)?;
                self.deliver_parked();
                client.write_all(&answer)?;
                client.conn.send_close_notify();
                client.flush()
            }
            Some(Fate::Lost) => self.deliver(&request).map(drop),
            Some(Fate::Cut) => {
                let answer = self.deliver(&request)?;
                client.write_all(&answer[..half(&answer)])?;
                client.flush()
            }
            Some(Fate::Broken) => {
                let mut server = self.server()?;
                server.write_all(&request[..request.len() / 2])?;
                server.flush()
            }
            Some(Fate::Overtaken) => {
                self.seen.lock().unwrap().parked = Some(request);
                Ok(())
            }
            Some(Fate::Doubled) => {
                let answer = std::thread::scope(|scope| {
                    let other = scope.spawn(|| self.deliver(&request));
                    let mine = self.deliver(&request);
                    let other = other.join().unwrap();
                    // As a proxy that repeats: the better of the two.
                    if mine.as_ref().is_ok_and(|answer| good(answer)) {
                        mine
                    } else {
                        other.or(mine)
                    }
                })?;
                client.write_all(&answer)?;
                client.conn.send_close_notify();
                client.flush()
            }
        }
    }

    fn next(&self, request: &[u8]) -> Option<Fate> {
        let line = request.split(|byte| *byte == b'\r').next().unwrap();
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches(" HTTP/1.1");
        // The signature of an address is nobody's to read.
        let line = line.split('?').next().unwrap().to_owned();
        let mut seen = self.seen.lock().unwrap();
        seen.exchanges.push(line);
        let (at, fate) = self.fate?;
        (seen.exchanges.len() - 1 == at).then_some(fate)
    }

    fn deliver_parked(&self) {
        let parked = self.seen.lock().unwrap().parked.take();
        if let Some(request) = parked {
            self.deliver(&request)
                .expect("the server takes what comes late");
        }
    }

    fn server(&self) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let stream = TcpStream::connect(&self.ends.server)?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1").map_err(io::Error::other)?;
        let session = ClientConnection::new(self.ends.toward_server.clone(), name)
            .map_err(io::Error::other)?;
        Ok(StreamOwned::new(session, stream))
    }

    fn deliver(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut server = self.server()?;
        server.write_all(request)?;
        server.flush()?;
        let mut answer = Vec::new();
        match server.read_to_end(&mut answer) {
            // The end of an answer is told by its head; a server may leave without a word.
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(answer),
        }
    }
}

/// How much of an answer comes. Never half a head: Python takes the end of a connection for the end of the headers, and would
/// read a value that nobody sent.
fn half(answer: &[u8]) -> usize {
    let head = answer.windows(4).position(|part| part == b"\r\n\r\n");
    match head.map(|at| at + 4) {
        Some(head) if answer.len() > head + 1 => head + (answer.len() - head) / 2,
        _ => b"HTTP".len(),
    }
}

fn good(answer: &[u8]) -> bool {
    answer
        .get(9)
        .is_some_and(|digit| matches!(digit, b'2' | b'3'))
}

/// The bytes of a request, told to close its connection.
fn whole_request(client: &mut impl Read) -> io::Result<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let lower = head.to_ascii_lowercase();
            assert!(
                !lower.contains("\r\ntransfer-encoding:"),
                "a request says its length: {head}"
            );
            let length = lower
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |text| text.trim().parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let kept = head
                    .split("\r\n")
                    .filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
                let mut whole = kept.collect::<Vec<_>>().join("\r\n").into_bytes();
                whole.extend_from_slice(b"\r\nConnection: close\r\n\r\n");
                whole.extend_from_slice(&bytes[end + 4..]);
                return Ok(whole);
            }
        }
        match client.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}
