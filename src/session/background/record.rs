//! What runs in the background have printed, on disk: it stays when their bridge ends.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::session::Status;

/// The folder of the records in the state folder.
const FOLDER: &str = "runs";
/// Bytes of the lines of one run, and runs that are kept.
const MOST_WRITTEN: usize = 16 << 20;
const MOST_RUNS: usize = 50;
/// Progress is written at most once in this time: bars change many times in a second.
const PROGRESS_PACE: Duration = Duration::from_secs(1);
/// Bytes of output of a run in a list.
const LISTED: usize = 4 << 10;
/// Bytes of a file that is read: one line may be longer than what is left.
const LONGEST: u64 = 4 * MOST_WRITTEN as u64;

/// One line of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    /// The first one. The time is in seconds since 1970.
    Began {
        session: String,
        time: u64,
    },
    Output(String),
    Progress(String),
    /// The output after this has no space.
    Full,
    /// The last one.
    Ended {
        status: String,
        error: Option<String>,
        time: u64,
    },
}

/// The records of all bridges with a state folder.
#[derive(Debug)]
pub struct Records {
    folder: PathBuf,
}

/// A record that is being written. It is locked as long as its bridge lives.
#[derive(Debug)]
pub(in crate::session) struct Record {
    file: File,
    /// Bytes of its lines.
    written: usize,
    /// When progress was written last, and what came since.
    progress_written: Option<Instant>,
    waiting: Option<String>,
}

/// How a run of a record stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedState {
    Running,
    /// `success`, `error`, `timeout` or `cancelled`.
    Ended {
        status: String,
        error: Option<String>,
    },
    /// Its bridge ended first.
    Lost,
}

/// A run as its record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRun {
    /// The bridge and the number of the run.
    pub name: String,
    pub session: String,
    /// In seconds since 1970.
    pub began: u64,
    /// When it ended, as far as that is known.
    pub ended: Option<u64>,
    pub state: RecordedState,
    pub progress: Option<String>,
    pub output: String,
    /// Whether there was more output than is kept.
    pub is_cut: bool,
}

impl Records {
    /// Returns those of a state folder. Nothing is made before the first run.
    pub fn at(state: &Path) -> Self {
        Self { folder: state.join(FOLDER) }
    }

    /// Begins the record of a run, which the audit log names in the same way; None if it cannot be written, which is logged.
    pub(in crate::session) fn begin(&self, name: &str, session: &str) -> Option<Record> {
        let path = self.folder.join(format!("{name}.jsonl"));
        let begin = || -> io::Result<Record> {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            self.remove_oldest();
            let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            let mut record = Record { file, written: 0, progress_written: None, waiting: None };
            record.write(&Line::Began { session: session.to_owned(), time: now() })?;
            Ok(record)
        };
        begin()
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "could not record a run"))
            .ok()
    }

    fn remove_oldest(&self) {
        let mut files: Vec<(SystemTime, PathBuf)> = self.files().collect();
        files.sort();
        let surplus = files.len().saturating_sub(MOST_RUNS - 1);
        for (_, path) in files.into_iter().take(surplus) {
            let is_running = File::open(&path).is_ok_and(|file| is_locked(&file));
            if !is_running {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn files(&self) -> impl Iterator<Item = (SystemTime, PathBuf)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "jsonl")).filter_map(
            |entry| {
                let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                Some((metadata.modified().ok()?, entry.path()))
            },
        )
    }

    /// Returns a run with all its output; None if there is none of that name.
    pub fn get(&self, name: &str) -> Option<RecordedRun> {
        let path = self
            .files()
            .map(|(_, path)| path)
            .find(|path| path.file_stem().is_some_and(|stem| stem == name))?;
        read(&path, usize::MAX)
    }

    /// Returns all runs, oldest first, with the end of their output.
    pub fn list(&self) -> Vec<RecordedRun> {
        let mut runs: Vec<RecordedRun> = self.files().filter_map(|(_, path)| read(&path, LISTED)).collect();
        runs.sort_by(|a, b| (a.began, &a.name).cmp(&(b.began, &b.name)));
        runs
    }
}

impl Record {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut json = serde_json::to_vec(line)?;
        json.push(b'\n');
        self.written += json.len();
        self.file.write_all(&json)
    }

    /// Keeps output, as much as there is space for. A full disk loses the rest, not the run.
    pub(super) fn output(&mut self, bytes: &[u8]) {
        // Code decides how many pieces there are, and an empty one is a line too.
        if !bytes.is_empty() {
            self.keep(&Line::Output(String::from_utf8_lossy(bytes).into_owned()));
        }
    }

    /// Writes a line if there is space, and says once that there is none any more.
    fn keep(&mut self, line: &Line) {
        if self.written >= MOST_WRITTEN {
            return;
        }
        let _ = self.write(line);
        if self.written >= MOST_WRITTEN {
            let _ = self.write(&Line::Full);
        }
    }

    /// Takes progress, and writes it unless the last one was written a moment ago.
    pub(super) fn progress(&mut self, progress: &str) {
        self.waiting = Some(progress.to_owned());
        if self.progress_due().is_some_and(|due| due <= Instant::now()) {
            self.write_progress();
        }
    }

    /// Returns when progress that waits may be written.
    pub(super) fn progress_due(&self) -> Option<Instant> {
        self.waiting.as_ref()?;
        Some(self.progress_written.map_or_else(Instant::now, |last| last + PROGRESS_PACE))
    }

    /// Writes the last progress, if it waits.
    pub(super) fn write_progress(&mut self) {
        if let Some(progress) = self.waiting.take() {
            self.keep(&Line::Progress(progress));
            self.progress_written = Some(Instant::now());
        }
    }

    pub(super) fn end(mut self, status: Status, error: Option<&str>) {
        self.write_progress();
        let error = error.map(str::to_owned);
        let _ = self.write(&Line::Ended { status: status.name().to_owned(), error, time: now() });
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn is_locked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared).is_err()
}

/// Reads a record with at least so many bytes of the end of its output; None if it is none. A line that was cut off is the last one.
fn read(path: &Path, most: usize) -> Option<RecordedRun> {
    let file = File::open(path).ok()?;
    let is_running = is_locked(&file);
    let mut lines = BufReader::new(file.take(LONGEST)).split(b'\n');
    let mut next = || serde_json::from_slice::<Line>(&lines.next()?.ok()?).ok();
    let Some(Line::Began { session, time }) = next() else { return None };
    let mut run = RecordedRun {
        name: path.file_stem()?.to_str()?.to_owned(),
        session,
        began: time,
        ended: None,
        state: if is_running { RecordedState::Running } else { RecordedState::Lost },
        progress: None,
        output: String::new(),
        is_cut: false,
    };
    while let Some(line) = next() {
        match line {
            Line::Output(text) => {
                run.output.push_str(&text);
                if run.output.len() > most.saturating_mul(2) {
                    let from = run.output.len() - most;
                    let from = (from..).find(|at| run.output.is_char_boundary(*at)).unwrap_or(from);
                    run.output.drain(..from);
                }
            }
            Line::Progress(text) => run.progress = Some(text),
            Line::Full => run.is_cut = true,
            Line::Ended { status, error, time } => {
                (run.state, run.ended) = (RecordedState::Ended { status, error }, Some(time));
            }
            Line::Began { .. } => break,
        }
    }
    Some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_how_a_run_stands_and_what_it_printed() {
        let state = tempfile::tempdir().unwrap();
        let records = Records::at(state.path());
        let mut running = records.begin("b-1", "main").unwrap();
        running.output(b"one\n");
        running.progress("1/2");
        for n in 0..1000 {
            running.progress(&format!("{n}/1000"));
        }
        assert!(running.written < 200, "each of a thousand is written: {}", running.written);
        let due = running.progress_due().unwrap();
        assert!(due > Instant::now() && due <= Instant::now() + PROGRESS_PACE);
        let mut ended = records.begin("b-2", "other").unwrap();
        ended.output(b"\x1b[2J\xff");
        ended.end(Status::Error, Some("ValueError: x"));
        let list = records.list();
        let of = |name: &str| list.iter().find(|run| run.name == name).unwrap();
        assert_eq!((&of("b-1").state, &*of("b-1").output), (&RecordedState::Running, "one\n"));
        assert_eq!(of("b-1").progress.as_deref(), Some("1/2"));
        running.write_progress();
        assert_eq!(records.get("b-1").unwrap().progress.as_deref(), Some("999/1000"));
        assert_eq!(running.progress_due(), None);
        let failed = RecordedState::Ended { status: "error".into(), error: Some("ValueError: x".into()) };
        assert_eq!((&of("b-2").state, &*of("b-2").output), (&failed, "\x1b[2J\u{fffd}"));
        drop(running);
        assert_eq!(records.list().iter().find(|run| run.name == "b-1").unwrap().state, RecordedState::Lost);
    }

    #[test]
    fn records_are_bounded() {
        let state = tempfile::tempdir().unwrap();
        let records = Records::at(state.path());
        let mut long = records.begin("b-0", "main").unwrap();
        for _ in 0..20 {
            long.output(&vec![b'x'; 1 << 20]);
            long.output(b"");
        }
        long.end(Status::Success, None);
        let list = records.list();
        assert!(list[0].output.len() <= 2 * LISTED);
        let whole = records.get("b-0").unwrap();
        assert_eq!((whole.output.len(), whole.is_cut), (16 << 20, true));
        assert_eq!(records.get("b-"), None);
        assert!(matches!(list[0].state, RecordedState::Ended { .. }));
        for run in 1..=MOST_RUNS as u32 {
            records.begin(&format!("b-{run}"), "main").unwrap().end(Status::Success, None);
        }
        assert_eq!(records.list().len(), MOST_RUNS);
    }
}
