//! Makes a connection: which transport, which handshake.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::http::StatusCode;
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RunningService, serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::Transport;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, ConnectionParts};
use super::context::Context;
use super::environment::environment;
use super::handler::{Calls, Handler};
use super::http::{self, HttpError, OlderTransport, Remote};
use super::notices::{Printed, ServerNotices};
use super::process::{self, Launching, SpawnError};
use super::secrets::Secrets;
use super::starting::Start;
use super::stdio::StdioTransport;
use super::updates::Updates;
use crate::mcp::client::Inbox;
use crate::upstream::discovery::{Definition, Launch, OWN_NAMES, Server, Skip};
use crate::upstream::error::{Remedy, UpstreamError};
use crate::upstream::login::{Bearer, LoginError};
use crate::upstream::openapi::OpenApiTransport;

/// Transport and handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// `initialize`, which all servers understand today.
    Initialize,
    /// `server/discover` of protocol version 2026-07-28.
    Discover,
    /// `initialize` over the HTTP transport with a stream of events, which streamable HTTP has replaced.
    Older,
}

/// Which other protocol may work after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advice {
    None,
    Discover,
    OtherTransport,
}

/// Why there is no connection.
#[derive(Debug)]
struct Failure {
    why: String,
    printed: String,
    stderr: String,
    remedy: Option<Remedy>,
    /// The error response of a remote server: its status, and the start of its body.
    response: Option<(StatusCode, String)>,
    /// Why the login of the user cannot be used.
    login: Option<Box<LoginError>>,
    advice: Advice,
}

impl Failure {
    fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            printed: String::new(),
            stderr: String::new(),
            remedy: None,
            response: None,
            login: None,
            advice: Advice::None,
        }
    }

    fn not_ready(limit: Duration) -> Self {
        let why = format!("it was not ready within {limit:?}");
        Self { remedy: Some(Remedy::MoreTime), ..Self::new(why) }
    }

    /// Adds what the error of a request says.
    fn with_http(mut self, error: &HttpError) -> Self {
        match error {
            HttpError::Status { status, body } => self.response = Some((*status, body.clone())),
            HttpError::Login(error) => self.login = Some(Box::new(error.clone())),
            HttpError::Certificate { is_unknown: true, .. } => self.remedy = Some(Remedy::TrustIssuer),
            _ => {}
        }
        if error.suggests_other_transport() {
            self.advice = Advice::OtherTransport;
        }
        self
    }

    /// Adds what the server wrote: to its standard error, and where only messages belong.
    fn with_output(self, printed: &Printed, stderr: String) -> Self {
        let printed = printed.text();
        // What it printed may be a banner: a remedy that is known is the better one.
        let other_command = (!printed.is_empty()).then_some(Remedy::OtherCommand);
        let remedy = self.remedy.or(other_command);
        Self { printed, stderr, remedy, ..self }
    }

    fn into_error(self, server: &Server, definition: &Definition, login: Option<Bearer>) -> UpstreamError {
        if let Some(error) = self.login {
            return UpstreamError::Login(error);
        }
        let secrets = Secrets::of(definition).with_login(login);
        let url = definition.launch.public_url().map(|url| secrets.redact(&url));
        if let (Some((status, body)), Some(url)) = (&self.response, &url) {
            let (server, has_login) = (Arc::clone(&server.name), definition.launch.has_login());
            let body = secrets.redact(body);
            return UpstreamError::Http { server, status: *status, url: url.clone(), body, has_login };
        }
        let remedy = self.remedy.filter(|remedy| match remedy {
            // Nothing with a credential in it can be installed.
            Remedy::Install(program) => secrets.redact(program) == **program,
            _ => true,
        });
        UpstreamError::Start {
            server: Arc::clone(&server.name),
            url: url.map(Into::into),
            why: secrets.redact(&self.why),
            remedy,
            printed: self.printed.into(),
            stderr: self.stderr,
        }
    }
}

/// Starts a server and does the handshake. A server whose answer says that it knows another protocol only gets a second
/// attempt with that one.
pub(super) async fn connect(
    server: &Server,
    definition: Arc<Definition>,
    context: &Context,
) -> Result<Arc<Connection>, UpstreamError> {
    let first = match &definition.launch {
        Launch::Http { older: true, .. } => Protocol::Older,
        _ => Protocol::Initialize,
    };
    let bearer = context.logins.bearer(&server.name, &definition.launch);
    let failure = match connect_by(first, server, &definition, &bearer, context).await {
        Ok(connection) => return Ok(connection),
        Err(failure) => failure,
    };
    let second = match (first, failure.advice) {
        (Protocol::Initialize, Advice::Discover) => Some(Protocol::Discover),
        (Protocol::Initialize, Advice::OtherTransport) => Some(Protocol::Older),
        (Protocol::Older, Advice::OtherTransport) => Some(Protocol::Initialize),
        _ => None,
    };
    if let Some(second) = second
        && let Ok(connection) = connect_by(second, server, &definition, &bearer, context).await
    {
        return Ok(connection);
    }
    // The first attempt is the one that the definition asks for.
    Err(failure.into_error(server, &definition, bearer))
}

async fn connect_by(
    protocol: Protocol,
    server: &Server,
    definition: &Arc<Definition>,
    bearer: &Option<Bearer>,
    context: &Context,
) -> Result<Arc<Connection>, Failure> {
    let secrets = Arc::new(Secrets::of(definition).with_login(bearer.clone()));
    let (on_tools_changed, tools_changed) = watch::channel(0);
    let (on_offers_changed, offers_changed) = watch::channel(0);
    let (updates, calls) = (Updates::default(), Calls::default());
    let name = Arc::clone(&server.name);
    let printed = Printed::default();
    let notices = ServerNotices {
        server: Arc::clone(&name),
        secrets: Arc::clone(&secrets),
        events: context.events.clone(),
        on_tools_changed,
        on_offers_changed,
        updates: updates.clone(),
        calls: calls.clone(),
        has_listened: AtomicBool::new(false),
        printed: printed.clone(),
    };
    let inbox = Inbox::new(Box::new(notices));
    let unreadable = inbox.unreadable();
    let (runs, knows_tasks) = (context.runs.clone(), protocol == Protocol::Discover);
    let handler = Handler::new(Arc::clone(&name), runs, calls.clone(), inbox.questions(), knows_tasks);
    let mut parts = ConnectionParts {
        server: name,
        source: Arc::clone(&server.source.path),
        definition: Arc::clone(definition),
        secrets,
        process: None,
        gone: CancellationToken::new(),
        tools_changed,
        offers_changed,
        updates,
        listens: protocol == Protocol::Discover,
        calls,
        _opened: context.telemetry.open_connection(),
    };
    let limit = definition.startup_timeout.unwrap_or(context.limits.startup);
    let start = context.starting.begin(&parts.server, &parts.secrets);
    let handshake = handshake(protocol, handler, inbox, &mut parts, &start, context);
    let error = match tokio::time::timeout(limit, handshake).await {
        Ok(Ok(service)) if !context.allow_self && is_itself(&service) => {
            // The definition did not show it.
            return Err(Failure::new(Skip::Itself.to_string()));
        }
        Ok(Ok(service)) => return Ok(Connection::new(parts, service)),
        Ok(Err(Refused::Before(failure))) => return Err(failure),
        Ok(Err(Refused::Handshake(error))) => Some(error),
        Err(_) => None,
    };
    let failure = match error {
        Some(error) => {
            let how = parts.exit_status().await;
            let why = match unreadable.get() {
                Some(reason) => format!("its first answer is unreadable: {reason}"),
                None => why_not_ready(&error, how),
            };
            let failure = Failure { advice: Advice::of(&error), ..Failure::new(why) };
            match &*error {
                ClientInitializeError::TransportError { error, .. } => {
                    match http::http_error(&*error.error) {
                        Some(error) => failure.with_http(error),
                        None => failure,
                    }
                }
                _ => failure,
            }
        }
        None => Failure::not_ready(limit),
    };
    Err(failure.with_output(&printed, parts.stderr()))
}

/// Whether the server says that it is this bridge.
fn is_itself(service: &RunningService<RoleClient, Handler>) -> bool {
    let peer = service.peer_info();
    let name = peer.as_ref().and_then(|peer| peer.server_info.as_ref()).map(|info| info.name.as_str());
    name.is_some_and(|name| OWN_NAMES.contains(&name))
}

/// Why there was no handshake, or why it failed.
enum Refused {
    Before(Failure),
    Handshake(Box<ClientInitializeError>),
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        let remedy = match &error {
            SpawnError::NotFound(command) if !command.contains(' ') => {
                Some(Remedy::Install(command.as_str().into()))
            }
            _ => None,
        };
        Self { remedy, ..Self::new(error.to_string()) }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Before(failure)
    }
}

async fn handshake(
    protocol: Protocol,
    handler: Handler,
    inbox: Inbox,
    parts: &mut ConnectionParts,
    start: &Start,
    context: &Context,
) -> Result<RunningService<RoleClient, Handler>, Refused> {
    let definition = Arc::clone(&parts.definition);
    match &definition.launch {
        Launch::Stdio { command, args, env, cwd } => {
            let environment = environment(&context.environment, env);
            let folder = cwd.as_deref().unwrap_or(&context.cwd);
            let launching =
                Launching { command, args, environment: &environment, folder, reaper: &context.reaper };
            let (process, stdin, stdout) =
                process::start(launching, parts.gone.clone()).await.map_err(Failure::from)?;
            start.set_stderr(&process.stderr);
            parts.process = Some(process.clone());
            let transport = StdioTransport::new(process, stdin, stdout, inbox, parts.gone.clone());
            serve(handler, transport, protocol).await
        }
        Launch::Http { url, headers, options, .. } if protocol == Protocol::Older => {
            let remote = Remote { url, headers, options, bearer: parts.secrets.login() };
            let opened = OlderTransport::open(remote, inbox, parts.gone.clone()).await;
            let transport = opened.map_err(|error| Failure::new(error.to_string()).with_http(&error))?;
            serve(handler, transport, protocol).await
        }
        Launch::Http { url, headers, options, .. } => {
            let remote = Remote { url, headers, options, bearer: parts.secrets.login() };
            let transport =
                http::streamable(remote, context.limits.calls_at_once, inbox, parts.calls.clone())
                    .map_err(|error| Failure::new(error.to_string()))?;
            serve(handler, transport, protocol).await
        }
        Launch::OpenApi(openapi) => {
            let opened = OpenApiTransport::open(openapi, inbox).await;
            let transport = opened.map_err(|error| Failure::new(error.to_string()))?;
            serve(handler, transport, protocol).await
        }
    }
}

async fn serve<T: Transport<RoleClient> + 'static>(
    handler: Handler,
    transport: T,
    protocol: Protocol,
) -> Result<RunningService<RoleClient, Handler>, Refused> {
    let lifecycle = match protocol {
        Protocol::Initialize | Protocol::Older => ClientLifecycleMode::Initialize,
        Protocol::Discover => {
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] }
        }
    };
    let serving = serve_client_with_lifecycle_and_ct(handler, transport, lifecycle, CancellationToken::new());
    serving.await.map_err(|error| Refused::Handshake(Box::new(error)))
}

impl Advice {
    fn of(error: &ClientInitializeError) -> Self {
        const NEWER: [ErrorCode; 2] = [ErrorCode::METHOD_NOT_FOUND, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION];
        match error {
            ClientInitializeError::JsonRpcError(error) if NEWER.contains(&error.code) => Self::Discover,
            _ => Self::None,
        }
    }
}

/// Returns why a handshake failed.
fn why_not_ready(error: &ClientInitializeError, how: Option<String>) -> String {
    match (error, how) {
        (ClientInitializeError::ConnectionClosed(_), Some(how)) => {
            format!("it exited before it was ready ({how})")
        }
        (ClientInitializeError::ConnectionClosed(_), None) => {
            "it closed the connection before it was ready".into()
        }
        (ClientInitializeError::JsonRpcError(error), _) => {
            format!("it refused the handshake: {} ({})", error.message, error.code.0)
        }
        (ClientInitializeError::TransportError { error, .. }, Some(how)) => {
            format!("it exited before it was ready ({how}): {}", error.error)
        }
        (ClientInitializeError::TransportError { error, .. }, None) => {
            http::message_of(&*error.error).unwrap_or_else(|| error.error.to_string())
        }
        (error, _) => error.to_string(),
    }
}
