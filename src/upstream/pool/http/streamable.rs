//! Streamable HTTP. `rmcp` does sessions, resumption and order; requests and responses are ours, so that every message
//! passes the inbox.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{BoxStream, StreamExt, unfold};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use reqwest::Response;
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, RequestId, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::client::{HttpError, body, is_of_type, unexpected_type};
use super::events::{Event, EventReader};
use super::sender::{Remote, Sender};
use super::turns::Turns;
use crate::mcp::client::{Inbox, Unaccepted, is_message, is_reply};
use crate::upstream::pool::handler::{CallOrigin, Calls};
use crate::upstream::pool::stdio::LONGEST_LINE;
use crate::upstream::pool::wire::WireMessage;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

type Failed = StreamableHttpError<HttpError>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Returns a transport to a server.
pub(in crate::upstream::pool) fn streamable(
    remote: Remote<'_>,
    calls_at_once: usize,
    inbox: Inbox,
    calls: Calls,
) -> Result<StreamableHttpClientTransport<Posts>, HttpError> {
    let url = remote.url;
    let posts = Posts {
        sender: Sender::new(remote)?,
        inbox: Arc::new(Mutex::new(inbox)),
        calls,
        turns: Turns::default(),
    };
    let config = StreamableHttpClientTransportConfig::with_uri(url).max_concurrent_requests(calls_at_once);
    Ok(StreamableHttpClientTransport::with_client(posts, config))
}

/// Sends messages and reads the responses.
#[derive(Debug, Clone)]
pub(in crate::upstream::pool) struct Posts {
    sender: Sender,
    inbox: Arc<Mutex<Inbox>>,
    calls: Calls,
    turns: Turns,
}

impl Posts {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request with the headers of the definition and of the protocol; those of the protocol win.
    async fn send(
        &self,
        method: Method,
        url: &str,
        session: Option<&str>,
        protocol_headers: HeaderMap,
        body: Option<Vec<u8>>,
    ) -> Result<Response, HttpError> {
        let mut headers = protocol_headers;
        if let Some(session) = session.and_then(|session| HeaderValue::from_str(session).ok()) {
            headers.insert(SESSION, session);
        }
        if body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        }
        self.sender.send(method, url, headers, body).await
    }

    /// Reads the response to a message.
    async fn read(
        &self,
        mut response: Response,
        request: Option<RequestId>,
        origin: Option<CallOrigin>,
        has_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let status = response.status();
        let session =
            response.headers().get(SESSION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        if !status.is_success() {
            let (error, bytes) = self.sender.refused(response).await;
            // A server that understood the message answers it in the body. One that demands a login has not read it.
            let is_login = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            let answer = match request {
                Some(_) if !is_login && is_message(&bytes) => self.accept(&bytes).pop(),
                _ => None,
            };
            return match answer {
                Some(message) if is_answer(&message) => {
                    Ok(StreamableHttpPostResponse::Json(message, session))
                }
                _ => Err(StreamableHttpError::Client(error)),
            };
        }
        let Some(request) = request else { return Ok(StreamableHttpPostResponse::Accepted) };
        if is_of_type(&response, EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, origin), session));
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !is_of_type(&response, JSON) {
            return Err(StreamableHttpError::Client(unexpected_type(&response)));
        }
        let has_room = self.inbox().has_room_for_results();
        has_room.await;
        let mut reading = self.turns.reading();
        let read = body(&mut response, LONGEST_LINE, &mut reading).await;
        let Some(bytes) = read.map_err(StreamableHttpError::Client)? else {
            return Err(StreamableHttpError::Client(HttpError::TooLong(LONGEST_LINE)));
        };
        let mut messages = self.accept(&bytes);
        self.note_origin(origin, &messages);
        if !messages.iter().any(is_answer) {
            messages.extend(self.inbox().unanswered(request));
        }
        if messages.len() == 1
            && let Some(message) = messages.pop()
        {
            return Ok(StreamableHttpPostResponse::Json(message, session));
        }
        let events = messages.iter().map(|message| Ok(event_of(message))).collect::<Vec<_>>();
        Ok(StreamableHttpPostResponse::Sse(futures_util::stream::iter(events).boxed(), session))
    }

    fn accept(&self, bytes: &[u8]) -> Vec<ServerJsonRpcMessage> {
        let read = Unaccepted::read(bytes);
        self.inbox().accept_all(read)
    }

    fn note_origin(&self, origin: Option<CallOrigin>, messages: &[ServerJsonRpcMessage]) {
        if let Some(origin) = origin {
            self.calls.came_with(origin, messages);
        }
    }

    /// Returns events whose messages have passed the inbox.
    fn events(&self, response: Response, origin: Option<CallOrigin>) -> Events {
        let state = (EventReader::new(response, &self.turns), self.clone(), VecDeque::new());
        let next = move |(mut reader, posts, mut ready): (EventReader, Self, VecDeque<Sse>)| async move {
            loop {
                if let Some(event) = ready.pop_front() {
                    return Some((Ok(event), (reader, posts, ready)));
                }
                let has_room = posts.inbox().has_room();
                has_room.await;
                match reader.next().await {
                    Ok(Some(event)) => ready.extend(posts.pass(event, origin)),
                    Ok(None) => return None,
                    Err(error) => {
                        return Some((Err(SseError::Body(Box::new(error))), (reader, posts, ready)));
                    }
                }
            }
        };
        unfold(state, next).boxed()
    }

    fn pass(&self, event: Event, origin: Option<CallOrigin>) -> Vec<Sse> {
        let messages = event.read(&self.inbox);
        self.note_origin(origin, &messages);
        let mut events: Vec<Sse> = messages.iter().map(event_of).collect();
        if events.is_empty() {
            events.push(Sse::default());
        }
        // The stream is resumed after this event, even if it contained nothing for `rmcp`.
        if let Some(last) = events.last_mut() {
            last.id = event.id;
            last.retry = event.retry;
        }
        events
    }
}

/// A reply to the server that is being sent, until it was, or never will be.
struct Replying<'a> {
    posts: &'a Posts,
    message: &'a ClientJsonRpcMessage,
}

impl Drop for Replying<'_> {
    fn drop(&mut self) {
        self.posts.inbox().replied(self.message);
    }
}

fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))
}

/// Writes a message as an event, because `rmcp` takes events as text. Results and questions are not in it.
fn event_of(message: &ServerJsonRpcMessage) -> Sse {
    Sse { data: serde_json::to_string(message).ok(), ..Sse::default() }
}

impl StreamableHttpClient for Posts {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        protocol_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.inbox().note(&message);
        let _replying = is_reply(&message).then(|| Replying { posts: self, message: &message });
        let (request, origin) = match &message {
            ClientJsonRpcMessage::Request(request) => {
                let origin = request.request.extensions().get::<CallOrigin>().copied();
                (Some(request.id.clone()), origin)
            }
            _ => (None, None),
        };
        let bytes = WireMessage::new(&message)?.into_bytes().await;
        let mut headers = HeaderMap::from_iter(protocol_headers);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let sent = self.send(Method::POST, &uri, session_id.as_deref(), headers, Some(bytes)).await;
        let read = match sent {
            Ok(response) => self.read(response, request.clone(), origin, session_id.is_some()).await,
            Err(error) => Err(StreamableHttpError::Client(error)),
        };
        if read.is_err()
            && let Some(id) = &request
        {
            self.inbox().withdraw(id);
        }
        read
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        protocol_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failed> {
        // The session may stay on the server: its response does not matter.
        let headers = HeaderMap::from_iter(protocol_headers);
        let sent = self.send(Method::DELETE, &uri, Some(&session_id), headers, None).await;
        sent.map(|_| ()).map_err(StreamableHttpError::Client)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        protocol_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failed> {
        let mut headers = HeaderMap::from_iter(protocol_headers);
        headers.insert(header::ACCEPT, HeaderValue::from_static(EVENTS));
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_str(&id).ok()) {
            headers.insert(LAST_EVENT, id);
        }
        let sent = self.send(Method::GET, &uri, session_id.as_deref(), headers, None).await;
        let response = sent.map_err(StreamableHttpError::Client)?;
        if response.status().is_client_error()
            || (response.status().is_success() && !is_of_type(&response, EVENTS))
        {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if !response.status().is_success() {
            return Err(StreamableHttpError::Client(self.sender.refused(response).await.0));
        }
        Ok(self.events(response, None))
    }
}
