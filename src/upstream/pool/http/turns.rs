//! Large messages of one server are read one after the other: it decides how many responses are large at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes above which a message is large.
const LARGE: usize = 1 << 20;

/// The turns that all responses of a connection take.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

/// One message that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    turns: Turns,
    bytes: usize,
    turn: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(super) fn reading(&self) -> Reading {
        Reading { turns: self.clone(), bytes: 0, turn: None }
    }
}

impl Reading {
    /// Adds bytes that have arrived. A message that becomes large waits for its turn before more of it is read.
    pub(super) async fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes > LARGE && self.turn.is_none() {
            self.turn = Arc::clone(&self.turns.0).acquire_owned().await.ok();
        }
    }

    /// Ends the message; the next one begins.
    pub(super) fn end(&mut self) {
        (self.bytes, self.turn) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn large_messages_take_turns_and_small_ones_do_not_wait() {
        let turns = Turns::default();
        let (mut first, mut second, mut third) = (turns.reading(), turns.reading(), turns.reading());
        first.add(LARGE + 1).await;
        second.add(LARGE).await;
        third.add(1).await;
        assert!(second.add(1).now_or_never().is_none());
        first.add(LARGE).await;
        first.end();
        second.add(1).await;
        first.add(LARGE).await;
        assert!(first.add(1).now_or_never().is_none());
        drop(second);
        first.add(1).await;
    }
}
