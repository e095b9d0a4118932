//! What a run reports while it goes on.

use std::sync::Arc;
use std::time::Instant;

use super::answers::SharedAnswers;
use super::changes::milliseconds;
use super::record::Activity;
use super::rows::{CallOutcome, CallRow, StreamName};
use super::run::{MOST_CALLS, MOST_DISPLAYS, NewRun, RunActivity, RunEnd, State};
use crate::audit::RunFacts;
use crate::upstream::Answers;

/// Characters of an error or of progress.
const LONGEST_TEXT: usize = 500;
/// Characters of a name.
const LONGEST_NAME: usize = 100;
/// Files of a run, and notices.
const MOST_FILES: usize = 100;
const LONGEST_URI: usize = 2000;
const MOST_NOTICES: usize = 50;

impl Activity {
    /// Begins the record of a run.
    pub fn begin(&self, run: NewRun<'_>) -> RunGuard {
        RunGuard(RunReporter { run: self.add(run), activity: self.clone() })
    }
}

/// Reports what one run does. Its clones report the same run.
#[derive(Debug, Clone)]
pub struct RunReporter {
    activity: Activity,
    run: Arc<RunActivity>,
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
            server: cut_to(server, LONGEST_NAME),
            tool: cut_to(tool, LONGEST_NAME),
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
        Arc::new(SharedAnswers::new(client, self.activity.clone(), Arc::clone(&self.run)))
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
pub struct RunGuard(RunReporter);

impl RunGuard {
    pub fn reporter(&self) -> &RunReporter {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn run(&self) -> Arc<RunActivity> {
        Arc::clone(&self.0.run)
    }

    pub fn ended(self, end: RunEnd) {
        self.end(end);
    }

    fn end(&self, mut end: RunEnd) {
        end.error = end.error.as_deref().map(cut);
        end.files.truncate(MOST_FILES);
        for file in &mut end.files {
            file.path = cut(&file.path);
            // Half of one leads nowhere.
            file.uri.take_if(|uri| uri.len() > LONGEST_URI);
        }
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
    cut_to(text, LONGEST_TEXT)
}

fn cut_to(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
