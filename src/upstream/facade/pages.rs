//! The pages of logins that the person was shown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::upstream::error::UpstreamError;

/// A page that was closed so often is not shown again: code could show it again and again.
pub(super) const MOST_CLOSED: u32 = 3;
/// Logins that a call which waits for one may not have noticed yet.
pub(super) const MOST_LOGINS: usize = 16;

/// The pages that were shown, by server.
pub(super) type Pages = HashMap<Arc<str>, Page>;

/// What came of the pages of one server.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) closed: u32,
    pub(super) logged_in: Option<Instant>,
}

impl Page {
    /// Keeps what came of a page.
    pub(super) fn end(&mut self, login: Result<(), UpstreamError>) -> Result<(), UpstreamError> {
        match login {
            Ok(()) => *self = Self { closed: 0, logged_in: Some(Instant::now()) },
            Err(error) => {
                self.closed += 1;
                return Err(error);
            }
        }
        Ok(())
    }
}
