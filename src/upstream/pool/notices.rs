//! What a server says to nobody in particular, passed on without credentials.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{broadcast, watch};

use super::secrets::Secrets;
use crate::mcp::client::{LogData, Notices};
use crate::upstream::events::Event;

/// Characters that are shown of a log message that is too large to be parsed.
const SHOWN: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct ServerNotices {
    pub(super) server: Arc<str>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) events: broadcast::Sender<Event>,
    /// Counts how often the server said that its tools have changed.
    pub(super) on_tools_changed: watch::Sender<u64>,
}

impl Notices for ServerNotices {
    fn logged(&self, level: Option<&str>, logger: Option<&str>, data: LogData) {
        let data = match data {
            LogData::Whole(data) => self.secrets.redact_value(data),
            LogData::Start(text, bytes) => {
                let start: String = self.secrets.redact(&text).chars().take(SHOWN).collect();
                Value::String(format!("{start}… ({bytes} bytes)"))
            }
        };
        // There may be no receiver.
        let _ = self.events.send(Event::Log {
            server: Arc::clone(&self.server),
            level: level.unwrap_or("info").to_owned(),
            logger: logger.map(str::to_owned),
            data,
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
