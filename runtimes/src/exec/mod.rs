//! The only place that starts processes.
//!
//! Children are hermetic: an absolute program, a cleared environment plus an allow-list, `LC_MESSAGES=C` so that
//! messages can be parsed, a process group of their own, and a null stdin unless it is used. Their output is captured within
//! bounds, and [`terminate`] ends them.

mod command_line;
mod stream_tail;
#[cfg(test)]
mod tests;
mod visible;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use crate::secrets;

pub use command_line::CommandLine;
pub use stream_tail::StreamTail;
pub use visible::{visible, visible_between_controls, visible_json, visible_line};

/// Bytes kept of each stream of a helper command; the rest is read and dropped.
const CAPTURE_LIMIT: usize = 1 << 20;
/// Characters of each stream that go into an error.
const TAIL_LIMIT: usize = 2_000;

/// A helper command that ended by itself.
#[derive(Debug)]
pub struct Finished {
    pub command: CommandLine,
    pub status: ExitStatus,
    pub elapsed: Duration,
    /// The first part of its standard output.
    pub stdout: Vec<u8>,
    /// The first part of its standard error.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// Returns its standard error as trimmed text.
    pub fn stderr_text(&self) -> String {
        secrets::hide(String::from_utf8_lossy(&self.stderr).trim())
    }

    /// Returns an error unless the exit status is success.
    pub fn success(self) -> Result<Self, ExecError> {
        if self.status.success() { Ok(self) } else { Err(ExecError::Failed(Box::new(self.into()))) }
    }
}

/// A command that failed, with everything that shows why.
#[derive(Debug)]
pub struct FailedCommand {
    pub command: CommandLine,
    pub status: ExitStatus,
    pub elapsed: Duration,
    /// The last lines of its standard output.
    pub stdout_tail: String,
    /// The last lines of its standard error.
    pub stderr_tail: String,
}

impl From<Finished> for FailedCommand {
    fn from(done: Finished) -> Self {
        Self {
            stdout_tail: tail(&done.stdout),
            stderr_tail: tail(&done.stderr),
            command: done.command,
            status: done.status,
            elapsed: done.elapsed,
        }
    }
}

impl fmt::Display for FailedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ended with {} after {:.1?}", self.command, self.status, self.elapsed)?;
        for text in [&self.stderr_tail, &self.stdout_tail] {
            if !text.is_empty() {
                write!(f, ": {text}")?;
                break;
            }
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("could not start `{command}`: {source}")]
    Start { command: CommandLine, source: io::Error },
    #[error("`{command}` did not end within {limit:?}{}", after_colon(.stderr_tail))]
    TimedOut {
        command: CommandLine,
        limit: Duration,
        /// The last lines of its standard error until then.
        stderr_tail: String,
    },
    #[error("{0}")]
    Failed(Box<FailedCommand>),
    #[error("could not read the output of `{command}`: {source}")]
    Read { command: CommandLine, source: io::Error },
}

/// Returns a message as the end of a sentence; nothing when it is empty.
pub(crate) fn after_colon(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// Runs a helper command to its end. After `limit` it is terminated, and that is an error.
///
/// Any exit status is a value: see [`Finished::success`].
pub async fn run(command: CommandLine, limit: Duration) -> Result<Finished, ExecError> {
    run_with_input(command, Vec::new(), limit).await
}

/// Runs a helper command as [`run`] does, with this standard input.
pub async fn run_with_input(
    command: CommandLine,
    input: Vec<u8>,
    limit: Duration,
) -> Result<Finished, ExecError> {
    let prepared = command.command();
    run_prepared(command, prepared, input, limit, |_| {}).await
}

/// Runs a helper command as [`run`] does, in exactly this environment and in this folder. The environment may contain
/// credentials, so it is not logged. `started` gets its process group.
pub async fn run_in<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    command: CommandLine,
    environment: impl IntoIterator<Item = (K, V)>,
    folder: &Path,
    limit: Duration,
    started: impl FnOnce(Pid),
) -> Result<Finished, ExecError> {
    let mut prepared = command.command();
    prepared.env_clear().envs(environment).current_dir(folder);
    run_prepared(command, prepared, Vec::new(), limit, started).await
}

async fn run_prepared(
    command: CommandLine,
    mut prepared: Command,
    input: Vec<u8>,
    limit: Duration,
    watch: impl FnOnce(Pid),
) -> Result<Finished, ExecError> {
    let started = Instant::now();
    prepared.stdout(Stdio::piped()).stderr(Stdio::piped());
    if !input.is_empty() {
        prepared.stdin(Stdio::piped());
    }
    tracing::debug!(command = %command, "run");
    let mut child = start(prepared, &command)?;
    let group = group_of(&child);
    let mut abandoned = KillWhenDropped(group);
    if let Some(group) = group {
        watch(group);
    }
    let stdin = child.stdin.take();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let streams = async {
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command that does not read its input shows that by its exit status.
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stdin, &input).await;
            }
        };
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (_, out, err) = tokio::join!(feed, capture(out, &mut stdout), capture(err, &mut stderr));
        out.and(err)?;
        child.wait().await
    };
    let ended = tokio::time::timeout(limit, streams).await;
    let result = match ended {
        Ok(Ok(status)) => Ok(Finished { command, status, elapsed: started.elapsed(), stdout, stderr }),
        Ok(Err(source)) => {
            terminate(&mut child, group, Duration::ZERO).await;
            Err(ExecError::Read { command, source })
        }
        Err(_) => {
            terminate(&mut child, group, Duration::from_millis(500)).await;
            Err(ExecError::TimedOut { command, limit, stderr_tail: tail(&stderr) })
        }
    };
    abandoned.0 = None;
    result
}

/// Kills the group of a helper command that its caller no longer waits for; tokio reaps the child.
struct KillWhenDropped(Option<Pid>);

impl Drop for KillWhenDropped {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Starts a child with pipes for its three standard streams.
pub fn spawn_piped(command: &CommandLine) -> Result<Child, ExecError> {
    spawn_piped_in(command, None)
}

/// Starts a child as [`spawn_piped`] does, in this folder if there is one.
pub fn spawn_piped_in(command: &CommandLine, folder: Option<&Path>) -> Result<Child, ExecError> {
    let mut prepared = command.command();
    if let Some(folder) = folder {
        command_line::move_to(&mut prepared, folder);
    }
    prepared.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    tracing::debug!(command = %command, "spawn");
    start(prepared, command)
}

fn start(mut prepared: Command, command: &CommandLine) -> Result<Child, ExecError> {
    prepared.spawn().map_err(|source| ExecError::Start { command: command.clone(), source })
}

/// Starts a child with pipes in exactly this environment, and in this folder if there is one. Its arguments come from the user
/// and may contain credentials, so they are not logged.
///
/// # Errors
/// The program could not be started.
pub fn spawn_in<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    command: &CommandLine,
    environment: impl IntoIterator<Item = (K, V)>,
    folder: Option<&Path>,
) -> io::Result<Child> {
    let mut prepared = command.command();
    prepared.env_clear().envs(environment);
    if let Some(folder) = folder {
        prepared.current_dir(folder);
    }
    prepared.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    tracing::debug!(program = %command.program.display(), "spawn");
    prepared.spawn()
}

/// Starts a child that outlives this process. Its stdin is a pipe, its other streams are null.
pub fn spawn_reaper(command: &CommandLine) -> Result<Child, ExecError> {
    let mut prepared = command.command();
    prepared.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    start(prepared, command)
}

/// Starts a child that nobody waits for. It leads no process group, so that it can start a session of its own.
pub fn spawn_detached(command: &CommandLine) -> Result<(), ExecError> {
    let mut prepared = command.bare();
    prepared.stdout(Stdio::null()).stderr(Stdio::null());
    start(prepared, command).map(drop)
}

/// Starts a program for the person, such as a browser, that nobody waits for. It sees the whole environment, and outlives this
/// process.
pub fn spawn_for_person(command: &CommandLine) -> Result<(), ExecError> {
    let mut prepared = command.command();
    prepared.envs(std::env::vars_os());
    prepared.stdout(Stdio::null()).stderr(Stdio::null());
    start(prepared, command).map(drop)
}

/// Shows text in a pager on this process's terminal, and waits until the pager exits.
///
/// The pager stays in this process group, which owns the terminal, and sees the whole environment. A pager that exits
/// before it has read everything is no error.
pub async fn run_pager(command: &CommandLine, text: &[u8]) -> Result<(), ExecError> {
    let mut prepared = command.bare();
    prepared.envs(std::env::vars_os());
    prepared.stdin(Stdio::piped()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut child = start(prepared, command)?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stdin, text).await;
    }
    let waited = child.wait().await;
    waited.map(drop).map_err(|source| ExecError::Read { command: command.clone(), source })
}

/// Reads a stream to its end and keeps the first [`CAPTURE_LIMIT`] bytes.
async fn capture(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) -> io::Result<()> {
    let Some(mut stream) = stream else { return Ok(()) };
    let mut chunk = vec![0; 16 << 10];
    loop {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Ok(());
        }
        let left = CAPTURE_LIMIT.saturating_sub(kept.len());
        kept.extend_from_slice(&chunk[..count.min(left)]);
    }
}

/// Returns the text of another program for our messages and logs, without control characters and credentials.
pub fn printable(text: &str) -> String {
    visible(&secrets::hide(text))
}

/// Returns the last lines of some output, for an error message.
pub(crate) fn tail(bytes: &[u8]) -> String {
    let text = printable(&String::from_utf8_lossy(bytes));
    let text = text.trim();
    match text.char_indices().rev().nth(TAIL_LIMIT) {
        Some((start, _)) => format!("…{}", &text[start..]),
        None => text.to_string(),
    }
}

/// Returns the process group of a child of ours.
pub fn group_of(child: &Child) -> Option<Pid> {
    // Never another group: 1 and below have special meanings for kill(2).
    child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).filter(|pid| pid.as_raw_nonzero().get() > 1)
}

/// Ends a child and its group: TERM, up to `grace` for its exit, then KILL. The child is always reaped.
pub async fn terminate(child: &mut Child, group: Option<Pid>, grace: Duration) {
    let Some(group) = group else { return };
    if !grace.is_zero() && kill_process_group(group, Signal::TERM).is_ok() {
        let _ = tokio::time::timeout(grace, child.wait()).await;
    }
    // Also when the leader has exited: its group may have members that ignored TERM.
    if test_kill_process_group(group).is_ok() {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait().await;
}

/// Finds a program by name in PATH, or takes a path as it is. Entries of PATH that are not absolute do not count: the working
/// directory may be somebody else's work.
pub fn find_program(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in_absolute(name, &path)
}

fn find_in_absolute(name: &Path, path: &OsStr) -> Option<PathBuf> {
    let absolute = std::env::split_paths(path).filter(|entry| entry.is_absolute());
    let path = std::env::join_paths(absolute).ok()?;
    let found = which::which_in(name, Some(path), std::env::current_dir().ok()?).ok()?;
    std::path::absolute(found).ok()
}

/// Finds a program by name in a search path, or takes a path relative to a folder.
pub fn find_program_in(name: &Path, search_path: Option<&OsStr>, folder: &Path) -> Option<PathBuf> {
    which::which_in(name, search_path, folder).ok()
}
