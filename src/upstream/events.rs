//! What servers say to nobody in particular.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::broadcast;

/// A notification of a server. A receiver that falls behind misses the oldest ones.
#[derive(Debug, Clone)]
pub enum Event {
    /// A log message.
    Log {
        server: Arc<str>,
        /// `debug` to `emergency`, as the server wrote it.
        level: String,
        /// The part of the server.
        logger: Option<String>,
        data: Value,
    },
    ToolsChanged {
        server: Arc<str>,
    },
}

/// Events kept for a slow receiver.
const BACKLOG: usize = 1_000;

/// The sender of events.
#[derive(Debug, Clone)]
pub(super) struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(BACKLOG))
    }
}

impl Events {
    pub(super) fn send(&self, event: Event) {
        // There may be no receiver.
        let _ = self.0.send(event);
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}
