//! The pool: which servers run, and when one that failed is started again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join3;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::{IdleLimits, Purpose};
use super::connection::{CallRequest, Connection, Lease};
use super::context::{Context, Limits};
use super::listing::{Age, Listing, OfferedDocs};
use super::offers::OfferPages;
use super::outcome::CallOutcome;
use super::start::connect;
use super::watch::ResourceWatch;
use crate::upstream::discovery::{Definition, Server};
use crate::upstream::error::UpstreamError;
use crate::upstream::offer::{OfferList, OfferRequest};
use crate::upstream::options::CallOptions;
use crate::upstream::raw_arguments::RawArguments;

/// A call waits for a backoff up to this long.
const SHORT_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// What a server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// It is started when it is needed.
    Stopped,
    Starting,
    Running,
    /// The last start failed.
    Failed,
}

/// All connections of a workspace.
#[derive(Debug)]
pub(in crate::upstream) struct Pool {
    context: Arc<Context>,
    entries: Mutex<HashMap<Arc<str>, Arc<Entry>>>,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// One server of the pool.
#[derive(Debug)]
struct Entry {
    state: Arc<tokio::sync::Mutex<EntryState>>,
    /// Number of starts that have succeeded or failed.
    starts: AtomicU64,
    /// Limits the calls at once.
    permits: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct EntryState {
    connection: Option<Arc<Connection>>,
    /// Failed starts, and connections that soon ended, in a row.
    failures: u32,
    retry_at: Option<Instant>,
    last_failure: Option<UpstreamError>,
}

/// The use of a server for one request, which the caller can cancel.
pub(in crate::upstream) struct PoolRequest<'a> {
    server: &'a Server,
    definition: &'a Arc<Definition>,
    purpose: Purpose,
    cancel: &'a CancellationToken,
}

impl<'a> PoolRequest<'a> {
    /// Fails when the definition of the server is skipped.
    pub(in crate::upstream) fn new(
        server: &'a Server,
        purpose: Purpose,
        cancel: &'a CancellationToken,
    ) -> Result<Self, UpstreamError> {
        match &server.definition {
            Ok(definition) => Ok(Self { server, definition, purpose, cancel }),
            Err(why) => Err(UpstreamError::Skipped { server: Arc::clone(&server.name), why: why.clone() }),
        }
    }

    fn cancelled(&self, method: &str) -> UpstreamError {
        UpstreamError::Cancelled { server: Arc::clone(&self.server.name), method: method.to_owned() }
    }
}

impl Pool {
    pub(in crate::upstream) fn new(context: Context) -> Self {
        Self {
            context: Arc::new(context),
            entries: Mutex::default(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    pub(in crate::upstream) fn context(&self) -> &Context {
        &self.context
    }

    fn limits(&self) -> &Limits {
        &self.context.limits
    }

    /// Calls a tool of a server, which is started if necessary.
    pub(in crate::upstream) async fn call(
        &self,
        wanted: PoolRequest<'_>,
        tool: &str,
        arguments: RawArguments,
        options: CallOptions<'_>,
    ) -> Result<CallOutcome, UpstreamError> {
        let (lease, _permit) = self.turn(&wanted, tool).await?;
        let call = CallRequest { tool, arguments, options, limit: self.limits().call };
        lease.connection.call(call).await
    }

    /// Sends a request about a resource or a prompt to a server, which is started if necessary.
    pub(in crate::upstream) async fn offer(
        &self,
        wanted: PoolRequest<'_>,
        request: &OfferRequest,
        options: CallOptions<'_>,
    ) -> Result<CallOutcome, UpstreamError> {
        let (lease, _permit) = self.turn(&wanted, request.method()).await?;
        lease.connection.offer(request, options, self.limits().call).await
    }

    /// Begins to watch a resource of a server, which is started if necessary. The outcome is that of the subscription.
    pub(in crate::upstream) async fn watch(
        &self,
        wanted: PoolRequest<'_>,
        uri: &str,
        options: CallOptions<'_>,
    ) -> Result<(CallOutcome, ResourceWatch), UpstreamError> {
        let request = OfferRequest::Subscribe { uri: uri.to_owned() };
        let (lease, _permit) = self.turn(&wanted, request.method()).await?;
        let connection = Arc::clone(&lease.connection);
        let mut watch = ResourceWatch::begin(lease, uri.to_owned());
        if connection.listens() {
            return Ok((watch.listen(options.cancel).await?, watch));
        }
        Ok((connection.offer(&request, options, self.limits().call).await?, watch))
    }

    /// Returns one of the lists of what a server offers beside tools. The server is started if necessary.
    pub(in crate::upstream) async fn offers(
        &self,
        wanted: PoolRequest<'_>,
        list: OfferList,
    ) -> Result<OfferPages, UpstreamError> {
        let entry = self.entry(&wanted.server.name);
        let lease = self.connect(&entry, &wanted, list.method()).await?;
        lease.connection.list_offers(list, self.limits(), wanted.cancel).await
    }

    /// Returns the documentation of what a server offers beside tools. The server is started if necessary.
    pub(in crate::upstream) async fn offer_docs(
        &self,
        wanted: PoolRequest<'_>,
    ) -> Result<Arc<OfferedDocs>, UpstreamError> {
        let entry = self.entry(&wanted.server.name);
        let lease = self.connect(&entry, &wanted, "resources/list").await?;
        lease.connection.offer_docs(self.limits(), wanted.cancel).await
    }

    /// Returns a connection to a server, and the permit for one of its calls at once.
    async fn turn(
        &self,
        wanted: &PoolRequest<'_>,
        method: &str,
    ) -> Result<(Lease, OwnedSemaphorePermit), UpstreamError> {
        let entry = self.entry(&wanted.server.name);
        let permit = tokio::select! {
            permit = Arc::clone(&entry.permits).acquire_owned() => permit.map_err(|_| UpstreamError::ShuttingDown)?,
            () = wanted.cancel.cancelled() => return Err(wanted.cancelled(method)),
            () = self.closing.cancelled() => return Err(UpstreamError::ShuttingDown),
        };
        Ok((self.connect(&entry, wanted, method).await?, permit))
    }

    /// Returns the tools of a server, which is started if necessary.
    pub(in crate::upstream) async fn tools(
        &self,
        wanted: PoolRequest<'_>,
        age: Age<'_>,
    ) -> Result<Arc<Listing>, UpstreamError> {
        let entry = self.entry(&wanted.server.name);
        let lease = self.connect(&entry, &wanted, "tools/list").await?;
        lease.connection.tools(&self.context, age, wanted.cancel).await
    }

    pub(in crate::upstream) fn state(&self, name: &str) -> ServerState {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get(name) else { return ServerState::Stopped };
        let Ok(state) = entry.state.try_lock() else { return ServerState::Starting };
        match &state.connection {
            Some(connection) if !connection.has_gone() => ServerState::Running,
            _ if state.last_failure.is_some() => ServerState::Failed,
            _ => ServerState::Stopped,
        }
    }

    /// Returns the standard error of a server that is starting, without credentials; None for other servers.
    pub(in crate::upstream) fn startup_output(&self, name: &str) -> Option<String> {
        self.context.starting.output_of(name)
    }

    /// Stops a server that was only asked for its tools, as soon as it is unused.
    pub(in crate::upstream) fn stop_when_unused(&self, name: &str) {
        let entry = self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        // A server that is starting has other users.
        if let Some(state) = entry.as_ref().and_then(|entry| entry.state.try_lock().ok())
            && let Some(connection) = &state.connection
        {
            connection.stop_when_unused();
        }
    }

    /// Ends every connection. Nothing is started after this.
    pub(in crate::upstream) async fn shutdown(&self) {
        self.closing.cancel();
        let entries: Vec<_> = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.drain().map(|(_, entry)| entry).collect()
        };
        for entry in entries {
            self.tasks.spawn(async move {
                let connection = entry.state.lock().await.connection.take();
                if let Some(connection) = connection {
                    connection.close().await;
                }
            });
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn entry(&self, name: &Arc<str>) -> Arc<Entry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            Arc::new(Entry {
                state: Arc::default(),
                starts: AtomicU64::new(0),
                permits: Arc::new(Semaphore::new(self.limits().calls_at_once.max(1))),
            })
        };
        Arc::clone(entries.entry(Arc::clone(name)).or_insert_with(new))
    }

    /// Returns the connection of a server, which is started if necessary. Concurrent callers share one start.
    async fn connect(
        &self,
        entry: &Arc<Entry>,
        wanted: &PoolRequest<'_>,
        method: &str,
    ) -> Result<Lease, UpstreamError> {
        let starts_before = entry.starts.load(Ordering::Acquire);
        let mut state = tokio::select! {
            state = Arc::clone(&entry.state).lock_owned() => state,
            () = wanted.cancel.cancelled() => return Err(wanted.cancelled(method)),
        };
        if self.closing.is_cancelled() {
            return Err(UpstreamError::ShuttingDown);
        }
        if let Some(connection) = state.connection.take() {
            let lease =
                connection.serves(wanted.definition).then(|| connection.lease(wanted.purpose)).flatten();
            if let Some(lease) = lease {
                state.connection = Some(connection);
                return Ok(lease);
            }
            self.discard(&mut state, connection);
        }
        // The start that this caller waited for has failed: not every waiting caller has to try again.
        if let Some(failure) = &state.last_failure
            && entry.starts.load(Ordering::Acquire) != starts_before
        {
            return Err(failure.clone());
        }
        self.back_off(&state, wanted, method).await?;
        let start = self.start(Arc::clone(entry), state, wanted);
        tokio::select! {
            started = start => started,
            () = wanted.cancel.cancelled() => Err(wanted.cancelled(method)),
        }
    }

    /// Closes a connection that is not used any more. One that ended soon after its start counts as a failure.
    fn discard(&self, state: &mut EntryState, connection: Arc<Connection>) {
        if connection.ended_by_itself() {
            state.count_failure(connection.has_worked());
        }
        let limit = self.limits().call;
        self.tasks.spawn(async move { connection.retire(limit).await });
    }

    /// Waits for a short backoff, and fails for a long one.
    async fn back_off(
        &self,
        state: &EntryState,
        wanted: &PoolRequest<'_>,
        method: &str,
    ) -> Result<(), UpstreamError> {
        let wait = state.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        if wait.is_zero() {
            return Ok(());
        }
        if wait > SHORT_BACKOFF {
            return Err(UpstreamError::BackingOff {
                server: Arc::clone(&wanted.server.name),
                failures: state.failures,
                wait,
                last: state
                    .last_failure
                    .as_ref()
                    .map_or_else(|| "it ended soon after its start".into(), ToString::to_string),
            });
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => Ok(()),
            () = wanted.cancel.cancelled() => Err(wanted.cancelled(method)),
            () = self.closing.cancelled() => Err(UpstreamError::ShuttingDown),
        }
    }

    /// Starts a server in a task of its own, so that the start goes on for others when this caller is cancelled.
    async fn start(
        &self,
        entry: Arc<Entry>,
        mut state: OwnedMutexGuard<EntryState>,
        wanted: &PoolRequest<'_>,
    ) -> Result<Lease, UpstreamError> {
        let (context, closing) = (Arc::clone(&self.context), self.closing.clone());
        let (server, definition) = (wanted.server.clone(), Arc::clone(wanted.definition));
        let (tasks, purpose) = (self.tasks.clone(), wanted.purpose);
        let starting = self.tasks.spawn(async move {
            let started = tokio::select! {
                started = connect(&server, definition, &context) => started,
                () = closing.cancelled() => Err(UpstreamError::ShuttingDown),
            };
            entry.starts.fetch_add(1, Ordering::Release);
            let connection = match started {
                Ok(connection) => connection,
                Err(error) => {
                    state.last_failure = Some(error.clone());
                    // A person who logs in need not wait.
                    if !error.is_about_login() {
                        state.count_failure(false);
                    }
                    return Err(error);
                }
            };
            state.last_failure = None;
            state.retry_at = None;
            // The lease is taken before others see the connection: it must not be idle before its first use.
            let lease = connection.lease(purpose);
            state.connection = Some(Arc::clone(&connection));
            let limits = IdleLimits { called: context.limits.idle, listed: context.limits.docs_idle };
            tasks.spawn(supervise(Arc::clone(&connection), Arc::clone(&entry), limits, closing.clone()));
            tasks.spawn(async move {
                tokio::select! {
                    _ = join3(
                        connection.follow_changes(&context),
                        connection.follow_offers(&context),
                        connection.listen_for_lists(),
                    ) => {}
                    () = closing.cancelled() => {}
                }
            });
            lease.ok_or(UpstreamError::ShuttingDown)
        });
        match starting.await {
            Ok(started) => started,
            Err(_) => Err(UpstreamError::ShuttingDown),
        }
    }
}

/// Closes a connection when it is idle, or cleans up when it ends by itself.
async fn supervise(
    connection: Arc<Connection>,
    entry: Arc<Entry>,
    limits: IdleLimits,
    closing: CancellationToken,
) {
    let has_gone = tokio::select! {
        has_gone = connection.idle(limits) => has_gone,
        () = closing.cancelled() => return,
    };
    if has_gone {
        // It stays in the entry, so that the next call sees that it ended by itself.
        connection.close().await;
        return;
    }
    tracing::debug!(server = connection.server(), "stopped an idle server");
    let mut state = entry.state.lock().await;
    if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, &connection)) {
        state.connection = None;
    }
    drop(state);
    connection.close().await;
}

impl EntryState {
    /// Counts a failure. There is no backoff after the first one.
    fn count_failure(&mut self, worked: bool) {
        self.failures = if worked { 1 } else { self.failures + 1 };
        let backoff = backoff_after(self.failures);
        self.retry_at = (!backoff.is_zero()).then(|| Instant::now() + backoff);
    }
}

fn backoff_after(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => (Duration::from_millis(250) * 2_u32.saturating_pow(more - 2).min(1_000)).min(LONGEST_BACKOFF),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_grow_up_to_a_limit() {
        let backoffs: Vec<_> = (0..12).map(|failures| backoff_after(failures).as_millis()).collect();
        assert_eq!(backoffs, [0, 0, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(backoff_after(u32::MAX), LONGEST_BACKOFF);
    }
}
