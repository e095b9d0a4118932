//! What servers say to nobody in particular.

use std::sync::Arc;

use serde_json::Value;

/// A notification of a server. A receiver that falls behind misses the oldest ones.
#[derive(Debug, Clone)]
pub enum Event {
    Log(Arc<LogMessage>),
    ToolsChanged { server: Arc<str> },
}

/// A log message. Each user has space for as many events as are kept, also without any: so it is not in the event itself.
#[derive(Debug)]
pub struct LogMessage {
    pub server: Arc<str>,
    /// `debug` to `emergency`, as the server wrote it.
    pub level: String,
    /// The part of the server.
    pub logger: Option<String>,
    pub data: Value,
}

/// Events kept for a slow receiver. Each may have as much text as is parsed of a log message.
pub(super) const BACKLOG: usize = 64;
