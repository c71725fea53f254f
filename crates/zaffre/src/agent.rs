//! `zaffre agent`: a node's agent. On this machine it finds the server's socket in its folder; in a pod it brings that socket
//! along: a tunnel that carries each connection to the server over TLS.
//!
//! T1 whatever keeps the server away, the tunnel tries again for ever: the work goes on meanwhile;
//! T2 the server is believed only with the authority that came with the credential.

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// For one attempt to connect, TLS and all.
const CONNECT: Duration = Duration::from_secs(10);
/// Pause after the first failed attempt, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Longest answer to the request that opens a connection.
const MAX_HEAD: usize = 8 * 1024;
/// What is left of the grace of a pod when our work has to be done: Kubernetes kills after 30 s.
const NOTICE: Duration = Duration::from_secs(25);

/// Runs it; `args` are those after `agent`.
pub fn main(args: &[OsString]) -> ExitCode {
    let word = |n: usize| args.get(n).and_then(|a| a.to_str());
    let result = match (word(0), args.len()) {
        (Some("--install"), 2) => install(Path::new(&args[1])),
        (Some("--connect"), 6 | 7)
            if word(2) == Some("--secret")
                && word(4) == Some("--dir")
                && word(6).is_none_or(|w| w == "--node") =>
        {
            return match pod(
                word(1).unwrap_or_default(),
                Path::new(&args[3]),
                Path::new(&args[5]),
                word(6).is_some(),
            ) {
                Ok(code) => code,
                Err(error) => failed(&error),
            };
        }
        _ => return engine_local::agent::main(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> ExitCode {
    let _ = writeln!(io::stderr(), "zaffre agent: {error}");
    ExitCode::FAILURE
}

/// Copies this program where the pod's other container finds it.
fn install(to: &Path) -> io::Result<()> {
    fs::copy(std::env::current_exe()?, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))
}

/// The way to the server.
struct Way {
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: TlsConnector,
    credential: String,
}

impl Way {
    fn new(url: &str, secret: &Path) -> io::Result<Way> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let authority = url
            .strip_prefix("https://")
            .map(|rest| rest.trim_end_matches('/'))
            .ok_or_else(|| wrong(format!("--connect {url}: not https://HOST:PORT")))?;
        let (host, port) = authority
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .ok_or_else(|| wrong(format!("--connect {url}: no port")))?;
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|e| wrong(format!("{host}: {e}")))?;
        let mut roots = rustls::RootCertStore::empty();
        let pem = CertificateDer::pem_file_iter(secret.join("ca.pem")).map_err(io::Error::other)?;
        for certificate in pem {
            roots
                .add(certificate.map_err(io::Error::other)?)
                .map_err(io::Error::other)?;
        }
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Way {
            host,
            port,
            name,
            tls: TlsConnector::from(Arc::new(config)),
            credential: fs::read_to_string(secret.join("credential"))?
                .trim()
                .to_owned(),
        })
    }

    /// Opens a connection of bytes to the engine.
    async fn open(&self, channel: &str) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + use<>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let mut stream = self.tls.connect(self.name.clone(), stream).await?;
        let request = format!(
            "GET /agents/connect?channel={channel} HTTP/1.1\r\nHost: {}:{}\r\nConnection: upgrade\r\nUpgrade: {}\r\n\
             Authorization: Bearer {}\r\n\r\n",
            self.host,
            self.port,
            api::AGENT_PROTOCOL,
            self.credential
        );
        stream.write_all(request.as_bytes()).await?;
        // Byte by byte: what follows the head is not ours to read. It is a few hundred bytes, once per connection.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= MAX_HEAD {
                return Err(io::Error::other("the answer has no end"));
            }
            head.push(stream.read_u8().await?);
        }
        let line = String::from_utf8_lossy(&head);
        let line = line.lines().next().unwrap_or_default();
        if line.split(' ').nth(1) == Some("101") {
            Ok(stream)
        } else {
            Err(io::Error::other(format!("the server says {line:?}")))
        }
    }

    /// Carries one connection of the agent.
    async fn carry(&self, mut ours: UnixStream, channel: &'static str) {
        let (mut pause, longest) = PAUSES;
        let mut told = String::new();
        loop {
            let opened = timeout(CONNECT, self.open(channel)).await;
            let error = match opened {
                Ok(Ok(mut theirs)) => {
                    if let Err(error) = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await
                    {
                        tracing::debug!(%error, channel, "a connection ended");
                    }
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no connection within {} s", CONNECT.as_secs()),
            };
            if error != told {
                tracing::warn!(
                    channel,
                    "https://{}:{}: {error}; trying again",
                    self.host,
                    self.port
                );
                told = error;
            }
            tokio::time::sleep(pause).await; // T1
            pause = (pause * 2).min(longest);
        }
    }
}

/// The agent of a pod, with its tunnel on a thread of its own; `whole`: the pod is a node.
fn pod(url: &str, secret: &Path, dir: &Path, whole: bool) -> io::Result<ExitCode> {
    crate::provider();
    let way = Arc::new(Way::new(url, secret)?);
    let node = serde_json::from_slice(&fs::read(secret.join("node"))?)?;
    let agent = engine_local::agent::Pod::new(dir, node, whole)?;
    // What the image trusts, and this server: programs of the task reach both.
    let theirs = std::env::var_os("REQUESTS_CA_BUNDLE").map(PathBuf::from);
    let ours = fs::read(secret.join("ca.pem"))?;
    crate::serve::write_bundle(&dir.join(engine_local::agent::AUTHORITIES), &ours, theirs)
        .map_err(|failure| io::Error::other(failure.message))?;
    let notice = agent.notice();
    let listen = |name: &str| -> io::Result<(PathBuf, std::os::unix::net::UnixListener)> {
        let path = dir.join(name);
        let _ = fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        Ok((path, listener))
    };
    let (_, messages) = listen(engine_local::agent::link::SOCKET)?;
    let (_, files) = listen(engine_local::mirror::SOCKET)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("tunnel".into())
        .spawn(move || {
            let end: io::Result<()> = runtime.block_on(async {
                let messages = UnixListener::from_std(messages)?;
                let files = UnixListener::from_std(files)?;
                let mut terminate = signal(SignalKind::terminate())?;
                loop {
                    let (stream, channel) = tokio::select! {
                        accepted = messages.accept() => (accepted?.0, "messages"),
                        accepted = files.accept() => (accepted?.0, "files"),
                        _ = terminate.recv() => {
                            notice.give(NOTICE);
                            continue;
                        }
                    };
                    let way = way.clone();
                    tokio::spawn(async move { way.carry(stream, channel).await });
                }
            });
            if let Err(error) = end {
                tracing::error!("the tunnel is broken: {error}");
                std::process::abort(); // the pod ends, and the work begins again elsewhere
            }
        })?;
    agent.serve()
}
