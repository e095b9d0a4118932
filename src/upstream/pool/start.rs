//! Making a connection: over which transport, and with which handshake.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RunningService, serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::Transport;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Made, how_it_ended};
use super::context::Context;
use super::environment::environment;
use super::handler::{Calls, Handler};
use super::http::{self, OlderTransport};
use super::notices::ServerNotices;
use super::process::{self, Launching};
use super::secrets::Secrets;
use super::starting::Start;
use super::stdio::StdioTransport;
use crate::mcp::client::Inbox;
use crate::upstream::discovery::{Definition, Launch, OWN_NAMES, Server, Skip};
use crate::upstream::error::UpstreamError;

/// How hands are shaken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As all servers of today understand it.
    Initialize,
    /// As only those that come after them do.
    Discover,
    /// As those of today do, over the transport of yesterday.
    Older,
}

/// What a failure suggests.
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
    stderr: String,
    advice: Advice,
}

impl Failure {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), stderr: String::new(), advice: Advice::None }
    }

    fn not_ready(limit: Duration) -> Self {
        Self::new(format!("it was not ready within {limit:?}"))
    }
}

/// Starts a server and shakes hands with it. First as all servers of today understand it; one that says that it knows
/// only what comes after that, or what was before, gets another try.
pub(super) async fn connect(
    server: &Server,
    definition: Arc<Definition>,
    context: &Context,
) -> Result<Arc<Connection>, UpstreamError> {
    let first = match &definition.launch {
        Launch::Http { older: true, .. } => Way::Older,
        _ => Way::Initialize,
    };
    let failure = match connect_by(first, server, &definition, context).await {
        Ok(connection) => return Ok(connection),
        Err(failure) => failure,
    };
    let second = match (first, failure.advice) {
        (Way::Initialize, Advice::Discover) => Some(Way::Discover),
        (Way::Initialize, Advice::OtherTransport) => Some(Way::Older),
        (Way::Older, Advice::OtherTransport) => Some(Way::Initialize),
        _ => None,
    };
    if let Some(second) = second
        && let Ok(connection) = connect_by(second, server, &definition, context).await
    {
        return Ok(connection);
    }
    // Of what the user asked for; that something else did not work either is no news.
    let secrets = Secrets::of(&definition);
    Err(UpstreamError::Start {
        server: Arc::clone(&server.name),
        why: secrets.redact(&failure.why),
        stderr: failure.stderr,
    })
}

async fn connect_by(
    way: Way,
    server: &Server,
    definition: &Arc<Definition>,
    context: &Context,
) -> Result<Arc<Connection>, Failure> {
    let secrets = Arc::new(Secrets::of(definition));
    let (on_tools_changed, tools_changed) = watch::channel(0);
    let name = Arc::clone(&server.name);
    let notices = ServerNotices {
        server: Arc::clone(&name),
        secrets: Arc::clone(&secrets),
        events: context.events.clone(),
        on_tools_changed,
    };
    let inbox = Inbox::new(Box::new(notices));
    let unreadable = inbox.unreadable();
    let calls = Calls::default();
    let handler = Handler::new(Arc::clone(&name), context.runs.clone(), calls.clone(), inbox.questions());
    let mut made = Made {
        server: name,
        source: Arc::clone(&server.source.path),
        definition: Arc::clone(definition),
        secrets,
        process: None,
        gone: CancellationToken::new(),
        tools_changed,
        calls,
    };
    let limit = definition.startup_timeout.unwrap_or(context.limits.startup);
    let start = context.starting.begin(&made.server, &made.secrets);
    let shaking = shake_hands(way, handler, inbox, &mut made, &start, context);
    let error = match tokio::time::timeout(limit, shaking).await {
        Ok(Ok(service)) if !context.allow_self && is_itself(&service) => {
            // Whatever hid it in the definition.
            return Err(Failure::new(Skip::Itself.to_string()));
        }
        Ok(Ok(service)) => return Ok(Connection::new(made, service)),
        Ok(Err(Refused::Before(failure))) => return Err(failure),
        Ok(Err(Refused::Handshake(error))) => Some(error),
        Err(_) => None,
    };
    let mut failure = match error {
        Some(error) => {
            let how = match &made.process {
                Some(process) => how_it_ended(process).await,
                None => None,
            };
            let why = match unreadable.reason() {
                Some(reason) => format!("its first answer cannot be read: {reason}"),
                None => why_not_ready(&error, how),
            };
            Failure { why, stderr: String::new(), advice: Advice::of(&error) }
        }
        None => Failure::not_ready(limit),
    };
    if let Some(process) = &made.process {
        failure.stderr = process.stderr.text(&made.secrets);
    }
    Err(failure)
}

/// Whether the server says that it is a bridge like this one.
fn is_itself(service: &RunningService<RoleClient, Handler>) -> bool {
    let said = service.peer_info();
    let name = said.as_ref().and_then(|said| said.server_info.as_ref()).map(|info| info.name.as_str());
    name.is_some_and(|name| OWN_NAMES.contains(&name))
}

/// A handshake that came to nothing.
enum Refused {
    /// There was nobody to shake hands with.
    Before(Failure),
    Handshake(Box<ClientInitializeError>),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Before(failure)
    }
}

async fn shake_hands(
    way: Way,
    handler: Handler,
    inbox: Inbox,
    made: &mut Made,
    start: &Start,
    context: &Context,
) -> Result<RunningService<RoleClient, Handler>, Refused> {
    let definition = Arc::clone(&made.definition);
    match &definition.launch {
        Launch::Stdio { command, args, env, cwd } => {
            let environment = environment(&context.environment, env);
            let folder = cwd.as_deref().unwrap_or(&context.cwd);
            let launching =
                Launching { command, args, environment: &environment, folder, reaper: &context.reaper };
            let (process, stdin, stdout) = process::start(launching, made.gone.clone())
                .await
                .map_err(|error| Failure::new(error.to_string()))?;
            start.says(&process.stderr);
            made.process = Some(process.clone());
            let transport = StdioTransport::new(process, stdin, stdout, inbox, made.gone.clone());
            serve(handler, transport, way).await
        }
        Launch::Http { url, headers, .. } if way == Way::Older => {
            let opened = OlderTransport::open(url, headers, inbox, made.gone.clone()).await;
            let transport = opened.map_err(|error| Failure {
                advice: if error.suggests_other_transport() { Advice::OtherTransport } else { Advice::None },
                ..Failure::new(error.to_string())
            })?;
            serve(handler, transport, way).await
        }
        Launch::Http { url, headers, .. } => {
            let transport =
                http::streamable(url, headers, context.limits.calls_at_once, inbox, made.calls.clone())
                    .map_err(|error| Failure::new(error.to_string()))?;
            serve(handler, transport, way).await
        }
    }
}

async fn serve<T: Transport<RoleClient> + 'static>(
    handler: Handler,
    transport: T,
    way: Way,
) -> Result<RunningService<RoleClient, Handler>, Refused> {
    let lifecycle = match way {
        Way::Initialize | Way::Older => ClientLifecycleMode::Initialize,
        Way::Discover => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
    };
    let serving = serve_client_with_lifecycle_and_ct(handler, transport, lifecycle, CancellationToken::new());
    serving.await.map_err(|error| Refused::Handshake(Box::new(error)))
}

impl Advice {
    fn of(error: &ClientInitializeError) -> Self {
        const NEWER: [ErrorCode; 2] = [ErrorCode::METHOD_NOT_FOUND, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION];
        match error {
            ClientInitializeError::JsonRpcError(error) if NEWER.contains(&error.code) => Self::Discover,
            ClientInitializeError::TransportError { error, .. }
                if http::suggests_other_transport(&*error.error) =>
            {
                Self::OtherTransport
            }
            _ => Self::None,
        }
    }
}

/// The reason of a failed start, in words.
fn why_not_ready(error: &ClientInitializeError, how: Option<String>) -> String {
    match (error, how) {
        (ClientInitializeError::ConnectionClosed(_), Some(how)) => {
            format!("it ended ({how}) before it was ready")
        }
        (ClientInitializeError::ConnectionClosed(_), None) => {
            "it closed the connection before it was ready".into()
        }
        (ClientInitializeError::JsonRpcError(error), _) => {
            format!("it refused to begin: {} ({})", error.message, error.code.0)
        }
        (ClientInitializeError::TransportError { error, .. }, Some(how)) => {
            format!("it ended ({how}) before it was ready: {}", error.error)
        }
        (ClientInitializeError::TransportError { error, .. }, None) => {
            http::words_of(&*error.error).unwrap_or_else(|| error.error.to_string())
        }
        (error, _) => error.to_string(),
    }
}
