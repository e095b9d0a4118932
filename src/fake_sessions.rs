//! Sessions without Python, for tests: the code says what happens.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::artifacts::Artifacts;
use crate::session::{
    Caller, ChangedFile, ChangedFiles, Failure, FileError, FilePart, Look, OutputStream, Progress,
    RunOutcome, RunPython, RunRequest, Status, Stream,
};

/// Sessions that take these words as code: `echo TEXT`, `hold` (until released or cancelled), `stubborn` (until
/// released, whatever is cancelled), `panic`, `report TEXT…` (each word as a line, then hold), `print TEXT` and `raise`.
#[derive(Debug, Default)]
pub(crate) struct FakeSessions {
    pub(crate) requests: Mutex<Vec<RunRequest>>,
    pub(crate) started: Notify,
    pub(crate) release: Notify,
    pub(crate) cancelled: AtomicUsize,
    pub(crate) kept: Mutex<Vec<(u32, Vec<u8>)>>,
    /// Sessions, paths and contents.
    pub(crate) files: Mutex<Vec<(String, String, Vec<u8>)>>,
    /// Paths that are never answered for, and whether one was asked for.
    pub(crate) silent: Mutex<Vec<String>>,
    pub(crate) asked_silent: Notify,
    pub(crate) artifacts: OnceLock<Artifacts>,
}

pub(crate) fn outcome(status: Status, stdout: &str) -> RunOutcome {
    RunOutcome {
        run_id: 1,
        status,
        failure: (status != Status::Success).then_some(Failure::Code),
        exit_code: match status {
            Status::Success => Some(0),
            Status::Error => Some(1),
            Status::Timeout | Status::Cancelled | Status::Refused | Status::Running => None,
        },
        stdout: Stream { text: stdout.into(), total_bytes: stdout.len() as u64, truncated: false },
        stderr: Stream::default(),
        displays: Vec::new(),
        files: ChangedFiles::default(),
        artifacts: Vec::new(),
        error: None,
        notices: Vec::new(),
        elapsed: Duration::ZERO,
        running: None,
    }
}

impl RunPython for FakeSessions {
    async fn run(&self, request: RunRequest, Caller { progress, cancel, .. }: Caller) -> RunOutcome {
        let code = request.code.clone();
        self.requests.lock().unwrap().push(request);
        self.started.notify_one();
        let hold = async {
            tokio::select! {
                () = cancel.cancelled() => {
                    self.cancelled.fetch_add(1, Ordering::SeqCst);
                    outcome(Status::Cancelled, "")
                }
                () = self.release.notified() => outcome(Status::Success, "released\n"),
            }
        };
        match code.split_once(' ').unwrap_or((&code, "")) {
            ("echo", text) => outcome(Status::Success, &format!("{text}\n")),
            ("hold", _) => hold.await,
            ("stubborn", _) => {
                self.release.notified().await;
                outcome(Status::Success, "released\n")
            }
            ("panic", _) => panic!("as the test asked"),
            ("report", words) => {
                for word in words.split(' ') {
                    let line = format!("{word}\n").into_bytes();
                    let _ = progress.send(Progress::Output(OutputStream::Stdout, line)).await;
                }
                hold.await
            }
            ("print", text) => {
                let running = [Progress::Preparing("starting".into()), Progress::Running];
                let streams = [OutputStream::Stdout, OutputStream::Stderr];
                let output = streams.map(|stream| Progress::Output(stream, text.as_bytes().to_vec()));
                for event in running.into_iter().chain(output) {
                    // A closed receiver does not stop the run.
                    let _ = progress.send(event).await;
                }
                match cancel.is_cancelled() {
                    true => outcome(Status::Cancelled, ""),
                    false => outcome(Status::Success, text),
                }
            }
            ("raise", _) => outcome(Status::Error, ""),
            _ => panic!("the test has no meaning for {code:?}"),
        }
    }

    async fn start(&self, request: RunRequest, caller: Caller) -> RunOutcome {
        self.run(request, caller).await
    }

    async fn look(&self, _: Look, _: Caller) -> RunOutcome {
        outcome(Status::Success, "")
    }

    fn output(&self, run_id: u32, stream: OutputStream, start: u64, length: u64) -> Option<Vec<u8>> {
        let kept = self.kept.lock().unwrap();
        let (_, stdout) = kept.iter().find(|(run, _)| *run == run_id)?;
        let bytes = if stream == OutputStream::Stdout { &stdout[..] } else { &[] };
        let start = (start as usize).min(bytes.len());
        let end = start.saturating_add(length as usize).min(bytes.len());
        Some(bytes[start..end].to_vec())
    }

    fn display(&self, _: u32, _: usize) -> Option<Vec<(String, Vec<u8>)>> {
        None
    }

    fn display_types(&self, _: u32) -> Vec<Vec<String>> {
        Vec::new()
    }

    async fn file(&self, session: &str, path: &[u8], start: u64) -> Result<FilePart, FileError> {
        let is_silent = self.silent.lock().unwrap().iter().any(|silent| silent.as_bytes() == path);
        if is_silent {
            self.asked_silent.notify_one();
            return std::future::pending().await;
        }
        let files = self.files.lock().unwrap();
        let found = files.iter().find(|(known, of, _)| known == session && of.as_bytes() == path);
        let (_, _, bytes) = found.ok_or_else(|| FileError::NoSession(session.into()))?;
        let start = (start as usize).min(bytes.len());
        let end = bytes.len().min(start + (256 << 10));
        Ok(FilePart { size: bytes.len() as u64, bytes: bytes[start..end].to_vec() })
    }

    fn files(&self) -> Vec<ChangedFile> {
        Vec::new()
    }

    fn artifacts(&self) -> &Artifacts {
        self.artifacts.get_or_init(|| Artifacts::at("/nonexistent".as_ref(), 0))
    }

    fn kept_runs(&self) -> Vec<u32> {
        self.kept.lock().unwrap().iter().map(|(run, _)| *run).collect()
    }
}
