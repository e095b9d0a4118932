//! Asks a client by requests, which clients take that open with `initialize`.

use rmcp::model::{CustomNotification, CustomRequest, ServerNotification, ServerRequest};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use rmcp::{Peer, RoleServer};
use serde_json::json;

use super::offers::{offers_of, supports};
use crate::upstream::{Answering, Answers, ClientId, Offers, Question, Refusal};

/// Asks a client by requests.
#[derive(Debug)]
pub(super) struct PeerAnswers {
    client: ClientId,
    peer: Peer<RoleServer>,
    offers: Offers,
}

impl PeerAnswers {
    /// Returns None for a client that has not opened a session.
    pub(super) fn new(client: ClientId, peer: &Peer<RoleServer>) -> Option<Self> {
        let offers = offers_of(&peer.peer_info()?.capabilities);
        Some(Self { client, peer: peer.clone(), offers })
    }
}

impl Answers for PeerAnswers {
    fn client(&self) -> ClientId {
        self.client
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        Box::pin(async move {
            supports(&self.offers, &question)?;
            tracing::debug!(server = %question.server, method = question.method, "a server asks the client");
            let request = CustomRequest::new(question.method, question.params);
            let request = ServerRequest::CustomRequest(request);
            let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
            let mut pending = SentQuestion(Some(sent.map_err(|error| failed(&error))?));
            let Some(handle) = pending.0.as_mut() else { return Err(failed(&"the connection is closed")) };
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

    fn page_done(&self, id: &str) {
        if !self.offers.elicitation_by_url {
            return;
        }
        let (peer, params) = (self.peer.clone(), json!({ "elicitationId": id }));
        tokio::spawn(async move {
            let done = CustomNotification::new("notifications/elicitation/complete", Some(params));
            // A client that is gone needs to know nothing.
            let _ = peer.send_notification(ServerNotification::CustomNotification(done)).await;
        });
    }
}

/// A question that is cancelled when its answer is no longer needed, so that no dialog stays open.
struct SentQuestion(Option<RequestHandle<RoleServer>>);

impl Drop for SentQuestion {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            tokio::spawn(handle.cancel(Some("the answer is no longer needed".into())));
        }
    }
}

fn failed(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::unanswered(&error.to_string())
}
