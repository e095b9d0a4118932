//! The older HTTP transport: one stream of events from the server, of which the first names the endpoint for messages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, HeaderValue, Method, header};
use reqwest::Url;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio_util::sync::CancellationToken;

use super::client::{HttpError, is_of_type, unexpected_type};
use super::events::{Data, EventReader};
use super::sender::{Remote, Sender};
use super::turns::Turns;
use crate::mcp::client::Inbox;
use crate::upstream::pool::wire::WireMessage;

/// Our side of the transport.
pub(in crate::upstream::pool) struct OlderTransport {
    sender: Sender,
    endpoint: Url,
    events: EventReader,
    ready: VecDeque<ServerJsonRpcMessage>,
    /// Shared with requests that are being sent: one that fails is withdrawn.
    inbox: Arc<Mutex<Inbox>>,
    gone: CancellationToken,
}

impl OlderTransport {
    /// Opens the stream and waits for its first event.
    pub(in crate::upstream::pool) async fn open(
        remote: Remote<'_>,
        inbox: Inbox,
        gone: CancellationToken,
    ) -> Result<Self, HttpError> {
        let url = remote.url;
        let sender = Sender::new(remote)?;
        let accepted = (header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = sender.send(Method::GET, url, HeaderMap::from_iter([accepted]), None).await?;
        if !response.status().is_success() {
            return Err(sender.refused(response).await.0);
        }
        if !is_of_type(&response, "text/event-stream") {
            return Err(unexpected_type(&response));
        }
        let base = response.url().clone();
        let mut events = EventReader::new(response, &Turns::default());
        let endpoint = loop {
            match events.next().await? {
                Some(event) if event.name == "endpoint" => break endpoint(&base, &event.data),
                Some(_) => {}
                None => break None,
            }
        };
        Ok(Self {
            sender,
            endpoint: endpoint.ok_or(HttpError::NoEndpoint)?,
            events,
            ready: VecDeque::new(),
            inbox: Arc::new(Mutex::new(inbox)),
            gone,
        })
    }
}

/// Returns the endpoint that an event names, if it has the origin of the definition's URL.
fn endpoint(base: &Url, data: &Data) -> Option<Url> {
    let Data::Whole(text) = data else { return None };
    let endpoint = base.join(str::from_utf8(text).ok()?.trim()).ok()?;
    (endpoint.origin() == base.origin()).then_some(endpoint)
}

impl Transport<RoleClient> for OlderTransport {
    type Error = HttpError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), HttpError>> + Send + 'static {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).note(&message);
        let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let headers = HeaderMap::from_iter([json]);
        let (sender, endpoint) = (self.sender.clone(), self.endpoint.clone());
        let inbox = Arc::clone(&self.inbox);
        async move {
            let body =
                WireMessage::new(&message).map_err(|error| HttpError::Connection(error.to_string()))?;
            let body = Some(body.into_bytes().await);
            let sent = sender.send(Method::POST, endpoint.as_str(), headers, body).await;
            let lock = || inbox.lock().unwrap_or_else(PoisonError::into_inner);
            lock().replied(&message);
            let failed = match sent {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => sender.refused(response).await.0,
                Err(error) => error,
            };
            if let ClientJsonRpcMessage::Request(request) = &message {
                lock().withdraw(&request.id);
            }
            Err(failed)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            let has_room = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).has_room();
            has_room.await;
            let Ok(Some(event)) = self.events.next().await else {
                self.gone.cancel();
                return None;
            };
            self.ready.extend(event.read(&self.inbox));
        }
    }

    async fn close(&mut self) -> Result<(), HttpError> {
        self.gone.cancel();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_sent_to_the_same_origin_only() {
        let base = Url::parse("https://example.org:1/a/sse?x=1").unwrap();
        let at = |text: &str| endpoint(&base, &Data::Whole(text.into())).map(String::from);
        assert_eq!(at("/messages?id=2").as_deref(), Some("https://example.org:1/messages?id=2"));
        assert_eq!(at("messages").as_deref(), Some("https://example.org:1/a/messages"));
        assert_eq!(at("https://example.org:1/m").as_deref(), Some("https://example.org:1/m"));
        for elsewhere in
            ["https://evil.example/m", "http://example.org:1/m", "//evil.example/m", "https://example.org/m"]
        {
            assert_eq!(at(elsewhere), None, "{elsewhere}");
        }
        assert_eq!(endpoint(&base, &Data::None), None);
    }
}
