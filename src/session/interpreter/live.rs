//! One live interpreter: its sandbox, the frames to and from it, and one run at a time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use codebridge_runtimes::{End, Gone, Meter, Sandbox};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::files::{Files, Requests};
use super::guest::{Guest, GuestParts};
use super::loss::Loss;
use super::pipes::{Receivers, read_frames, write_frames};
use super::run::{Cell, Early, FinishedRun, Interrupt, RunEnd, RunInProgress, RunWords};
use super::silence::{QUESTION_PAUSE, Traffic, Watched, nobody_answers, somebody_answers};
use crate::artifacts::Origin;
use crate::session::answers::{Answerer, NewRun, ServerAccess, answer_questions};
use crate::session::call::Wording;
use crate::session::frames::{FrameError, FromGuest, ToGuest};
use crate::session::recording::MadeOf;
use crate::session::{Caller, Progress};

/// Frames that wait for a reader; output frames hold up to 256 KiB each.
const WAITING_FRAMES: usize = 8;
/// Answers that wait for the guest to read them; each may hold megabytes.
const WAITING_ANSWERS: usize = 1;
/// Interrupted code is interrupted again after this, in case a child process took the first interrupt.
const SECOND_INTERRUPT: Duration = Duration::from_secs(1);
/// How often the clock of a run that stands still is looked at.
const PAUSED_PACE: Duration = Duration::from_millis(50);
/// Interrupted code that has not ended after this loses its session.
const INTERRUPT_GRACE: Duration = Duration::from_secs(2);
/// The time without a run after which it is asked whether it is there, before the next one.
const LONG_SILENCE: Duration = Duration::from_secs(10);

/// What an interpreter gets of its session.
pub(in crate::session) struct Startup {
    /// Names and sources.
    pub(in crate::session) saved_tools: Vec<(String, String)>,
    pub(in crate::session) answerer: Arc<Answerer>,
    pub(in crate::session) access: Arc<ServerAccess>,
    /// In bytes, for messages.
    pub(in crate::session) memory_limit: u64,
    pub(in crate::session) made_of: MadeOf,
}

/// A live interpreter. [`Interpreter::end`] must be called; dropping it leaves its sandbox to the reaper.
#[derive(Debug)]
pub(in crate::session) struct Interpreter {
    sandbox: Sandbox,
    frames: mpsc::UnboundedSender<ToGuest>,
    writer: AbortHandle,
    traffic: Arc<Traffic>,
    incoming: mpsc::Receiver<Result<FromGuest, FrameError>>,
    /// The frames that came between runs, for the next one.
    early: Early,
    /// Why it is gone, if that was found out between runs.
    gone: Option<Loss>,
    /// The files of its workspace.
    files: Arc<Files>,
    /// In bytes, for messages.
    memory_limit: u64,
    access: Arc<ServerAccess>,
    /// How many processes were killed because memory ran out, as far as the last run knows.
    killed: u32,
    made_of: MadeOf,
}

impl Interpreter {
    /// Makes an interpreter of a guest: from here on it belongs to a session.
    pub(in crate::session) fn of(guest: Guest, startup: Startup) -> Self {
        let Startup { saved_tools, answerer, access, memory_limit, made_of } = startup;
        let GuestParts { sandbox, stdin, reader, traffic, early } = guest.into_parts();
        let stdin = Watched::new(stdin, Arc::clone(&traffic));
        let (frames, outgoing) = mpsc::unbounded_channel();
        let (answers, answered) = mpsc::channel(WAITING_ANSWERS);
        let (sender, incoming) = mpsc::channel(WAITING_FRAMES);
        let writer = tokio::spawn(write_frames(stdin, outgoing, answered)).abort_handle();
        let (question, questions) = mpsc::channel(WAITING_FRAMES);
        let requests = Arc::<Requests>::default();
        let files = Arc::new(Files::new(frames.clone(), Arc::clone(&requests)));
        let transfers = Arc::clone(access.transfers());
        let receivers = Receivers { questions: question, files: requests, transfers };
        let capacity = Arc::clone(answerer.capacity());
        tokio::spawn(answer_questions(questions, answerer, Arc::clone(&access), answers));
        tokio::spawn(read_frames(reader, sender, receivers, capacity));
        for (name, source) in saved_tools {
            let _ = frames.send(ToGuest::SavedTool(name, source));
        }
        Self {
            sandbox,
            frames,
            writer,
            traffic,
            incoming,
            early,
            gone: None,
            files,
            memory_limit,
            access,
            killed: 0,
            made_of,
        }
    }

    /// Returns what says, at any time, what the code waits for.
    pub(in crate::session) fn waits_for(&self) -> Box<dyn Fn() -> Vec<String> + Send + Sync> {
        let access = Arc::clone(&self.access);
        Box::new(move || access.under_way())
    }

    /// Returns how the processor time and the memory of its sandbox are read, where they can be.
    pub(in crate::session) fn meter(&self) -> impl Future<Output = Option<Meter>> + Send + 'static {
        self.sandbox.meter()
    }

    /// Whether its sandbox has a shared folder, named by its path there.
    pub(in crate::session) fn has_share(&self, target: &str) -> bool {
        self.access.has_share(target)
    }

    /// Returns what its sandbox is made of.
    pub(in crate::session) fn made_of(&self) -> &MadeOf {
        &self.made_of
    }

    pub(in crate::session) fn files(&self) -> &Arc<Files> {
        &self.files
    }

    /// Takes the frames that came since the last run, which was `idle` ago; returns why the interpreter is gone, if it is.
    pub(in crate::session) async fn lost_while_idle(&mut self, idle: Duration) -> Option<String> {
        let known = self.gone.take().or_else(|| self.loss_in_frames());
        let loss = match known {
            Some(loss @ Loss::Vanished(_)) => self.sandbox.why_gone(None).await.map_or(loss, Loss::Explained),
            Some(loss) => loss,
            None if idle < LONG_SILENCE || self.is_there().await => return None,
            None => Loss::Explained(self.sandbox.why_silent().await),
        };
        let loss = self.explain_loss(loss);
        let reason = loss.describe(self.sandbox.held(), self.memory_limit);
        Some(loss.hint().map_or(reason.clone(), |hint| format!("{reason}; hint: {hint}")))
    }

    fn loss_in_frames(&mut self) -> Option<Loss> {
        loop {
            let frame = match self.incoming.try_recv() {
                Ok(frame) => Some(frame),
                Err(mpsc::error::TryRecvError::Disconnected) => None,
                Err(mpsc::error::TryRecvError::Empty) => return None,
            };
            if let Some(loss) = self.take_between_runs(frame) {
                return Some(loss);
            }
        }
    }

    /// Whether it answers; asked only where the end of its connection is not always noticed.
    async fn is_there(&self) -> bool {
        let ask = || somebody_answers(Arc::clone(&self.traffic), self.frames.clone(), QUESTION_PAUSE);
        !self.sandbox.can_fall_silent() || ask().await
    }

    /// Takes the frames that come between runs, for ever: what waits behind them would wait for the next run.
    pub(in crate::session) async fn attend(&mut self) {
        while self.gone.is_none() {
            let frame = self.incoming.recv().await;
            self.gone = self.take_between_runs(frame);
        }
        std::future::pending().await
    }

    fn take_between_runs(&mut self, frame: Option<Result<FromGuest, FrameError>>) -> Option<Loss> {
        match frame {
            Some(Ok(FromGuest::End(end))) => Some(Loss::Ended(end)),
            Some(Ok(FromGuest::Done(id, ..))) => {
                Some(Loss::Forged(format!("it reported the end of run {id}, which was not running")))
            }
            Some(Ok(frame)) => {
                self.early.take(frame);
                None
            }
            Some(Err(FrameError::Io(error))) => Some(Loss::Vanished(error.to_string())),
            Some(Err(error)) => Some(Loss::Forged(error.to_string())),
            None => Some(Loss::Vanished("the sandbox went away".into())),
        }
    }

    /// Returns once the sandbox has not answered for long; never where the end of its connection is always noticed.
    fn unanswered(&self) -> impl Future<Output = ()> + Send + 'static {
        let (traffic, frames) = (Arc::clone(&self.traffic), self.frames.clone());
        let is_asked = self.sandbox.can_fall_silent();
        async move {
            match is_asked {
                true => nobody_answers(traffic, frames, QUESTION_PAUSE).await,
                false => std::future::pending().await,
            }
        }
    }

    /// Ends the sandbox and verifies that it is removed.
    pub(in crate::session) async fn end(self) -> Result<(), codebridge_runtimes::ReclaimError> {
        // The guest exits at the end of its input, which a writer that waits for the guest would keep open.
        self.writer.abort();
        drop(self.incoming);
        self.sandbox.end().await
    }

    /// Runs code. The interpreter can run more unless the result says that it is lost.
    pub(in crate::session) async fn run(&mut self, cell: Cell, caller: &Caller) -> FinishedRun {
        let Caller { progress, cancel, .. } = caller;
        let Cell { id, code, facts, session, grant, timeout, budgets, outputs, wording, reporter } = cell;
        let words = RunWords { wording, held: self.sandbox.held(), memory: self.memory_limit };
        self.sandbox.set_busy(true);
        let started = Instant::now();
        let early = std::mem::take(&mut self.early);
        // What background code printed since the last run is passed on like all output.
        let mut unsent = early.output();
        let mut run = RunInProgress::new(early, budgets, &outputs, reporter.clone());
        let _ = self.frames.send(ToGuest::Context(grant.context()));
        if let Some(description) = caller.script.as_ref().map(|script| script.describe()) {
            let _ = self.frames.send(ToGuest::Script(description));
        }
        let access = Arc::clone(&self.access);
        access.transfers().begin_run(Origin { session: session.clone(), run: id });
        let new = NewRun { id, session: session.as_deref(), code: &code, facts, grant, timeout, reporter };
        let calls = access.begin(new, caller);
        let _ = self.frames.send(ToGuest::Run(id, code));
        let mut interrupt = None;
        let mut deadline = started + timeout;
        let (mut interrupts, mut heard) = (0, 0);
        let mut waiting: Option<Progress> = unsent.pop_front();
        let mut connection_lost = pin!(self.sandbox.connection_lost());
        let mut unanswered = pin!(self.unanswered());
        let end = loop {
            tokio::select! {
                biased;
                slot = progress.reserve(), if waiting.is_some() => {
                    // The receiver may be closed; the output is captured either way.
                    if let (Ok(slot), Some(output)) = (slot, waiting.take()) {
                        slot.send(output);
                        waiting = unsent.pop_front();
                    }
                }
                event = self.incoming.recv(), if waiting.is_none() => {
                    match run.take(id, event, &mut waiting) {
                        Some(RunEnd::Lost(Loss::Vanished(text))) => break self.vanished(text).await,
                        Some(end) => break end,
                        None => {}
                    }
                    if progress.is_closed() {
                        waiting = None;
                    }
                }
                // What came from the sandbox is read first.
                reason = &mut connection_lost, if waiting.is_none() => break self.vanished(reason).await,
                () = &mut unanswered, if waiting.is_none() => {
                    break RunEnd::Lost(Loss::Explained(self.sandbox.why_silent().await));
                }
                () = cancel.cancelled(), if interrupt.is_none() => {
                    interrupt = Some(Interrupt::Cancel);
                    deadline = Instant::now();
                }
                () = sleep_until(deadline) => {
                    let allowed = timeout + self.access.paused();
                    if interrupt.is_none() && started + allowed > Instant::now() {
                        // Packages were or are being installed. It may take long, so it is not looked at all the time.
                        deadline = (started + allowed).max(Instant::now() + PAUSED_PACE);
                        continue;
                    }
                    interrupt.get_or_insert_with(|| Interrupt::Timeout { limit: timeout, waited_for: self.access.under_way() });
                    match interrupts {
                        0 => deadline = Instant::now() + SECOND_INTERRUPT,
                        1 => deadline = Instant::now() + (INTERRUPT_GRACE - SECOND_INTERRUPT),
                        _ => break self.stubborn(heard).await,
                    }
                    if interrupts == 0 {
                        heard = self.traffic.heard();
                    }
                    interrupts += 1;
                    let _ = self.frames.send(ToGuest::Interrupt(id));
                    if self.sandbox.can_fall_silent() {
                        let _ = self.frames.send(ToGuest::Ping);
                    }
                }
            }
        };
        drop(calls);
        self.sandbox.set_busy(false);
        let killed = self.killed;
        let end = self.explain_memory(end, wording, &mut run.notices);
        for output in waiting.into_iter().chain(unsent) {
            let _ = progress.send(output).await;
        }
        let mut finished = run.finish(id, end, interrupt, started.elapsed(), &words);
        finished.out_of_memory |= self.killed != killed;
        finished.outcome.artifacts = access.transfers().take_saved();
        if let Some(session) = session {
            let changed = std::mem::take(&mut finished.outcome.files).in_session(&session);
            self.files.add(&changed);
            finished.outcome.files = changed;
        }
        finished
    }

    /// Says that memory ran out, if it did during the run: as the reason of a loss, else as a notice.
    fn explain_memory(&mut self, end: RunEnd, wording: Wording, notices: &mut Vec<String>) -> RunEnd {
        let remedy = wording.raise_memory(self.memory_limit);
        match end {
            RunEnd::Lost(loss) => return RunEnd::Lost(self.explain_loss(loss)),
            _ if self.ran_out_of_memory() => {
                let text = "out of memory: the largest process of the sandbox was killed";
                notices.push(format!("{text}; {remedy}"));
            }
            // As Python has it where an rlimit refuses memory.
            RunEnd::Done { ref error, .. } if error.starts_with("MemoryError") => {
                notices.push(format!("the memory limit is {} MiB; {remedy}", self.memory_limit >> 20));
            }
            RunEnd::Done { .. } => {}
        }
        end
    }

    /// Returns the same loss with its reason, where the bridge itself ended something.
    fn explain_loss(&mut self, loss: Loss) -> Loss {
        match (self.sandbox.ended_because(), self.ran_out_of_memory()) {
            (Some(reason), _) => Loss::Vanished(reason),
            (None, true) => loss.out_of_memory(),
            (None, false) => loss,
        }
    }

    /// Whether processes were killed because memory ran out since the last call of this, where the bridge itself kills them.
    fn ran_out_of_memory(&mut self) -> bool {
        let killed = self.sandbox.killed_for_memory();
        std::mem::replace(&mut self.killed, killed) != killed
    }

    /// Returns how a run ends whose code did not follow an interrupt. The interrupt may not have come there: nothing was `heard`
    /// since, although process 1 was asked with it.
    async fn stubborn(&self, heard: u64) -> RunEnd {
        let is_silent = self.sandbox.can_fall_silent() && self.traffic.heard() == heard;
        RunEnd::Lost(match is_silent {
            true => {
                let Gone { reason, hint } = self.sandbox.why_silent().await;
                Loss::Explained(Gone { reason: format!("the code ignored the interrupt, or {reason}"), hint })
            }
            false => Loss::Stubborn,
        })
    }

    /// Returns how the process of the runtime ended, after the stream ended without a message from the supervisor.
    async fn vanished(&mut self, text: String) -> RunEnd {
        let ended = tokio::time::timeout(Duration::from_secs(2), self.sandbox.wait()).await;
        let end = ended.ok().and_then(Result::ok);
        if let Some(gone) = self.sandbox.why_gone(end).await {
            return RunEnd::Lost(Loss::Explained(gone));
        }
        let how = match end {
            Some(End::Exited(code)) => format!("{text}; the runtime ended with status {code}"),
            Some(End::Signalled(signal)) => format!("{text}; the runtime was ended by signal {signal}"),
            None => text,
        };
        RunEnd::Lost(Loss::Vanished(self.sandbox.with_messages(&how)))
    }
}
