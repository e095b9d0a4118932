//! The watched resources of a connection, and what their server says of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The watched resources of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Updates(Arc<Mutex<HashMap<String, Watched>>>);

#[derive(Debug, Default)]
struct Watched {
    watchers: usize,
    /// Counts the changes.
    changes: watch::Sender<u64>,
    /// Whether the server has said that it will tell of them.
    is_accepted: watch::Sender<bool>,
}

impl Updates {
    /// Notes that a resource has changed: one that is watched, or a part of it.
    pub(super) fn note(&self, uri: &str) {
        for (watched, Watched { changes, .. }) in &*self.lock() {
            if uri.starts_with(watched.as_str()) {
                changes.send_modify(|count| *count += 1);
            }
        }
    }

    /// Notes that the server will say when a resource changes.
    pub(super) fn accepted(&self, uri: &str) {
        if let Some(watched) = self.lock().get(uri) {
            watched.is_accepted.send_replace(true);
        }
    }

    /// Returns whether the server will say when a watched resource changes, as that becomes known.
    pub(super) fn acceptance(&self, uri: &str) -> Option<watch::Receiver<bool>> {
        self.lock().get(uri).map(|watched| watched.is_accepted.subscribe())
    }

    pub(super) fn begin(&self, uri: &str) -> watch::Receiver<u64> {
        let mut all = self.lock();
        let watched = all.entry(uri.to_owned()).or_default();
        watched.watchers += 1;
        watched.changes.subscribe()
    }

    /// Ends a watch, and returns whether it was the last one of its resource.
    pub(super) fn end(&self, uri: &str) -> bool {
        let mut all = self.lock();
        let Some(watched) = all.get_mut(uri) else { return false };
        watched.watchers -= 1;
        let was_last = watched.watchers == 0;
        if was_last {
            all.remove(uri);
        }
        was_last
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_part_is_one_of_the_whole_and_the_last_watcher_ends_the_subscription() {
        let updates = Updates::default();
        let mut first = updates.begin("w://a");
        let second = updates.begin("w://a");
        let mut other = updates.begin("w://b");
        updates.note("w://a/part");
        updates.note("w://a");
        assert!(first.has_changed().unwrap() && second.has_changed().unwrap());
        assert!(!other.has_changed().unwrap());
        assert_eq!((*first.borrow_and_update(), *other.borrow_and_update()), (2, 0));
        assert!(!updates.end("w://a") && updates.end("w://a") && !updates.end("w://a"));
        updates.note("w://a");
        assert!(first.has_changed().is_err(), "nothing is counted any more");
    }
}
