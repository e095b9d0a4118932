//! The inbox of one connection: every message of the server passes here before `rmcp` sees it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use rmcp::model::{
    CancelledNotification, ClientJsonRpcMessage, ClientNotification, ClientRequest, EmptyResult, ErrorData,
    GetExtensions, GetMeta, NumberOrString, RequestId, ServerJsonRpcMessage, ServerNotification,
    ServerResult,
};

use super::answer::{Answer, Expected};
use super::initialize::read_initialize;
use super::message::{FromServer, Listening, LogData, MessageReader, read_skipped, read_whole};
use super::questions::{Asked, Questions, Request};
use super::unread::Unread;
use crate::mcp::bounds::{Bounds, work_on};
use crate::mcp::line::Skipped;
use crate::mcp::scan::scan;

/// Receives what a server says to nobody in particular.
pub(crate) trait Notices: fmt::Debug + Send + Sync {
    /// A log message.
    fn logged(&self, level: Option<&str>, logger: Option<&str>, data: LogData);
    /// The list of tools has changed.
    fn tools_changed(&self);
    /// The list of resources or that of prompts has changed.
    fn offers_changed(&self);
    /// A resource has changed.
    fn resource_updated(&self, uri: &str);
    /// What the person did on a page is done.
    fn page_done(&self, id: &str);
    /// The server has accepted a subscription.
    fn listening(&self, accepted: &Listening);
    /// Something that is no message for us.
    fn ignored(&self, what: &'static str);
    /// A line that is no message of the protocol.
    fn printed(&self, line: &[u8]);
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

/// Messages that were read and not yet accepted: others need not wait while they are read.
#[derive(Debug)]
pub(crate) struct Unaccepted(Vec<FromServer>);

impl Unaccepted {
    /// Reads a text that is one message or a batch.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        Self(work_on(bytes.len(), || read_whole(bytes)))
    }

    /// Reads what is left of a line that was too long to keep.
    pub(crate) fn read_skipped(skipped: &Skipped, limit: usize) -> Self {
        Self(vec![read_skipped(skipped, limit)])
    }
}

#[derive(Debug)]
pub(crate) struct Inbox {
    reader: MessageReader,
    notices: Box<dyn Notices>,
    pending: HashMap<i64, Pending>,
    asked: Asked,
    /// The results of the caller that got more than it read, the last time that one did.
    full: Option<Unread>,
    unreadable: Arc<OnceLock<String>>,
}

impl Inbox {
    pub(crate) fn new(notices: Box<dyn Notices>) -> Self {
        Self {
            reader: MessageReader::default(),
            notices,
            pending: HashMap::new(),
            asked: Asked::default(),
            full: None,
            unreadable: Arc::default(),
        }
    }

    /// Returns where the questions of the server wait for their handler.
    pub(crate) fn questions(&self) -> Questions {
        self.asked.questions.clone()
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
                    (None, ClientRequest::InitializeRequest(_)) => {
                        // A new session: the server waits for no reply any more.
                        self.asked.clear();
                        Kind::Initialize
                    }
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
        let read = work_on(line.len(), || match self.dropped(line) {
            Some(dropped) => vec![dropped],
            None => self.reader.read_line(line),
        });
        if let [FromServer::Foreign(_)] = read.as_slice() {
            self.notices.printed(line);
        }
        self.accept_all(Unaccepted(read))
    }

    /// Returns the answer that stands for a line, if that is a result which its caller has no room for.
    fn dropped(&self, line: &[u8]) -> Option<FromServer> {
        if !self.full.as_ref()?.drops(line.len()) {
            return None;
        }
        let seen = scan(line, line);
        let id = seen.id.filter(|_| seen.is_reply)?;
        let RequestId::Number(number) = id else { return None };
        let Kind::Raw(Expected { unread: Some(unread), .. }) = &self.pending.get(&number)?.kind else {
            return None;
        };
        unread.drops(line.len()).then(|| FromServer::Answer(Some(id), Answer::Dropped(line.len())))
    }

    /// Gives a request up that the server did not answer in its response.
    pub(crate) fn unanswered(&mut self, id: RequestId) -> Vec<ServerJsonRpcMessage> {
        let answer = Answer::Unreadable("there is no answer in it".into());
        self.accept_all(Unaccepted(vec![FromServer::Answer(Some(id), answer)]))
    }

    /// Takes messages in, and returns what `rmcp` has to know of them.
    pub(crate) fn accept_all(&mut self, messages: Unaccepted) -> Vec<ServerJsonRpcMessage> {
        messages.0.into_iter().filter_map(|message| self.accept(message)).collect()
    }

    /// Notes that a reply to the server was sent, or never will be.
    pub(crate) fn replied(&mut self, message: &ClientJsonRpcMessage) {
        if let Some(id) = replied_id(message) {
            self.asked.replied(id);
        }
    }

    /// Waits until the server may ask and answer more: until then it is not read.
    pub(crate) fn has_room(&self) -> impl Future<Output = ()> + Send + 'static {
        let (asked, results) = (self.asked.has_room(), self.has_room_for_results());
        async move {
            asked.await;
            results.await;
        }
    }

    /// Waits until the server may answer more.
    pub(crate) fn has_room_for_results(&self) -> impl Future<Output = ()> + Send + 'static {
        let full = self.full.clone();
        async move {
            if let Some(full) = full {
                full.has_room().await;
            }
        }
    }

    fn accept(&mut self, message: FromServer) -> Option<ServerJsonRpcMessage> {
        match message {
            FromServer::Answer(id, answer) => return self.answer(id, answer),
            FromServer::Request { id, method, params, bytes } => {
                let asked = match method.as_str() {
                    "ping" => self.asked.ping(id),
                    _ => self.asked.question(Request { id, method, params, bytes }),
                };
                if asked.is_none() {
                    self.notices.ignored("a request with the id of another one");
                }
                return asked;
            }
            FromServer::Progress { token, progress } => {
                let pending = self.pending.values().find(|pending| pending.token == Some(token));
                if let Some(Pending { kind: Kind::Raw(expected), .. }) = pending {
                    expected.report(progress);
                }
            }
            FromServer::Log { level, logger, data } => {
                self.notices.logged(level.as_deref(), logger.as_deref(), data);
            }
            FromServer::ToolsChanged => self.notices.tools_changed(),
            FromServer::OffersChanged => self.notices.offers_changed(),
            FromServer::ResourceUpdated(uri) => self.notices.resource_updated(&uri),
            FromServer::PageDone(id) => self.notices.page_done(&id),
            FromServer::Listening(accepted) => self.notices.listening(&accepted),
            FromServer::Cancelled(params) => {
                let was_asked = params.request_id.as_ref().is_some_and(|id| self.asked.replied(id));
                let cancelled = ServerNotification::CancelledNotification(CancelledNotification::new(params));
                return was_asked.then(|| ServerJsonRpcMessage::notification(cancelled));
            }
            FromServer::Foreign(what) | FromServer::Nothing(what) => self.notices.ignored(what),
        }
        None
    }

    fn answer(&mut self, id: Option<RequestId>, answer: Answer) -> Option<ServerJsonRpcMessage> {
        let Some((id, kind)) = self.take_pending(id) else {
            self.notices.ignored("an answer to no request");
            return None;
        };
        let result = match (kind, answer) {
            (Kind::Raw(expected), answer) => {
                expected.fill(answer);
                if let Some(unread) = expected.unread.filter(Unread::is_full) {
                    self.full = Some(unread);
                }
                Ok(ServerResult::EmptyResult(EmptyResult {}))
            }
            (Kind::Initialize, Answer::Result(result)) => {
                read_initialize(&result).map(ServerResult::InitializeResult).map_err(Answer::Unreadable)
            }
            (Kind::Typed, Answer::Result(result)) => match Bounds::SMALL.parse(&result) {
                Some(read) => read.and_then(serde_json::from_value).map_err(|error| error.to_string()),
                None => Err("it is too large".into()),
            }
            .map_err(Answer::Unreadable),
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
            Err(Answer::Result(_) | Answer::Dropped(_)) => return None,
        })
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

/// Returns the request of the server that a message answers.
fn replied_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        ClientJsonRpcMessage::Response(response) => Some(&response.id),
        ClientJsonRpcMessage::Error(error) => error.id.as_ref(),
        ClientJsonRpcMessage::Request(_) | ClientJsonRpcMessage::Notification(_) => None,
    }
}

/// Returns whether a message is the answer to a request of the server.
pub(crate) fn is_reply(message: &ClientJsonRpcMessage) -> bool {
    replied_id(message).is_some()
}
