//! Requests of a server, on their way past `rmcp` to the handler that answers them.
//!
//! A server decides how much it asks, so all of it is bounded: the requests without a reply, and the memory of those that
//! wait for an answer. One more is refused at once. A server that does not read its replies is not read either.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{CustomRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage, ServerRequest};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// What `rmcp` sees of every question: a request with its id, of a method that it hands to the handler unread.
const TICKET: &str = "codebridge/question";
/// Questions of one server that wait for their answers at once.
const MOST_WAITING: usize = 64;
/// Bytes that all of them take together; each counts as its share at least.
const MOST_BYTES: usize = 64 << 20;
const UNIT: usize = MOST_BYTES / MOST_WAITING;
/// Requests without a reply, refused ones included, beyond which a server is not read.
const MOST_ASKED: usize = 2 * MOST_WAITING;

/// A question as it came.
#[derive(Debug)]
pub(crate) struct RawQuestion {
    pub(crate) method: String,
    pub(crate) params: Option<Value>,
    /// Counts it until its handler is done.
    pub(crate) share: QuestionShare,
}

/// The share of one question in the memory of all.
#[derive(Debug)]
pub(crate) struct QuestionShare(
    #[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit,
);

/// A request of a server as it was read.
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) method: String,
    pub(super) params: Result<Option<Value>, &'static str>,
    pub(super) bytes: usize,
}

type Tickets = HashMap<RequestId, Result<RawQuestion, &'static str>>;

/// The questions of one connection that no handler has taken yet.
#[derive(Debug, Clone)]
pub(crate) struct Questions {
    tickets: Arc<Mutex<Tickets>>,
    shares: Arc<Semaphore>,
}

impl Default for Questions {
    fn default() -> Self {
        Self { tickets: Arc::default(), shares: Arc::new(Semaphore::new(MOST_WAITING)) }
    }
}

impl Questions {
    /// Returns the question that a request of `rmcp` stands for, or why it is refused.
    pub(crate) fn take(&self, id: &RequestId) -> Result<RawQuestion, ErrorData> {
        let taken = self.tickets().remove(id).unwrap_or(Err("it was answered already"));
        taken.map_err(|why| {
            let message = format!("the request is refused: {why}");
            ErrorData::new(ErrorCode::INVALID_REQUEST, message, None)
        })
    }

    /// Keeps a question and returns the request that stands for it.
    fn add(&self, request: Request) -> ServerJsonRpcMessage {
        let Request { id, method, params, bytes } = request;
        let share = u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX);
        let question = params.and_then(|params| {
            let permit = Arc::clone(&self.shares).try_acquire_many_owned(share);
            let share = QuestionShare(permit.map_err(|_| "too many requests wait for their answers")?);
            Ok(RawQuestion { method, params, share })
        });
        self.tickets().insert(id.clone(), question);
        ServerJsonRpcMessage::request(ServerRequest::CustomRequest(CustomRequest::new(TICKET, None)), id)
    }

    fn forget(&self, id: &RequestId) {
        self.tickets().remove(id);
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The requests of a server that have no reply yet.
#[derive(Debug, Default)]
pub(super) struct Asked {
    ids: HashSet<RequestId>,
    count: watch::Sender<usize>,
    pub(super) questions: Questions,
}

impl Asked {
    /// Notes a request, and returns what stands for it. One with the id of another that has no reply is none.
    pub(super) fn question(&mut self, request: Request) -> Option<ServerJsonRpcMessage> {
        self.note(&request.id).then(|| self.questions.add(request))
    }

    /// Notes a request that needs no handler of ours.
    pub(super) fn ping(&mut self, id: RequestId) -> Option<ServerJsonRpcMessage> {
        let ping = ServerRequest::PingRequest(Default::default());
        self.note(&id).then(|| ServerJsonRpcMessage::request(ping, id))
    }

    fn note(&mut self, id: &RequestId) -> bool {
        let is_new = self.ids.insert(id.clone());
        self.count.send_replace(self.ids.len());
        is_new
    }

    /// Forgets a request whose reply was sent, or that the server takes back. Returns whether there was one.
    pub(super) fn replied(&mut self, id: &RequestId) -> bool {
        self.questions.forget(id);
        let was_asked = self.ids.remove(id);
        self.count.send_replace(self.ids.len());
        was_asked
    }

    /// Forgets all: the server has lost its session.
    pub(super) fn clear(&mut self) {
        let asked = std::mem::take(&mut self.ids);
        asked.iter().for_each(|id| self.questions.forget(id));
        self.count.send_replace(0);
    }

    /// Waits until the server may ask more.
    pub(super) fn has_room(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut count = self.count.subscribe();
        // Nobody asks when the sender is gone.
        async move { drop(count.wait_for(|count| *count < MOST_ASKED).await) }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn request(id: i64, bytes: usize) -> Request {
        Request { id: RequestId::Number(id), method: "roots/list".into(), params: Ok(None), bytes }
    }

    fn refusal(asked: &Asked, id: i64) -> String {
        asked.questions.take(&RequestId::Number(id)).unwrap_err().message.into_owned()
    }

    #[tokio::test]
    async fn a_server_that_asks_too_much_is_refused_and_then_not_read() {
        let mut asked = Asked::default();
        for id in 0..MOST_ASKED as i64 {
            asked.has_room().now_or_never().expect("there is room");
            assert!(asked.question(request(id, 0)).is_some());
        }
        let mut room = Box::pin(asked.has_room());
        assert!(room.as_mut().now_or_never().is_none());
        let first = asked.questions.take(&RequestId::Number(0)).unwrap();
        assert!(refusal(&asked, MOST_WAITING as i64).contains("too many requests"));
        assert!(asked.replied(&RequestId::Number(MOST_WAITING as i64)));
        room.await;
        // Its handler is not done: its place is free when it is.
        asked.replied(&RequestId::Number(0));
        asked.question(request(1_000, 0));
        assert!(refusal(&asked, 1_000).contains("too many requests"));
        drop(first);
        asked.question(request(1_001, 0));
        assert!(asked.questions.take(&RequestId::Number(1_001)).is_ok());
    }

    #[test]
    fn questions_have_a_part_of_the_memory_each() {
        let mut asked = Asked::default();
        asked.question(request(1, MOST_BYTES / 2));
        asked.question(request(2, MOST_BYTES));
        asked.question(request(3, MOST_BYTES / 2));
        asked.question(request(4, 0));
        assert!(asked.questions.take(&RequestId::Number(1)).is_ok());
        for id in [2, 4] {
            assert!(refusal(&asked, id).contains("too many requests"), "{id}");
        }
        let large = Request { params: Err("its parameters are too large"), ..request(5, 0) };
        asked.question(large);
        assert!(refusal(&asked, 5).contains("too large"));
    }

    #[tokio::test]
    async fn an_id_counts_once_and_a_question_that_is_taken_back_does_not() {
        let mut asked = Asked::default();
        assert!(asked.ping(RequestId::Number(1)).is_some());
        assert!(asked.question(request(1, 0)).is_none());
        for id in 2..MOST_ASKED as i64 + 10 {
            asked.question(request(id, 0));
        }
        assert!(asked.has_room().now_or_never().is_none());
        asked.clear();
        asked.has_room().await;
        assert!(asked.question(request(1, 0)).is_some());
        assert!(asked.replied(&RequestId::Number(1)));
        assert!(!asked.replied(&RequestId::Number(1)));
    }
}
