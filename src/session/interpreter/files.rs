//! Access to the files of a session's `/workspace`, also beside running code.
//!
//! Process 1 of the sandbox serves them, in parts. What it says is hostile: paths are bytes that mean something in the
//! sandbox only, and an answer is at most one part.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::session::call::{ChangedFile, ChangedFiles, FileError, FilePart, is_below};
use crate::session::frames::ToGuest;

/// Files of a session that are listed: those that changed last.
const MOST_LISTED: usize = 100;
/// How long process 1 may take for a part. It answers in less than a millisecond, unless output that nobody reads is in front.
const PATIENCE: Duration = Duration::from_secs(20);

/// Requests for parts that have no answer yet.
#[derive(Debug, Default)]
pub(super) struct Requests(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u32, oneshot::Sender<Vec<u8>>>,
    /// Whether no answers will come.
    has_ended: bool,
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where the answer to a request will come; None when none will.
    fn begin(&self, id: u32) -> Option<oneshot::Receiver<Vec<u8>>> {
        let mut state = self.lock();
        let (sender, answer) = oneshot::channel();
        (!state.has_ended).then(|| {
            state.waiting.insert(id, sender);
            answer
        })
    }

    /// Takes an answer; one that nobody waits for is dropped.
    pub(super) fn answer(&self, id: u32, answer: Vec<u8>) {
        if let Some(waiting) = self.lock().waiting.remove(&id) {
            let _ = waiting.send(answer);
        }
    }

    /// Fails all of them: no answers will come.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.waiting.clear();
    }
}

/// Access to the files of one session.
#[derive(Debug)]
pub(in crate::session) struct Files {
    frames: mpsc::UnboundedSender<ToGuest>,
    requests: Arc<Requests>,
    next: AtomicU32,
    /// One part at a time, so that little waits on either side.
    turn: Semaphore,
    /// Those that changed last, the latest at the end.
    listed: Mutex<Vec<ChangedFile>>,
}

impl Files {
    pub(super) fn new(frames: mpsc::UnboundedSender<ToGuest>, requests: Arc<Requests>) -> Self {
        let (next, turn, listed) = (AtomicU32::new(1), Semaphore::new(1), Mutex::default());
        Self { frames, requests, next, turn, listed }
    }

    pub(in crate::session) fn has_ended(&self) -> bool {
        self.frames.is_closed()
    }

    /// Reads bytes from `start`, at most one part.
    pub(in crate::session) async fn read(&self, path: &[u8], start: u64) -> Result<FilePart, FileError> {
        if !is_below(path) {
            return Err(FileError::Path);
        }
        let _turn = self.turn.acquire().await.map_err(|_| FileError::Ended)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let answer = self.requests.begin(id).ok_or(FileError::Ended)?;
        let request = ToGuest::File { id, start, path: path.to_vec() };
        if self.frames.send(request).is_err() {
            return Err(FileError::Ended);
        }
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(answer) => parse_part(answer.map_err(|_| FileError::Ended)?),
            Err(_) => {
                self.requests.lock().waiting.remove(&id);
                Err(FileError::TimedOut)
            }
        }
    }

    /// Remembers what a run changed.
    pub(in crate::session) fn add(&self, changed: &ChangedFiles) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.retain(|old| {
            !changed.files.iter().any(|new| new.path == old.path) && !changed.gone.contains(&old.path)
        });
        listed.extend(changed.files.iter().take(MOST_LISTED).cloned());
        let surplus = listed.len().saturating_sub(MOST_LISTED);
        listed.drain(..surplus);
    }

    pub(in crate::session) fn listed(&self) -> Vec<ChangedFile> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads `SIZE`, a newline and the bytes; or `-` and why there are none.
fn parse_part(mut answer: Vec<u8>) -> Result<FilePart, FileError> {
    if let Some(why) = answer.strip_prefix(b"-") {
        let why: String = String::from_utf8_lossy(why).chars().take(200).collect();
        return Err(FileError::Refused(codebridge_runtimes::exec::visible_line(&why)));
    }
    let malformed = || FileError::Refused("the sandbox sent a malformed answer".into());
    let end = answer.iter().take(21).position(|byte| *byte == b'\n').ok_or_else(malformed)?;
    let size =
        str::from_utf8(&answer[..end]).ok().and_then(|size| size.parse().ok()).ok_or_else(malformed)?;
    answer.drain(..=end);
    Ok(FilePart { size, bytes: answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_is_asked_for_and_a_gone_session_is_said() {
        let (frames, mut sent) = mpsc::unbounded_channel();
        let requests = Arc::<Requests>::default();
        let files = Files::new(frames, Arc::clone(&requests));
        for (answer, expected) in [
            (&b"5\nbytes"[..], Ok(FilePart { size: 5, bytes: b"bytes".to_vec() })),
            (b"-Not a\nregular file", Err(FileError::Refused("Not a\u{fffd}regular file".into()))),
            (b"5", Err(FileError::Refused("the sandbox sent a malformed answer".into()))),
            (b"", Err(FileError::Refused("the sandbox sent a malformed answer".into()))),
        ] {
            let answering = async {
                let Some(ToGuest::File { id, start: 7, path }) = sent.recv().await else { panic!() };
                assert_eq!(path, b"a/b");
                requests.answer(id + 1, b"0\n".to_vec());
                requests.answer(id, answer.to_vec());
            };
            assert_eq!(tokio::join!(files.read(b"a/b", 7), answering).0, expected);
        }
        for path in ["", "..", "a/../b", "/etc/passwd", "a\0b"] {
            assert_eq!(files.read(path.as_bytes(), 0).await, Err(FileError::Path), "{path:?}");
        }
        let ending = async {
            sent.recv().await.unwrap();
            requests.end();
        };
        assert_eq!(tokio::join!(files.read(b"a", 0), ending).0, Err(FileError::Ended));
        drop(sent);
        assert_eq!(files.read(b"a", 0).await, Err(FileError::Ended));
    }
}
