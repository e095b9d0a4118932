//! An API as an MCP server within this process: what is a server to all other code stays one.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, GetExtensions, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::api::{Api, LoadError};
use crate::mcp::client::Inbox;
use crate::upstream::discovery::OpenApi;
use crate::upstream::raw_arguments::RawArguments;

/// Answers that wait to be read.
const WAITING: usize = 4;

/// Our side of the connection. Dropping it cancels the calls under way.
pub(in crate::upstream) struct OpenApiTransport {
    current: Arc<Current>,
    inbox: Inbox,
    answers: Option<mpsc::Sender<Vec<u8>>>,
    answered: mpsc::Receiver<Vec<u8>>,
    /// What `rmcp` gets of the answers read last.
    ready: VecDeque<ServerJsonRpcMessage>,
    calls: HashMap<RequestId, AbortHandle>,
}

/// The API as its document was read last.
#[derive(Debug)]
struct Current {
    definition: Arc<OpenApi>,
    api: tokio::sync::Mutex<Arc<Api>>,
}

impl Current {
    /// Returns the API, and whether its document was read again because it has changed.
    async fn get(&self) -> (Arc<Api>, bool) {
        let mut api = self.api.lock().await;
        if api.is_current(&self.definition.document) {
            return (Arc::clone(&api), false);
        }
        match Api::load(&self.definition).await {
            Ok(new) => {
                *api = Arc::new(new);
                (Arc::clone(&api), true)
            }
            Err(error) => {
                // It may be half written; what was read before still holds.
                tracing::warn!(%error, "a changed document is not used");
                (Arc::clone(&api), false)
            }
        }
    }
}

impl OpenApiTransport {
    /// Reads the document, so that the server is known to be usable.
    ///
    /// # Errors
    /// The document cannot be used.
    pub(in crate::upstream) async fn open(
        definition: &Arc<OpenApi>,
        inbox: Inbox,
    ) -> Result<Self, LoadError> {
        let api = tokio::sync::Mutex::new(Arc::new(Api::load(definition).await?));
        let (answers, answered) = mpsc::channel(WAITING);
        Ok(Self {
            current: Arc::new(Current { definition: Arc::clone(definition), api }),
            inbox,
            answers: Some(answers),
            answered,
            ready: VecDeque::new(),
            calls: HashMap::new(),
        })
    }

    fn answer(&mut self, id: RequestId, request: ClientRequest) {
        let Some(answers) = self.answers.clone() else { return };
        let current = Arc::clone(&self.current);
        let key = id.clone();
        let answering = tokio::spawn(async move {
            let (api, is_new) = current.get().await;
            if is_new {
                let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
                let _ = answers.send(changed.to_string().into_bytes()).await;
            }
            let answer = answer_of(&api, &request).await;
            let id = serde_json::to_string(&id).unwrap_or_default();
            // The receiver has gone when nobody waits any more.
            let _ = answers.send(format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#).into_bytes()).await;
        });
        self.calls.retain(|_, call| !call.is_finished());
        self.calls.insert(key, answering.abort_handle());
    }

    fn end(&mut self) {
        self.answers = None;
        self.calls.drain().for_each(|(_, call)| call.abort());
    }
}

/// Returns the member of the answer that is the result or the error.
async fn answer_of(api: &Api, request: &ClientRequest) -> String {
    let error = |code: ErrorCode, message: String| {
        format!(r#""error":{}"#, json!({ "code": code.0, "message": message }))
    };
    let result = |value: &Value| format!(r#""result":{value}"#);
    match request {
        ClientRequest::InitializeRequest(_) => result(&api.about()),
        ClientRequest::PingRequest(_) => result(&json!({})),
        ClientRequest::ListToolsRequest(_) => format!(r#""result":{}"#, api.tools()),
        ClientRequest::CallToolRequest(call) => {
            let tool = &call.params.name;
            if !api.has(tool) {
                return error(ErrorCode::INVALID_PARAMS, format!("there is no operation '{tool}'"));
            }
            let arguments = call.extensions().get::<RawArguments>();
            let arguments = arguments.map_or(&b"{}"[..], RawArguments::as_bytes);
            result(&api.call(tool, arguments).await)
        }
        _ => error(ErrorCode::METHOD_NOT_FOUND, "an OpenAPI document has only tools".into()),
    }
}

impl Transport<RoleClient> for OpenApiTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.inbox.note(&message);
        self.inbox.replied(&message);
        match message {
            ClientJsonRpcMessage::Request(request) => self.answer(request.id, request.request),
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = notification.notification
                    && let Some(call) = cancelled.params.request_id.and_then(|id| self.calls.remove(&id))
                {
                    call.abort();
                }
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
        std::future::ready(match self.answers {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            self.inbox.has_room().await;
            let answer = self.answered.recv().await?;
            self.ready.extend(self.inbox.read_line(&answer));
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.end();
        Ok(())
    }
}

impl Drop for OpenApiTransport {
    fn drop(&mut self) {
        self.end();
    }
}
