//! What a server says to nobody in particular, passed on without credentials.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{broadcast, watch};

use super::secrets::Secrets;
use crate::mcp::client::Notices;
use crate::upstream::events::Event;

/// Bytes of a log message that are passed on. Many messages may wait for a listener.
const LONGEST_LOG: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct ServerNotices {
    pub(super) server: Arc<str>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) events: broadcast::Sender<Event>,
    /// Counts how often the server said that its tools have changed.
    pub(super) on_tools_changed: watch::Sender<u64>,
}

impl Notices for ServerNotices {
    fn logged(&self, level: Option<&str>, logger: Option<&str>, data: Value, bytes: usize) {
        let data = if bytes > LONGEST_LOG {
            let start: String = data.to_string().chars().take(LONGEST_LOG / 4).collect();
            Value::String(format!("{start}… ({bytes} bytes)"))
        } else {
            data
        };
        // There may be no receiver.
        let _ = self.events.send(Event::Log {
            server: Arc::clone(&self.server),
            level: level.unwrap_or("info").to_owned(),
            logger: logger.map(str::to_owned),
            data: self.secrets.redact_value(data),
        });
    }

    fn tools_changed(&self) {
        self.on_tools_changed.send_modify(|generation| *generation += 1);
        let _ = self.events.send(Event::ToolsChanged { server: Arc::clone(&self.server) });
    }

    fn ignored(&self, what: &'static str) {
        tracing::debug!(server = %self.server, what, "ignored");
    }
}
