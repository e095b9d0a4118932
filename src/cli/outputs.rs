//! `exec --out`: copies what a run has left into a folder of the user: displayed objects, artifacts, changed files.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use codebridge_runtimes::exec::visible_line;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::folder::{Folder, NewFile, WriteError};
use super::say::say;
use crate::artifacts::{Artifact, Artifacts};
use crate::server::{files_line, saved_line};
use crate::session::{ChangedFile, Display, FileError, FilePart, RunOutcome, RunPython, RunRequest};
use crate::sizes::bytes_text;

/// Files that standard error names; the others are counted.
const MOST_NAMED: usize = 20;
const CHUNK: usize = 256 << 10;
/// How long copying files of the session takes at most, and how much longer for each so many bytes.
const GRACE: Duration = Duration::from_secs(60);
const BYTES_PER_SECOND: u64 = 256 << 10;
/// Forms of displayed objects that become files, the one that is taken first.
const FORMS: [(&str, &str); 8] = [
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/svg+xml", "svg"),
    ("text/csv", "csv"),
    ("text/html", "html"),
    ("text/markdown", "md"),
    ("text/latex", "tex"),
    ("application/json", "json"),
];

/// What was copied.
#[derive(Debug, Default)]
struct Copied {
    /// Paths below the folder, and their sizes.
    written: Vec<(PathBuf, u64)>,
    errors: Vec<WriteError>,
    /// Files that were not tried after the sandbox did not answer for one.
    not_tried: usize,
}

/// What limits copying files of the session.
struct Limits {
    bytes: u64,
    grace: Duration,
}

/// The session of a run whose files are read after it.
pub(super) fn session(out: Option<&Path>) -> String {
    if out.is_some() { RunRequest::DEFAULT_SESSION } else { RunRequest::THROW_AWAY }.to_owned()
}

/// Copies what the run has left, and says so on standard error. Returns whether everything was copied. Of `/workspace`, whose
/// files may be sparse, it copies no more bytes than `budget`. Cancelling `stop` ends it: what was written stays.
pub(super) async fn copy(
    sessions: &impl RunPython,
    outcome: &RunOutcome,
    folder: &Folder,
    budget: u64,
    stop: &CancellationToken,
) -> bool {
    let mut copied = Copied::default();
    for (index, display) in outcome.displays.iter().enumerate() {
        let result = copy_display(sessions, folder, outcome.run_id, index + 1, display);
        copied.add(result.transpose());
    }
    let mut artifacts = HashMap::new();
    for artifact in &outcome.artifacts {
        artifacts.insert(artifact.name.as_bytes(), artifact.bytes);
        let begin = || folder.file(artifact.name.as_bytes());
        copied.add(Some(copy_content(sessions.artifacts(), artifact, begin)));
    }
    // The artifact that was made of a file is that file.
    let files = outcome.files.files.iter().filter(|file| artifacts.get(&*file.path) != Some(&file.bytes));
    let limits = Limits { bytes: budget, grace: GRACE };
    copied.add_files(sessions, folder, files, limits, stop).await;
    if outcome.files.is_cut {
        copied.errors.push(WriteError::Source {
            name: "/workspace".into(),
            why: "it has too many files: those that were not looked at are missing".into(),
        });
    }
    copied.report()
}

impl Copied {
    /// Copies files of the session. After the first that the sandbox does not answer for, it is not asked for the others.
    async fn add_files(
        &mut self,
        sessions: &impl RunPython,
        folder: &Folder,
        mut files: impl Iterator<Item = &ChangedFile>,
        limits: Limits,
        stop: &CancellationToken,
    ) {
        let (mut left, mut copied, begun) = (limits.bytes, 0, Instant::now());
        while let Some(file) = files.next() {
            // Code that answers in small parts would never end.
            let seconds = (copied + file.bytes.min(left)) / BYTES_PER_SECOND;
            let deadline = begun + limits.grace + Duration::from_secs(seconds);
            let given_up = |why: &str| Err(CopyError::GivenUp(why.into()));
            let result = tokio::select! {
                biased;
                () = stop.cancelled() => given_up("it was stopped"),
                result = copy_file(sessions, folder, file, left) => result,
                () = tokio::time::sleep_until(deadline) => given_up("the sandbox is too slow"),
            };
            match result {
                Ok(written) => {
                    left = left.saturating_sub(written.1);
                    copied += written.1;
                    self.written.push(written);
                }
                Err(CopyError::Write(error)) => self.errors.push(error),
                Err(CopyError::GivenUp(why)) => {
                    self.errors.push(WriteError::Source { name: file.shown_path(), why });
                    self.not_tried = files.by_ref().count();
                }
            }
        }
    }

    fn add(&mut self, result: Option<Result<(PathBuf, u64), WriteError>>) {
        match result {
            Some(Ok(written)) => self.written.push(written),
            Some(Err(error)) => self.errors.push(error),
            None => {}
        }
    }

    fn report(self) -> bool {
        for (path, bytes) in self.written.iter().take(MOST_NAMED) {
            say(format_args!("wrote {} ({})", path.display(), bytes_text(*bytes)));
        }
        if self.written.len() > MOST_NAMED {
            say(format_args!("wrote {} more files", self.written.len() - MOST_NAMED));
        }
        for error in self.errors.iter().take(MOST_NAMED) {
            say(format_args!("error: {error}"));
        }
        let more = self.errors.len().saturating_sub(MOST_NAMED) + self.not_tried;
        if more > 0 {
            say(format_args!("error: could not write {more} more files"));
        }
        if let Some(hint) = self.errors.iter().find_map(WriteError::hint) {
            say(format_args!("hint: {hint}"));
        }
        self.errors.is_empty()
    }
}

/// Why a file of the session was not copied.
enum CopyError {
    Write(WriteError),
    /// The others cannot be copied either.
    GivenUp(String),
}

impl From<WriteError> for CopyError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

fn finish(file: NewFile) -> Result<(PathBuf, u64), WriteError> {
    let bytes = file.bytes;
    Ok((file.finish()?, bytes))
}

/// Copies the form of a displayed object that people look at; None if it has no such form.
fn copy_display(
    sessions: &impl RunPython,
    folder: &Folder,
    run: u32,
    number: usize,
    display: &Display,
) -> Result<Option<(PathBuf, u64)>, WriteError> {
    let has = |(mime, _): &&(&str, &str)| display.forms.iter().any(|form| form.mime == *mime);
    let Some((mime, extension)) = FORMS.iter().find(has) else { return Ok(None) };
    let forms = sessions.display(run, number).unwrap_or_default();
    let Some((_, data)) = forms.iter().find(|(known, _)| known == mime) else { return Ok(None) };
    let mut file = folder.file(format!("display-{number}.{extension}").as_bytes())?;
    file.write(data)?;
    finish(file).map(Some)
}

/// Copies the content of an artifact into a file, a piece at a time.
pub(super) fn copy_content(
    artifacts: &Artifacts,
    artifact: &Artifact,
    begin: impl FnOnce() -> Result<NewFile, WriteError>,
) -> Result<(PathBuf, u64), WriteError> {
    let failed = |why: String| WriteError::Source { name: visible_line(&artifact.name), why };
    let mut content = artifacts.open(artifact).map_err(|error| failed(error.to_string()))?;
    let mut file = begin()?;
    let mut chunk = vec![0; CHUNK];
    loop {
        match content.read(&mut chunk).map_err(|error| failed(error.to_string()))? {
            0 => return finish(file),
            size => file.write(&chunk[..size])?,
        }
    }
}

/// Copies a file of the session, a part at a time.
async fn copy_file(
    sessions: &impl RunPython,
    folder: &Folder,
    changed: &ChangedFile,
    left: u64,
) -> Result<(PathBuf, u64), CopyError> {
    if changed.bytes > left {
        let (bytes, left) = (bytes_text(changed.bytes), bytes_text(left));
        return Err(WriteError::TooLarge { name: changed.shown_path(), bytes, left }.into());
    }
    // Before the file, and the folders that it is in: there may be none.
    let mut part = read_part(sessions, changed, 0).await?;
    let mut file = folder.file(&changed.path)?;
    loop {
        // A file that grows for ever is copied as far as it was reported.
        let missing = usize::try_from(changed.bytes - file.bytes).unwrap_or(usize::MAX);
        let size = part.bytes.len().min(missing);
        file.write(&part.bytes[..size])?;
        if size == 0 || size == missing {
            return Ok(finish(file)?);
        }
        part = read_part(sessions, changed, file.bytes).await?;
    }
}

async fn read_part(
    sessions: &impl RunPython,
    changed: &ChangedFile,
    start: u64,
) -> Result<FilePart, CopyError> {
    let part = sessions.file(RunRequest::DEFAULT_SESSION, &changed.path, start).await;
    part.map_err(|error| match error {
        FileError::TimedOut | FileError::Ended | FileError::NoSession(_) => {
            CopyError::GivenUp(error.to_string())
        }
        error => WriteError::Source { name: changed.shown_path(), why: error.to_string() }.into(),
    })
}

/// Drops what was copied from the result: nobody can read it at its addresses any more.
pub(super) fn forget(outcome: &mut RunOutcome) {
    outcome.displays.clear();
    outcome.files.files.iter_mut().for_each(|file| file.uri = None);
}

/// Says what the run has saved, and which files end with the sandbox.
pub(super) fn note(outcome: &mut RunOutcome, is_copied: bool) {
    outcome.notices.extend(outcome.artifacts.iter().take(MOST_NAMED).map(saved_line));
    if let Some(line) = files_line(&outcome.files).filter(|_| !is_copied) {
        outcome.notices.push(format!("{line}; they end with this run, --out DIR keeps them"));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fake_sessions::{FakeSessions, outcome};
    use crate::session::Status;

    fn limits(bytes: u64) -> Limits {
        Limits { bytes, grace: GRACE }
    }

    #[tokio::test]
    async fn files_are_copied_in_parts_and_existing_ones_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = FakeSessions::default();
        let content = vec![b'x'; 700_000];
        let file = |path: &str, bytes| ChangedFile { path: path.into(), bytes, uri: None };
        for path in ["a/big", "mine"] {
            sessions.files.lock().unwrap().push(("main".into(), path.into(), content.clone()));
        }
        fs::write(dir.path().join("mine"), "old").unwrap();
        let mut ran = outcome(Status::Success, "");
        ran.files.files = vec![file("a/big", 700_000), file("mine", 700_000), file("b/gone", 1)];
        let folder = Folder::create(dir.path(), false).unwrap();
        let stop = CancellationToken::new();
        assert!(!copy(&sessions, &ran, &folder, u64::MAX, &stop).await);
        assert_eq!(fs::read(dir.path().join("a/big")).unwrap(), content);
        assert_eq!(fs::read(dir.path().join("mine")).unwrap(), b"old");
        assert!(!dir.path().join("b").exists(), "a folder was made for a file that does not exist");
        ran.files.files.pop();
        let forced = Folder::create(dir.path(), true).unwrap();
        assert!(copy(&sessions, &ran, &forced, 1_400_000, &stop).await);
        assert_eq!(fs::read(dir.path().join("mine")).unwrap(), content);
    }

    #[tokio::test]
    async fn a_file_above_the_budget_is_refused_before_a_byte_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = FakeSessions::default();
        for path in ["a", "sparse", "b", "c"] {
            sessions.files.lock().unwrap().push(("main".into(), path.into(), vec![b'x'; 600]));
        }
        let file = |path: &str, bytes| ChangedFile { path: path.into(), bytes, uri: None };
        let files = [file("a", 600), file("sparse", 1 << 40), file("b", 400), file("c", 1)];
        let mut copied = Copied::default();
        let folder = Folder::create(dir.path(), false).unwrap();
        copied.add_files(&sessions, &folder, files.iter(), limits(1000), &CancellationToken::new()).await;
        let errors: Vec<_> = copied.errors.iter().map(ToString::to_string).collect();
        assert!(errors[0].contains("'sparse'") && errors[0].contains("400 B more"), "{errors:?}");
        assert_eq!(errors.len(), 2, "{errors:?}");
        // What grew since is copied as far as it was reported.
        assert_eq!(fs::read(dir.path().join("b")).unwrap().len(), 400);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn a_copy_ends_when_it_is_stopped_or_the_sandbox_is_silent() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str| ChangedFile { path: path.into(), bytes: 1, uri: None };
        let files = [file("a"), file("b"), file("c")];
        let folder = Folder::create(dir.path(), false).unwrap();
        let sessions = FakeSessions::default();
        sessions.files.lock().unwrap().push(("main".into(), "a".into(), b"x".to_vec()));
        for path in ["b", "c"] {
            sessions.silent.lock().unwrap().push(path.into());
        }
        // The second file hangs until the token ends it.
        let stop = CancellationToken::new();
        let mut copied = Copied::default();
        let stopping = async {
            sessions.asked_silent.notified().await;
            stop.cancel();
        };
        tokio::join!(copied.add_files(&sessions, &folder, files.iter(), limits(9), &stop), stopping);
        let errors: Vec<_> = copied.errors.iter().map(ToString::to_string).collect();
        assert!(errors[0].contains("'b'") && errors[0].ends_with("it was stopped"), "{errors:?}");
        assert_eq!((errors.len(), copied.not_tried), (1, 1));
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"x");
        let names = fs::read_dir(dir.path()).unwrap();
        assert_eq!(names.count(), 1, "half a file is left");
        // The session of the first one is gone: the second is not asked for.
        let files = [file("gone"), file("c")];
        let mut copied = Copied::default();
        copied.add_files(&sessions, &folder, files.iter(), limits(9), &CancellationToken::new()).await;
        assert_eq!((copied.errors.len(), copied.not_tried), (1, 1));
        // Nor is it awaited for ever.
        let files = [file("b"), file("c")];
        let mut copied = Copied::default();
        let limits = Limits { bytes: 9, grace: Duration::ZERO };
        copied.add_files(&sessions, &folder, files.iter(), limits, &CancellationToken::new()).await;
        assert!(copied.errors[0].to_string().ends_with("the sandbox is too slow"), "{:?}", copied.errors);
        assert_eq!((copied.errors.len(), copied.not_tried), (1, 1));
    }
}
