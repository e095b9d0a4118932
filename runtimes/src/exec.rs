//! The one place that spawns processes.
//!
//! Children are hermetic: an absolute program, a cleared environment plus an allow-list, `LC_MESSAGES=C` so that
//! messages can be parsed, a process group of their own, and a null stdin unless it is used. What they print is
//! captured within bounds; they always end, in [`terminate`].

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use crate::secrets;

/// Bytes kept of each stream of a helper command; the rest is read and dropped.
const CAPTURE_LIMIT: usize = 1 << 20;
/// Bytes of each stream that go into an error.
const TAIL_LIMIT: usize = 2_000;

/// Variables that container engines need to find their configuration, stores, sockets and proxies.
const ENGINE_ENVIRONMENT: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "XDG_CACHE_HOME", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "KRB5CCNAME", "KRB5_CONFIG",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "no_proxy", "REGISTRY_AUTH_FILE",
];
/// Prefixes of such variables: `DOCKER_HOST`, `CONTAINER_CONNECTION`, `CONTAINERS_CONF`, `STORAGE_DRIVER` …
const ENGINE_PREFIXES: &[&str] = &["DOCKER_", "CONTAINER_", "CONTAINERS_", "STORAGE_", "PODMAN_"];

/// There is nobody to answer ssh's questions for passphrases and unknown hosts: whichever client starts it, it asks this
/// program in place of a terminal, and the answer is no. <https://man.openbsd.org/ssh.1#ENVIRONMENT>
const NO_QUESTIONS: [(&str, &str); 2] = [("SSH_ASKPASS", "false"), ("SSH_ASKPASS_REQUIRE", "force")];

/// A command line that has not run yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables that it is to have, or not to have, whatever our own environment says.
    pub env: Vec<(&'static str, Option<String>)>,
}

impl CommandLine {
    /// A command line without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new() }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets variables, or takes them away.
    #[must_use]
    pub fn env(mut self, env: impl IntoIterator<Item = (&'static str, Option<String>)>) -> Self {
        self.env.extend(env);
        self
    }

    fn command(&self) -> Command {
        let mut command = self.bare();
        command.process_group(0);
        command
    }

    /// The only call of `Command::new` in the product.
    fn bare(&self) -> Command {
        #[expect(clippy::disallowed_methods, reason = "this is the one place")]
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().envs(engine_environment()).env("LC_MESSAGES", "C");
        command.envs(NO_QUESTIONS);
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).kill_on_drop(false);
        command
    }
}

impl fmt::Display for CommandLine {
    /// As one would type it, long arguments shortened: a guest or a profile on the command line helps nobody.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.display())?;
        for arg in &self.args {
            let arg = arg.to_string_lossy();
            let short = match arg.char_indices().nth(120) {
                Some((end, _)) => format!("{}…", &arg[..end]),
                None => arg.into_owned(),
            };
            match shlex::try_quote(&short) {
                Ok(quoted) => write!(f, " {quoted}")?,
                Err(_) => write!(f, " {short:?}")?,
            }
        }
        Ok(())
    }
}

fn engine_environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(key, _)| {
        key.to_str().is_some_and(|key| {
            ENGINE_ENVIRONMENT.contains(&key) || ENGINE_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
        })
    })
}

/// A helper command that ended by itself.
#[derive(Debug)]
pub struct Finished {
    /// What was run.
    pub command: CommandLine,
    /// How it ended.
    pub status: ExitStatus,
    /// How long it took.
    pub elapsed: Duration,
    /// What it printed, within bounds.
    pub stdout: Vec<u8>,
    /// What it complained about, within bounds.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// Standard error as text, trimmed.
    pub fn stderr_text(&self) -> String {
        secrets::hide(String::from_utf8_lossy(&self.stderr).trim())
    }

    /// Turns an exit status that is no success into an error.
    pub fn success(self) -> Result<Self, ExecError> {
        if self.status.success() { Ok(self) } else { Err(ExecError::Failed(Box::new(self.into()))) }
    }
}

/// A command that failed, with all that one needs to see why.
#[derive(Debug)]
pub struct FailedCommand {
    /// What was run.
    pub command: CommandLine,
    /// How it ended.
    pub status: ExitStatus,
    /// How long it took.
    pub elapsed: Duration,
    /// The last lines it printed.
    pub stdout_tail: String,
    /// The last lines it complained about.
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

/// A command that could not be run to its own end.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The program could not be started.
    #[error("failed to start `{command}`: {source}")]
    Start {
        /// What was to be run.
        command: CommandLine,
        /// Why not.
        source: io::Error,
    },
    /// It ran longer than it may.
    #[error("`{command}` did not end within {limit:?}: {stderr_tail}")]
    TimedOut {
        /// What was run.
        command: CommandLine,
        /// How long it could have taken.
        limit: Duration,
        /// What it said until then.
        stderr_tail: String,
    },
    /// It ended with another status than success.
    #[error("{0}")]
    Failed(Box<FailedCommand>),
    /// Reading from it failed.
    #[error("failed to read what `{command}` prints: {source}")]
    Read {
        /// What was run.
        command: CommandLine,
        /// Why not.
        source: io::Error,
    },
}

/// Runs a helper command to its end; after `limit` it is terminated and that is an error.
///
/// Any exit status is a value: see [`Finished::success`].
pub async fn run(command: CommandLine, limit: Duration) -> Result<Finished, ExecError> {
    run_with_input(command, Vec::new(), limit).await
}

/// Like [`run`], with something to read on its standard input.
pub async fn run_with_input(
    command: CommandLine,
    input: Vec<u8>,
    limit: Duration,
) -> Result<Finished, ExecError> {
    let started = Instant::now();
    let mut prepared = command.command();
    prepared.stdout(Stdio::piped()).stderr(Stdio::piped());
    if !input.is_empty() {
        prepared.stdin(Stdio::piped());
    }
    tracing::debug!(command = %command, "run");
    let mut child =
        prepared.spawn().map_err(|source| ExecError::Start { command: command.clone(), source })?;
    let group = group_of(&child);
    let mut abandoned = KillWhenDropped(group);
    let stdin = child.stdin.take();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let streams = async {
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command that does not read its input says so by its exit status.
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stdin, &input).await;
            }
        };
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (_, out, err) = tokio::join!(feed, capture(out, &mut stdout), capture(err, &mut stderr));
        out.and(err)
    };
    let ended = tokio::time::timeout(limit, streams).await;
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(source)) => {
            abandoned.0 = None;
            terminate(&mut child, group, Duration::ZERO).await;
            return Err(ExecError::Read { command, source });
        }
        Err(_) => {
            abandoned.0 = None;
            terminate(&mut child, group, Duration::from_millis(500)).await;
            return Err(ExecError::TimedOut { command, limit, stderr_tail: tail(&stderr) });
        }
    }
    let left = limit.saturating_sub(started.elapsed()).max(Duration::from_millis(100));
    let waited = tokio::time::timeout(left, child.wait()).await;
    abandoned.0 = None;
    match waited {
        Ok(Ok(status)) => Ok(Finished { command, status, elapsed: started.elapsed(), stdout, stderr }),
        Ok(Err(source)) => Err(ExecError::Read { command, source }),
        Err(_) => {
            terminate(&mut child, group, Duration::from_millis(500)).await;
            Err(ExecError::TimedOut { command, limit, stderr_tail: tail(&stderr) })
        }
    }
}

/// Ends the group of a helper command whose caller does not wait for it any more; the child is reaped by tokio.
struct KillWhenDropped(Option<Pid>);

impl Drop for KillWhenDropped {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Starts a child whose three standard streams are pipes of ours.
pub fn spawn_piped(command: &CommandLine) -> Result<Child, ExecError> {
    let mut prepared = command.command();
    prepared.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    tracing::debug!(command = %command, "spawn");
    prepared.spawn().map_err(|source| ExecError::Start { command: command.clone(), source })
}

/// The same, in exactly this environment, and in this folder when there is one. Arguments are not logged: they are the
/// user's own, and may hold credentials.
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

/// Starts a child that outlives us: its stdin is a pipe whose other end is returned, its other streams are null.
pub fn spawn_guardian(command: &CommandLine) -> Result<Child, ExecError> {
    let mut prepared = command.command();
    prepared.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    prepared.spawn().map_err(|source| ExecError::Start { command: command.clone(), source })
}

/// Starts a child that nobody waits for. It leads no process group, so that it can begin a session of its own.
pub fn spawn_detached(command: &CommandLine) -> Result<(), ExecError> {
    let mut prepared = command.bare();
    prepared.stdout(Stdio::null()).stderr(Stdio::null());
    let started = prepared.spawn();
    started.map(drop).map_err(|source| ExecError::Start { command: command.clone(), source })
}

/// Reads a stream to its end, keeps the first [`CAPTURE_LIMIT`] bytes.
async fn capture(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) -> io::Result<()> {
    let Some(mut stream) = stream else { return Ok(()) };
    let mut chunk = vec![0; 16 << 10];
    loop {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Ok(());
        }
        let room = CAPTURE_LIMIT.saturating_sub(kept.len());
        kept.extend_from_slice(&chunk[..count.min(room)]);
    }
}

/// What others said, for our own messages and logs: without the characters that steer a terminal, and without
/// credentials.
pub fn printable(text: &str) -> String {
    secrets::hide(text).replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), "\u{fffd}")
}

/// The last lines of some output, for an error message.
pub(crate) fn tail(bytes: &[u8]) -> String {
    let text = printable(&String::from_utf8_lossy(bytes));
    let text = text.trim();
    match text.char_indices().rev().nth(TAIL_LIMIT) {
        Some((start, _)) => format!("…{}", &text[start..]),
        None => text.to_string(),
    }
}

/// The process group that a child of ours leads.
pub fn group_of(child: &Child) -> Option<Pid> {
    // Never a group that is not the child's own: 1 and below mean other things to kill(2).
    child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).filter(|pid| pid.as_raw_nonzero().get() > 1)
}

/// Ends a child and its group: TERM, up to `grace` for it to leave, KILL; the child is always reaped.
pub async fn terminate(child: &mut Child, group: Option<Pid>, grace: Duration) {
    let Some(group) = group else { return };
    if !grace.is_zero() && kill_process_group(group, Signal::TERM).is_ok() {
        let _ = tokio::time::timeout(grace, child.wait()).await;
    }
    // Also when the leader has left: its group may have members that ignored TERM.
    if test_kill_process_group(group).is_ok() {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait().await;
}

/// Finds a program by name in PATH, or takes a path as it is.
pub fn find_program(name: &Path) -> Option<PathBuf> {
    which::which(name).ok().and_then(|path| std::path::absolute(path).ok())
}

/// Finds a program by name in a search path, or takes a path relative to a folder.
pub fn find_program_in(name: &Path, search_path: Option<&OsStr>, folder: &Path) -> Option<PathBuf> {
    which::which_in(name, search_path, folder).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> CommandLine {
        CommandLine::new("/bin/sh").args(["-c", script])
    }

    #[tokio::test]
    async fn output_and_status_are_values() {
        let done = run(sh("echo out; echo err >&2; exit 3"), Duration::from_secs(20)).await.unwrap();
        assert_eq!((done.stdout.as_slice(), done.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(done.status.code(), Some(3));
        let error = done.success().unwrap_err().to_string();
        assert!(error.contains("exit 3") && error.contains("err"), "{error}");
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended_with_its_children() {
        let marker = tempfile::NamedTempFile::new().unwrap();
        let script = format!("trap '' TERM; sleep 1000 & echo $! > {}; sleep 1000", marker.path().display());
        let error = run(sh(&script), Duration::from_millis(600)).await.unwrap_err();
        assert!(matches!(error, ExecError::TimedOut { .. }), "{error}");
        let sleeper: u32 = std::fs::read_to_string(marker.path()).unwrap().trim().parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while crate::owner::start_time(sleeper).is_some() {
            assert!(Instant::now() < deadline, "the grandchild lives on");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_command_that_nobody_waits_for_any_more_is_ended() {
        let marker = tempfile::NamedTempFile::new().unwrap();
        let script = format!("echo $$ > {}; sleep 1000", marker.path().display());
        let written = async {
            loop {
                if let Ok(pid) = std::fs::read_to_string(marker.path()).unwrap().trim().parse::<u32>() {
                    return pid;
                }
                tokio::task::yield_now().await;
            }
        };
        let pid = tokio::select! {
            _ = run(sh(&script), Duration::from_secs(100)) => panic!("it ended"),
            pid = written => pid,
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while crate::owner::start_time(pid).is_some() {
            assert!(Instant::now() < deadline, "it lives on");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn endless_output_is_read_and_not_kept() {
        let done = run(sh("head -c 3000000 /dev/zero"), Duration::from_secs(20)).await.unwrap();
        assert_eq!(done.stdout.len(), CAPTURE_LIMIT);
        assert!(done.status.success());
    }

    #[tokio::test]
    async fn the_environment_is_an_allow_list() {
        let done = run(CommandLine::new("/usr/bin/env"), Duration::from_secs(20)).await.unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        for forced in ["LC_MESSAGES=C", "SSH_ASKPASS=false", "SSH_ASKPASS_REQUIRE=force"] {
            assert!(text.lines().any(|line| line == forced), "no {forced} in {text}");
        }
        assert!(!text.contains("CARGO_"), "{text}");
    }

    #[tokio::test]
    async fn a_child_sees_the_environment_and_the_folder_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let child = spawn_in(&sh("pwd; /usr/bin/env"), [("ONLY", "this")], Some(&folder)).unwrap();
        let done = child.wait_with_output().await.unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.remove(0), folder.to_str().unwrap());
        // The shell adds these by itself.
        lines.retain(|line| !["PWD=", "SHLVL=", "_=", "OLDPWD="].iter().any(|own| line.starts_with(own)));
        assert_eq!(lines, ["ONLY=this"]);
    }

    #[test]
    fn what_others_say_does_not_steer_a_terminal() {
        assert_eq!(
            tail(b"\x1b[31mred\x07\r\n\tnext\x00 \xc2\x9b1m\n"),
            "\u{fffd}[31mred\u{fffd}\u{fffd}\n\tnext\u{fffd} \u{fffd}1m"
        );
    }

    #[test]
    fn command_lines_print_as_one_would_type_them() {
        let line = CommandLine::new("/bin/x").args(["a b", "$c", &"y".repeat(300)]);
        let text = line.to_string();
        assert!(
            text.starts_with("/bin/x 'a b' '$c' ") && text.contains("yyy…") && text.len() < 200,
            "{text}"
        );
    }
}
