//! The interface of the sessions to the server and the command line.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::authority::Authority;
use super::script::Script;
use crate::artifacts::Artifacts;
use crate::session::{
    ChangedFile, FileError, FilePart, Look, OutputStream, Progress, RunOutcome, RunRequest,
};
use crate::telemetry::TraceContext;
use crate::upstream::{Answers, NoAnswers, Unattended};

/// The connection of a run to whoever asked for it.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Gets what happens during the run. It is bounded, and output waits for space in it, so that a slow reader slows the
    /// code down as a pipe would and memory stays bounded. Every byte of output is sent before the outcome is returned. A
    /// closed receiver does not stop the run.
    pub progress: mpsc::Sender<Progress>,
    /// Answers the questions that servers ask during the calls of the run.
    pub answers: Arc<dyn Answers>,
    pub cancel: CancellationToken,
    /// What a run of the command line has beside its code.
    pub script: Option<Arc<Script>>,
    /// The trace that the run belongs to.
    pub trace: TraceContext,
    /// Who the client says that it is.
    pub client: Option<Arc<str>>,
    /// What the call is made with: the run ends with it, and so does its session.
    pub authority: Authority,
    /// Set in a run that nobody has asked for.
    pub unattended: Option<Arc<Unattended>>,
    /// Whether a run in the background is followed until its end, as a task of the client: its whole result is returned, whatever
    /// looks show of it meanwhile, and cancelling the caller interrupts it.
    pub until_end: bool,
}

impl Caller {
    /// Returns a caller that no server can ask anything.
    pub fn without_answers(progress: mpsc::Sender<Progress>, cancel: CancellationToken) -> Self {
        Self {
            progress,
            answers: Arc::new(NoAnswers::default()),
            cancel,
            script: None,
            trace: TraceContext::default(),
            client: None,
            authority: Authority::default(),
            unattended: None,
            until_end: false,
        }
    }
}

/// What the server and the command line need of the sessions.
pub trait RunPython: Send + Sync + 'static {
    /// Runs the code; never fails: what goes wrong is in the outcome.
    fn run(&self, request: RunRequest, caller: Caller) -> impl Future<Output = RunOutcome> + Send;

    /// Starts the code in the background. Returns when it runs: its outcome where it ends within a moment, or where the caller
    /// follows it until its end.
    fn start(&self, request: RunRequest, caller: Caller) -> impl Future<Output = RunOutcome> + Send;

    /// Waits until a run in the background ends, displays something, reports progress or needs an answer, and returns what
    /// is new since the last look. The caller is who is asked meanwhile.
    fn look(&self, look: Look, caller: Caller) -> impl Future<Output = RunOutcome> + Send;

    /// Returns part of the kept output of a run: bytes from `start`, at most `length`; None when nothing of that run is kept.
    fn output(&self, run_id: u32, stream: OutputStream, start: u64, length: u64) -> Option<Vec<u8>>;

    /// Returns the forms of an object that a run displayed, with their MIME types; None when it is not kept. Numbers start at 1.
    fn display(&self, run_id: u32, number: usize) -> Option<Vec<(String, Vec<u8>)>>;

    /// Returns the MIME types of each object that a run displayed and that is kept.
    fn display_types(&self, run_id: u32) -> Vec<Vec<String>>;

    /// Returns bytes of a file of a session, from `start` on: at most one part. A session that runs code answers as well.
    fn file(
        &self,
        session: &str,
        path: &[u8],
        start: u64,
    ) -> impl Future<Output = Result<FilePart, FileError>> + Send;

    /// Returns the files of live sessions that changed last.
    fn files(&self) -> Vec<ChangedFile>;

    /// Returns what the user's code has saved.
    fn artifacts(&self) -> &Artifacts;

    /// Returns the runs with output that was cut, or displayed objects, that are still kept, oldest first.
    fn kept_runs(&self) -> Vec<u32>;
}
