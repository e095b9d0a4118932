//! The servers that are starting, and their standard error so far.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::secrets::Secrets;
use super::stderr::StderrTail;

/// The servers that are starting, by name. A server without a process has no output.
#[derive(Debug, Clone, Default)]
pub(super) struct Starting(Arc<Mutex<HashMap<Arc<str>, Output>>>);

#[derive(Debug, Default)]
struct Output {
    stderr: StderrTail,
    secrets: Arc<Secrets>,
}

/// A start under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Start {
    all: Starting,
    server: Arc<str>,
}

impl Starting {
    /// Adds a server whose start begins now.
    pub(super) fn begin(&self, server: &Arc<str>, secrets: &Arc<Secrets>) -> Start {
        let output = Output { stderr: StderrTail::default(), secrets: Arc::clone(secrets) };
        self.lock().insert(Arc::clone(server), output);
        Start { all: self.clone(), server: Arc::clone(server) }
    }

    /// Returns the standard error of a server that is starting; None for other servers.
    pub(super) fn output_of(&self, server: &str) -> Option<String> {
        self.lock().get(server).map(|output| output.stderr.text(&output.secrets))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Output>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Start {
    /// Sets the standard error of the server's process.
    pub(super) fn set_stderr(&self, stderr: &StderrTail) {
        if let Some(output) = self.all.lock().get_mut(&self.server) {
            output.stderr = stderr.clone();
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        self.all.lock().remove(&self.server);
    }
}
