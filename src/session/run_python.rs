//! The seam between the sessions and those who call them.

use std::future::Future;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{OutputStream, Progress, RunOutcome, RunRequest};

/// What the server and the command line need of the sessions.
pub trait RunPython: Send + Sync + 'static {
    /// Runs the code; never fails: what goes wrong is in the outcome.
    ///
    /// `progress` gets what happens meanwhile. It is bounded, and output waits for room in it, so that a slow
    /// reader slows the code down as a pipe would and nothing piles up. Every byte of output is sent before the
    /// outcome is returned. A closed receiver means that nobody looks; the run goes on without it.
    fn run(
        &self,
        request: RunRequest,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> impl Future<Output = RunOutcome> + Send;

    /// A part of the kept output of a run: bytes from `start`, at most `length`; None when nothing is kept of
    /// that run.
    fn output(&self, run_id: u32, stream: OutputStream, start: u64, length: u64) -> Option<Vec<u8>>;

    /// The runs whose output was cut and is still kept, oldest first.
    fn kept_runs(&self) -> Vec<u32>;
}
