//! What servers say to nobody in particular.

use std::sync::Arc;

use serde_json::Value;

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

/// Events kept for a slow receiver. Each may have as much text as is parsed of a log message.
pub(super) const BACKLOG: usize = 200;
