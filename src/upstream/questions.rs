//! What servers ask of the clients of the bridge: a form for the user, the text of a model, folders.
//!
//! A question goes to the client whose call caused it, never to another one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tokio::sync::watch;

/// Who asks, where a question of a server has its name. A server of this name waits as long.
pub(super) const BRIDGE: &str = "codebridge";

/// A request of a server.
#[derive(Debug, Clone)]
pub struct Question {
    pub server: Arc<str>,
    /// `elicitation/create`, `sampling/createMessage`, `roots/list`, or an unknown method.
    pub method: String,
    /// Its parameters as they came.
    pub params: Option<Value>,
}

impl Question {
    /// Whether the bridge itself asks, and no server.
    pub fn is_of_bridge(&self) -> bool {
        *self.server == *BRIDGE
    }
}

/// Why a question has no answer: an error of JSON-RPC.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub code: i32,
    /// For the server's log.
    pub message: String,
    /// What the client added.
    pub data: Option<Value>,
}

const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INTERNAL_ERROR: i32 = -32603;

impl Refusal {
    /// The client cannot answer such a question.
    pub fn not_supported(method: &str) -> Self {
        let message = format!("'{method}' is not supported: the client of this bridge does not offer it");
        Self { code: METHOD_NOT_FOUND, message, data: None }
    }

    /// The client was asked and gave no answer.
    pub fn unanswered(why: &str) -> Self {
        let message = format!("the client of this bridge gave no answer: {why}");
        Self { code: INTERNAL_ERROR, message, data: None }
    }

    /// No call is under way that could have caused the question.
    pub(super) fn no_call(method: &str) -> Self {
        let message = format!("'{method}' is supported during a call only, and no call is running");
        Self { code: METHOD_NOT_FOUND, message, data: None }
    }

    /// Calls of several clients are under way, and the question does not say which one it belongs to.
    fn several_clients(method: &str) -> Self {
        let message = format!(
            "'{method}' is refused: calls of several clients are running on this connection, and the request does not say \
             which one it belongs to"
        );
        Self { code: INVALID_REQUEST, message, data: None }
    }

    /// The call that caused the question has ended.
    pub(super) fn call_ended() -> Self {
        let message = "the call that the question belongs to has ended".into();
        Self { code: INTERNAL_ERROR, message, data: None }
    }
}

/// Which questions servers may ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offers {
    /// `elicitation/create` with a form.
    pub elicitation: bool,
    /// `elicitation/create` with a URL to visit.
    pub elicitation_by_url: bool,
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// `roots/list`.
    pub roots: bool,
}

impl Offers {
    fn or(self, other: Self) -> Self {
        Self {
            elicitation: self.elicitation || other.elicitation,
            elicitation_by_url: self.elicitation_by_url || other.elicitation_by_url,
            sampling: self.sampling || other.sampling,
            roots: self.roots || other.roots,
        }
    }
}

/// The answer to come.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, Refusal>> + Send + 'a>>;

/// Identifies a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientId(u64);

impl ClientId {
    /// Returns the id of one more client.
    pub fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// How one run asks its client.
pub trait Answers: fmt::Debug + Send + Sync + 'static {
    /// Returns the client that answers.
    fn client(&self) -> ClientId;

    /// Returns which questions the client can answer.
    fn offers(&self) -> Offers;

    /// Asks the client. Dropped when the server withdraws its question.
    fn answer(&self, question: Question) -> Answering<'_>;

    /// Says that what the person did on a page is done. There may be nobody who notices.
    fn page_done(&self, _id: &str) {}
}

/// Refuses every question: for clients that answer none, and for the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAnswers(pub ClientId);

impl Answers for NoAnswers {
    fn client(&self) -> ClientId {
        self.0
    }

    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        Box::pin(async move { Err(Refusal::not_supported(&question.method)) })
    }
}

/// Who can be asked: the callers of everything under way, the latest last.
#[derive(Debug, Clone, Default)]
pub(super) struct Callers(Arc<watch::Sender<UnderWay>>);

#[derive(Debug, Default)]
struct UnderWay {
    callers: Vec<Reachable>,
    last: CallNumber,
    /// What any of the callers so far could answer. A server learns it when it starts, which may be between two calls.
    offers: Offers,
}

/// A caller that can be asked.
#[derive(Debug)]
struct Reachable {
    number: CallNumber,
    answers: Arc<dyn Answers>,
    askers: Askers,
}

/// The servers whose questions a caller may get; None = all.
pub type Askers = Option<Vec<Arc<str>>>;

impl Reachable {
    /// Returns whether a question of a server may go here. The folders of the client are no secret from a server that its
    /// user has defined, and many servers ask for them once only, when they are started.
    fn takes(&self, server: &str, method: &str) -> bool {
        let allowed = self.askers.as_ref().is_none_or(|askers| askers.iter().any(|name| **name == *server));
        allowed || method == "roots/list"
    }
}

/// Identifies a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CallNumber(u64);

/// Something under way whose caller can be asked, as long as it lives.
#[derive(Debug)]
pub struct CallerGuard {
    callers: Callers,
    pub(super) number: CallNumber,
}

impl Callers {
    /// Adds a caller until the guard is dropped.
    pub(super) fn enter(&self, answers: &Arc<dyn Answers>, askers: Askers) -> CallerGuard {
        let mut number = CallNumber::default();
        self.0.send_modify(|under_way| {
            under_way.last.0 += 1;
            number = under_way.last;
            under_way.offers = under_way.offers.or(answers.offers());
            under_way.callers.push(Reachable { number, answers: Arc::clone(answers), askers });
        });
        CallerGuard { callers: self.clone(), number }
    }

    /// Returns what the callers so far could answer.
    pub(super) fn offers(&self) -> Offers {
        self.0.borrow().offers
    }

    /// Returns the caller of one call, if that is still under way.
    pub(super) fn caller_of(&self, number: CallNumber) -> Option<Arc<dyn Answers>> {
        let under_way = self.0.borrow();
        let found = under_way.callers.iter().find(|caller| caller.number == number);
        found.map(|caller| Arc::clone(&caller.answers))
    }

    /// Returns the latest caller that a question may go to; None when there is none.
    ///
    /// # Errors
    /// These callers are not one client: a question that does not name its call could be shown to the wrong one.
    pub(super) fn caller_for(&self, question: &Question) -> Result<Option<Arc<dyn Answers>>, Refusal> {
        let under_way = self.0.borrow();
        let mut possible =
            under_way.callers.iter().rev().filter(|caller| caller.takes(&question.server, &question.method));
        let Some(latest) = possible.next() else { return Ok(None) };
        match possible.all(|other| other.answers.client() == latest.answers.client()) {
            true => Ok(Some(Arc::clone(&latest.answers))),
            false => Err(Refusal::several_clients(&question.method)),
        }
    }

    /// Waits until one call has ended, or all calls of a client have where none is named.
    pub(super) async fn ended(&self, number: Option<CallNumber>, client: ClientId) {
        let is_it = |caller: &Reachable| match number {
            Some(number) => caller.number == number,
            None => caller.answers.client() == client,
        };
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|under_way| !under_way.callers.iter().any(is_it)).await;
    }
}

impl Drop for CallerGuard {
    fn drop(&mut self) {
        let number = self.number;
        self.callers.0.send_modify(|under_way| under_way.callers.retain(|caller| caller.number != number));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_question_without_a_call_goes_to_the_only_client_and_never_to_one_of_several() {
        let callers = Callers::default();
        let asked = |server: &str, method: &str| {
            let question = Question { server: server.into(), method: method.into(), params: None };
            let asked = callers.caller_for(&question).map_err(|refusal| refusal.code);
            asked.map(|answers| answers.map(|answers| answers.client()))
        };
        let form = |server| asked(server, "elicitation/create");
        assert_eq!(form("a"), Ok(None));
        let (first, second) = (ClientId::next(), ClientId::next());
        let enter = |client, askers: Askers| {
            callers.enter(&(Arc::new(NoAnswers(client)) as Arc<dyn Answers>), askers)
        };
        let of_first = (enter(first, None), enter(first, None));
        assert_eq!(form("a"), Ok(Some(first)));
        let of_second = enter(second, Some(vec!["b".into()]));
        assert_eq!(form("b"), Err(INVALID_REQUEST));
        assert_eq!(form("a"), Ok(Some(first)));
        assert_eq!(asked("a", "roots/list"), Err(INVALID_REQUEST));
        assert!(callers.caller_of(of_second.number).is_some_and(|answers| answers.client() == second));
        drop(of_first);
        assert_eq!((form("a"), form("b")), (Ok(None), Ok(Some(second))));
        assert_eq!(asked("a", "roots/list"), Ok(Some(second)));
        let number = of_second.number;
        drop(of_second);
        assert!(callers.caller_of(number).is_none());
    }

    #[tokio::test]
    async fn a_question_of_no_call_ends_with_the_calls_of_its_client() {
        let callers = Callers::default();
        let (first, second) = (ClientId::next(), ClientId::next());
        let enter = |client| callers.enter(&(Arc::new(NoAnswers(client)) as Arc<dyn Answers>), None);
        let of_first = (enter(first), enter(first));
        let of_second = enter(second);
        let mut ended = std::pin::pin!(callers.ended(None, first));
        drop(of_first.0);
        assert!(ended.as_mut().now_or_never().is_none());
        drop(of_first.1);
        ended.await;
        drop(of_second);
    }
}
