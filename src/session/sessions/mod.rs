//! All sessions of a workspace: calls, looks and files find theirs here. How interpreters start and end is in `starts`, what people see and end is in `overview`.

mod examples;
mod overview;
mod starts;
mod tried;

use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::tried::Examples;
use super::answers::{Answerer, Grant, GrantError};
use super::background::{BackgroundRun, BackgroundRuns, Bounds, Records, WaitsFor};
use super::call::Wording;
use super::capacity::Capacity;
use super::interpreter::{Budgets, Cell, FinishedRun};
use super::launch::{Call, Launcher};
use super::listed::Listed;
use super::output::{Outputs, PictureBudget, UnderWay};
use super::recording::RunRecord;
use super::reporting;
use super::slots::{SlotState, Slots};
use super::{
    Caller, ChangedFile, Failure, FileError, FilePart, Look, OutputStream, Progress, RunOutcome, RunPython,
    RunRequest,
};
use crate::activity::{Activity, RunReporter};
use crate::artifacts::Artifacts;
use crate::audit::{Audit, RunStart};
use crate::settings::{Settings, Share};
use crate::telemetry::Telemetry;
use crate::upstream::Upstream;

/// Bytes of standard error that are shown beside a traceback.
const STDERR_BUDGET: usize = 8_000;
/// Bytes of all pictures in a result.
const PICTURES_BUDGET: u64 = 4 << 20;

/// After this in the queue of its session, a call looks its servers up again.
const LONG_QUEUE: Duration = Duration::from_secs(1);

/// The error of a call that was cancelled while it waited for its session.
const CANCELLED_EARLY: &str = "cancelled before it started";

#[derive(Debug, Clone)]
pub struct Sessions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    launcher: Arc<Launcher>,
    upstream: Upstream,
    telemetry: Telemetry,
    audit: Audit,
    answerer: Arc<Answerer>,
    outputs: Arc<StdMutex<Outputs>>,
    slots: Slots,
    /// What all of them have in common of large questions and of threads.
    common: Arc<Capacity>,
    /// Live sessions; the files of one that runs code can be read.
    listed: Listed,
    artifacts: Artifacts,
    /// One permit for each live interpreter.
    capacity: Arc<Semaphore>,
    /// Notified whenever a session becomes idle.
    became_idle: Notify,
    /// Whether the process ends with its first run.
    one_shot: bool,
    shares: Vec<Share>,
    persist: bool,
    idle_limit: Option<Duration>,
    budgets: Budgets,
    /// How many interpreters there may be.
    most: usize,
    /// Whether processor time between runs is counted, and what was not reported of it, in microseconds.
    counts_idle: bool,
    idle_time: AtomicU64,
    next_run: AtomicU32,
    background: Arc<BackgroundRuns>,
    /// What runs in the background have printed.
    records: Records,
    examples: Examples,
    activity: Activity,
    closing: CancellationToken,
    /// Removals under way.
    tasks: TaskTracker,
}

/// What follows one run beside its caller.
struct OfRun<'a> {
    background: Option<&'a BackgroundRun>,
    record: &'a mut RunRecord,
    reporter: &'a RunReporter,
    /// What spare sandboxes wait for: the end of the run, in the background its beginning.
    call: Option<Call>,
}

impl Sessions {
    /// Returns sessions whose code has access to the servers of `upstream`. Nothing starts before the first call.
    pub fn new(settings: &Settings, launcher: Arc<Launcher>, upstream: Upstream, audit: Audit) -> Self {
        let outputs = Arc::<StdMutex<Outputs>>::default();
        let common = Arc::new(Capacity::of_user(launcher.workers()));
        let background = Arc::<BackgroundRuns>::default();
        let telemetry = launcher.telemetry().clone();
        let activity = Activity::new(audit.clone());
        Self(Arc::new(Inner {
            launcher,
            upstream,
            telemetry,
            audit,
            answerer: Arc::new(Answerer::new(
                Arc::clone(&outputs),
                settings.state_dir.value.clone(),
                Arc::clone(&common),
                Arc::clone(&background),
            )),
            outputs,
            slots: Slots::default(),
            common,
            listed: Listed::default(),
            artifacts: Artifacts::at(&settings.state_dir.value, settings.artifacts_limit.value),
            capacity: Arc::new(Semaphore::new(settings.max_sessions.value.max(1))),
            became_idle: Notify::new(),
            one_shot: settings.one_shot,
            shares: settings.share.value.clone(),
            persist: settings.session_persist.value,
            idle_limit: settings.runtime_idle_timeout.value,
            budgets: Budgets {
                stdout: settings.output_limit.value,
                stderr: STDERR_BUDGET,
                pictures: PictureBudget { count: settings.max_images.value, bytes: PICTURES_BUDGET },
                streams_pictures: settings.one_shot,
            },
            most: settings.max_sessions.value.max(1),
            counts_idle: settings.user_seconds.value.is_some(),
            idle_time: AtomicU64::new(0),
            next_run: AtomicU32::new(1),
            background,
            records: Records::at(&settings.state_dir.value),
            examples: Examples::new(*settings.timeout),
            activity,
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Sets the number of the next run.
    pub fn set_next_run(&self, number: u32) {
        self.0.next_run.store(number, Ordering::Relaxed);
    }

    /// Ends every session and waits until their sandboxes are removed. No session starts afterwards.
    pub async fn close(&self) {
        self.0.closing.cancel();
        self.0.end_all().await;
    }

    /// Whether a run in the background has not ended, or has ended not longer ago than this.
    pub fn has_run_within(&self, time: Duration) -> bool {
        self.0.background.has_run_within(time)
    }

    /// As [`RunPython::start`]; `ended` gets the outcome of the run.
    pub async fn start_and_then(
        &self,
        request: RunRequest,
        caller: Caller,
        ended: impl FnOnce(&RunOutcome) + Send + 'static,
    ) -> RunOutcome {
        let (session, is_alone) = (&request.session, self.0.ends_with_run(&request.session));
        let Budgets { stdout, pictures, .. } = self.0.budgets;
        let bounds = Bounds { stdout, pictures, runs: self.0.most };
        let added = self.0.background.add(session, is_alone, &caller, bounds);
        let run = match added {
            Ok(run) => run,
            Err(busy) => return RunOutcome::refused(busy),
        };
        let (sessions, running) = (self.clone(), Arc::clone(&run));
        let (trace, client, authority) =
            (caller.trace.clone(), caller.client.clone(), caller.authority.clone());
        // It ends when the sessions are closed, and is waited for.
        self.0.tasks.spawn(async move {
            let (of_run, events) = running.caller(trace, client);
            let of_run = Caller { authority, ..of_run };
            let work = sessions.run_as(request, of_run, Some(&running));
            let outcome = running.collect(work, events).await;
            ended(&outcome);
            running.end(outcome);
        });
        let outcome = run.wait_for(&caller).await;
        if run.number().is_none() {
            self.0.background.remove(&run);
        }
        outcome
    }

    /// Runs code for a caller, or in the background.
    async fn run_as(
        &self,
        request: RunRequest,
        caller: Caller,
        background: Option<&BackgroundRun>,
    ) -> RunOutcome {
        let attended = caller.unattended.is_none().then(|| self.0.examples.attend());
        let authority = caller.authority.clone();
        let span = self.0.telemetry.begin_run(&request.session, &caller.trace);
        let cancel = caller.cancel.child_token();
        let mut caller = Caller { trace: span.context(), cancel: cancel.clone(), ..caller };
        let mut record = RunRecord::new(&self.0.audit, self.0.upstream.principal(), &request, &caller);
        let (activity, facts) = (&self.0.activity, record.early_facts());
        let running = reporting::begin(activity, &request, &mut caller, background.is_some(), facts);
        let of_run = OfRun { background, record: &mut record, reporter: running.reporter(), call: None };
        let mut outcome = {
            let mut run = pin!(self.run_in_turn(request, &caller, of_run));
            tokio::select! {
                outcome = &mut run => outcome,
                () = caller.authority.ended() => {
                    cancel.cancel();
                    run.await
                }
            }
        };
        record.complete(&mut outcome);
        record.ended(&mut outcome, &self.0.upstream).await;
        running.ended(reporting::end(&outcome));
        span.end(reporting::measured(&outcome));
        if attended.is_some() {
            self.0.examples.say(&mut outcome);
            drop(attended);
            self.test_functions(&authority);
        }
        outcome
    }

    /// Runs code when its session is free.
    async fn run_in_turn(&self, request: RunRequest, caller: &Caller, mut of_run: OfRun<'_>) -> RunOutcome {
        let inner = &self.0;
        let throw_away = inner.ends_with_run(&request.session);
        let slot = if throw_away { Arc::default() } else { inner.slots.get_or_add(&request.session) };
        // Side by side: a call keeps its place in the queue of its session while its servers are looked up, and a mistake in
        // their names is reported before its turn has come.
        let place = async { Ok(slot.lock().await) };
        let grant = || Grant::of(&request.servers, &inner.upstream, &*caller.answers);
        let called = Instant::now();
        let granted = async {
            let (place, granted) = tokio::try_join!(place, grant())?;
            // Definitions and their approval may have changed in a long queue.
            let granted = if called.elapsed() > LONG_QUEUE { grant().await? } else { granted };
            Ok((place, granted))
        };
        let ready = tokio::select! {
            ready = granted => {
                ready.map_err(|error: GrantError| RunOutcome::refused(error.with_hint()))
            },
            () = caller.cancel.cancelled() => Err(RunOutcome::cancelled(Failure::Code, CANCELLED_EARLY.into())),
        };
        let (mut state, grant) = match ready {
            Ok(ready) => ready,
            Err(outcome) => {
                inner.slots.forget_names();
                // It may have had the place of an idle session, which another one waits for.
                inner.became_idle.notify_waiters();
                return outcome;
            }
        };
        state.stop_timer();
        of_run.call = Some(inner.launcher.begin_call());
        let outcome = tokio::select! {
            outcome = inner.run_in(&mut state, throw_away, request, grant, caller, &mut of_run) => outcome,
            () = inner.closing.cancelled() => {
                RunOutcome::cancelled(Failure::Sandbox, "the bridge is shutting down".into())
            },
        };
        state.last_used = Some(Instant::now());
        if throw_away || inner.closing.is_cancelled() {
            inner.end(state.live.take());
        } else if let Some(live) = &mut state.live {
            live.idle.end_run();
            inner.end_with(&caller.authority, &slot, live);
            let timer = inner.start_idle_timer(&slot);
            state.set_timer(timer);
        }
        drop(state);
        // The end of a run in the background counts as one of a call.
        drop(of_run.call.take().unwrap_or_else(|| inner.launcher.begin_call()));
        inner.slots.forget_names();
        inner.became_idle.notify_waiters();
        outcome
    }
}

impl RunPython for Sessions {
    async fn run(&self, request: RunRequest, caller: Caller) -> RunOutcome {
        let is_alone = self.0.ends_with_run(&request.session);
        match self.0.background.busy(&request.session, is_alone, self.0.most) {
            Some(busy) => RunOutcome::refused(busy),
            None => self.run_as(request, caller, None).await,
        }
    }

    async fn start(&self, request: RunRequest, caller: Caller) -> RunOutcome {
        self.start_and_then(request, caller, |_| ()).await
    }

    async fn look(&self, look: Look, caller: Caller) -> RunOutcome {
        match self.0.background.get(look.run) {
            Ok(run) => run.look(look, &caller, false).await,
            Err(unknown) => RunOutcome::refused(unknown),
        }
    }

    fn output(&self, run_id: u32, stream: OutputStream, start: u64, length: u64) -> Option<Vec<u8>> {
        let kept = lock(&self.0.outputs).get(run_id, stream)?;
        Some(kept.read(start, length))
    }

    fn display(&self, run_id: u32, number: usize) -> Option<Vec<(String, Vec<u8>)>> {
        let kept = lock(&self.0.outputs).displays(run_id)?;
        kept.read(number)
    }

    fn display_types(&self, run_id: u32) -> Vec<Vec<String>> {
        lock(&self.0.outputs).displays(run_id).map(|kept| kept.types()).unwrap_or_default()
    }

    fn kept_runs(&self) -> Vec<u32> {
        lock(&self.0.outputs).runs()
    }

    async fn file(&self, session: &str, path: &[u8], start: u64) -> Result<FilePart, FileError> {
        let files = self.0.listed.files_of(session);
        let files = files.ok_or_else(|| FileError::NoSession(session.to_owned()))?;
        let reading = files.read(path, start);
        let slot = self.0.slots.get(session);
        // The answer may be behind output of background code, which only runs read.
        let mut idle = slot.as_ref().and_then(|slot| slot.try_lock().ok());
        match idle.as_mut().and_then(|state| state.live.as_mut()) {
            Some(live) => {
                let part = tokio::select! {
                    part = reading => part,
                    () = live.interpreter.attend() => Err(FileError::Ended),
                };
                drop(idle);
                self.0.became_idle.notify_waiters();
                part
            }
            None => {
                drop(idle);
                reading.await
            }
        }
    }

    fn files(&self) -> Vec<ChangedFile> {
        self.0.listed.changed_files()
    }

    fn artifacts(&self) -> &Artifacts {
        &self.0.artifacts
    }
}

impl Inner {
    /// Whether the interpreter of a session ends with its run.
    fn ends_with_run(&self, session: &str) -> bool {
        !self.persist || session == RunRequest::THROW_AWAY
    }

    fn add_idle_time(&self, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.idle_time.fetch_add(microseconds, Ordering::Relaxed);
    }

    /// Runs code in a session whose lock is held.
    async fn run_in(
        self: &Arc<Self>,
        state: &mut SlotState,
        throw_away: bool,
        request: RunRequest,
        grant: Grant,
        caller: &Caller,
        OfRun { background, record, reporter, call }: &mut OfRun<'_>,
    ) -> RunOutcome {
        let unused = state.last_used.map(|used| used.elapsed()).unwrap_or_default();
        if let Some(live) = &mut state.live {
            self.add_idle_time(live.idle.begin_run());
            if let Some(loss) = live.interpreter.lost_while_idle(unused).await {
                self.end(state.take(format!("the previous one ended while it was idle ({loss})")));
            }
        }
        if let Some(live) = &state.live
            && let Some(why) = self.lost_share(&live.interpreter, &request.session, &record.early_facts())
        {
            self.end(state.take(why));
        }
        let new_session = state.live.is_none();
        let (live, mut notices) = match state.live.take() {
            Some(live) => (live, Vec::new()),
            None => {
                let starting = reporting::while_starting(caller, reporter);
                match self.start_for(&starting, &request.session, &record.early_facts()).await {
                    Ok(started) => started,
                    Err(outcome) => return *outcome,
                }
            }
        };
        let live = state.live.insert(live);
        let name = (!throw_away).then(|| request.session.clone());
        if let Some(name) = &name {
            self.listed.show(name, &live.interpreter);
        }
        if let Some(why) = state.lost.take() {
            notices.push(format!("session '{}' is new: {why}, and its variables are gone", request.session));
        }
        let id = self.next_run.fetch_add(1, Ordering::Relaxed);
        let facts = record.facts(id, live.interpreter.made_of());
        let start = RunStart {
            facts: Arc::clone(&facts),
            servers: grant.names(),
            new_session,
            timeout_seconds: request.timeout.as_secs_f64(),
        };
        if let Err(error) = record.starts(start, &request.code, &self.upstream).await
            && let Some(refusal) = record.refusal(&error)
        {
            return refusal;
        }
        record.begins(id);
        reporter.begins(id, &facts);
        if let Some(background) = background {
            let waits_for = live.interpreter.waits_for();
            let name = self.activity.run_name(id);
            background.begin(id, self.records.begin(&name, &request.session), WaitsFor(waits_for));
            *call = None;
        }
        // The receiver may be closed.
        let _ = caller.progress.send(Progress::Running).await;
        let wording = Wording::of(&request, throw_away, self.one_shot);
        let RunRequest { code, timeout, session, .. } = request;
        let outputs = Arc::clone(&self.outputs);
        let streams_pictures = self.budgets.streams_pictures || background.is_some();
        let budgets = Budgets { streams_pictures, ..self.budgets };
        let reporter = RunReporter::clone(reporter);
        let _under_way = UnderWay::new(Arc::clone(&outputs), id);
        let cell =
            Cell { id, code, facts, session: name, grant, timeout, budgets, outputs, wording, reporter };
        let FinishedRun { mut outcome, loss, kept, out_of_memory } = live.interpreter.run(cell, caller).await;
        lock(&self.outputs).keep(id, kept);
        if out_of_memory {
            self.telemetry.out_of_memory();
        }
        outcome.notices.splice(0..0, notices);
        if let Some(loss) = loss {
            outcome.notices.extend(wording.session_ended(&session));
            self.end(state.take(format!("the previous one was lost ({loss})")));
        }
        outcome
    }
}

fn lock<T>(mutex: &StdMutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
