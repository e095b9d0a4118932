//! The workflows of a state folder: to start, resume, list and cancel them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use serde_json::value::RawValue;

use super::error::WorkflowError;
use super::journal::{Journal, Start, at, cancellation_of, is_cancelled, open, path_of, read_lines};
use super::line::{Line, StepId, parse};
use crate::nearest::nearest;

/// The folder of the journals in the state folder.
const FOLDER: &str = "workflows";
/// Journals that are kept. Those of workflows that can be resumed stay.
const MOST_KEPT: usize = 200;
/// Digits of an id.
const DIGITS: usize = 8;
/// Bytes of the end of a journal that say whether it has finished.
const END: u64 = 256;

/// The workflows of all processes with a state folder.
#[derive(Debug)]
pub struct Workflows {
    folder: PathBuf,
}

/// How a workflow stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Running,
    Finished,
    /// It cannot be resumed.
    Cancelled,
    /// Its last run ended, with the status of that run.
    Stopped {
        status: String,
        error: Option<String>,
    },
    /// Its process ended without a word.
    Lost,
}

/// How a step stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepState {
    /// It began, and did not report its end.
    Begun,
    Failed,
    Finished,
}

/// A step as the journal has it.
#[derive(Debug)]
pub struct RecordedStep {
    pub id: StepId,
    pub state: StepState,
    /// How often it began or was tried again.
    pub attempts: u32,
    /// The error of the last attempt that failed.
    pub error: Option<String>,
    pub result: Option<Box<RawValue>>,
    /// When it began first and ended last, in seconds since 1970.
    pub began: u64,
    pub ended: Option<u64>,
}

/// A workflow as its journal has it.
#[derive(Debug)]
pub struct Workflow {
    pub id: String,
    pub start: Start,
    pub state: State,
    /// When it was started and what it last did, in seconds since 1970.
    pub began: u64,
    pub last: u64,
    /// In the order in which they began.
    pub steps: Vec<RecordedStep>,
}

impl Workflow {
    /// Returns how many steps have finished.
    pub fn finished(&self) -> usize {
        self.steps.iter().filter(|step| step.state == StepState::Finished).count()
    }
}

impl Workflows {
    /// Returns those of a state folder. Nothing is made before the first one starts.
    pub fn at(state: &Path) -> Self {
        Self { folder: state.join(FOLDER) }
    }

    /// Starts a workflow.
    ///
    /// # Errors
    /// Its journal cannot be written.
    pub fn begin(&self, start: Start) -> Result<Journal, WorkflowError> {
        self.remove_oldest();
        Journal::create(&self.folder, start)
    }

    /// Opens a workflow to resume it. Of several processes that try, one succeeds.
    ///
    /// # Errors
    /// There is none of this id, it runs already, it has ended for good, or its journal cannot be read.
    pub fn resume(&self, id: &str) -> Result<Journal, WorkflowError> {
        let path = self.existing(id)?;
        let journal = Journal::open(id, path)?;
        match journal.is_cancelled() {
            true => Err(WorkflowError::Cancelled(id.to_owned())),
            false => Ok(journal),
        }
    }

    /// Cancels a workflow for good. Returns whether it runs: its process stops it.
    ///
    /// # Errors
    /// There is none of this id, or it has finished.
    pub fn cancel(&self, id: &str) -> Result<bool, WorkflowError> {
        let path = self.existing(id)?;
        let file = open(&path, OpenOptions::new().read(true)).map_err(at(&path))?;
        if has_finished(&file) {
            return Err(WorkflowError::Finished(id.to_owned()));
        }
        let mark = cancellation_of(&path);
        let marked = open(&mark, OpenOptions::new().write(true).create(true).truncate(false).mode(0o600));
        marked.and_then(|mark| mark.sync_all()).map_err(at(&mark))?;
        Ok(is_locked(&file))
    }

    /// Returns a workflow with its steps and their results.
    ///
    /// # Errors
    /// There is none of this id, or its journal cannot be read.
    pub fn get(&self, id: &str) -> Result<Workflow, WorkflowError> {
        read(id, self.existing(id)?, true)
    }

    /// Returns all workflows without the results of their steps, oldest first, and those whose journals cannot be read.
    pub fn list(&self) -> (Vec<Workflow>, Vec<WorkflowError>) {
        let (mut workflows, mut errors) = (Vec::new(), Vec::new());
        for id in self.ids() {
            match read(&id, path_of(&self.folder, &id), false) {
                Ok(workflow) => workflows.push(workflow),
                // It was just removed, or its process was killed before the first line was written.
                Err(WorkflowError::Unknown { .. }) => {}
                Err(error) => errors.push(error),
            }
        }
        workflows.sort_by(|a, b| (a.began, &a.id).cmp(&(b.began, &b.id)));
        (workflows, errors)
    }

    fn ids(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let id = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_suffix(".journal").filter(|id| is_id(id)).map(str::to_owned)
        };
        let mut ids: Vec<String> = entries.filter_map(id).collect();
        ids.sort();
        ids
    }

    fn existing(&self, id: &str) -> Result<PathBuf, WorkflowError> {
        let path = path_of(&self.folder, id);
        if is_id(id) && fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
            return Ok(path);
        }
        let ids = self.ids();
        let nearest = nearest(id, ids.iter().map(String::as_str)).map(str::to_owned);
        Err(WorkflowError::Unknown { id: id.to_owned(), nearest })
    }

    /// Removes the oldest journals of workflows that have ended for good, when there are too many.
    fn remove_oldest(&self) {
        let ids = self.ids();
        let surplus = (ids.len() + 1).saturating_sub(MOST_KEPT);
        if surplus == 0 {
            return;
        }
        let mut ended: Vec<(SystemTime, PathBuf)> = Vec::new();
        for id in ids {
            let path = path_of(&self.folder, &id);
            let Ok(file) = open(&path, OpenOptions::new().read(true)) else { continue };
            let is_over = !is_locked(&file) && (has_finished(&file) || is_cancelled(&path));
            if let Ok(changed) = file.metadata().and_then(|metadata| metadata.modified())
                && is_over
            {
                ended.push((changed, path));
            }
        }
        ended.sort();
        for (_, path) in ended.into_iter().take(surplus) {
            // In this order: without its mark, a cancelled one could be resumed.
            let _ = fs::remove_file(&path).and_then(|()| fs::remove_file(cancellation_of(&path)));
        }
    }
}

fn is_id(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_locked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared).is_err()
}

/// Whether the last line of a journal says that the workflow has finished.
fn has_finished(file: &File) -> bool {
    let end = || -> io::Result<Vec<u8>> {
        let length = file.metadata()?.len();
        let size = length.min(END);
        let mut end = vec![0; size as usize];
        file.read_exact_at(&mut end, length - size)?;
        Ok(end)
    };
    let end = end().unwrap_or_default();
    let last = end.strip_suffix(b"\n").and_then(|lines| lines.rsplit(|byte| *byte == b'\n').next());
    matches!(last.and_then(parse), Some(Line::Completed { .. }))
}

/// Reads the journal of a workflow.
fn read(id: &str, path: PathBuf, with_results: bool) -> Result<Workflow, WorkflowError> {
    let file = open(&path, OpenOptions::new().read(true)).map_err(at(&path))?;
    let is_running = is_locked(&file);
    let (mut start, mut began, mut last) = (None, 0, 0);
    let mut state = State::Lost;
    let mut steps = Steps::default();
    read_lines(&file, &path, |line, _| match line {
        Line::Started { file, code, arguments, time } => {
            (start, began, last) = (Some(Start { file, code, arguments }), time, time);
        }
        Line::Resumed { code, time } => {
            if let Some(start) = &mut start {
                start.code = code;
            }
            (state, last) = (State::Lost, time);
        }
        Line::Begun { step, time } => {
            last = time;
            let step = steps.of(step, time);
            (step.state, step.attempts) = (StepState::Begun, step.attempts + 1);
        }
        Line::Failed { step, attempt, error, time } => {
            last = time;
            let step = steps.of(step, time);
            step.attempts += u32::from(attempt > 1);
            (step.state, step.error, step.ended) = (StepState::Failed, Some(error), Some(time));
        }
        Line::Finished { step, result, time, .. } => {
            last = time;
            let step = steps.of(step, time);
            (step.state, step.ended) = (StepState::Finished, Some(time));
            step.result = with_results.then(|| result.to_owned());
        }
        Line::Stopped { status, error, time } => (state, last) = (State::Stopped { status, error }, time),
        Line::Completed { time } => (state, last) = (State::Finished, time),
    })?;
    let start = start.ok_or_else(|| WorkflowError::Unknown { id: id.to_owned(), nearest: None })?;
    state = match state {
        State::Finished => State::Finished,
        _ if is_running => State::Running,
        _ if is_cancelled(&path) => State::Cancelled,
        state => state,
    };
    Ok(Workflow { id: id.to_owned(), start, state, began, last, steps: steps.steps })
}

/// The steps of a journal that is being read.
#[derive(Default)]
struct Steps {
    steps: Vec<RecordedStep>,
    places: HashMap<StepId, usize>,
}

impl Steps {
    fn of(&mut self, id: StepId, time: u64) -> &mut RecordedStep {
        let place = *self.places.entry(id.clone()).or_insert(self.steps.len());
        if place == self.steps.len() {
            self.steps.push(RecordedStep {
                id,
                state: StepState::Begun,
                attempts: 0,
                error: None,
                result: None,
                began: time,
                ended: None,
            });
        }
        &mut self.steps[place]
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ending;
    use super::*;

    fn start() -> Start {
        Start::new("x.py".into(), "print(1)", vec!["a".into()])
    }

    fn step(name: &str) -> StepId {
        StepId { name: name.into(), key: None, number: 1 }
    }

    fn value(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    #[test]
    fn finished_steps_are_there_when_it_is_resumed() {
        let state = tempfile::tempdir().unwrap();
        let workflows = Workflows::at(state.path());
        let journal = workflows.begin(start()).unwrap();
        let id = journal.id().to_owned();
        assert!(journal.begin_step(&step("a"), Some("x")).unwrap().is_none());
        journal.finish_step(&step("a"), Some("x"), &value("[1,\n2]")).unwrap();
        assert!(matches!(journal.finish_step(&step("a"), None, &value("1")), Err(WorkflowError::Twice(_))));
        assert!(journal.begin_step(&step("b"), None).unwrap().is_none());
        journal.fail_step(&step("b"), 1, &"e".repeat(10_000)).unwrap();
        assert!(matches!(workflows.resume(&id), Err(WorkflowError::Running(_))));
        assert_eq!(workflows.get(&id).unwrap().state, State::Running);
        drop(journal);
        let recorded = workflows.get(&id).unwrap();
        assert_eq!((recorded.state, recorded.steps.len()), (State::Lost, 2));
        assert_eq!(recorded.steps[1].error.as_ref().unwrap().len(), 300);
        let journal = workflows.resume(&id).unwrap();
        assert_eq!((journal.finished(), journal.start()), (1, &start()));
        journal.resume("other").unwrap();
        assert_eq!(journal.begin_step(&step("a"), Some("x")).unwrap().unwrap().get(), "[1, 2]");
        assert_eq!(journal.begin_step(&step("a"), None).unwrap().unwrap().get(), "[1, 2]");
        let changed = journal.begin_step(&step("a"), Some("y")).unwrap_err();
        assert!(changed.to_string().contains("step 'a' finished earlier with other arguments"), "{changed}");
        assert!(journal.begin_step(&step("b"), None).unwrap().is_none());
        journal.end(Ending::Completed).unwrap();
        drop(journal);
        assert!(matches!(workflows.resume(&id), Err(WorkflowError::Finished(_))));
        assert!(matches!(workflows.cancel(&id), Err(WorkflowError::Finished(_))));
        let (list, errors) = workflows.list();
        assert_eq!((list.len(), &list[0].state, errors.len()), (1, &State::Finished, 0));
        assert_eq!((list[0].finished(), list[0].steps[1].attempts), (1, 2));
    }

    #[test]
    fn a_line_that_was_cut_off_is_ignored_and_a_damaged_one_is_an_error() {
        let state = tempfile::tempdir().unwrap();
        let workflows = Workflows::at(state.path());
        let journal = workflows.begin(start()).unwrap();
        let (id, path) = (journal.id().to_owned(), path_of(&state.path().join(FOLDER), journal.id()));
        for name in ["a", "b"] {
            journal.finish_step(&step(name), None, &value("\"result\"")).unwrap();
        }
        drop(journal);
        let whole = fs::read(&path).unwrap();
        let second = whole.iter().take(whole.len() - 1).rposition(|byte| *byte == b'\n').unwrap() + 1;
        for cut in [second, second + 1, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            let journal = workflows.resume(&id).unwrap();
            assert_eq!(journal.finished(), 1, "{cut}");
            // What comes next begins a line.
            journal.finish_step(&step("c"), None, &value("1")).unwrap();
            drop(journal);
            assert_eq!(workflows.get(&id).unwrap().finished(), 2);
        }
        let mut damaged = whole.clone();
        damaged[second - 5] ^= 1;
        fs::write(&path, &damaged).unwrap();
        for error in [workflows.resume(&id).unwrap_err(), workflows.get(&id).unwrap_err()] {
            assert!(error.to_string().contains("is damaged: line 2"), "{error}");
        }
        assert_eq!(workflows.list().1.len(), 1);
        fs::write(&path, vec![b'x'; 3 << 20]).unwrap();
        assert!(workflows.resume(&id).unwrap_err().to_string().contains("is damaged: line 1"));
        fs::write(&path, "").unwrap();
        assert!(workflows.resume(&id).is_err());
    }

    #[test]
    fn a_cancelled_workflow_is_not_resumed() {
        let state = tempfile::tempdir().unwrap();
        let workflows = Workflows::at(state.path());
        let journal = workflows.begin(start()).unwrap();
        let id = journal.id().to_owned();
        assert!(!journal.is_cancelled());
        assert!(workflows.cancel(&id).unwrap(), "it runs");
        assert!(journal.is_cancelled());
        drop(journal);
        assert!(!workflows.cancel(&id).unwrap());
        assert!(matches!(workflows.resume(&id), Err(WorkflowError::Cancelled(_))));
        assert_eq!(workflows.get(&id).unwrap().state, State::Cancelled);
        for wrong in ["", "..", "../../x", "0000000g", "00000000", &"0".repeat(5000)] {
            assert!(matches!(workflows.get(wrong), Err(WorkflowError::Unknown { .. })), "{wrong:.20}");
        }
    }

    #[test]
    fn journals_are_bounded_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().unwrap();
        let workflows = Workflows::at(state.path());
        let journal = workflows.begin(start()).unwrap();
        let folder = state.path().join(FOLDER);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path_of(&folder, journal.id()))), (0o700, 0o600));
        let long = value(&format!("\"{}\"", "x".repeat(super::super::LONGEST_RESULT)));
        assert!(matches!(
            journal.finish_step(&step("a"), None, &long),
            Err(WorkflowError::LongResult { .. })
        ));
        let many = Start { arguments: vec!["x".repeat(300 << 10)], ..start() };
        assert!(matches!(workflows.begin(many), Err(WorkflowError::LongStart(_))));
        let unfinished = journal.id().to_owned();
        drop(journal);
        for _ in 0..MOST_KEPT + 5 {
            workflows.begin(start()).unwrap().end(Ending::Completed).unwrap();
        }
        let ids = workflows.ids();
        assert!(ids.len() <= MOST_KEPT && ids.contains(&unfinished), "{}", ids.len());
    }
}
