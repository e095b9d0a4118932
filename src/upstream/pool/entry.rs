//! Which servers run, and when one that failed may be tried again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::{Patience, Purpose};
use super::connection::{Calling, Connection, Lease};
use super::context::{Context, Limits};
use super::listing::{Age, Listing};
use super::outcome::CallOutcome;
use super::start::connect;
use crate::upstream::discovery::{Definition, Server};
use crate::upstream::error::UpstreamError;
use crate::upstream::options::CallOptions;

/// A connection that lived this long has worked.
const PROVEN: Duration = Duration::from_secs(10);
/// A rest up to this long is waited for.
const SHORT_REST: Duration = Duration::from_secs(1);
/// No rest is longer.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// What a server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// Nothing: it is started when it is needed.
    Stopped,
    /// It is being started.
    Starting,
    /// It runs.
    Running,
    /// Its last start failed.
    Failed,
}

/// All connections.
#[derive(Debug)]
pub(in crate::upstream) struct Pool {
    context: Arc<Context>,
    entries: Mutex<HashMap<Arc<str>, Arc<Entry>>>,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// One server.
#[derive(Debug)]
struct Entry {
    state: Arc<tokio::sync::Mutex<State>>,
    /// Starts that have come to an end, well or not.
    starts: AtomicU64,
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Starts that failed and connections that soon ended, in a row.
    failures: u32,
    retry_at: Option<Instant>,
    last_failure: Option<UpstreamError>,
}

/// The use of a server for one request, which the caller can cancel.
pub(in crate::upstream) struct ServerUse<'a> {
    server: &'a Server,
    definition: &'a Arc<Definition>,
    purpose: Purpose,
    cancel: &'a CancellationToken,
}

impl<'a> ServerUse<'a> {
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

    /// Calls a tool of a server, which is started if need be.
    pub(in crate::upstream) async fn call(
        &self,
        wanted: ServerUse<'_>,
        tool: &str,
        arguments: Map<String, Value>,
        options: CallOptions<'_>,
    ) -> Result<CallOutcome, UpstreamError> {
        let entry = self.entry(&wanted.server.name);
        let _room = tokio::select! {
            room = Arc::clone(&entry.room).acquire_owned() => room.map_err(|_| UpstreamError::ShuttingDown)?,
            () = wanted.cancel.cancelled() => return Err(wanted.cancelled(tool)),
            () = self.closing.cancelled() => return Err(UpstreamError::ShuttingDown),
        };
        // A server may ask as soon as it is started.
        let _caller = self.context.runs.enter(&options.answers);
        let lease = self.connect(&entry, &wanted, tool).await?;
        let calling = Calling { tool, arguments, options, limit: self.limits().call };
        lease.connection.call(calling).await
    }

    /// The tools of a server, which is started if need be.
    pub(in crate::upstream) async fn tools(
        &self,
        wanted: ServerUse<'_>,
        age: Age,
    ) -> Result<Arc<Listing>, UpstreamError> {
        let entry = self.entry(&wanted.server.name);
        let lease = self.connect(&entry, &wanted, "tools/list").await?;
        lease.connection.tools(&self.context, age, wanted.cancel).await
    }

    /// What a server is doing, and how many tools it has, if that was asked.
    pub(in crate::upstream) fn state(&self, name: &str) -> (ServerState, Option<usize>) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get(name) else { return (ServerState::Stopped, None) };
        let Ok(state) = entry.state.try_lock() else { return (ServerState::Starting, None) };
        match &state.connection {
            Some(connection) if !connection.has_gone() => (ServerState::Running, connection.known_tools()),
            _ if state.last_failure.is_some() => (ServerState::Failed, None),
            _ => (ServerState::Stopped, None),
        }
    }

    /// What a server has said that is being started, without credentials; None for any other.
    pub(in crate::upstream) fn words_of_start(&self, name: &str) -> Option<String> {
        self.context.starting.words_of(name)
    }

    /// Lets a server go that was only asked for its tools.
    pub(in crate::upstream) fn dismiss(&self, name: &str) {
        let entry = self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        // One that is being started has other users.
        if let Some(state) = entry.as_ref().and_then(|entry| entry.state.try_lock().ok())
            && let Some(connection) = &state.connection
        {
            connection.dismiss();
        }
    }

    /// Stops a server, which is started again when it is needed. Its calls under way fail.
    pub(in crate::upstream) async fn stop(&self, name: &str) {
        let entry = self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let Some(entry) = entry else { return };
        let connection = entry.state.lock().await.connection.take();
        if let Some(connection) = connection {
            connection.close().await;
        }
    }

    /// Ends every connection; nothing is started after this.
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
                room: Arc::new(Semaphore::new(self.limits().calls_at_once.max(1))),
            })
        };
        Arc::clone(entries.entry(Arc::clone(name)).or_insert_with(new))
    }

    /// A connection to use: the one that is there, or a new one. Whoever comes while one is being made waits for it.
    async fn connect(
        &self,
        entry: &Arc<Entry>,
        wanted: &ServerUse<'_>,
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
            self.bury(&mut state, connection);
        }
        // The start that was waited for has failed: trying the same at once, once for each who waited, helps nobody.
        if let Some(failure) = &state.last_failure
            && entry.starts.load(Ordering::Acquire) != starts_before
        {
            return Err(failure.clone());
        }
        self.rest(&state, wanted, method).await?;
        let start = self.start(Arc::clone(entry), state, wanted);
        tokio::select! {
            started = start => started,
            () = wanted.cancel.cancelled() => Err(wanted.cancelled(method)),
        }
    }

    /// A connection that is of no use any more is seen off; one that had hardly begun counts as a failure.
    fn bury(&self, state: &mut State, connection: Arc<Connection>) {
        if connection.has_gone() && !connection.was_stopped() {
            let worked = connection.has_answered() || connection.age() >= PROVEN;
            state.failed_again(worked);
        }
        let limit = self.limits().call;
        self.tasks.spawn(async move { connection.retire(limit).await });
    }

    /// Waits out a short rest, and refuses to wait for a long one.
    async fn rest(&self, state: &State, wanted: &ServerUse<'_>, method: &str) -> Result<(), UpstreamError> {
        let wait = state.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        if wait.is_zero() {
            return Ok(());
        }
        if wait > SHORT_REST {
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

    /// Starts a server in a task of its own, so that it comes up for others also when this caller goes away.
    async fn start(
        &self,
        entry: Arc<Entry>,
        mut state: OwnedMutexGuard<State>,
        wanted: &ServerUse<'_>,
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
                    state.failed_again(false);
                    return Err(error);
                }
            };
            state.last_failure = None;
            state.retry_at = None;
            // Before anybody else can see it: it must not be idle before its first use.
            let lease = connection.lease(purpose);
            state.connection = Some(Arc::clone(&connection));
            let patience = Patience { called: context.limits.idle, asked: context.limits.docs_idle };
            tasks.spawn(keep(Arc::clone(&connection), Arc::clone(&entry), patience, closing.clone()));
            tasks.spawn(async move {
                tokio::select! {
                    () = connection.follow_changes(&context) => {}
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

/// Stays with a connection to its end: closes it when it is idle, and cleans up when it goes by itself.
async fn keep(
    connection: Arc<Connection>,
    entry: Arc<Entry>,
    patience: Patience,
    closing: CancellationToken,
) {
    let has_gone = tokio::select! {
        has_gone = connection.idle(patience) => has_gone,
        () = closing.cancelled() => return,
    };
    if has_gone {
        // The next call wants to know that it has gone by itself.
        connection.close().await;
        return;
    }
    tracing::debug!(server = connection.server(), "idle, and stopped");
    let mut state = entry.state.lock().await;
    if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, &connection)) {
        state.connection = None;
    }
    drop(state);
    connection.close().await;
}

impl State {
    /// Counts a failure. The first one after something that worked costs no rest.
    fn failed_again(&mut self, worked: bool) {
        self.failures = if worked { 1 } else { self.failures + 1 };
        let rest = rest_after(self.failures);
        self.retry_at = (!rest.is_zero()).then(|| Instant::now() + rest);
    }
}

fn rest_after(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => (Duration::from_millis(250) * 2_u32.saturating_pow(more - 2).min(1_000)).min(LONGEST_REST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_and_have_an_end() {
        let rests: Vec<_> = (0..12).map(|failures| rest_after(failures).as_millis()).collect();
        assert_eq!(rests, [0, 0, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(rest_after(u32::MAX), LONGEST_REST);
    }
}
