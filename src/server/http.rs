//! MCP over streamable HTTP, for one user of the bridge. `rmcp` does the protocol; who the user is was decided before.

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::streamable_http_server::session::local::SessionConfig;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::handler::McpHandler;
use super::http_sessions::HttpSessions;
use super::logs::LogReceiver;
use super::rounds::Rounds;
use super::tasks::Tasks;
use crate::session::{Authority, RunPython};
use crate::settings::Settings;
use crate::upstream::Event;

/// How long a session without messages lasts. A client that comes back later opens another one; its interpreters are not
/// affected.
const SESSION_IDLE: Duration = Duration::from_secs(12 * 3600);
/// How long a client may take from the opening of a session to its end.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// What all connections of a user have in common.
#[derive(Debug)]
pub struct McpUser<P> {
    sessions: Arc<P>,
    rounds: Arc<Rounds>,
    tasks: Arc<Tasks>,
    /// Not read: each session subscribes to the same events.
    events: broadcast::Receiver<Event>,
    settings: Settings,
}

/// The service of one credential of a user. Its sessions are unknown to all others.
pub struct McpService<P: RunPython> {
    service: StreamableHttpService<McpHandler<P>, HttpSessions>,
    manager: Arc<HttpSessions>,
}

impl<P: RunPython> std::fmt::Debug for McpService<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpService").finish_non_exhaustive()
    }
}

impl<P: RunPython> McpUser<P> {
    pub fn new(sessions: Arc<P>, events: broadcast::Receiver<Event>, settings: Settings) -> Self {
        Self { sessions, rounds: Arc::default(), tasks: Arc::default(), events, settings }
    }

    /// Returns the server of one session, or of one request where there are no sessions.
    fn handler(&self, authority: Authority) -> McpHandler<P> {
        let logs = LogReceiver::of(self.events.resubscribe());
        let waiting = (Arc::clone(&self.rounds), Arc::clone(&self.tasks));
        McpHandler::new(Arc::clone(&self.sessions), logs, waiting, &self.settings).with_authority(authority)
    }

    /// Returns a service for one credential. It ends with `stop`, and so does what its calls began.
    pub fn service(self: &Arc<Self>, longest_body: usize, stop: CancellationToken) -> McpService<P> {
        let mut sessions = SessionConfig::default();
        sessions.keep_alive = Some(SESSION_IDLE);
        sessions.init_timeout = Some(HANDSHAKE);
        let manager = Arc::new(HttpSessions::new(sessions));
        let authority = Authority::until(stop.clone());
        // Hosts and origins are checked for all paths, not only for this one.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_max_request_body_bytes(longest_body)
            .with_cancellation_token(stop);
        let user = Arc::clone(self);
        let service = StreamableHttpService::new(
            move || Ok(user.handler(authority.clone())),
            Arc::clone(&manager),
            config,
        );
        McpService { service, manager }
    }
}

impl<P: RunPython> McpService<P> {
    /// Answers a request.
    pub async fn answer(&self, request: http::Request<axum::body::Body>) -> http::Response<axum::body::Body> {
        self.service.handle(request).await.map(axum::body::Body::new)
    }

    /// Returns the number of open sessions.
    pub async fn sessions(&self) -> usize {
        self.manager.count().await
    }
}
