//! The thread that writes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::chain::Chain;
use super::error::AuditError;
use super::event::{Contents, Event};
use super::prune::prune;

/// Entries that are written at once.
const MOST_AT_ONCE: usize = 256;

/// Whether something is written.
pub(super) type Written = Result<(), Arc<AuditError>>;

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Message {
    Entry(Box<Entry>),
    /// Is told when everything before it is written.
    Flush(oneshot::Sender<Written>),
    /// The process ends.
    Close(oneshot::Sender<Written>),
}

/// A line to write.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) time: Timestamp,
    pub(super) event: Event,
    pub(super) contents: Contents,
    /// Its share of the texts that wait.
    pub(super) held: Option<HeldBytes>,
    /// Is told when it is written.
    pub(super) done: Option<oneshot::Sender<Written>>,
}

/// What the thread and those who record share.
#[derive(Debug, Default)]
pub(super) struct State {
    trouble: Mutex<Option<Arc<AuditError>>>,
    /// Entries that the thread did not get.
    pub(super) dropped: AtomicU64,
    /// Bytes of the texts that wait.
    pub(super) held: AtomicUsize,
}

impl State {
    /// Returns why nothing can be written now.
    pub(super) fn trouble(&self) -> Option<Arc<AuditError>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, trouble: Option<Arc<AuditError>>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// The bytes of the texts of one entry, for as long as it waits; also when it is given up.
#[derive(Debug)]
pub(super) struct HeldBytes {
    bytes: usize,
    state: Arc<State>,
}

impl HeldBytes {
    /// Returns the bytes of an entry as held; None if that were more than `most` of all entries.
    pub(super) fn try_hold(bytes: usize, state: &Arc<State>, most: usize) -> Option<Self> {
        let held = Self { bytes, state: Arc::clone(state) };
        let before = state.held.fetch_add(bytes, Ordering::Relaxed);
        (bytes == 0 || before + bytes <= most).then_some(held)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.state.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The thread's own.
pub(super) struct Writer {
    pub(super) folder: PathBuf,
    pub(super) bridge: String,
    pub(super) mode: &'static str,
    /// Whether lines are on disk before others go on.
    pub(super) synced: bool,
    pub(super) state: Arc<State>,
    pub(super) chain: Option<Chain>,
    pub(super) lost: u64,
}

impl Writer {
    /// Writes until the last sender is gone.
    pub(super) fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        while let Some(first) = messages.blocking_recv() {
            let (mut entries, mut flushed, mut close) = (Vec::new(), Vec::new(), None);
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Entry(entry) => entries.push(*entry),
                    Message::Flush(done) => flushed.push(done),
                    Message::Close(done) => close = Some(done),
                }
                next = if entries.len() < MOST_AT_ONCE && close.is_none() {
                    messages.try_recv().ok()
                } else {
                    None
                };
            }
            let written = self.write(entries, close.is_some());
            for done in flushed.into_iter().chain(close) {
                // Nobody may be waiting.
                let _: Result<(), Written> = done.send(written.clone());
            }
        }
    }

    fn write(&mut self, entries: Vec<Entry>, closes: bool) -> Written {
        let mut waiting = Vec::new();
        let count = entries.len() as u64;
        let begins = self.chain.is_none();
        let written = self.try_write(entries, closes, &mut waiting).map_err(Arc::new);
        match &written {
            Ok(()) => {
                if let Some(trouble) = self.state.trouble() {
                    tracing::info!(was = %trouble, "the audit log can be written again");
                    self.state.set(None);
                }
            }
            Err(error) => {
                self.lost += count;
                if self.state.trouble().is_none_or(|known| known.to_string() != error.to_string()) {
                    tracing::warn!(hint = error.hint(), "{error}");
                }
                self.state.set(Some(Arc::clone(error)));
            }
        }
        for done in waiting {
            let _: Result<(), Written> = done.send(written.clone());
        }
        if written.is_ok() && begins && self.chain.is_some() {
            self.prune();
        }
        written
    }

    fn try_write(
        &mut self,
        entries: Vec<Entry>,
        closes: bool,
        waiting: &mut Vec<oneshot::Sender<Written>>,
    ) -> Result<(), AuditError> {
        // Those who wait learn of every failure.
        let mut rest = Vec::with_capacity(entries.len());
        for entry in entries {
            let Entry { time, event, contents, held, done } = entry;
            drop(held);
            waiting.extend(done);
            rest.push((time, event, contents));
        }
        let chain = match &mut self.chain {
            Some(chain) => chain,
            None if rest.is_empty() => return Ok(()),
            none => {
                let first = rest.iter().map(|(time, ..)| *time).min().unwrap_or_else(Timestamp::now);
                none.insert(Chain::begin(&self.folder, &self.bridge, self.mode, first)?)
            }
        };
        if rest.iter().any(|(_, event, _)| matches!(event, Event::RunStart(_))) {
            chain.ensure_there()?;
        }
        let lost = self.lost + self.state.dropped.load(Ordering::Relaxed);
        if lost > 0 {
            let why = self.state.trouble().map_or_else(|| "too many at once".into(), |why| why.to_string());
            chain.add(Timestamp::now(), &Event::Lost { lines: lost, why }, Contents::default());
        }
        for (time, event, contents) in rest {
            chain.add(time, &event, contents);
        }
        if closes {
            chain.add(Timestamp::now(), &Event::Close, Contents::default());
        }
        chain.write(self.synced)?;
        self.state.dropped.fetch_sub(lost - self.lost, Ordering::Relaxed);
        self.lost = 0;
        if chain.is_full() {
            chain.next_part()?;
            chain.write(self.synced)?;
            self.prune();
        }
        Ok(())
    }

    /// Removes the oldest files of a log that is too large, and says so in the log.
    fn prune(&mut self) {
        let Some(chain) = &mut self.chain else { return };
        for files in prune(&self.folder, chain.part()) {
            chain.add(Timestamp::now(), &Event::Pruned { files }, Contents::default());
        }
        if let Err(error) = chain.write(self.synced) {
            tracing::warn!("{error}");
        }
    }
}
