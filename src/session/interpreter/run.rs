//! One run of code: what it is given, its output so far, and how it ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codebridge_runtimes::HeldLimits;

use super::loss::Loss;
use crate::activity::{RunReporter, StreamName};
use crate::audit::RunFacts;
use crate::session::answers::Grant;
use crate::session::call::ChangedFiles;
use crate::session::call::Wording;
use crate::session::frames::{DoneStatus, FrameError, FromGuest};
use crate::session::output::Capture;
use crate::session::output::{DisplayCapture, PictureBudget};
use crate::session::output::{Kept, Outputs, Rewritten};
use crate::session::{Failure, OutputStream, Progress, RunOutcome, Status};

/// Bytes of a traceback, which has a budget of its own so that other output on standard error cannot push it out.
const TRACEBACK_BUDGET: usize = 8_000;
/// Bytes of each stream that are kept of what background code prints between runs.
const EARLY_OUTPUT: usize = 256 << 10;
/// Notices of one run; further ones are dropped.
const MOST_NOTICES: usize = 20;

/// How much of each stream is shown.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct Budgets {
    pub(in crate::session) stdout: usize,
    pub(in crate::session) stderr: usize,
    pub(in crate::session) pictures: PictureBudget,
    /// Whether pictures are passed on as they arrive.
    pub(in crate::session) streams_pictures: bool,
}

#[derive(Debug)]
pub(in crate::session) struct Cell {
    pub(in crate::session) id: u32,
    pub(in crate::session) code: String,
    /// What the audit log says of it.
    pub(in crate::session) facts: Arc<RunFacts>,
    /// None for a session that ends with the run.
    pub(in crate::session) session: Option<String>,
    pub(in crate::session) grant: Grant,
    pub(in crate::session) timeout: Duration,
    pub(in crate::session) budgets: Budgets,
    pub(in crate::session) outputs: Arc<Mutex<Outputs>>,
    pub(in crate::session) wording: Wording,
    pub(in crate::session) reporter: RunReporter,
}

#[derive(Debug)]
pub(super) enum RunEnd {
    /// The interpreter reported the end and waits for more code.
    Done { status: DoneStatus, exit_code: i32, error: String },
    /// The interpreter is gone.
    Lost(Loss),
}

#[derive(Debug)]
pub(in crate::session) enum Interrupt {
    Timeout {
        /// How long it may run.
        limit: Duration,
        /// What it waited for: calls as `server.tool`, servers that were still starting.
        waited_for: Vec<String>,
    },
    Cancel,
}

/// The outcome of a run, and what else follows from it.
#[derive(Debug)]
pub(in crate::session) struct FinishedRun {
    pub(in crate::session) outcome: RunOutcome,
    /// Why the interpreter is gone, when it is.
    pub(in crate::session) loss: Option<String>,
    /// The streams that were cut.
    pub(in crate::session) kept: Kept,
    /// Whether a process was killed because memory ran out.
    pub(in crate::session) out_of_memory: bool,
}

/// What the words about the end of a run depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunWords {
    pub(super) wording: Wording,
    pub(super) held: HeldLimits,
    /// The memory limit in bytes.
    pub(super) memory: u64,
}

impl RunWords {
    /// Adds to the reason of a loss what to do about it.
    fn with_remedy(&self, loss: Option<String>, end: &RunEnd) -> Option<String> {
        let remedy = self.wording.raise_memory(self.memory);
        match end {
            RunEnd::Lost(lost) if lost.is_of_memory(self.held) => Some(format!("{}; {remedy}", loss?)),
            _ => loss,
        }
    }
}

/// Output and notices that came between runs; the rest is dropped.
#[derive(Debug, Default)]
pub(super) struct Early {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    notices: Vec<String>,
}

impl Early {
    /// Returns the output as it is passed on.
    pub(super) fn output(&self) -> VecDeque<Progress> {
        let streams = [(OutputStream::Stdout, &self.stdout), (OutputStream::Stderr, &self.stderr)];
        let printed = streams.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        printed.map(|(stream, bytes)| Progress::Output(stream, bytes.clone())).collect()
    }

    pub(super) fn take(&mut self, frame: FromGuest) {
        let append = |kept: &mut Vec<u8>, bytes: &[u8]| {
            let space = EARLY_OUTPUT.saturating_sub(kept.len());
            kept.extend_from_slice(&bytes[..bytes.len().min(space)]);
        };
        match frame {
            FromGuest::Stdout(bytes) => append(&mut self.stdout, &bytes),
            FromGuest::Stderr(bytes) => append(&mut self.stderr, &bytes),
            FromGuest::Traceback(bytes) => append(&mut self.stderr, &bytes),
            FromGuest::Notice(text) if self.notices.len() < MOST_NOTICES => self.notices.push(text),
            _ => {}
        }
    }
}

pub(super) struct RunInProgress {
    stdout: Capture,
    stderr: Capture,
    /// What the streams hold back of progress bars.
    stdout_bars: Rewritten,
    stderr_bars: Rewritten,
    traceback: Capture,
    displays: DisplayCapture,
    pictures: PictureBudget,
    streams_pictures: bool,
    files: ChangedFiles,
    pub(super) notices: Vec<String>,
    reporter: RunReporter,
}

impl RunInProgress {
    pub(super) fn new(
        early: Early,
        budgets: Budgets,
        outputs: &Arc<Mutex<Outputs>>,
        reporter: RunReporter,
    ) -> Self {
        let capture = |budget| Capture::new(budget, Arc::clone(outputs));
        let mut run = Self {
            stdout: capture(budgets.stdout),
            stderr: capture(budgets.stderr),
            stdout_bars: Rewritten::default(),
            stderr_bars: Rewritten::default(),
            traceback: capture(TRACEBACK_BUDGET),
            displays: DisplayCapture::new(Arc::clone(outputs)),
            pictures: budgets.pictures,
            streams_pictures: budgets.streams_pictures,
            files: ChangedFiles::default(),
            notices: early.notices,
            reporter,
        };
        run.push_stdout(&early.stdout);
        run.push_stderr(&early.stderr);
        run
    }

    fn push_stdout(&mut self, bytes: &[u8]) {
        let shown = self.stdout_bars.push(bytes);
        self.stdout.push(&shown);
        self.reporter.prints(StreamName::Stdout, &shown);
        if let Some(progress) = self.stdout_bars.progress() {
            self.reporter.does(&progress);
        }
    }

    fn push_stderr(&mut self, bytes: &[u8]) {
        let shown = self.stderr_bars.push(bytes);
        self.stderr.push(&shown);
        self.reporter.prints(StreamName::Stderr, &shown);
        if let Some(progress) = self.stderr_bars.progress() {
            self.reporter.does(&progress);
        }
    }

    /// Takes what the streams hold back.
    fn finish_lines(&mut self) {
        let (stdout, stderr) = (self.stdout_bars.finish(), self.stderr_bars.finish());
        self.stdout.push(&stdout);
        self.stderr.push(&stderr);
        self.reporter.prints(StreamName::Stdout, &stdout);
        self.reporter.prints(StreamName::Stderr, &stderr);
    }

    /// Takes a frame; returns the end of the run when it is one. Output that came between runs belongs to this one.
    pub(super) fn take(
        &mut self,
        run: u32,
        frame: Option<Result<FromGuest, FrameError>>,
        output: &mut Option<Progress>,
    ) -> Option<RunEnd> {
        let lost = |loss| Some(RunEnd::Lost(loss));
        match frame {
            Some(Ok(frame)) => match frame {
                FromGuest::Stdout(bytes) => {
                    self.push_stdout(&bytes);
                    *output = Some(Progress::Output(OutputStream::Stdout, bytes));
                }
                FromGuest::Stderr(bytes) => {
                    self.push_stderr(&bytes);
                    *output = Some(Progress::Output(OutputStream::Stderr, bytes));
                }
                FromGuest::Traceback(bytes) => {
                    self.traceback.push(&bytes);
                    self.reporter.prints(StreamName::Stderr, &bytes);
                    *output = Some(Progress::Output(OutputStream::Stderr, bytes));
                }
                FromGuest::Display { piece, is_last } => {
                    let printed = self.stdout.total() + self.stdout_bars.held() as u64;
                    if self.displays.push(&piece, is_last, printed) {
                        self.displays.show_last(run);
                        self.reporter.displays(self.displays.last_types());
                        if self.streams_pictures {
                            let picture = self.displays.last_picture();
                            *output = picture.map(|(number, picture)| Progress::Displayed(number, picture));
                        }
                    }
                }
                FromGuest::Notice(text) if self.notices.len() < MOST_NOTICES => self.notices.push(text),
                FromGuest::Files(files) => self.files = files,
                FromGuest::Done(id, status, exit_code, error) if id == run => {
                    return Some(RunEnd::Done { status, exit_code, error });
                }
                FromGuest::Done(id, ..) => {
                    return lost(Loss::Forged(format!(
                        "it reported the end of run {id}, which was not running"
                    )));
                }
                FromGuest::End(end) => return lost(Loss::Ended(end)),
                FromGuest::Hello(_) | FromGuest::Parts(_) | FromGuest::Alive | FromGuest::Notice(_) => {}
                // pipes.rs sends them to others.
                FromGuest::Question(..) | FromGuest::Withdraw(_) => {}
                FromGuest::FilePart(..) | FromGuest::ArtifactBytes(..) => {}
            },
            Some(Err(FrameError::Io(error))) => {
                return lost(Loss::Vanished(format!("the sandbox went away: {error}")));
            }
            Some(Err(error)) => return lost(Loss::Forged(error.to_string())),
            None => return lost(Loss::Vanished("the sandbox went away".into())),
        }
        None
    }

    /// Ends the run; `describe` puts a loss into words.
    pub(super) fn finish(
        mut self,
        run_id: u32,
        end: RunEnd,
        interrupt: Option<Interrupt>,
        elapsed: Duration,
        words: &RunWords,
    ) -> FinishedRun {
        self.finish_lines();
        let rest = |stream: &'static str| move || words.wording.rest_of_output(run_id, stream);
        let lines = |bytes| self.stdout.lines_in(bytes);
        let (displays, kept_displays) = self.displays.finish(run_id, self.pictures, lines, &mut self.notices);
        let (stdout, kept_stdout) = self.stdout.finish(rest("stdout"));
        let (mut stderr, kept_stderr) = self.stderr.finish(rest("stderr"));
        let (traceback, kept_traceback) = self.traceback.finish(rest("traceback"));
        if !traceback.text.is_empty() {
            if !stderr.text.is_empty() && !stderr.text.ends_with('\n') {
                stderr.text.push('\n');
            }
            stderr.text.push_str(&traceback.text);
            stderr.total_bytes += traceback.total_bytes;
            stderr.truncated |= traceback.truncated;
        }
        let loss = match &end {
            RunEnd::Lost(loss) => Some(loss.describe(words.held, words.memory)),
            RunEnd::Done { .. } => None,
        };
        let hint = match &end {
            RunEnd::Lost(loss) => loss.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default(),
            RunEnd::Done { .. } => String::new(),
        };
        let out_of_memory = matches!(&end, RunEnd::Lost(loss) if loss.is_of_memory(words.held));
        let (status, failure, exit_code, error) = match interrupt {
            Some(interrupt) => {
                let (status, error) = interrupt.describe(loss.as_deref(), words.wording);
                (status, Some(Failure::Code), None, Some(error))
            }
            None => {
                let error = words.with_remedy(loss.clone(), &end);
                end.describe(error)
            }
        };
        let error = error.map(|error| format!("{error}{hint}"));
        let notices = self.notices;
        let outcome = RunOutcome {
            run_id,
            status,
            failure,
            exit_code,
            stdout,
            stderr,
            displays,
            files: self.files,
            artifacts: Vec::new(),
            error,
            notices,
            elapsed,
            running: None,
        };
        let streams = [kept_stdout, kept_stderr, kept_traceback];
        FinishedRun { outcome, loss, kept: Kept { streams, displays: kept_displays }, out_of_memory }
    }
}

impl Interrupt {
    /// Returns the status of an interrupted run, and what became of the code.
    fn describe(self, loss: Option<&str>, wording: Wording) -> (Status, String) {
        let (status, what) = match self {
            Self::Timeout { limit, waited_for } if waited_for.is_empty() => {
                (Status::Timeout, wording.stopped(limit))
            }
            Self::Timeout { limit, waited_for } => {
                let (stopped, waited_for) = (wording.stopped(limit), waited_for.join(", "));
                (Status::Timeout, format!("{stopped}, still waiting for {waited_for}"))
            }
            Self::Cancel => (Status::Cancelled, "cancelled".to_string()),
        };
        let error = match loss {
            Some(loss) => format!("{what}; the sandbox was ended: {loss}"),
            None => format!("{what}{}", wording.variables_are_kept()),
        };
        (status, error)
    }
}

impl RunEnd {
    /// Returns status, failure, exit code and error of a run that nobody interrupted.
    fn describe(self, loss: Option<String>) -> (Status, Option<Failure>, Option<i32>, Option<String>) {
        match self {
            Self::Done { status: DoneStatus::Ok, .. }
            | Self::Done { status: DoneStatus::Exit, exit_code: 0, .. } => {
                (Status::Success, None, Some(0), None)
            }
            Self::Done { status: DoneStatus::Refused, error, .. } => {
                (Status::Error, Some(Failure::Preparation), None, Some(error))
            }
            Self::Done { exit_code, error, .. } => {
                let error = Some(error).filter(|error| !error.is_empty());
                (Status::Error, Some(Failure::Code), Some(exit_code), error)
            }
            Self::Lost(Loss::Ended(end)) => {
                let exit_code = end.exit.or(end.signal.map(|signal| 128 + signal));
                (Status::Error, Some(Failure::Code), exit_code, loss)
            }
            Self::Lost(_) => (Status::Error, Some(Failure::Sandbox), None, loss),
        }
    }
}
