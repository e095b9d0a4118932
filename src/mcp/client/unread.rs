//! The results of calls that their caller has received and not yet passed on.
//!
//! Whoever calls tools may never read what they return. So the bytes of such results are counted for each caller, and a
//! server that sends more of them is not read for a while. After that the results are dropped: other callers need the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Bytes from which on a result counts. Shorter ones are bounded by the number of questions that a guest may ask.
const LARGE: usize = 64 << 10;
/// Bytes of the results of one caller beyond which it gets no more of them.
const MOST: usize = 32 << 20;
/// How long servers wait for a caller that has more than that.
const PATIENCE: Duration = Duration::from_secs(10);

/// The unread results of one caller.
#[derive(Debug, Clone)]
pub(crate) struct Unread {
    held: Arc<watch::Sender<Held>>,
    patience: Duration,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// Since when these are more than [`MOST`].
    full_since: Option<Instant>,
}

/// Counts a result as unread until it is dropped.
#[derive(Debug)]
pub(crate) struct UnreadShare {
    unread: Unread,
    bytes: usize,
}

impl Default for Unread {
    fn default() -> Self {
        Self { held: Arc::default(), patience: PATIENCE }
    }
}

impl Unread {
    /// Counts a result; None for a short one.
    ///
    /// # Errors
    /// The caller has too many already.
    pub(super) fn count(&self, bytes: usize) -> Result<Option<UnreadShare>, TooMuchUnread> {
        if bytes < LARGE {
            return Ok(None);
        }
        if self.is_full() {
            return Err(TooMuchUnread);
        }
        self.held.send_modify(|held| held.add(bytes));
        Ok(Some(UnreadShare { unread: self.clone(), bytes }))
    }

    /// Whether a result of so many bytes would be dropped.
    pub(super) fn drops(&self, bytes: usize) -> bool {
        bytes >= LARGE && self.is_full()
    }

    pub(super) fn is_full(&self) -> bool {
        self.held.borrow().full_since.is_some()
    }

    /// Waits until the caller may get more, or has let others wait for long enough.
    pub(super) async fn has_room(&self) {
        let mut held = self.held.subscribe();
        let full_since = held.borrow().full_since;
        if let Some(since) = full_since {
            let _ = timeout_at(since + self.patience, held.wait_for(|held| held.full_since.is_none())).await;
        }
    }
}

/// A result is dropped.
#[derive(Debug)]
pub(super) struct TooMuchUnread;

impl Held {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes > MOST {
            self.full_since.get_or_insert_with(Instant::now);
        }
    }

    fn remove(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if self.bytes <= MOST {
            self.full_since = None;
        }
    }
}

impl Drop for UnreadShare {
    fn drop(&mut self) {
        self.unread.held.send_modify(|held| held.remove(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn results_that_are_not_read_are_awaited_for_a_while_and_then_dropped() {
        let unread = Unread { patience: Duration::from_millis(10), ..Unread::default() };
        assert!(unread.count(LARGE - 1).unwrap().is_none());
        let first = unread.count(MOST).unwrap();
        unread.has_room().now_or_never().expect("there is room for one that is larger");
        let second = unread.count(MOST).unwrap();
        assert!(unread.has_room().now_or_never().is_none());
        unread.has_room().await;
        assert!(unread.count(LARGE).is_err());
        assert!(unread.count(LARGE - 1).is_ok());
        drop(first);
        unread.has_room().now_or_never().expect("there is room again");
        drop(second);
        let _large = unread.count(2 * MOST).unwrap();
        assert!(unread.has_room().now_or_never().is_none(), "the time begins again");
    }
}
