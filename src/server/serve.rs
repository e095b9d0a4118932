//! Serves one client from its first message to its last.

use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::handler::McpHandler;
use super::logs::LogReceiver;
use crate::mcp::server::LineTransport;
use crate::session::RunPython;
use crate::settings::Settings;
use crate::upstream::Event;

/// The two streams of a client, and what says that it no longer reads.
#[derive(Debug)]
pub struct Connection<R, W, H> {
    pub input: R,
    pub output: W,
    /// Ends when the client can read no more answers.
    pub hung_up: H,
}

/// Why the service stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The result of `initialize` could not be sent.
    #[error("failed to open the session: {0}")]
    Open(#[source] Box<ServerInitializeError>),
    #[error("failed to serve: {0}")]
    Loop(#[from] tokio::task::JoinError),
}

/// Serves until the client closes its end, cannot be written to any more, or `stop` is cancelled. Calls that still
/// run get a short time to end, then they are cancelled. Log messages among `events` go to the client.
///
/// # Errors
/// The service broke down.
pub async fn serve<P, R, W, H>(
    sessions: Arc<P>,
    events: broadcast::Receiver<Event>,
    settings: &Settings,
    connection: Connection<R, W, H>,
    stop: CancellationToken,
) -> Result<(), ServeError>
where
    P: RunPython,
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
    H: Future<Output = ()>,
{
    let stop = stop.child_token();
    let broken = CancellationToken::new();
    let transport = LineTransport::new(connection.input, connection.output, broken.clone());
    let service = McpHandler::new(sessions, LogReceiver::of(events), Default::default(), settings);
    let served = {
        let serving = serve_until_closed(service, transport, stop.clone());
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => served,
            () = async { tokio::select! { () = connection.hung_up => {}, () = broken.cancelled() => {} } } => {
                // Nobody is left to read an answer.
                tracing::debug!("the client is gone");
                stop.cancel();
                serving.await
            }
        }
    };
    // Handlers that outlive the connection see that by their tokens.
    stop.cancel();
    served
}

async fn serve_until_closed<P, R>(
    service: McpHandler<P>,
    transport: LineTransport<R>,
    stop: CancellationToken,
) -> Result<(), ServeError>
where
    P: RunPython,
    R: AsyncRead + Unpin + Send + 'static,
{
    match service.serve_with_ct(transport, stop).await {
        Ok(running) => {
            let reason = running.waiting().await?;
            tracing::debug!(?reason, "served");
            Ok(())
        }
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(ServerInitializeError::TransportError { error, .. }) => {
            tracing::debug!(%error, "the client was gone before the session was opened");
            Ok(())
        }
        Err(error) => Err(ServeError::Open(Box::new(error))),
    }
}
