//! One run of code: what it is given, what it has brought so far, and how it ended.

use std::time::Duration;

use super::frames::{DoneStatus, FrameError, FromGuest};
use super::grant::Grant;
use super::loss::Loss;
use super::output::{Capture, KeptStream};
use super::{OutputStream, Progress, Stream};

/// Bytes of a traceback, which has a budget of its own so that chatter on standard error cannot push it out.
const TRACEBACK_BUDGET: usize = 8_000;
/// Bytes of each stream that are kept of what background code prints between runs.
const EARLY_OUTPUT: usize = 256 << 10;
/// Notices of one run; a guest that sends more is not listened to.
const MOST_NOTICES: usize = 20;

/// How much of each stream is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budgets {
    pub(super) stdout: usize,
    pub(super) stderr: usize,
}

/// One piece of code to run.
#[derive(Debug)]
pub(super) struct Cell {
    /// Number of the run.
    pub(super) id: u32,
    /// Python source.
    pub(super) code: String,
    /// Which servers the code may use.
    pub(super) grant: Grant,
    /// How long it may run.
    pub(super) timeout: Duration,
    /// How much of its output is shown.
    pub(super) budgets: Budgets,
}

/// How one run ended.
#[derive(Debug)]
pub(super) enum RunEnd {
    /// The interpreter reported the end and waits for more.
    Done { status: DoneStatus, exit_code: i32, error: String },
    /// The interpreter is gone.
    Lost(Loss),
}

/// Why a run was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    Timeout,
    Cancel,
}

/// Everything that one run came to.
#[derive(Debug)]
pub(super) struct RunReport {
    pub(super) end: RunEnd,
    pub(super) interrupted: Option<Interrupt>,
    /// What it waited for at its timeout: calls as `server.tool`, servers that were still starting.
    pub(super) waited_for: Vec<String>,
    pub(super) stdout: (Stream, Option<KeptStream>),
    pub(super) stderr: (Stream, Option<KeptStream>),
    pub(super) traceback: (Stream, Option<KeptStream>),
    pub(super) notices: Vec<String>,
    pub(super) elapsed: Duration,
}

/// What comes out of the sandbox.
#[derive(Debug)]
pub(super) enum Event {
    Frame(FromGuest),
    /// It cannot be read any further.
    Broken(FrameError),
    Closed,
}

/// What came between runs; within bounds, the rest is dropped.
#[derive(Debug, Default)]
pub(super) struct Early {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    notices: Vec<String>,
}

impl Early {
    pub(super) fn take(&mut self, frame: FromGuest) {
        let append = |kept: &mut Vec<u8>, bytes: &[u8]| {
            let room = EARLY_OUTPUT.saturating_sub(kept.len());
            kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        };
        match frame {
            FromGuest::Stdout(bytes) => append(&mut self.stdout, &bytes),
            FromGuest::Stderr(bytes) => append(&mut self.stderr, &bytes),
            FromGuest::Traceback(text) => append(&mut self.stderr, text.as_bytes()),
            FromGuest::Notice(text) if self.notices.len() < MOST_NOTICES => self.notices.push(text),
            _ => {}
        }
    }
}

/// What a run has brought so far.
pub(super) struct Running {
    stdout: Capture,
    stderr: Capture,
    traceback: Capture,
    pub(super) notices: Vec<String>,
}

impl Running {
    pub(super) fn new(early: Early, budgets: Budgets) -> Self {
        let mut run = Self {
            stdout: Capture::new(budgets.stdout),
            stderr: Capture::new(budgets.stderr),
            traceback: Capture::new(TRACEBACK_BUDGET),
            notices: early.notices,
        };
        run.stdout.push(&early.stdout);
        run.stderr.push(&early.stderr);
        run
    }

    /// Takes an event in; the end of the run, when it is one. Output that came between runs counts for this one.
    pub(super) fn take(
        &mut self,
        run: u32,
        event: Option<Event>,
        output: &mut Option<Progress>,
    ) -> Option<RunEnd> {
        let lost = |loss| Some(RunEnd::Lost(loss));
        match event {
            Some(Event::Frame(frame)) => match frame {
                FromGuest::Stdout(bytes) => {
                    self.stdout.push(&bytes);
                    *output = Some(Progress::Output(OutputStream::Stdout, bytes));
                }
                FromGuest::Stderr(bytes) => {
                    self.stderr.push(&bytes);
                    *output = Some(Progress::Output(OutputStream::Stderr, bytes));
                }
                FromGuest::Traceback(text) => {
                    self.traceback.push(text.as_bytes());
                    *output = Some(Progress::Output(OutputStream::Stderr, text.into_bytes()));
                }
                FromGuest::Notice(text) if self.notices.len() < MOST_NOTICES => self.notices.push(text),
                FromGuest::Done(id, status, exit_code, error) if id == run => {
                    return Some(RunEnd::Done { status, exit_code, error });
                }
                FromGuest::Done(id, ..) => {
                    return lost(Loss::Forged(format!(
                        "it reported the end of run {id}, which is not running"
                    )));
                }
                FromGuest::End(end) => return lost(Loss::Ended(end)),
                FromGuest::Hello(_) | FromGuest::Parts(_) | FromGuest::Notice(_) => {}
                // They do not come here.
                FromGuest::Query(..) | FromGuest::Withdraw(_) => {}
            },
            Some(Event::Broken(FrameError::Io(error))) => {
                return lost(Loss::Vanished(format!("the sandbox went away: {error}")));
            }
            Some(Event::Broken(error)) => return lost(Loss::Forged(error.to_string())),
            Some(Event::Closed) | None => return lost(Loss::Vanished("the sandbox went away".into())),
        }
        None
    }

    pub(super) fn finish(
        self,
        id: u32,
        end: RunEnd,
        interrupted: Option<Interrupt>,
        elapsed: Duration,
    ) -> RunReport {
        let rest = |stream: &'static str| {
            move || {
                format!(
                    "read it with runtime.output({id}, \"{stream}\", start, length) or as resource codebridge://runs/{id}/{stream}"
                )
            }
        };
        RunReport {
            end,
            interrupted,
            waited_for: Vec::new(),
            stdout: self.stdout.finish(rest("stdout")),
            stderr: self.stderr.finish(rest("stderr")),
            traceback: self.traceback.finish(rest("traceback")),
            notices: self.notices,
            elapsed,
        }
    }
}
