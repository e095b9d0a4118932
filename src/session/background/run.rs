//! One run in the background.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::bounds::Bounds;
use super::questions::Questions;
use super::record::Record;
use super::unseen::Unseen;
use crate::session::output::{PictureBudget, Rewritten};
use crate::session::{Caller, Display, Failure, ListedRun, Look, Progress, RunOutcome, RunningNow, Status};
use crate::telemetry::TraceContext;
use crate::upstream::Answers;

/// A run that has just begun is waited for this long: short ones need no look.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Progress ends a look after this, and not earlier: code may report it many times in a second.
const PROGRESS_PACE: Duration = Duration::from_secs(5);
/// How long a look waits for the end of a run that it stops.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// One run in the background.
#[derive(Debug)]
pub(in crate::session) struct BackgroundRun {
    pub(super) session: String,
    /// Set when its code begins to run.
    number: OnceLock<u32>,
    /// Says what its code waits for.
    waits_for: OnceLock<WaitsFor>,
    cancel: CancellationToken,
    questions: Arc<Questions>,
    state: Mutex<State>,
    changed: Notify,
    /// Held by the look that waits: one at a time, so that each piece of output is shown once.
    looking: tokio::sync::Mutex<()>,
}

/// Returns what the code of a run waits for.
pub(in crate::session) struct WaitsFor(pub(in crate::session) Box<dyn Fn() -> Vec<String> + Send + Sync>);

impl std::fmt::Debug for WaitsFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WaitsFor")
    }
}

#[derive(Debug)]
struct State {
    began: Instant,
    preparing: Option<String>,
    stdout: Unseen,
    stderr: Unseen,
    /// What the streams hold back of progress bars.
    stdout_bars: Rewritten,
    stderr_bars: Rewritten,
    displays: Vec<Display>,
    /// Objects with a picture that looks have shown.
    pictures_shown: usize,
    /// How many pictures a result has, and those that wait for the next one.
    most_pictures: PictureBudget,
    pictures: PictureBudget,
    progress: Option<String>,
    is_progress_new: bool,
    /// Whether a look has shown some of the output.
    is_shown_in_part: bool,
    record: Option<Record>,
    /// Whether a caller follows the run until its end, and the result for that caller.
    is_followed: bool,
    whole: Option<Box<RunOutcome>>,
    end: Option<End>,
}

/// How it ended.
#[derive(Debug)]
struct End {
    outcome: Option<Box<RunOutcome>>,
    status: Status,
    elapsed: Duration,
    at: Instant,
}

/// What a look finds.
enum Found {
    Ended(Box<RunOutcome>),
    News,
    Nothing { progress: Option<String> },
}

impl BackgroundRun {
    pub(super) fn new(session: String, caller: &Caller, bounds: Bounds) -> Self {
        let state = State {
            began: Instant::now(),
            preparing: None,
            stdout: Unseen::new(bounds.stdout),
            stderr: Unseen::new(bounds.stdout),
            stdout_bars: Rewritten::default(),
            stderr_bars: Rewritten::default(),
            displays: Vec::new(),
            pictures_shown: 0,
            most_pictures: bounds.pictures,
            pictures: PictureBudget { count: 0, bytes: 0 },
            progress: None,
            is_progress_new: false,
            is_shown_in_part: false,
            record: None,
            is_followed: caller.until_end,
            whole: None,
            end: None,
        };
        Self {
            session,
            number: OnceLock::new(),
            waits_for: OnceLock::new(),
            cancel: CancellationToken::new(),
            questions: Arc::new(Questions::of(&*caller.answers)),
            state: Mutex::new(state),
            changed: Notify::new(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// Returns who asks for the run, in place of the call that has begun it; and the other end of its progress.
    pub(in crate::session) fn caller(
        &self,
        trace: TraceContext,
        client: Option<Arc<str>>,
    ) -> (Caller, mpsc::Receiver<Progress>) {
        let (progress, events) = mpsc::channel(64);
        let answers = Arc::clone(&self.questions) as Arc<dyn Answers>;
        let caller = Caller::without_answers(progress, self.cancel.clone());
        (Caller { answers, trace, client, ..caller }, events)
    }

    /// Says that the code begins to run.
    pub(in crate::session) fn begin(&self, number: u32, record: Option<Record>, waits_for: WaitsFor) {
        let _ = self.number.set(number);
        let _ = self.waits_for.set(waits_for);
        let mut state = self.lock();
        (state.began, state.preparing, state.record) = (Instant::now(), None, record);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Takes what happens during a run; returns how it ends.
    pub(in crate::session) async fn collect(
        &self,
        work: impl Future<Output = RunOutcome>,
        mut events: mpsc::Receiver<Progress>,
    ) -> RunOutcome {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => {
                    self.take_in(event);
                    self.changed.notify_waiters();
                }
                () = self.record_is_due() => {
                    if let Some(record) = &mut self.lock().record {
                        record.write_progress();
                    }
                }
                outcome = &mut work => {
                    // Background tasks of the code may hold the other end, but all output of the run is here.
                    while let Ok(event) = events.try_recv() {
                        self.take_in(event);
                    }
                    return outcome;
                }
            }
        }
    }

    /// Returns when progress is to be recorded that came too soon after the last one.
    async fn record_is_due(&self) {
        let due = self.lock().record.as_ref().and_then(Record::progress_due);
        match due {
            Some(due) => sleep_until(due.into()).await,
            None => std::future::pending().await,
        }
    }

    fn take_in(&self, event: Progress) {
        let mut state = self.lock();
        let state = &mut *state;
        match event {
            Progress::Preparing(what) => state.preparing = Some(what),
            Progress::Running | Progress::Calling(_) => {}
            Progress::Reported(what) => state.add_progress(what),
            Progress::Output(stream, bytes) => state.add_output(stream, &bytes),
            Progress::Displayed(number, picture) => state.add_picture(self.number.get(), number, picture),
        }
    }

    /// Keeps how it ended.
    pub(in crate::session) fn end(&self, outcome: RunOutcome) {
        let mut state = self.lock();
        state.finish_lines();
        if let Some(record) = state.record.take() {
            record.end(outcome.status, outcome.error.as_deref());
        }
        let (status, elapsed) = (outcome.status, outcome.elapsed);
        state.whole = state.is_followed.then(|| Box::new(outcome.clone()));
        state.end = Some(End { outcome: Some(Box::new(outcome)), status, elapsed, at: Instant::now() });
        if !state.is_shown_in_part {
            // The result has all of it.
            state.forget_unseen();
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(in crate::session) fn number(&self) -> Option<u32> {
        self.number.get().copied()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Returns how long ago it has ended.
    pub(super) fn ended_before(&self) -> Option<Duration> {
        self.lock().end.as_ref().map(|end| end.at.elapsed())
    }

    /// Waits until the code runs, and a moment for its end.
    async fn first_look(&self, caller: &Caller) -> RunOutcome {
        let turn = self.looking.lock().await;
        loop {
            let changed = self.changed.notified();
            let has_begun = self.number().is_some() || self.has_ended();
            if has_begun {
                break;
            }
            self.forward(caller, None);
            tokio::select! {
                () = changed => {}
                waiting = self.questions.first() => self.ask(&waiting, caller).await,
                () = caller.cancel.cancelled() => {
                    self.cancel.cancel();
                    return RunOutcome::cancelled(Failure::Code, "cancelled before it started".into());
                }
            }
        }
        drop(turn);
        let run = self.number().unwrap_or_default();
        let only_the_end = Look { run, timeout: FIRST_LOOK, stop: false };
        self.look(only_the_end, caller, true).await
    }

    /// Waits for something new, at most as long as the look says, and returns what is new since the last look.
    pub(in crate::session) async fn look(
        &self,
        look: Look,
        caller: &Caller,
        only_the_end: bool,
    ) -> RunOutcome {
        // At once, also where another look waits.
        if look.stop {
            self.cancel.cancel();
        }
        let _turn = tokio::select! {
            turn = self.looking.lock() => turn,
            () = tokio::time::sleep(look.timeout) => return self.unchanged(),
            () = caller.cancel.cancelled() => return self.unchanged(),
        };
        let begun = tokio::time::Instant::now();
        let deadline = begun + if look.stop { look.timeout.max(STOP_LIMIT) } else { look.timeout };
        loop {
            let changed = self.changed.notified();
            let takes_progress = begun.elapsed() >= PROGRESS_PACE;
            match self.find(takes_progress && !only_the_end, only_the_end || look.stop) {
                Found::Ended(outcome) => return *outcome,
                Found::News => return self.running(),
                Found::Nothing { progress } => self.forward(caller, progress),
            }
            let progress_is_due = async {
                match takes_progress || only_the_end {
                    true => std::future::pending().await,
                    false => sleep_until(begun + PROGRESS_PACE).await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = progress_is_due => {}
                () = sleep_until(deadline) => return self.running(),
                waiting = self.questions.first() => match timeout(deadline.saturating_duration_since(tokio::time::Instant::now()).max(STOP_LIMIT), self.ask(&waiting, caller)).await {
                    Ok(()) => {}
                    // A client that was asked by the result of its call has no use for output.
                    Err(_) => return self.unchanged(),
                },
                // Only the look is cancelled: what it has not returned is new for the next one.
                () = caller.cancel.cancelled() => return self.unchanged(),
            }
        }
    }

    /// Asks the client of a look; the question stays the first if the look ends before.
    async fn ask(&self, waiting: &Arc<super::questions::Waiting>, caller: &Caller) {
        let answer = tokio::select! {
            answer = caller.answers.answer(waiting.question.clone()) => answer,
            () = waiting.withdrawn.cancelled() => return,
            () = caller.cancel.cancelled() => return,
        };
        self.questions.answer(waiting, answer);
    }

    /// Tells the client of a look what happens.
    fn forward(&self, caller: &Caller, progress: Option<String>) {
        let preparing = self.lock().preparing.clone();
        let event = match (preparing, progress) {
            (Some(what), _) => Progress::Preparing(what),
            (None, Some(progress)) => Progress::Reported(progress),
            (None, None) => return,
        };
        // Only the latest counts.
        let _ = caller.progress.try_send(event);
    }

    fn find(&self, takes_progress: bool, only_the_end: bool) -> Found {
        let mut state = self.lock();
        if state.end.is_some() {
            return Found::Ended(Box::new(state.ended()));
        }
        if (!only_the_end && !state.displays.is_empty()) || (takes_progress && state.is_progress_new) {
            return Found::News;
        }
        Found::Nothing { progress: state.progress.clone() }
    }

    /// Takes what is new, as a result.
    fn running(&self) -> RunOutcome {
        let now = self.now();
        let mut state = self.lock();
        if state.end.is_some() {
            return state.ended();
        }
        state.is_progress_new = false;
        let (stdout, stderr) = (state.stdout.take(true), state.stderr.take(true));
        let displays = std::mem::take(&mut state.displays);
        state.pictures_shown += displays.len();
        state.pictures = PictureBudget { count: 0, bytes: 0 };
        state.is_shown_in_part |= stdout.total_bytes + stderr.total_bytes > 0 || !displays.is_empty();
        RunOutcome { stdout, stderr, displays, ..RunOutcome::running(now) }
    }

    /// Returns the result of a look that nobody waits for: it takes nothing.
    fn unchanged(&self) -> RunOutcome {
        RunOutcome::running(self.now())
    }

    fn now(&self) -> RunningNow {
        let mut waits_for = self.waits_for.get().map_or_else(Vec::new, |waits_for| (waits_for.0)());
        if self.questions.is_waiting() {
            waits_for.push("an answer of the user".into());
        }
        let state = self.lock();
        RunningNow {
            run: self.number().unwrap_or_default(),
            session: self.session.clone(),
            elapsed: state.began.elapsed(),
            progress: state.progress.clone(),
            waits_for,
        }
    }

    /// Returns why its session takes no other call.
    pub(super) fn busy(&self) -> String {
        let session = &self.session;
        match self.number() {
            None => format!(
                "session '{session}' is busy: a background run is starting in it; use another session"
            ),
            Some(run) => {
                let what = self.now().describe();
                format!(
                    "session '{session}' is busy: {what}; hint: run_python(run={run}) waits for it, run_python(run={run}, stop=true) stops it, or use another session"
                )
            }
        }
    }

    /// Returns the run as lists show it; None before its code runs.
    pub(super) fn listed(&self) -> Option<ListedRun> {
        let run = self.number()?;
        let state = self.lock();
        let (status, elapsed) = match &state.end {
            None => ("running", state.began.elapsed()),
            Some(end) => (end.status.name(), end.elapsed),
        };
        Some(ListedRun {
            run,
            session: self.session.clone(),
            status,
            elapsed,
            progress: state.progress.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

mod follow;
mod shown;
#[cfg(test)]
mod tests;
