//! What is recorded, and how much of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::chain::Chain;
use super::error::AuditError;
use super::event::{
    Approved, Call, Content, Contents, Denied, Event, Given, Mask, RunEnd, RunFacts, RunStart,
};
use super::folder::folder_in;
use super::line::digest;
use super::writer::{Entry, HeldBytes, Message, Queue, State, Writer, Written};
use crate::settings::{AuditLevel, AuditMode, Settings};

/// Bytes of the texts that wait; beyond, lines are without them.
const MOST_HELD: usize = 64 << 20;
/// How long a call waits for a slow disk before it goes on without its line.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same where there is no call without its line.
const REQUIRED_PATIENCE: Duration = Duration::from_secs(30);
/// Refusals of one run that have lines of their own: they cost code nothing, and would push older lines out.
const MOST_REFUSALS: u64 = 1000;

/// The audit log of a process. Nothing is written before the first run or call.
#[derive(Clone)]
pub struct Audit(Option<Arc<Inner>>);

struct Inner {
    folder: PathBuf,
    mode: AuditMode,
    bridge: String,
    state: Arc<State>,
    queue: OnceLock<Queue>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Audit({})", self.0.as_ref().map_or("off", |inner| &inner.bridge))
    }
}

impl Audit {
    /// Returns the log under the settings.
    pub fn of(settings: &Settings) -> Self {
        Self::at(folder_in(&settings.state_dir.value), settings.audit.value)
    }

    /// Returns the log in a folder.
    pub fn at(folder: PathBuf, mode: AuditMode) -> Self {
        if mode.level == AuditLevel::Off {
            return Self::off();
        }
        let (bridge, state, queue) = (Chain::new_name(), Arc::default(), OnceLock::new());
        Self(Some(Arc::new(Inner { folder, mode, bridge, state, queue })))
    }

    /// Returns one that records nothing.
    pub fn off() -> Self {
        Self(None)
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether code, arguments and results are recorded.
    pub fn is_full(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.mode.level == AuditLevel::Full)
    }

    /// Whether there is no run and no call without a line.
    pub fn is_required(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.mode.required)
    }

    /// Returns the name of this bridge; None if nothing is recorded.
    pub fn bridge(&self) -> Option<&str> {
        self.0.as_ref().map(|inner| &*inner.bridge)
    }

    /// Returns BRIDGE-NUMBER.
    pub fn run_name(&self, number: u32) -> Option<String> {
        self.0.as_ref().map(|inner| format!("{}-{number}", inner.bridge))
    }

    /// Returns the SHA-256 of code.
    pub fn digest_of(&self, code: &str) -> Option<String> {
        self.is_on().then(|| digest(code.as_bytes()))
    }

    /// Returns the folder; None if nothing is recorded.
    pub fn folder(&self) -> Option<&Path> {
        self.0.as_ref().map(|inner| &*inner.folder)
    }

    /// Returns why nothing can be recorded now.
    pub fn trouble(&self) -> Option<Arc<AuditError>> {
        self.0.as_ref()?.state.trouble()
    }

    /// Records that a run begins, and waits until that is written.
    ///
    /// # Errors
    /// It cannot be written. Where the log is required, there must be no run.
    pub async fn run_starts(
        &self,
        start: RunStart,
        code: &str,
        mask: impl FnOnce() -> Mask,
    ) -> Result<(), Arc<AuditError>> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let contents = match self.is_full() {
            true => Contents { texts: vec![Content::text("code", code.to_owned())], mask: Some(mask()) },
            false => Contents::default(),
        };
        inner.written(Timestamp::now(), Event::RunStart(start), contents).await
    }

    /// Records that a run has ended.
    pub async fn run_ended(&self, mut end: RunEnd, contents: Contents) {
        let Some(inner) = &self.0 else { return };
        let counts = &end.facts.counts;
        (end.calls, end.refused) = (counts.calls(), counts.refused());
        end.refused_without_line = end.refused.saturating_sub(MOST_REFUSALS);
        inner.record(Event::Run(end), contents).await;
    }

    /// Records that something other than a call is denied.
    pub async fn denied(&self, denied: Denied) {
        let Some(inner) = &self.0 else { return };
        if inner.has_line(&denied.facts) {
            inner.record(Event::Denied(denied), Contents::default()).await;
        }
    }

    /// Records that the person has approved something, before it holds.
    ///
    /// # Errors
    /// It cannot be written, and the log is required: it must not hold.
    pub async fn approved(&self, approved: Approved) -> Result<(), Arc<AuditError>> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let written = inner.written(Timestamp::now(), Event::Approved(approved), Contents::default()).await;
        match written {
            Err(error) if self.is_required() => Err(error),
            Err(error) => {
                tracing::warn!(%error, "an approval is not recorded");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Records an answer, and waits until it is written where that is required.
    ///
    /// # Errors
    /// It cannot be written: the answer must not count.
    pub async fn answered(&self, given: Given) -> Result<(), Arc<AuditError>> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let event = Event::Answer(given);
        if inner.mode.required {
            return inner.written(Timestamp::now(), event, Contents::default()).await;
        }
        inner.record(event, Contents::default()).await;
        Ok(())
    }

    /// Begins the record of a call; None if nothing is recorded.
    pub fn call(
        &self,
        facts: &Arc<RunFacts>,
        server: &Arc<str>,
        tool: &str,
        sent: usize,
    ) -> Option<CallRecord> {
        let inner = self.0.as_ref()?;
        let call = Call {
            facts: Arc::clone(facts),
            server: Arc::clone(server),
            kind: None,
            tool: tool.to_owned(),
            called_as: None,
            verdict: None,
            rule: None,
            sent: sent as u64,
            received: None,
            milliseconds: None,
            outcome: None,
            error: None,
        };
        let (begun, time) = (Instant::now(), Timestamp::now());
        Some(CallRecord { inner: Arc::clone(inner), call: Some(call), begun, time })
    }

    /// Waits until everything is written.
    pub async fn flush(&self) {
        self.wait_for(Message::Flush).await;
    }

    /// Writes what is left. Nothing is recorded after it.
    pub async fn close(&self) {
        self.wait_for(Message::Close).await;
    }

    async fn wait_for(&self, message: impl FnOnce(oneshot::Sender<Written>) -> Message) {
        let Some(inner) = &self.0 else { return };
        // A process that has recorded nothing leaves nothing.
        let Some(queue) = inner.queue.get() else { return };
        let (done, written) = oneshot::channel();
        let wait = async {
            if queue.send(message(done)).await.is_ok() {
                let _ = written.await;
            }
        };
        if timeout(PATIENCE, wait).await.is_err() {
            tracing::warn!("the disk of the audit log does not answer: its last lines may be missing");
        }
    }
}

impl Inner {
    fn queue(&self) -> &Queue {
        self.queue.get_or_init(|| {
            Queue::new(Writer {
                folder: self.folder.clone(),
                bridge: self.bridge.clone(),
                mode: self.mode.name(),
                synced: self.mode.required,
                state: Arc::clone(&self.state),
                chain: None,
                lost: 0,
            })
        })
    }

    /// Whether a refusal has a line.
    fn has_line(&self, facts: &RunFacts) -> bool {
        facts.counts.refused.fetch_add(1, Ordering::Relaxed) < MOST_REFUSALS
    }

    fn entry(
        &self,
        event: Event,
        time: Timestamp,
        contents: Contents,
        done: Option<oneshot::Sender<Written>>,
    ) -> Message {
        let hold = |bytes, most| HeldBytes::try_hold(bytes, &self.state, most);
        let (contents, held) = match hold(contents.bytes(), MOST_HELD) {
            Some(held) => (contents, Some(held)),
            None => {
                let fields: Vec<&str> = contents.texts.iter().map(|content| content.field).collect();
                let left_out = serde_json::to_string(&fields).unwrap_or_default();
                let held = hold(left_out.len(), usize::MAX);
                (Contents { texts: vec![Content::json("left_out", left_out)], mask: None }, held)
            }
        };
        Message::Entry(Box::new(Entry { time, event, contents, held, done }))
    }

    /// Passes a line on. It waits for space no longer than [`PATIENCE`].
    async fn record(&self, event: Event, contents: Contents) {
        self.record_at(Timestamp::now(), event, contents).await;
    }

    async fn record_at(&self, time: Timestamp, event: Event, contents: Contents) {
        if self.mode.required {
            // A failure is known to the next run or call, which must not be.
            let _ = self.written(time, event, contents).await;
            return;
        }
        let queue = self.queue();
        let entry = self.entry(event, time, contents, None);
        let Err(TrySendError::Full(entry)) = queue.try_send(entry) else { return };
        if !matches!(timeout(PATIENCE, queue.send(entry)).await, Ok(Ok(()))) {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Passes a line on, and waits until it is written.
    async fn written(&self, time: Timestamp, event: Event, contents: Contents) -> Written {
        let queue = self.queue();
        let (done, written) = oneshot::channel();
        let entry = self.entry(event, time, contents, Some(done));
        let patience = if self.mode.required { REQUIRED_PATIENCE } else { PATIENCE };
        let write = async {
            match queue.send(entry).await {
                Ok(()) => written.await.unwrap_or_else(|_| Err(Arc::new(AuditError::Ended))),
                Err(_) => Err(Arc::new(AuditError::Ended)),
            }
        };
        timeout(patience, write)
            .await
            .unwrap_or_else(|_| Err(Arc::new(AuditError::Slow(self.folder.clone()))))
    }
}

/// The record of one call. Dropped, it says that nobody waited for the end.
pub struct CallRecord {
    inner: Arc<Inner>,
    call: Option<Call>,
    begun: Instant,
    time: Timestamp,
}

impl fmt::Debug for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRecord").field("call", &self.call).finish_non_exhaustive()
    }
}

impl CallRecord {
    /// Notes that it is about something else than a tool.
    pub fn is_about(&mut self, kind: &str) {
        if let Some(call) = &mut self.call {
            call.kind = Some(kind.to_owned());
        }
    }

    /// Notes the name of the tool at its server.
    pub fn is_of(&mut self, tool: &str) {
        if let Some(call) = &mut self.call
            && call.tool != tool
        {
            call.called_as = Some(std::mem::replace(&mut call.tool, tool.to_owned()));
        }
    }

    /// Notes what was decided.
    pub fn decided(&mut self, verdict: &'static str, rule: Option<String>) {
        if let Some(call) = &mut self.call {
            (call.verdict, call.rule) = (Some(verdict), rule);
        }
    }

    /// Whether it was decided.
    pub fn is_decided(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.verdict.is_some())
    }

    /// Whether results are recorded.
    pub fn is_full(&self) -> bool {
        self.inner.mode.level == AuditLevel::Full
    }

    /// Waits until the call is in the log, where it has to be there before it is made.
    ///
    /// # Errors
    /// It cannot be written: the call must not be made.
    pub async fn begins(&self) -> Result<(), Arc<AuditError>> {
        match &self.call {
            Some(call) if self.inner.mode.required => {
                self.inner.written(self.time, Event::CallStart(call.clone()), Contents::default()).await
            }
            _ => Ok(()),
        }
    }

    /// Records the end of the call. A refusal is one that never reached the server.
    pub async fn ended(mut self, end: CallEnd, contents: Contents) {
        if let Some(event) = self.event(end) {
            self.inner.record_at(self.time, event, contents).await;
        }
    }

    fn event(&mut self, end: CallEnd) -> Option<Event> {
        let mut call = self.call.take()?;
        let CallEnd { outcome, is_refused, received, error } = end;
        match is_refused {
            true if !self.inner.has_line(&call.facts) => return None,
            true => {}
            false => drop(call.facts.counts.calls.fetch_add(1, Ordering::Relaxed)),
        }
        call.milliseconds = Some((self.begun.elapsed().as_micros() as f64) / 1000.0);
        (call.outcome, call.received, call.error) = (Some(outcome), received, error);
        Some(Event::Call(call))
    }
}

/// How a call ended.
#[derive(Debug)]
pub struct CallEnd {
    pub outcome: &'static str,
    /// Whether it never reached the server.
    pub is_refused: bool,
    /// Bytes of the result.
    pub received: Option<u64>,
    pub error: Option<String>,
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        let end = CallEnd { outcome: "abandoned", is_refused: false, received: None, error: None };
        let Some(event) = self.event(end) else { return };
        let entry = self.inner.entry(event, self.time, Contents::default(), None);
        if self.inner.queue().try_send(entry).is_err() {
            self.inner.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_given_up_holds_no_space() {
        let (queue, _not_read) = Queue::without_thread(1);
        let (mode, state) = (AuditMode { level: AuditLevel::Full, required: false }, Arc::<State>::default());
        let (bridge, queue) = (Chain::new_name(), OnceLock::from(queue));
        let inner = Inner { folder: PathBuf::new(), mode, bridge, state: Arc::clone(&state), queue };
        let texts =
            |length| Contents { texts: vec![Content::text("stdout", "x".repeat(length))], mask: None };
        let close = || Event::Close;
        inner.record(close(), texts(10)).await;
        assert_eq!(state.held.load(Ordering::Relaxed), 10, "the first waits for the thread");
        inner.record(close(), texts(1000)).await;
        assert!(inner.written(Timestamp::now(), close(), texts(1000)).await.is_err());
        assert_eq!(state.held.load(Ordering::Relaxed), 10, "the others are given up");
        let Some(HeldBytes { .. }) = HeldBytes::try_hold(5, &state, 20) else { panic!("there is space") };
        assert!(HeldBytes::try_hold(11, &state, 20).is_none());
        assert_eq!(state.held.load(Ordering::Relaxed), 10);
    }
}
