//! The caller's end of a tool call.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::called_by::CalledBy;
use super::questions::{Answers, NoAnswers};
use crate::mcp::client::{ServerProgress, Unread};

/// The caller's end of a tool call.
#[derive(Debug, Clone)]
pub struct CallOptions<'a> {
    /// Who makes the call.
    pub by: CalledBy,
    /// Gets the progress that the server reports.
    pub progress: Option<mpsc::Sender<ServerProgress>>,
    /// Answers the questions that the server asks during the call.
    pub answers: Arc<dyn Answers>,
    /// Counts the result until the caller drops it.
    pub unread: Option<UnreadResults>,
    /// How long the call may take at least, where its server's definition sets no limit: as long as the run that makes it.
    pub at_least: Duration,
    /// Cancels the call.
    pub cancel: &'a CancellationToken,
}

/// Counts the results of one caller until each is dropped: no more are read than it reads.
#[derive(Debug, Clone, Default)]
pub struct UnreadResults(pub(super) Unread);

impl<'a> CallOptions<'a> {
    /// Returns options without progress and answers.
    pub fn new(cancel: &'a CancellationToken) -> Self {
        Self {
            by: CalledBy::default(),
            progress: None,
            answers: Arc::new(NoAnswers::default()),
            unread: None,
            at_least: Duration::ZERO,
            cancel,
        }
    }

    /// Returns the same options for a further request of the call.
    pub(super) fn again(&self) -> Self {
        Self {
            by: self.by.clone(),
            progress: self.progress.clone(),
            answers: Arc::clone(&self.answers),
            unread: self.unread.clone(),
            ..*self
        }
    }
}
