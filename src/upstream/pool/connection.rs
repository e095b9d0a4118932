//! One connection to a server, from its handshake to its end.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ErrorCode, GetExtensions, ListToolsRequest,
    PaginatedRequestParams, RequestMetaObject,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use serde_json::Map;
use serde_json::value::RawValue;
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, IdleLimits, InUse, Purpose};
use super::changes::Changes;
use super::context::{Context, Limits};
use super::handler::{Calls, Handler};
use super::inputs::Inputs;
use super::listing::{Age, KnownOffers, Listing};
use super::outcome::{CallOutcome, Pages, ToolList};
use super::process::ServerProcess;
use super::secrets::Secrets;
use super::updates::Updates;
use super::wire::AsTask;
use crate::mcp::client::{Answer, Expected, UnreadShare};
use crate::telemetry::Opened;
use crate::upstream::discovery::Definition;
use crate::upstream::error::UpstreamError;
use crate::upstream::options::CallOptions;
use crate::upstream::raw_arguments::RawArguments;
use crate::upstream::tool_doc::About;

/// How long to wait for the exit status of a process that has closed its output.
const END_REPORT: Duration = Duration::from_secs(2);
/// How long closing is awaited.
const CLOSE_LIMIT: Duration = Duration::from_secs(6);

/// A connection that lasted this long counts as one that worked.
const PROVEN: Duration = Duration::from_secs(10);

/// How long a list of tools is not read again after a tool was not found in it. It doubles when the next one is not found.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(16);

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) parts: ConnectionParts,
    pub(super) peer: Peer<RoleClient>,
    service: tokio::sync::Mutex<RunningService<RoleClient, Handler>>,
    activity: Arc<Activity>,
    tools: Mutex<Option<KnownTools>>,
    /// Held by the one caller that lists the tools; others wait for its answer.
    asking: tokio::sync::Mutex<()>,
    pub(super) offers: KnownOffers,
    started: Instant,
    has_answered: AtomicBool,
    was_stopped: AtomicBool,
}

/// The tools of a server as it listed them last.
#[derive(Debug)]
struct KnownTools {
    /// How often it had said by then that they have changed.
    generation: u64,
    asked: Instant,
    /// How long it is the list for tools that are not found in it.
    rest: Duration,
    listing: Arc<Listing>,
}

impl KnownTools {
    fn are_of(&self, age: Age<'_>) -> bool {
        match age {
            Age::Current => true,
            Age::With(tool) => self.asked.elapsed() < self.rest || self.listing.tools.get(tool).is_some(),
            Age::New => false,
        }
    }

    /// Returns the rest, if the next tool that is not found comes soon after it.
    fn recent_rest(&self) -> Duration {
        if self.asked.elapsed() < 2 * self.rest { self.rest } else { Duration::ZERO }
    }
}

/// What a connection is made of.
#[derive(Debug)]
pub(super) struct ConnectionParts {
    pub(super) server: Arc<str>,
    pub(super) source: Arc<Path>,
    pub(super) definition: Arc<Definition>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) process: Option<ServerProcess>,
    /// Cancelled when the server will send nothing more.
    pub(super) gone: CancellationToken,
    /// Counts how often the server said that its tools have changed.
    pub(super) tools_changed: watch::Receiver<u64>,
    /// The same of its resources and prompts.
    pub(super) offers_changed: watch::Receiver<u64>,
    pub(super) updates: Updates,
    /// Whether it says what changes only where it is asked to.
    pub(super) listens: bool,
    pub(super) calls: Calls,
    pub(super) _opened: Opened,
}

impl ConnectionParts {
    /// Returns the exit status of a process that has exited or is about to.
    pub(super) async fn exit_status(&self) -> Option<String> {
        let status = tokio::time::timeout(END_REPORT, self.process.as_ref()?.ended()).await.ok()??;
        Some(status.to_string())
    }

    /// Returns the standard error of the process, without credentials.
    pub(super) fn stderr(&self) -> String {
        self.process.as_ref().map(|process| process.stderr.text(&self.secrets)).unwrap_or_default()
    }
}

/// A connection in use, which is not stopped for being idle.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) connection: Arc<Connection>,
    _in_use: InUse,
}

/// A call of a tool.
pub(super) struct CallRequest<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: RawArguments,
    pub(super) options: CallOptions<'a>,
    pub(super) limit: Duration,
}

impl Connection {
    pub(super) fn new(parts: ConnectionParts, service: RunningService<RoleClient, Handler>) -> Arc<Self> {
        Arc::new(Self {
            parts,
            peer: service.peer().clone(),
            service: tokio::sync::Mutex::new(service),
            activity: Arc::default(),
            tools: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            offers: KnownOffers::default(),
            started: Instant::now(),
            has_answered: AtomicBool::new(false),
            was_stopped: AtomicBool::new(false),
        })
    }

    /// Returns a lease; None if the connection has ended or is about to.
    pub(super) fn lease(self: &Arc<Self>, purpose: Purpose) -> Option<Lease> {
        if self.has_gone() {
            return None;
        }
        Some(Lease { _in_use: self.activity.enter(purpose)?, connection: Arc::clone(self) })
    }

    pub(super) fn has_gone(&self) -> bool {
        self.parts.gone.is_cancelled() || self.peer.is_transport_closed()
    }

    pub(super) fn serves(&self, definition: &Arc<Definition>) -> bool {
        Arc::ptr_eq(&self.parts.definition, definition) || self.parts.definition == *definition
    }

    pub(super) fn server(&self) -> &str {
        &self.parts.server
    }

    /// Whether the connection has ended, and not by the bridge.
    pub(super) fn ended_by_itself(&self) -> bool {
        self.has_gone() && !self.was_stopped.load(Ordering::Relaxed)
    }

    /// Whether any request was answered, or the connection lasted for some time.
    pub(super) fn has_worked(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed) || self.started.elapsed() >= PROVEN
    }

    /// Waits until the connection is idle, and returns whether it has ended before that.
    pub(super) async fn idle(&self, limits: IdleLimits) -> bool {
        tokio::select! {
            () = self.activity.idle(limits) => false,
            () = self.parts.gone.cancelled() => true,
        }
    }

    /// Ends the connection as soon as it is unused, unless a tool was called.
    pub(super) fn stop_when_unused(&self) {
        self.activity.stop_when_unused();
    }

    /// Ends the connection after its calls under way, or after the limit.
    pub(super) async fn retire(&self, limit: Duration) {
        self.activity.close();
        let at_once = IdleLimits { called: Some(Duration::ZERO), listed: Duration::ZERO };
        let _ = tokio::time::timeout(limit, self.idle(at_once)).await;
        self.close().await;
    }

    /// Ends the connection.
    pub(super) async fn close(&self) {
        self.activity.close();
        if !self.has_gone() {
            self.was_stopped.store(true, Ordering::Relaxed);
        }
        let mut service = self.service.lock().await;
        let _ = service.close_with_timeout(CLOSE_LIMIT).await;
        self.parts.gone.cancel();
    }

    /// Calls a tool.
    pub(super) async fn call(&self, request: CallRequest<'_>) -> Result<CallOutcome, UpstreamError> {
        let CallRequest { tool, arguments, options, limit } = request;
        let is_task = self.is_task(tool);
        // The transport puts the arguments in.
        let request = |inputs: Option<Inputs>| {
            let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(Map::new());
            let mut request = CallToolRequest::new(params);
            request.extensions_mut().insert(arguments.clone());
            request.extensions_mut().insert(inputs.unwrap_or_default());
            if is_task {
                request.extensions_mut().insert(AsTask);
            }
            ClientRequest::CallToolRequest(request)
        };
        let begun = Instant::now();
        let outcome = self.ask_with_inputs(tool, request, options.again(), limit).await?;
        let outcome = self.result_of(tool, outcome, options, (begun, limit)).await?;
        Ok(if outcome.is_error { outcome.without(&self.parts.secrets) } else { outcome })
    }

    /// Returns the tools as they were listed last.
    pub(super) fn last_tools(&self) -> Option<Arc<Listing>> {
        self.known_tools(|_| true)
    }

    /// Sends a request of a caller, who answers what the server asks meanwhile.
    pub(super) async fn ask(
        &self,
        method: &str,
        request: ClientRequest,
        options: CallOptions<'_>,
        limit: Duration,
    ) -> Result<CallOutcome, UpstreamError> {
        let limit = self.limit_of(&options, limit);
        self.ask_within(method, request, options, limit).await
    }

    /// Returns how long a request may take.
    pub(super) fn limit_of(&self, options: &CallOptions<'_>, limit: Duration) -> Duration {
        self.parts.definition.call_timeout.unwrap_or(limit.max(options.at_least))
    }

    /// As [`Self::ask`], within this time.
    pub(super) async fn ask_within(
        &self,
        method: &str,
        mut request: ClientRequest,
        options: CallOptions<'_>,
        limit: Duration,
    ) -> Result<CallOutcome, UpstreamError> {
        let CallOptions { progress, answers, unread, cancel, by, .. } = options;
        let call = self.parts.calls.begin(&answers);
        request.extensions_mut().insert(call.origin());
        if let Some((parent, state)) = by.trace.fields() {
            let mut meta = RequestMetaObject::new();
            meta.set_traceparent(parent);
            state.into_iter().for_each(|state| meta.set_tracestate(state));
            request.extensions_mut().insert(meta);
        }
        let expected = Expected::new(progress, unread.map(|results| results.0));
        let (result, share) = self.request(method, request, expected, limit, cancel).await?;
        Ok(CallOutcome::new(result, share))
    }

    /// Returns the server's tools.
    pub(super) async fn tools(
        &self,
        context: &Context,
        age: Age<'_>,
        cancel: &CancellationToken,
    ) -> Result<Arc<Listing>, UpstreamError> {
        if let Some(listing) = self.current_tools(age) {
            return Ok(listing);
        }
        let wanted = Instant::now();
        let _turn = tokio::select! {
            turn = self.asking.lock() => turn,
            () = cancel.cancelled() => return Err(self.cancelled("tools/list")),
        };
        // One list is new for all that waited for it.
        let newest = self.known_tools(|known| known.asked >= wanted);
        if let Some(listing) = newest.or_else(|| self.current_tools(age)) {
            return Ok(listing);
        }
        let limits = &context.limits;
        let asked = Instant::now();
        // Read before the list: a change that is announced meanwhile may not be in it.
        let generation = *self.parts.tools_changed.borrow();
        let list = match tokio::time::timeout(limits.listing, self.list_tools(limits, cancel)).await {
            Ok(list) => list?,
            Err(_) => return Err(self.timed_out("tools/list", limits.listing)),
        };
        for warning in &list.warnings {
            tracing::warn!(server = %self.parts.server, warning = self.parts.secrets.redact(warning), "ignored a tool");
        }
        let listing = Arc::new(Listing {
            source: Arc::clone(&self.parts.source),
            definition: Arc::clone(&self.parts.definition),
            about: self.about(),
            tools: list,
            docs: OnceCell::new(),
        });
        let mut known = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let last_rest = known.as_ref().map(KnownTools::recent_rest).unwrap_or_default();
        let rest = match age {
            Age::With(tool) if listing.tools.get(tool).is_none() => {
                (2 * last_rest).clamp(FIRST_REST, LONGEST_REST)
            }
            _ => Duration::ZERO,
        };
        *known = Some(KnownTools { generation, asked, rest, listing: Arc::clone(&listing) });
        drop(known);
        Arc::clone(&context.listener).listed(Arc::clone(&listing));
        Ok(listing)
    }

    /// Lists the tools again whenever the server says that they have changed, until it ends.
    pub(super) async fn follow_changes(&self, context: &Context) {
        let mut changes = Changes::new(self.parts.tools_changed.clone());
        while changes.next(&self.parts.gone).await {
            if let Err(error) = self.tools(context, Age::Current, &self.parts.gone).await {
                tracing::debug!(server = %self.parts.server, %error, "could not list the changed tools");
            }
        }
    }

    /// Returns the tools if they are new enough; never those from before a change that the server announced.
    fn current_tools(&self, age: Age<'_>) -> Option<Arc<Listing>> {
        let generation = *self.parts.tools_changed.borrow();
        self.known_tools(|known| known.generation == generation && known.are_of(age))
    }

    fn known_tools(&self, are_wanted: impl FnOnce(&KnownTools) -> bool) -> Option<Arc<Listing>> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.as_ref().filter(|known| are_wanted(known)).map(|known| Arc::clone(&known.listing))
    }

    fn about(&self) -> About {
        let Some(info) = self.peer.peer_info() else { return About::default() };
        let title = info.server_info.as_ref().map(|info| info.title.clone().unwrap_or(info.name.clone()));
        let title = title.filter(|title| !title.is_empty());
        let has_offers = info.capabilities.resources.is_some() || info.capabilities.prompts.is_some();
        About { title, instructions: info.instructions.clone(), has_offers }
    }

    async fn list_tools(
        &self,
        limits: &Limits,
        cancel: &CancellationToken,
    ) -> Result<Arc<ToolList>, UpstreamError> {
        const METHOD: &str = "tools/list";
        let mut pages = Pages::default();
        let mut cursor = None;
        let mut seen = std::collections::HashSet::new();
        for _ in 0..limits.pages {
            // Some servers accept no parameters in the request for the first page.
            let params =
                cursor.clone().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let request = ListToolsRequest { params, ..ListToolsRequest::default() };
            let request = ClientRequest::ListToolsRequest(request);
            let expected = Expected::new(None, None);
            let answer = self.request(METHOD, request, expected, limits.listing, cancel).await;
            let (result, _) = match answer {
                Err(UpstreamError::Refused { code, .. }) if code == ErrorCode::METHOD_NOT_FOUND.0 => break,
                other => other?,
            };
            cursor = pages.read(&result).map_err(|error| self.malformed(METHOD, &error.to_string()))?;
            match &cursor {
                None => break,
                // A cursor that repeats itself would never end.
                Some(cursor) if !seen.insert(cursor.clone()) => break,
                Some(_) => {}
            }
        }
        Ok(Arc::new(pages.list()))
    }

    /// Sends a request and waits for its answer, the limit, the cancellation or the end of the server.
    pub(super) async fn request(
        &self,
        method: &str,
        mut request: ClientRequest,
        expected: Expected,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<(Box<RawValue>, Option<UnreadShare>), UpstreamError> {
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
            () = self.parts.gone.cancelled() => {
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
                Some((Answer::Result(result), share)) => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    Ok((result, share))
                }
                Some((Answer::Error(error), _)) => Err(self.refused(method, error)),
                Some((Answer::Unreadable(reason), _)) => Err(self.malformed(method, &reason)),
                Some((Answer::Dropped(bytes), _)) => Err(self.dropped(method, bytes)),
                None => Err(self.malformed(method, "it has no result")),
            },
            Ok(Err(ServiceError::TransportClosed)) | Err(_) => {
                self.parts.gone.cancel();
                Err(self.ended().await)
            }
            Ok(Err(error)) => Err(self.failed(method, error)),
        }
    }
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
