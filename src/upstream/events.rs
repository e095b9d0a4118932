//! What servers say without being asked.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::broadcast;

/// Said by a server to whoever listens. A listener that falls behind misses the oldest.
#[derive(Debug, Clone)]
pub enum Event {
    /// A log message.
    Log {
        /// Who says it.
        server: Arc<str>,
        /// `debug` to `emergency`, as the server wrote it.
        level: String,
        /// The part of the server that says it.
        logger: Option<String>,
        /// What it says.
        data: Value,
    },
    /// The list of tools is another one now.
    ToolsChanged {
        /// Whose list.
        server: Arc<str>,
    },
}

/// Events that wait for a listener that is busy.
const BACKLOG: usize = 1_000;

/// Where events go.
#[derive(Debug, Clone)]
pub(super) struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(BACKLOG))
    }
}

impl Events {
    pub(super) fn send(&self, event: Event) {
        // That nobody listens is no failure.
        let _ = self.0.send(event);
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}
