//! Connections: how many there are, and how long one may take to say who it is.
//!
//! A connection that has not yet sent a valid credential is worth little: if there are too many of them, the oldest is closed
//! for each new one. So nobody who has a credential notices those who only open connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::address::Listener;

/// Connections in all, if the process may open so many files.
const MOST: usize = 16_384;
/// Connections that have not sent a valid credential.
const MOST_STRANGERS: usize = 1_024;
/// How long a connection may take until its first valid credential.
const INTRODUCTION: Duration = Duration::from_secs(20);
/// How long a connection may take to send the head of a request, or be idle before it.
const HEAD: Duration = Duration::from_secs(75);
/// Bytes of the head of a request.
const LONGEST_HEAD: usize = 64 << 10;
/// How long the answers that are under way may take at the end.
const FLUSH: Duration = Duration::from_secs(2);

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    state: Mutex<State>,
    tasks: TaskTracker,
    /// Cancelled when connections end after their current request.
    ending: CancellationToken,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    open: usize,
    /// Those without a valid credential, oldest first.
    strangers: BTreeMap<u64, CancellationToken>,
}

/// One connection, as its requests see it.
#[derive(Debug, Clone)]
pub(super) struct Connection(Arc<Introduced>);

#[derive(Debug)]
struct Introduced {
    number: u64,
    /// None for a socket of this machine.
    peer: Option<SocketAddr>,
    all: Arc<Connections>,
    introduced: CancellationToken,
}

impl Connection {
    /// Returns the other end, for the log.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    /// Notes that a valid credential was sent.
    pub(super) fn introduce(&self) {
        if !self.0.introduced.is_cancelled() {
            self.0.all.lock().strangers.remove(&self.0.number);
            self.0.introduced.cancel();
        }
    }
}

/// Counts a connection until it is dropped.
struct Open {
    number: u64,
    all: Arc<Connections>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        state.open -= 1;
        state.strangers.remove(&self.number);
    }
}

impl Connections {
    pub(super) fn new() -> Arc<Self> {
        let files = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok());
        // The other half is for sandboxes, servers and files.
        let most = files.map_or(MOST, |files| (files / 2).min(MOST));
        Arc::new(Self {
            state: Mutex::default(),
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
            most,
        })
    }

    /// Returns how many connections are open.
    pub(super) fn open(&self) -> usize {
        self.lock().open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until `stop`.
    pub(super) async fn accept(
        self: &Arc<Self>,
        listener: &Listener,
        tls: Option<TlsAcceptor>,
        router: Router,
        stop: CancellationToken,
    ) {
        loop {
            let accepted = tokio::select! {
                accepted = accept(listener) => accepted,
                () = stop.cancelled() => return,
            };
            match accepted {
                Ok(stream) => self.take(stream, tls.clone(), router.clone()),
                Err(error) => {
                    // Out of files or memory: others end meanwhile.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_millis(200)) => {}
                        () = stop.cancelled() => return,
                    }
                }
            }
        }
    }

    /// Serves a connection in a task of its own, unless there are too many.
    fn take(self: &Arc<Self>, stream: Stream, tls: Option<TlsAcceptor>, router: Router) {
        let evicted = CancellationToken::new();
        let number = {
            let mut state = self.lock();
            let is_full = state.open >= self.most;
            if (is_full || state.strangers.len() >= MOST_STRANGERS)
                && let Some((_, oldest)) = state.strangers.pop_first()
            {
                oldest.cancel();
            } else if is_full {
                tracing::warn!(most = self.most, "refused a connection: too many are open");
                return;
            }
            state.last += 1;
            state.open += 1;
            let number = state.last;
            state.strangers.insert(number, evicted.clone());
            number
        };
        let open = Open { number, all: Arc::clone(self) };
        let introduced = CancellationToken::new();
        let peer = match &stream {
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            Stream::Unix(_) => None,
        };
        let all = Arc::clone(self);
        let connection =
            Connection(Arc::new(Introduced { number, peer, all, introduced: introduced.clone() }));
        let ending = self.ending.clone();
        self.tasks.spawn(async move {
            let _open = open;
            let serving = serve(stream, tls, router, connection, ending);
            tokio::select! {
                () = serving => {}
                () = evicted.cancelled() => tracing::debug!("closed a connection without a credential: there are too many"),
                () = async {
                    if tokio::time::timeout(INTRODUCTION, introduced.cancelled()).await.is_ok() {
                        std::future::pending::<()>().await;
                    }
                } => tracing::debug!("closed a connection that sent no valid credential"),
            }
        });
    }

    /// Ends all connections after the answers that are under way.
    pub(super) async fn end(&self) {
        self.ending.cancel();
        self.tasks.close();
        if tokio::time::timeout(FLUSH, self.tasks.wait()).await.is_err() {
            tracing::debug!("some clients did not read their last answers");
        }
    }
}

/// A connection of either kind.
enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

async fn accept(listener: &Listener) -> std::io::Result<Stream> {
    match listener {
        Listener::Tcp(listener, _) => {
            let (stream, _) = listener.accept().await?;
            // Answers are small, and nothing follows that they could wait for.
            let _ = stream.set_nodelay(true);
            Ok(Stream::Tcp(stream))
        }
        Listener::Unix(listener, _) => Ok(Stream::Unix(listener.accept().await?.0)),
    }
}

async fn serve(
    stream: Stream,
    tls: Option<TlsAcceptor>,
    router: Router,
    connection: Connection,
    ending: CancellationToken,
) {
    match (stream, tls) {
        (Stream::Tcp(stream), None) => speak(stream, router, connection, ending).await,
        (Stream::Unix(stream), _) => speak(stream, router, connection, ending).await,
        (Stream::Tcp(stream), Some(tls)) => match tls.accept(stream).await {
            Ok(stream) => speak(stream, router, connection, ending).await,
            Err(error) => tracing::debug!(%error, "a client did not finish the handshake of TLS"),
        },
    }
}

async fn speak<S>(stream: S, router: Router, connection: Connection, ending: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(connection.clone());
        TowerToHyperService::new(router.clone()).call(request.map(Body::new))
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LONGEST_HEAD);
    let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        served = &mut serving => served,
        () = ending.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection failed");
    }
}
