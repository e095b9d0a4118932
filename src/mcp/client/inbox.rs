//! The inbox of one connection: every message of the server passes here before `rmcp` sees it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use rmcp::model::{
    CancelledNotification, ClientJsonRpcMessage, ClientNotification, ClientRequest, EmptyResult, ErrorData,
    GetExtensions, GetMeta, NumberOrString, RequestId, ServerJsonRpcMessage, ServerNotification,
    ServerRequest, ServerResult,
};
use serde_json::Value;

use super::answer::{Answer, Expected, ServerProgress};
use super::initialize::read_initialize;
use super::message::{FromServer, MessageReader, read_skipped, read_whole};
use super::questions::Questions;
use crate::mcp::line::Skipped;
use crate::mcp::repair::parse;

/// Receives what a server says to nobody in particular.
pub(crate) trait Notices: fmt::Debug + Send + Sync {
    /// A log message of so many bytes.
    fn logged(&self, level: Option<&str>, logger: Option<&str>, data: Value, bytes: usize);
    /// The list of tools has changed.
    fn tools_changed(&self);
    /// Something that is no message for us.
    fn ignored(&self, what: &'static str);
}

#[derive(Debug)]
struct Pending {
    token: Option<i64>,
    kind: Kind,
}

/// Who reads the result of a request.
#[derive(Debug)]
enum Kind {
    /// The caller, as it is.
    Raw(Expected),
    /// `rmcp`, after we filled in what it wants.
    Initialize,
    /// `rmcp`.
    Typed,
}

#[derive(Debug)]
pub(crate) struct Inbox {
    reader: MessageReader,
    notices: Box<dyn Notices>,
    pending: HashMap<i64, Pending>,
    questions: Questions,
    unreadable: Arc<OnceLock<String>>,
}

impl Inbox {
    pub(crate) fn new(notices: Box<dyn Notices>) -> Self {
        Self {
            reader: MessageReader::default(),
            notices,
            pending: HashMap::new(),
            questions: Questions::default(),
            unreadable: Arc::default(),
        }
    }

    /// Returns where the questions of the server wait for their handler.
    pub(crate) fn questions(&self) -> Questions {
        self.questions.clone()
    }

    /// Returns why the answer to the handshake could not be read, if it could not.
    pub(crate) fn unreadable(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.unreadable)
    }

    /// Remembers what is sent, to know its answer.
    pub(crate) fn note(&mut self, message: &ClientJsonRpcMessage) {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let RequestId::Number(id) = request.id else { return };
                let kind = match (request.request.extensions().get::<Expected>(), &request.request) {
                    (Some(expected), _) => Kind::Raw(expected.clone()),
                    (None, ClientRequest::InitializeRequest(_)) => Kind::Initialize,
                    (None, _) => Kind::Typed,
                };
                let token = match request.request.get_meta().get_progress_token().map(|token| token.0) {
                    Some(NumberOrString::Number(token)) => Some(token),
                    _ => None,
                };
                self.pending.insert(id, Pending { token, kind });
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.withdraw(id);
                }
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
    }

    /// Forgets a request that was not sent or is not waited for.
    pub(crate) fn withdraw(&mut self, id: &RequestId) {
        if let RequestId::Number(id) = id {
            self.pending.remove(id);
        }
    }

    /// Reads a line, and returns what `rmcp` has to know of it.
    pub(crate) fn read_line(&mut self, line: &[u8]) -> Vec<ServerJsonRpcMessage> {
        let messages = self.reader.read_line(line);
        self.accept_all(messages)
    }

    /// Reads a text that is one message or a batch.
    pub(crate) fn read_whole(&mut self, bytes: &[u8]) -> Vec<ServerJsonRpcMessage> {
        self.accept_all(read_whole(bytes))
    }

    /// Reads what is left of a line that was too long to keep.
    pub(crate) fn read_skipped(&mut self, skipped: &Skipped, limit: usize) -> Vec<ServerJsonRpcMessage> {
        self.accept_all(vec![read_skipped(skipped, limit)])
    }

    /// Gives a request up that the server did not answer in its response.
    pub(crate) fn unanswered(&mut self, id: RequestId) -> Vec<ServerJsonRpcMessage> {
        let answer = Answer::Unreadable("there is no answer in it".into());
        self.accept_all(vec![FromServer::Answer(Some(id), answer)])
    }

    fn accept_all(&mut self, messages: Vec<FromServer>) -> Vec<ServerJsonRpcMessage> {
        messages.into_iter().filter_map(|message| self.accept(message)).collect()
    }

    fn accept(&mut self, message: FromServer) -> Option<ServerJsonRpcMessage> {
        match message {
            FromServer::Answer(id, answer) => self.answer(id, answer),
            FromServer::Request { id, method, .. } if method == "ping" => {
                Some(ServerJsonRpcMessage::request(ServerRequest::PingRequest(Default::default()), id))
            }
            FromServer::Request { id, method, params } => Some(self.questions.add(id, method, params)),
            FromServer::Notification { method, params, bytes } => self.notification(&method, params, bytes),
            FromServer::Nothing(what) => {
                self.notices.ignored(what);
                None
            }
        }
    }

    fn answer(&mut self, id: Option<RequestId>, answer: Answer) -> Option<ServerJsonRpcMessage> {
        let Some((id, kind)) = self.take_pending(id) else {
            self.notices.ignored("an answer to no request");
            return None;
        };
        let result = match (kind, answer) {
            (Kind::Raw(expected), answer) => {
                expected.fill(answer);
                Ok(ServerResult::EmptyResult(EmptyResult {}))
            }
            (Kind::Initialize, Answer::Result(result)) => {
                read_initialize(&result).map(ServerResult::InitializeResult).map_err(Answer::Unreadable)
            }
            (Kind::Typed, Answer::Result(result)) => parse(&result)
                .and_then(serde_json::from_value)
                .map_err(|error| Answer::Unreadable(error.to_string())),
            (Kind::Initialize | Kind::Typed, failure) => Err(failure),
        };
        Some(match result {
            Ok(result) => ServerJsonRpcMessage::response(result, id),
            Err(Answer::Error(error)) => ServerJsonRpcMessage::error(error, Some(id)),
            Err(Answer::Unreadable(reason)) => {
                let _ = self.unreadable.set(reason);
                ServerJsonRpcMessage::error(
                    ErrorData::parse_error("the answer is unreadable", None),
                    Some(id),
                )
            }
            Err(Answer::Result(_)) => return None,
        })
    }

    fn notification(&mut self, method: &str, params: Value, bytes: usize) -> Option<ServerJsonRpcMessage> {
        let text = |key: &str| params.get(key).and_then(Value::as_str);
        match method {
            "notifications/progress" => {
                let token = token_of(&params)?;
                let pending = self.pending.values().find(|pending| pending.token == Some(token));
                if let Some(Pending { kind: Kind::Raw(expected), .. }) = pending
                    && let Some(progress) = params.get("progress").and_then(Value::as_f64)
                {
                    let total = params.get("total").and_then(Value::as_f64);
                    let message = text("message").map(str::to_owned);
                    expected.report(ServerProgress { progress, total, message });
                }
                None
            }
            "notifications/message" => {
                let data = params.get("data").cloned().unwrap_or_default();
                self.notices.logged(text("level"), text("logger"), data, bytes);
                None
            }
            "notifications/tools/list_changed" => {
                self.notices.tools_changed();
                None
            }
            // The server takes a question back, whose handler only rmcp knows.
            "notifications/cancelled" => {
                let cancelled = CancelledNotification::new(serde_json::from_value(params).ok()?);
                Some(ServerJsonRpcMessage::notification(ServerNotification::CancelledNotification(cancelled)))
            }
            _ => None,
        }
    }

    /// Returns the request that an answer is for. One without an id can only be for the only request there is.
    fn take_pending(&mut self, id: Option<RequestId>) -> Option<(RequestId, Kind)> {
        let id = match id {
            Some(RequestId::Number(id)) => id,
            Some(RequestId::String(id)) => id.parse().ok()?,
            None => match self.pending.keys().collect::<Vec<_>>().as_slice() {
                [id] => **id,
                _ => return None,
            },
        };
        self.pending.remove(&id).map(|pending| (RequestId::Number(id), pending.kind))
    }
}

fn token_of(params: &Value) -> Option<i64> {
    let token = params.get("progressToken")?;
    token.as_i64().or_else(|| token.as_str()?.parse().ok())
}
