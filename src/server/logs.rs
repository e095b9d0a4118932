//! Forwards the log messages of servers to the client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rmcp::model::{CustomNotification, ServerNotification};
use rmcp::{Peer, RoleServer};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::task::AbortOnDropHandle;

use crate::upstream::{Event, LogMessage};

/// Least severe first, as the protocol names them.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
/// What a client gets that has not asked for more or less: `info`.
const DEFAULT_LEVEL: usize = 1;

/// The client of a connection, as far as it gets log messages.
#[derive(Debug)]
pub(super) struct LogReceiver {
    /// Until the client is connected.
    events: Mutex<Option<broadcast::Receiver<Event>>>,
    forwarding: OnceLock<AbortOnDropHandle<()>>,
    /// Index in [`LEVELS`] of the least severe message that the client wants.
    level: Arc<AtomicUsize>,
}

impl LogReceiver {
    pub(super) fn of(events: broadcast::Receiver<Event>) -> Self {
        let level = Arc::new(AtomicUsize::new(DEFAULT_LEVEL));
        Self { events: Mutex::new(Some(events)), forwarding: OnceLock::new(), level }
    }

    /// Forwards messages, as long as this is not dropped, to a client of a protocol in which servers may send without being asked:
    /// one that opens with `initialize`.
    pub(super) fn connected(&self, peer: &Peer<RoleServer>) {
        // A second `initialize` comes from the same client.
        if let Some(events) = self.events.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let forwarding = tokio::spawn(forward_logs(peer.clone(), Arc::clone(&self.level), events));
            let _ = self.forwarding.set(AbortOnDropHandle::new(forwarding));
        }
    }

    /// Sets the least severe level that the client wants.
    pub(super) fn set_level(&self, level: &str) {
        if let Some(index) = index_of(level) {
            self.level.store(index, Ordering::Relaxed);
        }
    }
}

/// Forwards log messages until there can be no more.
async fn forward_logs(
    peer: Peer<RoleServer>,
    wanted: Arc<AtomicUsize>,
    mut events: broadcast::Receiver<Event>,
) {
    loop {
        let log = match events.recv().await {
            Ok(Event::Log(log)) => log,
            Ok(Event::ToolsChanged { .. }) | Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let LogMessage { server, level, logger, data } = &*log;
        let level = index_of(level).unwrap_or(DEFAULT_LEVEL);
        if level < wanted.load(Ordering::Relaxed) {
            continue;
        }
        let logger =
            logger.as_ref().map_or_else(|| server.to_string(), |logger| format!("{server}: {logger}"));
        let params = json!({ "level": LEVELS[level], "logger": logger, "data": data });
        let message = CustomNotification::new("notifications/message", Some(params));
        // The client may be gone.
        let _ = peer.send_notification(ServerNotification::CustomNotification(message)).await;
    }
}

fn index_of(level: &str) -> Option<usize> {
    LEVELS.iter().position(|known| known.eq_ignore_ascii_case(level))
}
