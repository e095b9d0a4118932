//! MCP over streamable HTTP, for one user of the bridge. `rmcp` does the protocol; who the user is was decided before.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult,
    ErrorData, InitializeRequestParams, InitializeResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde::Serialize;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::handler::McpHandler;
use super::held::Held;
use super::logs::LogReceiver;
use super::rounds::Rounds;
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
    /// Not read: each session subscribes to the same events.
    events: broadcast::Receiver<Event>,
    settings: Settings,
}

/// The service of one credential of a user. Its sessions are unknown to all others.
pub struct McpService<P: RunPython> {
    service: StreamableHttpService<HttpHandler<P>, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
}

impl<P: RunPython> std::fmt::Debug for McpService<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpService").finish_non_exhaustive()
    }
}

impl<P: RunPython> McpUser<P> {
    pub fn new(sessions: Arc<P>, events: broadcast::Receiver<Event>, settings: Settings) -> Self {
        Self { sessions, rounds: Arc::default(), events, settings }
    }

    fn handler(self: &Arc<Self>, authority: Authority) -> HttpHandler<P> {
        let logs = Arc::<LogReceiver>::default();
        let (sessions, rounds) = (Arc::clone(&self.sessions), Arc::clone(&self.rounds));
        let handler =
            McpHandler::new(sessions, Arc::clone(&logs), rounds, &self.settings).with_authority(authority);
        HttpHandler { handler, logs, user: Arc::clone(self), forwarding: OnceLock::new() }
    }

    /// Returns a service for one credential. It ends with `stop`, and so does what its calls began.
    pub fn service(self: &Arc<Self>, longest_body: usize, stop: CancellationToken) -> McpService<P> {
        let mut sessions = SessionConfig::default();
        sessions.keep_alive = Some(SESSION_IDLE);
        sessions.init_timeout = Some(HANDSHAKE);
        let mut manager = LocalSessionManager::default();
        manager.session_config = sessions;
        let manager = Arc::new(manager);
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
        self.manager.sessions.read().await.len()
    }
}

/// The server of one session, or of one request where there are no sessions.
struct HttpHandler<P: RunPython> {
    handler: McpHandler<P>,
    logs: Arc<LogReceiver>,
    user: Arc<McpUser<P>>,
    forwarding: OnceLock<AbortOnDropHandle<()>>,
}

/// Answers a request whose handler panics: the caller must not wait for ever.
async fn guarded<T>(handling: impl Future<Output = Result<T, ErrorData>>) -> Result<T, ErrorData> {
    AssertUnwindSafe(handling).catch_unwind().await.unwrap_or_else(|_| {
        let message = "the request failed because of a bug in codebridge; see its log";
        Err(ErrorData::internal_error(message, None))
    })
}

type Context = RequestContext<RoleServer>;

/// What a call says whose result has no space.
const UNREAD: &str = "the answer is left out: this user has not read answers of 64 MiB\nhint: read the answers of other calls first; what the code did is done";

/// Whether there is space for an answer until it is read.
async fn has_space(held: Option<Held>, answer: &impl Serialize) -> bool {
    match held {
        Some(held) => held.add_result(answer).await,
        None => true,
    }
}

impl<P: RunPython> ServerHandler for HttpHandler<P> {
    fn get_info(&self) -> ServerConfig {
        self.handler.get_info()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: Context,
    ) -> Result<InitializeResult, ErrorData> {
        let opened = self.handler.initialize(request, context).await?;
        self.forwarding.get_or_init(|| {
            let forwarding = Arc::clone(&self.logs).forward_logs(self.user.events.resubscribe());
            AbortOnDropHandle::new(tokio::spawn(forwarding))
        });
        Ok(opened)
    }

    #[expect(deprecated, reason = "clients of the versions before 2026-07-28 may set it")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        self.handler.set_level(request, context).await
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        self.handler.list_tools(request, context).await
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let held = Held::of(&context.extensions);
        let answer = guarded(self.handler.call_tool(call, context)).await?;
        match &answer {
            CallToolResponse::Complete(result) if !has_space(held, result).await => {
                Ok(CallToolResult::error(vec![ContentBlock::text(format!("error: {UNREAD}"))]).into())
            }
            _ => Ok(answer),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        guarded(self.handler.list_resources(request, context)).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.handler.list_resource_templates(request, context).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let held = Held::of(&context.extensions);
        let answer = guarded(self.handler.read_resource(request, context)).await?;
        match &answer {
            ReadResourceResponse::Complete(result) if !has_space(held, result).await => {
                Err(ErrorData::internal_error(UNREAD, None))
            }
            _ => Ok(answer),
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: Context,
    ) -> Result<CustomResult, ErrorData> {
        guarded(self.handler.on_custom_request(request, context)).await
    }
}
