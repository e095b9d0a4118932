//! Forwards the log messages of servers to the client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rmcp::model::{CustomNotification, ServerNotification};
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::upstream::Event;

/// Least severe first, as the protocol names them.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
/// What a client gets that has not asked for more or less: `info`.
const DEFAULT_LEVEL: usize = 1;

/// The client of a connection, as far as it gets log messages.
#[derive(Debug)]
pub(super) struct LogReceiver {
    peer: OnceLock<Peer<RoleServer>>,
    /// Index in [`LEVELS`] of the least severe message that the client wants.
    level: AtomicUsize,
}

impl Default for LogReceiver {
    fn default() -> Self {
        Self { peer: OnceLock::new(), level: AtomicUsize::new(DEFAULT_LEVEL) }
    }
}

impl LogReceiver {
    /// Takes a client of a protocol in which servers may send without being asked: one that opens with `initialize`.
    pub(super) fn connected(&self, peer: &Peer<RoleServer>) {
        // A second `initialize` comes from the same client.
        let _ = self.peer.set(peer.clone());
    }

    /// Sets the least severe level that the client wants.
    pub(super) fn set_level(&self, level: &str) {
        if let Some(index) = index_of(level) {
            self.level.store(index, Ordering::Relaxed);
        }
    }

    /// Forwards log messages until there can be no more.
    pub(super) async fn forward_logs(self: Arc<Self>, mut events: broadcast::Receiver<Event>) {
        loop {
            match events.recv().await {
                Ok(Event::Log { server, level, logger, data }) => {
                    self.forward(&server, &level, logger.as_deref(), data).await;
                }
                Ok(Event::ToolsChanged { .. }) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    async fn forward(&self, server: &str, level: &str, logger: Option<&str>, data: Value) {
        let Some(peer) = self.peer.get() else { return };
        let level = index_of(level).unwrap_or(DEFAULT_LEVEL);
        if level < self.level.load(Ordering::Relaxed) {
            return;
        }
        let logger = logger.map_or_else(|| server.to_owned(), |logger| format!("{server}: {logger}"));
        let params = json!({ "level": LEVELS[level], "logger": logger, "data": data });
        let message = CustomNotification::new("notifications/message", Some(params));
        // The client may be gone.
        let _ = peer.send_notification(ServerNotification::CustomNotification(message)).await;
    }
}

fn index_of(level: &str) -> Option<usize> {
    LEVELS.iter().position(|known| known.eq_ignore_ascii_case(level))
}
