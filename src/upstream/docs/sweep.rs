//! The background sweep over servers that were never asked for their tools.
//!
//! One sweep at a time asks a few servers at once, with a limit; the next sweep asks the rest. A server that failed is
//! not asked again for a while.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Servers asked at once.
pub(super) const AT_ONCE: usize = 4;
/// How long one server may take.
pub(super) const ONE_LIMIT: Duration = Duration::from_secs(75);
/// How long a sweep may take.
pub(super) const ALL_LIMIT: Duration = Duration::from_secs(300);

/// The keys of servers that are awaited; None without a sweep. Searches wait for a server once only.
#[derive(Debug, Default)]
pub(super) struct Sweep(watch::Sender<Option<HashSet<Arc<str>>>>);

impl Sweep {
    /// Begins a sweep; false if there are no servers, or a sweep is under way.
    pub(super) fn begin(&self, keys: &[Arc<str>]) -> bool {
        self.0.send_if_modified(|awaited| {
            let begins = awaited.is_none() && !keys.is_empty();
            if begins {
                *awaited = Some(keys.iter().cloned().collect());
            }
            begins
        })
    }

    /// Notes that servers are not awaited any more: they have answered or failed, in the sweep or otherwise.
    pub(super) fn settle(&self, keys: &[Arc<str>]) {
        self.0.send_modify(|awaited| {
            if let Some(awaited) = awaited {
                awaited.retain(|key| !keys.contains(key));
            }
        });
    }

    /// Ends the sweep.
    pub(super) fn end(&self) {
        self.0.send_replace(None);
    }

    /// Waits until all of these have answered, at most for the given time. Later searches do not wait for the rest.
    pub(super) async fn settled(&self, keys: &[Arc<str>], patience: Duration) {
        let mut awaited = self.0.subscribe();
        let all_settled = |awaited: &Option<HashSet<_>>| {
            awaited.as_ref().is_none_or(|awaited| !keys.iter().any(|key| awaited.contains(key)))
        };
        if tokio::time::timeout(patience, awaited.wait_for(all_settled)).await.is_err() {
            self.settle(keys);
        }
    }
}
