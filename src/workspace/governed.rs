//! The sessions of one of many users, within the user's quotas.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::quotas::{Place, Quotas};
use crate::artifacts::Artifacts;
use crate::session::{
    Caller, ChangedFile, Failure, FileError, FilePart, Look, OutputStream, RunOutcome, RunPython, RunRequest,
    Sessions, Status,
};

/// Runs by how they ended, for all users of a bridge.
#[derive(Debug, Default)]
pub struct RunCounts {
    ended: [AtomicU64; 5],
    refused_by_quota: AtomicU64,
    milliseconds: AtomicU64,
}

impl RunCounts {
    /// Returns the number of runs by their status.
    pub fn ended(&self) -> [(&'static str, u64); 5] {
        let names = ["success", "error", "timeout", "cancelled", "refused"];
        std::array::from_fn(|index| (names[index], self.ended[index].load(Ordering::Relaxed)))
    }

    /// Returns the number of calls that got no place.
    pub fn refused_by_quota(&self) -> u64 {
        self.refused_by_quota.load(Ordering::Relaxed)
    }

    /// Returns the seconds of all runs.
    pub fn seconds(&self) -> f64 {
        self.milliseconds.load(Ordering::Relaxed) as f64 / 1000.0
    }

    fn count(&self, outcome: &RunOutcome) {
        let index = match outcome.status {
            Status::Success => 0,
            Status::Error => 1,
            Status::Timeout => 2,
            Status::Cancelled => 3,
            Status::Refused => 4,
            // Counted when it ends.
            Status::Running => return,
        };
        self.ended[index].fetch_add(1, Ordering::Relaxed);
        let milliseconds = u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX);
        self.milliseconds.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

/// The sessions of a user, within the user's quotas.
#[derive(Debug)]
pub struct Governed {
    sessions: Sessions,
    user: Arc<str>,
    quotas: Arc<Quotas>,
    counts: Arc<RunCounts>,
}

impl Governed {
    pub fn new(sessions: Sessions, user: Arc<str>, quotas: Arc<Quotas>, counts: Arc<RunCounts>) -> Self {
        Self { sessions, user, quotas, counts }
    }
}

/// Returns the bytes that a run printed and displayed.
fn bytes_of(outcome: &RunOutcome) -> u64 {
    let displayed: u64 =
        outcome.displays.iter().flat_map(|display| &display.forms).map(|form| form.bytes).sum();
    outcome.stdout.total_bytes.saturating_add(outcome.stderr.total_bytes).saturating_add(displayed)
}

impl Governed {
    /// Waits for a place for a run.
    async fn place(&self, request: &RunRequest, caller: &Caller) -> Result<Place, RunOutcome> {
        let place = tokio::select! {
            place = self.quotas.place(&self.user, request.timeout) => place,
            () = caller.cancel.cancelled() => {
                return Err(RunOutcome::cancelled(Failure::Code, "cancelled before it started".into()));
            }
        };
        place.map_err(|why| {
            self.counts.refused_by_quota.fetch_add(1, Ordering::Relaxed);
            tracing::info!(principal = %self.user, %why, "refused a call");
            RunOutcome::refused(why.to_string())
        })
    }
}

impl RunPython for Governed {
    async fn run(&self, mut request: RunRequest, caller: Caller) -> RunOutcome {
        let mut place = match self.place(&request, &caller).await {
            Ok(place) => place,
            Err(refused) => return refused,
        };
        request.timeout = place.limit(request.timeout);
        let outcome = self.sessions.run(request, caller).await;
        place.used(outcome.elapsed, bytes_of(&outcome));
        self.counts.count(&outcome);
        outcome
    }

    /// The run has its place until it ends, not until this returns.
    async fn start(&self, mut request: RunRequest, caller: Caller) -> RunOutcome {
        let mut place = match self.place(&request, &caller).await {
            Ok(place) => place,
            Err(refused) => return refused,
        };
        request.timeout = place.limit(request.timeout);
        let counts = Arc::clone(&self.counts);
        let ended = move |outcome: &RunOutcome| {
            place.used(outcome.elapsed, bytes_of(outcome));
            counts.count(outcome);
        };
        self.sessions.start_and_then(request, caller, ended).await
    }

    async fn look(&self, look: Look, caller: Caller) -> RunOutcome {
        self.sessions.look(look, caller).await
    }

    fn output(&self, run_id: u32, stream: OutputStream, start: u64, length: u64) -> Option<Vec<u8>> {
        self.sessions.output(run_id, stream, start, length)
    }

    fn display(&self, run_id: u32, number: usize) -> Option<Vec<(String, Vec<u8>)>> {
        self.sessions.display(run_id, number)
    }

    fn display_types(&self, run_id: u32) -> Vec<Vec<String>> {
        self.sessions.display_types(run_id)
    }

    async fn file(&self, session: &str, path: &[u8], start: u64) -> Result<FilePart, FileError> {
        self.sessions.file(session, path, start).await
    }

    fn files(&self) -> Vec<ChangedFile> {
        self.sessions.files()
    }

    fn artifacts(&self) -> &Artifacts {
        self.sessions.artifacts()
    }

    fn kept_runs(&self) -> Vec<u32> {
        self.sessions.kept_runs()
    }
}
