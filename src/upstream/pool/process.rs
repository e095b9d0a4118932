//! The life of a server that is a child of ours.

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

/// How long a server has to leave by itself after its standard input has closed.
const END_OF_INPUT_GRACE: Duration = Duration::from_millis(700);
/// How long it has after that, and SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(800);
/// How long the rest of its output may take to be read after it has gone.
const DRAIN: Duration = Duration::from_millis(200);

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    /// No such program.
    #[error("the program '{}' is not to be found{}", first_word(.0), if .0.contains(' ') { "; its arguments belong into 'args'" } else { "" })]
    NotFound(String),
    /// No such folder.
    #[error("its folder '{0}' is not to be found")]
    NoFolder(PathBuf),
    /// The system says no.
    #[error("the program '{program}' cannot be run: {source}")]
    Run {
        /// Which file.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What else was put into the name of a program may be a credential.
fn first_word(command: &str) -> String {
    command.split_once(' ').map_or_else(|| command.to_owned(), |(word, _)| format!("{word} …"))
}

/// A running server, to be asked to go and to be told when it has gone.
#[derive(Debug, Clone)]
pub(super) struct ServerProcess {
    stop: CancellationToken,
    ended: watch::Receiver<Option<ExitStatus>>,
    pub(super) stderr: StderrTail,
}

/// Where and how it runs.
pub(super) struct Launching<'a> {
    pub(super) command: &'a str,
    pub(super) args: &'a [String],
    pub(super) environment: &'a BTreeMap<OsString, OsString>,
    pub(super) folder: &'a Path,
    pub(super) reaper: &'a Reaper,
}

/// Starts a server. `gone` is set when it has gone and all that it wrote could be read.
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
        return Err(run_error(io::Error::other("it has no pipes")));
    };
    let draining = tokio::spawn(stderr.clone().fill(errors));
    let stop = CancellationToken::new();
    let (tell_end, ended) = watch::channel(None);
    let life = Life { draining, stop: stop.clone(), tell_end, gone, reaper: reaper.clone() };
    // Nothing is awaited between its start and this: whoever gives up waiting must not leave it alone.
    tokio::spawn(life.supervise(child));
    Ok((ServerProcess { stop, ended, stderr }, stdin, stdout))
}

impl ServerProcess {
    /// Asks it to go. Its standard input must be closed by whoever has it.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until it has gone.
    pub(super) async fn ended(&self) -> Option<ExitStatus> {
        self.ended.clone().wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }
}

/// What is needed to the end of a server.
struct Life {
    draining: JoinHandle<()>,
    stop: CancellationToken,
    tell_end: watch::Sender<Option<ExitStatus>>,
    gone: CancellationToken,
    reaper: Reaper,
}

impl Life {
    /// Waits for the end, or brings it about: by the end of input, then SIGTERM, then SIGKILL, for the whole group.
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
        self.tell_end.send_replace(status);
        // Its output ends by itself, unless something outside of its group holds it open.
        tokio::time::sleep(DRAIN).await;
        self.gone.cancel();
    }
}
