//! One running connection to a server: used, and ended.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ErrorCode, ErrorData, GetExtensions,
    ListToolsRequest, PaginatedRequestParams,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::{OnceCell, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, InUse, Patience, Purpose};
use super::context::{Context, Limits};
use super::handler::{Calls, Handler};
use super::http;
use super::listing::{Age, Listing};
use super::outcome::{CallOutcome, Page, ToolList};
use super::process::ServerProcess;
use super::secrets::Secrets;
use crate::mcp::client::{Answer, Expected, ServerProgress};
use crate::upstream::discovery::Definition;
use crate::upstream::error::UpstreamError;
use crate::upstream::options::CallOptions;
use crate::upstream::tool_doc::About;

/// How long the end of a process is waited for, to say how it came.
const END_REPORT: Duration = Duration::from_secs(2);
/// How long closing may take before it goes on unwatched.
const CLOSE_LIMIT: Duration = Duration::from_secs(6);

/// How long a server that says that its tools have changed may say more of it; longer each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A connection that was made.
#[derive(Debug)]
pub(super) struct Connection {
    made: Made,
    peer: Peer<RoleClient>,
    service: tokio::sync::Mutex<RunningService<RoleClient, Handler>>,
    activity: Arc<Activity>,
    tools: Mutex<Option<(u64, Arc<Listing>)>>,
    /// Whoever asks for the tools while somebody does waits for that answer.
    asking: tokio::sync::Mutex<()>,
    started: Instant,
    has_answered: AtomicBool,
    was_stopped: AtomicBool,
}

/// What a connection was made of.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) server: Arc<str>,
    pub(super) source: Arc<Path>,
    pub(super) definition: Arc<Definition>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) process: Option<ServerProcess>,
    /// Set when nothing will come from it any more.
    pub(super) gone: CancellationToken,
    /// Counts how often the server said that its tools have changed.
    pub(super) tools_changed: watch::Receiver<u64>,
    pub(super) calls: Calls,
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
    pub(super) options: CallOptions<'a>,
    pub(super) limit: Duration,
}

impl Connection {
    pub(super) fn new(made: Made, service: RunningService<RoleClient, Handler>) -> Arc<Self> {
        Arc::new(Self {
            made,
            peer: service.peer().clone(),
            service: tokio::sync::Mutex::new(service),
            activity: Arc::default(),
            tools: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            started: Instant::now(),
            has_answered: AtomicBool::new(false),
            was_stopped: AtomicBool::new(false),
        })
    }

    /// Uses it; None when it has ended or is about to.
    pub(super) fn lease(self: &Arc<Self>, purpose: Purpose) -> Option<Lease> {
        if self.has_gone() {
            return None;
        }
        Some(Lease { _in_use: self.activity.enter(purpose)?, connection: Arc::clone(self) })
    }

    pub(super) fn has_gone(&self) -> bool {
        self.made.gone.is_cancelled() || self.peer.is_transport_closed()
    }

    pub(super) fn serves(&self, definition: &Arc<Definition>) -> bool {
        Arc::ptr_eq(&self.made.definition, definition) || self.made.definition == *definition
    }

    pub(super) fn server(&self) -> &str {
        &self.made.server
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
    pub(super) async fn idle(&self, patience: Patience) -> bool {
        tokio::select! {
            () = self.activity.idle(patience) => false,
            () = self.made.gone.cancelled() => true,
        }
    }

    /// Ends it as soon as nobody uses it, unless it was called.
    pub(super) fn dismiss(&self) {
        self.activity.dismiss();
    }

    /// Ends it once its calls under way are done, or the limit has passed.
    pub(super) async fn retire(&self, limit: Duration) {
        self.activity.close();
        let at_once = Patience { called: Some(Duration::ZERO), asked: Duration::ZERO };
        let _ = tokio::time::timeout(limit, self.idle(at_once)).await;
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
        self.made.gone.cancel();
    }

    /// Calls a tool.
    pub(super) async fn call(&self, calling: Calling<'_>) -> Result<CallOutcome, UpstreamError> {
        let Calling { tool, arguments, options, limit } = calling;
        let CallOptions { progress, answers, cancel } = options;
        let mut request =
            CallToolRequest::new(CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments));
        let call = self.made.calls.begin(&answers);
        request.extensions_mut().insert(call.origin());
        let limit = self.made.definition.call_timeout.unwrap_or(limit);
        let request = ClientRequest::CallToolRequest(request);
        let outcome = CallOutcome::new(self.request(tool, request, progress, limit, cancel).await?);
        Ok(if outcome.is_error { outcome.without(&self.made.secrets) } else { outcome })
    }

    /// The tools as they are now.
    pub(super) async fn tools(
        &self,
        context: &Context,
        age: Age,
        cancel: &CancellationToken,
    ) -> Result<Arc<Listing>, UpstreamError> {
        if let Some(listing) = self.current_tools().filter(|_| age == Age::Current) {
            return Ok(listing);
        }
        let _turn = tokio::select! {
            turn = self.asking.lock() => turn,
            () = cancel.cancelled() => return Err(self.cancelled("tools/list")),
        };
        if let Some(listing) = self.current_tools().filter(|_| age == Age::Current) {
            return Ok(listing);
        }
        let limits = &context.limits;
        // Before the list: a change that is told while it comes may not be in it.
        let generation = *self.made.tools_changed.borrow();
        let list = match tokio::time::timeout(limits.listing, self.list_tools(limits, cancel)).await {
            Ok(list) => list?,
            Err(_) => return Err(self.timed_out("tools/list", limits.listing)),
        };
        for warning in &list.warnings {
            tracing::warn!(server = %self.made.server, warning = self.made.secrets.redact(warning), "ignored a tool");
        }
        let listing = Arc::new(Listing {
            source: Arc::clone(&self.made.source),
            definition: Arc::clone(&self.made.definition),
            about: self.about(),
            tools: list,
            docs: OnceCell::new(),
        });
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = Some((generation, Arc::clone(&listing)));
        Arc::clone(&context.listener).listed(Arc::clone(&listing));
        Ok(listing)
    }

    /// Lists the tools again whenever the server says that they have changed, until it ends.
    pub(super) async fn follow_changes(&self, context: &Context) {
        let mut changes = self.made.tools_changed.clone();
        let mut pause = FIRST_PAUSE;
        loop {
            let quiet_since = Instant::now();
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = self.made.gone.cancelled() => return,
            }
            // Many changes come one by one, and some servers see one in every question.
            pause = if quiet_since.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { pause };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.made.gone.cancelled() => return,
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
            changes.mark_unchanged();
            if let Err(error) = self.tools(context, Age::Current, &self.made.gone).await {
                tracing::debug!(server = %self.made.server, %error, "could not list the changed tools");
            }
        }
    }

    /// The tools, when they were asked for since the server last said that they have changed.
    fn current_tools(&self) -> Option<Arc<Listing>> {
        let generation = *self.made.tools_changed.borrow();
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.as_ref().filter(|(known, _)| *known == generation).map(|(_, listing)| Arc::clone(listing))
    }

    fn about(&self) -> About {
        let Some(said) = self.peer.peer_info() else { return About::default() };
        let title = said.server_info.as_ref().map(|info| info.title.clone().unwrap_or(info.name.clone()));
        let title = title.filter(|title| !title.is_empty());
        About { title, instructions: said.instructions.clone() }
    }

    /// How many tools there are, if that was asked.
    pub(super) fn known_tools(&self) -> Option<usize> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.as_ref().map(|(_, listing)| listing.tools.tools.len())
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
            // The first page is asked for without parameters, which some servers insist on.
            let params =
                cursor.clone().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let request = ListToolsRequest { params, ..ListToolsRequest::default() };
            let request = ClientRequest::ListToolsRequest(request);
            let answer = self.request(METHOD, request, None, limits.listing, cancel).await;
            let result = match answer {
                Err(UpstreamError::Refused { code, .. }) if code == ErrorCode::METHOD_NOT_FOUND.0 => break,
                other => other?,
            };
            let page: Page = serde_json::from_str(result.get())
                .map_err(|error| self.malformed(METHOD, &error.to_string()))?;
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
        mut request: ClientRequest,
        progress: Option<mpsc::Sender<ServerProgress>>,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let expected = Expected::new(progress);
        request.extensions_mut().insert(expected.clone());
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let mut sent = SentRequest { handle: Some(sent.map_err(|error| self.failed(method, error))?) };
        let Some(handle) = sent.handle.as_mut() else { return Err(UpstreamError::ShuttingDown) };
        let answer = tokio::select! {
            biased;
            answer = &mut handle.rx => answer,
            () = cancel.cancelled() => {
                sent.cancel("cancelled");
                return Err(self.cancelled(method));
            }
            () = self.made.gone.cancelled() => {
                sent.handle = None;
                return Err(self.ended().await);
            }
            () = tokio::time::sleep(limit) => {
                sent.cancel("timed out");
                return Err(self.timed_out(method, limit));
            }
        };
        sent.handle = None;
        match answer {
            Ok(Ok(_)) => match expected.take() {
                Some(Answer::Result(result)) => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    Ok(result)
                }
                Some(Answer::Error(error)) => Err(self.refused(method, error)),
                Some(Answer::Unreadable(reason)) => Err(self.malformed(method, &reason)),
                None => Err(self.malformed(method, "it has no result")),
            },
            Ok(Err(ServiceError::TransportClosed)) | Err(_) => {
                self.made.gone.cancel();
                Err(self.ended().await)
            }
            Ok(Err(error)) => Err(self.failed(method, error)),
        }
    }

    fn failed(&self, method: &str, error: ServiceError) -> UpstreamError {
        let server = Arc::clone(&self.made.server);
        match error {
            ServiceError::McpError(error) => self.refused(method, error),
            ServiceError::TransportSend(error) => {
                let why = http::message_of(&*error.error).unwrap_or_else(|| error.error.to_string());
                UpstreamError::Unreachable { server, why: self.made.secrets.redact(&why) }
            }
            error => UpstreamError::Unreachable { server, why: self.made.secrets.redact(&error.to_string()) },
        }
    }

    fn refused(&self, method: &str, error: ErrorData) -> UpstreamError {
        UpstreamError::Refused {
            server: Arc::clone(&self.made.server),
            method: method.to_owned(),
            code: error.code.0,
            message: self.made.secrets.redact(&error.message),
            data: error.data.map(|data| Box::new(self.made.secrets.redact_value(data))),
        }
    }

    fn malformed(&self, method: &str, why: &str) -> UpstreamError {
        UpstreamError::Malformed {
            server: Arc::clone(&self.made.server),
            method: method.to_owned(),
            why: self.made.secrets.redact(why),
        }
    }

    fn cancelled(&self, method: &str) -> UpstreamError {
        UpstreamError::Cancelled { server: Arc::clone(&self.made.server), method: method.to_owned() }
    }

    fn timed_out(&self, method: &str, limit: Duration) -> UpstreamError {
        UpstreamError::TimedOut {
            server: Arc::clone(&self.made.server),
            method: method.to_owned(),
            limit,
            by_definition: self.made.definition.call_timeout == Some(limit),
        }
    }

    async fn ended(&self) -> UpstreamError {
        let how = match &self.made.process {
            Some(process) => how_it_ended(process).await,
            None => None,
        };
        let stderr = self
            .made
            .process
            .as_ref()
            .map(|process| process.stderr.text(&self.made.secrets))
            .unwrap_or_default();
        let how = how.unwrap_or_else(|| "it closed the connection".into());
        UpstreamError::Ended { server: Arc::clone(&self.made.server), how, stderr }
    }
}

/// The exit status of a process that has ended, or is about to.
pub(super) async fn how_it_ended(process: &ServerProcess) -> Option<String> {
    let status = tokio::time::timeout(END_REPORT, process.ended()).await.ok()??;
    Some(status.to_string())
}

/// A request under way, which is cancelled when its caller goes away.
struct SentRequest {
    handle: Option<RequestHandle<RoleClient>>,
}

impl SentRequest {
    /// Tells the server, without waiting until the message is sent.
    fn cancel(&mut self, reason: &'static str) {
        if let Some(handle) = self.handle.take() {
            tokio::spawn(handle.cancel(Some(reason.into())));
        }
    }
}

impl Drop for SentRequest {
    fn drop(&mut self) {
        self.cancel("the caller stopped waiting");
    }
}
