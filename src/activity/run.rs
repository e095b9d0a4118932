//! One run: what is known of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::changes::{milliseconds, now};
use super::recent::Recent;
use super::rows::{ArtifactRow, CallRow, FileRow, OutputPart, RunDetail, RunRow, RunState, StreamName};
use crate::audit::RunFacts;

/// Bytes of code that are kept, and characters of its first line.
const LONGEST_CODE: usize = 64 << 10;
const LONGEST_LINE: usize = 200;
/// Calls that have a line each, and displayed objects.
pub(super) const MOST_CALLS: usize = 500;
pub(super) const MOST_DISPLAYS: usize = 100;
/// Bytes that a call counts for.
const CALL: usize = 1 << 10;

/// What is known of one run.
#[derive(Debug)]
pub(super) struct RunActivity {
    /// Its name before its code runs.
    first_name: String,
    session: String,
    client: Option<Arc<str>>,
    is_background: bool,
    servers: Vec<String>,
    timeout: Duration,
    code: String,
    code_left_out: u64,
    began: u64,
    pub(super) since: Instant,
    cancel: CancellationToken,
    state: Mutex<State>,
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    /// Its number and its name, when its code runs.
    pub(super) named: Option<(u32, String)>,
    pub(super) facts: Arc<RunFacts>,
    pub(super) doing: Option<String>,
    pub(super) stdout: Recent,
    pub(super) stderr: Recent,
    pub(super) calls: Vec<CallRow>,
    pub(super) call_count: u64,
    pub(super) displays: Vec<Vec<String>>,
    pub(super) end: Option<(RunEnd, Duration)>,
}

/// A call that begins.
#[derive(Debug)]
pub struct NewRun<'a> {
    pub code: &'a str,
    pub session: &'a str,
    pub servers: &'a [String],
    pub timeout: Duration,
    pub client: Option<Arc<str>>,
    pub is_background: bool,
    /// What the audit log says of it.
    pub facts: Arc<RunFacts>,
    /// Interrupts it.
    pub cancel: CancellationToken,
}

/// How a run ended.
#[derive(Debug, Default)]
pub struct RunEnd {
    /// The word of the audit log.
    pub outcome: &'static str,
    pub error: Option<String>,
    pub notices: Vec<String>,
    pub files: Vec<FileRow>,
    pub artifacts: Vec<ArtifactRow>,
}

impl State {
    fn kept(&self) -> usize {
        self.stdout.kept() + self.stderr.kept() + self.calls.len() * CALL
    }
}

impl RunActivity {
    pub(super) fn new(first_name: String, run: NewRun<'_>) -> Self {
        let NewRun { code, session, servers, timeout, client, is_background, facts, cancel } = run;
        let end =
            (0..=LONGEST_CODE.min(code.len())).rev().find(|end| code.is_char_boundary(*end)).unwrap_or(0);
        let state = State {
            named: None,
            facts,
            doing: None,
            stdout: Recent::default(),
            stderr: Recent::default(),
            calls: Vec::new(),
            call_count: 0,
            displays: Vec::new(),
            end: None,
        };
        Self {
            first_name,
            session: session.to_owned(),
            client,
            is_background,
            servers: servers.to_vec(),
            timeout,
            code: code[..end].to_owned(),
            code_left_out: (code.len() - end) as u64,
            began: now(),
            since: Instant::now(),
            cancel,
            state: Mutex::new(state),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }

    pub(super) fn name(&self) -> String {
        self.lock().named.as_ref().map_or_else(|| self.first_name.clone(), |(_, name)| name.clone())
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.first_name == name || self.lock().named.as_ref().is_some_and(|(_, own)| own == name)
    }

    pub(super) fn number(&self) -> Option<u32> {
        self.lock().named.as_ref().map(|(number, _)| *number)
    }

    pub(super) fn facts(&self) -> Arc<RunFacts> {
        Arc::clone(&self.lock().facts)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Interrupts it; false if it has ended.
    pub(super) fn stop(&self) -> bool {
        let is_running = !self.has_ended();
        if is_running {
            self.cancel.cancel();
        }
        is_running
    }

    /// Returns the bytes of output and calls that are kept.
    pub(super) fn kept(&self) -> usize {
        self.lock().kept()
    }

    /// Keeps nothing of its output and its calls; returns how many bytes that were.
    pub(super) fn forget_output(&self) -> usize {
        let mut state = self.lock();
        let kept = state.kept();
        state.stdout.forget();
        state.stderr.forget();
        state.calls = Vec::new();
        kept
    }

    pub(super) fn output(&self, stream: StreamName, from: u64) -> OutputPart {
        let state = self.lock();
        let has_ended = state.end.is_some();
        match stream {
            StreamName::Stdout => state.stdout.read(from, has_ended),
            StreamName::Stderr => state.stderr.read(from, has_ended),
        }
    }

    pub(super) fn file_uri(&self, number: usize) -> Option<String> {
        let state = self.lock();
        let (end, _) = state.end.as_ref()?;
        end.files.get(number.checked_sub(1)?)?.uri.clone()
    }

    /// Returns it as a list shows it, with so many questions that wait.
    pub(super) fn row(&self, questions: usize) -> RunRow {
        self.row_of(&self.lock(), questions)
    }

    fn row_of(&self, state: &State, questions: usize) -> RunRow {
        let (number, name) = state.named.clone().unwrap_or_else(|| (0, self.first_name.clone()));
        let first_line = self.code.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let (run_state, elapsed) = match &state.end {
            Some((end, elapsed)) => (RunState::Ended { outcome: end.outcome.to_owned() }, *elapsed),
            None if state.named.is_some() => (RunState::Running, self.since.elapsed()),
            None => (RunState::Starting, self.since.elapsed()),
        };
        RunRow {
            name,
            number,
            session: self.session.clone(),
            client: self.client.as_deref().map(str::to_owned),
            is_background: self.is_background,
            state: run_state,
            began: self.began,
            elapsed_ms: milliseconds(elapsed),
            first_line: first_line.chars().take(LONGEST_LINE).collect(),
            doing: state.doing.clone(),
            questions,
            calls: state.call_count,
            displays: state.displays.len(),
            stdout_bytes: state.stdout.total(),
            stderr_bytes: state.stderr.total(),
            error: state.end.as_ref().and_then(|(end, _)| end.error.clone()),
        }
    }

    pub(super) fn detail(&self, questions: usize) -> RunDetail {
        let state = self.lock();
        let end = state.end.as_ref().map(|(end, _)| end);
        RunDetail {
            row: self.row_of(&state, questions),
            code: self.code.clone(),
            code_left_out: self.code_left_out,
            servers: self.servers.clone(),
            timeout_ms: milliseconds(self.timeout),
            calls: state.calls.clone(),
            calls_left_out: state.call_count - state.calls.len() as u64,
            displays: state.displays.clone(),
            files: end.map(|end| end.files.clone()).unwrap_or_default(),
            artifacts: end.map(|end| end.artifacts.clone()).unwrap_or_default(),
            notices: end.map(|end| end.notices.clone()).unwrap_or_default(),
        }
    }
}
