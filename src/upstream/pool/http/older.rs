//! The older HTTP transport: one stream of events from the server, of which the first names the endpoint for messages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, HeaderValue, header};
use reqwest::{Client, Url};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio_util::sync::CancellationToken;

use super::client::{HttpError, client, error_response, header_map, is_of_type, unexpected_type};
use super::events::{Data, EventReader};
use super::turns::Turns;
use crate::mcp::client::Inbox;
use crate::upstream::pool::wire::WireMessage;

/// Our side of the transport.
pub(in crate::upstream::pool) struct OlderTransport {
    http: Client,
    headers: HeaderMap,
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
        url: &str,
        headers: &[(String, String)],
        inbox: Inbox,
        gone: CancellationToken,
    ) -> Result<Self, HttpError> {
        let http = client(url)?;
        let headers = header_map(headers);
        let mut for_stream = headers.clone();
        for_stream.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = http.get(url).headers(for_stream).send().await?;
        if !response.status().is_success() {
            return Err(error_response(response).await.0);
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
            http,
            headers,
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
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = self.http.post(self.endpoint.clone()).headers(headers);
        let inbox = Arc::clone(&self.inbox);
        async move {
            let body =
                WireMessage::new(&message).map_err(|error| HttpError::Connection(error.to_string()))?;
            let sent = request.body(body.into_bytes().await).send().await;
            let lock = || inbox.lock().unwrap_or_else(PoisonError::into_inner);
            lock().replied(&message);
            let failed = match sent {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => error_response(response).await.0,
                Err(error) => error.into(),
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
