//! What comes from a server, made fit for the client behind it.
//!
//! The client takes only what its types know, drops silently what it cannot read, and whoever waits for that waits for
//! ever. So every message is read here first: the results that matter stay the text that they are, what is almost JSON is
//! mended, and an answer that nobody can read becomes an error of the call that it answers.

use std::collections::HashMap;
use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, CustomRequest, CustomResult, ErrorCode,
    ErrorData, GetExtensions, GetMeta, InitializeResult, NumberOrString, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerRequest, ServerResult,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};

use super::secrets::Secrets;
use crate::mcp::line::Skipped;
use crate::mcp::repair::repair;
use crate::mcp::scan::{id_at_the_end, scan};
use crate::upstream::events::{Event, Events, ServerProgress};

/// Stands before the method of a server's question, so that the client hands it on as it is.
pub(super) const QUESTION: &str = "server:";

/// Bytes of a log message that are passed on; many of them may wait for a listener.
const LONGEST_WORDS: usize = 64 << 10;
/// Bytes of a message on several lines.
const LONGEST_SPREAD: usize = 64 << 20;

/// Rides on a request to where its progress token becomes known.
#[derive(Debug, Clone)]
pub(super) struct ProgressSink(pub(super) mpsc::Sender<ServerProgress>);

/// How the answer to a request of ours is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// As the text that it is, in a string.
    Verbatim,
    /// As what a server says of itself, as far as it does.
    Initialize,
    /// As the client's types have it.
    Typed,
}

#[derive(Debug)]
struct Pending {
    reading: Reading,
    token: Option<i64>,
}

/// The reader of one connection.
#[derive(Debug)]
pub(super) struct Inbox {
    server: Arc<str>,
    secrets: Arc<Secrets>,
    events: Events,
    pending: HashMap<i64, Pending>,
    progress: HashMap<i64, ProgressSink>,
    on_tools_changed: watch::Sender<u64>,
    /// The lines so far of a message that is written over several; empty between such messages.
    spread: Vec<u8>,
}

/// The members of a message, unread.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(flatten)]
    others: HashMap<String, IgnoredAny>,
}

impl Envelope<'_> {
    /// Some servers log JSON to where their messages go; what they log may have members of any name.
    fn may_be_an_answer(&self, has_id: bool) -> bool {
        let has_answer = self.result.is_some() || self.error.is_some();
        let is_message = self.jsonrpc.is_some() || self.others.is_empty();
        if has_id { has_answer || is_message } else { has_answer && is_message }
    }
}

impl Inbox {
    pub(super) fn new(
        server: Arc<str>,
        secrets: Arc<Secrets>,
        events: Events,
        on_tools_changed: watch::Sender<u64>,
    ) -> Self {
        Self {
            server,
            secrets,
            events,
            pending: HashMap::new(),
            progress: HashMap::new(),
            on_tools_changed,
            spread: Vec::new(),
        }
    }

    /// Remembers what is sent, to know its answer.
    pub(super) fn note(&mut self, message: &ClientJsonRpcMessage) {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let RequestId::Number(id) = request.id else { return };
                let token = request.request.get_meta().get_progress_token();
                let token = token.and_then(|token| match token.0 {
                    NumberOrString::Number(token) => Some(token),
                    NumberOrString::String(_) => None,
                });
                let (reading, sink) = match &request.request {
                    ClientRequest::CallToolRequest(call) => {
                        (Reading::Verbatim, call.extensions().get::<ProgressSink>().cloned())
                    }
                    ClientRequest::ListToolsRequest(_) => (Reading::Verbatim, None),
                    ClientRequest::InitializeRequest(_) => (Reading::Initialize, None),
                    _ => (Reading::Typed, None),
                };
                if let (Some(token), Some(sink)) = (token, sink) {
                    self.progress.insert(token, sink);
                }
                self.pending.insert(id, Pending { reading, token });
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(RequestId::Number(id)) = cancelled.params.request_id
                {
                    self.forget(id);
                }
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
    }

    /// Reads a line, or an event of a stream. What it says to nobody in particular is told here.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<ServerJsonRpcMessage> {
        let line = bytes.trim_ascii_end();
        if line == b"{" || !self.spread.is_empty() {
            return self.read_spread(line);
        }
        let bytes = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_start();
        match bytes.first() {
            None => Vec::new(),
            Some(b'{') => Vec::from_iter(self.read_object(bytes)),
            Some(b'[') => self.read_batch(bytes),
            // Words before the first message, on its line.
            Some(_) => match bytes.windows(2).position(|pair| pair == b"{\"").map(|at| &bytes[at..]) {
                Some(rest) if serde_json::from_slice::<Envelope<'_>>(rest).is_ok() => {
                    Vec::from_iter(self.read_object(rest))
                }
                _ => {
                    self.ignore("a line that is no JSON");
                    Vec::new()
                }
            },
        }
    }

    /// Reads a text that is one message, however many lines it has.
    pub(super) fn read_whole(&mut self, bytes: &[u8]) -> Vec<ServerJsonRpcMessage> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii();
        match bytes.first() {
            Some(b'{') => Vec::from_iter(self.read_object(bytes)),
            Some(b'[') => self.read_batch(bytes),
            _ => Vec::new(),
        }
    }

    /// Forgets a request that did not get through.
    pub(super) fn withdraw(&mut self, id: &RequestId) {
        if let RequestId::Number(id) = id {
            self.forget(*id);
        }
    }

    /// Reads what is left of a line that was too long to keep.
    pub(super) fn read_skipped(&mut self, skipped: &Skipped, limit: usize) -> Option<ServerJsonRpcMessage> {
        let why = format!("it is of {} bytes, and {limit} is the limit", skipped.length);
        let seen = scan(&skipped.head);
        self.refuse(seen.id.or_else(|| id_at_the_end(&skipped.tail)), &why)
    }

    /// Puts indented JSON together again, from `{` to `}` on lines of their own.
    fn read_spread(&mut self, line: &[u8]) -> Vec<ServerJsonRpcMessage> {
        // What never ends must not swallow what comes after it.
        if line.starts_with(b"{\"") || self.spread.len() > LONGEST_SPREAD {
            self.spread.clear();
            self.ignore("the beginning of a message");
            return self.read(line);
        }
        self.spread.extend_from_slice(line);
        self.spread.push(b'\n');
        if line != b"}" {
            return Vec::new();
        }
        let message = std::mem::take(&mut self.spread);
        Vec::from_iter(self.read_object(&message))
    }

    fn read_batch(&mut self, bytes: &[u8]) -> Vec<ServerJsonRpcMessage> {
        let text = repair(bytes);
        match serde_json::from_str::<Vec<&RawValue>>(&text) {
            Ok(parts) => parts.iter().filter_map(|part| self.read_object(part.get().as_bytes())).collect(),
            Err(_) => {
                self.ignore("a line that is no JSON");
                Vec::new()
            }
        }
    }

    fn read_object(&mut self, bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
        if let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(bytes) {
            return self.read_envelope(&envelope);
        }
        let text = repair(bytes);
        match serde_json::from_str::<Envelope<'_>>(&text) {
            Ok(envelope) => self.read_envelope(&envelope),
            Err(error) => {
                let seen = scan(bytes);
                self.refuse(seen.id.or_else(|| id_at_the_end(bytes)), &error.to_string())
            }
        }
    }

    fn read_envelope(&mut self, envelope: &Envelope<'_>) -> Option<ServerJsonRpcMessage> {
        let id = envelope.id.and_then(read_id);
        match (&envelope.method, id) {
            (Some(method), Some(id)) => Some(question(method, envelope.params, id)),
            (Some(method), None) => self.read_notification(method, envelope.params),
            (None, id) if envelope.may_be_an_answer(id.is_some()) => self.read_answer(id, envelope),
            (None, _) => {
                self.ignore("an object that is no message");
                None
            }
        }
    }

    fn read_answer(
        &mut self,
        id: Option<RequestId>,
        envelope: &Envelope<'_>,
    ) -> Option<ServerJsonRpcMessage> {
        let Some((id, pending)) = self.take_pending(id) else {
            self.ignore("an answer that nobody waits for");
            return None;
        };
        let message = match (envelope.error, envelope.result) {
            (Some(error), _) => Err(read_error(error)),
            (None, Some(result)) => match pending.reading {
                Reading::Verbatim => {
                    Ok(ServerResult::CustomResult(CustomResult::new(Value::String(result.get().to_owned()))))
                }
                Reading::Initialize => read_initialize(result),
                Reading::Typed => match value_of(result).and_then(serde_json::from_value) {
                    Ok(result) => Ok(result),
                    Err(error) => Err(malformed(&error.to_string())),
                },
            },
            (None, None) => Err(malformed("it has neither a result nor an error")),
        };
        Some(match message {
            Ok(result) => ServerJsonRpcMessage::response(result, id),
            Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
        })
    }

    fn read_notification(&mut self, method: &str, params: Option<&RawValue>) -> Option<ServerJsonRpcMessage> {
        let length = params.map_or(0, |params| params.get().len());
        let params = params.and_then(|params| value_of(params).ok()).unwrap_or_default();
        let text = |key: &str| params.get(key).and_then(Value::as_str).map(str::to_owned);
        match method {
            "notifications/progress" => {
                let sink = token_of(&params).and_then(|token| self.progress.get(&token));
                if let (Some(sink), Some(progress)) = (sink, params.get("progress").and_then(Value::as_f64)) {
                    let total = params.get("total").and_then(Value::as_f64);
                    // Who cannot keep up with progress does not need all of it.
                    let _ = sink.0.try_send(ServerProgress { progress, total, message: text("message") });
                }
                None
            }
            "notifications/message" => {
                let mut data = params.get("data").cloned().unwrap_or_default();
                if length > LONGEST_WORDS {
                    let words: String = data.to_string().chars().take(LONGEST_WORDS / 4).collect();
                    data = Value::String(format!("{words}… ({length} bytes)"));
                }
                self.events.tell(Event::Log {
                    server: Arc::clone(&self.server),
                    level: text("level").unwrap_or_else(|| "info".into()),
                    logger: text("logger"),
                    data: self.secrets.redact_value(data),
                });
                None
            }
            "notifications/tools/list_changed" => {
                self.on_tools_changed.send_modify(|generation| *generation += 1);
                self.events.tell(Event::ToolsChanged { server: Arc::clone(&self.server) });
                None
            }
            // A question taken back: the client has to know.
            "notifications/cancelled" => {
                let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                serde_json::from_value(message).ok()
            }
            _ => None,
        }
    }

    /// The request that an answer is for. One without an id can only be meant for the only one there is.
    fn take_pending(&mut self, id: Option<RequestId>) -> Option<(RequestId, Pending)> {
        let id = match id {
            Some(RequestId::Number(id)) => id,
            Some(RequestId::String(id)) => id.parse().ok()?,
            None => match self.pending.keys().collect::<Vec<_>>().as_slice() {
                [id] => **id,
                _ => return None,
            },
        };
        self.forget(id).map(|pending| (RequestId::Number(id), pending))
    }

    fn forget(&mut self, id: i64) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        if let Some(token) = pending.token {
            self.progress.remove(&token);
        }
        Some(pending)
    }

    /// Makes an error of an answer that cannot be read, if it can be told whose answer it is.
    pub(super) fn refuse(&mut self, id: Option<RequestId>, why: &str) -> Option<ServerJsonRpcMessage> {
        let Some((id, _)) = id.and_then(|id| self.take_pending(Some(id))) else {
            self.ignore("a message that cannot be read");
            return None;
        };
        Some(ServerJsonRpcMessage::error(malformed(why), Some(id)))
    }

    fn ignore(&self, what: &'static str) {
        tracing::debug!(server = %self.server, what, "ignored");
    }
}

/// Whether an error was made here, of an answer that could not be read.
pub(super) fn is_malformed(error: &ErrorData) -> bool {
    error.code == MALFORMED && error.data.as_ref().is_some_and(|data| *data == json!(MALFORMED_MARK))
}

const MALFORMED: ErrorCode = ErrorCode(-32700);
const MALFORMED_MARK: &str = "codebridge: malformed answer";

fn malformed(why: &str) -> ErrorData {
    ErrorData::new(MALFORMED, why.to_owned(), Some(json!(MALFORMED_MARK)))
}

/// Parses a part of a message, mended when it has to be.
pub(super) fn value_of(raw: &RawValue) -> Result<Value, serde_json::Error> {
    serde_json::from_str(raw.get()).or_else(|_| serde_json::from_str(&repair(raw.get().as_bytes())))
}

/// A string, or a number that is whole whichever way it is written.
fn read_id(raw: &RawValue) -> Option<RequestId> {
    match serde_json::from_str(raw.get()).ok()? {
        Value::String(text) => Some(RequestId::String(text.into())),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0).map(|float| float as i64);
            number.as_i64().or(whole).map(RequestId::Number)
        }
        _ => None,
    }
}

fn token_of(params: &Value) -> Option<i64> {
    let token = params.get("progressToken")?;
    token.as_i64().or_else(|| token.as_str()?.parse().ok())
}

/// A server's request: a ping for the client itself, everything else as it came.
fn question(method: &str, params: Option<&RawValue>, id: RequestId) -> ServerJsonRpcMessage {
    if method == "ping" {
        return ServerJsonRpcMessage::request(ServerRequest::PingRequest(Default::default()), id);
    }
    let params = params.and_then(|params| value_of(params).ok());
    let request = CustomRequest::new(format!("{QUESTION}{method}"), params);
    ServerJsonRpcMessage::request(ServerRequest::CustomRequest(request), id)
}

/// An error in whichever form it came.
fn read_error(raw: &RawValue) -> ErrorData {
    let value = value_of(raw).unwrap_or_default();
    let code = value.get("code").and_then(|code| match code {
        Value::String(text) => text.parse().ok(),
        other => other
            .as_i64()
            .and_then(|code| i32::try_from(code).ok())
            .or_else(|| other.as_f64().map(|f| f as i32)),
    });
    let message = match (value.get("message").unwrap_or(&value), &value) {
        (Value::String(text), _) => text.clone(),
        (_, Value::Null) => "an error without a word".into(),
        (_, value) => value.to_string(),
    };
    let code = ErrorCode(code.unwrap_or(ErrorCode::INTERNAL_ERROR.0));
    let data = value.get("data").cloned().filter(|data| *data != json!(MALFORMED_MARK));
    ErrorData::new(code, message, data)
}

/// What a server says of itself; what it leaves out or writes oddly is filled in, since calls need none of it.
fn read_initialize(raw: &RawValue) -> Result<ServerResult, ErrorData> {
    let value = value_of(raw).map_err(|error| malformed(&error.to_string()))?;
    let Value::Object(mut said) = value else { return Err(malformed("it is no object")) };
    let version = said.get("protocolVersion").filter(|version| version.is_string()).cloned();
    let version = version.unwrap_or_else(|| json!(ProtocolVersion::LATEST_WITH_INITIALIZE.as_str()));
    said.insert("protocolVersion".into(), version);
    if !said.get("capabilities").is_some_and(Value::is_object) {
        said.insert("capabilities".into(), json!({}));
    }
    let info = said.get("serverInfo");
    let word = |key: &str| {
        info.and_then(|info| info.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let plain_info = json!({ "name": word("name"), "version": word("version") });
    if let Ok(result) = serde_json::from_value::<InitializeResult>(Value::Object(said.clone())) {
        return Ok(ServerResult::InitializeResult(result));
    }
    let mut plain = Map::new();
    plain.insert("protocolVersion".into(), said["protocolVersion"].clone());
    let changes = said["capabilities"].get("tools").and_then(|tools| tools.get("listChanged"))
        == Some(&Value::Bool(true));
    plain.insert("capabilities".into(), json!({ "tools": { "listChanged": changes } }));
    plain.insert("serverInfo".into(), plain_info);
    if let Some(Value::String(text)) = said.get("instructions") {
        plain.insert("instructions".into(), text.clone().into());
    }
    match serde_json::from_value(Value::Object(plain)) {
        Ok(result) => Ok(ServerResult::InitializeResult(result)),
        Err(error) => Err(malformed(&error.to_string())),
    }
}
