//! Says that something has changed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

/// Counts the changes of a workspace.
#[derive(Debug, Clone)]
pub(super) struct Changed(Arc<watch::Sender<u64>>);

impl Default for Changed {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Changed {
    pub(super) fn note(&self) {
        self.0.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time in milliseconds since 1970.
pub(super) fn now() -> u64 {
    milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
