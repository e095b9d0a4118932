//! What a call hears while its sandbox starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use crate::session::Progress;

/// Reports the progress of a start to the call that waits for it.
#[derive(Debug)]
pub(super) struct StartProgress {
    progress: mpsc::Sender<Progress>,
    reported: AtomicBool,
}

impl StartProgress {
    pub(super) fn new(progress: mpsc::Sender<Progress>) -> Arc<Self> {
        Arc::new(Self { progress, reported: AtomicBool::new(false) })
    }

    pub(super) fn report(&self, line: String) {
        self.reported.store(true, Ordering::Relaxed);
        // A receiver that is too slow misses a line.
        let _ = self.progress.try_send(Progress::Preparing(line));
    }

    /// Reports a line unless another one was reported before.
    pub(super) fn report_first(&self, line: String) {
        if !self.reported.load(Ordering::Relaxed) {
            self.report(line);
        }
    }
}
