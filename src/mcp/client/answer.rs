//! What a caller waits for, handed over without `rmcp`'s types.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::ErrorData;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::unread::{Unread, UnreadShare};

/// The answer to a request, as the server wrote it.
#[derive(Debug)]
pub(crate) enum Answer {
    Result(Box<RawValue>),
    Error(ErrorData),
    /// There was a result of so many bytes, which is dropped: the caller reads none.
    Dropped(usize),
    /// There was an answer, but this is wrong with it.
    Unreadable(String),
}

/// The progress of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerProgress {
    /// Rises with every message.
    pub progress: f64,
    /// The value at the end, when the server knows it.
    pub total: Option<f64>,
    /// A description for people.
    pub message: Option<String>,
}

impl fmt::Display for ServerProgress {
    /// Writes `MESSAGE (3/5)`, as far as the server says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let so_far = match self.total {
            Some(total) => format!("{}/{total}", self.progress),
            None => self.progress.to_string(),
        };
        match &self.message {
            Some(message) => write!(f, "{message} ({so_far})"),
            None => f.write_str(&so_far),
        }
    }
}

/// What the sender of a request expects. It is an extension of the request, so that it passes through `rmcp` to the
/// transport; the answer is put here instead of into the response that `rmcp` sees.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    answer: Arc<Mutex<Option<CountedAnswer>>>,
    progress: Option<mpsc::Sender<ServerProgress>>,
    /// Counts the result, if anybody may leave it unread.
    pub(super) unread: Option<Unread>,
}

/// An answer, and what counts it as unread.
type CountedAnswer = (Answer, Option<UnreadShare>);

impl Expected {
    pub(crate) fn new(progress: Option<mpsc::Sender<ServerProgress>>, unread: Option<Unread>) -> Self {
        Self { answer: Arc::default(), progress, unread }
    }

    /// Returns the answer, once it has arrived.
    pub(crate) fn take(&self) -> Option<CountedAnswer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn fill(&self, answer: Answer) {
        let counted = match (&self.unread, answer) {
            (Some(unread), Answer::Result(result)) => match unread.count(result.get().len()) {
                Ok(share) => (Answer::Result(result), share),
                Err(_) => (Answer::Dropped(result.get().len()), None),
            },
            (_, answer) => (answer, None),
        };
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
    }

    pub(super) fn report(&self, progress: ServerProgress) {
        if let Some(sender) = &self.progress {
            // A receiver that is slower than the server misses some.
            let _ = sender.try_send(progress);
        }
    }
}
