//! What a server sent: read as far as it can be read, and no further than it has to be.

use std::collections::HashMap;

use rmcp::model::{ErrorCode, ErrorData, RequestId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::Answer;
use crate::mcp::line::{BYTE_ORDER_MARK, Skipped};
use crate::mcp::repair::{parse, repair};
use crate::mcp::scan::scan;

/// Bytes of a message on several lines.
const LONGEST_INDENTED: usize = 64 << 20;

/// One message of a server.
#[derive(Debug)]
pub(super) enum FromServer {
    /// An answer; one without an id can only be meant for the only request there is.
    Answer(Option<RequestId>, Answer),
    Request {
        id: RequestId,
        method: String,
        params: Option<Value>,
    },
    Notification {
        method: String,
        params: Value,
        /// The length of the parameters.
        bytes: usize,
    },
    /// No message, or none that says whom it is for.
    Nothing(&'static str),
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
    /// Some servers log JSON to their standard output, with members of any name.
    fn may_be_an_answer(&self, has_id: bool) -> bool {
        let has_answer = self.result.is_some() || self.error.is_some();
        let is_message = self.jsonrpc.is_some() || self.others.is_empty();
        if has_id { has_answer || is_message } else { has_answer && is_message }
    }

    fn read(self) -> FromServer {
        let id = self.id.and_then(read_id);
        let params = |params: Option<&RawValue>| params.and_then(|params| parse(params).ok());
        let may_be_an_answer = self.may_be_an_answer(id.is_some());
        match (self.method, id) {
            (Some(method), Some(id)) => FromServer::Request { id, method, params: params(self.params) },
            (Some(method), None) => FromServer::Notification {
                method,
                params: params(self.params).unwrap_or_default(),
                bytes: self.params.map_or(0, |params| params.get().len()),
            },
            (None, id) if may_be_an_answer => FromServer::Answer(
                id,
                match (self.error, self.result) {
                    (Some(error), _) => Answer::Error(read_error(error)),
                    (None, Some(result)) => Answer::Result(result.to_owned()),
                    (None, None) => Answer::Unreadable("it has neither a result nor an error".into()),
                },
            ),
            (None, _) => FromServer::Nothing("an object that is not a message"),
        }
    }
}

/// Reads messages. A message may be spread over several lines.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    /// The lines so far of an indented message; empty between such messages.
    indented: Vec<u8>,
}

impl MessageReader {
    /// Reads a line.
    pub(super) fn read_line(&mut self, bytes: &[u8]) -> Vec<FromServer> {
        let line = bytes.trim_ascii_end();
        if line == b"{" || !self.indented.is_empty() {
            return self.read_indented(line);
        }
        let bytes = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii_start();
        match bytes.first() {
            None => Vec::new(),
            Some(b'{' | b'[') => read_whole(bytes),
            // Text before the message, on the same line.
            Some(_) => match bytes.windows(2).position(|pair| pair == b"{\"").map(|at| &bytes[at..]) {
                Some(rest) if serde_json::from_slice::<Envelope<'_>>(rest).is_ok() => vec![read_object(rest)],
                _ => vec![NO_JSON],
            },
        }
    }

    /// Joins indented JSON, from `{` to `}` on lines of their own.
    fn read_indented(&mut self, line: &[u8]) -> Vec<FromServer> {
        // One that never ends must not swallow what comes after it.
        if line.starts_with(b"{\"") || self.indented.len() > LONGEST_INDENTED {
            self.indented.clear();
            return self.read_line(line);
        }
        self.indented.extend_from_slice(line);
        self.indented.push(b'\n');
        if line != b"}" {
            return Vec::new();
        }
        let message = std::mem::take(&mut self.indented);
        vec![read_object(&message)]
    }
}

const NO_JSON: FromServer = FromServer::Nothing("a line that is not JSON");

/// Reads a text that is one message or a batch, however many lines it has.
pub(super) fn read_whole(bytes: &[u8]) -> Vec<FromServer> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii();
    match bytes.first() {
        Some(b'{') => vec![read_object(bytes)],
        Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(&repair(bytes)) {
            Ok(parts) => parts.iter().map(|part| read_object(part.get().as_bytes())).collect(),
            Err(_) => vec![NO_JSON],
        },
        _ => Vec::new(),
    }
}

/// Reads what is known of a line that was too long to keep.
pub(super) fn read_skipped(skipped: &Skipped, limit: usize) -> FromServer {
    let reason = format!("it has {} bytes, and {limit} is the limit", skipped.length);
    unreadable(scan(&skipped.head, &skipped.tail).id, reason)
}

/// Whether a text is a message, rather than some other JSON.
pub(crate) fn is_message(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Envelope<'_>>(bytes).is_ok_and(|envelope| envelope.jsonrpc.is_some())
}

fn read_object(bytes: &[u8]) -> FromServer {
    if let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(bytes) {
        return envelope.read();
    }
    match serde_json::from_str::<Envelope<'_>>(&repair(bytes)) {
        Ok(envelope) => envelope.read(),
        Err(error) => unreadable(scan(bytes, bytes).id, error.to_string()),
    }
}

fn unreadable(id: Option<RequestId>, reason: String) -> FromServer {
    match id {
        Some(id) => FromServer::Answer(Some(id), Answer::Unreadable(reason)),
        None => FromServer::Nothing("a message that cannot be read"),
    }
}

/// Reads a string, or a number that is whole whichever way it is written.
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

/// Reads an error in whichever form it came.
fn read_error(raw: &RawValue) -> ErrorData {
    let value = parse(raw).unwrap_or_default();
    let code = value.get("code").and_then(|code| match code {
        Value::String(text) => text.parse().ok(),
        other => other
            .as_i64()
            .and_then(|code| i32::try_from(code).ok())
            .or_else(|| other.as_f64().map(|code| code as i32)),
    });
    let message = match (value.get("message").unwrap_or(&value), &value) {
        (Value::String(text), _) => text.clone(),
        (_, Value::Null) => "an error without a message".into(),
        (_, value) => value.to_string(),
    };
    let code = ErrorCode(code.unwrap_or(ErrorCode::INTERNAL_ERROR.0));
    ErrorData::new(code, message, value.get("data").cloned())
}
