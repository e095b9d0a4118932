//! The sessions of the protocol of one credential: those of `rmcp`, with what `rmcp` does not know of tasks.

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError as Error, LocalSessionWorker, SessionConfig,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId};

use crate::mcp::server::{announce, unread};

/// The sessions of one credential.
#[derive(Debug)]
pub(super) struct HttpSessions(LocalSessionManager);

impl HttpSessions {
    pub(super) fn new(config: SessionConfig) -> Self {
        let mut manager = LocalSessionManager::default();
        manager.session_config = config;
        Self(manager)
    }

    /// Returns the number of open sessions.
    pub(super) async fn count(&self) -> usize {
        self.0.sessions.read().await.len()
    }
}

impl SessionManager for HttpSessions {
    type Error = Error;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Error> {
        self.0.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Error> {
        self.0.initialize_session(id, message).await.map(announce)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Error> {
        self.0.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Error> {
        self.0.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Error> {
        self.0.create_stream(id, unread(message)).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Error> {
        self.0.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Error> {
        self.0.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Error> {
        self.0.resume(id, last_event_id).await
    }
}
