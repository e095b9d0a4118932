//! One run: what is known of it, and what reports it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::answers::SharedAnswers;
use super::recent::Recent;
use super::record::{Activity, NewRun, milliseconds, now};
use super::rows::{
    ArtifactRow, CallOutcome, CallRow, FileRow, OutputPart, RunDetail, RunRow, RunState, StreamName,
};
use crate::audit::RunFacts;
use crate::upstream::Answers;

/// Bytes of code that are kept, and characters of its first line.
const LONGEST_CODE: usize = 64 << 10;
const LONGEST_LINE: usize = 200;
/// Calls that have a line each, and displayed objects.
const MOST_CALLS: usize = 500;
const MOST_DISPLAYS: usize = 100;
/// Characters of an error or of progress.
const LONGEST_TEXT: usize = 500;
/// Files of a run, and notices.
const MOST_FILES: usize = 500;
const MOST_NOTICES: usize = 50;

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
    since: Instant,
    cancel: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Its number and its name, when its code runs.
    named: Option<(u32, String)>,
    facts: Arc<RunFacts>,
    doing: Option<String>,
    stdout: Recent,
    stderr: Recent,
    calls: Vec<CallRow>,
    call_count: u64,
    displays: Vec<Vec<String>>,
    end: Option<(RunEnd, Duration)>,
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

    fn lock(&self) -> MutexGuard<'_, State> {
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

    /// Returns the bytes of output that are kept.
    pub(super) fn kept(&self) -> usize {
        let state = self.lock();
        state.stdout.kept() + state.stderr.kept()
    }

    /// Keeps nothing of its output; returns how many bytes that were.
    pub(super) fn forget_output(&self) -> usize {
        let mut state = self.lock();
        let kept = state.stdout.kept() + state.stderr.kept();
        state.stdout.forget();
        state.stderr.forget();
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

/// Reports what one run does. Its clones report the same run.
#[derive(Debug, Clone)]
pub struct RunReporter {
    pub(super) activity: Activity,
    pub(super) run: Arc<RunActivity>,
}

impl RunReporter {
    /// Says that the code begins to run.
    pub fn begins(&self, number: u32, facts: &Arc<RunFacts>) {
        let named = Some((number, self.activity.run_name(number)));
        self.change(|state| (state.named, state.facts, state.doing) = (named, Arc::clone(facts), None));
    }

    pub fn prints(&self, stream: StreamName, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.change(|state| match stream {
                StreamName::Stdout => state.stdout.push(bytes),
                StreamName::Stderr => state.stderr.push(bytes),
            });
        }
    }

    /// Says which forms a displayed object has.
    pub fn displays(&self, types: Vec<String>) {
        self.change(|state| {
            if state.displays.len() < MOST_DISPLAYS {
                state.displays.push(types);
            }
        });
    }

    /// Says what it is doing, until it says something else.
    pub fn does(&self, what: &str) {
        let what = Some(cut(what));
        self.change(|state| state.doing = what);
    }

    /// Says what is prepared before the code runs.
    pub fn prepares(&self, what: &str) {
        self.change(|state| {
            if state.named.is_none() {
                state.doing = Some(cut(what));
            }
        });
    }

    /// Says that it calls a tool.
    pub fn calls(&self, server: &str, tool: &str, line: Option<u32>) -> CallReporter {
        let row = CallRow {
            server: cut(server),
            tool: cut(tool),
            line,
            began_ms: milliseconds(self.run.since.elapsed()),
            elapsed_ms: None,
            outcome: None,
            error: None,
        };
        let mut index = None;
        self.change(|state| {
            state.call_count += 1;
            if state.calls.len() < MOST_CALLS {
                index = Some(state.calls.len());
                state.calls.push(row);
            }
        });
        CallReporter { run: self.clone(), index, began: Instant::now() }
    }

    /// Returns who answers the questions of the run: its client, or whoever attends.
    pub fn answers(&self, client: Arc<dyn Answers>) -> Arc<dyn Answers> {
        Arc::new(SharedAnswers::new(client, self.clone()))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.run.lock());
        self.activity.changed();
    }
}

/// Reports the end of a call. Dropped, it says that nobody waited for it.
#[derive(Debug)]
pub struct CallReporter {
    run: RunReporter,
    /// None for one that is only counted.
    index: Option<usize>,
    began: Instant,
}

impl CallReporter {
    pub fn ended(mut self, outcome: CallOutcome, error: Option<&str>) {
        self.end(outcome, error);
    }

    fn end(&mut self, outcome: CallOutcome, error: Option<&str>) {
        let Some(index) = self.index.take() else { return };
        let elapsed = Some(milliseconds(self.began.elapsed()));
        self.run.change(|state| {
            if let Some(call) = state.calls.get_mut(index) {
                (call.elapsed_ms, call.outcome, call.error) = (elapsed, Some(outcome), error.map(cut));
            }
        });
    }
}

impl Drop for CallReporter {
    fn drop(&mut self) {
        self.end(CallOutcome::Cancelled, None);
    }
}

/// A run under way. Dropped, it says that nobody waited for its end.
#[derive(Debug)]
pub struct RunGuard(pub(super) RunReporter);

impl RunGuard {
    pub fn reporter(&self) -> &RunReporter {
        &self.0
    }

    pub fn ended(self, end: RunEnd) {
        self.end(end);
    }

    fn end(&self, mut end: RunEnd) {
        end.error = end.error.as_deref().map(cut);
        end.files.truncate(MOST_FILES);
        end.artifacts.truncate(MOST_FILES);
        end.notices.truncate(MOST_NOTICES);
        let mut is_first = false;
        self.0.change(|state| {
            is_first = state.end.is_none();
            if is_first {
                state.end = Some((end, self.0.run.since.elapsed()));
                state.doing = None;
            }
        });
        if is_first {
            self.0.activity.has_ended(&self.0.run);
        }
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.end(RunEnd { outcome: "cancelled", ..RunEnd::default() });
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
