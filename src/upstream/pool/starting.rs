//! The servers that are being started, and what they say meanwhile: for whoever cannot wait until that has ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::secrets::Secrets;
use super::stderr::StderrTail;

/// By name; a server without a process says nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Starting(Arc<Mutex<HashMap<Arc<str>, Words>>>);

#[derive(Debug, Default)]
struct Words {
    stderr: StderrTail,
    secrets: Arc<Secrets>,
}

/// A start, as long as it lives.
#[derive(Debug)]
pub(super) struct Start {
    all: Starting,
    server: Arc<str>,
}

impl Starting {
    /// A server is being started from here on.
    pub(super) fn begin(&self, server: &Arc<str>, secrets: &Arc<Secrets>) -> Start {
        let words = Words { stderr: StderrTail::default(), secrets: Arc::clone(secrets) };
        self.lock().insert(Arc::clone(server), words);
        Start { all: self.clone(), server: Arc::clone(server) }
    }

    /// What a server has said that is being started, which may be nothing; None for any other.
    pub(super) fn words_of(&self, server: &str) -> Option<String> {
        self.lock().get(server).map(|words| words.stderr.text(&words.secrets))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Words>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Start {
    /// It has a process, which says things.
    pub(super) fn says(&self, stderr: &StderrTail) {
        if let Some(words) = self.all.lock().get_mut(&self.server) {
            words.stderr = stderr.clone();
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        self.all.lock().remove(&self.server);
    }
}
