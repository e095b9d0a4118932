//! What a caller waits for, handed over without `rmcp`'s types.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::ErrorData;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// The answer to a request, as the server wrote it.
#[derive(Debug)]
pub(crate) enum Answer {
    Result(Box<RawValue>),
    Error(ErrorData),
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
    answer: Arc<Mutex<Option<Answer>>>,
    progress: Option<mpsc::Sender<ServerProgress>>,
}

impl Expected {
    pub(crate) fn new(progress: Option<mpsc::Sender<ServerProgress>>) -> Self {
        Self { answer: Arc::default(), progress }
    }

    /// Returns the answer, once it has arrived.
    pub(crate) fn take(&self) -> Option<Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn fill(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    pub(super) fn report(&self, progress: ServerProgress) {
        if let Some(sender) = &self.progress {
            // A receiver that is slower than the server misses some.
            let _ = sender.try_send(progress);
        }
    }
}
