//! The files of a session's `/workspace`: which ones a run changed, and their content, also beside running code.
//!
//! Process 1 of the sandbox serves them, in parts. What it says is hostile: paths are bytes that mean something in the
//! sandbox only, and an answer is at most one part.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::frames::ToGuest;

/// Bytes of a path that the kernel takes.
const LONGEST_PATH: usize = 4095;
/// Files in the list of one run; the guest looks at as many.
const MOST_FILES: usize = 2000;
/// Files of a session that are listed: those that changed last.
const MOST_LISTED: usize = 100;
/// Bytes of one part.
pub(super) const PART: u64 = 256 << 10;
/// How long process 1 may take for a part. It answers in less than a millisecond, unless output that nobody reads is in front.
const PATIENCE: Duration = Duration::from_secs(20);
/// What stands for itself in a URI.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// The same for the name of a session, which is one segment.
const SEGMENT: &AsciiSet = &PLAIN.add(b'/');

/// The start of the URIs of files.
pub const SESSION_URIS: &str = "codebridge://sessions/";

/// A file that a run made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Below `/workspace`, as the sandbox has it: any bytes, but no component that leads elsewhere.
    pub path: Vec<u8>,
    pub bytes: u64,
    /// Where the client reads it, while the session lives. None for one that ends with its call.
    pub uri: Option<String>,
}

impl ChangedFile {
    /// Returns the path for people, in one line.
    pub fn shown_path(&self) -> String {
        codebridge_runtimes::exec::visible_line(&String::from_utf8_lossy(&self.path))
    }
}

/// The files that a run made or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedFiles {
    pub files: Vec<ChangedFile>,
    /// Whether there may be more: the folder has too many files to look at all of them.
    pub is_cut: bool,
}

impl ChangedFiles {
    /// Reads the list of a frame: `SIZE PATH` and a NUL each. What is not as it should be is left out.
    pub(super) fn parse(list: &[u8]) -> Self {
        let mut changed = Self::default();
        for entry in list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let mut halves = entry.splitn(2, |byte| *byte == b' ');
            let bytes = halves.next().and_then(|size| str::from_utf8(size).ok()?.parse().ok());
            let (Some(bytes), Some(path)) = (bytes, halves.next()) else { continue };
            if path.is_empty() || changed.files.len() >= MOST_FILES {
                changed.is_cut = true;
            } else if is_below(path) {
                changed.files.push(ChangedFile { path: path.to_vec(), bytes, uri: None });
            }
        }
        changed
    }

    /// Adds where the files of this session are read.
    pub(super) fn in_session(mut self, session: &str) -> Self {
        self.files.iter_mut().for_each(|file| file.uri = Some(uri(session, &file.path)));
        self
    }
}

/// Whether a path leads to something below the folder that it starts from.
fn is_below(path: &[u8]) -> bool {
    let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
    path.len() <= LONGEST_PATH && path.split(|byte| *byte == b'/').all(is_plain)
}

fn uri(session: &str, path: &[u8]) -> String {
    let session = percent_encode(session.as_bytes(), SEGMENT);
    format!("{SESSION_URIS}{session}/files/{}", percent_encode(path, PLAIN))
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// Of the whole file.
    pub size: u64,
    pub bytes: Vec<u8>,
}

/// Why a file of a session cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("there is no session '{0}'")]
    NoSession(String),
    #[error("the path does not lead to a file below /workspace")]
    Path,
    /// As the sandbox says it.
    #[error("{0}")]
    Refused(String),
    #[error("the session has ended")]
    Ended,
    #[error("the sandbox did not answer in time")]
    TimedOut,
}

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
pub(super) struct Files {
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

    pub(super) fn has_ended(&self) -> bool {
        self.frames.is_closed()
    }

    /// Reads bytes from `start`, at most [`PART`].
    pub(super) async fn read(&self, path: &[u8], start: u64) -> Result<FilePart, FileError> {
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
    pub(super) fn add(&self, changed: &ChangedFiles) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.retain(|old| !changed.files.iter().any(|new| new.path == old.path));
        listed.extend(changed.files.iter().take(MOST_LISTED).cloned());
        let surplus = listed.len().saturating_sub(MOST_LISTED);
        listed.drain(..surplus);
    }

    pub(super) fn listed(&self) -> Vec<ChangedFile> {
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

    #[test]
    fn a_list_of_files_is_read_as_far_as_it_is_sound() {
        let list = b"3 a.csv\x004 sub/b c.png\x000 \x001 ../x\x001 /etc/passwd\x001 a//b\x00x y\x001\x00-1 z\x002 \xff\n\x00";
        let changed = ChangedFiles::parse(list).in_session("ma/in");
        let paths: Vec<_> = changed.files.iter().map(|file| (file.shown_path(), file.bytes)).collect();
        let expected = [("a.csv", 3), ("sub/b c.png", 4), ("\u{fffd}\u{fffd}", 2)];
        assert_eq!(paths, expected.map(|(path, bytes)| (path.to_owned(), bytes)));
        assert!(changed.is_cut);
        let uris: Vec<_> = changed.files.iter().map(|file| file.uri.as_deref().unwrap()).collect();
        assert_eq!(
            uris,
            [
                "codebridge://sessions/ma%2Fin/files/a.csv",
                "codebridge://sessions/ma%2Fin/files/sub/b%20c.png",
                "codebridge://sessions/ma%2Fin/files/%FF%0A",
            ]
        );
        assert!(ChangedFiles::parse(&[b"1 ".to_vec(), vec![b'x'; 5000]].concat()).files.is_empty());
    }

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
