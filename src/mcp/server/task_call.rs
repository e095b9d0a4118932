//! Tasks of protocol 2025-11-25, as far as `rmcp` loses them: what a call says of the task that it wants, and the capability.
//!
//! <https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks>

use std::borrow::Cow;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomRequest, CustomResult, Extensions, GetExtensions, GetMeta,
    JsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The task that a call wants to be. It is an extension of the request, or of the HTTP request around it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TaskCall(Value);

impl TaskCall {
    /// Takes it out of the parameters of a call.
    pub(super) fn take(params: &mut Map<String, Value>) -> Option<Self> {
        params.shift_remove("task").map(Self)
    }

    /// Returns that of a call in the body of a request.
    pub(crate) fn in_body(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            method: Cow<'a, str>,
            params: Params,
        }
        #[derive(Deserialize)]
        struct Params {
            task: Value,
        }
        let key: &[u8] = b"\"task\"";
        // Most bodies are calls without one.
        if !body.windows(key.len()).any(|window| window == key) {
            return None;
        }
        let message = serde_json::from_slice::<Message<'_>>(body).ok()?;
        (message.method == "tools/call").then_some(Self(message.params.task))
    }

    /// Returns that of a request.
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        let of_http = || extensions.get::<http::request::Parts>()?.extensions.get::<Self>();
        extensions.get::<Self>().or_else(of_http).cloned()
    }

    /// Returns for how many milliseconds the task is to be kept, if it says so; None if it is malformed.
    pub(crate) fn ttl(&self) -> Option<Option<u64>> {
        match self.0.as_object()?.get("ttl") {
            None | Some(Value::Null) => Some(None),
            Some(ttl) => ttl.as_u64().map(Some),
        }
    }
}

/// Returns a message of a client that has opened a session with `initialize`: the requests that `rmcp` reads otherwise in its later
/// form, or answers without what is said of tasks, are passed on unread.
pub(crate) fn unread(message: ClientJsonRpcMessage) -> ClientJsonRpcMessage {
    let JsonRpcMessage::Request(mut request) = message else { return message };
    if request.request.get_meta().protocol_version().is_some() {
        return JsonRpcMessage::Request(request);
    }
    let is_task = TaskCall::of(request.request.extensions()).is_some();
    let (params, extensions) = match &mut request.request {
        ClientRequest::CallToolRequest(call) if is_task => {
            (serde_json::to_value(&call.params).ok(), &mut call.extensions)
        }
        ClientRequest::ListToolsRequest(list) => (None, &mut list.extensions),
        ClientRequest::GetTaskRequest(get) => (serde_json::to_value(&get.params).ok(), &mut get.extensions),
        ClientRequest::CancelTaskRequest(cancel) => {
            (serde_json::to_value(&cancel.params).ok(), &mut cancel.extensions)
        }
        _ => return JsonRpcMessage::Request(request),
    };
    let extensions = std::mem::take(extensions);
    let mut unread = CustomRequest::new(request.request.method(), params);
    unread.extensions = extensions;
    request.request = ClientRequest::CustomRequest(unread);
    JsonRpcMessage::Request(request)
}

/// Adds to the answer to `initialize` that calls can be tasks.
pub(crate) fn announce(message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
    match message {
        JsonRpcMessage::Response(mut response) => {
            if let ServerResult::InitializeResult(result) = &response.result
                && result.protocol_version == ProtocolVersion::V_2025_11_25
                && let Ok(mut result) = serde_json::to_value(result)
            {
                result["capabilities"]["tasks"] =
                    json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
                response.result = ServerResult::CustomResult(CustomResult::new(result));
            }
            JsonRpcMessage::Response(response)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_searched_for_a_task() {
        let ttl = |task: &str| {
            let body = format!(r#"{{"method":"tools/call","params":{{"name":"run_python"{task}}},"id":1}}"#);
            TaskCall::in_body(body.as_bytes()).map(|call| call.ttl())
        };
        assert_eq!(ttl(""), None);
        assert_eq!(ttl(r#","arguments":{"code":"\"task\""}"#), None);
        assert_eq!(ttl(r#","arguments":{"task":1}"#), None);
        assert_eq!(ttl(r#","task":{}"#), Some(Some(None)));
        assert_eq!(ttl(r#","task":{"ttl":60000}"#), Some(Some(Some(60_000))));
        for malformed in ["5", "null", r#"{"ttl":-1}"#, r#"{"ttl":"1h"}"#] {
            assert_eq!(ttl(&format!(r#","task":{malformed}"#)), Some(None), "{malformed}");
        }
        assert!(TaskCall::in_body(br#"{"method":"ping","params":{"task":{}}}"#).is_none());
    }
}
