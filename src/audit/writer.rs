//! The thread that writes. There is one while there is something to write: a bridge may have many users, each with a log.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::mpsc::error::{SendError, TryRecvError, TrySendError};
use tokio::sync::{mpsc, oneshot};

use super::chain::Chain;
use super::error::AuditError;
use super::event::{Contents, Event};
use super::prune::prune;

/// Entries that are written at once.
const MOST_AT_ONCE: usize = 256;
/// Entries that wait for the thread.
const WAITING: usize = 1024;
/// How long the thread waits for more.
const LINGER: Duration = Duration::from_secs(1);

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

/// The way to the thread.
pub(super) struct Queue {
    sender: mpsc::Sender<Message>,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    /// While no thread has them.
    writer: Option<(Writer, mpsc::Receiver<Message>)>,
    thread: Option<Thread>,
}

impl Queue {
    pub(super) fn new(writer: Writer) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let shared = Shared { writer: Some((writer, receiver)), thread: None };
        Self { sender, shared: Arc::new(Mutex::new(shared)) }
    }

    /// Returns a queue that nobody reads, and what it has space for.
    #[cfg(test)]
    pub(super) fn without_thread(space: usize) -> (Self, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(space);
        let shared = Shared { writer: None, thread: Some(thread::current()) };
        (Self { sender, shared: Arc::new(Mutex::new(shared)) }, receiver)
    }

    pub(super) async fn send(&self, message: Message) -> Result<(), SendError<Message>> {
        self.sender.send(message).await?;
        self.wake();
        Ok(())
    }

    pub(super) fn try_send(&self, message: Message) -> Result<(), TrySendError<Message>> {
        self.sender.try_send(message)?;
        self.wake();
        Ok(())
    }

    /// Has the thread write what was sent. If none can be started, the next message tries it again.
    fn wake(&self) {
        let mut shared = lock(&self.shared);
        if let Some(thread) = &shared.thread {
            return thread.unpark();
        }
        let of_thread = Arc::clone(&self.shared);
        let started = thread::Builder::new().name("audit".into()).spawn(move || run(&of_thread));
        shared.thread = started.ok().map(|started| started.thread().clone());
    }
}

/// Writes what is sent until nothing has come for a while.
fn run(shared: &Mutex<Shared>) {
    let Some((mut writer, mut messages)) = lock(shared).writer.take() else { return };
    loop {
        match messages.try_recv() {
            Ok(first) => writer.take(first, &mut messages),
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                let parked = Instant::now();
                thread::park_timeout(LINGER);
                let mut shared = lock(shared);
                // Whoever sends something from now on finds that there is no thread.
                if parked.elapsed() >= LINGER && messages.is_empty() {
                    (shared.writer, shared.thread) = (Some((writer, messages)), None);
                    return;
                }
            }
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    /// Writes a message and those that have come since.
    fn take(&mut self, first: Message, messages: &mut mpsc::Receiver<Message>) {
        let (mut entries, mut flushed, mut close) = (Vec::new(), Vec::new(), None);
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Entry(entry) => entries.push(*entry),
                Message::Flush(done) => flushed.push(done),
                Message::Close(done) => close = Some(done),
            }
            next =
                if entries.len() < MOST_AT_ONCE && close.is_none() { messages.try_recv().ok() } else { None };
        }
        let written = self.write(entries, close.is_some());
        for done in flushed.into_iter().chain(close) {
            // Nobody may be waiting.
            let _: Result<(), Written> = done.send(written.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for an answer of the thread.
    fn flush(queue: &Queue) -> Written {
        let (done, written) = oneshot::channel();
        queue.try_send(Message::Flush(done)).unwrap();
        written.blocking_recv().unwrap()
    }

    #[test]
    fn the_thread_ends_and_another_one_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::new(Writer {
            folder: folder.path().join("audit"),
            bridge: Chain::new_name(),
            mode: "on",
            synced: false,
            state: Arc::default(),
            chain: None,
            lost: 0,
        });
        let line = || {
            let (time, contents) = (Timestamp::now(), Contents::default());
            Message::Entry(Box::new(Entry { time, event: Event::Close, contents, held: None, done: None }))
        };
        queue.try_send(line()).unwrap();
        flush(&queue).unwrap();
        let begun = Instant::now();
        while lock(&queue.shared).thread.is_some() {
            assert!(begun.elapsed() < 60 * LINGER, "the thread does not end");
            thread::sleep(LINGER / 100);
        }
        assert!(lock(&queue.shared).writer.is_some(), "nobody holds more than the writer");
        queue.try_send(line()).unwrap();
        flush(&queue).unwrap();
        let files: Vec<_> = std::fs::read_dir(folder.path().join("audit")).unwrap().collect();
        let texts = files.iter().map(|file| std::fs::read_to_string(file.as_ref().unwrap().path()).unwrap());
        let closes: usize = texts.map(|text| text.matches("\"close\"").count()).sum();
        assert_eq!(closes, 2, "one chain has both lines");
    }
}
