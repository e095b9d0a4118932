//! What servers ask of the client behind the bridge: input of the user, a model's words, folders.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;

/// A request of a server.
#[derive(Debug, Clone)]
pub struct Question {
    /// Who asks.
    pub server: Arc<str>,
    /// `elicitation/create`, `sampling/createMessage`, `roots/list`, or a method that nobody knows.
    pub method: String,
    /// Its parameters as they came.
    pub params: Option<Value>,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The code of JSON-RPC.
    pub code: i32,
    /// For the server's log.
    pub message: String,
    /// More of it, as the client said it.
    pub data: Option<Value>,
}

impl Refusal {
    /// Nobody here can answer such a question.
    pub fn not_supported(method: &str) -> Self {
        const METHOD_NOT_FOUND: i32 = -32601;
        let message = format!("'{method}' is not supported: the client of this bridge does not offer it");
        Self { code: METHOD_NOT_FOUND, message, data: None }
    }

    /// The client was asked, in vain.
    pub fn unanswered(why: &str) -> Self {
        const INTERNAL_ERROR: i32 = -32603;
        let message = format!("the client of this bridge gave no answer: {why}");
        Self { code: INTERNAL_ERROR, message, data: None }
    }

    /// The client's version of the protocol has no way for servers to ask.
    pub fn no_way(method: &str) -> Self {
        let message =
            "is not supported: the client of this bridge has not opened a session in which servers may ask";
        Self { message: format!("'{method}' {message}"), ..Self::not_supported(method) }
    }
}

/// Which questions servers are told that they may ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offers {
    /// `elicitation/create` with a form.
    pub elicitation: bool,
    /// `elicitation/create` with an address to visit.
    pub elicitation_by_url: bool,
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// `roots/list`.
    pub roots: bool,
}

/// The answer to come.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, Refusal>> + Send + 'a>>;

/// Whoever can answer the questions of servers.
pub trait Answers: fmt::Debug + Send + Sync + 'static {
    /// What it can answer at this moment; asked when a server is started.
    fn offers(&self) -> Offers;

    /// Answers. Dropped when the server takes its question back.
    fn answer(&self, question: Question) -> Answering<'_>;
}

/// Answers nothing, which is what holds until the server layer hands in something better.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAnswers;

impl Answers for NoAnswers {
    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        Box::pin(async move { Err(Refusal::not_supported(&question.method)) })
    }
}
