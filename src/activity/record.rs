//! All runs of a workspace: those of now, and the last that have ended.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use codebridge_runtimes::random_hex;
use tokio::sync::watch;

use super::changes::Changed;
use super::questions::Questions;
use super::rows::{AnswerError, GivenAnswer, OutputPart, QuestionRow, RunDetail, RunRow, StreamName};
use super::run::{NewRun, RunActivity};
use crate::audit::Audit;

/// Runs that have ended, and bytes of their output.
const MOST_ENDED: usize = 200;
const MOST_KEPT: usize = 8 << 20;

/// What happens in a workspace.
#[derive(Debug, Clone)]
pub struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    audit: Audit,
    /// Names this bridge, as the audit log does where there is one.
    bridge: String,
    /// Oldest first.
    runs: Mutex<VecDeque<Arc<RunActivity>>>,
    next: AtomicU64,
    /// Bytes of output of runs that have ended.
    kept: AtomicUsize,
    questions: Arc<Questions>,
    attending: AtomicUsize,
    changed: Changed,
}

/// Somebody who answers questions, as long as it lives.
#[derive(Debug)]
pub struct Attendance(Activity);

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.0.attending.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Activity {
    /// Returns that of a bridge, whose answers go into the audit log.
    pub fn new(audit: Audit) -> Self {
        let changed = Changed::default();
        let bridge = audit.bridge().map_or_else(random_hex::<4>, str::to_owned);
        Self(Arc::new(Inner {
            audit,
            bridge,
            runs: Mutex::default(),
            next: AtomicU64::new(1),
            kept: AtomicUsize::new(0),
            questions: Arc::new(Questions::new(changed.clone())),
            attending: AtomicUsize::new(0),
            changed,
        }))
    }

    /// Returns BRIDGE.
    pub fn bridge(&self) -> &str {
        &self.0.bridge
    }

    /// Returns BRIDGE-NUMBER.
    pub fn run_name(&self, number: u32) -> String {
        format!("{}-{number}", self.0.bridge)
    }

    /// Adds a run.
    pub(super) fn add(&self, run: NewRun<'_>) -> Arc<RunActivity> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let first_name = format!("{}-starting-{number}", self.0.bridge);
        let run = Arc::new(RunActivity::new(first_name, run));
        self.runs_mut().push_back(Arc::clone(&run));
        self.changed();
        run
    }

    fn runs_mut(&self) -> MutexGuard<'_, VecDeque<Arc<RunActivity>>> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn changed(&self) {
        self.0.changed.note();
    }

    pub(super) fn audit(&self) -> &Audit {
        &self.0.audit
    }

    pub(super) fn asked(&self) -> &Arc<Questions> {
        &self.0.questions
    }

    /// Counts a run that has ended, and forgets the oldest.
    pub(super) fn has_ended(&self, run: &RunActivity) {
        let mut runs = self.runs_mut();
        let mut kept = self.0.kept.load(Ordering::Relaxed) + run.kept();
        if runs.len() > MOST_ENDED {
            let ended = runs.iter().filter(|run| run.has_ended()).count();
            if ended > MOST_ENDED
                && let Some(oldest) = runs.iter().position(|run| run.has_ended())
                && let Some(oldest) = runs.remove(oldest)
            {
                kept = kept.saturating_sub(oldest.forget_output());
            }
        }
        for oldest in runs.iter().filter(|run| run.has_ended()) {
            if kept <= MOST_KEPT {
                break;
            }
            kept = kept.saturating_sub(oldest.forget_output());
        }
        self.0.kept.store(kept, Ordering::Relaxed);
    }

    /// Waits for the first run.
    pub async fn first_run(&self) {
        // The sender lives as long as this.
        let _ = self.0.changed.subscribe().wait_for(|changes| *changes > 0).await;
    }

    /// Returns what resolves when anything has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        let mut changes = self.0.changed.subscribe();
        changes.mark_changed();
        changes
    }

    fn find(&self, name: &str) -> Option<Arc<RunActivity>> {
        self.runs_mut().iter().rev().find(|run| run.is_called(name)).cloned()
    }

    /// Returns all runs, newest first.
    pub fn runs(&self) -> Vec<RunRow> {
        let runs: Vec<_> = self.runs_mut().iter().rev().cloned().collect();
        runs.iter().map(|run| run.row(self.0.questions.of(run))).collect()
    }

    pub fn run(&self, name: &str) -> Option<RunDetail> {
        let run = self.find(name)?;
        Some(run.detail(self.0.questions.of(&run)))
    }

    /// Returns where a file is that a run made or changed. Numbers start at 1.
    pub fn file_uri(&self, name: &str, number: usize) -> Option<String> {
        self.find(name)?.file_uri(number)
    }

    /// Returns the number of a run whose code has begun to run.
    pub fn number_of(&self, name: &str) -> Option<u32> {
        self.find(name)?.number()
    }

    /// Returns output of a run from an offset on.
    pub fn output(&self, name: &str, stream: StreamName, from: u64) -> Option<OutputPart> {
        Some(self.find(name)?.output(stream, from))
    }

    /// Interrupts a run; false if there is none of that name under way.
    pub fn stop(&self, name: &str) -> bool {
        self.find(name).is_some_and(|run| run.stop())
    }

    /// Returns the questions that wait, oldest first.
    pub fn questions(&self) -> Vec<QuestionRow> {
        self.0.questions.rows(&self.0.bridge)
    }

    /// Answers a question in the name of a person.
    ///
    /// # Errors
    /// It does not wait any more.
    pub fn answer(&self, id: &str, answer: GivenAnswer, by: &str) -> Result<(), AnswerError> {
        self.0.questions.answer(&self.0.bridge, id, answer, by)
    }

    /// Says that somebody is there who answers questions: they are asked here too, whatever the client of a run can do.
    pub fn attend(&self) -> Attendance {
        self.0.attending.fetch_add(1, Ordering::Relaxed);
        Attendance(self.clone())
    }

    /// Whether somebody is there who answers questions.
    pub fn is_attended(&self) -> bool {
        self.0.attending.load(Ordering::Relaxed) > 0
    }
}
