//! The client as the user's servers see it: it answers their questions and hears what they log.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rmcp::model::{CustomNotification, CustomRequest, ServerNotification, ServerRequest};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::offers::{offers_of, supports};
use super::rounds::Rounds;
use crate::upstream::{Answering, Answers, Event, Offers, Question, Refusal};

/// Least severe first, as the protocol names them.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
/// What a client hears that has not asked for more or less: `info`.
const USUAL_LEVEL: usize = 1;

/// The client of the connection, once there is one. Servers may be started before that, and then get no answers.
#[derive(Debug)]
pub struct Client {
    peer: OnceLock<Peer<RoleServer>>,
    /// How clients are asked that have no session.
    rounds: Rounds,
    /// Place in [`LEVELS`] of the least severe message that the client wants.
    level: AtomicUsize,
}

impl Default for Client {
    fn default() -> Self {
        Self { peer: OnceLock::new(), rounds: Rounds::default(), level: AtomicUsize::new(USUAL_LEVEL) }
    }
}

impl Client {
    /// A client of a protocol in which servers may speak first: those that open with `initialize`.
    pub(super) fn connected(&self, peer: &Peer<RoleServer>) {
        // A second `initialize` comes from the same client.
        let _ = self.peer.set(peer.clone());
    }

    /// How clients are asked that have no session.
    pub(super) fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// The client wants messages from this level on.
    pub(super) fn set_level(&self, level: &str) {
        if let Some(place) = place_of(level) {
            self.level.store(place, Ordering::Relaxed);
        }
    }

    /// Passes on what servers log, for as long as anything may be logged.
    pub async fn pass_on(self: Arc<Self>, mut events: broadcast::Receiver<Event>) {
        loop {
            match events.recv().await {
                Ok(Event::Log { server, level, logger, data }) => {
                    self.log(&server, &level, logger.as_deref(), data).await;
                }
                Ok(Event::ToolsChanged { .. }) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    async fn log(&self, server: &str, level: &str, logger: Option<&str>, data: Value) {
        let Some(peer) = self.peer.get() else { return };
        let place = place_of(level).unwrap_or(USUAL_LEVEL);
        if place < self.level.load(Ordering::Relaxed) {
            return;
        }
        let logger = logger.map_or_else(|| server.to_owned(), |logger| format!("{server}: {logger}"));
        let params = json!({ "level": LEVELS[place], "logger": logger, "data": data });
        let message = CustomNotification::new("notifications/message", Some(params));
        // A client that is gone has no use for it.
        let _ = peer.send_notification(ServerNotification::CustomNotification(message)).await;
    }

    fn peer_offers(&self) -> Option<Offers> {
        Some(offers_of(&self.peer.get()?.peer_info()?.capabilities))
    }
}

fn place_of(level: &str) -> Option<usize> {
    LEVELS.iter().position(|known| known.eq_ignore_ascii_case(level))
}

impl Answers for Client {
    fn offers(&self) -> Offers {
        self.peer_offers().unwrap_or_else(|| self.rounds.offers())
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        Box::pin(async move {
            let Some(peer) = self.peer.get() else { return self.rounds.ask(question).await };
            supports(&self.offers(), &question)?;
            tracing::debug!(server = %question.server, method = question.method, "a server asks the client");
            let request = CustomRequest::new(question.method, question.params);
            let request = ServerRequest::CustomRequest(request);
            let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
            let mut pending = PendingQuestion(Some(sent.map_err(|error| failed(&error))?));
            let Some(handle) = pending.0.as_mut() else { return Err(failed(&"nobody listens")) };
            let answer = (&mut handle.rx).await;
            pending.0 = None;
            match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                Ok(answer) => serde_json::to_value(answer).map_err(|error| failed(&error)),
                Err(ServiceError::McpError(error)) => {
                    Err(Refusal { code: error.code.0, message: error.message.into_owned(), data: error.data })
                }
                Err(error) => Err(failed(&error)),
            }
        })
    }
}

/// A question that is cancelled when nobody waits for its answer any more, so that no dialog stays open.
struct PendingQuestion(Option<RequestHandle<RoleServer>>);

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            tokio::spawn(handle.cancel(Some("the answer is no longer needed".into())));
        }
    }
}

fn failed(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::unanswered(&error.to_string())
}
