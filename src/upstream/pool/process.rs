//! The process of a server, from its start to its end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use codebridge_runtimes::exec::{CommandLine, find_program_in, group_of, spawn_in, terminate};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::environment::search_path;
use super::stderr::StderrTail;
use crate::reaper::Reaper;

/// How long a server may take to exit after its standard input was closed.
const END_OF_INPUT_GRACE: Duration = Duration::from_millis(700);
/// How long it may take after SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(800);
/// How long reading the rest of its output may take after it has exited.
const DRAIN: Duration = Duration::from_millis(200);

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error("command '{}' not found{}", first_word(.0), if .0.contains(' ') { "; move its arguments to 'args'" } else { "" })]
    NotFound(String),
    #[error("its folder '{0}' does not exist")]
    NoFolder(PathBuf),
    #[error("could not run '{program}': {source}")]
    Run { program: PathBuf, source: io::Error },
}

/// The rest of a command that holds its arguments too may be a credential, and so may a value or a user in its first word.
fn first_word(command: &str) -> String {
    let (word, rest) = command.split_once(' ').map_or((command, ""), |(word, _)| (word, " …"));
    let word = match (word.split_once('='), word.split_once("://")) {
        (Some((name, _)), _) => format!("{name}=…"),
        (None, Some((scheme, rest))) if rest.contains('@') => format!("{scheme}://…"),
        (None, _) => word.to_owned(),
    };
    format!("{word}{rest}")
}

/// A running server process.
#[derive(Debug, Clone)]
pub(super) struct ServerProcess {
    stop: CancellationToken,
    ended: watch::Receiver<Option<ExitStatus>>,
    pub(super) stderr: StderrTail,
}

/// How a server process is started.
pub(super) struct Launching<'a> {
    pub(super) command: &'a str,
    pub(super) args: &'a [String],
    pub(super) environment: &'a BTreeMap<OsString, OsString>,
    pub(super) folder: &'a Path,
    pub(super) reaper: &'a Reaper,
}

/// Starts a server. `gone` is cancelled when it has exited and its output has been read.
pub(super) async fn start(
    launching: Launching<'_>,
    gone: CancellationToken,
) -> Result<(ServerProcess, ChildStdin, ChildStdout), SpawnError> {
    let Launching { command, args, environment, folder, reaper } = launching;
    if !folder.is_dir() {
        return Err(SpawnError::NoFolder(folder.to_path_buf()));
    }
    let program = find_program_in(Path::new(command), search_path(environment), folder)
        .ok_or_else(|| SpawnError::NotFound(command.to_owned()))?;
    let line = CommandLine::new(&program).args(args);
    let run_error = |source| SpawnError::Run { program: program.clone(), source };
    reaper.start().await;
    let mut child = spawn_in(&line, environment, Some(folder)).map_err(run_error)?;
    let stderr = StderrTail::default();
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(errors)) = pipes else {
        return Err(run_error(io::Error::other("it was started without pipes")));
    };
    let draining = tokio::spawn(stderr.clone().fill(errors));
    let stop = CancellationToken::new();
    let (exit_status, ended) = watch::channel(None);
    let life = Life { draining, stop: stop.clone(), exit_status, gone, reaper: reaper.clone() };
    // Nothing is awaited between its start and this: a caller that gives up must not leave it unsupervised.
    tokio::spawn(life.supervise(child));
    Ok((ServerProcess { stop, ended, stderr }, stdin, stdout))
}

impl ServerProcess {
    /// Stops the process. The owner of its standard input has to close that.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until it has exited.
    pub(super) async fn ended(&self) -> Option<ExitStatus> {
        self.ended.clone().wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }
}

/// What the supervision of a process needs.
struct Life {
    draining: JoinHandle<()>,
    stop: CancellationToken,
    exit_status: watch::Sender<Option<ExitStatus>>,
    gone: CancellationToken,
    reaper: Reaper,
}

impl Life {
    /// Waits until the process exits, or ends its group: by the end of input, then SIGTERM, then SIGKILL.
    async fn supervise(mut self, mut child: Child) {
        let group = group_of(&child);
        if let Some(group) = group {
            self.reaper.watch_group(group).await;
        }
        tokio::select! {
            _ = child.wait() => {}
            () = self.stop.cancelled() => {
                let _ = tokio::time::timeout(END_OF_INPUT_GRACE, child.wait()).await;
            }
        }
        terminate(&mut child, group, TERM_GRACE).await;
        if let Some(group) = group {
            self.reaper.forget_group(group).await;
        }
        let _ = tokio::time::timeout(DRAIN, &mut self.draining).await;
        let status = child.wait().await.ok();
        self.exit_status.send_replace(status);
        // Its output ends now, unless a process outside its group holds it open.
        tokio::time::sleep(DRAIN).await;
        self.gone.cancel();
    }
}
