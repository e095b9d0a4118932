//! Signals that stop the program. The first one stops the work in order, the second one gives it up.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use crate::error::Exit;
use crate::workspace::Workspace;

/// The signals that stop the program.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal.
    pub(super) async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
            _ = self.hang_up.recv() => Exit::Terminated,
        }
    }

    /// Does the work, and cancels `stop` at the first signal. Returns the result of the work, None when a second signal
    /// came first, and the last signal.
    pub(super) async fn until_second<T>(
        mut self,
        stop: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> (Option<T>, Option<Exit>) {
        let mut work = std::pin::pin!(work);
        let first = tokio::select! {
            done = &mut work => return (Some(done), None),
            signal = self.next() => signal,
        };
        tracing::debug!(signal = ?first, "stopping");
        stop.cancel();
        tokio::select! {
            done = work => (Some(done), Some(first)),
            second = self.next() => (None, Some(second)),
        }
    }
}

/// Does the work of a command and closes its workspace. A signal cancels `stop`, and is the error.
pub(super) async fn until_stopped<T>(
    workspace: &Workspace,
    stop: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, CommandError> {
    let work = async {
        let done = work.await;
        workspace.close().await;
        done
    };
    match Signals::listen()?.until_second(stop, work).await {
        (Some(done), None) => Ok(done),
        (_, signal) => Err(CommandError::Stopped(signal.unwrap_or(Exit::Interrupted))),
    }
}
