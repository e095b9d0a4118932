//! What a call is and how it ends: plain data for the server and the command line.

use std::time::Duration;

use super::changed_files::ChangedFiles;
use super::look::RunningNow;
use crate::artifacts::Artifact;
use crate::settings::{Origin, variables};

/// One call of `run_python`, already validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRequest {
    /// Python source, with top-level `await`.
    pub code: String,
    /// Names of the MCP servers that this call may use.
    pub servers: Vec<String>,
    /// How long the code may run before it is interrupted.
    pub timeout: Duration,
    /// Which interpreter runs it: a name, or [`RunRequest::THROW_AWAY`].
    pub session: String,
    /// Set when the timeout is less than was requested.
    pub clamped: Option<Clamped>,
}

/// A timeout that was lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clamped {
    pub requested: Duration,
    /// Where the limit comes from.
    pub limit_from: Origin,
}

impl Clamped {
    /// Says what was requested, what is used in its place, and why.
    pub fn describe(self, used: Duration) -> String {
        let limit_from = match self.limit_from {
            Origin::Default => variables::MAX_TIMEOUT.name.to_owned(),
            origin => origin.to_string(),
        };
        format!("{} requested, limit {} from {limit_from}", self.requested.as_secs(), used.as_secs())
    }
}

impl RunRequest {
    /// The session of a call that names none.
    pub const DEFAULT_SESSION: &str = "main";
    /// The name that stands for a new interpreter, which ends with the call.
    pub const THROW_AWAY: &str = "new";

    /// Returns the code without a byte order mark, which Python accepts in files only.
    pub fn without_byte_order_mark(code: String) -> String {
        match code.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => code,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The code ran to its end, or called `sys.exit(0)`.
    Success,
    /// The code raised or exited with another code, or the sandbox failed.
    Error,
    /// The code ran longer than its timeout and was interrupted.
    Timeout,
    Cancelled,
    /// The call names a server that it cannot have; nothing was started.
    Refused,
    /// The code still runs, in the background.
    Running,
}

impl Status {
    /// Returns the status as results write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Refused => "validation_error",
            Self::Running => "running",
        }
    }
}

/// Why a call did not succeed, as far as exit codes distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The call names a server that it cannot have.
    Request,
    /// The user's code raised, exited non-zero or ended its interpreter.
    Code,
    NoRuntime,
    /// A runtime works, but the image is unavailable.
    NoImage,
    /// The sandbox or its runtime failed.
    Sandbox,
    /// What the code needs could not be prepared, such as its packages; none of it ran.
    Preparation,
}

/// One captured stream: what is shown, and how much there was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The text to show; when cut, the notice is its first line.
    pub text: String,
    /// Bytes that the code wrote to this stream.
    pub total_bytes: u64,
    /// Whether `text` is only part of the output.
    pub truncated: bool,
}

/// An object that the code displayed, beside its text in standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Display {
    /// Where the client reads all forms.
    pub uri: String,
    /// How many lines of standard output, as it is shown, come before it.
    pub after_line: usize,
    pub forms: Vec<Form>,
    /// The form that a model sees.
    pub picture: Option<Picture>,
}

/// One form of a displayed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    pub mime: String,
    pub bytes: u64,
}

/// A displayed object as PNG or JPEG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pub mime: String,
    pub bytes: u64,
    /// Width and height in pixels.
    pub size: (usize, usize),
    /// None if the result has no space for it.
    pub data: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    /// Number of the run, for reading the rest of a cut output; 0 when nothing ran.
    pub run_id: u32,
    pub status: Status,
    /// Set when the status is not a success.
    pub failure: Option<Failure>,
    /// The exit code as a process would have: 0, 1 after an exception, what `sys.exit` said, 128+N after a signal.
    /// None when the code never ran or was stopped from outside.
    pub exit_code: Option<i32>,
    /// Standard output of the code and its child processes, and the value of the last expression.
    pub stdout: Stream,
    /// Their standard error, and the traceback.
    pub stderr: Stream,
    /// What the code displayed, in this order.
    pub displays: Vec<Display>,
    /// The files of `/workspace` that it made or changed.
    pub files: ChangedFiles,
    /// The artifacts that it saved.
    pub artifacts: Vec<Artifact>,
    /// One line: the exception, or how the sandbox failed and what to do.
    pub error: Option<String>,
    /// Notices for the caller: a new session, a missing await, a fallback image.
    pub notices: Vec<String>,
    pub elapsed: Duration,
    /// What a run in the background is doing that has not ended.
    pub running: Option<RunningNow>,
}

/// Returns the line that shows a notice.
pub fn remark(notice: &str) -> String {
    if notice.starts_with("hint: ") { notice.to_owned() } else { format!("note: {notice}") }
}

/// Returns the words of an error that ends with a hint, and the hint.
pub fn split_hint(error: &str) -> (&str, Option<&str>) {
    error.split_once("; hint: ").map_or((error, None), |(why, hint)| (why, Some(hint)))
}

/// Returns whether standard error shows the error of a run already: a traceback ends with its exception.
pub fn is_shown(error: &str, stderr: &str) -> bool {
    stderr.trim_end().ends_with(error.trim_end())
}

impl RunOutcome {
    /// The outcome of a call whose code never ran.
    pub(in crate::session) fn not_started(failure: Failure, error: String) -> Self {
        Self {
            run_id: 0,
            status: Status::Error,
            failure: Some(failure),
            exit_code: None,
            stdout: Stream::default(),
            stderr: Stream::default(),
            displays: Vec::new(),
            files: ChangedFiles::default(),
            artifacts: Vec::new(),
            error: Some(error),
            notices: Vec::new(),
            elapsed: Duration::ZERO,
            running: None,
        }
    }

    /// The outcome of a look at a run that goes on.
    pub(in crate::session) fn running(now: RunningNow) -> Self {
        Self {
            run_id: now.run,
            status: Status::Running,
            failure: None,
            error: None,
            elapsed: now.elapsed,
            running: Some(now),
            ..Self::not_started(Failure::Code, String::new())
        }
    }

    /// The outcome of a call that was cancelled before its code ran.
    pub(crate) fn cancelled(failure: Failure, error: String) -> Self {
        Self { status: Status::Cancelled, ..Self::not_started(failure, error) }
    }

    /// The outcome of a call that asks for a server that it cannot have.
    pub(crate) fn refused(error: String) -> Self {
        Self { status: Status::Refused, ..Self::not_started(Failure::Request, error) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Something slow happens before the code starts ("starting podman", "pulling …").
    Preparing(String),
    Running,
    /// The progress that a server reports of a call that the code makes.
    Calling(String),
    /// The progress that the code reports of itself.
    Reported(String),
    /// A piece of standard output or standard error, as it arrives.
    Output(OutputStream, Vec<u8>),
    /// A picture that the code displays, with the number of the displayed object, where somebody sees it before the end.
    Displayed(usize, Picture),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output, and the value of the last expression.
    Stdout,
    /// Standard error; as it arrives, also the traceback.
    Stderr,
    /// The traceback, which is shown after standard error.
    Traceback,
}

impl OutputStream {
    pub const NAMES: [(Self, &str); 3] =
        [(Self::Stdout, "stdout"), (Self::Stderr, "stderr"), (Self::Traceback, "traceback")];

    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find_map(|(stream, known)| (known == name).then_some(stream))
    }
}
