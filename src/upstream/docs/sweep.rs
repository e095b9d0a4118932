//! Servers that were never asked what they offer, asked in the background.
//!
//! One sweep at a time asks a few servers at once, for so long; what it did not get to is left to the next one. One that
//! failed is left alone for a while.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::upstream::error::UpstreamError;

/// Servers that are asked at once.
pub(super) const AT_ONCE: usize = 4;
/// How long one server may take.
pub(super) const ONE_LIMIT: Duration = Duration::from_secs(60);
/// How long all of them may.
pub(super) const ALL_LIMIT: Duration = Duration::from_secs(300);
/// How long a server that failed is left alone.
const REST: Duration = Duration::from_secs(600);

/// Which servers are being asked, and which failed.
#[derive(Debug)]
pub(in crate::upstream) struct Sweep {
    state: Mutex<State>,
    /// Changes with every server that is settled.
    settled: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The keys of those that this sweep has yet to settle; none when nobody sweeps.
    pending: Option<HashSet<Arc<str>>>,
    failures: HashMap<Arc<str>, (Instant, String)>,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { state: Mutex::default(), settled: watch::Sender::new(()) }
    }
}

impl Sweep {
    /// Begins a sweep over those of the keys that may be asked; none when there are none, or somebody sweeps already.
    pub(super) fn begin<'a>(&self, keys: impl Iterator<Item = &'a Arc<str>>) -> Option<Vec<Arc<str>>> {
        let mut state = self.lock();
        if state.pending.is_some() {
            return None;
        }
        state.failures.retain(|_, (at, _)| at.elapsed() < REST);
        let begun: Vec<_> = keys.filter(|key| !state.failures.contains_key(*key)).cloned().collect();
        if begun.is_empty() {
            return None;
        }
        state.pending = Some(begun.iter().cloned().collect());
        Some(begun)
    }

    /// A server was asked, in a sweep or otherwise.
    pub(super) fn settle(&self, key: &Arc<str>, failure: Option<&UpstreamError>) {
        let mut state = self.lock();
        if let Some(pending) = &mut state.pending {
            pending.remove(key);
        }
        match failure {
            None => drop(state.failures.remove(key)),
            // That is nothing about the server.
            Some(UpstreamError::ShuttingDown) => {}
            Some(error) => drop(state.failures.insert(Arc::clone(key), (Instant::now(), error.to_string()))),
        }
        drop(state);
        self.settled.send_replace(());
    }

    /// Ends the sweep, whether it got to all of them or not.
    pub(super) fn end(&self) {
        self.lock().pending = None;
        self.settled.send_replace(());
    }

    /// Waits until none of these is being asked any more.
    pub(super) async fn settled(&self, keys: &[Arc<str>]) {
        let mut settled = self.settled.subscribe();
        loop {
            let is_pending = {
                let state = self.lock();
                let pending = |key| state.pending.as_ref().is_some_and(|pending| pending.contains(key));
                keys.iter().any(pending)
            };
            if !is_pending || settled.changed().await.is_err() {
                return;
            }
        }
    }

    /// Why a server could not be asked.
    pub(super) fn failure(&self, key: &str) -> Option<String> {
        self.lock().failures.get(key).map(|(_, why)| why.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
