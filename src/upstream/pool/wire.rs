//! Messages to servers as bytes.
//!
//! `rmcp` would take the arguments of a call as parsed values. They are raw instead, an extension of the request, so that
//! they pass through `rmcp` to the transport, and are put into the message here.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetExtensions};
use serde::ser::Error;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::inputs::Inputs;
use crate::upstream::raw_arguments::RawArguments;

/// How a call ends in which `rmcp` has no arguments.
const NO_ARGUMENTS: &[u8] = br#""arguments":{}}}"#;
/// What comes after the arguments, and what asks for a task besides.
const TAIL: &[u8] = b"}}";
const TAIL_OF_TASK: &[u8] = br#","task":{}}}"#;

/// Asks for a task, as an extension of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct AsTask;

/// A message to a server.
#[derive(Debug)]
pub(super) struct WireMessage {
    /// The message, up to the arguments if it has any.
    head: Vec<u8>,
    arguments: Option<RawArguments>,
    tail: Vec<u8>,
}

impl WireMessage {
    pub(super) fn new(message: &ClientJsonRpcMessage) -> Result<Self, serde_json::Error> {
        let mut head = serde_json::to_vec(message)?;
        let extensions = match message {
            ClientJsonRpcMessage::Request(request) => match &request.request {
                ClientRequest::CallToolRequest(call) => Some(call.extensions()),
                _ => None,
            },
            _ => None,
        };
        let arguments = extensions.and_then(|extensions| extensions.get::<RawArguments>().cloned());
        let as_task = extensions.is_some_and(|extensions| extensions.get::<AsTask>().is_some());
        if arguments.is_none() {
            return Ok(Self { head, arguments, tail: Vec::new() });
        }
        if !head.ends_with(NO_ARGUMENTS) {
            return Err(serde_json::Error::custom("the call has no place for its arguments"));
        }
        head.truncate(head.len() - b"{}}}".len());
        let inputs = extensions.and_then(|extensions| extensions.get::<Inputs>());
        let mut tail = inputs.map_or_else(Vec::new, |inputs| inputs.as_members().into_bytes());
        tail.extend_from_slice(if as_task { TAIL_OF_TASK } else { TAIL });
        Ok(Self { head, arguments, tail })
    }

    #[cfg(test)]
    pub(super) fn of_text(text: &str) -> Self {
        Self { head: text.into(), arguments: None, tail: Vec::new() }
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.arguments.as_ref().map_or(0, |raw| raw.as_bytes().len()) + self.tail.len()
    }

    /// Writes the message as a line.
    pub(super) async fn write_line(self, writer: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        if self.is_large() {
            let arguments = self.arguments.as_ref().map_or(&b""[..], RawArguments::as_bytes);
            for part in [&self.head, arguments, &self.tail, b"\n"] {
                writer.write_all(part).await?;
            }
        } else {
            let mut line = self.joined();
            line.push(b'\n');
            writer.write_all(&line).await?;
        }
        writer.flush().await
    }

    /// Returns the whole message.
    pub(super) async fn into_bytes(self) -> Vec<u8> {
        if !self.is_large() {
            return self.joined();
        }
        tokio::task::spawn_blocking(move || self.joined()).await.unwrap_or_default()
    }

    fn is_large(&self) -> bool {
        self.arguments.as_ref().is_some_and(RawArguments::are_large)
    }

    fn joined(&self) -> Vec<u8> {
        let arguments = self.arguments.as_ref().map_or(&b""[..], RawArguments::as_bytes);
        let mut bytes = Vec::with_capacity(self.len() + 1);
        bytes.extend_from_slice(&self.head);
        bytes.extend_from_slice(arguments);
        bytes.extend_from_slice(&self.tail);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{
        CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, JsonRpcRequest, ListToolsRequest,
        RequestId,
    };
    use serde_json::{Map, Value, json};

    use super::*;

    fn call(tool: &str, arguments: &str) -> ClientJsonRpcMessage {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(Map::new());
        let mut request = CallToolRequest::new(params);
        request.extensions_mut().insert(RawArguments::new(arguments.into()).unwrap());
        let request = ClientRequest::CallToolRequest(request);
        ClientJsonRpcMessage::Request(JsonRpcRequest::new(RequestId::Number(7), request))
    }

    async fn line(message: &ClientJsonRpcMessage) -> String {
        let mut line = Vec::new();
        WireMessage::new(message).unwrap().write_line(&mut line).await.unwrap();
        let bytes = WireMessage::new(message).unwrap().into_bytes().await;
        assert_eq!(line, [&bytes[..], b"\n"].concat());
        String::from_utf8(line).unwrap()
    }

    #[tokio::test]
    async fn arguments_are_sent_as_they_were_written() {
        let line = line(&call("echo", r#"{"z":1.10,"a":[{}]}"#)).await;
        assert!(line.ends_with("\"arguments\":{\"z\":1.10,\"a\":[{}]}}}\n"), "{line}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["id"], &value["params"]["name"]), (&json!(7), &json!("echo")));
    }

    #[tokio::test]
    async fn a_call_asks_for_a_task_behind_its_arguments() {
        let mut message = call("echo", r#"{"a":"}}"}"#);
        if let ClientJsonRpcMessage::Request(request) = &mut message {
            request.request.extensions_mut().insert(AsTask);
        }
        let value: Value = serde_json::from_str(&line(&message).await).unwrap();
        assert_eq!(value["params"]["arguments"], json!({ "a": "}}" }));
        assert_eq!(value["params"]["task"], json!({}));
    }

    #[tokio::test]
    async fn no_name_and_no_arguments_change_the_rest_of_the_message() {
        let name = "x\",\"arguments\":{}}}\n";
        let arguments = "{\"a\":\n{\"jsonrpc\":\"2.0\",\"method\":\"exit\"}\n}";
        let line = line(&call(name, arguments)).await;
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["params"]["name"], name);
        assert_eq!(value["params"]["arguments"]["a"]["method"], "exit");
    }

    #[tokio::test]
    async fn large_arguments_are_sent_whole() {
        let arguments = json!({ "a": "x".repeat(1 << 20) }).to_string();
        let line = line(&call("echo", &arguments)).await;
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["params"]["arguments"].to_string(), arguments);
    }

    #[tokio::test]
    async fn other_messages_have_no_arguments() {
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::default());
        let line =
            line(&ClientJsonRpcMessage::Request(JsonRpcRequest::new(RequestId::Number(7), request))).await;
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["method"], "tools/list");
    }
}
