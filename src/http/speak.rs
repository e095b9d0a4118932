//! The requests of one connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Extensions;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::body::Answer;

/// How long a connection may take to send the head of a request, or be idle before it.
pub(super) const HEAD: Duration = Duration::from_secs(75);
/// Bytes of the head of a request.
const LONGEST_HEAD: usize = 64 << 10;

/// Answers the requests of a connection with a peer, until it ends or `ending` is cancelled, or the head of a request takes longer
/// than `head`. What `begin` returns is dropped when a request has ended.
pub(super) async fn speak<S, B>(
    stream: S,
    router: Router,
    (peer, begin): (Option<SocketAddr>, impl Fn(&mut Extensions) -> B + Send + 'static),
    head: Duration,
    ending: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        let busy = begin(request.extensions_mut());
        let answering = TowerToHyperService::new(router.clone()).call(request.map(Body::new));
        async move { Ok::<_, Infallible>(answering.await?.map(|body| Answer::of(body, busy, None))) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(LONGEST_HEAD);
    let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        served = &mut serving => served,
        () = ending.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    let peer = peer.map(tracing::field::display);
    match served {
        // It was answered, and nothing else sees it: two lengths, an unknown encoding, a line end within a value, too many bytes.
        Err(error) if error.is_parse() => {
            tracing::info!(reason = "head", peer, %error, "refused a request: its head is malformed");
        }
        Err(error) => tracing::debug!(peer, %error, "a connection failed"),
        Ok(()) => {}
    }
}
