//! Being told to stop. The first time everything is ended in order; who says it twice does not want to wait.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::Exit;

/// The signals that end the program.
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

    /// Waits until the program is told to stop.
    pub(super) async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
            _ = self.hang_up.recv() => Exit::Terminated,
        }
    }

    /// Does the work, and tells it through `stop` when a signal came. Returns what the work came to, None when it
    /// was given up at the second signal, and which signal came.
    pub(super) async fn until_told_twice<T>(
        mut self,
        stop: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> (Option<T>, Option<Exit>) {
        let mut work = std::pin::pin!(work);
        let told = tokio::select! {
            done = &mut work => return (Some(done), None),
            told = self.next() => told,
        };
        tracing::debug!(?told, "told to stop");
        stop.cancel();
        tokio::select! {
            done = work => (Some(done), Some(told)),
            again = self.next() => (None, Some(again)),
        }
    }
}
