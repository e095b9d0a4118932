//! Requests of a server, on their way past `rmcp` to the handler that answers them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{CustomRequest, RequestId, ServerJsonRpcMessage, ServerRequest};
use serde_json::Value;

/// What `rmcp` sees of every question: a request with its id, of a method that it hands to the handler unread.
const TICKET: &str = "codebridge/question";

/// A question as it came.
#[derive(Debug)]
pub(crate) struct RawQuestion {
    pub(crate) method: String,
    pub(crate) params: Option<Value>,
}

/// The questions of one connection that no handler has taken yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Questions(Arc<Mutex<HashMap<RequestId, RawQuestion>>>);

impl Questions {
    /// Returns the question that a request of `rmcp` stands for.
    pub(crate) fn take(&self, id: &RequestId) -> Option<RawQuestion> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    /// Keeps a question and returns the request that stands for it.
    pub(super) fn add(&self, id: RequestId, method: String, params: Option<Value>) -> ServerJsonRpcMessage {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.clone(), RawQuestion { method, params });
        let ticket = CustomRequest::new(TICKET, None);
        ServerJsonRpcMessage::request(ServerRequest::CustomRequest(ticket), id)
    }
}
