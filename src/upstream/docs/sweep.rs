//! The background sweep over servers that were never asked for their tools.
//!
//! One sweep at a time asks a few servers at once, with a limit; the next sweep asks the rest. A server that failed is
//! not asked again for a while.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Servers asked at once.
pub(super) const AT_ONCE: usize = 4;
/// How long one server may take.
pub(super) const ONE_LIMIT: Duration = Duration::from_secs(75);
/// How long a sweep may take.
pub(super) const ALL_LIMIT: Duration = Duration::from_secs(300);

/// Which servers are being asked.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The keys of servers that have not answered yet; None without a sweep.
    pending: Mutex<Option<HashSet<Arc<str>>>>,
    /// Those of them that a search has waited for in vain. Later searches do not wait for them.
    overdue: Mutex<HashSet<Arc<str>>>,
    /// Changes with every answer.
    settled: watch::Sender<()>,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { pending: Mutex::default(), overdue: Mutex::default(), settled: watch::Sender::new(()) }
    }
}

impl Sweep {
    /// Begins a sweep; false if there are no servers, or a sweep is under way.
    pub(super) fn begin(&self, keys: &[Arc<str>]) -> bool {
        let mut pending = self.lock();
        if pending.is_some() || keys.is_empty() {
            return false;
        }
        *pending = Some(keys.iter().cloned().collect());
        true
    }

    /// Notes that a server has answered or failed, in the sweep or otherwise.
    pub(super) fn settle(&self, key: &str) {
        if let Some(pending) = self.lock().as_mut() {
            pending.remove(key);
        }
        self.overdue().remove(key);
        self.settled.send_replace(());
    }

    /// Ends the sweep.
    pub(super) fn end(&self) {
        *self.lock() = None;
        self.overdue().clear();
        self.settled.send_replace(());
    }

    /// Waits until all of these have answered, at most for the given time, and only once for each.
    pub(super) async fn settled(&self, keys: &[Arc<str>], patience: Duration) {
        let waited = tokio::time::timeout(patience, async {
            let mut settled = self.settled.subscribe();
            while self.awaited(keys).next().is_some() && settled.changed().await.is_ok() {}
        });
        if waited.await.is_err() {
            let late: Vec<_> = self.awaited(keys).collect();
            self.overdue().extend(late);
        }
    }

    /// Returns those of these that have not answered and are not overdue.
    fn awaited(&self, keys: &[Arc<str>]) -> impl Iterator<Item = Arc<str>> {
        let (pending, overdue) = (self.lock(), self.overdue());
        let is_pending = |key: &&Arc<str>| pending.as_ref().is_some_and(|pending| pending.contains(*key));
        let awaited: Vec<_> =
            keys.iter().filter(is_pending).filter(|key| !overdue.contains(*key)).cloned().collect();
        awaited.into_iter()
    }

    fn overdue(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.overdue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashSet<Arc<str>>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
