//! One running connection to a server: started, called, ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, CustomRequest,
    CustomResult, ErrorCode, ErrorData, GetExtensions, Implementation, ListToolsRequest,
    PaginatedRequestParams, ProtocolVersion, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RequestContext, RequestHandle,
    RunningService, ServiceError, serve_client_with_lifecycle_and_ct,
};
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, InUse};
use super::environment::environment;
use super::inbox::{Inbox, ProgressSink, QUESTION, is_malformed};
use super::outcome::{CallOutcome, Page, ToolList};
use super::process::{self, Launching, ServerProcess};
use super::secrets::Secrets;
use super::stdio::StdioTransport;
use super::{Context, Limits};
use crate::upstream::discovery::{Definition, Launch, Server};
use crate::upstream::error::UpstreamError;
use crate::upstream::events::ServerProgress;
use crate::upstream::questions::{Answers, Question};

/// How long the end of a process is waited for, to say how it came.
const END_REPORT: Duration = Duration::from_secs(2);
/// How long closing may take before it goes on unwatched.
const CLOSE_LIMIT: Duration = Duration::from_secs(6);

/// A connection that was made.
#[derive(Debug)]
pub(super) struct Connection {
    server: Arc<str>,
    definition: Arc<Definition>,
    secrets: Arc<Secrets>,
    peer: Peer<RoleClient>,
    service: tokio::sync::Mutex<RunningService<RoleClient, Handler>>,
    process: Option<ServerProcess>,
    /// Set when nothing will come from it any more.
    gone: CancellationToken,
    activity: Arc<Activity>,
    tools: Mutex<Option<(u64, Arc<ToolList>)>>,
    /// Counts how often the server said that its tools have changed.
    tools_changed: watch::Receiver<u64>,
    started: Instant,
    has_answered: AtomicBool,
    was_stopped: AtomicBool,
}

/// A connection that somebody uses.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) connection: Arc<Connection>,
    _in_use: InUse,
}

/// What a call is about.
pub(super) struct Calling<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: Map<String, Value>,
    pub(super) progress: Option<mpsc::Sender<ServerProgress>>,
    pub(super) limit: Duration,
    pub(super) cancel: &'a CancellationToken,
}

impl Connection {
    /// Starts a server and shakes hands with it. First as all servers of today understand it; one that knows only what
    /// comes after that gets another process and another try.
    pub(super) async fn start(
        server: &Server,
        definition: Arc<Definition>,
        context: &Context,
    ) -> Result<Arc<Self>, UpstreamError> {
        let initialize =
            Self::start_with(server, &definition, context, ClientLifecycleMode::Initialize).await;
        match initialize {
            Ok(connection) => Ok(connection),
            Err(Failure { is_too_old: true, .. }) => {
                let newest =
                    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
                Self::start_with(server, &definition, context, newest).await.map_err(|failure| failure.error)
            }
            Err(failure) => Err(failure.error),
        }
    }

    async fn start_with(
        server: &Server,
        definition: &Arc<Definition>,
        context: &Context,
        lifecycle: ClientLifecycleMode,
    ) -> Result<Arc<Self>, Failure> {
        let secrets = Arc::new(Secrets::of(definition));
        let (on_tools_changed, tools_changed) = watch::channel(0);
        let name = Arc::clone(&server.name);
        let inbox =
            Inbox::new(Arc::clone(&name), Arc::clone(&secrets), context.events.clone(), on_tools_changed);
        let handler = Handler::new(Arc::clone(&name), Arc::clone(&context.answers));
        let gone = CancellationToken::new();
        let limit = definition.startup_timeout.unwrap_or(context.limits.startup);
        let fail = |why: String, stderr: String| UpstreamError::Start {
            server: Arc::clone(&name),
            why: secrets.redact(&why),
            stderr,
        };
        let (process, serving) = match &definition.launch {
            Launch::Stdio { command, args, env, cwd } => {
                let environment = environment(&context.environment, env);
                let folder = cwd.as_deref().unwrap_or(&context.cwd);
                let launching = Launching {
                    command,
                    args,
                    environment: &environment,
                    folder,
                    guardian: &context.guardian,
                };
                let (process, stdin, stdout) = process::start(launching, gone.clone())
                    .await
                    .map_err(|error| Failure::from(fail(error.to_string(), String::new())))?;
                let transport = StdioTransport::new(process.clone(), stdin, stdout, inbox, gone.clone());
                let serving = serve_client_with_lifecycle_and_ct(
                    handler,
                    transport,
                    lifecycle,
                    CancellationToken::new(),
                );
                (Some(process), tokio::time::timeout(limit, serving).await)
            }
            Launch::Http { .. } => return Err(fail("HTTP is not there yet".into(), String::new()).into()),
        };
        let stderr = || process.as_ref().map(|process| process.stderr.text(&secrets)).unwrap_or_default();
        match serving {
            Ok(Ok(service)) => Ok(Arc::new(Self {
                server: Arc::clone(&name),
                definition: Arc::clone(definition),
                secrets: Arc::clone(&secrets),
                peer: service.peer().clone(),
                service: tokio::sync::Mutex::new(service),
                process,
                gone,
                activity: Arc::default(),
                tools: Mutex::default(),
                tools_changed,
                started: Instant::now(),
                has_answered: AtomicBool::new(false),
                was_stopped: AtomicBool::new(false),
            })),
            Ok(Err(error)) => {
                let how = match &process {
                    Some(process) => how_it_ended(process).await,
                    None => None,
                };
                let is_too_old = is_too_old(&error);
                let why = match (error, how) {
                    (ClientInitializeError::ConnectionClosed(_), Some(how)) => {
                        format!("it ended ({how}) before it was ready")
                    }
                    (ClientInitializeError::ConnectionClosed(_), None) => {
                        "it closed its output before it was ready".into()
                    }
                    (ClientInitializeError::JsonRpcError(error), _) if is_malformed(&error) => {
                        format!("its answer to 'initialize' cannot be read: {}", error.message)
                    }
                    (ClientInitializeError::JsonRpcError(error), _) => {
                        format!("it refused 'initialize': {} ({})", error.message, error.code.0)
                    }
                    (error, _) => error.to_string(),
                };
                Err(Failure { error: fail(why, stderr()), is_too_old })
            }
            Err(_) => Err(fail(format!("it was not ready within {limit:?}"), stderr()).into()),
        }
    }

    /// Uses it; None when it has ended or is about to.
    pub(super) fn lease(self: &Arc<Self>) -> Option<Lease> {
        if self.has_gone() {
            return None;
        }
        Some(Lease { _in_use: self.activity.enter()?, connection: Arc::clone(self) })
    }

    pub(super) fn has_gone(&self) -> bool {
        self.gone.is_cancelled() || self.peer.is_transport_closed()
    }

    pub(super) fn serves(&self, definition: &Arc<Definition>) -> bool {
        Arc::ptr_eq(&self.definition, definition) || self.definition == *definition
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Whether any request was answered.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Whether it was ended from here.
    pub(super) fn was_stopped(&self) -> bool {
        self.was_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits until nobody has used it for so long; the other end is true when it has gone before.
    pub(super) async fn idle(&self, limit: Option<Duration>) -> bool {
        let idle = async {
            match limit {
                Some(limit) => self.activity.idle(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = idle => false,
            () = self.gone.cancelled() => true,
        }
    }

    /// Ends it once its calls under way are done, or the limit has passed.
    pub(super) async fn retire(&self, limit: Duration) {
        self.activity.close();
        let _ = tokio::time::timeout(limit, self.idle(Some(Duration::ZERO))).await;
        self.close().await;
    }

    /// Ends it in good order.
    pub(super) async fn close(&self) {
        self.activity.close();
        if !self.has_gone() {
            self.was_stopped.store(true, Ordering::Relaxed);
        }
        let mut service = self.service.lock().await;
        let _ = service.close_with_timeout(CLOSE_LIMIT).await;
        self.gone.cancel();
    }

    /// Calls a tool.
    pub(super) async fn call(&self, calling: Calling<'_>) -> Result<CallOutcome, UpstreamError> {
        let Calling { tool, arguments, progress, limit, cancel } = calling;
        let mut request =
            CallToolRequest::new(CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments));
        if let Some(sink) = progress {
            request.extensions_mut().insert(ProgressSink(sink));
        }
        let limit = self.definition.call_timeout.unwrap_or(limit);
        let result = self.request(tool, ClientRequest::CallToolRequest(request), limit, cancel).await?;
        let json = self.text_of(tool, result)?;
        CallOutcome::new(json).map_err(|error| self.malformed(tool, &error.to_string()))
    }

    /// The tools as they are now; asked for again only after the server said that they have changed.
    pub(super) async fn tools(
        &self,
        limits: &Limits,
        cancel: &CancellationToken,
    ) -> Result<Arc<ToolList>, UpstreamError> {
        let generation = *self.tools_changed.borrow();
        if let Some((known, list)) = &*self.tools.lock().unwrap_or_else(PoisonError::into_inner)
            && *known == generation
        {
            return Ok(Arc::clone(list));
        }
        let list = match tokio::time::timeout(limits.listing, self.list_tools(limits, cancel)).await {
            Ok(list) => list?,
            Err(_) => return Err(self.timed_out("tools/list", limits.listing)),
        };
        for warning in &list.warnings {
            tracing::warn!(server = %self.server, warning = self.secrets.redact(warning), "odd tool");
        }
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = Some((generation, Arc::clone(&list)));
        Ok(list)
    }

    async fn list_tools(
        &self,
        limits: &Limits,
        cancel: &CancellationToken,
    ) -> Result<Arc<ToolList>, UpstreamError> {
        const METHOD: &str = "tools/list";
        let mut pages: Vec<Page> = Vec::new();
        let mut cursor = None;
        let mut seen = std::collections::HashSet::new();
        while pages.len() < limits.pages {
            let mut request = ListToolsRequest::default();
            // The first page is asked for without parameters, which some servers insist on.
            request.params =
                cursor.clone().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let answer =
                self.request(METHOD, ClientRequest::ListToolsRequest(request), limits.listing, cancel).await;
            let result = match answer {
                Err(UpstreamError::Refused { code, .. }) if code == ErrorCode::METHOD_NOT_FOUND.0 => break,
                other => other?,
            };
            let page = self.text_of(METHOD, result)?;
            let page: Page =
                serde_json::from_str(&page).map_err(|error| self.malformed(METHOD, &error.to_string()))?;
            cursor = page.next_cursor.clone();
            pages.push(page);
            match &cursor {
                None => break,
                // One that repeats itself would be asked for ever.
                Some(cursor) if !seen.insert(cursor.clone()) => break,
                Some(_) => {}
            }
        }
        Ok(ToolList::of(&pages))
    }

    /// Sends a request and waits for its answer, the limit, the caller's change of mind or the end of the server.
    async fn request(
        &self,
        method: &str,
        request: ClientRequest,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<ServerResult, UpstreamError> {
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let mut asked = Asked { handle: Some(sent.map_err(|error| self.failed(method, error))?) };
        let Some(handle) = asked.handle.as_mut() else { return Err(UpstreamError::ShuttingDown) };
        let answer = tokio::select! {
            biased;
            answer = &mut handle.rx => answer,
            () = cancel.cancelled() => {
                asked.take_back("cancelled");
                return Err(UpstreamError::Cancelled { server: Arc::clone(&self.server), method: method.to_owned() });
            }
            () = self.gone.cancelled() => {
                asked.handle = None;
                return Err(self.ended().await);
            }
            () = tokio::time::sleep(limit) => {
                asked.take_back("timed out");
                return Err(self.timed_out(method, limit));
            }
        };
        asked.handle = None;
        match answer {
            Ok(Ok(result)) => {
                self.has_answered.store(true, Ordering::Relaxed);
                Ok(result)
            }
            Ok(Err(ServiceError::TransportClosed)) | Err(_) => {
                self.gone.cancel();
                Err(self.ended().await)
            }
            Ok(Err(error)) => Err(self.failed(method, error)),
        }
    }

    /// The text of a result that was read verbatim.
    fn text_of(&self, method: &str, result: ServerResult) -> Result<String, UpstreamError> {
        match result {
            ServerResult::CustomResult(CustomResult(Value::String(text))) => Ok(text),
            other => {
                serde_json::to_string(&other).map_err(|error| self.malformed(method, &error.to_string()))
            }
        }
    }

    fn failed(&self, method: &str, error: ServiceError) -> UpstreamError {
        let server = Arc::clone(&self.server);
        match error {
            ServiceError::McpError(error) if is_malformed(&error) => self.malformed(method, &error.message),
            ServiceError::McpError(error) => UpstreamError::Refused {
                server,
                method: method.to_owned(),
                code: error.code.0,
                message: self.secrets.redact(&error.message),
                data: error.data.map(|data| self.secrets.redact_value(data)),
            },
            error => UpstreamError::Unreachable { server, why: self.secrets.redact(&error.to_string()) },
        }
    }

    fn malformed(&self, method: &str, why: &str) -> UpstreamError {
        UpstreamError::Malformed {
            server: Arc::clone(&self.server),
            method: method.to_owned(),
            why: self.secrets.redact(why),
        }
    }

    fn timed_out(&self, method: &str, limit: Duration) -> UpstreamError {
        UpstreamError::TimedOut { server: Arc::clone(&self.server), method: method.to_owned(), limit }
    }

    async fn ended(&self) -> UpstreamError {
        let how = match &self.process {
            Some(process) => how_it_ended(process).await,
            None => None,
        };
        let stderr =
            self.process.as_ref().map(|process| process.stderr.text(&self.secrets)).unwrap_or_default();
        let how = how.unwrap_or_else(|| "it closed the connection".into());
        UpstreamError::Ended { server: Arc::clone(&self.server), how, stderr }
    }
}

/// A start that failed.
struct Failure {
    error: UpstreamError,
    /// Whether the server does not know `initialize`.
    is_too_old: bool,
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        Self { error, is_too_old: false }
    }
}

/// Whether a server says that it only speaks versions of the protocol without `initialize`.
fn is_too_old(error: &ClientInitializeError) -> bool {
    let ClientInitializeError::JsonRpcError(error) = error else { return false };
    [ErrorCode::METHOD_NOT_FOUND, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION].contains(&error.code)
}

async fn how_it_ended(process: &ServerProcess) -> Option<String> {
    let status = tokio::time::timeout(END_REPORT, process.ended()).await.ok()??;
    Some(status.to_string())
}

/// A request that is taken back when whoever waits for its answer goes away.
struct Asked {
    handle: Option<RequestHandle<RoleClient>>,
}

impl Asked {
    /// Tells the server, without waiting for it to listen.
    fn take_back(&mut self, why: &'static str) {
        if let Some(handle) = self.handle.take() {
            tokio::spawn(handle.cancel(Some(why.into())));
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.take_back("nobody waits for it any more");
    }
}

/// The client's side of requests that come from the server.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    server: Arc<str>,
    answers: Arc<dyn Answers>,
    config: ClientConfig,
}

impl Handler {
    fn new(server: Arc<str>, answers: Arc<dyn Answers>) -> Self {
        let offers = answers.offers();
        let mut capabilities = Map::new();
        for (name, is_offered) in
            [("elicitation", offers.elicitation), ("sampling", offers.sampling), ("roots", offers.roots)]
        {
            if is_offered {
                capabilities.insert(name.into(), json!({}));
            }
        }
        let capabilities: ClientCapabilities =
            serde_json::from_value(Value::Object(capabilities)).unwrap_or_default();
        let us = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // The newest version of all has no `initialize`.
        let config = ClientConfig::new(capabilities, us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        Self { server, answers, config }
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.strip_prefix(QUESTION).unwrap_or(&request.method).to_owned();
        let question = Question { server: Arc::clone(&self.server), method, params: request.params };
        tokio::select! {
            answer = self.answers.answer(question) => match answer {
                Ok(value) => Ok(CustomResult::new(value)),
                Err(refusal) => Err(ErrorData::new(ErrorCode(refusal.code), refusal.message, refusal.data)),
            },
            () = context.ct.cancelled() => Err(ErrorData::internal_error("taken back", None)),
        }
    }
}
