//! What a server sent: read as far as it can be read, and no further than it has to be.

use rmcp::model::{CancelledNotificationParam, ErrorCode, ErrorData, RequestId};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::{Answer, ServerProgress};
use super::envelope::{Batch, Envelope};
use crate::mcp::bounds::{Bounds, LONGEST_ID, count_values, work_on};
use crate::mcp::line::{BYTE_ORDER_MARK, Skipped};
use crate::mcp::repair::{parse, repair};
use crate::mcp::scan::scan;

/// Bytes of a message on several lines.
const LONGEST_INDENTED: usize = 64 << 20;
/// Bytes of the name of a method; it is written again in refusals.
const LONGEST_METHOD: usize = 200;
/// Characters of the message of a progress notification, and of the names in a log message.
const LONGEST_REMARK: usize = 1_000;
/// What is parsed of the parameters of a request. Sampling may have images in it.
const QUESTION: Bounds = Bounds { bytes: 16 << 20, values: 200_000 };
/// What is parsed of a notification.
const NOTICE: Bounds = Bounds { bytes: 64 << 10, values: 500 };
/// Bytes of a larger log message that are kept. Fewer are shown, so that no credential is cut in two.
const START_OF_LOG: usize = 32 << 10;
/// Bytes that a parsed value takes beside its text, about.
const VALUE: usize = 150;

/// One message of a server.
#[derive(Debug)]
pub(super) enum FromServer {
    /// An answer; one without an id can only be meant for the only request there is.
    Answer(Option<RequestId>, Answer),
    Request {
        id: RequestId,
        method: String,
        /// Or why they are not read.
        params: Result<Option<Value>, &'static str>,
        /// The memory that they take, about.
        bytes: usize,
    },
    Progress {
        token: i64,
        progress: ServerProgress,
    },
    Log {
        level: Option<String>,
        logger: Option<String>,
        data: LogData,
    },
    ToolsChanged,
    /// The resources or the prompts have.
    OffersChanged,
    /// The resource of this URI has.
    ResourceUpdated(String),
    Listening(Listening),
    /// What the person did on the page of this id is done.
    PageDone(String),
    Cancelled(CancelledNotificationParam),
    /// Not a message of the protocol.
    Foreign(&'static str),
    /// A message that is not for us.
    Nothing(&'static str),
}

/// What a server will tell of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listening {
    /// Changes of its list of tools.
    pub(crate) tools: bool,
    /// Changes of its resources or prompts.
    pub(crate) offers: bool,
    /// Changes of the resources of these URIs.
    pub(crate) resources: Vec<String>,
}

/// What a log message says.
#[derive(Debug, PartialEq)]
pub(crate) enum LogData {
    Whole(Value),
    /// The beginning of the text of a larger one, which has so many bytes.
    Start(String, usize),
}

impl Envelope<'_> {
    /// Some servers log JSON to their standard output, with members of any name.
    fn may_be_an_answer(&self, has_id: bool) -> bool {
        let has_answer = self.result.is_some() || self.error.is_some();
        let is_message = self.jsonrpc.is_some() || !self.has_others;
        if has_id { has_answer || is_message } else { has_answer && is_message }
    }

    fn read(self) -> FromServer {
        let id = self.id.and_then(read_id);
        let may_be_an_answer = self.may_be_an_answer(id.is_some());
        let Some(method) = self.method else {
            if !may_be_an_answer {
                return FromServer::Foreign("an object that is not a message");
            }
            let answer = match (self.error, self.result) {
                (Some(error), _) => Answer::Error(read_error(error)),
                (None, Some(result)) => Answer::Result(result.to_owned()),
                (None, None) => Answer::Unreadable("it has neither a result nor an error".into()),
            };
            return FromServer::Answer(id, answer);
        };
        match (read_text(method, LONGEST_METHOD), id) {
            (Some(method), Some(id)) => read_request(id, method, self.params),
            (Some(method), None) => read_notification(&method, self.params),
            (None, Some(id)) if method.get().len() > LONGEST_METHOD => {
                let params = Err("the name of its method is too long");
                FromServer::Request { id, method: String::new(), params, bytes: 0 }
            }
            (None, id) => unreadable(id, "its method is not a name".into()),
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
        if line.starts_with(b"{\"") || self.indented.len() + line.len() > LONGEST_INDENTED {
            self.indented = Vec::new();
            return self.read_line(line);
        }
        self.indented.extend_from_slice(line);
        self.indented.push(b'\n');
        if line != b"}" {
            return Vec::new();
        }
        let message = std::mem::take(&mut self.indented);
        work_on(message.len(), || vec![read_object(&message)])
    }
}

const NO_JSON: FromServer = FromServer::Foreign("a line that is not JSON");

/// Reads a text that is one message or a batch, however many lines it has.
pub(super) fn read_whole(bytes: &[u8]) -> Vec<FromServer> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii();
    let read_all =
        |Batch(parts): Batch<'_>| parts.iter().map(|part| read_object(part.get().as_bytes())).collect();
    match bytes.first() {
        Some(b'{') => vec![read_object(bytes)],
        Some(b'[') => match serde_json::from_slice(bytes) {
            Ok(batch) => read_all(batch),
            Err(_) => serde_json::from_str(&repair(bytes)).map_or_else(|_| vec![NO_JSON], read_all),
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
        None => FromServer::Foreign("a message that cannot be read"),
    }
}

/// Reads a string, or a number that is whole whichever way it is written.
fn read_id(raw: &RawValue) -> Option<RequestId> {
    if raw.get().len() > LONGEST_ID {
        return None;
    }
    match serde_json::from_str(raw.get()).ok()? {
        Value::String(text) => Some(RequestId::String(text.into())),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0).map(|float| float as i64);
            number.as_i64().or(whole).map(RequestId::Number)
        }
        _ => None,
    }
}

/// Reads a string of at most so many bytes, as it is written.
fn read_text(raw: &RawValue, longest: usize) -> Option<String> {
    if raw.get().len() > longest {
        return None;
    }
    serde_json::from_str(raw.get()).ok()
}

fn read_request(id: RequestId, method: String, params: Option<&RawValue>) -> FromServer {
    let Some(raw) = params else {
        return FromServer::Request { id, method, params: Ok(None), bytes: 0 };
    };
    let (text, values) = (raw.get().len(), count_values(raw.get().as_bytes()));
    let params = match text <= QUESTION.bytes && values <= QUESTION.values {
        true => Ok(parse(raw).ok()),
        false => Err("its parameters are too large"),
    };
    FromServer::Request { id, method, params, bytes: text + VALUE * values }
}

fn read_notification(method: &str, params: Option<&RawValue>) -> FromServer {
    match method {
        "notifications/message" => return read_log(params),
        "notifications/tools/list_changed" => return FromServer::ToolsChanged,
        "notifications/resources/list_changed" | "notifications/prompts/list_changed" => {
            return FromServer::OffersChanged;
        }
        "notifications/progress"
        | "notifications/cancelled"
        | "notifications/resources/updated"
        | "notifications/elicitation/complete"
        | "notifications/subscriptions/acknowledged" => {}
        _ => return FromServer::Nothing("an unknown notification"),
    }
    let params = params.and_then(|params| NOTICE.parse(params)).and_then(Result::ok);
    let read = params.and_then(|params| match method {
        "notifications/progress" => read_progress(&params),
        "notifications/resources/updated" => {
            params.get("uri").and_then(Value::as_str).map(|uri| FromServer::ResourceUpdated(uri.to_owned()))
        }
        "notifications/elicitation/complete" => {
            params.get("elicitationId").and_then(Value::as_str).map(|id| FromServer::PageDone(id.to_owned()))
        }
        "notifications/subscriptions/acknowledged" => Some(FromServer::Listening(read_listening(&params))),
        // The server takes a question back, whose handler only rmcp knows.
        _ => serde_json::from_value(params).ok().map(FromServer::Cancelled),
    });
    read.unwrap_or(FromServer::Nothing("a malformed notification"))
}

fn read_listening(params: &Value) -> Listening {
    let accepted = params.get("notifications").unwrap_or(&Value::Null);
    let is_true = |name: &str| accepted.get(name).and_then(Value::as_bool).unwrap_or_default();
    let resources = accepted.get("resourceSubscriptions").and_then(Value::as_array).into_iter().flatten();
    Listening {
        tools: is_true("toolsListChanged"),
        offers: is_true("promptsListChanged") || is_true("resourcesListChanged"),
        resources: resources.filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

fn read_progress(params: &Value) -> Option<FromServer> {
    let token = params.get("progressToken")?;
    let token = token.as_i64().or_else(|| token.as_str()?.parse().ok())?;
    let message = params.get("message").and_then(Value::as_str);
    let progress = ServerProgress {
        progress: params.get("progress").and_then(Value::as_f64)?,
        total: params.get("total").and_then(Value::as_f64),
        message: message.map(|message| message.chars().take(LONGEST_REMARK).collect()),
    };
    Some(FromServer::Progress { token, progress })
}

/// The members of a log message, unread.
#[derive(Default, Deserialize)]
struct LogParams<'a> {
    #[serde(borrow, default)]
    level: Option<&'a RawValue>,
    #[serde(borrow, default)]
    logger: Option<&'a RawValue>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

fn read_log(params: Option<&RawValue>) -> FromServer {
    let params: LogParams<'_> =
        params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
    let name = |raw: Option<&RawValue>| raw.and_then(|raw| read_text(raw, LONGEST_REMARK));
    let data = match params.data {
        None => LogData::Whole(Value::Null),
        Some(raw) => match NOTICE.parse(raw) {
            Some(data) => LogData::Whole(data.unwrap_or_default()),
            None => LogData::Start(start_of(raw.get(), START_OF_LOG).to_owned(), raw.get().len()),
        },
    };
    FromServer::Log { level: name(params.level), logger: name(params.logger), data }
}

fn start_of(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or_default()]
}

/// Reads an error in whichever form it came.
fn read_error(raw: &RawValue) -> ErrorData {
    let Some(value) = Bounds::SMALL.parse(raw) else {
        let message = format!("{}… ({} bytes)", start_of(raw.get(), LONGEST_REMARK), raw.get().len());
        return ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None);
    };
    let value = value.unwrap_or_default();
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
