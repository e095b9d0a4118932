//! What a server says to nobody in particular, passed on without credentials.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use codebridge_runtimes::exec::visible_line;
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use super::handler::Calls;
use super::secrets::Secrets;
use super::updates::Updates;
use crate::mcp::client::{Listening, LogData, Notices};
use crate::upstream::events::{Event, LogMessage};

/// Characters that are shown of a log message that is too large to be parsed.
const SHOWN: usize = 16 << 10;

/// Lines of the standard output that an error shows, and the characters of each.
const LINES: usize = 3;
const LONGEST_LINE: usize = 200;
/// Bytes of such a line that are looked at. More are redacted than shown, so that no credential is cut in two.
const START_OF_LINE: usize = 8 << 10;

/// The first lines of a server's standard output that are not MCP, without credentials.
#[derive(Debug, Clone, Default)]
pub(super) struct Printed(Arc<Mutex<Vec<String>>>);

impl Printed {
    fn add(&self, line: &[u8], secrets: &Secrets) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < LINES {
            let text = String::from_utf8_lossy(&line[..line.len().min(START_OF_LINE)]);
            let text = visible_line(&secrets.redact(text.trim_end()));
            lines.push(match text.char_indices().nth(LONGEST_LINE) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            });
        }
    }

    /// Returns the lines in one; empty if there were none.
    pub(super) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).join(" | ")
    }
}

#[derive(Debug)]
pub(super) struct ServerNotices {
    pub(super) server: Arc<str>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) events: broadcast::Sender<Event>,
    /// Counts how often the server said that its tools have changed.
    pub(super) on_tools_changed: watch::Sender<u64>,
    /// The same of its resources and prompts.
    pub(super) on_offers_changed: watch::Sender<u64>,
    pub(super) updates: Updates,
    pub(super) calls: Calls,
    /// Whether the server has said before that it will tell of changed lists.
    pub(super) has_listened: AtomicBool,
    pub(super) printed: Printed,
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
        let _ = self.events.send(Event::Log(Arc::new(LogMessage {
            server: Arc::clone(&self.server),
            level: level.unwrap_or("info").to_owned(),
            logger: logger.map(str::to_owned),
            data,
        })));
    }

    fn tools_changed(&self) {
        self.on_tools_changed.send_modify(|generation| *generation += 1);
        let _ = self.events.send(Event::ToolsChanged { server: Arc::clone(&self.server) });
    }

    fn offers_changed(&self) {
        self.on_offers_changed.send_modify(|generation| *generation += 1);
    }

    fn resource_updated(&self, uri: &str) {
        self.updates.note(uri);
    }

    fn page_done(&self, id: &str) {
        self.calls.page_done(id);
    }

    fn listening(&self, accepted: &Listening) {
        accepted.resources.iter().for_each(|uri| self.updates.accepted(uri));
        let is_of_lists = accepted.tools || accepted.offers;
        // What has changed while nobody listened is unknown.
        if is_of_lists && self.has_listened.swap(true, Ordering::Relaxed) {
            if accepted.tools {
                self.tools_changed();
            }
            if accepted.offers {
                self.offers_changed();
            }
        }
    }

    fn ignored(&self, what: &'static str) {
        tracing::debug!(server = %self.server, what, "ignored");
    }

    fn printed(&self, line: &[u8]) {
        self.printed.add(line, &self.secrets);
    }
}
