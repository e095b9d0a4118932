//! The journal of one workflow while it runs: what steps report is on disk before they are answered.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use codebridge_runtimes::random_hex;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::error::WorkflowError;
use super::line::{LONGEST_RESULT, Line, StepId, parse};

/// Bytes of a journal, steps of a workflow, and KiB of a command line.
const MOST_BYTES: u64 = 256 << 20;
const MOST_STEPS: usize = 100_000;
const LONGEST_START: usize = 256;
/// Bytes of a line that is read.
const LONGEST_LINE: usize = LONGEST_RESULT + (64 << 10) + (LONGEST_START << 10);
/// Characters of an error that are kept.
const LONGEST_ERROR: usize = 300;

/// What a workflow is a run of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The file as it was named.
    pub file: String,
    /// The hash of its content.
    pub code: String,
    /// The arguments of the script.
    pub arguments: Vec<String>,
}

impl Start {
    /// Returns what a workflow is a run of.
    pub fn new(file: String, code: &str, arguments: Vec<String>) -> Self {
        Self { file, code: hex::encode(Sha256::digest(code)), arguments }
    }
}

/// How a run of a workflow ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Completed,
    /// It can be resumed.
    Stopped {
        status: &'static str,
        error: Option<String>,
    },
}

/// The journal of a workflow that this process runs. It is locked as long as it is open.
#[derive(Debug)]
pub struct Journal {
    id: String,
    path: PathBuf,
    start: Start,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    /// Bytes of whole lines.
    length: u64,
    steps: HashMap<StepId, Step>,
    finished: usize,
    /// Why nothing can be written any more.
    failure: Option<String>,
}

#[derive(Debug, Default)]
struct Step {
    /// The hash of the arguments that it finished with.
    arguments: Option<String>,
    /// Where the line with its result is, and its length.
    result: Option<(u64, usize)>,
}

impl Journal {
    /// Starts the journal of a new workflow in a folder, which is made.
    pub(super) fn create(folder: &Path, start: Start) -> Result<Self, WorkflowError> {
        let Start { file, code, arguments } = start.clone();
        let line = encode(folder, &Line::Started { file, code, arguments, time: now() })?;
        if line.len() > LONGEST_START << 10 {
            return Err(WorkflowError::LongStart(line.len() >> 10));
        }
        let (id, path, file) = create_file(folder, &line).map_err(at(folder))?;
        let inner =
            Inner { file, length: line.len() as u64, steps: HashMap::new(), finished: 0, failure: None };
        Ok(Self { id, path, start, inner: Mutex::new(inner) })
    }

    /// Opens the journal of a workflow that is to be resumed. A line that a crash has cut off is removed.
    pub(super) fn open(id: &str, path: PathBuf) -> Result<Self, WorkflowError> {
        let file = open(&path, OpenOptions::new().read(true).append(true)).map_err(at(&path))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(WorkflowError::Running(id.to_owned()));
        }
        let (mut start, mut steps, mut completed) = (None, HashMap::<StepId, Step>::new(), false);
        let length = read_lines(&file, &path, |line, place| match line {
            Line::Started { file, code, arguments, .. } => start = Some(Start { file, code, arguments }),
            Line::Resumed { code, .. } => {
                if let Some(start) = &mut start {
                    start.code = code;
                }
            }
            Line::Begun { step, .. } => drop(steps.entry(step).or_default()),
            Line::Finished { step, arguments, .. } => {
                steps.insert(step, Step { arguments, result: Some(place) });
            }
            Line::Completed { .. } => completed = true,
            Line::Failed { .. } | Line::Stopped { .. } => {}
        })?;
        // Nothing of it was done.
        let start = start.ok_or_else(|| WorkflowError::Unknown { id: id.to_owned(), nearest: None })?;
        if completed {
            return Err(WorkflowError::Finished(id.to_owned()));
        }
        file.set_len(length).map_err(at(&path))?;
        let finished = steps.values().filter(|step| step.result.is_some()).count();
        let inner = Inner { file, length, steps, finished, failure: None };
        Ok(Self { id: id.to_owned(), path, start, inner: Mutex::new(inner) })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns what it is a run of, with the code of its last run.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Returns how many steps have reported their end.
    pub fn finished(&self) -> usize {
        self.lock().finished
    }

    /// Returns why steps cannot be journaled any more.
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Returns whether it was cancelled for good.
    pub fn is_cancelled(&self) -> bool {
        is_cancelled(&self.path)
    }

    /// Says that another run goes on, with this code.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn resume(&self, code: &str) -> Result<(), WorkflowError> {
        self.write(&mut self.lock(), &Line::Resumed { code: code.into(), time: now() }, true)
    }

    /// Begins a step. Returns its result if it has finished in this run or an earlier one.
    ///
    /// # Errors
    /// It finished with other arguments, there are too many steps, or the journal cannot be written.
    pub fn begin_step(
        &self,
        step: &StepId,
        arguments: Option<&str>,
    ) -> Result<Option<Box<RawValue>>, WorkflowError> {
        let mut inner = self.lock();
        if let Some(Step { arguments: before, result: Some(place) }) = inner.steps.get(step) {
            let differ = before.as_deref().zip(arguments).is_some_and(|(before, now)| before != now);
            return match differ {
                true => Err(WorkflowError::Changed(step.to_string())),
                false => self.result(&inner.file, *place).map(Some),
            };
        }
        if inner.steps.len() >= MOST_STEPS && !inner.steps.contains_key(step) {
            return Err(WorkflowError::TooManySteps(MOST_STEPS));
        }
        self.write(&mut inner, &Line::Begun { step: step.clone(), time: now() }, false)?;
        inner.steps.entry(step.clone()).or_default();
        Ok(None)
    }

    /// Journals the result of a step, which is on disk when this returns.
    ///
    /// # Errors
    /// It is too long, or cannot be written: the step has not finished then.
    pub fn finish_step(
        &self,
        step: &StepId,
        arguments: Option<&str>,
        result: &RawValue,
    ) -> Result<(), WorkflowError> {
        let bytes = result.get().len();
        if bytes > LONGEST_RESULT {
            return Err(WorkflowError::LongResult { step: step.to_string(), bytes });
        }
        // Between its tokens JSON may have line breaks.
        let one_line = result.get().contains(['\n', '\r']).then(|| result.get().replace(['\n', '\r'], " "));
        let one_line = one_line.and_then(|json| RawValue::from_string(json).ok());
        let result = one_line.as_deref().unwrap_or(result);
        let mut inner = self.lock();
        if inner.steps.get(step).is_some_and(|step| step.result.is_some()) {
            return Err(WorkflowError::Twice(step.to_string()));
        }
        let arguments = arguments.map(str::to_owned);
        let at = inner.length;
        let line = Line::Finished { step: step.clone(), arguments: arguments.clone(), result, time: now() };
        self.write(&mut inner, &line, true)?;
        let length = (inner.length - at) as usize - 1;
        inner.steps.insert(step.clone(), Step { arguments, result: Some((at, length)) });
        inner.finished += 1;
        Ok(())
    }

    /// Journals that an attempt of a step failed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn fail_step(&self, step: &StepId, attempt: u32, error: &str) -> Result<(), WorkflowError> {
        let line = Line::Failed { step: step.clone(), attempt, error: short(error), time: now() };
        self.write(&mut self.lock(), &line, false)
    }

    /// Journals the end of a run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(&self, ending: Ending) -> Result<(), WorkflowError> {
        let line = match ending {
            Ending::Completed => Line::Completed { time: now() },
            Ending::Stopped { status, error } => {
                Line::Stopped { status: status.into(), error: error.as_deref().map(short), time: now() }
            }
        };
        self.write(&mut self.lock(), &line, true)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn result(&self, file: &File, (start, length): (u64, usize)) -> Result<Box<RawValue>, WorkflowError> {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, start).map_err(at(&self.path))?;
        match parse(&bytes) {
            Some(Line::Finished { result, .. }) => Ok(result.to_owned()),
            _ => {
                Err(WorkflowError::Io { path: self.path.clone(), source: io::ErrorKind::InvalidData.into() })
            }
        }
    }

    /// Appends a line; after a failure nothing more, because the line may be there in part.
    fn write(&self, inner: &mut Inner, line: &Line<'_>, to_disk: bool) -> Result<(), WorkflowError> {
        if let Some(failure) = &inner.failure {
            return Err(WorkflowError::Stopped(failure.clone()));
        }
        let line = encode(&self.path, line)?;
        if inner.length + line.len() as u64 > MOST_BYTES {
            return Err(WorkflowError::Full(MOST_BYTES));
        }
        let written = inner.file.write_all(&line).and_then(|()| match to_disk {
            true => inner.file.sync_data(),
            false => Ok(()),
        });
        if let Err(source) = written {
            let error = WorkflowError::Io { path: self.path.clone(), source };
            inner.failure = Some(error.to_string());
            return Err(error);
        }
        inner.length += line.len() as u64;
        Ok(())
    }
}

fn encode(path: &Path, line: &Line<'_>) -> Result<Vec<u8>, WorkflowError> {
    line.encode().map_err(|error| at(path)(error.into()))
}

pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> WorkflowError + '_ {
    |source| WorkflowError::Io { path: path.to_owned(), source }
}

/// Makes a locked journal with its first line, which is on disk when this returns.
fn create_file(folder: &Path, line: &[u8]) -> io::Result<(String, PathBuf, File)> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let id = random_hex::<4>();
    let path = path_of(folder, &id);
    let mut file = open(&path, OpenOptions::new().read(true).append(true).create_new(true).mode(0o600))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    file.write_all(line)?;
    file.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok((id, path, file))
}

pub(super) fn path_of(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.journal"))
}

/// Returns the file whose existence says that a workflow was cancelled.
pub(super) fn cancellation_of(journal: &Path) -> PathBuf {
    journal.with_extension("cancelled")
}

pub(super) fn is_cancelled(journal: &Path) -> bool {
    cancellation_of(journal).exists()
}

pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32).open(path)
}

/// Reads the whole lines of a journal, each with its place and its length without its end. Returns their bytes.
pub(super) fn read_lines(
    file: &File,
    path: &Path,
    mut each: impl FnMut(Line<'_>, (u64, usize)),
) -> Result<u64, WorkflowError> {
    let (mut reader, mut bytes) = (BufReader::new(file), Vec::new());
    let (mut length, mut number) = (0, 0);
    loop {
        bytes.clear();
        number += 1;
        let limit = LONGEST_LINE as u64 + 1;
        let size = io::Read::take(&mut reader, limit).read_until(b'\n', &mut bytes).map_err(at(path))?;
        match bytes.split_last() {
            Some((b'\n', line)) => {
                let damaged = || WorkflowError::Damaged { path: path.to_owned(), line: number };
                each(parse(line).ok_or_else(damaged)?, (length, line.len()));
                length += size as u64;
            }
            Some(_) if size as u64 == limit => {
                return Err(WorkflowError::Damaged { path: path.to_owned(), line: number });
            }
            // What a crash has cut off was never reported.
            _ => return Ok(length),
        }
    }
}

fn short(error: &str) -> String {
    error.chars().take(LONGEST_ERROR).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
