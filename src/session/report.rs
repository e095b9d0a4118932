//! From what an interpreter reported to what the caller is told.

use std::time::Duration;

use codebridge_runtimes::{HeldLimits, Mechanism};

use super::frames::DoneStatus;
use super::loss::Loss;
use super::output::Kept;
use super::run::{Interrupt, RunEnd, RunReport};
use super::{Failure, RunOutcome, Status, Stream};

/// For interpreters of which nothing is known any more.
pub(super) const UNKNOWN_LIMITS: HeldLimits =
    HeldLimits { memory: Mechanism::Nothing, pids: Mechanism::Nothing, cpus: Mechanism::Nothing };

/// The outcome of a run, and what else follows from it.
pub(super) struct Report {
    pub(super) outcome: RunOutcome,
    /// Why the session is gone, when it is.
    pub(super) loss: Option<String>,
    /// What was cut.
    pub(super) kept: Kept,
}

/// The outcome of a call whose code never ran.
pub(super) fn failed_start(failure: Failure, text: String, cancelled: bool) -> RunOutcome {
    RunOutcome {
        run_id: 0,
        status: if cancelled { Status::Cancelled } else { Status::Error },
        failure: Some(failure),
        exit_code: None,
        stdout: Stream::default(),
        stderr: Stream::default(),
        error: Some(text),
        notices: Vec::new(),
        elapsed: Duration::ZERO,
    }
}

/// The outcome of a call that asks for what there is not.
pub(super) fn refused(text: String) -> RunOutcome {
    RunOutcome { status: Status::Refused, ..failed_start(Failure::Request, text, false) }
}

/// Puts a report into the caller's words.
pub(super) fn outcome_of(
    run_id: u32,
    report: RunReport,
    session: &str,
    describe: impl FnOnce(&Loss) -> String,
) -> Report {
    let RunReport { end, interrupted, waited_for, stdout, stderr, traceback, mut notices, elapsed } = report;
    let (stdout, kept_stdout) = stdout;
    let (mut stderr, kept_stderr) = stderr;
    let (traceback, kept_traceback) = traceback;
    if !traceback.text.is_empty() {
        if !stderr.text.is_empty() && !stderr.text.ends_with('\n') {
            stderr.text.push('\n');
        }
        stderr.text.push_str(&traceback.text);
        stderr.total_bytes += traceback.total_bytes;
        stderr.truncated |= traceback.truncated;
    }
    let loss = match &end {
        RunEnd::Lost(loss) => Some(describe(loss)),
        RunEnd::Done { .. } => None,
    };
    if loss.is_some() {
        notices.push(format!(
            "session '{session}' has ended; the next call starts a new one without its variables"
        ));
    }
    let why = |interrupt| match interrupt {
        Interrupt::Timeout if waited_for.is_empty() => {
            (Status::Timeout, "the code ran longer than its timeout".to_string())
        }
        Interrupt::Timeout => {
            let calls = waited_for.join(", ");
            (Status::Timeout, format!("the code was still waiting for {calls} at its timeout"))
        }
        Interrupt::Cancel => (Status::Cancelled, "the call was cancelled".to_string()),
    };
    let (status, failure, exit_code, error) = match (end, interrupted) {
        (RunEnd::Done { .. }, Some(interrupt)) => {
            let (status, what) = why(interrupt);
            (
                status,
                Some(Failure::Code),
                None,
                Some(format!("{what} and was interrupted; variables are kept")),
            )
        }
        (RunEnd::Lost(_), Some(interrupt)) => {
            let (status, what) = why(interrupt);
            let loss = loss.as_deref().unwrap_or_default();
            (status, Some(Failure::Code), None, Some(format!("{what} and was ended: {loss}")))
        }
        (RunEnd::Done { status: DoneStatus::Ok, .. }, None) => (Status::Success, None, Some(0), None),
        (RunEnd::Done { status: DoneStatus::Exit, exit_code: 0, .. }, None) => {
            (Status::Success, None, Some(0), None)
        }
        (RunEnd::Done { status: DoneStatus::Exit, exit_code, error }, None) => {
            (Status::Error, Some(Failure::Code), Some(exit_code), some_text(error))
        }
        (RunEnd::Done { exit_code, error, .. }, None) => {
            (Status::Error, Some(Failure::Code), Some(exit_code), some_text(error))
        }
        (RunEnd::Lost(Loss::Ended(end)), None) => {
            let code = end.exit.or(end.signal.map(|signal| 128 + signal));
            (Status::Error, Some(Failure::Code), code, loss.clone())
        }
        (RunEnd::Lost(_), None) => (Status::Error, Some(Failure::Sandbox), None, loss.clone()),
    };
    let outcome = RunOutcome { run_id, status, failure, exit_code, stdout, stderr, error, notices, elapsed };
    Report { outcome, loss, kept: [kept_stdout, kept_stderr, kept_traceback] }
}

fn some_text(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
