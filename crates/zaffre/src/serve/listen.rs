//! Connections: https and, on the loopback only, http on one port, told apart by the first byte.
//!
//! N1 a client that does not speak is dropped after a limit, and there is a limit of connections;
//! N2 plain http is served on a loopback address only: elsewhere tokens would be readable on the way.

use crate::failure::Failure;
use api::{Routes, Scheme};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, oneshot},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

/// Connections at once; file descriptors are left for work.
const CONNECTIONS: usize = 512;
/// For the first byte and the handshake.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// For the headers of each request.
const HEADER_LIMIT: Duration = Duration::from_secs(30);
/// For requests under way when the server stops.
const FAREWELL_LIMIT: Duration = Duration::from_secs(5);
/// Pause after a failed accept (no descriptors left): without it the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// First byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// A port that is open and not yet answering.
pub struct Port {
    listener: TcpListener,
    /// Where it is.
    pub address: SocketAddr,
}

impl Port {
    /// Opens the port.
    pub async fn open(listen: &str) -> Result<Port, Failure> {
        let wrong = |error: &std::io::Error| {
            let failure = Failure::wrong(format!(
                "--listen {listen}: {}",
                crate::failure::plain(error)
            ));
            match error.kind() {
                std::io::ErrorKind::AddrInUse => failure
                    .hint("another server has this port; --listen 127.0.0.1:0 picks a free one"),
                _ => failure.hint("write ADDRESS:PORT, as in 127.0.0.1:8443"),
            }
        };
        let listen_on = listen
            .strip_prefix(':')
            .map_or_else(|| listen.to_owned(), |port| format!("127.0.0.1:{port}"));
        let listener = TcpListener::bind(&listen_on)
            .await
            .map_err(|error| wrong(&error))?;
        let address = listener.local_addr().map_err(|error| wrong(&error))?;
        Ok(Port { listener, address })
    }

    /// Serves until `stop`, then lets requests under way end.
    pub async fn serve(
        self,
        routes: Routes,
        tls: Arc<rustls::ServerConfig>,
        mut stop: oneshot::Receiver<()>,
    ) {
        let doors = Arc::new(Doors {
            tls: TlsAcceptor::from(tls),
            plain: self.address.ip().is_loopback(),
            http: server(),
            https: routes.over(Scheme::Https),
            cleartext: routes.over(Scheme::Http),
        });
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let graceful = GracefulShutdown::new();
        loop {
            let Ok(place) = places.clone().acquire_owned().await else {
                break;
            };
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = &mut stop => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (doors, watcher) = (doors.clone(), graceful.watcher());
            tokio::spawn(async move {
                doors.admit(stream, watcher).await;
                drop(place);
            });
        }
        drop(self.listener);
        if timeout(FAREWELL_LIMIT, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests were still under way when the server stopped");
        }
    }
}

fn server() -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT);
    server.http2().timer(TokioTimer::new());
    server
}

/// What a connection is let in by.
struct Doors {
    tls: TlsAcceptor,
    plain: bool,
    http: auto::Builder<TokioExecutor>,
    https: Routes,
    cleartext: Routes,
}

impl Doors {
    async fn admit(&self, mut stream: TcpStream, watcher: hyper_util::server::graceful::Watcher) {
        // Answers are small and each is waited for.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let mut first = [0];
        let Ok(Ok(1)) = timeout(GREETING_LIMIT, stream.peek(&mut first)).await else {
            return;
        };
        if first[0] == TLS_HANDSHAKE {
            match timeout(GREETING_LIMIT, self.tls.accept(stream)).await {
                Ok(Ok(stream)) => self.talk(stream, self.https.clone(), watcher).await,
                Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
                Err(_) => tracing::debug!("handshake took too long"),
            }
        } else if self.plain {
            self.talk(stream, self.cleartext.clone(), watcher).await;
        } else {
            let text = "this address speaks https only\n";
            let answer = format!(
                "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            );
            if let Err(error) = stream.write_all(answer.as_bytes()).await {
                tracing::debug!(%error, "a client left before it was refused");
            }
        }
    }

    async fn talk<S>(
        &self,
        stream: S,
        routes: Routes,
        watcher: hyper_util::server::graceful::Watcher,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = self
            .http
            .serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(routes));
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}
